//! The channel of frames: messages over any stream of bytes.
//!
//! Owns: the frames that are being filled, written and read. Never: reads or writes its stream more than once per receive or
//! flush. Invariant: nothing of a frame is handed out before its checksum was compared.

use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, Timespec};

use std::sync::Arc;

use crate::error::ChannelError;
use crate::frame::{HEADER_BYTES, Header, LENGTH_BYTES, PAYLOAD_BYTES_MAX};
use crate::transport::Transport;
use crate::watcher::{Alarm, FdWatch, Role, Wake, Watcher};
use crate::{Channel, MESSAGE_BYTES_MAX, joined_bytes};

/// Messages of a flush share a frame until its payload has this many bytes.
const PAYLOAD_BYTES_SHARED: usize = 256 << 10;
/// What is read at once, and kept when it is empty.
const READ_BYTES: usize = 64 << 10;
/// An outgoing buffer that was larger is given back when it is empty.
const KEPT_BYTES: usize = 1 << 20;

/// One end of a link over a stream.
pub(crate) struct StreamChannel<T> {
    transport: T,
    outgoing: Outgoing,
    incoming: Incoming,
    /// The error that cut the link.
    cut: Option<ChannelError>,
    /// The error that writing has met: what has arrived before can be read still.
    unwritable: Option<ChannelError>,
    alarm: Arc<Alarm>,
    input_watch: FdWatch,
    output_watch: Option<FdWatch>,
}

impl<T: Transport> StreamChannel<T> {
    pub(crate) fn new(watcher: &Watcher, transport: T) -> Result<Self, ChannelError> {
        let alarm = Arc::new(Alarm::default());
        let watch =
            |fd, interest| watcher.watch_fd(Arc::clone(fd), Role::Stream, interest, Arc::clone(&alarm));
        let input_watch = watch(transport.input(), EventFlags::IN | EventFlags::RDHUP)?;
        let output_watch = transport.output().map(|fd| watch(fd, EventFlags::OUT)).transpose()?;
        Ok(Self {
            transport,
            outgoing: Outgoing::default(),
            incoming: Incoming::default(),
            cut: None,
            unwritable: None,
            alarm,
            input_watch,
            output_watch,
        })
    }

    fn error(&self) -> Result<(), ChannelError> {
        self.cut.as_ref().or(self.unwritable.as_ref()).map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Hands out what is buffered, after one more read if that is less than `max`.
    fn receive_uncut(&mut self, max: usize, take: &mut dyn FnMut(&[u8])) -> Result<usize, ChannelError> {
        let mut taken = self.incoming.hand_out(max, take)?;
        if taken == max {
            return Ok(taken);
        }
        match self.incoming.read(&mut self.transport) {
            Ok(false) => {}
            Ok(true) => taken += self.incoming.hand_out(max - taken, take)?,
            // What was taken is told first; the end is met again by the next call.
            Err(_) if taken > 0 => {}
            Err(error) => return Err(error),
        }
        Ok(taken)
    }
}

impl<T: Transport> Channel for StreamChannel<T> {
    fn on_wake(&mut self, wake: Wake) {
        self.alarm.set(wake);
    }

    #[inline]
    fn send(&mut self, parts: &[&[u8]]) -> Result<(), ChannelError> {
        self.error()?;
        let bytes = joined_bytes(parts);
        if bytes > MESSAGE_BYTES_MAX {
            return Err(ChannelError::TooLong { bytes, max: MESSAGE_BYTES_MAX });
        }
        self.outgoing.append(parts, bytes);
        Ok(())
    }

    #[inline]
    fn flush(&mut self) -> Result<(), ChannelError> {
        self.error()?;
        self.outgoing.seal();
        self.outgoing.write(&mut self.transport).inspect_err(|error| self.unwritable = Some(error.clone()))
    }

    fn backlog(&self) -> usize {
        self.outgoing.sealed - self.outgoing.written + usize::from(self.transport.is_behind())
    }

