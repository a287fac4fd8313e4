//! Adaptation of an open database: the thread that aggregates the statistics of the workers, passes them to the controller
//! and carries out its decisions (`ATraPos §V-D`, thesis §4.4); and workers that retire, lose their cores and return (`ATraPos §VI-D`).
//!
//! Owns: the adapting thread, and the history of decisions. Statistics are collected in [`observation`] and given to the
//! controller in [`decision`], or to the search that somebody asks for in [`chosen`] or expects in [`expected`], by the slices of [`slices`]; tables are shared in [`sharing`], and divided as their rows come in [`by_rows`]; [`workers`] has which workers may own data, [`cores`] looks after their cores. Never: decides anything
//! itself ([`atrapos_adapt::Controller`] does), or is on the path of a transaction.
//!
//! Invariants: the scheme does not change between the moment statistics are taken and the moment the plan made of them is
//! carried out. All times of adaptation are on a clock that stands still while it is [suspended](Suspension).

mod by_rows;
mod chosen;
mod cores;
mod decision;
mod expected;
mod learned;
mod observation;
mod settings;
mod sharing;
mod slices;
mod suspension;
mod workers;

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use atrapos_adapt::{Controller, CoreWatch, Decision, Observation, Platform, WaitReason, WorkloadTrace};
use atrapos_partition::abort::Abort;
use atrapos_partition::schema::PublishedCatalog;
use atrapos_runtime::oneshot::Receiver;
use atrapos_runtime::{Handle, Ticks, WorkerId};
use atrapos_topology::{CpuId, Machine};
use atrapos_transaction::jobs::{start_on_all_workers, start_task_on_worker};
use atrapos_transaction::monitor::ClassCounts;
use atrapos_transaction::shard::{EngineWorker, Shard};
use atrapos_transaction::stats::EngineStats;
use atrapos_transaction::waiting::wait_meanwhile;

use self::by_rows::DividedByRows;
use self::observation::{Counts, Glance};
use self::slices::Slices;
use self::suspension::Wake;
use crate::published_scheme::PublishedScheme;
use crate::repartition::{RepartitionReport, SchemeChange, carry_out};

pub use self::chosen::SchemeSearch;
pub use self::cores::{CoreSource, Site, SystemCores, Threads};
pub use self::decision::decide;
pub use self::learned::{Keeper, Learned};
pub use self::observation::{Observed, mix_of, rate};
pub use self::settings::{Adaptation, AdaptationEvent};
pub use self::suspension::Suspension;
pub use self::workers::without;

/// State of adaptation, shared by the adapting thread and the database. See the module's introduction.
pub struct Adaptive {
    handle: Handle<Shard>,
    catalogs: Arc<PublishedCatalog>,
    published: Arc<PublishedScheme>,
    stats: Vec<Arc<EngineStats>>,
    settings: Option<Adaptation>,
    source: Arc<dyn CoreSource>,
    /// Number of workers but the spare ones that have not begun.
    active: AtomicUsize,
    /// The threads whose cores are watched; empty where none are.
    threads: OnceLock<Threads>,
    /// Set if workers have lost, regained or changed their cores since the last turn.
    cores_changed: AtomicBool,
    keeper: Option<Arc<dyn Keeper>>,
    /// Set once a scheme is kept.
    has_kept: AtomicBool,
    opened: Ticks,
    /// Held by a thread that changes the scheme, or needs it unchanged.
    scheme: Mutex<()>,
    state: Mutex<State>,
    stopping: AtomicBool,
    wake: (Mutex<Wake>, Condvar),
}

/// The mutable part of [`Adaptive`].
#[derive(Debug)]
struct State {
    /// By worker: set for those that were taken out of use.
    retired: Vec<bool>,
    /// The cores of the workers.
    watch: CoreWatch,
    /// The time of the last look at them.
    looked: Ticks,
    machine: Machine,
    /// The workers and their distances, whether or not they may own data.
    platform: Option<Platform>,
    history: VecDeque<AdaptationEvent>,
    /// Decisions that were removed from the history.
    forgotten: u64,
    /// The factor on costs of synchronization that was learnt last.
    sync_factor: f64,
    /// The time at which statistics were taken last, and the transactions by class until then.
    taken: (Ticks, ClassCounts),
    /// The time of the last turn, and the transactions until then.
    observed: (Ticks, Counts, ClassCounts),
}

