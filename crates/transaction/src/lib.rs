//! Transactions of the atrapos transaction engine.
//!
//! Owns: the access path ([`tx`]), phases and participants, lock waits and deadlocks, the messages between workers
//! ([`messages`]), procedures ([`procedure`]), and what makes commits durable ([`wal`]). [`shard::Shard`] is the state of one worker.
//! Never: decides where data is, or changes a row other than by an operation of `atrapos-partition`.
//!
//! A crate of the inside: programs use `atrapos`, which exports what is meant for them.

#![forbid(unsafe_code)]
#![allow(rustdoc::private_intra_doc_links, reason = "readers of these documents work on the crate")]

pub mod age;
pub mod branch;
pub mod deadlock;
pub mod dynamic;
pub mod jobs;
pub mod lock_waits;
pub mod lookups;
pub mod messages;
pub mod monitor;
pub mod procedure;
pub mod recording;
pub mod run;
pub mod shard;
pub mod snapshot;
pub mod stats;
pub mod trace;
pub mod tx;
pub mod unfinished;
pub mod waiting;
pub mod wal;
