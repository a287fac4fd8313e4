//! The end of a transaction: Silo's three phases, and the abort.
//!
//! Owns: the order of locking, validating and installing. Never: waits for a lock of a record that comes before one it holds.
//!
//! Locks are taken in the order of addresses, so no circle of transactions can wait. The latch of a leaf is taken while records
//! are locked, never the other way round.

use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::schema::TableId;

use super::sets::Write;
use super::transaction::OccTransaction;
use crate::planted::{Bug, pause, planted};
use crate::redo::{CommitLog, InMemory};
use crate::tree::record::{ABSENT, EPOCH_SHIFT, FLAGS, LOCKED, OBSOLETE, Record, SEQUENCE};
use crate::tree::retire_record;
use crate::tree::sync::{SeqCst, fence};

impl OccTransaction<'_> {
    /// Commits: afterwards others see everything it has written.
    ///
    /// # Errors
    /// Fails with [`AbortReason::Validation`] if something that it has read was changed meanwhile: nothing of it remains, and
    /// it may be run again.
    pub fn commit(self) -> Result<(), Abort> {
        self.commit_to(&mut InMemory)
    }

    /// Commits like [`commit`](Self::commit), and logs the changes between the validation and their installation.
    #[inline(always)]
    pub(super) fn commit_to(mut self, log: &mut impl CommitLog) -> Result<(), Abort> {
        self.finish(log)
    }

    #[inline(always)]
    pub(super) fn finish(&mut self, log: &mut impl CommitLog) -> Result<(), Abort> {
        if self.client.buffers.writes.is_empty() {
            self.validate().inspect_err(|invalid| self.fail(invalid))?;
        } else {
            self.client.buffers.writes.sort();
            let epoch = self.lock_and_validate().inspect_err(|invalid| self.fail(invalid))?;
            pause();
            if planted(Bug::LoggedAfterInstall) {
                self.install(epoch);
                self.log(log)?;
            } else {
                self.log(log).inspect_err(|unlogged| {
                    self.unlock(self.client.buffers.writes.entries());
                    self.fail(unlogged);
                })?;
                self.install(epoch);
            }
        }
        self.client.counters.committed();
        self.end();
        Ok(())
    }

    /// Logs the changes, whose records are locked.
    #[inline(always)]
    fn log(&self, log: &mut impl CommitLog) -> Result<(), Abort> {
        log.commit(|redo| self.visit_changes(|table, key, row| redo.change(table, key, row)))
    }

    /// Visits the changes, whose records are locked.
    #[inline(always)]
    pub(super) fn visit_changes(&self, mut visit: impl FnMut(TableId, &[u8], Option<&[u8]>)) {
        let writes = &self.client.buffers.writes;
        for (at, write) in writes.entries().iter().enumerate() {
            visit(write.table, self.record(write.record).key(), writes.row(at));
        }
    }

    /// Aborts: nothing of it remains.
    pub fn abort(mut self) {
        self.fail(&Abort::because(AbortReason::User, "the transaction was aborted"));
    }

    /// Says whether everything that was read so far was there at one moment, which is now. A transaction that is about to
    /// abort for what it has read may ask.
    ///
    /// # Errors
    /// Fails with [`AbortReason::Validation`] if it was not: the transaction is doomed.
    pub fn validate(&self) -> Result<(), Abort> {
        let buffers = &self.client.buffers;
        if buffers.writes.is_empty() && buffers.reads.len() + buffers.nodes.len() <= 1 {
            // A single read was there when it was read.
            return Ok(());
        }
        fence(SeqCst);
        self.validate_reads(|_| false)
    }

    /// Validates the read set and the node set; `is_mine` says which records may be locked.
    #[inline(always)]
    pub(super) fn validate_reads(&self, is_mine: impl Fn(&super::sets::Read) -> bool) -> Result<(), Abort> {
        let buffers = &self.client.buffers;
        for read in &buffers.reads {
            let tid = self.record(read.record).tid_now();
            let is_same = tid == read.tid || (tid == read.tid | LOCKED && is_mine(read));
            let is_replaced = tid & (ABSENT | OBSOLETE) == OBSOLETE;
            let is_ignored =
                planted(Bug::ReadsNotValidated) || (is_replaced && planted(Bug::ObsoleteIgnored));
            if !is_same && !is_ignored {
                return Err(Abort::because(AbortReason::Validation, "a row that was read has been changed"));
            }
        }
        if planted(Bug::NodesNotValidated) {
            return Ok(());
        }
        for entry in &buffers.nodes {
            if !self.leaf(*entry).is_still(entry.version) {
                return Err(Abort::because(
                    AbortReason::Validation,
                    "a range that was read has been changed",
                ));
            }
        }
        Ok(())
    }

    /// Phases 1 and 2; returns the epoch of the commit. If it fails, nothing is locked.
    #[inline(always)]
    fn lock_and_validate(&self) -> Result<u64, Abort> {
        let writes = &self.client.buffers.writes;
        for (at, write) in writes.entries().iter().enumerate() {
            if !self.lock(write) {
                self.unlock(&writes.entries()[..at]);
                return Err(Abort::because(AbortReason::Validation, "a row to be written has been changed"));
            }
        }
        if !planted(Bug::CommitFenceLeftOut) {
            fence(SeqCst);
        }
        // Before the validation: who overwrites what this transaction has read locks after it, in this epoch or a later one.
        let epoch = self.client.shared.epoch.now();
        pause();
        let validated = self.validate_reads(|read| writes.has_sorted(read.record));
        if validated.is_err() {
            self.unlock(writes.entries());
        }
        validated.map(|()| epoch)
    }

    fn lock(&self, write: &Write) -> bool {
        let record = self.record(write.record);
        // Only the bug has read a record that is out of its tree, where nobody may write.
        if planted(Bug::ObsoleteIgnored) && write.tid & OBSOLETE != 0 {
            return false;
        }
        if record.lock(write.tid) {
            return true;
        }
        // The bug takes whatever is there, as long as it can be written.
        planted(Bug::ReadsNotValidated) && {
            let tid = record.lock_any();
            let can_be_written = tid & OBSOLETE == 0;
            if !can_be_written {
                record.unlock(tid);
            }
            can_be_written
        }
    }

    pub(super) fn unlock(&self, locked: &[Write]) {
        for write in locked {
            let record = self.record(write.record);
            record.unlock(record.tid_now() & !LOCKED);
        }
    }

    /// Phase 3.
    #[inline(always)]
    pub(super) fn install(&mut self, epoch: u64) {
        let tid = self.next_tid(epoch);
        let buffers = &self.client.buffers;
        for (at, write) in buffers.writes.entries().iter().enumerate() {
            let record = self.record(write.record);
            match buffers.writes.row(at) {
                Some(row) if record.fits(row.len()) => {
                    record.overwrite(row);
                    record.unlock(tid);
                }
                Some(row) => self.install_longer(write, row, tid),
                None => {
                    self.take_out(write);
                    record.unlock(tid | ABSENT | OBSOLETE);
                }
            }
        }
        self.client.last_tid = tid;
    }

    /// The TID of this transaction, whose locks are held.
    #[inline(always)]
    fn next_tid(&self, epoch: u64) -> u64 {
        let buffers = &self.client.buffers;
        let read = buffers.reads.iter().map(|read| read.tid);
        let written = buffers.writes.entries().iter().map(|write| write.tid);
        let last = read.chain(written).fold(self.client.last_tid, |last, tid| last.max(tid & !FLAGS));
        (last + SEQUENCE).max(epoch << EPOCH_SHIFT)
    }

    /// Puts a new record with a row for which the old one has no room into the place of the old one.
    fn install_longer(&self, write: &Write, row: &[u8], tid: u64) {
        let old = self.record(write.record);
        let new = Record::allocate(old.key(), row.len(), tid);
        // SAFETY: nobody else knows it yet; who finds it in the tree has no way to free it before this guard is released.
        let record = unsafe { Record::from_pointer(new) };
        record.overwrite(row);
        // The tables of the write set were found when it was filled.
        if let Ok(tree) = self.client.shared.tree(write.table) {
            tree.swap(old, new, &self.guard);
        }
        self.client.counters.record_added(record.memory());
        self.client.counters.record_removed(old.memory());
        old.unlock(tid | OBSOLETE);
        // SAFETY: it is in the tree no more, and only who holds its lock takes it out.
        unsafe { retire_record(old, &self.guard) };
    }

    /// Takes a locked record out of its tree.
    fn take_out(&self, write: &Write) {
        let record = self.record(write.record);
        // The tables of the write set were found when it was filled.
        if let Ok(tree) = self.client.shared.tree(write.table) {
            tree.remove(record, &self.guard);
        }
        self.client.counters.record_removed(record.memory());
        // SAFETY: it is in the tree no more, and only who holds its lock takes it out; this guard keeps it for a while.
        unsafe { retire_record(record, &self.guard) };
    }

    /// Aborts for a reason. Nothing is locked, but by a commit in steps.
    pub(super) fn fail(&mut self, why: &Abort) {
        if self.has_ended {
            return;
        }
        if self.locked_in.take().is_some() {
            self.unlock(self.client.buffers.writes.entries());
        }
        for write in self.client.buffers.writes.entries().iter().filter(|write| write.is_own) {
            let record = self.record(write.record);
            // Others may have found it absent, and one may have committed a row into it, or taken it out.
            if record.lock(ABSENT) {
                if planted(Bug::InsertsKept) {
                    record.unlock(SEQUENCE);
                } else {
                    self.take_out(write);
                    record.unlock(ABSENT | OBSOLETE);
                }
            }
        }
        self.client.counters.aborted(why.reason());
        self.end();
    }

    pub(super) fn end(&mut self) {
        self.client.buffers.clear();
        self.has_ended = true;
    }
}

