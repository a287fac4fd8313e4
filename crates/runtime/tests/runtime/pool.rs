//! Workers on threads.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use atrapos_runtime::{
    Limits, Runtime, RuntimeBuilder, Shard, StartError, SubmitError, Ticks, Worker, WorkerId,
};

/// Counts what its worker was asked for.
#[derive(Default)]
pub(crate) struct Count {
    pub(crate) asked: Cell<u64>,
}

impl Shard for Count {}

pub(crate) fn start(workers: usize) -> Runtime<Count> {
    RuntimeBuilder::new(workers).start(|_| Count::default()).expect("a small runtime starts")
}

fn ids(workers: usize) -> impl Iterator<Item = WorkerId> {
    (0..workers).map(|worker| WorkerId(u16::try_from(worker).expect("few workers")))
}

/// One task that calls every worker `rounds` times, several calls at once, and adds up the answers.
async fn call_everybody(worker: Rc<Worker<Count>>, rounds: u64) -> u64 {
    let mut sum = 0;
    for round in 0..rounds {
        let calls: Vec<_> = ids(worker.workers())
            .map(|to| {
                worker.call(to, move |there, reply| {
                    there.shard().asked.set(there.shard().asked.get() + 1);
                    reply.send(there, round + u64::from(there.id().0));
                })
            })
            .collect();
        for call in calls {
            sum += call.await.expect("nobody stops");
        }
    }
    sum
}

pub(crate) fn all_to_all(runtime: &Runtime<Count>, tasks_per_worker: usize, rounds: u64) {
    let workers = runtime.workers() as u64;
    let handle = runtime.handle();
    let receivers: Vec<_> = ids(runtime.workers())
        .flat_map(|worker| std::iter::repeat_n(worker, tasks_per_worker))
        .map(|worker| {
            let request = handle.request(worker, move |here, sender| {
                let inner = Rc::clone(here);
                here.spawn(async move { sender.send(call_everybody(inner, rounds).await) });
            });
            request.expect("the runtime runs")
        })
        .collect();
    let expected = (0..rounds).map(|round| round * workers + workers * (workers - 1) / 2).sum::<u64>();
    for receiver in receivers {
        assert_eq!(receiver.wait(), Ok(expected));
    }
    let asked: u64 = ids(runtime.workers())
        .map(|worker| {
            let asked = handle.request(worker, |here, sender| sender.send(here.shard().asked.get()));
            asked.expect("the runtime runs").wait().expect("the runtime runs")
        })
        .sum();
    assert_eq!(asked, workers * workers * tasks_per_worker as u64 * rounds);
}

/// Handles, and what waits for answers, may go to any thread.
#[test]
fn outside_ends_are_for_all_threads() {
    fn for_all_threads<T: Send + Sync>(_: &T) {}
    let runtime = start(1);
    for_all_threads(&runtime);
    for_all_threads(&runtime.handle());
    let (sender, receiver) = atrapos_runtime::oneshot::oneshot::<Cell<u8>>();
    for_all_threads(&receiver);
    for_all_threads(&sender);
}

#[test]
fn two_workers_answer_each_other() {
    all_to_all(&start(2), 8, 200);
}

#[test]
fn one_worker_answers_itself() {
    all_to_all(&start(1), 3, 50);
}

/// More workers than processing units, unpinned, everybody calling everybody.
#[test]
fn oversubscribed_workers_answer_each_other() {
    let runtime = start(8);
    all_to_all(&runtime, 16, 40);
    let report = runtime.shutdown(Duration::from_secs(600));
    assert!(report.drained && report.tasks_dropped == 0 && report.shards_leaked == 0, "{report:?}");
    for worker in runtime.stats() {
        assert!(worker.messages_received >= 8 * 16 * 40, "{worker:?}");
    }
}

/// Rings so small that they are full all the time: messages spill, stay in order, and none is lost.
#[test]
fn full_rings_spill_and_recover() {
    let mut builder = RuntimeBuilder::new(3);
    builder.ring_bytes = 1 << 10;
    builder.limits = Limits { messages_per_ring: 3, inbox_per_step: 2, ..Limits::default() };
    let runtime = builder.start(|_| Count::default()).expect("a small runtime starts");
    all_to_all(&runtime, 64, 20);
    let stats = runtime.stats();
    assert!(stats.iter().any(|worker| worker.spills > 0), "the rings were never full: {stats:?}");
}

