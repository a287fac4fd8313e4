//! The search for transactions that wait for each other in a cycle.
//!
//! Owns: the path of one search. Never: runs twice at a time; relies on a time-out.
//!
//! A transaction waits for the holders of its lock that conflict with what it wants and, unless it upgrades, for the waiting
//! requests ahead of it that do. A transaction that blocks looks for a cycle through itself. That finds all, because
//! whatever else changes the graph (a grant, a withdrawal, an upgrade that need not wait) adds only edges towards
//! transactions that run, or that were already reached through the one withdrawn: the last transaction of a cycle
//! to block finds the cycle complete, and a complete cycle does not change by itself.
//!
//! The search follows waiting transactions depth first and keeps the latch of every queue on its path. So a cycle that it
//! closes is a real one at that moment, none of its members can be granted anything before the youngest has been withdrawn,
//! and what the path refers to is alive. Only one search runs at a time, and nobody else waits for a latch while it
//! holds one, so the latches themselves cannot be in a cycle.
//!
//! Most waits are short ones for a transaction that runs. [`holders_wait`] rules those out under a single latch: a cycle
//! leaves the queue through one of its holders, which waits elsewhere. The fence before it orders two transactions that block at
//! the same time: at least one of them sees that the other waits.

use super::LockManager;
use super::queue::{Latched, Wakes};
use super::request::{Owner, Request};
use crate::planted::{Bug, planted};
use crate::primitives::{Ordering, fence, lock};

/// Returns true if a holder of the lock for which the owner waits in the bucket waits itself: only then can there be a cycle.
pub(super) fn holders_wait(manager: &LockManager, owner: &Owner, bucket: u32) -> bool {
    if !planted(Bug::BlockedWithoutFence) {
        fence(Ordering::SeqCst);
    }
    let _latched = manager.latch(bucket);
    let Some(request) = owner.waits_with(bucket) else { return false };
    let mut holders = request.queue().granted();
    holders.any(|holder| !std::ptr::eq(holder, request) && holder.owner().waits_in().is_some())
}

/// Breaks all cycles through the owner, which waits in the bucket. Returns the number of victims.
pub(super) fn break_cycles(manager: &LockManager, owner: &Owner, bucket: u32, wakes: &mut Wakes) -> u64 {
    let mut victims = 0;
    let mut searches = lock(&manager.searches);
    loop {
        *searches += 1;
        let mut search =
            Search { manager, start: owner, number: *searches, latched: Vec::new(), path: Vec::new() };
        if !search.finds_cycle_from(owner, bucket) {
            return victims;
        }
        search.abort_youngest(wakes);
        victims += 1;
    }
}

/// One search, with the latches of all queues on its path.
struct Search<'a> {
    manager: &'a LockManager,
    start: &'a Owner,
    number: u64,
    latched: Vec<(u32, Latched<'a>)>,
    /// The transactions on the path, each with its bucket.
    path: Vec<(*const Owner, u32)>,
}

impl Search<'_> {
    /// Follows a transaction that seemed to wait in the bucket. Returns true if the path has come back to the start; the path
    /// and its latches are kept then.
    fn finds_cycle_from(&mut self, owner: &Owner, bucket: u32) -> bool {
        let new = !self.latched.iter().any(|(latched, _)| *latched == bucket);
        if new {
            self.latched.push((bucket, self.manager.latch(bucket)));
        }
        if let Some(request) = owner.waits_with(bucket) {
            self.path.push((owner, bucket));
            if self.finds_cycle_behind(request) {
                return true;
            }
            self.path.pop();
        }
        if new {
            self.latched.pop();
        }
        false
    }

    /// Follows those for whom a request waits, whose latch is held.
    fn finds_cycle_behind(&mut self, request: &Request) -> bool {
        let queue = request.queue();
        let wanted = request.wanted.get();
        let upgrades = !request.granted.get().is_none();
        for holder in queue.granted() {
            let waits_for = holder.granted.get().conflicts(wanted)
                || (!upgrades && holder.wanted.get().conflicts(wanted));
            if waits_for && !std::ptr::eq(holder, request) && self.leads_back(holder.owner()) {
                return true;
            }
        }
        if upgrades || planted(Bug::QueueNotSearched) {
            return false;
        }
        for ahead in queue.waiting().take_while(|ahead| !std::ptr::eq(*ahead, request)) {
            if ahead.wanted.get().conflicts(wanted) && self.leads_back(ahead.owner()) {
                return true;
            }
        }
        false
    }

    fn leads_back(&mut self, owner: &Owner) -> bool {
        if std::ptr::eq(owner, self.start) {
            return true;
        }
        // A transaction from which this search has found no way back has none by another way either.
        if owner.searched.swap(self.number, Ordering::Relaxed) == self.number {
            return false;
        }
        owner.waits_in().is_some_and(|bucket| self.finds_cycle_from(owner, bucket))
    }

    /// Withdraws the request of the youngest transaction of the cycle that the path is.
    fn abort_youngest(&self, wakes: &mut Wakes) {
        // SAFETY: an owner on the path waits in a queue whose latch is held: its agent is alive.
        let youth = |(owner, _): &&(*const Owner, u32)| unsafe { (**owner).youth() };
        let victim = if planted(Bug::OldestIsVictim) {
            self.path.iter().min_by_key(youth)
        } else {
            self.path.iter().max_by_key(youth)
        };
        let Some((owner, bucket)) = victim else { return };
        // SAFETY: as above.
        let request = unsafe { (**owner).waits_with(*bucket) };
        let latched = self.latched.iter().find(|(latched, _)| latched == bucket);
        if let (Some(request), Some((_, latched))) = (request, latched) {
            latched.withdraw(request, wakes);
        }
    }
}
