//! Adaptation of an open database: the thread that aggregates the statistics of the workers, passes them to the controller
//! and carries out its decisions (`ATraPos §V-D`, thesis §4.4); and workers that retire and return (`ATraPos §VI-D`).
//!
//! Owns: the adapting thread, which workers may own data, the history of decisions, and the translation between keys and
//! the slices that plans are made of. Never: decides anything itself ([`atrapos_adapt::Controller`] does), or is on the path
//! of a transaction.
//!
//! Invariants: the scheme does not change between the moment statistics are taken and the moment the plan made of them is
//! carried out; a worker that may own nothing is given nothing, and at least one may own something.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use atrapos_adapt::{
    ControlAction, Controller, ControllerSettings, Decision, KeepReason, Observation, PartitionTrace, Plan,
    Platform, Step, SubPartition, SyncPointTrace, TRACE_FORMAT, TableTrace, Trigger, Verdict, WaitReason,
    WorkerIndex, WorkloadTrace, plan_of_necessity,
};
use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::monitor::Meetings;
use atrapos_partition::routing::Scheme;
use atrapos_partition::schema::{Catalog, PublishedCatalog, TableId};
use atrapos_runtime::{Handle, Ticks, WorkerId, affinity};
use atrapos_storage::KeyBuf;
use atrapos_transaction::jobs::{on_all_workers, run_task_on_worker, start_on_worker};
use atrapos_transaction::monitor::{Collected, WorkerCollected};
use atrapos_transaction::shard::{EngineWorker, Shard};
use atrapos_transaction::stats::EngineStats;

use crate::published_scheme::PublishedScheme;
use crate::repartition::{RepartitionReport, SchemeChange, carry_out};

/// Settings of adaptation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adaptation {
    /// Intervals and thresholds at which statistics are evaluated and plans carried out; the defaults are the paper's where
    /// it has any.
    pub controller: ControllerSettings,
    /// Sub-partitions per partition: the unit in which load is observed. Default 10, the paper's.
    pub sub_partitions: usize,
    /// One event in so many is recorded, on average. Default 64.
    pub sample_every: u32,
    /// True if the database acts on its statistics (the default). Otherwise it only collects them, for
    /// `Database::workload_trace`.
    pub act: bool,
}

impl Default for Adaptation {
    fn default() -> Adaptation {
        Adaptation {
            controller: ControllerSettings::default(),
            sub_partitions: 10,
            sample_every: 64,
            act: true,
        }
    }
}

/// The greatest number of sub-partitions that is accepted.
const SUB_PARTITIONS_MAX: usize = 1024;

/// The greatest sampling period that is accepted, in events.
const SAMPLE_EVERY_MAX: u32 = 1 << 20;

impl Adaptation {
    /// Refuses settings that make no sense, with an explanation.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        if !(1..=SUB_PARTITIONS_MAX).contains(&self.sub_partitions) {
            return Err(format!(
                "{} sub-partitions per partition cannot be observed; use 1 to {SUB_PARTITIONS_MAX}",
                self.sub_partitions
            ));
        }
        if !(1..=SAMPLE_EVERY_MAX).contains(&self.sample_every) {
            return Err(format!(
                "one event in {} cannot be recorded; record one in 1 to {SAMPLE_EVERY_MAX}",
                self.sample_every
            ));
        }
        self.controller.check().map_err(|error| error.to_string())
    }
}

/// One entry of the history of decisions.
#[derive(Clone, Debug)]
pub struct AdaptationEvent {
    /// The decision and its reason; `at_ns` counts from the opening of the database.
    pub decision: Decision,
    /// The cost of carrying it out; `None` if the scheme was kept.
    pub report: Option<RepartitionReport>,
    /// The failure that kept it from being carried out in full, if any.
    pub failure: Option<String>,
}

/// Reasons for which a worker may own no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Absence {
    /// It was retired by the user.
    Retired,
    /// Its core was taken away.
    CoreLost,
}

/// State of adaptation, shared by the adapting thread and the database. See the module's introduction.
pub struct Adaptive {
    handle: Handle<Shard>,
    catalogs: Arc<PublishedCatalog>,
    published: Arc<PublishedScheme>,
    stats: Vec<Arc<EngineStats>>,
    settings: Option<Adaptation>,
    platform: Option<Platform>,
    opened: Ticks,
    /// Held by a thread that changes the scheme, or needs it unchanged.
    scheme: Mutex<()>,
    state: Mutex<State>,
    stopping: AtomicBool,
    wake: (Mutex<bool>, Condvar),
}

