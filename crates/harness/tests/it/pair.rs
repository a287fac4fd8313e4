//! The pair of reads of the experiment with the steps from PLP: on every engine and scheme, and an audit that finds damage.

use std::collections::BTreeSet;

use atrapos::{AbortReason, Adaptation, Database, LoadProgress, SchemeSearch};
use atrapos_harness::driver::Routing;
use atrapos_topology::Machine;
use atrapos_workloads::pair::{Pair, Tables, read};
use atrapos_workloads::{Ledger, Workload};

use crate::support::{DRIVERS, SESSIONS, loaded, run_and_audit, run_once};

fn pair() -> Pair {
    Pair::new(ROWS, 5).expect("rows")
}

#[test]
fn pairs_are_read_by_every_driver() {
    let db = loaded(&pair(), 3);
    let mut ledger = Ledger::new();
    for (clients, routing) in DRIVERS {
        run_and_audit(&db, &pair(), clients, routing, &mut ledger);
    }
}

#[test]
fn a_row_that_is_missing_or_changed_is_noticed() {
    let db = loaded(&pair(), 2);
    let tables = Tables::of(&db).expect("its tables");
    assert_eq!(db.run(tables.a.at(&7), async move |tx| read(tx, tables, 7, 7).await), Ok(7));
    let missing = db.run(tables.a.at(&7), async move |tx| read(tx, tables, 7, 8).await);
    assert_eq!(missing.expect_err("there is no such row").reason(), AbortReason::User);
    let edit = async move |tx: &mut atrapos::Tx<'_>| {
        tx.update(tables.b, (1_999, 9), |row| row.number = 3).await.map(drop)
    };
    db.run(tables.b.at(&(1_999, 9)), edit).expect("it commits");
    let wrong = pair().audit(&db, &Ledger::new()).expect_err("a row was changed").to_string();
    assert!(wrong.contains("'b'") && wrong.contains("1999"), "{wrong}");
}

const ROWS: u64 = 2_000;

/// The places of the rows of a database of four workers, of which the first two are on one socket.
#[derive(Debug)]
struct Whereabouts {
    /// The workers that have rows of A, and of B.
    owners: [BTreeSet<u16>; 2],
    /// Rows of each worker.
    rows: [u64; 4],
    /// Pairs of rows that are on two sockets.
    apart: u64,
}

fn whereabouts(db: &Database) -> Whereabouts {
    let (scheme, tables) = (db.scheme(), Tables::of(db).expect("its tables"));
    let mut found = Whereabouts { owners: Default::default(), rows: [0; 4], apart: 0 };
    for key in 0..ROWS {
        let routes = [tables.a.at(&key), tables.b.at(&(key, (key % 10) as u32))];
        let homes = routes.map(|route| scheme.home(&route, 4).0);
        for (owners, home) in found.owners.iter_mut().zip(homes) {
            owners.insert(home);
            found.rows[usize::from(home)] += 1;
        }
        found.apart += u64::from(homes[0] / 2 != homes[1] / 2);
    }
    found
}

/// Runs pairs on a database that observes them, chooses its scheme by them, and returns where the rows are then.
fn chosen(search: Option<SchemeSearch>) -> Whereabouts {
    let (pair, machine) = (pair(), Machine::synthetic("pack:2 core:2 pu:1").expect("a machine"));
    let observing = Adaptation { act: false, sample_every: 4, ..Adaptation::default() };
    let builder = Database::builder(pair.schema()).machine(machine).workers(4).huge_pages(false);
    let db = builder.adaptation(observing).in_memory().expect("the schema is sound");
    pair.load(&db, &LoadProgress::default()).expect("it takes the load");
    db.workload_trace().expect("it observes");
    let (mut completed, mut ledger) = (0, Ledger::new());
    for attempt in 0..200 {
        let result = run_once(&db, &pair, SESSIONS, Routing::Any, attempt);
        ledger.add(&result.tallies_all);
        completed += result.tallies_all[0].completed();
        if completed > 20_000 {
            break;
        }
    }
    if let Some(search) = search {
        let report = db.choose_scheme(search).expect("there is something to choose by");
        assert!(report.moves > 0, "{report:?}");
    }
    pair.audit(&db, &ledger).expect("all rows are there");
    whereabouts(&db)
}

/// Chooses until each worker has a fair part of the rows. Loads are times, and the system may take a worker's core away while it runs
/// what is recorded: then some rows look very expensive.
fn chosen_evenly(search: SchemeSearch) -> Whereabouts {
    let mut uneven = Vec::new();
    while uneven.len() < 8 {
        let found = chosen(Some(search));
        if found.rows.iter().all(|rows| (ROWS / 8..ROWS).contains(rows)) {
            return found;
        }
        uneven.push(found);
    }
    panic!("{search:?}: {uneven:?}");
}

/// A and B are cut and placed as in Figure 6 of the paper: naively on all workers each; by their loads in a row, so that at least
/// half of the workers have rows of one of them alone; and then such that what belongs together is on one socket.
#[test]
fn schemes_are_chosen_as_in_the_paper() {
    let naive = chosen(None);
    assert_eq!((naive.rows, naive.apart), ([ROWS / 2; 4], 0));
    assert_eq!(naive.owners, [BTreeSet::from([0, 1, 2, 3]), BTreeSet::from([0, 1, 2, 3])]);
    let aware = chosen_evenly(SchemeSearch::Partitioning);
    let of_both = aware.owners[0].intersection(&aware.owners[1]).count();
    assert!(of_both <= 2, "in a row, but for what evens the loads: {aware:?}");
    assert!(aware.apart > ROWS / 2, "wherever the workers are: {aware:?}");
    let placed = chosen_evenly(SchemeSearch::PartitioningAndPlacement);
    assert!(placed.apart < ROWS / 2, "what belongs together is on one socket: {placed:?}");
}

#[test]
fn tables_of_no_rows_are_refused() {
    let refused = Pair::new(0, 1).expect_err("no rows").to_string();
    assert!(refused.contains("0 rows in each") && refused.contains("use 1 to"), "{refused}");
}
