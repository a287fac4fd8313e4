//! Rows are read, written and deleted as asked, wherever they are, and an abort leaves nothing behind.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use atrapos::{Abort, AbortReason, Either, KeyRange, Route, Schema, Table, TableRef, Tx, WorkerId, row};

use crate::support::{Engine, Item, Items, Others, Random, for_seeds, item, open, two_tables};

fn text(value: i64, text: &str) -> Item {
    Item { value, text: text.to_owned() }
}

/// A home for a transaction: every test runs from each, so every access is once local and otherwise remote.
fn homes(workers: usize) -> impl Iterator<Item = Route> {
    (0..workers).map(|worker| Route::worker(WorkerId(worker as u16)))
}

#[test]
fn every_operation_does_its_work_on_every_worker() {
    for workers in [1, 2, 3, 8] {
        let db = open(two_tables(), workers);
        let items = db.table::<Items>().unwrap();
        for home in homes(workers) {
            for key in [0, 7, 33, 50, 99, 1_000_000] {
                let done = db.run(home.clone(), async move |tx| {
                    assert_eq!(tx.get(items, key).await?, None);
                    assert_eq!(
                        tx.update(items, key, |row| row.value).await?,
                        None,
                        "there is nothing to change"
                    );
                    assert_eq!(tx.delete(items, key).await?, None, "there is nothing to delete");
                    tx.insert(items, key, text(1, "one")).await?;
                    assert!(!tx.run(items.insert_if_absent(key, item(9))).await?, "the key is taken");
                    assert_eq!(tx.get(items, key).await?, Some(text(1, "one")));
                    // A change that keeps the row's length, and changes that do not.
                    assert_eq!(
                        tx.update(items, key, |row| std::mem::replace(&mut row.value, 2)).await?,
                        Some(1)
                    );
                    tx.update(items, key, |row| row.text = "much longer than before".repeat(9)).await?;
                    tx.update(items, key, |row| row.text = "short".to_owned()).await?;
                    assert_eq!(tx.get(items, key).await?, Some(text(2, "short")));
                    assert_eq!(tx.delete(items, key).await?, Some(text(2, "short")));
                    assert_eq!(tx.get(items, key).await?, None);
                    assert!(tx.run(items.insert_if_absent(key, item(3))).await?, "the key is free again");
                    Ok(())
                });
                assert_eq!(done, Ok(()));
                let left = db.run(home.clone(), async move |tx| tx.delete(items, key).await);
                assert_eq!(left, Ok(Some(item(3))), "what was committed is there for others");
            }
        }
        assert_eq!(db.len(items.id()), Ok(0));
        db.verify().unwrap();
    }
}

#[test]
fn actions_of_several_kinds_run_in_one_phase() {
    for workers in [1, 2, 3] {
        let db = open(two_tables(), workers);
        let items = db.table::<Items>().unwrap();
        let load = async move |tx: &mut Tx<'_>| {
            tx.join_all((0..30).map(|key| items.insert(key * 3, item(key as i64)))).await.map(drop)
        };
        assert_eq!(db.run(items.at(&0), load), Ok(()));
        for home in homes(workers) {
            let mixed = async move |tx: &mut Tx<'_>| {
                // Neither in order of keys nor of kinds: reads of what is there and of what is not, updates, insertions.
                let actions = (0..30).rev().map(|at| match at % 3 {
                    0 => items.get(at * 3).left(),
                    1 => items.update(at * 3, |row| std::mem::replace(&mut row.value, -1)).left().right(),
                    _ => items.insert_if_absent(at * 3 + at % 2, item(7)).right().right(),
                });
                let results = tx.join_all(actions).await?;
                for (at, result) in (0..30_u64).rev().zip(results) {
                    let expected = match at % 3 {
                        0 => Either::Left(Some(item(at as i64))),
                        1 => Either::Right(Either::Left(Some(at as i64))),
                        _ => Either::Right(Either::Right(at % 2 == 1)),
                    };
                    assert_eq!(result, expected, "{at}");
                }
                let changed = tx.get(items, 3).await?;
                assert_eq!(changed, Some(item(-1)));
                assert_eq!(tx.get(items, 16).await?, Some(item(7)));
                Err::<(), _>(Abort::user("as if nothing had been done"))
            };
            let abort = db.run(home, mixed).unwrap_err();
            assert_eq!(abort.reason(), AbortReason::User, "{abort}");
        }
        let undone =
            db.run(items.at(&3), async move |tx| Ok((tx.get(items, 3).await?, tx.get(items, 16).await?)));
        assert_eq!(undone, Ok((Some(item(1)), None)));
    }
}

