//! A transaction that stays on its worker takes the short way: no lock, no message, no remote action. (That it allocates
//! nothing either is in the test binary `alloc`, which counts allocations.)

use atrapos::{Abort, AbortReason, Database, KeyRange, Route, Statistics, Transaction, WorkerId};

use crate::indexes::{ByEmail, Users, user, users};
use crate::support::{Item, Items, Random, item, load_items, open, two_tables};

fn messages_sent(db: &Database) -> u64 {
    db.worker_reports().iter().map(|report| report.runtime.messages_sent).sum()
}

/// What was counted while `run` ran, messages between workers included.
fn counted(db: &Database, run: impl FnOnce()) -> (Statistics, u64) {
    // Whatever is on its way arrives first.
    db.verify().unwrap();
    let (before, messages) = (db.statistics(), messages_sent(db));
    run();
    (db.statistics().since(&before), messages_sent(db) - messages)
}

/// Runs sessions on the workers, `each` on each, every one of which runs transactions over rows of its worker.
fn local_sessions(db: &Database, each: u16, transactions: u64) {
    let items = db.table::<Items>().unwrap();
    let workers = db.workers() as u16;
    let sessions: Vec<_> = (0..workers * each)
        .map(|at| {
            db.spawn_session(WorkerId(at % workers), async move |session| {
                let own: Vec<u64> = (0..100).filter(|key| session.owns(items, key)).collect();
                let mut random = Random::new(u64::from(at));
                let new_key =
                    own[0] + 100_000 * u64::from(session.worker().0 + 1 == workers) * (u64::from(at) + 1);
                for _ in 0..transactions {
                    let (one, other) = (own[random.below(own.len() as u64) as usize], own[0]);
                    let kind = random.below(6);
                    let route =
                        if random.chance(50) { items.at(&one) } else { Route::worker(session.worker()) };
                    session
                        .run(&route, async move |tx| {
                            match kind {
                                0 => drop(tx.get(items, one).await?),
                                1 => drop(tx.update(items, one, |row| row.value += 1).await?),
                                2 => drop(tx.scan(items, KeyRange::between(&one, &(one + 1)), 9).await?),
                                3 => drop(
                                    tx.join((items.get(other), items.update(one, |row| row.value -= 1)))
                                        .await?,
                                ),
                                4 if new_key > 100_000 => {
                                    tx.insert(items, new_key, item(1)).await?;
                                    drop(tx.delete(items, new_key).await?);
                                }
                                _ => {
                                    drop(tx.join_all([items.get(one), items.get(other)]).await?);
                                    tx.update(items, one, |row| row.value = 7).await?;
                                    return Err(Abort::user("taken back"));
                                }
                            }
                            Ok(())
                        })
                        .await
                        .or_else(
                            |abort| if abort.reason() == AbortReason::User { Ok(()) } else { Err(abort) },
                        )?;
                }
                Ok::<(), Abort>(())
            })
            .unwrap()
        })
        .collect();
    for session in sessions {
        session.join().unwrap().unwrap();
    }
}

#[test]
fn local_transactions_enter_no_locks_and_send_nothing() {
    for (workers, each) in [(1, 1), (1, 40), (2, 1), (2, 40), (8, 8)] {
        let db = open(two_tables(), workers);
        load_items(&db, 100, 0);
        let transactions = 500;
        let (counted, messages) = counted(&db, || local_sessions(&db, each, transactions));
        let expected = workers as u64 * u64::from(each) * transactions;
        assert_eq!(counted.committed + counted.aborted_for(AbortReason::User), expected);
        assert_eq!(counted.aborted_total(), counted.aborted_for(AbortReason::User));
        assert_eq!(
            (
                counted.locks_entered,
                counted.lock_waits,
                counted.remote_actions,
                counted.forwarded,
                counted.retried
            ),
            (0, 0, 0, 0, 0),
            "{each} sessions on each of {workers} workers"
        );
        assert_eq!(messages, 0, "{each} sessions on each of {workers} workers");
        assert!(counted.local_actions >= expected);
        // Many sessions on one worker look up together, and still neither lock nor send.
        assert_eq!(counted.interleaved > 0, each > 1, "{each} sessions: {counted:?}");
        db.verify().unwrap();
    }
}

