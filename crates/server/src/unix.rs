//! Unix sockets that hear of room for sending only while they wait for it.
//!
//! Owns: their registration with the runtime, receiving and sending. Never: knows what the bytes are.
//!
//! The system tells of room in a Unix socket each time that its other end has read anything, however much room there was before (over TCP, only when
//! there was none). A socket that is registered for that is so told of each answer that a client has taken, which nobody waits for. So a socket is registered for what
//! arrives, and for room, too, from a send that finds none until it is the client's turn.
//!
//! Invariant: nobody waits for what arrives while a send waits, as the registration that would wake them is replaced.

use std::io;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::task::{Context, Poll, ready};

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Bytes that are received at a time.
pub(crate) const RECEIVED_BYTES: usize = 8 << 10;

/// A connected Unix socket.
#[derive(Debug)]
pub(crate) struct UnixSocket {
    /// None once it could not be registered again.
    stream: Option<AsyncFd<UnixStream>>,
    hears_of_room: bool,
}

impl UnixSocket {
    /// Registers a socket that does not block with the runtime of the calling task.
    pub(crate) fn new(stream: UnixStream) -> io::Result<UnixSocket> {
        Ok(UnixSocket { stream: Some(registered(stream, Interest::READABLE)?), hears_of_room: false })
    }

    /// Takes the socket from its runtime.
    pub(crate) fn into_std(self) -> io::Result<UnixStream> {
        Ok(self.stream.ok_or(io::ErrorKind::NotConnected)?.into_inner())
    }

