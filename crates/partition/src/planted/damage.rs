//! Damage to a partition at rest, which a verification has to report. Only in builds with debug assertions.

use atrapos_storage::KeyBuf;
use atrapos_storage::lock::{LockMode, LockTarget, TxnId};

use crate::partition::{PartitionId, Tables};

/// One kind of damage to a database at rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The first row (or index entry) of the worker's part of a tree is missing.
    FirstGone,
    /// The first index entry leads to a wrong key.
    FirstAstray,
    /// There is a surplus index entry (or row) after the first one.
    OneTooMany,
    /// A row lies at the end of a partition to which its key does not belong.
    Misplaced,
    /// A lock is held by a transaction that does not exist.
    LockLeft,
}

/// Damages a partition. Returns true if there was anything to damage.
pub fn damage_partition(tables: &mut Tables, place: PartitionId, damage: Damage) -> bool {
    let partition = tables.partition_mut(place);
    let version = partition.next_version();
    let Some(first) = partition.tree.first_key() else { return false };
    let row = partition.tree.get(&first).map(|row| row.bytes.to_vec()).unwrap_or_default();
    match damage {
        Damage::FirstGone => partition.tree.remove(&first),
        Damage::FirstAstray => {
            let mut other = row;
            if let Some(byte) = other.last_mut() {
                *byte ^= 1;
            }
            partition.tree.update(&first, &other, version).unwrap_or(false)
        }
        Damage::OneTooMany => {
            let mut key = first.to_vec();
            // Changes the last byte of a leading integer, or of the whole key.
            if let Some(at) = key.len().min(8).checked_sub(1) {
                key[at] = key[at].wrapping_add(1);
            }
            partition.tree.insert(&key, &row, version).is_ok()
        }
        Damage::Misplaced => partition.tree.insert(&KeyBuf::from_slice(&[0xff; 8]), &row, version).is_ok(),
        Damage::LockLeft => {
            partition.locks.enter(TxnId(u64::MAX), &LockTarget::Key(first), LockMode::Exclusive)
        }
    }
}
