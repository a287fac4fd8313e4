//! Reports of a running database: what changed between two looks at it, the machine with its workers, and decisions in sentences.
//!
//! Owns: the form, of which the dashboard of the server shows parts. Never: asks a worker.
//!
//! Invariant: members are added, and none is removed or means something else.

use std::time::Duration;

use atrapos::activity::{Activity, ClassActivity};
use atrapos::{AdaptationEvent, Database};
use atrapos_topology::{CpuId, Island, IslandId, Level, Machine};
use serde::{Deserialize, Serialize};

/// The decisions that are told at a time.
const DECISIONS: usize = 200;

/// The shortest time between two looks of which rates are made, in nanoseconds.
const SHORTEST_NS: u64 = 1_000_000;

/// Everything that is told of a database at a moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The version of the engine.
    pub version: String,
    /// The process.
    pub pid: u32,
    /// Activity of the process, in its own words.
    pub program: String,
    /// The directory of the database; `None` for one in memory.
    pub directory: Option<String>,
    /// The machine that it was opened on.
    pub machine: MachineReport,
    /// What its workers do.
    pub activity: Activity,
    /// Rates between the latest two looks.
    pub rates: Rates,
    /// Latencies of what the program counts as requests, since they were asked for last; `None` if there were none, or it counts none.
    pub latency: Option<Latency>,
    /// Decisions about the scheme, after the one that was asked for.
    pub decisions: Vec<DecisionReport>,
}

/// A machine with the workers of a database.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MachineReport {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The whole machine as an island.
    pub island: Option<IslandReport>,
}

/// An island of the machine, with those inside of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IslandReport {
    /// What its cores share.
    pub level: Level,
    /// Its number.
    pub id: u32,
    /// Physical cores.
    pub cores: usize,
    /// The workers on it that are on no island inside of it.
    pub workers: Vec<u16>,
    /// The islands inside of it.
    pub islands: Vec<IslandReport>,
}

/// Rates per second between two looks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// The time between the looks.
    pub seconds: f64,
    /// The share of time in which each worker found work.
    pub busy: Vec<f64>,
    /// Transactions committed with their home on each worker.
    pub committed: Vec<f64>,
    /// Transactions aborted, on all workers.
    pub aborted: f64,
    /// Transactions of each class, the most frequent first.
    #[serde(default)]
    pub classes: Vec<ClassRate>,
    /// Messages, by sender and receiver.
    pub messages: Vec<Vec<f64>>,
    /// Shares of a worker's time that actions took, by family, partition and sub-partition.
    pub heat: Vec<Vec<Vec<f64>>>,
}

/// The rate of a class of transactions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassRate {
    /// Its name; empty for transactions of no class.
    pub name: String,
    /// Transactions per second, extrapolated from samples.
    pub per_second: f64,
}

/// Latencies, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The time within which half of the requests were answered.
    pub p50_us: f64,
    /// The time within which all but a hundredth of them were.
    pub p99_us: f64,
}

/// A decision about the scheme, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionReport {
    /// Its number among all decisions since the opening.
    pub number: u64,
    /// Seconds since the opening.
    pub at_seconds: f64,
    /// It and its reason in words.
    pub sentence: String,
    /// True if it changes the scheme.
    pub is_change: bool,
    /// Its figures.
    pub decision: serde_json::Value,
    /// What was carried out.
    pub report: Option<CarriedOut>,
    /// The failure, if there was one.
    pub failure: Option<String>,
}

/// A change of the scheme that was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CarriedOut {
    /// Partitions cut in two.
    pub splits: u64,
    /// Pairs of partitions joined.
    pub merges: u64,
    /// Partitions handed to other workers.
    pub moves: u64,
    /// The time in which owners did nothing else, together.
    pub owner_ms: f64,
    /// The longest such time.
    pub longest_ms: f64,
}

impl MachineReport {
    /// Returns the machine with the workers of this activity.
    #[must_use]
    pub fn of(machine: &Machine, activity: &Activity) -> MachineReport {
        let name = machine.name().map(str::to_owned);
        MachineReport { name, island: island(machine, IslandId(0), activity) }
    }
}

fn island(machine: &Machine, id: IslandId, activity: &Activity) -> Option<IslandReport> {
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
    Some(IslandReport {
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

impl Rates {
    /// Returns the rates between two looks.
    #[must_use]
    pub fn between(before: &Activity, now: &Activity) -> Rates {
        let seconds = now.at_ns.saturating_sub(before.at_ns).max(SHORTEST_NS) as f64 / 1e9;
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
            aborted: rate(now.statistics.aborted_total(), before.statistics.aborted_total()),
            classes: class_rates(before, now, seconds),
            messages: pairs()
                .map(|(now, before)| {
                    now.sent.iter().zip(&before.sent).map(|(now, before)| rate(*now, *before)).collect()
                })
                .collect(),
            heat: now.heat_since(before),
        }
    }
}

fn class_rates(before: &Activity, now: &Activity, seconds: f64) -> Vec<ClassRate> {
    let earlier = |name: &str| before.classes.iter().find(|class| class.name == name);
    let rate = |class: &ClassActivity| {
        let before = earlier(&class.name).map_or(0, |class| class.transactions);
        let transactions = class.transactions.saturating_sub(before);
        ClassRate { name: class.name.clone(), per_second: transactions as f64 / seconds }
    };
    let mut rates: Vec<_> = now.classes.iter().map(rate).filter(|rate| rate.per_second > 0.0).collect();
    rates.sort_by(|a, b| b.per_second.total_cmp(&a.per_second));
    rates
}

impl DecisionReport {
    /// Returns reports of the decisions after the one with this number, 200 at most, the latest ones.
    #[must_use]
    pub fn latest(database: &Database, after: u64) -> Vec<DecisionReport> {
        let decisions = database.adaptation_history_after(after);
        let skipped = decisions.len().saturating_sub(DECISIONS);
        decisions.iter().skip(skipped).map(|(number, event)| DecisionReport::of(*number, event)).collect()
    }

    fn of(number: u64, event: &AdaptationEvent) -> DecisionReport {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        DecisionReport {
            number,
            at_seconds: event.decision.at_ns as f64 / 1e9,
            sentence: event.decision.to_string(),
            is_change: event.decision.is_repartition(),
            // A decision is a record of numbers and names, of which JSON can be made.
            decision: serde_json::to_value(&event.decision).unwrap_or_default(),
            report: event.report.map(|report| CarriedOut {
                splits: report.splits,
                merges: report.merges,
                moves: report.moves,
                owner_ms: milliseconds(report.owner_time),
                longest_ms: milliseconds(report.longest),
            }),
            failure: event.failure.clone(),
        }
    }
}
