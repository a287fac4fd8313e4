//! The tree against `BTreeMap`: random operations on a set of trees that are cut and joined, with keys and rows chosen
//! to hurt, `check` after every operation.

use atrapos_storage::{
    AppendRefusal, HeapMemory, InsertError, KeyBuf, Position, Probe, Tree, TreeConfig, locate_batch,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

mod op;

use op::{Op, key, op, row_len};

type Model = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

/// Row bytes that tell which row they are.
fn row(key: &[u8], len: usize, version: u64) -> Vec<u8> {
    (0..len).map(|i| key.get(i % (key.len() + 1)).map_or(version as u8, |byte| byte ^ i as u8)).collect()
}

fn borrow(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

/// A table: neighbouring trees, each from its lower bound on, with a model of each.
struct Table {
    parts: Vec<(Vec<u8>, Tree, Model)>,
    version: u64,
    /// A position and the key it was taken for; it goes stale all the time and must never lie.
    old_position: (Vec<u8>, Position),
}

impl Table {
    fn new(expected_row_bytes: usize) -> Table {
        let tree = Tree::new(TreeConfig::for_rows_of(expected_row_bytes), Arc::new(HeapMemory));
        Table {
            parts: vec![(Vec::new(), tree, Model::new())],
            version: 0,
            old_position: (Vec::new(), Position::unknown()),
        }
    }

    fn owner(&self, key: &[u8]) -> usize {
        self.parts
            .iter()
            .rposition(|(lower, ..)| lower.as_slice() <= key)
            .expect("the first part begins at nothing")
    }

    fn insert(&mut self, key: &[u8], len: usize) -> Result<(), TestCaseError> {
        self.version += 1;
        let (part, bytes) = (self.owner(key), row(key, len, self.version));
        let (_, tree, model) = &mut self.parts[part];
        let done = tree.insert(key, &bytes, self.version);
        if model.contains_key(key) {
            prop_assert_eq!(done, Err(InsertError::Duplicate(KeyBuf::from_slice(key))));
        } else {
            prop_assert_eq!(done, Ok(()));
            model.insert(key.to_vec(), (bytes, self.version));
        }
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), TestCaseError> {
        let part = self.owner(key);
        let (_, tree, model) = &mut self.parts[part];
        let removed = tree.remove_with(key, |row| (row.bytes.to_vec(), row.version));
        prop_assert_eq!(removed, model.remove(key));
        Ok(())
    }

    fn apply(&mut self, op: &Op) -> Result<(), TestCaseError> {
        match op {
            Op::Insert(key, len) => self.insert(key, *len)?,
            Op::Update(key, len) => {
                self.version += 1;
                let (part, bytes) = (self.owner(key), row(key, *len, self.version));
                let (_, tree, model) = &mut self.parts[part];
                let known = model.get_mut(key);
                prop_assert_eq!(tree.update(key, &bytes, self.version), Ok(known.is_some()));
                if let Some(known) = known {
                    *known = (bytes, self.version);
                }
            }
            Op::Patch(key) => {
                self.version += 1;
                let part = self.owner(key);
                let (_, tree, model) = &mut self.parts[part];
                let (mut stored, known) = (tree.get_mut(key), model.get_mut(key));
                prop_assert_eq!(stored.is_some(), known.is_some());
                if let (Some(stored), Some(known)) = (&mut stored, known) {
                    prop_assert_eq!((stored.bytes(), stored.version()), (&known.0[..], known.1));
                    stored.bytes_mut().reverse();
                    stored.set_version(self.version);
                    known.0.reverse();
                    known.1 = self.version;
                }
            }
            Op::Remove(key) => self.remove(key)?,
            Op::Split(key) => self.split(key)?,
            Op::Append(number) => self.append(*number)?,
            Op::Grow(key, step, len) => {
                let count: u8 = if cfg!(miri) { 12 } else { 60 };
                for i in 0..count {
                    let mut key = key.clone();
                    key.push(i.wrapping_mul(step | 1));
                    self.insert(&key, *len)?;
                }
            }
            Op::Clear(from, to) => self.clear(from, to)?,
            Op::Range(lower, upper, sides) => {
                let part = match lower {
                    Bound::Included(key) | Bound::Excluded(key) => self.owner(key),
                    Bound::Unbounded => 0,
                };
                let (_, tree, model) = &self.parts[part];
                same_range(tree, model, borrow(lower), borrow(upper), sides)?;
            }
            Op::Lookups(keys) => self.look_up(keys)?,
        }
        Ok(())
    }

    /// Cuts the tree that owns `key`, at `key`.
    fn split(&mut self, key: &[u8]) -> Result<(), TestCaseError> {
        let part = self.owner(key);
        let (_, tree, model) = &mut self.parts[part];
        let (right, touched) = tree.split_off(key).expect("the heap has memory");
        prop_assert!(touched >= 1);
        let right_model = model.split_off(key);
        self.parts.insert(part + 1, (key.to_vec(), right, right_model));
        if self.parts[part].0 == key {
            // Cut at its lower bound: everything went right, and the left part has no keys to own.
            prop_assert!(self.parts[part].1.is_empty());
            self.parts.remove(part);
        }
        Ok(())
    }

    /// Joins the tree of this number (modulo how many there are) and the next one.
    fn append(&mut self, number: usize) -> Result<(), TestCaseError> {
        if self.parts.len() > 1 {
            let part = number % (self.parts.len() - 1);
            let (_, right, mut right_model) = self.parts.remove(part + 1);
            let (_, tree, model) = &mut self.parts[part];
            if tree.append(right).is_err() {
                return Err(TestCaseError::fail("neighbours do not join"));
            }
            model.append(&mut right_model);
        }
        Ok(())
    }

    /// Removes every row of the range, one by one.
    fn clear(&mut self, from: &[u8], to: &[u8]) -> Result<(), TestCaseError> {
        let part = self.owner(from);
        let keys: Vec<_> = self.parts[part]
            .2
            .keys()
            .filter(|key| key.as_slice() >= from && key.as_slice() <= to)
            .cloned()
            .collect();
        for key in keys {
            self.remove(&key)?;
        }
        Ok(())
    }

    fn look_up(&mut self, keys: &[Vec<u8>]) -> Result<(), TestCaseError> {
        let mut probes: Vec<_> =
            keys.iter().map(|key| Probe::new(&self.parts[self.owner(key)].1, key.as_slice())).collect();
        locate_batch(&mut probes);
        for (key, probe) in keys.iter().zip(&probes) {
            let (_, tree, model) = &self.parts[self.owner(key)];
            let known = model.get(key).map(|(bytes, version)| (bytes.as_slice(), *version));
            prop_assert_eq!(probe.row().map(|row| (row.bytes, row.version)), known);
            prop_assert_eq!(probe.position.is_found(), known.is_some());
            prop_assert_eq!(tree.get(key).map(|row| (row.bytes, row.version)), known);
            let rank =
                model.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(key.as_slice()))).count() as u64;
            prop_assert_eq!(tree.rank(key), rank);
        }
        for (_, tree, model) in &self.parts {
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let mut seen = 0;
            tree.get_batch(&keys, |index, row| {
                assert_eq!(index, seen);
                seen += 1;
                assert_eq!(row.map(|row| row.bytes), model.get(keys[index]).map(|known| known.0.as_slice()));
            });
            prop_assert_eq!(seen, keys.len());
        }
        if let (Some(key), Some(probe)) = (keys.first(), probes.first()) {
            self.old_position = (key.clone(), probe.position);
        }
        Ok(())
    }

    fn check(&self) -> Result<(), TestCaseError> {
        for (_, tree, model) in &self.parts {
            let summary = tree.check().map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(summary.rows, model.len() as u64);
            prop_assert_eq!(tree.len(), model.len() as u64);
            prop_assert_eq!(tree.first_key(), model.keys().next().map(|key| KeyBuf::from_slice(key)));
            prop_assert_eq!(tree.last_key(), model.keys().next_back().map(|key| KeyBuf::from_slice(key)));
            let middle = model.len() / 2;
            prop_assert_eq!(
                tree.key_at(middle as u64),
                model.keys().nth(middle).map(|key| KeyBuf::from_slice(key))
            );
        }
        // Ask every tree: the position must be recognised as stale by all but the one that made it.
        let (key, position) = &self.old_position;
        for (_, tree, model) in &self.parts {
            let known = model.get(key).map(|(bytes, version)| (bytes.as_slice(), *version));
            prop_assert_eq!(tree.row_at(*position, key).map(|row| (row.bytes, row.version)), known);
            let from = Bound::Included(key.as_slice());
            let known = model.range::<[u8], _>((from, Bound::Unbounded)).map(|(key, _)| key.clone()).take(3);
            let seen =
                tree.range_from(*position, key, Bound::Unbounded).take(3).map(|entry| entry.key().to_vec());
            prop_assert!(seen.eq(known));
        }
        Ok(())
    }
}

