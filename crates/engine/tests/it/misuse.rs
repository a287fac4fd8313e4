//! Unusual uses of a database from its own workers' threads, and of the operations of a transaction: each works, or is
//! refused with one sentence.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use atrapos::{Abort, AbortReason, Advice, Database, WorkerId};

use crate::support::{Items, STEPS_MAX, for_seeds, item, load_items, open, simulate, two_tables};

// --- Foreign futures ---------------------------------------------------------------------------------------------------

/// A future that somebody else completes: it knows nothing of any database.
#[derive(Clone, Default)]
struct Gate(Arc<Mutex<Door>>);

#[derive(Default)]
struct Door {
    is_open: bool,
    polls: u64,
    waker: Option<Waker>,
}

impl Gate {
    fn open(&self) {
        let waker = {
            let mut door = self.0.lock().unwrap();
            door.is_open = true;
            door.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    /// Waits until somebody waits here.
    fn until_awaited(&self) {
        while self.0.lock().unwrap().waker.is_none() {
            std::thread::yield_now();
        }
    }
}

impl Future for Gate {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut door = self.0.lock().unwrap();
        door.polls += 1;
        if door.is_open {
            return Poll::Ready(());
        }
        door.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

#[test]
fn a_session_awaits_outcomes_of_its_own_and_other_databases() {
    let (db, other) = (Arc::new(open(two_tables(), 3)), Arc::new(open(two_tables(), 2)));
    load_items(&db, 100, 1);
    load_items(&other, 100, 2);
    let (items, theirs) = (db.table::<Items>().unwrap(), other.table::<Items>().unwrap());
    let sessions: Vec<_> = (0..6)
        .map(|at| {
            let (inner, other) = (Arc::clone(&db), Arc::clone(&other));
            let session = db.spawn_session(WorkerId(at), async move |session| {
                let mut sum = 0;
                for key in (0..100).step_by(9) {
                    let here =
                        inner.submit(items.at(&key), async move |tx| tx.get(items, key).await)?.await?;
                    let there =
                        other.submit(theirs.at(&key), async move |tx| tx.get(theirs, key).await)?.await?;
                    let own = session.run(&items.at(&key), async move |tx| tx.get(items, key).await).await?;
                    sum += [here, there, own].into_iter().flatten().map(|row| row.value).sum::<i64>();
                }
                Ok::<i64, Abort>(sum)
            });
            session.unwrap()
        })
        .collect();
    for session in sessions {
        assert_eq!(session.join().unwrap(), Ok(12 * (1 + 2 + 1)));
    }
}

#[test]
fn a_session_awaits_what_another_thread_completes() {
    let db = open(two_tables(), 2);
    for worker in [0, 1] {
        let gate = Gate::default();
        let inner = gate.clone();
        let session = db.spawn_session(WorkerId(worker), async move |session| {
            inner.await;
            session.worker()
        });
        gate.until_awaited();
        gate.open();
        assert_eq!(session.unwrap().join(), Ok(WorkerId(worker)));
    }
}

#[test]
fn a_session_awaits_what_another_session_completes() {
    let db = open(two_tables(), 2);
    for opener in [0, 1] {
        let gate = Gate::default();
        let (inner, outer) = (gate.clone(), gate.clone());
        let waits = db.spawn_session(WorkerId(0), async move |_| inner.await);
        gate.until_awaited();
        let opens = db.spawn_session(WorkerId(opener), async move |_| outer.open());
        assert_eq!(waits.unwrap().join(), Ok(()));
        assert_eq!(opens.unwrap().join(), Ok(()));
    }
}

#[test]
fn a_session_that_wakes_itself_is_polled_again() {
    let db = open(two_tables(), 1);
    let session = db.spawn_session(WorkerId(0), async move |_| {
        let mut turns = 0;
        poll_fn(|context| {
            turns += 1;
            // By reference and by value.
            match turns {
                1 => context.waker().wake_by_ref(),
                2 => {
                    let clone = context.waker().clone();
                    clone.wake();
                }
                _ => return Poll::Ready(()),
            }
            Poll::Pending
        })
        .await;
        turns
    });
    assert_eq!(session.unwrap().join(), Ok(3));
}

#[test]
fn a_waker_that_is_left_over_wakes_nobody() {
    let db = open(two_tables(), 1);
    let gate = Gate::default();
    let inner = gate.clone();
    let session = db.spawn_session(WorkerId(0), async move |_| {
        let mut inner = inner;
        poll_fn(|context| {
            let _ = Pin::new(&mut inner).poll(context);
            Poll::Ready(())
        })
        .await;
    });
    assert_eq!(session.unwrap().join(), Ok(()));
    // The session has ended; its slot is the next one's.
    let next = Gate::default();
    let inner = next.clone();
    let session = db.spawn_session(WorkerId(0), async move |_| inner.await).unwrap();
    next.until_awaited();
    gate.open();
    next.open();
    assert_eq!(session.join(), Ok(()));
    assert_eq!(next.0.lock().unwrap().polls, 2, "it was polled once too often");
    let gate = Gate::default();
    let inner = gate.clone();
    let session = db.spawn_session(WorkerId(0), async move |_| inner.await).unwrap();
    gate.until_awaited();
    assert_eq!(db.close(Duration::from_millis(1)).dropped, 1);
    assert_eq!(session.join().unwrap_err().reason(), AbortReason::ShuttingDown);
    // Neither the session nor the database is there any more.
    gate.open();
}

// --- Calls on a worker's thread -------------------------------------------------------------------------------------------

#[test]
fn a_full_inbox_is_overloaded_on_a_workers_thread_too() {
    let db = Database::builder(two_tables()).workers(2).pin(false).inbox_slots(4).in_memory().unwrap();
    load_items(&db, 100, 1);
    let db = Arc::new(db);
    let items = db.table::<Items>().unwrap();
    let inner = Arc::clone(&db);
    let session = db.spawn_session(WorkerId(0), async move |_| {
        let mut submitted = Vec::new();
        // Nothing is taken out of the inbox while this runs.
        let refusal = loop {
            match inner.submit(items.at(&1), async move |tx| tx.update(items, 1, |row| row.value += 1).await)
            {
                Ok(outcome) => submitted.push(outcome),
                Err(refusal) => break refusal,
            }
        };
        let session = inner.spawn_session(WorkerId(0), async |_| ()).map(drop).unwrap_err();
        let accepted = submitted.len();
        for outcome in submitted {
            assert_eq!(outcome.await, Ok(Some(())));
        }
        (accepted, refusal, session)
    });
    let (accepted, refusal, session) = session.unwrap().join().unwrap();
    assert!(accepted >= 4);
    for refusal in [refusal, session] {
        assert_eq!((refusal.reason(), refusal.reason().advice()), (AbortReason::Overloaded, Advice::Retry));
        assert_eq!(refusal.detail(), "worker 0 has as many requests as it takes; try again later");
    }
}

#[test]
fn a_session_may_drop_the_last_reference_to_its_database() {
    let db = Arc::new(open(two_tables(), 2));
    load_items(&db, 100, 1);
    let items = db.table::<Items>().unwrap();
    let (release, released) = mpsc::channel::<()>();
    let gate = Gate::default();
    let (inner, wait) = (Arc::clone(&db), gate.clone());
    let dropping = db.spawn_session(WorkerId(0), async move |session| {
        wait.await;
        assert_eq!(Arc::strong_count(&inner), 1);
        drop(inner);
        // It goes on until it ends by itself, as at any other closing.
        let read = session.run(&items.at(&98), async move |tx| tx.get(items, 98).await).await;
        let _ = release.send(());
        read
    });
    let other = db.spawn_session(WorkerId(1), async move |session| {
        while !session.is_stopping() {
            session.yield_now().await;
        }
    });
    let (dropping, other) = (dropping.unwrap(), other.unwrap());
    drop(db);
    gate.open();
    assert_eq!(dropping.join(), Ok(Ok(Some(item(1)))));
    assert_eq!(released.recv(), Ok(()));
    assert_eq!(other.join(), Ok(()), "the database is closed");
}

#[test]
fn a_session_may_close_its_own_database() {
    let db = Arc::new(open(two_tables(), 2));
    let gate = Gate::default();
    let (inner, wait) = (Arc::clone(&db), gate.clone());
    let closing = db.spawn_session(WorkerId(0), async move |_| {
        wait.await;
        let db = Arc::into_inner(inner).expect("this is the last one");
        db.close(Duration::from_secs(600))
    });
    let other = db.spawn_session(WorkerId(1), async move |session| {
        while !session.is_stopping() {
            session.yield_now().await;
        }
    });
    let (closing, other) = (closing.unwrap(), other.unwrap());
    drop(db);
    gate.open();
    let report = closing.join().unwrap();
    assert_eq!(report.dropped, 0);
    assert_eq!(
        report.failure.as_deref(),
        Some(
            "a worker's thread cannot wait for the end of a database; this one closes in the background, so close it from \
             another thread to know when and how it has ended"
        )
    );
    assert_eq!(other.join(), Ok(()), "the database is closed");
}

// --- Results of a phase -----------------------------------------------------------------------------------------------

#[test]
fn a_panic_of_what_takes_the_results_of_a_phase_aborts_the_transaction() {
    let mut simulation = simulate(two_tables(), 1, 7);
    let items = simulation.table::<Items>().unwrap();
    let inserted = simulation.submit(&items.at(&0), async move |tx| {
        let mut taken = 0;
        let take = |_| {
            taken += 1;
            assert!(taken < 10, "as planned");
        };
        tx.join_each((0..20).map(|key| items.insert(key, item(0))), take).await
    });
    assert!(simulation.run(STEPS_MAX));
    let abort = inserted.take().expect("it has ended").unwrap_err();
    assert_eq!(abort.reason(), AbortReason::Panic);
    let seen = simulation.submit(&items.at(&0), async move |tx| {
        let seen = tx.join_all((0..20).map(|key| items.get(key))).await?;
        Ok(seen.into_iter().flatten().count())
    });
    assert!(simulation.run(STEPS_MAX));
    assert_eq!(seen.take(), Some(Ok(0)), "nothing is left of it");
}

// --- Operations that are forgotten ----------------------------------------------------------------------------------------

#[test]
fn an_operation_that_is_forgotten_while_it_waits_aborts_the_transaction() {
    let mut forgotten = 0;
    for_seeds(40, |seed| {
        let mut simulation = simulate(two_tables(), 2, seed);
        let items = simulation.table::<Items>().unwrap();
        let filled = simulation.submit(&items.at(&0), async move |tx| {
            tx.join_all((0..100).map(|key| items.insert(key, item(0)))).await.map(drop)
        });
        assert!(simulation.run(STEPS_MAX));
        assert_eq!(filled.take(), Some(Ok(())));
        let sessions: Vec<_> = (0..8_u64)
            .map(|at| {
                simulation.spawn_session(WorkerId((at % 2) as u16), async move |session| {
                    let mut refused = 0;
                    for round in 0..20 {
                        let other = 60 + (at + round) % 40;
                        let ran = session
                            .run(&items.at(&1), async move |tx| {
                                if at < 4 {
                                    tx.update(items, 1, |row| row.value += 1).await?;
                                    return tx.get(items, other).await.map(drop);
                                }
                                let mut run = Box::new(tx.update(items, 1, |row| row.value += 1_000));
                                // A look-up may come first.
                                for _ in 0..2 {
                                    let polled =
                                        poll_fn(|context| Poll::Ready(Pin::new(&mut *run).poll(context)));
                                    if let Poll::Ready(done) = polled.await {
                                        return done.and(Err(Abort::user("it did not wait")));
                                    }
                                }
                                std::mem::forget(run);
                                Ok(())
                            })
                            .await;
                        match ran.map_err(|abort| abort.reason()) {
                            Ok(()) => assert!(at < 4, "what was forgotten is not done"),
                            Err(AbortReason::Misuse) => refused += 1,
                            Err(reason) => assert_eq!(reason, AbortReason::User),
                        }
                    }
                    refused
                })
            })
            .collect();
        assert!(simulation.run(STEPS_MAX), "locks: {:?}", simulation.locks());
        forgotten += sessions.into_iter().map(|session| session.take().unwrap()).sum::<u64>();
        assert_eq!(simulation.locks(), (0, 0));
        let read = simulation.submit(&items.at(&1), async move |tx| tx.get(items, 1).await);
        assert!(simulation.run(STEPS_MAX));
        assert_eq!(read.take(), Some(Ok(Some(item(4 * 20)))));
    });
    assert!(forgotten > 0 || std::env::var_os("ATRAPOS_SEED").is_some(), "nothing was forgotten");
}
