//! Serializable isolation, shown on the simulation (hundreds of seeds, each another interleaving) and on real threads, more
//! of them than cores.
//!
//! Every scenario is a function over either engine that returns what it found wrong; so the planted bugs can be put before
//! the very same scenarios.

pub(crate) mod ages;
pub(crate) mod anomalies;
pub(crate) mod bank;
pub(crate) mod by_hand;
pub(crate) mod hermitage;
pub(crate) mod history;
pub(crate) mod lists;
#[cfg(debug_assertions)]
pub(crate) mod queues;
pub(crate) mod shared;
pub(crate) mod unwaited;
pub(crate) mod waiting;

use crate::support::{Engine, for_seeds};
use atrapos::Schema;

/// Workers of the real databases here: several times the cores of a small machine.
const THREADS: usize = 8;

/// Runs a scenario on simulated workers, two to four of them, with many seeds.
fn simulated(
    count: u64,
    schema: fn() -> Schema,
    scenario: fn(&mut Engine, usize, u64) -> Result<(), String>,
) {
    for_seeds(count, |seed| {
        let workers = 2 + (seed % 3) as usize;
        let mut engine = Engine::simulated(schema(), workers, seed);
        if let Err(wrong) = scenario(&mut engine, workers, seed) {
            panic!("with seed {seed}: {wrong}");
        }
    });
}

/// Runs a scenario on real threads.
fn threaded(count: u64, schema: fn() -> Schema, scenario: fn(&mut Engine, usize, u64) -> Result<(), String>) {
    for_seeds(count, |seed| {
        let mut engine = match seed % 2 {
            0 => Engine::threads(schema(), THREADS),
            _ => Engine::shuffled_threads(schema(), THREADS, seed),
        };
        if let Err(wrong) = scenario(&mut engine, THREADS, seed) {
            panic!("with the choices of seed {seed}: {wrong}");
        }
    });
}
