//! `atrapos domains calibrate`: throughput over growing domains, and the sizes that are worth it.
//!
//! Owns: which curves are measured, and the result as text, as JSON and as a file of curves. Never: measures (`atrapos-domain-loads` does),
//! or finds a size (`atrapos-composition` does).

use std::fmt::Write;

use atrapos_cli::error::CliError;
use atrapos_cli::json::COMMIT;
use atrapos_cli::output::JsonFile;
use atrapos_cli::table::{columns, origin, rate};
use atrapos_cli::{config, interrupt, machine, output};
use atrapos_composition::{Calibration, CalibrationSettings, Curve, Curves, Point, variation};
use atrapos_domain_loads::{Length, Load, LoadError, Mix, default_sizes, is_oversubscribed, measure_curve};
use atrapos_harness::median;
use atrapos_structures::{Access, Kind};
use atrapos_topology::Machine;
use serde_json::{Value, json};

use super::refused;
use crate::args::CalibrateArgs;
use crate::bench::domains::{refused as refused_load, watched};
use crate::experiment::repeated;

/// The structures of the paper.
const STRUCTURES: [Kind; 4] = [Kind::BTree, Kind::FpTree, Kind::BwTree, Kind::HashMap];
/// The mixes for which the paper gives sizes.
const MIXES: [Mix; 3] = [Mix::YcsbC, Mix::UpdateOnly, Mix::InsertOnly];

/// What is to be measured.
struct Settings {
    machine: Machine,
    /// Each with its sizes.
    loads: Vec<(Load, Vec<usize>)>,
    rounds: usize,
    pin: bool,
    calibration: CalibrationSettings,
}

/// A curve, and the size that it gives.
struct Calibrated {
    curve: Curve,
    calibration: Calibration,
}

impl Settings {
    fn of(args: &CalibrateArgs) -> Result<Settings, CliError> {
        let machine = machine::read(&args.common.topology)?;
        let kinds = named(&args.structure, &STRUCTURES)?;
        let mixes = named(&args.mix, &MIXES)?;
        let length = Length::Time(config::duration("--seconds", args.common.seconds, false)?);
        let mut loads = Vec::new();
        for kind in kinds {
            for &mix in &mixes {
                let (records, theta, seed) = (args.records, args.theta, args.common.seed);
                let load = Load { records, theta, length, seed, ..Load::new(kind, mix) };
                load.check().map_err(refused_load)?;
                load.check_memory(1, machine::available_memory_bytes().unwrap_or(u64::MAX))
                    .map_err(refused_load)?;
                loads.push((load, sizes(args, &machine, kind)?));
            }
        }
        let calibration =
            CalibrationSettings { confidence: args.confidence, ..CalibrationSettings::default() };
        calibration.check().map_err(refused)?;
        let pin = !args.common.no_pin && machine::may_pin(&machine);
        Ok(Settings { machine, loads, rounds: repeated("--rounds", args.rounds)? as usize, pin, calibration })
    }
}

/// Returns the things of these names, without those that are named again; `all` without any.
fn named<T: std::str::FromStr + PartialEq + Clone>(names: &[String], all: &[T]) -> Result<Vec<T>, CliError>
where
    T::Err: std::fmt::Display,
{
    let mut found = Vec::new();
    for name in names {
        let one = name.parse().map_err(CliError::bad_input)?;
        if !found.contains(&one) {
            found.push(one);
        }
    }
    Ok(if found.is_empty() { all.to_vec() } else { found })
}

/// Workers of a domain at most: more threads than any machine has processing units for.
const SIZE_MAX: usize = 4096;

fn sizes(args: &CalibrateArgs, machine: &Machine, kind: Kind) -> Result<Vec<usize>, CliError> {
    if args.sizes.is_empty() || kind.support().access == Access::Owned {
        return Ok(default_sizes(machine, kind));
    }
    if args.sizes[0] == 0 || !args.sizes.is_sorted_by(|a, b| a < b) {
        return Err(CliError::bad_input(format!("--sizes: {}", LoadError::Sizes)));
    }
    match args.sizes.last() {
        Some(&largest) if largest > SIZE_MAX => Err(CliError::bad_input(format!(
            "--sizes: a domain of {largest} workers is too large; use at most {SIZE_MAX}"
        ))),
        _ => Ok(args.sizes.clone()),
    }
}

