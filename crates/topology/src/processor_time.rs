//! Processor time as the kernel counts it: of threads, of processing units, and what a quota has withheld.
//!
//! Owns: which file says what (`proc/self/task/TID/schedstat` and `stat`, `proc/stat`, the `cpu.stat` beside the tightest `cpu.max`,
//! `sys/devices/system/cpu/online`). Never: keeps anything between two calls, or judges what it has read. What cannot be read is `None`, as
//! on other systems and in some containers.

use std::collections::BTreeMap;
use std::path::Path;

use crate::cgroup::read_limits;
use crate::cpuset::CpuSet;
use crate::facts::Refusals;
use crate::files::Files;
use crate::ids::CpuId;

/// Processor time of a thread since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThreadTime {
    /// Time that it ran, in nanoseconds.
    pub ran_ns: u64,
    /// Time that it waited for a processing unit, in nanoseconds; the kernel adds a wait when it is over.
    pub waited_ns: u64,
    /// Number of times that it was given a processing unit.
    pub turns: u64,
    /// Set if it runs or waits for a processing unit now.
    pub is_runnable: bool,
    /// The processing unit it ran on last.
    pub cpu: Option<CpuId>,
}

/// Time of a processing unit since the start of the machine, in the kernel's clock ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UnitTime {
    /// Time without anything to run.
    pub idle: u64,
    /// Time for which the hypervisor gave it to others although it had something to run; zero where there is none, or it does not tell.
    pub stolen: u64,
    /// All of the time.
    pub total: u64,
}

/// The tightest quota of the control groups of this process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quota {
    /// Cores' worth of processor time.
    pub cores: f64,
    /// Time for which it has withheld processing units, in nanoseconds, all of them together; `None` if the kernel does not count it.
    pub throttled_ns: Option<u64>,
}

/// Files in which the kernel counts processor time.
#[derive(Debug, Clone)]
pub struct ProcessorFiles(Files);

impl ProcessorFiles {
    /// The files below `root`: `/`, or a fixture tree.
    #[must_use]
    pub fn below(root: &Path) -> Self {
        Self(Files::below(root))
    }

    /// Returns the processing units that are online.
    #[must_use]
    pub fn online(&self) -> Option<CpuSet> {
        CpuSet::parse_list(&self.0.read("sys/devices/system/cpu/online")?).ok()
    }

    /// Returns the quota, if there is one.
    #[must_use]
    pub fn quota(&self) -> Option<Quota> {
        let (cores, path) = read_limits(&self.0, &mut Refusals::default()).quota?;
        let (directory, _) = path.rsplit_once('/')?;
        let statistics = self.0.read(&format!("{directory}/cpu.stat")).unwrap_or_default();
        let counted = |name: &str| {
            let line = statistics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
            line.trim().parse::<u64>().ok()
        };
        // Version 2 counts microseconds, version 1 nanoseconds.
        let throttled_ns = counted("throttled_usec").map(|us| us.saturating_mul(1000));
        Some(Quota { cores, throttled_ns: throttled_ns.or_else(|| counted("throttled_time")) })
    }

    /// Returns the numbers of the threads of this process, ascending.
    #[must_use]
    pub fn threads(&self) -> Vec<u32> {
        self.0.numbered("proc/self/task", "")
    }

    /// Returns the processor time of a thread of this process, by the number that the system gives it.
    #[must_use]
    pub fn thread(&self, thread: u32) -> Option<ThreadTime> {
        let statistics = self.0.read(&format!("proc/self/task/{thread}/schedstat"))?;
        let mut numbers = statistics.split_whitespace().map(str::parse::<u64>);
        let mut next = || numbers.next()?.ok();
        let (ran_ns, waited_ns, turns) = (next()?, next()?, next()?);
        let (is_runnable, cpu) = self.state_of(thread).unwrap_or_default();
        Some(ThreadTime { ran_ns, waited_ns, turns, is_runnable, cpu })
    }

    fn state_of(&self, thread: u32) -> Option<(bool, Option<CpuId>)> {
        let text = self.0.read(&format!("proc/self/task/{thread}/stat"))?;
        // The name of the thread may contain spaces and parentheses; the state is the third field, the processing unit the 39th.
        let mut fields = text.rsplit_once(')')?.1.split_whitespace();
        let is_runnable = fields.next()? == "R";
        let cpu = fields.nth(35).and_then(|field| field.parse().ok()).map(CpuId);
        Some((is_runnable, cpu))
    }

