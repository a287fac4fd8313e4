//! Places of sockets: in the directory of a database, and, by the number of the process, in a directory that only its user may enter.
//!
//! Owns: names, modes and checks of both. Never: accepts, or sends anything.
//!
//! Invariants: a socket has mode 0600 from the moment it is there; what others could have put there is not used. Paths may be longer than
//! an address may be (108 bytes): a socket is reached through a descriptor of its directory.

use std::fs::{self, DirBuilder, Metadata};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use thiserror::Error;

/// The name of the socket in the directory of a database.
pub(crate) const SOCKET_NAME: &str = "watch.sock";

/// The mode of a socket.
const SOCKET_MODE: u32 = 0o600;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 8;

/// The number of the next database of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A database that cannot be offered to be watched.
#[derive(Debug, Error)]
pub enum PlaceError {
    /// The directory of sockets is somebody else's, or open to others.
    #[error(
        "the directory {} may be entered by others, or is no directory of this user; remove it, or set XDG_RUNTIME_DIR to one with mode 0700",
        .0.display()
    )]
    NotPrivate(PathBuf),
    /// The system refuses.
    #[error("no socket can be made in {}: {error}", path.display())]
    System {
        /// The directory.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
}

impl PlaceError {
    pub(crate) fn system(path: &Path) -> impl Fn(io::Error) -> PlaceError {
        move |error| PlaceError::System { path: path.to_owned(), error }
    }
}

/// The files by which a socket is found. They are removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    /// The socket, and a link to it if it is elsewhere than others of this user.
    files: Vec<PathBuf>,
}

impl Place {
    /// Makes a socket for the database in this directory, or in memory.
    pub(crate) fn make(directory: Option<&Path>) -> Result<(Place, UnixListener), PlaceError> {
        let private = private_directory(&candidates())?;
        remove_dead(&private);
        let pid = std::process::id();
        let name = format!("{pid}-{}.sock", NEXT.fetch_add(1, Ordering::Relaxed));
        let entry = private.join(&name);
        let mut place = Place { files: Vec::new() };
        let Some(directory) = directory else {
            let listener = listen_in(&private, &name).map_err(PlaceError::system(&private))?;
            place.files.push(entry);
            return Ok((place, listener));
        };
        let failed = PlaceError::system(directory);
        let directory = fs::canonicalize(directory).map_err(&failed)?;
        let listener = listen_in(&directory, SOCKET_NAME).map_err(&failed)?;
        place.files.push(directory.join(SOCKET_NAME));
        remove_old(&private, &name)
            .and_then(|()| std::os::unix::fs::symlink(&place.files[0], &entry))
            .map_err(PlaceError::system(&private))?;
        place.files.push(entry);
        Ok((place, listener))
    }

    /// Returns the path of the socket.
    pub(crate) fn path(&self) -> &Path {
        &self.files[0]
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for file in &self.files {
            // One that is gone already is removed.
            let _ = fs::remove_file(file);
        }
    }
}

/// Returns the directories in which sockets of processes may be, the best first.
pub(crate) fn candidates() -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let chosen = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let of_user = chosen.into_iter().chain([PathBuf::from(format!("/run/user/{user}"))]);
    let mut all: Vec<PathBuf> = of_user.map(|path| path.join("atrapos")).collect();
    all.push(PathBuf::from(format!("/tmp/atrapos-{user}")));
    all.dedup();
    all
}

/// Makes the first of these directories that can be made, or is there, and checks that nobody else may enter it.
fn private_directory(candidates: &[PathBuf]) -> Result<PathBuf, PlaceError> {
    let mut failure = None;
    for path in candidates {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                failure = Some(PlaceError::system(path)(error));
            }
            _ if is_private(path) => return Ok(path.clone()),
            _ => return Err(PlaceError::NotPrivate(path.clone())),
        }
    }
    Err(failure.unwrap_or_else(|| PlaceError::system(Path::new("/tmp"))(ErrorKind::NotFound.into())))
}

/// Returns true for a directory of this user that nobody else may enter.
pub(crate) fn is_private(path: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    fs::symlink_metadata(path)
        .is_ok_and(|about| about.is_dir() && about.uid() == own && about.mode() & 0o077 == 0)
}

/// Returns the numbers of a process and of one of its databases that an entry is named by.
pub(crate) fn numbers_of(name: &str) -> Option<(u32, u32)> {
    let (pid, database) = name.strip_suffix(".sock")?.split_once('-')?;
    Some((pid.parse().ok()?, database.parse().ok()?))
}

