//! TPC-C: every class under every driver, while partitions move, and after a crash of nothing but patience; procedures against
//! what the tables hold; audits that find planted damage.

mod damage;
mod procedures;

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use atrapos::{AbortReason, Database, KeyRange, LoadProgress, SchemeChange, Table, WorkerId};
use atrapos_harness::driver::{Clients, Routing, RunResult, run};
use atrapos_workloads::tpcc::parameters::{Class, Mix, Remote};
use atrapos_workloads::tpcc::schema::Tables;
use atrapos_workloads::tpcc::terminal::Deliveries;
use atrapos_workloads::tpcc::{Tpcc, TpccConfig};
use atrapos_workloads::{ClassTally, Ledger, SetupError, Workload};

use crate::support::{DRIVERS, SESSIONS, loaded, run_and_audit, run_once, short};

/// A small database: three warehouses, so that there is another one than the nearest.
const SMALL: TpccConfig = TpccConfig {
    warehouses: 3,
    items: 100,
    customers: 20,
    mix: Mix::Standard,
    remote: Remote { payments: 0.3, lines: 0.1 },
    deliveries: Deliveries::Interactive,
    think: false,
    apart: false,
    seed: 3,
};

fn tpcc(config: TpccConfig) -> Tpcc {
    Tpcc::new(config).expect("a possible configuration")
}

fn completed(result: &RunResult, class: Class) -> u64 {
    result.classes[class as usize].tally.completed()
}

/// Aborts for other reasons than being the victim of deadlocks again and again.
fn aborted(result: &RunResult) -> u64 {
    let aborts = result.classes.iter().flat_map(|class| class.tally.aborted.iter().enumerate());
    aborts.filter(|(reason, _)| *reason != AbortReason::Deadlock as usize).map(|(_, count)| count).sum()
}

/// All rows of a table.
fn rows<T: Table>(db: &Database) -> Vec<(T::Key, T::Row)> {
    let table = db.table::<T>().expect("the table");
    let collect = |rows: &mut Vec<_>, key, row| {
        rows.push((key, row));
        ControlFlow::Continue(())
    };
    let read =
        async move |tx: &mut atrapos::Tx<'_>| tx.fold(table, KeyRange::all(), Vec::new(), collect).await;
    db.run(table.at_prefix(&1_u16), read).expect("a scan")
}

#[test]
fn every_class_runs_under_every_driver_and_leaves_a_sound_database() {
    let db = loaded(&tpcc(SMALL), 2);
    let mut ledger = Ledger::new();
    for class in Class::ALL {
        for (clients, routing) in DRIVERS {
            let workload = tpcc(TpccConfig { mix: Mix::Only(class), ..SMALL });
            let result = run_and_audit(&db, &workload, clients, routing, &mut ledger);
            assert!(completed(&result, class) > 0, "{} under {clients:?}", class.name());
            let all: u64 = Class::ALL.iter().map(|class| completed(&result, *class)).sum();
            assert_eq!(all, completed(&result, class), "only {} was asked for", class.name());
            assert_eq!(aborted(&result), 0, "{}", class.name());
        }
    }
}

#[test]
fn the_standard_mix_runs_under_every_driver_and_leaves_a_sound_database() {
    for (workers, deliveries) in
        [(1, Deliveries::Interactive), (2, Deliveries::Deferred), (3, Deliveries::Interactive)]
    {
        let workload = tpcc(TpccConfig { deliveries, ..SMALL });
        let db = loaded(&workload, workers);
        let mut ledger = Ledger::new();
        for (clients, routing) in DRIVERS {
            let result = run_and_audit(&db, &workload, clients, routing, &mut ledger);
            assert!(result.throughput_tps() > 0.0);
            assert_eq!((result.workers.len(), aborted(&result)), (workers, 0));
        }
    }
}

#[test]
fn what_is_deferred_is_delivered_by_somebody_else() {
    let workload =
        tpcc(TpccConfig { deliveries: Deliveries::Deferred, mix: Mix::Only(Class::Delivery), ..SMALL });
    let db = loaded(&workload, 2);
    let mut ledger = Ledger::new();
    for (clients, routing) in DRIVERS {
        let result = run_and_audit(&db, &workload, clients, routing, &mut ledger);
        assert!(completed(&result, Class::Delivery) > 0, "{clients:?}, {routing:?}");
    }
}

