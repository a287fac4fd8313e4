//! The order of messages: rounds, errors, what is skipped, and what ends a connection.

use crate::raw::{Raw, Running, message, tags};

/// A statement that is none, by the extended protocol.
const BAD_PARSE: &[u8] = b"\0this is no statement\0\0\0";

#[tokio::test]
async fn after_an_error_all_is_skipped_up_to_sync() {
    let running = Running::start(|_| ());
    let (mut raw, _) = Raw::logged_in(running.address()).await;
    let round = [
        message(b'P', BAD_PARSE),
        message(b'B', b"\0\0\0\0\0\0\0\0"),
        message(b'D', b"P\0"),
        message(b'E', b"\0\0\0\0\0"),
        message(b'Q', b"skipped, too\0"),
        // Not even looked at.
        message(b'?', b""),
        message(b'S', b""),
    ];
    raw.send(&round.concat()).await;
    assert_eq!(tags(&raw.until_ready().await), "EZ");
    raw.send(&message(b'S', b"")).await;
    let ready = raw.until_ready().await;
    assert_eq!((tags(&ready).as_str(), ready[0].body.as_slice()), ("Z", &b"I"[..]));
}

#[tokio::test]
async fn answers_come_at_flush_and_sync() {
    let running = Running::start(|_| ());
    let (mut raw, _) = Raw::logged_in(running.address()).await;
    raw.send(&[message(b'C', b"Snone\0"), message(b'C', b"Pnone\0"), message(b'H', b"")].concat()).await;
    assert_eq!((raw.read().await.expect("3").tag, raw.read().await.expect("3").tag), (b'3', b'3'));
    raw.send(&[message(b'C', b"Snone\0"), message(b'S', b"")].concat()).await;
    assert_eq!(tags(&raw.until_ready().await), "3Z");
}

#[tokio::test]
async fn malformed_messages_are_refused_and_the_connection_goes_on() {
    let running = Running::start(|_| ());
    let (mut raw, _) = Raw::logged_in(running.address()).await;
    for (bytes, state) in [
        (message(b'Q', b"no end"), "08P01"),
        (message(b'Q', b"\xff\xfe\0"), "22021"),
        (message(b'F', b"\0\0\0\x01"), "0A000"),
        ([message(b'P', b"\0"), message(b'S', b"")].concat(), "08P01"),
        ([message(b'B', b"\0\0\0\x01\0\x07\0\0\0\0"), message(b'S', b"")].concat(), "08P01"),
        ([message(b'D', b"Xname\0"), message(b'S', b"")].concat(), "08P01"),
    ] {
        raw.send(&bytes).await;
        let answer = raw.until_ready().await;
        assert_eq!(tags(&answer), "EZ", "{bytes:?}");
        assert_eq!(answer[0].error(), ("ERROR".to_owned(), state.to_owned()), "{bytes:?}");
    }
    // What is left of a COPY that failed is none of them.
    raw.send(
        &[message(b'd', b"data"), message(b'c', b""), message(b'f', b"why\0"), message(b'S', b"")].concat(),
    )
    .await;
    assert_eq!(tags(&raw.until_ready().await), "Z");
}

#[tokio::test]
async fn what_cannot_be_read_on_ends_the_connection() {
    let running = Running::start(|_| ());
    for bytes in [
        message(b'?', b""),
        message(b'p', b"password\0"),
        b"Q\0\0\0\x03".to_vec(),
        b"Q\x7f\xff\xff\xff".to_vec(),
    ] {
        let (mut raw, _) = Raw::logged_in(running.address()).await;
        raw.send(&bytes).await;
        let answer = raw.until_end().await;
        assert_eq!(tags(&answer), "E", "{bytes:?}");
        assert_eq!(answer[0].error(), ("FATAL".to_owned(), "08P01".to_owned()));
    }
    let (mut raw, _) = Raw::logged_in(running.address()).await;
    raw.send(&message(b'X', b"")).await;
    assert_eq!(raw.until_end().await, []);
}
