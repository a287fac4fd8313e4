//! Procedures that await something foreign or their own database, and operations that are dropped half-way.

use std::sync::Arc;

use atrapos::{Abort, AbortReason, Advice, KeyRange, Route, WorkerId};

use crate::indexes::{ByCity, User, Users, user, users};
use crate::support::{
    Items, STEPS_MAX, for_seeds, is_well, item, load_items, open, poll_once, simulate, two_tables,
};

fn misuse(outcome: Result<(), Abort>) -> String {
    let abort = outcome.expect_err("it cannot go on");
    assert_eq!((abort.reason(), abort.reason().advice()), (AbortReason::Misuse, Advice::FixInput), "{abort}");
    abort.detail().to_owned()
}

#[test]
fn a_procedure_that_awaits_something_foreign_is_refused() {
    let db = open(two_tables(), 2);
    load_items(&db, 100, 1);
    let items = db.table::<Items>().unwrap();
    let foreign =
        "the procedure awaits something other than its own actions; do that before or after the transaction";
    assert_eq!(misuse(db.run(items.at(&1), async move |_| std::future::pending().await)), foreign);
    for other in [2, 97] {
        let after_writes = db.run(items.at(&1), async move |tx| {
            tx.update(items, 1, |row| row.value = 5).await?;
            tx.update(items, other, |row| row.value = 5).await?;
            std::future::pending().await
        });
        assert_eq!(misuse(after_writes), foreign);
        is_well(&db);
        // Having given up an action of its own that would have woken it.
        let after_giving_up = db.run(items.at(&1), async move |tx| {
            tx.update(items, 1, |row| row.value = 5).await?;
            let _ = poll_once(tx.update(items, other, |row| row.value = 5)).await;
            std::future::pending().await
        });
        assert_eq!(misuse(after_giving_up), foreign);
        is_well(&db);
    }
    // A foreign future that is ready is nothing to wait for.
    assert_eq!(db.run(items.at(&1), async move |_| Ok(std::future::ready(3).await)), Ok(3));
}

#[test]
fn a_procedure_that_waits_for_the_database_itself_is_refused() {
    let db = Arc::new(open(two_tables(), 2));
    load_items(&db, 100, 1);
    let items = db.table::<Items>().unwrap();
    let inner = Arc::clone(&db);
    let nested = db
        .run(items.at(&1), async move |_| inner.run(items.at(&98), async move |tx| tx.get(items, 98).await));
    let sentence = "a worker's thread cannot wait for a database; use the transaction or session at hand, or another thread";
    assert_eq!(misuse(nested.map(drop)), sentence);
    let inner = Arc::clone(&db);
    let nested =
        db.run(items.at(&1), async move |_| inner.verify().map_err(|_| Abort::user("refused as well")));
    assert_eq!(nested.unwrap_err().detail(), "refused as well");
    is_well(&db);
}

#[test]
fn an_action_that_is_given_up_half_way_aborts_the_transaction() {
    let db = open(two_tables(), 2);
    load_items(&db, 100, 1);
    let items = db.table::<Items>().unwrap();
    let one = db.run(items.at(&1), async move |tx| {
        tx.update(items, 1, |row| row.value = 5).await?;
        assert!(
            poll_once(tx.update(items, 98, |row| row.value = 5)).await.is_none(),
            "the answer cannot be there yet"
        );
        Ok(())
    });
    let two = db.run(items.at(&1), async move |tx| {
        assert!(poll_once(tx.join((items.delete(1), items.delete(98)))).await.is_none());
        Ok(())
    });
    let many = db.run(items.at(&98), async move |tx| {
        assert!(poll_once(tx.join_all([1, 98, 2].map(|key| items.delete(key)))).await.is_none());
        // Whatever is done now, it is too late.
        let _ = tx.get(items, 1).await;
        Ok(())
    });
    for outcome in [one, two, many] {
        let why = misuse(outcome);
        assert!(why.starts_with("the procedure gave up waiting for one of its own actions"), "{why}");
        is_well(&db);
    }
}

