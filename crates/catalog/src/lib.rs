//! Definitions of a database of the `atrapos` transaction engine, as data.
//!
//! A [`Definitions`] lists the tables, indexes and foreign keys of a database. The same definition describes a table
//! that a program declares as types of Rust and one that was made at run time: a column is a name, a [`ColumnType`],
//! its nullability, and a default; a key is a list of columns, each ascending or descending. The keys and rows of a
//! table can be read and written by its definition alone ([`KeyCodec`], [`RowLayout`], [`Value`]), byte for byte as by
//! the types.
//!
//! This crate owns definitions: that they do not contradict themselves ([`Definitions::check`]), their bytes
//! ([`Definitions::encode`]), and where two of them differ ([`Definitions::difference`]). It starts nothing, waits for
//! nothing, stores nothing and knows no transaction; `clippy.toml` beside it makes that a build failure.

#![forbid(unsafe_code)]

mod bytes;
mod check;
mod definition;
mod describe;
mod difference;
mod encoding;
mod key;
mod row;
mod value;

pub use atrapos_storage::{ColumnType, KeyPart};
pub use bytes::DecodeError;
pub use check::{MAX_COLUMNS, MAX_FIXED_BYTES, MAX_KEY_PARTS, MAX_NAME_BYTES, MAX_TREES};
pub use definition::{
    ColumnDef, Definitions, ForeignKeyDef, IndexDef, IndexPart, KeyColumn, OnDelete, PrimaryKey, TableDef,
    TreeDef, is_placeholder, placeholder,
};
pub use encoding::MAX_ENCODED_BYTES;
pub use key::{KeyCodec, KeyField};
pub use row::{RowLayout, RowProjection};
pub use value::{MAX_VALUE_BYTES, Value, ValueError};

/// The contradiction in a definition: one sentence that names the thing and the cure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DefinitionError(String);
