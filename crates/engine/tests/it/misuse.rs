//! Unusual uses of a database from its own workers' threads, and of the operations of a transaction: each works, or is
//! refused with one sentence.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use atrapos::{Abort, AbortReason, WorkerId};

use crate::support::{Items, STEPS_MAX, for_seeds, item, simulate, two_tables};

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
