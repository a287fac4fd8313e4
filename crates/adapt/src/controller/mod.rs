//! The controller: when statistics are evaluated, and when a plan is carried out (`ATraPos §V-D`, `thesis §4.4`).
//!
//! Owns: the monitoring interval, the window of throughputs, what was tried and what was turned down. Never: reads a clock,
//! waits, starts a thread or carries a plan out: whoever drives it says what time it is and what was measured, and does what
//! comes back. The cycle is
//!
//! ```text
//! wait for interval()  ->  observe(what was measured)  ->  Wait: note it, go on
//!                                                      ->  Evaluate: consider(statistics)  ->  Keep: note it, go on
//!                                                                                          ->  Repartition: carry the steps
//!                                                                                              out, empty the statistics
//! ```
//!
//! As in the paper: the interval is 1 s at first; while the throughput stays within 10% of the mean of the previous five
//! measurements it doubles, up to 8 s; when it does not, the model is evaluated; after a repartitioning it is 1 s again.
//! Beyond the paper, the model is also evaluated
//! - when the busiest worker stands out, which throughput alone does not show ([`Trigger::Imbalance`]);
//! - when workers went away or came back ([`Trigger::PlatformChanged`]);
//! - once, when the first three measurements agree ([`Trigger::First`]): a scheme may be bad without anything changing;
//! - after each repartitioning ([`Trigger::FollowUp`]): its sub-partitions are cut anew, so more can be seen than before;
//! - when the load goes back and forth within an interval ([`Trigger::Swing`]);
//! - when many transactions are of other classes than at the latest evaluation, whatever the throughput ([`Trigger::MixChanged`]): what the
//!   paper calls dynamic information is told by the classes at once, and a scheme may serve the new ones well enough not to show it;
//! - to find out whether a small gain is one ([`Trigger::Confirmation`]);
//! - when a scheme that was made from few samples would be made better from those that there are now ([`Trigger::MoreSamples`]).
//!
//! A long interval is for steady times. In between, throughput and loads are [glanced](Controller::glance) at: when they are
//! clearly different ones, the statistics of before are thrown away and the next ones are taken after the shortest interval,
//! so a change is acted on within three of those, however calm it was.
//!
//! The paper repartitions whenever the best scheme differs from today's. Here a gain counts only when it is no noise: see
//! [`Controller::consider`].
//!
//! Invariants: the same observations and statistics give the same decisions; the interval is between its bounds; memory is
//! bounded, whatever is observed.

mod consider;
mod decision;
mod flux;
mod growth;
mod left;
mod memory;
mod onset;
mod rules;
mod settings;
mod swing;
mod trend;
mod undo;

pub use consider::Considered;
pub use decision::{Cause, ControlAction, Decision, KeepReason, Predicted, Trigger, WaitReason};
pub use rules::Rules;
pub(crate) use settings::setting;
pub use settings::{ControllerSettings, Setting};

use crate::attribution::attribute;
use crate::cost::Weights;
use crate::error::AdaptError;
use crate::extents::KeyScheme;
use crate::ids::WorkerIndex;
use crate::mix::Mix;
use crate::platform::Platform;
use crate::search::Settings;
use crate::sharing::{Limits, ReadsSeen, Sharing, SharingChange};
use crate::trace::WorkloadTrace;
use consider::{certain_gain, deviation, greatest_of};
use flux::Flux;
use growth::Growth;
use memory::{Candidate, Failures, Profile, Rejected, Situation, Trial};
use onset::{Change, Onset};
use std::collections::VecDeque;
use std::time::Duration;
use swing::Swing;
use undo::Before;

/// Number of mixes that are remembered for which no plan was worth it.
const MIXES_KEPT: usize = 4;

/// Stripes that were made for a load that swings.
#[derive(Debug, Clone, Copy)]
struct Stripes {
    at_ns: u64,
    /// The throughput that they had first.
    throughput_tps: Option<f64>,
}

