//! [`Keep`]: what nodes keep of keys, one word each. [`Words`] are the keys themselves; [`Strings`] say where the bytes are.
//!
//! Owns: the bytes of keys that are no words. Never: knows which node has a key.
//!
//! # Bytes that are used again
//! Bytes lie in blocks of atomic words, which stay until the tree is dropped; who compares with bytes that have become another key's meanwhile
//! finds nonsense, and after that the version of the node raised, which has lost the key before its bytes were given back. For that, who uses a
//! block again passes a fence before it writes: a reader that has seen what it writes, and has passed its own fence, sees the version too.
//!
//! Invariant: each word of an entry that is compared has bytes of its own. A separator is a copy; the first entry of an inner node, which is never
//! compared, has none.

use std::borrow::Borrow;
use std::cmp::Ordering;

use super::arena::Arena;
use super::sync::{AtomicU64, Relaxed, Release, fence};
use crate::planted::{Bug, planted};

/// Ways to keep keys in words.
pub trait Keep: Default + Send + Sync {
    /// The keys.
    type Key: ?Sized + 'static;
    /// A key that was copied out of a node.
    type Copied: Borrow<Self::Key> + PartialOrd + std::fmt::Debug + 'static;

    /// Bytes that a key may have, if there is a bound.
    const BYTES_MAX: usize;

    /// Compares what a word keeps with a key. The word may be nonsense if its node is being changed.
    fn compare(&self, kept: u64, key: &Self::Key) -> Ordering;

    /// Keeps a key.
    fn keep(&self, key: &Self::Key) -> u64;

    /// Keeps the key of a word once more.
    fn keep_again(&self, kept: u64) -> u64;

    /// Takes back a word that is in no node any more.
    fn give(&self, kept: u64);

    /// Copies the key of a word, which may be nonsense if its node is being changed.
    fn copy(&self, kept: u64) -> Self::Copied;
}

/// Keys of eight bytes, which are the words themselves.
#[derive(Default)]
pub struct Words;

impl Keep for Words {
    type Key = u64;
    type Copied = u64;

    const BYTES_MAX: usize = 8;

    #[inline(always)]
    fn compare(&self, kept: u64, key: &u64) -> Ordering {
        kept.cmp(key)
    }

    #[inline(always)]
    fn keep(&self, key: &u64) -> u64 {
        *key
    }

    #[inline(always)]
    fn keep_again(&self, kept: u64) -> u64 {
        kept
    }

    #[inline(always)]
    fn give(&self, _: u64) {}

    #[inline(always)]
    fn copy(&self, kept: u64) -> u64 {
        kept
    }
}

/// Sizes of blocks: 1, 2, 4, .. words.
const SIZES: usize = 8;
/// Bytes of a word.
const WORD: usize = 8;
/// Bits of a block's number in the word that also has the length of the key.
const BLOCK_BITS: u32 = 48;

/// Byte strings of up to [`Keep::BYTES_MAX`] bytes, in the order of their bytes.
pub struct Strings {
    /// Words of keys, the first bytes in the highest bits, by the sizes of their blocks; in the last word of a key, what is behind it is zero.
    blocks: [Arena<AtomicU64>; SIZES],
}

/// The size of the blocks of keys of so many bytes; beyond the last one, if the length is nonsense.
#[inline(always)]
fn size_for(bytes: usize) -> usize {
    bytes.div_ceil(WORD).max(1).next_power_of_two().ilog2() as usize
}

/// The bytes of a key that are in a word.
#[inline(always)]
fn word_of(bytes: &[u8]) -> u64 {
    let mut word = [0; WORD];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_be_bytes(word)
}

impl Strings {
    /// The length of a key, and its words; no words, if there is no such key.
    #[inline]
    fn get(&self, kept: u64) -> (usize, &[AtomicU64]) {
        let bytes = (kept >> BLOCK_BITS) as usize;
        let blocks = self.blocks.get(size_for(bytes));
        let block = blocks.and_then(|blocks| blocks.block(kept & ((1 << BLOCK_BITS) - 1)));
        (bytes, block.map_or(&[], |block| &block[..bytes.div_ceil(WORD)]))
    }

