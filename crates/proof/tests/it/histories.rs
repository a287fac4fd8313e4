//! Random histories, proved to be serializable: on simulated workers, from a seed, while partitions move and until a crash; and
//! on threads. The planted bugs are put before the same checks.
//!
//! `ATRAPOS_SEED=7` runs one seed, `ATRAPOS_SEED=7..2000` a range.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, RandomState};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use atrapos::sim::{Outcome, Simulation};
use atrapos::{Builder, Database, Session, Statistics, Table as _, WorkerId};
use atrapos_durability::file::{FileSystem, ModelFiles};
use atrapos_history::{Entry, History, ListReport, Report};
use atrapos_proof::histories::schema::Cells;
use atrapos_proof::histories::{
    Definer, Journal, Progress, Shared, look_at_everything, run, run_client, schema, scheme_changes,
};
use atrapos_workloads::Random;

/// The seeds of a test: new ones every time, or those that `ATRAPOS_SEED` names.
#[expect(clippy::disallowed_methods, reason = "which seeds are run is the choice of whoever runs the tests")]
fn seeds(count: u64) -> Range<u64> {
    let Ok(named) = std::env::var("ATRAPOS_SEED") else {
        let first = RandomState::new().hash_one("seed") >> 16;
        return first..first + count;
    };
    let number =
        |text: &str| text.parse::<u64>().expect("ATRAPOS_SEED is a number, or two with '..' between");
    match named.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => number(&named)..number(&named) + 1,
    }
}

/// Runs `test` with many seeds, on as many threads as there are cores.
#[expect(clippy::disallowed_methods, reason = "the number of threads changes nothing but how long it takes")]
fn for_seeds(count: u64, test: impl Fn(u64) -> Result<(), String> + Sync) {
    let seeds = seeds(count);
    let next = AtomicU64::new(seeds.start);
    let failed = AtomicBool::new(false);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    if let Err(wrong) = test(seed) {
                        failed.store(true, Ordering::Relaxed);
                        panic!("{wrong}\nATRAPOS_SEED={seed} repeats this failure");
                    }
                }
            });
        }
    });
}

/// The entries that several sessions write down together.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<Entry>>>);

impl Kept {
    fn entries(&self) -> Vec<Entry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Journal for Kept {
    fn write(&mut self, entry: Entry) -> Result<(), String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
        Ok(())
    }
}

/// Both checks.
fn judge(entries: Vec<Entry>) -> Result<(Report, ListReport), String> {
    let history = History::new(entries)?;
    let rows = history.check().map_err(|anomaly| anomaly.to_string())?;
    let lists = history.check_lists().map_err(|anomaly| anomaly.to_string())?;
    Ok((rows, lists))
}

const SESSIONS: u64 = 6;
const TRANSACTIONS: u64 = 70;
/// Steps after which a simulation that has not come to rest is taken for stuck.
const STEPS_MAX: u64 = 4_000_000;

/// Everything that can be seen of a simulated history.
#[derive(Debug, PartialEq)]
struct Observed {
    trace: u64,
    statistics: Statistics,
    entries: Vec<Entry>,
    checked: (Report, ListReport),
}

impl Observed {
    fn digest(&self) -> u64 {
        BuildHasherDefault::<DefaultHasher>::default().hash_one(format!("{self:?}"))
    }
}

/// Starts the clients of a round. Each says at its end what was wrong.
fn start(
    simulation: &Simulation,
    shared: &Arc<Shared>,
    workers: usize,
    kept: &Kept,
) -> Vec<Outcome<Result<(), String>>> {
    let client = |client: u64| {
        let (shared, mut journal) = (Arc::clone(shared), kept.clone());
        let body = async move |session: Session| run_client(&session, &shared, client, &mut journal).await;
        simulation.spawn_session(WorkerId((client % workers as u64) as u16), body)
    };
    (0..SESSIONS).map(client).collect()
}

/// Steps a simulation, at most so long, while its scheme is changed if `moves`, until all of its sessions have ended.
fn step(
    simulation: &mut Simulation,
    random: &mut Random,
    workers: u64,
    moves: bool,
    steps: u64,
) -> Result<(), String> {
    let mut left = steps;
    let mut changing: Option<Outcome<Result<_, atrapos::Abort>>> = None;
    while left > 0 && simulation.tasks() > 0 {
        if let Some(outcome) = changing.as_ref().and_then(Outcome::take) {
            outcome.map_err(|abort: atrapos::Abort| abort.to_string())?;
            changing = None;
        }
        if moves && changing.is_none() {
            changing = Some(simulation.repartition(scheme_changes(random, &simulation.scheme(), workers)));
        }
        let few = 20 + random.below(40);
        simulation.run_for(few);
        left = left.saturating_sub(few);
    }
    Ok(())
}

