//! The sleep word: how the owner of one side of a link says that it sleeps, and how the peer learns that it must ring.
//!
//! Owns: the states of the word, and the order of its reads and writes. Never: sleeps, or makes a system call.
//!
//! # Protocol
//! It is the one of a thread that parks. The owner sets its word, fences, looks for arrivals once more, and only then sleeps. The
//! peer publishes, fences, and reads the word. Both fences are sequentially consistent, so of the two at least one sees what the
//! other wrote: the owner finds the arrival, or the peer finds the word set. The peer that finds it set changes it to
//! rung, so that it rings once, and the owner's watcher knows for whom the bell rang. (loom: `sleep_*`.)
//!
//! A peer that means harm can leave the word as it is, or call it rung at any time: the owner then sleeps until something else wakes
//! it, or wakes for nothing.

use crate::planted::{Bug, planted};
use crate::sync::{AtomicU32, Ordering, fence};

/// The owner is awake; nobody needs to ring.
const AWAKE: u32 = 0;
/// The owner sleeps until a message arrives.
const FOR_ARRIVALS: u32 = 1;
/// The owner sleeps until a message arrives, or until the ring that it writes has room.
const FOR_ROOM: u32 = 2;
/// The peer has rung.
const RUNG: u32 = 3;

/// What the peer has done for the owner.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// Published a message.
    Arrival,
    /// Taken messages and handed their space back.
    Room,
}

/// Sets the owner's word. Arrivals that the owner does not find after this are rung for.
pub(crate) fn arm(word: &AtomicU32, for_room: bool) {
    word.store(if for_room { FOR_ROOM } else { FOR_ARRIVALS }, Ordering::Relaxed);
    if !planted(Bug::SleeperFence) {
        fence(Ordering::SeqCst);
    }
}

/// Resets the owner's word.
pub(crate) fn disarm(word: &AtomicU32) {
    word.store(AWAKE, Ordering::Relaxed);
}

/// Returns whether the peer, having done something that the owner may sleep for, must ring for it.
#[inline]
pub(crate) fn must_ring(word: &AtomicU32, event: Event) -> bool {
    if !planted(Bug::RingerFence) {
        fence(Ordering::SeqCst);
    }
    let state = word.load(Ordering::Relaxed);
    let waits = match event {
        Event::Arrival => state == FOR_ARRIVALS || state == FOR_ROOM,
        Event::Room => state == FOR_ROOM && !planted(Bug::RoomNotTold),
    };
    waits && word.compare_exchange(state, RUNG, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// Returns, to the owner's watcher, whether the peer has rung for the owner since this was asked last.
pub(crate) fn was_rung(word: &AtomicU32) -> bool {
    word.load(Ordering::Relaxed) == RUNG
        && word.compare_exchange(RUNG, AWAKE, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}
