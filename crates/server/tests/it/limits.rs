//! Places: of sessions, and of those who have not logged in.

use crate::raw::{DATABASE, Raw, Running, VERSION, startup, tags};

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
