//! Transactions on tables and indexes that are known by their definitions.
//!
//! Owns: the methods of [`Tx`](crate::tx::Tx) on handles ([`TableHandle`](atrapos_partition::dynamic::TableHandle),
//! [`IndexHandle`](atrapos_partition::dynamic::IndexHandle)), and on tables of either kind ([`AnyTable`]). Never:
//! accesses the bytes of a row; the operations do (`atrapos_partition::dynamic`).

mod access;
mod append;
mod index;
mod ranges;

pub use access::AnyTable;
