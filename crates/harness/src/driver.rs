//! Runs a workload against a database: closed-loop clients, a warm-up, a measured interval, and the results.
//!
//! Owns: clients of both kinds (sessions on the workers, threads outside) and the phases of a run. Never: chooses keys
//! or writes transactions, which is the workload's business, and never loads or audits.
//!
//! A closed-loop client runs one transaction after the other, pausing only if its workload asks for it. The end of one
//! is the start of the next, so a transaction costs one reading of the clock.
//!
//! Invariant: when [`run`] returns, every client has ended and every transaction it began has an outcome in the
//! result's `tallies_all`, whether it fell into the measured interval or not.

mod client;
mod live;
mod measure;
mod result;

use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use atrapos::{Database, SessionHandle, Statistics, UPCOMING_MAX, WorkerId};
use atrapos_baselines::{SharedDatabase, Written};
use atrapos_runtime::affinity::pin_current_thread;
use atrapos_workloads::{Reach, SetupError, Workload};

pub use self::client::{AnyClient, ClientEnd, ClientSource, check_end};
pub use self::live::{LiveLatency, Quantiles};
use self::measure::{measure, result_of};
pub use self::result::{ClassResult, RunError, RunResult, WalResult, WorkerResult};
use crate::recorder::Recorder;

/// The clients that run the transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// Runs this many sessions on every worker.
    Sessions {
        /// Sessions per worker.
        per_worker: NonZeroUsize,
        /// Transactions that a session has committed at most before the first of them is acknowledged as durable. With 1, it
        /// waits for each.
        pipeline: NonZeroUsize,
        /// Transactions that a session draws together, so that their keys are looked up together; it runs them one after another,
        /// and their latencies begin with the first. At most [`UPCOMING_MAX`] are drawn, and with 1 each when its turn comes.
        burst: NonZeroUsize,
    },
    /// Runs this many threads outside, each handing one transaction after the other over through the workers' inboxes.
    Threads {
        /// Threads in all.
        threads: NonZeroUsize,
    },
}

impl Clients {
    /// Returns clients that are so many sessions on every worker, each of which draws one transaction after another and waits until
    /// it is acknowledged.
    #[must_use]
    pub const fn sessions(per_worker: NonZeroUsize) -> Clients {
        Clients::Sessions { per_worker, pipeline: NonZeroUsize::MIN, burst: NonZeroUsize::MIN }
    }
}

/// Keys that clients choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Routing {
    /// Chooses keys of all data: most requests of a many-worker database go to another worker than the client's.
    #[default]
    Any,
    /// Chooses only keys of the worker a session lives on. Thread `i` outside keeps to those of worker `i` modulo their
    /// number.
    Owner,
}

/// Options of a run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The clients that run the transactions.
    pub clients: Clients,
    /// The keys they choose.
    pub routing: Routing,
    /// Time for which transactions run before they are measured.
    pub warmup: Duration,
    /// Length of the measured interval.
    pub measured: Duration,
    /// Tells this run from others with the same seed of the workload: its clients draw other numbers.
    pub run: u64,
    /// Latencies while it goes on, for those who watch it.
    pub live: Option<Arc<LiveLatency>>,
}

/// Progress of a run. The first report of a phase is made as the phase begins: with no time elapsed, and
/// without a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// True once the measured interval has begun.
    pub measuring: bool,
    /// Time since the phase began.
    pub elapsed: Duration,
    /// Transactions completed per second since the last report.
    pub tps: f64,
}

/// Interval at which the run checks for an interrupt and reports its progress, and at which a waiting client checks
/// for the request to stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Runs a workload on a loaded database. Setting `interrupt` ends the run early; `watch` is called with the progress
/// several times a second.
///
/// # Errors
/// Returns an error if no client can be set up, a client was cut off, or a transaction was aborted for a reason that
/// indicates a bug (a panic, misuse, corruption) or after which no transaction can commit (the WAL cannot be written).
pub fn run<W: Workload>(
    db: &Database,
    workload: &W,
    options: &RunOptions,
    interrupt: &AtomicBool,
    watch: &mut dyn FnMut(Progress),
) -> Result<RunResult, RunError> {
    match options.clients {
        Clients::Sessions { per_worker, pipeline, burst } => {
            let burst = burst.get().min(UPCOMING_MAX);
            run_sessions(db, workload, options, (per_worker.get(), pipeline.get(), burst), interrupt, watch)
        }
        Clients::Threads { threads } => run_threads(db, workload, options, threads.get(), interrupt, watch),
    }
}

