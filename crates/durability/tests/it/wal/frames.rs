//! Epochs that take several frames: whole or unsealed after any crash, in one segment, and read back in order.

use std::path::Path;
use std::sync::Arc;

use atrapos_durability::file::{FileSystem, ModelFiles};
use atrapos_durability::wal::{
    Epoch, Records, StreamOptions, StreamReader, StreamSummary, StreamWriter, WalError, push_put,
    push_record, scan, settle,
};

use super::{DATABASE, DIR, INCARNATION, STREAM, database};

const FRAME_BYTES: usize = 500;
const EPOCHS: u64 = 8;

/// Shape of an epoch: the number of records of each worker of the stream, and the length of their rows. From nothing to
/// more than a segment takes, one of them with a record longer than a frame is to be.
fn shape(epoch: u64) -> ([usize; 3], usize) {
    match epoch {
        1 => ([1, 0, 2], 40),
        3 => ([0, 0, 0], 0),
        5 => ([9, 1, 30], 90),
        6 => ([1, 1, 0], 900),
        _ => ([3, 4, 0], 120),
    }
}

/// The records of one worker in an epoch; each row has a number of its own.
fn payload(epoch: u64, worker: usize) -> Vec<u8> {
    let (records, row_bytes) = shape(epoch);
    let mut payload = Vec::new();
    for record in 0..records[worker] {
        let number = epoch * 1000 + worker as u64 * 100 + record as u64;
        let row: Vec<u8> = (0..row_bytes).map(|byte| (byte as u64 ^ number) as u8).collect();
        let mut changes = Vec::new();
        push_put(&mut changes, 1, &number.to_be_bytes(), number, &row);
        push_record(&mut payload, Epoch(epoch), &changes);
    }
    payload
}

fn payloads(epoch: u64) -> Vec<Vec<u8>> {
    (0..3).map(|worker| payload(epoch, worker)).collect()
}

fn shared(fs: &ModelFiles) -> Arc<dyn FileSystem> {
    Arc::new(fs.clone())
}

/// Seals epochs until one fails. Returns how many were reported written.
fn seal_all(fs: &ModelFiles) -> (u64, Option<StreamWriter>) {
    let options = StreamOptions { frame_bytes: FRAME_BYTES, ..StreamOptions::of_segments(2048) };
    let writer = StreamWriter::create(shared(fs), Path::new(DIR), DATABASE, INCARNATION, STREAM, options);
    let Ok(mut writer) = writer else { return (0, None) };
    for epoch in 1..=EPOCHS {
        let payloads = payloads(epoch);
        let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
        if writer.seal(Epoch(epoch), &payloads).is_err() {
            return (epoch - 1, Some(writer));
        }
    }
    (EPOCHS, Some(writer))
}

/// Reads a stream back. What was sealed has to be there whole and in order; of the next epoch, whole records.
fn read_back(fs: &ModelFiles) -> Result<(StreamSummary, u64), WalError> {
    let dir = Path::new(DIR);
    let mut reader = StreamReader::open(shared(fs), dir, DATABASE, INCARNATION, STREAM)?;
    let mut found: Vec<Vec<u8>> = vec![Vec::new(); EPOCHS as usize + 2];
    let mut segment_of_epoch = vec![None; EPOCHS as usize + 2];
    let mut sealed = 0;
    while let Some(frame) = reader.next_frame()? {
        let epoch = sealed as usize + 1;
        assert!(frame.payload.len() <= FRAME_BYTES || Records::new(frame.payload).count() == 1);
        assert!(frame.sealed == Epoch(sealed) || frame.sealed == Epoch(sealed + 1));
        assert_eq!(*segment_of_epoch[epoch].get_or_insert(frame.segment), frame.segment);
        found[epoch].extend_from_slice(frame.payload);
        sealed = frame.sealed.0;
    }
    for epoch in 1..=sealed {
        assert!(found[epoch as usize] == payloads(epoch).concat(), "epoch {epoch} is not what was sealed");
    }
    let next = payloads(sealed + 1).concat();
    assert!(next.starts_with(&found[sealed as usize + 1]), "what follows epoch {sealed} was not written");
    let summary = scan(shared(fs), dir, DATABASE, INCARNATION, STREAM, None)?;
    assert_eq!(summary.sealed.unwrap_or_default(), Epoch(sealed));
    Ok((summary, sealed))
}

#[test]
fn an_epoch_may_take_several_frames() {
    let fs = database();
    let (sealed, writer) = seal_all(&fs);
    assert_eq!(sealed, EPOCHS);
    let writer = writer.unwrap();
    assert!(writer.frames_written() > EPOCHS + 10);
    let (summary, sealed) = read_back(&fs.power_cut(1)).unwrap();
    assert_eq!((sealed, summary.frames), (EPOCHS, writer.frames_written()));
    assert_eq!(summary.end, writer.position());
    assert!(summary.segments.len() > 2);
}

#[test]
fn a_crash_at_any_call_leaves_each_epoch_whole_or_unsealed() {
    let calls = {
        let fs = database();
        let before = fs.calls();
        seal_all(&fs);
        fs.calls() - before
    };
    let mut in_between = 0;
    for call in 1..=calls {
        let fs = database();
        fs.crash_at(call);
        let (reported, _) = seal_all(&fs);
        for after in [fs.kill(), fs.power_cut(call), fs.power_cut(call + 1)] {
            if after.list(Path::new(DIR)).is_err() {
                continue;
            }
            let (summary, sealed) = read_back(&after).unwrap_or_else(|error| panic!("call {call}: {error}"));
            assert!(
                sealed == reported || sealed == reported + 1,
                "call {call}: {reported} reported, {sealed}"
            );
            in_between += u64::from(summary.newest_epoch > summary.sealed);
            settle(&after, Path::new(DIR), &summary).unwrap();
            assert_eq!(read_back(&after.power_cut(7)).unwrap().1, sealed, "what was settled is gone");
        }
    }
    assert!(in_between > 20, "only {in_between} crashes came between two frames of an epoch");
}

#[test]
fn segments_go_only_with_all_frames_of_their_epochs() {
    let fs = database();
    let (_, writer) = seal_all(&fs);
    let mut writer = writer.unwrap();
    for epoch in 1..=EPOCHS {
        writer.remove_before(Epoch(epoch)).unwrap();
        let mut reader =
            StreamReader::open(shared(&fs), Path::new(DIR), DATABASE, INCARNATION, STREAM).unwrap();
        assert!(reader.first_sealed().unwrap_or_default() < Epoch(epoch));
        let mut found = Vec::new();
        while let Some(frame) = reader.next_frame().unwrap() {
            for record in Records::new(frame.payload).map(Result::unwrap) {
                if record.epoch >= Epoch(epoch) {
                    push_record(&mut found, record.epoch, record.split().unwrap().1);
                }
            }
        }
        let expected: Vec<u8> = (epoch..=EPOCHS).flat_map(|epoch| payloads(epoch).concat()).collect();
        assert!(found == expected, "something of epoch {epoch} or later is gone");
    }
}
