//! The planted bugs by which the loom models show that they can fail.
//!
//! Owns: the list of weakened orderings and left-out steps. Never: changes anything in a build without `cfg(loom)`,
//! where every function here folds to its sound answer. Invariant: each planted bug has a loom model that must fail
//! with it (`loom_models.rs` runs each in a child process of its own).

use crate::sync::Ordering;

/// One deliberate mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    /// The ring's producer publishes its records with a relaxed store.
    RingPublish,
    /// The ring's consumer hands space back with a relaxed store.
    RingRelease,
    /// A producer that goes away leaves its last records unpublished.
    RingDrop,
    /// The sleeper does not look again between setting its flag and parking.
    ParkRecheck,
    /// The sleeper leaves out the fence between setting its flag and looking again.
    ParkSleeperFence,
    /// The waker leaves out the fence between publishing and reading the flag.
    ParkWakerFence,
    /// A sleeper in several places raises the flag of the first one only.
    ParkOneFlag,
    /// The inbox's sender fills its slot's turn with a relaxed store.
    InboxFill,
    /// A closed inbox takes closures still.
    InboxClose,
    /// A blocked sender goes to sleep without trying once more after it declared itself waiting.
    InboxRecheck,
    /// The inbox's receiver leaves out the fence between freeing slots and reading the count of waiting senders.
    InboxReceiverFence,
    /// A published value is numbered before it is replaced.
    PublishedNumberFirst,
    /// The oneshot's sender announces its value with a relaxed exchange.
    OneshotSend,
    /// The oneshot's receiver stores its waker after it has announced it.
    OneshotWaker,
    /// The oneshot's receiver replaces its waker although the sender may be taking it.
    OneshotTakeBack,
    /// A waker that has arrived takes its mark back with a relaxed exchange.
    WakerArrival,
    /// A waker that has arrived keeps its mark.
    WakerStaysTold,
}

#[cfg(not(loom))]
#[inline(always)]
pub(crate) const fn planted(_bug: Bug) -> bool {
    false
}

/// Returns whether this process was started to run with the given bug.
#[cfg(loom)]
pub(crate) fn planted(bug: Bug) -> bool {
    static PLANTED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let planted = PLANTED.get_or_init(|| std::env::var("ATRAPOS_PLANTED_BUG").ok());
    planted.as_deref().is_some_and(|name| name == format!("{bug:?}"))
}

/// The ordering at a place where a bug may be planted: the sound one, or relaxed.
#[inline(always)]
pub(crate) fn ordering(bug: Bug, sound: Ordering) -> Ordering {
    if planted(bug) { Ordering::Relaxed } else { sound }
}
