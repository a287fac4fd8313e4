//! Rows that are deleted with the row they refer to.

use atrapos::catalog::OnDelete;
use atrapos::{Abort, Database, NewForeignKey, NewTable};

use super::fixture::{Animals, People, create, empty, files, index, insert, people, person, reopen};

fn reference(parent: &str, through: Option<&str>) -> NewForeignKey {
    NewForeignKey { parent: parent.into(), through: through.map(str::to_owned), on_delete: OnDelete::Cascade }
}

/// `animals` refer to `people` by their keys, and `relatives` to `animals`; on both workers.
fn by_prefix(db: &Database) {
    db.create_table(people("people", &[100])).unwrap();
    let animals = NewTable {
        indexes: vec![index("animals_by_age", &[1], false)],
        foreign_keys: vec![reference("people", None)],
        ..people("animals", &[50]).into()
    };
    db.create_table(animals).unwrap();
    let others =
        NewTable { foreign_keys: vec![reference("animals", None)], ..people("others", &[20]).into() };
    db.create_table(others).unwrap();
    let animals = db.table::<Animals>().unwrap();
    for id in [7, 70, 170] {
        insert(db, db.table().unwrap(), id, 1).unwrap();
        db.run(animals.at(&id), async move |tx| tx.insert(animals, id, person(3, "")).await).unwrap();
    }
}

fn delete(db: &Database, id: u64, commit: bool) -> Result<(), Abort> {
    let table = db.table::<People>().unwrap();
    db.run(table.at(&id), async move |tx| {
        tx.delete(table, id).await?;
        if commit { Ok(()) } else { Err(Abort::user("as planned")) }
    })
}

#[test]
fn children_go_with_their_parent_or_stay_with_it() {
    let db = empty();
    by_prefix(&db);
    let animals = db.table::<Animals>().unwrap();
    delete(&db, 70, false).unwrap_err();
    assert_eq!(db.len(animals.id()), Ok(3));
    for (id, left) in [(70, 2), (170, 1), (7, 0)] {
        delete(&db, id, true).unwrap();
        assert_eq!(db.len(animals.id()), Ok(left));
        let verified = db.verify().unwrap();
        assert_eq!((verified.references, verified.entries), (left, left));
    }
}

#[test]
fn what_went_with_its_parent_does_not_come_back_after_a_crash() {
    let files = files();
    let db = create(&files);
    by_prefix(&db);
    db.checkpoint().unwrap();
    delete(&db, 70, true).unwrap();
    let db = reopen(&files.power_cut(5));
    let animals = db.table::<Animals>().unwrap();
    assert_eq!(db.len(animals.id()), Ok(2));
    assert_eq!(db.verify().unwrap().references, 2);
    delete(&db, 7, true).unwrap();
    assert_eq!(db.verify().unwrap().references, 1);
}

#[test]
fn children_are_found_through_an_index() {
    let db = empty();
    let mut parents = people("people", &[]);
    // The key of a parent is an age.
    parents.columns[0].ty = atrapos::ColumnType::Unsigned(4);
    db.create_table(parents).unwrap();
    let animals = NewTable {
        indexes: vec![index("animals_by_age", &[1], false)],
        foreign_keys: vec![reference("people", Some("animals_by_age"))],
        ..people("animals", &[50]).into()
    };
    db.create_table(animals).unwrap();
    let table = db.table::<Ages>().unwrap();
    let animals = db.table::<Animals>().unwrap();
    for age in 0..4_u32 {
        db.run(table.at(&age), async move |tx| tx.insert(table, age, person(0, "")).await).unwrap();
    }
    for id in 0..100_u64 {
        let age = (id % 4) as u32;
        db.run(animals.at(&id), async move |tx| tx.insert(animals, id, person(age, "")).await).unwrap();
    }
    db.run(table.at(&2), async move |tx| tx.delete(table, 2).await.map(drop)).unwrap();
    assert_eq!(db.len(animals.id()), Ok(75));
    assert_eq!(db.verify().unwrap().references, 75);
    let through = db.drop_index("animals_by_age").unwrap_err().to_string();
    assert!(through.contains("goes through it"), "{through}");
}

/// `people` whose key is an age.
struct Ages;

impl atrapos::Table for Ages {
    type Key = u32;
    type Row = super::fixture::Person;
    const NAME: &'static str = "people";
}
