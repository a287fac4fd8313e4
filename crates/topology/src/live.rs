//! The live machine, from the files of Linux below a root directory.
//!
//! Owns: which file says what, and which sayings are absurd. Never: fails; what cannot be read is filled in by the rules
//! of `build`, what cannot be believed is listed in [`Machine::refused`]. It reads only below the given root, so a test's
//! fixture tree is a complete machine.
//!
//! Read are: `sys/devices/system/cpu` (online, present, topology, cache), `sys/devices/system/node` (cpulist, meminfo,
//! distance), `proc/meminfo`, `proc/cpuinfo` (for the hypervisor flag alone), and the cgroup files of `cgroup`.

use crate::build::build;
use crate::cgroup::read_limits;
use crate::cpuset::{CPU_COUNT_MAX, CpuSet, shown};
use crate::facts::{CpuFacts, Fact, Facts, MemoryNode, Origin, Refusals, check_slit};
use crate::files::Files;
use crate::ids::{CpuId, NodeId, SocketId};
use crate::machine::Machine;
use std::collections::BTreeMap;
use std::path::PathBuf;

mod caches;

use caches::read_caches;

/// More hardware threads per core than this exist nowhere; a longer list of siblings is a virtual machine's invention.
const SMT_SIBLINGS_MAX: usize = 8;
/// Linux has at most 1,024 memory nodes.
const NODE_COUNT_MAX: u32 = 1024;
/// A single memory node of a pebibyte is not believed.
const NODE_MEMORY_BYTES_MAX: u64 = 1 << 50;

/// Nodes' memory and the system's may differ by one part in this many: the kernel keeps some of its own.
const NODE_MEMORY_TOLERANCE: u64 = 8;

const CPU_DIR: &str = "/sys/devices/system/cpu";
const NODE_DIR: &str = "/sys/devices/system/node";

/// Places from which the live machine is read, and limits that the operating system sets this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveOptions {
    /// The directory that `sys` and `proc` are in: `/`, or a fixture tree.
    pub root: PathBuf,
    /// The affinity mask of the process, as the runtime reads it; `None` when it could not be read.
    pub affinity: Option<CpuSet>,
}

impl LiveOptions {
    /// The real machine, with the given affinity mask.
    #[must_use]
    pub fn new(affinity: Option<CpuSet>) -> Self {
        Self { root: PathBuf::from("/"), affinity }
    }
}

impl Machine {
    /// Reads the machine from the files below `options.root`. Always gives a machine: in the worst case one core that
    /// nothing is known about, with the reasons in [`refused`](Self::refused).
    #[must_use]
    pub fn live(options: &LiveOptions) -> Self {
        let files = Files::below(&options.root);
        let mut facts = Facts::new(Origin::Live(options.root.clone()));
        let online = read_online(&files, options.affinity.as_ref(), &mut facts);
        facts.cpus = online.iter().map(CpuFacts::unknown).collect();
        read_sockets(&files, &mut facts);
        read_cores(&files, &online, &mut facts);
        read_nodes(&files, &online, &mut facts);
        read_node_distances(&files, &mut facts);
        read_caches(&files, &online, &mut facts);
        note_virtual_machine(&files, &mut facts);
        read_usable(&files, &online, options.affinity.as_ref(), &mut facts);
        build(facts).expect("the live reader always names a processing unit")
    }
}

