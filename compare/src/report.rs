//! The table for people and the JSON for programs.
//!
//! Owns: what is shown. Never: measures.

use std::fmt::Write as _;
use std::process::Command;

use serde_json::{Value, json};

use crate::bench::{ATRAPOS, Plan, Row};
use crate::peer::{Durability, WorkName};
use crate::peers::version_of;
use crate::side::SideClients;

fn median(values: &[f64]) -> f64 {
    atrapos_harness::median(&mut values.to_vec())
}

fn clients(row: &Row) -> String {
    match row.clients {
        SideClients::Sessions(sessions) => format!("{sessions} sessions/worker"),
        SideClients::Threads(1) => "1 thread".to_owned(),
        SideClients::Threads(threads) => format!("{threads} threads"),
    }
}

/// Returns a rate in three digits or more.
fn rate(tps: f64) -> String {
    match tps {
        tps if tps >= 1e6 => format!("{:.2} M", tps / 1e6),
        tps if tps >= 1e5 => format!("{:.0} k", tps / 1e3),
        tps if tps >= 1e3 => format!("{:.1} k", tps / 1e3),
        tps => format!("{tps:.0}"),
    }
}

/// Returns how far rounds are from each other: from the lowest to the highest, in percent of the median.
fn spread(row: &Row) -> String {
    let (low, high) =
        row.tps.iter().fold((f64::MAX, 0.0_f64), |(low, high), tps| (low.min(*tps), high.max(*tps)));
    format!("{:.0}%", 100.0 * (high - low) / median(&row.tps).max(f64::MIN_POSITIVE))
}

/// Returns a ratio in three digits.
fn ratio(value: f64) -> String {
    if value >= 99.5 {
        format!("{value:.0}")
    } else if value >= 9.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// Returns the rows of a group that the table shows: of a store that was measured with several numbers of threads the better one,
/// but all where the number of threads is the question.
fn shown(rows: &[Row], group: (WorkName, Durability)) -> Vec<&Row> {
    let mut shown: Vec<&Row> = Vec::new();
    for row in rows.iter().filter(|row| row.group == group) {
        let is_threads = |row: &Row| matches!(row.clients, SideClients::Threads(_));
        let other =
            shown.iter_mut().find(|other| other.side == row.side && is_threads(other) && is_threads(row));
        match other {
            Some(other) if group.0 != WorkName::Update => {
                if median(&row.tps) > median(&other.tps) {
                    *other = row;
                }
            }
            _ => shown.push(row),
        }
    }
    shown
}

/// Returns everything as text.
#[must_use]
pub fn table(plan: &Plan, rows: &[Row]) -> String {
    let mut text = String::new();
    for group in plan.groups() {
        let _ = writeln!(text, "{}, durability {}", group.0.name(), group.1.name());
        let heads = ["store", "clients", "tx/s", "spread", "p50 us", "p99 us", "atrapos / store"];
        let _ = writeln!(text, "  {}", line(heads.map(str::to_owned)));
        let all = shown(rows, group);
        let base = all.iter().find(|row| row.side == ATRAPOS).map_or(0.0, |row| median(&row.tps));
        for row in &all {
            let tps = median(&row.tps);
            let cells = [
                row.side.to_owned(),
                clients(row),
                rate(tps),
                spread(row),
                format!("{:.1}", median(&row.p50_us)),
                format!("{:.1}", median(&row.p99_us)),
                ratio(base / tps.max(f64::MIN_POSITIVE)),
            ];
            let _ = writeln!(text, "  {}", line(cells));
        }
        for kind in &plan.kinds {
            if let Some(why) = kind.refusal(group.0, group.1) {
                let _ = writeln!(text, "  {:<10} n/a: {why}", kind.name);
            }
        }
        text.push('\n');
    }
    let _ = writeln!(
        text,
        "Every store was audited after its rounds. A sync of 4 KiB takes {:.0} us.",
        plan.device_sync_us
    );
    for (name, version, promises) in promises(plan) {
        let _ = writeln!(text, "  {name:<10} {version}; {promises}");
    }
    text
}

fn line(cells: [String; 7]) -> String {
    let [store, clients, tps, spread, p50, p99, ratio] = cells;
    format!("{store:<10} {clients:<20} {tps:>9} {spread:>7} {p50:>9} {p99:>10} {ratio:>16}")
}

/// Returns name, version and promises of every side.
fn promises(plan: &Plan) -> Vec<(&'static str, String, String)> {
    let mut all = vec![(
        ATRAPOS,
        format!("atrapos {}", version_of("atrapos")),
        format!("{} workers; serializable; none: in memory; synchronous: group commit", plan.threads),
    )];
    all.extend(plan.kinds.iter().map(|kind| {
        let synchronous = kind.synchronous.unwrap_or("not possible");
        let promises = format!("{}; none: {}; synchronous: {synchronous}", kind.isolation, kind.none);
        (kind.name, kind.version.clone(), promises)
    }));
    all
}

/// Returns what a command prints, or `null`.
fn output_of(command: &str, arguments: &[&str]) -> Value {
    let output = Command::new(command).args(arguments).output().ok().filter(|output| output.status.success());
    output.map_or(Value::Null, |output| json!(String::from_utf8_lossy(&output.stdout).trim()))
}

fn cpu_model() -> Value {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        text.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(':'));
    model.map_or(Value::Null, |(_, model)| json!(model.trim()))
}

