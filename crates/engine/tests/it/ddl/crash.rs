//! A crash at every call to the file system that a statement makes: afterwards there is the old state or the new one.

use atrapos::catalog::Definitions;
use atrapos::{Database, DefineError};
use atrapos_durability::file::ModelFiles;

use super::columns::{height, tall};
use super::fixture::{Animals, People, ages, create, files, index, insert, people, person, reopen};

/// Rows of `people` from before the statement, a part of which is in a checkpoint only.
const ROWS: u64 = 40;

/// A database with rows in `people` and in `animals`.
fn filled(files: &ModelFiles) -> Database {
    let db = create(files);
    db.create_table(people("people", &[ROWS / 2])).unwrap();
    db.create_table(people("animals", &[])).unwrap();
    let (table, animals) = (db.table::<People>().unwrap(), db.table::<Animals>().unwrap());
    (0..ROWS / 2).for_each(|id| insert(&db, table, id, 3).unwrap());
    db.checkpoint().unwrap();
    (ROWS / 2..ROWS).for_each(|id| insert(&db, table, id, 3).unwrap());
    db.run(animals.at(&1), async move |tx| tx.insert(animals, 1, person(1, "")).await).unwrap();
    db
}

/// The definitions without today's cuts.
fn names(db: &Database) -> Vec<String> {
    let Definitions { trees, .. } = db.definitions();
    trees.iter().map(|tree| tree.name().to_owned()).collect()
}

/// Has a statement crash at each of its calls in turn, and checks what is there afterwards.
pub(crate) fn crash_at_every_call(
    statement: impl Fn(&Database) -> Result<(), DefineError>,
    check: impl Fn(&Database, bool),
) {
    let (calls, old, new) = {
        let files = files();
        let db = filled(&files);
        let (before, old) = (files.calls(), names(&db));
        statement(&db).unwrap();
        (files.calls() - before, old, names(&db))
    };
    assert!(calls >= 4, "a manifest takes some calls");
    let mut happened = [0, 0];
    for at in 1..=calls {
        let files = files();
        let db = filled(&files);
        files.crash_at(at);
        let told = statement(&db);
        drop(db);
        for after in [files.power_cut(at), files.kill()] {
            let db = reopen(&after);
            let found = names(&db);
            let is_new = found == new;
            // A number that was reserved stays without a name.
            assert!(
                is_new || found[..old.len()] == old && found[old.len()..].iter().all(String::is_empty),
                "crash at call {at}: {found:?}"
            );
            assert!(is_new || told.is_err(), "crash at call {at}: the statement was told to have happened");
            happened[usize::from(is_new)] += 1;
            check(&db, is_new);
            db.verify().unwrap_or_else(|error| panic!("crash at call {at}: {error}"));
        }
    }
    assert!(happened[0] > 0 && happened[1] > 0, "{happened:?}: some crashes come before it, some after");
}

/// All rows of `people` are there, if it is.
fn check_people(db: &Database) {
    if let Ok(table) = db.table::<People>() {
        let expected: Vec<(u64, u32)> = (0..ROWS).map(|id| (id, 3)).collect();
        assert_eq!(ages(db, table).unwrap(), expected);
    }
    let animals = db.table::<Animals>().unwrap();
    assert_eq!(db.len(animals.id()), Ok(1));
}

#[test]
fn a_table_is_created_or_not() {
    let create = |db: &Database| db.create_table(people("others", &[7])).map(drop);
    crash_at_every_call(create, |db, is_new| {
        check_people(db);
        assert_eq!(db.definitions().find("others").is_some(), is_new);
        if !is_new {
            db.create_table(people("others", &[])).unwrap();
        }
    });
}

#[test]
fn a_table_is_dropped_or_not() {
    crash_at_every_call(
        |db| db.drop_table("people"),
        |db, is_new| {
            check_people(db);
            assert_eq!(db.table::<People>().is_err(), is_new);
        },
    );
}

#[test]
fn an_index_is_created_or_not() {
    let create = |db: &Database| db.create_index("people", index("by_age", &[1], false)).map(drop);
    crash_at_every_call(create, |db, is_new| {
        check_people(db);
        assert_eq!(db.definitions().find("by_age").is_some(), is_new);
        assert_eq!(db.verify().unwrap().entries, if is_new { ROWS } else { 0 });
        if !is_new {
            db.create_index("people", index("by_age", &[1], false)).unwrap();
        }
    });
}

#[test]
fn a_column_is_added_or_not() {
    let add = |db: &Database| db.add_column("people", height()).map(drop);
    crash_at_every_call(add, |db, is_new| {
        if is_new {
            assert_eq!(tall(db).len() as u64, ROWS);
            assert!(tall(db).iter().all(|(_, row)| row.height == 170 && row.age == 3));
        } else {
            check_people(db);
            db.add_column("people", height()).unwrap();
            assert_eq!(tall(db).len() as u64, ROWS);
        }
    });
}
