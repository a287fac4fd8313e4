//! Construction of a machine from facts: fills in what is not known, resolves what contradicts, and numbers cores and
//! islands.
//!
//! Owns: the rules by which islands nest. Never: reads a source.
//!
//! The rules, in order:
//! 1. A processing unit whose socket is not known goes where its memory node's others are, else to the lowest socket.
//!    When no socket is known at all, every memory node counts as a socket.
//! 2. A processing unit whose memory node is not known goes where its socket's others are, else to the lowest node.
//!    When no node is known at all, there is one node.
//! 3. Islands nest: L3 within memory node within socket within machine. A cache or node that reaches over the border of
//!    the next level is cut there: the border costs time whether or not a cache reaches over it (sub-NUMA clustering,
//!    for one, has caches that span nodes). Both parts of a cut node keep its memory.
//! 4. Processing units of a node whose cache is not known form one cache island together.
//! 5. SMT siblings in different islands are contradictory: each becomes a core of its own.

use crate::facts::{CpuFacts, Fact, Facts, MemoryNode, Provenance};
use crate::ids::{CoreId, CpuId, IslandId, NodeId, SocketId};
use crate::machine::{Core, Cpu, Island, LEVEL_COUNT, Level, Machine};
use std::collections::{BTreeMap, BTreeSet};

/// A processing unit with nothing left open. The derived order is the order of islands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Placed {
    socket: SocketId,
    node: NodeId,
    cache: CacheKey,
    core: CoreKey,
    id: CpuId,
}

/// A cache island is ordered by its smallest processing unit.
type CacheKey = CpuId;
/// A core is ordered by its smallest processing unit.
type CoreKey = CpuId;

/// Builds the machine. Without any processing unit there is nothing to build: `None`.
pub(crate) fn build(mut facts: Facts) -> Option<Machine> {
    facts.cpus.sort_by_key(|cpu| cpu.id);
    facts.cpus.dedup_by_key(|cpu| cpu.id);
    if facts.cpus.is_empty() {
        return None;
    }
    fill_in_sockets_and_nodes(&mut facts);
    let placed = place(&mut facts);
    Some(number(facts, &placed))
}

fn fill_in_sockets_and_nodes(facts: &mut Facts) {
    if facts.cpus.iter().all(|cpu| cpu.node.is_none()) {
        let node = facts.nodes.first().map_or(NodeId(0), |node| node.id);
        facts.cpus.iter_mut().for_each(|cpu| cpu.node = Some(node));
        facts.came_from(Fact::Nodes, "assumed: one memory node, none is described");
    }
    if facts.cpus.iter().all(|cpu| cpu.socket.is_none()) {
        let node_of = majority(&facts.cpus, |cpu| cpu.node.map(|node| ((), node)));
        let fallback = node_of.get(&()).copied().unwrap_or(NodeId(0));
        facts.cpus.iter_mut().for_each(|cpu| cpu.socket = Some(SocketId(cpu.node.unwrap_or(fallback).0)));
        facts.came_from(Fact::Sockets, "assumed: every memory node is a socket, none is described");
    }
    let socket_of_node = majority(&facts.cpus, |cpu| Some((cpu.node?, cpu.socket?)));
    let lowest_socket = facts.cpus.iter().filter_map(|cpu| cpu.socket).min().unwrap_or(SocketId(0));
    for cpu in facts.cpus.iter_mut().filter(|cpu| cpu.socket.is_none()) {
        let known = cpu.node.and_then(|node| socket_of_node.get(&node).copied());
        cpu.socket = Some(known.unwrap_or(lowest_socket));
    }
    let node_of_socket = majority(&facts.cpus, |cpu| Some((cpu.socket?, cpu.node?)));
    let lowest_node = facts.cpus.iter().filter_map(|cpu| cpu.node).min().unwrap_or(NodeId(0));
    for cpu in facts.cpus.iter_mut().filter(|cpu| cpu.node.is_none()) {
        let known = cpu.socket.and_then(|socket| node_of_socket.get(&socket).copied());
        cpu.node = Some(known.unwrap_or(lowest_node));
    }
}

