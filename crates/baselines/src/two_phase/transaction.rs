//! [`LockingTransaction`]: the operations of a running transaction on single rows, its commit and its undo.
//!
//! Owns: the locks of the transaction, by the agent, and the guard that keeps everything it has seen allocated. Never: reads a row
//! before its key is locked.

use std::ops::ControlFlow;

use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::schema::TableId;
use crossbeam_epoch::Guard;

use super::client::{Buffers, LockingClient};
use super::undo::Before;
use crate::durable::ClientLog;
use crate::lock::{KeyMode, KeyOrEnd};
use crate::occ::check_lengths;
use crate::planted::{Bug, Place, at, pause, planted};
use crate::redo::{CommitLog, InMemory};
use crate::rows::{Branch, Intent, RowTransaction, Visit, VisitChange};
use crate::tree::record::{ABSENT, OBSOLETE, Record, SEQUENCE};
use crate::tree::sync::Spin;
use crate::tree::{Found, Insertion, Tree, retire_record};

/// A running transaction of a [`LockingClient`]. Dropping it aborts it.
pub struct LockingTransaction<'c> {
    pub(super) client: &'c mut LockingClient,
    pub(super) guard: Guard,
    /// The reason for which it cannot commit.
    failed: Option<Abort>,
    has_ended: bool,
}

impl std::fmt::Debug for LockingTransaction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockingTransaction")
            .field("changes", &self.client.buffers.undo.len())
            .finish_non_exhaustive()
    }
}

/// Finds the record of a key that is locked; `None` if there is none.
pub(super) fn find<'g>(tree: &Tree, key: &[u8], guard: &'g Guard) -> Option<Record<'g>> {
    let mut spin = Spin::default();
    loop {
        match tree.find(key, guard) {
            Found::Nothing(..) => return None,
            Found::Record(record) if record.tid() & OBSOLETE == 0 => return Some(record),
            // It was replaced, or has left the tree, before the key was locked.
            Found::Record(_) => spin.wait(),
        }
    }
}

/// Gives a record, whose key is locked, another row; it gets a longer record if it has no room.
fn overwrite(tree: &Tree, record: Record<'_>, row: &[u8], guard: &Guard) {
    let tid = tree.lock_record(record);
    let next = (tid & !ABSENT) + SEQUENCE;
    if record.fits(row.len()) {
        record.overwrite(row);
        record.unlock(next);
        return;
    }
    let longer = Record::allocate(record.key(), row.len(), next);
    // SAFETY: nobody else knows it yet, and it is not freed before this guard is released.
    unsafe { Record::from_pointer(longer) }.overwrite(row);
    tree.swap(record, longer, guard);
    record.unlock(tid | OBSOLETE);
    // SAFETY: it is in the tree no more, and only who has locked its key takes it out.
    unsafe { retire_record(record, guard) };
}

/// Takes a record out of its tree; its key is locked.
fn take_out(tree: &Tree, record: Record<'_>, guard: &Guard) {
    let tid = tree.lock_record(record);
    tree.remove(record, guard);
    record.unlock(tid | ABSENT | OBSOLETE);
    // SAFETY: it is in the tree no more, and only who has locked its key takes it out; this guard keeps it for a while.
    unsafe { retire_record(record, guard) };
}

