//! Contradictions in definitions, each of which is one sentence that names the thing and the cure.
//!
//! Owns the rules and the limits. It looks at definitions alone; the obstacles to a change of a running database (a
//! table in use, data that violates an index) are found by the engine.

use std::collections::{BTreeMap, BTreeSet};

use atrapos_storage::{ColumnType, KeyPart, MAX_KEY_BYTES};

use crate::DefinitionError;
use crate::definition::{
    ColumnDef, Definitions, ForeignKeyDef, IndexDef, IndexPart, KeyColumn, OnDelete, PrimaryKey, TableDef,
    TreeDef, is_placeholder,
};
use crate::key::KeyField;
use crate::value::MAX_VALUE_BYTES;

/// The longest name of a table, index, family or column, in bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// The most columns of a table.
pub const MAX_COLUMNS: usize = 4096;
/// The most parts of a key: as many as it may have bytes.
pub const MAX_KEY_PARTS: usize = MAX_KEY_BYTES;
/// The most tables and indexes together, those that were dropped included; and the most foreign keys.
pub const MAX_TREES: usize = u16::MAX as usize;
/// The most bytes that the columns of fixed size of a row take together.
pub const MAX_FIXED_BYTES: usize = 1 << 20;
/// The most keys at which a family is cut.
pub(crate) const MAX_SPLITS: usize = 1 << 16;

type Checked = Result<(), DefinitionError>;

fn refuse(sentence: String) -> Checked {
    Err(DefinitionError(sentence))
}

impl Definitions {
    /// Checks that they agree with each other.
    ///
    /// # Errors
    /// The first contradiction, as a sentence.
    pub fn check(&self) -> Checked {
        for (what, count) in
            [("tables and indexes", self.trees.len()), ("foreign keys", self.foreign_keys.len())]
        {
            if count > MAX_TREES {
                return refuse(format!("there are {count} {what}; at most {MAX_TREES} fit"));
            }
        }
        let mut names = BTreeSet::new();
        for tree in &self.trees {
            let name = tree.name();
            if *tree != TreeDef::Dropped && !names.insert(name) {
                return refuse(format!(
                    "two tables or indexes have the name `{name}`; give one of them another name"
                ));
            }
            match tree {
                TreeDef::Table(table) => table.check()?,
                TreeDef::Index(index) => index.check(self.table(index.of))?,
                TreeDef::Dropped => {}
            }
        }
        self.check_hidden_families()?;
        let mut foreign_keys = BTreeSet::new();
        for key in &self.foreign_keys {
            self.check_foreign_key(key)?;
            if !foreign_keys.insert((key.child, key.parent, key.through)) {
                let (child, parent) = (self.name_of(key.child), self.name_of(key.parent));
                return refuse(format!(
                    "the foreign key from `{child}` to `{parent}` is defined twice; leave one of them out"
                ));
            }
        }
        Ok(())
    }

    fn check_hidden_families(&self) -> Checked {
        let mut first_of = BTreeMap::new();
        let live = self.trees.iter().filter(|tree| **tree != TreeDef::Dropped);
        for tree in live {
            let is_hidden = tree.as_table().is_some_and(|table| table.key == PrimaryKey::Hidden);
            let (first, first_is_hidden) = *first_of.entry(tree.family()).or_insert((tree.name(), is_hidden));
            if first != tree.name() && (is_hidden || first_is_hidden) {
                let (hidden, other) = if is_hidden { (tree.name(), first) } else { (first, tree.name()) };
                return refuse(format!(
                    "table `{hidden}` has a hidden key, so it cannot be cut at the same keys as `{other}`; leave its family to \
                     itself"
                ));
            }
        }
        Ok(())
    }

