//! Recovery of a database directory into trees in memory: the newest checkpoint, and the changes in the WAL after it.
//!
//! # Range of the replay
//!
//! Replayed is every incarnation that the manifest names, the oldest first, each up to its *durable epoch*: for an
//! incarnation that was followed by another one, the epoch written down then; for the last one, the oldest of the newest
//! epochs its streams have sealed. Records beyond it were never acknowledged and may lack others they depend on: they are
//! left out, and the durable epoch written down with the new incarnation keeps later recoveries from reading them.
//!
//! # Order
//!
//! Records are distributed by key: each change goes to the worker that owns the key *now*, independent of the workers,
//! islands and partitions at the time it was written. A worker sorts the changes by epoch and version and applies those that
//! are newer than the row. So replay is idempotent, the rows of a fuzzy checkpoint may be of different ages, and changes need
//! not be whole rows.
//!
//! An epoch is sealed by the last of the frames that hold its records; of a stream that was cut off before that frame, the
//! others are read, and their records are beyond the durable epoch.
//!
//! A record may lie in a frame before that of an older record of the same epoch (the buffers of a stream's workers are
//! taken one after the other), and streams are read one after the other: therefore a worker applies an epoch only when all
//! streams have been read beyond it.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use atrapos_durability::checkpoint::{CheckpointError, PartId, PartReader};
use atrapos_durability::directory::Directory;
use atrapos_durability::file::FileSystem;
use atrapos_durability::manifest::{CheckpointRecord, Manifest, PastIncarnation};
use atrapos_durability::wal::{
    Changes, Epoch, Incarnation, Records, StreamEnd, StreamId, StreamReader, StreamSummary, WalError, scan,
    settle,
};
use atrapos_partition::abort::Abort;
use atrapos_partition::partition::{PartitionId, ReplayError, Tables};
use atrapos_partition::planted::{Bug, planted};
use atrapos_partition::routing::Scheme;
use atrapos_partition::schema::TableId;
use atrapos_runtime::{Handle, WorkerId};
use atrapos_storage::{BulkLoader, Position, Probe, TreeConfig, locate_batch};
use atrapos_transaction::jobs::{on_all_workers, start_on_worker};
use atrapos_transaction::shard::{EngineWorker, Shard};

use crate::load::FILL;

/// Reasons for which a database could not be recovered. Nothing was changed on disk.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The WAL cannot be read.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// The checkpoint cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Rows do not fit the trees, or memory is out.
    #[error("table '{table}' could not be restored: {why}")]
    Restore {
        /// The table.
        table: &'static str,
        /// The failure.
        why: String,
    },
    /// The WAL does not begin where the checkpoint ends.
    #[error("{0}")]
    Gap(String),
    /// The WAL has records, with valid checksums, that do not fit the database.
    #[error("{0}")]
    Unfit(String),
    /// The workers stopped meanwhile.
    #[error(transparent)]
    Stopped(#[from] Abort),
}

/// Progress of a recovery, shared with the threads that display it.
#[derive(Clone, Debug, Default)]
pub struct RecoveryProgress(Arc<Progress>);

#[derive(Debug, Default)]
struct Progress {
    rows_total: AtomicU64,
    rows: AtomicU64,
    bytes_total: AtomicU64,
    bytes: AtomicU64,
    changes: AtomicU64,
}

impl RecoveryProgress {
    /// Returns the number of rows of the checkpoint loaded so far, and their total.
    #[must_use]
    pub fn rows(&self) -> (u64, u64) {
        (self.0.rows.load(Ordering::Relaxed), self.0.rows_total.load(Ordering::Relaxed))
    }

    /// Returns the bytes of WAL replayed so far, and their total.
    #[must_use]
    pub fn wal_bytes(&self) -> (u64, u64) {
        (self.0.bytes.load(Ordering::Relaxed), self.0.bytes_total.load(Ordering::Relaxed))
    }

    /// Returns the number of changes replayed so far.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.0.changes.load(Ordering::Relaxed)
    }
}

/// Result of a recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Rows taken from the checkpoint, index entries included.
    pub rows: u64,
    /// Changes taken from the WAL.
    pub changes: u64,
    /// Bytes of WAL read.
    pub wal_bytes: u64,
    /// Bytes that had not been written to their end when the database stopped, and were cut off, by file.
    pub torn: Vec<(PathBuf, u64)>,
}

