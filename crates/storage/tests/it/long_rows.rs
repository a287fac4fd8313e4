//! Rows that are too long for a leaf.

#![expect(
    clippy::disallowed_types,
    reason = "a provider of memory is shared between threads, so it counts with an atomic"
)]

use atrapos_storage::{
    BulkLoader, HeapMemory, InsertError, Key, MAX_ROW_BYTES, OutOfMemory, RationedMemory, Tree, TreeConfig,
    UndoableUpdate,
};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn tree() -> Tree {
    Tree::new(TreeConfig::default(), Arc::new(HeapMemory))
}

/// Bytes that tell which row they are.
fn row(id: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (id as usize * 31 + at * 7 + at / 251) as u8).collect()
}

/// Lengths around every border: of a leaf, of a unit of memory, of a row.
fn lengths() -> Vec<usize> {
    let leaf = TreeConfig::default().leaf_row_bytes();
    let mut lengths =
        vec![0, 1, leaf - 1, leaf, leaf + 1, 1_535, 1_536, 1_537, 65_534, 65_535, 65_536, 65_537];
    if !cfg!(miri) {
        lengths.extend([500_000, MAX_ROW_BYTES - 1, MAX_ROW_BYTES]);
    }
    lengths
}

#[test]
fn rows_of_every_length_replace_one_another() {
    let mut tree = tree();
    let (key, mut version) = (7u64.encode(), 0);
    tree.insert(&6u64.encode(), b"before", 0).unwrap();
    tree.insert(&8u64.encode(), b"behind", 0).unwrap();
    for from in lengths() {
        for to in lengths() {
            version += 1;
            tree.insert(&key, &row(version, from), version).unwrap();
            assert_eq!(tree.insert(&key, &row(0, to), 0), Err(InsertError::Duplicate(key.clone())));
            assert_eq!(tree.update(&key, &row(version + 1, to), version), Ok(true));
            let found = tree.get(&key).unwrap();
            assert!(found.version == version && found.bytes == row(version + 1, to), "{from} to {to}");
            tree.get_mut(&key).unwrap().bytes_mut().iter_mut().for_each(|byte| *byte ^= 1);
            let changed: Vec<u8> = row(version + 1, to).iter().map(|byte| byte ^ 1).collect();
            tree.check().unwrap();
            assert!(tree.remove_with(&key, |row| row.bytes == changed).unwrap());
            assert_eq!(tree.bytes().long_rows, 0);
        }
    }
    let too_large = Err(InsertError::RowTooLarge { bytes: MAX_ROW_BYTES + 1, max: MAX_ROW_BYTES });
    assert_eq!(tree.insert(&key, &row(0, MAX_ROW_BYTES + 1), 1), too_large);
    assert_eq!(tree.update(&6u64.encode(), &row(0, MAX_ROW_BYTES + 1), 1).err(), too_large.err());
    assert_eq!(tree.get(&6u64.encode()).unwrap().bytes, b"before");
}

#[test]
fn long_rows_are_in_ranges_and_cuts_and_joins() {
    let count = if cfg!(miri) { 40 } else { 400u64 };
    let len = |id: u64| if id.is_multiple_of(3) { 2_000 + id as usize * 37 } else { 40 };
    let rows = (0..count).map(|id| (id.encode(), row(id, len(id)), id));
    let mut tree = Tree::bulk_load(TreeConfig::default(), Arc::new(HeapMemory), rows, 1.0).unwrap();
    assert_eq!(tree.check().unwrap().long_rows, count.div_ceil(3));
    let mut trees = Vec::new();
    for cut in (0..count).rev().step_by(23) {
        let (right, touched) = tree.split_off(&cut.encode()).unwrap();
        assert!(touched < 20);
        trees.push(right);
    }
    let is_whole = |tree: &Tree, ids: &mut dyn Iterator<Item = u64>| {
        tree.range(Bound::Unbounded, Bound::Unbounded).all(|entry| {
            ids.next().is_some_and(|id| entry.bytes() == row(id, len(id)) && entry.version() == id)
        })
    };
    // What one tree frees, another takes, whichever was cut from which.
    for (number, part) in trees.iter_mut().enumerate() {
        let id = u64::decode(&part.first_key().unwrap()).unwrap();
        part.update(&id.encode(), &row(id, 30_000 + number), id).unwrap();
        part.update(&id.encode(), &row(id, len(id)), id).unwrap();
    }
    while let Some(right) = trees.pop() {
        right.check().unwrap();
        tree.append(right).unwrap();
    }
    tree.check().unwrap();
    assert!(is_whole(&tree, &mut (0..count)));
    (0..count).for_each(|id| assert!(tree.remove(&id.encode())));
    assert_eq!(tree.bytes().long_rows, 0);
}

