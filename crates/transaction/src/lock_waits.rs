//! Who waits for a lock on one worker: the requests in the queues of its lock tables, by ticket and by transaction.
//!
//! A request is here from the moment it is queued until its task has seen what became of it, or its transaction has ended. Those
//! that are queued are kept in the order of their tickets, which is that of their arrival: the few that are looked into at a
//! time are found without visiting the others.

use std::collections::{BTreeSet, HashMap};

use atrapos_partition::abort::AbortReason;
use atrapos_partition::partition::PartitionId;
use atrapos_runtime::{TaskId, Ticks};
use atrapos_storage::lock::{LockTarget, LockTicket, TxnId};
use rustc_hash::FxBuildHasher;

/// What became of a queued lock request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockWaitState {
    /// It waits.
    Queued,
    /// It has the lock.
    Granted,
    /// The partition was split, merged or moved: the data is to be looked for again.
    Moved,
    /// Taken out of the queue: the transaction is to abort for this reason.
    Refused(AbortReason),
}

/// A queued lock request of a task on this worker.
#[derive(Debug)]
pub struct LockWaitEntry {
    /// The transaction that waits.
    pub owner: TxnId,
    /// The partition.
    pub place: PartitionId,
    /// What it wants to lock.
    pub(crate) target: LockTarget,
    /// The task that goes on afterwards.
    pub task: TaskId,
    /// Changed by [`LockWaits::settle`].
    pub state: LockWaitState,
    /// When it began to wait.
    pub(crate) since: Ticks,
    /// Where the transaction's branch notes the lock.
    pub held: usize,
}

/// See the module's introduction.
#[derive(Debug, Default)]
pub struct LockWaits {
    by_ticket: HashMap<u64, LockWaitEntry, FxBuildHasher>,
    /// Mostly one ticket per transaction: it waits in several places only when a phase of it does.
    by_owner: HashMap<TxnId, Vec<u64>, FxBuildHasher>,
    /// The tickets of those that are queued.
    queued: BTreeSet<u64>,
    /// Requests that `due` has looked at.
    #[cfg(test)]
    visited: std::cell::Cell<usize>,
}

/// Which requests are to be looked into.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Due {
    /// Their owners.
    pub(crate) owners: Vec<TxnId>,
    /// The ticket after which the turn goes on.
    pub(crate) turn: u64,
}

impl LockWaits {
    /// Whether nobody waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.by_ticket.is_empty()
    }

    /// Somebody begins to wait.
    pub(crate) fn insert(&mut self, ticket: LockTicket, wait: LockWaitEntry) {
        self.by_owner.entry(wait.owner).or_default().push(ticket.0);
        if wait.state == LockWaitState::Queued {
            self.queued.insert(ticket.0);
        }
        self.by_ticket.insert(ticket.0, wait);
    }

    /// A wait is over.
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

    /// The wait with this ticket.
    pub fn get(&self, ticket: LockTicket) -> Option<&LockWaitEntry> {
        self.by_ticket.get(&ticket.0)
    }

    /// Notes what became of a request.
    pub fn settle(&mut self, ticket: LockTicket, state: LockWaitState) {
        debug_assert!(state != LockWaitState::Queued, "a request is queued once");
        if let Some(wait) = self.by_ticket.get_mut(&ticket.0) {
            wait.state = state;
            self.queued.remove(&ticket.0);
        }
    }

    /// Of the requests that were queued `after` ago or before, as of `now`: the `few` oldest and, where there are more than
    /// twice as many, `few` of the others, in turn after ticket `turn`. All of them otherwise. Visits a few more than it
    /// chooses, however many there are.
    pub(crate) fn due(&self, now: Ticks, after: Ticks, turn: u64, few: usize) -> Due {
        let is_due = |ticket: &u64| {
            #[cfg(test)]
            self.visited.set(self.visited.get() + 1);
            now.0 >= self.by_ticket[ticket].since.0 + after.0
        };
        // Those behind one that is not due came later still.
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

    /// All requests, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (LockTicket, &LockWaitEntry)> {
        self.by_ticket.iter().map(|(ticket, wait)| (LockTicket(*ticket), wait))
    }

    /// The branch of `owner` has lost the accesses noted at `places` (ascending): the others move up.
    pub fn move_up(&mut self, owner: TxnId, places: &[usize]) {
        let Some(tickets) = self.by_owner.get(&owner) else { return };
        for ticket in tickets {
            if let Some(wait) = self.by_ticket.get_mut(ticket) {
                wait.held -= places.partition_point(|place| *place < wait.held);
            }
        }
    }

    /// The requests of one transaction.
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
            place: PartitionId { table: TableId(0), partition: 0 },
            target: LockTarget::Key(atrapos_storage::KeyBuf::new()),
            task: TaskId::NONE,
            state: LockWaitState::Queued,
            since: Ticks(since),
            held: 0,
        };
        waits.insert(LockTicket(ticket), wait);
    }

    /// The tickets that are due at time 1000, after a wait of 100.
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
        // Everybody has had a turn, once.
        assert!(seen[3..].iter().all(|times| *times == 1));
        // Then it begins again, and goes on from one that is gone.
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