/// One incarnation to replay.
#[derive(Debug)]
struct Replayed {
    incarnation: Incarnation,
    streams: Vec<StreamId>,
    durable: Epoch,
}

/// The work of a recovery, determined before any worker starts.
#[derive(Debug)]
pub(crate) struct Plan {
    checkpoint: Option<CheckpointRecord>,
    replay_from: Epoch,
    incarnations: Vec<Replayed>,
    /// The incarnations whose segments are still needed, with that of the last run among them.
    pub(crate) past: Vec<PastIncarnation>,
    /// The first epoch that was never used.
    pub(crate) next_epoch: Epoch,
    bytes: u64,
    torn: Vec<(PathBuf, u64)>,
}

impl Plan {
    /// Reads the WAL once, verifying all of it.
    pub(crate) fn new(
        fs: &Arc<dyn FileSystem>,
        directory: &Directory,
        manifest: &Manifest,
    ) -> Result<Plan, RecoveryError> {
        let replay_from = manifest.checkpoint.as_ref().map_or(Epoch(0), |checkpoint| checkpoint.replay_from);
        let mut plan = Plan {
            checkpoint: manifest.checkpoint.clone(),
            replay_from,
            incarnations: Vec::new(),
            past: Vec::new(),
            // A checkpoint begins a new epoch, in which nothing may have been committed.
            next_epoch: manifest.first_epoch.max(replay_from),
            bytes: 0,
            torn: Vec::new(),
        };
        for past in &manifest.past {
            plan.add(fs, directory, manifest, past.incarnation, past.streams, Some(past.durable), None)?;
        }
        let closed = manifest.closed.as_deref();
        plan.add(fs, directory, manifest, manifest.incarnation, manifest.streams, None, closed)?;
        Ok(plan)
    }

    /// Adds an incarnation, after scanning its streams.
    #[expect(clippy::too_many_arguments, reason = "what is known of one incarnation")]
    fn add(
        &mut self,
        fs: &Arc<dyn FileSystem>,
        directory: &Directory,
        manifest: &Manifest,
        incarnation: Incarnation,
        streams: u16,
        durable: Option<Epoch>,
        closed: Option<&[StreamEnd]>,
    ) -> Result<(), RecoveryError> {
        let mut summaries: Vec<(StreamId, StreamSummary)> = Vec::new();
        for stream in (0..streams).map(StreamId) {
            let end = closed.and_then(|ends| ends.get(usize::from(stream.0)).copied());
            let summary =
                scan(Arc::clone(fs), directory.path(), manifest.database, incarnation, stream, end)?;
            // Bytes that were written and not synced may be read back now and be lost in the next crash.
            settle(&**fs, directory.path(), &summary)?;
            self.bytes += summary.bytes;
            for used in [summary.newest_epoch, summary.sealed].into_iter().flatten() {
                self.next_epoch = self.next_epoch.max(Epoch(used.0 + 1));
            }
            if let Some(torn) = &summary.torn {
                self.torn.push((torn.path.clone(), torn.bytes));
            }
            summaries.push((stream, summary));
        }
        // A stream without a frame has sealed all epochs before the incarnation.
        let sealed = summaries.iter().map(|(_, summary)| summary.sealed).min();
        let nothing = Epoch(0);
        let durable = durable.unwrap_or_else(|| sealed.flatten().unwrap_or(nothing));
        if durable < self.replay_from || summaries.iter().all(|(_, summary)| summary.frames == 0) {
            // The checkpoint has all of it, or there is nothing.
            return Ok(());
        }
        // Segments are removed only after a checkpoint that has everything they have sealed.
        let gap = |summary: &StreamSummary| {
            summary.first_sealed.is_some_and(|sealed| self.checkpoint.is_none() || sealed >= self.replay_from)
        };
        if let Some((stream, _)) = summaries.iter().find(|(_, summary)| gap(summary)) {
            return Err(RecoveryError::Gap(format!(
                "stream {stream} of incarnation {incarnation} has lost its first segments from {}, and no checkpoint replaces \
                 them; put the files back, or restore the database from a backup",
                directory.wal_dir().display()
            )));
        }
        self.past.push(PastIncarnation { incarnation, streams, durable });
        let streams = summaries.into_iter().map(|(stream, _)| stream).collect();
        self.incarnations.push(Replayed { incarnation, streams, durable });
        Ok(())
    }

