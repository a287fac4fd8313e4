//! Statements of a source about a machine, before it is a machine: the common input of every reader.
//!
//! Owns: [`Facts`], and the two lists a reader keeps for people: where facts came from ([`Provenance`]) and what it did
//! not believe ([`Refusal`]). Never: reads anything, nor decides how contradictions are resolved (`build` does).

use crate::cpuset::CpuSet;
use crate::ids::{CpuId, NodeId, SocketId};
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;

/// Kinds of sources from which a machine is read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", content = "from", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Origin {
    /// The machine this process runs on, read from the files below a root directory.
    Live(PathBuf),
    /// A description in hwloc's synthetic notation. Its processing units need not exist here.
    Synthetic(String),
    /// A machine file in TOML.
    MachineFile(PathBuf),
    /// An hwloc XML file.
    HwlocXml(PathBuf),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Live(_) => f.write_str("this machine"),
            Self::Synthetic(text) => write!(f, "synthetic \"{text}\""),
            Self::MachineFile(path) => write!(f, "machine file {}", path.display()),
            Self::HwlocXml(path) => write!(f, "hwloc file {}", path.display()),
        }
    }
}

/// A kind of fact about a machine, for saying where it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Fact {
    /// Processing units that exist and are online.
    Cpus,
    /// Processing units that are SMT siblings of one core.
    Cores,
    /// Cores that share a last-level cache.
    Caches,
    /// Cores that are near a memory node.
    Nodes,
    /// Memory of each node.
    Memory,
    /// Cores that are on one socket.
    Sockets,
    /// The relative distances of memory nodes.
    NodeDistances,
    /// Processing units that this process may use.
    UsableCpus,
    /// Processor time that this process may use.
    CpuQuota,
    /// Measured core-to-core round trips.
    Latencies,
    /// Formation of islands from what is known.
    Islands,
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpus => "cpus",
            Self::Cores => "cores",
            Self::Caches => "caches",
            Self::Nodes => "memory nodes",
            Self::Memory => "memory",
            Self::Sockets => "sockets",
            Self::NodeDistances => "node distances",
            Self::UsableCpus => "usable cpus",
            Self::CpuQuota => "cpu quota",
            Self::Latencies => "latencies",
            Self::Islands => "islands",
        })
    }
}

/// The source of a fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Provenance {
    /// The fact. Written by the reader of the source.
    pub fact: Fact,
    /// The file, file pattern, rule or description it came from.
    pub source: String,
}

/// A statement of a source that was rejected. Its `Display` is one sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// The file or the part of the description, without the root directory.
    pub what: String,
    /// The statement, the reason for which it is rejected, and what is assumed instead.
    pub reason: String,
    /// Number of further statements that were rejected for the same kind of reason.
    pub more: usize,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.what, self.reason)?;
        match self.more {
            0 => Ok(()),
            1 => write!(f, " (and another one like it)"),
            more => write!(f, " (and {more} more like it)"),
        }
    }
}

/// The refusals of one reading, folded: a machine with a thousand absurd files gives one line, not a thousand.
#[derive(Debug, Clone, Default)]
pub(crate) struct Refusals {
    list: Vec<(&'static str, Refusal)>,
}

impl Refusals {
    /// Notes a refusal. Those of one `kind` are folded into the first of them.
    pub(crate) fn note(&mut self, kind: &'static str, what: impl Into<String>, reason: impl Into<String>) {
        match self.list.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, first)) => first.more += 1,
            None => self.list.push((kind, Refusal { what: what.into(), reason: reason.into(), more: 0 })),
        }
    }

    /// Takes over a refusal of an earlier reading as it is.
    pub(crate) fn keep(&mut self, refusal: Refusal) {
        self.list.push(("", refusal));
    }

    pub(crate) fn into_list(self) -> Vec<Refusal> {
        self.list.into_iter().map(|(_, refusal)| refusal).collect()
    }
}

/// Facts about one online processing unit. Group numbers only need to be equal within a group.
#[derive(Debug, Clone)]
pub(crate) struct CpuFacts {
    pub(crate) id: CpuId,
    pub(crate) socket: Option<SocketId>,
    pub(crate) node: Option<NodeId>,
    pub(crate) cache: Option<u32>,
    pub(crate) core: Option<u32>,
}

impl CpuFacts {
    pub(crate) fn unknown(id: CpuId) -> Self {
        Self { id, socket: None, node: None, cache: None, core: None }
    }
}

/// A memory node, whether or not it has processing units.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemoryNode {
    /// The operating system's number.
    pub id: NodeId,
    /// Memory of the node in bytes; 0 for a memory-less node, `None` when not known.
    pub memory_bytes: Option<u64>,
}

/// Everything that a reader found out.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) origin: Origin,
    pub(crate) name: Option<String>,
    pub(crate) cpus: Vec<CpuFacts>,
    pub(crate) offline: CpuSet,
    pub(crate) usable: CpuSet,
    pub(crate) nodes: Vec<MemoryNode>,
    /// Relative distances in the order of `nodes`, 10 being local; checked by the reader.
    pub(crate) slit: Option<Vec<Vec<u32>>>,
    pub(crate) cpu_quota: Option<f64>,
    pub(crate) provenance: Vec<Provenance>,
    pub(crate) refusals: Refusals,
}

impl Facts {
    pub(crate) fn new(origin: Origin) -> Self {
        Self {
            origin,
            name: None,
            cpus: Vec::new(),
            offline: CpuSet::new(),
            usable: CpuSet::new(),
            nodes: Vec::new(),
            slit: None,
            cpu_quota: None,
            provenance: Vec::new(),
            refusals: Refusals::default(),
        }
    }

    pub(crate) fn came_from(&mut self, fact: Fact, source: impl Into<String>) {
        self.provenance.push(Provenance { fact, source: source.into() });
    }
}

/// Checks a matrix of relative node distances as firmware gives them (ACPI SLIT: 10 is local, 255 unreachable).
///
/// Returns what is wrong, completing the sentence "the distances ...".
pub(crate) fn check_slit(rows: &[Vec<u32>], nodes: usize) -> Result<(), String> {
    if rows.len() != nodes {
        return Err(format!("have {} rows for {nodes} nodes", rows.len()));
    }
    for (i, row) in rows.iter().enumerate() {
        if row.len() != nodes {
            return Err(format!("have a row of {} entries for {nodes} nodes", row.len()));
        }
        for (j, &distance) in row.iter().enumerate() {
            if i == j && distance != 10 {
                return Err(format!("give {distance} instead of 10 from a node to itself"));
            }
            if i != j && !(10..=254).contains(&distance) {
                return Err(format!(
                    "give {distance}, which is not between 10 and 254, from one node to another"
                ));
            }
            if rows[j].get(i) != Some(&distance) {
                return Err("are not the same in both directions".to_owned());
            }
        }
    }
    Ok(())
}
