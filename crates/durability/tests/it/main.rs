//! The integration tests of the crate, as one binary.

mod backup;
mod directory;
mod parts;
mod pinned;
mod support;
mod wal;
