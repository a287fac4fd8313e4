//! The workloads on engines with shared data: the same procedures, population and auditors.

use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use atrapos::{Abort, AbortReason, Database, LoadProgress};
use atrapos_baselines::durable::{Acknowledge, DurableOptions};
use atrapos_baselines::occ::OccEngine;
use atrapos_baselines::two_phase::LockingEngine;
use atrapos_baselines::{Engine, SharedDatabase, run_stored};
use atrapos_durability::file::RealFiles;
use atrapos_harness::driver::{Routing, RunResult, SharedThreads, run_shared};
use atrapos_workloads::micro::{Kind, Micro, MicroConfig};
use atrapos_workloads::smallbank::parameters::{Mix as SmallBankMix, Skew};
use atrapos_workloads::smallbank::{SmallBank, SmallBankConfig};
use atrapos_workloads::tatp::Tatp;
use atrapos_workloads::tatp::parameters::{Class as TatpClass, Mix as TatpMix};
use atrapos_workloads::tatp::schema::{CallForwarding, Tables, sub_nbr};
use atrapos_workloads::tatp::stored::{GetSubscriberData, InsertCallForwarding, UpdateSubscriberData};
use atrapos_workloads::tpcb::{Tpcb, TpcbConfig};
use atrapos_workloads::tpcc::parameters::{Class, Mix as TpccMix, Remote};
use atrapos_workloads::tpcc::{Tpcc, TpccConfig};
use atrapos_workloads::ycsb::mix::Mix as YcsbMix;
use atrapos_workloads::ycsb::schema::{Narrow, Record, Wide};
use atrapos_workloads::ycsb::{Ycsb, YcsbConfig};
use atrapos_workloads::{KeyChoice, Ledger, Workload};

use crate::support::{SESSIONS, loaded, short};

/// The engines, by a function that makes one for a number of trees.
const ENGINES: [fn(usize) -> Box<dyn Engine>; 2] =
    [|trees| Box::new(OccEngine::new(trees)), |trees| Box::new(LockingEngine::new(trees))];

/// Clients that wait for each transaction, and those that have some outstanding.
const THREADS: [SharedThreads<'_>; 2] = [
    SharedThreads { threads: NonZeroUsize::new(3).expect("three"), cpus: &[], pipeline: NonZeroUsize::MIN },
    SharedThreads {
        threads: NonZeroUsize::new(3).expect("three"),
        cpus: &[],
        pipeline: NonZeroUsize::new(8).expect("eight"),
    },
];

fn empty<W: Workload>(workload: &W) -> Database {
    let db = Database::builder(workload.schema()).workers(2).pin(false).huge_pages(false).in_memory();
    db.expect("the schema is sound")
}

/// The data of a workload in an engine, and the database whose handles it has.
fn filled<W: Workload>(workload: &W, engine: fn(usize) -> Box<dyn Engine>) -> (SharedDatabase, Database) {
    let (full, handles) = (loaded(workload, 2), empty(workload));
    let shared = SharedDatabase::fill(engine, &full, &handles).expect("all rows fit");
    (shared, handles)
}

fn audit<W: Workload>(shared: &SharedDatabase, workload: &W, ledger: &Ledger) {
    let copy = empty(workload);
    shared.copy_to(&copy).expect("rows and entries agree");
    if let Err(error) = workload.audit(&copy, ledger) {
        panic!("{}: {error}", shared.engine().name());
    }
}

/// Runs a workload on every engine for a moment with every routing, and audits it.
fn run_and_audit<W: Workload>(workload: &W) {
    for engine in ENGINES {
        let (shared, handles) = filled(workload, engine);
        let mut ledger = Ledger::new();
        audit(&shared, workload, &ledger);
        for routing in [Routing::Any, Routing::Owner] {
            // On a busy machine a short interval may pass without one transaction.
            for attempt in 1..=100 {
                let result = run_once((&shared, &handles), workload, (routing, THREADS[0]), attempt);
                ledger.add(&result.tallies_all);
                audit(&shared, workload, &ledger);
                if result.classes.iter().any(|class| class.tally.completed() > 0) {
                    break;
                }
                assert!(attempt < 100, "nothing ran");
            }
        }
    }
}

