//! Deployments of processes of this program, which load their shares, run, and hand over their rows for the audit; `atrapos bench
//! --instances` runs one of them, `atrapos advise` compares several.
//!
//! Every instance is this program again, with the same arguments and one more that says which instance it is ([`member`]). The
//! process that was started by the user runs no transaction: it starts the others, has them run at the same time, adds their
//! results up, and audits one database that is made of the rows of all.
//!
//! Owns: the deployment of a benchmark, and the sum of its results. Never: runs a transaction, or reports.

pub(crate) mod member;
mod shared;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use atrapos::{Database, Durability, Statistics};
use atrapos_baselines::compare_all_entries;
use atrapos_harness::driver::{ClassResult, Progress, Routing, RunOptions, RunResult, WorkerResult};
use atrapos_harness::registry::AnyWorkload;
use atrapos_instances::plan::{Placement, Plan};
use atrapos_instances::{
    ChannelKind, DeploymentId, Process, ProcessError, load_rows, read_visited, write_secret,
};
use atrapos_workloads::registry::Choice;
use atrapos_workloads::{AuditReport, ClassTally, Ledger};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::args::{EngineArg, InstanceArgs, RunArgs};
use crate::bench::{BenchReport, CLOSE_DEADLINE, Growth, Load, complete, measure, open};
use crate::config::{Protection, RunConfig};
use crate::error::CliError;
use crate::{machine, store};

/// The place of a process in its deployment.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) deployment: DeploymentId,
    pub(crate) channel: ChannelKind,
    pub(crate) engine: EngineArg,
    /// The directory of the sockets.
    pub(crate) directory: PathBuf,
    pub(crate) instance: u16,
    pub(crate) plan: Plan,
    /// The addresses of all instances, for messages by TCP.
    pub(crate) tcp: Vec<SocketAddr>,
    /// The directory of the databases' directories, if the instances log.
    pub(crate) data: Option<PathBuf>,
    /// Transactions that a thread of an engine with shared data may have outstanding; none if nothing is waited for.
    pub(crate) pipeline: Option<NonZeroUsize>,
}

impl Place {
    /// Reads the place that the process which has started this one has given it.
    pub(crate) fn read(json: &str) -> Result<Place, CliError> {
        serde_json::from_str(json).map_err(CliError::bad_input)
    }
}

/// A line to an instance.
#[derive(Debug, Serialize, Deserialize)]
enum Order {
    /// Run the clients, for the run of this number, with another share of remote work if one is given.
    Run { number: u64, remote: Option<f64> },
    /// Write the rows to this file.
    Dump(PathBuf),
    /// Write the rows to one file, and the entries of indexes to another, which have been kept apart from the rows.
    DumpWithEntries(PathBuf, PathBuf),
}

/// The first line of an instance: it is loaded, and linked to all others.
#[derive(Debug, Serialize, Deserialize)]
struct Ready {
    rows: u64,
    resident_bytes: Option<u64>,
    tree_bytes: u64,
    reserved_bytes: u64,
}

/// The results of one run in one instance.
#[derive(Debug, Serialize, Deserialize)]
struct MemberRun {
    elapsed: Duration,
    classes: Vec<ClassTally>,
    /// For each class the latencies in nanoseconds, each with its count.
    latencies_ns: Vec<Vec<(u64, u64)>>,
    /// The core, the busy share and the transactions of each worker.
    workers: Vec<(Option<usize>, f64, Statistics)>,
    updates: u64,
    tallies_all: Vec<ClassTally>,
    interrupted: bool,
    /// Transactions that threads have run again, where there are no workers to count them.
    retried: u64,
}

/// Adds what an engine with shared data has in place of sessions to the settings in a result.
fn describe_engine(
    settings: &mut serde_json::Value,
    config: &RunConfig,
    protection: Protection,
    pipeline: Option<NonZeroUsize>,
) {
    if !config.engine.shares_data() {
        return;
    }
    settings["pipeline"] = pipeline.map(NonZeroUsize::get).into();
    if config.engine == EngineArg::Shared2pl {
        protection.describe(settings);
    }
}

/// The answer to a request for the rows.
#[derive(Debug, Serialize, Deserialize)]
struct Dumped {
    rows: u64,
}

/// The longest time that an instance may take to load, or to write its rows.
const PATIENCE: Duration = Duration::from_secs(600);

