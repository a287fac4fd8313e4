//! Ranges: read forward and backward, bounded by leading values, and changed under one exclusive lock.

use std::ops::Bound::{Excluded, Included, Unbounded};
use std::ops::ControlFlow;

use atrapos::catalog::Value;
use atrapos::{KeyRange, Route, WorkerId};

use super::{directory_of, number, people, refused, reopen, text};
use crate::indexes::{Users, user, users};
use crate::isolation::by_hand;
use crate::support::{
    Engine, Items, Random, STEPS_MAX, for_seeds, item, load_items, open, simulate, two_tables,
};

#[test]
fn ranges_are_bounded_by_leading_values_and_walked_both_ways() {
    let files = directory_of(vec![people()]);
    let db = reopen(&files, 2);
    let people = db.table_named("people").unwrap();
    db.run(people.at(&[]).unwrap(), async move |tx| {
        for country in ["at", "ch", "de"] {
            for id in 1..=3 {
                tx.insert_row(&people, &[("number", number(id)), ("country", text(country))]).await?;
            }
        }
        let (at, ch, de) = ([text("at")], [text("ch")], [text("de")]);
        let ch_two = [text("ch"), number(2)];
        // Numbers descend.
        let all: Vec<(&str, u64)> =
            ["at", "ch", "de"].iter().flat_map(|country| [3, 2, 1].map(|id| (*country, id))).collect();
        let cases = [
            (people.prefix(&[])?, 0..9),
            (people.prefix(&ch)?, 3..6),
            (people.range(Included(&ch[..]), Unbounded)?, 3..9),
            (people.range(Excluded(&ch[..]), Unbounded)?, 6..9),
            (people.range(Unbounded, Excluded(&ch[..]))?, 0..3),
            (people.range(Unbounded, Included(&ch_two[..]))?, 0..5),
            (people.range(Excluded(&ch_two[..]), Excluded(&de[..]))?, 5..6),
            (people.range(Excluded(&de[..]), Included(&at[..]))?, 0..0),
        ];
        for (range, expected) in cases {
            for limit in [0, 1, 2, 100] {
                let (mut forward, mut backward) = (Vec::new(), Vec::new());
                for row in tx.scan(&people, range.clone(), limit).await? {
                    forward.push((row.get(&people, "country")?, row.get(&people, "number")?));
                }
                for row in tx.scan_backward(&people, range.clone(), limit).await? {
                    backward.push((row.get(&people, "country")?, row.get(&people, "number")?));
                }
                let expected: Vec<(Value, Value)> =
                    all[expected.clone()].iter().map(|(country, id)| (text(country), number(*id))).collect();
                assert_eq!(forward, expected[..limit.min(expected.len())]);
                let behind: Vec<_> = expected.into_iter().rev().take(limit).collect();
                assert_eq!(backward, behind);
            }
        }
        assert!(refused(people.range(Included(&[number(1)]), Unbounded)).contains("'country'"));
        Ok(())
    })
    .unwrap();
}

#[test]
fn rows_are_folded_where_they_are() {
    let db = open(two_tables(), 3);
    load_items(&db, 100, 2);
    let items = db.table_named("items").unwrap();
    let (sum, last) = db
        .run(items.at(&[number(50)]).unwrap(), async move |tx| {
            let add = |items: &atrapos::TableHandle| {
                let items = items.clone();
                move |sum: &mut i128, row: atrapos::DynRow| {
                    if let Ok(Value::Signed(value)) = row.get(&items, "value") {
                        *sum += value;
                    }
                    ControlFlow::Continue(())
                }
            };
            let sum = tx.fold_rows(&items, items.prefix(&[])?, 0, add(&items)).await?;
            let last = tx
                .fold_rows_backward(&items, KeyRange::all(), Vec::new(), |rows, row| {
                    rows.push(row);
                    if rows.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })
                .await?;
            let last: Result<Vec<Value>, _> = last.iter().map(|row| row.get(&items, "#1")).collect();
            Ok((sum, last?))
        })
        .unwrap();
    assert_eq!((sum, last), (200, vec![number(99), number(98)]));
}

/// The rows of one city, from both ends.
fn found_through_the_index(db: &atrapos::Database) {
    let by_city = db.index_named("users_by_city").unwrap();
    db.run(by_city.at(&[]).unwrap(), async move |tx| {
        let table = by_city.table().clone();
        let five = by_city.prefix(&[number(5)])?;
        let (some, last) =
            (tx.rows_by(&by_city, five.clone(), 3).await?, tx.rows_by_backward(&by_city, five, 2).await?);
        let keys = |rows: &[atrapos::DynRow]| -> Vec<Value> {
            rows.iter().map(|row| row.get(&table, "#1").expect("it is a row of the table")).collect()
        };
        assert_eq!(
            (keys(&some), keys(&last)),
            (vec![number(0), number(1), number(2)], vec![number(29), number(28)])
        );
        Ok(())
    })
    .unwrap();
    let by_city = db.index_named("users_by_city").unwrap();
    let several =
        db.run(by_city.at(&[]).unwrap(), async move |tx| tx.row_by(&by_city, &[number(5)]).await.map(drop));
    assert!(refused(several).contains("not unique"));
}