/// Returns true if there is such a process.
pub(crate) fn is_running(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Removes what processes have left that ended without removing it.
fn remove_dead(private: &Path) {
    for entry in fs::read_dir(private).into_iter().flatten().flatten() {
        let numbers = entry.file_name().to_str().and_then(numbers_of);
        if numbers.is_some_and(|(pid, _)| !is_running(pid)) {
            // Another process may have removed it.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Removes the socket, or the link to one, that has this name; anything else is left, and is in the way.
fn remove_old(directory: &Path, name: &str) -> io::Result<()> {
    let path = directory.join(name);
    match fs::symlink_metadata(&path) {
        Ok(about) if about.file_type().is_socket() || about.is_symlink() => fs::remove_file(&path),
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes a socket with this name that others cannot connect to. One that is there has been left behind: a database is open once.
fn listen_in(directory: &Path, name: &str) -> io::Result<UnixListener> {
    remove_old(directory, name)?;
    let (directory, address) = address_in(directory, name)?;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Linux makes the file with the mode of the socket.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(SOCKET_MODE))?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    drop(directory);
    Ok(socket.into())
}

/// Returns the address of a socket in a directory, which is valid as long as the descriptor beside it is open.
fn address_in(directory: &Path, name: &str) -> io::Result<(OwnedFd, SocketAddrUnix)> {
    let descriptor =
        rustix::fs::open(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let address = SocketAddrUnix::new(format!("/proc/self/fd/{}/{name}", descriptor.as_raw_fd()))?;
    Ok((descriptor, address))
}

/// Connects to a socket.
pub(crate) fn connect(path: &Path) -> io::Result<UnixStream> {
    let path = fs::canonicalize(path)?;
    let (directory, name) = path.parent().zip(path.file_name()).ok_or(ErrorKind::InvalidInput)?;
    let name = name.to_str().ok_or(ErrorKind::InvalidInput)?;
    let (directory, address) = address_in(directory, name)?;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&socket, &address)?;
    drop(directory);
    Ok(socket.into())
}

/// Returns what is wrong with a socket that somebody else may have made, or may listen to.
pub(crate) fn distrust(about: &Metadata, own: u32) -> Option<Distrust> {
    let mode = about.mode() & 0o777;
    if about.uid() != own {
        return Some(Distrust::OtherUser(about.uid()));
    }
    if !about.file_type().is_socket() {
        return Some(Distrust::NoSocket);
    }
    (mode != SOCKET_MODE).then_some(Distrust::Mode(mode))
}

/// The reason for which a file is not connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Distrust {
    /// It is this other user's.
    OtherUser(u32),
    /// It is no socket.
    NoSocket,
    /// Its mode lets others in.
    Mode(u32),
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_directory_that_others_may_enter_is_refused_and_one_that_cannot_be_made_is_passed_over() {
        let parent = tempfile::tempdir().expect("a directory");
        let (nowhere, own) = (parent.path().join("no/such"), parent.path().join("own"));
        let both = [nowhere.clone(), own.clone()];
        assert_eq!(private_directory(&both).expect("the second one"), own);
        assert_eq!(private_directory(&both).expect("it is there"), own);
        fs::set_permissions(&own, Permissions::from_mode(0o755)).expect("a mode");
        assert!(matches!(private_directory(&both), Err(PlaceError::NotPrivate(path)) if path == own));
        let link = parent.path().join("link");
        std::os::unix::fs::symlink(parent.path(), &link).expect("a link");
        assert!(
            matches!(private_directory(&[link]), Err(PlaceError::NotPrivate(_))),
            "a link may be anybody's"
        );
        assert!(matches!(private_directory(&[nowhere]), Err(PlaceError::System { .. })));
    }

    #[test]
    fn a_socket_is_its_owners_from_the_beginning_however_long_its_path_is() {
        let parent = tempfile::tempdir().expect("a directory");
        let deep = parent.path().join("d".repeat(120));
        fs::create_dir(&deep).expect("a directory");
        let _first = listen_in(&deep, SOCKET_NAME).expect("a socket");
        let listener = listen_in(&deep, SOCKET_NAME).expect("one that is left behind is replaced");
        let path = deep.join(SOCKET_NAME);
        let about = fs::metadata(&path).expect("it is there");
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(distrust(&about, own), None);
        assert_eq!(distrust(&about, own + 1), Some(Distrust::OtherUser(own)));
        connect(&path).expect("it listens");
        listener.accept().expect("a connection");
        fs::set_permissions(&path, Permissions::from_mode(0o660)).expect("a mode");
        assert_eq!(distrust(&fs::metadata(&path).expect("there"), own), Some(Distrust::Mode(0o660)));
        let file = deep.join("file");
        fs::write(&file, "x").expect("a file");
        assert_eq!(distrust(&fs::metadata(&file).expect("there"), own), Some(Distrust::NoSocket));
        assert!(listen_in(&deep, "file").is_err() && file.exists(), "a file is not replaced");
    }

    #[test]
    fn what_ended_processes_left_goes_and_the_rest_stays() {
        let private = tempfile::tempdir().expect("a directory");
        let (own, other) = (format!("{}-0.sock", std::process::id()), "notes");
        // No process has a number beyond the greatest that Linux gives.
        for name in [own.as_str(), other, "4194305-0.sock"] {
            fs::write(private.path().join(name), "").expect("a file");
        }
        remove_dead(private.path());
        let mut left: Vec<_> =
            fs::read_dir(private.path()).expect("it").flatten().map(|entry| entry.file_name()).collect();
        left.sort();
        assert_eq!(left, [own.as_str(), other]);
        assert_eq!(numbers_of("12-3.sock"), Some((12, 3)));
        assert_eq!((numbers_of("12.sock"), numbers_of("x-3.sock"), numbers_of("12-3")), (None, None, None));
    }
}
