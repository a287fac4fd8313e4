//! The check of a whole tree, for tests and auditors.
//!
//! Owns: the list of what must hold in a tree that nobody changes. Never: repairs anything.

use std::ptr::NonNull;

use crossbeam_epoch::Guard;

use super::key::Blob;
use super::node::{Bounds, NodeRef, Restart, node_memory, prefix_between};
use super::sync::Relaxed;
use super::{MAX_KEY_BYTES, Tree};

impl Tree {
    /// Checks the order of the keys, the bounds, prefixes and heads of all nodes, and the memory that is accounted for.
    ///
    /// # Errors
    /// Describes what is wrong.
    pub(crate) fn check(&self, guard: &Guard) -> Result<(), String> {
        let (root, _) = self.root(guard).map_err(|Restart| "the root is changing".to_owned())?;
        let mut bytes = 0;
        check_below(root, (None, None), &mut bytes)?;
        let counted = self.memory();
        if bytes != counted {
            return Err(format!("the nodes take {bytes} bytes, but {counted} were counted"));
        }
        Ok(())
    }
}

fn check_below(node: NodeRef<'_>, expected: Bounds<'_>, bytes: &mut u64) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("level {}, keys {expected:02x?}: {what}", node.level()));
    let changing = |_: Restart| "the tree is changing".to_owned();
    let word = node.stable().map_err(changing)?;
    let bounds = node.bounds(word).map_err(changing)?;
    if bounds != expected {
        return wrong("the bounds are not those of the parent");
    }
    *bytes += node_memory(node.is_leaf()) as u64;
    for bound in [node.low.load(Relaxed), node.high.load(Relaxed)].into_iter().filter_map(NonNull::new) {
        // SAFETY: the node is in the tree.
        *bytes += Blob::memory(unsafe { Blob::bytes(bound) }.len()) as u64;
    }
    // After removals a prefix may be shorter than it could be, but never longer.
    if node.prefix() > prefix_between(bounds.0, bounds.1) {
        return wrong("the prefix is longer than what the bounds share");
    }
    let mut before: Option<&[u8]> = None;
    for at in 0..node.count() {
        let key = node.key(at, word).map_err(changing)?;
        if before.is_some_and(|before| before >= key) {
            return wrong("the keys are not in order");
        }
        if bounds.0.is_some_and(|low| key < low) || bounds.1.is_some_and(|high| key >= high) {
            return wrong("a key is out of bounds");
        }
        let found = if node.is_leaf() { node.find_in_leaf(key, word) } else { node.find_in_inner(key, word) };
        if found != Ok((at, true)) {
            return wrong("a key is not found at its place");
        }
        if key.len() > MAX_KEY_BYTES {
            return wrong("a key is too long");
        }
        if !node.is_leaf() {
            *bytes += Blob::memory(key.len()) as u64;
        }
        before = Some(key);
    }
    if node.is_leaf() {
        return Ok(());
    }
    for at in 0..=node.count() {
        let child = node.child(at, word).map_err(changing)?;
        if child.level() + 1 != node.level() {
            return wrong("a child is not one level below");
        }
        let key = |at| node.key(at, word).map_err(changing);
        let low = if at == 0 { bounds.0 } else { Some(key(at - 1)?) };
        let high = if at == node.count() { bounds.1 } else { Some(key(at)?) };
        check_below(child, (low, high), bytes)?;
    }
    Ok(())
}
