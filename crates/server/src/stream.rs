//! The bytes of one connection: its socket, what has arrived, and what is to be sent.
//!
//! Owns: framing with limits, buffers and their memory, encryption. Never: knows messages by their meaning.
//!
//! Invariants: a message is at most [`MOST_MESSAGE_BYTES`] long, and a buffer never grows before the bytes are there that it grows for; a
//! connection that waits for its client holds no buffers.

use std::future::{Future, poll_fn};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::protocol::startup;
use crate::unix::{RECEIVED_BYTES, UnixSocket};

/// The longest message that is taken, in bytes. Statements, parameters and pieces of COPY are far shorter; rows of this engine are, too.
pub(crate) const MOST_MESSAGE_BYTES: usize = 64 << 20;

/// The longest message that is taken from a client that has not proved who it is.
const MOST_UNKNOWN_BYTES: usize = 16 << 10;

/// Bytes of a buffer that an idle connection may keep.
const KEPT_BYTES: usize = 512;

/// Bytes that are kept for sending before they are sent: more would only be latency, fewer would be calls of the system.
pub(crate) const SEND_BYTES: usize = 16 << 10;

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixSocket),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Socket {
    /// Notes that it is the client's turn.
    fn has_sent(&mut self) -> io::Result<()> {
        match self {
            Socket::Unix(socket) => socket.has_sent(),
            Socket::Tcp(_) | Socket::Tls(_) => Ok(()),
        }
    }

    /// Appends what has arrived; returns how much that is, which is nothing at the end.
    fn poll_receive(&mut self, cx: &mut Context<'_>, arrived: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        match self {
            Socket::Tcp(stream) => poll_receive(stream, cx, arrived),
            Socket::Unix(socket) => socket.poll_receive(cx, arrived),
            Socket::Tls(stream) => poll_receive(stream, cx, arrived),
        }
    }

    /// Sends bytes; returns how many were.
    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Socket::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Socket::Unix(socket) => socket.poll_send(cx, bytes),
            Socket::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    /// Sends what is in buffers of its own.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Unix(_) => Poll::Ready(Ok(())),
            Socket::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    /// Tells the other end that nothing more is sent.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Unix(socket) => Poll::Ready(socket.shut_down()),
            Socket::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// Appends what has arrived, as [`Socket::poll_receive`] does.
fn poll_receive<S: AsyncRead + Unpin>(
    stream: &mut S,
    cx: &mut Context<'_>,
    arrived: &mut Vec<u8>,
) -> Poll<io::Result<usize>> {
    if arrived.is_empty() {
        // Few bytes come at a time from most clients: these need no buffer that grows for each of their messages.
        let mut bytes = [const { MaybeUninit::uninit() }; RECEIVED_BYTES];
        let mut read = ReadBuf::uninit(&mut bytes);
        ready!(Pin::new(stream).poll_read(cx, &mut read))?;
        arrived.extend_from_slice(read.filled());
        return Poll::Ready(Ok(arrived.len()));
    }
    arrived.reserve(RECEIVED_BYTES);
    // The future has no state of its own: it is made anew for each poll.
    pin!(stream.read_buf(arrived)).poll(cx)
}

/// The end of a connection while something was to be read or sent.
#[derive(Debug, Error)]
pub(crate) enum Broken {
    /// The socket failed, or ended in the middle of a message.
    #[error("{0}")]
    Socket(#[from] io::Error),
    /// The length of a message is none: nothing that follows can be read.
    #[error("invalid message length {0}")]
    Length(u32),
}

/// A connection's socket and buffers.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: Socket,
    /// The bytes that have arrived; messages up to `taken` have been taken.
    arrived: Vec<u8>,
    taken: usize,
    /// The bytes to be sent, whole messages; bytes up to `sent` have been.
    out: Vec<u8>,
    sent: usize,
    /// The longest message that is taken.
    most: usize,
}

impl Channel {
    pub(crate) fn new(socket: Socket) -> Channel {
        Channel { socket, arrived: Vec::new(), taken: 0, out: Vec::new(), sent: 0, most: MOST_UNKNOWN_BYTES }
    }

    /// Returns the buffer to append messages to.
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Returns true if so much is to be sent that it should be.
    pub(crate) fn is_full(&self) -> bool {
        self.out.len() - self.sent >= SEND_BYTES
    }

