//! The manifest: the one small file that says what a database directory holds.
//!
//! Owns the content of the manifest and its bytes; those of the definitions in it are the catalog's. It never touches anything
//! but MANIFEST and MANIFEST.new; the lock and the other files are [`directory`](crate::directory)'s.
//!
//! Invariants:
//! - The manifest is replaced as a whole or not at all: MANIFEST.new is written and synced, then takes the name.
//! - The header keeps its layout in every format version, so that an older program can tell a newer file from a damaged
//!   one. See `docs/directory-format.md`.
//! - The newest version is written, whatever version was read.

mod v1;

use std::io;
use std::path::Path;

use atrapos_catalog::Definitions;
use serde::{Deserialize, Serialize};

use crate::directory::DirectoryError;
use crate::file::FileSystem;
use crate::wal::{Epoch, Incarnation, StreamEnd};

/// The name of the manifest in a database directory.
pub const MANIFEST: &str = "MANIFEST";
/// The name under which the next manifest is written before it takes its place.
pub const MANIFEST_NEW: &str = "MANIFEST.new";
/// The newest format of a database directory this program reads, and the one it writes.
pub const FORMAT_VERSION: u32 = 3;

const MAGIC: [u8; 8] = *b"ATRAMANI";
const HEADER_BYTES: usize = 20;
/// No manifest comes near this; a longer file is not one, and is not read into memory.
const LONGEST_BYTES: u64 = 256 << 20;

/// Contents of a database directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The database's random identity, in every file of it. A backup has the identity of its original.
    pub database: u128,
    /// The present incarnation: the one whose segments are being written. Every opening starts a new one.
    pub incarnation: Incarnation,
    /// Number of streams of the present incarnation, numbered from 0.
    pub streams: u16,
    /// Earlier incarnations whose segments may still be needed, oldest first.
    pub past: Vec<PastIncarnation>,
    /// The first epoch of the present incarnation.
    pub first_epoch: Epoch,
    /// The newest complete checkpoint.
    pub checkpoint: Option<CheckpointRecord>,
    /// The exact end of every stream of the present incarnation, set by an orderly close.
    pub closed: Option<Vec<StreamEnd>>,
    /// The tables. A table's number, as WAL and checkpoints use it, is its place here.
    #[serde(with = "definitions")]
    pub schema: Definitions,
    /// Its place, if the database is an instance of a deployment.
    pub instance: Option<InstanceRecord>,
}

/// The place of an instance in its deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceRecord {
    /// The identity of the deployment.
    pub deployment: u128,
    /// The number of the instance.
    pub instance: u16,
    /// The division of the keys among the instances, in the engine's encoding: equal divisions have equal bytes.
    pub division: Vec<u8>,
}

/// Definitions as the bytes that the catalog makes of them.
mod definitions {
    use atrapos_catalog::Definitions;
    use serde::de::Error as _;
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        definitions: &Definitions,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        definitions.encode().map_err(S::Error::custom)?.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Definitions, D::Error> {
        let bytes = Vec::<u8>::deserialize(deserializer)?;
        Definitions::decode(&bytes).map_err(D::Error::custom)
    }
}

/// An incarnation that ended, and how much of it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastIncarnation {
    /// The incarnation.
    pub incarnation: Incarnation,
    /// Number of its streams.
    pub streams: u16,
    /// Its last durable epoch: records beyond were discarded and must never be replayed.
    pub durable: Epoch,
}

/// A complete checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointRecord {
    /// Its number, which names its directory.
    pub number: u32,
    /// Records with this epoch or a newer one must be replayed on top of it.
    pub replay_from: Epoch,
    /// Its files.
    pub parts: Vec<PartRecord>,
}

/// One file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartRecord {
    /// Its name within the directory of the checkpoint.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Number of rows in it.
    pub rows: u64,
    /// The checksum of its footer, which is tied to every block by position and length.
    pub crc: u32,
}