#[test]
fn without_remote_work_transactions_lock_nothing_and_send_nothing() {
    let workload = tpcc(TpccConfig { remote: Remote::NONE, ..SMALL });
    let db = loaded(&workload, 2);
    let before = (db.statistics(), db.worker_reports());
    run_once(&db, &workload, SESSIONS, Routing::Owner, 1);
    let added = db.statistics().since(&before.0);
    assert!(added.committed > 0 && added.local_actions > 0);
    assert_eq!((added.remote_actions, added.locks_entered, added.lock_waits, added.forwarded), (0, 0, 0, 0));
    for (before, after) in before.1.iter().zip(db.worker_reports()) {
        assert_eq!(after.runtime.messages_sent, before.runtime.messages_sent, "{}", after.runtime.worker);
    }
    // A request for any warehouse runs at its home, and has everything there.
    run_once(&db, &workload, SESSIONS, Routing::Any, 2);
    let added = db.statistics().since(&before.0);
    assert!(added.forwarded > 0);
    assert_eq!((added.remote_actions, added.locks_entered), (0, 0));
}

#[test]
fn with_nothing_but_remote_work_the_database_stays_sound() {
    let workload = tpcc(TpccConfig { remote: Remote { payments: 1.0, lines: 1.0 }, ..SMALL });
    let db = loaded(&workload, 3);
    let mut ledger = Ledger::new();
    for (clients, routing) in DRIVERS {
        run_and_audit(&db, &workload, clients, routing, &mut ledger);
    }
    let statistics = db.statistics();
    assert!(statistics.remote_actions > 0 && statistics.locks_entered > 0);
}

/// Hundreds of clients of the same few rows get through if no transaction asks for them in another order than the others.
#[test]
fn hundreds_of_clients_of_few_rows_get_through() {
    let workload = tpcc(TpccConfig { warehouses: 2, remote: Remote { payments: 0.5, lines: 0.1 }, ..SMALL });
    let db = loaded(&workload, 2);
    let clients = Clients::sessions(NonZeroUsize::new(300).expect("many"));
    run_and_audit(&db, &workload, clients, Routing::Any, &mut Ledger::new());
}

#[test]
fn one_warehouse_has_nowhere_else_to_go() {
    let workload = tpcc(TpccConfig { warehouses: 1, remote: Remote { payments: 1.0, lines: 1.0 }, ..SMALL });
    let db = loaded(&workload, 3);
    let mut ledger = Ledger::new();
    run_and_audit(&db, &workload, SESSIONS, Routing::Any, &mut ledger);
    run_and_audit(&db, &workload, SESSIONS, Routing::Owner, &mut ledger);
    // Two of the three workers own nothing.
    let nothing = workload.state(&db, atrapos_workloads::Reach::OwnedBy(WorkerId(2)), 1);
    assert!(matches!(nothing, Err(SetupError::NothingOwned { worker: WorkerId(2) })));
}

#[test]
fn warehouses_move_and_are_cut_while_transactions_run() {
    let workload = tpcc(SMALL);
    let db = loaded(&workload, 3);
    let tables = Tables::of(&db).expect("the schema");
    let mut ledger = Ledger::new();
    let mut changes = 0;
    for attempt in 0..3 {
        let running = AtomicBool::new(true);
        let result = std::thread::scope(|scope| {
            let mover = scope.spawn(|| {
                let least = changes + 6;
                while running.load(Ordering::Relaxed) || changes < least {
                    let to = WorkerId(changes % 3);
                    let first = 1 + changes % 3;
                    let change = match changes % 4 {
                        // Within a warehouse, too: no adaptive database does that, and it has to work all the same.
                        0 => vec![
                            SchemeChange::split(tables.district, &(2, 5)),
                            SchemeChange::move_to(tables.district, &(2, 5), to),
                        ],
                        2 => vec![
                            SchemeChange::move_to(tables.district, &(2, 5), owner_before(&db, tables)),
                            SchemeChange::merge(tables.district, &(2, 5)),
                        ],
                        _ if first == 1 => vec![move_first(tables, to)],
                        _ => vec![SchemeChange::move_to(tables.warehouse, &first, to)],
                    };
                    db.repartition(change).expect("the changes make sense");
                    changes += 1;
                }
            });
            let result = run(
                &db,
                &workload,
                &short(SESSIONS, Routing::Any, attempt),
                &AtomicBool::new(false),
                &mut |_| {},
            );
            running.store(false, Ordering::Relaxed);
            mover.join().expect("it makes no mistakes");
            result.expect("nothing but the places of rows has changed")
        });
        ledger.add(&result.tallies_all);
        workload.audit(&db, &ledger).expect("a sound database");
        assert_eq!(aborted(&result), 0);
    }
}

