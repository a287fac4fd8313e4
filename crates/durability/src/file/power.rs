//! A power cut on one mounted file system, for tests of what survives one.
//!
//! Owns the one call that makes the kernel drop a file system as if its machine had lost power. It never mounts, unmounts or
//! repairs anything: that is up to the caller, before and after.
#![cfg_attr(
    target_os = "linux",
    expect(unsafe_code, reason = "this request to the kernel has no safe interface")
)]

use std::io;
use std::path::Path;

/// Makes a mounted file system lose everything that has not been synced, as a loss of power would: from now on every call
/// on it fails, nothing of what is still in memory reaches its device, its journal included, and after it has been unmounted
/// and mounted again only what was synced is certain to be there.
///
/// Only for file systems made for a test: everybody who uses it loses what they had not synced. Processes that write to it
/// should be killed first, or they are told of failed calls, which is not how power is lost.
///
/// # Errors
/// `Unsupported` where the operating system has no such request; otherwise as the operating system says: the caller must be
/// the administrator, and the file system must know the request (ext4, XFS, F2FS and Btrfs do).
pub fn cut_power(mount_point: &Path) -> io::Result<()> {
    shut_down(mount_point)
}

#[cfg(target_os = "linux")]
fn shut_down(mount_point: &Path) -> io::Result<()> {
    use rustix::fs::{Mode, OFlags};
    use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

    /// `FS_IOC_SHUTDOWN`, which ext4 calls `EXT4_IOC_SHUTDOWN`: `_IOR('X', 125, __u32)` although the kernel reads it.
    const SHUTDOWN: Opcode = opcode::read::<u32>(b'X', 125);
    /// Cuts without writing out the journal first, as a loss of power does.
    const NO_LOG_FLUSH: u32 = 2;

    let directory =
        rustix::fs::open(mount_point, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    // SAFETY: the kernel reads one `u32` for this request, which is what is handed over; a file system that does not know
    // the request refuses it and reads nothing.
    let shutdown = unsafe { Setter::<SHUTDOWN, u32>::new(NO_LOG_FLUSH) };
    // SAFETY: as above; the number outlives the call, and the kernel keeps no address of it.
    unsafe { ioctl(&directory, shutdown) }?;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn shut_down(_: &Path) -> io::Result<()> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "only Linux can shut a file system down as a power cut would",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_directory_is_refused() {
        let temp = tempfile::tempdir().expect("a directory");
        let refused = cut_power(&temp.path().join("nothing")).expect_err("it is not there");
        if cfg!(target_os = "linux") {
            assert_eq!(refused.kind(), io::ErrorKind::NotFound);
        } else {
            assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
        }
    }
}
