//! One decision of the controller: from the statistics of an interval to changes of the scheme.
//!
//! Owns: the input of the controller and the entry for the history. Never: decides anything itself
//! ([`atrapos_adapt::Controller`] does), or carries out a change.

use atrapos_adapt::{
    Considered, ControlAction, Controller, Decision, KeepReason, Observation, Platform, Trigger, Verdict,
    WaitReason,
};
use atrapos_partition::routing::Scheme;
use atrapos_partition::schema::Catalog;

use super::AdaptationEvent;
use super::observation::Observed;
use super::slices::Slices;
use crate::repartition::SchemeChange;

/// Passes an observation to the controller, and the statistics that `collect` takes, if it asks for them: they begin anew unless there
/// were too few. Returns an entry for the history, and the changes to carry out, if any.
///
/// # Errors
/// Those of `collect`.
pub fn decide<E>(
    controller: &mut Controller,
    observation: &Observation,
    collect: impl FnOnce() -> Result<Observed, E>,
    platform: Result<Platform, String>,
    scheme: &Scheme,
    catalog: &Catalog,
) -> Result<(AdaptationEvent, Option<Vec<SchemeChange>>), E> {
    let event = |decision, failure| AdaptationEvent { decision, report: None, failure };
    let trigger = match controller.observe(observation) {
        Verdict::Wait(reason) => {
            if reason != WaitReason::TooFewSamples {
                let observed = &collect()?;
                if let Ok(platform) = &platform {
                    // Statistics that do not fit the platform are not remembered; nothing else depends on them.
                    let trace = Slices::of(scheme, catalog, observed).trace(observed, catalog);
                    let _ = controller.note(&trace, platform);
                }
            }
            return Ok((event(Decision::waited(observation, reason), None), None));
        }
        Verdict::Evaluate(trigger) => trigger,
    };
    let observed = &collect()?;
    let slices = Slices::of(scheme, catalog, observed);
    let trace = slices.trace(observed, catalog);
    let considered = platform.and_then(|platform| {
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
    Ok(match considered {
        Ok(Considered { decision, plan, extents }) => {
            let changes = plan.map(|plan| match &extents {
                Some(extents) => slices.changes_of(&plan.steps, extents),
                None => slices.changes(&plan.steps),
            });
            (event(decision, None), changes)
        }
        Err(failure) => {
            let decision = Decision::waited(observation, WaitReason::TurnedDown { trigger });
            (event(decision, Some(failure)), None)
        }
    })
}
