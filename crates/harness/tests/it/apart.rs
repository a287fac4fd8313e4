//! Workloads on tables apart: each table and index is a family of its own. The scheme begins as that of tables together, and the auditors
//! find a sound database while single tables are cut and moved, by chance and as the search of the controller wants it.

use std::sync::Mutex;

use atrapos::{
    Adaptation, Database, Key, KeyBuf, LoadProgress, Scheme, SchemeChange, SchemeSearch, WorkerId,
};
use atrapos_harness::driver::Routing;
use atrapos_workloads::smallbank::{SmallBank, SmallBankConfig};
use atrapos_workloads::tatp::Tatp;
use atrapos_workloads::tatp::parameters::Mix;
use atrapos_workloads::tatp::schema::sub_nbr;
use atrapos_workloads::tpcb::{Tpcb, TpcbConfig};
use atrapos_workloads::tpcc::parameters::Remote;
use atrapos_workloads::tpcc::{Tpcc, TpccConfig};
use atrapos_workloads::{KeyChoice, Ledger, Random, Workload};

use crate::support::{DRIVERS, SESSIONS, loaded, run_and_audit, while_repartitioning};

const WORKERS: usize = 3;
const SUBSCRIBERS: u64 = 300;

fn tatp() -> Tatp {
    Tatp::new(SUBSCRIBERS, Mix::Standard, KeyChoice::Uniform, 7).expect("subscribers")
}

fn tpcc(warehouses: u64, apart: bool) -> Tpcc {
    let remote = Remote { payments: 0.3, lines: 0.1 };
    let config = TpccConfig { warehouses, items: 100, customers: 20, remote, apart, ..TpccConfig::default() };
    Tpcc::new(config).expect("a possible configuration")
}

fn tpcb(apart: bool) -> Tpcb {
    let config = TpcbConfig { branches: 5, accounts_per_branch: 40, apart, ..TpcbConfig::default() };
    Tpcb::new(config).expect("branches")
}

fn smallbank(apart: bool) -> SmallBank {
    let config = SmallBankConfig { customers: 50, apart, ..SmallBankConfig::default() };
    SmallBank::new(config).expect("customers")
}

/// The cuts and owners of each table and index.
fn partitions(scheme: &Scheme, db: &Database) -> Vec<(String, Vec<KeyBuf>, Vec<WorkerId>)> {
    let of = |(table, name): (_, &str)| {
        let family = scheme.family(table);
        let owners = (0..family.partitions()).map(|at| family.owner(at)).collect();
        (name.to_owned(), family.cuts().to_vec(), owners)
    };
    db.table_names().map(of).collect()
}

fn assert_begins_alike(together: &impl Workload, apart: &impl Workload, tables: usize) {
    for workers in [1, 2, WORKERS] {
        let open = |schema| {
            let builder = Database::builder(schema).workers(workers).pin(false).huge_pages(false);
            builder.in_memory().expect("the schema is sound")
        };
        let (together, apart) = (open(together.schema()), open(apart.schema()));
        assert_eq!(
            partitions(&together.scheme(), &together),
            partitions(&apart.scheme(), &apart),
            "{workers} workers"
        );
        assert_eq!(apart.scheme().families().count(), tables);
        assert!(apart.scheme().families().all(|(_, tables)| tables.len() == 1));
        assert!(together.scheme().families().count() < tables);
    }
}

#[test]
fn tables_apart_begin_where_tables_together_do() {
    assert_begins_alike(&tatp(), &tatp().apart(), 5);
    // With one warehouse there is nothing to cut, and all tables are on one worker.
    for warehouses in [1, 3] {
        assert_begins_alike(&tpcc(warehouses, false), &tpcc(warehouses, true), 11);
    }
    assert_begins_alike(&tpcb(false), &tpcb(true), 4);
    assert_begins_alike(&smallbank(false), &smallbank(true), 3);
}

