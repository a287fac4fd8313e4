//! The loop of a thread that workers share with the tasks of a host: an async function that the host polls.
//!
//! Owns: when the host's tasks run, and wakes that they give to tasks of these workers. Never: spins; with nothing to do the thread is the
//! host's.
//!
//! A task of the host that wakes one of a worker of its own thread needs none of what a wake from another thread does: the task is queued at once.
//!
//! Invariants: those of `turns.rs`, whose rounds and flags this loop uses, and of `host.rs`. Time in which the host's tasks run counts as
//! idle time of all workers.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::thread;

use super::turns::Turns;
use crate::WorkerId;
use crate::host::ThreadHost;
use crate::shared::{Phase, RuntimeId};
use crate::waker::TaskWaker;
use crate::worker::{Shard, Worker};

/// Brings a waker to its worker; false if that is not among those that are pumped here.
type Bring = dyn Fn(RuntimeId, &TaskWaker) -> bool;

thread_local! {
    /// The way to the workers that a host has on this thread.
    static HOSTED: RefCell<Option<Rc<Bring>>> = const { RefCell::new(None) };
}

/// Brings a waker to its worker in `runtime` if the calling thread is the one that pumps it; false if it is not.
pub(crate) fn wake(runtime: RuntimeId, waker: &TaskWaker) -> bool {
    // A thread that ends has no workers any more.
    let bring = HOSTED.try_with(|hosted| hosted.borrow().clone()).ok().flatten();
    bring.is_some_and(|bring| bring(runtime, waker))
}

fn bring<S: Shard>(workers: &[Rc<Worker<S>>], runtime: RuntimeId, waker: &TaskWaker) -> bool {
    let Some(worker) = workers.iter().find(|worker| worker.id() == waker.home()) else { return false };
    if worker.shared().runtime != runtime {
        return false;
    }
    waker.arrive(&worker.core().tasks);
    // It is this thread that has raised the flag, so there is nothing to fence.
    worker.shared().port(worker.id()).parker.wake_after_fence();
    true
}

/// Makes workers known to the tasks of their thread until it is dropped.
struct Known;

impl Known {
    fn make<S: Shard>(workers: &[Rc<Worker<S>>]) -> Known {
        let workers = workers.to_vec();
        HOSTED.set(Some(Rc::new(move |runtime, waker| bring(&workers, runtime, waker))));
        Known
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        HOSTED.set(None);
    }
}

/// Has a host poll the pump of these workers. Returns true if the workers have stopped, false if the host could not poll it.
pub(super) fn pump_hosted<S: Shard>(
    workers: &[Rc<Worker<S>>],
    current: &Rc<Cell<WorkerId>>,
    host: &Arc<dyn ThreadHost>,
) -> bool {
    let begun = Rc::new(Cell::new(false));
    let pump = pump(Turns::new(workers, current), Arc::clone(host), Rc::clone(&begun));
    let ids: Vec<WorkerId> = workers.iter().map(|worker| worker.id()).collect();
    let known = Known::make(workers);
    host.run(&ids, Box::pin(pump));
    drop(known);
    let stopped = workers[0].shared().phase() == Phase::Stopped;
    assert!(stopped || !begun.get(), "a host polls a pump to its end");
    stopped
}

async fn pump<S: Shard>(mut turns: Turns<S>, host: Arc<dyn ThreadHost>, begun: Rc<Cell<bool>>) {
    poll_fn(|context| {
        turns.adopt_task(context.waker());
        Poll::Ready(())
    })
    .await;
    begun.set(true);
    while !turns.is_stopped() {
        if !turns.round() {
            turns.suspend(|time| host.sleep(time)).await;
            continue;
        }
        if turns.has_backlog() {
            thread::yield_now();
        }
        let_others_run().await;
        turns.resume();
    }
}

/// Lets the tasks run that are ready.
async fn let_others_run() {
    let mut ran = false;
    poll_fn(|context| {
        if std::mem::replace(&mut ran, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