#[test]
fn all_rows_of_a_range_are_changed_and_deleted_with_their_entries() {
    for workers in [1, 2, 5] {
        let db = open(users(), workers);
        let (typed, named) = (db.table::<Users>().unwrap(), db.table_named("users").unwrap());
        for home in 0..workers as u16 {
            let named = named.clone();
            db.run(Route::worker(WorkerId(home)), async move |tx| {
                for key in 0..100 {
                    tx.insert(
                        typed,
                        key,
                        user(key as u32 % 4, &format!("{}{key}", (b'a' + key as u8 % 17) as char)),
                    )
                    .await?;
                }
                let changed = tx.update_range(typed, KeyRange::between(&10_u64, &90_u64), |key, row| {
                    row.visits = *key as u32;
                    row.city = 7;
                });
                assert_eq!(changed.await?, 80);
                let upper = [number(29)];
                let range = named.range(Unbounded, Included(&upper[..]))?;
                assert_eq!(tx.update_rows(&named, range, &[("city", number(5))]).await?, 30);
                assert_eq!(tx.delete_range(typed, KeyRange::from(&95_u64)).await?, 5);
                let (from, to) = ([number(5)], [number(20)]);
                let range = named.range(Included(&from[..]), Excluded(&to[..]))?;
                assert_eq!(tx.delete_range(&named, range.clone()).await?, 15);
                assert_eq!(tx.delete_range(&named, range).await?, 0);
                let rows = tx.scan(typed, KeyRange::all(), usize::MAX).await?;
                assert_eq!(rows.len(), 80);
                for (key, row) in rows {
                    let city = if key < 30 {
                        5
                    } else if key < 90 {
                        7
                    } else {
                        key as u32 % 4
                    };
                    let visits = if (10..90).contains(&key) { key as u32 } else { 0 };
                    assert_eq!((row.city, row.visits), (city, visits), "row {key}");
                }
                Ok(())
            })
            .unwrap();
            let verified = db.verify().unwrap();
            assert_eq!((verified.rows, verified.entries), (80, 160));
            found_through_the_index(&db);
            let all = db.run(typed.at(&0), async move |tx| tx.delete_range(typed, KeyRange::all()).await);
            assert_eq!(all, Ok(80));
            assert_eq!(db.verify().unwrap(), atrapos::Verification::default());
        }
    }
}

#[test]
fn a_change_of_a_range_that_aborts_leaves_every_row_as_it_was() {
    let db = open(two_tables(), 3);
    load_items(&db, 100, 2);
    let (items, named) = (db.table::<Items>().unwrap(), db.table_named("items").unwrap());
    let aborted = db.run(items.at(&50), async move |tx| {
        let row = [("text", text(&"y".repeat(40)))];
        assert_eq!(tx.update_rows(&named, KeyRange::all(), &row).await?, 100);
        assert_eq!(tx.delete_range(items, KeyRange::from(&40_u64)).await?, 60);
        let panicked = tx.update_range(items, KeyRange::all(), |key, row| {
            assert!(*key < 33, "out of order");
            row.value += 1;
        });
        panicked.await
    });
    assert_eq!(aborted.unwrap_err().reason(), atrapos::AbortReason::Panic);
    let rows = db.run(items.at(&0), async move |tx| tx.scan(items, KeyRange::all(), 200).await).unwrap();
    assert!(rows.len() == 100 && rows.iter().all(|(_, row)| *row == item(2)));
    db.verify().unwrap();
}

/// A transaction adds one to every row, reads something elsewhere for a while, and adds one again; others insert, change and read
/// meanwhile. What they find must be of before or after.
fn a_range_changes_twice(seed: u64) -> Result<(), String> {
    let mut simulation = simulate(two_tables(), 3, seed);
    let items = simulation.table::<Items>().expect("it is in the schema");
    let load = simulation.submit(&items.at(&0), async move |tx| {
        for key in (0..100).step_by(10) {
            tx.insert(items, key, item(0)).await?;
        }
        Ok(())
    });
    simulation.run(STEPS_MAX);
    load.take().expect("it has ended").map_err(|abort| abort.to_string())?;
    let twice = simulation.submit(&items.at(&50), async move |tx| {
        let mut changed = 0;
        for _ in 0..2 {
            changed += tx.update_range(items, KeyRange::all(), |_, row| row.value += 1).await?;
        }
        Ok(changed)
    });
    let readers: Vec<_> = (0..4_u64)
        .map(|at| {
            simulation.submit(&items.at(&(at * 25)), async move |tx| {
                let rows = tx.scan(items, KeyRange::all(), usize::MAX).await?;
                tx.insert(items, 1 + at * 20, item(rows.first().map_or(0, |(_, row)| row.value))).await?;
                Ok(rows.into_iter().map(|(_, row)| row.value).collect::<Vec<_>>())
            })
        })
        .collect();
    if !simulation.run(STEPS_MAX) {
        return Err("it does not come to rest".to_owned());
    }
    let changed = twice.take().expect("it has ended").map_err(|abort| abort.to_string())?;
    if changed % 2 != 0 {
        return Err(format!("{changed} rows were changed: some once"));
    }
    for reader in readers {
        let values = reader.take().expect("it has ended").map_err(|abort| abort.to_string())?;
        if values.iter().any(|value| *value != values[0]) {
            return Err(format!("a reader has seen {values:?}"));
        }
    }
    Ok(())
}

