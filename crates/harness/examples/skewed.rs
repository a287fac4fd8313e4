//! Measurement of the price of skew for a fixed scheme, with clients that are sessions on the workers, and with threads outside: a class of TATP, any routing.
//!
//! `skewed [class] [sessions on each worker, or threads] [rounds]`
//!
//! Two databases in memory, of which one adapts itself, take turns; before the rounds of a distribution of keys the adaptive one runs on it
//! for some seconds. Prints the median throughput of both, their ratio, and how busy the workers of the fixed one were and how many
//! transactions each was the home of.

#![expect(clippy::print_stdout, reason = "a program says what it measures")]

use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use atrapos::{Adaptation, Database};
use atrapos_harness::driver::{Clients, Routing, RunOptions};
use atrapos_harness::median;
use atrapos_harness::registry::AnyWorkload;
use atrapos_standard_benchmarks::tatp;
use atrapos_workloads::KeyChoice;
use atrapos_workloads::tatp::Tatp;
use atrapos_workloads::tatp::parameters::{Class, Mix};

type Error = Box<dyn std::error::Error>;

/// The allocator of the program `atrapos`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SUBSCRIBERS: u64 = 400_000;
const SESSIONS: NonZeroUsize = NonZeroUsize::new(64).expect("more than none");
/// Time for which the adaptive database runs on a distribution before the turns.
const ADAPTING_SECONDS: f64 = 6.0;
const TURN_SECONDS: f64 = 0.5;

fn workload(mix: Mix, choice: KeyChoice) -> Result<Box<dyn AnyWorkload>, Error> {
    Ok(tatp(Tatp::new(SUBSCRIBERS, mix, choice, 1)?))
}

fn open(adapts: bool) -> Result<Database, Error> {
    let workload = workload(Mix::Standard, KeyChoice::Uniform)?;
    let mut builder = Database::builder(workload.schema()).workers(2);
    builder = if adapts { builder.adaptation(Adaptation::default()) } else { builder.fixed_scheme() };
    let db = builder.in_memory()?;
    workload.load(&db, &atrapos::LoadProgress::default())?;
    Ok(db)
}

fn run(db: &Database, workload: &dyn AnyWorkload, clients: Clients, seconds: f64) -> Result<f64, Error> {
    let options = RunOptions {
        clients,
        routing: Routing::Any,
        warmup: Duration::from_millis(100),
        measured: Duration::from_secs_f64(seconds),
        run: 0,
        live: None,
    };
    Ok(workload.run(db, &options, &AtomicBool::new(false), &mut |_| ())?.throughput_tps())
}

/// Returns the throughput of the fixed database and of the adaptive one, in turns.
fn compare(
    (fixed, adaptive): (&Database, &Database),
    workload: &dyn AnyWorkload,
    clients: Clients,
    rounds: usize,
) -> Result<(f64, f64), Error> {
    run(adaptive, workload, clients, ADAPTING_SECONDS)?;
    let (mut of_fixed, mut of_adaptive) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        of_fixed.push(run(fixed, workload, clients, TURN_SECONDS)?);
        of_adaptive.push(run(adaptive, workload, clients, TURN_SECONDS)?);
    }
    Ok((median(&mut of_fixed), median(&mut of_adaptive)))
}

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let mix: Mix = arguments.next().map_or(Ok(Mix::Only(Class::GetSubscriberData)), |text| text.parse())?;
    let count: NonZeroUsize = arguments.next().map_or(Ok(SESSIONS), |text| text.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(7), |text| text.parse())?;
    let (fixed, adaptive) = (open(false)?, open(true)?);
    let hot = |first_permille, size_permille| KeyChoice::Hot {
        requests_percent: 50,
        first_permille,
        size_permille,
    };
    let keys = [("uniform", KeyChoice::Uniform), ("50% to 20%", hot(0, 200)), ("50% to 1%", hot(0, 10))];
    let places = [
        ("sessions on workers", Clients::sessions(count)),
        ("threads outside", Clients::Threads { threads: count }),
    ];
    for (place, clients) in places {
        for (name, choice) in keys {
            let before = fixed.worker_reports();
            let (of_fixed, of_adaptive) =
                compare((&fixed, &adaptive), &*workload(mix, choice)?, clients, rounds)?;
            let ratio = of_adaptive / of_fixed;
            println!("{place}, {name}: {of_fixed:.0}/s fixed, {of_adaptive:.0}/s adaptive, {ratio:.2}");
            // Idle while the other side has its turn.
            for (worker, (after, before)) in fixed.worker_reports().iter().zip(&before).enumerate() {
                let busy = fixed.duration_of(after.runtime.busy_ticks.since(before.runtime.busy_ticks));
                let homes = after.transactions.committed - before.transactions.committed;
                println!(
                    "    worker {worker} of the fixed one: busy for {busy:.2?}, home of {homes} transactions"
                );
            }
        }
    }
    Ok(())
}
