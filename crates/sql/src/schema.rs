//! The tables, indexes and sequences as statements know them: the engine's definitions, and what it does not know of.
//!
//! Owns: what is kept of a table beside the engine's definition ([`TableMeta`]), the snapshot of all of them that statements are
//! planned with ([`Schema`]), and how values are kept in columns of the engine. Never: changes anything; `ddl` does.
//!
//! Invariant: a snapshot never changes. A statement is planned with one, and planned again when its tables are others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use atrapos::catalog::{ColumnDef, Value as Stored};
use atrapos::{ColumnType, IndexHandle, TableHandle};
use serde::{Deserialize, Serialize};

use crate::error::{SqlError, SqlState};
use crate::format::Format;
use crate::network::Network;
use crate::numeric::Numeric;
use crate::procedures::SqlProcedures;
use crate::roles::Roles;
use crate::sequence::Sequence;
use crate::types::{Modifier, SqlType};
use crate::value::Value;

/// The number of the first table in `pg_class`; smaller ones are those of catalogs.
pub(crate) const FIRST_OID: u32 = 16_384;
/// The number of the first view in `pg_class`.
pub(crate) const FIRST_VIEW_OID: u32 = 500_000;
/// The number of the first sequence in `pg_class`.
pub(crate) const FIRST_SEQUENCE_OID: u32 = 100_000;

/// A column of a table, as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ColumnMeta {
    pub(crate) name: String,
    /// The number of its type.
    pub(crate) ty: u32,
    /// The code of its modifier.
    pub(crate) modifier: i32,
    pub(crate) not_null: bool,
    /// The text of the expression of its default.
    pub(crate) default: Option<String>,
    /// `a` for GENERATED ALWAYS, `d` for BY DEFAULT AS IDENTITY.
    pub(crate) identity: Option<char>,
    /// The sequence that goes with the column.
    pub(crate) sequence: Option<String>,
    /// The engine's name of it, if it was given another one.
    #[serde(default)]
    pub(crate) engine: Option<String>,
    #[serde(default)]
    pub(crate) comment: Option<String>,
}

/// An index, as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct IndexMeta {
    pub(crate) name: String,
    /// The engine's name; none for the primary key by which the rows are clustered.
    pub(crate) engine: Option<String>,
    /// Its columns, each with whether greater values come first.
    pub(crate) columns: Vec<(usize, bool)>,
    pub(crate) unique: bool,
    pub(crate) primary: bool,
    /// Set if it stands for a constraint of its name.
    pub(crate) constraint: bool,
    /// The number of the engine's index that it is known by, if that was replaced by another one.
    #[serde(default)]
    pub(crate) number: Option<u16>,
}

/// A condition of all rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CheckMeta {
    pub(crate) name: String,
    pub(crate) expression: String,
}

/// A foreign key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ForeignMeta {
    pub(crate) name: String,
    pub(crate) columns: Vec<usize>,
    pub(crate) parent: String,
    pub(crate) cascade: bool,
}

/// The description that is kept of a table beside the engine's definition of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TableMeta {
    /// The engine's name of it.
    pub(crate) engine: String,
    pub(crate) columns: Vec<ColumnMeta>,
    pub(crate) indexes: Vec<IndexMeta>,
    pub(crate) checks: Vec<CheckMeta>,
    pub(crate) foreign_keys: Vec<ForeignMeta>,
    #[serde(default)]
    pub(crate) comment: Option<String>,
    /// The number of the engine's table that it is known by, if that was replaced by another one.
    #[serde(default)]
    pub(crate) number: Option<u16>,
}

/// A column of a table.
#[derive(Clone, Debug)]
pub(crate) struct ColumnEntry {
    pub(crate) name: String,
    pub(crate) ty: SqlType,
    pub(crate) modifier: Modifier,
    pub(crate) not_null: bool,
    pub(crate) default: Option<String>,
    pub(crate) identity: Option<char>,
    /// The type in which the engine keeps it.
    pub(crate) stored: ColumnType,
}

/// An index of a table.
#[derive(Clone, Debug)]
pub(crate) struct IndexEntry {
    pub(crate) meta: IndexMeta,
    /// The engine's index; none for the primary key by which the rows are clustered.
    pub(crate) handle: Option<IndexHandle>,
    pub(crate) oid: u32,
}

/// A table.
#[derive(Debug)]
pub(crate) struct TableEntry {
    pub(crate) name: String,
    pub(crate) oid: u32,
    pub(crate) meta: TableMeta,
    pub(crate) columns: Vec<ColumnEntry>,
    pub(crate) indexes: Vec<IndexEntry>,
    pub(crate) handle: TableHandle,
    /// Set if a program has declared it, and nothing is kept of it.
    pub(crate) is_declared: bool,
    /// Set when a statement is about to replace the table: no transaction begins to use it any more.
    pub(crate) is_closed: AtomicBool,
}

