//! The result of the experiment with tables together and apart.
//!
//! Owns: the words, columns and keys. Never: measures.

use std::fmt::Write;

use atrapos_cli::decisions;
use atrapos_cli::error::CliError;
use atrapos_cli::table::{columns, count, rate};
use atrapos_experiments::Setup;
use atrapos_experiments::apart::{Load, LoadRound, Owners, owners, settled, settled_pairs};
use atrapos_experiments::comparison::{Pairs, Ratio};
use atrapos_experiments::timeline::{TimedDecision, Timeline};
use atrapos_harness::median;
use serde_json::{Value, json};

use super::costs::phase;
use super::sides::{MORE, certainty, ratio};
use super::{Report, plot};

const TITLE: &str = "tables together and apart, where keys cannot be cut";

/// A side of a load, as it is chosen from a round.
type Chosen = fn(&LoadRound) -> Option<&Timeline>;

/// The sides, by their names.
const SIDES: [(&str, Chosen); 3] = [
    ("static", |round| Some(&round.fixed)),
    ("together", |round| round.together.as_ref()),
    ("apart", |round| round.apart.as_ref()),
];
const STATIC: Chosen = SIDES[0].1;
const TOGETHER: Chosen = SIDES[1].1;
const APART: Chosen = SIDES[2].1;

/// One load in all rounds.
struct OfLoad<'a> {
    load: Load,
    rounds: Vec<&'a LoadRound>,
}

impl OfLoad<'_> {
    /// Returns the throughput of a side in the second half of its time: the median of all rounds.
    fn tps(&self, side: Chosen) -> Option<f64> {
        let mean = |side: &Timeline| {
            let slices = settled(side);
            slices.iter().map(|slice| slice.tps).sum::<f64>() / slices.len().max(1) as f64
        };
        let mut all: Vec<f64> = self.rounds.iter().filter_map(|round| side(round)).map(mean).collect();
        (!all.is_empty()).then(|| median(&mut all))
    }

    fn pairs(&self, side: Chosen, other: Chosen) -> Pairs {
        let both = self.rounds.iter().filter_map(|round| side(round).zip(other(round)));
        Pairs(both.flat_map(|(side, other)| settled_pairs(side, other).0).collect())
    }

    /// Returns a side in the first round.
    fn first(&self, side: Chosen) -> Option<&Timeline> {
        self.rounds.first().and_then(|round| side(round))
    }
}

/// Returns the report of `adapt-apart`: medians and ratios of all rounds; owners and decisions of the first.
pub(super) fn report(setup: &Setup<'_>, rounds: &[Vec<LoadRound>]) -> Result<Report, CliError> {
    let of = |load| {
        let rounds = rounds.iter().flatten().filter(|round| round.load == load);
        OfLoad { load, rounds: rounds.collect() }
    };
    let loads: Vec<OfLoad<'_>> = Load::ALL.into_iter().map(of).collect();
    let bars = |of: &OfLoad<'_>| {
        let sides = SIDES.iter().filter_map(|(name, side)| Some((*name, of.tps(*side)?)));
        (of.load.name(), sides.collect())
    };
    let bars: Vec<(&str, Vec<(&str, f64)>)> = loads.iter().map(bars).collect();
    Ok(Report {
        text: text(setup, rounds.len(), &loads),
        json: json(&loads),
        csv: csv(rounds),
        svg: plot::bars(&plot::capitalized(TITLE), &bars)?,
    })
}

fn text(setup: &Setup<'_>, rounds: usize, loads: &[OfLoad<'_>]) -> String {
    let mut out = format!(
        "{TITLE}\n  {} subscribers, {} workers, {} sessions on each; numbers are of the second half of the time",
        count(setup.rows),
        setup.workers,
        setup.sessions
    );
    if rounds > 1 {
        // Writing to a string cannot fail.
        let _ = write!(out, ", medians of {rounds} rounds; owners and decisions of the first");
    }
    out.push_str("\n\n");
    let header = ["load", "static tps", "together tps", "over static", "apart tps", "over static"];
    let mut lines = vec![header.into_iter().chain(["apart over together"]).map(str::to_owned).collect()];
    let shown = |tps: Option<f64>| tps.map_or_else(|| "-".to_owned(), rate);
    for of in loads {
        let over = |side: Chosen, other: Chosen| ratio(of.pairs(side, other).ratio());
        lines.push(vec![
            of.load.name().to_owned(),
            shown(of.tps(STATIC)),
            shown(of.tps(TOGETHER)),
            over(TOGETHER, STATIC),
            shown(of.tps(APART)),
            over(APART, STATIC),
            over(APART, TOGETHER),
        ]);
    }
    out.push_str(&columns(&lines));
    let ratios: Vec<Ratio> = loads.iter().flat_map(ratios).filter_map(|(_, pairs)| pairs.ratio()).collect();
    out.push_str(&certainty(&ratios, MORE));
    for of in loads {
        for (name, side) in &SIDES[1..] {
            let Some(timeline) = of.first(*side) else { continue };
            let _ = writeln!(out, "\n{}, tables {name}, at the end:", of.load.name());
            out.push_str(&owned(&owners(timeline)));
            out.push_str(&decisions::text(
                timeline.decisions.iter().map(|timed| (timed.time_s, &timed.event)),
            ));
        }
    }
    out
}

