//! The reasons for which a transaction does not commit, and the abort that carries one of them.
//!
//! An abort is an outcome, not an error of the engine: the reasons form a closed list, each is counted per worker, and
//! each comes with advice for the caller.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

/// The closed list of reasons for which a transaction aborts. Every abort is counted under one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum AbortReason {
    /// The procedure requested the abort.
    User,
    /// An insertion found its primary key, or the key of a unique index, taken.
    DuplicateKey,
    /// An enforced foreign key has no parent row, or a parent row still has children.
    ForeignKey,
    /// The transaction was chosen to break a cycle of transactions that waited for each other.
    Deadlock,
    /// A key is longer than the storage takes.
    KeyTooLarge,
    /// A row is larger than a node of its table takes.
    RowTooLarge,
    /// The machine, or this process's share of it, has no memory left.
    OutOfMemory,
    /// The procedure used a table or index that this database does not have.
    UnknownTable,
    /// The procedure panicked.
    Panic,
    /// The procedure gave up waiting for one of its own actions, or changed an index key it may not change.
    Misuse,
    /// Stored bytes could not be read back as a key or row.
    Corruption,
    /// The database is shutting down, or the worker that should have replied has stopped.
    ShuttingDown,
    /// The inbox of the worker was full, or transactions committed there faster than the WAL could write them.
    Overloaded,
    /// The WAL could not be written. The transaction may or may not survive, which is known when the database has been
    /// opened again; nothing can be written until then.
    NotDurable,
    /// The redo of the transaction exceeds the bound for one record of the WAL.
    TransactionTooLarge,
    /// The table or index was dropped or changed, or is about to be.
    TableChanged,
    /// A value, a column or a key does not fit the definition of its table.
    InvalidValue,
    /// Rows that an optimistic transaction has read were changed before it could commit.
    Validation,
    /// Another instance of the deployment, which has a part of the data, cannot be reached.
    Unreachable,
    /// The only instance that the transaction has changed was lost while it committed there. The transaction may or may not
    /// survive, which is known when that instance is back.
    OutcomeUnknown,
}

/// Advice to the caller of an aborted transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Advice {
    /// Run the transaction again: the request itself is valid.
    Retry,
    /// The request cannot succeed as it is.
    FixInput,
    /// Open the database again; start the instance of a deployment again.
    Reopen,
    /// Report it: the data or the program is broken.
    Report,
}

impl AbortReason {
    /// Every reason, in the order of their discriminants.
    pub const ALL: [AbortReason; 20] = [
        AbortReason::User,
        AbortReason::DuplicateKey,
        AbortReason::ForeignKey,
        AbortReason::Deadlock,
        AbortReason::KeyTooLarge,
        AbortReason::RowTooLarge,
        AbortReason::OutOfMemory,
        AbortReason::UnknownTable,
        AbortReason::Panic,
        AbortReason::Misuse,
        AbortReason::Corruption,
        AbortReason::ShuttingDown,
        AbortReason::Overloaded,
        AbortReason::NotDurable,
        AbortReason::TransactionTooLarge,
        AbortReason::TableChanged,
        AbortReason::InvalidValue,
        AbortReason::Validation,
        AbortReason::Unreachable,
        AbortReason::OutcomeUnknown,
    ];

