//! Secondary indexes and foreign keys follow their rows: in the same transaction, on whatever worker they are, and back
//! again on an abort. `Database::verify` agrees after every step.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use atrapos::{
    Abort, AbortReason, Database, Dependency, Index, KeyRange, Route, Schema, Table, Transaction,
    Verification, WorkerId, row,
};

use crate::support::{Engine, Random, for_seeds, open};

row! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct User {
        pub(crate) city: u32,
        pub(crate) visits: u32,
        pub(crate) email: String,
    }
}

pub(crate) struct Users;

impl Table for Users {
    type Key = u64;
    type Row = User;
    const NAME: &'static str = "users";
}

pub(crate) struct ByEmail;

impl Index for ByEmail {
    type Table = Users;
    type Key = String;
    const NAME: &'static str = "users_by_email";
    const UNIQUE: bool = true;

    fn key(_: &u64, user: &User) -> String {
        user.email.clone()
    }
}

pub(crate) struct ByCity;

impl Index for ByCity {
    type Table = Users;
    type Key = u32;
    const NAME: &'static str = "users_by_city";
    const UNIQUE: bool = false;
    const KEY_FROM: Option<&'static [&'static str]> = Some(&["city"]);

    fn key(_: &u64, user: &User) -> u32 {
        user.city
    }
}

pub(crate) fn user(city: u32, email: &str) -> User {
    User { city, visits: 0, email: email.to_owned() }
}

/// Cut so that a row and its entries are mostly on different workers.
pub(crate) fn users() -> Schema {
    let letters: Vec<String> = ('b'..='p').map(|letter| letter.to_string()).collect();
    Schema::new()
        .table::<Users>()
        .index::<ByEmail>()
        .index::<ByCity>()
        .split_evenly("users", 0, 99)
        .split_at("users_by_email", &letters)
        .split_at("users_by_city", &[1_u32, 2, 3, 4, 5, 6, 7])
}

fn verified(db: &Database) -> Verification {
    db.verify().expect("the database is whole")
}

/// The keys of the users of a city, and of the user with an address.
fn found(db: &Database, city: u32, email: &str) -> (Vec<u64>, Option<u64>) {
    let (users, by_email, by_city) = (db.table::<Users>().unwrap(), db.index().unwrap(), db.index().unwrap());
    let email = email.to_owned();
    db.run(users.at(&0), async move |tx| {
        let cities = tx.lookup_all::<ByCity>(by_city, KeyRange::prefix(&city), usize::MAX).await?;
        let by_email_row = tx.get_by::<ByEmail>(by_email, users, email.clone()).await?;
        assert!(by_email_row.as_ref().is_none_or(|(_, user)| user.email == email));
        Ok((cities, by_email_row.map(|(key, _)| key)))
    })
    .unwrap()
}

#[test]
fn entries_follow_their_rows() {
    for workers in [1, 2, 3, 8] {
        let db = open(users(), workers);
        let table = db.table::<Users>().unwrap();
        for home in 0..workers as u16 {
            let home = Route::worker(WorkerId(home));
            db.run(home.clone(), async move |tx| {
                tx.insert(table, 1, user(3, "ada")).await?;
                tx.join((table.insert(50, user(3, "joe")), table.insert(99, user(7, "zoe")))).await.map(drop)
            })
            .unwrap();
            assert_eq!(verified(&db), Verification { rows: 3, entries: 6, references: 0 });
            assert_eq!(found(&db, 3, "ada"), (vec![1, 50], Some(1)));
            assert_eq!(found(&db, 7, "nobody"), (vec![99], None));
            // Keys of both indexes change; one of them; none.
            db.run(home.clone(), async move |tx| {
                tx.update(table, 50, |row| *row = user(7, "moe")).await?;
                tx.update(table, 99, |row| row.city = 3).await?;
                tx.update(table, 1, |row| row.visits += 1).await.map(drop)
            })
            .unwrap();
            verified(&db);
            assert_eq!(found(&db, 3, "joe"), (vec![1, 99], None));
            assert_eq!(found(&db, 7, "moe"), (vec![50], Some(50)));
            db.run(home, async move |tx| {
                tx.join_all([1, 50, 99].map(|key| table.delete(key))).await.map(drop)
            })
            .unwrap();
            assert_eq!(found(&db, 3, "ada"), (vec![], None));
            assert_eq!(verified(&db), Verification::default());
        }
    }
}

