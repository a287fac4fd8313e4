//! Planted bugs, which prove that the tests can fail; pauses, which make rare interleavings frequent; and places at which a test
//! may do something in the middle of a transaction.
//!
//! Owns: the list of deliberate mistakes and the switch that turns one of them on: for a thread, and for the daemon of a log that
//! it starts, in builds with debug assertions; for a process, in loom models. Never: changes anything in a release build, where
//! [`planted`] is a constant, and pauses and places are empty.
//!
//! Invariant: each bug has a test or a model that detects it (`tests/it`, or a `loom_models.rs`, which names the bug to a child
//! process by the variable `ATRAPOS_PLANTED_BUG`).

use crate::primitives::Ordering;

/// One deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    // The tree, and the engine with optimistic concurrency control.
    /// A commit does not validate the leaves that were searched: phantoms.
    NodesNotValidated,
    /// A commit does not validate the rows that were read: lost updates, write skew.
    ReadsNotValidated,
    /// A reader does not look at the TID again after it has copied a row: torn rows.
    TornReads,
    /// A reader, and a commit, take a record that is no longer in its tree for the newest state of its key.
    ObsoleteIgnored,
    /// An insertion into a leaf that the transaction has searched itself takes over the newest version of the leaf, although
    /// others have changed it between.
    OwnInsertHidesOthers,
    /// An abort leaves the rows that it has inserted.
    InsertsKept,
    /// A reader of a row leaves out the fence between the copy and the second look at the TID.
    CopyFenceLeftOut,
    /// A writer of a row leaves out the fence between the lock and the copy.
    OverwriteFenceLeftOut,
    /// A commit leaves out the fence between its locks and its validation.
    CommitFenceLeftOut,
    /// A search does not look at the version of a leaf again.
    LeafNotValidated,
    /// A descent does not look at the version of an inner node again.
    InnerNotValidated,
    /// A leaf is removed although somebody has inserted into it after it was found empty.
    EmptinessNotChecked,

    // The lock manager.
    /// A conflicting request passes over inherited locks instead of invalidating them.
    InheritedKept,
    /// A waiter does not mark the locks that it waits for: their owners pass them on without looking for it.
    HoldersNotMarked,
    /// A protected gap does not hold up insertions into it.
    InsertIntoProtected,
    /// A new request is granted before a conflicting one that has come earlier.
    WaiterOvertaken,
    /// An upgrade waits for the requests that have queued behind its own lock.
    UpgradeQueuesLast,
    /// Cycles are not searched for when an upgrade has to wait.
    UpgradeNotSearched,
    /// Waiting requests ahead in the queue are not followed in the search for cycles.
    QueueNotSearched,
    /// The oldest transaction of a cycle is aborted.
    OldestIsVictim,
    /// When a victim leaves a queue, those behind it are not looked at.
    VictimHoldsUpQueue,
    /// When a lock is released, those that wait for it are not looked at.
    ReleaseForgetsWaiters,
    /// A waiter goes to sleep without noticing that the answer has come. (loom)
    ParkOverwrites,
    /// A waiter that sleeps is answered and not woken. (loom)
    ParkedNotWoken,
    /// A lock is passed on with a relaxed store: who invalidates it does not see what was done under it. (loom)
    PassedOnRelaxed,
    /// A passed-on lock is taken without a compare-and-swap. (loom)
    ReclaimedBlindly,
    /// A blocked transaction does not fence between its waiting and its look at the others. (loom)
    BlockedWithoutFence,

    // The engine with strict two-phase locking.
    /// A scan locks the keys that it finds, and no gaps.
    ScansWithoutGaps,
    /// An insertion does not look again for the next key when its record is in the tree.
    InsertionNotLookedAtAgain,
    /// An insertion lets others insert into the gap below its key before it has looked for its next key again.
    NewGapShared,
    /// A removed row leaves the tree at once, before its transaction commits.
    RemovedAtOnce,
    /// A key that is found absent is not locked.
    AbsentNotLocked,
    /// An abort leaves rows as they are.
    UndoLeftOut,

    // Tables in domains, which have the three before as well.
    /// Locks are given up when their operation ends.
    LocksNotKept,
    /// Replaced rows of which a worker does not know yet do not travel with the commit.
    ReplacedLeftBehind,

    // The log.
    /// The daemon writes what is reserved, whether it is filled or not.
    HolesWritten,
    /// The log goes on after a write that has failed.
    FailureForgotten,
    /// The checksum of a record does not depend on its position.
    PositionNotChecked,
    /// Records are acknowledged, and their space given away again, before they are written.
    ToldBeforeWrite,
    /// The leader of a group opens its slot again although members still look for their position. (loom)
    SlotReopenedEarly,
    /// The position of a group is published with a relaxed store. (loom)
    BasePublishedRelaxed,
    /// A member of a group that joins does not count. (loom)
    MemberNotCounted,

    // Engines that write a log.
    /// A commit is logged after others may see it.
    LoggedAfterInstall,
    /// A commit is acknowledged before its record is durable.
    CommitToldEarly,
    /// A transaction that has only read is acknowledged before what it has read is durable.
    ReaderToldEarly,
    /// The last frame of a file counts although a part of it is missing.
    TornTailAccepted,

    // Transactions over several instances.
    /// A transaction commits whatever the votes of its parts are.
    VotesNotHeeded,
    /// A part with changes installs and unlocks its rows when it has voted, before the decision.
    LocksReleasedWithVote,
    /// A part in another instance does not validate what it has read.
    PartNotValidated,
    /// The parts in other instances are not told of an abort.
    AbortNotSent,
    /// A part votes before it is durable that it is prepared.
    VoteBeforeSync,
    /// The parts are told of a commit before the decision is durable.
    OutcomeToldEarly,
    /// Recovery forgets transactions in doubt.
    InDoubtForgotten,
    /// A part that has only read votes before what it has read is durable.
    PartToldEarly,
    /// A transaction that aborts for its own reasons is told before what it has read in another instance is durable.
    AbortToldEarly,
    /// A home forgets a decision when it has told it, and not when the parts have it durably.
    ForgottenWhenTold,
    /// A transaction waits for older ones, too, where deadlocks are prevented.
    YoungerWaits,
    /// A transaction that gets a stronger lock lets younger ones wait for it.
    YoungerKeepsWaiting,
}

