//! The workers to plan for, in the nest of islands they live in.
//!
//! Owns: the geometry of synchronization: what it costs, per byte, that actions on given workers meet. Never: knows a
//! partition.
//!
//! The paper counts sockets: a synchronization point over `n` of them costs `(n - 1) x Distance x Size`, `Distance`
//! being the mean over the participating ones (`ATraPos §V-B`). Islands nest here, so the same formula is applied inside
//! every island that takes part, to its children that do: workers of a core, cores of an L3 island, L3 islands of a node,
//! nodes of a socket, sockets of the machine; the costs add up. On a machine whose distance within a socket is zero this
//! is the paper's formula; between two workers it is their distance; within one worker it is zero.
//!
//! Invariants: workers are ranked island by island, so those of any island are consecutive ranks; at least one worker is
//! available; two different workers are never at distance zero, even on one processing unit, because a message is sent.

use crate::error::AdaptError;
use crate::ids::WorkerIndex;
use atrapos_topology::{CpuId, Level, Machine, SMT_SIBLINGS_NOMINAL};

/// Greatest number of workers of a platform.
pub const WORKERS_MAX: usize = 1 << 16;

/// Workers, cores, L3 islands, nodes, sockets: everything that has a parent.
const NESTED_LEVELS: usize = 5;

/// Workers and the distances between them.
#[derive(Debug, Clone)]
pub struct Platform {
    /// By worker.
    cpus: Vec<CpuId>,
    available: Vec<bool>,
    rank_of_worker: Vec<u32>,
    worker_of_rank: Vec<u32>,
    levels: Vec<Siblings>,
    /// The name of every island that is more than a worker, for reports: `(level, first rank, rank count)`.
    islands: Vec<(Level, u32, u32)>,
}

/// Extent of a synchronization point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Span {
    /// Workers that take part, less one.
    pub(crate) others: u32,
    /// Cost per byte: see [`Platform::distance_among`].
    pub(crate) distance: f64,
}

/// One level of groups, with the distances between those of one parent.
#[derive(Debug, Clone, Default)]
struct Siblings {
    /// By group of this level: the parent's number in the next level.
    parent: Vec<u32>,
    /// By group: its position among the children of its parent.
    position: Vec<u32>,
    /// By parent: how many children, and where their square matrix begins in `distances`.
    children: Vec<u32>,
    matrix: Vec<usize>,
    distances: Vec<f64>,
}

impl Siblings {
    fn distance(&self, a: u32, b: u32) -> f64 {
        let parent = self.parent[a as usize] as usize;
        let row = self.position[a as usize] as usize * self.children[parent] as usize;
        self.distances[self.matrix[parent] + row + self.position[b as usize] as usize]
    }
}

impl Platform {
    /// The workers `0..cpus.len()`, worker `i` on processing unit `cpus[i]`; several may share one.
    ///
    /// # Errors
    /// [`AdaptError::NoWorkers`], [`AdaptError::UnknownCpu`], or [`AdaptError::TooLarge`] beyond [`WORKERS_MAX`].
    pub fn new(machine: &Machine, cpus: &[CpuId]) -> Result<Self, AdaptError> {
        if cpus.is_empty() {
            return Err(AdaptError::NoWorkers);
        }
        if cpus.len() > WORKERS_MAX {
            let (what, cure) = ("workers", "fewer workers");
            return Err(AdaptError::TooLarge { what, found: cpus.len(), max: WORKERS_MAX, cure });
        }
        // From the coarsest group to the finest; the worker itself comes last.
        let mut paths = Vec::with_capacity(cpus.len());
        for (worker, cpu) in (0_u32..).zip(cpus) {
            let unknown = || AdaptError::UnknownCpu { worker: WorkerIndex(worker), cpu: cpu.to_string() };
            let island = |level| machine.island_of(*cpu, level).map(|island| island.0).ok_or_else(unknown);
            let core = machine.cpu(*cpu).ok_or_else(unknown)?.core.0;
            paths.push([island(Level::Socket)?, island(Level::Node)?, island(Level::L3)?, core, worker]);
        }
        let mut order: Vec<u32> = (0..).take(cpus.len()).collect();
        order.sort_by_key(|worker| paths[*worker as usize]);
        let mut rank_of_worker = vec![0; cpus.len()];
        for (rank, worker) in (0_u32..).zip(&order) {
            rank_of_worker[*worker as usize] = rank;
        }
        let groups = group_by_level(&order, &paths);
        let levels = measure(machine, cpus, &order, &groups);
        let islands = islands_of(&groups);
        Ok(Self {
            cpus: cpus.to_vec(),
            available: vec![true; cpus.len()],
            rank_of_worker,
            worker_of_rank: order,
            levels,
            islands,
        })
    }

