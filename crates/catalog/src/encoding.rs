//! The bytes of definitions, as the manifest stores them.
//!
//! Owns version 1 of the encoding, described in `docs/directory-format.md`. It never writes what contradicts itself, and never
//! reads it.
//!
//! Invariants: definitions have one encoding, and an encoding one meaning; any bytes give definitions or an error, without
//! allocating more than a small multiple of their length.

use atrapos_storage::{ColumnType, KeyPart, MAX_KEY_BYTES};

use crate::DefinitionError;
use crate::bytes::{DecodeError, Reader, put_bytes, put_uint};
use crate::check::{MAX_COLUMNS, MAX_KEY_PARTS, MAX_NAME_BYTES, MAX_SPLITS, MAX_TREES};
use crate::definition::{
    ColumnDef, Definitions, ForeignKeyDef, IndexDef, IndexPart, KeyColumn, OnDelete, PrimaryKey, TableDef,
    TreeDef,
};
use crate::value::{MAX_VALUE_BYTES, Value};

/// The version of the encoding that is written, and the newest that is read.
const VERSION: u8 = 1;

/// The longest encoding of definitions, in bytes.
pub const MAX_ENCODED_BYTES: usize = 16 << 20;

impl TreeDef {
    /// Its bytes, alone: what it refers to is not looked at.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_tree(&mut out, self);
        out
    }

    /// The table or index that `bytes`, all of them, encode. It is not checked for contradictions:
    /// [`Definitions::check`] does that.
    ///
    /// # Errors
    /// The mistake in the bytes, with its offset.
    pub fn decode(bytes: &[u8]) -> Result<TreeDef, DecodeError> {
        let mut input = begin(bytes)?;
        let tree = tree(&mut input)?;
        end(&input)?;
        Ok(tree)
    }
}

fn begin(bytes: &[u8]) -> Result<Reader<'_>, DecodeError> {
    let mut input = Reader::new(bytes);
    if bytes.len() > MAX_ENCODED_BYTES {
        let what = format!("definitions of {} bytes are longer than any", bytes.len());
        return Err(input.error(what));
    }
    match input.byte()? {
        VERSION => Ok(input),
        version => {
            Err(input.error(format!("version {version} of the definitions is not known, only {VERSION} is")))
        }
    }
}

fn end(input: &Reader<'_>) -> Result<(), DecodeError> {
    if input.is_at_end() { Ok(()) } else { Err(input.error("bytes follow the definitions")) }
}

impl Definitions {
    /// Their bytes.
    ///
    /// # Errors
    /// A sentence, when they contradict themselves or are longer than they may be.
    pub fn encode(&self) -> Result<Vec<u8>, DefinitionError> {
        self.check()?;
        let mut out = vec![VERSION];
        put_uint(&mut out, self.trees.len() as u64);
        self.trees.iter().for_each(|tree| put_tree(&mut out, tree));
        put_uint(&mut out, self.foreign_keys.len() as u64);
        self.foreign_keys.iter().for_each(|key| put_foreign_key(&mut out, key));
        if out.len() > MAX_ENCODED_BYTES {
            let bytes = out.len();
            return Err(DefinitionError(format!(
                "the definitions take {bytes} bytes where {MAX_ENCODED_BYTES} is the most; define fewer tables or split points"
            )));
        }
        Ok(out)
    }

    /// The definitions that `bytes`, all of them, encode.
    ///
    /// # Errors
    /// The mistake in the bytes, with its offset.
    pub fn decode(bytes: &[u8]) -> Result<Definitions, DecodeError> {
        let mut input = begin(bytes)?;
        let mut definitions = Definitions::default();
        for _ in 0..input.count(MAX_TREES, "tables and indexes")? {
            definitions.trees.push(tree(&mut input)?);
        }
        for _ in 0..input.count(MAX_TREES, "foreign keys")? {
            definitions.foreign_keys.push(foreign_key(&mut input)?);
        }
        end(&input)?;
        match definitions.check() {
            Ok(()) => Ok(definitions),
            Err(error) => Err(input.error(error.to_string())),
        }
    }
}

fn put_tree(out: &mut Vec<u8>, tree: &TreeDef) {
    match tree {
        TreeDef::Dropped => out.push(0),
        TreeDef::Table(table) => {
            out.push(1);
            put_bytes(out, table.name.as_bytes());
            put_bytes(out, table.family.as_bytes());
            out.push(u8::from(table.read_only));
            put_uint(out, table.columns.len() as u64);
            table.columns.iter().for_each(|column| put_column(out, column));
            match &table.key {
                PrimaryKey::Hidden => out.push(0),
                PrimaryKey::Columns(columns) => {
                    out.push(1);
                    put_uint(out, columns.len() as u64);
                    columns.iter().for_each(|key| put_key_column(out, *key));
                }
            }
            put_splits(out, &table.splits);
        }
        TreeDef::Index(index) => {
            out.push(2);
            put_bytes(out, index.name.as_bytes());
            put_bytes(out, index.family.as_bytes());
            out.push(u8::from(index.unique));
            put_uint(out, u64::from(index.of));
            put_uint(out, index.parts.len() as u64);
            for part in &index.parts {
                match part {
                    IndexPart::Column(key) => {
                        out.push(0);
                        put_key_column(out, *key);
                    }
                    IndexPart::Computed { name, part } => {
                        out.push(1);
                        put_bytes(out, name.as_bytes());
                        put_type(out, part.ty);
                        out.push(u8::from(part.descending) | u8::from(part.nullable) << 1);
                    }
                }
            }
            put_splits(out, &index.splits);
        }
    }
}

