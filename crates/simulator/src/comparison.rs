//! A scenario on a machine: the adaptive side beside the static one and the best fixed scheme of each phase.
//!
//! Owns: the ratios. Never: judges whether they are good enough.

use atrapos_adapt::{AdaptError, ControllerSettings, Decision};
use serde::Serialize;

use crate::candidates::best_fixed;
use crate::driver::{Promise, Side, run_adaptive, run_fixed};
use crate::hardware::MachineKind;
use crate::scenario::Scenario;

/// One phase, compared.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PhaseComparison {
    /// Its name.
    pub phase: String,
    /// Transactions per second of the static side, over the whole phase.
    pub static_tps: f64,
    /// The same of the adaptive side.
    pub adaptive_tps: f64,
    /// The adaptive side over the static one, over the whole phase.
    pub over_static: f64,
    /// Transactions per second of the best fixed scheme that is known.
    pub best_tps: f64,
    /// The adaptive side without the first three seconds of the phase over the best fixed scheme.
    pub settled_over_best: f64,
    /// The static side over the best fixed scheme, likewise.
    pub static_over_best: f64,
    /// The busiest worker over the mean on the adaptive side, settled.
    pub load_max_ratio: f64,
    /// Number of times that the adaptive side changed its scheme.
    pub repartitionings: usize,
    /// When it did so first, in seconds since the phase began.
    pub first_change_s: Option<f64>,
    /// Evaluations of the model.
    pub evaluations: usize,
}

/// A scenario on one machine.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// The scenario.
    pub scenario: String,
    /// The machine.
    pub machine: &'static str,
    /// Its workers.
    pub workers: usize,
    /// By phase.
    pub phases: Vec<PhaseComparison>,
    /// Predicted and measured gains of the changes, as far as they can be compared.
    #[serde(skip)]
    pub promises: Vec<Promise>,
    /// Mean difference of the two, in percentage points; `None` where no change can be judged.
    pub prediction_error: Option<f64>,
    /// Decisions of the adaptive side.
    pub decisions: Vec<Decision>,
}

/// The sides that do not depend on a controller: the static one and the best fixed scheme of each phase.
#[derive(Debug, Clone)]
pub struct Reference {
    fixed: Side,
    best_tps: Vec<f64>,
}

impl Reference {
    /// Runs these sides of a scenario on a machine, with the schemes that a controller with these settings finds among those to choose from.
    ///
    /// # Errors
    /// [`AdaptError`] when the machine is none that can be planned for, or no controller works with these settings.
    pub fn of(
        scenario: &Scenario,
        kind: MachineKind,
        seed: u64,
        settings: ControllerSettings,
    ) -> Result<Self, AdaptError> {
        Self::beside(&run_adaptive(scenario, kind, seed, settings)?, scenario, kind, seed)
    }

    /// The same, with the schemes that this side had.
    fn beside(
        adaptive: &Side,
        scenario: &Scenario,
        kind: MachineKind,
        seed: u64,
    ) -> Result<Self, AdaptError> {
        let best = |(at, found)| best_fixed(scenario, at, kind, seed, found);
        let best_tps = adaptive.layouts.iter().enumerate().map(best).collect::<Result<_, _>>()?;
        Ok(Self { fixed: run_fixed(scenario, kind, seed, None), best_tps })
    }
}

/// Runs all sides of a scenario on a machine.
///
/// # Errors
/// [`AdaptError`] for settings with which no controller works.
pub fn compare(
    scenario: &Scenario,
    kind: MachineKind,
    seed: u64,
    settings: ControllerSettings,
) -> Result<Comparison, AdaptError> {
    let adaptive = run_adaptive(scenario, kind, seed, settings)?;
    let reference = Reference::beside(&adaptive, scenario, kind, seed)?;
    Ok(compared(&reference, adaptive, scenario, kind))
}

/// Runs the adaptive side of a scenario on a machine, and compares it with the others, which have run in `reference` with the same seed.
///
/// # Errors
/// [`AdaptError`] for settings with which no controller works.
pub fn compare_with(
    reference: &Reference,
    scenario: &Scenario,
    kind: MachineKind,
    seed: u64,
    settings: ControllerSettings,
) -> Result<Comparison, AdaptError> {
    Ok(compared(reference, run_adaptive(scenario, kind, seed, settings)?, scenario, kind))
}

fn compared(reference: &Reference, adaptive: Side, scenario: &Scenario, kind: MachineKind) -> Comparison {
    let mut phases = Vec::new();
    let sides = reference.fixed.phases.iter().zip(&adaptive.phases).zip(&reference.best_tps);
    for (spec, ((fixed, adaptive), best_tps)) in scenario.phases.iter().zip(sides) {
        phases.push(PhaseComparison {
            phase: spec.name.clone(),
            static_tps: fixed.tps,
            adaptive_tps: adaptive.tps,
            over_static: adaptive.tps / fixed.tps,
            best_tps: *best_tps,
            settled_over_best: adaptive.settled_tps / best_tps,
            static_over_best: fixed.settled_tps / best_tps,
            load_max_ratio: adaptive.load_max_ratio,
            repartitionings: adaptive.repartitionings,
            first_change_s: adaptive.first_change_s,
            evaluations: adaptive.evaluations,
        });
    }
    let errors: Vec<f64> = (adaptive.promises.iter())
        .map(|promise| 100.0 * (promise.predicted_gain - promise.measured_gain).abs())
        .collect();
    let prediction_error = (!errors.is_empty()).then(|| errors.iter().sum::<f64>() / errors.len() as f64);
    Comparison {
        scenario: scenario.name.clone(),
        machine: kind.name(),
        workers: kind.workers(),
        phases,
        promises: adaptive.promises,
        prediction_error,
        decisions: adaptive.decisions,
    }
}
