//! The state of one worker: its partitions, the transactions it hosts, the branches of transactions hosted by other
//! workers, the lock requests that wait, and its statistics.
//!
//! Only the worker's own thread accesses it, except for the statistics, which others may read. No function here waits.
//!
//! Invariant: a shard's cells are borrowed only within one call of this crate, never across a point where a task may be
//! suspended or a closure of the user runs that could call back in.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use atrapos_durability::wal::Epoch;
use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::partition::{PartitionId, Tables};
use atrapos_partition::planted::{self, Bug, planted};
use atrapos_partition::schema::{Catalog, CatalogTag, PublishedCatalog, TableId, unknown_table};
use atrapos_runtime::{Shard as RuntimeShard, Ticks, Worker, WorkerId};
use atrapos_storage::Memory;
use atrapos_storage::lock::{LockMode, LockOutcome, LockTarget, LockTicket, TxnId};
use rustc_hash::FxBuildHasher;

use crate::admission::{self, Admission};
use crate::age::{Age, AgeClock};
use crate::branch::{Access, Branch, MovedBranch};
use crate::central::StateView;
use crate::deadlock::{self, home_of};
use crate::distributed::{self, Peers};
use crate::lending::Lending;
use crate::lock_waits::{LockWaitState, LockWaits};
use crate::lookups::Lookups;
use crate::messages::send_end;
use crate::monitor::Monitor;
use crate::sent::Sent;
use crate::snapshot::Snapshots;
use crate::stats::EngineStats;
use crate::tx::{BranchRef, DirectMemory, Ending, TxnState};
use crate::unfinished::{Copies, LoadJournal};
use crate::wal::CommitWaiters;

/// A worker of the engine.
pub type EngineWorker = Worker<Shard>;

/// A map with a fast hash function.
pub(crate) type FastMap<K, V> = HashMap<K, V, FxBuildHasher>;

/// See the module's introduction.
pub struct Shard {
    /// Identifies the handles of this database.
    pub(crate) tag: CatalogTag,
    /// The catalogs of clients and workers.
    pub(crate) published: Arc<PublishedCatalog>,
    /// The tables, and the partitions this worker owns.
    pub tables: RefCell<Tables>,
    /// Recycled transaction states, no more than there is room for at first: none if the worker shares system state.
    states: RefCell<Vec<Rc<TxnState>>>,
    /// Transactions with their home here that are known to others: they were suspended at least once.
    pub active: RefCell<FastMap<TxnId, Rc<TxnState>>>,
    /// Branches of transactions that have their home on another worker.
    pub participants: RefCell<FastMap<TxnId, Rc<RefCell<Branch>>>>,
    branches: RefCell<Vec<Rc<RefCell<Branch>>>>,
    /// The memory of direct transactions, `None` if there are none, since the worker shares system state.
    pub(crate) direct: Option<Box<RefCell<DirectMemory>>>,
    /// The lock requests that wait here.
    pub waits: RefCell<LockWaits>,
    granted: RefCell<Vec<LockTicket>>,
    /// The age of the transaction that aborted last, for its immediate retry.
    pub(crate) aborted_age: Cell<Age>,
    /// Its class.
    pub(crate) aborted_class: Cell<&'static str>,
    /// The clock for the ages of transactions.
    pub(crate) ages: AgeClock,
    next_ticket: Cell<u64>,
    next_txn: Cell<u64>,
    /// First look-ups that wait to be made together.
    pub lookups: Lookups,
    /// Set while a task brings pages of partitions that came from another memory node.
    pub relocates: Cell<bool>,
    /// The stored procedures that others have sent, while they are held.
    pub sent: Sent,
    /// The number of changes of the scheme that this worker has received: a location found at another count may be
    /// outdated.
    pub scheme_changes: Cell<u64>,
    /// The probes that this worker has seen.
    pub probes: RefCell<deadlock::Probes>,
    /// The limit on the transactions under way.
    pub admission: Admission,
    /// The state of lending.
    pub(crate) lending: Lending,
    /// The source of memory for new trees.
    pub memory: Arc<dyn Memory>,
    /// The newest hidden key that this worker has given to a row, by table; no entry for tables to which it has not
    /// appended.
    pub(crate) appended: RefCell<FastMap<TableId, u64>>,
    /// The journal of an unfinished load.
    pub loading: RefCell<LoadJournal>,
    /// Copies of a table that gets another column.
    pub copies: RefCell<Copies>,
    /// The counters of the worker.
    pub(crate) stats: Arc<EngineStats>,
    /// The settings.
    pub(crate) options: ShardOptions,
    /// The snapshot of which a checkpoint is written, if there is no WAL.
    pub snapshots: Snapshots,
    /// The transactions that wait for their commits to become durable; `None` if changes leave no redo.
    pub commit_waiters: Option<CommitWaiters>,
    /// The monitor of the worker's partitions.
    pub monitor: Monitor,
    /// The worker's view of the system state that workers share, if any is.
    system_state: Option<Box<StateView>>,
    /// The links to other instances, if the database is an instance of a deployment.
    pub peers: OnceCell<Peers>,
    /// A transaction that has to be voted on, between its procedure's end and the beginning of the vote.
    pub(crate) undecided: Cell<Option<Rc<TxnState>>>,
}

