//! Replay of changes on the worker that owns their rows.
//!
//! Owns: the changes of epochs that are not complete yet. Never: applies a change that is older than the row.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use atrapos_durability::wal::{Changes, Epoch};
use atrapos_partition::partition::{ReplayError, Tables};
use atrapos_partition::planted::{Bug, planted};
use atrapos_partition::schema::TableId;
use atrapos_storage::{Position, Probe, locate_batch};
use atrapos_transaction::shard::EngineWorker;

use super::{RecoveryError, RecoveryProgress};

/// Changes for one worker, as they travel: each `u64` epoch, `u64` version, `u32` length and the encoded change.
pub(super) type Batch = Vec<u8>;

/// Bytes before the encoded change in a batch.
const HEAD: usize = 20;

/// The changes that one worker has received and not applied yet.
#[derive(Debug, Default)]
pub(super) struct Replay {
    waiting: Batch,
    /// The oldest epoch of the waiting changes. Until it is complete they are not sorted through again: an epoch may be
    /// very large.
    oldest_waiting: Option<u64>,
    order: Vec<Change>,
}

/// Epoch, version and place in its batch of a change.
#[derive(Clone, Copy, Debug)]
struct Change {
    epoch: u64,
    version: u64,
    at: usize,
    length: u32,
}

/// The number of changes whose rows are looked up together.
const TOGETHER: usize = 16;

impl Replay {
    /// Takes in a batch and applies the changes of epochs up to `complete`.
    pub(super) fn apply(
        &mut self,
        worker: &Rc<EngineWorker>,
        batch: Batch,
        complete: Epoch,
        progress: &RecoveryProgress,
    ) -> Result<(), RecoveryError> {
        let mut bytes = Batch::new();
        if self.oldest_waiting.is_some_and(|oldest| oldest <= complete.0) {
            bytes = std::mem::take(&mut self.waiting);
            self.oldest_waiting = None;
        }
        if bytes.is_empty() {
            bytes = batch;
        } else {
            bytes.extend_from_slice(&batch);
        }
        self.order.clear();
        let mut at = 0;
        while at < bytes.len() {
            let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
            let length = u32::from_le_bytes(bytes[at + 16..at + 20].try_into().expect("four bytes"));
            let change = Change { epoch: word(at), version: word(at + 8), at, length };
            at += HEAD + length as usize;
            if change.epoch <= complete.0 {
                self.order.push(change);
            } else {
                self.oldest_waiting =
                    Some(self.oldest_waiting.map_or(change.epoch, |oldest| oldest.min(change.epoch)));
                self.waiting.extend_from_slice(&bytes[change.at..at]);
            }
        }
        // Mostly in order already.
        self.order.sort_by_key(|change| (change.epoch, change.version));
        if planted(Bug::VersionsIgnored) {
            self.order.sort_by_key(|change| (change.epoch, std::cmp::Reverse(change.version)));
        }
        let shard = worker.shard();
        let mut tables = shard.tables.borrow_mut();
        for group in self.order.chunks(TOGETHER) {
            apply_group(&mut tables, group, &bytes)?;
        }
        progress.0.changes.fetch_add(self.order.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

/// Applies changes in order, after looking up their rows together. A position is a hint: the tree locates the row again if an
/// earlier change has moved it.
fn apply_group(tables: &mut Tables, group: &[Change], bytes: &[u8]) -> Result<(), RecoveryError> {
    let encoded = |change: &Change| {
        let start = change.at + HEAD;
        &bytes[start..start + change.length as usize]
    };
    let mut changes = arrayvec::ArrayVec::<_, TOGETHER>::new();
    for change in group {
        let decoded =
            Changes::new(encoded(change)).next().expect("a change was encoded").map_err(unreadable)?;
        let (place, _) = tables.locate(TableId(decoded.table), decoded.key);
        changes.push((place, decoded));
    }
    let positions: arrayvec::ArrayVec<Position, TOGETHER> = {
        let mut probes: arrayvec::ArrayVec<Probe<'_>, TOGETHER> = changes
            .iter()
            .map(|(place, change)| Probe::new(tables.partition(*place).tree(), change.key))
            .collect();
        locate_batch(&mut probes);
        probes.iter().map(|probe| probe.position).collect()
    };
    for ((place, change), position) in changes.iter().zip(positions) {
        let table = tables.catalog.tables[place.table.at()].name;
        let restore = |why: &dyn std::fmt::Display| RecoveryError::Restore { table, why: why.to_string() };
        let partition = tables.partition_mut(*place);
        match partition.replay(position, change) {
            Ok(()) => {}
            Err(ReplayError::Row(error)) => return Err(restore(&error)),
            Err(ReplayError::Format(error)) => return Err(unreadable(error)),
        }
    }
    Ok(())
}

/// Returns the error of a frame whose records cannot be decoded.
#[cold]
pub(super) fn unreadable(error: impl std::fmt::Display) -> RecoveryError {
    RecoveryError::Unfit(format!(
        "the WAL has a frame whose checksum is right but whose records are not ({error}); it was written by another version of atrapos, or by a bug"
    ))
}