impl TableEntry {
    /// The columns of the primary key by which rows are clustered; none for a table without one.
    pub(crate) fn cluster_key(&self) -> Option<&IndexMeta> {
        self.indexes.iter().find(|index| index.handle.is_none()).map(|index| &index.meta)
    }

    /// Returns true for a column of the key by which rows are clustered.
    pub(crate) fn is_in_key(&self, column: usize) -> bool {
        self.cluster_key().is_some_and(|key| key.columns.iter().any(|(part, _)| *part == column))
    }

    /// Returns true if rows of the table refer to others of it.
    pub(crate) fn refers_to_itself(&self) -> bool {
        self.meta.foreign_keys.iter().any(|foreign| foreign.parent == self.name)
    }

    /// The number of a column.
    pub(crate) fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// The error for a column that does not exist.
    pub(crate) fn no_column(&self, name: &str) -> SqlError {
        SqlError::new(
            SqlState::UNDEFINED_COLUMN,
            format!("column \"{name}\" of relation \"{}\" does not exist", self.name),
        )
    }
}

/// A column of a view, as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ViewColumn {
    pub(crate) name: String,
    /// The number of its type.
    pub(crate) ty: u32,
    /// The code of its modifier.
    pub(crate) modifier: i32,
}

/// A view, as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ViewMeta {
    pub(crate) id: u32,
    /// Its query.
    pub(crate) text: String,
    pub(crate) columns: Vec<ViewColumn>,
    /// The tables and views that it reads.
    pub(crate) reads: Vec<String>,
}

impl ViewMeta {
    /// Its number in `pg_class`.
    pub(crate) fn oid(&self) -> u32 {
        FIRST_VIEW_OID + self.id
    }
}

/// All tables, views and sequences at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schema {
    /// Counts the changes.
    pub(crate) version: u64,
    pub(crate) tables: BTreeMap<String, Arc<TableEntry>>,
    pub(crate) sequences: BTreeMap<String, Arc<Sequence>>,
    pub(crate) views: BTreeMap<String, Arc<ViewMeta>>,
    pub(crate) roles: Roles,
    pub(crate) procedures: Arc<SqlProcedures>,
}

impl Schema {
    /// Refuses that rows of a table get other keys, if other rows went with them: a row gets another key by going and coming again.
    pub(crate) fn keeps_children(&self, table: &TableEntry) -> Result<(), SqlError> {
        let is_of_it = |foreign: &ForeignMeta| foreign.cascade && foreign.parent == table.name;
        if self.tables.values().any(|child| child.meta.foreign_keys.iter().any(is_of_it)) {
            return Err(SqlError::unsupported(
                "an UPDATE of a key that other tables refer to with ON DELETE CASCADE",
            ));
        }
        Ok(())
    }

    /// The table of a name.
    pub(crate) fn table(&self, name: &str) -> Result<&Arc<TableEntry>, SqlError> {
        self.tables.get(name).ok_or_else(|| no_relation(name))
    }

    /// The sequence of a name.
    pub(crate) fn sequence(&self, name: &str) -> Result<&Arc<Sequence>, SqlError> {
        self.sequences.get(name).ok_or_else(|| no_relation(name))
    }

    /// The index of a name, with its table.
    pub(crate) fn index(&self, name: &str) -> Option<(&Arc<TableEntry>, &IndexEntry)> {
        self.tables.values().find_map(|table| {
            table.indexes.iter().find(|index| index.meta.name == name).map(|index| (table, index))
        })
    }

    /// Returns true if a table, a view, an index or a sequence has the name.
    pub(crate) fn is_taken(&self, name: &str) -> bool {
        self.tables.contains_key(name)
            || self.views.contains_key(name)
            || self.sequences.contains_key(name)
            || self.index(name).is_some()
    }

    /// A name for something of a table that nothing has yet, as PostgreSQL makes them up.
    pub(crate) fn free_name(&self, base: &str, also: &[String]) -> String {
        let is_free = |name: &String| !self.is_taken(name) && !also.contains(name);
        let numbered = (1..).map(|number| format!("{base}{number}"));
        std::iter::once(base.to_owned()).chain(numbered).find(is_free).unwrap_or_default()
    }

    /// The number of a table, an index or a sequence.
    pub(crate) fn oid_of(&self, name: &str) -> Option<u32> {
        if let Some(table) = self.tables.get(name) {
            return Some(table.oid);
        }
        if let Some(sequence) = self.sequences.get(name) {
            return Some(sequence.oid());
        }
        if let Some(view) = self.views.get(name) {
            return Some(view.oid());
        }
        self.index(name).map(|(_, index)| index.oid).or_else(|| crate::catalogs::oid_of(name))
    }

