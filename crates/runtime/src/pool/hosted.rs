//! The loop of a thread that workers share with the tasks of a host: an async function that the host polls.
//!
//! Owns: when the host's tasks run. Never: spins; with nothing to do the thread is the host's.
//!
//! Invariants: those of `turns.rs`, whose rounds and flags this loop uses, and of `host.rs`. Time in which the host's tasks run counts as
//! idle time of all workers.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::thread;

use super::turns::Turns;
use crate::WorkerId;
use crate::host::ThreadHost;
use crate::shared::Phase;
use crate::worker::{Shard, Worker};

/// Has a host poll the pump of these workers. Returns true if the workers have stopped, false if the host could not poll it.
pub(super) fn pump_hosted<S: Shard>(
    workers: &[Rc<Worker<S>>],
    current: &Rc<Cell<WorkerId>>,
    host: &Arc<dyn ThreadHost>,
) -> bool {
    let begun = Rc::new(Cell::new(false));
    let pump = pump(Turns::new(workers, current), Arc::clone(host), Rc::clone(&begun));
    let ids: Vec<WorkerId> = workers.iter().map(|worker| worker.id()).collect();
    host.run(&ids, Box::pin(pump));
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
