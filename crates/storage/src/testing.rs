//! Configuration of this crate's property tests. Compiled into the unit tests and the integration tests, never into the
//! library.
//!
//! Owns the seed: every run takes a new one, and a failure shows it and how to repeat it.

use proptest::test_runner::{Config, RngSeed};
use std::hash::{BuildHasher, RandomState};

/// Runs of `cases` cases, of `miri_cases` under Miri, which is a thousand times slower.
pub(crate) fn config(cases: u32, miri_cases: u32) -> Config {
    let defaults = Config::default();
    let seed = match defaults.rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => RandomState::new().hash_one("seed"),
    };
    #[expect(clippy::print_stdout, reason = "the test harness shows it when the test fails")]
    {
        println!("PROPTEST_RNG_SEED={seed} repeats this test");
    }
    Config {
        cases: if cfg!(miri) { miri_cases } else { cases },
        rng_seed: RngSeed::Fixed(seed),
        // A file with old failures would be written into the source tree; a failure worth keeping becomes a test.
        failure_persistence: None,
        ..defaults
    }
}
