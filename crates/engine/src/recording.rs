//! Recording mode: static information about a transaction class, derived from several recorded runs (`ATraPos §V-A`,
//! `thesis §4.3.1`).
//!
//! Owns: folding recorded runs ([`RecordedRun`](atrapos_transaction::recording::RecordedRun)) into a flow graph
//! ([`ClassRecording`], in `class`). Never: records; a transaction notes its accesses itself
//! (`atrapos_transaction::recording`).

mod class;
mod fields;

pub use class::{ClassRecording, RecordedAction, RecordedFlow};