#[test]
fn a_taken_key_of_a_unique_index_aborts_everything() {
    for workers in [1, 2, 8] {
        let db = open(users(), workers);
        let table = db.table::<Users>().unwrap();
        db.run(table.at(&1), async move |tx| {
            tx.insert(table, 1, user(1, "ada")).await?;
            tx.insert(table, 99, user(1, "joe")).await
        })
        .unwrap();
        for home in 0..workers as u16 {
            let home = Route::worker(WorkerId(home));
            let inserted = db.run(home.clone(), async move |tx| {
                tx.update(table, 99, |row| row.city = 5).await?;
                tx.insert(table, 60, user(2, "ada")).await
            });
            let updated = db.run(home.clone(), async move |tx| {
                tx.update(table, 99, |row| row.email = "ada".to_owned()).await
            });
            let if_absent = db.run(home.clone(), async move |tx| {
                tx.run(table.insert_if_absent(61, user(2, "ada"))).await.map(drop)
            });
            let in_a_phase = db.run(home, async move |tx| {
                tx.join((table.insert(62, user(2, "eve")), table.insert(63, user(2, "eve")))).await.map(drop)
            });
            for abort in
                [inserted.unwrap_err(), updated.unwrap_err(), if_absent.unwrap_err(), in_a_phase.unwrap_err()]
            {
                assert_eq!(abort.reason(), AbortReason::DuplicateKey);
                assert!(
                    abort.detail().contains("unique index 'users_by_email' already has a row"),
                    "{abort}"
                );
            }
            assert_eq!(verified(&db).rows, 2);
            assert_eq!(found(&db, 1, "ada"), (vec![1, 99], Some(1)));
        }
    }
}

#[test]
fn a_unique_key_can_pass_from_row_to_row_in_one_transaction() {
    let db = open(users(), 3);
    let table = db.table::<Users>().unwrap();
    let passed = db.run(table.at(&1), async move |tx| {
        tx.insert(table, 1, user(1, "ada")).await?;
        tx.delete(table, 1).await?;
        tx.insert(table, 60, user(1, "ada")).await?;
        tx.update(table, 60, |row| row.email = "eve".to_owned()).await?;
        tx.insert(table, 1, user(1, "ada")).await?;
        // Both at once: the old entry goes before the new one comes.
        tx.join((table.delete(1), table.insert(2, user(1, "ada")))).await.map(drop)
    });
    assert_eq!(passed, Ok(()));
    assert_eq!(verified(&db).rows, 2);
    assert_eq!(found(&db, 1, "ada"), (vec![2, 60], Some(2)));
}

#[test]
fn ranges_of_an_index_are_walked_in_its_order_and_limited() {
    let db = open(users(), 3);
    let (table, by_city) = (db.table::<Users>().unwrap(), db.index::<ByCity>().unwrap());
    db.run(table.at(&1), async move |tx| {
        tx.join_all((0..40).map(|key| table.insert(key, user((key * 7 % 8) as u32, &format!("u{key}")))))
            .await
            .map(drop)
    })
    .unwrap();
    let mut expected: Vec<(u32, u64)> = (0..40).map(|key| ((key * 7 % 8) as u32, key)).collect();
    expected.sort_unstable();
    type Inside = fn(u32) -> bool;
    let ranges: [(KeyRange, Inside); 5] = [
        (KeyRange::all(), |_| true),
        (KeyRange::prefix(&3_u32), |city| city == 3),
        (KeyRange::between(&2_u32, &6_u32), |city| (2..6).contains(&city)),
        (KeyRange::through(&2_u32, &6_u32), |city| (2..=6).contains(&city)),
        (KeyRange::between(&6_u32, &2_u32), |_| false),
    ];
    for (range, inside) in ranges {
        for limit in [0, 1, 5, 39, 100] {
            let range = range.clone();
            let found =
                db.run(table.at(&1), async move |tx| tx.lookup_all(by_city, range.clone(), limit).await);
            let expected = expected.iter().filter(|(city, _)| inside(*city)).map(|(_, key)| *key);
            assert_eq!(found, Ok(expected.take(limit).collect()), "at most {limit}");
        }
    }
}

