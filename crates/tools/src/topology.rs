//! `atrapos topology`: the structure of the machine.
//!
//! Owns: assigning the measurement of round trips to the machine it was made on. Never: derives islands itself. What synchronization costs
//! is measured in `costs`.

mod costs;

use atrapos_cli::error::CliError;
use atrapos_cli::{machine, output};
use atrapos_runtime::measure::{MeasureOptions, measure_round_trips};
use atrapos_topology::report::{render_tree, to_json, to_toml};
use atrapos_topology::{CpuId, LatencyMatrix, Machine};

use crate::args::TopologyArgs;

/// Runs `atrapos topology`.
pub(crate) fn topology(args: &TopologyArgs) -> Result<(), CliError> {
    let mut machine = machine::read(&args.topology)?;
    let mut synchronization = String::new();
    if args.measure {
        if !machine.is_live() {
            return Err(CliError::bad_input(format!(
                "only this machine can be measured, not {}; leave out --topology or --measure",
                machine.origin()
            )));
        }
        let latencies = latencies(&machine)?;
        synchronization = costs::measure(&machine, &latencies)?;
        machine = machine.with_measured_islands(&latencies).map_err(CliError::failed)?;
    }
    let text = if args.json {
        format!("{:#}\n", to_json(&machine))
    } else if args.toml {
        to_toml(&machine)
    } else {
        render_tree(&machine) + &synchronization
    };
    output::print(&text)
}

/// Returns round trips between the cores of this machine, measured.
fn latencies(machine: &Machine) -> Result<LatencyMatrix, CliError> {
    let cpus: Vec<usize> = machine.usable_cpus().iter().map(|cpu| cpu.0 as usize).collect();
    let measured = measure_round_trips(&cpus, &MeasureOptions::default()).map_err(CliError::failed)?;
    for warning in &measured.warnings {
        output::complain(&format!("warning: {warning}"));
    }
    let ids: Vec<CpuId> = measured
        .cpus
        .iter()
        .map(|cpu| u32::try_from(*cpu).map(CpuId))
        .collect::<Result<_, _>>()
        .map_err(CliError::failed)?;
    LatencyMatrix::new(&ids, &measured.ns).map_err(CliError::failed)
}
