//! Authentication of clients.
//!
//! Owns: SCRAM-SHA-256, the users of a directory and their verifiers. Never: keeps a password, or waits.

pub(crate) mod scram;
pub(crate) mod users;
