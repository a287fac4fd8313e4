//! Schemes before the first transaction: from recorded statistics, and a declared mix of classes.

use atrapos::{Adaptation, Builder, Database, FamilyScheme, WorkerId, WorkloadTrace};
use atrapos_adapt::{ClassFlow, FlowAction, FlowOperation, TableIndex};

use crate::support::{Items, Others, item, load_items, two_tables};

const ROWS: u64 = 100;
/// Keys below are accessed, others are not. Those of the items are all on the first worker at first.
const HOT: u64 = 20;

/// Statistics of a database in which a class looks items up, and another one others, in as many transactions; the low keys only.
fn recorded() -> WorkloadTrace {
    let observing = Adaptation { act: false, sample_every: 1, ..Adaptation::default() };
    let db = Database::builder(two_tables()).workers(2).pin(false).adaptation(observing).in_memory().unwrap();
    load_items(&db, ROWS, 1);
    let (items, others) = (db.table::<Items>().unwrap(), db.table::<Others>().unwrap());
    for key in 0..ROWS {
        db.run(others.at(&key), async move |tx| tx.insert(others, key, item(1)).await).unwrap();
    }
    db.workload_trace().unwrap();
    for round in 0..1000 {
        let key = round % HOT;
        db.run(items.at(&key), async move |tx| tx.get(items, key).await.map(drop)).unwrap();
        db.run(others.at(&key), async move |tx| tx.get(others, key).await.map(drop)).unwrap();
    }
    let mut trace = db.workload_trace().unwrap();
    // The same load for each table, evenly on the slices that were accessed: measured times differ from run to run.
    for table in &mut trace.tables {
        let costs = || table.partitions.iter().flat_map(|part| &part.cost_cycles);
        let even = 1_000_000_000 / costs().filter(|cost| **cost > 0).count() as u64;
        let slices = table.partitions.iter_mut().flat_map(|part| &mut part.cost_cycles);
        slices.filter(|cost| **cost > 0).for_each(|cost| *cost = even);
    }
    let tables = trace.tables.clone();
    let position = |name: &str| tables.iter().position(|table| table.name == name).unwrap() as u32;
    let class = |name: &str, table| ClassFlow {
        name: name.to_owned(),
        count: 1000,
        actions: vec![FlowAction::once(TableIndex(position(table)), FlowOperation::Read)],
        dependencies: Vec::new(),
        sync_points: Vec::new(),
    };
    trace.classes = vec![class("look-up-items", "items"), class("look-up-others", "others")];
    trace
}

fn opened(change: impl FnOnce(Builder) -> Builder) -> Database {
    change(Database::builder(two_tables()).workers(2).pin(false)).in_memory().unwrap()
}

/// The number of hot keys of a table on the first worker.
fn on_first(db: &Database, table: &str) -> usize {
    let scheme = db.scheme();
    let at = db.table_names().find(|(_, name)| *name == table).unwrap().0;
    let family: &FamilyScheme = scheme.family_at(at).unwrap();
    let owner = |key: u64| {
        let encoded = atrapos::Key::encode(&key);
        let index = (1..family.partitions()).take_while(|at| family.lower(*at) <= Some(&*encoded)).count();
        family.owner(index)
    };
    (0..HOT).filter(|key| owner(*key) == WorkerId(0)).count()
}

#[test]
fn the_first_scheme_is_that_of_the_mix_that_is_expected() {
    let trace = recorded();
    let naive = opened(|builder| builder);
    assert_eq!(on_first(&naive, "items"), 20, "all are on one worker");
    let naive_others = on_first(&naive, "others");
    let items = opened(|builder| builder.expected_mix(trace.clone(), [("look-up-items", 1.0)]));
    assert!((5..=15).contains(&on_first(&items, "items")), "{:?}", items.scheme());
    let others = opened(|builder| builder.expected_mix(trace.clone(), [("look-up-others", 2.0)]));
    assert!((5..=15).contains(&on_first(&others, "others")), "{:?}", others.scheme());
    assert_eq!(on_first(&others, "items"), 20, "what is not accessed stays as it was");
    assert_eq!(on_first(&items, "others"), naive_others, "what is not accessed stays as it was");
    // Without shares as it was recorded: half of the load is on each worker, however tables are cut.
    let both = opened(|builder| builder.fixed_scheme().expected_mix(trace, Vec::<(String, f64)>::new()));
    let all = on_first(&both, "items") + on_first(&both, "others");
    assert!((12..=28).contains(&all), "{:?}", both.scheme());
    // And such a database is one like any other.
    load_items(&both, ROWS, 1);
    assert!(both.verify().is_ok());
}

#[test]
fn what_was_recorded_on_fewer_or_more_workers_is_planned_for_those_there_are() {
    let trace = recorded();
    for workers in [1, 3] {
        let db =
            opened(|builder| builder.workers(workers).expected_mix(trace.clone(), [("look-up-items", 1.0)]));
        let first = on_first(&db, "items");
        assert!(if workers == 1 { first == 20 } else { first < 20 }, "{workers}: {first}");
    }
}

#[test]
fn an_expectation_that_cannot_be_met_is_refused() {
    let refused = |trace: WorkloadTrace, mix: &[(&str, f64)]| {
        let builder = Database::builder(two_tables()).workers(2).pin(false);
        let opened = builder.expected_mix(trace, mix.iter().copied()).in_memory();
        opened.expect_err("it is refused").to_string()
    };
    let trace = recorded();
    let unknown = refused(trace.clone(), &[("payment", 1.0)]);
    assert!(unknown.contains("'payment'") && unknown.contains("look-up-items"), "{unknown}");
    let mut seen = trace.clone();
    seen.classes[0].actions.clear();
    assert!(refused(seen, &[("look-up-items", 1.0)]).contains("only how many there were"));
    let mut other = trace.clone();
    other.tables[0].name = "customers".to_owned();
    assert!(refused(other, &[]).contains("no table 'customers'"));
    let mut without_keys = trace;
    without_keys
        .tables
        .iter_mut()
        .flat_map(|table| &mut table.partitions)
        .for_each(|part| part.starts.clear());
    assert!(refused(without_keys, &[]).contains("without keys"));
}