#[test]
fn the_row_that_a_lookup_leads_to_is_changed_wherever_it_is() {
    for workers in [1, 2, 3, 8] {
        let db = open(users(), workers);
        let (table, by_city) = (db.table::<Users>().unwrap(), db.index::<ByCity>().unwrap());
        let keys = [3, 20, 35, 60, 98];
        db.run(table.at(&1), async move |tx| {
            tx.join_all(keys.map(|key| table.insert(key, user((key % 8) as u32, &format!("u{key}")))))
                .await
                .map(drop)
        })
        .unwrap();
        // Visits the last row of a range of the index, which has several partitions.
        let visit = |home: u16, range: KeyRange, panics: bool| {
            db.run(Route::worker(WorkerId(home)), async move |tx| {
                let latest = |latest: &mut Option<u64>, key| {
                    *latest = Some(key);
                    ControlFlow::Continue(())
                };
                let visit = move |latest: Option<u64>| {
                    assert!(!panics, "as planned");
                    latest.map(|key| {
                        table.update(key, move |row| {
                            row.visits += 1;
                            (key, row.visits)
                        })
                    })
                };
                tx.lookup_then(by_city, range.clone(), None, latest, visit).await
            })
        };
        for home in 0..workers as u16 {
            let visits = u32::from(home) + 1;
            // Of the cities 2, 3, 3, 4 and 4, in order of the keys.
            assert_eq!(visit(home, KeyRange::all(), false), Ok(Some(Some((60, visits)))));
            assert_eq!(visit(home, KeyRange::through(&2_u32, &3_u32), false), Ok(Some(Some((35, visits)))));
            assert_eq!(visit(home, KeyRange::prefix(&7_u32), false), Ok(None));
            let abort = visit(home, KeyRange::all(), true).unwrap_err();
            assert_eq!(abort.reason(), AbortReason::Panic, "{abort}");
        }
        verified(&db);
    }
}

// --- Random transactions against a model -----------------------------------------------------------------------------

