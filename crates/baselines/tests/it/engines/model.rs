//! Random transactions of one client, some of which abort, against ordered maps.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use atrapos_baselines::occ::{MAX_KEY_BYTES, MAX_ROW_BYTES};
use atrapos_baselines::{Engine, Intent, RowTransaction};
use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::schema::TableId;
use proptest::prelude::*;

use super::{TABLE, check, everywhere, for_one_client, get, load, put, range, rows, run};

type Bytes = Vec<u8>;
pub(crate) type Model = Vec<BTreeMap<Bytes, Bytes>>;

pub(crate) const TABLES: u16 = 2;

#[derive(Clone, Debug)]
pub(crate) enum Step {
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

pub(crate) fn step() -> impl Strategy<Value = Step> {
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
    tx: &mut dyn RowTransaction,
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

pub(crate) fn make(tx: &mut dyn RowTransaction, model: &mut Model, step: &Step) {
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

pub(crate) fn assert_same(engine: &dyn Engine, model: &Model) {
    for (at, rows) in model.iter().enumerate() {
        let mut found = Vec::new();
        let visited = engine.walk(TableId(at as u16), &mut |key, row| {
            found.push((key.to_vec(), row.to_vec()));
            Ok(ControlFlow::Continue(()))
        });
        assert_eq!(visited, Ok(()));
        assert_eq!(found, rows.clone().into_iter().collect::<Vec<_>>());
    }
    check(engine);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 100 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn transactions_do_what_a_map_does(
        transactions in prop::collection::vec((prop::collection::vec(step(), 1..25), 0..3_u8), 1..20),
    ) {
        for engine in for_one_client().map(|engine| engine()) {
            let mut client = engine.client();
            let mut model: Model = vec![BTreeMap::new(); usize::from(TABLES)];
            for (steps, end) in &transactions {
                let mut changed = model.clone();
                let ended = client.attempt(&mut |tx| {
                    steps.iter().for_each(|step| make(tx, &mut changed, step));
                    if *end == 0 { Err(Abort::user("it changed its mind")) } else { Ok(()) }
                });
                prop_assert_eq!(ended.is_ok(), *end > 0);
                if ended.is_ok() {
                    model = changed;
                }
            }
            drop(client);
            assert_same(&*engine, &model);
        }
    }
}

#[test]
fn large_transactions_find_their_own_writes() {
    for engine in for_one_client().map(|engine| engine()) {
        let keys = if cfg!(miri) { 40 } else { 2_000_u64 };
        load(&*engine, TABLE, (0..keys).map(|key| (3 * key, 0)));
        let mut client = engine.client();
        let all = run(&mut *client, |tx| {
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
        drop(client);
        assert_eq!(rows(&*engine, TABLE), all);
        check(&*engine);
    }
}

#[test]
fn bad_requests_are_refused() {
    for engine in everywhere().map(|engine| engine()) {
        let mut client = engine.client();
        let mut refused = |body: &dyn Fn(&mut dyn RowTransaction) -> Result<(), Abort>| {
            client.attempt(&mut |tx| body(tx)).map_err(|abort| abort.reason())
        };
        let unknown = TableId(3);
        assert_eq!(refused(&|tx| tx.insert(unknown, b"", b"").map(drop)), Err(AbortReason::UnknownTable));
        assert_eq!(refused(&|tx| tx.remove(unknown, b"").map(drop)), Err(AbortReason::UnknownTable));
        let too_long = vec![0; MAX_KEY_BYTES + 1];
        assert_eq!(refused(&|tx| tx.insert(TABLE, &too_long, b"").map(drop)), Err(AbortReason::KeyTooLarge));
        let row = vec![1; MAX_ROW_BYTES + 1];
        assert_eq!(refused(&|tx| tx.insert(TABLE, b"", &row).map(drop)), Err(AbortReason::RowTooLarge));
        // Structures in domains take the keys that partitions take.
        let is_on_domains = engine.name() == "domains";
        let longest = if is_on_domains { atrapos_storage::MAX_KEY_BYTES } else { MAX_KEY_BYTES };
        assert_eq!(refused(&|tx| tx.insert(TABLE, &too_long[..longest], &row[1..]).map(drop)), Ok(()));
        if is_on_domains {
            let longer = &too_long[..=longest];
            assert_eq!(refused(&|tx| tx.insert(TABLE, longer, b"").map(drop)), Err(AbortReason::KeyTooLarge));
        }
        assert_eq!(refused(&|tx| tx.replace(TABLE, b"a", b"")), Err(AbortReason::Misuse));
        let twice = [(b"b"[..].into(), b"1"[..].into()), (b"b"[..].into(), b"2"[..].into())];
        let loaded = engine.load(TABLE, &twice);
        assert_eq!(loaded.map_err(|abort| abort.reason()), Err(AbortReason::DuplicateKey));
        let visited = engine.walk(unknown, &mut |_, _| Ok(ControlFlow::Continue(())));
        assert_eq!(visited.map_err(|abort| abort.reason()), Err(AbortReason::UnknownTable));
        drop(client);
        check(&*engine);
    }
}
