//! The result of `bench domains` as text.
//!
//! Owns: the wording and the columns. Never: shows a number that the JSON does not have.

use std::fmt::Write;

use atrapos_cli::table::{columns, count, origin, rate};
use atrapos_domain_loads::{Access, Arrangement, Class, Run};
use atrapos_topology::CpuId;

use super::{Comparison, Measured, Report};

/// Returns the report.
pub(super) fn report(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = head(&mut out, report);
    let _ = match report.comparison {
        Comparison::Design(_) => one(&mut out, report),
        Comparison::Designs | Comparison::Bursts(_) | Comparison::Bound(_) => several(&mut out, report),
    };
    let _ = foot(&mut out, report);
    out
}

fn head(out: &mut String, report: &Report) -> std::fmt::Result {
    let load = &report.main().run.load;
    let what = match report.comparison {
        Comparison::Design(design) => design.name().to_owned(),
        Comparison::Designs => "all designs".to_owned(),
        Comparison::Bursts(design) => format!("{design} by burst sizes"),
        Comparison::Bound(design) => format!("{design} and its bound"),
    };
    writeln!(out, "domains: {} on {}, {what}", load.mix, load.kind)?;
    writeln!(
        out,
        "  {} records of 8-byte keys and values, Zipf {}, seed {}",
        count(load.records),
        load.theta,
        load.seed
    )?;
    writeln!(out, "{}\n", origin(&report.machine))
}

/// Writes a design, and what delegation costs in it.
fn one(out: &mut String, report: &Report) -> std::fmt::Result {
    let run = &report.main().run;
    let Run { arrangement, loading, .. } = run;
    write!(out, "threads     {arrangement}{}", places(arrangement))?;
    match arrangement.access() {
        Access::Delegated => {
            let together = if run.load.grouped { "" } else { ", one after the other" };
            writeln!(out, "; bursts of {}{together}", run.load.burst)?;
        }
        Access::Direct => writeln!(out)?,
    }
    let seconds = loading.as_secs_f64();
    let per_second = rate(run.load.records as f64 / seconds.max(1e-9));
    writeln!(
        out,
        "load        {} records in {seconds:.2} s ({per_second} records/s)",
        count(run.load.records)
    )?;
    write!(out, "throughput  {} operations/s", rate(run.throughput_per_second()))?;
    if run.rounds.len() > 1 {
        let rounds: Vec<String> = run.throughputs_per_second().into_iter().map(rate).collect();
        write!(out, " (median of {})", rounds.join(", "))?;
    }
    writeln!(out, "{}", if run.interrupted { ", interrupted" } else { "" })?;
    if let Some(variation) = run.variation() {
        writeln!(out, "variation   {:.1}%", 100.0 * variation)?;
    }
    if let Some(direct) = report.direct() {
        let (delegated_ns, direct_ns) =
            (run.nanoseconds_per_operation(), direct.run.nanoseconds_per_operation());
        writeln!(
            out,
            "cost        {delegated_ns:.1} ns of a client for a delegated operation, {direct_ns:.1} ns for a direct one ({}, {} operations/s): {:.2} x",
            direct.run.arrangement,
            rate(direct.run.throughput_per_second()),
            delegated_ns / direct_ns
        )?;
    }
    if let Some(round) = &run.clocked {
        let each = round.delegation_per_operation();
        writeln!(
            out,
            "delegation  {:.3} requests and {:.3} waits for an operation, {:.1} ns of waiting (noted in a round of its own)",
            each.requests, each.waits, each.waited_ns
        )?;
    }
    details(out, run)
}

/// Writes what the round in the middle consisted of.
fn details(out: &mut String, run: &Run) -> std::fmt::Result {
    let middle = run.middle();
    let all = middle.operations().max(1) as f64;
    let classes = Class::ALL.iter().zip(middle.classes).filter(|(_, count)| *count > 0);
    let shares: Vec<String> = classes
        .map(|(class, count)| format!("{} {:.1}%", class.name(), 100.0 * count as f64 / all))
        .collect();
    writeln!(out, "operations  {}", shares.join(", "))?;
    if run.arrangement.access() == Access::Delegated {
        let per_step = middle.tasks as f64 / middle.busy_steps.max(1) as f64;
        writeln!(
            out,
            "tasks       {} in a round, {per_step:.1} in a busy step of a worker",
            count(middle.tasks)
        )?;
    }
    if let Some(contention) = middle.contention {
        writeln!(
            out,
            "contention  {:.4} attempts given up per operation, {} operations under the lock that all fall back to",
            contention.abort_ratio(),
            count(contention.fallbacks)
        )?;
    }
    Ok(())
}