/// Takes a range from both sides, in the order `sides` says, and then what is left from one side.
fn same_range(
    tree: &Tree,
    model: &Model,
    lower: Bound<&[u8]>,
    upper: Bound<&[u8]>,
    sides: &[bool],
) -> Result<(), TestCaseError> {
    // `BTreeMap` panics where the tree returns nothing.
    let backwards = match (lower, upper) {
        (Bound::Excluded(lower), Bound::Excluded(upper)) => lower >= upper,
        (
            Bound::Included(lower) | Bound::Excluded(lower),
            Bound::Included(upper) | Bound::Excluded(upper),
        ) => lower > upper,
        _ => false,
    };
    let mut range = tree.range(lower, upper);
    if backwards {
        prop_assert!(range.next().is_none() && range.next_back().is_none());
        return Ok(());
    }
    let mut known = model.range::<[u8], _>((lower, upper));
    let mut key = KeyBuf::new();
    for &front in sides {
        let (seen, known) =
            if front { (range.next(), known.next()) } else { (range.next_back(), known.next_back()) };
        let seen = seen.map(|entry| {
            entry.key_into(&mut key);
            (key.to_vec(), entry.bytes().to_vec(), entry.version())
        });
        prop_assert_eq!(seen, known.map(|(key, (bytes, version))| (key.clone(), bytes.clone(), *version)));
    }
    let (rest, known_rest): (Vec<_>, Vec<_>) = if sides[0] {
        (range.map(|entry| entry.key().to_vec()).collect(), known.map(|(key, _)| key.clone()).collect())
    } else {
        (
            range.rev().map(|entry| entry.key().to_vec()).collect(),
            known.rev().map(|(key, _)| key.clone()).collect(),
        )
    };
    prop_assert_eq!(rest, known_rest);
    Ok(())
}

