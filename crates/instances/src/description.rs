//! The directory of a deployment, and the file in it that describes the deployment to clients.
//!
//! Besides the files of the channels it has `deployment.json`, replaced as a whole; `secret`, by which those who connect by TCP prove
//! that they may read the directory; and `deploy.lock`, which is locked as long as the deployment runs.
//!
//! Owns: these files, and who may use the directory. Never: starts a process, or opens a socket.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use atrapos_channel::{ChannelError, ChannelKind, DeploymentId, Secret, prepare_directory};
use serde::{Deserialize, Serialize};

use crate::keys::ChosenKeys;

/// The version of the description.
const FORMAT: u32 = 2;

const DESCRIPTION: &str = "deployment.json";
const LOCK: &str = "deploy.lock";
const SECRET: &str = "secret";

/// A deployment as its directory describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The version of the description.
    format: u32,
    /// The identity, in hexadecimal digits.
    deployment: String,
    /// The version of the program that the instances run.
    pub program: String,
    /// The data that the deployment has, as words of a command line.
    pub data: Vec<String>,
    /// The way of the messages between instances.
    pub channel: ChannelKind,
    /// The number of workers of each instance. They decide which keys an instance owns, where these are not chosen.
    pub workers: Vec<usize>,
    /// The keys that are chosen for each instance; empty if none are.
    pub keys: Vec<ChosenKeys>,
    /// The addresses on which the instances listen for TCP; none if they do not.
    pub tcp: Vec<SocketAddr>,
}

/// Reasons for which a directory is not used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// It has no description.
    #[error("{0} has no deployment: name the directory that 'atrapos deploy' has printed")]
    NoDeployment(PathBuf),
    /// The description cannot be read.
    #[error(
        "the description of the deployment in {path} cannot be read ({why}); use the version of the program that has written it"
    )]
    Unreadable {
        /// The directory.
        path: PathBuf,
        /// The cause.
        why: String,
    },
    /// A deployment runs there.
    #[error("a deployment runs in {0} already: stop it, or name another directory")]
    Runs(PathBuf),
    /// It was made for another deployment.
    #[error("{path} belongs to another deployment ({theirs}): name another directory for this one ({ours})")]
    Other {
        /// The directory.
        path: PathBuf,
        /// The deployment that it belongs to.
        theirs: String,
        /// The deployment that was to use it.
        ours: String,
    },
    /// There is something else.
    #[error("{path} is no directory of a deployment, as it has '{file}': name an empty or a new one")]
    NotEmpty {
        /// The directory.
        path: PathBuf,
        /// A file in it.
        file: String,
    },
    /// The channels refuse it.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// A call of the operating system has failed.
    #[error("the directory {path} cannot be used: {why}")]
    Io {
        /// The directory.
        path: PathBuf,
        /// The cause.
        why: std::io::Error,
    },
}

impl Description {
    /// Describes a deployment that has no identity yet.
    #[must_use]
    pub fn new(
        data: Vec<String>,
        channel: ChannelKind,
        workers: Vec<usize>,
        keys: Vec<ChosenKeys>,
        tcp: Vec<SocketAddr>,
    ) -> Description {
        let program = env!("CARGO_PKG_VERSION").to_owned();
        Description { format: FORMAT, deployment: String::new(), program, data, channel, workers, keys, tcp }
    }