#[test]
fn a_range_that_is_changed_is_seen_as_before_or_after() {
    for_seeds(60, |seed| a_range_changes_twice(seed).unwrap());
}

/// Sessions add one to all rows of ranges, and sometimes go back, while partitions move if they do. Every addition that was
/// committed is there.
fn additions_are_counted(engine: &mut Engine, workers: usize, seed: u64) -> Result<(), String> {
    let items = engine.table::<Items>();
    let filled = engine.run(items.at(&0), async move |tx| {
        for key in (0..100).step_by(4) {
            tx.insert(items, key, item(0)).await?;
        }
        Ok(())
    });
    filled.map_err(|abort| abort.to_string())?;
    let ended = engine.sessions(4, workers, async move |session, at| {
        let (mut random, mut added) = (Random::new(seed).part(at), 0);
        for _ in 0..6 {
            let (from, to, goes_back) = (random.below(100), random.below(101), random.chance(30));
            let route = items.at(&random.below(100));
            let ran = session.run(&route, async move |tx| {
                let add = |_: &u64, row: &mut crate::support::Item| row.value += 1;
                let mut added = tx.update_range(items, KeyRange::between(&from, &to), add).await?;
                let before = tx.savepoint()?;
                let more = tx.update_range(items, KeyRange::between(&(to / 2), &to), add).await?;
                if goes_back {
                    tx.rollback_to(before).await?;
                } else {
                    added += more;
                }
                Ok(added)
            });
            added += ran.await.map_err(|abort| abort.to_string())?;
        }
        Ok::<u64, String>(added)
    })?;
    let added: u64 = ended.into_iter().sum::<Result<u64, String>>()?;
    let rows = engine.run(items.at(&0), async move |tx| tx.scan(items, KeyRange::all(), usize::MAX).await);
    let there: i64 = rows.map_err(|abort| abort.to_string())?.iter().map(|(_, row)| row.value).sum();
    if i64::try_from(added) == Ok(there) {
        Ok(())
    } else {
        Err(format!("{added} were added, {there} are there"))
    }
}

#[test]
fn no_addition_to_a_range_is_lost() {
    for_seeds(20, |seed| {
        let workers = 2 + (seed % 3) as usize;
        additions_are_counted(&mut Engine::simulated(two_tables(), workers, seed), workers, seed).unwrap();
    });
    for_seeds(2, |seed| {
        additions_are_counted(&mut Engine::shuffled_threads(two_tables(), 4, seed), 4, seed).unwrap();
    });
}

#[cfg(debug_assertions)]
#[test]
fn a_range_that_is_changed_without_its_lock_is_caught() {
    use atrapos::planted::{Bug, with};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    let noticed = (0..60).any(|seed| {
        let run = || catch_unwind(AssertUnwindSafe(|| a_range_changes_twice(seed)));
        !matches!(with(Bug::ScanNotLocked, run), Ok(Ok(())))
    });
    assert!(noticed);
}

#[test]
fn an_exclusive_range_waits_for_readers_in_it_and_keeps_them_out() {
    let mut simulation = simulate(by_hand::numbers(), 2, 11);
    let numbers = simulation.table::<by_hand::Numbers>().unwrap();
    let filled = simulation.submit(&numbers.at(&1), async move |tx| {
        for key in 1..=3 {
            tx.insert(numbers, key, by_hand::Number { value: 10 }).await?;
        }
        Ok(())
    });
    assert!(simulation.run(STEPS_MAX));
    assert_eq!(filled.take(), Some(Ok(())));
    let ended: Vec<_> = (0..6_u64)
        .map(|at| {
            simulation.submit(&numbers.at(&(1 + at % 3)), async move |tx| {
                let before = tx.get(numbers, 1 + at % 3).await?.map_or(0, |row| row.value);
                tx.update_range(numbers, KeyRange::all(), |_, row| row.value += 1).await?;
                let after = tx.get(numbers, 1 + at % 3).await?.map_or(0, |row| row.value);
                Ok(after - before)
            })
        })
        .collect();
    assert!(simulation.run(STEPS_MAX));
    for outcome in ended {
        assert_eq!(outcome.take(), Some(Ok(1)), "nobody wrote between its read and its own change");
    }
    let sum = simulation.submit(&numbers.at(&1), async move |tx| tx.get(numbers, 3).await);
    assert!(simulation.run(STEPS_MAX));
    assert_eq!(sum.take(), Some(Ok(Some(by_hand::Number { value: 16 }))));
}
