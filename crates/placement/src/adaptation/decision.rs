//! One decision of the controller: from the statistics of an interval to changes of the scheme.
//!
//! Owns: the input of the controller and the entry for the history. Never: decides anything itself
//! ([`atrapos_adapt::Controller`] does), or carries out a change.

use atrapos_adapt::{
    ControlAction, Controller, Decision, KeepReason, Observation, Platform, Trigger, Verdict, WaitReason,
};
use atrapos_partition::routing::Scheme;
use atrapos_partition::schema::Catalog;

use super::AdaptationEvent;
use super::observation::{Observed, load_of, rate};
use super::slices::Slices;
use crate::repartition::SchemeChange;

/// The circumstances of a decision.
pub struct Now {
    /// The time since the database was opened, in ns.
    pub at_ns: u64,
    /// True for each worker that may own data.
    pub available: Vec<bool>,
    /// The platform without the workers that may not; otherwise the reason for which there is none.
    pub platform: Result<Platform, String>,
}

/// Passes statistics to the controller. Returns an entry for the history, and the changes to carry out, if any.
pub fn decide(
    controller: &mut Controller,
    observed: &Observed,
    now: Now,
    scheme: &Scheme,
    catalog: &Catalog,
) -> (AdaptationEvent, Option<Vec<SchemeChange>>) {
    let observation = Observation {
        at_ns: now.at_ns,
        throughput_tps: rate(observed.committed, observed.elapsed.as_nanos() as u64),
        loads: observed.workers.iter().map(load_of).collect(),
        available: now.available,
        changed_platform: false,
    };
    let event = |decision, failure| AdaptationEvent { decision, report: None, failure };
    let trigger = match controller.observe(&observation) {
        Verdict::Wait(reason) => return (event(Decision::waited(&observation, reason), None), None),
        Verdict::Evaluate(trigger) => trigger,
    };
    let slices = Slices::of(scheme, catalog, observed);
    let trace = slices.trace(observed, catalog);
    let considered = now.platform.and_then(|platform| {
        let considered = controller.consider(trigger, &trace, &platform);
        let too_few = ControlAction::Keep { reason: KeepReason::TooFewSamples };
        let returned = matches!(trigger, Trigger::PlatformChanged { .. });
        match considered {
            // Where next to nothing is going on, a worker that has returned gets its share of the rows.
            Ok(considered) if returned && considered.decision.action == too_few => {
                controller.consider(trigger, &slices.trace_of_rows(observed, catalog), &platform)
            }
            considered => considered,
        }
        .map_err(|error| error.to_string())
    });
    match considered {
        Ok(considered) => {
            (event(considered.decision, None), considered.plan.map(|plan| slices.changes(&plan.steps)))
        }
        Err(failure) => {
            let decision = Decision::waited(&observation, WaitReason::TurnedDown { trigger });
            (event(decision, Some(failure)), None)
        }
    }
}