fn tree(input: &mut Reader<'_>) -> Result<TreeDef, DecodeError> {
    match input.byte()? {
        0 => Ok(TreeDef::Dropped),
        1 => table(input).map(TreeDef::Table),
        2 => index(input).map(TreeDef::Index),
        kind => Err(input.error(format!("there is no kind {kind} of table"))),
    }
}

fn table(input: &mut Reader<'_>) -> Result<TableDef, DecodeError> {
    let (name, family) = (input.text(MAX_NAME_BYTES)?, input.text(MAX_NAME_BYTES)?);
    let read_only = flag(input)?;
    let mut columns = Vec::new();
    for _ in 0..input.count(MAX_COLUMNS, "columns")? {
        columns.push(column(input)?);
    }
    let key = if flag(input)? {
        let mut key = Vec::new();
        for _ in 0..input.count(MAX_KEY_PARTS, "columns of a key")? {
            key.push(key_column(input)?);
        }
        PrimaryKey::Columns(key)
    } else {
        PrimaryKey::Hidden
    };
    Ok(TableDef { name, columns, key, family, read_only, splits: splits(input)? })
}

fn index(input: &mut Reader<'_>) -> Result<IndexDef, DecodeError> {
    let (name, family) = (input.text(MAX_NAME_BYTES)?, input.text(MAX_NAME_BYTES)?);
    let (unique, of) = (flag(input)?, input.u16()?);
    let mut parts = Vec::new();
    for _ in 0..input.count(MAX_KEY_PARTS, "parts of a key")? {
        parts.push(match flag(input)? {
            false => IndexPart::Column(key_column(input)?),
            true => {
                let (name, ty) = (input.text(MAX_NAME_BYTES)?, column_type(input)?);
                IndexPart::Computed { name, part: key_part(input, ty)? }
            }
        });
    }
    Ok(IndexDef { name, of, parts, unique, family, splits: splits(input)? })
}

fn put_column(out: &mut Vec<u8>, column: &ColumnDef) {
    put_bytes(out, column.name.as_bytes());
    put_type(out, column.ty);
    out.push(u8::from(column.nullable));
    match &column.default {
        None => out.push(0),
        Some(value) => {
            out.push(1);
            put_value(out, value);
        }
    }
}

fn column(input: &mut Reader<'_>) -> Result<ColumnDef, DecodeError> {
    let (name, ty) = (input.text(MAX_NAME_BYTES)?, column_type(input)?);
    let nullable = flag(input)?;
    let default = if flag(input)? { Some(value(input)?) } else { None };
    Ok(ColumnDef { name, ty, nullable, default })
}

fn put_key_column(out: &mut Vec<u8>, key: KeyColumn) {
    put_uint(out, u64::from(key.column));
    out.push(u8::from(key.descending));
}

fn key_column(input: &mut Reader<'_>) -> Result<KeyColumn, DecodeError> {
    Ok(KeyColumn { column: input.u16()?, descending: flag(input)? })
}

/// The rest of a part of a key that holds `ty`.
fn key_part(input: &mut Reader<'_>, ty: ColumnType) -> Result<KeyPart, DecodeError> {
    match input.byte()? {
        bits @ 0..4 => Ok(KeyPart { ty, descending: bits & 1 == 1, nullable: bits & 2 == 2 }),
        other => Err(input.error(format!("there is no kind {other} of parts of keys"))),
    }
}

fn put_splits(out: &mut Vec<u8>, splits: &[Vec<u8>]) {
    put_uint(out, splits.len() as u64);
    splits.iter().for_each(|split| put_bytes(out, split));
}

fn splits(input: &mut Reader<'_>) -> Result<Vec<Vec<u8>>, DecodeError> {
    let mut splits = Vec::new();
    for _ in 0..input.count(MAX_SPLITS, "split points")? {
        splits.push(input.byte_string(MAX_KEY_BYTES)?);
    }
    Ok(splits)
}

