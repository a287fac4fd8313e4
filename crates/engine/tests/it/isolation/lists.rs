//! Random transactions over lists, checked for serializability: reads, appends, scans in both directions and phases, on home
//! and other workers, with aborts; every transaction says what it saw.

use std::collections::BTreeMap;
use std::sync::Arc;

use atrapos::{
    Abort, AbortReason, Advice, KeyRange, Route, Schema, Table, TableRef, Transaction, Upcoming, row,
};
use serde::{Deserialize, Serialize};

use super::history::{Committed, Event, History, List};
use super::{simulated, threaded};
use crate::support::{Engine, Random, for_seeds, until_done};

row! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct Numbers {
        pub(crate) bytes: Vec<u8>,
    }
}

impl Numbers {
    fn of(number: u32) -> Numbers {
        Numbers { bytes: number.to_be_bytes().to_vec() }
    }

    fn push(&mut self, number: u32) {
        self.bytes.extend_from_slice(&number.to_be_bytes());
    }

    fn list(&self) -> List {
        self.bytes
            .chunks(4)
            .map(|chunk| u32::from_be_bytes(chunk.try_into().expect("four bytes each")))
            .collect()
    }
}

pub(crate) struct Lists;

impl Table for Lists {
    type Key = u64;
    type Row = Numbers;
    const NAME: &'static str = "lists";
}

/// Few keys, so that nearly all transactions get into each other's way.
const FEW_KEYS: u64 = 10;
/// Keys enough for threads to do something besides breaking cycles.
const MANY_KEYS: u64 = 80;

pub(crate) fn lists() -> Schema {
    // Large pages: a list grows to many numbers.
    Schema::new().table_with_row_bytes::<Lists>(1000).split_evenly("lists", 0, FEW_KEYS - 1)
}

fn many_lists() -> Schema {
    Schema::new().table_with_row_bytes::<Lists>(1000).split_evenly("lists", 0, MANY_KEYS - 1)
}

/// One step of a transaction, decided before it runs: a transaction that is run again does the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Step {
    Read(u64),
    Append {
        key: u64,
        number: u32,
        insert_first: bool,
    },
    Scan {
        from: u64,
        to: u64,
        backward: bool,
        limit: usize,
    },
    AppendIfThere(u64, u32),
    /// Several at once.
    AppendAll(Vec<(u64, u32)>),
    ReadAll(Vec<u64>),
    ReadAndAppend {
        read: u64,
        key: u64,
        number: u32,
    },
    /// One after the other, in one message where both are on one other worker.
    ReadThenAppend {
        read: u64,
        key: u64,
        number: u32,
    },
}

impl Step {
    fn only_reads(&self) -> bool {
        matches!(self, Step::Read(_) | Step::Scan { .. } | Step::ReadAll(_))
    }
}

fn random_step(random: &mut Random, keys: u64, next_number: &mut u32) -> Step {
    let mut number = || {
        *next_number += 1;
        *next_number
    };
    let mut key = || random.below(keys);
    let (one, other, third) = (key(), key(), key());
    match random.below(10) {
        0 | 1 => Step::Read(one),
        2..=4 => Step::Append { key: one, number: number(), insert_first: random.chance(50) },
        5 | 6 => Step::Scan {
            from: one,
            // Not too wide.
            to: one + 1 + other % FEW_KEYS,
            backward: random.chance(50),
            limit: if random.chance(30) { 1 + random.below(3) as usize } else { usize::MAX },
        },
        7 if random.chance(50) => Step::AppendIfThere(one, number()),
        7 => Step::AppendAll(vec![(one, number()), (other, number()), (third, number())]),
        8 => Step::ReadAll(vec![one, other, third]),
        _ if random.chance(50) => Step::ReadAndAppend { read: one, key: other, number: number() },
        _ => Step::ReadThenAppend { read: one, key: other, number: number() },
    }
}

/// Scans the lists of the keys `from..to`, at most `limit`, and returns what it has seen.
async fn scan(
    tx: &mut impl Transaction,
    lists: TableRef<Lists>,
    (from, to): (u64, u64),
    backward: bool,
    limit: usize,
) -> Result<Vec<Event>, Abort> {
    let range = KeyRange::between(&from, &to);
    let rows = match backward {
        false => tx.scan(lists, range, limit).await?,
        true => tx.scan_backward(lists, range, limit).await?,
    };
    // What the scan has covered: all of the range, or as far as it went.
    let covered = match (rows.last(), rows.len() == limit) {
        (Some((last, _)), true) if backward => *last..to,
        (Some((last, _)), true) => from..last + 1,
        _ => from..to,
    };
    let mut found: BTreeMap<u64, Numbers> = rows.into_iter().collect();
    let read = |key| Event::Read(key, found.remove(&key).map_or_else(List::new, |row| row.list()));
    let seen = covered.map(read).collect();
    assert!(found.is_empty(), "a scan returned rows outside its range: {found:?}");
    Ok(seen)
}