fn read_online(files: &Files, affinity: Option<&CpuSet>, facts: &mut Facts) -> CpuSet {
    let present_dirs: CpuSet =
        files.numbered(CPU_DIR, "cpu").into_iter().filter(|&cpu| cpu < CPU_COUNT_MAX).map(CpuId).collect();
    let mut online = read_list(files, &format!("{CPU_DIR}/online"), "online", &mut facts.refusals);
    if let Some(listed) = online.take() {
        let described =
            if present_dirs.is_empty() { listed.clone() } else { listed.intersection(&present_dirs) };
        if described != listed {
            let absent = listed.difference(&described);
            let reason = format!("names cpus {absent}, which have no directory, so they are left out");
            facts.refusals.note("online", format!("{CPU_DIR}/online"), reason);
        }
        online = Some(described).filter(|cpus| !cpus.is_empty());
    }
    let (online, source) = match online {
        Some(online) => (online, format!("{CPU_DIR}/online")),
        None if !present_dirs.is_empty() => {
            let is_online = |cpu: &CpuId| {
                files.read(&format!("{CPU_DIR}/cpu{}/online", cpu.0)).is_none_or(|text| text != "0")
            };
            let online: CpuSet = present_dirs.iter().filter(is_online).collect();
            let online = if online.is_empty() { present_dirs.clone() } else { online };
            (online, format!("the directories {CPU_DIR}/cpuN"))
        }
        None => match affinity.filter(|cpus| !cpus.is_empty()) {
            Some(cpus) => (cpus.clone(), "the affinity mask, no file lists the cpus".to_owned()),
            None => ([CpuId(0)].into_iter().collect(), "assumed: one cpu, nothing lists the cpus".to_owned()),
        },
    };
    facts.came_from(Fact::Cpus, source);
    let present = files.read(&format!("{CPU_DIR}/present")).and_then(|text| CpuSet::parse_list(&text).ok());
    facts.offline = present.unwrap_or(present_dirs).difference(&online);
    online
}

/// A list of cpus; an absurd one is refused. An absent or empty one is `None`.
fn read_list(files: &Files, path: &str, kind: &'static str, refusals: &mut Refusals) -> Option<CpuSet> {
    let text = files.read(path)?;
    match CpuSet::parse_list(&text) {
        Ok(cpus) => Some(cpus).filter(|cpus| !cpus.is_empty()),
        Err(error) => {
            refusals.note(kind, path, format!("{error}, so it is ignored"));
            None
        }
    }
}

fn read_sockets(files: &Files, facts: &mut Facts) {
    let mut any = false;
    for cpu in &mut facts.cpus {
        let path = format!("{CPU_DIR}/cpu{}/topology/physical_package_id", cpu.id.0);
        let Some(text) = files.read(&path) else { continue };
        match text
            .parse::<i64>()
            .ok()
            .and_then(|id| u32::try_from(id).ok())
            .filter(|id| i32::try_from(*id).is_ok())
        {
            Some(id) => {
                cpu.socket = Some(SocketId(id));
                any = true;
            }
            None => facts.refusals.note(
                "package",
                path,
                format!(
                    "says `{}`, which is no socket number, so the socket is that of the memory node",
                    shown(&text)
                ),
            ),
        }
    }
    if any {
        facts.came_from(Fact::Sockets, format!("{CPU_DIR}/cpuN/topology/physical_package_id"));
    }
}

fn read_cores(files: &Files, online: &CpuSet, facts: &mut Facts) {
    let mut claims = BTreeMap::new();
    for cpu in &facts.cpus {
        let directory = format!("{CPU_DIR}/cpu{}/topology", cpu.id.0);
        let newer = read_list(files, &format!("{directory}/core_cpus_list"), "siblings", &mut facts.refusals);
        let list = newer.or_else(|| {
            read_list(files, &format!("{directory}/thread_siblings_list"), "siblings", &mut facts.refusals)
        });
        let Some(list) = list.map(|list| list.intersection(online)) else { continue };
        if list.len() > SMT_SIBLINGS_MAX {
            let reason = format!(
                "says that {} cpus are SMT siblings of one core, so each counts as a core of its own",
                list.len()
            );
            facts.refusals.note("too-many-siblings", directory, reason);
        } else {
            claims.insert(cpu.id, list);
        }
    }
    if claims.is_empty() {
        facts.came_from(Fact::Cores, "assumed: every cpu is a core, no SMT siblings are described");
        return;
    }
    let groups = partition(&claims, |cpu, why| {
        let reason = format!("{why}, so it counts as a core of its own");
        facts.refusals.note("contradictory-siblings", format!("the list of SMT siblings of {cpu}"), reason);
    });
    for cpu in &mut facts.cpus {
        cpu.core = groups.get(&cpu.id).copied();
    }
    facts.came_from(Fact::Cores, format!("{CPU_DIR}/cpuN/topology/core_cpus_list"));
}

