//! Loading many rows: by all workers at once, wherever the rows belong, all of them or none.

use std::sync::{Arc, Mutex, mpsc};

use atrapos::{Abort, AbortReason, Database, KeyRange, LoadError, LoadProgress, Loader, Route, WorkerId};

use crate::indexes::{ByEmail, Car, Cars, Order, Orders, User, Users, family, user, users};
use crate::support::{Item, Items, item, load_items, open, two_tables};

const ROWS: u64 = 20_000;

fn rows_of(db: &Database) -> Vec<(u64, Item)> {
    let items = db.table::<Items>().unwrap();
    db.run(items.at(&0), async move |tx| tx.scan(items, KeyRange::all(), usize::MAX).await).unwrap()
}

#[test]
fn workers_load_their_shares_in_parallel() {
    for workers in [1, 2, 3, 8] {
        let schema = atrapos::Schema::new().table::<Items>().split_evenly("items", 1, ROWS);
        let db = open(schema, workers);
        let items = db.table::<Items>().unwrap();
        let progress = LoadProgress::default();
        let shares: Arc<Mutex<Vec<u64>>> = Arc::default();
        let seen = Arc::clone(&shares);
        let loaded = db.load(&progress, move |loader| {
            assert_eq!(loader.workers(), workers);
            for key in loader.share_of(items, 1, ROWS).into_iter().flatten() {
                assert!(loader.owns(items, &key), "worker {:?} owns its share", loader.worker());
                loader.add(items, &key, &item(key as i64))?;
                seen.lock().unwrap().push(key);
            }
            Ok(())
        });
        assert_eq!((loaded, progress.rows()), (Ok(ROWS), ROWS));
        let mut all = shares.lock().unwrap().clone();
        all.sort_unstable();
        assert_eq!(all, (1..=ROWS).collect::<Vec<_>>(), "the shares are all of it, each row once");
        assert_eq!(db.len(items.id()), Ok(ROWS));
        assert_eq!(db.verify().unwrap().rows, ROWS);
        assert!(
            rows_of(&db)
                .iter()
                .zip(1..)
                .all(|((key, row), expected)| *key == expected && row.value == expected as i64)
        );
        assert!(db.memory_bytes().unwrap() > ROWS as usize * 8);
        let of_tables = db.table_bytes().unwrap();
        assert_eq!(of_tables.values().sum::<usize>(), db.memory_bytes().unwrap());
    }
}

#[test]
fn shares_are_cut_to_what_is_asked_for() {
    let db = open(two_tables(), 4);
    let items = db.table::<Items>().unwrap();
    type Share = Vec<std::ops::RangeInclusive<u64>>;
    let shares: Arc<Mutex<Vec<(u16, Share)>>> = Arc::default();
    let seen = Arc::clone(&shares);
    db.load(&LoadProgress::default(), move |loader| {
        for (first, last) in [(0, u64::MAX), (30, 60), (26, 26), (99, 3)] {
            seen.lock().unwrap().push((loader.worker().0, loader.share_of(items, first, last)));
        }
        Ok(())
    })
    .unwrap();
    let mut shares = shares.lock().unwrap().clone();
    shares.sort_by_key(|(worker, _)| *worker);
    let shares: Vec<Share> = shares.into_iter().map(|(_, share)| share).collect();
    #[rustfmt::skip]
    let expected: [&[std::ops::RangeInclusive<u64>]; 16] = [
        &[0..=24], &[], &[], &[],
        &[25..=49], &[30..=49], &[26..=26], &[],
        &[50..=74], &[50..=60], &[], &[],
        &[75..=u64::MAX], &[], &[], &[],
    ];
    assert_eq!(shares, expected);
}

/// Loads keys `0..rows` in an odd order, each on a worker that mostly does not own it.
fn load_scattered(
    loader: &mut Loader<'_>,
    items: atrapos::TableRef<Items>,
    rows: u64,
) -> Result<(), LoadError> {
    for at in 0..rows {
        let key = at * 7919 % rows;
        if at % loader.workers() as u64 == u64::from(loader.worker().0) {
            loader.add(items, &key, &item(key as i64))?;
        }
    }
    Ok(())
}

#[test]
fn rows_may_come_in_any_order_on_any_worker() {
    for workers in [1, 2, 8] {
        let db = open(two_tables(), workers);
        let items = db.table::<Items>().unwrap();
        let loaded = db.load(&LoadProgress::default(), move |loader| load_scattered(loader, items, 5000));
        assert_eq!(loaded, Ok(5000));
        assert_eq!(db.verify().unwrap().rows, 5000);
        assert!(
            rows_of(&db)
                .iter()
                .zip(0..)
                .all(|((key, row), expected)| *key == expected && row.value == expected as i64)
        );
        // Waits until the locks of the scan above are released everywhere.
        db.verify().unwrap();
        // On top of what is there.
        let more = db.load(&LoadProgress::default(), move |loader| {
            for key in loader.share_of(items, 5000, 6000).into_iter().flatten().rev() {
                loader.add(items, &key, &item(0))?;
            }
            Ok(())
        });
        assert_eq!(more, Ok(1001));
        assert_eq!(db.verify().unwrap().rows, 6001);
    }
}