#[test]
fn outside_callers_reach_local_transactions_without_locks() {
    let db = open(two_tables(), 2);
    load_items(&db, 100, 0);
    let items = db.table::<Items>().unwrap();
    let (counted, messages) = counted(&db, || {
        let submitted: Vec<_> = (0..2000_u64)
            .map(|at| {
                let key = at % 100;
                db.submit(items.at(&key), async move |tx| tx.update(items, key, |row| row.value += 1).await)
                    .unwrap()
            })
            .collect();
        assert!(submitted.into_iter().all(|submitted| submitted.wait() == Ok(Some(()))));
    });
    let expected = Statistics {
        committed: 2000,
        local_actions: 2000,
        interleaved: counted.interleaved,
        ..Statistics::default()
    };
    assert_eq!((counted, messages), (expected, 0));
}

#[test]
fn indexes_on_the_same_worker_cost_no_locks_either() {
    let db = open(users(), 1);
    let (table, by_email) = (db.table::<Users>().unwrap(), db.index::<ByEmail>().unwrap());
    let (counted, messages) = counted(&db, || {
        for key in 0..200 {
            db.run(table.at(&key), async move |tx| {
                tx.insert(table, key, user((key % 8) as u32, &format!("u{key}"))).await?;
                let found = tx.get_by(by_email, table, format!("u{key}")).await?;
                assert_eq!(found.map(|(key, _)| key), Some(key));
                tx.update(table, key, |row| row.city = 7).await.map(drop)
            })
            .unwrap();
        }
    });
    assert_eq!((counted.committed, counted.locks_entered, counted.remote_actions, messages), (200, 0, 0, 0));
}

#[test]
fn only_what_crosses_workers_locks_and_sends() {
    let db = open(two_tables(), 2);
    load_items(&db, 100, 0);
    let items = db.table::<Items>().unwrap();
    let (counted, messages) = counted(&db, || {
        db.run(items.at(&1), async move |tx| {
            tx.update(items, 1, |row| row.value += 1).await?;
            tx.get(items, 99).await.map(drop)
        })
        .unwrap();
        // The end of the transaction is on its way still.
        db.verify().unwrap();
    });
    // Two locks: that of the row at home, entered when the transaction suspended, and that of the other row.
    assert_eq!(
        (counted.committed, counted.locks_entered, counted.remote_actions, counted.local_actions),
        (1, 2, 1, 1)
    );
    assert!(messages >= 3, "an action, its answer and the end");
}

#[test]
fn an_action_that_follows_another_on_its_worker_travels_with_it() {
    let db = open(two_tables(), 3);
    load_items(&db, 100, 0);
    let items = db.table::<Items>().unwrap();
    let count = |second: Option<u64>| {
        counted(&db, || {
            let ran = db.run(items.at(&1), async move |tx| {
                let then = move |_: &mut Option<Item>| {
                    second.map(|key| items.update(key, |row| std::mem::replace(&mut row.value, 7)))
                };
                tx.run_then(items.get(99), then).await
            });
            let (first, changed) = ran.unwrap();
            assert_eq!(first.map(|row| row.value), Some(0));
            assert_eq!(changed, second.map(|_| Some(0)), "{second:?}");
            // The end of the transaction is on its way still.
            db.verify().unwrap();
        })
    };
    let (one, alone) = count(None);
    assert_eq!((one.remote_actions, one.local_actions, one.locks_entered), (1, 0, 1));
    let (two, together) = count(Some(98));
    assert_eq!((two.remote_actions, two.local_actions, two.locks_entered), (2, 0, 2));
    assert_eq!(alone, together, "messages");
    // What follows at home, or on a third worker, is run by the home.
    let (home, _) = count(Some(2));
    assert_eq!((home.remote_actions, home.local_actions), (1, 1));
    let (third, apart) = count(Some(50));
    assert_eq!((third.remote_actions, third.local_actions), (2, 0));
    assert!(apart > together, "{apart} messages");
}

#[test]
fn a_request_for_another_worker_is_forwarded_and_is_local_there() {
    let db = open(two_tables(), 2);
    load_items(&db, 100, 0);
    let items = db.table::<Items>().unwrap();
    let (counted, _) = counted(&db, || {
        let session = db.spawn_session(WorkerId(0), async move |session| {
            session
                .run(&items.at(&99), async move |tx| tx.update(items, 99, |row| row.value += 1).await)
                .await
        });
        assert_eq!(session.unwrap().join(), Ok(Ok(Some(()))));
    });
    let expected = Statistics {
        committed: 1,
        local_actions: 1,
        forwarded: 1,
        interleaved: counted.interleaved,
        ..Statistics::default()
    };
    assert_eq!(counted, expected);
}