    /// The reason's name in statistics and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            AbortReason::User => "user",
            AbortReason::DuplicateKey => "duplicate-key",
            AbortReason::ForeignKey => "foreign-key",
            AbortReason::Deadlock => "deadlock",
            AbortReason::KeyTooLarge => "key-too-large",
            AbortReason::RowTooLarge => "row-too-large",
            AbortReason::OutOfMemory => "out-of-memory",
            AbortReason::UnknownTable => "unknown-table",
            AbortReason::Panic => "panic",
            AbortReason::Misuse => "misuse",
            AbortReason::Corruption => "corruption",
            AbortReason::ShuttingDown => "shutting-down",
            AbortReason::Overloaded => "overloaded",
            AbortReason::NotDurable => "not-durable",
            AbortReason::TransactionTooLarge => "transaction-too-large",
            AbortReason::TableChanged => "table-changed",
            AbortReason::InvalidValue => "invalid-value",
            AbortReason::Validation => "validation",
            AbortReason::Unreachable => "unreachable",
            AbortReason::OutcomeUnknown => "outcome-unknown",
        }
    }

    /// Returns true if only the request was wrong: a transaction in which an action failed for this reason can go on
    /// from a savepoint.
    #[doc(hidden)]
    pub fn is_of_request(self) -> bool {
        matches!(
            self,
            AbortReason::DuplicateKey
                | AbortReason::ForeignKey
                | AbortReason::KeyTooLarge
                | AbortReason::RowTooLarge
                | AbortReason::OutOfMemory
                | AbortReason::UnknownTable
                | AbortReason::TransactionTooLarge
                | AbortReason::InvalidValue
        )
    }

    /// Advice to the caller.
    #[must_use]
    pub fn advice(self) -> Advice {
        match self {
            AbortReason::Deadlock | AbortReason::Overloaded | AbortReason::Validation => Advice::Retry,
            AbortReason::User
            | AbortReason::DuplicateKey
            | AbortReason::ForeignKey
            | AbortReason::KeyTooLarge
            | AbortReason::RowTooLarge
            | AbortReason::OutOfMemory
            | AbortReason::UnknownTable
            | AbortReason::Misuse
            | AbortReason::TransactionTooLarge
            | AbortReason::TableChanged
            | AbortReason::InvalidValue => Advice::FixInput,
            AbortReason::ShuttingDown
            | AbortReason::NotDurable
            | AbortReason::Unreachable
            | AbortReason::OutcomeUnknown => Advice::Reopen,
            AbortReason::Panic | AbortReason::Corruption => Advice::Report,
        }
    }
}

impl fmt::Display for AbortReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The outcome of a transaction that did not commit: nothing of it remains in the database, unless the reason says that this is not
/// known.
///
/// One word, whose drop hands it over by value: every operation returns a `Result` with an abort in it, and so small a one stays in
/// registers, where a larger one is written to memory and copied on its way to the procedure.
#[derive(Clone)]
pub struct Abort(Option<Arc<Cause>>);

/// Reason and sentence of an abort.
#[derive(PartialEq, Eq)]
struct Cause {
    reason: AbortReason,
    detail: Cow<'static, str>,
}

/// Reason and sentence of [`Abort::UNFINISHED`].
static UNFINISHED: Cause =
    Cause { reason: AbortReason::Misuse, detail: Cow::Borrowed("the procedure did not end") };

/// Number of fixed sentences that a thread keeps the cause of.
const KEPT: usize = 64;

thread_local! {
    /// The causes with fixed sentences that this thread has made, each at a place that follows from where its sentence is: an abort
    /// that comes again allocates nothing.
    static FIXED: [Cell<Option<Arc<Cause>>>; KEPT] = const { [const { Cell::new(None) }; KEPT] };
}

impl Cause {
    /// Returns the cause with a reason and a fixed sentence, the one of an earlier call if it is kept.
    fn fixed(reason: AbortReason, why: &'static str) -> Arc<Cause> {
        let is_it =
            |cause: &Arc<Cause>| cause.reason == reason && std::ptr::eq(&raw const *cause.detail, why);
        let make = || Arc::new(Cause { reason, detail: Cow::Borrowed(why) });
        let find = |fixed: &[Cell<Option<Arc<Cause>>>; KEPT]| {
            let kept = &fixed[(why.as_ptr().addr() / 8 + reason as usize) % KEPT];
            let cause = kept.take().filter(is_it).unwrap_or_else(make);
            kept.set(Some(Arc::clone(&cause)));
            cause
        };
        // A thread that ends keeps none any more.
        FIXED.try_with(find).unwrap_or_else(|_| make())
    }
}

