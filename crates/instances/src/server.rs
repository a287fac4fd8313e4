//! The service of one client: its calls go to the workers, and the answers back, in the order in which they end.
//!
//! A thread of its own serves each client, so that a slow or hostile one keeps nobody else waiting. It sleeps while neither a call
//! arrives nor a transaction ends.
//!
//! Owns: the calls of a client that have not ended, at most [`CALLS_MAX`]. Never: runs a procedure; a worker does. Invariant: a
//! call whose home key belongs to another instance runs nothing here.

mod in_turn;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use atrapos::{CallError, Database, Registry, Submitted};
use atrapos_channel::{Channel, ChannelError, MESSAGE_BYTES_MAX};

pub use self::in_turn::{RunCall, serve_in_turn};
use crate::protocol::{self, Outcome, Reply, Request};

/// Calls of one client that may be under way; further ones wait in the channel.
const CALLS_MAX: usize = 256;

/// Bytes of answers that a client may leave unread before no more of its calls are taken.
const UNREAD_BYTES_MAX: usize = 1 << 20;

/// The pause before another look at a client that takes no answers, and at calls that are to end before a stop.
const PAUSE: Duration = Duration::from_millis(10);

/// The time in which calls may end that are under way when the instance stops.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// Bytes of an answer besides its result, at most.
const REPLY_HEAD_BYTES: usize = 32;

