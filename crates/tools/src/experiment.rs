//! `atrapos experiment`: a database that adapts itself beside one that does not, the steps from PLP to there, the cost of
//! adapting, the controller on simulated machines, and designs by islands.
//!
//! Owns: the order of the steps: checking, running, showing and writing. Never: measures anything itself
//! (`atrapos-experiments` does), or formats it (the modules below do).

mod apart;
mod costs;
mod islands;
mod ladder;
mod parallel;
mod plot;
mod sensitivity;
mod sides;
mod world;

use std::path::PathBuf;
use std::time::Duration;

use atrapos::{Builder, Database, Schema};
use atrapos_cli::error::CliError;
use atrapos_cli::json::COMMIT;
use atrapos_cli::output::JsonFile;
use atrapos_cli::progress::RunBar;
use atrapos_cli::{config, interrupt, machine, output};
use atrapos_experiments::{
    ExperimentError, Setup, Watched, apart as families, ladder as rungs, monitoring, repartitioning, scenario,
};
use serde_json::{Value, json};

use crate::args::experiment::{Experiment, ExperimentArgs, ExperimentCommand, OtherExperiment, ResultArgs};

/// Output of an experiment: the same result in four forms.
#[derive(Debug)]
struct Report {
    /// The result as text.
    text: String,
    /// The keys of the result as JSON; those that all experiments have are added.
    json: Value,
    csv: String,
    svg: String,
}

/// The requested files; they are known to be writable.
#[derive(Debug)]
struct Files {
    json: Option<JsonFile>,
    csv: Option<JsonFile>,
    svg: Option<JsonFile>,
}

impl Files {
    fn prepare(args: &ResultArgs) -> Result<Files, CliError> {
        let file = |what, path: &Option<PathBuf>| {
            path.as_ref().map(|path| JsonFile::prepare_as(what, path)).transpose()
        };
        Ok(Files {
            json: file("JSON", &args.json)?,
            csv: file("CSV", &args.csv)?,
            svg: file("SVG", &args.svg)?,
        })
    }

    fn write(self, report: &Report) -> Result<(), CliError> {
        if let Some(file) = self.json {
            file.write(&report.json)?;
        }
        if let Some(file) = self.csv {
            file.write_text(&report.csv)?;
        }
        if let Some(file) = self.svg {
            file.write_text(&report.svg)?;
        }
        Ok(())
    }
}

fn refused(error: ExperimentError) -> CliError {
    if error.is_bad_input() { CliError::bad_input(error) } else { CliError::failed(error) }
}

/// Limit of rounds or pairs: more would take too long.
const REPEATED_MAX: u32 = 1000;

pub(crate) fn repeated(option: &str, number: u32) -> Result<u32, CliError> {
    if (1..=REPEATED_MAX).contains(&number) {
        return Ok(number);
    }
    Err(CliError::bad_input(format!("{option} {number} cannot be measured; use 1 to {REPEATED_MAX}")))
}

/// Runs `atrapos experiment`.
pub(crate) fn experiment(command: &ExperimentCommand) -> Result<(), CliError> {
    match (&command.other, command.adapting.experiment) {
        (Some(OtherExperiment::Islands(islands)), _) => islands::run(islands),
        (Some(OtherExperiment::World(args)), _) => world::run(args),
        (None, Some(experiment)) => run_adapting(experiment, &command.adapting),
        (None, None) => Err(CliError::bad_input("which experiment? `atrapos experiment --help` lists them")),
    }
}

