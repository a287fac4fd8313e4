//! Loom models of what a node's readers and writers order by fences, and of a root that is split under a reader; each with the planted
//! bug that must make it fail, in a child process, because the bug is planted in the whole process.

use std::process::Command;

use loom::sync::Arc;
use loom::thread;

use super::node::Node;
use super::{Attempt, Independent, Tree};
use crate::planted::Bug;

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

/// Explores at most so many preemptions.
fn bounded(preemptions: usize) -> loom::model::Builder {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder
}

/// The number of entries and the first entry, as one state of the node.
fn first_entry(node: &Node) -> Attempt<(usize, u64, u64)> {
    let word = node.stable()?;
    let seen = (node.count(), node.key(0), node.slot(0));
    node.check(word)?;
    Ok(seen)
}

/// A reader that has validated a node has seen it before a change or after it, never a half of it.
#[test]
fn node_is_read_in_one_state() {
    bounded(3).check(|| {
        let node = Arc::new(Node::new());
        node.latch(0).expect("nobody has the latch").insert(0, 5, 50);
        let writer = {
            let node = Arc::clone(&node);
            thread::spawn(move || {
                let word = node.stable().expect("nobody else has the latch");
                node.latch(word).expect("nobody else has the latch").insert(0, 3, 30);
            })
        };
        if let Ok(seen) = first_entry(&node) {
            assert!([(1, 5, 50), (2, 3, 30)].contains(&seen), "the reader has seen {seen:?}");
        }
        writer.join().expect("the writer does not fail");
    });
}

#[test]
fn node_is_read_in_one_state_is_a_test() {
    must_fail("node_is_read_in_one_state", Bug::ReaderFenceLeftOut);
    must_fail("node_is_read_in_one_state", Bug::WriterFenceLeftOut);
}

/// A key that is there all the time is found while the root is split.
#[test]
fn root_is_split_under_a_reader() {
    bounded(2).check(|| {
        let tree = Arc::new(Tree::new());
        for key in 1..=3 {
            assert_eq!(tree.try_insert(key, 10 * key, &Independent), Ok(true));
        }
        let writer = {
            let tree = Arc::clone(&tree);
            // The first attempt splits the root and does no more.
            thread::spawn(move || assert!(tree.try_insert(4, 40, &Independent).is_err()))
        };
        if let Ok(found) = tree.try_read(3, &Independent) {
            assert_eq!(found, Some(30));
        }
        writer.join().expect("the writer does not fail");
    });
}

#[test]
fn root_is_split_under_a_reader_is_a_test() {
    must_fail("root_is_split_under_a_reader", Bug::RootNotChecked);
}
