//! The live reader on machines that are not at hand, and on files that are absurd.

use crate::fixture::{
    CpuFiles, Fixture, check_invariants, chiplets, eight_by_ten, islands, one_node, refused, set,
};
use atrapos_topology::{CpuId, Level, LiveOptions, Machine, NodeId, Relation, SocketId};
use proptest::prelude::*;

#[test]
fn eight_sockets_of_ten_cores() {
    let machine = eight_by_ten().machine();
    check_invariants(&machine);
    assert_eq!(refused(&machine), "");
    assert_eq!((machine.cpus().len(), machine.cores().len()), (80, 80));
    for level in [Level::L3, Level::Node, Level::Socket] {
        assert_eq!(machine.islands(level).count(), 8);
    }
    assert_eq!(machine.memory_bytes(), Some(8 * (64 << 30)));
    assert_eq!(machine.node_distance(NodeId(0), NodeId(4)), Some(15));
    assert_eq!(machine.cpu(CpuId(79)).map(|cpu| cpu.socket), Some(SocketId(7)));
    // One hop keeps the nominal distance, two hops are as much farther as the firmware says.
    assert_eq!(machine.distance(CpuId(0), CpuId(9)), 1.0);
    assert_eq!(machine.distance(CpuId(0), CpuId(10)), 5.0);
    assert!((machine.distance(CpuId(0), CpuId(30)) - 5.0 * 20.0 / 15.0).abs() < 1e-9);
    assert_eq!(machine.default_workers(), 80);
    assert!(machine.is_live());
}

#[test]
fn two_sockets_of_eight_chiplets() {
    let machine = chiplets().machine();
    check_invariants(&machine);
    assert_eq!(refused(&machine), "");
    assert_eq!((machine.cpus().len(), machine.cores().len()), (128, 64));
    assert_eq!(machine.islands(Level::L3).count(), 16);
    assert_eq!(machine.islands(Level::Node).count(), 2);
    assert_eq!(islands(&machine, Level::L3)[1], "4-7,68-71");
    let relation = |a, b| machine.relation(CpuId(a), CpuId(b));
    assert_eq!(relation(0, 64), Some(Relation::SmtSiblings));
    assert_eq!(relation(0, 65), Some(Relation::SameL3));
    assert_eq!(relation(0, 4), Some(Relation::SameNode));
    assert_eq!(relation(0, 32), Some(Relation::OtherSocket));
    assert_eq!(relation(0, 128), None);
    assert_eq!(machine.distance(CpuId(0), CpuId(128)), f64::INFINITY);
}

#[test]
fn a_virtual_machine_with_one_of_everything() {
    let machine = one_node(2).machine();
    check_invariants(&machine);
    assert_eq!(refused(&machine), "");
    assert_eq!(islands(&machine, Level::L3), ["0,1"]);
    assert_eq!(machine.default_workers(), 2);
    assert!(machine.provenance().iter().any(|provenance| provenance.source.contains("virtual machine")));
}

#[test]
fn nodes_without_memory_and_nodes_without_cpus() {
    let fixture = eight_by_ten();
    fixture.node(3, "30-39", 0, "20 20 15 10 20 20 20 15");
    let machine = fixture.machine();
    check_invariants(&machine);
    assert_eq!(machine.nodes()[3].memory_bytes, Some(0));
    assert_eq!(machine.islands(Level::Node).count(), 8);

    let fixture = one_node(4);
    fixture.node(0, "0-3", 1 << 20, "10 17").node(2, "", 512 << 20, "17 10");
    let machine = fixture.machine();
    check_invariants(&machine);
    assert_eq!(refused(&machine), "");
    assert_eq!(machine.nodes().len(), 2);
    assert_eq!(machine.islands(Level::Node).count(), 1, "memory alone is no island of cores");
    assert_eq!(machine.node_distance(NodeId(0), NodeId(2)), Some(17));
}

