//! [`Arena`]: the nodes of a tree, by number, or the blocks of its keys.
//!
//! Owns: their memory, and the list of those that are not in use. Never: knows what is in one.
//!
//! The blocks of an arena have equally many words, and all blocks of a chunk are one allocation: a block is taken while a node is latched.
//!
//! Invariants: a node stays where it is and what it is until the tree is dropped, so a reader that follows an outdated number finds a
//! node, whose version tells it so. That is why this tree needs neither unsafe code nor epochs. Chunks grow with the tree: at most a
//! fifth of the memory has never been used.

use std::sync::{Mutex, OnceLock, PoisonError};

/// Exponent of the number of nodes in the first four chunks together; in the next four there are twice as many, and so on.
const FIRST_POWER: u32 = if cfg!(loom) { 3 } else { 6 };

/// Exponent of the number of nodes that a tree cannot have. In models it is small, as their threads have small stacks.
const LAST_POWER: u32 = if cfg!(loom) { 8 } else { 40 };

/// Four chunks for each power of two.
const CHUNKS: usize = 4 * (LAST_POWER - FIRST_POWER) as usize;

/// Nodes that are not in use.
#[derive(Default)]
struct Spare {
    /// Nodes that were in use.
    given: Vec<u64>,
    /// The first one that never was.
    next: u64,
}

pub(super) struct Arena<T> {
    chunks: [OnceLock<Box<[T]>>; CHUNKS],
    spare: Mutex<Spare>,
    make: fn() -> T,
    /// Exponent of the number of values that each number stands for, which lie side by side; 0 for nodes.
    power: u32,
}

/// The chunk of a node, the chunk's length, and the place in it.
#[inline(always)]
fn place(number: u64) -> (usize, u64, usize) {
    let number = number.saturating_add(1 << FIRST_POWER);
    let power = number.ilog2();
    let length = 1 << (power - 2);
    let chunk = 4 * (power - FIRST_POWER) as usize + ((number >> (power - 2)) & 3) as usize;
    (chunk, length, (number & (length - 1)) as usize)
}

impl<T> Arena<T> {
    /// An arena of nodes.
    pub(super) fn new(make: fn() -> T) -> Arena<T> {
        Arena::of_blocks(make, 0)
    }

    /// An arena of blocks of `2^power` values.
    pub(super) fn of_blocks(make: fn() -> T, power: u32) -> Arena<T> {
        Arena { chunks: [const { OnceLock::new() }; CHUNKS], spare: Mutex::default(), make, power }
    }

    /// The node of a number; `None` if there is none, because what was taken for a number was none.
    #[inline(always)]
    pub(super) fn get(&self, number: u64) -> Option<&T> {
        let (chunk, _, at) = place(number);
        self.chunks.get(chunk)?.get()?.get(at)
    }

    /// The block of a number; `None` as for nodes.
    #[inline(always)]
    pub(super) fn block(&self, number: u64) -> Option<&[T]> {
        let (chunk, _, at) = place(number);
        self.chunks.get(chunk)?.get()?.get(at << self.power..(at + 1) << self.power)
    }

    /// Takes a node that is not in use.
    pub(super) fn take(&self) -> u64 {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = spare.given.pop() {
            return number;
        }
        let number = spare.next;
        spare.next += 1;
        let (chunk, length, _) = place(number);
        self.chunks[chunk].get_or_init(|| (0..length << self.power).map(|_| (self.make)()).collect());
        number
    }

    /// Gives a node back that no node in use refers to.
    pub(super) fn give(&self, number: u64) {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).given.push(number);
    }

    /// The number of nodes in use.
    #[cfg(all(test, debug_assertions, not(loom)))]
    pub(super) fn used(&self) -> u64 {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        spare.next - spare.given.len() as u64
    }
}