/// Measurements since the previous observation.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// Time of the observation, in nanoseconds since any fixed moment.
    pub at_ns: u64,
    /// Committed transactions per second.
    pub throughput_tps: f64,
    /// Cycles that each worker was busy for the sake of what it owns.
    pub loads: Vec<f64>,
    /// Availability of each worker: set for those that may own data.
    pub available: Vec<bool>,
    /// Set if the machine changed in a way that `available` does not show; for instance distances.
    pub changed_platform: bool,
    /// Requests for locks that had to wait, per committed transaction.
    pub waits: f64,
    /// Number of samples of equal cost that would say as much as those that [`loads`](Self::loads) are of
    /// ([`WorkloadTrace::samples_effective`](crate::WorkloadTrace::samples_effective)); `None` where they are no samples.
    pub samples: Option<f64>,
    /// Transactions by class; empty where they are not known.
    pub mix: Mix,
}

/// Instruction to the driver after an observation.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Take the statistics and let them be [considered](Controller::consider).
    Evaluate(Trigger),
    /// Do nothing, for this reason; [`Decision::waited`] makes a record of it. Statistics begin anew, unless there were
    /// [too few](WaitReason::TooFewSamples): then they are kept until there are enough.
    Wait(WaitReason),
}

/// The state of the controller.
#[derive(Debug, Clone)]
pub struct Controller {
    settings: ControllerSettings,
    interval: Duration,
    /// The previous throughputs, the latest last.
    window: VecDeque<f64>,
    /// The latest observation.
    at_ns: u64,
    throughput_tps: f64,
    /// Requests for locks that waited then, per transaction.
    waits: f64,
    /// By which share it may differ because so few transactions were counted.
    noise: f64,
    /// The mix of the latest observation, and that of the latest one that was evaluated.
    mix: Mix,
    mix_evaluated: Mix,
    /// The latest mixes for which no plan was worth it, with the times at which they were evaluated.
    mixes_kept: VecDeque<(u64, Mix)>,
    profile: Profile,
    /// By which share throughputs usually differ from one measurement to the next.
    scatter: f64,
    /// Time of the observation that the latest change of the scheme followed, and of the latest one with another throughput.
    changed_ns: u64,
    other_ns: u64,
    /// Set if that throughput may be of two different loads, since it differs from the one before.
    mixed: bool,
    /// Set if the statistics began anew after the throughput had changed, so that the next ones are of one load.
    began_anew: bool,
    /// Set while an evaluation is due because the platform changed, until one had enough statistics.
    platform_due: bool,
    first_due: bool,
    follow_up_due: Option<Trigger>,
    candidate: Option<Candidate>,
    rejected: Option<Rejected>,
    /// Factor on the costs of synchronization that the settings have: what was learnt from changes.
    sync_factor: f64,
    /// The samples of the latest observation, in number of equal cost, and the standard deviation of a worker's observed load, as a share of
    /// the mean.
    samples: f64,
    deviation: f64,
    /// The samples for which an evaluation of few of them found too few; 0 if there was none since the load changed.
    too_few: f64,
    /// The samples of the statistics that were considered last.
    considered: f64,
    /// The scheme that was left because workers were lost.
    left: Option<KeyScheme>,
    /// The samples that today's scheme was made from, or was looked at again with; `None` where it was not made for a gain.
    made_from: Option<f64>,
    /// The repartitioning that the next observation judges.
    trial: Option<Trial>,
    failures: Failures,
    flux: Flux,
    growth: Growth,
    swing: Swing,
    onset: Onset,
    /// Time of the latest short time.
    sensed_ns: u64,
    /// Stripes that were made for a load that swings.
    stripes: Option<Stripes>,
    /// By which share the throughput of the latest glance in this interval differed.
    glanced: Option<f64>,
    /// The state before the latest change, until the next observation.
    before: Option<Before>,
    /// Set if the throughput before the latest change may have been of two different loads.
    mixed_before: bool,
    /// The state before a change after which the throughput was lower.
    worse: Option<Before>,
    /// Number of times in a row that a partition was cut only to see more.
    looks: u32,
    /// Time of the latest such cut.
    looked_ns: u64,
    /// The tables that are shared.
    sharing: Sharing,
}

