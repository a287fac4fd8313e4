//! Random and damaged messages: the server neither stops nor hangs, answers in whole messages of the protocol, and lets nobody in who has not
//! proved a password.
//!
//! Ten million messages: `ATRAPOS_SEED=0..500000 cargo test --release -p atrapos-server --test it random::any_bytes` (a stream has some 20).

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::ops::Range;

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use tokio::io::AsyncWriteExt;

use crate::raw::{DATABASE, Message, Raw, Running, VERSION, guess, message, startup};

/// Streams of a run.
const STREAMS: u64 = 200;

/// Messages of a stream.
const MESSAGES: u32 = 40;

/// Statements, for the texts of messages.
const TEXTS: [&str; 14] = [
    "select 1",
    "select $1::int + 1",
    "begin",
    "commit",
    "rollback",
    "create table t (a int primary key, b text)",
    "insert into t values ($1, $2)",
    "copy t from stdin",
    "copy t to stdout",
    "select * from t; select 2",
    "set application_name = 'x'",
    "drop table t",
    "",
    "this is no statement",
];

/// Names of statements and portals.
const NAMES: [&str; 3] = ["", "a", "b"];

/// The seeds of a run: new ones every time, or those that `ATRAPOS_SEED` names, one (`7`) or a range (`7..2000`).
fn seeds() -> Range<u64> {
    let Ok(named) = std::env::var("ATRAPOS_SEED") else {
        let first = RandomState::new().hash_one("seed") >> 16;
        return first..first + STREAMS;
    };
    let number =
        |text: &str| text.parse::<u64>().expect("ATRAPOS_SEED is a number, or two with '..' between");
    match named.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => number(&named)..number(&named) + 1,
    }
}

fn one<'a>(random: &mut StdRng, of: &[&'a str]) -> &'a str {
    of[random.random_range(0..of.len())]
}

fn string(body: &mut Vec<u8>, text: &str) {
    body.extend_from_slice(text.as_bytes());
    body.push(0);
}

/// Makes the body of a Bind message.
fn bind(random: &mut StdRng) -> Vec<u8> {
    let mut body = Vec::new();
    string(&mut body, one(random, &NAMES));
    string(&mut body, one(random, &NAMES));
    body.extend_from_slice(&[0, 1, 0, random.random_range(0..2)]);
    let count: u8 = random.random_range(0..3);
    body.extend_from_slice(&[0, count]);
    for _ in 0..count {
        let value = one(random, &["1", "abcd", "-7"]);
        body.extend_from_slice(&[0, 0, 0, u8::try_from(value.len()).expect("short")]);
        body.extend_from_slice(value.as_bytes());
    }
    body.extend_from_slice(&[0, 0]);
    body
}

/// Makes a message that a client could send.
fn valid(random: &mut StdRng) -> Vec<u8> {
    let mut body = Vec::new();
    let tag = b"QQPPBDEECHSSSdcf"[random.random_range(0..16)];
    match tag {
        b'Q' => string(&mut body, one(random, &TEXTS)),
        b'P' => {
            string(&mut body, one(random, &NAMES));
            string(&mut body, one(random, &TEXTS));
            body.extend_from_slice(&[0, 0]);
        }
        b'B' => body = bind(random),
        b'D' | b'C' => {
            body.push(b"SP"[random.random_range(0..2)]);
            string(&mut body, one(random, &NAMES));
        }
        b'E' => {
            string(&mut body, one(random, &NAMES));
            body.extend_from_slice(&random.random_range(0..3_i32).to_be_bytes());
        }
        b'd' => body.extend_from_slice(b"1\tone\n"),
        b'f' => string(&mut body, "no more"),
        _ => {}
    }
    message(tag, &body)
}

/// Makes a stream: a start, as a rule a valid one, and messages, some of them damaged.
fn stream(random: &mut StdRng) -> Vec<u8> {
    let mut bytes = startup(VERSION, &["user", "ada", "database", DATABASE]);
    let damaged_start = random.random_range(0..8) == 0;
    let damage = random.random_range(0..4) == 0;
    if damaged_start {
        let at = random.random_range(0..bytes.len());
        bytes[at] = random.random();
    }
    for _ in 0..random.random_range(1..=MESSAGES) {
        let mut next = valid(random);
        if damage && random.random_range(0..10) == 0 {
            let at = random.random_range(0..next.len());
            next[at] = random.random();
        }
        if damage && random.random_range(0..60) == 0 {
            next = vec![0; random.random_range(0..200)];
            random.fill_bytes(&mut next);
        }
        bytes.extend_from_slice(&next);
    }
    bytes
}

#[tokio::test]
async fn any_bytes_are_answered_in_messages_of_the_protocol() {
    let running = Running::start(|_| ());
    for seed in seeds() {
        let mut random = StdRng::seed_from_u64(seed);
        let bytes = stream(&mut random);
        let mut raw = Raw::connect(running.address()).await;
        // The server may end the connection before it has read all.
        let _ = raw.stream.write_all(&bytes).await;
        let _ = raw.stream.shutdown().await;
        for answer in raw.until_end().await {
            let known = b"RSKZvTDCEN123tnIsGHdc".contains(&answer.tag);
            assert!(known, "seed {seed}: {answer:?}");
            assert!(answer.tag != b'E' || answer.error().1.len() == 5, "seed {seed}: {answer:?}");
            assert!(
                answer.tag != b'E' || answer.error().1 != "XX000",
                "seed {seed}: an error of the server itself: {answer:?}"
            );
        }
    }
    Raw::logged_in(running.address()).await;
}

/// Makes a stream of a client that has a password to prove: the messages of a proof, some of them damaged, and statements.
fn log_in(random: &mut StdRng) -> Vec<u8> {
    let user = one(random, &["ada", "nobody", ""]);
    let mut bytes = startup(VERSION, &["user", user, "database", DATABASE]);
    for _ in 0..random.random_range(0..4) {
        let mut next = match random.random_range(0..3) {
            0 => valid(random),
            _ => guess(),
        };
        if random.random_range(0..2) == 0 {
            let at = random.random_range(0..next.len());
            next[at] = random.random();
        }
        bytes.extend_from_slice(&next);
    }
    bytes.extend_from_slice(&valid(random));
    bytes
}

#[tokio::test]
async fn any_proof_that_is_none_is_refused() {
    let running = Running::with_password("correct horse");
    let address = running.address();
    let seeds: Vec<u64> = seeds().collect();
    // Side by side, as an answer to a proof takes its time.
    for some in seeds.chunks(STREAMS as usize) {
        let streams = some.iter().map(|seed| tokio::spawn(prove(address, *seed)));
        for stream in streams.collect::<Vec<_>>() {
            stream.await.expect("the stream that has panicked says why");
        }
    }
}

/// Sends the stream of a seed, and looks at the answers.
async fn prove(address: SocketAddr, seed: u64) {
    let bytes = log_in(&mut StdRng::seed_from_u64(seed));
    let mut raw = Raw::connect(address).await;
    let _ = raw.stream.write_all(&bytes).await;
    let _ = raw.stream.shutdown().await;
    let answers = raw.until_end().await;
    let admits =
        |answer: &Message| answer.tag == b'Z' || (answer.tag == b'R' && answer.body == 0_i32.to_be_bytes());
    assert!(!answers.iter().any(admits), "seed {seed}: {answers:?}");
    let is_own = |answer: &Message| answer.tag == b'E' && answer.error().1 == "XX000";
    assert!(!answers.iter().any(is_own), "seed {seed}: {answers:?}");
}
