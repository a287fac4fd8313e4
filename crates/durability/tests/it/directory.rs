//! The directory: whatever happens at whichever call, what is found afterwards is the old state or the new one.

use std::path::Path;
use std::sync::Arc;

use atrapos_catalog::{Definitions, TreeDef};
use atrapos_durability::checkpoint::{PartId, PartReader, PartWriter, part_name};
use atrapos_durability::directory::{BACKUP_UNFINISHED, Directory, DirectoryError, LOCK};
use atrapos_durability::file::{FileSystem, ModelFiles, RealFiles};
use atrapos_durability::manifest::{
    CheckpointRecord, FORMAT_VERSION, InstanceRecord, MANIFEST, MANIFEST_NEW, Manifest, PastIncarnation,
};
use atrapos_durability::wal::{Epoch, Incarnation, StreamEnd};
use proptest::prelude::*;

use crate::support::{crash_everywhere, fail_everywhere, read_file, schema, write_file};

const DB: &str = "/db";

fn shared(fs: &ModelFiles) -> Arc<dyn FileSystem> {
    Arc::new(fs.clone())
}

fn create(fs: &ModelFiles) -> Result<Manifest, String> {
    let created = Directory::create(shared(fs), Path::new(DB), schema(), 2);
    created.map(|(_, manifest)| manifest).map_err(|error| error.to_string())
}

fn open(fs: &ModelFiles) -> Result<(Directory, Manifest), DirectoryError> {
    Directory::open(shared(fs), Path::new(DB))
}

/// Writes checkpoint `number`, publishes it, and removes the one before: what a running database does.
fn checkpoint(fs: &ModelFiles, number: u32) -> Result<(), String> {
    let (directory, manifest) = open(fs).map_err(|error| error.to_string())?;
    let dir = directory.begin_checkpoint(number).map_err(|error| error.to_string())?;
    let mut parts = Vec::new();
    for part in 0..2 {
        let id = PartId { database: manifest.database, checkpoint: number, part };
        let write = || {
            let mut writer = PartWriter::create(fs, &dir, id)?;
            writer.begin_section(0, &[], None);
            for key in 0..5_u8 {
                writer.push(&[key], u64::from(number), &[number as u8; 700])?;
            }
            writer.finish()
        };
        parts.push(write().map_err(|error| error.to_string())?);
    }
    let record = CheckpointRecord { number, replay_from: Epoch(u64::from(number)), parts };
    let before = manifest.checkpoint.as_ref().map(|checkpoint| checkpoint.number);
    let next = Manifest { checkpoint: Some(record), ..manifest };
    directory.publish(&next).map_err(|error| error.to_string())?;
    match before {
        Some(before) => directory.remove_checkpoint(before).map_err(|error| error.to_string()),
        None => Ok(()),
    }
}

/// Opens what a crash left and reads its checkpoint; returns the number.
fn check_checkpoint(fs: &ModelFiles, told: &str) -> u32 {
    let (directory, manifest) = open(fs).unwrap_or_else(|error| panic!("{told}: {error}"));
    let record = manifest.checkpoint.as_ref().unwrap_or_else(|| panic!("{told}: no checkpoint"));
    let dir = directory.checkpoint_dir(record.number);
    for (part, expected) in record.parts.iter().enumerate() {
        let id = PartId { database: manifest.database, checkpoint: record.number, part: part as u16 };
        let reader = PartReader::open(shared(fs), &dir, id, expected);
        let checked = reader.and_then(|reader| {
            assert_eq!(reader.sections()[0].rows, 5);
            reader.check()
        });
        checked.unwrap_or_else(|error| panic!("{told}: {error}"));
    }
    let names = fs.list(&Path::new(DB).join("checkpoint")).expect("listed");
    assert_eq!(names, [format!("{:08x}", record.number)], "{told}: leftovers are gone");
    record.number
}

fn with_checkpoint() -> ModelFiles {
    let fs = ModelFiles::new();
    create(&fs).expect("created");
    checkpoint(&fs, 1).expect("written");
    fs
}

#[test]
fn created_and_opened() {
    let fs = ModelFiles::new();
    assert!(!Directory::exists(&fs, Path::new(DB)).expect("listed"));
    let (directory, manifest) = Directory::create(shared(&fs), Path::new(DB), schema(), 2).expect("created");
    assert!(Directory::exists(&fs, Path::new(DB)).expect("listed"));
    assert_eq!((manifest.incarnation, manifest.first_epoch, manifest.streams), (Incarnation(1), Epoch(1), 2));
    assert_eq!(directory.wal_dir(), Path::new("/db/wal"));
    assert_eq!(directory.checkpoint_dir(0x1f), Path::new("/db/checkpoint/0000001f"));
    drop(directory);
    let (_open, found) = open(&fs).expect("opened");
    assert_eq!(found, manifest);
    let other = ModelFiles::new();
    assert_ne!(
        create(&other).expect("created").database,
        manifest.database,
        "databases have different names"
    );
}

