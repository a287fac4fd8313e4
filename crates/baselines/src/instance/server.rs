//! The threads of an instance that work for transactions of others: one accepts links, and one for each link runs the parts of the
//! client at its other end.
//!
//! Owns: the life of a part, from its first request to its end. Never: believes a request: one that makes no sense cuts its link, with a
//! sentence, and aborts the part. A link that ends aborts its part, too: what was not decided is aborted (*presumed abort*).

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use atrapos_channel::{Channel, ChannelError, Listener};
use atrapos_partition::abort::{Abort, AbortReason, Advice};

use super::Shared;
use super::line::Line;
use super::wire::{Operation, Replaced, Request, put_abort, put_row};
use crate::planted::{Bug, inherited, planted};
use crate::rows::Branch;

/// The time between two looks at the request to stop.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Bytes of rows after which an answer to a scan ends.
const PAGE_BYTES: usize = 1 << 20;

/// Accepts links, and has a thread serve each, until the instance ends.
pub(super) fn accept(shared: &Arc<Shared>, mut listener: Listener) {
    while !shared.stopping.load(Ordering::Acquire) {
        match listener.accept(LOOK_EVERY) {
            Ok(Some(accepted)) => start(shared, accepted.channel),
            Ok(None) => {}
            Err(error) => {
                shared.note_failure(error.to_string());
                thread::sleep(LOOK_EVERY);
            }
        }
        for refused in listener.take_refusals() {
            if !matches!(refused, ChannelError::Gone(_)) {
                shared.note_failure(refused.to_string());
            }
        }
    }
}

/// Starts the thread that serves a link.
fn start(shared: &Arc<Shared>, channel: Box<dyn Channel>) {
    let own = Arc::clone(shared);
    let serve = inherited(move || {
        if let Err(why) = serve(&own, channel) {
            own.note_failure(format!("a link was cut off: {why}"));
        }
    });
    match thread::Builder::new().name("atrapos-part".to_owned()).spawn(serve) {
        Ok(serving) => {
            let mut threads = shared.serving();
            threads.retain(|thread| !thread.is_finished());
            threads.push(serving);
        }
        Err(error) => shared.note_failure(format!("a link gets no thread, and was cut off: {error}")),
    }
}

/// Runs the parts of one client, one after the other, until its link or the instance ends.
fn serve(shared: &Shared, channel: Box<dyn Channel>) -> Result<(), String> {
    let mut client = shared.engine.client();
    let mut link = Serving { shared, line: Line::new(channel), request: Vec::new(), reply: Vec::new() };
    loop {
        match link.next() {
            Ok(true) => {}
            // The client, or this instance, has ended in order.
            Ok(false) | Err(ChannelError::Gone(_)) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        }
        let first = Request::decode(&link.request)?;
        if first.operation == Operation::Settle {
            link.line.send(&[1]).map_err(|error| error.to_string())?;
            continue;
        }
        if !first.operation.begins() || !first.replaced.is_empty() {
            return Err("it goes on with a transaction that has not begun".to_owned());
        }
        let age = first.age;
        shared.see_age(age);
        let mut served = Ok(());
        let ran = client.run_branch(age, &mut |branch: &mut dyn Branch| {
            served = link.serve_part(branch, age);
            Ok(())
        });
        served?;
        ran.map_err(|abort| abort.to_string())?;
    }
}

/// A link, and the buffers of its messages.
struct Serving<'s> {
    shared: &'s Shared,
    line: Line,
    request: Vec<u8>,
    reply: Vec<u8>,
}

/// The effect of a request on its part.
enum Done {
    /// The part goes on.
    Goes,
    /// It has ended, and the client waits for an answer.
    Ends,
    /// It has ended, and the client waits for nothing.
    EndsSilently,
}

