//! `shared-2pl`: planted bugs of the engine, each of which the check of histories notices.

#![cfg(debug_assertions)]

use atrapos_baselines::lock::planted::{Bug, with};
use atrapos_baselines::two_phase::LockingEngine;

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
fn histories_show_insertions_that_look_only_once() {
    caught_by_histories(Bug::InsertionNotLookedAtAgain);
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