/// Returns the number of a client's stream of random numbers: it differs between runs and between clients.
fn stream(options: &RunOptions, client: usize) -> u64 {
    (options.run << 32) + client as u64 + 1
}

fn run_sessions(
    db: &Database,
    workload: &dyn ClientSource,
    options: &RunOptions,
    (per_worker, pipeline, burst): (usize, usize, usize),
    interrupt: &AtomicBool,
    watch: &mut dyn FnMut(Progress),
) -> Result<RunResult, RunError> {
    let classes = workload.classes().len();
    let mut hosts: Vec<(WorkerId, Vec<Box<dyn AnyClient>>)> = Vec::new();
    let mut nothing_owned = None;
    for worker in (0..db.workers()).map(|worker| WorkerId(worker as u16)) {
        let reach = match options.routing {
            Routing::Any => Reach::Everywhere,
            Routing::Owner => Reach::OwnedBy(worker),
        };
        let streams = (0..per_worker).map(|session| stream(options, worker.index() * per_worker + session));
        match streams.map(|stream| workload.client(db, reach, stream)).collect::<Result<Vec<_>, _>>() {
            Ok(mut clients) => {
                clients.extend(workload.server(db, reach, stream(options, worker.index()))?);
                hosts.push((worker, clients));
            }
            // With more workers than data some own no data; the clients of the others run nevertheless.
            Err(error @ SetupError::NothingOwned { .. }) => nothing_owned = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    if let (true, Some(error)) = (hosts.is_empty(), nothing_owned) {
        return Err(error.into());
    }
    let recorders: Vec<Arc<Recorder>> = hosts.iter().map(|_| Arc::new(Recorder::new(classes))).collect();
    let stop_all = || recorders.iter().for_each(|recorder| recorder.stop());
    let mut sessions: Vec<SessionHandle<ClientEnd>> = Vec::new();
    for ((worker, clients), recorder) in hosts.into_iter().zip(&recorders) {
        for mut client in clients {
            let recorder = Arc::clone(recorder);
            let body = async move |session| client.run_session(&session, &recorder, pipeline, burst).await;
            sessions.push(db.spawn_session(worker, body).inspect_err(|_| stop_all())?);
        }
    }
    let recorders: Vec<&Recorder> = recorders.iter().map(Arc::as_ref).collect();
    let measured = measure(db, &recorders, classes, options, interrupt, watch);
    stop_all();
    for session in sessions {
        check_end(workload, session.join()?)?;
    }
    Ok(result_of(workload.classes(), &|class| workload.updates(class), &recorders, measured))
}

fn run_threads(
    db: &Database,
    workload: &dyn ClientSource,
    options: &RunOptions,
    threads: usize,
    interrupt: &AtomicBool,
    watch: &mut dyn FnMut(Progress),
) -> Result<RunResult, RunError> {
    let classes = workload.classes().len();
    let mut clients = clients_of_threads(db, workload, options, threads)?;
    let recorders: Vec<Recorder> = clients.iter().map(|_| Recorder::new(classes)).collect();
    let run = |client: &mut dyn AnyClient, _: usize, recorder: &Recorder| client.run_thread(db, recorder);
    let measured = on_threads(workload, &mut clients, &recorders, &run, |recorders| {
        measure(db, recorders, classes, options, interrupt, watch)
    })?;
    let recorders: Vec<&Recorder> = recorders.iter().collect();
    Ok(result_of(workload.classes(), &|class| workload.updates(class), &recorders, measured))
}

/// Creates the clients of so many threads, and those that do what these defer.
fn clients_of_threads(
    db: &Database,
    workload: &dyn ClientSource,
    options: &RunOptions,
    threads: usize,
) -> Result<Vec<Box<dyn AnyClient>>, SetupError> {
    let reach = |client: usize| match options.routing {
        Routing::Any => Reach::Everywhere,
        Routing::Owner => Reach::OwnedBy(WorkerId((client % db.workers()) as u16)),
    };
    let reaches = match options.routing {
        Routing::Any => 1,
        Routing::Owner => threads.min(db.workers()),
    };
    let (mut clients, mut servers, mut nothing_owned) = (Vec::new(), Vec::new(), None);
    for thread in 0..threads {
        match workload.client(db, reach(thread), stream(options, thread)) {
            Ok(client) => clients.push(client),
            // As with sessions: the clients of other workers run nevertheless.
            Err(error @ SetupError::NothingOwned { .. }) => {
                nothing_owned = Some(error);
                continue;
            }
            Err(error) => return Err(error),
        }
        if thread < reaches {
            servers.extend(workload.server(db, reach(thread), stream(options, thread))?);
        }
    }
    match nothing_owned {
        Some(error) if clients.is_empty() => Err(error),
        _ => Ok(clients.into_iter().chain(servers).collect()),
    }
}

/// Runs each client on a thread of its own by `run`, which is given its number, until `measure` has ended.
fn on_threads<M>(
    workload: &dyn ClientSource,
    clients: &mut [Box<dyn AnyClient>],
    recorders: &[Recorder],
    run: &(dyn Fn(&mut dyn AnyClient, usize, &Recorder) -> ClientEnd + Sync),
    measure: impl FnOnce(&[&Recorder]) -> M,
) -> Result<M, RunError> {
    let recorder_refs: Vec<&Recorder> = recorders.iter().collect();
    let (measured, ends) = std::thread::scope(|scope| {
        let mut running = Vec::new();
        for (number, (client, recorder)) in clients.iter_mut().zip(recorders).enumerate() {
            running.push(scope.spawn(move || run(&mut **client, number, recorder)));
        }
        let measured = measure(&recorder_refs);
        recorders.iter().for_each(Recorder::stop);
        let ends: Vec<_> = running.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        (measured, ends)
    });
    for end in ends {
        check_end(workload, end.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))?;
    }
    Ok(measured)
}

/// The threads that run the transactions of an engine with shared data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedThreads<'a> {
    /// Threads, one client on each.
    pub threads: NonZeroUsize,
    /// Processing units to which the threads are pinned in turn, as far as they may; none if they are not.
    pub cpus: &'a [usize],
    /// Transactions that a client has committed at most before the first of them is acknowledged as durable. With 1, it waits for
    /// each.
    pub pipeline: NonZeroUsize,
}

