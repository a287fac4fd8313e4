//! The channel of shared memory: two rings, a doorbell, and a socket that ends when the peer does.
//!
//! Owns: the messages that wait for room, and when the peer's doorbell is rung. Never: makes a system call while the peer is
//! awake. Invariant: what was sent later never passes what waits.
//!
//! The consumer of a ring owes its producer a look at whether it sleeps until there is room, with a fence. It pays when it finds
//! nothing more to take, or goes to sleep: until then the ring is not empty, and the producer's wait is bounded by the messages in it.

use std::collections::VecDeque;
use std::sync::Arc;

use rustix::event::epoll::EventFlags;
use rustix::fd::OwnedFd;

use crate::bell::Bell;
use crate::error::ChannelError;
use crate::link::{Link, Side};
use crate::planted::{Bug, planted};
use crate::ring::{Consumer, Producer};
use crate::sleep::{self, Event};
use crate::watcher::{Alarm, Fate, FdWatch, LinkWatch, Role, Wake, Watcher};
use crate::{Channel, MESSAGE_BYTES_MAX, joined_bytes};

/// One end of a link in shared memory.
pub(crate) struct ShmChannel {
    producer: Producer,
    consumer: Consumer,
    /// The length that a message must be below to go into the ring at once: none may, after an error, or while others wait.
    direct_bytes_end: usize,
    /// Messages that the ring had no room for; of the first one, the bytes before `sent` are in the ring.
    waiting: VecDeque<Vec<u8>>,
    sent: usize,
    waiting_bytes: usize,
    /// Set while the sleep word is.
    armed: bool,
    /// Bytes taken when the peer was last told of room.
    room_told: u64,
    /// The error that cut the link.
    cut: Option<ChannelError>,
    side: Side,
    link: Arc<Link>,
    peer_bell: Bell,
    fate: Arc<Fate>,
    alarm: Arc<Alarm>,
    /// Dropped with the channel: the peer sees its end.
    _lifeline: FdWatch,
    _watch: LinkWatch,
}

impl ShmChannel {
    /// The end of `side`. The peer has the other, and sees that this one is gone by the socket.
    pub(crate) fn new(
        watcher: &Watcher,
        link: Link,
        side: Side,
        peer_bell: Bell,
        lifeline: OwnedFd,
    ) -> Result<Self, ChannelError> {
        let (link, fate, alarm) = (Arc::new(link), Arc::new(Fate::default()), Arc::new(Alarm::default()));
        let role = Role::Lifeline(Arc::clone(&fate));
        let interest = EventFlags::IN | EventFlags::RDHUP;
        let producer = Producer::new(Arc::clone(&link), side);
        Ok(Self {
            direct_bytes_end: producer.record_payload_max() + 1,
            producer,
            consumer: Consumer::new(Arc::clone(&link), side),
            waiting: VecDeque::new(),
            sent: 0,
            waiting_bytes: 0,
            armed: false,
            room_told: 0,
            cut: None,
            side,
            peer_bell,
            _lifeline: watcher.watch_fd(Arc::new(lifeline), role, interest, Arc::clone(&alarm))?,
            _watch: watcher.watch_link(Arc::clone(&link), side, Arc::clone(&alarm)),
            link,
            fate,
            alarm,
        })
    }

    /// Remembers an error that ends the link.
    #[cold]
    fn cut_by(&mut self, error: ChannelError) -> ChannelError {
        self.direct_bytes_end = 0;
        self.cut.get_or_insert(error).clone()
    }

    /// The length that a message must be below to go as one record.
    fn record_bytes_end(&self) -> usize {
        self.producer.record_payload_max() + 1
    }

    /// Keeps a message that is long, or that others wait before, or that there is no room for.
    #[cold]
    fn send_later(&mut self, parts: &[&[u8]], bytes: usize) -> Result<(), ChannelError> {
        if let Some(error) = &self.cut {
            return Err(error.clone());
        }
        if bytes > MESSAGE_BYTES_MAX {
            return Err(ChannelError::TooLong { bytes, max: MESSAGE_BYTES_MAX });
        }
        let first = self.waiting.is_empty();
        self.waiting.push_back(parts.concat());
        self.waiting_bytes += bytes + size_of::<u64>();
        self.direct_bytes_end = 0;
        // A long message may find room as several records.
        if first { self.send_waiting() } else { Ok(()) }
    }

    /// Moves what waits into the ring, as far as there is room.
    #[cold]
    fn send_waiting(&mut self) -> Result<(), ChannelError> {
        while let Some(message) = self.waiting.front() {
            let (sent, done) = match self.producer.push_from(message, self.sent) {
                Ok(progress) => progress,
                Err(error) => return Err(self.cut_by(error)),
            };
            if !done {
                self.sent = sent;
                return Ok(());
            }
            self.sent = 0;
            self.waiting_bytes -= message.len() + size_of::<u64>();
            self.waiting.pop_front();
        }
        self.direct_bytes_end = self.record_bytes_end();
        Ok(())
    }

    fn ring_if_asleep(&self, event: Event) {
        if sleep::must_ring(&self.link.words(self.side.other()).sleep, event) {
            self.peer_bell.ring();
        }
    }

    /// Tells the peer of room that it may sleep for.
    #[inline]
    fn tell_of_room(&mut self) {
        if self.room_told != self.consumer.released() {
            self.room_told = self.consumer.released();
            self.ring_if_asleep(Event::Room);
        }
    }
}

impl Channel for ShmChannel {
    fn on_wake(&mut self, wake: Wake) {
        self.alarm.set(wake);
    }

    #[inline]
    fn send(&mut self, parts: &[&[u8]]) -> Result<(), ChannelError> {
        let bytes = joined_bytes(parts);
        if bytes < self.direct_bytes_end
            || (planted(Bug::BacklogOvertaken) && bytes < self.record_bytes_end())
        {
            match self.producer.push_checked(parts, bytes) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => return Err(self.cut_by(error)),
            }
        }
        self.send_later(parts, bytes)
    }

    #[inline]
    fn flush(&mut self) -> Result<(), ChannelError> {
        if let Some(error) = &self.cut {
            return Err(error.clone());
        }
        if !self.waiting.is_empty() {
            self.send_waiting()?;
        }
        if self.producer.publish() {
            self.ring_if_asleep(Event::Arrival);
        }
        Ok(())
    }

    fn backlog(&self) -> usize {
        self.waiting_bytes
    }

    #[inline]
    fn receive(&mut self, max: usize, take: &mut dyn FnMut(&[u8])) -> Result<usize, ChannelError> {
        if self.armed {
            self.armed = false;
            sleep::disarm(&self.link.words(self.side).sleep);
        }
        if let Some(error) = &self.cut {
            return Err(error.clone());
        }
        // Before the ring: what a peer has published before its end is then found in it.
        let end = self.fate.error();
        let taken = self.consumer.receive(max, take).map_err(|error| self.cut_by(error))?;
        if taken > 0 || max == 0 {
            return Ok(taken);
        }
        self.tell_of_room();
        match end {
            Some(error) if !self.consumer.has_published() => Err(self.cut_by(error)),
            _ => Ok(0),
        }
    }

    fn has_arrivals(&mut self) -> bool {
        self.cut.is_some()
            || self.consumer.has_published()
            || self.fate.error().is_some()
            || (!self.waiting.is_empty() && self.producer.room_has_grown())
    }

    fn arm(&mut self) {
        self.armed = true;
        sleep::arm(&self.link.words(self.side).sleep, !self.waiting.is_empty());
        self.tell_of_room();
    }
}
