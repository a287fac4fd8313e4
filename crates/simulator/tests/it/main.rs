//! Tests of the simulator from outside: what its runs depend on, and what the controller achieves in them.

mod machines;
mod scenarios;

use atrapos_adapt::ControllerSettings;
use atrapos_simulator::{Comparison, MachineKind, Scenario, compare, scenarios as all};

/// The project's scenario of this name, simulated with so many transactions per second.
fn scenario(name: &str, events_per_s: f64) -> Scenario {
    let found = all().into_iter().find(|scenario| scenario.name == name);
    Scenario { events_per_s: Some(events_per_s), ..found.expect("a scenario of the project") }
}

fn run(scenario: &Scenario, kind: MachineKind) -> Comparison {
    compare(scenario, kind, 1, ControllerSettings::default()).expect("settings that make sense")
}

/// The decisions as text, for a test that fails.
fn show(comparison: &Comparison) -> String {
    let mut text = String::new();
    for decision in &comparison.decisions {
        text += &format!("{:.1} s: {decision}\n", decision.at_ns as f64 * 1e-9);
    }
    format!("{:#?}\n{text}", comparison.phases)
}
