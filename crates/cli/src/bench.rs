//! `atrapos bench` of any workload: load, run, audit, report.
//!
//! Owns: the order of the steps: the place where the database is made, its removal, and the steps in between. Never:
//! measures anything itself (the driver does), formats it (the table and JSON do), or knows one workload from another.
//!
//! Every invalid setting is refused before the database is loaded; the measurements are reported even if the
//! audit fails.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use atrapos::{AdaptationEvent, Database, Durability, LoadProgress, PreparedStatistics};
use atrapos_adapt::ClassFlow;
use atrapos_durability::file::FileSystem;
use atrapos_harness::driver::{Clients, Progress, Quantiles, RunError, RunOptions, RunResult};
use atrapos_harness::registry::{AnyWorkload, Configured};
use atrapos_runtime::memory::HUGE_PAGE_BYTES;
use atrapos_topology::Machine;
use atrapos_watch::WatchedOptions;
use atrapos_watch::report::Latency;
use atrapos_workloads::registry::{Choice, Common};
use atrapos_workloads::{AuditReport, ClassId, Ledger};
use serde_json::{Value, json};

use crate::args::{EngineArg, PartitioningArg, RunArgs, WorkloadBench};
use crate::checkpoints::{Checkpoints, while_measuring};
use crate::config::{self, RunConfig};
use crate::error::CliError;
use crate::output::JsonFile;
use crate::progress::{RunBar, while_loading};
use crate::resident::resident_bytes;
use crate::shared::{self, Measured};
use crate::store::{self, Store};
use crate::{instances, interrupt, json, machine, output, partitioning, table, watch};

/// Result of loading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) rows: u64,
    pub(crate) elapsed: Duration,
    /// Growth of the memory of the process.
    pub(crate) resident_bytes: Option<u64>,
    /// Memory that the trees have taken.
    pub(crate) tree_bytes: u64,
    /// Size of rows and keys, encoded.
    pub(crate) encoded_bytes: u64,
}

impl Load {
    pub(crate) fn rows_per_second(&self) -> f64 {
        self.rows as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// Memory that the tables have taken after loading, as far as it was chunks of 2 MiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Growth {
    /// Memory that was prepared before the first run.
    pub(crate) reserved_bytes: u64,
    /// Memory that was prepared when it was taken.
    pub(crate) prepared_bytes: u64,
    /// Memory that was not.
    pub(crate) unprepared_bytes: u64,
}

impl Growth {
    fn between(before: &PreparedStatistics, after: &PreparedStatistics, reserved_bytes: u64) -> Growth {
        Growth {
            reserved_bytes,
            prepared_bytes: (after.taken - before.taken) * HUGE_PAGE_BYTES as u64,
            unprepared_bytes: (after.taken_unprepared - before.taken_unprepared) * HUGE_PAGE_BYTES as u64,
        }
    }
}

/// One measured run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) result: RunResult,
    /// Checkpoints made while it was measured, if any were requested.
    pub(crate) checkpoints: Option<Checkpoints>,
}

/// Contents of a report.
#[derive(Debug)]
pub(crate) struct BenchReport {
    pub(crate) benchmark: &'static str,
    /// The class whose transactions per minute are usually compared, if there is one.
    pub(crate) per_minute: Option<ClassId>,
    /// The settings in one line of text.
    pub(crate) title: String,
    /// The complete settings.
    pub(crate) config: Value,
    pub(crate) machine: Value,
    pub(crate) load: Load,
    pub(crate) growth: Growth,
    /// The median time of an append and a sync in the database's directory, in microseconds; `None` for a database in
    /// memory.
    pub(crate) device_sync_us: Option<f64>,
    /// Runs in the order in which they were made; not empty.
    pub(crate) runs: Vec<Run>,
    /// Decisions of the database about its scheme.
    pub(crate) decisions: Vec<AdaptationEvent>,
    /// Result of the last audit; `Err` describes its finding.
    pub(crate) audit: Audited,
}

impl BenchReport {
    /// Prints it, and writes it to the file.
    pub(crate) fn print(&self, json: Option<JsonFile>) -> Result<(), CliError> {
        output::print(&table::bench(self))?;
        json.map_or(Ok(()), |file| file.write(&json::bench(self)))
    }

