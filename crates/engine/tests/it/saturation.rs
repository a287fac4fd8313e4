//! Workers that host as many sessions as they take: what the database itself asks of them is answered all the same, and
//! closing does not wait for them longer than it was told to.

use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use atrapos::{
    AbortReason, Adaptation, Builder, ControllerSettings, Database, LoadProgress, Schema, SchemeChange,
    Session, SessionHandle, TableRef, Tx, VerifyError, WorkerId,
};
use atrapos_durability::file::ModelFiles;

use crate::durable::notes::{directory, files};
use crate::support::{Items, Others, item, load_items};

/// As many sessions and transactions as a worker hosts before it takes no more from outside.
const IN_FLIGHT: usize = 1 << 14;

/// Requests beyond that wait in the worker's inbox, which has room for them.
const WAITING: usize = 64;

/// The worker that is full.
const FULL: WorkerId = WorkerId(0);

/// Rows of each table; the full worker owns the first half of them.
const ROWS: u64 = 8192;

fn builder(files: &ModelFiles) -> Builder {
    let schema = Schema::new()
        .table::<Items>()
        .table::<Others>()
        .split_evenly("items", 0, ROWS - 1)
        .split_evenly("others", 0, ROWS - 1);
    Database::builder(schema).workers(2).pin(false).huge_pages(false).files(Arc::new(files.clone()))
}

/// Starts so many sessions on the full worker that it takes no more, and waits until those that it takes have begun: each
/// runs `body` with its number.
fn saturate(
    db: &Database,
    body: impl AsyncFnOnce(Session, u64) + Clone + Send + 'static,
) -> Vec<SessionHandle<()>> {
    let begun = Arc::new(AtomicUsize::new(0));
    let sessions = (0..(IN_FLIGHT + WAITING) as u64).map(|number| {
        let (begun, body) = (Arc::clone(&begun), body.clone());
        let session = async move |session| {
            begun.fetch_add(1, Ordering::Relaxed);
            body(session, number).await;
        };
        db.spawn_session(FULL, session).expect("the database is open")
    });
    let sessions = sessions.collect();
    while begun.load(Ordering::Relaxed) < IN_FLIGHT {
        std::thread::yield_now();
    }
    sessions
}

/// Closes a database whose sessions never end. Everybody who waits for one is told.
fn close(db: Database, sessions: Vec<SessionHandle<()>>) {
    let report = db.close(Duration::ZERO);
    assert!(report.dropped >= IN_FLIGHT, "{report:?}");
    assert_eq!(report.failure, None);
    for session in sessions {
        assert_eq!(session.join().map_err(|abort| abort.reason()), Err(AbortReason::ShuttingDown));
    }
}

/// Asks for everything that the database does by asking its workers.
fn use_everything(db: &Database) {
    let (items, others) = (db.table::<Items>().unwrap(), db.table::<Others>().unwrap());
    let loaded = db.load(&LoadProgress::default(), move |loader| {
        for key in loader.share_of(others, 0, ROWS - 1).into_iter().flatten() {
            loader.add(others, &key, &item(1))?;
        }
        Ok(())
    });
    assert_eq!(loaded, Ok(ROWS));
    assert_eq!(db.len(items.id()), Ok(ROWS));
    assert!(db.memory_bytes().unwrap() > 0);
    assert_eq!(db.checkpoint().unwrap().rows, 2 * ROWS);
    let moved = db.repartition([
        SchemeChange::split(others, &100),
        SchemeChange::move_to(others, &100, WorkerId(1)),
        SchemeChange::move_to(others, &ROWS, FULL),
    ]);
    assert_eq!(moved.map(|report| (report.splits, report.moves)), Ok((1, 2)));
    db.workload_trace().unwrap();
    assert!(db.retire_worker(WorkerId(1)).unwrap().moves > 0);
    assert_eq!(db.add_worker(1), Ok(WorkerId(1)));
}

fn observing() -> Adaptation {
    Adaptation { act: false, ..Adaptation::default() }
}

#[test]
fn a_full_worker_answers_the_database_itself() {
    let files = files();
    let db = builder(&files).adaptation(observing()).open(directory()).unwrap();
    load_items(&db, ROWS, 0);
    let sessions = saturate(&db, async |_, _| pending().await);
    use_everything(&db);
    assert_eq!(db.verify().unwrap().rows, 2 * ROWS);
    close(db, sessions);
    let db = builder(&files).open(directory()).unwrap();
    assert_eq!(db.verify().unwrap().rows, 2 * ROWS);
}

/// Starts a transaction that changes all rows of the full worker and stays there with its locks: from the moment it waits for
/// the other worker nobody polls it.
fn hold_locks(db: &Database, items: TableRef<Items>) -> SessionHandle<()> {
    let changed = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&changed);
    let holder = db.spawn_session(FULL, async move |session| {
        let (route, in_transaction) = (items.at(&0), Arc::clone(&changed));
        let mut run = pin!(session.run(&route, async move |tx| {
            tx.join_all((0..ROWS / 2).map(|key| items.update(key, |row| row.value += 1))).await?;
            in_transaction.store(true, Ordering::SeqCst);
            tx.update(items, ROWS - 1, |row| row.value += 1).await
        }));
        poll_fn(|context| {
            if !changed.load(Ordering::SeqCst) {
                assert!(run.as_mut().poll(context).is_pending(), "it waits for the other worker");
            }
            Poll::<()>::Pending
        })
        .await;
    });
    while !seen.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    holder.expect("the database is open")
}

#[test]
fn a_worker_full_of_transactions_that_wait_for_locks_answers_the_database_itself() {
    let files = files();
    let db = builder(&files).adaptation(observing()).open(directory()).unwrap();
    load_items(&db, ROWS, 0);
    let items = db.table::<Items>().unwrap();
    let holder = hold_locks(&db, items);
    let mut sessions = saturate(&db, async move |session, number| {
        let key = number % (ROWS / 2);
        let waited = session.run(&items.at(&key), async move |tx| tx.get(items, key).await).await;
        panic!("a lock that is never released was waited for with the outcome {waited:?}");
    });
    sessions.push(holder);
    use_everything(&db);
    assert!(matches!(db.verify(), Err(VerifyError::Locks { table: "items", .. })));
    close(db, sessions);
    let db = builder(&files).open(directory()).unwrap();
    let items = db.table::<Items>().unwrap();
    let value = db.run(items.at(&0), async move |tx| tx.get(items, 0).await);
    assert_eq!(value, Ok(Some(item(0))), "what did not end has left nothing");
}

/// The threads of the database are in the middle of asking the full worker for something when it is closed.
#[test]
fn a_full_worker_does_not_keep_a_database_from_closing() {
    let files = files();
    let often = Duration::from_millis(1);
    let controller = ControllerSettings { interval: often, ..ControllerSettings::default() };
    let db = builder(&files)
        .adaptation(Adaptation { controller, ..Adaptation::default() })
        .checkpoint_every(often)
        .open(directory())
        .unwrap();
    load_items(&db, ROWS, 0);
    let items = db.table::<Items>().unwrap();
    let sessions = saturate(&db, async move |session, number| {
        // Something for the checkpoints.
        let key = number % (ROWS / 2);
        let change = async move |tx: &mut Tx<'_>| tx.update(items, key, |row| row.value += 1).await;
        session.run(&items.at(&key), change).await.unwrap();
        pending::<()>().await;
    });
    close(db, sessions);
    let db = builder(&files).open(directory()).unwrap();
    assert_eq!(db.verify().unwrap().rows, ROWS);
}
