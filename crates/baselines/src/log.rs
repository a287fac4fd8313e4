//! The central log of the engines with shared data.
//!
//! Owns: the log buffer, the positions of records, the thread that writes them, and the file that they are in. Never: knows what is in a record, or which
//! transaction it belongs to; acknowledges a record that is not durable.
//!
//! # Design
//! As in Aether (Johnson et al., "Aether: A Scalable Approach to Logging", VLDB 2010):
//! - **Insertion** has three steps: reserve, copy, release. Only the first one is under a mutex, for an addition; copying is
//!   decoupled from it. Threads that find the mutex taken do not queue for it: they join a group in a `slot` of the
//!   consolidation array, whose leader reserves for all of them.
//! - **Release** is one store of the record's header into the `ring`. The `daemon` takes complete records in order.
//!   (Aether's threads release in order themselves, and wait for each other or delegate to do so.)
//! - **Flush pipelining**: [`Log::commit`] gives a [`Ticket`] back at once. The thread runs its next transaction and asks later, or
//!   waits. While one round of the daemon is being synced, the next one gathers: groups form by themselves, without a timer.
//! - **Early lock release** is the engine's ([`durable`](crate::durable)): it lets others see the changes after [`Log::commit`] and
//!   before the ticket is durable. A transaction that has written nothing may then have read what is not durable yet; it is
//!   acknowledged with [`Log::ticket_of_everything`].
//!
//! # Failure
//! When a write or a sync fails, nothing is acknowledged any more that was not before: every wait, and every new record, fails with
//! [`AbortReason::NotDurable`], until the log is read back and a new one is started.
//!
//! Invariants: `durable <= reserved <= durable + capacity`; the log is a sequence of records without gaps; `durable`
//! is at the end of a record.

mod daemon;
#[cfg(not(loom))]
pub(crate) mod file;
mod record;
mod ring;
mod sink;
mod slot;

#[cfg(all(test, loom))]
mod loom_models;

use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_runtime::Parker;
use crossbeam_utils::CachePadded;

pub use record::{LogReader, LogRecord};
pub use sink::LogSink;

use crate::planted::inherited;
use record::{Checksum, occupied};
use ring::Ring;
use slot::Slot;

/// The slots of the consolidation array. A few are enough: a group takes all that come while its leader waits.
const SLOTS: usize = 4;
/// The sizes of a buffer.
const BUFFER_BYTES_MIN: usize = 1 << 10;
const BUFFER_BYTES_MAX: usize = 1 << 31;

/// A position in the log: an offset in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

/// The part of the log that has to be durable before a transaction is acknowledged: all up to a position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(Lsn);

impl Ticket {
    /// The position up to which the log has to be durable.
    #[must_use]
    pub fn lsn(self) -> Lsn {
        self.0
    }
}

/// The settings of a log.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// The size of the buffer, made a power of two from 1 KiB to 2 GiB. A record takes at most half of it.
    pub buffer_bytes: usize,
    /// The position of the first record, made a multiple of eight.
    pub first: Lsn,
    /// The time after which the log is written although nobody waits for it; none if it is written when somebody does, and when
    /// the buffer is half full.
    pub flush_every: Option<Duration>,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions { buffer_bytes: 1 << 24, first: Lsn(0), flush_every: None }
    }
}

/// State that the threads that append share with the daemon.
struct Shared {
    ring: Ring,
    /// The position of the next record. Whoever holds it reserves.
    tail: CachePadded<Mutex<u64>>,
    /// A copy of the tail, for who only reads it.
    reserved: CachePadded<AtomicU64>,
    /// Somebody waits for the log up to here. Written by those who append, read by the daemon.
    wanted: CachePadded<AtomicU64>,
    /// Written by the daemon.
    durable: CachePadded<AtomicU64>,
    /// The writes so far. Written by the daemon.
    writes: AtomicU64,
    /// Why the log could not be written.
    failure: OnceLock<String>,
    closing: AtomicBool,
    flush_every: Option<Duration>,
    sleeper: Parker,
    /// Held while `durable` or `failure` is written, so that who waits for `progress` misses nothing.
    changes: Mutex<()>,
    progress: Condvar,
    slots: [Slot; SLOTS],
    /// Held by the leader of a slot's group until it has published its position, so that members can sleep. They must not wait
    /// for the tail: its holder may wait for room, and so for a record that a member has yet to copy.
    leading: [CachePadded<Mutex<()>>; SLOTS],
}

