//! Part files: what goes in comes out, and damage of any bit is found.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use atrapos_durability::checkpoint::{
    CheckpointError, PartEncoder, PartFile, PartId, PartReader, PartWriter,
};
use atrapos_durability::file::{FileSystem, ModelFiles};
use atrapos_durability::manifest::PartRecord;
use proptest::prelude::*;

use crate::support::{small_part, write_file};

const ID: PartId = PartId { database: 0x1234_5678_9abc_def0_0fed_cba9_8765_4321, checkpoint: 7, part: 3 };

/// The rows of one range: by key, version and row.
type Rows = BTreeMap<Vec<u8>, (u64, Vec<u8>)>;

fn read_all(fs: &ModelFiles, record: &PartRecord) -> Result<Vec<Rows>, CheckpointError> {
    let fs: Arc<dyn FileSystem> = Arc::new(fs.clone());
    let reader = PartReader::open(fs, Path::new("/"), ID, record)?;
    let mut buffer = Vec::new();
    let mut sections = Vec::new();
    for (place, section) in reader.sections().iter().enumerate() {
        let mut rows = Rows::new();
        for block in 0..section.blocks.len() {
            for entry in reader.read_block(place, block, &mut buffer)? {
                let entry = entry?;
                rows.insert(entry.key.to_vec(), (entry.version, entry.row.to_vec()));
            }
        }
        assert_eq!(rows.len() as u64, section.rows);
        sections.push(rows);
    }
    Ok(sections)
}

fn write_all(fs: &ModelFiles, sections: &[Rows]) -> PartRecord {
    let mut writer = PartWriter::create(fs, Path::new("/"), ID).expect("created");
    for (table, rows) in sections.iter().enumerate() {
        writer.begin_section(table as u16, &[], None);
        for (key, (version, row)) in rows {
            writer.push(key, *version, row).expect("pushed");
        }
    }
    let record = writer.finish().expect("finished");
    assert_eq!(record.rows, sections.iter().map(|rows| rows.len() as u64).sum::<u64>());
    record
}

fn rows() -> impl Strategy<Value = Rows> {
    // Now and then a row longer than a block.
    let row = prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..64),
        2 => prop::collection::vec(any::<u8>(), 4_000..9_000),
        1 => (any::<u8>(), 130_000..300_000_usize).prop_map(|(byte, len)| vec![byte; len]),
    ];
    prop::collection::btree_map(prop::collection::vec(any::<u8>(), 0..300), (any::<u64>(), row), 0..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(sections in prop::collection::vec(rows(), 0..4)) {
        let fs = ModelFiles::new();
        let record = write_all(&fs, &sections);
        prop_assert_eq!(read_all(&fs, &record).expect("sound"), sections);
    }

    #[test]
    fn a_range_gives_exactly_its_rows(rows in rows(), lower in prop::collection::vec(any::<u8>(), 0..3),
                                      upper in prop::option::of(prop::collection::vec(any::<u8>(), 0..3))) {
        let fs = ModelFiles::new();
        let record = write_all(&fs, &[rows.clone(), rows.clone()]);
        let shared: Arc<dyn FileSystem> = Arc::new(fs);
        let reader = PartReader::open(shared, Path::new("/"), ID, &record).expect("sound");
        let mut found = Rows::new();
        reader
            .for_each_in::<CheckpointError>(1, &lower, upper.as_deref(), &mut Vec::new(), |entry| {
                found.insert(entry.key.to_vec(), (entry.version, entry.row.to_vec()));
                Ok(())
            })
            .expect("sound");
        let within = |key: &Vec<u8>| *key >= lower && upper.as_ref().is_none_or(|upper| key < upper);
        let expected: Rows = rows.into_iter().filter(|(key, _)| within(key)).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn mutated_files_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let (mut bytes, record) = small_part(ID);
        let sound = bytes.clone();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(sound.len()));
        }
        let fs = ModelFiles::new();
        write_file(&fs, &Path::new("/").join(&record.name), &bytes);
        // The record may be of the mutated file as well: then only the checksums are left to tell.
        let lengthened = PartRecord { bytes: bytes.len() as u64, ..record };
        prop_assert_eq!(read_all(&fs, &lengthened).is_ok(), bytes == sound);
    }
}

#[test]
fn every_bit_flip_is_found_and_named() {
    let (sound, record) = small_part(ID);
    let fs = ModelFiles::new();
    let path = Path::new("/").join(&record.name);
    write_file(&fs, &path, &sound);
    assert!(read_all(&fs, &record).is_ok());
    let mut file = fs.open(&path, true).expect("opened");
    for bit in 0..sound.len() * 8 {
        let flipped = sound[bit / 8] ^ (1 << (bit % 8));
        file.write_at(bit as u64 / 8, &[flipped]).expect("written");
        let error = read_all(&fs, &record).expect_err("a flipped bit is damage");
        file.write_at(bit as u64 / 8, &sound[bit / 8..=bit / 8]).expect("written");
        assert!(matches!(error, CheckpointError::Damaged { .. }), "bit {bit}: {error}");
        assert!(error.to_string().contains("/0003.part is damaged at byte "), "bit {bit}: {error}");
    }
    assert!(read_all(&fs, &record).is_ok(), "the file is as it was");
}

