//! Looking up many keys at once.
//!
//! Owns the interleaved descent: all keys of a batch take one step, asking for the memory the next step will need, and
//! then all take the next step. The misses of a batch overlap, which a single look-up cannot have: it must know one
//! node to know the next. No allocation.

use super::{Position, RowRef, Tree, TreeConfig};
use crate::node::{Candidate, NodePtr, SearchKey};
use crate::prefetch::RowLines;
use arrayvec::ArrayVec;

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

    /// The lines of the row found that [`locate_ahead`] has not asked for.
    #[inline]
    #[must_use]
    pub fn lines_left(&self) -> RowLines {
        let lines = self.tree.config.record_lines;
        if !self.tree.has_long_rows() || !self.position.is_found() {
            return RowLines::NONE;
        }
        // The probe borrows the tree, in which nothing has moved since.
        self.position.leaf.record_lines(self.position.index(), lines)
    }
}

/// Locates every key in its tree, as [`Tree::locate`] does one by one, with the cache misses of sixteen at a time
/// overlapping. The trees may be different ones. The lines with the beginnings of the rows found are asked for.
pub fn locate_batch(probes: &mut [Probe<'_>]) {
    locate_groups(probes, |config| config.record_lines);
}

/// Locates every key as [`locate_batch`] does, for rows that are read later, one after another: of long ones only the first line is
/// asked for, and [`Probe::lines_left`] says which are left.
pub fn locate_ahead(probes: &mut [Probe<'_>]) {
    locate_groups(probes, |config| if config.has_long_rows() { 0 } else { config.record_lines });
}

/// Locates every key, asking for so many lines of each record after the first.
#[inline(always)]
fn locate_groups(probes: &mut [Probe<'_>], lines: impl Fn(&TreeConfig) -> usize) {
    for group in probes.chunks_mut(IN_FLIGHT) {
        // Only what is looked for is made ready: a phase may have two keys.
        let mut descents: ArrayVec<Descent<'_>, IN_FLIGHT> = ArrayVec::new();
        let mut deepest = 0;
        for probe in &*group {
            descents.push(Descent::new(probe.tree, probe.key));
            deepest = deepest.max(probe.tree.inner_levels);
        }
        descend(&mut descents, deepest, |at| group[at].tree, &lines);
        for (probe, descent) in group.iter_mut().zip(&descents) {
            probe.position = descent.position(probe.tree);
        }
    }
}

/// The state of one look-up among those in flight.
struct Descent<'a> {
    key: SearchKey<'a>,
    node: NodePtr,
    candidate: Candidate,
}

impl<'a> Descent<'a> {
    #[inline(always)]
    fn new(tree: &Tree, key: &'a [u8]) -> Descent<'a> {
        Descent { key: SearchKey::new(key), node: tree.root, candidate: Candidate::default() }
    }

    /// The position in `tree`, once the candidate is known.
    #[inline(always)]
    fn position(&self, tree: &Tree) -> Position {
        let slot = self.node.find_at(self.candidate, &self.key);
        Position::new(self.node, tree.stamp.get(), slot)
    }
}

/// Leads look-ups to their leaves and candidates, level by level. `deepest` is the greatest number of inner levels; `lines` says how
/// many of a record are asked for after the first.
#[inline(always)]
fn descend<'t>(
    descents: &mut [Descent<'_>],
    deepest: usize,
    tree_of: impl Fn(usize) -> &'t Tree,
    lines: impl Fn(&TreeConfig) -> usize,
) {
    for step in 0..deepest {
        for (at, descent) in descents.iter_mut().enumerate() {
            let tree = tree_of(at);
            if step < tree.inner_levels {
                descent.node = descent.node.child(descent.node.child_index(&descent.key));
                tree.config.prefetch_node(descent.node);
            }
        }
    }
    // The heads decide where the record would be; its lines are on their way while the others are searched.
    for (at, Descent { key, node, candidate }) in descents.iter_mut().enumerate() {
        *candidate = node.candidate(key);
        if candidate.possible {
            node.prefetch_record(candidate.index, lines(&tree_of(at).config));
        }
    }
}

impl Tree {
    /// Locates every key, as [`locate`](Tree::locate) does one by one but overlapping their cache misses, and adds the positions
    /// in the order of the keys.
    #[inline]
    pub fn locate_all<'a>(
        &self,
        keys: impl IntoIterator<Item = &'a [u8]>,
        positions: &mut impl Extend<Position>,
    ) {
        let mut keys = keys.into_iter();
        loop {
            let mut descents: ArrayVec<Descent<'_>, IN_FLIGHT> = ArrayVec::new();
            for key in keys.by_ref() {
                descents.push(Descent::new(self, key));
                if descents.is_full() {
                    break;
                }
            }
            if descents.is_empty() {
                return;
            }
            self.descend_together(&mut descents);
            positions.extend(descents.iter().map(|descent| descent.position(self)));
        }
    }

    #[inline(never)]
    fn descend_together(&self, descents: &mut [Descent<'_>]) {
        descend(descents, self.inner_levels, |_| self, |config| config.record_lines);
    }

    /// Looks up every key, as [`get`](Tree::get) does one by one but overlapping their cache misses, and hands each row
    /// to `each` with the index of its key, in the order of the keys.
    pub fn get_batch<'t>(&'t self, keys: &[&[u8]], mut each: impl FnMut(usize, Option<RowRef<'t>>)) {
        let mut positions: ArrayVec<Position, IN_FLIGHT> = ArrayVec::new();
        for (group, keys) in keys.chunks(IN_FLIGHT).enumerate() {
            positions.clear();
            self.locate_all(keys.iter().copied(), &mut positions);
            for (at, (key, position)) in keys.iter().zip(&positions).enumerate() {
                each(group * IN_FLIGHT + at, self.row_at(*position, key));
            }
        }
    }
}