    /// Sends all that is to be sent.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.out.len() {
            let sent = ready!(self.socket.poll_send(cx, &self.out[self.sent..]))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += sent;
        }
        if self.sent > 0 {
            ready!(self.socket.poll_flush(cx))?;
            self.out.clear();
            self.sent = 0;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends all that is to be sent.
    pub(crate) async fn send(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_send(cx)).await
    }

    /// Sends what is left and ends the connection in an orderly way.
    pub(crate) async fn end(mut self) -> io::Result<()> {
        self.send().await?;
        poll_fn(|cx| self.socket.poll_shutdown(cx)).await
    }

    /// Takes the next message if all of it has arrived: its body replaces the content of `body`, its type is returned.
    pub(crate) fn take_message(&mut self, body: &mut Vec<u8>) -> Result<Option<u8>, Broken> {
        let Some((&tag, framed)) = self.arrived[self.taken..].split_first() else { return Ok(None) };
        let Some(content) = frame(framed, self.most)? else { return Ok(None) };
        body.clear();
        body.extend_from_slice(content);
        let length = content.len();
        self.skip(length);
        Ok(Some(tag))
    }

    /// Waits until all of the next message has arrived; false if the client has ended the connection between two messages.
    pub(crate) async fn arrival(&mut self) -> Result<bool, Broken> {
        poll_fn(|cx| {
            loop {
                if let Some((_, framed)) = self.arrived[self.taken..].split_first()
                    && frame(framed, self.most)?.is_some()
                {
                    return Poll::Ready(Ok(true));
                }
                if !ready!(self.poll_more(cx))? {
                    return Poll::Ready(self.ended().map(|()| false));
                }
            }
        })
        .await
    }

    /// Reads what has arrived meanwhile; returns true if that was anything.
    pub(crate) async fn read_at_once(&mut self) -> bool {
        let next = self.arrived[self.taken..].split_first();
        if next.is_some_and(|(_, framed)| frame(framed, self.most).is_err()) {
            // Nothing that follows can be read as messages.
            return false;
        }
        poll_fn(|cx| Poll::Ready(matches!(self.poll_more(cx), Poll::Ready(Ok(true))))).await
    }

    /// Takes the next message; `None` if the client has ended the connection between two messages.
    pub(crate) async fn message(&mut self, body: &mut Vec<u8>) -> Result<Option<u8>, Broken> {
        if self.arrival().await? { self.take_message(body) } else { Ok(None) }
    }

    /// Returns true if all of the next message has arrived.
    pub(crate) fn has_message(&self) -> bool {
        whole(&self.arrived[self.taken..], self.most).is_some()
    }

    /// Returns the next message if all of it has arrived, which stays where it is, and the buffer to append messages to.
    pub(crate) fn first_message(&mut self) -> (&mut Vec<u8>, Option<Arrived<'_>>) {
        let arrived = &self.arrived[self.taken..];
        let first = whole(arrived, self.most).map(|(tag, body)| {
            let length = 1 + LENGTH_BYTES + body.len();
            let behind = whole(&arrived[length..], self.most).map(|(tag, _)| tag);
            Arrived { tag, body, behind }
        });
        (&mut self.out, first)
    }

    /// Takes the first message, whose body has so many bytes.
    pub(crate) fn skip(&mut self, length: usize) {
        self.taken += 1 + LENGTH_BYTES + length;
    }

    /// Takes the first packet, which has no type.
    pub(crate) async fn first_packet(&mut self, body: &mut Vec<u8>) -> Result<Option<()>, Broken> {
        loop {
            if let Some(content) = frame(&self.arrived[self.taken..], startup::MOST_BYTES)? {
                body.clear();
                body.extend_from_slice(content);
                self.taken += LENGTH_BYTES + content.len();
                return Ok(Some(()));
            }
            if !poll_fn(|cx| self.poll_more(cx)).await? {
                return self.ended().map(|()| None);
            }
        }
    }

    /// Returns true if nothing has arrived that was not taken: before encryption begins it must be so, or somebody else might have
    /// put it there.
    pub(crate) fn is_drained(&self) -> bool {
        self.taken == self.arrived.len()
    }

    /// Returns true if nobody in between can read or change what is sent.
    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self.socket, Socket::Tls(_))
    }

    /// Returns true if the socket is one of TCP that is not encrypted.
    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self.socket, Socket::Tcp(_))
    }

    /// Takes messages of any length from now on: the client has proved who it is.
    pub(crate) fn lift_limit(&mut self) {
        self.most = MOST_MESSAGE_BYTES;
    }

    /// Takes the socket from the runtime that polls it, so that another one can.
    pub(crate) fn detach(self) -> io::Result<Detached> {
        let socket = match self.socket {
            Socket::Tcp(stream) => DetachedSocket::Tcp(stream.into_std()?),
            Socket::Unix(stream) => DetachedSocket::Unix(stream.into_std()?),
            Socket::Tls(_) => return Err(io::ErrorKind::Unsupported.into()),
        };
        let unsent = self.out[self.sent..].to_vec();
        Ok(Detached { socket, arrived: self.arrived[self.taken..].to_vec(), unsent, most: self.most })
    }

    /// Returns the socket, to be replaced by an encrypted one.
    pub(crate) fn into_socket(self) -> Socket {
        self.socket
    }

    fn ended(&self) -> Result<(), Broken> {
        if self.is_drained() { Ok(()) } else { Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()) }
    }

    /// Reads what has arrived; returns false if nothing more will.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        self.arrived.drain(..self.taken);
        self.taken = 0;
        if self.out.is_empty() {
            self.socket.has_sent()?;
        }
        if self.arrived.is_empty() {
            self.arrived.shrink_to(KEPT_BYTES);
            if self.out.is_empty() {
                self.out.shrink_to(KEPT_BYTES);
            }
        }
        Poll::Ready(Ok(ready!(self.socket.poll_receive(cx, &mut self.arrived))? > 0))
    }
}

