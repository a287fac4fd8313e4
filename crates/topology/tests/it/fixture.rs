//! Trees of sysfs and procfs files for machines that are not at hand.
//!
//! Owns: [`Fixture`], a temporary root directory with builders for the files the live reader looks at. Never: knows what
//! the reader makes of them.

use atrapos_topology::{CpuId, CpuSet, Level, LiveOptions, Machine};
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;
use tempfile::TempDir;

/// One processing unit as sysfs describes it. Lists are in the kernel's notation; `None` writes no file.
#[derive(Debug, Clone, Default)]
pub(crate) struct CpuFiles {
    pub(crate) package: Option<String>,
    pub(crate) siblings: Option<String>,
    pub(crate) l3: Option<String>,
    pub(crate) l2: Option<String>,
}

/// A temporary root directory.
pub(crate) struct Fixture {
    root: TempDir,
}

impl Fixture {
    /// An empty tree: nothing is said about anything.
    pub(crate) fn empty() -> Self {
        // A tree is a thousand small files: in memory where the system has such a place, which disks can be slow at.
        let root = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Self { root: root.expect("a temporary directory") }
    }

    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    /// Writes a file, with its directories, in place of an earlier one.
    pub(crate) fn write(&self, path: &str, text: &str) -> &Self {
        let path = self.root().join(path.trim_start_matches('/'));
        // A file is never truncated: some file systems then write it to the disk at once. Trees have a thousand files,
        // so directories are made only when they turn out to be missing.
        let create = || fs::File::create_new(&path);
        let file = create().or_else(|error| match error.kind() {
            ErrorKind::AlreadyExists => fs::remove_file(&path).and_then(|()| create()),
            _ => fs::create_dir_all(path.parent().expect("a path below the root")).and_then(|()| create()),
        });
        file.and_then(|mut file| file.write_all(text.as_bytes())).expect("a file can be written");
        self
    }

    /// Writes files until the guard is dropped; then each is as it was before. Cheaper than a tree for each case.
    pub(crate) fn overrides(&self, files: &[(String, String)]) -> Overrides<'_> {
        let mut overrides = Overrides { fixture: self, before: Vec::new() };
        for (path, text) in files {
            overrides.before.push((path.clone(), fs::read_to_string(self.root().join(path)).ok()));
            self.write(path, text);
        }
        overrides
    }

    pub(crate) fn online(&self, list: &str) -> &Self {
        self.write("sys/devices/system/cpu/online", &format!("{list}\n"))
            .write("sys/devices/system/cpu/present", &format!("{list}\n"))
    }

    pub(crate) fn cpu(&self, cpu: u32, files: &CpuFiles) -> &Self {
        let directory = format!("sys/devices/system/cpu/cpu{cpu}");
        let write = |path: &str, text: &Option<String>| {
            if let Some(text) = text {
                self.write(&format!("{directory}/{path}"), &format!("{text}\n"));
            }
        };
        fs::create_dir_all(self.root().join(&directory)).expect("a directory");
        write("topology/physical_package_id", &files.package);
        write("topology/core_cpus_list", &files.siblings);
        // Level 1 caches are there on every machine and must not matter; a few of them show that.
        if cpu < 4 {
            self.write(&format!("{directory}/cache/index0/level"), "1\n");
            self.write(&format!("{directory}/cache/index0/type"), "Data\n");
            write("cache/index0/shared_cpu_list", &files.siblings);
        }
        for (index, level, list) in [(2, "2\n", &files.l2), (3, "3\n", &files.l3)] {
            if list.is_some() {
                self.write(&format!("{directory}/cache/index{index}/level"), level);
                self.write(&format!("{directory}/cache/index{index}/type"), "Unified\n");
                write(&format!("cache/index{index}/shared_cpu_list"), list);
            }
        }
        self
    }

    pub(crate) fn node(&self, node: u32, cpus: &str, memory_kib: u64, distances: &str) -> &Self {
        let directory = format!("sys/devices/system/node/node{node}");
        self.write(&format!("{directory}/cpulist"), &format!("{cpus}\n"))
            .write(&format!("{directory}/meminfo"), &format!("Node {node} MemTotal:  {memory_kib} kB\n"))
            .write(&format!("{directory}/distance"), &format!("{distances}\n"))
    }

    /// A process in a version 2 group, with the hierarchy mounted where it usually is.
    pub(crate) fn cgroup_v2(&self, group: &str) -> &Self {
        self.write("proc/self/cgroup", &format!("0::{group}\n"))
            .write("proc/self/mountinfo", "35 24 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n")
    }

    /// A process in a version 1 group of the controllers that matter, each with its hierarchy.
    pub(crate) fn cgroup_v1(&self, group: &str) -> &Self {
        self.write(
            "proc/self/cgroup",
            &format!("5:memory:{group}\n4:cpuset:{group}\n3:cpu,cpuacct:{group}\n0::/\n"),
        )
        .write(
            "proc/self/mountinfo",
            "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                 34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
                 35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
        )
    }

    /// Reads the machine with all processing units in the affinity mask.
    pub(crate) fn machine(&self) -> Machine {
        Machine::live(&LiveOptions { root: self.root().to_path_buf(), affinity: None })
    }

    /// Reads the machine with the given affinity mask.
    pub(crate) fn machine_with(&self, affinity: &str) -> Machine {
        Machine::live(&LiveOptions { root: self.root().to_path_buf(), affinity: Some(set(affinity)) })
    }
}

