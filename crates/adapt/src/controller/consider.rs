//! Judgement of a plan: to carry it out, or to keep today's scheme.
//!
//! Owns: the hysteresis. Never: searches; see [`plan`].
//!
//! The paper carries out every plan that differs from today's scheme. Statistics are samples, so that the best scheme
//! for them nearly always differs; what decides here is by how much, whether that could be noise, and what came of the
//! last attempt in the same situation.

use super::flux::Outlook;
use super::memory::{Candidate, Promise, Rejected, Trial};
use super::{
    Cause, ControlAction, Controller, Decision, KeepReason, Predicted, Rules, Stripes, Trigger, ns_between,
};
use crate::attribution::{Attributed, attribute};
use crate::cost::{Weights, evaluate};
use crate::error::AdaptError;
use crate::extents::Extents;
use crate::ids::TableIndex;
use crate::plan::{Plan, plan, plan_of_necessity, plan_to};
use crate::platform::Platform;
use crate::scheme::PlannedScheme;
use crate::search::{Settings, search};
use crate::spread::{deal, spread};
use crate::trace::WorkloadTrace;
use crate::workload::Workload;

/// Result of an evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct Considered {
    /// The decision, with its reason.
    pub decision: Decision,
    /// The plan to carry out; `None` unless the decision is to repartition.
    pub plan: Option<Plan>,
    /// Extents of the slices that the plan is made of, where the trace has keys: they may be more than those of the trace.
    pub extents: Option<Extents>,
}

/// Worth of a plan.
enum Worth {
    /// The plan has to be carried out, or its gain is beyond doubt.
    Sure,
    /// The plan cuts a hot sub-partition out, which gains nothing by itself.
    Look,
    /// The gain may be real, or noise.
    Perhaps,
    Not(KeepReason),
}

/// Purposes of a repartitioning.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Necessary,
    Look,
    ForGain,
    /// For loads that move: nothing is concluded from the next interval, which has another one.
    InFlux,
}

impl Controller {
    /// Makes a plan for the statistics that `trigger` asked for and decides what becomes of it. `platform` has the workers of
    /// the observation; a [`Plan::today`] is the scheme of the trace.
    ///
    /// A plan is carried out
    /// - at once, if today's scheme gives something to a worker that may own nothing, or workers came back: then it is the scheme that they had,
    ///   unless the statistics show that it is worse;
    /// - at once, if it gains [`gain_sure`](super::ControllerSettings::gain_sure) more than noise explains: as many standard
    ///   deviations of a worker's load as [`confidence`](super::ControllerSettings::confidence) says;
    /// - at once, if there are few samples, and they show all the same that it gains as much: a worker has nearly everything;
    /// - at once, if today's scheme was made from so few samples that one from half as many more is to be expected to be better, and it gains
    ///   [`gain_min`](super::ControllerSettings::gain_min);
    /// - at once, if at least half of a sure gain came of the change just before, the load does not swing, and it gains
    ///   [`gain_min`](super::ControllerSettings::gain_min) more than noise explains;
    /// - at once, if a table grows at the end of its keys, a change that was made since it does was measured, and the gain that is to be expected after that
    ///   is twice [`gain_min`](super::ControllerSettings::gain_min), and that much more than one standard deviation. All gains are then those that the model
    ///   says less what was missing from that of the latest such change;
    /// - if it gains [`gain_min`](super::ControllerSettings::gain_min) more than one standard deviation and than by what
    ///   throughputs usually differ from one measurement to the next, and as many later statistics as
    ///   [`confirmations`](super::ControllerSettings::confirmations) say confirm the gain of the very same scheme: what was
    ///   fitted to noise gains nothing under other noise;
    /// - if a single sub-partition has more than a worker's share of the load: it becomes a partition, in order to be seen in
    ///   ten parts. Only three times in a row, because it may be a single key; and not if it is the end of a table that grows there;
    ///
    /// but not, unless it must, when a change under the same loads of the workers brought nothing twice; that is forgotten
    /// after a while, later each time.
    ///
    /// # Errors
    /// As [`plan`]: the statistics, their scheme and the platform do not fit.
    pub fn consider(
        &mut self,
        trigger: Trigger,
        trace: &WorkloadTrace,
        platform: &Platform,
    ) -> Result<Considered, AdaptError> {
        self.note(trace, platform)?;
        self.growth.note(self.flux.grows());
        let extents = Extents::of(trace);
        let considered = self.consider_slices(trigger, trace, platform)?;
        self.mix_was_evaluated(considered.decision.action);
        self.before = None;
        let is_for_gain = considered.decision.predicted.is_some_and(|predicted| predicted.gain_wanted > 0.0);
        if let (Some(plan), Some(extents), true) = (&considered.plan, &extents, is_for_gain) {
            self.remember_before(plan, trace, extents);
        }
        Ok(Considered { extents: considered.extents.or(extents), ..considered })
    }

