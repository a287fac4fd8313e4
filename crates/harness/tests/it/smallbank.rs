//! SmallBank.

use std::sync::Barrier;

use atrapos::{AbortReason, Database, LoadProgress, SchemeChange, Tx, WorkerId};
use atrapos_harness::driver::Routing;
use atrapos_workloads::smallbank::parameters::{Class, Mix, Skew};
use atrapos_workloads::smallbank::procedures::{
    NOT_COVERED, PENALTY, amalgamate, balance, deposit_checking, send_payment, transact_savings, write_check,
};
use atrapos_workloads::smallbank::schema::{Tables, loaded as at_first, name_of};
use atrapos_workloads::smallbank::{SmallBank, SmallBankConfig};
use atrapos_workloads::{AuditError, Ledger, Workload};

use crate::support::{DRIVERS, SESSIONS, THREADS, loaded, run_and_audit, run_once, while_repartitioning};

const CUSTOMERS: u64 = 60;
const SEED: u64 = 13;
const CONFIG: SmallBankConfig = SmallBankConfig {
    customers: CUSTOMERS,
    mix: Mix::Standard,
    skew: Skew::Zipf(0.99),
    apart: false,
    seed: SEED,
};

fn smallbank(config: SmallBankConfig) -> SmallBank {
    SmallBank::new(config).expect("a configuration")
}

#[test]
fn every_class_runs_under_every_driver_and_leaves_a_sound_database() {
    let db = loaded(&smallbank(CONFIG), 2);
    let mut ledger = Ledger::new();
    for class in Class::ALL {
        let workload = smallbank(SmallBankConfig { mix: Mix::Only(class), ..CONFIG });
        for (clients, routing) in DRIVERS {
            let result = run_and_audit(&db, &workload, clients, routing, &mut ledger);
            for (other, of_other) in Class::ALL.into_iter().zip(&result.classes) {
                let completed = of_other.tally.completed();
                assert_eq!(completed > 0, other == class, "{}: {completed}", other.name());
            }
        }
    }
}

#[test]
fn the_standard_mix_runs_with_every_skew_and_leaves_a_sound_database() {
    let hotspot = Skew::Hotspot { customers: 3, share: 0.9 };
    for (workers, skew) in [(1, Skew::Zipf(0.0)), (2, Skew::Zipf(0.99)), (3, Skew::Zipf(2.0)), (3, hotspot)] {
        let workload = smallbank(SmallBankConfig { skew, ..CONFIG });
        let db = loaded(&workload, workers);
        let mut ledger = Ledger::new();
        for (clients, routing) in DRIVERS {
            run_and_audit(&db, &workload, clients, routing, &mut ledger);
        }
    }
}

#[test]
fn more_workers_than_customers_still_run() {
    let workload = smallbank(SmallBankConfig { customers: 2, ..CONFIG });
    let db = loaded(&workload, 3);
    run_and_audit(&db, &workload, SESSIONS, Routing::Any, &mut Ledger::new());
}

#[test]
fn transactions_on_their_own_worker_lock_nothing_and_send_nothing() {
    let workload = smallbank(CONFIG);
    let db = loaded(&workload, 2);
    let before = db.statistics();
    run_once(&db, &workload, SESSIONS, Routing::Owner, 1);
    let added = db.statistics().since(&before);
    assert!(added.committed > 0);
    assert_eq!((added.remote_actions, added.locks_entered, added.forwarded), (0, 0, 0));
}

#[test]
fn transactions_on_popular_customers_wait_and_never_give_way() {
    let workload = smallbank(SmallBankConfig { skew: Skew::Zipf(1.5), ..CONFIG });
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
fn customers_go_from_worker_to_worker_while_it_runs() {
    let workload = smallbank(CONFIG);
    let db = loaded(&workload, 3);
    let tables = Tables::of(&db).expect("the schema");
    let mut ledger = Ledger::new();
    for (clients, routing) in DRIVERS {
        // Accounts and names go their own ways.
        let round = |round: u64| {
            let (at, to) = (1 + 7 * round % (CUSTOMERS - 1), WorkerId((round % 3) as u16));
            if round.is_multiple_of(2) {
                vec![
                    SchemeChange::split(tables.savings, &at),
                    SchemeChange::move_to(tables.checking, &at, to),
                ]
            } else {
                let at = name_of(at);
                vec![SchemeChange::split(tables.account, &at), SchemeChange::move_to(tables.account, &at, to)]
            }
        };
        while_repartitioning(&db, round, || {
            run_and_audit(&db, &workload, clients, routing, &mut ledger);
        });
    }
}

/// Savings and checking of a customer.
fn accounts(db: &Database, customer: u64) -> (i64, i64) {
    let tables = Tables::of(db).expect("the schema");
    let read = async move |tx: &mut Tx<'_>| {
        Ok((
            tx.get(tables.savings, customer).await?.map(|row| row.balance),
            tx.get(tables.checking, customer).await?.map(|row| row.balance),
        ))
    };
    let (savings, checking) = db.run(tables.savings.at(&customer), read).expect("a read");
    (savings.expect("savings"), checking.expect("checking"))
}

