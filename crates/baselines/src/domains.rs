//! `domains`: an engine whose tables are structures in virtual domains ("Robust Performance of Main Memory Data Structures by Configuration",
//! SIGMOD 2020), with transactions that are isolated, which the paper leaves out.
//!
//! Owns: how a transaction is made of tasks, and its locks. Never: runs a structure; the workers of domains do. Never: writes a log.
//!
//! # How it works
//! - *A domain has one worker*, which owns a part of every table ([`Part`](part::Part)): an index, which is any structure with one owner and keys
//!   that are byte strings ([`TableStructure`]), the rows, and a lock table. Nothing in it is latched.
//! - *A client is a thread*. Each operation is a task for the worker that has the key, and waits for the answer; only encoded keys and rows travel.
//! - *Strict two-phase locking*, by the lock table that partitions have: a task locks its key, present or absent, or the range that it has scanned,
//!   before it looks. All locks are kept until the client has ended the transaction at every worker. Rows are changed in place; what they were is kept.
//! - *Nobody waits inside a worker*. A task whose lock conflicts queues its request there and is answered; the client comes again until the request is
//!   granted.
//! - *Deadlocks are prevented by age*: whoever would wait for an older transaction aborts, and tries again as old as it is. This is looked at whenever a
//!   client comes again, since a request may have come to stand before it meanwhile. So a cycle, in which somebody waits for an older one, does not last;
//!   and the oldest never aborts.
//!
//! # Strict serializability
//! A transaction takes effect at any moment between its last lock and the first of its ends at a worker, when it holds all of its locks. It ends nowhere
//! before its last operation was answered.
//!
//! # What does not fit
//! - A structure without an order has no ranges: scans are refused. Structures scan upward only, so a scan backward reads and locks its whole range.
//! - The operations of a phase are tasks one after the other: a procedure sees operations of rows, not bursts.
//! - There is no log: nothing is durable.

mod client;
mod engine;
mod part;
mod table;
mod transaction;

pub use engine::{DomainsEngine, DomainsEngineOptions};
pub use table::{NoTableStructure, TableStructure};
