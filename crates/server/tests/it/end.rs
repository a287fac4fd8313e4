//! The end of a server.

use crate::raw::{DATABASE, Raw, Running, VERSION, startup, tags};

#[tokio::test]
async fn draining_ends_idle_sessions_and_refuses_new_ones() {
    let running = Running::start(|_| ());
    let (mut idle, _) = Raw::logged_in(running.address()).await;
    running.server().drain();
    let told = idle.until_end().await;
    assert_eq!(tags(&told), "E");
    assert_eq!(told[0].error(), ("FATAL".to_owned(), "57P01".to_owned()));
    let mut late = Raw::connect(running.address()).await;
    late.send(&startup(VERSION, &["user", "ada", "database", DATABASE])).await;
    let told = late.until_end().await;
    assert_eq!(told[0].error(), ("FATAL".to_owned(), "57P03".to_owned()));
    running.end().await;
}

#[tokio::test]
async fn the_end_ends_sessions_between_two_messages_of_a_round() {
    let running = Running::start(|_| ());
    let (mut raw, _) = Raw::logged_in(running.address()).await;
    // A round that is not over: its Sync is missing.
    raw.send(&[crate::raw::message(b'C', b"Sx\0"), crate::raw::message(b'H', b"")].concat()).await;
    assert_eq!(raw.read().await.expect("an answer").tag, b'3');
    running.end().await;
    let told = raw.until_end().await;
    assert_eq!(told[0].error(), ("FATAL".to_owned(), "57P01".to_owned()));
}