    /// Fails if the audit has.
    pub(crate) fn check(self) -> Result<(), CliError> {
        self.audit.map(drop).map_err(|wrong| CliError::failed(format!("the audit failed: {wrong}")))
    }

    /// Returns the throughput of every run.
    pub(crate) fn throughputs(&self) -> Vec<f64> {
        self.runs.iter().map(|run| run.result.throughput_tps()).collect()
    }

    /// Returns the median of the runs' throughputs.
    pub(crate) fn throughput_tps(&self) -> f64 {
        atrapos_harness::median(&mut self.throughputs())
    }

    /// Returns the median of the runs' rates of the class that is usually compared, per minute.
    pub(crate) fn completed_per_minute(&self) -> Option<f64> {
        let class = self.per_minute?.index();
        let rate = |run: &Run| run.result.per_second(run.result.classes[class].tally.completed());
        let mut rates: Vec<f64> = self.runs.iter().map(|run| 60.0 * rate(run)).collect();
        Some(atrapos_harness::median(&mut rates))
    }

    /// Returns the run in the middle (the lower one of two), which is shown in detail.
    pub(crate) fn middle(&self) -> &Run {
        let mut order: Vec<&Run> = self.runs.iter().collect();
        order.sort_by(|a, b| a.result.throughput_tps().total_cmp(&b.result.throughput_tps()));
        order[(order.len() - 1) / 2]
    }
}

/// Returns the settings in a result: those of the workload and those all benchmarks have.
pub(crate) fn complete(settings: Value, benchmark: &str, args: &RunArgs, config: &RunConfig) -> Value {
    let (sessions, pipeline, burst) = match config.clients {
        Clients::Sessions { per_worker, pipeline, burst } => {
            (Some(per_worker.get()), Some(pipeline.get()), Some(burst.get()))
        }
        Clients::Threads { .. } => (None, None, None),
    };
    let (durability, max_loss_ms) = match config.durability {
        Durability::Synchronous => ("synchronous", None),
        Durability::Relaxed { max_loss_ms } => ("relaxed", Some(max_loss_ms)),
        Durability::None => ("none", None),
    };
    let mut all = json!({
        "benchmark": benchmark,
        "engine": json::engine_name(config.engine),
        "seconds": args.common.seconds,
        "warmup": args.warmup,
        "runs": args.runs,
        "workers": config.workers,
        "sessions": sessions,
        "pipeline": pipeline,
        "burst": burst,
        "clients": args.clients,
        "durability": durability,
        "max_loss_ms": max_loss_ms,
        "dir": config.dir.as_ref().map(|dir| dir.display().to_string()),
        "checkpoint_during": config.checkpoint_during,
        "instances": args.instances.instances,
        "channel": args.instances.instances.map(|_| args.instances.channel.to_string()),
        "placement": args.instances.instances.map(|_| args.instances.placement.name()),
        "oversubscribed": config.workers > config.machine.usable_cpus().len(),
        "adapts": config.adaptation.is_some_and(|adaptation| adaptation.act),
        "routing": json::routing_name(config.routing),
        "topology": args.common.topology,
        "pin": config.pin,
        "place_memory": config.place_memory,
        "transaction_list": json::scope_name(config.central_state.transaction_list),
        "transaction_numbers": json::scope_name(config.central_state.transaction_numbers),
        "state_locks": json::scope_name(config.central_state.state_locks),
        "log_buffer": json::scope_name(config.central_state.log_buffer),
        "partitioning": config.partitioning.map(PartitioningArg::name),
        "seed": config.seed,
    });
    if let (Some(all), Value::Object(settings)) = (all.as_object_mut(), settings) {
        all.extend(settings);
    }
    all
}

/// Refuses what [`workload`] would refuse before it begins.
pub(crate) fn check(bench: &WorkloadBench) -> Result<(), CliError> {
    let mut config = RunConfig::of(&bench.run)?;
    let common = Common { workers: config.workers, seed: config.seed };
    bench.given.configure(common).map_err(CliError::bad_input)?;
    if bench.run.instances.instances.is_some() {
        instances::check(&bench.run, &mut config)?;
    }
    Ok(())
}

