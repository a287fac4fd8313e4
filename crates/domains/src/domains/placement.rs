//! The processing units and memory nodes of workers, as their domains want them.
//!
//! Owns: which worker is bound to what, also after a change of its domain. Never: binds a thread (`pump`).
//!
//! A worker that is pinned has its own unit. Those of a migrating domain have all units that its workers were given, so each change of the
//! list of workers concerns all of them; so it does where memory is interleaved over the nodes of these units.

use atrapos_topology::CpuId;

use super::Domains;
use crate::configuration::{DomainConfiguration, MemoryPolicy, Placement};
use crate::pump::Binding;

impl Domains {
    /// The binding of a worker that was given `unit`, in a domain whose workers were given the units `of_domain`.
    pub(super) fn binding(
        &self,
        settings: &DomainConfiguration,
        unit: Option<CpuId>,
        of_domain: &[CpuId],
    ) -> Binding {
        let cpus = match settings.placement {
            Placement::Pinned => unit.into_iter().collect(),
            Placement::Migrating => of_domain.to_vec(),
            Placement::Anywhere => Vec::new(),
        };
        Binding { cpus, nodes: self.nodes_of(settings.memory, of_domain) }
    }

    /// The memory nodes of a policy; none where the system's own policy, the nearest node, is meant.
    fn nodes_of(&self, memory: MemoryPolicy, cpus: &[CpuId]) -> Vec<usize> {
        match memory {
            MemoryPolicy::Local => Vec::new(),
            MemoryPolicy::Bound(node) => vec![node as usize],
            MemoryPolicy::Interleaved => {
                let node = |&cpu: &CpuId| self.inner.machine.cpu(cpu).map(|cpu| cpu.node.0 as usize);
                let mut nodes: Vec<usize> = cpus.iter().filter_map(node).collect();
                nodes.sort_unstable();
                nodes.dedup();
                nodes
            }
        }
    }

    /// The units that the workers of a domain were given.
    pub(super) fn units_of(&self, domain: u32) -> Vec<CpuId> {
        self.inner.live_workers_of(domain).iter().filter_map(|worker| worker.cpu()).collect()
    }

    /// Binds the workers of a domain as it is now.
    pub(super) fn bind_all(&self, domain: u32) {
        if self.inner.stepped {
            return;
        }
        let units = self.units_of(domain);
        for worker in self.inner.live_workers_of(domain) {
            let binding = self.binding(&self.inner.domain(domain).settings(), worker.cpu(), &units);
            worker.tell(Box::new(move |_| binding.bind()));
        }
    }
}
