//! Tables used by name: rows of values, next to the same tables as types, on whatever worker they are.

mod append;
mod indexes;
mod model;
mod points;
mod ranges;
mod revised;

use std::path::Path;
use std::sync::Arc;

use atrapos::catalog::{ColumnDef, ColumnType, Definitions, KeyColumn, PrimaryKey, TableDef, TreeDef, Value};
use atrapos::{Abort, AbortReason, Database};
use atrapos_durability::directory::Directory;
use atrapos_durability::file::{FileSystem, ModelFiles};

pub(super) fn number(number: u64) -> Value {
    Value::Unsigned(number.into())
}

pub(super) fn signed(number: i64) -> Value {
    Value::Signed(number.into())
}

pub(super) fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

/// A table as data: a key of two columns that are not the first ones, a default, NULLs.
pub(super) fn people() -> TableDef {
    let column = |name: &str, ty| ColumnDef::new(name, ty);
    TableDef {
        name: "people".to_owned(),
        columns: vec![
            ColumnDef { nullable: true, ..column("nickname", ColumnType::String) },
            column("number", ColumnType::Unsigned(4)),
            ColumnDef { default: Some(Value::Signed(18)), ..column("age", ColumnType::Signed(2)) },
            column("country", ColumnType::String),
            ColumnDef { nullable: true, ..column("married", ColumnType::Bool) },
        ],
        key: PrimaryKey::Columns(vec![KeyColumn::ascending(3), KeyColumn { column: 1, descending: true }]),
        family: "people".to_owned(),
        read_only: false,
        splits: Vec::new(),
    }
}

/// A table without a key.
pub(super) fn events() -> TableDef {
    TableDef {
        name: "events".to_owned(),
        columns: vec![
            ColumnDef::new("what", ColumnType::String),
            ColumnDef { nullable: true, ..ColumnDef::new("at", ColumnType::Timestamp) },
        ],
        key: PrimaryKey::Hidden,
        family: "events".to_owned(),
        read_only: false,
        // One partition for each of four workers.
        splits: (1..4_u16).map(|worker| worker.to_be_bytes().to_vec()).collect(),
    }
}

pub(super) fn path() -> &'static Path {
    Path::new("/data/dynamic")
}

/// A directory in which these tables exist.
pub(super) fn directory_of(tables: Vec<TableDef>) -> ModelFiles {
    let files = crate::durable::notes::files();
    let all: Arc<dyn FileSystem> = Arc::new(files.clone());
    let trees = tables.into_iter().map(TreeDef::Table).collect();
    let definitions = Definitions { trees, foreign_keys: Vec::new() };
    drop(Directory::create(all, path(), definitions, 1).expect("the model takes it"));
    files
}

/// Opens a directory without declaring anything.
pub(super) fn reopen(files: &ModelFiles, workers: usize) -> Database {
    let builder = Database::existing().workers(workers).pin(false).huge_pages(false);
    builder.files(Arc::new(files.clone())).open(path()).expect("the directory is fine")
}

/// The sentence with which values are refused.
#[track_caller]
pub(super) fn refused<R: std::fmt::Debug>(outcome: Result<R, Abort>) -> String {
    let abort = outcome.expect_err("it does not fit");
    assert_eq!(abort.reason(), AbortReason::InvalidValue, "{abort}");
    abort.detail().to_owned()
}
