//! Columns of rows seen and changed in place: on whatever worker the row is, with the index entries that follow it, undone and
//! logged like any other change.

use std::collections::BTreeMap;

use atrapos::{Abort, AbortReason, KeyRange, Route, RowEdit, WorkerId};

use crate::durable::notes::{KEYS, Notes, builder, directory, files, note};
use crate::indexes::{ByCity, ByEmail, User, Users, user, users};
use crate::support::{Engine, Random, for_seeds, open};

/// A visit, and a move to another city.
fn visit(row: &mut RowEdit<'_, User>, city: u32) -> u32 {
    row.set(|column| column.city, city);
    row.change(|column| column.visits, |visits| visits + 1)
}

#[test]
fn columns_are_seen_and_changed_on_every_worker() {
    for workers in [1, 2, 8] {
        let db = open(users(), workers);
        let (table, by_city) = (db.table::<Users>().unwrap(), db.index::<ByCity>().unwrap());
        db.run(table.at(&50), async move |tx| tx.insert(table, 50, user(5, "eve")).await).unwrap();
        for home in 0..workers as u16 {
            let city = 1 + u32::from(home) % 7;
            db.run(Route::worker(WorkerId(home)), async move |tx| {
                assert_eq!(tx.edit(table, 51, move |row| visit(row, 1)).await?, None);
                assert_eq!(tx.view(table, 51, |row| row.get(|column| column.city)).await?, None);
                assert_eq!(tx.edit(table, 50, move |row| visit(row, city)).await?, Some(u32::from(home) + 1));
                let seen = |email: &str| email == "eve";
                let look = move |row: atrapos::RowView<'_, User>| {
                    (row.get(|column| column.city), seen(&row.get(|column| column.email)))
                };
                assert_eq!(tx.view(table, 50, look).await?, Some((city, true)));
                assert_eq!(tx.lookup_all::<ByCity>(by_city, KeyRange::prefix(&city), 9).await?, [50]);
                let both = [50, 51].map(|key| table.edit(key, move |row| visit(row, city)));
                assert_eq!(tx.join_all(both).await?, [Some(u32::from(home) + 2), None]);
                tx.edit(table, 50, |row| row.change(|column| column.visits, |visits| visits - 1)).await?;
                Ok(())
            })
            .unwrap();
            db.verify().unwrap();
        }
    }
}

#[test]
fn what_was_changed_in_place_is_undone() {
    for workers in [1, 3] {
        let db = open(users(), workers);
        let table = db.table::<Users>().unwrap();
        db.run(table.at(&50), async move |tx| tx.insert(table, 50, user(5, "eve")).await).unwrap();
        let home = Route::worker(WorkerId(0));
        let refused = db.run(home.clone(), async move |tx| {
            tx.edit(table, 50, |row| visit(row, 2)).await?;
            Err::<(), _>(Abort::user("no"))
        });
        assert_eq!(refused.unwrap_err().reason(), AbortReason::User);
        let panicked = db.run(home.clone(), async move |tx| {
            tx.edit(table, 50, |row| {
                visit(row, 3);
                panic!("half-way");
            })
            .await
            .map(|_: Option<()>| ())
        });
        let panicked = panicked.unwrap_err();
        assert!(panicked.reason() == AbortReason::Panic && panicked.to_string().contains("half-way"));
        db.run(home, async move |tx| {
            let before = tx.savepoint()?;
            tx.edit(table, 50, |row| visit(row, 4)).await?;
            tx.rollback_to(before).await?;
            assert_eq!(tx.get(table, 50).await?, Some(user(5, "eve")));
            Ok(())
        })
        .unwrap();
        db.verify().unwrap();
        let left = db.run(table.at(&50), async move |tx| tx.get(table, 50).await).unwrap();
        assert_eq!(left, Some(user(5, "eve")));
    }
}

/// Changes rows in place and as a whole, some for nothing, and compares what is left with a model.
pub(crate) fn random_changes(engine: &mut Engine, _: usize, seed: u64) -> Result<(), String> {
    let (table, by_email) = (engine.table::<Users>(), engine.index::<ByEmail>());
    let mut random = Random::new(seed);
    let mut model: BTreeMap<u64, User> = BTreeMap::new();
    for _ in 0..60 {
        let (key, city) = (random.below(100), 1 + random.below(7) as u32);
        let (aborts, whole) = (random.chance(20), random.chance(30));
        let mut new = model.get(&key).cloned().unwrap_or_else(|| user(city, &format!("{key}")));
        if model.contains_key(&key) {
            (new.city, new.visits) = (city, new.visits + 1);
        }
        let row = new.clone();
        let outcome = engine.run(Route::worker(WorkerId(0)), async move |tx| {
            if tx.view(table, key, |_| ()).await?.is_none() {
                tx.insert(table, key, row.clone()).await?;
            } else if whole {
                let row = row.clone();
                tx.update(table, key, move |old| *old = row).await?;
            } else {
                tx.edit(table, key, move |old| visit(old, city)).await?;
            }
            let found = tx.get_by::<ByEmail>(by_email, table, row.email.clone()).await?;
            assert_eq!(found, Some((key, row.clone())));
            if aborts { Err(Abort::user("on purpose")) } else { Ok(()) }
        });
        match outcome {
            Ok(()) => drop(model.insert(key, new)),
            Err(abort) => assert_eq!((aborts, abort.reason()), (true, AbortReason::User)),
        }
    }
    let left = engine.run(table.at(&0), async move |tx| tx.scan(table, KeyRange::all(), 200).await).unwrap();
    if left == Vec::from_iter(model) { Ok(()) } else { Err(format!("seed {seed} leaves {left:?}")) }
}

#[test]
fn random_changes_in_place_are_those_of_whole_rows() {
    for_seeds(20, |seed| {
        let mut engine = Engine::simulated(users(), 3, seed);
        assert_eq!(random_changes(&mut engine, 3, seed), Ok(()));
    });
}

#[test]
fn changes_in_place_come_back_after_a_restart() {
    let files = files();
    let db = builder(&files, 2).open(directory()).unwrap();
    let table = db.table::<Notes>().unwrap();
    // A row in a leaf, and one that is too long for it.
    let keys = [7, KEYS - 7];
    db.run(table.at(&7), async move |tx| {
        tx.insert(table, keys[0], note(1, 3)).await?;
        tx.insert(table, keys[1], note(1, 20)).await
    })
    .unwrap();
    for _ in 0..5 {
        db.run(table.at(&7), async move |tx| {
            let count = keys
                .map(|key| table.edit(key, |row| row.change(|column| column.number, |number| number + 100)));
            tx.join_all(count).await.map(drop)
        })
        .unwrap();
    }
    let report = db.close(std::time::Duration::from_secs(5));
    assert_eq!((report.dropped, report.failure), (0, None));
    let db = builder(&files, 3).open(directory()).unwrap();
    db.verify().unwrap();
    let table = db.table::<Notes>().unwrap();
    let rows = db.run(table.at(&7), async move |tx| tx.scan(table, KeyRange::all(), 9).await).unwrap();
    let expected = [(3, 503), (20, 520)].map(|(before, after)| counted_on(before, after));
    assert_eq!(rows, [(keys[0], expected[0].clone()), (keys[1], expected[1].clone())]);
}

/// A note of client 1 as it was inserted with number `before`, after its number became `after`.
fn counted_on(before: u64, after: u64) -> crate::durable::notes::Note {
    crate::durable::notes::Note { number: after, ..note(1, before) }
}