#[test]
fn every_error_of_opening_says_what_to_do() {
    let fs = ModelFiles::new();
    let told =
        |result: Result<(Directory, Manifest), DirectoryError>| result.expect_err("refused").to_string();
    assert!(told(open(&fs)).contains("/db holds no database"));
    fs.create_dir(Path::new(DB)).expect("created");
    assert!(told(open(&fs)).contains("/db holds no database"));
    assert_eq!(fs.list(Path::new(DB)).expect("listed"), [""; 0], "a refused opening leaves nothing behind");
    write_file(&fs, Path::new("/db/letter.txt"), b"dear all");
    assert!(told(open(&fs)).contains("/db holds no database"));
    let refused = create(&fs).expect_err("not empty");
    assert!(refused.contains("/db is not empty (it has `letter.txt`)"), "{refused}");
    fs.remove(Path::new("/db/letter.txt")).expect("removed");
    write_file(&fs, &Path::new(DB).join(BACKUP_UNFINISHED), b"");
    assert!(told(open(&fs)).contains("/db holds an unfinished backup; remove it"));
    assert!(create(&fs).expect_err("unfinished").contains("unfinished backup"));
    fs.remove(&Path::new(DB).join(BACKUP_UNFINISHED)).expect("removed");
    write_file(&fs, &Path::new(DB).join(MANIFEST_NEW), b"half a mani");
    assert!(told(open(&fs)).contains("cut off and nothing was stored in it; create it again"));
    create(&fs).expect("a creation that was cut off is repeated");
    assert!(create(&fs).expect_err("it is there").contains("/db holds a database already"));
}

#[test]
fn a_database_without_its_manifest_is_not_overwritten() {
    let fs = with_checkpoint();
    fs.remove(&Path::new(DB).join(MANIFEST)).expect("removed");
    let refused = create(&fs).expect_err("there are files of a database");
    assert!(refused.contains("/db is not empty (it has `checkpoint/00000001`)"), "{refused}");
}

#[test]
fn a_database_without_its_wal_is_refused() {
    let fs = with_checkpoint();
    fs.remove_dir(Path::new("/db/wal")).expect("it is empty");
    let refused = open(&fs).expect_err("damage").to_string();
    assert!(refused.contains("/db/wal is damaged"), "{refused}");
}

#[test]
fn the_second_opener_is_told_who_was_first() {
    let root = tempfile::tempdir().expect("a directory for the test");
    let path = root.path().join("db");
    let files = || -> Arc<dyn FileSystem> { Arc::new(RealFiles::new()) };
    let (first, manifest) = Directory::create(files(), &path, schema(), 1).expect("created");
    let told = Directory::open(files(), &path).expect_err("it is open").to_string();
    let expected =
        format!("{} is open in process {}; close it there first", path.display(), std::process::id());
    assert_eq!(told, expected);
    drop(first);
    let (_second, found) = Directory::open(files(), &path).expect("it is closed");
    assert_eq!(found, manifest);
}

#[test]
fn the_model_keeps_the_second_opener_out_too() {
    let fs = ModelFiles::new();
    let (first, _) = Directory::create(shared(&fs), Path::new(DB), schema(), 1).expect("created");
    assert!(matches!(open(&fs), Err(DirectoryError::InUse { .. })));
    drop(first);
    assert!(open(&fs).is_ok());
}

#[test]
fn leftovers_are_removed_and_what_counts_stays() {
    let fs = with_checkpoint();
    let db = Path::new(DB);
    write_file(&fs, &db.join(MANIFEST_NEW), b"x");
    fs.create_dir(&db.join("checkpoint/00000002")).expect("created");
    write_file(&fs, &db.join("checkpoint/00000002").join(part_name(0)), b"half a part");
    for name in [
        "00000001-0000-00000001.wal",
        "00000002-0000-00000001.wal",
        "notes.wal",
        "00000001-0000-00000002.wal.new",
    ] {
        write_file(&fs, &db.join("wal").join(name), b"x");
    }
    write_file(&fs, &db.join("README"), b"mine");
    check_checkpoint(&fs, "after leftovers");
    assert_eq!(fs.list(&db.join("wal")).expect("listed"), ["00000001-0000-00000001.wal", "notes.wal"]);
    assert_eq!(fs.list(db).expect("listed"), ["LOCK", "MANIFEST", "README", "checkpoint", "wal"]);
}

