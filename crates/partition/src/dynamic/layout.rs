//! Layouts: the positions of the columns of a table in keys and in rows.
//!
//! Owns: the checks of values against the columns of a table, and the messages of failed checks. Never: touches a tree.

use std::sync::Arc;

use atrapos_catalog::{
    ColumnDef, Definitions, IndexDef, KeyCodec, PrimaryKey, RowLayout, TableDef, TreeDef, Value, ValueError,
};
use atrapos_storage::KeyBuf;

use crate::abort::{Abort, AbortReason};
use crate::schema::TableId;

/// The layouts of all tables and indexes of a catalog, by number.
#[derive(Debug, Default)]
pub struct Layouts(Vec<Option<TreeLayout>>);

#[derive(Debug)]
enum TreeLayout {
    Table(Arc<TableLayout>),
    Index(Arc<IndexLayout>),
}

impl Layouts {
    pub(crate) fn of(definitions: &Definitions) -> Layouts {
        let layout = |(number, tree): (usize, &TreeDef)| match tree {
            TreeDef::Table(table) => {
                Some(TreeLayout::Table(Arc::new(TableLayout::new(TableId(number as u16), table))))
            }
            TreeDef::Index(index) => {
                let names = definitions.key_names(number as u16);
                let table = definitions.table(index.of)?;
                let index = IndexLayout::new(TableId(number as u16), index, table, &names);
                Some(TreeLayout::Index(Arc::new(index)))
            }
            TreeDef::Dropped => None,
        };
        Layouts(definitions.trees.iter().enumerate().map(layout).collect())
    }

    /// The layout of a table; `None` for an index, or a number that is not in use.
    #[inline]
    pub(super) fn table(&self, number: TableId) -> Option<&Arc<TableLayout>> {
        match self.0.get(number.at()) {
            Some(Some(TreeLayout::Table(layout))) => Some(layout),
            _ => None,
        }
    }

    /// The layout of an index; `None` for a table, or a number that is not in use.
    pub(super) fn index(&self, number: TableId) -> Option<&Arc<IndexLayout>> {
        match self.0.get(number.at()) {
            Some(Some(TreeLayout::Index(layout))) => Some(layout),
            _ => None,
        }
    }
}

/// Creates the abort for a value, a column or a key that does not fit.
#[cold]
pub fn invalid(why: String) -> Abort {
    Abort::explained(AbortReason::InvalidValue, why)
}

/// The layout of the keys of a table or an index.
#[derive(Debug)]
pub struct KeyLayout {
    /// The name for messages: `table 'x'` or `index 'x'`.
    of: String,
    /// Names of the parts.
    names: Vec<String>,
    pub(super) codec: KeyCodec,
}

impl KeyLayout {
    /// Encodes a whole key.
    #[inline]
    pub fn encode(&self, values: &[Value]) -> Result<KeyBuf, Abort> {
        self.codec.encode(values).map_err(|error| self.refusal(values, &error))
    }

    /// Encodes the beginning of keys whose first parts are these values.
    pub(super) fn encode_beginning(&self, values: &[Value]) -> Result<KeyBuf, Abort> {
        self.codec.encode_beginning(values).map_err(|error| self.refusal(values, &error))
    }

    /// Creates the abort for values that are no key, or no beginning of one.
    #[cold]
    fn refusal(&self, values: &[Value], error: &ValueError) -> Abort {
        let KeyLayout { of, names, .. } = self;
        if let ValueError::Count { got, wanted } = error {
            let parts = names.join(", ");
            return invalid(format!(
                "{of} has keys of {wanted} parts ({parts}) and was given {got} values; give one for each part"
            ));
        }
        let misfit = |(field, value): (&atrapos_catalog::KeyField, &Value)| {
            field.encode(value, &mut KeyBuf::new()).is_err()
        };
        let at = self.codec.fields().iter().zip(values).position(misfit).unwrap_or(0);
        invalid(format!("key column '{}' of {of}: {error}", names.get(at).map_or("", String::as_str)))
    }
}

/// The position of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The part of the key with this number.
    Key(usize),
    /// The column of the row with this number.
    Row(usize),
}

/// The layout of a table, made from its definition.
#[derive(Debug)]
pub struct TableLayout {
    pub(super) number: TableId,
    pub(super) name: String,
    pub(super) columns: Vec<ColumnDef>,
    /// The positions of the columns.
    pub(super) places: Vec<Place>,
    pub key: KeyLayout,
    /// The column of each part of the key; empty if the key is hidden.
    key_columns: Vec<usize>,
    pub(super) row: RowLayout,
    pub(super) has_hidden_key: bool,
    pub(super) is_read_only: bool,
}

