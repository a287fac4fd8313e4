//! Planted bugs: each of them is noticed by a step-by-step test, or by the check of histories.

#![cfg(debug_assertions)]

use std::cell::Cell;

use atrapos_baselines::occ::OccEngine;
use atrapos_baselines::planted::{Bug, with};
use atrapos_baselines::{Intent, RowTransaction};

use crate::engines::run_and_judge;

use super::{OTHER, TABLE, engine, get, load, put, range, rows};

/// Histories after which a bug that nobody has noticed is taken for unnoticed.
const HISTORIES: u64 = 400;

/// Returns what the check of histories says about a bug.
fn caught_by_histories(bug: Bug) -> String {
    let caught = (0..HISTORIES)
        .find_map(|seed| run_and_judge(|| Box::new(OccEngine::new(3)), seed, |run| with(bug, run)).err());
    caught.unwrap_or_else(|| panic!("{bug:?} was not noticed in {HISTORIES} histories"))
}

#[test]
fn histories_show_that_leaves_are_not_validated() {
    let wrong = caught_by_histories(Bug::NodesNotValidated);
    assert!(wrong.contains("read "), "{wrong}");
}

#[test]
fn histories_show_that_rows_are_not_validated() {
    caught_by_histories(Bug::ReadsNotValidated);
}

#[test]
fn histories_show_torn_rows() {
    let wrong = caught_by_histories(Bug::TornReads);
    assert!(!wrong.is_empty());
}

#[test]
fn histories_show_records_that_were_replaced() {
    caught_by_histories(Bug::ObsoleteIgnored);
}

#[test]
fn histories_show_insertions_that_hide_others() {
    caught_by_histories(Bug::OwnInsertHidesOthers);
}

#[test]
fn histories_show_insertions_that_an_abort_keeps() {
    caught_by_histories(Bug::InsertsKept);
}

/// Two transactions, one between the steps of the other; returns whether both committed, and the rows afterwards.
fn phantom() -> bool {
    let engine = engine();
    load(&engine, TABLE, [(1, 0)]);
    let (mut one, mut two) = (engine.client(), engine.client());
    let (mut first, mut second) = (one.begin(), two.begin());
    let counted =
        range(&mut first, TABLE, (0, None), false).and_then(|_| range(&mut second, TABLE, (0, None), true));
    let made = put(&mut first, OTHER, 1, 1).and_then(|()| put(&mut second, TABLE, 2, 2));
    assert!(counted.is_ok() && made.is_ok());
    second.commit().is_ok() && first.commit().is_ok()
}

fn lost_update() -> bool {
    let engine = engine();
    load(&engine, TABLE, [(1, 0)]);
    let (mut one, mut two) = (engine.client(), engine.client());
    let (mut first, mut second) = (one.begin(), two.begin());
    for tx in [&mut first, &mut second] {
        let before = get(tx, TABLE, 1).ok().flatten().unwrap_or(9);
        assert!(put(tx, TABLE, 1, before + 1).is_ok());
    }
    let both = first.commit().is_ok() && second.commit().is_ok();
    assert_eq!(rows(&engine, TABLE)[0].1, 1);
    both
}

fn write_skew() -> bool {
    let engine = engine();
    load(&engine, TABLE, [(0, 1), (1, 1)]);
    let (mut one, mut two) = (engine.client(), engine.client());
    let (mut first, mut second) = (one.begin(), two.begin());
    for (tx, own) in [(&mut first, 0), (&mut second, 1)] {
        assert!(get(tx, TABLE, 1 - own).is_ok() && put(tx, TABLE, own, 0).is_ok());
    }
    first.commit().is_ok() && second.commit().is_ok()
}

fn replaced_by_longer() -> bool {
    let engine = engine();
    load(&engine, TABLE, [(1, 0), (2, 0)]);
    let (mut one, mut two) = (engine.client(), engine.client());
    let (mut first, mut second) = (one.begin(), two.begin());
    assert_eq!(get(&mut first, TABLE, 1), Ok(Some(0)));
    let key = 1_u64.to_be_bytes();
    assert!(second.read(TABLE, &key, Intent::Write).is_ok());
    assert!(second.replace(TABLE, &key, &[7; 100]).is_ok() && second.commit().is_ok());
    put(&mut first, TABLE, 2, 1).is_ok() && first.commit().is_ok()
}

fn own_insertion() -> bool {
    let engine = engine();
    let (mut one, mut two) = (engine.client(), engine.client());
    let (mut first, mut second) = (one.begin(), two.begin());
    assert!(range(&mut first, TABLE, (0, None), false).is_ok());
    assert!(put(&mut second, TABLE, 2, 2).is_ok() && second.commit().is_ok());
    put(&mut first, TABLE, 1, 1).is_ok() && first.commit().is_ok()
}

fn aborted_insertion() -> bool {
    let engine = engine();
    let mut client = engine.client();
    let mut tx = client.begin();
    assert!(tx.insert(TABLE, &[1], &[1]).is_ok());
    tx.abort();
    engine.rows(TABLE) != Ok(0)
}

/// An interleaving that goes wrong with a bug, and does not without.
type Interleaving = fn() -> bool;

#[test]
fn interleavings_go_wrong_with_a_bug_and_only_then() {
    let all: [(Bug, Interleaving); 6] = [
        (Bug::NodesNotValidated, phantom),
        (Bug::ReadsNotValidated, lost_update),
        (Bug::ReadsNotValidated, write_skew),
        (Bug::ObsoleteIgnored, replaced_by_longer),
        (Bug::OwnInsertHidesOthers, own_insertion),
        (Bug::InsertsKept, aborted_insertion),
    ];
    let noticed = Cell::new(0);
    for (bug, interleaving) in all {
        assert!(!interleaving(), "it goes wrong without {bug:?}");
        with(bug, || {
            assert!(interleaving(), "{bug:?} does no harm");
            noticed.set(noticed.get() + 1);
        });
    }
    assert_eq!(noticed.get(), all.len());
}
