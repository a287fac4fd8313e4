//! The names under which lockable things are found in the lock table.
//!
//! Owns: the hash function. Never: keeps a key.
//!
//! A lockable is named by 64 bits: of a key, the hash of its bytes and of its table. Two lockables of the same name share
//! one lock. That is as safe as two locks, because every rule of the lock manager speaks of names; it only makes one
//! transaction wait for another without need, in one of some 2^64 pairs (Shore and its successors name keys in
//! this way, too). In return no lock has to keep or compare a key.
//!
//! Invariants: names of keys are even and those of tables and of the database are odd, so that a key never shares its lock
//! with a table. The name of the database and those of tables differ from each other.

use atrapos_partition::schema::TableId;

use super::KeyOrEnd;

/// The name of a lockable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name(pub(super) u64);

const A: u64 = 0x9e37_79b9_7f4a_7c15;
const B: u64 = 0xd1b5_4a32_d192_ed03;
const C: u64 = 0x8cb9_2ba7_2f3d_8dd7;
/// No factor of the first multiplication is zero for a key that anybody would make: a zero would hide the other factor.
const D: u64 = 0x2545_f491_4f6c_dd1d;

/// Both halves of the product, folded into one: every bit of the result depends on every bit of the operands.
#[inline(always)]
const fn fold(a: u64, b: u64) -> u64 {
    let product = (a as u128) * (b as u128);
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
    let low = product as u64;
    low ^ ((product >> 64) as u64)
}

#[inline(always)]
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

#[inline(always)]
fn half_word(bytes: &[u8]) -> u64 {
    let mut word = [0; 4];
    word.copy_from_slice(bytes);
    u64::from(u32::from_le_bytes(word))
}

impl Name {
    /// The name of the database.
    pub(super) const DATABASE: Name = Name::of_slot(0);

    /// The name of the table.
    pub(super) const fn of_table(table: TableId) -> Name {
        Name::of_slot(table.0 as u64 + 1)
    }

    /// An odd multiple is another one for each slot; the lowest bit is kept out of it.
    const fn of_slot(slot: u64) -> Name {
        Name((slot.wrapping_add(1).wrapping_mul(A) << 1) | 1)
    }

    /// The name of a key, or of the end of a table.
    #[inline]
    pub(super) fn of_key(table: TableId, key: KeyOrEnd<'_>) -> Name {
        let seed = (u64::from(table.0) + 1).wrapping_mul(A) ^ D;
        match key {
            KeyOrEnd::Key(key) => Name(hash(seed, key) & !1),
            // No key has this length.
            KeyOrEnd::End => Name(fold(fold(seed, B), u64::MAX ^ C) & !1),
        }
    }

    /// The number of the bucket, of `1 << bits` ones. The upper bits, because those of tables are multiples.
    #[inline(always)]
    pub(super) const fn bucket(self, bits: u32) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "the shift leaves fewer bits than an index has")]
        let bucket = (self.0 >> (u64::BITS - bits)) as usize;
        bucket
    }

    /// The place in a private table of `mask + 1` entries.
    #[inline(always)]
    pub(super) const fn slot(self, mask: usize) -> usize {
        (self.0 >> 1) as usize & mask
    }
}

/// The hash of up to sixteen bytes needs two multiplications; each sixteen bytes before them need one more.
#[inline]
fn hash(seed: u64, bytes: &[u8]) -> u64 {
    let mut state = seed;
    let mut rest = bytes;
    while let Some((chunk, behind)) = rest.split_at_checked(16)
        && !behind.is_empty()
    {
        state = fold(word(&chunk[..8]) ^ B, word(&chunk[8..]) ^ state);
        rest = behind;
    }
    let length = rest.len();
    let (low, high) = match length {
        8..=16 => (word(&rest[..8]), word(&rest[length - 8..])),
        4..=7 => (half_word(&rest[..4]), half_word(&rest[length - 4..])),
        1..=3 => {
            let ends = u64::from(rest[0]) | u64::from(rest[length - 1]) << 8;
            (ends, u64::from(rest[length / 2]))
        }
        _ => (0, 0),
    };
    fold(fold(low ^ state, high ^ B), bytes.len() as u64 ^ C)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_differ() {
        let mut names = HashSet::new();
        assert!(names.insert(Name::DATABASE.0));
        for table in 0..=u16::MAX {
            assert!(names.insert(Name::of_table(TableId(table)).0));
        }
        let bytes: Vec<u8> = (0..80).map(|at: u8| at.wrapping_mul(37)).collect();
        for table in [0, 1, 700] {
            assert!(names.insert(Name::of_key(TableId(table), KeyOrEnd::End).0));
            for from in 0..8 {
                for to in from + 1..bytes.len() {
                    assert!(names.insert(Name::of_key(TableId(table), KeyOrEnd::Key(&bytes[from..to])).0));
                }
            }
            assert!(names.insert(Name::of_key(TableId(table), KeyOrEnd::Key(&[])).0));
            for number in 0u64..100_000 {
                assert!(names.insert(Name::of_key(TableId(table), KeyOrEnd::Key(&number.to_be_bytes())).0));
            }
        }
    }

    /// One changed bit anywhere in a key changes the name, and keys of a counter spread over the buckets.
    #[test]
    fn every_byte_counts() {
        for length in 1..70 {
            let key = vec![0xa5u8; length];
            let name = Name::of_key(TableId(3), KeyOrEnd::Key(&key));
            for bit in 0..length * 8 {
                let mut other = key.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(Name::of_key(TableId(3), KeyOrEnd::Key(&other)), name);
            }
        }
        let mut buckets = vec![0; 1024];
        for number in 0u64..16 * 1024 {
            buckets[Name::of_key(TableId(1), KeyOrEnd::Key(&number.to_be_bytes())).bucket(10)] += 1;
        }
        assert!(buckets.iter().all(|keys| *keys < 50), "{:?}", buckets.iter().max());
    }
}
