//! The service of one client whose calls run on its thread, one after the other: for engines whose clients are threads.
//!
//! Owns: the order of calls and answers. Never: knows how a call is run. Invariant: a call is taken from the channel when the one before
//! it is answered, and only from a client that takes its answers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use atrapos::{CallError, InstanceId};
use atrapos_channel::{Channel, ChannelError};

use super::{PAUSE, UNREAD_BYTES_MAX, cut_off, send};
use crate::protocol::{self, Outcome, Reply, Request};

/// Runs a call of a procedure by its name, with encoded arguments: returns its encoded result, or the instance that owns its home key, if that
/// is another one.
pub type RunCall<'a> = dyn FnMut(&str, &[u8]) -> Result<Result<Vec<u8>, InstanceId>, CallError> + 'a;

/// Serves a client on this thread until it goes, or until `stopping` is set and the thread unparked.
///
/// # Errors
/// The reason for which the client was cut off.
pub fn serve_in_turn(
    mut channel: Box<dyn Channel>,
    stopping: &AtomicBool,
    run: &mut RunCall<'_>,
) -> Result<(), String> {
    let thread = thread::current();
    channel.on_wake(Box::new(move || thread.unpark()));
    loop {
        match turn(&mut *channel, run) {
            Ok(true) if stopping.load(Ordering::Acquire) => return Ok(()),
            Ok(true) => continue,
            Ok(false) => {}
            Err(ChannelError::Gone(_)) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        }
        if stopping.load(Ordering::Acquire) {
            return Ok(());
        }
        if channel.backlog() > 0 {
            thread::park_timeout(PAUSE);
            continue;
        }
        channel.arm();
        if !channel.has_arrivals() {
            thread::park();
        }
    }
}

/// Runs the next call, and answers it. Returns false if there is none, or the client leaves too many answers unread.
fn turn(channel: &mut dyn Channel, run: &mut RunCall<'_>) -> Result<bool, ChannelError> {
    channel.flush()?;
    if channel.backlog() > UNREAD_BYTES_MAX {
        return Ok(false);
    }
    let mut answer = None;
    let received = channel.receive(1, &mut |bytes| {
        answer = Some(protocol::read::<Request<'_>>(bytes).map(|request| {
            let outcome = match run(request.name, request.arguments) {
                Ok(Ok(result)) => Outcome::of_result(result),
                Ok(Err(elsewhere)) => Outcome::Elsewhere(elsewhere.0),
                Err(error) => Outcome::Failed(error.into()),
            };
            Reply { id: request.id, outcome }
        }));
    })?;
    match answer {
        Some(Ok(reply)) => send(channel, &reply)?,
        Some(Err(nonsense)) => return Err(cut_off(channel, nonsense)),
        None => {}
    }
    channel.flush()?;
    Ok(received > 0)
}
