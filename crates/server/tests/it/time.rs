//! Limits of time, and ends that others ask for.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use atrapos_server::SlowLog;

use crate::raw::{Message, Raw, Running, message, tags};

/// Sends a query, and returns the answer up to ReadyForQuery.
async fn ask(raw: &mut Raw, query: &str) -> Vec<Message> {
    raw.send(&message(b'Q', format!("{query}\0").as_bytes())).await;
    raw.until_ready().await
}

fn error(answer: &[Message]) -> (String, String) {
    answer.iter().find(|message| message.tag == b'E').expect("an error").error()
}

async fn with_table(running: &Running) -> Raw {
    let (mut raw, _) = Raw::logged_in(running.address()).await;
    let made = ask(&mut raw, "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 0)").await;
    assert_eq!(tags(&made), "CCZ");
    raw
}

#[tokio::test]
async fn statements_have_a_time() {
    let running = Running::start(|_| {});
    let (mut raw, _) = Raw::logged_in(running.address()).await;
    ask(&mut raw, "SET statement_timeout = '50ms'").await;
    // One that runs and never waits, on no table.
    let endless = "SELECT count(*) FROM generate_series(1, 40000000) a WHERE a % 7 = 3";
    assert_eq!(error(&ask(&mut raw, endless).await), ("ERROR".to_owned(), "57014".to_owned()));
    // One that waits for a lock.
    let mut holder = with_table(&running).await;
    ask(&mut holder, "BEGIN; UPDATE t SET n = 1 WHERE id = 1").await;
    let waited = ask(&mut raw, "UPDATE t SET n = 2 WHERE id = 1").await;
    assert_eq!(error(&waited), ("ERROR".to_owned(), "57014".to_owned()));
    let text = waited[0].field(b'M').expect("a message");
    assert_eq!(text, "canceling statement due to statement timeout");
    // The session goes on, and a statement that is short enough is served.
    assert_eq!(tags(&ask(&mut raw, "SELECT 1").await), "TDCZ");
}

#[tokio::test]
async fn waits_for_locks_have_a_time() {
    let running = Running::start(|_| {});
    let mut holder = with_table(&running).await;
    ask(&mut holder, "BEGIN; UPDATE t SET n = 1 WHERE id = 1").await;
    let (mut raw, _) = Raw::logged_in(running.address()).await;
    ask(&mut raw, "SET lock_timeout = 40").await;
    let waited = ask(&mut raw, "SELECT n FROM t WHERE id = 1").await;
    assert_eq!(error(&waited), ("ERROR".to_owned(), "55P03".to_owned()));
    ask(&mut holder, "COMMIT").await;
    assert_eq!(tags(&ask(&mut raw, "SELECT n FROM t WHERE id = 1").await), "TDCZ");
}

#[tokio::test]
async fn transactions_do_not_wait_for_their_clients_for_ever() {
    let running = Running::start(|_| {});
    let mut idle = with_table(&running).await;
    ask(&mut idle, "SET idle_in_transaction_session_timeout = '30ms'").await;
    ask(&mut idle, "BEGIN; UPDATE t SET n = 1 WHERE id = 1").await;
    let (mut other, _) = Raw::logged_in(running.address()).await;
    // It waits for the lock until the idle session has ended.
    let freed = ask(&mut other, "UPDATE t SET n = n + 5 WHERE id = 1 RETURNING n").await;
    assert_eq!(tags(&freed), "TDCZ");
    assert!(freed[1].body.ends_with(b"5"), "what was open is undone: {freed:?}");
    let end = idle.until_end().await;
    assert_eq!(end.last().expect("an error").error(), ("FATAL".to_owned(), "25P03".to_owned()));
}

#[tokio::test]
async fn sessions_are_cancelled_and_ended_by_statements() {
    let running = Running::start(|_| {});
    let mut holder = with_table(&running).await;
    let pid = |answer: &[Message]| {
        let row = answer.iter().find(|message| message.tag == b'D').expect("a row");
        String::from_utf8(row.body[6..].to_vec()).expect("a number")
    };
    ask(&mut holder, "BEGIN; UPDATE t SET n = 1 WHERE id = 1").await;
    let (mut waiting, _) = Raw::logged_in(running.address()).await;
    let waiting_pid = pid(&ask(&mut waiting, "SELECT pg_backend_pid()").await);
    let holder_pid = pid(&ask(&mut holder, "SELECT pg_backend_pid()").await);
    let (mut admin, _) = Raw::logged_in(running.address()).await;
    waiting.send(&message(b'Q', b"UPDATE t SET n = 2 WHERE id = 1\0")).await;
    // A request that comes before the statement does is forgotten: it is made until it has met one.
    let cancelled = loop {
        assert_eq!(tags(&ask(&mut admin, &format!("SELECT pg_cancel_backend({waiting_pid})")).await), "TDCZ");
        if let Ok(answer) = tokio::time::timeout(Duration::from_millis(20), waiting.until_ready()).await {
            break answer;
        }
    };
    assert_eq!(error(&cancelled), ("ERROR".to_owned(), "57014".to_owned()));
    // An idle session ends, and with it its transaction.
    let ended = ask(&mut admin, &format!("SELECT pg_terminate_backend({holder_pid})")).await;
    assert!(ended[1].body.ends_with(b"t"), "{ended:?}");
    let last = holder.until_end().await;
    assert_eq!(last.last().expect("an error").error(), ("FATAL".to_owned(), "57P01".to_owned()));
    assert_eq!(tags(&ask(&mut waiting, "UPDATE t SET n = 2 WHERE id = 1").await), "CZ");
    let nobody = ask(&mut admin, "SELECT pg_terminate_backend(123456)").await;
    assert!(nobody[1].body.ends_with(b"f"), "{nobody:?}");
    // A session that ends itself is told so.
    admin.send(&message(b'Q', b"SELECT pg_terminate_backend(pg_backend_pid())\0")).await;
    let own = admin.until_end().await;
    assert_eq!(own.last().expect("an error").error(), ("FATAL".to_owned(), "57P01".to_owned()));
}

#[tokio::test]
async fn slow_statements_are_logged() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&lines);
    let running = Running::start(|options| {
        let sink = move |line: &str| kept.lock().expect("lines").push(line.to_owned());
        options.slow_log = Some(SlowLog { limit: Duration::ZERO, sink: Arc::new(sink) });
    });
    let (mut raw, _) = Raw::logged_in(running.address()).await;
    ask(&mut raw, "SELECT 1\n, 2").await;
    let parts = [
        message(b'P', b"\0SELECT $1::int\0\0\0"),
        message(b'B', b"\0\0\0\0\0\x01\0\0\0\x0242\0\0"),
        message(b'E', b"\0\0\0\0\0"),
        message(b'S', b""),
    ];
    raw.send(&parts.concat()).await;
    assert_eq!(tags(&raw.until_ready().await), "12DCZ");
    let lines = lines.lock().expect("lines");
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[0].starts_with("slow statement: duration=") && lines[0].ends_with("statement=SELECT 1 , 2")
    );
    assert!(lines[1].ends_with("statement=SELECT $1::int"), "no value of a parameter: {lines:?}");
}
