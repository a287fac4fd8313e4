//! What one transaction has done on one worker: the locks it holds there (or would hold, had it suspended) and how to
//! undo its changes there.
//!
//! The home branch of a transaction that never suspends enters no locks: its footprint is only a list, which is entered
//! in the lock tables when the transaction suspends for the first time ([`Branch::enter_locks`]). A branch on another
//! worker belongs to a transaction that is suspended already: it holds what is in its list.
//!
//! A branch keeps its memory from one transaction to the next: a worker reuses its branches, so that a transaction
//! allocates nothing in the steady state.

use std::ops::Range;

use atrapos_durability::wal::Epoch;
use atrapos_runtime::WorkerId;
use atrapos_storage::KeyBuf;
use atrapos_storage::lock::{LockMode, LockTarget, LockTicket, TxnId};

use crate::partition::{PartitionId, Tables};
use crate::planted::{Bug, planted};
use crate::schema::TableId;
use crate::shard::Shard;
use crate::wal::{Redo, UndurableWrites};

/// One access: what is locked, or would be.
#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) place: PartitionId,
    pub(crate) mode: LockMode,
    pub(crate) target: LockTarget,
    /// A read of what no transaction changes: noted, but never entered in a lock table.
    pub(crate) unlocked: bool,
}

impl Access {
    /// Enters it in the lock table of its partition; false when that has it already, or never will.
    pub(crate) fn enter(&self, owner: TxnId, tables: &mut Tables) -> bool {
        !self.unlocked && tables.partition_mut(self.place).locks.enter(owner, &self.target, self.mode)
    }

    /// The newest epoch on which it may depend.
    fn observed(&self, recent: &UndurableWrites) -> Epoch {
        if self.unlocked { Epoch(0) } else { recent.of(self.place, &self.target) }
    }
}

/// One key before the transaction changed it.
#[derive(Debug)]
struct Undo {
    place: PartitionId,
    key: KeyBuf,
    /// `None`: there was no row. Otherwise its version and where its bytes are in [`UndoLog::rows`].
    row: Option<(u64, Range<usize>)>,
    /// Whether the tree has set aside what putting the row back may take.
    set_aside: bool,
}

impl Undo {
    /// Bytes of the row before the change.
    fn row_bytes(&self) -> usize {
        self.row.as_ref().map_or(0, |(_, row)| row.len())
    }
}

/// How to put back what the transaction changed on this worker.
#[derive(Debug, Default)]
pub(crate) struct UndoLog {
    changes: Vec<Undo>,
    rows: Vec<u8>,
    /// Changes for which trees have set something aside.
    set_aside: usize,
}

impl UndoLog {
    /// Remembers that `key` had no row.
    #[inline]
    pub(crate) fn remember_absent(&mut self, place: PartitionId, key: &KeyBuf) {
        self.push(place, key.clone(), None, false);
    }

    /// Remembers the row that `key` had.
    #[inline]
    pub(crate) fn remember_row(&mut self, place: PartitionId, key: &KeyBuf, version: u64, row: &[u8]) {
        self.push(place, key.clone(), Some((version, row)), false);
    }

    /// Notes that the tree has set aside what putting back the row that was remembered last may take.
    #[inline]
    pub(crate) fn note_set_aside(&mut self) {
        if let Some(last) = self.changes.last_mut() {
            last.set_aside = true;
            self.set_aside += 1;
        }
    }

    /// The changes of a partition, to keys from `cut` on, for which its tree has set something aside: bytes of the row before each.
    pub(crate) fn set_aside_beyond(&self, place: PartitionId, cut: &KeyBuf) -> impl Iterator<Item = usize> {
        let is_beyond = move |undo: &&Undo| undo.set_aside && undo.place == place && undo.key >= *cut;
        self.changes.iter().filter(is_beyond).map(Undo::row_bytes)
    }

    /// The changes stay: what was set aside for undoing them is not needed any more.
    #[cold]
    fn settle(&mut self, tables: &mut Tables) {
        for undo in self.changes.iter().filter(|undo| undo.set_aside) {
            tables.partition_mut(undo.place).tree.settle(undo.row_bytes());
        }
        self.set_aside = 0;
    }