impl<'c> LockingTransaction<'c> {
    #[inline]
    pub(super) fn new(client: &'c mut LockingClient, guard: Guard) -> LockingTransaction<'c> {
        LockingTransaction { client, guard, failed: None, has_ended: false }
    }

    /// Commits: rows that were removed leave their trees, and all locks are released.
    ///
    /// # Errors
    /// Fails if an operation has, and undoes everything then.
    pub fn commit(self) -> Result<(), Abort> {
        self.commit_to(&mut InMemory)
    }

    /// Commits like [`commit`](Self::commit), and logs the changes while all locks are held.
    #[inline]
    pub(super) fn commit_to(mut self, log: &mut impl CommitLog) -> Result<(), Abort> {
        self.finish(log)
    }

    #[inline(always)]
    fn finish(&mut self, log: &mut impl CommitLog) -> Result<(), Abort> {
        if let Some(abort) = self.failed.take() {
            return Err(abort);
        }
        if !planted(Bug::LoggedAfterInstall) {
            self.log(log)?;
        }
        let LockingClient { shared, buffers, .. } = &mut *self.client;
        for (table, key) in buffers.undo.removals() {
            // The tables of changes were found when they were made.
            let Ok(tree) = shared.tree(table) else { continue };
            if let Some(record) = find(tree, key, &self.guard)
                && record.tid() & ABSENT != 0
            {
                take_out(tree, record, &self.guard);
            }
        }
        if planted(Bug::LoggedAfterInstall) {
            self.client.agent.release_all();
            self.log(log)?;
        }
        self.end();
        Ok(())
    }

    /// Logs the changes, if there are any.
    #[inline(always)]
    fn log(&mut self, log: &mut impl CommitLog) -> Result<(), Abort> {
        if self.client.buffers.undo.len() == 0 {
            return Ok(());
        }
        log.commit(|redo| self.visit_changes(|table, key, row| redo.change(table, key, row)))
    }

    /// Visits the changes: the rows as they are now, under locks. One that was changed twice is visited twice.
    #[inline(always)]
    fn visit_changes(&mut self, mut visit: impl FnMut(TableId, &[u8], Option<&[u8]>)) {
        let LockingClient { shared, buffers, .. } = &mut *self.client;
        let Buffers { undo, row, .. } = buffers;
        for at in 0..undo.len() {
            let (table, key, _) = undo.get(at);
            // The tables of changes were found when they were made.
            let Ok(tree) = shared.tree(table) else { continue };
            let found = find(tree, key, &self.guard).filter(|record| record.read(row) & ABSENT == 0);
            visit(table, key, found.map(|_| row.bytes()));
        }
    }

    /// Remembers an error: the transaction cannot commit any more.
    fn note<R>(&mut self, done: Result<R, Abort>) -> Result<R, Abort> {
        done.inspect_err(|abort| self.failed = Some(abort.clone()))
    }

    /// Undoes everything and releases all locks.
    fn undo(&mut self) {
        let LockingClient { shared, buffers, .. } = &mut *self.client;
        let changes = if planted(Bug::UndoLeftOut) { 0 } else { buffers.undo.len() };
        for at in (0..changes).rev() {
            let (table, key, before) = buffers.undo.get(at);
            let Ok(tree) = shared.tree(table) else { continue };
            let Some(record) = find(tree, key, &self.guard) else { continue };
            match before {
                Before::Nothing => take_out(tree, record, &self.guard),
                Before::Row(row) => overwrite(tree, record, row, &self.guard),
                Before::Removed => mark_removed(tree, record),
            }
        }
        self.end();
    }

    fn end(&mut self) {
        self.client.buffers.undo.clear();
        self.client.agent.release_all();
        self.has_ended = true;
    }

    /// Locks the next key above one, or the end of the table, and looks again whether it still is the next one. Returns the
    /// mode in which the transaction has the gap below it then.
    fn lock_next(&mut self, table: TableId, key: &[u8], mode: KeyMode) -> Result<KeyMode, Abort> {
        let LockingClient { shared, agent, buffers, .. } = &mut *self.client;
        let tree = shared.tree(table)?;
        let mut is_there = next_key(tree, key, buffers, &self.guard);
        loop {
            let found = std::mem::take(&mut buffers.next);
            let next = if is_there { KeyOrEnd::Key(&found) } else { KeyOrEnd::End };
            agent.lock(table, next, mode)?;
            let held = agent.held(table, next).gap();
            let was_there = std::mem::replace(&mut is_there, next_key(tree, key, buffers, &self.guard));
            if was_there == is_there && (!is_there || found == buffers.next) {
                return Ok(held);
            }
        }
    }

    /// Locks a key and copies its row to the buffer; returns false if there is none.
    #[inline]
    fn read_row(&mut self, table: TableId, key: &[u8], mode: KeyMode) -> Result<bool, Abort> {
        let LockingClient { shared, agent, buffers, .. } = &mut *self.client;
        if planted(Bug::AbsentNotLocked) && find(shared.tree(table)?, key, &self.guard).is_none() {
            return Ok(false);
        }
        agent.lock(table, KeyOrEnd::Key(key), mode)?;
        let found = find(shared.tree(table)?, key, &self.guard);
        Ok(found.is_some_and(|record| record.read(&mut buffers.row) & ABSENT == 0))
    }

    fn insert_row(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Result<bool, Abort> {
        check_lengths(key, row)?;
        self.client.agent.lock(table, KeyOrEnd::Key(key), KeyMode::WRITE)?;
        let tree = self.client.shared.tree(table)?;
        if let Some(record) = find(tree, key, &self.guard) {
            if record.tid() & ABSENT == 0 {
                return Ok(false);
            }
            // The transaction has removed the row itself.
            overwrite(tree, record, row, &self.guard);
            self.client.buffers.undo.add(table, key, Before::Removed, false);
            return Ok(true);
        }
        let gap = self.lock_next(table, key, KeyMode::INSERT)?;
        // Its gap alone, as long as what is above it may be another key than the one that was found: who takes it for the next key
        // would not notice those who protect what is there.
        let all = KeyMode::WRITE | KeyMode::PROTECT | KeyMode::INSERT;
        let own = if planted(Bug::NewGapShared) { KeyMode::WRITE | gap } else { all };
        self.client.agent.lock(table, KeyOrEnd::Key(key), own)?;
        at(Place::BetweenLooks);
        pause();
        let LockingClient { shared, buffers, .. } = &mut *self.client;
        let make = || {
            let record = Record::allocate(key, row.len(), SEQUENCE);
            // SAFETY: nobody else knows it; it is in the tree before anybody frees it.
            unsafe { Record::from_pointer(record) }.overwrite(row);
            record
        };
        match shared.tree(table)?.insert(key, make, &self.guard) {
            Insertion::New { .. } => buffers.undo.add(table, key, Before::Nothing, false),
            Insertion::Existing(_) => unreachable!("a key that is locked does not get a record"),
        }
        pause();
        if planted(Bug::InsertionNotLookedAtAgain) {
            return Ok(true);
        }
        // Another insertion may have divided the gap before this one's record was there to be seen.
        self.lock_next(table, key, KeyMode::INSERT)?;
        Ok(true)
    }

    fn replace_row(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Result<(), Abort> {
        check_lengths(key, row)?;
        let LockingClient { shared, agent, buffers, .. } = &mut *self.client;
        agent.lock(table, KeyOrEnd::Key(key), KeyMode::WRITE)?;
        let tree = shared.tree(table)?;
        let found = find(tree, key, &self.guard).filter(|record| record.read(&mut buffers.row) & ABSENT == 0);
        let Some(record) = found else {
            return Err(Abort::because(AbortReason::Misuse, "a row was to be replaced that is not there"));
        };
        buffers.undo.add(table, key, Before::Row(buffers.row.bytes()), false);
        overwrite(tree, record, row, &self.guard);
        Ok(())
    }

    fn remove_row(&mut self, table: TableId, key: &[u8]) -> Result<bool, Abort> {
        // Its gap as well: somebody else may not rely on it once the key is gone.
        let all = KeyMode::WRITE | KeyMode::PROTECT | KeyMode::INSERT;
        self.client.agent.lock(table, KeyOrEnd::Key(key), KeyMode::WRITE)?;
        let tree = self.client.shared.tree(table)?;
        if find(tree, key, &self.guard).is_none_or(|record| record.tid() & ABSENT != 0) {
            return Ok(false);
        }
        self.client.agent.lock(table, KeyOrEnd::Key(key), all)?;
        self.lock_next(table, key, KeyMode::PROTECT | KeyMode::INSERT)?;
        let LockingClient { shared, buffers, .. } = &mut *self.client;
        let Some(record) = find(shared.tree(table)?, key, &self.guard) else {
            unreachable!("a key that is locked keeps its record")
        };
        record.read(&mut buffers.row);
        buffers.undo.add(table, key, Before::Row(buffers.row.bytes()), true);
        if planted(Bug::RemovedAtOnce) {
            take_out(shared.tree(table)?, record, &self.guard);
            return Ok(true);
        }
        mark_removed(shared.tree(table)?, record);
        Ok(true)
    }
}

/// Takes the row of a record away, whose key is locked.
fn mark_removed(tree: &Tree, record: Record<'_>) {
    let tid = tree.lock_record(record);
    record.unlock((tid | ABSENT) + SEQUENCE);
}

/// Finds the smallest key above one; returns false if there is none.
pub(super) fn next_key(tree: &Tree, key: &[u8], buffers: &mut Buffers, guard: &Guard) -> bool {
    buffers.next.clear();
    buffers.next.extend_from_slice(key);
    buffers.next.push(0);
    super::scan::first_from(tree, buffers, guard)
}

impl RowTransaction for LockingTransaction<'_> {
    #[inline]
    fn read(&mut self, table: TableId, key: &[u8], intent: Intent) -> Result<Option<&[u8]>, Abort> {
        let mode = if intent == Intent::Write { KeyMode::WRITE } else { KeyMode::READ };
        let is_there = self.read_row(table, key, mode);
        Ok(self.note(is_there)?.then(|| self.client.buffers.row.bytes()))
    }

    fn insert(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Result<bool, Abort> {
        let done = self.insert_row(table, key, row);
        self.note(done)
    }

    fn replace(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Result<(), Abort> {
        let done = self.replace_row(table, key, row);
        self.note(done)
    }

    fn remove(&mut self, table: TableId, key: &[u8]) -> Result<bool, Abort> {
        let done = self.remove_row(table, key);
        self.note(done)
    }

    fn scan(
        &mut self,
        table: TableId,
        range: (&[u8], Option<&[u8]>),
        backward: bool,
        visit: &mut Visit<'_>,
    ) -> Result<bool, Abort> {
        let flow = if backward {
            self.scan_backward(table, range, visit)
        } else {
            self.scan_forward(table, range, visit)
        };
        self.note(flow).map(|flow| flow == ControlFlow::Break(()))
    }
}

impl Branch for LockingTransaction<'_> {
    fn has_changes(&self) -> bool {
        self.client.buffers.undo.len() > 0
    }

    fn is_optimistic(&self) -> bool {
        false
    }

    fn replace_read(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Result<(), Abort> {
        // The read has locked it.
        self.replace(table, key, row)
    }

    fn lock(&mut self) -> Result<(), Abort> {
        // What it writes has been locked since.
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn validate(&mut self) -> Result<(), Abort> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn for_each_change(&mut self, visit: &mut VisitChange<'_>) {
        self.visit_changes(visit);
    }

    fn commit(&mut self) {
        let committed = self.finish(&mut InMemory);
        debug_assert!(committed.is_ok(), "it was validated, and memory takes every change");
    }

    fn commit_alone(&mut self, log: Option<&mut ClientLog<'_>>) -> Result<(), Abort> {
        let committed = match log {
            None => self.finish(&mut InMemory),
            Some(log) => self.finish(log),
        };
        committed.inspect_err(|_| self.undo())
    }

    fn abort(&mut self, _why: &Abort) {
        if !self.has_ended {
            self.undo();
        }
    }
}

impl Drop for LockingTransaction<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.undo();
        }
    }
}
