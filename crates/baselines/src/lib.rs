//! Engines in which threads share the data: the designs that partitioned ones are compared with (Islands §3, ATraPos §III).
//!
//! A client's thread runs its own transactions, on any row, and blocks when it has to wait. Both engines run the procedures
//! that partitioned engines run, on the same tables and rows.
//!
//! Owns: the engines. Never: knows a workload, or the type of a row.

pub mod occ;
mod rows;
mod tree;

pub use rows::{Intent, RowTransaction, Visit};
