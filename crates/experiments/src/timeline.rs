//! The sides of an experiment from its beginning to its end: phases one after the other, in which the sides take turns.
//!
//! Owns: the times at which phases change and sides take turns, and the throughput of each over time. Never: opens or loads a
//! database, or compares sides.
//!
//! All databases stay open, and each runs for a slice of at most [`SLICE`] while the others rest; the order of every second round of
//! slices is the reverse. So what the machine does besides hits all sides alike. A database that rests has no sessions, and its
//! controller is [suspended](Database::suspend_adaptation): for it there is no pause. All times of a side, those of its decisions
//! included, are the time in which it ran.
//!
//! Invariant: at most one side runs at any moment.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use atrapos::activity::Activity;
use atrapos::{AdaptationEvent, Database, Suspension, WorkerId};
use atrapos_harness::driver::ClientSource;
use atrapos_workloads::Ledger;

use super::crowd::Crowd;
use super::{ExperimentError, Watched};

/// Change of the workers at the beginning of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerEvent {
    /// Removes this worker.
    Lost(WorkerId),
    /// Brings the lost worker back, on this core.
    Back {
        /// The core.
        core: usize,
    },
}

/// A part of an experiment during which the workload stays the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Its name.
    pub name: &'static str,
    /// Its length.
    pub length: Duration,
    /// The setting of the workload.
    pub setting: usize,
    /// Change of the workers at its beginning.
    pub event: Option<WorkerEvent>,
}

impl Phase {
    /// Returns the number of its slices. They are of equal length.
    fn slices(&self) -> u32 {
        u32::try_from(self.length.as_millis().div_ceil(SLICE.as_millis())).unwrap_or(u32::MAX).max(1)
    }
}

/// The throughput during a short time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// End of the time, in seconds since the first phase began.
    pub time_s: f64,
    /// Completed transactions per second.
    pub tps: f64,
}

/// Result of a phase, or of a slice of one.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Its beginning, in seconds since the first phase began.
    pub begin_s: f64,
    /// Its end.
    pub end_s: f64,
    /// Completed transactions per second, over all of it.
    pub tps: f64,
}

/// A decision of the controller, on the clock of the experiment.
#[derive(Clone, Debug)]
pub struct TimedDecision {
    /// Seconds since the first phase began; negative for a decision made before.
    pub time_s: f64,
    /// The decision and its outcome.
    pub event: AdaptationEvent,
}

/// Results of one side.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Samples in order of time.
    pub samples: Vec<Sample>,
    /// Results by phase.
    pub spans: Vec<Span>,
    /// Results of the slices of each phase.
    pub slices: Vec<Vec<Span>>,
    /// Decisions in order of time; those made while the database was loaded included.
    pub decisions: Vec<TimedDecision>,
    /// The activity of the database when the first phase began and after each of them, with the name of the moment.
    pub moments: Vec<(String, Activity)>,
}

impl Timeline {
    /// Returns the samples of a phase.
    pub fn samples_of(&self, phase: usize) -> impl Iterator<Item = &Sample> {
        // Times are sums of clock readings; a nanosecond is within their rounding.
        let within = self.spans.get(phase).map(|span| (span.begin_s + 1e-9, span.end_s + 1e-9));
        self.samples
            .iter()
            .filter(move |sample| within.is_some_and(|(begin, end)| (begin..=end).contains(&sample.time_s)))
    }

    /// Returns the factor on the throughput of a phase which the same work would give if all workers were as busy as the busiest one.
    #[must_use]
    pub fn if_even(&self, phase: usize) -> Option<f64> {
        let [(_, before), (_, after)] = self.moments.get(phase..phase + 2)? else { return None };
        let workers = before.workers.iter().zip(&after.workers).filter(|(_, worker)| worker.is_available);
        let busy = workers.map(|(before, after)| after.busy_ns.saturating_sub(before.busy_ns) as f64);
        let (count, all, most) =
            busy.fold((0.0, 0.0, 0.0_f64), |(count, all, most), ns| (count + 1.0, all + ns, most.max(ns)));
        (all > 0.0).then(|| count * most / all)
    }

