//! Indexes that are created and dropped, at rest and while transactions change their tables.

use std::sync::atomic::{AtomicBool, Ordering};

use atrapos::catalog::{IndexPart, KeyPart};
use atrapos::{Abort, AbortReason, Advice, ColumnType, Database, DefineError, Durability, TableRef};

use super::fixture::{
    ByAge, Held, People, ages, create, empty, files, index, insert, of_age, people, person, reopen,
};
use crate::support::Random;

const ROWS: u64 = 1_000;

/// `people` with [`ROWS`] rows, of ages 0 to 9 in turn, on both workers.
fn filled(db: &Database) -> TableRef<People> {
    db.create_table(people("people", &[ROWS / 2])).unwrap();
    let table = db.table::<People>().unwrap();
    (0..ROWS).for_each(|id| insert(db, table, id, (id % 10) as u32).unwrap());
    table
}

#[test]
fn an_index_has_all_rows_and_follows_changes() {
    let db = empty();
    let table = filled(&db);
    let number = db.create_index("people", index("by_age", &[1], false)).unwrap();
    assert_eq!(db.len(number), Ok(ROWS));
    assert_eq!(of_age(&db, 3).unwrap().len() as u64, ROWS / 10);
    db.run(table.at(&3), async move |tx| tx.update(table, 3, |person| person.age = 77).await).unwrap();
    db.run(table.at(&13), async move |tx| tx.delete(table, 13).await.map(drop)).unwrap();
    insert(&db, table, ROWS + 5, 3).unwrap();
    assert_eq!(of_age(&db, 77).unwrap(), [3]);
    assert_eq!(of_age(&db, 3).unwrap().len() as u64, ROWS / 10 - 1);
    assert_eq!(db.verify().unwrap().entries, ROWS);
}

#[test]
fn an_index_that_was_dropped_is_not_kept_up() {
    let db = empty();
    let table = filled(&db);
    let number = db.create_index("people", index("by_age", &[1], false)).unwrap();
    let by_age = db.index::<ByAge>().unwrap();
    db.drop_index("by_age").unwrap();
    assert!(db.index::<ByAge>().is_err());
    let abort =
        db.run(by_age.at(&1), async move |tx| tx.lookup_all(by_age, atrapos::KeyRange::all(), 10).await);
    assert_eq!(abort.unwrap_err().reason(), AbortReason::TableChanged);
    insert(&db, table, ROWS, 1).unwrap();
    assert_eq!(db.len(number), Ok(0));
    assert_eq!(db.verify().unwrap().entries, 0);
    let again = db.create_index("people", index("by_age", &[1], false)).unwrap();
    assert_eq!(db.len(again), Ok(ROWS + 1));
}

#[test]
fn rows_that_violate_a_unique_index_are_named_and_no_index_is_left() {
    let db = empty();
    let table = filled(&db);
    let violated = db.create_index("people", index("by_age", &[1], true)).unwrap_err();
    assert!(
        matches!(&violated, DefineError::Violated(why) if why.contains("`by_age`") && why.contains("same key")),
        "{violated}"
    );
    assert_eq!(db.definitions().find("by_age"), None);
    assert_eq!(db.verify().unwrap().entries, 0);
    // Ages may be the same again, and the name is free.
    insert(&db, table, ROWS, 1).unwrap();
    let number = db.create_index("people", index("by_age", &[1, 0], true)).unwrap();
    assert_eq!(db.len(number), Ok(ROWS + 1));
    db.drop_index("by_age").unwrap();
    db.drop_table("people").unwrap();
}

#[test]
fn a_unique_index_takes_any_number_of_nulls() {
    let db = empty();
    let mut table = people("people", &[]);
    table.columns[1].nullable = true;
    db.create_table(table).unwrap();
    db.create_index("people", index("by_age", &[1], true)).unwrap();
    db.add_column("people", nullable("nick")).unwrap();
    db.create_index("people", index("by_nick", &[3], true)).unwrap();
    assert_eq!(db.verify().unwrap().entries, 0);
}

fn nullable(name: &str) -> atrapos::catalog::ColumnDef {
    atrapos::catalog::ColumnDef {
        nullable: true,
        ..atrapos::catalog::ColumnDef::new(name, ColumnType::String)
    }
}

#[test]
fn what_cannot_be_indexed_is_refused_in_a_sentence() {
    let db = empty();
    filled(&db);
    let mut computed = index("by_age", &[1], false);
    let part = KeyPart { ty: ColumnType::Bool, descending: false, nullable: false };
    computed.parts.push(IndexPart::Computed { name: "is_old".to_owned(), part });
    let before = db.definitions();
    for (refused, expected) in [
        (db.create_index("people", computed), "computed"),
        (db.create_index("nobody", index("by_age", &[1], false)), "`nobody`"),
        (db.create_index("people", index("people", &[1], false)), "is taken"),
        (db.create_index("people", index("by_age", &[9], false)), "column number 9"),
    ] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    }
    assert!(db.drop_index("people").unwrap_err().to_string().contains("no index `people`"));
    assert_eq!(db.definitions(), before);
}