/// Runs an experiment in which a database adapts itself.
fn run_adapting(experiment: Experiment, args: &ExperimentArgs) -> Result<(), CliError> {
    let seconds = args.seconds_per_phase.unwrap_or_else(|| experiment.phase_seconds());
    let phase = config::duration("--seconds-per-phase", seconds, false)?;
    let (rounds, pairs) = (repeated("--rounds", args.rounds)?, repeated("--pairs", args.pairs)?);
    let sessions = config::sessions(args.sessions)?;
    let machine = machine::read(&args.topology)?;
    let workers = config::workers(args.workers, &machine)?;
    let adaptation = config::adaptation(&args.adaptation)?;
    let pin = !args.no_pin && machine::may_pin(&machine);
    let open = |schema: Schema| -> Builder { Database::builder(schema).machine(machine.clone()).pin(pin) };
    let setup = Setup {
        open: &open,
        workers,
        sessions,
        rows: args.rows.unwrap_or_else(|| experiment.rows()),
        seed: args.result.seed,
        phase,
        static_only: args.fixed,
        adaptation,
    };
    let available = machine::available_memory_bytes();
    let files = Files::prepare(&args.result)?;
    match (experiment.scenario(), available) {
        (Some(scenario), available) => scenario::check(scenario, &setup, available),
        (None, available) if experiment == Experiment::MonitoringCost => monitoring::check(&setup, available),
        (None, available) if experiment == Experiment::AtraposFig6 => rungs::check(&setup, available),
        (None, available) if experiment == Experiment::AdaptApart => families::check(&setup, available),
        (None, available) => repartitioning::check(&setup, available),
    }
    .map_err(refused)?;
    // A database opened only as a probe refuses invalid settings of the adaptive side before the other has run for a
    // minute.
    let probe = open(Schema::new()).workers(workers).adaptation(adaptation).in_memory();
    for warning in probe.map_err(CliError::bad_input)?.warnings() {
        output::complain(&format!("warning: {warning}"));
    }
    interrupt::install();
    let mut report = run(experiment, &setup, rounds, pairs)?;
    if let Some(json) = report.json.as_object_mut() {
        json.insert("experiment".to_owned(), json!(experiment.name()));
        json.insert("commit".to_owned(), json!(COMMIT));
        json.insert("machine".to_owned(), machine::summary(&machine));
        json.insert(
            "config".to_owned(),
            json!({
                "workers": workers,
                "sessions": sessions,
                "rows": setup.rows,
                "seconds_per_phase": phase.as_secs_f64(),
                "rounds": rounds,
                "pairs": pairs,
                "seed": args.result.seed,
                "static": args.fixed,
                "pin": pin,
                "topology": args.topology,
                "interval_s": adaptation.controller.interval.as_secs_f64(),
                "interval_max_s": adaptation.controller.interval_max.as_secs_f64(),
                "threshold": adaptation.controller.threshold,
                "sub_partitions": adaptation.sub_partitions,
                "sample_every": adaptation.sample_every,
                "rows_per_worker": adaptation.rows_per_worker,
            }),
        );
    }
    output::print(&report.text)?;
    files.write(&report)
}

fn run(experiment: Experiment, setup: &Setup<'_>, rounds: u32, pairs: u32) -> Result<Report, CliError> {
    let length = match experiment.scenario() {
        Some(scenario) => scenario.length(setup, rounds),
        None if experiment == Experiment::MonitoringCost => monitoring::length(setup, pairs),
        None if experiment == Experiment::AtraposFig6 => rungs::length(setup, rounds),
        None if experiment == Experiment::AdaptApart => families::length(setup, rounds),
        None => repartitioning::length(setup),
    };
    let bar = RunBar::new(format!("{}: ", experiment.name()), Duration::ZERO, length);
    let mut passed = Duration::ZERO;
    let mut watch = |Watched { what, elapsed, tps }: Watched<'_>| {
        passed += elapsed;
        bar.show(what, Duration::ZERO, passed, tps);
    };
    let flag = interrupt::flag();
    let report = match experiment.scenario() {
        Some(scenario) => scenario::run(scenario, setup, rounds, flag, &mut watch)
            .map_err(refused)
            .and_then(|rounds| sides::report(scenario, setup, &rounds)),
        None if experiment == Experiment::MonitoringCost => monitoring::run(setup, pairs, flag, &mut watch)
            .map_err(refused)
            .and_then(|costs| costs::monitoring(setup, &costs)),
        None if experiment == Experiment::AtraposFig6 => rungs::run(setup, rounds, flag, &mut watch)
            .map_err(refused)
            .and_then(|results| ladder::report(setup, &results)),
        None if experiment == Experiment::AdaptApart => families::run(setup, rounds, flag, &mut watch)
            .map_err(refused)
            .and_then(|rounds| apart::report(setup, &rounds)),
        None => repartitioning::run(setup, flag, &mut watch)
            .map_err(refused)
            .and_then(|costs| costs::repartitioning(setup, &costs)),
    };
    bar.finish();
    report
}
