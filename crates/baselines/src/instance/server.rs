//! The threads of an instance that work for transactions of others: one accepts links, and one for each link runs the parts of the
//! client at its other end.
//!
//! Owns: the life of a part, from its first request to its end. Never: believes a request: one that makes no sense cuts its link, with a
//! sentence, and aborts the part. A link that ends aborts its part, too: what was not decided is aborted (*presumed abort*). A part that is
//! prepared in a log aborts for nothing of that: it is in doubt, and asks.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use atrapos_channel::{Channel, ChannelError, Listener};
use atrapos_durability::wal::GlobalId;
use atrapos_partition::abort::{Abort, AbortReason, Advice};

use super::hardening::{Hardening, log_prepared};
use super::line::Line;
use super::steps::CommitStep;
use super::wire::{Operation, Replaced, Request, put_abort, put_answer, put_row};
use super::{Shared, in_doubt};
use crate::durable::ClientLog;
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
            Ok(Some(accepted)) if accepted.hello.from.is_client() => add_client(shared, accepted.channel),
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

/// Hands a client over to who serves them.
fn add_client(shared: &Shared, channel: Box<dyn Channel>) {
    let taken = shared.options.clients.as_ref().is_some_and(|clients| clients.send(channel).is_ok());
    if !taken {
        shared.note_failure("a client has connected, and this instance serves none".to_owned());
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
    let (mut client, log) = (shared.engine.client(), shared.hardening().map(Hardening::client));
    let (line, request, reply) = (Line::new(channel), Vec::new(), Vec::new());
    let mut link = Serving { shared, line, request, reply, log, prepared: None };
    loop {
        match link.next() {
            Ok(true) => {}
            // The client, or this instance, has ended in order.
            Ok(false) | Err(ChannelError::Gone(_)) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        }
        let first = Request::decode(&link.request)?;
        let (age, is_first) = (first.age, first.operation.begins() && first.replaced.is_empty());
        match first.operation {
            Operation::Settle => {
                link.settle()?;
                continue;
            }
            Operation::Ask(id) => {
                link.answer(id)?;
                continue;
            }
            _ => {}
        }
        if !is_first {
            return Err("it goes on with a transaction that has not begun".to_owned());
        }
        shared.see_age(age);
        let mut served = Ok(());
        let ran = client.run_branch(age, &mut |branch: &mut dyn Branch| {
            served = link.serve_part(branch, age);
            if let (Some(id), Some(log)) = (link.prepared.take(), &mut link.log) {
                in_doubt::resolve(shared, branch, id, log);
            }
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
    /// None if the data of the instance are in memory.
    log: Option<ClientLog<'s>>,
    /// Set if the part is prepared, durably, and was not told the outcome.
    prepared: Option<GlobalId>,
}

/// The effect of a request on its part.
enum Done {
    /// The part goes on.
    Goes,
    /// It has ended, and the client waits for an answer.
    Ends,
    /// It has ended, and the client waits for nothing.
    EndsSilently,
    /// The instance has stopped.
    Stops,
}

impl Serving<'_> {
    /// Waits for the next request; returns false if the instance ends.
    fn next(&mut self) -> Result<bool, ChannelError> {
        self.line.receive(&mut self.request, Some(&self.shared.stopping))
    }

    /// Answers when everything that was asked for before is done, and durable.
    fn settle(&mut self) -> Result<(), String> {
        if let Err(abort) = self.harden() {
            put_abort(&mut self.reply, &abort);
        } else {
            self.reply.clear();
            self.reply.push(1);
        }
        self.line.send(&self.reply).map_err(|error| error.to_string())
    }

    /// Answers a part in doubt.
    fn answer(&mut self, id: GlobalId) -> Result<(), String> {
        let hardening =
            self.shared.hardening().ok_or("it asks for an outcome, and nothing is logged here")?;
        let answer = hardening.answer(id);
        // Whoever has stopped says nothing.
        self.shared.check_alive().map_err(|abort| abort.to_string())?;
        put_answer(&mut self.reply, answer);
        self.line.send(&self.reply).map_err(|error| error.to_string())
    }

    /// Waits until everything that has been read here is durable.
    fn harden(&mut self) -> Result<(), Abort> {
        self.log.as_mut().map_or(Ok(()), ClientLog::harden)?;
        self.shared.check_alive()
    }

    /// Aborts a part, for a reason that the client is told.
    fn abort(&mut self, branch: &mut dyn Branch, abort: Abort) -> Result<(), String> {
        let mut cause = abort;
        if cause.reason().advice() != Advice::Retry {
            // What it has concluded from rows that were never there together is worthless, and what may vanish is not told.
            let invalid = if branch.is_optimistic() { branch.validate().err() } else { None };
            cause = invalid.or_else(|| self.harden().err()).unwrap_or(cause);
        }
        put_abort(&mut self.reply, &cause);
        // Told first: to take back an insertion may take a wait for somebody who waits for what the client has locked elsewhere.
        let sent = self.line.send(&self.reply).map_err(|error| error.to_string());
        branch.abort(&cause);
        sent
    }

    /// Runs one part, whose first request has come. If it is left prepared, it is in doubt.
    fn serve_part(&mut self, branch: &mut dyn Branch, age: u64) -> Result<(), String> {
        loop {
            let received = std::mem::take(&mut self.request);
            let request = Request::decode(&received)?;
            if request.age != age {
                return Err("it begins a transaction, and the one before has not ended".to_owned());
            }
            let done = self.perform(branch, &request);
            self.request = received;
            let done = match done {
                Ok(done) => done,
                Err(abort) => return self.abort(branch, abort),
            };
            match done {
                Done::Stops => return Err("the instance has stopped".to_owned()),
                Done::EndsSilently => return Ok(()),
                Done::Goes | Done::Ends => self.line.send(&self.reply).map_err(|error| error.to_string())?,
            }
            if self.prepared.is_some() && self.shared.stops.reached(CommitStep::Voted) {
                return Err("the instance has stopped".to_owned());
            }
            if !matches!(done, Done::Goes) {
                return Ok(());
            }
            match self.next() {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) if self.prepared.is_some() => {
                    return Err(format!("{error}; its transaction is in doubt"));
                }
                Err(error) => return Err(format!("{error}; its transaction was aborted")),
            }
        }
    }

    /// Performs a request, and writes the answer to the buffer.
    fn perform(&mut self, branch: &mut dyn Branch, request: &Request<'_>) -> Result<Done, Abort> {
        for Replaced { table, key, row } in &request.replaced {
            branch.replace_read(*table, key, row)?;
        }
        let reply = &mut self.reply;
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
            Operation::Confirm => {
                branch.validate()?;
                if !planted(Bug::AbortToldEarly) {
                    self.harden()?;
                }
            }
            Operation::Validate(id) => return self.vote(branch, id),
            Operation::Prepare(id) => {
                branch.lock()?;
                return self.vote(branch, id);
            }
            Operation::CommitAlone => return self.commit_alone(branch),
            Operation::Commit | Operation::Abort => {
                self.end(branch, request.operation == Operation::Commit);
                return Ok(Done::EndsSilently);
            }
            Operation::Settle | Operation::Ask(_) => {
                let why = "a client has asked about transactions that have ended while one had not";
                return Err(Abort::because(AbortReason::Misuse, why));
            }
        }
        Ok(Done::Goes)
    }

    /// Validates a part, prepares it, and votes for the commit; one without changes ends, and the answer says so.
    fn vote(&mut self, branch: &mut dyn Branch, id: GlobalId) -> Result<Done, Abort> {
        if !planted(Bug::PartNotValidated) {
            branch.validate()?;
        }
        let goes_on = branch.has_changes() && !planted(Bug::LocksReleasedWithVote);
        self.reply.push(u8::from(goes_on));
        if goes_on {
            return self.prepare(branch, id);
        }
        branch.commit();
        if !planted(Bug::PartToldEarly) {
            self.harden()?;
        }
        Ok(Done::Ends)
    }

    /// Logs that a part is prepared, if there is a log, and waits until that is durable.
    fn prepare(&mut self, branch: &mut dyn Branch, id: GlobalId) -> Result<Done, Abort> {
        let (shared, Some(log)) = (self.shared, &mut self.log) else { return Ok(Done::Goes) };
        shared.check_alive()?;
        let ticket = log_prepared(id, branch, log)?;
        if shared.stops.reached(CommitStep::PreparedLogged) {
            return Ok(Done::Stops);
        }
        log.log.wait(ticket)?;
        if shared.stops.reached(CommitStep::PreparedDurable) {
            return Ok(Done::Stops);
        }
        shared.check_alive()?;
        self.prepared = Some(id);
        Ok(Done::Goes)
    }

    /// Commits a transaction that has nothing elsewhere.
    fn commit_alone(&mut self, branch: &mut dyn Branch) -> Result<Done, Abort> {
        self.shared.check_alive()?;
        branch.commit_alone(self.log.as_mut())?;
        if self.shared.stops.reached(CommitStep::CommittedAlone) {
            return Ok(Done::Stops);
        }
        self.harden()?;
        Ok(Done::Ends)
    }

    /// Ends a part as its home says.
    fn end(&mut self, branch: &mut dyn Branch, commits: bool) {
        if let (Some(id), Some(log)) = (self.prepared.take(), &mut self.log) {
            in_doubt::end(self.shared, branch, id, commits, log);
        } else if commits {
            branch.commit();
        } else {
            branch.abort(&Abort::because(AbortReason::User, "the transaction was aborted at its home"));
        }
    }
}

/// Notes why a transaction of another instance could not be ended.
pub(super) fn note(shared: &Shared, abort: &Abort) {
    shared.note_failure(format!("a transaction in doubt could not be ended: {abort}"));
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
