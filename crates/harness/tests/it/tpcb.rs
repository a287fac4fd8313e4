//! TPC-B.

use atrapos::{Database, SchemeChange, Tx, WorkerId};
use atrapos_harness::driver::Routing;
use atrapos_workloads::tpcb::parameters::Request;
use atrapos_workloads::tpcb::schema::{Account, History, Tables};
use atrapos_workloads::tpcb::{Tpcb, TpcbConfig, procedures};
use atrapos_workloads::{AuditError, Ledger, Workload};

use crate::support::{DRIVERS, SESSIONS, loaded, run_and_audit, run_once, while_repartitioning};

const CONFIG: TpcbConfig =
    TpcbConfig { branches: 6, accounts_per_branch: 40, remote: 0.15, apart: false, seed: 11 };

fn tpcb(config: TpcbConfig) -> Tpcb {
    Tpcb::new(config).expect("a configuration")
}

#[test]
fn it_runs_under_every_driver_and_leaves_a_sound_database() {
    for remote in [0.0, 0.15, 1.0] {
        for workers in [1, 2, 3] {
            let workload = tpcb(TpcbConfig { remote, ..CONFIG });
            let db = loaded(&workload, workers);
            let mut ledger = Ledger::new();
            for (clients, routing) in DRIVERS {
                let result = run_and_audit(&db, &workload, clients, routing, &mut ledger);
                let [local, far] = [0, 1].map(|class| result.classes[class].tally.committed);
                assert!(local + far > 0);
                assert!(remote > 0.0 || far == 0, "no account was to be of another branch");
                assert!(remote < 1.0 || local == 0, "all accounts were to be of another branch");
                let failed: u64 = result.classes.iter().map(|class| class.tally.expected_failures).sum();
                assert_eq!(failed, 0, "nothing is expected to fail");
            }
        }
    }
}

#[test]
fn few_branches_run_on_many_workers() {
    for branches in [1, 2] {
        let workload = tpcb(TpcbConfig { branches, remote: 1.0, ..CONFIG });
        let db = loaded(&workload, 3);
        let mut ledger = Ledger::new();
        for routing in [Routing::Any, Routing::Owner] {
            run_and_audit(&db, &workload, SESSIONS, routing, &mut ledger);
        }
    }
}

#[test]
fn transactions_on_their_own_branch_lock_nothing_and_send_nothing_and_remote_ones_do() {
    let workload = tpcb(TpcbConfig { remote: 0.0, ..CONFIG });
    let db = loaded(&workload, 2);
    let before = db.statistics();
    run_once(&db, &workload, SESSIONS, Routing::Owner, 1);
    let added = db.statistics().since(&before);
    assert!(added.committed > 0);
    assert_eq!((added.remote_actions, added.locks_entered, added.forwarded), (0, 0, 0));

    let workload = tpcb(TpcbConfig { remote: 1.0, ..CONFIG });
    let db = loaded(&workload, 2);
    let mut ledger = Ledger::new();
    run_and_audit(&db, &workload, SESSIONS, Routing::Owner, &mut ledger);
    assert!(db.statistics().remote_actions > 0);
}

#[test]
fn branches_go_from_worker_to_worker_while_it_runs() {
    let workload = tpcb(TpcbConfig { remote: 0.5, ..CONFIG });
    let db = loaded(&workload, 3);
    let branch = Tables::of(&db).expect("the schema").branch;
    let mut ledger = Ledger::new();
    for (clients, routing) in DRIVERS {
        let round = |round: u64| {
            let to = WorkerId((round % 3) as u16);
            // Branch 0 begins where its partition begins already.
            let at = 1 + round % 5;
            vec![SchemeChange::split(branch, &at), SchemeChange::move_to(branch, &at, to)]
        };
        while_repartitioning(&db, round, || {
            run_and_audit(&db, &workload, clients, routing, &mut ledger);
        });
    }
    workload.audit(&db, &ledger).expect("it is sound when all is quiet");
}

