//! Results as text.
//!
//! Owns: the wording and the columns. Never: shows a number that the JSON does not have.

use std::fmt::Write;

use atrapos::AbortReason;
use atrapos_harness::driver::RunResult;
use atrapos_harness::raw::{RawReport, RawResult};
pub use atrapos_workloads::count;
use serde_json::Value;

use crate::bench::{BenchReport, Growth, Load, Run};
use crate::decisions;
use crate::json::COMMIT;

/// Returns a rate, without digits behind the point.
pub fn rate(per_second: f64) -> String {
    count(per_second.round() as u64)
}

/// Returns nanoseconds as microseconds with about three significant digits.
pub fn us(ns: u64) -> String {
    let us = ns as f64 / 1000.0;
    match us {
        us if us < 10.0 => format!("{us:.2}"),
        us if us < 100.0 => format!("{us:.1}"),
        us => count(us.round() as u64),
    }
}

/// Returns bytes in MiB.
pub fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Returns the report of a benchmark.
pub(crate) fn bench(report: &BenchReport) -> String {
    let mut out = String::new();
    let middle = report.middle();
    let run = &middle.result;
    // Writing to a string cannot fail.
    let _ = head(&mut out, report);
    let _ = growth(&mut out, report.growth);
    let _ = throughput(&mut out, report, run);
    out.push_str(&classes(run));
    let _ = foot(&mut out, run);
    let _ = durability(&mut out, report, middle);
    let _ = audit(&mut out, report);
    out.push_str(&decisions::text(report.decisions.iter().map(|event| (decisions::opened_s(event), event))));
    out
}

