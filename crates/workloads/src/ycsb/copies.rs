//! Records that transactions have read: encoded, as they are stored, and copied once.
//!
//! Owns: the memory of the copies, which each thread keeps for its next reads, so that reading allocates nothing in the steady
//! state. Never: decodes a record; whoever wants a column asks a [`RowView`](atrapos::RowView) of the bytes for it.

use std::cell::RefCell;

use serde::{Deserialize, Serialize};

/// The copies of records, with their keys where a scan has found them. One word, as results are copied on their way.
#[derive(Debug, Serialize, Deserialize)]
pub struct Copies(Option<Box<Memory>>);

#[derive(Debug, Default, Serialize, Deserialize)]
struct Memory {
    keys: Vec<u64>,
    bytes: Vec<u8>,
}

/// Number of copies whose memory a thread keeps.
const KEPT: usize = 64;

/// Bytes that the memory of one of them has at most: a hundred records of a thousand bytes.
const KEPT_BYTES: usize = 128 << 10;

thread_local! {
    #[expect(clippy::vec_box, reason = "the boxes themselves are what is kept")]
    static SPARE: RefCell<Vec<Box<Memory>>> = const { RefCell::new(Vec::new()) };
}

impl Copies {
    /// Creates an empty list, with the memory of an earlier one if this thread has one.
    #[inline]
    #[must_use]
    pub fn new() -> Copies {
        // A thread that ends has none any more.
        Copies(SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten())
    }

    /// Creates the copy of one record.
    #[inline]
    #[must_use]
    pub fn of(record: &[u8]) -> Copies {
        let mut copies = Copies::new();
        copies.memory().bytes.extend_from_slice(record);
        copies
    }

    /// Adds the copy of a record and its key.
    #[inline]
    pub fn push(&mut self, key: u64, record: &[u8]) {
        let memory = self.memory();
        memory.keys.push(key);
        memory.bytes.extend_from_slice(record);
    }

    #[inline]
    fn memory(&mut self) -> &mut Memory {
        self.0.get_or_insert_default()
    }

    /// The keys, in the order of the records.
    #[inline]
    #[must_use]
    pub fn keys(&self) -> &[u64] {
        self.0.as_ref().map_or(&[], |memory| &memory.keys)
    }

    /// The encoded records, one behind the other.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |memory| &memory.bytes)
    }
}

impl Default for Copies {
    fn default() -> Copies {
        Copies::new()
    }
}

impl Drop for Copies {
    /// Takes the memory out, so that nothing points to where the word is: that place can be a register.
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(memory) = self.0.take() {
            keep(memory);
        }
    }
}

/// Keeps the memory of a copy for the next one of this thread.
#[inline(never)]
fn keep(mut memory: Box<Memory>) {
    memory.keys.clear();
    memory.bytes.clear();
    // What is not kept is freed.
    let _ = SPARE.try_with(|spare| {
        let mut spare = spare.borrow_mut();
        if spare.len() < KEPT && (1..=KEPT_BYTES).contains(&memory.bytes.capacity()) {
            spare.push(memory);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_bounded() {
        let first = Copies::of(b"one");
        assert_eq!((first.keys(), first.bytes()), ([].as_slice(), b"one".as_slice()));
        let at = first.bytes().as_ptr();
        drop(first);
        let mut again = Copies::new();
        assert_eq!((again.keys(), again.bytes()), ([].as_slice(), [].as_slice()));
        again.push(7, b"ab");
        again.push(8, b"cd");
        assert_eq!((again.keys(), again.bytes()), ([7, 8].as_slice(), b"abcd".as_slice()));
        assert_eq!(again.bytes().as_ptr(), at);
        drop(again);
        drop(Copies::of(&vec![0; KEPT_BYTES + 1]));
        let many: Vec<Copies> = (0..2 * KEPT).map(|_| Copies::of(b"x")).collect();
        drop(many);
        SPARE.with_borrow(|spare| {
            assert_eq!(spare.len(), KEPT);
            assert!(spare.iter().all(|memory| memory.bytes.capacity() <= KEPT_BYTES));
        });
    }
}
