//! Memory of the controller: the loads of the workers when a plan was tried or turned down.
//!
//! Owns: the likeness of two situations. Never: decides.
//!
//! Situations are compared by the loads of the workers, not by schemes: sub-partitions are cut anew after each
//! repartitioning, so that the numbers of a scheme mean something else each time.

use super::consider::deviation;
use super::{ControllerSettings, Observation, Predicted, Rules, ns_between, sane};
use crate::scheme::PlannedScheme;
use std::collections::VecDeque;

/// Greatest standard deviation of the load of a worker with the mean load: what is less certain says nothing at all.
const DEVIATION_MAX: f64 = 1.0;
/// Number of failed repartitionings that are remembered.
const FAILURES_MAX: usize = 8;

/// Loads of the workers, in units of the mean over the available ones.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Profile {
    loads: Vec<f64>,
    available: Vec<bool>,
    /// The standard deviation that sampling gives to a load of 1; that of another one grows with its root.
    deviation: f64,
}

impl Profile {
    pub(super) fn of(observation: &Observation) -> Self {
        let available = observation.available.clone();
        let mut loads: Vec<f64> = observation.loads.iter().map(|load| sane(*load)).collect();
        loads.resize(available.len(), 0.0);
        let count = available.iter().filter(|available| **available).count();
        // All of the work, because what is on a lost worker has to be done by somebody.
        let mean = loads.iter().sum::<f64>() / count.max(1) as f64;
        if mean > 0.0 {
            loads.iter_mut().for_each(|load| *load /= mean);
        }
        let deviation = deviation(observation.samples, count).min(DEVIATION_MAX);
        Self { loads, available, deviation }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.available.is_empty()
    }

    pub(super) fn worker_count(&self) -> usize {
        self.available.len()
    }

    pub(super) fn available_count(&self) -> usize {
        self.available.iter().filter(|available| **available).count()
    }

    pub(super) fn is_of_same_workers(&self, other: &Self) -> bool {
        self.available == other.available
    }

    /// The busiest available worker, and by which share it exceeds the mean.
    pub(super) fn busiest(&self) -> Option<(u32, f64)> {
        (0_u32..)
            .zip(self.loads.iter().zip(&self.available))
            .filter(|(_, (_, available))| **available)
            .map(|(worker, (load, _))| (worker, load - 1.0))
            .reduce(|most, next| if next.1 > most.1 { next } else { most })
    }

    /// A worker that may own nothing but was busy.
    pub(super) fn stranded(&self) -> Option<usize> {
        self.loads.iter().zip(&self.available).position(|(load, available)| *load > 0.0 && !available)
    }

    /// Returns whether no worker's load differs noticeably, by more than sampling explains.
    ///
    /// The greatest of `w` differences that are all noise exceeds `z` standard deviations with a probability of at most `w e^(-z^2 / 2)`: for the
    /// same number of false alarms as of one worker at [`confidence`](ControllerSettings::confidence), `z^2` is greater by `2 ln w`.
    pub(super) fn is_like(&self, other: &Self, settings: &ControllerSettings) -> bool {
        let tolerance = settings.imbalance / 2.0;
        let workers = self.available_count().max(1) as f64;
        let confidence = (settings.confidence * settings.confidence + 2.0 * workers.ln()).sqrt();
        let noise = confidence * self.deviation.hypot(other.deviation);
        let near = |(a, b): (&f64, &f64)| {
            (a - b).abs() <= tolerance * a.max(*b).max(1.0) + noise * f64::midpoint(*a, *b).sqrt()
        };
        self.is_of_same_workers(other) && self.loads.iter().zip(&other.loads).all(near)
    }
}

/// The observation at the time of a decision.
#[derive(Debug, Clone)]
pub(super) struct Situation {
    pub(super) at_ns: u64,
    pub(super) throughput_tps: f64,
    /// By which share the throughput may differ because so few transactions were counted.
    pub(super) noise: f64,
    pub(super) profile: Profile,
}

impl Situation {
    /// Returns whether neither the throughput nor any worker's load differs noticeably.
    pub(super) fn is_like(&self, other: &Self, settings: &ControllerSettings) -> bool {
        let change = (other.throughput_tps - self.throughput_tps).abs();
        let tolerance = settings.threshold.max(self.noise).max(other.noise);
        change <= tolerance * self.throughput_tps && self.profile.is_like(&other.profile, settings)
    }
}

/// A scheme whose gain is to be confirmed.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) today: PlannedScheme,
    /// Number of slices of every table. A partition that is observed in other slices may have the same cuts, and a
    /// position in the old slices means another key then.
    pub(super) slices: Vec<u32>,
    pub(super) scheme: PlannedScheme,
    /// The throughput when it was found.
    pub(super) throughput_tps: f64,
    pub(super) confirmed: u32,
    /// Sums of the gains under later statistics.
    pub(super) gain_sum: f64,
}

