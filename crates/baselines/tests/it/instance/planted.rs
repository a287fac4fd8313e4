//! Planted bugs of transactions over several instances: each of them is noticed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use atrapos_baselines::lock::{Deadlocks, KeyMode, KeyOrEnd, LockManager, LockOptions};
use atrapos_baselines::planted::{Bug, Place, with, with_at};
use atrapos_baselines::{Engine, Intent};
use atrapos_partition::abort::AbortReason;

use super::cluster::{Cluster, IN_INSTANCES, locking};
use crate::engines::{TABLE, load, put, run_and_judge};

/// Histories after which a bug that nobody has noticed is taken for unnoticed.
const HISTORIES: u64 = 200;

/// Returns what the check of histories says about a bug of an engine.
fn caught_by_histories(engine: usize, bug: Bug) -> String {
    let judge = |seed| with(bug, || run_and_judge(IN_INSTANCES[engine], seed, |run| with(bug, run)));
    let caught = (0..HISTORIES).find_map(|seed| judge(seed).err());
    caught.unwrap_or_else(|| panic!("{bug:?} was not noticed in {HISTORIES} histories"))
}

#[test]
fn histories_show_votes_that_are_not_heeded() {
    caught_by_histories(0, Bug::VotesNotHeeded);
}

#[test]
fn histories_show_locks_that_are_released_with_the_vote() {
    caught_by_histories(0, Bug::LocksReleasedWithVote);
}

#[test]
fn histories_show_parts_that_are_not_validated() {
    caught_by_histories(0, Bug::PartNotValidated);
}

#[test]
fn histories_show_parts_that_do_not_hear_of_an_abort() {
    // Optimistic ones would wait for ever for rows that nobody unlocks.
    caught_by_histories(1, Bug::AbortNotSent);
}

/// Returns true if another client reads a row that a part has changed, between the vote and the decision.
fn is_read_before_the_decision(bug: Option<Bug>) -> bool {
    let planted = |run: &mut dyn FnMut()| match bug {
        Some(bug) => with(bug, run),
        None => run(),
    };
    let was_read = Arc::new(AtomicBool::new(false));
    planted(&mut || {
        let cluster = Arc::new(Cluster::new(locking, 2));
        load(&*cluster, TABLE, [(0, 1), (4, 1)]);
        let (other, read) = (Arc::clone(&cluster), Arc::clone(&was_read));
        let reading = move || {
            // The reader is younger, and does not wait.
            let mut client = other.instance(1).client();
            let key = 4_u64.to_be_bytes();
            let ended = client.attempt(&mut |tx| tx.read(TABLE, &key, Intent::Read).map(drop));
            assert!(ended.as_ref().err().is_none_or(|abort| abort.reason() == AbortReason::Deadlock));
            read.store(ended.is_ok(), Ordering::Relaxed);
        };
        let mut client = cluster.instance(0).client();
        with_at(Place::BeforeDecision, reading, || {
            let ended = client.attempt(&mut |tx| put(tx, TABLE, 0, 2).and_then(|()| put(tx, TABLE, 4, 2)));
            assert_eq!(ended, Ok(()));
        });
    });
    was_read.load(Ordering::Relaxed)
}

#[test]
fn a_changed_row_is_locked_between_the_vote_and_the_decision() {
    assert!(!is_read_before_the_decision(None));
    assert!(is_read_before_the_decision(Some(Bug::LocksReleasedWithVote)));
}

fn manager() -> Arc<LockManager> {
    LockManager::new(LockOptions { buckets: 2, deadlocks: Deadlocks::Prevented, ..LockOptions::default() })
}

/// Returns true if a younger transaction is refused the wait for an older one.
fn younger_dies() -> bool {
    let manager = manager();
    let (mut older, mut younger) = (manager.agent(), manager.agent());
    older.begin(1);
    younger.begin(2);
    let key = KeyOrEnd::Key(b"k");
    assert_eq!(older.lock(TABLE, key, KeyMode::WRITE), Ok(()));
    assert_eq!(younger.lock_table(TABLE, atrapos_baselines::lock::TableMode::IS), Ok(()));
    let wanted = atrapos_baselines::lock::Lockable::Key(TABLE, key, KeyMode::READ);
    assert!(!younger.start(wanted));
    younger.counts().victims == 1
}

#[test]
fn younger_transactions_do_not_wait_for_older_ones() {
    assert!(younger_dies());
    assert!(!with(Bug::YoungerWaits, younger_dies));
}

/// Returns true if a transaction that waits is aborted when an older one gets a lock in its way.
fn waiter_dies_of_an_upgrade() -> bool {
    let manager = manager();
    let mut agents = [1, 2, 3].map(|stamp| {
        let mut agent = manager.agent();
        agent.begin(stamp);
        agent
    });
    let [oldest, waiter, youngest] = &mut agents;
    let key = KeyOrEnd::Key(b"k");
    assert_eq!(oldest.lock(TABLE, key, KeyMode::READ), Ok(()));
    assert_eq!(youngest.lock(TABLE, key, KeyMode::PROTECT), Ok(()));
    assert_eq!(waiter.lock_table(TABLE, atrapos_baselines::lock::TableMode::IX), Ok(()));
    assert!(!waiter.start(atrapos_baselines::lock::Lockable::Key(TABLE, key, KeyMode::INSERT)));
    assert_eq!(oldest.lock(TABLE, key, KeyMode::PROTECT), Ok(()));
    matches!(waiter.poll(), Some(Err(abort)) if abort.reason() == AbortReason::Deadlock)
}

#[test]
fn an_upgrade_leaves_no_younger_transaction_waiting_for_it() {
    assert!(waiter_dies_of_an_upgrade());
    assert!(!with(Bug::YoungerKeepsWaiting, waiter_dies_of_an_upgrade));
}

/// Keeps what was proved: an older transaction waits for a younger one, and gets the lock when that ends.
#[test]
fn older_transactions_wait_for_younger_ones() {
    let cluster = Cluster::new(locking, 2);
    load(&cluster, TABLE, [(4, 1)]);
    let order = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let (order, cluster) = (&order, &cluster);
        let mut older = cluster.instance(0).client();
        let started = older.attempt(&mut |old| {
            // It has an age from here on; the younger one begins after it.
            assert!(old.read(TABLE, &0_u64.to_be_bytes(), Intent::Read)?.is_none());
            let (told, holds) = std::sync::mpsc::channel();
            let younger = scope.spawn(move || {
                let mut client = cluster.instance(1).client();
                // Ages of clients of different instances follow each other when they have met.
                let ended = client.attempt(&mut |young| {
                    put(young, TABLE, 4, 2)?;
                    told.send(()).expect("the other one listens");
                    for _ in 0..200 {
                        std::thread::yield_now();
                    }
                    order.lock().expect("nobody panics").push("younger");
                    Ok(())
                });
                assert!(ended.is_ok(), "{ended:?}");
            });
            holds.recv().expect("the younger one has the row");
            let read = old.read(TABLE, &4_u64.to_be_bytes(), Intent::Read).map(|row| row.map(<[u8]>::to_vec));
            if read.is_ok() {
                order.lock().expect("nobody panics").push("older");
            }
            younger.join().expect("the younger one commits");
            read.map(drop)
        });
        assert!(started.is_ok(), "{started:?}");
    });
    assert_eq!(*order.lock().expect("nobody panics"), ["younger", "older"]);
}
