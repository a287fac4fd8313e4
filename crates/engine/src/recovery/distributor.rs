//! Distribution of the changes in the WAL to the workers that own their keys now.
//!
//! Owns: the batches on their way, one under way and one being filled per worker. Never: applies a change.

use std::sync::{Arc, Mutex, PoisonError};

use atrapos_durability::wal::{Changes, Epoch, Records};
use atrapos_partition::routing::Scheme;
use atrapos_partition::schema::TableId;
use atrapos_runtime::{Handle, WorkerId};
use atrapos_transaction::jobs::start_on_worker;
use atrapos_transaction::shard::Shard;
use atrapos_transaction::waiting;

use super::replay::{Batch, Replay, unreadable};
use super::unresolved::Unresolved;
use super::{RecoveryError, RecoveryProgress};

/// Bytes of changes for one worker after which they are sent. Large enough to sort and look up together.
const BATCH_BYTES: usize = 4 << 20;

/// Reads records and hands their changes to the workers that own the keys.
pub(super) struct Distributor<'a> {
    handle: &'a Handle<Shard>,
    scheme: &'a Scheme,
    progress: &'a RecoveryProgress,
    unresolved: &'a mut Unresolved,
    batches: Vec<Batch>,
    /// The changes that each worker has received and not applied yet.
    replays: Vec<Arc<Mutex<Replay>>>,
    /// The results of the batches under way.
    under_way: Vec<atrapos_runtime::oneshot::Receiver<Result<(), RecoveryError>>>,
}

impl<'a> Distributor<'a> {
    pub(super) fn new(
        handle: &'a Handle<Shard>,
        scheme: &'a Scheme,
        progress: &'a RecoveryProgress,
        unresolved: &'a mut Unresolved,
    ) -> Distributor<'a> {
        let workers = handle.workers();
        Distributor {
            handle,
            scheme,
            progress,
            unresolved,
            batches: vec![Vec::new(); workers],
            replays: (0..workers).map(|_| Arc::default()).collect(),
            under_way: Vec::new(),
        }
    }

    /// Adds the changes of the records of a frame whose epochs are between `from` and `through`.
    pub(super) fn add(&mut self, payload: &[u8], from: Epoch, through: Epoch) -> Result<(), RecoveryError> {
        for record in Records::new(payload) {
            let record = record.map_err(unreadable)?;
            if record.epoch < from || record.epoch > through {
                continue;
            }
            let (note, encoded_changes) = record.split().map_err(unreadable)?;
            if let Some(note) = note {
                self.unresolved.add(note);
            }
            let mut changes = Changes::new(encoded_changes);
            loop {
                let begins = changes.offset();
                let Some(change) = changes.next() else { break };
                let change = change.map_err(unreadable)?;
                let encoded = &encoded_changes[begins..changes.offset()];
                if usize::from(change.table) >= self.scheme.family_of.len() {
                    return Err(RecoveryError::Unfit(format!(
                        "the WAL has a change of table number {}, which the schema does not have; the manifest and the WAL are not of one database",
                        change.table
                    )));
                }
                if self.scheme.is_dropped(TableId(change.table)) {
                    continue;
                }
                let family = self.scheme.family(TableId(change.table));
                let owner = family.owner(family.partition_of(change.key));
                let Some(batch) = self.batches.get_mut(owner.index()) else {
                    return Err(RecoveryError::Unfit(
                        "the WAL has a row that another instance of the deployment owns; open the instance with the division of the \
                         keys that it was created with"
                            .to_owned(),
                    ));
                };
                batch.extend_from_slice(&record.epoch.0.to_le_bytes());
                batch.extend_from_slice(&change.version.to_le_bytes());
                batch.extend_from_slice(&(encoded.len() as u32).to_le_bytes());
                batch.extend_from_slice(encoded);
            }
        }
        Ok(())
    }

    /// Sends the batches if one of them is full.
    pub(super) fn send_when_full(&mut self, complete: Epoch) -> Result<(), RecoveryError> {
        if self.batches.iter().any(|batch| batch.len() >= BATCH_BYTES) { self.send(complete) } else { Ok(()) }
    }

    /// Sends the batches. All changes of epochs up to `complete` are in these and the ones before.
    fn send(&mut self, complete: Epoch) -> Result<(), RecoveryError> {
        // At most one batch is applied while the next is read: memory stays bounded.
        self.wait()?;
        for (worker, (batch, replay)) in self.batches.iter_mut().zip(&self.replays).enumerate() {
            let batch = std::mem::replace(batch, Vec::with_capacity(BATCH_BYTES + BATCH_BYTES / 8));
            let (replay, progress) = (Arc::clone(replay), self.progress.clone());
            self.under_way.push(start_on_worker(self.handle, WorkerId(worker as u16), move |worker| {
                let mut replay = replay.lock().unwrap_or_else(PoisonError::into_inner);
                replay.apply(worker, batch, complete, &progress)
            })?);
        }
        Ok(())
    }

    /// Waits until the batches under way have been applied.
    fn wait(&mut self) -> Result<(), RecoveryError> {
        for started in self.under_way.drain(..) {
            waiting::wait(started)??;
        }
        Ok(())
    }

    /// Sends the last batches and waits for them.
    pub(super) fn finish(mut self, durable: Epoch) -> Result<(), RecoveryError> {
        self.send(durable)?;
        self.wait()
    }
}
