//! Direct transactions: stored procedures that run to their end in one poll, and what they must have in common with the others.

use atrapos::{
    Abort, AbortReason, Adaptation, Database, KeyRange, Route, StoredProcedure, TableRef, Transaction,
    WorkerId,
};
use serde::{Deserialize, Serialize};

use crate::indexes::{ByEmail, Users, user, users};
use crate::support::{Items, item, load_items, open, two_tables};

/// Ways of a procedure to go wrong, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Way {
    /// It changes its row.
    Well,
    /// It changes its row, and then wants it back.
    Aborts,
    /// It changes its row and panics.
    Panics,
    /// It changes its row, inserts another that is there, and conceals that this has failed.
    Conceals,
    /// It makes an operation that nobody awaits, and changes its row.
    Forgets,
    /// It changes its row and that of another worker.
    Elsewhere,
    /// It changes its row and awaits what is never ready.
    Hangs,
}

/// Adds 10 to the value of row `key`, in some `way`, and returns the value. Row `other` has to be there.
async fn change(
    tx: &mut impl Transaction,
    items: TableRef<Items>,
    (key, other): (u64, u64),
    way: Way,
) -> Result<i64, Abort> {
    if way == Way::Forgets {
        drop(tx.update(items, other, |row| row.value = 1_000));
    }
    let value = tx.update(items, key, |row| {
        row.value += 10;
        row.value
    });
    let value = value.await?.ok_or_else(|| Abort::user("there is no such row"))?;
    match way {
        Way::Well | Way::Forgets => {}
        Way::Aborts => return Err(Abort::user("as planned")),
        Way::Panics => panic!("as planned"),
        Way::Conceals => drop(tx.insert(items, other, item(5)).await),
        Way::Elsewhere => drop(tx.update(items, other, |row| row.value += 10).await?),
        Way::Hangs => std::future::pending().await,
    }
    Ok(value)
}

atrapos::stored_procedures! {
    Change("direct.change", "change") { key: u64, other: u64, way: Way } -> i64;
    tables TableRef<Items>: |db| db.table();
    home: |own, items| items.at(&own.key);
    run: |own, tx, items| change(tx, *items, (own.key, own.other), own.way);

    Sum("direct.sum", "sum") { first: u64, last: u64 } -> i64;
    tables TableRef<Items>: |db| db.table();
    home: |own, items| items.at(&own.first);
    run: |own, tx, items| {
        tx.fold(*items, KeyRange::between(&own.first, &(own.last + 1)), 0, |sum, _, row| {
            *sum += row.value;
            std::ops::ControlFlow::Continue(())
        })
    };

    Rename("direct.rename", "rename") { key: u64, to: String, aborts: bool } -> bool;
    tables TableRef<Users>: |db| db.table();
    home: |own, users| users.at(&own.key);
    run: |own, tx, users| async move {
        let to = own.to.clone();
        let found = tx.update(*users, own.key, move |row| row.email = to).await?;
        if own.aborts { Err(Abort::user("as planned")) } else { Ok(found.is_some()) }
    };
}

/// Runs a procedure in a session of a worker.
fn run<P: StoredProcedure>(db: &Database, worker: u16, procedure: P) -> Result<P::Result, Abort> {
    let tables = P::tables(db).expect("the schema has them");
    let body = async move |session: atrapos::Session| {
        session.run_stored(&procedure.home(&tables), &tables, &procedure).await
    };
    db.spawn_session(WorkerId(worker), body).expect("there is room").join().expect("it ends by itself")
}

/// The values of rows 1 and 99, which are on the first and the last worker.
fn values(db: &Database) -> [i64; 2] {
    let items = db.table::<Items>().expect("the schema has it");
    let read = db.run(Route::worker(WorkerId(0)), async move |tx| {
        let (one, other) = tx.join((items.get(1), items.get(99))).await?;
        Ok([one, other].map(|row| row.map_or(-1, |row| row.value)))
    });
    read.expect("it only reads")
}

fn loaded(workers: usize) -> Database {
    let db = open(two_tables(), workers);
    load_items(&db, 100, 0);
    db
}

#[test]
fn what_runs_at_once_is_all_or_nothing() {
    for (workers, at) in [(1, 0), (2, 0), (2, 1)] {
        let db = loaded(workers);
        let [mut one, other] = values(&db);
        let mut change = |way, ends: Result<(), AbortReason>| {
            let changed = run(&db, at, Change { key: 1, other: 99, way });
            if ends.is_ok() {
                one += 10;
                assert_eq!(changed, Ok(one), "{way:?}");
            } else {
                assert_eq!(changed.map(drop).map_err(|abort| abort.reason()), ends, "{way:?}");
            }
            assert_eq!(values(&db), [one, other], "{way:?} with {workers} workers");
        };
        for _ in 0..2 {
            change(Way::Well, Ok(()));
            change(Way::Aborts, Err(AbortReason::User));
            change(Way::Panics, Err(AbortReason::Panic));
            change(Way::Conceals, Err(AbortReason::DuplicateKey));
            change(Way::Forgets, Ok(()));
            change(Way::Hangs, Err(AbortReason::Misuse));
        }
        db.verify().expect("the database is whole");
    }
}

