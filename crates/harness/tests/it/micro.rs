//! The microbenchmark.

use atrapos::Tx;
use atrapos_harness::driver::Routing;
use atrapos_workloads::micro::{Kind, Micro, MicroConfig, table_of};
use atrapos_workloads::{AuditError, Ledger, Workload};

use crate::support::{DRIVERS, SESSIONS, loaded, run_and_audit, run_once};

const CONFIG: MicroConfig = MicroConfig {
    sites: 2,
    rows_per_site: 300,
    rows_per_transaction: 4,
    kind: Kind::Update,
    multisite: 0.0,
    zipf: 0.0,
    seed: 5,
};

fn micro(config: MicroConfig) -> Micro {
    Micro::new(config).expect("a configuration")
}

#[test]
fn every_kind_runs_under_every_driver_and_leaves_a_sound_database() {
    for kind in [Kind::Read, Kind::Update] {
        for (multisite, zipf) in [(0.0, 0.0), (0.3, 0.0), (1.0, 0.9)] {
            let workload = micro(MicroConfig { kind, multisite, zipf, ..CONFIG });
            let db = loaded(&workload, 2);
            let mut ledger = Ledger::new();
            for (clients, routing) in DRIVERS {
                let result = run_and_audit(&db, &workload, clients, routing, &mut ledger);
                let [local, multi] = [0, 1].map(|class| result.classes[class].tally.completed());
                assert!(local + multi > 0);
                assert!(multisite > 0.0 || multi == 0, "no transaction was to be multisite");
                assert!(multisite < 1.0 || local == 0, "all transactions were to be multisite");
            }
        }
    }
}

#[test]
fn single_rows_and_whole_sites_can_be_touched() {
    for rows_per_transaction in [1, 300] {
        let workload = micro(MicroConfig { rows_per_transaction, ..CONFIG });
        let db = loaded(&workload, 2);
        run_and_audit(&db, &workload, SESSIONS, Routing::Any, &mut Ledger::new());
    }
}

#[test]
fn local_transactions_lock_nothing_and_send_nothing_and_multisite_ones_do() {
    let workload = micro(CONFIG);
    let db = loaded(&workload, 2);
    let before = db.statistics();
    run_once(&db, &workload, SESSIONS, Routing::Owner, 1);
    let added = db.statistics().since(&before);
    assert!(added.committed > 0);
    assert_eq!((added.remote_actions, added.locks_entered, added.forwarded), (0, 0, 0));

    let workload = micro(MicroConfig { multisite: 1.0, ..CONFIG });
    let db = loaded(&workload, 2);
    run_and_audit(&db, &workload, SESSIONS, Routing::Owner, &mut Ledger::new());
    let added = db.statistics();
    assert!(added.remote_actions > 0 && added.locks_entered > 0);
}

#[test]
fn more_workers_than_sites_still_run() {
    let workload = micro(CONFIG);
    let db = loaded(&workload, 3);
    let mut ledger = Ledger::new();
    for routing in [Routing::Any, Routing::Owner] {
        run_and_audit(&db, &workload, SESSIONS, routing, &mut ledger);
    }
}

#[test]
fn the_audit_finds_planted_bugs() {
    let workload = micro(CONFIG);
    let mut ledger = Ledger::new();
    let db = loaded(&workload, 2);
    run_and_audit(&db, &workload, SESSIONS, Routing::Any, &mut ledger);
    let table = table_of(&db).expect("the schema");
    let audit = || workload.audit(&db, &ledger).expect_err("the audit finds the planted bug");

    // A lost update: a counter goes back by one.
    let undo =
        async move |tx: &mut Tx<'_>| tx.update(table, 7, |row| row.count = row.count.wrapping_sub(1)).await;
    let redo =
        async move |tx: &mut Tx<'_>| tx.update(table, 7, |row| row.count = row.count.wrapping_add(1)).await;
    db.run(table.at(&7), redo).expect("an update");
    assert!(matches!(audit(), AuditError::Sum { .. }), "{}", audit());
    db.run(table.at(&7), undo).expect("an update");
    assert_eq!(workload.audit(&db, &ledger).map(|report| report.rows), Ok(600));

    // A torn row.
    db.run(table.at(&400), async move |tx: &mut Tx<'_>| {
        tx.update(table, 400, |row| row.padding[9] ^= 1).await
    })
    .expect("an update");
    assert!(matches!(audit(), AuditError::Row { key, .. } if key == "400"));
    db.run(table.at(&400), async move |tx: &mut Tx<'_>| {
        tx.update(table, 400, |row| row.padding[9] ^= 1).await
    })
    .expect("an update");

    // A lost row, and one that was invented.
    let swap = async move |tx: &mut Tx<'_>| {
        let row = tx.delete(table, 599).await?;
        tx.insert(table, 600, row.ok_or_else(|| atrapos::Abort::user("the row is there"))?).await
    };
    db.run(table.at(&599), swap).expect("a swap");
    assert!(matches!(audit(), AuditError::Row { key, .. } if key == "599"));
}