#[test]
fn memory_that_does_not_add_up_is_corrected() {
    let total = |fixture: &Fixture, gib: u64| {
        fixture.write("proc/meminfo", &format!("MemTotal: {} kB\n", gib << 20));
    };
    // Plugged in at run time: the one node has it all, whatever its own count says.
    let fixture = one_node(2);
    total(&fixture, 48);
    let machine = fixture.machine();
    assert_eq!(machine.nodes()[0].memory_bytes, Some(48 << 30));
    assert!(
        refused(&machine).contains("/proc/meminfo says 51539607552, which is believed"),
        "{}",
        refused(&machine)
    );
    // Several nodes: their shares are all that is known.
    let fixture = chiplets();
    fixture.node(0, "0-31,64-95", 64 << 20, "10 32").node(1, "32-63,96-127", 192 << 20, "32 10");
    total(&fixture, 512);
    let machine = fixture.machine();
    let shares: Vec<_> = machine.nodes().iter().map(|node| node.memory_bytes).collect();
    assert_eq!(shares, [Some(128 << 30), Some(384 << 30)]);
    assert!(refused(&machine).contains("in proportion only"), "{}", refused(&machine));
    // What the kernel keeps for itself is no contradiction, and a missing count is filled in without one.
    let fixture = one_node(2);
    total(&fixture, 15);
    assert_eq!(fixture.machine().nodes()[0].memory_bytes, Some(16 << 30));
    fixture.write("sys/devices/system/node/node0/meminfo", "");
    let machine = fixture.machine();
    assert_eq!(machine.nodes()[0].memory_bytes, Some(15 << 30));
    assert!(!refused(&machine).contains("adds up"), "{}", refused(&machine));
}

#[test]
fn offline_cores_are_left_out() {
    let fixture = eight_by_ten();
    fixture.write("sys/devices/system/cpu/online", "0-9,20-39,41-79\n");
    let machine = fixture.machine();
    check_invariants(&machine);
    assert_eq!(machine.cpus().len(), 69);
    assert_eq!(machine.offline_cpus(), &set("10-19,40"));
    assert_eq!(machine.islands(Level::Socket).count(), 7);
    assert_eq!(islands(&machine, Level::L3)[3], "41-49");
    assert_eq!(refused(&machine), "");
}

#[test]
fn an_empty_tree_is_a_machine_all_the_same() {
    let fixture = Fixture::empty();
    let machine = fixture.machine();
    check_invariants(&machine);
    assert_eq!(islands(&machine, Level::Machine), ["0"]);
    let machine = fixture.machine_with("2-5");
    check_invariants(&machine);
    assert_eq!(islands(&machine, Level::L3), ["2-5"]);
    assert_eq!(machine.default_workers(), 4);
}

#[test]
fn without_an_online_list_the_directories_count() {
    let fixture = Fixture::empty();
    for cpu in 0..4 {
        fixture.cpu(cpu, &CpuFiles::default());
    }
    fixture.write("sys/devices/system/cpu/cpu2/online", "0\n");
    let machine = fixture.machine();
    check_invariants(&machine);
    assert_eq!(islands(&machine, Level::Machine), ["0,1,3"]);
    assert_eq!(machine.offline_cpus(), &set("2"));
}

