//! Keys, rows and the multi-rooted B+-tree of the `atrapos` transaction engine.
//!
//! A table is a set of partitions, and each partition is one [`Tree`] with exactly one owner: there are no latches
//! (ATraPos §V-A). Splitting a partition in two and joining two neighbours cost a few nodes per level, which is what
//! makes repartitioning cheap (thesis §4.3).
//!
//! This crate knows bytes and order. It names no thread, no clock and no file: `clippy.toml` beside it makes that a
//! build failure. Two exceptions are off the path of every access and give their reasons where they stand: the list of
//! chunks in `memory` is locked once per chunk, and the stamps in `tree::position` come from one counter in blocks.

mod key;
pub mod lock;
mod memory;
mod node;
mod prefetch;
mod row;
mod scalars;
#[cfg(test)]
mod testing;
mod tree;

pub use key::{
    DisplayKey, INLINE_KEY_BYTES, Key, KeyBuf, KeyError, KeyPart, MAX_KEY_BYTES, decode_delimited,
    encode_delimited, first_eight, from_ordered_bits, ordered_bits, prefix_successor,
};
pub use memory::{HeapMemory, Memory, OutOfMemory, RationedMemory};
pub use prefetch::{RowLines, prefetch_value};
pub use row::{
    Column, ColumnAt, ColumnRef, ColumnType, Field, FixedStr, FixedStrError, Overwritten, OverwrittenBytes,
    Row, RowEdit, RowError, RowView, bit_of, column_bytes, push_variable, set_bit, take_variable,
    variable_bytes,
};
pub use scalars::{Date, Decimal, Timestamp, Uuid};
pub use tree::{
    AppendError, AppendRefusal, BulkError, BulkLoader, CheckError, Entry, InsertError, MAX_ROW_BYTES,
    Position, Probe, Range, Relocation, RowMut, RowRef, Tree, TreeBytes, TreeConfig, TreeSummary,
    UndoableUpdate, locate_ahead, locate_batch,
};