/// Runs `bench --instances`, as the process that was started by the user or as an instance.
pub(crate) fn run(
    benchmark: &'static str,
    choice: Choice,
    workload: &dyn AnyWorkload,
    args: &RunArgs,
    mut config: RunConfig,
) -> Result<(), CliError> {
    check(args, &mut config)?;
    if choice.has_tables_apart() {
        return Err(CliError::bad_input(
            "--apart lets tables move one by one, and clients of instances use only keys of their worker, so that none moves; leave it out, \
             or --instances",
        ));
    }
    if let Some(place) = &args.instances.member {
        return run_member(workload, config, Place::read(place)?);
    }
    let InstanceArgs { instances, channel, placement, .. } = args.instances;
    let layout = Layout { instances: instances.unwrap_or(1), channel, placement };
    let mut deployment = Deployment::start(&layout, &config)?;
    let began = Instant::now();
    let load = deployment.wait_loaded(workload, began)?;
    let growth = Growth { reserved_bytes: load.1, prepared_bytes: 0, unprepared_bytes: 0 };
    let (runs, audit) = {
        let deployment = std::cell::RefCell::new(&mut deployment);
        let audit = |ledger: &Ledger| deployment.borrow_mut().audit(workload, &config, ledger);
        let mut run = |options: &RunOptions, watch: &mut dyn FnMut(Progress)| {
            watch(Progress { measuring: false, elapsed: Duration::ZERO, tps: 0.0 });
            deployment.borrow_mut().run(workload, options, None).map(|result| (Ok(result), None))
        };
        measure(&config, Ledger::new(), &mut run, &audit)?
    };
    let mut settings = complete(choice.settings, benchmark, args, &config);
    let protection = config.protection(workload, config.workers.div_ceil(layout.instances), true);
    describe_engine(&mut settings, &config, protection, deployment.pipeline);
    let report = BenchReport {
        benchmark,
        per_minute: choice.per_minute,
        title: choice.title,
        config: settings,
        machine: machine::summary(&config.machine),
        load: load.0,
        growth,
        device_sync_us: None,
        runs,
        decisions: Vec::new(),
        audit,
    };
    report.print(config.json)?;
    deployment.stop()?;
    report.check()
}

/// Runs the instance at a place, with the engine that `config` names.
pub(crate) fn run_member(
    workload: &dyn AnyWorkload,
    config: RunConfig,
    place: Place,
) -> Result<(), CliError> {
    if config.engine.shares_data() {
        shared::run(workload, config, place)
    } else {
        member::run(workload, config, place)
    }
}

/// Refuses what instances do not have, and sets what follows from them.
pub(crate) fn check(args: &RunArgs, config: &mut RunConfig) -> Result<(), CliError> {
    if config.engine == EngineArg::Plp {
        return Err(CliError::bad_input(
            "an instance has no central system state; choose --engine atrapos, shared-2pl or shared-occ, or leave --instances out",
        ));
    }
    if let Some(option) = args.system.given() {
        return Err(CliError::bad_input(format!(
            "{option} is for one database; leave it out, or --instances"
        )));
    }
    if let Some(option) = args.fixed.then_some("--static").or(args.adaptation.given()) {
        return Err(CliError::bad_input(format!(
            "{option} says how one database adapts, and clients of instances use only keys of their worker, so that these stay as they are; \
             leave it out, or --instances"
        )));
    }
    if !config.machine.is_live() {
        return Err(CliError::bad_input(
            "instances are processes of this machine; leave --topology out, or --instances",
        ));
    }
    if args.instances.instances.is_some_and(|instances| instances > config.workers) {
        return Err(CliError::bad_input(format!(
            "{} instances need a worker each, and there are {}; use fewer --instances, or more --workers to have several share a \
             processor",
            args.instances.instances.unwrap_or_default(),
            config.workers
        )));
    }
    // Clients are where their data is: a transaction begins in the instance of its first key.
    config.routing = Routing::Owner;
    config.adaptation = None;
    config.pin &= args.instances.placement != Placement::System;
    Ok(())
}

/// The layout of a deployment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) instances: usize,
    pub(crate) channel: ChannelKind,
    pub(crate) placement: Placement,
}

/// The processes of the instances.
pub(crate) struct Deployment {
    processes: Vec<Process>,
    directory: TempDir,
    /// The directory of the databases, if it is to be removed.
    _data: Option<TempDir>,
    dumps: u64,
    /// Transactions that a thread of an engine with shared data may have outstanding.
    pipeline: Option<NonZeroUsize>,
}