    /// The same, for a trace whose load was remembered.
    fn consider_slices(
        &mut self,
        trigger: Trigger,
        trace: &WorkloadTrace,
        platform: &Platform,
    ) -> Result<Considered, AdaptError> {
        let mut planning = self.planning();
        let today = trace.scheme()?;
        today.check(&trace.workload()?, platform)?;
        let Attributed { workload: latest, weights } = attribute(trace, platform, &planning)?;
        planning.weights = weights;
        let workers = platform.available_count();
        let (workload, samples) = self.pooled(&latest, trace, workers);
        self.considered = samples.unwrap_or(f64::INFINITY);
        let must = self.must_leave(&today, trace, platform);
        let deviation_pooled = deviation(samples, workers) * workload.divided_share();
        let noise = self.settings.confidence * deviation_pooled;
        if noise > self.settings.rules.noise_max && (must || !trigger.is_more_samples()) {
            return self.consider_few_samples(
                trigger,
                (&workload, platform),
                (&today, &planning),
                noise,
                must,
            );
        }
        self.note_evaluated(trigger);
        let mut plan = plan(&workload, platform, &today, &planning)?;
        if !must && let Some(back) = self.return_to_left(trigger, &plan, trace, platform, &planning, noise)? {
            return Ok(back);
        }
        let worse = self.worse.take().filter(|_| !must);
        if let Some(before) = worse
            // Where the statistics show what is wrong with the change, the way leads on, not back; they do not show who waits.
            && (self.gain(&plan) < self.settings.gain_sure + noise || before.waited_less(self.waits, &self.settings.rules))
            && let Some(undone) = self.undo(trigger, before, trace, platform, &planning, noise)?
        {
            return Ok(undone);
        }
        if !must
            && let Some(considered) =
                self.consider_flux(trigger, &plan, (&workload, platform), &planning, noise)?
        {
            return Ok(considered);
        }
        let wanted = if must { 0.0 } else { self.sure_gain(trigger, deviation_pooled) };
        let cut_out = self.cut_out(&plan, (&workload, platform), &planning.weights, noise)?;
        let looks = cut_out.is_some();
        plan = cut_out.unwrap_or(plan);
        let candidate = self.candidate.take();
        match self.worth(trigger, &plan, must, looks, deviation_pooled) {
            Worth::Sure => Ok(self.repartition(trigger, plan, wanted, Kind::ForGain)),
            Worth::Look => Ok(self.repartition(trigger, plan, wanted, Kind::Look)),
            Worth::Not(reason @ KeepReason::FailedBefore) => {
                Ok(self.keep(trigger, Some((&plan, wanted)), reason))
            }
            Worth::Not(_) if candidate.is_none() && self.is_one_hot_spot(&workload, platform) => {
                Ok(self.keep(trigger, Some((&plan, wanted)), KeepReason::OneHotSpot))
            }
            worth => {
                let deviation = deviation(trace.samples_effective(), workers) * latest.divided_share();
                let latest = (&latest, platform, &planning.weights);
                self.confirm_or_propose(trigger, candidate, latest, deviation, (worth, plan, wanted))
            }
        }
    }

    /// Takes note that there were samples enough for an evaluation: what it was due for is done.
    fn note_evaluated(&mut self, trigger: Trigger) {
        (self.follow_up_due, self.platform_due) = (None, false);
        self.first_due &= !matches!(trigger, Trigger::First);
    }

    /// Confirms the candidate by the latest statistics, if it leads from this scheme under this load; otherwise the plan may become one.
    fn confirm_or_propose(
        &mut self,
        trigger: Trigger,
        candidate: Option<Candidate>,
        latest: (&Workload, &Platform, &Weights),
        deviation: f64,
        (worth, plan, wanted): (Worth, Plan, f64),
    ) -> Result<Considered, AdaptError> {
        let slices = latest.0.slice_counts();
        let is_of_this = |candidate: &Candidate| {
            candidate.is_of(&plan.today, &slices) && !self.differs_from(candidate.throughput_tps)
        };
        match candidate.filter(is_of_this) {
            Some(candidate) => self.confirm(trigger, candidate, latest, deviation),
            None => Ok(self.propose(trigger, worth, plan, slices, wanted)),
        }
    }

