//! Removed rows can be put back, however little memory is left: transactions that insert, change and remove rows of the
//! same trees, commit and abort in turn, while trees are cut and joined and memory ends at any time.

#![expect(
    clippy::disallowed_types,
    reason = "a provider of memory is shared between threads, so it counts with an atomic"
)]

use atrapos_storage::{
    AppendRefusal, InsertError, KeyBuf, Memory, RationedMemory, Tree, TreeConfig, UndoableUpdate,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A small generator (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

/// Moments at which memory is refused.
#[derive(Clone, Copy, Debug)]
enum Refusal {
    Never,
    /// The chunk of this number.
    One(usize),
    /// The chunk of this number, and all after it.
    From(usize),
}

/// One key before a transaction changed it.
struct Undo {
    key: KeyBuf,
    before: Option<(Vec<u8>, u64)>,
    set_aside: bool,
}

type Rows = BTreeMap<KeyBuf, (Vec<u8>, u64)>;

const TRANSACTIONS: usize = 4;

struct World {
    /// In the order of their keys, each with the first key that belongs to it.
    trees: Vec<(KeyBuf, Tree)>,
    rows: Rows,
    open: [Vec<Undo>; TRANSACTIONS],
    /// The mistake of setting nothing aside is made.
    careless: bool,
    version: u64,
    refused: usize,
}

impl World {
    fn new(memory: Arc<dyn Memory>, careless: bool) -> World {
        let trees = vec![(KeyBuf::new(), Tree::new(TreeConfig::default(), memory))];
        World { trees, rows: Rows::new(), open: Default::default(), careless, version: 0, refused: 0 }
    }

    fn at(&self, key: &KeyBuf) -> usize {
        self.trees.partition_point(|(first, _)| first <= key) - 1
    }

    fn tree(&mut self, key: &KeyBuf) -> &mut Tree {
        let at = self.at(key);
        &mut self.trees[at].1
    }

    /// Returns whether another transaction has changed the key.
    fn is_locked(&self, key: &KeyBuf, by: usize) -> bool {
        let others = self.open.iter().enumerate().filter(|(other, _)| *other != by);
        others.into_iter().any(|(_, undo)| undo.iter().any(|undo| undo.key == *key))
    }

    /// Notes whether there was memory; any other refusal is a mistake.
    fn took<T>(&mut self, done: Result<T, InsertError>) -> Option<T> {
        match done {
            Ok(done) => Some(done),
            Err(InsertError::OutOfMemory(_)) => {
                self.refused += 1;
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn write(&mut self, by: usize, key: KeyBuf, row: Vec<u8>) {
        self.version += 1;
        let version = self.version;
        let before = self.rows.get(&key).cloned();
        let (careless, tree) = (self.careless, self.tree(&key));
        let done = match &before {
            None => tree.insert(&key, &row, version).map(|()| UndoableUpdate::Made),
            Some(_) if careless => tree.update(&key, &row, version).map(|_| UndoableUpdate::Made),
            Some(_) => tree.update_undoable(&key, &row, version),
        };
        if let Some(done) = self.took(done) {
            assert_ne!(done, UndoableUpdate::Absent);
            let set_aside = done == UndoableUpdate::SetAside;
            self.rows.insert(key.clone(), (row, version));
            self.open[by].push(Undo { key, before, set_aside });
        }
    }

    fn remove(&mut self, by: usize, key: &KeyBuf) {
        let (careless, tree) = (self.careless, self.tree(key));
        let removed = if careless {
            Ok(tree.remove_with(key, |row| (row.bytes.to_vec(), row.version)))
        } else {
            tree.remove_undoable(key, |row| (row.bytes.to_vec(), row.version)).map_err(InsertError::from)
        };
        let Some(before) = self.took(removed) else { return };
        assert_eq!(before, self.rows.remove(key));
        if before.is_some() {
            self.open[by].push(Undo { key: key.clone(), before, set_aside: !careless });
        }
    }

    fn commit(&mut self, by: usize) {
        for undo in std::mem::take(&mut self.open[by]) {
            if undo.set_aside {
                let (row, _) = undo.before.expect("something is set aside for a row");
                self.tree(&undo.key).settle(row.len());
            }
        }
    }

    /// Aborts; returns whether every row could be put back.
    fn abort(&mut self, by: usize) -> bool {
        for undo in std::mem::take(&mut self.open[by]).into_iter().rev() {
            let Undo { key, before, set_aside } = undo;
            let tree = self.tree(&key);
            let Some((row, version)) = before else {
                assert!(tree.remove(&key));
                self.rows.remove(&key);
                continue;
            };
            let put_back = if set_aside {
                tree.put_back(&key, &row, version)
            } else {
                match tree.update(&key, &row, version) {
                    Ok(false) => tree.insert(&key, &row, version),
                    updated => updated.map(drop),
                }
            };
            if put_back.is_err() {
                return false;
            }
            self.rows.insert(key, (row, version));
        }
        true
    }

    fn split(&mut self, key: KeyBuf) {
        let at = self.at(&key);
        if self.trees[at].0 == key {
            return;
        }
        let beyond = self.open.iter().flatten().filter(|undo| {
            let end = self.trees.get(at + 1).map(|(first, _)| first);
            undo.set_aside && undo.key >= key && end.is_none_or(|end| undo.key < *end)
        });
        let beyond: Vec<_> = beyond.filter_map(|undo| Some(undo.before.as_ref()?.0.len())).collect();
        let tree = &mut self.trees[at].1;
        if tree.prepare_split().is_err() {
            self.refused += 1;
            return;
        }
        let (mut right, _) = tree.split_off(&key).expect("it was prepared");
        tree.cede(&mut right, beyond);
        self.trees.insert(at + 1, (key, right));
    }

    fn append(&mut self, at: usize) {
        let (first, right) = self.trees.remove(at + 1);
        let left = &mut self.trees[at].1;
        match left.prepare_append(&right) {
            Ok(()) => drop(left.append(right).expect("it was prepared")),
            Err(AppendRefusal::OutOfMemory(_)) => {
                self.refused += 1;
                self.trees.insert(at + 1, (first, right));
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn check(&self) {
        for (_, tree) in &self.trees {
            tree.check().unwrap();
        }
        let stored = self.trees.iter().flat_map(|(_, tree)| {
            let mut range = tree.range(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
            std::iter::from_fn(move || {
                let entry = range.next()?;
                let mut key = KeyBuf::new();
                entry.key_into(&mut key);
                Some((key, (entry.bytes().to_vec(), entry.version())))
            })
        });
        assert!(stored.eq(self.rows.iter().map(|(key, row)| (key.clone(), row.clone()))));
        let pending: usize = self.trees.iter().map(|(_, tree)| tree.pending_changes()).sum();
        assert_eq!(pending, self.open.iter().flatten().filter(|undo| undo.set_aside).count());
    }
}

/// Keys that share much, little, or nothing; some are long, so that nodes have few children.
fn key(random: &mut Random) -> KeyBuf {
    let number = random.below(150);
    let mut key = KeyBuf::from_slice(&[number as u8 % 3]);
    key.extend_from_slice(&[7; 400][..[0, 30, 400][number as usize % 3]]);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// Rows that fit a leaf, and some that do not, of lengths that take the same memory or other.
fn row(random: &mut Random) -> Vec<u8> {
    let len = match random.below(20) {
        0..16 => [10, 100, 400, 1_300][random.below(4) as usize],
        16..18 => 1_500 + random.below(300) as usize,
        18 => 5_000 * random.below(10) as usize,
        _ => random.below(LONGEST) as usize,
    };
    vec![random.below(256) as u8; len]
}

const LONGEST: u64 = if cfg!(miri) { 20_000 } else { 100_000 };

const STEPS: usize = if cfg!(miri) { 150 } else { 1_500 };

/// One random run. The chunks that were asked for and the changes that were refused; nothing when something could not be put back.
fn run(seed: u64, refusal: Refusal, careless: bool) -> Option<(usize, usize)> {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let memory = RationedMemory::new(move |_| {
        let number = counter.fetch_add(1, Ordering::Relaxed);
        match refusal {
            Refusal::Never => true,
            Refusal::One(refused) => number != refused,
            Refusal::From(refused) => number < refused,
        }
    });
    let (mut world, mut random) = (World::new(Arc::new(memory), careless), Random(seed));
    for step in 0..STEPS {
        let by = random.below(TRANSACTIONS as u64) as usize;
        // Now many are inserted, now many removed.
        let insert_share = if (step / 200) % 2 == 0 { 60 } else { 25 };
        match random.below(100) {
            choice @ 0..85 => {
                let (key, row) = (key(&mut random), row(&mut random));
                if world.is_locked(&key, by) {
                    continue;
                }
                if choice < insert_share { world.write(by, key, row) } else { world.remove(by, &key) }
            }
            85..90 => world.commit(by),
            90..96 => {
                if !world.abort(by) {
                    return None;
                }
                world.check();
            }
            96..98 => world.split(key(&mut random)),
            _ if world.trees.len() > 1 => world.append(random.below(world.trees.len() as u64 - 1) as usize),
            _ => {}
        }
        if step % 16 == 0 {
            world.check();
        }
    }
    for by in 0..TRANSACTIONS {
        if !world.abort(by) {
            return None;
        }
    }
    world.check();
    Some((asked.load(Ordering::Relaxed), world.refused))
}

#[test]
fn what_was_removed_is_put_back_whenever_memory_ends() {
    for seed in 0..if cfg!(miri) { 1 } else { 4 } {
        let (chunks, refused) = run(seed, Refusal::Never, false).expect("there is memory");
        assert!(refused == 0 && (cfg!(miri) || chunks > 4), "{chunks} chunks with seed {seed}");
        // Chunks for long rows come and go all the time: every one of the first, and some of the others.
        for number in (0..chunks.min(8)).chain((8..chunks).step_by(chunks.div_ceil(8))) {
            for refusal in [Refusal::One(number), Refusal::From(number)] {
                let (asked, refused) = run(seed, refusal, false)
                    .unwrap_or_else(|| panic!("a row was not put back with seed {seed} and {refusal:?}"));
                // Which blocks are neighbours is up to the provider, so another run may take fewer chunks.
                assert!(
                    refused > 0 || asked <= number,
                    "nothing was refused with seed {seed} and {refusal:?}"
                );
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "it shows nothing more under Miri")]
fn without_setting_pages_aside_rows_are_lost() {
    let lost = |seed| (0..12).any(|number| run(seed, Refusal::From(number), true).is_none());
    let seeds: BTreeSet<u64> = (0..6).filter(|seed| lost(*seed)).collect();
    assert!(!seeds.is_empty(), "the runs above would not notice");
}

#[test]
fn chunks_that_were_set_aside_for_nothing_go_back() {
    let memory: Arc<dyn Memory> = Arc::new(RationedMemory::new(|_| true));
    let mut tree = Tree::new(TreeConfig::default(), memory);
    let rows = if cfg!(miri) { 600 } else { 5_000_u64 };
    for number in 0..rows {
        tree.insert(&number.to_be_bytes(), &[1; 100], number).unwrap();
    }
    let before = tree.bytes();
    for number in 0..rows - 1 {
        assert_eq!(tree.remove_undoable(&number.to_be_bytes(), |row| row.version), Ok(Some(number)));
    }
    let removed = tree.bytes();
    assert!(removed.chunks > before.chunks, "{removed:?}");
    (1..rows).for_each(|_| tree.settle(100));
    let after = tree.bytes();
    assert!(after.chunks < removed.chunks && after.chunks <= before.chunks + (4 << 20), "{after:?}");
    tree.check().unwrap();
    // And what is there is good.
    for number in 0..rows - 1 {
        tree.insert(&number.to_be_bytes(), &[2; 100], number).unwrap();
    }
    tree.check().unwrap();
}