    fn stream(&self) -> io::Result<&AsyncFd<UnixStream>> {
        self.stream.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Registers it anew, for what arrives and perhaps for room. What is there already is told of at once.
    fn hear_of_room(&mut self, hears: bool) -> io::Result<()> {
        let stream = self.stream.take().ok_or(io::ErrorKind::NotConnected)?.into_inner();
        let room = hears.then_some(Interest::WRITABLE);
        let interest = room.map_or(Interest::READABLE, |room| Interest::READABLE | room);
        self.stream = Some(registered(stream, interest)?);
        self.hears_of_room = hears;
        Ok(())
    }

    /// Appends what has arrived; returns how much that is, which is nothing at the end.
    pub(crate) fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        arrived: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        let stream = self.stream()?;
        loop {
            let mut readiness = ready!(stream.poll_read_ready(cx))?;
            let (received, room) = if arrived.is_empty() {
                // Few bytes come at a time from most clients: these need no buffer that grows for each of their messages.
                let mut bytes = [const { MaybeUninit::uninit() }; RECEIVED_BYTES];
                let received = recv(stream, &mut bytes, RecvFlags::empty());
                let received = received.map(|((bytes, _), _)| {
                    arrived.extend_from_slice(bytes);
                    bytes.len()
                });
                (received, RECEIVED_BYTES)
            } else {
                arrived.reserve(RECEIVED_BYTES);
                let room = arrived.capacity() - arrived.len();
                let received = recv(stream, spare_capacity(arrived), RecvFlags::empty());
                (received.map(|(received, _)| received), room)
            };
            match received {
                Ok(received) => {
                    // Less than there was room for is all there was: what comes next is told of.
                    if 0 < received && received < room {
                        readiness.clear_ready();
                    }
                    return Poll::Ready(Ok(received));
                }
                Err(Errno::AGAIN) => readiness.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    /// Sends bytes; returns how many were.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        while !self.hears_of_room {
            match send(self.stream()?, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => return Poll::Ready(Ok(sent)),
                Err(Errno::INTR) => {}
                // There may be room by the time of the registration, which is told of then.
                Err(Errno::AGAIN) => self.hear_of_room(true)?,
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        let stream = self.stream()?;
        loop {
            let mut room = ready!(stream.poll_write_ready(cx))?;
            match send(stream, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    // There was room for no more: what comes next is told of.
                    if sent < bytes.len() {
                        room.clear_ready();
                    }
                    return Poll::Ready(Ok(sent));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => room.clear_ready(),
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    /// Notes that all is sent, and it is the other end's turn: nobody waits for room any more. Less than that is no reason, as large answers find none again and
    /// again, and each registration is two calls of the system.
    pub(crate) fn has_sent(&mut self) -> io::Result<()> {
        if self.hears_of_room { self.hear_of_room(false) } else { Ok(()) }
    }

    /// Tells the other end that nothing more is sent.
    pub(crate) fn shut_down(&self) -> io::Result<()> {
        self.stream()?.get_ref().shutdown(Shutdown::Write)
    }
}

/// Registers a socket for some events.
#[expect(
    deprecated,
    reason = "the newer function is not safe to call for descriptors that may be closed; a socket closes its own as it ends"
)]
fn registered(stream: UnixStream, interest: Interest) -> io::Result<AsyncFd<UnixStream>> {
    AsyncFd::with_interest(stream, interest)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::{Read, Write};

    use super::*;

    fn pair() -> (UnixSocket, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        ours.set_nonblocking(true).expect("a socket");
        (UnixSocket::new(ours).expect("a registration"), theirs)
    }

    async fn receive(socket: &UnixSocket, arrived: &mut Vec<u8>) -> usize {
        poll_fn(|cx| socket.poll_receive(cx, arrived)).await.expect("a socket")
    }

    #[tokio::test]
    async fn what_arrives_is_appended_up_to_the_end() {
        let (socket, mut theirs) = pair();
        let mut arrived = Vec::new();
        theirs.write_all(b"one").expect("a socket");
        assert_eq!(receive(&socket, &mut arrived).await, 3);
        let many = vec![7; 3 * RECEIVED_BYTES];
        let writer = std::thread::spawn(move || {
            theirs.write_all(&many).expect("a socket");
            theirs
        });
        while arrived.len() < 3 + 3 * RECEIVED_BYTES {
            assert!(receive(&socket, &mut arrived).await > 0);
        }
        assert_eq!((&arrived[..3], arrived[3..].iter().all(|byte| *byte == 7)), (&b"one"[..], true));
        let mut theirs = writer.join().expect("a thread");
        // Nothing is there until something comes.
        let later = std::thread::spawn(move || {
            theirs.write_all(b"two").expect("a socket");
        });
        arrived.clear();
        assert_eq!((receive(&socket, &mut arrived).await, &arrived[..]), (3, &b"two"[..]));
        later.join().expect("a thread");
        assert_eq!(receive(&socket, &mut arrived).await, 0, "its other end is gone");
    }

    /// A send that finds no room goes on when the other end has read, and hears of it for so long only; what has arrived meanwhile is not missed.
    #[tokio::test]
    async fn a_send_waits_for_room() {
        let (mut socket, mut theirs) = pair();
        let bytes: Vec<u8> = (0..4_u32 << 20).map(|at| (at >> 8) as u8).collect();
        let mut sent = 0;
        let is_full = |poll: &Poll<io::Result<usize>>| poll.is_pending();
        loop {
            let poll = poll_fn(|cx| Poll::Ready(socket.poll_send(cx, &bytes[sent..]))).await;
            if is_full(&poll) {
                break;
            }
            assert!(!socket.hears_of_room, "nobody waits yet");
            let Poll::Ready(Ok(more)) = poll else { panic!("{poll:?}") };
            sent += more;
        }
        assert!(sent < bytes.len() && socket.hears_of_room);
        theirs.write_all(b"meanwhile").expect("a socket");
        let expected = bytes.clone();
        let reader = std::thread::spawn(move || {
            let mut read = vec![0; expected.len()];
            theirs.read_exact(&mut read).expect("a socket");
            assert!(read == expected);
            let mut rest = Vec::new();
            theirs.read_to_end(&mut rest).expect("a socket");
            rest
        });
        while sent < bytes.len() {
            sent += poll_fn(|cx| socket.poll_send(cx, &bytes[sent..])).await.expect("a socket");
        }
        let mut arrived = Vec::new();
        assert_eq!((receive(&socket, &mut arrived).await, &arrived[..]), (9, &b"meanwhile"[..]));
        socket.has_sent().expect("a registration");
        assert!(!socket.hears_of_room);
        assert_eq!(poll_fn(|cx| socket.poll_send(cx, b"end")).await.expect("a socket"), 3);
        socket.shut_down().expect("a socket");
        assert_eq!(reader.join().expect("a thread"), b"end");
        drop(socket);
    }

    #[tokio::test]
    async fn a_socket_whose_other_end_is_gone_fails_to_send() {
        let (mut socket, theirs) = pair();
        drop(theirs);
        let sent = poll_fn(|cx| socket.poll_send(cx, b"a")).await;
        assert_eq!(sent.expect_err("nobody is there").kind(), io::ErrorKind::BrokenPipe);
    }
}
