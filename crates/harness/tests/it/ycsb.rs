//! YCSB.

use atrapos::{AbortReason, Database, LoadProgress, SchemeChange, Tx, WorkerId};
use atrapos_harness::driver::Routing;
use atrapos_workloads::ycsb::mix::{Distribution, Kind, Mix};
use atrapos_workloads::ycsb::parameters::Op;
use atrapos_workloads::ycsb::procedures::{NO_RECORD, Order, operations};
use atrapos_workloads::ycsb::schema::{Keys, Narrow, Record, Wide};
use atrapos_workloads::ycsb::{Ycsb, YcsbConfig};
use atrapos_workloads::{AuditError, Ledger, Workload};

use crate::support::{DRIVERS, SESSIONS, THREADS, loaded, run_and_audit, run_once, while_repartitioning};

const ROWS: u64 = 300;

fn config(letter: &str) -> YcsbConfig {
    let mix: Mix = letter.parse().expect("a letter");
    YcsbConfig { rows: ROWS, distribution: mix.distribution(), mix, seed: 6, ..YcsbConfig::default() }
}

fn ycsb<R: Record>(config: YcsbConfig) -> Ycsb<R> {
    Ycsb::new(config).expect("a configuration")
}

fn letters_run<R: Record>() {
    for letter in ["a", "b", "c", "d", "e", "f"] {
        let workload = ycsb::<R>(config(letter));
        let db = loaded(&workload, 2);
        let mut ledger = Ledger::new();
        for (clients, routing) in DRIVERS {
            let result = run_and_audit(&db, &workload, clients, routing, &mut ledger);
            for (kind, share) in Kind::ALL.into_iter().zip(workload.config().mix.shares()) {
                let class = &result.classes[kind as usize];
                assert!(share > 0.0 || class.tally.completed() == 0, "{letter} has no {}", class.name);
                assert_eq!(class.tally.expected_failures, 0);
                assert_eq!(class.tally.aborted.iter().sum::<u64>(), 0, "{letter}: {}", class.name);
            }
        }
    }
}

#[test]
fn every_letter_runs_on_wide_records_under_every_driver() {
    letters_run::<Wide>();
}

#[test]
fn every_letter_runs_on_narrow_records_under_every_driver() {
    letters_run::<Narrow>();
}

#[test]
fn transactions_of_several_operations_leave_a_sound_database() {
    for letter in ["a", "d", "e", "f"] {
        for order in [Order::Sorted, Order::Drawn] {
            let workload = ycsb::<Narrow>(YcsbConfig { operations: 8, order, ..config(letter) });
            let db = loaded(&workload, 3);
            let mut ledger = Ledger::new();
            for (clients, routing) in DRIVERS {
                run_and_audit(&db, &workload, clients, routing, &mut ledger);
            }
        }
    }
}

#[test]
fn every_distribution_runs() {
    for distribution in [Distribution::Zipf, Distribution::Latest, Distribution::Uniform] {
        for scrambled in [true, false] {
            let workload =
                ycsb::<Narrow>(YcsbConfig { distribution, scrambled, operations: 4, ..config("a") });
            let db = loaded(&workload, 2);
            run_and_audit(&db, &workload, SESSIONS, Routing::Any, &mut Ledger::new());
        }
    }
}

#[test]
fn more_workers_than_rows_still_run() {
    let workload = ycsb::<Wide>(YcsbConfig { rows: 2, ..config("d") });
    let db = loaded(&workload, 4);
    let mut ledger = Ledger::new();
    for routing in [Routing::Any, Routing::Owner] {
        run_and_audit(&db, &workload, SESSIONS, routing, &mut ledger);
    }
}

#[test]
fn operations_on_their_own_worker_lock_nothing_and_send_nothing() {
    for operations in [1, 6] {
        let workload = ycsb::<Narrow>(YcsbConfig { operations, ..config("a") });
        let db = loaded(&workload, 2);
        let before = db.statistics();
        run_once(&db, &workload, SESSIONS, Routing::Owner, 1);
        let added = db.statistics().since(&before);
        assert!(added.committed > 0);
        assert_eq!((added.remote_actions, added.locks_entered, added.forwarded), (0, 0, 0));
    }
}

#[test]
fn sorted_transactions_wait_and_never_give_way() {
    let mix = Mix::of_updates(0.5).expect("a share");
    let workload = ycsb::<Narrow>(YcsbConfig { mix, operations: 16, theta: 1.2, ..config("a") });
    let db = Database::builder(workload.schema()).workers(3).pin(false).huge_pages(false).fixed_scheme();
    let db = db.in_memory().expect("the schema is sound");
    workload.load(&db, &LoadProgress::default()).expect("an empty database takes the load");
    let mut ledger = Ledger::new();
    for clients in [SESSIONS, THREADS] {
        let result = run_and_audit(&db, &workload, clients, Routing::Any, &mut ledger);
        let aborted: u64 = result.classes.iter().flat_map(|class| class.tally.aborted).sum();
        assert_eq!(aborted, 0);
    }
    let statistics = db.statistics();
    assert!(statistics.locks_entered > 0, "{statistics:?}");
    assert_eq!(statistics.retried, 0, "no cycle can come about");
}

