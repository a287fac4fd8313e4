//! Dependencies between actions of a flow graph, found in the keys and rows of the recorded accesses.
//!
//! Owns: the choice of a source for each part of a key. Never: takes part in the order of the actions.

use std::collections::{BTreeMap, BTreeSet};

use atrapos_adapt::FlowDependency;
use atrapos_partition::schema::{TableId, TreeKind};

use super::ClassRecording;
use super::actions::Node;
use super::trees::{Source, Tree};
use crate::recording::fields::{Asked, Value};

/// The percentage of the occurrences of an action in which a dependency must hold.
const BORNE_OUT_PERCENT: u64 = 90;

/// A decoded access.
pub(super) struct Seen {
    pub(super) node: usize,
    pub(super) phase: u32,
    pub(super) asked: Asked,
    pub(super) found: Vec<(Source, Value)>,
    pub(super) bytes: u64,
}

impl Seen {
    /// Returns the places of `value` in its key and, with `found_too`, in the rows it has found.
    fn sources<'a>(&'a self, value: &'a Value, found_too: bool) -> impl Iterator<Item = Source> + 'a {
        let asked = self.asked.fixed.iter().enumerate().filter(move |(_, known)| *known == value);
        let found = self.found.iter().filter(move |(_, known)| found_too && known == value);
        asked.map(|(at, _)| Source::Key(at)).chain(found.map(|(source, _)| *source))
    }
}

impl ClassRecording {
    /// Returns the dependencies between the actions. See the module's introduction.
    pub(super) fn dependencies(
        &self,
        nodes: &[Node],
        trees: &[Tree],
        runs: &[Vec<Seen>],
    ) -> Vec<FlowDependency> {
        let supplies = supplies(nodes, runs);
        let nothing = BTreeSet::new();
        let mut edges = Vec::new();
        for (to, node) in nodes.iter().enumerate() {
            let names = &trees[node.table.at()].names;
            let label = |parts: &BTreeSet<usize>| {
                let parts = parts.iter().filter_map(|part| names.get(*part).map(String::as_str));
                parts.collect::<Vec<_>>().join(", ")
            };
            let edge = |from: usize, key: String| FlowDependency { from: from as u32, to: to as u32, key };
            let supplied = |from: usize| supplies.get(&(from, to)).unwrap_or(&nothing);
            if node.follows {
                // What follows from a write depends on it, even if the key was computed in some other way.
                for from in (0..to).filter(|from| !nodes[*from].follows && nodes[*from].writes()) {
                    if self.is_followed(nodes[from].table, node.table) {
                        let parts = supplied(from);
                        edges
                            .push(edge(from, if parts.is_empty() { names.join(", ") } else { label(parts) }));
                    }
                }
                continue;
            }
            let mut covered = BTreeSet::new();
            loop {
                let best = (0..to)
                    .filter(|from| !nodes[*from].follows)
                    .map(|from| {
                        let parts = supplied(from);
                        let new = parts.difference(&covered).count();
                        let related = self.are_related(nodes[from].table, node.table);
                        let others = trees[nodes[from].table.at()].parts.len().saturating_sub(parts.len());
                        (new, related, std::cmp::Reverse(others), from)
                    })
                    .max();
                let Some((1.., .., from)) = best else { break };
                let new: BTreeSet<usize> = supplied(from).difference(&covered).copied().collect();
                edges.push(edge(from, label(&new)));
                covered.extend(new);
            }
        }
        edges.sort_by_key(|edge| (edge.to, edge.from));
        edges
    }

    /// Returns true if a write to `written` may be followed by an access of `then`.
    fn is_followed(&self, written: TableId, then: TableId) -> bool {
        let table = &self.catalog.tables[written.at()];
        table.indexes.iter().any(|index| index.id == then)
            || table.parents.iter().any(|parent| parent.parent == then)
            || table.children.iter().any(|child| child.through == then)
    }

    /// Returns true if an index or a declared dependency relates two tables.
    fn are_related(&self, a: TableId, b: TableId) -> bool {
        let is_index = |index: TableId, table: TableId| matches!(self.catalog.tables[index.at()].kind, TreeKind::Entries { of, .. } if of == table);
        let is_declared = |child: TableId, parent: TableId| {
            self.catalog.dependencies.iter().any(|known| (known.child, known.parent) == (child, parent))
        };
        is_index(a, b) || is_index(b, a) || is_declared(a, b) || is_declared(b, a)
    }
}

/// Returns, by (earlier, later) action, the parts of the later one's key that the earlier one supplies.
fn supplies(nodes: &[Node], runs: &[Vec<Seen>]) -> BTreeMap<(usize, usize), BTreeSet<usize>> {
    // Occurrences of each part of a key after the earlier action, and those in which each source had its value.
    let mut asked: BTreeMap<(usize, usize, usize), u64> = BTreeMap::new();
    let mut borne_out: BTreeMap<(usize, usize, usize, Source), u64> = BTreeMap::new();
    for run in runs {
        for (at, later) in run.iter().enumerate() {
            for from in 0..later.node {
                let earlier: Vec<&Seen> = run[..at].iter().filter(|seen| seen.node == from).collect();
                if earlier.is_empty() {
                    continue;
                }
                let parts = later.asked.fixed.len();
                let fixed = later.asked.fixed.iter().enumerate();
                let bounds = later.asked.bounds.iter().map(|value| (parts, value));
                let mut had: BTreeSet<(usize, Source)> = BTreeSet::new();
                for (part, value) in fixed.chain(bounds) {
                    for seen in &earlier {
                        // Actions of one phase have the same parameters, but not the rows that the others find.
                        let found_too = seen.phase < later.phase || nodes[later.node].follows;
                        had.extend(seen.sources(value, found_too).map(|source| (part, source)));
                    }
                }
                let parts = parts + usize::from(!later.asked.bounds.is_empty());
                (0..parts).for_each(|part| *asked.entry((from, later.node, part)).or_default() += 1);
                for (part, source) in had {
                    *borne_out.entry((from, later.node, part, source)).or_default() += 1;
                }
            }
        }
    }
    let mut supplies: BTreeMap<(usize, usize), BTreeSet<usize>> = BTreeMap::new();
    for ((from, to, part, _), hits) in borne_out {
        if hits * 100 >= asked[&(from, to, part)] * BORNE_OUT_PERCENT {
            supplies.entry((from, to)).or_default().insert(part);
        }
    }
    supplies
}
