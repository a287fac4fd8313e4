//! The files of a database: their formats, writing and reading.
//!
//! Owns the file layer ([`mod@file`]), the format of WAL streams ([`wal`]), of checkpoint files ([`checkpoint`]) and of
//! the database directory ([`directory`]). It knows bytes, files and checksums: no workers, no trees, no transactions.
//! It starts no threads and reads no clock.

pub mod backup;
pub mod checkpoint;
pub mod directory;
pub mod file;
pub mod manifest;
pub mod memo;

pub mod verify;
pub mod wal;
