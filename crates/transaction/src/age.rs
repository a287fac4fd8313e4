//! Ages of transactions: an order by their beginning, across all workers.
//!
//! Owns: the clock that gives a transaction its age when it becomes known to others. Never: gives an age to a
//! transaction that never suspends, reads a clock of the machine (a step has its time), or shares memory between
//! workers.
//!
//! Each worker has a hybrid logical clock (Kulkarni et al. 2014): the time of its step, or one more than the newest age
//! it has given or observed, whichever is later. The step time makes ages of different workers comparable without a
//! message between them; observing ages corrects the remaining cases: processors whose counters differ, a worker that
//! gives several ages in one step, a clock that stands still.
//!
//! Invariant: a worker gives no age twice, and none that is older than one that it has given or observed. So a
//! transaction that was a victim and keeps its age is older than all transactions that begin later on workers that have
//! observed the age.

use std::cell::Cell;

use atrapos_partition::planted::{Bug, planted};
use atrapos_runtime::Ticks;

/// The time at which a transaction became known to others for the first time: the smaller, the older. Ages of one
/// worker differ; between equal ages of different workers the number of the lock owner decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Age(pub(crate) u64);

impl Age {
    /// The age of a transaction that is not known to others.
    pub(crate) const NONE: Age = Age(0);
}

/// See the module's introduction.
#[derive(Debug, Default)]
pub(crate) struct AgeClock {
    /// The newest age that was given or observed here.
    newest: Cell<u64>,
}

impl AgeClock {
    /// Gives an age to a transaction that becomes known to others in a step that began at `now`.
    pub(crate) fn next(&self, now: Ticks) -> Age {
        let now = if planted(Bug::AgesOfOneWorker) { 0 } else { now.0 };
        let next = now.max(self.newest.get().saturating_add(1));
        self.newest.set(next);
        Age(next)
    }

    /// Observes an age given by another worker: transactions that begin here from now on are younger.
    pub(crate) fn observe(&self, age: Age) {
        if !planted(Bug::AgesOfOneWorker) {
            self.newest.set(self.newest.get().max(age.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_follow_the_clock_and_differ_while_it_stands_still() {
        let clock = AgeClock::default();
        let ages = [100, 100, 100, 250, 240].map(|now| clock.next(Ticks(now)));
        assert_eq!(ages, [100, 101, 102, 250, 251].map(Age));
        assert!(AgeClock::default().next(Ticks(0)) > Age::NONE);
    }

    #[test]
    fn what_begins_is_younger_than_what_was_heard_of() {
        let (busy, quiet) = (AgeClock::default(), AgeClock::default());
        let victim = (0..1_000).map(|_| busy.next(Ticks(5))).max().unwrap_or_default();
        assert!(quiet.next(Ticks(5)) < victim);
        quiet.observe(victim);
        assert!(quiet.next(Ticks(5)) > victim);
        // An older age that is observed does not set the clock back.
        quiet.observe(Age(3));
        assert!(quiet.next(Ticks(5)) > victim);
    }
}
