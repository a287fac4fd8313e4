//! `atrapos plan`: the decisions of the adaptive engine for recorded statistics, on any machine.
//!
//! Owns: the combination of a trace with a machine, and the comparison with the optimum. Never: searches;
//! `atrapos-adapt` does.

use std::path::Path;

use atrapos_adapt::{
    AdaptError, Attributed, Plan, PlannedScheme, Platform, Settings, TableIndex, Workload, WorkloadTrace,
    evaluate, expected, plan_from, render_plan, search,
};
use atrapos_cli::error::CliError;
use atrapos_cli::output::JsonFile;
use atrapos_cli::{machine, output};
use atrapos_exact::solve_exactly;
use atrapos_topology::Machine;
use serde_json::{Value, json};

use crate::args::PlanArgs;
use crate::ownership::Picture;

/// Distance of the usual search from the optimum.
struct Optimum {
    /// The objective of the best scheme.
    best: f64,
    /// The objective of the scheme that the search finds.
    searched: f64,
}

impl Optimum {
    /// Returns the share of the optimum by which the search is worse.
    fn excess(&self) -> f64 {
        // Rounding may put the search below the optimum.
        if self.best > 0.0 { (self.searched / self.best - 1.0).max(0.0) } else { self.searched.max(0.0) }
    }
}

/// Reads the share of a transaction class.
fn share(text: &str) -> Result<(String, f64), CliError> {
    let of = || {
        let (class, share) = text.split_once('=')?;
        Some((class.trim().to_owned(), share.trim().parse().ok()?))
    };
    of().ok_or_else(|| {
        CliError::bad_input(format!(
            "--mix {text} names no class with a share; write CLASS=SHARE, as in payment=0.5"
        ))
    })
}

/// Runs `atrapos plan`.
pub(crate) fn plan(args: &PlanArgs) -> Result<(), CliError> {
    let drawing = args.svg.as_ref().map(|path| JsonFile::prepare_as("SVG", path)).transpose()?;
    let machine = machine::read(&args.topology)?;
    let trace = read_trace(&args.trace)?;
    let workers = workers(args, &machine)?;
    let unfit = |error: AdaptError| refuse(&args.trace, &error);
    let platform = Platform::for_workers(&machine, workers).map_err(unfit)?;
    let mix = args.mix.iter().map(|text| share(text)).collect::<Result<Vec<_>, CliError>>()?;
    let Attributed { workload, weights } =
        expected(&trace, &mix, &platform, &Settings::default()).map_err(|error| match error {
            AdaptError::Mix { .. } => CliError::bad_input(error),
            error => unfit(error),
        })?;
    let today = trace.scheme_on(&workload, &platform).map_err(unfit)?;
    let settings = Settings { weights, ..Settings::default() };
    let (plan, optimum) = propose(args, &workload, &platform, &today, &settings)?;
    if let Some(file) = drawing {
        file.write_text(&Picture::of_plan(&plan, &workload, &platform).svg()?)?;
    }
    if args.json {
        let result = json(&machine, (workers, trace.workers), &workload, &plan, optimum.as_ref());
        return output::print(&format!("{result:#}\n"));
    }
    let mut text = format!(
        "{} on {}, statistics of {} s on {}\n{}\n{}",
        of_workers(workers),
        machine.origin(),
        trace.seconds,
        trace.machine.as_deref().unwrap_or("an unnamed machine"),
        reservations(&trace, &workload, workers),
        render_plan(&plan, &workload, &platform)
    );
    if let Some(optimum) = optimum {
        text.push_str(&format!(
            "\nThe proposed scheme is the best there is, with an objective of {:.4}; the usual search finds {:.4}, which is {:.1}% \
             more.\n",
            optimum.best,
            optimum.searched,
            100.0 * optimum.excess()
        ));
    }
    output::print(&text)
}

/// Returns the number of workers to plan for.
fn workers(args: &PlanArgs, machine: &Machine) -> Result<usize, CliError> {
    let cpus = machine.usable_cpus().len();
    match args.workers {
        None => Ok(cpus),
        Some(workers) if (1..=cpus).contains(&workers) => Ok(workers),
        Some(workers) => Err(CliError::bad_input(format!(
            "there is no plan for {workers} workers on {}, which has {cpus} usable cpus; give --workers between 1 and {cpus}, or a \
             --topology that has as many",
            machine.origin(),
        ))),
    }
}

