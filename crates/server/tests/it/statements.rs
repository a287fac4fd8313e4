//! Statements, as a driver runs them: both protocols, portals, pipelines, COPY, cancellation, and transactions when the server ends.

use std::pin::pin;

use bytes::Bytes;
use futures_util::{SinkExt, TryStreamExt};
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error, NoTls, SimpleQueryMessage};

use crate::raw::{DATABASE, Raw, Running, message, tags};

/// Connects a driver. The task ends with the connection.
async fn connect(running: &Running) -> (Client, JoinHandle<Result<(), Error>>) {
    let mut config = Config::new();
    config.host("127.0.0.1").port(running.address().port()).user("ada").dbname(DATABASE);
    let (client, connection) = config.connect(NoTls).await.expect("connected");
    (client, tokio::spawn(connection))
}

async fn with_accounts(running: &Running) -> Client {
    let (client, _) = connect(running).await;
    client
        .batch_execute("create table account (id int primary key, owner text, balance bigint not null)")
        .await
        .expect("a table");
    let insert = client.prepare("insert into account values ($1, $2, $3)").await.expect("a statement");
    for id in 0..10_i32 {
        let rows = client.execute(&insert, &[&id, &format!("owner {id}"), &100_i64]).await.expect("a row");
        assert_eq!(rows, 1);
    }
    client
}

async fn sum(client: &Client) -> i64 {
    let row = client.query_one("select sum(balance)::bigint from account", &[]).await.expect("a sum");
    row.get(0)
}

#[tokio::test]
async fn statements_are_prepared_and_their_values_are_binary() {
    let running = Running::start(|_| ());
    let client = with_accounts(&running).await;
    let select = client
        .prepare("select id, owner, balance from account where id >= $1 order by id")
        .await
        .expect("a statement");
    let rows = client.query(&select, &[&8_i32]).await.expect("rows");
    let found: Vec<(i32, String, i64)> =
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
    assert_eq!(found, [(8, "owner 8".to_owned(), 100), (9, "owner 9".to_owned(), 100)]);
    let refused = client.query("select nothing from account", &[]).await.expect_err("no such column");
    assert_eq!(refused.code(), Some(&SqlState::UNDEFINED_COLUMN));
    let refused =
        client.execute("insert into account values (1, null, 0)", &[]).await.expect_err("a duplicate");
    assert_eq!(refused.code(), Some(&SqlState::UNIQUE_VIOLATION));
    assert_eq!(sum(&client).await, 1000);
}

#[tokio::test]
async fn a_simple_query_has_several_statements_in_one_transaction() {
    let running = Running::start(|_| ());
    let client = with_accounts(&running).await;
    let messages = client
        .simple_query("update account set balance = balance + 1; select count(*) from account")
        .await
        .expect("both");
    let rows: Vec<_> = messages
        .iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        })
        .collect();
    assert_eq!(rows, ["10"]);
    let failed =
        client.simple_query("update account set balance = 0; select 1 / 0").await.expect_err("divides");
    assert_eq!(failed.code(), Some(&SqlState::DIVISION_BY_ZERO));
    assert_eq!(sum(&client).await, 1010, "the first statement is undone, too");
}

#[tokio::test]
async fn a_pipeline_keeps_its_order() {
    let running = Running::start(|_| ());
    let client = with_accounts(&running).await;
    let update = client.prepare("update account set balance = $2 where id = $1").await.expect("a statement");
    let updates = (0..100_i64).map(|number| {
        let (client, update) = (&client, &update);
        async move { client.execute(update, &[&3_i32, &number]).await.map(|_| number) }
    });
    let done: Vec<i64> = futures_util::future::try_join_all(updates).await.expect("all");
    assert_eq!(done.len(), 100);
    let row = client.query_one("select balance from account where id = 3", &[]).await.expect("a row");
    assert_eq!(row.get::<_, i64>(0), 99);
}

#[tokio::test]
async fn portals_give_their_rows_in_parts() {
    let running = Running::start(|_| ());
    let mut client = with_accounts(&running).await;
    let transaction = client.transaction().await.expect("a transaction");
    let portal = transaction.bind("select id from account order by id", &[]).await.expect("a portal");
    let mut sizes = Vec::new();
    loop {
        let rows = transaction.query_portal(&portal, 4).await.expect("rows");
        sizes.push(rows.len());
        if rows.len() < 4 {
            break;
        }
    }
    assert_eq!(sizes, [4, 4, 2]);
    transaction.commit().await.expect("committed");
}