impl Controller {
    /// A controller that has seen nothing yet.
    ///
    /// # Errors
    /// As [`ControllerSettings::check`].
    pub fn new(settings: ControllerSettings) -> Result<Self, AdaptError> {
        settings.check()?;
        Ok(Self {
            settings,
            interval: settings.interval,
            window: VecDeque::with_capacity(settings.window),
            at_ns: 0,
            throughput_tps: 0.0,
            waits: 0.0,
            changed_ns: 0,
            other_ns: 0,
            noise: 0.0,
            mix: Mix::default(),
            mix_evaluated: Mix::default(),
            mixes_kept: VecDeque::new(),
            profile: Profile::default(),
            scatter: 0.0,
            mixed: false,
            began_anew: false,
            platform_due: false,
            first_due: true,
            follow_up_due: None,
            candidate: None,
            rejected: None,
            sync_factor: 1.0,
            samples: 0.0,
            deviation: 0.0,
            too_few: 0.0,
            considered: 0.0,
            left: None,
            made_from: None,
            trial: None,
            failures: Failures::default(),
            flux: Flux::new(settings.rules),
            growth: Growth::default(),
            swing: Swing::default(),
            onset: Onset::default(),
            stripes: None,
            glanced: None,
            sensed_ns: 0,
            before: None,
            mixed_before: false,
            worse: None,
            looks: 0,
            looked_ns: 0,
            sharing: Sharing::default(),
        })
    }

    /// The settings of its decisions.
    #[must_use]
    pub const fn settings(&self) -> &ControllerSettings {
        &self.settings
    }

    /// The factor on the costs of synchronization that the settings have: what was learnt from changes.
    #[must_use]
    pub const fn sync_factor(&self) -> f64 {
        self.sync_factor
    }

    /// Begins with a factor that was learnt before, within [`Rules::sync_factors`]; with 1 instead of one that is no number.
    #[must_use]
    pub fn with_sync_factor(mut self, factor: f64) -> Self {
        let factor = if factor.is_finite() { factor } else { 1.0 };
        self.sync_factor = self.settings.rules.sync_factor(factor);
        self
    }

    /// Settings of planning, with costs of synchronization as they were learnt.
    fn planning(&self) -> Settings {
        let planning = self.settings.planning;
        Settings { weights: planning.weights.with_sync_factor(self.sync_factor), ..planning }
    }

    /// Time to wait until the next observation.
    #[must_use]
    pub const fn interval(&self) -> Duration {
        self.interval
    }