#[test]
fn an_index_is_there_after_reopening_under_every_durability() {
    for durability in [Durability::Synchronous, Durability::Relaxed { max_loss_ms: 60_000 }, Durability::None]
    {
        let files = files();
        let db = super::fixture::create_with(&files, durability);
        filled(&db);
        db.create_index("people", index("by_age", &[1], false)).unwrap();
        let left = files.power_cut(7);
        drop(db);
        for files in [left, files] {
            let db = reopen(&files);
            assert_eq!(db.verify().unwrap().entries, ROWS, "{durability:?}");
            assert_eq!(of_age(&db, 3).unwrap().len() as u64, ROWS / 10);
            // The key function is known without any code.
            let table = db.table::<People>().unwrap();
            insert(&db, table, ROWS, 3).unwrap();
            assert_eq!(of_age(&db, 3).unwrap().len() as u64, ROWS / 10 + 1);
        }
    }
}

/// Changes rows at random until told to end: inserts, deletes, changes of the indexed column, aborts.
fn change(db: &Database, table: TableRef<People>, seed: u64, ended: &AtomicBool) -> Result<(), String> {
    let mut random = Random::new(seed);
    while !ended.load(Ordering::Relaxed) {
        let (one, other) = (random.below(ROWS), random.below(ROWS));
        let (age, what) = (random.below(10) as u32, random.below(4));
        let done: Result<(), Abort> = db.run(table.at(&one), async move |tx| {
            match what {
                0 => drop(tx.delete(table, one).await?),
                1 => drop(tx.run(table.insert_if_absent(one, person(age, ""))).await?),
                _ => drop(tx.update(table, one, move |person| person.age = age).await?),
            }
            tx.update(table, other, move |person| person.age = age).await?;
            if what == 3 { Err(Abort::user("as planned")) } else { Ok(()) }
        });
        if let Err(abort) = done {
            let is_expected = abort.reason() == AbortReason::User || abort.reason().advice() == Advice::Retry;
            if !is_expected {
                return Err(abort.to_string());
            }
        }
    }
    Ok(())
}

/// Creates and drops an index `rounds` times while two threads change the table, and verifies each time.
pub(crate) fn under_load(
    db: &Database,
    rounds: usize,
    create: impl Fn() -> Result<atrapos::TableId, DefineError>,
) -> Result<(), String> {
    let table = filled(db);
    for round in 0..rounds {
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let ended = &ended;
            let client = |client| scope.spawn(move || change(db, table, (round * 2 + client) as u64, ended));
            let clients = [0, 1].map(client);
            let created = create();
            ended.store(true, Ordering::Relaxed);
            clients.into_iter().try_for_each(|client| client.join().expect("no panic"))?;
            created.map(drop).map_err(|error| error.to_string())
        })?;
        let verified = db.verify().map_err(|error| error.to_string())?;
        if verified.entries != verified.rows {
            return Err(format!("{verified:?}"));
        }
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let ended = &ended;
            let client = scope.spawn(move || change(db, table, round as u64, ended));
            let dropped = db.drop_index("by_age");
            ended.store(true, Ordering::Relaxed);
            client.join().expect("no panic")?;
            dropped.map_err(|error| error.to_string())
        })?;
        db.verify().map_err(|error| error.to_string())?;
    }
    Ok(())
}

#[test]
fn an_index_is_filled_and_dropped_while_transactions_change_its_table() {
    let db = empty();
    under_load(&db, 6, || db.create_index("people", index("by_age", &[1], false))).unwrap();
}

#[test]
fn a_transaction_from_before_the_index_is_waited_for() {
    let db = empty();
    let held = Held::begin(&db);
    std::thread::scope(|scope| {
        let created = scope.spawn(|| db.create_index("people", index("by_age", &[1], false)).unwrap());
        // New rows are in it whether or not it is filled by then.
        let table = db.table::<People>().unwrap();
        insert(&db, table, 9, 9).unwrap();
        held.end();
        created.join().unwrap();
    });
    assert_eq!(of_age(&db, 2).unwrap(), [1]);
    assert_eq!(of_age(&db, 9).unwrap(), [9]);
    db.verify().unwrap();
}

#[test]
fn an_index_is_in_checkpoints_and_backups() {
    let files = files();
    let db = create(&files);
    let table = filled(&db);
    db.create_index("people", index("by_age", &[1], false)).unwrap();
    db.checkpoint().unwrap();
    insert(&db, table, ROWS, 4).unwrap();
    db.backup("/data/copy").unwrap();
    drop(db);
    for directory in ["/data/ddl", "/data/copy"] {
        let db = super::fixture::reopen_at(&files, directory);
        assert_eq!(db.verify().unwrap().entries, ROWS + 1);
        assert_eq!(ages(&db, db.table().unwrap()).unwrap().len() as u64, ROWS + 1);
    }
}
