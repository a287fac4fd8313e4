//! Random transactions of one client, some of which abort, against ordered maps.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use atrapos_baselines::occ::{MAX_KEY_BYTES, MAX_ROW_BYTES, OccEngine, OccTransaction};
use atrapos_baselines::{Intent, RowTransaction};
use atrapos_partition::abort::AbortReason;
use atrapos_partition::schema::TableId;
use proptest::prelude::*;

use super::{TABLE, check, engine, get, load, put, range};

type Bytes = Vec<u8>;
type Model = Vec<BTreeMap<Bytes, Bytes>>;

const TABLES: u16 = 2;

#[derive(Clone, Debug)]
enum Step {
    Read(TableId, Bytes, bool),
    Insert(TableId, Bytes, Bytes),
    Replace(TableId, Bytes, Bytes),
    Remove(TableId, Bytes),
    Scan { table: TableId, from: Bytes, to: Option<Bytes>, backward: bool, stop_after: usize },
}

fn table() -> impl Strategy<Value = TableId> {
    (0..TABLES).prop_map(TableId)
}

fn key() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        3 => prop::collection::vec(0..3_u8, 0..5),
        3 => (0..200_u32).prop_map(|number| number.to_be_bytes().to_vec()),
        1 => (0..30_u8).prop_map(|last| [&[7; 20][..], &[last]].concat()),
    ]
}

fn row() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        3 => prop::collection::vec(any::<u8>(), 0..20),
        1 => (0..300_usize, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let scan = (table(), key(), prop::option::of(key()), any::<bool>(), 0..60_usize);
    prop_oneof![
        2 => (table(), key(), any::<bool>()).prop_map(|(table, key, write)| Step::Read(table, key, write)),
        4 => (table(), key(), row()).prop_map(|(table, key, row)| Step::Insert(table, key, row)),
        3 => (table(), key(), row()).prop_map(|(table, key, row)| Step::Replace(table, key, row)),
        2 => (table(), key()).prop_map(|(table, key)| Step::Remove(table, key)),
        2 => scan.prop_map(|(table, from, to, backward, stop_after)| {
            Step::Scan { table, from, to, backward, stop_after }
        }),
    ]
}

