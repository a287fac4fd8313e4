//! Costs of synchronization on this machine: measured between pairs of cores, and stored for the databases that are opened here.
//!
//! Owns: which pairs are measured, and the file. Never: measures (`atrapos-experiments` does), nor weighs what came out.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use atrapos::{Adaptation, Database, sync_costs_file, sync_costs_machine};
use atrapos_adapt::{PairCost, SyncCosts, Weights};
use atrapos_cli::error::CliError;
use atrapos_cli::output::JsonFile;
use atrapos_cli::{interrupt, output};
use atrapos_experiments::{Setup, synchronization};
use atrapos_topology::{CpuId, LatencyMatrix, LiveOptions, Machine, Relation};

/// Rows of the table whose rows are read.
const ROWS: u64 = 20_000;
/// Sessions on each of the two workers.
const SESSIONS: usize = 16;
/// Length of a run, and number of runs of either kind of transactions.
const RUN: Duration = Duration::from_millis(200);
const ROUNDS: u32 = 7;

/// Measures what synchronization costs for each relation that pairs of cores have, and stores it. Returns what to say about it.
pub(super) fn measure(machine: &Machine, latencies: &LatencyMatrix) -> Result<String, CliError> {
    interrupt::install();
    let file = match sync_costs_file() {
        Some(path) => Some((path.clone(), prepare(&path)?)),
        None => {
            output::complain(
                "warning: neither HOME nor XDG_CACHE_HOME says where costs of synchronization are stored; name a file in ATRAPOS_SYNC_COSTS",
            );
            None
        }
    };
    let mut pairs = Vec::new();
    for relation in Relation::ALL {
        let related = |(a, b, _): &(CpuId, CpuId, f64)| machine.relation(*a, *b) == Some(relation);
        let Some((a, b, round_trip_ns)) = latencies.pairs().find(related) else { continue };
        let Some(sync_ns) = between(a, b)? else {
            output::complain(&format!(
                "warning: the noise of the machine is greater than the cost of a synchronization ({relation}); measure again when it is idle"
            ));
            continue;
        };
        pairs.push(PairCost {
            relation: relation.to_string(),
            distance: machine.distance(a, b),
            line_ns: round_trip_ns / 2.0,
            sync_ns,
        });
    }
    if pairs.is_empty() {
        return Ok(String::new());
    }
    let costs = SyncCosts::new(sync_costs_machine(machine), pairs).map_err(CliError::failed)?;
    let stored = match file {
        Some((path, file)) => {
            file.write_text(&costs.to_json())?;
            format!("stored in {}, for databases that are opened here", path.display())
        }
        None => "not stored".to_owned(),
    };
    Ok(report(&costs, &stored))
}

/// Returns the processor time of a synchronization of workers on two processing units, in nanoseconds; `None` if noise hides it.
fn between(a: CpuId, b: CpuId) -> Result<Option<f64>, CliError> {
    let machine = Machine::live(&LiveOptions::new(Some([a, b].into_iter().collect())));
    let open = |schema| Database::builder(schema).machine(machine.clone());
    let setup = Setup {
        open: &open,
        workers: 2,
        sessions: SESSIONS,
        rows: ROWS,
        seed: 1,
        phase: RUN,
        static_only: true,
        adaptation: Adaptation::default(),
    };
    let time = synchronization::run(&setup, ROUNDS, interrupt::flag(), &mut |_| {});
    time.map(|time| time.sync_ns()).map_err(CliError::failed)
}

/// Makes sure that the file can be written. Its directory is made if it is the first of them.
fn prepare(file: &Path) -> Result<JsonFile, CliError> {
    if let Some(directory) = file.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        // If it cannot be made, neither can the file, and that is said.
        let _ = std::fs::create_dir_all(directory);
    }
    JsonFile::prepare_as("costs", file)
}

fn report(costs: &SyncCosts, stored: &str) -> String {
    let mut text = "\nsynchronization of two workers, processor time at both ends together\n".to_owned();
    for PairCost { relation, distance, line_ns, sync_ns } in costs.pairs() {
        let _ = writeln!(
            text,
            "  {relation}: {sync_ns:.0} ns (distance {distance:.1}, a line takes {line_ns:.0} ns)"
        );
    }
    let Weights { cycles_per_byte, exchange_cycles, .. } = costs.weights(&Weights::default());
    let _ = writeln!(
        text,
        "  for the cost model: exchange_cycles {exchange_cycles:.0}, cycles_per_byte {cycles_per_byte:.2}; {stored}"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_can_be_read_and_is_reported() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("new").join("costs.json");
        let pair =
            PairCost { relation: "same L3 island".to_owned(), distance: 1.0, line_ns: 40.0, sync_ns: 640.0 };
        let costs = SyncCosts::new("a machine".to_owned(), vec![pair]).expect("costs");
        prepare(&file).and_then(|file| file.write_text(&costs.to_json())).expect("stored");
        let text = std::fs::read_to_string(&file).expect("the file");
        assert_eq!(SyncCosts::from_json(&text), Ok(costs.clone()));
        let said = report(&costs, "stored");
        assert!(said.contains("same L3 island: 640 ns") && said.contains("exchange_cycles 800"), "{said}");
        // A directory is in the way.
        let complaint = prepare(directory.path()).expect_err("no file").to_string();
        assert!(complaint.contains("it is a directory"), "{complaint}");
    }
}
