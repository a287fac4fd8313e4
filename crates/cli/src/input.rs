//! The standard input as a sign of life of whoever started this process.
//!
//! Owns: the wait for its end. Never: understands what arrives.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

/// Waits for the end of the standard input, at most as long as `patience`. Returns true if it has ended.
pub(crate) fn has_ended(patience: Duration) -> bool {
    let input = rustix::stdio::stdin();
    let patience =
        Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: i64::from(patience.subsec_nanos()) };
    match rustix::event::poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&patience)) {
        // An end is read as nothing; what is there instead is thrown away.
        Ok(1..) => rustix::io::read(input, &mut [0; 256]) == Ok(0),
        _ => false,
    }
}
