//! The branch of a transaction: its state on one worker, which consists of the locks that it holds there (or would
//! hold, had it suspended) and the before-images of its changes there.
//!
//! The home branch of a transaction that never suspends enters no locks: its footprint is only a list. What the list got
//! since the last suspension is entered in the lock tables when the transaction suspends ([`Branch::enter_locks`]): while
//! it runs, no other transaction does. A branch on another worker belongs to a transaction that is suspended already:
//! its accesses are entered at once, as are those that another worker sends to the home of their own transaction.
//!
//! Invariant: all accesses of the branches of suspended transactions are entered.
//!
//! A branch keeps its memory from one transaction to the next: a worker reuses its branches, so that a transaction
//! allocates nothing in the steady state.

use atrapos_durability::wal::Epoch;
use atrapos_partition::partition::{PartitionId, Tables};
use atrapos_partition::planted::{Bug, planted};
use atrapos_partition::redo::Redo;
use atrapos_partition::reused::Reused;
use atrapos_partition::schema::TableId;
use atrapos_partition::undo::UndoLog;
use atrapos_runtime::WorkerId;
use atrapos_storage::KeyBuf;
use atrapos_storage::lock::{LockMode, LockTarget, LockTicket, TxnId};

use crate::age::Age;
use crate::shard::Shard;
use crate::wal::UndurableWrites;

/// One access, which is locked, or would be if the transaction suspended.
#[derive(Debug)]
pub struct Access {
    /// The partition.
    pub partition: PartitionId,
    /// The mode of its lock.
    pub mode: LockMode,
    /// The key or range that was accessed.
    pub(crate) target: LockTarget,
    /// True for a read of data that no transaction changes: noted, but never entered in a lock table.
    pub(crate) unlocked: bool,
    /// True if it was made in one phase with the access before it.
    pub(crate) joined: bool,
}

impl Access {
    /// Enters it in the lock table of its partition; returns false if it is entered already, or takes no lock.
    pub fn enter(&self, owner: TxnId, tables: &mut Tables) -> bool {
        !self.unlocked && tables.partition_mut(self.partition).locks.enter(owner, &self.target, self.mode)
    }

    /// The first key that it touches.
    #[inline]
    pub(crate) fn key(&self) -> &KeyBuf {
        self.target.first_key()
    }

    /// Returns the newest epoch on which it may depend.
    fn observed(&self, recent: &UndurableWrites) -> Epoch {
        if self.unlocked { Epoch(0) } else { recent.of(self.partition, &self.target) }
    }
}

/// See the module's introduction.
#[derive(Debug, Default)]
pub struct Branch {
    /// The accesses so far, in order.
    pub accesses: Reused<Access>,
    /// The number of `accesses`, from the first, that are entered in the lock tables.
    pub(crate) entered: usize,
    /// True while the transaction is suspended: accesses are entered at once. Always true on other workers than the home.
    pub(crate) suspended: bool,
    /// The before-images of its changes.
    pub undo: UndoLog,
    /// True if the transaction has ended: an action that arrives later must do nothing. Set if tasks still refer to the
    /// branch, which is never reused then.
    pub(crate) closed: bool,
    /// Scratch space in which rows are encoded.
    pub(crate) scratch: Vec<u8>,
    /// The redo of its changes, when the database logs. At the home, that of the other branches as well.
    pub(crate) redo: Redo,
    /// The age of its transaction, if this is not its home and an action has brought it.
    pub(crate) age: Age,
    /// The number of accesses whose observed epochs were reported to the transaction's home on another worker.
    pub(crate) told: usize,
    /// The newest epoch that was observed on data that has moved to another worker.
    pub(crate) observed: Epoch,
    /// Workers to which this worker has sent data of this branch, or forwarded an action. It forwards the transaction's
    /// end to them, since the transaction's home may not know of them.
    pub(crate) passed_to: Vec<WorkerId>,
}

/// The part of a branch that moves to another worker with a partition.
#[derive(Debug)]
pub struct MovedBranch {
    /// The transaction.
    pub owner: TxnId,
    accesses: Vec<Access>,
    undo: UndoLog,
}

/// Puts a key in the place of a range.
#[cold]
#[inline(never)]
fn replace_range(target: &mut LockTarget, key: &mut KeyBuf) {
    *target = LockTarget::Key(std::mem::take(key));
}

impl Branch {
    /// Creates a branch whose redo has at most so many bytes.
    pub(crate) fn bounded(redo_bytes_max: usize) -> Branch {
        Branch { redo: Redo::new(redo_bytes_max), ..Branch::default() }
    }

