//! Records: the key of each number, its values, and the part that it belongs to.
//!
//! Owns: these encodings. Never: touches a structure.
//!
//! Records have numbers from 0; those below the load's `records` are loaded, further ones are inserted. Keys are numbers mixed by a bijection, so
//! no two are equal, and records with adjacent numbers, which are alike popular, are spread over all keys. A value is the key, turned,
//! with a payload of 32 bits: the other 32 bits tell whose value it is.

use atrapos_workloads::mixed;

/// Payloads are below this.
pub(crate) const PAYLOAD_END: u64 = 1 << 32;

/// Distinguishes the choice of a part from the choice of a key.
const PART_SALT: u64 = 0x6a09_e667_f3bc_c908;

/// The key of a record.
#[inline]
pub(crate) fn key(number: u64) -> u64 {
    mixed(number)
}

/// The value of a key with a payload, which is below [`PAYLOAD_END`].
#[inline]
pub(crate) fn value(key: u64, payload: u64) -> u64 {
    key.rotate_left(32) ^ payload
}

/// The payload of a value of a key; at least [`PAYLOAD_END`] if it is no value of this key.
#[inline]
pub(crate) fn payload(key: u64, value: u64) -> u64 {
    value ^ key.rotate_left(32)
}

/// The part of the records that a key belongs to, of `parts`: by its hash.
#[inline]
pub(crate) fn part(key: u64, parts: usize) -> usize {
    if parts == 1 {
        return 0;
    }
    ((u128::from(mixed(key ^ PART_SALT)) * parts as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_tell_their_keys_and_payloads() {
        for number in 0..1000 {
            let (key, other) = (key(number), key(number + 1));
            assert_eq!(payload(key, value(key, number)), number);
            assert!(payload(other, value(key, number)) >= PAYLOAD_END);
        }
    }

    #[test]
    fn parts_have_like_numbers_of_records_popular_ones_included() {
        for parts in [1, 2, 3, 16] {
            for records in [2_000, 100_000] {
                let mut counts = vec![0_u64; parts];
                (0..records).for_each(|number| counts[part(key(number), parts)] += 1);
                let mean = records / parts as u64;
                assert!(counts.iter().all(|count| count.abs_diff(mean) * 2 < mean), "{counts:?}");
            }
        }
    }
}
