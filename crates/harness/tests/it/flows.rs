//! The flow graphs of the workloads' classes, recorded from their procedures.

use atrapos_harness::flows;
use atrapos_workloads::micro::{Kind, Micro, MicroConfig};
use atrapos_workloads::tatp::Tatp;
use atrapos_workloads::tatp::parameters::{Class, Mix};
use atrapos_workloads::tpcc::{Tpcc, TpccConfig};
use atrapos_workloads::{KeyChoice, Workload};

fn tatp(subscribers: u64, mix: Mix, seed: u64) -> Tatp {
    Tatp::new(subscribers, mix, KeyChoice::Uniform, seed).expect("a possible number of subscribers")
}

#[test]
fn graphs_do_not_depend_on_what_happens_to_be_chosen() {
    let expected = flows(&tatp(100_000, Mix::Standard, 1)).expect("recorded");
    assert!(expected.iter().map(|flow| flow.class.name.as_str()).eq(Class::NAMES));
    assert_eq!(expected, flows(&tatp(100_000, Mix::Standard, 1)).expect("recorded"));
    // A mix of one class has the graphs of all; another seed has other rows and arguments, and the same graphs.
    for other in [tatp(700, Mix::Only(Class::GetAccessData), 2), tatp(100_000, Mix::Standard, 3)] {
        let seed = format!("{other:?}");
        for (expected, flow) in expected.iter().zip(flows(&other).expect("recorded")) {
            assert_eq!(expected.class.actions, flow.class.actions, "{seed}");
            assert_eq!(expected.class.dependencies, flow.class.dependencies, "{seed}");
            assert_eq!(expected.phases, flow.phases, "{seed}");
        }
    }
}

#[test]
fn graphs_fit_the_tables_and_the_families() {
    for flow in flows(&tatp(300, Mix::Standard, 4)).expect("recorded") {
        flow.class.check(5).expect("four tables and an index");
        assert_eq!(flow.tables.len(), 5);
        assert_eq!(flow.families, [0, 0, 0, 0, 1]);
        let by_family = flow.class_by_family();
        by_family.check(2).expect("the subscribers' family and the index's");
        assert_eq!(by_family.sync_points, flow.class.sync_points);
    }
}

#[test]
fn the_microbenchmark_has_its_rows_in_one_phase() {
    for kind in [Kind::Read, Kind::Update] {
        // Fewer rows than a transaction touches elsewhere, one row, and more than there are by default.
        for (rows_per_transaction, rows_per_site) in [(10, 10), (1, 1), (150, 1 << 40)] {
            let config =
                MicroConfig { kind, rows_per_transaction, rows_per_site, sites: 3, ..MicroConfig::default() };
            let micro = Micro::new(config).expect("a possible configuration");
            let recorded = flows(&micro).expect("recorded");
            assert_eq!(recorded.len(), micro.classes().len());
            for flow in recorded {
                let [action] = &flow.class.actions[..] else { panic!("{flow:?}") };
                assert_eq!(
                    (action.repeat_min, action.repeat_max),
                    (rows_per_transaction as u32, rows_per_transaction as u32)
                );
                assert_eq!(flow.class.sync_points.len(), usize::from(rows_per_transaction > 1));
                assert!(flow.class.dependencies.is_empty());
            }
        }
    }
}

/// Actions as people write them, with how often they happen.
fn actions(flow: &atrapos::RecordedFlow) -> Vec<String> {
    let mut actions = Vec::new();
    for action in &flow.class.actions {
        let (letter, table) = (action.operation.letter(), &flow.tables[action.table.index()]);
        actions.push(match (action.repeat_min, action.repeat_max) {
            (1, 1) => format!("{letter} {table}"),
            (min, max) => format!("{letter} {table} x {min}..{max}"),
        });
    }
    actions
}

/// Not the order of the phases, which differs from the specification's on purpose, but what is accessed, as in Figure 7 of
/// `ATraPos`; and what is not there: the copy of `item` brings no access of its own.
#[test]
fn tpcc_accesses_what_the_specification_says() {
    let config = TpccConfig { seed: 4, ..TpccConfig::default() };
    let recorded = flows(&Tpcc::new(config).expect("a configuration")).expect("recorded");
    let named = |name: &str| {
        let mut actions = actions(recorded.iter().find(|flow| flow.class.name == name).expect("the class"));
        actions.sort();
        actions
    };
    assert_eq!(
        named("new-order"),
        [
            "I new_order",
            "I order",
            "I order_by_customer",
            "I order_line x 5..15",
            "R customer",
            "R item x 5..15",
            "R warehouse",
            "U district",
            "U stock x 5..15",
        ]
    );
    assert_eq!(
        named("payment"),
        ["I history", "S customer_by_name x 0..1", "U customer", "U district", "U warehouse"]
    );
    assert_eq!(
        named("order-status"),
        ["R customer", "R order", "S customer_by_name x 0..1", "S order_by_customer", "S order_line"]
    );
    assert_eq!(
        named("delivery"),
        [
            "D new_order x 2..2",
            "R order",
            "S new_order",
            "U customer x 2..2",
            "U order",
            "U order_line x 5..15",
        ]
    );
    let stock_level = named("stock-level");
    assert_eq!(stock_level[..2], ["R district", stock_level[1].as_str()]);
    for flow in &recorded {
        flow.class.check(11).expect("nine tables and two indexes");
        assert!(flow.families.iter().all(|family| *family == 0), "one family");
    }
}
