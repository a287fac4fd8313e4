//! Databases with a directory: opening and closing, the threads of the flushers, and the schedule of checkpoints.
//!
//! Owns: the directory and its manifest, the flushers' threads, and the checkpointer, a thread that makes checkpoints. Never:
//! decides what is in a record, a checkpoint or a manifest.
//!
//! # Order of things
//!
//! *Opening*: lock the directory; read the manifest; read and verify the WAL ([`Plan`]); start the workers; fill their
//! trees; publish a manifest with the next incarnation; start its streams. Until recovery has succeeded, the valid
//! data on disk does not change (leftovers of a crash are removed, and the last frame is synced), and an incarnation writes
//! nothing before the manifest names it and has the durable epoch of the one before.
//!
//! *Closing*: the checkpointer is requested to end; the workers complete transactions under way, for which they need the
//! flushers; the checkpointer, whose jobs the workers refuse by then, ends; the flushers make all commits durable and end;
//! a manifest is published with the ends of the streams, so that the next opening takes nothing for torn.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use atrapos_catalog::Definitions;
use atrapos_durability::directory::{Directory, DirectoryError};
use atrapos_durability::file::FileSystem;
use atrapos_durability::manifest::{InstanceRecord, Manifest};
use atrapos_durability::wal::{Epoch, Incarnation, StreamEnd, StreamId, StreamOptions, StreamWriter};
use atrapos_partition::abort::Abort;
use atrapos_partition::partition::PartitionId;
use atrapos_partition::planted::{Bug, planted};
use atrapos_partition::routing::Scheme;
use atrapos_runtime::Handle;
use atrapos_storage::lock::TxnId;
use atrapos_transaction::jobs::on_all_workers;
use atrapos_transaction::shard::Shard;
use atrapos_transaction::wal::flusher::Flusher;
use atrapos_transaction::wal::{Durability, Wal, WalLayout, WalLimits};

use crate::builder::OpenError;
use crate::checkpoint::Pace;
use crate::recovery::{Plan, RecoveryError, RecoveryProgress, RecoveryReport};

/// The schedule of automatic checkpoints, and settings of the WAL.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    pub(crate) durability: Durability,
    /// Bytes of WAL after which a checkpoint is made.
    pub(crate) checkpoint_wal_bytes: u64,
    /// Time after which a checkpoint is made if the database has changed.
    pub(crate) checkpoint_every: Option<Duration>,
    pub(crate) segment_bytes: u64,
    /// Bytes of WAL that are filled with zeros at the opening.
    pub(crate) wal_reserve_bytes: u64,
    pub(crate) limits: WalLimits,
}

impl Policy {
    /// The options of each of so many streams. What is written until a checkpoint is room for as much after it.
    fn stream_options(&self, streams: usize) -> StreamOptions {
        let of_each = |bytes: u64| bytes.div_ceil(streams as u64);
        StreamOptions {
            filled_bytes: of_each(self.wal_reserve_bytes),
            kept_bytes: of_each(self.wal_reserve_bytes.max(self.checkpoint_wal_bytes)),
            ..StreamOptions::of_segments(self.segment_bytes)
        }
    }
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            durability: Durability::default(),
            checkpoint_wal_bytes: 1 << 30,
            checkpoint_every: None,
            segment_bytes: StreamOptions::default().segment_bytes,
            wal_reserve_bytes: 0,
            limits: WalLimits::default(),
        }
    }
}

/// The state of the directory.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) manifest: Manifest,
    pub(crate) next_checkpoint: u32,
    /// The progress that the newest checkpoint covers: another one is made only if the database has changed since.
    pub(crate) saved: Progress,
}

/// Progress of the changes of a database: two equal values mean that nothing has changed in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// An epoch that is greater than those of all commits.
    Epoch(Epoch),
    /// For a database without a log, in which epochs do not advance: the newest version of each partition, and the unfinished
    /// transactions that have changed something, both in order. These are in no checkpoint, and committing them makes no new version. It
    /// also differs after such a transaction was undone, and after partitions were split, joined or moved; the superfluous checkpoint
    /// does no harm.
    Versions(Vec<(PartitionId, u64)>, Vec<TxnId>),
}

/// The state of a database's directory. See the module's introduction.
pub(crate) struct Durable {
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) directory: Directory,
    pub(crate) wal: Arc<Wal>,
    pub(crate) handle: Handle<Shard>,
    pub(crate) report: RecoveryReport,
    state: Mutex<State>,
    policy: Policy,
    /// Set when the checkpointer has to end and give up a checkpoint under way.
    pub(crate) stopping: AtomicBool,
    checkpointer_sleeps: (Mutex<()>, Condvar),
}

