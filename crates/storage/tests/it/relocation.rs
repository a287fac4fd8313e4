//! Pages that follow a tree to another memory node.

#![expect(
    clippy::disallowed_types,
    reason = "a provider of memory is shared between threads, so it counts with an atomic"
)]

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use atrapos_storage::{Entry, HeapMemory, Key, Memory, Relocation, Tree, TreeConfig, UndoableUpdate};

const ROWS: u64 = if cfg!(miri) { 300 } else { 20_000 };

/// Memory of a node, which counts what is out.
struct OfNode(usize, AtomicUsize);

// SAFETY: hands through to the global allocator.
unsafe impl Memory for OfNode {
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        self.1.fetch_add(layout.size(), Ordering::Relaxed);
        HeapMemory.allocate(layout)
    }

    unsafe fn free(&self, address: NonNull<u8>, layout: Layout) {
        self.1.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the promise of the caller.
        unsafe { HeapMemory.free(address, layout) };
    }

    fn node(&self) -> Option<usize> {
        Some(self.0)
    }
}

fn node(number: usize) -> Arc<OfNode> {
    Arc::new(OfNode(number, AtomicUsize::new(0)))
}

fn out(node: &OfNode) -> usize {
    node.1.load(Ordering::Relaxed)
}

fn insert(tree: &mut Tree, keys: impl IntoIterator<Item = u64>) {
    for key in keys {
        tree.insert(&key.encode(), &[key as u8; 40], key).unwrap();
    }
}

/// The keys, after a check of the tree and of each row.
fn keys(tree: &Tree) -> Vec<u64> {
    tree.check().unwrap();
    let key = |entry: Entry<'_>| {
        let key = u64::decode(&entry.key()).unwrap();
        assert_eq!((entry.bytes(), entry.version()), (&[key as u8; 40][..], key));
        key
    };
    tree.iter().map(key).collect()
}

fn relocate(tree: &mut Tree) -> usize {
    let (mut brought, mut waits, mut steps) = (0, 0, 0);
    loop {
        let (more, next) = tree.relocate(3).unwrap();
        steps += 1;
        assert!(steps < 10 * ROWS, "it ends");
        brought += more;
        match next {
            Relocation::GoesOn => assert!(tree.is_scattered()),
            // The pass may have begun before the latest change.
            Relocation::Waits => {
                waits += 1;
                assert!(waits < 2, "nothing changes meanwhile");
            }
            Relocation::Done => break,
        }
    }
    assert!(!tree.is_scattered());
    brought
}

/// Trees that are split and joined on the way are relocated anew: a tree that is `there` goes back `here`.
fn splits_and_joins(
    tree: &mut Tree,
    at: u64,
    here: &Arc<OfNode>,
    there: &Arc<OfNode>,
    keys: fn(&Tree) -> Vec<u64>,
) {
    tree.allocate_from(Arc::clone(here) as Arc<dyn Memory>);
    tree.relocate(1).unwrap();
    let (right, _) = tree.split_off(&at.encode()).unwrap();
    tree.relocate(1).unwrap();
    let before = keys(tree).len() + keys(&right).len();
    tree.append(right).unwrap();
    relocate(tree);
    assert_eq!(keys(tree).len(), before);
    assert_eq!(out(there), 0);
}

/// Numbers that look random, below a bound.
fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut random = seed;
    move |bound: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (random >> 33) % bound
    }
}

