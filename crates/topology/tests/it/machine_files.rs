//! Machine files in TOML: the example files, the round trip through `report::to_toml`, and contradictions.

use crate::fixture::{check_invariants, chiplets, eight_by_ten, islands, set};
use atrapos_topology::{
    CpuId, LatencyMatrix, Level, LiveOptions, Machine, NodeId, Origin, parse_spec, report,
};
use proptest::prelude::*;
use std::path::Path;

fn read(text: &str) -> Result<Machine, String> {
    Machine::from_toml(text, Path::new("m.toml")).map_err(|error| error.to_string()).inspect(check_invariants)
}

fn example(name: &str) -> Machine {
    let path = format!("{}/examples/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let source = parse_spec(&path).unwrap_or_else(|error| panic!("{error}"));
    let machine = source.load(&LiveOptions::new(None)).unwrap_or_else(|error| panic!("{error}"));
    check_invariants(&machine);
    assert_eq!(machine.origin(), &Origin::MachineFile(path.into()));
    assert_eq!(machine.refused(), []);
    machine
}

#[test]
fn the_example_files_are_machines() {
    let chiplets = example("two-chiplets");
    assert_eq!(islands(&chiplets, Level::L3), ["0-3", "4-7"]);
    assert_eq!(chiplets.usable_cpus(), &set("0-6"));
    assert_eq!(chiplets.memory_bytes(), Some(64 << 30));
    assert_eq!(chiplets.distance(CpuId(1), CpuId(2)), 1.0);
    assert!(chiplets.distance(CpuId(3), CpuId(7)) > 2.5, "not measured, but like those that were");
    assert!(!chiplets.is_live());

    let sockets = example("eight-sockets");
    assert_eq!(sockets.islands(Level::Socket).count(), 8);
    assert_eq!(sockets.default_workers(), 72);
    assert_eq!(sockets.name(), Some("eight sockets of ten cores"));

    let measured = example("measured-only");
    assert_eq!(islands(&measured, Level::L3), ["0,2", "1,3"]);
}

/// Properties that have to survive writing and reading.
fn essence(machine: &Machine) -> String {
    let levels: Vec<_> = Level::ALL.iter().map(|&level| islands(machine, level)).collect();
    let places: Vec<_> =
        machine.cpus().iter().map(|cpu| (cpu.id, cpu.node, cpu.socket, cpu.core, cpu.smt_rank)).collect();
    let nodes = machine.nodes();
    let slit: Vec<_> = nodes
        .iter()
        .flat_map(|a| nodes.iter().map(|b| machine.node_distance(a.id, b.id)).collect::<Vec<_>>())
        .collect();
    let pairs: Vec<_> = machine.latencies().map(|latencies| latencies.pairs().collect()).unwrap_or_default();
    format!(
        "{levels:?} {places:?} {nodes:?} {slit:?} {:?} {:?} {:?} {pairs:?}",
        machine.usable_cpus(),
        machine.cpu_quota(),
        machine.name(),
    )
}

fn check_round_trip(machine: &Machine) {
    let text = report::to_toml(machine);
    let again = read(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(essence(&again), essence(machine), "{text}");
}

#[test]
fn what_is_written_is_read_back_as_it_was() {
    for name in ["two-chiplets", "eight-sockets", "measured-only"] {
        check_round_trip(&example(name));
    }
    let fixture = eight_by_ten();
    fixture.cgroup_v2("/a").write("sys/fs/cgroup/a/cpu.max", "750000 100000");
    check_round_trip(&fixture.machine_with("3-17"));
    check_round_trip(&chiplets().machine());
    check_round_trip(
        &Machine::synthetic("pack:2 [numa(memory=1GiB)] [numa] l3:2 core:2 pu:2").expect("valid"),
    );
}

#[test]
fn contradictions_are_one_sentence_each() {
    let islands = "[[island]]\ncpus = \"0-1\"\n[[island]]\ncpus = \"2-3\"\nnode = 1\n";
    let latency = |cpus: &str, ns: &str| format!("{islands}[latency]\ncpus = {cpus}\nns = {ns}\n");
    let cases = [
        String::new(),
        "name = \"x".to_owned(),
        "\ncolour = \"red\"".to_owned(),
        "synthetic = \"pack:2 foo:1\"".to_owned(),
        format!("synthetic = \"pack:2 pu:1\"\n{islands}"),
        "synthetic = \"pack:2 pu:1\"\n[[node]]\nid = 0".to_owned(),
        format!("usable = \"0-4\"\n{islands}"),
        format!("usable = \"\"\n{islands}"),
        format!("cpu_quota = -1.0\n{islands}"),
        format!("cpu_quota = nan\n{islands}"),
        format!("{islands}[[island]]\ncpus = \"3-4\""),
        format!("{islands}[[island]]\ncpus = \"9-4\""),
        format!("{islands}[[island]]\ncpus = \"\""),
        format!("{islands}[[island]]\ncpus = \"4294967295\""),
        format!("{islands}[[node]]\nid = 0\n[[node]]\nid = 0"),
        format!("{islands}[[node]]\nid = 0\nmemory = \"plenty\""),
        format!("{islands}[[node]]\nid = 0\nmemory = -1"),
        format!("{islands}[smt]\ncores = [\"1,2\"]"),
        format!("{islands}[smt]\ncores = [\"0,7\"]"),
        format!("{islands}[smt]\ncores = [\"0,1\", \"1\"]"),
        format!("{islands}[distances]\nnodes = [0]\nmatrix = [[10]]"),
        format!("{islands}[distances]\nnodes = [0, 1]\nmatrix = [[10, 20], [21, 10]]"),
        format!("{islands}[distances]\nnodes = [0, 1]\nmatrix = [[10, 5], [5, 10]]"),
        format!("{islands}[distances]\nnodes = [0, 1]\nmatrix = [[11, 20], [20, 10]]"),
        latency("[0, 1]", "[[0, 50], [60, 0]]"),
        latency("[0, 1]", "[[0, 50]]"),
        latency("[0, 1]", "[[0, 50], [50]]"),
        latency("[0, 9]", "[[0, 50], [50, 0]]"),
        latency("[1, 1]", "[[0, 50], [50, 0]]"),
        latency("[0, 1]", "[[0, -50], [-50, 0]]"),
        latency("[0, 1]", "[[0, inf], [inf, 0]]"),
        latency("[]", "[]"),
        "[latency]\ncpus = [0, 4000000000]\nns = [[0, 1], [1, 0]]".to_owned(),
        "[[node]]\nid = 0\n[latency]\ncpus = [0, 1]\nns = [[0, 1], [1, 0]]".to_owned(),
    ];
    let said: Vec<String> = cases.iter().map(|text| read(text).expect_err(text)).collect();
    assert!(said.iter().all(|sentence| sentence.starts_with("the machine file m.toml is not accepted: ")));
    assert!(said.iter().all(|sentence| !sentence.contains('\n')));
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn nodes_are_numbered_as_the_file_says() {
    let machine = read(
        "[[island]]\ncpus = \"0-1\"\nnode = 7\n[[island]]\ncpus = \"2-3\"\nnode = 2\n\
         [distances]\nnodes = [7, 2]\nmatrix = [[10, 33], [33, 10]]",
    )
    .expect("valid");
    assert_eq!(machine.node_distance(NodeId(2), NodeId(7)), Some(33));
    assert_eq!(machine.node_distance(NodeId(2), NodeId(2)), Some(10));
    assert_eq!(
        islands(&machine, Level::Socket),
        ["2,3", "0,1"],
        "a socket without a number is that of its node"
    );
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "([a-z]{1,9} ?= ?[0-9\"\\[\\]{}a-z.,-]{0,12}\n|\\[\\[?(island|node|smt|latency|distances)\\]?\\]\n){0,6}") {
        let _ = read(&text);
    }

    #[test]
    fn every_synthetic_machine_survives_writing(
        (pack, numa, l3, core, pu) in (1u32..4, 1u32..3, 1u32..3, 1u32..4, 1u32..3),
        usable in prop::collection::btree_set(0u32..20, 0..20),
        ns in prop::collection::vec(1.0f64..1e6, 6),
    ) {
        let text = format!("pack:{pack} numa:{numa}(memory=3GiB) l3:{l3} core:{core} pu:{pu}");
        let mut machine = Machine::synthetic(&text).expect("valid");
        if !usable.is_empty() {
            machine = machine.restricted_to(&usable.into_iter().map(CpuId).collect(), "a test");
        }
        if machine.cpus().len() >= 4 {
            let at = |a: usize, b: usize| if a == b { f64::NAN } else { ns[(a * b + a + b) % 6] };
            let cpus: Vec<CpuId> = (0..4).map(CpuId).collect();
            let rows: Vec<Vec<f64>> = (0..4).map(|a| (0..4).map(|b| at(a, b)).collect()).collect();
            let matrix = LatencyMatrix::new(&cpus, &rows).expect("symmetric");
            machine = machine.with_latencies(matrix, "a test").expect("it has these");
        }
        check_round_trip(&machine);
    }
}