#[expect(
    clippy::disallowed_types,
    reason = "a flusher waits for its device and the checkpointer for the flushers: they need threads that may block, and workers never do"
)]
type Thread<T> = std::thread::JoinHandle<T>;

/// The threads of a database with a directory.
#[derive(Debug)]
pub(crate) struct DurableThreads {
    flushers: Vec<Thread<Option<StreamEnd>>>,
    checkpointer: Thread<()>,
}

fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<Thread<T>, OpenError> {
    let builder = std::thread::Builder::new().name(name.to_owned());
    builder.spawn(body).map_err(|error| OpenError::Start(format!("thread '{name}': {error}")))
}

/// A directory that has been locked and read, before any thread is started.
#[derive(Debug)]
pub(crate) struct DirectoryContents {
    fs: Arc<dyn FileSystem>,
    directory: Directory,
    manifest: Manifest,
    plan: Plan,
    is_new: bool,
    policy: Policy,
}

impl DirectoryContents {
    /// Locks and reads a directory, or creates it.
    pub(crate) fn new(
        fs: Arc<dyn FileSystem>,
        path: &Path,
        schema: &Definitions,
        streams: usize,
        policy: Policy,
        instance: Option<InstanceRecord>,
    ) -> Result<DirectoryContents, OpenError> {
        let is_new = !Directory::exists(&*fs, path)?;
        let (directory, mut manifest) = if is_new {
            Directory::create(Arc::clone(&fs), path, schema.clone(), streams as u16)?
        } else {
            Directory::open(Arc::clone(&fs), path)?
        };
        if let Some(difference) = manifest.schema.difference(schema) {
            return Err(OpenError::OtherSchema { path: path.to_owned(), difference });
        }
        manifest.schema.complete(schema);
        let plan = Plan::new(&fs, &directory, &manifest)?;
        if manifest.instance.is_none() && instance.is_some() && plan.is_empty() {
            manifest.instance = instance;
            directory.publish(&manifest)?;
        } else {
            check_instance(path, manifest.instance.as_ref(), instance.as_ref())?;
        }
        Ok(DirectoryContents { fs, directory, manifest, plan, is_new, policy })
    }

    /// Returns the WAL state that the workers of the new incarnation share.
    pub(crate) fn wal(&self, layout: WalLayout) -> Arc<Wal> {
        Wal::new(self.policy.durability, self.plan.next_epoch, layout, self.policy.limits)
    }

    /// The incarnation that is about to begin.
    pub(crate) fn incarnation(&self) -> Incarnation {
        Incarnation(self.manifest.incarnation.0 + u32::from(!self.is_new))
    }

    /// The number of openings so far, this one included.
    pub(crate) fn openings(&self) -> u32 {
        self.incarnation().0 + 1
    }

    /// Fills the trees of the workers, which have been started, and begins the new incarnation, whose streams are returned.
    pub(crate) fn recover(
        self,
        wal: &Arc<Wal>,
        handle: Handle<Shard>,
        scheme: &Scheme,
        progress: &RecoveryProgress,
        stream_options: impl Fn(&Policy) -> StreamOptions,
    ) -> Result<(Arc<Durable>, Vec<StreamWriter>), OpenError> {
        let incarnation = self.incarnation();
        let DirectoryContents { fs, directory, mut manifest, plan, is_new, policy } = self;
        let (past, first_epoch) = (plan.past.clone(), plan.next_epoch);
        let (report, unresolved) =
            plan.recover(&fs, &directory, manifest.database, &handle, scheme, progress)?;
        unresolved.resume(&handle, manifest.instance.as_ref())?;
        if !is_new {
            manifest.past = past;
            manifest.incarnation = incarnation;
            manifest.first_epoch = first_epoch;
            manifest.streams = wal.streams.len() as u16;
            manifest.closed = None;
            directory.publish(&manifest)?;
            directory.remove_unnamed_segments(&manifest)?;
        }
        let mut writers = Vec::new();
        if wal.logs() {
            for stream in 0..wal.streams.len() {
                writers.push(StreamWriter::create(
                    Arc::clone(&fs),
                    directory.path(),
                    manifest.database,
                    manifest.incarnation,
                    StreamId(stream as u16),
                    stream_options(&policy),
                )?);
            }
        }
        let durable =
            Arc::new(Durable::new(fs, directory, manifest, Arc::clone(wal), handle, policy, report));
        if durable.report.changes == 0 {
            let saved = durable.progress().map_err(RecoveryError::from)?;
            durable.lock_state().saved = saved;
        }
        // The bytes just replayed would be replayed again: they count towards the next checkpoint.
        wal.set_checkpoint_at(durable.policy.checkpoint_wal_bytes.saturating_sub(durable.report.wal_bytes));
        Ok((durable, writers))
    }

