//! The result of the experiment with the steps from PLP to ATraPos.
//!
//! Owns: the words, columns and keys. Never: measures.

use std::fmt::Write;

use atrapos_cli::error::CliError;
use atrapos_cli::table::{columns, count, rate};
use atrapos_experiments::Setup;
use atrapos_experiments::ladder::{Rung, RungResult};
use serde_json::{Value, json};

use super::costs::phase;
use super::{Report, plot};

/// Returns the report of `atrapos-fig6`.
pub(super) fn report(setup: &Setup<'_>, results: &[RungResult]) -> Result<Report, CliError> {
    let plp = results.iter().find(|result| result.rung == Rung::Plp).map(RungResult::tps);
    let over_plp = |result: &RungResult| plp.filter(|plp| *plp > 0.0).map(|plp| result.tps() / plp);
    let mut csv = "round,rung,tps,central_accesses,remote_actions\n".to_owned();
    for result in results {
        for (round, run) in result.runs.iter().enumerate() {
            let (name, tps) = (result.rung.name(), run.tps);
            // Writing to a string cannot fail.
            let _ = writeln!(
                csv,
                "{round},{name},{tps:.0},{:.3},{:.3}",
                run.central_accesses, run.remote_actions
            );
        }
    }
    let phases: Vec<Value> = results.iter().map(|result| json(result, over_plp(result))).collect();
    Ok(Report {
        text: text(setup, results, over_plp),
        json: json!({ "title": "from PLP to ATraPos", "phases": phases, "decisions": [] }),
        csv,
        svg: plot::ladder(results)?,
    })
}

fn text(setup: &Setup<'_>, results: &[RungResult], over_plp: impl Fn(&RungResult) -> Option<f64>) -> String {
    let rounds = results.first().map_or(0, |result| result.runs.len());
    let mut text = format!(
        "from PLP to ATraPos: a row of A and the row of B that belongs to it (ATraPos, Figure 6)\n  {} rows in each table, {} workers, \
         {} sessions on each, medians of {rounds} rounds\n\n",
        count(setup.rows),
        setup.workers,
        setup.sessions,
    );
    let header = ["rung", "tps", "least", "most", "over plp", "shared accesses", "remote actions"];
    let mut lines = vec![header.map(str::to_owned).to_vec()];
    for result in results {
        let (least, most) = result.spread();
        lines.push(vec![
            result.rung.name().to_owned(),
            rate(result.tps()),
            rate(least),
            rate(most),
            over_plp(result).map_or_else(|| "-".to_owned(), |over| format!("{over:.2}")),
            format!("{:.2}", result.median(|run| run.central_accesses)),
            format!("{:.2}", result.median(|run| run.remote_actions)),
        ]);
    }
    text.push_str(&columns(&lines));
    text.push_str("\nshared accesses and remote actions are those of one transaction\n");
    text
}

fn json(result: &RungResult, over_plp: Option<f64>) -> Value {
    let (least, most) = result.spread();
    let mut value = phase(result.rung.name(), result.tps(), None, None);
    value["tps_least"] = json!(least);
    value["tps_most"] = json!(most);
    value["over_plp"] = json!(over_plp);
    value["central_accesses"] = json!(result.median(|run| run.central_accesses));
    value["remote_actions"] = json!(result.median(|run| run.remote_actions));
    value["rounds"] = json!(result.runs.iter().map(|run| run.tps).collect::<Vec<_>>());
    value
}
