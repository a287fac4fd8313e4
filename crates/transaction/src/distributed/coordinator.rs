//! The part of a distributed transaction at its home: what it has of other instances, votes, and the decision. Accesses are in [`access`].
//!
//! Invariants
//! - A transaction waits for the rows of one access, or for votes: rows are those of the latest request, and any that come while it
//!   waits for votes are of an access that its procedure has dropped.
//! - A transaction with subordinates that have not been released does not commit before all have voted.

mod access;

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use atrapos_durability::wal::Epoch;
use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::action::Request;
use atrapos_partition::planted::{Bug, planted};
use atrapos_partition::range::KeyRange;
use atrapos_partition::routing::InstanceId;
use atrapos_partition::schema::TableId;
use atrapos_runtime::TaskId;
use atrapos_storage::KeyBuf;
use atrapos_storage::lock::TxnId;
use smallvec::SmallVec;

use super::staged::Staged;
use super::steps::CommitStep;
use super::wire::{Message, Write, Writes};
use super::{Peers, hardening, unreachable};
use crate::shard::EngineWorker;
use crate::trace::Stage;
use crate::tx::{Ending, TxnGuard, TxnState, has_read_durable};

/// The remote part of a transaction, at its home.
pub(crate) struct Remote {
    subordinates: SmallVec<[Subordinate; 2]>,
    staged: Staged,
    /// The number of replies that it waits for.
    awaited: usize,
    /// The first abort among them.
    failed: Option<Abort>,
    /// True if it commits in one phase: the only subordinate that votes ends with its vote.
    in_one_phase: bool,
    /// True if it commits without votes though subordinates have changes to make.
    at_once: bool,
    /// True if it waits for votes.
    awaits_votes: bool,
    /// The requests that were sent last, encoded.
    requests: Vec<u8>,
    /// The requests that were sent last.
    asked: Vec<Asked>,
    /// The parts of ranges of which all rows are staged, each with the number of its action.
    covered: Vec<(usize, KeyRange)>,
    /// The rows that were asked for last, encoded.
    reply: Vec<u8>,
    /// True if its last actions run on the copies in the reply: nothing is staged.
    runs_on_copies: bool,
    /// The row that such an action has changed.
    changed_row: Vec<u8>,
    /// The change that such an action has made, and the instance of its row.
    change: Vec<u8>,
    changes_in: Option<InstanceId>,
    /// The task that waits.
    task: TaskId,
    /// The range that was read last, and how far it goes on at a time.
    walk: Walk,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("subordinates", &self.subordinates).finish_non_exhaustive()
    }
}

/// A subordinate, as its coordinator knows it.
#[derive(Clone, Copy, Debug)]
struct Subordinate {
    instance: InstanceId,
    state: SubordinateState,
    /// True if all that it has read is known to be durable.
    has_read_durable: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SubordinateState {
    /// It holds locks.
    Active,
    /// It was asked to prepare: it may have changed rows.
    Preparing,
    /// It was released, and tells when what it has read is durable.
    Released,
    /// It has ended.
    Ended,
    /// It cannot be reached any more.
    Lost,
}

/// Rows of a range are copied in slices, which grow as long as the walk goes on.
#[derive(Debug)]
struct Walk {
    table: TableId,
    end: KeyBuf,
    rows: u32,
}

impl Remote {
    fn begin(peers: &Peers, worker: &EngineWorker) -> Box<Remote> {
        let mut remote = peers.spare.borrow_mut().pop().unwrap_or_else(|| {
            Box::new(Remote {
                subordinates: SmallVec::new(),
                staged: Staged::new(worker.shard()),
                awaited: 0,
                failed: None,
                in_one_phase: false,
                at_once: false,
                awaits_votes: false,
                requests: Vec::new(),
                asked: Vec::new(),
                covered: Vec::new(),
                reply: Vec::new(),
                runs_on_copies: false,
                changed_row: Vec::new(),
                change: Vec::new(),
                changes_in: None,
                task: TaskId::NONE,
                walk: Walk { table: TableId(0), end: KeyBuf::new(), rows: 0 },
            })
        });
        remote.staged.begin(worker.shard());
        remote
    }

