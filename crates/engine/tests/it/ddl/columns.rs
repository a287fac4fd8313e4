//! Columns that are added to tables.

use std::sync::atomic::{AtomicBool, Ordering};

use atrapos::catalog::{ColumnDef, OnDelete, Value};
use atrapos::{
    AbortReason, ColumnType, Database, DefineError, KeyRange, NewForeignKey, NewTable, Table, WorkerId, row,
};

use super::fixture::{
    Animals, Held, People, ages, create, empty, files, impatient, index, insert, people, person, reopen,
};
use crate::support::Random;

row! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct Taller {
        pub(crate) age: u32,
        pub(crate) city: String,
        pub(crate) height: u32,
    }
}

/// `people` with a third column.
pub(crate) struct TallPeople;

impl Table for TallPeople {
    type Key = u64;
    type Row = Taller;
    const NAME: &'static str = "people";
}

const ROWS: u64 = 1_000;

pub(crate) fn height() -> ColumnDef {
    let default = Some(Value::Unsigned(170));
    ColumnDef { default, ..ColumnDef::new("height", ColumnType::Unsigned(4)) }
}

fn filled(db: &Database) {
    db.create_table(people("people", &[ROWS / 2])).unwrap();
    let table = db.table::<People>().unwrap();
    (0..ROWS).for_each(|id| insert(db, table, id, id as u32).unwrap());
}

/// All rows, as the type with the column has them.
pub(crate) fn tall(db: &Database) -> Vec<(u64, Taller)> {
    let table = db.table::<TallPeople>().unwrap();
    db.run(table.at(&0), async move |tx| tx.scan(table, KeyRange::all(), usize::MAX).await).unwrap()
}

fn expected(id: u64) -> (u64, Taller) {
    (id, Taller { age: id as u32, city: "here".to_owned(), height: 170 })
}

#[test]
fn rows_get_the_default_and_handles_from_before_are_told() {
    let db = empty();
    filled(&db);
    db.create_index("people", index("by_age", &[1], false)).unwrap();
    let old = db.table::<People>().unwrap();
    let new = db.add_column("people", height()).unwrap();
    assert_ne!(new, old.id());
    assert_eq!(insert(&db, old, ROWS, 1).unwrap_err().reason(), AbortReason::TableChanged);
    assert!(db.table::<People>().is_err(), "the type has not the columns that the table has");
    assert_eq!(tall(&db), (0..ROWS).map(expected).collect::<Vec<_>>());
    assert_eq!(db.scheme().family(new).partitions(), 2);
    let table = db.table::<TallPeople>().unwrap();
    db.run(table.at(&1), async move |tx| tx.update(table, 1, |person| person.age = 5_000).await).unwrap();
    db.run(table.at(&2), async move |tx| tx.delete(table, 2).await.map(drop)).unwrap();
    // The index is over the new table, and its key function too.
    let verified = db.verify().unwrap();
    assert_eq!((verified.rows, verified.entries), (ROWS - 1, ROWS - 1));
    db.repartition([atrapos::SchemeChange::move_to(table, &1, WorkerId(1))]).unwrap();
    db.verify().unwrap();
}

#[test]
fn a_column_is_there_after_reopening() {
    let files = files();
    let db = create(&files);
    filled(&db);
    db.create_index("people", index("by_age", &[1], false)).unwrap();
    db.add_column("people", height()).unwrap();
    let table = db.table::<TallPeople>().unwrap();
    db.run(table.at(&1), async move |tx| tx.update(table, 1, |person| person.height = 180).await).unwrap();
    let left = files.power_cut(3);
    drop(db);
    for files in [left, files] {
        let db = reopen(&files);
        let mut wanted: Vec<_> = (0..ROWS).map(expected).collect();
        wanted[1].1.height = 180;
        assert_eq!(tall(&db), wanted);
        assert_eq!(db.verify().unwrap().entries, ROWS);
        assert!(db.add_column("people", height()).unwrap_err().to_string().contains("already"));
    }
}