#[test]
fn a_taken_key_aborts_and_says_which() {
    let db = open(two_tables(), 2);
    let items = db.table::<Items>().unwrap();
    for key in [1, 99] {
        db.run(items.at(&key), async move |tx| tx.insert(items, key, item(1)).await).unwrap();
        let twice = db.run(items.at(&1), async move |tx| {
            let _ = tx.insert(items, key, item(2)).await;
            Ok(())
        });
        let abort = twice.expect_err("a transaction with a failed action cannot commit");
        assert_eq!(abort.reason(), AbortReason::DuplicateKey);
        assert!(abort.detail().contains("table 'items' already has a row"), "{abort}");
    }
    assert_eq!(db.statistics().aborted_for(AbortReason::DuplicateKey), 2);
    assert_eq!(db.statistics().aborted_total(), 2);
}

#[test]
fn phases_of_actions_return_their_results_in_order() {
    for workers in [1, 2, 8] {
        let db = open(two_tables(), workers);
        let items = db.table::<Items>().unwrap();
        let others = db.table::<Others>().unwrap();
        for home in homes(workers) {
            let joined = db.run(home.clone(), async move |tx| {
                tx.join_all((0..100).map(|key| items.insert(key, item(key as i64)))).await?;
                let values =
                    tx.join_all([99, 0, 50, 0, 98].map(|key| items.update(key, |row| row.value))).await?;
                assert_eq!(values, [99, 0, 50, 0, 98].map(Some));
                let none = tx.join_all((0..0).map(|key| items.get(key))).await?;
                assert!(none.is_empty());
                let (a, b, c, d) = tx
                    .join((items.get(3), others.insert(77, item(7)), items.delete(97), others.get(5)))
                    .await?;
                assert_eq!((a, b, c, d), (Some(item(3)), true, Some(item(97)), None));
                // The same key several times in one phase: in order.
                let (first, second) = tx
                    .join((others.update(77, |row| row.value += 1), others.update(77, |row| row.value)))
                    .await?;
                assert_eq!((first, second), (Some(()), Some(8)));
                Err::<(), _>(Abort::user("all of it is taken back"))
            });
            assert_eq!(joined.unwrap_err().reason(), AbortReason::User);
            assert_eq!((db.len(items.id()), db.len(others.id())), (Ok(0), Ok(0)));
        }
        db.verify().unwrap();
    }
}

/// Keys of two parts, rows cut by the first.
struct Parts;

impl Table for Parts {
    type Key = (u64, i16);
    type Row = Item;
    const NAME: &'static str = "parts";
}

