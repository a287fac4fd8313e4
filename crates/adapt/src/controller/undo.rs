//! The way back from a change that made things worse.
//!
//! Owns: the scheme of before a change, by keys, and whether the change is to blame. Never: judges a gain.
//!
//! A throughput falls for three reasons: clients ask for less, the load is another one, or the scheme is worse. Less work leaves what the
//! busiest worker spends on a transaction as it was, and no transaction waits longer for another; another load is seen by its keys. What
//! remains is the change: transactions are dearer, or they wait for locks that are held while messages are on their way, which the model
//! does not foresee. A change that makes them wait is not tried again for a while.
//!
//! A scheme is changed further instead of back where the model sees what is wrong with it, unless transactions wait.
//!
//! Invariant: a change is undone at most once, and right after it; in the same situation another one has to be
//! confirmed first.

use super::memory::Situation;
use super::{ControlAction, Controller, Rules, Trigger};
use crate::attribution::{Attributed, attribute};
use crate::error::AdaptError;
use crate::extents::{Extents, KeyScheme};
use crate::plan::{Plan, plan_to};
use crate::platform::Platform;
use crate::scheme::TableScheme;
use crate::search::Settings;
use crate::trace::WorkloadTrace;

use super::consider::Considered;

/// The state of things before a change.
#[derive(Debug, Clone)]
pub(super) struct Before {
    scheme: KeyScheme,
    situation: Situation,
    /// Cycles that the busiest worker spent on a transaction of the whole database.
    busiest_cycles: f64,
    /// Requests for locks that waited, per transaction.
    waits: f64,
}

impl Before {
    /// Returns whether fewer requests for locks waited, per transaction, than now.
    pub(super) fn waited_less(&self, waits: f64, rules: &Rules) -> bool {
        waits > self.waits + rules.more_waits
    }
}

/// Cycles that the busiest worker spent on each transaction of the whole database.
fn busiest_cycles(trace: &WorkloadTrace, throughput_tps: f64) -> f64 {
    let mut of_worker = vec![0.0; trace.workers];
    for partition in trace.tables.iter().flat_map(|table| &table.partitions) {
        let cycles: u64 = partition.cost_cycles.iter().sum();
        of_worker[partition.worker.index()] += cycles as f64;
    }
    let busiest = of_worker.into_iter().fold(0.0, f64::max);
    busiest / (trace.seconds * throughput_tps).max(1e-9)
}

impl Controller {
    /// Remembers what there was before `plan`, which is carried out for a gain.
    pub(super) fn remember_before(&mut self, plan: &Plan, trace: &WorkloadTrace, extents: &Extents) {
        let busiest_cycles = busiest_cycles(trace, self.throughput_tps);
        let (scheme, situation) = (extents.by_keys(&plan.today), self.situation());
        self.before = Some(Before { scheme, situation, busiest_cycles, waits: self.waits });
    }

    /// Notes the throughput after the latest change: one that is lower for whatever reason has to be explained.
    pub(super) fn compare_with_before(&mut self, throughput_tps: f64) {
        let limit = 1.0 - self.settings.threshold / 2.0 - self.noise;
        let (mixed, waits, rules) = (self.mixed_before, self.waits, &self.settings.rules);
        self.worse = self.before.take().filter(|before| {
            // Of two loads the throughput of one was higher still: who waits more is slower in any case.
            (!mixed || before.waited_less(waits, rules))
                && throughput_tps < limit * before.situation.throughput_tps
        });
    }

    /// Returns to the scheme of before the latest change, after which the throughput was lower, if that is due to the change.
    pub(super) fn undo(
        &mut self,
        trigger: Trigger,
        before: Before,
        trace: &WorkloadTrace,
        platform: &Platform,
        planning: &Settings,
        noise: f64,
    ) -> Result<Option<Considered>, AdaptError> {
        let moved = self.flux.has_moved_since(before.situation.at_ns);
        let limit = 1.0 + self.settings.threshold / 2.0 + noise;
        let dearer = busiest_cycles(trace, self.throughput_tps) > limit * before.busiest_cycles;
        let waiting = before.waited_less(self.waits, &self.settings.rules);
        if !(waiting && moved != Some(true) || dearer && moved == Some(false)) {
            return Ok(None);
        }
        let mut trace = trace.clone();
        let Some(scheme) = before.scheme.in_slices(&mut trace) else { return Ok(None) };
        let mut owners = scheme.tables().iter().flat_map(TableScheme::owners);
        let Some(extents) = Extents::of(&trace).filter(|_| owners.all(|owner| platform.is_available(*owner)))
        else {
            return Ok(None);
        };
        let Attributed { workload, weights } = attribute(&trace, platform, planning)?;
        let plan = plan_to(&workload, platform, &trace.scheme()?, scheme, &weights)?;
        if plan.steps.is_empty() {
            return Ok(None);
        }
        self.failures.was_undone(&before.situation, waiting, &self.settings);
        let action = ControlAction::Undo { steps: plan.steps.len() };
        self.begin_anew_after(None);
        let decision = self.decision(trigger, action, None);
        Ok(Some(Considered { decision, plan: Some(plan), extents: Some(extents) }))
    }
}