/// Returns a setting as text.
fn setting(report: &BenchReport, key: &str) -> String {
    match &report.config[key] {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// Writes what runs the transactions, and for which clients.
fn engine(out: &mut String, report: &BenchReport, clients: &str) -> std::fmt::Result {
    let config = |key: &str| setting(report, key);
    match config("engine").as_str() {
        "atrapos" if !report.config["instances"].is_null() => {
            let (instances, way) = (config("instances"), (config("channel"), config("placement")));
            write!(
                out,
                "  {instances} instances ({}, {}) of {} workers in all, {clients}",
                way.0,
                way.1,
                config("workers")
            )?;
            if report.config["oversubscribed"] == true {
                write!(out, ", several of which share a processor")?;
            }
        }
        "atrapos" => write!(out, "  {} workers, {clients}", config("workers"))?,
        "plp" => write!(out, "  plp, {} workers, {clients}", config("workers"))?,
        engine => {
            let threads =
                if report.config["clients"].is_null() { config("workers") } else { config("clients") };
            write!(out, "  {engine}, ")?;
            if !report.config["instances"].is_null() {
                let (channel, placement) = (config("channel"), config("placement"));
                write!(out, "{} instances ({channel}, {placement}) of ", config("instances"))?;
            }
            write!(out, "{threads} threads")?;
            if !report.config["instances"].is_null() {
                out.push_str(" in all");
            }
            if let Some(pipeline) = report.config["pipeline"].as_u64().filter(|pipeline| *pipeline > 1) {
                write!(out, " with up to {pipeline} transactions to be acknowledged on each")?;
            }
            if report.config["locks"] == "off" {
                write!(out, ", locks off")?;
            }
            if report.config["latches"] == "off" {
                write!(out, ", latches off")?;
            }
        }
    }
    Ok(())
}

/// Returns the line that says where a result is from: the machine, by its summary, and the commit.
pub fn origin(machine: &Value) -> String {
    let model = machine["cpu_model"].as_str().unwrap_or("unknown processor");
    format!("  {model} ({} of {} cpus usable), commit {COMMIT}", machine["usable_cpus"], machine["cpus"])
}

fn head(out: &mut String, report: &BenchReport) -> std::fmt::Result {
    let config = |key: &str| setting(report, key);
    writeln!(out, "{}: {}", report.benchmark, report.title)?;
    let at_once = match report.config["burst"].as_u64() {
        Some(burst) if burst > 1 => format!(", {burst} transactions at a time"),
        _ => String::new(),
    };
    let clients = match &report.config["clients"] {
        Value::Null if report.config["pipeline"].as_u64().unwrap_or(1) > 1 => {
            let (sessions, pipeline) = (config("sessions"), config("pipeline"));
            format!(
                "{sessions} sessions on each with up to {pipeline} transactions to be acknowledged{at_once}"
            )
        }
        Value::Null => format!("{} sessions on each{at_once}", config("sessions")),
        clients => format!("{clients} client threads outside"),
    };
    engine(out, report, &clients)?;
    writeln!(out, ", routing {}, seed {}", config("routing"), config("seed"))?;
    let kept = match (&report.config["dir"], report.device_sync_us) {
        (Value::String(dir), _) => format!(", kept in {dir}"),
        (_, Some(_)) => ", in a temporary directory".to_owned(),
        (_, None) => ": in memory only".to_owned(),
    };
    let loss = match &report.config["max_loss_ms"] {
        Value::Null => String::new(),
        max_loss_ms => format!(" (at most {max_loss_ms} ms may be lost)"),
    };
    writeln!(out, "  durability {}{loss}{kept}", config("durability"))?;
    writeln!(out, "{}", origin(&report.machine))?;
    let load = &report.load;
    let Load { rows, elapsed, encoded_bytes, tree_bytes, resident_bytes } = *load;
    writeln!(
        out,
        "\nload        {} rows in {:.2} s ({} rows/s)",
        count(rows),
        elapsed.as_secs_f64(),
        rate(load.rows_per_second())
    )?;
    let ratio = share(tree_bytes, encoded_bytes);
    write!(
        out,
        "memory      {} in trees, {ratio:.2} x the {} of encoded rows and keys",
        mib(tree_bytes),
        mib(encoded_bytes)
    )?;
    match resident_bytes {
        Some(bytes) => writeln!(out, "; the process grew by {}", mib(bytes)),
        None => writeln!(out),
    }
}

/// Writes how much memory the tables have taken after loading, if they have taken any.
fn growth(out: &mut String, growth: Growth) -> std::fmt::Result {
    let Growth { reserved_bytes, prepared_bytes, unprepared_bytes } = growth;
    if prepared_bytes + unprepared_bytes == 0 {
        return Ok(());
    }
    writeln!(
        out,
        "growth      {} more in trees while it ran, {} of it prepared ahead; {} were prepared before",
        mib(prepared_bytes + unprepared_bytes),
        mib(prepared_bytes),
        mib(reserved_bytes)
    )
}

fn throughput(out: &mut String, report: &BenchReport, run: &RunResult) -> std::fmt::Result {
    let completed: u64 = run.classes.iter().map(|class| class.tally.completed()).sum();
    let committed: u64 = run.classes.iter().map(|class| class.tally.committed).sum();
    write!(out, "throughput  {} transactions/s", rate(report.throughput_tps()))?;
    if report.runs.len() > 1 {
        let runs: Vec<String> = report.throughputs().into_iter().map(rate).collect();
        write!(out, " (median of {})", runs.join(", "))?;
    }
    writeln!(
        out,
        ", {:.1}% of them successes; {:.2} s measured{}",
        100.0 * share(committed, completed),
        run.elapsed.as_secs_f64(),
        if run.interrupted { ", interrupted" } else { "" },
    )?;
    let Some((per_minute, class)) = report.completed_per_minute().zip(report.per_minute) else {
        return Ok(());
    };
    writeln!(
        out,
        "per minute  {} {} (tpmC-like, rolled-back ones included)",
        rate(per_minute),
        run.classes[class.index()].name
    )?;
    let mix: Vec<String> = run
        .classes
        .iter()
        .filter(|class| class.tally.completed() > 0)
        .map(|class| format!("{} {:.2}%", class.name, 100.0 * share(class.tally.completed(), completed)))
        .collect();
    writeln!(out, "mix reached {}", if mix.is_empty() { "none".to_owned() } else { mix.join(", ") })
}

/// Returns one line per class that ran.
fn classes(run: &RunResult) -> String {
    let header = [
        "class",
        "tps",
        "committed",
        "expected failures",
        "aborted",
        "p50 us",
        "p95 us",
        "p99 us",
        "p99.9 us",
        "max us",
    ];
    let mut lines: Vec<Vec<String>> = vec![header.map(str::to_owned).to_vec()];
    for class in &run.classes {
        let (tally, latency) = (&class.tally, &class.latency_ns);
        let aborted: u64 = tally.aborted.iter().sum();
        if tally.completed() + aborted == 0 {
            continue;
        }
        let quantile = |quantile| {
            if latency.is_empty() { "-".to_owned() } else { us(latency.value_at_quantile(quantile)) }
        };
        lines.push(vec![
            class.name.to_owned(),
            rate(run.per_second(tally.completed())),
            count(tally.committed),
            count(tally.expected_failures),
            count(aborted),
            quantile(0.5),
            quantile(0.95),
            quantile(0.99),
            quantile(0.999),
            quantile(1.0),
        ]);
    }
    if lines.len() == 1 {
        return "\nno transaction completed\n\n".to_owned();
    }
    format!("\n{}\n", columns(&lines))
}

/// Returns lines in columns: the first to the left, the others to the right.
pub fn columns(lines: &[Vec<String>]) -> String {
    let widths: Vec<usize> = (0..lines[0].len())
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut out = String::new();
    for line in lines {
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let cell = if column == 0 { format!("{cell:<width$}") } else { format!("  {cell:>width$}") };
            out.push_str(&cell);
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}

fn foot(out: &mut String, run: &RunResult) -> std::fmt::Result {
    let mut aborts = Vec::new();
    for (at, reason) in AbortReason::ALL.iter().enumerate() {
        let aborted: u64 = run.classes.iter().map(|class| class.tally.aborted[at]).sum();
        if aborted > 0 {
            aborts.push(format!("{} {reason}", count(aborted)));
        }
    }
    let aborts = if aborts.is_empty() { "none".to_owned() } else { aborts.join(", ") };
    let statistics = &run.statistics;
    if run.workers.is_empty() {
        return writeln!(out, "aborts      {aborts}; {} attempts repeated", count(statistics.retried));
    }
    write!(out, "aborts      {aborts}; {} attempts repeated after a deadlock", count(statistics.retried))?;
    match statistics.held_back {
        0 => writeln!(out)?,
        held_back => writeln!(out, ", {} held back before they began", count(held_back))?,
    }
    writeln!(
        out,
        "actions     {} local, {} remote; {} requests forwarded to their home",
        count(statistics.local_actions),
        count(statistics.remote_actions),
        count(statistics.forwarded),
    )?;
    writeln!(
        out,
        "locks       {} entered, {} waited for",
        count(statistics.locks_entered),
        count(statistics.lock_waits)
    )?;
    if statistics.lent > 0 || statistics.in_place > 0 {
        writeln!(
            out,
            "lending     {} times a partition of a shared table was lent, {} recalled; {} requests begun in place",
            count(statistics.lent),
            count(statistics.recalled),
            count(statistics.in_place)
        )?;
    }
    if statistics.central_accesses > 0 {
        writeln!(
            out,
            "shared      {} accesses to system state of several workers",
            count(statistics.central_accesses)
        )?;
    }
    writeln!(out, "workers     {}", workers(run))
}

/// Writes the lines about the WAL and checkpoints, if there are any.
fn durability(out: &mut String, report: &BenchReport, middle: &Run) -> std::fmt::Result {
    let run = &middle.result;
    if let Some(wal) = run.wal {
        let completed = run.classes.iter().map(|class| class.tally.completed()).sum();
        writeln!(
            out,
            "wal         {} in {} syncs, {:.1} transactions per sync; {:.0} bytes per update; the device syncs 4 KiB in {} us",
            mib(wal.bytes),
            count(wal.syncs),
            share(completed, wal.syncs),
            share(wal.bytes, run.updates),
            report.device_sync_us.map_or_else(|| "?".to_owned(), |us| count(us.round() as u64)),
        )?;
    }
    if let Some(made) = &middle.checkpoints {
        writeln!(
            out,
            "checkpoints {} while measuring, {:.3} s each ({:.3} s at most), of {} rows in {}",
            made.count(),
            made.seconds_median(),
            made.seconds_max(),
            count(made.rows()),
            mib(made.bytes()),
        )?;
    }
    Ok(())
}

fn audit(out: &mut String, report: &BenchReport) -> std::fmt::Result {
    match &report.audit {
        Ok(audit) => writeln!(
            out,
            "audit       passed: {} rows, {} index entries, {} references",
            count(audit.rows),
            count(audit.entries),
            count(audit.references),
        ),
        Err(wrong) => writeln!(out, "audit       FAILED: {wrong}"),
    }
}

/// Limit of workers shown one by one: more are summed up.
const WORKERS_SHOWN: usize = 16;

fn workers(run: &RunResult) -> String {
    let busy = |ratio: f64| format!("{:.1}%", 100.0 * ratio);
    if run.workers.len() > WORKERS_SHOWN {
        let ratios = || run.workers.iter().map(|worker| worker.busy_ratio);
        let mean = ratios().sum::<f64>() / run.workers.len() as f64;
        let (least, most) = (ratios().fold(1.0, f64::min), ratios().fold(0.0, f64::max));
        return format!(
            "{}: busy {} on average, {} to {}",
            run.workers.len(),
            busy(mean),
            busy(least),
            busy(most)
        );
    }
    let each = run.workers.iter().enumerate().map(|(at, worker)| match worker.core {
        Some(core) => format!("w{at} on core {core} busy {}", busy(worker.busy_ratio)),
        None => format!("w{at} busy {}", busy(worker.busy_ratio)),
    });
    each.collect::<Vec<_>>().join(", ")
}

/// Returns the report of `bench raw`.
pub(crate) fn raw(report: &RawReport, machine: &Value) -> String {
    let mut out = format!(
        "raw limits of {}, commit {COMMIT}\n  medians of {} rounds\n\n",
        machine["cpu_model"].as_str().unwrap_or("an unknown processor"),
        report.rounds.len()
    );
    let what = [
        "lookups/s, our tree, one thread, one at a time",
        "lookups/s, our tree, one thread, 16 interleaved",
        "lookups/s, BTreeMap, one thread",
        "lookups/s, two BTreeMaps, two threads",
        "lookups/s, hashbrown, one thread",
        "ns per request and reply between workers, one at a time",
        "ns per request and reply between workers, 16 at once",
        "ns per request and reply through bare rings, 16 at once",
        "ns per increment of an atomic that two threads share",
        "ns per increment of an atomic each thread has for itself",
    ];
    let number = |value: f64| if value < 1000.0 { format!("{value:.1}") } else { rate(value) };
    let lines: Vec<Vec<String>> = RawResult::NAMES
        .iter()
        .zip(what)
        .zip(report.median.values())
        .map(|((name, what), value)| vec![format!("{name:<22}{what}"), number(value)])
        .collect();
    out.push_str(&columns(&lines));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            [0, 1_234, 56_789, 1_234_567, 9_999_999].map(us),
            ["0.00", "1.23", "56.8", "1,235", "10,000"]
        );
        assert_eq!(share(1, 0), 0.0);
    }

    #[test]
    fn columns_are_aligned_by_their_kind() {
        let lines = [["a", "1"], ["bcd", "234"]].map(|line| line.map(str::to_owned).to_vec());
        assert_eq!(columns(&lines), "a      1\nbcd  234\n");
    }
}
