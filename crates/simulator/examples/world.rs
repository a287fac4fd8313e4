//! Prints a scenario's comparison: `cargo run --release -p atrapos-simulator --example world -- mirrored two`.
#![allow(clippy::print_stdout, reason = "an example shows its result")]

use atrapos_adapt::ControllerSettings;
use atrapos_simulator::{MachineKind, compare, scenarios};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |name: &str, at: usize| words.get(at).is_none_or(|word| word == "all" || word == name);
    for scenario in scenarios().iter().filter(|scenario| wanted(&scenario.name, 0)) {
        for kind in
            MachineKind::ALL.into_iter().filter(|kind| wanted(kind.name(), 1) && scenario.is_for(*kind))
        {
            let result = compare(scenario, kind, 1, ControllerSettings::default())?;
            for phase in &result.phases {
                println!(
                    "{:15} {:5} {:14} static {:10.0} adaptive {:10.0} over static {:.2} | best {:10.0} settled/best {:.2} static/best {:.2} | max {:.2} changes {} first {:?} evals {}",
                    scenario.name,
                    kind.name(),
                    phase.phase,
                    phase.static_tps,
                    phase.adaptive_tps,
                    phase.over_static,
                    phase.best_tps,
                    phase.settled_over_best,
                    phase.static_over_best,
                    phase.load_max_ratio,
                    phase.repartitionings,
                    phase.first_change_s,
                    phase.evaluations
                );
            }
            for promise in &result.promises {
                println!(
                    "    promise at {:.1} s: {:.3} measured {:.3}",
                    promise.at_s, promise.predicted_gain, promise.measured_gain
                );
            }
            if words.len() > 2 {
                for decision in &result.decisions {
                    println!("    {:.1} s: {decision}", decision.at_ns as f64 * 1e-9);
                }
            }
        }
    }
    Ok(())
}
