//! Machines corrected by measurement: islands from round trips instead of from what the system claims.
//!
//! Owns: what derived levels mean for a machine that makes claims of its own. Never: measures, nor clusters.
//!
//! The rules. Cores that the system describes are believed (round trips cannot tell two cores from two threads of one
//! for sure), so a derived level within cores says nothing new; only where the system describes no SMT siblings at all
//! and round trips show pairs below at least one more level are those taken for cores. Of what is left, the finest level
//! is the L3 islands and the coarsest, if there are two or more, the sockets. With one level or none, the described
//! sockets are kept if no island crosses them and there is one level; otherwise there is one socket. Memory nodes stay
//! as described, as memory is placed by them; where an island crosses one, it is cut there by the rules of `build`.
//! A processing unit that was not measured goes where its described neighbours are.

use crate::build::build;
use crate::cluster::{DerivedLevel, derive_islands};
use crate::cpuset::CpuSet;
use crate::error::LatencyError;
use crate::facts::{CpuFacts, Fact, Facts, Refusals};
use crate::ids::{CpuId, SocketId};
use crate::latency::LatencyMatrix;
use crate::machine::{Cpu, Level, Machine};
use std::collections::BTreeMap;

impl Machine {
    /// This machine with the islands that measured round trips show, for machines that lie about them (most virtual
    /// ones do). Statements that the measurement contradicts are listed in [`refused`](Self::refused).
    ///
    /// # Errors
    /// [`LatencyError::UnknownCpu`] when the matrix names a processing unit that this machine does not have.
    pub fn with_measured_islands(&self, latencies: &LatencyMatrix) -> Result<Self, LatencyError> {
        if let Some(&cpu) = latencies.cpus().iter().find(|&&cpu| self.cpu(cpu).is_none()) {
            return Err(LatencyError::UnknownCpu { cpu });
        }
        let mut facts = self.facts_again();
        let levels = derive_islands(latencies).levels;
        let mut levels: Vec<&DerivedLevel> =
            levels.iter().filter(|level| !self.is_within_cores(level)).collect();
        if levels.len() >= 2 && self.lacks_smt() && levels[0].islands.iter().all(|island| island.len() <= 2) {
            let group_of = self.spread(&levels[0].islands, latencies);
            facts.cpus.iter_mut().for_each(|cpu| cpu.core = Some(group_of[&cpu.id]));
            facts.came_from(Fact::Cores, "derived: pairs in measured round trips are taken for SMT siblings");
            levels.remove(0);
        }
        let everything = [self.cpus().iter().map(|cpu| cpu.id).collect::<CpuSet>()];
        let finest = levels.first().map_or(&everything[..], |level| &level.islands[..]);
        let cache_of = self.spread(finest, latencies);
        facts.cpus.iter_mut().for_each(|cpu| cpu.cache = Some(cache_of[&cpu.id]));
        self.set_sockets(&levels, &cache_of, latencies, &mut facts);
        facts.provenance.retain(|provenance| provenance.fact != Fact::Caches);
        facts.came_from(Fact::Caches, describe_levels(&levels));
        let machine = build(facts).expect("a machine has a processing unit");
        machine.with_latencies(latencies.clone(), "measured round trips")
    }

    /// The facts this machine was built from, without its caches.
    fn facts_again(&self) -> Facts {
        let core_of = |cpu: &Cpu| self.cores()[cpu.core.index()].cpus.first().map(|first| first.0);
        let facts_of = |cpu: &Cpu| CpuFacts {
            id: cpu.id,
            socket: Some(cpu.socket),
            node: Some(cpu.node),
            cache: None,
            core: core_of(cpu),
        };
        let mut refusals = Refusals::default();
        for refusal in self.refused() {
            refusals.keep(refusal.clone());
        }
        Facts {
            name: self.parts.name.clone(),
            cpus: self.cpus().iter().map(facts_of).collect(),
            offline: self.parts.offline.clone(),
            usable: self.parts.usable.clone(),
            nodes: self.parts.nodes.clone(),
            slit: self.parts.slit.clone(),
            cpu_quota: self.parts.cpu_quota,
            provenance: self.parts.provenance.clone(),
            refusals,
            ..Facts::new(self.parts.origin.clone())
        }
    }

