//! Histories of many clients of a server that is killed, and of clients that go in the middle of a transaction.
//!
//! Each transaction counts a counter up and notes its number in a log. So the numbers are an order of all transactions, and the history is
//! strictly serializable if they have no gap, and no transaction that began after another was acknowledged has a smaller number. Moments
//! are numbers of one counter of the test, not times.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use atrapos_server::{Client, ClientError, Event};

use super::with_the_server::Served;

/// Clients at a time.
const CLIENTS: u64 = 6;
/// Number of times the server is killed.
const KILLS: usize = 3;
/// Transactions that are acknowledged between two kills, at least.
const BETWEEN: usize = 60;
/// One transaction in so many is left open by a client that goes.
const LEFT: u64 = 7;

/// A transaction that was acknowledged: what it is, its number, and the moments before it began and after it was acknowledged.
#[derive(Clone, Debug)]
struct Acknowledged {
    id: u64,
    number: u64,
    began: u64,
    told: u64,
}

/// Returns what is wrong with a history: the numbers and transactions of the log, in the order of numbers, and what was acknowledged.
fn violation(log: &[(u64, u64)], acknowledged: &[Acknowledged]) -> Option<String> {
    for (at, (number, id)) in (1..).zip(log) {
        if at != *number {
            return Some(format!("transaction {id} has number {number}, and {at} is missing or there twice"));
        }
    }
    let numbers: HashMap<u64, u64> = log.iter().map(|(number, id)| (*id, *number)).collect();
    if numbers.len() < log.len() {
        return Some("a transaction is in the log twice".to_owned());
    }
    if let Some(lost) = acknowledged.iter().find(|one| numbers.get(&one.id) != Some(&one.number)) {
        return Some(format!("{lost:?} was acknowledged, and the log has {:?}", numbers.get(&lost.id)));
    }
    let mut order = acknowledged.to_vec();
    order.sort_by_key(|one| one.number);
    let mut earliest = u64::MAX;
    for one in order.iter().rev() {
        if earliest < one.began {
            return Some(format!("a transaction was acknowledged before {one:?} began, and comes after it"));
        }
        earliest = earliest.min(one.told);
    }
    None
}

#[test]
fn the_checker_finds_what_is_wrong() {
    let one = |id, number, began, told| Acknowledged { id, number, began, told };
    let log = [(1, 10), (2, 20), (3, 30)];
    let good = [one(10, 1, 0, 3), one(20, 2, 1, 2), one(30, 3, 4, 5)];
    assert_eq!(violation(&log, &good), None);
    let lost = violation(&log[..2], &good).expect("the third is not there");
    assert!(lost.contains("id: 30"), "{lost}");
    assert!(violation(&[(1, 10), (1, 20)], &[]).is_some(), "two transactions read the same counter");
    assert!(violation(&[(1, 10), (2, 10)], &[]).is_some(), "one was applied twice");
    let stale = [one(10, 1, 5, 6), one(20, 2, 1, 2)];
    assert!(violation(&log, &stale).is_some(), "the first began when the second was acknowledged already");
}

/// Runs statements; returns the first value of the last row, or the error of a statement.
fn run(client: &mut Client, text: &str) -> Result<Result<Option<u64>, String>, ClientError> {
    let mut done = Ok(None);
    client.query(text, &mut |event| match event {
        Event::Row(values) => {
            if let (Ok(value), Some(text)) = (&mut done, values[0]) {
                *value = text.parse().ok();
            }
        }
        Event::Error(error) => done = Err(error),
        _ => {}
    })?;
    Ok(done)
}

/// The state that the clients of a run share.
#[derive(Default)]
struct Shared {
    moments: AtomicU64,
    transactions: AtomicU64,
    told: AtomicUsize,
}

/// Runs transactions until the server is gone, and returns those that were acknowledged.
fn work(directory: &Path, shared: &Shared) -> Vec<Acknowledged> {
    let mut acknowledged = Vec::new();
    while let Ok(mut client) = Client::connect(directory, "atrapos") {
        while let Ok(left) = one_transaction(&mut client, shared, &mut acknowledged) {
            if left {
                break;
            }
        }
    }
    acknowledged
}

/// Runs a transaction; returns true if it is left open, for its client to go.
fn one_transaction(
    client: &mut Client,
    shared: &Shared,
    acknowledged: &mut Vec<Acknowledged>,
) -> Result<bool, ClientError> {
    let id = shared.transactions.fetch_add(1, Ordering::SeqCst);
    let began = shared.moments.fetch_add(1, Ordering::SeqCst);
    let counted = run(client, "BEGIN; UPDATE counter SET n = n + 1 WHERE id = 1 RETURNING n")?;
    if id.is_multiple_of(LEFT) {
        return Ok(true);
    }
    if let Ok(Some(number)) = counted {
        let noted = run(client, &format!("INSERT INTO log VALUES ({number}, {id}); COMMIT"))?;
        if noted.is_ok() {
            let told = shared.moments.fetch_add(1, Ordering::SeqCst);
            acknowledged.push(Acknowledged { id, number, began, told });
            shared.told.fetch_add(1, Ordering::SeqCst);
            return Ok(false);
        }
    }
    // It has given way to another one.
    run(client, "ROLLBACK").map(|_| false)
}

#[test]
fn histories_of_clients_survive_kills() {
    let parent = tempfile::tempdir().expect("a directory");
    let directory = parent.path().join("db");
    let sockets = directory.join("server");
    let shared = Shared::default();
    let mut acknowledged = Vec::new();
    for kill in 1..=KILLS {
        let served = Served::start(&directory);
        if kill == 1 {
            let mut client = Client::connect(&sockets, "atrapos").expect("a connection");
            let made = "CREATE TABLE counter (id int PRIMARY KEY, n bigint); CREATE TABLE log (number bigint, id bigint);
                        INSERT INTO counter VALUES (1, 0)";
            run(&mut client, made).expect("an answer").expect("made");
        }
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| work(&sockets, &shared))).collect();
            while shared.told.load(Ordering::SeqCst) < kill * BETWEEN {
                assert!(
                    !clients.iter().all(std::thread::ScopedJoinHandle::is_finished),
                    "the server has gone by itself"
                );
                std::thread::yield_now();
            }
            drop(served);
            for client in clients {
                acknowledged.extend(client.join().expect("no panic"));
            }
        });
    }
    let _served = Served::start(&directory);
    let mut client = Client::connect(&sockets, "atrapos").expect("a connection");
    let mut log = Vec::new();
    let read = client.query("SELECT number, id FROM log ORDER BY number", &mut |event| {
        if let Event::Row(values) = event {
            let number = |at: usize| values[at].and_then(|text| text.parse().ok()).expect("a number");
            log.push((number(0), number(1)));
        }
    });
    read.expect("an answer");
    assert_eq!(violation(&log, &acknowledged), None);
    let counter = run(&mut client, "SELECT n FROM counter").expect("an answer");
    assert_eq!(counter, Ok(Some(log.len() as u64)));
    assert!(acknowledged.len() >= KILLS * BETWEEN);
}