    #[inline]
    fn receive(&mut self, max: usize, take: &mut dyn FnMut(&[u8])) -> Result<usize, ChannelError> {
        self.input_watch.disarm();
        if let Some(watch) = &self.output_watch {
            watch.disarm();
        }
        if let Some(error) = &self.cut {
            return Err(error.clone());
        }
        match (self.receive_uncut(max, take), &self.unwritable) {
            // Nothing more has arrived from a peer that nothing can be sent to.
            (Ok(0), Some(error)) if max > 0 => Err(self.cut.insert(error.clone()).clone()),
            (result, _) => result.map_err(|error| self.cut.insert(error).clone()),
        }
    }

    fn has_arrivals(&mut self) -> bool {
        if self.error().is_err() || self.incoming.has_message() || self.transport.has_buffered() {
            return true;
        }
        let waits = self.backlog() > 0;
        let (input, output) = (self.transport.input(), self.transport.output());
        let own_output = output.is_none() && waits;
        let mut fds = [
            PollFd::new(input, PollFlags::IN | if own_output { PollFlags::OUT } else { PollFlags::empty() }),
            PollFd::new(output.unwrap_or(input), if waits { PollFlags::OUT } else { PollFlags::empty() }),
        ];
        // An error is an event that the owner must see.
        rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) != Ok(0)
    }

    fn arm(&mut self) {
        let arrivals = EventFlags::IN | EventFlags::RDHUP;
        let waits = self.backlog() > 0;
        match &mut self.output_watch {
            None => self.input_watch.arm(if waits { arrivals | EventFlags::OUT } else { arrivals }),
            Some(output) => {
                if waits {
                    output.arm(EventFlags::OUT);
                }
                self.input_watch.arm(arrivals);
            }
        }
    }
}

/// Frames on their way out: sealed ones, of which some bytes are written, and behind them the one that is being filled.
#[derive(Default)]
struct Outgoing {
    bytes: Vec<u8>,
    /// Bytes that the transport has taken.
    written: usize,
    /// Bytes of frames whose headers are complete.
    sealed: usize,
}

impl Outgoing {
    #[inline]
    fn append(&mut self, parts: &[&[u8]], bytes: usize) {
        let filled = self.bytes.len() - self.sealed;
        if filled > 0 && filled - HEADER_BYTES + LENGTH_BYTES + bytes > PAYLOAD_BYTES_SHARED {
            self.seal();
        }
        if self.bytes.len() == self.sealed {
            self.bytes.extend_from_slice(&[0; HEADER_BYTES]);
        }
        let length = u32::try_from(bytes).expect("a message is below MESSAGE_BYTES_MAX");
        self.bytes.extend_from_slice(&length.to_le_bytes());
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
    }

    /// Completes the frame that is being filled, if there is one.
    #[inline]
    fn seal(&mut self) {
        if self.bytes.len() > self.sealed {
            let (header, payload) = self.bytes[self.sealed..].split_at_mut(HEADER_BYTES);
            header.copy_from_slice(&Header::encode(payload));
            self.sealed = self.bytes.len();
        }
    }

    /// Writes sealed frames by one call.
    #[inline]
    fn write(&mut self, transport: &mut impl Transport) -> Result<(), ChannelError> {
        if self.written == self.sealed && !transport.is_behind() {
            return Ok(());
        }
        self.written += transport.write(&self.bytes[self.written..self.sealed])?;
        if self.written == self.bytes.len() {
            self.bytes.clear();
            self.bytes.shrink_to(KEPT_BYTES);
            (self.written, self.sealed) = (0, 0);
        } else if self.written > self.bytes.len() / 2 {
            // At most as many bytes are moved as were written.
            self.bytes.drain(..self.written);
            self.sealed -= self.written;
            self.written = 0;
        }
        Ok(())
    }
}