fn put_foreign_key(out: &mut Vec<u8>, key: &ForeignKeyDef) {
    put_uint(out, u64::from(key.child));
    put_uint(out, u64::from(key.parent));
    match key.through {
        None => out.push(0),
        Some(index) => {
            out.push(1);
            put_uint(out, u64::from(index));
        }
    }
    out.push(u8::from(key.enforced));
    out.push(u8::from(key.on_delete == OnDelete::Cascade));
}

fn foreign_key(input: &mut Reader<'_>) -> Result<ForeignKeyDef, DecodeError> {
    let (child, parent) = (input.u16()?, input.u16()?);
    let through = if flag(input)? { Some(input.u16()?) } else { None };
    let enforced = flag(input)?;
    let on_delete = if flag(input)? { OnDelete::Cascade } else { OnDelete::Restrict };
    Ok(ForeignKeyDef { child, parent, through, enforced, on_delete })
}

fn flag(input: &mut Reader<'_>) -> Result<bool, DecodeError> {
    match input.byte()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(input.error(format!("{other} is neither yes nor no"))),
    }
}

fn put_type(out: &mut Vec<u8>, ty: ColumnType) {
    match ty {
        ColumnType::Bool => out.push(0),
        ColumnType::Unsigned(bytes) => out.extend([1, bytes]),
        ColumnType::Signed(bytes) => out.extend([2, bytes]),
        ColumnType::F64 => out.push(3),
        ColumnType::Decimal { precision, scale } => out.extend([4, precision, scale]),
        ColumnType::String => out.push(5),
        ColumnType::VarBytes => out.push(6),
        ColumnType::FixedStr(bytes) => {
            out.push(7);
            put_uint(out, bytes as u64);
        }
        ColumnType::Bytes(bytes) => {
            out.push(8);
            put_uint(out, bytes as u64);
        }
        ColumnType::Date => out.push(9),
        ColumnType::Timestamp => out.push(10),
        ColumnType::Uuid => out.push(11),
        ColumnType::Opaque => out.push(12),
    }
}

fn column_type(input: &mut Reader<'_>) -> Result<ColumnType, DecodeError> {
    Ok(match input.byte()? {
        0 => ColumnType::Bool,
        1 => ColumnType::Unsigned(input.byte()?),
        2 => ColumnType::Signed(input.byte()?),
        3 => ColumnType::F64,
        4 => ColumnType::Decimal { precision: input.byte()?, scale: input.byte()? },
        5 => ColumnType::String,
        6 => ColumnType::VarBytes,
        7 => ColumnType::FixedStr(input.count(MAX_VALUE_BYTES, "bytes of text")?),
        8 => ColumnType::Bytes(input.count(MAX_VALUE_BYTES, "bytes")?),
        9 => ColumnType::Date,
        10 => ColumnType::Timestamp,
        11 => ColumnType::Uuid,
        12 => ColumnType::Opaque,
        code => return Err(input.error(format!("there is no type {code}"))),
    })
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => out.push(0),
        Value::Bool(value) => out.extend([1, u8::from(*value)]),
        Value::Signed(value) => {
            out.push(2);
            out.extend(value.to_le_bytes());
        }
        Value::Unsigned(value) => {
            out.push(3);
            out.extend(value.to_le_bytes());
        }
        Value::F64(value) => {
            out.push(4);
            out.extend(value.to_le_bytes());
        }
        Value::Decimal { unscaled, scale } => {
            out.extend([5, *scale]);
            out.extend(unscaled.to_le_bytes());
        }
        Value::Text(text) => {
            out.push(6);
            put_bytes(out, text.as_bytes());
        }
        Value::Bytes(bytes) => {
            out.push(7);
            put_bytes(out, bytes);
        }
        Value::Date(days) => {
            out.push(8);
            out.extend(days.to_le_bytes());
        }
        Value::Timestamp(micros) => {
            out.push(9);
            out.extend(micros.to_le_bytes());
        }
        Value::Uuid(uuid) => {
            out.push(10);
            out.extend(uuid);
        }
    }
}

fn value(input: &mut Reader<'_>) -> Result<Value, DecodeError> {
    Ok(match input.byte()? {
        0 => Value::Null,
        1 => Value::Bool(flag(input)?),
        2 => Value::Signed(i128::from_le_bytes(input.array()?)),
        3 => Value::Unsigned(u128::from_le_bytes(input.array()?)),
        4 => Value::F64(f64::from_le_bytes(input.array()?)),
        5 => Value::Decimal { scale: input.byte()?, unscaled: i128::from_le_bytes(input.array()?) },
        6 => Value::Text(input.text(MAX_VALUE_BYTES)?),
        7 => Value::Bytes(input.byte_string(MAX_VALUE_BYTES)?),
        8 => Value::Date(i32::from_le_bytes(input.array()?)),
        9 => Value::Timestamp(i64::from_le_bytes(input.array()?)),
        10 => Value::Uuid(input.array()?),
        code => return Err(input.error(format!("there is no kind {code} of value"))),
    })
}