    /// The name of a table, an index or a sequence.
    pub(crate) fn name_of(&self, oid: u32) -> Option<String> {
        for table in self.tables.values() {
            if table.oid == oid {
                return Some(table.name.clone());
            }
            if let Some(index) = table.indexes.iter().find(|index| index.oid == oid) {
                return Some(index.meta.name.clone());
            }
        }
        if let Some((name, _)) = self.views.iter().find(|(_, view)| view.oid() == oid) {
            return Some(name.clone());
        }
        let sequence = self.sequences.values().find(|sequence| sequence.oid() == oid);
        sequence.map(|sequence| sequence.name().to_owned()).or_else(|| crate::catalogs::name_of(oid))
    }
}

/// The error for a table that does not exist.
#[cold]
pub(crate) fn no_relation(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))
}

/// The type in which the engine keeps values of a type.
pub(crate) fn stored_type(ty: SqlType, modifier: Modifier) -> Result<ColumnType, SqlError> {
    Ok(match ty {
        SqlType::Bool => ColumnType::Bool,
        SqlType::Int2 => ColumnType::Signed(2),
        SqlType::Int4 => ColumnType::Signed(4),
        SqlType::Int8 | SqlType::Time => ColumnType::Signed(8),
        SqlType::Float4 | SqlType::Float8 => ColumnType::F64,
        SqlType::Numeric => match modifier {
            Modifier::Digits(precision, scale) => ColumnType::Decimal { precision, scale },
            _ => ColumnType::VarBytes,
        },
        SqlType::Text
        | SqlType::Varchar
        | SqlType::Bpchar
        | SqlType::Name
        | SqlType::Json
        | SqlType::Jsonb => ColumnType::String,
        SqlType::Bytea | SqlType::Interval | SqlType::Inet | SqlType::Cidr => ColumnType::VarBytes,
        SqlType::Date => ColumnType::Date,
        SqlType::Timestamp | SqlType::Timestamptz => ColumnType::Timestamp,
        SqlType::Uuid => ColumnType::Uuid,
        SqlType::Oid => ColumnType::Unsigned(4),
        _ if is_array(ty) => ColumnType::VarBytes,
        SqlType::Record | SqlType::Void => {
            return Err(SqlError::new(
                SqlState::INVALID_TABLE_DEFINITION,
                format!("a column cannot have the pseudo-type {ty}"),
            ));
        }
        _ => return Err(SqlError::unsupported(format!("a column of type {ty}"))),
    })
}

/// Returns true for arrays that a column may have: of the types that a column may have.
fn is_array(ty: SqlType) -> bool {
    let is_vector = matches!(ty, SqlType::Int2Vector | SqlType::OidVector | SqlType::AclItemArray);
    !is_vector && ty.element().is_some_and(|element| stored_type(element, Modifier::None).is_ok())
}

/// Refuses a key over a column whose values the engine does not keep in their order.
pub(crate) fn refuse_key(ty: SqlType, modifier: Modifier) -> Result<(), SqlError> {
    match ty {
        SqlType::Numeric if modifier == Modifier::None => {
            Err(SqlError::unsupported("a key or an index over a numeric without a precision")
                .hint("Give the column a precision and a scale, as in numeric(20, 4)."))
        }
        SqlType::Interval | SqlType::Json | SqlType::Jsonb => {
            Err(SqlError::unsupported(format!("a key or an index over a column of type {ty}")))
        }
        ty if ty.element().is_some() => {
            Err(SqlError::unsupported(format!("a key or an index over a column of type {ty}")))
        }
        _ => Ok(()),
    }
}

/// The type of a column that a program has declared, as statements see it.
pub(crate) fn type_of_stored(column: &ColumnDef) -> (SqlType, Modifier) {
    match column.ty {
        ColumnType::Signed(1 | 2) | ColumnType::Unsigned(1) => (SqlType::Int2, Modifier::None),
        ColumnType::Signed(4) | ColumnType::Unsigned(2) => (SqlType::Int4, Modifier::None),
        ColumnType::Signed(8) | ColumnType::Unsigned(4) => (SqlType::Int8, Modifier::None),
        ColumnType::Unsigned(_) | ColumnType::Signed(_) => (SqlType::Numeric, Modifier::Digits(38, 0)),
        ColumnType::F64 => (SqlType::Float8, Modifier::None),
        ColumnType::Bool => (SqlType::Bool, Modifier::None),
        ColumnType::Bytes(_) | ColumnType::VarBytes | ColumnType::Opaque => (SqlType::Bytea, Modifier::None),
        ColumnType::FixedStr(_) | ColumnType::String => (SqlType::Text, Modifier::None),
        ColumnType::Decimal { precision, scale } => (SqlType::Numeric, Modifier::Digits(precision, scale)),
        ColumnType::Date => (SqlType::Date, Modifier::None),
        ColumnType::Timestamp => (SqlType::Timestamp, Modifier::None),
        ColumnType::Uuid => (SqlType::Uuid, Modifier::None),
    }
}