    fn is_within_cores(&self, level: &DerivedLevel) -> bool {
        let one_core = |island: &CpuSet| {
            let mut cores = island.iter().filter_map(|cpu| self.cpu(cpu)).map(|cpu| cpu.core);
            let first = cores.next();
            cores.all(|core| Some(core) == first)
        };
        level.islands.iter().all(one_core)
    }

    fn lacks_smt(&self) -> bool {
        self.cores().iter().all(|core| core.cpus.len() == 1)
    }

    /// Gives every processing unit a group: that of its island, or for one that was not measured that of the first
    /// measured one of its core, else of its described L3 island, node, socket, machine.
    fn spread(&self, islands: &[CpuSet], latencies: &LatencyMatrix) -> BTreeMap<CpuId, u32> {
        let mut group_of = BTreeMap::new();
        for (group, island) in (0..).zip(islands) {
            group_of.extend(island.iter().map(|cpu| (cpu, group)));
        }
        let measured: Vec<&Cpu> = latencies.cpus().iter().filter_map(|&cpu| self.cpu(cpu)).collect();
        let mut neighbour: BTreeMap<(Option<Level>, u32), u32> = BTreeMap::new();
        let keys = |cpu: &Cpu| {
            let core = (None, cpu.core.0);
            std::iter::once(core).chain(Level::ALL.map(|level| (Some(level), cpu.islands[level.index()].0)))
        };
        for cpu in measured {
            for key in keys(cpu) {
                neighbour.entry(key).or_insert(group_of[&cpu.id]);
            }
        }
        for cpu in self.cpus() {
            let near = keys(cpu).find_map(|key| neighbour.get(&key).copied());
            group_of.entry(cpu.id).or_insert(near.unwrap_or(0));
        }
        group_of
    }

    fn set_sockets(
        &self,
        levels: &[&DerivedLevel],
        cache_of: &BTreeMap<CpuId, u32>,
        latencies: &LatencyMatrix,
        facts: &mut Facts,
    ) {
        let described = self.islands(Level::Socket).count();
        let mut socket_of_cache: BTreeMap<u32, SocketId> = BTreeMap::new();
        let crossed = self
            .cpus()
            .iter()
            .any(|cpu| *socket_of_cache.entry(cache_of[&cpu.id]).or_insert(cpu.socket) != cpu.socket);
        if levels.len() == 1 && !crossed {
            return;
        }
        let socket_of = match levels {
            [_, .., coarsest] => self.spread(&coarsest.islands, latencies),
            _ => self.cpus().iter().map(|cpu| (cpu.id, 0)).collect(),
        };
        let same_partition = self.same_partition(&socket_of);
        if same_partition {
            return;
        }
        facts.cpus.iter_mut().for_each(|cpu| cpu.socket = Some(SocketId(socket_of[&cpu.id])));
        facts.provenance.retain(|provenance| provenance.fact != Fact::Sockets);
        facts.came_from(Fact::Sockets, describe_levels(levels));
        let count = socket_of.values().collect::<std::collections::BTreeSet<_>>().len();
        facts.refusals.note(
            "measured-sockets",
            "the system",
            format!("describes {described} sockets, but round trips show {count}, which is believed"),
        );
    }

    /// Returns whether groups are exactly the described sockets.
    fn same_partition(&self, group_of: &BTreeMap<CpuId, u32>) -> bool {
        let (mut socket_of_group, mut group_of_socket) = (BTreeMap::new(), BTreeMap::new());
        self.cpus().iter().all(|cpu| {
            let group = group_of[&cpu.id];
            *socket_of_group.entry(group).or_insert(cpu.socket) == cpu.socket
                && *group_of_socket.entry(cpu.socket).or_insert(group) == group
        })
    }
}

fn describe_levels(levels: &[&DerivedLevel]) -> String {
    let counts: Vec<String> = levels.iter().map(|level| level.islands.len().to_string()).collect();
    match counts.as_slice() {
        [] => "derived: measured round trips show no border between cores".to_owned(),
        counts => {
            format!("derived: measured round trips show {} islands, from fine to coarse", counts.join(" in "))
        }
    }
}
