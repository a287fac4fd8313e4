//! `atrapos bench domains-designs`: all designs of several structures and workloads, and what each rigid one costs beside the best.
//!
//! Owns: the order of the loads, and the report. Never: measures (the library does), or judges beyond the table.

use std::fmt::Write;

use atrapos_cli::error::CliError;
use atrapos_cli::json::COMMIT;
use atrapos_cli::table::{columns, count, origin, rate};
use atrapos_cli::{config, interrupt, machine, output};
use atrapos_domain_loads::{Candidate, Design, Judgement, Length, Load, Mix, Threads, judge_designs};
use atrapos_structures::Kind;
use atrapos_topology::Machine;
use serde_json::{Value, json};

use super::domains::json::arrangement;
use super::domains::{refused, watched};
use crate::args::DomainsDesignsBenchArgs;
use crate::experiment::repeated;

/// The share of the best design that the design configured should have at least, by the requirements.
const CONFIGURED_MIN: f64 = 0.95;

/// The settings, checked.
struct Settings {
    loads: Vec<Load>,
    threads: Threads,
    rounds: usize,
    machine: Machine,
}

impl Settings {
    fn of(args: &DomainsDesignsBenchArgs) -> Result<Settings, CliError> {
        let machine = machine::read(&args.common.topology)?;
        let length = Length::Time(config::duration("--seconds", args.common.seconds, false)?);
        let kinds = args.structures.iter().map(|name| name.parse::<Kind>());
        let mut kinds = kinds.collect::<Result<Vec<_>, _>>().map_err(CliError::bad_input)?;
        if kinds.is_empty() {
            kinds = Kind::ALL.to_vec();
        }
        let mixes = args.workloads.iter().map(|name| name.parse::<Mix>());
        let mixes = mixes.collect::<Result<Vec<_>, _>>().map_err(CliError::bad_input)?;
        let (records, theta, burst, seed) =
            (args.records, args.theta, args.delegation.burst, args.common.seed);
        let load = |kind, mix| Load { records, theta, length, burst, seed, ..Load::new(kind, mix) };
        let loads: Vec<Load> =
            kinds.iter().flat_map(|kind| mixes.iter().map(move |mix| load(*kind, *mix))).collect();
        let pin = !args.common.no_pin && machine::may_pin(&machine);
        let threads = Threads {
            clients: args.delegation.clients,
            workers: args.delegation.workers,
            domain_size: None,
            pin,
        };
        let available = machine::available_memory_bytes().unwrap_or(u64::MAX);
        for load in &loads {
            load.check().map_err(refused)?;
            let candidates =
                atrapos_domain_loads::candidates_of(&machine, load, &threads).map_err(refused)?;
            load.check_memory(candidates.len(), available).map_err(refused)?;
        }
        let rounds = repeated("--rounds", args.rounds)? as usize;
        Ok(Settings { loads, threads, rounds, machine })
    }
}

/// Runs `atrapos bench domains-designs`.
pub(crate) fn domains_designs(args: &DomainsDesignsBenchArgs) -> Result<(), CliError> {
    let settings = Settings::of(args)?;
    let file = config::json_file(&args.common)?;
    interrupt::install();
    let mut all = Vec::new();
    for load in &settings.loads {
        let Settings { machine, threads, rounds, .. } = &settings;
        let sides = atrapos_domain_loads::candidates_of(machine, load, threads).map_err(refused)?.len();
        let judged = watched(&format!("{} {}", load.kind, load.mix), sides, 2 * rounds, |measurement| {
            judge_designs(machine, load, threads, measurement)
        })?;
        let interrupted = judged.interrupted;
        all.push(judged);
        if interrupted {
            break;
        }
    }
    let report = json(args, &settings, &all);
    output::print(&text(&settings, &all, &report["machine"]))?;
    if let Some(file) = file {
        file.write(&report)?;
    }
    let candidates = all.iter().flat_map(|one| one.candidates.iter().map(move |of| (&one.load, of)));
    let wrong =
        candidates.into_iter().find_map(|(load, of)| of.wrong.as_ref().map(|wrong| (load, of, wrong)));
    wrong.map_or(Ok(()), |(load, of, wrong)| {
        Err(CliError::failed(format!(
            "the audit of {} under {} with {} failed: {wrong}",
            load.kind, load.mix, of.arrangement
        )))
    })
}

