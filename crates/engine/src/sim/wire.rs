//! Links of a simulated deployment: messages arrive after delays that follow from a seed, or, on a bad wire, not as they were sent.
//!
//! Owns: messages on their way, and their numbers, by which a receiver notices that one was lost, doubled or overtaken. Never: makes a
//! link anew.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use atrapos_channel::{Channel, ChannelError, Wake};
use atrapos_partition::planted::{Bug, planted};
use atrapos_partition::routing::InstanceId;
use atrapos_runtime::rng::Seed;
use atrapos_transaction::distributed::steps;

/// The messages on their way in one direction of a link, with their numbers.
pub(super) struct Wire {
    pub(super) messages: VecDeque<(u64, Vec<u8>)>,
    /// The number of messages that have been flushed.
    flushed: usize,
    /// The number of the message that is sent next, and of that which has to arrive next.
    sent: u64,
    expected: u64,
    /// One in so many messages is lost, doubled or overtaken; none if it is zero.
    pub(super) disturbed_one_in: u64,
    /// The looks at what has arrived until the wire is cut, as a message was lost.
    gives_up_in: Option<u64>,
    pub(super) is_cut: bool,
    /// True if nothing arrives for now.
    pub(super) is_held: bool,
    /// The instance where its messages arrive.
    pub(super) to: InstanceId,
    turn: u64,
}

/// Looks at what has arrived after which a wire is cut that has lost a message.
const GIVES_UP_AFTER: u64 = 300;

impl Wire {
    /// Creates a wire without messages to an instance. What it does follows from `turn`.
    pub(super) fn new(to: InstanceId, turn: u64, disturbed_one_in: u64) -> Wire {
        Wire {
            messages: VecDeque::new(),
            flushed: 0,
            sent: 0,
            expected: 0,
            disturbed_one_in,
            gives_up_in: None,
            is_cut: false,
            is_held: false,
            to,
            turn,
        }
    }

    fn draw(&mut self, bound: u64) -> u64 {
        self.turn = Seed(self.turn).derive(1).0;
        (self.turn >> 8) % bound
    }

    /// Takes a message, or what a bad wire makes of it.
    fn push(&mut self, message: Vec<u8>) {
        let number = self.sent;
        self.sent += 1;
        let is_disturbed = self.disturbed_one_in > 0 && self.draw(self.disturbed_one_in) == 0;
        let before_last = self.messages.len().checked_sub(1);
        match (is_disturbed.then(|| self.draw(3)), before_last) {
            (Some(0), _) => self.gives_up_in = Some(GIVES_UP_AFTER),
            (Some(1), _) => self.messages.extend([(number, message.clone()), (number, message)]),
            (Some(_), Some(at)) => self.messages.insert(at, (number, message)),
            _ => self.messages.push_back((number, message)),
        }
    }

    /// Returns some of the messages that have arrived, and why there will be no more of them.
    fn pull(&mut self, max: usize) -> (Vec<Vec<u8>>, Option<String>) {
        // Mostly some of what has arrived, sometimes nothing.
        let some = self.draw(4) as usize;
        let count = if self.is_held { 0 } else { self.flushed.min(max).min(some) };
        self.flushed -= count;
        self.gives_up_in = self.gives_up_in.map(|looks| looks.saturating_sub(1));
        let mut pulled = Vec::new();
        for (number, message) in self.messages.drain(..count) {
            if number != self.expected && !planted(Bug::WireTrusted) {
                let why = format!("message {number} has arrived in the place of message {}", self.expected);
                return (pulled, Some(why));
            }
            self.expected = number + 1;
            pulled.push(message);
        }
        let is_cut = self.is_cut || self.gives_up_in == Some(0);
        (pulled, is_cut.then(|| "the link was cut".to_owned()))
    }
}

/// One end of a simulated link.
pub(super) struct WireEnd {
    pub(super) at: InstanceId,
    pub(super) incoming: Arc<Mutex<Wire>>,
    pub(super) outgoing: Arc<Mutex<Wire>>,
}

pub(super) fn lock(wire: &Mutex<Wire>) -> MutexGuard<'_, Wire> {
    wire.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Channel for WireEnd {
    fn on_wake(&mut self, _: Wake) {}

    fn send(&mut self, parts: &[&[u8]]) -> Result<(), ChannelError> {
        lock(&self.outgoing).push(parts.concat());
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ChannelError> {
        if steps::stopped() == Some(self.at) {
            // It has ended, and does not know it.
            return Ok(());
        }
        let mut wire = lock(&self.outgoing);
        wire.flushed = wire.messages.len();
        Ok(())
    }

    fn backlog(&self) -> usize {
        0
    }

    fn receive(&mut self, max: usize, take: &mut dyn FnMut(&[u8])) -> Result<usize, ChannelError> {
        let (taken, end) = lock(&self.incoming).pull(max);
        taken.iter().for_each(|message| take(message));
        let Some(why) = end else { return Ok(taken.len()) };
        lock(&self.outgoing).is_cut = true;
        Err(ChannelError::Gone(why))
    }

    fn has_arrivals(&mut self) -> bool {
        let wire = lock(&self.incoming);
        wire.flushed > 0 && !wire.is_held || wire.is_cut
    }

    fn arm(&mut self) {}
}