impl Manifest {
    /// The contradiction within the manifest, as part of a sentence, if there is one.
    pub(crate) fn contradiction(&self) -> Option<String> {
        if self.streams == 0 || self.past.iter().any(|past| past.streams == 0) {
            return Some("an incarnation has no streams".to_owned());
        }
        let order = self.past.iter().map(|past| past.incarnation).chain([self.incarnation]);
        if !order.is_sorted_by(|one, next| one.0 < next.0) {
            return Some("its incarnations are not in order".to_owned());
        }
        if let Some(checkpoint) = &self.checkpoint {
            let odd = |part: &&PartRecord| crate::checkpoint::part_number(&part.name).is_none();
            if let Some(part) = checkpoint.parts.iter().find(odd) {
                return Some(format!("`{}` is not a name of a checkpoint part", part.name));
            }
            if !checkpoint.parts.is_sorted_by(|one, next| one.name < next.name) {
                return Some("the parts of its checkpoint are not in order".to_owned());
            }
        }
        if self.closed.as_ref().is_some_and(|ends| ends.len() != usize::from(self.streams)) {
            return Some("its close names another number of streams than it has".to_owned());
        }
        self.schema.check().err().map(|error| error.to_string())
    }

    /// Its bytes, as they are in the file.
    ///
    /// # Errors
    /// A part of a sentence, when it contradicts itself or is longer than a manifest may be.
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        if let Some(what) = self.contradiction() {
            return Err(what);
        }
        let body = postcard::to_stdvec(self).map_err(|error| error.to_string())?;
        let len = u32::try_from(body.len())
            .ok()
            .filter(|len| u64::from(*len) + HEADER_BYTES as u64 <= LONGEST_BYTES)
            .ok_or_else(|| format!("it is {} bytes long, more than a manifest may be", body.len()))?;
        Ok(encode_with(FORMAT_VERSION, len, &body))
    }

    /// Reads the bytes of a file of any version up to [`FORMAT_VERSION`].
    ///
    /// # Errors
    /// [`DirectoryError::Newer`] and [`DirectoryError::Damaged`], naming `file`.
    pub fn decode(bytes: &[u8], file: &Path) -> Result<Manifest, DirectoryError> {
        Manifest::decode_of_version(bytes, file).map(|(_, manifest)| manifest)
    }

    /// Reads the bytes of a file, and of which version it is.
    fn decode_of_version(bytes: &[u8], file: &Path) -> Result<(u32, Manifest), DirectoryError> {
        let damaged = |offset: usize, what: String| DirectoryError::Damaged {
            file: file.to_owned(),
            offset: offset as u64,
            what,
        };
        let Some((header, body)) = bytes.split_at_checked(HEADER_BYTES) else {
            return Err(damaged(bytes.len(), format!("it ends within its header of {HEADER_BYTES} bytes")));
        };
        if header[..8] != MAGIC {
            return Err(damaged(0, "it does not begin as a manifest does".to_owned()));
        }
        let (version, len, crc) = (field(header, 8), field(header, 12), field(header, 16));
        if body.len() as u64 != u64::from(len) {
            return Err(damaged(
                12,
                format!("it should have {len} bytes after its header and has {}", body.len()),
            ));
        }
        // The checksum comes before the version: the header is the same in all versions, and a flipped bit must not look
        // like a newer program.
        if checksum(&header[..16], body) != crc {
            return Err(damaged(16, "its checksum does not match its bytes".to_owned()));
        }
        if version > FORMAT_VERSION {
            return Err(DirectoryError::Newer { file: file.to_owned(), version, known: FORMAT_VERSION });
        }
        if version == 0 {
            return Err(damaged(8, "there is no format version 0".to_owned()));
        }
        let read = match version {
            1 => v1::read(body),
            // It had no instances: the last field, which is none in one byte.
            2 => read_body(&[body, &[0]].concat()),
            _ => read_body(body),
        };
        let (manifest, rest) = read.map_err(|what| damaged(HEADER_BYTES, what))?;
        if rest > 0 {
            return Err(damaged(bytes.len() - rest, "bytes follow its content".to_owned()));
        }
        match manifest.contradiction() {
            Some(what) => Err(damaged(HEADER_BYTES, what)),
            None => Ok((version, manifest)),
        }
    }

    /// Reads the manifest of a database directory, or nothing if there is none.
    ///
    /// # Errors
    /// [`DirectoryError::Io`], [`DirectoryError::Newer`] and [`DirectoryError::Damaged`].
    pub fn read(fs: &dyn FileSystem, dir: &Path) -> Result<Option<Manifest>, DirectoryError> {
        Ok(Manifest::read_of_version(fs, dir)?.map(|(_, manifest)| manifest))
    }

    /// Reads the manifest of a database directory, and of which version it is.
    pub(crate) fn read_of_version(
        fs: &dyn FileSystem,
        dir: &Path,
    ) -> Result<Option<(u32, Manifest)>, DirectoryError> {
        let path = dir.join(MANIFEST);
        let Some(bytes) = read_small(fs, &path)? else { return Ok(None) };
        Manifest::decode_of_version(&bytes, &path).map(Some)
    }

    /// Puts it in the place of the manifest of `dir`, durably. After an error it is not known which manifest is there.
    ///
    /// # Errors
    /// [`DirectoryError::Invalid`] before anything is written, and [`DirectoryError::Io`].
    pub(crate) fn write(&self, fs: &dyn FileSystem, dir: &Path) -> Result<(), DirectoryError> {
        let bytes = self.encode().map_err(|what| DirectoryError::Invalid { path: dir.to_owned(), what })?;
        let (path, new) = (dir.join(MANIFEST), dir.join(MANIFEST_NEW));
        match fs.remove(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(DirectoryError::io(&new, "remove")(error));
            }
            _ => {}
        }
        let mut file = fs.create(&new).map_err(DirectoryError::io(&new, "create"))?;
        file.write_at(0, &bytes).map_err(DirectoryError::io(&new, "write"))?;
        file.sync().map_err(DirectoryError::io(&new, "sync"))?;
        drop(file);
        fs.rename(&new, &path).map_err(DirectoryError::io(&new, "rename to MANIFEST"))?;
        fs.sync_dir(dir).map_err(DirectoryError::io(dir, "sync"))
    }

    /// Number of streams of an incarnation, if the manifest names it.
    pub fn streams_of(&self, incarnation: Incarnation) -> Option<u16> {
        if incarnation == self.incarnation {
            return Some(self.streams);
        }
        self.past.iter().find(|past| past.incarnation == incarnation).map(|past| past.streams)
    }
}