fn move_first(tables: Tables, to: WorkerId) -> SchemeChange {
    SchemeChange::Move { table: tables.warehouse.id(), at: atrapos::KeyBuf::new(), to }
}

/// The owner of what comes before district 5 of warehouse 2.
fn owner_before(db: &Database, tables: Tables) -> WorkerId {
    let scheme = db.scheme();
    let family = scheme.family(tables.district.id());
    family.owner(family.partition_of(&atrapos::Key::encode(&(2_u16, 4_u8))))
}

#[test]
fn a_durable_database_comes_back_as_it_was() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let workload = tpcc(SMALL);
    let mut ledger = Ledger::new();
    let four = NonZeroUsize::new(4).expect("four");
    for workers in [2, 1, 3] {
        let builder = Database::builder(workload.schema()).workers(workers).pin(false).huge_pages(false);
        let db = builder.open(&path).expect("a database");
        if workers == 2 {
            workload.load(&db, &LoadProgress::default()).expect("an empty database takes the load");
        }
        workload.audit(&db, &ledger).expect("what was committed is there");
        assert!(workload.audit_uncounted(&db).is_ok());
        run_and_audit(&db, &workload, SESSIONS, Routing::Any, &mut ledger);
        // Everything that a pipeline has committed is acknowledged, and counted, before its session ends.
        let pipelined = Clients::Sessions {
            per_worker: four,
            pipeline: NonZeroUsize::new(8).expect("eight"),
            burst: NonZeroUsize::MIN,
        };
        run_and_audit(&db, &workload, pipelined, Routing::Any, &mut ledger);
        run_and_audit(&db, &workload, pipelined, Routing::Owner, &mut ledger);
        assert_eq!(db.close(Duration::from_secs(30)).failure, None);
    }
}

#[test]
fn people_who_think_are_told_to_stop_all_the_same() {
    let workload = tpcc(TpccConfig { think: true, deliveries: Deliveries::Deferred, ..SMALL });
    let db = loaded(&workload, 2);
    let threads = Clients::Threads { threads: NonZeroUsize::MIN };
    for (clients, routing) in [(SESSIONS, Routing::Owner), (threads, Routing::Any)] {
        // Nobody has keyed in anything yet when the run is over.
        let result = run_once(&db, &workload, clients, routing, 1);
        assert_eq!(result.tallies_all.iter().map(ClassTally::completed).sum::<u64>(), 0);
    }
    workload.audit(&db, &Ledger::new()).expect("nothing has changed");
}

#[test]
fn clients_repeat_by_seed() {
    let config = |seed| TpccConfig { seed, ..SMALL };
    let result = |seed| {
        let workload = tpcc(config(seed));
        let db = loaded(&workload, 1);
        let mut state = workload.state(&db, atrapos_workloads::Reach::Everywhere, 1).expect("a client");
        let outside = atrapos_harness::Outside::new(&db);
        let client = atrapos_workloads::Client::Blocking(&outside);
        for _ in 0..200 {
            let mut transaction = std::pin::pin!(Tpcc::transaction(&client, &mut state));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(transaction.as_mut().poll(&mut context).is_ready(), "a client outside blocks");
        }
        // Dates are those of the clock, and no part of it.
        use atrapos_workloads::tpcc::schema::{Customers, OrderLines, Stocks};
        let lines: Vec<_> = rows::<OrderLines>(&db)
            .into_iter()
            .map(|(key, line)| (key, line.i_id, line.supply_w_id, line.quantity, line.amount))
            .collect();
        (rows::<Customers>(&db), lines, rows::<Stocks>(&db))
    };
    let first = result(8);
    assert!(first == result(8), "the same seed does the same");
    assert!(first != result(9), "another one does not");
}