    /// `workers` workers on the processing units that the machine gives to so many.
    ///
    /// # Errors
    /// As [`Platform::new`].
    pub fn for_workers(machine: &Machine, workers: usize) -> Result<Self, AdaptError> {
        if workers > WORKERS_MAX {
            let (what, cure) = ("workers", "fewer workers");
            return Err(AdaptError::TooLarge { what, found: workers, max: WORKERS_MAX, cure });
        }
        Self::new(machine, &machine.placement(workers))
    }

    /// The same without some workers: they keep their numbers and distances but are given nothing. This is how a lost
    /// core is planned for.
    ///
    /// # Errors
    /// [`AdaptError::UnknownWorker`], or [`AdaptError::NoWorkers`] when none would be left.
    pub fn without(mut self, retired: &[WorkerIndex]) -> Result<Self, AdaptError> {
        let workers = self.cpus.len();
        for worker in retired {
            match self.available.get_mut(worker.index()) {
                Some(available) => *available = false,
                None => return Err(AdaptError::UnknownWorker { worker: *worker, workers }),
            }
        }
        if self.available.contains(&true) { Ok(self) } else { Err(AdaptError::NoWorkers) }
    }

    /// Number of workers, retired ones included.
    #[must_use]
    pub fn worker_count(&self) -> usize {
        self.cpus.len()
    }

    /// Number of workers that may own data.
    #[must_use]
    pub fn available_count(&self) -> usize {
        self.available.iter().filter(|available| **available).count()
    }

    /// Returns whether a worker may own data; `false` for one that does not exist.
    #[must_use]
    pub fn is_available(&self, worker: WorkerIndex) -> bool {
        self.available.get(worker.index()).copied().unwrap_or(false)
    }

    /// The processing unit of a worker; `None` for one that does not exist.
    #[must_use]
    pub fn cpu(&self, worker: WorkerIndex) -> Option<CpuId> {
        self.cpus.get(worker.index()).copied()
    }

    /// Cost per byte of a meeting of actions on these workers: `(n - 1) x Distance`, summed over nested islands. A
    /// worker may be named more than once. Zero for fewer than two different ones.
    ///
    /// # Panics
    /// When there is no such worker.
    #[must_use]
    pub fn distance_among(&self, workers: &[WorkerIndex]) -> f64 {
        let mut ranks: Vec<u32> = workers.iter().map(|worker| self.rank_of_worker[worker.index()]).collect();
        self.span_of_ranks(&mut ranks).distance
    }

    /// Cost as of [`Platform::distance_among`] for ranks, and how many there are; `ranks` is used up.
    pub(crate) fn span_of_ranks(&self, ranks: &mut Vec<u32>) -> Span {
        ranks.sort_unstable();
        ranks.dedup();
        let others = (ranks.len() as u32).saturating_sub(1);
        Span { others, distance: self.distance_among_sorted(ranks) }
    }

    /// The same for two ranks, which may be one.
    pub(crate) fn span_of_two(&self, a: u32, b: u32) -> Span {
        if a == b {
            return Span { others: 0, distance: 0.0 };
        }
        let (mut a, mut b) = (a, b);
        for level in &self.levels {
            let parents = (level.parent[a as usize], level.parent[b as usize]);
            if parents.0 == parents.1 {
                return Span { others: 1, distance: level.distance(a, b) };
            }
            (a, b) = parents;
        }
        unreachable!("all workers are in the machine, which is the last parent")
    }

