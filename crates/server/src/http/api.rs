//! The JSON of the dashboard (`docs/dashboard.md` describes it): `/api/v1/status`, `/api/v1/history` and `/api/v1/decisions`.
//!
//! Owns: the form of the answers. Never: a number of its own: metrics are those of `/metrics`, and rates those of two looks at the workers.
//!
//! Invariant: within version 1, members are added and none is removed or means something else.

use std::sync::Arc;

use atrapos::AdaptationEvent;
use atrapos::activity::Activity;
use atrapos_topology::{CpuId, Island, IslandId, Level, Machine};
use serde::Serialize;
use serde_json::json;

use super::monitor::Look;
use super::{Answer, JSON};
use crate::metrics;
use crate::server::Shared;
use crate::shutdown::Phase;

/// The decisions that are told at a time, the latest ones.
const DECISIONS: usize = 200;

/// An island of the machine, with those inside of it.
#[derive(Debug, Serialize)]
struct IslandNode {
    level: Level,
    id: u32,
    /// Physical cores.
    cores: usize,
    /// The workers on it that are on no island inside of it.
    workers: Vec<u16>,
    islands: Vec<IslandNode>,
}

/// Rates per second between two looks.
#[derive(Debug, Serialize)]
struct Rates {
    /// The time between the looks.
    seconds: f64,
    /// The share of time in which each worker found work.
    busy: Vec<f64>,
    /// Transactions committed with their home on each worker.
    committed: Vec<f64>,
    /// Messages, by sender and receiver.
    messages: Vec<Vec<f64>>,
    /// Shares of a worker's time that actions took, by family, partition and sub-partition.
    heat: Vec<Vec<Vec<f64>>>,
}

/// Answers with the state of the server, its metrics, and what the workers do.
pub(super) async fn status(shared: &Arc<Shared>) -> Answer {
    let look = match shared.monitor.look(shared).await {
        Ok(look) => look,
        Err(abort) => return Answer::refusal("503 Service Unavailable", &abort.to_string()),
    };
    let database = shared.database.database();
    let phase = match *shared.phase.borrow() {
        Phase::Running => "running",
        Phase::Draining => "draining",
        Phase::Ending => "ending",
    };
    answer(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "database": shared.database_name,
        "phase": phase,
        "uptime_seconds": shared.monitor.began.elapsed().as_secs_f64(),
        "metrics": metrics::read(shared),
        "machine": {
            "name": database.machine().name(),
            "island": island(database.machine(), IslandId(0), &look.activity),
        },
        "activity": *look.activity,
        "rates": rates(&look),
    }))
}

/// Answers with the samples after the one that the query names.
pub(super) fn history(shared: &Shared, query: &str) -> Answer {
    match after(query) {
        Ok(number) => answer(&json!({ "samples": shared.monitor.samples_after(number) })),
        Err(refusal) => refusal,
    }
}

/// Answers with the decisions after the one that the query names.
pub(super) fn decisions(shared: &Shared, query: &str) -> Answer {
    let database = shared.database.database();
    let mut decisions = match after(query) {
        Ok(number) => database.adaptation_history_after(number),
        Err(refusal) => return refusal,
    };
    decisions.drain(..decisions.len().saturating_sub(DECISIONS));
    let decisions: Vec<_> = decisions.iter().map(|(number, event)| decision(*number, event)).collect();
    answer(&json!({ "decisions": decisions }))
}

fn decision(number: u64, event: &AdaptationEvent) -> serde_json::Value {
    let milliseconds = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    json!({
        "number": number,
        "sentence": event.decision.to_string(),
        "is_change": event.decision.is_repartition(),
        "decision": event.decision,
        "report": event.report.map(|report| json!({
            "splits": report.splits,
            "merges": report.merges,
            "moves": report.moves,
            "owner_ms": milliseconds(report.owner_time),
            "longest_ms": milliseconds(report.longest),
        })),
        "failure": event.failure,
    })
}

fn answer(value: &serde_json::Value) -> Answer {
    Answer::ok(JSON, value.to_string())
}

/// Returns the number in a query `after=N`, 0 if there is none.
fn after(query: &str) -> Result<u64, Answer> {
    let refusal = |part: &str| {
        let why = format!(
            "the query '{part}' is not known; it may be after=NUMBER, for what follows the one with that number"
        );
        Answer::refusal("400 Bad Request", &why)
    };
    let mut number = 0;
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let value = part.strip_prefix("after=").and_then(|value| value.parse().ok());
        number = value.ok_or_else(|| refusal(part))?;
    }
    Ok(number)
}

fn island(machine: &Machine, id: IslandId, activity: &Activity) -> Option<IslandNode> {
    let island = machine.island(id)?;
    let is_on = |cpu: Option<usize>| {
        let cpu = cpu.and_then(|cpu| u32::try_from(cpu).ok()).map(CpuId);
        match cpu.and_then(|cpu| machine.island_of(cpu, Level::L3)) {
            Some(on) => on == id,
            // A worker on no known processing unit is somewhere on the machine.
            None => island.parent.is_none(),
        }
    };
    let workers = activity.workers.iter().filter(|worker| is_on(worker.cpu)).map(|worker| worker.worker);
    Some(IslandNode {
        level: island.level,
        id: id.0,
        cores: cores_of(machine, island),
        workers: workers.collect(),
        islands: island.children.iter().filter_map(|child| self::island(machine, *child, activity)).collect(),
    })
}

fn cores_of(machine: &Machine, island: &Island) -> usize {
    machine.cores().iter().filter(|core| core.cpus.iter().any(|cpu| island.cpus.contains(*cpu))).count()
}

fn rates(look: &Look) -> Rates {
    let (now, before) = (&look.activity, &look.earlier);
    let seconds = now.at_ns.saturating_sub(before.at_ns).max(1_000_000) as f64 / 1e9;
    let pairs = || now.workers.iter().zip(&before.workers);
    let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
    Rates {
        seconds,
        busy: pairs()
            .map(|(now, before)| {
                let busy = now.busy_ns.saturating_sub(before.busy_ns) as f64;
                let idle = now.idle_ns.saturating_sub(before.idle_ns) as f64;
                if busy + idle > 0.0 { busy / (busy + idle) } else { 0.0 }
            })
            .collect(),
        committed: pairs().map(|(now, before)| rate(now.committed, before.committed)).collect(),
        messages: pairs()
            .map(|(now, before)| {
                now.sent.iter().zip(&before.sent).map(|(now, before)| rate(*now, *before)).collect()
            })
            .collect(),
        heat: now.heat_since(before),
    }
}