    fn check_foreign_key(&self, key: &ForeignKeyDef) -> Checked {
        let (child, parent) = (self.name_of(key.child), self.name_of(key.parent));
        let what = format!("the foreign key from `{child}` to `{parent}`");
        for (side, number) in [("child", key.child), ("parent", key.parent)] {
            if self.table(number).is_none() {
                return refuse(format!(
                    "{what} has number {number} for its {side}, which is not a table; name one"
                ));
            }
        }
        let through = key.through.unwrap_or(key.child);
        if let Some(number) = key.through {
            let index = self.name_of(number);
            if self.index(number).is_none_or(|index| index.of != key.child) {
                return refuse(format!(
                    "{what} goes through `{index}`, which is not an index of `{child}`; name one that is"
                ));
            }
        }
        if !key.enforced {
            return match key.on_delete {
                OnDelete::Restrict => Ok(()),
                OnDelete::Cascade => refuse(format!(
                    "{what} is not enforced, so it cannot cascade; enforce it, or leave that out"
                )),
            };
        }
        if self.table(key.parent).is_some_and(|parent| parent.key == PrimaryKey::Hidden) {
            return refuse(format!(
                "{what} refers to a table with a hidden key, which no row can name; give `{parent}` a primary key"
            ));
        }
        let (wanted, found) = (self.key_fields(key.parent), self.key_fields(through));
        if !begins_with(&found, &wanted) {
            let (wanted, found, by) = (describe(&wanted), describe(&found), self.name_of(through));
            return refuse(format!(
                "{what} needs keys of `{by}` that begin with the parent's key ({wanted}), but they are ({found}); name an index \
                 whose keys do"
            ));
        }
        Ok(())
    }
}

impl TableDef {
    /// Checks that it agrees with itself.
    ///
    /// # Errors
    /// The first contradiction, as a sentence.
    pub fn check(&self) -> Checked {
        check_name("a table", &self.name)?;
        check_name("a family", &self.family)?;
        let name = &self.name;
        if self.columns.is_empty() {
            return refuse(format!("table `{name}` has no columns; give it at least one"));
        }
        if self.columns.len() > MAX_COLUMNS {
            let count = self.columns.len();
            return refuse(format!(
                "table `{name}` has {count} columns where {MAX_COLUMNS} is the most; leave some out"
            ));
        }
        let mut names = BTreeSet::new();
        for (place, column) in self.columns.iter().enumerate() {
            if !(is_placeholder(&column.name) && self.is_in_key(place)) {
                check_name(&format!("a column of table `{name}`"), &column.name)?;
            }
            if !names.insert(&column.name) {
                let column = &column.name;
                return refuse(format!(
                    "table `{name}` has two columns `{column}`; give one of them another name"
                ));
            }
            self.check_column(place, column)?;
        }
        self.check_key()?;
        let widths = self.row_columns().filter_map(|column| column.ty.width());
        let fixed = widths.fold(0, usize::saturating_add);
        if fixed > MAX_FIXED_BYTES {
            return refuse(format!(
                "the columns of fixed size of table `{name}` take {fixed} bytes where {MAX_FIXED_BYTES} is the most; make some of \
                 them shorter"
            ));
        }
        check_splits(name, &self.splits)
    }

    fn check_column(&self, place: usize, column: &ColumnDef) -> Checked {
        let (table, name) = (&self.name, &column.name);
        if column.ty == ColumnType::Opaque {
            let is_last = match &self.key {
                PrimaryKey::Columns(columns) => {
                    columns.last().is_some_and(|key| usize::from(key.column) == place)
                }
                PrimaryKey::Hidden => false,
            };
            if !is_last {
                return refuse(format!(
                    "column `{name}` of table `{table}` is opaque, which only the last part of a key can be; give it a type"
                ));
            }
        }
        if let Some(what) = wrong_type(column.ty) {
            return refuse(format!("column `{name}` of table `{table}` is {}, but {what}", column.ty));
        }
        match &column.default {
            Some(default) if default.is_null() && column.nullable => Ok(()),
            Some(default) => default.check(column.ty).or_else(|why| {
                refuse(format!("the default of column `{name}` of table `{table}` does not fit it: {why}"))
            }),
            None => Ok(()),
        }
    }

