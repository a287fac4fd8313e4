//! Random point lookups in the engine's tree, in `BTreeMap` and in `hashbrown`: the same keys, the same rows, the same
//! loop.
//!
//! Owns: the structures and the loops. Never: changes a structure after it was built.
//!
//! Every lookup draws a key, finds its row and reads from it. All keys are present.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::time::Instant;

use atrapos::TreeMemory;
use atrapos_runtime::memory::PreparedChunks;
use atrapos_storage::{BulkLoader, Tree, TreeConfig};
use atrapos_workloads::Random;

use super::{RawError, RawOptions, pin};

/// A row: its key repeated.
type Row = [u8; 100];

fn row(key: u64) -> Row {
    let mut row = [0; 100];
    for bytes in row.chunks_mut(8) {
        bytes.copy_from_slice(&key.to_le_bytes()[..bytes.len()]);
    }
    row
}

/// Returns the part of a found row that is read.
#[inline]
fn read(row: &[u8]) -> u64 {
    u64::from(row[0])
}

/// Keys looked up at once.
const BATCH: usize = 16;

pub(super) struct Structures<'a> {
    options: &'a RawOptions,
    tree: Tree,
    btreemap: BTreeMap<u64, Row>,
    /// One map for each of two threads.
    private: [BTreeMap<u64, Row>; 2],
    hashbrown: hashbrown::HashMap<u64, Row>,
}

impl<'a> Structures<'a> {
    pub(super) fn build(options: &'a RawOptions) -> Result<Structures<'a>, RawError> {
        let rows = options.rows;
        let refuse = |error: atrapos_storage::BulkError| RawError::Tree(error.to_string());
        // The memory that a tree has in a database.
        let memory = Arc::new(TreeMemory::new(Arc::new(PreparedChunks::default()), None));
        let mut tree = BulkLoader::new(TreeConfig::for_rows_of(size_of::<Row>()), memory, 0.97);
        for key in 0..rows {
            tree.push(&key.to_be_bytes(), &row(key), 1).map_err(refuse)?;
        }
        // Each thread builds the map it will use, so that its memory is near it.
        let private = std::thread::scope(|scope| {
            let build = |thread| {
                scope.spawn(move || {
                    pin(options, thread);
                    (0..rows).map(|key| (key, row(key))).collect()
                })
            };
            [build(0), build(1)]
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        Ok(Structures {
            options,
            tree: tree.finish().map_err(refuse)?,
            btreemap: (0..rows).map(|key| (key, row(key))).collect(),
            private,
            hashbrown: (0..rows).map(|key| (key, row(key))).collect(),
        })
    }

    fn random(&self, stream: u64) -> Random {
        Random::of_stream(self.options.seed, stream)
    }

    /// Returns the lookups per second of a loop that looks up `lookups` keys and returns what it read.
    fn rate(&self, run: impl FnOnce(u64) -> u64) -> f64 {
        let began = Instant::now();
        black_box(run(self.options.lookups));
        self.options.lookups as f64 / began.elapsed().as_secs_f64()
    }

    pub(super) fn tree(&self, round: u64) -> f64 {
        let mut random = self.random(round);
        self.rate(|lookups| tree_loop(&self.tree, self.options.rows, lookups, &mut random))
    }

    pub(super) fn tree_interleaved(&self, round: u64) -> f64 {
        let mut random = self.random(round);
        self.rate(|lookups| interleaved_loop(&self.tree, self.options.rows, lookups, &mut random))
    }

    pub(super) fn btreemap(&self, round: u64) -> f64 {
        let mut random = self.random(round);
        self.rate(|lookups| btreemap_loop(&self.btreemap, self.options.rows, lookups, &mut random))
    }

    pub(super) fn hashbrown(&self, round: u64) -> f64 {
        let mut random = self.random(round);
        self.rate(|lookups| {
            let mut sum = 0;
            for _ in 0..lookups {
                sum += self.hashbrown.get(&random.below(self.options.rows)).map_or(0, |row| read(row));
            }
            sum
        })
    }

    pub(super) fn btreemap_2t(&self, round: u64) -> f64 {
        let barrier = Barrier::new(2);
        let rates = std::thread::scope(|scope| {
            let barrier = &barrier;
            let look_up = |thread: usize| {
                let (map, mut random) = (&self.private[thread], self.random(round * 2 + thread as u64));
                scope.spawn(move || {
                    pin(self.options, thread);
                    barrier.wait();
                    self.rate(|lookups| btreemap_loop(map, self.options.rows, lookups, &mut random))
                })
            };
            [look_up(0), look_up(1)]
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        rates.iter().sum()
    }
}

/// The bare lookup that a transaction is compared with: kept out of line so that its instructions can be counted.
#[inline(never)]
fn tree_loop(tree: &Tree, rows: u64, lookups: u64, random: &mut Random) -> u64 {
    let mut sum = 0;
    for _ in 0..lookups {
        let key = random.below(rows).to_be_bytes();
        sum += tree.get(&key).map_or(0, |row| read(row.bytes));
    }
    sum
}

#[inline(never)]
fn interleaved_loop(tree: &Tree, rows: u64, lookups: u64, random: &mut Random) -> u64 {
    let mut sum = 0;
    let mut left = lookups;
    while left > 0 {
        let keys: [[u8; 8]; BATCH] = std::array::from_fn(|_| random.below(rows).to_be_bytes());
        let keys: [&[u8]; BATCH] = std::array::from_fn(|at| &keys[at][..]);
        let batch = left.min(BATCH as u64);
        tree.get_batch(&keys[..batch as usize], |_, row| sum += row.map_or(0, |row| read(row.bytes)));
        left -= batch;
    }
    sum
}

#[inline(never)]
fn btreemap_loop(map: &BTreeMap<u64, Row>, rows: u64, lookups: u64, random: &mut Random) -> u64 {
    let mut sum = 0;
    for _ in 0..lookups {
        sum += map.get(&random.below(rows)).map_or(0, |row| read(row));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_structures_find_the_same_rows() {
        let options = RawOptions { rows: 3_000, ..RawOptions::default() };
        let data = Structures::build(&options).expect("memory");
        for key in 0..options.rows {
            let expected = row(key);
            assert_eq!(data.tree.get(&key.to_be_bytes()).map(|row| row.bytes), Some(&expected[..]));
            assert_eq!(data.btreemap.get(&key), Some(&expected));
            assert_eq!(data.hashbrown.get(&key), Some(&expected));
            assert!(data.private.iter().all(|map| map.get(&key) == Some(&expected)));
        }
        let sums = [
            tree_loop(&data.tree, options.rows, 1_001, &mut data.random(1)),
            interleaved_loop(&data.tree, options.rows, 1_001, &mut data.random(1)),
            btreemap_loop(&data.btreemap, options.rows, 1_001, &mut data.random(1)),
        ];
        // The last batch of the interleaved loop is not full: it draws keys that it does not look up, after all others.
        assert_eq!(sums, [sums[0]; 3]);
        assert!(sums[0] > 0);
    }
}