    /// Takes note of what was measured, and says whether the model is to be evaluated.
    ///
    /// Numbers that are none are taken for 0, and a worker without a load for one that was idle.
    pub fn observe(&mut self, observation: &Observation) -> Verdict {
        self.interval = self.interval.max(self.settings.interval);
        let throughput = sane(observation.throughput_tps);
        let profile = Profile::of(observation);
        self.waits = sane(observation.waits);
        self.noise = self.counting_noise(throughput, ns_between(self.at_ns, observation.at_ns));
        if let Some(trial) = self.trial.take() {
            let (at_ns, throughput_tps, profile) = (observation.at_ns, throughput, profile.clone());
            let after = Situation { at_ns, throughput_tps, noise: self.noise, profile };
            self.failures.judge(&trial, &after, &self.settings);
            let predicted_gain = trial.promise.map(|promise| promise.predicted.gain);
            let (before_tps, after_tps) = (trial.before.throughput_tps, throughput);
            self.learn(&trial, after_tps);
            self.growth.learn(1.0 - before_tps / after_tps, self.flux.grows());
            self.compare_with_before(after_tps);
            match &mut self.stripes {
                Some(stripes) if stripes.throughput_tps.is_none() => stripes.throughput_tps = Some(after_tps),
                _ => self.follow_up_due = Some(Trigger::FollowUp { before_tps, after_tps, predicted_gain }),
            }
        }
        let known = !self.profile.is_empty();
        let other = if known {
            !self.profile.is_of_same_workers(&profile)
        } else {
            // A worker may have gone before anything was observed.
            profile.available_count() < profile.worker_count()
        };
        if observation.changed_platform || other {
            self.forget();
            self.platform_due = true;
        }
        (self.at_ns, self.throughput_tps, self.profile) = (observation.at_ns, throughput, profile);
        self.samples = observation.samples.unwrap_or(f64::INFINITY);
        self.deviation = deviation(observation.samples, self.profile.available_count());
        self.swing.observe(observation, &self.settings);
        self.onset.observed();
        self.glanced = None;

        let mix_changed = self.note_mix(&observation.mix);
        let differs = self.window.back().is_some_and(|before| self.differs_from(*before));
        self.mixed = !std::mem::take(&mut self.began_anew) && (differs || mix_changed.is_some());
        let mean = self.mean();
        let full = self.window.len() == self.settings.window;
        let changed = mean.filter(|before| self.differs_from(*before));
        if full {
            self.window.pop_front();
        }
        self.window.push_back(throughput);
        self.measure_scatter();
        if changed.is_some() || mix_changed.is_some() {
            self.other_ns = observation.at_ns.saturating_sub(1);
            self.too_few = 0.0;
        }
        if changed.is_some() {
            self.interval = self.settings.interval;
        } else if full {
            self.interval = self.interval.saturating_mul(2).min(self.settings.interval_max);
        }
        let verdict = self.verdict(changed, mix_changed, full);
        if verdict != Verdict::Wait(WaitReason::TooFewSamples) {
            self.swing.begin_anew();
        }
        if matches!(&verdict, Verdict::Evaluate(trigger) if trigger.is_alert()) {
            self.interval = self.settings.interval;
        }
        verdict
    }

    /// Looks at the throughput and the loads of a short time in the middle of a long interval, or at the end of it: in the whole of it, what has
    /// just changed hardly shows. When the throughput differs
    /// from what it was by more than twice the threshold, or by more than once in two looks that follow each other, or transactions are of other classes,
    /// or a worker stands out that did not before, says so: then whatever was counted so far is to be thrown away, and the next observation is due after
    /// [`interval`](Controller::interval), a half of the shortest: that the load is another one is known already.
    ///
    /// Workers that went away are for an observation, at once.
    pub fn glance(&mut self, seen: &Observation) -> Option<WaitReason> {
        if self.interval <= self.settings.interval {
            return None;
        }
        let profile = Profile::of(seen);
        // Of few samples any two looks differ, and statistics that begin anew each time never suffice; but they may show that one worker has everything.
        let noise =
            self.settings.confidence * self.deviation.max(deviation(seen.samples, profile.available_count()));
        let is_clear =
            |(_, over): (u32, f64)| certain_gain(1.0 + over, 1.0, noise) >= self.settings.gain_sure;
        if noise > self.settings.rules.noise_max && !profile.busiest().is_some_and(is_clear) {
            return None;
        }
        let (from_tps, to_tps) = (self.mean()?, sane(seen.throughput_tps));
        let stands_out = self.settings.imbalance + noise;
        let busiest = profile.busiest().filter(|(_, over)| *over > stands_out);
        let counted = self.counting_noise(to_tps, self.settings.interval.as_nanos());
        let change = to_tps / from_tps.max(f64::MIN_POSITIVE) - 1.0;
        let clear = (self.settings.rules.glance_thresholds * self.settings.threshold).max(counted);
        let noticed = (self.settings.threshold + self.scatter).max(counted);
        let before = self.glanced.replace(change).filter(|_| change.abs() > noticed);
        let is_seen_again = before.is_some_and(|before| before.abs() > noticed && before * change > 0.0);
        let trigger = if change.abs() > clear || is_seen_again {
            Trigger::ThroughputChanged { from_tps, to_tps }
        } else if let Some(share) = self.share_of_other_classes(&seen.mix, seen.at_ns) {
            Trigger::MixChanged { share }
        } else {
            let (worker, over_mean) = busiest.filter(|_| !profile.is_like(&self.profile, &self.settings))?;
            Trigger::Imbalance { busiest: WorkerIndex(worker), over_mean }
        };
        Some(self.begin_anew(trigger))
    }

