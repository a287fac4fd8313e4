//! The users of a database directory, and the verifiers of their passwords: the file `server/users`.
//!
//! Owns: the file's form, one line for each user, name and verifier with a tab between them; who may read it. Never: holds a password.
//!
//! Invariants: the file is replaced as a whole, is read by its owner only, and has one user at least.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ring::rand::{SecureRandom, SystemRandom};
use thiserror::Error;

use super::scram::Verifier;

/// Letters of generated passwords: none that is easily taken for another one. 32 of them, so that five bits choose one.
const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
/// Letters of a generated password: 100 bits.
const GENERATED: usize = 20;
/// Bytes of a user's name, as PostgreSQL has it.
const MOST_NAME_BYTES: usize = 63;

/// Failures with the users of a directory.
#[derive(Debug, Error)]
pub enum UsersError {
    /// The file cannot be read or written.
    #[error("the file of users {path} cannot be {done}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// "read" or "written".
        done: &'static str,
        /// The system's reason.
        error: io::Error,
    },
    /// A line is none.
    #[error(
        "line {line} of the file of users {path} is not a name, a tab and a SCRAM verifier; remove the file to have a new password made"
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
    },
    /// A name or password cannot be used.
    #[error("{0}")]
    Refused(&'static str),
    /// The system has no random numbers.
    #[error("the operating system returned no random numbers, without which there is no password")]
    Random,
}

/// Users and their verifiers.
#[derive(Debug)]
pub struct Users {
    /// Never empty; the first is the owner of the database.
    users: Vec<(String, Verifier)>,
}

impl Users {
    /// Opens the users of a database: those of the file, with this password for the owner if one is given. If there is no file yet, it
    /// is made, with a generated password if none is given, which is returned: it is nowhere else.
    ///
    /// # Errors
    /// Fails if the file cannot be read or written, or the name or the password cannot be used.
    pub fn open(
        path: &Path,
        owner: &str,
        password: Option<&str>,
    ) -> Result<(Users, Option<String>), UsersError> {
        let users = Users::read(path)?;
        let generated = match (&users, password) {
            (None, None) => Some(generate_password()?),
            _ => None,
        };
        let users = match (users, password.or(generated.as_deref())) {
            (Some(users), None) => users,
            (users, Some(password)) => {
                let users = Users::set(users, owner, password)?;
                users.write(path)?;
                users
            }
            (None, None) => return Err(UsersError::Random),
        };
        Ok((users, generated))
    }

    /// Reads the users of a directory; `None` if there is no file yet.
    pub(crate) fn read(path: &Path) -> Result<Option<Users>, UsersError> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(UsersError::File { path: path.to_owned(), done: "read", error }),
        };
        let users = text
            .lines()
            .enumerate()
            .map(|(at, line)| {
                line.split_once('\t')
                    .and_then(|(name, verifier)| Some((name.to_owned(), Verifier::parse(verifier)?)))
                    .ok_or_else(|| UsersError::Line { path: path.to_owned(), line: at + 1 })
            })
            .collect::<Result<Vec<_>, _>>()?;
        if users.is_empty() {
            return Err(UsersError::Line { path: path.to_owned(), line: 1 });
        }
        Ok(Some(Users { users }))
    }

    /// Sets the password of a user, who is added if there is none of the name.
    pub(crate) fn set(users: Option<Users>, name: &str, password: &str) -> Result<Users, UsersError> {
        if name.is_empty() || name.len() > MOST_NAME_BYTES || name.chars().any(char::is_control) {
            return Err(UsersError::Refused(
                "the name of a user has 1 to 63 bytes and no control characters",
            ));
        }
        if password.is_empty() || !password.bytes().all(|byte| (0x20..=0x7e).contains(&byte)) {
            // Others would have to be normalised by SASLprep, on both sides alike.
            return Err(UsersError::Refused("a password has at least one letter, and printable ASCII only"));
        }
        let verifier = Verifier::of(password, &SystemRandom::new()).map_err(|_| UsersError::Random)?;
        let mut users = users.map_or_else(Vec::new, |users| users.users);
        match users.iter_mut().find(|(user, _)| user == name) {
            Some((_, old)) => *old = verifier,
            None => users.push((name.to_owned(), verifier)),
        }
        Ok(Users { users })
    }

    /// Writes the file: all of it or nothing.
    pub(crate) fn write(&self, path: &Path) -> Result<(), UsersError> {
        let failed = |error| UsersError::File { path: path.to_owned(), done: "written", error };
        let beside = path.with_extension("new");
        let mut text = String::new();
        for (name, verifier) in &self.users {
            text.push_str(&format!("{name}\t{verifier}\n"));
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&beside)
            .map_err(failed)?;
        file.set_permissions(Permissions::from_mode(0o600)).map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        fs::rename(&beside, path).map_err(failed)
    }

    /// Returns true if there is such a user.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.users.iter().any(|(user, _)| user == name)
    }

    /// Returns the verifier of a user: one that no password fulfils if there is no such user.
    pub(crate) fn verifier(&self, name: &str) -> Verifier {
        let known = self.users.iter().find(|(user, _)| user == name);
        known.map_or_else(|| self.users[0].1.mock(name), |(_, verifier)| verifier.clone())
    }
}

/// Generates a password of 100 random bits.
pub(crate) fn generate_password() -> Result<String, UsersError> {
    let mut random = [0; GENERATED];
    SystemRandom::new().fill(&mut random).map_err(|_| UsersError::Random)?;
    Ok(random.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_generated_once_and_replaced_on_demand() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("users");
        let (first, generated) = Users::open(&path, "ada", None).expect("new users");
        assert!(generated.is_some());
        let (again, none) = Users::open(&path, "ada", None).expect("the same users");
        assert_eq!((first.users, none), (again.users.clone(), None));
        let (other, none) = Users::open(&path, "ada", Some("mine")).expect("another password");
        assert_eq!((other.users.len(), none), (1, None));
        assert_ne!(other.users, again.users);
    }

    #[test]
    fn users_are_read_as_they_were_written_and_by_their_owner_only() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("users");
        assert!(Users::read(&path).expect("no file is no failure").is_none());
        let users = Users::set(None, "ada", "secret").expect("a user");
        let users = Users::set(Some(users), "bob", "other").expect("another user");
        users.write(&path).expect("written");
        assert_eq!(fs::metadata(&path).expect("the file").permissions().mode() & 0o777, 0o600);
        let read = Users::read(&path).expect("read").expect("users");
        assert_eq!(read.users, users.users);
        assert_eq!((read.users[0].0.as_str(), read.has("bob"), read.has("eve")), ("ada", true, false));
        fs::write(&path, "ada\tnothing\n").expect("written");
        assert!(matches!(Users::read(&path), Err(UsersError::Line { line: 1, .. })));
    }

    #[test]
    fn names_and_passwords_that_cannot_be_kept_are_refused() {
        for (name, password) in [("", "p"), ("a\tb", "p"), (&"n".repeat(64)[..], "p"), ("a", ""), ("a", "é")]
        {
            assert!(
                matches!(Users::set(None, name, password), Err(UsersError::Refused(_))),
                "{name} {password}"
            );
        }
        let (one, other) = (generate_password().expect("one"), generate_password().expect("another"));
        assert_eq!(one.len(), GENERATED);
        assert_ne!(one, other);
    }
}
