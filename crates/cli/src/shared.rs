//! `atrapos bench --engine` of an engine with shared data: fill it, run, audit.
//!
//! A partitioned database is loaded, and its rows are copied to the engine; another one, which stays empty, has the handles. For
//! an audit the rows are copied back to a third one, which the workload's own auditor looks at.
//!
//! Owns: these databases, and the runs between the copies. Never: reports.

use std::num::NonZeroUsize;
use std::time::Instant;

use atrapos::Database;
use atrapos_baselines::occ::OccEngine;
use atrapos_baselines::two_phase::LockingEngine;
use atrapos_baselines::{Engine, SharedDatabase};
use atrapos_harness::driver::{Clients, Progress, RunOptions};
use atrapos_harness::registry::AnyWorkload;
use atrapos_workloads::{AuditReport, Ledger};

use crate::args::EngineArg;
use crate::bench::{Audited, CLOSE_DEADLINE, Growth, Load, Run, load, measure, open};
use crate::config::RunConfig;
use crate::error::CliError;
use crate::resident::resident_bytes;
use crate::{interrupt, store};

/// Results of the runs, and of the audits after them.
pub(crate) struct Measured {
    pub(crate) load: Load,
    pub(crate) growth: Growth,
    pub(crate) runs: Vec<Run>,
    pub(crate) audit: Audited,
}

/// Returns a function that makes the engine, for a number of trees.
fn engine(chosen: EngineArg) -> fn(usize) -> Box<dyn Engine> {
    match chosen {
        EngineArg::SharedOcc => |trees| Box::new(OccEngine::new(trees)),
        EngineArg::Shared2pl => |trees| Box::new(LockingEngine::new(trees)),
        EngineArg::Atrapos | EngineArg::Plp => unreachable!("it does not share its data"),
    }
}

/// Fills the engine, makes all runs and audits.
pub(crate) fn run(
    workload: &dyn AnyWorkload,
    config: &RunConfig,
    resident_before: Option<u64>,
) -> Result<Measured, CliError> {
    let handles = empty(workload, config)?;
    let (shared, load) = fill(workload, config, &handles, resident_before)?;
    let bytes_before = shared.engine().memory_bytes();
    let threads = match config.clients {
        Clients::Threads { threads } => threads,
        Clients::Sessions { .. } => NonZeroUsize::new(config.workers).unwrap_or(NonZeroUsize::MIN),
    };
    let cpus: Vec<usize> = if config.pin {
        config.machine.usable_cpus().iter().map(|cpu| cpu.0 as usize).collect()
    } else {
        Vec::new()
    };
    let run = |options: &RunOptions, watch: &mut dyn FnMut(Progress)| {
        workload.run_shared((&shared, &handles), options, (threads, &cpus), interrupt::flag(), watch)
    };
    let audit = |ledger: &Ledger| audit(workload, config, &shared, ledger);
    let mut one = |options: &RunOptions, watch: &mut dyn FnMut(Progress)| Ok((run(options, watch), None));
    let (runs, audit) = measure(config, Ledger::new(), &mut one, &audit)?;
    let unprepared_bytes = shared.engine().memory_bytes().saturating_sub(bytes_before);
    let growth = Growth { reserved_bytes: 0, prepared_bytes: 0, unprepared_bytes };
    let closed = handles.close(CLOSE_DEADLINE);
    closed
        .failure
        .map_or(Ok(Measured { load, growth, runs, audit }), |failure| Err(CliError::failed(failure)))
}

fn empty(workload: &dyn AnyWorkload, config: &RunConfig) -> Result<Database, CliError> {
    open(workload, config, None, &store::files())
}

/// Loads a partitioned database, and copies its rows to the engine.
fn fill(
    workload: &dyn AnyWorkload,
    config: &RunConfig,
    handles: &Database,
    resident_before: Option<u64>,
) -> Result<(SharedDatabase, Load), CliError> {
    let began = Instant::now();
    let full = empty(workload, config)?;
    let loaded = load(workload, &full, None)?;
    let shared = SharedDatabase::fill(engine(config.engine), &full, handles).map_err(CliError::failed)?;
    full.close(CLOSE_DEADLINE);
    let resident_bytes =
        resident_bytes().zip(resident_before).map(|(now, before)| now.saturating_sub(before));
    let tree_bytes = shared.engine().memory_bytes();
    Ok((shared, Load { elapsed: began.elapsed(), resident_bytes, tree_bytes, ..loaded }))
}

/// Audits a copy of the engine's rows.
fn audit(
    workload: &dyn AnyWorkload,
    config: &RunConfig,
    shared: &SharedDatabase,
    ledger: &Ledger,
) -> Result<AuditReport, String> {
    let copy = empty(workload, config).map_err(|error| error.to_string())?;
    shared.copy_to(&copy).map_err(|error| error.to_string())?;
    let report = workload.audit(&copy, ledger).map_err(|error| error.to_string());
    copy.close(CLOSE_DEADLINE);
    report
}