    /// Recovers like [`recover`](DirectoryContents::recover), and starts the threads that may block.
    pub(crate) fn recover_with_threads(
        self,
        wal: Arc<Wal>,
        handle: Handle<Shard>,
        scheme: &Scheme,
        progress: &RecoveryProgress,
    ) -> Result<(Arc<Durable>, DurableThreads), OpenError> {
        let streams = wal.streams.len();
        let (durable, writers) =
            self.recover(&wal, handle.clone(), scheme, progress, |policy| policy.stream_options(streams))?;
        let mut flushers = Vec::new();
        for (stream, writer) in writers.into_iter().enumerate() {
            let flusher = Flusher::new(Arc::clone(&wal), stream, writer);
            let handle = handle.clone();
            let started = spawn(&format!("atrapos-wal-{stream}"), move || flusher.run(&handle));
            // Flushers that run already must not outlive a database that did not open.
            flushers.push(started.inspect_err(|_| wal.close())?);
        }
        let checkpointer = {
            let durable = Arc::clone(&durable);
            spawn("atrapos-checkpoint", move || durable.keep()).inspect_err(|_| wal.close())?
        };
        Ok((durable, DurableThreads { flushers, checkpointer }))
    }
}

/// Compares the place of an instance in its deployment with that in its directory.
fn check_instance(
    path: &Path,
    stored: Option<&InstanceRecord>,
    wanted: Option<&InstanceRecord>,
) -> Result<(), OpenError> {
    let what = match (stored, wanted) {
        (None, Some(_)) => "is a database of its own, and no instance of a deployment; give the instance another directory".to_owned(),
        (Some(stored), None) => format!(
            "is instance {} of a deployment; open it as that, with the others",
            stored.instance
        ),
        (Some(stored), Some(wanted)) if stored.deployment != wanted.deployment => format!(
            "is an instance of deployment {:032x}, and this is deployment {:032x}; give the instance another directory",
            stored.deployment, wanted.deployment
        ),
        (Some(stored), Some(wanted)) if stored.instance != wanted.instance => format!(
            "is instance {} of the deployment, not instance {}; give each instance its own directory",
            stored.instance, wanted.instance
        ),
        (Some(stored), Some(wanted)) if stored.division != wanted.division => {
            "is an instance of a deployment that divides the keys in another way; start it with the numbers of instances and workers, \
             and the key ranges, that it was created with"
                .to_owned()
        }
        _ => return Ok(()),
    };
    Err(OpenError::OtherInstance { path: path.to_owned(), what })
}

impl Durable {
    /// Returns the state of a directory whose incarnation has begun.
    pub(crate) fn new(
        fs: Arc<dyn FileSystem>,
        directory: Directory,
        manifest: Manifest,
        wal: Arc<Wal>,
        handle: Handle<Shard>,
        policy: Policy,
        report: RecoveryReport,
    ) -> Durable {
        let next_checkpoint = manifest.checkpoint.as_ref().map_or(1, |checkpoint| checkpoint.number + 1);
        let saved = Progress::Epoch(Epoch(0));
        Durable {
            fs,
            directory,
            wal,
            handle,
            state: Mutex::new(State { manifest, next_checkpoint, saved }),
            policy,
            stopping: AtomicBool::new(false),
            checkpointer_sleeps: Default::default(),
            report,
        }
    }

    pub(crate) fn lock_state(&self) -> MutexGuard<'_, State> {
        // A poisoned state is consistent: it is replaced as a whole, and only after publication.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes checkpoints when they are due, until the database closes.
    fn keep(&self) {
        while self.wait_until_due() {
            let bytes = self.wal.bytes();
            let Ok(progress) = self.progress() else { return };
            // Otherwise it is due by the clock, but nothing was committed since the last one.
            let is_saved = progress == self.lock_state().saved;
            if !is_saved && let Err(failure) = self.checkpoint(Pace::Gentle) {
                self.wal.set_warning(Some(failure.to_string()));
            }
            self.wal.set_checkpoint_at(bytes.saturating_add(self.policy.checkpoint_wal_bytes));
        }
    }