#[test]
fn outside_threads_share_an_inbox() {
    let mut builder = RuntimeBuilder::new(2);
    builder.inbox_slots = 4;
    let runtime = builder.start(|_| Count::default()).expect("a small runtime starts");
    let ran = Arc::new(AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (handle, ran) = (runtime.handle(), &ran);
            scope.spawn(move || {
                for request in 0..500u64 {
                    let to = WorkerId(u16::try_from((thread + request) % 2).expect("0 or 1"));
                    let answer = handle.request(to, move |here, sender| sender.send((here.id(), request)));
                    assert_eq!(answer.expect("the runtime runs").wait(), Ok((to, request)));
                    let ran = Arc::clone(ran);
                    let submitted = handle.submit(to, move |_| {
                        ran.fetch_add(1, Ordering::Relaxed);
                    });
                    assert!(submitted.is_ok());
                }
            });
        }
    });
    assert!(runtime.shutdown(Duration::from_secs(600)).drained);
    assert_eq!(ran.load(Ordering::Relaxed), 2000, "what was accepted is run before the end");
}

#[test]
fn a_full_inbox_refuses_at_once() {
    let mut builder = RuntimeBuilder::new(1);
    builder.inbox_slots = 2;
    let runtime = builder.start(|_| Count::default()).expect("a small runtime starts");
    let handle = runtime.handle();
    // Hold the worker inside a closure, so that its inbox fills.
    let (entered, held) = (Arc::new(std::sync::Barrier::new(2)), Arc::new(std::sync::Barrier::new(2)));
    let (there_entered, there_held) = (Arc::clone(&entered), Arc::clone(&held));
    let submitted = handle.submit(WorkerId(0), move |_| {
        there_entered.wait();
        there_held.wait();
    });
    assert!(submitted.is_ok());
    entered.wait();
    let mut accepted = 0;
    let refused = loop {
        match handle.try_submit(WorkerId(0), |here| here.shard().asked.set(here.shard().asked.get() + 1)) {
            Ok(()) => accepted += 1,
            Err(error) => break error,
        }
    };
    assert!(refused.is_full() && (1..=2).contains(&accepted), "{refused:?} after {accepted}");
    assert!(refused.to_string().contains("w0 is full: try again"), "{refused}");
    held.wait();
    assert!(handle.submit(WorkerId(0), refused.into_closure()).is_ok());
    let asked = handle.request(WorkerId(0), |here, sender| sender.send(here.shard().asked.get()));
    assert_eq!(asked.expect("the runtime runs").wait(), Ok(accepted + 1));
}

#[test]
fn a_worker_that_does_not_exist_is_an_error() {
    let runtime = start(2);
    let error = runtime.handle().submit(WorkerId(2), |_| ()).expect_err("there are two workers");
    assert!(matches!(error, SubmitError::NoSuchWorker(WorkerId(2), 2, _)));
    assert!(error.to_string().contains("no worker w2: name one of the 2 workers"), "{error}");
}

#[test]
fn senseless_configurations_are_sentences() {
    let message = |change: fn(&mut RuntimeBuilder)| {
        let mut builder = RuntimeBuilder::new(2);
        change(&mut builder);
        match builder.start(|_| Count::default()) {
            Ok(_) => panic!("a senseless configuration was started"),
            Err(error) => error.to_string(),
        }
    };
    assert!(message(|builder| builder.workers = 0).contains("choose from 1 to 1024"));
    assert!(message(|builder| builder.workers = 5000).contains("choose from 1 to 1024"));
    assert!(message(|builder| builder.cpus = Some(vec![None])).contains("one entry per worker"));
    assert!(message(|builder| builder.threads = Some(0)).contains("choose at least 1"));
    assert!(message(|builder| builder.ring_bytes = 3000).contains("choose a power of two"));
    assert!(message(|builder| builder.ring_bytes = 16).contains("choose a power of two"));
    assert!(message(|builder| builder.inbox_slots = 0).contains("choose a power of two"));
    let thread = StartError::Thread { worker: WorkerId(3), error: std::io::Error::from_raw_os_error(11) };
    assert!(thread.to_string().contains("worker w3"), "{thread}");
}

#[test]
fn a_pin_that_fails_is_a_warning() {
    let mut builder = RuntimeBuilder::new(2);
    builder.cpus = Some(vec![Some(1_000_000), None]);
    let runtime =
        builder.start(|_| Count::default()).expect("a failed pin does not keep a runtime from starting");
    let warnings = runtime.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].starts_with("worker w0 runs unpinned: "), "{warnings:?}");
    all_to_all(&runtime, 2, 10);
}

