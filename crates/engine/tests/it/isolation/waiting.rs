//! Nothing waits for ever: cycles of waiting transactions are broken and all of them commit in the end; a writer gets
//! through a stream of readers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use atrapos::{Abort, AbortReason, Route, Schema, WorkerId};

use super::{THREADS, simulated, threaded};
use crate::support::{Door, Engine, Items, Random, for_seeds, item, until_done, wait_until};

pub(crate) fn items() -> Schema {
    Schema::new().table::<Items>().split_evenly("items", 0, 99)
}

/// One key on each of the first `count` workers.
fn a_key_on_each(workers: usize, count: usize) -> Vec<u64> {
    (0..count).map(|at| (at * 100 / workers) as u64 + 1).collect()
}

fn insert(engine: &mut Engine, keys: Vec<u64>) -> Result<(), String> {
    let items = engine.table::<Items>();
    let inserted = engine.run(items.at(&0), async move |tx| {
        tx.join_all(keys.iter().map(|key| items.insert(*key, item(0)))).await.map(drop)
    });
    inserted.map_err(|abort| abort.to_string())
}

fn sum(engine: &mut Engine, keys: Vec<u64>) -> Result<i64, String> {
    let items = engine.table::<Items>();
    let read =
        engine.run(items.at(&0), async move |tx| tx.join_all(keys.iter().map(|key| items.get(*key))).await);
    Ok(read.map_err(|abort| abort.to_string())?.into_iter().flatten().map(|row| row.value).sum())
}

/// Ways in which the transactions of a ring hinder each other.
#[derive(Clone, Copy, Debug)]
enum Ring {
    /// One after the other, each beginning with another key.
    OneByOne,
    /// Both keys in one phase.
    AtOnce,
    /// Both read all keys, then write them.
    Upgrade,
}

/// `length` transactions that change the keys of as many workers in a ring: each waits for the next.
fn ring(engine: &mut Engine, workers: usize, seed: u64, length: usize, kind: Ring) -> Result<(), String> {
    const ROUNDS: usize = 5;
    let keys = a_key_on_each(workers, length);
    insert(engine, keys.clone())?;
    let items = engine.table::<Items>();
    let (random, in_session) = (Random::new(seed), keys.clone());
    let sessions = 2 * length;
    let ended = engine.sessions(sessions, workers, async move |session, at| {
        let mut random = random.part(at);
        for _ in 0..ROUNDS {
            let (first, second) = (in_session[at % length], in_session[(at + 1) % length]);
            let home = if random.chance(50) { items.at(&first) } else { Route::worker(session.worker()) };
            until_done(session, &home, async move |tx| {
                match kind {
                    Ring::OneByOne => {}
                    Ring::AtOnce => {
                        let add = |key| items.update(key, |row| row.value += 1);
                        return tx.join((add(first), add(second))).await.map(drop);
                    }
                    Ring::Upgrade => {
                        tx.get(items, first).await?;
                        tx.get(items, second).await?;
                    }
                }
                tx.update(items, first, |row| row.value += 1).await?;
                tx.update(items, second, |row| row.value += 1).await.map(drop)
            })
            .await?;
        }
        Ok::<(), Abort>(())
    })?;
    ended.into_iter().collect::<Result<Vec<()>, _>>().map_err(|abort| abort.to_string())?;
    let (counted, expected) = (sum(engine, keys)?, (2 * sessions * ROUNDS) as i64);
    if counted == expected {
        Ok(())
    } else {
        Err(format!("{counted} changes were made instead of {expected}"))
    }
}

pub(crate) fn two_one_by_one(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    ring(engine, workers, seed, 2, Ring::OneByOne)
}

fn two_at_once(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    ring(engine, workers, seed, 2, Ring::AtOnce)
}

fn two_upgrade(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    ring(engine, workers, seed, 2, Ring::Upgrade)
}

fn longer_one_by_one(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    ring(engine, workers, seed, workers.min(4), Ring::OneByOne)
}

fn longer_at_once(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    ring(engine, workers, seed, workers.min(4), Ring::AtOnce)
}

fn longer_upgrade(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    ring(engine, workers, seed, workers.min(4), Ring::Upgrade)
}

/// Everybody wants the same key, having read it.
fn upgrade_of_one(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    ring(engine, workers, seed, 1, Ring::Upgrade)
}