/// Runs random transactions over indexed rows, many of which abort, and looks every row up through both indexes after
/// each.
///
/// # Errors
/// How rows and indexes differ.
pub(crate) fn random_history(
    engine: &mut Engine,
    workers: u64,
    seed: u64,
    transactions: u64,
) -> Result<(), String> {
    let (table, by_email, by_city) =
        (engine.table::<Users>(), engine.index::<ByEmail>(), engine.index::<ByCity>());
    let mut random = Random::new(seed);
    let mut model: BTreeMap<u64, User> = BTreeMap::new();
    for _ in 0..transactions {
        let home = Route::worker(WorkerId(random.below(workers) as u16));
        let aborts = random.chance(40);
        let (before, choices) = (model.clone(), random.part(0));
        random.next();
        let ran = engine.run(home, async move |tx| {
            let (mut rows, mut random) = (before.clone(), choices.clone());
            for _ in 0..random.below(8) {
                let key = random.below(10) * 11;
                // Addresses are taken or free by chance.
                let new =
                    user(random.below(8) as u32, &format!("{}", (b'a' + random.below(16) as u8) as char));
                let taken = rows.iter().any(|(other, row)| *other != key && row.email == new.email);
                match random.below(3) {
                    0 if !taken => {
                        let there = !tx.run(table.insert_if_absent(key, new.clone())).await?;
                        assert_eq!(there, rows.contains_key(&key));
                        rows.entry(key).or_insert(new);
                    }
                    1 if !taken => {
                        let row = new.clone();
                        tx.update(table, key, move |old| *old = row).await?;
                        rows.entry(key).and_modify(|row| *row = new);
                    }
                    0 | 1 => {}
                    _ => assert_eq!(tx.delete(table, key).await?, rows.remove(&key)),
                }
            }
            if aborts { Err(Abort::user("as planned")) } else { Ok(rows) }
        });
        match ran {
            Ok(after) => model = after,
            Err(abort) if aborts && abort.reason() == AbortReason::User => {}
            Err(abort) => return Err(abort.to_string()),
        }
        let expected = model.clone();
        let agrees = engine.run(Route::worker(WorkerId(0)), async move |tx| {
            let mut by_city_key: Vec<(u32, u64)> =
                expected.iter().map(|(key, row)| (row.city, *key)).collect();
            by_city_key.sort_unstable();
            let wanted: Vec<u64> = by_city_key.into_iter().map(|(_, key)| key).collect();
            let found = tx.lookup_all(by_city, KeyRange::all(), usize::MAX).await?;
            if found != wanted {
                return Ok(Err(format!("the index by city leads to {found:?}, but should to {wanted:?}")));
            }
            for letter in 'a'..='p' {
                let email = letter.to_string();
                let wanted =
                    expected.iter().find(|(_, row)| row.email == email).map(|(key, row)| (*key, row.clone()));
                let found = tx.get_by(by_email, table, email).await?;
                if found != wanted {
                    return Ok(Err(format!(
                        "the index by address leads to {found:?}, but should to {wanted:?}"
                    )));
                }
            }
            Ok(Ok(()))
        });
        agrees.map_err(|abort| abort.to_string())??;
    }
    Ok(())
}

#[test]
fn random_transactions_and_aborts_keep_rows_and_indexes_together() {
    for_seeds(6, |seed| {
        let workers = 1 + seed % 4;
        let mut engine = Engine::threads(users(), workers as usize);
        random_history(&mut engine, workers, seed, 100).unwrap();
        let Engine::Threads(db, _) = engine else { unreachable!("it runs on threads") };
        verified(&db);
    });
}

#[test]
fn random_transactions_and_aborts_keep_rows_and_indexes_together_simulated() {
    for_seeds(15, |seed| {
        let workers = 1 + seed % 4;
        let mut engine = Engine::simulated(users(), workers as usize, seed);
        random_history(&mut engine, workers, seed, 40).unwrap();
    });
}

#[test]
fn concurrent_sessions_keep_rows_and_indexes_together() {
    let mut engine = Engine::threads(users(), 8);
    let table = engine.table::<Users>();
    let ended = engine.sessions(16, 8, async move |session, at| {
        let mut random = Random::new(at as u64);
        let mut committed = 0;
        for _ in 0..150 {
            let (key, city) = (random.below(20) * 5, random.below(8) as u32);
            let email = format!("{}{}", (b'a' + random.below(16) as u8) as char, random.below(3));
            let (kind, aborts) = (random.below(3), random.chance(20));
            let ran = session
                .run(&table.at(&key), async move |tx| {
                    let new = user(city, &email);
                    match kind {
                        0 => drop(tx.run(table.insert_if_absent(key, new)).await?),
                        1 => drop(tx.update(table, key, move |row| *row = new).await?),
                        _ => drop(tx.delete(table, key).await?),
                    }
                    if aborts { Err(Abort::user("as planned")) } else { Ok(()) }
                })
                .await;
            match ran.map_err(|abort| abort.reason()) {
                Ok(()) => committed += 1,
                Err(AbortReason::User | AbortReason::DuplicateKey | AbortReason::Deadlock) => {}
                Err(reason) => panic!("a transaction aborted for {reason}"),
            }
        }
        committed
    });
    // `sessions` has verified the database.
    assert!(ended.unwrap().into_iter().sum::<i32>() > 16 * 50);
}