    /// The statistics to plan for, and the number of their samples: `latest`, the work of `trace`, with earlier ones of the same load and the same
    /// transactions.
    fn pooled(&self, latest: &Workload, trace: &WorkloadTrace, workers: usize) -> (Workload, Option<f64>) {
        if latest.work_cycles() <= 0.0 {
            return (latest.clone(), Some(0.0));
        }
        match self.flux.pooled(self.changed_ns.max(self.other_ns), workers) {
            Some((workload, samples)) => (workload, Some(samples)),
            None => (latest.clone(), trace.samples_effective()),
        }
    }

    /// Considers statistics of few samples: they may show that a worker has much more than its share, and nothing else.
    fn consider_few_samples(
        &mut self,
        trigger: Trigger,
        (workload, platform): (&Workload, &Platform),
        (today, planning): (&PlannedScheme, &Settings),
        noise: f64,
        must: bool,
    ) -> Result<Considered, AdaptError> {
        if must {
            let plan = plan_of_necessity(workload, platform, today, &planning.weights)?;
            return Ok(self.repartition(trigger, plan, 0.0, Kind::Necessary));
        }
        let before = evaluate(workload, platform, today, &planning.weights)?.load_max_ratio();
        let is_possible = certain_gain(before, 1.0, noise) >= self.settings.gain_sure;
        if is_possible && !self.failures.block(&self.situation(), &self.settings) {
            let plan = plan(workload, platform, today, planning)?;
            let certain = certain_gain(before, plan.after.load_max_ratio(), noise);
            if !plan.steps.is_empty() && certain >= self.settings.gain_sure {
                self.follow_up_due = None;
                let wanted = self.settings.gain_sure + self.gain(&plan) - certain;
                return Ok(self.repartition(trigger, plan, wanted, Kind::ForGain));
            }
        }
        // Those of this time are among the kept ones already, where statistics have keys.
        self.too_few = self.samples.max(self.kept());
        Ok(self.keep(trigger, None, KeepReason::TooFewSamples))
    }

    /// Returns the plan with the slices alone that are too hot for one worker, if they may be looked at closer.
    fn cut_out(
        &self,
        plan: &Plan,
        (workload, platform): (&Workload, &Platform),
        weights: &Weights,
        noise: f64,
    ) -> Result<Option<Plan>, AdaptError> {
        let hot = 1.0 + self.settings.imbalance;
        if plan.before.load_max_ratio() <= hot + noise || self.looks_left() == 0 {
            return Ok(None);
        }
        let is_end = |table: TableIndex| self.flux.grows_at_end(table.index());
        plan.with_hot_slices_alone(workload, platform, hot, weights, is_end)
    }

    /// Considers a load that moves all the time; `None` if it does not.
    fn consider_flux(
        &mut self,
        trigger: Trigger,
        plan: &Plan,
        (workload, platform): (&Workload, &Platform),
        planning: &Settings,
        noise: f64,
    ) -> Result<Option<Considered>, AdaptError> {
        if let Trigger::Swing { over_mean } = trigger {
            let (plan, predicted) =
                plan_to_spread(over_mean, plan, (workload, platform), (planning, &self.settings.rules))?;
            // Noise was taken off before it was called a swing.
            return Ok(Some(self.judge_in_flux(trigger, plan, predicted, 0.0)));
        }
        let Some(outlook) = self.flux.outlook(self.settings.interval_max.as_nanos()) else { return Ok(None) };
        let (plan, predicted) =
            plan_in_flux(&outlook, plan, (workload, platform), (planning, &self.settings.rules))?;
        // The noise of several intervals is less than that of one.
        let noise = noise / (outlook.loads_count() as f64).sqrt();
        Ok(Some(self.judge_in_flux(trigger, plan, predicted, noise)))
    }

