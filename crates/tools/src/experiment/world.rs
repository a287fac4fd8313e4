//! `atrapos experiment adapt-world`: the controller in simulated machines, beside a fixed scheme and the best one.
//!
//! Owns: which scenarios and machines are run, and the table. Never: simulates (`atrapos_simulator` does).

use std::fmt::Write as _;
use std::path::Path;

use atrapos_adapt::ControllerSettings;
use atrapos_cli::error::CliError;
use atrapos_cli::json::COMMIT;
use atrapos_cli::output::JsonFile;
use atrapos_cli::{config, interrupt, output};
use atrapos_simulator::{Comparison, MachineKind, Scenario, compare, scenarios};
use serde_json::{Value, json};

use super::parallel::in_order;
use super::sensitivity;
use crate::args::experiment::WorldArgs;

/// Share of the best fixed scheme that every phase should reach, once settled.
pub(super) const NEAR_BEST: f64 = 0.90;
/// Share of the static side below which no phase should be.
pub(super) const NOT_BELOW_STATIC: f64 = 0.95;

/// Runs `atrapos experiment adapt-world`.
pub(crate) fn run(args: &WorldArgs) -> Result<(), CliError> {
    let wanted = wanted_scenarios(args)?;
    let machines = wanted_machines(args)?;
    let settings = settings(args)?;
    let json = args.json.as_deref().map(JsonFile::prepare).transpose()?;
    interrupt::install();
    if let Some(names) = &args.sensitivity {
        let varied = sensitivity::settings_of(names)?;
        let table = sensitivity::table(&wanted, &machines, args.seed, (&settings, &varied))?;
        if let Some(file) = json {
            file.write(&as_json(args, &settings, "sensitivity", &table))?;
        }
        return Ok(());
    }
    let cases = cases(&wanted, &machines);
    let mut all = Vec::new();
    let run = |(scenario, kind): &(&Scenario, MachineKind)| {
        sensitivity::go_on()?;
        compare(scenario, *kind, args.seed, settings).map_err(CliError::bad_input)
    };
    in_order(&cases, run, |comparison| {
        if all.is_empty() {
            output::print(&head())?;
        }
        output::print(&lines(&comparison, args.decisions))?;
        all.push(comparison);
        Ok(())
    })?;
    if all.is_empty() {
        return Err(CliError::bad_input(
            "none of the scenarios is for such a machine; choose another --machine",
        ));
    }
    output::print(&summary(&all))?;
    if let Some(file) = json {
        file.write(&as_json(args, &settings, "scenarios", &scenarios_as_json(&all)))?;
    }
    Ok(())
}

/// Every scenario on each of the machines that it is for.
pub(super) fn cases<'s>(
    scenarios: &'s [Scenario],
    machines: &[MachineKind],
) -> Vec<(&'s Scenario, MachineKind)> {
    let of_scenario = |scenario: &'s Scenario| {
        let kinds = machines.iter().copied().filter(|kind| scenario.is_for(*kind));
        kinds.map(move |kind| (scenario, kind))
    };
    scenarios.iter().flat_map(of_scenario).collect()
}

fn wanted_scenarios(args: &WorldArgs) -> Result<Vec<Scenario>, CliError> {
    let known = scenarios();
    if args.scenarios.is_empty() {
        return Ok(known);
    }
    let one = |name: &String| {
        if let Some(scenario) = known.iter().find(|scenario| scenario.name == *name) {
            return Ok(scenario.clone());
        }
        let text = std::fs::read_to_string(Path::new(name)).map_err(|error| {
            let names: Vec<&str> = known.iter().map(|scenario| scenario.name.as_str()).collect();
            CliError::bad_input(format!(
                "the scenario {name} cannot be read: {error}; name a file, or one of {}",
                names.join(", ")
            ))
        })?;
        Scenario::from_toml(&text).map_err(|error| CliError::bad_input(format!("{name}: {error}")))
    };
    args.scenarios.iter().map(one).collect()
}

fn wanted_machines(args: &WorldArgs) -> Result<Vec<MachineKind>, CliError> {
    if args.machines.is_empty() {
        return Ok(MachineKind::ALL.to_vec());
    }
    let one = |name: &String| {
        MachineKind::named(name).ok_or_else(|| {
            let names = MachineKind::ALL.map(MachineKind::name).join(", ");
            CliError::bad_input(format!("there is no simulated machine '{name}'; use some of {names}"))
        })
    };
    args.machines.iter().map(one).collect()
}

fn settings(args: &WorldArgs) -> Result<ControllerSettings, CliError> {
    let observing = &args.adaptation.observing;
    let none = [
        observing.sub_partitions.is_some(),
        observing.sample_every.is_some(),
        observing.rows_per_worker.is_some(),
    ];
    if none.contains(&true) {
        return Err(CliError::bad_input(
            "simulated databases have ten sub-partitions per partition, record one event in 1,024 and declare where tables are cut; leave --sub-partitions, --sample-every and --rows-per-worker out",
        ));
    }
    let controller = config::adaptation(&args.adaptation)?.controller;
    controller.check().map_err(CliError::bad_input)?;
    Ok(controller)
}

