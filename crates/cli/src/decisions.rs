//! The decisions of an adaptive database, as text and as JSON.
//!
//! Owns: the wording around them; each decision describes itself and its reason. Never: judges them.

use std::fmt::Write;

use atrapos::AdaptationEvent;
use atrapos_adapt::ControlAction;
use serde_json::{Value, json};

/// Returns the time of a decision, in seconds since the database was opened.
pub fn opened_s(event: &AdaptationEvent) -> f64 {
    event.decision.at_ns as f64 / 1e9
}

/// Returns one decision, made at `time_s`, as JSON.
pub fn json(event: &AdaptationEvent, time_s: f64) -> Value {
    let mut value = serde_json::to_value(&event.decision).unwrap_or_default();
    let more = json!({
        "time_s": time_s,
        "sentence": event.decision.to_string(),
        "repartitioned": event.decision.is_repartition(),
        "report": event.report.map(|report| json!({
            "splits": report.splits,
            "merges": report.merges,
            "moves": report.moves,
            "owner_time_us": report.owner_time.as_secs_f64() * 1e6,
            "longest_us": report.longest.as_secs_f64() * 1e6,
        })),
        "failure": event.failure,
    });
    if let (Some(value), Value::Object(more)) = (value.as_object_mut(), more) {
        value.extend(more);
    }
    value
}

/// Returns all decisions, each a sentence; decisions to wait are only counted. Empty if there are none.
pub fn text<'a>(decisions: impl Iterator<Item = (f64, &'a AdaptationEvent)>) -> String {
    let (mut out, mut waited) = (String::new(), 0);
    // Writing to a string cannot fail.
    for (time_s, event) in decisions {
        if event.decision.action == ControlAction::Wait && event.failure.is_none() {
            waited += 1;
            continue;
        }
        let _ = write!(out, "  {time_s:6.1} s  {}", event.decision);
        if let Some(report) = &event.report {
            let _ = write!(
                out,
                " Done: {} splits, {} merges, {} moves; owners did nothing else for {:.2} ms in all, {:.0} us at once.",
                report.splits,
                report.merges,
                report.moves,
                report.owner_time.as_secs_f64() * 1e3,
                report.longest.as_secs_f64() * 1e6
            );
        }
        if let Some(failure) = &event.failure {
            let _ = write!(out, " That failed: {failure}.");
        }
        out.push('\n');
    }
    let waited = match waited {
        0 if out.is_empty() => return out,
        0 => String::new(),
        1 => "; once there was no reason to think about it".to_owned(),
        waited => format!("; {waited} times there was no reason to think about it"),
    };
    format!("decisions   {}{waited}\n{out}", out.lines().count())
}
