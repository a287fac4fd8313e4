//! Loads that move within an interval: how uneven they are in a tenth of the shortest one, beside how uneven they are in the whole.
//!
//! A load may go back and forth faster than statistics are taken. Then every interval has all of it, and all workers are busy alike; only
//! that one of them is always busy while the others wait shows in shorter times.
//!
//! Owns: the loads of these times. Never: judges a scheme.
//!
//! Invariant: what sampling noise explains is no swing.

use super::memory::Profile;
use super::{ControllerSettings, Observation, Rules};
use crate::controller::consider::deviation;

/// The short times since statistics began.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Swing {
    /// Sum of the busiest worker's loads over the mean.
    ratios: f64,
    count: u32,
    /// Observations in a row.
    seen: u32,
    /// The busiest worker over the mean in short times, less noise, as observed last.
    ratio: f64,
}

impl Swing {
    /// Takes note of the loads of a short time.
    pub(super) fn sense(&mut self, seen: &Observation) {
        let profile = Profile::of(seen);
        if let Some((_, over)) = profile.busiest().filter(|_| seen.loads.iter().any(|load| *load > 0.0)) {
            self.ratios += 1.0 + over;
            self.count += 1;
        }
    }

    /// Compares the short times with the whole that they are of.
    pub(super) fn observe(&mut self, whole: &Observation, settings: &ControllerSettings) {
        let profile = Profile::of(whole);
        let (ratios, count) = (self.ratios, self.count);
        let workers = profile.available_count();
        let Some((_, over)) = profile.busiest().filter(|_| count >= settings.rules.swing_times) else {
            self.seen = 0;
            return;
        };
        let samples = whole.samples.map(|samples| samples / f64::from(count));
        // The greatest of several noises is about so many standard deviations.
        let deviation = deviation(samples, workers);
        let noise = deviation * (2.0 * (workers.max(2) as f64).ln()).sqrt();
        self.ratio = ratios / f64::from(count) - noise;
        let is_clear = deviation <= settings.rules.swing_deviation_max;
        let is_seen = is_clear && self.ratio > (1.0 + settings.imbalance) * (1.0 + over);
        self.seen = if is_seen { self.seen + 1 } else { 0 };
    }

    /// Forgets the short times of statistics that begin anew.
    pub(super) fn begin_anew(&mut self) {
        (self.ratios, self.count) = (0.0, 0);
    }

    /// Returns whether the latest observation showed a swing.
    pub(super) fn is_seen(&self) -> bool {
        self.seen > 0
    }

    /// The busy time of the busiest worker over the mean in short times, if the load swings.
    pub(super) fn ratio(&self, rules: &Rules) -> Option<f64> {
        (self.seen >= rules.swing_seen).then_some(self.ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observation(loads: [f64; 2], samples: f64) -> Observation {
        Observation {
            at_ns: 0,
            throughput_tps: 1_000.0,
            loads: loads.to_vec(),
            available: vec![true; 2],
            changed_platform: false,
            waits: 0.0,
            samples: Some(samples),
            mix: crate::mix::Mix::default(),
        }
    }

    /// Two intervals of ten tenths with these loads by turns, and what was found.
    fn found(loads: [[f64; 2]; 2], samples: f64) -> Option<f64> {
        let mut swing = Swing::default();
        for _ in 0..2 {
            for at in 0..10 {
                swing.sense(&observation(loads[at % 2], samples / 10.0));
            }
            let whole = [0, 1].map(|worker| 5.0 * (loads[0][worker] + loads[1][worker]));
            swing.observe(&observation(whole, samples), &ControllerSettings::default());
            swing.begin_anew();
        }
        swing.ratio(&Rules::default())
    }

    #[test]
    fn what_goes_back_and_forth_is_no_imbalance_that_stays_and_no_noise() {
        assert!(found([[8.0, 2.0], [2.0, 8.0]], 1e6).is_some_and(|ratio| (ratio - 1.6).abs() < 0.05));
        assert_eq!(found([[8.0, 2.0], [8.0, 2.0]], 1e6), None);
        assert_eq!(found([[5.0, 5.0], [5.0, 5.0]], 1e6), None);
        // Of so few samples loads differ as much by themselves.
        assert_eq!(found([[8.0, 2.0], [2.0, 8.0]], 100.0), None);
    }
}
