//! Every check is put before a database that is wrong, and has to notice: each planted bug by the scenario that is there to
//! catch it (which finds nothing wrong without the bug), and each kind of damage by `Database::verify`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use atrapos::planted::{Bug, Damage, damage, with};
use atrapos::{CentralState, Database, Schema, Scope, TableId, VerifyError, WorkerId};

use crate::indexes::{ByCity, ByEmail, Orders, Users, family, users};
use crate::isolation::by_hand::numbers;
use crate::isolation::{ages, anomalies, bank, hermitage, lists, queues, shared, unwaited, waiting};
use crate::support::{Engine, Random, open, show, two_tables};
use crate::{central, columns, crud, indexes};

type Scenario = fn(&mut Engine, usize, u64) -> Result<(), String>;

/// Seeds tried with the bug; the first that shows it is enough.
const SEEDS: u64 = 60;

/// Runs the scenario with the bug until it notices, and then once more without.
fn caught(bug: Bug, schema: fn() -> Schema, scenario: Scenario) {
    caught_on(bug, |workers, seed| Engine::simulated(schema(), workers, seed), scenario);
}

/// Runs the scenario like [`caught`], on several instances.
fn caught_deployed(bug: Bug, schema: fn() -> Schema, scenario: Scenario) {
    caught_on(bug, |workers, seed| Engine::deployed(schema, workers + 1, seed), scenario);
}

fn caught_on(bug: Bug, engine: impl Fn(usize, u64) -> Engine, scenario: Scenario) {
    let run = |seed: u64| {
        let workers = 2 + (seed % 3) as usize;
        let mut engine = engine(workers, seed);
        let ended = catch_unwind(AssertUnwindSafe(|| scenario(&mut engine, workers, seed)));
        ended.unwrap_or_else(|_| {
            // What it left half done is not to be undone: that would stop the process.
            std::mem::forget(engine);
            Err("it panicked (see above)".to_owned())
        })
    };
    for seed in 0..SEEDS {
        let Err(noticed) = with(bug, || run(seed)) else { continue };
        show(&format!("{bug:?} is noticed with seed {seed}: {noticed}"));
        assert_eq!(run(seed), Ok(()), "without the bug nothing is wrong");
        return;
    }
    panic!("{bug:?} was not noticed with any of {SEEDS} seeds");
}

#[test]
fn a_footprint_that_is_not_entered_is_caught() {
    caught(Bug::FootprintNotEntered, lists::lists, lists::serializable);
    caught(Bug::FootprintNotEntered, bank::few_accounts, bank::few);
    caught(Bug::FootprintNotEntered, numbers, unwaited::locks_are_not_waited_for);
    caught(Bug::LaterFootprintNotEntered, lists::lists, lists::serializable);
}

#[test]
fn a_direct_transaction_that_gives_up_and_keeps_its_changes_is_caught() {
    caught(Bug::GivenUpNotUndone, lists::lists, lists::serializable);
}

#[test]
fn a_scan_that_is_not_locked_is_caught() {
    caught(Bug::ScanNotLocked, lists::lists, lists::serializable);
    caught(Bug::ScanNotLocked, anomalies::items, anomalies::phantoms);
    caught(Bug::ScanNotLocked, users, anomalies::index_phantoms);
}

#[test]
fn an_action_that_follows_another_without_a_look_at_locks_is_caught() {
    caught(Bug::FollowingNotLocked, lists::lists, lists::serializable);
}

#[test]
fn a_borrower_that_forgets_the_locks_of_its_readers_is_caught() {
    caught(Bug::ReadersForgotten, shared::shared_lists, lists::serializable);
}

#[test]
fn votes_that_are_not_awaited_are_caught() {
    caught_deployed(Bug::VotesNotAwaited, lists::lists, lists::serializable);
}

#[test]
fn changes_that_may_fail_and_are_not_voted_on_are_caught() {
    caught_deployed(Bug::UncertainNotVoted, lists::lists, lists::serializable);
}

#[test]
fn locks_released_before_the_changes_of_a_commit_are_caught() {
    caught_deployed(Bug::ReleasedBeforeChanged, bank::few_accounts, bank::few);
}

#[test]
fn locks_released_before_the_last_read_are_caught() {
    caught_deployed(Bug::ReleasedBeforeLast, lists::lists, lists::serializable);
}