fn run_once<W: Workload>(
    databases: (&SharedDatabase, &Database),
    workload: &W,
    (routing, threads): (Routing, SharedThreads<'_>),
    attempt: u64,
) -> RunResult {
    let options = short(SESSIONS, routing, attempt * 2 + u64::from(routing == Routing::Any));
    let never = AtomicBool::new(false);
    run_shared(databases, workload, &options, threads, &never, &mut |_| {}).expect("it runs")
}

/// Runs a workload on every engine with a log, opens what is left of it again after each run, and audits it.
fn run_reopen_and_audit<W: Workload>(workload: &W) {
    let acknowledges = [Acknowledge::Durable, Acknowledge::AtOnce { flush_every: Duration::from_millis(5) }];
    for (engine, acknowledge) in ENGINES.into_iter().flat_map(|engine| acknowledges.map(|how| (engine, how)))
    {
        let directory = tempfile::tempdir().expect("there is a temporary directory");
        let options = DurableOptions {
            files: Arc::new(RealFiles::new()),
            path: directory.path().join("shared"),
            acknowledge,
            room_bytes: 1 << 16,
        };
        let (shared, handles) = filled(workload, engine);
        let mut shared = shared.into_durable(&options).expect("the directory is empty");
        let mut ledger = Ledger::new();
        for threads in THREADS {
            for attempt in 1..=100 {
                let result = run_once((&shared, &handles), workload, (Routing::Any, threads), attempt);
                ledger.add(&result.tallies_all);
                assert!(result.wal.is_some(), "it has written a log");
                if result.classes.iter().any(|class| class.tally.completed() > 0) {
                    break;
                }
                assert!(attempt < 100, "nothing ran");
            }
            audit(&shared, workload, &ledger);
            shared.close().expect("the log can be written");
            shared = SharedDatabase::open(engine, &handles, &options).expect("it was closed");
            audit(&shared, workload, &ledger);
        }
    }
}

#[test]
fn what_was_told_is_there_when_it_is_opened_again() {
    run_reopen_and_audit(&Tatp::new(300, TatpMix::Standard, KeyChoice::Uniform, 3).expect("subscribers"));
    let config = TpcbConfig { branches: 3, accounts_per_branch: 40, remote: 0.3, apart: false, seed: 11 };
    run_reopen_and_audit(&Tpcb::new(config).expect("branches"));
    run_reopen_and_audit(&tpcc(TpccMix::Standard));
}

/// Without locks, a load that only reads runs, and one that writes is refused.
#[test]
fn locks_are_off_for_loads_that_only_read() {
    let engine: fn(usize) -> Box<dyn Engine> = |trees| Box::new(LockingEngine::new(trees).without_locks());
    let of = |mix| Tatp::new(300, mix, KeyChoice::Uniform, 3).expect("subscribers");
    let reads = of(TatpMix::Only(TatpClass::GetSubscriberData));
    let (shared, handles) = filled(&reads, engine);
    run_once((&shared, &handles), &reads, (Routing::Any, THREADS[0]), 1);
    let tables = Tables::of(&handles).expect("the schema");
    let update = UpdateSubscriberData { s_id: 7, bit: 1, sf_type: 1, data_a: 1 };
    let client = RefCell::new(shared.session());
    let refused = run_stored(&client, &tables, &update).expect_err("it writes");
    assert!(
        refused.reason() == AbortReason::Misuse && refused.to_string().contains("--locks on"),
        "{refused}"
    );
    audit(&shared, &reads, &Ledger::new());
}

/// A database of other tables is refused, with the first difference.
#[test]
fn directories_of_other_schemas_are_refused() {
    let directory = tempfile::tempdir().expect("there is a temporary directory");
    let options = DurableOptions {
        files: Arc::new(RealFiles::new()),
        path: directory.path().to_owned(),
        acknowledge: Acknowledge::Durable,
        room_bytes: 0,
    };
    let (shared, _handles) = filled(&tatp(), ENGINES[1]);
    drop(shared.into_durable(&options).expect("the directory is empty"));
    let config = TpcbConfig { branches: 1, accounts_per_branch: 4, remote: 0.0, apart: false, seed: 1 };
    let other = empty(&Tpcb::new(config).expect("a branch"));
    let refused =
        SharedDatabase::open(ENGINES[1], &other, &options).expect_err("it has other tables").to_string();
    assert!(refused.contains("subscriber"), "{refused}");
    // Another engine, and another number of workers, read the same directory.
    let handles = Database::builder(tatp().schema()).workers(1).pin(false).huge_pages(false).in_memory();
    let handles = handles.expect("the schema is sound");
    let opened = SharedDatabase::open(ENGINES[0], &handles, &options).expect("it is the same database");
    audit(&opened, &tatp(), &Ledger::new());
}

#[test]
fn tatp_leaves_sound_data() {
    run_and_audit(&Tatp::new(300, TatpMix::Standard, KeyChoice::Uniform, 3).expect("subscribers"));
}

#[test]
fn tpcb_leaves_sound_data() {
    let config = TpcbConfig { branches: 3, accounts_per_branch: 40, remote: 0.3, apart: false, seed: 11 };
    run_and_audit(&Tpcb::new(config).expect("branches"));
}

#[test]
fn smallbank_leaves_sound_data() {
    let config = SmallBankConfig {
        customers: 20,
        mix: SmallBankMix::Standard,
        skew: Skew::Zipf(0.99),
        apart: false,
        seed: 13,
    };
    run_and_audit(&SmallBank::new(config).expect("customers"));
}

#[test]
fn every_class_of_tpcc_leaves_sound_data() {
    run_and_audit(&tpcc(TpccMix::Standard));
    for class in Class::ALL {
        run_and_audit(&tpcc(TpccMix::Only(class)));
    }
}

fn tpcc(mix: TpccMix) -> Tpcc {
    let remote = Remote { payments: 0.3, lines: 0.1 };
    let (warehouses, items, customers, seed) = (2, 100, 20, 3);
    Tpcc::new(TpccConfig { warehouses, items, customers, mix, remote, seed, ..TpccConfig::default() })
        .expect("warehouses")
}

fn letters<R: Record>(operations: usize) {
    for letter in ["a", "b", "c", "d", "e", "f"] {
        let mix: YcsbMix = letter.parse().expect("a letter");
        let config =
            YcsbConfig { rows: 300, distribution: mix.distribution(), mix, seed: 6, ..YcsbConfig::default() };
        run_and_audit(&Ycsb::<R>::new(YcsbConfig { operations, ..config }).expect("records"));
    }
}

#[test]
fn ycsb_leaves_sound_data() {
    letters::<Narrow>(1);
    letters::<Narrow>(4);
    letters::<Wide>(1);
}

#[test]
fn micro_leaves_sound_data() {
    for kind in [Kind::Read, Kind::Update] {
        let config = MicroConfig {
            sites: 2,
            rows_per_site: 30,
            rows_per_transaction: 4,
            kind,
            multisite: 0.5,
            zipf: 0.9,
            seed: 5,
        };
        run_and_audit(&Micro::new(config).expect("sites"));
    }
}

fn tatp() -> Tatp {
    Tatp::new(50, TatpMix::Standard, KeyChoice::Uniform, 3).expect("subscribers")
}

/// A transaction that aborts has changed nothing, neither rows nor entries; an unexpected duplicate is an abort.
#[test]
fn what_aborts_leaves_nothing() {
    for engine in ENGINES {
        let (shared, handles) = filled(&tatp(), engine);
        let tables = Tables::of(&handles).expect("the schema");
        let client = RefCell::new(shared.session());
        let before = run_stored(&client, &tables.subscriber, &GetSubscriberData { s_id: 7 }).expect("a read");
        // The facility is not there, and the subscriber has been changed by then.
        let update = UpdateSubscriberData { s_id: 7, bit: 9, sf_type: 77, data_a: 1 };
        let abort = run_stored(&client, &tables, &update).expect_err("there is no such facility");
        assert_eq!(abort.reason(), AbortReason::User);
        let after = run_stored(&client, &tables.subscriber, &GetSubscriberData { s_id: 7 }).expect("a read");
        assert_eq!(before, after);
        let row = CallForwarding { end_time: 9, numberx: sub_nbr(7) };
        let insert = InsertCallForwarding { sub_nbr: sub_nbr(51), sf_type: 1, start_time: 8, row };
        assert_eq!(run_stored(&client, &tables, &insert), Ok(false), "there is no such subscriber");
        audit(&shared, &tatp(), &Ledger::new());
    }
}

/// A handle of another database is refused, as the partitioned engine does.
#[test]
fn handles_of_other_databases_are_refused() {
    for engine in ENGINES {
        let (shared, _handles) = filled(&tatp(), engine);
        let other = empty(&tatp());
        let tables = Tables::of(&other).expect("the schema");
        let client = RefCell::new(shared.session());
        let refused: Abort =
            run_stored(&client, &tables.subscriber, &GetSubscriberData { s_id: 1 }).expect_err("refused");
        assert_eq!(refused.reason(), AbortReason::UnknownTable);
    }
}

/// Entries that the rows do not have, and rows that the engine does not have, are found when the data is copied.
#[test]
fn an_index_that_disagrees_with_its_rows_is_found() {
    for engine in ENGINES {
        for stray in [b"000000000000000".to_vec(), b"999999999999999".to_vec()] {
            let (shared, handles) = filled(&tatp(), engine);
            let index = Tables::of(&handles).expect("the schema").by_number.id();
            let entry = (atrapos::KeyBuf::from(stray.as_slice()), Box::from(&[0_u8; 8][..]));
            shared.engine().load(index, &[entry]).expect("a stray entry");
            let wrong = shared.copy_to(&empty(&tatp())).expect_err("it is found").to_string();
            assert!(wrong.contains("subscriber_by_sub_nbr"), "{wrong}");
        }
    }
}

/// A database with other tables is no source.
#[test]
fn databases_of_other_schemas_are_refused() {
    let config = TpcbConfig { branches: 1, accounts_per_branch: 4, remote: 0.0, apart: false, seed: 1 };
    let tpcb = Tpcb::new(config).expect("a branch");
    let (full, other) = (empty(&tpcb), empty(&tatp()));
    tpcb.load(&full, &LoadProgress::default()).expect("it is empty");
    assert!(SharedDatabase::fill(ENGINES[0], &full, &other).is_err());
    let (shared, _handles) = filled(&tatp(), ENGINES[0]);
    assert!(shared.copy_to(&empty(&tpcb)).is_err());
}
