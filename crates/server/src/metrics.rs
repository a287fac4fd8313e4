//! The numbers of a server, each with its name and meaning: the one list behind `/metrics`, the JSON of the dashboard and the page.
//!
//! Owns: names and meanings, and the text format of Prometheus. Never: asks a worker; the numbers are read where workers leave them.

use std::fmt::Write as _;

use atrapos::AbortReason;
use serde::Serialize;

use crate::server::Shared;

/// A number, or several that are told apart by a label.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) help: &'static str,
    pub(crate) values: Vec<Labelled>,
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// A number that only grows while the server runs.
    Counter,
    Gauge,
    Histogram,
}

/// A value of a metric.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Labelled {
    /// The end of the metric's name: `_sum`, for example.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) suffix: &'static str,
    /// The label and its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) label: Option<(&'static str, String)>,
    pub(crate) value: f64,
}

impl Labelled {
    fn new(label: &'static str, of: impl ToString, value: f64) -> Labelled {
        Labelled { suffix: "", label: Some((label, of.to_string())), value }
    }
}

fn one(name: &'static str, kind: Kind, help: &'static str, value: f64) -> Metric {
    several(name, kind, help, vec![Labelled { suffix: "", label: None, value }])
}

fn several(name: &'static str, kind: Kind, help: &'static str, values: Vec<Labelled>) -> Metric {
    Metric { name, kind, help, values }
}

/// Returns all metrics as they are now.
pub(crate) fn read(shared: &Shared) -> Vec<Metric> {
    let mut all = of_connections(shared);
    all.extend(of_transactions(shared));
    all.extend(of_workers(shared));
    all.extend(of_durability(shared));
    all.push(of_requests(shared));
    all
}

fn of_connections(shared: &Shared) -> Vec<Metric> {
    let counters = &shared.counters;
    let sessions = shared.admission.sessions() as f64;
    let counted = [
        ("atrapos_connections_total", "Connections taken.", &counters.connections),
        ("atrapos_sessions_total", "Sessions begun.", &counters.sessions),
        (
            "atrapos_sessions_beside_workers_total",
            "Sessions served on the thread of a worker.",
            &counters.beside_workers,
        ),
        ("atrapos_failed_logins_total", "Log-ins that failed.", &counters.failed_logins),
        ("atrapos_too_many_clients_total", "Clients refused for want of a place.", &counters.too_many),
        ("atrapos_cancel_requests_total", "Cancel requests.", &counters.cancel_requests),
    ];
    let counted = counted.map(|(name, help, count)| one(name, Kind::Counter, help, count.get() as f64));
    let mut all = vec![one("atrapos_sessions", Kind::Gauge, "Clients that are logged in.", sessions)];
    all.extend(counted);
    all
}

fn of_transactions(shared: &Shared) -> Vec<Metric> {
    let engine = shared.database.database().statistics();
    let counted = [
        ("atrapos_transactions_committed_total", "Transactions committed.", engine.committed),
        ("atrapos_transactions_retried_total", "Attempts repeated after a deadlock.", engine.retried),
        (
            "atrapos_transactions_held_back_total",
            "Transactions held back before they began, since deadlocks were frequent or many waited for locks.",
            engine.held_back,
        ),
        ("atrapos_actions_local_total", "Actions on the home of their transaction.", engine.local_actions),
        ("atrapos_actions_remote_total", "Actions sent to another worker.", engine.remote_actions),
        ("atrapos_locks_entered_total", "Locks entered in lock tables.", engine.locks_entered),
        ("atrapos_lock_waits_total", "Lock requests that had to wait.", engine.lock_waits),
    ];
    let mut all: Vec<Metric> =
        counted.into_iter().map(|(name, help, value)| one(name, Kind::Counter, help, value as f64)).collect();
    let aborted = AbortReason::ALL
        .iter()
        .map(|reason| Labelled::new("reason", format!("{reason:?}"), engine.aborted_for(*reason) as f64));
    all.push(several(
        "atrapos_transactions_aborted_total",
        Kind::Counter,
        "Transactions aborted, by reason.",
        aborted.collect(),
    ));
    all
}

fn of_workers(shared: &Shared) -> Vec<Metric> {
    let database = shared.database.database();
    let reports = database.worker_reports();
    let by_worker = |value: &dyn Fn(&atrapos::WorkerReport) -> f64| {
        let values = reports.iter().enumerate();
        values.map(|(worker, report)| Labelled::new("worker", worker, value(report))).collect()
    };
    let seconds = |ticks| database.duration_of(ticks).as_secs_f64();
    vec![
        several(
            "atrapos_worker_transactions_committed_total",
            Kind::Counter,
            "Transactions committed with their home on the worker.",
            by_worker(&|report| report.transactions.committed as f64),
        ),
        several(
            "atrapos_worker_busy_seconds_total",
            Kind::Counter,
            "Time in which the worker found work.",
            by_worker(&|report| seconds(report.runtime.busy_ticks)),
        ),
        several(
            "atrapos_worker_messages_sent_total",
            Kind::Counter,
            "Messages that the worker sent to workers.",
            by_worker(&|report| report.runtime.messages_sent as f64),
        ),
    ]
}

fn of_durability(shared: &Shared) -> Vec<Metric> {
    let Some(wal) = shared.database.database().wal_statistics() else { return Vec::new() };
    vec![
        one("atrapos_wal_bytes_total", Kind::Counter, "Bytes written to the WAL.", wal.bytes as f64),
        one("atrapos_wal_syncs_total", Kind::Counter, "Syncs of the WAL.", wal.syncs as f64),
        one(
            "atrapos_durability_lag_seconds",
            Kind::Gauge,
            "Time since the moment before which all commits are durable; 0 if all are.",
            wal.lag.as_secs_f64(),
        ),
    ]
}

fn of_requests(shared: &Shared) -> Metric {
    let counted = shared.latencies.read();
    let bucket =
        |le: String, count: u64| Labelled { suffix: "_bucket", label: Some(("le", le)), value: count as f64 };
    let mut values: Vec<Labelled> =
        counted.cumulative().into_iter().map(|(seconds, count)| bucket(seconds.to_string(), count)).collect();
    values.push(bucket("+Inf".to_owned(), counted.count()));
    values.push(Labelled { suffix: "_sum", label: None, value: counted.seconds() });
    values.push(Labelled { suffix: "_count", label: None, value: counted.count() as f64 });
    several(
        "atrapos_request_seconds",
        Kind::Histogram,
        "Time from the first message of a client's request to the end of its answer.",
        values,
    )
}

/// Returns metrics in the text format of Prometheus.
pub(crate) fn text(metrics: &[Metric]) -> String {
    let mut text = String::new();
    for Metric { name, kind, help, values } in metrics {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for Labelled { suffix, label, value } in values {
            let _ = match label {
                Some((label, of)) => writeln!(text, "{name}{suffix}{{{label}=\"{of}\"}} {value}"),
                None => writeln!(text, "{name}{suffix} {value}"),
            };
        }
    }
    text
}
