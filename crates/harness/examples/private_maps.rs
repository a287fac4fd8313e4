//! YCSB on two private `BTreeMap`s: the requests and records of `atrapos bench ycsb --routing owner`, without an engine.
//!
//! `private_maps <letter> [rows] [seconds] [rounds]`
//!
//! Each of two pinned threads owns the records of one half of the keys and draws its requests among them. A read copies the
//! record of 1,000 bytes out, an update writes one column in place, a scan copies up to 100 records out into a vector. Prints
//! the operations per second of each round, both threads together: the bar that YCSB is compared with in
//! `docs/benchmarks.md`.

#![expect(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a program says what it measures and what is wrong"
)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use atrapos::{Row as _, RowEdit};
use atrapos_runtime::affinity::pin_current_thread;
use atrapos_workloads::KeySet;
use atrapos_workloads::ycsb::mix::{Kind, Mix};
use atrapos_workloads::ycsb::parameters::Parameters;
use atrapos_workloads::ycsb::schema::{Keys, Record as _, Wide};
use atrapos_workloads::ycsb::{Ycsb, YcsbConfig};

/// Operations between two looks at the clock.
const BETWEEN_LOOKS: u64 = 256;

type Error = Box<dyn std::error::Error>;

/// The bytes of a record.
type Bytes = [u8; 1_000];

fn record(key: u64) -> Result<Bytes, Error> {
    let mut bytes = Vec::new();
    Wide::new(key).encode(&mut bytes);
    Ok(bytes.as_slice().try_into()?)
}

/// One thread's half of the records and its requests.
struct Half {
    map: BTreeMap<u64, Bytes>,
    requests: Parameters,
}

impl Half {
    fn new(ycsb: &Ycsb<Wide>, thread: u64) -> Result<Half, Error> {
        let rows = ycsb.config().rows;
        let (first, last) = if thread == 0 { (0, rows / 2 - 1) } else { (rows / 2, rows - 1) };
        let keys = Keys::of(rows);
        let own = KeySet::range(first, last).ok_or("there are no records for each of two threads")?;
        let loaded = (first..=last).map(|at| keys.loaded(at));
        let map = loaded.map(|key| Ok((key, record(key)?))).collect::<Result<_, Error>>()?;
        Ok(Half { map, requests: ycsb.parameters(own, thread + 1) })
    }

    fn run_one(&mut self) -> Result<(), Error> {
        let op = self.requests.op();
        match op.kind {
            Kind::Read => drop(black_box(self.map.get(&op.key).copied().ok_or("a record is missing")?)),
            Kind::Update | Kind::ReadModifyWrite => {
                let record = self.map.get_mut(&op.key).ok_or("a record is missing")?;
                if op.kind == Kind::ReadModifyWrite {
                    black_box(*record);
                }
                Wide::write_column(&mut RowEdit::new(record)?, op.key, op.detail);
            }
            Kind::Insert => {
                self.map.insert(op.key, record(op.key)?);
                self.requests.committed(1);
            }
            Kind::Scan => {
                let found = self.map.range(op.key..).take(op.detail as usize);
                black_box(found.map(|(key, record)| (*key, *record)).collect::<Vec<_>>());
            }
        }
        Ok(())
    }

    /// Runs operations for about this long and returns how many were run per second.
    fn run(&mut self, time: Duration) -> Result<f64, Error> {
        let began = Instant::now();
        let mut done = 0;
        while began.elapsed() < time {
            for _ in 0..BETWEEN_LOOKS {
                self.run_one()?;
            }
            done += BETWEEN_LOOKS;
        }
        Ok(done as f64 / began.elapsed().as_secs_f64())
    }
}

/// Runs the rounds and prints the sum of both threads for each.
fn measure(mix: Mix, rows: u64, seconds: f64, rounds: u32) -> Result<(), Error> {
    let distribution = mix.distribution();
    let ycsb = Ycsb::<Wide>::new(YcsbConfig { mix, rows, distribution, ..YcsbConfig::default() })?;
    let mut halves = [Half::new(&ycsb, 0)?, Half::new(&ycsb, 1)?];
    for _ in 0..rounds {
        let barrier = Barrier::new(2);
        let time = Duration::from_secs_f64(seconds);
        let rates = std::thread::scope(|scope| {
            let barrier = &barrier;
            let [one, other] = &mut halves;
            let threads = [(0, one), (1, other)].map(|(cpu, half)| {
                scope.spawn(move || {
                    // Best effort: an unpinned thread measures too.
                    let _ = pin_current_thread(cpu);
                    barrier.wait();
                    half.run(time).map_err(|error| error.to_string())
                })
            });
            threads.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let sum = rates.into_iter().sum::<Result<f64, String>>()?;
        println!("{sum:.0} operations/s");
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let at = |place: usize, default: &'static str| arguments.get(place).map_or(default, String::as_str);
    let run = || -> Result<(), Error> {
        let mix: Mix = at(0, "c").parse()?;
        let (rows, seconds, rounds) = (at(1, "100000").parse()?, at(2, "2").parse()?, at(3, "1").parse()?);
        if rows < 2 || !(0.0..1e6).contains(&seconds) {
            return Err("use at least two rows and fewer than a million seconds".into());
        }
        measure(mix, rows, seconds, rounds)
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}; use private_maps <letter> [rows] [seconds] [rounds]");
            ExitCode::from(2)
        }
    }
}
