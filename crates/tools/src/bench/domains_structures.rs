//! `atrapos bench domains-structures`: the same records in few or many structures, by design: virtual domains have them in turn, or a part of each,
//! or all threads use them directly.
//!
//! Owns: the configuration of such structures, and the report. Never: drives a load; `atrapos-domain-loads` does.

use std::fmt::Write;

use atrapos_cli::error::CliError;
use atrapos_cli::json::COMMIT;
use atrapos_cli::progress::RunBar;
use atrapos_cli::table::{count, origin, rate};
use atrapos_cli::{config, interrupt, machine, output};
use atrapos_domain_loads::{
    Access, Arrangement, ConfiguredRun, ConfiguredSettings, Design, Length, Load, LoadError, Mix, Threads,
    run_configuration, run_directly,
};
use atrapos_domains::{Configuration, DomainConfiguration, Placement, StructureLoad};
use atrapos_structures::Kind;
use atrapos_topology::Machine;
use serde_json::{Value, json};

use super::domains::{complain_of_variation, refused};
use crate::args::DomainsStructuresBenchArgs;
use crate::experiment::repeated;

/// The settings, checked.
struct Settings {
    kind: Kind,
    mix: Mix,
    structures: usize,
    design: Design,
    access: Access,
    configuration: Configuration,
    run: ConfiguredSettings,
    machine: Machine,
    rounds: usize,
    oversubscribed: bool,
}

impl Settings {
    fn of(args: &DomainsStructuresBenchArgs) -> Result<Settings, CliError> {
        let kind: Kind = args.structure.parse().map_err(CliError::bad_input)?;
        let mix: Mix = args.workload.parse().map_err(CliError::bad_input)?;
        let machine = machine::read(&args.common.topology)?;
        let records = args.records.checked_div(args.structures as u64).unwrap_or(0);
        if records == 0 {
            return Err(CliError::bad_input(format!(
                "{} records do not fill {} structures; use at least one structure, and a record for each",
                args.records, args.structures
            )));
        }
        let cpus = machine.usable_cpus().iter().count();
        let clients = args.delegation.clients.unwrap_or((cpus / 2).max(1));
        let workers = args.delegation.workers.unwrap_or(cpus.saturating_sub(clients).max(1));
        let design: Design = args.design.parse().map_err(CliError::bad_input)?;
        if args.domains.is_some() && design != Design::Configured {
            return Err(refused(LoadError::SizeIsGiven(design)));
        }
        let domains = args.domains.unwrap_or(workers);
        if domains == 0 || workers < domains || clients == 0 {
            return Err(CliError::bad_input(format!(
                "{workers} workers cannot make {domains} domains for {clients} clients; use at least one of each, and a worker for each domain"
            )));
        }
        let oversubscribed = workers + clients > cpus;
        let pin = !args.common.no_pin && !oversubscribed && machine::may_pin(&machine);
        let run = ConfiguredSettings {
            records,
            theta: args.theta,
            length: Length::Time(config::duration("--seconds", args.common.seconds, false)?),
            burst: args.delegation.burst,
            clients,
            pin,
            seed: args.common.seed,
            parts: matches!(design, Design::SnNuma | Design::SnThread),
            ..ConfiguredSettings::default()
        };
        let load = Load { records, theta: run.theta, burst: run.burst, ..Load::new(kind, mix) };
        load.check().map_err(refused)?;
        let available = machine::available_memory_bytes().unwrap_or(u64::MAX);
        load.check_memory(args.structures, available).map_err(refused)?;
        let structures = args.structures;
        let threads = Threads { clients: Some(clients), workers: Some(workers), domain_size: None, pin };
        let (access, configuration) = match design {
            Design::Configured => {
                (Access::Delegated, with_structures((kind, mix), structures, in_turn(domains, workers, pin)))
            }
            _ => {
                let arrangement = Arrangement::new(&machine, design, &threads).map_err(refused)?;
                arrangement.check(kind).map_err(refused)?;
                let domains = arrangement.configuration().map_err(refused)?;
                (arrangement.access(), with_structures((kind, mix), structures, domains))
            }
        };
        let rounds = repeated("--rounds", args.rounds)? as usize;
        Ok(Settings {
            kind,
            mix,
            structures,
            design,
            access,
            configuration,
            run,
            machine,
            rounds,
            oversubscribed,
        })
    }
}

/// The configuration of so many domains, which have the workers in turn.
fn in_turn(domains: usize, workers: usize, pin: bool) -> Configuration {
    let domain = |at: usize| DomainConfiguration {
        placement: if pin { Placement::Pinned } else { Placement::Anywhere },
        ..DomainConfiguration::new(
            &format!("domain-{at}"),
            workers / domains + usize::from(at < workers % domains),
        )
    };
    let domains = (0..domains).map(domain).collect();
    Configuration { oversubscribe: !pin, domains, ..Configuration::default() }
}

/// The same with equally loaded structures, which the domains have in turn, unless each has a part of every one.
fn with_structures((kind, mix): (Kind, Mix), structures: usize, domains: Configuration) -> Configuration {
    let name = |at: usize| format!("structure-{at}");
    let domain = |at: usize| domains.domains[at % domains.domains.len()].name.clone();
    let load = StructureLoad { kind: kind.name().to_owned(), mix: mix.name().to_owned(), load: 1.0 };
    Configuration {
        structures: (0..structures).map(|at| (name(at), domain(at))).collect(),
        loads: (0..structures).map(|at| (name(at), load.clone())).collect(),
        ..domains.clone()
    }
}