#[test]
fn a_look_up_that_is_given_up_is_not_mistaken_for_the_next_one() {
    // Look-ups are made together when several transactions are ready on one worker.
    for_seeds(60, |seed| {
        let mut simulation = simulate(two_tables(), 2, seed);
        let items = simulation.table::<Items>().unwrap();
        let filled = simulation.submit(&items.at(&0), async move |tx| {
            tx.join_all((0..100).map(|key| items.insert(key, item(key as i64)))).await.map(drop)
        });
        assert!(simulation.run(STEPS_MAX));
        assert_eq!(filled.take(), Some(Ok(())));
        let sessions: Vec<_> = (0..12_u64)
            .map(|at| {
                simulation.spawn_session(WorkerId((at % 2) as u16), async move |session| {
                    for round in 0..20 {
                        let first = (at * 7 + round * 13) % 100;
                        let second = (first + 1) % 100;
                        if round % 2 == 0 {
                            // A whole transaction, as it is about to begin.
                            let route = items.at(&first);
                            let _ =
                                poll_once(session.run(&route, async move |tx| tx.get(items, first).await))
                                    .await;
                        }
                        let read = session
                            .run(&Route::worker(session.worker()), async move |tx| {
                                let _ = poll_once(tx.get(items, first)).await;
                                Ok(tx.get(items, second).await?.map(|row| row.value))
                            })
                            .await;
                        match read {
                            Ok(value) => assert_eq!(value, Some(second as i64), "row {second} was asked for"),
                            Err(abort) => assert_eq!(abort.reason(), AbortReason::Misuse),
                        }
                    }
                })
            })
            .collect();
        assert!(simulation.run(STEPS_MAX));
        assert!(sessions.into_iter().all(|session| session.take().is_some()));
        assert_eq!(simulation.locks(), (0, 0));
        assert!(simulation.statistics().interleaved > 0, "no look-up was deferred");
    });
}

#[test]
fn a_write_that_is_given_up_before_its_index_follows_leaves_nothing() {
    let mut given_up = 0;
    for_seeds(60, |seed| {
        let mut simulation = simulate(users(), 2, seed);
        let (table, by_city) = (simulation.table::<Users>().unwrap(), simulation.index::<ByCity>().unwrap());
        let filled = simulation.submit(&table.at(&0), async move |tx| {
            tx.join_all((0..100).map(|key| table.insert(key, user((key % 8) as u32, &format!("u{key}")))))
                .await
                .map(drop)
        });
        assert!(simulation.run(STEPS_MAX));
        assert_eq!(filled.take(), Some(Ok(())));
        let sessions: Vec<_> = (0..8_u64)
            .map(|at| {
                simulation.spawn_session(WorkerId((at % 2) as u16), async move |session| {
                    for round in 0..10 {
                        let key = (at * 3 + round) % 100;
                        let ran = session
                            .run(&table.at(&key), async move |tx| {
                                if at < 4 {
                                    // Holds on to a part of the index while it waits for the other worker.
                                    tx.lookup_all(by_city, KeyRange::all(), usize::MAX).await?;
                                    tx.get(table, 99 - key).await.map(drop)
                                } else {
                                    let change = move |row: &mut User| row.city = (row.city + 1) % 8;
                                    poll_once(tx.update(table, key, change)).await.transpose().map(drop)
                                }
                            })
                            .await;
                        match ran.map_err(|abort| abort.reason()) {
                            Ok(()) | Err(AbortReason::Misuse | AbortReason::Deadlock) => {}
                            Err(reason) => panic!("a transaction aborted for {reason}"),
                        }
                    }
                })
            })
            .collect();
        assert!(simulation.run(STEPS_MAX));
        assert!(sessions.into_iter().all(|session| session.take().is_some()));
        given_up += simulation.statistics().aborted_for(AbortReason::Misuse);
        let agree = simulation.submit(&table.at(&0), async move |tx| {
            let rows = tx.scan(table, KeyRange::all(), usize::MAX).await?;
            let mut by_rows: Vec<(u32, u64)> = rows.into_iter().map(|(key, row)| (row.city, key)).collect();
            by_rows.sort_unstable();
            let found = tx.lookup_all(by_city, KeyRange::all(), usize::MAX).await?;
            Ok(found == by_rows.into_iter().map(|(_, key)| key).collect::<Vec<_>>())
        });
        assert!(simulation.run(STEPS_MAX));
        assert_eq!(agree.take(), Some(Ok(true)), "rows and index agree");
        assert_eq!(simulation.locks(), (0, 0));
    });
    assert!(given_up > 0 || std::env::var_os("ATRAPOS_SEED").is_some(), "nothing was given up");
}
