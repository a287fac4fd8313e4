//! TCP connections: who may listen where, and which of them are encrypted.
//!
//! Owns: the rule that a channel leaves this machine only encrypted, and among those who know the secret. Never: proves that
//! somebody knows it (`handshake`).
//!
//! With a secret, and built with the feature `tls`, a connection is encrypted on every address, so that both sides know without
//! asking. Without the feature, a secret keeps others of this machine out.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use rustix::fd::OwnedFd;

use crate::error::{Attempt, ChannelError};
use crate::secret::Secret;
#[cfg(feature = "tls")]
use crate::tls::{self, TlsServer};
use crate::transport::{Socket, Transport};

/// What accepted connections are made of.
pub(crate) struct TcpServer {
    listener: TcpListener,
    #[cfg(feature = "tls")]
    tls: Option<TlsServer>,
}

impl TcpServer {
    /// Listens, if those who may connect are kept out as they must be.
    pub(crate) fn bind(address: SocketAddr, secret: Option<&Secret>) -> Result<Self, ChannelError> {
        check_exposure(address, secret)?;
        let name = format!("listen on {address}");
        let listener = TcpListener::bind(address).attempt(&name)?;
        listener.set_nonblocking(true).attempt(&name)?;
        Ok(Self {
            listener,
            #[cfg(feature = "tls")]
            tls: secret.map(|_| TlsServer::new()).transpose()?,
        })
    }

    pub(crate) fn listener(&self) -> &TcpListener {
        &self.listener
    }

    /// The stream over a connection that was accepted.
    pub(crate) fn transport(&self, socket: OwnedFd) -> Result<Box<dyn Transport>, ChannelError> {
        set_up(&socket)?;
        let socket = Socket::new(socket);
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return Ok(Box::new(tls.accept(socket)?));
        }
        Ok(Box::new(socket))
    }
}

/// The stream over a connection that this side has made.
pub(crate) fn transport(
    socket: OwnedFd,
    secret: Option<&Secret>,
) -> Result<Box<dyn Transport>, ChannelError> {
    set_up(&socket)?;
    let socket = Socket::new(socket);
    match secret {
        #[cfg(feature = "tls")]
        Some(_) => Ok(Box::new(tls::connect(socket)?)),
        _ => Ok(Box::new(socket)),
    }
}

/// Checks that nobody on another machine can connect who does not know the secret, or read along.
pub(crate) fn check_exposure(address: SocketAddr, secret: Option<&Secret>) -> Result<(), ChannelError> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    match secret {
        None => Err(ChannelError::Refused(format!(
            "listening on {address} would let other machines in: give the deployment a shared secret, or listen on 127.0.0.1"
        ))),
        Some(_) if cfg!(feature = "tls") => Ok(()),
        Some(_) => Err(ChannelError::Refused(format!(
            "listening on {address} takes encryption, which this program was built without: \
             build it with the feature tls, or listen on 127.0.0.1"
        ))),
    }
}

/// Has messages leave at once, and a machine that has vanished noticed.
fn set_up(socket: &OwnedFd) -> Result<(), ChannelError> {
    const IDLE: Duration = Duration::from_secs(10);
    let attempt = "set up a TCP connection";
    rustix::net::sockopt::set_tcp_nodelay(socket, true).attempt(attempt)?;
    rustix::net::sockopt::set_socket_keepalive(socket, true).attempt(attempt)?;
    rustix::net::sockopt::set_tcp_keepidle(socket, IDLE).attempt(attempt)?;
    rustix::net::sockopt::set_tcp_keepintvl(socket, IDLE).attempt(attempt)
}
