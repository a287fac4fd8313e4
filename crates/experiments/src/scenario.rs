//! Scenarios of `ATraPos §VI-D`: the changes in each and their times, and running every side of one.
//!
//! Owns: phases, workloads and schemes of the scenarios. Never: compares the sides ([`super::comparison`] does).
//!
//! All but one run on TATP; rows that are used together in mirrored pairs are those of the simple transaction of Figure 6. Sides differ in one point only:
//! - the *static* side keeps the scheme it starts with (if a worker is lost, what it owned goes to the others once);
//! - the *adaptive* side starts with the same scheme;
//! - the *reference*, where a scenario has one, is the level that the adaptive side should reach: for every phase a
//!   fresh database with the best fixed scheme for it.
//!
//! All sides of a phase take turns ([`super::timeline`]).

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use atrapos::{Builder, Database, SchemeChange, WorkerId};
use atrapos_workloads::pair::{Pair, Tables as PairTables};
use atrapos_workloads::tatp::Tatp;
use atrapos_workloads::tatp::parameters::{Class, Mix};
use atrapos_workloads::tatp::schema::Tables;
use atrapos_workloads::{KeyChoice, Workload};

use super::comparison::{Compared, Sides};
use super::shifting::Shifting;
use super::timeline::{self, Phase, Side, Timeline, Turn, WorkerEvent};
use super::{ExperimentError, Setup, Watched, audit_and_close};

/// An experiment in which a condition changes, and one side adapts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scenario {
    /// The class of the transactions changes (`ATraPos §VI-D`, Figure 10).
    Workload,
    /// Some data becomes hot (Figure 11), and then other data (beyond the paper).
    Skew,
    /// A worker is lost (Figure 12), and comes back (beyond the paper).
    Failure,
    /// The class changes after a long calm, and then often (Figure 13).
    Frequency,
    /// Rows `k` and `N-1-k` are used together: no partition of neighbours has both (beyond the paper).
    Mirrored,
}

/// The 50% of requests to 20% of the data of Figure 11.
const HOT_FIFTH: KeyChoice = KeyChoice::Hot { requests_percent: 50, first_permille: 0, size_permille: 200 };

/// Returns the key choice with as many requests to 1% of the data, which begins here.
const fn hot_hundredth(first_permille: u16) -> KeyChoice {
    KeyChoice::Hot { requests_percent: 50, first_permille, size_permille: 10 }
}

