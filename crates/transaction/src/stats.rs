//! Counters of one worker's transactions. The worker writes them without any read-modify-write; readers fold them.

use atrapos_partition::abort::AbortReason;
use atrapos_runtime::Counter;

/// Counters of one worker. Each is written by the worker alone.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct EngineStats {
    /// Transactions committed.
    pub(crate) committed: Counter,
    /// Transactions aborted, by reason.
    pub(crate) aborted: [Counter; AbortReason::ALL.len()],
    /// Attempts repeated after a deadlock.
    pub(crate) retried: Counter,
    /// Transactions held back before they began.
    pub(crate) held_back: Counter,
    /// Actions run by direct calls.
    pub(crate) local_actions: Counter,
    /// Actions sent to other workers.
    pub(crate) remote_actions: Counter,
    /// Locks entered in lock tables.
    pub(crate) locks_entered: Counter,
    /// Requests that waited.
    pub(crate) lock_waits: Counter,
    /// Look-ups made together with others.
    pub(crate) interleaved: Counter,
    /// Requests forwarded to their homes.
    pub(crate) forwarded: Counter,
    /// Actions forwarded to the workers to which their data has moved.
    pub(crate) passed_on: Counter,
    /// Ends of transactions forwarded.
    pub(crate) ends_passed_on: Counter,
    /// Direct transactions that gave up, and began again with a footprint.
    pub(crate) given_up: Counter,
    /// Partitions lent to other workers.
    pub(crate) lent: Counter,
    /// Recalls of lent partitions.
    pub(crate) recalled: Counter,
    /// Transactions begun where their data is lent.
    pub(crate) in_place: Counter,
    /// Accesses to shared system state at the beginnings and ends of transactions.
    pub(crate) central_accesses: Counter,
    /// Pages brought from another memory node.
    pub(crate) relocated_pages: Counter,
}

/// Counts of events since the database was opened, of one worker or summed over several.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Statistics {
    /// Transactions committed (with their home on the worker).
    pub committed: u64,
    /// Transactions aborted, by reason, in the order of [`AbortReason::ALL`].
    pub aborted: [u64; AbortReason::ALL.len()],
    /// Attempts repeated after a deadlock; each such attempt is also counted under its abort reason.
    pub retried: u64,
    /// Transactions and attempts [held back](crate::admission) before they began, since deadlocks were frequent or many waited for locks.
    #[serde(default)]
    pub held_back: u64,
    /// Actions that ran as direct calls on the home worker.
    pub local_actions: u64,
    /// Actions that were sent to another worker.
    pub remote_actions: u64,
    /// Locks entered in lock tables: none for transactions that never suspend.
    pub locks_entered: u64,
    /// Lock requests that had to wait.
    pub lock_waits: u64,
    /// First accesses that were looked up together with those of other transactions.
    pub interleaved: u64,
    /// Requests that went to another worker to run there.
    pub forwarded: u64,
    /// Actions that arrived at a worker whose partition had moved to another one, and were forwarded.
    pub passed_on: u64,
    /// Direct transactions that gave up for a lock or data of another worker, and began again: each counts among the others once.
    pub given_up: u64,
    /// Times that a partition of a [shared](crate::lending) table was lent to another worker.
    #[serde(default)]
    pub lent: u64,
    /// Times that a lent partition was recalled for a write, or for another change of it.
    #[serde(default)]
    pub recalled: u64,
    /// Transactions that only read and were begun where their data is [lent](crate::lending), instead of being forwarded to its owner.
    #[serde(default)]
    pub in_place: u64,
    /// Accesses to lists of transactions, number sources and state locks that workers share: none by default, five for each
    /// transaction if all are [central](crate::central).
    pub central_accesses: u64,
    /// Pages that were brought to the memory node of the worker to which their partition has moved.
    #[serde(default)]
    pub relocated_pages: u64,
}

impl EngineStats {
    /// Reads the counters.
    pub fn read(&self) -> Statistics {
        Statistics {
            committed: self.committed.get(),
            aborted: std::array::from_fn(|at| self.aborted[at].get()),
            retried: self.retried.get(),
            held_back: self.held_back.get(),
            local_actions: self.local_actions.get(),
            remote_actions: self.remote_actions.get(),
            locks_entered: self.locks_entered.get(),
            lock_waits: self.lock_waits.get(),
            interleaved: self.interleaved.get(),
            forwarded: self.forwarded.get(),
            passed_on: self.passed_on.get(),
            given_up: self.given_up.get(),
            lent: self.lent.get(),
            recalled: self.recalled.get(),
            in_place: self.in_place.get(),
            central_accesses: self.central_accesses.get(),
            relocated_pages: self.relocated_pages.get(),
        }
    }
}

impl Statistics {
    /// Number of transactions aborted for `reason`.
    #[must_use]
    pub fn aborted_for(&self, reason: AbortReason) -> u64 {
        self.aborted[reason as usize]
    }

    /// Number of transactions aborted for any reason.
    #[must_use]
    pub fn aborted_total(&self) -> u64 {
        self.aborted.iter().sum()
    }

    /// Combines two sets of counters field by field.
    fn zip(&self, other: &Statistics, with: impl Fn(u64, u64) -> u64) -> Statistics {
        Statistics {
            committed: with(self.committed, other.committed),
            aborted: std::array::from_fn(|at| with(self.aborted[at], other.aborted[at])),
            retried: with(self.retried, other.retried),
            held_back: with(self.held_back, other.held_back),
            local_actions: with(self.local_actions, other.local_actions),
            remote_actions: with(self.remote_actions, other.remote_actions),
            locks_entered: with(self.locks_entered, other.locks_entered),
            lock_waits: with(self.lock_waits, other.lock_waits),
            interleaved: with(self.interleaved, other.interleaved),
            forwarded: with(self.forwarded, other.forwarded),
            passed_on: with(self.passed_on, other.passed_on),
            given_up: with(self.given_up, other.given_up),
            lent: with(self.lent, other.lent),
            recalled: with(self.recalled, other.recalled),
            in_place: with(self.in_place, other.in_place),
            central_accesses: with(self.central_accesses, other.central_accesses),
            relocated_pages: with(self.relocated_pages, other.relocated_pages),
        }
    }

    /// The sum of two workers' counters.
    #[must_use]
    pub fn plus(&self, other: &Statistics) -> Statistics {
        self.zip(other, |a, b| a + b)
    }

    /// The difference to `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Statistics) -> Statistics {
        self.zip(earlier, u64::wrapping_sub)
    }
}
