//! Parts that the tests share: tables, seeds, and one way to run sessions on the simulation and on real threads.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Poll, Waker};

use atrapos::sim::{Deployment, Simulation};
use atrapos::{
    Abort, Advice, Builder, Database, Division, Index, IndexRef, InstanceId, Key, KeyBuf, KeyRanges,
    LoadProgress, Route, Schema, Scheme, SchemeChange, Session, Statistics, Table, TableRef, Tx, WorkerId,
    row,
};
use atrapos_partition::schema::{Catalog, TableId};

/// Steps after which a simulation that has not come to rest is taken for stuck.
pub(crate) const STEPS_MAX: u64 = 20_000_000;

// --- Seeds -------------------------------------------------------------------------------------------------------------

/// A small generator (SplitMix64): what matters is that the same seed gives the same run everywhere.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True `percent` times out of a hundred.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A generator for part `at` of what this one drives.
    pub(crate) fn part(&self, at: usize) -> Random {
        Random(self.0 ^ (at as u64 + 1).wrapping_mul(0xd6e8_feb8_6659_fd93))
    }
}

/// The seeds of a test: `count` new ones every time, or those that `ATRAPOS_SEED` names, one (`7`) or a range (`7..2000`).
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

/// Runs `test` with `count` seeds, or with those that `ATRAPOS_SEED` names.
pub(crate) fn for_seeds(count: u64, mut test: impl FnMut(u64)) {
    for seed in seeds(count) {
        let _shown = ShowSeed(seed);
        test(seed);
    }
}

/// The same, on as many threads as there are cores.
pub(crate) fn for_seeds_in_parallel(count: u64, test: impl Fn(u64) + Sync) {
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
                    let _shown = ShowSeed(seed);
                    // Others need not go on when one has failed.
                    let _stops = StopOthers(&failed);
                    test(seed);
                }
            });
        }
    });
}

/// Tells the other threads of a test when this one fails.
struct StopOthers<'a>(&'a AtomicBool);

impl Drop for StopOthers<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// Tells the seed of a test that fails.
struct ShowSeed(u64);

impl Drop for ShowSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            show(&format!("ATRAPOS_SEED={} repeats this failure", self.0));
        }
    }
}

#[expect(clippy::print_stdout, reason = "the test harness shows it when the test fails")]
pub(crate) fn show(text: &str) {
    println!("{text}");
}

// --- Tables ------------------------------------------------------------------------------------------------------------

row! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct Item {
        pub(crate) value: i64,
        pub(crate) text: String,
    }
}

pub(crate) fn item(value: i64) -> Item {
    Item { value, text: String::new() }
}

/// Rows by number, cut evenly from 0 to 99 in most tests.
pub(crate) struct Items;

impl Table for Items {
    type Key = u64;
    type Row = Item;
    const NAME: &'static str = "items";
}

/// A second table of the same shape, on boundaries of its own.
pub(crate) struct Others;

impl Table for Others {
    type Key = u64;
    type Row = Item;
    const NAME: &'static str = "others";
}

/// Two tables, cut so that every worker owns a part of each, and not the same one.
pub(crate) fn two_tables() -> Schema {
    Schema::new()
        .table::<Items>()
        .table::<Others>()
        .split_evenly("items", 0, 99)
        .split_at("others", &[10_u64, 20, 30, 40, 50, 60, 70, 80, 90])
}

// --- Databases ---------------------------------------------------------------------------------------------------------

/// A database on real threads that are not pinned: the tests run on two cores, several at a time.
pub(crate) fn open(schema: Schema, workers: usize) -> Database {
    builder(schema, workers).in_memory().expect("the schema is fine")
}

fn builder(schema: Schema, workers: usize) -> Builder {
    Database::builder(schema).workers(workers).pin(false).huge_pages(false)
}

pub(crate) fn simulate(schema: Schema, workers: usize, seed: u64) -> Simulation {
    Simulation::new(schema, workers, seed).expect("the schema is fine")
}

