//! Loads that become others within the shortest interval: statistics of both are of neither, and a plan for them suits none.
//!
//! Glances notice a change in the middle of a long interval. In the shortest one the throughput of short times, about tenths of it, tells: if
//! several of them, one after another, are all above or all below those before by more than the threshold of a glance, the load is another
//! one since. Those before may be of the interval before, unless the scheme has changed. Then statistics begin anew, once in two intervals: where
//! the load changes in every one, statistics of whole intervals are wanted.
//!
//! Owns: the throughputs of these times. Never: decides.
//!
//! Invariant: of each pair of intervals one at least is observed to its end.

use super::Rules;

/// The short times since statistics began.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Onset {
    /// Sum of the throughputs that are alike, and how many they are.
    sum_tps: f64,
    count: u32,
    /// The same of the latest ones, which are all above these or all below.
    odd_tps: f64,
    odd: u32,
    above: bool,
    /// Intervals that are still to be observed to their end.
    rest: u32,
}

/// A throughput that is another one since a short time ago.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Change {
    pub(super) from_tps: f64,
    pub(super) to_tps: f64,
}

impl Onset {
    /// Takes note of the throughput of a short time, which has changed if it differs by more than the share `clear`.
    pub(super) fn sense(&mut self, tps: f64, clear: f64, rules: &Rules) -> Option<Change> {
        let mean_tps = self.sum_tps / f64::from(self.count.max(1));
        let differs = (tps - mean_tps).abs() > clear * mean_tps;
        if self.rest > 0 || self.count < rules.onset_times || !differs {
            // One that stood out alone was none.
            self.sum_tps += tps + self.odd_tps;
            self.count += 1 + self.odd;
            (self.odd_tps, self.odd) = (0.0, 0);
            return None;
        }
        let above = tps > mean_tps;
        if above != self.above {
            (self.odd_tps, self.odd, self.above) = (0.0, 0, above);
        }
        self.odd_tps += tps;
        self.odd += 1;
        if self.odd < rules.onset_seen {
            return None;
        }
        let change = Change { from_tps: mean_tps, to_tps: self.odd_tps / f64::from(self.odd) };
        *self = Self { rest: 2, ..Self::default() };
        Some(change)
    }

    /// Forgets the short times of statistics that begin anew.
    pub(super) fn begin_anew(&mut self) {
        *self = Self { rest: self.rest, ..Self::default() };
    }

    /// Takes note of an observation: what comes next is compared with the interval that has ended.
    pub(super) fn observed(&mut self, rules: &Rules) {
        let rest = self.rest.saturating_sub(1);
        let (sum_tps, count) = (self.sum_tps + self.odd_tps, self.count + self.odd);
        *self = Self { rest, ..Self::default() };
        if count > 0 {
            self.count = rules.onset_times;
            self.sum_tps = sum_tps / f64::from(count) * f64::from(rules.onset_times);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The short time, counted from 1, at which a change is noticed.
    fn noticed(onset: &mut Onset, throughputs: &[f64]) -> Option<usize> {
        let at = throughputs.iter().position(|tps| onset.sense(*tps, 0.2, &Rules::default()).is_some());
        at.map(|at| at + 1)
    }

    #[test]
    fn another_load_is_noticed_and_a_single_short_time_is_not() {
        let of = |throughputs: &[f64]| noticed(&mut Onset::default(), throughputs);
        assert_eq!(of(&[100.0, 101.0, 99.0, 40.0, 41.0, 40.0]), Some(5));
        assert_eq!(of(&[100.0, 101.0, 99.0, 150.0, 160.0]), Some(5));
        assert_eq!(of(&[100.0, 101.0, 40.0, 100.0, 40.0, 100.0]), None);
        assert_eq!(of(&[100.0, 101.0, 40.0, 160.0, 100.0, 100.0]), None, "to both sides");
        assert_eq!(of(&[100.0, 40.0, 70.0, 75.0]), None, "of one short time nothing is known");
        assert_eq!(of(&[100.0, 90.0, 85.0, 90.0, 88.0]), None);
    }

    #[test]
    fn after_that_an_interval_is_observed_to_its_end() {
        let mut onset = Onset::default();
        let flips = [100.0, 100.0, 40.0, 40.0];
        assert_eq!(noticed(&mut onset, &flips), Some(4));
        // The rest of the interval, and the next one.
        assert_eq!(noticed(&mut onset, &flips), None);
        onset.observed(&Rules::default());
        assert_eq!(noticed(&mut onset, &flips), None);
        onset.observed(&Rules::default());
        assert_eq!(noticed(&mut onset, &[70.0, 75.0, 40.0, 40.0]), Some(4));
    }

    #[test]
    fn statistics_that_begin_anew_are_of_no_earlier_short_times() {
        let mut onset = Onset::default();
        assert_eq!(noticed(&mut onset, &[100.0, 100.0, 40.0]), None);
        onset.begin_anew();
        assert_eq!(noticed(&mut onset, &[40.0, 40.0, 40.0, 40.0]), None);
        onset.observed(&Rules::default());
        assert_eq!(noticed(&mut onset, &[100.0, 100.0]), Some(2), "the interval before was another one");
    }
}