/// Applies `ops`, checking after each, and in the end joins everything and empties it row by row.
fn play(expected_row_bytes: usize, ops: &[Op]) -> Result<(), TestCaseError> {
    let mut table = Table::new(expected_row_bytes);
    for op in ops {
        table.apply(op)?;
        table.check()?;
    }
    while table.parts.len() > 1 {
        table.apply(&Op::Append(0))?;
        table.check()?;
    }
    table.apply(&Op::Clear(Vec::new(), vec![0xff; 600]))?;
    table.check()?;
    prop_assert!(table.parts[0].1.is_empty());
    prop_assert_eq!(table.parts[0].1.height(), 1);
    Ok(())
}

/// `len` bytes `byte`, and then `tail`.
fn repeat(byte: u8, len: usize, tail: &[u8]) -> Vec<u8> {
    [&vec![byte; len][..], tail].concat()
}

#[test]
fn a_join_counts_rows_of_a_right_edge_that_lost_a_child() {
    play(
        40,
        &[
            Op::Insert(vec![0xfe], 817),
            Op::Insert(repeat(0x70, 500, &[]), 0),
            Op::Grow(vec![], 0, 60),
            Op::Grow(repeat(0x70, 500, &[0; 5]), 34, 1088),
            Op::Grow(repeat(0x70, 13, &[]), 80, 20),
            Op::Split(repeat(0x70, 40, &[0xfe])),
        ],
    )
    .unwrap();
}