    /// The number of blocks in use.
    #[cfg(all(test, debug_assertions, not(loom)))]
    pub(super) fn used(&self) -> u64 {
        self.blocks.iter().map(Arena::used).sum()
    }

    /// Keeps a key of so many bytes.
    fn keep_words(&self, bytes: usize, words: impl Iterator<Item = u64>) -> u64 {
        let size = size_for(bytes);
        let number = self.blocks[size].take();
        // Behind the node that has lost the key whose block this was, for readers that compare with it still.
        if !planted(Bug::BlockReusedUnfenced) {
            fence(Release);
        }
        if let Some(block) = self.blocks[size].block(number) {
            block.iter().zip(words).for_each(|(to, word)| to.store(word, Relaxed));
        }
        (bytes as u64) << BLOCK_BITS | number
    }
}

impl Default for Strings {
    fn default() -> Strings {
        Strings { blocks: std::array::from_fn(|size| Arena::of_blocks(|| AtomicU64::new(0), size as u32)) }
    }
}

impl Keep for Strings {
    type Key = [u8];
    type Copied = Vec<u8>;

    const BYTES_MAX: usize = WORD << (SIZES - 1);

    #[inline]
    fn compare(&self, kept: u64, key: &[u8]) -> Ordering {
        let (bytes, words) = self.get(kept);
        for (word, other) in words.iter().zip(key.chunks(WORD)) {
            match word.load(Relaxed).cmp(&word_of(other)) {
                Ordering::Equal => {}
                different => return different,
            }
        }
        // Where one ends within the last word that both have, that one differs or it is the shorter one.
        bytes.cmp(&key.len())
    }

    fn keep(&self, key: &[u8]) -> u64 {
        self.keep_words(key.len(), key.chunks(WORD).map(word_of))
    }

    fn keep_again(&self, kept: u64) -> u64 {
        if planted(Bug::SeparatorNotCopied) {
            return kept;
        }
        let (bytes, words) = self.get(kept);
        self.keep_words(bytes, words.iter().map(|word| word.load(Relaxed)))
    }

    fn give(&self, kept: u64) {
        let size = size_for((kept >> BLOCK_BITS) as usize);
        self.blocks[size].give(kept & ((1 << BLOCK_BITS) - 1));
    }

    fn copy(&self, kept: u64) -> Vec<u8> {
        let (bytes, words) = self.get(kept);
        let mut copied: Vec<u8> = words.iter().flat_map(|word| word.load(Relaxed).to_be_bytes()).collect();
        copied.truncate(bytes);
        copied
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Keep, Strings};

    #[test]
    fn strings_are_in_the_order_of_their_bytes() {
        let long = [7_u8; Strings::BYTES_MAX];
        let mut keys: Vec<&[u8]> = vec![
            b"",
            b"\0",
            b"\0\0",
            b"a",
            b"a\0",
            b"ab",
            b"abcdefg",
            b"abcdefgh",
            b"abcdefgh\0",
            b"abcdefghi",
            b"abcdefgi",
            b"abcdefghabcdefgh",
            b"\xff",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ];
        keys.extend([&long[..], &long[..Strings::BYTES_MAX - 1]]);
        let strings = Strings::default();
        for one in &keys {
            let kept = strings.keep(one);
            assert_eq!(strings.copy(kept), *one);
            for other in &keys {
                assert_eq!(strings.compare(kept, other), one.cmp(other), "{one:?} and {other:?}");
            }
            let again = strings.keep_again(kept);
            strings.give(kept);
            strings.keep(&vec![1; one.len()]);
            assert_eq!(strings.copy(again), *one, "a copy has bytes of its own");
        }
    }

    /// More keys of each length than the first chunks have blocks: none has a word of another one's.
    #[test]
    fn blocks_of_a_chunk_have_no_word_in_common() {
        let strings = Strings::default();
        let key = |number: u16, bytes: usize| [&number.to_be_bytes()[..], &vec![0xff; bytes - 2]].concat();
        for bytes in [2, 8, 9, 33, 700, Strings::BYTES_MAX] {
            let kept: Vec<u64> = (0..300).map(|number| strings.keep(&key(number, bytes))).collect();
            for (number, kept) in (0..300).zip(kept) {
                assert_eq!(strings.copy(kept), key(number, bytes), "{number} of {bytes} bytes");
            }
        }
    }
}