/// Refuses a benchmark that would be refused before it begins.
pub(crate) fn check(args: &DomainsStructuresBenchArgs) -> Result<(), CliError> {
    Settings::of(args).map(drop)
}

/// Runs `atrapos bench domains-structures`.
pub(crate) fn domains_structures(args: &DomainsStructuresBenchArgs) -> Result<(), CliError> {
    let settings = Settings::of(args)?;
    let file = config::json_file(&args.common)?;
    interrupt::install();
    let bar = RunBar::of_steps(settings.rounds as u64);
    let mut runs = Vec::new();
    for round in 0..settings.rounds {
        bar.step(&format!("round {}/{}", round + 1, settings.rounds));
        let Settings { machine, configuration, run, .. } = &settings;
        let run = match settings.access {
            Access::Direct => run_directly(machine, configuration, run, interrupt::flag(), &mut |_| ()),
            Access::Delegated => {
                run_configuration(machine, configuration, run, interrupt::flag(), &mut |_| ())
            }
        };
        let run = run.map_err(refused)?;
        let interrupted = run.interrupted;
        runs.push(run);
        if interrupted {
            break;
        }
    }
    bar.finish();
    let report = json(args, &settings, &runs);
    output::print(&text(&settings, &runs, &report["machine"]))?;
    if let Some(file) = file {
        file.write(&report)?;
    }
    complain_of_variation("domains-structures", &rates(&runs));
    if settings.oversubscribed {
        output::complain("warning: there are more threads than processing units, so they take turns");
    }
    let all = runs.iter().flat_map(|run| &run.structures);
    let wrong = all.into_iter().find_map(|one| one.audit.as_ref().err().map(|wrong| (one, wrong)));
    wrong.map_or(Ok(()), |(one, wrong)| {
        Err(CliError::failed(format!("the audit of structure '{}' failed: {wrong}", one.name)))
    })
}

/// Operations per second in each round.
fn rates(runs: &[ConfiguredRun]) -> Vec<f64> {
    runs.iter().map(|run| run.per_second(run.operations())).collect()
}

fn text(settings: &Settings, runs: &[ConfiguredRun], machine: &Value) -> String {
    let Settings { kind, mix, structures, configuration, run, .. } = settings;
    let mut out = String::new();
    let workers: usize = configuration.domains.iter().map(DomainConfiguration::worker_count).sum();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "domains-structures: {mix} on {} of kind {kind}, {} records in each",
        if *structures == 1 {
            "1 structure".to_owned()
        } else {
            format!("{} structures", count(*structures as u64))
        },
        count(run.records),
    );
    let threads = match settings.access {
        Access::Direct => format!("direct use by {workers} threads"),
        Access::Delegated => {
            format!("domains {}, workers {workers}, clients {}", configuration.domains.len(), run.clients)
        }
    };
    let _ = writeln!(
        out,
        "  {}: {threads}, bursts of {}, Zipf {}, seed {}",
        settings.design, run.burst, run.theta, run.seed
    );
    let _ = writeln!(out, "{}\n", origin(machine));
    let each: Vec<String> = rates(runs).into_iter().map(rate).collect();
    let _ = writeln!(
        out,
        "throughput  {} operations/s (rounds: {}{})",
        rate(atrapos_harness::median(&mut rates(runs))),
        each.join(", "),
        if runs.iter().any(|run| run.interrupted) { "; interrupted" } else { "" }
    );
    let audits = runs.iter().flat_map(|run| &run.structures).filter(|one| one.audit.is_err()).count();
    let _ = match audits {
        0 => writeln!(out, "audit       passed"),
        wrong => writeln!(out, "audit       FAILED: {wrong} structures"),
    };
    out
}

fn json(args: &DomainsStructuresBenchArgs, settings: &Settings, runs: &[ConfiguredRun]) -> Value {
    let Settings { kind, mix, structures, configuration, run, machine, .. } = settings;
    let passed = runs.iter().flat_map(|run| &run.structures).all(|one| one.audit.is_ok());
    json!({
        "commit": COMMIT,
        "machine": machine::summary(machine),
        "config": {
            "benchmark": "domains-structures",
            "structure": kind.name(),
            "workload": mix.name(),
            "structures": structures,
            "records": args.records,
            "design": settings.design.name(),
            "access": match settings.access {
                Access::Direct => "direct",
                Access::Delegated => "delegated",
            },
            "domains": configuration.domains.iter().map(DomainConfiguration::worker_count).collect::<Vec<_>>(),
            "clients": (settings.access == Access::Delegated).then_some(run.clients),
            "burst": run.burst,
            "theta": run.theta,
            "seconds": args.common.seconds,
            "rounds": settings.rounds,
            "pin": run.pin,
            "seed": run.seed,
        },
        "throughput_tps": atrapos_harness::median(&mut rates(runs)),
        "runs": rates(runs),
        "variation": atrapos_composition::variation(&rates(runs)),
        "interrupted": runs.iter().any(|run| run.interrupted),
        "audit": { "passed": passed },
    })
}
