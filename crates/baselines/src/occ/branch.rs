//! The end of a transaction in steps, as the part of one over several instances ([`Branch`]).
//!
//! Owns: the state between the steps. Never: waits for a lock: the transaction that holds it may wait for another instance.

use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::schema::TableId;

use super::client::OccClient;
use super::engine::check_lengths;
use super::sets::Write;
use super::transaction::OccTransaction;
use crate::durable::ClientLog;
use crate::planted::pause;
use crate::redo::InMemory;
use crate::rows::{Branch, VisitChange};
use crate::tree::Found;
use crate::tree::record::ABSENT;
use crate::tree::sync::{SeqCst, fence};

impl Branch for OccTransaction<'_> {
    fn has_changes(&self) -> bool {
        !self.client.buffers.writes.is_empty()
    }

    fn is_optimistic(&self) -> bool {
        true
    }

    fn replace_read(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Result<(), Abort> {
        check_lengths(key, row)?;
        let changed = || Abort::because(AbortReason::Validation, "a row that was read has been changed");
        let OccClient { shared, buffers, .. } = &mut *self.client;
        let Found::Record(record) = shared.tree(table)?.find(key, &self.guard) else { return Err(changed()) };
        let record = record.pointer();
        if let Some(at) = buffers.writes.find(record) {
            buffers.writes.set(at, Some(row));
            return Ok(());
        }
        // Where its record is another one by now, the row has been replaced.
        let read = buffers.reads.iter().rev().find(|read| read.record == record);
        let tid = read.map(|read| read.tid).filter(|tid| tid & ABSENT == 0).ok_or_else(changed)?;
        buffers.writes.add(Write { record, tid, table, is_own: false, row: None }, Some(row));
        Ok(())
    }

    fn lock(&mut self) -> Result<(), Abort> {
        self.client.buffers.writes.sort();
        let writes = self.client.buffers.writes.entries();
        for (at, write) in writes.iter().enumerate() {
            if !self.record(write.record).try_lock(write.tid) {
                self.unlock(&writes[..at]);
                return Err(Abort::because(
                    AbortReason::Validation,
                    "a row to be written has been changed, or is locked",
                ));
            }
        }
        self.locked_in = Some(self.client.shared.epoch.now());
        pause();
        Ok(())
    }

    fn validate(&mut self) -> Result<(), Abort> {
        fence(SeqCst);
        let (writes, is_locked) = (&self.client.buffers.writes, self.locked_in.is_some());
        self.validate_reads(|read| is_locked && writes.has_sorted(read.record))
    }

    fn for_each_change(&mut self, visit: &mut VisitChange<'_>) {
        self.visit_changes(visit);
    }

    fn commit(&mut self) {
        if let Some(epoch) = self.locked_in.take() {
            self.install(epoch);
        }
        self.client.counters.committed();
        self.end();
    }

    fn commit_alone(&mut self, log: Option<&mut ClientLog<'_>>) -> Result<(), Abort> {
        match log {
            None => self.finish(&mut InMemory),
            Some(log) => self.finish(log),
        }
    }

    fn abort(&mut self, why: &Abort) {
        self.fail(why);
    }
}
