//! Verification: reads everything in a database directory, checks every checksum, and says what is there.
//!
//! Owns the report. It takes no lock and writes nothing, so it works beside a running database, too: what a checkpoint
//! removes while it reads makes it start over. It repairs nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use atrapos_catalog::{IndexDef, TreeDef};
use serde::Serialize;

use crate::checkpoint::{PartId, PartReader, part_number};
use crate::directory::{self, DirectoryError, checkpoint_dir};
use crate::file::FileSystem;
use crate::manifest::{Manifest, PartRecord};
use crate::wal::{
    Changes, Epoch, Frame, Incarnation, Records, StreamEnd, StreamId, StreamReader, WalError, segment_path,
};

mod display;

/// Number of attempts that verification or a backup makes before it takes a contradiction for damage.
pub(crate) const ATTEMPTS: u32 = 5;

/// Contents of a database directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The directory.
    pub path: PathBuf,
    /// The version of its format.
    pub format_version: u32,
    /// Its manifest.
    pub manifest: Manifest,
    /// Tables and indexes.
    pub tables: Vec<TableReport>,
    /// The parts of the checkpoint.
    pub parts: Vec<PartReport>,
    /// The streams of all incarnations that the manifest names.
    pub streams: Vec<StreamReport>,
    /// Problems found, each a sentence. Empty for a sound database.
    pub problems: Vec<String>,
}

/// A table or an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TableReport {
    /// Its number.
    pub number: u16,
    /// Its name.
    pub name: String,
    /// Its kind: a table, an index, a unique index, or dropped.
    pub kind: &'static str,
    /// Its rows in the checkpoint.
    pub checkpoint_rows: u64,
    /// Changes to it in the WAL.
    pub wal_changes: u64,
}

/// A part of the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartReport {
    /// The file.
    pub file: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
    /// Number of rows in it.
    pub rows: u64,
    /// Number of key ranges that it covers.
    pub sections: u64,
    /// Number of blocks in it.
    pub blocks: u64,
}

/// A stream of the WAL, as far as it can be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StreamReport {
    /// The incarnation it belongs to.
    pub incarnation: Incarnation,
    /// The stream.
    pub stream: StreamId,
    /// Number of its segments.
    pub segments: u64,
    /// Bytes of headers and frames in them, without the room that is reserved for more.
    pub bytes: u64,
    /// Number of its frames.
    pub frames: u64,
    /// Bytes of records in them.
    pub record_bytes: u64,
    /// Number of records, one per transaction.
    pub records: u64,
    /// Number of changes to rows.
    pub changes: u64,
    /// The oldest epoch of a record.
    pub oldest: Option<Epoch>,
    /// The newest epoch of a record.
    pub newest: Option<Epoch>,
    /// The epoch up to which the stream is complete.
    pub sealed: Option<Epoch>,
    /// The end of what a crash, or a write under way, left half written.
    pub torn: Option<TornTail>,
}

/// A last frame that was not written in full, and does not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TornTail {
    /// The segment.
    pub file: PathBuf,
    /// The offset at which the sound part ends.
    pub offset: u64,
    /// Number of bytes that do not count.
    pub bytes: u64,
}

impl Report {
    /// Returns whether no problem was found.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Reads everything that the manifest of the database at `path` names, and reports it. Takes no lock and writes nothing.
///
/// Damage of anything but the manifest is not an error: it is among [`Report::problems`]. A problem is reported if it is
/// still there when everything is read again, so that a write under way is not taken for damage.
///
/// # Errors
/// [`DirectoryError`], if there is no database or its manifest cannot be read.
pub fn verify(fs: Arc<dyn FileSystem>, path: &Path) -> Result<Report, DirectoryError> {
    let mut before: Option<Report> = None;
    for _ in 0..ATTEMPTS {
        let report = verify_once(&fs, path)?;
        if report.is_sound() || before.is_some_and(|before| before.problems == report.problems) {
            return Ok(report);
        }
        before = Some(report);
    }
    verify_once(&fs, path)
}

/// Reads the manifest of a database that may be open elsewhere.
pub(crate) fn read_manifest(fs: &dyn FileSystem, path: &Path) -> Result<Manifest, DirectoryError> {
    read_manifest_of_version(fs, path).map(|(_, manifest)| manifest)
}

/// Reads the manifest of a database that may be open elsewhere, and of which version it is.
fn read_manifest_of_version(fs: &dyn FileSystem, path: &Path) -> Result<(u32, Manifest), DirectoryError> {
    directory::missing(fs, path)?;
    Manifest::read_of_version(fs, path)?.ok_or_else(|| DirectoryError::Missing { path: path.to_owned() })
}

fn kind(tree: &TreeDef) -> &'static str {
    match tree {
        TreeDef::Table(_) => "table",
        TreeDef::Index(IndexDef { unique: true, .. }) => "unique index",
        TreeDef::Index(_) => "index",
        TreeDef::Dropped => "dropped",
    }
}

