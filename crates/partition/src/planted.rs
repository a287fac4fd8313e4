//! Planted bugs, which prove that the tests can fail.
//!
//! Owns: the list of deliberate mistakes, the switch that turns one of them on for the current thread (for a
//! `Simulation`, which runs on its caller's thread) or for a whole process, and ways to damage a database at rest.
//! Never: changes anything in a build without debug assertions (a release), where `planted` is a constant and folds away.
//!
//! Invariant: each bug and each kind of damage has a test that detects it (`tests/it/planted.rs`).

#[cfg(debug_assertions)]
mod damage;

use atrapos_storage::lock::{LockMode, LockOutcome, LockTable, LockTarget, LockTicket, TxnId};

/// One deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A transaction that suspends does not enter its footprint at home in the lock tables.
    FootprintNotEntered,
    /// A transaction that suspends again does not enter what it has accessed since its first suspension.
    LaterFootprintNotEntered,
    /// Scans take no locks on their ranges.
    ScanNotLocked,
    /// An action that follows another on its worker runs though its row is locked.
    FollowingNotLocked,
    /// An abort does not put back the rows of the second table.
    UndoSkipsSecondTable,
    /// An abort restores only the column that an edit of a row has set last.
    EditUndoneInPart,
    /// A deletion, or a change that makes a row shorter, does not reserve the memory that its undo may need.
    NothingSetAside,
    /// An abort releases its locks first and puts the rows back some time later.
    LocksReleasedBeforeUndo,
    /// A shared request waits for the holders of a lock, but not for the requests queued before it.
    SharedPassesWaiter,
    /// A lock request waits for all earlier requests, even if they wait for its own transaction.
    QueueOrderKept,
    /// Cycles of waiting transactions are not searched for.
    NoDeadlockProbe,
    /// A deletion leaves the row's index entries behind.
    EntryLeftBehind,
    /// A change of a row does not add its new index entries.
    EntryNotAdded,
    /// Foreign keys are checked while entries of indexes are still being changed, by the order of tables and keys.
    ChecksAmongChanges,
    /// The redo of what a transaction changed on other workers is left out of its record.
    RedoElsewhereLost,
    /// A commit reads the epoch before it has its buffer: the epoch may be sealed by the time the record is there.
    EpochReadBeforeLock,
    /// Commits are acknowledged before they are durable.
    ToldBeforeSync,
    /// Read-only transactions are acknowledged before the data they have read is durable.
    ReaderToldEarly,
    /// The changes of a transaction that makes many are not noted for readers.
    ManyWritesNotNoted,
    /// A flusher leaves out the last record of a frame.
    LastRecordSkipped,
    /// A flusher with nothing to write ends when the WAL is closed, although other flushers still have records to
    /// write.
    FlusherEndsEarly,
    /// Replay ignores versions.
    VersionsIgnored,
    /// A checkpoint removes segments that it does not replace.
    SegmentRemovedEarly,
    /// A checkpoint contains uncommitted changes of unfinished transactions.
    CheckpointOfUnfinished,
    /// A checkpoint without a WAL is written without holding a snapshot, although no WAL repairs it.
    SnapshotNotHeld,
    /// A checkpoint leaves out a table that a statement has closed, although it does not replace the table.
    ClosedTableLeftOut,
    /// A worker that has sent data of a transaction on to another worker does not forward the end of the transaction.
    EndNotPassedOn,
    /// A partition moves to another worker without the locks that are held on it.
    LocksLeftBehind,
    /// A partition moves to another worker without the before-images of unfinished transactions.
    UndoLeftBehind,
    /// A partition moves to another worker, which takes all rows in it for durable.
    NewestNotInherited,
    /// Requests that wait for a lock of a partition are not woken when it moves to another worker.
    WaitersLeftBehind,
    /// A borrower gives a partition back without the locks of its readers.
    ReadersForgotten,
    /// A partition is lent before all that has been committed in it is durable.
    LentUndurable,
    /// Jobs of the engine wait in the inbox of the clients instead of the control lane.
    JobInInbox,
    /// A rollback to a savepoint leaves the redo of what it undoes in the transaction's record.
    UndoneRedoKept,
    /// A rollback to a savepoint is not forwarded to data that has moved from one participant to another.
    RollbackNotPassedOn,
    /// A direct transaction that gives up keeps its changes.
    GivenUpNotUndone,
    /// The state of a transaction that has ended is reused while tasks that run its actions still refer to it.
    SharedStateReused,
    /// A statement that drops or changes a table does not wait for the transactions that have used it.
    TableNotDrained,
    /// The transactions that fill a new index take no locks on the rows that they read.
    FillNotLocked,
    /// Definitions are written before what was committed earlier is durable, such as the entries of a new index.
    DefinedBeforeCommits,
    /// The definition of an index is written before it is filled.
    IndexBeforeFilled,
    /// A foreign key is added without a look at the rows that are there.
    ForeignKeyNotChecked,
    /// A statement is acknowledged before it is saved in the manifest.
    StatementNotSaved,
    /// Ages of transactions come from counters of single workers, which are not comparable.
    AgesOfOneWorker,
    /// A transaction that has ended stays in the shared list of active transactions.
    EndStaysListed,
    /// A shared counter of transaction numbers is read and written in two steps.
    NumberDrawnTwice,
    /// A transaction over several instances commits without waiting for their votes.
    VotesNotAwaited,
    /// The home of a transaction decides without votes though a subordinate may be unable to make its changes.
    UncertainNotVoted,
    /// A subordinate that is told to commit at once releases its locks before it has made the changes.
    ReleasedBeforeChanged,
    /// Any first read in another instance releases its lock with the reply, though others follow.
    ReleasedBeforeLast,
    /// The last read in another instance is made though the row is locked.
    LastReadOfLocked,
    /// The subordinates of a transaction that aborts are not told.
    AbortNotSent,
    /// Rows are copied for another instance without their locks.
    CopyNotLocked,
    /// A subordinate votes before what it has prepared is durable.
    VoteBeforeSync,
    /// The outcome of a transaction is told to other instances before the decision is durable.
    DecisionToldEarly,
    /// A subordinate with changes releases its locks when it has prepared.
    PreparedNotLocked,
    /// Recovery leaves out transactions that were prepared.
    InDoubtForgotten,
    /// A checkpoint does not log again what is in doubt.
    InDoubtNotLoggedAgain,
    /// A transaction does not wait until what it has read in other instances is durable.
    RemoteReaderToldEarly,
    /// A procedure that has failed is told before what it has read in other instances is durable.
    RemoteFailureToldEarly,
    /// A worker speaks to its subordinates by whatever link there is.
    AnyLinkIsOwn,
    /// A transaction is taken for the one of an earlier incarnation of its instance that had its number.
    IncarnationIgnored,
    /// A simulated link hands out messages without looking whether one was lost, doubled or overtaken.
    WireTrusted,
}

