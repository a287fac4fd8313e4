//! The side of an instance that others connect to.
//!
//! Owns: the sockets that it listens on, and the guests that have not finished their handshake. Never: lets one guest wait for
//! another: all of them advance as their greetings arrive, and those who say nothing are dropped in time. Invariant: whatever
//! a guest does, the listener goes on.

use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::AsFd;
use rustix::io::Errno;

use crate::Channel;
use crate::directory;
use crate::error::{Attempt, ChannelError};
use crate::handshake::{Guest, Host, Line, Progress};
use crate::hello::{DeploymentId, Hello, InstanceId};
use crate::secret::Secret;
use crate::tcp::{self, TcpServer};
use crate::watcher::Watcher;

/// The patience with a guest in its handshake, unless told otherwise.
const GUEST_PATIENCE: Duration = Duration::from_secs(5);
/// Guests at a time; one more takes the place of the oldest.
const GUESTS_MAX: usize = 256;
/// Sentences that are kept for [`Listener::take_refusals`].
const REFUSALS_MAX: usize = 64;

/// Where and as whom to listen.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// The directory of the deployment. Made if it is not there; it must be the user's alone.
    pub directory: PathBuf,
    /// The deployment that the directory belongs to, and all who are accepted.
    pub deployment: DeploymentId,
    /// The number of this instance.
    pub instance: InstanceId,
    /// Workers of this instance, numbered from 0.
    pub workers: u16,
    /// Address to listen on for TCP, if at all. Port 0 is any that is free.
    pub tcp: Option<SocketAddr>,
    /// The secret that those who connect by TCP must know. Without one, TCP is for this machine only.
    pub secret: Option<Secret>,
    /// The time for which a guest may be silent in its handshake.
    pub patience: Duration,
    /// The watcher of this process.
    pub watcher: Watcher,
}

impl ListenOptions {
    /// Listens within a machine.
    #[must_use]
    pub fn new(
        directory: impl Into<PathBuf>,
        deployment: DeploymentId,
        instance: InstanceId,
        workers: u16,
        watcher: Watcher,
    ) -> Self {
        let directory = directory.into();
        let patience = GUEST_PATIENCE;
        Self { directory, deployment, instance, workers, tcp: None, secret: None, patience, watcher }
    }
}

/// An end of a new link.
pub struct Accepted {
    /// Who has connected to whom.
    pub hello: Hello,
    /// The end of the link for the worker that the hello is to.
    pub channel: Box<dyn Channel>,
}

impl std::fmt::Debug for Accepted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accepted").field("hello", &self.hello).finish_non_exhaustive()
    }
}

/// What accepts links for an instance.
pub struct Listener {
    unix: UnixListener,
    tcp: Option<TcpServer>,
    guests: Vec<Guest>,
    accepted: Vec<Accepted>,
    refusals: Vec<ChannelError>,
    patience: Duration,
    host: Host,
    socket_path: PathBuf,
    /// The lock on the instance's number.
    claim: File,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("socket", &self.socket_path).finish_non_exhaustive()
    }
}