/// Returns a change of one table, drawn by chance: a partition is cut at a key, or goes to any worker, or is joined with the one before.
fn any_change(random: &mut Random, db: &Database, key: impl Fn(&mut Random, &str) -> KeyBuf) -> SchemeChange {
    let names: Vec<_> = db.table_names().collect();
    let (table, name) = names[random.below(names.len() as u64) as usize];
    let scheme = db.scheme();
    let family = scheme.family(table);
    let lower = |at: usize| family.lower(at).map_or_else(KeyBuf::new, KeyBuf::from);
    let any = random.below(family.partitions() as u64) as usize;
    match random.below(4) {
        0 if family.partitions() < 8 => SchemeChange::Split { table, at: key(random, name) },
        1 if any > 0 && family.owner(any) == family.owner(any - 1) => {
            SchemeChange::Merge { table, at: lower(any) }
        }
        _ => SchemeChange::Move { table, at: lower(any), to: WorkerId(random.below(WORKERS as u64) as u16) },
    }
}

/// Runs every driver while single tables are cut and moved.
fn survives_changes<W: Workload>(workload: &W, key: impl Fn(&mut Random, &str) -> KeyBuf + Sync) {
    let db = loaded(workload, WORKERS);
    let random = Mutex::new(Random::of_stream(11, 0));
    let changes = |_| {
        let mut random = random.lock().expect("nobody panics with it");
        vec![any_change(&mut random, &db, &key)]
    };
    let mut ledger = Ledger::new();
    while_repartitioning(&db, changes, || {
        for (clients, routing) in DRIVERS {
            // Clients of their own worker's data need some at that moment.
            if routing == Routing::Any {
                run_and_audit(&db, workload, clients, routing, &mut ledger);
            }
        }
    });
    workload.audit(&db, &ledger).expect("a sound database");
    assert!(db.statistics().remote_actions > 0, "transactions need tables of several workers");
}

#[test]
fn single_tables_of_tatp_move_while_transactions_run() {
    survives_changes(&tatp().apart(), |random, table| {
        let s_id = 1 + random.below(SUBSCRIBERS);
        if table == "subscriber_by_sub_nbr" { sub_nbr(s_id).encode() } else { s_id.encode() }
    });
}

#[test]
fn single_tables_of_tpcc_move_while_transactions_run() {
    // Within a warehouse, too: in each table by what follows its number.
    survives_changes(&tpcc(2, true), |random, _| {
        (1 + random.below(2) as u16, random.below(11) as u8).encode()
    });
}

#[test]
fn single_tables_of_the_banks_move_while_transactions_run() {
    survives_changes(&tpcb(true), |random, _| random.below(5).encode());
    survives_changes(&smallbank(true), |random, table| {
        if table == "account" { KeyBuf::from(&b"cust0000000030"[..]) } else { random.below(50).encode() }
    });
}

/// Runs a workload, has the search of the controller choose a scheme for what was observed, and runs it again.
fn survives_the_search<W: Workload>(workload: &W, search: SchemeSearch) -> bool {
    let adaptation = Adaptation { act: false, sample_every: 1, ..Adaptation::default() };
    let builder = Database::builder(workload.schema()).workers(2).pin(false).huge_pages(false);
    let db = builder.adaptation(adaptation).in_memory().expect("the schema is sound");
    workload.load(&db, &LoadProgress::default()).expect("an empty database takes the load");
    let mut ledger = Ledger::new();
    let mut moved = false;
    for _ in 0..2 {
        db.workload_trace().expect("statistics of loading, or of an audit");
        run_and_audit(&db, workload, SESSIONS, Routing::Any, &mut ledger);
        let before = partitions(&db.scheme(), &db);
        db.choose_scheme(search).expect("transactions ran");
        moved |= partitions(&db.scheme(), &db) != before;
        run_and_audit(&db, workload, SESSIONS, Routing::Any, &mut ledger);
    }
    moved
}

#[test]
fn what_the_search_chooses_for_tables_apart_is_sound() {
    for search in [SchemeSearch::Partitioning, SchemeSearch::PartitioningAndPlacement] {
        survives_the_search(&tatp().apart(), search);
        survives_the_search(&tpcc(1, true), search);
    }
    let moved = survives_the_search(&tpcc(1, true), SchemeSearch::Partitioning);
    assert!(moved, "equal loads of all workers are not what one warehouse begins with");
}