    /// The row that was remembered last.
    pub(crate) fn last_row(&self) -> &[u8] {
        match self.changes.last() {
            Some(Undo { row: Some((_, row)), .. }) => &self.rows[row.clone()],
            _ => &[],
        }
    }

    /// The keys that were changed, in order; those changed several times come several times.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (PartitionId, &KeyBuf)> {
        self.changes.iter().map(|undo| (undo.place, &undo.key))
    }

    /// All changes in order: where, the key, and what it was before the change, version and row, or nothing.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (PartitionId, &KeyBuf, Option<(u64, &[u8])>)> {
        self.changes.iter().map(|undo| {
            let row = undo.row.as_ref().map(|(version, row)| (*version, &self.rows[row.clone()]));
            (undo.place, &undo.key, row)
        })
    }

    /// The changed keys of a partition with what they were before their first change: version and row, or nothing.
    pub(crate) fn before(&self, place: PartitionId) -> impl Iterator<Item = (&KeyBuf, Option<(u64, &[u8])>)> {
        let row = |undo: &Undo| undo.row.as_ref().map(|(version, row)| (*version, &self.rows[row.clone()]));
        // Told backwards: who keeps the last of each key keeps what was there first.
        self.changes
            .iter()
            .rev()
            .filter(move |undo| undo.place == place)
            .map(move |undo| (&undo.key, row(undo)))
    }

    /// Puts every changed key back to what it was, last change first.
    pub(crate) fn apply(&mut self, tables: &mut Tables) {
        while let Some(undo) = self.changes.pop() {
            if planted(Bug::UndoSkipsSecondTable) && undo.place.table == TableId(1) {
                continue;
            }
            let tree = &mut tables.partition_mut(undo.place).tree;
            match undo.row {
                None => {
                    let removed = tree.remove(&undo.key);
                    assert!(removed, "undo found no row where the transaction had inserted one");
                }
                Some((version, row)) => {
                    let row = &self.rows[row];
                    let put_back = if undo.set_aside {
                        tree.put_back(&undo.key, row, version)
                    } else {
                        // A row of the same length, or a longer one, is there.
                        match tree.update(&undo.key, row, version) {
                            Ok(false) => tree.insert(&undo.key, row, version),
                            updated => updated.map(drop),
                        }
                    };
                    assert!(put_back.is_ok(), "undo could not put a row back: {put_back:?}");
                }
            }
        }
        self.rows.clear();
        self.set_aside = 0;
    }

    /// Takes out the changes of some partitions, in order.
    fn carry_off(&mut self, is_in: impl Fn(PartitionId) -> bool) -> UndoLog {
        let (mut carried, mut kept) = (UndoLog::default(), UndoLog::default());
        for Undo { place, key, row, set_aside } in self.changes.drain(..) {
            let log = if is_in(place) { &mut carried } else { &mut kept };
            log.push(place, key, row.map(|(version, row)| (version, &self.rows[row])), set_aside);
        }
        *self = kept;
        carried
    }

    /// Adds the changes of a partition that has come here.
    fn take_in(&mut self, carried: UndoLog) {
        for Undo { place, key, row, set_aside } in carried.changes {
            self.push(place, key, row.map(|(version, row)| (version, &carried.rows[row])), set_aside);
        }
    }

    #[inline(always)]
    fn push(&mut self, place: PartitionId, key: KeyBuf, row: Option<(u64, &[u8])>, set_aside: bool) {
        let row = row.map(|(version, row)| {
            let start = self.rows.len();
            self.rows.extend_from_slice(row);
            (version, start..self.rows.len())
        });
        self.set_aside += usize::from(set_aside);
        self.changes.push(Undo { place, key, row, set_aside });
    }

    /// Forgets the changes; those that stay are settled.
    #[inline]
    fn clear(&mut self) {
        debug_assert!(self.set_aside == 0, "what was set aside is used or settled before it is forgotten");
        self.changes.clear();
        self.rows.clear();
    }
}

