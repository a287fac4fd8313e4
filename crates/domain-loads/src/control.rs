//! [`Control`]: the beginning and the end of a round, common to all threads that drive it.
//!
//! Owns: the gate, the signal to stop, and who has ended. Never: runs an operation.
//!
//! Invariant: a turn that is dropped counts as arrived and ended, so a driver that cannot begin holds nobody up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::load::Length;

/// Operations between two looks at the signal.
const CHUNK: u64 = 32;
/// Time between two looks of the thread that conducts a round.
const LOOK: Duration = Duration::from_millis(5);
/// The same where something is about to happen.
const LOOK_SHORT: Duration = Duration::from_micros(100);

#[derive(Debug, Default)]
pub(crate) struct Control {
    arrived: AtomicUsize,
    open: AtomicBool,
    stop: AtomicBool,
    ended: AtomicUsize,
}

/// The part of one driver in a round.
#[derive(Debug)]
pub(crate) struct Turn {
    control: Arc<Control>,
    /// Operations of this driver at most.
    limit: u64,
    /// Set if the limit ends the round for all, which otherwise do as many operations each.
    is_common: bool,
    arrived: bool,
}

impl Turn {
    pub(crate) fn new(control: &Arc<Control>, length: Length, limit: u64) -> Turn {
        let is_common = matches!(length, Length::Time(_));
        Turn { control: Arc::clone(control), limit, is_common, arrived: false }
    }

    /// Waits until all drivers are there, and returns the moment.
    pub(crate) fn begin(&mut self) -> Instant {
        self.arrive();
        while !self.control.open.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        Instant::now()
    }

    fn arrive(&mut self) {
        if !std::mem::replace(&mut self.arrived, true) {
            self.control.arrived.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The number of operations to do until the next call; 0 at the end. There are some at first, even if the system let this thread
    /// wait until the time was over: so every round has a throughput.
    #[inline]
    pub(crate) fn next(&self, done: u64) -> u64 {
        if done > 0 && self.control.stop.load(Ordering::Relaxed) {
            return 0;
        }
        if done == self.limit && self.is_common {
            self.control.stop();
        }
        CHUNK.min(self.limit - done)
    }
}

impl Turn {
    /// Waits until all drivers are there, and has `work` done until the end: it gets the number of operations to do at most, and returns how many it has
    /// done. Returns the moment of the beginning.
    #[inline]
    pub(crate) fn drive<E>(&mut self, mut work: impl FnMut(u64) -> Result<u64, E>) -> Result<Instant, E> {
        let (mut done, began) = (0, self.begin());
        loop {
            match self.next(done) {
                0 => return Ok(began),
                most => done += work(most)?,
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.arrive();
        self.control.ended.fetch_add(1, Ordering::AcqRel);
    }
}

impl Control {
    /// Ends the round as soon as possible.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.open.store(true, Ordering::Release);
    }

    /// Lets so many drivers begin once all have arrived, and ends the round when its time is over. Returns whether it was interrupted.
    pub(crate) fn conduct(&self, drivers: usize, length: Length, interrupt: &AtomicBool) -> bool {
        while self.arrived.load(Ordering::Acquire) < drivers {
            std::thread::sleep(LOOK_SHORT);
        }
        self.open.store(true, Ordering::Release);
        let began = Instant::now();
        let mut interrupted = false;
        while self.ended.load(Ordering::Acquire) < drivers {
            interrupted |= interrupt.load(Ordering::Relaxed);
            let left = match length {
                Length::Time(time) => time.saturating_sub(began.elapsed()),
                Length::Operations(_) => Duration::MAX,
            };
            if interrupted || left.is_zero() {
                self.stop();
            }
            std::thread::sleep(left.clamp(LOOK_SHORT, LOOK));
        }
        interrupted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_ends_a_round_by_time_for_all_and_one_by_operations_for_each() {
        for (length, other) in [(Length::Time(LOOK), 0), (Length::Operations(40), CHUNK)] {
            let control = Arc::default();
            let turns = [Turn::new(&control, length, 40), Turn::new(&control, length, 40)];
            assert_eq!((turns[0].next(0), turns[0].next(32), turns[0].next(40)), (CHUNK, 8, 0));
            assert_eq!((turns[1].next(0), turns[1].next(8)), (CHUNK, other));
        }
    }

    #[test]
    fn a_turn_that_is_dropped_holds_nobody_up() {
        let control = Arc::default();
        drop(Turn::new(&control, Length::Operations(1), 1));
        let interrupted = control.conduct(1, Length::Operations(1), &AtomicBool::new(false));
        assert!(!interrupted && control.open.load(Ordering::Relaxed));
    }
}
