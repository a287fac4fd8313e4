//! [`Tree`]: a B+-tree that many threads search and change at once, from byte keys to records.
//!
//! Owns: the nodes, and the records that are in it. Never: looks at a row, or decides who may change a record.
//!
//! # Protocol
//! Optimistic lock coupling (Leis et al., *The ART of Practical Synchronization*): readers take no latch but compare versions
//! before and after they have read a node, parent before child, and start again at the root if a version has changed. Writers
//! latch the nodes that they change: a leaf, and for a split its parent. A writer that cannot latch a node in the version in which
//! it has read it releases everything and starts again, so no writer waits with a latch; only the removal of empty leaves
//! does, from top to bottom, and one at a time. Full inner nodes are split on the way down, so a split never goes further up.
//!
//! Nodes have copies of their bounds. A scan goes from leaf to leaf by descending again to the bound, in either direction, so
//! leaves need no links, and their prefix follows from the bounds: all keys between two keys begin with what those share.
//! Only empty leaves are removed (as in Silo); nodes are not merged otherwise.
//!
//! # Versions and phantoms
//! The version of a leaf changes with every insertion and removal of an entry, with every split, and with every change of its
//! bounds. A transaction that has found something absent keeps the leaf and its version, and validates both when it commits. An
//! entry that only gets another record for its key keeps the version: whoever has read the old record finds it obsolete.
//!
//! # Memory
//! A node that leaves the tree is handed to the collector (`crossbeam-epoch`), which frees it when no thread is pinned that could know it.
//!
//! Public trees do not serve: `scc::TreeIndex`, `crossbeam-skiplist` and `congee` give no versions of their nodes, so a
//! transaction could not validate what it has found absent; the first has no scans backward, and the last no keys of
//! variable length.

mod check;
mod insert;
pub(crate) mod key;
mod latch;
pub(crate) mod node;
pub(crate) mod record;
mod remove;
mod scan;
pub(crate) mod sync;
#[cfg(all(test, not(loom)))]
mod tests;

use std::ptr::NonNull;
use std::sync::Mutex;

use crossbeam_epoch::Guard;
use crossbeam_utils::CachePadded;

use crate::planted::{Bug, planted};
pub(crate) use insert::Insertion;
use key::Blob;
use latch::Latch;
use node::{Leaf, Node, NodeRef, Restart, free_node, node_memory};
use record::{Header, Record};
use sync::{Acquire, AtomicPtr, AtomicU64, Relaxed};

/// Bytes of a key, at most.
pub(crate) const MAX_KEY_BYTES: usize = 1024;

/// See the module's introduction.
pub(crate) struct Tree {
    root: CachePadded<AtomicPtr<Node>>,
    /// True if one thread at a time uses the tree: nodes and records are not latched by atomic exchanges.
    for_one_thread: bool,
    /// Held by who removes nodes.
    removal: Mutex<()>,
    /// Bytes of nodes, with their bounds and separators.
    memory: AtomicU64,
}

