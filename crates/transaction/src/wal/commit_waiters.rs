//! The transactions of one worker that have ended and wait for an epoch to become durable.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use atrapos_durability::wal::Epoch;
use atrapos_partition::abort::Abort;
use atrapos_partition::planted::{Bug, planted};
use atrapos_runtime::{TaskId, Ticks, WorkerId};

use super::siblings::Siblings;
use super::{BufferIndex, Full, UndurableWrites, Wal};
use crate::shard::EngineWorker;

/// The time between two yields of a worker to a flusher that is late: a yield that nobody wants costs about a microsecond.
const WAY_EVERY: Duration = Duration::from_micros(100);

/// An epoch that is newer than all that a transaction may depend on.
const EVERY_EPOCH: Epoch = Epoch(u64::MAX - 1);

/// The time within which another worker that is not busy with something long replies: it steps every 20 microseconds at least. A
/// worker that has asked others and has nothing to do meanwhile is not in a hurry before.
const REPLY_WITHIN: Duration = Duration::from_micros(20);

/// See the module's introduction.
#[derive(Debug)]
pub struct CommitWaiters {
    /// The WAL.
    pub(crate) wal: Arc<Wal>,
    /// The worker's buffer.
    buffer: BufferIndex,
    /// The tasks by the epoch they wait for, ascending.
    waiting: RefCell<VecDeque<(Epoch, Vec<TaskId>)>>,
    spare: RefCell<Vec<Vec<TaskId>>>,
    /// The number of waiting tasks.
    waiting_len: Cell<usize>,
    /// The open transactions whose next commands are expected.
    pub(crate) siblings: Siblings,
    /// True if transactions have committed since the flusher was last notified.
    dirty: Cell<bool>,
    /// The time of the first commit here in each epoch that may not be durable yet.
    began: RefCell<VecDeque<(Epoch, Ticks)>>,
    /// The time before which the worker does not make way for its flusher again.
    no_way_before: Cell<Ticks>,
    /// The epoch that has to be durable for the buffer to have room, after a commit was refused.
    full_until: Cell<Epoch>,
    /// The bound of relaxed durability.
    max_loss: Option<Ticks>,
    /// The newest epoch on which a transaction may depend that is told at once, as of the latest step.
    told_up_to: Cell<Epoch>,
    /// The writes in this worker's partitions that are not durable yet.
    pub undurable: RefCell<UndurableWrites>,
}

impl CommitWaiters {
    /// Creates the list of a worker without waiting transactions.
    pub fn new(wal: Arc<Wal>, worker: WorkerId, tables: usize, max_loss: Option<Ticks>) -> CommitWaiters {
        CommitWaiters {
            buffer: wal.buffer_of(worker),
            wal,
            waiting: RefCell::default(),
            spare: RefCell::default(),
            waiting_len: Cell::new(0),
            siblings: Siblings::default(),
            dirty: Cell::new(false),
            began: RefCell::default(),
            no_way_before: Cell::new(Ticks(0)),
            full_until: Cell::new(Epoch(0)),
            max_loss,
            told_up_to: Cell::new(Epoch(0)),
            undurable: RefCell::new(match max_loss {
                Some(_) => UndurableWrites::coarse(),
                None => UndurableWrites::new(tables),
            }),
        }
    }

    /// Appends the record of a transaction that commits, and returns its epoch.
    pub(crate) fn commit(&self, worker: &EngineWorker, changes: &[u8]) -> Result<Epoch, Abort> {
        let epoch = self.wal.commit(self.buffer, changes).map_err(|full| self.refuse(full))?;
        self.note_commit(worker, epoch);
        Ok(epoch)
    }

    /// Appends the record of a transaction that was decided elsewhere, and returns its epoch.
    pub(crate) fn commit_decided(&self, worker: &EngineWorker, changes: &[u8]) -> Epoch {
        let epoch = self.wal.commit_decided(self.buffer, changes);
        self.note_commit(worker, epoch);
        epoch
    }

    #[inline(always)]
    fn note_commit(&self, worker: &EngineWorker, epoch: Epoch) {
        self.dirty.set(true);
        if self.max_loss.is_some() {
            let mut began = self.began.borrow_mut();
            if began.back().is_none_or(|(newest, _)| *newest < epoch) {
                began.push_back((epoch, worker.step_time()));
            }
        }
    }

    #[cold]
    fn refuse(&self, full: Full) -> Abort {
        self.full_until.set(full.newest);
        self.wal.overload()
    }

    /// Waits until the buffer has room, after a commit was refused.
    pub(crate) async fn wait_for_room(&self, worker: &EngineWorker) -> Result<(), Abort> {
        self.wait_until_durable(worker, self.full_until.get()).await
    }

    /// Returns true if `wait_epoch` is durable.
    #[inline(always)]
    pub(crate) fn is_durable(&self, wait_epoch: Epoch) -> bool {
        wait_epoch <= self.wal.durable()
    }

    /// Returns true if a transaction that depends on `wait_epoch` may be acknowledged now.
    #[inline]
    pub(crate) fn may_tell(&self, worker: &EngineWorker, wait_epoch: Epoch) -> bool {
        if self.is_durable(wait_epoch) || planted(Bug::ToldBeforeSync) {
            return true;
        }
        self.max_loss.is_some_and(|max_loss| self.is_within(worker, max_loss))
    }

