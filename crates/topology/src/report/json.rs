//! A machine as one JSON object for programs.
//!
//! Owns: the keys. Never: drops or folds anything, unlike the tree for people.
//!
//! Invariants: lists of processing units are numbers in ascending order; absent knowledge is `null`; bytes, nanoseconds
//! and counts carry their unit in the key.

use super::tree::{distance_range, occurring};
use crate::cpuset::CpuSet;
use crate::ids::IslandId;
use crate::machine::{Level, Machine};
use serde_json::{Value, json};

/// The machine as one JSON object, with these keys:
/// `origin` {`kind`, `from`}, `name`, `cpus`, `usable_cpus`, `offline_cpus` (numbers), `cpu_quota`, `default_workers`,
/// `placement` (the order in which workers take cpus), `memory_bytes`, `cores` [{`core`, `cpus`, `island`}], `nodes`
/// [{`id`, `memory_bytes`}], `node_distances` (rows in the order of `nodes`, or null), `island_counts` {`l3`, `node`,
/// `socket`}, `islands` (the machine with `island`, `level`, `socket`, `node`, `cpus` and nested `children`), `distances`
/// [{`relation`, `min`, `max`, `median_ns`}], `distance_unit_ns`, `latency` {`cpus`, `ns`} or null, `provenance`
/// [{`fact`, `source`}], `refused` (sentences).
#[must_use]
pub fn to_json(machine: &Machine) -> Value {
    let nodes = machine.nodes();
    let row = |a: &crate::facts::MemoryNode| -> Vec<Option<u32>> {
        nodes.iter().map(|b| machine.node_distance(a.id, b.id)).collect()
    };
    let cores: Vec<Value> = machine
        .cores()
        .iter()
        .map(|core| json!({ "core": core.id, "cpus": core.cpus, "island": core.island }))
        .collect();
    let distances: Vec<Value> = occurring(machine)
        .into_iter()
        .map(|relation| {
            let range = distance_range(machine, relation);
            json!({
                "relation": relation,
                "min": range.map(|range| range.0),
                "max": range.map(|range| range.1),
                "median_ns": machine.median_latency_ns(relation),
            })
        })
        .collect();
    let latency = machine.latencies().map(|latencies| {
        let rows: Vec<Vec<Option<f64>>> = (0..latencies.len())
            .map(|row| (0..latencies.len()).map(|column| latencies.at(row, column)).collect())
            .collect();
        json!({ "cpus": latencies.cpus(), "ns": rows })
    });
    let cpus: CpuSet = machine.cpus().iter().map(|cpu| cpu.id).collect();
    json!({
        "origin": machine.origin(),
        "name": machine.name(),
        "cpus": numbers(&cpus),
        "usable_cpus": numbers(machine.usable_cpus()),
        "offline_cpus": numbers(machine.offline_cpus()),
        "cpu_quota": machine.cpu_quota(),
        "default_workers": machine.default_workers(),
        "placement": machine.placement(machine.usable_cpus().len()),
        "memory_bytes": machine.memory_bytes(),
        "cores": cores,
        "nodes": nodes,
        "node_distances": machine.has_node_distances().then(|| nodes.iter().map(row).collect::<Vec<_>>()),
        "island_counts": {
            "l3": machine.islands(Level::L3).count(),
            "node": machine.islands(Level::Node).count(),
            "socket": machine.islands(Level::Socket).count(),
        },
        "islands": island(machine, IslandId(0)),
        "distances": distances,
        "distance_unit_ns": machine.distance_unit_ns(),
        "latency": latency,
        "provenance": machine.provenance(),
        "refused": machine.refused().iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

fn numbers(cpus: &CpuSet) -> Vec<u32> {
    cpus.iter().map(|cpu| cpu.0).collect()
}

fn island(machine: &Machine, id: IslandId) -> Value {
    let this = &machine.all_islands()[id.index()];
    let children: Vec<Value> = this.children.iter().map(|&child| island(machine, child)).collect();
    json!({
        "island": this.id,
        "level": this.level,
        "socket": this.socket,
        "node": this.node,
        "cpus": numbers(&this.cpus),
        "children": children,
    })
}
