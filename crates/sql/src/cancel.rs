//! The ends of statements and connections that others ask for: clients, limits of time, administrators.
//!
//! Owns: requests for an end, the list of connections by their numbers, and what is known of the wait of a statement. Never: waits for a time;
//! whoever serves the connection does, and asks.
//!
//! # Invariants
//! - The first request counts; one that came before the statement began is forgotten, except for the end of the connection.
//! - A statement that waits sees a request at once; one that runs sees it at the next look.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::activity::Activity;
use crate::advisory::Advisory;
use crate::error::{Severity, SqlError, SqlState};

/// The reason for which a statement is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CancelReason {
    /// A client, or somebody else, has asked for it.
    Request = 1,
    /// It has taken longer than `statement_timeout`.
    StatementTimeout,
    /// It has waited for a lock for longer than `lock_timeout`.
    LockTimeout,
    /// The connection is to end.
    Termination,
}

impl CancelReason {
    const ALL: [CancelReason; 4] = [
        CancelReason::Request,
        CancelReason::StatementTimeout,
        CancelReason::LockTimeout,
        CancelReason::Termination,
    ];

    /// Returns the error of a statement that ends for this reason.
    #[cold]
    #[must_use]
    pub fn error(self) -> SqlError {
        let (state, message) = match self {
            CancelReason::Request => (SqlState::QUERY_CANCELED, "canceling statement due to user request"),
            CancelReason::StatementTimeout => {
                (SqlState::QUERY_CANCELED, "canceling statement due to statement timeout")
            }
            CancelReason::LockTimeout => {
                (SqlState::LOCK_NOT_AVAILABLE, "canceling statement due to lock timeout")
            }
            CancelReason::Termination => {
                let message = "terminating connection due to administrator command";
                return SqlError::new(SqlState::ADMIN_SHUTDOWN, message).severity(Severity::Fatal);
            }
        };
        SqlError::new(state, message)
    }
}

/// Requests for the end of what a connection runs, or of the connection.
#[derive(Debug, Default)]
pub(crate) struct Cancel {
    /// The reason; 0 if nobody has asked.
    reason: AtomicU8,
    asked: Notify,
    is_terminated: AtomicBool,
    terminated: Notify,
    /// The moment from which on a statement's time is over, and the time that it has; none while no statement with a limit runs.
    deadline: Mutex<Option<(Instant, Duration)>>,
    /// False if there is no deadline. Only the statement's own thread sets one.
    has_deadline: AtomicBool,
    /// Odd while the statement is suspended on its worker; counted up by each suspension and its end.
    suspensions: AtomicU32,
    /// Set while the statement sleeps because it was told to.
    is_asleep: AtomicBool,
}

impl Cancel {
    /// Notes that the statement sleeps until the result is dropped: it waits for no lock.
    pub(crate) fn falls_asleep(self: &Arc<Self>) -> Asleep {
        self.is_asleep.store(true, Ordering::Relaxed);
        Asleep(Arc::clone(self))
    }

    pub(crate) fn ask(&self, reason: CancelReason) {
        let _ = self.reason.compare_exchange(0, reason as u8, Ordering::SeqCst, Ordering::SeqCst);
        self.asked.notify_waiters();
        if reason == CancelReason::Termination {
            self.is_terminated.store(true, Ordering::SeqCst);
            self.terminated.notify_waiters();
        }
    }

    /// Begins a statement that may take so long: forgets a request that came before it did.
    pub(crate) fn begin(&self, limit: Option<Duration>) {
        self.set_deadline(limit.and_then(|limit| Some((Instant::now().checked_add(limit)?, limit))));
        let kept =
            if self.is_terminated.load(Ordering::SeqCst) { CancelReason::Termination as u8 } else { 0 };
        if self.reason.load(Ordering::SeqCst) != kept {
            self.reason.store(kept, Ordering::SeqCst);
        }
    }

    /// Begins the next of the statements that run together: the time that each may take begins anew.
    pub(crate) fn next_statement(&self) {
        if !self.has_deadline.load(Ordering::Relaxed) {
            return;
        }
        if let Some((deadline, limit)) = &mut *self.deadline() {
            *deadline = Instant::now() + *limit;
        }
    }

    /// Ends a statement.
    pub(crate) fn end(&self) {
        self.set_deadline(None);
    }

    fn set_deadline(&self, deadline: Option<(Instant, Duration)>) {
        if deadline.is_some() || self.has_deadline.load(Ordering::Relaxed) {
            self.has_deadline.store(deadline.is_some(), Ordering::Relaxed);
            *self.deadline() = deadline;
        }
    }

    fn deadline(&self) -> MutexGuard<'_, Option<(Instant, Duration)>> {
        self.deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn check(&self) -> Result<(), SqlError> {
        let reason = self.reason.load(Ordering::SeqCst);
        match CancelReason::ALL.into_iter().find(|one| *one as u8 == reason) {
            Some(reason) => Err(reason.error()),
            None => Ok(()),
        }
    }

    /// Looks like [`check`](Cancel::check), and at the time: nobody else may be able to while a statement runs on its thread.
    pub(crate) fn check_time(&self) -> Result<(), SqlError> {
        let deadline = *self.deadline();
        if deadline.is_some_and(|(deadline, _)| Instant::now() >= deadline) {
            self.ask(CancelReason::StatementTimeout);
        }
        self.check()
    }

