//! Instructions of the lock manager and of the log, to be counted by callgrind: they repeat, while times do not.
//!
//! ```text
//! cargo build --release -p atrapos-baselines --example lock_counts
//! for rounds in 10000 20000; do
//!     valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/lock_counts keys $rounds
//! done
//! ```
//! The difference of two runs, divided by that of the rounds, is what one round takes. Operations:
//! `key` (a transaction that locks one key), `keys` (one that locks ten), `again` (ten requests for a key that is held),
//! `scan` (ten keys with their gaps), `table` (a table alone), `append` (a record of 100 bytes).

use std::hint::black_box;
use std::io;

use atrapos_baselines::lock::{Agent, KeyMode, KeyOrEnd, LockManager, LockOptions, TableMode};
use atrapos_baselines::log::{Log, LogOptions, LogSink};
use atrapos_partition::schema::TableId;

/// A sink that keeps nothing.
struct Nowhere;

impl LogSink for Nowhere {
    fn write(&mut self, parts: [&[u8]; 2]) -> io::Result<()> {
        black_box(parts);
        Ok(())
    }
}

fn lock_keys(agent: &mut Agent, round: u64, keys: u64, mode: KeyMode) {
    for number in 0..keys {
        let key = (round * keys + number).to_be_bytes();
        agent.lock(TableId(0), KeyOrEnd::Key(&key), mode).expect("nobody else is there");
    }
}

fn transaction(operation: &str, agent: &mut Agent, round: u64) {
    agent.begin(round);
    match operation {
        "key" => lock_keys(agent, round, 1, KeyMode::WRITE),
        "keys" => lock_keys(agent, round, 10, KeyMode::WRITE),
        "again" => (0..11).for_each(|_| lock_keys(agent, round, 1, KeyMode::WRITE)),
        "scan" => lock_keys(agent, round, 10, KeyMode::READ | KeyMode::PROTECT),
        "table" => agent.lock_table(TableId(0), TableMode::IX).expect("nobody else is there"),
        _ => panic!("give one of key, keys, again, scan, table, append, and a number of rounds"),
    }
    agent.release_all();
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let operation = arguments.next().unwrap_or_else(|| "key".to_owned());
    let rounds = arguments.next().and_then(|rounds| rounds.parse().ok()).unwrap_or(10_000u64);
    if operation == "append" {
        // As large as all rounds: the daemon, which callgrind counts too, has nothing to do before the end.
        let log = Log::start(Nowhere, LogOptions { buffer_bytes: 1 << 24, ..LogOptions::default() })
            .expect("threads can be started");
        let record = [7; 100];
        (0..rounds).for_each(|_| drop(black_box(log.append(&record))));
        // Not closed: the process ends with the records in the buffer.
        std::mem::forget(log);
        return;
    }
    let manager = LockManager::new(LockOptions::default());
    let mut agent = manager.agent();
    (0..rounds).for_each(|round| transaction(&operation, &mut agent, round));
}