/// Times at which loads are read within a step of the loop: load that goes back and forth shows only in short times.
const SHORT_TIMES: u32 = 10;

/// The end of a wait of the adapting thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waited {
    Passed,
    Nudged,
    Closing,
}

/// The end of a time in which the controller looked at loads.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sensed {
    Passed,
    /// The load is another one than it was, for this reason.
    Changed(WaitReason),
    Closing,
}

/// The number of decisions in the history; the oldest are removed first.
const HISTORY_MAX: usize = 4096;

#[expect(
    clippy::disallowed_types,
    reason = "folding statistics and planning takes milliseconds: a worker would keep its transactions waiting"
)]
type Thread = std::thread::JoinHandle<()>;

/// The adapting thread of an open database.
#[derive(Debug)]
pub struct AdaptingThread(Thread);

impl AdaptingThread {
    /// Waits until the thread has ended, after [`Adaptive::stop`] and the end of the workers: by then it waits for no worker,
    /// and completes the computation of one plan at most.
    pub fn join(self) {
        // One that panicked has nothing left to do either.
        let _ = self.0.join();
    }
}

impl State {
    /// Adds an entry to the history.
    fn remember(&mut self, event: AdaptationEvent) {
        if self.history.len() == HISTORY_MAX {
            self.history.pop_front();
            self.forgotten += 1;
        }
        self.history.push_back(event);
    }
}

impl Adaptive {
    /// Returns the state of adaptation of a database, without a thread.
    pub fn new(
        handle: Handle<Shard>,
        catalogs: Arc<PublishedCatalog>,
        published: Arc<PublishedScheme>,
        stats: Vec<Arc<EngineStats>>,
        settings: Option<Adaptation>,
        site: Site,
        learned: Learned,
    ) -> Arc<Adaptive> {
        let now = handle.clock().now();
        let state = State {
            retired: vec![false; stats.len()],
            watch: site.watch(settings.unwrap_or_default().controller.cores),
            looked: now,
            platform: site.platform(),
            machine: site.machine,
            history: VecDeque::new(),
            forgotten: 0,
            sync_factor: learned.sync_factor,
            taken: (now, ClassCounts::default()),
            observed: (now, Counts::default(), ClassCounts::default()),
        };
        Arc::new(Adaptive {
            active: AtomicUsize::new(site.cpus.len()),
            handle,
            catalogs,
            published,
            stats,
            settings,
            source: site.source,
            threads: OnceLock::new(),
            cores_changed: AtomicBool::new(false),
            keeper: learned.keeper,
            has_kept: AtomicBool::new(learned.has_scheme),
            opened: now,
            scheme: Mutex::default(),
            state: Mutex::new(state),
            stopping: AtomicBool::new(false),
            wake: Default::default(),
        })
    }

    /// Starts the adapting thread, if the database acts on its statistics and has several workers.
    pub fn start(self: &Arc<Adaptive>) -> std::io::Result<Option<AdaptingThread>> {
        let acts = self.settings.is_some_and(|settings| settings.act);
        if !acts || self.stats.len() < 2 || self.lock().platform.is_none() {
            return Ok(None);
        }
        let adaptive = Arc::clone(self);
        let thread =
            std::thread::Builder::new().name("atrapos-adapt".to_owned()).spawn(move || adaptive.run());
        thread.map(|thread| Some(AdaptingThread(thread)))
    }

    /// Locks the scheme: only the holder of the guard may change it.
    pub fn keep_scheme(&self) -> MutexGuard<'_, ()> {
        self.scheme.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the current scheme, by which requests from outside are routed.
    pub fn published(&self) -> &PublishedScheme {
        &self.published
    }

    /// Returns the decisions so far, the oldest first.
    pub fn history(&self) -> Vec<AdaptationEvent> {
        self.lock().history.iter().cloned().collect()
    }

