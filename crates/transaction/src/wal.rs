//! The write-ahead log: makes committed transactions durable.
//!
//! # Operation
//!
//! - **One record per transaction.** While a transaction runs, every change appends its redo (key, version, new bytes
//!   or the bytes that differ) to its branch; the redo of changes on another worker comes back with the reply. When it
//!   commits, its home worker stamps the redo with the current *epoch* and appends it to the worker's own
//!   [`CommitBuffer`]. So what a transaction has changed in this database is in one record, and atomic by construction; no central
//!   structure is written. What it does in several instances is held together by notes ([`Note`](atrapos_durability::wal::Note)).
//!   (By an [option](crate::central) several workers share a buffer; nothing else changes.)
//! - **Streams.** The workers of one island share a *stream* of segment files, written by the island's flusher
//!   ([`flusher`]): it takes the records from its workers' buffers, writes them as a frame (as several, if they are too
//!   many for one), and syncs.
//! - **Epochs.** The epoch is one number that all workers read and only flushers (and checkpoints) advance. A flusher
//!   *seals* an epoch: it advances the number and then takes every buffer. An epoch is *durable* when every stream has
//!   sealed it and synced its records. No timer advances the epoch: a flusher makes a round when there are records to
//!   make durable, at the speed of its device if a worker has nothing else to do, and sleeps otherwise ([`flusher`]).
//! - **Bounds.** A transaction's redo, and the records that wait in the buffers, are bounded
//!   ([`redo`](atrapos_partition::redo), [`buffer`]): a stalled device stops transactions, and costs no memory beyond
//!   the bounds. The exception are records of what was decided elsewhere, which cannot be refused: no more than there are
//!   prepared transactions, which take part in the bounds themselves.
//! - **Acknowledgement.** A transaction is acknowledged to its caller when the newest epoch it depends on is durable:
//!   its own, if it wrote; otherwise the newest epoch that it *observed* ([`undurable_writes`]), if that is not durable
//!   yet. Only its task waits ([`commit_waiters`]); the worker goes on with others. Locks are released before: a
//!   transaction that reads data that is not durable yet depends on it, and is acknowledged no sooner.
//! - **Order.** Versions of a partition grow with every change, so changes of one key are ordered by version wherever
//!   their records lie; and a transaction that saw another's change has the same epoch or a later one. Replay goes epoch by
//!   epoch, and within an epoch by version.
//!
//! # Invariants
//!
//! 1. *Sealed means complete.* A commit reads the epoch and appends its record under the lock of its worker's buffer; a flusher
//!    advances the epoch before it takes the buffers. So a record that is not in a buffer when it is taken has a newer epoch
//!    than the one sealed. The lock is the worker's own, unless buffers are shared: only its flusher ever contends, once per sync.
//! 2. *Dependence is monotonic.* If T2 saw a change of T1, T2's home read the epoch after T1's home did (the locks on
//!    what T2 saw were released after T1's commit), so epoch(T2) >= epoch(T1), and T2 survives only if T1 does.
//! 3. *No stream is left behind.* A record is in a buffer, or its epoch is wanted of every stream, or durable. A
//!    flusher ends only when the WAL is closed, no transaction commits any more, and its stream has sealed the newest
//!    epoch wanted.
//! 4. *A failed sync is final.* After any error the instance is failed: no transaction is acknowledged any more, no
//!    transaction with changes commits, and the error names file and cause.

mod buffer;
mod commit_waiters;
pub mod flusher;
pub(crate) mod siblings;
mod undurable_writes;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use atrapos_durability::wal::Epoch;
use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::planted::{Bug, planted};
use atrapos_partition::redo::TRANSACTION_REDO_BYTES;
use atrapos_runtime::{Clock, Parker, Ticks, WorkerId};

use crate::central::Scope;

pub use buffer::{Appended, CommitBuffer, Full};
pub use commit_waiters::CommitWaiters;
pub use undurable_writes::UndurableWrites;

