//! Records that clients keep.
//!
//! Owns: the entries and their assembly into transactions. Never: judges them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The state that a client found under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Found {
    /// The number of the version; 0 where there never was one.
    pub version: u64,
    /// The version that this one replaced; 0 where there was none.
    pub over: u64,
    /// The value that the index is by; none where there is no row, which is a version, too.
    pub group: Option<u32>,
}

impl Found {
    /// The state of a key that never had a row.
    pub const NEVER: Found = Found { version: 0, over: 0, group: None };
}

/// Conditions by which a read selects rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Predicate {
    /// Rows with keys from the first (included) to the second (excluded).
    Keys(u64, u64),
    /// Rows of a group, through the index.
    Group(u32),
}

impl Predicate {
    /// The row with this key.
    #[must_use]
    pub fn key(key: u64) -> Predicate {
        Predicate::Keys(key, key.saturating_add(1))
    }

    /// Returns whether the read selects a state of a key; `group` is none where there is no row.
    #[must_use]
    pub fn matches(self, key: u64, group: Option<u32>) -> bool {
        match self {
            Predicate::Keys(from, to) => group.is_some() && (from..to).contains(&key),
            Predicate::Group(asked) => group == Some(asked),
        }
    }
}

impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Predicate::Keys(from, to) if from.checked_add(1) == Some(*to) => write!(f, "key {from}"),
            Predicate::Keys(from, u64::MAX) => write!(f, "all keys from {from}"),
            Predicate::Keys(from, to) => write!(f, "keys {from} to {}", to.saturating_sub(1)),
            Predicate::Group(group) => write!(f, "group {group}"),
        }
    }
}

/// One thing that a transaction did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// Replaced one version of a row by another.
    Write {
        /// The key.
        key: u64,
        /// The state before.
        found: Found,
        /// The number of the new version: no other write has it.
        version: u64,
        /// The group of the new version; none when the row was deleted.
        group: Option<u32>,
    },
    /// Read all rows of a predicate.
    Read {
        /// The predicate.
        what: Predicate,
        /// The keys of the rows it was given, and what it found there.
        rows: Vec<(u64, Found)>,
    },
    /// Found no row, and the deletion that left none. Only this tells of a deletion whose outcome nobody was told.
    Gone {
        /// The key.
        key: u64,
        /// The state that the deletion left.
        found: Found,
    },
    /// Added a number to a list.
    Append {
        /// The list.
        list: u64,
        /// The number: no other append has it.
        number: u64,
    },
    /// Read a list.
    ReadList {
        /// The list.
        list: u64,
        /// All of it; an absent list is empty.
        numbers: Vec<u64>,
    },
}

/// Outcomes of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Reported as committed.
    Committed,
    /// Reported as aborted; it must leave no trace.
    Aborted,
    /// Reported to nobody.
    Unknown,
}

/// A record of a client. Moments are numbers that grow, the same for all clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// Written before a transaction is handed over.
    Begins {
        /// The session: a client has one transaction after the other.
        session: u64,
        /// The moment.
        at: u64,
        /// The versions it may write: keys and numbers.
        writes: Vec<(u64, u64)>,
        /// The numbers it may append: lists and numbers.
        appends: Vec<(u64, u64)>,
    },
    /// Written after its outcome was told. Without this the outcome is unknown.
    Ends {
        /// The session.
        session: u64,
        /// The moment.
        at: u64,
        /// The outcome.
        outcome: Outcome,
        /// The events of the transaction, if it was committed.
        events: Vec<Event>,
    },
}

/// A transaction as its client saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Its session.
    pub session: u64,
    /// Its number in that session, from 1.
    pub number: u64,
    /// The moment at which it was handed over.
    pub began: u64,
    /// The moment at which its client was told; `u64::MAX` if it never was.
    pub ended: u64,
    /// The outcome that its client was told.
    pub outcome: Outcome,
    /// The versions it may have written: keys and numbers.
    pub writes: Vec<(u64, u64)>,
    /// The numbers it may have appended: lists and numbers.
    pub appends: Vec<(u64, u64)>,
    /// Its events, if it was committed.
    pub events: Vec<Event>,
}

impl Transaction {
    /// A name for messages.
    pub(crate) fn name(&self) -> String {
        format!("T{}.{}", self.session, self.number)
    }
}

/// All that was written down, put together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    pub(crate) transactions: Vec<Transaction>,
}

impl History {
    /// Puts together what clients wrote down. The entries of each session must be in their order.
    ///
    /// # Errors
    /// When an end comes without a beginning.
    pub fn new(entries: impl IntoIterator<Item = Entry>) -> Result<History, String> {
        let mut sessions: BTreeMap<u64, Vec<Transaction>> = BTreeMap::new();
        for entry in entries {
            match entry {
                Entry::Begins { session, at, writes, appends } => {
                    let of_session = sessions.entry(session).or_default();
                    of_session.push(Transaction {
                        session,
                        number: of_session.len() as u64 + 1,
                        began: at,
                        ended: u64::MAX,
                        outcome: Outcome::Unknown,
                        writes,
                        appends,
                        events: Vec::new(),
                    });
                }
                Entry::Ends { session, at, outcome, events } => {
                    let last = sessions.get_mut(&session).and_then(|of_session| of_session.last_mut());
                    let last = last.filter(|last| last.ended == u64::MAX);
                    let last = last.ok_or_else(|| {
                        format!("session {session} was told of a transaction that it had not handed over")
                    })?;
                    (last.ended, last.outcome, last.events) = (at, outcome, events);
                    if outcome == Outcome::Unknown {
                        last.ended = u64::MAX;
                    }
                }
            }
        }
        let mut transactions: Vec<Transaction> = sessions.into_values().flatten().collect();
        transactions.sort_by_key(|transaction| transaction.began);
        Ok(History { transactions })
    }

    /// Number of transactions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.transactions.len()
    }

    /// Returns whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.transactions.is_empty()
    }

    /// The transactions, by the moments at which they were handed over.
    #[must_use]
    pub fn transactions(&self) -> &[Transaction] {
        &self.transactions
    }
}
