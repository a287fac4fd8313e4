//! Histories: random transactions over rows that carry versions and over lists, recorded for
//! [`History`](atrapos_history::History) to judge.
//!
//! Owns: the transactions, the clients that run them and record what they read and wrote, and the changes of the scheme
//! made meanwhile. Never: judges, kills a process, or stores the records; the [`Journal`] does.
//!
//! Recording is done by the clients alone: the engine runs unchanged.
//!
//! Transactions read single rows, ranges in both directions, and groups through an index; they write, delete and append
//! in one or several phases on any worker; some abort on purpose. There are so few rows that nearly all transactions
//! conflict. The tables are declared by the program, or made, changed and dropped by statements that are part of the
//! history (`statements.rs`).

pub mod schema;
mod statements;
mod steps;
mod tables;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use atrapos::{
    Abort, AbortReason, CheckpointFailure, Database, Key, KeyBuf, Route, Scheme, SchemeChange, Session,
    WorkerId,
};
use atrapos_history::{Entry, Outcome};
use atrapos_workloads::Random;

use steps::{Step, read_everything};
use tables::Tables;

pub use schema::schema;
pub use statements::{Definable, Definer, Progress};

/// The log in which a client records each step before it and its outcome after it.
pub trait Journal {
    /// Records one entry. When it returns, the entry must survive every failure that the database is to survive.
    ///
    /// # Errors
    /// Returns a description of the failure if the entry cannot be stored.
    fn write(&mut self, entry: Entry) -> Result<(), String>;
}

/// Keeps all entries in memory.
impl Journal for Vec<Entry> {
    fn write(&mut self, entry: Entry) -> Result<(), String> {
        self.push(entry);
        Ok(())
    }
}

/// Bound on the numbers of clients in each round; the last one reads everything.
const SESSIONS_MAX: u64 = 1 << 10;
/// Bits of the numbers of transactions, and of moments, in one round.
const ROUND_BITS: u32 = 40;
/// One in so many transactions aborts itself at its end.
const ABANDON_EVERY: u32 = 8;
/// Steps of a transaction, at most.
const STEPS_MAX: u64 = 5;

/// State shared by all clients of a round.
#[derive(Debug)]
pub struct Shared {
    seed: u64,
    round: u64,
    /// Number of transactions to be begun.
    transactions: u64,
    begun: AtomicU64,
    moments: AtomicU64,
    stop: AtomicBool,
    tables: WhichTables,
}

/// Tables used by a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WhichTables {
    /// Tables declared by the program.
    Declared,
    /// Tables left by statements of an earlier round.
    Left,
    /// Tables that statements of the round create and change.
    Defined,
}

impl Shared {
    /// Creates the state of a round in which clients begin `transactions` in all. Moments of a later round come after
    /// those of an earlier one; every choice follows from the seed and the round.
    #[must_use]
    pub fn new(seed: u64, round: u64, transactions: u64) -> Arc<Shared> {
        Shared::of_round(seed, round, transactions, WhichTables::Declared)
    }

    /// Creates the state of a round of which statements are part.
    #[must_use]
    pub fn with_statements(seed: u64, round: u64, transactions: u64) -> Arc<Shared> {
        Shared::of_round(seed, round, transactions, WhichTables::Defined)
    }

    /// Creates the state of a round on the tables that an earlier one with statements has left.
    #[must_use]
    pub fn after_statements(seed: u64, round: u64, transactions: u64) -> Arc<Shared> {
        Shared::of_round(seed, round, transactions, WhichTables::Left)
    }

    fn of_round(seed: u64, round: u64, transactions: u64, tables: WhichTables) -> Arc<Shared> {
        let (begun, moments, stop) = Default::default();
        Arc::new(Shared { seed, round, transactions, begun, moments, stop, tables })
    }

    fn are_named(&self) -> bool {
        self.tables != WhichTables::Declared
    }

