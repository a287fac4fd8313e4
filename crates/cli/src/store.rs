//! The place of a benchmark's database: in memory, in a directory that was asked for, or in a temporary one that
//! is removed when the command ends.
//!
//! Owns: the choice of the directory, its removal, and the measurement of the device under it. Never: opens a database.
//!
//! A temporary directory is made in the system's place for temporary files, unless that is in memory (as `/tmp` often
//! is); then in the current directory. It is removed on Ctrl-C as well.

use std::fs::Permissions;
use std::num::NonZeroUsize;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use atrapos::Durability;
use atrapos_durability::directory::Directory;
use atrapos_durability::file::{FileSystem, RealFiles};
use tempfile::TempDir;

use crate::config::{RunConfig, sessions_durable};
use crate::error::CliError;
use crate::{interrupt, output};

/// The directory of a benchmark's database.
#[derive(Debug)]
pub(crate) struct Store {
    path: PathBuf,
    temporary: Option<TempDir>,
    /// Median time of an append of 4 KiB and the sync after it, in microseconds.
    pub(crate) device_sync_us: f64,
}

/// The magic numbers of file systems in memory: tmpfs and ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

fn is_in_memory(directory: &Path) -> bool {
    rustix::fs::statfs(directory).is_ok_and(|about| IN_MEMORY.contains(&(about.f_type as u64 & 0xffff_ffff)))
}

fn refuse(path: &Path, why: impl std::fmt::Display) -> CliError {
    CliError::bad_input(format!(
        "a database cannot be made in {}: {why}; give the path of an empty directory, or of one that does not exist",
        path.display()
    ))
}

/// Creates a fresh directory for sockets and copies of rows, that is removed when the command ends. It may be in memory.
pub fn temporary_in_memory(prefix: &str) -> Result<TempDir, CliError> {
    let own = Permissions::from_mode(0o700);
    let make = || tempfile::Builder::new().prefix(prefix).permissions(own).tempdir();
    interrupt::make_temporary(make).map_err(|error| {
        CliError::bad_input(format!(
            "no temporary directory can be made in {}: {error}; set TMPDIR to a place that can be written",
            std::env::temp_dir().display()
        ))
    })
}

/// Creates a fresh directory that is removed when the command ends.
pub fn temporary(prefix: &str) -> Result<TempDir, CliError> {
    let system = std::env::temp_dir();
    let mut parents = [system.clone(), PathBuf::from(".")];
    // The sort is stable: among equals, the system's place comes first.
    parents.sort_by_key(|parent| is_in_memory(parent));
    let make = |parent: &PathBuf| {
        interrupt::make_temporary(|| tempfile::Builder::new().prefix(prefix).tempdir_in(parent))
    };
    let directory = parents.iter().find_map(|parent| make(parent).ok()).ok_or_else(|| {
        CliError::bad_input(format!(
            "no temporary directory can be made in {}; use --dir to name an empty directory",
            system.display()
        ))
    })?;
    if is_in_memory(directory.path()) {
        output::complain(&format!(
            "warning: {} is in memory, so nothing really becomes durable; use --dir to name a directory on a disk",
            directory.path().display()
        ));
    }
    Ok(directory)
}

/// Returns the transactions that a thread of an engine with shared data may have outstanding in a directory whose syncs take so long: as many as were
/// requested, or as a worker would have sessions; none if nothing is waited for.
pub(crate) fn pipeline_of(config: &RunConfig, device_sync_us: f64) -> Option<NonZeroUsize> {
    let asked = || config.shared_pipeline.unwrap_or_else(|| sessions_durable(device_sync_us));
    (config.durability == Durability::Synchronous).then(asked)
}

/// Measures the device under a directory, and returns what [`pipeline_of`] does.
pub(crate) fn pipeline(config: &RunConfig, path: &Path) -> Result<Option<NonZeroUsize>, CliError> {
    let device_sync_us = device_sync_us(path, &*files()).map_err(|error| refuse(path, error))?;
    Ok(pipeline_of(config, device_sync_us))
}