/// Rows `0..rows` of `Items` with `value`.
pub(crate) fn load_items(db: &Database, rows: u64, value: i64) {
    let items = db.table::<Items>().expect("it is in the schema");
    let loaded = db.load(&LoadProgress::default(), move |loader| {
        for key in loader.share_of(items, 0, rows - 1).into_iter().flatten() {
            loader.add(items, &key, &item(value))?;
        }
        Ok(())
    });
    assert_eq!(loaded, Ok(rows));
}

/// A database in either form: the same sessions run on both.
#[expect(clippy::large_enum_variant, reason = "a test makes one of them")]
pub(crate) enum Engine {
    Simulated(Box<Simulation>, Option<Shuffle>),
    Threads(Database, Option<Shuffle>),
    /// Simulated instances of a deployment.
    Deployed(Box<Deployment>, Option<Shuffle>),
}

/// Changes the scheme at random while sessions run.
#[derive(Clone, Debug)]
pub(crate) struct Shuffle(Random);

/// Partitions a shuffled family has at most.
const PARTITIONS_MAX: usize = 12;

impl Shuffle {
    pub(crate) fn new(seed: u64) -> Shuffle {
        Shuffle(Random::new(!seed))
    }

    /// Some changes that make sense one after the other. Keys are taken to be small numbers, or to begin with such.
    pub(crate) fn changes(&mut self, scheme: &Scheme, workers: u64) -> Vec<SchemeChange> {
        let Shuffle(random) = self;
        let families: Vec<_> = scheme.families().collect();
        let (family, tables) = &families[random.below(families.len() as u64) as usize];
        let table = tables[random.below(tables.len() as u64) as usize];
        let any = random.below(family.partitions() as u64) as usize;
        let key = family.lower(any).map_or_else(KeyBuf::new, KeyBuf::from);
        let to = WorkerId(random.below(workers) as u16);
        match random.below(3) {
            // Mostly where the rows are, now and then where there are none, or within what begins with one number.
            0 if family.partitions() < PARTITIONS_MAX => {
                let mut at = (random.below(100) >> random.below(5)).encode();
                if random.chance(20) {
                    at.extend_from_slice(&random.below(4).to_be_bytes());
                }
                if (0..family.partitions()).any(|index| family.lower(index) == Some(&*at)) || at.is_empty() {
                    return Vec::new();
                }
                vec![SchemeChange::Split { table, at: at.clone() }, SchemeChange::Move { table, at, to }]
            }
            1 if any > 0 => {
                let before = family.owner(any - 1);
                vec![
                    SchemeChange::Move { table, at: key.clone(), to: before },
                    SchemeChange::Merge { table, at: key },
                ]
            }
            _ => vec![SchemeChange::Move { table, at: key, to }],
        }
    }
}

/// Random ranges of all families, whose keys are taken to be small numbers or to begin with such.
fn random_ranges(schema: &Catalog, random: &mut Random, instances: u64) -> BTreeMap<String, KeyRanges> {
    let of = |(name, _): &(&str, _)| {
        let cuts: BTreeSet<u64> =
            (0..random.below(5)).map(|_| 1 + (random.below(100) >> random.below(5))).collect();
        let owners = (0..=cuts.len()).map(|_| InstanceId(random.below(instances) as u16)).collect();
        let ranges = KeyRanges::new(cuts.iter().map(Key::encode).collect(), owners);
        ((*name).to_owned(), ranges.expect("cuts in their order"))
    };
    schema.families.iter().map(of).collect()
}

impl Engine {
    /// On simulated workers; with an odd seed, partitions are split, merged and moved all the time.
    pub(crate) fn simulated(schema: Schema, workers: usize, seed: u64) -> Engine {
        let shuffle = (seed % 2 == 1).then(|| Shuffle::new(seed));
        Engine::Simulated(Box::new(simulate(schema, workers, seed)), shuffle)
    }

    /// On simulated workers that keep their partitions.
    pub(crate) fn simulated_at_rest(schema: Schema, workers: usize, seed: u64) -> Engine {
        Engine::Simulated(Box::new(simulate(schema, workers, seed)), None)
    }