#[test]
fn indexes_are_loaded_with_their_rows() {
    for workers in [1, 3] {
        let db = open(users(), workers);
        let (table, by_email) = (db.table::<Users>().unwrap(), db.index::<ByEmail>().unwrap());
        db.load(&LoadProgress::default(), move |loader| {
            for key in loader.share_of(table, 0, 999).into_iter().flatten() {
                let letter = (b'a' + (key % 16) as u8) as char;
                loader.add(table, &key, &user((key % 8) as u32, &format!("{letter}{key}")))?;
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(db.verify().unwrap().entries, 2000);
        let found = db.run(by_email.at(&"d867".to_owned()), async move |tx| {
            tx.get_by(by_email, table, "d867".to_owned()).await
        });
        assert_eq!(found.unwrap().map(|(key, _)| key), Some(867));
    }
}

/// Runs a load that has to fail, and checks that nothing of it is left and everything from before is.
fn fails(
    db: &Database,
    add_rows: impl Fn(&mut Loader<'_>) -> Result<(), LoadError> + Clone + Send + 'static,
) -> LoadError {
    let before = (db.verify().unwrap(), sizes(db));
    let error = db.load(&LoadProgress::default(), add_rows).expect_err("the load cannot succeed");
    assert_eq!((db.verify().unwrap(), sizes(db)), before, "after: {error}");
    error
}

fn sizes(db: &Database) -> Vec<u64> {
    db.table_names().map(|(id, _)| db.len(id).unwrap()).collect()
}

#[test]
fn a_key_that_comes_twice_leaves_nothing() {
    for workers in [1, 2, 8] {
        let db = open(two_tables(), workers);
        let items = db.table::<Items>().unwrap();
        // In order, out of order, on two workers.
        let in_order = move |loader: &mut Loader<'_>| {
            loader
                .share_of(items, 0, 99)
                .into_iter()
                .flatten()
                .try_for_each(|key| loader.add(items, &key.max(98), &item(0)))
        };
        let out_of_order = move |loader: &mut Loader<'_>| {
            [5, 4, 3, 5]
                .into_iter()
                .filter(|_| loader.worker().0 == 0)
                .collect::<Vec<u64>>()
                .into_iter()
                .try_for_each(|key| loader.add(items, &key, &item(0)))
        };
        let on_all = move |loader: &mut Loader<'_>| loader.add(items, &77, &item(0));
        for error in [fails(&db, in_order), fails(&db, out_of_order)] {
            assert!(matches!(error, LoadError::Duplicate { table: "items", .. }), "{error}");
            assert!(error.to_string().contains("has key 0x00000000000000"), "{error}");
        }
        if workers > 1 {
            assert!(matches!(fails(&db, on_all), LoadError::Duplicate { table: "items", .. }));
        }
        load_items(&db, 100, 1);
        assert!(matches!(fails(&db, on_all), LoadError::Duplicate { .. }), "the row is there from before");
        assert_eq!(rows_of(&db).len(), 100);
        assert!(rows_of(&db).iter().all(|(_, row)| row.value == 1));
    }
}

#[test]
fn a_key_that_comes_twice_in_a_unique_index_leaves_nothing() {
    for workers in [1, 2, 8] {
        let db = open(users(), workers);
        let table = db.table::<Users>().unwrap();
        let twice = move |loader: &mut Loader<'_>| {
            for key in loader.share_of(table, 0, 99).into_iter().flatten() {
                // The first and the last have the same.
                loader.add(table, &key, &user(1, &format!("u{}", key % 99)))?;
            }
            Ok(())
        };
        assert!(matches!(fails(&db, twice), LoadError::Duplicate { table: "users_by_email", .. }));
        // Taking no notice of the error does not help.
        let ignored = move |loader: &mut Loader<'_>| {
            for key in loader.share_of(table, 0, 99).into_iter().flatten() {
                let _ = loader.add(table, &key, &user(1, "ada"));
            }
            Ok(())
        };
        assert!(matches!(fails(&db, ignored), LoadError::Duplicate { table: "users_by_email", .. }));
        assert_eq!(sizes(&db), [0, 0, 0]);
    }
}

