//! hwloc XML files, read by hwloc itself (feature `hwloc`).
//!
//! Owns: what hwloc's objects mean here. Never: asks hwloc about the live machine, which the reader of `live` knows, nor
//! writes XML.
//!
//! Invariant: what an hwloc file describes is usable as a whole, like every description.

use crate::build::build;
use crate::cpuset::{CPU_COUNT_MAX, CpuSet};
use crate::error::TopologyError;
use crate::facts::{CpuFacts, Fact, Facts, MemoryNode, Origin, check_slit};
use crate::ids::{CpuId, NodeId, SocketId};
use crate::machine::Machine;
use hwlocality::Topology;
use hwlocality::object::TopologyObject;
use hwlocality::object::attributes::ObjectAttributes;
use hwlocality::object::distance::DistancesKind;
use hwlocality::object::types::ObjectType;
use std::collections::BTreeMap;
use std::path::Path;

impl Machine {
    /// Reads a machine from hwloc's XML, as `lstopo file.xml` writes it. `path` is for messages and for
    /// [`origin`](Self::origin) only. Needs the feature `hwloc`.
    ///
    /// # Errors
    /// [`TopologyError::Hwloc`] with one sentence about what hwloc refuses or what makes no machine.
    pub fn from_hwloc_xml(text: &str, path: &Path) -> Result<Self, TopologyError> {
        let refuse = |message: String| TopologyError::Hwloc { path: path.to_path_buf(), message };
        let not_xml = "hwloc does not read it as a topology; write one with `lstopo file.xml`";
        let topology = Topology::builder()
            .from_xml(text)
            .map_err(|error| refuse(format!("{not_xml} ({error})")))?
            .build()
            .map_err(|error| refuse(format!("{not_xml} ({error})")))?;
        let facts = read(&topology, path).map_err(refuse)?;
        build(facts).ok_or_else(|| TopologyError::Hwloc {
            path: path.to_path_buf(),
            message: "it describes no processing unit".to_owned(),
        })
    }
}

fn read(topology: &Topology, path: &Path) -> Result<Facts, String> {
    let mut facts = Facts::new(Origin::HwlocXml(path.to_path_buf()));
    let source = format!("hwloc file {}", path.display());
    let nodes: Vec<&TopologyObject> = topology.objects_with_type(ObjectType::NUMANode).collect();
    for node in &nodes {
        facts.nodes.push(MemoryNode { id: NodeId(os_number(node)?), memory_bytes: local_memory(node) });
    }
    let pus: Vec<&TopologyObject> = topology.objects_with_type(ObjectType::PU).collect();
    let cache = island_cache_type(&pus);
    let mut shared_ids: BTreeMap<u64, u32> = BTreeMap::new();
    for pu in &pus {
        let number = os_number(pu)?;
        let near = nodes.iter().find(|node| {
            node.cpuset().is_some_and(|cpuset| cpuset.is_set(number as usize))
                && local_memory(node) != Some(0)
        });
        let near = near.or_else(|| {
            nodes.iter().find(|node| node.cpuset().is_some_and(|cpuset| cpuset.is_set(number as usize)))
        });
        // hwloc's persistent indexes are 64 bits wide; groups only need to be told apart.
        let mut group_id = |object: &TopologyObject| {
            let next = u32::try_from(shared_ids.len()).unwrap_or(u32::MAX);
            *shared_ids.entry(object.global_persistent_index()).or_insert(next)
        };
        facts.cpus.push(CpuFacts {
            id: CpuId(number),
            socket: ancestor(pu, ObjectType::Package).map(os_number).transpose()?.map(SocketId),
            node: near.map(|node| os_number(node)).transpose()?.map(NodeId),
            cache: cache.and_then(|cache| ancestor(pu, cache)).map(&mut group_id),
            core: ancestor(pu, ObjectType::Core).map(&mut group_id),
        });
    }
    facts.usable = facts.cpus.iter().map(|cpu| cpu.id).collect();
    facts.offline = offline(topology, &facts.usable);
    for fact in [Fact::Cpus, Fact::Cores, Fact::Nodes, Fact::Memory] {
        facts.came_from(fact, source.as_str());
    }
    if facts.cpus.iter().any(|cpu| cpu.socket.is_some()) {
        facts.came_from(Fact::Sockets, source.as_str());
    }
    facts.came_from(
        Fact::Caches,
        match cache {
            Some(cache) => format!("{cache} of {source}"),
            None => {
                "assumed: the cores of a memory node share a cache, no shared one is described".to_owned()
            }
        },
    );
    read_distances(topology, &nodes, &source, &mut facts)?;
    Ok(facts)
}