    /// Statistics of what came before `trigger` was noticed are thrown away; the next observation is due soon.
    fn begin_anew(&mut self, trigger: Trigger) -> WaitReason {
        self.glanced = None;
        self.interval = self.settings.interval / self.settings.rules.after_glance;
        self.swing.begin_anew();
        self.onset.begin_anew();
        self.began_anew = true;
        WaitReason::BeganAnew { trigger }
    }

    /// Takes note of the loads of a short time, about a tenth of the shortest interval: several times per interval, or never where a driver
    /// has no such loads. When the throughput has become another one within a shortest interval, says so, as [`glance`](Self::glance)
    /// does within a longer one; only of a load that was the same in two intervals, and not while it swings.
    pub fn sense(&mut self, seen: &Observation) -> Option<WaitReason> {
        self.swing.sense(seen);
        let since_ns = ns_between(self.sensed_ns, seen.at_ns);
        self.sensed_ns = seen.at_ns;
        let to_tps = sane(seen.throughput_tps);
        let is_short = self.interval <= self.settings.interval;
        if !is_short || self.swing.is_seen() || !self.flux.is_steady() || since_ns == 0 {
            return None;
        }
        let counted = self.counting_noise(to_tps, since_ns);
        let Change { from_tps, to_tps } = self.onset.sense(to_tps, counted, &self.settings)?;
        Some(self.begin_anew(Trigger::ThroughputChanged { from_tps, to_tps }))
    }

    /// By which share a throughput may differ because so few transactions were counted in that time: of `n` that come by
    /// themselves, the standard deviation is the root of `n`.
    fn counting_noise(&self, throughput_tps: f64, ns: u128) -> f64 {
        let counted = throughput_tps * ns as f64 * 1e-9;
        if counted > 0.0 { self.settings.confidence / counted.sqrt() } else { 0.0 }
    }

    /// Takes note of a mix. Returns the share of transactions that are of other classes than when the model was evaluated, if that is a
    /// reason to look again.
    fn note_mix(&mut self, mix: &Mix) -> Option<f64> {
        self.mix.clone_from(mix);
        let changed = self.share_of_other_classes(mix, self.at_ns);
        let known = &self.mix_evaluated;
        // What was known from too few samples to compare with is known better now.
        let says_nothing =
            known.is_empty() || known.noise(known, self.settings.confidence) > self.settings.mix_change;
        if changed.is_none() && says_nothing {
            self.mix_evaluated.clone_from(mix);
        }
        changed
    }

    /// Returns the share of transactions that are of other classes than when the model was evaluated, if it is more than
    /// [`mix_change`](ControllerSettings::mix_change), and no plan for such a mix was turned down a short time ago: classes that take turns are
    /// not planned for at each turn.
    fn share_of_other_classes(&self, mix: &Mix, at_ns: u64) -> Option<f64> {
        let share = self.other_classes(&self.mix_evaluated, mix)?;
        let patience_ns = self.settings.interval_max.as_nanos();
        let is_kept = |(kept_ns, kept): &(u64, Mix)| {
            ns_between(*kept_ns, at_ns) < patience_ns && self.other_classes(kept, mix).is_none()
        };
        (!self.mixes_kept.iter().any(is_kept)).then_some(share)
    }

    /// Returns the distance of two mixes if it is noticeable.
    fn other_classes(&self, before: &Mix, mix: &Mix) -> Option<f64> {
        let share = before.distance(mix);
        (share > self.settings.mix_change + before.noise(mix, self.settings.confidence)).then_some(share)
    }

