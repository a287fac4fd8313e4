//! A database as an instance of a deployment: its links to the other instances.
//!
//! Owns: the way of links to the workers. Never: makes a link; whoever starts the deployment does.

use std::sync::{Arc, Mutex, PoisonError};

use atrapos_channel::Channel;
use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::routing::{Division, InstanceId};
use atrapos_runtime::WorkerId;
use atrapos_transaction::distributed::{self, LossObserver};

use crate::database::Database;

/// The links of one worker, as it tells of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerLinks {
    /// The instances to which it has a link.
    pub linked: Vec<InstanceId>,
    /// The sentence about the link that ended last, if one has.
    pub lost: Option<String>,
}

/// Transactions over several instances that have not come to their end everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unresolved {
    /// Transactions of others that are prepared here, and whose outcomes were not told before a link ended or a crash.
    pub in_doubt: usize,
    /// Transactions that have committed here, and whose ends others have not acknowledged.
    pub unacknowledged: usize,
}

impl Database {
    /// Returns the division of the keys, if the database is an instance of a deployment.
    #[must_use]
    pub fn division(&self) -> Option<&Division> {
        self.division.as_ref()
    }

    /// Adds links to another instance in the place of those before, by their numbers from zero. There are as many as the greater of
    /// the two instances has workers; link `i` ends at worker `i`, modulo the number of workers, of each. It is to wake that
    /// worker by [`waker`](Database::waker).
    ///
    /// # Errors
    /// [`AbortReason::Misuse`] if the database is no instance, that is no other one, or the number of links is another one;
    /// [`AbortReason::ShuttingDown`].
    pub fn link(&self, instance: InstanceId, channels: Vec<Box<dyn Channel>>) -> Result<(), Abort> {
        let refuse = |why: &'static str| Err(Abort::because(AbortReason::Misuse, why));
        match &self.division {
            None => return refuse("only an instance of a deployment has links; build the database as one"),
            Some(own) if own.instance == instance || usize::from(instance.0) >= own.workers.len() => {
                return refuse("an instance has links to the other instances only; name another one");
            }
            Some(own) if channels.len() != own.links_with(instance) => {
                return refuse(
                    "two instances have as many links as the greater one has workers; give so many, in order",
                );
            }
            Some(_) => {}
        }
        self.unlink(instance)?;
        for (number, channel) in channels.into_iter().enumerate() {
            // Handed over by a lock, since a job may be cloned, and a channel belongs to one thread at a time only.
            let channel = Arc::new(Mutex::new(Some(channel)));
            self.on_worker(WorkerId((number % self.workers()) as u16), move |worker| {
                let channel = channel.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(channel) = channel {
                    distributed::add_link(worker, instance, number, channel);
                }
            })?;
        }
        Ok(())
    }

    /// Sets the function that is told, on a worker's thread, of another instance that it cannot reach any more.
    ///
    /// # Errors
    /// [`AbortReason::ShuttingDown`].
    pub fn on_link_lost(&self, observer: LossObserver) -> Result<(), Abort> {
        self.on_all_workers(move |worker| distributed::observe(worker, observer)).map(drop)
    }

    /// Removes the links to another instance: it cannot be reached any more.
    ///
    /// # Errors
    /// [`AbortReason::ShuttingDown`].
    pub fn unlink(&self, instance: InstanceId) -> Result<(), Abort> {
        self.on_all_workers(move |worker| distributed::remove_links(worker, instance)).map(drop)
    }

    /// Returns a function that wakes a worker: the one that a link is given for the case that something arrives while its
    /// worker sleeps.
    #[must_use]
    pub fn waker(&self, worker: WorkerId) -> Box<dyn Fn() + Send + Sync> {
        let handle = self.handle.clone();
        Box::new(move || handle.wake(worker))
    }

    /// Returns the transactions of other instances that are prepared here and in doubt, and the number of decisions that not all
    /// others have acknowledged.
    ///
    /// # Errors
    /// [`AbortReason::ShuttingDown`].
    pub fn unresolved(&self) -> Result<Unresolved, Abort> {
        let of_workers = self.on_all_workers(distributed::unresolved)?;
        let sum = |sum: Unresolved, (in_doubt, decided): (Vec<_>, Vec<_>)| Unresolved {
            in_doubt: sum.in_doubt + in_doubt.len(),
            unacknowledged: sum.unacknowledged + decided.len(),
        };
        Ok(of_workers.into_iter().fold(Unresolved::default(), sum))
    }

    /// Returns the links of every worker.
    ///
    /// # Errors
    /// [`AbortReason::ShuttingDown`].
    pub fn links(&self) -> Result<Vec<WorkerLinks>, Abort> {
        self.on_all_workers(|worker| {
            let (linked, lost) = distributed::links(worker);
            WorkerLinks { linked, lost }
        })
    }
}