#[test]
fn creation_survives_a_crash_at_every_call() {
    let check = |fs: ModelFiles, outcome: &Result<Manifest, String>, told: &str| {
        match open(&fs) {
            Ok((_, found)) => {
                assert_eq!(found.schema, schema(), "{told}");
                if let Ok(created) = outcome {
                    assert_eq!(&found, created, "{told}");
                }
            }
            Err(error) => {
                assert!(outcome.is_err(), "{told}: it was reported created, yet {error}");
                let expected = matches!(
                    error,
                    DirectoryError::Missing { .. } | DirectoryError::UnfinishedCreation { .. }
                );
                assert!(expected, "{told}: {error}");
                create(&fs).unwrap_or_else(|error| panic!("{told}: {error}"));
            }
        }
        open(&fs).unwrap_or_else(|error| panic!("{told}: {error}"));
    };
    crash_everywhere(ModelFiles::new, create, check);
    fail_everywhere(ModelFiles::new, create, check);
}

#[test]
fn a_checkpoint_survives_a_crash_at_every_call() {
    let check = |fs: ModelFiles, outcome: &Result<(), String>, told: &str| {
        let number = check_checkpoint(&fs, told);
        assert!(number == 2 || (number == 1 && outcome.is_err()), "{told}: checkpoint {number}");
        checkpoint(&fs, 3).unwrap_or_else(|error| panic!("{told}: {error}"));
        assert_eq!(check_checkpoint(&fs, told), 3);
    };
    crash_everywhere(with_checkpoint, |fs| checkpoint(fs, 2), check);
    fail_everywhere(with_checkpoint, |fs| checkpoint(fs, 2), check);
}

#[test]
fn opening_survives_a_crash_at_every_call() {
    let base = || {
        let fs = with_checkpoint();
        fs.create_dir(Path::new("/db/checkpoint/00000009")).expect("created");
        write_file(&fs, Path::new("/db/checkpoint/00000009/0000.part"), b"half a part");
        write_file(&fs, Path::new("/db/wal/00000005-0000-00000001.wal"), b"a segment");
        fs
    };
    let script = |fs: &ModelFiles| open(fs).map(|_| ()).map_err(|error| error.to_string());
    let check = |fs: ModelFiles, _: &Result<(), String>, told: &str| {
        assert_eq!(check_checkpoint(&fs, told), 1);
        assert_eq!(fs.list(Path::new("/db/wal")).expect("listed"), [""; 0], "{told}");
    };
    crash_everywhere(base, script, check);
    fail_everywhere(base, script, check);
}

#[test]
fn a_checkpoint_that_was_given_up_is_begun_anew() {
    let fs = with_checkpoint();
    let (directory, manifest) = open(&fs).expect("opened");
    let id = PartId { database: manifest.database, checkpoint: 2, part: 0 };
    for _ in 0..2 {
        let dir = directory.begin_checkpoint(2).expect("begun");
        assert_eq!(fs.list(&dir).expect("listed"), [""; 0]);
        let mut writer = PartWriter::create(&fs, &dir, id).expect("nothing prevents it");
        writer.begin_section(0, &[], None);
        writer.push(b"key", 1, b"row").expect("pushed");
    }
    directory.remove_checkpoint(2).expect("removed");
    directory.remove_checkpoint(2).expect("one that is not there is fine");
    assert_eq!(fs.list(&Path::new(DB).join("checkpoint")).expect("listed"), ["00000001"]);
}

#[test]
fn after_a_failed_publication_there_is_no_other() {
    use atrapos_durability::file::{Fault, FaultKind, Times};
    let fs = with_checkpoint();
    let (directory, manifest) = open(&fs).expect("opened");
    fs.set_fault(Fault { at: 1, calls: None, kind: FaultKind::Eio, times: Times::Once });
    assert!(matches!(directory.publish(&manifest), Err(DirectoryError::Io { .. })));
    let told = directory.publish(&manifest).expect_err("it has stopped").to_string();
    assert!(told.contains("/db/MANIFEST failed, so its state is not known; close the database"), "{told}");
    drop(directory);
    let (directory, manifest) = open(&fs).expect("opened anew");
    directory.publish(&manifest).expect("it works again");
}

