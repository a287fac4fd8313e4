//! Time and gap of the fast search for 200 structures on 384 workers, and its distance from the exact optimum in smaller
//! random cases.
//!
//! `cargo run --release -p atrapos-composition --example large [CASES] [STEPS]`
//!
//! `CASES` random cases (200 unless given) are searched exactly with up to `STEPS` steps each (1,000,000,000). Of those with a
//! proven optimum, the program says how far the fast search is from it; the others are only counted.
#![expect(
    clippy::disallowed_types,
    reason = "this program measures the library, which itself reads no clock"
)]
#![expect(clippy::print_stdout, reason = "printing is what this program is for")]

use atrapos_composition::{
    Composition, CompositionError, Demand, Effort, Kind, LoadBounds, Settings, Structure, compose,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::error::Error;
use std::time::Instant;

/// Relative difference of loads up to which an optimum counts as proven: twice the tolerance of the search.
const PROVEN: f64 = 2e-6;

fn main() -> Result<(), Box<dyn Error>> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let cases = numbers.next().transpose()?.unwrap_or(200);
    let steps = numbers.next().transpose()?.unwrap_or(1_000_000_000);
    for seed in 1..=3 {
        large(seed);
    }
    compare(cases, steps);
    Ok(())
}

/// Structures with sizes out of `sizes` and loads that spread over two orders of magnitude, in proportion to the sizes or not.
fn demand(random: &mut StdRng, count: usize, sizes: &[u32], in_proportion: bool) -> Demand {
    let structures = (0..count).map(|at| {
        let workers_max = sizes[random.random_range(0..sizes.len())];
        let factor = if in_proportion { f64::from(workers_max) } else { 1.0 };
        let load = factor * 10_f64.powf(random.random_range(0.0..2.0));
        Structure { name: format!("structure-{at}"), workers_max, load, isolated: false }
    });
    Demand { structures: structures.collect(), together: Vec::new() }
}

/// Bounds around the load per worker that there would be if all workers were equally loaded.
fn bounds_of(demand: &Demand, workers: u32, min: f64, max: f64) -> LoadBounds {
    let load: f64 = demand.structures.iter().map(|structure| structure.load).sum();
    let even = load / f64::from(workers);
    LoadBounds::PerWorker { min: min * even, max: max * even }
}

fn search(
    demand: &Demand,
    workers: u32,
    bounds: LoadBounds,
    effort: Effort,
) -> (Result<Composition, CompositionError>, f64) {
    let from = Instant::now();
    let found = compose(demand, workers, Kind::Shared, &Settings { bounds, effort });
    (found, from.elapsed().as_secs_f64())
}

/// The fast search for 200 structures on 384 workers, with the sizes of `Virtual domains`, table 2, and with many sizes.
fn large(seed: u64) {
    for (named, sizes) in
        [("table 2", &[1, 24, 48][..]), ("24 and 48", &[24, 48]), ("many", &[4, 8, 12, 16, 24, 48, 96])]
    {
        let demand = demand(&mut StdRng::seed_from_u64(seed), 200, sizes, true);
        for (min, max) in [(0.0, f64::INFINITY), (0.0, 4.0), (0.5, 1.5), (0.9, 1.1)] {
            let bounds = bounds_of(&demand, 384, min, max);
            let (found, seconds) = search(&demand, 384, bounds, Effort::fast());
            let outcome = match found {
                Ok(found) => format!(
                    "{:?}, gap of sizes {:.4}, of balance {:.6}, {} steps",
                    found.sizes(),
                    found.gap.sizes,
                    found.gap.balance,
                    found.gap.steps
                ),
                Err(error) => error.to_string(),
            };
            println!(
                "200 on 384, sizes {named}, seed {seed}, load {min} to {max} of even: {seconds:.3} s, {outcome}"
            );
        }
    }
}

/// Sums over the random cases.
#[derive(Debug, Default)]
struct Distance {
    impossible: u64,
    unproven: u64,
    proven: u64,
    /// Proven cases whose optimum the fast search did not prove by itself.
    not_by_fast: u64,
    /// Proven cases in which the fast search found nothing.
    missed: u64,
    /// Proven cases in which it found worse numbers of domains.
    sizes_worse: u64,
    /// Proven cases with the best numbers of domains, and a peak more than 5% above the least.
    balance_worse: u64,
    /// Greatest peak over the least, minus 1, with the best numbers of domains.
    balance_max: f64,
    fast_seconds_max: f64,
    exact_seconds_max: f64,
}

impl Distance {
    fn add(
        &mut self,
        fast: &Result<Composition, CompositionError>,
        exact: &Result<Composition, CompositionError>,
    ) {
        let exact = match exact {
            Ok(exact) if exact.gap.is_closed(PROVEN) => exact,
            Err(CompositionError::Infeasible { .. } | CompositionError::TooMuchLoad { .. }) => {
                self.impossible += 1;
                return;
            }
            _ => {
                self.unproven += 1;
                return;
            }
        };
        self.proven += 1;
        let by_fast = fast.as_ref().is_ok_and(|fast| fast.gap.is_closed(PROVEN));
        self.not_by_fast += u64::from(!by_fast);
        match fast {
            Err(_) => self.missed += 1,
            Ok(fast) if fast.sizes() != exact.sizes() => self.sizes_worse += 1,
            Ok(fast) => {
                let balance = fast.load_per_worker_max() / exact.load_per_worker_max() - 1.0;
                self.balance_worse += u64::from(balance > 0.05);
                self.balance_max = self.balance_max.max(balance);
            }
        }
    }
}

fn compare(cases: u64, steps: u64) {
    let mut distance = Distance::default();
    for seed in 0..cases {
        let mut random = StdRng::seed_from_u64(1_000 + seed);
        let count = random.random_range(4..=40);
        let workers = random.random_range(24..=192);
        let sizes = [&[1, 24, 48][..], &[2, 4, 8], &[4, 6, 9, 16, 24], &[12, 24]][random.random_range(0..4)];
        let in_proportion = random.random_bool(0.7);
        let demand = demand(&mut random, count, sizes, in_proportion);
        let (min, max) =
            [(0.0, f64::INFINITY), (0.0, 3.0), (0.5, 1.5), (0.3, 4.0)][random.random_range(0..4)];
        let bounds = bounds_of(&demand, workers, min, max);
        let (fast, seconds) = search(&demand, workers, bounds, Effort::fast());
        distance.fast_seconds_max = distance.fast_seconds_max.max(seconds);
        let (exact, seconds) = search(&demand, workers, bounds, Effort::exact(steps));
        distance.exact_seconds_max = distance.exact_seconds_max.max(seconds);
        if let (Err(error), Ok(exact)) = (&fast, &exact) {
            println!("case {seed}, {count} on {workers}: exact {:?}, fast: {error}", exact.sizes());
        }
        distance.add(&fast, &exact);
    }
    println!(
        "{cases} cases of 4 to 40 structures on 24 to 192 workers, exact within {steps} steps: {distance:?}"
    );
}
