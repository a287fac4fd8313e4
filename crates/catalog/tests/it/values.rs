//! Keys and rows of values: they come back, keys are in the order of their values, and any bytes are read or refused.

use std::cmp::Ordering;

use atrapos_catalog::{
    ColumnDef, ColumnType, KeyCodec, KeyField, KeyPart, PrimaryKey, RowLayout, TableDef, Value, ValueError,
};
use proptest::prelude::*;

use crate::support::{any_table, any_type, column, config, value_of};

fn any_field() -> impl Strategy<Value = KeyField> {
    (any_type(), any::<bool>(), any::<bool>())
        .prop_map(|(ty, descending, nullable)| KeyField { part: KeyPart { ty, descending, nullable } })
}

fn value_in(field: KeyField) -> BoxedStrategy<Value> {
    let value = value_of(field.part.ty);
    if field.part.nullable { prop_oneof![3 => value, 1 => Just(Value::Null)].boxed() } else { value }
}

/// A key's parts, and two lists of values of them.
fn keys() -> impl Strategy<Value = (Vec<KeyField>, Vec<Value>, Vec<Value>)> {
    proptest::collection::vec(any_field(), 1..5).prop_flat_map(|fields| {
        let values: Vec<_> = fields.iter().map(|field| value_in(*field)).collect();
        (Just(fields), values.clone(), values).prop_flat_map(|(fields, one, other)| {
            // Keys that begin alike.
            (0..=fields.len()).prop_map(move |same| {
                let mut other = other.clone();
                other[..same].clone_from_slice(&one[..same]);
                (fields.clone(), one.clone(), other)
            })
        })
    })
}

/// Compares two values of one type as SQL does, NULL first.
fn compare(one: &Value, other: &Value) -> Ordering {
    match (one, other) {
        (Value::Null, Value::Null) => Ordering::Equal,
        (Value::Null, _) => Ordering::Less,
        (_, Value::Null) => Ordering::Greater,
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        (Value::Signed(one), Value::Signed(other))
        | (Value::Decimal { unscaled: one, .. }, Value::Decimal { unscaled: other, .. }) => one.cmp(other),
        (Value::Unsigned(one), Value::Unsigned(other)) => one.cmp(other),
        (Value::F64(one), Value::F64(other)) => {
            one.partial_cmp(other).unwrap_or_else(|| one.is_nan().cmp(&other.is_nan()))
        }
        (Value::Text(one), Value::Text(other)) => one.as_bytes().cmp(other.as_bytes()),
        (Value::Bytes(one), Value::Bytes(other)) => one.cmp(other),
        (Value::Date(one), Value::Date(other)) => one.cmp(other),
        (Value::Timestamp(one), Value::Timestamp(other)) => one.cmp(other),
        (Value::Uuid(one), Value::Uuid(other)) => one.cmp(other),
        (one, other) => panic!("{one:?} and {other:?} are not of one type"),
    }
}

/// A table, and the values of a row of it.
fn rows() -> impl Strategy<Value = (TableDef, Vec<Value>)> {
    any_table("t".to_owned()).prop_flat_map(|table| {
        let field = |column: &ColumnDef| KeyField {
            part: KeyPart { nullable: column.nullable, ..KeyPart::ascending(column.ty) },
        };
        let values: Vec<_> = table.row_columns().map(|column| value_in(field(column))).collect();
        (Just(table), values)
    })
}

