//! Assignment of workers to processing units, and distances between them.

use crate::fixture::{chiplets, set};
use atrapos_topology::{CpuId, CpuSet, LatencyError, LatencyMatrix, Level, Machine, Relation};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn synthetic(text: &str) -> Machine {
    Machine::synthetic(text).unwrap_or_else(|error| panic!("{error}"))
}

fn numbers(cpus: &[CpuId]) -> Vec<u32> {
    cpus.iter().map(|cpu| cpu.0).collect()
}

#[test]
fn cores_come_before_siblings_and_islands_one_after_another() {
    let machine = synthetic("pack:2 l3:2 core:2 pu:2");
    assert_eq!(numbers(&machine.placement(4)), [0, 2, 4, 6]);
    assert_eq!(numbers(&machine.placement(10)), [0, 2, 4, 6, 8, 10, 12, 14, 1, 3]);
    assert_eq!(machine.placement(0), []);
    // Oversubscribed: from the beginning again.
    let placed = machine.placement(18);
    assert_eq!(placed[16..], placed[..2]);
}

#[test]
fn the_largest_usable_island_comes_first() {
    // Socket 0 keeps one core, socket 1 all of its own; within it the L3 island that lost a core comes second.
    let machine = synthetic("pack:2 l3:2 core:4 pu:1").restricted_to(&set("3,8-10,12-15"), "a test");
    assert_eq!(numbers(&machine.placement(8)), [12, 13, 14, 15, 8, 9, 10, 3]);
    assert_eq!(machine.default_workers(), 8);
}

#[test]
fn a_sibling_stands_in_for_an_unusable_first_thread() {
    let machine = chiplets().machine_with("64-67,0");
    assert_eq!(numbers(&machine.placement(5)), [0, 65, 66, 67, 64]);
    assert_eq!(machine.default_workers(), 4);
}

#[test]
fn restrictions_add_up_but_never_to_nothing() {
    let machine = synthetic("pack:1 core:4 pu:1").restricted_to(&set("0-2"), "one");
    let machine = machine.restricted_to(&set("2-9"), "two");
    assert_eq!(machine.usable_cpus(), &set("2"));
    let machine = machine.restricted_to(&set("7"), "the third mask");
    assert_eq!(machine.usable_cpus(), &set("2"));
    assert_eq!(
        machine.refused().iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["the third mask allows only cpus 7, none of which is usable here, so it is not applied"]
    );
}

#[test]
fn measured_distances_replace_assumed_ones() {
    let machine = synthetic("pack:2 l3:2 core:2 pu:1");
    let cpus: Vec<CpuId> = (0..8).map(CpuId).collect();
    let ns = |a: u32, b: u32| match (a / 2 == b / 2, a / 4 == b / 4) {
        // Only some pairs between sockets are measured.
        _ if a / 4 != b / 4 && !(a + b).is_multiple_of(3) => f64::NAN,
        (true, _) => 50.0,
        (false, true) => 120.0,
        (false, false) => 400.0,
    };
    let rows: Vec<Vec<f64>> = (0..8).map(|a| (0..8).map(|b| ns(a, b)).collect()).collect();
    let matrix = LatencyMatrix::new(&cpus, &rows).expect("valid");
    let measured =
        machine.clone().with_latencies(matrix.clone(), "a test").expect("the machine has them all");
    let distance = |a, b| measured.distance(CpuId(a), CpuId(b));
    assert_eq!((distance(0, 0), distance(0, 1), distance(0, 2)), (0.0, 1.0, 2.4));
    assert_eq!(distance(0, 6), 8.0, "measured");
    assert_eq!(distance(0, 7), 8.0, "like the measured ones");
    assert_eq!(measured.distance_unit_ns(), Some(50.0));
    assert_eq!(measured.median_latency_ns(Relation::SameNode), Some(120.0));
    assert_eq!(measured.median_latency_ns(Relation::SmtSiblings), None);
    assert_eq!(machine.distance(CpuId(0), CpuId(2)), 2.5, "the machine without them is as it was");

    let small = synthetic("pack:1 core:4 pu:1");
    assert_eq!(
        small.with_latencies(matrix, "a test").err(),
        Some(LatencyError::UnknownCpu { cpu: CpuId(4) })
    );
}

proptest! {
    #[test]
    fn placement_is_fair_and_a_prefix_of_more(
        (pack, l3, core, pu) in (1u32..4, 1u32..4, 1u32..4, 1u32..3),
        usable in prop::collection::btree_set(0u32..108, 1..60),
        workers in 0usize..120,
    ) {
        let machine = synthetic(&format!("pack:{pack} l3:{l3} core:{core} pu:{pu}"));
        let allowed: CpuSet = usable.into_iter().map(CpuId).collect();
        let machine = machine.restricted_to(&allowed, "a test");
        let placed = machine.placement(workers);
        prop_assert_eq!(placed.len(), workers);
        prop_assert!(placed.iter().all(|&cpu| machine.usable_cpus().contains(cpu)));
        prop_assert!(machine.placement(workers + 7).starts_with(&placed));
        let usable = machine.usable_cpus().len();
        for cpu in machine.usable_cpus().iter() {
            let times = placed.iter().filter(|&&other| other == cpu).count();
            prop_assert!(times == workers / usable || times == workers / usable + 1);
        }
        // As long as there are cores left, no two workers share one.
        let cores = machine.usable_core_count();
        let first: BTreeSet<_> = placed.iter().take(cores).filter_map(|&cpu| machine.cpu(cpu)).map(|cpu| cpu.core).collect();
        prop_assert_eq!(first.len(), workers.min(cores));
        // No smaller number of sockets could hold them.
        let mut of_socket: Vec<usize> = machine.islands(Level::Socket).map(|island| {
            let usable = |core: &&atrapos_topology::Core| core.cpus.iter().any(|&cpu| machine.usable_cpus().contains(cpu));
            machine.cores().iter().filter(|core| island.cpus.contains(core.cpus[0])).filter(usable).count()
        }).collect();
        of_socket.sort_unstable_by(|a, b| b.cmp(a));
        let wanted = workers.min(cores);
        let mut held = 0;
        let fewest = of_socket.iter().take_while(|&&cores| { let more = held < wanted; held += cores; more }).count();
        let touched: BTreeSet<_> = placed.iter().take(cores).filter_map(|&cpu| machine.island_of(cpu, Level::Socket)).collect();
        prop_assert_eq!(touched.len(), fewest);
    }

    #[test]
    fn distance_is_symmetric_and_grows_with_levels(
        (pack, numa, l3, core, pu) in (1u32..4, 1u32..3, 1u32..3, 1u32..3, 1u32..3),
    ) {
        let machine = synthetic(&format!("pack:{pack} numa:{numa} l3:{l3} core:{core} pu:{pu}"));
        let cpus: Vec<CpuId> = machine.cpus().iter().map(|cpu| cpu.id).collect();
        for &a in &cpus {
            for &b in &cpus {
                let distance = machine.distance(a, b);
                prop_assert_eq!(distance, machine.distance(b, a));
                prop_assert_eq!(distance == 0.0, a == b);
                for &c in &cpus {
                    if machine.relation(a, b) < machine.relation(a, c) {
                        prop_assert!(distance < machine.distance(a, c));
                    }
                }
            }
        }
    }
}
