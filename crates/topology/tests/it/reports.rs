//! Machines for people and for programs, as snapshots.

use crate::fixture::{check_invariants, chiplets, eight_by_ten, one_node};
use atrapos_topology::report::{render_marks, render_tree, to_json};
use atrapos_topology::{CpuId, LatencyMatrix, Machine};

fn synthetic(text: &str) -> Machine {
    let machine = Machine::synthetic(text).unwrap_or_else(|error| panic!("{error}"));
    check_invariants(&machine);
    machine
}

#[test]
fn a_virtual_machine_of_two_cpus() {
    let machine = one_node(2).machine();
    insta::assert_snapshot!(render_tree(&machine));
    let mut value = to_json(&machine);
    // The root of a fixture is another one every time.
    value["origin"]["from"] = "ROOT".into();
    insta::assert_snapshot!(
        "a_virtual_machine_of_two_cpus.json",
        serde_json::to_string_pretty(&value).expect("JSON")
    );
}

#[test]
fn eight_sockets_of_ten_cores() {
    insta::assert_snapshot!(render_tree(&eight_by_ten().machine()));
}

#[test]
fn chiplets_of_which_some_may_be_used() {
    let fixture = chiplets();
    fixture
        .write("sys/devices/system/cpu/online", "0-62,64-126\n")
        .write("sys/devices/system/node/node1/distance", "32 garbage\n")
        .node(2, "", 512 << 20, "14 24 10")
        .cgroup_v2("/job")
        .write("sys/fs/cgroup/job/cpu.max", "3150000 100000\n");
    let machine = fixture.machine_with("8-63,72-127");
    check_invariants(&machine);
    insta::assert_snapshot!(render_tree(&machine));
}

#[test]
fn a_thousand_cpus_fit_a_screen() {
    let machine = synthetic("pack:16 numa:4(memory=128GiB) l3:2 core:4 pu:2");
    assert_eq!(machine.cpus().len(), 1024);
    let text = render_tree(&machine);
    assert!(text.lines().count() < 40, "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn measured_distances_are_shown() {
    let machine = synthetic("pack:1 l3:2 core:2 pu:1");
    let cpus: Vec<CpuId> = (0..4).map(CpuId).collect();
    let ns = |a: u32, b: u32| if a / 2 == b / 2 { 42.0 + f64::from(a) } else { 120.0 };
    let rows: Vec<Vec<f64>> =
        (0..4).map(|a| (0..4).map(|b| ns(u32::min(a, b), u32::max(a, b))).collect()).collect();
    let matrix = LatencyMatrix::new(&cpus, &rows).expect("valid");
    let machine = machine.with_latencies(matrix, "measured round trips").expect("it has them");
    insta::assert_snapshot!(render_tree(&machine));
}

#[test]
fn json_has_the_keys_it_promises() {
    let fixture = eight_by_ten();
    fixture.cgroup_v2("/job").write("sys/fs/cgroup/job/cpu.max", "550000 100000\n");
    let value = to_json(&fixture.machine_with("0-9"));
    assert_eq!(value["cpus"].as_array().map(Vec::len), Some(80));
    assert_eq!(value["usable_cpus"], serde_json::json!([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]));
    assert_eq!(value["cpu_quota"], 5.5);
    assert_eq!(value["default_workers"], 5);
    assert_eq!(value["island_counts"], serde_json::json!({ "l3": 8, "node": 8, "socket": 8 }));
    assert_eq!(value["node_distances"][0][1], 15);
    assert_eq!(value["islands"]["children"].as_array().map(Vec::len), Some(8));
    assert_eq!(value["origin"]["kind"], "live");
    assert_eq!(value["latency"], serde_json::Value::Null);
    assert_eq!(value["refused"], serde_json::json!([]));
}

#[test]
fn marks_are_shown_one_by_one_where_they_fit_and_islands_alike_are_one() {
    let machine = synthetic("pack:2 l3:3 core:4 pu:2");
    let mark = |cpu: CpuId| match cpu.0 {
        0..8 => Some("A"),
        8..11 => Some("B"),
        11..24 => None,
        _ => Some("C"),
    };
    let text = render_marks(&machine, &|cpu| mark(cpu).map(str::to_owned));
    insta::assert_snapshot!(text, @r"
    ├─ socket 0 = node 0: 12 cores of 2 threads, cpus 0-23
    │  ├─ L3 island: 4 cores of 2 threads, cpus 0-7
    │  │     AA AA AA AA
    │  ├─ L3 island: 4 cores of 2 threads, cpus 8-15
    │  │     BB B. .. ..
    │  └─ L3 island: 4 cores of 2 threads, cpus 16-23
    │        .. .. .. ..
    └─ socket 1 = node 1: 12 cores of 2 threads, cpus 24-47
       └─ 3 x L3 island: 4 cores of 2 threads each, cpus 24-31 | 32-39 | .. | 40-47
             CC CC CC CC
    ");
    let wide = synthetic("pack:1 core:40 pu:2");
    let text = render_marks(&wide, &|cpu| Some(if cpu.0 < 30 { "AA" } else { "B" }.to_owned()));
    assert!(text.contains("30 x AA, 50 x B"), "{text}");
}
