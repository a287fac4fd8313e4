//! The format, pinned: files of each version that were written once must be read for as long as the version is, and written
//! alike for as long as it is the newest.

use std::path::Path;
use std::sync::Arc;

use atrapos_durability::checkpoint::{PartId, PartReader};
use atrapos_durability::file::{FileSystem, ModelFiles};
use atrapos_durability::manifest::{CheckpointRecord, InstanceRecord, MANIFEST, Manifest, PastIncarnation};
use atrapos_durability::wal::{Epoch, Incarnation, StreamEnd};

use crate::support::{schema, small_part, write_file};

const MANIFEST_1: &[u8] = include_bytes!("../fixtures/directory-v1/MANIFEST");
const MANIFEST_2: &[u8] = include_bytes!("../fixtures/directory-v2/MANIFEST");
const MANIFEST_3: &[u8] = include_bytes!("../fixtures/directory-v3/MANIFEST");
const PINNED_PART: &[u8] = include_bytes!("../fixtures/directory-v1/0003.part");

const ID: PartId = PartId { database: 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff, checkpoint: 7, part: 3 };

fn manifest() -> Manifest {
    Manifest {
        database: ID.database,
        incarnation: Incarnation(300),
        streams: 2,
        past: vec![PastIncarnation { incarnation: Incarnation(299), streams: 1, durable: Epoch(70_000) }],
        first_epoch: Epoch(70_002),
        checkpoint: Some(CheckpointRecord {
            number: ID.checkpoint,
            replay_from: Epoch(69_999),
            parts: vec![small_part(ID).1],
        }),
        closed: Some(vec![
            StreamEnd { segment: 1, length: 4096, frame: 9 },
            StreamEnd { segment: 2, length: 80, frame: 12 },
        ]),
        schema: schema(),
        instance: None,
    }
}

fn of_an_instance() -> Manifest {
    let instance =
        InstanceRecord { deployment: ID.database >> 1, instance: 2, division: vec![1, 4, 4, 2, 1] };
    Manifest { instance: Some(instance), ..manifest() }
}

#[test]
fn a_manifest_of_version_3_is_read_and_written_as_ever() {
    let found = Manifest::decode(MANIFEST_3, Path::new(MANIFEST)).expect("sound");
    assert_eq!(found, of_an_instance());
    assert_eq!(of_an_instance().encode().expect("sound"), MANIFEST_3);
}

#[test]
fn manifests_of_versions_before_instances_are_read_as_of_none() {
    for bytes in [MANIFEST_1, MANIFEST_2] {
        assert_eq!(Manifest::decode(bytes, Path::new(MANIFEST)).expect("sound"), manifest());
    }
}

#[test]
fn a_part_of_version_1_is_read_and_written_as_ever() {
    let (bytes, record) = small_part(ID);
    assert_eq!(bytes, PINNED_PART);
    let fs = ModelFiles::new();
    write_file(&fs, &Path::new("/").join(&record.name), PINNED_PART);
    let shared: Arc<dyn FileSystem> = Arc::new(fs);
    let reader = PartReader::open(shared, Path::new("/"), ID, &record).expect("sound");
    let found: Vec<_> = reader.sections().iter().map(|section| (section.table, section.rows)).collect();
    assert_eq!(found, [(0, 4), (1, 0), (0, 20), (1, 1)]);
    reader.check().expect("sound");
}