#[test]
fn rows_without_their_parents_leave_nothing() {
    for workers in [1, 2, 8] {
        let db = open(family(true), workers);
        let (users, orders, cars) =
            (db.table::<Users>().unwrap(), db.table::<Orders>().unwrap(), db.table::<Cars>().unwrap());
        let load_users = move |loader: &mut Loader<'_>, last: u64| {
            for key in loader.share_of(users, 0, last).into_iter().flatten() {
                loader.add(users, &key, &user(1, &format!("u{key}")))?;
            }
            Ok::<(), LoadError>(())
        };
        let no_parent = fails(&db, move |loader| {
            load_users(loader, 49)?;
            if loader.worker().0 == 0 {
                (0..=50).try_for_each(|key| loader.add(orders, &(key, 1), &Order { cents: 1 }))?;
            }
            Ok(())
        });
        assert_eq!(
            no_parent.to_string(),
            "a row of table 'orders' refers to key 0x0000000000000032 of table 'users', which has no such row; load that one too"
        );
        let no_owner = fails(&db, move |loader| {
            load_users(loader, 49)?;
            if loader.worker().0 == 0 { loader.add(cars, &7, &Car { owner: 50 }) } else { Ok(()) }
        });
        assert!(matches!(no_owner, LoadError::NoParent { child: "cars", parent: "users", .. }));
        // With parents from the same load, and from an earlier one.
        db.load(&LoadProgress::default(), move |loader| {
            load_users(loader, 50)?;
            if loader.worker().0 == 0 { loader.add(cars, &7, &Car { owner: 50 }) } else { Ok(()) }
        })
        .unwrap();
        db.load(&LoadProgress::default(), move |loader| {
            if loader.worker().0 == 0 { loader.add(orders, &(50, 1), &Order { cents: 1 }) } else { Ok(()) }
        })
        .unwrap();
        assert_eq!(db.verify().unwrap().references, 2);
    }
}

#[test]
fn whatever_fails_on_one_worker_only_leaves_nothing() {
    for workers in [1, 3, 8] {
        let db = open(two_tables(), workers);
        let items = db.table::<Items>().unwrap();
        load_items(&db, 10, 1);
        let last = workers as u16 - 1;
        let stop = move |loader: &mut Loader<'_>| {
            let keys: Vec<u64> = loader.share_of(items, 10, 99).into_iter().flatten().collect();
            keys.into_iter().try_for_each(|key| loader.add(items, &key, &item(0)))?;
            loader.add(items, &(1000 + u64::from(loader.worker().0)), &item(0))
        };
        let taken = fails(&db, move |loader| {
            stop(loader)?;
            if loader.worker().0 == last { loader.add(items, &0, &item(0)) } else { Ok(()) }
        });
        assert!(matches!(taken, LoadError::Duplicate { .. }), "row 0 is there: {taken}");
        let gave_up = fails(&db, move |loader| {
            stop(loader)?;
            if loader.worker().0 == last {
                Err(LoadError::Source("the file ends too early".to_owned()))
            } else {
                Ok(())
            }
        });
        assert_eq!(gave_up.to_string(), "the file ends too early");
        let too_long = Item { value: 0, text: "x".repeat(1 << 20) };
        let too_large = fails(&db, move |loader| {
            stop(loader)?;
            if loader.worker().0 == last { loader.add(items, &500, &too_long) } else { Ok(()) }
        });
        assert!(matches!(too_large, LoadError::DoesNotFit { table: "items", .. }), "{too_large}");
        let panicked = fails(&db, move |loader| {
            stop(loader)?;
            assert!(loader.worker().0 != last, "as planned");
            Ok(())
        });
        let LoadError::Aborted(abort) = panicked else { panic!("it was a panic") };
        assert_eq!(abort.reason(), AbortReason::Panic);
        assert!(abort.detail().contains("as planned"), "{abort}");
        // And then it works.
        assert_eq!(db.load(&LoadProgress::default(), stop), Ok(90 + workers as u64));
        assert_eq!(db.verify().unwrap().rows, 100 + workers as u64);
    }
}

#[test]
fn a_handle_of_another_database_loads_nothing() {
    let (db, other) = (open(two_tables(), 2), open(users(), 2));
    let foreign = other.table::<Users>().unwrap();
    let error =
        fails(&db, move |loader| loader.add(foreign, &1, &User { city: 1, visits: 1, email: String::new() }));
    assert!(
        matches!(&error, LoadError::Aborted(abort) if abort.reason() == AbortReason::UnknownTable),
        "{error}"
    );
}

#[test]
fn a_table_in_use_is_not_loaded() {
    let db = open(two_tables(), 2);
    let items = db.table::<Items>().unwrap();
    load_items(&db, 100, 1);
    // A transaction with its home on worker 0 has changed a row there and now changes one on worker 1, where it is held up.
    let (go_on, held_up) = mpsc::channel::<()>();
    let held_up = Arc::new(Mutex::new(held_up));
    let (reached, is_there) = mpsc::channel::<()>();
    let transaction = db
        .submit(Route::worker(WorkerId(0)), async move |tx| {
            tx.update(items, 0, |row| row.value = 2).await?;
            let (held_up, reached) = (Arc::clone(&held_up), reached.clone());
            tx.update(items, 99, move |_| {
                let _ = reached.send(());
                let _ = held_up.lock().unwrap().recv();
            })
            .await
            .map(drop)
        })
        .unwrap();
    is_there.recv().unwrap();
    let loaded = db.load(&LoadProgress::default(), move |loader| {
        let added = if loader.worker().0 == 0 { loader.add(items, &20, &item(0)) } else { Ok(()) };
        let _ = go_on.send(());
        added
    });
    assert_eq!(transaction.wait(), Ok::<(), Abort>(()));
    let error = loaded.unwrap_err();
    assert_eq!(error.to_string(), "table 'items' is in use by transactions; load it before they start");
    assert_eq!(db.verify().unwrap().rows, 100);
}
