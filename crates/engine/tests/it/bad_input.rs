//! Whatever is wrong is said in one clear sentence, and costs nobody else anything: settings, schemas, keys and rows,
//! procedures that panic or wait for the wrong thing, too much work, and closing in the middle of it.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::time::Duration;

use atrapos::sim::Simulation;
use atrapos::{
    Abort, AbortReason, Advice, Builder, Database, Index, KeyRange, OpenError, Route, Schema, Table, Tx,
    WorkerId,
};

use crate::indexes::{ByCity, ByEmail, CarsByOwner, User, Users, user, users};
use crate::support::{
    Item, Items, Others, STEPS_MAX, for_seeds, item, load_items, open, simulate, two_tables,
};

const LONG: Duration = Duration::from_secs(600);

/// Polls a future once and drops it.
async fn poll_once<R>(future: impl Future<Output = R>) -> Option<R> {
    let mut future = pin!(future);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// The database still works, and nothing is left of what failed.
fn is_well(db: &Database) {
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

// --- Settings and schemas --------------------------------------------------------------------------------------------

fn refused(builder: Builder) -> String {
    builder.pin(false).in_memory().expect_err("it makes no sense").to_string()
}

#[test]
fn keys_that_do_not_go_with_their_tables_are_refused() {
    struct Twice;
    impl Table for Twice {
        type Key = (u64, u64);
        type Row = Item;
        const NAME: &'static str = "twice";
        const KEY_COLUMNS: &'static [&'static str] = &["id", "value"];
    }
    assert_eq!(
        refused(Database::builder(Schema::new().table::<Twice>()).workers(1)),
        "table `twice` has two columns `value`; give one of them another name"
    );
    struct Narrow;
    impl Table for Narrow {
        type Key = (u32, u64);
        type Row = Item;
        const NAME: &'static str = "narrow";
    }
    let items = || Schema::new().table::<Items>().table::<Narrow>();
    let schema = items().foreign_key_by_prefix::<Narrow, Items>(|key| key.0.into(), true);
    assert_eq!(
        refused(Database::builder(schema).workers(1)),
        "the foreign key from `narrow` to `items` needs keys of `narrow` that begin with the parent's key (u64), but they are \
         (u32, u64); name an index whose keys do"
    );
    let known = items().foreign_key_by_prefix::<Narrow, Items>(|key| key.0.into(), false);
    Database::builder(known).workers(1).pin(false).in_memory().expect("what is not enforced may be anything");
    struct Long;
    impl Table for Long {
        type Key = (u8, [u8; 512]);
        type Row = Item;
        const NAME: &'static str = "long";
    }
    assert_eq!(
        refused(Database::builder(Schema::new().table::<Long>()).workers(1)),
        "the key of table `long` takes at least 513 bytes where 512 is the most; leave columns out, or make them shorter"
    );
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let builder = || Database::builder(two_tables());
    assert_eq!(refused(builder().workers(0)), "zero workers cannot own data; use at least 1");
    assert_eq!(
        refused(builder().workers(1_000_000)),
        "1000000 workers are more than any machine has cores; use at most 4096"
    );
    assert_eq!(
        refused(builder().workers(1).inbox_slots(0)),
        "an inbox of zero slots takes no request; use at least 1"
    );
    assert!(matches!(builder().workers(0).in_memory(), Err(OpenError::Setting(_))));
    let sim =
        Simulation::new(two_tables(), 0, 1).err().expect("a simulation needs workers as well").to_string();
    assert!(sim.contains("workers"), "{sim}");
}

/// Over a table that no schema here declares.
struct Nowhere;

impl Table for Nowhere {
    type Key = u64;
    type Row = Item;
    const NAME: &'static str = "nowhere";
}

struct ByNothing;

impl Index for ByNothing {
    type Table = Nowhere;
    type Key = i64;
    const NAME: &'static str = "by_nothing";
    const UNIQUE: bool = false;

    fn key(_: &u64, row: &Item) -> i64 {
        row.value
    }
}

/// Has the name of a table.
struct NamedItems;

impl Index for NamedItems {
    type Table = Items;
    type Key = i64;
    const NAME: &'static str = "items";
    const UNIQUE: bool = false;

    fn key(_: &u64, row: &Item) -> i64 {
        row.value
    }
}

/// Has the name of another table.
struct AlsoItems;

impl Table for AlsoItems {
    type Key = String;
    type Row = User;
    const NAME: &'static str = "items";
}

#[test]
fn contradictory_schemas_are_refused() {
    let mistakes: [(Schema, &str); 9] = [
        (
            Schema::new().table::<Items>().table::<Items>(),
            "the schema declares two tables named 'items'; give one of them another name",
        ),
        (
            Schema::new().table::<Items>().table::<AlsoItems>(),
            "the schema declares two tables named 'items'; give one of them another name",
        ),
        (
            Schema::new().table::<Items>().index::<ByNothing>(),
            "index 'by_nothing' is over table 'nowhere', which the schema does not declare; declare the table",
        ),
        (
            Schema::new().table::<Items>().index::<NamedItems>(),
            "the schema uses the name 'items' twice; give the index another name",
        ),
        (
            Schema::new().table::<Items>().foreign_key_by_prefix::<Items, Nowhere>(|key| *key, true),
            "the foreign key from 'items' to 'nowhere' needs 'nowhere', which the schema does not declare; declare it",
        ),
        (
            Schema::new().table::<Items>().foreign_key_by_prefix::<Nowhere, Items>(|key| *key, false),
            "the foreign key from 'nowhere' to 'items' needs 'nowhere', which the schema does not declare; declare it",
        ),
        (
            users()
                .table::<crate::indexes::Cars>()
                .foreign_key_by_index::<CarsByOwner, Users>(|_, car| car.owner, true),
            "the foreign key from 'cars' to 'users' needs 'cars_by_owner', which the schema does not declare; declare it",
        ),
        (
            Schema::new().table::<Items>().split_evenly("itmes", 0, 9),
            "partition boundaries are given for family 'itmes', to which no table or index belongs",
        ),
        (
            Schema::new().table::<Items>().split_evenly("items", 9, 0),
            "family 'items' is to be split evenly from 9 to 0; the first must not be larger than the last",
        ),
    ];
    for (schema, sentence) in mistakes {
        let error = Database::builder(schema).workers(2).pin(false).in_memory().expect_err(sentence);
        assert!(matches!(error, OpenError::Schema(_)));
        assert_eq!(error.to_string(), sentence);
    }
    // Odd, but sound.
    let odd = Schema::new()
        .table::<Items>()
        .table::<Others>()
        .split_evenly("items", 5, 5)
        .split_at::<u64>("others", &[]);
    let db = open(odd, 4);
    load_items(&db, 100, 1);
    is_well(&db);
}

#[test]
fn tables_and_indexes_a_database_does_not_have_are_named() {
    let db = open(two_tables(), 1);
    let table = db.table::<Nowhere>().unwrap_err().to_string();
    assert_eq!(
        table,
        "this database has no table 'nowhere' of that type; declare it in the schema it is opened with"
    );
    let same_name = db.table::<AlsoItems>().unwrap_err().to_string();
    assert!(same_name.contains("no table 'items' of that type"), "{same_name}");
    let index = db.index::<ByCity>().unwrap_err().to_string();
    assert_eq!(
        index,
        "this database has no index 'users_by_city' of that type; declare it in the schema it is opened with"
    );
    let in_session = db.spawn_session(WorkerId(0), async move |session| {
        (
            session.table::<Nowhere>().is_err(),
            session.index::<ByCity>().is_err(),
            session.table::<Items>().is_ok(),
        )
    });
    assert_eq!(in_session.unwrap().join(), Ok((true, true, true)));
    assert_eq!(db.columns(atrapos::TableId(77)), &[]);
    assert_eq!(db.len(atrapos::TableId(77)), Ok(0));
}

#[test]
fn handles_of_another_database_are_refused_by_every_operation() {
    // The other one has more tables, so its numbers mean nothing here.
    let (db, other) = (open(two_tables(), 2), open(users().table::<Items>().table::<Others>(), 2));
    load_items(&db, 100, 1);
    let (mine, items) = (db.table::<Items>().unwrap(), other.table::<Items>().unwrap());
    let (by_email, by_city, table) = (
        other.index::<ByEmail>().unwrap(),
        other.index::<ByCity>().unwrap(),
        other.table::<Users>().unwrap(),
    );
    type Refusal = Result<(), Abort>;
    let all: Vec<Refusal> = vec![
        db.run(items.at(&1), async move |tx| tx.get(items, 1).await.map(drop)),
        db.run(mine.at(&1), async move |tx| tx.insert(items, 1, item(1)).await),
        db.run(mine.at(&1), async move |tx| tx.update(items, 1, |_| ()).await.map(drop)),
        db.run(mine.at(&1), async move |tx| tx.delete(items, 1).await.map(drop)),
        db.run(mine.at(&1), async move |tx| tx.scan(items, KeyRange::all(), 9).await.map(drop)),
        db.run(mine.at(&1), async move |tx| tx.scan_backward(items, KeyRange::all(), 9).await.map(drop)),
        db.run(mine.at(&1), async move |tx| tx.lookup_all(by_city, KeyRange::all(), 9).await.map(drop)),
        db.run(mine.at(&1), async move |tx| tx.get_by(by_email, table, "a".to_owned()).await.map(drop)),
        db.run(mine.at(&1), async move |tx| tx.join((mine.get(1), items.get(1))).await.map(drop)),
        db.run(mine.at(&1), async move |tx| tx.join_all([mine.get(1), items.get(1)]).await.map(drop)),
        // It aborts even if the procedure takes no notice.
        db.run(mine.at(&1), async move |tx| {
            tx.update(mine, 1, |row| row.value = 99).await?;
            let _ = tx.get(items, 1).await;
            Ok(())
        }),
    ];
    for (at, refusal) in all.into_iter().enumerate() {
        let abort = refusal.expect_err("a handle of another database");
        assert_eq!(abort.reason(), AbortReason::UnknownTable, "operation {at}: {abort}");
        assert!(
            abort.detail().contains("take handles from the database it runs on"),
            "operation {at}: {abort}"
        );
    }
    let route = items.at(&1);
    let in_session = db.spawn_session(WorkerId(0), async move |session| {
        session
            .run(&route, async move |tx| tx.get(items, 1).await.map(drop))
            .await
            .map_err(|abort| abort.reason())
    });
    assert_eq!(in_session.unwrap().join(), Ok(Err(AbortReason::UnknownTable)));
    is_well(&db);
}

/// Keys of any length.
struct Words;

impl Table for Words {
    type Key = String;
    type Row = Item;
    const NAME: &'static str = "words";
}

#[test]
fn keys_and_rows_that_are_too_large_are_refused() {
    let db = open(two_tables().table::<Words>().split_at("words", &["m".to_owned()]), 2);
    load_items(&db, 100, 1);
    let (items, words) = (db.table::<Items>().unwrap(), db.table::<Words>().unwrap());
    for start in ["a", "z"] {
        let longest = start.repeat(510);
        let long = start.repeat(511);
        let key = longest.clone();
        db.run(items.at(&1), async move |tx| {
            tx.insert(words, key.clone(), item(1)).await?;
            tx.delete(words, key.clone()).await.map(drop)
        })
        .unwrap();
        let key = long.clone();
        let abort = db.run(items.at(&1), async move |tx| {
            tx.update(items, 1, |row| row.value = 2).await?;
            tx.insert(words, key.clone(), item(1)).await
        });
        let abort = abort.unwrap_err();
        assert_eq!((abort.reason(), abort.reason().advice()), (AbortReason::KeyTooLarge, Advice::FixInput));
        assert!(abort.detail().starts_with("table 'words': ") && abort.detail().contains("512"), "{abort}");
        // Looking for it is not wrong: it is not there.
        let key = long.clone();
        let looked = db.run(items.at(&1), async move |tx| {
            let there = tx.get(words, key.clone()).await?.is_some();
            Ok((there, tx.delete(words, key.clone()).await?.is_some()))
        });
        assert_eq!(looked, Ok((false, false)));
    }
    for key in [1, 98] {
        let grown = db.run(items.at(&1), async move |tx| {
            tx.update(items, 50, |row| row.value = 2).await?;
            tx.update(items, key, |row| row.text = "x".repeat(1 << 20)).await.map(drop)
        });
        let inserted = db.run(items.at(&1), async move |tx| {
            tx.insert(items, 500 + key, Item { value: 1, text: "x".repeat((1 << 20) + 1) }).await
        });
        for abort in [grown.unwrap_err(), inserted.unwrap_err()] {
            assert_eq!(abort.reason(), AbortReason::RowTooLarge, "{abort}");
            assert!(abort.detail().starts_with("table 'items': "), "{abort}");
        }
    }
    is_well(&db);
}

// --- Procedures that panic -------------------------------------------------------------------------------------------

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

// --- Waiting for the wrong thing -------------------------------------------------------------------------------------

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

// --- Too much, and closing -------------------------------------------------------------------------------------------

#[test]
fn an_overloaded_worker_says_try_again_later() {
    let db = Database::builder(two_tables()).workers(2).pin(false).inbox_slots(4).in_memory().unwrap();
    load_items(&db, 100, 1);
    let items = db.table::<Items>().unwrap();
    // Worker 0 is held up inside a change.
    let (go_on, held_up) = mpsc::channel::<()>();
    let held_up = Arc::new(Mutex::new(held_up));
    let (reached, is_there) = mpsc::channel::<()>();
    let slow = db
        .submit(items.at(&1), async move |tx| {
            let (held_up, reached) = (Arc::clone(&held_up), reached.clone());
            tx.update(items, 1, move |_| {
                let _ = reached.send(());
                let _ = held_up.lock().unwrap().recv();
            })
            .await
            .map(drop)
        })
        .unwrap();
    is_there.recv().unwrap();
    let mut waiting = Vec::new();
    let refusal = loop {
        match db.try_submit(items.at(&2), async move |tx| tx.update(items, 2, |row| row.value += 1).await) {
            Ok(submitted) => waiting.push(submitted),
            Err(refusal) => break refusal,
        }
        assert!(waiting.len() < 1000, "the inbox takes everything");
    };
    assert_eq!((refusal.reason(), refusal.reason().advice()), (AbortReason::Overloaded, Advice::Retry));
    assert_eq!(refusal.detail(), "worker 0 has as many requests as it takes; try again later");
    // The other worker has room.
    assert_eq!(
        db.run(items.at(&98), async move |tx| Ok(tx.get(items, 98).await?.map(|row| row.value))),
        Ok(Some(1))
    );
    go_on.send(()).unwrap();
    assert_eq!(slow.wait(), Ok(()));
    let accepted = waiting.len() as i64;
    assert!(accepted >= 4);
    assert!(
        waiting.into_iter().all(|submitted| submitted.wait() == Ok(Some(()))),
        "what was accepted is done"
    );
    let counted = db.run(items.at(&2), async move |tx| Ok(tx.get(items, 2).await?.map(|row| row.value)));
    assert_eq!(counted, Ok(Some(1 + accepted)));
    is_well(&db);
}

/// A transaction that crosses workers, over and over again.
async fn transfer(tx: &mut Tx<'_>, items: atrapos::TableRef<Items>, from: u64, to: u64) -> Result<(), Abort> {
    tx.update(items, from, |row| row.value -= 1).await?;
    tx.update(items, to, |row| row.value += 1).await.map(drop)
}

#[test]
fn closing_completes_or_refuses_everything_in_flight() {
    for workers in [1, 2, 8] {
        let db = open(two_tables(), workers);
        load_items(&db, 100, 1);
        let items = db.table::<Items>().unwrap();
        let sessions: Vec<_> = (0..2 * workers as u16)
            .map(|worker| {
                db.spawn_session(WorkerId(worker), async move |session| {
                    let mut key = u64::from(worker);
                    while !session.is_stopping() {
                        key = (key + 37) % 100;
                        let route = items.at(&key);
                        match session
                            .run(&route, async move |tx| transfer(tx, items, key, 99 - key).await)
                            .await
                        {
                            Ok(()) => {}
                            Err(abort) => assert!(matches!(
                                abort.reason(),
                                AbortReason::Deadlock | AbortReason::ShuttingDown
                            )),
                        }
                        session.yield_now().await;
                    }
                    "stopped by itself"
                })
                .unwrap()
            })
            .collect();
        let submitted: Vec<_> = (0..500_u64)
            .map(|at| {
                let (from, to) = (at * 7 % 100, (at * 13 + 1) % 100);
                db.submit(items.at(&from), async move |tx| transfer(tx, items, from, to).await).unwrap()
            })
            .collect();
        let report = db.close(LONG);
        assert_eq!(report.dropped, 0, "everything comes to its end");
        for session in sessions {
            assert_eq!(session.join(), Ok("stopped by itself"));
        }
        for outcome in submitted {
            match outcome.wait() {
                Ok(()) => {}
                Err(abort) => {
                    assert!(
                        matches!(abort.reason(), AbortReason::ShuttingDown | AbortReason::Deadlock),
                        "{abort}"
                    );
                }
            }
        }
    }
}

#[test]
fn what_does_not_end_is_dropped_at_the_deadline() {
    let db = open(two_tables(), 2);
    load_items(&db, 100, 1);
    let items = db.table::<Items>().unwrap();
    let endless = db.spawn_session::<()>(WorkerId(0), async move |session| {
        loop {
            let _ = session.run(&items.at(&1), async move |tx| transfer(tx, items, 1, 98).await).await;
            session.yield_now().await;
        }
    });
    let stuck = db.spawn_session(WorkerId(1), async move |_| std::future::pending::<()>().await);
    let report = db.close(Duration::from_millis(50));
    assert!(report.dropped >= 2, "{report:?}");
    for session in [endless.unwrap(), stuck.unwrap()] {
        let abort = session.join().unwrap_err();
        assert_eq!((abort.reason(), abort.reason().advice()), (AbortReason::ShuttingDown, Advice::Reopen));
        assert_eq!(abort.detail(), "the database is shutting down; open it again to go on");
    }
}

#[test]
fn a_database_can_be_dropped_with_work_under_way() {
    let db = open(two_tables(), 4);
    load_items(&db, 100, 1);
    let items = db.table::<Items>().unwrap();
    let submitted: Vec<_> = (0..200_u64)
        .map(|at| {
            db.submit(items.at(&(at % 100)), async move |tx| {
                transfer(tx, items, at % 100, 99 - at % 100).await
            })
            .unwrap()
        })
        .collect();
    drop(db);
    let refused = submitted.into_iter().map(atrapos::Submitted::wait).filter_map(Result::err);
    assert!(
        refused
            .into_iter()
            .all(|abort| matches!(abort.reason(), AbortReason::ShuttingDown | AbortReason::Deadlock))
    );
}

#[test]
fn sessions_come_back_with_their_results() {
    let db = open(two_tables(), 3);
    load_items(&db, 100, 1);
    let items = db.table::<Items>().unwrap();
    let sessions: Vec<_> = (0..6_u16)
        .map(|at| {
            // A number beyond the workers wraps around.
            let session = db.spawn_session(WorkerId(at), async move |session| {
                assert_eq!((session.worker().0, session.workers()), (at % 3, 3));
                let now = session.now();
                session.sleep_until(now).await;
                let mut owned = 0;
                for key in 0..100 {
                    owned += usize::from(session.owns(items, &key));
                    let there =
                        session.run(&items.at(&key), async move |tx| tx.get(items, key).await).await?;
                    assert_eq!(there, Some(item(1)));
                }
                assert!(!session.is_stopping());
                Ok::<_, Abort>(owned)
            });
            session.unwrap()
        })
        .collect();
    let owned: Vec<usize> = sessions.into_iter().map(|session| session.join().unwrap().unwrap()).collect();
    assert_eq!(owned, [33, 33, 34, 33, 33, 34]);
}

#[test]
fn an_outcome_can_be_awaited_elsewhere() {
    // `Submitted` is a future for whatever the caller runs futures with.
    let db = open(two_tables(), 2);
    load_items(&db, 100, 1);
    let items = db.table::<Items>().unwrap();
    let mut submitted =
        db.submit(items.at(&98), async move |tx| Ok(tx.get(items, 98).await?.map(|row| row.value))).unwrap();
    struct Wakes(mpsc::Sender<()>);
    impl std::task::Wake for Wakes {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(());
        }
    }
    let (sender, woken) = mpsc::channel();
    let waker = Arc::new(Wakes(sender)).into();
    let mut context = std::task::Context::from_waker(&waker);
    let outcome = loop {
        if let Poll::Ready(outcome) = Pin::new(&mut submitted).poll(&mut context) {
            break outcome;
        }
        woken.recv().unwrap();
    };
    assert_eq!(outcome, Ok(Some(1)));
}
