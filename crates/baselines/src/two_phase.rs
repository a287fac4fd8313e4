//! `shared-2pl`: an engine in which threads share the data and transactions lock what they access until they end, in one central
//! lock manager ([`lock`](crate::lock)).
//!
//! Owns: the trees, the order of locks and changes, and the undo of a transaction. Never: lets a transaction see a row that
//! another one has changed and not committed.
//!
//! # Protocol
//! Strict two-phase locking of keys and of the gaps between them, as the table of the lock manager
//! says. Rows are changed in place, when they are locked; an undo log has what they were.
//!
//! - *Who names a gap may come and go.* A gap is named by the key above it, which is found without a lock. So after each lock on it
//!   the transaction looks again for the next key, and locks that one too if it is another; an insertion looks once more when its
//!   record is in the tree, for another one may have divided the gap in between. From then on scans find the record, and
//!   wait for its lock. Other insertions, which may take it for their next key, must not pass before that last look either: an
//!   insertion has the gap below its key for itself.
//! - *A removed row stays in the tree as a record without a row* until its transaction commits, so that scans wait for the lock of its key. The
//!   commit takes it out of the tree before it releases the lock.
//! - *A key that was found absent is locked itself*, and no gap. Insertions lock the key that they insert before they look for it, so it
//!   stays absent.
//!
//! Deadlocks are found when a transaction begins to wait; the youngest of the cycle is aborted. An attempt of a transaction that is made
//! again is as old as the first.
//!
//! For loads that only read, locks can be left out ([`LockingEngine::without_locks`]): nothing changes then, and a
//! transaction that wants to change something is aborted.
//!
//! One thread that runs all transactions latches nothing ([`OneThreadEngine`]): locks are taken as always.
//!
//! # Strict serializability
//! A transaction takes effect at any moment between its last lock and its first release, which is within its time.
//!
//! # Invariants
//! - A record without a row that is in a tree is locked, in the mode that writes, by the transaction that has removed the row.
//! - A record that has left its tree is marked as obsolete before its key is unlocked.

mod client;
mod engine;
mod erased;
mod one_thread;
mod reader;
mod scan;
mod transaction;
mod undo;

pub use client::LockingClient;
pub use engine::LockingEngine;
pub use one_thread::OneThreadEngine;
pub use transaction::LockingTransaction;