    /// Returns the slices of a phase.
    #[must_use]
    pub fn slices_of(&self, phase: usize) -> &[Span] {
        self.slices.get(phase).map_or(&[], Vec::as_slice)
    }
}

/// Length of a slice, at most.
pub const SLICE: Duration = Duration::from_millis(500);

/// Length of one sample.
pub const SAMPLE: Duration = Duration::from_millis(100);

/// Time for which clients run before the first phase begins.
const WARM_UP: Duration = Duration::from_secs(1);

/// A database with its clients, which runs for a slice now and then.
pub(crate) struct Side<'a> {
    db: &'a Database,
    crowd: Crowd<'a>,
    /// While it rests.
    rest: Option<Suspension<'a>>,
    /// Time from the opening to the first phase, on the clock of its controller.
    before: Duration,
    /// Time for which it has run since the first phase began.
    ran: Duration,
    /// The same when the present phase began.
    phase_began: Duration,
    /// False if no worker is lost here.
    loses_workers: bool,
    timeline: Timeline,
}

impl<'a> Side<'a> {
    /// Returns a side that rests. `opened` is the moment at which the database was opened; without `loses_workers` it has the workers
    /// of the phase already.
    pub(crate) fn new(
        db: &'a Database,
        opened: Instant,
        workload: &'a dyn ClientSource,
        sessions_per_worker: usize,
        loses_workers: bool,
    ) -> Result<Side<'a>, ExperimentError> {
        let rest = db.suspend_adaptation()?;
        Ok(Side {
            db,
            crowd: Crowd::new(db, workload, sessions_per_worker),
            rest: Some(rest),
            before: opened.elapsed(),
            ran: Duration::ZERO,
            phase_began: Duration::ZERO,
            loses_workers,
            timeline: Timeline::default(),
        })
    }

    /// Ends the side. Returns the measurements, and the outcomes of all transactions.
    pub(crate) fn end(mut self) -> Result<(Timeline, Ledger), ExperimentError> {
        let before_s = self.before.as_secs_f64();
        let timed = |event: AdaptationEvent| {
            let time_s = event.decision.at_ns as f64 / 1e9 - before_s;
            TimedDecision { time_s, event }
        };
        self.timeline.decisions = self.db.adaptation_history().into_iter().map(timed).collect();
        let mut ledger = Ledger::new();
        self.crowd.leave(&mut ledger)?;
        Ok((self.timeline, ledger))
    }
}

/// One of several sides that take turns: a trait, because their databases are open for different times, which a list of sides cannot tell apart.
pub(crate) trait Turn {
    /// Lets the clients run before anything is measured.
    fn warm_up(&mut self, time: Duration) -> Result<(), ExperimentError>;

    fn begin_phase(&mut self);

    /// Runs a slice of a phase, from 0.
    fn run(
        &mut self,
        phase: &Phase,
        slice: u32,
        interrupt: &AtomicBool,
        watch: &mut dyn FnMut(Watched<'_>),
    ) -> Result<(), ExperimentError>;

    fn end_phase(&mut self, phase: &Phase) -> Result<(), ExperimentError>;
}

impl Turn for Side<'_> {
    fn warm_up(&mut self, time: Duration) -> Result<(), ExperimentError> {
        self.crowd.gather()?;
        self.rest = None;
        let began = Instant::now();
        std::thread::sleep(time);
        self.rest = Some(self.db.suspend_adaptation()?);
        self.before += began.elapsed();
        self.crowd.pause()?;
        self.timeline.moments.push(("at the beginning".to_owned(), self.db.activity()?));
        Ok(())
    }

    fn begin_phase(&mut self) {
        self.phase_began = self.ran;
        self.timeline.slices.push(Vec::new());
    }

