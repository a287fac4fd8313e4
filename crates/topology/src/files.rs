//! Reading small text files below a root directory.
//!
//! Owns: [`Files`], the only place of this crate that opens files of the live machine. Never: follows a file's content
//! to a path outside the root (a `..` in a path that came from a file ends the search), nor reads more than it should.

use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

/// Files of sysfs and of cgroups are at most a page or two; a longer one is not what it claims to be.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// A host with thousands of containers has a mount table of megabytes.
const TABLE_BYTES_MAX: u64 = 16 << 20;

/// Files below a root directory. Paths are given as on the live machine (`sys/devices/...`, without the root).
#[derive(Debug, Clone)]
pub(crate) struct Files {
    root: PathBuf,
}

impl Files {
    pub(crate) fn below(root: &Path) -> Self {
        Self { root: root.to_path_buf() }
    }

    /// The trimmed text of a small file; `None` when it is absent, unreadable or longer than such files are.
    pub(crate) fn read(&self, path: &str) -> Option<String> {
        self.read_up_to(path, FILE_BYTES_MAX)
    }

    /// The trimmed text of a table that grows with the system (mounts, processors).
    pub(crate) fn read_table(&self, path: &str) -> Option<String> {
        self.read_up_to(path, TABLE_BYTES_MAX)
    }

    fn read_up_to(&self, path: &str, bytes_max: u64) -> Option<String> {
        let mut bytes = Vec::new();
        File::open(self.locate(path)?).ok()?.take(bytes_max + 1).read_to_end(&mut bytes).ok()?;
        if bytes.len() as u64 > bytes_max {
            return None;
        }
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// The numbers `N` of the entries `<prefix>N` of a directory, ascending; empty when there is no such directory.
    pub(crate) fn numbered(&self, directory: &str, prefix: &str) -> Vec<u32> {
        let Some(entries) = self.locate(directory).and_then(|path| path.read_dir().ok()) else {
            return Vec::new();
        };
        let mut numbers: Vec<u32> = entries
            .filter_map(|entry| {
                let name = entry.ok()?.file_name();
                let digits = name.to_str()?.strip_prefix(prefix)?;
                let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
                plain.then(|| digits.parse().ok()).flatten()
            })
            .collect();
        numbers.sort_unstable();
        numbers
    }

    fn locate(&self, path: &str) -> Option<PathBuf> {
        let relative = Path::new(path.trim_start_matches('/'));
        let stays_below =
            relative.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        stays_below.then(|| self.root.join(relative))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_the_root_and_nothing_endless_is_read() {
        let root = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(root.path().join("inner")).expect("a directory");
        std::fs::write(root.path().join("secret"), "outside").expect("a file");
        std::fs::write(root.path().join("inner/long"), vec![b'1'; 65 << 10]).expect("a file");
        std::fs::write(root.path().join("inner/short"), " 1\n").expect("a file");
        std::fs::create_dir(root.path().join("inner/cpu7")).expect("a directory");
        std::fs::create_dir(root.path().join("inner/cpu10")).expect("a directory");
        std::fs::create_dir(root.path().join("inner/cpufreq")).expect("a directory");
        std::fs::create_dir(root.path().join("inner/cpu99999999999")).expect("a directory");
        let files = Files::below(&root.path().join("inner"));
        assert_eq!(files.read("../secret"), None);
        assert_eq!(files.read("/short").as_deref(), Some("1"));
        assert_eq!(files.read("long"), None);
        assert_eq!(files.read_table("long").map(|text| text.len()), Some(65 << 10));
        assert_eq!(files.numbered("", "cpu"), [7, 10]);
        assert_eq!(files.numbered("absent", "cpu"), Vec::<u32>::new());
    }
}
