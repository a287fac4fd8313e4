//! Runs a workload against a database: closed-loop clients, a warm-up, a measured interval, and what came out of it.
//!
//! Owns: clients of both kinds (sessions on the workers, threads outside) and the phases of a run. Never: chooses keys or
//! writes transactions, which is the workload's business, and never loads or audits.
//!
//! A closed-loop client runs one transaction after the other, with no pause but what its workload asks for. The end of one is the start of the next, so a
//! transaction costs one reading of the clock.
//!
//! Invariant: when [`run`] returns, every client has ended and every transaction it began has an outcome in the result's
//! `tallies_all`, whether it fell into the measured interval or not.

use std::future::{Future, poll_fn};
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use atrapos::{
    Abort, AbortReason, Database, Session, SessionHandle, Statistics, Ticks, WalStatistics, WorkerId,
    WorkerReport,
};
use atrapos_runtime::Clock;
use hdrhistogram::Histogram;

use crate::client::{Outside, block_on};
use crate::latency::histogram_ns;
use crate::recorder::{ClassTally, Recorder, Snapshot};
use crate::workload::{ClassId, Reach, SetupError, Workload};

/// Who runs the transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// This many sessions on every worker.
    Sessions {
        /// Sessions per worker.
        per_worker: NonZeroUsize,
    },
    /// This many threads outside, each handing one transaction after the other over through the workers' inboxes.
    Threads {
        /// Threads in all.
        threads: NonZeroUsize,
    },
}

/// Which keys clients choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Routing {
    /// Keys of all data: most requests of a many-worker database go to another worker than the client's.
    #[default]
    Any,
    /// Only keys of the worker a session lives on. Thread `i` outside keeps to the keys of worker `i` modulo their number.
    Owner,
}

/// How to run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Who runs the transactions.
    pub clients: Clients,
    /// Which keys they choose.
    pub routing: Routing,
    /// How long transactions run before they are measured.
    pub warmup: Duration,
    /// How long they are measured.
    pub measured: Duration,
    /// Tells this run from others with the same seed of the workload: its clients draw other numbers.
    pub run: u64,
}

/// What is going on, for whoever watches a run. The first report of a phase comes as it begins: with no time elapsed, and
/// without a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Whether the measured interval has begun.
    pub measuring: bool,
    /// Time since the phase began.
    pub elapsed: Duration,
    /// Transactions completed per second since the last report.
    pub tps: f64,
}

/// What the transactions of one class did in the measured interval.
#[derive(Clone, Debug)]
pub struct ClassResult {
    /// The class's name.
    pub name: &'static str,
    /// What became of them.
    pub tally: ClassTally,
    /// Latencies of completed transactions in nanoseconds, as their clients saw them.
    pub latency_ns: Histogram<u64>,
}

/// What one worker did in the measured interval.
#[derive(Clone, Debug)]
pub struct WorkerResult {
    /// The core it was placed on, if it was.
    pub core: Option<usize>,
    /// Share of the time in which it found work, from 0 to 1.
    pub busy_ratio: f64,
    /// Its transactions and actions.
    pub transactions: Statistics,
}

/// What the WAL did in the measured interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalResult {
    /// Bytes written, headers included.
    pub bytes: u64,
    /// Times a stream was synced.
    pub syncs: u64,
}

/// What came out of a run.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// Length of the measured interval.
    pub elapsed: Duration,
    /// By class, in the workload's order.
    pub classes: Vec<ClassResult>,
    /// By worker.
    pub workers: Vec<WorkerResult>,
    /// Sum over the workers.
    pub statistics: Statistics,
    /// The WAL's part; nothing for a database in memory.
    pub wal: Option<WalResult>,
    /// Transactions of the measured interval that committed changes.
    pub updates: u64,
    /// Everything the clients did, warm-up and end included: for the [`Ledger`](crate::Ledger) of the auditor.
    pub tallies_all: Vec<ClassTally>,
    /// Whether somebody asked for an early end.
    pub interrupted: bool,
}

impl RunResult {
    /// Completed transactions (committed ones and expected failures) per second.
    #[must_use]
    pub fn throughput_tps(&self) -> f64 {
        self.per_second(self.classes.iter().map(|class| class.tally.completed()).sum())
    }

