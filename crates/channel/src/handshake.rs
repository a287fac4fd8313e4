//! The handshake: how two processes check each other, and become the ends of a link.
//!
//! Owns: the order of greetings, who is refused with which sentence, and what is passed along for each kind. Never: waits, or
//! listens.
//!
//! ```text
//! who connects                                  who accepts
//! Hello (+ memory and doorbell, or pipes)  -->  checks version, deployment, names, kind
//!                                          <--  Challenge              (with a secret only)
//! Answer (proof)                           -->  checks it
//! checks the proof                         <--  Welcome (+ doorbell), or Refused with a sentence
//! ```

use std::time::Instant;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::pipe::PipeFlags;

use crate::bell::Bell;
use crate::error::{Attempt, ChannelError};
use crate::frame::{HEADER_BYTES, Header};
use crate::hello::{DeploymentId, GREETING_BYTES_MAX, Greeting, Hello, InstanceId, Nonce};
use crate::link::{Link, Side, ring_bytes_valid};
use crate::listener::Accepted;
use crate::memory::Memory;
use crate::planted::{Bug, planted};
use crate::secret::{Prover, Secret, Transcript, random_nonce};
use crate::shm::ShmChannel;
use crate::stream::StreamChannel;
use crate::transport::{Pipes, Socket, Transport, read_with_fds, write_with_fds};
use crate::watcher::Watcher;
use crate::{Channel, ChannelKind};

/// The descriptors that go with a greeting.
type Passed = Vec<OwnedFd>;

/// The connection over which two processes greet each other.
pub(crate) enum Line {
    /// A Unix socket, over which descriptors can be passed, and those that have come.
    Unix(OwnedFd, Passed),
    /// A TCP connection.
    Tcp(Box<dyn Transport>),
}

impl Line {
    fn read(&mut self, into: &mut [u8]) -> Result<Option<usize>, ChannelError> {
        match self {
            Self::Unix(socket, passed) => read_with_fds(socket, into, passed),
            Self::Tcp(transport) => transport.read(into),
        }
    }

    /// Sends a greeting, which the empty buffer of a new connection has room for.
    fn send(&mut self, greeting: &Greeting, fds: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
        self.send_frame(&greeting.encode(), fds)
    }

    fn send_frame(&mut self, frame: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
        let written = match self {
            Self::Unix(socket, _) => write_with_fds(socket, frame, fds)?,
            Self::Tcp(transport) => transport.write(frame)?,
        };
        if written == frame.len() {
            return Ok(());
        }
        Err(ChannelError::Gone("it does not read what it is told in the handshake".into()))
    }

    /// Bytes that only the two ends of this connection know, if it is encrypted.
    fn binding(&self) -> Result<Vec<u8>, ChannelError> {
        match self {
            Self::Unix(..) => Ok(Vec::new()),
            Self::Tcp(transport) => transport.binding(),
        }
    }

    /// The descriptor that tells of greetings.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(socket, _) => socket.as_fd(),
            Self::Tcp(transport) => transport.input().as_fd(),
        }
    }
}

/// A greeting that arrives in pieces.
#[derive(Default)]
struct Reader {
    bytes: Vec<u8>,
}

impl Reader {
    /// Reads what has arrived, and no byte beyond one greeting. Returns its payload when it is complete.
    fn read(&mut self, line: &mut Line) -> Result<Option<Vec<u8>>, ChannelError> {
        loop {
            let arrived = self.bytes.len();
            let header = self
                .bytes
                .first_chunk()
                .map(|header| Header::decode(header, GREETING_BYTES_MAX))
                .transpose()?;
            let wanted = HEADER_BYTES + header.as_ref().map_or(0, |header| header.bytes);
            if let Some(header) = header.filter(|_| arrived == wanted) {
                let payload = self.bytes.split_off(HEADER_BYTES);
                self.bytes.clear();
                header.check(&payload)?;
                return Ok(Some(payload));
            }
            self.bytes.resize(wanted, 0);
            let read = line.read(&mut self.bytes[arrived..]);
            self.bytes.truncate(arrived + read.as_ref().map_or(0, |read| read.unwrap_or(0)));
            match read? {
                None => return Ok(None),
                Some(0) => {
                    return Err(ChannelError::Gone("it has ended the connection in the handshake".into()));
                }
                Some(_) => {}
            }
        }
    }
}

// --- who accepts -------------------------------------------------------------------------------------------------------

/// What those who accept are.
pub(crate) struct Host {
    pub(crate) deployment: DeploymentId,
    pub(crate) instance: InstanceId,
    pub(crate) workers: u16,
    pub(crate) secret: Option<Secret>,
    pub(crate) watcher: Watcher,
}