/// The form in which the engine keeps a value of a column. What does not fit is refused by the engine.
pub(crate) fn to_stored(value: &Value, column: &ColumnEntry) -> Stored {
    match value {
        Value::Bool(value) => Stored::Bool(*value),
        Value::Int(number) | Value::Time(number) => Stored::Signed((*number).into()),
        Value::Float(number) => Stored::F64(*number),
        Value::Numeric(number) => match column.stored {
            ColumnType::VarBytes => {
                let mut bytes = vec![number.scale];
                bytes.extend_from_slice(&number.unscaled.to_be_bytes());
                Stored::Bytes(bytes)
            }
            ColumnType::Unsigned(_) | ColumnType::Signed(_) => Stored::Signed(number.round_to_integer()),
            _ => Stored::Decimal { unscaled: number.unscaled, scale: number.scale },
        },
        Value::Text(text) => Stored::Text(text.as_ref().to_owned()),
        Value::Bytes(bytes) => Stored::Bytes(bytes.to_vec()),
        Value::Network(own) => Stored::Bytes(own.to_bytes()),
        Value::Date(days) => Stored::Date(*days),
        Value::Timestamp(moment) => Stored::Timestamp(*moment),
        Value::Uuid(uuid) => Stored::Uuid(*uuid),
        // Their binary format on the wire is that in tables, too.
        Value::Interval(_) | Value::Array(_) | Value::Record(_) => {
            let mut bytes = Vec::new();
            crate::format::encode(value, column.ty, Format::Binary, &mut bytes);
            Stored::Bytes(bytes)
        }
        Value::Null => Stored::Null,
    }
}

/// A value of a column as statements see it.
pub(crate) fn from_stored(stored: Stored, ty: SqlType) -> Value {
    let integer = |number: i128| match ty {
        SqlType::Numeric => Value::Numeric(Numeric::of_integer(number)),
        SqlType::Time => Value::Time(number as i64),
        _ => Value::Int(number as i64),
    };
    match stored {
        Stored::Null => Value::Null,
        Stored::Bool(value) => Value::Bool(value),
        Stored::Signed(number) => integer(number),
        Stored::Unsigned(number) => integer(i128::try_from(number).unwrap_or(i128::MAX)),
        Stored::F64(number) => Value::Float(number),
        Stored::Decimal { unscaled, scale } => Value::Numeric(Numeric { unscaled, scale }),
        Stored::Text(text) => Value::from(text),
        Stored::Bytes(bytes) => match (ty, bytes.split_first()) {
            (SqlType::Numeric, Some((scale, digits))) => {
                let digits = digits.try_into().map_or(0, i128::from_be_bytes);
                Value::Numeric(Numeric { unscaled: digits, scale: *scale })
            }
            (SqlType::Bytea, _) => Value::Bytes(bytes.into()),
            (SqlType::Inet | SqlType::Cidr, _) => {
                Network::of_bytes(&bytes, ty).map_or(Value::Null, Value::Network)
            }
            // A program that writes such a table by itself may write what is no value: it is read as NULL.
            _ => crate::format::decode(&bytes, ty, Format::Binary).unwrap_or(Value::Null),
        },
        Stored::Date(days) => Value::Date(days),
        Stored::Timestamp(moment) => Value::Timestamp(moment),
        Stored::Uuid(uuid) => Value::Uuid(uuid),
    }
}

/// The part of a key that a value stands for in a column; `None` if no value of the column is equal to it.
pub(crate) fn to_key_part(value: &Value, column: &ColumnEntry) -> Option<Stored> {
    let value = match (value, column.ty) {
        (Value::Int(number), SqlType::Numeric) => Value::Numeric(Numeric::of_integer((*number).into())),
        (Value::Numeric(number), SqlType::Int2 | SqlType::Int4 | SqlType::Int8) => {
            let whole = number.trimmed();
            if whole.scale != 0 {
                return None;
            }
            Value::Int(i64::try_from(whole.unscaled).ok()?)
        }
        (Value::Int(number), SqlType::Float8) => Value::Float(*number as f64),
        (value, _) => value.clone(),
    };
    let stored = match (&value, column.stored) {
        (Value::Numeric(number), _) => {
            let number = number.trimmed();
            Stored::Decimal { unscaled: number.unscaled, scale: number.scale }
        }
        (value, _) => to_stored(value, column),
    };
    (!stored.is_null() && stored.check(column.stored).is_ok()).then_some(stored)
}