#[test]
fn a_manifest_that_contradicts_itself_is_not_published() {
    let fs = with_checkpoint();
    let (directory, good) = open(&fs).expect("opened");
    let past = |incarnation| PastIncarnation {
        incarnation: Incarnation(incarnation),
        streams: 1,
        durable: Epoch(1),
    };
    let mut bad = vec![
        Manifest { streams: 0, ..good.clone() },
        Manifest { past: vec![past(1)], ..good.clone() },
        Manifest { incarnation: Incarnation(9), past: vec![past(3), past(2)], ..good.clone() },
        Manifest { closed: Some(vec![StreamEnd::default()]), ..good.clone() },
    ];
    let mut schema = good.schema.clone();
    let TreeDef::Index(index) = &mut schema.trees[1] else { unreachable!("it is the index") };
    index.of = 2;
    bad.push(Manifest { schema, ..good.clone() });
    let mut schema = good.schema.clone();
    schema.foreign_keys[0].through = Some(7);
    bad.push(Manifest { schema, ..good.clone() });
    let mut outside = good.clone();
    outside.checkpoint.as_mut().expect("it has one").parts[0].name = "../../etc/passwd".to_owned();
    bad.push(outside);
    for bad in bad {
        assert!(matches!(directory.publish(&bad), Err(DirectoryError::Invalid { .. })));
        assert_eq!(Manifest::read(&fs, Path::new(DB)).expect("read").as_ref(), Some(&good));
    }
    directory.publish(&good).expect("nothing was touched");
    let none = Directory::create(shared(&fs), Path::new("/other"), Definitions::default(), 0);
    assert!(matches!(none, Err(DirectoryError::Invalid { .. })));
    assert!(!Directory::exists(&fs, Path::new("/other")).expect("listed"));
}

#[test]
fn every_bit_flip_and_truncation_of_a_manifest_is_found() {
    let fs = with_checkpoint();
    let path = Path::new(DB).join(MANIFEST);
    let sound = read_file(&fs, &path);
    assert!(Manifest::decode(&sound, &path).is_ok());
    for bit in 0..sound.len() * 8 {
        let mut bytes = sound.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let error = Manifest::decode(&bytes, &path).expect_err("a flipped bit is damage");
        assert!(matches!(error, DirectoryError::Damaged { .. }), "bit {bit}: {error}");
        assert!(error.to_string().contains("/db/MANIFEST is damaged at byte "), "bit {bit}: {error}");
    }
    for len in (0..sound.len()).chain([sound.len() + 1]) {
        let mut bytes = sound.clone();
        bytes.resize(len, 0);
        let error = Manifest::decode(&bytes, &path).expect_err("another length is damage");
        assert!(matches!(error, DirectoryError::Damaged { .. }), "length {len}: {error}");
    }
}

/// A manifest file of any version and body with a right header.
fn sealed(version: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = b"ATRAMANI".to_vec();
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
    let mut crc = crc32fast::Hasher::new();
    crc.update(&bytes);
    crc.update(body);
    bytes.extend_from_slice(&crc.finalize().to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

#[test]
fn a_directory_of_a_newer_format_says_so() {
    let fs = ModelFiles::new();
    fs.create_dir(Path::new(DB)).expect("created");
    write_file(&fs, &Path::new(DB).join(MANIFEST), &sealed(FORMAT_VERSION + 1, b"whatever comes"));
    let told = open(&fs).expect_err("newer").to_string();
    assert!(
        told.contains(
            "/db/MANIFEST was written by a newer atrapos (format 4, this one knows up to 3); use that"
        ),
        "{told}"
    );
    assert_eq!(fs.list(Path::new(DB)).expect("listed"), [LOCK, MANIFEST], "nothing was touched");
}

proptest! {
    #[test]
    fn no_body_makes_the_manifest_reader_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let path = Path::new(DB).join(MANIFEST);
        // Whatever it says, it says it without panicking, and what it accepts it writes again alike.
        for version in 1..=FORMAT_VERSION {
            if let Ok(manifest) = Manifest::decode(&sealed(version, &body), &path) {
                let again = manifest.encode().expect("what was accepted can be written");
                prop_assert_eq!(Manifest::decode(&again, &path).expect("sound"), manifest);
            }
        }
    }

    #[test]
    fn no_mutation_makes_the_manifest_reader_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let manifest = Manifest {
            database: u128::MAX,
            incarnation: Incarnation(3),
            streams: 2,
            past: vec![PastIncarnation { incarnation: Incarnation(1), streams: 1, durable: Epoch(40) }],
            first_epoch: Epoch(42),
            checkpoint: None,
            closed: Some(vec![StreamEnd { segment: 1, length: 4096, frame: 9 }; 2]),
            schema: schema(),
            instance: Some(InstanceRecord { deployment: 7, instance: 1, division: vec![2, 1, 1] }),
        };
        let path = Path::new(DB).join(MANIFEST);
        let bytes = manifest.encode().expect("sound");
        prop_assert_eq!(&Manifest::decode(&bytes, &path).expect("sound"), &manifest);
        let mut body = bytes[20..].to_vec();
        for (place, byte) in changes {
            let place = place.index(body.len());
            body[place] = byte;
        }
        if let Ok(found) = Manifest::decode(&sealed(FORMAT_VERSION, &body), &path) {
            let again = found.encode().expect("what was accepted can be written");
            prop_assert_eq!(Manifest::decode(&again, &path).expect("sound"), found);
        }
    }
}
