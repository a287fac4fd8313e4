//! `atrapos bench domains-service`: the longest time between two replies to a client while domains change.
//!
//! Owns: the report. Never: changes a domain; `atrapos-domain-loads` does.

use std::time::Duration;

use atrapos_cli::error::CliError;
use atrapos_cli::json::COMMIT;
use atrapos_cli::table::{columns, count, origin};
use atrapos_cli::{config, interrupt, machine, output};
use atrapos_domain_loads::{Disturbance, Gaps, ServiceRun, ServiceSettings, run_service};
use serde_json::{Map, Value, json};

use super::domains::refused;
use crate::args::DomainsServiceBenchArgs;
use crate::experiment::repeated;

/// The longest time without service that a change of the domains may cause, at two cores.
const BAR: Duration = Duration::from_millis(1);

/// Runs `atrapos bench domains-service`.
pub(crate) fn domains_service(args: &DomainsServiceBenchArgs) -> Result<(), CliError> {
    let machine = machine::read(&args.topology)?;
    let settings = ServiceSettings {
        rounds: repeated("--rounds", args.rounds)? as usize,
        pause: config::duration("--pause", args.pause / 1e3, true)?,
        pin: !args.no_pin && machine::may_pin(&machine),
    };
    let file = args.json.as_deref().map(output::JsonFile::prepare).transpose()?;
    interrupt::install();
    let run = run_service(&machine, &settings, interrupt::flag()).map_err(refused)?;
    let summary = machine::summary(&machine);
    output::print(&text(&run, &summary))?;
    if let Some(file) = file {
        file.write(&json(&run, &settings, summary))?;
    }
    if run.calls == run.seen {
        Ok(())
    } else {
        let ServiceRun { calls, seen, .. } = run;
        Err(CliError::failed(format!("{calls} calls were answered, but the structure has seen {seen}")))
    }
}

fn text(run: &ServiceRun, machine: &Value) -> String {
    let us = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1e6);
    let head = ["going on", "replies", "median us", "p99.9 us", "longest us", "above 1 ms", "no wait"];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for (disturbance, gaps) in Disturbance::ALL.iter().zip(&run.gaps) {
        lines.push(vec![
            disturbance.name().to_owned(),
            count(gaps.count() as u64),
            us(gaps.quantile(0.5)),
            us(gaps.quantile(0.999)),
            us(gaps.longest()),
            count(gaps.longer_than(BAR) as u64),
            count(gaps.longer_without_waits(BAR) as u64),
        ]);
    }
    format!(
        "domains-service: time between two replies to a client that calls all the time, while domains of one worker change; no wait: above 1 ms although no thread waited for a core\n{}\n\n{}\n{}{} changes, {} calls{}: none lost or doubled {}\n",
        origin(machine),
        columns(&lines),
        taken(run),
        count(run.changes as u64),
        count(run.calls),
        if run.interrupted { " (interrupted)" } else { "" },
        if run.calls == run.seen { "(passed)" } else { "(FAILED)" },
    )
}

/// Says what the gaps above the bar that are no waits took together, and the hypervisor meanwhile; nothing if there is none of them.
fn taken(run: &ServiceRun) -> String {
    let rest: Duration = run.gaps.iter().map(|gaps| gaps.without_waits(BAR)).sum();
    if rest.is_zero() {
        return String::new();
    }
    format!(
        "no wait: {:.1} ms; the hypervisor took {} ms\n",
        rest.as_secs_f64() * 1e3,
        run.stolen.as_millis()
    )
}

fn gaps(gaps: &Gaps) -> Value {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    json!({
        "replies": gaps.count(),
        "median_ns": ns(gaps.quantile(0.5)),
        "p999_ns": ns(gaps.quantile(0.999)),
        "longest_ns": ns(gaps.longest()),
        "above_1_ms": gaps.longer_than(BAR),
        "above_1_ms_without_waits": gaps.longer_without_waits(BAR),
        "without_waits_ns": ns(gaps.without_waits(BAR)),
    })
}

fn json(run: &ServiceRun, settings: &ServiceSettings, machine: Value) -> Value {
    let by_disturbance = Disturbance::ALL.iter().zip(&run.gaps);
    let by_disturbance: Map<String, Value> =
        by_disturbance.map(|(disturbance, all)| (disturbance.name().to_owned(), gaps(all))).collect();
    json!({
        "commit": COMMIT,
        "machine": machine,
        "config": {
            "benchmark": "domains-service",
            "rounds": settings.rounds,
            "pause_ms": settings.pause.as_secs_f64() * 1e3,
            "pin": settings.pin,
        },
        "changes": run.changes,
        "calls": run.calls,
        "gaps": by_disturbance,
        "hypervisor_took_ms": run.stolen.as_millis(),
        "interrupted": run.interrupted,
        "audit": { "passed": run.calls == run.seen },
    })
}
