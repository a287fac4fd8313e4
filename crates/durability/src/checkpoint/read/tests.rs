//! Tests of reading checkpoint files.

use proptest::prelude::*;

use super::*;
use crate::file::ModelFiles;

const ID: PartId = PartId { database: 5, checkpoint: 1, part: 0 };

/// A file whose checksums are all right, whatever its block and footer say.
fn sealed(rows: u32, entries: &[u8], footer: &[u8]) -> (Vec<u8>, PartRecord) {
    let mut bytes = ID.header().to_vec();
    let seed = u32_at(&bytes, 36);
    let mut block = Vec::new();
    for field in [BLOCK_MAGIC, entries.len() as u32, rows, 0, 0] {
        block.extend_from_slice(&field.to_le_bytes());
    }
    let crc = checksum(seed, &[&block, entries]);
    bytes.extend_from_slice(&block);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(entries);
    let mut trailer = (bytes.len() as u64).to_le_bytes().to_vec();
    trailer.extend_from_slice(&(footer.len() as u64).to_le_bytes());
    let crc = checksum(seed, &[footer]);
    trailer.extend_from_slice(&crc.to_le_bytes());
    trailer.extend_from_slice(&TRAILER_MAGIC.to_le_bytes());
    let trailer_crc = checksum(seed, &[&trailer]);
    bytes.extend_from_slice(footer);
    bytes.extend_from_slice(&trailer);
    bytes.extend_from_slice(&trailer_crc.to_le_bytes());
    let record =
        PartRecord { name: "0000.part".to_owned(), bytes: bytes.len() as u64, rows: rows.into(), crc };
    (bytes, record)
}

fn footer(rows: u32, entries: &[u8], first_key: &[u8]) -> Vec<u8> {
    let len = (BLOCK_HEADER_BYTES + entries.len()) as u32;
    let block = BlockInfo { offset: FILE_HEADER_BYTES as u64, len, rows, first_key: first_key.to_vec() };
    let section =
        Section { table: 0, lower: Vec::new(), upper: None, rows: rows.into(), blocks: vec![block] };
    postcard::to_stdvec(&vec![section]).expect("it can be encoded")
}

fn read((bytes, record): (Vec<u8>, PartRecord)) -> Result<(), CheckpointError> {
    let fs = ModelFiles::new();
    fs.create(Path::new("/0000.part")).expect("created").write_at(0, &bytes).expect("written");
    PartReader::open(Arc::new(fs), Path::new("/"), ID, &record)?.check()
}

fn entry(key: &[u8], row: &[u8]) -> Vec<u8> {
    let mut entry = vec![key.len() as u8];
    entry.extend_from_slice(key);
    entry.extend_from_slice(&9_u64.to_le_bytes());
    entry.extend_from_slice(&(row.len() as u32).to_le_bytes());
    entry.extend_from_slice(row);
    entry
}

#[test]
fn entries_are_not_believed_on_the_word_of_a_checksum() {
    let both = [entry(b"a", b"1"), entry(b"b", b"2")].concat();
    let swapped = [entry(b"b", b"1"), entry(b"a", b"2")].concat();
    let twice = [entry(b"a", b"1"), entry(b"a", b"2")].concat();
    read(sealed(2, &both, &footer(2, &both, b"a"))).expect("that one is sound");
    let told = |rows, entries: &[u8], first: &[u8]| {
        read(sealed(rows, entries, &footer(rows, entries, first))).expect_err("damage").to_string()
    };
    assert!(told(2, &both, b"A").contains("byte 64: a key is out of order"), "the first key is another");
    assert!(told(2, &swapped, b"b").contains("byte 79: a key is out of order"));
    assert!(told(2, &twice, b"a").contains("byte 79: a key is out of order"));
    assert!(told(1, &both, b"a").contains("byte 79: bytes follow the last row"));
    assert!(told(3, &both, b"a").contains("byte 94: a row reaches beyond its block"));
    assert!(told(2, &both[..both.len() - 1], b"a").contains("byte 79: a row reaches beyond its block"));
    let endless = [0xff; 12];
    assert!(told(1, &endless, b"a").contains("byte 64: a row reaches beyond its block"));
}

proptest! {
    #[test]
    fn any_entries_under_a_right_checksum_are_read_without_panic(
        rows in 0_u32..5,
        entries in prop::collection::vec(any::<u8>(), 1..80),
    ) {
        // Random bytes are entries in order as good as never; what matters is that saying so is all that happens.
        let _ = read(sealed(rows, &entries, &footer(rows, &entries, b"")));
    }

    #[test]
    fn any_footer_under_a_right_checksum_is_read_without_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..80),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let entries = entry(b"a", b"1");
        prop_assert!(read(sealed(1, &entries, &footer(1, &entries, b"a"))).is_ok());
        let _ = read(sealed(1, &entries, &bytes));
        let mut mutated = footer(1, &entries, b"a");
        for (place, byte) in changes {
            let place = place.index(mutated.len());
            mutated[place] = byte;
        }
        let _ = read(sealed(1, &entries, &mutated));
    }
}
