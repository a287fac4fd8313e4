//! The end of a server, in phases, and the end of a connection that somebody asks for.
//!
//! Owns: the order of the phases, and waiting for either. Never: ends a connection itself; each looks.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

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
/// looking. What it waits for is polled only when that has woken it, as a session looks three times for a statement and nothing changes for years.
pub(crate) struct Ends {
    phase: watch::Receiver<Phase>,
    cancel: CancelHandle,
    /// Ends when one of both has changed.
    change: Pin<Box<dyn Future<Output = ()> + Send>>,
    signal: Arc<Signal>,
    /// The signal, as `change` is polled with it.
    waker: Waker,
    /// The phase when `change` was polled last.
    reached: Phase,
    /// The task that the signal wakes.
    task: Waker,
}

/// The signal that a change gives: it wakes the task that waits.
struct Signal {
    /// Set if there may be a change that was not looked at.
    is_given: AtomicBool,
    task: Mutex<Waker>,
}

impl Signal {
    /// Takes the signal back; returns whether it was given.
    fn take(&self) -> bool {
        // A look costs less than an exchange, and it is hardly ever given.
        self.is_given.load(Ordering::Acquire) && self.is_given.swap(false, Ordering::AcqRel)
    }

    fn task(&self) -> MutexGuard<'_, Waker> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.is_given.store(true, Ordering::Release);
        let task = self.task().clone();
        task.wake();
    }
}

impl Ends {
    pub(crate) fn new(phase: watch::Receiver<Phase>, cancel: CancelHandle) -> Ends {
        let change = Ends::change(&phase, &cancel);
        let signal =
            Arc::new(Signal { is_given: AtomicBool::new(true), task: Mutex::new(Waker::noop().clone()) });
        let waker = Waker::from(Arc::clone(&signal));
        Ends { phase, cancel, change, signal, waker, reached: Phase::Running, task: Waker::noop().clone() }
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

    /// Waits for a phase or, if a termination counts, for the end of the connection to be asked for.
    pub(crate) async fn wait(&mut self, phase: Phase, termination_counts: bool) {
        poll_fn(|context| {
            if !self.task.will_wake(context.waker()) {
                self.task.clone_from(context.waker());
                self.signal.task().clone_from(context.waker());
            }
            // What changes after this look gives the signal, and wakes the task.
            while self.signal.take() {
                self.look();
            }
            let is_asked = termination_counts && self.cancel.is_terminated();
            if self.reached >= phase || is_asked { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Polls the change; after one, what comes next has to be polled, too.
    #[cold]
    fn look(&mut self) {
        let has_changed = self.change.as_mut().poll(&mut Context::from_waker(&self.waker)).is_ready();
        // Without a server it is in its last phase, and no other one comes.
        let is_last = self.phase.has_changed().is_err();
        self.reached = if is_last { Phase::Ending } else { *self.phase.borrow_and_update() };
        if has_changed && !is_last {
            self.change = Ends::change(&self.phase, &self.cancel);
            self.signal.is_given.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;

    use atrapos_sql::CancelReason;

    use super::*;

    /// A task that counts how often it is woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Woken {
        /// Returns whether this task finds the wait over.
        fn finds(self: &Arc<Self>, ends: &mut Ends, phase: Phase, termination_counts: bool) -> bool {
            let waker = Waker::from(Arc::clone(self));
            pin!(ends.wait(phase, termination_counts)).poll(&mut Context::from_waker(&waker)).is_ready()
        }

        fn count(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    #[test]
    fn phases_wake_the_task_that_waits_and_are_seen() {
        let (phase, receiver) = watch::channel(Phase::Running);
        let mut ends = Ends::new(receiver, CancelHandle::default());
        let (first, second) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
        assert!(
            !first.finds(&mut ends, Phase::Draining, true) && !first.finds(&mut ends, Phase::Ending, false)
        );
        assert_eq!(first.count(), 0);
        phase.send_replace(Phase::Draining);
        assert_eq!(first.count(), 1);
        assert!(
            !first.finds(&mut ends, Phase::Ending, false) && first.finds(&mut ends, Phase::Draining, true)
        );
        assert!(!second.finds(&mut ends, Phase::Ending, true), "another task waits from now on");
        phase.send_replace(Phase::Ending);
        assert_eq!((first.count(), second.count()), (1, 1));
        assert!(
            second.finds(&mut ends, Phase::Ending, false) && second.finds(&mut ends, Phase::Draining, true)
        );
    }

    #[test]
    fn a_termination_wakes_the_task_once_and_phases_go_on() {
        let (phase, receiver) = watch::channel(Phase::Running);
        let cancel = CancelHandle::default();
        let mut ends = Ends::new(receiver, cancel.clone());
        let task = Arc::new(Woken::default());
        assert!(!task.finds(&mut ends, Phase::Draining, true));
        cancel.cancel_because(CancelReason::Request);
        assert!(!task.finds(&mut ends, Phase::Draining, true), "only its statement was to end");
        assert_eq!(task.count(), 0);
        cancel.cancel_because(CancelReason::Termination);
        assert_eq!(task.count(), 1);
        assert!(task.finds(&mut ends, Phase::Draining, true) && !task.finds(&mut ends, Phase::Ending, false));
        phase.send_replace(Phase::Draining);
        assert_eq!(task.count(), 2);
        assert!(task.finds(&mut ends, Phase::Draining, false));
    }

    #[test]
    fn without_a_server_the_wait_is_over() {
        let (phase, receiver) = watch::channel(Phase::Running);
        let mut ends = Ends::new(receiver, CancelHandle::default());
        let task = Arc::new(Woken::default());
        assert!(!task.finds(&mut ends, Phase::Ending, false));
        drop(phase);
        assert_eq!(task.count(), 1);
        assert!(task.finds(&mut ends, Phase::Ending, false) && task.finds(&mut ends, Phase::Ending, true));
    }
}