fn head() -> String {
    format!(
        "{:<15} {:<7} {:<14} {:>12} {:>12} {:>11} {:>12} {:>9} {:>9} {:>7} {:>7}\n",
        "scenario",
        "machine",
        "phase",
        "static/s",
        "adaptive/s",
        "over static",
        "best fixed/s",
        "over best",
        "static's",
        "changes",
        "after s"
    )
}

fn lines(comparison: &Comparison, with_decisions: bool) -> String {
    let mut text = String::new();
    for phase in &comparison.phases {
        let after = phase.first_change_s.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1}"));
        let _ = writeln!(
            text,
            "{:<15} {:<7} {:<14} {:>12.0} {:>12.0} {:>11.2} {:>12.0} {:>9.2} {:>9.2} {:>7} {:>7}",
            comparison.scenario,
            comparison.machine,
            phase.phase,
            phase.static_tps,
            phase.adaptive_tps,
            phase.over_static,
            phase.best_tps,
            phase.settled_over_best,
            phase.static_over_best,
            phase.repartitionings,
            after,
        );
    }
    if with_decisions {
        for decision in &comparison.decisions {
            let _ = writeln!(text, "  {:.1} s: {decision}", decision.at_ns as f64 * 1e-9);
        }
    }
    text
}

fn summary(all: &[Comparison]) -> String {
    let mut text = String::new();
    let phases = || all.iter().flat_map(|comparison| &comparison.phases);
    let count = phases().count();
    let near = phases().filter(|phase| phase.settled_over_best >= NEAR_BEST).count();
    let safe = phases().filter(|phase| phase.over_static >= NOT_BELOW_STATIC).count();
    let _ = writeln!(
        text,
        "\n{near} of {count} phases reach 0.90 of the best fixed scheme after three seconds; {safe} are never below 0.95 of static as a whole."
    );
    text.push_str(&gains(all));
    text
}

/// Differences between predicted and measured gains of several changes.
#[derive(Clone, Copy, Debug, Default)]
struct Gains {
    changes: usize,
    predicted: f64,
    measured: f64,
    error: f64,
}

impl Gains {
    /// Those of the scenario `name`, on all machines; of all scenarios without a name.
    fn of(all: &[Comparison], name: Option<&str>) -> Self {
        let named = all.iter().filter(|comparison| name.is_none_or(|name| comparison.scenario == name));
        named.flat_map(|comparison| &comparison.promises).fold(Self::default(), |sum, promise| Self {
            changes: sum.changes + 1,
            predicted: sum.predicted + promise.predicted_gain,
            measured: sum.measured + promise.measured_gain,
            error: sum.error + (promise.predicted_gain - promise.measured_gain).abs(),
        })
    }

    fn line(&self, name: &str) -> String {
        let percent = |sum: f64| 100.0 * sum / self.changes as f64;
        format!(
            "{name:<15} {:>7} {:>11.1} {:>10.1} {:>13.1}\n",
            self.changes,
            percent(self.predicted),
            percent(self.measured),
            percent(self.error)
        )
    }
}

/// The table of predicted and measured gains: empty if no change was followed by a second of the same load.
fn gains(all: &[Comparison]) -> String {
    let total = Gains::of(all, None);
    if total.changes == 0 {
        return String::new();
    }
    let mut names: Vec<&str> = all.iter().map(|comparison| comparison.scenario.as_str()).collect();
    // A scenario's machines are neighbours.
    names.dedup();
    let mut text = format!(
        "\nGains of changes, mean in percent; error: mean difference of one change, in points\n{:<15} {:>7} {:>11} {:>10} {:>13}\n",
        "scenario", "changes", "predicted", "measured", "error"
    );
    for name in names {
        let gains = Gains::of(all, Some(name));
        if gains.changes > 0 {
            text.push_str(&gains.line(name));
        }
    }
    text.push_str(&total.line("all"));
    text
}

fn scenarios_as_json(all: &[Comparison]) -> Value {
    all.iter()
        .map(|comparison| {
            let promises = comparison.promises.iter().map(|promise| {
                json!({
                    "at_s": promise.at_s,
                    "predicted_gain": promise.predicted_gain,
                    "measured_gain": promise.measured_gain,
                })
            });
            let mut value = json!(comparison);
            value["gains"] = promises.collect();
            value
        })
        .collect()
}

fn as_json(args: &WorldArgs, settings: &ControllerSettings, name: &str, results: &Value) -> Value {
    json!({
        "experiment": "adapt-world",
        "commit": COMMIT,
        "config": { "seed": args.seed, "controller": settings },
        name: results,
    })
}