proptest! {
    #![proptest_config(config(1024))]

    #[test]
    fn keys_are_in_the_order_of_their_values_and_come_back((fields, one, other) in keys()) {
        let codec = KeyCodec::new(fields.clone());
        let (one_key, other_key) = (codec.encode(&one).expect("fits"), codec.encode(&other).expect("fits"));
        let differs = fields.iter().zip(one.iter().zip(&other)).map(|(field, (one, other))| {
            let order = compare(one, other);
            if field.part.descending { order.reverse() } else { order }
        });
        let expected = differs.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal);
        prop_assert_eq!(one_key.cmp(&other_key), expected, "{:?} and {:?}", one_key, other_key);
        prop_assert_eq!(codec.decode(&one_key), Ok(one.clone()));
        let beginning = codec.encode_beginning(&one[..1]).expect("fits");
        prop_assert!(one_key.starts_with(&beginning));
        let mut longer = one_key.to_vec();
        longer.push(0);
        prop_assert!(codec.decode(&longer).is_err());
        if !one_key.is_empty() {
            prop_assert!(codec.decode(&one_key[..one_key.len() - 1]).is_err());
        }
    }

    #[test]
    fn any_bytes_are_a_key_or_an_error((fields, ..) in keys(), bytes in proptest::collection::vec(any::<u8>(), 0..30)) {
        let codec = KeyCodec::new(fields);
        if let Ok(values) = codec.decode(&bytes) {
            prop_assert_eq!(&codec.encode(&values).expect("it was one")[..], &bytes[..]);
        }
    }

    #[test]
    fn rows_come_back((table, values) in rows(), cut in any::<proptest::sample::Index>()) {
        let layout = RowLayout::of_table(&table);
        prop_assert_eq!(layout.columns(), values.len());
        let mut row = vec![7; 3];
        layout.encode(&values, &mut row).expect("fits");
        let row = &row[3..];
        prop_assert_eq!(&layout.decode(row).expect("sound"), &values);
        for (at, value) in values.iter().enumerate() {
            prop_assert_eq!(&layout.get(row, at).expect("sound"), value);
        }
        if !row.is_empty() {
            prop_assert!(layout.decode(&row[..cut.index(row.len())]).is_err());
        }
        prop_assert!(layout.decode(&[row, &[0]].concat()).is_err());
    }

    #[test]
    fn what_is_assigned_is_as_if_it_had_been_encoded(
        (table, old, new, which) in rows().prop_flat_map(|(table, old)| {
            let field = |column: &ColumnDef| KeyField {
                part: KeyPart { nullable: column.nullable, ..KeyPart::ascending(column.ty) },
            };
            let new: Vec<_> = table.row_columns().map(|column| value_in(field(column))).collect();
            let which = proptest::collection::vec(any::<bool>(), old.len());
            (Just(table), Just(old), new, which)
        }),
    ) {
        let layout = RowLayout::of_table(&table);
        let encoded = |values: &[Value]| {
            let mut row = vec![7; 3];
            layout.encode(values, &mut row).expect("fits");
            row
        };
        let chosen = which.iter().zip(new).enumerate().filter(|(_, (chosen, _))| **chosen);
        let assigned: Vec<(usize, Value)> = chosen.map(|(column, (_, value))| (column, value)).collect();
        let mut values = old.clone();
        assigned.iter().for_each(|(column, value)| values[*column] = value.clone());
        let (row, mut out) = (encoded(&old), vec![7; 3]);
        layout.assign(&row[3..], &assigned, &mut out).expect("fits");
        prop_assert_eq!(&out, &encoded(&values));
        // What does not fit leaves nothing behind.
        let too_many = (old.len(), Value::Null);
        prop_assert!(layout.assign(&row[3..], &[too_many], &mut out).is_err());
        prop_assert_eq!(&out, &encoded(&values));
        if row.len() > 3 && assigned.len() == old.len() {
            prop_assert!(layout.assign(&row[3..row.len() - 1], &assigned, &mut out).is_err());
        }
    }

    #[test]
    fn any_bytes_are_a_row_or_an_error((table, _) in rows(), bytes in proptest::collection::vec(0_u8..4, 0..60)) {
        let layout = RowLayout::of_table(&table);
        let found = layout.decode(&bytes);
        for column in 0..=layout.columns() {
            let got = layout.get(&bytes, column);
            if let (Ok(values), Some(got)) = (&found, got.ok()) {
                prop_assert_eq!(&values[column], &got);
            }
        }
        if let Ok(values) = found {
            let mut again = Vec::new();
            layout.encode(&values, &mut again).expect("it was one");
            prop_assert_eq!(again, bytes);
        }
    }
}

#[test]
fn zero_has_one_sign_in_a_key_and_what_is_no_number_comes_last() {
    let codec = KeyCodec::new(vec![KeyField { part: KeyPart::ascending(ColumnType::F64) }]);
    let key = |number: f64| codec.encode(&[Value::F64(number)]).expect("fits");
    assert_eq!(key(0.0), key(-0.0));
    assert_eq!(key(f64::NAN), key(-f64::NAN));
    let ordered = [f64::NEG_INFINITY, -1.0, -f64::MIN_POSITIVE, 0.0, 5e-324, 1.0, f64::INFINITY, f64::NAN];
    assert!(ordered.map(key).is_sorted_by(|one, next| one < next));
}

#[test]
fn what_does_not_fit_leaves_everything_as_it_was() {
    let columns = [column("a", ColumnType::String), column("b", ColumnType::Unsigned(1))];
    let layout = RowLayout::new(&columns);
    let mut out = vec![1, 2, 3];
    let values = [Value::Text("abc".to_owned()), Value::Signed(256)];
    assert!(matches!(layout.encode(&values, &mut out), Err(ValueError::OutOfRange { .. })));
    assert_eq!(layout.encode(&values[..1], &mut out), Err(ValueError::Count { got: 1, wanted: 2 }));
    assert_eq!(layout.encode(&[Value::Null, Value::Null], &mut out), Err(ValueError::Null));
    assert_eq!(out, [1, 2, 3]);
}

#[test]
fn columns_of_the_key_are_not_in_the_row() {
    let table = TableDef {
        name: "t".to_owned(),
        columns: vec![
            column("a", ColumnType::String),
            column("id", ColumnType::Unsigned(8)),
            column("b", ColumnType::Unsigned(1)),
        ],
        key: PrimaryKey::Columns(vec![atrapos_catalog::KeyColumn::ascending(1)]),
        family: "t".to_owned(),
        read_only: false,
        splits: Vec::new(),
    };
    let mut row = Vec::new();
    let values = [Value::Text("x".to_owned()), Value::Unsigned(9)];
    RowLayout::of_table(&table).encode(&values, &mut row).expect("fits");
    assert_eq!(row, [9, 1, 0, b'x']);
    let key = KeyCodec::of_table(&table).encode(&[Value::Unsigned(3)]).expect("fits");
    assert_eq!(&key[..], [0, 0, 0, 0, 0, 0, 0, 3]);
}

#[test]
fn a_null_costs_a_bit() {
    let mut columns: Vec<ColumnDef> =
        (0..9).map(|at| column(&format!("c{at}"), ColumnType::Unsigned(1))).collect();
    columns.iter_mut().for_each(|column| column.nullable = true);
    let layout = RowLayout::new(&columns);
    let mut values = vec![Value::Unsigned(5); 9];
    (values[0], values[8]) = (Value::Null, Value::Null);
    let mut row = Vec::new();
    layout.encode(&values, &mut row).expect("fits");
    assert_eq!(row, [0, 5, 5, 5, 5, 5, 5, 5, 0, 1, 1]);
    // A bit that stands for no column.
    row[10] = 3;
    assert_eq!(layout.decode(&row), Err(ValueError::OtherLength));
}
