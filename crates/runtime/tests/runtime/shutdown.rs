//! Orderly shutdown: everything in flight completes or is refused.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use atrapos_runtime::oneshot::Receiver;
use atrapos_runtime::{Lost, RuntimeBuilder, Shard, SubmitError, Ticks, Worker, WorkerId};

use crate::pool::{Count, start};

const LONG: Duration = Duration::from_secs(600);

/// A task that hops from worker to worker, and tells at the end.
fn hop(worker: &Rc<Worker<Count>>, hops: usize, done: Arc<AtomicUsize>) {
    if hops == 0 {
        done.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let to = WorkerId((worker.id().0 + 1) % u16::try_from(worker.workers()).expect("few workers"));
    worker.send(to, move |there| {
        let inner = Rc::clone(there);
        there.spawn(async move {
            inner.yield_now().await;
            hop(&inner, hops - 1, done);
        });
    });
}

/// Every chain of messages reaches its end before the runtime does, although the runtime is never still.
#[test]
fn what_is_in_flight_completes() {
    for _ in 0..20 {
        let runtime = start(4);
        let done = Arc::new(AtomicUsize::new(0));
        for worker in 0..4 {
            for _ in 0..10 {
                let done = Arc::clone(&done);
                assert!(runtime.handle().submit(WorkerId(worker), move |here| hop(here, 200, done)).is_ok());
            }
        }
        let report = runtime.shutdown(LONG);
        assert!(report.drained, "{report:?}");
        assert_eq!(done.load(Ordering::Relaxed), 40);
        assert_eq!(runtime.shutdown(LONG), report, "a second shutdown reports the first");
    }
}

#[test]
fn nothing_is_admitted_afterwards() {
    let runtime = start(2);
    let handle = runtime.handle();
    handle.begin_shutdown();
    assert!(handle.is_stopping());
    let error = handle.submit(WorkerId(0), |_| ()).expect_err("the runtime stops");
    assert!(matches!(error, SubmitError::Closed(_)));
    assert!(error.to_string().contains("takes no new requests"), "{error}");
    assert!(runtime.shutdown(LONG).drained);
    assert!(matches!(handle.try_submit(WorkerId(1), |_| ()), Err(SubmitError::Closed(_))));
    assert!(handle.request(WorkerId(1), |_, sender| sender.send(())).is_err());
}

/// Every outside caller gets its answer or an error, whenever the shutdown comes.
#[test]
fn outside_callers_are_answered_or_refused() {
    for round in 0..10 {
        let runtime = start(2);
        let (answered, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let (handle, answered, refused) = (runtime.handle(), &answered, &refused);
                scope.spawn(move || {
                    loop {
                        let request = handle.request(WorkerId(0), |here, sender| {
                            let inner = Rc::clone(here);
                            here.spawn(async move {
                                let there = inner.call(WorkerId(1), |there, reply| reply.send(there, 7));
                                sender.send(there.await);
                            });
                        });
                        match request {
                            Ok(receiver) => {
                                assert_eq!(receiver.wait(), Ok(Ok(7)), "what was accepted completes");
                            }
                            Err(error) => {
                                assert!(matches!(error, SubmitError::Closed(())), "{error}");
                                refused.fetch_add(1, Ordering::Relaxed);
                                return;
                            }
                        }
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            while answered.load(Ordering::Relaxed) < round * 20 {
                std::thread::yield_now();
            }
            assert!(runtime.shutdown(LONG).drained);
        });
        assert_eq!(refused.load(Ordering::Relaxed), 3);
    }
}

/// A task that never ends is dropped at the deadline, and whoever waits for it learns so.
#[test]
fn the_deadline_drops_what_does_not_end() {
    struct Told(Arc<AtomicBool>);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let runtime = start(2);
    let dropped = Arc::new(AtomicBool::new(false));
    let told = Told(Arc::clone(&dropped));
    let receiver = runtime.handle().request::<u32, _>(WorkerId(0), move |here, sender| {
        let inner = Rc::clone(here);
        here.spawn(async move {
            let _told = told;
            // Worker 1 keeps the reply in a task that waits for ever.
            let answer = inner.call(WorkerId(1), |there, reply| {
                there.spawn(async move {
                    std::future::pending::<()>().await;
                    drop::<atrapos_runtime::Reply<u32>>(reply);
                });
            });
            sender.send(answer.await.expect("never answered"));
        });
    });
    let report = runtime.shutdown(Duration::from_millis(5));
    assert!(!report.drained);
    assert_eq!(report.tasks_dropped, 2);
    assert_eq!(report.shards_leaked, 0, "dropped tasks hold no worker");
    assert!(dropped.load(Ordering::Relaxed));
    assert_eq!(receiver.expect("accepted before").wait(), Err(Lost));
}

/// A request that waits in an inbox whose worker ends is dropped, and its caller learns so even though handles live on.
#[test]
fn requests_not_begun_at_the_deadline_are_lost() {
    let runtime = start(1);
    let handle = runtime.handle();
    let (entered, release) = (Arc::new(std::sync::Barrier::new(2)), Arc::new(AtomicBool::new(false)));
    let (there_entered, there_release) = (Arc::clone(&entered), Arc::clone(&release));
    let submitted = handle.submit(WorkerId(0), move |_| {
        there_entered.wait();
        while !there_release.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
    });
    assert!(submitted.is_ok());
    entered.wait();
    // More than one step takes from its inbox.
    let waiting: Vec<_> = (0..100)
        .map(|_| handle.request(WorkerId(0), |_, sender| sender.send(7)).expect("the inbox has room"))
        .collect();
    let closer = std::thread::spawn(move || {
        let report = runtime.shutdown(Duration::ZERO);
        drop(runtime);
        report
    });
    while !handle.is_stopping() {
        std::thread::yield_now();
    }
    release.store(true, Ordering::Relaxed);
    // Each of them is told something; what, depends on how far the worker came.
    for receiver in waiting {
        assert!(matches!(receiver.wait(), Ok(7) | Err(Lost)));
    }
    closer.join().expect("the shutdown does not fail");
}

/// Every control request pending when the runtime stops is answered or reported as lost, whether it waits for room in
/// the lane, in the lane, or in a task that never ends.
#[test]
fn control_requests_are_answered_refused_or_lost() {
    const ROUNDS: u64 = 20;
    for round in 0..ROUNDS {
        let runtime = start(2);
        let handle = runtime.handle();
        let begun = AtomicUsize::new(0);
        let answered = std::thread::scope(|scope| {
            let (handle, begun) = (&handle, &begun);
            let callers: Vec<_> = (0..4_u64)
                .map(|caller| {
                    scope.spawn(move || {
                        // More than the lane holds.
                        let requests = (0..100).map(|_| {
                            begun.fetch_add(1, Ordering::Relaxed);
                            handle.request_control(WorkerId(0), move |here, sender| {
                                let never = caller == 3;
                                here.spawn_control(async move {
                                    if never {
                                        std::future::pending::<()>().await;
                                    }
                                    sender.send(caller);
                                });
                            })
                        });
                        let accepted: Vec<_> = requests.map_while(Result::ok).collect();
                        accepted.into_iter().map(Receiver::wait).collect::<Vec<_>>()
                    })
                })
                .collect();
            while begun.load(Ordering::Relaxed) < round as usize * 20 {
                std::thread::yield_now();
            }
            runtime.shutdown(Duration::ZERO);
            assert!(handle.submit_control(WorkerId(1), |_| ()).is_err(), "nothing is taken any more");
            callers
                .into_iter()
                .map(|caller| caller.join().expect("a caller does not fail"))
                .collect::<Vec<_>>()
        });
        for (caller, answers) in (0..).zip(answered) {
            let known =
                |answer: &Result<u64, Lost>| *answer == Err(Lost) || (*answer == Ok(caller) && caller != 3);
            assert!(answers.iter().all(known), "{answers:?}");
        }
    }
}

/// Sleeping tasks see the shutdown at once rather than after their sleep.
#[test]
fn sleepers_are_woken_by_a_shutdown() {
    let runtime = start(2);
    let receiver = runtime.handle().request(WorkerId(1), |here, sender| {
        let inner = Rc::clone(here);
        here.spawn(async move {
            let mut naps = 0;
            while !inner.is_stopping() {
                naps += 1;
                inner.sleep_until(Ticks(u64::MAX - 1)).await;
            }
            sender.send(naps);
        });
    });
    // The task is asleep, or will be: both must end.
    assert!(runtime.shutdown(LONG).drained);
    assert!(receiver.expect("accepted before").wait().is_ok_and(|naps| naps <= 1));
}

/// A shutdown waits for the shard's background work, which may itself start tasks.
#[test]
fn background_work_completes() {
    struct Backlog {
        left: std::cell::Cell<usize>,
        done: Arc<AtomicUsize>,
    }
    impl Shard for Backlog {
        fn background(worker: &Rc<Worker<Self>>, _: Ticks) -> bool {
            let left = worker.shard().left.get();
            if left == 0 {
                return false;
            }
            worker.shard().left.set(left - 1);
            let inner = Rc::clone(worker);
            worker.spawn(async move {
                inner.yield_now().await;
                inner.shard().done.fetch_add(1, Ordering::Relaxed);
            });
            true
        }
    }
    let done = Arc::new(AtomicUsize::new(0));
    let there = Arc::clone(&done);
    let runtime = RuntimeBuilder::new(2)
        .start(move |_| Backlog { left: std::cell::Cell::new(500), done: Arc::clone(&there) })
        .expect("a small runtime starts");
    // The runtime may not have stepped yet: a first answer shows that it has.
    let stepped = runtime.handle().request(WorkerId(0), |_, sender| sender.send(()));
    assert_eq!(stepped.expect("the runtime runs").wait(), Ok(()));
    let stepped = runtime.handle().request(WorkerId(1), |_, sender| sender.send(()));
    assert_eq!(stepped.expect("the runtime runs").wait(), Ok(()));
    assert!(runtime.shutdown(LONG).drained);
    assert_eq!(done.load(Ordering::Relaxed), 1000);
}

#[test]
fn a_task_may_begin_the_shutdown() {
    let runtime = start(2);
    let receiver = runtime.handle().request(WorkerId(0), |here, sender| {
        here.handle().begin_shutdown();
        let inner = Rc::clone(here);
        here.spawn(async move {
            let there = inner.call(WorkerId(1), |there, reply| reply.send(there, 7));
            sender.send(there.await);
        });
    });
    assert_eq!(receiver.expect("the runtime runs").wait(), Ok(Ok(7)));
    assert!(runtime.shutdown(LONG).drained);
}

/// A shard that keeps its own worker would never be freed; the report says so.
#[test]
fn a_leaked_shard_is_reported() {
    #[derive(Default)]
    struct Selfish(std::cell::RefCell<Option<Rc<Worker<Self>>>>);
    impl Shard for Selfish {}
    let runtime = RuntimeBuilder::new(1).start(|_| Selfish::default()).expect("a small runtime starts");
    let kept = runtime.handle().request(WorkerId(0), |here, sender| {
        *here.shard().0.borrow_mut() = Some(Rc::clone(here));
        sender.send(());
    });
    assert_eq!(kept.expect("the runtime runs").wait(), Ok(()));
    assert_eq!(runtime.shutdown(LONG).shards_leaked, 1);
}