#[test]
fn all_pages_follow_and_the_memory_that_they_had_is_free() {
    let (here, there) = (node(0), node(1));
    let mut tree = Tree::new(TreeConfig::for_rows_of(40), here.clone());
    insert(&mut tree, 0..ROWS);
    let pages = tree.bytes().pages;
    let position = tree.locate(&7_u64.encode());
    assert!(!tree.is_scattered());
    tree.allocate_from(there.clone());
    assert!(tree.is_scattered());
    assert_eq!(relocate(&mut tree), pages);
    assert_eq!(keys(&tree), (0..ROWS).collect::<Vec<u64>>());
    assert_eq!(tree.row_at(position, &7_u64.encode()).map(|row| row.bytes[0]), Some(7));
    assert_eq!(out(&here), 0, "nothing is left there");
    assert_eq!(tree.bytes().pages, pages);
    // Back again, and away with it.
    tree.allocate_from(here.clone());
    assert_eq!(relocate(&mut tree), pages);
    assert_eq!(out(&there), 0);
    drop(tree);
    assert_eq!(out(&here), 0);
}

#[test]
fn pages_that_are_given_back_serve_the_trees_that_stay() {
    let (here, there) = (node(0), node(1));
    let mut tree = Tree::new(TreeConfig::for_rows_of(40), here.clone());
    insert(&mut tree, 0..ROWS);
    let (mut right, _) = tree.split_off(&(ROWS / 2).encode()).unwrap();
    right.allocate_from(there);
    relocate(&mut right);
    let before = out(&here);
    // As many rows as have left find room where these were.
    insert(&mut tree, ROWS..ROWS + ROWS / 3);
    assert_eq!(out(&here), before, "no chunk is taken while pages are free");
    assert_eq!(keys(&right), (ROWS / 2..ROWS).collect::<Vec<u64>>());
    let stayed = (0..ROWS / 2).chain(ROWS..ROWS + ROWS / 3);
    assert_eq!(keys(&tree), stayed.collect::<Vec<u64>>());
    drop(tree);
    assert_eq!(out(&here), 0, "the tree that left keeps nothing");
    drop(right);
}

#[test]
fn changes_between_the_steps_are_kept_and_nothing_is_left_behind() {
    let mut next = random(7);
    for _ in 0..if cfg!(miri) { 2 } else { 20 } {
        let (here, there) = (node(0), node(1));
        let mut tree = Tree::new(TreeConfig::for_rows_of(40), here.clone());
        insert(&mut tree, 0..ROWS / 10);
        let mut model: std::collections::BTreeSet<u64> = (0..ROWS / 10).collect();
        tree.allocate_from(there.clone());
        let mut steps = 0;
        while tree.is_scattered() {
            // Splits and joins of leaves on both sides of the pass; they end at last.
            for _ in 0..if steps < 200 { 20 } else { 0 } {
                let key = next(ROWS / 5);
                if model.insert(key) {
                    insert(&mut tree, [key]);
                } else if next(3) > 0 {
                    assert!(model.remove(&key) && tree.remove(&key.encode()));
                }
            }
            tree.relocate(1 + next(3) as usize).unwrap();
            steps += 1;
        }
        assert!(keys(&tree).into_iter().eq(model));
        assert_eq!(out(&here), 0);
        splits_and_joins(&mut tree, ROWS / 20, &here, &there, keys);
    }
}

#[test]
fn what_is_lent_or_may_be_undone_waits() {
    let (here, there) = (node(0), node(1));
    let mut tree = Tree::new(TreeConfig::for_rows_of(40), here);
    insert(&mut tree, 0..ROWS);
    tree.allocate_from(there);
    let key = 3_u64.encode();
    let removed = tree.remove_undoable(&key, |row| row.bytes.to_vec()).unwrap();
    let bytes = removed.expect("it is there");
    assert_eq!(tree.relocate(1000).unwrap(), (0, Relocation::Waits), "a change may be undone");
    tree.put_back(&key, &bytes, 3).unwrap();
    let borrowed = tree.lend();
    assert_eq!(tree.relocate(1000).unwrap(), (0, Relocation::Waits), "it is lent");
    drop(borrowed);
    assert!(tree.take_back());
    assert!(tree.relocate(1).unwrap().0 > 0);
    // Later changes may be undone while it goes on.
    let removed = tree.remove_undoable(&key, |row| row.bytes.to_vec()).unwrap();
    let bytes = removed.expect("it is there");
    assert!(tree.relocate(1).unwrap().0 > 0);
    tree.put_back(&key, &bytes, 3).unwrap();
    relocate(&mut tree);
    assert_eq!(keys(&tree).len() as u64, ROWS);
}