/// Returns everything as one JSON object.
#[must_use]
pub fn json(plan: &Plan, rows: &[Row]) -> String {
    let result = |row: &Row| {
        let (kind, count) = match row.clients {
            SideClients::Threads(threads) => ("threads", threads),
            SideClients::Sessions(sessions) => ("sessions_per_worker", sessions),
        };
        json!({
            "workload": row.group.0.name(),
            "durability": row.group.1.name(),
            "store": row.side,
            "clients": { kind: count },
            "tps": row.tps,
            "tps_median": median(&row.tps),
            "p50_us_median": median(&row.p50_us),
            "p99_us_median": median(&row.p99_us),
            "audited_rows": row.audited_rows,
        })
    };
    let store = |(name, version, promises): (&str, String, String)| json!({ "name": name, "version": version, "promises": promises });
    let refused = plan.groups().into_iter().flat_map(|group| {
        let reason = move |kind: &crate::peer::PeerKind| Some((kind.name, kind.refusal(group.0, group.1)?));
        plan.kinds.iter().filter_map(reason).map(move |(store, why)| {
            json!({ "workload": group.0.name(), "durability": group.1.name(), "store": store, "reason": why })
        })
    });
    let value = json!({
        "commit": output_of("git", &["-C", env!("CARGO_MANIFEST_DIR"), "rev-parse", "--short", "HEAD"]),
        "machine": {
            "cpu_model": cpu_model(),
            "kernel": std::fs::read_to_string("/proc/sys/kernel/osrelease").map_or(Value::Null, |text| json!(text.trim())),
            "device_sync_us": plan.device_sync_us,
        },
        "settings": {
            "seconds": plan.measured.as_secs_f64(),
            "rounds": plan.rounds,
            "threads": plan.threads,
            "many_threads": plan.many_threads,
            "sessions_per_worker": { "none": plan.sessions[0], "synchronous": plan.sessions[1] },
            "scale": plan.scale,
        },
        "stores": promises(plan).into_iter().map(store).collect::<Vec<_>>(),
        "results": rows.iter().map(result).collect::<Vec<_>>(),
        "not_run": refused.collect::<Vec<_>>(),
    });
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!([4_250_000.0, 312_400.0, 4_321.0, 87.3].map(rate), ["4.25 M", "312 k", "4.3 k", "87"]);
        assert_eq!([0.123, 2.345, 23.45, 234.5].map(ratio), ["0.12", "2.35", "23.4", "234"]);
    }

    #[test]
    fn of_several_numbers_of_threads_the_better_is_shown() {
        let group = (WorkName::Tatp, Durability::Synchronous);
        let row = |side, clients, tps| Row {
            group,
            side,
            clients,
            tps: vec![tps],
            p50_us: vec![1.0],
            p99_us: vec![1.0],
            audited_rows: 0,
        };
        let rows = [
            row("a", SideClients::Threads(2), 5.0),
            row("a", SideClients::Threads(32), 9.0),
            row("b", SideClients::Sessions(64), 1.0),
            row("b", SideClients::Threads(2), 8.0),
        ];
        let found: Vec<f64> = shown(&rows, group).iter().map(|row| row.tps[0]).collect();
        assert_eq!(found, [9.0, 1.0, 8.0]);
    }
}