impl Candidate {
    /// Returns whether it leads from this scheme, in slices that are still the same.
    pub(super) fn is_of(&self, today: &PlannedScheme, slices: &[u32]) -> bool {
        self.today == *today && self.slices == slices
    }
}

/// A repartitioning that was just made.
#[derive(Debug, Clone)]
pub(super) struct Trial {
    pub(super) before: Situation,
    /// `None` where it was not made for a gain, or cannot be judged.
    pub(super) promise: Option<Promise>,
}

/// Prediction of a plan that is tried.
#[derive(Debug, Clone, Copy)]
pub(super) struct Promise {
    pub(super) predicted: Predicted,
}

impl Promise {
    /// By how much the load of the busiest worker falls, in units of the mean.
    fn load_max_fall(&self) -> f64 {
        self.predicted.load_max_before - self.predicted.load_max_after
    }

    /// By which factor synchronization is dearer than was predicted, if the throughput changed by `ratio` because of it.
    ///
    /// The time of a transaction shrinks from `load_max_before + sync_before` by what was saved: imbalance, which is known, and
    /// synchronization, for which this is solved. `None` where it did not make the greater part of the difference.
    pub(super) fn sync_factor(&self, ratio: f64, rules: &Rules) -> Option<f64> {
        let Predicted { load_max_before, sync_before, sync_after, .. } = self.predicted;
        let saved = sync_before - sync_after;
        if saved.abs() < rules.sync_saved_min || saved.abs() < self.load_max_fall().abs() || ratio <= 0.0 {
            return None;
        }
        let gained = (1.0 - 1.0 / ratio) * (load_max_before + sync_before);
        Some(((gained - self.load_max_fall()) / saved).clamp(0.5, 2.0))
    }
}

/// A situation in which no plan was worth it.
#[derive(Debug, Clone)]
pub(super) struct Rejected {
    pub(super) situation: Situation,
    /// Set if stripes were turned down for a load that swings.
    pub(super) is_of_swing: bool,
}

impl Rejected {
    /// Returns whether it is still to be expected that no plan is worth it: it is the same situation, and not so long ago that what changes
    /// little by little may have come to something.
    pub(super) fn holds(&self, now: &Situation, settings: &ControllerSettings) -> bool {
        let patience_ns = settings.interval_max.as_nanos() * u128::from(settings.rules.patience);
        ns_between(self.situation.at_ns, now.at_ns) < patience_ns && self.situation.is_like(now, settings)
    }
}

/// Repartitionings that did not keep their promise.
#[derive(Debug, Clone, Default)]
pub(super) struct Failures {
    of: Vec<Failure>,
    /// The latest ones, the latest last.
    recent: VecDeque<Judged>,
}

/// A repartitioning, judged.
#[derive(Debug, Clone, Copy)]
struct Judged {
    at_ns: u64,
    /// The logarithm of the factor by which it changed the throughput.
    progress: f64,
    /// The throughput afterwards.
    after_tps: f64,
}

#[derive(Debug, Clone)]
struct Failure {
    /// The latest time.
    before: Situation,
    times: u32,
    undone: bool,
    /// Set if transactions waited for it, which the model does not foresee: then it fails at every throughput.
    certain: bool,
}

impl Failure {
    /// Returns whether the situation was like this one.
    fn is_like(&self, now: &Situation, settings: &ControllerSettings) -> bool {
        self.before.is_like(now, settings)
            || self.certain && self.before.profile.is_like(&now.profile, settings)
    }
}

impl Failures {
    /// Remembers how `trial` went, now that there is a measurement of what came of it.
    pub(super) fn judge(&mut self, trial: &Trial, after: &Situation, settings: &ControllerSettings) {
        let Some(promise) = trial.promise else { return };
        let rules = &settings.rules;
        let before = &trial.before;
        let over = |situation: &Situation| situation.profile.busiest().map_or(0.0, |(_, over)| over);
        let balanced = promise.load_max_fall() > 0.0
            && over(before) - over(after) >= rules.balance_min * promise.load_max_fall();
        let ratio =
            if before.throughput_tps > 0.0 { after.throughput_tps / before.throughput_tps } else { 1.0 };
        let fell = ratio < 1.0 - settings.threshold / 2.0;
        let in_vain = promise.predicted.gain >= settings.gain_sure
            && ratio < 1.0 + rules.fulfilment_min * promise.predicted.gain
            && !balanced;
        let progress = if balanced && !fell { ratio.ln().max(promise.predicted.gain) } else { ratio.ln() };
        if self.recent.len() == rules.recent as usize {
            self.recent.pop_front();
        }
        let progress = progress.clamp(-rules.progress_max, rules.progress_max);
        self.recent.push_back(Judged { at_ns: after.at_ns, progress, after_tps: after.throughput_tps });

        let known = self.of.iter().position(|failure| failure.before.is_like(before, settings));
        let times = known.map_or(0, |at| self.of.remove(at).times);
        if fell || in_vain {
            let times = times.saturating_add(1);
            self.remember(Failure { before: before.clone(), times, undone: false, certain: false });
        }
    }