impl Deployment {
    /// Starts this program once more for each instance, with the arguments of this process.
    pub(crate) fn start(layout: &Layout, config: &RunConfig) -> Result<Deployment, CliError> {
        let &Layout { instances, channel, placement } = layout;
        let cpus: Vec<usize> = config.machine.usable_cpus().iter().map(|cpu| cpu.0 as usize).collect();
        let placement = if config.pin { placement } else { Placement::System };
        let plan = Plan::divide(instances, config.workers, &cpus, placement).map_err(CliError::bad_input)?;
        let directory = store::temporary_in_memory("atrapos-instances-")?;
        let (data, temporary) = data_directory(config)?;
        let shared_data = data.as_deref().filter(|_| config.engine.shares_data());
        let pipeline = shared_data.map(|data| store::pipeline(config, data)).transpose()?.flatten();
        let tcp = match channel {
            ChannelKind::Tcp => free_addresses(instances).map_err(CliError::failed)?,
            _ => Vec::new(),
        };
        write_secret(directory.path()).map_err(CliError::failed)?;
        let program = std::env::current_exe().map_err(CliError::failed)?;
        let deployment = DeploymentId::draw().map_err(CliError::failed)?;
        let start = |instance: usize| {
            let place = Place {
                deployment,
                channel,
                engine: config.engine,
                directory: directory.path().to_owned(),
                instance: instance as u16,
                plan: plan.clone(),
                tcp: tcp.clone(),
                data: data.clone(),
                pipeline,
            };
            let place = serde_json::to_string(&place).map_err(CliError::failed)?;
            let mut command = Command::new(&program);
            command.args(std::env::args_os().skip(1)).arg("--member").arg(place);
            Process::start(format!("instance {instance}"), &mut command).map_err(CliError::failed)
        };
        let processes = (0..instances).map(start).collect::<Result<_, _>>()?;
        Ok(Deployment { processes, directory, _data: temporary, dumps: 0, pipeline })
    }

    /// Waits until all instances are loaded and linked. Returns the load, and the memory that was prepared.
    pub(crate) fn wait_loaded(
        &mut self,
        workload: &dyn AnyWorkload,
        began: Instant,
    ) -> Result<(Load, u64), CliError> {
        let ready = self.all::<Ready>(PATIENCE)?;
        let sum = |of: fn(&Ready) -> u64| ready.iter().map(of).sum::<u64>();
        let load = Load {
            rows: sum(|ready| ready.rows),
            elapsed: began.elapsed(),
            resident_bytes: ready.iter().map(|ready| ready.resident_bytes).sum(),
            tree_bytes: sum(|ready| ready.tree_bytes),
            encoded_bytes: workload.encoded_bytes(),
        };
        Ok((load, sum(|ready| ready.reserved_bytes)))
    }

    /// Waits for the next answer of every instance.
    fn all<A: serde::de::DeserializeOwned>(&mut self, patience: Duration) -> Result<Vec<A>, CliError> {
        let answers = self.processes.iter_mut().map(|process| process.answer(patience));
        answers.collect::<Result<_, ProcessError>>().map_err(CliError::failed)
    }

    /// Runs the clients of all instances at the same time, with another share of remote work if one is given.
    pub(crate) fn run(
        &mut self,
        workload: &dyn AnyWorkload,
        options: &RunOptions,
        remote: Option<f64>,
    ) -> Result<RunResult, CliError> {
        for process in &mut self.processes {
            process.tell(&Order::Run { number: options.run, remote }).map_err(CliError::failed)?;
        }
        let runs = self.all::<MemberRun>(options.warmup + options.measured + PATIENCE)?;
        Ok(sum_of(workload.classes(), &runs))
    }

    /// Audits one database that is made of the rows of all instances.
    pub(crate) fn audit(
        &mut self,
        workload: &dyn AnyWorkload,
        config: &RunConfig,
        ledger: &Ledger,
    ) -> Result<AuditReport, String> {
        let failed = |error: &dyn std::fmt::Display| error.to_string();
        self.dumps += 1;
        let file = |instance: usize| self.directory.path().join(format!("rows-{}-{instance}", self.dumps));
        let files: Vec<PathBuf> = (0..self.processes.len()).map(file).collect();
        let entries: Vec<PathBuf> = files.iter().map(|file| file.with_extension("entries")).collect();
        let shares_data = config.engine.shares_data();
        for (process, (file, entries)) in self.processes.iter_mut().zip(files.iter().zip(&entries)) {
            let order = if shares_data {
                Order::DumpWithEntries(file.clone(), entries.clone())
            } else {
                Order::Dump(file.clone())
            };
            process.tell(&order).map_err(|error| failed(&error))?;
        }
        let dumped = self.all::<Dumped>(PATIENCE).map_err(|error| failed(&error))?;
        let copy = open(workload, config, None, &store::files()).map_err(|error| failed(&error))?;
        let loaded = load_rows(&copy, &files).map_err(|error| failed(&error))?;
        if shares_data {
            compare_entries(&copy, &entries)?;
        }
        files.iter().chain(&entries).for_each(|file| drop(std::fs::remove_file(file)));
        let written: u64 = dumped.iter().map(|dumped| dumped.rows).sum();
        if loaded != written {
            return Err(format!(
                "the instances have {written} rows, of which {loaded} came into one database"
            ));
        }
        let report = workload.audit(&copy, ledger).map_err(|error| failed(&error));
        copy.close(CLOSE_DEADLINE);
        report
    }

