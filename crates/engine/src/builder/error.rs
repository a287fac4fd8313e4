//! Failures of opening a database.
//!
//! Owns: the description of each failure, with the remedy. Never: describes a failure of an open database.

use std::path::PathBuf;

use atrapos_durability::directory::DirectoryError;
use atrapos_durability::wal::WalError;
use atrapos_partition::schema::SchemaError;

use crate::recovery::RecoveryError;

/// Reasons for which a database could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The schema contradicts itself.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A setting makes no sense.
    #[error("{0}")]
    Setting(String),
    /// The workers could not be started.
    #[error("the workers could not be started: {0}")]
    Start(String),
    /// The database in the directory has other tables than were declared.
    #[error("the database in {} has another schema: {difference}; open it with the schema it was created with", path.display())]
    OtherSchema {
        /// The directory.
        path: PathBuf,
        /// The first difference.
        difference: String,
    },
    /// The directory has another place in a deployment than was declared.
    #[error("the database in {} {what}", path.display())]
    OtherInstance {
        /// The directory.
        path: PathBuf,
        /// The difference, and the remedy.
        what: String,
    },
    /// The directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The data in the directory cannot be recovered.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// The WAL of the new incarnation cannot be written.
    #[error(transparent)]
    Wal(#[from] WalError),
}