/// A place within a transaction at which a test may do something, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Between the first look of an insertion for the next key and its record in the tree.
    BetweenLooks,
    /// Before the changes of a commit are logged.
    BeforeLog,
    /// Between the votes of the parts of a transaction and the decision.
    BeforeDecision,
}

/// The ordering at a place where a bug may be planted: the sound one, or relaxed.
#[inline(always)]
pub(crate) fn ordering(bug: Bug, sound: Ordering) -> Ordering {
    if planted(bug) { Ordering::Relaxed } else { sound }
}

#[cfg(all(not(debug_assertions), not(loom)))]
mod switch {
    use super::{Bug, Place};

    /// Returns true if the bug is planted: never, in a release build.
    #[inline(always)]
    pub const fn planted(_bug: Bug) -> bool {
        false
    }

    /// Returns `run`: there are no bugs in a release build that it could inherit.
    #[inline(always)]
    pub(crate) fn inherited<R>(run: impl FnOnce() -> R) -> impl FnOnce() -> R {
        run
    }

    /// Lets other threads run now and then; does nothing in a release build.
    #[inline(always)]
    pub(crate) fn pause() {}

    /// Runs what a test does at this place; there is nothing in a release build.
    #[inline(always)]
    pub(crate) fn at(_place: Place) {}

    /// Runs `run`: there are no pauses in a release build.
    pub fn with_pauses<R>(_seed: u64, run: impl FnOnce() -> R) -> R {
        run()
    }
}

#[cfg(loom)]
mod switch {
    use super::Bug;

