//! The pinned formats: bytes that every later version must still read, and those of the newest, which this one still writes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use atrapos_durability::file::{FileSystem, ModelFiles, RealFiles};
use atrapos_durability::wal::{
    Changes, Epoch, GlobalId, Incarnation, Note, Op, Records, StreamId, StreamOptions, StreamReader,
    StreamWriter, list_streams, push_put, push_record, push_remove, push_update,
};

const DATABASE: u128 = 0x00ff_1122_3344_5566_7788_99aa_bbcc_ddee;
const OPTIONS: StreamOptions = StreamOptions { kept_bytes: 512, ..StreamOptions::of_segments(512) };

fn fixture(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/wal-v{version}"))
}

/// A row that is too long for an update of version 1.
fn long_row() -> Vec<u8> {
    (0..70_000_u32).map(|at| (at * 7) as u8).collect()
}

/// The stream of the fixture: a put, an update, a removal, an update of a long row; two records in a frame, a frame without any;
/// two segments, of which the first is removed, and two more, one of them in the file that was the first; notes.
fn write(fs: &Arc<dyn FileSystem>, dir: &Path) {
    let mut writer =
        StreamWriter::create(Arc::clone(fs), dir, DATABASE, Incarnation(1), StreamId(0), OPTIONS).unwrap();
    let old: Vec<u8> = (0..100).collect();
    let mut new = old.clone();
    new[40..44].copy_from_slice(b"four");
    new[99] = 0;
    let (mut changes, mut payload) = (Vec::new(), Vec::new());
    push_put(&mut changes, 3, b"first", 10, &old);
    push_put(&mut changes, 4, &[b'k'; 130], 11, b"");
    push_record(&mut payload, Epoch(5), &changes);
    writer.seal(Epoch(4), &[&payload]).unwrap();
    writer.seal(Epoch(5), &[]).unwrap();
    changes.clear();
    push_update(&mut changes, 3, b"first", 12, &old, &new);
    payload.clear();
    push_record(&mut payload, Epoch(6), &changes);
    changes.clear();
    push_remove(&mut changes, 4, &[b'k'; 130], 13);
    let (old, mut new) = (long_row(), long_row());
    new[69_990..69_994].copy_from_slice(b"long");
    push_update(&mut changes, 5, b"long", 14, &old, &new);
    let mut second = Vec::new();
    push_record(&mut second, Epoch(7), &changes);
    writer.seal(Epoch(7), &[&payload, &second]).unwrap();
    writer.remove_before(Epoch(7)).unwrap();
    for epoch in 8..=12 {
        changes.clear();
        push_put(&mut changes, 6, b"again", epoch, &[epoch as u8; 40]);
        payload.clear();
        push_record(&mut payload, Epoch(epoch), &changes);
        writer.seal(Epoch(epoch), &[&payload]).unwrap();
    }
    payload.clear();
    for note in notes() {
        changes.clear();
        note.push(&mut changes);
        if matches!(note, Note::Decided { .. } | Note::Ended { commit: true, .. }) {
            push_remove(&mut changes, 6, b"again", 20);
        }
        push_record(&mut payload, Epoch(13), &changes);
    }
    writer.seal(Epoch(13), &[&payload]).unwrap();
}

fn notes() -> [Note<'static>; 5] {
    let of = GlobalId { instance: 1, incarnation: 2, txn: 3 << 40 };
    [
        Note::Prepared { of, rows: b"rows" },
        Note::Decided { of, instances: &[0, 0, 4, 1] },
        Note::Ended { of, commit: true },
        Note::Ended { of, commit: false },
        Note::Forgotten { of },
    ]
}

