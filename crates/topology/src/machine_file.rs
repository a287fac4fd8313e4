//! Machine files: a machine written down in TOML, with the round trips that were measured on it.
//!
//! Owns: the format, reading and writing. Never: believes a file in part; a contradiction is an error.
//!
//! ```toml
//! name = "two chiplets"              # optional
//! cpu_quota = 6.0                    # optional, in cores' worth
//! usable = "0-6"                     # optional: the cpus that may be used; all, when left out
//!
//! # Either a description in the synthetic notation ...
//! synthetic = "pack:1 numa:1(memory=64GiB) l3:2 core:4 pu:1"
//!
//! # ... or every L3 island, with the sockets and memory nodes they are on ...
//! [[island]]
//! cpus = "0-3"                       # the kernel's list notation
//! node = 0                           # optional: 0
//! socket = 0                         # optional: the number of the node
//!
//! # ... or neither: then the islands are derived from the latency matrix.
//!
//! [[node]]                           # optional, with [[island]]
//! id = 0
//! memory = "64GiB"                   # or a number of bytes
//!
//! [smt]                              # optional, with [[island]]
//! cores = ["0,4", "1,5"]             # SMT siblings; every other cpu is a core of its own
//!
//! [distances]                        # optional, with [[island]]: relative node distances, 10 is local
//! nodes = [0, 1]
//! matrix = [[10, 21], [21, 10]]
//!
//! [latency]                          # optional, with [[island]] or synthetic
//! cpus = [0, 1, 2]                   # the cpu of each row
//! ns = [[0, 42, 120], [42, 0, 118], [120, 118, 0]]   # round trips in nanoseconds; nan: not measured
//! ```
//!
//! Invariant: what [`report::to_toml`](crate::report::to_toml) writes for a machine is read back as the same machine.

use crate::build::build;
use crate::cpuset::CpuSet;
use crate::error::TopologyError;
use crate::facts::{CpuFacts, Fact, Facts, MemoryNode, Origin, check_slit};
use crate::ids::{CpuId, NodeId, SocketId};
use crate::latency::LatencyMatrix;
use crate::machine::Machine;
use crate::synthetic::parse_bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MachineFile {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_quota: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usable: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) synthetic: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) island: Vec<IslandEntry>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) node: Vec<NodeEntry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) smt: Option<SmtEntry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) distances: Option<DistancesEntry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) latency: Option<LatencyEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct IslandEntry {
    pub(crate) cpus: String,
    #[serde(default)]
    pub(crate) node: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) socket: Option<u32>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeEntry {
    pub(crate) id: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// A number of bytes, or a text with a unit.
    pub(crate) memory: Option<toml::Value>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SmtEntry {
    pub(crate) cores: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DistancesEntry {
    pub(crate) nodes: Vec<u32>,
    pub(crate) matrix: Vec<Vec<u32>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LatencyEntry {
    pub(crate) cpus: Vec<u32>,
    pub(crate) ns: Vec<Vec<f64>>,
}

impl Machine {
    /// Reads a machine file. See the module's description, repeated in the repository's example files, for the format.
    /// `path` is for messages and for [`origin`](Self::origin) only.
    ///
    /// # Errors
    /// [`TopologyError::MachineFile`] with one sentence about the first mistake, naming its place.
    pub fn from_toml(text: &str, path: &Path) -> Result<Self, TopologyError> {
        read(text, path).map_err(|message| TopologyError::MachineFile { path: path.to_path_buf(), message })
    }
}

fn read(text: &str, path: &Path) -> Result<Machine, String> {
    // The parser's message has several lines, with the offending one quoted; a sentence has one.
    let file: MachineFile = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].lines().count().max(1));
        format!("line {line}: {}", error.message().replace('\n', " "))
    })?;
    let latencies = file.latency.as_ref().map(read_latencies).transpose()?;
    let machine = match (&file.synthetic, file.island.is_empty()) {
        (Some(_), false) => return Err("it has both `synthetic` and [[island]]; keep one of them".to_owned()),
        (Some(text), true) => {
            if !file.node.is_empty() || file.smt.is_some() || file.distances.is_some() {
                return Err(
                    "[[node]], [smt] and [distances] go with [[island]]; with `synthetic`, write them there"
                        .to_owned(),
                );
            }
            let mut machine = Machine::synthetic(text).map_err(|error| error.to_string())?;
            machine.parts.name = file.name.clone();
            machine.parts.cpu_quota = read_quota(file.cpu_quota)?;
            machine
        }
        (None, false) => from_islands(&file, path)?,
        (None, true) => from_latencies(&file, path, latencies.as_ref())?,
    };
    let mut machine = restrict(machine, &file)?;
    machine.parts.origin = Origin::MachineFile(path.to_path_buf());
    match latencies {
        Some(latencies) if file.synthetic.is_some() || !file.island.is_empty() => machine
            .with_latencies(latencies, "the machine file")
            .map_err(|error| format!("[latency] does not fit: {error}")),
        _ => Ok(machine),
    }
}

