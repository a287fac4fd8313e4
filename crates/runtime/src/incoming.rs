//! The rings from all workers to one, as their receiver sees them.
//!
//! Owns: the receiving ends, and for each how far the receiver has come. Never: runs a ring's closures in another order than its own.
//!
//! A step looks at every ring, most of which have nothing new: with 64 workers a look at an index in each ring would touch 64
//! lines of each of 64 workers, more than the nearest cache has. So the producers' indices of one receiver's rings lie together
//! ([`Tails`](crate::ring::Tails)), and beside them the receiver keeps how far it has come in each: what differs is visited.
//!
//! # Invariant
//! Outside [`drain`](Incoming::drain) and what it runs, what is noted of a ring is its consumer's index.

use std::cell::Cell;

use crate::ring::{Consumer, Producer, Tails, rings};
use crate::sync::{Arc, Ordering};

/// The number of rings that a task looks at for messages at a time.
const RINGS_SEEN: usize = 8;

/// See the heading.
pub(crate) struct Incoming<C> {
    tails: Arc<Tails>,
    /// By origin: the index up to which the messages have been run.
    heads: Box<[Cell<usize>]>,
    rings: Box<[Consumer<C>]>,
    /// The ring from which on a task looks for messages next, where there are many.
    next_seen: Cell<usize>,
}

impl<C> Incoming<C> {
    /// Makes the rings of `bytes` bytes from so many workers to one, whose thread calls this. Returns their producers, too, by
    /// origin.
    pub(crate) fn new(workers: usize, bytes: usize) -> (Vec<Producer<C>>, Self) {
        let (producers, rings, tails) = rings(workers, bytes);
        let heads = rings.iter().map(|ring| Cell::new(ring.index())).collect();
        (producers, Self { tails, heads, rings: rings.into_boxed_slice(), next_seen: Cell::new(0) })
    }

    /// The number of rings.
    pub(crate) fn len(&self) -> usize {
        self.rings.len()
    }

    /// Runs up to so many messages of each ring on `context`. Returns how many ran.
    #[inline]
    pub(crate) fn drain(&self, context: &C, messages_per_ring: usize) -> usize {
        let mut ran = 0;
        for (from, ring) in self.rings.iter().enumerate() {
            if self.has_published(from) {
                ran += ring.drain(context, messages_per_ring);
                self.heads[from].set(ring.index());
            }
        }
        ran
    }

    #[inline(always)]
    fn has_published(&self, from: usize) -> bool {
        self.tails.of(from).load(Ordering::Acquire) != self.heads[from].get()
    }

    /// Returns whether any message is waiting.
    pub(crate) fn any_published(&self) -> bool {
        (0..self.len()).any(|from| self.has_published(from))
    }

    /// Returns whether any message is waiting. Of more than eight rings eight are looked at each time, in turns: a look costs a
    /// line that others write, or two.
    #[inline]
    pub(crate) fn some_published(&self) -> bool {
        let rings = self.len();
        if rings <= RINGS_SEEN {
            return self.any_published();
        }
        let begin = self.next_seen.get();
        self.next_seen.set((begin + RINGS_SEEN) % rings);
        (begin..begin + RINGS_SEEN).any(|at| self.has_published(at % rings))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::ring::RING_BYTES_MIN;

    type Log = RefCell<Vec<(usize, u64)>>;

    fn send(producers: &[Producer<Log>], from: usize, value: u64) {
        let pushed = producers[from].push(move |log: &Log| log.borrow_mut().push((from, value)));
        assert!(pushed.is_ok(), "there is room");
    }

    /// With few rings and with many: what is published is found, in its order and up to the limit, and nothing else.
    #[test]
    fn what_is_published_is_run_ring_by_ring() {
        for workers in [2, 8, 9, 40] {
            let (producers, incoming) = Incoming::<Log>::new(workers, RING_BYTES_MIN);
            let (last, log) = (workers - 1, Log::default());
            assert_eq!((incoming.len(), producers.len()), (workers, workers));
            for value in 0..3 {
                send(&producers, last, value);
            }
            assert!(!incoming.any_published(), "nothing is published yet");
            assert_eq!(incoming.drain(&log, usize::MAX), 0);
            producers[last].publish();
            assert!(incoming.any_published());
            assert_eq!(incoming.drain(&log, 2), 2);
            assert!(incoming.any_published(), "one is left");
            send(&producers, 0, 7);
            producers[0].publish();
            let left = incoming.drain(&log, usize::MAX);
            assert_eq!((left, &log.borrow()[..]), (2, &[(last, 0), (last, 1), (0, 7), (last, 2)][..]));
            assert!(!incoming.any_published());
        }
    }

    #[test]
    fn looks_in_turns_see_every_ring() {
        let (producers, incoming) = Incoming::<Log>::new(20, RING_BYTES_MIN);
        assert!((0..10).all(|_| !incoming.some_published()));
        for from in [0, 7, 8, 19] {
            send(&producers, from, 1);
            producers[from].publish();
            assert!((0..3).any(|_| incoming.some_published()), "ring {from}");
            assert_eq!(incoming.drain(&Log::default(), usize::MAX), 1);
            assert!((0..10).all(|_| !incoming.some_published()));
        }
    }
}
