//! Loom models of what readers and writers of the tree order: all interleavings of two threads, under the weak orderings that the memory model
//! allows, with nodes of three entries.
//!
//! Where it is the order of loads that is checked, the thread that is spawned is the one that reads. Loom (0.7) remembers of each atomic the last access alone, so a writer that loads what it is about to
//! store hides from it that a reader that came before has loaded the same, and those two are explored in one order only; a reader that comes
//! after finds the store.
//!
//! Each is also run with planted bugs, in a child process per bug. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p atrapos-structures --release --lib loom_models`.

use std::process::Command;

use loom::sync::Arc;
use loom::thread;

use super::keep::{Keep, Strings, Words};
use super::node::Node;
use super::{Attempt, Independent, Replace, Tree};
use crate::planted::Bug;

/// Preemptions that are explored at most: each bug shows with two.
const PREEMPTIONS_MAX: usize = 2;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(model);
}

fn must_fail(model: &str, bug: Bug) {
    let name = format!("optimistic::loom_models::{model}");
    let output = Command::new(std::env::current_exe().expect("a test knows its own path"))
        .args([&name, "--exact", "--test-threads=1"])
        .env("ATRAPOS_PLANTED_BUG", format!("{bug:?}"))
        .output()
        .expect("a test starts itself");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("running 1 test"), "{name} is not a test of this binary");
    assert!(!output.status.success(), "{name} does not notice the planted bug {bug:?}");
}

/// Repeats an attempt until it succeeds.
fn repeat<R>(mut attempt: impl FnMut() -> Attempt<R>) -> R {
    loop {
        match attempt() {
            Ok(result) => return result,
            Err(_) => thread::yield_now(),
        }
    }
}

/// Inserts an entry into a node with room, at the place of its key.
fn insert(node: &Node, key: u64, slot: u64) -> Attempt<()> {
    let word = node.stable()?;
    let at = node.place_in_leaf(&Words, &key);
    node.latch(word)?.insert(at, key, slot);
    Ok(())
}

/// The number of entries and the first entry, as one state of the node.
fn first_entry(node: &Node) -> Attempt<(usize, u64, u64)> {
    let word = node.stable()?;
    let seen = (node.count(), node.key(0), node.slot(0));
    node.check(word)?;
    Ok(seen)
}

fn node_with(key: u64, slot: u64) -> Arc<Node> {
    let node = Arc::new(Node::new());
    insert(&node, key, slot).expect("nobody else uses the node");
    node
}

/// A reader that has validated a node has seen it before a change or after it, never a half of it.
#[test]
fn loom_node_is_read_in_one_state() {
    check(|| {
        let node = node_with(5, 50);
        let read = Arc::clone(&node);
        let reader = thread::spawn(move || {
            if let Ok(seen) = first_entry(&read) {
                assert!([(1, 5, 50), (2, 3, 30)].contains(&seen), "the reader has seen {seen:?}");
            }
        });
        insert(&node, 3, 30).expect("nobody else has the latch");
        reader.join().expect("the reader does not fail");
    });
}

/// Of two writers of a node, the second one has seen what the first one did.
#[test]
fn loom_insertions_stay() {
    check(|| {
        let node = node_with(5, 50);
        let changed = Arc::clone(&node);
        let writer = thread::spawn(move || repeat(|| insert(&changed, 3, 30)));
        repeat(|| insert(&node, 4, 40));
        writer.join().expect("the writer does not fail");
        let entries: Vec<_> = (0..node.count()).map(|at| (node.key(at), node.slot(at))).collect();
        assert_eq!(entries, [(3, 30), (4, 40), (5, 50)]);
    });
}

/// A value that is replaced in place is not lost while its entry moves, and lands with its key.
#[test]
fn loom_value_in_place_stays() {
    check(|| {
        let node = node_with(5, 50);
        let changed = Arc::clone(&node);
        let writer = thread::spawn(move || repeat(|| insert(&changed, 3, 30)));
        repeat(|| {
            let word = node.stable()?;
            let at = node.place_in_leaf(&Words, &5);
            node.overwrite(word, at, 51, || true)
        });
        writer.join().expect("the writer does not fail");
        let entries: Vec<_> = (0..node.count()).map(|at| (node.key(at), node.slot(at))).collect();
        assert_eq!(entries, [(3, 30), (5, 51)]);
    });
}

fn tree_of(keys: std::ops::RangeInclusive<u64>) -> Arc<Tree<Words>> {
    let tree = Arc::new(Tree::new());
    for key in keys {
        assert!(repeat(|| tree.try_insert(&key, 10 * key, &Independent)));
    }
    tree
}

