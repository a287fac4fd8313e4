//! The manifest of version 1, which is read and never written: it named types as the compiler of its time did.
//!
//! Owns what these texts mean. What is not understood of a key is opaque, and becomes what the program declares when it next
//! opens the directory.

use atrapos_catalog::{
    ColumnDef, ColumnType, Definitions, ForeignKeyDef, IndexDef, IndexPart, KeyColumn, KeyPart, OnDelete,
    PrimaryKey, TableDef, TreeDef, placeholder,
};
use serde::Deserialize;

use super::{CheckpointRecord, Manifest, PastIncarnation, read_body};
use crate::wal::{Epoch, Incarnation, StreamEnd};

#[derive(Deserialize)]
struct OldManifest {
    database: u128,
    incarnation: Incarnation,
    streams: u16,
    past: Vec<PastIncarnation>,
    first_epoch: Epoch,
    checkpoint: Option<CheckpointRecord>,
    closed: Option<Vec<StreamEnd>>,
    tables: Vec<OldTable>,
    foreign_keys: Vec<OldForeignKey>,
}

#[derive(Deserialize)]
struct OldTable {
    name: String,
    family: String,
    kind: OldKind,
    /// The type of the key, as `std::any::type_name` had it, without modules.
    key: String,
    columns: Vec<OldColumn>,
    splits: Vec<Vec<u8>>,
}

#[derive(Deserialize)]
enum OldKind {
    Rows,
    Index { of: u16, unique: bool },
}

#[derive(Deserialize)]
struct OldColumn {
    name: String,
    /// The type, as `{:?}` wrote it.
    ty: String,
}

#[derive(Deserialize)]
struct OldForeignKey {
    child: u16,
    parent: u16,
    enforced: bool,
    through: Option<u16>,
}

/// Reads the body of a manifest of version 1, and how many bytes are left behind it; or says what is wrong.
pub(super) fn read(body: &[u8]) -> Result<(Manifest, usize), String> {
    let (old, rest) = read_body::<OldManifest>(body)?;
    let trees = old.tables.into_iter().map(tree).collect::<Result<_, _>>()?;
    let foreign_keys = old.foreign_keys.into_iter().map(foreign_key).collect();
    let manifest = Manifest {
        database: old.database,
        incarnation: old.incarnation,
        streams: old.streams,
        past: old.past,
        first_epoch: old.first_epoch,
        checkpoint: old.checkpoint,
        closed: old.closed,
        schema: Definitions { trees, foreign_keys },
        instance: None,
    };
    Ok((manifest, rest))
}

fn foreign_key(old: OldForeignKey) -> ForeignKeyDef {
    let OldForeignKey { child, parent, enforced, through } = old;
    ForeignKeyDef { child, parent, through, enforced, on_delete: OnDelete::Restrict }
}

fn tree(old: OldTable) -> Result<TreeDef, String> {
    let OldTable { name, family, kind, key, columns, mut splits } = old;
    // Nothing relied on their order.
    splits.retain(|split| !split.is_empty());
    splits.sort();
    splits.dedup();
    let key = parts_of_key(&key).into_iter().enumerate();
    Ok(match kind {
        OldKind::Rows => {
            let mut all: Vec<ColumnDef> =
                key.map(|(at, ty)| ColumnDef::new(placeholder(at + 1), ty)).collect();
            let key = (0..all.len() as u16).map(KeyColumn::ascending).collect();
            for column in columns {
                let ty = type_named(&column.ty).ok_or_else(|| {
                    let (column, ty) = (&column.name, &column.ty);
                    format!("column `{column}` of table `{name}` has the type `{ty}`, which version 1 did not know")
                })?;
                all.push(ColumnDef::new(column.name, ty));
            }
            let key = PrimaryKey::Columns(key);
            TreeDef::Table(TableDef { name, columns: all, key, family, read_only: false, splits })
        }
        OldKind::Index { of, unique } => {
            let parts = key.map(|(at, ty)| IndexPart::Computed {
                name: placeholder(at + 1),
                part: KeyPart::ascending(ty),
            });
            TreeDef::Index(IndexDef { name, of, parts: parts.collect(), unique, family, splits })
        }
    })
}

