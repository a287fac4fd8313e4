//! The clock seam: time as ticks of whatever counter is cheapest, or as numbers a test decides on.
//!
//! Owns: [`Ticks`], [`Clock`] and the calibration of the processor's time-stamp counter. Never: wall-clock time.
//!
//! Invariants: one process has one calibration; ticks of different clocks must not be mixed; a clock never runs
//! backwards on one thread, and differences are saturating, so that skew between cores cannot produce absurd spans.
//!
//! # Why the unsafe code is sound
//! Reading the time-stamp counter (`rdtsc`, `cntvct_el0`) has no effect on memory and exists on every processor of its
//! architecture that this file compiles for.

use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A point in time, or a span, in ticks of a [`Clock`]. Only the clock knows how long a tick is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ticks(pub u64);

impl Ticks {
    /// The beginning of time, and the empty span.
    pub const ZERO: Self = Self(0);
    /// The end of time: a deadline that never comes.
    pub const MAX: Self = Self(u64::MAX);

    /// The span from `earlier` to here; empty if `earlier` is later.
    #[inline]
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// The point `span` after here, or the end of time.
    #[inline]
    #[must_use]
    pub const fn after(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

/// A source of [`Ticks`]. Cheap to clone; all clones of a virtual clock show the same time.
#[derive(Clone)]
pub struct Clock {
    source: Source,
    /// Nanoseconds per tick, times 2^32.
    ns_per_tick_shifted: u64,
}

#[derive(Clone)]
enum Source {
    /// The processor's counter, which runs at one rate on all cores.
    Counter,
    /// The operating system's monotonic clock; a tick is a nanosecond.
    Monotonic(Instant),
    /// A number that somebody advances; a tick is a nanosecond.
    Virtual(Arc<AtomicU64>),
}

const ONE_NS_SHIFTED: u64 = 1 << 32;

impl Clock {
    /// The fastest real clock of this machine: the processor's counter if it is invariant, else the monotonic clock.
    /// The first call of a process calibrates the counter, which takes a few milliseconds.
    #[must_use]
    pub fn real() -> Self {
        static REAL: OnceLock<Clock> = OnceLock::new();
        REAL.get_or_init(|| match counter::ns_per_tick_shifted() {
            Some(ns_per_tick_shifted) => Self { source: Source::Counter, ns_per_tick_shifted },
            None => Self { source: Source::Monotonic(Instant::now()), ns_per_tick_shifted: ONE_NS_SHIFTED },
        })
        .clone()
    }

    /// A clock that stands still at `start` until [`advance`](Self::advance) moves it. A tick is a nanosecond.
    #[must_use]
    pub fn virtual_from(start: Ticks) -> Self {
        Self {
            source: Source::Virtual(Arc::new(AtomicU64::new(start.0))),
            ns_per_tick_shifted: ONE_NS_SHIFTED,
        }
    }

    /// The time now.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Ticks {
        match &self.source {
            Source::Counter => Ticks(counter::read()),
            Source::Monotonic(origin) => {
                Ticks(u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
            }
            Source::Virtual(now) => Ticks(now.load(Ordering::Relaxed)),
        }
    }

    /// Moves a virtual clock forward by `span`. A real clock does not mind.
    pub fn advance(&self, span: Ticks) {
        if let Source::Virtual(now) = &self.source {
            now.store(now.load(Ordering::Relaxed).saturating_add(span.0), Ordering::Relaxed);
        }
    }

    /// Returns whether this clock moves only when it is told to.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        matches!(self.source, Source::Virtual(_))
    }

    /// Nanoseconds that a span of ticks takes.
    #[inline]
    #[must_use]
    pub fn ns(&self, span: Ticks) -> u64 {
        let ns = (u128::from(span.0) * u128::from(self.ns_per_tick_shifted)) >> 32;
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// Ticks that a duration takes, rounded up; [`Ticks::MAX`] if it is beyond the end of time.
    #[must_use]
    pub fn ticks(&self, duration: Duration) -> Ticks {
        let shifted = duration.as_nanos().saturating_mul(1 << 32);
        Ticks(u64::try_from(shifted.div_ceil(u128::from(self.ns_per_tick_shifted))).unwrap_or(u64::MAX))
    }

    /// Nanoseconds per tick.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a rate for people to read")]
    pub fn ns_per_tick(&self) -> f64 {
        self.ns_per_tick_shifted as f64 / ONE_NS_SHIFTED as f64
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match self.source {
            Source::Counter => "processor counter",
            Source::Monotonic(_) => "monotonic clock",
            Source::Virtual(_) => "virtual",
        };
        write!(f, "Clock({source}, {:.6} ns per tick)", self.ns_per_tick())
    }
}

/// Measures the rate of a counter against the monotonic clock: nanoseconds per tick, times 2^32.
#[cfg(all(not(miri), any(target_arch = "x86_64", target_arch = "aarch64")))]
fn calibrate(read: impl Fn() -> u64) -> Option<u64> {
    const CALIBRATION: Duration = Duration::from_millis(5);
    // A pair of readings is as good as they are close together: being descheduled between the two shows as a wide
    // bracket, and the narrowest of a few brackets is taken.
    let pair = || {
        (0..16)
            .map(|_| {
                let before = read();
                let instant = Instant::now();
                let after = read();
                (after.wrapping_sub(before), before.wrapping_add(after.wrapping_sub(before) / 2), instant)
            })
            .min_by_key(|&(width, ..)| width)
    };
    let (_, ticks_first, instant_first) = pair()?;
    while instant_first.elapsed() < CALIBRATION {
        std::hint::spin_loop();
    }
    let (_, ticks_last, instant_last) = pair()?;
    let ns = instant_last.duration_since(instant_first).as_nanos();
    let ticks = u128::from(ticks_last.checked_sub(ticks_first)?);
    let shifted = (ns << 32).checked_div(ticks)?;
    // A counter slower than 1 MHz or faster than 100 GHz is not a clock.
    u64::try_from(shifted)
        .ok()
        .filter(|&shifted| shifted > ONE_NS_SHIFTED / 100 && shifted < ONE_NS_SHIFTED * 1000)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod counter {
    use std::arch::x86_64::{__cpuid, _rdtsc};

    /// The rate of the time-stamp counter if it is invariant (one rate in all power states).
    pub(super) fn ns_per_tick_shifted() -> Option<u64> {
        const POWER_LEAF: u32 = 0x8000_0007;
        const INVARIANT_TSC: u32 = 1 << 8;
        let highest = __cpuid(0x8000_0000).eax;
        if highest < POWER_LEAF || __cpuid(POWER_LEAF).edx & INVARIANT_TSC == 0 {
            return None;
        }
        super::calibrate(read)
    }

    #[inline]
    pub(super) fn read() -> u64 {
        // SAFETY: every x86-64 processor has the instruction, and it touches no memory.
        unsafe { _rdtsc() }
    }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
mod counter {
    /// The virtual counter of this architecture always runs at one rate; its frequency register may lie, so measure.
    pub(super) fn ns_per_tick_shifted() -> Option<u64> {
        super::calibrate(read)
    }

    #[inline]
    pub(super) fn read() -> u64 {
        let ticks: u64;
        // SAFETY: reading the virtual counter is allowed in user mode on the systems Rust supports; no memory is touched.
        unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
        ticks
    }
}

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod counter {
    pub(super) fn ns_per_tick_shifted() -> Option<u64> {
        None
    }

    pub(super) fn read() -> u64 {
        0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_clock_moves_only_when_told() {
        let clock = Clock::virtual_from(Ticks(5));
        let twin = clock.clone();
        assert_eq!(clock.now(), Ticks(5));
        twin.advance(Ticks(10));
        assert_eq!(clock.now(), Ticks(15));
        assert_eq!(clock.ns(Ticks(123)), 123);
        assert_eq!(clock.ticks(Duration::from_micros(3)), Ticks(3_000));
        assert!(clock.is_virtual() && !Clock::real().is_virtual());
    }

    #[test]
    fn a_real_clock_agrees_with_the_monotonic_one() {
        let clock = Clock::real();
        // Not a measurement of speed: both clocks measure the same span, however long it turns out, and the one that
        // brackets the other must not be shorter by more than the calibration's error.
        let outer = Instant::now();
        let first = clock.now();
        let inner = Instant::now();
        while inner.elapsed() < Duration::from_millis(if cfg!(miri) { 1 } else { 20 }) {
            std::hint::spin_loop();
        }
        let inner_ns = inner.elapsed().as_nanos();
        let span_ns = u128::from(clock.ns(clock.now().since(first)));
        let outer_ns = outer.elapsed().as_nanos();
        assert!(
            span_ns * 100 >= inner_ns * 99,
            "{span_ns} ns by {clock:?}, but at least {inner_ns} ns have passed"
        );
        assert!(
            span_ns * 99 <= outer_ns * 100,
            "{span_ns} ns by {clock:?}, but at most {outer_ns} ns have passed"
        );
    }

    #[test]
    fn spans_convert_back_and_forth_without_overflow() {
        for clock in [Clock::real(), Clock::virtual_from(Ticks::ZERO)] {
            let span = clock.ticks(Duration::from_secs(1));
            assert!(clock.ns(span).abs_diff(1_000_000_000) <= 100, "{clock:?}");
            assert_eq!(clock.ticks(Duration::MAX), Ticks::MAX);
            assert!(clock.ns(Ticks::MAX) > 1 << 40);
        }
        assert_eq!(Ticks(3).since(Ticks(5)), Ticks::ZERO);
        assert_eq!(Ticks::MAX.after(Ticks(5)), Ticks::MAX);
    }
}
