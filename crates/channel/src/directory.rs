//! The directory in which the instances of a deployment find each other on one machine.
//!
//! Owns: its files, and what may lie in it. Never: opens a socket. Invariant: everything in it is its owner's alone.
//!
//! | file | holds |
//! |---|---|
//! | `deployment` | the identity of the deployment, in hexadecimal digits; written once |
//! | `instance-<i>.sock` | the socket of an instance |
//! | `instance-<i>.lock` | a lock that the instance holds while it lives, so that a socket left over is known as such |

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::{Attempt, ChannelError};
use crate::hello::{DeploymentId, InstanceId};

/// The longest path of a Unix socket: what its address has room for, with a zero at the end.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Makes the directory if it is not there, and checks that it is this user's alone and this deployment's.
///
/// # Errors
/// If it is open to others, or another deployment's.
pub fn prepare(directory: &Path, deployment: DeploymentId) -> Result<(), ChannelError> {
    let name = directory.display();
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .attempt(&format!("make the directory {name} for channels"))?;
    let found = fs::metadata(directory).attempt(&format!("look at the directory {name}"))?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(ChannelError::Refused(format!(
            "the directory {name} belongs to another user: name one of your own for the channels of this deployment"
        )));
    }
    if found.mode() & 0o077 != 0 {
        return Err(ChannelError::Refused(format!(
            "the directory {name} is open to other users, who could listen in: run chmod 700 {name}"
        )));
    }
    if !check_identity(directory, deployment)? {
        write_identity(directory, deployment)?;
        check_identity(directory, deployment)?;
    }
    Ok(())
}

/// Checks that the directory is this deployment's. Returns false if nothing says whose it is.
pub(crate) fn check_identity(directory: &Path, deployment: DeploymentId) -> Result<bool, ChannelError> {
    let path = directory.join("deployment");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(ChannelError::io(format!("read {}", path.display()), error)),
    };
    match text.trim_end().parse::<DeploymentId>() {
        Ok(found) if found == deployment => Ok(true),
        Ok(found) => Err(ChannelError::Refused(format!(
            "the directory {} belongs to deployment {found}, not to {deployment}: name another directory",
            directory.display()
        ))),
        Err(error) => Err(ChannelError::Refused(format!("the file {} is damaged: {error}", path.display()))),
    }
}

/// Writes whose directory it is, whole or not at all, unless another instance is faster.
fn write_identity(directory: &Path, deployment: DeploymentId) -> Result<(), ChannelError> {
    let attempt = format!("write whose directory {} is", directory.display());
    let draft = directory.join(format!("deployment.{}", std::process::id()));
    let _leftover = fs::remove_file(&draft);
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft).attempt(&attempt)?;
    writeln!(file, "{deployment}").attempt(&attempt)?;
    let linked = fs::hard_link(&draft, directory.join("deployment"));
    fs::remove_file(&draft).attempt(&attempt)?;
    match linked {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(ChannelError::io(attempt, error)),
        _ => Ok(()),
    }
}

/// The path of an instance's socket.
pub(crate) fn socket_path(directory: &Path, instance: InstanceId) -> Result<PathBuf, ChannelError> {
    let path = directory.join(format!("instance-{}.sock", instance.0));
    let bytes = path.as_os_str().len();
    if bytes > SOCKET_PATH_BYTES_MAX {
        return Err(ChannelError::Refused(format!(
            "the socket {} has a path of {bytes} bytes, and the system allows {SOCKET_PATH_BYTES_MAX}: \
             choose a shorter directory",
            path.display()
        )));
    }
    Ok(path)
}

/// Claims the number of an instance for this process, as long as the file is open.
pub(crate) fn claim(directory: &Path, instance: InstanceId) -> Result<File, ChannelError> {
    let path = directory.join(format!("instance-{}.lock", instance.0));
    let attempt = format!("lock {}", path.display());
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .attempt(&attempt)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(ChannelError::Refused(format!(
            "{instance} runs in {} already: stop it, or give this one another number",
            directory.display()
        ))),
        Err(TryLockError::Error(error)) => Err(ChannelError::io(attempt, error)),
    }
}
