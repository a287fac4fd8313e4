//! A machine as a machine file, for instance to keep what was measured.
//!
//! Owns: which parts of a machine go into which entry. Never: the format, which is `machine_file`'s.

use crate::machine::{Level, Machine};
use crate::machine_file::{DistancesEntry, IslandEntry, LatencyEntry, MachineFile, NodeEntry, SmtEntry};

/// The machine in the format of machine files. Read back by [`Machine::from_toml`] it has the same islands, cores, nodes,
/// distances, usable processing units and quota; only the provenance is another.
#[must_use]
pub fn to_toml(machine: &Machine) -> String {
    let list =
        |cpus: &[crate::ids::CpuId]| cpus.iter().copied().collect::<crate::cpuset::CpuSet>().to_string();
    let islands = machine.islands(Level::L3).map(|island| IslandEntry {
        cpus: island.cpus.to_string(),
        node: island.node.map_or(0, |node| node.0),
        socket: island.socket.map(|socket| socket.0),
    });
    let nodes = machine.nodes().iter().map(|node| NodeEntry {
        id: node.id.0,
        // TOML's integers are signed; an amount beyond them is written as text.
        memory: node.memory_bytes.map(|bytes| match i64::try_from(bytes) {
            Ok(bytes) => toml::Value::Integer(bytes),
            Err(_) => toml::Value::String(bytes.to_string()),
        }),
    });
    let siblings: Vec<String> =
        machine.cores().iter().filter(|core| core.cpus.len() > 1).map(|core| list(&core.cpus)).collect();
    let node_ids: Vec<_> = machine.nodes().iter().map(|node| node.id).collect();
    let all_usable = machine.usable_cpus().len() == machine.cpus().len();
    let file = MachineFile {
        name: machine.name().map(str::to_owned),
        cpu_quota: machine.cpu_quota(),
        usable: (!all_usable).then(|| machine.usable_cpus().to_string()),
        synthetic: None,
        island: islands.collect(),
        node: nodes.collect(),
        smt: (!siblings.is_empty()).then_some(SmtEntry { cores: siblings }),
        distances: machine.has_node_distances().then(|| DistancesEntry {
            nodes: node_ids.iter().map(|node| node.0).collect(),
            matrix: node_ids
                .iter()
                .map(|&a| node_ids.iter().map(|&b| machine.node_distance(a, b).unwrap_or(10)).collect())
                .collect(),
        }),
        latency: machine.latencies().map(|latencies| LatencyEntry {
            cpus: latencies.cpus().iter().map(|cpu| cpu.0).collect(),
            ns: (0..latencies.len())
                .map(|row| (0..latencies.len()).map(|column| entry(latencies, row, column)).collect())
                .collect(),
        }),
    };
    toml::to_string(&file).expect("a machine file holds only numbers, texts and lists of them")
}

/// An entry of the matrix as the file has it: 0 on the diagonal, nan where not measured.
fn entry(latencies: &crate::latency::LatencyMatrix, row: usize, column: usize) -> f64 {
    if row == column { 0.0 } else { latencies.at(row, column).unwrap_or(f64::NAN) }
}