/// Runs a simulation to its end, reads everything once more, and judges its history.
fn observed(
    mut simulation: Simulation,
    shared: &Arc<Shared>,
    kept: &Kept,
    clients: Vec<Outcome<Result<(), String>>>,
) -> Result<Observed, String> {
    if !simulation.run(STEPS_MAX) || simulation.locks() != (0, 0) {
        return Err(format!("it does not come to rest: {:?} locks", simulation.locks()));
    }
    for client in clients {
        client.take().ok_or("a client has not ended")??;
    }
    let (own, mut journal) = (Arc::clone(shared), kept.clone());
    let looked = simulation.spawn_session(WorkerId(0), async move |session| {
        look_at_everything(&session, &own, &mut journal).await
    });
    simulation.run(STEPS_MAX);
    looked.take().ok_or("nobody could look at everything")??;
    let (trace, statistics, entries) = (simulation.trace_hash(), simulation.statistics(), kept.entries());
    let checked = judge(entries.clone())?;
    Ok(Observed { trace, statistics, entries, checked })
}

/// A history on simulated workers, in memory.
fn simulated(seed: u64) -> Result<Observed, String> {
    let mut random = Random::of_stream(seed, 0);
    let workers = 2 + random.below(3) as usize;
    let mut simulation = Simulation::new(schema(), workers, seed).map_err(|error| error.to_string())?;
    let (shared, kept) = (Shared::new(seed, 0, TRANSACTIONS), Kept::default());
    let clients = start(&simulation, &shared, workers, &kept);
    let moves = random.below(2) == 0;
    step(&mut simulation, &mut random, workers as u64, moves, 200_000)?;
    observed(simulation, &shared, &kept, clients)
}

/// Directory of a durable history in a model of files.
const DIRECTORY: &str = "/data/histories";

/// Creates a model of files with a place for the directory.
fn model_files() -> Result<ModelFiles, String> {
    let files = ModelFiles::new();
    let made = files.create_dir(Path::new("/data")).and_then(|()| files.sync_dir(Path::new("/")));
    made.map(|()| files).map_err(|error| error.to_string())
}

/// Crashes a simulation, opens its directory with `builder`, reads everything, and judges its history with that.
fn observed_after_crash(
    simulation: Simulation,
    files: &ModelFiles,
    random: &mut Random,
    kept: &Kept,
    builder: Builder,
    shared: &Arc<Shared>,
    dropped: Option<Entry>,
) -> Result<Observed, String> {
    let left = if random.below(2) == 0 { files.power_cut(random.bits()) } else { files.kill() };
    let (trace, statistics, mut entries) = (simulation.trace_hash(), simulation.statistics(), kept.entries());
    drop(simulation);
    let builder = builder.workers(1 + random.below(3) as usize);
    let builder = builder.pin(false).huge_pages(false).files(Arc::new(left));
    let db = builder.open(Path::new(DIRECTORY)).map_err(|error| format!("it does not open: {error}"))?;
    entries.extend(dropped.filter(|_| db.table_named(Cells::NAME).is_err()));
    let journals = run(&db, shared, vec![Vec::new()], false)?;
    entries.extend(journals.into_iter().flatten());
    let checked = judge(entries.clone())?;
    Ok(Observed { trace, statistics, entries, checked })
}

/// A history on simulated workers with a WAL, which is cut off somewhere; and what is there afterwards belongs to it.
fn crashed(seed: u64) -> Result<Observed, String> {
    let mut random = Random::of_stream(seed, 1);
    let workers = 1 + random.below(3) as usize;
    let streams = 1 + random.below(workers as u64) as usize;
    let files = model_files()?;
    let own = Arc::new(files.clone());
    let mut simulation = Simulation::durable(schema(), workers, streams, seed, own, Path::new(DIRECTORY))
        .map_err(|error| error.to_string())?;
    let (shared, kept) = (Shared::new(seed, 0, TRANSACTIONS), Kept::default());
    let clients = start(&simulation, &shared, workers, &kept);
    let most = [1_000, 3_000, 6_000, 30_000][random.below(4) as usize];
    let (moves, steps) = (random.below(2) == 0, random.below(most));
    step(&mut simulation, &mut random, workers as u64, moves, steps)?;
    for wrong in clients.into_iter().filter_map(|client| client.take()) {
        wrong?;
    }
    let after = Shared::new(seed, 1, 0);
    observed_after_crash(simulation, &files, &mut random, &kept, Database::builder(schema()), &after, None)
}

