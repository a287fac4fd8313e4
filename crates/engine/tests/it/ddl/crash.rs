//! A crash at every call to the file system that a statement makes, and every one of them failing: afterwards there is the old
//! state or the new one.

use atrapos::catalog::Definitions;
use atrapos::{AbortReason, Database, DefineError};
use atrapos_durability::file::{Fault, FaultKind, ModelFiles, Times};

use super::columns::{height, tall};
use super::fixture::{Animals, People, ages, create, files, index, insert, of_age, people, person, reopen};

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

/// A statement, on a database that has been prepared for it.
struct Case<P, S> {
    prepare: P,
    statement: S,
}

/// Has a statement crash at each of its calls in turn, and checks what is there afterwards.
pub(crate) fn crash_at_every_call(
    statement: impl Fn(&Database) -> Result<(), DefineError>,
    check: impl Fn(&Database, bool),
) {
    Case { prepare: |_: &Database| {}, statement }.crash_at_every_call(check);
}

impl<P: Fn(&Database), S: Fn(&Database) -> Result<(), DefineError>> Case<P, S> {
    fn prepared(&self, files: &ModelFiles) -> Database {
        let db = filled(files);
        (self.prepare)(&db);
        db
    }

    /// How many calls the statement makes, and the names before and after it.
    fn measure(&self) -> (u64, Vec<String>, Vec<String>) {
        let files = files();
        let db = self.prepared(&files);
        let (before, old) = (files.calls(), names(&db));
        (self.statement)(&db).unwrap();
        (files.calls() - before, old, names(&db))
    }

    fn crash_at_every_call(&self, check: impl Fn(&Database, bool)) {
        let (calls, old, new) = self.measure();
        assert!(calls >= 4, "a manifest takes some calls");
        let mut happened = [0, 0];
        for at in 1..=calls {
            let files = files();
            let db = self.prepared(&files);
            files.crash_at(at);
            let told = (self.statement)(&db);
            drop(db);
            for after in [files.power_cut(at), files.kill()] {
                let is_new = check_left(&after, &old, &new, &format!("crash at call {at}"), &check);
                assert!(
                    is_new || told.is_err(),
                    "crash at call {at}: the statement was told to have happened"
                );
                happened[usize::from(is_new)] += 1;
            }
        }
        assert!(happened[0] > 0 && happened[1] > 0, "{happened:?}: some crashes come before it, some after");
    }

    /// Has each of its calls fail in turn. A database that was told of a failure has what it had, and either goes on or says that
    /// it has to be opened again.
    fn fail_at_every_call(&self, check: impl Fn(&Database, bool)) {
        let (calls, old, new) = self.measure();
        let kinds = [FaultKind::Eio, FaultKind::NoSpace, FaultKind::ShortWrite, FaultKind::SyncFails];
        let mut failed = 0;
        for at in 1..=calls {
            let (kind, times) =
                (kinds[(at % 4) as usize], [Times::Once, Times::Forever][(at / 4 % 2) as usize]);
            let what = format!("{kind:?} at call {at} ({times:?})");
            let files = files();
            let db = self.prepared(&files);
            files.set_fault(Fault { at, calls: None, kind, times });
            let told = (self.statement)(&db);
            files.clear_fault();
            failed += u64::from(told.is_err());
            let live = names(&db);
            let stayed = live[..old.len()] == old && live[old.len()..].iter().all(String::is_empty);
            assert!(
                if told.is_ok() { live == new } else { stayed },
                "{what}: {told:?} and there is {live:?}"
            );
            let animals = db.table::<Animals>().unwrap();
            let read = db.run(animals.at(&1), async move |tx| tx.get(animals, 1).await);
            assert_eq!(read.map(|animal| animal.is_some()), Ok(true), "{what}");
            if told.is_err()
                && let Ok(people) = db.table::<People>()
            {
                assert_eq!(ages(&db, people).map(|rows| rows.len() as u64), Ok(ROWS), "{what}");
            }
            let written = db.run(animals.at(&2), async move |tx| tx.insert(animals, 2, person(1, "")).await);
            match &written {
                Ok(()) => {
                    db.run(animals.at(&2), async move |tx| tx.delete(animals, 2).await.map(drop)).unwrap();
                }
                Err(abort) => assert_eq!(abort.reason(), AbortReason::NotDurable, "{what}"),
            }
            drop(db);
            for after in [files.power_cut(at), files.kill()] {
                let is_new = check_left(&after, &old, &new, &what, &check);
                assert!(is_new || told.is_err(), "{what}: the statement was told to have happened");
            }
        }
        assert!(failed > 0, "none of {calls} calls matters");
    }
}

