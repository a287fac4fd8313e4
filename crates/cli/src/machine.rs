//! The machine of a command, and its summary in results.
//!
//! Owns: reading `--topology`, and the summary of the machine in results. Never: decides where a worker runs.

use std::path::Path;

use atrapos_runtime::affinity;
use atrapos_topology::{CpuId, CpuSet, Level, LiveOptions, Machine, parse_spec};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::output;

/// Returns the processing units this thread may run on; `None` if the kernel does not say.
fn affinity() -> Option<CpuSet> {
    let cpus = affinity::current_thread_cpus().ok()?;
    Some(cpus.into_iter().filter_map(|cpu| u32::try_from(cpu).ok()).map(CpuId).collect())
}

/// Returns the machine that `--topology` names.
pub fn read(topology: &str) -> Result<Machine, CliError> {
    let source = parse_spec(topology).map_err(CliError::bad_input)?;
    source.load(&LiveOptions::new(affinity())).map_err(CliError::bad_input)
}

/// Returns true if workers can be pinned according to `machine`. That may be another machine than this one: then a
/// warning says that they are not pinned.
pub fn may_pin(machine: &Machine) -> bool {
    let Some(here) = affinity().filter(|_| !machine.is_live()) else { return true };
    let elsewhere = machine.usable_cpus().difference(&here);
    if elsewhere.is_empty() {
        return true;
    }
    output::complain(&format!(
        "warning: {} describes cpus {elsewhere}, which this process may not use here, so threads are not pinned",
        machine.origin()
    ));
    false
}

/// Returns the part of a result that describes the machine it was made on.
pub fn summary(machine: &Machine) -> Value {
    json!({
        "origin": machine.origin().to_string(),
        "name": machine.name(),
        "cpu_model": cpu_model(),
        "kernel": std::fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|text| text.trim().to_owned()),
        "cpus": machine.cpus().len(),
        "usable_cpus": machine.usable_cpus().len(),
        "cores": machine.cores().len(),
        "l3_islands": machine.islands(Level::L3).count(),
        "nodes": machine.nodes().len(),
        "sockets": machine.islands(Level::Socket).count(),
        "cpu_quota": machine.cpu_quota(),
        "memory_bytes": machine.memory_bytes(),
    })
}

fn cpu_model() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, model)| model.trim().to_owned())
}

/// Returns the memory this process may still take, if the system reports it.
pub fn available_memory_bytes() -> Option<u64> {
    atrapos_topology::available_memory_bytes(Path::new("/"))
}
