//! Choice of a machine by a user (`--topology`): the forms of it, and reading the machine it names.
//!
//! Owns: the rule that tells the forms apart. Never: guesses; what is neither a path nor a description is an error.

use crate::error::TopologyError;
use crate::live::LiveOptions;
use crate::machine::Machine;
use std::fmt;
use std::path::{Path, PathBuf};

/// A machine file or an hwloc file of a machine with thousands of cores is a few megabytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Sources from which a machine can come.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TopologySource {
    /// The machine this process runs on.
    #[default]
    Live,
    /// A description in hwloc's synthetic notation; known to be valid.
    Synthetic(String),
    /// A machine file.
    MachineFile(PathBuf),
    /// An hwloc XML file.
    HwlocXml(PathBuf),
}

impl fmt::Display for TopologySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Live => f.write_str("live"),
            Self::Synthetic(text) => f.write_str(text),
            Self::MachineFile(path) | Self::HwlocXml(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Reads what a user wrote: nothing or `live`; the path of a `.toml` machine file or an `.xml` hwloc file; or a machine
/// in hwloc's synthetic notation. A description is checked here; a file is when it is loaded, but must be readable now.
///
/// # Errors
/// A [`TopologyError`] naming what is wrong with the text or the path.
pub fn parse_spec(text: &str) -> Result<TopologySource, TopologyError> {
    let text = text.trim();
    if text.is_empty() || text.eq_ignore_ascii_case("live") {
        return Ok(TopologySource::Live);
    }
    let path = Path::new(text);
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    let source = match extension.as_deref() {
        Some("toml") => TopologySource::MachineFile(path.to_path_buf()),
        Some("xml") if cfg!(feature = "hwloc") => TopologySource::HwlocXml(path.to_path_buf()),
        Some("xml") => return Err(TopologyError::HwlocDisabled { path: path.to_path_buf() }),
        _ if text.contains('/') || path.exists() => {
            return Err(TopologyError::UnknownFormat { path: path.to_path_buf() });
        }
        _ => {
            Machine::synthetic(text)?;
            return Ok(TopologySource::Synthetic(text.to_owned()));
        }
    };
    std::fs::File::open(path)
        .and_then(|file| file.metadata())
        .map_err(|error| unreadable(path, &error.to_string()))
        .and_then(|metadata| match metadata.is_file() {
            true => Ok(source),
            false => Err(unreadable(path, "it is no regular file")),
        })
}

fn unreadable(path: &Path, message: &str) -> TopologyError {
    TopologyError::Unreadable { path: path.to_path_buf(), message: message.to_owned() }
}

fn read_text(path: &Path) -> Result<String, TopologyError> {
    use std::io::Read;
    let mut text = String::new();
    let read =
        std::fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text));
    match read {
        Err(error) => Err(unreadable(path, &error.to_string())),
        Ok(bytes) if bytes as u64 > FILE_BYTES_MAX => Err(unreadable(path, "it is longer than 64 MiB")),
        Ok(_) => Ok(text),
    }
}

impl TopologySource {
    /// Gets the machine. `live` says where the live machine is read and what this process may use of it; descriptions
    /// are usable as a whole, see [`Machine::restricted_to`].
    ///
    /// # Errors
    /// A [`TopologyError`] for a file that cannot be read or contradicts itself; never for [`TopologySource::Live`].
    pub fn load(&self, live: &LiveOptions) -> Result<Machine, TopologyError> {
        match self {
            Self::Live => Ok(Machine::live(live)),
            Self::Synthetic(text) => Machine::synthetic(text),
            Self::MachineFile(path) => Machine::from_toml(&read_text(path)?, path),
            Self::HwlocXml(path) => read_hwloc(path),
        }
    }
}

#[cfg(feature = "hwloc")]
fn read_hwloc(path: &Path) -> Result<Machine, TopologyError> {
    Machine::from_hwloc_xml(&read_text(path)?, path)
}

#[cfg(not(feature = "hwloc"))]
fn read_hwloc(path: &Path) -> Result<Machine, TopologyError> {
    Err(TopologyError::HwlocDisabled { path: path.to_path_buf() })
}
