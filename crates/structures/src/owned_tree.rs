//! `owned-tree`: the B+-tree of one owner of the storage crate.
//!
//! Owns: the rows' form: the value, eight bytes. Never: synchronizes.

use std::marker::PhantomData;
use std::ops::Bound;
use std::sync::Arc;

use arrayvec::ArrayVec;
use atrapos_storage::{HeapMemory, InsertError, KeyBuf, Position, Probe, Tree, TreeConfig, locate_batch};

use crate::key::Key;
use crate::structure::{Owned, PointAccess, Refused, Unordered};

/// Keys that are looked up together.
const GROUP: usize = 16;

/// See the module's introduction.
pub struct OwnedTree<K: Key + ?Sized> {
    tree: Tree,
    keys: PhantomData<fn(&K)>,
}

impl<K: Key + ?Sized> OwnedTree<K> {
    /// Creates an empty tree.
    #[must_use]
    pub fn new() -> OwnedTree<K> {
        let tree = Tree::new(TreeConfig::for_rows_of(size_of::<u64>()), Arc::new(HeapMemory));
        OwnedTree { tree, keys: PhantomData }
    }

    /// Looks keys up together.
    #[inline]
    fn positions(&self, keys: &[KeyBuf]) -> ArrayVec<Position, GROUP> {
        let mut probes: ArrayVec<Probe<'_>, GROUP> =
            keys.iter().map(|key| Probe::new(&self.tree, key.as_slice())).collect();
        locate_batch(&mut probes);
        probes.iter().map(|probe| probe.position).collect()
    }
}

impl<K: Key + ?Sized> Default for OwnedTree<K> {
    fn default() -> OwnedTree<K> {
        OwnedTree::new()
    }
}

fn value_of(row: &[u8]) -> u64 {
    u64::from_ne_bytes(*row.first_chunk().expect("every row has eight bytes"))
}

impl<K: Key + ?Sized> Owned<K> for OwnedTree<K> {
    const ORDERED: bool = true;

    #[inline]
    fn read(&mut self, key: &K) -> Option<u64> {
        key.with_bytes(|key| self.tree.get(key).map(|row| value_of(row.bytes)))
    }

    #[inline]
    fn update(&mut self, key: &K, value: u64) -> bool {
        key.with_bytes(|key| {
            let Some(mut row) = self.tree.get_mut(key) else { return false };
            row.bytes_mut().copy_from_slice(&value.to_ne_bytes());
            true
        })
    }

    fn insert(&mut self, key: &K, value: u64) -> Result<bool, Refused> {
        key.with_bytes(|key| match self.tree.insert(key, &value.to_ne_bytes(), 0) {
            Ok(()) => Ok(true),
            Err(InsertError::Duplicate(_)) => Ok(false),
            Err(InsertError::KeyTooLarge { bytes, max }) => Err(Refused::KeyTooLong { bytes, max }),
            Err(_) => Err(Refused::OutOfMemory),
        })
    }

    fn remove(&mut self, key: &K) -> bool {
        key.with_bytes(|key| self.tree.remove(key))
    }

    fn scan(&mut self, from: &K, limit: usize, visit: &mut dyn FnMut(&K, u64)) -> Result<usize, Unordered> {
        Ok(visit_from(&self.tree, from, limit, visit))
    }

    fn access_many(&mut self, accesses: &[PointAccess<'_, K>], found: &mut [Option<u64>]) {
        for (accesses, found) in accesses.chunks(GROUP).zip(found.chunks_mut(GROUP)) {
            let keys: ArrayVec<KeyBuf, GROUP> =
                accesses.iter().map(|access| access.key().with_bytes(KeyBuf::from_slice)).collect();
            // Updates move no entry, so positions hold to the last access.
            let positions = self.positions(&keys);
            for (((access, key), position), found) in accesses.iter().zip(&keys).zip(positions).zip(found) {
                let key = key.as_slice();
                *found = match access {
                    PointAccess::Read(_) => self.tree.row_at(position, key).map(|row| value_of(row.bytes)),
                    PointAccess::Update(_, value) => self.tree.row_at_mut(position, key).map(|mut row| {
                        row.bytes_mut().copy_from_slice(&value.to_ne_bytes());
                        *value
                    }),
                };
            }
        }
    }
}

fn visit_from<K: Key + ?Sized>(tree: &Tree, from: &K, limit: usize, visit: &mut dyn FnMut(&K, u64)) -> usize {
    let mut key = KeyBuf::new();
    from.with_bytes(|from| {
        let entries = tree.range(Bound::Included(from), Bound::Unbounded).take(limit);
        let visited = entries.map(|entry| {
            entry.key_into(&mut key);
            K::with_key(key.as_slice(), |key| visit(key, value_of(entry.bytes())));
        });
        visited.count()
    })
}
