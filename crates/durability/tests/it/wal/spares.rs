//! Spares: files that are filled ahead, and segments that become spares and segments again.

use std::path::Path;
use std::sync::Arc;

use atrapos_durability::file::{Fault, FaultKind, FileSystem, ModelFiles, RealFiles, Times};
use atrapos_durability::wal::{Epoch, StreamOptions, StreamWriter, WalError, list_streams, remove_leftovers};
use atrapos_durability::wal::{StreamReader, scan, settle};

use super::crash::{ForgetsToSync, Forgotten};
use super::{DATABASE, DIR, INCARNATION, STREAM, create_with, database, payload};

/// A segment takes two to five frames.
const SEGMENT_BYTES: u64 = 2048;
const FRAMES: u64 = 24;
/// Frames after which what was sealed is not needed any more.
const NEEDED: u64 = 5;

const KEEPING: StreamOptions =
    StreamOptions { kept_bytes: 3 * SEGMENT_BYTES, ..StreamOptions::of_segments(SEGMENT_BYTES) };
const FILLED: StreamOptions = StreamOptions { filled_bytes: 2 * SEGMENT_BYTES, ..KEEPING };

/// Writes frames, and lets go of old ones, until a call fails. Returns the number of frames reported written.
fn write_all(fs: &Arc<dyn FileSystem>, options: StreamOptions) -> (u64, Option<StreamWriter>) {
    let Ok(mut writer) = create_with(fs, options) else { return (0, None) };
    for number in 1..=FRAMES {
        if writer.seal(Epoch(number), &[&payload(number)]).is_err() {
            return (number - 1, Some(writer));
        }
        if writer.remove_before(Epoch(number.saturating_sub(NEEDED))).is_err() {
            return (number, Some(writer));
        }
    }
    (FRAMES, Some(writer))
}

/// Reads the stream: each frame has to be the one that was written. Returns the first and the last one.
fn read_all(fs: &ModelFiles) -> Result<(u64, u64), WalError> {
    let fs: Arc<dyn FileSystem> = Arc::new(fs.clone());
    let mut reader = StreamReader::open(fs, Path::new(DIR), DATABASE, INCARNATION, STREAM)?;
    let first = reader.first_frame();
    let mut next = first;
    while let Some(frame) = reader.next_frame()? {
        assert_eq!((frame.number, frame.sealed), (next, Epoch(next)));
        assert_eq!(frame.payload, payload(next));
        next += 1;
    }
    Ok((first, next - 1))
}

fn check_after_crash(fs: &ModelFiles, reported: u64, what: &str) {
    let (first, last) = read_all(fs).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!((reported..=reported + 1).contains(&last), "{what}: {reported} reported, {last} found");
    assert!(first <= reported.saturating_sub(NEEDED).max(1), "{what}: frames before {first} are gone");
    let dir = Path::new(DIR);
    if fs.list(dir).is_err() {
        return;
    }
    let summary = scan(Arc::new(fs.clone()), dir, DATABASE, INCARNATION, STREAM, None).unwrap();
    settle(fs, dir, &summary).unwrap();
    remove_leftovers(fs, dir).unwrap();
    assert_eq!(read_all(&fs.power_cut(1)).unwrap(), (first, last), "{what}: what was settled is gone");
}

#[test]
fn files_are_used_again_and_no_more_than_needed() {
    for options in [KEEPING, FILLED] {
        let fs = database();
        let (reported, writer) = write_all(&(Arc::new(fs.clone()) as Arc<dyn FileSystem>), options);
        let mut writer = writer.unwrap();
        assert_eq!(reported, FRAMES);
        assert_eq!(read_all(&fs).unwrap().1, FRAMES);
        assert!(writer.position().segment > 9, "many segments, in few files");
        writer.remove_before(Epoch(FRAMES)).unwrap();
        let files = fs.list(&Path::new(DIR).join("wal")).unwrap();
        let most = writer.segments().len() as u64 + options.kept_bytes / SEGMENT_BYTES;
        assert!(files.len() as u64 <= most, "{files:?}");
        assert!(files.iter().any(|name| name.ends_with(".new")), "a spare: {files:?}");
        // Nothing but the frames is told from what the files had in them before, and the mark of a clean close suffices.
        let dir = Path::new(DIR);
        let end = Some(writer.position());
        let summary = scan(Arc::new(fs.clone()), dir, DATABASE, INCARNATION, STREAM, end).unwrap();
        assert_eq!(summary.torn, None);
        assert_eq!(list_streams(&fs, dir).unwrap()[0].segments.len(), writer.segments().len());
    }
}