#[test]
fn a_direct_transaction_locks_nothing_and_one_that_gives_up_begins_again() {
    let db = loaded(2);
    let before = db.statistics();
    for _ in 0..10 {
        run(&db, 0, Change { key: 1, other: 99, way: Way::Well }).expect("it is alone");
    }
    let direct = db.statistics().since(&before);
    assert_eq!((direct.committed, direct.given_up, direct.locks_entered), (10, 0, 0));
    let values_before = values(&db);
    let before = db.statistics();
    for _ in 0..5 {
        run(&db, 0, Change { key: 1, other: 99, way: Way::Elsewhere }).expect("nobody is in its way");
    }
    assert_eq!(values(&db), values_before.map(|value| value + 50), "each has run once");
    let again = db.statistics().since(&before);
    assert_eq!(again.committed, 6, "the reader of the values is one of them");
    assert_eq!(again.given_up, 5);
    // A procedure for the other worker is direct there.
    let before = db.statistics();
    run(&db, 0, Change { key: 99, other: 1, way: Way::Well }).expect("it is alone");
    let there = db.statistics().since(&before);
    assert_eq!((there.forwarded, there.given_up, there.locks_entered), (1, 0, 0));
}

#[test]
fn a_direct_transaction_is_recorded_where_it_runs() {
    const RUNS: u64 = 50;
    let observing = Adaptation { act: false, sample_every: 1, ..Adaptation::default() };
    let builder = Database::builder(two_tables()).workers(2).pin(false).huge_pages(false);
    let db = builder.adaptation(observing).in_memory().unwrap();
    load_items(&db, 100, 0);
    db.workload_trace().unwrap();
    let before = db.statistics();
    for _ in 0..RUNS {
        run(&db, 0, Change { key: 1, other: 49, way: Way::Elsewhere }).expect("both rows are here");
    }
    let direct = db.statistics().since(&before);
    assert_eq!((direct.committed, direct.given_up, direct.locks_entered), (RUNS, 0, 0));
    let trace = db.workload_trace().unwrap();
    let workload = trace.workload().unwrap();
    let costs = workload.table_costs(atrapos_adapt::TableIndex(0));
    let charged: Vec<usize> = (0..costs.len()).filter(|part| costs[*part] > 0.0).collect();
    assert_eq!(charged, [0, 9], "the sub-partitions of both rows: {costs:?}");
    let met: f64 = workload.sync_points().iter().map(|point| point.count).sum();
    assert_eq!(met, RUNS as f64, "the second row is another point than the first");
}

#[test]
fn when_many_give_up_others_are_not_attempted_for_a_while() {
    let db = loaded(2);
    let before = db.statistics();
    for _ in 0..200 {
        run(&db, 0, Change { key: 1, other: 99, way: Way::Elsewhere }).expect("nobody is in its way");
    }
    let given_up = db.statistics().since(&before).given_up;
    assert!((1..100).contains(&given_up), "{given_up} of 200 have given up");
}

#[test]
fn ranges_across_partitions_are_read_whole() {
    for workers in [1, 2, 8] {
        let db = loaded(workers);
        let [one, _] = values(&db);
        run(&db, 0, Change { key: 1, other: 99, way: Way::Well }).expect("it is alone");
        let expected = 100 * one + 10;
        assert_eq!(run(&db, 0, Sum { first: 0, last: 99 }), Ok(expected));
    }
}

#[test]
fn entries_of_indexes_follow_and_return() {
    for workers in [1, 3] {
        let db = open(users(), workers);
        let table = db.table::<Users>().expect("the schema has it");
        let insert = async move |tx: &mut atrapos::Tx<'_>| tx.insert(table, 1, user(3, "ada")).await;
        db.run(table.at(&1), insert).expect("it is the first");
        let found = |email: &'static str| {
            let index = db.index::<ByEmail>().expect("the schema has it");
            let look = async move |tx: &mut atrapos::Tx<'_>| tx.get_by(index, table, email.to_owned()).await;
            db.run(table.at(&1), look).expect("it only reads").is_some()
        };
        let rename = |to: &str, aborts| run(&db, 0, Rename { key: 1, to: to.to_owned(), aborts });
        assert_eq!(rename("bea", true).map_err(|abort| abort.reason()), Err(AbortReason::User));
        assert!(found("ada") && !found("bea"));
        assert_eq!(rename("bea", false), Ok(true));
        assert!(!found("ada") && found("bea"));
        db.verify().expect("rows and entries agree");
    }
}