async fn make(
    tx: &mut impl Transaction,
    lists: TableRef<Lists>,
    step: &Step,
    seen: &mut Vec<Event>,
) -> Result<(), Abort> {
    let append = move |key, number| lists.update(key, move |row| row.push(number));
    let list = |row: Option<Numbers>| row.map_or_else(List::new, |row| row.list());
    match step {
        Step::Read(key) => {
            let row = tx.get(lists, *key).await?;
            seen.push(Event::Read(*key, list(row)));
        }
        Step::Append { key, number, insert_first: true } => {
            if !tx.run(lists.insert_if_absent(*key, Numbers::of(*number))).await? {
                tx.run(append(*key, *number)).await?;
            }
            seen.push(Event::Append(*key, *number));
        }
        Step::Append { key, number, insert_first: false } => {
            if tx.run(append(*key, *number)).await?.is_none() {
                // Nobody else can have put one there meanwhile.
                tx.insert(lists, *key, Numbers::of(*number)).await?;
            }
            seen.push(Event::Append(*key, *number));
        }
        Step::Scan { from, to, backward, limit } => {
            seen.extend(scan(tx, lists, (*from, *to), *backward, *limit).await?);
        }
        Step::AppendIfThere(key, number) => {
            let there = tx.run(append(*key, *number)).await?;
            seen.push(match there {
                Some(()) => Event::Append(*key, *number),
                None => Event::Read(*key, List::new()),
            });
        }
        Step::AppendAll(appends) => {
            let there = tx.join_all(appends.iter().map(|(key, number)| append(*key, *number))).await?;
            for ((key, number), there) in appends.iter().zip(there) {
                let (key, number) = (*key, *number);
                if there.is_none() && !tx.run(lists.insert_if_absent(key, Numbers::of(number))).await? {
                    // The phase has the same absent key twice.
                    tx.run(append(key, number)).await?;
                }
                seen.push(Event::Append(key, number));
            }
        }
        Step::ReadAll(keys) => {
            let rows = tx.join_all(keys.iter().map(|key| lists.get(*key))).await?;
            seen.extend(keys.iter().zip(rows).map(|(key, row)| Event::Read(*key, list(row))));
        }
        Step::ReadAndAppend { read, key, number } => {
            // Of the same key, the read comes first where both are at home or both elsewhere.
            let same = read == key;
            let (row, there) = tx.join((lists.get(*read), append(*key, *number))).await?;
            if !same {
                seen.push(Event::Read(*read, list(row)));
            }
            if there.is_none() {
                tx.insert(lists, *key, Numbers::of(*number)).await?;
            }
            seen.push(Event::Append(*key, *number));
        }
        Step::ReadThenAppend { read, key, number } => {
            let (key, number) = (*key, *number);
            let then = move |_: &mut Option<Numbers>| Some(append(key, number));
            let (row, there) = tx.run_then(lists.get(*read), then).await?;
            seen.push(Event::Read(*read, list(row)));
            if there.flatten().is_none() {
                tx.insert(lists, key, Numbers::of(number)).await?;
            }
            seen.push(Event::Append(key, number));
        }
    }
    Ok(())
}

/// Makes all steps, and takes them back if the transaction `aborts`.
async fn make_all(
    tx: &mut impl Transaction,
    lists: TableRef<Lists>,
    steps: &[Step],
    aborts: bool,
) -> Result<Vec<Event>, Abort> {
    let mut seen = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let is_one_access = matches!(step, Step::Read(_) | Step::ReadAll(_) | Step::AppendIfThere(..));
        if at + 1 == steps.len() && is_one_access {
            tx.declare_last();
        }
        make(tx, lists, step, &mut seen).await?;
    }
    if aborts { Err(Abort::user("as planned")) } else { Ok(seen) }
}

atrapos::stored_procedures! {
    /// Makes steps, as a stored procedure: a direct transaction where it can be one.
    MakeAll("lists.make-all", "make-all") { steps: Vec<Step>, aborts: bool } -> Vec<Event>;
    tables TableRef<Lists>: |db| db.table();
    home: |_own, lists| lists.at(&0);
    run: |own, tx, lists| make_all(tx, *lists, &own.steps, own.aborts);
}