#[test]
fn references_follow_the_table() {
    let db = empty();
    db.create_table(people("people", &[100])).unwrap();
    let key = NewForeignKey { parent: "people".into(), through: None, on_delete: OnDelete::Restrict };
    db.create_table(NewTable { foreign_keys: vec![key], ..people("animals", &[50]).into() }).unwrap();
    let animals = db.table::<Animals>().unwrap();
    insert(&db, db.table().unwrap(), 7, 7).unwrap();
    db.add_column("people", height()).unwrap();
    let add = |id: u64| db.run(animals.at(&id), async move |tx| tx.insert(animals, id, person(1, "")).await);
    add(7).unwrap();
    assert_eq!(add(8).unwrap_err().reason(), AbortReason::ForeignKey);
    let table = db.table::<TallPeople>().unwrap();
    let delete = db.run(table.at(&7), async move |tx| tx.delete(table, 7).await.map(drop));
    assert_eq!(delete.unwrap_err().reason(), AbortReason::ForeignKey);
    // Of the child, too.
    db.add_column("animals", height()).unwrap();
    let delete = db.run(table.at(&7), async move |tx| tx.delete(table, 7).await.map(drop));
    assert_eq!(delete.unwrap_err().reason(), AbortReason::ForeignKey);
    assert_eq!(db.verify().unwrap().references, 1);
}

#[test]
fn what_cannot_be_added_is_refused_in_a_sentence() {
    let db = empty();
    filled(&db);
    let before = db.definitions();
    let wrong = ColumnDef { default: Some(Value::Text("tall".to_owned())), ..height() };
    for (column, expected) in [
        (ColumnDef::new("age", ColumnType::Bool), "has a column `age` already"),
        (ColumnDef::new("height", ColumnType::Unsigned(4)), "give it a default"),
        (wrong, "does not fit"),
    ] {
        let refused = db.add_column("people", column).unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    }
    assert!(matches!(db.add_column("nobody", height()), Err(DefineError::Unknown(_))));
    assert_eq!(db.definitions(), before);
    assert_eq!(db.verify().unwrap().rows, ROWS);
}

/// Makes a checkpoint while a column is being added, which waits for a transaction, and cuts the power. Returns the rows left.
pub(super) fn saved_meanwhile(save: impl FnOnce(&Database)) -> Vec<(u64, u32)> {
    let files = files();
    let db = create(&files);
    let held = Held::begin(&db);
    let table = db.table::<People>().unwrap();
    let left = std::thread::scope(|scope| {
        let adding = scope.spawn(|| db.add_column("people", height()));
        while db.run(table.at(&5), async move |tx| tx.get(table, 5).await).is_ok() {
            std::thread::yield_now();
        }
        // The table is closed. Its row is in the checkpoint, or nowhere.
        save(&db);
        let left = files.power_cut(1);
        held.end();
        adding.join().unwrap().unwrap();
        left
    });
    let db = reopen(&left);
    ages(&db, db.table().unwrap()).unwrap()
}

#[test]
fn a_checkpoint_has_the_rows_of_a_table_that_is_closed() {
    let left = saved_meanwhile(|db| {
        db.checkpoint().unwrap();
    });
    assert_eq!(left, [(1, 1)]);
}

#[test]
fn a_table_in_use_keeps_its_columns_when_patience_ends() {
    let db = impatient();
    let held = Held::begin(&db);
    let late = db.add_column("people", height()).unwrap_err();
    assert!(matches!(late, DefineError::TimedOut(_)), "{late}");
    held.end();
    let table = db.table::<People>().unwrap();
    insert(&db, table, 2, 2).unwrap();
    db.verify().unwrap();
}

