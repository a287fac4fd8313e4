//! `atrapos bench --engine` of an engine with shared data: fill it, run, audit.
//!
//! A partitioned database is loaded, and its rows are copied to the engine; another one, which stays empty, has the handles. A
//! durable engine has a directory of its own format. For an audit the rows are copied back to a third one, which the workload's own auditor looks at.
//!
//! Owns: these databases, and the runs between the copies. Never: reports.

use std::num::NonZeroUsize;
use std::path::Path;
use std::time::{Duration, Instant};

use atrapos::{Database, Durability};
use atrapos_baselines::domains::{DomainsEngine, DomainsEngineOptions};
use atrapos_baselines::durable::{Acknowledge, DurableOptions, ROOM_BYTES};
use atrapos_baselines::instance::Ownership;
use atrapos_baselines::lock::{Deadlocks, LockOptions};
use atrapos_baselines::occ::OccEngine;
use atrapos_baselines::two_phase::{LockingEngine, OneThreadEngine};
use atrapos_baselines::{Engine, SharedDatabase};
use atrapos_harness::driver::{Clients, Progress, RunOptions, SharedThreads};
use atrapos_harness::registry::AnyWorkload;
use atrapos_workloads::{AuditReport, Ledger};

use crate::args::EngineArg;
use crate::bench::{Audited, CLOSE_DEADLINE, Growth, Load, Run, load, measure, open};
use crate::config::{Protection, RunConfig};
use crate::error::CliError;
use crate::resident::resident_bytes;
use crate::store::Store;
use crate::{interrupt, store};

/// Results of the runs, and of the audits after them.
pub(crate) struct Measured {
    pub(crate) load: Load,
    pub(crate) growth: Growth,
    pub(crate) runs: Vec<Run>,
    pub(crate) audit: Audited,
    /// Transactions that a thread has outstanding; `None` where nothing is waited for.
    pub(crate) pipeline: Option<NonZeroUsize>,
    pub(crate) device_sync_us: Option<f64>,
}

/// Returns a function that makes the engine, of one database or inside an instance, for a number of trees.
pub(crate) fn engine(
    engine: EngineArg,
    protection: Protection,
    in_instance: bool,
) -> fn(usize) -> Box<dyn Engine> {
    match engine {
        EngineArg::Shared2pl if !protection.locks => {
            |trees| Box::new(LockingEngine::new(trees).without_locks())
        }
        EngineArg::Shared2pl if !protection.latches => |trees| Box::new(OneThreadEngine::new(trees)),
        EngineArg::Shared2pl if in_instance => |trees| {
            // Those who wait may wait for each other in several instances, where none sees a cycle.
            let options = LockOptions { deadlocks: Deadlocks::Prevented, ..LockOptions::default() };
            Box::new(LockingEngine::with_locks(trees, options))
        },
        EngineArg::SharedOcc => |trees| Box::new(OccEngine::new(trees)),
        EngineArg::Shared2pl => |trees| Box::new(LockingEngine::new(trees)),
        EngineArg::Atrapos | EngineArg::Plp | EngineArg::Domains => unreachable!("it is made elsewhere"),
    }
}

/// Fills the engine, makes all runs and audits.
pub(crate) fn run(
    workload: &dyn AnyWorkload,
    config: &RunConfig,
    resident_before: Option<u64>,
) -> Result<Measured, CliError> {
    let handles = empty(workload, config)?;
    let files = store::files();
    let store = Store::prepare(config.durability, config.dir.as_deref(), &*files)?;
    let (shared, load) = fill(workload, config, (&handles, store.as_ref()), resident_before)?;
    let pipeline = store.as_ref().and_then(|store| store::pipeline_of(config, store.device_sync_us));
    let bytes_before = shared.engine().memory_bytes();
    let cpus = cpus(config);
    let threads = threads(config, &cpus, pipeline);
    let run = |options: &RunOptions, watch: &mut dyn FnMut(Progress)| {
        workload.run_shared((&shared, &handles), options, threads, interrupt::flag(), watch)
    };
    let audit = |ledger: &Ledger| audit(workload, config, &shared, ledger);
    let mut one = |options: &RunOptions, watch: &mut dyn FnMut(Progress)| Ok((run(options, watch), None));
    let (runs, audit) = measure(config, Ledger::new(), &mut one, &audit)?;
    let unprepared_bytes = shared.engine().memory_bytes().saturating_sub(bytes_before);
    let growth = Growth { reserved_bytes: 0, prepared_bytes: 0, unprepared_bytes };
    shared.close().map_err(CliError::failed)?;
    if let Some(failure) = handles.close(CLOSE_DEADLINE).failure {
        return Err(CliError::failed(failure));
    }
    let device_sync_us = store.as_ref().map(|store| store.device_sync_us);
    if let Some(store) = store {
        store.remove();
    }
    Ok(Measured { load, growth, runs, audit, pipeline, device_sync_us })
}