    /// Records that data or an action of the transaction was sent on to `worker`.
    pub(crate) fn pass_to(&mut self, worker: WorkerId) {
        if !self.passed_to.contains(&worker) {
            self.passed_to.push(worker);
        }
    }

    /// Assigns the accesses and changes in partition `from` of the tables of a family, from key `cut` on (all without a
    /// cut), to partition `to`. Ranges that reach across the cut become two; existing accesses keep their indexes in
    /// `accesses`.
    pub fn renumber(&mut self, family: &[TableId], from: u32, cut: Option<&KeyBuf>, to: u32) {
        let is_in = |place: PartitionId| place.partition == from && family.contains(&place.table);
        let mut beyond = Vec::new();
        for access in self.accesses.iter_mut().filter(|access| is_in(access.partition)) {
            let moved = PartitionId { partition: to, ..access.partition };
            match (&mut access.target, cut) {
                (LockTarget::Key(key), Some(cut)) if *key < *cut => {}
                (LockTarget::Range { lower, upper }, Some(cut)) if *lower < *cut => {
                    if upper.as_ref().is_none_or(|upper| cut < upper) {
                        let target =
                            LockTarget::Range { lower: cut.clone(), upper: upper.replace(cut.clone()) };
                        beyond.push(Access {
                            partition: moved,
                            mode: access.mode,
                            target,
                            unlocked: access.unlocked,
                            joined: true,
                        });
                    }
                }
                _ => access.partition = moved,
            }
        }
        self.accesses.extend(beyond);
        self.entered = self.accesses.len();
        self.undo.renumber(is_in, cut, to);
    }

    /// Removes and returns the part of the branch in partition `number` of the tables of a family, which moves to
    /// another worker, with the indexes of its accesses in `accesses`, ascending; `None` if there is no such part.
    pub fn carry_off(
        &mut self,
        owner: TxnId,
        family: &[TableId],
        number: u32,
        recent: Option<&UndurableWrites>,
    ) -> Option<(MovedBranch, Vec<usize>)> {
        let is_in = |place: PartitionId| place.partition == number && family.contains(&place.table);
        let has_access = self.accesses.iter().any(|access| is_in(access.partition));
        if !has_access && !self.undo.keys().any(|(place, _)| is_in(place)) {
            return None;
        }
        debug_assert_eq!(self.entered, self.accesses.len(), "data moves while a transaction is suspended");
        let (mut places, mut accesses, mut kept, mut told) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for (at, access) in self.accesses.take().into_iter().enumerate() {
            if is_in(access.partition) {
                // The epoch counts from now on as observed on another worker.
                let observed = recent.map_or(Epoch(0), |recent| access.observed(recent));
                self.observed = self.observed.max(observed);
                places.push(at);
                accesses.push(access);
            } else {
                told += usize::from(at < self.told);
                kept.push(access);
            }
        }
        self.accesses.extend(kept);
        self.told = told;
        self.entered = self.accesses.len();
        let mut undo = self.undo.carry_off(is_in);
        if planted(Bug::UndoLeftBehind) {
            undo = UndoLog::default();
        }
        if planted(Bug::LocksLeftBehind) {
            accesses.clear();
        }
        Some((MovedBranch { owner, accesses, undo }, places))
    }

    /// Adds the part of a branch that has moved here with a partition.
    pub fn take_in(&mut self, carried: MovedBranch) {
        self.accesses.extend(carried.accesses);
        self.entered = self.accesses.len();
        self.undo.take_in(carried.undo);
    }

    /// Enters the accesses in some partitions again, whose lock tables are new.
    pub fn lock_again(&self, owner: TxnId, is_in: impl Fn(PartitionId) -> bool, tables: &mut Tables) {
        for access in self.accesses[..self.entered].iter().filter(|access| is_in(access.partition)) {
            access.enter(owner, tables);
        }
    }

    /// Notes an access to a key, whose bytes are taken. What is rare is in functions of its own, so that the rest needs no
    /// registers that have to be saved.
    #[inline(always)]
    pub(crate) fn note_key(
        &mut self,
        partition: PartitionId,
        mode: LockMode,
        key: &mut KeyBuf,
        unlocked: bool,
    ) {
        let target = || LockTarget::Key(KeyBuf::new());
        let joined = false;
        let access = self.accesses.slot(|| Access { partition, mode, target: target(), unlocked, joined });
        (access.partition, access.mode, access.unlocked, access.joined) = (partition, mode, unlocked, joined);
        match &mut access.target {
            LockTarget::Key(earlier) => earlier.take_from(key),
            target => replace_range(target, key),
        }
    }