/// A connection between two runtimes.
#[derive(Debug)]
pub(crate) struct Detached {
    socket: DetachedSocket,
    arrived: Vec<u8>,
    unsent: Vec<u8>,
    most: usize,
}

/// A socket between two runtimes.
#[derive(Debug)]
enum DetachedSocket {
    #[expect(clippy::disallowed_types, reason = "it is only carried: no runtime polls it on the way")]
    Tcp(std::net::TcpStream),
    Unix(UnixStream),
}

impl Detached {
    /// Hands the socket to the runtime of the calling task.
    pub(crate) fn attach(self) -> io::Result<Channel> {
        let socket = match self.socket {
            DetachedSocket::Tcp(stream) => Socket::Tcp(TcpStream::from_std(stream)?),
            DetachedSocket::Unix(stream) => Socket::Unix(UnixSocket::new(stream)?),
        };
        Ok(Channel { socket, arrived: self.arrived, taken: 0, out: self.unsent, sent: 0, most: self.most })
    }
}

/// A message that has arrived and not been taken.
pub(crate) struct Arrived<'a> {
    pub(crate) tag: u8,
    pub(crate) body: &'a [u8],
    /// The type of the message behind it, if all of that has arrived.
    pub(crate) behind: Option<u8>,
}

const LENGTH_BYTES: usize = 4;

/// Returns type and body of the message that bytes begin with; `None` if it is not all there yet, or cannot be.
fn whole(bytes: &[u8], most: usize) -> Option<(u8, &[u8])> {
    let (&tag, framed) = bytes.split_first()?;
    frame(framed, most).ok()?.map(|body| (tag, body))
}

/// Returns the content of a frame, without its length; `None` if it is not all there yet.
fn frame(bytes: &[u8], most: usize) -> Result<Option<&[u8]>, Broken> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let claimed = u32::from_be_bytes(*length);
    match (claimed as usize).checked_sub(LENGTH_BYTES) {
        Some(length) if length <= most => Ok(rest.get(..length)),
        _ => Err(Broken::Length(claimed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_whole_and_bounded() {
        assert!(matches!(frame(b"\0\0\0", 8), Ok(None)));
        assert!(matches!(frame(b"\0\0\0\x06a", 8), Ok(None)));
        assert_eq!(frame(b"\0\0\0\x06abc", 8).expect("a frame"), Some(&b"ab"[..]));
        assert_eq!(frame(b"\0\0\0\x04", 8).expect("a frame"), Some(&b""[..]));
        for length in [0_u32, 3, 13, u32::MAX] {
            let bytes = length.to_be_bytes();
            let refused = frame(&bytes, 8);
            assert!(matches!(refused, Err(Broken::Length(claimed)) if claimed == length));
        }
    }

    #[tokio::test]
    async fn messages_arrive_in_pieces_and_in_heaps() {
        let (ours, theirs) = tokio::net::UnixStream::pair().expect("sockets");
        let ours = UnixSocket::new(ours.into_std().expect("a socket")).expect("a registration");
        let mut channel = Channel::new(Socket::Unix(ours));
        channel.lift_limit();
        let bytes = [&b"Q\0\0\0\x06a\0"[..], b"S\0\0\0\x04", b"d\0\0\x40\x04", &[7; 0x4000], b"X\0"].concat();
        let writer = tokio::spawn(async move {
            for piece in bytes.chunks(3) {
                let mut rest = piece;
                while !rest.is_empty() {
                    theirs.writable().await.expect("writable");
                    match theirs.try_write(rest) {
                        Ok(written) => rest = &rest[written..],
                        Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                    }
                }
            }
        });
        let mut body = Vec::new();
        for (tag, length) in [(b'Q', 2), (b'S', 0), (b'd', 0x4000)] {
            assert_eq!(channel.message(&mut body).await.expect("a message"), Some(tag));
            assert_eq!(body.len(), length);
        }
        let torn = channel.message(&mut body).await.expect_err("it ends within a message");
        assert!(matches!(torn, Broken::Socket(error) if error.kind() == io::ErrorKind::UnexpectedEof));
        writer.await.expect("all was written");
    }
}