fn os_number(object: &TopologyObject) -> Result<u32, String> {
    let number = object.os_index().and_then(|number| u32::try_from(number).ok());
    number
        .filter(|&number| number < CPU_COUNT_MAX || object.object_type() == ObjectType::Package)
        .ok_or_else(|| format!("its {} has no believable os_index", object.object_type()))
}

fn local_memory(node: &TopologyObject) -> Option<u64> {
    match node.attributes() {
        Some(ObjectAttributes::NUMANode(attributes)) => Some(attributes.local_memory().map_or(0, u64::from)),
        _ => None,
    }
}

fn ancestor(object: &TopologyObject, wanted: ObjectType) -> Option<&TopologyObject> {
    object.ancestors().find(|ancestor| ancestor.object_type() == wanted)
}

/// The cache level whose sharing makes islands: 3 where there is one, else the highest that different cores share.
fn island_cache_type(pus: &[&TopologyObject]) -> Option<ObjectType> {
    let exists = |wanted: &ObjectType| pus.iter().any(|pu| ancestor(pu, *wanted).is_some());
    if exists(&ObjectType::L3Cache) {
        return Some(ObjectType::L3Cache);
    }
    let shared = |wanted: &ObjectType| {
        let mut core_of_cache = BTreeMap::new();
        pus.iter().any(|pu| {
            let (Some(cache), Some(core)) = (ancestor(pu, *wanted), ancestor(pu, ObjectType::Core)) else {
                return false;
            };
            let core = core.global_persistent_index();
            *core_of_cache.entry(cache.global_persistent_index()).or_insert(core) != core
        })
    };
    [ObjectType::L5Cache, ObjectType::L4Cache, ObjectType::L2Cache].into_iter().find(shared)
}

fn offline(topology: &Topology, online: &CpuSet) -> CpuSet {
    let complete = topology.complete_cpuset();
    let numbers = complete.iter_set().map(usize::from).take_while(|&number| number < CPU_COUNT_MAX as usize);
    let all: CpuSet = numbers.filter_map(|number| u32::try_from(number).ok()).map(CpuId).collect();
    all.difference(online)
}

fn read_distances(
    topology: &Topology,
    nodes: &[&TopologyObject],
    source: &str,
    facts: &mut Facts,
) -> Result<(), String> {
    let kind = Some(DistancesKind::MEANS_LATENCY);
    let Ok(matrices) = topology.distances_with_type(kind, ObjectType::NUMANode) else { return Ok(()) };
    let Some(matrix) = matrices.iter().find(|matrix| matrix.num_objects() == nodes.len()) else {
        return Ok(());
    };
    let index_of: Option<Vec<usize>> = nodes.iter().map(|node| matrix.object_idx(node)).collect();
    let Some(index_of) = index_of else { return Ok(()) };
    let value = |a: usize, b: usize| matrix.distances()[index_of[a] * nodes.len() + index_of[b]];
    let rows: Vec<Vec<u32>> = (0..nodes.len())
        .map(|a| (0..nodes.len()).map(|b| u32::try_from(value(a, b)).unwrap_or(u32::MAX)).collect())
        .collect();
    check_slit(&rows, nodes.len()).map_err(|why| format!("the distances of its memory nodes {why}"))?;
    facts.slit = Some(rows);
    facts.came_from(Fact::NodeDistances, source);
    Ok(())
}
