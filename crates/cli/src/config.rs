//! Conversion of arguments to settings: invalid ones are refused here, before any work begins.
//!
//! Owns: the refusals that several commands share. Never: opens a database.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use atrapos::{Adaptation, CentralState, ControllerSettings, Durability, UPCOMING_MAX};
use atrapos_adapt::Setting;
use atrapos_baselines::domains::TableStructure;
use atrapos_harness::driver::{Clients, LiveLatency, Routing};
use atrapos_harness::registry::AnyWorkload;
use atrapos_topology::Machine;
use atrapos_workloads::registry::Choice;

use crate::args::{
    AdaptationArgs, CommonArgs, DurabilityArg, DurabilityArgs, EngineArg, LocksArg, ObservingArgs,
    PartitioningArg, RoutingArg, RunArgs,
};
use crate::error::CliError;
use crate::machine;
use crate::output::JsonFile;

/// Default sessions per worker if no session waits for a device: enough that look-ups of independent transactions fill
/// batches of sixteen while as many wait for other workers; more only make each wait longer.
const SESSIONS_IN_MEMORY: usize = 64;

/// The same of sessions that draw several transactions at a time.
const SESSIONS_WITH_BURSTS: usize = 8;

/// Default sessions per worker if transactions become durable, given the median time of a sync of the device in
/// microseconds: enough that a worker has work while the transactions of the others wait, which is the more the longer
/// a sync takes (a worker runs about one transaction in a microsecond, and one in three waits for a sync or two). More
/// than that only crowd the cache, and wait for each other.
pub(crate) fn sessions_durable(device_sync_us: f64) -> NonZeroUsize {
    let wanted = (device_sync_us * 0.8) as usize;
    let sessions = wanted.next_power_of_two().clamp(SESSIONS_DURABLE_MIN, SESSIONS_DURABLE_MAX);
    NonZeroUsize::new(sessions).unwrap_or(NonZeroUsize::MIN)
}

const SESSIONS_DURABLE_MIN: usize = 256;
const SESSIONS_DURABLE_MAX: usize = 2048;

/// Limit of sessions per worker: more could not be served without long waits of all of them.
const SESSIONS_MAX: usize = 8192;

/// Default milliseconds of transactions that relaxed durability may lose.
pub(crate) const MAX_LOSS_MS_DEFAULT: u64 = 100;

/// Limit of a length of time, in seconds: longer than any useful run, and short enough to be added up.
const SECONDS_MAX: f64 = 1e7;

