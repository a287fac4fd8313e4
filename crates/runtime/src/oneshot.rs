//! One value from a worker to a thread or task outside the runtime.
//!
//! Owns: the value between `send` and its taking, and the waiter's `std` waker. Never: blocks the sender; sending is an
//! exchange of one byte and at most one wake-up. (Workers answer each other through calls, which need no atomics.)
//!
//! # Protocol
//! `state` goes from `EMPTY` to `SENT` or `LOST` once, by the sender. The receiver parks its waker between `EMPTY` and
//! `WAITING`: it may touch the waker's cell only while the state is `EMPTY` (and it has not announced the waker), the
//! sender only after it has exchanged `WAITING` for a final state. (loom: `oneshot_*`.)
//!
//! # Why the unsafe code is sound
//! - The value is written before the state becomes `SENT` (release) and read after it was seen (acquire); nobody writes
//!   after that.
//! - The waker's cell has one user at each state, as above. Both cells are options, dropped with the last end.

use std::cell::UnsafeCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
// A std waker is made from a std `Arc`, in a model too.
use std::sync::Arc as WakerArc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::call::Lost;
use crate::planted::{Bug, ordering, planted};
use crate::sync::{Arc, AtomicU8, Ordering, Shadow, thread};

/// No value sent, no waker announced.
const EMPTY: u8 = 0;
/// No value sent, a waker announced.
const WAITING: u8 = 1;
/// The value is there.
const SENT: u8 = 2;
/// The sender is gone without a value.
const LOST: u8 = 3;

struct Slot<T> {
    state: AtomicU8,
    value: UnsafeCell<Option<T>>,
    waker: UnsafeCell<Option<Waker>>,
    /// Cell 0 stands for `value`, cell 1 for `waker`.
    shadow: Shadow,
}

// SAFETY: the two cells pass between the two ends under the protocol above; a `T` moves to another thread, wakers may.
unsafe impl<T: Send> Send for Slot<T> {}
// SAFETY: as above: no two threads use one cell at once.
unsafe impl<T: Send> Sync for Slot<T> {}

/// The end that sends one value. Dropped without sending, it makes the receiver resolve to [`Lost`].
#[must_use = "a sender that is dropped makes its receiver resolve to `Lost`"]
pub struct Sender<T> {
    slot: Arc<Slot<T>>,
    sent: bool,
}

/// The end that waits for the value: a future for any executor, or a blocking wait.
#[must_use = "the answer is only known by waiting for it"]
pub struct Receiver<T> {
    slot: Arc<Slot<T>>,
}

/// Makes a pair of connected ends.
pub fn oneshot<T: Send>() -> (Sender<T>, Receiver<T>) {
    let slot = Arc::new(Slot {
        state: AtomicU8::new(EMPTY),
        value: UnsafeCell::new(None),
        waker: UnsafeCell::new(None),
        shadow: Shadow::new(2),
    });
    (Sender { slot: Arc::clone(&slot), sent: false }, Receiver { slot })
}

