//! The result of an experiment in which a condition changes: static and adaptive side by side.
//!
//! Owns: the words, columns and keys. Never: computes numbers that the comparison does not have.

use std::fmt::Write;

use atrapos_harness::experiment::Setup;
use atrapos_harness::experiment::comparison::Compared;
use atrapos_harness::experiment::scenario::{Round, Scenario};
use atrapos_harness::experiment::timeline::{TimedDecision, Timeline};
use atrapos_harness::median;
use serde_json::{Value, json};

use super::{Report, plot};
use crate::decisions;
use crate::error::CliError;
use crate::table::{columns, count, rate};

/// Returns the report of a scenario: the median of all rounds in numbers, the first round in the drawing.
pub(super) fn report(scenario: Scenario, setup: &Setup<'_>, rounds: &[Round]) -> Result<Report, CliError> {
    let phases = medians(rounds);
    Ok(Report {
        text: text(scenario, setup, rounds, &phases),
        json: json(scenario, rounds, &phases),
        csv: csv(rounds),
        svg: rounds.first().map_or_else(|| Ok(String::new()), |round| plot::sides(scenario, round))?,
    })
}

/// Returns the median of every number of every phase over the rounds.
fn medians(rounds: &[Round]) -> Vec<Compared> {
    let phases = rounds.first().map_or(0, |round| round.compared.len());
    let of_phase = |phase: usize| -> Option<Compared> {
        let all: Vec<&Compared> = rounds.iter().filter_map(|round| round.compared.get(phase)).collect();
        let over = |number: &dyn Fn(&Compared) -> Option<f64>| {
            let mut numbers: Vec<f64> = all.iter().filter_map(|compared| number(compared)).collect();
            // A round without the number counts as much as a round with it.
            (numbers.len() * 2 > all.len()).then(|| median(&mut numbers))
        };
        let first = (*all.first()?).clone();
        Some(Compared {
            static_tps: over(&|compared| Some(compared.static_tps))?,
            adaptive_tps: over(&|compared| compared.adaptive_tps),
            ratio: over(&|compared| compared.ratio),
            adapted_after_s: over(&|compared| compared.adapted_after_s),
            adapted_tps: over(&|compared| compared.adapted_tps),
            adapted_ratio: over(&|compared| compared.adapted_ratio),
            worst_ratio: over(&|compared| compared.worst_ratio),
            reference_tps: over(&|compared| compared.reference_tps),
            reference_ratio: over(&|compared| compared.reference_ratio),
            ..first
        })
    };
    (0..phases).filter_map(of_phase).collect()
}

