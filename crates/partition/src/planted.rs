//! The planted bugs by which the tests show that they can fail.
//!
//! Owns: the list of deliberate mistakes, the switch that turns one of them on for the current thread (for a
//! `Simulation`, which runs on its caller's thread) or for a whole process, and ways to damage a database at rest.
//! Never: changes anything in a build without debug assertions (a release), where `planted` is a constant and folds away.
//!
//! Invariant: each bug and each kind of damage has a test that is shown to notice it (`tests/it/planted.rs`).

#[cfg(debug_assertions)]
mod damage;

use atrapos_storage::lock::{LockMode, LockOutcome, LockTable, LockTarget, LockTicket, TxnId};

/// One deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A transaction that suspends does not enter what it has touched at home in the lock tables.
    FootprintNotEntered,
    /// Scans take no locks on their ranges.
    ScanNotLocked,
    /// An abort does not put back the rows of the second table.
    UndoSkipsSecondTable,
    /// A deletion, or a change that makes a row shorter, does not set aside what putting the row back may take.
    NothingSetAside,
    /// An abort releases its locks first and puts the rows back some time later.
    LocksReleasedBeforeUndo,
    /// A shared request waits for those who hold a lock, but not for those who waited before it.
    SharedPassesWaiter,
    /// Who asks for a lock waits for those who asked before it, even if they wait for it.
    QueueOrderKept,
    /// Nobody looks for cycles of waiting transactions.
    NoDeadlockProbe,
    /// A deletion leaves the row's index entries behind.
    EntryLeftBehind,
    /// A change of a row does not enter it in its indexes anew.
    EntryNotAdded,
    /// Foreign keys are checked while entries of indexes are still being changed, by the order of tables and keys.
    ChecksAmongChanges,
    /// The redo of what a transaction changed on other workers is left out of its record.
    RedoElsewhereLost,
    /// A commit reads the epoch before it has its buffer: the epoch may be sealed by the time the record is there.
    EpochReadBeforeLock,
    /// Callers are told before their transactions are durable.
    ToldBeforeSync,
    /// Readers are told what they have read before it is durable.
    ReaderToldEarly,
    /// A flusher leaves out the last record of a frame.
    LastRecordSkipped,
    /// A flusher with nothing to write ends when the WAL is closed, whatever the others still have to write.
    FlusherEndsEarly,
    /// Replay takes no notice of versions.
    VersionsIgnored,
    /// A checkpoint removes segments that it does not replace.
    SegmentRemovedEarly,
    /// A checkpoint takes rows as they are, those of unfinished transactions too.
    CheckpointOfUnfinished,
    /// A checkpoint without a WAL takes rows as they happen to be, although nothing will repair it.
    SnapshotNotHeld,
    /// A worker that has passed on data of a transaction does not pass on its end.
    EndNotPassedOn,
    /// A partition goes to another worker without the locks that are held on it.
    LocksLeftBehind,
    /// A partition goes to another worker without what would undo the changes of unfinished transactions.
    UndoLeftBehind,
    /// A partition goes to another worker, which takes everything in it for durable.
    NewestNotInherited,
    /// Who waits for a lock of a partition that goes to another worker is not woken.
    WaitersLeftBehind,
    /// What the engine asks of a worker on its own behalf waits in the clients' inbox.
    JobInInbox,
    /// A rollback to a savepoint leaves the redo of what it undoes in the transaction's record.
    UndoneRedoKept,
    /// A rollback to a savepoint does not reach what has gone from one participant to another.
    RollbackNotPassedOn,
    /// The state of a transaction that has ended is used again while tasks that run its actions have it.
    SharedStateReused,
    /// A statement that drops or changes a table does not wait for the transactions that have used it.
    TableNotDrained,
    /// The transactions that fill a new index take no locks on the rows that they read.
    FillNotLocked,
    /// The definition of an index is written before its entries are durable.
    IndexBeforeItsEntries,
    /// The definition of an index is written before it is filled.
    IndexBeforeFilled,
    /// A statement is reported as done before the manifest has it.
    StatementNotSaved,
    /// A transaction's age is a count of its own worker, which others compare with theirs.
    AgesOfOneWorker,
}

/// Whether the mistake is to be made.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub const fn planted(_bug: Bug) -> bool {
    false
}

/// Whether an access takes no lock although it should ([`Bug::ScanNotLocked`]).
#[inline(always)]
pub fn leaves_unlocked(target: &LockTarget) -> bool {
    planted(Bug::ScanNotLocked) && matches!(target, LockTarget::Range { .. })
}

/// Whether a request is let through that should wait ([`Bug::SharedPassesWaiter`]): nobody holds the target exclusively,
/// although somebody waits for that.
#[inline(always)]
pub fn lets_pass(locks: &LockTable, owner: TxnId, target: &LockTarget, mode: LockMode) -> bool {
    mode == LockMode::Shared
        && planted(Bug::SharedPassesWaiter)
        && !locks.is_held_against(owner, target, LockMode::Shared)
}

/// Asks for a lock ([`LockTable::request`]), unless order is not to yield ([`Bug::QueueOrderKept`]).
#[inline(always)]
pub fn request(
    locks: &mut LockTable,
    owner: TxnId,
    target: &LockTarget,
    mode: LockMode,
    ticket: LockTicket,
    granted: &mut Vec<LockTicket>,
) -> LockOutcome {
    if planted(Bug::QueueOrderKept) {
        return locks.request_in_order(owner, target, mode, ticket);
    }
    locks.request(owner, target, mode, ticket, granted)
}

#[cfg(debug_assertions)]
pub use switched::{plant_everywhere, planted, with};

#[cfg(debug_assertions)]
pub use damage::{Damage, damage_partition};

#[cfg(debug_assertions)]
mod switched {
    use std::cell::Cell;
    use std::sync::OnceLock;

    use super::Bug;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// The mistake that all threads of the process make.
    static EVERYWHERE: OnceLock<Bug> = OnceLock::new();

    /// Whether this thread makes the mistake now.
    #[inline]
    pub fn planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug) || EVERYWHERE.get() == Some(&bug)
    }

    /// Has the mistake made by everything in this process from now on: for processes that are made to be killed. Only the
    /// first call counts.
    pub fn plant_everywhere(bug: Bug) {
        let _ = EVERYWHERE.set(bug);
    }

    /// Runs `run` with the mistake made by everything that happens on this thread.
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
}
