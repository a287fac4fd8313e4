//! Recording mode: the static information that several recorded runs of a transaction class give together (`ATraPos §V-A`,
//! `thesis §4.3.1`).
//!
//! Owns: folding recorded runs ([`RecordedRun`](atrapos_transaction::recording::RecordedRun)) into a flow graph ([`ClassRecording`], in `class`). Never:
//! records; a transaction notes its accesses itself (`atrapos_transaction::recording`).

mod class;
mod fields;

pub use class::{ClassRecording, RecordedAction, RecordedFlow};