    fn check_key(&self) -> Checked {
        let name = &self.name;
        let PrimaryKey::Columns(columns) = &self.key else { return Ok(()) };
        if columns.is_empty() {
            return refuse(format!(
                "the primary key of table `{name}` has no columns; name some, or give the table a hidden key"
            ));
        }
        if columns.len() > MAX_KEY_PARTS {
            let count = columns.len();
            return refuse(format!(
                "the primary key of table `{name}` has {count} columns where {MAX_KEY_PARTS} is the most; leave some out"
            ));
        }
        check_key_columns(&format!("the primary key of table `{name}`"), columns.iter().copied(), self)?;
        for key in columns {
            let column = &self.columns[usize::from(key.column)];
            if column.nullable {
                let column = &column.name;
                return refuse(format!(
                    "column `{column}` of table `{name}` may be NULL, which no part of a primary key may; make it NOT NULL"
                ));
            }
        }
        check_key_bytes(&format!("table `{name}`"), &self.key_fields())
    }
}

impl IndexDef {
    /// Checks that it agrees with itself and with `table`, the one whose rows it finds.
    ///
    /// # Errors
    /// The first contradiction, as a sentence.
    pub fn check(&self, table: Option<&TableDef>) -> Checked {
        check_name("an index", &self.name)?;
        check_name("a family", &self.family)?;
        let (name, of) = (&self.name, self.of);
        let Some(table) = table else {
            return refuse(format!(
                "index `{name}` is of table number {of}, which does not exist; name one that does"
            ));
        };
        if self.parts.is_empty() || self.parts.len() > MAX_KEY_PARTS {
            let count = self.parts.len();
            return refuse(format!(
                "the key of index `{name}` has {count} parts; it takes at least 1 and at most {MAX_KEY_PARTS}"
            ));
        }
        let columns = self.parts.iter().filter_map(|part| match part {
            IndexPart::Column(key) => Some(*key),
            IndexPart::Computed { .. } => None,
        });
        check_key_columns(&format!("the key of index `{name}`"), columns, table)?;
        for (place, part) in self.parts.iter().enumerate() {
            let IndexPart::Computed { name: part_name, part } = part else { continue };
            if !is_placeholder(part_name) {
                check_name(&format!("a part of the key of index `{name}`"), part_name)?;
            }
            if part.ty == ColumnType::Opaque && place + 1 < self.parts.len() {
                return refuse(format!(
                    "part {place} of the key of index `{name}` is opaque, which only the last one can be; give it a type"
                ));
            }
            if let Some(what) = wrong_type(part.ty) {
                return refuse(format!(
                    "part {place} of the key of index `{name}` is {}, but {what}",
                    part.ty
                ));
            }
        }
        let mut fields = self.key_fields(Some(table));
        if !self.unique {
            fields.extend(table.key_fields());
        }
        check_key_bytes(&format!("index `{name}`"), &fields)?;
        check_splits(name, &self.splits)
    }
}

fn check_name(what: &str, name: &str) -> Checked {
    if name.is_empty() {
        return refuse(format!("{what} has an empty name; give it one"));
    }
    if name.len() > MAX_NAME_BYTES {
        let count = name.len();
        let start: String = name.chars().take(20).collect();
        return refuse(format!(
            "{what} has a name of {count} bytes (`{start}...`) where {MAX_NAME_BYTES} is the most; shorten it"
        ));
    }
    if name.chars().any(char::is_control) {
        return refuse(format!("{what} has the name {name:?}, which has a control character; leave it out"));
    }
    if is_placeholder(name) {
        return refuse(format!("{what} has the name `{name}`, but no name begins with `#`; choose another"));
    }
    Ok(())
}

