//! The files of the operating system.

use std::io::ErrorKind;
use std::sync::Arc;

use atrapos_durability::file::{FileSystem, RealFiles};
use atrapos_durability::wal::{
    Epoch, StreamWriter, list_streams, remove_leftovers, remove_stream, scan, settle,
};

use super::{DATABASE, FRAMES, INCARNATION, OPTIONS, STREAM, payload};

#[test]
fn a_stream_is_written_and_read() {
    let fs = RealFiles::new();
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    let fs: Arc<dyn FileSystem> = Arc::new(fs);
    let mut writer =
        StreamWriter::create(Arc::clone(&fs), dir, DATABASE, INCARNATION, STREAM, OPTIONS).unwrap();
    for number in 1..=FRAMES {
        writer.seal(Epoch(number), &[&payload(number)]).unwrap();
    }
    let end = writer.position();
    let bytes = writer.bytes_written();
    drop(writer);
    let summary = scan(Arc::clone(&fs), dir, DATABASE, INCARNATION, STREAM, Some(end)).unwrap();
    assert_eq!((summary.frames, summary.records, summary.bytes), (FRAMES, FRAMES, bytes));
    settle(&*fs, dir, &summary).unwrap();
    assert_eq!(scan(Arc::clone(&fs), dir, DATABASE, INCARNATION, STREAM, Some(end)).unwrap(), summary);
    let again = StreamWriter::create(Arc::clone(&fs), dir, DATABASE, INCARNATION, STREAM, OPTIONS);
    assert!(again.unwrap_err().to_string().contains("never taken up again"));

    let streams = list_streams(&*fs, dir).unwrap();
    assert_eq!(streams.len(), 1);
    assert_eq!(streams[0].segments.len(), summary.segments.len());
    let reserved: u64 = streams[0].segments.iter().map(|segment| segment.bytes).sum();
    remove_leftovers(&*fs, dir).unwrap();
    assert_eq!(remove_stream(&*fs, dir, INCARNATION, STREAM).unwrap(), reserved);
    assert!(fs.list(&dir.join("wal")).unwrap().is_empty());
}

#[test]
fn written_and_synced_bytes_of_any_length_are_there() {
    let fs = RealFiles::new();
    let temp = tempfile::tempdir().unwrap();
    let mut file = fs.create(&temp.path().join("file")).unwrap();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|byte| byte as u8).collect();
    let mut at = 0;
    for len in [0, 1, 4096, 4097, bytes.len()] {
        file.write_and_sync(at, &[&bytes[..len / 3], &[], &bytes[len / 3..len]]).unwrap();
        let mut found = vec![0; len];
        assert_eq!(file.read_at(at, &mut found).unwrap(), len);
        assert!(found == bytes[..len]);
        at += len as u64;
    }
    assert_eq!(file.len().unwrap(), at);
    let mut reader = fs.open(file.path(), false).unwrap();
    assert!(reader.write_and_sync(0, &[b"x"]).is_err(), "it was opened for reading");
}

#[test]
fn what_is_not_cached_any_more_can_be_read() {
    let fs = RealFiles::new();
    let temp = tempfile::tempdir().unwrap();
    let mut file = fs.create(&temp.path().join("file")).unwrap();
    file.write_and_sync(0, &[&[7; 10_000]]).unwrap();
    file.drop_cached(10_000);
    file.drop_cached(0);
    // Bytes of the last page that was dropped only in part.
    file.write_and_sync(9_000, &[&[8; 100]]).unwrap();
    let mut found = vec![0; 10_000];
    assert_eq!(file.read_at(0, &mut found).unwrap(), 10_000);
    assert!(
        found.iter().enumerate().all(|(at, byte)| *byte == if (9_000..9_100).contains(&at) { 8 } else { 7 })
    );
}

#[test]
fn one_process_at_a_time_has_the_directory() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("LOCK");
    let fs = RealFiles::new();
    let lock = fs.lock(&path).unwrap();
    let refused = fs.lock(&path).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WouldBlock);
    assert!(refused.to_string().contains(&std::process::id().to_string()), "{refused}");
    drop(lock);
    assert_eq!(fs.lock(&path).unwrap().path(), path);
}