    /// Reads the description of the deployment in a directory.
    ///
    /// # Errors
    /// Fails if there is none, or it is of another version.
    pub fn read(directory: &Path) -> Result<Description, DirectoryError> {
        let unreadable = |why: String| DirectoryError::Unreadable { path: directory.to_owned(), why };
        let text = match fs::read_to_string(directory.join(DESCRIPTION)) {
            Ok(text) => text,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Err(DirectoryError::NoDeployment(directory.to_owned()));
            }
            Err(error) => return Err(unreadable(error.to_string())),
        };
        let found: Description =
            serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
        if found.format != FORMAT {
            return Err(unreadable(format!(
                "it has format {}, and this program reads format {FORMAT}",
                found.format
            )));
        }
        found.id().map_err(&unreadable)?;
        let fits = |entries: usize| entries == 0 || entries == found.workers.len();
        if found.workers.is_empty() || !fits(found.tcp.len()) || !fits(found.keys.len()) {
            return Err(unreadable("its lists do not fit together".to_owned()));
        }
        Ok(found)
    }

    /// Returns the identity.
    fn id(&self) -> Result<DeploymentId, String> {
        self.deployment.parse().map_err(|error: atrapos_channel::NotADeployment| error.to_string())
    }

    /// The identity of the deployment; that of nobody if it has none yet.
    #[must_use]
    pub fn deployment(&self) -> DeploymentId {
        self.id().unwrap_or(DeploymentId(0))
    }

    /// Returns true if both have the same data, and the same keys in each instance.
    fn has_data_of(&self, other: &Description) -> bool {
        (&self.data, &self.workers, &self.keys) == (&other.data, &other.workers, &other.keys)
    }

    /// The deployment in a few words.
    fn title(&self) -> String {
        let keys = if self.keys.is_empty() { "" } else { " and chosen keys" };
        format!("'{}' with {:?} workers{keys}", self.data.join(" "), self.workers)
    }

    /// Writes the description, whole or not at all.
    fn write(&self, directory: &Path) -> std::io::Result<()> {
        let draft = directory.join("deployment.json.new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(serde_json::to_string_pretty(self)?.as_bytes())?;
        fs::rename(draft, directory.join(DESCRIPTION))
    }
}

/// A directory that is this deployment's as long as this lives.
#[derive(Debug)]
pub struct DeploymentDirectory {
    path: PathBuf,
    /// The lock, which the end of the process releases as well.
    _lock: File,
}

impl DeploymentDirectory {
    /// Claims a directory for a deployment, which gets the identity that the directory has, or a new one; makes it if it is
    /// not there.
    ///
    /// # Errors
    /// Fails if a deployment runs there, it was made for other data or other instances, has other files, or is not this user's
    /// alone.
    pub fn claim(path: &Path, description: &mut Description) -> Result<DeploymentDirectory, DirectoryError> {
        let io = |why| DirectoryError::Io { path: path.to_owned(), why };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io)?;
        let files = fs::read_dir(path).and_then(|entries| {
            let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
            names.collect::<std::io::Result<Vec<String>>>()
        });
        let files = files.map_err(io)?;
        let found = match Description::read(path) {
            Ok(found) => Some(found),
            Err(DirectoryError::NoDeployment(_)) => None,
            Err(error) => return Err(error),
        };
        let other = files.into_iter().find(|file| ![LOCK, SECRET, "deployment"].contains(&file.as_str()));
        if let (None, Some(file)) = (&found, other) {
            return Err(DirectoryError::NotEmpty { path: path.to_owned(), file });
        }
        let lock = lock(path)?;
        description.deployment = match &found {
            Some(found) if !found.has_data_of(description) => {
                let (theirs, ours) = (found.title(), description.title());
                return Err(DirectoryError::Other { path: path.to_owned(), theirs, ours });
            }
            Some(found) => found.deployment.clone(),
            None => DeploymentId::draw()?.to_string(),
        };
        prepare_directory(path, description.deployment())?;
        if found.is_none() {
            write_secret(path)?;
        }
        description.write(path).map_err(io)?;
        Ok(DeploymentDirectory { path: path.to_owned(), _lock: lock })
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Draws the secret of a deployment, and writes it to a directory that is not to be read by others.
///
/// # Errors
/// Fails if the file cannot be written, or the system gives no random bytes.
pub fn write_secret(path: &Path) -> Result<(), DirectoryError> {
    let secret = format!("{}{}", DeploymentId::draw()?, DeploymentId::draw()?);
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path.join(SECRET));
    let written = file.and_then(|mut file| file.write_all(secret.as_bytes()));
    written.map_err(|why| DirectoryError::Io { path: path.to_owned(), why })
}