    /// Remembers that the change that was made in this situation was undone; it is not tried again for a while if it is `certain` that it
    /// failed.
    pub(super) fn was_undone(&mut self, before: &Situation, certain: bool, settings: &ControllerSettings) {
        let least = if certain { settings.rules.failures_to_block } else { 1 };
        let known = self.of.iter_mut().find(|failure| failure.before.is_like(before, settings));
        if let Some(failure) = known {
            (failure.undone, failure.certain) = (true, failure.certain | certain);
            failure.times = failure.times.max(least);
        } else {
            self.remember(Failure { before: before.clone(), times: least, undone: true, certain });
        }
    }

    /// Returns whether a change in such a situation was undone: another one has to be confirmed first.
    pub(super) fn has_undone(&self, now: &Situation, settings: &ControllerSettings) -> bool {
        self.of.iter().any(|failure| failure.undone && failure.is_like(now, settings))
    }

    fn remember(&mut self, failure: Failure) {
        if self.of.len() == FAILURES_MAX {
            // The oldest one comes first.
            self.of.remove(0);
        }
        self.of.push(failure);
    }

    /// Returns whether the plan would repeat one that failed in the same situation, often enough and not long ago, or
    /// whether the latest attempts, in whatever situations, brought no progress together.
    pub(super) fn block(&self, now: &Situation, settings: &ControllerSettings) -> bool {
        let Rules { failures_to_block, blocked, blocked_doublings, .. } = settings.rules;
        let intervals = |count: u32| settings.interval_max.as_nanos() * u128::from(count);
        let failed = self.of.iter().any(|failure| {
            let doublings = failure.times.saturating_sub(failures_to_block).min(blocked_doublings);
            failure.times >= failures_to_block
                && ns_between(failure.before.at_ns, now.at_ns) < intervals(blocked << doublings)
                && failure.is_like(now, settings)
        });
        failed || self.is_futile(now, settings)
    }

