//! Loom models of the hand-written synchronization of the lock manager: all interleavings of a few threads, and the weak
//! orderings that the memory model allows, are tried.
//!
//! Each model is also run with planted bugs, in a child process per bug (loom leaves its state in pieces when a model
//! fails): a model that cannot fail proves nothing. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p atrapos-baselines --release --lib loom`.

use atrapos_partition::schema::TableId;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::signal::{Answer, Signal};
use super::{Agent, KeyMode, KeyOrEnd, LockManager, LockOptions, TableMode};
use crate::planted::{Bug, must_fail};

const TABLE: TableId = TableId(0);

fn bounded(preemptions: usize) -> loom::model::Builder {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder
}

fn manager() -> std::sync::Arc<LockManager> {
    LockManager::new(LockOptions { buckets: 2, ..LockOptions::default() })
}

/// Does `work` under a lock of the table, in a transaction of its own.
fn with_table(agent: &mut Agent, stamp: u64, mode: TableMode, work: impl FnOnce()) {
    agent.begin(stamp);
    agent.lock_table(TABLE, mode).expect("one table has no cycle");
    work();
    agent.release_all();
}

/// A waiter gets its answer, whenever it comes, and sees what was done before.
#[test]
fn signal_answers() {
    loom::model(|| {
        let place = Arc::new((Signal::default(), UnsafeCell::new(0)));
        place.0.expect();
        let answering = {
            let place = Arc::clone(&place);
            thread::spawn(move || {
                // SAFETY: the waiter looks at it after the answer.
                place.1.with_mut(|value| unsafe { *value = 7 });
                if let Some(thread) = place.0.answer(Answer::Granted) {
                    thread.unpark();
                }
            })
        };
        assert_eq!(place.0.park(), Answer::Granted);
        // SAFETY: the answer has been given.
        place.1.with(|value| assert_eq!(unsafe { *value }, 7));
        answering.join().expect("it does not fail");
    });
}

/// A writer of the table against an agent that passes its intention on and takes it over again: never are both at work.
#[test]
fn inherited_excludes() {
    bounded(3).check(|| {
        let manager = manager();
        let value = Arc::new(UnsafeCell::new(0));
        let writer = {
            let (manager, value) = (std::sync::Arc::clone(&manager), Arc::clone(&value));
            thread::spawn(move || {
                let mut agent = manager.agent();
                with_table(&mut agent, 1, TableMode::X, || {
                    // SAFETY: the lock of the table excludes the other thread.
                    value.with_mut(|value| unsafe { *value += 1 });
                });
            })
        };
        let mut agent = manager.agent();
        for stamp in [2, 3] {
            with_table(&mut agent, stamp, TableMode::IX, || {
                // SAFETY: only one thread has the lock in this mode; the writer is excluded.
                value.with_mut(|value| unsafe { *value += 1 });
            });
        }
        writer.join().expect("the writer does not fail");
        // SAFETY: the other thread has ended.
        value.with(|value| assert_eq!(unsafe { *value }, 3));
        drop(agent);
    });
}

/// A key is handed from one thread to the other: a wake-up that is lost leaves a thread asleep, which loom reports.
#[test]
fn key_is_handed_over() {
    bounded(2).check(|| {
        let manager = manager();
        let value = Arc::new(UnsafeCell::new(0));
        let work = |agent: &mut Agent, stamp: u64, value: &UnsafeCell<i32>| {
            agent.begin(stamp);
            agent.lock(TABLE, KeyOrEnd::Key(b"a"), KeyMode::WRITE).expect("one lock has no cycle");
            // SAFETY: the lock of the key excludes the other thread.
            value.with_mut(|value| unsafe { *value += 1 });
            agent.release_all();
        };
        let other = {
            let (manager, value) = (std::sync::Arc::clone(&manager), Arc::clone(&value));
            thread::spawn(move || work(&mut manager.agent(), 1, &value))
        };
        work(&mut manager.agent(), 2, &value);
        other.join().expect("the other thread does not fail");
        // SAFETY: the other thread has ended.
        value.with(|value| assert_eq!(unsafe { *value }, 2));
    });
}

/// Two transactions that block on each other at the same time: one of them finds the cycle.
#[test]
fn cycle_is_found() {
    bounded(2).check(|| {
        let manager = manager();
        let mut agents = [1, 2].map(|stamp| {
            let mut agent = manager.agent();
            agent.begin(stamp);
            agent
        });
        // Locked before the threads start, so that the model is about the blocking alone.
        agents[0].lock_table(TABLE, TableMode::X).expect("nobody waits");
        agents[1].lock_table(TableId(1), TableMode::X).expect("nobody waits");
        let [mut old, mut young] = agents;
        let other = thread::spawn(move || {
            let result = young.lock_table(TABLE, TableMode::X);
            drop(young);
            result.is_ok()
        });
        assert!(old.lock_table(TableId(1), TableMode::X).is_ok(), "the older one goes on");
        assert!(!other.join().expect("the other thread does not fail"), "the younger one is the victim");
    });
}

#[test]
fn lock_planted_bugs_are_caught() {
    must_fail("lock::loom_models::signal_answers", Bug::ParkOverwrites);
    must_fail("lock::loom_models::signal_answers", Bug::ParkedNotWoken);
    must_fail("lock::loom_models::inherited_excludes", Bug::PassedOnRelaxed);
    must_fail("lock::loom_models::inherited_excludes", Bug::ReclaimedBlindly);
    must_fail("lock::loom_models::inherited_excludes", Bug::HoldersNotMarked);
    must_fail("lock::loom_models::key_is_handed_over", Bug::ReleaseForgetsWaiters);
    must_fail("lock::loom_models::cycle_is_found", Bug::BlockedWithoutFence);
}
