//! Futures that know nothing of workers, awaited by tasks: whoever completes them, on whatever thread, wakes the task.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use atrapos_runtime::oneshot::oneshot;
use atrapos_runtime::rng::Seed;
use atrapos_runtime::{Pump, Shard, WorkerId};

use crate::pool::start;

struct Nothing;

impl Shard for Nothing {}

fn pump(seed: u64) -> Pump<Nothing> {
    Pump::new(3, Seed(seed), |_| Nothing).expect("a few workers are fine")
}

/// A number that others count up to, and the waker of who waits for it.
#[derive(Clone, Default)]
struct Count(Arc<Mutex<(usize, Option<Waker>)>>);

impl Count {
    fn add(&self) {
        let waker = {
            let mut count = self.0.lock().expect("nobody panics");
            count.0 += 1;
            count.1.clone()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    async fn until(&self, target: usize) {
        poll_fn(|context| {
            let mut count = self.0.lock().expect("nobody panics");
            if count.0 >= target {
                return Poll::Ready(());
            }
            count.1 = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn is_awaited(&self) -> bool {
        self.0.lock().expect("nobody panics").1.is_some()
    }
}

#[test]
fn tasks_of_any_worker_wake_a_task() {
    for seed in 0..50 {
        let mut pump = pump(seed);
        let (count, done) = (Count::default(), Rc::new(Cell::new(false)));
        let (awaited, ended) = (count.clone(), Rc::clone(&done));
        pump.worker(WorkerId(0)).spawn(async move {
            awaited.until(6).await;
            ended.set(true);
        });
        for worker in pump.workers() {
            let (here, count) = (Rc::clone(worker), count.clone());
            worker.spawn(async move {
                for _ in 0..2 {
                    here.yield_now().await;
                    count.add();
                }
            });
        }
        assert!(pump.run_until_idle(100_000));
        assert!(done.get(), "a wake was lost with seed {seed}");
    }
}

#[test]
fn a_thread_wakes_a_task_however_often() {
    let mut pump = pump(1);
    let (count, done) = (Count::default(), Rc::new(Cell::new(false)));
    let (awaited, ended) = (count.clone(), Rc::clone(&done));
    pump.worker(WorkerId(1)).spawn(async move {
        awaited.until(1_000).await;
        ended.set(true);
    });
    assert!(pump.run_until_idle(10_000));
    assert!(count.is_awaited() && !done.get());
    let counting = count.clone();
    std::thread::spawn(move || (0..1_000).for_each(|_| counting.add())).join().expect("it does not fail");
    assert!(pump.run_until_idle(10_000));
    assert!(done.get());
}

#[test]
fn the_waker_of_a_context_may_be_used_on_another_thread_during_the_poll() {
    let mut pump = pump(2);
    let polls = Rc::new(Cell::new(0));
    let counted = Rc::clone(&polls);
    pump.worker(WorkerId(2)).spawn(poll_fn(move |context| {
        counted.set(counted.get() + 1);
        if counted.get() == 3 {
            return Poll::Ready(());
        }
        let waker = context.waker();
        std::thread::scope(|scope| {
            scope.spawn(|| waker.wake_by_ref());
            scope.spawn(|| {
                let clone = waker.clone();
                clone.wake();
            });
        });
        Poll::Pending
    }));
    assert!(pump.run_until_idle(10_000));
    assert_eq!(polls.get(), 3);
}

#[test]
fn a_waker_outlives_its_task_and_its_runtime() {
    let count = Count::default();
    let mut pump = pump(3);
    let awaited = count.clone();
    pump.worker(WorkerId(0)).spawn(async move {
        let mut waiting = std::pin::pin!(awaited.until(1));
        poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context).is_pending())).await;
    });
    assert!(pump.run_until_idle(10_000));
    // The slot is another task's now, which is polled once and not again.
    let polls = Rc::new(Cell::new(0));
    let counted = Rc::clone(&polls);
    pump.worker(WorkerId(0)).spawn(poll_fn(move |_| {
        counted.set(counted.get() + 1);
        Poll::<()>::Pending
    }));
    assert!(pump.run_until_idle(10_000));
    count.add();
    assert!(pump.run_until_idle(10_000));
    assert_eq!(polls.get(), 1);
    drop(pump);
    count.add();
}

/// Polls a future with the waker of an inner task, as combinators do that have wakers of their own.
struct Boxed<F>(Pin<Box<F>>);

impl<F: Future> Future for Boxed<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let waker = context.waker().clone();
        self.0.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

#[test]
fn answers_of_other_runtimes_are_awaited_on_threads() {
    let (asking, answering) = (start(2), start(2));
    let other = answering.handle();
    let receivers: Vec<_> = (0..40_u64)
        .map(|at| {
            let other = other.clone();
            let (sender, receiver) = oneshot();
            let asked = asking.handle().submit(WorkerId((at % 2) as u16), move |here| {
                here.spawn(async move {
                    let mut sum = 0;
                    for round in 0..20 {
                        let to = WorkerId(((at + round) % 2) as u16);
                        let answer = other.request(to, move |there, sender| {
                            there.shard().asked.set(there.shard().asked.get() + 1);
                            sender.send(round);
                        });
                        sum += Boxed(Box::pin(answer.expect("it runs"))).await.expect("it answers");
                    }
                    sender.send(sum);
                });
            });
            assert!(asked.is_ok());
            receiver
        })
        .collect();
    for receiver in receivers {
        assert_eq!(receiver.wait(), Ok(190));
    }
}
