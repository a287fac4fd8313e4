//! Output channels: results to standard output, warnings and errors to standard error, JSON to its file.
//!
//! Owns: writing without panicking (a reader that goes away is no error), and [`JsonFile`], which never leaves half a
//! file behind. Never: decides on the content.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::CliError;

/// Writes a result to standard output.
pub fn print(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        // The reader has closed the pipe.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) => {
            Err(CliError::failed(format!("the result cannot be written to standard output: {error}")))
        }
    }
}

/// Writes a line to standard error, if it is open.
pub fn complain(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// A file that is going to hold a result, as JSON or as text. It is known to be writable before the work begins;
/// its old content stays until the result is complete.
#[derive(Debug)]
pub struct JsonFile {
    path: PathBuf,
    /// The kind of the file, for error messages.
    what: &'static str,
    target: Target,
}

#[derive(Debug)]
enum Target {
    /// A file beside the wanted one, to be renamed.
    Beside(NamedTempFile),
    /// A device or pipe, which cannot be replaced.
    Itself(File),
}

impl JsonFile {
    /// Makes sure that `path` can be written.
    pub fn prepare(path: &Path) -> Result<JsonFile, CliError> {
        JsonFile::prepare_as("JSON", path)
    }

    /// Makes sure that a file of another kind can be written.
    pub fn prepare_as(what: &'static str, path: &Path) -> Result<JsonFile, CliError> {
        let refuse = |why: &dyn std::fmt::Display| {
            CliError::bad_input(format!(
                "the {what} file {} cannot be written: {why}; choose a path in a directory you may write to",
                path.display()
            ))
        };
        let existing = match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => return Err(refuse(&"it is a directory")),
            Ok(metadata) => Some(metadata),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(refuse(&error)),
        };
        if existing.is_some() {
            // A file that may not be written is not to be replaced either.
            let opened = OpenOptions::new().append(true).open(path).map_err(|error| refuse(&error))?;
            if existing.is_some_and(|metadata| !metadata.is_file()) {
                return Ok(JsonFile { path: path.to_owned(), what, target: Target::Itself(opened) });
            }
        }
        // The target of a link is replaced, not the link.
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let mut builder = tempfile::Builder::new();
        builder.prefix(".atrapos-").suffix(".part");
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let beside = builder.tempfile_in(directory).map_err(|error| refuse(&error))?;
        Ok(JsonFile { path, what, target: Target::Beside(beside) })
    }

    /// Writes the file in one step: from now on it exists, and is complete.
    pub fn write(self, value: &serde_json::Value) -> Result<(), CliError> {
        self.write_text(&format!("{value:#}\n"))
    }

    /// Writes a text in one step.
    pub fn write_text(self, text: &str) -> Result<(), CliError> {
        let written = match self.target {
            Target::Itself(mut file) => file.write_all(text.as_bytes()),
            Target::Beside(mut file) => file
                .write_all(text.as_bytes())
                .and_then(|()| file.as_file().sync_all())
                .and_then(|()| file.persist(&self.path).map(drop).map_err(|error| error.error)),
        };
        written.map_err(|error| {
            CliError::failed(format!(
                "the {} file {} could not be written: {error}",
                self.what,
                self.path.display()
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_only_when_its_successor_is_whole() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("result.json");
        JsonFile::prepare(&path).and_then(|file| file.write(&serde_json::json!("old"))).expect("written");
        let abandoned = JsonFile::prepare(&path).expect("a writable path");
        drop(abandoned);
        assert_eq!(std::fs::read_to_string(&path).expect("the file"), "\"old\"\n");
        let file = JsonFile::prepare(&path).expect("a writable path");
        file.write(&serde_json::json!({ "new": true })).expect("written");
        let text = std::fs::read_to_string(&path).expect("the file");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&text).expect("JSON"),
            serde_json::json!({ "new": true })
        );
        let names: Vec<_> = std::fs::read_dir(directory.path()).expect("the directory").collect();
        assert_eq!(names.len(), 1, "nothing else is left behind");
    }

    #[test]
    fn paths_that_cannot_be_written_are_refused_at_once() {
        let directory = tempfile::tempdir().expect("a directory");
        for path in [directory.path().to_owned(), directory.path().join("no/such/place.json")] {
            let refused = JsonFile::prepare(&path).expect_err("refused");
            assert!(
                matches!(&refused, CliError::BadInput(why) if why.contains("cannot be written")),
                "{refused}"
            );
        }
    }

    #[test]
    fn devices_are_written_to() {
        let file = JsonFile::prepare(Path::new("/dev/null")).expect("a device");
        file.write(&serde_json::json!(1)).expect("written");
        assert!(!std::fs::metadata("/dev/null").expect("still there").is_file());
    }
}