    /// Returns the number of transactions that were begun.
    #[must_use]
    pub fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed).min(self.transactions)
    }

    /// Makes all clients end after their current transaction.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        // A client that learns of an end before it takes its own moment gets a later one.
        self.round << ROUND_BITS | self.moments.fetch_add(1, Ordering::SeqCst)
    }

    fn session(&self, client: u64) -> u64 {
        self.round * SESSIONS_MAX + client
    }
}

/// Runs transactions of one client until all of the round were begun, or it is stopped. `client` is a number below
/// 1000 that no other client of the round has.
///
/// # Errors
/// Returns a description of the failure if a transaction was aborted for a reason that should not occur, or the journal
/// fails.
pub fn run_client<'a>(
    session: &'a Session,
    shared: &'a Shared,
    client: u64,
    journal: &'a mut dyn Journal,
) -> ClientRun<'a> {
    Box::pin(run_transactions(session, shared, client, journal))
}

/// The run of a client, or of one that reads everything. It is boxed, and knows its journal by its trait alone, so that
/// the transactions are compiled once.
pub type ClientRun<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + 'a>>;

async fn run_transactions(
    session: &Session,
    shared: &Shared,
    client: u64,
    journal: &mut dyn Journal,
) -> Result<(), String> {
    let own = shared.session(client);
    let mut random = Random::of_stream(shared.seed ^ 0x6869_7374, own);
    let mut numbers = 0_u64;
    while !shared.stop.load(Ordering::Relaxed) && !session.is_stopping() {
        let done = shared.begun.fetch_add(1, Ordering::Relaxed);
        if done >= shared.transactions {
            break;
        }
        let mut next_number = || {
            numbers += 1;
            (own + 1) << 24 | numbers
        };
        // The lists of another round are different ones.
        let age = (shared.round << 20) + done;
        let steps: Vec<Step> = (0..1 + random.below(STEPS_MAX))
            .map(|_| Step::draw(&mut random, age, &mut next_number))
            .collect();
        let abandons = random.small(ABANDON_EVERY) == 0;
        let tables = Tables::find(session, shared.are_named()).map_err(|error| error.to_string())?;
        let cell = steps[0].cell().filter(|_| random.below(2) == 0).and_then(|key| tables.at(key));
        let anywhere = || Route::worker(WorkerId(random.below(session.workers() as u64) as u16));
        let route = cell.unwrap_or_else(anywhere);
        journal.write(Entry::Begins {
            session: own,
            at: shared.now(),
            writes: steps
                .iter()
                .flat_map(Step::writes)
                .map(|(key, number)| (tables.key(key), number))
                .collect(),
            appends: steps.iter().filter_map(Step::append).collect(),
        })?;
        let steps = Arc::new(steps);
        let ran = session
            .run_boxed(&route, async move |tx| {
                let mut events = Vec::new();
                for step in steps.iter() {
                    step.make(tx, &tables, &mut events).await?;
                }
                if abandons { Err(Abort::user("it changed its mind")) } else { Ok(events) }
            })
            .await;
        let (outcome, events) = match ran {
            Ok(events) => (Outcome::Committed, events),
            Err(abort) => (outcome_of(&abort, shared.are_named())?, Vec::new()),
        };
        journal.write(Entry::Ends { session: own, at: shared.now(), outcome, events })?;
        if outcome == Outcome::Unknown {
            break;
        }
        session.yield_now().await;
    }
    Ok(())
}

/// Reads all rows in one transaction, as a client of its own, at the beginning and the end of a round. There may be
/// one such client per round and name.
///
/// # Errors
/// Fails like [`run_client`].
pub fn look_at_everything<'a>(
    session: &'a Session,
    shared: &'a Shared,
    journal: &'a mut dyn Journal,
) -> ClientRun<'a> {
    Box::pin(read_once(session, shared, journal))
}