/// The mutable part of [`Adaptive`].
#[derive(Debug)]
struct State {
    /// Reasons for which workers may own no data, by worker; `None` for those that may.
    absent: Vec<Option<Absence>>,
    /// The core each worker is pinned to.
    cores: Vec<Option<usize>>,
    history: VecDeque<AdaptationEvent>,
    /// The time at which statistics were taken last, and the number of transactions committed until then.
    taken: (Ticks, u64),
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

/// Counters at one moment.
#[derive(Clone, Debug)]
struct Glance {
    at: Ticks,
    committed: u64,
    /// The observed cost that was not yet collected, by worker.
    loads: Vec<u64>,
}

/// Statistics of the workers since they were collected before.
pub struct Observed {
    /// The records of each worker.
    pub workers: Vec<WorkerCollected>,
    /// The time since they were collected before.
    pub elapsed: Duration,
    /// Transactions committed in that time.
    pub committed: u64,
}

impl Adaptive {
    /// Returns the state of adaptation of a database, without a thread.
    pub fn new(
        handle: Handle<Shard>,
        catalogs: Arc<PublishedCatalog>,
        published: Arc<PublishedScheme>,
        stats: Vec<Arc<EngineStats>>,
        settings: Option<Adaptation>,
        platform: Option<Platform>,
        cores: Vec<Option<usize>>,
    ) -> Arc<Adaptive> {
        let now = handle.clock().now();
        let state =
            State { absent: vec![None; stats.len()], cores, history: VecDeque::new(), taken: (now, 0) };
        Arc::new(Adaptive {
            handle,
            catalogs,
            published,
            stats,
            settings,
            platform,
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
        if !acts || self.stats.len() < 2 || self.platform.is_none() {
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

    /// Returns, by worker, whether it may own data.
    pub fn available(&self) -> Vec<bool> {
        self.lock().absent.iter().map(Option::is_none).collect()
    }

    /// Runs the loop of the adapting thread until the database closes.
    fn run(&self) {
        let Some(settings) = self.settings else { return };
        // Checked when the database was opened.
        let Ok(mut controller) = Controller::new(settings.controller) else { return };
        let mut waited = Duration::ZERO;
        // When the workers are gone there is nothing left to adapt.
        let Ok(mut seen) = self.glance() else { return };
        loop {
            // Cores, throughput and loads are checked at the shortest interval, however long the present one is.
            let step = settings.controller.interval.min(controller.interval());
            if self.wait(step) {
                return;
            }
            waited += step;
            let core_changed = self.look_after_cores();
            let event = if waited < controller.interval() && !core_changed {
                let Ok(now) = self.glance() else { return };
                let between = self.between(&std::mem::replace(&mut seen, now.clone()), &now);
                let Some(reason) = controller.glance(&between) else { continue };
                self.begin_anew(&between, reason)
            } else {
                self.turn(&mut controller)
            };
            waited = Duration::ZERO;
            let Ok(event) = event else { return };
            let Ok(now) = self.glance() else { return };
            seen = now;
            let mut state = self.lock();
            if state.history.len() == HISTORY_MAX {
                state.history.pop_front();
            }
            state.history.push_back(event);
        }
    }

    /// Reads the counters.
    fn glance(&self) -> Result<Glance, Abort> {
        let loads = on_all_workers(&self.handle, |worker| worker.shard().monitor.load_so_far(worker))?;
        Ok(Glance { at: self.handle.clock().now(), committed: self.committed(), loads })
    }

    /// Returns the difference between two glances; no statistics were collected in between.
    fn between(&self, before: &Glance, now: &Glance) -> Observation {
        let elapsed_ns = self.handle.clock().ns(now.at.since(before.at));
        let loads = now.loads.iter().zip(&before.loads);
        Observation {
            at_ns: self.since_opening_ns(),
            throughput_tps: rate(now.committed - before.committed, elapsed_ns),
            // A partition that was moved by hand took its load along.
            loads: loads.map(|(now, before)| now.saturating_sub(*before) as f64).collect(),
            available: self.available(),
            changed_platform: false,
        }
    }

    /// Discards the statistics collected so far.
    fn begin_anew(&self, seen: &Observation, reason: WaitReason) -> Result<AdaptationEvent, Abort> {
        let _scheme = self.keep_scheme();
        self.observe()?;
        let decision = Decision::waited(seen, reason);
        Ok(AdaptationEvent { decision, report: None, failure: None })
    }

    fn since_opening_ns(&self) -> u64 {
        let clock = self.handle.clock();
        clock.ns(clock.now().since(self.opened))
    }

    /// Returns the number of transactions that have committed since the database was opened.
    fn committed(&self) -> u64 {
        self.stats.iter().map(|stats| stats.read().committed).sum()
    }

    /// Waits for `time`, or until a nudge. Returns true if the database is closing.
    fn wait(&self, time: Duration) -> bool {
        let mut nudged = self.wake.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !*nudged && !self.stopping.load(Ordering::SeqCst) {
            nudged = self.wake.1.wait_timeout(nudged, time).unwrap_or_else(PoisonError::into_inner).0;
        }
        *nudged = false;
        self.stopping.load(Ordering::SeqCst)
    }

    /// Ends the wait of the adapting thread.
    fn nudge(&self) {
        *self.wake.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.wake.1.notify_all();
    }

    /// Requests the end of the adapting thread. It may wait for answers of workers until these end.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.nudge();
    }

    /// Evaluates the statistics once and carries out the decision.
    fn turn(&self, controller: &mut Controller) -> Result<AdaptationEvent, Abort> {
        let _scheme = self.keep_scheme();
        let observed = self.observe()?;
        let now =
            Now { at_ns: self.since_opening_ns(), available: self.available(), platform: self.platform() };
        let (mut event, changes) =
            decide(controller, &observed, now, &self.published.scheme(), &self.catalogs.working());
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

    /// Returns the platform to plan for: the workers that may own data, with their distances.
    fn platform(&self) -> Result<Platform, String> {
        let platform = self.platform.clone().ok_or("the distances between the workers are not known")?;
        without(platform, &self.available())
    }

    /// Collects the statistics of the workers, which begin anew.
    fn observe(&self) -> Result<Observed, Abort> {
        let workers = on_all_workers(&self.handle, |worker| worker.shard().monitor.collect(worker))?;
        let committed = self.committed();
        let now = self.handle.clock().now();
        let (since, before) = std::mem::replace(&mut self.lock().taken, (now, committed));
        let elapsed = Duration::from_nanos(self.handle.clock().ns(now.since(since)));
        Ok(Observed { workers, elapsed, committed: committed - before })
    }

    /// Carries out changes of the scheme; the caller keeps others from doing so.
    fn carry_out(&self, changes: Vec<SchemeChange>) -> Result<RepartitionReport, Abort> {
        let published = Arc::clone(&self.published);
        run_task_on_worker(&self.handle, WorkerId(0), async move |worker: Rc<EngineWorker>| {
            carry_out(&worker, changes, &published).await
        })?
    }

    /// Changes the scheme by hand.
    pub fn repartition(&self, changes: Vec<SchemeChange>) -> Result<RepartitionReport, Abort> {
        let _scheme = self.keep_scheme();
        self.carry_out(changes)
    }

    /// Returns the statistics since they were collected last, as a trace.
    pub fn trace(&self) -> Result<WorkloadTrace, Abort> {
        if self.settings.is_none() {
            return Err(Abort::because(
                AbortReason::Misuse,
                "the database does not observe itself; open it with an adaptation",
            ));
        }
        let _scheme = self.keep_scheme();
        let observed = self.observe()?;
        let catalog = self.catalogs.working();
        Ok(Slices::of(&self.published.scheme(), &catalog, &observed).trace(&observed, &catalog))
    }

    /// Detects cores that their workers have lost or regained. Returns true if there were any.
    fn look_after_cores(&self) -> bool {
        let cores = self.lock().cores.clone();
        if cores.iter().all(Option::is_none) {
            return false;
        }
        let asked = cores.clone();
        let Ok(has_core) = on_all_workers(&self.handle, move |worker| has_core(asked[worker.id().index()]))
        else {
            return false;
        };
        let mut state = self.lock();
        let before = state.absent.clone();
        for (worker, present) in has_core.iter().enumerate() {
            match (state.absent[worker], present) {
                (None, false) => state.absent[worker] = Some(Absence::CoreLost),
                (Some(Absence::CoreLost), true) => state.absent[worker] = None,
                _ => {}
            }
        }
        if state.absent.iter().all(Option::is_some) {
            // All workers have lost their cores: no worker is preferable to another.
            state.absent.clone_from(&before);
        }
        let returned: Vec<usize> = (0..before.len())
            .filter(|worker| before[*worker].is_some() && state.absent[*worker].is_none())
            .collect();
        let changed = state.absent != before;
        drop(state);
        for worker in returned {
            if let Some(core) = cores[worker] {
                self.pin(worker, core);
            }
        }
        changed
    }

    /// Pins a worker to a core again. A refusal leaves it where the system puts it.
    fn pin(&self, worker: usize, core: usize) {
        let pinned = start_on_worker(&self.handle, WorkerId(worker as u16), move |_| {
            let _ = affinity::pin_current_thread(core);
        });
        if let Ok(pinned) = pinned {
            let _ = pinned.wait();
        }
    }

    /// Moves all data of a worker to other workers, and gives it no data from now on.
    pub fn retire(&self, worker: WorkerId) -> Result<RepartitionReport, Abort> {
        let _scheme = self.keep_scheme();
        {
            let mut state = self.lock();
            let workers = state.absent.len();
            if worker.index() >= workers {
                return Err(misuse(format!(
                    "there is no worker {} to retire; the database has workers 0 to {}",
                    worker.0,
                    workers - 1
                )));
            }
            let others = (0..workers).any(|other| other != worker.index() && state.absent[other].is_none());
            if !others {
                return Err(misuse(format!(
                    "worker {} is the last one that may own data; add another before it retires",
                    worker.0
                )));
            }
            state.absent[worker.index()] = Some(Absence::Retired);
        }
        let observed = self.observe()?;
        let catalog = self.catalogs.working();
        let slices = Slices::of(&self.published.scheme(), &catalog, &observed);
        let trace = slices.trace(&observed, &catalog);
        let weights = self.settings.unwrap_or_default().controller.planning.weights;
        let plan = self.platform().and_then(|platform| {
            let (workload, today) = (trace.workload(), trace.scheme());
            let planned =
                workload.and_then(|workload| plan_of_necessity(&workload, &platform, &today?, &weights));
            planned.map_err(|error| error.to_string())
        });
        let plan = plan.map_err(misuse)?;
        let report = self.carry_out(slices.changes(&plan));
        self.nudge();
        report
    }

    /// Brings a retired worker back, on core `core`, and returns its number.
    pub fn add(&self, core: usize) -> Result<WorkerId, Abort> {
        let worker = {
            let mut state = self.lock();
            let retired = state.absent.iter().position(|why| *why == Some(Absence::Retired));
            let Some(worker) = retired else {
                return Err(misuse(format!(
                    "none of the {} workers has retired; open the database with more workers to use more cores",
                    state.absent.len()
                )));
            };
            state.absent[worker] = None;
            if state.cores[worker].is_some() {
                state.cores[worker] = Some(core);
            }
            worker
        };
        if self.lock().cores[worker].is_some() {
            self.pin(worker, core);
        }
        self.nudge();
        Ok(WorkerId(worker as u16))
    }
}

fn misuse(why: String) -> Abort {
    Abort::explained(AbortReason::Misuse, why)
}

/// Returns `platform` without the workers that are not available.
pub fn without(platform: Platform, available: &[bool]) -> Result<Platform, String> {
    let workers = (0..).map(WorkerIndex).zip(available);
    let absent: Vec<WorkerIndex> = workers.filter(|(_, here)| !**here).map(|(worker, _)| worker).collect();
    platform.without(&absent).map_err(|error| error.to_string())
}

/// The circumstances of a decision.
pub struct Now {
    /// The time since the database was opened, in ns.
    pub at_ns: u64,
    /// True for each worker that may own data.
    pub available: Vec<bool>,
    /// The platform without the workers that may not; otherwise the reason for which there is none.
    pub platform: Result<Platform, String>,
}

/// Passes statistics to the controller. Returns an entry for the history, and the changes to carry out, if any.
pub fn decide(
    controller: &mut Controller,
    observed: &Observed,
    now: Now,
    scheme: &Scheme,
    catalog: &Catalog,
) -> (AdaptationEvent, Option<Vec<SchemeChange>>) {
    let observation = Observation {
        at_ns: now.at_ns,
        throughput_tps: rate(observed.committed, observed.elapsed.as_nanos() as u64),
        loads: observed.workers.iter().map(load_of).collect(),
        available: now.available,
        changed_platform: false,
    };
    let event = |decision, failure| AdaptationEvent { decision, report: None, failure };
    let trigger = match controller.observe(&observation) {
        Verdict::Wait(reason) => return (event(Decision::waited(&observation, reason), None), None),
        Verdict::Evaluate(trigger) => trigger,
    };
    let slices = Slices::of(scheme, catalog, observed);
    let trace = slices.trace(observed, catalog);
    let considered = now.platform.and_then(|platform| {
        let considered = controller.consider(trigger, &trace, &platform);
        let too_few = ControlAction::Keep { reason: KeepReason::TooFewSamples };
        let returned = matches!(trigger, Trigger::PlatformChanged { .. });
        match considered {
            // Where next to nothing is going on, a worker that has returned gets its share of the rows.
            Ok(considered) if returned && considered.decision.action == too_few => {
                controller.consider(trigger, &slices.trace_of_rows(observed, catalog), &platform)
            }
            considered => considered,
        }
        .map_err(|error| error.to_string())
    });
    match considered {
        Ok(considered) => {
            (event(considered.decision, None), considered.plan.map(|plan| slices.changes(&plan)))
        }
        Err(failure) => {
            let decision = Decision::waited(&observation, WaitReason::TurnedDown { trigger });
            (event(decision, Some(failure)), None)
        }
    }
}

/// Returns events per second.
fn rate(events: u64, nanoseconds: u64) -> f64 {
    events as f64 / (nanoseconds as f64 * 1e-9).max(1e-9)
}

/// Returns true if the calling thread may run on the core it was pinned to, or if the operating system cannot report it.
fn has_core(core: Option<usize>) -> bool {
    let Some(core) = core else { return true };
    affinity::current_thread_cpus().map_or(true, |cpus| cpus.contains(&core))
}

/// Returns the load of a worker: the cost of all actions on its partitions.
fn load_of(collected: &WorkerCollected) -> f64 {
    collected.partitions.iter().flat_map(|partition| &partition.costs).map(|cost| *cost as f64).sum()
}

/// The sub-partitions of all families as the numbered slices that plans are made of.
struct Slices {
    families: Vec<FamilySlices>,
}

/// The sub-partitions of one family, in key order.
struct FamilySlices {
    /// A table of the family.
    table: TableId,
    /// First key of every slice; the first one's is empty.
    starts: Vec<KeyBuf>,
    /// In key order.
    partitions: Vec<PartitionSlices>,
}

/// The sub-partitions of one partition.
struct PartitionSlices {
    owner: WorkerId,
    number: u32,
    /// Its first slice.
    first: usize,
}

impl Slices {
    fn of(scheme: &Scheme, catalog: &Catalog, observed: &Observed) -> Slices {
        let families = scheme.families().enumerate().map(|(family, (scheme, tables))| {
            let (mut starts, mut partitions) = (Vec::new(), Vec::new());
            for index in 0..scheme.partitions() {
                let (owner, number) = (scheme.owner(index), scheme.number(index));
                partitions.push(PartitionSlices { owner, number, first: starts.len() });
                starts.push(scheme.lower(index).map_or_else(KeyBuf::new, KeyBuf::from));
                if let Some(collected) = observed.find(family, number) {
                    starts.extend(collected.bounds.iter().cloned());
                }
            }
            FamilySlices { table: tables[0], starts, partitions }
        });
        debug_assert_eq!(scheme.families().count(), catalog.families.len(), "every family has partitions");
        Slices { families: families.collect() }
    }

    /// Returns the sub-partition that holds a key.
    fn locate(&self, family: usize, key: &[u8]) -> SubPartition {
        let slices = &self.families[family];
        let slice = slices.starts.partition_point(|start| **start <= *key).saturating_sub(1);
        let partition = slices.partitions.partition_point(|partition| partition.first <= slice) - 1;
        let first = slices.partitions[partition].first;
        SubPartition {
            table: family as u32,
            partition: partition as u32,
            sub_partition: (slice - first) as u32,
        }
    }

    /// Returns the statistics as a trace, the input of the planner.
    fn trace(&self, observed: &Observed, catalog: &Catalog) -> WorkloadTrace {
        let mut sync_points = Vec::new();
        let tables = self.families.iter().enumerate().map(|(family, slices)| {
            let ends = slices.partitions.iter().skip(1).map(|partition| partition.first);
            let ends = ends.chain(std::iter::once(slices.starts.len()));
            let partitions = slices.partitions.iter().zip(ends).enumerate().map(|(at, (partition, end))| {
                let PartitionSlices { owner, number, first } = partition;
                let collected = observed.find(family, *number);
                let costs =
                    collected.map_or_else(|| vec![0; end - first], |collected| collected.costs.clone());
                for (part, meetings) in
                    collected.iter().flat_map(|collected| collected.meetings.iter().enumerate())
                {
                    let here = SubPartition {
                        table: family as u32,
                        partition: at as u32,
                        sub_partition: part as u32,
                    };
                    self.add_meetings(here, meetings, catalog, &mut sync_points);
                }
                PartitionTrace { worker: WorkerIndex(u32::from(owner.0)), cost_cycles: costs }
            });
            TableTrace { name: catalog.families[family].0.to_owned(), partitions: partitions.collect() }
        });
        let tables = tables.collect();
        WorkloadTrace {
            format: TRACE_FORMAT.to_owned(),
            seconds: observed.elapsed.as_secs_f64().max(1e-9),
            workers: observed.workers.len(),
            machine: None,
            samples: Some(observed.workers.iter().map(|worker| worker.samples).sum()),
            tables,
            sync_points,
            classes: Vec::new(),
        }
    }

    /// Returns a trace in which every row has the same load.
    fn trace_of_rows(&self, observed: &Observed, catalog: &Catalog) -> WorkloadTrace {
        let mut trace = self.trace(observed, catalog);
        trace.samples = None;
        trace.sync_points.clear();
        for (family, (table, slices)) in trace.tables.iter_mut().zip(&self.families).enumerate() {
            for (partition, slices) in table.partitions.iter_mut().zip(&slices.partitions) {
                let rows = observed.find(family, slices.number).map_or(0, |collected| collected.rows);
                let parts = partition.cost_cycles.len() as u64;
                partition.cost_cycles.fill(rows.div_ceil(parts));
            }
        }
        trace
    }

    /// Adds the synchronization points of a sub-partition. Only a sample of them is remembered with partners; the count is
    /// distributed evenly over the sample.
    fn add_meetings(
        &self,
        here: SubPartition,
        meetings: &Meetings,
        catalog: &Catalog,
        sync_points: &mut Vec<SyncPointTrace>,
    ) {
        let known = meetings.remembered.len() as u64;
        for (at, meeting) in (0..).zip(&meetings.remembered) {
            let count = meetings.count / known + u64::from(at < meetings.count % known);
            let family_of = |table: TableId| catalog.tables[table.at()].family;
            let mut partners = vec![here];
            for (table, key) in &meeting.partners {
                let partner = self.locate(family_of(*table), key);
                if !partners.contains(&partner) {
                    partners.push(partner);
                }
            }
            if partners.len() > 1 && count > 0 {
                sync_points.push(SyncPointTrace { partners, bytes: meeting.bytes * count, count });
            }
        }
    }

    /// Returns the steps of a plan as changes of the scheme.
    fn changes(&self, plan: &Plan) -> Vec<SchemeChange> {
        let at = |table: atrapos_adapt::TableIndex, slice: atrapos_adapt::SliceIndex| {
            let slices = &self.families[table.index()];
            (slices.table, slices.starts[slice.0 as usize].clone())
        };
        let change = |step: &Step| match *step {
            Step::Split { table, at: slice } => {
                let (table, at) = at(table, slice);
                SchemeChange::Split { table, at }
            }
            Step::Merge { table, at: slice } => {
                let (table, at) = at(table, slice);
                SchemeChange::Merge { table, at }
            }
            Step::Move { table, from, target, .. } => {
                let (table, at) = at(table, from);
                SchemeChange::Move { table, at, to: WorkerId(target.0 as u16) }
            }
        };
        plan.steps.iter().map(change).collect()
    }
}

impl Observed {
    fn find(&self, family: usize, number: u32) -> Option<&Collected> {
        let of = |collected: &&Collected| collected.family == family && collected.number == number;
        self.workers.iter().flat_map(|worker| &worker.partitions).find(of)
    }
}