#[test]
fn a_last_read_of_what_others_have_locked_is_caught() {
    caught_deployed(Bug::LastReadOfLocked, lists::lists, lists::serializable);
}

#[test]
fn instances_that_are_not_told_of_an_abort_are_caught() {
    caught_deployed(Bug::AbortNotSent, lists::lists, lists::serializable);
}

#[test]
fn rows_copied_without_locks_are_caught() {
    caught_deployed(Bug::CopyNotLocked, lists::lists, lists::serializable);
    caught_deployed(Bug::CopyNotLocked, bank::few_accounts, bank::few);
}

#[test]
fn an_undo_that_skips_the_second_table_is_caught() {
    caught(Bug::UndoSkipsSecondTable, two_tables, |engine, workers, seed| {
        crud::random_history(engine, workers as u64, seed, 20)
    });
    caught(Bug::UndoSkipsSecondTable, bank::pairs, bank::twins);
}

#[test]
fn locks_released_before_undo_are_caught() {
    caught(Bug::LocksReleasedBeforeUndo, lists::lists, lists::serializable);
    caught(Bug::LocksReleasedBeforeUndo, bank::few_accounts, bank::few);
}

#[test]
fn shared_requests_that_pass_a_waiting_writer_are_caught() {
    caught(Bug::SharedPassesWaiter, waiting::items, waiting::fairness);
}

#[test]
fn queue_order_that_does_not_yield_is_caught() {
    let by_order: [Scenario; 3] =
        [queues::upgrade_before_a_scan, queues::scan_before_a_writer, queues::reader_before_a_writer];
    for schedule in by_order {
        caught(Bug::QueueOrderKept, numbers, schedule);
    }
}

#[test]
fn a_deadlock_that_nobody_looks_for_is_caught() {
    caught(Bug::NoDeadlockProbe, waiting::items, waiting::two_one_by_one);
}

#[test]
fn ages_that_only_one_worker_knows_are_caught() {
    caught(Bug::AgesOfOneWorker, waiting::items, ages::seniority);
}

#[test]
fn an_end_that_stays_in_the_list_of_transactions_is_caught() {
    let listed = |bug| {
        let central = CentralState::all(Scope::Central);
        with(bug, || central::serializable_and_counted(central, 1))
    };
    assert!(listed(Bug::EndStaysListed).is_err_and(|wrong| wrong.contains("under way")));
}

#[test]
fn an_index_entry_left_behind_is_caught() {
    caught(Bug::EntryLeftBehind, users, |engine, workers, seed| {
        indexes::random_history(engine, workers as u64, seed, 20)
    });
}

#[test]
fn an_index_entry_that_is_not_added_is_caught() {
    caught(Bug::EntryNotAdded, users, |engine, workers, seed| {
        indexes::random_history(engine, workers as u64, seed, 20)
    });
}

#[test]
fn checks_among_changes_of_entries_are_caught() {
    caught(
        Bug::ChecksAmongChanges,
        || family(true),
        |engine, workers, _| indexes::families_at_once(engine, workers as u64),
    );
}

#[test]
fn an_end_that_is_not_passed_on_is_caught() {
    caught(Bug::EndNotPassedOn, bank::few_accounts, bank::few);
}

#[test]
fn an_edit_that_is_undone_in_part_is_caught() {
    caught(Bug::EditUndoneInPart, users, columns::random_changes);
}

#[test]
fn locks_left_behind_by_a_move_are_caught() {
    caught(Bug::LocksLeftBehind, lists::lists, lists::serializable);
}

#[test]
fn undo_left_behind_by_a_move_is_caught() {
    caught(Bug::UndoLeftBehind, bank::few_accounts, bank::few);
}

#[test]
fn waiters_left_behind_by_a_move_are_caught() {
    caught(Bug::WaitersLeftBehind, bank::few_accounts, bank::few);
}

