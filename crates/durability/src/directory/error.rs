//! Errors of a database directory, each one sentence that names the file and the cure.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Reasons for which a database directory could not be created, opened, or brought to a new state.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// The file layer refused.
    #[error("cannot {operation} {}: {source}; put that right and open the database again", file.display())]
    Io {
        /// The file or directory.
        file: PathBuf,
        /// The operation that failed, as a verb.
        operation: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The path has no database.
    #[error("{} holds no database (it has no MANIFEST); create one there or give the path of one", path.display())]
    Missing {
        /// The directory.
        path: PathBuf,
    },
    /// A creation was cut off before anything could be stored.
    #[error("the creation of a database in {} was cut off and nothing was stored in it; create it again", path.display())]
    UnfinishedCreation {
        /// The directory.
        path: PathBuf,
    },
    /// A backup was cut off.
    #[error("{} holds an unfinished backup; remove it and make the backup again", path.display())]
    UnfinishedBackup {
        /// The directory.
        path: PathBuf,
    },
    /// A database is where a new one should go.
    #[error("{} holds a database already; open it, or create the new one elsewhere", path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// The directory of a new database contains files of something else.
    #[error("{} is not empty (it has `{found}`); give the path of an empty directory, or of one that does not exist", path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
        /// The first thing found in it.
        found: String,
    },
    /// Another process, or this one, has it open.
    #[error("{} is open in {}; close it there first", path.display(), holder(*pid))]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The process that has it, if the lock file tells.
        pid: Option<u32>,
    },
    /// The format is of a later version.
    #[error("{} was written by a newer atrapos (format {version}, this one knows up to {known}); use that", file.display())]
    Newer {
        /// The file.
        file: PathBuf,
        /// The version in the file.
        version: u32,
        /// The newest version this build can read.
        known: u32,
    },
    /// Bytes are not what was written.
    #[error("{} is damaged at byte {offset}: {what}; restore the database from a backup", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The offset at which the damage was noticed.
        offset: u64,
        /// The contradiction found.
        what: String,
    },
    /// The manifest to be published contradicts itself; nothing was written.
    #[error("the manifest for {} was not published, because {what}; this is a fault of the program, please report it", path.display())]
    Invalid {
        /// The directory.
        path: PathBuf,
        /// The contradiction.
        what: String,
    },
    /// An earlier publication failed, so that what is on disk is not known.
    #[error("an earlier change of {} failed, so its state is not known; close the database and open it again", path.display())]
    Stopped {
        /// The manifest file.
        path: PathBuf,
    },
    /// The path cannot be that of a database directory.
    #[error("`{}` cannot be a database directory, because {what}; give another path", path.display())]
    BadPath {
        /// The path.
        path: PathBuf,
        /// The contradiction found.
        what: &'static str,
    },
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

impl DirectoryError {
    /// Wraps an error of the file layer.
    pub(crate) fn io(file: &Path, operation: &'static str) -> impl FnOnce(io::Error) -> DirectoryError {
        let file = file.to_owned();
        move |source| DirectoryError::Io { file, operation, source }
    }
}
