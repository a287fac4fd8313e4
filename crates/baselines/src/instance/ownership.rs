//! [`Ownership`]: which instance, or which worker of a domain, has a key.
//!
//! Owns: the cuts between the parts of the owners, table by table. Never: changes.

use std::sync::Arc;

use atrapos::WorkerId;
use atrapos_partition::routing::{InstanceId, Scheme};
use atrapos_partition::schema::TableId;
use atrapos_storage::KeyBuf;

/// The division of the keys of all tables among the instances, as all of them see it, or among other owners.
#[derive(Clone, Debug)]
pub struct Ownership<O = InstanceId> {
    tables: Vec<Arc<Parts<O>>>,
}

/// The parts of a table, in key order.
#[derive(Debug)]
struct Parts<O> {
    cuts: Vec<KeyBuf>,
    /// One more than cuts.
    owners: Vec<O>,
}

/// One part of a table: a range of keys of one owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a, O> {
    pub(crate) owner: O,
    /// First key; `None` for the first part.
    pub(crate) lower: Option<&'a [u8]>,
    /// First key behind it; `None` for the last part.
    pub(crate) upper: Option<&'a [u8]>,
}

impl Ownership {
    /// Returns the division that an instance's scheme has for so many tables.
    #[must_use]
    pub fn of_scheme(scheme: &Scheme, own: InstanceId, tables: usize) -> Ownership {
        Ownership::divided(scheme, tables, |worker| InstanceId::of_owner(worker).unwrap_or(own))
    }

    /// Returns a checksum of the division.
    pub(super) fn checksum(&self) -> u32 {
        let mut checksum = crc32fast::Hasher::new();
        for Parts { cuts, owners } in self.tables.iter().map(|parts| &**parts) {
            for cut in cuts {
                checksum.update(&(cut.len() as u32).to_le_bytes());
                checksum.update(cut);
            }
            owners.iter().for_each(|owner| checksum.update(&owner.0.to_le_bytes()));
        }
        checksum.finalize()
    }
}

impl Ownership<WorkerId> {
    /// Returns the division among the workers that a scheme has for so many tables.
    #[must_use]
    pub fn of_workers(scheme: &Scheme, tables: usize) -> Ownership<WorkerId> {
        Ownership::divided(scheme, tables, |worker| worker)
    }
}

impl<O: Copy + PartialEq> Ownership<O> {
    /// Creates the division of tables that are cut in the same way: one more owner than cuts, which ascend.
    #[must_use]
    pub fn uniform(tables: usize, cuts: Vec<KeyBuf>, owners: Vec<O>) -> Ownership<O> {
        assert_eq!(cuts.len() + 1, owners.len(), "every part has one owner");
        let parts = Arc::new(Parts { cuts, owners });
        Ownership { tables: vec![parts; tables] }
    }

    fn divided(scheme: &Scheme, tables: usize, owner_of: impl Fn(WorkerId) -> O) -> Ownership<O> {
        let parts = |table: usize| {
            let family = scheme.family(TableId(table as u16));
            let (mut cuts, mut owners) = (Vec::new(), Vec::new());
            for at in 0..family.partitions() {
                let owner = owner_of(family.owner(at));
                if owners.last() == Some(&owner) {
                    continue;
                }
                cuts.extend(family.lower(at).map(KeyBuf::from));
                owners.push(owner);
            }
            Arc::new(Parts { cuts, owners })
        };
        Ownership { tables: (0..tables).map(parts).collect() }
    }

    /// Returns the owner of a key; `None` if there is no such table.
    #[inline]
    #[must_use]
    pub fn owner(&self, table: TableId, key: &[u8]) -> Option<O> {
        let parts = self.tables.get(table.at())?;
        Some(parts.owners[parts.cuts.partition_point(|cut| **cut <= *key)])
    }

    /// Returns the part that has a key or, `below` it, the keys just before (`None`: the last keys of all).
    pub(crate) fn part(&self, table: TableId, key: Option<&[u8]>, below: bool) -> Option<Part<'_, O>> {
        let parts = self.tables.get(table.at())?;
        let at = match key {
            None => parts.cuts.len(),
            Some(key) if below => parts.cuts.partition_point(|cut| **cut < *key),
            Some(key) => parts.cuts.partition_point(|cut| **cut <= *key),
        };
        Some(Part {
            owner: parts.owners[at],
            lower: at.checked_sub(1).map(|cut| &*parts.cuts[cut]),
            upper: parts.cuts.get(at).map(|cut| &**cut),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_at_a_cut_are_of_the_part_behind_it() {
        let owners = [0, 1, 0].map(InstanceId).to_vec();
        let cuts: Vec<KeyBuf> = vec![(&b"b"[..]).into(), (&b"d"[..]).into()];
        let ownership = Ownership::uniform(1, cuts, owners);
        let table = TableId(0);
        for (key, owner) in [("", 0), ("azz", 0), ("b", 1), ("c", 1), ("d", 0), ("z", 0)] {
            assert_eq!(ownership.owner(table, key.as_bytes()), Some(InstanceId(owner)), "{key}");
        }
        let lower = |key: Option<&[u8]>, below| {
            ownership.part(table, key, below).and_then(|part| part.lower.map(<[u8]>::to_vec))
        };
        assert_eq!(lower(Some(b"d"), true), Some(b"b".to_vec()));
        assert_eq!(lower(Some(b"d"), false), Some(b"d".to_vec()));
        assert_eq!(lower(Some(b"b"), true), None);
        assert_eq!(lower(None, true), Some(b"d".to_vec()));
        assert_eq!(ownership.owner(TableId(1), b""), None);
    }
}
