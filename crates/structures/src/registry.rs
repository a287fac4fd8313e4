//! [`Kind`]: the structures by name, with what each supports.
//!
//! Owns: the list. Never: keeps a structure.

use std::str::FromStr;

use crate::key::Key;
use crate::structure::{Owned, Shared};
use crate::{
    BTree, BwTree, CongeeTree, FallbackTree, FpTree, HashMap, OwnedHashMap, OwnedTree, PapayaMap, ShardedMap,
    SkipList,
};

/// A structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// [`BTree`].
    BTree,
    /// [`FpTree`].
    FpTree,
    /// [`FallbackTree`].
    FpTreeFallback,
    /// [`BwTree`].
    BwTree,
    /// [`HashMap`].
    HashMap,
    /// [`ShardedMap`].
    DashMap,
    /// [`PapayaMap`].
    Papaya,
    /// [`CongeeTree`].
    Congee,
    /// [`SkipList`].
    SkipList,
    /// [`OwnedTree`].
    OwnedTree,
    /// [`OwnedHashMap`].
    OwnedHashMap,
}

/// The users of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Several workers at once.
    Shared,
    /// One worker.
    Owned,
}

/// The support of a structure for operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Support {
    /// Its users.
    pub access: Access,
    /// Set if it has an order of keys and can be scanned.
    pub ordered: bool,
    /// Set if keys may be byte strings; they may be `u64` in all structures.
    pub byte_keys: bool,
    /// Set if the look-ups of many keys overlap their cache misses.
    pub grouped_reads: bool,
    /// Set if it counts contention.
    pub contention: bool,
    /// The scheme of synchronization, in the words of Table 1 of the paper where it is there.
    pub synchronization: &'static str,
    /// The crate that it comes from.
    pub source: &'static str,
}

/// A name that no structure has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no structure '{name}'; choose one of {}", Kind::ALL.map(Kind::name).join(", "))]
pub struct UnknownKind {
    /// The name.
    pub name: String,
}

/// Failure to make a structure of byte strings: a radix tree of the crate `congee` has one level for each byte of an integer, and keys that
/// are all equally long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} is a radix tree over integers and takes keys of 8 bytes only; for byte strings use any other structure, such as b-tree, fp-tree or hash-map",
    .0.name()
)]
pub struct NoByteKeys(pub Kind);

/// Something to be done with a structure, whichever it is.
pub trait Visit<K: Key + ?Sized> {
    /// The result.
    type Output;

    /// Does it with a structure that workers share; `make` makes an empty one.
    fn shared<S: Shared<K> + 'static>(self, make: fn() -> S) -> Self::Output;

    /// Does it with a structure that one worker has; `make` makes an empty one.
    fn owned<S: Owned<K> + 'static>(self, make: fn() -> S) -> Self::Output;
}

impl Kind {
    /// All structures: those of the paper first, then those for comparison, then those of one owner.
    pub const ALL: [Kind; 11] = [
        Kind::BTree,
        Kind::FpTree,
        Kind::FpTreeFallback,
        Kind::BwTree,
        Kind::HashMap,
        Kind::DashMap,
        Kind::Papaya,
        Kind::Congee,
        Kind::SkipList,
        Kind::OwnedTree,
        Kind::OwnedHashMap,
    ];

