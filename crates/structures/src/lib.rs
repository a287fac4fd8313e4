//! Data structures that virtual domains run ("Robust Performance of Main Memory Data Structures by Configuration", SIGMOD 2020, Table 1),
//! behind two traits: [`Shared`] for those that several workers use at once, [`Owned`] for those that one worker has to itself.
//!
//! A structure maps keys, `u64` or byte strings ([`Key`]), to `u64` values. The operations are those of YCSB, as the paper measures
//! them: read, update, insert and scan, besides remove. [`Kind`] lists the structures by name, with what each supports.
//!
//! Our own synchronization is in [`optimistic`], a B+-tree on which [`BTree`] and [`FallbackTree`] stand; all other structures are
//! adapted from crates. Under `--cfg loom` only that tree is compiled.
//!
//! Owns: the structures. Never: starts a thread, knows a domain, an engine or a workload.

#![forbid(unsafe_code)]
#![cfg_attr(
    loom,
    allow(
        dead_code,
        unused_imports,
        reason = "models use a part of the tree, and structures are not compiled"
    )
)]

pub mod optimistic;
pub mod planted;

#[cfg(not(loom))]
mod b_tree;
#[cfg(not(loom))]
mod bw_tree;
#[cfg(not(loom))]
mod congee_tree;
#[cfg(not(loom))]
mod dash_map;
#[cfg(not(loom))]
mod fallback_tree;
#[cfg(not(loom))]
mod fp_tree;
#[cfg(not(loom))]
pub mod hash;
#[cfg(not(loom))]
mod hash_map;
#[cfg(not(loom))]
mod key;
#[cfg(not(loom))]
mod owned_hash_map;
#[cfg(not(loom))]
mod owned_tree;
#[cfg(not(loom))]
mod papaya_map;
#[cfg(not(loom))]
mod registry;
#[cfg(not(loom))]
mod skip_list;
#[cfg(not(loom))]
mod structure;

pub use optimistic::Contention;
#[cfg(not(loom))]
pub use {
    b_tree::BTree,
    bw_tree::BwTree,
    congee_tree::CongeeTree,
    dash_map::ShardedMap,
    fallback_tree::{DEFAULT_ATTEMPTS, FallbackTree},
    fp_tree::FpTree,
    hash_map::HashMap,
    key::Key,
    owned_hash_map::OwnedHashMap,
    owned_tree::OwnedTree,
    papaya_map::PapayaMap,
    registry::{Access, Kind, NoByteKeys, Support, UnknownKind, Visit},
    skip_list::SkipList,
    structure::{Opened, Owned, PointAccess, Refused, Shared, Unordered},
};
