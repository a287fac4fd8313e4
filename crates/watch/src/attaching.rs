//! The other end: whoever watches a database of another process.
//!
//! Owns: the ways by which one is named and found, and the reasons for which it is not. Never: shows anything.
//!
//! Invariant: what a socket of another user, or one that is open to others, says is not read.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use crate::answering::Request;
use crate::place::{self, Distrust, SOCKET_NAME};
use crate::report::Snapshot;

/// The time that an answer may take: workers that are busy with something long are asked after it.
const PATIENCE: Duration = Duration::from_secs(10);

/// The database that is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The one in this directory.
    Directory(PathBuf),
    /// One of a process.
    Process {
        /// The number of the process.
        pid: u32,
        /// The number of the database, needed if the process has several.
        database: Option<u32>,
    },
}

/// A database that cannot be watched, or not any more.
#[derive(Debug, Error)]
pub enum WatchError {
    /// There is no such process.
    #[error(
        "there is no process {0}; give the number of one that has a database open, or the directory of the database"
    )]
    NoProcess(u32),
    /// The process offers no database.
    #[error(
        "process {0} offers no database to be watched; `atrapos bench`, `atrapos serve`, `atrapos deploy` and programs that call `Watched::start` do"
    )]
    NothingOffered(u32),
    /// The process offers several databases.
    #[error("process {pid} has several databases; name one of them: {}", names(*.pid, .databases))]
    Several {
        /// The process.
        pid: u32,
        /// The numbers of its databases.
        databases: Vec<u32>,
    },
    /// There is no such directory.
    #[error("there is no directory {}; give the directory of a database that is open, or the number of a process", .0.display())]
    NoDirectory(PathBuf),
    /// No process has the database open, or none that offers it.
    #[error(
        "no process offers the database in {} to be watched; `atrapos bench --dir DIR`, `atrapos serve DIR`, `atrapos deploy --dir DIR` and programs that call `Watched::start` do",
        .0.display()
    )]
    NotOpen(PathBuf),
    /// It belongs to another user.
    #[error("{what} belongs to another user (number {user}); only that user may watch it")]
    OtherUser {
        /// The process or socket.
        what: String,
        /// The user.
        user: u32,
    },
    /// The socket is not as this library makes them.
    #[error(
        "the socket {} has mode {mode:04o} and not 0600, so others could use it; end the program that made it and start it again",
        path.display()
    )]
    OpenToOthers {
        /// The socket.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The process ended without removing its socket.
    #[error("the program that offered {0} has ended; start it again")]
    HasEnded(String),
    /// It ended while it was watched.
    #[error("the database was closed, or its program ended, while it was watched")]
    Ended,
    /// The program is of another version.
    #[error(
        "the answer of the program cannot be read ({0}); use the `atrapos` of the same version as the program"
    )]
    Unreadable(String),
    /// The system refuses.
    #[error("{what} cannot be watched: {error}")]
    System {
        /// The socket or directory.
        what: String,
        /// The reason.
        error: io::Error,
    },
}

/// Returns the names of databases of a process, as they are written.
fn names(pid: u32, databases: &[u32]) -> String {
    databases.iter().map(|database| format!("{pid}-{database}")).collect::<Vec<_>>().join(", ")
}

fn system(path: &Path) -> impl Fn(io::Error) -> WatchError {
    move |error| WatchError::System { what: path.display().to_string(), error }
}

impl Target {
    /// Reads a target as it is written: the number of a process, that and the number of a database (`1234-1`), or a directory.
    #[must_use]
    pub fn parse(text: &OsStr) -> Target {
        let numbers = text.to_str().and_then(|text| match text.split_once('-') {
            None => Some((text.parse().ok()?, None)),
            Some((pid, database)) => Some((pid.parse().ok()?, Some(database.parse().ok()?))),
        });
        match numbers {
            Some((pid, database)) => Target::Process { pid, database },
            None => Target::Directory(text.into()),
        }
    }

    /// Returns the socket.
    fn socket(&self) -> Result<PathBuf, WatchError> {
        match self {
            Target::Directory(directory) if !directory.is_dir() => {
                Err(WatchError::NoDirectory(directory.clone()))
            }
            Target::Directory(directory) => Ok(directory.join(SOCKET_NAME)),
            Target::Process { pid, database } => socket_of(*pid, *database, &place::candidates()),
        }
    }

    /// Returns the error of a socket that is not there.
    fn missing(&self) -> WatchError {
        match self {
            Target::Directory(directory) => WatchError::NotOpen(directory.clone()),
            Target::Process { pid, .. } => WatchError::NothingOffered(*pid),
        }
    }
}