/// Returns the processing units of pinned threads.
fn places(arrangement: &Arrangement) -> String {
    let list = |cpus: &[CpuId]| cpus.iter().map(|cpu| cpu.0.to_string()).collect::<Vec<_>>().join(",");
    if !arrangement.is_pinned() {
        return ", not pinned".to_owned();
    }
    let workers = arrangement.domains().iter().map(|domain| list(domain)).collect::<Vec<_>>().join(" | ");
    match arrangement.access() {
        Access::Direct => format!(", cpus {workers}"),
        Access::Delegated => format!(", cpus {} and {workers}", list(arrangement.clients())),
    }
}

/// Writes a line for each side.
fn several(out: &mut String, report: &Report) -> std::fmt::Result {
    let best = report.best().run.throughput_per_second();
    let direct = report.direct().map(|direct| direct.run.nanoseconds_per_operation());
    let mut header = vec!["", "operations/s", "to the best", "variation", "ns per operation"];
    header.extend(direct.map(|_| "to direct use"));
    let mut lines = vec![header.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    for Measured { name, run } in &report.sides {
        let ns = run.nanoseconds_per_operation();
        let mut line = vec![
            name.clone(),
            rate(run.throughput_per_second()),
            format!("{:.2}", run.throughput_per_second() / best),
            run.variation().map_or_else(|| "-".to_owned(), |variation| format!("{:.1}%", 100.0 * variation)),
            format!("{ns:.1}"),
        ];
        line.extend(direct.map(|direct| format!("{:.2}", ns / direct)));
        lines.push(line);
    }
    out.push_str(&columns(&lines));
    let rounds = report.sides.iter().map(|side| side.run.rounds.len()).min().unwrap_or(0);
    writeln!(out, "  medians of {rounds} rounds that alternate; ns of a thread that drives")?;
    out.push('\n');
    let mut shown = None;
    for Measured { name, run } in &report.sides {
        // Bursts of several sizes have the same threads.
        if shown.replace(&run.arrangement) != Some(&run.arrangement) {
            let name = if matches!(report.comparison, Comparison::Bursts(_))
                && run.arrangement.access() == Access::Delegated
            {
                "bursts"
            } else {
                name
            };
            writeln!(out, "{name:<12}{}{}", run.arrangement, places(&run.arrangement))?;
        }
    }
    if let Some(bound) = report.bound() {
        writeln!(
            out,
            "bound       workers {} operations/s, clients {}: at most {:.2} of direct use, of which it has {:.2}",
            rate(bound.workers),
            rate(bound.clients),
            bound.most() / bound.direct,
            bound.design / bound.direct
        )?;
    }
    for (design, why) in &report.left_out {
        writeln!(out, "{:<12}left out: {why}", design.name())?;
    }
    Ok(())
}

/// Writes what was tried for the design configured, and the audit.
fn foot(out: &mut String, report: &Report) -> std::fmt::Result {
    if let Some(choice) = &report.choice {
        let tried: Vec<String> = choice
            .tried
            .iter()
            .map(|(arrangement, tps)| {
                let pinned = if arrangement.is_pinned() { "" } else { " (not pinned)" };
                format!("{arrangement}{pinned} {}/s", rate(*tps))
            })
            .collect();
        writeln!(out, "tried       {}", tried.join("; "))?;
    }
    for Measured { name, run } in &report.sides {
        if let Err(wrong) = &run.audit {
            writeln!(out, "audit       FAILED for {name}: {wrong}")?;
        }
    }
    let main = &report.main().run;
    let Ok(audit) = &main.audit else { return Ok(()) };
    if report.sides.iter().all(|side| side.run.audit.is_ok()) {
        let scanned = audit.scanned.map_or("", |_| "; a scan found the same");
        writeln!(
            out,
            "audit       passed: every reply, and {} records, each with a value of its own{scanned}",
            count(audit.records)
        )?;
    }
    Ok(())
}
