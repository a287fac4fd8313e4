//! From a committed transaction to a durable one.
//!
//! # How it works
//!
//! - **One record per transaction.** While a transaction runs, every change appends its redo (key, version, new bytes or the
//!   bytes that differ) to its branch; what it changes on another worker comes back with the reply. When it commits, its
//!   home worker stamps the redo with the current *epoch* and appends it to the worker's own [`CommitBuffer`]. So a
//!   transaction is in one record, in one place, and atomic by construction; nothing central is written.
//! - **Streams.** The workers of one island share a *stream* of segment files, written by the island's flusher
//!   ([`flusher`]): it takes what its workers' buffers hold, writes it as a frame (as several, when it is very much), and
//!   syncs.
//! - **Epochs.** The epoch is one number that everybody reads and only flushers (and checkpoints) advance. A flusher *seals*
//!   an epoch: it advances the number and then takes every buffer. An epoch is *durable* when every stream has sealed it
//!   and synced what it held. Nothing advances by a timer: a flusher goes round when there is something to make durable,
//!   as fast as its device when somebody has nothing else to do, and sleeps otherwise ([`flusher`]).
//! - **Bounds.** A transaction's redo, and what waits in the buffers, have bounds ([`redo`](atrapos_partition::redo), [`buffer`]): a device that stands
//!   still stops transactions and costs no memory beyond.
//! - **Acknowledgement.** A transaction is told to its caller when the newest epoch it depends on is durable: its own, if it
//!   wrote; otherwise the newest epoch of what it *observed* ([`undurable_writes`]), if that is not durable yet. What waits is a task
//!   of the worker ([`commit_waiters`]); the worker goes on with others. Locks are released before: whoever reads what is
//!   not durable yet depends on it, and is told no sooner.
//! - **Order.** Versions of a partition grow with every change, so changes of one key are ordered by version wherever
//!   their records lie; and a transaction that saw another's change has the same epoch or a later one. Replay goes epoch by
//!   epoch, and within an epoch by version.
//!
//! # Invariants
//!
//! 1. *Sealed means complete.* A commit reads the epoch and appends its record under the lock of its worker's buffer; a flusher
//!    advances the epoch before it takes the buffers. So a record that is not in a buffer when it is taken has a newer epoch
//!    than the one sealed. The lock is the worker's own: only its flusher ever contends, once per sync.
//! 2. *Dependence is monotonic.* If T2 saw a change of T1, T2's home read the epoch after T1's home did (what T2 saw was
//!    released after T1's commit), so epoch(T2) >= epoch(T1), and T2 survives only if T1 does.
//! 3. *No stream is left behind.* A record is in a buffer, or its epoch is wanted of every stream, or durable. A flusher ends
//!    only when the WAL is closed, nothing is committed any more, and its stream has sealed the newest epoch wanted.
//! 4. *A failed sync is final.* After any error the instance is failed: nothing is acknowledged any more, nothing new
//!    commits that wrote, and the error names file and cause.

mod buffer;
mod commit_waiters;
pub mod flusher;
mod undurable_writes;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};

use atrapos_durability::wal::Epoch;
use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::planted::{Bug, planted};
use atrapos_partition::redo::TRANSACTION_REDO_BYTES;
use atrapos_runtime::{Parker, WorkerId};

pub use buffer::{Appended, CommitBuffer, Full};
pub use commit_waiters::CommitWaiters;
pub use undurable_writes::UndurableWrites;

/// When the caller of a transaction is told that it committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// When it is certain to survive a crash of process and machine, and so is everything it has read.
    #[default]
    Synchronous,
    /// At once. A crash may lose what was committed in the last `max_loss_ms` milliseconds, and never the middle of it: what
    /// remains is a state the database was in. A round of syncs begins every quarter of that time; when the device takes
    /// longer than the rest, nobody is told any more until it has caught up, as under
    /// [`Synchronous`](Durability::Synchronous), but what was told before the device stalled can be older. What waits
    /// meanwhile takes no more memory than `Builder::wal_buffer_bytes` allows.
    Relaxed {
        /// Milliseconds of committed transactions that a crash may lose.
        max_loss_ms: u64,
    },
    /// At once, and nothing is written: only checkpoints survive, those asked for and those made
    /// by the clock. Each is what the database was at one moment between transactions.
    None,
}

/// How much is kept in memory on the way to the WAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalLimits {
    /// Bytes of redo that one transaction has at most.
    pub transaction_redo_bytes: usize,
    /// Bytes of committed transactions that wait to be written at most, over all workers.
    pub buffer_bytes: usize,
}

impl Default for WalLimits {
    fn default() -> WalLimits {
        WalLimits { transaction_redo_bytes: TRANSACTION_REDO_BYTES, buffer_bytes: 1 << 30 }
    }
}