    /// Returns the decisions after the first `after` ones, the oldest first, each with its number; the first of all has number 1.
    pub fn history_after(&self, after: u64) -> Vec<(u64, AdaptationEvent)> {
        let state = self.lock();
        let known = usize::try_from(after.saturating_sub(state.forgotten)).unwrap_or(usize::MAX);
        let numbered = (state.forgotten + 1..).zip(&state.history);
        numbered.skip(known).map(|(number, event)| (number, event.clone())).collect()
    }

    /// Returns the core of each worker that is pinned.
    pub fn cores(&self) -> Vec<Option<usize>> {
        self.lock().watch.cpus().map(|cpu| cpu.map(CpuId::index)).collect()
    }

    /// Returns the nanoseconds from the opening of the database until now, and until statistics were collected last: those of the
    /// workers are of the time since then. The second is `None` if the database does not observe itself.
    pub fn times_ns(&self) -> (u64, Option<u64>) {
        let clock = self.handle.clock();
        let now_ns = clock.ns(clock.now().since(self.opened));
        let collected = self.lock().taken.0;
        // Suspensions are no part of the time that statistics are of.
        let observed_ns = clock.ns(self.now().since(collected));
        (now_ns, self.settings.map(|_| now_ns.saturating_sub(observed_ns)))
    }

    /// Runs the loop of the adapting thread until the database closes.
    fn run(&self) {
        let Some(settings) = self.settings else { return };
        // Checked when the database was opened.
        let Ok(controller) = Controller::new(settings.controller) else { return };
        let mut controller = controller.with_sync_factor(self.sync_factor());
        let (mut waited, mut divided) = (Duration::ZERO, DividedByRows::default());
        // When the workers are gone there is nothing left to adapt.
        if self.meet_threads().is_err() {
            return;
        }
        let Ok(mut seen) = self.glance() else { return };
        loop {
            // Cores, throughput and loads are checked at the shortest interval, however long the present one is.
            let step = settings.controller.interval.min(controller.interval());
            let changed = match self.sense(&mut controller, step) {
                Ok(Sensed::Passed) => None,
                Ok(Sensed::Changed(reason)) => Some(reason),
                Ok(Sensed::Closing) | Err(_) => return,
            };
            waited += step;
            let cores_changed = self.cores_changed.load(Ordering::SeqCst);
            let Ok(now) = self.glance() else { return };
            if changed.is_none() && !cores_changed && self.lock().watch.is_in_doubt() {
                // Whether a worker has lost its core is known before long.
                seen = now;
                continue;
            }
            let between = self.between(&std::mem::replace(&mut seen, now.clone()), &now);
            if !cores_changed {
                match self.divide_by_rows(&mut divided, &between) {
                    Ok(false) => {}
                    Ok(true) => {
                        let Ok(now) = self.glance() else { return };
                        (seen, waited) = (now, Duration::ZERO);
                        continue;
                    }
                    Err(_) => return,
                }
            }
            // Cores that have changed are for an observation, at once.
            let noticed = if cores_changed { None } else { changed.or_else(|| controller.glance(&between)) };
            let event = match noticed {
                Some(reason) => self.begin_anew(&between, &now, reason),
                None if waited < controller.interval() && !cores_changed => continue,
                // A plan is not made of statistics of a worker's waiting for its core.
                None if self.is_in_doubt() && !self.cores_changed.load(Ordering::SeqCst) => continue,
                None => self.turn(&mut controller),
            };
            waited = Duration::ZERO;
            let Ok(event) = event else { return };
            self.keep_learned(&controller);
            let Ok(shared) = self.share(&mut controller, &event.decision) else { return };
            let Ok(now) = self.glance() else { return };
            seen = now;
            let mut state = self.lock();
            std::iter::once(event).chain(shared).for_each(|event| state.remember(event));
        }
    }

    /// Discards what was observed and collected until this glance: the next turn is of the time since.
    fn begin_anew(
        &self,
        seen: &Observation,
        now: &Glance,
        reason: WaitReason,
    ) -> Result<AdaptationEvent, Abort> {
        let _scheme = self.keep_scheme();
        self.observe()?;
        self.observe_from(now);
        let decision = Decision::waited(seen, reason);
        Ok(AdaptationEvent { decision, report: None, failure: None })
    }

