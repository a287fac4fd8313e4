//! Accesses that look keys up together, beside the same one at a time, by one thread.
//!
//! `cargo bench -p atrapos-structures --bench together` prints best and median over repetitions that alternate between the two, for
//! 10,000,000 keys in no order. Without cargo's own `--bench`, as in `cargo test --benches`, each runs once at a tiny size and
//! nothing is printed.

#![expect(clippy::disallowed_types, reason = "a bench reads the clock")]

use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

use atrapos_structures::{Kind, Opened, Owned, PointAccess, Shared, Visit};

/// Accesses that are given at once.
const TOGETHER: usize = 14;

struct Size {
    keys: u64,
    accesses: usize,
    repetitions: usize,
}

/// Keys that are neither in order nor near each other: a bijection (the finalizer of SplitMix64).
fn key(number: u64) -> u64 {
    let mut key = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    key = (key ^ (key >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    key = (key ^ (key >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    key ^ (key >> 31)
}

struct Measure<'s>(Kind, &'s Size);

impl Measure<'_> {
    fn run(&self, structure: &mut impl Owned<u64>) -> String {
        let size = self.1;
        for number in 0..size.keys {
            assert_eq!(structure.insert(&key(number), number), Ok(true), "keys differ");
        }
        let mut text = String::new();
        for every in [usize::MAX, 2] {
            let (mut alone, mut together) = (Vec::new(), Vec::new());
            for repetition in 0..size.repetitions as u64 {
                alone.push(round(structure, size, (repetition, every), false));
                together.push(round(structure, size, (repetition, every), true));
            }
            let workload = if every == 2 { "half updates" } else { "reads" };
            text += &format!("  {:<18} {workload:<14}", self.0.name());
            for ns in [&mut alone, &mut together] {
                ns.sort_by(f64::total_cmp);
                text += &format!(" {:8.1} {:8.1}", ns[0], ns[ns.len() / 2]);
            }
            text += &format!(" {:8.2}\n", alone[alone.len() / 2] / together[together.len() / 2]);
        }
        text
    }
}

/// Nanoseconds per access; every so many accesses, one is an update.
fn round(structure: &mut impl Owned<u64>, size: &Size, (seed, every): (u64, usize), together: bool) -> f64 {
    let keys: Vec<u64> =
        (0..size.accesses as u64).map(|at| key(key(seed * size.accesses as u64 + at) % size.keys)).collect();
    let access = |at: usize, key| match at % every {
        1 => PointAccess::Update(key, at as u64),
        _ => PointAccess::Read(key),
    };
    let accesses: Vec<_> = keys.iter().enumerate().map(|(at, key)| access(at, key)).collect();
    let mut found = [None; TOGETHER];
    let started = Instant::now();
    for accesses in accesses.chunks(TOGETHER) {
        if together {
            structure.access_many(accesses, &mut found);
        } else {
            for (access, found) in accesses.iter().zip(&mut found) {
                *found = match *access {
                    PointAccess::Read(key) => structure.read(key),
                    PointAccess::Update(key, value) => structure.update(key, value).then_some(value),
                };
            }
        }
        assert!(black_box(&found[..accesses.len()]).iter().all(Option::is_some), "every key is there");
    }
    started.elapsed().as_nanos() as f64 / size.accesses as f64
}

impl Visit<u64> for Measure<'_> {
    type Output = String;

    fn shared<S: Shared<u64> + 'static>(self, make: fn() -> S) -> String {
        self.run(&mut Opened::new(&make()))
    }

    fn owned<S: Owned<u64> + 'static>(self, make: fn() -> S) -> String {
        self.run(&mut make())
    }
}

fn main() {
    let tiny = !std::env::args().any(|argument| argument == "--bench");
    let size = match tiny {
        true => Size { keys: 1_000, accesses: 100, repetitions: 1 },
        false => Size { keys: 10_000_000, accesses: 1_000_000, repetitions: 7 },
    };
    let mut table =
        String::from("ns per access:                     alone: best   median together:   median    ratio\n");
    for kind in [Kind::OwnedTree, Kind::OwnedHashMap, Kind::BTree, Kind::FpTreeFallback] {
        table += &kind.visit(Measure(kind, &size));
    }
    if !tiny {
        // Nobody is left to tell if standard output is gone.
        let _ = std::io::stdout().write_all(table.as_bytes());
    }
}
