//! Islands from measured round trips: hierarchical clustering with tolerance for noise.
//!
//! Owns: [`derive_islands`]. Never: measures, nor decides what a derived level is called (`measured` does).
//!
//! The method, on the logarithms of the round trips so that ratios count and one disturbed pair does not:
//! 1. Clusters are merged by average linkage (the mean over all measured pairs between them), nearest first, which gives
//!    a tree whose merge heights grow. The nearest-neighbour chain does it in a time quadratic in processing units.
//! 2. Sorted by height, merges within one kind of island follow each other closely, and a border between kinds is a gap.
//!    A gap of at least [`LEVEL_GAP_RATIO_MIN`] is a candidate for a level: the clusters formed below it.
//! 3. A candidate in which fewer than half of the processing units have company is a few odd pairs, not a level; and one
//!    that only sets at most an eighth of them apart from one large cluster is a few disturbed processing units.
//!
//! Invariants: each level partitions the processing units of the matrix; each finer level's islands lie within those of
//! the coarser ones; the trivial levels (each alone, all together) are never listed; equal input gives equal output.

use crate::cpuset::CpuSet;
use crate::latency::{LatencyMatrix, median};
use std::collections::BTreeMap;

/// Round trips must grow by at least this ratio from one level to the next: more than measuring disturbs, less than any
/// shared cache saves.
pub const LEVEL_GAP_RATIO_MIN: f64 = 1.3;

/// The nested islands that round trips show.
#[derive(Debug, Clone, PartialEq)]
pub struct DerivedIslands {
    /// The levels from the finest to the coarsest; none when all processing units are about equally far.
    pub levels: Vec<DerivedLevel>,
}

/// One level of derived islands.
#[derive(Debug, Clone, PartialEq)]
pub struct DerivedLevel {
    /// The islands in the order of their smallest processing unit.
    pub islands: Vec<CpuSet>,
    /// Median round trip within islands, in nanoseconds; `None` when no such pair was measured.
    pub within_ns: Option<f64>,
    /// Median round trip between islands, in nanoseconds; `None` when no such pair was measured.
    pub between_ns: Option<f64>,
}

/// Derives nested islands from round trips. See the module's description for the method.
#[must_use]
pub fn derive_islands(latencies: &LatencyMatrix) -> DerivedIslands {
    let mut merges = merge_all(latencies);
    // The sort is stable and a merge never precedes those it is made of, as heights do not fall.
    merges.sort_by(|a, b| a.height.total_cmp(&b.height));
    let mut levels = Vec::new();
    let mut clusters = Clusters::singletons(latencies.len());
    for (index, merge) in merges.iter().enumerate() {
        clusters.join(merge.a, merge.b);
        let gap = merges.get(index + 1).map(|next| next.height - merge.height);
        if gap.is_some_and(|gap| gap >= LEVEL_GAP_RATIO_MIN.ln()) {
            let groups = clusters.groups();
            if is_level(&groups, latencies.len()) {
                levels.push(describe(latencies, &groups));
            }
        }
    }
    DerivedIslands { levels }
}

/// Two clusters, each named by one of its rows, that become one at a height (the logarithm of nanoseconds).
#[derive(Debug, Clone, Copy)]
struct Merge {
    a: usize,
    b: usize,
    height: f64,
}

/// Sum and number of the measured pairs between two clusters.
#[derive(Debug, Clone, Copy, Default)]
struct Link {
    sum: f64,
    pairs: f64,
}

impl Link {
    fn mean(self) -> f64 {
        if self.pairs == 0.0 { f64::INFINITY } else { self.sum / self.pairs }
    }
}