/// Bytes that have arrived.
#[derive(Default)]
struct Incoming {
    /// Memory, of which `start..end` has arrived and was not handed out.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes that are left, from `start` on, of the frame that is being handed out. It was checked.
    checked: usize,
    /// Bytes of the frame at `start`, as far as its header tells; at least a header.
    frame_bytes: usize,
}

impl Incoming {
    /// Hands out at most `max` messages of frames that are complete.
    fn hand_out(&mut self, max: usize, take: &mut dyn FnMut(&[u8])) -> Result<usize, ChannelError> {
        let mut taken = 0;
        while taken < max {
            if self.checked == 0 && !self.check_frame()? {
                break;
            }
            if self.checked > 0 {
                let message = self.message()?;
                take(&self.bytes[message]);
                taken += 1;
            }
        }
        Ok(taken)
    }

    /// Passes over the next message of the checked frame and returns where it lies.
    #[inline]
    fn message(&mut self) -> Result<std::ops::Range<usize>, ChannelError> {
        let payload = &self.bytes[self.start..self.start + self.checked];
        let message = payload.split_first_chunk().and_then(|(length, rest)| {
            let bytes = u32::from_le_bytes(*length) as usize;
            (bytes <= rest.len()).then_some(bytes)
        });
        let Some(bytes) = message else {
            return Err(ChannelError::Nonsense(
                "a message of it is longer than the frame that it is in".into(),
            ));
        };
        let from = self.start + LENGTH_BYTES;
        self.start = from + bytes;
        self.checked -= LENGTH_BYTES + bytes;
        Ok(from..self.start)
    }

    /// Checks the frame at `start` if all of it has arrived. Returns whether that is so.
    #[inline]
    fn check_frame(&mut self) -> Result<bool, ChannelError> {
        let arrived = &self.bytes[self.start..self.end];
        let Some((header, rest)) = arrived.split_first_chunk() else {
            self.frame_bytes = HEADER_BYTES;
            return Ok(false);
        };
        let header = Header::decode(header, PAYLOAD_BYTES_MAX)?;
        self.frame_bytes = HEADER_BYTES + header.bytes;
        if rest.len() < header.bytes {
            return Ok(false);
        }
        header.check(&rest[..header.bytes])?;
        self.start += HEADER_BYTES;
        self.checked = header.bytes;
        Ok(true)
    }

    /// Returns whether a message, or an error, can be handed out without a read.
    fn has_message(&self) -> bool {
        let arrived = &self.bytes[self.start..self.end];
        self.checked > 0
            || arrived.split_first_chunk().is_some_and(|(header, rest)| {
                Header::decode(header, PAYLOAD_BYTES_MAX).map_or(true, |header| header.bytes <= rest.len())
            })
    }

    /// Reads once. Returns whether anything came.
    fn read(&mut self, transport: &mut impl Transport) -> Result<bool, ChannelError> {
        self.make_room();
        match transport.read(&mut self.bytes[self.end..])? {
            None => Ok(false),
            Some(0) => Err(ChannelError::Gone(match self.end - self.start {
                0 => "its process has ended or closed the link".into(),
                bytes => format!("its process has ended {bytes} bytes into a frame"),
            })),
            Some(bytes) => {
                self.end += bytes;
                Ok(true)
            }
        }
    }

    /// Makes room for a read behind `end`: of the usual size, or twice what a long frame has brought so far, so that a length
    /// alone takes no memory.
    fn make_room(&mut self) {
        let arrived = self.end - self.start;
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, arrived);
        }
        let wanted = (2 * arrived).min(self.frame_bytes).max(READ_BYTES).max(arrived + 1);
        if self.bytes.len() < wanted {
            self.bytes.resize(wanted, 0);
        } else if arrived == 0 && self.bytes.len() > KEPT_BYTES {
            self.bytes = vec![0; READ_BYTES];
        }
    }
}

#[cfg(test)]
mod tests;
