//! Tables that are created and dropped.

use std::sync::Arc;

use atrapos::catalog::{ColumnDef, ColumnType, OnDelete, TableDef};
use atrapos::{AbortReason, Database, DefineError, Durability, NewForeignKey, NewTable, Schema, WorkerId};

use super::columns::height;
use super::fixture::{
    Animals, ByAge, Held, People, Relatives, ages, create, create_with, directory, empty, files, impatient,
    insert, of_age, people, person, reopen,
};

#[test]
fn a_table_that_was_created_is_used_by_its_type_and_gone_when_it_is_dropped() {
    let db = empty();
    assert!(db.table::<People>().is_err());
    let number = db.create_table(people("people", &[100])).unwrap();
    let table = db.table::<People>().unwrap();
    assert_eq!(table.id(), number);
    for id in [1, 99, 100, 200] {
        insert(&db, table, id, id as u32).unwrap();
    }
    assert_eq!(ages(&db, table).unwrap(), [(1, 1), (99, 99), (100, 100), (200, 200)]);
    assert_eq!(db.scheme().family(number).partitions(), 2);
    assert_eq!(db.verify().unwrap().rows, 4);
    db.drop_table("people").unwrap();
    assert!(db.table::<People>().is_err());
    assert_eq!(db.table_names().count(), 0);
    for id in [1, 100] {
        let abort = insert(&db, table, id, 1).unwrap_err();
        assert_eq!(abort.reason(), AbortReason::TableChanged, "{abort}");
        assert!(abort.detail().contains("get the handle again"), "{abort}");
    }
    assert_eq!(ages(&db, table).unwrap_err().reason(), AbortReason::TableChanged);
    assert_eq!(db.verify().unwrap().rows, 0);
    // The name is free, the number is not.
    let again = db.create_table(people("people", &[])).unwrap();
    assert_ne!(again, number);
    let table = db.table::<People>().unwrap();
    assert_eq!(ages(&db, table).unwrap(), []);
    insert(&db, table, 1, 1).unwrap();
    assert_eq!(db.len(again).unwrap(), 1);
    assert_eq!(db.len(number).unwrap(), 0);
}

#[test]
fn what_was_created_and_dropped_is_so_after_reopening() {
    let files = files();
    let db = create(&files);
    db.create_table(people("people", &[50])).unwrap();
    let table = db.table::<People>().unwrap();
    (0..100).for_each(|id| insert(&db, table, id, 7).unwrap());
    db.create_table(people("animals", &[])).unwrap();
    db.checkpoint().unwrap();
    let animals = db.table::<Animals>().unwrap();
    db.run(animals.at(&5), async move |tx| tx.insert(animals, 5, person(1, "")).await).unwrap();
    drop(db);

    let db = reopen(&files.power_cut(1));
    let table = db.table::<People>().unwrap();
    assert_eq!(ages(&db, table).unwrap().len(), 100);
    let animals = db.table::<Animals>().unwrap();
    assert_eq!(db.len(animals.id()), Ok(1));
    drop(db);

    let db = reopen(&files);
    db.drop_table("people").unwrap();
    let animals = db.table::<Animals>().unwrap();
    db.run(animals.at(&6), async move |tx| tx.insert(animals, 6, person(1, "")).await).unwrap();
    // The checkpoint and the WAL have rows of what was dropped still.
    let cut = files.power_cut(2);
    drop(db);
    for files in [cut, files] {
        let db = reopen(&files);
        assert!(db.table::<People>().is_err());
        let animals = db.table::<Animals>().unwrap();
        assert_eq!(db.len(animals.id()), Ok(2));
        assert_eq!(db.verify().unwrap().rows, 2);
        let number = db.create_table(people("people", &[])).unwrap();
        assert_eq!(number.0, 2);
        assert_eq!(ages(&db, db.table().unwrap()).unwrap(), []);
        // A checkpoint leaves out what is not there.
        db.checkpoint().unwrap();
    }
}

