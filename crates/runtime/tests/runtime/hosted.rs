//! Workers whose threads are a host's: its tasks run between their steps.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use atrapos_runtime::{LocalFuture, Runtime, RuntimeBuilder, Shard, ThreadHost, WorkerId};

use crate::pool::{Count, all_to_all};

/// A host that polls a pump and sleeps on its thread, as a runtime for tasks does.
#[derive(Debug, Default)]
struct Host {
    /// Times after which the pump wants to be polled, on the thread that polls it.
    deadlines: Mutex<BTreeMap<WorkerId, Instant>>,
    /// Polls of pumps; between any two of them a host's tasks run.
    polls: AtomicUsize,
    /// Set if the host refuses.
    refuses: bool,
    /// Tasks that a task of the host wakes while the pump sleeps, on the thread that polls the pump.
    sleepers: Mutex<Vec<Waker>>,
}

thread_local! {
    static DEADLINE: RefCell<Option<Instant>> = const { RefCell::new(None) };
}

struct Alarm {
    thread: Thread,
    rung: AtomicBool,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

struct Until(Instant);

impl Future for Until {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.0 {
            return Poll::Ready(());
        }
        DEADLINE.set(Some(self.0));
        Poll::Pending
    }
}

impl ThreadHost for Host {
    fn run(&self, workers: &[WorkerId], mut pump: LocalFuture) {
        if self.refuses {
            return;
        }
        let now = Instant::now();
        self.deadlines.lock().unwrap_or_else(PoisonError::into_inner).insert(workers[0], now);
        let alarm = Arc::new(Alarm { thread: std::thread::current(), rung: AtomicBool::new(true) });
        let waker = Waker::from(Arc::clone(&alarm));
        let mut context = Context::from_waker(&waker);
        loop {
            let late = DEADLINE.take().map(|at| at.saturating_duration_since(Instant::now()));
            if alarm.rung.swap(false, Ordering::SeqCst) || late == Some(Duration::ZERO) {
                self.polls.fetch_add(1, Ordering::Relaxed);
                if pump.as_mut().poll(&mut context).is_ready() {
                    return;
                }
                continue;
            }
            // The pump sleeps.
            let sleepers = std::mem::take(&mut *self.sleepers.lock().unwrap_or_else(PoisonError::into_inner));
            if !sleepers.is_empty() {
                sleepers.into_iter().for_each(Waker::wake);
                DEADLINE.set(late.map(|late| Instant::now() + late));
                continue;
            }
            match late {
                Some(late) => {
                    DEADLINE.set(Some(Instant::now() + late));
                    std::thread::park_timeout(late);
                }
                None => std::thread::park(),
            }
        }
    }

    fn sleep(&self, time: Duration) -> LocalFuture {
        Box::pin(Until(Instant::now() + time))
    }
}

fn start(workers: usize, threads: usize, refuses: bool) -> (Runtime<Count>, Arc<Host>) {
    let host = Arc::new(Host { refuses, ..Host::default() });
    let builder = RuntimeBuilder {
        threads: Some(threads),
        host: Some(Arc::clone(&host) as Arc<dyn ThreadHost>),
        ..RuntimeBuilder::new(workers)
    };
    (builder.start(|_| Count::default()).expect("a small runtime starts"), host)
}

#[test]
fn hosted_workers_answer_each_other_and_end() {
    for (workers, threads) in [(1, 1), (2, 2), (5, 2)] {
        let (runtime, host) = start(workers, threads, false);
        all_to_all(&runtime, 8, 40);
        let report = runtime.shutdown(Duration::from_secs(600));
        assert!(report.drained && report.tasks_dropped == 0 && report.shards_leaked == 0, "{report:?}");
        let hosted = host.deadlines.lock().unwrap_or_else(PoisonError::into_inner).len();
        assert_eq!(hosted, threads, "each thread was run by the host");
        assert!(host.polls.load(Ordering::Relaxed) > threads, "the pump returned to its host");
    }
}

#[test]
fn a_host_that_refuses_leaves_the_threads_to_their_workers() {
    let (runtime, host) = start(3, 2, true);
    all_to_all(&runtime, 8, 40);
    let report = runtime.shutdown(Duration::from_secs(600));
    assert!(report.drained && report.shards_leaked == 0, "{report:?}");
    assert_eq!(host.polls.load(Ordering::Relaxed), 0);
}

/// Nothing but its deadline wakes a worker whose only task sleeps.
#[test]
fn deadlines_wake_hosted_workers() {
    let (runtime, _) = start(1, 1, false);
    let slept = runtime.handle().request(WorkerId(0), |here, sender| {
        let own = std::rc::Rc::clone(here);
        let at = here.now().after(here.clock().ticks(Duration::from_millis(3)));
        here.spawn(async move {
            own.sleep_until(at).await;
            sender.send(own.step_time() >= at);
        });
    });
    assert_eq!(slept.expect("the runtime runs").wait(), Ok(true));
}

/// A request finds a worker that sleeps in its host, any number of times: a wake-up that is lost would hang the test.
#[test]
fn requests_wake_hosted_workers() {
    struct Nothing;
    impl Shard for Nothing {}
    let host = Arc::new(Host::default());
    let builder = RuntimeBuilder { host: Some(host as Arc<dyn ThreadHost>), ..RuntimeBuilder::new(2) };
    let runtime = builder.start(|_| Nothing).expect("a small runtime starts");
    for round in 0..2000_u16 {
        let answer = runtime.handle().request(WorkerId(round % 2), move |_, sender| sender.send(round));
        assert_eq!(answer.expect("the runtime runs").wait(), Ok(round));
    }
    // A task that never ends is dropped at the end, with the pump's own state.
    runtime
        .handle()
        .submit(WorkerId(0), |here| {
            let _ = here.spawn(pending());
        })
        .expect("the runtime runs");
    let report = runtime.shutdown(Duration::from_millis(20));
    assert!(!report.drained && report.tasks_dropped == 1 && report.shards_leaked == 0, "{report:?}");
}

/// A task of the host wakes one of a worker while the pump sleeps: a wake-up that is lost would hang the test.
#[test]
fn tasks_of_the_host_wake_those_of_its_workers() {
    const ROUNDS: usize = 500;
    for (workers, threads) in [(1, 1), (3, 1), (2, 2)] {
        let (runtime, host) = start(workers, threads, false);
        let asked = (0..workers).map(|worker| {
            let host = Arc::clone(&host);
            let worker = WorkerId(u16::try_from(worker).expect("few workers"));
            let answer = runtime.handle().request(worker, move |here, sender| {
                here.spawn(async move {
                    for _ in 0..ROUNDS {
                        let mut woken = false;
                        std::future::poll_fn(|context| {
                            if std::mem::replace(&mut woken, true) {
                                return Poll::Ready(());
                            }
                            let mut sleepers = host.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
                            sleepers.push(context.waker().clone());
                            Poll::Pending
                        })
                        .await;
                    }
                    sender.send(ROUNDS);
                });
            });
            answer.expect("the runtime runs")
        });
        let answers: Vec<_> = asked.collect();
        assert!(answers.into_iter().all(|answer| answer.wait() == Ok(ROUNDS)));
        let report = runtime.shutdown(Duration::from_secs(600));
        assert!(report.drained && report.shards_leaked == 0, "{report:?}");
    }
}