#[test]
fn ranges_over_composite_keys_are_walked_both_ways_across_partitions() {
    for workers in [1, 2, 3, 8] {
        let schema = Schema::new().table::<Parts>().split_evenly("parts", 0, 9);
        let db = open(schema, workers);
        let parts = db.table::<Parts>().unwrap();
        let all: Vec<(u64, i16)> = (0..10).flat_map(|a| [-300, -1, 0, 1, 300].map(|b| (a, b))).collect();
        let keys = all.clone();
        db.run(parts.at(&(0, 0)), async move |tx| {
            tx.join_all(keys.iter().map(|&(a, b)| parts.insert((a, b), item(i64::from(b))))).await.map(drop)
        })
        .unwrap();
        type Inside = fn(&(u64, i16)) -> bool;
        let ranges: [(KeyRange, Inside); 10] = [
            (KeyRange::all(), |_| true),
            (KeyRange::prefix(&4_u64), |key| key.0 == 4),
            (KeyRange::prefix(&(4_u64, 1_i16)), |key| *key == (4, 1)),
            (KeyRange::between(&(2_u64, 0_i16), &(7_u64, -1_i16)), |key| (2, 0) <= *key && *key < (7, -1)),
            (KeyRange::between(&3_u64, &8_u64), |key| (3..8).contains(&key.0)),
            (KeyRange::through(&3_u64, &8_u64), |key| (3..=8).contains(&key.0)),
            (KeyRange::through(&(3_u64, 1_i16), &(3_u64, 1_i16)), |key| *key == (3, 1)),
            (KeyRange::from(&(8_u64, 1_i16)), |key| *key >= (8, 1)),
            (KeyRange::between(&5_u64, &5_u64), |_| false),
            (KeyRange::between(&7_u64, &2_u64), |_| false),
        ];
        for home in homes(workers) {
            for (range, inside) in &ranges {
                let expected: Vec<_> = all.iter().copied().filter(inside).collect();
                for limit in [0, 1, 2, 7, 50, 1000] {
                    let range = range.clone();
                    let (forward, backward) = db
                        .run(home.clone(), async move |tx| {
                            let forward = tx.scan(parts, range.clone(), limit).await?;
                            Ok((forward, tx.scan_backward(parts, range.clone(), limit).await?))
                        })
                        .unwrap();
                    let keys = |rows: Vec<((u64, i16), Item)>| {
                        assert!(rows.iter().all(|(key, row)| row.value == i64::from(key.1)));
                        rows.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
                    };
                    assert_eq!(keys(forward), expected.iter().copied().take(limit).collect::<Vec<_>>());
                    assert_eq!(
                        keys(backward),
                        expected.iter().rev().copied().take(limit).collect::<Vec<_>>()
                    );
                }
                let (range, count) = (range.clone(), expected.len());
                let folded = db.run(home.clone(), async move |tx| {
                    let add = |sum: &mut (usize, i64), key: (u64, i16), _| {
                        *sum = (sum.0 + 1, sum.1 + i64::from(key.1));
                        ControlFlow::Continue(())
                    };
                    let forward = tx.fold(parts, range.clone(), (0, 0), add).await?;
                    assert_eq!(tx.fold_backward(parts, range.clone(), (0, 0), add).await?, forward);
                    Ok(forward)
                });
                assert_eq!(folded, Ok((count, expected.iter().map(|key| i64::from(key.1)).sum())));
            }
        }
        db.verify().unwrap();
    }
}

/// Keys that are strings.
struct Names;

row! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Name {
        first: String,
        flags: u8,
        bytes: Vec<u8>,
        last: String,
    }
}

impl Table for Names {
    type Key = (String, u8);
    type Row = Name;
    const NAME: &'static str = "names";
}

#[test]
fn variable_strings_are_keys_and_rows() {
    let cuts = ["b", "ba", "ç"].map(str::to_owned);
    let schema = Schema::new().table::<Names>().split_at("names", &cuts);
    let db = open(schema, 4);
    let names = db.table::<Names>().unwrap();
    let mut words: Vec<String> =
        ["", "a", "a\0", "a\0b", "ab", "b", "ba", "baa", "zz", "ç", "çç", "\u{10ffff}"]
            .map(str::to_owned)
            .into();
    words.push("long ".repeat(80));
    let written = words.clone();
    db.run(names.at_prefix(&"b".to_owned()), async move |tx| {
        for (at, word) in written.iter().enumerate() {
            let row = Name { first: word.clone(), flags: at as u8, bytes: vec![0; at], last: word.repeat(2) };
            tx.insert(names, (word.clone(), 1), row).await?;
            tx.update(names, (word.clone(), 1), |row| row.last.truncate(0)).await?;
        }
        Ok(())
    })
    .unwrap();
    let rows = db
        .run(names.at_prefix(&String::new()), async move |tx| {
            tx.scan(names, KeyRange::all(), usize::MAX).await
        })
        .unwrap();
    words.sort();
    let found: Vec<String> = rows.iter().map(|((word, _), _)| word.clone()).collect();
    assert_eq!(found, words, "strings sort as strings do");
    for ((word, _), row) in &rows {
        assert_eq!((word, row.last.as_str(), row.bytes.len()), (&row.first, "", usize::from(row.flags)));
    }
    // A prefix of the key's encoding: all keys with this very string.
    let only = db.run(names.at_prefix(&String::new()), async move |tx| {
        tx.scan(names, KeyRange::prefix(&"a".to_owned()), usize::MAX).await
    });
    assert_eq!(only.unwrap().len(), 1);
    db.verify().unwrap();
}

