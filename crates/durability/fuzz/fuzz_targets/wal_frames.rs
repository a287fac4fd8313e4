//! A written segment, changed as the fuzzer likes: what is read is a prefix of what was written, or an error.
#![no_main]

use std::path::Path;
use std::sync::Arc;

use atrapos_durability::file::{FileSystem, ModelFiles};
use atrapos_durability::wal::{
    Epoch, Incarnation, StreamId, StreamOptions, StreamReader, StreamWriter, push_record, push_remove,
    segment_path,
};
use libfuzzer_sys::fuzz_target;

fn payload(number: u64) -> Vec<u8> {
    let (mut changes, mut record) = (Vec::new(), Vec::new());
    push_remove(&mut changes, 1, &number.to_le_bytes(), number);
    push_record(&mut record, Epoch(number), &changes);
    record
}

fuzz_target!(|bytes: &[u8]| {
    let fs = ModelFiles::new();
    let shared: Arc<dyn FileSystem> = Arc::new(fs.clone());
    let dir = Path::new("");
    let options = StreamOptions::of_segments(1024);
    let mut writer =
        StreamWriter::create(Arc::clone(&shared), dir, 1, Incarnation(1), StreamId(0), options).unwrap();
    for number in 1..=8 {
        writer.seal(Epoch(number - 1), &[&payload(number)]).unwrap();
    }
    // Four bytes each: a place, a value to add, and whether to cut there instead.
    fs.corrupt(&segment_path(dir, Incarnation(1), StreamId(0), 1), |segment| {
        for edit in bytes.chunks_exact(4) {
            let place = usize::from(u16::from_le_bytes([edit[0], edit[1]]));
            if edit[3] == 255 {
                segment.truncate(place);
            } else if let Some(byte) = segment.get_mut(place) {
                *byte = byte.wrapping_add(edit[2]);
            }
        }
    })
    .unwrap();
    let Ok(mut reader) = StreamReader::open(shared, dir, 1, Incarnation(1), StreamId(0)) else { return };
    let mut number = 0;
    while let Ok(Some(frame)) = reader.next_frame() {
        number += 1;
        assert_eq!(frame.payload, payload(number));
    }
});