    /// Returns whether a sub-partition has more than a worker's share although it was cut out and looked at closer, or is an end of keys that
    /// grows.
    fn is_one_hot_spot(&self, workload: &Workload, platform: &Platform) -> bool {
        let share = workload.all_cycles() / platform.available_count() as f64;
        let limit = (1.0 + self.settings.imbalance) * share;
        let is_hot = |cost: &f64| *cost > limit;
        let end = |table: u32| workload.table_costs(TableIndex(table)).last().filter(|cost| is_hot(cost));
        let tables = 0..workload.slice_counts().len() as u32;
        self.looks_left() == 0 && workload.all_costs().iter().any(is_hot)
            || tables.into_iter().any(|table| end(table).is_some() && self.flux.grows_at_end(table as usize))
    }

    fn worth(&self, trigger: Trigger, plan: &Plan, must: bool, looks: bool, deviation: f64) -> Worth {
        let settings = &self.settings;
        let gain = self.gain(plan);
        if plan.steps.is_empty() {
            return Worth::Not(KeepReason::NothingBetter);
        }
        if must || (matches!(trigger, Trigger::PlatformChanged { .. }) && plan.gain() > 0.0) {
            return Worth::Sure;
        }
        if self.failures.block(&self.situation(), settings) {
            return Worth::Not(KeepReason::FailedBefore);
        }
        if gain >= self.sure_gain(trigger, deviation)
            && !self.failures.has_undone(&self.situation(), settings)
        {
            return Worth::Sure;
        }
        if looks {
            return Worth::Look;
        }
        if gain >= settings.gain_min + deviation.max(self.scatter) {
            return Worth::Perhaps;
        }
        Worth::Not(KeepReason::GainTooSmall)
    }

    /// The gain from which a plan is carried out at once: a great one that is no noise, or any one that is none where the model was right just
    /// before and the load stays where it is. A scheme that was made from fewer samples is worse by so much that any gain is to be expected.
    fn sure_gain(&self, trigger: Trigger, deviation: f64) -> f64 {
        let settings = &self.settings;
        let noise = settings.confidence * deviation;
        match trigger {
            Trigger::MoreSamples { .. } => settings.gain_min,
            Trigger::FollowUp { before_tps, after_tps, predicted_gain: Some(predicted) }
                if predicted >= settings.gain_sure
                    && !self.swing.is_seen()
                    && 1.0 - before_tps / after_tps.max(f64::MIN_POSITIVE)
                        >= settings.rules.followed_min * predicted =>
            {
                settings.gain_min + noise
            }
            _ => match self.growth.sure_gain(settings) {
                Some(sure) => sure.max(settings.gain_min + deviation),
                None => settings.gain_sure + noise,
            },
        }
    }

    /// Decides on a plan for loads that move, with the figures of all of them.
    fn judge_in_flux(
        &mut self,
        trigger: Trigger,
        plan: Plan,
        mut predicted: Predicted,
        noise: f64,
    ) -> Considered {
        // Over several loads there is less noise in a gain.
        predicted.gain_wanted = f64::midpoint(self.settings.gain_min, self.settings.gain_sure) + noise;
        self.candidate = None;
        if !plan.steps.is_empty() && predicted.gain >= predicted.gain_wanted {
            return self.repartition_as(trigger, plan, predicted, Kind::InFlux);
        }
        let reason = KeepReason::InFlux;
        let considered = self.keep(trigger, None, reason);
        let decision = self.decision(trigger, ControlAction::Keep { reason }, Some(predicted));
        Considered { decision, ..considered }
    }

    /// A gain that may be noise is remembered together with its scheme, and nothing is moved yet.
    fn propose(
        &mut self,
        trigger: Trigger,
        worth: Worth,
        plan: Plan,
        slices: Vec<u32>,
        wanted: f64,
    ) -> Considered {
        let reason = match worth {
            Worth::Not(reason) => reason,
            _ if self.settings.confirmations == 0 => {
                return self.repartition(trigger, plan, wanted, Kind::ForGain);
            }
            _ => {
                self.interval = self.settings.interval;
                let (today, scheme) = (plan.today.clone(), plan.scheme.clone());
                self.candidate = Some(Candidate {
                    today,
                    slices,
                    scheme,
                    confirmed: 0,
                    gain_sum: 0.0,
                    throughput_tps: self.throughput_tps,
                });
                KeepReason::ToBeConfirmed
            }
        };
        self.keep(trigger, Some((&plan, wanted)), reason)
    }

