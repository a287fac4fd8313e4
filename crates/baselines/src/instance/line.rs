//! [`Line`]: one end of a link between a client and the thread that serves it in another instance.
//!
//! Owns: the channel, and how its thread waits for a message: it looks for a moment, and then sleeps until the watcher wakes it.
//! Never: knows what a message means.

use std::sync::atomic::{AtomicBool, Ordering};

use atrapos_channel::{Channel, ChannelError};

/// The times that a thread looks for a message before it sleeps. Few: the other thread may need this very processor.
const LOOKS: u32 = 100;

/// One end of a link. It stays on the thread that has made it.
pub(super) struct Line {
    channel: Box<dyn Channel>,
}

impl Line {
    /// Takes an end of a link over for this thread.
    pub(super) fn new(mut channel: Box<dyn Channel>) -> Line {
        let thread = std::thread::current();
        channel.on_wake(Box::new(move || thread.unpark()));
        Line { channel }
    }

    /// Sends a message.
    pub(super) fn send(&mut self, message: &[u8]) -> Result<(), ChannelError> {
        self.channel.send(&[message])?;
        self.channel.flush()
    }

    /// Waits for a message and puts it into the buffer; returns false if `stopping` was set, about which the thread has been
    /// unparked.
    pub(super) fn receive(
        &mut self,
        into: &mut Vec<u8>,
        stopping: Option<&AtomicBool>,
    ) -> Result<bool, ChannelError> {
        let mut looks = 0;
        loop {
            let take = &mut |message: &[u8]| {
                into.clear();
                into.extend_from_slice(message);
            };
            if self.channel.receive(1, take)? > 0 {
                return Ok(true);
            }
            if stopping.is_some_and(|stopping| stopping.load(Ordering::Acquire)) {
                return Ok(false);
            }
            if self.channel.backlog() > 0 {
                self.channel.flush()?;
            }
            looks += 1;
            if looks < LOOKS {
                std::hint::spin_loop();
                continue;
            }
            self.channel.arm();
            if !self.channel.has_arrivals() {
                std::thread::park();
            }
        }
    }
}