    /// Has the instances end in order.
    pub(crate) fn stop(self) -> Result<(), CliError> {
        for process in self.processes {
            let name = process.name().to_owned();
            match process.stop(CLOSE_DEADLINE) {
                Some(ended) if ended.0.success() => {}
                Some(ended) => {
                    return Err(CliError::failed(format!("{name} has not ended in order: {}", ended.0)));
                }
                None => return Err(CliError::failed(format!("{name} had to be killed, as it did not end"))),
            }
        }
        Ok(())
    }
}

/// Returns the directory of the databases, if they log, and what removes it in the end.
fn data_directory(config: &RunConfig) -> Result<(Option<PathBuf>, Option<TempDir>), CliError> {
    if config.durability == Durability::None {
        return Ok((None, None));
    }
    match &config.dir {
        Some(asked) => {
            store::make_empty(asked, &*store::files())?;
            Ok((Some(asked.clone()), None))
        }
        None => {
            let temporary = store::temporary("atrapos-deployment-")?;
            Ok((Some(temporary.path().to_owned()), Some(temporary)))
        }
    }
}

/// Compares the index entries that the instances have kept with those of their rows in one database.
fn compare_entries(copy: &Database, files: &[PathBuf]) -> Result<(), String> {
    let mut entries = Vec::new();
    for file in files {
        entries.extend(read_visited(file).map_err(|error| error.to_string())?);
    }
    compare_all_entries(copy, entries).map_err(|error| error.to_string())
}

/// Adds the results of all instances up.
fn sum_of(names: &'static [&'static str], runs: &[MemberRun]) -> RunResult {
    let tallies = |of: &dyn Fn(&MemberRun) -> &[ClassTally], class: usize| {
        let tallies = runs.iter().filter_map(|run| of(run).get(class));
        tallies.fold(ClassTally::default(), |sum, tally| sum.zip(tally, u64::wrapping_add))
    };
    let classes = names.iter().enumerate().map(|(class, name)| {
        let mut latency_ns =
            Histogram::new(3).expect("three significant digits are within what a histogram takes");
        for (value, count) in runs.iter().filter_map(|run| run.latencies_ns.get(class)).flatten() {
            let recorded = latency_ns.record_n(*value, *count);
            recorded.expect("a histogram that resizes itself takes every number");
        }
        ClassResult { name, tally: tallies(&|run| &run.classes, class), latency_ns }
    });
    let workers: Vec<WorkerResult> = runs
        .iter()
        .flat_map(|run| &run.workers)
        .map(|(core, busy_ratio, transactions)| WorkerResult {
            core: *core,
            busy_ratio: *busy_ratio,
            transactions: transactions.clone(),
        })
        .collect();
    let retried = runs.iter().map(|run| run.retried).sum();
    let of_threads = Statistics { retried, ..Statistics::default() };
    RunResult {
        elapsed: runs.iter().map(|run| run.elapsed).max().unwrap_or_default(),
        classes: classes.collect(),
        statistics: workers.iter().fold(of_threads, |sum, worker| sum.plus(&worker.transactions)),
        workers,
        wal: None,
        updates: runs.iter().map(|run| run.updates).sum(),
        tallies_all: (0..names.len()).map(|class| tallies(&|run| &run.tallies_all, class)).collect(),
        interrupted: runs.iter().any(|run| run.interrupted),
    }
}

/// Returns addresses of this machine that are free now.
pub(crate) fn free_addresses(count: usize) -> std::io::Result<Vec<SocketAddr>> {
    let listeners: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<Result<_, _>>()?;
    listeners.iter().map(TcpListener::local_addr).collect()
}