    /// Returns true if this process was started to run with the bug.
    pub fn planted(bug: Bug) -> bool {
        static PLANTED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
        let planted = PLANTED.get_or_init(|| std::env::var("ATRAPOS_PLANTED_BUG").ok());
        planted.as_deref().is_some_and(|name| name == format!("{bug:?}"))
    }

    /// Returns `run`: the whole process has the bug.
    pub(crate) fn inherited<R>(run: impl FnOnce() -> R) -> impl FnOnce() -> R {
        run
    }

    /// Does nothing: loom switches threads itself.
    #[inline(always)]
    pub(crate) fn pause() {}
}

#[cfg(all(debug_assertions, not(loom)))]
mod switch {
    use std::cell::Cell;

    use super::{Bug, Place};

    /// Function that a test runs at a place.
    type Act = (Place, Box<dyn FnOnce()>);

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
        static PAUSES: Cell<Option<u64>> = const { Cell::new(None) };
        static AT: Cell<Option<Act>> = const { Cell::new(None) };
    }

    /// One in so many pauses gives way to another thread.
    const PAUSE_EVERY: u64 = 32;

    /// Returns true if the bug is planted in this thread now.
    #[inline]
    pub fn planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }

    /// Runs `run` with the bug planted in this thread.
    pub fn with<R>(bug: Bug, run: impl FnOnce() -> R) -> R {
        struct Reset;
        impl Drop for Reset {
            fn drop(&mut self) {
                PLANTED.set(None);
            }
        }
        PLANTED.set(Some(bug));
        let _reset = Reset;
        run()
    }

    /// Returns `run` with the bug of this thread planted in it as well, on whatever thread it runs.
    pub(crate) fn inherited<R>(run: impl FnOnce() -> R) -> impl FnOnce() -> R {
        let bug = PLANTED.get();
        move || match bug {
            Some(bug) => with(bug, run),
            None => run(),
        }
    }

    /// Lets other threads run now and then, in threads that [`with_pauses`] has made pause.
    #[inline]
    pub(crate) fn pause() {
        let Some(mut state) = PAUSES.get() else { return };
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        PAUSES.set(Some(state));
        if state.is_multiple_of(PAUSE_EVERY) {
            std::thread::yield_now();
        }
    }

    /// Runs `run` with pauses in this thread, at moments that follow from the seed.
    pub fn with_pauses<R>(seed: u64, run: impl FnOnce() -> R) -> R {
        struct Reset;
        impl Drop for Reset {
            fn drop(&mut self) {
                PAUSES.set(None);
            }
        }
        PAUSES.set(Some(seed | 1));
        let _reset = Reset;
        run()
    }

    /// Runs what a test does at this place of a transaction of this thread, once.
    pub(crate) fn at(place: Place) {
        match AT.take() {
            Some((wanted, act)) if wanted == place => act(),
            other => AT.set(other),
        }
    }

    /// Runs `run`, and `act` within it when the thread first comes to the place.
    pub fn with_at<R>(place: Place, act: impl FnOnce() + 'static, run: impl FnOnce() -> R) -> R {
        AT.set(Some((place, Box::new(act))));
        run()
    }
}

#[cfg(not(loom))]
pub(crate) use switch::at;
pub use switch::planted;
#[cfg(not(loom))]
pub use switch::with_pauses;
pub(crate) use switch::{inherited, pause};
#[cfg(all(debug_assertions, not(loom)))]
pub use switch::{with, with_at};

/// Runs one model of this crate, named with its modules, in a child process with a bug planted, and expects it to fail: loom leaves
/// its state in pieces when a model does.
#[cfg(all(test, loom))]
pub(crate) fn must_fail(model: &str, bug: Bug) {
    let output = std::process::Command::new(std::env::current_exe().expect("a test knows its own path"))
        .args([model, "--exact", "--test-threads=1"])
        .env("ATRAPOS_PLANTED_BUG", format!("{bug:?}"))
        .output()
        .expect("a test starts itself");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("running 1 test"), "{model} is not a test of this binary");
    assert!(!output.status.success(), "{model} does not notice the planted bug {bug:?}");
}