    /// Returns the times of the processing units that are online; none if the kernel does not tell.
    #[must_use]
    pub fn units(&self) -> BTreeMap<CpuId, UnitTime> {
        let text = self.0.read_table("proc/stat").unwrap_or_default();
        text.lines().filter_map(unit_time).collect()
    }
}

/// Reads `cpuN user nice system idle iowait irq softirq steal guest guest_nice`; guests are in `user` and `nice` already.
fn unit_time(line: &str) -> Option<(CpuId, UnitTime)> {
    let mut words = line.strip_prefix("cpu")?.split_whitespace();
    let cpu = words.next()?.parse().ok().map(CpuId)?;
    if !line.starts_with(&format!("cpu{} ", cpu.0)) {
        return None;
    }
    let times: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
    let time = |field: usize| times.get(field).copied().unwrap_or(0);
    let idle = times.get(3)?.saturating_add(time(4));
    let total = times.iter().fold(0, |sum: u64, time| sum.saturating_add(*time));
    Some((cpu, UnitTime { idle, stolen: time(7), total }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, ProcessorFiles) {
        let root = tempfile::tempdir().expect("a directory");
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            std::fs::write(path, text).expect("a file");
        }
        let files = ProcessorFiles::below(root.path());
        (root, files)
    }

    #[test]
    fn times_are_read_as_the_kernel_writes_them() {
        let after_state = "1 ".repeat(35);
        let stat = format!("41 (a (b) c) R {after_state}7 0 0");
        let (_root, files) = tree(&[
            ("proc/self/task/41/schedstat", "5000 700 12\n"),
            ("proc/self/task/41/stat", &stat),
            ("proc/self/task/42/schedstat", "9 8 7\n"),
            ("proc/stat", "cpu  9 9 9 9\ncpu0 10 0 5 76 5 0 0 4 3 0\ncpu12 1 1 1 1\nintr 5\ncpu3x 1 1 1 1\n"),
            ("sys/devices/system/cpu/online", "0-2,5\n"),
        ]);
        let time =
            ThreadTime { ran_ns: 5000, waited_ns: 700, turns: 12, is_runnable: true, cpu: Some(CpuId(7)) };
        assert_eq!(files.thread(41), Some(time));
        let unknown = ThreadTime { ran_ns: 9, waited_ns: 8, turns: 7, is_runnable: false, cpu: None };
        assert_eq!(files.thread(42), Some(unknown));
        assert_eq!(files.thread(43), None);
        let unit = |idle, stolen, total| UnitTime { idle, stolen, total };
        assert_eq!(files.units(), [(CpuId(0), unit(81, 4, 100)), (CpuId(12), unit(1, 0, 4))].into());
        assert_eq!(files.online().map(|cpus| cpus.to_string()).as_deref(), Some("0-2,5"));
        assert_eq!(files.quota(), None, "no control group");
    }

    #[test]
    fn a_quota_comes_with_what_it_has_withheld() {
        let mounts = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let (_root, files) = tree(&[
            ("proc/self/cgroup", "0::/a/b\n"),
            ("proc/self/mountinfo", mounts),
            ("sys/fs/cgroup/a/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/a/cpu.stat", "usage_usec 12\nnr_throttled 3\nthrottled_usec 250\n"),
            ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/a/b/cpu.stat", "throttled_usec 999\n"),
        ]);
        assert_eq!(files.quota(), Some(Quota { cores: 1.5, throttled_ns: Some(250_000) }));
    }

    #[test]
    fn what_is_missing_or_no_number_is_none() {
        let (_root, files) =
            tree(&[("proc/self/task/1/schedstat", "x y z\n"), ("sys/devices/system/cpu/online", "3-1\n")]);
        assert_eq!((files.thread(1), files.online(), files.quota()), (None, None, None));
        assert!(files.units().is_empty());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_is_read_where_it_tells() {
        let files = ProcessorFiles::below(Path::new("/"));
        for (cpu, time) in files.units() {
            assert!(time.idle <= time.total, "{cpu}: {time:?}");
        }
        if let Some(time) = files.thread(std::process::id()) {
            assert!(time.turns > 0, "{time:?}");
        }
    }
}
