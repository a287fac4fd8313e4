//! Checkpoints: the rows of all trees, written to disk in slices between transactions. They are fuzzy,
//! and the WAL repairs them; where there is no WAL, they are of a snapshot ([`atrapos_transaction::snapshot`]).
//!
//! # Correctness: a checkpoint and the WAL after it give the state
//!
//! 1. The epoch is advanced to `begin`: a transaction that commits from now on has `begin` or a later epoch and will be
//!    replayed.
//! 2. All messages on the way arrive: on every worker where a transaction that committed before `begin` has changed rows, its
//!    end is known when the scan gets there. So a change that is still unfinished there has no older epoch.
//! 3. Each owner scans its own trees, a slice at a time; a key range that moves to another worker meanwhile is scanned on
//!    there. Rows are written as they are, with their versions; a row that an unfinished transaction has changed is written
//!    as it was before (from the undo). A later change of any row, written or not, is in the WAL with an epoch of at least
//!    `begin`; replay applies it if it is newer than the row.
//! 4. Rows may have changes that are not durable yet. The checkpoint is published only after all commits up to the end of the
//!    scan are durable.
//!    Transactions that are prepared here for another instance, and decisions that others have not acknowledged, are logged again after
//!    `begin`: their notes before it are about to be removed.
//! 5. It is published by replacing the manifest. Then segments with nothing of `begin` or later are removed, and
//!    the checkpoint before.
//!
//! Without a WAL, a row that has changed since `begin` is written as it was then, whether its transaction has ended or not:
//! the checkpoint is the state at `begin`, and rows and indexes agree.

mod scan;

use std::sync::atomic::Ordering;
use std::time::Duration;

use atrapos_catalog::{Definitions, TreeDef};
use atrapos_durability::checkpoint::{CheckpointError, PartEncoder, PartFile, PartId};
use atrapos_durability::directory::DirectoryError;
use atrapos_durability::manifest::{CheckpointRecord, PartRecord};
use atrapos_durability::wal::Epoch;
use atrapos_partition::abort::Abort;
use atrapos_partition::planted::{Bug, planted};
use atrapos_partition::schema::TableId;
use atrapos_runtime::oneshot::Receiver;
use atrapos_runtime::{Clock, WorkerId};
use atrapos_transaction::distributed::log_again;
use atrapos_transaction::jobs::{on_all_workers, settle, start_on_worker};
use atrapos_transaction::snapshot::HeldSnapshot;
use atrapos_transaction::waiting;

use self::scan::{PartScan, sections_by_owner};
use crate::durable::{Durable, State};

/// Reasons for which a checkpoint could not be made. The previous one stays valid.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointFailure {
    /// A file could not be written.
    #[error("the checkpoint could not be written: {0}")]
    Write(#[from] CheckpointError),
    /// The manifest could not be replaced.
    #[error("the checkpoint could not be published: {0}")]
    Publish(#[from] DirectoryError),
    /// The database is closing or has failed, or has no directory.
    #[error(transparent)]
    Refused(#[from] Abort),
}

/// Size of a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointReport {
    /// Its number; checkpoints of a database are numbered from 1.
    pub number: u32,
    /// Rows and index entries.
    pub rows: u64,
    /// Bytes of its files.
    pub bytes: u64,
}

/// Share of the machine that a checkpoint takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// All of it, for a statement or load that waits for the checkpoint.
    Full,
    /// A small part of it while transactions commit.
    Gentle,
}

/// A gentle checkpoint pauses this many times as long as it works.
const GENTLE: u64 = 8;

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(20);

impl Durable {
    /// Makes a checkpoint while transactions run. A second caller waits for the first.
    pub(crate) fn checkpoint(&self, pace: Pace) -> Result<CheckpointReport, CheckpointFailure> {
        self.checkpoint_holding(&mut self.lock_state(), pace)
    }

