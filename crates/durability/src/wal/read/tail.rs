//! The end of a stream: a torn tail, or damage.

use super::{CHUNK_BYTES, StreamReader, TornTail};
use crate::wal::WalError;
use crate::wal::frame::{FRAME_ALIGNMENT, FRAME_HEADER_BYTES, FRAME_MAGIC, FrameHeader};

impl StreamReader {
    /// Tells the end of the stream from damage, when no frame at `offset` is valid.
    pub(super) fn decide_on_tail(&mut self, end: u64) -> Result<(), WalError> {
        let segment = &self.segments[self.place];
        if self.place + 1 < self.segments.len() {
            let what =
                format!("frame {} is not valid, and the stream goes on in the next segment", self.next_frame);
            return Err(WalError::damaged(&segment.path, self.offset, what));
        }
        let mut last_used = None;
        let mut at = self.offset;
        let mut chunk = Vec::new();
        while at < end {
            let overlap = FRAME_HEADER_BYTES - FRAME_ALIGNMENT;
            // The tail is mostly zeros: small chunks first, as the next frame is near if there is one.
            let wanted = if at == self.offset { 4096 } else { CHUNK_BYTES };
            let bytes = usize::try_from(end - at).map_or(wanted, |rest| rest.min(wanted));
            chunk.resize(bytes, 0);
            let path = &segment.path;
            if self.file.is_none() {
                self.file = Some(self.fs.open(path, false).map_err(WalError::io(path, "open"))?);
            }
            let file = self.file.as_ref().expect("opened above");
            let read = file.read_at(at, &mut chunk).map_err(WalError::io(path, "read"))?;
            if read < bytes {
                return Err(WalError::damaged(path, at + read as u64, "the file has been cut short"));
            }
            if at == self.offset && segment.header.reused {
                last_used = self.torn_frame_end(&chunk, end);
            }
            if let Some(place) = last_nonzero(&chunk) {
                if !segment.header.reused {
                    last_used = Some(at + place as u64);
                }
                if let Some((place, header)) = self.find_later_frame(&chunk) {
                    let what = format!(
                        "frame {} is not valid, but frame {} at byte {} is, and was written after it",
                        self.next_frame,
                        header.number,
                        at + place as u64
                    );
                    return Err(WalError::damaged(path, self.offset, what));
                }
            }
            if at + bytes as u64 == end {
                break;
            }
            at += (bytes - overlap) as u64;
        }
        self.torn = last_used.map(|last| TornTail {
            path: segment.path.clone(),
            offset: self.offset,
            bytes: last + 1 - self.offset,
        });
        self.ended = true;
        Ok(())
    }

    /// The last byte of a frame at the front of `chunk` of which only the header is valid: all that can be told of a torn tail
    /// in a file that was used before.
    fn torn_frame_end(&self, chunk: &[u8], end: u64) -> Option<u64> {
        let header = FrameHeader::decode(chunk, self.segments[self.place].seed)?;
        let frame_end = self.offset + (FRAME_HEADER_BYTES + header.padded_bytes()) as u64;
        (header.number == self.next_frame).then_some(frame_end.min(end) - 1)
    }

    /// The header of a frame in `chunk` that was written after the one expected. Its payload does not matter: not even the
    /// header is written before the frame before it has been synced. A number that is not greater proves nothing: rows may
    /// hold copies of older frames.
    fn find_later_frame(&self, chunk: &[u8]) -> Option<(usize, FrameHeader)> {
        let seed = self.segments[self.place].seed;
        let (words, _) = chunk.as_chunks::<FRAME_ALIGNMENT>();
        for (place, word) in words.iter().enumerate() {
            if word[..4] == FRAME_MAGIC
                && let Some(header) = FrameHeader::decode(&chunk[place * FRAME_ALIGNMENT..], seed)
                && header.number > self.next_frame
            {
                return Some((place * FRAME_ALIGNMENT, header));
            }
        }
        None
    }
}

/// The place of the last byte that is not zero.
fn last_nonzero(bytes: &[u8]) -> Option<usize> {
    let (words, tail) = bytes.as_chunks::<8>();
    if let Some(place) = tail.iter().rposition(|byte| *byte != 0) {
        return Some(words.len() * 8 + place);
    }
    let place = words.iter().rposition(|word| u64::from_le_bytes(*word) != 0)?;
    words[place].iter().rposition(|byte| *byte != 0).map(|byte| place * 8 + byte)
}