    /// Returns the instances that have a subordinate which has not ended.
    pub(crate) fn instances(&self) -> impl Iterator<Item = InstanceId> {
        let active = self.subordinates.iter().filter(|subordinate| {
            matches!(subordinate.state, SubordinateState::Active | SubordinateState::Preparing)
        });
        active.map(|subordinate| subordinate.instance)
    }

    /// Returns the instances that have prepared the transaction, when all have voted.
    fn prepared(&self) -> SmallVec<[InstanceId; 2]> {
        let prepared = self.subordinates.iter().filter(|known| known.state == SubordinateState::Preparing);
        prepared.map(|known| known.instance).collect()
    }

    /// Undoes the changes of staged rows in a range of marks.
    pub(crate) fn roll_back(&mut self, time: &std::ops::Range<atrapos_partition::undo::Mark>) {
        self.staged.roll_back(time);
    }

    /// Adds a subordinate in an instance, unless there is one. Returns true if it is new.
    fn add_subordinate(&mut self, instance: InstanceId) -> Result<bool, Abort> {
        match self.subordinates.iter().find(|known| known.instance == instance) {
            Some(known) if known.state == SubordinateState::Lost => Err(unreachable(instance)),
            Some(_) => Ok(false),
            None => {
                let (state, has_read_durable) = (SubordinateState::Active, true);
                self.subordinates.push(Subordinate { instance, state, has_read_durable });
                Ok(true)
            }
        }
    }

    /// Returns true if what was asked for is one row, to be changed in a way that its instance can be told together with the decision if
    /// the row keeps its length: the data is in memory, nothing else was changed in other instances, and nothing depends on the row.
    fn has_one_change(&self, requests: &[Request], worker: &EngineWorker) -> bool {
        let [Asked { at, copies: true, range: None }] = &*self.asked else { return false };
        requests.len() > *at
            && worker.shard().commit_waiters.is_none()
            && self.staged.is_unchanged()
            && !self.staged.has_dependents(requests[*at].table)
    }

    /// Prepares to wait for the rows of an access.
    fn await_rows(&mut self, task: TaskId) {
        (self.awaited, self.awaits_votes, self.failed, self.task) = (1, false, None, task);
    }

    /// Prepares to wait for so many votes.
    fn await_votes(&mut self, votes: usize, task: TaskId) {
        (self.awaited, self.awaits_votes, self.failed, self.task) = (votes, true, None, task);
    }

    /// Returns true if the transaction has read what is not known to be durable in an instance that has not been asked to vote.
    pub(crate) fn has_read_undurable(&self) -> bool {
        let is_open =
            |known: &Subordinate| matches!(known.state, SubordinateState::Active | SubordinateState::Lost);
        self.subordinates.iter().any(|known| is_open(known) && !known.has_read_durable)
    }