    /// On simulated workers of several instances, some of which have more than one. With an odd seed, the ranges of keys of the
    /// instances are chosen at random, and inside of each partitions are split, merged and moved all the time.
    pub(crate) fn deployed(schema: fn() -> Schema, workers: usize, seed: u64) -> Engine {
        let (mut random, mut left, mut instances) = (Random::new(seed), workers, Vec::new());
        while left > 0 {
            let own = (1 + random.below(2) as usize).min(left);
            instances.push(own);
            left -= own;
        }
        let mut division = Division::by_workers(InstanceId(0), instances);
        let shuffle = (seed % 2 == 1).then(|| Shuffle::new(seed));
        if shuffle.is_some() {
            let catalog = Catalog::new(schema()).expect("the schema is fine");
            division.ranges = random_ranges(&catalog, &mut random, division.workers.len() as u64);
        }
        let deployment = Deployment::divided(schema(), &division, seed).expect("the schema is fine");
        Engine::Deployed(Box::new(deployment), shuffle)
    }

    pub(crate) fn threads(schema: Schema, workers: usize) -> Engine {
        Engine::Threads(open(schema, workers), None)
    }

    /// On threads, while partitions are split, merged and moved all the time: by the test alone, since its changes are of the scheme that
    /// it has seen.
    pub(crate) fn shuffled_threads(schema: Schema, workers: usize, seed: u64) -> Engine {
        let db = builder(schema, workers).fixed_scheme().in_memory().expect("the schema is fine");
        Engine::Threads(db, Some(Shuffle::new(seed)))
    }

    pub(crate) fn table<T: Table>(&self) -> TableRef<T> {
        match self {
            Engine::Simulated(simulation, _) => simulation.table(),
            Engine::Threads(db, _) => db.table(),
            Engine::Deployed(deployment, _) => deployment.table(),
        }
        .expect("the table is in the schema")
    }

    pub(crate) fn index<I: Index>(&self) -> IndexRef<I> {
        match self {
            Engine::Simulated(simulation, _) => simulation.index(),
            Engine::Threads(db, _) => db.index(),
            Engine::Deployed(deployment, _) => deployment.index(),
        }
        .expect("the index is in the schema")
    }

    pub(crate) fn statistics(&self) -> Statistics {
        match self {
            Engine::Simulated(simulation, _) => simulation.statistics(),
            Engine::Threads(db, _) => db.statistics(),
            Engine::Deployed(deployment, _) => deployment.statistics(),
        }
    }

    /// Runs one transaction and returns its outcome.
    pub(crate) fn run<R: Send + 'static>(
        &mut self,
        route: Route,
        procedure: impl AsyncFn(&mut Tx<'_>) -> Result<R, Abort> + Send + 'static,
    ) -> Result<R, Abort> {
        match self {
            Engine::Simulated(simulation, _) => {
                let outcome = simulation.submit(&route, procedure);
                assert!(simulation.run(STEPS_MAX), "a single transaction does not come to rest");
                outcome.take().expect("a simulation at rest has no transaction under way")
            }
            Engine::Threads(db, _) => db.run(route, procedure),
            Engine::Deployed(deployment, _) => {
                let outcome = deployment.submit(&route, procedure);
                assert!(deployment.run(STEPS_MAX), "a single transaction does not come to rest");
                outcome.take().expect("a deployment at rest has no transaction under way")
            }
        }
    }

