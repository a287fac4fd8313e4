//! Memory that trees take, and their behaviour when there is no more.

#![expect(
    clippy::disallowed_types,
    reason = "a provider of memory is shared between threads, so it counts with an atomic"
)]

use atrapos_storage::{HeapMemory, InsertError, Key, Memory, OutOfMemory, Tree, TreeConfig};
use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Large rows under Miri, as few of them fill as many pages.
const ROW_BYTES: usize = if cfg!(miri) { 1_200 } else { 100 };

/// Refuses to go over a limit, and knows how much is out.
struct Limited {
    limit: usize,
    out: AtomicUsize,
}

impl Limited {
    fn of(limit: usize) -> Arc<Limited> {
        Arc::new(Limited { limit, out: AtomicUsize::new(0) })
    }
}

// SAFETY: hands through to the global allocator.
unsafe impl Memory for Limited {
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        if self.out.fetch_add(layout.size(), Ordering::Relaxed) + layout.size() > self.limit {
            self.out.fetch_sub(layout.size(), Ordering::Relaxed);
            return None;
        }
        HeapMemory.allocate(layout)
    }

    unsafe fn free(&self, address: NonNull<u8>, layout: Layout) {
        self.out.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the promise of the caller.
        unsafe { HeapMemory.free(address, layout) };
    }
}

#[test]
fn an_insert_without_memory_changes_nothing() {
    let memory = Limited::of(64 << 10);
    let mut tree = Tree::new(TreeConfig::default(), memory.clone());
    let mut stored = 0u64;
    let error = loop {
        // Scattered keys, so that leaves split everywhere.
        match tree.insert(&stored.reverse_bits().encode(), &[7; ROW_BYTES], stored) {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error, InsertError::OutOfMemory(OutOfMemory { bytes: 128 << 10 }));
    assert!(error.to_string().contains("no memory is left"), "{error}");
    assert!(stored as usize * ROW_BYTES > 16 * 4096 / 3, "{stored} rows in 16 pages");
    assert_eq!(tree.len(), stored);
    tree.check().unwrap();
    assert_eq!(tree.get(&stored.reverse_bits().encode()), None);
    // What is removed makes room again.
    for id in 0..stored {
        assert!(tree.remove(&id.reverse_bits().encode()));
    }
    for id in 0..stored {
        tree.insert(&id.reverse_bits().encode(), &[8; ROW_BYTES], id).unwrap();
    }
    tree.check().unwrap();
    drop(tree);
    assert_eq!(memory.out.load(Ordering::Relaxed), 0);
}

#[test]
fn a_split_without_memory_changes_nothing() {
    let memory = Limited::of(64 << 10);
    let mut tree = Tree::new(TreeConfig::default(), memory);
    let mut count = 0u64;
    while tree.insert(&count.encode(), &[1; ROW_BYTES], count).is_ok() {
        count += 1;
    }
    // Cut in the middle of leaves, which takes a page each time, until there is none.
    let mut rights = Vec::new();
    let (left, before) = loop {
        let before = tree.check().unwrap();
        match tree.split_off(&(tree.len() / 2).encode()) {
            Ok((right, _)) => rights.push(right),
            Err(error) => break (tree, (before, error)),
        }
        assert!(rights.len() < 20, "cuts go on without memory");
    };
    assert_eq!(left.check().unwrap(), before.0);
    assert_eq!(before.1, OutOfMemory { bytes: 128 << 10 });
    assert_eq!(left.len() + rights.iter().map(Tree::len).sum::<u64>(), count);
}

#[test]
fn short_rows_cost_little_more_than_their_bytes() {
    // A key of an identifier and a kind, ten bytes of row: twelve bytes per row are what it may cost to find it.
    let rows = if cfg!(miri) { 100u64 } else { 200_000 };
    let input = (0..rows)
        .map(|i| ((i * 2 / 5, (i % 4) as u8, i), [0u8; 10]))
        .map(|((id, kind, version), row)| ((id, kind).encode(), row, version));
    let mut keys: Vec<_> = input.collect();
    keys.sort();
    keys.dedup_by(|a, b| a.0 == b.0);
    let count = keys.len();
    let tree = Tree::bulk_load(TreeConfig::for_rows_of(10), Arc::new(HeapMemory), keys, 1.0).unwrap();
    let bytes = tree.bytes();
    let per_row = bytes.page_bytes as f64 / count as f64;
    if !cfg!(miri) {
        assert!(per_row <= 9.0 + 10.0 + 12.0, "{per_row} bytes per row");
    }
    let summary = tree.check().unwrap();
    assert_eq!(summary.key_bytes, 9 * count as u64);
    assert_eq!(summary.row_bytes, 10 * count as u64);
    assert_eq!(summary.used_bytes, bytes.used as u64);
}

#[test]
fn rows_arriving_in_order_fill_pages() {
    let rows = if cfg!(miri) { 100u64 } else { 20_000 };
    let mut tree = Tree::new(TreeConfig::for_rows_of(100), Arc::new(HeapMemory));
    for id in 0..rows {
        tree.insert(&id.encode(), &[0; 100], id).unwrap();
    }
    let in_order = tree.bytes();
    // A handful of pages, as under Miri, says nothing about the share that is filled.
    assert!(cfg!(miri) || in_order.used * 10 >= in_order.page_bytes * 9, "{in_order:?}");
    // In order within each of many groups, too, though the groups take turns.
    let (groups, each) = if cfg!(miri) { (3u64, 100u64) } else { (40, 500) };
    let mut tree = Tree::new(TreeConfig::for_rows_of(100), Arc::new(HeapMemory));
    for i in 0..each {
        for group in 0..groups {
            tree.insert(&(group, i).encode(), &[0; 100], i).unwrap();
        }
    }
    tree.check().unwrap();
    let grouped = tree.bytes();
    assert!(cfg!(miri) || grouped.used * 10 >= grouped.page_bytes * 8, "{grouped:?}");
}

#[test]
fn removing_gives_pages_back() {
    let rows = if cfg!(miri) { 100u64 } else { 20_000 };
    let mut tree = Tree::new(TreeConfig::for_rows_of(100), Arc::new(HeapMemory));
    for id in 0..rows {
        tree.insert(&id.encode(), &[0; 100], id).unwrap();
    }
    let full = tree.bytes().pages;
    for id in (0..rows).filter(|id| id % 10 != 0) {
        assert!(tree.remove(&id.encode()));
    }
    tree.check().unwrap();
    let thinned = tree.bytes().pages;
    assert!(thinned * 2 < full, "{thinned} pages of {full} are left for a tenth of the rows");
}

#[test]
fn a_tree_can_take_further_pages_elsewhere() {
    let (here, there) = (Limited::of(1 << 20), Limited::of(1 << 20));
    let mut tree = Tree::new(TreeConfig::default(), here.clone());
    tree.insert(b"a", b"1", 1).unwrap();
    tree.allocate_from(there.clone());
    for id in 0..if cfg!(miri) { 70u64 } else { 1_000 } {
        tree.insert(&id.encode(), &[0; ROW_BYTES], id).unwrap();
    }
    assert_eq!(here.out.load(Ordering::Relaxed), 64 << 10);
    assert!(there.out.load(Ordering::Relaxed) > 0);
    tree.check().unwrap();
    drop(tree);
    assert_eq!(here.out.load(Ordering::Relaxed) + there.out.load(Ordering::Relaxed), 0);
}
