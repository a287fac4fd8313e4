//! Planted bugs: each is noticed by the crashes that find nothing wrong without it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use atrapos::planted::{Bug, with};

use crate::durable::given_up::give_up_while_data_moves;
use crate::durable::notes::{crash_once, read_what_has_moved, read_what_is_lent};
use crate::durable::snapshot::{changed_in_the_middle, sum};

fn caught(bug: Bug) {
    caught_by(bug, |seed| crash_once(seed).map(drop));
}

fn caught_by(bug: Bug, run: fn(u64) -> Result<(), String>) {
    for seed in 0..400 {
        let crash = || catch_unwind(AssertUnwindSafe(|| run(seed)));
        if !matches!(with(bug, crash), Ok(Ok(()))) {
            run(seed).expect("without the bug nothing is wrong");
            return;
        }
    }
    panic!("{bug:?} was not noticed");
}

#[test]
fn telling_before_the_sync_is_caught() {
    caught(Bug::ToldBeforeSync);
}

#[test]
fn telling_a_reader_early_is_caught() {
    caught(Bug::ReaderToldEarly);
}

#[test]
fn lending_before_all_is_durable_is_caught() {
    assert_eq!(with(Bug::LentUndurable, || read_what_is_lent(1)), (true, true));
}

#[test]
fn a_skipped_record_is_caught() {
    caught(Bug::LastRecordSkipped);
}

#[test]
fn redo_of_other_workers_that_is_lost_is_caught() {
    caught(Bug::RedoElsewhereLost);
}

#[test]
fn a_checkpoint_that_is_not_held_to_one_moment_is_caught() {
    let (before, held) = changed_in_the_middle(|checkpoint| with(Bug::SnapshotNotHeld, checkpoint));
    // It is not even another state: it is not whole, or money has come or gone.
    let is_a_state = held.is_ok_and(|held| sum(&held) == sum(&before));
    assert!(!is_a_state);
}

#[test]
fn taking_for_durable_what_has_moved_is_caught() {
    assert_eq!(with(Bug::NewestNotInherited, || read_what_has_moved(1)), (true, true, true));
}

#[test]
fn a_state_that_is_used_again_while_others_have_it_is_caught() {
    // Without a lock of somebody else: with one, what such a state does to locks stops the process.
    caught_by(Bug::SharedStateReused, |seed| give_up_while_data_moves(seed, false));
}
