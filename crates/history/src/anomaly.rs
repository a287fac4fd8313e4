//! What can be wrong with a history, in words.
//!
//! Owns: the kinds of anomalies. Never: looks for one.

/// What is wrong with a history. Transactions are named by session and number: `T3.14` is the 14th of session 3.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Anomaly {
    /// Somebody saw what an aborted transaction wrote (G1a).
    #[error(
        "G1a, an aborted read: {reader} saw version {version:#x} of key {key}, which {writer} wrote, and {writer} aborted"
    )]
    AbortedRead {
        /// Who saw it.
        reader: String,
        /// Who wrote it.
        writer: String,
        /// Where.
        key: u64,
        /// What.
        version: u64,
    },
    /// Somebody saw what its writer wrote over before it committed (G1b).
    #[error(
        "G1b, an intermediate read: {reader} saw version {version:#x} of key {key}, which {writer} replaced itself before it \
         committed"
    )]
    IntermediateRead {
        /// Who saw it.
        reader: String,
        /// Who wrote it.
        writer: String,
        /// Where.
        key: u64,
        /// What.
        version: u64,
    },
    /// Somebody saw what nobody wrote.
    #[error("an invented row: {reader} saw version {version:#x} of key {key}, which nobody wrote there")]
    Invented {
        /// Who saw it.
        reader: String,
        /// Where.
        key: u64,
        /// What.
        version: u64,
    },
    /// A row says something else than its writer wrote.
    #[error("a garbled row: {reader} saw {seen} where {writer} wrote {written}")]
    Garbled {
        /// Who saw it.
        reader: String,
        /// Who wrote it.
        writer: String,
        /// What was seen.
        seen: String,
        /// What was written.
        written: String,
    },
    /// Two transactions replaced the same version: one of the two did not see the other one's.
    #[error("a lost update: {first} and {second} both replaced version {version:#x} of key {key}")]
    LostUpdate {
        /// One writer.
        first: String,
        /// The other one.
        second: String,
        /// Where.
        key: u64,
        /// What both replaced.
        version: u64,
    },
    /// The versions of a key say that each came before the others.
    #[error("the versions of key {key} have no first one: {versions}")]
    CyclicVersions {
        /// Where.
        key: u64,
        /// The versions and their writers.
        versions: String,
    },
    /// A transaction does not see its own writes.
    #[error("{reader} contradicts itself: {what}")]
    Internal {
        /// Who.
        reader: String,
        /// What it saw.
        what: String,
    },
    /// There is no order in which the transactions could have run one after the other.
    #[error("{kind}: there is no order in which these transactions could have run:\n{cycle}")]
    Cycle {
        /// The name of the anomaly: G0, G1c, G-single, G2-item or G2; with `-realtime` if it takes the order in time.
        kind: String,
        /// The smallest cycle that was found: each transaction, and why it comes before the next.
        cycle: String,
    },
    /// What the check of the lists found.
    #[error("{kind}, found by adya:\n{explanation}")]
    Lists {
        /// The name of the anomaly.
        kind: String,
        /// Which transactions, and why.
        explanation: String,
    },
}