// --- Foreign keys -------------------------------------------------------------------------------------------------------

row! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct Order {
        pub(crate) cents: i64,
    }
}

/// Orders of a user: the user's key is the first part of theirs.
pub(crate) struct Orders;

impl Table for Orders {
    type Key = (u64, u32);
    type Row = Order;
    const NAME: &'static str = "orders";
}

row! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct Car {
        pub(crate) owner: u64,
    }
}

/// Cars have keys of their own and name their owner, a user.
pub(crate) struct Cars;

impl Table for Cars {
    type Key = u32;
    type Row = Car;
    const NAME: &'static str = "cars";
}

pub(crate) struct CarsByOwner;

impl Index for CarsByOwner {
    type Table = Cars;
    type Key = u64;
    const NAME: &'static str = "cars_by_owner";
    const UNIQUE: bool = false;

    fn key(_: &u32, car: &Car) -> u64 {
        car.owner
    }
}

/// Parents, children by prefix and children by index, all cut differently.
pub(crate) fn family(enforced: bool) -> Schema {
    users()
        .table::<Orders>()
        .table::<Cars>()
        .index::<CarsByOwner>()
        .foreign_key_by_prefix::<Orders, Users>(|key| key.0, enforced)
        .foreign_key_by_index::<CarsByOwner, Users>(|_, car| car.owner, enforced)
        .split_at("orders", &[10_u64, 20, 30, 60])
        .split_at("cars", &[100_u32, 200, 300])
        .split_at("cars_by_owner", &[5_u64, 50, 70])
}

#[test]
fn children_need_their_parents_and_parents_outlive_their_children() {
    for workers in [1, 2, 3, 8] {
        let db = open(family(true), workers);
        let (users, orders, cars) =
            (db.table::<Users>().unwrap(), db.table::<Orders>().unwrap(), db.table::<Cars>().unwrap());
        for home in 0..workers as u16 {
            let home = Route::worker(WorkerId(home));
            let refused = |abort: Abort, what: &str| {
                assert_eq!(abort.reason(), AbortReason::ForeignKey);
                assert!(abort.detail().contains(what), "{abort}");
                verified(&db);
            };
            let no_parent = "table 'users' has no row";
            let order =
                db.run(home.clone(), async move |tx| tx.insert(orders, (55, 1), Order { cents: 1 }).await);
            refused(order.unwrap_err(), no_parent);
            let car = db.run(home.clone(), async move |tx| tx.insert(cars, 250, Car { owner: 55 }).await);
            refused(car.unwrap_err(), no_parent);

            // Parent and children in one transaction, and even in one phase: the reference is looked at when all are there.
            db.run(home.clone(), async move |tx| {
                tx.join((users.insert(55, user(1, "ada")), orders.insert((55, 1), Order { cents: 1 })))
                    .await?;
                tx.insert(users, 56, user(1, "eve")).await?;
                tx.insert(cars, 250, Car { owner: 55 }).await
            })
            .unwrap();
            assert_eq!(verified(&db), Verification { rows: 4, entries: 5, references: 2 });

            let move_car = async move |tx: &mut atrapos::Tx<'_>, to: u64| {
                tx.update(cars, 250, move |car| car.owner = to).await.map(drop)
            };
            refused(db.run(home.clone(), async move |tx| move_car(tx, 77).await).unwrap_err(), no_parent);
            let parent = db.run(home.clone(), async move |tx| tx.delete(users, 55).await);
            refused(parent.unwrap_err(), "still has rows that refer to the row");
            db.run(home.clone(), async move |tx| tx.delete(orders, (55, 1)).await).unwrap();
            let parent = db.run(home.clone(), async move |tx| tx.delete(users, 55).await);
            refused(parent.unwrap_err(), "table 'cars' still has rows");
            // The car gets another owner; now nobody refers to the first one.
            db.run(home.clone(), async move |tx| {
                move_car(tx, 56).await?;
                tx.delete(users, 55).await.map(drop)
            })
            .unwrap();
            let parent = db.run(home.clone(), async move |tx| tx.delete(users, 56).await);
            refused(parent.unwrap_err(), "table 'cars' still has rows");
            db.run(home, async move |tx| {
                tx.delete(cars, 250).await?;
                tx.delete(users, 56).await.map(drop)
            })
            .unwrap();
            assert_eq!(verified(&db), Verification::default());
        }
        let [users, orders, cars] = [users.id(), orders.id(), cars.id()];
        let by_owner = db.index::<CarsByOwner>().unwrap().id();
        let declared = [
            Dependency { child: orders, parent: users, enforced: true, through: None },
            Dependency { child: cars, parent: users, enforced: true, through: Some(by_owner) },
        ];
        assert_eq!(db.dependencies(), declared);
    }
}

