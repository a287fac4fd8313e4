//! A counter that many threads increase and one worker owns: no lock, no atomic operation on the counter itself.
//!
//! `cargo run --release -p atrapos-domains --example counter`

use atrapos_domains::{BURST_DEFAULT, Configuration, Domains};
use atrapos_topology::{LiveOptions, Machine};

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let machine = Machine::live(&LiveOptions::new(None));
    let domains = Domains::start(&machine, &Configuration::one_worker_each(&["counters"]))?;
    let hits = domains.at("counters")?.place_owned("hits", 0_u64)?;
    std::thread::scope(|scope| {
        let count = || {
            let mut burst = domains.client().burst(&hits, BURST_DEFAULT)?;
            for _ in 0..100_000 {
                if let Some(answer) = burst.push(|hits| *hits += 1)? {
                    answer?;
                }
            }
            burst.drain().try_for_each(|answer| answer)?;
            Ok::<_, Failure>(())
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    let hits = domains.client().call_blocking(&hits, |hits| *hits)?;
    assert_eq!(hits, 400_000);
    Ok(())
}
