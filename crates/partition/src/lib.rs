//! Partitions of the atrapos transaction engine: what a worker owns of tables and indexes, and all that can be done to it.
//!
//! Owns: trees, locks and versions of key ranges ([`Partition`](partition::Partition)), which are changed here and nowhere else; the schema as workers know it
//! ([`schema`]); which partition a key belongs to ([`routing`]); the operations on rows ([`action`]), with what they leave
//! behind: before-images ([`undo`]), redo ([`redo`]), further operations that must follow. Never: waits, sends a message, or knows of
//! transactions beyond the number that locks are held by.
//!
//! A crate of the inside: programs use `atrapos`, which exports what is meant for them.

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
pub mod routing;
pub mod schema;
pub mod undo;
