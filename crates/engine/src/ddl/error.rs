//! Why a statement that defines something was refused or failed.

use atrapos_partition::abort::Abort;

/// Why a table, index or column was not created, changed or dropped. Everything is as it was, unless it says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefineError {
    /// The definition contradicts itself or another one.
    #[error("{0}")]
    Contradiction(String),
    /// A table or index has the name already.
    #[error("{0}")]
    NameTaken(String),
    /// A table, index or column that is named is not there.
    #[error("{0}")]
    Unknown(String),
    /// Something else that is defined needs it.
    #[error("{0}")]
    InUse(String),
    /// Rows that are there violate the definition.
    #[error("{0}")]
    Violated(String),
    /// Rows that are there are not what the definition of their table says.
    #[error("{0}")]
    Damaged(String),
    /// Transactions that use the table have not ended.
    #[error("{0}")]
    TimedOut(String),
    /// There is no memory for what would be made.
    #[error("{0}")]
    OutOfMemory(String),
    /// The definitions could not be written. Whether they count is known when the database has been opened again.
    #[error("the definitions could not be saved: {0}; open the database again to see whether they count")]
    NotSaved(String),
    /// The database is closing, or the statement was made on a worker's thread, or one of its transactions failed.
    #[error(transparent)]
    Aborted(#[from] Abort),
}