/// Runs a ring with many seeds and shows that transactions did wait for each other in cycles.
fn cycles(count: u64, scenario: fn(&mut Engine, usize, u64) -> Result<(), String>) {
    let (mut deadlocks, mut waits, mut runs) = deadlocks_and_waits(count, scenario);
    // Whether they do depends on the seeds; two of three sets of the long ring show nothing.
    for _ in 0..40 {
        if (deadlocks > 0 && waits > 0) || runs < 20 {
            break;
        }
        let more = deadlocks_and_waits(count, scenario);
        (deadlocks, waits, runs) = (deadlocks + more.0, waits + more.1, runs + more.2);
    }
    // With a single seed there may be none.
    assert!(
        (deadlocks > 0 && waits > 0) || runs < 20,
        "no transaction was a victim: the scenario shows nothing"
    );
}

/// Runs a ring of single phases with many seeds: transactions wait for each other, but never in a cycle.
fn no_cycles(count: u64, scenario: fn(&mut Engine, usize, u64) -> Result<(), String>) {
    let (mut deadlocks, mut waits, mut runs) = deadlocks_and_waits(count, scenario);
    // Whether they do depends on the seeds; some sets of them show nothing.
    for _ in 0..10 {
        if (deadlocks > 0 && waits > 0) || runs < 20 {
            break;
        }
        let more = deadlocks_and_waits(count, scenario);
        (deadlocks, waits, runs) = (deadlocks + more.0, waits + more.1, runs + more.2);
    }
    assert_eq!(deadlocks, 0, "the actions of a phase run in one order");
    assert!(waits > 0 || runs < 20, "no transaction had to wait: the scenario shows nothing");
}

/// Counts how often transactions were victims, and waited, over so many runs.
fn deadlocks_and_waits(
    count: u64,
    scenario: fn(&mut Engine, usize, u64) -> Result<(), String>,
) -> (u64, u64, u64) {
    let (mut deadlocks, mut waits, mut runs) = (0, 0, 0);
    for_seeds(count, |seed| {
        let workers = 2 + (seed % 3) as usize;
        let mut engine = Engine::simulated_at_rest(items(), workers, seed);
        if let Err(wrong) = scenario(&mut engine, workers, seed) {
            panic!("with seed {seed}: {wrong}");
        }
        let statistics = engine.statistics();
        assert_eq!(statistics.aborted_total(), statistics.aborted_for(AbortReason::Deadlock));
        deadlocks += statistics.aborted_for(AbortReason::Deadlock);
        waits += statistics.lock_waits;
        runs += 1;
    });
    (deadlocks, waits, runs)
}

#[test]
fn opposite_orders_on_two_workers_resolve_simulated() {
    cycles(60, two_one_by_one);
}

#[test]
fn rings_over_several_workers_resolve_simulated() {
    cycles(60, longer_one_by_one);
}

#[test]
fn single_phases_never_wait_in_cycles() {
    no_cycles(60, two_at_once);
    no_cycles(60, longer_at_once);
}

#[test]
fn upgrades_of_shared_locks_resolve_simulated() {
    cycles(40, upgrade_of_one);
    cycles(40, two_upgrade);
    cycles(40, longer_upgrade);
}

#[test]
fn rings_resolve_on_threads() {
    for scenario in
        [two_one_by_one, two_at_once, two_upgrade, longer_one_by_one, longer_at_once, longer_upgrade]
    {
        threaded(4, items, scenario);
    }
    threaded(4, items, upgrade_of_one);
}

/// One key is read all the time by transactions that hold on to it until they have read another one elsewhere. Writers get
/// through before the readers have read `reads_max` times each.
fn a_writer_among_readers(
    engine: &mut Engine,
    workers: usize,
    seed: u64,
    reads_max: u64,
) -> Result<(), String> {
    const WRITES: i64 = 4;
    let keys = a_key_on_each(workers, workers);
    insert(engine, keys.clone())?;
    let items = engine.table::<Items>();
    let (written, random) = (Arc::new(AtomicBool::new(false)), Random::new(seed));
    let hot = keys[0];
    let in_session = keys.clone();
    let ended = engine.sessions(4 * workers, workers, async move |session, at| {
        let mut random = random.part(at);
        if at == 1 {
            for _ in 0..WRITES {
                until_done(session, &Route::worker(session.worker()), async move |tx| {
                    tx.update(items, hot, |row| row.value += 1).await.map(drop)
                })
                .await?;
            }
            written.store(true, Ordering::Relaxed);
            return Ok(0);
        }
        let mut reads = 0;
        while !written.load(Ordering::Relaxed) && reads < reads_max {
            let elsewhere = in_session[1 + random.below(in_session.len() as u64 - 1) as usize];
            until_done(session, &Route::worker(session.worker()), async move |tx| {
                tx.get(items, hot).await?;
                tx.get(items, elsewhere).await?;
                tx.get(items, elsewhere + 1).await.map(drop)
            })
            .await?;
            reads += 1;
            // Others of the same worker have their turn, whatever was local.
            session.yield_now().await;
        }
        Ok::<u64, Abort>(reads)
    })?;
    let reads: Vec<u64> = ended.into_iter().collect::<Result<_, _>>().map_err(|abort| abort.to_string())?;
    if sum(engine, vec![hot])? != WRITES {
        return Err("a write is lost".to_owned());
    }
    if reads.contains(&reads_max) {
        return Err(format!("the writer did not get through while readers read {reads:?} times"));
    }
    Ok(())
}

