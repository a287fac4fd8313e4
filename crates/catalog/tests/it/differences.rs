//! The first difference between what is stored and what is declared is told, and what was not known is taken over.

use atrapos_catalog::{
    ColumnType, Definitions, IndexPart, KeyColumn, KeyPart, OnDelete, PrimaryKey, TreeDef, Value,
};

use crate::support::{bank, column, index_of, table_of};

fn told(change: impl Fn(&mut Definitions)) -> String {
    let mut declared = bank();
    change(&mut declared);
    bank().difference(&declared).expect("they differ")
}

fn agrees(change: impl Fn(&mut Definitions)) {
    let mut declared = bank();
    change(&mut declared);
    assert_eq!(bank().difference(&declared), None);
    assert_eq!(declared.difference(&bank()), None);
}

#[test]
fn the_first_difference_is_told() {
    type Case<'a> = (&'a dyn Fn(&mut Definitions), &'a str);
    let cases: [Case<'_>; 16] = [
        (&|all| drop(all.trees.pop()), "index `accounts_by_owner` is in the database but is not declared"),
        (
            &|all| {
                let mut table = table_of(all).clone();
                table.name = "branches".to_owned();
                all.trees.push(TreeDef::Table(table));
            },
            "table `branches` is declared but is not in the database",
        ),
        (&|all| all.trees.swap(0, 1), "declare them in the same order"),
        (
            &|all| {
                let mut table = table_of(all).clone();
                table.name = "accounts_by_owner".to_owned();
                all.trees[1] = TreeDef::Table(table);
            },
            "`accounts_by_owner` is of kind index in the database but is declared as table",
        ),
        (
            &|all| index_of(all).unique = true,
            "index `accounts_by_owner` is not unique in the database but is declared unique",
        ),
        (
            &|all| index_of(all).of = 1,
            "is an index of `accounts` in the database but is declared as one of `accounts_by_owner`",
        ),
        (
            &|all| table_of(all).family = "other".to_owned(),
            "table `accounts` is in family `bank` in the database but is declared in family `other`",
        ),
        (
            &|all| table_of(all).columns[0].ty = ColumnType::Unsigned(4),
            "the key of table `accounts` is (u64) in the database but is declared as (u32)",
        ),
        (
            &|all| table_of(all).key = PrimaryKey::Columns(vec![KeyColumn { column: 0, descending: true }]),
            "is (u64) in the database but is declared as (u64 descending)",
        ),
        (
            &|all| table_of(all).columns[0].name = "id".to_owned(),
            "part 0 of the key of table `accounts` is `number` in the database but is declared as `id`",
        ),
        (
            &|all| table_of(all).columns[2].ty = ColumnType::Unsigned(8),
            "column `balance` of table `accounts` is i64 in the database but is declared as u64",
        ),
        (
            &|all| table_of(all).columns[2].nullable = true,
            "column `balance` of table `accounts` is i64 in the database but is declared as i64 or NULL",
        ),
        (
            &|all| drop(table_of(all).columns.pop()),
            "column `balance` of table `accounts` is in the database but is not declared",
        ),
        (
            &|all| all.foreign_keys[0].enforced = false,
            "the foreign key from `accounts` to `accounts` through `accounts_by_owner` is enforced in the database",
        ),
        (
            &|all| all.foreign_keys[0].on_delete = OnDelete::Cascade,
            "is enforced in the database but is declared as enforced, deletions cascading",
        ),
        (&|all| all.foreign_keys.clear(), "is in the database but is not declared in that place"),
    ];
    for (change, expected) in cases {
        let told = told(change);
        assert!(told.contains(expected), "{told}");
    }
}

#[test]
fn what_a_program_need_not_say_is_not_compared() {
    agrees(|all| table_of(all).splits.clear());
    agrees(|all| table_of(all).columns[1].default = Some(Value::Unsigned(7)));
    agrees(|all| table_of(all).columns[0].name = "#1".to_owned());
    // Where the key stands among the columns.
    agrees(|all| {
        table_of(all).columns.swap(0, 2);
        table_of(all).columns.swap(0, 1);
        table_of(all).key = PrimaryKey::Columns(vec![KeyColumn::ascending(2)]);
        index_of(all).parts =
            vec![IndexPart::Column(KeyColumn::ascending(0)), IndexPart::Column(KeyColumn::ascending(2))];
    });
    // By which function an index is made.
    agrees(|all| {
        let part = KeyPart::ascending(ColumnType::Unsigned(8));
        index_of(all).parts[0] = IndexPart::Computed { name: "somebody".to_owned(), part };
    });
}

#[test]
fn who_declares_everything_decides_what_is_read_only() {
    let mut declared = bank();
    table_of(&mut declared).read_only = true;
    assert_eq!(bank().difference(&declared), None);
    let told = bank().difference_of(0, &declared, 0).expect("one table alone is not everything");
    assert!(
        told.starts_with("table `accounts` is not read-only in the database but is declared read-only"),
        "{told}"
    );
    let mut stored = bank();
    stored.complete(&declared);
    assert_eq!(stored, declared);
}

#[test]
fn a_type_is_looked_up_in_whatever_family_its_table_is() {
    let mut declared = bank();
    table_of(&mut declared).family = "other".to_owned();
    assert_eq!(bank().difference_of(0, &declared, 0), None);
    assert!(bank().difference(&declared).is_some());
}

#[test]
fn what_was_not_known_is_taken_over() {
    let mut stored = bank();
    table_of(&mut stored).columns[0].name = "#1".to_owned();
    index_of(&mut stored).parts[0] =
        IndexPart::Computed { name: "#1".to_owned(), part: KeyPart::ascending(ColumnType::Unsigned(8)) };
    let mut named = stored.clone();
    index_of(&mut named).parts[0] =
        IndexPart::Computed { name: "owner".to_owned(), part: KeyPart::ascending(ColumnType::Unsigned(8)) };
    table_of(&mut named).columns[0].name = "number".to_owned();
    stored.complete(&named);
    assert_eq!(stored, named);
}

#[test]
fn opaque_keys_agree_with_any_and_become_what_is_declared() {
    let mut stored = bank();
    stored.foreign_keys.clear();
    table_of(&mut stored).columns[0] = column("#1", ColumnType::Opaque);
    index_of(&mut stored).parts =
        vec![IndexPart::Computed { name: "#1".to_owned(), part: KeyPart::ascending(ColumnType::Opaque) }];
    assert_eq!(stored.check(), Ok(()));
    let mut declared = bank();
    declared.foreign_keys.clear();
    table_of(&mut declared).columns.insert(1, column("part", ColumnType::String));
    table_of(&mut declared).key = PrimaryKey::Columns(vec![KeyColumn::ascending(0), KeyColumn::ascending(1)]);
    assert_eq!(stored.difference(&declared), None);
    stored.complete(&declared);
    assert_eq!(stored, declared);
    // Other columns are another table all the same.
    let mut other = declared.clone();
    table_of(&mut other).columns[3].ty = ColumnType::Bool;
    assert!(declared.difference(&other).is_some());
}