    fn distance_among_sorted(&self, ranks: &mut Vec<u32>) -> f64 {
        let groups = ranks;
        let mut total = 0.0;
        for level in &self.levels {
            if groups.len() < 2 {
                break;
            }
            let (mut write, mut from) = (0, 0);
            while from < groups.len() {
                let parent = level.parent[groups[from] as usize];
                let mut to = from + 1;
                while to < groups.len() && level.parent[groups[to] as usize] == parent {
                    to += 1;
                }
                total += spanning_distance(level, &groups[from..to]);
                groups[write] = parent;
                write += 1;
                from = to;
            }
            groups.truncate(write);
        }
        total
    }

    pub(crate) fn rank(&self, worker: WorkerIndex) -> u32 {
        self.rank_of_worker[worker.index()]
    }

    /// Worker of a rank: its place in the order in which the workers of an island are neighbours.
    pub fn worker(&self, rank: u32) -> WorkerIndex {
        WorkerIndex(self.worker_of_rank[rank as usize])
    }

    /// Ranks that may be given something, ascending.
    pub fn available_ranks(&self) -> Vec<u32> {
        (0_u32..).take(self.cpus.len()).filter(|rank| self.available[self.worker(*rank).index()]).collect()
    }

    /// `(level, first rank, ranks)` of every island, the finest level first.
    pub(crate) fn islands(&self) -> &[(Level, u32, u32)] {
        &self.islands
    }

    /// Tells for the exact program whether two neighbouring ranks are in one L3 island whose workers all have cores of
    /// their own, so that exchanging them changes no cost (where distances are uniform).
    pub fn are_interchangeable(&self, a: u32, b: u32) -> bool {
        let [of_worker, of_core, ..] = self.levels.as_slice() else { return false };
        let island = |rank: u32| of_core.parent[of_worker.parent[rank as usize] as usize];
        let same = island(a) == island(b);
        same && (0..of_core.parent.len())
            .filter(|core| of_core.parent[*core] == island(a))
            .all(|core| of_worker.children[core] == 1)
    }

    /// For the exact program: by level, each group's parent, and each parent's one distance among its children.
    ///
    /// # Errors
    /// [`AdaptError::UnevenDistances`] if the distances among the children of an island differ, or do not grow outwards.
    pub fn uniform_levels(&self) -> Result<Vec<UniformLevel>, AdaptError> {
        let mut below: Vec<f64> = vec![0.0; self.cpus.len()];
        let mut result = Vec::new();
        for level in &self.levels {
            let mut own = Vec::new();
            for (parent, (count, matrix)) in level.children.iter().zip(&level.matrix).enumerate() {
                let count = *count as usize;
                let cells = &level.distances[*matrix..*matrix + count * count];
                let between =
                    cells.iter().enumerate().filter(|(at, _)| at / count != at % count).map(|(_, d)| *d);
                let (least, most) =
                    between.fold((f64::INFINITY, 0.0_f64), |(least, most), d| (least.min(d), most.max(d)));
                let inside = (0..level.parent.len())
                    .filter(|group| level.parent[*group] as usize == parent)
                    .fold(0.0_f64, |most, group| most.max(below[group]));
                if count > 1 && (most - least > 1e-9 * most || least < inside) {
                    let detail =
                        format!("they reach from {least} to {most}, and {inside} within one of them");
                    return Err(AdaptError::UnevenDistances { detail });
                }
                own.push(if count > 1 { most } else { inside });
            }
            result.push((level.parent.clone(), own.clone()));
            below = own;
        }
        Ok(result)
    }
}

/// By group of a level its parent, and by parent the one distance among its children.
pub type UniformLevel = (Vec<u32>, Vec<f64>);

