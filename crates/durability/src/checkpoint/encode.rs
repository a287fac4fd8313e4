//! Turns rows into the bytes of a part file.
//!
//! Owns the encoder, which knows no file: it fills a buffer, and gives full blocks away. Pushing a row costs a copy and one
//! comparison with the key before; a block is summed up when it is closed.

use crate::checkpoint::{
    BLOCK_BYTES, BLOCK_HEADER_BYTES, BLOCK_MAGIC, BlockInfo, CheckpointError, PartId, Section, TRAILER_BYTES,
    TRAILER_MAGIC, checksum, part_name,
};
use crate::manifest::PartRecord;

/// Encodes one part: rows in, pieces of the file out. The pieces, one after another as they were taken, are the file.
#[derive(Debug)]
pub struct PartEncoder {
    name: String,
    /// The checksum of the file's header.
    seed: u32,
    sections: Vec<Section>,
    /// Complete pieces that nobody took yet.
    full: Vec<Vec<u8>>,
    /// The open block: room for its header, then entries.
    open: Vec<u8>,
    open_rows: u32,
    /// Range of the newest key in `open`, if the block has rows.
    last_key: std::ops::Range<usize>,
    /// The newest key of the block before, which the first key of the next must exceed.
    closed_key: Option<Vec<u8>>,
    /// Offset in the file at which the open block will begin.
    offset: u64,
    rows: u64,
    /// Buffers given back, to be used again.
    spare: Vec<Vec<u8>>,
}

/// The end of an encoded part.
#[derive(Debug)]
pub struct FinishedPart {
    /// The last pieces of the file.
    pub pieces: Vec<Vec<u8>>,
    /// The record of the part, for the manifest.
    pub record: PartRecord,
}

impl PartEncoder {
    /// Begins a part.
    pub fn new(id: PartId) -> PartEncoder {
        let header = id.header();
        PartEncoder {
            name: part_name(id.part),
            seed: super::u32_at(&header, 36),
            sections: Vec::new(),
            full: vec![header.to_vec()],
            open: Vec::new(),
            open_rows: 0,
            last_key: 0..0,
            closed_key: None,
            offset: header.len() as u64,
            rows: 0,
            spare: Vec::new(),
        }
    }

    /// Begins the rows of a key range (`lower` inclusive, `upper` exclusive or open) of a table. A range without rows is
    /// worth a section, too: it says that there were none.
    pub fn begin_section(&mut self, table: u16, lower: &[u8], upper: Option<&[u8]>) {
        self.close_block();
        self.closed_key = None;
        let (lower, upper) = (lower.to_vec(), upper.map(<[u8]>::to_vec));
        self.sections.push(Section { table, lower, upper, rows: 0, blocks: Vec::new() });
    }

    /// Adds a row to the present section. It does no I/O.
    ///
    /// # Errors
    /// [`CheckpointError::Misplaced`] if there is no section yet, if the key is outside its range or not above the key
    /// before; [`CheckpointError::TooLong`]. Nothing was added then.
    pub fn push(&mut self, key: &[u8], version: u64, row: &[u8]) -> Result<(), CheckpointError> {
        let Some(section) = self.sections.last() else {
            return Err(CheckpointError::Misplaced { table: 0, what: "no section was begun" });
        };
        let table = section.table;
        let misplaced = |what| Err(CheckpointError::Misplaced { table, what });
        if section.upper.as_ref().is_some_and(|upper| key >= upper.as_slice()) {
            return misplaced("its key is beyond the range of the section");
        }
        let before = if self.open_rows > 0 {
            Some(&self.open[self.last_key.clone()])
        } else {
            self.closed_key.as_deref()
        };
        match before {
            Some(before) if key <= before => return misplaced("its key is not above the one before"),
            None if key < section.lower.as_slice() => {
                return misplaced("its key is below the range of the section");
            }
            _ => {}
        }
        let bytes = key.len() as u64 + row.len() as u64;
        // The length of a block, headers of it and of the entry included, is kept in 32 bits.
        if bytes > u64::from(u32::MAX) - 64 {
            return Err(CheckpointError::TooLong { table, bytes });
        }
        let entry = key.len() + row.len() + 22;
        if self.open_rows > 0 && self.open.len() - BLOCK_HEADER_BYTES + entry > BLOCK_BYTES {
            self.close_block();
        }
        self.append(key, version, row);
        Ok(())
    }

