//! WAL streams through their public interface: crashes, failures, arbitrary bytes, the pinned format, real files.

mod codec;
mod crash;
mod fixture;
mod frames;
mod model;
mod random;
mod real;
mod spares;

use std::path::Path;
use std::sync::Arc;

use atrapos_durability::file::{FileSystem, ModelFiles};
use atrapos_durability::wal::{
    Epoch, Incarnation, StreamId, StreamOptions, StreamReader, StreamWriter, WalError, push_put, push_record,
};

pub(crate) const DIR: &str = "db";
pub(crate) const DATABASE: u128 = 0x0123_4567_89ab_cdef_0011_2233_4455_6677;
pub(crate) const INCARNATION: Incarnation = Incarnation(5);
pub(crate) const STREAM: StreamId = StreamId(2);
/// Segments small enough that a few frames fill one, and one of the frames below does not fit at all.
pub(crate) const OPTIONS: StreamOptions = StreamOptions::of_segments(2048);
pub(crate) const FRAMES: u64 = 9;

/// The payload of a frame: one record.
pub(crate) fn payload(number: u64) -> Vec<u8> {
    let row_bytes = if number == 6 { 3000 } else { 300 + number * 31 };
    let row: Vec<u8> = (0..row_bytes).map(|byte| (byte ^ (number * 7)) as u8).collect();
    let (mut changes, mut record) = (Vec::new(), Vec::new());
    push_put(&mut changes, 1, &number.to_be_bytes(), number, &row);
    push_record(&mut record, Epoch(number + 1), &changes);
    record
}

/// A file system with a durable database directory.
pub(crate) fn database() -> ModelFiles {
    let fs = ModelFiles::new();
    fs.create_dir(Path::new(DIR)).unwrap();
    fs.sync_dir(Path::new("")).unwrap();
    fs
}

pub(crate) fn create(fs: &Arc<dyn FileSystem>) -> Result<StreamWriter, WalError> {
    create_with(fs, OPTIONS)
}

pub(crate) fn create_with(
    fs: &Arc<dyn FileSystem>,
    options: StreamOptions,
) -> Result<StreamWriter, WalError> {
    StreamWriter::create(Arc::clone(fs), Path::new(DIR), DATABASE, INCARNATION, STREAM, options)
}

/// Writes frames until one fails. Returns how many were reported written.
pub(crate) fn write_all(fs: &Arc<dyn FileSystem>) -> (u64, Option<StreamWriter>, Option<WalError>) {
    let mut writer = match create(fs) {
        Ok(writer) => writer,
        Err(error) => return (0, None, Some(error)),
    };
    for number in 1..=FRAMES {
        if let Err(error) = writer.seal(Epoch(number), &[&payload(number)]) {
            return (number - 1, Some(writer), Some(error));
        }
    }
    (FRAMES, Some(writer), None)
}

/// Reads a stream; every frame must be the one that was written.
pub(crate) fn read_all(fs: &ModelFiles) -> Result<u64, WalError> {
    let fs: Arc<dyn FileSystem> = Arc::new(fs.clone());
    let mut reader = StreamReader::open(fs, Path::new(DIR), DATABASE, INCARNATION, STREAM)?;
    let mut frames = 0;
    while let Some(frame) = reader.next_frame()? {
        frames += 1;
        assert_eq!((frame.number, frame.sealed), (frames, Epoch(frames)));
        assert_eq!(frame.payload, payload(frames));
    }
    Ok(frames)
}