/// Returns the ratios of a load, by their keys in JSON.
fn ratios(of: &OfLoad<'_>) -> [(&'static str, Pairs); 3] {
    [
        ("together_over_static", of.pairs(TOGETHER, STATIC)),
        ("apart_over_static", of.pairs(APART, STATIC)),
        ("apart_over_together", of.pairs(APART, TOGETHER)),
    ]
}

/// Returns a line for each worker with the tables of which it has most, and shares of others.
fn owned(owners: &[Owners]) -> String {
    let mut out = String::new();
    let workers = owners.iter().map(|owner| owner.shares.len()).max().unwrap_or(0);
    for worker in 0..workers {
        let mut has = Vec::new();
        for owner in owners.iter().filter(|owner| owner.main() == worker) {
            let percent = 100.0 * owner.shares[worker];
            let name = owner.tables.join(" + ");
            has.push(if percent > 99.5 { name } else { format!("{name} ({percent:.0}%)") });
        }
        let has = if has.is_empty() { "the greater part of no table".to_owned() } else { has.join(", ") };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "owners      worker {worker}: {has}");
    }
    out
}

fn json(loads: &[OfLoad<'_>]) -> Value {
    let phases: Vec<Value> = loads.iter().map(of_load).collect();
    let mut decided = Vec::new();
    for of in loads {
        for (name, side) in SIDES {
            for TimedDecision { time_s, event } in of.first(side).iter().flat_map(|side| &side.decisions) {
                let mut decision = decisions::json(event, *time_s);
                decision["phase"] = json!(of.load.name());
                decision["side"] = json!(name);
                decided.push(decision);
            }
        }
    }
    json!({ "title": TITLE, "phases": phases, "decisions": decided })
}

fn of_load(of: &OfLoad<'_>) -> Value {
    let over_static = of.pairs(APART, STATIC).ratio();
    let tps = of.tps(STATIC).unwrap_or_default();
    let mut value = phase(of.load.name(), tps, of.tps(APART), over_static);
    value["together_tps"] = json!(of.tps(TOGETHER));
    value["apart_tps"] = json!(of.tps(APART));
    for (key, pairs) in ratios(of) {
        let ratio = pairs.ratio();
        value[key] = json!(ratio.map(|ratio| ratio.value));
        value[format!("{key}_interval")] = json!(ratio.and_then(|ratio| ratio.interval));
    }
    for (name, side) in &SIDES[1..] {
        let owners = of.first(*side).map(owners).unwrap_or_default();
        let shown = |owner: &Owners| json!({ "tables": owner.tables, "shares": owner.shares });
        value[format!("{name}_owners")] = owners.iter().map(shown).collect();
    }
    value
}

/// Returns the throughput over time, of all rounds.
fn csv(rounds: &[Vec<LoadRound>]) -> String {
    let mut out = "time_s,load,side,tps\n".to_owned();
    for round in rounds.iter().flatten() {
        for (name, side) in SIDES {
            for sample in side(round).iter().flat_map(|side| &side.samples) {
                // Writing to a string cannot fail.
                let _ =
                    writeln!(out, "{:.3},\"{}\",{name},{:.0}", sample.time_s, round.load.name(), sample.tps);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_named_by_worker() {
        let of = |tables: &[&str], shares: &[f64]| Owners {
            tables: tables.iter().map(|table| (*table).to_owned()).collect(),
            shares: shares.to_vec(),
        };
        let all = [of(&["a", "b"], &[1.0, 0.0]), of(&["c"], &[0.25, 0.75])];
        assert_eq!(owned(&all), "owners      worker 0: a + b\nowners      worker 1: c (75%)\n");
        assert!(owned(&all[..1]).ends_with("worker 1: the greater part of no table\n"));
    }
}
