//! The JSON of the dashboard (`docs/dashboard.md` describes it): `/api/v1/status`, `/api/v1/history` and `/api/v1/decisions`.
//!
//! Owns: the form of the answers; what they have in common with those to others who watch is [`atrapos_watch::report`]. Never: a number of its own: metrics are
//! those of `/metrics`, and rates those of two looks at the workers.
//!
//! Invariant: within version 1, members are added and none is removed or means something else.

use std::sync::Arc;

use atrapos_watch::report::{DecisionReport, MachineReport, Rates};
use serde_json::json;

use super::{Answer, JSON};
use crate::metrics;
use crate::server::Shared;
use crate::shutdown::Phase;

/// Answers with the state of the server, its metrics, and what the workers do.
pub(super) async fn status(shared: &Arc<Shared>) -> Answer {
    let look = match shared.monitor.look(shared).await {
        Ok(look) => look,
        Err(abort) => return Answer::refusal("503 Service Unavailable", &abort.to_string()),
    };
    let database = shared.database.database();
    let phase = match *shared.phase.borrow() {
        Phase::Running => "running",
        Phase::Draining => "draining",
        Phase::Ending => "ending",
    };
    answer(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "database": shared.database_name,
        "phase": phase,
        "uptime_seconds": shared.monitor.began.elapsed().as_secs_f64(),
        "metrics": metrics::read(shared),
        "machine": MachineReport::of(database.machine(), &look.activity),
        "activity": *look.activity,
        "rates": Rates::between(&look.earlier, &look.activity),
    }))
}

/// Answers with the samples after the one that the query names.
pub(super) fn history(shared: &Shared, query: &str) -> Answer {
    match after(query) {
        Ok(number) => answer(&json!({ "samples": shared.monitor.samples_after(number) })),
        Err(refusal) => refusal,
    }
}

/// Answers with the decisions after the one that the query names.
pub(super) fn decisions(shared: &Shared, query: &str) -> Answer {
    match after(query) {
        Ok(number) => {
            answer(&json!({ "decisions": DecisionReport::latest(shared.database.database(), number) }))
        }
        Err(refusal) => refusal,
    }
}

fn answer(value: &serde_json::Value) -> Answer {
    Answer::ok(JSON, value.to_string())
}

/// Returns the number in a query `after=N`, 0 if there is none.
fn after(query: &str) -> Result<u64, Answer> {
    let refusal = |part: &str| {
        let why = format!(
            "the query '{part}' is not known; it may be after=NUMBER, for what follows the one with that number"
        );
        Answer::refusal("400 Bad Request", &why)
    };
    let mut number = 0;
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let value = part.strip_prefix("after=").and_then(|value| value.parse().ok());
        number = value.ok_or_else(|| refusal(part))?;
    }
    Ok(number)
}