    /// Returns the progress of the changes.
    pub(crate) fn progress(&self) -> Result<Progress, Abort> {
        if self.wal.logs() {
            return Ok(Progress::Epoch(self.wal.epoch()));
        }
        let found = on_all_workers(&self.handle, |worker| {
            let tables = worker.shard().tables.borrow();
            let versions: Vec<_> =
                tables.owned().map(|(place, partition)| (place, partition.version())).collect();
            (versions, unfinished_writers(worker.shard()))
        })?;
        let (mut versions, mut unfinished) = (Vec::new(), Vec::new());
        for (newest, writers) in found {
            versions.extend(newest);
            unfinished.extend(writers);
        }
        versions.sort_unstable();
        unfinished.sort_unstable();
        Ok(Progress::Versions(versions, unfinished))
    }

    /// Waits until a checkpoint is due. Returns false when the database closes.
    fn wait_until_due(&self) -> bool {
        let mut waited = Duration::ZERO;
        let mut guard = self.checkpointer_sleeps.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if self.stopping.load(Ordering::SeqCst) || self.wal.is_failed() {
                return false;
            }
            if self.wal.is_checkpoint_due()
                || self.policy.checkpoint_every.is_some_and(|every| waited >= every)
            {
                return true;
            }
            // Flushers do not take the checkpointer's lock: it polls, a few times a second.
            let wait = self.policy.checkpoint_every.map_or(LOOK_EVERY, |every| every.min(LOOK_EVERY));
            let woken = self.checkpointer_sleeps.1.wait_timeout(guard, wait);
            guard = woken.unwrap_or_else(PoisonError::into_inner).0;
            waited += wait;
        }
    }

    /// Waits for `time`, or until the database closes.
    pub(crate) fn pause(&self, time: Duration) {
        let guard = self.checkpointer_sleeps.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.stopping.load(Ordering::SeqCst) {
            drop(self.checkpointer_sleeps.1.wait_timeout(guard, time));
        }
    }

    /// Requests the end of the checkpointer; a checkpoint under way is given up.
    pub(crate) fn stop_checkpointer(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        let _guard = self.checkpointer_sleeps.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.checkpointer_sleeps.1.notify_all();
    }

    /// Replaces the definitions in the manifest: when this returns, they are in effect. After an error other than one of the
    /// definitions themselves it is unknown which ones are, and the database stops.
    pub(crate) fn redefine(&self, state: &mut State, definitions: Definitions) -> Result<(), DirectoryError> {
        let mut manifest = state.manifest.clone();
        manifest.schema = definitions;
        if !planted(Bug::StatementNotSaved)
            && let Err(error) = self.directory.publish(&manifest)
        {
            if !matches!(error, DirectoryError::Invalid { .. }) {
                self.wal.fail(error.to_string());
            }
            return Err(error);
        }
        state.manifest = manifest;
        Ok(())
    }

    /// Publishes a manifest with the ends of the streams.
    fn publish_closed(&self, ends: Vec<StreamEnd>) -> Result<(), DirectoryError> {
        let mut state = self.lock_state();
        let mut manifest = state.manifest.clone();
        manifest.closed = Some(ends);
        self.directory.publish(&manifest)?;
        state.manifest = manifest;
        Ok(())
    }
}

/// Returns the unfinished transactions that have changed something on a worker.
fn unfinished_writers(shard: &Shard) -> Vec<TxnId> {
    let active = shard.active.borrow();
    let here = active.iter().filter(|(_, core)| !core.home.borrow().undo.is_empty());
    let participants = shard.participants.borrow();
    let others = participants.iter().filter(|(_, branch)| !branch.borrow().undo.is_empty());
    here.map(|(id, _)| *id).chain(others.map(|(id, _)| *id)).collect()
}

/// The interval at which the checkpointer checks if a checkpoint is due.
const LOOK_EVERY: Duration = Duration::from_millis(200);

impl DurableThreads {
    /// Ends the threads, after [`stop_checkpointer`](Durable::stop_checkpointer) and the end of the workers. Returns the
    /// failure, if any.
    pub(crate) fn after_workers_ended(self, durable: &Durable) -> Option<String> {
        // It is refused by the workers, and may wait for the flushers. One that panicked has nothing left to do either.
        let _ = self.checkpointer.join();
        durable.wal.close();
        if !durable.wal.logs() {
            return None;
        }
        let ends: Option<Vec<StreamEnd>> =
            self.flushers.into_iter().map(|flusher| flusher.join().ok().flatten()).collect();
        match ends {
            Some(ends) => durable.publish_closed(ends).err().map(|error| error.to_string()),
            None => durable.wal.failure().map(str::to_owned),
        }
    }
}
