//! Damage of every kind is found.

use super::*;
use crate::key::Key;
use crate::memory::HeapMemory;
use crate::node::{HEADER_BYTES, NO_HEAD};
use crate::tree::TreeConfig;
use std::sync::Arc;

fn tree() -> Tree {
    let rows = if cfg!(miri) { 70u64 } else { 20_000 };
    let mut tree = Tree::new(TreeConfig::for_rows_of(100), Arc::new(HeapMemory));
    for id in 0..rows {
        tree.insert(&id.encode(), &[id as u8; 100], id).unwrap();
    }
    tree
}

/// Writes `value` at `offset` of the page of `node`.
fn poke<T>(node: NodePtr, offset: usize, value: T) {
    // SAFETY: the tests write inside the page, and to fields where every value is one of the type.
    unsafe { node.address().as_ptr().add(offset).cast::<T>().write_unaligned(value) };
}

fn peek<T: Copy>(node: NodePtr, offset: usize) -> T {
    // SAFETY: as for `poke`.
    unsafe { node.address().as_ptr().add(offset).cast::<T>().read_unaligned() }
}

/// Offsets in the header of the number of entries, and of the link to the next leaf.
const COUNT_AT: usize = 32;
const NEXT_AT: usize = 24;

/// Offset of the record offsets of a leaf.
fn offsets(leaf: NodePtr) -> usize {
    HEADER_BYTES + 4 * leaf.cap()
}

#[track_caller]
fn finds(what: &str, damage: impl FnOnce(&mut Tree)) {
    let mut tree = tree();
    tree.check().expect("it is sound before");
    damage(&mut tree);
    let error = tree.check().expect_err("it is damaged");
    assert_eq!(error.what, what);
    assert!(error.to_string().contains("restore it from a checkpoint"), "{error}");
}

#[test]
fn damage_to_keys_is_found() {
    finds("keys do not ascend", |tree| {
        let leaf = tree.first_leaf();
        let (a, b) = (offsets(leaf), offsets(leaf) + 2);
        let (first, second): (u16, u16) = (peek(leaf, a), peek(leaf, b));
        poke(leaf, a, second);
        poke(leaf, b, first);
        let (a, b) = (HEADER_BYTES, HEADER_BYTES + 4);
        let (first, second): (i32, i32) = (peek(leaf, a), peek(leaf, b));
        poke(leaf, a, second);
        poke(leaf, b, first);
    });
    finds("a key is outside the separators above it", |tree| {
        let leaf = tree.last_leaf();
        poke(leaf, HEADER_BYTES, i32::MIN);
    });
    finds("a head has bytes behind its key", |tree| {
        let leaf = tree.first_leaf();
        let head: i32 = peek(leaf, HEADER_BYTES);
        poke(leaf, HEADER_BYTES, head | 1);
    });
    finds("an unused head is not marked", |tree| {
        let leaf = tree.last_leaf();
        poke(leaf, HEADER_BYTES + 4 * (leaf.cap() - 1), NO_HEAD - 1);
    });
}

#[test]
fn damage_to_records_is_found() {
    finds("a record is outside the heap of its node", |tree| {
        poke(tree.first_leaf(), offsets(tree.first_leaf()), 4090u16);
    });
    finds("a record is outside the heap of its node", |tree| {
        poke(tree.first_leaf(), offsets(tree.first_leaf()), 3u16);
    });
    finds("two records of a node overlap", |tree| {
        let leaf = tree.first_leaf();
        let first: u16 = peek(leaf, offsets(leaf));
        poke(leaf, offsets(leaf) + 2, first);
    });
    finds("the dead bytes of a node are counted wrongly", |tree| {
        let leaf = tree.last_leaf();
        let record = leaf.record_at(0);
        // One byte less in the row than there was.
        let len: u16 = peek(leaf, record + 10);
        poke(leaf, record + 10, len - 1);
    });
}

#[test]
fn damage_to_long_rows_is_found() {
    // Behind the record's header and the four bytes of the key that are not in its head.
    let extent_at = |leaf: NodePtr, index| leaf.record_at(index) + leaf.record_bytes(index) - 16;
    let finds = |what: &str, damage: &dyn Fn(&mut Tree, NodePtr)| {
        let mut tree = Tree::new(TreeConfig::for_rows_of(100), Arc::new(HeapMemory));
        for id in 0..3u64 {
            tree.insert(&id.encode(), &[id as u8; 5_000], id).unwrap();
        }
        assert_eq!(tree.check().expect("it is sound before").long_rows, 3);
        let leaf = tree.first_leaf();
        damage(&mut tree, leaf);
        assert_eq!(tree.check().expect_err("it is damaged").what, what);
    };
    finds("a row that is not in its leaf has a length that none can have", &|_, leaf| {
        poke(leaf, extent_at(leaf, 0) + 8, 7u32);
    });
    finds("a row that is not in its leaf has a length that none can have", &|_, leaf| {
        poke(leaf, extent_at(leaf, 1) + 8, MAX_ROW_BYTES as u32 + 1);
    });
    finds("a long row is not in the memory of the tree", &|_, leaf| {
        poke(leaf, extent_at(leaf, 2), 4096usize);
    });
    finds("two long rows overlap", &|_, leaf| {
        let first: [u64; 2] = peek(leaf, extent_at(leaf, 0));
        poke(leaf, extent_at(leaf, 2), first);
    });
    // Given back, but still referred to.
    finds("a long row is not in the memory of the tree", &|tree, leaf| {
        let extent = leaf.extent(1).expect("the row is long");
        tree.pages.give_extent(extent);
    });
}

#[test]
fn damage_to_structure_is_found() {
    finds("the number of rows is wrong", |tree| tree.rows += 1);
    finds("a leaf is not linked to the one behind it", |tree| {
        poke(tree.first_leaf(), NEXT_AT, Some(tree.last_leaf()));
    });
    finds("a leaf is not linked to the one before it", |tree| tree.last_leaf().unlink_prev());
    finds("the last leaf is linked to another", |tree| {
        poke(tree.last_leaf(), NEXT_AT, Some(tree.first_leaf()));
    });
    finds("a child is not in the memory of the tree", |tree| {
        tree.root.set_child(1, NodePtr::empty_leaf());
    });
    if !cfg!(miri) {
        finds("a node is at the wrong level", |tree| tree.root.set_child(1, tree.first_leaf()));
    }
    finds("a key is outside the separators above it", |tree| {
        let (a, b) = (tree.root.child(0), tree.root.child(1));
        tree.root.set_child(0, b);
        tree.root.set_child(1, a);
    });
    finds("the rows below a child are counted wrongly", |tree| {
        let rows = tree.root.rows(0);
        tree.root.set_rows(0, rows - 1);
    });
    finds("a hint is not the head it stands for", |tree| poke(tree.root, HEADER_BYTES + 60, 7i32));
    finds("a node has more entries than room", |tree| {
        let count = (tree.first_leaf().cap() + 1) as u16;
        poke(tree.first_leaf(), COUNT_AT, count);
    });
}
