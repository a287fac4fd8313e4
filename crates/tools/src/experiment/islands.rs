//! The experiments of islands and of virtual domains: figures of *OLTP on hardware islands*, of ATraPos and of *Virtual domains* that
//! compare designs.
//!
//! A point is measured by this program started once more, as `atrapos bench`, so that every design runs in fresh processes, audits
//! what it did, and can be repeated by hand: the command is a part of the result. In each round the series take turns.
//!
//! Owns: the order of the measurements, and their readings. Never: knows a figure (`figures` does), or formats (`report` and `draw`
//! do).

mod callgrind;
mod draw;
mod figures;
mod hardware;
mod report;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use atrapos_cli::error::CliError;
use atrapos_cli::progress::RunBar;
use atrapos_cli::{config, interrupt, machine, output, store};
use atrapos_instances::model;
use atrapos_topology::Machine;
use serde_json::{Value, json};

use self::figures::{Figure, Measure, Point, Quantity};
use super::{Files, repeated};
use crate::args::islands::{IslandsArgs, IslandsCommand};
use crate::args::{self, Cli, StructureBench};
use crate::bench;

/// A number that was measured, with the key that names it.
#[derive(Clone, Debug, PartialEq)]
struct Reading {
    key: String,
    value: f64,
}

impl Reading {
    fn new(key: impl Into<String>, value: f64) -> Reading {
        Reading { key: key.into(), value }
    }
}

/// A point, and what was read in each round.
#[derive(Debug)]
struct Measured<'a> {
    point: &'a Point,
    rounds: Vec<Vec<Reading>>,
}

/// The result of an experiment.
#[derive(Debug)]
struct Study<'a> {
    figure: &'a Figure,
    machine: Value,
    config: Value,
    /// Processing units that threads may use: more workers are oversubscribed.
    cpus: usize,
    measured: Vec<Measured<'a>>,
}

impl Study<'_> {
    fn is_oversubscribed(&self, point: &Point) -> bool {
        point.workers > self.cpus
    }
}

/// The means of every measurement.
struct Bench<'a> {
    machine: &'a Machine,
    pin: bool,
    seconds: Duration,
    program: PathBuf,
    directory: &'a Path,
}

/// Runs an experiment of islands.
pub(super) fn run(command: &IslandsCommand) -> Result<(), CliError> {
    let args = command.common();
    let seconds = config::duration("--seconds", args.seconds, false)?;
    let rounds = repeated("--rounds", args.rounds)?;
    let machine = machine::read("live")?;
    let workers = config::workers(args.workers, &machine)?;
    let figure = figures::figure(command, workers);
    check(&figure)?;
    let files = Files::prepare(&args.result)?;
    if figure.y == Quantity::Instructions {
        callgrind::check()?;
    }
    interrupt::install();
    let directory = store::temporary_in_memory("atrapos-experiment-")?;
    let pin = !args.no_pin && machine::may_pin(&machine);
    let program = std::env::current_exe().map_err(CliError::failed)?;
    let bench = Bench { machine: &machine, pin, seconds, program, directory: directory.path() };
    let study = Study {
        figure: &figure,
        machine: machine::summary(&machine),
        config: settings(args, workers, pin),
        cpus: machine.usable_cpus().len(),
        measured: bench.all(&figure, rounds)?,
    };
    let report = report::report(&study)?;
    output::print(&report.text)?;
    files.write(&report)
}

fn settings(args: &IslandsArgs, workers: usize, pin: bool) -> Value {
    json!({
        "workers": workers,
        "seconds": args.seconds,
        "rounds": args.rounds,
        "seed": args.result.seed,
        "pin": pin,
    })
}

/// Refuses a figure without points, before anything runs.
fn check(figure: &Figure) -> Result<(), CliError> {
    if figure.positions.is_empty() || figure.series.is_empty() {
        return Err(CliError::bad_input(format!(
            "{} has nothing to measure with these options; with one worker there are no several --designs instances",
            figure.name
        )));
    }
    for point in &figure.points {
        let options = match &point.measure {
            Measure::Messages { batch: 0, .. } => {
                return Err(CliError::bad_input("--batch 0 sends nothing; use at least 1"));
            }
            Measure::Bench(options) | Measure::Callgrind(options) => options,
            Measure::Messages { .. } | Measure::Increments(_) => continue,
        };
        // Before the first point runs, and not after the fifth one.
        check_bench(options)?;
    }
    Ok(())
}

