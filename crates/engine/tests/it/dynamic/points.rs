//! Single rows by their keys.

use atrapos::catalog::Value;
use atrapos::{AbortReason, Route, WorkerId};

use super::{directory_of, number, people, refused, reopen, signed, text};
use crate::indexes::{Users, user, users};
use crate::support::{Items, item, open, two_tables};

#[test]
fn rows_of_values_are_inserted_read_changed_and_deleted() {
    let files = directory_of(vec![people()]);
    for workers in [1, 3] {
        let db = reopen(&files, workers);
        let people = db.table_named("people").unwrap();
        let key = [text("ch"), number(7)];
        let at = people.at(&key[..1]).unwrap();
        let found = db
            .run(at, async move |tx| {
                tx.insert_row(&people, &[("number", number(7)), ("country", text("ch"))]).await?;
                let married = ("married", Value::Bool(true));
                let row = [("number", number(8)), ("country", text("ch")), ("age", signed(-3)), married];
                assert!(tx.insert_row_if_absent(&people, &row).await?);
                assert!(!tx.insert_row_if_absent(&people, &row).await?);
                let first = tx.get(&people, &key).await?.expect("it was just inserted");
                assert_eq!(first.get(&people, "age")?, signed(18));
                assert_eq!(first.get(&people, "nickname")?, Value::Null);
                assert_eq!(first.at(&people, 3)?, text("ch"));
                assert_eq!(first.key(&people)?, key);
                let nicknamed = [("nickname", text("ada")), ("age", signed(30))];
                assert!(tx.update_row(&people, &key, &nicknamed).await?);
                assert!(!tx.update_row(&people, &[text("at"), number(7)], &nicknamed).await?);
                let columns = tx.get_columns(&people, &key, &["age", "number", "nickname"]).await?;
                assert_eq!(columns, Some(vec![signed(30), number(7), text("ada")]));
                let (one, two) = tx
                    .join((
                        people.get(&key)?,
                        people.update(&[text("ch"), number(8)], &[("married", Value::Null)])?,
                    ))
                    .await?;
                assert!(one.is_some() && two);
                let gone = tx.delete(&people, &[text("ch"), number(8)]).await?.expect("it is there");
                assert!(tx.get(&people, &[text("ch"), number(8)]).await?.is_none());
                gone.values(&people)
            })
            .unwrap();
        assert_eq!(found, [Value::Null, number(8), signed(-3), text("ch"), Value::Null]);
        let people = db.table_named("people").unwrap();
        let left = db.run(Route::worker(WorkerId(0)), async move |tx| {
            tx.delete(&people, &[text("ch"), number(7)]).await?.expect("it was left").values(&people)
        });
        assert_eq!(left.unwrap(), [text("ada"), number(7), signed(30), text("ch"), Value::Null]);
        db.verify().unwrap();
    }
}

#[test]
fn a_table_is_the_same_by_name_and_as_types() {
    for workers in [1, 2, 8] {
        let db = open(users(), workers);
        let (typed, named) = (db.table::<Users>().unwrap(), db.table_named("users").unwrap());
        let names: Vec<&str> = named.columns().iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ["#1", "city", "visits", "email"]);
        for home in 0..workers as u16 {
            let named = named.clone();
            db.run(Route::worker(WorkerId(home)), async move |tx| {
                let row =
                    [("#1", number(3)), ("city", number(2)), ("visits", number(0)), ("email", text("ada"))];
                tx.insert_row(&named, &row).await?;
                assert_eq!(tx.get(typed, 3).await?, Some(user(2, "ada")));
                tx.update(typed, 3, |row| row.visits = 9).await?;
                tx.insert(typed, 70, user(5, "eve")).await?;
                assert!(tx.update_row(&named, &[number(70)], &[("email", text("joe"))]).await?);
                let row = tx.get(&named, &[number(3)]).await?.expect("it is there");
                assert_eq!(row.values(&named)?, [number(3), number(2), number(9), text("ada")]);
                Ok(())
            })
            .unwrap();
            // Index entries have followed.
            assert_eq!(db.verify().unwrap().entries, 4);
            let (by_email, named) =
                (db.index_named("users_by_email").unwrap(), db.table_named("users").unwrap());
            db.run(by_email.at(&[text("joe")]).unwrap(), async move |tx| {
                let joe = tx.row_by(&by_email, &[text("joe")]).await?.expect("it is there");
                assert_eq!(joe.get(&named, "#1")?, number(70));
                assert!(tx.row_by(&by_email, &[text("eve")]).await?.is_none());
                assert_eq!(tx.delete(typed, 70).await?, Some(user(5, "joe")));
                assert!(tx.delete(&named, &[number(3)]).await?.is_some());
                Ok(())
            })
            .unwrap();
            assert_eq!(db.verify().unwrap(), atrapos::Verification::default());
        }
    }
}

