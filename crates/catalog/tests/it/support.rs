//! Fixtures shared by the tests: definitions, and strategies that make any.

use atrapos_catalog::{
    ColumnDef, ColumnType, Definitions, ForeignKeyDef, IndexDef, IndexPart, KeyColumn, KeyPart, OnDelete,
    PrimaryKey, TableDef, TreeDef, Value,
};
use proptest::prelude::*;

/// Runs of so many cases, with a seed that a failure shows.
pub(crate) fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

pub(crate) fn column(name: &str, ty: ColumnType) -> ColumnDef {
    ColumnDef::new(name, ty)
}

/// A table of accounts by number, an index of them by owner, and a reference.
pub(crate) fn bank() -> Definitions {
    let accounts = TableDef {
        name: "accounts".to_owned(),
        columns: vec![
            column("number", ColumnType::Unsigned(8)),
            column("owner", ColumnType::Unsigned(8)),
            column("balance", ColumnType::Signed(8)),
        ],
        key: PrimaryKey::Columns(vec![KeyColumn::ascending(0)]),
        family: "bank".to_owned(),
        read_only: false,
        splits: vec![vec![0x80], vec![0xc0, 1]],
    };
    let by_owner = IndexDef {
        name: "accounts_by_owner".to_owned(),
        of: 0,
        parts: vec![IndexPart::Column(KeyColumn::ascending(1)), IndexPart::Column(KeyColumn::ascending(0))],
        unique: false,
        family: "bank".to_owned(),
        splits: Vec::new(),
    };
    let foreign_key = ForeignKeyDef {
        child: 0,
        parent: 0,
        through: Some(1),
        enforced: true,
        on_delete: OnDelete::Restrict,
    };
    Definitions {
        trees: vec![TreeDef::Table(accounts), TreeDef::Index(by_owner)],
        foreign_keys: vec![foreign_key],
    }
}

pub(crate) fn table_of(definitions: &mut Definitions) -> &mut TableDef {
    match &mut definitions.trees[0] {
        TreeDef::Table(table) => table,
        other => panic!("{other:?} is not a table"),
    }
}

pub(crate) fn index_of(definitions: &mut Definitions) -> &mut IndexDef {
    match &mut definitions.trees[1] {
        TreeDef::Index(index) => index,
        other => panic!("{other:?} is not an index"),
    }
}

// --- Types and values -------------------------------------------------------------------------------------------------

/// Every type of a column, short ones of those with a length.
pub(crate) fn any_type() -> impl Strategy<Value = ColumnType> {
    let bytes = || prop_oneof![Just(1_u8), Just(2), Just(4), Just(8), Just(16)];
    prop_oneof![
        Just(ColumnType::Bool),
        bytes().prop_map(ColumnType::Unsigned),
        bytes().prop_map(ColumnType::Signed),
        Just(ColumnType::F64),
        (1_u8..=38).prop_flat_map(|precision| {
            (0..=precision).prop_map(move |scale| ColumnType::Decimal { precision, scale })
        }),
        Just(ColumnType::String),
        Just(ColumnType::VarBytes),
        (0_usize..6).prop_map(ColumnType::FixedStr),
        (0_usize..6).prop_map(ColumnType::Bytes),
        Just(ColumnType::Date),
        Just(ColumnType::Timestamp),
        Just(ColumnType::Uuid),
    ]
}

/// A value of the type, as it comes back from where it was put: near zero and near the bounds, so that two are often close.
pub(crate) fn value_of(ty: ColumnType) -> BoxedStrategy<Value> {
    let text = "[\u{1}ab\u{7f}\u{e9}]{0,3}";
    match ty {
        ColumnType::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        ColumnType::Unsigned(bytes) => {
            let shift = 128 - 8 * u32::from(bytes);
            let any = any::<u128>().prop_map(move |number| number >> shift);
            prop_oneof![any, 0..3_u128].prop_map(Value::Unsigned).boxed()
        }
        ColumnType::Signed(bytes) => {
            let shift = 128 - 8 * u32::from(bytes);
            let any = any::<i128>().prop_map(move |number| number >> shift);
            prop_oneof![any, -2..3_i128].prop_map(Value::Signed).boxed()
        }
        ColumnType::F64 => {
            let odd =
                [0.0, 1.5, -1.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, f64::MIN_POSITIVE, f64::MAX];
            let any = any::<f64>().prop_filter("zero has one sign in a key", |number| {
                !number.is_nan() && (*number != 0.0 || number.is_sign_positive())
            });
            prop_oneof![any, proptest::sample::select(odd.to_vec())].prop_map(Value::F64).boxed()
        }
        ColumnType::Decimal { precision, scale } => {
            let bound = 10_i128.pow(u32::from(precision)) - 1;
            let near = bound.min(3);
            prop_oneof![-bound..=bound, -near..=near]
                .prop_map(move |unscaled| Value::Decimal { unscaled, scale })
                .boxed()
        }
        ColumnType::String => "[\u{0}\u{1}ab\u{e9}]{0,5}".prop_map(Value::Text).boxed(),
        ColumnType::FixedStr(max) => text
            .prop_map(move |mut text| {
                while text.len() > max {
                    text.pop();
                }
                Value::Text(text)
            })
            .boxed(),
        ColumnType::VarBytes => {
            let byte = prop_oneof![Just(0_u8), Just(0xff), any::<u8>()];
            proptest::collection::vec(byte, 0..5).prop_map(Value::Bytes).boxed()
        }
        ColumnType::Bytes(count) => proptest::collection::vec(prop_oneof![Just(0_u8), any::<u8>()], count)
            .prop_map(Value::Bytes)
            .boxed(),
        ColumnType::Date => prop_oneof![any::<i32>(), -2..3].prop_map(Value::Date).boxed(),
        ColumnType::Timestamp => prop_oneof![any::<i64>(), -2..3_i64].prop_map(Value::Timestamp).boxed(),
        ColumnType::Uuid => prop_oneof![any::<[u8; 16]>(), Just([0; 16])].prop_map(Value::Uuid).boxed(),
        ColumnType::Opaque => Just(Value::Null).boxed(),
    }
}

