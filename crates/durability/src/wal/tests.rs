//! Every bit flip and every truncation of one segment.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::{Epoch, Incarnation, StreamId, StreamOptions, StreamReader, StreamWriter, WalError};
use super::{push_put, push_record, scan, segment_path};
use crate::file::{DirectoryLock, File, FileSystem, ModelFiles};

const SEGMENT_BYTES: usize = 64 << 10;
const DATABASE: u128 = 77;
const DIR: &str = "db";

/// One segment whose bytes the test changes in place: copying 64 KiB half a million times would be the whole time of it.
#[derive(Clone, Debug)]
struct OneSegment {
    path: PathBuf,
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl FileSystem for OneSegment {
    fn create(&self, _: &Path) -> io::Result<Box<dyn File>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn open(&self, path: &Path, write: bool) -> io::Result<Box<dyn File>> {
        assert!(path == self.path && !write, "only the segment is read");
        Ok(Box::new(self.clone()))
    }
    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn remove(&self, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn create_dir(&self, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn remove_dir(&self, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn list(&self, _: &Path) -> io::Result<Vec<String>> {
        Ok(self.path.file_name().and_then(|name| name.to_str()).map(str::to_owned).into_iter().collect())
    }
    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn lock(&self, _: &Path) -> io::Result<Box<dyn DirectoryLock>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl File for OneSegment {
    fn path(&self) -> &PathBuf {
        &self.path
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().unwrap().len() as u64)
    }
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        let bytes = self.bytes.lock().unwrap();
        let rest = &bytes[bytes.len().min(usize::try_from(offset).unwrap())..];
        let count = rest.len().min(out.len());
        out[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
    fn write_at(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn sync(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn reserve(&mut self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn truncate(&mut self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The room of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    New,
    Reused,
}

/// Beginning of a frame, its number, and the epoch sealed before it.
type Start = (u64, u64, Epoch);

/// End of the last frame, and the epoch that it sealed.
type End = (u64, Epoch);

/// A segment full of frames of all sizes, and where they begin: the first of a stream with as many as it takes, or the third,
/// half full, in the file of the first.
fn full_segment(room: Room) -> (OneSegment, Vec<Start>, End) {
    let fs = Arc::new(ModelFiles::new());
    let dir = Path::new(DIR);
    fs.create_dir(dir).unwrap();
    let options = StreamOptions {
        segment_bytes: SEGMENT_BYTES as u64,
        frame_bytes: 1000,
        filled_bytes: 0,
        kept_bytes: SEGMENT_BYTES as u64,
    };
    let mut writer =
        StreamWriter::create(fs.clone(), dir, DATABASE, Incarnation(3), StreamId(1), options).unwrap();
    let (last, most) = if room == Room::New { (1, SEGMENT_BYTES) } else { (3, SEGMENT_BYTES / 2) };
    for number in 1_u64.. {
        writer.remove_before(Epoch(number)).unwrap();
        // Now and then more than one frame takes.
        let mut records = Vec::new();
        for part in 0..if number % 5 == 0 { 3 } else { 1 } {
            let row: Vec<u8> = (0..(number + part) * 37 % 900).map(|byte| (byte * number) as u8).collect();
            let mut changes = Vec::new();
            push_put(&mut changes, 2, &number.to_be_bytes(), number, &row);
            push_record(&mut records, Epoch(number + 1), &changes);
        }
        let position = writer.position();
        if position.segment == last && position.length + records.len() as u64 + 3 * 64 > most as u64 {
            break;
        }
        writer.seal(Epoch(number), &[&records]).unwrap();
    }
    let end = writer.position();
    let path = segment_path(dir, Incarnation(3), StreamId(1), last);
    let mut bytes = vec![0; SEGMENT_BYTES];
    assert_eq!(fs.open(&path, false).unwrap().read_at(0, &mut bytes).unwrap(), SEGMENT_BYTES);
    let segment = OneSegment { path, bytes: Arc::new(Mutex::new(bytes)) };
    let mut reader = open(&segment).unwrap();
    let mut starts = Vec::new();
    loop {
        let (position, sealed) = (reader.position(), reader.sealed().unwrap_or_default());
        if reader.next_frame().unwrap().is_none() {
            break;
        }
        starts.push((position.length, position.frame + 1, sealed));
    }
    assert_eq!(starts.last().map(|start| start.1), Some(end.frame));
    assert!(starts.len() > 40, "a segment of {} frames is too easy", starts.len());
    let sealed = reader.sealed().unwrap_or_default();
    assert!(end.frame > sealed.0 + 10, "some epochs take several frames");
    let bytes = segment.bytes.lock().unwrap();
    let rest = &bytes[end.length.next_multiple_of(4096) as usize..];
    assert_eq!(rest.iter().any(|byte| *byte != 0), room == Room::Reused);
    drop(bytes);
    (segment, starts, (end.length, sealed))
}

fn open(segment: &OneSegment) -> Result<StreamReader, WalError> {
    StreamReader::open(Arc::new(segment.clone()), Path::new(DIR), DATABASE, Incarnation(3), StreamId(1))
}

fn assert_names_the_place(error: &WalError, segment: &OneSegment, offset: Option<u64>) {
    let WalError::Damaged { file, offset: named, .. } = error else {
        panic!("damage is not called so: {error}");
    };
    assert_eq!(file, &segment.path);
    if let Some(offset) = offset {
        assert_eq!(*named, offset, "{error}");
    }
}

#[test]
fn every_bit_flip_is_damage_or_ends_the_stream_before_the_last_frame() {
    flip_every_bit(Room::New);
}

#[test]
fn every_bit_flip_is_found_in_a_file_that_is_used_again() {
    flip_every_bit(Room::Reused);
}

fn flip_every_bit(room: Room) {
    let (segment, starts, (end, sealed_last)) = full_segment(room);
    let mut reader = open(&segment).unwrap();
    for bit in 0..SEGMENT_BYTES * 8 {
        let (byte, mask) = (bit / 8, 1 << (bit % 8));
        segment.bytes.lock().unwrap()[byte] ^= mask;
        let at = byte as u64;
        // Frames before the one that is hit are read as they were: nothing of theirs has changed.
        match starts.partition_point(|start| start.0 <= at) {
            0 => assert_names_the_place(&open(&segment).unwrap_err(), &segment, None),
            frame if at < end => {
                let (offset, number, sealed) = starts[frame - 1];
                reader.restart_at(offset, number, sealed);
                match reader.next_frame() {
                    Err(error) => assert_names_the_place(&error, &segment, Some(offset)),
                    Ok(None) => {
                        assert_eq!(
                            frame,
                            starts.len(),
                            "frame {number} and those after it are gone (bit {bit})"
                        );
                        assert_torn_at(&reader, room, offset);
                    }
                    Ok(Some(_)) => panic!("bit {bit} of frame {number} was not missed"),
                }
            }
            _ => {
                // Room that was never used: all frames are there, and the rest is passed over.
                reader.restart_at(end, starts.last().unwrap().1 + 1, sealed_last);
                assert!(reader.next_frame().unwrap().is_none());
                assert_torn_at(&reader, room, end);
            }
        }
        segment.bytes.lock().unwrap()[byte] ^= mask;
    }
}

/// Checks where the torn tail begins. What a file had in it before need not be told from one.
fn assert_torn_at(reader: &StreamReader, room: Room, offset: u64) {
    match (reader.torn(), room) {
        (None, Room::Reused) => {}
        (torn, _) => assert_eq!(torn.unwrap().offset, offset),
    }
}

#[test]
fn every_truncation_is_damage() {
    let (segment, ..) = full_segment(Room::New);
    for len in (0..SEGMENT_BYTES).rev() {
        segment.bytes.lock().unwrap().truncate(len);
        assert_names_the_place(&open(&segment).unwrap_err(), &segment, Some(len as u64));
    }
}

#[test]
fn a_frame_is_valid_only_where_it_was_written() {
    let (segment, starts, (end, _)) = full_segment(Room::New);
    // The second frame over the first, as far as it reaches.
    let (first, second, third) = (starts[0].0 as usize, starts[1].0 as usize, starts[2].0 as usize);
    let original = segment.bytes.lock().unwrap().clone();
    segment.bytes.lock().unwrap().copy_within(second..third, first);
    assert_names_the_place(&open(&segment).unwrap().next_frame().unwrap_err(), &segment, Some(first as u64));

    // The whole segment under the name of another stream.
    *segment.bytes.lock().unwrap() = original.clone();
    let path = segment_path(Path::new(DIR), Incarnation(3), StreamId(2), 1);
    let other = OneSegment { path, ..segment.clone() };
    let opened =
        StreamReader::open(Arc::new(other.clone()), Path::new(DIR), DATABASE, Incarnation(3), StreamId(2));
    assert_names_the_place(&opened.unwrap_err(), &other, None);
    let opened =
        StreamReader::open(Arc::new(segment.clone()), Path::new(DIR), 78, Incarnation(3), StreamId(1));
    assert!(matches!(opened.unwrap_err(), WalError::Foreign { found: DATABASE, expected: 78, .. }));

    // With a mark of a clean close, not even the last frame may be missing.
    let last = starts.last().unwrap().0 as usize;
    let fs = Arc::new(segment.clone());
    let scanned =
        |expected| scan(fs.clone(), Path::new(DIR), DATABASE, Incarnation(3), StreamId(1), expected);
    let mark = scanned(None).unwrap().end;
    assert_eq!(mark.length, end);
    assert_eq!(scanned(Some(mark)).unwrap().torn, None);
    segment.bytes.lock().unwrap()[last..].fill(0);
    assert_eq!(scanned(None).unwrap().frames, mark.frame - 1);
    assert_names_the_place(&scanned(Some(mark)).unwrap_err(), &segment, Some(last as u64));
}
