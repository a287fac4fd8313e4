//! The machine: processing units, cores, nested islands, memory nodes.
//!
//! Owns: the model and the questions about it that need no judgement. Distances are in `distance`, the choice of
//! processing units for workers in `placement`, the rules by which islands came about in `build`.
//!
//! Never: changes after it is built; a changed machine is a new value, so that plans can be compared.
//!
//! Invariants, for every machine:
//! - there is at least one processing unit, one core, one memory node and one island of every level;
//! - islands nest: each island of a level below the machine lies in exactly one island of the next level, and the
//!   islands of one level together hold every processing unit once;
//! - a core lies in one L3 island; its processing units are listed in SMT order;
//! - the usable processing units are a non-empty subset of all;
//! - [`IslandId`]s number parents before children and neighbours next to each other (depth first).

use crate::cpuset::CpuSet;
use crate::distance::Scale;
use crate::error::LatencyError;
use crate::facts::{Fact, MemoryNode, Origin, Provenance, Refusal};
use crate::ids::{CoreId, CpuId, IslandId, NodeId, SocketId};
use crate::latency::LatencyMatrix;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Number of levels of islands.
pub(crate) const LEVEL_COUNT: usize = 4;

/// A level of islands, ordered from the finest to the coarsest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Cores that share a last-level cache, whatever its number; where none is known, those of a memory node.
    L3,
    /// Cores near one memory (NUMA) node.
    Node,
    /// Cores of one socket (package).
    Socket,
    /// All cores.
    Machine,
}

impl Level {
    /// Every level, from the finest to the coarsest.
    pub const ALL: [Self; LEVEL_COUNT] = [Self::L3, Self::Node, Self::Socket, Self::Machine];

    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// The next coarser level.
    #[must_use]
    pub const fn above(self) -> Option<Self> {
        match self {
            Self::L3 => Some(Self::Node),
            Self::Node => Some(Self::Socket),
            Self::Socket => Some(Self::Machine),
            Self::Machine => None,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::L3 => "L3 island",
            Self::Node => "node",
            Self::Socket => "socket",
            Self::Machine => "machine",
        })
    }
}

/// A processing unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpu {
    /// The operating system's number.
    pub id: CpuId,
    /// The physical core it is part of.
    pub core: CoreId,
    /// Its position among the SMT siblings of the core; 0 is the first.
    pub smt_rank: u32,
    /// The socket it is on.
    pub socket: SocketId,
    /// The nearest memory node.
    pub node: NodeId,
    pub(crate) islands: [IslandId; LEVEL_COUNT],
}

/// A physical core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Core {
    /// Its dense number, in the order of islands.
    pub id: CoreId,
    /// Its processing units in SMT order; never empty.
    pub cpus: Vec<CpuId>,
    /// The L3 island it lies in.
    pub island: IslandId,
}

/// A group of cores that talk to each other fast and to the rest slowly (`Islands §4`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Island {
    /// Its dense number.
    pub id: IslandId,
    /// Its level.
    pub level: Level,
    /// The island of the next coarser level it lies in; `None` for the machine.
    pub parent: Option<IslandId>,
    /// The islands of the next finer level in it, ascending; empty for L3 islands.
    pub children: Vec<IslandId>,
    /// Its processing units; never empty.
    pub cpus: CpuSet,
    /// The memory node it is near, for L3 and node islands. Two node islands on different sockets may share one.
    pub node: Option<NodeId>,
    /// The socket it lies on, for all but the machine.
    pub socket: Option<SocketId>,
}

/// A machine as atrapos sees it.
#[derive(Debug, Clone)]
pub struct Machine {
    pub(crate) parts: Parts,
    /// Position in `parts.cpus` by processing-unit number.
    position: Vec<Option<u32>>,
    latencies: Option<LatencyMatrix>,
    scale: Scale,
}

