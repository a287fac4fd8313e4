//! Traces of single transactions: what is in one happened to that transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use atrapos::{Database, Durability, Stage, WorkerId};

use crate::durable::notes::{directory, files};
use crate::support::{Items, Others, item, two_tables};

#[test]
fn a_trace_is_of_one_transaction_while_its_caller_waits_for_the_device() {
    let db = Database::builder(two_tables())
        .workers(1)
        .pin(false)
        .huge_pages(false)
        .durability(Durability::Synchronous)
        .files(Arc::new(files()))
        .open(directory())
        .unwrap();
    let (items, others) = (db.table::<Items>().unwrap(), db.table::<Others>().unwrap());
    db.run(items.at(&1), async move |tx| {
        tx.insert(items, 1, item(0)).await?;
        tx.insert(others, 1, item(0)).await
    })
    .unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    // Transactions that use the state of the traced one as soon as that has ended.
    let sessions: Vec<_> = (0..4)
        .map(|_| {
            let stop = Arc::clone(&stop);
            let session = db.spawn_session(WorkerId(0), async move |session| {
                while !stop.load(Ordering::Relaxed) {
                    let read =
                        session.run(&others.at(&1), async move |tx| tx.get(others, 1).await.map(drop)).await;
                    assert_eq!(read, Ok(()));
                    session.yield_now().await;
                }
            });
            session.unwrap()
        })
        .collect();
    for _ in 0..50 {
        let (outcome, events) = db
            .run_traced(items.at(&1), async move |tx| tx.update(items, 1, |row| row.value += 1).await)
            .unwrap();
        assert_eq!(outcome, Ok(Some(())));
        let releases = events.iter().filter(|event| event.stage == Stage::Release).count();
        assert_eq!(releases, 1, "{events:#?}");
        assert!(events.iter().all(|event| !event.what.contains("others")), "{events:#?}");
        let stages: Vec<Stage> = events.iter().map(|event| event.stage).collect();
        assert_eq!(stages, [Stage::Route, Stage::Execute, Stage::Log, Stage::Harden, Stage::Release]);
    }
    stop.store(true, Ordering::Relaxed);
    sessions.into_iter().for_each(|session| session.join().unwrap());
}