/// Places that a descent leads to.
#[derive(Clone, Copy)]
enum Target<'k> {
    /// The leaf that may hold the key.
    At(&'k [u8]),
    /// The leaf that may hold the keys just below this one.
    Before(&'k [u8]),
    /// The last leaf.
    Last,
}

/// Results of a search for one key.
pub(crate) enum Found<'g> {
    /// The key has a record.
    Record(Record<'g>),
    /// It has none in this leaf, in this version.
    Nothing(NodeRef<'g>, u64),
}

impl Tree {
    /// Creates an empty tree.
    pub(crate) fn new() -> Tree {
        Tree::make(false)
    }

    /// Creates an empty tree without latches.
    ///
    /// # Safety
    /// No two threads use it, or what is in it, at the same time.
    #[cfg(not(loom))]
    pub(crate) unsafe fn for_one_thread() -> Tree {
        Tree::make(true)
    }

    fn make(for_one_thread: bool) -> Tree {
        let root = Leaf::allocate(0, (std::ptr::null_mut(), std::ptr::null_mut()));
        Tree {
            root: CachePadded::new(AtomicPtr::new(root.as_ptr())),
            for_one_thread,
            removal: Mutex::new(()),
            memory: AtomicU64::new(node_memory(true) as u64),
        }
    }

    /// Bytes of memory of the nodes; the records are not counted.
    pub(crate) fn memory(&self) -> u64 {
        self.memory.load(Relaxed)
    }

    /// Searches for a key.
    #[inline]
    pub(crate) fn find<'g>(&self, key: &[u8], guard: &'g Guard) -> Found<'g> {
        loop {
            if let Ok(found) = self.try_find(key, guard) {
                return found;
            }
        }
    }

    #[inline]
    fn try_find<'g>(&self, key: &[u8], guard: &'g Guard) -> Result<Found<'g>, Restart> {
        let (leaf, word) = self.descend(Target::At(key), guard)?;
        let (at, is_there) = leaf.find_in_leaf(key, word)?;
        if is_there {
            return Ok(Found::Record(leaf.record(at, word)?));
        }
        if !planted(Bug::LeafNotValidated) {
            leaf.check(word)?;
        }
        Ok(Found::Nothing(leaf, word))
    }

    /// The root and its version.
    #[inline]
    fn root<'g>(&self, _guard: &'g Guard) -> Result<(NodeRef<'g>, u64), Restart> {
        let pointer = self.root.load(Acquire);
        let root = NonNull::new(pointer).ok_or(Restart)?;
        // SAFETY: the node was the root after this thread was pinned.
        let root = unsafe { NodeRef::from_pointer(root) };
        let word = root.stable()?;
        // A root that was split before its version was loaded is the root no more.
        if self.root.load(Acquire) == pointer { Ok((root, word)) } else { Err(Restart) }
    }

    /// The leaf that a target leads to, and its version.
    #[inline]
    fn descend<'g>(&self, target: Target<'_>, guard: &'g Guard) -> Result<(NodeRef<'g>, u64), Restart> {
        let (mut node, mut word) = self.root(guard)?;
        while !node.is_leaf() {
            let at = match target {
                Target::At(key) => {
                    let (at, is_equal) = node.find_in_inner(key, word)?;
                    at + usize::from(is_equal)
                }
                Target::Before(key) => node.find_in_inner(key, word)?.0,
                Target::Last => node.count(),
            };
            (node, word) = step(node, word, at)?;
        }
        Ok((node, word))
    }

    /// Takes the latch of a node in the version in which it was read.
    ///
    /// # Errors
    /// It has another one, or somebody has the latch.
    #[inline]
    fn upgrade<'g>(&self, node: NodeRef<'g>, word: u64) -> Result<Latch<'g>, Restart> {
        if self.for_one_thread {
            // SAFETY: whoever has made the tree `for_one_thread` promises that no other thread is in it.
            unsafe { node.upgrade_alone(word) }
        } else {
            node.upgrade(word)
        }
    }

    /// Locks a record of the tree whatever its TID is, which it returns, to be unlocked with another one.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn lock_record(&self, record: Record<'_>) -> u64 {
        if self.for_one_thread { record.tid() } else { record.lock_any() }
    }

    fn add_memory(&self, bytes: usize) {
        self.memory.fetch_add(bytes as u64, Relaxed);
    }

    fn remove_memory(&self, bytes: usize) {
        self.memory.fetch_sub(bytes as u64, Relaxed);
    }

    /// Puts another record of the same key in the place of one that its caller has locked. The version of the leaf stays.
    pub(crate) fn swap(&self, old: Record<'_>, new: NonNull<Header>, guard: &Guard) {
        while self.try_swap(old, new, guard).is_err() {}
    }

    fn try_swap(&self, old: Record<'_>, new: NonNull<Header>, guard: &Guard) -> Result<(), Restart> {
        let (leaf, word) = self.descend(Target::At(old.key()), guard)?;
        let (at, is_there) = leaf.find_in_leaf(old.key(), word)?;
        let latch = self.upgrade(leaf, word)?;
        debug_assert!(is_there, "who has locked a record keeps it in the tree");
        latch.swap_record(at, new);
        Ok(())
    }

    /// Frees a node and everything below it.
    ///
    /// # Safety
    /// Nobody uses the tree any more.
    unsafe fn free_below(pointer: NonNull<Node>) {
        // SAFETY: as the caller promises.
        let node = unsafe { NodeRef::from_pointer(pointer) };
        let word = node.stable().expect("nodes in the tree are not obsolete");
        if node.is_leaf() {
            for at in 0..node.count() {
                let record = node.record(at, word).expect("nobody changes the tree");
                // SAFETY: records in the tree belong to it.
                unsafe { Record::free(record.pointer()) };
            }
        } else {
            for at in 0..=node.count() {
                let child = node.child(at, word).expect("nobody changes the tree");
                // SAFETY: as for the tree.
                unsafe { Tree::free_below(child.pointer()) };
            }
        }
        // SAFETY: nodes in the tree belong to it.
        unsafe { free_node(pointer) };
    }
}

/// The child at a place, and its version.
#[inline]
fn step<'g>(node: NodeRef<'g>, word: u64, at: usize) -> Result<(NodeRef<'g>, u64), Restart> {
    let child = node.child(at, word)?;
    child.prefetch();
    let child_word = child.stable()?;
    // The child may have been split between the check and its version.
    if !planted(Bug::InnerNotValidated) {
        node.check(word)?;
    }
    Ok((child, child_word))
}

impl Drop for Tree {
    fn drop(&mut self) {
        if let Some(root) = NonNull::new(self.root.load(Relaxed)) {
            // SAFETY: the tree is dropped, so nobody uses it.
            unsafe { Tree::free_below(root) };
        }
    }
}

/// Frees a copy of a key when nobody can know it any more.
///
/// # Safety
/// `blob` is in the tree no more, and is handed over once.
unsafe fn retire_blob(blob: *mut Blob, guard: &Guard) {
    if let Some(blob) = NonNull::new(blob) {
        // SAFETY: as the caller promises; who is pinned later cannot find it.
        unsafe { guard.defer_unchecked(move || Blob::free(blob)) };
    }
}

/// Frees a node when nobody can know it any more.
///
/// # Safety
/// The node is in the tree no more, and is handed over once.
unsafe fn retire_node(node: NodeRef<'_>, guard: &Guard) {
    let pointer = node.pointer();
    // SAFETY: as the caller promises; who is pinned later cannot find it.
    unsafe { guard.defer_unchecked(move || free_node(pointer)) };
}

/// Frees a record when nobody can know it any more.
///
/// # Safety
/// The record is in the tree no more, and is handed over once.
pub(crate) unsafe fn retire_record(record: Record<'_>, guard: &Guard) {
    let pointer = record.pointer();
    // SAFETY: as the caller promises; who is pinned later cannot find it.
    unsafe { guard.defer_unchecked(move || Record::free(pointer)) };
}
