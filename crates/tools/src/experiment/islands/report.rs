//! The result of an experiment of islands as text, JSON and comma-separated values.
//!
//! Owns: the words, columns and keys. Never: measures.

use std::fmt::Write;

use atrapos_cli::error::CliError;
use atrapos_cli::json::COMMIT;
use atrapos_cli::table::{columns, count};
use atrapos_harness::median;
use serde_json::{Map, Value, json};

use super::super::Report;
use super::figures::{Measure, Quantity};
use super::{Measured, Study, draw};

/// The origin of a point; those of a simulated machine will have another one.
const MEASURED: &str = "measured";

/// The readings of one key in all rounds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
    rounds: Vec<f64>,
}

impl Measured<'_> {
    /// Returns the readings of a key; `None` if no round has any.
    pub(super) fn spread(&self, key: &str) -> Option<Spread> {
        let readings = self.rounds.iter().flatten().filter(|reading| reading.key == key);
        let rounds: Vec<f64> = readings.map(|reading| reading.value).collect();
        let mut sorted = rounds.clone();
        let median = median(&mut sorted);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        Some(Spread { median, least, most, rounds })
    }

    /// Returns the keys of all readings, each once.
    fn keys(&self) -> Vec<&str> {
        let mut keys: Vec<&str> = Vec::new();
        for reading in self.rounds.iter().flatten() {
            if !keys.contains(&reading.key.as_str()) {
                keys.push(&reading.key);
            }
        }
        keys
    }

    /// Returns the command that measures it; `None` if there is none.
    fn command(&self) -> Option<String> {
        match &self.point.measure {
            Measure::Bench(arguments) | Measure::Callgrind(arguments) => {
                Some(format!("atrapos {}", arguments.join(" ")))
            }
            Measure::Messages { .. } | Measure::Increments(_) => None,
        }
    }
}

/// Returns the report of an experiment.
pub(super) fn report(study: &Study<'_>) -> Result<Report, CliError> {
    Ok(Report { text: text(study), json: json(study), csv: csv(study), svg: draw::draw(study)? })
}

/// Returns a number with about three significant digits, or without any behind the point.
fn short(number: f64) -> String {
    match number {
        number if number >= 100.0 => count(number.round() as u64),
        number if number >= 10.0 => format!("{number:.1}"),
        number => format!("{number:.2}"),
    }
}

fn text(study: &Study<'_>) -> String {
    let figure = study.figure;
    let rounds = study.measured.first().map_or(0, |measured| measured.rounds.len());
    let mut text = format!(
        "{}: {} ({})\n  {} by {}, measured: medians of {rounds} rounds (least to most)\n\n",
        figure.name,
        figure.title,
        figure.after,
        figure.y.label(),
        figure.x,
    );
    let mut lines = vec![std::iter::once(figure.x.to_owned()).chain(figure.series.iter().cloned()).collect()];
    for (position, place) in figure.positions.iter().enumerate() {
        let mut line = vec![place.label.clone()];
        for series in 0..figure.series.len() {
            line.push(cell(study, series, position));
        }
        lines.push(line);
    }
    text.push_str(&columns(&lines));
    if study.measured.iter().any(|measured| study.is_oversubscribed(measured.point)) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "* oversubscribed: more workers than the {} processing units", study.cpus);
    }
    text.push_str(&details(study));
    text
}

/// Returns the point of a series at a position, as text.
fn cell(study: &Study<'_>, series: usize, position: usize) -> String {
    let here =
        |measured: &&Measured<'_>| measured.point.series == series && measured.point.position == position;
    let Some(measured) = study.measured.iter().find(here) else { return "-".to_owned() };
    let Some(spread) = measured.spread(study.figure.y.key()) else { return "-".to_owned() };
    let mark = if study.is_oversubscribed(measured.point) { "*" } else { "" };
    format!("{}{mark} ({} to {})", short(spread.median), short(spread.least), short(spread.most))
}

/// Returns what else was read, by point: medians, in a table for each kind of keys.
fn details(study: &Study<'_>) -> String {
    let drawn = [study.figure.y.key(), Quantity::Throughput.key(), Quantity::Time.key()];
    let mut tables: Vec<(&str, Vec<&str>)> = Vec::new();
    for key in study.measured.iter().flat_map(Measured::keys).filter(|key| !drawn.contains(key)) {
        let (kind, _) = key.split_once('.').unwrap_or(("", key));
        match tables.iter_mut().find(|(of, _)| *of == kind) {
            Some((_, keys)) if keys.contains(&key) => {}
            Some((_, keys)) => keys.push(key),
            None => tables.push((kind, vec![key])),
        }
    }
    tables.iter().map(|(kind, keys)| table(study, kind, keys)).collect()
}

