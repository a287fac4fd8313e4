//! Histories of transactions as their clients saw them, and the proof that there is an order in which they could have run one
//! after the other (Adya, Liskov and O'Neil 2000; Adya 1999, chapter 4).
//!
//! A client writes down what it is about to do and what came of it ([`Entry`]); the entries of all clients make a
//! [`History`]. Two checks look at it:
//!
//! - [`History::check`], our own: of rows whose every version has a number of its own and says which one it replaced. It covers
//!   what was *not* there: reads by a predicate, a range of keys or a value of an index.
//! - [`History::check_lists`]: of lists to which numbers are appended, by the crate `adya`, which shares no line with the
//!   first.
//!
//! Both take the order in time into account: a transaction that began after another one had ended comes after it (strict
//! serializability). Aborted transactions must leave no trace; those whose outcome nobody was told (the process was killed)
//! may have happened or not.
//!
//! [`KeyHistory`] is of something smaller: operations on single keys of a map that threads share, and whether each took effect at once.
//!
//! Owns: the format and the checks. Never: knows the engine, runs a transaction, reads a clock or a file.

#![forbid(unsafe_code)]

mod anomaly;
mod check;
mod entry;
mod graph;
mod keys;
mod lists;
mod versions;

pub use anomaly::Anomaly;
pub use check::Report;
pub use entry::{Entry, Event, Found, History, Outcome, Predicate, Transaction};
pub use keys::{KeyEvent, KeyHistory, KeyOperation, NotLinearizable};
pub use lists::ListReport;