impl Scenario {
    /// Returns a description of it, with the figure of the paper it follows.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Scenario::Workload => "adapting to another transaction class (ATraPos, Figure 10)",
            Scenario::Skew => "adapting to sudden skew (ATraPos, Figure 11)",
            Scenario::Failure => "adapting to the loss of a worker (ATraPos, Figure 12)",
            Scenario::Frequency => "adapting to frequent changes (ATraPos, Figure 13)",
            Scenario::Mirrored => "adapting to rows that are used together in mirrored pairs (k with N-1-k)",
        }
    }

    /// Returns a description of the reference.
    #[must_use]
    pub fn reference(self) -> Option<&'static str> {
        match self {
            Scenario::Workload | Scenario::Mirrored => Some("best fixed scheme"),
            Scenario::Failure => Some("fresh start"),
            Scenario::Skew | Scenario::Frequency => None,
        }
    }

    /// Returns the default seconds of a phase, so that the whole takes about a minute.
    #[must_use]
    pub fn phase_seconds(self) -> f64 {
        match self {
            Scenario::Workload => 8.0,
            Scenario::Skew => 10.0,
            Scenario::Failure => 7.0,
            Scenario::Frequency => 5.0,
            Scenario::Mirrored => 15.0,
        }
    }

    /// Returns what the rows of [`Setup::rows`] are.
    #[must_use]
    pub fn rows_are(self) -> &'static str {
        if self == Scenario::Mirrored { "rows" } else { "subscribers" }
    }

    /// Returns the workload of TATP by setting: the mix, and the choice of keys.
    fn settings(self) -> Vec<(Mix, KeyChoice)> {
        let uniform = |class| (Mix::Only(class), KeyChoice::Uniform);
        let reads = |choice| (Mix::Only(Class::GetSubscriberData), choice);
        match self {
            Scenario::Workload => vec![
                uniform(Class::UpdateSubscriberData),
                uniform(Class::GetNewDestination),
                (Mix::Standard, KeyChoice::Uniform),
            ],
            // The hot hundredth jumps from one half of the data to the other, which is initially on another worker.
            Scenario::Skew => {
                [KeyChoice::Uniform, HOT_FIFTH, hot_hundredth(300), hot_hundredth(720)].map(reads).to_vec()
            }
            Scenario::Failure => vec![reads(KeyChoice::Uniform)],
            Scenario::Frequency => {
                vec![uniform(Class::GetNewDestination), (Mix::Standard, KeyChoice::Uniform)]
            }
            Scenario::Mirrored => Vec::new(),
        }
    }

    /// Returns the phases on `workers` workers; `core` is that of the last one.
    fn phases(self, phase: Duration, workers: usize, core: usize) -> Vec<Phase> {
        let calm = |name, setting| Phase { name, length: phase, setting, event: None };
        match self {
            Scenario::Workload => {
                vec![calm("update-subscriber-data", 0), calm("get-new-destination", 1), calm("mix", 2)]
            }
            Scenario::Skew => vec![
                calm("uniform", 0),
                calm("50% to 20%", 1),
                calm("50% to a hot 1%", 2),
                calm("hot 1% elsewhere", 3),
            ],
            Scenario::Failure => {
                let lost = WorkerEvent::Lost(WorkerId(workers.saturating_sub(1) as u16));
                vec![
                    calm("all workers", 0),
                    Phase { event: Some(lost), ..calm("one lost", 0) },
                    Phase { event: Some(WorkerEvent::Back { core }), ..calm("all again", 0) },
                ]
            }
            Scenario::Frequency => vec![
                Phase { length: phase * 5, ..calm("A: get-new-destination", 0) },
                Phase { length: phase * 2, ..calm("B: mix", 1) },
                calm("A", 0),
                calm("B", 1),
            ],
            Scenario::Mirrored => vec![calm("mirrored pairs", 0)],
        }
    }

    /// Returns the time that all sides run.
    #[must_use]
    pub fn length(self, setup: &Setup<'_>, rounds: u32) -> Duration {
        let phases: Duration =
            self.phases(setup.phase, setup.workers, 0).iter().map(|phase| phase.length).sum();
        phases * self.sides(setup) * rounds
    }

    /// Returns the number of databases that are open at once.
    fn sides(self, setup: &Setup<'_>) -> u32 {
        match (setup.static_only, self.reference()) {
            (true, _) => 1,
            (false, None) => 2,
            (false, Some(_)) => 3,
        }
    }

    /// Returns the changes that make the scheme that the static and the adaptive side start with: a scheme chosen
    /// without knowledge of the tables that are used together. Only in the scenarios that depend on it, the index of
    /// the numbers is on other workers than the subscribers it leads to.
    fn first_scheme(self, db: &Database) -> Result<Vec<SchemeChange>, ExperimentError> {
        if !matches!(self, Scenario::Workload | Scenario::Frequency) {
            return Ok(Vec::new());
        }
        let index = Tables::of(db).map_err(|error| ExperimentError::Setting(error.to_string()))?.by_number;
        let scheme = db.scheme();
        let family = scheme.family(index.id());
        let moved = (0..family.partitions()).map(|at| SchemeChange::Move {
            table: index.id(),
            at: family.lower(at).map_or_else(Default::default, atrapos::KeyBuf::from),
            to: WorkerId(((family.owner(at).index() + 1) % db.workers()) as u16),
        });
        Ok(moved.collect())
    }

    /// Returns the changes that make the best fixed scheme of the naive one.
    fn best_scheme(self, db: &Database, rows: u64) -> Result<Vec<SchemeChange>, ExperimentError> {
        if self != Scenario::Mirrored {
            // TATP's own scheme: by symmetry there is no better one for requests to all subscribers alike.
            return Ok(Vec::new());
        }
        let table = PairTables::of(db).map_err(|error| ExperimentError::Setting(error.to_string()))?.a.id();
        // Two parts on each worker, as far from the end as from the beginning.
        let workers = db.workers() as u64;
        let begin = |part: u64| atrapos::Key::encode(&(part * rows / (2 * workers)));
        let mut changes: Vec<SchemeChange> =
            (0..workers).map(|worker| SchemeChange::Split { table, at: begin(2 * worker + 1) }).collect();
        for part in 0..2 * workers {
            let to = WorkerId(part.min(2 * workers - 1 - part) as u16);
            changes.push(SchemeChange::Move { table, at: begin(part), to });
        }
        Ok(changes)
    }
}