#[test]
fn pinning_can_be_switched_off() {
    let mut builder = RuntimeBuilder::new(1);
    builder.cpus = Some(vec![Some(1_000_000)]);
    builder.pin = false;
    let runtime = builder.start(|_| Count::default()).expect("a small runtime starts");
    assert!(runtime.warnings().is_empty());
}

#[test]
fn threads_have_names_and_shards_stay_on_them() {
    struct Home(std::thread::ThreadId);
    impl Shard for Home {}
    impl Drop for Home {
        fn drop(&mut self) {
            assert_eq!(self.0, std::thread::current().id(), "a shard is dropped on its own thread");
        }
    }
    let builder = RuntimeBuilder { threads: Some(2), ..RuntimeBuilder::new(2) };
    let runtime = builder.start(|_| Home(std::thread::current().id())).expect("a small runtime starts");
    let name = runtime.handle().request(WorkerId(1), |here, sender| {
        assert_eq!(here.shard().0, std::thread::current().id());
        sender.send(std::thread::current().name().map(str::to_owned));
    });
    assert_eq!(name.expect("the runtime runs").wait(), Ok(Some("atrapos-w1".to_owned())));
    assert_eq!(runtime.shutdown(Duration::from_secs(600)).shards_leaked, 0);
}

/// Idle workers stop stepping altogether, and wake for what arrives.
#[test]
fn idle_workers_sleep_and_wake() {
    let runtime = start(3);
    let steps = || runtime.stats().iter().map(|worker| worker.steps).collect::<Vec<_>>();
    for round in 0..3 {
        let mut quiet = 0;
        for attempt in 0.. {
            let before = steps();
            std::thread::park_timeout(Duration::from_millis(20));
            // Three looks in a row at workers that have not stepped in between.
            quiet = if before == steps() { quiet + 1 } else { 0 };
            if quiet == 3 {
                break;
            }
            assert!(attempt < 1_000, "idle workers go on stepping: {:?}", runtime.stats());
        }
        assert!(runtime.stats().iter().all(|worker| worker.parks > 0));
        all_to_all(&runtime, 1, round + 1);
        let _ = runtime.handle().submit(WorkerId(0), |here| here.shard().asked.set(0));
        for worker in 1..3 {
            let _ = runtime.handle().submit(WorkerId(worker), |here| here.shard().asked.set(0));
        }
    }
}

/// A shard's deadline and a task's timer wake a sleeping worker without anything arriving.
#[test]
fn deadlines_wake_sleepers() {
    #[derive(Default)]
    struct Alarm {
        at: Cell<Option<Ticks>>,
        rang: Cell<u64>,
    }
    impl Shard for Alarm {
        fn background(worker: &Rc<Worker<Self>>, now: Ticks) -> bool {
            let alarm = worker.shard();
            let due = alarm.at.get().is_some_and(|at| at <= now);
            if due {
                alarm.rang.set(alarm.rang.get() + 1);
                alarm.at.set(
                    (alarm.rang.get() < 5).then(|| now.after(worker.clock().ticks(Duration::from_millis(3)))),
                );
            }
            due
        }
        fn next_deadline(worker: &Rc<Worker<Self>>) -> Option<Ticks> {
            worker.shard().at.get()
        }
    }
    let runtime = RuntimeBuilder::new(1).start(|_| Alarm::default()).expect("a small runtime starts");
    let rang = runtime.handle().request(WorkerId(0), |here, sender| {
        here.shard().at.set(Some(here.now()));
        let inner = Rc::clone(here);
        here.spawn(async move {
            while inner.shard().rang.get() < 5 {
                inner.sleep_until(inner.now().after(inner.clock().ticks(Duration::from_millis(2)))).await;
            }
            sender.send(inner.shard().rang.get());
        });
    });
    assert_eq!(rang.expect("the runtime runs").wait(), Ok(5));
}

/// Receivers work for a worker that asks itself through its own ring, and with the waker of an outside executor.
#[test]
fn receivers_are_futures_for_any_executor() {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Wake, Waker};
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let runtime = start(2);
    let receiver = runtime.handle().request(WorkerId(1), |here, sender| {
        let inner = Rc::clone(here);
        here.spawn(async move {
            let there = inner.call(WorkerId(0), |there, reply| reply.send(there, there.id()));
            sender.send(there.await);
        });
    });
    let mut receiver = pin!(receiver.expect("the runtime runs"));
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let answer = loop {
        match receiver.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => break answer,
            Poll::Pending => std::thread::park(),
        }
    };
    assert_eq!(answer, Ok(Ok(WorkerId(0))));
}