async fn read_once(session: &Session, shared: &Shared, journal: &mut dyn Journal) -> Result<(), String> {
    let tables = Tables::find(session, shared.are_named()).map_err(|error| error.to_string())?;
    let own = shared.session(SESSIONS_MAX - 1);
    journal.write(Entry::Begins { session: own, at: shared.now(), writes: vec![], appends: vec![] })?;
    let route = tables.at(0).unwrap_or_else(|| Route::worker(WorkerId(0)));
    let read = session.run_boxed(&route, async move |tx| read_everything(tx, &tables).await).await;
    let events = read.map_err(|abort| abort.to_string())?;
    journal.write(Entry::Ends { session: own, at: shared.now(), outcome: Outcome::Committed, events })
}

/// Returns the outcome that an abort implies for its transaction.
fn outcome_of(abort: &Abort, has_statements: bool) -> Result<Outcome, String> {
    match abort.reason() {
        AbortReason::TableChanged if has_statements => Ok(Outcome::Aborted),
        AbortReason::User | AbortReason::Deadlock | AbortReason::Overloaded => Ok(Outcome::Aborted),
        // It may have committed before the end came.
        AbortReason::ShuttingDown | AbortReason::NotDurable => Ok(Outcome::Unknown),
        _ => Err(format!("a transaction should not have been aborted: {abort}")),
    }
}