fn verify_once(fs: &Arc<dyn FileSystem>, path: &Path) -> Result<Report, DirectoryError> {
    let (format_version, manifest) = read_manifest_of_version(&**fs, path)?;
    let tables = manifest.schema.trees.iter().enumerate().map(|(number, tree)| TableReport {
        number: number as u16,
        name: tree.name().to_owned(),
        kind: kind(tree),
        checkpoint_rows: 0,
        wal_changes: 0,
    });
    let mut report = Report {
        path: path.to_owned(),
        format_version,
        tables: tables.collect(),
        parts: Vec::new(),
        streams: Vec::new(),
        problems: Vec::new(),
        manifest: manifest.clone(),
    };
    if let Some(checkpoint) = &manifest.checkpoint {
        for part in &checkpoint.parts {
            report.read_part(fs, checkpoint.number, part);
        }
    }
    for (incarnation, stream) in named_streams(&manifest) {
        report.read_stream(fs, incarnation, stream);
    }
    Ok(report)
}

impl Report {
    fn read_part(&mut self, fs: &Arc<dyn FileSystem>, number: u32, record: &PartRecord) {
        let dir = checkpoint_dir(&self.path, number);
        let id = part_id(&self.manifest, number, record);
        let reader = match PartReader::open(Arc::clone(fs), &dir, id, record) {
            Ok(reader) => reader,
            Err(error) => return self.problems.push(error.to_string()),
        };
        self.parts.push(PartReport {
            file: reader.path().to_owned(),
            bytes: record.bytes,
            rows: record.rows,
            sections: reader.sections().len() as u64,
            blocks: reader.sections().iter().map(|section| section.blocks.len() as u64).sum(),
        });
        for section in reader.sections() {
            match self.tables.get_mut(usize::from(section.table)) {
                Some(table) => table.checkpoint_rows += section.rows,
                None => self.problems.push(format!(
                    "{} holds rows of table {}, which the manifest does not have; restore the database from a backup",
                    reader.path().display(),
                    section.table
                )),
            }
        }
        if let Err(error) = reader.check() {
            self.problems.push(error.to_string());
        }
    }

    fn read_stream(&mut self, fs: &Arc<dyn FileSystem>, incarnation: Incarnation, stream: StreamId) {
        let mut report = StreamReport {
            incarnation,
            stream,
            segments: 0,
            bytes: 0,
            frames: 0,
            record_bytes: 0,
            records: 0,
            changes: 0,
            oldest: None,
            newest: None,
            sealed: None,
            torn: None,
        };
        let tables = &mut self.tables;
        let read = read_frames(fs, &self.path, &self.manifest, (incarnation, stream), |frame| {
            let before = report.sealed;
            report.frames += 1;
            report.record_bytes += frame.payload.len() as u64;
            report.sealed = Some(frame.sealed);
            count_records(frame.payload, before, &mut report, tables)
        });
        match read {
            Ok(ends) => {
                report.segments = ends.segments.len() as u64;
                report.bytes = ends.segments.iter().map(|(_, bytes)| bytes).sum();
                report.sealed = ends.sealed;
                report.torn = ends.torn;
            }
            Err(error) => self.problems.push(error.to_string()),
        }
        self.streams.push(report);
    }
}

/// Counts the records of a frame, checking that they can be read, that they name tables that exist, and that none is of an
/// epoch that the stream had sealed before.
fn count_records(
    payload: &[u8],
    sealed: Option<Epoch>,
    stream: &mut StreamReport,
    tables: &mut [TableReport],
) -> Result<(), String> {
    for record in Records::new(payload) {
        let record = record.map_err(|error| error.to_string())?;
        if sealed.is_some_and(|sealed| record.epoch <= sealed) {
            return Err(format!("a record of epoch {} follows although that epoch was sealed", record.epoch));
        }
        stream.records += 1;
        stream.oldest = Some(stream.oldest.map_or(record.epoch, |oldest| oldest.min(record.epoch)));
        stream.newest = stream.newest.max(Some(record.epoch));
        let (_, changes) = record.split().map_err(|error| error.to_string())?;
        for change in Changes::new(changes) {
            let change = change.map_err(|error| error.to_string())?;
            let Some(table) = tables.get_mut(usize::from(change.table)) else {
                return Err(format!(
                    "a record changes table {}, which the manifest does not have",
                    change.table
                ));
            };
            stream.changes += 1;
            table.wal_changes += 1;
        }
    }
    Ok(())
}

