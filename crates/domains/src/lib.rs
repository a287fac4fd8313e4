//! Virtual domains: data structures run by the workers they are given.
//!
//! A *domain* is a set of workers, a memory policy and an inbox. A *structure* (a map, a tree, a counter) lives in one
//! domain, and only that domain's workers touch it. A *client* delegates *tasks*, closures that get the structure, and
//! gets futures of their results. So a structure needs no more synchronization than its own domain has workers: with one
//! worker none at all. It follows "Robust Performance of Main Memory Data Structures by Configuration" (SIGMOD 2020,
//! *Virtual domains* below), with inboxes after FFWD (SOSP 2017).
//!
//! ```
//! use atrapos_domains::{Configuration, Domains};
//! use atrapos_topology::{LiveOptions, Machine};
//!
//! let machine = Machine::live(&LiveOptions::new(None));
//! let domains = Domains::start(&machine, &Configuration::one_worker_each(&["counters"]))?;
//! let hits = domains.at("counters")?.place_owned("hits", 0_u64)?;
//! let mut client = domains.client();
//! let now = client.call_blocking(&hits, |hits| {
//!     *hits += 1;
//!     *hits
//! })?;
//! assert_eq!(now, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The shape
//! - `inbox`: an inbox is the union of its workers' *buffers*; a buffer is an array of slots, a pair of cache lines apart, and for each
//!   fifteen slots one line pair of replies. A worker's thread makes its buffer, so it lies on its node. A client leases a *ring*: consecutive slots of one buffer, used in order.
//! - `task`: a request in its slot: a table of functions for its type, the keys of its structures, and the closure.
//! - `structures`: the structures that a worker can reach, by key; the registry of all; the handles that name them.
//! - `worker`: a state machine whose `step` serves every ring; a thread per worker pumps it, or one thread pumps all of
//!   them from a seed ([`Pump`]).
//! - `client`, `burst`: the ways to delegate: calls, bulks (several tasks as one), bursts (many under way).
//! - `domains`, `change`: what exists, and its changes while clients go on.
//! - `waits`: who waits inside a task for what, so that no cycle closes.
//!
//! # Invariants
//! - *One writer per word.* The words of a slot are written by the client that leases it, until its toggle bit differs from
//!   the slot's bit in the reply line; then by the worker, until the bits are equal again. Between them there is no atomic
//!   read-modify-write, nor a fence on processors where a release store is a plain one. A future besides counts the users of its ring,
//!   and leaves a waker if it is polled before its answer is there; bursts, and calls that block, do neither.
//! - *Order.* Submitting happens before running, running before the result. A worker serves a ring in its order and never goes past
//!   a task that it passed on to another worker; so tasks of one ring are first in, first out. An ordered client goes to
//!   another ring only when nothing of the old one is under way; so its tasks on one structure are, over every change.
//! - *No lost wake-up without a fence on the fast side.* A worker that wants to sleep raises its flag, makes every other thread of
//!   the process pass a fence (`barrier`), looks once more, and only then sleeps.
//! - *A structure is reached by its domain alone.* An owned one lies with one worker, whose closures get `&mut`; it moves as
//!   a message. A shared one is `Sync`.
//! - *What is submitted is answered*: with the result, or with a [`TaskError`] that says why there is none.
//! - *Waiting inside a task ends.* Calls that block, [`Pending::wait`], bursts and [`Change::wait`] are refused where they would wait for their own
//!   worker, over others too, and however structures move meanwhile. So are futures that a task polls, as with an executor of its own: whether it
//!   goes on without the answer cannot be known, so from a poll that finds nothing it counts as waiting until it ends, or the future does. What is
//!   not seen is a task that waits by other means for another thread, which waits for its worker: over a channel, by joining that thread, or on an
//!   executor whose other threads poll.

mod barrier;
mod block;
mod burst;
mod change;
mod chunk;
mod client;
mod configuration;
mod domains;
mod inbox;
#[cfg(all(test, loom))]
mod loom_models;
mod operation;
mod planted;
mod polled;
mod pump;
mod ring;
mod structures;
mod sync;
mod task;
mod waits;
mod worker;

pub use burst::{BURST_DEFAULT, BURST_MAX, BURST_SLOTS, Burst};
pub use change::Change;
pub use chunk::Results;
pub use client::{CallError, Cancelled, Client, Pending, Refused, WINDOW_DEFAULT, Why};
pub use configuration::{
    Configuration, ConfigurationError, DomainConfiguration, MemoryPolicy, Placement, SLOTS_DEFAULT,
    SLOTS_MAX, StructureLoad,
};
pub use domains::{DomainError, DomainReport, Domains, ShutdownReport, Site, StructureReport, WorkerReport};
pub use operation::{GROUP_MAX, Group, Operation};
pub use pump::Pump;
pub use structures::{Key, Owned, Reach, Retries, Route, Sessioned, Sessions, Shared, Structure, Target};
pub use task::{Panic, TaskError};
