//! Anomalies of a history, in words.
//!
//! Owns: the kinds of anomalies. Never: looks for one.

/// An anomaly of a history. Transactions are named by session and number: `T3.14` is the 14th of session 3.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Anomaly {
    /// A transaction saw a version that an aborted transaction wrote (G1a).
    #[error(
        "G1a, an aborted read: {reader} saw version {version:#x} of key {key}, which {writer} wrote, and {writer} aborted"
    )]
    AbortedRead {
        /// The transaction that saw it.
        reader: String,
        /// The transaction that wrote it.
        writer: String,
        /// The key.
        key: u64,
        /// The version.
        version: u64,
    },
    /// A transaction saw a version that its writer replaced before it committed (G1b).
    #[error(
        "G1b, an intermediate read: {reader} saw version {version:#x} of key {key}, which {writer} replaced itself before it \
         committed"
    )]
    IntermediateRead {
        /// The transaction that saw it.
        reader: String,
        /// The transaction that wrote it.
        writer: String,
        /// The key.
        key: u64,
        /// The version.
        version: u64,
    },
    /// A transaction saw a version that no transaction wrote.
    #[error("an invented row: {reader} saw version {version:#x} of key {key}, which nobody wrote there")]
    Invented {
        /// The transaction that saw it.
        reader: String,
        /// The key.
        key: u64,
        /// The version.
        version: u64,
    },
    /// A row differs from what its writer wrote.
    #[error("a garbled row: {reader} saw {seen} where {writer} wrote {written}")]
    Garbled {
        /// The transaction that saw it.
        reader: String,
        /// The transaction that wrote it.
        writer: String,
        /// The state that was seen.
        seen: String,
        /// The state that was written.
        written: String,
    },
    /// Two transactions replaced the same version: one of the two did not see the other one's.
    #[error("a lost update: {first} and {second} both replaced version {version:#x} of key {key}")]
    LostUpdate {
        /// One writer.
        first: String,
        /// The other one.
        second: String,
        /// The key.
        key: u64,
        /// The version that both replaced.
        version: u64,
    },
    /// The versions of a key say that each came before the others.
    #[error("the versions of key {key} have no first one: {versions}")]
    CyclicVersions {
        /// The key.
        key: u64,
        /// The versions and their writers.
        versions: String,
    },
    /// A transaction does not see its own writes.
    #[error("{reader} contradicts itself: {what}")]
    Internal {
        /// The transaction.
        reader: String,
        /// The state that it saw.
        what: String,
    },
    /// No serial order of the transactions explains the history.
    #[error("{kind}: there is no order in which these transactions could have run:\n{cycle}")]
    Cycle {
        /// The name of the anomaly: G0, G1c, G-single, G2-item or G2; with `-realtime` if it takes the order in time.
        kind: String,
        /// The smallest cycle that was found: each transaction, and why it comes before the next.
        cycle: String,
    },
    /// The finding of the check of the lists.
    #[error("{kind}, found by adya:\n{explanation}")]
    Lists {
        /// The name of the anomaly.
        kind: String,
        /// The transactions and the reason.
        explanation: String,
    },
}
