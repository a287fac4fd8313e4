//! Limits that control groups set this process: processor time and processing units.
//!
//! Owns: finding the process's cgroups (versions 1 and 2, side by side as well) and reading the limits of each group on
//! the way up to the mount point: the tightest quota counts, and the intersection of all cpusets.
//!
//! Never: sees ancestors that a container's namespace hides; their cpusets show in the affinity mask all the same.

use crate::cpuset::{CpuSet, shown};
use crate::facts::Refusals;
use crate::files::Files;

/// The limits found, each with the file of the tightest one.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CgroupLimits {
    /// Cores' worth of processor time.
    pub(crate) quota: Option<(f64, String)>,
    pub(crate) cpuset: Option<(CpuSet, String)>,
}

pub(crate) fn read_limits(files: &Files, refusals: &mut Refusals) -> CgroupLimits {
    let mut limits = CgroupLimits::default();
    for directory in directories(files, &["cpu", "cpuset"]) {
        read_quota(files, &directory, &mut limits, refusals);
        read_cpuset(files, &directory, &mut limits, refusals);
    }
    limits
}

/// The directories of this process's groups and their visible ancestors, in every hierarchy of version 2 and in those
/// of version 1 with one of the controllers.
pub(crate) fn directories(files: &Files, controllers: &[&str]) -> Vec<String> {
    let memberships = files.read_table("proc/self/cgroup").unwrap_or_default();
    let mounts = files.read_table("proc/self/mountinfo").unwrap_or_default();
    let mounts: Vec<CgroupMount> = mounts.lines().filter_map(CgroupMount::parse).collect();
    let mut directories = Vec::new();
    for group in memberships.lines().filter_map(Membership::parse) {
        for mount in mounts.iter().filter(|mount| mount.carries(&group, controllers)) {
            directories.extend(directories_up(mount, group.path));
        }
    }
    directories
}

/// One line of `/proc/self/cgroup`: `hierarchy:controllers:path`.
struct Membership<'a> {
    /// Empty for version 2.
    controllers: &'a str,
    path: &'a str,
}

impl<'a> Membership<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut parts = line.splitn(3, ':');
        let (_hierarchy, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self { controllers, path })
    }
}

/// A mounted cgroup hierarchy, from `/proc/self/mountinfo`.
struct CgroupMount {
    /// The group that the mount point shows.
    shown_group: String,
    point: String,
    /// The controllers of a version 1 hierarchy; `None` for version 2.
    controllers: Option<Vec<String>>,
}

impl CgroupMount {
    /// `id parent major:minor root mount-point options [tags...] - type source super-options`
    fn parse(line: &str) -> Option<Self> {
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (shown_group, point) = (unescape(mount.next()?), unescape(mount.next()?));
        let mut filesystem = filesystem.split(' ');
        let controllers = match filesystem.next()? {
            "cgroup2" => None,
            "cgroup" => Some(filesystem.nth(1)?.split(',').map(str::to_owned).collect()),
            _ => return None,
        };
        Some(Self { shown_group, point, controllers })
    }

    /// Returns whether the group is one of this mount's hierarchy, and the hierarchy one with a controller that is
    /// asked for.
    fn carries(&self, group: &Membership<'_>, controllers: &[&str]) -> bool {
        match &self.controllers {
            None => group.controllers.is_empty(),
            Some(own) => {
                let relevant = |name: &&str| controllers.contains(name);
                group
                    .controllers
                    .split(',')
                    .filter(relevant)
                    .any(|name| own.iter().any(|known| known == name))
            }
        }
    }
}

/// Mount tables write space, tab, newline and backslash as three octal digits.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

/// The directories of a group and its visible ancestors, the group first.
fn directories_up(mount: &CgroupMount, group: &str) -> Vec<String> {
    let base = mount.shown_group.trim_end_matches('/');
    // A group that the mount does not show (another namespace's) is represented by the mount point itself.
    let below = match group.strip_prefix(base) {
        Some(below) if (below.is_empty() || below.starts_with('/')) && !below.contains("..") => below,
        _ => "",
    };
    let mut directories = Vec::new();
    let mut below = below.trim_end_matches('/');
    loop {
        directories.push(format!("{}{below}", mount.point.trim_end_matches('/')));
        match below.rfind('/') {
            Some(cut) => below = &below[..cut],
            None => return directories,
        }
    }
}

fn read_quota(files: &Files, directory: &str, limits: &mut CgroupLimits, refusals: &mut Refusals) {
    let v2 = format!("{directory}/cpu.max");
    let v1 = format!("{directory}/cpu.cfs_quota_us");
    let (path, parsed) = if let Some(text) = files.read(&v2) {
        (v2, parse_quota_v2(&text))
    } else if let Some(quota) = files.read(&v1) {
        let period = files.read(&format!("{directory}/cpu.cfs_period_us"));
        (v1, parse_quota_v1(&quota, period.as_deref()))
    } else {
        return;
    };
    match parsed {
        Ok(Some(cores)) if limits.quota.as_ref().is_none_or(|(tightest, _)| cores < *tightest) => {
            limits.quota = Some((cores, path));
        }
        Ok(_) => {}
        Err(reason) => refusals.note("quota", path, format!("{reason}, so it is taken as no quota")),
    }
}