#[test]
fn every_truncation_and_anything_added_is_found() {
    let (sound, record) = small_part(ID);
    let path = Path::new("/").join(&record.name);
    for len in (0..sound.len()).chain([sound.len() + 1, sound.len() + 4096]) {
        let fs = ModelFiles::new();
        let mut bytes = sound.clone();
        bytes.resize(len, 0);
        write_file(&fs, &path, &bytes);
        let error = read_all(&fs, &record).expect_err("another length is damage");
        assert!(matches!(error, CheckpointError::Damaged { .. }), "length {len}: {error}");
    }
}

#[test]
fn a_part_of_elsewhere_is_refused() {
    for other in [PartId { database: 1, ..ID }, PartId { checkpoint: 8, ..ID }, PartId { part: 4, ..ID }] {
        let (bytes, mut record) = small_part(other);
        record.name = "0003.part".to_owned();
        let fs = ModelFiles::new();
        write_file(&fs, Path::new("/0003.part"), &bytes);
        let error = read_all(&fs, &record).expect_err("it is of elsewhere");
        assert!(error.to_string().contains("another database, checkpoint or part"), "{error}");
    }
}

#[test]
fn a_newer_part_says_so() {
    let (mut bytes, record) = small_part(ID);
    bytes[8..12].copy_from_slice(&2_u32.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..36]);
    bytes[36..40].copy_from_slice(&crc.to_le_bytes());
    let fs = ModelFiles::new();
    write_file(&fs, Path::new("/0003.part"), &bytes);
    let error = read_all(&fs, &record).expect_err("it is newer");
    assert!(matches!(error, CheckpointError::Newer { version: 2, known: 1, .. }), "{error}");
    assert!(error.to_string().contains("written by a newer atrapos"), "{error}");
}

#[test]
fn rows_out_of_place_are_refused_and_change_nothing() {
    let mut encoder = PartEncoder::new(ID);
    assert!(matches!(encoder.push(b"a", 1, b""), Err(CheckpointError::Misplaced { .. })), "no section yet");
    encoder.begin_section(5, b"b", Some(b"f"));
    for key in [&b"a"[..], b"f", b"g"] {
        assert!(matches!(encoder.push(key, 1, b"x"), Err(CheckpointError::Misplaced { table: 5, .. })));
    }
    encoder.push(b"c", 1, b"x").expect("in range");
    let bytes = encoder.bytes();
    for key in [&b"c"[..], b"b"] {
        assert!(matches!(encoder.push(key, 1, b"x"), Err(CheckpointError::Misplaced { table: 5, .. })));
    }
    assert_eq!((encoder.rows(), encoder.bytes()), (1, bytes));
    encoder.begin_section(6, b"", None);
    encoder.push(b"", 1, b"x").expect("the empty key is a key");
    assert_eq!(encoder.finish().expect("finished").record.rows, 2);
}

#[test]
fn encoding_here_and_writing_there_gives_the_same_file() {
    let (bytes, record) = small_part(ID);
    let fs = ModelFiles::new();
    let mut file = PartFile::create(&fs, Path::new("/"), ID.part).expect("created");
    for piece in bytes.chunks(97) {
        file.append(piece).expect("appended");
    }
    file.finish().expect("synced");
    assert_eq!(read_all(&fs, &record).expect("sound").len(), 4);
}

#[test]
fn several_threads_read_one_part() {
    let rows: Rows =
        (0..40_000_u32).map(|key| (key.to_be_bytes().to_vec(), (u64::from(key), vec![7; 20]))).collect();
    let fs = ModelFiles::new();
    let record = write_all(&fs, std::slice::from_ref(&rows));
    let shared: Arc<dyn FileSystem> = Arc::new(fs);
    let reader = PartReader::open(shared, Path::new("/"), ID, &record).expect("sound");
    assert!(reader.sections()[0].blocks.len() > 4, "the part has several blocks");
    let found: u64 = std::thread::scope(|scope| {
        let bounds = [0_u32, 9_000, 17_000, 33_000, 40_000];
        let count = |from: u32, to: u32| {
            let reader = &reader;
            move || {
                let mut count = 0;
                let (from, to) = (from.to_be_bytes(), to.to_be_bytes());
                reader
                    .for_each_in::<CheckpointError>(0, &from, Some(&to), &mut Vec::new(), |entry| {
                        assert_eq!(entry.key, (entry.version as u32).to_be_bytes());
                        count += 1;
                        Ok(())
                    })
                    .expect("sound");
                count
            }
        };
        let threads: Vec<_> = bounds.windows(2).map(|pair| scope.spawn(count(pair[0], pair[1]))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it did not panic")).sum()
    });
    assert_eq!(found, rows.len() as u64);
}

#[test]
fn blocks_that_do_not_exist_are_an_error() {
    let (bytes, record) = small_part(ID);
    let fs = ModelFiles::new();
    write_file(&fs, Path::new("/0003.part"), &bytes);
    let shared: Arc<dyn FileSystem> = Arc::new(fs);
    let reader = PartReader::open(shared, Path::new("/"), ID, &record).expect("sound");
    for (section, block) in [(0, 1), (4, 0), (usize::MAX, usize::MAX)] {
        let error = reader.read_block(section, block, &mut Vec::new()).expect_err("there is none");
        assert!(matches!(error, CheckpointError::NoSuchBlock { .. }), "{error}");
    }
}