    /// The name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::BTree => "b-tree",
            Kind::FpTree => "fp-tree",
            Kind::FpTreeFallback => "fp-tree-fallback",
            Kind::BwTree => "bw-tree",
            Kind::HashMap => "hash-map",
            Kind::DashMap => "dashmap",
            Kind::Papaya => "papaya",
            Kind::Congee => "congee",
            Kind::SkipList => "skiplist",
            Kind::OwnedTree => "owned-tree",
            Kind::OwnedHashMap => "owned-hash-map",
        }
    }

    /// Returns the support of the structure for operations.
    #[must_use]
    pub fn support(self) -> Support {
        let (synchronization, source) = self.origin();
        Support {
            access: match self {
                Kind::OwnedTree | Kind::OwnedHashMap => Access::Owned,
                _ => Access::Shared,
            },
            ordered: !matches!(self, Kind::HashMap | Kind::DashMap | Kind::Papaya | Kind::OwnedHashMap),
            byte_keys: self != Kind::Congee,
            grouped_reads: matches!(self, Kind::OwnedTree | Kind::OwnedHashMap),
            contention: matches!(self, Kind::BTree | Kind::FpTreeFallback),
            synchronization,
            source,
        }
    }

    fn origin(self) -> (&'static str, &'static str) {
        match self {
            Kind::BTree => ("atomic values, validated reads, global lock for inserts", "atrapos-structures"),
            Kind::FpTree => ("optimistic inner nodes, latched leaves", "ferntree"),
            Kind::FpTreeFallback => ("optimistic attempts + global lock for fallback", "atrapos-structures"),
            Kind::BwTree => ("copy-on-write + atomic compare-and-swap", "concurrent-map"),
            Kind::HashMap => ("fine-grained locking", "scc"),
            Kind::DashMap => ("reader-writer lock of each shard", "dashmap"),
            Kind::Papaya => ("reads without locks, atomic values", "papaya"),
            Kind::Congee => ("optimistic lock coupling of radix nodes", "congee"),
            Kind::SkipList => ("links without locks, atomic values", "crossbeam-skiplist"),
            Kind::OwnedTree => ("none: one owner", "atrapos-storage"),
            Kind::OwnedHashMap => ("none: one owner", "hashbrown"),
        }
    }

    /// Does something with this structure, of keys of 8 bytes.
    pub fn visit<V: Visit<u64>>(self, visit: V) -> V::Output {
        match self {
            Kind::BTree => visit.shared(BTree::<u64>::new),
            Kind::FpTree => visit.shared(FpTree::<u64>::new),
            Kind::FpTreeFallback => visit.shared(FallbackTree::<u64>::new),
            Kind::BwTree => visit.shared(BwTree::<u64>::new),
            Kind::HashMap => visit.shared(HashMap::<u64>::new),
            Kind::DashMap => visit.shared(ShardedMap::<u64>::new),
            Kind::Papaya => visit.shared(PapayaMap::<u64>::new),
            Kind::Congee => visit.shared(CongeeTree::new),
            Kind::SkipList => visit.shared(SkipList::<u64>::new),
            Kind::OwnedTree => visit.owned(OwnedTree::<u64>::new),
            Kind::OwnedHashMap => visit.owned(OwnedHashMap::<u64>::new),
        }
    }

    /// Does something with this structure, of byte strings.
    ///
    /// # Errors
    /// The structure is `congee`, whose keys have 8 bytes by its nature.
    pub fn visit_bytes<V: Visit<[u8]>>(self, visit: V) -> Result<V::Output, NoByteKeys> {
        Ok(match self {
            Kind::BTree => visit.shared(BTree::<[u8]>::new),
            Kind::FpTree => visit.shared(FpTree::<[u8]>::new),
            Kind::FpTreeFallback => visit.shared(FallbackTree::<[u8]>::new),
            Kind::BwTree => visit.shared(BwTree::<[u8]>::new),
            Kind::HashMap => visit.shared(HashMap::<[u8]>::new),
            Kind::DashMap => visit.shared(ShardedMap::<[u8]>::new),
            Kind::Papaya => visit.shared(PapayaMap::<[u8]>::new),
            Kind::SkipList => visit.shared(SkipList::<[u8]>::new),
            Kind::OwnedTree => visit.owned(OwnedTree::<[u8]>::new),
            Kind::OwnedHashMap => visit.owned(OwnedHashMap::<[u8]>::new),
            Kind::Congee => return Err(NoByteKeys(self)),
        })
    }
}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<Kind, UnknownKind> {
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name);
        kind.ok_or_else(|| UnknownKind { name: name.to_owned() })
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