    /// Loads the checkpoint and replays the WAL into the trees of the workers, all of which are empty.
    pub(crate) fn recover(
        self,
        fs: &Arc<dyn FileSystem>,
        directory: &Directory,
        database: u128,
        handle: &Handle<Shard>,
        scheme: &Scheme,
        progress: &RecoveryProgress,
    ) -> Result<RecoveryReport, RecoveryError> {
        progress.0.bytes_total.store(self.bytes, Ordering::Relaxed);
        if let Some(checkpoint) = &self.checkpoint {
            let rows = checkpoint.parts.iter().map(|part| part.rows).sum();
            progress.0.rows_total.store(rows, Ordering::Relaxed);
            let dir = directory.checkpoint_dir(checkpoint.number);
            let readers = checkpoint.parts.iter().enumerate().map(|(part, record)| {
                let id = PartId { database, checkpoint: checkpoint.number, part: part as u16 };
                PartReader::open(Arc::clone(fs), &dir, id, record)
            });
            let readers = Arc::new(readers.collect::<Result<Vec<_>, _>>()?);
            let progress = progress.clone();
            for loaded in on_all_workers(handle, move |worker| load_checkpoint(worker, &readers, &progress))?
            {
                loaded?;
            }
        }
        for incarnation in &self.incarnations {
            self.replay(fs, directory, database, incarnation, handle, scheme, progress)?;
        }
        Ok(RecoveryReport {
            rows: progress.rows().0,
            changes: progress.changes(),
            wal_bytes: self.bytes,
            torn: self.torn,
        })
    }

    /// Replays one incarnation.
    #[expect(clippy::too_many_arguments, reason = "one incarnation, and everything recovery works on")]
    fn replay(
        &self,
        fs: &Arc<dyn FileSystem>,
        directory: &Directory,
        database: u128,
        replayed: &Replayed,
        handle: &Handle<Shard>,
        scheme: &Scheme,
        progress: &RecoveryProgress,
    ) -> Result<(), RecoveryError> {
        let mut distributor = Distributor::new(handle, scheme, progress);
        let mut streams = Vec::new();
        for stream in &replayed.streams {
            let reader = StreamReader::open(
                Arc::clone(fs),
                directory.path(),
                database,
                replayed.incarnation,
                *stream,
            )?;
            streams.push((reader, Some(Epoch(0))));
        }
        // Reads the stream that is furthest behind; `None` stands for one that has ended.
        while let Some((reader, read)) =
            streams.iter_mut().filter(|(_, read)| read.is_some()).min_by_key(|(_, read)| *read)
        {
            match reader.next_frame()? {
                Some(frame) => {
                    *read = Some(frame.sealed);
                    progress.0.bytes.fetch_add(frame.payload.len() as u64, Ordering::Relaxed);
                    distributor.add(frame.payload, self.replay_from, replayed.durable)?;
                }
                None => *read = None,
            }
            let complete = streams.iter().map(|(_, read)| read.unwrap_or(replayed.durable)).min();
            distributor.send_when_full(complete.unwrap_or(replayed.durable))?;
        }
        distributor.finish(replayed.durable)
    }
}

/// Fills a worker's trees with their rows of the checkpoint.
fn load_checkpoint(
    worker: &Rc<EngineWorker>,
    parts: &[PartReader],
    progress: &RecoveryProgress,
) -> Result<(), RecoveryError> {
    let shard = worker.shard();
    let places: Vec<PartitionId> = shard.tables.borrow().owned().map(|(place, _)| place).collect();
    let mut buffer = Vec::new();
    for place in places {
        let catalog = shard.catalog();
        let meta = &catalog.tables[place.table.at()];
        let restore =
            |why: &dyn std::fmt::Display| RecoveryError::Restore { table: meta.name, why: why.to_string() };
        let scheme = Arc::clone(&shard.tables.borrow().shards[place.table.at()].scheme);
        let index = scheme.index_of(place.partition).expect("a partition that is owned exists");
        let (lower, upper) = (scheme.lower(index).unwrap_or(&[]), scheme.upper(index));
        // Sections of different parts do not overlap: in order of their lower keys, their rows are in order.
        let mut sections: Vec<(&[u8], &PartReader, usize, std::ops::Range<usize>)> = parts
            .iter()
            .flat_map(|part| {
                let overlapping = part.overlapping(place.table.0, lower, upper);
                overlapping.into_iter().map(move |(section, blocks)| {
                    (part.sections()[section].lower.as_slice(), part, section, blocks)
                })
            })
            .collect();
        sections.sort_by_key(|(lower, ..)| *lower);
        let config = TreeConfig::for_rows_of(meta.expected_row_bytes);
        let mut bulk = BulkLoader::new(config, Arc::clone(&shard.memory), FILL);
        let mut newest = 0;
        for (_, part, section, blocks) in sections {
            for block in blocks {
                let before = bulk.len();
                for entry in part.read_block(section, block, &mut buffer)? {
                    let entry = entry?;
                    if entry.key >= lower && upper.is_none_or(|upper| entry.key < upper) {
                        newest = entry.version.max(newest);
                        bulk.push(entry.key, entry.row, entry.version).map_err(|error| restore(&error))?;
                    }
                }
                progress.0.rows.fetch_add(bulk.len() - before, Ordering::Relaxed);
            }
        }
        let tree = bulk.finish().map_err(|error| restore(&error))?;
        let mut tables = shard.tables.borrow_mut();
        let partition = tables.partition_mut(place);
        partition.replace_tree(tree);
        partition.raise_version(newest);
    }
    Ok(())
}