/// Contents of a fixture, in words.
fn told(version: u32) -> Vec<String> {
    let fs: Arc<dyn FileSystem> = Arc::new(RealFiles::new());
    let dir = fixture(version);
    let mut reader = StreamReader::open(fs, &dir, DATABASE, Incarnation(1), StreamId(0)).unwrap();
    let mut lines = Vec::new();
    while let Some(frame) = reader.next_frame().unwrap() {
        lines.push(format!("frame {} in {} sealed {}", frame.number, frame.segment, frame.sealed));
        for record in Records::new(frame.payload) {
            let record = record.unwrap();
            lines.push(format!("record of {}", record.epoch));
            let (note, changes) = record.split().unwrap();
            lines.extend(note.map(|note| format!("{note:?}")));
            for change in Changes::new(changes) {
                let change = change.unwrap();
                let op = match change.op {
                    Op::Put(row) => format!("put {}", row.len()),
                    Op::Patch(patch) if change.table == 5 => {
                        let mut row = long_row();
                        patch.apply(&mut row).unwrap();
                        format!("patch {:?}", std::str::from_utf8(&row[69_990..69_994]).unwrap())
                    }
                    Op::Patch(patch) => {
                        let mut row: Vec<u8> = (0..100).collect();
                        patch.apply(&mut row).unwrap();
                        format!("patch {:?} {}", std::str::from_utf8(&row[40..44]).unwrap(), row[99])
                    }
                    Op::Remove => "remove".to_owned(),
                };
                lines.push(format!(
                    "{} key of {} version {} {op}",
                    change.table,
                    change.key.len(),
                    change.version
                ));
            }
        }
    }
    lines
}

#[test]
fn the_fixtures_are_read() {
    let expected = [
        "frame 1 in 1 sealed 4",
        "record of 5",
        "3 key of 5 version 10 put 100",
        "4 key of 130 version 11 put 0",
        "frame 2 in 1 sealed 5",
        "frame 3 in 2 sealed 7",
        "record of 6",
        "3 key of 5 version 12 patch \"four\" 0",
        "record of 7",
        "4 key of 130 version 13 remove",
    ];
    assert_eq!(told(1), expected);
    let newer = [&expected[..], &["5 key of 4 version 14 patch \"long\""]].concat();
    assert_eq!(told(2), newer);
    let frames = (8..=12).flat_map(|epoch| {
        let segment = match epoch {
            8 => 2,
            9..=11 => 3,
            _ => 4,
        };
        [
            format!("frame {} in {segment} sealed {epoch}", epoch - 4),
            format!("record of {epoch}"),
            format!("6 key of 5 version {epoch} put 40"),
        ]
    });
    let newest: Vec<String> = newer[5..].iter().map(|line| (*line).to_owned()).chain(frames).collect();
    assert_eq!(told(3), newest);
    let mut newest = newest;
    newest.push("frame 9 in 4 sealed 13".to_owned());
    for note in notes() {
        newest.extend(["record of 13".to_owned(), format!("{note:?}")]);
        if matches!(note, Note::Decided { .. } | Note::Ended { commit: true, .. }) {
            newest.push("6 key of 5 version 20 remove".to_owned());
        }
    }
    assert_eq!(told(4), newest);
}

#[test]
fn the_newest_fixture_is_still_written() {
    let model: Arc<dyn FileSystem> = Arc::new(ModelFiles::new());
    write(&model, Path::new(""));
    let real = RealFiles::new();
    let (written, pinned) =
        (list_streams(&*model, Path::new("")).unwrap(), list_streams(&real, &fixture(4)).unwrap());
    assert_eq!(written.len(), 1);
    assert_eq!(written[0].segments.len(), pinned[0].segments.len());
    for (written, pinned) in written[0].segments.iter().zip(&pinned[0].segments) {
        assert_eq!(written.path.file_name(), pinned.path.file_name());
        let mut bytes = [vec![0; 4096], vec![0; 4096]];
        let lens = [
            model.open(&written.path, false).unwrap().read_at(0, &mut bytes[0]).unwrap(),
            real.open(&pinned.path, false).unwrap().read_at(0, &mut bytes[1]).unwrap(),
        ];
        assert_eq!(lens[0], lens[1]);
        assert!(bytes[0] == bytes[1], "{} differs from the fixture", pinned.path.display());
    }
}
