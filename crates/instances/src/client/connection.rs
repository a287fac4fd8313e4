//! A connection of a client to one instance: a thread sends the calls of all threads, and hands out the answers.
//!
//! Owns: the calls that have no answer yet. Invariant: every call is answered; one that was sent before the connection ended is
//! lost, one that was not is known not to have run.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use atrapos_channel::{Channel, ChannelError};

use crate::protocol::{self, Outcome, Reply, Request};

/// The answer to a call.
pub(super) enum Answer {
    Outcome(Outcome),
    /// The call has not reached the instance.
    NotSent(String),
    /// The call was sent, and the connection has ended.
    Lost(String),
}

/// A call that is to be sent.
struct Call {
    id: u64,
    message: Vec<u8>,
    answer: SyncSender<Answer>,
}

#[derive(Default)]
struct Queue {
    calls: Vec<Call>,
    /// The reason for which the connection has ended.
    ended: Option<String>,
    closing: bool,
}

pub(super) struct Connection {
    queue: Arc<Mutex<Queue>>,
    next_id: AtomicU64,
    thread: Option<JoinHandle<()>>,
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connection {
    /// Starts the thread of a connection.
    pub(super) fn start(channel: Box<dyn Channel>) -> Result<Connection, ChannelError> {
        let queue = Arc::new(Mutex::new(Queue::default()));
        let own = Arc::clone(&queue);
        let thread =
            thread::Builder::new().name("atrapos-calls".to_owned()).spawn(move || pump(channel, &own));
        let thread = thread.map_err(|error| ChannelError::Io {
            attempt: "start a thread for calls".to_owned(),
            reason: error.to_string(),
        })?;
        Ok(Connection { queue, next_id: AtomicU64::new(1), thread: Some(thread) })
    }

    pub(super) fn has_ended(&self) -> bool {
        lock(&self.queue).ended.is_some()
    }

    /// Sends a call and waits for the answer.
    pub(super) fn call(&self, name: &str, arguments: &[u8]) -> Answer {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let message = protocol::write(&Request { id, name, arguments });
        let (answer, answered) = sync_channel(1);
        {
            let mut queue = lock(&self.queue);
            if let Some(why) = &queue.ended {
                return Answer::NotSent(why.clone());
            }
            queue.calls.push(Call { id, message, answer });
        }
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
        answered.recv().unwrap_or_else(|_| Answer::Lost("the thread of the connection has ended".to_owned()))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        lock(&self.queue).closing = true;
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // One that has panicked has answered no call, and there is none any more.
            let _ended = thread.join();
        }
    }
}

/// Sends calls and hands out answers until the connection ends.
fn pump(mut channel: Box<dyn Channel>, queue: &Mutex<Queue>) {
    let thread = thread::current();
    channel.on_wake(Box::new(move || thread.unpark()));
    let mut waiting = HashMap::new();
    let ended = loop {
        let calls = {
            let mut queue = lock(queue);
            if queue.closing {
                break "this client has closed it".to_owned();
            }
            std::mem::take(&mut queue.calls)
        };
        match turn(&mut *channel, calls, &mut waiting) {
            Ok(true) => {}
            // A call or an end that came meanwhile has left its mark: then this returns at once.
            Ok(false) => thread::park(),
            Err(why) => break why,
        }
    };
    // Closed before the others are told: a call of theirs connects anew.
    drop(channel);
    let unsent = {
        let mut queue = lock(queue);
        queue.ended = Some(ended.clone());
        std::mem::take(&mut queue.calls)
    };
    // Nobody waits any more for an answer that cannot be handed out.
    for call in unsent {
        let _ = call.answer.send(Answer::NotSent(ended.clone()));
    }
    for answer in waiting.into_values() {
        let _ = answer.send(Answer::Lost(ended.clone()));
    }
}

/// Sends calls and hands out the answers that are there. Returns false if the thread is to sleep.
fn turn(
    channel: &mut dyn Channel,
    calls: Vec<Call>,
    waiting: &mut HashMap<u64, SyncSender<Answer>>,
) -> Result<bool, String> {
    let sentence = |error: ChannelError| error.to_string();
    let mut failed = None;
    for Call { id, message, answer } in calls {
        // Entered even if it fails: a part of it may have been sent.
        waiting.insert(id, answer);
        failed = failed.or(channel.send(&[&message]).err());
    }
    let flushed = channel.flush();
    let mut nonsense = None;
    let received = channel.receive(usize::MAX, &mut |bytes| match protocol::read::<Reply>(bytes) {
        Ok(Reply { outcome: Outcome::Cut(why), .. }) => {
            nonsense = Some(format!("it has cut this client off: {why}"));
        }
        Ok(Reply { id, outcome }) => {
            if let Some(answer) = waiting.remove(&id) {
                let _ = answer.send(Answer::Outcome(outcome));
            }
        }
        Err(why) => nonsense = Some(why),
    });
    if let Some(why) = nonsense {
        return Err(why);
    }
    let received = received.map_err(sentence)?;
    if let Some(error) = failed {
        return Err(sentence(error));
    }
    flushed.map_err(sentence)?;
    if received > 0 {
        return Ok(true);
    }
    channel.arm();
    Ok(channel.has_arrivals())
}
