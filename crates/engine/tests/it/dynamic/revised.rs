//! Rows that are changed as a function of them decides, transactions that wait for a client, and loads by name.

use std::sync::mpsc;

use atrapos::catalog::Value;
use atrapos::{Abort, AbortReason, LoadProgress, Revision, Route, Tx, WorkerId};

use super::{directory_of, number, people, refused, reopen, signed, text};

fn key_of(country: &str, person: u64) -> [Value; 2] {
    [text(country), number(person)]
}

#[test]
fn a_row_is_revised_on_its_owner() {
    let files = directory_of(vec![people()]);
    for workers in [1, 3] {
        let db = reopen(&files, workers);
        let people = db.table_named("people").unwrap();
        // From every worker, so that the row is on another one, too.
        for worker in 0..workers as u16 {
            let people = people.clone();
            let ran = db.run(Route::worker(WorkerId(worker)), async move |tx| {
                let key = key_of("ch", 1);
                tx.insert_row(&people, &[("number", number(1)), ("country", text("ch"))]).await?;
                let handle = people.clone();
                let older = move |row: &atrapos::DynRow| {
                    let Value::Signed(age) = row.get(&handle, "age")? else {
                        return Err(Abort::user("no age"));
                    };
                    Ok((Revision::Set(vec![(2, Value::Signed(age + 1)), (0, text("kid"))]), age))
                };
                assert_eq!(tx.revise_row(&people, &key, older).await?, Some(18));
                let keep = |_: &atrapos::DynRow| Ok((Revision::Keep, ()));
                assert_eq!(tx.revise_row(&people, &key, keep).await?, Some(()));
                assert_eq!(tx.revise_row(&people, &key_of("ch", 2), keep).await?, None);
                let row = tx.get(&people, &key).await?.expect("it is there");
                assert_eq!(
                    (row.get(&people, "age")?, row.get(&people, "nickname")?),
                    (signed(19), text("kid"))
                );
                let delete = |_: &atrapos::DynRow| Ok((Revision::Delete, ()));
                assert_eq!(tx.revise_row(&people, &key, delete).await?, Some(()));
                assert!(tx.get(&people, &key).await?.is_none());
                Ok(())
            });
            ran.unwrap();
        }
        db.verify().unwrap();
    }
}

#[test]
fn a_revision_that_does_not_fit_changes_nothing() {
    let files = directory_of(vec![people()]);
    let db = reopen(&files, 2);
    let people = db.table_named("people").unwrap();
    let inserted = people.clone();
    let at = people.at(&key_of("ch", 1)).unwrap();
    db.run(at.clone(), async move |tx| {
        tx.insert_row(&inserted, &[("number", number(1)), ("country", text("ch"))]).await
    })
    .unwrap();
    for wrong in [vec![(1, number(2))], vec![(2, text("old"))], vec![(2, Value::Null)], vec![(9, number(1))]]
    {
        let people = people.clone();
        let revised = db.run(at.clone(), async move |tx| {
            let wrong = wrong.clone();
            tx.revise_row(&people, &key_of("ch", 1), move |_| Ok((Revision::Set(wrong), ()))).await
        });
        assert!(!refused(revised).is_empty());
    }
    let panicking = people.clone();
    let panicked = db.run(at.clone(), async move |tx| {
        let decide = |_: &atrapos::DynRow| -> Result<(Revision, ()), Abort> { panic!("it decides nothing") };
        tx.revise_row(&panicking, &key_of("ch", 1), decide).await
    });
    assert_eq!(panicked.unwrap_err().reason(), AbortReason::Panic);
    let age = db.run(at, async move |tx| {
        tx.get(&people, &key_of("ch", 1)).await?.expect("it is there").get(&people, "age")
    });
    assert_eq!(age.unwrap(), signed(18));
}

#[test]
fn a_transaction_that_waits_for_its_client_keeps_its_locks() {
    let files = directory_of(vec![people()]);
    let db = reopen(&files, 2);
    let people = db.table_named("people").unwrap();
    let at = people.at(&key_of("ch", 1)).unwrap();
    let inserted = people.clone();
    db.run(at.clone(), async move |tx| {
        tx.insert_row(&inserted, &[("number", number(1)), ("country", text("ch"))]).await
    })
    .unwrap();
    let older = async |tx: &mut Tx<'_>, people: &atrapos::TableHandle| {
        let handle = people.clone();
        let decide = move |row: &atrapos::DynRow| {
            let Value::Signed(age) = row.get(&handle, "age")? else { return Err(Abort::user("no age")) };
            Ok((Revision::Set(vec![(2, Value::Signed(age + 1))]), age + 1))
        };
        tx.revise_row(people, &key_of("ch", 1), decide).await
    };
    // The client is another transaction, on no row.
    let (begun, has_begun) = mpsc::channel();
    let client = db.submit(Route::worker(WorkerId(1)), async move |_| Ok(())).unwrap();
    let client = std::sync::Mutex::new(Some(client));
    let first = people.clone();
    let waiting = db
        .submit(at.clone(), async move |tx| {
            let age = older(tx, &first).await?;
            begun.send(()).expect("the test waits");
            let client = client.lock().expect("it is held by nobody else").take();
            if let Some(client) = client {
                tx.wait_for(client).await?;
            }
            older(tx, &first).await.map(|again| (age, again))
        })
        .unwrap();
    has_begun.recv().expect("it begins");
    let second = people.clone();
    let other = db.submit(at, async move |tx| older(tx, &second).await).unwrap();
    // Nobody has come between the two changes of the first.
    let (one, two) = waiting.wait().unwrap();
    assert_eq!(two, one.map(|age| age + 1));
    let third = other.wait().unwrap();
    assert!(third == Some(21) || third == Some(19), "{third:?}");
}

#[test]
fn rows_are_loaded_by_name() {
    let files = directory_of(vec![people()]);
    let db = reopen(&files, 3);
    let people = db.table_named("people").unwrap();
    let loaded = people.clone();
    let load = move |loader: &mut atrapos::Loader<'_>| {
        for person in (0..100_u64).rev() {
            if loader.owns_row(&loaded, &key_of("ch", person))? {
                loader.add_row(&loaded, &[("country", text("ch")), ("number", number(person))])?;
            }
        }
        Ok(())
    };
    assert_eq!(db.load(&LoadProgress::default(), load.clone()).unwrap(), 100);
    let again = db.load(&LoadProgress::default(), load).unwrap_err();
    assert!(again.to_string().contains("twice"), "{again}");
    let all = db.run(people.at(&[]).unwrap(), async move |tx| {
        let rows = tx.scan(&people, people.prefix(&[text("ch")])?, usize::MAX).await?;
        rows.iter().map(|row| row.get(&people, "number")).collect::<Result<Vec<_>, Abort>>()
    });
    assert_eq!(all.unwrap(), (0..100).rev().map(number).collect::<Vec<_>>());
    db.verify().unwrap();
}