#[test]
fn a_fold_that_breaks_off_visits_nothing_more() {
    let db = open(two_tables(), 3);
    let items = db.table::<Items>().unwrap();
    crate::support::load_items(&db, 100, 1);
    for (backward, first) in [(false, 20), (true, 79)] {
        let seen = db.run(items.at(&50), async move |tx| {
            let stop_at_60 = |seen: &mut Vec<u64>, key: u64, _| {
                seen.push(key);
                if seen.len() == 60 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let range = KeyRange::between(&20_u64, &80_u64);
            match backward {
                false => tx.fold(items, range, Vec::new(), stop_at_60).await,
                true => tx.fold_backward(items, range, Vec::new(), stop_at_60).await,
            }
        });
        let seen = seen.unwrap();
        assert_eq!((seen.len(), seen[0]), (60, first));
    }
}

// --- A random history, one transaction after the other, against a model ---------------------------------------------

type Model = [BTreeMap<u64, Item>; 2];

/// One random change or read, made in the database and in the model alike.
async fn random_step(
    tx: &mut Tx<'_>,
    tables: (TableRef<Items>, TableRef<Others>),
    model: &mut Model,
    random: &mut Random,
) -> Result<(), Abort> {
    let which = random.below(2) as usize;
    // Few keys, so that the same one is often changed several times.
    let key = random.below(12) * 9;
    let value = random.below(1000) as i64;
    let new = Item { value, text: "x".repeat(random.below(4) as usize * 17) };
    macro_rules! both {
        ($table:ident => $run:expr) => {
            match which {
                0 => {
                    let $table = tables.0;
                    $run
                }
                _ => {
                    let $table = tables.1;
                    $run
                }
            }
        };
    }
    let rows = &mut model[which];
    match random.below(8) {
        0 => assert_eq!(both!(table => tx.get(table, key).await?), rows.get(&key).cloned()),
        1 | 2 => {
            let row = new.clone();
            let inserted = both!(table => tx.run(table.insert_if_absent(key, row)).await?);
            assert_eq!(inserted, !rows.contains_key(&key));
            rows.entry(key).or_insert(new);
        }
        3 => {
            let changed = both!(table => tx.update(table, key, move |row| row.value = value).await?);
            assert_eq!(changed.is_some(), rows.contains_key(&key));
            rows.entry(key).and_modify(|row| row.value = value);
        }
        4 => {
            let row = new.clone();
            let changed = both!(table => tx.update(table, key, move |old| *old = row).await?);
            assert_eq!(changed.is_some(), rows.contains_key(&key));
            rows.entry(key).and_modify(|row| *row = new);
        }
        5 | 6 => assert_eq!(both!(table => tx.delete(table, key).await?), rows.remove(&key)),
        _ => {
            let (from, to) = (random.below(100), random.below(130));
            let range = KeyRange::between(&from, &to);
            let found = both!(table => tx.scan(table, range, usize::MAX).await?);
            let expected = rows.iter().filter(|(key, _)| from <= **key && **key < to);
            assert_eq!(found, expected.map(|(key, row)| (*key, row.clone())).collect::<Vec<_>>());
        }
    }
    Ok(())
}

/// Runs random transactions, many of which abort, and compares the whole database with the model after each.
///
/// # Errors
/// How they differ.
pub(crate) fn random_history(
    engine: &mut Engine,
    workers: u64,
    seed: u64,
    transactions: u64,
) -> Result<(), String> {
    let tables = (engine.table::<Items>(), engine.table::<Others>());
    let mut random = Random::new(seed);
    let mut model = Model::default();
    let mut aborts = 0;
    for _ in 0..transactions {
        let steps = 1 + random.below(10);
        let aborts_now = random.chance(50);
        let home = Route::worker(WorkerId(random.below(workers) as u16));
        let (before, choices) = (model.clone(), random.part(0));
        let ran = engine.run(home, async move |tx| {
            let (mut model, mut random) = (before.clone(), choices.clone());
            for _ in 0..steps {
                random_step(tx, tables, &mut model, &mut random).await?;
            }
            if aborts_now { Err(Abort::user("as planned")) } else { Ok(model) }
        });
        random.next();
        match ran {
            Ok(after) => model = after,
            Err(abort) if aborts_now && abort.reason() == AbortReason::User => aborts += 1,
            Err(abort) => return Err(abort.to_string()),
        }
        let left = engine.run(Route::worker(WorkerId(0)), async move |tx| {
            let items = tx.scan(tables.0, KeyRange::all(), usize::MAX).await?;
            Ok([items, tx.scan(tables.1, KeyRange::all(), usize::MAX).await?])
        });
        let left = left.map_err(|abort| abort.to_string())?.map(BTreeMap::from_iter);
        if left != model {
            return Err(format!("the database holds {left:?}, but should hold {model:?}"));
        }
    }
    let counted = engine.statistics().aborted_for(AbortReason::User);
    if counted != aborts {
        return Err(format!("{aborts} transactions aborted, but {counted} were counted"));
    }
    Ok(())
}

#[test]
fn random_transactions_and_aborts_leave_what_a_model_says() {
    for_seeds(6, |seed| {
        let workers = 1 + seed % 4;
        let mut engine = Engine::threads(two_tables(), workers as usize);
        random_history(&mut engine, workers, seed, 150).unwrap();
        let Engine::Threads(db, _) = engine else { unreachable!("it runs on threads") };
        db.verify().unwrap();
    });
}

#[test]
fn random_transactions_and_aborts_leave_what_a_model_says_simulated() {
    for_seeds(20, |seed| {
        let workers = 1 + seed % 4;
        let mut engine = Engine::simulated(two_tables(), workers as usize, seed);
        random_history(&mut engine, workers, seed, 60).unwrap();
    });
}

#[test]
fn abort_reasons_are_counted_one_by_one() {
    let db = open(two_tables(), 2);
    let items = db.table::<Items>().unwrap();
    let others = db.table::<Others>().unwrap();
    db.run(items.at(&0), async move |tx| tx.insert(items, 0, item(0)).await).unwrap();
    let before = db.statistics();
    for _ in 0..3 {
        db.run(items.at(&0), async move |_| Err::<(), _>(Abort::user("no"))).unwrap_err();
    }
    for _ in 0..2 {
        db.run(items.at(&0), async move |tx| tx.insert(items, 0, item(0)).await).unwrap_err();
    }
    db.run(items.at(&0), async move |tx| {
        let long = Item { value: 0, text: "long".repeat(1 << 18) };
        tx.insert(others, 95, long).await
    })
    .unwrap_err();
    db.run(items.at(&0), async move |tx| {
        tx.update(items, 0, |_| panic!("as planned")).await.map(drop::<Option<()>>)
    })
    .unwrap_err();
    let counted = db.statistics().since(&before);
    let reasons = AbortReason::ALL.map(|reason| (reason, counted.aborted_for(reason)));
    let reasons: Vec<_> = reasons.into_iter().filter(|(_, count)| *count > 0).collect();
    let expected = [
        (AbortReason::User, 3),
        (AbortReason::DuplicateKey, 2),
        (AbortReason::RowTooLarge, 1),
        (AbortReason::Panic, 1),
    ];
    assert_eq!(reasons, expected);
    assert_eq!((counted.committed, counted.aborted_total()), (0, 7));
}