    /// Judges a scheme by statistics later than those it was proposed for.
    fn confirm(
        &mut self,
        trigger: Trigger,
        mut candidate: Candidate,
        (workload, platform, weights): (&Workload, &Platform, &Weights),
        deviation: f64,
    ) -> Result<Considered, AdaptError> {
        let wanted = self.settings.gain_sure + self.settings.confidence * deviation;
        let scheme = candidate.scheme.clone();
        let plan = plan_to(workload, platform, &candidate.today, scheme, weights)?;
        let gain = self.gain(&plan);
        candidate.confirmed += 1;
        candidate.gain_sum += gain;
        let mean = candidate.gain_sum / f64::from(candidate.confirmed);
        let reason = if gain <= 0.0 || mean < self.settings.gain_min + deviation.max(self.scatter) {
            KeepReason::NotConfirmed
        } else if candidate.confirmed >= self.settings.confirmations {
            return Ok(self.repartition(trigger, plan, wanted, Kind::ForGain));
        } else {
            self.candidate = Some(candidate);
            KeepReason::ToBeConfirmed
        };
        Ok(self.keep(trigger, Some((&plan, wanted)), reason))
    }

    fn keep(&mut self, trigger: Trigger, plan: Option<(&Plan, f64)>, reason: KeepReason) -> Considered {
        if trigger.is_more_samples() {
            self.made_from = Some(self.considered);
        }
        let is_of_swing = matches!(trigger, Trigger::Swing { .. });
        let is_answer = match reason {
            KeepReason::TooFewSamples | KeepReason::ToBeConfirmed => false,
            // A load that stays where it moved to last is planned for by itself, as soon as the intervals before are forgotten.
            KeepReason::InFlux => is_of_swing,
            _ => true,
        };
        if is_answer {
            self.rejected = Some(Rejected { situation: self.situation(), is_of_swing });
        }
        let predicted = plan.map(|(plan, wanted)| self.predicted(plan, wanted));
        let decision = self.decision(trigger, ControlAction::Keep { reason }, predicted);
        Considered { decision, plan: None, extents: None }
    }

    pub(super) fn repartition(
        &mut self,
        trigger: Trigger,
        plan: Plan,
        wanted: f64,
        kind: Kind,
    ) -> Considered {
        let predicted = self.predicted(&plan, wanted);
        self.repartition_as(trigger, plan, predicted, kind)
    }

    /// The same, with other figures than those of the latest interval.
    fn repartition_as(
        &mut self,
        trigger: Trigger,
        plan: Plan,
        predicted: Predicted,
        kind: Kind,
    ) -> Considered {
        let was_must = predicted.gain_wanted == 0.0 || matches!(trigger, Trigger::PlatformChanged { .. });
        let is_for_gain = kind == Kind::ForGain && !was_must;
        // What came between two loads is no throughput to compare with; nor is what changes as little as that of so few samples.
        let judged = is_for_gain && !trigger.is_more_samples() && !self.mixed;
        let promise = Promise { predicted };
        if kind == Kind::Look {
            self.looks = (self.settings.rules.looks_max + 1).saturating_sub(self.looks_left());
            self.looked_ns = self.at_ns;
        } else if predicted.gain >= self.settings.gain_sure {
            self.looks = 0;
        }
        self.made_from = is_for_gain.then_some(self.considered);
        self.begin_anew_after(judged.then_some(promise));
        // Nor is anything learnt of an end that grows from throughputs that nothing is concluded from.
        let is_of_this_load = matches!(kind, Kind::Look | Kind::ForGain)
            && !was_must
            && !self.mixed
            && !trigger.is_more_samples();
        self.growth.await_gain(is_of_this_load.then_some(predicted.gain));
        let is_for_swing = matches!(trigger, Trigger::Swing { .. });
        self.stripes = is_for_swing.then_some(Stripes { at_ns: self.at_ns, throughput_tps: None });
        let action = ControlAction::Repartition { steps: plan.steps.len() };
        let decision = self.decision(trigger, action, Some(predicted));
        Considered { decision, plan: Some(plan), extents: None }
    }

    /// After a change throughputs are others, and statistics are of other slices.
    pub(super) fn begin_anew_after(&mut self, promise: Option<Promise>) {
        self.trial = Some(Trial { before: self.situation(), promise });
        self.mixed_before = self.mixed;
        self.interval = self.settings.interval;
        self.changed_ns = self.at_ns;
        self.window.clear();
        self.onset.begin_anew();
        (self.candidate, self.rejected) = (None, None);
        self.too_few = 0.0;
        self.first_due = false;
    }