/// Checks that there is the old or the new state in these files, and returns which one.
fn check_left(
    files: &ModelFiles,
    old: &[String],
    new: &[String],
    what: &str,
    check: &impl Fn(&Database, bool),
) -> bool {
    let db = reopen(files);
    let found = names(&db);
    let is_new = found == new;
    // A number that was reserved stays without a name.
    let is_old = found.len() >= old.len() && found[..old.len()] == *old;
    assert!(is_new || is_old && found[old.len()..].iter().all(String::is_empty), "{what}: {found:?}");
    check(&db, is_new);
    db.verify().unwrap_or_else(|error| panic!("{what}: {error}"));
    is_new
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

fn create_others(db: &Database) -> Result<(), DefineError> {
    db.create_table(people("others", &[7])).map(drop)
}

fn check_others(db: &Database, is_new: bool) {
    check_people(db);
    assert_eq!(db.definitions().find("others").is_some(), is_new);
    if !is_new {
        db.create_table(people("others", &[])).unwrap();
    }
}

fn drop_people(db: &Database) -> Result<(), DefineError> {
    db.drop_table("people")
}

fn check_dropped(db: &Database, is_new: bool) {
    check_people(db);
    assert_eq!(db.table::<People>().is_err(), is_new);
}

fn create_by_age(db: &Database) -> Result<(), DefineError> {
    db.create_index("people", index("by_age", &[1], false)).map(drop)
}

fn check_by_age(db: &Database, is_there: bool) {
    check_people(db);
    assert_eq!(db.definitions().find("by_age").is_some(), is_there);
    assert_eq!(db.verify().unwrap().entries, if is_there { ROWS } else { 0 });
    let found = |db: &Database| of_age(db, 3).unwrap().len() as u64;
    if is_there {
        assert_eq!(found(db), ROWS);
    } else {
        create_by_age(db).unwrap();
        assert_eq!(found(db), ROWS);
    }
}

/// An index that is to be dropped, with entries in a checkpoint and in the WAL.
fn with_index(db: &Database) {
    create_by_age(db).unwrap();
    db.checkpoint().unwrap();
    let table = db.table::<People>().unwrap();
    db.run(table.at(&1), async move |tx| tx.update(table, 1, |person| person.age = 4).await).unwrap();
    db.run(table.at(&1), async move |tx| tx.update(table, 1, |person| person.age = 3).await).unwrap();
}

fn drop_by_age(db: &Database) -> Result<(), DefineError> {
    db.drop_index("by_age")
}

fn add_height(db: &Database) -> Result<(), DefineError> {
    db.add_column("people", height()).map(drop)
}

fn check_height(db: &Database, is_new: bool) {
    if !is_new {
        check_people(db);
        db.add_column("people", height()).unwrap();
    }
    assert_eq!(tall(db).len() as u64, ROWS);
    assert!(tall(db).iter().all(|(_, row)| row.height == 170 && row.age == 3));
}

#[test]
fn a_table_is_created_or_not() {
    crash_at_every_call(create_others, check_others);
}

#[test]
fn a_table_is_dropped_or_not() {
    crash_at_every_call(drop_people, check_dropped);
}

#[test]
fn an_index_is_created_or_not() {
    crash_at_every_call(create_by_age, check_by_age);
}

#[test]
fn an_index_is_dropped_or_not() {
    let case = Case { prepare: with_index, statement: drop_by_age };
    case.crash_at_every_call(|db, is_new| check_by_age(db, !is_new));
}

#[test]
fn a_column_is_added_or_not() {
    crash_at_every_call(add_height, check_height);
}

#[test]
fn a_call_that_fails_leaves_what_there_was() {
    let nothing = |_: &Database| {};
    Case { prepare: nothing, statement: create_others }.fail_at_every_call(check_others);
    Case { prepare: nothing, statement: drop_people }.fail_at_every_call(check_dropped);
    Case { prepare: nothing, statement: create_by_age }.fail_at_every_call(check_by_age);
    Case { prepare: with_index, statement: drop_by_age }
        .fail_at_every_call(|db, is_new| check_by_age(db, !is_new));
    Case { prepare: nothing, statement: add_height }.fail_at_every_call(check_height);
}
