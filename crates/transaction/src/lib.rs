//! Transactions of the atrapos transaction engine.
//!
//! Owns: the interface of transactions to procedures ([`transaction`]), the access path ([`tx`]), phases and participants, lock waits and deadlocks, the messages between workers
//! ([`messages`]), transactions over several instances of a deployment ([`distributed`]), procedures ([`procedure`]) and those with a name ([`stored`]), and the durability of commits ([`wal`]). [`shard::Shard`] is the state
//! of one worker. Never: decides the placement of data, or changes a row other than by an operation of
//! `atrapos-partition`.
//!
//! An internal crate: programs use `atrapos`, which exports the public interface.

#![forbid(unsafe_code)]
#![allow(rustdoc::private_intra_doc_links, reason = "readers of these documents work on the crate")]

pub mod activity;
pub mod admission;
pub mod age;
pub mod branch;
pub mod central;
pub mod deadlock;
pub mod distributed;
pub mod dynamic;
pub mod jobs;
pub mod lending;
pub mod lock_waits;
pub mod lookups;
pub mod messages;
pub mod monitor;
pub mod procedure;
pub mod recording;
pub mod run;
pub mod sent;
pub mod session;
pub mod shard;
pub mod snapshot;
pub mod stats;
pub mod stored;
pub mod trace;
pub mod transaction;
pub mod tx;
pub mod unfinished;
pub mod upcoming;
pub mod waiting;
pub mod wal;