/// Returns the processing units to which threads are pinned.
pub(crate) fn cpus(config: &RunConfig) -> Vec<usize> {
    if !config.pin {
        return Vec::new();
    }
    if config.engine == EngineArg::Domains {
        // The first ones are those of the workers.
        let threads = match config.clients {
            Clients::Threads { threads } => threads.get(),
            Clients::Sessions { .. } => 1,
        };
        let all = config.machine.placement(config.workers + threads);
        return all[config.workers..].iter().map(|cpu| cpu.0 as usize).collect();
    }
    config.machine.usable_cpus().iter().map(|cpu| cpu.0 as usize).collect()
}

/// Returns the threads of a run: as many as were asked for, or as there would be workers.
pub(crate) fn threads<'a>(
    config: &RunConfig,
    cpus: &'a [usize],
    pipeline: Option<NonZeroUsize>,
) -> SharedThreads<'a> {
    let threads = match config.clients {
        Clients::Threads { threads } => threads,
        Clients::Sessions { .. } => NonZeroUsize::new(config.workers).unwrap_or(NonZeroUsize::MIN),
    };
    SharedThreads { threads, cpus, pipeline: pipeline.unwrap_or(NonZeroUsize::MIN) }
}

/// Returns what the clients of an engine with a directory wait for.
pub(crate) fn durable(durability: Durability, path: &Path) -> DurableOptions {
    let acknowledge = match durability {
        Durability::Relaxed { max_loss_ms } => {
            // The other half is left to the write.
            Acknowledge::AtOnce { flush_every: Duration::from_micros(max_loss_ms.saturating_mul(500)) }
        }
        Durability::Synchronous | Durability::None => Acknowledge::Durable,
    };
    DurableOptions { files: store::files(), path: path.to_owned(), acknowledge, room_bytes: ROOM_BYTES }
}

/// Opens a partitioned database that has no rows.
pub(crate) fn empty(workload: &dyn AnyWorkload, config: &RunConfig) -> Result<Database, CliError> {
    open(workload, config, None, &store::files())
}

/// Starts the domains, which have the keys that the workers of a partitioned database would have.
fn on_domains(config: &RunConfig, handles: &Database) -> Result<Box<dyn Engine>, CliError> {
    let cpus = config.machine.placement(config.workers);
    let options = DomainsEngineOptions { cpus, pin: config.pin, structure: config.structure };
    let tables = handles.catalog().tables.len();
    let ownership = Ownership::of_workers(&handles.scheme(), tables);
    let engine = DomainsEngine::new(&config.machine, &options, ownership, tables);
    Ok(Box::new(engine.map_err(CliError::failed)?))
}

/// Loads a partitioned database, copies its rows to the engine, and makes its directory.
pub(crate) fn fill(
    workload: &dyn AnyWorkload,
    config: &RunConfig,
    (handles, store): (&Database, Option<&Store>),
    resident_before: Option<u64>,
) -> Result<(SharedDatabase, Load), CliError> {
    let began = Instant::now();
    let full = empty(workload, config)?;
    let loaded = load(workload, &full, None)?;
    let shared = match config.engine {
        EngineArg::Domains => {
            let engine = on_domains(config, handles)?;
            SharedDatabase::fill(|_| engine, &full, handles)
        }
        _ => {
            let make = engine(config.engine, config.protection(workload, config.workers, false), false);
            SharedDatabase::fill(make, &full, handles)
        }
    };
    let shared = shared.map_err(CliError::failed)?;
    full.close(CLOSE_DEADLINE);
    let shared = match store {
        Some(store) => {
            shared.into_durable(&durable(config.durability, store.path())).map_err(CliError::failed)?
        }
        None => shared,
    };
    let resident_bytes =
        resident_bytes().zip(resident_before).map(|(now, before)| now.saturating_sub(before));
    let tree_bytes = shared.engine().memory_bytes();
    Ok((shared, Load { elapsed: began.elapsed(), resident_bytes, tree_bytes, ..loaded }))
}

/// Audits a copy of the engine's rows.
pub(crate) fn audit(
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