    /// Returns the abort of a transaction with a subordinate that was lost: its locks are gone, whatever it was rolled back to.
    fn check_reachable(&self) -> Result<(), Abort> {
        let lost = self.subordinates.iter().find(|known| known.state == SubordinateState::Lost);
        lost.map_or(Ok(()), |lost| Err(unreachable(lost.instance)))
    }
}

/// A request that was sent.
struct Asked {
    /// The number of its action.
    at: usize,
    /// True if the row of a key is copied.
    copies: bool,
    /// The range, as far as the instance owns it.
    range: Option<Box<KeyRange>>,
}

/// Looks at the remote part of a transaction.
fn with_remote<R>(state: &TxnState, look: impl FnOnce(&mut Remote) -> R) -> R {
    let mut remote = state.remote.borrow_mut();
    look(remote.as_mut().expect("a transaction with subordinates has a remote part"))
}

/// Waits until all replies are there.
async fn replies(state: &TxnState) -> Result<(), Abort> {
    poll_fn(|_| {
        with_remote(state, |remote| {
            if remote.awaited > 0 {
                return Poll::Pending;
            }
            Poll::Ready(remote.failed.take().map_or(Ok(()), Err))
        })
    })
    .await
}

/// Receives a reply of a subordinate, rows or a vote, at the home of its transaction.
pub(super) fn on_reply(worker: &EngineWorker, from: InstanceId, txn: TxnId, message: Message<'_>) {
    // A transaction that has ended waits for nothing.
    let Some(state) = worker.shard().active.borrow().get(&txn).cloned() else { return };
    let mut remote = state.remote.borrow_mut();
    let Some(remote) = remote.as_mut() else { return };
    let known = remote.subordinates.iter_mut().find(|known| known.instance == from);
    let is_vote = matches!(message, Message::Vote { .. });
    let Some(known) = known.filter(|_| remote.awaited > 0 && remote.awaits_votes == is_vote) else { return };
    remote.awaited -= 1;
    if remote.in_one_phase {
        known.state = SubordinateState::Ended;
    }
    match message {
        Message::Fetched { result: Ok(rows), is_durable, is_released, .. } => {
            known.has_read_durable = is_durable;
            if is_released {
                known.state = SubordinateState::Ended;
            }
            remote.reply.clear();
            remote.reply.extend_from_slice(rows.0);
        }
        Message::Fetched { result: Err(abort), .. } | Message::Vote { result: Err(abort), .. } => {
            remote.failed.get_or_insert(abort);
        }
        _ => {}
    }
    if remote.awaited == 0 {
        worker.wake(remote.task);
    }
}

/// Dooms the transactions that have a subordinate in an instance that cannot be reached any more.
pub(super) fn on_lost(worker: &EngineWorker, instance: InstanceId) {
    for state in worker.shard().active.borrow().values() {
        let mut remote = state.remote.borrow_mut();
        let Some(remote) = remote.as_mut() else { continue };
        let known = remote.subordinates.iter_mut().find(|known| known.instance == instance);
        let Some(known) = known.filter(|known| known.state != SubordinateState::Ended) else { continue };
        known.state = SubordinateState::Lost;
        state.doom(&unreachable(instance));
        if remote.awaited > 0 {
            remote.awaited = 0;
            remote.failed.get_or_insert_with(|| unreachable(instance));
            worker.wake(remote.task);
        }
    }
}

/// Decides a transaction whose procedure has succeeded, or has failed for something that it has read in another instance; and ends it
/// accordingly. Returns the epoch that has to be durable before the outcome is told, and whether it has committed.
pub(crate) async fn decide(worker: &Rc<EngineWorker>, failed: Option<Abort>) -> (Epoch, Result<(), Abort>) {
    let state = worker.shard().undecided.take().expect("a transaction that awaits votes is handed over");
    let guard = TxnGuard::resume(worker, state);
    suspend(worker, guard.state());
    let mut outcome = match failed {
        None => collect_votes(worker, guard.state()).await,
        Some(abort) => await_reads(worker, guard.state()).await.and(Err(abort)),
    };
    guard.state().set_voted();
    if outcome.is_ok() {
        note_decision(worker, guard.state());
    }
    let epoch = guard.finish(&mut outcome);
    (epoch, outcome)
}

/// Returns true if a transaction whose procedure has succeeded may not commit before its subordinates have voted. In any other case its
/// home decides, and what it tells them needs no answer: see "Commit" in [`super`].
pub(crate) fn needs_votes(worker: &EngineWorker, state: &TxnState) -> bool {
    with_remote(state, |remote| {
        let is_sure = |known: &Subordinate| match known.state {
            SubordinateState::Active => known.has_read_durable,
            // Released with the last rows.
            SubordinateState::Ended => true,
            _ => false,
        };
        if !remote.subordinates.iter().all(is_sure) {
            return true;
        }
        if remote.changes_in.is_some() {
            remote.at_once = true;
            return false;
        }
        let is_in_memory = worker.shard().commit_waiters.is_none();
        let fits = || remote.staged.changes_fit() || planted(Bug::UncertainNotVoted);
        remote.at_once = !remote.staged.is_unchanged() && is_in_memory && fits();
        !remote.at_once && !remote.staged.is_unchanged()
    })
}

/// Has a transaction hold its locks while other tasks of its home run.
fn suspend(worker: &EngineWorker, state: &Rc<TxnState>) {
    state.home.borrow_mut().suspended = true;
    state.enter_locks(worker);
}

/// Releases the subordinates of a transaction that has failed where it has read what may not be durable, and waits until it is:
/// otherwise its caller would learn from the failure what a crash makes undone.
async fn await_reads(worker: &EngineWorker, state: &TxnState) -> Result<(), Abort> {
    let Some(peers) = worker.shard().peers.get() else { return Ok(()) };
    let (txn, incarnation) = (state.txn(), peers.incarnation());
    with_remote(state, |remote| {
        remote.check_reachable()?;
        let mut asked = 0;
        for subordinate in remote.subordinates.iter_mut().filter(|known| !known.has_read_durable) {
            subordinate.state = SubordinateState::Released;
            asked += 1;
            let release = Message::Prepare { txn, incarnation, in_one_phase: false, writes: Writes(&[]) };
            peers.send(subordinate.instance, &release)?;
        }
        remote.await_votes(asked, worker.current_task());
        Ok::<_, Abort>(())
    })?;
    replies(state).await
}

/// Puts the note that a transaction commits before its changes, if others have prepared it and it is logged.
fn note_decision(worker: &EngineWorker, state: &TxnState) {
    let shard = worker.shard();
    let (Some(peers), true) = (shard.peers.get(), shard.commit_waiters.is_some()) else { return };
    let instances = with_remote(state, |remote| remote.prepared());
    if !instances.is_empty() {
        peers.reached(CommitStep::VotesIn);
        let note = hardening::decided(peers, state.txn(), &instances);
        state.home.borrow_mut().redo.note(&note);
    }
}

/// Releases the subordinates that have changed nothing, and has the others vote.
async fn collect_votes(worker: &Rc<EngineWorker>, state: &Rc<TxnState>) -> Result<(), Abort> {
    let shard = worker.shard();
    let Some(peers) = shard.peers.get() else { return Ok(()) };
    let txn = state.txn();
    let writes = with_remote(state, |remote| writes_of(worker, remote));
    let changes_here = !state.home.borrow().undo.is_empty() || !state.participants.borrow().is_empty();
    // What commits in one phase is durable on its own, so nothing that it depends on may vanish.
    let reads_durable = has_read_durable(worker, state);
    let incarnation = peers.incarnation();
    let asked = with_remote(state, |remote| {
        remote.check_reachable()?;
        let has_changed = |instance: InstanceId| writes.iter().find(|(of, _)| *of == instance);
        let mut readers = remote.subordinates.iter().filter(|known| has_changed(known.instance).is_none());
        let in_one_phase = writes.len() == 1
            && !changes_here
            && reads_durable
            && readers.all(|reader| reader.has_read_durable);
        let mut asked = 0;
        for subordinate in &mut remote.subordinates {
            let instance = subordinate.instance;
            if subordinate.state == SubordinateState::Ended {
                continue;
            }
            let writes = match has_changed(instance) {
                Some((_, writes)) => {
                    subordinate.state = SubordinateState::Preparing;
                    writes.as_slice()
                }
                None if subordinate.has_read_durable || planted(Bug::RemoteReaderToldEarly) => {
                    subordinate.state = SubordinateState::Ended;
                    peers.send(instance, &Message::End { txn, commit: true })?;
                    continue;
                }
                None => {
                    subordinate.state = SubordinateState::Released;
                    &[]
                }
            };
            asked += 1;
            peers.send(
                instance,
                &Message::Prepare { txn, incarnation, in_one_phase, writes: Writes(writes) },
            )?;
        }
        remote.in_one_phase = in_one_phase;
        remote.await_votes(asked, worker.current_task());
        Ok::<_, Abort>(asked)
    })?;
    state.trace.event(worker, Stage::Release, || format!("asks {asked} instances for their votes"));
    if asked == 0 || planted(Bug::VotesNotAwaited) {
        return Ok(());
    }
    let voted = replies(state).await;
    if with_remote(state, |remote| remote.in_one_phase) { voted.map_err(unknown_if_lost) } else { voted }
}

/// Explains the abort of a transaction that was to commit in another instance alone, which was lost meanwhile.
fn unknown_if_lost(abort: Abort) -> Abort {
    if abort.reason() != AbortReason::Unreachable {
        return abort;
    }
    Abort::explained(
        AbortReason::OutcomeUnknown,
        "the only instance that the transaction has changed was lost while it committed there, so it is not known \
         whether it did; look at its data when the instance is back",
    )
}

/// Encodes the changes of each instance that has some.
fn writes_of(worker: &EngineWorker, remote: &Remote) -> SmallVec<[(InstanceId, Vec<u8>); 2]> {
    let tables = worker.shard().tables.borrow();
    let mut writes: SmallVec<[(InstanceId, Vec<u8>); 2]> = SmallVec::new();
    for (table, key, row) in remote.staged.changed() {
        let owner = tables.locate(table, key).1;
        let Some(instance) = InstanceId::of_owner(owner) else {
            unreachable!("rows of other instances alone are staged")
        };
        let at = writes.iter().position(|(of, _)| *of == instance).unwrap_or_else(|| {
            writes.push((instance, Vec::new()));
            writes.len() - 1
        });
        Write { table, key, row }.encode(&mut writes[at].1);
    }
    writes
}

/// Tells the subordinates of a transaction its end.
pub(crate) fn end_subordinates(
    worker: &EngineWorker,
    txn: TxnId,
    remote: &RefCell<Option<Box<Remote>>>,
    Ending { commit, epoch }: Ending,
) {
    let Some(mut remote) = remote.borrow_mut().take() else { return };
    let Some(peers) = worker.shard().peers.get() else { return };
    let prepared =
        if commit && worker.shard().commit_waiters.is_some() { remote.prepared() } else { SmallVec::new() };
    let is_staged = commit && remote.at_once && remote.changes_in.is_none();
    let writes = if is_staged { writes_of(worker, &remote) } else { SmallVec::new() };
    for instance in remote.instances().filter(|instance| !prepared.contains(instance)) {
        if !commit && planted(Bug::AbortNotSent) {
            break;
        }
        let staged = writes.iter().find(|(of, _)| *of == instance).map(|(_, writes)| writes);
        let writes = staged.or_else(|| (remote.changes_in == Some(instance)).then_some(&remote.change));
        if let Some(writes) = writes.filter(|_| commit) {
            let _ = peers.send(instance, &Message::Commit { txn, writes: Writes(writes) });
            continue;
        }
        // One that cannot be reached has been lost: it has nothing to end, or asks.
        let _ = peers.send(instance, &Message::End { txn, commit });
    }
    if !prepared.is_empty() {
        hardening::keep_decision(worker, peers, txn, epoch, prepared);
    }
    remote.subordinates.clear();
    remote.staged.clear();
    (remote.awaited, remote.failed, remote.walk.rows) = (0, None, 0);
    (remote.in_one_phase, remote.at_once, remote.changes_in) = (false, false, None);
    let mut spare = peers.spare.borrow_mut();
    if spare.len() < SPARE_MAX {
        spare.push(remote);
    }
}

/// Remote parts that a worker keeps to be used again.
const SPARE_MAX: usize = 1024;
