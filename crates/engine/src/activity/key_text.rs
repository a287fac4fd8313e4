//! Keys as people read them.
//!
//! Owns: the text of a key. Never: fails: bytes that are no value of a column are shown in hexadecimal.

use atrapos_catalog::{Definitions, Value};
use atrapos_partition::schema::TableId;
use atrapos_storage::{Date, DisplayKey, Timestamp, Uuid};

/// The most characters of one text.
const MOST: usize = 40;

/// Returns a key of a table or index, or the beginning of one: the values of its columns, separated by commas.
pub(super) fn key_text(definitions: &Definitions, table: Option<TableId>, key: &[u8]) -> String {
    let fields = table.map_or_else(Vec::new, |table| definitions.key_fields(table.0));
    let mut parts = Vec::new();
    let mut rest = key;
    for field in &fields {
        let mut after = rest;
        // A cut may lie within a column.
        let Ok(value) = field.decode(&mut after) else { break };
        parts.push(value_text(&value));
        rest = after;
    }
    // Entries of an index end with a key of their table.
    if !rest.is_empty() {
        parts.push(DisplayKey(rest).to_string());
    }
    parts.join(", ")
}

fn value_text(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Signed(value) => value.to_string(),
        Value::Unsigned(value) => value.to_string(),
        Value::F64(value) => value.to_string(),
        Value::Text(value) if value.chars().count() > MOST => {
            format!("'{}…'", value.chars().take(MOST).collect::<String>())
        }
        Value::Text(value) => format!("'{value}'"),
        Value::Bytes(bytes) => DisplayKey(bytes).to_string(),
        Value::Uuid(bytes) => Uuid(*bytes).to_string(),
        Value::Date(days) => Date(*days).to_string(),
        Value::Timestamp(microseconds) => Timestamp(*microseconds).to_string(),
        Value::Decimal { unscaled, scale } => decimal_text(*unscaled, usize::from(*scale)),
    }
}

fn decimal_text(unscaled: i128, scale: usize) -> String {
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let sign = if unscaled < 0 { "-" } else { "" };
    if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

#[cfg(test)]
mod tests {
    use atrapos_catalog::{ColumnDef, ColumnType, KeyColumn, PrimaryKey, TableDef, TreeDef};
    use atrapos_storage::Key as _;

    use super::*;

    #[test]
    fn whole_keys_and_pieces_have_a_text() {
        let column = |name: &str, ty| ColumnDef { name: name.to_owned(), ty, nullable: false, default: None };
        let table = TableDef {
            name: "t".to_owned(),
            columns: vec![column("a", ColumnType::Unsigned(8)), column("b", ColumnType::String)],
            key: PrimaryKey::Columns([0, 1].map(KeyColumn::ascending).to_vec()),
            family: "t".to_owned(),
            read_only: false,
            splits: Vec::new(),
        };
        let definitions = Definitions { trees: vec![TreeDef::Table(table)], foreign_keys: Vec::new() };
        let text = |key: &[u8]| key_text(&definitions, Some(TableId(0)), key);
        let number = 17_u64.encode();
        assert_eq!(text(&number), "17");
        assert_eq!(text(&(17_u64, "ada".to_owned()).encode()), "17, 'ada'");
        assert_eq!(text(&number[..3]), "0x000000");
        assert_eq!(text(&[&number[..], b"ad"].concat()), "17, 0x6164");
        assert_eq!(text(b""), "");
        let decimals =
            [(-5, 2), (12_345, 2), (7, 0), (0, 1)].map(|(unscaled, scale)| decimal_text(unscaled, scale));
        assert_eq!(decimals, ["-0.05", "123.45", "7", "0.0"]);
        assert_eq!(key_text(&definitions, Some(TableId(9)), b"\x01"), "0x01");
    }
}