/// `quota period` in microseconds, or `max period`.
fn parse_quota_v2(text: &str) -> Result<Option<f64>, String> {
    let mut words = text.split_whitespace();
    let quota = words.next().unwrap_or_default();
    let period = words.next().unwrap_or("100000");
    if quota == "max" {
        return Ok(None);
    }
    cores_worth(quota, period).map(Some)
}

/// Microseconds, -1 meaning none.
fn parse_quota_v1(quota: &str, period: Option<&str>) -> Result<Option<f64>, String> {
    if quota == "-1" {
        return Ok(None);
    }
    cores_worth(quota, period.unwrap_or("100000")).map(Some)
}

fn cores_worth(quota: &str, period: &str) -> Result<f64, String> {
    // Both fit a u32 in every kernel: the period is at most a second, the quota a second's worth of all cores.
    let (Ok(quota_us), Ok(period_us)) = (quota.parse::<u32>(), period.parse::<u32>()) else {
        return Err(format!("says `{}` of `{}`, which are no microseconds", shown(quota), shown(period)));
    };
    if quota_us == 0 || period_us == 0 {
        return Err(format!("says {quota_us} of {period_us} microseconds, which would allow nothing"));
    }
    Ok(f64::from(quota_us) / f64::from(period_us))
}

fn read_cpuset(files: &Files, directory: &str, limits: &mut CgroupLimits, refusals: &mut Refusals) {
    let names = ["cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"];
    let found = names.iter().find_map(|name| {
        let path = format!("{directory}/{name}");
        files.read(&path).filter(|text| !text.is_empty()).map(|text| (path, text))
    });
    let Some((path, text)) = found else { return };
    match CpuSet::parse_list(&text) {
        Ok(cpus) => {
            limits.cpuset = Some(match limits.cpuset.take() {
                None => (cpus, path),
                Some((tightest, known)) if tightest.is_subset(&cpus) => (tightest, known),
                Some((tightest, _)) => (tightest.intersection(&cpus), path),
            });
        }
        Err(error) => refusals.note("cpuset", path, format!("{error}, so it is taken as no restriction")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas() {
        assert_eq!(parse_quota_v2("max 100000"), Ok(None));
        assert_eq!(parse_quota_v2("150000 100000"), Ok(Some(1.5)));
        assert_eq!(parse_quota_v2("50000"), Ok(Some(0.5)));
        assert_eq!(parse_quota_v1("-1", None), Ok(None));
        assert_eq!(parse_quota_v1("400000", Some("200000")), Ok(Some(2.0)));
        for (quota, period) in
            [("-7", "100000"), ("0", "100000"), ("5", "0"), ("", "1"), ("99999999999999", "1")]
        {
            assert!(parse_quota_v1(quota, Some(period)).is_err(), "{quota} {period}");
        }
        assert!(parse_quota_v2("").is_err());
    }

    #[test]
    fn groups_are_found_below_and_beside_their_mount() {
        let mount = |shown: &str| CgroupMount {
            shown_group: shown.to_owned(),
            point: "/sys/fs/cgroup".to_owned(),
            controllers: None,
        };
        assert_eq!(
            directories_up(&mount("/"), "/a/b"),
            ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"]
        );
        assert_eq!(directories_up(&mount("/"), "/"), ["/sys/fs/cgroup"]);
        assert_eq!(
            directories_up(&mount("/docker/x"), "/docker/x/y"),
            ["/sys/fs/cgroup/y", "/sys/fs/cgroup"]
        );
        assert_eq!(directories_up(&mount("/docker/x"), "/docker/xylophone"), ["/sys/fs/cgroup"]);
        assert_eq!(directories_up(&mount("/"), "/../../elsewhere"), ["/sys/fs/cgroup"]);
    }

    #[test]
    fn mount_tables_are_read() {
        let v1 = "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct";
        let v2 = "41 31 0:38 /a\\040b /sys/fs/c\\134g rw,relatime shared:9 master:1 - cgroup2 cgroup2 rw";
        let v1 = CgroupMount::parse(v1).expect("a cgroup mount");
        let carried_by = |mount: &CgroupMount, controllers: &str| {
            mount.carries(&Membership { controllers, path: "/" }, &["cpu", "cpuset"])
        };
        assert!(carried_by(&v1, "cpu,cpuacct"));
        assert!(!carried_by(&v1, "cpuacct"), "not what is asked for");
        assert!(!carried_by(&v1, "memory"));
        assert!(!carried_by(&v1, "cpuset"), "another hierarchy");
        assert!(!carried_by(&v1, ""));
        let v2 = CgroupMount::parse(v2).expect("a cgroup mount");
        assert_eq!((v2.shown_group.as_str(), v2.point.as_str()), ("/a b", "/sys/fs/c\\g"));
        assert!(carried_by(&v2, ""));
        assert!(CgroupMount::parse("22 27 0:21 / /proc rw,relatime - proc proc rw").is_none());
        assert!(CgroupMount::parse("nonsense").is_none());
    }
}