/// Returns true if the bug is planted: never, in a release build.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub const fn planted(_bug: Bug) -> bool {
    false
}

/// Returns true if an access takes no lock although it should ([`Bug::ScanNotLocked`]).
#[inline(always)]
pub fn leaves_unlocked(target: &LockTarget) -> bool {
    planted(Bug::ScanNotLocked) && matches!(target, LockTarget::Range { .. })
}

/// Returns true if a request is granted that should wait ([`Bug::SharedPassesWaiter`]): the target is not held
/// exclusively, although an exclusive request waits.
#[inline(always)]
pub fn lets_pass(locks: &LockTable, owner: TxnId, target: &LockTarget, mode: LockMode) -> bool {
    mode == LockMode::Shared
        && planted(Bug::SharedPassesWaiter)
        && !locks.is_held_against(owner, target, LockMode::Shared)
}

/// Requests a lock by [`LockTable::request`], or without yielding of the order, for [`Bug::QueueOrderKept`].
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

    /// The bug that is planted in all threads of the process.
    static EVERYWHERE: OnceLock<Bug> = OnceLock::new();

    /// Returns true if the bug is planted in this thread now.
    #[inline]
    pub fn planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug) || EVERYWHERE.get() == Some(&bug)
    }

    /// Plants the bug in all threads of this process from now on, for processes that are made to be killed. Only the
    /// first call has an effect.
    pub fn plant_everywhere(bug: Bug) {
        let _ = EVERYWHERE.set(bug);
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
}
