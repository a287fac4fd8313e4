//! Mistakes in statements that the tests notice.

use atrapos::Durability;
use atrapos::planted::{Bug, with};

use super::columns::saved_meanwhile;
use super::fixture::{Held, create_with, empty, files, index, insert, people, reopen};
use super::indexes::under_load;
use super::tables::left_of_a_copy;

#[test]
fn a_drop_that_waits_for_nobody_is_noticed() {
    let db = empty();
    let held = Held::begin(&db);
    with(Bug::TableNotDrained, || db.drop_table("people")).unwrap();
    assert!(!held.has_ended(), "a planted bug was not noticed");
}

#[test]
fn a_checkpoint_without_a_closed_table_is_noticed() {
    let left = saved_meanwhile(|db| {
        with(Bug::ClosedTableLeftOut, || db.checkpoint()).unwrap();
    });
    assert!(left.is_empty(), "a planted bug was not noticed");
}

#[test]
fn an_index_that_is_filled_without_locks_is_noticed() {
    let db = empty();
    let create = || with(Bug::FillNotLocked, || db.create_index("people", index("by_age", &[1], false)));
    assert!(under_load(&db, 200, create).is_err(), "a planted bug was not noticed");
}

#[test]
fn a_definition_that_is_there_before_its_entries_is_noticed() {
    // The entries are written at the end of a long time, or of a crash.
    let files = files();
    let db = create_with(&files, Durability::Relaxed { max_loss_ms: 3_600_000 });
    db.create_table(people("people", &[])).unwrap();
    let table = db.table().unwrap();
    (0..100).for_each(|id| insert(&db, table, id, 1).unwrap());
    db.checkpoint().unwrap();
    let create = || db.create_index("people", index("by_age", &[1], false));
    with(Bug::DefinedBeforeCommits, create).unwrap();
    let left = reopen(&files.power_cut(1));
    assert!(left.verify().is_err(), "a planted bug was not noticed");
}

#[test]
fn a_table_that_is_dropped_before_what_was_committed_earlier_is_durable_is_noticed() {
    let durability = Durability::Relaxed { max_loss_ms: 3_600_000 };
    let left = with(Bug::DefinedBeforeCommits, || left_of_a_copy(durability));
    assert_eq!(left, 0, "a planted bug was not noticed");
}