/// Runs `atrapos domains calibrate`.
pub(super) fn calibrate(args: &CalibrateArgs) -> Result<(), CliError> {
    let settings = Settings::of(args)?;
    let file = config::json_file(&args.common)?;
    let output = args.output.as_deref().map(|path| JsonFile::prepare_as("curves", path)).transpose()?;
    interrupt::install();
    let (calibrated, interrupted) = measure(&settings)?;
    let summary = machine::summary(&settings.machine);
    output::print(&text(&settings, &summary, &calibrated))?;
    if let Some(file) = file {
        file.write(&report(args, &settings, &summary, &calibrated, interrupted))?;
    }
    if let Some(output) = output {
        let name = format!("{}{}", origin(&summary).trim(), if settings.pin { "" } else { ", not pinned" });
        let curves = calibrated.iter().map(|one| one.curve.clone()).collect();
        output.write_text(&format!("{}\n", Curves::new(Some(name), curves).map_err(refused)?.to_json()))?;
    }
    complain(&settings, &calibrated);
    Ok(())
}

/// Measures all curves, up to an interrupt.
fn measure(settings: &Settings) -> Result<(Vec<Calibrated>, bool), CliError> {
    let mut calibrated = Vec::new();
    for (load, sizes) in &settings.loads {
        let what = format!("{} under {}", load.kind, load.mix);
        let mut interrupted = false;
        let curve = watched(&what, sizes.len(), settings.rounds, |measurement| {
            match measure_curve(&settings.machine, load, sizes, settings.pin, measurement) {
                Err(LoadError::Interrupted) => {
                    interrupted = true;
                    Ok(None)
                }
                curve => curve.map(Some),
            }
        })?;
        let Some(curve) = curve else {
            return if interrupted && !calibrated.is_empty() {
                Ok((calibrated, true))
            } else {
                Err(CliError::failed(LoadError::Interrupted))
            };
        };
        let calibration = atrapos_composition::calibrate(&curve, &settings.calibration).map_err(refused)?;
        calibrated.push(Calibrated { curve, calibration });
    }
    Ok((calibrated, false))
}

impl Calibrated {
    /// Returns whether no measured size is beyond a decline, so that larger domains may be better.
    fn is_largest(&self) -> bool {
        self.curve.points.last().is_some_and(|point| point.workers == self.calibration.workers)
    }
}

fn middle(point: &Point) -> f64 {
    median(&mut point.throughputs_per_second.clone())
}

fn is_beyond(settings: &Settings, workers: u32) -> bool {
    is_oversubscribed(&settings.machine, workers as usize)
}

fn text(settings: &Settings, summary: &Value, calibrated: &[Calibrated]) -> String {
    let mut out = String::new();
    let load = &settings.loads[0].0;
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "calibration: {} records of 8-byte keys and values, Zipf {}, medians of {} rounds\n{}",
        atrapos_cli::table::count(load.records),
        load.theta,
        settings.rounds,
        origin(summary),
    );
    for one in calibrated {
        let _ = write!(out, "\n{} under {}\n{}", one.curve.kind, one.curve.mix, curve(settings, one));
        let _ = writeln!(out, "{}", sentence(settings, one));
    }
    if calibrated.iter().flat_map(|one| &one.curve.points).any(|point| is_beyond(settings, point.workers)) {
        out.push_str(
            "\n* oversubscribed: more workers than usable processing units, which says little about a larger machine\n",
        );
    }
    out
}

