//! The lock requests that wait on one worker, in the queues of its lock tables, by ticket and by transaction.
//!
//! A request is kept here from the moment it is queued until its task has taken its outcome, or its transaction has
//! ended. The queued ones are kept in the order of their tickets, which is that of their arrival: the few that are
//! checked at a time are found without visiting the others.

use std::collections::{BTreeSet, HashMap};

use atrapos_partition::abort::AbortReason;
use atrapos_partition::partition::PartitionId;
use atrapos_runtime::{TaskId, Ticks};
use atrapos_storage::lock::{LockTarget, LockTicket, TxnId};
use rustc_hash::FxBuildHasher;

/// The state of a lock request that was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockWaitState {
    /// It is queued.
    Queued,
    /// The lock was granted.
    Granted,
    /// The partition was split, merged or moved: the action has to locate its data again.
    Moved,
    /// Removed from the queue: the transaction has to abort for this reason.
    Refused(AbortReason),
}

/// A queued lock request of a task on this worker.
#[derive(Debug)]
pub struct LockWaitEntry {
    /// The transaction that waits.
    pub owner: TxnId,
    /// The partition.
    pub partition: PartitionId,
    /// The key or range to be locked.
    pub(crate) target: LockTarget,
    /// The task that waits for it.
    pub task: TaskId,
    /// The state, changed by [`LockWaits::settle`].
    pub state: LockWaitState,
    /// The time at which it began to wait.
    pub(crate) since: Ticks,
    /// The index of the access in the transaction's branch.
    pub access: usize,
}

/// See the module's introduction.
#[derive(Debug, Default)]
pub struct LockWaits {
    by_ticket: HashMap<u64, LockWaitEntry, FxBuildHasher>,
    /// The tickets of each transaction: mostly one, since only a phase waits for several locks.
    by_owner: HashMap<TxnId, Vec<u64>, FxBuildHasher>,
    /// The tickets of the queued requests.
    queued: BTreeSet<u64>,
    /// The number of requests that `due` has visited.
    #[cfg(test)]
    visited: std::cell::Cell<usize>,
}

/// The requests that are to be checked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Due {
    /// Their owners.
    pub(crate) owners: Vec<TxnId>,
    /// The ticket after which the turn goes on.
    pub(crate) turn: u64,
}