/// Reads a manifest, and how many bytes are left behind it; or says what is wrong.
fn read_body<'a, M: Deserialize<'a>>(body: &'a [u8]) -> Result<(M, usize), String> {
    match postcard::take_from_bytes::<M>(body) {
        Ok((manifest, rest)) => Ok((manifest, rest.len())),
        Err(error) => Err(format!("its content cannot be read ({error})")),
    }
}

fn encode_with(version: u32, len: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&len.to_le_bytes());
    let crc = checksum(&bytes, body);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

fn checksum(header: &[u8], body: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(header);
    crc.update(body);
    crc.finalize()
}

fn field(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

/// Reads a whole small file, or nothing if there is none.
fn read_small(fs: &dyn FileSystem, path: &Path) -> Result<Option<Vec<u8>>, DirectoryError> {
    let file = match fs.open(path, false) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(DirectoryError::io(path, "open")(error)),
    };
    let len = file.len().map_err(DirectoryError::io(path, "measure"))?;
    let Some(len) = usize::try_from(len).ok().filter(|_| len <= LONGEST_BYTES) else {
        let what = format!("it is {len} bytes long, which no manifest is");
        return Err(DirectoryError::Damaged { file: path.to_owned(), offset: LONGEST_BYTES, what });
    };
    let mut bytes = vec![0; len];
    let read = file.read_at(0, &mut bytes).map_err(DirectoryError::io(path, "read"))?;
    bytes.truncate(read);
    Ok(Some(bytes))
}