/// Turns what every processing unit claims to be grouped with into disjoint groups, named by their smallest member.
///
/// A claim is believed when it names its own cpu and every other cpu it names makes the same claim.
fn partition(
    claims: &BTreeMap<CpuId, CpuSet>,
    mut refuse: impl FnMut(CpuId, String),
) -> BTreeMap<CpuId, u32> {
    let mut groups = BTreeMap::new();
    for (&cpu, claim) in claims {
        if !claim.contains(cpu) {
            refuse(cpu, format!("names {claim} but not itself"));
        } else if let Some(other) = claim.iter().find(|other| claims.get(other) != Some(claim)) {
            refuse(cpu, format!("names {claim}, to which {other} does not agree"));
        } else {
            groups.insert(cpu, claim.first().unwrap_or(cpu).0);
        }
    }
    groups
}

fn read_nodes(files: &Files, online: &CpuSet, facts: &mut Facts) {
    let mut nodes = files.numbered(NODE_DIR, "node");
    nodes.retain(|&node| node < NODE_COUNT_MAX);
    // Lists of nodes have the notation of lists of cpus.
    let listed = read_list(files, &format!("{NODE_DIR}/online"), "nodes", &mut facts.refusals);
    if let Some(listed) = listed.filter(|listed| nodes.iter().any(|&node| listed.contains(CpuId(node)))) {
        nodes.retain(|&node| listed.contains(CpuId(node)));
    }
    let total = files.read_table("proc/meminfo").and_then(|text| mem_total_bytes(&text));
    if nodes.is_empty() {
        facts.nodes = vec![MemoryNode { id: NodeId(0), memory_bytes: total }];
        facts.came_from(Fact::Memory, "/proc/meminfo");
        return;
    }
    let mut node_of: BTreeMap<CpuId, NodeId> = BTreeMap::new();
    for &node in &nodes {
        let path = format!("{NODE_DIR}/node{node}/cpulist");
        let cpus = read_list(files, &path, "cpulist", &mut facts.refusals).unwrap_or_default();
        for cpu in cpus.intersection(online).iter() {
            if let Some(&first) = node_of.get(&cpu) {
                let reason = format!("names {cpu}, which {first} has already, so it stays there");
                facts.refusals.note("node-twice", path.as_str(), reason);
            } else {
                node_of.insert(cpu, NodeId(node));
            }
        }
        let memory_bytes = read_node_memory(files, node, &mut facts.refusals);
        facts.nodes.push(MemoryNode { id: NodeId(node), memory_bytes });
    }
    check_memory_against_total(total, facts);
    for cpu in &mut facts.cpus {
        cpu.node = node_of.get(&cpu.id).copied();
    }
    let homeless: CpuSet = facts.cpus.iter().filter(|cpu| cpu.node.is_none()).map(|cpu| cpu.id).collect();
    if !homeless.is_empty() && homeless.len() < facts.cpus.len() {
        let reason = format!("does not place cpus {homeless}, so they count to the node of their socket");
        facts.refusals.note("homeless", NODE_DIR, reason);
    }
    if homeless.len() < facts.cpus.len() {
        facts.came_from(Fact::Nodes, format!("{NODE_DIR}/nodeN/cpulist"));
    }
    facts.came_from(Fact::Memory, format!("{NODE_DIR}/nodeN/meminfo"));
}

/// The nodes' memory must add up to about the system's. Where memory is plugged in at run time, as hypervisors do, the
/// nodes' counts can stay behind.
fn check_memory_against_total(total: Option<u64>, facts: &mut Facts) {
    let Some(total) = total else { return };
    let sum: Option<u64> =
        facts.nodes.iter().try_fold(0u64, |sum, node| Some(sum.saturating_add(node.memory_bytes?)));
    let agrees = sum.is_some_and(|sum| sum.abs_diff(total) <= total / NODE_MEMORY_TOLERANCE);
    if let Some(sum) = sum.filter(|_| !agrees) {
        let assumed = if facts.nodes.len() == 1 {
            "which is believed"
        } else {
            "so the nodes are believed in proportion only"
        };
        let reason = format!("adds up to {sum} bytes, but /proc/meminfo says {total}, {assumed}");
        facts.refusals.note("node-memory-sum", format!("{NODE_DIR}/nodeN/meminfo"), reason);
    }
    match facts.nodes.as_mut_slice() {
        [only] if !agrees => only.memory_bytes = Some(total),
        nodes => {
            for node in nodes.iter_mut().filter(|_| !agrees) {
                let scaled = node.memory_bytes.zip(sum).and_then(|(bytes, sum)| {
                    u64::try_from(u128::from(bytes) * u128::from(total) / u128::from(sum.max(1))).ok()
                });
                node.memory_bytes = scaled.or(node.memory_bytes);
            }
        }
    }
}

