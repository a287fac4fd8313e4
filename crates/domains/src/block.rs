//! Waiting on threads that are no workers: looking for a while, then asleep.

use std::cell::OnceCell;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

/// Looks before others are let run, and before the thread sleeps.
const LOOKS_BUSY: u32 = 2_000;
const LOOKS: u32 = 2_200;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    static WAKER: OnceCell<Waker> = const { OnceCell::new() };
}

/// Looks for a while whether something has come. Returns whether it has.
#[inline]
pub(crate) fn spin(mut come: impl FnMut() -> bool) -> bool {
    for look in 0..LOOKS {
        if come() {
            return true;
        }
        if look < LOOKS_BUSY {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
    come()
}

/// Polls until it is ready, asleep in between.
pub(crate) fn block_on<V>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<V>) -> V {
    let waker = WAKER
        .with(|waker| waker.get_or_init(|| Waker::from(Arc::new(Unpark(std::thread::current())))).clone());
    let mut context = Context::from_waker(&waker);
    loop {
        match poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}