#[test]
fn their_memory_goes_back_when_they_go() {
    let out = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&out);
    let memory = RationedMemory::new(move |bytes| {
        counter.fetch_add(bytes, Ordering::Relaxed);
        true
    });
    let mut tree = Tree::new(TreeConfig::default(), Arc::new(memory));
    let count = if cfg!(miri) { 4 } else { 40u64 };
    for id in 0..count {
        tree.insert(&id.encode(), &row(id, MAX_ROW_BYTES), id).unwrap();
    }
    let full = tree.bytes();
    assert_eq!(full.long_rows, count as usize * MAX_ROW_BYTES);
    assert!(full.spare < 4 << 20, "{full:?}");
    for id in 0..count {
        // Every row goes through many lengths, which leaves holes of many sizes.
        for len in (2_000..MAX_ROW_BYTES).step_by(MAX_ROW_BYTES / 10) {
            tree.update(&id.encode(), &row(id, len), id).unwrap();
        }
        tree.update(&id.encode(), b"short", id).unwrap();
    }
    let empty = tree.bytes();
    assert!(empty.chunks < 4 << 20 && empty.long_rows == 0, "{empty:?}");
    let asked = out.load(Ordering::Relaxed);
    for id in 0..2 {
        tree.update(&id.encode(), &row(id, MAX_ROW_BYTES / 2), id).unwrap();
    }
    assert_eq!(out.load(Ordering::Relaxed), asked, "one chunk is kept for what comes next");
}

#[test]
fn without_memory_nothing_is_changed() {
    let left = Arc::new(AtomicUsize::new(usize::MAX));
    let counter = Arc::clone(&left);
    let memory = RationedMemory::new(move |bytes| {
        let there = counter.load(Ordering::Relaxed);
        let is_enough = there >= bytes;
        counter.store(if is_enough { there - bytes } else { there }, Ordering::Relaxed);
        is_enough
    });
    let mut tree = Tree::new(TreeConfig::default(), Arc::new(memory.clone()));
    let long = row(1, 40_000);
    tree.insert(&1u64.encode(), b"short", 1).unwrap();
    tree.insert(&2u64.encode(), &long, 2).unwrap();
    left.store(0, Ordering::Relaxed);
    let (before, out) = (tree.check().unwrap(), OutOfMemory { bytes: 128 << 10 });
    let error = Err(InsertError::OutOfMemory(out));
    assert_eq!(tree.insert(&3u64.encode(), &row(3, 30_000), 3), error);
    assert_eq!(tree.update(&1u64.encode(), &row(3, 30_000), 3).err(), error.clone().err());
    assert_eq!(tree.update(&2u64.encode(), &row(3, 50_000), 3).err(), error.clone().err());
    assert_eq!(tree.update_undoable(&2u64.encode(), &row(3, 50_000), 3).err(), error.err());
    assert_eq!((tree.check().unwrap(), tree.pending_changes()), (before, 0));
    assert_eq!(tree.get(&2u64.encode()).unwrap().bytes, long);
    // What is held for an undo is nobody else's, and a row of its length finds it again.
    assert_eq!(tree.update_undoable(&2u64.encode(), b"now short", 4), Ok(UndoableUpdate::SetAside));
    assert_eq!(tree.insert(&3u64.encode(), &row(3, 40_000), 3), Err(InsertError::OutOfMemory(out)));
    tree.put_back(&2u64.encode(), &long, 2).unwrap();
    assert_eq!((tree.check().unwrap(), tree.pending_changes()), (before, 0));
    assert_eq!(tree.get(&2u64.encode()).unwrap().bytes, long);
    // Once it is settled, it can be used.
    assert_eq!(tree.remove_undoable(&2u64.encode(), |row| row.version), Ok(Some(2)));
    assert_eq!(tree.insert(&3u64.encode(), &row(3, 40_000), 3), Err(InsertError::OutOfMemory(out)));
    tree.settle(long.len());
    tree.insert(&3u64.encode(), &row(3, 40_000), 3).unwrap();
    tree.check().unwrap();
    let mut loader = BulkLoader::new(TreeConfig::default(), Arc::new(memory), 1.0);
    assert!(loader.push(b"a", &long, 1).is_err() && loader.is_empty());
    loader.push(b"a", b"short", 1).unwrap();
}