#[test]
fn absurd_files_are_refused_one_line_per_kind() {
    let fixture = eight_by_ten();
    fixture.write("sys/devices/system/cpu/online", "0-4294967295\n");
    for cpu in 0..80 {
        let directory = format!("sys/devices/system/cpu/cpu{cpu}");
        fixture.write(&format!("{directory}/topology/physical_package_id"), "-1\n");
        fixture.write(&format!("{directory}/topology/core_cpus_list"), "\u{0}garbage\n");
        fixture.write(&format!("{directory}/cache/index3/shared_cpu_list"), "9-0\n");
    }
    fixture.write("sys/devices/system/node/node0/distance", "10 -3 20 20 15 20 20 20\n");
    fixture.write("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal: 99999999999999999999 kB\n");
    fixture.write("sys/devices/system/node/node2/meminfo", "Node 2 MemTotal: 1 bananas\n");
    let machine = fixture.machine();
    check_invariants(&machine);
    // Everything else still holds: 80 cpus from their directories, 8 nodes that stand for the sockets.
    assert_eq!((machine.cpus().len(), machine.cores().len()), (80, 80));
    assert_eq!(machine.islands(Level::Socket).count(), 8);
    assert_eq!(machine.islands(Level::L3).count(), 8);
    assert_eq!((machine.nodes()[1].memory_bytes, machine.nodes()[2].memory_bytes), (None, None));
    assert!(!machine.has_node_distances());
    insta::assert_snapshot!(refused(&machine), @r"
    /sys/devices/system/cpu/online names cpu 4294967295, beyond the largest believable number 65535, so it is ignored
    /sys/devices/system/cpu/cpu0/topology/physical_package_id says `-1`, which is no socket number, so the socket is that of the memory node (and 79 more like it)
    /sys/devices/system/cpu/cpu0/topology/core_cpus_list contains `\0garbage`, which is neither a number nor a range such as 0-3, so it is ignored (and 79 more like it)
    /sys/devices/system/node/node1/meminfo gives no believable MemTotal, so the memory of the node is not known (and another one like it)
    /sys/devices/system/node/nodeN/distance: the distances contain `-3`, so all nodes count as equally far
    /sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list contains the backward range 9-0, so it is ignored (and 79 more like it)
    ");
}

#[test]
fn contradictory_siblings_become_cores_of_their_own() {
    let fixture = one_node(8);
    let siblings = |cpu: u32, list: &str| {
        fixture.write(&format!("sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list"), list);
    };
    siblings(0, "0-1");
    siblings(1, "1-2"); // does not agree with 0
    siblings(2, "2");
    siblings(3, "4"); // not itself
    siblings(4, "4");
    siblings(5, "5-6");
    siblings(6, "5-6");
    let machine = fixture.machine();
    check_invariants(&machine);
    let cores: Vec<Vec<u32>> =
        machine.cores().iter().map(|core| core.cpus.iter().map(|cpu| cpu.0).collect()).collect();
    assert_eq!(cores, [vec![0], vec![1], vec![2], vec![3], vec![4], vec![5, 6], vec![7]]);
    insta::assert_snapshot!(refused(&machine), @"the list of SMT siblings of cpu 0 names 0,1, to which cpu 1 does not agree, so it counts as a core of its own (and 2 more like it)");
}

#[test]
fn a_core_of_a_hundred_threads_is_not_believed() {
    let fixture = one_node(100);
    for cpu in 0..100 {
        fixture.write(&format!("sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list"), "0-99");
    }
    let machine = fixture.machine();
    check_invariants(&machine);
    assert_eq!(machine.cores().len(), 100);
    assert!(refused(&machine).contains("100 cpus are SMT siblings of one core"), "{}", refused(&machine));
    assert!(refused(&machine).contains("(and 99 more like it)"), "{}", refused(&machine));
}

#[test]
fn siblings_across_sockets_become_cores_of_their_own() {
    let fixture = chiplets();
    for (cpu, list) in [(0, "0,32"), (32, "0,32"), (64, "64"), (96, "96")] {
        fixture.write(&format!("sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list"), list);
    }
    let machine = fixture.machine();
    check_invariants(&machine);
    assert_eq!(machine.cores().len(), 66);
    assert!(
        refused(&machine).contains("SMT siblings of cpu 0 lie in different islands"),
        "{}",
        refused(&machine)
    );
}

#[test]
fn without_l3_files_a_shared_l2_or_the_node_is_the_island() {
    let cluster = |cpu: u32| format!("{}-{}", cpu / 4 * 4, cpu / 4 * 4 + 3);
    let files = |cpu: u32, l2: String| CpuFiles {
        package: Some("0".to_owned()),
        siblings: Some(cpu.to_string()),
        l3: None,
        l2: Some(l2),
    };
    let shared_l2 = Fixture::empty();
    shared_l2.online("0-7").node(0, "0-7", 1 << 20, "10");
    let private_l2 = Fixture::empty();
    private_l2.online("0-7").node(0, "0-7", 1 << 20, "10");
    for cpu in 0..8 {
        shared_l2.cpu(cpu, &files(cpu, cluster(cpu)));
        private_l2.cpu(cpu, &files(cpu, cpu.to_string()));
    }
    assert_eq!(islands(&shared_l2.machine(), Level::L3), ["0-3", "4-7"]);
    assert_eq!(islands(&private_l2.machine(), Level::L3), ["0-7"]);
    assert_eq!(refused(&private_l2.machine()), "");
}

#[test]
fn islands_nest_whatever_caches_and_nodes_do() {
    // Sub-NUMA clustering: one L3 per socket, two nodes per socket.
    let fixture = one_node(8);
    fixture.node(0, "0-3", 1 << 20, "10 12").node(1, "4-7", 1 << 20, "12 10");
    let machine = fixture.machine();
    check_invariants(&machine);
    assert_eq!(islands(&machine, Level::L3), ["0-3", "4-7"]);
    assert_eq!(refused(&machine), "", "that is how such machines are");
    assert_eq!(machine.distance(CpuId(0), CpuId(4)), 3.0);

    // A node over two sockets (a kernel without NUMA): both parts keep the memory.
    let fixture = one_node(8);
    for cpu in 0..8 {
        let socket = cpu / 4;
        let directory = format!("sys/devices/system/cpu/cpu{cpu}");
        fixture.write(&format!("{directory}/topology/physical_package_id"), &socket.to_string());
    }
    let machine = fixture.machine();
    check_invariants(&machine);
    assert_eq!(islands(&machine, Level::Node), ["0-3", "4-7"]);
    assert!(machine.islands(Level::Node).all(|island| island.node == Some(NodeId(0))));
    // The L3 over both sockets is another matter: no cache is.
    assert_eq!(islands(&machine, Level::L3), ["0-3", "4-7"]);
    assert!(refused(&machine).contains("shared by 2 sockets"), "{}", refused(&machine));
}

#[test]
fn cpus_in_two_nodes_or_in_none() {
    let fixture = eight_by_ten();
    fixture.write("sys/devices/system/node/node1/cpulist", "0,10-18\n");
    let machine = fixture.machine();
    check_invariants(&machine);
    assert_eq!(machine.cpu(CpuId(0)).map(|cpu| cpu.node), Some(NodeId(0)));
    assert_eq!(machine.cpu(CpuId(19)).map(|cpu| cpu.node), Some(NodeId(1)));
    insta::assert_snapshot!(refused(&machine), @r"
    /sys/devices/system/node/node1/cpulist names cpu 0, which node 0 has already, so it stays there
    /sys/devices/system/node does not place cpus 19, so they count to the node of their socket
    ");
}

#[test]
fn the_affinity_mask_decides_what_is_usable() {
    let machine = chiplets().machine_with("0-3,64-67,127");
    check_invariants(&machine);
    assert_eq!(machine.usable_cpus(), &set("0-3,64-67,127"));
    assert_eq!(machine.usable_core_count(), 5);
    assert_eq!(machine.default_workers(), 5);
    assert_eq!(machine.cpus().len(), 128, "the rest of the machine is known all the same");

    let machine = chiplets().machine_with("500-600");
    check_invariants(&machine);
    assert_eq!(machine.usable_cpus().len(), 128);
    assert!(
        refused(&machine).contains("the affinity mask allows only cpus 500-600"),
        "{}",
        refused(&machine)
    );
}

#[test]
fn the_real_machine_is_readable() {
    let machine = Machine::live(&LiveOptions::new(None));
    check_invariants(&machine);
}

/// Texts that a reader does not expect in a file.
fn absurd_text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("-1".to_owned()),
        Just("4294967295".to_owned()),
        Just("0-65535".to_owned()),
        Just("99999999999999999999".to_owned()),
        "[0-9]{1,3}",
        "[0-9]{1,2}-[0-9]{1,2}",
        "[0-9]{1,2}(,[0-9]{1,2}){0,3}",
        "(10|20|21|-5| ){1,9}",
        ".{0,12}",
    ]
}