    /// Number of times that a partition may still be cut only to see more: what was looked at shows no more while the situation is the one in which
    /// that came to nothing.
    fn looks_left(&self) -> u32 {
        let Rules { looks_max, looks_forgotten, .. } = self.settings.rules;
        let long = self.settings.interval_max.as_nanos() * u128::from(looks_forgotten);
        let is_old = ns_between(self.looked_ns, self.at_ns) >= long;
        let situation = self.situation();
        let is_same = |rejected: &Rejected| rejected.situation.is_like(&situation, &self.settings);
        let forgotten = is_old && !self.rejected.as_ref().is_some_and(is_same);
        if forgotten { looks_max } else { looks_max.saturating_sub(self.looks) }
    }

    pub(super) fn decision(
        &self,
        trigger: Trigger,
        action: ControlAction,
        predicted: Option<Predicted>,
    ) -> Decision {
        let (at_ns, throughput_tps) = (self.at_ns, self.throughput_tps);
        Decision {
            at_ns,
            throughput_tps,
            mix: self.mix.clone(),
            cause: Cause::Evaluated(trigger),
            action,
            predicted,
        }
    }

    /// The gain that is to be expected of a plan.
    fn gain(&self, plan: &Plan) -> f64 {
        self.growth.expected(gain(plan))
    }

    fn predicted(&self, plan: &Plan, gain_wanted: f64) -> Predicted {
        Predicted {
            load_max_before: plan.before.load_max_ratio(),
            load_max_after: plan.after.load_max_ratio(),
            sync_before: plan.before.sync_ratio(),
            sync_after: plan.after.sync_ratio(),
            gain: self.gain(plan),
            gain_wanted,
        }
    }
}

/// The plan for stripes, where the busiest worker exceeds the mean by `over_mean` in short times. Where the load is then is not known; it is
/// taken to be divided by stripes as that of the whole interval.
fn plan_to_spread(
    over_mean: f64,
    latest: &Plan,
    (workload, platform): (&Workload, &Platform),
    (planning, rules): (&Settings, &Rules),
) -> Result<(Plan, Predicted), AdaptError> {
    let stripes = deal(workload, platform, rules);
    let plan = plan_to(workload, platform, &latest.today, stripes, &planning.weights)?;
    let (load_max_before, load_max_after) = (1.0 + over_mean, plan.after.load_max_ratio());
    let (sync_before, sync_after) = (plan.before.sync_ratio(), plan.after.sync_ratio());
    let gain = 1.0 - (load_max_after + sync_after) / (load_max_before + sync_before);
    let predicted =
        Predicted { load_max_before, load_max_after, sync_before, sync_after, gain, gain_wanted: 0.0 };
    Ok((plan, predicted))
}

/// The best plan for loads that move: among the one for the latest of them, `latest`, the one for all of them together, and stripes. The
/// figures are those of all these loads.
fn plan_in_flux(
    outlook: &Outlook,
    latest: &Plan,
    (workload, platform): (&Workload, &Platform),
    (planning, rules): (&Settings, &Rules),
) -> Result<(Plan, Predicted), AdaptError> {
    let (today, weights) = (&latest.today, &planning.weights);
    let together = search(&outlook.together(), platform, Some(today), planning)?;
    let before = outlook.strain(today, platform, weights)?;
    let mut best = (today.clone(), before);
    let dealt = outlook.dealt(today, platform, rules);
    for scheme in [latest.scheme.clone(), together, spread(workload, platform, rules), dealt] {
        let strain = outlook.strain(&scheme, platform, weights)?;
        if strain.busy_max < best.1.busy_max {
            best = (scheme, strain);
        }
    }
    let (scheme, after) = best;
    let predicted = Predicted {
        load_max_before: before.load_max,
        load_max_after: after.load_max,
        sync_before: before.sync,
        sync_after: after.sync,
        gain: 1.0 - after.busy_max / before.busy_max,
        gain_wanted: 0.0,
    };
    Ok((plan_to(workload, platform, today, scheme, weights)?, predicted))
}

/// See [`Predicted::gain`].
fn gain(plan: &Plan) -> f64 {
    1.0 - plan.after.busy_max_ratio() / plan.before.busy_max_ratio()
}

/// The gain that is there even if sampling noise is all on the other side: the load of the busiest worker is `before` times the mean and
/// would be `after` times, and that of a worker with the mean load may be wrong by `noise`. One with more has more samples: the noise of a load grows
/// with its root.
pub(super) fn certain_gain(before: f64, after: f64, noise: f64) -> f64 {
    let least = before - noise * before.sqrt();
    if least > 0.0 { 1.0 - (after + noise * after.sqrt()) / least } else { f64::NEG_INFINITY }
}

