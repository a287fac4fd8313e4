//! An instance of a deployment whose engine shares its data among threads.
//!
//! As for one database, a partitioned one is loaded, with the share of this instance, and another one, which stays empty, has the handles and
//! knows which keys the instance has.
//!
//! Owns: the life of the instance. Never: audits or reports; the process that has started it does.

use std::io::BufRead;
use std::path::PathBuf;
use std::time::Instant;

use atrapos::{Database, InstanceId, LoadProgress};
use atrapos_baselines::SharedDatabase;
use atrapos_baselines::instance::InstanceOptions;
use atrapos_harness::registry::AnyWorkload;
use atrapos_instances::{VisitRow, write_visited};

use super::member::{LINK_PATIENCE, Opening, open, options, processors, run_of, say};
use super::{Dumped, Order, Place, Ready};
use crate::bench::CLOSE_DEADLINE;
use crate::config::RunConfig;
use crate::error::CliError;
use crate::interrupt;
use crate::resident::resident_bytes;
use crate::shared::{cpus, durable, engine, threads};

/// Runs the instance at `place`.
pub(super) fn run(
    workload: &dyn AnyWorkload,
    mut config: RunConfig,
    mut place: Place,
) -> Result<(), CliError> {
    // The partitioned databases beside the engine stay in memory.
    let data = place.data.take();
    config.machine = processors(&place)?;
    config.workers = place.plan.shares[usize::from(place.instance)].workers;
    let before = resident_bytes();
    let handles = open(workload, &place, Opening::of(&config))?;
    let pipeline = place.pipeline;
    let (shared, rows) = fill(workload, &config, &handles, (place, data))?;
    let resident_bytes = resident_bytes().zip(before).map(|(now, before)| now.saturating_sub(before));
    let tree_bytes = shared.engine().memory_bytes();
    say(&Ready { rows, resident_bytes, tree_bytes, reserved_bytes: 0 })?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(CliError::failed)?;
        match serde_json::from_str(&line).map_err(CliError::bad_input)? {
            Order::Run { number, remote } => {
                let varied = remote.map(|share| workload.with_remote_share(share));
                let workload = varied.as_deref().unwrap_or(workload);
                let (options, cpus) = (options(&handles, &config, number), cpus(&config));
                let threads = threads(&config, &cpus, pipeline);
                let (databases, interrupt) = ((&shared, &handles), interrupt::flag());
                let result = workload.run_shared(databases, &options, threads, interrupt, &mut |_| {});
                let result = result.map_err(CliError::failed)?;
                let retried = result.statistics.retried;
                say(&run_of(result, retried))?;
            }
            Order::Dump(rows) => say(&Dumped { rows: write(&shared, false, &rows)? })?,
            Order::DumpWithEntries(rows, entries) => {
                write(&shared, true, &entries)?;
                say(&Dumped { rows: write(&shared, false, &rows)? })?;
            }
        }
    }
    shared.close().map_err(CliError::failed)?;
    handles.close(CLOSE_DEADLINE).failure.map_or(Ok(()), |failure| Err(CliError::failed(failure)))
}

/// Loads the share of the instance, and joins the others. Returns the number of rows, too.
fn fill(
    workload: &dyn AnyWorkload,
    config: &RunConfig,
    handles: &Database,
    (place, data): (Place, Option<PathBuf>),
) -> Result<(SharedDatabase, u64), CliError> {
    let full = open(workload, &place, Opening::of(config))?;
    let rows = workload.load(&full, &LoadProgress::default());
    let rows =
        rows.map_err(|error| CliError::failed(format!("the instance could not be loaded: {error}")))?;
    let most = place.plan.shares.iter().map(|share| share.workers).max().unwrap_or_default();
    let make = engine(config.engine, config.protection(workload, most, true), true);
    let shared = SharedDatabase::fill(make, &full, handles).map_err(CliError::failed)?;
    full.close(CLOSE_DEADLINE);
    let Place { deployment, directory, channel: kind, tcp, plan, instance, .. } = place;
    let durable = data.map(|data| durable(config.durability, &data.join(format!("instance-{instance}"))));
    let (instance, instances) = (InstanceId(instance), plan.shares.len());
    let (secret, clients) = (None, None);
    let options = InstanceOptions { deployment, directory, kind, tcp, secret, instance, instances, clients };
    let failed = |error: &dyn std::fmt::Display| {
        CliError::failed(format!("the instance cannot join the others: {error}"))
    };
    let shared = shared.into_instance(handles, options, durable.as_ref()).map_err(|error| failed(&error))?;
    if let Some(instance) = shared.engine().as_instance() {
        instance.wait_reachable(Instant::now() + LINK_PATIENCE).map_err(|error| failed(&error))?;
    }
    Ok((shared, rows))
}

/// Writes the rows, or the entries of indexes, to a file. Returns their number.
fn write(shared: &SharedDatabase, entries: bool, path: &std::path::Path) -> Result<u64, CliError> {
    let mut damage = None;
    let written = write_visited(path, |visit: &mut VisitRow<'_>| {
        shared.visit(entries, visit).map_err(|error| {
            let abort = atrapos::Abort::user("the rows could not be read");
            damage = Some(error);
            abort
        })
    });
    match damage {
        Some(error) => Err(CliError::failed(error)),
        None => written.map_err(CliError::failed),
    }
}
