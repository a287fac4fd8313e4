//! Results as JSON, for programs.
//!
//! Owns: the keys. Never: rounds, or leaves a key out: an unknown value is `null`.

use atrapos::{AbortReason, Scope};
use atrapos_harness::driver::{ClassResult, Routing, RunResult, WorkerResult};
use atrapos_harness::raw::{RawReport, RawResult};
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use crate::args::EngineArg;
use crate::bench::BenchReport;
use crate::checkpoints::Checkpoints;
use crate::decisions;

/// The commit the program was built from, or `unknown`.
pub const COMMIT: &str = env!("ATRAPOS_COMMIT");

/// Returns the routing's name, as on the command line.
pub(crate) fn routing_name(routing: Routing) -> &'static str {
    match routing {
        Routing::Any => "any",
        Routing::Owner => "owner",
    }
}

/// Returns the name of those who share a part of the system state, as on the command line.
pub(crate) fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::Central => "central",
        Scope::Island => "island",
        Scope::Worker => "worker",
    }
}

/// Returns the name of an engine.
pub fn engine_name(engine: EngineArg) -> &'static str {
    match engine {
        EngineArg::Atrapos => "atrapos",
        EngineArg::Plp => "plp",
        EngineArg::SharedOcc => "shared-occ",
        EngineArg::Shared2pl => "shared-2pl",
        EngineArg::Domains => "domains",
    }
}

/// Returns the result of a benchmark. Details (`classes`, `actions`, `workers`) are those of the run in the middle.
///
/// `throughput_tps`, and `tps` of a class, count all completed transactions: committed ones and expected failures.
/// `committed` counts those that committed, and `aborted` those that were aborted unexpectedly.
pub(crate) fn bench(report: &BenchReport) -> Value {
    let middle = report.middle();
    let run = &middle.result;
    let classes: Map<String, Value> =
        run.classes.iter().map(|result| (result.name.to_owned(), class(run, result))).collect();
    let statistics = &run.statistics;
    json!({
        "commit": COMMIT,
        "machine": report.machine,
        "config": report.config,
        "seconds": run.elapsed.as_secs_f64(),
        "throughput_tps": report.throughput_tps(),
        "committed_tps": run.committed_tps(),
        "tpmc_like": report.completed_per_minute(),
        "mix": mix(run),
        "classes": classes,
        "actions": {
            "local": statistics.local_actions,
            "remote": statistics.remote_actions,
            "interleaved": statistics.interleaved,
        },
        "locks": { "entered": statistics.locks_entered, "waits": statistics.lock_waits },
        "forwarded": statistics.forwarded,
        "retried": statistics.retried,
        "held_back": statistics.held_back,
        "lending": {
            "lent": statistics.lent, "recalled": statistics.recalled, "in_place": statistics.in_place,
        },
        "central_accesses": statistics.central_accesses,
        "workers": run.workers.iter().map(worker).collect::<Vec<_>>(),
        "runs": report.throughputs(),
        "interrupted": report.runs.iter().any(|run| run.result.interrupted),
        "wal": wal(run, report.device_sync_us),
        "checkpoints": middle.checkpoints.as_ref().map(Checkpoints::to_json),
        "decisions": report.decisions.iter().map(|event| decisions::json(event, decisions::opened_s(event))).collect::<Vec<_>>(),
        "load": {
            "rows": report.load.rows,
            "seconds": report.load.elapsed.as_secs_f64(),
            "rows_per_second": report.load.rows_per_second(),
        },
        "memory": {
            "encoded_bytes": report.load.encoded_bytes,
            "tree_bytes": report.load.tree_bytes,
            "resident_bytes": report.load.resident_bytes,
            "reserved_bytes": report.growth.reserved_bytes,
            "growth_prepared_bytes": report.growth.prepared_bytes,
            "growth_unprepared_bytes": report.growth.unprepared_bytes,
        },
        "audit": match &report.audit {
            Ok(audit) => json!({
                "passed": true,
                "rows": audit.rows,
                "entries": audit.entries,
                "references": audit.references,
            }),
            Err(wrong) => json!({ "passed": false, "error": wrong }),
        },
    })
}

/// Returns the share of each class in all completed transactions: the mix that was reached.
fn mix(run: &RunResult) -> Map<String, Value> {
    let all = run.classes.iter().map(|class| class.tally.completed()).sum();
    let share = |class: &ClassResult| (class.name.to_owned(), json!(per(class.tally.completed(), all)));
    run.classes.iter().map(share).collect()
}

/// Returns a share of a whole; `None` if the whole is zero.
fn per(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Returns the work of the WAL; `null` for a database in memory.
fn wal(run: &RunResult, device_sync_us: Option<f64>) -> Value {
    let Some(wal) = run.wal else { return Value::Null };
    let completed = run.classes.iter().map(|class| class.tally.completed()).sum();
    json!({
        "bytes": wal.bytes,
        "syncs": wal.syncs,
        "updates": run.updates,
        "bytes_per_update": per(wal.bytes, run.updates),
        "transactions_per_sync": per(completed, wal.syncs),
        "updates_per_sync": per(run.updates, wal.syncs),
        "device_sync_us": device_sync_us,
    })
}

fn class(run: &RunResult, result: &ClassResult) -> Value {
    let tally = &result.tally;
    let aborted: Map<String, Value> = AbortReason::ALL
        .iter()
        .zip(tally.aborted)
        .filter(|(_, count)| *count > 0)
        .map(|(reason, count)| (reason.name().to_owned(), json!(count)))
        .collect();
    json!({
        "tps": run.per_second(tally.completed()),
        "committed": tally.committed,
        "expected_failures": tally.expected_failures,
        "aborted": aborted,
        "latency_us": latency_us(&result.latency_ns),
    })
}

/// Returns percentiles in microseconds; `null` if nothing was measured.
fn latency_us(latency_ns: &Histogram<u64>) -> Value {
    let at = |quantile: f64| {
        let us = latency_ns.value_at_quantile(quantile) as f64 / 1000.0;
        (!latency_ns.is_empty()).then_some(us)
    };
    json!({ "p50": at(0.5), "p95": at(0.95), "p99": at(0.99), "p999": at(0.999), "max": at(1.0) })
}

fn worker(result: &WorkerResult) -> Value {
    json!({
        "core": result.core,
        "busy_ratio": result.busy_ratio,
        "committed": result.transactions.committed,
        "local_actions": result.transactions.local_actions,
        "remote_actions": result.transactions.remote_actions,
    })
}

/// Returns the result of `bench raw`.
pub(crate) fn raw(report: &RawReport, machine: &Value, config: &Value) -> Value {
    json!({
        "commit": COMMIT,
        "machine": machine,
        "config": config,
        "seconds": report.elapsed.as_secs_f64(),
        "raw": raw_values(&report.median),
        "rounds": report.rounds.iter().map(raw_values).collect::<Vec<_>>(),
    })
}

fn raw_values(result: &RawResult) -> Value {
    let values = RawResult::NAMES.iter().zip(result.values());
    Value::Object(values.map(|(name, value)| ((*name).to_owned(), json!(value))).collect())
}