/// Refuses a benchmark that would be refused when its turn comes.
fn check_bench(options: &[String]) -> Result<(), CliError> {
    if !atrapos_cli::tools::are_meant(&options.iter().map(OsString::from).collect::<Vec<_>>()) {
        return atrapos_cli::check_bench(options);
    }
    let args::Command::Bench { benchmark } = atrapos_cli::parse::<Cli>(options)?.command else {
        return Ok(());
    };
    match &benchmark {
        StructureBench::Domains(args) => bench::domains::check(args),
        StructureBench::DomainsStructures(args) => bench::domains_structures::check(args),
        StructureBench::DomainsTpcc(args) => bench::domains_tpcc::check(args),
        StructureBench::DomainsDesigns(_) | StructureBench::DomainsService(_) => Ok(()),
    }
}

impl Bench<'_> {
    fn all<'a>(&self, figure: &'a Figure, rounds: u32) -> Result<Vec<Measured<'a>>, CliError> {
        let measured = |point| Measured { point, rounds: Vec::new() };
        let mut all: Vec<Measured<'a>> = figure.points.iter().map(measured).collect();
        let steps = all.len() as u64 * u64::from(rounds);
        let bar = RunBar::new(format!("{}: ", figure.name), Duration::ZERO, Duration::from_millis(steps));
        for round in 0..rounds {
            for position in 0..figure.positions.len() {
                let mut here: Vec<&mut Measured<'a>> =
                    all.iter_mut().filter(|measured| measured.point.position == position).collect();
                if round % 2 == 1 {
                    here.reverse();
                }
                for one in here {
                    let (series, x) = (&figure.series[one.point.series], &figure.positions[position].label);
                    bar.step(&format!("round {}, {series}, {x}", round + 1));
                    one.rounds.push(self.measure(one.point, figure.y)?);
                }
            }
        }
        bar.finish();
        Ok(all)
    }

    fn measure(&self, point: &Point, y: Quantity) -> Result<Vec<Reading>, CliError> {
        match &point.measure {
            Measure::Bench(arguments) => {
                let mut command = Command::new(&self.program);
                Ok(readings(&self.run(command.args(arguments))?, point.workers, y))
            }
            Measure::Callgrind(arguments) => callgrind::measure(self, arguments),
            Measure::Messages { kind, batch } => {
                let rate = hardware::messages_per_s(*kind, *batch, self.machine, self.pin, self.seconds)?;
                Ok(vec![Reading::new(y.key(), rate)])
            }
            Measure::Increments(sharing) => {
                let rate = sharing.measure(self.machine, point.workers, self.pin, self.seconds);
                Ok(vec![Reading::new(y.key(), rate)])
            }
        }
    }

    /// Runs a benchmark, and returns its result.
    fn run(&self, command: &mut Command) -> Result<Value, CliError> {
        let file = self.directory.join("result.json");
        command.arg("--json").arg(&file).stdin(Stdio::null()).stdout(Stdio::null());
        let shown = shown(command);
        let ran = command.output().map_err(|error| CliError::failed(format!("'{shown}': {error}")))?;
        let said = String::from_utf8_lossy(&ran.stderr);
        let why = said.lines().rev().find_map(|line| line.strip_prefix("error: "));
        match (ran.status.success(), ran.status.code()) {
            (true, _) => {}
            (_, Some(2)) => return Err(CliError::bad_input(why.unwrap_or("a point was refused"))),
            (_, code) => {
                let why = why.map_or_else(|| format!("it ended with status {code:?}"), str::to_owned);
                return Err(CliError::failed(format!("the point '{shown}' failed: {why}")));
            }
        }
        let text = std::fs::read_to_string(&file).map_err(CliError::failed)?;
        serde_json::from_str(&text).map_err(CliError::failed)
    }
}

/// Returns a command as a user would type it, without the file for its result.
fn shown(command: &Command) -> String {
    let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = words.take_while(|word| word != "--json").collect();
    let program = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy();
    format!("{program} {}", words.join(" "))
}

/// Returns the completed transactions of a benchmark's result.
fn completed(result: &Value) -> u64 {
    let classes = result["classes"].as_object().into_iter().flatten();
    let number = |class: &Value, key: &str| class[key].as_u64().unwrap_or(0);
    classes.map(|(_, class)| number(class, "committed") + number(class, "expected_failures")).sum()
}

