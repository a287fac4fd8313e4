//! Histories of many clients of a server that is killed, and of clients that go in the middle of a transaction.
//!
//! Each transaction counts a counter up and notes its number in a log. So the numbers are an order of all transactions, and the history is
//! strictly serializable if they have no gap, and no transaction that began after another was acknowledged has a smaller number. Moments
//! are numbers of one counter of the test, not times.
//!
//! Loads in bulk are killed, too: their tables have all rows of one load.

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
    client.query(text, &mut std::io::empty(), &mut |event| match event {
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
    let text = "SELECT number, id FROM log ORDER BY number";
    let read = client.query(text, &mut std::io::empty(), &mut |event| {
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

// --- loads in bulk ------------------------------------------------------------------------------------------------------

/// Rows of a load: more than a megabyte, so that they are loaded in bulk.
const LOADED: u64 = 12_000;
/// Clients that load, each its own table, over and over.
const LOADERS: usize = 2;
/// Loads that are acknowledged between two kills, at least.
const LOADS_BETWEEN: usize = 3;

/// The loads of a client: the generation of rows that it has begun last, and the one that was acknowledged last.
#[derive(Clone, Copy, Debug, Default)]
struct Loads {
    begun: u64,
    acknowledged: u64,
}

/// Loads one generation of rows after another into a table, in place of those before, until the server is gone.
fn load(directory: &Path, table: &str, mut loads: Loads, told: &AtomicUsize) -> Loads {
    let Ok(mut client) = Client::connect(directory, "atrapos") else { return loads };
    let text = format!("BEGIN; TRUNCATE {table}; COPY {table} FROM STDIN; COMMIT");
    loop {
        loads.begun += 1;
        let padding = "x".repeat(100);
        let rows: String = (0..LOADED).map(|id| format!("{id}\t{}\t{padding}\n", loads.begun)).collect();
        let mut failed = None;
        let answered = client.query(&text, &mut rows.as_bytes(), &mut |event| {
            if let Event::Error(error) = event {
                failed = Some(error);
            }
        });
        if answered.is_err() {
            return loads;
        }
        assert_eq!(failed, None);
        loads.acknowledged = loads.begun;
        told.fetch_add(1, Ordering::SeqCst);
    }
}

/// The rows of a table that is loaded: their number, the sum of their keys, the least and the greatest generation.
#[derive(Clone, Copy, Debug)]
struct Found {
    count: u64,
    sum: u64,
    least: u64,
    most: u64,
}

/// Returns what is wrong with a table: it has to have all rows of one generation, the last one that was acknowledged, or one that was
/// begun since. Without rows its generation is 0.
fn wrong(loads: Loads, found: Found) -> Option<String> {
    let (count, sum) = if found.most == 0 { (0, 0) } else { (LOADED, LOADED * (LOADED - 1) / 2) };
    if !(loads.acknowledged..=loads.begun).contains(&found.most) {
        return Some(format!("{loads:?} have left {found:?}"));
    }
    let is_whole = (found.count, found.sum, found.least) == (count, sum, found.most);
    (!is_whole).then(|| format!("{loads:?} have left a part of one: {found:?}"))
}

#[test]
fn the_checker_of_loads_finds_what_is_wrong() {
    let loads = Loads { begun: 3, acknowledged: 2 };
    let found = Found { count: LOADED, sum: LOADED * (LOADED - 1) / 2, least: 2, most: 2 };
    assert_eq!(wrong(loads, found), None);
    assert_eq!(wrong(loads, Found { least: 3, most: 3, ..found }), None);
    assert_eq!(wrong(Loads::default(), Found { count: 0, sum: 0, least: 0, most: 0 }), None);
    for found in [
        Found { count: 0, sum: 0, least: 0, most: 0 },
        Found { least: 1, most: 1, ..found },
        Found { least: 4, most: 4, ..found },
        Found { most: 3, ..found },
        Found { count: LOADED - 1, ..found },
        Found { sum: found.sum + 1, ..found },
    ] {
        assert!(wrong(loads, found).is_some(), "{found:?}");
    }
}

/// Looks at a table, and takes what is there for the state that further loads begin with.
fn check_loaded(client: &mut Client, table: &str, loads: &mut Loads) {
    let mut value = |expr: &str| {
        let text = format!("SELECT {expr} FROM {table}");
        run(client, &text).expect("an answer").expect("it is read").unwrap_or(0)
    };
    let (count, sum) = (value("count(*)"), value("sum(id)"));
    let found = Found { count, sum, least: value("min(generation)"), most: value("max(generation)") };
    assert_eq!(wrong(*loads, found), None);
    *loads = Loads { begun: found.most, acknowledged: found.most };
}

#[test]
fn loads_in_bulk_are_there_as_a_whole_or_not_after_kills() {
    let parent = tempfile::tempdir().expect("a directory");
    let directory = parent.path().join("db");
    let sockets = directory.join("server");
    let told = AtomicUsize::new(0);
    let mut loads = [Loads::default(); LOADERS];
    for kill in 1..=KILLS + 1 {
        let served = Served::start(&directory);
        let mut client = Client::connect(&sockets, "atrapos").expect("a connection");
        for (number, loads) in loads.iter_mut().enumerate() {
            let table = format!("loaded_{number}");
            if kill == 1 {
                let made =
                    format!("CREATE TABLE {table} (id int PRIMARY KEY, generation bigint, padding text)");
                run(&mut client, &made).expect("an answer").expect("made");
            }
            check_loaded(&mut client, &table, loads);
        }
        if kill > KILLS {
            break;
        }
        std::thread::scope(|scope| {
            let (sockets, told) = (&sockets, &told);
            let start = |(number, loads): (usize, &Loads)| {
                let loads = *loads;
                scope.spawn(move || load(sockets, &format!("loaded_{number}"), loads, told))
            };
            let clients: Vec<_> = loads.iter().enumerate().map(start).collect();
            while told.load(Ordering::SeqCst) < kill * LOADS_BETWEEN {
                let all_gone = clients.iter().all(std::thread::ScopedJoinHandle::is_finished);
                assert!(!all_gone, "the server has gone by itself");
                std::thread::yield_now();
            }
            drop(served);
            for (client, loads) in clients.into_iter().zip(&mut loads) {
                *loads = client.join().expect("no panic");
            }
        });
    }
}