/// Number of sessions, and the work of each.
#[derive(Clone, Copy)]
struct Load {
    sessions: usize,
    transactions: u64,
    keys: u64,
    /// Percentage of transactions that are made to read only.
    reading: u64,
}

/// Runs random transactions and returns their history.
fn history(engine: &mut Engine, workers: usize, seed: u64, load: Load) -> Result<History, String> {
    let lists = engine.table::<Lists>();
    let random = Random::new(seed);
    let committed = engine.sessions(load.sessions, workers, async move |session, at| {
        let mut random = random.part(at);
        let mut next_number = (at as u32) << 20;
        let mut committed = Vec::new();
        for _ in 0..load.transactions {
            let mut steps: Vec<Step> = (0..1 + random.below(5))
                .map(|_| random_step(&mut random, load.keys, &mut next_number))
                .collect();
            if load.reading > 0 && random.chance(load.reading) {
                steps.retain(Step::only_reads);
                steps.push(Step::Read(random.below(load.keys)));
            }
            let aborts = random.chance(15);
            let route = match random.below(3) {
                0 => Route::worker(session.worker()),
                1 => lists.at(&random.below(load.keys)),
                _ => match &steps[0] {
                    Step::Read(key) | Step::Append { key, .. } => lists.at(key),
                    _ => lists.at(&0),
                },
            };
            // Now and then it is said of one that writes.
            let is_said_to_read = steps.iter().all(Step::only_reads) || random.chance(10);
            let route = if is_said_to_read { route.reading() } else { route };
            let ran = if random.chance(50) {
                let procedure = MakeAll { steps, aborts };
                let mut upcoming = Upcoming::new();
                upcoming.push(route);
                if random.chance(50) {
                    // What it finds may have changed or moved when the procedure begins.
                    session.look_up(&upcoming);
                    session.yield_now().await;
                }
                let known = upcoming.take().expect("one was added");
                loop {
                    match session.run_known(known, &lists, &procedure).await {
                        Err(abort) if abort.reason().advice() == Advice::Retry => session.yield_now().await,
                        outcome => break outcome,
                    }
                }
            } else {
                let steps = Arc::new(steps);
                until_done(session, &route, async move |tx| make_all(tx, lists, &steps, aborts).await).await
            };
            match ran {
                Ok(events) => committed.push(Committed { session: at, events }),
                Err(abort) if abort.reason() == AbortReason::User => {}
                Err(abort) => return Err(abort.to_string()),
            }
        }
        Ok(committed)
    })?;
    let committed =
        committed.into_iter().collect::<Result<Vec<_>, String>>()?.into_iter().flatten().collect();
    let left = engine.run(lists.at(&0), async move |tx| tx.scan(lists, KeyRange::all(), usize::MAX).await);
    let left = left.map_err(|abort| abort.to_string())?.into_iter().map(|(key, row)| (key, row.list()));
    Ok(History { committed, lists: left.collect() })
}

const FEW: Load = Load { sessions: 8, transactions: 12, keys: FEW_KEYS, reading: 0 };
const MANY: Load = Load { sessions: 16, transactions: 150, keys: MANY_KEYS, reading: 0 };

pub(crate) fn serializable(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    history(engine, workers, seed, FEW)?.check()
}

/// Like [`serializable`], with many transactions that only read, so that lent partitions are read in place.
pub(crate) fn serializable_reading(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    history(engine, workers, seed, Load { transactions: 30, reading: 80, ..FEW })?.check()
}

fn serializable_many(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    history(engine, workers, seed, MANY)?.check()
}

#[test]
fn histories_are_serializable_simulated() {
    simulated(300, lists, serializable);
}

#[test]
fn histories_are_serializable_on_threads() {
    threaded(2, many_lists, serializable_many);
}

#[test]
fn short_histories_are_serializable_on_threads() {
    threaded(12, lists, serializable);
}

/// The course of a simulation: its trace, the history of what committed, and how often transactions waited and were victims.
fn run_of(seed: u64) -> (u64, History, atrapos::Statistics) {
    let mut engine = Engine::simulated(lists(), 3, seed);
    let history = history(&mut engine, 3, seed, FEW).unwrap();
    let statistics = engine.statistics();
    let Engine::Simulated(simulation, _) = engine else { unreachable!("it is simulated") };
    (simulation.trace_hash(), history, statistics)
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for_seeds(8, |seed| {
        let (once, again, other) = (run_of(seed), run_of(seed), run_of(seed + 1));
        assert_eq!(once.0, again.0, "the traces differ");
        assert_eq!(once, again);
        assert_ne!(once.0, other.0, "another seed gives another run");
        assert!(once.2.lock_waits > 0, "transactions got into each other's way: {:?}", once.2);
    });
}