/// The animals that a power cut leaves after people were copied to them and dropped.
pub(crate) fn left_of_a_copy(durability: Durability) -> u64 {
    let files = files();
    let db = create_with(&files, durability);
    db.create_table(people("people", &[])).unwrap();
    db.create_table(people("animals", &[])).unwrap();
    (0..5).for_each(|id| insert(&db, db.table().unwrap(), id, 7).unwrap());
    db.checkpoint().unwrap();
    let animals = db.table::<Animals>().unwrap();
    for id in 0..5 {
        db.run(animals.at(&id), async move |tx| tx.insert(animals, id, person(7, "")).await).unwrap();
    }
    db.drop_table("people").unwrap();
    let db = reopen(&files.power_cut(1));
    assert!(db.table::<People>().is_err(), "a statement is durable when it is done");
    db.len(db.table::<Animals>().unwrap().id()).unwrap()
}

#[test]
fn a_drop_outlives_no_transaction_that_was_committed_before_it() {
    for durability in
        [Durability::Synchronous, Durability::Relaxed { max_loss_ms: 3_600_000 }, Durability::None]
    {
        assert_eq!(left_of_a_copy(durability), 5, "{durability:?}");
    }
}

#[test]
fn tables_share_the_cuts_of_their_family_which_lives_as_long_as_one_of_them() {
    let db = empty();
    let first = db.create_table(people("people", &[10, 20])).unwrap();
    let second = TableDef { family: "people".to_owned(), ..people("relatives", &[]) };
    let second = db.create_table(second).unwrap();
    assert_eq!(db.scheme().family(first), db.scheme().family(second));
    let cut = TableDef { family: "people".to_owned(), ..people("cut", &[5]) };
    let error = db.create_table(cut).unwrap_err();
    assert!(matches!(&error, DefineError::Contradiction(_)), "{error}");
    assert!(error.to_string().contains("leave them out"), "{error}");
    let relatives = db.table::<Relatives>().unwrap();
    db.run(relatives.at(&15), async move |tx| tx.insert(relatives, 15, person(1, "")).await).unwrap();
    db.drop_table("people").unwrap();
    assert_eq!(db.scheme().family(second).partitions(), 3);
    let moved = atrapos::SchemeChange::move_to(relatives, &15, WorkerId(0));
    db.repartition([moved]).unwrap();
    assert_eq!(db.len(second), Ok(1));
    db.drop_table("relatives").unwrap();
    assert_eq!(db.scheme().families().count(), 0);
    db.verify().unwrap();
}

#[test]
fn what_cannot_be_is_refused_in_a_sentence_and_changes_nothing() {
    let db = empty();
    db.create_table(people("people", &[])).unwrap();
    let before = db.definitions();
    let taken = db.create_table(people("people", &[])).unwrap_err();
    assert!(matches!(&taken, DefineError::NameTaken(why) if why.contains("`people`")), "{taken}");
    let mut twice = people("other", &[]);
    twice.columns.push(ColumnDef::new("age", ColumnType::Bool));
    let twice = db.create_table(twice).unwrap_err();
    assert!(matches!(&twice, DefineError::Contradiction(why) if why.contains("`age`")), "{twice}");
    let unknown = db.drop_table("nobody").unwrap_err();
    assert!(matches!(&unknown, DefineError::Unknown(why) if why.contains("`nobody`")), "{unknown}");
    let orphan = NewForeignKey { parent: "nobody".into(), through: None, on_delete: OnDelete::Restrict };
    let orphan = NewTable { foreign_keys: vec![orphan], ..people("other", &[]).into() };
    let orphan = db.create_table(orphan).unwrap_err();
    assert!(matches!(&orphan, DefineError::Unknown(why) if why.contains("`nobody`")), "{orphan}");
    let child = NewForeignKey { parent: "people".into(), through: None, on_delete: OnDelete::Restrict };
    assert_eq!(db.definitions(), before);
    let child = NewTable { foreign_keys: vec![child], ..people("animals", &[]).into() };
    db.create_table(child).unwrap();
    let used = db.drop_table("people").unwrap_err();
    assert!(matches!(&used, DefineError::InUse(why) if why.contains("`animals`")), "{used}");
    db.drop_table("animals").unwrap();
    db.drop_table("people").unwrap();
}

