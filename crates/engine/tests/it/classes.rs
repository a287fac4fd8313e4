//! Classes of transactions: a database that observes itself knows how many of each there were, however they are run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use atrapos::{
    Abort, Adaptation, Database, Registry, Route, StoredProcedure as _, TableRef, WorkerId, encode,
};
use atrapos_adapt::{Cause, ControllerSettings, Decision, Trigger, WaitReason};

use crate::support::{Items, load_items, two_tables};

atrapos::stored_procedures! {
    Touch("classes.touch", "touch") { key: u64 } -> bool;
    tables TableRef<Items>: |db| db.table();
    home: |own, items| items.at(&own.key);
    run: |own, tx, items| async move {
        Ok(tx.update(*items, own.key, |row| row.value += 1).await?.is_some())
    };

    TouchBoth("classes.touch_both", "touch-both") { key: u64, other: u64 } -> bool;
    tables TableRef<Items>: |db| db.table();
    home: |own, items| items.at(&own.key);
    run: |own, tx, items| async move {
        tx.update(*items, own.key, |row| row.value += 1).await?;
        Ok(tx.update(*items, own.other, |row| row.value += 1).await?.is_some())
    };
}

/// A database of two workers that records every event, with rows 0 to 99 in halves.
fn observing() -> Database {
    let adaptation = Adaptation { act: false, sample_every: 1, ..Adaptation::default() };
    let builder = Database::builder(two_tables()).workers(2).pin(false).huge_pages(false);
    let db = builder.adaptation(adaptation).in_memory().unwrap();
    load_items(&db, 100, 0);
    db
}

/// The transactions of each class.
fn counted(db: &Database) -> BTreeMap<String, u64> {
    db.activity().unwrap().classes.into_iter().map(|class| (class.name, class.transactions)).collect()
}

#[test]
fn each_transaction_is_counted_under_its_class() {
    let db = observing();
    let items = db.table::<Items>().unwrap();
    let before = counted(&db);
    db.workload_trace().unwrap();
    let session = async move |session: atrapos::Session| -> Result<(), Abort> {
        for key in [1, 2, 99] {
            // At home here, and on the other worker.
            let touch = Touch { key };
            session.run_stored(&touch.home(&items), &items, &touch).await?;
        }
        // No direct transaction: one of its rows is elsewhere.
        let both = TouchBoth { key: 3, other: 98 };
        session.run_stored(&both.home(&items), &items, &both).await?;
        session.set_class("by hand");
        for key in [4, 97] {
            session.run(&items.at(&key), async move |tx| tx.get(items, key).await).await?;
        }
        // It says itself what it is.
        let named = async move |tx: &mut atrapos::Tx| {
            tx.set_class("of its own");
            tx.get(items, 5).await
        };
        session.run(&items.at(&5), named).await?;
        session.set_class("");
        session.run(&items.at(&6), async move |tx| tx.get(items, 6).await).await?;
        Ok(())
    };
    db.spawn_session(WorkerId(0), session).unwrap().join().unwrap().unwrap();
    let mut registry = Registry::default();
    registry.register::<Touch>(&db).unwrap();
    let called = db.call(&registry, "classes.touch", &encode(&Touch { key: 7 }).unwrap());
    assert!(called.is_ok());
    db.run(Route::worker(WorkerId(0)), async move |tx| tx.get(items, 8).await).unwrap();
    let mut since = counted(&db);
    for (class, transactions) in before {
        *since.entry(class).or_default() -= transactions;
    }
    let expected = [("", 2), ("by hand", 2), ("of its own", 1), ("touch", 4), ("touch-both", 1)];
    assert_eq!(since, expected.map(|(class, count)| (class.to_owned(), count)).into());
    // Statistics have those of their own time; what is of no class is none.
    let recorded = |db: &Database| -> BTreeMap<String, u64> {
        db.workload_trace().unwrap().classes.into_iter().map(|class| (class.name, class.count)).collect()
    };
    since.remove("");
    assert_eq!(recorded(&db), since);
    assert_eq!(recorded(&db), BTreeMap::new());
}