/// See the module's introduction.
#[derive(Debug, Default)]
pub(crate) struct Branch {
    /// Accesses so far, in order.
    pub(crate) held: Vec<Access>,
    /// Whether `held` is entered in the lock tables.
    pub(crate) entered: bool,
    pub(crate) undo: UndoLog,
    /// The transaction is over: an action that comes too late must do nothing. Set when tasks have the branch still; such a
    /// branch is never used again.
    pub(crate) closed: bool,
    /// Scratch space in which rows are encoded.
    pub(crate) scratch: Vec<u8>,
    /// The redo of its changes, when the database logs. At the home, that of the other branches as well.
    pub(crate) redo: Redo,
    /// Accesses of which the transaction's home, on another worker, has been told what they observed.
    pub(crate) told: usize,
    /// The newest epoch that was observed on data that has gone elsewhere.
    pub(crate) observed: Epoch,
    /// Workers to which data of this branch, or an action, has gone on from here: they are told of the transaction's end by
    /// this worker, since the transaction's home may not know of them.
    pub(crate) passed_to: Vec<WorkerId>,
}

/// What a transaction has done on a partition that goes to another worker.
#[derive(Debug)]
pub(crate) struct MovedBranch {
    pub(crate) owner: TxnId,
    held: Vec<Access>,
    undo: UndoLog,
}

impl Branch {
    /// A branch whose redo has at most so many bytes.
    pub(crate) fn bounded(redo_bytes_max: usize) -> Branch {
        Branch { redo: Redo::new(redo_bytes_max), ..Branch::default() }
    }

    /// Notes that something of the transaction has gone on to `worker`.
    pub(crate) fn pass_to(&mut self, worker: WorkerId) {
        if !self.passed_to.contains(&worker) {
            self.passed_to.push(worker);
        }
    }

    /// What lies in partition `from` of the tables of a family, from key `cut` on (everything without a cut), lies in
    /// partition `to` now. Ranges that reach across the cut become two; those noted before stay at their places in `held`.
    pub(crate) fn renumber(&mut self, family: &[TableId], from: u32, cut: Option<&KeyBuf>, to: u32) {
        let is_in = |place: PartitionId| place.partition == from && family.contains(&place.table);
        let mut beyond = Vec::new();
        for held in self.held.iter_mut().filter(|held| is_in(held.place)) {
            let moved = PartitionId { partition: to, ..held.place };
            match (&mut held.target, cut) {
                (LockTarget::Key(key), Some(cut)) if *key < *cut => {}
                (LockTarget::Range { lower, upper }, Some(cut)) if *lower < *cut => {
                    if upper.as_ref().is_none_or(|upper| cut < upper) {
                        let target =
                            LockTarget::Range { lower: cut.clone(), upper: upper.replace(cut.clone()) };
                        beyond.push(Access {
                            place: moved,
                            mode: held.mode,
                            target,
                            unlocked: held.unlocked,
                        });
                    }
                }
                _ => held.place = moved,
            }
        }
        self.held.append(&mut beyond);
        for undo in self.undo.changes.iter_mut().filter(|undo| is_in(undo.place)) {
            if cut.is_none_or(|cut| undo.key >= *cut) {
                undo.place.partition = to;
            }
        }
    }

    /// Takes out what lies in partition `number` of the tables of a family, which goes elsewhere, and the places it had in
    /// `held`, ascending; nothing when there is nothing.
    pub(crate) fn carry_off(
        &mut self,
        owner: TxnId,
        family: &[TableId],
        number: u32,
        recent: Option<&UndurableWrites>,
    ) -> Option<(MovedBranch, Vec<usize>)> {
        let is_in = |place: PartitionId| place.partition == number && family.contains(&place.table);
        let held = self.held.iter().any(|held| is_in(held.place));
        if !held && !self.undo.changes.iter().any(|undo| is_in(undo.place)) {
            return None;
        }
        let (mut places, mut held, mut kept, mut told) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for (at, access) in std::mem::take(&mut self.held).into_iter().enumerate() {
            if is_in(access.place) {
                // Seen from here on as something observed elsewhere.
                let observed = recent.map_or(Epoch(0), |recent| access.observed(recent));
                self.observed = self.observed.max(observed);
                places.push(at);
                held.push(access);
            } else {
                told += usize::from(at < self.told);
                kept.push(access);
            }
        }
        (self.held, self.told) = (kept, told);
        let mut undo = self.undo.carry_off(is_in);
        if planted(Bug::UndoLeftBehind) {
            undo = UndoLog::default();
        }
        if planted(Bug::LocksLeftBehind) {
            held.clear();
        }
        Some((MovedBranch { owner, held, undo }, places))
    }

