//! The planted bugs by which the loom models and the checks of histories show that they can fail.
//!
//! Owns: the list of weakened orderings and left-out steps. Never: changes anything in a build without `cfg(loom)` or
//! `cfg(test)`, where every function here folds to its sound answer.

use crate::sync::Ordering;

/// One deliberate mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A client publishes its request with a relaxed store.
    Publish,
    /// A worker publishes its answers with a relaxed store.
    Answer,
    /// A client that has published passes no fence before it looks whether the worker sleeps.
    PublishWithoutBarrier,
    /// A worker that is about to sleep does not look whether a client has asked to be woken.
    SleepUnasked,
    /// A worker goes past a task that it passed on.
    PassPast,
    /// A worker runs tasks in slots whose lease it has not read.
    ServeUnread,
    /// An ordered client goes to its new ring while its old one is under way.
    ChangeRingEarly,
    /// An ordered client notes the first structure of a task only.
    OrderByFirst,
    /// A client asks the nearest worker of a domain for slots, and no other.
    LeaseNearestOnly,
    /// A change of the domains does not wake the clients that wait for slots.
    ChangeUnsaid,
    /// A task is passed on to a worker that waits for it.
    PassUnseen,
    /// A task that polls a future is not seen to wait for it.
    PollUnseen,
    /// A task that has ended still counts as waiting for the futures that it polled.
    PollKept,
    /// A worker begins at its first ring again after each task that has polled a future in vain.
    PollStops,
    /// A future that is ready or dropped still counts as polled.
    PollKeptReady,
    /// A task that waits for one that was passed on does not wait for the worker that takes its answer back.
    ForgetServer,
    /// A worker gives its buffer to one that waits for it.
    HandOverToWaiting,
    /// The number of a worker or domain that has ended is used again while changes are under way.
    ReuseEarly,
    /// A structure whose message went to the heir of a worker has the route of the worker that left.
    RouteToLeft,
    /// A buffer that went to the heir of a worker has the worker that left as its server.
    ServeUnsaid,
    /// A move or replacement of a structure that has just gone on is forgotten.
    LoseGone,
    /// A client that finds slots of one that is gone does not wake those that wait for some.
    ForgetWaiting,
    /// A burst that is turned to another target does not send first what it has gathered.
    TurnUnsent,
}

#[cfg(not(any(loom, test)))]
#[inline(always)]
pub(crate) const fn planted(_bug: Bug) -> bool {
    false
}

/// Returns whether this process was started to run with the given bug.
#[cfg(any(loom, test))]
pub(crate) fn planted(bug: Bug) -> bool {
    static PLANTED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let planted = PLANTED.get_or_init(|| std::env::var("ATRAPOS_PLANTED_BUG").ok());
    planted.as_deref().is_some_and(|name| name == format!("{bug:?}"))
}

/// Runs a test of this binary with a bug, which it has to notice.
#[cfg(test)]
pub(crate) fn must_notice(test: &str, bug: Bug) {
    let output = std::process::Command::new(std::env::current_exe().expect("a test knows its own path"))
        .args([test, "--exact", "--test-threads=1"])
        .env("ATRAPOS_PLANTED_BUG", format!("{bug:?}"))
        .output()
        .expect("a test starts itself");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("running 1 test"), "{test} is not a test of this binary");
    assert!(!output.status.success(), "{test} does not notice the planted bug {bug:?}");
}

/// The ordering at a place where a bug may be planted: the sound one, or relaxed.
#[inline(always)]
pub(crate) fn ordering(bug: Bug, sound: Ordering) -> Ordering {
    if planted(bug) { Ordering::Relaxed } else { sound }
}
