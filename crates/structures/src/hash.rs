//! [`FoldedHash`]: the hash of the hash maps here, which is the one that the paper has improved (its footnote 1).
//!
//! Owns: the hash. Never: is used against adversaries who choose keys.
//!
//! A hash map that takes its buckets from the low bits of a product sees only the low bits of a key there. The exclusive or of the upper
//! half of the key with its lower half, before the product, brings the rest in. Maps here take their buckets from the high bits, the low bits
//! or both, so the upper half of the product of 128 bits is combined with the lower one, too.

use std::hash::{BuildHasher, Hash, Hasher};

/// The multiplier of Fibonacci hashing: 2^64 divided by the golden ratio.
pub const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Hashes an integer by the product alone, as hash maps do whose buckets the paper found to be skewed.
#[inline]
#[must_use]
pub const fn multiplied(key: u64) -> u64 {
    key.wrapping_mul(MULTIPLIER)
}

/// Hashes an integer by the product, after its upper half was combined with the lower one.
#[inline]
#[must_use]
pub const fn folded(key: u64) -> u64 {
    multiplied(key ^ (key >> 32))
}

/// The hash as a `BuildHasher`.
#[derive(Clone, Copy, Debug, Default)]
pub struct FoldedHash;

impl FoldedHash {
    /// The hash of a key.
    #[inline]
    pub(crate) fn of<K: Hash + ?Sized>(key: &K) -> u64 {
        FoldedHash.hash_one(key)
    }
}

/// The state of a [`FoldedHash`].
#[derive(Clone, Copy, Debug, Default)]
pub struct FoldedHasher(u64);

impl BuildHasher for FoldedHash {
    type Hasher = FoldedHasher;

    #[inline]
    fn build_hasher(&self) -> FoldedHasher {
        FoldedHasher::default()
    }
}

impl Hasher for FoldedHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let mut hasher = rustc_hash::FxHasher::default();
        hasher.write(bytes);
        self.write_u64(hasher.finish());
    }

    #[inline]
    fn write_u64(&mut self, key: u64) {
        let product = u128::from((self.0 ^ key) ^ (key >> 32)) * u128::from(MULTIPLIER);
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    #[inline]
    fn write_usize(&mut self, length: usize) {
        // The length of a byte string comes before it.
        self.0 ^= length as u64;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
