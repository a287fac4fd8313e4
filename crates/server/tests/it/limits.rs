//! Places: of sessions, and of those who have not logged in.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::AsyncWriteExt;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Config, NoTls};

use crate::raw::{DATABASE, Raw, Running, VERSION, guess, startup, tags};

/// The connections of a flood.
const FLOOD: usize = 4_000;

/// The connections of a flood that are open at a time: those that say nothing, half of them, are more than there are places for.
const WAVE: usize = 1_100;

#[tokio::test]
async fn sessions_are_limited() {
    let running = Running::start(|options| options.max_connections = 2);
    let (first, _) = Raw::logged_in(running.address()).await;
    let (_second, _) = Raw::logged_in(running.address()).await;
    let greeting = startup(VERSION, &["user", "ada", "database", DATABASE]);
    let mut third = Raw::connect(running.address()).await;
    third.send(&greeting).await;
    let answer = third.until_end().await;
    assert_eq!(answer.last().expect("an answer").error(), ("FATAL".to_owned(), "53300".to_owned()));
    drop(first);
    // The place is free as soon as the server has noticed.
    loop {
        let mut again = Raw::connect(running.address()).await;
        again.send(&greeting).await;
        if tags(&again.until_ready().await).ends_with('Z') {
            break;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_flood_of_half_open_connections_keeps_nobody_out() {
    let running = Running::start(|options| options.max_connections = 2);
    let mut flood = Vec::new();
    for _ in 0..600 {
        flood.push(Raw::connect(running.address()).await);
    }
    let (_raw, _) = Raw::logged_in(running.address()).await;
    // The oldest have made room.
    assert_eq!(flood[0].until_end().await, []);
}

/// Opens one connection after the other, of which half say nothing and the others guess a password. Returns when all have ended but for the
/// last ones; those are returned.
async fn flood(address: SocketAddr) -> VecDeque<Raw> {
    let greeting = startup(VERSION, &["user", "ada", "database", DATABASE]);
    let mut open = VecDeque::new();
    for number in 0..FLOOD {
        let mut raw = Raw::connect_from(Ipv4Addr::new(127, 0, 0, 2), address).await;
        if number % 2 == 0 {
            // The server may have given the place to somebody else already.
            let _ = raw.stream.write_all(&[&greeting[..], &guess()].concat()).await;
        }
        open.push_back(raw);
        if open.len() > WAVE {
            // It was refused, or has made room for those that say nothing and came later.
            let answer = open.pop_front().expect("the oldest").until_end().await;
            assert!(!tags(&answer).contains('Z'), "{answer:?}");
        }
    }
    open
}

#[tokio::test]
async fn floods_of_thousands_lock_nobody_else_out() {
    let running = Running::with_password("correct horse");
    let flooding = tokio::spawn(flood(running.address()));
    let mut config = Config::new();
    config.host("127.0.0.1").port(running.address().port()).user("ada").dbname(DATABASE);
    let mut log_ins = 0;
    while !flooding.is_finished() || log_ins == 0 {
        let (client, connection) = config
            .password("correct horse")
            .connect(NoTls)
            .await
            .expect("whoever knows the password gets in");
        let running = tokio::spawn(connection);
        assert_eq!(client.query_one("select 1", &[]).await.expect("an answer").get::<_, i32>(0), 1);
        drop(client);
        running.await.expect("no panic").expect("it ends");
        log_ins += 1;
    }
    let open = flooding.await.expect("all others have ended");
    assert_eq!(open.len(), WAVE);
    let refused = config.password("wrong").connect(NoTls).await.err().expect("refused");
    assert_eq!(refused.code().map(SqlState::code), Some("28P01"));
}
