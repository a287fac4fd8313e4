//! A file system in a file, for power cuts: after each, only what was synced is there.
//!
//! Owns: the file, its mount, and that nothing of either is left when the process ends, however it ends. Never: looks at what
//! is on it, but for a rehearsal that shows that a power cut loses what it should and nothing else.
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

use atrapos_durability::file::{FileSystem, cut_power};

use crate::{output, store};

/// Bytes of the file; it takes the room of what is written to it.
const IMAGE_BYTES: u64 = 512 << 20;
/// A killed process may hold its files for a moment longer: the kernel closes rings of io_uring in its own time.
const BUSY_PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two attempts to unmount.
const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// Rehearsals of a power cut: the kernel may happen to write out what was to be lost.
const REHEARSALS: u32 = 3;
/// What is written in a rehearsal.
const REHEARSED: [u8; 4096] = [0x5a; 4096];

/// What the shell beside this process does: it reads a line, which comes when everything is in order, or the end of the pipe.
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

/// A mounted file system. Unmounted when it is dropped.
#[derive(Debug)]
pub(super) struct Disk {
    image: PathBuf,
    mount_point: PathBuf,
    /// Ends last, after the unmounting.
    guard: Guard,
}

impl Disk {
    /// Makes a file system in a directory, mounts it, and rehearses a power cut. The directory is removed when the process
    /// is killed, if `base_is_temporary`.
    ///
    /// # Errors
    /// Why that cannot be had here, as one line. Nothing is left then.
    pub(super) fn prepare(base: &Path, base_is_temporary: bool) -> Result<Disk, String> {
        let (image, mount_point) = (base.join("image"), base.join("mounted"));
        let named = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
        std::fs::create_dir(&mount_point).map_err(|error| named(&mount_point, error))?;
        // From here on everything made is removed with this.
        let guard = Guard::start(&mount_point, base_is_temporary.then_some(base))
            .inspect_err(|_| remove_directory(&mount_point))?;
        let disk = Disk { image, mount_point, guard };
        let made = disk.make().and_then(|()| disk.mount()).and_then(|()| disk.rehearse());
        match made {
            Ok(()) => Ok(disk),
            Err(why) => {
                let image = disk.image.clone();
                drop(disk);
                // It may never have been made.
                let _ = std::fs::remove_file(image);
                Err(format!("{why} (it takes root, a loop device, and mkfs.ext4 of e2fsprogs)"))
            }
        }
    }

    /// Where it is mounted.
    pub(super) fn path(&self) -> &Path {
        &self.mount_point
    }

    /// The file it is in.
    pub(super) fn image(&self) -> &Path {
        &self.image
    }

    /// Has it lose everything that was not synced. Whoever wrote to it must have been killed.
    ///
    /// # Errors
    /// What failed. It may not be mounted then.
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

    /// Runs a command that the shell beside this process waits for, too: should this process be killed meanwhile, what the
    /// command does is done before it is cleaned up.
    fn run<'a>(&self, name: &str, arguments: impl IntoIterator<Item = &'a OsStr>) -> Result<(), String> {
        run(name, arguments, self.guard.pipe())
    }

    /// Unmounts it as soon as nobody has a file of it open.
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

    /// Shows that what was synced survives a power cut here, and what was not does not: otherwise nothing would be shown by
    /// the survival of a database.
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

/// Removes what can be there only empty, if it is there.
fn remove_directory(path: &Path) {
    let _ = std::fs::remove_dir(path);
}

/// A directory on another device than its parent is a mount.
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

/// A command of the system, found also where only administrators look.
fn system_command(name: &str) -> Command {
    let mut command = Command::new(name);
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin:/usr/bin:/bin");
    // What it says is looked at, so it says it in English.
    command.env("PATH", path).env("LC_ALL", "C").process_group(0);
    command
}

/// Runs a command that does not read its input to its end. What it had to say, if it failed, is one line.
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

    /// The writing end of the pipe it reads from, for a process that it is to wait for.
    fn pipe(&self) -> Stdio {
        let pipe = self.0.stdin.as_ref().and_then(|pipe| pipe.as_fd().try_clone_to_owned().ok());
        pipe.map_or_else(Stdio::null, Stdio::from)
    }

    /// Everything is in order: there is nothing left to do for it.
    fn dismiss(&mut self) {
        if let Some(mut line) = self.0.stdin.take() {
            // When it has gone, it does nothing either.
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

    /// Whether the guard removes a directory when it is left alone, or dismissed.
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
