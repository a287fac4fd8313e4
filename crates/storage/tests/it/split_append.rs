//! Cutting and joining cost a few nodes per level, and do not wear a tree out.

use atrapos_storage::{HeapMemory, Key, Tree, TreeConfig};
use std::sync::Arc;

fn loaded(rows: u64) -> Tree {
    let rows = (0..rows).map(|id| (id.encode(), [id as u8; 40], id));
    Tree::bulk_load(TreeConfig::for_rows_of(40), Arc::new(HeapMemory), rows, 0.9)
        .expect("the rows are in order")
}

/// Nodes per level a cut or a join may touch: the two at the edge, and a neighbour or a new one.
const PER_LEVEL: usize = 4;

#[test]
fn cost_follows_the_height_and_not_the_rows() {
    for rows in if cfg!(miri) { vec![60u64, 300] } else { vec![1_000, 100_000] } {
        let mut tree = loaded(rows);
        for eighth in 1..8 {
            let cut = (rows * eighth / 8).encode();
            let height = tree.height();
            let (right, touched) = tree.split_off(&cut).expect("the heap has memory");
            assert!(
                touched <= PER_LEVEL * height,
                "a cut of {rows} rows touched {touched} nodes at height {height}"
            );
            assert_eq!(tree.len(), rows * eighth / 8);
            assert_eq!(tree.len() + right.len(), rows);
            let height = tree.height().max(right.height());
            let touched = tree.append(right).expect("what was cut joins again");
            assert!(
                touched <= PER_LEVEL * height,
                "a join of {rows} rows touched {touched} nodes at height {height}"
            );
            assert_eq!(tree.len(), rows);
            tree.check().unwrap();
        }
    }
}

#[test]
fn cutting_and_joining_in_turn_does_not_wear_a_tree_out() {
    let (rows, rounds) = if cfg!(miri) { (250u64, 8u64) } else { (50_000, 5_000) };
    let mut tree = loaded(rows);
    let before = (tree.bytes().pages, tree.height());
    for round in 0..rounds {
        let cut = (round.wrapping_mul(0x9e37_79b9_7f4a_7c15) % rows).encode();
        let (right, _) = tree.split_off(&cut).expect("the heap has memory");
        tree.append(right).expect("what was cut joins again");
    }
    tree.check().unwrap();
    let after = (tree.bytes().pages, tree.height());
    assert_eq!(before, after, "pages and height, before and after");
}

#[test]
fn a_hundred_parts_join_into_a_good_tree() {
    let (rows, count) = if cfg!(miri) { (200u64, 5) } else { (50_000, 100) };
    let mut tree = loaded(rows);
    let pages = tree.bytes().pages;
    let mut parts = Vec::new();
    for part in (1..count).rev() {
        parts.push(tree.split_off(&(rows * part / count).encode()).expect("the heap has memory").0);
    }
    for part in parts.into_iter().rev() {
        tree.append(part).expect("the parts are neighbours");
    }
    tree.check().unwrap();
    assert_eq!(tree.len(), rows);
    assert!(tree.bytes().pages <= pages + pages / 10 + 1, "{} pages from {pages}", tree.bytes().pages);
    for id in (0..rows).step_by(97) {
        assert_eq!(tree.get(&id.encode()).map(|row| row.version), Some(id));
    }
}

#[test]
fn trees_of_very_different_height_join_on_either_side() {
    let (many, few) = if cfg!(miri) { (300u64, 3u64) } else { (100_000, 3) };
    for small_first in [true, false] {
        let mut tree = loaded(many);
        let at = if small_first { few } else { many - few };
        let (right, _) = tree.split_off(&at.encode()).expect("the heap has memory");
        assert_ne!(tree.height(), right.height());
        tree.append(right).expect("what was cut joins again");
        assert_eq!(tree.len(), many);
        tree.check().unwrap();
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a part moves to another thread, as the engine moves it")]
fn parts_live_on_when_the_tree_they_came_from_is_gone() {
    let rows = if cfg!(miri) { 200u64 } else { 2_000 };
    let mut tree = loaded(rows);
    let (mut right, _) = tree.split_off(&(rows / 2).encode()).expect("the heap has memory");
    drop(tree);
    let moved = std::thread::scope(|scope| {
        let worker = scope.spawn(move || {
            for id in rows..rows + rows / 2 {
                right.insert(&id.encode(), &[0; 40], id).expect("the keys are new");
            }
            right
        });
        worker.join().expect("inserting does not panic")
    });
    moved.check().unwrap();
    assert_eq!(moved.len(), rows);
}

#[test]
fn trees_with_pages_of_different_sizes_do_not_join() {
    let mut left = loaded(10);
    let mut right = Tree::new(TreeConfig::for_rows_of(1_000), Arc::new(HeapMemory));
    right.insert(&99u64.encode(), &[1; 1_000], 0).unwrap();
    let error = left.append(right).expect_err("the page sizes differ");
    assert!(error.to_string().contains("4096 and 16384 bytes"), "{error}");
    assert_eq!((left.len(), error.tree.len()), (10, 1));
}