    /// Waits for work unless a request for its end comes first, or has come. Meanwhile [`waiting`](Cancel::waiting) tells whether the work
    /// is suspended.
    pub(crate) async fn until<T, E: From<SqlError>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let mut work = pin!(work);
        let mut asked = pin!(None);
        self.check()?;
        let mut suspended = Suspended { cancel: self, is_suspended: false };
        poll_fn(|context| {
            suspended.set(false);
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(done);
            }
            if asked.is_none() {
                // Most has been done by now. A request after this wakes the statement, one before it is seen now.
                asked.set(Some(self.asked.notified()));
                if let Some(asked) = asked.as_mut().as_pin_mut() {
                    asked.enable();
                }
                self.check()?;
            }
            if asked.as_mut().as_pin_mut().is_some_and(|asked| asked.poll(context).is_ready()) {
                return Poll::Ready(self.check().and(Err(CancelReason::Request.error())).map_err(E::from));
            }
            suspended.set(true);
            Poll::Pending
        })
        .await
    }

    fn waiting(&self) -> Option<u32> {
        let count = self.suspensions.load(Ordering::Relaxed);
        (count % 2 == 1 && !self.is_asleep.load(Ordering::Relaxed)).then_some(count)
    }
}

/// Notes the suspensions of a statement, the last of which ends with this.
struct Suspended<'a> {
    cancel: &'a Cancel,
    is_suspended: bool,
}

impl Suspended<'_> {
    fn set(&mut self, is_suspended: bool) {
        if self.is_suspended != is_suspended {
            self.is_suspended = is_suspended;
            self.cancel.suspensions.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Suspended<'_> {
    fn drop(&mut self) {
        self.set(false);
    }
}

/// The sleep of a statement, which ends with this.
pub(crate) struct Asleep(Arc<Cancel>);

impl Drop for Asleep {
    fn drop(&mut self) {
        self.0.is_asleep.store(false, Ordering::Relaxed);
    }
}

/// Ends what a connection runs, or the connection, from any thread. The default one is of no connection.
#[derive(Clone, Debug, Default)]
pub struct CancelHandle(pub(crate) Arc<Cancel>);

impl CancelHandle {
    /// Asks for the end of the statement that runs now, if one does.
    pub fn cancel(&self) {
        self.cancel_because(CancelReason::Request);
    }

    /// Asks for the end of the statement that runs now, if one does, with the error of a reason.
    pub fn cancel_because(&self, reason: CancelReason) {
        self.0.ask(reason);
    }

    /// Returns the moment at which the time of the statement that runs is over, if one with a limit runs.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.0.deadline().map(|(deadline, _)| deadline)
    }

    /// Waits until the end of the connection is asked for (by `pg_terminate_backend`). The connection cannot end itself: who serves it
    /// does.
    pub async fn terminated(&self) {
        let mut terminated = pin!(self.0.terminated.notified());
        terminated.as_mut().enable();
        if !self.is_terminated() {
            terminated.await;
        }
    }

    /// Returns true if the end of the connection was asked for.
    #[must_use]
    pub fn is_terminated(&self) -> bool {
        self.0.is_terminated.load(Ordering::SeqCst)
    }

    /// Returns the number of the suspension in which the statement is now, if it is in one. A statement that is in the same one for long waits
    /// for a lock: answers of other workers, and numbers of sequences, take milliseconds at most.
    #[must_use]
    pub fn waiting(&self) -> Option<u32> {
        self.0.waiting()
    }
}

/// A connection, as others see it.
#[derive(Debug)]
struct Known {
    cancel: Weak<Cancel>,
    activity: Arc<Activity>,
}

/// The connections of a database by their numbers, and their advisory locks.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    known: Mutex<HashMap<i32, Known>>,
    pub(crate) advisory: Advisory,
    /// The last number that a transaction was given.
    transactions: AtomicI64,
}

impl Connections {
    /// A number for a transaction, greater than all before it, those before the last restart included: it is at least the number of
    /// microseconds since 1970-01-01.
    pub(crate) fn next_transaction(&self) -> i64 {
        let now = crate::session::now();
        let next = |last: i64| Some(now.max(last + 1));
        let last = self.transactions.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        now.max(last.unwrap_or(0) + 1)
    }

    fn by_number(&self) -> MutexGuard<'_, HashMap<i32, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, number: i32, cancel: &Arc<Cancel>, activity: &Arc<Activity>) {
        let known = Known { cancel: Arc::downgrade(cancel), activity: Arc::clone(activity) };
        self.by_number().insert(number, known);
    }

    pub(crate) fn remove(&self, number: i32) {
        self.by_number().remove(&number);
        self.advisory.end_transaction(number);
        self.advisory.unlock_all(number);
    }

    /// The connections and their activity, in the order of their numbers.
    pub(crate) fn activity(&self) -> Vec<(i32, Arc<Activity>)> {
        let known = self.by_number();
        let mut all: Vec<_> =
            known.iter().map(|(number, known)| (*number, Arc::clone(&known.activity))).collect();
        all.sort_by_key(|(number, _)| *number);
        all
    }

    /// Returns true if the statement of the connection sleeps because it was told to.
    pub(crate) fn is_asleep(&self, number: i32) -> bool {
        let cancel = self.by_number().get(&number).and_then(|known| known.cancel.upgrade());
        cancel.is_some_and(|cancel| cancel.is_asleep.load(Ordering::Relaxed))
    }

    /// Looks at whether the statement of a connection was cancelled, and at the time.
    pub(crate) fn check(&self, number: i32) -> Result<(), SqlError> {
        let cancel = self.by_number().get(&number).and_then(|known| known.cancel.upgrade());
        cancel.map_or(Ok(()), |cancel| cancel.check_time())
    }

    /// Asks for an end of what a connection runs; returns false if there is no connection of this number.
    pub(crate) fn ask(&self, number: i32, reason: CancelReason) -> bool {
        let cancel = self.by_number().get(&number).and_then(|known| known.cancel.upgrade());
        cancel.is_some_and(|cancel| {
            cancel.ask(reason);
            true
        })
    }
}