/// Reads the secret of the deployment in a directory, which its instances and clients share.
///
/// # Errors
/// Fails if the file is not there, or damaged.
pub fn read_secret(path: &Path) -> Result<Secret, DirectoryError> {
    let secret =
        fs::read(path.join(SECRET)).map_err(|why| DirectoryError::Io { path: path.to_owned(), why })?;
    Ok(Secret::new(secret)?)
}

fn lock(path: &Path) -> Result<File, DirectoryError> {
    let io = |why| DirectoryError::Io { path: path.to_owned(), why };
    let mut options = OpenOptions::new();
    let file =
        options.write(true).create(true).truncate(false).mode(0o600).open(path.join(LOCK)).map_err(io)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(DirectoryError::Runs(path.to_owned())),
        Err(TryLockError::Error(why)) => Err(io(why)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::keys::KeyBounds;

    fn description(data: &str, workers: &[usize]) -> Description {
        Description::new(vec![data.to_owned()], ChannelKind::Unix, workers.to_vec(), Vec::new(), Vec::new())
    }

    fn refused(path: &Path, mut description: Description) -> String {
        DeploymentDirectory::claim(path, &mut description).expect_err("refused").to_string()
    }

    #[test]
    fn a_directory_is_one_deployments_at_a_time_and_for_ever() {
        let parent = tempfile::tempdir().expect("a directory");
        let path = parent.path().join("new");
        assert!(
            Description::read(&path).expect_err("nothing there").to_string().contains("has no deployment")
        );
        let mut first = description("tatp", &[1, 2]);
        let claimed = DeploymentDirectory::claim(&path, &mut first).expect("a new one");
        let mode = fs::metadata(claimed.path()).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o077, 0, "it is its owner's alone");
        assert_eq!(Description::read(&path).expect("described"), first);
        assert!(refused(&path, description("tatp", &[1, 2])).contains("runs in"));
        drop(claimed);
        for other in [description("tpcb", &[1, 2]), description("tatp", &[2, 1])] {
            assert!(
                refused(&path, other).contains("belongs to another deployment ('tatp' with [1, 2] workers)")
            );
        }
        let mut other = description("tatp", &[1, 2]);
        other.keys =
            vec![ChosenKeys::from([("subscriber".to_owned(), KeyBounds::default())]), ChosenKeys::new()];
        assert!(refused(&path, other).contains("'tatp' with [1, 2] workers and chosen keys"));
        let (file, text) =
            (path.join(DESCRIPTION), fs::read_to_string(path.join(DESCRIPTION)).expect("it is there"));
        fs::write(&file, text.replace("\"format\": 2", "\"format\": 9")).expect("a file");
        let later = Description::read(&path).expect_err("it is of a later version").to_string();
        assert!(later.contains("it has format 9, and this program reads format 2"), "{later}");
        fs::write(&file, text).expect("a file");
        let mut again = description("tatp", &[1, 2]);
        let _claimed = DeploymentDirectory::claim(&path, &mut again).expect("the same one");
        assert_eq!(again.deployment(), first.deployment());
    }

    #[test]
    fn directories_of_something_else_are_refused() {
        let parent = tempfile::tempdir().expect("a directory");
        fs::write(parent.path().join("letter"), "dear").expect("a file");
        assert!(refused(parent.path(), description("tatp", &[1])).contains("it has 'letter'"));
        fs::remove_file(parent.path().join("letter")).expect("it is there");
        fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o755)).expect("its owner may");
        assert!(refused(parent.path(), description("tatp", &[1])).contains("chmod 700"));
        fs::write(parent.path().join(DESCRIPTION), "{").expect("a file");
        assert!(refused(parent.path(), description("tatp", &[1])).contains("cannot be read"));
    }
}
