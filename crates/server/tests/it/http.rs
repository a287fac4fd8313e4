//! The pages for monitoring.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::raw::{Raw, Running};

async fn get(running: &Running, request: &str) -> String {
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
        "atrapos_transactions_aborted_total{reason=\"Deadlock\"} ",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    assert!(get(&running, "GET /health HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 200 OK\r\n"));
    running.server().drain();
    assert!(get(&running, "GET /health HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 503 "));
    assert!(get(&running, "GET / HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 404 "));
    assert!(get(&running, "POST /metrics HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 405 "));
    assert_eq!(get(&running, &"x".repeat(10_000)).await, "", "no request");
}