impl<T> Slot<T> {
    /// Sets a final state and wakes the receiver if it waits.
    fn finish(&self, state: u8, order: Ordering) {
        if self.state.swap(state, order) != WAITING {
            return;
        }
        self.shadow.access(1, 1);
        // SAFETY: the state was `WAITING` and is final now, so the waker's cell is the sender's.
        let waker = unsafe { (*self.waker.get()).take() };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Sender<T> {
    /// Sends the value and wakes the receiver. If the receiver is gone, the value is dropped with the last end.
    pub fn send(mut self, value: T) {
        self.sent = true;
        self.slot.shadow.access(0, 1);
        // SAFETY: before the state is final, the value's cell is the sender's.
        unsafe { *self.slot.value.get() = Some(value) };
        self.slot.finish(SENT, ordering(Bug::OneshotSend, Ordering::AcqRel));
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if !self.sent {
            self.slot.finish(LOST, Ordering::AcqRel);
        }
    }
}

impl<T: Send> Receiver<T> {
    /// The value or its loss, if either has come; else nothing.
    ///
    /// # Errors
    /// [`Lost`] inside the option: the sender is gone without a value, or the value was taken before.
    #[must_use = "the value is taken by this call"]
    pub fn try_take(&mut self) -> Option<Result<T, Lost>> {
        match self.slot.state.load(Ordering::Acquire) {
            SENT => {
                self.slot.shadow.access(0, 1);
                // SAFETY: the state is final, so the value's cell is the receiver's.
                Some(unsafe { (*self.slot.value.get()).take() }.ok_or(Lost))
            }
            LOST => Some(Err(Lost)),
            _ => None,
        }
    }

    /// Sleeps until the value comes.
    ///
    /// # Errors
    /// [`Lost`]: the sender is gone without a value.
    pub fn wait(mut self) -> Result<T, Lost> {
        self.block(None).unwrap_or(Err(Lost))
    }

    /// Sleeps until the value comes, but at most about `timeout`. `None` means that it has not come; the receiver can
    /// go on waiting.
    ///
    /// # Errors
    /// [`Lost`] inside the option: the sender is gone without a value, or the value was taken before.
    #[must_use = "the value is taken by this call"]
    #[cfg(not(loom))]
    pub fn wait_timeout(&mut self, timeout: Duration) -> Option<Result<T, Lost>> {
        self.block(Some(timeout))
    }

    fn block(&mut self, timeout: Option<Duration>) -> Option<Result<T, Lost>> {
        if let Some(result) = self.try_take() {
            return Some(result);
        }
        let waker = Waker::from(WakerArc::new(ThreadWaker(thread::current())));
        let mut context = Context::from_waker(&waker);
        #[cfg(not(loom))]
        let started = std::time::Instant::now();
        loop {
            if let Poll::Ready(result) = Pin::new(&mut *self).poll(&mut context) {
                return Some(result);
            }
            #[cfg(not(loom))]
            match timeout.map(|timeout| timeout.checked_sub(started.elapsed()).filter(|left| !left.is_zero()))
            {
                None => thread::park(),
                Some(Some(left)) => thread::park_timeout(left),
                Some(None) => return None,
            }
            #[cfg(loom)]
            {
                assert!(timeout.is_none(), "there is no time in a model");
                thread::park();
            }
        }
    }

    /// Puts a waker into the cell and announces it. Returns false if the sender was faster.
    ///
    /// The caller has seen a state that is not final.
    fn announce(&self, waker: &Waker) -> bool {
        let state = &self.slot.state;
        // Take back an earlier waker first. A sender that has seen it owns the cell from then on.
        match state.compare_exchange(WAITING, EMPTY, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) | Err(EMPTY) => {}
            Err(_) if planted(Bug::OneshotTakeBack) => {}
            Err(_) => return false,
        }
        let store = || {
            self.slot.shadow.access(1, 1);
            // SAFETY: the state is `EMPTY` or final after `EMPTY`: the sender does not touch the waker's cell.
            unsafe { *self.slot.waker.get() = Some(waker.clone()) };
        };
        if planted(Bug::OneshotWaker) {
            let announced =
                state.compare_exchange(EMPTY, WAITING, Ordering::AcqRel, Ordering::Acquire).is_ok();
            store();
            return announced;
        }
        store();
        state.compare_exchange(EMPTY, WAITING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

impl<T: Send> Future for Receiver<T> {
    type Output = Result<T, Lost>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(result) = self.try_take() {
            return Poll::Ready(result);
        }
        if self.announce(context.waker()) {
            return Poll::Pending;
        }
        Poll::Ready(self.try_take().unwrap_or(Err(Lost)))
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("oneshot::Sender")
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("oneshot::Receiver")
    }
}

/// Wakes a blocked thread.
struct ThreadWaker(thread::Thread);

impl Wake for ThreadWaker {
    fn wake(self: WakerArc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &WakerArc<Self>) {
        self.0.unpark();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_sent_value_is_taken_once() {
        let (sender, mut receiver) = oneshot();
        assert_eq!(receiver.try_take(), None);
        sender.send(7);
        assert_eq!(receiver.try_take(), Some(Ok(7)));
        assert_eq!(receiver.try_take(), Some(Err(Lost)));
    }

    #[test]
    fn a_dropped_sender_is_a_loss() {
        let (sender, mut receiver) = oneshot::<u32>();
        drop(sender);
        assert_eq!(receiver.wait_timeout(Duration::from_secs(60)), Some(Err(Lost)));
        assert_eq!(receiver.wait(), Err(Lost));
    }

    #[test]
    fn a_timeout_gives_the_receiver_back() {
        let (sender, mut receiver) = oneshot();
        assert_eq!(receiver.wait_timeout(Duration::from_millis(1)), None);
        let thread = thread::spawn(move || sender.send(7));
        assert_eq!(receiver.wait(), Ok(7));
        thread.join().expect("the sender does not fail");
    }

    #[test]
    fn a_value_nobody_takes_is_dropped() {
        let value = Arc::new(());
        let (sender, receiver) = oneshot();
        drop(receiver);
        sender.send(Arc::clone(&value));
        assert_eq!(Arc::strong_count(&value), 1);
        let (sender, receiver) = oneshot();
        sender.send(Arc::clone(&value));
        drop(receiver);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn threads_meet() {
        for round in 0..if cfg!(miri) { 5 } else { 500 } {
            let (sender, receiver) = oneshot();
            let thread = thread::spawn(move || sender.send(round));
            assert_eq!(receiver.wait(), Ok(round));
            thread.join().expect("the sender does not fail");
        }
    }
}
