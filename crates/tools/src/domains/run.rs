//! `atrapos domains run`: a configuration of domains, used and audited.
//!
//! Owns: the result as text and as JSON. Never: drives a load; `atrapos-domain-loads` does.

use std::fmt::Write;

use atrapos_cli::error::CliError;
use atrapos_cli::json::COMMIT;
use atrapos_cli::progress::RunBar;
use atrapos_cli::table::{columns, count, origin, rate};
use atrapos_cli::{config, interrupt, machine, output};
use atrapos_composition::Curves;
use atrapos_domain_loads::{
    Adaptation, AdaptationSettings, ConfiguredRun, ConfiguredSettings, DomainRun, Length, Load, Mix,
    StructureRun, clients_beside, run_configuration,
};
use atrapos_domains::{Configuration, Placement};
use atrapos_structures::Kind;
use atrapos_topology::Machine;
use serde_json::{Value, json};

use super::read;
use crate::args::RunConfigurationArgs;
use crate::bench::domains::{json as result, refused};

/// Tasks of single workers that are shown; of more, only the least and the most.
const WORKERS_SHOWN: usize = 8;

/// Runs `atrapos domains run`.
pub(super) fn run(args: &RunConfigurationArgs) -> Result<(), CliError> {
    let machine = machine::read(&args.common.topology)?;
    let pin = !args.common.no_pin && machine::may_pin(&machine);
    let configuration = configuration(args, pin)?;
    let settings = settings(args, &machine, &configuration, pin)?;
    let file = config::json_file(&args.common)?;
    interrupt::install();
    let structures = configuration.structures.len();
    let bar = RunBar::of_steps(structures as u64 + 1);
    let mut loading = |at| {
        bar.step(&format!("loading {}/{structures}", at + 1));
        if at + 1 == structures {
            bar.step("running");
        }
    };
    let run = run_configuration(&machine, &configuration, &settings, interrupt::flag(), &mut loading);
    bar.finish();
    let run = run.map_err(refused)?;
    let summary = machine::summary(&machine);
    output::print(&text(&settings, &summary, &run))?;
    if let Some(file) = file {
        file.write(&report(args, &settings, &summary, &run))?;
    }
    let wrong = run.structures.iter().find_map(|one| one.audit.as_ref().err().map(|wrong| (one, wrong)));
    wrong.map_or(Ok(()), |(one, wrong)| {
        Err(CliError::failed(format!("the audit of structure '{}' failed: {wrong}", one.name)))
    })
}

/// Returns the configuration. Without pinning it runs on any machine: no domain has processing units of its own.
fn configuration(args: &RunConfigurationArgs, pin: bool) -> Result<Configuration, CliError> {
    let cure = "write one with `atrapos domains compose --output`";
    let text = read("configuration", &args.configuration, cure)?;
    let mut configuration = Configuration::from_toml(&text).map_err(|error| {
        // The parser shows the line in a picture of several lines.
        let sentence = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        CliError::bad_input(format!("{}: {sentence}", args.configuration.display()))
    })?;
    if !pin {
        configuration.oversubscribe = true;
        for domain in &mut configuration.domains {
            domain.workers = domain.worker_count();
            domain.cpus.clear();
            domain.placement = Placement::Anywhere;
        }
    }
    Ok(configuration)
}

fn settings(
    args: &RunConfigurationArgs,
    machine: &Machine,
    configuration: &Configuration,
    pin: bool,
) -> Result<ConfiguredSettings, CliError> {
    let mix: Option<Mix> = args.mix.as_deref().map(str::parse).transpose().map_err(CliError::bad_input)?;
    let beside = clients_beside(machine, configuration).map_err(|error| {
        CliError::bad_input(format!("{error}; --no-pin runs a configuration of another machine here"))
    })?;
    let length = Length::Time(config::duration("--seconds", args.common.seconds, false)?);
    let structures = configuration.structures.len();
    let available = machine::available_memory_bytes().unwrap_or(u64::MAX);
    let one = Load { records: args.records, ..Load::new(Kind::BTree, Mix::YcsbC) };
    one.check_memory(structures, available).map_err(refused)?;
    Ok(ConfiguredSettings {
        records: args.records,
        theta: args.theta,
        length,
        burst: args.burst,
        clients: args.clients.unwrap_or(beside),
        mix,
        pin,
        parts: false,
        seed: args.common.seed,
        adapt: if args.adapt { Some(adaptation(args)?) } else { None },
    })
}

