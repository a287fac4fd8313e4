//! Tables and indexes that are known by their definitions: handles, rows of values, and the operations on them.
//!
//! Owns: the layouts by which the bytes of a table are read and written ([`Layouts`]), handles of tables and indexes
//! ([`TableHandle`], [`IndexHandle`]), and the operations on them. Both kinds of handles access the same tables: the
//! definition of a table describes its bytes as its types do.
//!
//! Never: changes a row itself; operations encode and decode around the byte core, as those of typed tables do
//! (`crate::action`).
//!
//! Invariants
//! - A value, a column or a key that does not fit is refused before anything is changed, with
//!   [`AbortReason::InvalidValue`](crate::abort::AbortReason::InvalidValue).
//! - An operation carries no reference to a layout: it takes the layout from the catalog of the worker that runs it. So
//!   a read writes no cache line that other workers read.

mod handle;
mod index;
mod layout;
mod operation;
mod row;

pub use handle::TableHandle;
pub use index::IndexHandle;
pub use layout::{Layouts, invalid};
pub use operation::{DeleteRow, GetColumns, GetRow, InsertRow, ReviseRow, Revision, UpdateRow};
pub use row::DynRow;
