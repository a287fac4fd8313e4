//! Random transactions on a table by its definition against a model in memory, on any number of workers.

use std::collections::BTreeMap;
use std::ops::Bound;

use atrapos::catalog::{ColumnDef, ColumnType, KeyColumn, PrimaryKey, TableDef, Value};
use atrapos::{Abort, Database, DynRow, TableHandle, Tx};
use proptest::prelude::*;

use super::{directory_of, number, reopen, signed, text};

/// Rows by a key of two parts, the second descending, in several partitions.
fn table() -> TableDef {
    TableDef {
        name: "model".to_owned(),
        columns: vec![
            ColumnDef::new("group", ColumnType::Signed(2)),
            ColumnDef::new("value", ColumnType::Signed(8)),
            ColumnDef { nullable: true, ..ColumnDef::new("note", ColumnType::String) },
            ColumnDef::new("number", ColumnType::Unsigned(1)),
        ],
        key: PrimaryKey::Columns(vec![KeyColumn::ascending(0), KeyColumn { column: 3, descending: true }]),
        family: "model".to_owned(),
        read_only: false,
        // At groups -1, 0 and 2.
        splits: vec![vec![0x7f, 0xff], vec![0x80, 0], vec![0x80, 2]],
    }
}

/// A row's key as the model orders it.
type Key = (i64, std::cmp::Reverse<u64>);
type Model = BTreeMap<Key, (i64, Option<String>)>;

#[derive(Clone, Debug)]
enum Step {
    Insert(i64, u64, i64, Option<String>),
    Update(i64, u64, i64),
    Note(i64, u64, Option<String>),
    Delete(i64, u64),
    Get(i64, u64),
    Scan(i64, i64, usize, bool),
    UpdateGroups(i64, i64, i64),
    DeleteGroups(i64, i64),
    Save,
    Back,
}

fn step() -> impl Strategy<Value = Step> {
    let (group, id, value) = (-3..4_i64, 0..6_u64, -9..9_i64);
    let note = || prop::option::of("[a-z]{0,40}");
    prop_oneof![
        4 => (group.clone(), id.clone(), value.clone(), note()).prop_map(|(g, n, v, t)| Step::Insert(g, n, v, t)),
        2 => (group.clone(), id.clone(), value.clone()).prop_map(|(g, n, v)| Step::Update(g, n, v)),
        2 => (group.clone(), id.clone(), note()).prop_map(|(g, n, t)| Step::Note(g, n, t)),
        2 => (group.clone(), id.clone()).prop_map(|(g, n)| Step::Delete(g, n)),
        2 => (group.clone(), id).prop_map(|(g, n)| Step::Get(g, n)),
        2 => (group.clone(), group.clone(), 0..20_usize, any::<bool>())
            .prop_map(|(from, to, limit, backward)| Step::Scan(from, to, limit, backward)),
        1 => (group.clone(), group.clone(), value).prop_map(|(from, to, v)| Step::UpdateGroups(from, to, v)),
        1 => (group.clone(), group).prop_map(|(from, to)| Step::DeleteGroups(from, to)),
        1 => Just(Step::Save),
        1 => Just(Step::Back),
    ]
}

fn values(group: i64, id: u64, value: i64, note: Option<&String>) -> Vec<Value> {
    vec![signed(group), signed(value), note.map_or(Value::Null, |note| text(note)), number(id)]
}

fn row_of((key, row): (&Key, &(i64, Option<String>))) -> Vec<Value> {
    values(key.0, key.1.0, row.0, row.1.as_ref())
}

fn values_of(rows: &[DynRow], table: &TableHandle) -> Result<Vec<Vec<Value>>, Abort> {
    rows.iter().map(|row| row.values(table)).collect()
}

/// What the model has in these groups.
fn within(model: &Model, from: i64, to: i64) -> Vec<Key> {
    model.keys().filter(|key| from <= key.0 && key.0 < to).copied().collect()
}

/// Inserts a row unless its key is taken. Whether both agree on that.
async fn insert(
    tx: &mut Tx<'_>,
    table: &TableHandle,
    model: &mut Model,
    key: Key,
    new: (i64, Option<String>),
) -> Result<bool, Abort> {
    let mut row = vec![("group", signed(key.0)), ("number", number(key.1.0)), ("value", signed(new.0))];
    row.extend(new.1.as_ref().map(|note| ("note", text(note))));
    let inserted = tx.insert_row_if_absent(table, &row).await?;
    let is_new = !model.contains_key(&key);
    if is_new {
        model.insert(key, new);
    }
    Ok(inserted == is_new)
}

