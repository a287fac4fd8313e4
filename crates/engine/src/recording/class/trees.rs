//! The trees of a catalog, with the layouts by which their keys and rows are decoded.
//!
//! Owns: the names of the parts of keys. Never: reads a tree.

use atrapos_catalog::{KeyField, RowLayout, TableDef, is_placeholder};
use atrapos_partition::schema::{Catalog, TableId, TreeKind};

use crate::recording::fields::{Value, values_of_key, values_of_row};

/// A tree of the catalog, with the layout of its keys and rows.
pub(super) struct Tree {
    pub(super) parts: Vec<KeyField>,
    /// The parts' names.
    pub(super) names: Vec<String>,
    row: RowOf,
}

/// The layout of the rows of a tree.
enum RowOf {
    /// The columns of a table.
    Columns(RowLayout),
    /// The keys of a table, which an index leads to.
    Keys(Vec<KeyField>),
}

impl Tree {
    pub(super) fn of(catalog: &Catalog, at: usize) -> Tree {
        let definitions = &catalog.definitions;
        let key_of = |table: TableId| {
            (
                definitions.key_fields(table.0),
                named(catalog.tables[table.at()].name, &definitions.key_names(table.0)),
            )
        };
        let table = TableId(at as u16);
        let (mut parts, mut names) = key_of(table);
        let row = match catalog.tables[at].kind {
            TreeKind::Rows | TreeKind::Dropped => {
                let columns = definitions.table(table.0).into_iter().flat_map(TableDef::row_columns);
                RowOf::Columns(RowLayout::new(columns))
            }
            TreeKind::Entries { of, unique } => {
                let (primary, primary_names) = key_of(of);
                if !unique {
                    // Keys of an index that is not unique end with the primary key.
                    parts.extend_from_slice(&primary);
                    names.extend(primary_names);
                }
                RowOf::Keys(primary)
            }
        };
        Tree { parts, names, row }
    }

    /// Returns the values of an entry of the tree.
    pub(super) fn values(&self, key: &[u8], row: &[u8]) -> Vec<(Source, Value)> {
        let key = values_of_key(&self.parts, key).into_iter().map(|(_, value)| value);
        let mut values: Vec<_> = key.enumerate().map(|(at, value)| (Source::Key(at), value)).collect();
        let row: Vec<Option<Value>> = match &self.row {
            RowOf::Columns(layout) => values_of_row(layout, row),
            RowOf::Keys(parts) => {
                values_of_key(parts, row).into_iter().map(|(_, value)| Some(value)).collect()
            }
        };
        let row = row.into_iter().enumerate();
        values.extend(row.filter_map(|(at, value)| Some((Source::Column(at), value?))));
        values
    }
}

/// Returns the names of the parts of keys; for those that have none, their numbers.
fn named(table: &str, names: &[&str]) -> Vec<String> {
    let name = |(at, name): (usize, &&str)| {
        if is_placeholder(name) { format!("{table}.{at}") } else { (*name).to_owned() }
    };
    names.iter().enumerate().map(name).collect()
}

/// The place of a value in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// A part of the key.
    Key(usize),
    /// A column of the row.
    Column(usize),
}
