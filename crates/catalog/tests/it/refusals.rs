//! Every contradiction is one sentence that names the thing.

use atrapos_catalog::{
    ColumnDef, ColumnType, Definitions, ForeignKeyDef, IndexPart, KeyColumn, KeyPart, MAX_COLUMNS, OnDelete,
    PrimaryKey, TreeDef, Value,
};

use crate::support::{bank, column, index_of, table_of};

/// The first contradiction of the bank's definitions after a change.
fn told(change: impl Fn(&mut Definitions)) -> String {
    let mut definitions = bank();
    assert_eq!(definitions.check(), Ok(()));
    change(&mut definitions);
    let error = definitions.check().expect_err("it contradicts itself").to_string();
    assert_eq!(definitions.encode().expect_err("it is not written").to_string(), error);
    assert!(!error.ends_with('.') && error.contains(';'), "a cure belongs to it: {error}");
    error
}

fn with_column(change: impl Fn(&mut ColumnDef)) -> String {
    told(|all| change(&mut table_of(all).columns[2]))
}

fn with_type(ty: ColumnType) -> String {
    with_column(|column| column.ty = ty)
}

#[track_caller]
fn says(told: String, expected: &str) {
    assert!(told.contains(expected), "{told}");
}

#[test]
fn names_that_cannot_be() {
    says(told(|all| table_of(all).name.clear()), "a table has an empty name");
    says(told(|all| index_of(all).name = "accounts".to_owned()), "have the name `accounts`");
    says(told(|all| table_of(all).name = "x".repeat(256)), "a name of 256 bytes (`xxxxxxxxxxxxxxxxxxxx...`)");
    says(told(|all| table_of(all).family = "a\nb".to_owned()), r#"a family has the name "a\nb""#);
    says(told(|all| table_of(all).columns[1].name = "number".to_owned()), "two columns `number`");
    says(with_column(|column| column.name = "#3".to_owned()), "no name begins with `#`");
    let mut unnamed = bank();
    table_of(&mut unnamed).columns[0].name = "#1".to_owned();
    assert_eq!(unnamed.check(), Ok(()), "parts of a key may have no name");
}

#[test]
fn columns_that_cannot_be() {
    says(told(|all| table_of(all).columns.clear()), "table `accounts` has no columns");
    let many = |all: &mut Definitions| {
        let names = (0..=MAX_COLUMNS).map(|at| column(&format!("c{at}"), ColumnType::Bool));
        table_of(all).columns = names.collect();
    };
    says(told(many), "has 4097 columns where 4096 is the most");
    says(
        with_type(ColumnType::Unsigned(3)),
        "column `balance` of table `accounts` is u24, but an integer has 8",
    );
    says(with_type(ColumnType::Decimal { precision: 39, scale: 0 }), "from 1 to 38 digits");
    says(with_type(ColumnType::Decimal { precision: 0, scale: 0 }), "from 1 to 38 digits");
    says(with_type(ColumnType::Decimal { precision: 4, scale: 5 }), "is decimal(4, 5), but no more digits");
    says(with_type(ColumnType::Bytes(1_048_577)), "at most 1048576 bytes");
    says(with_type(ColumnType::Opaque), "which only the last part of a key can be");
    let wide = |all: &mut Definitions| {
        for at in 0..20 {
            table_of(all).columns.push(column(&format!("wide{at}"), ColumnType::FixedStr(60_000)));
        }
    };
    says(told(wide), "take 1200016 bytes where 1048576 is the most");
}

#[test]
fn defaults_that_do_not_fit() {
    let with = |ty, nullable, default: Value| {
        with_column(|column| {
            *column = ColumnDef { name: "balance".to_owned(), ty, nullable, default: Some(default.clone()) };
        })
    };
    says(
        with(ColumnType::Signed(2), false, Value::Signed(40_000)),
        "the value 40000 is beyond the range of i16",
    );
    says(with(ColumnType::Signed(2), false, Value::Null), "NULL does not go into a column that is NOT NULL");
    says(with(ColumnType::Bool, true, Value::Text("no".to_owned())), "a value of type text does not go into");
    let money = ColumnType::Decimal { precision: 6, scale: 2 };
    says(
        with(money, false, Value::Decimal { unscaled: 1, scale: 3 }),
        "more digits after the point than decimal(6, 2)",
    );
}

#[test]
fn keys_that_cannot_be() {
    let with_key = |key: Vec<KeyColumn>| told(|all| table_of(all).key = PrimaryKey::Columns(key.clone()));
    says(with_key(Vec::new()), "the primary key of table `accounts` has no columns");
    says(
        with_key(vec![KeyColumn::ascending(3)]),
        "names column number 3, which table `accounts` does not have",
    );
    says(with_key(vec![KeyColumn::ascending(0); 2]), "names column `number` twice");
    says(
        told(|all| table_of(all).columns[0].nullable = true),
        "column `number` of table `accounts` may be NULL",
    );
    says(
        told(|all| table_of(all).columns[0].ty = ColumnType::FixedStr(513)),
        "the key of table `accounts` takes at least 513 bytes where 512 is the most",
    );
    says(told(|all| table_of(all).splits = vec![vec![2], vec![1]]), "do not ascend");
    says(told(|all| table_of(all).splits = vec![vec![]]), "a key of 0 or more than 512 bytes");
}

#[test]
fn indexes_that_cannot_be() {
    says(
        told(|all| index_of(all).of = 7),
        "index `accounts_by_owner` is of table number 7, which does not exist",
    );
    says(told(|all| index_of(all).of = 1), "of table number 1, which does not exist");
    says(told(|all| index_of(all).parts.clear()), "the key of index `accounts_by_owner` has 0 parts");
    let part = |ty| {
        let part = KeyPart::ascending(ty);
        IndexPart::Computed { name: "x".to_owned(), part }
    };
    says(told(|all| index_of(all).parts.insert(0, part(ColumnType::Opaque))), "only the last one can be");
    says(told(|all| index_of(all).parts.push(part(ColumnType::Signed(0)))), "is i0, but an integer");
    says(
        told(|all| index_of(all).parts.push(IndexPart::Column(KeyColumn { column: 1, descending: true }))),
        "names column `owner` twice",
    );
    says(told(|all| index_of(all).parts.push(part(ColumnType::Bytes(500)))), "at least 524 bytes");
}

#[test]
fn foreign_keys_that_cannot_be() {
    let with = |change: fn(&mut ForeignKeyDef)| told(|all| change(&mut all.foreign_keys[0]));
    says(with(|key| key.parent = 1), "has number 1 for its parent, which is not a table");
    says(with(|key| key.child = 9), "has number 9 for its child");
    says(with(|key| key.through = Some(0)), "goes through `accounts`, which is not an index of `accounts`");
    says(
        with(|key| (key.enforced, key.on_delete) = (false, OnDelete::Cascade)),
        "is not enforced, so it cannot cascade",
    );
    says(told(|all| all.foreign_keys.push(all.foreign_keys[0])), "is defined twice");
    let other_type = |all: &mut Definitions| table_of(all).columns[1].ty = ColumnType::Unsigned(4);
    says(told(other_type), "begin with the parent's key (u64), but they are (u32, u64)");
    let descending = |all: &mut Definitions| {
        index_of(all).parts[0] = IndexPart::Column(KeyColumn { column: 1, descending: true });
    };
    says(told(descending), "but they are (u64 descending, u64)");
    let mut known_to_partitioning = bank();
    other_type(&mut known_to_partitioning);
    known_to_partitioning.foreign_keys[0].enforced = false;
    assert_eq!(known_to_partitioning.check(), Ok(()));
}

#[test]
fn hidden_keys_are_not_referred_to_and_not_cut_with_others() {
    let hide = |all: &mut Definitions| table_of(all).key = PrimaryKey::Hidden;
    says(
        told(hide),
        "table `accounts` has a hidden key, so it cannot be cut at the same keys as `accounts_by_owner`",
    );
    let alone = |all: &mut Definitions| {
        hide(all);
        index_of(all).family = "owners".to_owned();
    };
    says(told(alone), "refers to a table with a hidden key");
    let mut fine = bank();
    alone(&mut fine);
    fine.foreign_keys.clear();
    assert_eq!(fine.check(), Ok(()));
    fine.trees.push(TreeDef::Dropped);
    assert_eq!(fine.check(), Ok(()));
}
