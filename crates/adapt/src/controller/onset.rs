//! Loads that become others within the shortest interval: statistics of both are of neither, and a plan for them suits none.
//!
//! Glances notice a change in the middle of a long interval. In the shortest one the throughput of short times, about tenths of it, tells: if
//! several of them, one after another, are all above or all below those before by more than the threshold of a glance and than by what short
//! times usually differ, the load is another one since. Those before may be of the interval before, unless the scheme has changed. Then statistics
//! begin anew, if the load was the same in two intervals until then, and once in two intervals: where it moves all the time, statistics of whole
//! intervals are wanted.
//!
//! Owns: the throughputs of these times. Never: decides.
//!
//! Invariant: of each pair of intervals one at least is observed to its end.

use super::ControllerSettings;

/// Number of short times by whose differences the usual one is known.
const SCATTERED: u32 = 20;

/// The short times since statistics began.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Onset {
    /// Throughputs that are alike.
    alike: Sum,
    /// The latest ones, which are all above these or all below.
    odd: Sum,
    above: bool,
    /// The variance of a short time's throughput, over the square of the mean, and the number of differences that it is known from.
    variance: f64,
    differences: u32,
    latest_tps: Option<f64>,
    /// Intervals that are still to be observed to their end.
    rest: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    tps: f64,
    count: u32,
}

impl Sum {
    fn add(&mut self, tps: f64, count: u32) {
        self.tps += tps;
        self.count += count;
    }

    fn mean(self) -> f64 {
        self.tps / f64::from(self.count.max(1))
    }
}

/// A throughput that is another one since a short time ago.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Change {
    pub(super) from_tps: f64,
    pub(super) to_tps: f64,
}

impl Onset {
    /// Takes note of the throughput of a short time, of which `counted` is the share by which it may differ because so few transactions
    /// were counted.
    pub(super) fn sense(&mut self, tps: f64, counted: f64, settings: &ControllerSettings) -> Option<Change> {
        let (rules, mean_tps) = (&settings.rules, self.alike.mean());
        let usual = self.variance * (1.0 + 1.0 / f64::from(self.alike.count.max(1)));
        let clear = (rules.glance_thresholds * settings.threshold).max(counted);
        let clear = clear.max(settings.confidence * usual.sqrt());
        let is_known = self.alike.count > 0 && self.differences >= rules.onset_times;
        if self.rest > 0 || !is_known || (tps - mean_tps).abs() <= clear * mean_tps {
            self.are_alike(tps);
            return None;
        }
        let above = tps > mean_tps;
        if above != self.above && self.odd.count > 0 {
            self.are_alike(tps);
            return None;
        }
        self.above = above;
        self.odd.add(tps, 1);
        if self.odd.count < rules.onset_seen {
            return None;
        }
        let change = Change { from_tps: mean_tps, to_tps: self.odd.mean() };
        self.begin_anew();
        self.rest = 2;
        Some(change)
    }

    /// Takes a throughput, and those before it that were odd, for what comes and goes.
    fn are_alike(&mut self, tps: f64) {
        let odd = std::mem::take(&mut self.odd);
        let stood_out = (odd.count > 0).then(|| odd.mean());
        for next_tps in stood_out.into_iter().chain([tps]) {
            if let Some(before_tps) = self.latest_tps.replace(next_tps) {
                let mean_tps = f64::midpoint(before_tps, next_tps).max(f64::MIN_POSITIVE);
                let difference = (next_tps - before_tps) / mean_tps;
                self.differences = (self.differences + 1).min(SCATTERED);
                // Two that differ by chance have both their variances.
                self.variance +=
                    (difference * difference / 2.0 - self.variance) / f64::from(self.differences);
            }
        }
        self.alike.add(odd.tps + tps, odd.count + 1);
    }

    /// Forgets the short times of statistics that begin anew, but not by how much such times usually differ.
    pub(super) fn begin_anew(&mut self) {
        let Self { variance, differences, rest, .. } = *self;
        *self = Self { variance, differences, rest, ..Self::default() };
    }

    /// Takes note of an observation: what comes next is compared with the interval that has ended.
    pub(super) fn observed(&mut self) {
        let (alike, odd) = (self.alike, self.odd);
        self.begin_anew();
        self.rest = self.rest.saturating_sub(1);
        self.alike.add(alike.tps + odd.tps, alike.count + odd.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Short times that usually differ by 1%.
    fn known() -> Onset {
        let mut onset = Onset::default();
        for time in 0..10 {
            let none = onset.sense(100.0 + f64::from(time % 2), 0.0, &ControllerSettings::default());
            assert_eq!(none, None);
        }
        onset.begin_anew();
        onset
    }

    /// The short time, counted from 1, at which a change is noticed.
    fn noticed(onset: &mut Onset, throughputs: &[f64]) -> Option<usize> {
        let mut sense = |tps: &f64| onset.sense(*tps, 0.0, &ControllerSettings::default()).is_some();
        throughputs.iter().position(&mut sense).map(|at| at + 1)
    }

    #[test]
    fn another_load_is_noticed_and_a_single_short_time_is_not() {
        let of = |throughputs: &[f64]| noticed(&mut known(), throughputs);
        assert_eq!(of(&[100.0, 101.0, 99.0, 40.0, 41.0, 40.0]), Some(5));
        assert_eq!(of(&[100.0, 101.0, 99.0, 150.0, 160.0]), Some(5));
        assert_eq!(of(&[100.0, 101.0, 40.0, 100.0, 40.0, 100.0]), None);
        assert_eq!(of(&[100.0, 101.0, 40.0, 160.0, 100.0, 100.0]), None, "to both sides");
        assert_eq!(of(&[100.0, 90.0, 85.0, 90.0, 88.0]), None);
        let counted = known().sense(40.0, 0.7, &ControllerSettings::default());
        assert_eq!(counted, None, "so few transactions differ by so much");
    }

    #[test]
    fn throughputs_that_always_differ_are_no_other_loads() {
        let mut onset = Onset::default();
        let uneven = [100.0, 60.0, 130.0, 80.0, 140.0, 70.0, 70.0, 120.0, 60.0, 60.0, 60.0, 110.0];
        assert_eq!(noticed(&mut onset, &uneven), None);
        assert_eq!(noticed(&mut onset, &[300.0, 300.0]), Some(2));
    }

    #[test]
    fn after_that_an_interval_is_observed_to_its_end() {
        let mut onset = known();
        let flips = [100.0, 100.0, 40.0, 40.0];
        assert_eq!(noticed(&mut onset, &flips), Some(4));
        // The rest of the interval, and the next one.
        assert_eq!(noticed(&mut onset, &[40.0, 40.0, 15.0, 15.0]), None);
        onset.observed();
        assert_eq!(noticed(&mut onset, &[15.0, 15.0, 15.0, 15.0]), None);
        onset.observed();
        assert!(noticed(&mut onset, &[100.0, 100.0, 100.0, 100.0]).is_some());
    }

    #[test]
    fn statistics_that_begin_anew_are_of_no_earlier_short_times() {
        let mut onset = known();
        assert_eq!(noticed(&mut onset, &[100.0, 100.0, 40.0]), None);
        onset.begin_anew();
        assert_eq!(noticed(&mut onset, &[40.0, 40.0, 40.0, 40.0]), None);
        onset.observed();
        assert_eq!(noticed(&mut onset, &[100.0, 100.0]), Some(2), "the interval before was another one");
    }
}
