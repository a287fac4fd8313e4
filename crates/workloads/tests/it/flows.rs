//! The flow graphs of the workloads' classes, recorded from their procedures.

use atrapos_workloads::micro::{Kind, Micro, MicroConfig};
use atrapos_workloads::tatp::Tatp;
use atrapos_workloads::tatp::parameters::{Class, Mix};
use atrapos_workloads::{KeyChoice, Workload, flows};

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