/// Runs `atrapos bench` of a workload.
pub(crate) fn workload(bench: &WorkloadBench) -> Result<(), CliError> {
    let mut config = RunConfig::of(&bench.run)?;
    let common = Common { workers: config.workers, seed: config.seed };
    let Configured { name, choice, workload } = bench.given.configure(common).map_err(CliError::bad_input)?;
    config::check_apart(&choice, config.engine)?;
    if let (Some(sessions), false) = (choice.sessions_per_worker, config.clients_given) {
        config.clients = config::sessions_per_worker(sessions, NonZeroUsize::MIN, NonZeroUsize::MIN)?;
        config.clients_given = true;
    }
    run(name, choice, &*workload, &bench.run, config)
}

/// Opens an empty database for a workload.
pub(crate) fn open(
    workload: &dyn AnyWorkload,
    config: &RunConfig,
    store: Option<&Store>,
    files: &Arc<dyn FileSystem>,
) -> Result<Database, CliError> {
    let builder = Database::builder(workload.schema())
        .workers(config.workers)
        .machine(config.machine.clone())
        .pin(config.pin)
        .place_memory(config.place_memory)
        .durability(config.durability)
        .central_state(config.central_state)
        .files(Arc::clone(files));
    let builder = match config.adaptation {
        Some(adaptation) => builder.adaptation(adaptation),
        None => builder.fixed_scheme(),
    };
    let opened = match store {
        Some(store) => builder.wal_reserve_bytes(wal_reserve(store, config)).open(store.path()),
        None => builder.in_memory(),
    };
    opened.map_err(CliError::bad_input)
}

/// Returns what those who watch the database of a benchmark are told of it.
fn offered(benchmark: &str, config: &RunConfig, store: Option<&Store>) -> WatchedOptions {
    let live = Arc::clone(&config.live);
    let latency = move || live.take().map(|Quantiles { p50_us, p99_us }| Latency { p50_us, p99_us });
    WatchedOptions {
        program: format!("bench {benchmark}"),
        directory: store.map(|store| store.path().to_owned()),
        latency: Some(Box::new(latency)),
    }
}

/// Loads, runs, audits and reports a workload.
fn run(
    benchmark: &'static str,
    choice: Choice,
    workload: &dyn AnyWorkload,
    args: &RunArgs,
    mut config: RunConfig,
) -> Result<(), CliError> {
    if let Some(available) = machine::available_memory_bytes() {
        workload.check_memory(available).map_err(CliError::bad_input)?;
    }
    interrupt::install();
    let resident_before = resident_bytes();
    if args.instances.instances.is_some() {
        return instances::run(benchmark, choice, workload, args, config);
    }
    if config.engine.shares_data() {
        return run_shared(benchmark, choice, workload, args, config);
    }
    let files = store::files();
    let store = Store::prepare(config.durability, config.dir.as_deref(), &*files)?;
    if let (Some(store), Durability::Synchronous, false) = (&store, config.durability, config.clients_given) {
        let per_worker = config::sessions_durable(store.device_sync_us);
        config.clients = Clients::sessions(per_worker);
    }
    let db = Arc::new(open(workload, &config, store.as_ref(), &files)?);
    let watched = watch::offer(&db, offered(benchmark, &config, store.as_ref()));
    let load = load(workload, &db, resident_before)?;
    let reserved_bytes = reserve(workload, &db, &config)?;
    let before = db.prepared_memory();
    for warning in db.warnings() {
        output::complain(&format!("warning: {warning}"));
    }
    let ledger = partitioning::choose(workload, &db, &config)?;
    if config.record.is_some() {
        // The statistics so far, of loading, are discarded.
        db.workload_trace().map_err(CliError::failed)?;
    }
    let (runs, audit) = measure_atrapos(workload, &db, &config, ledger)?;
    let after = db.prepared_memory();
    let report = BenchReport {
        benchmark,
        per_minute: choice.per_minute,
        title: choice.title,
        config: complete(choice.settings, benchmark, args, &config),
        machine: machine::summary(&config.machine),
        load,
        growth: Growth::between(&before, &after, reserved_bytes),
        device_sync_us: store.as_ref().map(|store| store.device_sync_us),
        runs,
        decisions: db.adaptation_history(),
        audit,
    };
    report.print(config.json)?;
    if let Some(file) = config.record {
        let runs: Vec<&RunResult> = report.runs.iter().map(|run| &run.result).collect();
        file.write(&recorded(workload, &db, &config.machine, &runs)?)?;
    }
    drop(watched);
    let closed = Arc::into_inner(db).expect("nobody else has it any more").close(CLOSE_DEADLINE);
    if let Some(store) = store {
        store.remove();
    }
    report.check()?;
    closed.failure.map_or(Ok(()), |failure| {
        Err(CliError::failed(format!("the database could not be closed in order: {failure}")))
    })
}