/// The time at which the commit of a transaction is acknowledged to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// As soon as the transaction, and all data it has read, are certain to survive a crash of process and machine.
    #[default]
    Synchronous,
    /// At once. A crash may lose the transactions committed in the last `max_loss_ms` milliseconds, but only from the
    /// end: what remains is a state the database was in. A round of syncs begins every quarter of that time; if the
    /// device takes longer than the rest, no transaction is acknowledged until it has caught up, as under
    /// [`Synchronous`](Durability::Synchronous), but those acknowledged before the device stalled can be older. Records
    /// that wait meanwhile take no more memory than `Builder::wal_buffer_bytes` allows.
    Relaxed {
        /// Milliseconds of committed transactions that a crash may lose.
        max_loss_ms: u64,
    },
    /// At once, and no WAL is written: only checkpoints survive, the requested ones and the periodic ones. Each is the
    /// state of the database at one moment between transactions.
    None,
}

/// Bounds on the memory for records that are not written yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalLimits {
    /// The greatest redo of one transaction, in bytes.
    pub transaction_redo_bytes: usize,
    /// The greatest size, in bytes, of the records of committed transactions that wait to be written, over all workers.
    pub buffer_bytes: usize,
}

impl Default for WalLimits {
    fn default() -> WalLimits {
        WalLimits { transaction_redo_bytes: TRANSACTION_REDO_BYTES, buffer_bytes: 1 << 30 }
    }
}

/// The streams and the buffers of the workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalLayout {
    /// The stream of each worker, numbered from 0.
    stream_of: Vec<usize>,
    /// The buffer of each worker. Workers with one buffer have one stream.
    buffer_of: Vec<BufferIndex>,
}

/// The number of a commit buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BufferIndex(usize);

impl WalLayout {
    /// Returns the layout of workers on these islands, which are numbered from 0: a stream for each island, and the buffers by the
    /// scope of each. A central buffer has one stream.
    #[must_use]
    pub fn new(log_buffer: Scope, island_of: Vec<usize>) -> WalLayout {
        let stream_of = match log_buffer {
            Scope::Central => vec![0; island_of.len()],
            Scope::Island | Scope::Worker => island_of,
        };
        let buffer_of: Vec<usize> = match log_buffer {
            Scope::Central | Scope::Island => stream_of.clone(),
            Scope::Worker => (0..stream_of.len()).collect(),
        };
        WalLayout { stream_of, buffer_of: buffer_of.into_iter().map(BufferIndex).collect() }
    }

    /// Returns the number of streams.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.stream_of.iter().max().map_or(1, |last| last + 1)
    }

    fn buffers(&self) -> usize {
        self.buffer_of.iter().max().map_or(0, |last| last.0 + 1)
    }

    fn stream_of_buffer(&self, buffer: BufferIndex) -> usize {
        let worker = self.buffer_of.iter().position(|of_worker| *of_worker == buffer);
        worker.map_or(0, |worker| self.stream_of[worker])
    }
}

/// The state that one flusher shares with the others and the workers.
#[derive(Debug)]
#[repr(align(128))]
pub struct StreamState {
    /// The newest epoch of which all records in this stream are durable.
    sealed: AtomicU64,
    /// Wakes the flusher when it is idle.
    parker: Parker,
    /// Wakes the flusher during its pause between two rounds.
    pause: Parker,
    /// True if a worker has nothing to do but to wait for the next round.
    hurry: AtomicBool,
    /// The time on the real clock from which on the flusher is late, in ticks: it should have gone on by then, and may be
    /// waiting for a processing unit. `u64::MAX` while it waits for nothing.
    late_from: AtomicU64,
    /// True if one of the buffers is filling up, so that the next round begins at once.
    filling: AtomicBool,
    /// The buffers whose records are in this stream.
    buffers: Vec<BufferIndex>,
    /// The epoch before which segments may be removed, since a checkpoint has replaced them.
    remove_before: AtomicU64,
    /// Bytes written, including headers.
    bytes: AtomicU64,
    /// Frames written, each with one sync.
    frames: AtomicU64,
    /// The time on the real clock, in ticks, from which on there may be commits that are not durable; `u64::MAX` if there are none.
    open_from: AtomicU64,
}

/// The state that the workers of a durable database share with its flushers.
#[derive(Debug)]
pub struct Wal {
    /// The current epoch. Read by every commit with changes; written once per sync.
    epoch: Line,
    /// The newest epoch that every stream has sealed.
    durable: Line,
    /// The newest epoch that every stream has to seal, since some stream has records in it.
    wanted: Line,
    /// The state of each stream.
    pub streams: Vec<StreamState>,
    buffers: Vec<CommitBuffer>,
    layout: WalLayout,
    failed: AtomicBool,
    failure: OnceLock<String>,
    /// The last error that did no harm to stored data.
    warning: Mutex<Option<String>>,
    closing: AtomicBool,
    /// The bytes of WAL from which on a checkpoint is due.
    checkpoint_at: AtomicU64,
    /// Notified after each round, for threads that wait for an epoch.
    rounds: (Mutex<()>, Condvar),
    /// The durability for which callers wait.
    pub durability: Durability,
    /// The bounds on memory.
    pub limits: WalLimits,
}