    /// Runs `count` sessions at once, session `i` on worker `i` modulo the number of workers, and returns their results.
    ///
    /// # Errors
    /// When they do not come to an end (which only a simulation can tell).
    pub(crate) fn sessions<R: Send + 'static>(
        &mut self,
        count: usize,
        workers: usize,
        body: impl AsyncFn(&Session, usize) -> R + Clone + Send + 'static,
    ) -> Result<Vec<R>, String> {
        let on = |at: usize| WorkerId(u16::try_from(at % workers).expect("few workers"));
        match self {
            Engine::Simulated(simulation, shuffle) => {
                let started: Vec<_> = (0..count)
                    .map(|at| {
                        let body = body.clone();
                        simulation.spawn_session(on(at), async move |session| body(&session, at).await)
                    })
                    .collect();
                if let Some(shuffle) = shuffle {
                    shuffle_simulated(simulation, shuffle, workers as u64)?;
                }
                let at_rest = simulation.run(STEPS_MAX);
                let ended: Vec<_> = started.into_iter().filter_map(|session| session.take()).collect();
                if !at_rest || ended.len() < count {
                    let (held, waiting) = simulation.locks();
                    let mut why = format!("only {} of {count} sessions came to an end; ", ended.len());
                    let _ = write!(why, "{held} locks are held and {waiting} requests wait");
                    return Err(why);
                }
                if simulation.locks() != (0, 0) {
                    return Err(format!("locks are left behind: {:?}", simulation.locks()));
                }
                Ok(ended)
            }
            Engine::Deployed(deployment, shuffle) => {
                deployed_sessions(deployment, shuffle.as_mut(), count, workers, &body)
            }
            Engine::Threads(db, shuffle) => {
                let started: Vec<_> = (0..count)
                    .map(|at| {
                        let body = body.clone();
                        db.spawn_session(on(at), async move |session| body(&session, at).await)
                            .expect("the database is open")
                    })
                    .collect();
                let running = AtomicBool::new(true);
                let ended = std::thread::scope(|scope| {
                    if let Some(shuffle) = shuffle {
                        let (db, running) = (&*db, &running);
                        scope.spawn(move || {
                            while running.load(Ordering::Relaxed) {
                                let changes = shuffle.changes(&db.scheme(), workers as u64);
                                db.repartition(changes).expect("the changes make sense");
                            }
                        });
                    }
                    let ended = started.into_iter().map(atrapos::SessionHandle::join);
                    let ended: Result<Vec<_>, _> =
                        ended.map(|end| end.map_err(|abort| abort.to_string())).collect();
                    running.store(false, Ordering::Relaxed);
                    ended
                });
                let ended = ended?;
                db.verify().map_err(|error| error.to_string())?;
                Ok(ended)
            }
        }
    }
}

/// Runs sessions on the workers of all instances of a deployment, like [`Engine::sessions`].
fn deployed_sessions<R: Send + 'static>(
    deployment: &mut Deployment,
    shuffle: Option<&mut Shuffle>,
    count: usize,
    workers: usize,
    body: &(impl AsyncFn(&Session, usize) -> R + Clone + Send + 'static),
) -> Result<Vec<R>, String> {
    let start = |at: usize| {
        let body = body.clone();
        deployment.spawn_session(at % workers, async move |session| body(&session, at).await)
    };
    let started: Vec<_> = (0..count).map(start).collect();
    if let Some(shuffle) = shuffle {
        shuffle_deployed(deployment, shuffle)?;
    }
    let at_rest = deployment.run(STEPS_MAX);
    let ended: Vec<_> = started.into_iter().filter_map(|session| session.take()).collect();
    let locks = deployment.locks();
    if !at_rest || ended.len() < count || locks != (0, 0) {
        return Err(format!(
            "{} of {count} sessions came to an end, with {locks:?} locks held and requested; {} tasks are left",
            ended.len(),
            deployment.tasks(),
        ));
    }
    deployment.check_trees()?;
    Ok(ended)
}

/// Lets a simulation run while its scheme is changed, and tables become shared and not shared, until its sessions have ended.
fn shuffle_simulated(simulation: &mut Simulation, shuffle: &mut Shuffle, workers: u64) -> Result<(), String> {
    // A run that takes longer is left to run without: then it comes to rest or never does.
    for _ in 0..SHUFFLES_MAX {
        let changes = shuffle.changes(&simulation.scheme(), workers);
        let changed = simulation.repartition(changes);
        let outcome = loop {
            simulation.run_for(1 + shuffle.0.below(40));
            if let Some(outcome) = changed.take() {
                break outcome;
            }
        };
        outcome.map_err(|abort| abort.to_string())?;
        let tables = simulation.scheme().families().flat_map(|(_, tables)| tables).count() as u64;
        let table = TableId(shuffle.0.below(tables) as u16);
        simulation.share(table, shuffle.0.chance(60));
        simulation.run_for(shuffle.0.below(60));
        if simulation.tasks() == 0 {
            break;
        }
    }
    Ok(())
}

