//! Scans, leaf by leaf, in both directions.
//!
//! Owns: the way from one leaf to the next: a descent to its bound. Never: follows a record.

use crossbeam_epoch::Guard;

use super::node::{NodeRef, Restart};
use super::record::Header;
use super::{Target, Tree};

/// Finds of a scan in one leaf, besides the records.
pub(crate) struct Page<'g> {
    /// The leaf.
    pub(crate) leaf: NodeRef<'g>,
    /// Its version.
    pub(crate) version: u64,
    /// The bound of the leaf at which the scan goes on; none at the end of the tree.
    pub(crate) edge: Option<&'g [u8]>,
}

impl Tree {
    /// Finds the leaf of a key. `records` becomes its records from that key on, in the order of the keys; the scan goes on at
    /// the edge.
    pub(crate) fn page_from<'g>(
        &self,
        from: &[u8],
        records: &mut Vec<*mut Header>,
        guard: &'g Guard,
    ) -> Page<'g> {
        loop {
            if let Ok(page) = self.try_page_from(from, records, guard) {
                return page;
            }
        }
    }

    fn try_page_from<'g>(
        &self,
        from: &[u8],
        records: &mut Vec<*mut Header>,
        guard: &'g Guard,
    ) -> Result<Page<'g>, Restart> {
        let (leaf, version) = self.descend(Target::At(from), guard)?;
        let (at, _) = leaf.find_in_leaf(from, version)?;
        records.clear();
        leaf.copy_records(at..leaf.count().max(at), records);
        let (_, edge) = leaf.bounds(version)?;
        Ok(Page { leaf, version, edge })
    }

    /// Finds the leaf of the keys just below `to`, or the last one. `records` becomes its records below `to`, in the opposite
    /// order of the keys; the scan goes on below the edge.
    pub(crate) fn page_before<'g>(
        &self,
        to: Option<&[u8]>,
        records: &mut Vec<*mut Header>,
        guard: &'g Guard,
    ) -> Page<'g> {
        loop {
            if let Ok(page) = self.try_page_before(to, records, guard) {
                return page;
            }
        }
    }

    fn try_page_before<'g>(
        &self,
        to: Option<&[u8]>,
        records: &mut Vec<*mut Header>,
        guard: &'g Guard,
    ) -> Result<Page<'g>, Restart> {
        let (leaf, version) = self.descend(to.map_or(Target::Last, Target::Before), guard)?;
        let end = match to {
            Some(to) => leaf.find_in_leaf(to, version)?.0,
            None => leaf.count(),
        };
        records.clear();
        leaf.copy_records((0..end).rev(), records);
        let (edge, _) = leaf.bounds(version)?;
        Ok(Page { leaf, version, edge })
    }
}