    /// Waits for `time`, until a nudge or a change of cores, and lets the controller look at the loads of short times meanwhile, until it
    /// notices that the load has changed.
    fn sense(&self, controller: &mut Controller, time: Duration) -> Result<Sensed, Abort> {
        let mut seen = self.glance()?;
        for _ in 0..SHORT_TIMES {
            match self.wait(time / SHORT_TIMES) {
                Waited::Passed => {}
                Waited::Nudged => break,
                Waited::Closing => return Ok(Sensed::Closing),
            }
            let now = self.glance()?;
            let noticed = controller.sense(&self.between(&seen, &now));
            seen = now;
            self.look_after_cores();
            if let Some(reason) = noticed {
                return Ok(Sensed::Changed(reason));
            }
            if self.cores_changed.load(Ordering::SeqCst) {
                break;
            }
        }
        Ok(Sensed::Passed)
    }

    /// Requests the end of the adapting thread. It may wait for answers of workers until these end.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.nudge();
    }

    /// Evaluates the statistics once and carries out the decision.
    fn turn(&self, controller: &mut Controller) -> Result<AdaptationEvent, Abort> {
        let _scheme = self.keep_scheme();
        let observation = Observation {
            changed_platform: self.cores_changed.swap(false, Ordering::SeqCst),
            ..self.since_last_turn(&self.glance()?)
        };
        let (scheme, catalog) = (self.published.scheme(), self.catalogs.working());
        let collect = || self.observe();
        let (mut event, changes) =
            decide(controller, &observation, collect, self.platform(), &scheme, &catalog)?;
        if let Some(changes) = changes {
            match self.carry_out(changes) {
                Ok(report) => event.report = Some(report),
                Err(abort) => {
                    controller.abandoned();
                    event.failure = Some(abort.to_string());
                }
            }
        }
        Ok(event)
    }

    /// Carries out changes of the scheme; the caller keeps others from doing so.
    fn carry_out(&self, changes: Vec<SchemeChange>) -> Result<RepartitionReport, Abort> {
        let published = Arc::clone(&self.published);
        let task = async move |worker: Rc<EngineWorker>| carry_out(&worker, changes, &published).await;
        let report = self.wait_for(start_task_on_worker(&self.handle, WorkerId(0), task)?)?;
        // Some changes may have been made before one that failed.
        self.keep_changed();
        report
    }

    /// Waits for an answer of a worker, and looks after the cores meanwhile: the worker may have lost its own.
    fn wait_for<R: Send>(&self, answer: Receiver<R>) -> Result<R, Abort> {
        wait_meanwhile(answer, CoreWatch::LOOK_EVERY, || self.look_after_cores())
    }

    /// Runs `job` on every worker at once and collects the results in order of the workers.
    fn ask_all<R: Send + 'static>(
        &self,
        job: impl FnOnce(&Rc<EngineWorker>) -> R + Clone + Send + 'static,
    ) -> Result<Vec<R>, Abort> {
        let started = start_on_all_workers(&self.handle, job)?;
        started.into_iter().map(|answer| self.wait_for(answer)).collect()
    }

    /// Changes the scheme by hand.
    pub fn repartition(&self, changes: Vec<SchemeChange>) -> Result<RepartitionReport, Abort> {
        let _scheme = self.keep_scheme();
        self.carry_out(changes)
    }

    /// Has all workers stop recording events, or go on.
    pub fn set_recording(&self, records: bool) -> Result<(), Abort> {
        self.ask_all(move |worker| worker.shard().monitor.set_recording(records, worker)).map(drop)
    }

    /// Returns the statistics since they were collected last, as a trace.
    pub fn trace(&self) -> Result<WorkloadTrace, Abort> {
        self.refuse_unobserved()?;
        let _scheme = self.keep_scheme();
        let observed = self.observe()?;
        let catalog = self.catalogs.working();
        Ok(Slices::of(&self.published.scheme(), &catalog, &observed).trace(&observed, &catalog))
    }
}
