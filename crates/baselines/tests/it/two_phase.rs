//! `shared-2pl`: planted bugs of the engine, each of which the check of histories notices.

#![cfg(debug_assertions)]

use std::ops::ControlFlow;
use std::sync::mpsc::channel;

use atrapos_baselines::RowTransaction;
use atrapos_baselines::planted::{Bug, Place, with, with_at};
use atrapos_baselines::two_phase::{LockingClient, LockingEngine, LockingTransaction};
use atrapos_partition::schema::TableId;

use crate::engines::run_and_judge;

/// Histories after which a bug that nobody has noticed is taken for unnoticed.
const HISTORIES: u64 = 400;

fn caught_by_histories(bug: Bug) -> String {
    let engine = || -> Box<dyn atrapos_baselines::Engine> { Box::new(LockingEngine::new(3)) };
    let caught = (0..HISTORIES).find_map(|seed| run_and_judge(engine, seed, |run| with(bug, run)).err());
    caught.unwrap_or_else(|| panic!("{bug:?} was not noticed in {HISTORIES} histories"))
}

#[test]
fn histories_show_gaps_that_scans_leave_open() {
    caught_by_histories(Bug::ScansWithoutGaps);
}

#[test]
fn histories_show_rows_that_leave_too_early() {
    caught_by_histories(Bug::RemovedAtOnce);
}

#[test]
fn histories_show_keys_that_do_not_stay_absent() {
    caught_by_histories(Bug::AbsentNotLocked);
}

#[test]
fn histories_show_changes_that_an_abort_leaves() {
    caught_by_histories(Bug::UndoLeftOut);
}

const TABLE: TableId = TableId(0);

fn insert(client: &mut LockingClient, key: u8) {
    client.attempt(|tx| tx.insert(TABLE, &[key], &[key])).unwrap_or_else(|abort| panic!("{abort}"));
}

/// Reads the keys up to 30, and protects no gap above it.
fn scan(tx: &mut LockingTransaction<'_>) -> Vec<u8> {
    let mut keys = Vec::new();
    let visited = tx.scan(TABLE, (&[0], None), false, &mut |key, _| {
        keys.extend_from_slice(key);
        Ok(if key == [30] { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    });
    visited.unwrap_or_else(|abort| panic!("{abort}"));
    keys
}

fn is_in_tree(engine: &LockingEngine, wanted: u8) -> bool {
    let mut found = false;
    let visited = engine.walk(TABLE, &mut |key, _| {
        found |= key == [wanted];
        Ok(ControlFlow::Continue(()))
    });
    visited.is_ok() && found
}

/// What happens while somebody has scanned up to 30, which has come between the looks of an insertion of 20.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Overtaken {
    /// The insertion of 20 ends.
    ends: bool,
    /// An insertion of 10, whose next key is 20, ends.
    ends_below: bool,
}

/// Runs these transactions with a bug, after which `wanted` happens, or without: nothing happens then for a while.
fn overtaken(bug: Option<(Bug, Overtaken)>) -> Overtaken {
    let engine = LockingEngine::new(1);
    insert(&mut engine.client(), 40);
    let ((overtaken, is_overtaken), (go, may_go)) = (channel(), channel());
    std::thread::scope(|scope| {
        let engine = &engine;
        let planted = move |run: &mut dyn FnMut()| match bug {
            Some((bug, _)) => with(bug, run),
            None => run(),
        };
        let insertion = scope.spawn(move || {
            let wait = move || {
                overtaken.send(()).expect("the test waits");
                may_go.recv().expect("the test sends");
            };
            with_at(Place::BetweenLooks, wait, || planted(&mut || insert(&mut engine.client(), 20)));
        });
        is_overtaken.recv().expect("the insertion has looked once");
        insert(&mut engine.client(), 30);
        let mut client = engine.client();
        let mut reader = client.begin();
        assert_eq!(scan(&mut reader), [30]);
        go.send(()).expect("the insertion waits");
        while !is_in_tree(engine, 20) {
            std::thread::yield_now();
        }
        let below = scope.spawn(move || insert(&mut engine.client(), 10));
        let now = || Overtaken { ends: insertion.is_finished(), ends_below: below.is_finished() };
        // What a bug lets happen, happens by itself. Otherwise both wait for the reader.
        let mut rounds = 0;
        while bug.map_or(rounds < 200, |(_, wanted)| now() != wanted) {
            std::thread::yield_now();
            rounds += 1;
        }
        now()
    })
}

#[test]
fn an_insertion_that_was_overtaken_waits_for_those_who_protect_its_gap() {
    assert_eq!(overtaken(None), Overtaken { ends: false, ends_below: false });
    let both = Overtaken { ends: true, ends_below: true };
    assert_eq!(overtaken(Some((Bug::InsertionNotLookedAtAgain, both))), both);
    let below = Overtaken { ends: false, ends_below: true };
    assert_eq!(overtaken(Some((Bug::NewGapShared, below))), below);
}