impl TableLayout {
    fn new(number: TableId, table: &TableDef) -> TableLayout {
        let key_columns: Vec<usize> = match &table.key {
            PrimaryKey::Columns(columns) => columns.iter().map(|key| usize::from(key.column)).collect(),
            PrimaryKey::Hidden => Vec::new(),
        };
        let mut in_row = 0;
        let place = |column| match key_columns.iter().position(|key| *key == column) {
            Some(part) => Place::Key(part),
            None => {
                in_row += 1;
                Place::Row(in_row - 1)
            }
        };
        let places = (0..table.columns.len()).map(place).collect();
        let names = table.key_names().into_iter().map(str::to_owned).collect();
        TableLayout {
            number,
            name: table.name.clone(),
            columns: table.columns.clone(),
            places,
            key: KeyLayout { of: format!("table '{}'", table.name), names, codec: KeyCodec::of_table(table) },
            key_columns,
            row: RowLayout::of_table(table),
            has_hidden_key: table.key == PrimaryKey::Hidden,
            is_read_only: table.read_only,
        }
    }

    /// Looks up the number of a column.
    pub(super) fn column(&self, name: &str) -> Result<usize, Abort> {
        self.columns.iter().position(|column| column.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
            invalid(format!(
                "table '{}' has no column '{name}'; its columns are {}",
                self.name,
                names.join(", ")
            ))
        })
    }

    /// Refuses a value that a column cannot hold.
    pub(super) fn check(&self, column: usize, value: &Value) -> Result<(), Abort> {
        let column = &self.columns[column];
        if column.nullable && value.is_null() {
            return Ok(());
        }
        value
            .check(column.ty)
            .map_err(|error| invalid(format!("column '{}' of table '{}': {error}", column.name, self.name)))
    }

    pub fn check_writable(&self) -> Result<(), Abort> {
        if !self.is_read_only {
            return Ok(());
        }
        Err(invalid(format!(
            "table '{}' is read-only, so no transaction can write it; load its rows with Database::load",
            self.name
        )))
    }

    /// Returns the values of all columns of a new row: those given, defaults, or NULL. A column may be named once.
    fn complete(&self, given: &[(&str, Value)]) -> Result<Vec<Value>, Abort> {
        let mut values: Vec<Option<Value>> = vec![None; self.columns.len()];
        for (name, value) in given {
            let column = self.column(name)?;
            if values[column].is_some() {
                return Err(invalid(format!("column '{name}' of table '{}' is given twice", self.name)));
            }
            self.check(column, value)?;
            values[column] = Some(value.clone());
        }
        let completed = values.into_iter().zip(&self.columns).map(|(value, column)| {
            let value = value.or_else(|| column.default.clone());
            value.or_else(|| column.nullable.then_some(Value::Null)).ok_or_else(|| {
                invalid(format!(
                    "column '{}' of table '{}' is NOT NULL and has no default; give it a value",
                    column.name, self.name
                ))
            })
        });
        completed.collect()
    }

    /// Makes a new row of these columns: its key, unless it is hidden, and its bytes.
    pub fn new_row(&self, given: &[(&str, Value)]) -> Result<(Option<KeyBuf>, Vec<u8>), Abort> {
        self.check_writable()?;
        self.row_of(self.complete(given)?)
    }

    /// Makes a new row of the values of all columns, in their order: its key, unless it is hidden, and its bytes.
    pub fn new_row_of_values(&self, values: Vec<Value>) -> Result<(Option<KeyBuf>, Vec<u8>), Abort> {
        self.check_writable()?;
        if values.len() != self.columns.len() {
            return Err(invalid(format!(
                "table '{}' has {} columns and was given {} values; give one for each column",
                self.name,
                self.columns.len(),
                values.len()
            )));
        }
        for (column, value) in values.iter().enumerate() {
            self.check(column, value)?;
        }
        self.row_of(values)
    }

    /// Makes a row of values that have been checked.
    fn row_of(&self, mut values: Vec<Value>) -> Result<(Option<KeyBuf>, Vec<u8>), Abort> {
        let key = if self.has_hidden_key {
            None
        } else {
            let take = |column: &usize| std::mem::replace(&mut values[*column], Value::Null);
            let parts: Vec<Value> = self.key_columns.iter().map(take).collect();
            let mut places = self.places.iter();
            values.retain(|_| matches!(places.next(), Some(Place::Row(_))));
            Some(self.key.encode(&parts)?)
        };
        let mut row = Vec::new();
        self.row.encode(&values, &mut row).map_err(|error| self.row_refusal(&error))?;
        Ok((key, row))
    }

    /// Returns the assignments to columns of the row, by their numbers there.
    pub fn assignments(&self, given: &[(&str, Value)]) -> Result<Vec<(usize, Value)>, Abort> {
        self.check_writable()?;
        let mut assigned: Vec<(usize, Value)> = Vec::with_capacity(given.len());
        for (name, value) in given {
            let column = self.column(name)?;
            let Place::Row(place) = self.places[column] else {
                return Err(invalid(format!(
                    "column '{name}' is part of the key of table '{}', which stays; delete the row and insert another",
                    self.name
                )));
            };
            if assigned.iter().any(|(other, _)| *other == place) {
                return Err(invalid(format!("column '{name}' of table '{}' is given twice", self.name)));
            }
            self.check(column, value)?;
            assigned.push((place, value.clone()));
        }
        Ok(assigned)
    }

    /// Returns assignments to columns of the table, by number, as assignments to columns of the row.
    pub(super) fn assignments_by_number(
        &self,
        given: Vec<(usize, Value)>,
    ) -> Result<Vec<(usize, Value)>, Abort> {
        self.check_writable()?;
        let in_row = |(column, value): (usize, Value)| match self.places.get(column) {
            Some(Place::Row(place)) => self.check(column, &value).map(|()| (*place, value)),
            _ => Err(invalid(format!(
                "column number {column} of table '{}' is part of its key, which stays, or does not exist; delete the row and \
                 insert another",
                self.name
            ))),
        };
        given.into_iter().map(in_row).collect()
    }

    /// Writes the row that results from assignments to `old`.
    pub fn assign(&self, old: &[u8], assigned: &[(usize, Value)], out: &mut Vec<u8>) -> Result<(), Abort> {
        self.row.assign(old, assigned, out).map_err(|error| match error {
            ValueError::OtherLength => self.corrupt(&error),
            error => self.row_refusal(&error),
        })
    }

    /// The value of a column of a stored row.
    #[inline]
    pub(super) fn value(&self, key: &[u8], row: &[u8], column: usize) -> Result<Value, Abort> {
        let value = match self.places[column] {
            Place::Row(place) => self.row.get(row, place),
            Place::Key(part) => self.value_in_key(key, part),
        };
        match value {
            Ok(value) => Ok(value),
            Err(error) => Err(self.corrupt(&error)),
        }
    }

    /// The value of a part of a key.
    fn value_in_key(&self, mut key: &[u8], part: usize) -> Result<Value, ValueError> {
        let mut last = Ok(Value::Null);
        for field in &self.key.codec.fields()[..=part] {
            last = field.decode(&mut key);
            if last.is_err() {
                break;
            }
        }
        last
    }

    /// The values of all columns of a stored row.
    pub(super) fn values(&self, key: &[u8], row: &[u8]) -> Result<Vec<Value>, Abort> {
        let mut in_row = self.row.decode(row).map_err(|error| self.corrupt(&error))?;
        if self.key_columns.is_empty() {
            return Ok(in_row);
        }
        let mut in_key = self.key.codec.decode(key).map_err(|error| self.corrupt(&error))?;
        let value = |place: &Place| match place {
            Place::Key(part) => std::mem::replace(&mut in_key[*part], Value::Null),
            Place::Row(at) => std::mem::replace(&mut in_row[*at], Value::Null),
        };
        Ok(self.places.iter().map(value).collect())
    }

    #[cold]
    fn row_refusal(&self, error: &ValueError) -> Abort {
        invalid(format!("a row of table '{}': {error}", self.name))
    }

    #[cold]
    pub(super) fn corrupt(&self, error: &ValueError) -> Abort {
        Abort::explained(
            AbortReason::Corruption,
            format!(
                "a stored row of table '{}' does not fit its definition ({error}); restore the database from a backup",
                self.name
            ),
        )
    }
}

/// The layout of an index, made from its definition.
#[derive(Debug)]
pub(crate) struct IndexLayout {
    pub(super) number: TableId,
    pub(super) name: String,
    /// The table whose rows it finds.
    pub(super) of: TableId,
    pub(super) key: KeyLayout,
    pub(super) is_unique: bool,
}

impl IndexLayout {
    fn new(number: TableId, index: &IndexDef, table: &TableDef, names: &[&str]) -> IndexLayout {
        IndexLayout {
            number,
            name: index.name.clone(),
            of: TableId(index.of),
            key: KeyLayout {
                of: format!("index '{}'", index.name),
                names: names.iter().map(|name| (*name).to_owned()).collect(),
                codec: KeyCodec::of_index(index, table),
            },
            is_unique: index.unique,
        }
    }
}
