//! Loads of `atrapos` whose outcome proves its promises, and the checks that decide.
//!
//! - [`torture`]: the load of a process that is killed again and again, and the checks after each restart.
//! - [`histories`]: random transactions that record what they read and wrote, for a proof of their isolation.
//!
//! Owns: the clients, their schemas, and the checks. Never: measures, kills a process, keeps files, prints, or reads the
//! command line.

#![forbid(unsafe_code)]

pub mod histories;
pub mod torture;
