//! The end of a server, in phases, and the end of a connection that somebody asks for.
//!
//! Owns: the order of the phases, and waiting for either. Never: ends a connection itself; each looks.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use atrapos_sql::CancelHandle;
use tokio::sync::watch;

/// The stance of the server towards connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// It takes new ones.
    Running,
    /// It refuses new ones (57P03) and ends those that are in no transaction (57P01).
    Draining,
    /// It cancels what runs and ends all (57P01).
    Ending,
}

/// The wait of one connection for its end. It lasts as long as the connection: beginning to wait anew for each message would cost more than
/// looking.
pub(crate) struct Ends {
    phase: watch::Receiver<Phase>,
    cancel: CancelHandle,
    /// Ends when one of both has changed.
    change: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Ends {
    pub(crate) fn new(phase: watch::Receiver<Phase>, cancel: CancelHandle) -> Ends {
        let change = Ends::change(&phase, &cancel);
        Ends { phase, cancel, change }
    }

    fn change(
        phase: &watch::Receiver<Phase>,
        cancel: &CancelHandle,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (mut phase, cancel) = (phase.clone(), cancel.clone());
        Box::pin(async move {
            tokio::select! {
                _ = phase.changed() => {}
                () = cancel.terminated(), if !cancel.is_terminated() => {}
            }
        })
    }

    /// Waits for a phase or, if it `counts`, for the end of the connection to be asked for.
    pub(crate) async fn wait(&mut self, phase: Phase, termination_counts: bool) {
        poll_fn(|context| {
            loop {
                let has_changed = self.change.as_mut().poll(context).is_ready();
                if has_changed {
                    self.phase.borrow_and_update();
                    self.change = Ends::change(&self.phase, &self.cancel);
                }
                // What changes after this look wakes the task.
                let is_asked = termination_counts && self.cancel.is_terminated();
                // Without a server it is in its last phase.
                if *self.phase.borrow() >= phase || is_asked || self.phase.has_changed().is_err() {
                    return Poll::Ready(());
                }
                if !has_changed {
                    return Poll::Pending;
                }
            }
        })
        .await;
    }
}