    fn run(
        &mut self,
        phase: &Phase,
        slice: u32,
        interrupt: &AtomicBool,
        watch: &mut dyn FnMut(Watched<'_>),
    ) -> Result<(), ExperimentError> {
        let until = self.phase_began + phase.length * (slice + 1) / phase.slices();
        self.crowd.gather()?;
        self.rest = None;
        let resumed = Instant::now();
        let from = (self.ran, self.crowd.completed());
        if let Some(event) = phase.event.filter(|_| slice == 0 && self.loses_workers) {
            match event {
                WorkerEvent::Lost(worker) => self.db.retire_worker(worker).map(drop)?,
                WorkerEvent::Back { core } => self.db.add_worker(core).map(drop)?,
            }
            self.crowd.gather()?;
        }
        let mut last = from;
        loop {
            let left = until.saturating_sub(from.0 + resumed.elapsed());
            // A very short last sample would be mostly noise.
            let is_last = left < SAMPLE * 3 / 2;
            std::thread::sleep(if is_last { left } else { SAMPLE });
            if is_last {
                self.rest = Some(self.db.suspend_adaptation()?);
            }
            let now = (from.0 + resumed.elapsed(), self.crowd.completed());
            let tps = rate(last, now);
            self.timeline.samples.push(Sample { time_s: now.0.as_secs_f64(), tps });
            watch(Watched { what: phase.name, elapsed: now.0.saturating_sub(last.0), tps });
            last = now;
            if is_last {
                break;
            }
            if interrupt.load(Ordering::Relaxed) {
                return Err(ExperimentError::Interrupted);
            }
        }
        self.ran = last.0;
        if let Some(slices) = self.timeline.slices.last_mut() {
            slices.push(span(from, last));
        }
        Ok(self.crowd.pause()?)
    }

    fn end_phase(&mut self, phase: &Phase) -> Result<(), ExperimentError> {
        // What its sessions completed while they ended is of no phase.
        let slices = self.timeline.slices.last().map_or(&[][..], Vec::as_slice);
        let completed: f64 = slices.iter().map(|slice| slice.tps * (slice.end_s - slice.begin_s)).sum();
        let (begin_s, end_s) = (self.phase_began.as_secs_f64(), self.ran.as_secs_f64());
        let tps = completed / (end_s - begin_s).max(1e-9);
        self.timeline.spans.push(Span { begin_s, end_s, tps });
        self.timeline.moments.push((format!("after {}", phase.name), self.db.activity()?));
        Ok(())
    }
}

/// A time for which a side has run, and the transactions it has completed.
type Reached = (Duration, u64);

fn rate(from: Reached, to: Reached) -> f64 {
    (to.1 - from.1) as f64 / to.0.saturating_sub(from.0).as_secs_f64().max(1e-9)
}

fn span(from: Reached, to: Reached) -> Span {
    Span { begin_s: from.0.as_secs_f64(), end_s: to.0.as_secs_f64(), tps: rate(from, to) }
}

/// Lets the clients of each side run for a while, one after the other, before anything is measured.
pub(crate) fn warm_up(sides: &mut [&mut (dyn Turn + '_)], first: &Phase) -> Result<(), ExperimentError> {
    sides.iter_mut().try_for_each(|side| side.warm_up(WARM_UP.min(first.length)))
}

/// Runs a phase: slices of all sides in turn. If `is_reversed`, the last side is the first in the first round of slices.
pub(crate) fn run_phase(
    sides: &mut [&mut (dyn Turn + '_)],
    phase: &Phase,
    is_reversed: bool,
    interrupt: &AtomicBool,
    watch: &mut dyn FnMut(Watched<'_>),
) -> Result<(), ExperimentError> {
    if is_reversed {
        sides.reverse();
    }
    sides.iter_mut().for_each(|side| side.begin_phase());
    for slice in 0..phase.slices() {
        for side in sides.iter_mut() {
            side.run(phase, slice, interrupt, watch)?;
        }
        sides.reverse();
    }
    sides.iter_mut().try_for_each(|side| side.end_phase(phase))
}