fn text(scenario: Scenario, setup: &Setup<'_>, rounds: &[Round], phases: &[Compared]) -> String {
    let mut out = format!(
        "{}\n  {} {}, {} workers, {} sessions on each",
        scenario.title(),
        count(setup.rows),
        scenario.rows_are(),
        setup.workers,
        setup.sessions
    );
    if rounds.len() > 1 {
        let _ = write!(out, "; medians of {} rounds, decisions of the first", rounds.len());
    }
    out.push_str("\n\n");
    let or_none = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
    let ratio = |number: Option<f64>| or_none(number.map(|number| format!("{number:.2}")));
    let mut header = vec!["phase", "from s", "static tps", "adaptive tps", "ratio", "worst second"];
    header.extend(["adapted after s", "adapted tps", "ratio then"]);
    let reference = scenario.reference().map(|what| [format!("{what} tps"), "ratio to it".to_owned()]);
    let mut lines = vec![header.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    lines[0].extend(reference.iter().flatten().cloned());
    for phase in phases {
        let mut line = vec![
            phase.name.to_owned(),
            format!("{:.1}", phase.begin_s),
            rate(phase.static_tps),
            or_none(phase.adaptive_tps.map(rate)),
            ratio(phase.ratio),
            ratio(phase.worst_ratio),
            or_none(phase.adapted_after_s.map(|after| format!("{after:.1}"))),
            or_none(phase.adapted_tps.map(rate)),
            ratio(phase.adapted_ratio),
        ];
        if reference.is_some() {
            line.push(or_none(phase.reference_tps.map(rate)));
            line.push(ratio(phase.reference_ratio));
        }
        lines.push(line);
    }
    out.push_str(&columns(&lines));
    let decisions = decisions_of(rounds.first());
    if !decisions.is_empty() {
        out.push('\n');
        out.push_str(&decisions::text(decisions.iter().map(|timed| (timed.time_s, &timed.event))));
    }
    if scenario == Scenario::Frequency {
        let intervals = rounds.first().and_then(|round| round.adaptive.as_ref()).map(intervals);
        let shown = intervals.unwrap_or_default();
        if !shown.is_empty() {
            out.push_str("\nintervals   ");
            let each: Vec<String> = shown
                .iter()
                .map(|(time_s, interval_s)| format!("{interval_s:.0} s at {time_s:.0}"))
                .collect();
            out.push_str(&each.join(", "));
            out.push('\n');
        }
    }
    out
}

fn decisions_of(round: Option<&Round>) -> &[TimedDecision] {
    round.and_then(|round| round.adaptive.as_ref()).map_or(&[], |adaptive| &adaptive.decisions)
}

/// Returns the times of the controller's decisions, and the time since the one before each: from the first phase on.
pub(super) fn intervals(adaptive: &Timeline) -> Vec<(f64, f64)> {
    let pairs = adaptive.decisions.windows(2);
    let intervals = pairs.map(|pair| (pair[1].time_s, pair[1].time_s - pair[0].time_s));
    intervals.filter(|(time_s, _)| *time_s > 0.0).collect()
}

fn json(scenario: Scenario, rounds: &[Round], phases: &[Compared]) -> Value {
    let phases: Vec<Value> = phases.iter().map(phase).collect();
    let first = rounds.first();
    let decided = |timed: &TimedDecision| decisions::json(&timed.event, timed.time_s);
    json!({
        "title": scenario.title(),
        "phases": phases,
        "decisions": decisions_of(first).iter().map(decided).collect::<Vec<_>>(),
        "intervals": first
            .and_then(|round| round.adaptive.as_ref())
            .map(|adaptive| intervals(adaptive)
                .into_iter()
                .map(|(time_s, interval_s)| json!({ "time_s": time_s, "interval_s": interval_s }))
                .collect::<Vec<_>>()),
        "reference": scenario.reference(),
        "rounds": rounds
            .iter()
            .map(|round| round.compared.iter().map(phase).collect::<Vec<_>>())
            .collect::<Vec<_>>(),
    })
}

fn phase(phase: &Compared) -> Value {
    json!({
        "name": phase.name,
        "begin_s": phase.begin_s,
        "end_s": phase.end_s,
        "static_tps": phase.static_tps,
        "adaptive_tps": phase.adaptive_tps,
        "ratio": phase.ratio,
        "adapted_after_s": phase.adapted_after_s,
        "adapted_tps": phase.adapted_tps,
        "adapted_ratio": phase.adapted_ratio,
        "worst_ratio": phase.worst_ratio,
        "reference_tps": phase.reference_tps,
        "reference_ratio": phase.reference_ratio,
        "repartitionings": phase.repartitionings,
    })
}

/// Returns the throughput over time, of all rounds.
fn csv(rounds: &[Round]) -> String {
    let mut out = "time_s,side,tps\n".to_owned();
    for round in rounds {
        let sides = [("static", Some(&round.fixed)), ("adaptive", round.adaptive.as_ref())];
        for (side, timeline) in sides {
            for sample in timeline.iter().flat_map(|timeline| &timeline.samples) {
                // Writing to a string cannot fail.
                let _ = writeln!(out, "{:.3},{side},{:.0}", sample.time_s, sample.tps);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(static_tps: f64, adapted_after_s: Option<f64>) -> Compared {
        Compared {
            name: "phase",
            begin_s: 0.0,
            end_s: 1.0,
            static_tps,
            adaptive_tps: Some(2.0 * static_tps),
            ratio: Some(2.0),
            adapted_after_s,
            adapted_tps: None,
            adapted_ratio: None,
            worst_ratio: None,
            reference_tps: None,
            reference_ratio: None,
            repartitionings: 1,
        }
    }

    #[test]
    fn the_median_of_the_rounds_counts() {
        let round =
            |static_tps, after| Round { compared: vec![compared(static_tps, after)], ..Round::default() };
        let rounds = [round(10.0, Some(1.0)), round(30.0, None), round(20.0, Some(3.0))];
        let medians = medians(&rounds);
        assert_eq!(medians.len(), 1);
        assert_eq!((medians[0].static_tps, medians[0].adaptive_tps), (20.0, Some(40.0)));
        assert_eq!(medians[0].adapted_after_s, Some(2.0), "two of three rounds have adapted");
        assert_eq!(super::medians(&rounds[..2])[0].adapted_after_s, None, "one of two rounds has not");
    }
}