fn adaptation(args: &RunConfigurationArgs) -> Result<AdaptationSettings, CliError> {
    let cure = "write them with `atrapos domains calibrate --output`";
    let curves = args.curves.as_deref().map(|path| read("file of curves", path, cure)).transpose()?;
    let curves = curves.map(|text| Curves::from_json(&text)).transpose().map_err(CliError::bad_input)?;
    let interval = config::duration("--interval", args.interval, false)?;
    Ok(AdaptationSettings { curves, interval, watch: show, ..AdaptationSettings::default() })
}

/// Shows a decision as it is made, if it changes anything.
fn show(adaptation: &Adaptation) {
    if adaptation.decision.change.is_some() {
        // Whoever has closed the output is told so by the result.
        let _ = output::print(&decision(adaptation));
    }
}

/// A decision as a line.
fn decision(adaptation: &Adaptation) -> String {
    let Adaptation { at, tasks_per_second, decision, refused } = adaptation;
    let refused = refused.as_ref().map_or(String::new(), |why| format!("; it could not be made: {why}"));
    format!("{:6.2} s  {} tasks/s  {decision}{refused}\n", at.as_secs_f64(), rate(*tasks_per_second))
}

/// The work of the controller, in one line.
fn adaptations(run: &ConfiguredRun) -> String {
    let Some(last) = run.adaptations.last() else { return String::new() };
    let changes = run.adaptations.iter().filter(|one| one.decision.change.is_some()).count();
    let last = match &last.decision.change {
        Some(_) => last.decision.to_string(),
        None => last.decision.reason.clone(),
    };
    format!(
        "controller  {} in {}; at last: {last}\n\n",
        number(changes, "change"),
        number(run.adaptations.len(), "observation")
    )
}

fn text(settings: &ConfiguredSettings, summary: &Value, run: &ConfiguredRun) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "{}, {}, {}, bursts of {}{}\n  {} records of 8-byte keys and values in each, Zipf {}, seed {}\n{}\n",
        number(run.structures.len(), "structure"),
        number(run.domains.len(), "domain"),
        number(settings.clients, "client"),
        settings.burst,
        if settings.pin { "" } else { ", not pinned" },
        count(settings.records),
        settings.theta,
        settings.seed,
        origin(summary),
    );
    let _ = writeln!(
        out,
        "throughput  {} operations/s; {:.2} s measured{}\n",
        rate(run.per_second(run.operations())),
        run.elapsed.as_secs_f64(),
        if run.interrupted { ", interrupted" } else { "" },
    );
    out.push_str(&adaptations(run));
    out.push_str(&structures(run));
    out.push('\n');
    out.push_str(&domains(run));
    let _ = match run.structures.iter().filter(|one| one.audit.is_err()).count() {
        0 => {
            let records = run.structures.iter().filter_map(|one| one.audit.as_ref().ok());
            let records: u64 = records.map(|audit| audit.records).sum();
            writeln!(out, "\naudit       passed: {} records", count(records))
        }
        wrong => writeln!(out, "\naudit       FAILED: {wrong} structures"),
    };
    out
}

fn number(count: usize, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}

/// A share of all operations.
fn share(run: &ConfiguredRun, operations: u64) -> f64 {
    operations as f64 / run.operations().max(1) as f64
}