/// Returns the readings of a benchmark's result, that of `y` first. A reading that needs a transaction is left out if there was none.
fn readings(result: &Value, workers: usize, y: Quantity) -> Vec<Reading> {
    let tps = result["throughput_tps"].as_f64().unwrap_or(0.0);
    let throughput = Reading::new(Quantity::Throughput.key(), tps);
    if y == Quantity::Operations || y == Quantity::Delegation {
        return of_operations(result, throughput, y);
    }
    let transactions = completed(result);
    if transactions == 0 || tps <= 0.0 {
        return vec![throughput];
    }
    let time = Reading::new(Quantity::Time.key(), model::time_us(workers, tps));
    let mut all = if y == Quantity::Time { vec![time, throughput] } else { vec![throughput, time] };
    let classes = result["classes"].as_object().into_iter().flatten();
    let aborted: u64 = classes
        .flat_map(|(_, class)| class["aborted"].as_object().into_iter().flatten())
        .filter_map(|(_, count)| count.as_u64())
        .sum();
    let each = |count: u64| count as f64 / transactions as f64;
    let counted = |count: &Value| count.as_u64().unwrap_or(0);
    all.push(Reading::new("aborts_per_transaction", each(aborted + counted(&result["retried"]))));
    // Engines whose threads share the data have neither.
    let has_owners =
        !["shared-2pl", "shared-occ"].contains(&result["config"]["engine"].as_str().unwrap_or(""));
    if has_owners {
        let remote = counted(&result["actions"]["remote"]);
        all.push(Reading::new("remote_actions_per_transaction", each(remote)));
        let central = counted(&result["central_accesses"]);
        all.push(Reading::new("central_accesses_per_transaction", each(central)));
    }
    all
}

/// Returns the readings of the result of `bench domains`, that of `y` first.
fn of_operations(result: &Value, throughput: Reading, y: Quantity) -> Vec<Reading> {
    if y == Quantity::Operations {
        return vec![throughput];
    }
    let own = result["ns_per_operation"].as_f64().map(|ns| Reading::new(y.key(), ns));
    let direct = result["cost"]["direct_ns"].as_f64().map(|ns| Reading::new("direct_ns", ns));
    own.into_iter().chain([throughput]).chain(direct).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(engine: &str) -> Value {
        json!({
            "throughput_tps": 1000.0,
            "config": { "engine": engine },
            "classes": {
                "one": { "committed": 90, "expected_failures": 10, "aborted": { "deadlock": 5 } },
                "two": { "committed": 100, "expected_failures": 0, "aborted": {} },
            },
            "retried": 15,
            "actions": { "remote": 400 },
            "central_accesses": 800,
        })
    }

    #[test]
    fn readings_are_per_completed_transaction() {
        let keys = |engine: &str, y| -> Vec<(String, f64)> {
            readings(&result(engine), 2, y).into_iter().map(|reading| (reading.key, reading.value)).collect()
        };
        let expected = [
            ("throughput_tps", 1000.0),
            ("time_us", 2000.0),
            ("aborts_per_transaction", 0.1),
            ("remote_actions_per_transaction", 2.0),
            ("central_accesses_per_transaction", 4.0),
        ]
        .map(|(key, value)| (key.to_owned(), value));
        assert_eq!(keys("plp", Quantity::Throughput), expected);
        assert_eq!(keys("shared-occ", Quantity::Throughput), expected[..3]);
        assert_eq!(keys("plp", Quantity::Time)[0], expected[1]);
    }

    #[test]
    fn a_delegated_operation_is_read_beside_a_direct_one() {
        let delegated =
            json!({ "throughput_tps": 5.0, "ns_per_operation": 3.0, "cost": { "direct_ns": 2.0 } });
        let expected = [("ns_per_operation", 3.0), ("throughput_tps", 5.0), ("direct_ns", 2.0)];
        let expected = expected.map(|(key, value)| Reading::new(key, value));
        assert_eq!(readings(&delegated, 2, Quantity::Delegation), expected);
        assert_eq!(readings(&delegated, 2, Quantity::Operations), expected[1..2]);
    }

    #[test]
    fn a_run_without_transactions_has_a_throughput_and_no_time() {
        let idle = json!({ "throughput_tps": 0.0, "classes": {} });
        assert_eq!(readings(&idle, 2, Quantity::Time), [Reading::new("throughput_tps", 0.0)]);
    }
}