impl Listener {
    /// Listens from now on.
    ///
    /// # Errors
    /// If the directory is not this user's alone, belongs to another deployment, or has a living instance of this number; if TCP
    /// would be open to other machines without what that takes; if the system refuses a call.
    pub fn bind(options: ListenOptions) -> Result<Self, ChannelError> {
        let ListenOptions { directory, deployment, instance, workers, tcp, secret, patience, watcher } =
            options;
        if let Some(address) = tcp {
            tcp::check_exposure(address, secret.as_ref())?;
        }
        directory::prepare(&directory, deployment)?;
        let socket_path = directory::socket_path(&directory, instance)?;
        let claim = directory::claim(&directory, instance)?;
        // Whoever has left it is dead, or it would hold the claim.
        match fs::remove_file(&socket_path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(ChannelError::io(format!("remove {}", socket_path.display()), error));
            }
            _ => {}
        }
        let name = format!("listen on {}", socket_path.display());
        let unix = UnixListener::bind(&socket_path).attempt(&name)?;
        // Nobody else could reach it meanwhile: the directory is closed.
        fs::set_permissions(&socket_path, Permissions::from_mode(0o600)).attempt(&name)?;
        unix.set_nonblocking(true).attempt(&name)?;
        let tcp = tcp.map(|address| TcpServer::bind(address, secret.as_ref())).transpose()?;
        let host = Host { deployment, instance, workers, secret, watcher };
        let (guests, accepted, refusals) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { unix, tcp, guests, accepted, refusals, patience, host, socket_path, claim })
    }

    /// The address that TCP listens on, if it does.
    #[must_use]
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().and_then(|tcp| tcp.listener().local_addr().ok())
    }

    /// Waits until a link is established, or the time is up.
    ///
    /// # Errors
    /// If the system refuses a call, for instance for want of descriptors. The listener may be asked again.
    pub fn accept(&mut self, timeout: Duration) -> Result<Option<Accepted>, ChannelError> {
        let deadline = Instant::now() + timeout;
        loop {
            if !self.accepted.is_empty() {
                return Ok(Some(self.accepted.remove(0)));
            }
            let expired = Instant::now() >= deadline;
            self.wait(if expired { Instant::now() } else { deadline })?;
            self.admit()?;
            self.advance();
            if expired && self.accepted.is_empty() {
                return Ok(None);
            }
        }
    }

    /// Why guests were turned away since this was asked last. Only the latest are kept.
    pub fn take_refusals(&mut self) -> Vec<ChannelError> {
        std::mem::take(&mut self.refusals)
    }

    /// Sleeps until somebody connects or says something, or until a moment.
    fn wait(&self, until: Instant) -> Result<(), ChannelError> {
        let until =
            self.guests.iter().map(|guest| guest.expires).min().map_or(until, |first| first.min(until));
        let left = until.saturating_duration_since(Instant::now());
        let mut fds = vec![PollFd::new(&self.unix, PollFlags::IN)];
        fds.extend(
            self.tcp.iter().map(|tcp| PollFd::from_borrowed_fd(tcp.listener().as_fd(), PollFlags::IN)),
        );
        fds.extend(self.guests.iter().map(|guest| PollFd::from_borrowed_fd(guest.fd(), PollFlags::IN)));
        match rustix::event::poll(&mut fds, Some(&timespec(left))) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(ChannelError::io("wait for others to connect", error)),
        }
    }

    /// Lets those in who have connected.
    fn admit(&mut self) -> Result<(), ChannelError> {
        while let Some((socket, _)) = accepted(self.unix.accept())? {
            let user = rustix::net::sockopt::socket_peercred(&socket).map(|peer| peer.uid);
            if user == Ok(rustix::process::geteuid()) {
                self.add_guest(Line::Unix(socket.into(), Vec::new()));
            }
        }
        let tcp = self.tcp.take();
        let admitted = tcp.iter().try_for_each(|tcp| self.admit_tcp(tcp));
        self.tcp = tcp;
        admitted
    }

    fn admit_tcp(&mut self, tcp: &TcpServer) -> Result<(), ChannelError> {
        while let Some((socket, _)) = accepted(tcp.listener().accept())? {
            // A connection that has ended already cannot be set up.
            match tcp.transport(socket.into()) {
                Ok(transport) => self.add_guest(Line::Tcp(transport)),
                Err(error) => self.note(error),
            }
        }
        Ok(())
    }

    fn add_guest(&mut self, line: Line) {
        if self.guests.len() == GUESTS_MAX {
            self.guests.remove(0);
            self.note(ChannelError::Refused("too many who connect at a time say nothing".into()));
        }
        self.guests.push(Guest::new(line, Instant::now() + self.patience));
    }

    /// Takes what the guests say, and drops those who have said nothing for too long.
    fn advance(&mut self) {
        for guest in std::mem::take(&mut self.guests) {
            match guest.advance(&self.host) {
                Progress::Waits(guest) if guest.expires > Instant::now() => self.guests.push(guest),
                Progress::Waits(_) => self.note(ChannelError::Unreachable(format!(
                    "somebody has connected to {} and not said for {:?} who it is",
                    self.host.instance, self.patience
                ))),
                Progress::Accepted(accepted) => self.accepted.push(accepted),
                Progress::Refused(error) => self.note(error),
            }
        }
    }

    fn note(&mut self, refusal: ChannelError) {
        if self.refusals.len() == REFUSALS_MAX {
            self.refusals.remove(0);
        }
        self.refusals.push(refusal);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The next instance of this number removes what is left, and a lock ends with its process.
        let _removed = fs::remove_file(&self.socket_path);
        // Said explicitly, because a process that is being started may have a copy of the descriptor for a moment.
        let _released = self.claim.unlock();
    }
}

/// The connection that was accepted, unless there is none, or it has ended already.
fn accepted<T>(result: std::io::Result<T>) -> Result<Option<T>, ChannelError> {
    match result {
        Ok(connection) => Ok(Some(connection)),
        Err(error) => match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted => Ok(None),
            _ => Err(ChannelError::io("accept a connection", error)),
        },
    }
}

/// The duration as the system takes it.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}