    /// Transactions per second that did what they were asked for.
    #[must_use]
    pub fn committed_tps(&self) -> f64 {
        self.per_second(self.classes.iter().map(|class| class.tally.committed).sum())
    }

    /// `count` in the measured interval as a rate.
    #[must_use]
    pub fn per_second(&self, count: u64) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
    }
}

/// Why a run could not be made, or not to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// No client could be set up.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// A client could not be started, or was cut off.
    #[error("a client could not run to its end: {0}")]
    Client(#[from] Abort),
    /// A transaction was aborted for a reason that no workload allows for.
    #[error("a transaction of class {class} was aborted for a reason that should not occur: {abort}")]
    Broken {
        /// The class's name.
        class: &'static str,
        /// The abort.
        abort: Abort,
    },
}

/// Runs a workload on a loaded database. `interrupt` ends the run early when somebody sets it; `watch` is told several times
/// a second how it goes.
///
/// # Errors
/// When no client can be set up, a client was cut off, or a transaction was aborted for a reason that points at a bug (a
/// panic, misuse, corruption) or after which nothing can commit any more (the WAL cannot be written).
pub fn run<W: Workload>(
    db: &Database,
    workload: &W,
    options: &RunOptions,
    interrupt: &AtomicBool,
    watch: impl FnMut(Progress),
) -> Result<RunResult, RunError> {
    match options.clients {
        Clients::Sessions { per_worker } => {
            run_sessions(db, workload, options, per_worker.get(), interrupt, watch)
        }
        Clients::Threads { threads } => run_threads(db, workload, options, threads.get(), interrupt, watch),
    }
}

/// Clients of different runs and of different number draw from different streams.
fn stream(options: &RunOptions, client: usize) -> u64 {
    (options.run << 32) + client as u64 + 1
}

/// How a client ended: well, or with the class and abort that no workload allows for.
pub(crate) type ClientEnd = Result<(), (usize, Abort)>;

