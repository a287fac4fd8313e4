//! The results of the two experiments about costs: observing, and repartitioning.
//!
//! Owns: the words, columns and keys. Never: measures.

use std::fmt::Write;

use atrapos_cli::error::CliError;
use atrapos_cli::table::{columns, count, rate};
use atrapos_experiments::Setup;
use atrapos_experiments::comparison::Ratio;
use atrapos_experiments::monitoring::MonitoringCost;
use atrapos_experiments::repartitioning::{COUNTS, Cost, REPETITIONS, RepartitionCosts, Running};
use atrapos_harness::median;
use serde_json::{Value, json};

use super::sides::{self, certainty};
use super::{Report, plot};

/// Returns a phase in the form that all experiments share; in those about costs no side adapts.
pub(super) fn phase(name: &str, static_tps: f64, adaptive_tps: Option<f64>, ratio: Option<Ratio>) -> Value {
    json!({
        "name": name,
        "static_tps": static_tps,
        "adaptive_tps": adaptive_tps,
        "ratio": ratio.map(|ratio| ratio.value),
        "ratio_interval": ratio.and_then(|ratio| ratio.interval),
        "adapted_after_s": null,
    })
}

fn or_none(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

fn median_of(numbers: &[f64]) -> Option<f64> {
    (!numbers.is_empty()).then(|| median(&mut numbers.to_vec()))
}

/// Writes what is missing of a ratio, with its interval; marked, if that is wide.
fn overhead(ratio: &Ratio) -> String {
    let mark = if ratio.is_uncertain() { "*" } else { "" };
    let percent = |ratio: f64| 100.0 * (1.0 - ratio);
    let interval = ratio.interval.map(|(low, high)| format!(" ({:.2}-{:.2}%)", percent(high), percent(low)));
    format!("{:.2}%{}{mark}", percent(ratio.value), interval.unwrap_or_default())
}

/// Returns the report of `monitoring-cost`.
pub(super) fn monitoring(setup: &Setup<'_>, costs: &[MonitoringCost]) -> Result<Report, CliError> {
    let pairs = costs.first().map_or(0, |cost| cost.off_tps.len());
    let mut text = format!(
        "what observing costs (ATraPos, Table II)\n  {} subscribers, {} workers, {} sessions on each, 1 event in {} recorded, \
         medians of {pairs} pairs\n\n",
        count(setup.rows),
        setup.workers,
        setup.sessions,
        setup.adaptation.sample_every,
    );
    let header = ["transactions", "not observing tps", "observing tps", "overhead", "least", "most"];
    let mut lines = vec![header.map(str::to_owned).to_vec()];
    let (mut phases, mut of_all) = (Vec::new(), Vec::new());
    let mut csv = "pair,mix,static_tps,adaptive_tps\n".to_owned();
    for cost in costs {
        let name = cost.mix.to_string();
        let (off, on) = (median_of(&cost.off_tps).unwrap_or_default(), median_of(&cost.on_tps));
        let (ratio, ratios) = (cost.ratio(), cost.ratios());
        let percent =
            |ratio: Option<f64>| or_none(ratio.map(|ratio| format!("{:.2}%", 100.0 * (1.0 - ratio))));
        lines.push(vec![
            name.clone(),
            rate(off),
            or_none(on.map(rate)),
            or_none(ratio.map(|ratio| overhead(&ratio))),
            percent(ratios.iter().copied().max_by(f64::total_cmp)),
            percent(ratios.iter().copied().min_by(f64::total_cmp)),
        ]);
        let mut value = phase(&name, off, on, ratio);
        value["overhead"] = json!(ratio.map(|ratio| 1.0 - ratio.value));
        of_all.extend(ratio);
        value["ratios"] = json!(ratios);
        phases.push(value);
        for (pair, off) in cost.off_tps.iter().enumerate() {
            let on = cost.on_tps.get(pair).map_or_else(String::new, |on| format!("{on:.0}"));
            // Writing to a string cannot fail.
            let _ = writeln!(csv, "{pair},{name},{off:.0},{on}");
        }
    }
    text.push_str(&columns(&lines));
    text.push_str(&certainty(&of_all, "--pairs"));
    let json = json!({ "title": "what observing costs", "phases": phases, "decisions": [] });
    Ok(Report { text, json, csv, svg: plot::monitoring(costs)? })
}

/// Returns the report of `repartition-cost`.
pub(super) fn repartitioning(setup: &Setup<'_>, result: &RepartitionCosts) -> Result<Report, CliError> {
    let most = COUNTS[COUNTS.len() - 1];
    let mut text = format!(
        "what repartitioning costs (ATraPos, Figure 9)\n  rows of 10 integers, {} workers; means of {REPETITIONS} repetitions\n",
        setup.workers
    );
    if !result.costs.is_empty() {
        let header =
            ["at rest", "rows", "changes", "owners ms", "deviation ms", "in all ms", "longest us", "us each"];
        let mut lines = vec![header.map(str::to_owned).to_vec()];
        lines.extend(result.costs.iter().map(line));
        text.push('\n');
        text.push_str(&columns(&lines));
    }
    let _ = under_load(&mut text, setup, &result.running, most);
    let running = &result.running;
    let busy = (running.windows > 0).then_some(running.busy_tps);
    let ratio = running.pairs.ratio();
    text.push_str(&certainty(ratio.as_slice(), "--seconds-per-phase"));
    let mut value = phase(&format!("{most} rearrangements"), running.quiet_tps, busy, ratio);
    value["owner_ms"] = json!(busy.map(|_| running.owner_ms));
    value["wall_ms"] = json!(busy.map(|_| running.wall_ms));
    value["windows"] = json!(running.windows);
    value["latency_us"] = json!({
        "static_p999": running.quiet_p999_us,
        "static_longest": running.quiet_longest_us,
        "static_longest_max": running.quiet_longest_us_max,
        "adaptive_longest": busy.map(|_| running.busy_longest_us),
        "adaptive_longest_max": busy.map(|_| running.busy_longest_us_max),
    });
    let json = json!({
        "title": "what repartitioning costs",
        "phases": [value],
        "decisions": [],
        "costs": result.costs.iter().map(cost).collect::<Vec<_>>(),
    });
    Ok(Report { text, json, csv: csv(&result.costs), svg: plot::repartitioning(&result.costs, setup.rows)? })
}

fn line(cost: &Cost) -> Vec<String> {
    vec![
        cost.kind.name().to_owned(),
        count(cost.rows),
        cost.count.to_string(),
        format!("{:.3}", cost.owner_ms),
        format!("{:.3}", cost.owner_ms_sd),
        format!("{:.3}", cost.wall_ms),
        format!("{:.0}", cost.longest_us),
        format!("{:.1}", 1000.0 * cost.owner_ms / cost.count.max(1) as f64),
    ]
}

fn cost(cost: &Cost) -> Value {
    json!({
        "rows": cost.rows,
        "operation": cost.kind.name(),
        "count": cost.count,
        "owner_ms": cost.owner_ms,
        "owner_ms_sd": cost.owner_ms_sd,
        "wall_ms": cost.wall_ms,
        "longest_us": cost.longest_us,
    })
}

fn under_load(out: &mut String, setup: &Setup<'_>, running: &Running, most: usize) -> std::fmt::Result {
    writeln!(
        out,
        "\nunder transactions: updates of single rows of {}, {} sessions on each worker",
        count(setup.rows),
        setup.sessions
    )?;
    writeln!(out, "  throughput      {} tps while the scheme stays as it is", rate(running.quiet_tps))?;
    if running.windows > 0 {
        let (windows, busy) = (running.windows, rate(running.busy_tps));
        let ratio = sides::ratio(running.pairs.ratio());
        writeln!(
            out,
            "                  {busy} tps during {most} rearrangements ({windows} times): {ratio}"
        )?;
        let (owner_ms, wall_ms) = (running.owner_ms, running.wall_ms);
        writeln!(
            out,
            "  {most} rearrangements  {owner_ms:.2} ms of the owners, done in {wall_ms:.2} ms (medians)"
        )?;
    }
    writeln!(out, "  usual latency   99.9% within {:.0} us", running.quiet_p999_us)?;
    writeln!(
        out,
        "  longest latency {:.0} us in a quiet window (median; {:.0} us in any)",
        running.quiet_longest_us, running.quiet_longest_us_max
    )?;
    if running.windows > 0 {
        writeln!(
            out,
            "                  {:.0} us in a window of rearrangements (median; {:.0} us in any)",
            running.busy_longest_us, running.busy_longest_us_max
        )?;
    }
    Ok(())
}

fn csv(costs: &[Cost]) -> String {
    let mut out = "rows,operation,count,owner_ms,owner_ms_sd,wall_ms,longest_us\n".to_owned();
    for cost in costs {
        let Cost { rows, kind, count, owner_ms, owner_ms_sd, wall_ms, longest_us } = cost;
        let kind = kind.name();
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{rows},{kind},{count},{owner_ms:.4},{owner_ms_sd:.4},{wall_ms:.4},{longest_us:.1}"
        );
    }
    out
}
