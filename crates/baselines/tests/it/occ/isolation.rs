//! Transactions of two clients, interleaved step by step on one thread: which of them commit is known.

use std::ops::ControlFlow;

use atrapos_baselines::occ::{OccEngine, OccTransaction};
use atrapos_baselines::{Intent, RowTransaction};
use atrapos_partition::abort::{Abort, AbortReason};

use super::{OTHER, TABLE, check, engine, get, load, put, range, rows};

/// Runs a small transaction of another client, which commits.
fn meanwhile(engine: &OccEngine, run: impl FnOnce(&mut OccTransaction<'_>) -> Result<(), Abort>) {
    let mut client = engine.client();
    let mut tx = client.begin();
    run(&mut tx).unwrap_or_else(|abort| panic!("{abort}"));
    tx.commit().unwrap_or_else(|abort| panic!("{abort}"));
}

fn remove(tx: &mut OccTransaction<'_>, key: u64) -> Result<(), Abort> {
    assert!(tx.remove(TABLE, &key.to_be_bytes())?);
    Ok(())
}

fn of_ten() -> OccEngine {
    let engine = engine();
    load(&engine, TABLE, (0..10).map(|key| (10 * key, key)));
    load(&engine, OTHER, [(0, 0), (1, 0)]);
    engine
}

type Step<'a> = &'a dyn Fn(&mut OccTransaction<'_>) -> Result<(), Abort>;

/// Runs `first`, then another transaction, then a write, and tells the reason for which it aborts.
fn interleaved(first: Step<'_>, other: Step<'_>) -> Result<(), AbortReason> {
    let engine = of_ten();
    let mut client = engine.client();
    let mut tx = client.begin();
    first(&mut tx).unwrap_or_else(|abort| panic!("{abort}"));
    meanwhile(&engine, other);
    let ended = put(&mut tx, OTHER, 1, 1).and_then(|()| tx.commit());
    check(&engine);
    assert_eq!(rows(&engine, OTHER)[1].1, u64::from(ended.is_ok()), "all of it or nothing");
    ended.map_err(|abort| abort.reason())
}

/// What a transaction reads of keys 15 to 45, in every way there is.
const READS: [(&str, Step<'static>); 4] = [
    ("forward", &|tx| range(tx, TABLE, (15, Some(45)), false).map(|_| ())),
    ("backward", &|tx| range(tx, TABLE, (15, Some(45)), true).map(|_| ())),
    ("to the end", &|tx| range(tx, TABLE, (15, None), true).map(|_| ())),
    ("one by one", &|tx| (15..45).try_for_each(|key| get(tx, TABLE, key).map(|_| ()))),
];

#[test]
fn what_was_read_or_found_absent_must_stay() {
    let others: [(&str, Step<'_>); 4] = [
        ("replace", &|tx| put(tx, TABLE, 20, 99)),
        ("remove", &|tx| remove(tx, 30)),
        ("insert", &|tx| put(tx, TABLE, 25, 0)),
        ("lengthen", &|tx| {
            tx.read(TABLE, &40_u64.to_be_bytes(), Intent::Write)?;
            tx.replace(TABLE, &40_u64.to_be_bytes(), &[1; 100])
        }),
    ];
    for (read_name, read) in READS {
        for (name, other) in &others {
            let ended = interleaved(read, other);
            assert_eq!(ended, Err(AbortReason::Validation), "{read_name}, {name}");
        }
        assert_eq!(interleaved(read, &|_| Ok(())), Ok(()), "{read_name}");
        assert_eq!(interleaved(read, &|tx| put(tx, TABLE, 90, 1)).is_ok(), read_name != "to the end");
    }
}

#[test]
fn what_is_unchanged_or_not_read_does_not_matter() {
    let one = |tx: &mut OccTransaction<'_>| get(tx, TABLE, 20).map(|_| ());
    assert_eq!(interleaved(&one, &|tx| put(tx, TABLE, 25, 0)), Ok(()));
    assert_eq!(interleaved(&one, &|tx| remove(tx, 30)), Ok(()));
    assert_eq!(interleaved(&one, &|tx| put(tx, TABLE, 20, 2)), Err(AbortReason::Validation));
}

#[test]
fn readers_that_see_two_moments_are_refused() {
    for writes in [false, true] {
        let engine = of_ten();
        let mut client = engine.client();
        let mut tx = client.begin();
        assert_eq!(get(&mut tx, TABLE, 10), Ok(Some(1)));
        meanwhile(&engine, |tx| put(tx, TABLE, 10, 5).and_then(|()| put(tx, TABLE, 20, 5)));
        assert_eq!(get(&mut tx, TABLE, 20), Ok(Some(5)));
        if writes {
            put(&mut tx, OTHER, 0, 1).unwrap_or_else(|abort| panic!("{abort}"));
        }
        assert_eq!(tx.validate().map_err(|abort| abort.reason()), Err(AbortReason::Validation));
        assert_eq!(tx.commit().map_err(|abort| abort.reason()), Err(AbortReason::Validation));
        assert_eq!(engine.statistics().aborted_for(AbortReason::Validation), 1);
        assert_eq!(engine.statistics().commits, 1);
    }
}

#[test]
fn a_single_read_commits_whatever_comes_after() {
    let engine = of_ten();
    let mut client = engine.client();
    let mut tx = client.begin();
    assert_eq!(get(&mut tx, TABLE, 10), Ok(Some(1)));
    meanwhile(&engine, |tx| put(tx, TABLE, 10, 5));
    assert_eq!(tx.commit(), Ok(()));
}

#[test]
fn of_two_that_insert_a_key_the_first_to_commit_wins() {
    for first_ends in [Some(true), Some(false), None] {
        let engine = of_ten();
        let (mut one, mut two) = (engine.client(), engine.client());
        let (mut first, mut second) = (one.begin(), two.begin());
        assert_eq!(first.insert(TABLE, &5_u64.to_be_bytes(), &1_u64.to_be_bytes()), Ok(true));
        assert_eq!(get(&mut second, TABLE, 5), Ok(None), "it is not committed");
        assert_eq!(second.insert(TABLE, &5_u64.to_be_bytes(), &[2; 80]), Ok(true));
        match first_ends {
            Some(true) => {
                assert_eq!(first.commit(), Ok(()));
                assert_eq!(second.commit().map_err(|abort| abort.reason()), Err(AbortReason::Validation));
                assert_eq!(rows(&engine, TABLE)[1], (5, 1));
            }
            Some(false) => {
                first.abort();
                assert!(second.commit().is_err(), "the record is gone");
                assert_eq!(engine.rows(TABLE), Ok(10));
            }
            None => {
                // The row is longer than what the first one has made room for.
                assert_eq!(second.commit(), Ok(()));
                assert_eq!(first.commit().map_err(|abort| abort.reason()), Err(AbortReason::Validation));
                assert_eq!(engine.rows(TABLE), Ok(11));
            }
        }
        check(&engine);
    }
}

#[test]
fn an_aborted_insertion_leaves_nothing_but_what_others_have_committed() {
    let engine = of_ten();
    let (before, mut client) = (engine.memory(), engine.client());
    let mut tx = client.begin();
    for key in 0..100 {
        put(&mut tx, TABLE, 1000 + key, key).unwrap_or_else(|abort| panic!("{abort}"));
    }
    assert!(engine.memory() != before);
    tx.abort();
    assert_eq!(engine.rows(TABLE), Ok(10));
    assert_eq!(engine.memory().records, before.records);
    check(&engine);
    let mut tx = client.begin();
    put(&mut tx, TABLE, 5, 1).unwrap_or_else(|abort| panic!("{abort}"));
    meanwhile(&engine, |tx| put(tx, TABLE, 5, 2));
    drop(tx);
    assert_eq!(rows(&engine, TABLE)[1], (5, 2));
    let mut tx = client.begin();
    put(&mut tx, TABLE, 6, 1).unwrap_or_else(|abort| panic!("{abort}"));
    meanwhile(&engine, |tx| put(tx, TABLE, 6, 2).and_then(|()| remove(tx, 6)));
    drop(tx);
    assert_eq!(engine.rows(TABLE), Ok(11));
    check(&engine);
}

#[test]
fn own_insertions_do_not_spoil_own_ranges() {
    let engine = engine();
    load(&engine, TABLE, (0..60).map(|key| (1000 * key, key)));
    let mut client = engine.client();
    let mut tx = client.begin();
    assert_eq!(range(&mut tx, TABLE, (0, None), false).map(|rows| rows.len()), Ok(60));
    // So many that the leaf is split more than once.
    for key in 0..300 {
        put(&mut tx, TABLE, 7 * key + 1, 0).unwrap_or_else(|abort| panic!("{abort}"));
    }
    assert_eq!(range(&mut tx, TABLE, (0, None), true).map(|rows| rows.len()), Ok(360));
    assert_eq!(tx.commit(), Ok(()));
    assert_eq!(engine.rows(TABLE), Ok(360));
    // A range that was read before the leaf was split by its reader is protected in both halves.
    for late in [5, 1_000_000] {
        let mut tx = client.begin();
        assert!(range(&mut tx, TABLE, (0, None), false).is_ok());
        for key in 0..80 {
            put(&mut tx, TABLE, late + 100 + 7 * key, 0).unwrap_or_else(|abort| panic!("{abort}"));
        }
        meanwhile(&engine, |tx| put(tx, TABLE, late, 0));
        assert_eq!(tx.commit().map_err(|abort| abort.reason()), Err(AbortReason::Validation));
    }
    check(&engine);
}

#[test]
fn an_own_insertion_notices_others_in_its_range() {
    let engine = of_ten();
    let mut client = engine.client();
    let mut tx = client.begin();
    assert!(range(&mut tx, TABLE, (0, None), false).is_ok());
    meanwhile(&engine, |tx| put(tx, TABLE, 15, 0));
    let ended = put(&mut tx, TABLE, 16, 0).and_then(|()| tx.commit());
    assert_eq!(ended.map_err(|abort| abort.reason()), Err(AbortReason::Validation));
    assert_eq!(engine.rows(TABLE), Ok(11));
    check(&engine);
}

#[test]
fn a_stopped_scan_protects_no_leaf_behind_it() {
    let engine = engine();
    let rows = if cfg!(miri) { 400 } else { 10_000 };
    load(&engine, TABLE, (0..rows).map(|key| (2 * key, key)));
    for backward in [false, true] {
        let mut client = engine.client();
        let mut tx = client.begin();
        let stopped = tx.scan(TABLE, (&[], None), backward, &mut |_, _| Ok(ControlFlow::Break(())));
        assert_eq!(stopped, Ok(true));
        meanwhile(&engine, |tx| put(tx, TABLE, if backward { 1 } else { 2 * rows - 1 }, 0));
        put(&mut tx, OTHER, 1, 1).unwrap_or_else(|abort| panic!("{abort}"));
        assert_eq!(tx.commit(), Ok(()));
    }
}

#[test]
fn an_error_that_rests_on_what_never_was_is_not_believed() {
    let engine = of_ten();
    let mut client = engine.client();
    let mut attempts = 0;
    let ran = client.run(|tx| {
        attempts += 1;
        let first = get(tx, TABLE, 10)?;
        if attempts == 1 {
            meanwhile(&engine, |tx| put(tx, TABLE, 10, 7).and_then(|()| put(tx, TABLE, 20, 7)));
        }
        if first == Some(7) { Ok(()) } else { Err(Abort::user("the rows differ")) }
    });
    // A single read is right by itself: only the second procedure has seen two moments.
    assert_eq!(ran.map_err(|abort| abort.reason()), Err(AbortReason::User));
    meanwhile(&engine, |tx| put(tx, TABLE, 10, 1).and_then(|()| put(tx, TABLE, 20, 1)));
    attempts = 0;
    let ran = client.run(|tx| {
        attempts += 1;
        let first = get(tx, TABLE, 10)?;
        if attempts == 1 {
            meanwhile(&engine, |tx| put(tx, TABLE, 10, 8).and_then(|()| put(tx, TABLE, 20, 8)));
        }
        if first == get(tx, TABLE, 20)? { Ok(()) } else { Err(Abort::user("the rows differ")) }
    });
    assert_eq!((ran, attempts), (Ok(()), 2));
}

#[test]
fn clients_outlive_the_engine_and_its_thread() {
    let engine = OccEngine::new(1);
    let mut client = engine.client();
    drop(engine);
    assert_eq!(client.run(|tx| put(tx, TABLE, 1, 1)), Ok(()));
    assert_eq!(client.run(|tx| get(tx, TABLE, 1)), Ok(Some(1)));
}