/// Runs a workload on an engine with shared data, by one client on each of some threads, like [`run`]. `handles` is the
/// database of which the engine has the handles; its partitions say which keys a client chooses, if it keeps to a part
/// ([`Routing::Owner`]).
///
/// # Errors
/// As [`run`].
pub fn run_shared<W: Workload>(
    (shared, handles): (&SharedDatabase, &Database),
    workload: &W,
    options: &RunOptions,
    threads: SharedThreads<'_>,
    interrupt: &AtomicBool,
    watch: &mut dyn FnMut(Progress),
) -> Result<RunResult, RunError> {
    run_shared_erased((shared, handles), workload, options, threads, interrupt, watch)
}

fn run_shared_erased(
    (shared, handles): (&SharedDatabase, &Database),
    workload: &dyn ClientSource,
    options: &RunOptions,
    SharedThreads { threads, cpus, pipeline }: SharedThreads<'_>,
    interrupt: &AtomicBool,
    watch: &mut dyn FnMut(Progress),
) -> Result<RunResult, RunError> {
    let classes = workload.classes().len();
    let mut clients = clients_of_threads(handles, workload, options, threads.get())?;
    let recorders: Vec<Recorder> = clients.iter().map(|_| Recorder::new(classes)).collect();
    let run = |client: &mut dyn AnyClient, number: usize, recorder: &Recorder| {
        if let Some(cpu) = cpus.get(number % cpus.len().max(1)) {
            // Where it may not be pinned, it runs where the kernel puts it.
            let _ = pin_current_thread(*cpu);
        }
        client.run_shared(&RefCell::new(shared.session()), recorder, pipeline.get())
    };
    let (mut retried_before, mut written_before) = (0, Written::default());
    let written = || shared.engine().written();
    let mut watch = |progress: Progress| {
        if progress.measuring && progress.elapsed.is_zero() {
            retried_before = shared.retried();
            written_before = written().unwrap_or_default();
        }
        watch(progress);
    };
    let (measured, written) = on_threads(workload, &mut clients, &recorders, &run, |recorders| {
        (measure(handles, recorders, classes, options, interrupt, &mut watch), written())
    })?;
    let wal = written.map(|now| WalResult {
        bytes: now.bytes - written_before.bytes,
        syncs: now.writes - written_before.writes,
    });
    let retried = shared.retried() - retried_before;
    let recorders: Vec<&Recorder> = recorders.iter().collect();
    let result = result_of(workload.classes(), &|class| workload.updates(class), &recorders, measured);
    // The workers of the database have had nothing to do.
    let statistics = Statistics { retried, ..Statistics::default() };
    Ok(RunResult { workers: Vec::new(), statistics, wal, ..result })
}