fn of_workers(count: usize) -> String {
    format!("{count} worker{}", if count == 1 { "" } else { "s" })
}

/// Returns what is to be said of statistics that were recorded with another number of workers: lines, or nothing.
fn reservations(trace: &WorkloadTrace, workload: &Workload, workers: usize) -> String {
    let mut lines = String::new();
    if trace.workers != workers {
        lines = format!("recorded with {}", of_workers(trace.workers));
        lines.push_str(if trace.workers > workers {
            ": what is called today's scheme is equal parts, as the recorded one does not fit\n"
        } else {
            ", whose scheme is called today's\n"
        });
    }
    let tables = (0..).map(TableIndex).take(workload.table_count());
    let coarse = tables.filter(|table| (workload.slice_count(*table) as usize) < workers).count();
    if coarse > 0 {
        lines.push_str(&format!(
            "{coarse} of {} tables are known by fewer sub-partitions than there are workers: record with more --sub-partitions for a finer \
             plan\n",
            workload.table_count()
        ));
    }
    lines
}

/// Returns the result as JSON. `workers` are those of the plan and those of the trace.
fn json(
    machine: &Machine,
    (workers, trace_workers): (usize, usize),
    workload: &Workload,
    plan: &Plan,
    optimum: Option<&Optimum>,
) -> Value {
    let tables: Vec<_> = (0..)
        .map(TableIndex)
        .take(workload.table_count())
        .map(|table| json!({ "name": workload.table_name(table), "slices": workload.slice_count(table) }))
        .collect();
    json!({
        "machine": machine::summary(machine),
        "workers": workers,
        "trace_workers": trace_workers,
        "tables": tables,
        "plan": plan,
        "exact": optimum.map(|optimum| json!({
            "objective": optimum.best,
            "searched_objective": optimum.searched,
            "searched_excess": optimum.excess(),
        })),
    })
}

fn refuse(path: &Path, error: &AdaptError) -> CliError {
    CliError::bad_input(format!("no plan can be made from {}: {error}", path.display()))
}

fn read_trace(path: &Path) -> Result<WorkloadTrace, CliError> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        CliError::bad_input(format!(
            "the trace {} cannot be read: {error}; give a file that `atrapos bench --record FILE` wrote",
            path.display()
        ))
    })?;
    WorkloadTrace::from_json(&text).map_err(|error| refuse(path, &error))
}

/// Returns the plan, and with `--exact` the distance of the usual search from the best one.
fn propose(
    args: &PlanArgs,
    workload: &Workload,
    platform: &Platform,
    today: &PlannedScheme,
    settings: &Settings,
) -> Result<(Plan, Option<Optimum>), CliError> {
    let unfit = |error: AdaptError| refuse(&args.trace, &error);
    if !args.exact {
        let plan = atrapos_adapt::plan(workload, platform, today, settings).map_err(unfit)?;
        return Ok((plan, None));
    }
    let exact =
        solve_exactly(workload, platform, settings, args.exact_seconds).map_err(|error| match error {
            AdaptError::ExactUnfinished { .. } if args.exact_seconds > 0.0 => CliError::failed(error),
            AdaptError::TooLarge { .. }
            | AdaptError::UnevenDistances { .. }
            | AdaptError::ExactUnfinished { .. } => {
                CliError::bad_input(format!("{error}, or leave out --exact"))
            }
            error => unfit(error),
        })?;
    let cost = |scheme: &PlannedScheme| {
        evaluate(workload, platform, scheme, &settings.weights).map(|cost| cost.objective).map_err(unfit)
    };
    let searched = cost(&search(workload, platform, Some(today), settings).map_err(unfit)?)?;
    let optimum = Optimum { best: exact.objective, searched };
    let plan = plan_from(workload, platform, today, exact.scheme, settings).map_err(unfit)?;
    Ok((plan, Some(optimum)))
}