/// Ages are in an index, behind the column that goes.
fn with_dropped(db: &Database) {
    let mut table = people("people", &[ROWS / 2]);
    table.columns.insert(1, ColumnDef::new("note", ColumnType::String));
    let references = NewForeignKey {
        parent: "people".to_owned(),
        through: Some("by_age".to_owned()),
        on_delete: OnDelete::Restrict,
    };
    table.columns[2].ty = ColumnType::Unsigned(8);
    let new = NewTable {
        indexes: vec![index("by_age", &[2], false), index("by_note", &[1], false)],
        foreign_keys: vec![references],
        ..table.into()
    };
    db.create_table(new).unwrap();
    let table = db.table_named("people").unwrap();
    for id in 0..ROWS {
        let (table, age) = (table.clone(), id / 2);
        let columns = [
            ("id", Value::Unsigned(id.into())),
            ("note", Value::Text("a note".to_owned())),
            ("age", Value::Unsigned(age.into())),
            ("city", Value::Text("here".to_owned())),
        ];
        let done = db.run(table.at(&[]).unwrap(), async move |tx| tx.insert_row(&table, &columns).await);
        done.unwrap();
    }
}

#[test]
fn a_dropped_column_is_gone_and_keys_behind_it_are_kept() {
    let files = files();
    let db = create(&files);
    with_dropped(&db);
    let refused = db.drop_column("people", "note").unwrap_err();
    assert!(refused.to_string().contains("by_note"), "{refused}");
    assert!(matches!(db.drop_column("people", "id").unwrap_err(), DefineError::InUse(_)));
    assert!(matches!(db.drop_column("people", "nothing").unwrap_err(), DefineError::Unknown(_)));
    db.drop_index("by_note").unwrap();
    let old = db.table_named("people").unwrap();
    db.drop_column("people", "note").unwrap();
    let late =
        db.run(old.at(&[]).unwrap(), async move |tx| tx.get(&old, &[Value::Unsigned(1)]).await.map(drop));
    assert_eq!(late.unwrap_err().reason(), AbortReason::TableChanged);
    for db in [db, reopen(&files.power_cut(3))] {
        let table = db.table_named("people").unwrap();
        let names: Vec<_> = table.columns().iter().map(|column| column.name.clone()).collect();
        assert_eq!(names, ["id", "age", "city"]);
        let (read, by_age) = (table.clone(), db.index_named("by_age").unwrap());
        let range = by_age.prefix(&[Value::Unsigned(7)]).unwrap();
        let found = db.run(table.at(&[]).unwrap(), async move |tx| {
            let rows = tx.rows_by(&by_age, range.clone(), usize::MAX).await?;
            rows.iter().map(|row| row.values(&read)).collect::<Result<Vec<_>, _>>()
        });
        let row = |id: u128| vec![Value::Unsigned(id), Value::Unsigned(7), Value::Text("here".to_owned())];
        assert_eq!(found.unwrap(), [row(14), row(15)]);
        let verified = db.verify().unwrap();
        assert_eq!((verified.rows, verified.entries, verified.references), (ROWS, ROWS, ROWS));
    }
}

#[test]
fn no_child_is_overlooked_while_its_table_gets_columns() {
    const PARENTS: u64 = 200;
    let db = empty();
    for name in ["people", "animals"] {
        db.create_table(people(name, &[PARENTS / 2])).unwrap();
    }
    let (people, animals) = (db.table::<People>().unwrap(), db.table::<Animals>().unwrap());
    (0..PARENTS).for_each(|id| insert(&db, people, id, 1).unwrap());
    for id in 0..PARENTS {
        db.run(animals.at(&id), async move |tx| tx.insert(animals, id, person(1, "")).await).unwrap();
    }
    let reference =
        NewForeignKey { parent: "people".to_owned(), through: None, on_delete: OnDelete::Restrict };
    db.add_foreign_key("animals", &reference).unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for client in 0..2 {
            let (db, ended) = (&db, &ended);
            scope.spawn(move || {
                let mut random = Random::new(5).part(client);
                while !ended.load(Ordering::Relaxed) {
                    let id = random.below(PARENTS);
                    let deleted =
                        db.run(people.at(&id), async move |tx| tx.delete(people, id).await.map(drop));
                    assert!(deleted.is_err(), "person {id} has an animal");
                }
            });
        }
        for _ in 0..100 {
            db.add_column("animals", height()).unwrap();
            db.drop_column("animals", "height").unwrap();
        }
        ended.store(true, Ordering::Relaxed);
    });
    db.verify().unwrap();
}