/// Somebody who has connected and is not accepted yet.
pub(crate) struct Guest {
    line: Line,
    reader: Reader,
    challenged: Option<Challenged>,
    /// The moment at which patience ends.
    pub(crate) expires: Instant,
}

struct Challenged {
    hello: Hello,
    payload: Vec<u8>,
    nonce: Nonce,
}

/// What has become of a guest.
pub(crate) enum Progress {
    Waits(Guest),
    Accepted(Accepted),
    /// Turned away, or gone.
    Refused(ChannelError),
}

impl Guest {
    pub(crate) fn new(line: Line, expires: Instant) -> Self {
        Self { line, reader: Reader::default(), challenged: None, expires }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.line.fd()
    }

    /// Goes on as far as what has arrived allows.
    pub(crate) fn advance(mut self, host: &Host) -> Progress {
        loop {
            let step = match self.reader.read(&mut self.line) {
                Ok(None) => return Progress::Waits(self),
                Ok(Some(payload)) => self.on_greeting(payload, host),
                Err(error) => Err(error),
            };
            match step {
                Ok(None) => {}
                Ok(Some(hello)) => return self.welcome(hello, host),
                Err(error) => return self.refuse(error),
            }
        }
    }

    /// Takes a greeting. Returns the hello of a guest who is welcome.
    fn on_greeting(&mut self, payload: Vec<u8>, host: &Host) -> Result<Option<Welcomed>, ChannelError> {
        match (Greeting::decode(&payload)?, self.challenged.take(), &host.secret) {
            (Greeting::Hello { hello, ring_bytes, .. }, None, secret) => {
                host.check(&hello)?;
                let over_tcp = matches!(self.line, Line::Tcp(_));
                if over_tcp != (hello.kind == ChannelKind::Tcp) {
                    return Err(ChannelError::Nonsense(format!(
                        "it asks for {} over a connection that does not carry it",
                        hello.kind
                    )));
                }
                if secret.is_none() || !over_tcp {
                    return Ok(Some(Welcomed { hello, ring_bytes, proof: None }));
                }
                let nonce = random_nonce()?;
                self.line.send(&Greeting::Challenge { nonce }, &[])?;
                self.challenged = Some(Challenged { hello, payload, nonce });
                Ok(None)
            }
            (Greeting::Answer { proof }, Some(challenged), Some(secret)) => {
                let connection = &self.line.binding()?;
                let transcript =
                    Transcript { hello: &challenged.payload, nonce: &challenged.nonce, connection };
                if !secret.verify(Prover::Connecting, &transcript, &proof) {
                    return Err(ChannelError::Refused(format!(
                        "{} does not accept the proof of {}: give both the same shared secret",
                        host.instance, challenged.hello.from.instance
                    )));
                }
                let proof = Some(secret.prove(Prover::Accepting, &transcript));
                Ok(Some(Welcomed { hello: challenged.hello, ring_bytes: 0, proof }))
            }
            _ => Err(ChannelError::Nonsense("a greeting of it comes out of turn".into())),
        }
    }

    fn refuse(mut self, error: ChannelError) -> Progress {
        // A guest who is gone, or does not read, is not told.
        let mut sentence = error.to_string();
        sentence.truncate(sentence.floor_char_boundary(GREETING_BYTES_MAX / 2));
        let _told = self.line.send(&Greeting::Refused(sentence), &[]);
        Progress::Refused(error)
    }

    fn welcome(mut self, welcomed: Welcomed, host: &Host) -> Progress {
        let hello = welcomed.hello;
        let passed = match &mut self.line {
            Line::Unix(_, passed) => std::mem::take(passed),
            Line::Tcp(_) => Vec::new(),
        };
        // What the guest has passed is checked before it is told anything.
        let prepared = match Prepared::of_guest(&welcomed, passed) {
            Ok(prepared) => prepared,
            Err(error) => return self.refuse(error),
        };
        let greeting = Greeting::Welcome { proof: welcomed.proof };
        let bell = [host.watcher.bell_file().as_fd()];
        let fds = if hello.kind == ChannelKind::Shm { &bell[..] } else { &[] };
        let channel = self.line.send(&greeting, fds).and_then(|()| prepared.finish(self.line, &host.watcher));
        match channel {
            Ok(channel) => Progress::Accepted(Accepted { hello, channel }),
            Err(error) => Progress::Refused(error),
        }
    }
}

struct Welcomed {
    hello: Hello,
    ring_bytes: u64,
    proof: Option<[u8; 32]>,
}

