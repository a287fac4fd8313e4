//! Every store that is compared, one file each.
//!
//! Owns: the list. Never: runs one.

pub mod fjall;
pub mod lmdb;
pub mod map;
pub mod redb;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;
pub mod sqlite;

use crate::peer::PeerKind;

/// Returns every store that was compiled in, in the order of the table.
#[must_use]
pub fn all() -> Vec<PeerKind> {
    vec![
        map::kind(),
        sqlite::kind(),
        redb::kind(),
        fjall::kind(),
        lmdb::kind(),
        #[cfg(feature = "rocksdb")]
        rocksdb::kind(),
    ]
}

/// Returns the version of a crate as the lock file has it.
#[must_use]
pub fn version_of(name: &str) -> &'static str {
    let lock = include_str!("../Cargo.lock");
    let after = lock.split_once(&format!("\nname = \"{name}\"\nversion = \"")).map_or("", |(_, after)| after);
    after.split('"').next().unwrap_or_default()
}
