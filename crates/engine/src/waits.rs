//! Who waits for a lock on one worker: the requests in the queues of its lock tables, by ticket and by transaction.
//!
//! A request is here from the moment it is queued until its task has seen what became of it, or its transaction has ended.

use std::collections::HashMap;

use atrapos_runtime::{TaskId, Ticks};
use atrapos_storage::lock::{LockOwner, LockTarget, LockTicket};
use rustc_hash::FxBuildHasher;

use crate::abort::AbortReason;
use crate::partition::Place;

/// What became of a queued lock request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitState {
    Queued,
    Granted,
    /// The partition was split, merged or moved: the data is to be looked for again.
    Moved,
    /// Taken out of the queue: the transaction is to abort for this reason.
    Refused(AbortReason),
}

/// A queued lock request of a task on this worker.
#[derive(Debug)]
pub(crate) struct Wait {
    pub(crate) owner: LockOwner,
    pub(crate) place: Place,
    pub(crate) target: LockTarget,
    pub(crate) task: TaskId,
    pub(crate) state: WaitState,
    pub(crate) since: Ticks,
    /// Where the transaction's branch notes the lock.
    pub(crate) held: usize,
}

/// See the module's introduction.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    by_ticket: HashMap<u64, Wait, FxBuildHasher>,
    /// Mostly one ticket per transaction: it waits in several places only when a phase of it does.
    by_owner: HashMap<LockOwner, Vec<u64>, FxBuildHasher>,
}

impl Waits {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_ticket.is_empty()
    }

    pub(crate) fn insert(&mut self, ticket: LockTicket, wait: Wait) {
        self.by_owner.entry(wait.owner).or_default().push(ticket.0);
        self.by_ticket.insert(ticket.0, wait);
    }

    pub(crate) fn remove(&mut self, ticket: LockTicket) {
        let Some(wait) = self.by_ticket.remove(&ticket.0) else { return };
        if let Some(tickets) = self.by_owner.get_mut(&wait.owner) {
            tickets.retain(|other| *other != ticket.0);
            if tickets.is_empty() {
                self.by_owner.remove(&wait.owner);
            }
        }
    }

    pub(crate) fn get(&self, ticket: LockTicket) -> Option<&Wait> {
        self.by_ticket.get(&ticket.0)
    }

    pub(crate) fn get_mut(&mut self, ticket: LockTicket) -> Option<&mut Wait> {
        self.by_ticket.get_mut(&ticket.0)
    }

    /// All requests, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (LockTicket, &Wait)> {
        self.by_ticket.iter().map(|(ticket, wait)| (LockTicket(*ticket), wait))
    }

    /// All requests, in no order, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (LockTicket, &mut Wait)> {
        self.by_ticket.iter_mut().map(|(ticket, wait)| (LockTicket(*ticket), wait))
    }

    /// The branch of `owner` has lost the accesses noted at `places` (ascending): the others move up.
    pub(crate) fn move_up(&mut self, owner: LockOwner, places: &[usize]) {
        let Some(tickets) = self.by_owner.get(&owner) else { return };
        for ticket in tickets {
            if let Some(wait) = self.by_ticket.get_mut(ticket) {
                wait.held -= places.partition_point(|place| *place < wait.held);
            }
        }
    }

    /// The requests of one transaction.
    pub(crate) fn of(&self, owner: LockOwner) -> impl Iterator<Item = (LockTicket, &Wait)> {
        let tickets = self.by_owner.get(&owner).map_or(&[][..], Vec::as_slice);
        tickets.iter().map(|ticket| (LockTicket(*ticket), &self.by_ticket[ticket]))
    }
}
