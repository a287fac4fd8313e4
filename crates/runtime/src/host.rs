//! The place in which a thread of workers is pumped when other tasks share that thread, those of sockets for instance.
//!
//! Owns: the interface between the pool and whoever brings such tasks. Never: runs one, or knows what they wait for.
//!
//! A worker that sleeps on a thread of its own is woken by the kernel; so is the thread that hands it a request, when the answer is
//! there. With the tasks that make the requests on the worker's thread there is one sleep for both, in the host, and neither of the two wake-ups.
//!
//! # Invariants
//! - A pump lets the host's tasks run after each round of steps that found work, and returns to the host whenever it has none; a step is
//!   bounded, so a task waits for no more than a round.
//! - A task of the host runs between steps, never within one: a worker is not current then, and no task of it is being polled.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::WorkerId;

/// A future that stays on its thread.
pub type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;

/// Something that polls pumps on the threads of workers, with tasks of its own beside them.
pub trait ThreadHost: Send + Sync + std::fmt::Debug {
    /// Polls the pump of `workers` to its end on the calling thread, which is theirs; or returns at once without having polled it, if it
    /// cannot: the workers then have their thread for themselves. The pump is polled by one task, whose waker stays the same. A
    /// panic of the pump is passed on.
    fn run(&self, workers: &[WorkerId], pump: LocalFuture);

    /// Returns a future that is ready after this time, or somewhat later. It is made and polled inside of a pump.
    fn sleep(&self, time: Duration) -> LocalFuture;
}
