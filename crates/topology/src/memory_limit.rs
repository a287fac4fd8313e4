//! Memory that this process may still take.
//!
//! Owns: reading `MemAvailable` and the limits of memory cgroups, versions 1 and 2, ancestors too. Never: allocates for
//! it, nor reserves anything: another process may take what was there a moment ago.

use crate::cgroup::directories;
use crate::files::Files;
use std::path::Path;

/// The bytes this process may still take before something gives: the smallest of what the system has available
/// (`MemAvailable`) and what every memory cgroup above the process has left. `root` is `/`, or a fixture tree.
///
/// A group's page cache counts as left where it is inactive, as the kernel drops it before anything else. `None` when no
/// file says anything.
#[must_use]
pub fn available_memory_bytes(root: &Path) -> Option<u64> {
    let files = Files::below(root);
    let system = files.read_table("proc/meminfo").and_then(|text| mem_available_bytes(&text));
    let groups = directories(&files, &["memory"])
        .into_iter()
        .filter_map(|directory| left_in_group(&files, &directory));
    groups.chain(system).min()
}

fn mem_available_bytes(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let mut words = line.split_whitespace();
    let kib: u64 = words.next()?.parse().ok()?;
    (words.next() == Some("kB")).then_some(())?;
    kib.checked_mul(1024)
}

fn left_in_group(files: &Files, directory: &str) -> Option<u64> {
    let number = |name: &str| files.read(&format!("{directory}/{name}"))?.parse::<u64>().ok();
    // `max` is no number, and version 1's "no limit" is a number beyond every machine's memory.
    let limits = ["memory.max", "memory.high", "memory.limit_in_bytes"].into_iter().filter_map(number);
    let limit = limits.min()?;
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes")).unwrap_or(0);
    let statistics = files.read(&format!("{directory}/memory.stat")).unwrap_or_default();
    let names = ["total_inactive_file", "inactive_file"];
    let inactive = names.iter().find_map(|name| {
        let line = statistics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        line.trim().parse::<u64>().ok()
    });
    Some(limit.saturating_sub(used.saturating_sub(inactive.unwrap_or(0))))
}
