//! The start of connections: versions, encryption, parameters, and who is refused.

use crate::raw::{DATABASE, Raw, Running, VERSION, packet, startup, tags};

const SSL_REQUEST: u32 = 1234 << 16 | 5679;
const GSSENC_REQUEST: u32 = 1234 << 16 | 5680;

#[tokio::test]
async fn a_client_is_told_what_drivers_ask_for() {
    let running = Running::start(|_| ());
    let (_raw, greeting) = Raw::logged_in(running.address()).await;
    assert_eq!(greeting[0].body, 0_i32.to_be_bytes(), "AuthenticationOk comes first");
    let reported = |name: &str| {
        greeting.iter().filter(|message| message.tag == b'S').find_map(|message| {
            let text = String::from_utf8_lossy(&message.body).into_owned();
            let (found, value) = text.split_once('\0')?;
            (found == name).then(|| value.trim_end_matches('\0').to_owned())
        })
    };
    for (name, value) in [
        ("server_encoding", "UTF8"),
        ("client_encoding", "UTF8"),
        ("integer_datetimes", "on"),
        ("standard_conforming_strings", "on"),
        ("session_authorization", "ada"),
        ("in_hot_standby", "off"),
        ("application_name", ""),
    ] {
        assert_eq!(reported(name).as_deref(), Some(value), "{name}");
    }
    for name in [
        "DateStyle",
        "TimeZone",
        "IntervalStyle",
        "is_superuser",
        "default_transaction_read_only",
        "scram_iterations",
    ] {
        assert!(reported(name).is_some(), "{name}");
    }
    assert!(reported("server_version").is_some_and(|version| version.starts_with("17.")));
    let key = greeting.iter().find(|message| message.tag == b'K').expect("a key");
    assert_eq!(key.body.len(), 8, "a short secret before version 3.2");
}

#[tokio::test]
async fn versions_are_negotiated() {
    let running = Running::start(|_| ());
    let parameters = ["user", "ada", "database", DATABASE, "_pq_.option", "on"];
    for (asked, told) in [(3 << 16 | 9, 3 << 16 | 2), (3 << 16, 3 << 16)] {
        let mut raw = Raw::connect(running.address()).await;
        raw.send(&startup(asked, &parameters)).await;
        let greeting = raw.until_ready().await;
        let expected = [&u32::to_be_bytes(told)[..], b"\0\0\0\x01_pq_.option\0"].concat();
        assert_eq!((greeting[0].tag, &greeting[0].body), (b'v', &expected));
        assert_eq!(greeting.last().expect("messages").tag, b'Z');
    }
    let mut raw = Raw::connect(running.address()).await;
    raw.send(&startup(3 << 16 | 2, &parameters[..4])).await;
    let greeting = raw.until_ready().await;
    assert_eq!(greeting[0].tag, b'R', "there is nothing to negotiate");
    let key = greeting.iter().find(|message| message.tag == b'K').expect("a key");
    assert_eq!(key.body.len(), 4 + 32, "a long secret");
    let mut raw = Raw::connect(running.address()).await;
    raw.send(&packet(2 << 16, b"")).await;
    assert_eq!(raw.until_end().await[0].error(), ("FATAL".to_owned(), "0A000".to_owned()));
}

#[tokio::test]
async fn encryption_that_there_is_not_is_declined_once() {
    let running = Running::start(|_| ());
    let mut raw = Raw::connect(running.address()).await;
    for request in [GSSENC_REQUEST, SSL_REQUEST] {
        raw.send(&packet(request, b"")).await;
        assert_eq!(raw.byte().await, b'N');
    }
    raw.send(&startup(VERSION, &["user", "ada", "database", DATABASE])).await;
    assert_eq!(raw.until_ready().await.last().expect("messages").tag, b'Z');
    let mut raw = Raw::connect(running.address()).await;
    raw.send(&packet(SSL_REQUEST, b"")).await;
    assert_eq!(raw.byte().await, b'N');
    raw.send(&packet(SSL_REQUEST, b"")).await;
    assert_eq!(raw.until_end().await, []);
}

#[tokio::test]
async fn who_asks_for_what_there_is_not_is_told() {
    let running = Running::start(|_| ());
    for (parameters, state) in [
        (&["database", DATABASE][..], "28000"),
        (&["user", "ada", "database", "other"], "3D000"),
        (&["user", "ada"], "3D000"),
        (&["user", "ada", "database", DATABASE, "replication", "true"], "0A000"),
        (&["user", "ada", "database", DATABASE, "no_such_setting", "1"], "42704"),
        (&["user", "ada", "database", DATABASE, "client_encoding", "LATIN1"], "0A000"),
        (&["user", "ada", "database", DATABASE, "options", "-B 7"], "42601"),
    ] {
        let mut raw = Raw::connect(running.address()).await;
        raw.send(&startup(VERSION, parameters)).await;
        let answer = raw.until_end().await;
        let last = answer.last().expect("an answer");
        assert_eq!(last.error(), ("FATAL".to_owned(), state.to_owned()), "{parameters:?}");
    }
    let options = ["user", "ada", "database", DATABASE, "options", "-c application_name=by\\ option"];
    let mut raw = Raw::connect(running.address()).await;
    raw.send(&startup(VERSION, &options)).await;
    let greeting = raw.until_ready().await;
    let named = b"application_name\0by option\0";
    assert!(greeting.iter().any(|message| message.tag == b'S' && message.body == named));
}

#[tokio::test]
async fn whoever_speaks_another_protocol_gets_no_answer() {
    let running = Running::start(|_| ());
    for bytes in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\0\0\0\x04", b"\0\0\0\x08\0\x03", b"\xff\xff\xff\xff\0\0\0\0"]
    {
        let mut raw = Raw::connect(running.address()).await;
        raw.send(bytes).await;
        tokio::io::AsyncWriteExt::shutdown(&mut raw.stream).await.expect("half closed");
        assert_eq!(tags(&raw.until_end().await), "", "{bytes:?}");
    }
    Raw::logged_in(running.address()).await;
}
