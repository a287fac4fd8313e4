//! Transactions on tables and indexes that are known by their definitions.
//!
//! Owns: what [`Tx`](crate::tx::Tx) does with handles ([`TableHandle`](atrapos_partition::dynamic::TableHandle),
//! [`IndexHandle`](atrapos_partition::dynamic::IndexHandle)), and with tables of either kind ([`AnyTable`]). Never: touches a byte of
//! a row; the operations do (`atrapos_partition::dynamic`).

mod access;
mod append;
mod index;
mod ranges;

pub use access::AnyTable;