#[test]
fn simulated_histories_are_serializable() {
    let undecided = AtomicU64::new(0);
    let predicates = AtomicU64::new(0);
    for_seeds(1_000, |seed| {
        let (rows, lists) = simulated(seed)?.checked;
        undecided.fetch_add(rows.undecided, Ordering::Relaxed);
        predicates.fetch_add(rows.predicates, Ordering::Relaxed);
        // A history that says nothing proves nothing.
        let says_enough = rows.edges > 20 && rows.predicates > 20 && lists.transactions > 2;
        if says_enough { Ok(()) } else { Err(format!("{rows:?} {lists:?} is too little to prove anything")) }
    });
    // Rarely two states of a key fit what a predicate did not bring: the others were decided.
    let (undecided, predicates) = (undecided.into_inner(), predicates.into_inner());
    assert!(undecided < predicates, "{undecided} states are undecided of {predicates} predicates");
}

#[test]
fn histories_that_end_in_a_crash_are_serializable_with_what_is_left() {
    for_seeds(1_000, |seed| crashed(seed).map(drop));
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for_seeds(8, |seed| {
        for life in [simulated, crashed, defined, defined_and_crashed] {
            let (once, again, other) = (life(seed)?, life(seed)?, life(seed + 1)?);
            assert_eq!(once, again);
            assert_eq!(once.digest(), again.digest());
            assert_ne!(once.digest(), other.digest(), "another seed gives another history");
        }
        Ok(())
    });
}

/// A history on threads, which move partitions all the time.
fn threaded(seed: u64) -> Result<Report, String> {
    let workers = 2 + (seed % 3) as usize;
    let builder = Database::builder(schema()).workers(workers).pin(false).huge_pages(false);
    let db = builder.in_memory().map_err(|error| error.to_string())?;
    let journals = run(&db, &Shared::new(seed, 0, 2_000), vec![Vec::new(); 13], false)?;
    let (rows, _) = judge(journals.into_iter().flatten().collect())?;
    Ok(rows)
}

#[test]
fn histories_on_threads_are_serializable() {
    for seed in seeds(4) {
        let rows = threaded(seed).unwrap_or_else(|wrong| panic!("with the choices of seed {seed}: {wrong}"));
        assert!(rows.committed > 1_000, "{rows:?}");
    }
}

/// Steps a simulation until its sessions have ended, while its scheme is changed and statements are made. With `crash`, a statement
/// is given up after so many steps.
fn step_with_statements(
    simulation: &mut Simulation,
    definer: &mut Definer<Kept>,
    random: &mut Random,
    workers: u64,
    crash: Option<u64>,
) -> Result<(), String> {
    simulation.set_statement_steps(crash.unwrap_or(STEPS_MAX));
    while simulation.tasks() > 0 && simulation.steps() < STEPS_MAX {
        simulation.run_for(20 + random.below(300));
        if random.below(2) == 0 {
            // The table may be gone by the time it is its turn.
            drop(simulation.repartition(scheme_changes(random, &simulation.scheme(), workers)));
        }
        if random.below(4) == 0 && definer.step(simulation, false)? == Progress::Ended {
            return Ok(());
        }
    }
    Ok(())
}

/// A history on simulated workers over tables that are made, changed and dropped meanwhile.
fn defined(seed: u64) -> Result<Observed, String> {
    let mut random = Random::of_stream(seed, 2);
    let workers = 2 + random.below(3) as usize;
    let empty = atrapos::Schema::new();
    let mut simulation = Simulation::new(empty, workers, seed).map_err(|error| error.to_string())?;
    let (shared, kept) = (Shared::with_statements(seed, 0, TRANSACTIONS), Kept::default());
    let mut definer = Definer::new(&simulation, &shared, kept.clone())?;
    let clients = start(&simulation, &shared, workers, &kept);
    step_with_statements(&mut simulation, &mut definer, &mut random, workers as u64, None)?;
    observed(simulation, &shared, &kept, clients)
}

/// The same with a WAL, which is cut off in the middle of a statement or between two; and what is there afterwards belongs to it.
fn defined_and_crashed(seed: u64) -> Result<Observed, String> {
    let mut random = Random::of_stream(seed, 3);
    let workers = 1 + random.below(3) as usize;
    let streams = 1 + random.below(workers as u64) as usize;
    let files = model_files()?;
    let (own, empty) = (Arc::new(files.clone()), atrapos::Schema::new());
    let mut simulation = Simulation::durable(empty, workers, streams, seed, own, Path::new(DIRECTORY))
        .map_err(|error| error.to_string())?;
    let (shared, kept) = (Shared::with_statements(seed, 0, TRANSACTIONS), Kept::default());
    let mut definer = Definer::new(&simulation, &shared, kept.clone())?;
    let clients = start(&simulation, &shared, workers, &kept);
    let crash = Some(random.below(6_000));
    step_with_statements(&mut simulation, &mut definer, &mut random, workers as u64, crash)?;
    for wrong in clients.into_iter().filter_map(|client| client.take()) {
        wrong?;
    }
    let after = Shared::after_statements(seed, 1, 0);
    observed_after_crash(
        simulation,
        &files,
        &mut random,
        &kept,
        Database::existing(),
        &after,
        definer.dropped(),
    )
}