/// Serves a client until it goes or the instance stops, which wakes this thread.
///
/// # Errors
/// The reason for which the client was cut off.
pub(crate) fn serve(
    db: &Database,
    registry: &Registry,
    mut channel: Box<dyn Channel>,
    stopping: &AtomicBool,
) -> Result<(), String> {
    let thread = thread::current();
    channel.on_wake(Box::new(move || thread.unpark()));
    let mut calls = Calls::new(db, registry);
    let mut deadline = None;
    loop {
        let served = if stopping.load(Ordering::Acquire) {
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + STOP_PATIENCE);
            let idle = calls.under_way() == 0 && channel.backlog() == 0;
            if idle || Instant::now() >= deadline {
                return Ok(());
            }
            calls.answer_ended(&mut *channel).map(|()| Next::Pause)
        } else {
            calls.turn(&mut *channel)
        };
        match served {
            Ok(Next::Again) => {}
            Ok(Next::Pause) => thread::park_timeout(PAUSE),
            Ok(Next::Sleep) => thread::park(),
            Err(ChannelError::Gone(_)) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// What the thread of a client does next.
enum Next {
    /// Takes another turn.
    Again,
    /// Takes another turn after a pause, or when it is woken.
    Pause,
    /// Sleeps until it is woken.
    Sleep,
}

/// The calls of a client.
struct Calls<'a> {
    db: &'a Database,
    registry: &'a Registry,
    /// The calls that are under way, at the places that their wakers know.
    places: Vec<Option<Call>>,
    free: Vec<usize>,
    wakers: Vec<Waker>,
    woken: Arc<Woken>,
}

/// A call that is under way.
struct Call {
    id: u64,
    outcome: Submitted<Vec<u8>>,
}

/// The places whose transactions have ended, and the thread to tell.
struct Woken {
    places: Mutex<Vec<usize>>,
    thread: Thread,
}

impl Woken {
    fn take(&self) -> Vec<usize> {
        std::mem::take(&mut *self.places.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The waker of a place.
struct PlaceWaker {
    place: usize,
    woken: Arc<Woken>,
}

impl Wake for PlaceWaker {
    fn wake(self: Arc<Self>) {
        self.woken.places.lock().unwrap_or_else(PoisonError::into_inner).push(self.place);
        self.woken.thread.unpark();
    }
}

impl<'a> Calls<'a> {
    fn new(db: &'a Database, registry: &'a Registry) -> Calls<'a> {
        let woken = Arc::new(Woken { places: Mutex::default(), thread: thread::current() });
        let waker = |place| Waker::from(Arc::new(PlaceWaker { place, woken: Arc::clone(&woken) }));
        Calls {
            db,
            registry,
            places: (0..CALLS_MAX).map(|_| None).collect(),
            free: (0..CALLS_MAX).rev().collect(),
            wakers: (0..CALLS_MAX).map(waker).collect(),
            woken,
        }
    }

    fn under_way(&self) -> usize {
        CALLS_MAX - self.free.len()
    }

    /// Answers what has ended, and begins what has arrived.
    fn turn(&mut self, channel: &mut dyn Channel) -> Result<Next, ChannelError> {
        self.answer_ended(channel)?;
        if self.free.is_empty() || channel.backlog() > UNREAD_BYTES_MAX {
            return Ok(Next::Pause);
        }
        let (mut replies, mut nonsense) = (Vec::new(), None);
        let received = channel.receive(self.free.len(), &mut |bytes| {
            if nonsense.is_none() {
                match protocol::read(bytes) {
                    Ok(request) => replies.extend(self.begin(&request)),
                    Err(why) => nonsense = Some(why),
                }
            }
        })?;
        for reply in replies {
            send(channel, &reply)?;
        }
        if let Some(why) = nonsense {
            return Err(cut_off(channel, why));
        }
        channel.flush()?;
        if received > 0 {
            return Ok(Next::Again);
        }
        channel.arm();
        Ok(if channel.has_arrivals() { Next::Again } else { Next::Sleep })
    }

    /// Begins a call. Returns the answer to one that ends at once.
    fn begin(&mut self, request: &Request<'_>) -> Option<Reply> {
        let outcome = match self.submit(request) {
            Ok(Ok(submitted)) => {
                let place = self.free.pop().expect("no more calls are taken than there are places");
                self.places[place] = Some(Call { id: request.id, outcome: submitted });
                return self.poll(place);
            }
            Ok(Err(elsewhere)) => elsewhere,
            Err(error) => Outcome::Failed(error.into()),
        };
        Some(Reply { id: request.id, outcome })
    }

    /// Hands a call to its home, unless that is in another instance.
    fn submit(&self, request: &Request<'_>) -> Result<Result<Submitted<Vec<u8>>, Outcome>, CallError> {
        let call = self.registry.prepare(request.name, request.arguments)?;
        Ok(match self.db.scheme().instance_of(&call.route) {
            Some(other) => Err(Outcome::Elsewhere(other.0)),
            None => Ok(self.db.submit_call(call)?),
        })
    }

    /// Returns the answer to a call if its transaction has ended.
    fn poll(&mut self, place: usize) -> Option<Reply> {
        // A place may have been woken more than once.
        let call = self.places[place].as_mut()?;
        let mut context = Context::from_waker(&self.wakers[place]);
        let Poll::Ready(outcome) = Pin::new(&mut call.outcome).poll(&mut context) else { return None };
        let id = call.id;
        self.places[place] = None;
        self.free.push(place);
        let outcome = match outcome {
            Ok(result) => Outcome::of_result(result),
            Err(abort) => Outcome::Failed(CallError::Aborted(abort).into()),
        };
        Some(Reply { id, outcome })
    }

    /// Answers the calls whose transactions have ended.
    fn answer_ended(&mut self, channel: &mut dyn Channel) -> Result<(), ChannelError> {
        for place in self.woken.take() {
            if let Some(reply) = self.poll(place) {
                send(channel, &reply)?;
            }
        }
        channel.flush()
    }
}

impl Outcome {
    /// Returns the outcome of a transaction that has committed.
    fn of_result(result: Vec<u8>) -> Outcome {
        if result.len() > MESSAGE_BYTES_MAX - REPLY_HEAD_BYTES {
            return Outcome::ResultTooLong { bytes: result.len() as u64 };
        }
        Outcome::Done(result)
    }
}

/// Tells a client why it is cut off, and returns the error of its channel. One that has gone, or does not read, is not told.
fn cut_off(channel: &mut dyn Channel, why: String) -> ChannelError {
    let _told = send(channel, &Reply { id: 0, outcome: Outcome::Cut(why.clone()) });
    let _told = channel.flush();
    ChannelError::Nonsense(why)
}

fn send(channel: &mut dyn Channel, reply: &Reply) -> Result<(), ChannelError> {
    channel.send(&[&protocol::write(reply)])
}
