//! The side of an instance that connects to others.
//!
//! Owns: the way to another instance's address, again and again until it is there. Never: checks who answers (`handshake`).

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::directory;
use crate::error::{Attempt, ChannelError};
use crate::handshake::{Caller, Line};
use crate::hello::Hello;
use crate::link::RING_BYTES_DEFAULT;
use crate::listener::timespec;
use crate::secret::Secret;
use crate::tcp;
use crate::watcher::Watcher;
use crate::{Channel, ChannelKind};

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(5);

/// The way to another instance.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// The directory of the deployment.
    pub directory: PathBuf,
    /// The address on which the other instance listens for TCP; needed for that kind only.
    pub tcp: Option<SocketAddr>,
    /// The secret that both must know if the connection is TCP.
    pub secret: Option<Secret>,
    /// Bytes of a ring of shared memory, for each way: a power of two.
    pub ring_bytes: usize,
    /// The watcher of this process.
    pub watcher: Watcher,
}

impl ConnectOptions {
    /// The way within a machine.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>, watcher: Watcher) -> Self {
        let directory = directory.into();
        Self { directory, tcp: None, secret: None, ring_bytes: RING_BYTES_DEFAULT, watcher }
    }
}

/// Connects to the end that the hello is to, and gets the other end of the link. While the other instance is not there, tries
/// again until the deadline.
///
/// # Errors
/// If the other instance refuses, cannot be reached or does not answer until the deadline, or speaks nonsense.
pub fn connect(
    options: &ConnectOptions,
    hello: Hello,
    deadline: Instant,
) -> Result<Box<dyn Channel>, ChannelError> {
    loop {
        let obstacle = match attempt(options, hello, deadline) {
            Err(Failure::TryAgain(obstacle)) => obstacle,
            Err(Failure::Final(error)) => return Err(error),
            Ok(channel) => return Ok(channel),
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ChannelError::Unreachable(format!(
                "{} cannot be reached by {} in time: {obstacle}; see whether it runs",
                hello.to.instance, hello.kind
            )));
        }
        thread::sleep(PAUSE.min(left));
    }
}

/// Why an attempt came to nothing.
enum Failure {
    /// The other instance is not there yet, or has ended meanwhile.
    TryAgain(String),
    Final(ChannelError),
}

impl From<ChannelError> for Failure {
    fn from(error: ChannelError) -> Self {
        match error {
            ChannelError::Gone(obstacle) => Self::TryAgain(obstacle),
            error => Self::Final(error),
        }
    }
}

fn attempt(options: &ConnectOptions, hello: Hello, deadline: Instant) -> Result<Box<dyn Channel>, Failure> {
    let line = match hello.kind {
        ChannelKind::Tcp => line_tcp(options, hello, deadline)?,
        ChannelKind::Shm | ChannelKind::Unix | ChannelKind::Pipe => line_unix(options, hello)?,
    };
    let mut caller =
        Caller::greet(line, hello, options.ring_bytes, options.secret.as_ref(), &options.watcher)?;
    while !caller.advance()? {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::TryAgain("it does not answer".into()));
        }
        let mut fds = [PollFd::from_borrowed_fd(caller.fd(), PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&timespec(left))) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Failure::Final(ChannelError::io("wait for an answer", error))),
        }
    }
    Ok(caller.finish()?)
}

fn line_unix(options: &ConnectOptions, hello: Hello) -> Result<Line, Failure> {
    directory::check_identity(&options.directory, hello.deployment)?;
    let path = directory::socket_path(&options.directory, hello.to.instance)?;
    let name = format!("connect to {}", path.display());
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).attempt(&name)?;
    let address = SocketAddrUnix::new(&path).attempt(&name)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) => Ok(Line::Unix(socket, Vec::new())),
        // No file, a file that nobody listens to, one that many are connecting to.
        Err(error @ (Errno::NOENT | Errno::CONNREFUSED | Errno::AGAIN | Errno::INTR)) => {
            Err(Failure::TryAgain(format!("nobody answers at {} ({error})", path.display())))
        }
        Err(error) => Err(Failure::Final(ChannelError::io(name, error))),
    }
}

fn line_tcp(options: &ConnectOptions, hello: Hello, deadline: Instant) -> Result<Line, Failure> {
    let Some(address) = options.tcp else {
        return Err(Failure::Final(ChannelError::Refused(format!(
            "no TCP address of {} is given: give its host and port, or choose another channel",
            hello.to.instance
        ))));
    };
    // A time-out of zero is refused.
    let left = deadline.saturating_duration_since(Instant::now()).max(PAUSE);
    let socket = match TcpStream::connect_timeout(&address, left) {
        Ok(socket) => OwnedFd::from(socket),
        Err(error) if retryable(error.kind()) => {
            return Err(Failure::TryAgain(format!("nobody answers at {address} ({error})")));
        }
        Err(error) => return Err(Failure::Final(ChannelError::io(format!("connect to {address}"), error))),
    };
    Ok(Line::Tcp(tcp::transport(socket, options.secret.as_ref())?))
}

fn retryable(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::TimedOut
            | ErrorKind::WouldBlock
            | ErrorKind::Interrupted
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
    )
}