    #[inline]
    fn append(&mut self, key: &[u8], version: u64, row: &[u8]) {
        if self.open_rows == 0 {
            self.open =
                self.spare.pop().unwrap_or_else(|| Vec::with_capacity(BLOCK_HEADER_BYTES + BLOCK_BYTES));
            self.open.clear();
            self.open.resize(BLOCK_HEADER_BYTES, 0);
        }
        push_varint(&mut self.open, key.len());
        let start = self.open.len();
        self.open.extend_from_slice(key);
        self.last_key = start..self.open.len();
        self.open.extend_from_slice(&version.to_le_bytes());
        self.open.extend_from_slice(&(row.len() as u32).to_le_bytes());
        self.open.extend_from_slice(row);
        if self.open_rows == 0 {
            self.begin_block(start);
        }
        self.open_rows += 1;
    }

    /// Enters the block whose first key begins at `start` in the list of its section.
    fn begin_block(&mut self, start: usize) {
        let block = BlockInfo {
            offset: self.offset,
            len: 0,
            rows: 0,
            first_key: self.open[start..self.last_key.end].to_vec(),
        };
        if let Some(section) = self.sections.last_mut() {
            section.blocks.push(block);
        }
    }

    /// Completes the open block, if it has rows.
    fn close_block(&mut self) {
        if self.open_rows == 0 {
            return;
        }
        self.closed_key = Some(self.open[self.last_key.clone()].to_vec());
        let place = self.sections.len() as u32 - 1;
        let mut block = std::mem::take(&mut self.open);
        let payload = (block.len() - BLOCK_HEADER_BYTES) as u32;
        block[..4].copy_from_slice(&BLOCK_MAGIC.to_le_bytes());
        block[4..8].copy_from_slice(&payload.to_le_bytes());
        block[8..12].copy_from_slice(&self.open_rows.to_le_bytes());
        block[12..16].copy_from_slice(&place.to_le_bytes());
        if let Some(section) = self.sections.last_mut() {
            section.rows += u64::from(self.open_rows);
            block[16..20].copy_from_slice(&(section.blocks.len() as u32 - 1).to_le_bytes());
            if let Some(info) = section.blocks.last_mut() {
                (info.len, info.rows) = (block.len() as u32, self.open_rows);
            }
        }
        let crc = checksum(self.seed, &[&block[..20], &block[BLOCK_HEADER_BYTES..]]);
        block[20..24].copy_from_slice(&crc.to_le_bytes());
        self.rows += u64::from(self.open_rows);
        self.offset += block.len() as u64;
        self.open_rows = 0;
        self.full.push(block);
    }

    /// Takes the pieces that are complete, in the order of the file. Cheap when there are none.
    pub fn take_full_blocks(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.full)
    }

    /// Returns whether [`take_full_blocks`](PartEncoder::take_full_blocks) has a block to give.
    pub fn has_full_blocks(&self) -> bool {
        !self.full.is_empty()
    }

    /// Gives back the buffer of a piece that was written, to be filled again; its content does not matter.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        // An unusually long row leaves an unusually large buffer: that is not kept. Nor are more than a few.
        if self.spare.len() < 8 && (BLOCK_BYTES..=2 * BLOCK_BYTES).contains(&buffer.capacity()) {
            self.spare.push(buffer);
        }
    }

    /// Length of the file so far, the open block included.
    pub fn bytes(&self) -> u64 {
        self.offset + if self.open_rows > 0 { self.open.len() as u64 } else { 0 }
    }

    /// Number of rows pushed.
    pub fn rows(&self) -> u64 {
        self.rows + u64::from(self.open_rows)
    }

    /// Completes the part: the last block, the footer and the trailer.
    ///
    /// # Errors
    /// [`CheckpointError::TooLong`] if the list of blocks cannot be encoded.
    pub fn finish(mut self) -> Result<FinishedPart, CheckpointError> {
        self.close_block();
        let mut tail = postcard::to_stdvec(&self.sections)
            .map_err(|_| CheckpointError::TooLong { table: 0, bytes: self.offset })?;
        let len = tail.len() as u64;
        let crc = checksum(self.seed, &[&tail]);
        let mut trailer = [0; TRAILER_BYTES];
        trailer[..8].copy_from_slice(&self.offset.to_le_bytes());
        trailer[8..16].copy_from_slice(&len.to_le_bytes());
        trailer[16..20].copy_from_slice(&crc.to_le_bytes());
        trailer[20..24].copy_from_slice(&TRAILER_MAGIC.to_le_bytes());
        let trailer_crc = checksum(self.seed, &[&trailer[..24]]);
        trailer[24..].copy_from_slice(&trailer_crc.to_le_bytes());
        tail.extend_from_slice(&trailer);
        let bytes = self.offset + tail.len() as u64;
        self.full.push(tail);
        let record = PartRecord { name: self.name, bytes, rows: self.rows, crc };
        Ok(FinishedPart { pieces: self.full, record })
    }
}

#[inline]
fn push_varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