#[test]
fn the_transaction_does_what_the_specification_says() {
    let workload = tpcb(CONFIG);
    let db = loaded(&workload, 2);
    let tables = Tables::of(&db).expect("the schema");
    let run = |request: Request| {
        db.run(tables.branch.at(&request.b_id), async move |tx: &mut Tx<'_>| {
            procedures::account_update(tx, tables, request, 77).await
        })
    };
    // The second account is of another branch, on the other worker.
    let local = Request { b_id: 1, t_id: 4, account: (1, 7), delta: 500 };
    let remote = Request { b_id: 1, t_id: 4, account: (5, 7), delta: -999_999 };
    assert_eq!(run(local), Ok(500));
    assert_eq!(run(remote), Ok(-999_999));
    assert_eq!(run(local), Ok(1000));
    let read = async move |tx: &mut Tx<'_>| {
        let branch = tx.get(tables.branch, 1).await?.map(|row| row.balance);
        let teller = tx.get(tables.teller, (1, 4)).await?.map(|row| (row.balance, row.entries));
        let account = tx.get(tables.account, (5, 7)).await?.map(|row| row.balance);
        Ok((branch, teller, account, tx.get(tables.history, (1, 4, 1)).await?))
    };
    let (branch, teller, account, entry) = db.run(tables.branch.at(&1), read).expect("a read");
    assert_eq!((branch, teller, account), (Some(-998_999), Some((-998_999, 3)), Some(-999_999)));
    let expected =
        History { account_branch: 5, account: 7, delta: -999_999, time_ns: 77, filler: History::FILLER };
    assert_eq!(entry, Some(expected));
    for nobody in [
        Request { b_id: 6, ..local },
        Request { t_id: 10, ..local },
        Request { account: (1, 40), ..local },
        Request { account: (9, 1), ..local },
    ] {
        let abort = run(nobody).expect_err("there is no such row");
        assert_eq!(abort.detail(), procedures::NO_ROW);
    }
    assert_eq!(db.len(tables.history.id()), Ok(3), "what aborted has left nothing");
}

/// Plants one bug behind the ledger's back and returns what the audit says.
fn audit_after(
    plant: impl AsyncFn(&mut Tx<'_>, Tables) -> Result<(), atrapos::Abort> + Send + 'static,
) -> AuditError {
    let workload = tpcb(CONFIG);
    let db: Database = loaded(&workload, 2);
    let tables = Tables::of(&db).expect("the schema");
    let mut ledger = Ledger::new();
    run_and_audit(&db, &workload, SESSIONS, Routing::Any, &mut ledger);
    let planted = db.run(tables.branch.at(&2), async move |tx: &mut Tx<'_>| plant(tx, tables).await);
    planted.expect("a bug is planted");
    workload.audit(&db, &ledger).expect_err("the audit finds the planted bug")
}

#[test]
fn the_audit_finds_planted_bugs() {
    let lost = audit_after(async |tx, tables| {
        tx.update(tables.account, (2, 3), |row| row.balance += 1).await.map(drop)
    });
    assert!(matches!(lost, AuditError::Money { .. }) && lost.to_string().contains("accounts"), "{lost}");

    let wrong_branch =
        audit_after(async |tx, tables| tx.update(tables.branch, 2, |row| row.balance += 1).await.map(drop));
    assert!(
        matches!(&wrong_branch, AuditError::Row { table: "branch", key, .. } if key == "2"),
        "{wrong_branch}"
    );

    let wrong_teller = audit_after(async |tx, tables| {
        tx.update(tables.branch, 2, |row| row.balance -= 9).await?;
        tx.update(tables.teller, (2, 9), |row| row.balance -= 9).await.map(drop)
    });
    assert!(matches!(wrong_teller, AuditError::Row { table: "teller", .. }), "{wrong_teller}");

    // The right sums on the wrong account.
    let swapped = audit_after(async |tx, tables| {
        tx.update(tables.account, (2, 3), |row| row.balance += 5).await?;
        tx.update(tables.account, (4, 3), |row| row.balance -= 5).await.map(drop)
    });
    assert!(matches!(swapped, AuditError::Sum { .. }), "{swapped}");

    // A whole transaction that nobody has counted.
    let uncounted = audit_after(async |tx, tables| {
        let request = Request { b_id: 2, t_id: 0, account: (2, 0), delta: 0 };
        procedures::account_update(tx, tables, request, 1).await.map(drop)
    });
    assert!(matches!(uncounted, AuditError::Count { table: "history", .. }), "{uncounted}");

    let torn = audit_after(async |tx, tables| {
        tx.update(tables.account, (2, 0), |row| row.filler[5] ^= 1).await.map(drop)
    });
    assert!(torn.to_string().contains("filler"), "{torn}");

    // An account that is gone and one that was invented, so that the number of rows is right.
    let replaced = audit_after(async |tx, tables| {
        let row = tx.delete(tables.account, (2, 39)).await?.unwrap_or(Account::loaded(2, 39));
        tx.insert(tables.account, (2, 40), row).await
    });
    assert!(matches!(replaced, AuditError::Row { table: "account", .. }), "{replaced}");
}
