//! One side of an experiment from its beginning to its end: phases one after the other under clients that never pause.
//!
//! Owns: the times at which phases change, and the throughput over time. Never: opens or loads a database, or compares
//! sides.
//!
//! The controller of an adaptive database has a clock of its own. So a side runs all its phases in one go, before or
//! after the others: a pause would look like a change of the throughput.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use atrapos::activity::Activity;
use atrapos::{AdaptationEvent, Database, WorkerId};
use atrapos_workloads::{Ledger, Workload};

use super::crowd::Crowd;
use super::shifting::Shifting;
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

/// The throughput during a short time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// End of the time, in seconds since the first phase began.
    pub time_s: f64,
    /// Completed transactions per second.
    pub tps: f64,
}

/// Result of a phase.
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
}

/// Length of one sample.
pub const SAMPLE: Duration = Duration::from_millis(200);

/// Time for which clients run before the first phase begins.
const WARM_UP: Duration = Duration::from_secs(1);

/// Runs the phases. `opened` is the moment at which the database was opened, on whose clock decisions are made. Returns
/// the measurements, and the outcomes of all transactions.
pub(crate) fn run<W: Workload>(
    db: &Database,
    opened: Instant,
    workload: &Shifting<W>,
    phases: &[Phase],
    sessions_per_worker: usize,
    interrupt: &AtomicBool,
    watch: &mut dyn FnMut(Watched<'_>),
) -> Result<(Timeline, Ledger), ExperimentError> {
    let Some(first) = phases.first() else { return Ok((Timeline::default(), Ledger::new())) };
    workload.turn_to(first.setting);
    let mut crowd = Crowd::start(db, workload, sessions_per_worker)?;
    std::thread::sleep(WARM_UP.min(first.length));
    let began = Instant::now();
    let seconds = |at: Instant| at.duration_since(began).as_secs_f64();
    let mut timeline = Timeline::default();
    timeline.moments.push(("at the beginning".to_owned(), db.activity()?));
    let mut end = began;
    let mut last = (began, crowd.completed());
    for phase in phases {
        let start = last;
        end += phase.length;
        workload.turn_to(phase.setting);
        if let Some(event) = phase.event {
            match event {
                WorkerEvent::Lost(worker) => db.retire_worker(worker).map(drop)?,
                WorkerEvent::Back { core } => db.add_worker(core).map(drop)?,
            }
            crowd.gather()?;
        }
        loop {
            let now = Instant::now();
            if now >= end {
                break;
            }
            if interrupt.load(Ordering::Relaxed) {
                return Err(ExperimentError::Interrupted);
            }
            // A very short last sample would be mostly noise.
            let left = end - now;
            std::thread::sleep(if left < SAMPLE * 3 / 2 { left } else { SAMPLE });
            let at = (Instant::now(), crowd.completed());
            let tps = (at.1 - last.1) as f64 / at.0.duration_since(last.0).as_secs_f64().max(1e-9);
            timeline.samples.push(Sample { time_s: seconds(at.0), tps });
            watch(Watched { what: phase.name, elapsed: at.0.duration_since(last.0), tps });
            last = at;
        }
        let tps = (last.1 - start.1) as f64 / last.0.duration_since(start.0).as_secs_f64().max(1e-9);
        timeline.moments.push((format!("after {}", phase.name), db.activity()?));
        timeline.spans.push(Span { begin_s: seconds(start.0), end_s: seconds(last.0), tps });
    }
    let ledger = crowd.leave()?;
    let offset_s = began.duration_since(opened).as_secs_f64();
    let timed = |event: AdaptationEvent| {
        let time_s = event.decision.at_ns as f64 / 1e9 - offset_s;
        TimedDecision { time_s, event }
    };
    timeline.decisions = db.adaptation_history().into_iter().map(timed).collect();
    Ok((timeline, ledger))
}