#[test]
fn taken_keys_abort_as_for_types() {
    let db = open(users(), 3);
    let named = db.table_named("users").unwrap();
    let row = |key, email: &str| {
        [("#1", number(key)), ("city", number(2)), ("visits", number(0)), ("email", text(email))]
    };
    let (own, index) = (named.clone(), named.clone());
    db.run(named.at(&[]).unwrap(), async move |tx| tx.insert_row(&named, &row(1, "ada")).await).unwrap();
    let taken = db.run(own.at(&[]).unwrap(), async move |tx| tx.insert_row(&own, &row(1, "eve")).await);
    assert_eq!(taken.unwrap_err().reason(), AbortReason::DuplicateKey);
    let taken = db.run(index.at(&[]).unwrap(), async move |tx| tx.insert_row(&index, &row(90, "ada")).await);
    assert_eq!(taken.unwrap_err().reason(), AbortReason::DuplicateKey);
    assert_eq!(db.verify().unwrap().rows, 1);
}

#[test]
fn what_does_not_fit_is_refused_with_a_sentence_and_nothing_is_done() {
    let files = directory_of(vec![people()]);
    let db = reopen(&files, 2);
    let people = db.table_named("people").unwrap();
    let said = refused(people.get(&[text("ch")]).map(drop));
    assert_eq!(
        said,
        "table 'people' has keys of 2 parts (country, number) and was given 1 values; give one for each part"
    );
    assert!(refused(people.get(&[text("ch"), number(1), number(2)]).map(drop)).contains("was given 3"));
    let said = refused(people.get(&[text("ch"), text("x")]).map(drop));
    assert!(said.starts_with("key column 'number' of table 'people': a value of type text"), "{said}");
    assert!(refused(people.at(&[Value::Null]).map(drop)).contains("NOT NULL"));
    let said = refused(people.insert(&[("number", number(1))]).map(drop));
    assert_eq!(said, "column 'country' of table 'people' is NOT NULL and has no default; give it a value");
    let said = refused(people.get_columns(&[text("ch"), number(1)], &["wife"]).map(drop));
    assert!(said.ends_with("its columns are nickname, number, age, country, married"), "{said}");
    let key = [text("ch"), number(1)];
    let update = |columns: &[(&str, Value)]| refused(people.update(&key, columns).map(drop));
    assert!(update(&[("country", text("at"))]).contains("part of the key"));
    assert!(update(&[("age", number(40_000))]).contains("beyond the range of i16"));
    assert!(update(&[("age", Value::Null)]).contains("NOT NULL"));
    assert!(update(&[("age", number(4)), ("age", number(5))]).contains("given twice"));
    // In a transaction it fails the operation, and nothing is left of what was done before; a savepoint saves it.
    let named = people.clone();
    let outcome = db.run(people.at(&[]).unwrap(), async move |tx| {
        tx.insert_row(&named, &[("number", number(1)), ("country", text("ch"))]).await?;
        let before = tx.savepoint()?;
        let row = [("number", number(2)), ("country", number(2))];
        assert!(refused(tx.insert_row(&named, &row).await).contains("'country'"));
        assert!(refused(tx.get(&named, &key).await).contains("'country'"), "the transaction is doomed");
        tx.rollback_to(before).await?;
        assert!(tx.get(&named, &key).await?.is_some());
        assert!(refused(tx.delete(&named, &[]).await).contains("was given 0"));
        Ok(())
    });
    assert!(refused(outcome).contains("was given 0"));
    assert_eq!(db.verify().unwrap().rows, 0);
}

#[test]
fn names_and_rows_of_other_tables_are_told() {
    let db = open(two_tables(), 2);
    assert!(db.table_named("nobody").unwrap_err().to_string().contains("no table 'nobody'"));
    assert!(db.index_named("items").unwrap_err().to_string().contains("no index 'items'"));
    let other = open(two_tables(), 1).table_named("items").unwrap();
    let (items, others) = (db.table_named("items").unwrap(), db.table_named("others").unwrap());
    let typed = db.table::<Items>().unwrap();
    let at = items.at(&[number(1)]).unwrap();
    let read = db.run(at.clone(), async move |tx| {
        tx.insert(typed, 1, item(4)).await?;
        let row = tx.get(&items, &[number(1)]).await?.expect("it was just inserted");
        assert!(refused(row.at(&items, 9)).contains("no column number 9"));
        row.values(&others)
    });
    assert!(refused(read).contains("use the handle by which it was read"));
    let foreign = db.run(at, async move |tx| tx.get(&other, &[number(1)]).await.map(drop));
    assert_eq!(foreign.unwrap_err().reason(), AbortReason::UnknownTable);
}

#[test]
fn long_rows_are_read_whole() {
    let db = open(two_tables(), 2);
    let items = db.table_named("items").unwrap();
    let long = "x".repeat(1000);
    let row = [("#1", number(5)), ("value", signed(-1)), ("text", text(&long))];
    let found = db.run(items.at(&[]).unwrap(), async move |tx| {
        tx.insert_row(&items, &row).await?;
        tx.get(&items, &[number(5)]).await?.expect("it is there").get(&items, "text")
    });
    assert_eq!(found.unwrap(), text(&long));
}