/// The standard deviation of a worker's load that comes from sampling, as a share of the mean: with `n` samples of similar
/// cost per worker it is `1 / sqrt(n)`. 0 for statistics that are no samples. What no scheme changes has no such noise.
pub(super) fn deviation(samples: Option<f64>, workers: usize) -> f64 {
    match samples {
        Some(samples) if samples > 0.0 => (workers as f64 / samples).sqrt(),
        Some(_) => f64::INFINITY,
        None => 0.0,
    }
}

/// The greatest of the loads of so many workers that have the same mean, in standard deviations above it, on average (the mean of the limiting distribution of
/// Gumbel): 1.8 of 16 workers, 2.5 of 96, and 1 of a few.
pub(super) fn greatest_of(workers: usize) -> f64 {
    const EULER: f64 = 0.577_215_664_901_532_9;
    let log = (workers.max(2) as f64).ln();
    let scale = (2.0 * log).sqrt();
    (scale + (EULER - (log.ln() + (4.0 * std::f64::consts::PI).ln()) / 2.0) / scale).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::super::flux::tests::trace;
    use super::super::{ControllerSettings, Verdict};
    use super::*;
    use crate::ids::WorkerIndex;
    use atrapos_topology::Machine;

    /// Returns whether something is learnt of an end that grows from a change that was made for a gain.
    fn learns(trigger: Trigger, mixed: bool) -> bool {
        let machine = Machine::synthetic("core:2 pu:1").expect("a machine");
        let platform = Platform::for_workers(&machine, 2).expect("a platform");
        let trace = trace(0);
        let (workload, today) = (trace.workload().expect("a workload"), trace.scheme().expect("a scheme"));
        let weights = Weights::default();
        let plan =
            plan_to(&workload, &platform, &today, today.clone(), &weights).expect("a scheme that fits");
        let mut controller = Controller::new(ControllerSettings::default()).expect("settings");
        controller.mixed = mixed;
        controller.repartition(trigger, plan, 0.05, Kind::ForGain);
        controller.growth.learn(-0.1, true);
        controller.growth.sure_gain(&controller.settings).is_some()
    }

    #[test]
    fn the_greatest_of_several_loads_is_so_far_above_their_mean() {
        // Means of the greatest of so many independent standard normal variables, which the limiting distribution exceeds a little.
        for (workers, mean) in [(8, 1.42), (16, 1.77), (24, 1.95), (80, 2.43), (96, 2.49)] {
            let found = greatest_of(workers);
            assert!((found - mean).abs() < 0.11, "{workers}: {found} for {mean}");
        }
        assert_eq!((greatest_of(1), greatest_of(2)), (1.0, 1.0), "of a few it is a deviation");
        assert!((2..200).all(|workers| greatest_of(workers) <= greatest_of(workers + 1)));
    }

    #[test]
    fn that_no_scheme_is_better_for_a_load_that_moves_is_no_answer_once_it_stays() {
        let keep = |trigger: Trigger, reason: KeepReason| {
            let mut controller = Controller::new(ControllerSettings::default()).expect("settings");
            controller.keep(trigger, None, reason);
            controller.unless_rejected(trigger)
        };
        let fell = Trigger::ThroughputChanged { from_tps: 2.0, to_tps: 1.0 };
        assert_eq!(keep(fell, KeepReason::InFlux), Verdict::Evaluate(fell));
        assert!(matches!(keep(fell, KeepReason::GainTooSmall), Verdict::Wait(_)));
        let swing = Trigger::Swing { over_mean: 1.0 };
        assert!(matches!(keep(swing, KeepReason::InFlux), Verdict::Wait(_)), "stripes are no better");
    }

    #[test]
    fn growth_is_learnt_from_throughputs_of_one_load_each() {
        let stands_out = Trigger::Imbalance { busiest: WorkerIndex(0), over_mean: 1.0 };
        assert!(learns(stands_out, false));
        assert!(!learns(stands_out, true), "the interval before the change was of two loads");
        assert!(!learns(Trigger::MoreSamples { made_from: 100.0, since: 200.0 }, false));
        assert!(!learns(Trigger::PlatformChanged { available: 2, workers: 2 }, false));
    }
}