/// The contradiction in a type, if there is one.
fn wrong_type(ty: ColumnType) -> Option<String> {
    match ty {
        ColumnType::Unsigned(bytes) | ColumnType::Signed(bytes) if !matches!(bytes, 1 | 2 | 4 | 8 | 16) => {
            Some("an integer has 8, 16, 32, 64 or 128 bits; choose one of these".to_owned())
        }
        ColumnType::Decimal { precision, .. } if !(1..=38).contains(&precision) => {
            Some("a decimal number has from 1 to 38 digits; choose as many".to_owned())
        }
        ColumnType::Decimal { precision, scale } if scale > precision => Some(
            "no more digits can follow the point than there are; make the second number smaller".to_owned(),
        ),
        ColumnType::Bytes(bytes) | ColumnType::FixedStr(bytes) if bytes > MAX_VALUE_BYTES => {
            Some(format!("a value has at most {MAX_VALUE_BYTES} bytes; make it shorter"))
        }
        _ => None,
    }
}

fn check_key_columns(what: &str, columns: impl Iterator<Item = KeyColumn>, table: &TableDef) -> Checked {
    let mut seen = BTreeSet::new();
    for key in columns {
        let Some(column) = table.columns.get(usize::from(key.column)) else {
            let (number, table) = (key.column, &table.name);
            return refuse(format!(
                "{what} names column number {number}, which table `{table}` does not have; name one that it has"
            ));
        };
        if !seen.insert(key.column) {
            let column = &column.name;
            return refuse(format!("{what} names column `{column}` twice; leave one of them out"));
        }
    }
    Ok(())
}

/// Returns whether a key begins with the parts of another. Parts that follow an opaque one on either side are not
/// known.
fn begins_with(key: &[KeyField], beginning: &[KeyField]) -> bool {
    let is_opaque = |field: &KeyField| field.part.ty == ColumnType::Opaque;
    for (at, wanted) in beginning.iter().enumerate() {
        match key.get(at) {
            Some(found) if is_opaque(found) || is_opaque(wanted) => return true,
            // A part that may be NULL refers to nothing where it is.
            Some(found) if found.part == wanted.part || is_nullable_form(found, wanted) => {}
            _ => return false,
        }
    }
    true
}

/// Returns true if the parts differ only in that the first one may be NULL.
fn is_nullable_form(found: &KeyField, wanted: &KeyField) -> bool {
    found.part == KeyPart { nullable: true, ..wanted.part }
}

/// Refuses keys that are too long whatever their values are.
fn check_key_bytes(what: &str, fields: &[KeyField]) -> Checked {
    let bytes = |field: &KeyField| field.part.ty.width().unwrap_or(2) + usize::from(field.part.nullable);
    let least = fields.iter().map(bytes).fold(0, usize::saturating_add);
    if least > MAX_KEY_BYTES {
        return refuse(format!(
            "the key of {what} takes at least {least} bytes where {MAX_KEY_BYTES} is the most; leave columns out, or make them \
             shorter"
        ));
    }
    Ok(())
}

fn check_splits(name: &str, splits: &[Vec<u8>]) -> Checked {
    if splits.len() > MAX_SPLITS {
        let count = splits.len();
        return refuse(format!("`{name}` is cut at {count} keys where {MAX_SPLITS} is the most; name fewer"));
    }
    if splits.iter().any(|split| split.len() > MAX_KEY_BYTES || split.is_empty()) {
        return refuse(format!(
            "`{name}` is cut at a key of 0 or more than {MAX_KEY_BYTES} bytes; name another"
        ));
    }
    if !splits.is_sorted_by(|one, next| one < next) {
        return refuse(format!(
            "the keys at which `{name}` is cut do not ascend; sort them, and name each once"
        ));
    }
    Ok(())
}

/// The parts of a key for people.
pub(crate) fn describe(fields: &[KeyField]) -> String {
    let parts: Vec<String> = fields.iter().map(ToString::to_string).collect();
    parts.join(", ")
}