/// Files of a fixture that go back to what they were.
pub(crate) struct Overrides<'a> {
    fixture: &'a Fixture,
    before: Vec<(String, Option<String>)>,
}

impl Drop for Overrides<'_> {
    fn drop(&mut self) {
        // A file that was written twice goes back to what it was before the first time.
        for (path, text) in self.before.iter().rev() {
            match text {
                Some(text) => {
                    self.fixture.write(path, text);
                }
                None => fs::remove_file(self.fixture.root().join(path)).expect("it was written"),
            }
        }
    }
}

/// 8 sockets of 10 cores, each with its memory: the machine of `ATraPos §VI-A` (Westmere), with nodes one hop apart
/// at distance 15 and two hops at 20.
pub(crate) fn eight_by_ten() -> Fixture {
    let fixture = Fixture::empty();
    fixture.online("0-79");
    for cpu in 0..80 {
        let socket = cpu / 10;
        let shared = format!("{}-{}", socket * 10, socket * 10 + 9);
        fixture.cpu(
            cpu,
            &CpuFiles {
                package: Some(socket.to_string()),
                siblings: Some(cpu.to_string()),
                l3: Some(shared),
                l2: Some(cpu.to_string()),
            },
        );
    }
    for node in 0..8u32 {
        let distance = |other: u32| match (node ^ other).count_ones() {
            0 => "10",
            1 => "15",
            _ => "20",
        };
        let distances: Vec<&str> = (0..8).map(distance).collect();
        let cpus = format!("{}-{}", node * 10, node * 10 + 9);
        fixture.node(node, &cpus, 64 << 20, &distances.join(" "));
    }
    fixture
}

/// 2 sockets of 8 chiplets of 4 cores of 2 threads: 16 L3 islands, SMT siblings numbered behind all first threads.
pub(crate) fn chiplets() -> Fixture {
    let fixture = Fixture::empty();
    fixture.online("0-127");
    for cpu in 0..128u32 {
        let core = cpu % 64;
        let (first, last) = (core / 4 * 4, core / 4 * 4 + 3);
        fixture.cpu(
            cpu,
            &CpuFiles {
                package: Some((core / 32).to_string()),
                siblings: Some(format!("{core},{}", core + 64)),
                l3: Some(format!("{first}-{last},{}-{}", first + 64, last + 64)),
                l2: Some(format!("{core},{}", core + 64)),
            },
        );
    }
    fixture.node(0, "0-31,64-95", 256 << 20, "10 32");
    fixture.node(1, "32-63,96-127", 256 << 20, "32 10");
    fixture
}