    /// Takes note of what was decided for the latest mix.
    fn mix_was_evaluated(&mut self, action: ControlAction) {
        let kept = match action {
            ControlAction::Keep { reason: KeepReason::TooFewSamples } => return,
            ControlAction::Keep { reason } => reason != KeepReason::ToBeConfirmed,
            _ => {
                self.mixes_kept.clear();
                false
            }
        };
        if self.mix.is_empty() {
            return;
        }
        self.mix_evaluated.clone_from(&self.mix);
        if kept {
            if self.mixes_kept.len() == MIXES_KEPT {
                self.mixes_kept.pop_front();
            }
            self.mixes_kept.push_back((self.at_ns, self.mix.clone()));
        }
    }

    fn mean(&self) -> Option<f64> {
        let sum: f64 = self.window.iter().sum();
        (!self.window.is_empty()).then(|| sum / self.window.len() as f64)
    }

    fn verdict(&self, changed: Option<f64>, mix_changed: Option<f64>, full: bool) -> Verdict {
        let busiest = self.profile.busiest();
        if self.platform_due || self.profile.stranded().is_some() {
            let available = self.profile.available_count();
            let trigger = Trigger::PlatformChanged { available, workers: self.profile.worker_count() };
            // What could not be brought away is tried again, but not all the time.
            return if self.platform_due {
                Verdict::Evaluate(trigger)
            } else {
                self.unless_rejected(trigger)
            };
        }
        if let Some(trigger) = self.more_samples() {
            return Verdict::Evaluate(trigger);
        }
        let noise = self.settings.confidence * self.deviation;
        if noise > self.settings.rules.noise_max {
            return self.verdict_on_few(busiest, noise);
        }
        // Whole intervals of a load that swings do not tell where it will be: neither is a gain confirmed by them, nor does another change follow from one.
        if let Some(ratio) = self.swing.ratio(&self.settings.rules).filter(|_| !self.has_good_stripes()) {
            let verdict = self.unless_rejected(Trigger::Swing { over_mean: ratio - 1.0 });
            if matches!(verdict, Verdict::Evaluate(_)) {
                return verdict;
            }
        }
        if self.candidate.is_some() {
            return Verdict::Evaluate(Trigger::Confirmation);
        }
        if let Some(trigger) = self.follow_up_due {
            return Verdict::Evaluate(trigger);
        }
        if let Some(from_tps) = changed {
            return self
                .unless_rejected(Trigger::ThroughputChanged { from_tps, to_tps: self.throughput_tps });
        }
        if let Some(share) = mix_changed {
            // A mix for which nothing was found a short time ago is no reason in the first place.
            return Verdict::Evaluate(Trigger::MixChanged { share });
        }
        let stands_out = self.settings.imbalance + self.settings.confidence * self.deviation;
        if let Some((worker, over_mean)) = busiest.filter(|(_, over)| *over > stands_out) {
            let trigger = Trigger::Imbalance { busiest: WorkerIndex(worker), over_mean };
            return if self.has_good_stripes() {
                Verdict::Wait(WaitReason::Striped { trigger })
            } else {
                self.unless_rejected(trigger)
            };
        }
        if let Some(ratio) = self.swing.ratio(&self.settings.rules) {
            return self.unless_rejected(Trigger::Swing { over_mean: ratio - 1.0 });
        }
        if self.first_due
            && self.window.len() >= self.settings.rules.first_min as usize
            && self.throughput_tps > 0.0
            && !self.mixed
        {
            return Verdict::Evaluate(Trigger::First);
        }
        let earlier = self.window.len() - 1;
        Verdict::Wait(if full { WaitReason::Calm } else { WaitReason::Settling { earlier } })
    }

