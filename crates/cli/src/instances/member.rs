//! An instance of a deployment: one of the processes that are started by another one of this program.
//!
//! Owns: the life of the instance: it loads its share, joins the others, and does what it is told until its standard input ends.
//! Never: audits or reports; the process that has started it does.

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use atrapos::{Adaptation, Database, Durability, InstanceId};
use atrapos_harness::driver::{RunOptions, RunResult};
use atrapos_harness::registry::AnyWorkload;
use atrapos_instances::{Member, MemberOptions, division, read_secret, write_rows};
use atrapos_runtime::affinity;
use atrapos_topology::Machine;
use serde::Serialize;

use super::{Dumped, MemberRun, Order, Place, Ready};
use crate::bench::{CLOSE_DEADLINE, reserve};
use crate::config::RunConfig;
use crate::error::CliError;
use crate::resident::resident_bytes;
use crate::{interrupt, machine};

/// The time in which the links to all other instances are made, once this one is loaded: the others load, too.
pub(super) const LINK_PATIENCE: Duration = Duration::from_secs(300);

/// Runs the instance at `place`.
pub(super) fn run(workload: &dyn AnyWorkload, mut config: RunConfig, place: Place) -> Result<(), CliError> {
    config.machine = processors(&place)?;
    config.workers = place.plan.shares[usize::from(place.instance)].workers;
    let before = resident_bytes();
    let db = Arc::new(open(workload, &place, Opening::of(&config))?);
    let rows = workload.load(&db, &atrapos::LoadProgress::default());
    let rows =
        rows.map_err(|error| CliError::failed(format!("the instance could not be loaded: {error}")))?;
    let reserved_bytes = reserve(workload, &db, &config)?;
    let Place { deployment, directory, channel: kind, tcp, .. } = place;
    let secret = Some(read_secret(&directory).map_err(CliError::failed)?);
    let options = MemberOptions { deployment, directory, kind, tcp, secret, registry: None };
    let member = Member::join(Arc::clone(&db), options).map_err(CliError::failed)?;
    if !member.wait_linked(Instant::now() + LINK_PATIENCE) {
        let why = member.take_failures().pop().unwrap_or_else(|| "they are not there".to_owned());
        return Err(CliError::failed(format!("the other instances cannot be reached: {why}")));
    }
    let resident_bytes = resident_bytes().zip(before).map(|(now, before)| now.saturating_sub(before));
    let tree_bytes = db.memory_bytes().map_err(CliError::failed)? as u64;
    say(&Ready { rows, resident_bytes, tree_bytes, reserved_bytes })?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(CliError::failed)?;
        match serde_json::from_str(&line).map_err(CliError::bad_input)? {
            Order::Run { number, remote } => {
                let varied = remote.map(|share| workload.with_remote_share(share));
                say(&run_clients(varied.as_deref().unwrap_or(workload), &db, &config, number)?)?;
            }
            Order::Dump(file) | Order::DumpWithEntries(file, _) => {
                say(&Dumped { rows: write_rows(&db, &file).map_err(CliError::failed)? })?;
            }
        }
    }
    drop(member);
    let closed = Arc::try_unwrap(db).map(|db| db.close(CLOSE_DEADLINE));
    match closed.map(|closed| closed.failure) {
        Ok(Some(failure)) => Err(CliError::failed(failure)),
        _ => Ok(()),
    }
}

/// Has this process use the processors of its place, and returns the machine that they are.
pub(crate) fn processors(place: &Place) -> Result<Machine, CliError> {
    let share = &place.plan.shares[usize::from(place.instance)];
    if !share.cpus.is_empty() {
        affinity::set_current_thread_cpus(&share.cpus).map_err(CliError::failed)?;
    }
    machine::read("live")
}

/// The settings with which the database of an instance is opened.
pub(crate) struct Opening<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) pin: bool,
    pub(crate) place_memory: bool,
    /// None if it keeps its scheme.
    pub(crate) adaptation: Option<Adaptation>,
    pub(crate) durability: Durability,
}

impl Opening<'_> {
    /// Returns the settings of a benchmark, whose instances keep their scheme.
    pub(crate) fn of(config: &RunConfig) -> Opening<'_> {
        let &RunConfig { ref machine, pin, place_memory, durability, .. } = config;
        Opening { machine, pin, place_memory, adaptation: None, durability }
    }
}

/// Opens the database of an instance.
pub(crate) fn open(
    workload: &dyn AnyWorkload,
    place: &Place,
    Opening { machine, pin, place_memory, adaptation, durability }: Opening<'_>,
) -> Result<Database, CliError> {
    let (instance, plan) = (InstanceId(place.instance), &place.plan);
    let division = division(workload.schema(), instance, plan.workers(), &plan.keys());
    let division = division.map_err(CliError::bad_input)?;
    let builder = Database::builder(workload.schema()).machine(machine.clone()).pin(pin);
    let builder = builder.place_memory(place_memory).instance(division);
    let builder = match adaptation {
        Some(adaptation) => builder.adaptation(adaptation),
        None => builder.fixed_scheme(),
    };
    let opened = match &place.data {
        None => builder.in_memory(),
        Some(data) => {
            let directory = data.join(format!("instance-{}", place.instance));
            builder.durability(durability).deployment(place.deployment.0).open(directory)
        }
    };
    opened.map_err(CliError::bad_input)
}

/// Runs the clients of this instance.
fn run_clients(
    workload: &dyn AnyWorkload,
    db: &Database,
    config: &RunConfig,
    number: u64,
) -> Result<MemberRun, CliError> {
    let options = options(db, config, number);
    let result = workload.run(db, &options, interrupt::flag(), &mut |_| {}).map_err(CliError::failed)?;
    Ok(run_of(result, 0))
}

/// Returns the options of the run of this number in the instance that a database is.
pub(super) fn options(db: &Database, config: &RunConfig, number: u64) -> RunOptions {
    RunOptions {
        clients: config.clients,
        routing: config.routing,
        warmup: config.warmup,
        measured: config.measured,
        // Clients of other instances draw other numbers.
        run: number << 16 | db.division().map_or(0, |division| u64::from(division.instance.0)),
        live: None,
    }
}

/// Returns the results of a run as they are told, with what threads have run again.
pub(super) fn run_of(result: RunResult, retried: u64) -> MemberRun {
    let RunResult { elapsed, classes, workers, updates, tallies_all, interrupted, .. } = result;
    let latencies = classes.iter().map(|class| {
        let recorded = class.latency_ns.iter_recorded();
        recorded.map(|value| (value.value_iterated_to(), value.count_at_value())).collect()
    });
    MemberRun {
        elapsed,
        latencies_ns: latencies.collect(),
        classes: classes.into_iter().map(|class| class.tally).collect(),
        workers: workers
            .into_iter()
            .map(|worker| (worker.core, worker.busy_ratio, worker.transactions))
            .collect(),
        updates,
        tallies_all,
        interrupted,
        retried,
    }
}

/// Writes a line to the process that has started this one.
pub(crate) fn say(what: &impl Serialize) -> Result<(), CliError> {
    let line = serde_json::to_string(what).map_err(CliError::failed)?;
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).map_err(CliError::failed)
}
