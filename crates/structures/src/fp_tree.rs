//! `fp-tree`: optimistic inner nodes and latched leaves, the software substitute for an FP-Tree (Table 1 of the paper), by the crate
//! `ferntree`.
//!
//! Owns: the choice among the crate's ways to read, and the locks that inserts of a key take in turn. Never: reads byte strings without
//! a latch on the leaf: the crate validates such reads only of keys that own no memory.
//!
//! An insert into a full leaf gives up its latch to split it. If another thread inserts the same key meanwhile, the crate drops the
//! value and does not say so. Two inserts of one key therefore never overlap: each has the lock that its hash names.
//!
//! A scan may go back when leaves are split or merged beside it, and the crate compares what it visits with the largest key at or
//! below the beginning that was there before, not with the beginning. So scans pass over what is below theirs.

use std::borrow::Borrow;
use std::ops::Bound;
use std::sync::{Mutex, PoisonError};

use crossbeam_utils::CachePadded;
use ferntree::Tree;

use crate::hash::FoldedHash;
use crate::key::Key;
use crate::structure::{Refused, Shared, Unordered};

/// Locks of inserts. So many that threads with different keys seldom meet.
const INSERT_LOCKS: usize = 256;

/// See the module's introduction.
pub struct FpTree<K: Key + ?Sized> {
    tree: Tree<K::Stored, u64>,
    inserts: Box<[CachePadded<Mutex<()>>]>,
}

impl<K: Key + ?Sized> FpTree<K> {
    /// Creates an empty tree.
    #[must_use]
    pub fn new() -> FpTree<K> {
        FpTree { tree: Tree::new(), inserts: (0..INSERT_LOCKS).map(|_| CachePadded::default()).collect() }
    }

    fn overwrite(&self, key: &K, value: u64) -> bool {
        let mut entries = self.tree.raw_iter_mut();
        if !entries.seek_exact(key) {
            return false;
        }
        entries.next().map(|(_, old)| *old = value).is_some()
    }

    fn insert_absent(&self, key: &K, value: u64) -> bool {
        let lock = &self.inserts[FoldedHash::of(key) as usize % INSERT_LOCKS];
        let _alone = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_new = false;
        self.tree.get_or_insert_with(key.stored(), || {
            is_new = true;
            value
        });
        is_new
    }

    fn visit_from(&self, from: &K, limit: usize, visit: &mut dyn FnMut(&K, u64)) -> usize {
        let mut entries = self.tree.range(Bound::Included(from), Bound::Unbounded);
        let mut visited = 0;
        while visited < limit {
            let Some((stored, value)) = entries.next() else { break };
            let key: &K = stored.borrow();
            if key < from {
                continue;
            }
            visit(key, *value);
            visited += 1;
        }
        visited
    }
}

impl<K: Key + ?Sized> Default for FpTree<K> {
    fn default() -> FpTree<K> {
        FpTree::new()
    }
}

macro_rules! shared_operations {
    ($key:ty) => {
        const ORDERED: bool = true;

        type Session = ();

        fn session(&self) {}

        #[inline]
        fn update(&self, (): &mut (), key: &$key, value: u64) -> bool {
            self.overwrite(key, value)
        }

        fn insert(&self, (): &mut (), key: &$key, value: u64) -> Result<bool, Refused> {
            Ok(self.insert_absent(key, value))
        }

        fn remove(&self, (): &mut (), key: &$key) -> bool {
            self.tree.remove(key).is_some()
        }

        fn scan(
            &self,
            (): &mut (),
            from: &$key,
            limit: usize,
            visit: &mut dyn FnMut(&$key, u64),
        ) -> Result<usize, Unordered> {
            Ok(self.visit_from(from, limit, visit))
        }
    };
}

impl Shared<u64> for FpTree<u64> {
    shared_operations!(u64);

    #[inline]
    fn read(&self, (): &mut (), key: &u64) -> Option<u64> {
        self.tree.get_optimistic(key)
    }
}

impl Shared<[u8]> for FpTree<[u8]> {
    shared_operations!([u8]);

    #[inline]
    fn read(&self, (): &mut (), key: &[u8]) -> Option<u64> {
        self.tree.get(key)
    }
}