// --- Definitions ------------------------------------------------------------------------------------------------------

fn any_column(name: String) -> impl Strategy<Value = ColumnDef> {
    (any_type(), any::<bool>()).prop_flat_map(move |(ty, nullable)| {
        let name = name.clone();
        let default = prop_oneof![
            2 => Just(None),
            2 => value_of(ty).prop_map(Some),
            1 => Just(nullable.then_some(Value::Null)),
        ];
        default.prop_map(move |default| ColumnDef { name: name.clone(), ty, nullable, default })
    })
}

fn any_splits() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let key = proptest::collection::vec(any::<u8>(), 1..9);
    proptest::collection::btree_set(key, 0..4).prop_map(|keys| keys.into_iter().collect())
}

/// A table whose first columns are its key.
pub(crate) fn any_table(name: String) -> impl Strategy<Value = TableDef> {
    let columns: Vec<_> = (0..6).map(|at| any_column(format!("c{at}"))).collect();
    let directions = proptest::collection::vec(any::<bool>(), 0..4);
    (columns, 1..6_usize, directions, any::<bool>(), any_splits()).prop_map(
        move |(mut columns, count, directions, read_only, splits)| {
            columns.truncate(count);
            let key: Vec<KeyColumn> = directions
                .into_iter()
                .zip(0..count as u16)
                .map(|(descending, column)| KeyColumn { column, descending })
                .collect();
            for (at, column) in columns.iter_mut().take(key.len()).enumerate() {
                column.nullable = false;
                column.default = column.default.take().filter(|default| !default.is_null());
                if read_only {
                    column.name = atrapos_catalog::placeholder(at + 1);
                }
            }
            let key = if key.is_empty() { PrimaryKey::Hidden } else { PrimaryKey::Columns(key) };
            TableDef { name: name.clone(), columns, key, family: name.clone(), read_only, splits }
        },
    )
}

fn any_index(name: String, tables: u16) -> impl Strategy<Value = IndexDef> {
    let part = (any_type(), any::<bool>(), any::<bool>());
    let computed = part.prop_map(|(ty, descending, nullable)| IndexPart::Computed {
        name: "made".to_owned(),
        part: KeyPart { ty, descending, nullable },
    });
    let column = any::<bool>().prop_map(|descending| IndexPart::Column(KeyColumn { column: 0, descending }));
    let parts = (proptest::collection::vec(computed, 1..4), proptest::option::of(column));
    (parts, 0..tables, any::<bool>(), any_splits()).prop_map(
        move |((mut parts, column), of, unique, splits)| {
            parts.extend(column);
            IndexDef { name: name.clone(), of, parts, unique, family: format!("{name}s"), splits }
        },
    )
}

/// Definitions that do not contradict themselves.
pub(crate) fn any_definitions() -> impl Strategy<Value = Definitions> {
    let tables: Vec<_> = (0..3).map(|at| any_table(format!("table{at}"))).collect();
    let indexes: Vec<_> = (0..2).map(|at| any_index(format!("index{at}"), 3)).collect();
    let foreign_keys = proptest::collection::btree_set((0..3_u16, 0..3_u16), 0..3);
    (tables, indexes, foreign_keys, any::<bool>()).prop_map(|(tables, indexes, foreign_keys, dropped)| {
        let mut trees: Vec<TreeDef> = tables.into_iter().map(TreeDef::Table).collect();
        if dropped {
            trees.push(TreeDef::Dropped);
        }
        trees.extend(indexes.into_iter().map(TreeDef::Index));
        let foreign_keys = foreign_keys
            .into_iter()
            .map(|(child, parent)| ForeignKeyDef {
                child,
                parent,
                through: None,
                enforced: false,
                on_delete: OnDelete::Restrict,
            })
            .collect();
        Definitions { trees, foreign_keys }
    })
}
