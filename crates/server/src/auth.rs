//! Authentication of clients.
//!
//! Owns: SCRAM-SHA-256, and what passwords may be. Never: keeps a password, or waits. Verifiers are kept with the roles, by the SQL crate.

pub(crate) mod passwords;
pub(crate) mod scram;
