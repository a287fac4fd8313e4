//! Quotas, cpusets and memory limits of control groups, both versions, ancestors too.

use crate::fixture::{Fixture, check_invariants, eight_by_ten, refused, set};
use atrapos_topology::available_memory_bytes;

#[test]
fn version_2_the_tightest_ancestor_counts() {
    let fixture = eight_by_ten();
    fixture
        .cgroup_v2("/pod/container")
        .write("sys/fs/cgroup/pod/container/cpu.max", "600000 100000\n")
        .write("sys/fs/cgroup/pod/cpu.max", "250000 100000\n")
        .write("sys/fs/cgroup/cpu.max", "max 100000\n")
        .write("sys/fs/cgroup/pod/container/cpuset.cpus.effective", "0-39\n")
        .write("sys/fs/cgroup/pod/cpuset.cpus.effective", "5-79\n");
    let machine = fixture.machine();
    check_invariants(&machine);
    assert_eq!(machine.cpu_quota(), Some(2.5));
    assert_eq!(machine.usable_cpus(), &set("5-39"));
    assert_eq!(machine.default_workers(), 2, "a third worker would use up everyone's quota");
    assert_eq!(refused(&machine), "");
    let quota = machine.provenance().iter().find(|provenance| provenance.source.ends_with("cpu.max"));
    assert_eq!(quota.map(|provenance| provenance.source.as_str()), Some("/sys/fs/cgroup/pod/cpu.max"));
}

#[test]
fn version_1_the_tightest_ancestor_counts() {
    let fixture = eight_by_ten();
    fixture
        .cgroup_v1("/docker/abc")
        .write("sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "-1\n")
        .write("sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n")
        .write("sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us", "800000\n")
        .write("sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_period_us", "200000\n")
        .write("sys/fs/cgroup/cpuset/docker/abc/cpuset.cpus", "0-7\n")
        .write("sys/fs/cgroup/cpuset/docker/cpuset.effective_cpus", "4-20\n");
    let machine = fixture.machine();
    check_invariants(&machine);
    assert_eq!(machine.cpu_quota(), Some(4.0));
    assert_eq!(machine.usable_cpus(), &set("4-7"));
    assert_eq!(machine.default_workers(), 4);
    assert_eq!(refused(&machine), "");
}

#[test]
fn a_quota_below_one_core_still_allows_one_worker() {
    let fixture = eight_by_ten();
    fixture.cgroup_v2("/").write("sys/fs/cgroup/cpu.max", "50000 100000\n");
    let machine = fixture.machine();
    assert_eq!((machine.cpu_quota(), machine.default_workers()), (Some(0.5), 1));
}

#[test]
fn a_container_that_sees_only_its_own_group() {
    let fixture = eight_by_ten();
    fixture
        .write("proc/self/cgroup", "0::/system.slice/docker-abc.scope\n")
        .write(
            "proc/self/mountinfo",
            "1 2 0:30 /system.slice/docker-abc.scope /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
        )
        .write("sys/fs/cgroup/cpu.max", "300000 100000\n");
    assert_eq!(fixture.machine().cpu_quota(), Some(3.0));
}

#[test]
fn absurd_limits_are_refused() {
    let fixture = eight_by_ten();
    fixture
        .cgroup_v2("/a/b")
        .write("sys/fs/cgroup/a/b/cpu.max", "-5 100000\n")
        .write("sys/fs/cgroup/a/cpu.max", "100000 0\n")
        .write("sys/fs/cgroup/a/b/cpuset.cpus.effective", "first-last\n");
    let machine = fixture.machine();
    check_invariants(&machine);
    assert_eq!(machine.cpu_quota(), None);
    assert_eq!(machine.usable_cpus().len(), 80);
    insta::assert_snapshot!(refused(&machine), @r"
    /sys/fs/cgroup/a/b/cpu.max says `-5` of `100000`, which are no microseconds, so it is taken as no quota (and another one like it)
    /sys/fs/cgroup/a/b/cpuset.cpus.effective contains `first-last`, which is neither a number nor a range such as 0-3, so it is taken as no restriction
    ");

    let fixture = eight_by_ten();
    fixture.cgroup_v2("/a").write("sys/fs/cgroup/a/cpuset.cpus.effective", "0-3\n");
    let machine = fixture.machine_with("8-11");
    assert_eq!(machine.usable_cpus(), &set("8-11"), "what the kernel says of the process itself comes first");
    assert!(
        refused(&machine).contains("allows only cpus 0-3, none of which is left"),
        "{}",
        refused(&machine)
    );
}

const MIB: u64 = 1 << 20;

#[test]
fn memory_is_the_least_of_system_and_groups() {
    let fixture = Fixture::empty();
    assert_eq!(available_memory_bytes(fixture.root()), None);
    fixture.write("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n");
    assert_eq!(available_memory_bytes(fixture.root()), Some(8192 * MIB));

    fixture
        .cgroup_v2("/pod/container")
        .write("sys/fs/cgroup/pod/container/memory.max", "max\n")
        .write("sys/fs/cgroup/pod/container/memory.current", "1048576\n")
        .write("sys/fs/cgroup/pod/memory.max", &format!("{}\n", 1024 * MIB))
        .write("sys/fs/cgroup/pod/memory.current", &format!("{}\n", 600 * MIB))
        .write("sys/fs/cgroup/pod/memory.stat", &format!("anon 5\ninactive_file {}\n", 100 * MIB));
    assert_eq!(available_memory_bytes(fixture.root()), Some(524 * MIB));
    fixture.write("sys/fs/cgroup/pod/container/memory.high", &format!("{}\n", 65 * MIB));
    assert_eq!(available_memory_bytes(fixture.root()), Some(64 * MIB));
    fixture.write("sys/fs/cgroup/pod/container/memory.high", "0\n");
    assert_eq!(
        available_memory_bytes(fixture.root()),
        Some(0),
        "over its limit is nothing left, not a huge number"
    );
}

#[test]
fn memory_of_version_1_groups() {
    let fixture = Fixture::empty();
    fixture
        .write("proc/meminfo", "MemAvailable: 8388608 kB\n")
        .cgroup_v1("/docker/abc")
        .write("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "9223372036854771712\n")
        .write("sys/fs/cgroup/memory/docker/memory.limit_in_bytes", &format!("{}\n", 512 * MIB))
        .write("sys/fs/cgroup/memory/docker/memory.usage_in_bytes", &format!("{}\n", 12 * MIB));
    assert_eq!(available_memory_bytes(fixture.root()), Some(500 * MIB));
    fixture.write("sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "garbage\n");
    assert_eq!(available_memory_bytes(fixture.root()), Some(8192 * MIB));
}
