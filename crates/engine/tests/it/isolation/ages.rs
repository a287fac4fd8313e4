//! A victim is not the victim next time: a transaction that is run again is older than all that
//! began after it, whichever worker they have their homes on and however many transactions those workers have run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use atrapos::{Abort, Route};

use crate::isolation::waiting::items;
use crate::support::{Engine, Items, for_seeds, item};

/// Transactions that the busy worker has run before the others begin: more than each of those runs afterwards.
const BEFORE: u64 = 150;

/// Sessions per worker, and transactions of each.
const SESSIONS: u64 = 3;
const TRANSACTIONS: usize = 12;

/// Attempts that a transaction may take: it can lose to those that were under way on the other workers when it began, to each
/// together with each of its neighbours. (They all want the same rows, so it does; twice that is for moving partitions.) It
/// does not lose to those that began later.
fn attempts_max(workers: u64) -> u64 {
    1 + 2 * SESSIONS * SESSIONS * (workers - 1)
}

/// The last worker has run many transactions that other workers know of, the others none. Then all want the same two rows, in
/// both orders.
pub(crate) fn seniority(engine: &mut Engine, workers: usize, _: u64) -> Result<(), String> {
    let items = engine.table::<Items>();
    let (low, high) = (1, 98);
    let inserted = engine.run(items.at(&low), async move |tx| {
        tx.insert(items, low, item(0)).await?;
        tx.insert(items, high, item(0)).await
    });
    inserted.map_err(|abort| abort.to_string())?;
    let busy = workers - 1;
    engine.sessions(workers, workers, async move |session, at| {
        for _ in 0..if at == busy { BEFORE } else { 0 } {
            let route = Route::worker(session.worker());
            session.run(&route, async move |tx| tx.get(items, low).await.map(drop)).await?;
        }
        Ok::<(), Abort>(())
    })?;
    let ended = engine.sessions(SESSIONS as usize * workers, workers, async move |session, at| {
        let (first, second) = if at % workers == busy { (low, high) } else { (high, low) };
        let mut most = 0;
        for _ in 0..TRANSACTIONS {
            let attempts = Arc::new(AtomicU64::new(0));
            let counted = Arc::clone(&attempts);
            let route = Route::worker(session.worker());
            let ran = session.run(&route, async move |tx| {
                counted.fetch_add(1, Ordering::Relaxed);
                tx.update(items, first, |row| row.value += 1).await?;
                tx.update(items, second, |row| row.value += 1).await.map(drop)
            });
            let ran = ran.await;
            let attempts = attempts.load(Ordering::Relaxed);
            ran.map_err(|abort| format!("after {attempts} attempts: {abort}"))?;
            most = most.max(attempts);
        }
        Ok::<u64, String>(most)
    })?;
    let most = ended.into_iter().collect::<Result<Vec<u64>, String>>()?.into_iter().max().unwrap_or(0);
    if most > attempts_max(workers as u64) {
        return Err(format!("a transaction took {most} attempts"));
    }
    Ok(())
}

#[test]
fn who_had_to_give_way_gets_older_than_all_that_begin_later() {
    let mut deadlocks = 0;
    for_seeds(6, |seed| {
        let workers = 2 + (seed % 3) as usize;
        let mut engine = Engine::simulated(items(), workers, seed);
        if let Err(wrong) = seniority(&mut engine, workers, seed) {
            panic!("{wrong}");
        }
        deadlocks += engine.statistics().aborted_for(atrapos::AbortReason::Deadlock);
    });
    assert!(deadlocks > 0 || std::env::var_os("ATRAPOS_SEED").is_some(), "there was no victim");
}
