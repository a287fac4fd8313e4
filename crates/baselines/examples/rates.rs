//! Rates of the log buffer and of the lock manager, for each thread, with one thread and with as many as there are cores.
//!
//! `rates [seconds of each measurement] [rounds]`
//!
//! Records of 120 bytes, the small ones of "Aether: a scalable approach to logging" (VLDB 2010), go to a sink that keeps nothing; a
//! transaction locks ten rows of a table to write, of its own or of a million that all threads choose from in ascending order, and
//! releases them. The medians of the rounds are printed.

#![expect(clippy::print_stdout, reason = "a program says what it measures")]

use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use atrapos_baselines::lock::{Agent, KeyMode, KeyOrEnd, LockManager, LockOptions};
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

/// Bytes of a record.
const RECORD: usize = 120;

/// Rows that a transaction locks.
const ROWS: u64 = 10;

/// Rows from which all threads choose.
const SHARED_ROWS: u64 = 1_000_000;

/// Runs a body again and again on so many threads, and returns how often it ran per second and thread.
fn rate(threads: usize, seconds: f64, body: impl Fn(usize) -> Box<dyn FnMut()> + Sync) -> f64 {
    let stop = AtomicBool::new(false);
    let began = Instant::now();
    let runs: u64 = std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|thread| {
                let (body, stop) = (&body, &stop);
                scope.spawn(move || {
                    let (mut run, mut runs) = (body(thread), 0);
                    while !stop.load(Ordering::Relaxed) {
                        (0..64).for_each(|_| run());
                        runs += 64;
                    }
                    runs
                })
            })
            .collect();
        std::thread::sleep(Duration::from_secs_f64(seconds));
        stop.store(true, Ordering::Relaxed);
        started
            .into_iter()
            .map(|thread| thread.join().expect("a thread of the benchmark does not panic"))
            .sum()
    });
    runs as f64 / began.elapsed().as_secs_f64() / threads as f64
}

fn appended(threads: usize, seconds: f64) -> f64 {
    let log = Arc::new(Log::start(Nowhere, LogOptions::default()).expect("threads can be started"));
    rate(threads, seconds, |_| {
        let (log, record) = (Arc::clone(&log), [7; RECORD]);
        Box::new(move || {
            black_box(log.append(&record).expect("the sink takes everything"));
        })
    })
}

fn locked(threads: usize, seconds: f64, shared: bool) -> f64 {
    let locks = LockManager::new(LockOptions::default());
    rate(threads, seconds, |thread| {
        let mut agent: Agent = locks.agent();
        let mut random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(thread as u64 + 1);
        Box::new(move || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            agent.begin(random);
            let first = if shared { (random >> 20) % SHARED_ROWS } else { (thread as u64) << 40 };
            for row in 0..ROWS {
                let key = (first + row).to_be_bytes();
                if agent.lock(TableId(0), KeyOrEnd::Key(&key), KeyMode::WRITE).is_err() {
                    break;
                }
            }
            agent.release_all();
        })
    }) * ROWS as f64
}

fn median(rounds: usize, measure: impl Fn() -> f64) -> f64 {
    let mut rates: Vec<f64> = (0..rounds).map(|_| measure()).collect();
    rates.sort_unstable_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().and_then(|seconds| seconds.parse().ok()).unwrap_or(1.0);
    let rounds = arguments.next().and_then(|rounds| rounds.parse().ok()).unwrap_or(3).max(1);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    for threads in if cores > 1 { vec![1, cores] } else { vec![1] } {
        let records = median(rounds, || appended(threads, seconds));
        let own = median(rounds, || locked(threads, seconds, false));
        let shared = median(rounds, || locked(threads, seconds, true));
        println!(
            "{threads} threads, each: {:.2} M records/s = {:.0} MB/s; {:.2} M locks/s of own rows, {:.2} M of shared rows",
            records / 1e6,
            records * RECORD as f64 / 1e6,
            own / 1e6,
            shared / 1e6
        );
    }
}
