//! Panics of procedures, of keys that follow from rows, and of sessions: each ends what panicked and nothing else.

use atrapos::{Abort, AbortReason, Advice, Index, KeyRange, WorkerId};

use crate::support::{Item, Items, Others, is_well, item, load_items, open, poll_once, two_tables};

#[test]
fn a_panic_aborts_its_transaction_and_nothing_else() {
    for workers in [1, 2, 8] {
        let db = open(two_tables(), workers);
        load_items(&db, 100, 1);
        let items = db.table::<Items>().unwrap();
        let bad = |abort: Result<(), Abort>| {
            let abort = abort.expect_err("it panicked");
            assert_eq!((abort.reason(), abort.reason().advice()), (AbortReason::Panic, Advice::Report));
            assert!(abort.detail().ends_with("panicked: as planned"), "{abort}");
            is_well(&db);
        };
        let before = db.statistics();
        bad(db.run(items.at(&1), async move |_| panic!("as planned")));
        for other in [2, 97] {
            // After writes here and there; with one of them under way; in a closure that runs where the row is.
            bad(db.run(items.at(&1), async move |tx| {
                tx.update(items, 1, |row| row.value = 5).await?;
                tx.delete(items, other).await?;
                tx.insert(items, 200 + other, item(5)).await?;
                panic!("as planned")
            }));
            bad(db.run(items.at(&1), async move |tx| {
                tx.update(items, 1, |row| row.value = 5).await?;
                let _ = poll_once(tx.update(items, other, |row| row.value = 5)).await;
                panic!("as {}", "planned")
            }));
            bad(db
                .run(items.at(&1), async move |tx| {
                    tx.update(items, 1, |row| row.value = 5).await?;
                    tx.update(items, other, |row| {
                        row.value = 5;
                        panic!("as planned")
                    })
                    .await
                })
                .map(drop::<Option<()>>));
            bad(db.run(items.at(&1), async move |tx| {
                tx.update(items, other, |row| row.value = 5).await?;
                tx.fold(items, KeyRange::all(), 0, |seen, _, _| {
                    *seen += 1;
                    assert!(*seen < 90, "as planned");
                    std::ops::ControlFlow::Continue(())
                })
                .await
                .map(drop)
            }));
        }
        let counted = db.statistics().since(&before);
        assert_eq!(counted.aborted_for(AbortReason::Panic), 9);
        assert_eq!(counted.aborted_total(), 9);
    }
}

/// An index whose key cannot be computed for some rows.
struct Picky;

impl Index for Picky {
    type Table = Items;
    type Key = i64;
    const NAME: &'static str = "picky";
    const UNIQUE: bool = false;

    fn key(_: &u64, row: &Item) -> i64 {
        assert!(row.value != 13, "no thirteen");
        row.value
    }
}

#[test]
fn a_panic_of_an_index_or_a_foreign_key_aborts_its_transaction() {
    let schema =
        two_tables().index::<Picky>().split_at("picky", &[0_i64, 50]).foreign_key_by_prefix::<Others, Items>(
            |key| {
                assert!(*key != 13, "no thirteen");
                *key
            },
            true,
        );
    let db = open(schema, 3);
    load_items(&db, 100, 1);
    let (items, others) = (db.table::<Items>().unwrap(), db.table::<Others>().unwrap());
    for key in [1, 50, 98] {
        let changed = db.run(items.at(&1), async move |tx| tx.update(items, key, |row| row.value = 13).await);
        let inserted = db.run(items.at(&1), async move |tx| tx.insert(items, 100 + key, item(13)).await);
        let child = db.run(items.at(&key), async move |tx| tx.insert(others, 13, item(1)).await);
        for abort in [changed.unwrap_err(), inserted.unwrap_err(), child.unwrap_err()] {
            assert_eq!(abort.reason(), AbortReason::Panic);
            assert!(abort.detail().contains("no thirteen"), "{abort}");
        }
        is_well(&db);
    }
}

#[test]
fn a_panic_of_a_session_ends_the_session_only() {
    let db = open(two_tables(), 2);
    load_items(&db, 100, 1);
    let items = db.table::<Items>().unwrap();
    for worker in [0, 1] {
        let session = db.spawn_session::<()>(WorkerId(worker), async move |session| {
            let _ = session.run(&items.at(&1), async move |tx| tx.get(items, 1).await).await;
            panic!("as planned")
        });
        let abort = session.unwrap().join().unwrap_err();
        assert_eq!(abort.reason(), AbortReason::Panic);
        assert_eq!(abort.detail(), "the session panicked: as planned");
        is_well(&db);
    }
}
