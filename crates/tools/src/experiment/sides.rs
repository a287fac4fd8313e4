//! The result of an experiment in which a condition changes: static and adaptive side by side.
//!
//! Owns: the words, columns and keys. Never: computes numbers that the comparison does not have.

use std::fmt::Write;

use atrapos_cli::decisions;
use atrapos_cli::error::CliError;
use atrapos_cli::table::{columns, count, rate};
use atrapos_experiments::Setup;
use atrapos_experiments::comparison::{CERTAIN_WIDTH, CONFIDENCE, Compared, Pairs, Ratio};
use atrapos_experiments::scenario::{Round, Scenario};
use atrapos_experiments::timeline::{TimedDecision, Timeline};
use atrapos_harness::median;
use serde_json::{Value, json};

use super::{Report, plot};

/// Returns the report of a scenario: the median of all rounds in numbers, the first round in the drawing.
pub(super) fn report(scenario: Scenario, setup: &Setup<'_>, rounds: &[Round]) -> Result<Report, CliError> {
    let phases = over_rounds(rounds);
    Ok(Report {
        text: text(scenario, setup, rounds, &phases),
        json: json(scenario, rounds, &phases),
        csv: csv(rounds),
        svg: rounds.first().map_or_else(|| Ok(String::new()), |round| plot::sides(scenario, round))?,
    })
}

/// Returns every phase over all rounds: the median of every number; ratios are those of the slices of all rounds.
fn over_rounds(rounds: &[Round]) -> Vec<Compared> {
    let phases = rounds.first().map_or(0, |round| round.compared.len());
    let of_phase = |phase: usize| -> Option<Compared> {
        let all: Vec<&Compared> = rounds.iter().filter_map(|round| round.compared.get(phase)).collect();
        // A round without the number counts as much as a round with it.
        let most_have = |having: usize| having * 2 > all.len();
        let over = |number: &dyn Fn(&Compared) -> Option<f64>| {
            let mut numbers: Vec<f64> = all.iter().filter_map(|compared| number(compared)).collect();
            most_have(numbers.len()).then(|| median(&mut numbers))
        };
        let pooled = |pairs: &dyn Fn(&Compared) -> &Pairs| {
            let having = all.iter().filter(|compared| !pairs(compared).0.is_empty()).count();
            let pairs = all.iter().flat_map(|compared| pairs(compared).0.iter().copied());
            Pairs(if most_have(having) { pairs.collect() } else { Vec::new() })
        };
        let first = (*all.first()?).clone();
        Some(Compared {
            static_tps: over(&|compared| Some(compared.static_tps))?,
            if_even: over(&|compared| compared.if_even),
            adaptive_tps: over(&|compared| compared.adaptive_tps),
            whole: pooled(&|compared| &compared.whole),
            adapted_after_s: over(&|compared| compared.adapted_after_s),
            adapted_tps: over(&|compared| compared.adapted_tps),
            adapted: pooled(&|compared| &compared.adapted),
            reference_tps: over(&|compared| compared.reference_tps),
            to_reference: pooled(&|compared| &compared.to_reference),
            ..first
        })
    };
    (0..phases).filter_map(of_phase).collect()
}

