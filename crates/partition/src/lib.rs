//! Partitions of the atrapos transaction engine: the parts of tables and indexes that a worker owns, and all operations
//! on them.
//!
//! Owns: trees, locks and versions of key ranges ([`Partition`](partition::Partition)), which are changed here and
//! nowhere else; the schema as workers know it ([`schema`]); the mapping of keys to partitions ([`routing`]); the
//! operations on rows ([`action`]), with the before-images ([`undo`]), the redo ([`redo`]) and the dependent operations
//! that they produce. Never: waits, sends a message, or knows more of a transaction than its number, under which it
//! holds locks.
//!
//! An internal crate: programs use `atrapos`, which exports the public interface.

#![forbid(unsafe_code)]
#![allow(rustdoc::private_intra_doc_links, reason = "readers of these documents work on the crate")]

pub mod abort;
pub mod action;
pub mod dynamic;
pub mod either;
pub mod monitor;
pub mod panic_guard;
pub mod partition;
pub mod planted;
pub mod range;
pub mod redo;
pub mod reused;
pub mod routing;
pub mod schema;
pub mod undo;
