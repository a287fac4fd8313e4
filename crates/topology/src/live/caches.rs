//! The caches of the live machine: which cores share one, and which of them make islands.

use std::collections::{BTreeMap, BTreeSet};

use super::{CPU_DIR, partition, read_list};
use crate::cpuset::CpuSet;
use crate::facts::{Fact, Facts};
use crate::files::Files;
use crate::ids::{CpuId, SocketId};

pub(super) fn read_caches(files: &Files, online: &CpuSet, facts: &mut Facts) {
    let mut claims_by_level: BTreeMap<u32, BTreeMap<CpuId, CpuSet>> = BTreeMap::new();
    for cpu in &facts.cpus {
        let directory = format!("{CPU_DIR}/cpu{}/cache", cpu.id.0);
        for index in files.numbered(&directory, "index") {
            let path = format!("{directory}/index{index}");
            let level = files.read(&format!("{path}/level")).and_then(|text| text.parse::<u32>().ok());
            let kind = files.read(&format!("{path}/type")).unwrap_or_default();
            let Some(level) = level.filter(|level| (2..=8).contains(level) && kind != "Instruction") else {
                continue;
            };
            let list = format!("{path}/shared_cpu_list");
            if let Some(shared) = read_list(files, &list, "cache", &mut facts.refusals) {
                claims_by_level.entry(level).or_default().insert(cpu.id, shared.intersection(online));
            }
        }
    }
    let Some(level) = island_cache_level(&claims_by_level, facts) else {
        facts.came_from(
            Fact::Caches,
            "assumed: the cores of a memory node share a cache, no shared one is described",
        );
        return;
    };
    let claims = claims_by_level.remove(&level).unwrap_or_default();
    let groups = partition(&claims, |cpu, why| {
        let reason = format!("{why}, so it counts to the cache island of its node's others");
        facts.refusals.note(
            "contradictory-cache",
            format!("the list of sharers of the L{level} of {cpu}"),
            reason,
        );
    });
    note_caches_across_sockets(&groups, level, facts);
    for cpu in &mut facts.cpus {
        cpu.cache = groups.get(&cpu.id).copied();
    }
    facts.came_from(Fact::Caches, format!("{CPU_DIR}/cpuN/cache/indexN/shared_cpu_list of level {level}"));
}

/// The level whose sharing makes islands: 3 where there is one, else the highest that different cores share.
fn island_cache_level(claims: &BTreeMap<u32, BTreeMap<CpuId, CpuSet>>, facts: &Facts) -> Option<u32> {
    if claims.contains_key(&3) {
        return Some(3);
    }
    let core_of: BTreeMap<CpuId, u32> =
        facts.cpus.iter().map(|cpu| (cpu.id, cpu.core.unwrap_or(cpu.id.0))).collect();
    let shared_by_cores = |sharers: &CpuSet| {
        sharers.iter().filter_map(|cpu| core_of.get(&cpu)).collect::<BTreeSet<_>>().len() > 1
    };
    claims.iter().rev().find(|(_, claims)| claims.values().any(shared_by_cores)).map(|(&level, _)| level)
}

/// A cache does not reach over a socket's border; `build` cuts it there, and the saying is listed as not believed.
fn note_caches_across_sockets(groups: &BTreeMap<CpuId, u32>, level: u32, facts: &mut Facts) {
    let mut sockets: BTreeMap<u32, BTreeSet<SocketId>> = BTreeMap::new();
    for cpu in &facts.cpus {
        if let (Some(&group), Some(socket)) = (groups.get(&cpu.id), cpu.socket) {
            sockets.entry(group).or_default().insert(socket);
        }
    }
    for (group, sockets) in sockets.iter().filter(|(_, sockets)| sockets.len() > 1) {
        facts.refusals.note(
            "cache-across-sockets",
            format!("the L{level} of cpu {group}"),
            format!("is said to be shared by {} sockets, so it is cut at their borders", sockets.len()),
        );
    }
}