/// Loads, runs, audits and reports a workload on an engine with shared data.
fn run_shared(
    benchmark: &'static str,
    choice: Choice,
    workload: &dyn AnyWorkload,
    args: &RunArgs,
    config: RunConfig,
) -> Result<(), CliError> {
    let Measured { load, growth, runs, audit, pipeline, device_sync_us } =
        shared::run(workload, &config, resident_bytes())?;
    let mut settings = complete(choice.settings, benchmark, args, &config);
    settings["pipeline"] = json!(pipeline);
    if config.engine == EngineArg::Shared2pl {
        config.protection(workload, config.workers, false).describe(&mut settings);
    }
    if config.engine == EngineArg::Domains {
        settings["structure"] = json!(config.structure.name());
        if let Clients::Threads { threads } = config.clients {
            settings["clients"] = json!(threads);
        }
    }
    let report = BenchReport {
        benchmark,
        per_minute: choice.per_minute,
        title: choice.title,
        config: settings,
        machine: machine::summary(&config.machine),
        load,
        growth,
        device_sync_us,
        runs,
        decisions: Vec::new(),
        audit,
    };
    report.print(config.json)?;
    report.check()
}

/// Returns the observations of the database, as `atrapos plan` reads them, with the flow graphs of the classes that
/// ran.
fn recorded(
    workload: &dyn AnyWorkload,
    db: &Database,
    machine: &Machine,
    runs: &[&RunResult],
) -> Result<Value, CliError> {
    let mut trace = db.workload_trace().map_err(CliError::failed)?;
    // Those that the clients have counted, in place of those of samples.
    trace.classes.clear();
    for (class, flow) in workload.flows().map_err(CliError::failed)?.iter().enumerate() {
        let count = runs.iter().map(|run| run.tallies_all[class].completed()).sum();
        if count > 0 {
            trace.classes.push(ClassFlow { count, ..flow.class_by_family() });
        }
    }
    trace.machine = Some(machine.name().unwrap_or("this machine").to_owned());
    serde_json::to_value(&trace).map_err(CliError::failed)
}

/// Time that closing the database may take: every client has ended by then.
pub(crate) const CLOSE_DEADLINE: Duration = Duration::from_secs(30);

pub(crate) fn load(
    workload: &dyn AnyWorkload,
    db: &Database,
    resident_before: Option<u64>,
) -> Result<Load, CliError> {
    let progress = LoadProgress::default();
    let began = Instant::now();
    let loaded = while_loading(workload.expected_rows(), &progress, || workload.load(db, &progress));
    let elapsed = began.elapsed();
    let rows =
        loaded.map_err(|error| CliError::failed(format!("the database could not be loaded: {error}")))?;
    let resident_bytes =
        resident_bytes().zip(resident_before).map(|(now, before)| now.saturating_sub(before));
    let tree_bytes = db.memory_bytes().map_err(CliError::failed)? as u64;
    Ok(Load { rows, elapsed, resident_bytes, tree_bytes, encoded_bytes: workload.encoded_bytes() })
}

/// Prepares the memory by which the tables will grow: what was requested, or what such a workload is known to take.
///
/// Returns its bytes.
pub(crate) fn reserve(
    workload: &dyn AnyWorkload,
    db: &Database,
    config: &RunConfig,
) -> Result<u64, CliError> {
    let known = || {
        let time = (config.warmup + config.measured).as_secs_f64() * f64::from(config.runs);
        // More workers than processing units make no more rows.
        let busy = db.workers().min(config.machine.usable_cpus().len());
        let growth = workload.growth_bytes_per_second() * busy as u64;
        let room = machine::available_memory_bytes().map_or(0, |available| available / 4);
        ((growth as f64 * time) as u64).min(room).min(RESERVE_BYTES_MAX)
    };
    let bytes = config.reserve_bytes.unwrap_or_else(known);
    db.reserve(bytes).map_err(|error| CliError::bad_input(format!("--reserve: {error}")))?;
    Ok(bytes)
}