impl Serving<'_> {
    /// Waits for the next request; returns false if the instance ends.
    fn next(&mut self) -> Result<bool, ChannelError> {
        self.line.receive(&mut self.request, Some(&self.shared.stopping))
    }

    /// Aborts a part, for a reason that the client is told.
    fn abort(&mut self, branch: &mut dyn Branch, abort: Abort) -> Result<(), String> {
        // What it has concluded from rows that were never there together is worthless.
        let is_believed = !branch.is_optimistic() || abort.reason().advice() == Advice::Retry;
        let invalid = if is_believed { None } else { branch.validate().err() };
        let abort = invalid.unwrap_or(abort);
        put_abort(&mut self.reply, &abort);
        // Told first: to take back an insertion may take a wait for somebody who waits for what the client has locked elsewhere.
        let sent = self.line.send(&self.reply).map_err(|error| error.to_string());
        branch.abort(&abort);
        sent
    }

    /// Runs one part, whose first request has come.
    fn serve_part(&mut self, branch: &mut dyn Branch, age: u64) -> Result<(), String> {
        loop {
            let request = Request::decode(&self.request)?;
            if request.age != age {
                return Err("it begins a transaction, and the one before has not ended".to_owned());
            }
            let done = perform(branch, &request, &mut self.reply);
            let done = match done {
                Ok(done) => done,
                Err(abort) => return self.abort(branch, abort),
            };
            if !matches!(done, Done::EndsSilently) {
                self.line.send(&self.reply).map_err(|error| error.to_string())?;
            }
            if !matches!(done, Done::Goes) {
                return Ok(());
            }
            match self.next() {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => return Err(format!("{error}; its transaction was aborted")),
            }
        }
    }
}

/// Performs a request, and writes the answer to the buffer.
fn perform(branch: &mut dyn Branch, request: &Request<'_>, reply: &mut Vec<u8>) -> Result<Done, Abort> {
    for Replaced { table, key, row } in &request.replaced {
        branch.replace_read(*table, key, row)?;
    }
    reply.clear();
    reply.push(1);
    match request.operation {
        Operation::Read { table, key, intent } => {
            let row = branch.read(table, key, intent)?;
            reply.push(u8::from(row.is_some()));
            row.into_iter().for_each(|row| put_row(reply, row));
        }
        Operation::Insert { table, key, row } => reply.push(branch.insert(table, key, row)?.into()),
        Operation::Remove { table, key } => reply.push(branch.remove(table, key)?.into()),
        Operation::Scan { .. } => scan(branch, &request.operation, reply)?,
        Operation::Lock => branch.lock()?,
        Operation::Validate => return vote(branch, reply),
        Operation::Prepare => {
            branch.lock()?;
            return vote(branch, reply);
        }
        Operation::CommitAlone => {
            branch.commit_alone()?;
            return Ok(Done::Ends);
        }
        Operation::Commit => {
            branch.commit();
            return Ok(Done::EndsSilently);
        }
        Operation::Abort => {
            branch.abort(&Abort::because(AbortReason::User, "the transaction was aborted at its home"));
            return Ok(Done::EndsSilently);
        }
        Operation::Settle => {
            let why = "a client has asked whether its transactions have ended while one had not";
            return Err(Abort::because(AbortReason::Misuse, why));
        }
    }
    Ok(Done::Goes)
}

/// Validates a part and votes for the commit; one without changes ends, and the answer says so.
fn vote(branch: &mut dyn Branch, reply: &mut Vec<u8>) -> Result<Done, Abort> {
    if !planted(Bug::PartNotValidated) {
        branch.validate()?;
    }
    let goes_on = branch.has_changes() && !planted(Bug::LocksReleasedWithVote);
    reply.push(u8::from(goes_on));
    if goes_on {
        return Ok(Done::Goes);
    }
    branch.commit();
    Ok(Done::Ends)
}

/// Visits as many rows of a range as were asked for, or fit in an answer.
fn scan(branch: &mut dyn Branch, operation: &Operation<'_>, reply: &mut Vec<u8>) -> Result<(), Abort> {
    let Operation::Scan { table, lower, upper, backward, rows_max } = *operation else { return Ok(()) };
    let (mut count, at) = (0_u32, reply.len());
    reply.extend([0; 5]);
    let has_more = branch.scan(table, (lower, upper), backward, &mut |key, row| {
        put_row(reply, key);
        put_row(reply, row);
        count += 1;
        let is_enough = count >= rows_max || reply.len() >= PAGE_BYTES;
        Ok(if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    reply[at] = u8::from(has_more);
    reply[at + 1..at + 5].copy_from_slice(&count.to_le_bytes());
    Ok(())
}