/// Settings of every worker.
#[derive(Clone, Debug)]
pub struct ShardOptions {
    /// The time that a lock request waits before deadlock detection starts for its transaction.
    pub deadlock_check_after: Ticks,
    /// The bound on the redo of one transaction, in bytes.
    pub transaction_redo_bytes: usize,
    /// Bytes of the lines that rows take, beyond which look-ups are made together.
    pub near_bytes: u64,
}

/// The number of recycled states kept per worker; further transactions in flight cost allocations.
pub(crate) const POOL: usize = 4096;

impl Shard {
    /// Counts pages that were brought from another memory node.
    pub fn note_relocated(&self, pages: u64) {
        self.stats.relocated_pages.add(pages);
    }

    /// Creates a worker's state before its first transaction.
    pub fn new(
        published: Arc<PublishedCatalog>,
        tables: Tables,
        memory: Arc<dyn Memory>,
        stats: Arc<EngineStats>,
        options: ShardOptions,
        commit_waiters: Option<CommitWaiters>,
        monitor: Monitor,
    ) -> Shard {
        Shard {
            tag: tables.catalog.tag,
            published,
            tables: RefCell::new(tables),
            states: RefCell::new(Vec::with_capacity(POOL)),
            active: RefCell::default(),
            participants: RefCell::default(),
            branches: RefCell::default(),
            direct: Some(Box::new(RefCell::new(DirectMemory::bounded(options.transaction_redo_bytes)))),
            waits: RefCell::default(),
            granted: RefCell::default(),
            aborted_age: Cell::default(),
            aborted_class: Cell::default(),
            ages: AgeClock::default(),
            next_ticket: Cell::new(1),
            next_txn: Cell::new(1),
            lookups: Lookups::new(options.near_bytes),
            relocates: Cell::new(false),
            sent: Sent::new(),
            scheme_changes: Cell::new(0),
            probes: RefCell::default(),
            admission: Admission::new(options.deadlock_check_after),
            lending: Lending::default(),
            memory,
            appended: RefCell::default(),
            loading: RefCell::default(),
            copies: RefCell::default(),
            stats,
            options,
            snapshots: Snapshots::default(),
            commit_waiters,
            monitor,
            system_state: None,
            peers: OnceCell::new(),
            undecided: Cell::new(None),
        }
    }

    /// Returns the worker's state with a part in the system state that workers share.
    #[must_use]
    pub fn sharing(self, system_state: StateView) -> Shard {
        Shard { states: RefCell::default(), direct: None, system_state: Some(Box::new(system_state)), ..self }
    }