/// The names of the rigid designs that come to a candidate, or its threads if there are none.
fn names(candidate: &Candidate) -> String {
    let names: Vec<&str> = candidate.designs.iter().map(|design: &Design| design.name()).collect();
    if names.is_empty() { candidate.arrangement.to_string() } else { names.join(", ") }
}

fn line(judged: &Judgement) -> Vec<String> {
    let (configured, worst) = (judged.configured(), judged.worst_rigid());
    let factor = |candidate: &Candidate| format!("{:.2}", judged.to_best(candidate));
    let most = judged
        .candidates
        .iter()
        .filter_map(Candidate::variation)
        .fold(None, |most: Option<f64>, one| Some(most.map_or(one, |most| most.max(one))));
    vec![
        judged.load.kind.name().to_owned(),
        judged.load.mix.name().to_owned(),
        names(configured),
        rate(configured.throughput_per_second()),
        factor(configured),
        names(judged.best()),
        worst.map_or_else(|| "-".to_owned(), names),
        worst.map_or_else(|| "-".to_owned(), factor),
        most.map_or_else(|| "-".to_owned(), |most| format!("{:.1}%", 100.0 * most)),
    ]
}

fn text(settings: &Settings, all: &[Judgement], machine: &Value) -> String {
    let mut out = String::new();
    let Some(load) = settings.loads.first() else { return out };
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "domains-designs: {} records of 8-byte keys and values, Zipf {}, bursts of {}, seed {}",
        count(load.records),
        load.theta,
        load.burst,
        load.seed
    );
    let _ = writeln!(out, "{}\n", origin(machine));
    let header = ["", "", "configured", "operations/s", "to the best", "best", "worst rigid", "to the best"];
    let header = header.into_iter().chain(["variation"]).map(str::to_owned).collect();
    let lines: Vec<_> = std::iter::once(header).chain(all.iter().map(line)).collect();
    out.push_str(&columns(&lines));
    let rounds = settings.rounds;
    let _ = writeln!(
        out,
        "  {rounds} rounds choose, the medians of {rounds} others judge; variation is the greatest of those"
    );
    let reached = all.iter().filter(|one| one.to_best(one.configured()) >= CONFIGURED_MIN).count();
    let _ = writeln!(out, "configured  at least {CONFIGURED_MIN} of the best in {reached} of {}", all.len());
    if all.iter().any(|one| one.interrupted) {
        let _ = writeln!(out, "interrupted");
    }
    out
}

fn json(args: &DomainsDesignsBenchArgs, settings: &Settings, all: &[Judgement]) -> Value {
    let candidate = |judged: &Judgement, one: &Candidate| {
        json!({
            "designs": one.designs.iter().map(|design| design.name()).collect::<Vec<_>>(),
            "arrangement": arrangement(&one.arrangement),
            "choosing_tps": one.choosing_per_second,
            "throughput_tps": one.throughput_per_second(),
            "runs": one.judging_per_second,
            "variation": one.variation(),
            "factor_to_best": judged.to_best(one),
            "audit": { "passed": one.wrong.is_none(), "error": one.wrong.as_ref().map(ToString::to_string) },
        })
    };
    let judged = |judged: &Judgement| {
        let configured = judged.configured();
        json!({
            "structure": judged.load.kind.name(),
            "workload": judged.load.mix.name(),
            "configured": names(configured),
            "throughput_tps": configured.throughput_per_second(),
            "factor_to_best": judged.to_best(configured),
            "worst_rigid": judged.worst_rigid().map(names),
            "worst_factor_to_best": judged.worst_rigid().map(|worst| judged.to_best(worst)),
            "candidates": judged.candidates.iter().map(|one| candidate(judged, one)).collect::<Vec<_>>(),
            "interrupted": judged.interrupted,
        })
    };
    json!({
        "commit": COMMIT,
        "machine": machine::summary(&settings.machine),
        "config": {
            "benchmark": "domains-designs",
            "records": args.records,
            "theta": args.theta,
            "seconds": args.common.seconds,
            "rounds": settings.rounds,
            "burst": args.delegation.burst,
            "clients": args.delegation.clients,
            "workers": args.delegation.workers,
            "pin": settings.threads.pin,
            "seed": args.common.seed,
        },
        "loads": all.iter().map(judged).collect::<Vec<_>>(),
    })
}
