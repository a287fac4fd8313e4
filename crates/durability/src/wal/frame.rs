//! The headers of segments and frames, as bytes.
//!
//! Owns their layout and checksums. A header is believed only after its checksum has been compared; the checksum of a
//! frame's header includes the place the frame was written for, so that a frame copied from elsewhere is not valid.

use super::{Epoch, Incarnation, StreamId};

/// Bytes of the header of a segment: where its first frame is.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 80;
/// Bytes of the header of a frame.
pub(crate) const FRAME_HEADER_BYTES: usize = 32;
/// Frames begin at multiples of this.
pub(crate) const FRAME_ALIGNMENT: usize = 8;
/// The longest payload of a frame.
pub(crate) const MAX_PAYLOAD_BYTES: usize = 1 << 30;

/// The first bytes of every segment of every version.
pub(crate) const SEGMENT_MAGIC: [u8; 8] = *b"ATRAPOSW";
/// The first bytes of every frame.
pub(crate) const FRAME_MAGIC: [u8; 4] = *b"WFr1";
/// The version of the format that is written. Version 1, which has no long updates, and version 2, which has no segments in
/// files that were used before, are read as well.
pub(crate) const FORMAT_VERSION: u32 = 4;
const FORMAT_VERSION_MIN: u32 = 1;

/// Identifies a segment: database, stream and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentId {
    pub(crate) database: u128,
    pub(crate) incarnation: Incarnation,
    pub(crate) stream: StreamId,
    pub(crate) segment: u32,
}

impl SegmentId {
    /// A checksum to start those of the segment's frames from.
    pub(crate) fn seed(&self) -> u32 {
        let mut crc = crc32fast::Hasher::new();
        crc.update(&self.database.to_le_bytes());
        crc.update(&self.incarnation.0.to_le_bytes());
        crc.update(&self.stream.0.to_le_bytes());
        crc.update(&self.segment.to_le_bytes());
        crc.finalize()
    }
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) id: SegmentId,
    /// The number of the first frame in the segment; that of the last frame of the segment before is one less.
    pub(crate) first_frame: u64,
    /// The epoch sealed by the last frame before this segment.
    pub(crate) sealed: Epoch,
    /// Length of the segment before, to the end of its frames; 0 for the first segment.
    pub(crate) previous_length: u64,
    /// The length of the file.
    pub(crate) reserved: u64,
    /// Set if the file was an earlier segment: what follows its frames is of no meaning, instead of zeros.
    pub(crate) reused: bool,
}

/// Reasons for which bytes are not the header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentHeaderError {
    Short,
    Magic,
    Checksum,
    Version(u32),
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        bytes[0..8].copy_from_slice(&SEGMENT_MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.id.stream.0.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.id.database.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.id.incarnation.0.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.id.segment.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.first_frame.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.sealed.0.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.previous_length.to_le_bytes());
        bytes[64..72].copy_from_slice(&self.reserved.to_le_bytes());
        bytes[72] = u8::from(self.reused);
        let crc = crc32fast::hash(&bytes[..76]);
        bytes[76..80].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<SegmentHeader, SegmentHeaderError> {
        let Some(bytes) = bytes.first_chunk::<SEGMENT_HEADER_BYTES>() else {
            return Err(SegmentHeaderError::Short);
        };
        if bytes[0..8] != SEGMENT_MAGIC {
            return Err(SegmentHeaderError::Magic);
        }
        // Before the version: a flipped bit in the version is damage, not another version.
        if crc32fast::hash(&bytes[..76]) != u32_at(bytes, 76) {
            return Err(SegmentHeaderError::Checksum);
        }
        let version = u32_at(bytes, 8);
        if !(FORMAT_VERSION_MIN..=FORMAT_VERSION).contains(&version) {
            return Err(SegmentHeaderError::Version(version));
        }
        Ok(SegmentHeader {
            id: SegmentId {
                stream: StreamId(u16::from_le_bytes([bytes[12], bytes[13]])),
                database: u128::from(u64_at(bytes, 16)) | u128::from(u64_at(bytes, 24)) << 64,
                incarnation: Incarnation(u32_at(bytes, 32)),
                segment: u32_at(bytes, 36),
            },
            first_frame: u64_at(bytes, 40),
            sealed: Epoch(u64_at(bytes, 48)),
            previous_length: u64_at(bytes, 56),
            reserved: u64_at(bytes, 64),
            reused: bytes[72] == 1,
        })
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    /// Bytes of the payload, without the zeros after it.
    pub(crate) payload_bytes: u32,
    pub(crate) number: u64,
    pub(crate) sealed: Epoch,
    /// Checksum of the payload and the zeros after it.
    pub(crate) payload_crc: u32,
}

impl FrameHeader {
    pub(crate) fn encode(&self, seed: u32) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&FRAME_MAGIC);
        bytes[4..8].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sealed.0.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.payload_crc.to_le_bytes());
        let crc = seeded_crc(seed, &bytes[..28]);
        bytes[28..32].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The header at the front of `bytes`, or `None` when there is no valid one.
    pub(crate) fn decode(bytes: &[u8], seed: u32) -> Option<FrameHeader> {
        let bytes = bytes.first_chunk::<FRAME_HEADER_BYTES>()?;
        if bytes[0..4] != FRAME_MAGIC || seeded_crc(seed, &bytes[..28]) != u32_at(bytes, 28) {
            return None;
        }
        let payload_bytes = u32_at(bytes, 4);
        if payload_bytes as usize > MAX_PAYLOAD_BYTES {
            return None;
        }
        Some(FrameHeader {
            payload_bytes,
            number: u64_at(bytes, 8),
            sealed: Epoch(u64_at(bytes, 16)),
            payload_crc: u32_at(bytes, 24),
        })
    }

    /// Bytes of the payload and the zeros after it.
    pub(crate) fn padded_bytes(&self) -> usize {
        (self.payload_bytes as usize).next_multiple_of(FRAME_ALIGNMENT)
    }
}

fn seeded_crc(seed: u32, bytes: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new_with_initial(seed);
    crc.update(bytes);
    crc.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