#[test]
fn simulated_histories_with_statements_are_serializable() {
    let (statements, committed) = (AtomicU64::new(0), AtomicU64::new(0));
    for_seeds(100, |seed| {
        let observed = defined(seed)?;
        let is_statement = |entry: &&Entry| matches!(entry, Entry::Ends { session: STATEMENTS, .. });
        let made = observed.entries.iter().filter(is_statement).count() as u64;
        statements.fetch_add(made, Ordering::Relaxed);
        committed.fetch_add(observed.checked.0.committed, Ordering::Relaxed);
        Ok(())
    });
    // Histories that say nothing prove nothing.
    let (statements, committed) = (statements.into_inner(), committed.into_inner());
    assert!(
        statements > 0 && committed > 10 * statements,
        "{statements} statements, {committed} transactions"
    );
}

#[test]
fn histories_with_statements_that_end_in_a_crash_are_serializable_with_what_is_left() {
    for_seeds(100, |seed| defined_and_crashed(seed).map(drop));
}

/// The session of the statements in the first round.
const STATEMENTS: u64 = 1022;

/// A history on threads over tables that are made, changed and dropped meanwhile.
fn with_statements(seed: u64) -> Result<Report, String> {
    let workers = 2 + (seed % 3) as usize;
    let builder = Database::builder(atrapos::Schema::new()).workers(workers).pin(false).huge_pages(false);
    let db = builder.in_memory().map_err(|error| error.to_string())?;
    let shared = Shared::with_statements(seed, 0, 2_000);
    let journals = run(&db, &shared, vec![Vec::new(); 14], false)?;
    let entries: Vec<Entry> = journals.into_iter().flatten().collect();
    let is_statement = |entry: &&Entry| matches!(entry, Entry::Ends { session: STATEMENTS, .. });
    let statements = entries.iter().filter(is_statement).count();
    if statements < 3 {
        return Err(format!("{statements} statements are too few to prove anything"));
    }
    judge(entries).map(|(rows, _)| rows)
}

#[test]
fn histories_on_threads_with_statements_are_serializable() {
    for seed in seeds(4) {
        let rows =
            with_statements(seed).unwrap_or_else(|wrong| panic!("with the choices of seed {seed}: {wrong}"));
        // Those that meet a statement are aborted; the statements are as frequent as they can be.
        assert!(rows.committed > 100, "{rows:?}");
    }
}

#[cfg(debug_assertions)]
mod planted {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use atrapos::planted::{Bug, with};

    use super::{Observed, crashed, defined, defined_and_crashed, simulated};

    /// Seeds tried with the bug; the first that shows it is enough.
    const SEEDS: u64 = 300;

    fn caught(bug: Bug, life: fn(u64) -> Result<Observed, String>) -> String {
        for seed in 0..SEEDS {
            let noticed = match with(bug, || catch_unwind(AssertUnwindSafe(|| life(seed)))) {
                Ok(Ok(_)) => continue,
                Ok(Err(wrong)) => wrong,
                Err(_) => "it panicked".to_owned(),
            };
            life(seed).expect("without the bug nothing is wrong");
            return noticed;
        }
        panic!("{bug:?} was not noticed with any of {SEEDS} seeds");
    }

    #[test]
    fn bugs_of_isolation_are_caught_by_the_check_of_versions() {
        // Which of its anomalies a bug shows first depends on the seed; none of them is an accident of the client.
        for bug in [Bug::ScanNotLocked, Bug::EntryLeftBehind] {
            let noticed = caught(bug, simulated);
            let known =
                ["no order", "contradicts itself", "lost update", "adya", "should not have been aborted"];
            assert!(known.iter().any(|known| noticed.contains(known)), "{bug:?} showed as: {noticed}");
        }
    }

    #[test]
    fn bugs_of_statements_are_caught_by_the_check_of_versions() {
        for bug in [Bug::TableNotDrained, Bug::FillNotLocked] {
            caught(bug, defined);
        }
        for bug in [Bug::StatementNotSaved, Bug::IndexBeforeFilled] {
            caught(bug, defined_and_crashed);
        }
    }

    #[test]
    fn bugs_of_durability_are_caught_by_the_check_of_versions() {
        for bug in [Bug::LastRecordSkipped, Bug::ToldBeforeSync] {
            caught(bug, crashed);
        }
    }
}