impl Host {
    fn check(&self, hello: &Hello) -> Result<(), ChannelError> {
        let refused = |sentence| Err(ChannelError::Refused(sentence));
        if hello.deployment != self.deployment && !planted(Bug::DeploymentIgnored) {
            return refused(format!(
                "{} here is of deployment {}, and the one that connects of {}: give it the address of its own deployment",
                self.instance, self.deployment, hello.deployment
            ));
        }
        if hello.to.instance != self.instance {
            return refused(format!(
                "this is {}, and not {}: correct the addresses of the instances",
                self.instance, hello.to.instance
            ));
        }
        if hello.to.worker >= self.workers {
            return refused(format!(
                "{} has {} workers, counted from 0, and no worker {}",
                self.instance, self.workers, hello.to.worker
            ));
        }
        Ok(())
    }
}

// --- who connects ------------------------------------------------------------------------------------------------------

/// The side of a handshake that connects.
pub(crate) struct Caller<'a> {
    line: Line,
    reader: Reader,
    prepared: Prepared,
    hello: Hello,
    payload: Vec<u8>,
    secret: Option<&'a Secret>,
    /// The proof that is expected with the welcome.
    challenge: Option<Nonce>,
    watcher: &'a Watcher,
}

impl<'a> Caller<'a> {
    /// Sends the hello over a new connection.
    pub(crate) fn greet(
        mut line: Line,
        hello: Hello,
        ring_bytes: usize,
        secret: Option<&'a Secret>,
        watcher: &'a Watcher,
    ) -> Result<Self, ChannelError> {
        let (prepared, files) = Prepared::of_caller(hello.kind, ring_bytes)?;
        let greeting = Greeting::Hello { hello, ring_bytes: ring_bytes as u64, nonce: random_nonce()? };
        let frame = greeting.encode();
        let mut fds: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        if hello.kind == ChannelKind::Shm {
            fds.push(watcher.bell_file().as_fd());
        }
        unless_gone(line.send_frame(&frame, &fds))?;
        let payload = frame[HEADER_BYTES..].to_vec();
        Ok(Self {
            line,
            reader: Reader::default(),
            prepared,
            hello,
            payload,
            secret,
            challenge: None,
            watcher,
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.line.fd()
    }

    /// Goes on as far as what has arrived allows. Returns whether the other side has said that this one is welcome.
    pub(crate) fn advance(&mut self) -> Result<bool, ChannelError> {
        while let Some(payload) = self.reader.read(&mut self.line)? {
            match Greeting::decode(&payload)? {
                Greeting::Challenge { nonce } => self.on_challenge(nonce)?,
                Greeting::Welcome { proof } => {
                    self.check_welcome(proof)?;
                    return Ok(true);
                }
                Greeting::Refused(sentence) => return Err(ChannelError::Refused(sentence)),
                _ => return Err(ChannelError::Nonsense("a greeting of it comes out of turn".into())),
            }
        }
        Ok(false)
    }

    fn on_challenge(&mut self, nonce: Nonce) -> Result<(), ChannelError> {
        let Some(secret) = self.secret.filter(|_| self.challenge.is_none()) else {
            return Err(ChannelError::Refused(format!(
                "{} demands the shared secret of the deployment, and none is given here: give it to all instances",
                self.hello.to.instance
            )));
        };
        self.challenge = Some(nonce);
        let connection = self.line.binding()?;
        let proof = secret.prove(Prover::Connecting, &self.transcript(&nonce, &connection));
        unless_gone(self.line.send(&Greeting::Answer { proof }, &[]))
    }

    fn transcript<'b>(&'b self, nonce: &'b Nonce, connection: &'b [u8]) -> Transcript<'b> {
        Transcript { hello: &self.payload, nonce, connection }
    }

    fn check_welcome(&self, proof: Option<[u8; 32]>) -> Result<(), ChannelError> {
        let Some(secret) = self.secret.filter(|_| self.hello.kind == ChannelKind::Tcp) else { return Ok(()) };
        let connection = self.line.binding()?;
        let proven = match (&self.challenge, proof) {
            (Some(nonce), Some(proof)) => {
                secret.verify(Prover::Accepting, &self.transcript(nonce, &connection), &proof)
            }
            _ => false,
        };
        if proven {
            return Ok(());
        }
        Err(ChannelError::Refused(format!(
            "{} does not prove that it knows the shared secret: give it to all instances",
            self.hello.to.instance
        )))
    }

    /// The channel, once this side is welcome.
    pub(crate) fn finish(mut self) -> Result<Box<dyn Channel>, ChannelError> {
        if let Line::Unix(_, passed) = &mut self.line {
            self.prepared.take_bell(std::mem::take(passed))?;
        }
        self.prepared.finish(self.line, self.watcher)
    }
}

/// The result of telling the other side something. That it is gone is no error yet: it may have said why before.
fn unless_gone(sent: Result<(), ChannelError>) -> Result<(), ChannelError> {
    match sent {
        Err(ChannelError::Gone(_)) => Ok(()),
        sent => sent,
    }
}

// --- both --------------------------------------------------------------------------------------------------------------