    /// Returns whether the latest attempts brought no progress together, as long as it is not worse without any. Where a hot range
    /// wanders, each change only makes good what would be lost without it.
    fn is_futile(&self, now: &Situation, settings: &ControllerSettings) -> bool {
        let Rules { recent, recent_falls, pause, .. } = settings.rules;
        let intervals = |count: u32| settings.interval_max.as_nanos() * u128::from(count);
        let fell = |judged: &&Judged| judged.progress < -settings.threshold / 2.0;
        let falls = self.recent.iter().filter(fell).count();
        let sum: f64 = self.recent.iter().map(|judged| judged.progress).sum();
        let led_nowhere = falls >= recent_falls as usize && sum < settings.threshold;
        let mean_tps = self.recent.iter().map(|judged| judged.after_tps).sum::<f64>() / f64::from(recent);
        let is_worse = now.throughput_tps < (1.0 - settings.threshold.max(now.noise)) * mean_tps;
        match (self.recent.front(), self.recent.back()) {
            (Some(first), Some(last)) if self.recent.len() == recent as usize && led_nowhere && !is_worse => {
                ns_between(first.at_ns, last.at_ns) < intervals(recent * pause)
                    && ns_between(last.at_ns, now.at_ns) < intervals(pause)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_loads(at_ns: u64, throughput_tps: f64, loads: Vec<f64>, available: Vec<bool>) -> Observation {
        let (changed_platform, waits, samples, mix) = (false, 0.0, None, crate::mix::Mix::default());
        Observation { at_ns, throughput_tps, loads, available, changed_platform, waits, samples, mix }
    }

    /// Eight workers, one of which has most of the load.
    fn situation(at_s: u64, throughput_tps: f64, busiest: usize) -> Situation {
        let mut loads = vec![1.0; 8];
        loads[busiest % 8] = 9.0;
        let at_ns = at_s * 1_000_000_000;
        let observation = of_loads(at_ns, throughput_tps, loads, vec![true; 8]);
        Situation { at_ns, throughput_tps, noise: 0.0, profile: Profile::of(&observation) }
    }

    /// SplitMix64.
    struct Random(u64);

    impl Random {
        /// A number from 0 to 1.
        fn unit(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
        }
    }

    /// The loads of workers with these shares, as so many samples that fall as they like show them.
    fn sampled(shares: &[f64], samples: usize, random: &mut Random) -> Profile {
        let total: f64 = shares.iter().sum();
        let mut loads = vec![0.0; shares.len()];
        for _ in 0..samples {
            let mut place = random.unit() * total;
            let worker = shares.iter().position(|share| {
                place -= share;
                place < 0.0
            });
            loads[worker.unwrap_or(0)] += 1.0;
        }
        let available = vec![true; shares.len()];
        Profile::of(&Observation { samples: Some(samples as f64), ..of_loads(0, 1000.0, loads, available) })
    }

    fn hot_first(workers: usize, times: f64) -> Vec<f64> {
        let mut shares = vec![1.0; workers];
        shares[0] = times;
        shares
    }

    /// The number of a hundred pairs of observations that are not of the same loads.
    fn told_apart(before: &[f64], after: &[f64], samples: usize) -> usize {
        let settings = ControllerSettings::default();
        let mut random = Random(7);
        let mut is_apart = |_: &u32| {
            let before = sampled(before, samples, &mut random);
            !before.is_like(&sampled(after, samples, &mut random), &settings)
        };
        (0..100).filter(|pair| is_apart(pair)).count()
    }

    #[test]
    fn sampling_of_many_workers_is_no_change_of_their_loads() {
        for workers in [2, 16, 96] {
            for of_each in [10, 100, 1_000] {
                for times in [1.0, 30.0] {
                    let shares = hot_first(workers, times);
                    let apart = told_apart(&shares, &shares, of_each * workers);
                    assert!(apart <= 1, "{workers} workers, {of_each} samples of each: {apart} of 100");
                }
            }
        }
    }

    #[test]
    fn a_change_of_one_of_many_loads_is_told_from_sampling() {
        for (of_each, times) in [(10, 8.0), (100, 2.5), (1_000, 1.5)] {
            let apart = told_apart(&hot_first(96, 1.0), &hot_first(96, times), of_each * 96);
            assert!(apart >= 95, "{of_each} samples, {times} times the load: {apart} of 100");
        }
        // What is hot is elsewhere.
        let (mut first, mut last) = (hot_first(96, 3.0), hot_first(96, 3.0));
        last.reverse();
        assert_eq!(told_apart(&first, &last, 100 * 96), 100);
        // Of two workers a tenth is a noticeable difference, and of few samples it is none.
        (first, last) = (vec![1.0, 1.0], vec![1.3, 0.7]);
        assert_eq!((told_apart(&first, &last, 20_000), told_apart(&first, &last, 20)), (100, 0));
    }

    #[test]
    fn loads_that_are_no_samples_are_compared_as_they_are() {
        let settings = ControllerSettings::default();
        let of = |loads: [f64; 2]| Profile::of(&of_loads(0, 1000.0, loads.to_vec(), vec![true; 2]));
        assert!(of([5.0, 5.0]).is_like(&of([5.2, 4.8]), &settings));
        assert!(!of([5.0, 5.0]).is_like(&of([5.8, 4.2]), &settings));
        let nothing =
            Profile::of(&Observation { samples: Some(0.0), ..of_loads(0, 0.0, vec![0.0; 2], vec![true; 2]) });
        assert!(nothing.is_like(&nothing.clone(), &settings));
    }

    #[test]
    fn futile_changes_are_paused_with_as_long_as_it_is_not_worse_without_them() {
        let settings = ControllerSettings::default();
        let predicted = Predicted {
            load_max_before: 4.5,
            load_max_after: 1.0,
            sync_before: 0.0,
            sync_after: 0.0,
            gain: 0.7,
            gain_wanted: 0.15,
        };
        let mut failures = Failures::default();
        // The hot place is somewhere else after each change, and the throughput about the same.
        let recent = ControllerSettings::default().rules.recent as usize;
        for at in 0..recent {
            let (before_tps, after_tps) = if at % 2 == 0 { (1000.0, 800.0) } else { (800.0, 1000.0) };
            let trial =
                Trial { before: situation(at as u64, before_tps, at), promise: Some(Promise { predicted }) };
            failures.judge(&trial, &situation(at as u64 + 1, after_tps, at + 1), &settings);
        }
        // The mean after the changes was 900.
        let now = |throughput_tps| situation(recent as u64 + 1, throughput_tps, recent + 1);
        assert!(failures.block(&now(950.0), &settings));
        assert!(failures.block(&now(820.0), &settings));
        assert!(!failures.block(&now(450.0), &settings));
        // What was counted of few transactions is not worse yet.
        assert!(failures.block(&Situation { noise: 0.6, ..now(450.0) }, &settings));
    }
}
