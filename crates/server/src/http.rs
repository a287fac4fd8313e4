//! Pages for machines that watch a server: `/metrics` in the text format of Prometheus, and `/health`.
//!
//! Owns: as much of HTTP/1.1 as these take: one GET on a connection. Never: changes anything, or asks a worker: its numbers are read
//! where workers leave them.
//!
//! Invariant: a client that sends too much, or nothing, is dropped; there are at most [`MOST_AT_A_TIME`] of them.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use atrapos::AbortReason;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::server::Shared;
use crate::shutdown::Phase;

const MOST_AT_A_TIME: usize = 16;
/// The scheme of a token.
const BEARER: &[u8] = b"Bearer ";

/// The longest request, in bytes.
const MOST_BYTES: usize = 4 << 10;
/// The time that a request and its answer may take together.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause after a connection could not be taken.
const PAUSE: Duration = Duration::from_millis(50);

/// Answers requests until the runtime ends.
pub(crate) async fn serve(shared: Arc<Shared>, listener: TcpListener) {
    let places = Arc::new(Semaphore::new(MOST_AT_A_TIME));
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let _place = place;
            // Whoever has gone already needs no answer.
            let _ = tokio::time::timeout(PATIENCE, answer(&shared, stream)).await;
        });
    }
}

async fn answer(shared: &Shared, mut stream: TcpStream) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if request.len() > MOST_BYTES || stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let (status, body) = page(shared, &request);
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await?;
    stream.shutdown().await
}

fn page(shared: &Shared, request: &[u8]) -> (&'static str, String) {
    let line = request.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ');
    match (words.next(), words.next()) {
        (Some(b"GET"), Some(b"/metrics")) if !is_permitted(shared, request) => (
            "401 Unauthorized",
            "the request carries no valid token: send 'Authorization: Bearer TOKEN'\n".to_owned(),
        ),
        (Some(b"GET"), Some(b"/metrics")) => ("200 OK", metrics(shared)),
        (Some(b"GET"), Some(b"/health")) => match *shared.phase.borrow() {
            Phase::Running => ("200 OK", "serving\n".to_owned()),
            Phase::Draining | Phase::Ending => ("503 Service Unavailable", "ending\n".to_owned()),
        },
        (Some(b"GET"), _) => ("404 Not Found", "there are /metrics and /health\n".to_owned()),
        _ => ("405 Method Not Allowed", "only GET is answered\n".to_owned()),
    }
}

/// Returns true if a request may see the metrics. Tokens are compared in constant time.
fn is_permitted(shared: &Shared, request: &[u8]) -> bool {
    let Some(expected) = &shared.http_token else { return true };
    let lines = request.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let mut given = lines.filter_map(|line| {
        let at = line.iter().position(|&byte| byte == b':')?;
        let value = line[at + 1..].trim_ascii();
        let is_authorization = line[..at].eq_ignore_ascii_case(b"authorization");
        let (scheme, token) = value.split_at_checked(BEARER.len())?;
        (is_authorization && scheme.eq_ignore_ascii_case(BEARER)).then(|| token.trim_ascii())
    });
    // Of digests: bytes are compared that whoever asks does not choose.
    let digest = |bytes: &[u8]| ring::digest::digest(&ring::digest::SHA256, bytes);
    given.next().is_some_and(|given| {
        let (given, expected) = (digest(given), digest(expected.as_bytes()));
        given.as_ref().iter().zip(expected.as_ref()).fold(0, |rest, (a, b)| rest | (a ^ b)) == 0
    })
}

/// Returns the metrics: a name, its meaning, and its value or values.
fn metrics(shared: &Shared) -> String {
    let counters = &shared.counters;
    let engine = shared.database.database().statistics();
    let mut text = String::new();
    let mut metric = |name: &str, kind: &str, meaning: &str, value: u64| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP {name} {meaning}\n# TYPE {name} {kind}\n{name} {value}");
    };
    metric("atrapos_sessions", "gauge", "Clients that are logged in.", shared.admission.sessions() as u64);
    for (name, meaning, value) in [
        ("atrapos_connections_total", "Connections taken.", counters.connections.get()),
        ("atrapos_sessions_total", "Sessions begun.", counters.sessions.get()),
        (
            "atrapos_sessions_beside_workers_total",
            "Sessions served on the thread of a worker.",
            counters.beside_workers.get(),
        ),
        ("atrapos_failed_logins_total", "Log-ins that failed.", counters.failed_logins.get()),
        ("atrapos_too_many_clients_total", "Clients refused for want of a place.", counters.too_many.get()),
        ("atrapos_cancel_requests_total", "Cancel requests.", counters.cancel_requests.get()),
        ("atrapos_transactions_committed_total", "Transactions committed.", engine.committed),
        ("atrapos_transactions_retried_total", "Attempts repeated after a deadlock.", engine.retried),
        ("atrapos_actions_local_total", "Actions on the home of their transaction.", engine.local_actions),
        ("atrapos_actions_remote_total", "Actions sent to another worker.", engine.remote_actions),
        ("atrapos_lock_waits_total", "Lock requests that had to wait.", engine.lock_waits),
    ] {
        metric(name, "counter", meaning, value);
    }
    let name = "atrapos_transactions_aborted_total";
    let _ = writeln!(text, "# HELP {name} Transactions aborted, by reason.\n# TYPE {name} counter");
    for reason in AbortReason::ALL {
        let _ = writeln!(text, "{name}{{reason=\"{reason:?}\"}} {}", engine.aborted_for(reason));
    }
    text
}