fn read_node_memory(files: &Files, node: u32, refusals: &mut Refusals) -> Option<u64> {
    let path = format!("{NODE_DIR}/node{node}/meminfo");
    let text = files.read(&path)?;
    let bytes = mem_total_bytes(&text);
    if bytes.is_none() {
        refusals.note(
            "node-memory",
            path,
            "gives no believable MemTotal, so the memory of the node is not known",
        );
    }
    bytes
}

/// The `MemTotal:` line of a meminfo file, in bytes.
fn mem_total_bytes(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| Some(line.split_once("MemTotal:")?.1))?;
    let mut words = line.split_whitespace();
    let kib: u64 = words.next()?.parse().ok()?;
    (words.next() == Some("kB")).then_some(())?;
    kib.checked_mul(1024).filter(|&bytes| bytes <= NODE_MEMORY_BYTES_MAX)
}

fn read_node_distances(files: &Files, facts: &mut Facts) {
    let rows: Option<Vec<Result<Vec<u32>, String>>> = facts
        .nodes
        .iter()
        .map(|node| {
            let text = files.read(&format!("{NODE_DIR}/node{}/distance", node.id.0))?;
            let number = |word: &str| word.parse().map_err(|_| format!("contain `{}`", shown(word)));
            Some(text.split_whitespace().map(number).collect())
        })
        .collect();
    let Some(rows) = rows else { return };
    let rows: Result<Vec<Vec<u32>>, String> = rows.into_iter().collect();
    match rows.and_then(|rows| check_slit(&rows, facts.nodes.len()).map(|()| rows)) {
        Ok(rows) => {
            facts.slit = Some(rows);
            facts.came_from(Fact::NodeDistances, format!("{NODE_DIR}/nodeN/distance"));
        }
        Err(why) => facts.refusals.note(
            "slit",
            format!("{NODE_DIR}/nodeN/distance:"),
            format!("the distances {why}, so all nodes count as equally far"),
        ),
    }
}

fn note_virtual_machine(files: &Files, facts: &mut Facts) {
    let cpuinfo = files.read_table("proc/cpuinfo").unwrap_or_default();
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    if flags.split_whitespace().any(|flag| flag == "hypervisor") {
        facts.came_from(
            Fact::Islands,
            "a virtual machine: caches and sockets are what the hypervisor presents",
        );
    }
}

fn read_usable(files: &Files, online: &CpuSet, affinity: Option<&CpuSet>, facts: &mut Facts) {
    let limits = read_limits(files, &mut facts.refusals);
    let mut usable = online.clone();
    let mut restrictions: Vec<(&CpuSet, &str)> = Vec::new();
    if let Some(affinity) = affinity {
        restrictions.push((affinity, "the affinity mask"));
    }
    if let Some((cpuset, path)) = &limits.cpuset {
        restrictions.push((cpuset, path));
    }
    facts.came_from(Fact::UsableCpus, "the online cpus");
    for (allowed, by) in restrictions {
        let left = usable.intersection(allowed);
        if left.is_empty() {
            let reason = format!("allows only cpus {allowed}, none of which is left, so it is not applied");
            facts.refusals.note("usable", by, reason);
            continue;
        }
        usable = left;
        facts.came_from(Fact::UsableCpus, by);
    }
    facts.usable = usable;
    if let Some((cores, path)) = limits.quota {
        facts.cpu_quota = Some(cores);
        facts.came_from(Fact::CpuQuota, path);
    }
}