    /// Few samples are evaluated if a worker has so much more than its share that they may show it. To evaluate takes them: after an attempt
    /// that they did not suffice for, twice as many are wanted.
    fn verdict_on_few(&self, busiest: Option<(u32, f64)>, noise: f64) -> Verdict {
        let enough = |over: f64| {
            certain_gain(1.0 + over, 1.0, noise) >= self.settings.gain_sure
                && self.samples + self.kept() >= 2.0 * self.too_few
        };
        match busiest.filter(|(_, over)| enough(*over)) {
            Some((worker, over_mean)) => {
                self.unless_rejected(Trigger::Imbalance { busiest: WorkerIndex(worker), over_mean })
            }
            None => Verdict::Wait(WaitReason::TooFewSamples),
        }
    }

    /// A scheme is as good as the samples that it was made from: the load of each worker under it is wrong by their standard deviation, and the greatest of
    /// them is what counts. It is made again when there are [`more_samples`](Rules::more_samples) times as many, and a scheme made from them is to be expected to be better by a gain that is
    /// worth anything.
    fn more_samples(&self) -> Option<Trigger> {
        let (made_from, since) = (self.made_from?, self.samples + self.kept());
        let workers = self.profile.available_count();
        let fewer = deviation(Some(made_from), workers) - deviation(Some(since), workers);
        let better = greatest_of(workers) * fewer;
        let is_worth_it =
            since >= self.settings.rules.more_samples * made_from && better >= self.settings.gain_min;
        is_worth_it.then_some(Trigger::MoreSamples { made_from, since })
    }

    /// The samples of earlier statistics under today's scheme, which count as long as the load is the same.
    fn kept(&self) -> f64 {
        self.flux.samples_since(self.changed_ns.max(self.other_ns))
    }

    /// Returns whether stripes were made for a load that swings, not long ago, and serve it as they did at first: by the loads of whole
    /// intervals other schemes look better.
    fn has_good_stripes(&self) -> bool {
        let Some(Stripes { at_ns, throughput_tps: Some(at_first_tps) }) = self.stripes else { return false };
        let long = self.settings.interval_max.as_nanos() * u128::from(self.settings.rules.stripes_kept);
        let threshold = self.settings.threshold.max(self.noise);
        ns_between(at_ns, self.at_ns) < long && self.throughput_tps >= (1.0 - threshold) * at_first_tps
    }

    /// Waits rather than evaluates while the situation is one in which no plan was worth it: an evaluation could come to something else only if
    /// the throughput, a worker's load or the load of keys has become another one, beyond noise.
    fn unless_rejected(&self, trigger: Trigger) -> Verdict {
        let is_of_swing = matches!(trigger, Trigger::Swing { .. });
        match &self.rejected {
            // What whole intervals say is no answer to a load that swings.
            Some(rejected)
                if rejected.is_of_swing >= is_of_swing
                    && rejected.holds(&self.situation(), &self.settings)
                    && self.flux.has_moved_since(rejected.situation.at_ns) != Some(true)
                    && !self.has_grown_since(rejected.situation.at_ns) =>
            {
                Verdict::Wait(WaitReason::TurnedDown { trigger })
            }
            _ => Verdict::Evaluate(trigger),
        }
    }

    /// Returns whether the end of a table has grown so much since then that cutting it off is worth it again.
    fn has_grown_since(&self, at_ns: u64) -> bool {
        let intervals = ns_between(at_ns, self.at_ns) as f64 / self.settings.interval.as_nanos() as f64;
        self.growth.is_worth_it_after(intervals, &self.settings)
    }

    /// Takes note of statistics that nobody wants evaluated, before they begin anew: where the load was is worth knowing if it moves.
    /// Statistics without keys say nothing.
    ///
    /// # Errors
    /// As [`attribute`]: the statistics, their scheme and the platform do not fit.
    pub fn note(&mut self, trace: &WorkloadTrace, platform: &Platform) -> Result<(), AdaptError> {
        let attributed = attribute(trace, platform, &self.planning())?;
        // Whether the load has moved since a plan was turned down is asked for as long as that holds.
        let turned_down_ns = self.rejected.as_ref().map(|rejected| rejected.situation.at_ns);
        self.flux.note(self.at_ns, trace, attributed.workload, turned_down_ns);
        Ok(())
    }