#[test]
fn a_join_counts_rows_that_a_left_edge_took_over() {
    play(
        40,
        &[
            Op::Grow(vec![0xfe], 28, 1390),
            Op::Insert(repeat(0x70, 500, &[]), 0),
            Op::Insert(vec![0; 8], 1390),
            Op::Insert(vec![], 0),
            Op::Grow(repeat(0x70, 7, &[]), 14, 60),
            Op::Grow(repeat(0x70, 500, &[]), 0, 60),
            Op::Split(repeat(0x70, 8, &[0xfe])),
        ],
    )
    .unwrap();
}

#[test]
fn a_join_follows_the_left_edge_as_it_has_become() {
    play(
        40,
        &[
            Op::Grow(repeat(0, 7, &[4]), 0, 749),
            Op::Insert(vec![], 0),
            Op::Grow(repeat(0, 7, &[0x25]), 0, 1390),
            Op::Split(repeat(0, 7, &[5])),
        ],
    )
    .unwrap();
}

proptest! {
    #![proptest_config(crate::testing::config(256, 3))]

    #[test]
    fn any_operations_agree_with_the_model(
        // Pages of 4, 8 and 16 KiB.
        expected in prop_oneof![4 => Just(40usize), 1 => Just(400), 1 => Just(5_000)],
        ops in proptest::collection::vec(op(), 1..if cfg!(miri) { 25 } else { 120 }),
    ) {
        play(expected, &ops)?;
    }

    #[test]
    fn loaded_trees_agree_with_the_model(
        rows in proptest::collection::btree_map(key(), row_len(), 0..if cfg!(miri) { 40 } else { 400 }),
        fill in 0.4f64..1.1,
    ) {
        let model: Model = rows.iter().map(|(key, len)| (key.clone(), (row(key, *len, 5), 5))).collect();
        let loaded = Tree::bulk_load(
            TreeConfig::default(),
            Arc::new(HeapMemory),
            model.iter().map(|(key, (bytes, version))| (key, bytes, *version)),
            fill,
        );
        let tree = loaded.expect("the rows are in order");
        let summary = tree.check().map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(summary.rows, model.len() as u64);
        prop_assert_eq!(summary.key_bytes, model.keys().map(|key| key.len() as u64).sum::<u64>());
        same_range(&tree, &model, Bound::Unbounded, Bound::Unbounded, &[true])?;
        same_range(&tree, &model, Bound::Unbounded, Bound::Unbounded, &[false])?;
    }

    #[test]
    fn overlapping_trees_come_back(left in proptest::collection::btree_set(key(), 1..20), right in proptest::collection::btree_set(key(), 1..20)) {
        let tree_of = |keys: &std::collections::BTreeSet<Vec<u8>>| {
            let rows = keys.iter().map(|key| (key, [1u8], 1));
            Tree::bulk_load(TreeConfig::default(), Arc::new(HeapMemory), rows, 1.0).expect("a set is in order")
        };
        let (mut a, b) = (tree_of(&left), tree_of(&right));
        match a.append(b) {
            Ok(_) => {
                prop_assert!(left.last() < right.first());
                prop_assert_eq!(a.len() as usize, left.len() + right.len());
            }
            Err(error) => {
                prop_assert!(left.last() >= right.first());
                prop_assert_eq!(error.reason, AppendRefusal::Overlap);
                prop_assert_eq!(error.tree.len() as usize, right.len());
                prop_assert!(error.tree.check().is_ok());
                prop_assert_eq!(a.len() as usize, left.len());
            }
        }
        prop_assert!(a.check().is_ok());
    }
}