impl Drop for OccTransaction<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.has_ended {
            self.fail(&Abort::because(AbortReason::User, "the transaction was dropped"));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use atrapos_partition::schema::TableId;

    use super::*;
    use crate::occ::{OccClient, OccEngine};
    use crate::rows::{Intent, RowTransaction};

    const TABLE: TableId = TableId(0);

    /// Reads one row and writes another one; returns the TID of the commit.
    fn commit(client: &mut OccClient, read: u8, write: u8) -> u64 {
        let ran = client.run(|tx| {
            tx.read(TABLE, &[read], Intent::Read)?;
            if !tx.insert(TABLE, &[write], &[0])? {
                tx.read(TABLE, &[write], Intent::Write)?;
                tx.replace(TABLE, &[write], &[1])?;
            }
            Ok(())
        });
        assert_eq!(ran, Ok(()));
        client.last_tid
    }

    #[test]
    fn tids_are_of_the_epoch_and_above_all_that_was_seen() {
        let engine = OccEngine::with_epoch_period(1, None);
        let (mut one, mut two) = (engine.client(), engine.client());
        let tids = [commit(&mut one, 1, 1), commit(&mut one, 1, 1), commit(&mut one, 2, 3)];
        assert!(tids.is_sorted_by(|before, after| before < after));
        assert!(tids.iter().all(|tid| tid >> EPOCH_SHIFT == 1 && tid & FLAGS == 0));
        assert!(commit(&mut two, 3, 4) > tids[2], "it has read what the first one wrote last");
        engine.advance_epoch();
        assert_eq!(commit(&mut two, 9, 9), 2 << EPOCH_SHIFT);
        assert_eq!(commit(&mut one, 9, 8), (2 << EPOCH_SHIFT) + SEQUENCE);
    }

    #[test]
    fn the_thread_advances_the_epoch() {
        let engine = OccEngine::with_epoch_period(1, Some(Duration::from_micros(100)));
        let mut client = engine.client();
        while commit(&mut client, 1, 1) >> EPOCH_SHIFT < 3 {
            std::thread::yield_now();
        }
    }
}