#[tokio::test]
async fn rows_are_copied_in_and_out() {
    let running = Running::start(|_| ());
    let client = with_accounts(&running).await;
    const ROWS: i32 = 20_000;
    let sink = client.copy_in("copy account (id, owner, balance) from stdin").await.expect("a copy");
    let mut sink = pin!(sink);
    for first in (10..ROWS).step_by(1000) {
        let last = (first + 1000).min(ROWS);
        let lines: String = (first..last).map(|id| format!("{id}\t{}\t1\n", "long ".repeat(20))).collect();
        sink.send(Bytes::from(lines)).await.expect("sent");
    }
    assert_eq!(sink.finish().await.expect("copied"), ROWS as u64 - 10);
    let stream = client.copy_out("copy account to stdout").await.expect("a copy");
    let copied: Vec<Bytes> = stream.try_collect().await.expect("all of it");
    let lines: usize = copied.iter().map(|piece| piece.iter().filter(|&&byte| byte == b'\n').count()).sum();
    assert_eq!(lines, ROWS as usize);
    // One that its client gives up, and one whose data is wrong, leave nothing; the connection goes on.
    {
        let mut sink = pin!(client.copy_in("copy account from stdin").await.expect("a copy"));
        sink.send(Bytes::from_static(b"90001\tx\t1\n")).await.expect("sent");
    }
    let sink = client.copy_in("copy account from stdin").await.expect("a copy");
    let mut sink = pin!(sink);
    sink.send(Bytes::from_static(b"90002\tx\t1\n90003\tx\tno number\n")).await.expect("sent");
    let refused = sink.finish().await.expect_err("no number");
    assert_eq!(refused.code(), Some(&SqlState::INVALID_TEXT_REPRESENTATION));
    let row = client.query_one("select count(*) from account where id > 90000", &[]).await.expect("a row");
    assert_eq!(row.get::<_, i64>(0), 0);
}

#[tokio::test]
async fn a_client_that_reads_slowly_gets_all_rows() {
    let running = Running::start(|_| ());
    let client = with_accounts(&running).await;
    client.batch_execute("create table many (id int primary key, filler text)").await.expect("a table");
    let mut sink = pin!(client.copy_in("copy many from stdin").await.expect("a copy"));
    let lines: String = (0..5000).map(|id| format!("{id}\t{}\n", "x".repeat(1000))).collect();
    sink.send(Bytes::from(lines)).await.expect("sent");
    sink.finish().await.expect("copied");
    let (mut raw, _) = Raw::logged_in(running.address()).await;
    raw.send(&message(b'Q', b"select * from many\0")).await;
    // More than fits into the buffers of the system: the server waits, and serves others meanwhile.
    for _ in 0..10 {
        assert_eq!(sum(&client).await, 1000);
    }
    let answer = raw.until_ready().await;
    assert_eq!(answer.iter().filter(|message| message.tag == b'D').count(), 5000);
    assert_eq!(tags(&answer[5001..]), "CZ");
}

#[tokio::test]
async fn a_statement_that_waits_is_cancelled() {
    let running = Running::start(|_| ());
    let mut holder = with_accounts(&running).await;
    let held = holder.transaction().await.expect("a transaction");
    held.execute("update account set balance = 0 where id = 1", &[]).await.expect("held");
    let (waiter, _) = connect(&running).await;
    let cancel = waiter.cancel_token();
    let waiting = tokio::spawn(async move {
        let waited = waiter.execute("update account set balance = 5 where id = 1", &[]).await;
        (waiter, waited)
    });
    // One request, for a statement that waits: another one could come when it has ended, and cancel the next one.
    let (watcher, _) = connect(&running).await;
    let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
    while watcher.query_one(waits, &[]).await.expect("an answer").get::<_, i64>(0) == 0 {
        tokio::task::yield_now().await;
    }
    cancel.cancel_query(NoTls).await.expect("sent");
    let (waiter, waited) = waiting.await.expect("no panic");
    assert_eq!(waited.expect_err("cancelled").code(), Some(&SqlState::QUERY_CANCELED));
    held.rollback().await.expect("undone");
    assert_eq!(sum(&waiter).await, 1000);
}

#[tokio::test]
async fn draining_lets_transactions_end() {
    let running = Running::start(|_| ());
    let mut client = with_accounts(&running).await;
    let transaction = client.transaction().await.expect("a transaction");
    transaction.execute("update account set balance = 1", &[]).await.expect("updated");
    running.server().drain();
    transaction.execute("update account set balance = 2", &[]).await.expect("it goes on");
    transaction.commit().await.expect("committed");
    let ended = client.query("select 1", &[]).await.expect_err("the session has ended");
    assert!(ended.is_closed() || ended.code() == Some(&SqlState::ADMIN_SHUTDOWN), "{ended}");
}

#[tokio::test]
async fn the_end_undoes_what_is_open_and_cancels_what_waits() {
    let running = Running::start(|_| ());
    let mut holder = with_accounts(&running).await;
    let held = holder.transaction().await.expect("a transaction");
    held.execute("update account set balance = 0 where id = 1", &[]).await.expect("held");
    let (waiter, _) = connect(&running).await;
    let waiting =
        tokio::spawn(async move { waiter.execute("update account set balance = 5 where id = 1", &[]).await });
    tokio::task::yield_now().await;
    running.end().await;
    // If the holder's session ends first, the row is free for a moment before the waiter's session ends, too.
    let told = [&SqlState::ADMIN_SHUTDOWN, &SqlState::QUERY_CANCELED];
    match waiting.await.expect("no panic") {
        Ok(updated) => assert_eq!(updated, 1),
        Err(waited) => {
            let is_told = waited.code().is_some_and(|code| told.contains(&code));
            assert!(waited.is_closed() || is_told, "{waited}");
        }
    }
}
