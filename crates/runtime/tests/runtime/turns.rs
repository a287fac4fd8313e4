//! Several workers on one thread.

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use atrapos_runtime::{Limits, Runtime, RuntimeBuilder, Shard, WorkerId};

use crate::pool::{Count, all_to_all};

fn builder(workers: usize, threads: usize) -> RuntimeBuilder {
    RuntimeBuilder { threads: Some(threads), ..RuntimeBuilder::new(workers) }
}

fn start_on(workers: usize, threads: usize) -> Runtime<Count> {
    builder(workers, threads).start(|_| Count::default()).expect("a small runtime starts")
}

#[test]
fn workers_of_few_threads_answer_each_other() {
    for threads in [1, 2, 3] {
        let runtime = start_on(7, threads);
        all_to_all(&runtime, 8, 40);
        let report = runtime.shutdown(Duration::from_secs(600));
        assert!(report.drained && report.tasks_dropped == 0 && report.shards_leaked == 0, "{report:?}");
    }
}

/// Rings between workers of one thread are full all the time, and empty only when the receiver has its turn.
#[test]
fn full_rings_within_a_thread_recover() {
    let mut builder = builder(4, 1);
    builder.ring_bytes = 1 << 10;
    builder.limits = Limits { messages_per_ring: 3, inbox_per_step: 2, ..Limits::default() };
    let runtime = builder.start(|_| Count::default()).expect("a small runtime starts");
    all_to_all(&runtime, 64, 20);
    let stats = runtime.stats();
    assert!(stats.iter().any(|worker| worker.spills > 0), "the rings were never full: {stats:?}");
}

#[test]
fn a_worker_stays_on_one_thread() {
    struct Home(ThreadId);
    impl Shard for Home {}
    impl Drop for Home {
        fn drop(&mut self) {
            assert_eq!(self.0, std::thread::current().id(), "a shard is dropped on its own thread");
        }
    }
    let runtime = builder(5, 2).start(|_| Home(std::thread::current().id())).expect("a small runtime starts");
    let threads: Vec<ThreadId> = (0..5)
        .map(|worker| {
            let thread = runtime.handle().request(WorkerId(worker), |here, sender| {
                assert_eq!(here.shard().0, std::thread::current().id());
                sender.send(here.shard().0);
            });
            thread.expect("the runtime runs").wait().expect("the runtime runs")
        })
        .collect();
    assert_eq!(threads.iter().collect::<HashSet<_>>().len(), 2, "{threads:?}");
    assert!(threads[0] == threads[1] && threads[2] == threads[4], "neighbours share: {threads:?}");
    assert_eq!(runtime.shutdown(Duration::from_secs(600)).shards_leaked, 0);
}

/// A worker that always has something to do leaves the others of its thread their turns.
#[test]
fn a_busy_worker_does_not_keep_others_waiting() {
    let runtime = start_on(3, 1);
    let done = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&done);
    let spun = runtime.handle().request(WorkerId(0), |here, sender| {
        let inner = Rc::clone(here);
        here.spawn(async move {
            let mut polls = 0_u64;
            while !seen.load(Ordering::Relaxed) {
                polls += 1;
                inner.yield_now().await;
            }
            sender.send(polls);
        });
    });
    for worker in [1, 2, 1] {
        let answer = runtime.handle().request(WorkerId(worker), |here, sender| sender.send(here.id()));
        assert_eq!(answer.expect("the runtime runs").wait(), Ok(WorkerId(worker)));
    }
    done.store(true, Ordering::Relaxed);
    assert!(spun.expect("the runtime runs").wait().expect("the runtime runs") > 0);
}

/// A thread whose workers are all idle sleeps, and wakes for what arrives for any of them: from outside, from another
/// thread's worker, or with time.
#[test]
fn an_idle_thread_sleeps_and_wakes_for_each_of_its_workers() {
    let runtime = start_on(6, 2);
    let handle = runtime.handle();
    let steps = || runtime.stats().iter().map(|worker| worker.steps).collect::<Vec<_>>();
    let fall_asleep = || {
        let mut quiet = 0;
        for attempt in 0.. {
            let before = steps();
            std::thread::park_timeout(Duration::from_millis(5));
            quiet = if before == steps() { quiet + 1 } else { 0 };
            if quiet == 3 {
                break;
            }
            assert!(attempt < 4_000, "idle workers go on stepping: {:?}", runtime.stats());
        }
    };
    for worker in (0..6).map(WorkerId) {
        fall_asleep();
        let there = WorkerId((worker.0 + 3) % 6);
        let answer = handle.request(worker, move |here, sender| {
            let inner = Rc::clone(here);
            here.spawn(async move {
                let clock = inner.clock();
                inner.sleep_until(inner.now().after(clock.ticks(Duration::from_millis(2)))).await;
                sender.send(inner.call(there, |there, reply| reply.send(there, there.id())).await);
            });
        });
        assert_eq!(answer.expect("the runtime runs").wait(), Ok(Ok(there)));
    }
    assert!(runtime.stats().iter().all(|worker| worker.parks > 0));
}

/// The busy times of a thread's workers add up to no more than its time, and each has idle time for the rest.
#[test]
fn time_is_counted_once() {
    let began = Instant::now();
    let runtime = start_on(4, 1);
    all_to_all(&runtime, 8, 100);
    let clock = runtime.handle().clock().clone();
    assert!(runtime.shutdown(Duration::from_secs(600)).drained);
    let most = clock.ticks(began.elapsed()).0;
    let stats = runtime.stats();
    assert!(stats.iter().map(|worker| worker.busy_ticks.0).sum::<u64>() <= most, "{stats:?}");
    assert!(stats.iter().all(|worker| worker.busy_ticks.0 > 0), "{stats:?}");
    assert!(stats.iter().all(|worker| worker.busy_ticks.0 + worker.idle_ticks.0 <= most), "{stats:?}");
}

/// A shutdown whose deadline passes drops the tasks of every worker of a thread.
#[test]
fn endless_tasks_are_dropped_on_all_workers() {
    let runtime = start_on(4, 1);
    for worker in (0..4).map(WorkerId) {
        let began = runtime.handle().request(worker, |here, sender| {
            let inner = Rc::clone(here);
            here.spawn(async move {
                loop {
                    inner.yield_now().await;
                }
            });
            sender.send(());
        });
        assert_eq!(began.expect("the runtime runs").wait(), Ok(()));
    }
    let report = runtime.shutdown(Duration::from_millis(20));
    assert!(!report.drained && report.tasks_dropped == 4 && report.shards_leaked == 0, "{report:?}");
}
