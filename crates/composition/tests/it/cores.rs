//! Mapping onto machines: on examples, and its promises on random machines.

use atrapos_composition::{CompositionError, map_onto, span};
use atrapos_topology::{CpuId, CpuSet, Level, Machine};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn mapped(description: &str, sizes: &[u32]) -> Vec<String> {
    let machine = Machine::synthetic(description).expect("a machine");
    let cpus = map_onto(&machine, sizes).expect("the machine is large enough");
    cpus.into_iter().map(|cpus| cpus.into_iter().collect::<CpuSet>().to_string()).collect()
}

#[test]
fn the_sizes_of_the_paper_are_sockets_and_halves_of_them() {
    let paper = "pack:8 core:24 pu:2";
    let machine = Machine::synthetic(paper).expect("a machine");
    let sizes = [48, 24, 24, 48, 1, 48, 48];
    let cpus = map_onto(&machine, &sizes).expect("room");
    assert!(cpus.iter().all(|cpus| span(&machine, cpus) == Some(Level::L3)), "{cpus:?}");
    assert_eq!(mapped(paper, &sizes)[1..3], ["192-215", "216-239"]);
}

#[test]
fn siblings_stay_together_and_broken_cores_are_filled_first() {
    assert_eq!(mapped("pack:1 core:4 pu:2", &[3, 2, 1]), ["0-2", "4,5", "3"]);
}

#[test]
fn a_large_domain_takes_whole_islands_first() {
    assert_eq!(mapped("pack:2 l3:3 core:4 pu:1", &[10, 4, 4, 2]), ["0-9", "12-15", "16-19", "10,11"]);
}

#[test]
fn too_many_workers_are_refused() {
    let machine = Machine::synthetic("core:4 pu:1").expect("a machine");
    let refused = map_onto(&machine, &[3, 2]).expect_err("refused");
    let CompositionError::TooFewWorkers { needed: 5, available: 4, .. } = refused else {
        panic!("{refused}")
    };
    assert_eq!(span(&machine, &[]), None);
}

/// The usable processing units of each island of a level that are not taken.
fn free(machine: &Machine, level: Level, taken: &BTreeSet<CpuId>) -> Vec<usize> {
    let usable = machine.usable_cpus();
    let is_free = |cpu: &CpuId| usable.contains(*cpu) && !taken.contains(cpu);
    machine.islands(level).map(|island| island.cpus.iter().filter(is_free).count()).collect()
}

proptest! {
    #[test]
    fn domains_are_disjoint_and_in_the_finest_island_with_room(
        widths in (1_u32..4, 1_u32..4, 1_u32..5, 1_u32..3),
        refused in proptest::collection::btree_set(0_u32..96, 0..20),
        wanted in proptest::collection::vec(1_u32..20, 1..12),
    ) {
        let (sockets, caches, cores, threads) = widths;
        let description = format!("pack:{sockets} l3:{caches} core:{cores} pu:{threads}");
        let machine = Machine::synthetic(&description).expect("a machine");
        let usable: CpuSet =
            machine.usable_cpus().iter().filter(|cpu| !refused.contains(&cpu.0)).collect();
        let machine = machine.restricted_to(&usable, "the test");
        let mut left = machine.usable_cpus().len() as u32;
        let mut sizes = Vec::new();
        for size in wanted {
            let size = size.min(left);
            if size > 0 {
                sizes.push(size);
            }
            left -= size;
        }
        let cpus = map_onto(&machine, &sizes).expect("room");

        let mut order: Vec<usize> = (0..sizes.len()).collect();
        order.sort_by_key(|at| (std::cmp::Reverse(sizes[*at]), *at));
        let mut taken = BTreeSet::new();
        for at in order {
            prop_assert_eq!(cpus[at].len(), sizes[at] as usize);
            let level = span(&machine, &cpus[at]).expect("a domain has processing units");
            for finer in Level::ALL.into_iter().filter(|finer| *finer < level) {
                let room = free(&machine, finer, &taken).into_iter().max().unwrap_or(0);
                prop_assert!(room < cpus[at].len(), "an island of level {finer} had room");
            }
            for cpu in &cpus[at] {
                prop_assert!(machine.usable_cpus().contains(*cpu));
                prop_assert!(taken.insert(*cpu), "{cpu:?} is in two domains");
            }
        }
    }
}