fn read_latencies(entry: &LatencyEntry) -> Result<LatencyMatrix, String> {
    let cpus: Vec<CpuId> = entry.cpus.iter().map(|&cpu| CpuId(cpu)).collect();
    LatencyMatrix::new(&cpus, &entry.ns).map_err(|error| format!("[latency] is contradictory: {error}"))
}

fn read_quota(quota: Option<f64>) -> Result<Option<f64>, String> {
    match quota {
        Some(quota) if !(quota.is_finite() && quota > 0.0) => {
            Err(format!("`cpu_quota` is {quota}; give a positive number of cores, or leave it out"))
        }
        quota => Ok(quota),
    }
}

fn read_cpus(text: &str, place: &str) -> Result<CpuSet, String> {
    let cpus = CpuSet::parse_list(text).map_err(|error| format!("{place} {error}"))?;
    if cpus.is_empty() { Err(format!("{place} is empty; name at least one cpu")) } else { Ok(cpus) }
}

fn from_islands(file: &MachineFile, path: &Path) -> Result<Machine, String> {
    let mut facts = Facts::new(Origin::MachineFile(path.to_path_buf()));
    let source = format!("[[island]] of {}", path.display());
    facts.name.clone_from(&file.name);
    facts.cpu_quota = read_quota(file.cpu_quota)?;
    let mut island_of: BTreeMap<CpuId, usize> = BTreeMap::new();
    for (index, island) in file.island.iter().enumerate() {
        let place = format!("`cpus` of [[island]] number {}", index + 1);
        for cpu in read_cpus(&island.cpus, &place)?.iter() {
            if let Some(first) = island_of.insert(cpu, index) {
                return Err(format!(
                    "{cpu} is in [[island]] number {} and in number {}; put it into one of them",
                    first + 1,
                    index + 1
                ));
            }
            facts.cpus.push(CpuFacts {
                socket: Some(SocketId(island.socket.unwrap_or(island.node))),
                node: Some(NodeId(island.node)),
                cache: u32::try_from(index).ok(),
                ..CpuFacts::unknown(cpu)
            });
        }
    }
    facts.usable = facts.cpus.iter().map(|cpu| cpu.id).collect();
    read_cores(file, &island_of, &mut facts)?;
    read_nodes(file, &mut facts)?;
    for fact in [Fact::Cpus, Fact::Caches, Fact::Nodes, Fact::Sockets] {
        facts.came_from(fact, source.as_str());
    }
    build(facts).ok_or_else(|| "it describes no cpu; add an [[island]]".to_owned())
}

fn read_cores(
    file: &MachineFile,
    island_of: &BTreeMap<CpuId, usize>,
    facts: &mut Facts,
) -> Result<(), String> {
    let Some(smt) = &file.smt else {
        facts.came_from(Fact::Cores, "assumed: every cpu is a core, no [smt] is described");
        return Ok(());
    };
    let mut core_of: BTreeMap<CpuId, u32> = BTreeMap::new();
    for (core, text) in (0u32..).zip(&smt.cores) {
        let siblings =
            read_cpus(text, &format!("entry `{}` of `cores` in [smt]", crate::cpuset::shown(text)))?;
        let mut island = None;
        for cpu in siblings.iter() {
            let Some(&own) = island_of.get(&cpu) else {
                return Err(format!("[smt] names {cpu}, which no [[island]] has; name only cpus of islands"));
            };
            if *island.get_or_insert(own) != own {
                return Err(format!(
                    "[smt] joins cpus {siblings} of different islands to one core; siblings share one"
                ));
            }
            if core_of.insert(cpu, core).is_some() {
                return Err(format!("[smt] names {cpu} twice; a cpu is part of one core"));
            }
        }
    }
    for cpu in &mut facts.cpus {
        cpu.core = core_of.get(&cpu.id).copied();
    }
    facts.came_from(Fact::Cores, "[smt]");
    Ok(())
}