fn curve(settings: &Settings, one: &Calibrated) -> String {
    let header = ["workers", "operations/s", "per worker", "variation"];
    let mut lines = vec![header.map(str::to_owned).to_vec()];
    for point in &one.curve.points {
        let mark = if is_beyond(settings, point.workers) { "*" } else { "" };
        let throughput = middle(point);
        let variation = variation(&point.throughputs_per_second);
        lines.push(vec![
            format!("  {}{mark}", point.workers),
            rate(throughput),
            rate(throughput / f64::from(point.workers)),
            variation.map_or_else(|| "-".to_owned(), |share| format!("{:.1}%", 100.0 * share)),
        ]);
    }
    columns(&lines)
}

/// Says in a sentence which size the curve gives.
fn sentence(settings: &Settings, one: &Calibrated) -> String {
    let Calibration { workers, workers_interval, agreement, higher_beyond, .. } = &one.calibration;
    let mut out = format!("  size {workers}");
    let percent = 100.0 * settings.calibration.confidence;
    if let Some((low, high)) = workers_interval {
        let _ = write!(out, ", between {low} and {high} with {percent}% confidence");
    } else {
        out.push_str(", from a single round: nothing is known of its confidence");
    }
    if let Some(agreement) = agreement {
        let _ = write!(out, " ({:.0}% of resamples agree)", 100.0 * agreement);
    }
    if let Some(beyond) = higher_beyond {
        let _ = write!(out, "; there is more throughput beyond the decline, at {beyond}");
    }
    if one.is_largest() && one.curve.points.len() > 1 {
        out.push_str("; the largest that was measured, larger ones may be better");
    }
    if is_beyond(settings, *workers) {
        out.push_str("; oversubscribed *");
    }
    out
}

fn report(
    args: &CalibrateArgs,
    settings: &Settings,
    summary: &Value,
    calibrated: &[Calibrated],
    interrupted: bool,
) -> Value {
    let point = |point: &Point| {
        json!({
            "workers": point.workers,
            "oversubscribed": is_beyond(settings, point.workers),
            "throughput_tps": middle(point),
            "variation": variation(&point.throughputs_per_second),
            "throughputs_tps": point.throughputs_per_second,
        })
    };
    let curve = |one: &Calibrated| {
        json!({
            "structure": one.curve.kind,
            "mix": one.curve.mix,
            "points": one.curve.points.iter().map(point).collect::<Vec<_>>(),
            "size": one.calibration.workers,
            "size_interval": one.calibration.workers_interval,
            "size_oversubscribed": is_beyond(settings, one.calibration.workers),
            "size_is_largest": one.is_largest(),
            "agreement": one.calibration.agreement,
            "higher_beyond": one.calibration.higher_beyond,
            "unreliable_sizes": one.calibration.unreliable_sizes,
        })
    };
    json!({
        "commit": COMMIT,
        "machine": summary,
        "config": {
            "records": args.records,
            "theta": args.theta,
            "seconds": args.common.seconds,
            "rounds": settings.rounds,
            "confidence": settings.calibration.confidence,
            "seed": args.common.seed,
            "pin": settings.pin,
            "topology": args.common.topology,
        },
        "curves": calibrated.iter().map(curve).collect::<Vec<_>>(),
        "interrupted": interrupted,
    })
}

/// Warns of what makes numbers unreliable.
fn complain(settings: &Settings, calibrated: &[Calibrated]) {
    for one in calibrated.iter().filter(|one| !one.calibration.unreliable_sizes.is_empty()) {
        let sizes: Vec<String> = one.calibration.unreliable_sizes.iter().map(u32::to_string).collect();
        output::complain(&format!(
            "warning: the rounds of {} under {} vary by more than 5% with {} workers; use longer rounds, or a machine that does \
             nothing else",
            one.curve.kind,
            one.curve.mix,
            sizes.join(", ")
        ));
    }
    let beyond = |one: &Calibrated| is_beyond(settings, one.calibration.workers);
    if calibrated.iter().any(beyond) {
        output::complain(
            "warning: a size is oversubscribed; calibrate on a machine with more processing units to rely on it",
        );
    }
}
