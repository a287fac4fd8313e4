//! The generator seam: small seeded generators, one stream per user, all from one seed.
//!
//! Owns: how streams are derived from a seed. Never: takes randomness from the operating system, so that a run is
//! repeated by its seed. No unsafe code.
//!
//! Invariant: the same seed and stream give the same numbers within one build of the project.

use rand::SeedableRng;

/// The generator that workers, drivers and tests use: small and fast, not for secrets.
pub type Rng = rand::rngs::SmallRng;

/// The seed from which all randomness of a run derives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Seed(pub u64);

impl Seed {
    /// The generator of one stream: streams of one seed are independent of each other for all practical purposes.
    #[must_use]
    pub fn rng(self, stream: u64) -> Rng {
        Rng::seed_from_u64(self.derive(stream).0)
    }

    /// The seed of one stream, for users that need several streams of their own.
    #[must_use]
    pub fn derive(self, stream: u64) -> Self {
        // Two rounds of the splitmix64 finalizer, so that neighbouring seeds and streams share nothing.
        Self(mix(mix(self.0) ^ stream.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }
}

fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use rand::RngExt;

    use super::*;

    #[test]
    fn seeds_repeat_and_streams_differ() {
        let draw = |seed: u64, stream: u64| Seed(seed).rng(stream).random::<u64>();
        assert_eq!(draw(7, 3), draw(7, 3));
        let mut all: Vec<u64> =
            (0..20).flat_map(|seed| (0..20).map(move |stream| draw(seed, stream))).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 400, "neighbouring seeds and streams must not coincide");
    }
}