/// A central log. Threads share it; the last owner closes it.
pub struct Log {
    shared: Arc<Shared>,
    daemon: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("durable", &self.durable()).finish_non_exhaustive()
    }
}

/// Locks a mutex whose holders leave its data whole at each point where they could unwind.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn set_durable(&self, to: u64) {
        let _changes = lock(&self.changes);
        self.durable.store(to, Ordering::Release);
        self.progress.notify_all();
    }

    fn fail(&self, error: &io::Error) {
        let _changes = lock(&self.changes);
        // Only the daemon fails, and once.
        let _ = self.failure.set(error.to_string());
        self.progress.notify_all();
    }

    /// Fails if the log could not be written.
    #[inline]
    fn check(&self) -> Result<(), Abort> {
        match self.failure.get() {
            None => Ok(()),
            Some(why) => Err(not_durable(why)),
        }
    }

    /// Has the daemon write the log up to a position as soon as it can.
    fn want(&self, to: u64) {
        self.wanted.fetch_max(to, Ordering::Relaxed);
        self.sleeper.wake();
    }

    /// Sleeps until the log is durable up to a position.
    fn wait_for(&self, position: u64) -> Result<(), Abort> {
        let mut changes = lock(&self.changes);
        while self.durable.load(Ordering::Acquire) < position {
            self.check()?;
            changes = self.progress.wait(changes).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// Reserves `bytes` bytes for the holder of the tail, who waits until there is room.
    fn reserve(&self, mut tail: MutexGuard<'_, u64>, bytes: u64) -> Result<u64, Abort> {
        let position = *tail;
        let end = position + bytes;
        let capacity = self.ring.capacity();
        let durable = self.durable.load(Ordering::Acquire);
        if end > durable + capacity / 2 {
            // The daemon works ahead of a full buffer.
            self.want(position);
            if end > durable + capacity {
                self.wait_for(end - capacity)?;
            }
        }
        *tail = end;
        self.reserved.store(end, Ordering::Release);
        Ok(position)
    }

    /// Reserves together with other threads that have found the tail taken.
    #[cold]
    #[inline(never)]
    fn reserve_in_group(&self, bytes: u64) -> Result<u64, Abort> {
        let first = slot_of_thread();
        for at in first..first + SLOTS {
            let (slot, leading) = (&self.slots[at % SLOTS], &self.leading[at % SLOTS]);
            let Some(joined) = slot.join(bytes, self.ring.capacity() / 2) else { continue };
            if !joined.leads {
                let base = slot.base(|| {
                    drop(lock(leading));
                    // If that was at once, the leader has not come so far.
                    std::thread::yield_now();
                });
                // Only a failure of the log keeps the leader from reserving.
                let failed = || not_durable(self.failure.get().map_or("", String::as_str));
                return base.map(|base| base + joined.offset).ok_or_else(failed);
            }
            let _leading = lock(leading);
            let tail = lock(&self.tail);
            let base = self.reserve(tail, slot.close());
            slot.publish(base.as_ref().ok().copied());
            return base;
        }
        self.reserve(lock(&self.tail), bytes)
    }
}

/// The slot at which this thread looks first: threads are spread over them.
fn slot_of_thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SLOT: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    if SLOT.get() == usize::MAX {
        SLOT.set(THREADS.fetch_add(1, Ordering::Relaxed) % SLOTS);
    }
    SLOT.get()
}

