//! Pages for people and machines that watch a server: the dashboard and the JSON that it shows ([`api`]), `/metrics` in the text format of
//! Prometheus, and `/health`.
//!
//! Owns: as much of HTTP/1.1 as these take: one GET on a connection. Never: changes anything. On the threads of the server, not on those
//! of workers.
//!
//! Invariants: a client that sends too much, or nothing, is dropped; there are at most [`MOST_AT_A_TIME`] of them. Whatever tells of data
//! (keys, statements) or of the load asks for the token; files that are the same for everybody do not.

mod api;
mod monitor;
mod pages;
mod token;

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::metrics;
use crate::server::Shared;
use crate::shutdown::Phase;

pub(crate) use self::monitor::Monitor;
pub(crate) use self::token::Tokens;

const MOST_AT_A_TIME: usize = 32;
/// The longest request, in bytes: browsers add what other programs on the same host have left with them.
const MOST_BYTES: usize = 16 << 10;
/// The time that a request and its answer may take together.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause after a connection could not be taken.
const PAUSE: Duration = Duration::from_millis(50);

/// The headers of every answer: the page takes nothing from elsewhere, is not shown inside of others, and is not kept.
const HEADERS: &str = "Cache-Control: no-store\r\n\
    Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
    Cross-Origin-Resource-Policy: same-origin\r\n\
    Referrer-Policy: no-referrer\r\n\
    X-Content-Type-Options: nosniff\r\n\
    Connection: close\r\n";

const PLAIN: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// An answer.
pub(crate) struct Answer {
    status: &'static str,
    content_type: &'static str,
    body: Vec<u8>,
}

impl Answer {
    fn ok(content_type: &'static str, body: impl Into<Vec<u8>>) -> Answer {
        Answer { status: "200 OK", content_type, body: body.into() }
    }

    fn refusal(status: &'static str, why: &str) -> Answer {
        Answer { status, content_type: PLAIN, body: format!("{why}\n").into_bytes() }
    }

    fn head(&self) -> String {
        let asks = if self.status.starts_with("401") { "WWW-Authenticate: Bearer\r\n" } else { "" };
        format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{asks}{HEADERS}\r\n",
            self.status,
            self.content_type,
            self.body.len()
        )
    }
}

/// Answers requests until the runtime ends.
pub(crate) async fn serve(shared: Arc<Shared>, listener: TcpListener) {
    tokio::spawn(monitor::keep_history(Arc::clone(&shared)));
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

async fn answer(shared: &Arc<Shared>, mut stream: TcpStream) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if request.len() > MOST_BYTES || stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let answer = page(shared, &request).await;
    stream.write_all(&[answer.head().as_bytes(), &answer.body].concat()).await?;
    stream.shutdown().await
}

async fn page(shared: &Arc<Shared>, request: &[u8]) -> Answer {
    let line = request.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ');
    let (method, target) = (words.next(), words.next().unwrap_or_default());
    if method != Some(b"GET") {
        return Answer::refusal("405 Method Not Allowed", "only GET is answered");
    }
    let target = String::from_utf8_lossy(target);
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    if path == "/health" {
        return health(shared);
    }
    if let Some((content_type, file)) = pages::file(path) {
        return Answer::ok(content_type, file);
    }
    if path == "/metrics" {
        if !shared.tokens.may_read_metrics(request) {
            return unauthorized();
        }
        let text = metrics::text(&metrics::read(shared));
        return Answer::ok("text/plain; version=0.0.4; charset=utf-8", text);
    }
    if !path.starts_with("/api/") {
        return not_found();
    }
    if !shared.tokens.may_read_all(request) {
        return unauthorized();
    }
    match path {
        "/api/v1/status" => api::status(shared).await,
        "/api/v1/history" => api::history(shared, query),
        "/api/v1/decisions" => api::decisions(shared, query),
        _ => not_found(),
    }
}

fn health(shared: &Shared) -> Answer {
    match *shared.phase.borrow() {
        Phase::Running => Answer::ok(PLAIN, "serving\n"),
        Phase::Draining | Phase::Ending => Answer::refusal("503 Service Unavailable", "ending"),
    }
}

fn unauthorized() -> Answer {
    let why = "the request carries no valid token: send 'Authorization: Bearer TOKEN'";
    Answer::refusal("401 Unauthorized", why)
}

fn not_found() -> Answer {
    let there_are = "there are / (the dashboard), /api/v1/status, /api/v1/history, /api/v1/decisions, /metrics and /health";
    Answer::refusal("404 Not Found", there_are)
}