#[test]
fn the_anomalies_of_hermitage_show_when_they_are_possible() {
    // Of reads: a row that two transactions have written stops the process when one of them is undone.
    let by_footprints: [Scenario; 3] = [hermitage::p4, hermitage::g_single, hermitage::g2_item];
    for schedule in by_footprints {
        caught(Bug::FootprintNotEntered, numbers, schedule);
    }
    let by_ranges: [Scenario; 6] = [
        hermitage::pmp,
        hermitage::pmp_by_index,
        hermitage::g_single_predicate,
        hermitage::g2,
        hermitage::g2_by_index,
        hermitage::g2_two_edges,
    ];
    for schedule in by_ranges {
        caught(Bug::ScanNotLocked, numbers, schedule);
    }
    caught(Bug::LocksReleasedBeforeUndo, numbers, hermitage::g1a);
    let by_cycles: [Scenario; 2] = [hermitage::g1c, hermitage::g_single_write];
    for schedule in by_cycles {
        caught(Bug::NoDeadlockProbe, numbers, schedule);
    }
    let by_moves: [Scenario; 2] = [hermitage::otv, hermitage::g1b];
    for schedule in by_moves {
        caught(Bug::LocksLeftBehind, numbers, schedule);
    }
}

// --- Damage at rest --------------------------------------------------------------------------------------------------

/// A database of parents and children with indexes, damaged in one place: what `verify` says of it.
fn verdict(table: impl Fn(&Database) -> TableId, kind: Damage) -> VerifyError {
    let db = open(family(true), 3);
    let (users, orders) = (db.table::<Users>().unwrap(), db.table::<Orders>().unwrap());
    let mut random = Random::new(3);
    for key in (0..90).step_by(3) {
        let email = format!("{}{key}", (b'a' + random.below(16) as u8) as char);
        let city = random.below(8) as u32;
        db.run(users.at(&key), async move |tx| {
            tx.insert(users, key, indexes::user(city, &email)).await?;
            tx.insert(orders, (key, 1), indexes::Order { cents: 1 }).await
        })
        .unwrap();
    }
    let whole = db.verify().unwrap();
    assert_eq!((whole.rows, whole.entries, whole.references), (60, 60, 30));
    let table = table(&db);
    let damaged = (0..3).any(|worker| damage(&db, table, WorkerId(worker), kind).unwrap());
    assert!(damaged, "there was nothing to damage");
    db.verify().expect_err("the database is damaged")
}

#[test]
fn damaged_indexes_do_not_verify() {
    type Find = fn(&Database) -> TableId;
    let indexes: [(&str, Find); 2] = [
        ("users_by_email", |db| db.index::<ByEmail>().unwrap().id()),
        ("users_by_city", |db| db.index::<ByCity>().unwrap().id()),
    ];
    for (name, index) in indexes {
        for (kind, what) in [
            (Damage::FirstGone, "is missing"),
            (Damage::FirstAstray, "leads to another row"),
            (Damage::OneTooMany, "31 entries for 30 rows"),
        ] {
            let verdict = verdict(index, kind);
            let VerifyError::Index { index, what: found } = &verdict else { panic!("{kind:?}: {verdict}") };
            assert_eq!(*index, name);
            assert!(found.contains(what), "{kind:?}: {verdict}");
        }
    }
}

#[test]
fn a_row_without_its_entries_does_not_verify() {
    let verdict = verdict(|db| db.table::<Users>().unwrap().id(), Damage::OneTooMany);
    assert!(matches!(verdict, VerifyError::Index { .. }), "{verdict}");
}

#[test]
fn a_child_without_its_parent_does_not_verify() {
    // The parent's entries are left, but the orders are looked at one by one.
    let verdict = verdict(|db| db.table::<Users>().unwrap().id(), Damage::FirstGone);
    let text = verdict.to_string();
    assert!(
        matches!(
            verdict,
            VerifyError::NoParent { child: "orders", parent: "users", .. } | VerifyError::Index { .. }
        ),
        "{text}"
    );
    let verdict = self::verdict(|db| db.table::<Orders>().unwrap().id(), Damage::OneTooMany);
    assert!(matches!(verdict, VerifyError::NoParent { child: "orders", parent: "users", .. }), "{verdict}");
}

#[test]
fn misplaced_rows_and_forgotten_locks_do_not_verify() {
    let misplaced = verdict(|db| db.table::<Users>().unwrap().id(), Damage::Misplaced);
    assert!(matches!(misplaced, VerifyError::Misplaced { table: "users", .. }), "{misplaced}");
    let locked = verdict(|db| db.table::<Users>().unwrap().id(), Damage::LockLeft);
    assert_eq!(
        locked.to_string(),
        "'users': 1 locks are held and 0 requests wait although no transaction runs"
    );
}