/// The parts of keys of the type that was called `name`; those of tuples one after another. From the first one that is not
/// understood on, the key is opaque.
fn parts_of_key(name: &str) -> Vec<ColumnType> {
    let mut names = Vec::new();
    let (mut depth, mut word) = (0_usize, String::new());
    for letter in name.chars() {
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match letter {
            '(' | ')' | ',' if depth == 0 => names.push(std::mem::take(&mut word)),
            _ => word.push(letter),
        }
    }
    names.push(word);
    let mut parts = Vec::new();
    for name in names.iter().map(|name| name.trim()).filter(|name| !name.is_empty()) {
        let ty = type_named(name).unwrap_or(ColumnType::Opaque);
        parts.push(ty);
        if ty == ColumnType::Opaque {
            break;
        }
    }
    parts
}

/// The type with this name, be it that of a key or that of a column.
fn type_named(name: &str) -> Option<ColumnType> {
    let between =
        |start: &str, end: &str| name.strip_prefix(start)?.strip_suffix(end)?.trim().parse::<usize>().ok();
    let bits = |prefix: &str| {
        let bits: u8 = name.strip_prefix(prefix)?.parse().ok()?;
        matches!(bits, 8 | 16 | 32 | 64 | 128).then_some(bits / 8)
    };
    if let Some(bytes) = bits("u").or_else(|| between("Unsigned(", ")")?.try_into().ok()) {
        return Some(ColumnType::Unsigned(bytes));
    }
    if let Some(bytes) = bits("i").or_else(|| between("Signed(", ")")?.try_into().ok()) {
        return Some(ColumnType::Signed(bytes));
    }
    if let Some(bytes) = between("[u8;", "]").or_else(|| between("Bytes(", ")")) {
        return Some(ColumnType::Bytes(bytes));
    }
    if let Some(bytes) = between("FixedStr<", ">").or_else(|| between("FixedStr(", ")")) {
        return Some(ColumnType::FixedStr(bytes));
    }
    match name {
        "bool" | "Bool" => Some(ColumnType::Bool),
        "F64" => Some(ColumnType::F64),
        "String" => Some(ColumnType::String),
        "VarBytes" => Some(ColumnType::VarBytes),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_key_types_are_understood() {
        use ColumnType::{Bool, Bytes, FixedStr, Opaque, Signed, String as Text, Unsigned};
        let cases: [(&str, &[ColumnType]); 9] = [
            ("u64", &[Unsigned(8)]),
            ("(u64, u8, u16)", &[Unsigned(8), Unsigned(1), Unsigned(2)]),
            ("(i32, (bool, i128))", &[Signed(4), Bool, Signed(16)]),
            ("([u8; 3], u128)", &[Bytes(3), Unsigned(16)]),
            ("(FixedStr<15>,)", &[FixedStr(15)]),
            ("(String, u32)", &[Text, Unsigned(4)]),
            ("Wrapped<(A, B)>", &[Opaque]),
            ("(u8, Wrapped<(A, B)>, u64)", &[Unsigned(1), Opaque]),
            ("usize", &[Opaque]),
        ];
        for (name, parts) in cases {
            assert_eq!(parts_of_key(name), parts, "{name}");
        }
    }

    #[test]
    fn the_names_of_column_types_are_understood() {
        let cases = [
            ("Unsigned(4)", Some(ColumnType::Unsigned(4))),
            ("Signed(8)", Some(ColumnType::Signed(8))),
            ("F64", Some(ColumnType::F64)),
            ("Bool", Some(ColumnType::Bool)),
            ("Bytes(5)", Some(ColumnType::Bytes(5))),
            ("FixedStr(7)", Some(ColumnType::FixedStr(7))),
            ("String", Some(ColumnType::String)),
            ("VarBytes", Some(ColumnType::VarBytes)),
            ("Decimal", None),
            ("Unsigned(256)", None),
        ];
        for (name, ty) in cases {
            assert_eq!(type_named(name), ty, "{name}");
        }
    }
}
