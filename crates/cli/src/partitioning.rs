//! The choice of a scheme before the first measurement of `atrapos bench`: run, observe, repartition.
//!
//! Owns: how long is observed. Never: chooses partitions itself (the engine does), or measures.

use std::time::Duration;

use atrapos::Database;
use atrapos_harness::driver::RunOptions;
use atrapos_harness::registry::AnyWorkload;
use atrapos_workloads::{ClassTally, Ledger};

use crate::args::PartitioningArg;
use crate::config::RunConfig;
use crate::error::CliError;
use crate::interrupt;

/// The shortest run that is observed.
const OBSERVED_MIN: Duration = Duration::from_millis(250);

/// Transactions that are observed at least: few of many, or each of few, are recorded.
const OBSERVED_TRANSACTIONS_MIN: u64 = 1_024;

/// Runs that are observed at most, on a machine that has no time.
const OBSERVED_MAX: u64 = 100;

/// Chooses the scheme that the options ask for, if they ask for one, after a run that is observed and not measured. Returns the
/// transactions of that run, for the audits.
pub(crate) fn choose(
    workload: &dyn AnyWorkload,
    db: &Database,
    config: &RunConfig,
) -> Result<Ledger, CliError> {
    let mut ledger = Ledger::new();
    let search = config.partitioning.and_then(PartitioningArg::search);
    let (Some(search), Some(_)) = (search, config.adaptation) else { return Ok(ledger) };
    // The statistics of loading are discarded.
    db.workload_trace().map_err(CliError::failed)?;
    let mut completed = 0;
    for attempt in 0..OBSERVED_MAX {
        let options = RunOptions {
            clients: config.clients,
            routing: config.routing,
            warmup: Duration::ZERO,
            measured: config.warmup.max(OBSERVED_MIN),
            // Measured runs have the numbers below.
            run: u64::from(config.runs) + attempt,
            live: None,
        };
        let result = workload.run(db, &options, interrupt::flag(), &mut |_| {}).map_err(CliError::failed)?;
        ledger.add(&result.tallies_all);
        completed += result.tallies_all.iter().map(ClassTally::completed).sum::<u64>();
        if completed >= OBSERVED_TRANSACTIONS_MIN || interrupt::is_set() {
            break;
        }
    }
    db.choose_scheme(search).map_err(CliError::failed)?;
    Ok(ledger)
}