/// A reserved place in the log, which holds up everything behind it until it is filled.
#[must_use = "nothing behind the place becomes durable until it is filled"]
#[derive(Debug)]
#[doc(hidden)]
pub struct Reserved {
    position: u64,
    length: u32,
}

impl Log {
    /// Starts a log that is written to a sink.
    ///
    /// # Errors
    /// Fails if the daemon's thread cannot be started.
    pub fn start(mut sink: impl LogSink, options: LogOptions) -> io::Result<Log> {
        let bytes = options.buffer_bytes.clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX).next_power_of_two();
        let first = options.first.0.next_multiple_of(8);
        let shared = Arc::new(Shared {
            ring: Ring::new(bytes),
            tail: CachePadded::new(Mutex::new(first)),
            reserved: CachePadded::new(AtomicU64::new(first)),
            wanted: CachePadded::new(AtomicU64::new(first)),
            durable: CachePadded::new(AtomicU64::new(first)),
            writes: AtomicU64::new(0),
            failure: OnceLock::new(),
            closing: AtomicBool::new(false),
            flush_every: options.flush_every,
            sleeper: Parker::new(),
            changes: Mutex::new(()),
            progress: Condvar::new(),
            slots: std::array::from_fn(|_| Slot::default()),
            leading: std::array::from_fn(|_| CachePadded::new(Mutex::new(()))),
        });
        let of_daemon = Arc::clone(&shared);
        let run = inherited(move || {
            // A sink that panics has failed, and nobody may wait for it.
            let run = AssertUnwindSafe(|| daemon::run(&of_daemon, &mut sink));
            if catch_unwind(run).is_err() {
                of_daemon.fail(&io::Error::other("the sink panicked"));
            }
        });
        let daemon = std::thread::Builder::new().name("log".to_owned()).spawn(run)?;
        Ok(Log { shared, daemon: Some(daemon) })
    }

    /// Appends a record that nobody waits for by itself: it becomes durable with a later commit at the latest. Returns
    /// its position. Waits only if the buffer is full.
    ///
    /// # Errors
    /// Fails if the record is empty or longer than half of the buffer, or if the log could not be written.
    pub fn append(&self, record: &[u8]) -> Result<Lsn, Abort> {
        let checksum = Checksum::of(record);
        let reserved = self.reserve(record.len())?;
        let position = reserved.position;
        self.copy(reserved, record, checksum);
        fence(Ordering::SeqCst);
        if self.shared.wanted.load(Ordering::Relaxed) > position {
            // Somebody waits for what is behind this record: the daemon may have stopped in front of it.
            self.shared.sleeper.wake_after_fence();
        }
        Ok(Lsn(position))
    }

    /// Appends the last record of a transaction, and has the log written. The transaction is durable when its ticket is.
    ///
    /// # Errors
    /// Fails as [`append`](Self::append) does.
    pub fn commit(&self, record: &[u8]) -> Result<Ticket, Abort> {
        let checksum = Checksum::of(record);
        let reserved = self.reserve(record.len())?;
        let end = reserved.position + occupied(reserved.length);
        self.copy(reserved, record, checksum);
        self.shared.want(end);
        Ok(Ticket(Lsn(end)))
    }

    /// The ticket of everything that has been appended so far: for a transaction that has only read.
    #[must_use]
    pub fn ticket_of_everything(&self) -> Ticket {
        Ticket(Lsn(self.shared.reserved.load(Ordering::Acquire)))
    }

    /// Returns true if what the ticket stands for is durable.
    ///
    /// # Errors
    /// Fails if it will not be, because the log could not be written.
    #[inline]
    pub fn is_durable(&self, ticket: Ticket) -> Result<bool, Abort> {
        if self.shared.durable.load(Ordering::Acquire) >= ticket.0.0 {
            return Ok(true);
        }
        // What became durable just before the failure is.
        match self.shared.check() {
            Err(_) if self.durable() >= ticket.0 => Ok(true),
            result => result.map(|()| false),
        }
    }

    /// Waits until what the ticket stands for is durable.
    ///
    /// # Errors
    /// Fails if it will not be, because the log could not be written.
    pub fn wait(&self, ticket: Ticket) -> Result<(), Abort> {
        if self.is_durable(ticket)? {
            return Ok(());
        }
        self.shared.want(ticket.0.0);
        self.shared.wait_for(ticket.0.0)
    }

    /// The position up to which the log is durable.
    #[must_use]
    pub fn durable(&self) -> Lsn {
        Lsn(self.shared.durable.load(Ordering::Acquire))
    }

    /// The number of writes so far, each of which has made all records durable that had come until then.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.shared.writes.load(Ordering::Relaxed)
    }

    /// Writes what has been appended, and ends the daemon.
    ///
    /// # Errors
    /// Fails if the log could not be written.
    pub fn close(mut self) -> Result<(), Abort> {
        self.stop();
        self.shared.check()
    }

    fn stop(&mut self) {
        self.shared.closing.store(true, Ordering::Release);
        self.shared.sleeper.wake();
        if let Some(daemon) = self.daemon.take() {
            // Its panics are caught in the thread.
            let _ = daemon.join();
        }
    }

    /// Reserves the place of a record. For tests, which fill it later.
    ///
    /// # Errors
    /// Fails as [`append`](Self::append) does.
    #[inline]
    #[doc(hidden)]
    pub fn reserve(&self, length: usize) -> Result<Reserved, Abort> {
        let shared = &*self.shared;
        let length_max = shared.ring.capacity() / 2 - record::HEADER_BYTES;
        if length == 0 || length as u64 > length_max {
            return Err(refused(length, length_max));
        }
        shared.check()?;
        #[expect(clippy::cast_possible_truncation, reason = "half of a buffer has at most 2^30 bytes")]
        let length = length as u32;
        let position = match shared.tail.try_lock() {
            Ok(tail) => shared.reserve(tail, occupied(length)),
            Err(TryLockError::Poisoned(tail)) => shared.reserve(tail.into_inner(), occupied(length)),
            Err(TryLockError::WouldBlock) => shared.reserve_in_group(occupied(length)),
        }?;
        Ok(Reserved { position, length })
    }

    /// Fills a reserved place.
    #[doc(hidden)]
    pub fn fill(&self, reserved: Reserved, record: &[u8]) {
        assert_eq!(record.len(), reserved.length as usize, "a place is filled with what it was reserved for");
        self.copy(reserved, record, Checksum::of(record));
        self.shared.sleeper.wake();
    }

    /// Copies a record to its place and completes it.
    #[inline]
    fn copy(&self, reserved: Reserved, record: &[u8], checksum: Checksum) {
        let Reserved { position, length } = reserved;
        // SAFETY: the place was reserved for this record, by whose length it is as long.
        unsafe { self.shared.ring.copy(position + record::HEADER_BYTES, record) };
        self.shared.ring.complete(position, checksum.header(position, length));
    }
}

#[cold]
fn not_durable(why: &str) -> Abort {
    Abort::explained(
        AbortReason::NotDurable,
        format!(
            "the log could not be written ({why}); whether the transaction survives is known when the database has been \
             opened again"
        ),
    )
}

#[cold]
fn refused(length: usize, length_max: u64) -> Abort {
    if length == 0 {
        return Abort::because(AbortReason::Misuse, "a record of the log has at least one byte");
    }
    Abort::explained(
        AbortReason::TransactionTooLarge,
        format!(
            "a record of {length} bytes does not fit the log's buffer, which takes at most {length_max}; enlarge it"
        ),
    )
}

impl Drop for Log {
    fn drop(&mut self) {
        self.stop();
    }
}
