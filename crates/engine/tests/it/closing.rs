//! Overload, and closing a database with work under way: all of it is completed or refused.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::time::Duration;

use atrapos::{Abort, AbortReason, Advice, Database, Route, Tx, WorkerId};

use crate::support::{Items, is_well, item, load_items, open, two_tables};

const LONG: Duration = Duration::from_secs(600);

/// A session whose transactions wait for nothing, for their rows are here and nobody else wants them, gives up its turn all the same.
#[test]
fn a_worker_serves_others_beside_a_session_that_never_waits() {
    let db = open(two_tables(), 1);
    load_items(&db, 10, 1);
    let items = db.table::<Items>().unwrap();
    for route in [items.at(&1), Route::worker(WorkerId(0))] {
        let (began, has_begun) = mpsc::channel();
        let session = db.spawn_session(WorkerId(0), async move |session| {
            while !session.is_stopping() {
                let read = session.run(&route, async move |tx| tx.get(items, 1).await).await?;
                if read != Some(item(1)) {
                    break;
                }
                let _ = began.send(());
            }
            Ok::<_, Abort>(())
        });
        has_begun.recv().unwrap();
        let changed = db.run(items.at(&1), async move |tx| tx.update(items, 1, |row| row.value += 1).await);
        assert_eq!(changed, Ok(Some(())));
        assert_eq!(session.unwrap().join(), Ok(Ok(())));
        let changed = db.run(items.at(&1), async move |tx| tx.update(items, 1, |row| row.value -= 1).await);
        assert_eq!(changed, Ok(Some(())));
    }
    // The end of the database is noticed as well.
    let session = db.spawn_session(WorkerId(0), async move |session| {
        while !session.is_stopping() {
            session.run(&items.at(&1), async move |tx| tx.get(items, 1).await.map(drop)).await?;
        }
        Ok::<_, Abort>(())
    });
    assert_eq!(db.close(LONG).dropped, 0);
    assert!(session.unwrap().join().is_ok());
}

#[test]
fn an_overloaded_worker_says_try_again_later() {
    let db = Database::builder(two_tables()).workers(2).pin(false).inbox_slots(4).in_memory().unwrap();
    load_items(&db, 100, 1);
    let items = db.table::<Items>().unwrap();
    // Worker 0 is held up inside a change.
    let (go_on, held_up) = mpsc::channel::<()>();
    let held_up = Arc::new(Mutex::new(held_up));
    let (reached, is_there) = mpsc::channel::<()>();
    let slow = db
        .submit(items.at(&1), async move |tx| {
            let (held_up, reached) = (Arc::clone(&held_up), reached.clone());
            tx.update(items, 1, move |_| {
                let _ = reached.send(());
                let _ = held_up.lock().unwrap().recv();
            })
            .await
            .map(drop)
        })
        .unwrap();
    is_there.recv().unwrap();
    let mut waiting = Vec::new();
    let refusal = loop {
        match db.try_submit(items.at(&2), async move |tx| tx.update(items, 2, |row| row.value += 1).await) {
            Ok(submitted) => waiting.push(submitted),
            Err(refusal) => break refusal,
        }
        assert!(waiting.len() < 1000, "the inbox takes everything");
    };
    assert_eq!((refusal.reason(), refusal.reason().advice()), (AbortReason::Overloaded, Advice::Retry));
    assert_eq!(refusal.detail(), "worker 0 has as many requests as it takes; try again later");
    // The other worker has room.
    assert_eq!(
        db.run(items.at(&98), async move |tx| Ok(tx.get(items, 98).await?.map(|row| row.value))),
        Ok(Some(1))
    );
    go_on.send(()).unwrap();
    assert_eq!(slow.wait(), Ok(()));
    let accepted = waiting.len() as i64;
    assert!(accepted >= 4);
    assert!(
        waiting.into_iter().all(|submitted| submitted.wait() == Ok(Some(()))),
        "what was accepted is done"
    );
    let counted = db.run(items.at(&2), async move |tx| Ok(tx.get(items, 2).await?.map(|row| row.value)));
    assert_eq!(counted, Ok(Some(1 + accepted)));
    is_well(&db);
}

/// A transaction that crosses workers, over and over again.
async fn transfer(tx: &mut Tx<'_>, items: atrapos::TableRef<Items>, from: u64, to: u64) -> Result<(), Abort> {
    tx.update(items, from, |row| row.value -= 1).await?;
    tx.update(items, to, |row| row.value += 1).await.map(drop)
}