/// Results of all sides in one round.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// The static side.
    pub fixed: Timeline,
    /// The adaptive side, unless only the static one was wanted.
    pub adaptive: Option<Timeline>,
    /// The reference by phase, if there is one.
    pub references: Vec<Timeline>,
    /// The phases compared.
    pub compared: Vec<Compared>,
}

/// Runs all sides of a scenario, `rounds` times. The reported times add up to [`Scenario::length`].
///
/// # Errors
/// See [`ExperimentError`].
pub fn run(
    scenario: Scenario,
    setup: &Setup<'_>,
    rounds: u32,
    interrupt: &AtomicBool,
    watch: &mut dyn FnMut(Watched<'_>),
) -> Result<Vec<Round>, ExperimentError> {
    if scenario == Scenario::Mirrored {
        let settings = vec![Pair::mirrored(setup.rows, setup.seed)?];
        return run_on(settings, scenario, setup, rounds, interrupt, watch);
    }
    let tatp = |(mix, choice)| Tatp::new(setup.rows, mix, choice, setup.seed);
    let settings: Vec<Tatp> = scenario.settings().into_iter().map(tatp).collect::<Result<_, _>>()?;
    run_on(settings, scenario, setup, rounds, interrupt, watch)
}

fn run_on<W: Workload>(
    settings: Vec<W>,
    scenario: Scenario,
    setup: &Setup<'_>,
    rounds: u32,
    interrupt: &AtomicBool,
    watch: &mut dyn FnMut(Watched<'_>),
) -> Result<Vec<Round>, ExperimentError> {
    let workload = Shifting::new(settings).unwrap_or_else(|| unreachable!("every scenario has settings"));
    let experiment = Running { scenario, setup, workload, interrupt };
    (0..rounds).map(|number| experiment.round(number % 2 == 1, watch)).collect()
}

/// An experiment that runs.
struct Running<'a, W> {
    scenario: Scenario,
    setup: &'a Setup<'a>,
    workload: Shifting<W>,
    interrupt: &'a AtomicBool,
}

impl<W: Workload> Running<'_, W> {
    /// Runs all sides once; if `is_reversed`, the other one is first.
    fn round(&self, is_reversed: bool, watch: &mut dyn FnMut(Watched<'_>)) -> Result<Round, ExperimentError> {
        let Setup { workers, sessions, static_only, adaptation, .. } = *self.setup;
        let (fixed_db, fixed_opened) = self.open(watch, |builder| builder.workers(workers).fixed_scheme())?;
        let adaptive_db = if static_only {
            None
        } else {
            Some(self.open(watch, |builder| builder.workers(workers).adaptation(adaptation))?)
        };
        let core = fixed_db.worker_reports().last().and_then(|report| report.core).unwrap_or(0);
        let phases = self.scenario.phases(self.setup.phase, workers, core);
        let mut fixed = Side::new(&fixed_db, fixed_opened, &self.workload, sessions, true)?;
        let adaptive = adaptive_db.as_ref();
        let mut adaptive = adaptive
            .map(|(db, opened)| Side::new(db, *opened, &self.workload, sessions, true))
            .transpose()?;
        let mut round = Round::default();
        for (at, phase) in phases.iter().enumerate() {
            self.workload.turn_to(phase.setting);
            let mut sides: Vec<&mut dyn Turn> = vec![&mut fixed];
            sides.extend(adaptive.iter_mut().map(|side| side as &mut dyn Turn));
            if at == 0 {
                timeline::warm_up(&mut sides, phase)?;
            }
            round.references.extend(self.phase(sides, phase, is_reversed, watch)?);
        }
        let (timeline, ledger) = fixed.end()?;
        audit_and_close(fixed_db, &self.workload, &ledger)?;
        round.fixed = timeline;
        let ended = adaptive.map(Side::end).transpose()?;
        if let (Some((timeline, ledger)), Some((db, _))) = (ended, adaptive_db) {
            audit_and_close(db, &self.workload, &ledger)?;
            round.adaptive = Some(timeline);
        }
        let compare = |(at, phase): (usize, &Phase)| {
            let (adaptive, reference) = (round.adaptive.as_ref(), round.references.get(at));
            Sides { fixed: &round.fixed, adaptive, reference }.compare(phase.name, at)
        };
        round.compared = phases.iter().enumerate().filter_map(compare).collect();
        Ok(round)
    }

    /// Opens a database with the scheme that the static and the adaptive side start with.
    fn open(
        &self,
        watch: &mut dyn FnMut(Watched<'_>),
        settings: impl FnOnce(Builder) -> Builder,
    ) -> Result<(Database, Instant), ExperimentError> {
        watch(Watched { what: "loading", elapsed: Duration::ZERO, tps: 0.0 });
        let (db, opened) = self.setup.loaded(&self.workload, settings)?;
        let changes = self.scenario.first_scheme(&db)?;
        if !changes.is_empty() {
            db.repartition(changes)?;
        }
        Ok((db, opened))
    }

    /// Runs a phase of these sides and of the reference, if there is one: a fresh database that has only the workers available in the
    /// phase, and the best fixed scheme. Returns its timeline.
    fn phase(
        &self,
        mut sides: Vec<&mut (dyn Turn + '_)>,
        phase: &Phase,
        is_reversed: bool,
        watch: &mut dyn FnMut(Watched<'_>),
    ) -> Result<Option<Timeline>, ExperimentError> {
        let setup = self.setup;
        if self.scenario.reference().is_none() || setup.static_only {
            timeline::run_phase(&mut sides, phase, is_reversed, self.interrupt, watch)?;
            return Ok(None);
        }
        watch(Watched { what: "loading", elapsed: Duration::ZERO, tps: 0.0 });
        let lost = usize::from(matches!(phase.event, Some(WorkerEvent::Lost(_))));
        let workers = (setup.workers - lost).max(1);
        let (db, opened) = setup.loaded(&self.workload, |builder| builder.workers(workers).fixed_scheme())?;
        let changes = self.scenario.best_scheme(&db, setup.rows)?;
        if !changes.is_empty() {
            db.repartition(changes)?;
        }
        // The number of clients is that of the other sides.
        let sessions = (setup.sessions * setup.workers).div_ceil(workers);
        let mut reference = Side::new(&db, opened, &self.workload, sessions, false)?;
        timeline::warm_up(&mut [&mut reference], phase)?;
        let mut all: Vec<&mut dyn Turn> = Vec::new();
        all.extend(sides.into_iter().map(|side| -> &mut dyn Turn { side }));
        all.push(&mut reference);
        timeline::run_phase(&mut all, phase, is_reversed, self.interrupt, watch)?;
        let (timeline, ledger) = reference.end()?;
        audit_and_close(db, &self.workload, &ledger)?;
        Ok(Some(timeline))
    }
}

/// Refuses settings that are impossible: the loss of the only worker, or more data than fits in memory.
///
/// # Errors
/// Returns an error that names the remedy.
pub fn check(
    scenario: Scenario,
    setup: &Setup<'_>,
    available_bytes: Option<u64>,
) -> Result<(), ExperimentError> {
    let available_bytes = available_bytes.map(|bytes| bytes / u64::from(scenario.sides(setup)));
    if scenario == Scenario::Failure && setup.workers < 2 {
        return Err(ExperimentError::Setting(
            "the only worker cannot be lost; use at least 2 --workers".to_owned(),
        ));
    }
    if scenario == Scenario::Mirrored {
        if setup.rows < 4 * setup.workers as u64 {
            return Err(ExperimentError::Setting(format!(
                "{} rows are too few for parts on {} workers; use at least 4 --rows per worker",
                setup.rows, setup.workers
            )));
        }
        let pair = Pair::mirrored(setup.rows, setup.seed)?;
        return Ok(available_bytes.map_or(Ok(()), |available| pair.check_memory(available))?);
    }
    let setting = scenario.settings()[0];
    let tatp = Tatp::new(setup.rows, setting.0, setting.1, setup.seed)?;
    Ok(available_bytes.map_or(Ok(()), |available| tatp.check_memory(available))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Scenario; 5] =
        [Scenario::Workload, Scenario::Skew, Scenario::Failure, Scenario::Frequency, Scenario::Mirrored];

    #[test]
    fn every_phase_has_a_setting_and_every_worker_lost_comes_back() {
        for scenario in ALL {
            let phases = scenario.phases(Duration::from_secs(1), 4, 3);
            let settings = scenario.settings().len().max(1);
            assert!(phases.iter().all(|phase| phase.setting < settings), "{scenario:?}");
            assert!((0..settings).all(|setting| phases.iter().any(|phase| phase.setting == setting)));
            let events: Vec<WorkerEvent> = phases.iter().filter_map(|phase| phase.event).collect();
            let is_failure = scenario == Scenario::Failure;
            assert_eq!(events.first(), is_failure.then_some(&WorkerEvent::Lost(WorkerId(3))));
            assert_eq!(events.last(), is_failure.then_some(&WorkerEvent::Back { core: 3 }));
        }
    }
}