    /// Notes that the accesses from number `first` on were made in one phase.
    #[inline]
    pub(crate) fn join_from(&mut self, first: usize) {
        self.accesses.iter_mut().skip(first + 1).for_each(|access| access.joined = true);
    }

    /// Removes an access whose lock was not granted, or whose table is missing.
    pub(crate) fn forget(&mut self, access: usize) {
        self.accesses.remove(access);
        self.entered -= usize::from(access < self.entered);
    }

    /// Returns true if the transaction has accessed no data yet, so that it can suspend without locks.
    #[inline]
    pub(crate) fn is_untouched(&self) -> bool {
        self.accesses.is_empty()
    }

    /// Returns true if the branch has accesses that are not entered in the lock tables.
    #[inline]
    pub(crate) fn has_unentered(&self) -> bool {
        self.entered < self.accesses.len()
    }

    /// Enters what the transaction, which suspends, has accessed since its last suspension. No lock can conflict, because no
    /// other transaction has run on this worker since these accesses. Returns the number of locks entered.
    pub(crate) fn enter_locks(&mut self, owner: TxnId, tables: &mut Tables) -> u64 {
        let from = std::mem::replace(&mut self.entered, self.accesses.len());
        if planted(Bug::FootprintNotEntered) || (from > 0 && planted(Bug::LaterFootprintNotEntered)) {
            return 0;
        }
        let mut entered = 0;
        for access in &self.accesses[from..] {
            if planted(Bug::ScanNotLocked) && matches!(access.target, LockTarget::Range { .. }) {
                continue;
            }
            entered += u64::from(access.enter(owner, tables));
        }
        entered
    }

    /// Ends the branch of a transaction that entered no locks.
    #[inline(always)]
    pub(crate) fn finish_unseen(&mut self, commit: bool, shard: &Shard) {
        debug_assert!(self.entered == 0, "locks are released by `finish`");
        if !self.undo.is_empty() {
            if !commit {
                self.undo.apply(&mut shard.tables.borrow_mut());
            } else {
                if shard.snapshots.is_held() {
                    let epoch = shard.snapshots.epoch_of_commit();
                    shard.snapshots.keep(&self.undo, epoch, &shard.tables.borrow());
                }
                if self.undo.has_set_aside() {
                    self.undo.settle(&mut shard.tables.borrow_mut());
                }
            }
            self.undo.clear();
        }
        self.accesses.clear();
        self.redo.clear();
    }

    /// Returns the newest epoch on which the accesses from number `from` on may depend.
    pub(crate) fn observed_since(&self, from: usize, recent: &UndurableWrites) -> Epoch {
        if recent.is_coarse() {
            return if from < self.accesses.len() { recent.newest() } else { Epoch(0) };
        }
        self.accesses[from..].iter().map(|access| access.observed(recent)).max().unwrap_or_default()
    }

    /// Records that the changes made here belong to a transaction of `epoch`.
    pub(crate) fn note_changes(&self, recent: &mut UndurableWrites, epoch: Epoch) {
        recent.note_all(self.undo.keys(), epoch);
    }

    /// Ends the branch: undoes its changes when the transaction aborts, releases its locks and forgets the rest.
    /// Tickets that could be granted are added to `granted`.
    pub(crate) fn finish(
        &mut self,
        commit: bool,
        owner: TxnId,
        tables: &mut Tables,
        granted: &mut Vec<LockTicket>,
    ) {
        if !commit {
            self.undo.apply(tables);
        } else if self.undo.has_set_aside() {
            self.undo.settle(tables);
        }
        if self.entered > 0 {
            self.accesses.truncate(self.entered);
            // Locks of one partition are released together, so that no request is granted while another of these locks
            // is still held.
            self.accesses.sort_by_key(|access| access.partition);
            for run in self.accesses.chunk_by(|a, b| a.partition == b.partition) {
                let locks = &mut tables.partition_mut(run[0].partition).locks;
                let locked = run.iter().filter(|access| !access.unlocked);
                locks.release(owner, locked.map(|access| &access.target), granted);
            }
        }
        self.accesses.clear();
        self.entered = 0;
        self.undo.clear();
        self.redo.clear();
        self.age = Age::NONE;
        self.told = 0;
        self.observed = Epoch(0);
        self.passed_to.clear();
    }
}