/// Changes for one worker, as they travel: each `u64` epoch, `u64` version, `u32` length and the encoded change.
type Batch = Vec<u8>;

/// Bytes before the encoded change in a batch.
const HEAD: usize = 20;

/// Bytes of changes for one worker after which they are sent. Large enough to sort and look up together.
const BATCH_BYTES: usize = 4 << 20;

/// Reads records and hands their changes to the workers that own the keys.
struct Distributor<'a> {
    handle: &'a Handle<Shard>,
    scheme: &'a Scheme,
    progress: &'a RecoveryProgress,
    batches: Vec<Batch>,
    /// The changes that each worker has received and not applied yet.
    replays: Vec<Arc<Mutex<Replay>>>,
    /// The results of the batches under way.
    under_way: Vec<atrapos_runtime::oneshot::Receiver<Result<(), RecoveryError>>>,
}

impl<'a> Distributor<'a> {
    fn new(handle: &'a Handle<Shard>, scheme: &'a Scheme, progress: &'a RecoveryProgress) -> Distributor<'a> {
        let workers = handle.workers();
        Distributor {
            handle,
            scheme,
            progress,
            batches: vec![Vec::new(); workers],
            replays: (0..workers).map(|_| Arc::default()).collect(),
            under_way: Vec::new(),
        }
    }

    /// Adds the changes of the records of a frame whose epochs are between `from` and `through`.
    fn add(&mut self, payload: &[u8], from: Epoch, through: Epoch) -> Result<(), RecoveryError> {
        for record in Records::new(payload) {
            let record = record.map_err(unreadable)?;
            if record.epoch < from || record.epoch > through {
                continue;
            }
            let mut changes = Changes::new(record.changes);
            loop {
                let begins = changes.offset();
                let Some(change) = changes.next() else { break };
                let change = change.map_err(unreadable)?;
                let encoded = &record.changes[begins..changes.offset()];
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
                let batch = &mut self.batches[owner.index()];
                batch.extend_from_slice(&record.epoch.0.to_le_bytes());
                batch.extend_from_slice(&change.version.to_le_bytes());
                batch.extend_from_slice(&(encoded.len() as u32).to_le_bytes());
                batch.extend_from_slice(encoded);
            }
        }
        Ok(())
    }

    /// Sends the batches if one of them is full.
    fn send_when_full(&mut self, complete: Epoch) -> Result<(), RecoveryError> {
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
            started.wait().map_err(|_| Abort::shutting_down())??;
        }
        Ok(())
    }

    /// Sends the last batches and waits for them.
    fn finish(mut self, durable: Epoch) -> Result<(), RecoveryError> {
        self.send(durable)?;
        self.wait()
    }
}

/// Returns the error of a frame whose records cannot be decoded.
#[cold]
fn unreadable(error: impl std::fmt::Display) -> RecoveryError {
    RecoveryError::Unfit(format!(
        "the WAL has a frame whose checksum is right but whose records are not ({error}); it was written by another version of atrapos, or by a bug"
    ))
}

/// The changes that one worker has received and not applied yet.
#[derive(Debug, Default)]
struct Replay {
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
    fn apply(
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
