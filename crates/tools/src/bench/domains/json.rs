//! The result of `bench domains` as JSON.
//!
//! Owns: the keys. Never: rounds, or leaves a key out: an unknown value is `null`.

use atrapos_cli::json::COMMIT;
use atrapos_domain_loads::{Access, Arrangement, Audit, Class, Length, Load, Run, Wrong};
use atrapos_structures::Contention;
use atrapos_topology::CpuId;
use serde_json::{Map, Value, json};

use super::{Comparison, Measured, Report, Settings};
use crate::args::DomainsBenchArgs;

/// Returns the settings, as far as they are common to all sides.
pub(super) fn config(args: &DomainsBenchArgs, settings: &Settings) -> Value {
    let Load { kind, mix, records, theta, length, grouped, seed, .. } = &settings.load;
    let (seconds, operations) = match length {
        Length::Time(time) => (Some(time.as_secs_f64()), None),
        Length::Operations(operations) => (None, Some(*operations)),
    };
    json!({
        "benchmark": "domains",
        "structure": kind.name(),
        "synchronization": kind.support().synchronization,
        "workload": mix.name(),
        "records": records,
        "theta": theta,
        "seconds": seconds,
        "operations": operations,
        "rounds": settings.rounds,
        "grouped": grouped,
        "seed": seed,
        "clients": args.delegation.clients,
        "workers": args.delegation.workers,
        "domain_size": args.domain_size,
        "pin": settings.threads.pin,
        "topology": args.common.topology,
    })
}

/// Returns the whole result. `throughput_tps` and what else has no side are those of the side `main`.
pub(super) fn report(report: &Report) -> Value {
    let (main, best) = (report.main(), report.best().run.throughput_per_second());
    let compared = match report.comparison {
        Comparison::Design(_) => "delegation",
        Comparison::Designs => "designs",
        Comparison::Bursts(_) => "bursts",
        Comparison::Bound(_) => "bound",
    };
    let left_out: Map<String, Value> =
        report.left_out.iter().map(|(design, why)| (design.name().to_owned(), json!(why))).collect();
    json!({
        "commit": COMMIT,
        "machine": report.machine,
        "config": report.config,
        "compared": compared,
        "main": main.name,
        "design": main.run.arrangement.design().name(),
        "seconds": main.run.middle().elapsed.as_secs_f64(),
        "throughput_tps": main.run.throughput_per_second(),
        "ns_per_operation": main.run.nanoseconds_per_operation(),
        "variation": main.run.variation(),
        "runs": main.run.throughputs_per_second(),
        "interrupted": main.run.interrupted,
        "cost": cost(report),
        "bound": report.bound().map(|bound| json!({
            "workers_tps": bound.workers,
            "clients_tps": bound.clients,
            "direct_tps": bound.direct,
            "most_to_direct": bound.most() / bound.direct,
            "design_to_direct": bound.design / bound.direct,
        })),
        "sides": report.sides.iter().map(|measured| side(measured, best)).collect::<Vec<_>>(),
        "tried": report.choice.as_ref().map(|choice| {
            let tried = choice.tried.iter().map(|(arrangement, tps)| json!({
                "arrangement": self::arrangement(arrangement),
                "throughput_tps": tps,
            }));
            tried.collect::<Vec<_>>()
        }),
        "left_out": left_out,
        "audit": audit(&main.run.audit),
    })
}

/// Returns the cost of a delegated operation beside direct use by the clients; `null` where they are not compared.
fn cost(report: &Report) -> Value {
    let Some(direct) = report.direct().map(|direct| direct.run.nanoseconds_per_operation()) else {
        return Value::Null;
    };
    let delegated = report.sides.iter().filter(|side| side.run.arrangement.access() == Access::Delegated);
    let nanoseconds = |side: &&Measured| side.run.nanoseconds_per_operation();
    let least = delegated.min_by(|a, b| nanoseconds(a).total_cmp(&nanoseconds(b)));
    let Some(side) = least else { return Value::Null };
    let (least, delegation) = (nanoseconds(&side), clocked(&side.run));
    json!({ "delegated_ns": least, "direct_ns": direct, "ratio": least / direct, "delegation": delegation })
}