pub(crate) fn fairness(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    a_writer_among_readers(engine, workers, seed, 400)
}

fn fairness_on_threads(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    // Far beyond what readers can do while the writer's thread waits for a core.
    a_writer_among_readers(engine, workers, seed, 1_000_000)
}

#[test]
fn a_writer_gets_through_a_stream_of_readers_simulated() {
    simulated(60, items, fairness);
}

#[test]
fn a_writer_gets_through_a_stream_of_readers_on_threads() {
    threaded(3, items, fairness_on_threads);
}

#[test]
fn more_workers_than_cores_take_turns() {
    // Every worker waits for every other one, all at once.
    let mut engine = Engine::threads(items(), THREADS);
    let keys = a_key_on_each(THREADS, THREADS);
    insert(&mut engine, keys.clone()).unwrap();
    let items = engine.table::<Items>();
    let in_session = keys.clone();
    let ended = engine.sessions(4 * THREADS, THREADS, async move |session, at| {
        for round in 0..50 {
            let keys: Vec<u64> = (0..THREADS).map(|i| in_session[(i + at + round) % THREADS]).collect();
            until_done(session, &Route::worker(WorkerId((round % THREADS) as u16)), async move |tx| {
                tx.join_all(keys.iter().map(|key| items.update(*key, |row| row.value += 1))).await.map(drop)
            })
            .await?;
        }
        Ok::<(), Abort>(())
    });
    ended.unwrap().into_iter().collect::<Result<Vec<()>, _>>().unwrap();
    assert_eq!(sum(&mut engine, keys), Ok((4 * THREADS * 50 * THREADS) as i64));
}

/// A ring of as many transactions as there are keys: each holds one and wants the next. The cycle is long, and it is found.
fn a_long_ring(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    const LENGTH: usize = 60;
    let keys: Vec<u64> = (0..LENGTH as u64).collect();
    insert(engine, keys.clone())?;
    let items = engine.table::<Items>();
    let random = Random::new(seed);
    let ended = engine.sessions(LENGTH, workers, async move |session, at| {
        let mut random = random.part(at);
        let (first, second) = (at as u64, (at as u64 + 1) % LENGTH as u64);
        // Mostly elsewhere, so that there is time for everybody to take the first.
        let home = Route::worker(WorkerId(random.below(session.workers() as u64) as u16));
        until_done(session, &home, async move |tx| {
            tx.update(items, first, |row| row.value += 1).await?;
            tx.get(items, 99 - first % 10).await?;
            tx.update(items, second, |row| row.value += 1).await.map(drop)
        })
        .await
    })?;
    ended.into_iter().collect::<Result<Vec<()>, _>>().map_err(|abort| abort.to_string())?;
    let counted = sum(engine, keys)?;
    if counted == 2 * LENGTH as i64 { Ok(()) } else { Err(format!("{counted} changes were made")) }
}

#[test]
fn a_long_ring_resolves_simulated() {
    cycles(30, a_long_ring);
}

#[test]
fn a_long_ring_resolves_on_threads() {
    threaded(5, items, a_long_ring);
}

#[test]
fn hundreds_of_transactions_that_want_the_same_rows_all_commit() {
    for workers in [1, 2, THREADS] {
        let mut engine = Engine::threads(items(), workers);
        insert(&mut engine, (0..100).collect()).unwrap();
        let items = engine.table::<Items>();
        let Engine::Threads(db, _) = engine else { unreachable!("it runs on threads") };
        let submitted: Vec<_> = (0..500_u64)
            .map(|at| {
                let (first, second) = (at * 7 % 100, (at * 13 + 1) % 100);
                let two_steps = async move |tx: &mut atrapos::Tx<'_>| {
                    tx.update(items, first, |row| row.value += 1).await?;
                    tx.update(items, second, |row| row.value += 1).await.map(drop)
                };
                db.submit(items.at(&first), two_steps).unwrap()
            })
            .collect();
        let outcomes: Vec<Result<(), Abort>> = submitted.into_iter().map(atrapos::Submitted::wait).collect();
        let committed = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        // Who was the victim again and again is told to try again; with fair ages nobody is.
        assert_eq!(committed, 500, "{:?}", outcomes.iter().find(|outcome| outcome.is_err()));
        db.verify().unwrap();
    }
}