#[test]
fn foreign_keys_that_are_not_enforced_refuse_nothing() {
    let db = open(family(false), 2);
    let (orders, cars) = (db.table::<Orders>().unwrap(), db.table::<Cars>().unwrap());
    db.run(cars.at(&1), async move |tx| {
        tx.insert(orders, (55, 1), Order { cents: 1 }).await?;
        tx.insert(cars, 250, Car { owner: 55 }).await
    })
    .unwrap();
    assert_eq!(verified(&db), Verification { rows: 2, entries: 1, references: 0 });
    assert!(db.dependencies().iter().all(|dependency| !dependency.enforced));
    assert_eq!(db.dependencies().len(), 2);
}

#[test]
fn parents_and_children_that_come_and_go_at_once_never_disagree() {
    let mut engine = Engine::threads(family(true), 8);
    let (users, orders, cars) = (engine.table::<Users>(), engine.table::<Orders>(), engine.table::<Cars>());
    let ended = engine.sessions(16, 8, async move |session, at| {
        let mut random = Random::new(at as u64);
        let mut outcomes = [0_u32; 2];
        for _ in 0..150 {
            let (parent, child, kind) = (random.below(4) * 25, random.below(3) as u32, random.below(6));
            let car = child * 100 + parent as u32;
            let ran = session
                .run(&Route::worker(session.worker()), async move |tx| match kind {
                    0 => {
                        tx.run(users.insert_if_absent(parent, user(1, &format!("u{parent}")))).await.map(drop)
                    }
                    1 => tx.delete(users, parent).await.map(drop),
                    2 => tx.run(orders.insert_if_absent((parent, child), Order { cents: 1 })).await.map(drop),
                    3 => tx.delete(orders, (parent, child)).await.map(drop),
                    4 => tx.run(cars.insert_if_absent(car, Car { owner: parent })).await.map(drop),
                    _ => tx.delete(cars, car).await.map(drop),
                })
                .await;
            match ran.map_err(|abort| abort.reason()) {
                Ok(()) => outcomes[0] += 1,
                Err(AbortReason::ForeignKey) => outcomes[1] += 1,
                Err(AbortReason::Deadlock) => {}
                Err(reason) => panic!("a transaction aborted for {reason}"),
            }
        }
        outcomes
    });
    // `sessions` has verified the database, references included.
    let outcomes = ended.unwrap();
    assert!((0..2).all(|at| outcomes.iter().map(|outcome| outcome[at]).sum::<u32>() > 50), "{outcomes:?}");
}

