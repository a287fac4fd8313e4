//! Machines in hwloc's synthetic notation.

use crate::fixture::{check_invariants, islands};
use atrapos_topology::{CpuId, Level, Machine, NodeId, TopologyError};
use proptest::prelude::*;

fn machine(text: &str) -> Machine {
    let machine = Machine::synthetic(text).unwrap_or_else(|error| panic!("{error}"));
    check_invariants(&machine);
    machine
}

/// Numbers of cpus, cores, and islands of the levels L3, node and socket.
fn shape(text: &str) -> [usize; 5] {
    let machine = machine(text);
    let count = |level| machine.islands(level).count();
    [machine.cpus().len(), machine.cores().len(), count(Level::L3), count(Level::Node), count(Level::Socket)]
}

#[test]
fn descriptions_give_the_machines_they_say() {
    assert_eq!(shape("pack:8 l3:2 core:5 pu:1"), [80, 80, 16, 8, 8]);
    assert_eq!(shape("pack:2 numa:2 l3:2 core:2 pu:2"), [32, 16, 8, 4, 2]);
    assert_eq!(shape("PACKAGE:2 NumaNode:1 L3Cache:4 Core:8 PU:2"), [128, 64, 8, 2, 2]);
    assert_eq!(shape("socket:2 node:1 l3u:1 co:4 pu:1"), [8, 8, 2, 2, 2]);
    assert_eq!(shape("numa:4 core:4 pu:1"), [16, 16, 4, 4, 4]);
    assert_eq!(shape("pack:2 [numa] l3:2 core:2 pu:1"), [8, 8, 4, 2, 2]);
    assert_eq!(shape("[numa] pack:2 core:2 pu:1"), [4, 4, 2, 2, 2], "one memory under two sockets is cut");
    assert_eq!(shape("core:4 pu:2"), [8, 4, 1, 1, 1]);
    assert_eq!(shape("pu:1"), [1, 1, 1, 1, 1]);
    assert_eq!(shape("die:2 core:4 pu:1"), [8, 8, 2, 1, 1]);
    assert_eq!(shape("pack:1 l2:4 core:2 pu:1"), [8, 8, 4, 1, 1]);
    assert_eq!(shape("pack:1 l2:8 core:1 pu:1"), [8, 8, 1, 1, 1], "a private L2 is no island");
    assert_eq!(shape("pack:1 l4:1 l3:2 group:2 l2:2 l1d:1 l1i:1 core:1 pu:1"), [8, 8, 2, 1, 1]);
    assert_eq!(shape("2 2 3 4"), [48, 12, 4, 4, 2]);
    assert_eq!(shape("8"), [8, 8, 1, 1, 1]);
    assert_eq!(shape("pack:1 l3:1 numa:2 core:4 pu:1"), [8, 8, 2, 2, 1], "an L3 over two nodes is cut");
    assert_eq!(shape("pack:16 l3:8 core:8 pu:1"), [1024, 1024, 128, 16, 16]);
}

#[test]
fn memory_is_understood() {
    let memory = |text: &str| machine(text).nodes().iter().map(|node| node.memory_bytes).collect::<Vec<_>>();
    assert_eq!(memory("pack:2 numa:1(memory=4GiB) pu:2"), [Some(4 << 30); 2]);
    assert_eq!(memory("pack:2 [numa(memory=4GB)] pu:2"), [Some(4_000_000_000); 2]);
    assert_eq!(memory("pack:2(memory=0x1000) pu:2"), [Some(4096); 2]);
    assert_eq!(memory("(memory=1GiB name=box) pack:2 pu:2"), [Some(512 << 20); 2]);
    assert_eq!(memory("pack:2 pu:2"), [None; 2]);
    // Ordinary memory first, then a second kind that no core is nearest to.
    let machine = machine("pack:2 [numa(memory=64GiB)] [numa(memory=8GiB)] l3:1(size=32MiB) core:2 pu:1");
    assert_eq!(machine.nodes().len(), 4);
    assert_eq!(machine.islands(Level::Node).count(), 2);
    assert_eq!(machine.cpu(CpuId(2)).map(|cpu| cpu.node), Some(NodeId(1)));
}

#[test]
fn indexes_number_cpus_and_nodes() {
    let interleaved = ["pack:2 core:4 pu:1(indexes=4*2:1*4)", "pack:2 core:4 pu:1(indexes=pack:core)"];
    for text in interleaved {
        assert_eq!(islands(&machine(text), Level::Socket), ["0,2,4,6", "1,3,5,7"]);
    }
    let smt_last = machine("pack:2 core:2 pu:2(indexes=pack:core)");
    assert_eq!(smt_last.cores()[0].cpus, [CpuId(0), CpuId(4)]);
    let nodes = machine("pack:2 numa:1(memory=4GiB indexes=5,3) pu:2");
    assert_eq!(nodes.cpu(CpuId(0)).map(|cpu| cpu.node), Some(NodeId(5)));
}

#[test]
fn mistakes_are_named_with_their_position() {
    let cases = [
        "",
        "pack:8 foo:2 pu:1",
        "pack:8 core:2",
        "pu:1 core:2",
        "pack:0 pu:1",
        "pack: pu:1",
        "pack pu:1",
        "pack:2 core:2 2",
        "pack:2 pack:2 pu:1",
        "machine:1 pu:1",
        "pack:2,pu:1",
        "pack:2 [core] pu:1",
        "pack:2 [numa pu:1",
        "pack:2(memory=lots) pu:1",
        "pack:2(colour=red) pu:1",
        "pack:2(memory=1GiB",
        "pack:2(memory) pu:1",
        "pack:2 pu:2(indexes=0,1,2)",
        "pack:2 numa:1(indexes=1,1) pu:2",
        "[numa(indexes=0)] pack:2 [numa(indexes=0,1)] pu:2",
        "pack:1000 core:1000 pu:1",
        "pack:99999999999 pu:1",
        "1 1 1 1 1 1 1 1",
        "päck:2 pu:1",
        "-2",
    ];
    let mut said = String::new();
    for text in cases {
        let error = Machine::synthetic(text).expect_err(text);
        assert!(matches!(error, TopologyError::Synthetic { .. }));
        said.push_str(&error.to_string());
        said.push('\n');
    }
    insta::assert_snapshot!(said);
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in ".{0,60}") {
        let _ = Machine::synthetic(&text);
    }

    #[test]
    fn nor_does_text_that_is_nearly_right(
        text in "((pack|numa|l3|l2|core|pu|die|[a-z]{1,4})?:?[0-9]{0,3}(\\((memory|indexes|size)=[0-9*:,a-zG]{0,8}\\))? ?|\\[numa\\]){0,6}",
    ) {
        if let Ok(machine) = Machine::synthetic(&text) {
            check_invariants(&machine);
        }
    }

    #[test]
    fn counts_multiply(pack in 1usize..5, numa in 1usize..4, l3 in 1usize..4, core in 1usize..5, pu in 1usize..3) {
        let shape = shape(&format!("pack:{pack} numa:{numa} l3:{l3} core:{core} pu:{pu}"));
        let nodes = pack * numa;
        prop_assert_eq!(shape, [nodes * l3 * core * pu, nodes * l3 * core, nodes * l3, nodes, pack]);
    }
}