/// Begins to insert `key`, which splits a node and does no more.
fn split(tree: &Tree<Words>, key: u64) {
    assert!(tree.try_insert(&key, 10 * key, &Independent).is_err());
}

/// Looks for a key that is there all the time.
fn look_for(tree: &Tree<Words>, key: u64) {
    if let Ok(found) = tree.try_read(&key, &Independent) {
        assert_eq!(found, Some(10 * key));
    }
}

/// A key that is there all the time is found while the root is split.
#[test]
fn loom_root_is_split_under_a_reader() {
    check(|| {
        let tree = tree_of(1..=3);
        let read = Arc::clone(&tree);
        let reader = thread::spawn(move || look_for(&read, 3));
        split(&tree, 4);
        reader.join().expect("the reader does not fail");
    });
}

/// A key that is there all the time is found while its leaf is split. Here the leaf has to be split between two loads of the reader, which loom
/// explores when the reader comes first.
#[test]
fn loom_leaf_is_split_under_a_reader() {
    check(|| {
        let tree = tree_of(1..=4);
        let changed = Arc::clone(&tree);
        let writer = thread::spawn(move || split(&changed, 5));
        look_for(&tree, 4);
        writer.join().expect("the writer does not fail");
    });
}

/// An update that meets a split replaces the value where it then is.
#[test]
fn loom_leaf_is_split_under_an_update() {
    check(|| {
        let tree = tree_of(1..=4);
        let updated = Arc::clone(&tree);
        let writer =
            thread::spawn(move || updated.try_update(&4, 41, Replace::UnderLatch, &Independent) == Ok(true));
        let _ = tree.try_insert(&5, 50, &Independent);
        let is_updated = writer.join().expect("the writer does not fail");
        let found = repeat(|| tree.try_read(&4, &Independent));
        assert_eq!(found, Some(if is_updated { 41 } else { 40 }));
    });
}

/// Bytes of a key that is removed become another key's while a reader compares with them: a reader that has taken them for that key's is told by the
/// version of the node.
#[test]
fn loom_bytes_are_used_again_under_a_reader() {
    check(|| {
        let (node, keys) = (Arc::new(Node::new()), Arc::new(Strings::default()));
        let kept = keys.keep(b"one");
        insert_kept(&node, kept, 10).expect("nobody else uses the node");
        let (read, keys_read) = (Arc::clone(&node), Arc::clone(&keys));
        let reader = thread::spawn(move || {
            let Ok(word) = read.stable() else { return };
            let is_there = read.has(0, &*keys_read, b"two");
            assert!(!is_there || read.check(word).is_err(), "the node has never had this key");
        });
        let word = node.stable().expect("nobody has the latch");
        node.latch(word).expect("nobody else changes the node").remove(0);
        keys.give(kept);
        // By another thread than the one that removed the key: that one has passed a fence before it changed the node.
        let user = thread::spawn(move || assert_eq!(keys.keep(b"two"), kept, "the block is used again"));
        user.join().expect("the block is there");
        reader.join().expect("the reader does not fail");
    });
}

/// Inserts an entry into an empty node.
fn insert_kept(node: &Node, kept: u64, slot: u64) -> Attempt<()> {
    node.latch(node.stable()?)?.insert(0, kept, slot);
    Ok(())
}

#[test]
fn planted_bugs_are_caught_by_loom() {
    must_fail("loom_bytes_are_used_again_under_a_reader", Bug::BlockReusedUnfenced);
    for bug in [
        Bug::ReaderFenceLeftOut,
        Bug::WriterFenceLeftOut,
        Bug::VersionReadRelaxed,
        Bug::LatchReleasedRelaxed,
        Bug::VersionKept,
    ] {
        must_fail("loom_node_is_read_in_one_state", bug);
    }
    must_fail("loom_insertions_stay", Bug::LatchedBlindly);
    must_fail("loom_value_in_place_stays", Bug::LatchTakenRelaxed);
    must_fail("loom_value_in_place_stays", Bug::WritesUnannounced);
    must_fail("loom_value_in_place_stays", Bug::WriteEndedRelaxed);
    must_fail("loom_root_is_split_under_a_reader", Bug::RootNotChecked);
    must_fail("loom_root_is_split_under_a_reader", Bug::LeafNotValidated);
    must_fail("loom_leaf_is_split_under_a_reader", Bug::InnerNotValidated);
    must_fail("loom_leaf_is_split_under_an_update", Bug::LatchReleasedRelaxed);
}