/// Returns the length of time given as `option`.
pub fn duration(option: &str, seconds: f64, may_be_zero: bool) -> Result<Duration, CliError> {
    let least = if may_be_zero { "0" } else { "more than 0" };
    if !(0.0..=SECONDS_MAX).contains(&seconds) || (seconds == 0.0 && !may_be_zero) {
        return Err(CliError::bad_input(format!(
            "{option} {seconds} is no length of time to run; use {least} up to {SECONDS_MAX} seconds"
        )));
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn at_least_one(option: &str, number: usize, what: &str) -> Result<NonZeroUsize, CliError> {
    NonZeroUsize::new(number)
        .ok_or_else(|| CliError::bad_input(format!("{option} 0 leaves {what}; use at least 1")))
}

/// Settings derived from the arguments of a benchmark.
#[derive(Debug)]
pub(crate) struct RunConfig {
    pub(crate) machine: Machine,
    pub(crate) workers: usize,
    pub(crate) pin: bool,
    pub(crate) place_memory: bool,
    /// Bytes to prepare for tables that grow; `None` for what the workload is known to take.
    pub(crate) reserve_bytes: Option<u64>,
    /// Bytes of WAL to fill with zeros; `None` for what a run may write.
    pub(crate) wal_reserve_bytes: Option<u64>,
    pub(crate) engine: EngineArg,
    /// The parts of the system state that workers share.
    pub(crate) central_state: CentralState,
    /// Choice of partitions before the first measurement; `None` if they are not.
    pub(crate) partitioning: Option<PartitioningArg>,
    pub(crate) clients: Clients,
    /// True if their number was given, and is not to be derived from the speed of the device.
    pub(crate) clients_given: bool,
    /// Transactions that a thread of an engine with shared data commits before the first is acknowledged; `None` for as many as
    /// suit the device.
    pub(crate) shared_pipeline: Option<NonZeroUsize>,
    /// The locks that the engine with locks takes.
    pub(crate) locks: LocksArg,
    /// The structure of tables in domains.
    pub(crate) structure: TableStructure,
    pub(crate) durability: Durability,
    /// The directory of the database, if it was given.
    pub(crate) dir: Option<PathBuf>,
    pub(crate) checkpoint_during: bool,
    pub(crate) routing: Routing,
    pub(crate) warmup: Duration,
    pub(crate) measured: Duration,
    pub(crate) runs: u32,
    pub(crate) seed: u64,
    pub(crate) json: Option<JsonFile>,
    /// Settings by which the database adapts itself; `None` if it keeps its scheme.
    pub(crate) adaptation: Option<Adaptation>,
    /// The file for the recorded observations.
    pub(crate) record: Option<JsonFile>,
    /// Latencies of the clients, for those who watch a run.
    pub(crate) live: Arc<LiveLatency>,
}

/// Limit of client threads: more are surely a mistake.
const CLIENTS_MAX: usize = 1 << 16;

/// Number of workers that the engine supports.
const WORKERS_MAX: usize = 4096;

impl RunConfig {
    /// Checks and resolves arguments.
    pub(crate) fn of(args: &RunArgs) -> Result<RunConfig, CliError> {
        let measured = duration("--seconds", args.common.seconds, false)?;
        let warmup = duration("--warmup", args.warmup, true)?;
        at_least_one("--runs", args.runs as usize, "nothing to measure")?;
        let routing = match args.routing {
            RoutingArg::Any => Routing::Any,
            RoutingArg::Owner => Routing::Owner,
        };
        let durability = durability(&args.durability)?;
        check_engine(args, durability)?;
        let clients = clients(args, durability)?;
        let machine = machine::read(&args.common.topology)?;
        let (clients, workers) = match args.engine {
            EngineArg::Domains => on_domains(args, clients, &machine)?,
            _ => (clients, workers(args.workers, &machine)?),
        };
        let structure = args.structure.as_deref().unwrap_or(TableStructure::default().name());
        let structure = structure.parse().map_err(CliError::bad_input)?;
        let json = json_file(&args.common)?;
        let record = args.record.as_deref().map(JsonFile::prepare).transpose()?;
        // A recording is to be of one scheme; and clients that use only keys of their worker need its keys to stay the
        // same.
        let partitioning = args.system.partitioning(args.engine, args.fixed);
        let act = record.is_none() && matches!(routing, Routing::Any) && partitioning.is_none();
        let adaptation = Adaptation { act, ..adaptation(&args.adaptation)? };
        let pin = !args.common.no_pin && machine::may_pin(&machine);
        Ok(RunConfig {
            machine,
            workers,
            pin,
            place_memory: !args.no_place_memory,
            reserve_bytes: args.reserve.map(|mib| mib.saturating_mul(1 << 20)),
            wal_reserve_bytes: args.wal_reserve.map(|mib| mib.saturating_mul(1 << 20)),
            engine: args.engine,
            central_state: args.system.central_state(args.engine),
            partitioning,
            clients,
            shared_pipeline: args.pipeline.map(|_| pipeline(args, durability)).transpose()?,
            locks: args.locks,
            structure,
            clients_given: args.clients.is_some() || args.sessions.is_some() || args.pipeline.is_some(),
            durability,
            dir: args.durability.dir.clone(),
            checkpoint_during: args.durability.checkpoint_during,
            routing,
            warmup,
            measured,
            runs: args.runs,
            seed: args.common.seed,
            json,
            adaptation: (!args.fixed).then_some(adaptation),
            record,
            live: Arc::default(),
        })
    }
}

/// Protection of the data of the engine with locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Protection {
    pub(crate) locks: bool,
    pub(crate) latches: bool,
}

impl Protection {
    /// Adds it to the settings in a result.
    pub(crate) fn describe(self, settings: &mut serde_json::Value) {
        let word = |is_on: bool| if is_on { "on" } else { "off" };
        settings["locks"] = word(self.locks).into();
        settings["latches"] = word(self.latches).into();
    }
}

impl RunConfig {
    /// Returns what the engine with locks takes. It takes no locks if it was asked not to, or if one thread runs a load that only
    /// reads; and no latches if one thread runs everything: not inside an instance, where other threads serve the other ones. Locks that
    /// were asked for come with latches.
    /// `workers` are those of the instance with the most, or of the database.
    pub(crate) fn protection(
        &self,
        workload: &dyn AnyWorkload,
        workers: usize,
        in_instance: bool,
    ) -> Protection {
        let threads = match self.clients {
            Clients::Threads { threads } => threads.get(),
            Clients::Sessions { .. } => workers,
        };
        let locks = match self.locks {
            LocksArg::Auto => threads > 1 || !workload.only_reads(),
            LocksArg::On => true,
            LocksArg::Off => false,
        };
        Protection { locks, latches: threads > 1 || in_instance || self.locks == LocksArg::On }
    }
}

/// Returns the client threads and the workers of domains: those that were not given are as many as there are processing units left, and
/// of these one half each.
fn on_domains(args: &RunArgs, clients: Clients, machine: &Machine) -> Result<(Clients, usize), CliError> {
    let cpus = machine.default_workers();
    let given = match clients {
        Clients::Threads { threads } => Some(threads.get()),
        Clients::Sessions { .. } => None,
    };
    let left = |taken: usize| cpus.saturating_sub(taken).max(1);
    let workers = workers(Some(args.workers.unwrap_or_else(|| left(given.unwrap_or(cpus / 2)))), machine)?;
    let threads = NonZeroUsize::new(given.unwrap_or_else(|| left(workers))).unwrap_or(NonZeroUsize::MIN);
    Ok((Clients::Threads { threads }, workers))
}

/// Refuses what tables in domains do not have, and their options for other engines.
fn check_domains(args: &RunArgs, durability: Durability) -> Result<(), CliError> {
    let why = match args.engine {
        EngineArg::Domains if durability != Durability::None => {
            "--engine domains has no log: its tables are in memory; add --durability none"
        }
        EngineArg::Domains if args.instances.instances.is_some() => {
            "--engine domains is one process; leave out --instances, or choose another engine"
        }
        EngineArg::Domains => return Ok(()),
        _ if args.structure.is_some() => {
            "--structure is of tables in domains; leave it out, or choose --engine domains"
        }
        _ => return Ok(()),
    };
    Err(CliError::bad_input(why))
}

/// Refuses options that the engine does not have.
fn check_engine(args: &RunArgs, durability: Durability) -> Result<(), CliError> {
    check_domains(args, durability)?;
    if args.locks == LocksArg::Off && args.engine != EngineArg::Shared2pl {
        return Err(CliError::bad_input(
            "--locks off is for the engine that has a lock manager; leave it out, or choose --engine shared-2pl",
        ));
    }
    if !args.engine.shares_data() {
        return match (args.clients, args.pipeline) {
            (Some(_), Some(_)) => Err(CliError::bad_input(
                "--pipeline is for sessions, or for threads of an engine with shared data; leave out --clients, or choose \
                 --engine shared-occ",
            )),
            _ => check_log_buffer(args, durability),
        };
    }
    let foreign = [
        (args.sessions.is_some(), "--sessions"),
        (args.burst.is_some(), "--burst"),
        (args.reserve.is_some(), "--reserve"),
        (args.wal_reserve.is_some(), "--wal-reserve"),
        (args.durability.checkpoint_during, "--checkpoint-during"),
        (args.record.is_some(), "--record"),
    ];
    let foreign = foreign.into_iter().find(|(given, _)| *given).map(|(_, option)| option);
    match foreign.or(args.system.given()) {
        Some(option) => Err(CliError::bad_input(format!(
            "{option} is for engines whose workers own the data; leave it out, or choose --engine atrapos"
        ))),
        None => Ok(()),
    }
}

/// Refuses a log buffer for what is not logged.
fn check_log_buffer(args: &RunArgs, durability: Durability) -> Result<(), CliError> {
    if args.system.log_buffer.is_some() && durability == Durability::None {
        return Err(CliError::bad_input(
            "--log-buffer is of no use to a database in memory; leave it out, or choose another --durability",
        ));
    }
    Ok(())
}

/// Returns the number of workers.
pub fn workers(wanted: Option<usize>, machine: &Machine) -> Result<usize, CliError> {
    let workers = wanted.unwrap_or_else(|| machine.default_workers());
    let workers = at_least_one("--workers", workers, "nobody to own the data")?.get();
    if workers > WORKERS_MAX {
        return Err(CliError::bad_input(format!(
            "{workers} workers are more than any machine has cores; use at most {WORKERS_MAX}"
        )));
    }
    Ok(workers)
}

/// Returns the number of sessions on each worker.
pub fn sessions(wanted: usize) -> Result<usize, CliError> {
    let sessions = at_least_one("--sessions", wanted, "nobody to run transactions")?.get();
    if sessions > SESSIONS_MAX {
        return Err(CliError::bad_input(format!(
            "{sessions} clients on each worker are more than it can serve; use at most {SESSIONS_MAX} --sessions"
        )));
    }
    Ok(sessions)
}

/// Returns clients that are so many sessions on each worker.
pub(crate) fn sessions_per_worker(
    wanted: usize,
    pipeline: NonZeroUsize,
    burst: NonZeroUsize,
) -> Result<Clients, CliError> {
    let per_worker = NonZeroUsize::new(sessions(wanted)?).unwrap_or(NonZeroUsize::MIN);
    Ok(Clients::Sessions { per_worker, pipeline, burst })
}

/// Returns the transactions that a session draws together; `waits` is true if it waits for each to be durable. One that waits for
/// replies of other workers between them gains nothing.
fn burst(args: &RunArgs, waits: bool) -> Result<NonZeroUsize, CliError> {
    let stays = args.routing == RoutingArg::Owner && !waits;
    let wanted = args.burst.unwrap_or(if stays { UPCOMING_MAX } else { 1 });
    if wanted > UPCOMING_MAX {
        return Err(CliError::bad_input(format!(
            "a burst of {wanted} transactions is more than a session looks up together; use at most {UPCOMING_MAX}"
        )));
    }
    at_least_one("--burst", wanted, "no transaction to run")
}

/// Returns the clients of a database in memory unless others are asked for.
pub(crate) fn clients_in_memory() -> Clients {
    Clients::sessions(NonZeroUsize::new(SESSIONS_IN_MEMORY).unwrap_or(NonZeroUsize::MIN))
}

/// Returns the transactions that a session commits before the first of them is acknowledged.
fn pipeline(args: &RunArgs, durability: Durability) -> Result<NonZeroUsize, CliError> {
    let Some(wanted) = args.pipeline else { return Ok(NonZeroUsize::MIN) };
    let pipeline = at_least_one("--pipeline", wanted, "no transaction to run")?;
    if durability == Durability::None {
        return Err(CliError::bad_input(
            "--pipeline is of no use to a database in memory, which acknowledges at once; leave it out, or choose another \
             --durability",
        ));
    }
    if pipeline.get() > SESSIONS_MAX {
        return Err(CliError::bad_input(format!(
            "a pipeline of {pipeline} transactions is more than a session fills; use at most {SESSIONS_MAX}"
        )));
    }
    Ok(pipeline)
}

/// Returns the clients that run the transactions.
fn clients(args: &RunArgs, durability: Durability) -> Result<Clients, CliError> {
    if let Some(threads) = args.clients {
        let threads = at_least_one("--clients", threads, "nobody to run transactions")?;
        if threads.get() > CLIENTS_MAX {
            return Err(CliError::bad_input(format!(
                "{threads} clients are more than a run can hold; use at most {CLIENTS_MAX}"
            )));
        }
        return Ok(Clients::Threads { threads });
    }
    let pipeline = pipeline(args, durability)?;
    // Sessions that wait for each transaction leave the worker to others meanwhile; with a pipeline they need not be many.
    let waits = durability == Durability::Synchronous && pipeline == NonZeroUsize::MIN;
    let burst = burst(args, waits)?;
    let default = match burst.get() {
        _ if waits => SESSIONS_DURABLE_MIN,
        1 => SESSIONS_IN_MEMORY,
        // Few sessions have many transactions at hand, and their states stay in the cache.
        _ => SESSIONS_WITH_BURSTS,
    };
    sessions_per_worker(args.sessions.unwrap_or(default), pipeline, burst)
}

/// Returns the durability that two options name together.
pub(crate) fn durability_of(
    durability: DurabilityArg,
    max_loss_ms: Option<u64>,
) -> Result<Durability, CliError> {
    match (durability, max_loss_ms) {
        (DurabilityArg::Relaxed, Some(0)) => Err(CliError::bad_input(
            "--max-loss-ms 0 is synchronous durability; ask for that, or for at least 1",
        )),
        (DurabilityArg::Relaxed, max_loss_ms) => {
            Ok(Durability::Relaxed { max_loss_ms: max_loss_ms.unwrap_or(MAX_LOSS_MS_DEFAULT) })
        }
        (_, Some(_)) => Err(CliError::bad_input(
            "--max-loss-ms says what relaxed durability may lose; add --durability relaxed, or leave it out",
        )),
        (DurabilityArg::Synchronous, None) => Ok(Durability::Synchronous),
        (DurabilityArg::None, None) => Ok(Durability::None),
    }
}

/// Returns the durability, which decides when transactions are reported; refuses options that contradict each other.
fn durability(args: &DurabilityArgs) -> Result<Durability, CliError> {
    let durability = durability_of(args.durability, args.max_loss_ms)?;
    if durability == Durability::None {
        for (given, option) in
            [(args.dir.is_some(), "--dir"), (args.checkpoint_during, "--checkpoint-during")]
        {
            if given {
                return Err(CliError::bad_input(format!(
                    "{option} is of no use to a database in memory; leave it out, or choose another --durability"
                )));
            }
        }
    }
    Ok(durability)
}

/// Factor by which the interval grows in calm times: the paper's 8 s over 1 s.
const INTERVAL_GROWTH: u32 = 8;

/// Returns the setting of the controller that this option names.
pub fn setting(name: &str, option: &str) -> Result<Setting, CliError> {
    Setting::named(name).ok_or_else(|| {
        let known = Setting::all().map(|setting| format!("{} ({})", setting.name, setting.unit));
        let known: Vec<String> = known.collect();
        CliError::bad_input(format!("there is no setting '{name}'; {option} takes {}", known.join(", ")))
    })
}

/// Gives a setting of the controller the value of a `NAME=VALUE` of this option.
fn set(controller: &mut ControllerSettings, option: &str, given: &str) -> Result<(), CliError> {
    let (name, value) = given.split_once('=').ok_or_else(|| {
        CliError::bad_input(format!(
            "{option} {given} has no value; write for example {option} imbalance=0.3"
        ))
    })?;
    let setting = setting(name, option)?;
    let number: f64 = value.parse().map_err(|_| {
        CliError::bad_input(format!("{option} {name} takes a number in {}, not '{value}'", setting.unit))
    })?;
    setting.give(controller, number).map_err(CliError::bad_input)
}

/// Refuses tables apart in an engine whose threads share the data.
pub(crate) fn check_apart(choice: &Choice, engine: EngineArg) -> Result<(), CliError> {
    if choice.has_tables_apart() && engine.shares_data() {
        return Err(CliError::bad_input(format!(
            "--apart says how workers divide the tables that they own, and {} has none; leave one of them out",
            engine.name()
        )));
    }
    Ok(())
}

/// Returns the settings by which a database adapts itself.
pub fn adaptation(args: &AdaptationArgs) -> Result<Adaptation, CliError> {
    adaptation_of(&args.observing, "--set", &args.set)
}

/// Returns the settings by which a database adapts itself, those of the controller from this option.
pub(crate) fn adaptation_of(
    args: &ObservingArgs,
    option: &str,
    controller_settings: &[String],
) -> Result<Adaptation, CliError> {
    let mut adaptation = Adaptation::default();
    let controller = &mut adaptation.controller;
    if let Some(seconds) = args.interval {
        controller.interval = duration("--interval", seconds, false)?;
        controller.interval_max = controller.interval.saturating_mul(INTERVAL_GROWTH);
    }
    controller.threshold = args.threshold.unwrap_or(controller.threshold);
    for given in controller_settings {
        set(controller, option, given)?;
    }
    adaptation.sub_partitions = args.sub_partitions.unwrap_or(adaptation.sub_partitions);
    adaptation.sample_every = args.sample_every.unwrap_or(adaptation.sample_every);
    adaptation.rows_per_worker = args.rows_per_worker.unwrap_or(adaptation.rows_per_worker);
    Ok(adaptation)
}

/// Returns the settings by which a database adapts itself, as [`adaptation_of`] does, and checks them; `None` if it is to keep its scheme.
pub(crate) fn adaptation_unless(
    fixed: bool,
    args: &ObservingArgs,
    option: &str,
    controller_settings: &[String],
) -> Result<Option<Adaptation>, CliError> {
    let given = args.given().or((!controller_settings.is_empty()).then_some(option));
    if let (true, Some(given)) = (fixed, given) {
        return Err(CliError::bad_input(format!(
            "{given} says how a database adapts, and with --static it does not; leave one of them out"
        )));
    }
    let adaptation = adaptation_of(args, option, controller_settings)?;
    adaptation.check().map_err(CliError::bad_input)?;
    Ok((!fixed).then_some(adaptation))
}

/// Returns the file for the result, if one is wanted; it is known to be writable.
pub fn json_file(args: &CommonArgs) -> Result<Option<JsonFile>, CliError> {
    args.json.as_deref().map(JsonFile::prepare).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slower_device_gets_more_sessions() {
        let sessions = [0.0, 150.0, 600.0, 2500.0, 1e9].map(|sync| sessions_durable(sync).get());
        assert_eq!(sessions, [256, 256, 512, 2048, 2048]);
    }

    #[test]
    fn lengths_of_time_are_checked() {
        assert_eq!(duration("--seconds", 0.25, false).ok(), Some(Duration::from_millis(250)));
        assert_eq!(duration("--warmup", 0.0, true).ok(), Some(Duration::ZERO));
        for (seconds, may_be_zero) in
            [(0.0, false), (-1.0, true), (f64::NAN, true), (f64::INFINITY, true), (1e300, true)]
        {
            let refused = duration("--seconds", seconds, may_be_zero).expect_err("refused").to_string();
            assert!(refused.contains("--seconds"), "{refused}");
        }
    }
}
