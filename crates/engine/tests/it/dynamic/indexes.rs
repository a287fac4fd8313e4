//! Rows found by values through indexes of tables that are made at run time, NULLs among them, while partitions move.

use std::ops::Bound;

use atrapos::catalog::{IndexDef, IndexPart, KeyColumn, Value};
use atrapos::{Abort, Database, DynRow, NewTable, Schema, SchemeChange, TableHandle, WorkerId};

use super::{number, people, text};
use crate::support::open;

/// People, cut in two by country, with a unique index over nicknames, which may be NULL, and one over ages, the oldest first.
fn people_with_indexes() -> NewTable {
    let index = |name: &str, column, descending, unique| IndexDef {
        name: name.to_owned(),
        of: 0,
        parts: vec![IndexPart::Column(KeyColumn { column, descending })],
        unique,
        family: name.to_owned(),
        splits: Vec::new(),
    };
    let mut table = people();
    table.splits = vec![b"b".to_vec()];
    NewTable {
        indexes: vec![index("by_nickname", 0, false, true), index("by_age", 2, true, false)],
        ..NewTable::from(table)
    }
}

fn numbers(rows: &[DynRow], table: &TableHandle) -> Result<Vec<Value>, Abort> {
    rows.iter().map(|row| row.get(table, "number")).collect()
}

/// Compares what is found through both indexes with what was inserted.
fn find(db: &Database) {
    let (by_nickname, by_age) = (db.index_named("by_nickname").unwrap(), db.index_named("by_age").unwrap());
    db.run(by_age.at(&[]).unwrap(), async move |tx| {
        let people = by_age.table().clone();
        let ada = tx.row_by(&by_nickname, &[text("ada")]).await?.expect("she is there");
        assert_eq!(ada.key(&people)?, [text("at"), number(1)]);
        assert!(tx.row_by(&by_nickname, &[text("eve")]).await?.is_none());
        let unnamed = tx.rows_by(&by_nickname, by_nickname.prefix(&[Value::Null])?, 9).await?;
        assert_eq!(unnamed.len(), 2, "keys with a NULL are all different");
        assert!(tx.row_by(&by_nickname, &[Value::Null]).await?.is_some());
        let all = by_age.prefix(&[])?;
        assert_eq!(numbers(&tx.rows_by(&by_age, all.clone(), 9).await?, &people)?, [4, 3, 2, 1].map(number));
        assert_eq!(numbers(&tx.rows_by_backward(&by_age, all, 2).await?, &people)?, [1, 2].map(number));
        let limit = [number(30)];
        let younger = by_age.range(Bound::Excluded(&limit[..]), Bound::Unbounded)?;
        assert_eq!(numbers(&tx.rows_by(&by_age, younger, 9).await?, &people)?, [2, 1].map(number));
        Ok(())
    })
    .unwrap();
}

#[test]
fn indexes_of_tables_made_at_run_time_find_rows_by_values_wherever_they_are() {
    let db = open(Schema::new(), 3);
    db.create_table(people_with_indexes()).unwrap();
    let people = db.table_named("people").unwrap();
    let named = people.clone();
    let taken = db
        .run(people.at(&[]).unwrap(), async move |tx| {
            let nicknames = [text("ada"), Value::Null, text("joe"), Value::Null];
            for (at, nickname) in (1..).zip(nicknames) {
                let country = if at % 2 == 1 { "at" } else { "ch" };
                let row = [("number", number(at)), ("country", text(country)), ("nickname", nickname)];
                tx.insert_row(&named, &row).await?;
                let age = [("age", number(at * 10))];
                tx.update_row(&named, &[text(country), number(at)], &age).await?;
            }
            let before = tx.savepoint()?;
            let row = [("number", number(9)), ("country", text("ch")), ("nickname", text("joe"))];
            let taken = tx.insert_row(&named, &row).await.map_err(|abort| abort.reason());
            tx.rollback_to(before).await?;
            Ok(taken)
        })
        .unwrap();
    assert_eq!(taken, Err(atrapos::AbortReason::DuplicateKey));
    for to in 0..3 {
        let ids = ["by_nickname", "by_age"].map(|name| db.index_named(name).unwrap().id());
        for table in ids.into_iter().chain([people.id()]) {
            let to = WorkerId((to + table.0) % 3);
            db.repartition([SchemeChange::Move { table, at: atrapos::KeyBuf::new(), to }]).unwrap();
        }
        find(&db);
        db.verify().unwrap();
    }
}
