//! Placement of the workers of a database on its machine.
//!
//! Owns: the core, memory node and island of each worker. Never: pins a thread.

use atrapos_runtime::affinity;
use atrapos_topology::{CpuId, CpuSet, LiveOptions, Machine};

/// Placement of the workers of a database on its machine.
pub(super) struct Placed {
    /// The processing unit of each worker but the spare ones.
    pub(super) placement: Vec<CpuId>,
    /// The core of each worker, if it has one.
    pub(super) cpus: Vec<Option<usize>>,
    /// The memory node of each worker, where there is a choice.
    pub(super) nodes: Vec<Option<usize>>,
    /// The island of each worker, its memory node: one for each WAL stream.
    pub(super) island_of: Vec<usize>,
    pub(super) pin: bool,
}

impl Placed {
    pub(super) fn new(machine: &Machine, workers: usize, pin: bool, place_memory: bool) -> Placed {
        let placement = machine.placement(workers);
        // A described machine's cores are not this one's; and threads of several workers are better moved about.
        let pin = pin && machine.is_live() && workers <= machine.usable_cpus().len();
        let node = |cpu: &CpuId| machine.cpu(*cpu).map(|cpu| cpu.node.0 as usize);
        let several = pin && place_memory && machine.nodes().len() > 1;
        Placed {
            cpus: placement.iter().map(|cpu| Some(cpu.0 as usize)).collect(),
            nodes: placement.iter().map(|cpu| several.then(|| node(cpu)).flatten()).collect(),
            island_of: dense(placement.iter().map(|cpu| node(cpu).unwrap_or(0))),
            placement,
            pin,
        }
    }

    /// Adds spare workers, which have no core and no node, and write to the first stream of the WAL.
    pub(super) fn with_spares(mut self, spare: usize) -> Placed {
        let all = self.placement.len() + spare;
        self.cpus.resize(all, None);
        self.nodes.resize(all, None);
        self.island_of.resize(all, 0);
        self
    }
}

/// Returns numbers for groups, dense and in order of their first members.
fn dense(groups: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut seen = Vec::new();
    groups
        .map(|group| {
            seen.iter().position(|known| *known == group).unwrap_or_else(|| {
                seen.push(group);
                seen.len() - 1
            })
        })
        .collect()
}

/// Returns the machine that this process runs on.
pub(super) fn live_machine() -> Machine {
    // Without an affinity mask every online core is taken for usable; pinning then refuses what is not.
    let affinity = affinity::current_thread_cpus().ok();
    let affinity = affinity.map(|cpus| cpus.into_iter().map(|cpu| CpuId(cpu as u32)).collect::<CpuSet>());
    Machine::live(&LiveOptions::new(affinity))
}
