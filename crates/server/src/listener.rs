//! Sockets that listen.
//!
//! Owns: binding them, and taking connections off them. Never: reads or writes a connection.

use std::fs::{File, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::handshake::Peer;
use crate::server::{self, ServerError, ServerOptions, Shared};
use crate::shutdown::Phase;
use crate::stream::Socket;
use crate::unix::UnixSocket;

/// The port of PostgreSQL, by which sockets in directories are named if there is no other.
pub(crate) const PORT: u16 = 5432;

/// The pause after a connection could not be taken: the process has no file descriptor left, say.
const PAUSE: Duration = Duration::from_millis(50);

/// The time without a byte after which a connection is probed, and the time after which one whose probes are not answered is closed:
/// its transaction holds locks.
const PROBE_AFTER: Duration = Duration::from_secs(60);
const PROBE_EVERY: Duration = Duration::from_secs(10);
const PROBES: u32 = 6;

/// A socket that listens.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener, SocketAddr),
    /// A socket at a path; true if it is the owner's.
    Unix(UnixListener, PathBuf, bool),
    /// The socket of `/metrics` and `/health`.
    Http(TcpListener),
}

/// Binds all sockets of a server.
pub(crate) async fn bind(options: &ServerOptions) -> Result<Vec<Listener>, ServerError> {
    let mut listeners = Vec::new();
    for address in &options.listen {
        let failed = |error| ServerError::Listen { at: address.to_string(), error };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        listeners.push(Listener::Tcp(listener, bound));
    }
    let port = match listeners.first() {
        Some(Listener::Tcp(_, bound)) => bound.port(),
        _ => PORT,
    };
    let name = format!(".s.PGSQL.{port}");
    for (directory, private) in [(&options.socket_directory, false), (&options.private_directory, true)] {
        let Some(directory) = directory else { continue };
        let path = directory.join(&name);
        let listener = bind_in(directory, &name, private)
            .await
            .map_err(|error| ServerError::Listen { at: path.display().to_string(), error })?;
        listeners.push(Listener::Unix(listener, path, private));
    }
    if let Some(address) = options.http {
        let bound = TcpListener::bind(address).await;
        let failed = |error| ServerError::Listen { at: address.to_string(), error };
        listeners.push(Listener::Http(bound.map_err(failed)?));
    }
    Ok(listeners)
}

/// Binds a socket in a directory, where one of a server that is gone may lie.
async fn bind_in(directory: &Path, name: &str, private: bool) -> io::Result<UnixListener> {
    // The path of a socket has 107 bytes at most. This one is short, however deep the directory lies.
    let opened = File::open(directory)?;
    let path = &short_path(&opened, name);
    match UnixStream::connect(path).await {
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AddrInUse, "another server listens there")),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path)?,
        // Nothing is there, or binding says what is.
        Err(_) => {}
    }
    let listener = UnixListener::bind(path)?;
    // Who may connect is a matter of authentication, or of the directory if it is the owner's.
    std::fs::set_permissions(path, Permissions::from_mode(if private { 0o600 } else { 0o777 }))?;
    Ok(listener)
}

/// Returns a short path of a file in a directory, which is valid as long as the directory is open here.
pub(crate) fn short_path(directory: &File, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", directory.as_raw_fd()))
}

/// Takes connections until the server ends.
pub(crate) async fn accept(shared: Arc<Shared>, listener: Listener) {
    let mut phase = shared.phase.clone();
    loop {
        let accepted = tokio::select! {
            accepted = accept_one(&listener) => accepted,
            _ = phase.wait_for(|phase| *phase == Phase::Ending) => return,
        };
        match accepted {
            Ok(Some((socket, peer))) => {
                tokio::spawn(server::serve(Arc::clone(&shared), socket, peer));
            }
            Ok(None) => {}
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Takes a connection; `None` if it is not wanted, or gone already.
async fn accept_one(listener: &Listener) -> io::Result<Option<(Socket, Peer)>> {
    match listener {
        // Its connections are no clients' (`http`).
        Listener::Http(_) => Ok(None),
        Listener::Tcp(listener, _) => {
            let (stream, address) = listener.accept().await?;
            let prepared = prepare(&stream).is_ok();
            Ok(prepared.then(|| (Socket::Tcp(stream), Peer::Network(address.ip().to_canonical()))))
        }
        Listener::Unix(listener, _, private) => {
            let (stream, _) = listener.accept().await?;
            let peer = match (private, stream.peer_cred()) {
                (false, _) => Peer::Local,
                (true, Ok(user)) if is_owner(user.uid()) => Peer::Owner,
                (true, _) => return Ok(None),
            };
            Ok(Some((Socket::Unix(UnixSocket::new(stream.into_std()?)?), peer)))
        }
    }
}

/// Returns true for the user who runs the server, and for root, whom nothing stops anyway.
fn is_owner(user: u32) -> bool {
    user == rustix::process::geteuid().as_raw() || user == 0
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    // Answers are sent when they are whole: the system needs not wait for more of them.
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PROBE_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, PROBES)?;
    Ok(())
}
