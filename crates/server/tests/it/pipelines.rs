//! Pipelines: statements that wait for those behind them, and the order of what is told to the client.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use atrapos_server::SlowLog;

use crate::raw::{Message, Raw, Running, message, tags};

fn parse(name: &str, text: &str) -> Vec<u8> {
    message(b'P', format!("{name}\0{text}\0\0\0").as_bytes())
}

/// Binds the portal without a name to a statement with one parameter.
fn bind(statement: &str, parameter: &str) -> Vec<u8> {
    let mut body = format!("\0{statement}\0").into_bytes();
    body.extend_from_slice(&[0, 0, 0, 1]);
    body.extend_from_slice(&u32::try_from(parameter.len()).expect("short").to_be_bytes());
    body.extend_from_slice(parameter.as_bytes());
    body.extend_from_slice(&[0, 0]);
    message(b'B', &body)
}

fn describe() -> Vec<u8> {
    message(b'D', b"P\0")
}

fn execute() -> Vec<u8> {
    message(b'E', b"\0\0\0\0\0")
}

fn sync() -> Vec<u8> {
    message(b'S', b"")
}

async fn query(raw: &mut Raw, text: &str) -> Vec<Message> {
    raw.send(&message(b'Q', &[text.as_bytes(), b"\0"].concat())).await;
    raw.until_ready().await
}

/// The only column of the only row of an answer.
async fn value(raw: &mut Raw, text: &str) -> String {
    let answer = query(raw, text).await;
    let row = answer.iter().find(|message| message.tag == b'D').expect("a row");
    String::from_utf8_lossy(&row.body[6..]).into_owned()
}

async fn prepared(raw: &mut Raw) {
    let made =
        query(raw, "CREATE TABLE t(id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 10), (2, 0)").await;
    assert_eq!(tags(&made), "CCZ");
    let round = [
        parse("add", "UPDATE t SET n = n + 1 WHERE id = $1"),
        parse("read", "SELECT n FROM t WHERE id = $1"),
        parse("divide", "SELECT 10 / n FROM t WHERE id = $1"),
        sync(),
    ];
    raw.send(&round.concat()).await;
    assert_eq!(tags(&raw.until_ready().await), "111Z");
}

#[tokio::test]
async fn answers_are_where_their_statements_are() {
    let running = Running::start(|_| ());
    let (mut raw, _) = Raw::logged_in(running.address()).await;
    prepared(&mut raw).await;
    for (round, wanted) in [
        (vec![bind("add", "1"), execute(), bind("read", "1"), describe(), execute(), sync()], "2C2TDCZ"),
        (vec![bind("read", "3"), execute(), bind("read", "1"), execute(), describe(), sync()], "2C2DCTZ"),
        // A statement that gets a name, and a portal that does.
        (
            vec![bind("add", "1"), execute(), parse("one", "SELECT 1"), bind("add", "1"), execute(), sync()],
            "2C12CZ",
        ),
        (
            vec![
                bind("add", "1"),
                execute(),
                message(b'B', b"p\0one\0\0\0\0\0\0\0"),
                message(b'E', b"p\0\0\0\0\0"),
                sync(),
            ],
            "2C2DCZ",
        ),
        (
            vec![bind("add", "1"), execute(), message(b'C', b"Sone\0"), bind("read", "1"), execute(), sync()],
            "2C32DCZ",
        ),
        // A statement that does not wait.
        (
            vec![
                bind("add", "1"),
                execute(),
                parse("", "SHOW timezone"),
                message(b'B', b"\0\0\0\0\0\0\0\0"),
                execute(),
                sync(),
            ],
            "2C12DCZ",
        ),
        // Part of the rows, twice.
        (
            vec![
                bind("add", "1"),
                execute(),
                bind("read", "1"),
                message(b'E', b"\0\0\0\0\x01"),
                message(b'E', b"\0\0\0\0\x01"),
                sync(),
            ],
            "2C2DsCZ",
        ),
    ] {
        raw.send(&round.concat()).await;
        assert_eq!(tags(&raw.until_ready().await), wanted);
    }
    assert_eq!(value(&mut raw, "SELECT n FROM t WHERE id = 1").await, "17");
}

#[tokio::test]
async fn nothing_behind_an_error_has_happened() {
    let running = Running::start(|_| ());
    let (mut raw, _) = Raw::logged_in(running.address()).await;
    prepared(&mut raw).await;
    let fails = [bind("add", "1"), execute(), bind("divide", "2"), describe(), execute()].concat();
    for (behind, wanted) in [
        (vec![sync()], "2C2TEZ"),
        (vec![bind("read", "1"), describe(), execute(), sync()], "2C2TEZ"),
        (vec![parse("later", "SELECT 1"), bind("read", "1"), execute(), sync()], "2C2TEZ"),
        (vec![bind("none", "1"), execute(), sync()], "2C2TEZ"),
        (vec![message(b'D', b"?"), sync()], "2C2TEZ"),
        (vec![message(b'Q', b"SELECT 1\0"), sync()], "2C2TEZ"),
        (vec![message(b'Q', b"no end"), sync()], "2C2TEZ"),
        (vec![message(b'F', b"\0\0\0\x01"), sync()], "2C2TEZ"),
        (vec![message(b'H', b""), bind("read", "1"), execute(), sync()], "2C2TEZ"),
    ] {
        raw.send(&[fails.clone(), behind.concat()].concat()).await;
        let answer = raw.until_ready().await;
        assert_eq!(tags(&answer), wanted, "{behind:?}");
        let error = answer.iter().find(|message| message.tag == b'E').expect("an error");
        assert_eq!(error.error().1, "22012", "{behind:?}");
    }
    raw.send(&[parse("later", "SELECT 1"), sync()].concat()).await;
    assert_eq!(tags(&raw.until_ready().await), "1Z");
    assert_eq!(value(&mut raw, "SELECT n FROM t WHERE id = 1").await, "10");
}