/// Sessions of both workers lock the same two rows in opposite orders, so that some transactions run again.
#[test]
fn a_transaction_that_runs_again_is_counted_once() {
    const EACH: u64 = 300;
    let db = observing();
    let items = db.table::<Items>().unwrap();
    let session = |key: u64, other: u64| {
        async move |session: atrapos::Session| -> Result<(), Abort> {
            for _ in 0..EACH {
                let both = TouchBoth { key, other };
                session.run_stored(&both.home(&items), &items, &both).await?;
            }
            Ok(())
        }
    };
    let mut retried = 0;
    let mut ran = 0;
    while retried == 0 && ran < 100 * EACH {
        let sessions = [(0, 1, 99), (0, 1, 99), (1, 99, 1), (1, 99, 1)]
            .map(|(worker, key, other)| db.spawn_session(WorkerId(worker), session(key, other)).unwrap());
        for session in sessions {
            session.join().unwrap().unwrap();
        }
        ran += 4 * EACH;
        retried = db.statistics().retried;
    }
    assert!(retried > 0, "nothing had to run again");
    assert_eq!(counted(&db).get("touch-both"), Some(&ran));
}

#[test]
fn what_is_not_observed_has_no_classes() {
    let builder = Database::builder(two_tables()).workers(2).pin(false).huge_pages(false);
    let db = builder.fixed_scheme().in_memory().unwrap();
    load_items(&db, 100, 0);
    let items = db.table::<Items>().unwrap();
    db.run(items.at(&1), async move |tx| tx.get(items, 1).await).unwrap();
    assert_eq!(counted(&db), BTreeMap::new());
}

fn began_anew(decision: &Decision) -> bool {
    matches!(&decision.cause, Cause::Waited(WaitReason::BeganAnew { trigger: Trigger::MixChanged { .. } }))
}

/// In a long interval the database sees by a glance that the transactions are others, and discards what it has observed until then: the
/// next turn is of these alone.
#[test]
fn what_follows_a_change_of_class_is_observed_by_itself() {
    let names: [&'static str; 40] = std::array::from_fn(|at| &*format!("class {at}").leak());
    // Nothing but the classes is a reason to look.
    let controller = ControllerSettings {
        interval: Duration::from_millis(20),
        interval_max: Duration::from_secs(2),
        threshold: 1e9,
        imbalance: 1e9,
        window: 1,
        ..ControllerSettings::default()
    };
    let adaptation = Adaptation { controller, sample_every: 1, ..Adaptation::default() };
    let builder = Database::builder(two_tables()).workers(2).pin(false).huge_pages(false);
    let db = builder.adaptation(adaptation).in_memory().unwrap();
    load_items(&db, 100, 0);
    let items = db.table::<Items>().unwrap();
    let (class, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let session = |key: u64| {
        let (class, ended) = (Arc::clone(&class), Arc::clone(&ended));
        async move |session: atrapos::Session| -> Result<(), Abort> {
            while !ended.load(Ordering::SeqCst) {
                session.set_class(names[class.load(Ordering::SeqCst)]);
                session.run(&items.at(&key), async move |tx| tx.get(items, key).await).await?;
            }
            Ok(())
        }
    };
    let sessions =
        [(0, 1), (1, 99)].map(|(worker, key)| db.spawn_session(WorkerId(worker), session(key)).unwrap());
    let mut known = 0;
    let mut next = || loop {
        match db.adaptation_history_after(known).into_iter().next() {
            Some((number, event)) => {
                known = number;
                return event.decision;
            }
            None => std::thread::yield_now(),
        }
    };
    let mut seen = 0;
    for (at, name) in names.into_iter().enumerate().skip(1) {
        // Some turns in a row grow the interval.
        (0..3).for_each(|_| drop(next()));
        class.store(at, Ordering::SeqCst);
        let is_of = |decision: &Decision| decision.mix.shares().first().is_some_and(|first| first.0 == name);
        let first = loop {
            let decision = next();
            if is_of(&decision) {
                break decision;
            }
        };
        if began_anew(&first) {
            seen += 1;
            let turn = next();
            let others: f64 =
                turn.mix.shares().iter().filter(|(other, _)| *other != name).map(|of| of.1).sum();
            assert!(others < 0.1, "{at}: {turn:?}");
        }
        if seen == 3 {
            break;
        }
    }
    ended.store(true, Ordering::SeqCst);
    sessions.into_iter().for_each(|session| session.join().unwrap().unwrap());
    assert_eq!(seen, 3, "no glance saw a change of class");
}
