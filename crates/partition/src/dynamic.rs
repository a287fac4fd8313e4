//! Tables and indexes that are known by their definitions: handles, rows of values, and what a transaction does with them.
//!
//! Owns: the layouts by which the bytes of a table are read and written ([`Layouts`]), handles of tables and indexes
//! ([`TableHandle`], [`IndexHandle`]), and the operations on them. A table that a program declares as types is the same table: its
//! definition says of its bytes what the types say.
//!
//! Never: changes a row itself; operations encode and decode around the byte core, as those of typed tables do
//! (`crate::action`).
//!
//! Invariants
//! - What does not fit (a value, a column, a key) is refused before anything is changed, with
//!   [`AbortReason::InvalidValue`](crate::abort::AbortReason::InvalidValue).
//! - An operation carries no reference to a layout: where the data is, the worker's catalog has it. So a read writes no
//!   cache line that other workers read.

mod handle;
mod index;
mod layout;
mod operation;
mod row;

pub use handle::TableHandle;
pub use index::IndexHandle;
pub use layout::{Layouts, invalid};
pub use operation::{DeleteRow, GetColumns, GetRow, InsertRow, UpdateRow};
pub use row::DynRow;
