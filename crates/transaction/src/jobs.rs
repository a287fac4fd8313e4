//! Jobs that the engine runs on its workers: loads, counts, verification, checkpoints, recovery, and the statistics and
//! changes of the adapting thread.
//!
//! Owns: the delivery of *jobs* to the workers by their control lanes. Never: delivers a client's procedure or session;
//! these use the inbox, which accepts no more while a worker hosts many.
//!
//! Invariant: a thread that waits for a job waits for steps of workers and for other jobs, never for a client. When the
//! database closes, jobs that were begun are completed or cancelled, later ones are refused, and the waiting threads
//! get the result or an abort.

use std::rc::Rc;

use atrapos_partition::abort::Abort;
use atrapos_partition::planted::{Bug, planted};
use atrapos_runtime::oneshot::{Receiver, Sender, oneshot};
use atrapos_runtime::{Handle, WorkerId};

use crate::shard::{EngineWorker, Shard};
use crate::waiting;

fn hand_over<R: Send + 'static>(
    handle: &Handle<Shard>,
    worker: WorkerId,
    job: impl FnOnce(&Rc<EngineWorker>, Sender<R>) + Send + 'static,
) -> Result<Receiver<R>, Abort> {
    let (sender, receiver) = oneshot();
    let job = move |worker: &Rc<EngineWorker>| job(worker, sender);
    let handed_over = if planted(Bug::JobInInbox) {
        handle.submit(worker, job).map_err(drop)
    } else {
        handle.submit_control(worker, job).map_err(drop)
    };
    handed_over.map(|()| receiver).map_err(|()| Abort::shutting_down())
}

/// Starts `job` on a worker's thread between transactions.
pub fn start_on_worker<R: Send + 'static>(
    handle: &Handle<Shard>,
    worker: WorkerId,
    job: impl FnOnce(&Rc<EngineWorker>) -> R + Send + 'static,
) -> Result<Receiver<R>, Abort> {
    hand_over(handle, worker, move |worker, sender| sender.send(job(worker)))
}

/// Runs `job` as a task of a worker, besides its other tasks, and waits for its result.
pub fn run_task_on_worker<R: Send + 'static>(
    handle: &Handle<Shard>,
    worker: WorkerId,
    job: impl AsyncFnOnce(Rc<EngineWorker>) -> R + Send + 'static,
) -> Result<R, Abort> {
    waiting::wait(start_task_on_worker(handle, worker, job)?)
}

/// Starts `job` as a task of a worker, besides its other tasks.
pub fn start_task_on_worker<R: Send + 'static>(
    handle: &Handle<Shard>,
    worker: WorkerId,
    job: impl AsyncFnOnce(Rc<EngineWorker>) -> R + Send + 'static,
) -> Result<Receiver<R>, Abort> {
    hand_over(handle, worker, move |worker, sender| {
        let own = Rc::clone(worker);
        worker.spawn_control(async move { sender.send(job(own).await) });
    })
}

/// Runs `job` on every worker at once and collects the results in order of the workers.
pub fn on_all_workers<R: Send + 'static>(
    handle: &Handle<Shard>,
    job: impl FnOnce(&Rc<EngineWorker>) -> R + Clone + Send + 'static,
) -> Result<Vec<R>, Abort> {
    start_on_all_workers(handle, job)?.into_iter().map(waiting::wait).collect()
}

/// Starts `job` on every worker at once.
pub fn start_on_all_workers<R: Send + 'static>(
    handle: &Handle<Shard>,
    job: impl FnOnce(&Rc<EngineWorker>) -> R + Clone + Send + 'static,
) -> Result<Vec<Receiver<R>>, Abort> {
    let workers = (0..handle.workers()).map(|worker| WorkerId(worker as u16));
    workers.map(|worker| start_on_worker(handle, worker, job.clone())).collect()
}

/// Waits until every message that one worker has sent to another so far has arrived, and the ends of transactions that
/// follow data from worker to worker as well.
pub fn settle(handle: &Handle<Shard>) -> Result<(), Abort> {
    let ends_passed_on = || {
        let counts = on_all_workers(handle, |worker| worker.shard().stats.ends_passed_on.get())?;
        Ok::<u64, Abort>(counts.into_iter().sum())
    };
    loop {
        let before = ends_passed_on()?;
        settle_once(handle)?;
        if ends_passed_on()? == before {
            return Ok(());
        }
    }
}

fn settle_once(handle: &Handle<Shard>) -> Result<(), Abort> {
    let workers = (0..handle.workers()).map(|worker| WorkerId(worker as u16));
    workers.clone().try_for_each(|from| {
        let others: Vec<WorkerId> = workers.clone().filter(|to| *to != from).collect();
        run_task_on_worker(handle, from, async move |worker: Rc<EngineWorker>| {
            for to in others {
                // Messages between two workers arrive in order, so the answer comes after everything sent before. A
                // lost answer means that the worker has stopped, and with it the messages sent to it.
                let _ = worker.call(to, |worker, reply| reply.send(worker, ())).await;
            }
        })
    })
}