impl Store {
    /// Prepares the place for a database of this durability; returns `None` for one in memory. `wanted` is the value of
    /// `--dir`.
    pub(crate) fn prepare(
        durability: Durability,
        wanted: Option<&Path>,
        files: &dyn FileSystem,
    ) -> Result<Option<Store>, CliError> {
        if durability == Durability::None {
            return Ok(None);
        }
        let (path, temporary) = match wanted {
            Some(path) => {
                make_empty(path, files)?;
                (path.to_owned(), None)
            }
            None => {
                let directory = temporary("atrapos-bench-")?;
                // Inside, so that a database that is opened while a signal ends the process cannot make the directory again.
                let path = directory.path().join("database");
                files.create_dir(&path).map_err(|error| refuse(&path, error))?;
                (path, Some(directory))
            }
        };
        let device_sync_us = device_sync_us(&path, files).map_err(|error| refuse(&path, error))?;
        Ok(Some(Store { path, temporary, device_sync_us }))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the bytes that are free on the device, where the system tells.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        rustix::fs::statvfs(&self.path).ok().map(|about| about.f_bavail.saturating_mul(about.f_frsize))
    }

    /// Removes the directory if it is temporary, and reports a failure to do so.
    pub(crate) fn remove(self) {
        if let Some(directory) = self.temporary
            && let Err(error) = directory.close()
        {
            let path = self.path.display();
            output::complain(&format!("warning: the temporary directory {path} was not removed: {error}"));
        }
    }
}

/// Makes a directory if there is none, and refuses one that is not empty.
pub fn make_empty(path: &Path, files: &dyn FileSystem) -> Result<(), CliError> {
    if Directory::exists(files, path).unwrap_or(false) {
        return Err(refuse(path, "it holds a database already"));
    }
    match files.list(path) {
        Ok(names) => match names.first() {
            Some(name) => Err(refuse(path, format_args!("it is not empty (it has '{name}')"))),
            None => Ok(()),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            files.create_dir(path).map_err(|error| refuse(path, error))
        }
        Err(error) => Err(refuse(path, error)),
    }
}

/// Appends that are measured.
const PROBES: u64 = 64;
/// Size of each append, in bytes.
const PROBE_BYTES: usize = 4096;

/// Measures the median time, in microseconds, of an append and a sync in a directory, made as the WAL makes them.
fn device_sync_us(directory: &Path, files: &dyn FileSystem) -> std::io::Result<f64> {
    let path = directory.join("device-probe");
    let mut file = files.create(&path)?;
    let bytes = [0x5a; PROBE_BYTES];
    let mut measured = Vec::new();
    let result = (0..PROBES).try_for_each(|probe| {
        let began = Instant::now();
        file.write_and_sync(probe * PROBE_BYTES as u64, &[&bytes])?;
        measured.push(began.elapsed().as_secs_f64() * 1e6);
        Ok(())
    });
    drop(file);
    files.remove(&path)?;
    result.map(|()| atrapos_harness::median(&mut measured))
}

/// Returns the file system of this machine.
pub fn files() -> std::sync::Arc<dyn FileSystem> {
    std::sync::Arc::new(RealFiles::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_directory_is_measured_and_goes() {
        let files = files();
        let store =
            Store::prepare(Durability::Synchronous, None, &*files).expect("a directory").expect("one");
        let path = store.path().to_owned();
        assert!(store.temporary.is_some() && store.device_sync_us > 0.0);
        assert_eq!(
            std::fs::read_dir(&path).expect("the directory").count(),
            0,
            "nothing is left of the probe"
        );
        store.remove();
        assert!(!path.exists());
        assert!(files.create_dir(&path).is_err(), "a thread that opens a database makes it again");
        assert!(Store::prepare(Durability::None, None, &*files).expect("nothing to do").is_none());
    }

    #[test]
    fn a_directory_that_was_asked_for_is_made_and_stays() {
        let files = files();
        let parent = tempfile::tempdir().expect("a directory");
        let wanted = parent.path().join("database");
        for _ in 0..2 {
            let store = Store::prepare(Durability::Synchronous, Some(&wanted), &*files);
            let store = store.expect("an empty directory will do").expect("one");
            assert!(store.temporary.is_none());
            store.remove();
            assert!(wanted.is_dir());
        }
        let refused = Store::prepare(Durability::Synchronous, Some(parent.path()), &*files);
        assert!(refused.expect_err("it is not empty").to_string().contains("it has 'database'"));
        let nowhere = parent.path().join("no/such/place");
        let refused = Store::prepare(Durability::Synchronous, Some(&nowhere), &*files);
        assert!(refused.expect_err("no parent").to_string().contains("no/such/place"));
    }
}
