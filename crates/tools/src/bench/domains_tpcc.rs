//! `atrapos bench domains-tpcc`: New-Order and Payment on structures in virtual domains, without isolation.
//!
//! Owns: the order of the steps, and the report. Never: measures.

use std::fmt::Write;

use atrapos_cli::error::CliError;
use atrapos_cli::json::COMMIT;
use atrapos_cli::table::{count, origin, rate};
use atrapos_cli::{config, interrupt, machine, output};
use atrapos_domain_loads::{Arrangement, Design, Threads, TpccLoad, TpccRound, TpccRun, run_tpcc};
use atrapos_topology::Machine;
use serde_json::{Value, json};

use super::domains::json::arrangement as arrangement_json;
use super::domains::{complain_of_variation, refused, watched};
use crate::args::DomainsTpccBenchArgs;
use crate::experiment::repeated;

/// The settings, checked.
struct Settings {
    load: TpccLoad,
    arrangement: Arrangement,
    machine: Machine,
    rounds: usize,
}

impl Settings {
    fn of(args: &DomainsTpccBenchArgs) -> Result<Settings, CliError> {
        let kind = args.structure.parse().map_err(CliError::bad_input)?;
        let design: Design = args.design.parse().map_err(CliError::bad_input)?;
        let machine = machine::read(&args.common.topology)?;
        let load = TpccLoad {
            warehouses: args.warehouses,
            items: args.items,
            customers: args.customers,
            remote: args.remote,
            length: config::duration("--seconds", args.common.seconds, false)?,
            burst: args.delegation.burst,
            group: args.group,
            seed: args.common.seed,
            ..TpccLoad::new(kind)
        };
        let threads = Threads {
            clients: args.delegation.clients,
            workers: args.delegation.workers,
            domain_size: args.domain_size,
            pin: !args.common.no_pin && machine::may_pin(&machine),
        };
        let arrangement = match args.direct {
            true => Arrangement::parts_directly(&machine, design, &threads),
            false => Arrangement::new(&machine, design, &threads),
        };
        let arrangement = arrangement.map_err(refused)?;
        load.check(&arrangement, machine::available_memory_bytes().unwrap_or(u64::MAX)).map_err(refused)?;
        let rounds = repeated("--rounds", args.rounds)? as usize;
        Ok(Settings { load, arrangement, machine, rounds })
    }
}

/// Refuses a benchmark that would be refused before it begins.
pub(crate) fn check(args: &DomainsTpccBenchArgs) -> Result<(), CliError> {
    Settings::of(args).map(drop)
}

/// Runs `atrapos bench domains-tpcc`.
pub(crate) fn domains_tpcc(args: &DomainsTpccBenchArgs) -> Result<(), CliError> {
    let settings = Settings::of(args)?;
    let file = config::json_file(&args.common)?;
    interrupt::install();
    let Settings { load, arrangement, machine, rounds } = &settings;
    let run =
        watched("measuring", 1, *rounds, |measurement| run_tpcc(machine, load, arrangement, measurement))?;
    let report = json(&settings, &run);
    output::print(&text(&settings, &run, &report["machine"]))?;
    if let Some(file) = file {
        file.write(&report)?;
    }
    complain_of_variation("domains-tpcc", &throughputs(&run));
    if arrangement.is_oversubscribed() {
        output::complain("warning: there are more threads than processing units, so they take turns");
    }
    run.audit.map(drop).map_err(|wrong| CliError::failed(format!("the audit failed: {wrong}")))
}

/// Transactions per second in each round.
fn throughputs(run: &TpccRun) -> Vec<f64> {
    run.rounds.iter().map(TpccRound::throughput_per_second).collect()
}

fn throughput(run: &TpccRun) -> f64 {
    atrapos_harness::median(&mut throughputs(run))
}

fn text(Settings { load, arrangement, .. }: &Settings, run: &TpccRun, machine: &Value) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(out, "domains-tpcc: New-Order and Payment on {}, {}", load.kind, arrangement.design());
    let _ = writeln!(
        out,
        "  {} warehouses, {}% of the transactions remote, no isolation of transactions, seed {}",
        count(load.warehouses),
        100.0 * load.remote,
        load.seed
    );
    let _ = writeln!(out, "{}\n", origin(machine));
    let _ = writeln!(
        out,
        "threads     {arrangement}; bursts of {}, {} transactions of a client together",
        load.burst, load.group
    );
    let _ = writeln!(out, "load        {:.2} s", run.loading.as_secs_f64());
    let _ = write!(out, "throughput  {} transactions/s", rate(throughput(run)));
    let each: Vec<String> = run.rounds.iter().map(|round| rate(round.throughput_per_second())).collect();
    let _ =
        writeln!(out, " (rounds: {}{})", each.join(", "), if run.interrupted { "; interrupted" } else { "" });
    let sum = |of: fn(&TpccRound) -> u64| count(run.rounds.iter().map(of).sum());
    let _ = writeln!(
        out,
        "of these    {} orders, {} orders rolled back, {} payments",
        sum(|round| round.new_orders),
        sum(|round| round.rolled_back),
        sum(|round| round.payments)
    );
    let _ = match &run.audit {
        Ok(rows) => writeln!(out, "audit       passed: {} rows", count(*rows)),
        Err(wrong) => writeln!(out, "audit       FAILED: {wrong}"),
    };
    out
}

fn json(Settings { load, arrangement, machine, rounds }: &Settings, run: &TpccRun) -> Value {
    let all = throughputs(run);
    let round = |round: &TpccRound| {
        json!({
            "seconds": round.elapsed.as_secs_f64(),
            "new_orders": round.new_orders,
            "rolled_back": round.rolled_back,
            "payments": round.payments,
            "throughput_tps": round.throughput_per_second(),
        })
    };
    json!({
        "commit": COMMIT,
        "machine": machine::summary(machine),
        "config": {
            "benchmark": "domains-tpcc",
            "structure": load.kind.name(),
            "design": arrangement.design().name(),
            "warehouses": load.warehouses,
            "items": load.items,
            "customers": load.customers,
            "remote": load.remote,
            "burst": load.burst,
            "group": load.group,
            "seconds": load.length.as_secs_f64(),
            "rounds": rounds,
            "seed": load.seed,
        },
        "arrangement": arrangement_json(arrangement),
        "throughput_tps": throughput(run),
        "variation": atrapos_composition::variation(&all),
        "runs": all,
        "rounds": run.rounds.iter().map(round).collect::<Vec<_>>(),
        "load_seconds": run.loading.as_secs_f64(),
        "interrupted": run.interrupted,
        "audit": match &run.audit {
            Ok(rows) => json!({ "passed": true, "rows": rows }),
            Err(wrong) => json!({ "passed": false, "error": wrong }),
        },
    })
}