/// A virtual machine of `cpus` processing units that shows one of everything.
pub(crate) fn one_node(cpus: u32) -> Fixture {
    let fixture = Fixture::empty();
    let all = format!("0-{}", cpus - 1);
    fixture.online(&all);
    for cpu in 0..cpus {
        fixture.cpu(
            cpu,
            &CpuFiles {
                package: Some("0".to_owned()),
                siblings: Some(cpu.to_string()),
                l3: Some(all.clone()),
                l2: Some(cpu.to_string()),
            },
        );
    }
    fixture.node(0, &all, 16 << 20, "10");
    fixture.write("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme hypervisor lahf_lm\n");
    fixture
}

pub(crate) fn set(list: &str) -> CpuSet {
    CpuSet::parse_list(list).expect("a valid list")
}

/// The islands of a level as lists, in order.
pub(crate) fn islands(machine: &Machine, level: Level) -> Vec<String> {
    machine.islands(level).map(|island| island.cpus.to_string()).collect()
}

/// All refusals as one text.
pub(crate) fn refused(machine: &Machine) -> String {
    machine.refused().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Checks what holds for every machine whatever it was read from.
pub(crate) fn check_invariants(machine: &Machine) {
    let all: CpuSet = machine.cpus().iter().map(|cpu| cpu.id).collect();
    assert!(!all.is_empty());
    assert_eq!(all.len(), machine.cpus().len(), "each cpu once");
    assert!(!machine.usable_cpus().is_empty() && machine.usable_cpus().is_subset(&all));
    for level in Level::ALL {
        let mut seen = CpuSet::new();
        for island in machine.islands(level) {
            assert!(!island.cpus.is_empty() && seen.intersection(&island.cpus).is_empty());
            seen = seen.union(&island.cpus);
            assert_eq!(machine.island(island.id), Some(island));
            assert_eq!(island.parent.is_none(), level == Level::Machine);
            for cpu in island.cpus.iter() {
                assert_eq!(machine.island_of(cpu, level), Some(island.id));
            }
            let mut below = CpuSet::new();
            for &child in &island.children {
                let child = machine.island(child).expect("a child exists");
                assert!(child.id > island.id && child.parent == Some(island.id));
                assert_eq!(child.level.above(), Some(level));
                below = below.union(&child.cpus);
            }
            assert!(level == Level::L3 || below == island.cpus, "children make up the island");
            let near: Vec<_> = island.cpus.iter().filter_map(|cpu| machine.cpu(cpu)).collect();
            assert!(near.iter().all(|cpu| island.node.is_none_or(|node| node == cpu.node)));
            assert!(near.iter().all(|cpu| island.socket.is_none_or(|socket| socket == cpu.socket)));
        }
        assert_eq!(seen, all, "the islands of a level hold every cpu");
    }
    let mut in_cores = Vec::new();
    for core in machine.cores() {
        for (rank, &cpu) in (0u32..).zip(&core.cpus) {
            let of_core = machine.cpu(cpu).expect("a core has known cpus");
            assert_eq!((of_core.core, of_core.smt_rank), (core.id, rank));
            assert_eq!(machine.island_of(cpu, Level::L3), Some(core.island));
            in_cores.push(cpu);
        }
    }
    in_cores.sort();
    assert_eq!(in_cores, all.iter().collect::<Vec<CpuId>>());
    assert!(machine.cpus().iter().all(|cpu| machine.nodes().iter().any(|node| node.id == cpu.node)));
    assert!(machine.default_workers() >= 1 && machine.default_workers() <= machine.usable_core_count());
}