/// What one flusher shows to the others.
#[derive(Debug)]
#[repr(align(128))]
pub struct StreamState {
    /// The newest epoch of which everything in this stream is durable.
    sealed: AtomicU64,
    /// Wakes the flusher when it has nothing to do.
    parker: Parker,
    /// Wakes it when it keeps a distance between two rounds.
    pause: Parker,
    /// A worker has nothing left to do but to wait for the next round.
    hurry: AtomicBool,
    /// The buffer of a worker is filling up: the next round is not to wait.
    filling: AtomicBool,
    /// The workers whose records it writes.
    workers: Vec<WorkerId>,
    /// Segments that have sealed only older epochs may go (a checkpoint has replaced them).
    remove_before: AtomicU64,
    /// Bytes written, those of headers included.
    bytes: AtomicU64,
    /// Frames written, and so syncs made.
    frames: AtomicU64,
}

/// What the workers of a durable database share with its flushers.
#[derive(Debug)]
pub struct Wal {
    /// Read by every commit that wrote; written once per sync.
    epoch: Line,
    /// The newest epoch that every stream has sealed.
    durable: Line,
    /// Every stream has to seal this epoch, or a newer one: somebody has records in it.
    wanted: Line,
    /// What is known of each stream.
    pub streams: Vec<StreamState>,
    /// By worker.
    buffers: Vec<CommitBuffer>,
    stream_of: Vec<usize>,
    failed: AtomicBool,
    failure: OnceLock<String>,
    /// What went wrong last without any harm to what is stored.
    warning: Mutex<Option<String>>,
    closing: AtomicBool,
    /// Bytes of WAL from which on a checkpoint is due.
    checkpoint_at: AtomicU64,
    /// For threads that wait for an epoch.
    rounds: (Mutex<()>, Condvar),
    /// What callers wait for.
    pub durability: Durability,
    /// How much may be on its way.
    pub limits: WalLimits,
}

/// A number on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicU64);

impl Wal {
    /// The shared state of a WAL whose first epoch is `first`; `stream_of` tells the stream of each worker.
    pub fn new(durability: Durability, first: Epoch, stream_of: Vec<usize>, limits: WalLimits) -> Arc<Wal> {
        // Each worker has its share, so that a commit looks at its own buffer only.
        let share = limits.buffer_bytes / stream_of.len().max(1);
        let streams = stream_of.iter().max().map_or(1, |last| last + 1);
        let sealed = first.0 - 1;
        let state = |stream: usize| StreamState {
            sealed: AtomicU64::new(sealed),
            parker: Parker::new(),
            pause: Parker::new(),
            hurry: AtomicBool::new(false),
            filling: AtomicBool::new(false),
            workers: (0..stream_of.len())
                .filter(|worker| stream_of[*worker] == stream)
                .map(|worker| WorkerId(worker as u16))
                .collect(),
            remove_before: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            frames: AtomicU64::new(0),
        };
        Arc::new(Wal {
            epoch: Line(AtomicU64::new(first.0)),
            durable: Line(AtomicU64::new(sealed)),
            wanted: Line(AtomicU64::new(0)),
            streams: (0..streams).map(state).collect(),
            buffers: stream_of.iter().map(|_| CommitBuffer::new(share)).collect(),
            stream_of,
            failed: AtomicBool::new(false),
            failure: OnceLock::new(),
            warning: Mutex::default(),
            closing: AtomicBool::new(false),
            checkpoint_at: AtomicU64::new(u64::MAX),
            rounds: Default::default(),
            durability,
            limits,
        })
    }

    /// Whether commits leave records.
    #[inline]
    pub fn logs(&self) -> bool {
        self.durability != Durability::None
    }

    /// Appends the record of a transaction that commits now on `worker`. Returns its epoch; when the buffer is full, that of
    /// the newest record in it: there is room when that is durable.
    #[inline]
    pub(crate) fn commit(&self, worker: WorkerId, changes: &[u8]) -> Result<Epoch, Full> {
        let appended = self.buffers[worker.index()].append(&self.epoch.0, changes);
        if !matches!(appended, Ok(Appended { is_filling: false, .. })) {
            self.fills_up(worker);
        }
        appended.map(|appended| appended.epoch)
    }

    /// Tells the flusher of a worker that its next round is not to wait.
    #[cold]
    fn fills_up(&self, worker: WorkerId) {
        let stream = &self.streams[self.stream_of[worker.index()]];
        stream.filling.store(true, Ordering::SeqCst);
        stream.parker.wake();
        stream.pause.wake();
    }

