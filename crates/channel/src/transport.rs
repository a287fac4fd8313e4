//! Streams of bytes: what a channel of frames reads from and writes to.
//!
//! Owns: the system calls on sockets and pipes, and which of their errors mean that the peer is gone. Never: blocks, or knows
//! what the bytes mean.

use std::mem::MaybeUninit;
use std::sync::Arc;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use crate::error::ChannelError;

/// The most descriptors that come with one message.
const PASSED_MAX: usize = 4;

/// A two-way stream of bytes.
pub(crate) trait Transport: Send {
    /// Reads what has arrived. `None` if nothing has, and zero bytes at the peer's end.
    fn read(&mut self, into: &mut [u8]) -> Result<Option<usize>, ChannelError>;

    /// Writes what there is room for, and returns how many bytes that was.
    fn write(&mut self, from: &[u8]) -> Result<usize, ChannelError>;

    /// The descriptor that tells of arrivals.
    fn input(&self) -> &Arc<OwnedFd>;

    /// The descriptor that tells of room, if it is another one.
    fn output(&self) -> Option<&Arc<OwnedFd>> {
        None
    }

    /// Returns whether there is something to read that the descriptor does not tell of.
    fn has_buffered(&self) -> bool {
        false
    }

    /// Returns whether bytes that were taken wait for room. The next write, of nothing too, moves them on.
    fn is_behind(&self) -> bool {
        false
    }

    /// Bytes that only the two ends of this connection know; none if it is not encrypted.
    fn binding(&self) -> Result<Vec<u8>, ChannelError> {
        Ok(Vec::new())
    }
}

impl Transport for Box<dyn Transport> {
    fn read(&mut self, into: &mut [u8]) -> Result<Option<usize>, ChannelError> {
        (**self).read(into)
    }

    fn write(&mut self, from: &[u8]) -> Result<usize, ChannelError> {
        (**self).write(from)
    }

    fn input(&self) -> &Arc<OwnedFd> {
        (**self).input()
    }

    fn output(&self) -> Option<&Arc<OwnedFd>> {
        (**self).output()
    }

    fn has_buffered(&self) -> bool {
        (**self).has_buffered()
    }

    fn is_behind(&self) -> bool {
        (**self).is_behind()
    }

    fn binding(&self) -> Result<Vec<u8>, ChannelError> {
        (**self).binding()
    }
}

/// A connected socket.
pub(crate) struct Socket {
    fd: Arc<OwnedFd>,
}

impl Socket {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { fd: Arc::new(fd) }
    }

    /// Receives what has arrived, without waiting.
    #[inline]
    pub(crate) fn receive(&self, into: &mut [u8]) -> Result<usize, Errno> {
        rustix::net::recv(&*self.fd, into, RecvFlags::DONTWAIT).map(|(bytes, _)| bytes)
    }

    /// Sends what there is room for, without waiting.
    #[inline]
    pub(crate) fn send(&self, from: &[u8]) -> Result<usize, Errno> {
        rustix::net::send(&*self.fd, from, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
    }
}

impl Transport for Socket {
    #[inline]
    fn read(&mut self, into: &mut [u8]) -> Result<Option<usize>, ChannelError> {
        read_result(self.receive(into))
    }

    #[inline]
    fn write(&mut self, from: &[u8]) -> Result<usize, ChannelError> {
        write_result(self.send(from))
    }

    fn input(&self) -> &Arc<OwnedFd> {
        &self.fd
    }
}

/// Two pipes, one for each way. Both descriptors are set not to block.
pub(crate) struct Pipes {
    input: Arc<OwnedFd>,
    output: Arc<OwnedFd>,
}

impl Pipes {
    pub(crate) fn new(input: OwnedFd, output: OwnedFd) -> Self {
        Self { input: Arc::new(input), output: Arc::new(output) }
    }
}

impl Transport for Pipes {
    #[inline]
    fn read(&mut self, into: &mut [u8]) -> Result<Option<usize>, ChannelError> {
        read_result(rustix::io::read(&*self.input, into))
    }

    // A Rust program ignores the signal of a pipe that nobody reads; the error is what is left.
    #[inline]
    fn write(&mut self, from: &[u8]) -> Result<usize, ChannelError> {
        write_result(rustix::io::write(&*self.output, from))
    }

    fn input(&self) -> &Arc<OwnedFd> {
        &self.input
    }

    fn output(&self) -> Option<&Arc<OwnedFd>> {
        Some(&self.output)
    }
}

#[inline]
fn read_result(result: Result<usize, Errno>) -> Result<Option<usize>, ChannelError> {
    match result {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(failure("read from a channel", error)),
    }
}

#[inline]
fn write_result(result: Result<usize, Errno>) -> Result<usize, ChannelError> {
    match result {
        Ok(bytes) => Ok(bytes),
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        Err(error) => Err(failure("write to a channel", error)),
    }
}

/// The error that a system call on a connection means.
#[cold]
pub(crate) fn failure(attempt: &str, error: Errno) -> ChannelError {
    match error {
        Errno::PIPE
        | Errno::CONNRESET
        | Errno::CONNABORTED
        | Errno::NETRESET
        | Errno::TIMEDOUT
        | Errno::HOSTUNREACH
        | Errno::NETUNREACH
        | Errno::NOTCONN => ChannelError::Gone(format!("the connection has ended ({error})")),
        _ => ChannelError::io(attempt, error),
    }
}

/// Reads from a Unix socket, and collects the descriptors that come along.
pub(crate) fn read_with_fds(
    socket: impl AsFd,
    into: &mut [u8],
    passed: &mut Vec<OwnedFd>,
) -> Result<Option<usize>, ChannelError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let result = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(into)], &mut control, flags);
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            passed.extend(fds);
        }
    }
    if passed.len() > PASSED_MAX {
        return Err(ChannelError::Nonsense(format!("it passes {} descriptors", passed.len())));
    }
    read_result(result.map(|message| message.bytes))
}

/// Writes to a Unix socket, and passes descriptors along.
pub(crate) fn write_with_fds(
    socket: impl AsFd,
    from: &[u8],
    fds: &[BorrowedFd<'_>],
) -> Result<usize, ChannelError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        let fits = control.push(SendAncillaryMessage::ScmRights(fds));
        debug_assert!(fits, "a handshake passes at most {PASSED_MAX} descriptors");
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    write_result(rustix::net::sendmsg(socket, &[IoSlice::new(from)], &mut control, flags))
}