    /// Learns from a change that was made for its synchronization what that really costs.
    fn learn(&mut self, trial: &Trial, after_tps: f64) {
        let before_tps = trial.before.throughput_tps;
        let ratio = if before_tps > 0.0 { after_tps / before_tps } else { 0.0 };
        if let Some(factor) =
            trial.promise.and_then(|promise| promise.sync_factor(ratio, &self.settings.rules))
        {
            // Half of the way, as one change may have come with a change of load.
            self.sync_factor = self.settings.rules.sync_factor(self.sync_factor * factor.sqrt());
        }
    }

    /// The steps of the last plan were not carried out, or not all of them: nothing is concluded from what comes next.
    pub fn abandoned(&mut self) {
        (self.trial, self.made_from) = (None, None);
        (self.before, self.worse) = (None, None);
        self.growth.await_gain(None);
        self.follow_up_due = None;
    }

    /// Returns whether the latest throughput is another one than `before`.
    fn differs_from(&self, before: f64) -> bool {
        (self.throughput_tps - before).abs() > self.settings.threshold.max(self.noise) * before
    }

    /// The median of the differences that are no changes of the load.
    fn measure_scatter(&mut self) {
        let pairs = self.window.iter().zip(self.window.iter().skip(1));
        let mut differences: Vec<f64> = pairs
            .filter(|(a, b)| a.max(**b) > 0.0)
            .map(|(a, b)| (a - b).abs() / f64::midpoint(*a, *b))
            .filter(|difference| *difference <= self.settings.threshold)
            .collect();
        if differences.len() >= self.settings.rules.scatter_min as usize {
            differences.sort_by(f64::total_cmp);
            self.scatter = differences[differences.len() / 2];
        }
    }

    fn situation(&self) -> Situation {
        let (at_ns, throughput_tps) = (self.at_ns, self.throughput_tps);
        Situation { at_ns, throughput_tps, noise: self.noise, profile: self.profile.clone() }
    }

    /// Takes note of what workers read elsewhere, after the decision of an interval; returns the tables that are to be shared from now
    /// on, or no longer. Whoever drives it does so, and lends their partitions to readers for as long as nobody writes in them.
    pub fn share(&mut self, after: &Decision, seen: &ReadsSeen) -> Vec<SharingChange> {
        let Weights { cycles_per_byte, message_bytes, exchange_cycles, .. } = self.settings.planning.weights;
        let limits = Limits {
            share_gain: self.settings.share_gain,
            message_cycles: self.sync_factor * (exchange_cycles + cycles_per_byte * message_bytes),
            interval_max: self.settings.interval_max,
            rules: self.settings.rules,
        };
        let changes = self.sharing.consider(seen, after.leaves_messages(), &limits);
        if !changes.is_empty() {
            // What was planned, tried and measured was with other messages.
            self.interval = self.settings.interval;
            (self.candidate, self.rejected, self.trial) = (None, None, None);
            (self.before, self.worse) = (None, None);
            self.failures = Failures::default();
            self.flux = Flux::default();
        }
        if self.sharing.is_about_to_share() {
            // It is worth more than what a long interval saves.
            self.interval = self.settings.interval;
        }
        changes
    }

    /// Another machine: what was learnt is of no use.
    fn forget(&mut self) {
        self.interval = self.settings.interval;
        self.window.clear();
        (self.candidate, self.rejected, self.follow_up_due) = (None, None, None);
        (self.before, self.worse) = (None, None);
        self.failures = Failures::default();
        self.flux = Flux::default();
        self.swing = Swing::default();
        self.stripes = None;
        (self.mix_evaluated, self.mixes_kept) = (Mix::default(), VecDeque::new());
        (self.looks, self.too_few, self.made_from) = (0, 0.0, None);
        self.sync_factor = 1.0;
        self.began_anew = false;
    }
}

fn sane(number: f64) -> f64 {
    if number.is_finite() { number.max(0.0) } else { 0.0 }
}

const fn ns_between(from: u64, to: u64) -> u128 {
    to.saturating_sub(from) as u128
}