#[test]
fn where_rows_come_all_the_time_it_ends_when_they_do() {
    let (here, there) = (node(0), node(1));
    let mut tree = Tree::new(TreeConfig::for_rows_of(40), here.clone());
    insert(&mut tree, 0..ROWS);
    tree.allocate_from(there);
    let mut added = ROWS..;
    loop {
        let (_, next) = tree.relocate(2).unwrap();
        assert_ne!(next, Relocation::Done, "a leaf may be where the pass was");
        insert(&mut tree, added.next());
        if next == Relocation::Waits {
            break;
        }
    }
    assert!(out(&here) > 0);
    relocate(&mut tree);
    assert_eq!(out(&here), 0);
    assert_eq!(keys(&tree), (0..added.start).collect::<Vec<u64>>());
}

/// A row of this key: most are longer than a leaf can hold.
fn long_row(key: u64) -> Vec<u8> {
    vec![key as u8; if key.is_multiple_of(5) { 40 } else { 1_500 + (key as usize * 977) % 20_000 }]
}

fn insert_long(tree: &mut Tree, keys: impl IntoIterator<Item = u64>) {
    for key in keys {
        tree.insert(&key.encode(), &long_row(key), key).unwrap();
    }
}

/// The keys, after a check of the tree and of each row.
fn keys_of_long(tree: &Tree) -> Vec<u64> {
    tree.check().unwrap();
    let key = |entry: Entry<'_>| {
        let key = u64::decode(&entry.key()).unwrap();
        assert_eq!((entry.bytes(), entry.version()), (&long_row(key)[..], key));
        key
    };
    tree.iter().map(key).collect()
}

const LONG: u64 = if cfg!(miri) { 40 } else { 600 };

#[test]
fn long_rows_follow_and_the_memory_that_they_had_is_free() {
    let (here, there) = (node(0), node(1));
    let mut tree = Tree::new(TreeConfig::for_rows_of(40), here.clone());
    insert_long(&mut tree, 0..LONG);
    let bytes = tree.bytes();
    tree.allocate_from(there.clone());
    assert!(relocate(&mut tree) > bytes.pages);
    assert_eq!(keys_of_long(&tree), (0..LONG).collect::<Vec<u64>>());
    assert_eq!(out(&here), 0, "nothing is left there");
    assert_eq!((tree.bytes().pages, tree.bytes().long_rows), (bytes.pages, bytes.long_rows));
    tree.allocate_from(here.clone());
    relocate(&mut tree);
    assert_eq!(out(&there), 0);
    drop(tree);
    assert_eq!(out(&here), 0);
}

#[test]
fn some_long_rows_are_brought_at_a_time() {
    let (here, there) = (node(0), node(1));
    let mut tree = Tree::new(TreeConfig::for_rows_of(40), here);
    (0..9_u64).for_each(|key| tree.insert(&key.encode(), &[key as u8; 100_000], key).unwrap());
    tree.allocate_from(there.clone());
    let (first, next) = tree.relocate(1).unwrap();
    assert_eq!(next, Relocation::GoesOn);
    assert!((20..60).contains(&first), "a page, and one row of some: {first}");
    assert!((1..9).all(|_| tree.relocate(1).unwrap().1 == Relocation::GoesOn));
    relocate(&mut tree);
    assert!((0..9_u64).all(|key| tree.get(&key.encode()).unwrap().bytes == [key as u8; 100_000]));
}

