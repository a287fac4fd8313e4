//! Assignment of workers to processing units.
//!
//! Owns: the order. Never: pins a thread, nor decides how many workers there are.
//!
//! The order is grouped: workers fill one island before they touch the next, so that few workers share a cache (the
//! grouped placement of `Islands §4.1`). At every level the island with the most usable cores comes first, which
//! reaches any number of workers with the fewest islands; equal ones come by number. Within this order:
//! 1. the first usable processing unit of every usable core: one worker per physical core;
//! 2. then the second one of every core that has it (SMT siblings), and so on;
//! 3. beyond the usable processing units the order begins again: such workers share one (oversubscription).
//!
//! Invariants: the order depends on the machine alone, and fewer workers take a prefix of what more workers take; only
//! usable processing units are chosen, each `floor(n / usable)` or one more times.

use crate::ids::{CoreId, CpuId, IslandId};
use crate::machine::Machine;

impl Machine {
    /// The processing units for `workers` workers, in the order of worker numbers: one per physical core first, island
    /// by island; then SMT siblings; then, oversubscribed, the same again.
    #[must_use]
    pub fn placement(&self, workers: usize) -> Vec<CpuId> {
        let order = self.placement_order();
        order.iter().copied().cycle().take(workers).collect()
    }

    /// Every usable processing unit once, in the order in which workers take them.
    fn placement_order(&self) -> Vec<CpuId> {
        let cores = self.usable_cores_by_island();
        let ranks = cores.iter().map(Vec::len).max().unwrap_or(0);
        (0..ranks).flat_map(|rank| cores.iter().filter_map(move |cpus| cpus.get(rank).copied())).collect()
    }

    /// The usable processing units of every core that has any, in island order with the largest islands first.
    fn usable_cores_by_island(&self) -> Vec<Vec<CpuId>> {
        let usable_of = |core: CoreId| -> Vec<CpuId> {
            let cpus = &self.cores()[core.index()].cpus;
            cpus.iter().copied().filter(|&cpu| self.usable_cpus().contains(cpu)).collect()
        };
        let mut cores_of_island: Vec<Vec<Vec<CpuId>>> = vec![Vec::new(); self.all_islands().len()];
        for core in self.cores() {
            let usable = usable_of(core.id);
            if !usable.is_empty() {
                cores_of_island[core.island.index()].push(usable);
            }
        }
        // Children have larger numbers than their parents, so going backwards every island is complete when it is
        // handed to its parent.
        for index in (1..cores_of_island.len()).rev() {
            let island = &self.all_islands()[index];
            if !island.children.is_empty() {
                cores_of_island[index] = concatenate(&mut cores_of_island, &island.children);
            }
        }
        let machine = &self.all_islands()[0];
        concatenate(&mut cores_of_island, &machine.children)
    }
}

/// Takes the children's cores, largest child first, ties by number.
fn concatenate(cores_of_island: &mut [Vec<Vec<CpuId>>], children: &[IslandId]) -> Vec<Vec<CpuId>> {
    let mut parts: Vec<Vec<Vec<CpuId>>> =
        children.iter().map(|child| std::mem::take(&mut cores_of_island[child.index()])).collect();
    parts.sort_by_key(|cores| std::cmp::Reverse(cores.len()));
    parts.concat()
}
