//! The facts that statements know of the connection they come from.
//!
//! Owns: the values of `current_user` and the like, and what functions of a statement have done to the session: numbers taken from
//! sequences, settings, advisory locks. Never: changes a setting; the connection does when the statement has ended.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use atrapos::{Clock, Database};

use crate::advisory::Request;
use crate::cancel::Connections;
use crate::counts::Counts;
use crate::error::{SqlError, SqlState};
use crate::settings::Settings;

/// The facts that statements of one transaction know of their connection.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// The name of the role that statements run as.
    pub(crate) user: Arc<str>,
    /// The number of that role.
    pub(crate) role: u32,
    /// The name of the role that has logged in.
    pub(crate) session_user: Arc<str>,
    pub(crate) database: Arc<str>,
    pub(crate) process_id: i32,
    /// The moment at which the transaction began, in microseconds since 1970-01-01.
    pub(crate) began: i64,
    pub(crate) settings: Arc<Settings>,
    pub(crate) taken: Arc<Taken>,
    pub(crate) connections: Arc<Connections>,
    /// The engine, which sessions do not keep open: a statement outlives its answer by a moment.
    pub(crate) engine: Weak<Database>,
    pub(crate) counts: Arc<Counts>,
}

/// The engine, unless who opened it has closed it.
pub(crate) fn still_open(engine: &Weak<Database>) -> Result<Arc<Database>, SqlError> {
    engine.upgrade().ok_or_else(|| SqlError::new(SqlState::ADMIN_SHUTDOWN, "the database is closed"))
}

impl Session {
    /// Takes an advisory lock if it is free.
    pub(crate) fn lock_advisory(&self, wanted: Request) -> bool {
        let is_taken = self.connections.advisory.try_lock(self.process_id, wanted);
        if is_taken {
            self.taken.has_locked(wanted);
        }
        is_taken
    }

    /// Begins an attempt to run a statement: what an earlier one has set and locked counts for nothing.
    pub(crate) fn begin_attempt(&self) {
        if !self.taken.is_touched.load(Ordering::Relaxed) {
            return;
        }
        self.taken.to_sleep.store(0, Ordering::Relaxed);
        let mut done = self.taken.done();
        done.settings.clear();
        for locked in std::mem::take(&mut done.locked) {
            self.connections.advisory.unlock(self.process_id, locked);
        }
    }
}

/// The effects of a statement's functions on the session.
#[derive(Debug, Default)]
struct Done {
    /// Settings with their values, and whether they are of the transaction alone.
    settings: Vec<(String, String, bool)>,
    locked: Vec<Request>,
    /// The advisory lock that an expression waits for.
    wanted: Option<Request>,
}

/// A setting with its value, and whether it is of the transaction alone.
pub(crate) type SetByFunction = (String, String, bool);

/// The last number that a connection took from each sequence, and what the statement that runs has done to the session.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    numbers: Mutex<(BTreeMap<String, i64>, Option<i64>)>,
    /// Set if a function of the statement has set or locked something.
    is_touched: AtomicBool,
    /// Set if the transaction has advisory locks.
    has_locks: AtomicBool,
    /// The microseconds for which the statement is still to sleep.
    to_sleep: AtomicU64,
    /// The number of the transaction, if it has asked for it; else 0.
    transaction: AtomicI64,
    /// The state of `random`, if `setseed` has been called.
    random: Mutex<Option<Random>>,
    done: Mutex<Done>,
}

impl Taken {
    fn done(&self) -> MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a setting that a function has set.
    pub(crate) fn set(&self, name: &str, value: &str, is_local: bool) {
        self.is_touched.store(true, Ordering::Relaxed);
        self.done().settings.push((name.to_owned(), value.to_owned(), is_local));
    }

    /// Has the statement sleep for some time more.
    pub(crate) fn sleep(&self, time: Duration) {
        self.is_touched.store(true, Ordering::Relaxed);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.to_sleep.fetch_add(micros, Ordering::Relaxed);
    }

    /// Returns true if the statement is to sleep now.
    pub(crate) fn is_to_sleep(&self) -> bool {
        self.to_sleep.load(Ordering::Relaxed) > 0
    }

    /// Takes the time for which the statement is to sleep now.
    pub(crate) fn take_sleep(&self) -> Duration {
        Duration::from_micros(self.to_sleep.swap(0, Ordering::Relaxed))
    }

    /// Notes an advisory lock that a function has taken.
    pub(crate) fn has_locked(&self, locked: Request) {
        self.is_touched.store(true, Ordering::Relaxed);
        if locked.of_transaction {
            self.has_locks.store(true, Ordering::Relaxed);
        }
        self.done().locked.push(locked);
    }

    /// Notes the advisory lock that an expression waits for.
    pub(crate) fn wants(&self, wanted: Request) {
        self.done().wanted = Some(wanted);
    }

    /// The advisory lock that an expression waits for.
    pub(crate) fn wanted(&self) -> Option<Request> {
        self.done().wanted.take()
    }

    /// Ends the statement: the settings that its functions have set.
    pub(crate) fn end_statement(&self) -> Vec<SetByFunction> {
        if !self.is_touched.swap(false, Ordering::Relaxed) {
            return Vec::new();
        }
        std::mem::take(&mut *self.done()).settings
    }

    /// The number of the transaction, of `next` if it has none yet.
    pub(crate) fn transaction(&self, next: impl FnOnce() -> i64) -> i64 {
        match self.transaction.load(Ordering::Relaxed) {
            0 => {
                let number = next();
                self.transaction.store(number, Ordering::Relaxed);
                number
            }
            number => number,
        }
    }