#[test]
fn extents_that_are_left_serve_the_trees_that_stay() {
    let (here, there) = (node(0), node(1));
    let mut tree = Tree::new(TreeConfig::for_rows_of(40), here.clone());
    insert_long(&mut tree, 0..LONG);
    let (mut right, _) = tree.split_off(&(LONG / 2).encode()).unwrap();
    right.allocate_from(there);
    relocate(&mut right);
    let before = out(&here);
    let more = LONG..LONG + LONG / 4;
    insert_long(&mut tree, more.clone());
    assert_eq!(out(&here), before, "no chunk is taken while extents are free");
    assert_eq!(keys_of_long(&right), (LONG / 2..LONG).collect::<Vec<u64>>());
    assert_eq!(keys_of_long(&tree), (0..LONG / 2).chain(more).collect::<Vec<u64>>());
    drop(tree);
    assert_eq!(out(&here), 0, "the tree that left keeps nothing");
    drop(right);
}

#[test]
fn long_rows_that_come_and_go_meanwhile_are_not_left_behind() {
    let mut next = random(11);
    for _ in 0..if cfg!(miri) { 2 } else { 20 } {
        let (here, there) = (node(0), node(1));
        let mut tree = Tree::new(TreeConfig::for_rows_of(40), here.clone());
        insert_long(&mut tree, 0..LONG);
        let mut model: std::collections::BTreeSet<u64> = (0..LONG).collect();
        tree.allocate_from(there.clone());
        let mut steps = 0;
        // Rows that were removed, and may be put back: some to where they were.
        let mut removed: Vec<u64> = Vec::new();
        while tree.is_scattered() {
            for _ in 0..if steps < 100 { 8 } else { 0 } {
                let key = next(2 * LONG);
                if removed.contains(&key) {
                } else if model.insert(key) {
                    insert_long(&mut tree, [key]);
                } else if steps > 0 && next(3) == 0 {
                    assert!(model.remove(&key));
                    tree.remove_undoable(&key.encode(), |_| ()).unwrap().unwrap();
                    removed.push(key);
                } else {
                    assert!(model.remove(&key) && tree.remove(&key.encode()));
                }
            }
            if next(4) == 0 || steps >= 100 {
                for key in removed.drain(..) {
                    if next(2) == 0 {
                        tree.put_back(&key.encode(), &long_row(key), key).unwrap();
                        model.insert(key);
                    } else {
                        tree.settle(long_row(key).len());
                    }
                }
            }
            tree.relocate(1 + next(3) as usize).unwrap();
            steps += 1;
            assert!(steps < 100 * LONG, "it ends");
        }
        assert!(keys_of_long(&tree).into_iter().eq(model));
        assert_eq!(out(&here), 0);
        splits_and_joins(&mut tree, LONG / 2, &here, &there, keys_of_long);
    }
}

#[test]
fn nothing_ends_while_a_long_row_may_be_put_back_to_where_it_was() {
    let (here, there) = (node(0), node(1));
    let mut tree = Tree::new(TreeConfig::for_rows_of(40), here.clone());
    insert_long(&mut tree, 0..LONG);
    tree.allocate_from(there);
    tree.relocate(1).unwrap();
    // The second long row, of the first leaf; a short one is there meanwhile.
    let key = 2_u64.encode();
    assert_eq!(tree.update_undoable(&key, &[7; 40], 2).unwrap(), UndoableUpdate::SetAside);
    let waits = (0..3 * LONG).find(|_| tree.relocate(20).unwrap().1 != Relocation::GoesOn);
    assert!(waits.is_some());
    assert_eq!(tree.relocate(100_000).unwrap().1, Relocation::Waits, "its extent is held there");
    // It comes back after the pass was at its leaf, and changes no structure.
    tree.relocate(1).unwrap();
    tree.put_back(&key, &long_row(2), 2).unwrap();
    relocate(&mut tree);
    assert_eq!(keys_of_long(&tree), (0..LONG).collect::<Vec<u64>>());
    assert_eq!(out(&here), 0);
}