/// Users and their cars come and go in one phase, whatever order its actions are given in.
///
/// # Errors
/// What a transaction aborted for, which none should.
pub(crate) fn families_at_once(engine: &mut Engine, workers: u64) -> Result<(), String> {
    let (users, cars) = (engine.table::<Users>(), engine.table::<Cars>());
    // Of users and their cars, and of the entries of these, some are on the home and some are not.
    for (owner, car) in [(1, 250), (55, 50), (60, 350), (99, 150)] {
        for (home, child_first) in (0..workers).flat_map(|home| [(home, false), (home, true)]) {
            let home = Route::worker(WorkerId(home as u16));
            let come = engine.run(home.clone(), async move |tx| {
                let parent = users.insert(owner, user(1, "ada"));
                let child = cars.insert(car, Car { owner });
                if child_first {
                    tx.join((child, parent)).await.map(drop)
                } else {
                    tx.join((parent, child)).await.map(drop)
                }
            });
            come.map_err(|abort| format!("owner {owner} comes: {abort}"))?;
            let go = engine.run(home, async move |tx| {
                let (parent, child) = (users.delete(owner), cars.delete(car));
                if child_first {
                    tx.join((child, parent)).await.map(drop)
                } else {
                    tx.join((parent, child)).await.map(drop)
                }
            });
            go.map_err(|abort| format!("owner {owner} goes: {abort}"))?;
        }
    }
    Ok(())
}

#[test]
fn parents_and_children_by_index_come_and_go_in_one_phase_wherever_they_are() {
    for workers in [1, 2, 3, 8] {
        let mut engine = Engine::threads(family(true), workers);
        families_at_once(&mut engine, workers as u64).unwrap();
        let Engine::Threads(db, _) = engine else { unreachable!("it runs on threads") };
        assert_eq!(verified(&db), Verification::default());
    }
}

#[test]
fn a_parent_does_not_go_before_a_child_that_stays() {
    let db = open(family(true), 3);
    let (users, cars) = (db.table::<Users>().unwrap(), db.table::<Cars>().unwrap());
    for home in 0..3 {
        let home = Route::worker(WorkerId(home));
        db.run(home.clone(), async move |tx| {
            tx.insert(users, 55, user(1, "ada")).await?;
            tx.join((cars.insert(50, Car { owner: 55 }), cars.insert(250, Car { owner: 55 }))).await.map(drop)
        })
        .unwrap();
        let one_stays = db
            .run(home.clone(), async move |tx| tx.join((users.delete(55), cars.delete(50))).await.map(drop));
        assert_eq!(one_stays.unwrap_err().reason(), AbortReason::ForeignKey);
        let one_comes = db.run(home.clone(), async move |tx| {
            tx.join((users.delete(55), cars.delete(50), cars.delete(250), cars.insert(60, Car { owner: 55 })))
                .await
                .map(drop)
        });
        assert_eq!(one_comes.unwrap_err().reason(), AbortReason::ForeignKey);
        db.run(home, async move |tx| {
            tx.join((users.delete(55), cars.delete(50), cars.delete(250))).await.map(drop)
        })
        .unwrap();
        assert_eq!(verified(&db), Verification::default());
    }
}

/// An index that names a column it cannot.
struct Misnamed<const VARIABLE: bool>;

impl<const VARIABLE: bool> Index for Misnamed<VARIABLE> {
    type Table = Users;
    type Key = u32;
    const NAME: &'static str = "misnamed";
    const UNIQUE: bool = false;
    const KEY_FROM: Option<&'static [&'static str]> =
        if VARIABLE { Some(&["city", "email"]) } else { Some(&["town"]) };

    fn key(_: &u64, user: &User) -> u32 {
        user.city
    }
}

#[test]
fn columns_that_no_key_can_be_made_of_are_refused() {
    let opened = |schema: Schema| Database::builder(schema).workers(1).pin(false).in_memory();
    let refused = opened(Schema::new().table::<Users>().index::<Misnamed<false>>()).unwrap_err().to_string();
    assert!(refused.contains("'misnamed'") && refused.contains("'town'"), "{refused}");
    let refused = opened(Schema::new().table::<Users>().index::<Misnamed<true>>()).unwrap_err().to_string();
    assert!(refused.contains("'email'") && refused.contains("fixed size"), "{refused}");
}