/// Average linkage by the nearest-neighbour chain: follow nearest neighbours until two are each other's.
///
/// The mean over pairs of a union lies between the means of its parts, so merging two clusters never brings a third
/// nearer than it was, which is what the chain's correctness needs; it holds with missing pairs as well.
fn merge_all(latencies: &LatencyMatrix) -> Vec<Merge> {
    let rows = latencies.len();
    let link_of = |a, b| latencies.at(a, b).map_or(Link::default(), |ns| Link { sum: ns.ln(), pairs: 1.0 });
    let mut links: Vec<Vec<Link>> = (0..rows).map(|a| (0..rows).map(|b| link_of(a, b)).collect()).collect();
    let mut alive: Vec<usize> = (0..rows).collect();
    let mut merges = Vec::with_capacity(rows.saturating_sub(1));
    let mut chain: Vec<usize> = Vec::new();
    while alive.len() > 1 {
        if chain.is_empty() {
            chain.push(alive[0]);
        }
        let tip = chain[chain.len() - 1];
        let before = chain.len().checked_sub(2).map(|index| chain[index]);
        // The predecessor wins ties, so that the chain ends.
        let mut nearest = before.map(|before| (links[tip][before].mean(), before));
        for &other in alive.iter().filter(|&&other| other != tip) {
            let mean = links[tip][other].mean();
            if nearest.is_none_or(|(smallest, _)| mean < smallest) {
                nearest = Some((mean, other));
            }
        }
        let Some((height, other)) = nearest else { break };
        if Some(other) != before {
            chain.push(other);
            continue;
        }
        merges.push(Merge { a: tip, b: other, height });
        let (kept, gone) = (tip.min(other), tip.max(other));
        for &third in alive.iter().filter(|&&third| third != kept && third != gone) {
            let joined = Link {
                sum: links[kept][third].sum + links[gone][third].sum,
                pairs: links[kept][third].pairs + links[gone][third].pairs,
            };
            links[kept][third] = joined;
            links[third][kept] = joined;
        }
        alive.retain(|&row| row != gone);
        chain.truncate(chain.len() - 2);
    }
    merges
}

/// Disjoint sets of rows.
struct Clusters {
    parent: Vec<usize>,
}

impl Clusters {
    fn singletons(rows: usize) -> Self {
        Self { parent: (0..rows).collect() }
    }

    fn root(&mut self, mut row: usize) -> usize {
        while self.parent[row] != row {
            self.parent[row] = self.parent[self.parent[row]];
            row = self.parent[row];
        }
        row
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        self.parent[a.max(b)] = a.min(b);
    }

    /// The group number of every row.
    fn groups(&mut self) -> Vec<usize> {
        (0..self.parent.len()).map(|row| self.root(row)).collect()
    }
}

fn is_level(groups: &[usize], rows: usize) -> bool {
    let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
    for &group in groups {
        *sizes.entry(group).or_default() += 1;
    }
    let in_company: usize = sizes.values().filter(|&&size| size > 1).sum();
    let largest = sizes.values().copied().max().unwrap_or(0);
    let apart = rows - largest;
    let only_odd_pairs = in_company * 2 < rows;
    let only_disturbed = sizes.values().filter(|&&size| size > 1).count() == 1 && apart * 8 <= rows;
    !only_odd_pairs && !only_disturbed
}

fn describe(latencies: &LatencyMatrix, groups: &[usize]) -> DerivedLevel {
    let mut members: BTreeMap<usize, CpuSet> = BTreeMap::new();
    for (&group, &cpu) in groups.iter().zip(latencies.cpus()) {
        members.entry(group).or_default().insert(cpu);
    }
    let (mut within, mut between) = (Vec::new(), Vec::new());
    for a in 0..groups.len() {
        for b in a + 1..groups.len() {
            if let Some(ns) = latencies.at(a, b) {
                if groups[a] == groups[b] { within.push(ns) } else { between.push(ns) }
            }
        }
    }
    let mut islands: Vec<CpuSet> = members.into_values().collect();
    islands.sort_by_key(CpuSet::first);
    DerivedLevel { islands, within_ns: median(&mut within), between_ns: median(&mut between) }
}