#[tokio::test]
async fn statements_run_before_the_client_is_waited_for() {
    let running = Running::start(|_| ());
    let (mut raw, _) = Raw::logged_in(running.address()).await;
    let (mut other, _) = Raw::logged_in(running.address()).await;
    prepared(&mut raw).await;
    raw.send(&[bind("add", "1"), execute(), message(b'H', b"")].concat()).await;
    assert_eq!((raw.read().await.expect("2").tag, raw.read().await.expect("C").tag), (b'2', b'C'));
    raw.send(&sync()).await;
    assert_eq!(tags(&raw.until_ready().await), "Z");
    // The next message has not arrived as a whole: the row is locked all the same.
    let next = bind("read", "1");
    raw.send(&[bind("add", "1"), execute(), next[..7].to_vec()].concat()).await;
    let locked = async {
        while tags(&query(&mut other, "SELECT n FROM t WHERE id = 1 FOR UPDATE NOWAIT").await) != "EZ" {}
    };
    tokio::time::timeout(Duration::from_secs(30), locked).await.expect("it has run");
    raw.send(&[next[7..].to_vec(), execute(), sync()].concat()).await;
    assert_eq!(tags(&raw.until_ready().await), "2C2DCZ");
    assert_eq!(value(&mut other, "SELECT n FROM t WHERE id = 1").await, "12");
}

#[tokio::test]
async fn many_answers_stay_in_order() {
    let running = Running::start(|_| ());
    let (mut raw, _) = Raw::logged_in(running.address()).await;
    prepared(&mut raw).await;
    // The descriptions fill the buffer long before the statements run.
    let columns: Vec<String> = (0..20).map(|at| format!("n + {at} AS \"{at:050}\"")).collect();
    raw.send(&parse("wide", &format!("SELECT {} FROM t WHERE id = $1", columns.join(", ")))).await;
    let mut round = Vec::new();
    for _ in 0..300 {
        round.extend(
            [bind("add", "1"), describe(), execute(), bind("wide", "1"), describe(), execute()].concat(),
        );
    }
    raw.send(&[round, sync()].concat()).await;
    let answer = raw.until_ready().await;
    assert_eq!(tags(&answer), format!("1{}Z", "2nC2TDC".repeat(300)));
    let rows: Vec<String> = answer
        .iter()
        .filter(|message| message.tag == b'D')
        .map(|row| String::from_utf8_lossy(&row.body[6..8 + usize::from(row.body[5] > 2)]).into_owned())
        .collect();
    assert_eq!(rows, (11..=310).map(|n: i32| n.to_string()).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_cannot_be_read_comes_behind_the_answers() {
    let running = Running::start(|_| ());
    for end in [message(b'?', b""), b"Q\0\0\0\x03".to_vec(), b"Q\x7f\xff\xff\xff".to_vec()] {
        let (mut raw, _) = Raw::logged_in(running.address()).await;
        raw.send(
            &[parse("", "SELECT count(*) FROM pg_class WHERE $1 > 0"), bind("", "1"), execute()].concat(),
        )
        .await;
        raw.send(&[bind("", "1"), describe(), execute(), end.clone()].concat()).await;
        assert_eq!(tags(&raw.until_end().await), "12DC2TDCE", "{end:?}");
    }
    let (mut raw, _) = Raw::logged_in(running.address()).await;
    prepared(&mut raw).await;
    raw.send(&[bind("read", "1"), execute(), bind("read", "1"), describe(), message(b'?', b"")].concat())
        .await;
    assert_eq!(tags(&raw.until_end().await), "2DC2TE");
}

#[tokio::test]
async fn a_statement_of_a_pipeline_that_takes_too_long_ends_and_is_told_of() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&lines);
    let running = Running::start(|options| {
        let sink = Arc::new(move |line: &str| kept.lock().expect("unpoisoned").push(line.to_owned()));
        options.slow_log = Some(SlowLog { limit: Duration::from_millis(100), sink });
    });
    let (mut raw, _) = Raw::logged_in(running.address()).await;
    let (mut other, _) = Raw::logged_in(running.address()).await;
    prepared(&mut raw).await;
    query(&mut other, "BEGIN; UPDATE t SET n = 5 WHERE id = 2").await;
    query(&mut raw, "SET statement_timeout = '400ms'").await;
    raw.send(
        &[bind("read", "1"), execute(), bind("add", "2"), execute(), bind("read", "1"), execute(), sync()]
            .concat(),
    )
    .await;
    let answer = raw.until_ready().await;
    assert_eq!(tags(&answer), "2DC2EZ");
    assert_eq!(answer[4].error().1, "57014");
    let told = lines.lock().expect("unpoisoned").join("\n");
    assert_eq!(told.matches("slow statement").count(), 1, "{told}");
    assert!(told.contains("UPDATE t SET n = n + 1"), "{told}");
    // A statement behind those that wait is told of by itself.
    query(&mut raw, "SET statement_timeout = 0").await;
    raw.send(&[bind("read", "1"), execute(), message(b'Q', b"UPDATE t SET n = 7 WHERE id = 2\0")].concat())
        .await;
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%n = 7%' AND state = 'active' AND pid <> pg_backend_pid()";
    while value(&mut other, waits).await != "1" {}
    tokio::time::sleep(Duration::from_millis(150)).await;
    query(&mut other, "ROLLBACK").await;
    assert_eq!(tags(&raw.until_ready().await), "2DCCZ");
    let told = lines.lock().expect("unpoisoned").join("\n");
    assert!(told.contains("UPDATE t SET n = 7"), "{told}");
}
