//! A slot of the consolidation array: threads that find the log's tail taken reserve together.
//!
//! Owns: the two words of a slot. Never: touches the log's memory. No unsafe code.
//!
//! # Protocol
//! The state counts the members of the group and the bytes that they want, and says whether the group is closed. A thread
//! joins an open group by a compare-and-swap; what was wanted before is its offset. The first one is the leader:
//! it takes the tail's mutex, closes the group, reserves for all, and publishes the position. Each member adds its offset
//! to it and leaves; the last one to leave opens the slot for another group. (loom: `slot_*`.)
//!
//! Invariant: while a group is closed nobody joins, so the position that a member reads is that of its own group.

use crate::primitives::{AtomicU64, Ordering, pause, thread};

use crate::planted::{Bug, ordering, planted};

const MEMBER: u64 = 1 << 32;
const CLOSED: u64 = 1 << 63;
/// No position has been published.
const UNKNOWN: u64 = u64::MAX;
/// The leader could not reserve.
const FAILED: u64 = u64::MAX - 1;

/// The times that a member looks for the position before it lets others run.
const SPINS: u32 = if cfg!(loom) { 1 } else { 128 };
/// The times that it lets others run before it sleeps.
const YIELDS: u32 = if cfg!(loom) { 0 } else { 8 };

/// A slot, on cache lines of its own.
#[repr(align(128))]
pub(super) struct Slot {
    /// Bytes wanted (32 bits), members (31 bits), closed (1 bit).
    state: AtomicU64,
    base: AtomicU64,
}

/// The place of a member in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Joined {
    pub(super) offset: u64,
    pub(super) leads: bool,
}

impl Default for Slot {
    fn default() -> Slot {
        Slot { state: AtomicU64::new(0), base: AtomicU64::new(UNKNOWN) }
    }
}

impl Slot {
    const fn bytes(state: u64) -> u64 {
        state & (MEMBER - 1)
    }

    /// Joins the group, unless it is closed or would want more than `bytes_max` bytes.
    pub(super) fn join(&self, bytes: u64, bytes_max: u64) -> Option<Joined> {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let offset = Slot::bytes(state);
            if state & CLOSED != 0 || offset + bytes > bytes_max {
                return None;
            }
            let member = if planted(Bug::MemberNotCounted) && state != 0 { 0 } else { MEMBER };
            let next = state + member + bytes;
            // Acquire: the last group has taken its position back.
            match self.state.compare_exchange_weak(state, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(Joined { offset, leads: state == 0 }),
                Err(now) => state = now,
            }
        }
    }

    /// Closes the group. Returns the bytes that it wants. For the leader, which holds the tail's mutex.
    pub(super) fn close(&self) -> u64 {
        Slot::bytes(self.state.fetch_or(CLOSED, Ordering::Relaxed))
    }

    /// Publishes the group's position; nothing if there is none for it. For the leader, which leaves afterwards.
    pub(super) fn publish(&self, base: Option<u64>) {
        // Release: the members write into memory of which the leader knows that it is free.
        self.base.store(base.unwrap_or(FAILED), ordering(Bug::BasePublishedRelaxed, Ordering::Release));
        if planted(Bug::SlotReopenedEarly) {
            self.reopen();
        } else {
            self.leave();
        }
    }

    /// Waits for the position of the group, and leaves. `sleep` waits for the leader in a longer way.
    pub(super) fn base(&self, mut sleep: impl FnMut()) -> Option<u64> {
        let mut looks = 0;
        let base = loop {
            match self.base.load(Ordering::Acquire) {
                UNKNOWN if looks < SPINS => pause(),
                UNKNOWN if looks < SPINS + YIELDS => thread::yield_now(),
                UNKNOWN => sleep(),
                base => break base,
            }
            looks += 1;
        };
        if !planted(Bug::SlotReopenedEarly) {
            self.leave();
        }
        (base != FAILED).then_some(base)
    }

    fn leave(&self) {
        // Acquire, by the last member: what the others have read is not overwritten before they have read it.
        let state = self.state.fetch_sub(MEMBER, Ordering::AcqRel);
        if (state & !CLOSED) / MEMBER == 1 {
            self.reopen();
        }
    }

    fn reopen(&self) {
        self.base.store(UNKNOWN, Ordering::Relaxed);
        self.state.store(0, Ordering::Release);
    }
}
