//! The limits of time of a session, which its settings have.
//!
//! Owns: measuring them, and asking for the end of a statement that exceeds one. Never: ends one itself.
//!
//! Invariant: a wait for a lock is found by looking now and then whether the statement is still in the same suspension; so it ends between
//! one and one and a half times its limit, and a statement that does not wait is not asked at all.

use std::future::pending;
use std::time::Duration;

use atrapos_sql::{CancelHandle, CancelReason, TimeLimits};
use tokio::time::{Instant, sleep, sleep_until};

/// Looks at a statement in the time of its limit for locks.
const LOOKS: u32 = 4;

/// The shortest pause between two looks.
const SHORTEST_LOOK: Duration = Duration::from_millis(1);

/// Waits for a time; for ever if there is none.
pub(crate) async fn pass(time: Option<Duration>) {
    match time {
        // In a box: an idle session has none.
        Some(time) => Box::pin(sleep(time)).await,
        None => pending().await,
    }
}

/// Asks for the end of a statement that begins now when it exceeds a limit. Never ends: the statement does.
pub(crate) async fn enforce(limits: TimeLimits, cancel: &CancelHandle) {
    if limits.statement.is_none() && limits.lock.is_none() {
        return pending().await;
    }
    Box::pin(look_again(limits, cancel)).await;
}

async fn look_again(limits: TimeLimits, cancel: &CancelHandle) {
    let began = Instant::now();
    let mut suspended: Option<(u32, Instant)> = None;
    loop {
        let now = Instant::now();
        // Of several statements that run together each has the time for itself.
        let running = || cancel.deadline().map(Instant::from_std);
        let end = limits.statement.map(|limit| running().unwrap_or(began + limit));
        if let Some(limit) = limits.lock {
            suspended = match (cancel.waiting(), suspended) {
                (Some(number), Some((before, since))) if number == before => {
                    if now.duration_since(since) >= limit {
                        cancel.cancel_because(CancelReason::LockTimeout);
                    }
                    suspended
                }
                (waiting, _) => waiting.map(|number| (number, now)),
            };
        }
        if end.is_some_and(|end| now >= end) {
            cancel.cancel_because(CancelReason::StatementTimeout);
            return pending().await;
        }
        let look = limits.lock.map(|limit| now + (limit / LOOKS).max(SHORTEST_LOOK));
        match (look, end) {
            (Some(look), Some(end)) => sleep_until(look.min(end)).await,
            (Some(at), None) | (None, Some(at)) => sleep_until(at).await,
            (None, None) => return pending().await,
        }
    }
}