/// What a channel is made of besides the connection.
enum Prepared {
    Shm(Link, Side, Option<Bell>),
    Pipe(Pipes),
    Connection,
}

impl Prepared {
    /// What the side that connects makes, and the files to pass to the other.
    fn of_caller(kind: ChannelKind, ring_bytes: usize) -> Result<(Self, Passed), ChannelError> {
        match kind {
            ChannelKind::Shm => {
                check_ring(ring_bytes)?;
                let (file, memory) = Memory::create("atrapos-link", Link::bytes(ring_bytes))?;
                Ok((Self::Shm(Link::in_mapping(memory, ring_bytes), Side::First, None), vec![file]))
            }
            ChannelKind::Pipe => {
                let pipe = || {
                    rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).attempt("make a pipe")
                };
                let ((their_input, output), (input, their_output)) = (pipe()?, pipe()?);
                Ok((Self::Pipe(Pipes::new(input, output)), vec![their_input, their_output]))
            }
            ChannelKind::Unix | ChannelKind::Tcp => Ok((Self::Connection, Vec::new())),
        }
    }

    /// What the side that accepts makes of what was passed.
    fn of_guest(welcomed: &Welcomed, passed: Passed) -> Result<Self, ChannelError> {
        let kind = welcomed.hello.kind;
        match (kind, <[OwnedFd; 2]>::try_from(passed)) {
            (ChannelKind::Shm, Ok([memory, bell])) => {
                let ring_bytes = usize::try_from(welcomed.ring_bytes).unwrap_or(usize::MAX);
                check_ring(ring_bytes)?;
                let memory = Memory::open(memory, Link::bytes(ring_bytes))?;
                let bell = Bell::in_mapping(Memory::open(bell, Bell::BYTES)?);
                Ok(Self::Shm(Link::in_mapping(memory, ring_bytes), Side::Second, Some(bell)))
            }
            (ChannelKind::Pipe, Ok([input, output])) => {
                let (input, output) = (own_pipe(&input, OFlags::RDONLY)?, own_pipe(&output, OFlags::WRONLY)?);
                Ok(Self::Pipe(Pipes::new(input, output)))
            }
            (ChannelKind::Unix | ChannelKind::Tcp, Err(passed)) if passed.is_empty() => Ok(Self::Connection),
            _ => Err(ChannelError::Nonsense(format!("it passes other descriptors than {kind} takes"))),
        }
    }

    /// Takes the doorbell that has come with the welcome.
    fn take_bell(&mut self, passed: Passed) -> Result<(), ChannelError> {
        if let Self::Shm(_, _, bell) = self {
            let Ok([file]) = <[OwnedFd; 1]>::try_from(passed) else {
                return Err(ChannelError::Nonsense("its welcome comes without a doorbell".into()));
            };
            *bell = Some(Bell::in_mapping(Memory::open(file, Bell::BYTES)?));
        }
        Ok(())
    }

    fn finish(self, line: Line, watcher: &Watcher) -> Result<Box<dyn Channel>, ChannelError> {
        match (self, line) {
            (Self::Shm(link, side, Some(bell)), Line::Unix(socket, _)) => {
                Ok(Box::new(ShmChannel::new(watcher, link, side, bell, socket)?))
            }
            (Self::Pipe(pipes), _) => Ok(Box::new(StreamChannel::new(watcher, pipes)?)),
            (Self::Connection, Line::Unix(socket, _)) => {
                Ok(Box::new(StreamChannel::new(watcher, Socket::new(socket))?))
            }
            (Self::Connection, Line::Tcp(transport)) => Ok(Box::new(StreamChannel::new(watcher, transport)?)),
            (Self::Shm(..), _) => {
                Err(ChannelError::Nonsense("shared memory is passed over a Unix socket only".into()))
            }
        }
    }
}

fn check_ring(ring_bytes: usize) -> Result<(), ChannelError> {
    if ring_bytes_valid(ring_bytes) {
        return Ok(());
    }
    Err(ChannelError::Refused(format!(
        "a ring of {ring_bytes} bytes is not possible: its size is a power of two from {} to {}",
        crate::RING_BYTES_MIN,
        crate::RING_BYTES_MAX
    )))
}

/// The pipe behind a descriptor that was passed, opened anew: whether it blocks is then up to this process alone.
fn own_pipe(passed: &OwnedFd, mode: OFlags) -> Result<OwnedFd, ChannelError> {
    let attempt = "open a pipe of the peer";
    let found = rustix::fs::fstat(passed).attempt(attempt)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Fifo {
        return Err(ChannelError::Nonsense("it passes something as a pipe that is none".into()));
    }
    let path = format!("/proc/self/fd/{}", passed.as_raw_fd());
    rustix::fs::open(path, mode | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).attempt(attempt)
}