/// The files that may be absurd; `number` is that of a cpu or a node.
fn path_of(file: usize, number: u32) -> String {
    let cpu = format!("sys/devices/system/cpu/cpu{number}");
    let node = format!("sys/devices/system/node/node{}", number % 3);
    match file {
        0 => "sys/devices/system/cpu/online".to_owned(),
        1 => "sys/devices/system/cpu/present".to_owned(),
        2 => format!("{cpu}/topology/physical_package_id"),
        3 => format!("{cpu}/topology/core_cpus_list"),
        4 => format!("{cpu}/cache/index3/shared_cpu_list"),
        5 => format!("{cpu}/cache/index3/level"),
        6 => format!("{node}/cpulist"),
        7 => format!("{node}/distance"),
        8 if number == 7 => "proc/meminfo".to_owned(),
        8 => format!("{node}/meminfo"),
        9 => "sys/fs/cgroup/a/cpu.max".to_owned(),
        _ => "sys/fs/cgroup/a/b/cpuset.cpus.effective".to_owned(),
    }
}

/// Any file may hold anything: there is a machine with all invariants, and no panic.
#[test]
fn whatever_files_say_there_is_a_machine() {
    let fixture = one_node(8);
    fixture.node(0, "0-3", 1 << 20, "10 20").node(1, "4-7", 1 << 20, "20 10").cgroup_v2("/a/b");
    let files = prop::collection::vec((0..11usize, 0u32..8, absurd_text()), 0..24);
    let affinity = prop::option::of("[0-9](,[0-9]){0,3}");
    // Each case writes files, which is slow on some file systems.
    proptest!(ProptestConfig::with_cases(96), |(files in files, affinity in affinity)| {
        let files: Vec<(String, String)> =
            files.into_iter().map(|(file, number, text)| (path_of(file, number), text)).collect();
        let _overrides = fixture.overrides(&files);
        let machine = match &affinity {
            Some(list) => fixture.machine_with(list),
            None => fixture.machine(),
        };
        check_invariants(&machine);
        prop_assert!(!atrapos_topology::report::render_tree(&machine).is_empty());
    });
}