/// Parts from which a machine is assembled.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    pub(crate) origin: Origin,
    pub(crate) name: Option<String>,
    /// Ascending by number.
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) cores: Vec<Core>,
    pub(crate) islands: Vec<Island>,
    /// Ascending by number.
    pub(crate) nodes: Vec<MemoryNode>,
    pub(crate) slit: Option<Vec<Vec<u32>>>,
    pub(crate) usable: CpuSet,
    pub(crate) offline: CpuSet,
    pub(crate) cpu_quota: Option<f64>,
    pub(crate) provenance: Vec<Provenance>,
    pub(crate) refused: Vec<Refusal>,
}

impl Machine {
    pub(crate) fn assemble(parts: Parts) -> Self {
        let mut position = vec![None; parts.cpus.last().map_or(0, |cpu| cpu.id.index() + 1)];
        for (index, cpu) in parts.cpus.iter().enumerate() {
            position[cpu.id.index()] = u32::try_from(index).ok();
        }
        let mut machine = Self { parts, position, latencies: None, scale: Scale::nominal() };
        machine.scale = Scale::of(&machine);
        machine
    }

    /// The kind of source the machine was read from.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.parts.origin
    }

    /// Returns whether this describes the machine the process runs on, so that threads may be pinned by it.
    #[must_use]
    pub fn is_live(&self) -> bool {
        matches!(self.parts.origin, Origin::Live(_))
    }

    /// The name the description gives the machine; `None` when it gives none.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.parts.name.as_deref()
    }

    /// Every processing unit that is online, ascending by number, whether or not it may be used.
    #[must_use]
    pub fn cpus(&self) -> &[Cpu] {
        &self.parts.cpus
    }

    /// The processing unit with the given number.
    #[must_use]
    pub fn cpu(&self, cpu: CpuId) -> Option<&Cpu> {
        let position = (*self.position.get(cpu.index())?)?;
        self.parts.cpus.get(position as usize)
    }

    /// The physical cores, in the order of islands.
    #[must_use]
    pub fn cores(&self) -> &[Core] {
        &self.parts.cores
    }

    /// The memory nodes ascending by number, those without memory and those without processing units among them.
    #[must_use]
    pub fn nodes(&self) -> &[MemoryNode] {
        &self.parts.nodes
    }

    /// The memory of all nodes in bytes; `None` when that of no node is known.
    #[must_use]
    pub fn memory_bytes(&self) -> Option<u64> {
        let known: Vec<u64> = self.parts.nodes.iter().filter_map(|node| node.memory_bytes).collect();
        if known.is_empty() {
            None
        } else {
            Some(known.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes)))
        }
    }

    /// Every island of every level; the id is the index. The first is the machine.
    #[must_use]
    pub fn all_islands(&self) -> &[Island] {
        &self.parts.islands
    }

    /// The island with the given id; `None` for an id of another machine.
    #[must_use]
    pub fn island(&self, island: IslandId) -> Option<&Island> {
        self.parts.islands.get(island.index())
    }

    /// The islands of a level, neighbours next to each other. There is always at least one.
    pub fn islands(&self, level: Level) -> impl Iterator<Item = &Island> {
        self.parts.islands.iter().filter(move |island| island.level == level)
    }

    /// The island of a level that a processing unit lies in; `None` for one this machine does not have.
    #[must_use]
    pub fn island_of(&self, cpu: CpuId, level: Level) -> Option<IslandId> {
        self.cpu(cpu).map(|cpu| cpu.islands[level.index()])
    }

    /// The finest level at which two processing units lie in one island; `None` when this machine lacks one of them.
    #[must_use]
    pub fn common_level(&self, a: CpuId, b: CpuId) -> Option<Level> {
        let (a, b) = (self.cpu(a)?, self.cpu(b)?);
        Level::ALL.into_iter().find(|level| a.islands[level.index()] == b.islands[level.index()])
    }

    /// The relative distance of two memory nodes as the firmware gives it (ACPI SLIT; 10 is local); `None` when not known.
    #[must_use]
    pub fn node_distance(&self, a: NodeId, b: NodeId) -> Option<u32> {
        let position = |id: NodeId| self.parts.nodes.binary_search_by_key(&id, |node| node.id).ok();
        let slit = self.parts.slit.as_ref()?;
        Some(slit[position(a)?][position(b)?])
    }

    /// Returns whether relative distances of memory nodes are known.
    #[must_use]
    pub fn has_node_distances(&self) -> bool {
        self.parts.slit.is_some()
    }

    /// The measured round trips, when known.
    #[must_use]
    pub fn latencies(&self) -> Option<&LatencyMatrix> {
        self.latencies.as_ref()
    }

    pub(crate) fn scale(&self) -> &Scale {
        &self.scale
    }

    /// The processing units this process may use: online, in the affinity mask and in every cpuset above. Never empty.
    #[must_use]
    pub fn usable_cpus(&self) -> &CpuSet {
        &self.parts.usable
    }

    /// The processing units that exist but are offline.
    #[must_use]
    pub fn offline_cpus(&self) -> &CpuSet {
        &self.parts.offline
    }

    /// Processor time that this process may use, in cores' worth (the tightest quota of the cgroups above it); `None`
    /// without a quota.
    #[must_use]
    pub fn cpu_quota(&self) -> Option<f64> {
        self.parts.cpu_quota
    }

    /// The number of physical cores with at least one usable processing unit.
    #[must_use]
    pub fn usable_core_count(&self) -> usize {
        let usable = |core: &&Core| core.cpus.iter().any(|&cpu| self.parts.usable.contains(cpu));
        self.parts.cores.iter().filter(usable).count()
    }

    /// Number of workers to run unless told otherwise: one per usable physical core, but no more than whole cores'
    /// worth of quota (a busy worker beyond it would only make all of them wait for the next period). At least one.
    #[must_use]
    pub fn default_workers(&self) -> usize {
        let cores = self.usable_core_count();
        let within_quota = match self.parts.cpu_quota {
            // The cast saturates, and a quota beyond the cores does not matter.
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a float-to-integer cast saturates; a quota is never negative"
            )]
            Some(quota) => cores.min(quota as usize),
            None => cores,
        };
        within_quota.max(1)
    }

    /// Sources of the facts, in the order of [`Fact`].
    #[must_use]
    pub fn provenance(&self) -> &[Provenance] {
        &self.parts.provenance
    }

    /// Statements that were rejected, with reasons.
    #[must_use]
    pub fn refused(&self) -> &[Refusal] {
        &self.parts.refused
    }

    /// The same machine with fewer usable processing units: those that `allowed` holds too.
    ///
    /// For running on a described machine by the affinity mask of the real one. `by` says for people what allows them
    /// ("the affinity mask"). When nothing would be left, the restriction is refused and noted in
    /// [`refused`](Self::refused).
    #[must_use]
    pub fn restricted_to(mut self, allowed: &CpuSet, by: &str) -> Self {
        let usable = self.parts.usable.intersection(allowed);
        if usable.is_empty() {
            let reason =
                format!("allows only cpus {allowed}, none of which is usable here, so it is not applied");
            self.parts.refused.push(Refusal { what: by.to_owned(), reason, more: 0 });
        } else if usable != self.parts.usable {
            self.parts.usable = usable;
            self.note_source(Fact::UsableCpus, by);
        }
        self
    }

    /// The same machine with known round trips: [`distance`](Self::distance) is then measured instead of assumed.
    /// Islands stay as they are; see [`with_measured_islands`](Self::with_measured_islands) to derive them anew.
    ///
    /// # Errors
    /// [`LatencyError::UnknownCpu`] when the matrix names a processing unit that this machine does not have.
    pub fn with_latencies(mut self, latencies: LatencyMatrix, source: &str) -> Result<Self, LatencyError> {
        if let Some(&cpu) = latencies.cpus().iter().find(|&&cpu| self.cpu(cpu).is_none()) {
            return Err(LatencyError::UnknownCpu { cpu });
        }
        self.latencies = Some(latencies);
        self.scale = Scale::of(&self);
        self.note_source(Fact::Latencies, source);
        Ok(self)
    }

    fn note_source(&mut self, fact: Fact, source: &str) {
        self.parts.provenance.push(Provenance { fact, source: source.to_owned() });
        self.parts.provenance.sort_by_key(|provenance| provenance.fact);
    }
}