/// Returns the bytes of WAL to fill with zeros: what was requested, or what runs of that length may write.
fn wal_reserve(store: &Store, config: &RunConfig) -> u64 {
    let may_write = || {
        let time = (config.warmup + config.measured).as_secs_f64() * f64::from(config.runs);
        let free = store.free_bytes().unwrap_or(u64::MAX);
        ((WAL_BYTES_PER_SECOND * time) as u64).min(WAL_RESERVE_BYTES_MAX).min(free / 4)
    };
    config.wal_reserve_bytes.unwrap_or_else(may_write)
}

/// The bytes that two fast workers write to the WAL in a second.
const WAL_BYTES_PER_SECOND: f64 = 160e6;

/// Limit of the WAL that is filled without being requested: after as much a checkpoint is made, and its files are used again.
const WAL_RESERVE_BYTES_MAX: u64 = 1 << 30;

/// Limit of the memory that is prepared without being requested.
const RESERVE_BYTES_MAX: u64 = 4 << 30;

/// The result of an audit; `Err` describes its finding.
pub(crate) type Audited = Result<AuditReport, String>;

/// One run of the clients, with the checkpoints that were made meanwhile.
pub(crate) type OneRun = (Result<RunResult, RunError>, Option<Checkpoints>);

/// Makes one run, and shows its progress by the closure that it is given.
pub(crate) type RunOnce<'a> =
    dyn FnMut(&RunOptions, &mut dyn FnMut(Progress)) -> Result<OneRun, CliError> + 'a;

/// Makes all runs of the partitioned engine.
fn measure_atrapos(
    workload: &dyn AnyWorkload,
    db: &Database,
    config: &RunConfig,
    ledger: Ledger,
) -> Result<(Vec<Run>, Audited), CliError> {
    let mut one = |options: &RunOptions, watch: &mut dyn FnMut(Progress)| -> Result<OneRun, CliError> {
        if !config.checkpoint_during {
            return Ok((workload.run(db, options, interrupt::flag(), watch), None));
        }
        let (result, made) = while_measuring(db, |measuring_now| {
            let mut watch = |progress: Progress| {
                measuring_now.store(progress.measuring, Ordering::Release);
                watch(progress);
            };
            workload.run(db, options, interrupt::flag(), &mut watch)
        });
        Ok((result, Some(made.map_err(CliError::failed)?)))
    };
    let audit = |ledger: &Ledger| workload.audit(db, ledger).map_err(|error| error.to_string());
    measure(config, ledger, &mut one, &audit)
}

/// Makes all runs by `one`, each followed by an audit; `ledger` has what ran before. Stops at the first audit that fails, and at an
/// interrupt.
pub(crate) fn measure(
    config: &RunConfig,
    mut ledger: Ledger,
    one: &mut RunOnce<'_>,
    audit: &dyn Fn(&Ledger) -> Audited,
) -> Result<(Vec<Run>, Audited), CliError> {
    let mut runs = Vec::new();
    for number in 0..config.runs {
        let label =
            if config.runs > 1 { format!("run {}/{}: ", number + 1, config.runs) } else { String::new() };
        let bar = RunBar::new(label, config.warmup, config.measured);
        let options = RunOptions {
            clients: config.clients,
            routing: config.routing,
            warmup: config.warmup,
            measured: config.measured,
            run: u64::from(number),
            live: Some(Arc::clone(&config.live)),
        };
        let mut watch = |Progress { measuring, elapsed, tps }| {
            let (phase, before) =
                if measuring { ("measuring", config.warmup) } else { ("warming up", Duration::ZERO) };
            bar.show(phase, before, elapsed, tps);
        };
        let (result, checkpoints) = one(&options, &mut watch)?;
        bar.finish();
        let result = result.map_err(CliError::failed)?;
        ledger.add(&result.tallies_all);
        runs.push(Run { result, checkpoints });
        let audit = audit(&ledger);
        if audit.is_err() || interrupt::is_set() || number + 1 == config.runs {
            return Ok((runs, audit));
        }
    }
    unreachable!("there is at least one run, and the last one returns")
}