    /// Has `random` go on from a seed.
    pub(crate) fn seed(&self, seed: f64) {
        *self.random.lock().unwrap_or_else(PoisonError::into_inner) = Some(Random::of(seed));
    }

    /// The next number of `random` behind a seed; `None` if there is none.
    pub(crate) fn seeded(&self) -> Option<f64> {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(Random::next)
    }

    /// Ends the transaction; returns true if it may have advisory locks.
    pub(crate) fn end_transaction(&self) -> bool {
        if self.transaction.load(Ordering::Relaxed) != 0 {
            self.transaction.store(0, Ordering::Relaxed);
        }
        self.has_locks.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn note(&self, sequence: &str, number: i64) {
        let mut taken = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        taken.0.insert(sequence.to_owned(), number);
        taken.1 = Some(number);
    }

    pub(crate) fn of(&self, sequence: &str) -> Option<i64> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).0.get(sequence).copied()
    }

    pub(crate) fn last(&self) -> Option<i64> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

/// The state of `random` behind `setseed`: xoroshiro128**, seeded as PostgreSQL 15 does, so that its numbers are the same.
#[derive(Debug)]
struct Random([u64; 2]);

impl Random {
    fn of(seed: f64) -> Random {
        let mut seed = (((1_u64 << 52) - 1) as f64 * seed) as i64 as u64;
        let mut mixed = || {
            seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let value = (seed ^ (seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            value ^ (value >> 31)
        };
        Random([mixed(), mixed()])
    }

    /// The next number, from 0 to below 1.
    fn next(&mut self) -> f64 {
        let Random([first, second]) = *self;
        let both = second ^ first;
        let bits = first.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        *self = Random([first.rotate_left(24) ^ both ^ (both << 16), both.rotate_left(37)]);
        (bits >> 12) as f64 / (1_u64 << 52) as f64
    }
}

/// The nanoseconds for which a thread tells moments by the processor's clock before it reads the system's again, which costs several times as much.
const READ_EVERY: u64 = 1_000_000;

/// The nanoseconds within which two clocks are read at the same time.
const SAME: u64 = 1_000;

/// The nanoseconds by which moments may be ahead of the system's clock, without it having been set back.
const MOST_AHEAD: u64 = 10_000;

/// A reading of the system's clock. All of it is in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Reading {
    /// The processor's time of the reading.
    at: u64,
    /// The time since 1970-01-01 that the system told.
    told: u64,
    /// The least moment that is told after it: time does not go back because the two clocks differ a little.
    least: u64,
}

impl Reading {
    fn new(at: u64, told: u64, before: Option<Reading>) -> Reading {
        let expected = before.map_or(0, |before| before.moment(at));
        let is_ahead = expected > told && expected - told <= MOST_AHEAD;
        Reading { at, told, least: if is_ahead { expected } else { 0 } }
    }

    /// The moment of a processor's time after the reading.
    fn moment(&self, at: u64) -> u64 {
        self.told.saturating_add(at.saturating_sub(self.at)).max(self.least)
    }
}

thread_local! {
    /// The reading by which this thread tells moments.
    static READING: Cell<Option<Reading>> = const { Cell::new(None) };
}

/// The moment that it is now, in microseconds since 1970-01-01. It is at most [`MOST_AHEAD`] off the system's clock, but for
/// [`READ_EVERY`] after that was set.
pub(crate) fn now() -> i64 {
    let clock = Clock::real();
    let at = clock.ns(clock.now());
    let reading = match READING.get() {
        Some(reading) if at.saturating_sub(reading.at) < READ_EVERY => reading,
        before => {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let told = since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
            let reading = Reading::new(at, told, before);
            // If the two clocks were not read at the same time, whoever asks next reads them again.
            let is_same = clock.ns(clock.now()).saturating_sub(at) <= SAME;
            READING.set(is_same.then_some(reading));
            reading
        }
    };
    (reading.moment(at) / 1000) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A processor's clock that is too fast or too slow by a ten-thousandth, for ten seconds.
    #[test]
    fn moments_neither_go_back_nor_run_away() {
        for rate in [9_999, 10_000, 10_001] {
            let mut reading = Reading::new(0, 1 << 60, None);
            let mut last = reading.moment(0);
            for step in 1..100_000_u64 {
                let system = step * 100_000;
                let (at, system) = (system / 10_000 * rate, (1 << 60) + system);
                if at - reading.at >= READ_EVERY {
                    reading = Reading::new(at, system, Some(reading));
                }
                let moment = reading.moment(at);
                assert!(moment >= last && moment.abs_diff(system) <= MOST_AHEAD, "{rate} {step}");
                last = moment;
            }
        }
    }

    #[test]
    fn a_clock_that_was_set_is_followed() {
        let before = Reading::new(0, 10_000_000_000, None);
        for set in [5_000_000_000, 20_000_000_000] {
            let after = Reading::new(READ_EVERY, set, Some(before));
            assert_eq!(after.moment(READ_EVERY + 7), set + 7);
        }
    }

    #[test]
    fn moments_are_those_of_the_system() {
        let system = || SystemTime::UNIX_EPOCH.elapsed().expect("a time after 1970").as_nanos();
        let tolerated = u128::from(MOST_AHEAD) + 1_000;
        for _ in 0..10_000 {
            let (before, now, after) = (system(), now(), system());
            let now = u128::try_from(now).expect("a time after 1970") * 1_000;
            assert!(before <= now + tolerated && now <= after + tolerated, "{before} {now} {after}");
        }
    }
}