#[test]
fn closing_completes_or_refuses_everything_in_flight() {
    for workers in [1, 2, 8] {
        let db = open(two_tables(), workers);
        load_items(&db, 100, 1);
        let items = db.table::<Items>().unwrap();
        let sessions: Vec<_> = (0..2 * workers as u16)
            .map(|worker| {
                db.spawn_session(WorkerId(worker), async move |session| {
                    let mut key = u64::from(worker);
                    while !session.is_stopping() {
                        key = (key + 37) % 100;
                        let route = items.at(&key);
                        match session
                            .run(&route, async move |tx| transfer(tx, items, key, 99 - key).await)
                            .await
                        {
                            Ok(()) => {}
                            Err(abort) => assert!(matches!(
                                abort.reason(),
                                AbortReason::Deadlock | AbortReason::ShuttingDown
                            )),
                        }
                        session.yield_now().await;
                    }
                    "stopped by itself"
                })
                .unwrap()
            })
            .collect();
        let submitted: Vec<_> = (0..500_u64)
            .map(|at| {
                let (from, to) = (at * 7 % 100, (at * 13 + 1) % 100);
                db.submit(items.at(&from), async move |tx| transfer(tx, items, from, to).await).unwrap()
            })
            .collect();
        let report = db.close(LONG);
        assert_eq!(report.dropped, 0, "everything comes to its end");
        for session in sessions {
            assert_eq!(session.join(), Ok("stopped by itself"));
        }
        for outcome in submitted {
            match outcome.wait() {
                Ok(()) => {}
                Err(abort) => {
                    assert!(
                        matches!(abort.reason(), AbortReason::ShuttingDown | AbortReason::Deadlock),
                        "{abort}"
                    );
                }
            }
        }
    }
}

#[test]
fn what_does_not_end_is_dropped_at_the_deadline() {
    let db = open(two_tables(), 2);
    load_items(&db, 100, 1);
    let items = db.table::<Items>().unwrap();
    let endless = db.spawn_session::<()>(WorkerId(0), async move |session| {
        loop {
            let _ = session.run(&items.at(&1), async move |tx| transfer(tx, items, 1, 98).await).await;
            session.yield_now().await;
        }
    });
    let stuck = db.spawn_session(WorkerId(1), async move |_| std::future::pending::<()>().await);
    let report = db.close(Duration::from_millis(50));
    assert!(report.dropped >= 2, "{report:?}");
    for session in [endless.unwrap(), stuck.unwrap()] {
        let abort = session.join().unwrap_err();
        assert_eq!((abort.reason(), abort.reason().advice()), (AbortReason::ShuttingDown, Advice::Reopen));
        assert_eq!(abort.detail(), "the database is shutting down; open it again to go on");
    }
}

#[test]
fn a_database_can_be_dropped_with_work_under_way() {
    let db = open(two_tables(), 4);
    load_items(&db, 100, 1);
    let items = db.table::<Items>().unwrap();
    let submitted: Vec<_> = (0..200_u64)
        .map(|at| {
            db.submit(items.at(&(at % 100)), async move |tx| {
                transfer(tx, items, at % 100, 99 - at % 100).await
            })
            .unwrap()
        })
        .collect();
    drop(db);
    let refused = submitted.into_iter().map(atrapos::Submitted::wait).filter_map(Result::err);
    assert!(
        refused
            .into_iter()
            .all(|abort| matches!(abort.reason(), AbortReason::ShuttingDown | AbortReason::Deadlock))
    );
}

#[test]
fn sessions_come_back_with_their_results() {
    let db = open(two_tables(), 3);
    load_items(&db, 100, 1);
    let items = db.table::<Items>().unwrap();
    let sessions: Vec<_> = (0..6_u16)
        .map(|at| {
            // A number beyond the workers wraps around.
            let session = db.spawn_session(WorkerId(at), async move |session| {
                assert_eq!((session.worker().0, session.workers()), (at % 3, 3));
                let now = session.now();
                session.sleep_until(now).await;
                let mut owned = 0;
                for key in 0..100 {
                    owned += usize::from(session.owns(items, &key));
                    let there =
                        session.run(&items.at(&key), async move |tx| tx.get(items, key).await).await?;
                    assert_eq!(there, Some(item(1)));
                }
                assert!(!session.is_stopping());
                Ok::<_, Abort>(owned)
            });
            session.unwrap()
        })
        .collect();
    let owned: Vec<usize> = sessions.into_iter().map(|session| session.join().unwrap().unwrap()).collect();
    assert_eq!(owned, [33, 33, 34, 33, 33, 34]);
}

#[test]
fn an_outcome_can_be_awaited_elsewhere() {
    // `Submitted` is a future for whatever the caller runs futures with.
    let db = open(two_tables(), 2);
    load_items(&db, 100, 1);
    let items = db.table::<Items>().unwrap();
    let mut submitted =
        db.submit(items.at(&98), async move |tx| Ok(tx.get(items, 98).await?.map(|row| row.value))).unwrap();
    struct Wakes(mpsc::Sender<()>);
    impl std::task::Wake for Wakes {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(());
        }
    }
    let (sender, woken) = mpsc::channel();
    let waker = Arc::new(Wakes(sender)).into();
    let mut context = std::task::Context::from_waker(&waker);
    let outcome = loop {
        if let Poll::Ready(outcome) = Pin::new(&mut submitted).poll(&mut context) {
            break outcome;
        }
        woken.recv().unwrap();
    };
    assert_eq!(outcome, Ok(Some(1)));
}