fn read_nodes(file: &MachineFile, facts: &mut Facts) -> Result<(), String> {
    for node in &file.node {
        if facts.nodes.iter().any(|known| known.id.0 == node.id) {
            return Err(format!("[[node]] {} is there twice; describe each node once", node.id));
        }
        let memory_bytes = node.memory.as_ref().map(|memory| read_memory(memory, node.id)).transpose()?;
        facts.nodes.push(MemoryNode { id: NodeId(node.id), memory_bytes });
    }
    // Nodes that only islands name.
    for id in facts.cpus.iter().filter_map(|cpu| cpu.node).collect::<std::collections::BTreeSet<_>>() {
        if !facts.nodes.iter().any(|known| known.id == id) {
            facts.nodes.push(MemoryNode { id, memory_bytes: None });
        }
    }
    facts.nodes.sort_by_key(|node| node.id);
    if facts.nodes.iter().any(|node| node.memory_bytes.is_some()) {
        facts.came_from(Fact::Memory, "[[node]]");
    }
    let Some(distances) = &file.distances else { return Ok(()) };
    let mut named: Vec<u32> = distances.nodes.clone();
    named.sort_unstable();
    if named != facts.nodes.iter().map(|node| node.id.0).collect::<Vec<_>>() {
        return Err("`nodes` of [distances] must name every memory node once".to_owned());
    }
    check_slit(&distances.matrix, named.len()).map_err(|why| format!("the [distances] {why}"))?;
    let position = |id: u32| distances.nodes.iter().position(|&node| node == id).unwrap_or(0);
    let row = |a: &u32| named.iter().map(|b| distances.matrix[position(*a)][position(*b)]).collect();
    facts.slit = Some(named.iter().map(row).collect());
    facts.came_from(Fact::NodeDistances, "[distances]");
    Ok(())
}

fn read_memory(memory: &toml::Value, node: u32) -> Result<u64, String> {
    let bytes = match memory {
        toml::Value::Integer(bytes) => u64::try_from(*bytes).ok(),
        toml::Value::String(text) => parse_bytes(text),
        _ => None,
    };
    let shown = crate::cpuset::shown(&memory.to_string());
    bytes.ok_or_else(|| {
        format!("`memory` of [[node]] {node} is {shown}; give a number of bytes or a text as \"64GiB\"")
    })
}

fn from_latencies(
    file: &MachineFile,
    path: &Path,
    latencies: Option<&LatencyMatrix>,
) -> Result<Machine, String> {
    let Some(latencies) = latencies else {
        return Err("it describes no machine; add `synthetic`, [[island]] or [latency]".to_owned());
    };
    if !file.node.is_empty() || file.smt.is_some() || file.distances.is_some() {
        return Err(
            "[[node]], [smt] and [distances] go with [[island]]; add islands or leave them out".to_owned()
        );
    }
    let mut facts = Facts::new(Origin::MachineFile(path.to_path_buf()));
    facts.name.clone_from(&file.name);
    facts.cpu_quota = read_quota(file.cpu_quota)?;
    let unknown = |&cpu: &CpuId| CpuFacts {
        node: Some(NodeId(0)),
        socket: Some(SocketId(0)),
        ..CpuFacts::unknown(cpu)
    };
    facts.cpus = latencies.cpus().iter().map(unknown).collect();
    if let Some(cpu) = facts.cpus.iter().find(|cpu| cpu.id.0 >= crate::cpuset::CPU_COUNT_MAX) {
        return Err(format!("[latency] names {}, beyond the largest believable number", cpu.id));
    }
    facts.usable = facts.cpus.iter().map(|cpu| cpu.id).collect();
    facts.came_from(Fact::Cpus, "[latency]");
    let flat = build(facts).ok_or_else(|| "[latency] names no cpu".to_owned())?;
    let mut machine = flat.with_measured_islands(latencies).map_err(|error| error.to_string())?;
    // The one socket of the flat machine was assumed here, not said by anyone.
    machine.parts.refused.clear();
    Ok(machine)
}

fn restrict(machine: Machine, file: &MachineFile) -> Result<Machine, String> {
    let Some(text) = &file.usable else { return Ok(machine) };
    let usable = read_cpus(text, "`usable`")?;
    match usable.iter().find(|&cpu| machine.cpu(cpu).is_none()) {
        Some(cpu) => {
            Err(format!("`usable` names {cpu}, which the machine does not have; name only its cpus"))
        }
        None => Ok(machine.restricted_to(&usable, "`usable` of the machine file")),
    }
}
