//! [`Key`]: what structures are searched by.
//!
//! Owns: how each structure sees a key. Never: allocates to look one up.

use std::borrow::Borrow;
use std::hash::Hash;

use crate::optimistic::{Keep, Strings, Words};
use crate::structure::Refused;

/// Keys of structures: `u64`, or byte strings in the order of their bytes.
pub trait Key: Ord + Hash + Send + Sync + 'static {
    /// The key as a structure keeps it.
    type Stored: Borrow<Self>
        + Clone
        + Ord
        + Hash
        + Send
        + Sync
        + concurrent_map::Minimum
        + ferntree::OptimisticRead
        + 'static;

    /// The way in which the trees of [`optimistic`](crate::optimistic) keep keys.
    type Kept: Keep<Key = Self> + 'static;

    /// Returns the key as a structure keeps it.
    fn stored(&self) -> Self::Stored;

    /// Runs `run` on bytes that are in the order of the keys.
    fn with_bytes<R>(&self, run: impl FnOnce(&[u8]) -> R) -> R;

    /// Runs `run` on the key that has these bytes, which come from [`with_bytes`](Key::with_bytes).
    fn with_key<R>(bytes: &[u8], run: impl FnOnce(&Self) -> R) -> R;
}

impl Key for u64 {
    type Stored = u64;
    type Kept = Words;

    #[inline(always)]
    fn stored(&self) -> u64 {
        *self
    }

    #[inline(always)]
    fn with_bytes<R>(&self, run: impl FnOnce(&[u8]) -> R) -> R {
        run(&self.to_be_bytes())
    }

    #[inline(always)]
    fn with_key<R>(bytes: &[u8], run: impl FnOnce(&u64) -> R) -> R {
        let bytes = bytes.first_chunk().expect("bytes of an integer are eight");
        run(&u64::from_be_bytes(*bytes))
    }
}

impl Key for [u8] {
    type Stored = Vec<u8>;
    type Kept = Strings;

    #[inline]
    fn stored(&self) -> Vec<u8> {
        self.to_vec()
    }

    #[inline(always)]
    fn with_bytes<R>(&self, run: impl FnOnce(&[u8]) -> R) -> R {
        run(self)
    }

    #[inline(always)]
    fn with_key<R>(bytes: &[u8], run: impl FnOnce(&[u8]) -> R) -> R {
        run(bytes)
    }
}

/// Refuses a key that is too long for the trees of [`optimistic`](crate::optimistic).
#[inline]
pub(crate) fn refuse_long<K: Key + ?Sized>(key: &K) -> Result<(), Refused> {
    let (bytes, max) = (key.with_bytes(<[u8]>::len), K::Kept::BYTES_MAX);
    if bytes > max { Err(Refused::KeyTooLong { bytes, max }) } else { Ok(()) }
}
