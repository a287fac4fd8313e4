//! Tables without a key of their own.

use std::collections::BTreeSet;

use atrapos::catalog::Value;
use atrapos::{KeyRange, Route, WorkerId};

use super::{directory_of, events, number, people, refused, reopen, text};

/// Appends `rows` rows at each worker; the keys that they got.
fn append_everywhere(db: &atrapos::Database, rows: u64, what: &str) -> Vec<Vec<Value>> {
    let mut keys = Vec::new();
    for worker in 0..db.workers() as u16 {
        let (events, what) = (db.table_named("events").unwrap(), what.to_owned());
        let appended = db.run(Route::worker(WorkerId(worker)), async move |tx| {
            let mut keys = Vec::new();
            for _ in 0..rows {
                keys.push(tx.append(&events, &[("what", text(&what))]).await?);
            }
            Ok(keys)
        });
        keys.extend(appended.unwrap());
    }
    keys
}

#[test]
fn appended_rows_get_keys_of_their_worker_that_go_on_after_reopening() {
    let files = directory_of(vec![events(), people()]);
    let mut known = BTreeSet::new();
    for (round, workers) in [4_usize, 2, 4, 3].into_iter().enumerate() {
        let db = reopen(&files, workers);
        let keys = append_everywhere(&db, 5, &format!("round {round}"));
        for (at, key) in keys.iter().enumerate() {
            assert_eq!(key[0], number(at as u64 / 5));
            assert!(known.insert(format!("{key:?}")), "{key:?} was given twice");
        }
        // One that gives up leaves its numbers unused; nothing else.
        let named = db.table_named("events").unwrap();
        let gave_up = db.run(Route::worker(WorkerId(0)), async move |tx| {
            tx.append(&named, &[("what", text("given up"))]).await?;
            Err::<(), _>(atrapos::Abort::user("gives up"))
        });
        assert!(gave_up.is_err());
        let named = db.table_named("events").unwrap();
        let key = keys[0].clone();
        let (row, all) = db
            .run(named.at(&key).unwrap(), async move |tx| {
                let row = tx.get(&named, &key).await?.expect("it was appended");
                let all = tx.scan(&named, KeyRange::all(), usize::MAX).await?;
                Ok((row.values(&named)?, all.len()))
            })
            .unwrap();
        assert_eq!(row, [text(&format!("round {round}")), Value::Null]);
        assert_eq!(all, known.len());
        db.verify().unwrap();
        let report = db.close(std::time::Duration::from_secs(5));
        assert_eq!(report.failure, None);
    }
}

#[test]
fn appending_is_local_where_the_partition_is() {
    let files = directory_of(vec![events()]);
    let db = reopen(&files, 4);
    append_everywhere(&db, 3, "first");
    let before = db.statistics();
    append_everywhere(&db, 3, "second");
    let after = db.statistics();
    assert_eq!(after.remote_actions - before.remote_actions, 0);
    assert_eq!(after.locks_entered - before.locks_entered, 0);
}

#[test]
fn sessions_that_append_at_once_never_meet() {
    let files = directory_of(vec![events()]);
    let db = reopen(&files, 2);
    let sessions: Vec<_> = (0..8)
        .map(|at| {
            let events = db.table_named("events").unwrap();
            db.spawn_session(WorkerId(at % 2), async move |session| {
                for _ in 0..20 {
                    let (events, route) = (events.clone(), Route::worker(session.worker()));
                    let appended = session.run(&route, async move |tx| {
                        tx.append(&events, &[("what", text("at once"))]).await.map(drop)
                    });
                    appended.await.expect("nothing is in the way");
                }
            })
            .unwrap()
        })
        .collect();
    for session in sessions {
        session.join().unwrap();
    }
    assert_eq!(db.verify().unwrap().rows, 160);
}

#[test]
fn tables_with_and_without_keys_are_told_apart() {
    let files = directory_of(vec![events(), people()]);
    let db = reopen(&files, 1);
    let (events, people) = (db.table_named("events").unwrap(), db.table_named("people").unwrap());
    assert!(refused(events.insert(&[("what", text("x"))]).map(drop)).contains("Tx::append"));
    let appended = db.run(Route::worker(WorkerId(0)), async move |tx| {
        tx.append(&people, &[("country", text("ch")), ("number", number(1))]).await
    });
    assert!(refused(appended).contains("Tx::insert_row"));
}