fn run_sessions<W: Workload>(
    db: &Database,
    workload: &W,
    options: &RunOptions,
    per_worker: usize,
    interrupt: &AtomicBool,
    watch: impl FnMut(Progress),
) -> Result<RunResult, RunError> {
    let classes = workload.classes().len();
    let mut hosts: Vec<(WorkerId, Vec<W::State>)> = Vec::new();
    let mut nothing_owned = None;
    for worker in (0..db.workers()).map(|worker| WorkerId(worker as u16)) {
        let reach = match options.routing {
            Routing::Any => Reach::Everywhere,
            Routing::Owner => Reach::OwnedBy(worker),
        };
        let streams = (0..per_worker).map(|session| stream(options, worker.index() * per_worker + session));
        match streams.map(|stream| workload.state(db, reach, stream)).collect::<Result<Vec<_>, _>>() {
            Ok(mut states) => {
                states.extend(workload.server(db, reach, stream(options, worker.index()))?);
                hosts.push((worker, states));
            }
            // With more workers than data some have nothing to do; that is no reason to refuse the others' run.
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
    for ((worker, states), recorder) in hosts.into_iter().zip(&recorders) {
        for mut state in states {
            let recorder = Arc::clone(recorder);
            let session = db.spawn_session(worker, async move |session| {
                run_session::<W>(&session, &mut state, &recorder).await
            });
            sessions.push(session.inspect_err(|_| stop_all())?);
        }
    }
    let recorders: Vec<&Recorder> = recorders.iter().map(Arc::as_ref).collect();
    let measured = measure(db, &recorders, classes, options, interrupt, watch);
    stop_all();
    for session in sessions {
        check_end(workload, session.join()?)?;
    }
    Ok(result_of(workload, &recorders, measured))
}

fn run_threads<W: Workload>(
    db: &Database,
    workload: &W,
    options: &RunOptions,
    threads: usize,
    interrupt: &AtomicBool,
    watch: impl FnMut(Progress),
) -> Result<RunResult, RunError> {
    let classes = workload.classes().len();
    let reach = |client: usize| match options.routing {
        Routing::Any => Reach::Everywhere,
        Routing::Owner => Reach::OwnedBy(WorkerId((client % db.workers()) as u16)),
    };
    let state = |client: usize| workload.state(db, reach(client), stream(options, client));
    let mut states: Vec<W::State> = (0..threads).map(state).collect::<Result<_, _>>()?;
    let reaches = match options.routing {
        Routing::Any => 1,
        Routing::Owner => threads.min(db.workers()),
    };
    for client in 0..reaches {
        states.extend(workload.server(db, reach(client), stream(options, client))?);
    }
    let recorders: Vec<Recorder> = states.iter().map(|_| Recorder::new(classes)).collect();
    let recorder_refs: Vec<&Recorder> = recorders.iter().collect();
    let (measured, ends) = std::thread::scope(|scope| {
        let client = |(state, recorder)| scope.spawn(move || run_thread::<W>(db, state, recorder));
        let clients: Vec<_> = states.into_iter().zip(&recorders).map(client).collect();
        let measured = measure(db, &recorder_refs, classes, options, interrupt, watch);
        recorders.iter().for_each(Recorder::stop);
        let ends: Vec<_> = clients.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        (measured, ends)
    });
    for end in ends {
        check_end(workload, end.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))?;
    }
    Ok(result_of(workload, &recorder_refs, measured))
}

pub(crate) fn check_end<W: Workload>(workload: &W, end: ClientEnd) -> Result<(), RunError> {
    end.map_err(|(class, abort)| RunError::Broken { class: workload.classes()[class], abort })
}

/// Whether a client goes on after an abort. What points at a bug, or stops the database for good, ends the run; what is part
/// of life is only counted.
fn goes_on(abort: &Abort) -> bool {
    !matches!(
        abort.reason(),
        AbortReason::Panic
            | AbortReason::Misuse
            | AbortReason::Corruption
            | AbortReason::UnknownTable
            | AbortReason::NotDurable
    )
}

/// A session that never suspends lets the worker look at its rings and inbox after this long.
const TURN: Duration = Duration::from_micros(10);

pub(crate) async fn run_session<W: Workload>(
    session: &Session,
    state: &mut W::State,
    recorder: &Recorder,
) -> ClientEnd {
    let turn = Clock::real().ticks(TURN);
    let mut began = session.now();
    let mut turn_began = began;
    while !recorder.is_stopped() {
        if let Some(pause) = W::pause(state) {
            let end = session.now().after(Clock::real().ticks(pause));
            while !recorder.is_stopped() && !session.is_stopping() && session.now() < end {
                session.sleep_until(end.min(session.now().after(Clock::real().ticks(LOOK_EVERY)))).await;
            }
            if session.is_stopping() {
                return Ok(());
            }
            began = session.now();
            turn_began = began;
            continue;
        }
        let mut suspended = false;
        let (class, outcome) = {
            // Pinned where it is made: handed to another function, the whole future would be copied.
            let mut transaction = pin!(W::transaction(session, state));
            poll_fn(|context| {
                let poll = transaction.as_mut().poll(context);
                suspended |= poll.is_pending();
                poll
            })
            .await
        };
        let now = session.now();
        recorder.record(class, &outcome, now.since(began));
        if let Err(abort) = outcome {
            match abort.reason() {
                AbortReason::ShuttingDown => return Ok(()),
                _ if goes_on(&abort) => {}
                _ => return Err((class.index(), abort)),
            }
        }
        began = now;
        if suspended {
            turn_began = now;
        } else if now.since(turn_began) > turn {
            session.yield_now().await;
            began = session.now();
            turn_began = began;
        }
    }
    Ok(())
}

fn run_thread<W: Workload>(db: &Database, mut state: W::State, recorder: &Recorder) -> ClientEnd {
    let clock = Clock::real();
    let client = Outside::new(db);
    let mut began = clock.now();
    while !recorder.is_stopped() {
        if let Some(pause) = W::pause(&mut state) {
            let end = Instant::now() + pause;
            while let Some(rest) = end.checked_duration_since(Instant::now())
                && !rest.is_zero()
                && !recorder.is_stopped()
            {
                std::thread::sleep(rest.min(LOOK_EVERY));
            }
            began = clock.now();
            continue;
        }
        let (class, outcome) = block_on(W::transaction(&client, &mut state));
        let now = clock.now();
        recorder.record(class, &outcome, now.since(began));
        if let Err(abort) = outcome {
            match abort.reason() {
                AbortReason::ShuttingDown => return Ok(()),
                _ if goes_on(&abort) => {}
                _ => return Err((class.index(), abort)),
            }
        }
        began = now;
    }
    Ok(())
}

/// The state of everything that counts, at one end of the measured interval.
struct Moment {
    at: Instant,
    counters: Snapshot,
    workers: Vec<WorkerReport>,
    wal: Option<WalStatistics>,
}

struct Measured {
    first: Moment,
    last: Moment,
    interrupted: bool,
}

/// How often the run looks whether it was interrupted, and reports how it goes; how often a client that waits looks whether it
/// is to stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Waits for the warm-up and the measured interval to pass.
fn measure(
    db: &Database,
    recorders: &[&Recorder],
    classes: usize,
    options: &RunOptions,
    interrupt: &AtomicBool,
    mut watch: impl FnMut(Progress),
) -> Measured {
    let moment = || Moment {
        counters: Snapshot::sum(recorders.iter().copied(), classes),
        workers: db.worker_reports(),
        wal: db.wal_statistics(),
        at: Instant::now(),
    };
    let mut phase = |measuring: bool, length: Duration| {
        let began = Instant::now();
        let completed = || recorders.iter().map(|recorder| recorder.completed()).sum::<u64>();
        let mut before = (began, completed());
        watch(Progress { measuring, elapsed: Duration::ZERO, tps: 0.0 });
        loop {
            let elapsed = began.elapsed();
            if elapsed >= length || interrupt.load(Ordering::Relaxed) {
                return;
            }
            std::thread::sleep(LOOK_EVERY.min(length - elapsed));
            let now = (Instant::now(), completed());
            let seconds = now.0.duration_since(before.0).as_secs_f64();
            let tps = now.1.saturating_sub(before.1) as f64 / seconds.max(f64::MIN_POSITIVE);
            watch(Progress { measuring, elapsed: began.elapsed(), tps });
            before = now;
        }
    };
    phase(false, options.warmup);
    // Interrupted during the warm-up: what ran so far is the result.
    let first = moment();
    phase(true, options.measured);
    let last = moment();
    Measured { first, last, interrupted: interrupt.load(Ordering::Relaxed) }
}

fn result_of<W: Workload>(workload: &W, recorders: &[&Recorder], measured: Measured) -> RunResult {
    let Measured { first, last, interrupted } = measured;
    let clock = Clock::real();
    let Snapshot { tallies, latencies } = last.counters.since(&first.counters);
    let classes_of_updates =
        tallies.iter().enumerate().filter(|(at, _)| workload.updates(ClassId(*at as u8)));
    let updates = classes_of_updates.map(|(_, tally)| tally.committed).sum();
    let wal = first.wal.zip(last.wal).map(|(first, last)| WalResult {
        bytes: last.bytes.saturating_sub(first.bytes),
        syncs: last.syncs.saturating_sub(first.syncs),
    });
    let classes = workload.classes().iter().zip(tallies).zip(&latencies).map(|((name, tally), latency)| {
        ClassResult { name, tally, latency_ns: histogram_ns(latency, |ticks| clock.ns(Ticks(ticks))) }
    });
    let workers: Vec<WorkerResult> = first
        .workers
        .iter()
        .zip(&last.workers)
        .map(|(first, last)| WorkerResult {
            core: last.core,
            busy_ratio: last.runtime.busy_ratio_since(&first.runtime),
            transactions: last.transactions.since(&first.transactions),
        })
        .collect();
    RunResult {
        elapsed: last.at.duration_since(first.at),
        classes: classes.collect(),
        statistics: workers.iter().fold(Statistics::default(), |sum, worker| sum.plus(&worker.transactions)),
        workers,
        wal,
        updates,
        tallies_all: Snapshot::sum(recorders.iter().copied(), workload.classes().len()).tallies,
        interrupted,
    }
}