/// Submits transactions that change two of the keys in either order, and `last` in the end.
fn jam(
    db: &atrapos::Database,
    items: atrapos::TableRef<Items>,
    keys: &[u64],
    last: Option<u64>,
) -> Vec<atrapos::Submitted<()>> {
    let key = |at: usize| keys[at % keys.len()];
    let submit = |at: usize| {
        let (first, second) = (key(at * 7), key(at * 13 + 1));
        let steps = async move |tx: &mut atrapos::Tx<'_>| {
            for key in [first, second].into_iter().chain(last) {
                tx.update(items, key, |row| row.value += 1).await?;
            }
            Ok(())
        };
        db.submit(items.at(&first), steps).unwrap()
    };
    (0..500).map(submit).collect()
}

/// Submits a transaction that changes a key, and ends once the door is open.
fn hold(
    db: &atrapos::Database,
    items: atrapos::TableRef<Items>,
    key: u64,
    door: &Arc<Door>,
) -> atrapos::Submitted<()> {
    let door = Arc::clone(door);
    let holding = async move |tx: &mut atrapos::Tx<'_>| {
        tx.update(items, key, |row| row.value += 1).await?;
        tx.wait_for(door.pass()).await;
        Ok(())
    };
    db.submit(items.at(&key), holding).unwrap()
}

#[test]
fn transactions_are_held_back_where_deadlocks_are_frequent_and_all_commit() {
    let mut engine = Engine::threads(items(), 2);
    insert(&mut engine, (0..100).collect()).unwrap();
    let items = engine.table::<Items>();
    let Engine::Threads(db, _) = engine else { unreachable!("it runs on threads") };
    let keys: Vec<u64> = (0..100).collect();
    for _ in 0..1_000 {
        for outcome in jam(&db, items, &keys, None).into_iter().map(atrapos::Submitted::wait) {
            outcome.unwrap();
        }
        if db.statistics().held_back > 0 {
            return;
        }
    }
    panic!("nobody was held back, with {} deadlocks", db.statistics().retried);
}

#[test]
fn a_transaction_that_is_held_back_runs_though_those_under_way_wait_for_it() {
    let mut engine = Engine::threads(items(), 2);
    insert(&mut engine, (0..100).collect()).unwrap();
    let items = engine.table::<Items>();
    let Engine::Threads(db, _) = engine else { unreachable!("it runs on threads") };
    let door = Arc::new(Door::default());
    let holder = hold(&db, items, 90, &door);
    // All of them wait for the holder in the end, on either worker.
    let waiting = jam(&db, items, &(0..40).chain(50..80).collect::<Vec<u64>>(), Some(90));
    for (home, elsewhere) in [(45_u64, 95_u64), (95, 45)] {
        let both = async move |tx: &mut atrapos::Tx<'_>| {
            tx.get(items, elsewhere).await?;
            tx.update(items, 99, |row| row.value += 1).await.map(drop)
        };
        db.run(items.at(&home), both).unwrap();
    }
    door.open();
    for outcome in std::iter::once(holder).chain(waiting).map(atrapos::Submitted::wait) {
        outcome.unwrap();
    }
}

#[test]
fn who_would_join_a_crowd_that_waits_for_locks_is_held_back_before_any_deadlock() {
    let mut engine = Engine::threads(items(), 2);
    insert(&mut engine, (0..100).collect()).unwrap();
    let items = engine.table::<Items>();
    let Engine::Threads(db, _) = engine else { unreachable!("it runs on threads") };
    let door = Arc::new(Door::default());
    let submit_all = |count: usize| {
        let one =
            async move |tx: &mut atrapos::Tx<'_>| tx.update(items, 1, |row| row.value += 1).await.map(drop);
        (0..count).map(|_| db.submit(items.at(&1), one).unwrap()).collect::<Vec<_>>()
    };
    let holder = hold(&db, items, 1, &door);
    let few = submit_all(100);
    wait_until(|| db.statistics().lock_waits >= 100);
    assert_eq!(db.statistics().held_back, 0, "a hundred are no crowd");
    let many = submit_all(400);
    wait_until(|| db.statistics().held_back > 0);
    door.open();
    for outcome in std::iter::once(holder).chain(few).chain(many).map(atrapos::Submitted::wait) {
        outcome.unwrap();
    }
    assert_eq!(db.statistics().retried, 0, "there was no deadlock");
    assert_eq!(db.run(items.at(&1), async move |tx| tx.get(items, 1).await).unwrap().unwrap().value, 501);
}