/// Returns some changes of the scheme that are valid one after the other: a split and a move, a merge, or a move.
#[must_use]
pub fn scheme_changes(random: &mut Random, scheme: &Scheme, workers: u64) -> Vec<SchemeChange> {
    let families: Vec<_> = scheme.families().collect();
    let (family, tables) = &families[random.below(families.len() as u64) as usize];
    let table = tables[random.below(tables.len() as u64) as usize];
    let any = random.below(family.partitions() as u64) as usize;
    let key = family.lower(any).map_or_else(KeyBuf::new, KeyBuf::from);
    let to = WorkerId(random.below(workers) as u16);
    match random.below(3) {
        0 if family.partitions() < PARTITIONS_MAX => {
            let at = random.below(schema::CELLS).encode();
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

/// Partitions that a table is cut into, at most.
const PARTITIONS_MAX: usize = 12;
/// The longest pause between two changes of the scheme, and between two checkpoints, in microseconds.
const PAUSE_US: u64 = 3_000;

/// Runs one round on a database: one client per journal, while partitions are split, merged and moved and, if the
/// database is durable, checkpoints are made. It begins and ends with a read of everything and, after all clients have
/// ended, verifies the database. Returns the journals, those of these reads last. If statements are part of the round,
/// the database is new and empty, and the last journal but one is theirs.
///
/// # Errors
/// Returns a description of the failure.
pub fn run<J: Journal + Send + 'static>(
    db: &Database,
    shared: &Arc<Shared>,
    mut journals: Vec<J>,
    is_durable: bool,
) -> Result<Vec<J>, String> {
    let mut journal = || journals.pop().ok_or("a round needs at least one journal, and one for statements");
    let looks = journal()?;
    let statements = if shared.tables == WhichTables::Defined { Some(journal()?) } else { None };
    let definer = statements.map(|journal| Definer::new(db, shared, journal)).transpose()?;
    let looks = look(db, shared, looks)?;
    let running = AtomicBool::new(true);
    let random = Random::of_stream(shared.seed ^ 0x6d6f_7665, shared.round);
    let mut ended = std::thread::scope(|scope| {
        let (running, pauses) = (&running, random.clone());
        let shuffling = scope.spawn(move || shuffle(db, shared, random, running));
        let checkpoints = is_durable.then(|| scope.spawn(move || make_checkpoints(db, pauses, running)));
        let defining = definer.map(|definer| scope.spawn(move || define(db, definer, shared, running)));
        let clients = run_clients(db, shared, journals);
        running.store(false, Ordering::Relaxed);
        for thread in [Some(shuffling), checkpoints].into_iter().flatten() {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        let defined = defining
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .transpose()?;
        clients.map(|mut clients| {
            clients.extend(defined);
            clients
        })
    })?;
    ended.push(look(db, shared, looks)?);
    db.verify().map_err(|error| format!("the database is not whole: {error}"))?;
    Ok(ended)
}

/// Splits, merges and moves partitions until the clients have ended.
fn shuffle(db: &Database, shared: &Shared, mut random: Random, running: &AtomicBool) -> Result<(), String> {
    let workers = db.workers() as u64;
    while running.load(Ordering::Relaxed) {
        let scheme = db.scheme();
        match db.repartition(scheme_changes(&mut random, &scheme, workers)) {
            Ok(_) => {}
            Err(abort) if abort.reason() == AbortReason::ShuttingDown => break,
            // The table was dropped in the meantime.
            Err(_) if shared.are_named() => {}
            // The database has adapted itself in the meantime, so that they are changes of a scheme of before.
            Err(abort) if abort.reason() == AbortReason::Misuse && db.scheme() != scheme => {}
            Err(abort) => return Err(format!("partitions could not be changed: {abort}")),
        }
        std::thread::sleep(Duration::from_micros(random.below(PAUSE_US)));
    }
    Ok(())
}

fn make_checkpoints(db: &Database, mut pauses: Random, running: &AtomicBool) -> Result<(), String> {
    while running.load(Ordering::Relaxed) {
        match db.checkpoint() {
            Ok(_) | Err(CheckpointFailure::Refused(_)) => {}
            Err(failure) => return Err(failure.to_string()),
        }
        std::thread::sleep(Duration::from_micros(10 * pauses.below(PAUSE_US)));
    }
    Ok(())
}

/// Makes statements until the clients have ended.
fn define<J: Journal>(
    db: &Database,
    mut definer: Definer<J>,
    shared: &Shared,
    running: &AtomicBool,
) -> Result<J, String> {
    let mut pauses = Random::of_stream(shared.seed ^ 0x7061_7573, shared.round);
    let mut goes_on = true;
    while goes_on {
        goes_on = running.load(Ordering::Relaxed);
        match definer.step(db, !goes_on) {
            Ok(Progress::Made) => {}
            Ok(Progress::Ended) => break,
            Err(wrong) => {
                shared.stop();
                return Err(wrong);
            }
        }
        std::thread::sleep(Duration::from_micros(4 * pauses.below(PAUSE_US)));
    }
    Ok(definer.into_journal())
}

fn run_clients<J: Journal + Send + 'static>(
    db: &Database,
    shared: &Arc<Shared>,
    journals: Vec<J>,
) -> Result<Vec<J>, String> {
    let mut started = Vec::new();
    for (client, mut journal) in journals.into_iter().enumerate() {
        let shared = Arc::clone(shared);
        let worker = WorkerId((client % db.workers()) as u16);
        let body = async move |session: Session| {
            let ended = run_client(&session, &shared, client as u64, &mut journal).await;
            if ended.is_err() {
                shared.stop();
            }
            ended.map(|()| journal)
        };
        started.push(db.spawn_session(worker, body).map_err(|abort| abort.to_string())?);
    }
    let ended: Vec<Result<J, String>> = started
        .into_iter()
        .map(|session| session.join().map_err(|abort| abort.to_string()).flatten())
        .collect();
    ended.into_iter().collect()
}

fn look<J: Journal + Send + 'static>(
    db: &Database,
    shared: &Arc<Shared>,
    mut journal: J,
) -> Result<J, String> {
    let shared = Arc::clone(shared);
    let body = async move |session: Session| {
        look_at_everything(&session, &shared, &mut journal).await.map(|()| journal)
    };
    let session = db.spawn_session(WorkerId(0), body).map_err(|abort| abort.to_string())?;
    session.join().map_err(|abort| abort.to_string())?
}
