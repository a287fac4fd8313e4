//! A file system in a file, for power cuts: after each, only synced data is left.
//!
//! Owns: the file, its mount, and their removal when the process ends, however it ends. Never: looks at the files
//! on it, except in a rehearsal that shows that a power cut loses exactly the data it should.
//!
//! A shell waits beside this process ([`Guard`]). When this process goes without having cleaned up (killed, or a second
//! Ctrl-C), the shell unmounts the file system. The loop device goes with the mount.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use atrapos_cli::{output, store};
use atrapos_durability::file::{FileSystem, cut_power};

/// Bytes of the file; it takes only the space of the data written to it.
const IMAGE_BYTES: u64 = 512 << 20;
/// Time for which a killed process may still hold its files.
const BUSY_PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two attempts to unmount.
const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// Rehearsals of a power cut: the kernel may happen to write out the data that was to be lost.
const REHEARSALS: u32 = 3;
/// Data written in a rehearsal.
const REHEARSED: [u8; 4096] = [0x5a; 4096];

/// Script of the shell beside this process: it reads a line, which arrives if this process ends in order, or the end of
/// the pipe.
const GUARD: &str = r#"
trap '' HUP INT TERM
read -r line && exit 0
umount -l "$1"
[ -z "$2" ] && exit 0
for attempt in 1 2 3 4 5; do
    rm -rf --one-file-system -- "$2" && exit 0
    sleep 1
done
"#;

/// A mounted file system. It is unmounted when this is dropped.
#[derive(Debug)]
pub(super) struct Disk {
    image: PathBuf,
    mount_point: PathBuf,
    /// The shell that cleans up; it ends last, after the unmounting.
    guard: Guard,
}

impl Disk {
    /// Makes a file system in a directory, mounts it, and rehearses a power cut. The directory is removed when the
    /// process is killed, if `base_is_temporary`.
    ///
    /// # Errors
    /// Returns the reason for which it cannot be had here, as one line. Nothing is left then.
    pub(super) fn prepare(base: &Path, base_is_temporary: bool) -> Result<Disk, String> {
        let (image, mount_point) = (base.join("image"), base.join("mounted"));
        let named = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
        std::fs::create_dir(&mount_point).map_err(|error| named(&mount_point, error))?;
        // Everything made from here on is removed with this.
        let guard = Guard::start(&mount_point, base_is_temporary.then_some(base))
            .inspect_err(|_| remove_directory(&mount_point))?;
        let disk = Disk { image, mount_point, guard };
        let made = disk.make().and_then(|()| disk.mount()).and_then(|()| disk.rehearse());
        match made {
            Ok(()) => Ok(disk),
            Err(why) => {
                let image = disk.image.clone();
                drop(disk);
                // The image may never have been created.
                let _ = std::fs::remove_file(image);
                Err(format!("{why} (it takes root, a loop device, and mkfs.ext4 of e2fsprogs)"))
            }
        }
    }

    /// Returns its mount point.
    pub(super) fn path(&self) -> &Path {
        &self.mount_point
    }

    /// Returns the file that contains it.
    pub(super) fn image(&self) -> &Path {
        &self.image
    }

    /// Makes it lose all data that was not synced. All processes that wrote to it must have been killed.
    ///
    /// # Errors
    /// Returns a description of the failure. It may not be mounted then.
    pub(super) fn cut_power(&self) -> Result<(), String> {
        cut_power(&self.mount_point)
            .map_err(|error| format!("{} could not be shut down: {error}", self.mount_point.display()))?;
        self.unmount()?;
        self.mount()
    }

    fn make(&self) -> Result<(), String> {
        let sized = File::create_new(&self.image).and_then(|file| file.set_len(IMAGE_BYTES));
        sized.map_err(|error| format!("{}: {error}", self.image.display()))?;
        self.run("mkfs.ext4", ["-q".as_ref(), "-F".as_ref(), self.image.as_os_str()])
    }

    fn mount(&self) -> Result<(), String> {
        let options = ["-t", "ext4", "-o", "loop"].map(OsStr::new);
        self.run("mount", options.into_iter().chain([self.image.as_os_str(), self.mount_point.as_os_str()]))
    }

    /// Runs a command that the shell beside this process waits for, too: if this process is killed meanwhile, the
    /// command ends before its effects are cleaned up.
    fn run<'a>(&self, name: &str, arguments: impl IntoIterator<Item = &'a OsStr>) -> Result<(), String> {
        run(name, arguments, self.guard.pipe())
    }

    /// Unmounts it as soon as no process has a file of it open.
    fn unmount(&self) -> Result<(), String> {
        let began = Instant::now();
        loop {
            match self.run("umount", [self.mount_point.as_os_str()]) {
                Err(why) if why.contains("busy") && began.elapsed() < BUSY_PATIENCE => {
                    std::thread::sleep(BUSY_PAUSE);
                }
                ended => return ended,
            }
        }
    }

    /// Shows that synced data survives a power cut here, and other data does not: otherwise the survival of a database
    /// would prove nothing.
    fn rehearse(&self) -> Result<(), String> {
        let (synced, unsynced) = (self.mount_point.join("synced"), self.mount_point.join("unsynced"));
        let files = store::files();
        let named = |error: std::io::Error| format!("{}: {error}", self.mount_point.display());
        for _ in 0..REHEARSALS {
            write(&*files, &synced, true).map_err(named)?;
            write(&*files, &unsynced, false).map_err(named)?;
            self.cut_power()?;
            if !holds_all(&*files, &synced) {
                return Err("what was synced to a file system in a file does not survive here".to_owned());
            }
            let lost = !holds_all(&*files, &unsynced);
            for path in [&synced, &unsynced] {
                // The name of the second may be lost, too.
                let _ = files.remove(path);
            }
            if lost {
                return Ok(());
            }
        }
        Err("what was not synced survives when a file system is shut down here".to_owned())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if is_mounted(&self.mount_point)
            && let Err(why) = self.unmount()
            && self.run("umount", [OsStr::new("-l"), self.mount_point.as_os_str()]).is_err()
        {
            output::complain(&format!("warning: {} is still mounted: {why}", self.mount_point.display()));
        }
        remove_directory(&self.mount_point);
        self.guard.dismiss();
    }
}