#[test]
fn procedures_follow_the_rules_of_the_bank() {
    let db = loaded(&smallbank(CONFIG), 2);
    let tables = Tables::of(&db).expect("the schema");
    // On different workers.
    let (a, b) = (1, CUSTOMERS - 1);
    let (first, second) = (at_first(SEED, a), at_first(SEED, b));
    let names = (name_of(a), name_of(b));
    let nobody = name_of(CUSTOMERS);
    macro_rules! run {
        ($tx:ident => $procedure:expr) => {
            db.run(tables.account.at(&names.0), async move |$tx: &mut Tx<'_>| $procedure.await)
        };
    }
    assert_eq!(run!(tx => balance(tx, tables, names.0)), Ok(Some(first.0 + first.1)));
    assert_eq!(run!(tx => deposit_checking(tx, tables, names.0, 150)), Ok(true));
    assert_eq!(accounts(&db, a), (first.0, first.1 + 150));
    assert_eq!(run!(tx => amalgamate(tx, tables, names)), Ok(true));
    assert_eq!(accounts(&db, a), (0, 0));
    let sum = second.1 + first.0 + first.1 + 150;
    assert_eq!(accounts(&db, b), (second.0, sum));

    let not_covered = run!(tx => transact_savings(tx, tables, names.0, -1)).expect_err("nothing is left");
    assert_eq!((not_covered.reason(), not_covered.detail()), (AbortReason::User, NOT_COVERED));
    assert_eq!(run!(tx => transact_savings(tx, tables, names.0, 70)), Ok(true));
    let not_covered = run!(tx => send_payment(tx, tables, names, 1)).expect_err("savings do not count");
    assert_eq!(not_covered.detail(), NOT_COVERED);
    assert_eq!(accounts(&db, b), (second.0, sum), "what was paid was taken back");
    // Covered by both accounts together, and then no more.
    assert_eq!(run!(tx => write_check(tx, tables, names.0, 70)), Ok(Some(70)));
    assert_eq!(accounts(&db, a), (70, -70));
    assert_eq!(run!(tx => write_check(tx, tables, names.0, 1)), Ok(Some(1 + PENALTY)));
    assert_eq!(accounts(&db, a), (70, -71 - PENALTY));
    let back = (names.1, names.0);
    assert_eq!(run!(tx => send_payment(tx, tables, back, 1000)), Ok(true));
    assert_eq!(accounts(&db, a), (70, 929 - PENALTY));
    assert_eq!(accounts(&db, b), (second.0, sum - 1000));

    assert_eq!(run!(tx => balance(tx, tables, nobody)), Ok(None));
    assert_eq!(run!(tx => deposit_checking(tx, tables, nobody, 1)), Ok(false));
    assert_eq!(run!(tx => transact_savings(tx, tables, nobody, 1)), Ok(false));
    assert_eq!(run!(tx => write_check(tx, tables, nobody, 1)), Ok(None));
    assert_eq!(run!(tx => amalgamate(tx, tables, (names.0, nobody))), Ok(false));
    assert_eq!(run!(tx => send_payment(tx, tables, (nobody, names.0), 1)), Ok(false));
}

/// The anomaly that SmallBank is known for: `WriteCheck` finds the savings that `TransactSavings` takes out, and no
/// penalty is due; yet somebody has seen the savings gone and the check not written. In whatever order the three are
/// put, that cannot be.
#[test]
fn what_is_seen_has_an_order() {
    let db = loaded(&smallbank(CONFIG), 3);
    let tables = Tables::of(&db).expect("the schema");
    // The procedures' home is not where the customer's accounts are, so all of them suspend, and hold locks meanwhile.
    let customer = 2;
    let elsewhere = tables.account.at(&name_of(CUSTOMERS - 1));
    let name = name_of(customer);
    for _ in 0..300 {
        let set = async move |tx: &mut Tx<'_>| {
            tx.update(tables.savings, customer, |row| row.balance = 1000).await?;
            tx.update(tables.checking, customer, |row| row.balance = 0).await
        };
        db.run(elsewhere.clone(), set).expect("a customer");
        let barrier = Barrier::new(3);
        let (taken, seen) = std::thread::scope(|scope| {
            let check = scope.spawn(|| {
                barrier.wait();
                db.run(elsewhere.clone(), async move |tx: &mut Tx<'_>| {
                    write_check(tx, tables, name, 700).await
                })
            });
            let seen = scope.spawn(|| {
                barrier.wait();
                db.run(elsewhere.clone(), async move |tx: &mut Tx<'_>| balance(tx, tables, name).await)
            });
            barrier.wait();
            let withdraw = async move |tx: &mut Tx<'_>| transact_savings(tx, tables, name, -1000).await;
            assert_eq!(db.run(elsewhere.clone(), withdraw), Ok(true));
            let taken = check.join().expect("no panic").expect("a check").expect("a customer");
            (taken, seen.join().expect("no panic").expect("a balance").expect("a customer"))
        });
        let is_penalized = taken == 700 + PENALTY;
        // Nothing done, the first of the two, or both: the savings alone are gone only if a penalty is due.
        let possible = if is_penalized { [1000, 0, -700 - PENALTY] } else { [1000, 1000 - 700, -700] };
        assert!(taken == 700 || is_penalized);
        assert!(possible.contains(&seen), "a balance of {seen} after a check of {taken}");
        assert_eq!(accounts(&db, customer), (0, -taken));
    }
}