/// `(n - 1)` times the mean distance between `n` groups of one parent.
fn spanning_distance(level: &Siblings, groups: &[u32]) -> f64 {
    match groups {
        [] | [_] => 0.0,
        [a, b] => level.distance(*a, *b),
        _ => {
            let mut sum = 0.0;
            for (at, a) in groups.iter().enumerate() {
                sum += groups[at + 1..].iter().map(|b| level.distance(*a, *b)).sum::<f64>();
            }
            // The mean is over n (n - 1) / 2 pairs.
            sum * 2.0 / groups.len() as f64
        }
    }
}

/// By level, from workers to the machine, the group of every rank; groups are numbered in rank order.
fn group_by_level(order: &[u32], paths: &[[u32; NESTED_LEVELS]]) -> Vec<Vec<u32>> {
    (0..=NESTED_LEVELS)
        .map(|level| {
            let kept = NESTED_LEVELS - level;
            let mut group = 0;
            let mut groups = Vec::with_capacity(order.len());
            for (at, worker) in order.iter().enumerate() {
                let path = &paths[*worker as usize][..kept];
                if at > 0 && path != &paths[order[at - 1] as usize][..kept] {
                    group += 1;
                }
                groups.push(group);
            }
            groups
        })
        .collect()
}

/// The mean distance between any two groups of one parent, over all pairs of workers in them.
fn measure(machine: &Machine, cpus: &[CpuId], order: &[u32], groups: &[Vec<u32>]) -> Vec<Siblings> {
    let mut levels: Vec<Siblings> =
        (0..NESTED_LEVELS).map(|at| siblings(&groups[at], &groups[at + 1])).collect();
    let mut pairs: Vec<Vec<u32>> = levels.iter().map(|level| vec![0; level.distances.len()]).collect();
    for a in 0..order.len() {
        for b in 0..a {
            // The groups differ up to the level below the first common one.
            let at = (0..NESTED_LEVELS)
                .find(|at| groups[at + 1][a] == groups[at + 1][b])
                .expect("all are in the machine");
            let (cpu_a, cpu_b) = (cpus[order[a] as usize], cpus[order[b] as usize]);
            let distance = machine.distance(cpu_a, cpu_b).max(SMT_SIBLINGS_NOMINAL);
            let level = &mut levels[at];
            let (group_a, group_b) = (groups[at][a] as usize, groups[at][b] as usize);
            let parent = level.parent[group_a] as usize;
            let width = level.children[parent] as usize;
            let (x, y) = (level.position[group_a] as usize, level.position[group_b] as usize);
            for cell in [level.matrix[parent] + x * width + y, level.matrix[parent] + y * width + x] {
                level.distances[cell] += distance;
                pairs[at][cell] += 1;
            }
        }
    }
    for (level, pairs) in levels.iter_mut().zip(pairs) {
        for (distance, pairs) in level.distances.iter_mut().zip(pairs) {
            *distance /= f64::from(pairs.max(1));
        }
    }
    levels
}

fn siblings(groups: &[u32], parents: &[u32]) -> Siblings {
    let mut level = Siblings::default();
    for (group, parent) in groups.iter().zip(parents) {
        if (*group as usize) < level.parent.len() {
            continue;
        }
        if *parent as usize == level.children.len() {
            level.children.push(0);
        }
        let position = &mut level.children[*parent as usize];
        level.parent.push(*parent);
        level.position.push(*position);
        *position += 1;
    }
    let mut size = 0;
    for count in &level.children {
        level.matrix.push(size);
        size += *count as usize * *count as usize;
    }
    level.distances = vec![0.0; size];
    level
}

fn islands_of(groups: &[Vec<u32>]) -> Vec<(Level, u32, u32)> {
    let mut islands = Vec::new();
    for (level, of_level) in Level::ALL.into_iter().zip(&groups[2..]) {
        for (rank, group) in (0_u32..).zip(of_level) {
            match islands.last_mut() {
                Some((last, first, count)) if *last == level && of_level[*first as usize] == *group => {
                    *count += 1;
                }
                _ => islands.push((level, rank, 1)),
            }
        }
    }
    islands
}
