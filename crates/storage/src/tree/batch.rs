//! Looking up many keys at once.
//!
//! Owns the interleaved descent: all keys of a batch take one step, asking for the memory the next step will need, and
//! then all take the next step. The misses of a batch overlap, which a single look-up cannot have: it must know one
//! node to know the next. No allocation.

use super::{Position, RowRef, Tree};
use crate::node::{Candidate, NodePtr, SearchKey};
use arrayvec::ArrayVec;
use std::array;

/// Keys that are in flight together. More find no free place among the outstanding misses of a core; fewer leave some
/// unused.
const IN_FLIGHT: usize = 16;

/// A key to be located in a tree.
#[derive(Debug, Clone, Copy)]
pub struct Probe<'a> {
    /// The tree to look in.
    pub tree: &'a Tree,
    /// The key to look for.
    pub key: &'a [u8],
    /// Its position: set by [`locate_batch`].
    pub position: Position,
}

impl<'a> Probe<'a> {
    /// A probe for `key` in `tree`.
    #[inline]
    #[must_use]
    pub fn new(tree: &'a Tree, key: &'a [u8]) -> Probe<'a> {
        Probe { tree, key, position: Position::unknown() }
    }

    /// The row that was found.
    #[inline]
    #[must_use]
    pub fn row(&self) -> Option<RowRef<'a>> {
        self.tree.row_at(self.position, self.key)
    }
}

/// Locates every key in its tree, as [`Tree::locate`] does one by one, with the cache misses of sixteen at a time
/// overlapping. The trees may be different ones. The lines with the beginnings of the rows found are asked for.
pub fn locate_batch(probes: &mut [Probe<'_>]) {
    for group in probes.chunks_mut(IN_FLIGHT) {
        locate_group(group);
    }
}

/// The state of one look-up among those in flight.
struct Descent<'a> {
    key: SearchKey<'a>,
    node: NodePtr,
    candidate: Candidate,
}

#[inline]
fn locate_group(group: &mut [Probe<'_>]) {
    // Only what is looked for is made ready: a phase may have two keys.
    let mut descents: ArrayVec<Descent<'_>, IN_FLIGHT> = ArrayVec::new();
    let mut deepest = 0;
    for probe in &*group {
        let (key, node) = (SearchKey::new(probe.key), probe.tree.root);
        descents.push(Descent { key, node, candidate: Candidate::default() });
        deepest = deepest.max(probe.tree.inner_levels);
    }
    for step in 0..deepest {
        for (probe, descent) in group.iter().zip(&mut descents) {
            if step < probe.tree.inner_levels {
                descent.node = descent.node.child(descent.node.child_index(&descent.key));
                probe.tree.prefetch_node(descent.node);
            }
        }
    }
    // The heads decide where the record would be; its lines are on their way while the others are searched.
    for (probe, Descent { key, node, candidate }) in group.iter().zip(&mut descents) {
        *candidate = node.candidate(key);
        if candidate.possible {
            node.prefetch_record(candidate.index, probe.tree.config.record_lines);
        }
    }
    for (probe, Descent { key, node, candidate }) in group.iter_mut().zip(&descents) {
        let slot = node.find_at(*candidate, key);
        probe.position = Position {
            leaf: *node,
            stamp: probe.tree.stamp.get(),
            index: slot.index as u16,
            found: slot.found,
        };
    }
}

impl Tree {
    /// Looks up every key, as [`get`](Tree::get) does one by one but overlapping their cache misses, and hands each row
    /// to `each` with the index of its key, in the order of the keys.
    pub fn get_batch<'t>(&'t self, keys: &[&[u8]], mut each: impl FnMut(usize, Option<RowRef<'t>>)) {
        let mut first = 0;
        for keys in keys.chunks(IN_FLIGHT) {
            let mut probes: [Probe<'_>; IN_FLIGHT] =
                array::from_fn(|i| Probe::new(self, keys.get(i).copied().unwrap_or_default()));
            let probes = &mut probes[..keys.len()];
            locate_group(probes);
            for (index, probe) in probes.iter().enumerate() {
                each(first + index, self.row_at(probe.position, probe.key));
            }
            first += keys.len();
        }
    }
}