/// Returns the medians of some keys by point.
fn table(study: &Study<'_>, kind: &str, keys: &[&str]) -> String {
    let figure = study.figure;
    let words = |key: &&str| {
        let name = key.rsplit('.').next().unwrap_or_default();
        name.trim_end_matches("_per_transaction").replace('_', " ")
    };
    let head = [figure.x.to_owned(), "series".to_owned()].into_iter();
    let mut lines: Vec<Vec<String>> = vec![head.chain(keys.iter().map(words)).collect()];
    for measured in &study.measured {
        let position = figure.positions[measured.point.position].label.clone();
        let of =
            |key: &&str| measured.spread(key).map_or_else(|| "-".to_owned(), |spread| short(spread.median));
        let head = [position, figure.series[measured.point.series].clone()].into_iter();
        lines.push(head.chain(keys.iter().map(of)).collect());
    }
    let kind = if kind.is_empty() { String::new() } else { format!("{kind} ") };
    format!("\n{kind}per {}\n{}", figure.y.unit(), columns(&lines))
}

fn json(study: &Study<'_>) -> Value {
    let figure = study.figure;
    let point = |measured: &Measured<'_>| {
        let position = &figure.positions[measured.point.position];
        let readings: Map<String, Value> = measured
            .keys()
            .into_iter()
            .filter_map(|key| Some((key.to_owned(), spread(&measured.spread(key)?))))
            .collect();
        json!({
            "series": figure.series[measured.point.series],
            "x": position.at,
            "label": position.label,
            "origin": MEASURED,
            "oversubscribed": study.is_oversubscribed(measured.point),
            "workers": measured.point.workers,
            "readings": readings,
            "command": measured.command(),
        })
    };
    json!({
        "experiment": figure.name,
        "after": figure.after,
        "title": figure.title,
        "x": figure.x,
        "y": figure.y.key(),
        "series": figure.series,
        "commit": COMMIT,
        "machine": study.machine,
        "config": study.config,
        "points": study.measured.iter().map(point).collect::<Vec<_>>(),
    })
}

fn spread(spread: &Spread) -> Value {
    json!({ "median": spread.median, "least": spread.least, "most": spread.most, "rounds": spread.rounds })
}

/// Returns one line for each reading of each round.
fn csv(study: &Study<'_>) -> String {
    let figure = study.figure;
    let mut out = "series,x,reading,round,value,origin,oversubscribed\n".to_owned();
    for measured in &study.measured {
        let (series, x) =
            (&figure.series[measured.point.series], &figure.positions[measured.point.position].label);
        let is_oversubscribed = study.is_oversubscribed(measured.point);
        for (round, readings) in measured.rounds.iter().enumerate() {
            for reading in readings {
                // Names of series may have commas. Writing to a string cannot fail.
                let (key, value) = (&reading.key, reading.value);
                let _ =
                    writeln!(out, "\"{series}\",{x},{key},{round},{value},{MEASURED},{is_oversubscribed}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::Reading;
    use super::super::figures::Point;
    use super::*;

    #[test]
    fn the_median_and_the_ends_of_the_rounds_are_shown() {
        let point =
            Point { series: 0, position: 0, workers: 1, measure: Measure::Bench(vec!["bench".to_owned()]) };
        let round = |value| vec![Reading::new("time_us", value), Reading::new("other", 1.0)];
        let rounds = vec![round(3.0), round(1.0), Vec::new(), round(2.0)];
        let measured = Measured { point: &point, rounds };
        let spread = measured.spread("time_us").expect("three rounds have it");
        assert_eq!((spread.least, spread.median, spread.most), (1.0, 2.0, 3.0));
        assert_eq!(spread.rounds, [3.0, 1.0, 2.0], "in the order in which they were made");
        assert_eq!(measured.spread("nothing"), None);
        assert_eq!(measured.keys(), ["time_us", "other"]);
        assert_eq!([0.123, 12.34, 1234.5].map(short), ["0.12", "12.3", "1,235"]);
    }
}