/// Removes a directory that can only be empty, if it exists.
fn remove_directory(path: &Path) {
    let _ = std::fs::remove_dir(path);
}

/// Returns true for a mount: a directory on another device than its parent.
fn is_mounted(mount_point: &Path) -> bool {
    let device = |path: &Path| rustix::fs::stat(path).map(|about| about.st_dev).ok();
    device(mount_point).is_some() && device(mount_point) != mount_point.parent().and_then(device)
}

fn write(files: &dyn FileSystem, path: &Path, is_synced: bool) -> std::io::Result<()> {
    let mut file = files.create(path)?;
    file.write_at(0, &REHEARSED)?;
    if is_synced {
        file.sync()?;
        files.sync_dir(path.parent().unwrap_or(path))?;
    }
    Ok(())
}

fn holds_all(files: &dyn FileSystem, path: &Path) -> bool {
    let mut found = [0; REHEARSED.len()];
    let read = files.open(path, false).and_then(|file| file.read_at(0, &mut found));
    read.is_ok_and(|bytes| bytes == REHEARSED.len()) && found == REHEARSED
}

/// Returns a command of the system, found also in the directories for administrators.
fn system_command(name: &str) -> Command {
    let mut command = Command::new(name);
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin:/usr/bin:/bin");
    // Its output is parsed, so it must be in English.
    command.env("PATH", path).env("LC_ALL", "C").process_group(0);
    command
}

/// Runs a command that does not read its input to its end. If it fails, its error output is returned as one line.
fn run<'a>(name: &str, arguments: impl IntoIterator<Item = &'a OsStr>, stdin: Stdio) -> Result<(), String> {
    let ended = system_command(name).args(arguments).stdin(stdin).output();
    let ended = ended.map_err(|error| format!("`{name}` could not be started: {error}"))?;
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    let said: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    Err(format!("`{name}` failed with {}: {}", ended.status, said.join("; ")))
}

/// A shell that cleans up when this process cannot.
#[derive(Debug)]
struct Guard(Child);

impl Guard {
    fn start(mount_point: &Path, remove: Option<&Path>) -> Result<Guard, String> {
        let mut command = system_command("sh");
        command.args(["-c", GUARD, "sh"]).arg(mount_point).arg(remove.unwrap_or(Path::new("")));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Guard).map_err(|error| format!("`sh` could not be started: {error}"))
    }

    /// Returns the writing end of the pipe it reads from, for a process that it is to wait for.
    fn pipe(&self) -> Stdio {
        let pipe = self.0.stdin.as_ref().and_then(|pipe| pipe.as_fd().try_clone_to_owned().ok());
        pipe.map_or_else(Stdio::null, Stdio::from)
    }

    /// Ends the shell without any clean-up, which this process has done.
    fn dismiss(&mut self) {
        if let Some(mut line) = self.0.stdin.take() {
            // A shell that has ended does no clean-up either.
            let _ = line.write_all(b"done\n");
        }
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_fail_or_are_not_there_say_why_in_one_line() {
        assert_eq!(run("true", [], Stdio::null()), Ok(()));
        let script = ["-c", "echo one >&2; echo two >&2; exit 3"].map(OsStr::new);
        assert_eq!(
            run("sh", script, Stdio::null()),
            Err("`sh` failed with exit status: 3: one; two".to_owned())
        );
        let missing = run("no-such-command-anywhere", [], Stdio::null()).expect_err("it is not there");
        assert!(missing.starts_with("`no-such-command-anywhere` could not be started: "), "{missing}");
    }

    /// Returns true if a directory is still there after the guard was left alone, or dismissed.
    fn is_there_after(end: impl FnOnce(&mut Guard)) -> bool {
        let parent = tempfile::tempdir().expect("a directory");
        let base = parent.path().join("base");
        std::fs::create_dir(&base).expect("made");
        let mut guard = Guard::start(&base.join("mounted"), Some(&base)).expect("a shell");
        end(&mut guard);
        guard.0.wait().expect("it ends");
        base.exists()
    }

    #[test]
    fn the_guard_cleans_up_only_when_it_is_left_alone() {
        assert!(is_there_after(Guard::dismiss));
        assert!(!is_there_after(|guard| drop(guard.0.stdin.take())));
        // A process that has the pipe, too, is waited for.
        let says_done = ["-c", "sleep 0.1; echo done >&0"].map(OsStr::new);
        assert!(is_there_after(|guard| {
            let pipe = guard.pipe();
            drop(guard.0.stdin.take());
            run("sh", says_done, pipe).expect("it runs");
        }));
    }

    #[test]
    fn a_directory_is_no_mount() {
        let directory = tempfile::tempdir().expect("a directory");
        assert!(!is_mounted(directory.path()));
        assert!(!is_mounted(&directory.path().join("nothing")));
    }
}
