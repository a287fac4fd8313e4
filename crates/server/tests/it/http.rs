//! The pages for monitoring.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::raw::{Raw, Running, message, tags};

pub(crate) async fn get(running: &Running, request: &str) -> String {
    let address = running.server().http_address().expect("an address");
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    // What is too long is not read to its end, and the system says so instead of an answer.
    let _ = stream.read_to_string(&mut answer).await;
    answer
}

#[tokio::test]
async fn sessions_are_counted_and_the_end_is_told() {
    let running = Running::start(|options| options.http = Some("127.0.0.1:0".parse().expect("an address")));
    let (_raw, _) = Raw::logged_in(running.address()).await;
    let metrics = get(&running, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
    for line in [
        "atrapos_sessions 1\n",
        "atrapos_connections_total 1\n",
        "atrapos_sessions_beside_workers_total 1\n",
        "atrapos_transactions_aborted_total{reason=\"Deadlock\"} ",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    assert!(get(&running, "GET /health HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 200 OK\r\n"));
    running.server().drain();
    assert!(get(&running, "GET /health HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 503 "));
    assert!(get(&running, "GET /no HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 404 "));
    assert!(get(&running, "POST /metrics HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 405 "));
    assert_eq!(get(&running, &"x".repeat(40_000)).await, "", "no request");
}

#[tokio::test]
async fn metrics_ask_for_a_token_if_there_is_one() {
    let running = Running::start(|options| {
        options.http = Some("127.0.0.1:0".parse().expect("an address"));
        options.http_token = Some("secret".to_owned());
    });
    for (header, status) in [
        ("", "401"),
        ("Authorization: Bearer wrong\r\n", "401"),
        ("Authorization: Basic secret\r\n", "401"),
        ("Authorization: Bearer secret\r\n", "200"),
        ("authorization:bearer   secret\r\n", "200"),
    ] {
        let answer = get(&running, &format!("GET /metrics HTTP/1.1\r\n{header}\r\n")).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{header}: {answer}");
    }
    assert!(get(&running, "GET /health HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_server_without_the_threads_of_workers_serves_on_its_own() {
    let running = Running::start(|options| {
        options.http = Some("127.0.0.1:0".parse().expect("an address"));
        options.worker_threads = None;
    });
    let (mut raw, _) = Raw::logged_in(running.address()).await;
    raw.send(&message(b'Q', b"CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)\0")).await;
    assert_eq!(tags(&raw.until_ready().await), "CCZ");
    let metrics = get(&running, "GET /metrics HTTP/1.1\r\n\r\n").await;
    assert!(metrics.contains("atrapos_sessions_beside_workers_total 0\n"), "{metrics}");
}