    /// The present epoch.
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch.0.load(Ordering::Acquire))
    }

    /// The newest durable epoch.
    #[inline]
    pub fn durable(&self) -> Epoch {
        Epoch(self.durable.0.load(Ordering::Acquire))
    }

    /// Advances the epoch: when this returns, everything that commits has an epoch of at least the returned one, and what
    /// committed before has an older one and is in a buffer or further on.
    pub fn advance(&self) -> Epoch {
        let next = self.epoch.0.fetch_add(1, Ordering::SeqCst) + 1;
        for buffer in &self.buffers {
            buffer.wait_for_commit();
        }
        Epoch(next)
    }

    /// Asks for everything up to `epoch` to be made durable.
    pub fn want(&self, epoch: Epoch) {
        self.wanted.0.fetch_max(epoch.0, Ordering::SeqCst);
        self.wake_flushers();
    }

    fn wake_flushers(&self) {
        for stream in &self.streams {
            stream.parker.wake();
            stream.pause.wake();
        }
    }

    /// Tells the flusher of a worker that the worker's buffer has something.
    pub(crate) fn notify_flusher(&self, worker: WorkerId) {
        self.streams[self.stream_of[worker.index()]].parker.wake();
    }

    /// Tells the flusher of a worker that the worker has nothing to do until the next round is over.
    pub(crate) fn hurry(&self, worker: WorkerId) {
        let stream = &self.streams[self.stream_of[worker.index()]];
        if !stream.hurry.load(Ordering::Relaxed) {
            stream.hurry.store(true, Ordering::SeqCst);
            stream.pause.wake();
        }
    }

    /// Segments that have sealed only epochs before `epoch` may go.
    pub fn remove_before(&self, epoch: Epoch) {
        for stream in &self.streams {
            stream.remove_before.fetch_max(epoch.0, Ordering::SeqCst);
        }
        self.wake_flushers();
    }

    /// The flushers make everything durable and end. Nobody may commit any more.
    pub fn close(&self) {
        // A flusher with nothing to write may not end before its stream has sealed what the others still have to write: an
        // epoch that one stream never seals is never durable. Told before the closing is, so that no flusher sees one
        // without the other.
        let has_records = self.buffers.iter().any(|buffer| !buffer.is_empty());
        if has_records && !planted(Bug::FlusherEndsEarly) {
            self.wanted.0.fetch_max(self.epoch().0, Ordering::SeqCst);
        }
        self.closing.store(true, Ordering::SeqCst);
        self.wake_flushers();
    }

    /// Nothing can be made durable any more.
    #[cold]
    pub fn fail(&self, why: String) {
        // The first failure is the cause; the others are its consequences.
        let _ = self.failure.set(why);
        self.failed.store(true, Ordering::SeqCst);
    }

    /// Whether the instance has failed.
    #[inline]
    pub fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Why it failed.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Notes what went wrong, or that all is well again.
    pub fn set_warning(&self, warning: Option<String>) {
        *self.warning.lock().unwrap_or_else(PoisonError::into_inner) = warning;
    }

    /// What went wrong last without any harm to what is stored.
    pub fn warning(&self) -> Option<String> {
        self.warning.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What a caller is told who cannot be told that the transaction is durable.
    #[cold]
    pub fn refusal(&self) -> Abort {
        let why = self.failure().unwrap_or("the WAL could not be written");
        Abort::explained(
            AbortReason::NotDurable,
            format!(
                "{why}; no write is accepted any more and nothing is reported as committed: find the cause and open the database again"
            ),
        )
    }

    /// What a caller is told whose transaction would be more than may wait to be written.
    #[cold]
    pub(crate) fn overload(&self) -> Abort {
        Abort::explained(
            AbortReason::Overloaded,
            format!(
                "more is committed than the device of the WAL takes, and the worker's share of the {} bytes that may wait \
                 for it is full; try again later, find out why the device is slow, or allow more with \
                 Builder::wal_buffer_bytes",
                self.limits.buffer_bytes
            ),
        )
    }

    /// Bytes written so far by all streams.
    pub fn bytes(&self) -> u64 {
        self.streams.iter().map(|stream| stream.bytes.load(Ordering::Relaxed)).sum()
    }

    /// Frames written, and so syncs made, so far by all streams.
    pub fn frames(&self) -> u64 {
        self.streams.iter().map(|stream| stream.frames.load(Ordering::Relaxed)).sum()
    }

    /// A checkpoint is due when this many bytes have been written.
    pub fn set_checkpoint_at(&self, bytes: u64) {
        self.checkpoint_at.store(bytes, Ordering::Relaxed);
    }

    /// Whether a checkpoint is due.
    pub fn is_checkpoint_due(&self) -> bool {
        self.bytes() >= self.checkpoint_at.load(Ordering::Relaxed)
    }

    /// Tells threads that wait for an epoch that a round has ended.
    fn show_round(&self) {
        drop(self.rounds.0.lock().unwrap_or_else(PoisonError::into_inner));
        self.rounds.1.notify_all();
    }

    /// Blocks until `epoch` is durable; false when it never will be. Not for workers.
    pub fn wait_for(&self, epoch: Epoch) -> bool {
        let mut guard = self.rounds.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if self.durable() >= epoch {
                return true;
            }
            if self.is_failed() {
                return false;
            }
            guard = self.rounds.1.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