/// Finds the socket of a process in the directories in which they may be.
fn socket_of(pid: u32, database: Option<u32>, directories: &[PathBuf]) -> Result<PathBuf, WatchError> {
    let about = fs::metadata(format!("/proc/{pid}")).map_err(|_| WatchError::NoProcess(pid))?;
    if about.uid() != rustix::process::geteuid().as_raw() {
        return Err(WatchError::OtherUser { what: format!("process {pid}"), user: about.uid() });
    }
    let entries = directories.iter().filter(|directory| place::is_private(directory));
    let entries = entries.flat_map(|directory| fs::read_dir(directory).into_iter().flatten().flatten());
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| match place::numbers_of(entry.file_name().to_str()?)? {
            (of, number) if of == pid => Some((number, entry.path())),
            _ => None,
        })
        .filter(|(number, _)| database.is_none_or(|database| database == *number))
        .collect();
    found.sort();
    match &*found {
        [] => Err(WatchError::NothingOffered(pid)),
        [(_, path)] => Ok(path.clone()),
        several => {
            Err(WatchError::Several { pid, databases: several.iter().map(|(number, _)| *number).collect() })
        }
    }
}

/// A database of another process that is watched.
#[derive(Debug)]
pub struct Attached {
    stream: BufReader<UnixStream>,
}

impl Attached {
    /// Finds a database and connects to it.
    ///
    /// # Errors
    /// Fails, with what to do, if there is none, or it is not one of this user alone.
    pub fn to(target: &Target) -> Result<Attached, WatchError> {
        let path = target.socket()?;
        let own = rustix::process::geteuid();
        let about = fs::metadata(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => target.missing(),
            _ => system(&path)(error),
        })?;
        let other = |user| WatchError::OtherUser { what: path.display().to_string(), user };
        match place::distrust(&about, own.as_raw()) {
            Some(Distrust::OtherUser(user)) => return Err(other(user)),
            Some(Distrust::NoSocket) => return Err(target.missing()),
            Some(Distrust::Mode(mode)) => return Err(WatchError::OpenToOthers { path, mode }),
            None => (),
        }
        let stream = place::connect(&path).map_err(|error| match error.kind() {
            ErrorKind::ConnectionRefused => WatchError::HasEnded(path.display().to_string()),
            ErrorKind::NotFound => target.missing(),
            _ => system(&path)(error),
        })?;
        let peer =
            rustix::net::sockopt::socket_peercred(&stream).map_err(|error| system(&path)(error.into()))?;
        if peer.uid != own {
            return Err(other(peer.uid.as_raw()));
        }
        stream.set_read_timeout(Some(PATIENCE)).map_err(system(&path))?;
        Ok(Attached { stream: BufReader::new(stream) })
    }

    /// Returns what the database does now, and its decisions after the one with this number. The first answer takes a quarter of a second.
    ///
    /// # Errors
    /// Fails if the database was closed, or its answer is not understood.
    pub fn snapshot(&mut self, after: u64) -> Result<Snapshot, WatchError> {
        let mut request = serde_json::to_string(&Request { after })
            .map_err(|error| WatchError::Unreadable(error.to_string()))?;
        request.push('\n');
        let mut answer = String::new();
        let sent = self.stream.get_mut().write_all(request.as_bytes());
        match sent.and_then(|()| self.stream.read_line(&mut answer)) {
            Ok(_) if !answer.ends_with('\n') => Err(WatchError::Ended),
            Ok(_) => serde_json::from_str(&answer).map_err(|error| WatchError::Unreadable(error.to_string())),
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                Err(WatchError::Ended)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                let error = io::Error::new(error.kind(), "its workers did not answer within 10 seconds");
                Err(WatchError::System { what: "the database".to_owned(), error })
            }
            Err(error) => Err(WatchError::System { what: "the database".to_owned(), error }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn numbers_are_processes_and_the_rest_are_directories() {
        let parse = |text: &str| Target::parse(OsStr::new(text));
        assert_eq!(parse("12"), Target::Process { pid: 12, database: None });
        assert_eq!(parse("12-1"), Target::Process { pid: 12, database: Some(1) });
        for directory in ["./12", "12-", "a-1", "my.db", "-1", ""] {
            assert_eq!(parse(directory), Target::Directory(directory.into()), "{directory}");
        }
    }

    #[test]
    fn one_of_several_databases_has_to_be_named_and_directories_of_others_are_not_read() {
        let private = tempfile::tempdir().expect("a directory");
        fs::set_permissions(private.path(), Permissions::from_mode(0o700)).expect("a mode");
        let pid = std::process::id();
        let directories = [private.path().to_owned()];
        let find = |database| socket_of(pid, database, &directories).map_err(|error| error.to_string());
        assert!(find(None).expect_err("none").contains("offers no database"));
        for name in [format!("{pid}-0.sock"), format!("{pid}-3.sock"), "1-0.sock".to_owned()] {
            fs::write(private.path().join(name), "").expect("a file");
        }
        let several = find(None).expect_err("two");
        assert!(several.ends_with(&format!("name one of them: {pid}-0, {pid}-3")), "{several}");
        assert_eq!(find(Some(3)).expect("it"), private.path().join(format!("{pid}-3.sock")));
        assert!(find(Some(4)).expect_err("none").contains("offers no database"));
        fs::set_permissions(private.path(), Permissions::from_mode(0o755)).expect("a mode");
        assert!(find(Some(3)).is_err(), "others could have made it");
    }
}