/// Two withdrawals, each allowed by the sum of both accounts, of which each changes one: the write skew in its plain
/// form.
#[test]
fn the_sum_of_both_accounts_is_never_overdrawn_by_two_withdrawals() {
    let db = loaded(&smallbank(CONFIG), 3);
    let tables = Tables::of(&db).expect("the schema");
    let customer = 3;
    let homes = [customer, CUSTOMERS / 2, CUSTOMERS - 1].map(|home| tables.account.at(&name_of(home)));
    for round in 0..200 {
        let set = async move |tx: &mut Tx<'_>| {
            tx.update(tables.savings, customer, |row| row.balance = 50).await?;
            tx.update(tables.checking, customer, |row| row.balance = 50).await
        };
        db.run(homes[0].clone(), set).expect("a customer");
        let barrier = Barrier::new(2);
        let withdraw = |home: usize, from_savings: bool| {
            barrier.wait();
            db.run(homes[home].clone(), async move |tx: &mut Tx<'_>| {
                // Reads first, as somebody would who does not think of it: the locks have to become stronger.
                let savings = tx.get(tables.savings, customer).await?.map_or(0, |row| row.balance);
                let checking = tx.get(tables.checking, customer).await?.map_or(0, |row| row.balance);
                if savings + checking < 100 {
                    return Ok(false);
                }
                if from_savings {
                    tx.update(tables.savings, customer, |row| row.balance -= 100).await?;
                } else {
                    tx.update(tables.checking, customer, |row| row.balance -= 100).await?;
                }
                Ok(true)
            })
        };
        let withdrawn = std::thread::scope(|scope| {
            let other = scope.spawn(|| withdraw(1 + round % 2, true));
            let own = withdraw(2 - round % 2, false);
            [own, other.join().expect("no panic")]
        });
        let (savings, checking) = accounts(&db, customer);
        assert_eq!(savings + checking, 0, "one of both, not both: {withdrawn:?}");
        assert_eq!(withdrawn.into_iter().filter(|done| *done == Ok(true)).count(), 1);
    }
}

/// Plants one bug behind the ledger's back and returns what the audit says.
fn audit_after(
    plant: impl AsyncFn(&mut Tx<'_>, Tables) -> Result<(), atrapos::Abort> + Send + 'static,
) -> AuditError {
    let workload = smallbank(CONFIG);
    let db = loaded(&workload, 2);
    let tables = Tables::of(&db).expect("the schema");
    let mut ledger = Ledger::new();
    run_and_audit(&db, &workload, SESSIONS, Routing::Any, &mut ledger);
    let planted = db.run(tables.savings.at(&5), async move |tx: &mut Tx<'_>| plant(tx, tables).await);
    planted.expect("a bug is planted");
    workload.audit(&db, &ledger).expect_err("the audit finds the planted bug")
}

#[test]
fn the_audit_finds_planted_bugs() {
    let made =
        audit_after(async |tx, tables| tx.update(tables.checking, 5, |row| row.balance += 1).await.map(drop));
    assert!(matches!(made, AuditError::Money { .. }), "{made}");

    let below_zero =
        audit_after(async |tx, tables| tx.update(tables.savings, 5, |row| row.balance = -1).await.map(drop));
    assert!(
        matches!(&below_zero, AuditError::Row { table: "savings", key, .. } if key == "5"),
        "{below_zero}"
    );

    let renamed = audit_after(async |tx, tables| {
        tx.update(tables.account, name_of(7), |row| row.customer = 8).await.map(drop)
    });
    assert!(matches!(renamed, AuditError::Row { table: "account", .. }), "{renamed}");

    let gone = audit_after(async |tx, tables| tx.delete(tables.checking, 59).await.map(drop));
    assert!(matches!(gone, AuditError::Count { table: "checking", .. }), "{gone}");

    let replaced = audit_after(async |tx, tables| {
        if let Some(row) = tx.delete(tables.checking, 59).await? {
            tx.insert(tables.checking, 60, row).await?;
        }
        Ok(())
    });
    assert!(matches!(replaced, AuditError::Row { table: "checking", .. }), "{replaced}");
}