impl Abort {
    /// Creates an abort requested by a procedure, with its reason in words.
    #[must_use]
    pub fn user(why: &'static str) -> Abort {
        Abort::because(AbortReason::User, why)
    }

    /// Placeholder for the outcome of a procedure that has not ended; it is never returned.
    #[doc(hidden)]
    pub const UNFINISHED: Abort = Abort(None);

    /// Creates an abort with a reason and a fixed sentence.
    #[cold]
    #[inline(never)]
    #[doc(hidden)]
    pub fn because(reason: AbortReason, why: &'static str) -> Abort {
        Abort(Some(Cause::fixed(reason, why)))
    }

    /// Creates an abort with a reason and a sentence made for it.
    #[cold]
    #[inline(never)]
    #[doc(hidden)]
    pub fn explained(reason: AbortReason, why: impl Into<String>) -> Abort {
        Abort(Some(Arc::new(Cause { reason, detail: Cow::Owned(why.into()) })))
    }

    /// Creates the abort of a transaction or request that arrives while the database closes.
    #[cold]
    #[doc(hidden)]
    pub fn shutting_down() -> Abort {
        Abort::because(AbortReason::ShuttingDown, "the database is shutting down; open it again to go on")
    }

    fn cause(&self) -> &Cause {
        self.0.as_deref().unwrap_or(&UNFINISHED)
    }

    /// The reason, from the closed list.
    #[must_use]
    pub fn reason(&self) -> AbortReason {
        self.cause().reason
    }

    /// The reason in one sentence.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.cause().detail
    }
}

impl PartialEq for Abort {
    fn eq(&self, other: &Abort) -> bool {
        self.cause() == other.cause()
    }
}

impl Eq for Abort {}

impl Drop for Abort {
    /// Takes the cause out, so that nothing points to where the abort is: that place can be registers.
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(cause) = self.0.take() {
            release(cause);
        }
    }
}

#[cold]
#[inline(never)]
fn release(cause: Arc<Cause>) {
    drop(cause);
}

impl fmt::Display for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "transaction aborted ({}): {}", self.reason(), self.detail())
    }
}

impl fmt::Debug for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Abort {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lists_every_reason_at_its_place() {
        for (at, reason) in AbortReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, at);
        }
    }

    #[test]
    fn aborts_with_a_fixed_sentence_share_their_cause() {
        const LOW: &str = "the balance is too low";
        let cause = |abort: &Abort| abort.0.as_ref().map(Arc::as_ptr);
        let first = Abort::user(LOW);
        assert_eq!(cause(&first), cause(&Abort::user(LOW)));
        let misuse = Abort::because(AbortReason::Misuse, LOW);
        assert_ne!(cause(&first), cause(&misuse));
        assert_ne!(first, misuse);
        assert_eq!(first, Abort::explained(AbortReason::User, LOW));
        assert_eq!(misuse.reason(), AbortReason::Misuse);
        // More sentences than are kept: each abort says its own.
        let places = "x".repeat(20 * KEPT).leak();
        let aborts: Vec<Abort> = (1..places.len()).map(|at| Abort::user(&places[at..])).collect();
        assert!(aborts.iter().enumerate().all(|(at, abort)| abort.detail().len() == places.len() - at - 1));
    }

    #[test]
    fn an_abort_is_one_word() {
        assert_eq!(size_of::<Abort>(), size_of::<usize>());
        assert_eq!(size_of::<Result<Option<u64>, Abort>>(), 2 * size_of::<usize>());
        assert_eq!(Abort::UNFINISHED.reason(), AbortReason::Misuse);
    }

    #[test]
    fn an_abort_says_its_reason_and_detail() {
        let abort = Abort::user("the balance is too low");
        assert_eq!(abort.to_string(), "transaction aborted (user): the balance is too low");
        assert_eq!(abort.reason().advice(), Advice::FixInput);
    }
}