/// The most frequent value of every key (the smallest of equally frequent ones).
fn majority<K: Ord, V: Ord + Copy>(
    cpus: &[CpuFacts],
    pair_of: impl Fn(&CpuFacts) -> Option<(K, V)>,
) -> BTreeMap<K, V> {
    let mut counts: BTreeMap<K, BTreeMap<V, usize>> = BTreeMap::new();
    for (key, value) in cpus.iter().filter_map(pair_of) {
        *counts.entry(key).or_default().entry(value).or_default() += 1;
    }
    let winner = |values: BTreeMap<V, usize>| {
        values
            .into_iter()
            .max_by_key(|&(value, count)| (count, std::cmp::Reverse(value)))
            .map(|(value, _)| value)
    };
    counts.into_iter().filter_map(|(key, values)| Some((key, winner(values)?))).collect()
}

/// Cuts caches and cores at the borders of the levels above them.
fn place(facts: &mut Facts) -> Vec<Placed> {
    let location = |cpu: &CpuFacts| (cpu.socket.unwrap_or(SocketId(0)), cpu.node.unwrap_or(NodeId(0)));
    let mut parts_of_cache: BTreeMap<u32, BTreeSet<(SocketId, NodeId)>> = BTreeMap::new();
    let mut sockets_of_node: BTreeMap<NodeId, BTreeSet<SocketId>> = BTreeMap::new();
    let mut smallest_in_cache = BTreeMap::new();
    for cpu in &facts.cpus {
        let place = location(cpu);
        sockets_of_node.entry(place.1).or_default().insert(place.0);
        smallest_in_cache.entry((place, cpu.cache)).or_insert(cpu.id);
        if let Some(cache) = cpu.cache {
            parts_of_cache.entry(cache).or_default().insert(place);
        }
    }
    let mut places_of_core: BTreeMap<u32, BTreeSet<CacheKey>> = BTreeMap::new();
    let mut smallest_in_core = BTreeMap::new();
    for cpu in &facts.cpus {
        if let Some(core) = cpu.core {
            let cache = smallest_in_cache[&(location(cpu), cpu.cache)];
            places_of_core.entry(core).or_default().insert(cache);
            smallest_in_core.entry(core).or_insert(cpu.id);
        }
    }
    let cut_caches = parts_of_cache.values().filter(|parts| parts.len() > 1).count();
    if cut_caches > 0 {
        facts.came_from(
            Fact::Islands,
            format!(
                "{cut_caches} last-level caches reach over a memory node or socket and were cut at its border"
            ),
        );
    }
    let cut_nodes = sockets_of_node.values().filter(|sockets| sockets.len() > 1).count();
    if cut_nodes > 0 {
        facts.came_from(
            Fact::Islands,
            format!("{cut_nodes} memory nodes reach over several sockets and were cut at their borders"),
        );
    }
    for (core, _) in places_of_core.iter().filter(|(_, places)| places.len() > 1) {
        facts.refusals.note(
            "core-across-islands",
            format!("the SMT siblings of {}", smallest_in_core[core]),
            "lie in different islands, so each counts as a core of its own",
        );
    }
    let mut placed: Vec<Placed> = facts
        .cpus
        .iter()
        .map(|cpu| {
            let (socket, node) = location(cpu);
            let core = cpu.core.filter(|core| places_of_core[core].len() == 1);
            Placed {
                socket,
                node,
                cache: smallest_in_cache[&((socket, node), cpu.cache)],
                core: core.map_or(cpu.id, |core| smallest_in_core[&core]),
                id: cpu.id,
            }
        })
        .collect();
    placed.sort();
    placed
}