/// Writes a ratio with its interval; marked, if that is wide.
pub(super) fn ratio(ratio: Option<Ratio>) -> String {
    let Some(ratio) = ratio else { return "-".to_owned() };
    let mark = if ratio.is_uncertain() { "*" } else { "" };
    let interval = ratio.interval.map(|(low, high)| format!(" ({low:.2}-{high:.2})")).unwrap_or_default();
    format!("{:.2}{interval}{mark}", ratio.value)
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
    let mut header = vec!["phase", "from s", "static tps", "if even", "adaptive tps", "ratio", "worst slice"];
    header.extend(["adapted after s", "adapted tps", "ratio then"]);
    let reference = scenario.reference().map(|what| [format!("{what} tps"), "ratio to it".to_owned()]);
    let mut lines = vec![header.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    lines[0].extend(reference.iter().flatten().cloned());
    for phase in phases {
        let mut line = vec![
            phase.name.to_owned(),
            format!("{:.1}", phase.begin_s),
            rate(phase.static_tps),
            or_none(phase.if_even.map(|factor| format!("{factor:.2}"))),
            or_none(phase.adaptive_tps.map(rate)),
            ratio(phase.whole.ratio()),
            or_none(phase.whole.worst().map(|worst| format!("{worst:.2}"))),
            or_none(phase.adapted_after_s.map(|after| format!("{after:.1}"))),
            or_none(phase.adapted_tps.map(rate)),
            ratio(phase.adapted.ratio()),
        ];
        if reference.is_some() {
            line.push(or_none(phase.reference_tps.map(rate)));
            line.push(ratio(phase.to_reference.ratio()));
        }
        lines.push(line);
    }
    out.push_str(&columns(&lines));
    let ratios = phases.iter().flat_map(|phase| [&phase.whole, &phase.adapted, &phase.to_reference]);
    out.push_str(&certainty(&ratios.filter_map(Pairs::ratio).collect::<Vec<_>>(), MORE));
    out.push_str(
        "if even: what balance alone can gain, the static side's busiest worker over the mean of all\n",
    );
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

/// Options that make the intervals of ratios of slices narrower.
pub(super) const MORE: &str = "--rounds or --seconds-per-phase";

/// Says what the intervals of these ratios mean, if there are any, and that `more` of something makes them narrower.
pub(super) fn certainty(ratios: &[Ratio], more: &str) -> String {
    let mut out = String::new();
    if !ratios.is_empty() {
        let _ = writeln!(
            out,
            "\nin parentheses: the interval that has the true ratio with {:.0}% confidence",
            100.0 * CONFIDENCE
        );
    }
    if ratios.iter().any(Ratio::is_uncertain) {
        let _ = writeln!(
            out,
            "* uncertain: the interval is wider than {:.0}% of the ratio, or not known; more {more} narrow it, unless the \
             phase is one in which a side changed",
            100.0 * CERTAIN_WIDTH
        );
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
    let value = |pairs: &Pairs| pairs.ratio().map(|ratio| ratio.value);
    let interval = |pairs: &Pairs| pairs.ratio().and_then(|ratio| ratio.interval);
    json!({
        "name": phase.name,
        "begin_s": phase.begin_s,
        "end_s": phase.end_s,
        "static_tps": phase.static_tps,
        "if_even": phase.if_even,
        "adaptive_tps": phase.adaptive_tps,
        "ratio": value(&phase.whole),
        "ratio_interval": interval(&phase.whole),
        "adapted_after_s": phase.adapted_after_s,
        "adapted_tps": phase.adapted_tps,
        "adapted_ratio": value(&phase.adapted),
        "adapted_ratio_interval": interval(&phase.adapted),
        "worst_ratio": phase.whole.worst(),
        "reference_tps": phase.reference_tps,
        "reference_ratio": value(&phase.to_reference),
        "reference_ratio_interval": interval(&phase.to_reference),
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
        let pairs = |is: bool| Pairs(if is { vec![(2.0 * static_tps, static_tps)] } else { Vec::new() });
        Compared {
            name: "phase",
            begin_s: 0.0,
            end_s: 1.0,
            static_tps,
            if_even: None,
            adaptive_tps: Some(2.0 * static_tps),
            whole: pairs(true),
            adapted_after_s,
            adapted_tps: None,
            adapted: pairs(adapted_after_s.is_some()),
            reference_tps: None,
            to_reference: Pairs::default(),
            repartitionings: 1,
        }
    }

    #[test]
    fn the_rounds_count_together() {
        let round =
            |static_tps, after| Round { compared: vec![compared(static_tps, after)], ..Round::default() };
        let rounds = [round(10.0, Some(1.0)), round(30.0, None), round(20.0, Some(3.0))];
        let phases = over_rounds(&rounds);
        assert_eq!(phases.len(), 1);
        assert_eq!((phases[0].static_tps, phases[0].adaptive_tps), (20.0, Some(40.0)));
        assert_eq!(phases[0].adapted_after_s, Some(2.0), "two of three rounds have adapted");
        assert_eq!((phases[0].whole.0.len(), phases[0].adapted.0.len()), (3, 2));
        assert_eq!(ratio(phases[0].whole.ratio()), "2.00 (2.00-2.00)");
        let of_two = over_rounds(&rounds[..2]);
        assert_eq!(of_two[0].adapted_after_s, None, "one of two rounds has not");
        assert_eq!(ratio(of_two[0].adapted.ratio()), "-");
        assert_eq!(
            ratio(over_rounds(&rounds[..1])[0].whole.ratio()),
            "2.00*",
            "nothing is known from one slice"
        );
    }
}
