//! Foreign keys that are added to tables with rows, and dropped again.

use std::sync::mpsc;

use atrapos::catalog::{OnDelete, Value};
use atrapos::{Abort, AbortReason, Database, DefineError, Durability, NewForeignKey, NewTable};

use super::fixture::{
    Animals, People, create, create_with, empty, files, index, insert, people, person, reopen,
};
use crate::gate;
use crate::support::wait_until;

fn reference(through: Option<&str>) -> NewForeignKey {
    NewForeignKey {
        parent: "people".to_owned(),
        through: through.map(str::to_owned),
        on_delete: OnDelete::Restrict,
    }
}

/// People 1 to 4, and as many animals as asked for, whose keys name their people.
fn both(db: &Database, animals: u64) {
    db.create_table(people("people", &[3])).unwrap();
    db.create_table(people("animals", &[2])).unwrap();
    (1..5).for_each(|id| insert(db, db.table().unwrap(), id, 1).unwrap());
    (1..=animals).for_each(|id| add(db, id).unwrap());
}

fn add(db: &Database, id: u64) -> Result<(), Abort> {
    let animals = db.table::<Animals>().unwrap();
    db.run(animals.at(&id), async move |tx| tx.insert(animals, id, person(1, "")).await)
}

fn remove_person(db: &Database, id: u64) -> Result<(), Abort> {
    let table = db.table::<People>().unwrap();
    db.run(table.at(&id), async move |tx| tx.delete(table, id).await.map(drop))
}

#[test]
fn rows_that_are_there_are_checked_and_later_ones_are() {
    let files = files();
    let db = create(&files);
    both(&db, 3);
    db.add_foreign_key("animals", &reference(None)).unwrap();
    assert_eq!(add(&db, 9).unwrap_err().reason(), AbortReason::ForeignKey);
    assert_eq!(remove_person(&db, 3).unwrap_err().reason(), AbortReason::ForeignKey);
    remove_person(&db, 4).unwrap();
    assert_eq!(db.verify().unwrap().references, 3);
    // It is there after a crash, and can be dropped.
    drop(db);
    let db = reopen(&files.kill());
    assert_eq!(add(&db, 9).unwrap_err().reason(), AbortReason::ForeignKey);
    db.drop_foreign_key("animals", "people", None).unwrap();
    let error = db.drop_foreign_key("animals", "people", None).unwrap_err();
    assert!(matches!(error, DefineError::Unknown(_)), "{error}");
    add(&db, 9).unwrap();
    remove_person(&db, 1).unwrap();
}

#[test]
fn a_row_without_its_parent_refuses_the_foreign_key() {
    let db = empty();
    both(&db, 5);
    let error = db.add_foreign_key("animals", &reference(None)).unwrap_err();
    assert!(matches!(error, DefineError::Violated(_)), "{error}");
    // Nothing is enforced any more.
    add(&db, 9).unwrap();
    remove_person(&db, 1).unwrap();
    assert_eq!(db.verify().unwrap().references, 0);
}

/// Adds a foreign key while a transaction has inserted a row that has no parent and goes on. Returns the outcome of the statement.
fn beside_a_transaction(commits: bool, db: &Database) -> Result<(), DefineError> {
    both(db, 1);
    let animals = db.table::<Animals>().unwrap();
    let (inserted, is_inserted) = mpsc::channel();
    let (end, may_end) = gate::pair();
    let running = db.submit(animals.at(&7), async move |tx| {
        tx.insert(animals, 7, person(1, "")).await?;
        let _ = inserted.send(());
        tx.wait_for(may_end.clone()).await;
        if commits { Ok(()) } else { Err(Abort::user("as planned")) }
    });
    let running = running.unwrap();
    is_inserted.recv().unwrap();
    let waits = db.statistics().lock_waits;
    std::thread::scope(|scope| {
        let statement = scope.spawn(|| db.add_foreign_key("animals", &reference(None)));
        // It reads the row of the transaction, and waits for it. Other rows may be locked by then: whoever asked for one would wait, too.
        wait_until(|| db.statistics().lock_waits > waits);
        end.open();
        assert_eq!(running.wait().is_ok(), commits);
        statement.join().unwrap()
    })
}

#[test]
fn a_transaction_that_was_not_checked_is_waited_for() {
    let error = beside_a_transaction(true, &empty()).unwrap_err();
    assert!(matches!(error, DefineError::Violated(_)), "{error}");
    let db = empty();
    beside_a_transaction(false, &db).unwrap();
    assert_eq!(db.verify().unwrap().references, 1);
}

#[test]
fn a_part_that_is_null_refers_to_nothing() {
    let db = empty();
    let mut parents = people("people", &[]);
    parents.columns[0].ty = atrapos::ColumnType::Unsigned(4);
    db.create_table(parents).unwrap();
    let mut table = people("animals", &[]);
    table.columns[1].nullable = true;
    let table = NewTable { indexes: vec![index("by_age", &[1], false)], ..table.into() };
    db.create_table(table).unwrap();
    let (animals, parents) = (db.table_named("animals").unwrap(), db.table_named("people").unwrap());
    let insert = |id: u64, age: Value| {
        let animals = animals.clone();
        let columns =
            [("id", Value::Unsigned(id.into())), ("age", age), ("city", Value::Text(String::new()))];
        db.run(animals.at(&[]).unwrap(), async move |tx| tx.insert_row(&animals, &columns).await)
    };
    insert(1, Value::Null).unwrap();
    db.add_foreign_key("animals", &reference(Some("by_age"))).unwrap();
    insert(2, Value::Null).unwrap();
    assert_eq!(insert(3, Value::Unsigned(5)).unwrap_err().reason(), AbortReason::ForeignKey);
    let columns =
        [("id", Value::Unsigned(5)), ("age", Value::Unsigned(1)), ("city", Value::Text(String::new()))];
    let table = parents.clone();
    db.run(parents.at(&[]).unwrap(), async move |tx| tx.insert_row(&table, &columns).await).unwrap();
    insert(3, Value::Unsigned(5)).unwrap();
    let table = parents.clone();
    let gone = db.run(parents.at(&[]).unwrap(), async move |tx| {
        tx.delete(&table, &[Value::Unsigned(5)][..]).await.map(drop)
    });
    assert_eq!(gone.unwrap_err().reason(), AbortReason::ForeignKey);
    assert_eq!(db.verify().unwrap().references, 1);
}

#[cfg(debug_assertions)]
#[test]
fn a_foreign_key_that_is_not_checked_is_noticed() {
    use atrapos::planted::{Bug, with};
    let db = empty();
    both(&db, 5);
    with(Bug::ForeignKeyNotChecked, || db.add_foreign_key("animals", &reference(None))).unwrap();
    assert!(db.verify().is_err(), "a planted bug was not noticed");
}

#[test]
fn rows_that_would_violate_a_foreign_key_do_not_come_back_in_a_crash_after_it_was_added() {
    for durability in
        [Durability::Synchronous, Durability::Relaxed { max_loss_ms: 3_600_000 }, Durability::None]
    {
        let files = files();
        let db = create_with(&files, durability);
        both(&db, 5);
        db.checkpoint().unwrap();
        let animals = db.table::<Animals>().unwrap();
        db.run(animals.at(&5), async move |tx| tx.delete(animals, 5).await.map(drop)).unwrap();
        db.add_foreign_key("animals", &reference(None)).unwrap();
        let db = reopen(&files.power_cut(1));
        assert_eq!(db.definitions().foreign_keys.len(), 1);
        assert!(db.verify().is_ok(), "{durability:?}");
    }
}