/// Gives cores and islands their dense numbers, in the order of the sorted processing units.
fn number(facts: Facts, placed: &[Placed]) -> Machine {
    let mut islands: Vec<Island> = Vec::new();
    let mut cores: Vec<Core> = Vec::new();
    let mut cpus: Vec<Cpu> = Vec::with_capacity(placed.len());
    let mut open: [Option<IslandId>; LEVEL_COUNT] = [None; LEVEL_COUNT];
    let mut previous: Option<Placed> = None;
    for &at in placed {
        let same_socket = previous.is_some_and(|before| before.socket == at.socket);
        let same_node = same_socket && previous.is_some_and(|before| before.node == at.node);
        let same_cache = same_node && previous.is_some_and(|before| before.cache == at.cache);
        let continues = [same_cache, same_node, same_socket, previous.is_some()];
        for level in Level::ALL.into_iter().rev().filter(|level| !continues[level.index()]) {
            open[level.index()] =
                Some(open_island(&mut islands, level, level.above().and_then(|up| open[up.index()]), at));
        }
        let path = open.map(|island| island.unwrap_or(IslandId(0)));
        if !(same_cache && previous.is_some_and(|before| before.core == at.core)) {
            cores.push(Core { id: core_id(cores.len()), cpus: Vec::new(), island: path[0] });
        }
        let core = core_id(cores.len() - 1);
        let siblings = &mut cores[core.index()].cpus;
        cpus.push(Cpu {
            id: at.id,
            core,
            smt_rank: u32::try_from(siblings.len()).unwrap_or(u32::MAX),
            socket: at.socket,
            node: at.node,
            islands: path,
        });
        siblings.push(at.id);
        for island in path {
            islands[island.index()].cpus.insert(at.id);
        }
        previous = Some(at);
    }
    finish(facts, cpus, cores, islands)
}

fn open_island(islands: &mut Vec<Island>, level: Level, parent: Option<IslandId>, at: Placed) -> IslandId {
    let id = IslandId(u32::try_from(islands.len()).unwrap_or(u32::MAX));
    if let Some(parent) = parent {
        islands[parent.index()].children.push(id);
    }
    islands.push(Island {
        id,
        level,
        parent,
        children: Vec::new(),
        cpus: crate::cpuset::CpuSet::new(),
        node: (level <= Level::Node).then_some(at.node),
        socket: (level <= Level::Socket).then_some(at.socket),
    });
    id
}

fn core_id(index: usize) -> CoreId {
    CoreId(u32::try_from(index).unwrap_or(u32::MAX))
}

fn finish(facts: Facts, mut cpus: Vec<Cpu>, cores: Vec<Core>, islands: Vec<Island>) -> Machine {
    cpus.sort_by_key(|cpu| cpu.id);
    let all: crate::cpuset::CpuSet = cpus.iter().map(|cpu| cpu.id).collect();
    // Nodes that only the processing units name (one-node machines, descriptions without memory) are nodes too.
    let mut nodes: BTreeMap<NodeId, Option<u64>> = cpus.iter().map(|cpu| (cpu.node, None)).collect();
    let slit_order: Vec<NodeId> = facts.nodes.iter().map(|node| node.id).collect();
    nodes.extend(facts.nodes.into_iter().map(|node| (node.id, node.memory_bytes)));
    let nodes: Vec<MemoryNode> =
        nodes.into_iter().map(|(id, memory_bytes)| MemoryNode { id, memory_bytes }).collect();
    let slit = facts.slit.filter(|_| slit_order.len() == nodes.len()).map(|rows| {
        let position = |id: NodeId| slit_order.iter().position(|&known| known == id).unwrap_or(0);
        let row = |a: &MemoryNode| nodes.iter().map(|b| rows[position(a.id)][position(b.id)]).collect();
        nodes.iter().map(row).collect()
    });
    let mut provenance: Vec<Provenance> = facts.provenance;
    provenance.sort_by_key(|provenance| provenance.fact);
    let usable = facts.usable.intersection(&all);
    Machine::assemble(crate::machine::Parts {
        origin: facts.origin,
        name: facts.name,
        usable: if usable.is_empty() { all } else { usable },
        cpus,
        cores,
        islands,
        nodes,
        slit,
        offline: facts.offline,
        cpu_quota: facts.cpu_quota,
        provenance,
        refused: facts.refusals.into_list(),
    })
}