    /// The catalog of this worker.
    pub fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.tables.borrow().catalog)
    }

    /// Returns an abort if the handle belongs to another database.
    #[inline]
    pub fn check(&self, id: TableId, tag: CatalogTag) -> Result<(), Abort> {
        if tag == self.tag { Ok(()) } else { Err(unknown_table(id)) }
    }

    /// Takes a state for a transaction that begins.
    #[inline(always)]
    pub(crate) fn take_state(&self, worker: &EngineWorker) -> Rc<TxnState> {
        let recycled = self.states.borrow_mut().pop();
        recycled.unwrap_or_else(|| self.first_state(worker))
    }

    /// Returns a state for a transaction that begins while none is recycled; of a worker that shares system state, every one.
    #[cold]
    #[inline(never)]
    fn first_state(&self, worker: &EngineWorker) -> Rc<TxnState> {
        let new = || Rc::new(TxnState::bounded(self.options.transaction_redo_bytes));
        match &self.system_state {
            Some(system_state) => system_state.enter(worker, new),
            None => new(),
        }
    }

    /// Recycles the state of a transaction that has ended. No other reference to it may exist.
    #[inline(always)]
    pub(crate) fn put_state(&self, state: Rc<TxnState>) {
        let mut states = self.states.borrow_mut();
        if states.len() < states.capacity() {
            states.push(state);
        } else {
            drop(states);
            self.put_last_state(state);
        }
    }

    /// Takes back the state of a transaction that has ended while there is no room for it; of a worker that shares system
    /// state, every one.
    #[cold]
    #[inline(never)]
    fn put_last_state(&self, state: Rc<TxnState>) {
        self.leave_system_state(&state);
        if let Some(system_state) = &self.system_state {
            system_state.recycle(state);
        }
    }

    /// Takes a transaction that has ended out of the system state that workers share, if any is.
    pub(crate) fn leave_system_state(&self, state: &TxnState) {
        if let Some(system_state) = &self.system_state {
            self.stats.central_accesses.add(system_state.leave(state));
        }
    }

    /// Returns the branch of a transaction of another worker here, created by its first action.
    fn participant_branch(&self, owner: TxnId) -> Rc<RefCell<Branch>> {
        let mut participants = self.participants.borrow_mut();
        let branch = participants.entry(owner).or_insert_with(|| {
            let recycled = self.branches.borrow_mut().pop();
            let branch = recycled.unwrap_or_else(|| {
                Rc::new(RefCell::new(Branch::bounded(self.options.transaction_redo_bytes)))
            });
            // Its transaction is suspended by definition, so its accesses are locked at once.
            {
                let mut branch = branch.borrow_mut();
                branch.suspended = true;
                branch.closed = false;
            }
            branch
        });
        Rc::clone(branch)
    }

    /// Returns the branch of a transaction here, whether or not this is its home; created by its first action.
    pub fn branch_of(&self, worker: &EngineWorker, owner: TxnId) -> BranchRef {
        if home_of(owner) == worker.id()
            && let Some(state) = self.active.borrow().get(&owner)
        {
            // It is suspended, so its accesses are locked at once.
            state.home.borrow_mut().suspended = true;
            return BranchRef::Home(Rc::clone(state));
        }
        BranchRef::Participant(self.participant_branch(owner))
    }

    /// Returns the branch of a transaction here, if it has one.
    pub(crate) fn find_branch(&self, owner: TxnId) -> Option<BranchRef> {
        if let Some(state) = self.active.borrow().get(&owner) {
            return Some(BranchRef::Home(Rc::clone(state)));
        }
        self.participants.borrow().get(&owner).map(|branch| BranchRef::Participant(Rc::clone(branch)))
    }

    /// Visits every branch on this worker whose transaction is known to others.
    pub fn each_branch(&self, mut each: impl FnMut(TxnId, &BranchRef)) {
        for (owner, state) in self.active.borrow().iter() {
            each(*owner, &BranchRef::Home(Rc::clone(state)));
        }
        for (owner, branch) in self.participants.borrow().iter() {
            each(*owner, &BranchRef::Participant(Rc::clone(branch)));
        }
    }

    /// Takes in a part of a branch that comes here with a partition, or with locks in one, and enters its locks.
    pub fn take_in(&self, worker: &EngineWorker, carried: MovedBranch) {
        let owner = carried.owner;
        let branch = self.branch_of(worker, owner);
        let first = branch.borrow().accesses.len();
        let mut tables = self.tables.borrow_mut();
        branch.borrow_mut().take_in(carried);
        branch.borrow_mut().undo.undo_rolled_back(&mut tables);
        let branch = branch.borrow();
        for access in &branch.accesses[first..] {
            access.enter(owner, &mut tables);
        }
    }

    /// Returns true if a transaction under way has read `table` without a lock.
    pub fn is_read_unlocked(&self, table: TableId) -> bool {
        let mut is_read = false;
        self.each_branch(|_, branch| {
            let is_of_it = |access: &Access| access.unlocked && access.partition.table == table;
            is_read = is_read || branch.borrow().accesses.iter().any(is_of_it);
        });
        is_read
    }

    /// Gives a number to a transaction with its home here, unique in the database and growing with time on each worker.
    pub fn new_txn(&self, home: WorkerId) -> TxnId {
        let drawn = self.system_state.as_ref().and_then(|system_state| system_state.draw());
        drawn.map_or_else(|| self.new_own_txn(home), |number| TxnId::new(number, home.0))
    }

    /// Gives a number to a transaction of a worker that shares no system state.
    #[inline]
    pub(crate) fn new_own_txn(&self, home: WorkerId) -> TxnId {
        let next = self.next_txn.get();
        self.next_txn.set(next + 1);
        TxnId::new(next, home.0)
    }

    /// Gives a number to a lock request.
    pub(crate) fn new_ticket(&self) -> LockTicket {
        let ticket = self.next_ticket.get();
        self.next_ticket.set(ticket + 1);
        LockTicket(ticket)
    }

    /// Ends a branch on this worker and wakes the tasks whose lock requests are granted by it.
    pub(crate) fn finish_branch(
        &self,
        worker: &EngineWorker,
        branch: &mut Branch,
        owner: TxnId,
        Ending { commit, epoch }: Ending,
    ) {
        if commit && self.snapshots.is_held() {
            self.snapshots.keep(&branch.undo, epoch, &self.tables.borrow());
        }
        if planted(Bug::LocksReleasedBeforeUndo) && !commit {
            let mut late = std::mem::take(&mut branch.undo);
            worker.send(worker.id(), move |worker| late.apply(&mut worker.shard().tables.borrow_mut()));
        }
        let mut granted = self.granted.take();
        branch.finish(commit, owner, &mut self.tables.borrow_mut(), &mut granted);
        self.wake_granted(worker, &mut granted);
        self.granted.replace(granted);
    }

    /// Ends the branch of a transaction of another worker.
    pub(crate) fn on_end(&self, worker: &EngineWorker, owner: TxnId, commit: bool, epoch: Epoch) {
        if !commit {
            self.end_waits(worker, owner);
        }
        let Some(branch) = self.participants.borrow_mut().remove(&owner) else { return };
        branch.borrow_mut().closed = true;
        let passed_to = std::mem::take(&mut branch.borrow_mut().passed_to);
        for next in passed_to {
            if planted(Bug::EndNotPassedOn) {
                break;
            }
            self.stats.ends_passed_on.add(1);
            send_end(worker, next, owner, commit, epoch);
        }
        if let Some(commit_waiters) = &self.commit_waiters {
            branch.borrow().note_changes(&mut commit_waiters.undurable.borrow_mut(), epoch);
        }
        self.finish_branch(worker, &mut branch.borrow_mut(), owner, Ending { commit, epoch });
        let mut branches = self.branches.borrow_mut();
        if branches.len() < POOL && Rc::strong_count(&branch) == 1 {
            branches.push(branch);
        }
    }

    /// Requests a lock, and wakes the tasks whose requests are granted because the order of the queue changes.
    pub(crate) fn request_lock(
        &self,
        worker: &EngineWorker,
        owner: TxnId,
        place: PartitionId,
        mode: LockMode,
        target: &LockTarget,
        ticket: LockTicket,
    ) -> LockOutcome {
        let mut granted = self.granted.take();
        let mut tables = self.tables.borrow_mut();
        let locks = &mut tables.partition_mut(place).locks;
        let outcome = planted::request(locks, owner, target, mode, ticket, &mut granted);
        drop(tables);
        self.wake_granted(worker, &mut granted);
        self.granted.replace(granted);
        outcome
    }

    /// Wakes the tasks whose lock requests were granted.
    pub fn wake_granted(&self, worker: &EngineWorker, granted: &mut Vec<LockTicket>) {
        if granted.is_empty() {
            return;
        }
        let mut waits = self.waits.borrow_mut();
        for ticket in granted.drain(..) {
            waits.settle(ticket, LockWaitState::Granted);
            let wait = waits.get(ticket).expect("a granted ticket belongs to a wait");
            worker.wake(wait.task);
        }
    }

    /// Refuses and removes the lock requests of a transaction that ends, including those that were granted and not used
    /// yet: their tasks go on with an abort. A request whose future was leaked is removed as well.
    pub(crate) fn end_waits(&self, worker: &EngineWorker, owner: TxnId) {
        let tickets: Vec<LockTicket> = self.waits.borrow().of(owner).map(|(ticket, _)| ticket).collect();
        for ticket in tickets {
            self.refuse_wait(worker, ticket, AbortReason::User);
            self.waits.borrow_mut().remove(ticket);
        }
    }

    /// Removes the access at `place` from the branch of `owner`, which does not get the lock.
    pub fn forget_access(&self, owner: TxnId, place: usize) {
        // While the database is dropped, a transaction may end before its actions that wait on workers to which its
        // data has moved.
        let Some(branch) = self.find_branch(owner) else { return };
        branch.borrow_mut().forget(place);
        self.waits.borrow_mut().move_up(owner, &[place]);
    }

    /// Removes one request from its queue. A granted one is released with the branch, which has its access.
    pub(crate) fn refuse_wait(&self, worker: &EngineWorker, ticket: LockTicket, reason: AbortReason) {
        let mut granted = self.granted.take();
        let mut given_up = None;
        {
            let mut waits = self.waits.borrow_mut();
            let Some(before) = waits.get(ticket).map(|wait| wait.state) else { return };
            waits.settle(ticket, LockWaitState::Refused(reason));
            if let Some(wait) = waits.get(ticket).filter(|_| before == LockWaitState::Queued) {
                let locks = &mut self.tables.borrow_mut();
                let locks = &mut locks.partition_mut(wait.partition).locks;
                locks.cancel(wait.owner, &wait.target, ticket, &mut granted);
                worker.wake(wait.task);
                given_up = Some((wait.owner, wait.access));
            }
        }
        if let Some((owner, access)) = given_up {
            self.forget_access(owner, access);
        }
        self.wake_granted(worker, &mut granted);
        self.granted.replace(granted);
    }
}

impl RuntimeShard for Shard {
    #[inline]
    fn after_messages(worker: &Rc<EngineWorker>) {
        worker.shard().sent.run(worker);
    }

    fn background(worker: &Rc<EngineWorker>, now: Ticks) -> bool {
        let hardened =
            worker.shard().commit_waiters.as_ref().is_some_and(|commit_waiters| commit_waiters.step(worker));
        deadlock::check_waits(worker, now)
            | hardened
            | admission::step(worker, now)
            | distributed::step(worker)
    }

    fn has_arrivals(worker: &Rc<EngineWorker>) -> bool {
        worker.shard().commit_waiters.as_ref().is_some_and(CommitWaiters::has_news)
            || distributed::has_arrivals(worker)
    }

    fn next_deadline(worker: &Rc<EngineWorker>) -> Option<Ticks> {
        let hurry = worker.shard().commit_waiters.as_ref().and_then(|waiters| waiters.next_hurry(worker));
        let checks = deadlock::next_check(worker).into_iter().chain(admission::next_step(worker));
        hurry.into_iter().chain(checks).min()
    }
}
