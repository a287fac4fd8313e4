//! `atrapos experiment adapt-world --sensitivity`: the value of each setting of the controller, halved and doubled.
//!
//! Owns: the table. Never: simulates (`atrapos_simulator` does), nor says which value is right.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use atrapos_adapt::{ControllerSettings, Setting};
use atrapos_cli::error::CliError;
use atrapos_cli::{config, interrupt, output};
use atrapos_simulator::{MachineKind, Reference, Scenario, compare_with};
use serde_json::{Value, json};

use super::parallel::in_order;

/// A scenario on a machine, with the sides that no setting changes.
struct Case<'a> {
    scenario: &'a Scenario,
    kind: MachineKind,
    seed: u64,
    reference: Reference,
}

/// Results over all phases of all cases.
#[derive(Clone, Copy, Default)]
struct Outcome {
    phases: usize,
    /// Phases that reach 0.90 of the best fixed scheme.
    near: usize,
    /// Phases that are not below 0.95 of static.
    safe: usize,
    /// Sum of the logarithms of the settled throughputs over the best fixed schemes.
    logarithms: f64,
    changes: usize,
    evaluations: usize,
}

impl Outcome {
    /// The geometric mean of the settled throughputs over the best fixed schemes.
    fn mean(&self) -> f64 {
        (self.logarithms / self.phases.max(1) as f64).exp()
    }

    fn cells(&self) -> String {
        format!(
            "{:>5} {:>5} {:>6.3} {:>7} {:>6}",
            self.near,
            self.safe,
            self.mean(),
            self.changes,
            self.evaluations
        )
    }

    fn as_json(&self) -> Value {
        json!({
            "phases": self.phases,
            "near_best": self.near,
            "not_below_static": self.safe,
            "mean_over_best": self.mean(),
            "changes": self.changes,
            "evaluations": self.evaluations,
        })
    }
}

/// Returns the settings of these names; all of them where none is named.
pub(super) fn settings_of(names: &[String]) -> Result<Vec<Setting>, CliError> {
    if names.is_empty() {
        return Ok(Setting::all().collect());
    }
    names.iter().map(|name| config::setting(name, "--sensitivity")).collect()
}

/// Prints the table of these settings for these scenarios and machines, and returns it as JSON.
pub(super) fn table<'s>(
    scenarios: &'s [Scenario],
    machines: &[MachineKind],
    seed: u64,
    (settings, varied): (&ControllerSettings, &[Setting]),
) -> Result<Value, CliError> {
    let refer = |(scenario, kind): &(&'s Scenario, MachineKind)| {
        go_on()?;
        let reference = Reference::of(scenario, *kind, seed, *settings).map_err(CliError::bad_input)?;
        Ok(Case { scenario, kind: *kind, seed, reference })
    };
    let mut cases = Vec::new();
    in_order(&super::world::cases(scenarios, machines), refer, |case| {
        cases.push(case);
        Ok(())
    })?;
    if cases.is_empty() {
        return Err(CliError::bad_input(
            "none of the scenarios is for such a machine; choose another --machine",
        ));
    }
    let given = outcome(&cases, settings)?;
    output::print(&head(&given))?;
    let mut rows = Vec::new();
    for setting in varied {
        let mut text = format!("{:<19} {:>12} {:<19}", setting.name, setting.of(settings), setting.unit);
        let mut row = json!({ "setting": setting.name, "unit": setting.unit, "value": setting.of(settings) });
        for (name, factor) in [("halved", 0.5), ("doubled", 2.0)] {
            let mut other = *settings;
            // The double of a share may be more than there is.
            let value = setting.nearest(factor * setting.of(settings));
            setting.give(&mut other, value).map_err(CliError::bad_input)?;
            // Half of the shortest interval may be too short, for instance.
            if let Err(error) = other.check() {
                row[name] = json!(error.to_string());
                let _ = write!(text, "  {:<33}", "refused");
                continue;
            }
            let outcome = outcome(&cases, &other)?;
            row[name] = outcome.as_json();
            row[name]["value"] = json!(value);
            let _ = write!(text, "  {}", outcome.cells());
        }
        output::print(&format!("{text}\n"))?;
        rows.push(row);
    }
    Ok(json!({ "given": given.as_json(), "settings": rows }))
}

fn head(given: &Outcome) -> String {
    let columns = " near  safe   mean changes looked";
    format!(
        "{} phases; near: at least 0.90 of the best fixed scheme after three seconds; safe: at least 0.95 of static; mean: geometric, over the best fixed scheme; looked: evaluations; a value out of the range of its setting is the end of the range\n\n{:<52}  {:<33}  doubled\n{:<52} {columns} {columns}\n{:<52}  {}\n",
        given.phases,
        "",
        "halved",
        "setting",
        "as given",
        given.cells(),
    )
}

fn outcome(cases: &[Case<'_>], settings: &ControllerSettings) -> Result<Outcome, CliError> {
    let mut outcome = Outcome::default();
    let run = |case: &Case<'_>| {
        go_on()?;
        let compared = compare_with(&case.reference, case.scenario, case.kind, case.seed, *settings);
        compared.map_err(CliError::bad_input)
    };
    in_order(cases, run, |compared| {
        for phase in &compared.phases {
            outcome.phases += 1;
            outcome.near += usize::from(phase.settled_over_best >= super::world::NEAR_BEST);
            outcome.safe += usize::from(phase.over_static >= super::world::NOT_BELOW_STATIC);
            outcome.logarithms += phase.settled_over_best.max(1e-9).ln();
            outcome.changes += phase.repartitionings;
            outcome.evaluations += phase.evaluations;
        }
        Ok(())
    })?;
    Ok(outcome)
}

/// Returns an error if the experiment was interrupted.
pub(super) fn go_on() -> Result<(), CliError> {
    if interrupt::flag().load(Ordering::Relaxed) {
        return Err(CliError::failed("the experiment was interrupted; run fewer --scenario or --machine"));
    }
    Ok(())
}