/// Lets a deployment run while the schemes of its instances are changed, each inside its instance, until the sessions have ended.
fn shuffle_deployed(deployment: &mut Deployment, shuffle: &mut Shuffle) -> Result<(), String> {
    for _ in 0..SHUFFLES_MAX {
        let any = InstanceId(shuffle.0.below(deployment.instances() as u64) as u16);
        let instance = deployment.instance(any);
        let (scheme, workers) = (instance.scheme(), instance.workers() as u64);
        let mut changes = shuffle.changes(&scheme, workers);
        changes.retain(|change| is_inside(&scheme, change));
        let changed = instance.repartition(changes);
        let outcome = loop {
            deployment.run_for(1 + shuffle.0.below(40));
            if let Some(outcome) = changed.take() {
                break outcome;
            }
        };
        outcome.map_err(|abort| abort.to_string())?;
        deployment.run_for(shuffle.0.below(60));
        if deployment.tasks() == 0 {
            break;
        }
    }
    Ok(())
}

/// Returns true if a change concerns partitions of the own instance alone.
fn is_inside(scheme: &Scheme, change: &SchemeChange) -> bool {
    let (SchemeChange::Split { table, at }
    | SchemeChange::Merge { table, at }
    | SchemeChange::Move { table, at, .. }) = change;
    let family = scheme.family(*table);
    let index = family.partition_of(at);
    let is_own = |index: usize| InstanceId::of_owner(family.owner(index)).is_none();
    let to_own = !matches!(change, SchemeChange::Move { to, .. } if InstanceId::of_owner(*to).is_some());
    let before = !matches!(change, SchemeChange::Merge { .. }) || index == 0 || is_own(index - 1);
    is_own(index) && to_own && before
}

/// Changes of the scheme during one run of sessions, at most.
const SHUFFLES_MAX: u64 = 3_000;

/// Runs a transaction again until it commits or ends for a reason that trying again does not cure.
pub(crate) async fn until_done<R: Send + 'static>(
    session: &Session,
    route: &Route,
    procedure: impl AsyncFn(&mut Tx<'_>) -> Result<R, Abort> + Clone + Send + 'static,
) -> Result<R, Abort> {
    loop {
        match session.run(route, procedure.clone()).await {
            Err(abort) if abort.reason().advice() == Advice::Retry => session.yield_now().await,
            outcome => return outcome,
        }
    }
}

/// Asserts that the database still works, and that nothing is left of what failed.
pub(crate) fn is_well(db: &Database) {
    let items = db.table::<Items>().unwrap();
    for key in [1, 98] {
        db.run(items.at(&key), async move |tx| {
            let before = tx.update(items, key, |row| std::mem::replace(&mut row.value, 7)).await?;
            assert_eq!(before, Some(1));
            tx.update(items, key, |row| row.value = 1).await.map(drop)
        })
        .unwrap();
    }
    db.verify().unwrap();
}

/// Polls a future once and drops it.
pub(crate) async fn poll_once<R>(future: impl Future<Output = R>) -> Option<R> {
    let mut future = pin!(future);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Waits until something holds that other threads bring about.
pub(crate) fn wait_until(holds: impl Fn() -> bool) {
    while !holds() {
        std::thread::yield_now();
    }
}

/// A door that a transaction waits at, and that somebody else opens.
#[derive(Default)]
pub(crate) struct Door {
    is_open: AtomicBool,
    waiting: Mutex<Option<Waker>>,
}

impl Door {
    /// Waits until it is open.
    pub(crate) async fn pass(&self) {
        poll_fn(|context| {
            *self.waiting.lock().unwrap() = Some(context.waker().clone());
            if self.is_open.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Opens it for whoever waits.
    pub(crate) fn open(&self) {
        self.is_open.store(true, Ordering::SeqCst);
        if let Some(waiting) = self.waiting.lock().unwrap().take() {
            waiting.wake();
        }
    }
}