/// The part that a manifest means. Names that are none were refused when the manifest was read.
pub(crate) fn part_id(manifest: &Manifest, checkpoint: u32, record: &PartRecord) -> PartId {
    let part = part_number(&record.name).unwrap_or_default();
    PartId { database: manifest.database, checkpoint, part }
}

/// The streams of all incarnations that a manifest names, oldest first.
pub(crate) fn named_streams(manifest: &Manifest) -> Vec<(Incarnation, StreamId)> {
    let past = manifest.past.iter().map(|past| (past.incarnation, past.streams));
    past.chain([(manifest.incarnation, manifest.streams)])
        .flat_map(|(incarnation, streams)| (0..streams).map(move |stream| (incarnation, StreamId(stream))))
        .collect()
}

/// Beginning and end of a stream, as found by reading it.
#[derive(Debug, Default)]
pub(crate) struct StreamExtent {
    /// Its segments, in order, and where the frames of each end.
    pub(crate) segments: Vec<(PathBuf, u64)>,
    /// The epoch up to which it is complete.
    pub(crate) sealed: Option<Epoch>,
    /// The part at its end that does not count.
    pub(crate) torn: Option<TornTail>,
}

/// Reads all frames of a stream, verifying them, and that the stream begins and ends where the manifest says.
///
/// `each` may find fault with a frame, which then is damage.
pub(crate) fn read_frames(
    fs: &Arc<dyn FileSystem>,
    dir: &Path,
    manifest: &Manifest,
    (incarnation, stream): (Incarnation, StreamId),
    mut each: impl FnMut(&Frame<'_>) -> Result<(), String>,
) -> Result<StreamExtent, WalError> {
    let mut reader = StreamReader::open(Arc::clone(fs), dir, manifest.database, incarnation, stream)?;
    let path = |segment| segment_path(dir, incarnation, stream, segment);
    let start = reader.position();
    check_beginning(manifest, reader.first_sealed(), &path(start.segment))?;
    // A segment without frames ends where its header does, as the first one seems to before the first frame is read.
    let mut ends = vec![start];
    while let Some(frame) = reader.next_frame()? {
        each(&frame).map_err(|what| WalError::Damaged {
            file: path(frame.segment),
            offset: frame.offset,
            what,
        })?;
        note_end(&mut ends, reader.position(), start.length);
    }
    let end = reader.position();
    note_end(&mut ends, end, start.length);
    if end.segment > 0 {
        // A segment that is not needed any more loses its name before it is overwritten: as long as the last one has its name,
        // its frames end where they seemed to. That an earlier one was overwritten does not look like an end.
        let last = path(end.segment);
        fs.open(&last, false).map_err(WalError::io(&last, "open"))?;
    }
    let torn = reader.torn().map(|torn| TornTail {
        file: torn.path.clone(),
        offset: torn.offset,
        bytes: torn.bytes,
    });
    if incarnation == manifest.incarnation
        && let Some(expected) = manifest.closed.as_ref().and_then(|ends| ends.get(usize::from(stream.0)))
        && (end != *expected || torn.is_some())
    {
        let what = format!(
            "the stream ends with frame {} at byte {} of segment {}, and was closed with frame {} at byte {} of segment {}",
            end.frame, end.length, end.segment, expected.frame, expected.length, expected.segment
        );
        return Err(WalError::Damaged { file: path(end.segment.max(1)), offset: end.length, what });
    }
    let segments =
        ends.iter().filter(|end| end.segment > 0).map(|end| (path(end.segment), end.length)).collect();
    Ok(StreamExtent { segments, sealed: reader.sealed(), torn })
}

/// Enters how far a stream was read.
fn note_end(ends: &mut Vec<StreamEnd>, position: StreamEnd, header: u64) {
    // Segments passed over since have no frames.
    while let Some(last) = ends.last()
        && last.segment + 1 < position.segment
    {
        ends.push(StreamEnd { segment: last.segment + 1, length: header, frame: position.frame });
    }
    match ends.last_mut() {
        Some(last) if last.segment == position.segment => *last = position,
        _ => ends.push(position),
    }
}

/// Checks that the stream still has everything that the checkpoint has not.
fn check_beginning(manifest: &Manifest, removed: Option<Epoch>, file: &Path) -> Result<(), WalError> {
    let needed = manifest.checkpoint.as_ref().map_or(Epoch(0), |checkpoint| checkpoint.replay_from);
    match removed {
        Some(removed) if removed >= needed => {
            let what = format!(
                "the stream begins after epoch {removed}, but records of epoch {needed} and newer ones are needed"
            );
            Err(WalError::Damaged { file: file.to_owned(), offset: 0, what })
        }
        _ => Ok(()),
    }
}