    /// Makes a checkpoint like [`checkpoint`](Durable::checkpoint), for a caller that has locked the state.
    pub(crate) fn checkpoint_holding(
        &self,
        state: &mut State,
        pace: Pace,
    ) -> Result<CheckpointReport, CheckpointFailure> {
        self.checkpoint_defining(state, pace, None)
    }

    /// Makes a checkpoint like [`checkpoint_holding`](Durable::checkpoint_holding), and replaces the definitions in the
    /// manifest with it.
    pub(crate) fn checkpoint_defining(
        &self,
        state: &mut State,
        pace: Pace,
        definitions: Option<Definitions>,
    ) -> Result<CheckpointReport, CheckpointFailure> {
        // Read before it begins: it may have none of the changes made meanwhile.
        let mut saved = self.progress()?;
        let number = state.next_checkpoint;
        state.next_checkpoint += 1;
        self.directory.begin_checkpoint(number)?;
        let replaced = definitions.as_ref().map(dropped_in).unwrap_or_default();
        let written = self.write_checkpoint(number, state.manifest.database, pace, replaced);
        let (begin, parts) = match written {
            Ok(written) => written,
            Err(error) => {
                // Its files are removed at the next opening, if not now.
                let _ = self.directory.remove_checkpoint(number);
                return Err(error);
            }
        };
        let before = state.manifest.checkpoint.as_ref().map(|checkpoint| checkpoint.number);
        let report = CheckpointReport {
            number,
            rows: parts.iter().map(|part| part.rows).sum(),
            bytes: parts.iter().map(|part| part.bytes).sum(),
        };
        let mut manifest = state.manifest.clone();
        manifest.checkpoint = Some(CheckpointRecord { number, replay_from: begin, parts });
        manifest.past.clear();
        if let Some(definitions) = definitions {
            manifest.schema = definitions;
        }
        if let Err(error) = self.directory.publish(&manifest) {
            // It is not known whether the manifest was replaced: either may be valid, and the next opening finds out. Until
            // then both checkpoints and all segments have to stay.
            self.wal.fail(error.to_string());
            return Err(error.into());
        }
        if self.wal.logs() {
            // It has begun an epoch itself, and transactions committed meanwhile are in the WAL.
            saved = self.progress()?;
        }
        (state.manifest, state.saved) = (manifest, saved);
        let removable = if planted(Bug::SegmentRemovedEarly) { Epoch(self.wal.epoch().0 + 1) } else { begin };
        self.wal.remove_before(removable);
        // The checkpoint is valid even if the files it replaces cannot be removed: the next opening removes them.
        let segments = self.directory.remove_unnamed_segments(&state.manifest).map(drop);
        let removed = segments.and(before.map_or(Ok(()), |before| self.directory.remove_checkpoint(before)));
        self.wal.set_warning(removed.err().map(|error| error.to_string()));
        Ok(report)
    }