/// Returns what delegation takes of a client for an operation, of the round in which it was noted; `null` if there was none. Cache misses are not known
/// without counters of the hardware.
fn clocked(run: &Run) -> Value {
    let Some(round) = &run.clocked else { return Value::Null };
    let each = round.delegation_per_operation();
    json!({
        "requests_per_operation": each.requests,
        "waits_per_operation": each.waits,
        "waiting_ns": each.waited_ns,
        "ns_per_operation": run.arrangement.drivers() as f64 * 1e9 / round.throughput_per_second().max(1e-9),
        "cache_misses": null,
    })
}

fn side(Measured { name, run }: &Measured, best: f64) -> Value {
    let middle = run.middle();
    json!({
        "name": name,
        "arrangement": arrangement(&run.arrangement),
        "burst": (run.arrangement.access() == Access::Delegated).then_some(run.load.burst),
        "throughput_tps": run.throughput_per_second(),
        "factor_to_best": run.throughput_per_second() / best,
        "variation": run.variation(),
        "reliable": run.is_reliable(),
        "runs": run.throughputs_per_second(),
        "ns_per_operation": run.nanoseconds_per_operation(),
        "seconds": middle.elapsed.as_secs_f64(),
        "classes": classes(middle.classes),
        "tasks": middle.tasks,
        "busy_steps": middle.busy_steps,
        "contention": middle.contention.map(contention),
        "delegation": clocked(run),
        "load": load(run),
        "interrupted": run.interrupted,
        "audit": audit(&run.audit),
    })
}

/// Returns the operations of each class, which are in the order of [`Class::ALL`].
pub(crate) fn classes(operations: [u64; 3]) -> Map<String, Value> {
    let classes = Class::ALL.iter().zip(operations);
    classes.map(|(class, count)| (class.name().to_owned(), json!(count))).collect()
}

fn contention(contention: Contention) -> Value {
    json!({
        "operations": contention.operations,
        "failed_validations": contention.failed_validations,
        "busy": contention.busy,
        "fallbacks": contention.fallbacks,
        "abort_ratio": contention.abort_ratio(),
    })
}

fn load(run: &Run) -> Value {
    let seconds = run.loading.as_secs_f64();
    json!({
        "rows": run.load.records,
        "seconds": seconds,
        "rows_per_second": run.load.records as f64 / seconds.max(1e-9),
    })
}

/// Returns the threads of an arrangement and their places.
pub(crate) fn arrangement(arrangement: &Arrangement) -> Value {
    let pinned = arrangement.is_pinned();
    let cpus = |cpus: &[CpuId]| pinned.then(|| cpus.iter().map(|cpu| cpu.0).collect::<Vec<_>>());
    json!({
        "design": arrangement.design().name(),
        "words": arrangement.to_string(),
        "access": match arrangement.access() {
            Access::Direct => "direct",
            Access::Delegated => "delegated",
        },
        "clients": arrangement.clients().len(),
        "client_cpus": cpus(arrangement.clients()),
        "domains": arrangement.domains().iter().map(Vec::len).collect::<Vec<_>>(),
        "domain_cpus": arrangement.domains().iter().map(|domain| cpus(domain)).collect::<Vec<_>>(),
        "pinned": pinned,
        "oversubscribed": arrangement.is_oversubscribed(),
    })
}

/// Returns the result of an audit.
pub(crate) fn audit(audit: &Result<Audit, Wrong>) -> Value {
    match audit {
        Ok(audit) => json!({ "passed": true, "rows": audit.records, "scanned": audit.scanned }),
        Err(wrong) => json!({ "passed": false, "error": wrong.to_string() }),
    }
}