#[test]
fn a_crash_at_any_call_loses_nothing_reported() {
    for options in [KEEPING, FILLED] {
        let fs = database();
        let before = fs.calls();
        write_all(&(Arc::new(fs.clone()) as Arc<dyn FileSystem>), options);
        for call in 1..=fs.calls() - before {
            let fs = database();
            fs.crash_at(call);
            let (reported, _) = write_all(&(Arc::new(fs.clone()) as Arc<dyn FileSystem>), options);
            check_after_crash(&fs.kill(), reported, &format!("killed at call {call}"));
            for seed in 0..6 {
                let what = format!("power cut at call {call}, seed {seed}");
                check_after_crash(&fs.power_cut(seed), reported, &what);
            }
        }
    }
}

#[test]
fn a_failure_of_any_call_loses_nothing_reported() {
    let fs = database();
    let before = fs.calls();
    write_all(&(Arc::new(fs.clone()) as Arc<dyn FileSystem>), FILLED);
    let calls = fs.calls() - before;
    for kind in [FaultKind::Eio, FaultKind::NoSpace, FaultKind::ShortWrite, FaultKind::SyncFails] {
        for at in 1..=calls {
            let fs = database();
            fs.set_fault(Fault { at, calls: None, kind, times: Times::Once });
            let shared: Arc<dyn FileSystem> = Arc::new(fs.clone());
            let (reported, writer) = write_all(&shared, FILLED);
            fs.clear_fault();
            let mut reported = reported;
            // What failed may have been the removal of a segment, which is tried again.
            if let Some(mut writer) = writer.filter(|writer| writer.failure().is_none()) {
                for number in reported + 1..=FRAMES {
                    writer.remove_before(Epoch(number.saturating_sub(NEEDED))).unwrap();
                    writer.seal(Epoch(number), &[&payload(number)]).unwrap();
                }
                reported = FRAMES;
            }
            let what = format!("{kind:?} at call {at}");
            check_after_crash(&fs.kill(), reported, &what);
            for seed in 0..4 {
                check_after_crash(&fs.power_cut(seed), reported, &format!("{what}, power cut {seed}"));
            }
        }
    }
}

#[test]
fn a_segment_overwritten_before_the_loss_of_its_name_is_durable_is_caught() {
    let fs = database();
    let (reported, _) = write_all(&ForgetsToSync::on(&fs, Forgotten::SpareNames), KEEPING);
    assert_eq!(reported, FRAMES);
    assert_eq!(read_all(&fs.kill()).unwrap().1, FRAMES, "only a power cut can show it");
    let mut damaged = 0;
    for call in 1..fs.calls() {
        let fs = database();
        fs.crash_at(call);
        let (reported, _) = write_all(&ForgetsToSync::on(&fs, Forgotten::SpareNames), KEEPING);
        for seed in 0..6 {
            let found = read_all(&fs.power_cut(seed));
            damaged += u64::from(!found.is_ok_and(|(_, last)| last >= reported));
        }
    }
    assert!(damaged > 0, "no power cut shows that names were not synced");
}

#[test]
fn spares_of_the_operating_system() {
    let fs: Arc<dyn FileSystem> = Arc::new(RealFiles::new());
    let temp = tempfile::tempdir().unwrap();
    let options = StreamOptions {
        filled_bytes: 3 << 20,
        kept_bytes: 3 << 20,
        ..StreamOptions::of_segments((1 << 20) + 100)
    };
    let dir = temp.path();
    let mut writer =
        StreamWriter::create(Arc::clone(&fs), dir, DATABASE, INCARNATION, STREAM, options).unwrap();
    for number in 1..=2000 {
        let records: Vec<u8> = (0..20).flat_map(|_| payload(number % 32 + number / 32 * 32)).collect();
        writer.seal(Epoch(number), &[&records]).unwrap();
        writer.remove_before(Epoch(number.saturating_sub(100))).unwrap();
        writer.drop_cached();
    }
    assert!(writer.position().segment > 6, "{:?}", writer.position());
    let end = Some(writer.position());
    let summary = scan(Arc::clone(&fs), dir, DATABASE, INCARNATION, STREAM, end).unwrap();
    assert_eq!(summary.end.frame, 2000);
    remove_leftovers(&*fs, dir).unwrap();
    assert_eq!(fs.list(&dir.join("wal")).unwrap().len(), writer.segments().len());
}