    /// Returns true if no transaction has committed here longer ago than `max_loss` that is not durable yet.
    fn is_within(&self, worker: &EngineWorker, max_loss: Ticks) -> bool {
        let durable = self.wal.durable();
        let mut began = self.began.borrow_mut();
        while began.front().is_some_and(|(epoch, _)| *epoch <= durable) {
            began.pop_front();
        }
        !self.wal.is_failed()
            && began.front().is_none_or(|(_, began)| worker.step_time().since(*began) < max_loss)
    }

    /// Returns true if a transaction that depends on `wait_epoch` may surely be acknowledged now: what others have made durable
    /// in this step counts only from the next one on.
    #[inline(always)]
    pub(crate) fn tells(&self, wait_epoch: Epoch) -> bool {
        wait_epoch <= self.told_up_to.get()
    }

    /// Returns true under relaxed durability: a transaction depends on everything that was changed on this worker before it.
    #[inline(always)]
    pub(crate) fn is_relaxed(&self) -> bool {
        self.max_loss.is_some()
    }

    /// Looks at which epochs are durable.
    #[inline]
    fn look(&self, worker: &EngineWorker) {
        let told_up_to = match self.max_loss {
            Some(max_loss) if self.is_within(worker, max_loss) => EVERY_EPOCH,
            _ => self.wal.durable(),
        };
        self.told_up_to.set(told_up_to);
    }

    /// Waits until a transaction that depends on `wait_epoch` may be acknowledged.
    pub(crate) async fn wait(&self, worker: &EngineWorker, wait_epoch: Epoch) -> Result<(), Abort> {
        if self.may_tell(worker, wait_epoch) {
            return Ok(());
        }
        self.wait_until_durable(worker, wait_epoch).await
    }

    async fn wait_until_durable(&self, worker: &EngineWorker, wait_epoch: Epoch) -> Result<(), Abort> {
        let mut registered = false;
        poll_fn(|_| {
            if self.is_durable(wait_epoch) {
                return Poll::Ready(Ok(()));
            }
            if self.wal.is_failed() {
                return Poll::Ready(Err(self.wal.refusal()));
            }
            if !registered {
                registered = true;
                self.register(wait_epoch, worker.current_task());
            }
            Poll::Pending
        })
        .await
    }

    fn register(&self, wait_epoch: Epoch, task: TaskId) {
        self.waiting_len.set(self.waiting_len.get() + 1);
        let mut waiting = self.waiting.borrow_mut();
        let at = waiting.iter().rposition(|(epoch, _)| *epoch <= wait_epoch);
        match at {
            Some(at) if waiting[at].0 == wait_epoch => waiting[at].1.push(task),
            at => {
                let mut tasks = self.spare.borrow_mut().pop().unwrap_or_default();
                tasks.push(task);
                waiting.insert(at.map_or(0, |at| at + 1), (wait_epoch, tasks));
            }
        }
    }

    /// Notifies the flusher of new records, makes way for it if it is late, and wakes the tasks whose epochs are durable; called once per step. Returns
    /// true if there was anything to do.
    #[inline]
    pub(crate) fn step(&self, worker: &EngineWorker) -> bool {
        if self.dirty.replace(false) {
            self.wal.notify_flusher(worker.id());
        }
        self.look(worker);
        self.make_way(worker);
        if !self.has_news() {
            let waits = worker.ready_len() == 0 && self.waiting_len.get() > 0;
            if waits
                && !self.siblings.are_worth_waiting_for(self.waiting_len.get())
                && (worker.open_calls() == 0 || worker.step_time() >= self.expected_until(worker))
            {
                self.wal.hurry(worker.id());
            }
            return false;
        }
        self.wake_served(worker);
        true
    }

    /// The time until which a worker with nothing to do expects replies of others, and work with them.
    #[inline]
    fn expected_until(&self, worker: &EngineWorker) -> Ticks {
        worker.quiet_since().after(worker.clock().ticks(REPLY_WITHIN))
    }

    /// The time at which the worker will be in a hurry if nothing comes, unless it is so already.
    pub(crate) fn next_hurry(&self, worker: &EngineWorker) -> Option<Ticks> {
        let until = self.expected_until(worker);
        let will = worker.step_time() < until && worker.open_calls() > 0 && !self.waiting.borrow().is_empty();
        will.then_some(until)
    }

    /// Gives the worker's processing unit to its flusher for a moment if that is late: it may wait for one, or for its device,
    /// so not in every step.
    #[inline]
    fn make_way(&self, worker: &EngineWorker) {
        let now = worker.step_time();
        if self.wal.is_late(worker.id(), now) && now >= self.no_way_before.get() {
            self.no_way_before.set(now.after(worker.clock().ticks(WAY_EVERY)));
            std::thread::yield_now();
        }
    }

    /// Returns true if waiting tasks can go on.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        let waiting = self.waiting.borrow();
        match waiting.front() {
            None => false,
            Some((epoch, _)) => self.is_durable(*epoch) || self.wal.is_failed(),
        }
    }

    #[inline(never)]
    fn wake_served(&self, worker: &EngineWorker) {
        self.siblings.begin_round();
        let durable = self.wal.durable();
        let failed = self.wal.is_failed();
        let mut waiting = self.waiting.borrow_mut();
        while let Some((epoch, _)) = waiting.front()
            && (*epoch <= durable || failed)
        {
            let (_, mut tasks) = waiting.pop_front().expect("it was just looked at");
            self.waiting_len.set(self.waiting_len.get() - tasks.len());
            for task in tasks.drain(..) {
                worker.wake(task);
            }
            self.spare.borrow_mut().push(tasks);
        }
    }
}
