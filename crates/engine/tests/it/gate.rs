//! A gate that futures wait at.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// One side of a gate: it can be opened, and is a future that ends when it is open.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<Mutex<(bool, Option<Waker>)>>);

/// The two sides of a gate.
pub(crate) fn pair() -> (Gate, Gate) {
    let gate = Gate::default();
    (gate.clone(), gate)
}

impl Gate {
    pub(crate) fn open(&self) {
        let mut state = self.0.lock().unwrap();
        state.0 = true;
        if let Some(waker) = state.1.take() {
            waker.wake();
        }
    }
}

impl Future for Gate {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock().unwrap();
        state.1 = Some(context.waker().clone());
        if state.0 { Poll::Ready(()) } else { Poll::Pending }
    }
}