/// Makes one step on both; a difference is told as an abort.
async fn make(tx: &mut Tx<'_>, table: &TableHandle, model: &mut Model, step: &Step) -> Result<bool, Abort> {
    let range = |from: i64, to: i64| {
        let (from, to) = ([signed(from)], [signed(to)]);
        table.range(Bound::Included(&from[..]), Bound::Excluded(&to[..]))
    };
    let at = |group: &i64, id: &u64| (*group, std::cmp::Reverse(*id));
    Ok(match step {
        Step::Insert(group, id, value, note) => {
            insert(tx, table, model, at(group, id), (*value, note.clone())).await?
        }
        Step::Update(group, id, value) => {
            let updated =
                tx.update_row(table, &[signed(*group), number(*id)], &[("value", signed(*value))]).await?;
            let row = model.get_mut(&at(group, id));
            let is_there = row.is_some();
            row.into_iter().for_each(|row| row.0 = *value);
            updated == is_there
        }
        Step::Note(group, id, note) => {
            let value = note.as_ref().map_or(Value::Null, |note| text(note));
            let updated = tx.update_row(table, &[signed(*group), number(*id)], &[("note", value)]).await?;
            let row = model.get_mut(&at(group, id));
            let is_there = row.is_some();
            row.into_iter().for_each(|row| row.1.clone_from(note));
            updated == is_there
        }
        Step::Delete(group, id) => {
            let deleted = tx.delete(table, &[signed(*group), number(*id)]).await?;
            let deleted = deleted.map(|row| row.values(table)).transpose()?;
            let expected = model.remove(&at(group, id));
            deleted == expected.map(|row| row_of((&at(group, id), &row)))
        }
        Step::Get(group, id) => {
            let found = tx.get(table, &[signed(*group), number(*id)]).await?;
            let found = found.map(|row| row.values(table)).transpose()?;
            found == model.get_key_value(&at(group, id)).map(row_of)
        }
        Step::Scan(from, to, limit, backward) => {
            let keys = within(model, *from, *to);
            let mut expected: Vec<_> = keys.iter().map(|key| row_of((key, &model[key]))).collect();
            let found = if *backward {
                expected.reverse();
                tx.scan_backward(table, range(*from, *to)?, *limit).await?
            } else {
                tx.scan(table, range(*from, *to)?, *limit).await?
            };
            expected.truncate(*limit);
            values_of(&found, table)? == expected
        }
        Step::UpdateGroups(from, to, value) => {
            let changed = tx.update_rows(table, range(*from, *to)?, &[("value", signed(*value))]).await?;
            let keys = within(model, *from, *to);
            keys.iter().for_each(|key| {
                model.entry(*key).and_modify(|row| row.0 = *value);
            });
            changed == keys.len() as u64
        }
        Step::DeleteGroups(from, to) => {
            let deleted = tx.delete_range(table, range(*from, *to)?).await?;
            let keys = within(model, *from, *to);
            keys.iter().for_each(|key| drop(model.remove(key)));
            deleted == keys.len() as u64
        }
        Step::Save | Step::Back => true,
    })
}

/// Runs transactions one after the other; each ends with everything compared. Returns what the model says in the end.
fn agrees(db: &Database, transactions: &[Vec<Step>]) -> Result<Model, TestCaseError> {
    let mut model = Model::new();
    for steps in transactions {
        let (table, steps, before) = (db.table_named("model").unwrap(), steps.clone(), model.clone());
        let outcome = db.run(table.at(&[]).unwrap(), async move |tx| {
            let (mut model, mut saved) = (before.clone(), None);
            for step in &steps {
                match (step, &saved) {
                    (Step::Save, _) => saved = Some((tx.savepoint()?, model.clone())),
                    (Step::Back, Some((savepoint, then))) => {
                        tx.rollback_to(*savepoint).await?;
                        model.clone_from(then);
                    }
                    _ => {}
                }
                if !make(tx, &table, &mut model, step).await? {
                    return Ok(Err(format!("{step:?} differs")));
                }
            }
            let all = tx.scan(&table, table.prefix(&[])?, usize::MAX).await?;
            let same = values_of(&all, &table)? == model.iter().map(row_of).collect::<Vec<_>>();
            Ok(if same { Ok(model) } else { Err("the rows differ".to_owned()) })
        });
        model =
            outcome.map_err(|abort| TestCaseError::fail(abort.to_string()))?.map_err(TestCaseError::fail)?;
    }
    Ok(model)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rows_of_values_agree_with_a_model(
        transactions in prop::collection::vec(prop::collection::vec(step(), 1..25), 1..6),
        workers in 1..4_usize,
    ) {
        let files = directory_of(vec![table()]);
        let db = reopen(&files, workers);
        let model = agrees(&db, &transactions)?;
        prop_assert!(db.verify().is_ok());
        // What was acknowledged is there after a crash, changed ranges and what was undone as well.
        let db = reopen(&files.power_cut(workers as u64), 2);
        prop_assert!(db.verify().is_ok());
        let table = db.table_named("model").unwrap();
        let found = db.run(table.at(&[]).unwrap(), async move |tx| {
            let all = tx.scan(&table, table.prefix(&[])?, usize::MAX).await?;
            values_of(&all, &table)
        });
        prop_assert_eq!(found.unwrap(), model.iter().map(row_of).collect::<Vec<_>>());
    }
}