fn scan_both(
    tx: &mut OccTransaction<'_>,
    model: &BTreeMap<Bytes, Bytes>,
    table: TableId,
    (from, to): (&[u8], Option<&[u8]>),
    (backward, stop_after): (bool, usize),
) {
    let mut found = Vec::new();
    let stopped = tx.scan(table, (from, to), backward, &mut |key, row| {
        found.push((key.to_vec(), row.to_vec()));
        Ok(if found.len() > stop_after { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    });
    let within = model.iter().filter(|(key, _)| &key[..] >= from && to.is_none_or(|to| &key[..] < to));
    let mut expected: Vec<(Bytes, Bytes)> = within.map(|(key, row)| (key.clone(), row.clone())).collect();
    if backward {
        expected.reverse();
    }
    assert_eq!(stopped, Ok(expected.len() > stop_after));
    expected.truncate(stop_after + 1);
    assert_eq!(found, expected);
}

fn make(tx: &mut OccTransaction<'_>, model: &mut Model, step: &Step) {
    match step {
        Step::Read(table, key, write) => {
            let intent = if *write { Intent::Write } else { Intent::Read };
            let found = tx.read(*table, key, intent).map(|row| row.map(<[u8]>::to_vec));
            assert_eq!(found, Ok(model[table.at()].get(key).cloned()));
        }
        Step::Insert(table, key, row) => {
            let is_new = !model[table.at()].contains_key(key);
            assert_eq!(tx.insert(*table, key, row), Ok(is_new));
            model[table.at()].entry(key.clone()).or_insert_with(|| row.clone());
        }
        Step::Replace(table, key, row) => {
            let is_there = tx.read(*table, key, Intent::Write).map(|found| found.is_some());
            assert_eq!(is_there, Ok(model[table.at()].contains_key(key)));
            if is_there == Ok(true) {
                assert_eq!(tx.replace(*table, key, row), Ok(()));
                model[table.at()].insert(key.clone(), row.clone());
            }
        }
        Step::Remove(table, key) => {
            assert_eq!(tx.remove(*table, key), Ok(model[table.at()].remove(key).is_some()));
        }
        Step::Scan { table, from, to, backward, stop_after } => {
            let how = (*backward, *stop_after);
            scan_both(tx, &model[table.at()], *table, (from, to.as_deref()), how);
        }
    }
}

fn assert_same(engine: &OccEngine, model: &Model) {
    for (at, rows) in model.iter().enumerate() {
        let mut found = Vec::new();
        let visited =
            engine.for_each(TableId(at as u16), |key, row| found.push((key.to_vec(), row.to_vec())));
        assert_eq!(visited, Ok(()));
        assert_eq!(found, rows.clone().into_iter().collect::<Vec<_>>());
        assert_eq!(engine.rows(TableId(at as u16)), Ok(rows.len() as u64));
    }
    check(engine);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 150 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn transactions_do_what_a_map_does(
        transactions in prop::collection::vec((prop::collection::vec(step(), 1..25), 0..4_u8), 1..20),
    ) {
        let engine = engine();
        let mut client = engine.client();
        let mut model: Model = vec![BTreeMap::new(); usize::from(TABLES)];
        for (steps, end) in transactions {
            let mut changed = model.clone();
            let mut tx = client.begin();
            for step in &steps {
                make(&mut tx, &mut changed, step);
            }
            match end {
                0 => tx.abort(),
                1 => drop(tx),
                _ => {
                    prop_assert_eq!(tx.commit(), Ok(()));
                    model = changed;
                }
            }
            engine.advance_epoch();
        }
        drop(client);
        assert_same(&engine, &model);
    }
}

#[test]
fn large_transactions_find_their_own_writes() {
    let engine = engine();
    let mut client = engine.client();
    let keys = if cfg!(miri) { 40 } else { 3_000_u64 };
    load(&engine, TABLE, (0..keys).map(|key| (3 * key, 0)));
    let all = client.run(|tx| {
        for key in 0..keys {
            put(tx, TABLE, 3 * key, key)?;
            put(tx, TABLE, 3 * key + 1, key)?;
            if key % 2 == 0 {
                tx.remove(TABLE, &(3 * key).to_be_bytes())?;
            }
        }
        for key in (0..keys).step_by(7) {
            assert_eq!(get(tx, TABLE, 3 * key)?, (key % 2 == 1).then_some(key));
        }
        let forward = range(tx, TABLE, (0, None), false)?;
        let mut backward = range(tx, TABLE, (0, None), true)?;
        backward.reverse();
        assert_eq!(forward, backward);
        Ok(forward)
    });
    let all = all.unwrap_or_else(|abort| panic!("{abort}"));
    assert_eq!(all.len() as u64, keys + keys / 2);
    assert_eq!(super::rows(&engine, TABLE), all);
    check(&engine);
}

#[test]
#[cfg_attr(miri, ignore = "a row of a megabyte takes minutes there")]
fn bad_requests_are_refused() {
    let engine = engine();
    let mut client = engine.client();
    let reason =
        |result: Result<bool, atrapos_partition::abort::Abort>| result.map_err(|abort| abort.reason());
    let mut tx = client.begin();
    let unknown = TableId(3);
    assert_eq!(reason(tx.insert(unknown, b"", b"")), Err(AbortReason::UnknownTable));
    assert_eq!(reason(tx.remove(unknown, b"")), Err(AbortReason::UnknownTable));
    let too_long = vec![0; MAX_KEY_BYTES + 1];
    assert_eq!(reason(tx.insert(TABLE, &too_long, b"")), Err(AbortReason::KeyTooLarge));
    let row = vec![1; MAX_ROW_BYTES + 1];
    assert_eq!(reason(tx.insert(TABLE, b"", &row)), Err(AbortReason::RowTooLarge));
    assert_eq!(tx.insert(TABLE, &too_long[1..], &row[1..]), Ok(true));
    assert_eq!(reason(tx.replace(TABLE, b"a", b"").map(|()| true)), Err(AbortReason::Misuse));
    assert_eq!(tx.commit(), Ok(()));
    let loaded = engine.load(TABLE, [(b"b", b"1"), (b"b", b"2")]);
    assert_eq!(loaded.map_err(|abort| abort.reason()), Err(AbortReason::DuplicateKey));
    assert_eq!(engine.rows(TABLE), Ok(2));
    assert_eq!(engine.rows(unknown).map_err(|abort| abort.reason()), Err(AbortReason::UnknownTable));
    check(&engine);
}
