//! Errors of schema statements.

use atrapos_partition::abort::Abort;

/// Reasons for which a table, index or column was not created, changed or dropped. Nothing has changed, unless a variant says
/// otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefineError {
    /// The definition contradicts itself or another one.
    #[error("{0}")]
    Contradiction(String),
    /// A table or index has the name already.
    #[error("{0}")]
    NameTaken(String),
    /// A named table, index or column does not exist.
    #[error("{0}")]
    Unknown(String),
    /// Another definition refers to it.
    #[error("{0}")]
    InUse(String),
    /// Existing rows violate the definition.
    #[error("{0}")]
    Violated(String),
    /// Existing rows do not match the definition of their table.
    #[error("{0}")]
    Damaged(String),
    /// Transactions that use the table have not ended.
    #[error("{0}")]
    TimedOut(String),
    /// Memory is out.
    #[error("{0}")]
    OutOfMemory(String),
    /// The definitions could not be written. The next opening of the database finds out whether they are in effect.
    #[error("the definitions could not be saved: {0}; open the database again to see whether they count")]
    NotSaved(String),
    /// The database is closing, or the statement was made on a worker's thread, or one of its transactions failed.
    #[error(transparent)]
    Aborted(#[from] Abort),
}