    /// Writes the parts of a checkpoint, of all tables but those that it `replaced`. Returns the epoch at its begin, and the
    /// parts.
    fn write_checkpoint(
        &self,
        number: u32,
        database: u128,
        pace: Pace,
        replaced: Vec<TableId>,
    ) -> Result<(Epoch, Vec<PartRecord>), CheckpointFailure> {
        let holds = !self.wal.logs() && !planted(Bug::SnapshotNotHeld);
        let _held = holds.then(|| HeldSnapshot::begin(&self.handle, &self.wal)).transpose()?;
        let begin = self.wal.advance();
        settle(&self.handle)?;
        on_all_workers(&self.handle, log_again)?;
        let dir = self.directory.checkpoint_dir(number);
        // One worker's scheme covers every key once, however old it is; a part follows its key ranges to their owners.
        let careless = planted(Bug::ClosedTableLeftOut);
        let sections = start_on_worker(&self.handle, WorkerId(0), move |worker| {
            sections_by_owner(worker, |table, is_closed| replaced.contains(&table) || careless && is_closed)
        })?;
        let sections = waiting::wait(sections)?;
        let mut files = Vec::new();
        let mut under_way: Vec<Option<Receiver<PartScan>>> = Vec::new();
        for (part, sections) in (0..).zip(sections) {
            files.push(PartFile::create(&*self.fs, &dir, part)?);
            let encoder = PartEncoder::new(PartId { database, checkpoint: number, part });
            let owner = WorkerId(part);
            let mut scan = PartScan::new(encoder, sections, owner);
            under_way.push(Some(start_on_worker(&self.handle, owner, move |worker| {
                scan.slice(worker);
                scan
            })?));
        }
        // Each part has one slice under way at most; meanwhile its previous slice is written.
        let mut done: Vec<Option<PartScan>> = under_way.iter().map(|_| None).collect();
        let clock = Clock::real();
        let mut committed = self.wal.bytes();
        let mut kept = vec![0; under_way.len()];
        while done.iter().any(Option::is_none) {
            let began = clock.now();
            for (at, slot) in under_way.iter_mut().enumerate() {
                let Some(receiver) = slot.take() else { continue };
                if self.stopping.load(Ordering::Relaxed) {
                    return Err(Abort::shutting_down().into());
                }
                let mut scan = waiting::wait(receiver)?;
                if let Some(error) = scan.failed.take() {
                    return Err(error.into());
                }
                kept[at] = scan.kept;
                let pieces = scan.encoder.take_full_blocks();
                if scan.is_done() {
                    done[at] = Some(scan);
                } else {
                    *slot = Some(start_on_worker(&self.handle, scan.owner, move |worker| {
                        scan.slice(worker);
                        scan
                    })?);
                }
                for piece in pieces {
                    files[at].append(&piece)?;
                }
            }
            let now = self.wal.bytes() + kept.iter().sum::<u64>();
            if pace == Pace::Gentle && now > std::mem::replace(&mut committed, now) {
                self.leave_time(clock.ns(clock.now().since(began)));
            }
        }
        let end = self.wal.epoch();
        let parts = finish_parts(files.into_iter().zip(done.into_iter().flatten()))?;
        self.wait_until_durable(end)?;
        Ok((begin, parts))
    }

    /// Leaves most of the time to the transactions that are running, after a slice of this many nanoseconds.
    fn leave_time(&self, worked_ns: u64) {
        self.pause(Duration::from_nanos(worked_ns * GENTLE).min(PAUSE_MAX));
    }

    /// Waits until all commits up to `epoch` are durable.
    pub(crate) fn wait_until_durable(&self, epoch: Epoch) -> Result<(), Abort> {
        if !self.wal.logs() {
            return Ok(());
        }
        self.wal.want(epoch);
        let is_decided = || (self.wal.durable() >= epoch || self.wal.is_failed()).then_some(());
        let reached = match waiting::step_until(is_decided) {
            Some(stepped) => stepped.map(|()| self.wal.durable() >= epoch)?,
            None => self.wal.wait_for(epoch),
        };
        if reached { Ok(()) } else { Err(self.wal.refusal()) }
    }
}

/// Returns the trees that definitions have as dropped: a checkpoint that is published with them needs none of their rows.
fn dropped_in(definitions: &Definitions) -> Vec<TableId> {
    let numbered = (0..).map(TableId).zip(&definitions.trees);
    numbered.filter(|(_, tree)| **tree == TreeDef::Dropped).map(|(number, _)| number).collect()
}

/// Writes the ends of parts that have been scanned, and makes them durable.
fn finish_parts(
    parts: impl Iterator<Item = (PartFile, PartScan)>,
) -> Result<Vec<PartRecord>, CheckpointError> {
    let finish = |(mut file, scan): (PartFile, PartScan)| {
        let finished = scan.encoder.finish()?;
        for piece in finished.pieces {
            file.append(&piece)?;
        }
        file.finish()?;
        Ok(finished.record)
    };
    parts.map(finish).collect()
}