    /// Takes in what the transaction has done on a partition that has come here.
    pub(crate) fn take_in(&mut self, carried: MovedBranch) {
        self.held.extend(carried.held);
        self.undo.take_in(carried.undo);
    }

    /// Enters again what is held in some partitions, whose lock tables are new.
    pub(crate) fn lock_again(&self, owner: TxnId, is_in: impl Fn(PartitionId) -> bool, tables: &mut Tables) {
        for held in self.held.iter().filter(|held| self.entered && is_in(held.place)) {
            held.enter(owner, tables);
        }
    }

    /// Nothing was read or changed yet: suspending now needs no lock.
    #[inline]
    pub(crate) fn is_untouched(&self) -> bool {
        self.held.is_empty()
    }

    /// Enters the footprint in the lock tables: the transaction suspends for the first time. Nothing can conflict,
    /// because nothing else ran on this worker since the accesses. Returns the number of locks entered.
    pub(crate) fn enter_locks(&mut self, owner: TxnId, tables: &mut Tables) -> u64 {
        debug_assert!(!self.entered, "the footprint is entered once");
        self.entered = true;
        if planted(Bug::FootprintNotEntered) {
            return 0;
        }
        let mut entered = 0;
        for held in &self.held {
            if planted(Bug::ScanNotLocked) && matches!(held.target, LockTarget::Range { .. }) {
                continue;
            }
            entered += u64::from(held.enter(owner, tables));
        }
        entered
    }

    /// Ends the branch of a transaction that entered no locks.
    #[inline(always)]
    pub(crate) fn finish_unseen(&mut self, commit: bool, shard: &Shard) {
        debug_assert!(!self.entered, "locks are released by `finish`");
        if !self.undo.changes.is_empty() {
            if !commit {
                self.undo.apply(&mut shard.tables.borrow_mut());
            } else {
                if shard.snapshots.is_held() {
                    shard.snapshots.keep(&self.undo, shard.snapshots.epoch_of_commit());
                }
                if self.undo.set_aside > 0 {
                    self.undo.settle(&mut shard.tables.borrow_mut());
                }
            }
            self.undo.clear();
        }
        self.held.clear();
        self.redo.clear();
    }

    /// The newest epoch on which what was accessed here, from access number `from` on, may depend.
    pub(crate) fn observed_since(&self, from: usize, recent: &UndurableWrites) -> Epoch {
        self.held[from..].iter().map(|held| held.observed(recent)).max().unwrap_or_default()
    }

    /// Notes that what was changed here belongs to a transaction of `epoch`.
    pub(crate) fn note_changes(&self, recent: &mut UndurableWrites, epoch: Epoch) {
        for (place, key) in self.undo.keys() {
            recent.note(place, key, epoch);
        }
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
        } else if self.undo.set_aside > 0 {
            self.undo.settle(tables);
        }
        if self.entered {
            // Locks of one partition are released together: nobody is granted one of them while the next is still held.
            self.held.sort_by_key(|held| held.place);
            for run in self.held.chunk_by(|a, b| a.place == b.place) {
                let locks = &mut tables.partition_mut(run[0].place).locks;
                let locked = run.iter().filter(|held| !held.unlocked);
                locks.release(owner, locked.map(|held| &held.target), granted);
            }
        }
        self.held.clear();
        self.entered = false;
        self.undo.clear();
        self.redo.clear();
        self.told = 0;
        self.observed = Epoch(0);
        self.passed_to.clear();
    }
}
