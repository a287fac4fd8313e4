//! Channels between workers of different processes: shared memory, Unix sockets, pipes and TCP behind one trait.
//!
//! Owns: how messages cross the border of a process, how two processes find and check each other, and what wakes a worker that
//! sleeps until something arrives. Never: knows what a message means, or who is to answer it.
//!
//! # The shape
//! An instance of a deployment listens ([`Listener`]) in a directory that belongs to its user alone; others [`connect`] to
//! it, say who they are and what they want ([`Hello`]), and get one end of a link: a [`Channel`]. A link is between one worker of
//! an instance and one of another; each end is owned by one thread. The [`Watcher`] of a process wakes workers that have armed
//! their channels.
//!
//! | kind | carries | checks |
//! |---|---|---|
//! | `shm` | rings in a mapping (`ring`), a doorbell (`bell`, `sleep`) | bounds of every record; no checksum |
//! | `unix`, `pipe`, `tcp` | one frame per flush (`frame`) over a stream of bytes (`stream`) | version, length, checksum |
//!
//! A further kind is a file of its own that implements [`Channel`], or `Transport` if it carries bytes in order.
//!
//! # What always holds
//! - Messages of a link arrive whole, in order, and once, until the link ends; there is no resumption.
//! - Nothing here blocks a worker: what does not fit waits in the channel's backlog.
//! - A peer may be killed at any instruction, and may write anything. Then the link ends with a sentence; memory safety holds, and no
//!   call takes longer.
//! - The end of a peer is seen on every kind, after what it had sent was handed out.

mod bell;
#[cfg(not(loom))]
mod connect;
#[cfg(not(loom))]
mod directory;
mod error;
#[cfg(not(loom))]
mod frame;
#[cfg(not(loom))]
mod handshake;
#[cfg(not(loom))]
mod hello;
mod kind;
mod link;
#[cfg(not(loom))]
mod listener;
mod memory;
pub mod planted;
pub mod ring;
#[cfg(not(loom))]
mod secret;
#[cfg(not(loom))]
mod shm;
mod sleep;
#[cfg(not(loom))]
mod stream;
mod sync;
#[cfg(not(loom))]
mod tcp;
#[cfg(all(not(loom), feature = "tls"))]
mod tls;
#[cfg(not(loom))]
mod transport;
#[cfg(not(loom))]
mod watcher;

#[cfg(all(test, loom))]
mod loom_models;

pub use error::ChannelError;
pub use kind::{ChannelKind, UnknownKind};
pub use link::{RING_BYTES_DEFAULT, RING_BYTES_MAX, RING_BYTES_MIN, ring_bytes_valid};
#[cfg(not(loom))]
pub use {
    connect::{ConnectOptions, connect},
    directory::prepare as prepare_directory,
    hello::{DeploymentId, EndId, Hello, InstanceId, NotADeployment, PROTOCOL_VERSION},
    listener::{Accepted, ListenOptions, Listener},
    secret::{SECRET_BYTES_MIN, Secret},
    watcher::{Wake, Watcher},
};

/// The longest message that a channel carries.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// One end of a link between one worker of an instance and one worker of another: a two-way, ordered stream of messages, which
/// are byte strings. One thread owns it at a time.
///
/// An error that ends the link ([`ChannelError::Gone`], [`ChannelError::Nonsense`], [`ChannelError::Io`]) is repeated by every
/// later call. A link is closed by dropping its end; what was not flushed, or waits in the backlog, is lost then.
#[cfg(not(loom))]
pub trait Channel: Send {
    /// Sets the function by which the watcher wakes the owner. The watcher may call it without a reason, too.
    fn on_wake(&mut self, wake: Wake);

    /// Appends a message, given in parts that are joined. It is visible to the peer after [`flush`](Self::flush) at the latest.
    /// Never blocks: what does not fit waits in the backlog, in order.
    ///
    /// # Errors
    /// If the message is longer than [`MESSAGE_BYTES_MAX`] (the link goes on), or the link has ended.
    fn send(&mut self, parts: &[&[u8]]) -> Result<(), ChannelError>;

    /// Makes what was sent visible, and as much of the backlog as there is room for. With a backlog it is to be called again, in
    /// each round of the owner, until there is none.
    ///
    /// # Errors
    /// If the link has ended. What has arrived before can be received still.
    fn flush(&mut self) -> Result<(), ChannelError>;

    /// Bytes that wait for room since the last flush. The owner admits no new work while there are any.
    fn backlog(&self) -> usize;

    /// Hands at most `max` messages that have arrived to `take`, in order, without blocking, and returns their number. Zero may
    /// also mean that a part of a message has arrived.
    ///
    /// # Errors
    /// If the link has ended, after everything that had arrived was handed out.
    fn receive(&mut self, max: usize, take: &mut dyn FnMut(&[u8])) -> Result<usize, ChannelError>;

    /// Returns whether [`receive`](Self::receive) may find something or fail, or a flush may move some of the backlog. Asked between arming
    /// and sleeping.
    fn has_arrivals(&mut self) -> bool;

    /// Announces that the owner goes to sleep: from now on an arrival, the end of the peer or, with a backlog, room for it makes
    /// the watcher call the wake function once. The next receive takes it back.
    fn arm(&mut self);
}

/// Length of a message that is given in parts.
#[inline]
pub(crate) fn joined_bytes(parts: &[&[u8]]) -> usize {
    parts.iter().map(|part| part.len()).sum()
}