#[test]
fn a_foreign_key_of_a_created_table_is_enforced_without_any_code() {
    let db = empty();
    db.create_table(people("people", &[100])).unwrap();
    let key = NewForeignKey { parent: "people".into(), through: None, on_delete: OnDelete::Restrict };
    db.create_table(NewTable { foreign_keys: vec![key], ..people("animals", &[50]).into() }).unwrap();
    let (table, animals) = (db.table::<People>().unwrap(), db.table::<Animals>().unwrap());
    let add = |id: u64| db.run(animals.at(&id), async move |tx| tx.insert(animals, id, person(1, "")).await);
    assert_eq!(add(7).unwrap_err().reason(), AbortReason::ForeignKey);
    insert(&db, table, 7, 1).unwrap();
    add(7).unwrap();
    let remove = db.run(table.at(&7), async move |tx| tx.delete(table, 7).await.map(drop));
    assert_eq!(remove.unwrap_err().reason(), AbortReason::ForeignKey);
    assert_eq!(db.verify().unwrap().references, 1);
}

#[test]
fn a_table_in_use_stays_when_patience_ends() {
    let db = impatient();
    let held = Held::begin(&db);
    let late = db.drop_table("people").unwrap_err();
    assert!(matches!(&late, DefineError::TimedOut(why) if why.contains("`people`")), "{late}");
    let table = db.table::<People>().unwrap();
    insert(&db, table, 50, 5).unwrap();
    held.end();
    assert_eq!(ages(&db, table).unwrap(), [(1, 2), (50, 5)]);
    db.drop_table("people").unwrap();
}

#[test]
fn a_drop_waits_for_the_transactions_that_have_used_the_table() {
    let db = empty();
    let held = Held::begin(&db);
    std::thread::scope(|scope| {
        let dropped = scope.spawn(|| {
            db.drop_table("people").unwrap();
            held.has_ended()
        });
        // The name goes first.
        while db.table::<People>().is_ok() {
            std::thread::yield_now();
        }
        assert!(!dropped.is_finished());
        held.end();
        assert!(dropped.join().unwrap(), "it was dropped while a transaction used it");
    });
    db.verify().unwrap();
}

#[test]
fn a_program_declares_what_is_left_of_its_schema() {
    let files = files();
    let open = |schema: Schema| {
        let builder = Database::builder(schema).workers(2).pin(false).huge_pages(false);
        builder.files(Arc::new(files.clone())).open(directory())
    };
    let db = open(Schema::new().table::<Animals>().table::<People>().index::<ByAge>()).unwrap();
    insert(&db, db.table().unwrap(), 1, 7).unwrap();
    db.drop_table("animals").unwrap();
    drop(db);
    let db = open(Schema::new().table::<People>().index::<ByAge>()).unwrap();
    let table = db.table::<People>().unwrap();
    insert(&db, table, 2, 7).unwrap();
    assert_eq!(of_age(&db, 7).unwrap(), [1, 2]);
    assert_eq!(db.verify().unwrap().entries, 2);
    // The type's code is not that of a table with another column.
    let why = db.add_column("people", height()).unwrap_err().to_string();
    assert!(why.contains("`by_age`") && why.contains("drop the index"), "{why}");
    db.create_table(people("animals", &[])).unwrap();
    drop(db);
    let other = open(Schema::new().table::<People>().index::<ByAge>()).unwrap_err().to_string();
    assert!(other.contains("table `animals` is in the database but is not declared"), "{other}");
}