impl LockWaits {
    /// Returns true if there are no requests.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.by_ticket.is_empty()
    }

    /// Adds a request that begins to wait.
    pub(crate) fn insert(&mut self, ticket: LockTicket, wait: LockWaitEntry) {
        self.by_owner.entry(wait.owner).or_default().push(ticket.0);
        if wait.state == LockWaitState::Queued {
            self.queued.insert(ticket.0);
        }
        self.by_ticket.insert(ticket.0, wait);
    }

    /// Removes a request.
    pub(crate) fn remove(&mut self, ticket: LockTicket) {
        let Some(wait) = self.by_ticket.remove(&ticket.0) else { return };
        self.queued.remove(&ticket.0);
        if let Some(tickets) = self.by_owner.get_mut(&wait.owner) {
            tickets.retain(|other| *other != ticket.0);
            if tickets.is_empty() {
                self.by_owner.remove(&wait.owner);
            }
        }
    }

    /// Returns the request with this ticket.
    pub fn get(&self, ticket: LockTicket) -> Option<&LockWaitEntry> {
        self.by_ticket.get(&ticket.0)
    }

    /// Sets the state of a request.
    pub fn settle(&mut self, ticket: LockTicket, state: LockWaitState) {
        debug_assert!(state != LockWaitState::Queued, "a request is queued once");
        if let Some(wait) = self.by_ticket.get_mut(&ticket.0) {
            wait.state = state;
            self.queued.remove(&ticket.0);
        }
    }

    /// Chooses among the requests that at time `now` have been queued for at least `after`: all of them, or, if there
    /// are more than twice `few`, the `few` oldest and `few` of the others, in turn after ticket `turn`. Visits few
    /// more than it chooses, independent of the number of requests.
    pub(crate) fn due(&self, now: Ticks, after: Ticks, turn: u64, few: usize) -> Due {
        let is_due = |ticket: &u64| {
            #[cfg(test)]
            self.visited.set(self.visited.get() + 1);
            now.0 >= self.by_ticket[ticket].since.0 + after.0
        };
        // Requests behind one that is not due arrived later still.
        let due_from = |first: u64| self.queued.range(first..).copied().take_while(is_due);
        let mut chosen: Vec<u64> = due_from(0).take(2 * few + 1).collect();
        let mut turn = turn;
        if chosen.len() > 2 * few {
            chosen.truncate(few);
            let others = chosen.last().map_or(0, |oldest| oldest + 1);
            chosen.extend(due_from(others.max(turn + 1)).chain(due_from(others)).take(few));
            turn = chosen.last().copied().unwrap_or(turn);
        }
        Due { owners: chosen.iter().map(|ticket| self.by_ticket[ticket].owner).collect(), turn }
    }

    /// The number of requests that are queued.
    pub fn queued_len(&self) -> usize {
        self.queued.len()
    }

    /// Returns the queued requests, the oldest first.
    pub(crate) fn oldest(&self) -> impl Iterator<Item = (LockTicket, &LockWaitEntry)> {
        self.queued.iter().map(|ticket| (LockTicket(*ticket), &self.by_ticket[ticket]))
    }

    /// Returns all requests, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (LockTicket, &LockWaitEntry)> {
        self.by_ticket.iter().map(|(ticket, wait)| (LockTicket(*ticket), wait))
    }

    /// Adjusts the indexes of the accesses of `owner`, whose branch has lost those at `places` (ascending).
    pub fn move_up(&mut self, owner: TxnId, places: &[usize]) {
        let Some(tickets) = self.by_owner.get(&owner) else { return };
        for ticket in tickets {
            if let Some(wait) = self.by_ticket.get_mut(ticket) {
                wait.access -= places.partition_point(|place| *place < wait.access);
            }
        }
    }

    /// Returns the requests of one transaction.
    pub(crate) fn of(&self, owner: TxnId) -> impl Iterator<Item = (LockTicket, &LockWaitEntry)> {
        let tickets = self.by_owner.get(&owner).map_or(&[][..], Vec::as_slice);
        tickets.iter().map(|ticket| (LockTicket(*ticket), &self.by_ticket[ticket]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atrapos_partition::schema::TableId;

    fn add(waits: &mut LockWaits, ticket: u64, since: u64) {
        let wait = LockWaitEntry {
            owner: TxnId(1_000_000 + ticket),
            partition: PartitionId { table: TableId(0), partition: 0 },
            target: LockTarget::Key(atrapos_storage::KeyBuf::new()),
            task: TaskId::NONE,
            state: LockWaitState::Queued,
            since: Ticks(since),
            access: 0,
        };
        waits.insert(LockTicket(ticket), wait);
    }

    /// Returns the tickets that are due at time 1000, after a wait of 100.
    fn due(waits: &LockWaits, turn: &mut u64) -> Vec<u64> {
        let due = waits.due(Ticks(1_000), Ticks(100), *turn, 2);
        *turn = due.turn;
        due.owners.into_iter().map(|owner| owner.0 - 1_000_000).collect()
    }

    #[test]
    fn a_check_visits_a_few_of_thousands() {
        let mut waits = LockWaits::default();
        (1..=10_000).for_each(|ticket| add(&mut waits, ticket, ticket / 20));
        let mut turn = 0;
        let mut seen = vec![0; 10_001];
        for check in 0..4_999 {
            let before = waits.visited.get();
            let chosen = due(&waits, &mut turn);
            assert_eq!((chosen.len(), &chosen[..2]), (4, &[1, 2][..]), "check {check}");
            chosen.iter().for_each(|ticket| seen[*ticket as usize] += 1);
            assert!(waits.visited.get() - before <= 10, "{} were visited", waits.visited.get() - before);
        }
        // Each request has had one turn.
        assert!(seen[3..].iter().all(|times| *times == 1));
        // The turn starts over, and goes on after a ticket that was removed.
        assert_eq!(due(&waits, &mut turn), [1, 2, 3, 4]);
        waits.settle(LockTicket(1), LockWaitState::Granted);
        waits.remove(LockTicket(4));
        waits.settle(LockTicket(5), LockWaitState::Moved);
        assert_eq!(due(&waits, &mut turn), [2, 3, 6, 7]);
    }

    #[test]
    fn only_who_has_waited_long_enough_is_looked_into() {
        let mut waits = LockWaits::default();
        for (ticket, since) in [(1, 300), (2, 800), (3, 900), (4, 900), (5, 901), (6, 950)] {
            add(&mut waits, ticket, since);
        }
        let mut turn = 0;
        assert_eq!((due(&waits, &mut turn), turn), (vec![1, 2, 3, 4], 0));
        (7..5_000).for_each(|ticket| add(&mut waits, ticket, 999));
        assert_eq!((due(&waits, &mut turn), turn), (vec![1, 2, 3, 4], 0));
        waits.remove(LockTicket(2));
        assert_eq!(due(&waits, &mut turn), [1, 3, 4]);
        assert!(waits.visited.get() < 30);
    }
}
