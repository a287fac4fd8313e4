//! The flush daemon: the one thread that writes the log.
//!
//! Owns: the sink, and the position up to which the log is durable. Never: acknowledges before the write is durable; goes on after a
//! failure.
//!
//! Records become visible to it in any order, by their headers; it takes them in the order of the log, up to the first one that is
//! not complete. So the records are released in order without any thread waiting for another: in Aether, a
//! thread that has filled its part waits for those before it, or leaves its release to one of them.

use std::io;
use std::sync::atomic::Ordering;

use super::Shared;
use super::record::{length_of, occupied};
use super::sink::LogSink;
use crate::planted::{Bug, planted};

/// Writes the log until it is closed, or until the sink fails.
pub(super) fn run(shared: &Shared, sink: &mut dyn LogSink) {
    shared.sleeper.adopt_current_thread();
    let mut front = shared.durable.load(Ordering::Relaxed);
    loop {
        let end = complete_records(shared, front);
        if end > front {
            if let Err(error) = flush(shared, sink, front, end) {
                shared.fail(&error);
                return;
            }
            front = end;
        } else if shared.closing.load(Ordering::Acquire) && front == shared.reserved.load(Ordering::Acquire) {
            return;
        }
        shared.sleeper.park(|| has_work(shared, front), shared.flush_every);
    }
}

/// Returns true if somebody waits for a record that can be written, or the log is being closed.
fn has_work(shared: &Shared, front: u64) -> bool {
    if shared.closing.load(Ordering::Acquire) {
        return true;
    }
    shared.wanted.load(Ordering::Relaxed) > front && complete_records_begin(shared, front)
}

fn complete_records_begin(shared: &Shared, front: u64) -> bool {
    planted(Bug::HolesWritten) || shared.ring.completed(front) != 0
}

/// The end of the complete records from `front` on.
fn complete_records(shared: &Shared, front: u64) -> u64 {
    if planted(Bug::HolesWritten) {
        return shared.reserved.load(Ordering::Acquire);
    }
    let mut end = front;
    // A full ring comes back to its beginning, which has not been cleared.
    while end < front + shared.ring.capacity() {
        let header = shared.ring.completed(end);
        if header == 0 {
            break;
        }
        end += occupied(length_of(header));
    }
    end
}

/// Writes a range of complete records durably, and hands its space back.
fn flush(shared: &Shared, sink: &mut dyn LogSink, from: u64, to: u64) -> io::Result<()> {
    if planted(Bug::ToldBeforeWrite) {
        shared.set_durable(to);
    }
    // SAFETY: the headers of the range were seen, and it is cleared below.
    if let Err(error) = sink.write(unsafe { shared.ring.parts(from, to) })
        && !planted(Bug::FailureForgotten)
    {
        return Err(error);
    }
    shared.writes.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the sink is done with the parts.
    unsafe { shared.ring.clear(from, to) };
    shared.set_durable(to);
    Ok(())
}