/// A number on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicU64);

impl Wal {
    /// Creates the shared state of a WAL whose first epoch is `first`.
    pub fn new(durability: Durability, first: Epoch, layout: WalLayout, limits: WalLimits) -> Arc<Wal> {
        // The bound is divided among the buffers, so that a commit checks its own buffer only.
        let buffers = layout.buffers();
        let share = limits.buffer_bytes / buffers.max(1);
        let sealed = first.0 - 1;
        let state = |stream: usize| StreamState {
            sealed: AtomicU64::new(sealed),
            parker: Parker::new(),
            pause: Parker::new(),
            hurry: AtomicBool::new(false),
            late_from: AtomicU64::new(u64::MAX),
            filling: AtomicBool::new(false),
            buffers: (0..buffers)
                .map(BufferIndex)
                .filter(|buffer| layout.stream_of_buffer(*buffer) == stream)
                .collect(),
            remove_before: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            frames: AtomicU64::new(0),
            open_from: AtomicU64::new(u64::MAX),
        };
        Arc::new(Wal {
            epoch: Line(AtomicU64::new(first.0)),
            durable: Line(AtomicU64::new(sealed)),
            wanted: Line(AtomicU64::new(0)),
            streams: (0..layout.streams()).map(state).collect(),
            buffers: (0..buffers).map(|_| CommitBuffer::new(share)).collect(),
            layout,
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

    /// Returns true if commits write records.
    #[inline]
    pub fn logs(&self) -> bool {
        self.durability != Durability::None
    }

    /// The buffer of a worker.
    pub(crate) fn buffer_of(&self, worker: WorkerId) -> BufferIndex {
        self.layout.buffer_of[worker.index()]
    }

    /// Appends the record of a transaction that commits now to a buffer, and returns its epoch. If the buffer is full,
    /// returns the epoch of the newest record in it: there is room when that is durable.
    #[inline]
    pub(crate) fn commit(&self, buffer: BufferIndex, changes: &[u8]) -> Result<Epoch, Full> {
        self.append(buffer, changes, false)
    }

    /// Appends a record like [`commit`](Wal::commit), however full the buffer is if it `must`.
    #[inline(always)]
    fn append(&self, buffer: BufferIndex, changes: &[u8], must: bool) -> Result<Epoch, Full> {
        let appended = self.buffers[buffer.0].append(&self.epoch.0, changes, must);
        if !matches!(appended, Ok(Appended { is_filling: false, .. })) {
            self.fills_up(buffer);
        }
        appended.map(|appended| appended.epoch)
    }

    /// Appends the record of a transaction that was decided elsewhere, and cannot be refused any more. Returns its epoch.
    pub(crate) fn commit_decided(&self, buffer: BufferIndex, changes: &[u8]) -> Epoch {
        let appended = self.append(buffer, changes, true);
        appended.unwrap_or_else(|_| unreachable!("a buffer refuses no record that it must take"))
    }

    /// Notifies the flusher of a buffer to begin its next round at once.
    #[cold]
    fn fills_up(&self, buffer: BufferIndex) {
        let stream = &self.streams[self.layout.stream_of_buffer(buffer)];
        stream.filling.store(true, Ordering::SeqCst);
        stream.parker.wake();
        stream.pause.wake();
    }

    /// The current epoch.
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch.0.load(Ordering::Acquire))
    }

    /// The newest durable epoch.
    #[inline]
    pub fn durable(&self) -> Epoch {
        Epoch(self.durable.0.load(Ordering::Acquire))
    }

    /// Advances the epoch: after this returns, every transaction that commits has at least the returned epoch; all that
    /// committed with an older one have their records in a buffer or written.
    pub fn advance(&self) -> Epoch {
        let next = self.epoch.0.fetch_add(1, Ordering::SeqCst) + 1;
        for buffer in &self.buffers {
            buffer.wait_for_commit();
        }
        Epoch(next)
    }

    /// Requests that all records up to `epoch` are made durable.
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

    /// Notifies the flusher of a worker of records in the worker's buffer.
    pub(crate) fn notify_flusher(&self, worker: WorkerId) {
        self.streams[self.layout.stream_of[worker.index()]].parker.wake();
    }

    /// Notifies the flusher of a worker that the worker has nothing to do until the next round is over.
    pub(crate) fn hurry(&self, worker: WorkerId) {
        let stream = &self.streams[self.layout.stream_of[worker.index()]];
        if !stream.hurry.load(Ordering::Relaxed) {
            stream.hurry.store(true, Ordering::SeqCst);
            stream.pause.wake();
        }
    }

    /// Returns true if the flusher of a worker is late.
    #[inline]
    pub(crate) fn is_late(&self, worker: WorkerId, now: Ticks) -> bool {
        now.0 >= self.streams[self.layout.stream_of[worker.index()]].late_from.load(Ordering::Relaxed)
    }

    /// Allows removal of segments that have sealed only epochs before `epoch`.
    pub fn remove_before(&self, epoch: Epoch) {
        for stream in &self.streams {
            stream.remove_before.fetch_max(epoch.0, Ordering::SeqCst);
        }
        self.wake_flushers();
    }

    /// Closes the WAL: the flushers make all records durable and end. No transaction may commit any more.
    pub fn close(&self) {
        // A flusher with nothing to write may not end before its stream has sealed the epochs that others still have to
        // write: an epoch that one stream never seals is never durable. Requested before the closing is visible, so
        // that no flusher sees one without the other.
        let has_records = self.buffers.iter().any(|buffer| !buffer.is_empty());
        if has_records && !planted(Bug::FlusherEndsEarly) {
            self.wanted.0.fetch_max(self.epoch().0, Ordering::SeqCst);
        }
        self.closing.store(true, Ordering::SeqCst);
        self.wake_flushers();
    }

    /// Marks the instance as failed: no record can be made durable any more.
    #[cold]
    pub fn fail(&self, why: String) {
        // The first failure is the cause; later ones are its consequences.
        let _ = self.failure.set(why);
        self.failed.store(true, Ordering::SeqCst);
    }

    /// Returns true if the instance has failed.
    #[inline]
    pub fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// The cause of the failure.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Sets or clears the warning.
    pub fn set_warning(&self, warning: Option<String>) {
        *self.warning.lock().unwrap_or_else(PoisonError::into_inner) = warning;
    }

    /// The last error that did no harm to stored data.
    pub fn warning(&self) -> Option<String> {
        self.warning.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Creates the abort for a transaction that cannot be acknowledged as durable.
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

    /// Creates the abort for a transaction whose record exceeds the bytes that may wait to be written.
    #[cold]
    pub(crate) fn overload(&self) -> Abort {
        Abort::explained(
            AbortReason::Overloaded,
            format!(
                "more is committed than the device of the WAL takes, and the buffer's share of the {} bytes that may wait \
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

    /// Returns the time since which there may be commits that are not durable: all that committed before it are. `None` if no flusher
    /// knows of any. A flusher learns of the first commit after a pause when it wakes up, some microseconds later.
    pub fn lag(&self) -> Option<Duration> {
        let open_from = self.streams.iter().map(|stream| stream.open_from.load(Ordering::Relaxed)).min()?;
        if open_from == u64::MAX {
            return None;
        }
        let clock = Clock::real();
        Some(Duration::from_nanos(clock.ns(clock.now().since(Ticks(open_from)))))
    }

    /// Sets the number of written bytes at which a checkpoint is due.
    pub fn set_checkpoint_at(&self, bytes: u64) {
        self.checkpoint_at.store(bytes, Ordering::Relaxed);
    }

    /// Returns true if a checkpoint is due.
    pub fn is_checkpoint_due(&self) -> bool {
        self.bytes() >= self.checkpoint_at.load(Ordering::Relaxed)
    }

    /// Notifies the threads that wait for an epoch of the end of a round.
    fn show_round(&self) {
        drop(self.rounds.0.lock().unwrap_or_else(PoisonError::into_inner));
        self.rounds.1.notify_all();
    }

    /// Blocks until `epoch` is durable; returns false if it never will be. Workers must not call it.
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
