//! `atrapos bench raw`: the limits of the machine.
//!
//! Owns: the conversion of its arguments to the settings of the measurement. Never: measures.

use atrapos_harness::raw::{self, RawOptions, RawResult};
use atrapos_topology::Machine;
use serde_json::json;

use crate::args::RawArgs;
use crate::error::CliError;
use crate::progress::RunBar;
use crate::{config, interrupt, json, machine, output, table};

/// Returns the first two processing units that workers would take.
fn two_cpus(machine: &Machine) -> Option<[usize; 2]> {
    match machine.placement(2).as_slice() {
        [first, second] => Some([first.0 as usize, second.0 as usize]),
        _ => None,
    }
}

/// Runs `atrapos bench raw`.
pub(crate) fn raw(args: &RawArgs) -> Result<(), CliError> {
    let seconds = config::duration("--seconds", args.common.seconds, true)?;
    if args.runs == 0 || args.lookups == 0 {
        return Err(CliError::bad_input("zero runs or lookups leave nothing to measure; use at least 1"));
    }
    let machine = machine::read(&args.common.topology)?;
    let file = config::json_file(&args.common)?;
    let pin = !args.common.no_pin && machine::may_pin(&machine);
    let options = RawOptions {
        rows: args.rows,
        lookups: args.lookups,
        rounds_min: args.runs as usize,
        seconds,
        cpus: if pin { two_cpus(&machine) } else { None },
        seed: args.common.seed,
    };
    interrupt::install();
    let bar = RunBar::new(String::new(), seconds, std::time::Duration::ZERO);
    let watch = |round: usize, done: usize| {
        bar.step(&format!("round {}, {}", round + 1, RawResult::NAMES[(done - 1).min(9)]));
    };
    let measured = raw::run(&options, machine::available_memory_bytes(), interrupt::flag(), watch);
    bar.finish();
    let report = measured.map_err(|error| match error {
        raw::RawError::Rows(_) | raw::RawError::Memory(_) => CliError::bad_input(error),
        raw::RawError::Tree(_) | raw::RawError::Workers(_) | raw::RawError::Interrupted => {
            CliError::failed(error)
        }
    })?;
    let summary = machine::summary(&machine);
    output::print(&table::raw(&report, &summary))?;
    if let Some(file) = file {
        let config = json!({
            "benchmark": "raw",
            "rows": args.rows,
            "lookups": args.lookups,
            "seconds": args.common.seconds,
            "runs": args.runs,
            "topology": args.common.topology,
            "cpus": options.cpus,
            "pin": pin,
            "seed": args.common.seed,
        });
        file.write(&json::raw(&report, &summary, &config))?;
    }
    Ok(())
}