#[test]
fn records_go_from_worker_to_worker_while_it_runs() {
    for (letter, operations) in [("d", 1), ("a", 8), ("e", 2)] {
        let workload = ycsb::<Narrow>(YcsbConfig { operations, ..config(letter) });
        let db = loaded(&workload, 3);
        let table = db.table::<<Narrow as Record>::Table>().expect("the schema");
        let keys = Keys::of(ROWS);
        let mut ledger = Ledger::new();
        for (clients, routing) in DRIVERS {
            let round = |round: u64| {
                let at = keys.loaded(1 + 37 * round % (ROWS - 1));
                // Now and then a partition begins within a slot.
                let at = at + u64::from(round.is_multiple_of(5)) * 12_345;
                let to = WorkerId((round % 3) as u16);
                vec![SchemeChange::split(table, &at), SchemeChange::move_to(table, &at, to)]
            };
            while_repartitioning(&db, round, || {
                run_and_audit(&db, &workload, clients, routing, &mut ledger);
            });
        }
    }
}

fn does_what_it_says<R: Record>(order: Order) {
    let workload = ycsb::<R>(config("a"));
    let db = loaded(&workload, 3);
    let table = db.table::<R::Table>().expect("the schema");
    let keys = Keys::of(ROWS);
    let run = |ops: Vec<Op>| {
        let route = table.at(&ops[0].key);
        db.run(route, async move |tx: &mut Tx<'_>| operations::<R>(tx, table, keys, &ops, order).await)
    };
    let get = |key: u64| db.run(table.at(&key), async move |tx: &mut Tx<'_>| tx.get(table, key).await);
    let op = |kind, key, detail| Op { kind, key, detail };
    let (first, last, new) = (keys.loaded(1), keys.loaded(ROWS - 1), keys.loaded(150) + 77);
    let column = R::COLUMNS_WRITTEN - 1;
    // All kinds at once, on all workers, not in order.
    let all = vec![
        op(Kind::Update, last, 0),
        op(Kind::Scan, keys.loaded(ROWS - 10), 20),
        op(Kind::Insert, new, 0),
        op(Kind::ReadModifyWrite, first, column),
        op(Kind::Read, keys.loaded(150), 0),
    ];
    assert_eq!(run(all), Ok(()));
    let mut expected = [R::new(last), R::new(first)];
    expected[0] = expected[0].written(last, 0);
    expected[1] = expected[1].written(first, column);
    let [of_last, of_first] = expected;
    assert_eq!(get(last), Ok(Some(of_last.clone())));
    assert_eq!(get(first), Ok(Some(of_first)));
    assert_eq!(get(new), Ok(Some(R::new(new))));
    for kind in [Kind::Read, Kind::Update, Kind::ReadModifyWrite] {
        let abort =
            run(vec![op(Kind::Update, last, 0), op(kind, 5, 0)]).expect_err("there is no such record");
        assert_eq!(abort.detail(), NO_RECORD);
    }
    let taken = run(vec![op(Kind::Update, last, 0), op(Kind::Insert, new, 0)]).expect_err("the key is taken");
    assert_eq!(taken.reason(), AbortReason::DuplicateKey);
    assert_eq!(get(last), Ok(Some(of_last)), "what aborted has left nothing");
}

#[test]
fn operations_do_what_their_names_say() {
    for order in [Order::Sorted, Order::Drawn] {
        does_what_it_says::<Wide>(order);
        does_what_it_says::<Narrow>(order);
    }
}

#[test]
fn the_load_does_not_depend_on_the_number_of_workers() {
    for workers in [1, 3, 8] {
        let workload = ycsb::<Narrow>(config("c"));
        let db = loaded(&workload, workers);
        let table = db.table::<<Narrow as Record>::Table>().expect("the schema");
        assert_eq!(db.len(table.id()), Ok(ROWS), "and each is checked by the audit");
    }
}

/// Plants one bug behind the ledger's back and returns what the audit says.
fn audit_after<R: Record>(
    operations: usize,
    plant: impl AsyncFn(&mut Tx<'_>, atrapos::TableRef<R::Table>) -> Result<(), atrapos::Abort> + Send + 'static,
) -> AuditError {
    let workload = ycsb::<R>(YcsbConfig { operations, ..config("d") });
    let db = loaded(&workload, 2);
    let table = db.table::<R::Table>().expect("the schema");
    let mut ledger = Ledger::new();
    run_and_audit(&db, &workload, SESSIONS, Routing::Any, &mut ledger);
    let planted = db.run(table.at(&0), async move |tx: &mut Tx<'_>| plant(tx, table).await);
    planted.expect("a bug is planted");
    workload.audit(&db, &ledger).expect_err("the audit finds the planted bug")
}

fn finds_planted_bugs<R: Record>() {
    let keys = Keys::of(ROWS);
    let (some, new) = (keys.loaded(123), keys.loaded(9) | 0xffff_ffff);
    for operations in [1, 3] {
        let unasked = audit_after::<R>(operations, async move |tx, table| {
            tx.edit(table, some, move |row| Record::write_column(row, some, 0)).await.map(drop)
        });
        assert!(matches!(unasked, AuditError::Sum { .. }), "{unasked}");

        let another_s = audit_after::<R>(operations, async move |tx, table| {
            tx.update(table, some, |row| *row = R::new(4)).await.map(drop)
        });
        assert!(matches!(&another_s, AuditError::Row { key, .. } if *key == some.to_string()), "{another_s}");

        let invented =
            audit_after::<R>(operations, async move |tx, table| tx.insert(table, new, R::new(new)).await);
        assert!(matches!(invented, AuditError::Count { .. } | AuditError::Sum { .. }), "{invented}");

        let moved = audit_after::<R>(operations, async move |tx, table| {
            tx.delete(table, some).await?;
            tx.insert(table, new, R::new(new)).await
        });
        assert!(matches!(&moved, AuditError::Row { key, .. } if *key == some.to_string()), "{moved}");
    }
}

#[test]
fn the_audit_finds_planted_bugs() {
    finds_planted_bugs::<Wide>();
    finds_planted_bugs::<Narrow>();
}
