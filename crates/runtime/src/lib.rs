//! The runtime of `atrapos`: workers, the messages between them, the tasks they poll, and the clock they read.
//!
//! Owns: threads, pinning, the rings and inboxes between threads, the task slab, timers, clocks and seeded generators.
//! It hosts one value of a [`Shard`] type per worker and knows nothing else of the layer above: no trees, no
//! transactions, no files, no network.
//!
//! This crate is the workspace's quarantine for `unsafe`: every unsafe block of the engine outside named files of the
//! storage crate is here, and each file says in its heading why its unsafe code is sound.
//!
//! # The shape
//! A [`Worker`] is a state machine, and whatever calls its step function is only its pump: a pinned thread per worker, or one
//! that steps several in turn where workers outnumber processing units ([`RuntimeBuilder`]), or one thread that steps all
//! workers in a pseudo-random order from a seed ([`Pump`]). A step
//! drains a bounded batch from the rings, the control lane and the inbox, polls ready tasks, does a slice of the shard's
//! background work and publishes what it sent; it never blocks. Between each ordered pair of workers lies one single-producer
//! single-consumer [`ring`] that carries closures inline. Threads outside the runtime hand closures over through a
//! [`Handle`] and get their answers through a [`oneshot`].
//!
//! # Invariants
//! - A task that never sends executes no atomic read-modify-write and touches no cache line that another worker
//!   writes.
//! - Nothing here is unbounded: rings, inboxes and steps have limits. What spills over from a full ring waits in a
//!   local queue, and admission of new work stops while that queue is not empty.
//! - What the layer above asks on its own behalf (the control lane) waits for a step, never for what clients have begun.
//! - A panic that reaches a worker's thread is a bug of the engine: the process stops with one message.

pub mod affinity;
pub mod clock;
pub mod measure;
pub mod memory;
pub mod oneshot;
pub mod ring;
pub mod rng;
pub mod slice;
pub mod stats;

mod call;
mod current;
mod handle;
mod host;
mod inbox;
mod incoming;
mod outgoing;
mod park;
mod planted;
mod pool;
mod prefetch;
mod published;
mod pump;
mod shared;
mod sync;
mod task;
mod timer;
mod waker;
mod worker;

#[cfg(all(test, loom))]
mod loom_models;

pub use call::{Call, Lost, Reply};
pub use clock::{Clock, Ticks};
pub use handle::{Handle, SubmitError};
pub use host::{LocalFuture, ThreadHost};
pub use park::Parker;
pub use pool::{Runtime, RuntimeBuilder, ShutdownReport, StartError};
pub use prefetch::{prefetch_line, prefetch_to_write};
pub use published::{Published, Snapshot};
pub use pump::Pump;
pub use stats::{Counter, WorkerSnapshot, WorkerStats};
pub use task::{INLINE_TASK_BYTES, TaskId, YieldNow};
pub use timer::Sleep;
pub use worker::{Limits, Shard, Worker};

/// Names one worker of a runtime: a dense number from 0, the same in every list that is indexed by worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u16);

impl WorkerId {
    /// The worker's position in any list that has one entry per worker.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl std::fmt::Display for WorkerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "w{}", self.0)
    }
}
