//! Definitions for people: one line for each table, index and foreign key.
//!
//! Owns the words. It reads definitions and never judges them.

use crate::definition::{
    ColumnDef, Definitions, ForeignKeyDef, IndexDef, OnDelete, PrimaryKey, TableDef, TreeDef,
};
use crate::key::KeyField;

impl Definitions {
    /// Describes all objects, a line each: tables and indexes by number, those that were dropped too, then foreign
    /// keys.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let trees = (0..).zip(&self.trees).map(|(number, tree)| match tree {
            TreeDef::Table(table) => format!("{number}: table {}", table_line(table)),
            TreeDef::Index(index) => format!("{number}: {}", self.index_line(number, index)),
            TreeDef::Dropped => format!("{number}: dropped"),
        });
        trees.chain(self.foreign_keys.iter().map(|key| self.foreign_key_line(key))).collect()
    }

    fn index_line(&self, number: u16, index: &IndexDef) -> String {
        let unique = if index.unique { "unique index" } else { "index" };
        let fields = self.key_fields(number);
        let parts = key_line(&self.key_names(number), &fields);
        let family = family_line(&index.name, &index.family);
        format!("{unique} {} of {} on ({parts}){family}", index.name, self.name_of(index.of))
    }

    fn foreign_key_line(&self, key: &ForeignKeyDef) -> String {
        let through =
            key.through.map_or_else(String::new, |index| format!(" through {}", self.name_of(index)));
        let rule = match (key.enforced, key.on_delete) {
            (false, _) => "not enforced",
            (true, OnDelete::Restrict) => "restricts deletions",
            (true, OnDelete::Cascade) => "cascades deletions",
        };
        let (child, parent) = (self.name_of(key.child), self.name_of(key.parent));
        format!("foreign key from {child} to {parent}{through}, {rule}")
    }
}

fn table_line(table: &TableDef) -> String {
    let columns: Vec<String> = table.columns.iter().map(column_line).collect();
    let key = match &table.key {
        PrimaryKey::Hidden => "a hidden key".to_owned(),
        PrimaryKey::Columns(_) => format!("key ({})", key_line(&table.key_names(), &table.key_fields())),
    };
    let read_only = if table.read_only { ", read-only" } else { "" };
    let family = family_line(&table.name, &table.family);
    format!("{} ({}), {key}{family}{read_only}", table.name, columns.join(", "))
}

fn column_line(column: &ColumnDef) -> String {
    let null = if column.nullable { " or NULL" } else { "" };
    let default = if column.default.is_some() { " with a default" } else { "" };
    format!("{} {}{null}{default}", column.name, column.ty)
}

fn key_line(names: &[&str], fields: &[KeyField]) -> String {
    let direction = |field: &KeyField| if field.part.descending { " descending" } else { "" };
    let parts: Vec<String> =
        names.iter().zip(fields).map(|(name, field)| format!("{name}{}", direction(field))).collect();
    parts.join(", ")
}

fn family_line(name: &str, family: &str) -> String {
    if name == family { String::new() } else { format!(", family {family}") }
}
