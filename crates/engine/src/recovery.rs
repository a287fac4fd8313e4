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

mod distributor;
mod replay;
mod report;
mod rows;
mod unresolved;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use atrapos_durability::checkpoint::{PartId, PartReader};
use atrapos_durability::directory::Directory;
use atrapos_durability::file::FileSystem;
use atrapos_durability::manifest::{CheckpointRecord, Manifest, PastIncarnation};
use atrapos_durability::wal::{
    Epoch, Incarnation, StreamEnd, StreamId, StreamReader, StreamSummary, scan, settle,
};
use atrapos_partition::routing::Scheme;
use atrapos_runtime::Handle;
use atrapos_transaction::jobs::on_all_workers;
use atrapos_transaction::shard::Shard;

use self::distributor::Distributor;
use self::rows::load_checkpoint;

pub(crate) use self::unresolved::Unresolved;

pub use self::report::{RecoveryError, RecoveryProgress, RecoveryReport};

/// An incarnation to replay.
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

    /// Returns true if there is nothing to recover.
    pub(crate) fn is_empty(&self) -> bool {
        self.checkpoint.is_none() && self.incarnations.is_empty()
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
    ) -> Result<(RecoveryReport, Unresolved), RecoveryError> {
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
        let mut unresolved = Unresolved::default();
        for incarnation in &self.incarnations {
            self.replay(fs, directory, database, incarnation, handle, scheme, progress, &mut unresolved)?;
        }
        let (in_doubt, unacknowledged) = unresolved.counts();
        let report = RecoveryReport {
            rows: progress.rows().0,
            changes: progress.changes(),
            wal_bytes: self.bytes,
            torn: self.torn,
            in_doubt,
            unacknowledged,
        };
        Ok((report, unresolved))
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
        unresolved: &mut Unresolved,
    ) -> Result<(), RecoveryError> {
        let mut distributor = Distributor::new(handle, scheme, progress, unresolved);
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
