//! The hand-off of a lock to the thread that waits for it.
//!
//! Owns: the state of one waiting thread and the handle by which it is woken. Never: decides anything. No unsafe code.
//!
//! # Protocol
//! The waiter sets `SPINNING` before its request can be seen. Whoever answers the request changes the state once, to
//! `GRANTED` or `VICTIM`. The waiter goes to sleep by changing `SPINNING` to `PARKED` with a compare-and-swap, which fails
//! if the answer is there, and sleeps until the state is an answer. Who answers a parked waiter takes its handle *before*
//! it writes the answer, which is its last access: the waiter may be gone afterwards. It unparks by the handle when it has
//! released its latch. (loom: `signal_*`.)
//!
//! Invariant: a state is answered by one thread at a time, under the latch of the queue in which the request waits.

use crate::primitives::{AtomicU32, Mutex, Ordering, lock, pause, thread};

use crate::planted::{Bug, planted};

/// Answers to a waiting transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It has the lock.
    Granted,
    /// It has to abort, to break a cycle.
    Victim,
}

const IDLE: u32 = 0;
const SPINNING: u32 = 1;
const PARKED: u32 = 2;
const GRANTED: u32 = 3;
const VICTIM: u32 = 4;

/// The times that a waiter looks before it sleeps. Few: the holder of a lock runs on for a whole transaction, and perhaps on this
/// very processor.
const SPINS: u32 = if cfg!(loom) { 1 } else { 40 };

/// The place where one thread waits for an answer.
#[derive(Default)]
pub(super) struct Signal {
    state: AtomicU32,
    thread: Mutex<Option<thread::Thread>>,
}

impl Signal {
    /// Declares that an answer is awaited. The request becomes visible to others after this.
    pub(super) fn expect(&self) {
        self.state.store(SPINNING, Ordering::Relaxed);
    }

    /// The answer, if it is there; it is taken once.
    pub(super) fn take(&self) -> Option<Answer> {
        let answer = match self.state.load(Ordering::Acquire) {
            GRANTED => Answer::Granted,
            VICTIM => Answer::Victim,
            _ => return None,
        };
        self.state.store(IDLE, Ordering::Relaxed);
        Some(answer)
    }

    /// Looks for the answer for a short while.
    pub(super) fn spin(&self) -> Option<Answer> {
        for _ in 0..SPINS {
            if let Some(answer) = self.take() {
                return Some(answer);
            }
            pause();
        }
        None
    }

    /// Sleeps until the answer is there, and takes it.
    pub(super) fn park(&self) -> Answer {
        *lock(&self.thread) = Some(thread::current());
        if planted(Bug::ParkOverwrites) {
            self.state.store(PARKED, Ordering::Relaxed);
        } else {
            // If it fails, the answer has come. The handle is published with the state.
            let _ = self.state.compare_exchange(SPINNING, PARKED, Ordering::Release, Ordering::Relaxed);
        }
        loop {
            if let Some(answer) = self.take() {
                return answer;
            }
            thread::park();
        }
    }

    /// Answers the waiter. Returns its handle if it has to be unparked. The waiter may be gone when this returns.
    #[must_use]
    pub(super) fn answer(&self, answer: Answer) -> Option<thread::Thread> {
        let state = match answer {
            Answer::Granted => GRANTED,
            Answer::Victim => VICTIM,
        };
        if self.state.compare_exchange(SPINNING, state, Ordering::Release, Ordering::Acquire).is_ok() {
            return None;
        }
        let thread = if planted(Bug::ParkedNotWoken) { None } else { lock(&self.thread).clone() };
        self.state.store(state, Ordering::Release);
        thread
    }
}