fn structures(run: &ConfiguredRun) -> String {
    let header = ["structure", "kind", "mix", "domain", "operations/s", "share", "expected", "audit"];
    let mut lines = vec![header.map(str::to_owned).to_vec()];
    lines.extend(run.structures.iter().map(|one| {
        vec![
            one.name.clone(),
            one.kind.name().to_owned(),
            one.mix.name().to_owned(),
            one.domain.clone(),
            rate(run.per_second(one.operations())),
            percent(share(run, one.operations())),
            percent(one.share),
            if one.audit.is_ok() { "passed" } else { "FAILED" }.to_owned(),
        ]
    }));
    columns(&lines)
}

/// The load that a domain was expected to have.
fn expected(run: &ConfiguredRun, domain: &DomainRun) -> f64 {
    run.structures.iter().filter(|one| one.domain == domain.name).map(|one| one.share).sum()
}

fn domains(run: &ConfiguredRun) -> String {
    let header = ["domain", "workers", "operations/s", "load", "expected", "tasks of workers"];
    let mut lines = vec![header.map(str::to_owned).to_vec()];
    lines.extend(run.domains.iter().map(|domain| {
        let each: Vec<String> = domain.tasks.iter().map(|tasks| count(*tasks)).collect();
        let tasks = match (domain.tasks.iter().min(), domain.tasks.iter().max()) {
            (Some(least), Some(most)) if each.len() > WORKERS_SHOWN => {
                format!("{} to {}", count(*least), count(*most))
            }
            _ => each.join(" "),
        };
        vec![
            domain.name.clone(),
            domain.workers.to_string(),
            rate(run.per_second(domain.operations)),
            percent(share(run, domain.operations)),
            percent(expected(run, domain)),
            tasks,
        ]
    }));
    columns(&lines)
}

fn report(
    args: &RunConfigurationArgs,
    settings: &ConfiguredSettings,
    summary: &Value,
    run: &ConfiguredRun,
) -> Value {
    let structure = |one: &StructureRun| {
        json!({
            "name": one.name,
            "kind": one.kind.name(),
            "mix": one.mix.name(),
            "domain": one.domain,
            "throughput_tps": run.per_second(one.operations()),
            "share": share(run, one.operations()),
            "share_expected": one.share,
            "classes": result::classes(one.classes),
            "audit": result::audit(&one.audit),
        })
    };
    let domain = |domain: &DomainRun| {
        json!({
            "name": domain.name,
            "workers": domain.workers,
            "throughput_tps": run.per_second(domain.operations),
            "load": share(run, domain.operations),
            "load_expected": expected(run, domain),
            "tasks": domain.tasks,
            "busy_steps": domain.busy_steps,
        })
    };
    json!({
        "commit": COMMIT,
        "machine": summary,
        "config": {
            "configuration": args.configuration.display().to_string(),
            "records": settings.records,
            "theta": settings.theta,
            "seconds": args.common.seconds,
            "burst": settings.burst,
            "clients": settings.clients,
            "mix": settings.mix.map(Mix::name),
            "pin": settings.pin,
            "seed": settings.seed,
            "adapt": args.adapt,
            "interval_s": args.adapt.then_some(args.interval),
            "topology": args.common.topology,
        },
        "seconds": run.elapsed.as_secs_f64(),
        "throughput_tps": run.per_second(run.operations()),
        "structures": run.structures.iter().map(structure).collect::<Vec<_>>(),
        "domains": run.domains.iter().map(domain).collect::<Vec<_>>(),
        "client_cpus": run.client_cpus.iter().map(|cpu| cpu.0).collect::<Vec<_>>(),
        "interrupted": run.interrupted,
        "adaptations": run.adaptations.iter().map(|one| json!({
            "time_s": one.at.as_secs_f64(),
            "throughput_tps": one.tasks_per_second,
            "sentence": one.decision.to_string(),
            "change": one.decision.change.as_ref().map(ToString::to_string),
            "gain_expected": one.decision.gain,
            "refused": one.refused,
        })).collect::<Vec<_>>(),
        "audit": { "passed": run.structures.iter().all(|one| one.audit.is_ok()) },
    })
}
