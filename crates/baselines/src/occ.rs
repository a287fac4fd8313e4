//! `shared-occ`: an engine in which threads share the data and transactions are optimistic, by Silo's protocol (Tu, Zheng,
//! Kohler, Liskov and Madden, *Speedy Transactions in Multicore In-Memory Databases*, SOSP 2013).
//!
//! Owns: the trees, the epoch, and the order in which a commit locks, validates and installs. Never: makes a reader write
//! anything that other threads read, or waits for a lock while a transaction still runs.
//!
//! # Protocol
//! - A read copies the row and keeps the record with its TID (the *read set*). A search that finds nothing, and each leaf of a
//!   scan, keeps the leaf with its version (the *node set*). Changes are kept by the transaction (the *write set*).
//! - An insertion puts a record without a row, unlocked, into the tree at once, which changes the version of its leaf. The
//!   transaction's own node set takes over the new version, and the leaf that a split made, if the old version was the one it
//!   knew; otherwise it aborts. Whoever finds such a record finds no row, and has its TID in his read set. Who
//!   inserts the same key takes the same record; the first to commit wins.
//! - A commit sorts the write set by address and locks it, issues a fence, reads the epoch, and validates that the read set has
//!   the same TIDs, not locked by others, and the node set the same versions. Its TID is in the epoch, and greater than those
//!   of everything it has read or overwrites and than the last one of its client. It installs rows in place, or in a new
//!   record if one has grown too long, takes deleted records out of the tree, and unlocks.
//! - A record that leaves the tree is marked as obsolete for ever, which fails the validation of all who have read it. An abort
//!   takes out the records that it has inserted, unless somebody has committed a row there meanwhile.
//!
//! # Strict serializability
//! A transaction that writes takes effect at the moment when it has its last lock, and one that only reads at the beginning
//! of its validation: everything it has read is as it was at that moment, for a change after the read would fail the
//! validation, and what others lock after it is installed after it. The fence decides between two transactions that write
//! what the other one has read: at least one sees the other's lock, or the version that its insertion has changed. The
//! moments lie within the transactions, whatever their epochs, so the order agrees with time; TIDs of transactions of
//! which one overwrites what the other one has read say nothing about it, nor do their places in a log, which
//! need not (`durable` says why). A transaction that made one single read needs no validation: the read itself is the moment.
//!
//! Before it ends, a transaction may have read rows that were never there together. What it concludes from them is worthless
//! until it has been validated; [`OccClient::run`] validates before it believes an error.
//!
//! # Example
//! ```
//! use atrapos_baselines::occ::OccEngine;
//! use atrapos_baselines::{Intent, RowTransaction};
//! use atrapos_partition::schema::TableId;
//!
//! let engine = OccEngine::new(1);
//! let accounts = TableId(0);
//! engine.load(accounts, [(b"alice", [5]), (b"bobby", [1])])?;
//! // Each thread has a client of its own.
//! let mut client = engine.client();
//! client.run(|tx| {
//!     for (account, change) in [(b"alice", -1), (b"bobby", 1)] {
//!         let row = tx.read(accounts, account, Intent::Write)?.map(|row| [row[0].wrapping_add_signed(change)]);
//!         if let Some(row) = row {
//!             tx.replace(accounts, account, &row)?;
//!         }
//!     }
//!     Ok(())
//! })?;
//! assert_eq!(engine.statistics().commits, 1);
//! # Ok::<(), atrapos_partition::abort::Abort>(())
//! ```
//!
//! # Epochs
//! A thread advances the epoch every [`EPOCH_PERIOD`]; nothing waits for it. Silo holds the epoch back for workers that are two
//! behind, for its log and its snapshots; the log here is a central one, and there are no snapshots. Memory is reclaimed by the collector's own epochs.

#[cfg(not(loom))]
mod branch;
mod client;
mod commit;
mod engine;
mod epoch;
#[cfg(not(loom))]
mod erased;
#[cfg(all(test, loom))]
mod loom_models;
mod scan;
mod sets;
mod statistics;
mod transaction;

pub use client::OccClient;
#[cfg(not(loom))]
pub(crate) use engine::check_lengths;
pub use engine::{MAX_KEY_BYTES, MAX_ROW_BYTES, OccEngine};
pub use epoch::EPOCH_PERIOD;
pub use statistics::{OccMemory, OccStatistics};
pub use transaction::OccTransaction;
