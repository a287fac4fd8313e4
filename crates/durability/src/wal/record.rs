//! The record: all changes of one transaction, as bytes.
//!
//! Owns the encoding and decoding of records and changes. Encoding is on the path of every transaction: it pushes bytes on a
//! vector and does nothing else. Decoding never panics, allocates nothing and reads nothing outside the bytes it was given,
//! whatever they are.

use super::Epoch;
use super::frame::MAX_PAYLOAD_BYTES;

/// Bytes before the changes of a record: their length (`u32`) and the epoch (`u64`).
pub(crate) const RECORD_HEADER_BYTES: usize = 12;

/// The longest changes of one transaction that [`push_record`] takes: a record is never divided among frames.
pub const CHANGES_BYTES_MAX: usize = MAX_PAYLOAD_BYTES - RECORD_HEADER_BYTES;

const OP_PUT: u8 = 1;
const OP_PATCH: u8 = 2;
const OP_REMOVE: u8 = 3;

/// Equal bytes between two differences that are cheaper to repeat than to leave out: a range costs four bytes.
const MERGED_GAP_BYTES: usize = 4;

#[inline]
fn push_change_header(out: &mut Vec<u8>, op: u8, table: u16, key: &[u8], version: u64) {
    // One growth for all that is pushed below.
    out.reserve(1 + 2 + 5 + key.len() + 8);
    out.push(op);
    out.extend_from_slice(&table.to_le_bytes());
    let mut rest = key.len();
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
    out.extend_from_slice(key);
    out.extend_from_slice(&version.to_le_bytes());
}

#[inline]
fn push_row(out: &mut Vec<u8>, row: &[u8]) {
    let len = u32::try_from(row.len()).expect("rows are shorter than 4 GiB");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(row);
}

/// Encodes that `key` of `table` has the row `row` from `version` on.
#[inline]
pub fn push_put(out: &mut Vec<u8>, table: u16, key: &[u8], version: u64, row: &[u8]) {
    push_change_header(out, OP_PUT, table, key, version);
    push_row(out, row);
}

/// Encodes that the row of `key` of `table` went from `old` to `new` with `version`: only the bytes that differ, where that
/// is shorter than the row.
#[inline]
pub fn push_update(out: &mut Vec<u8>, table: u16, key: &[u8], version: u64, old: &[u8], new: &[u8]) {
    if old.len() != new.len() || new.len() > usize::from(u16::MAX) {
        push_put(out, table, key, version, new);
        return;
    }
    let op_at = out.len();
    push_change_header(out, OP_PATCH, table, key, version);
    let body_at = out.len();
    if !push_ranges(out, old, new) {
        out[op_at] = OP_PUT;
        out.truncate(body_at);
        push_row(out, new);
    }
}

/// Encodes that `key` of `table` has no row any more, from `version` on.
#[inline]
pub fn push_remove(out: &mut Vec<u8>, table: u16, key: &[u8], version: u64) {
    push_change_header(out, OP_REMOVE, table, key, version);
}

/// Encodes the record of one transaction around its changes, which the functions above have encoded.
///
/// # Panics
/// When the changes are 4 GiB or more. Those longer than [`CHANGES_BYTES_MAX`] are refused when they are to be written.
#[inline]
pub fn push_record(out: &mut Vec<u8>, epoch: Epoch, changes: &[u8]) {
    let len = u32::try_from(changes.len()).expect("the changes of one transaction are shorter than 4 GiB");
    out.reserve(RECORD_HEADER_BYTES + changes.len());
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&epoch.0.to_le_bytes());
    out.extend_from_slice(changes);
}

/// Pushes the ranges in which `new` differs from `old`; false, with any of them pushed, when the whole row is shorter.
#[inline]
fn push_ranges(out: &mut Vec<u8>, old: &[u8], new: &[u8]) -> bool {
    let count_at = out.len();
    let limit = count_at + 4 + new.len();
    out.push(0);
    let mut ranges = 0_u8;
    let mut from = next_difference(old, new, 0);
    while from < new.len() {
        // The range goes on to the last difference that has no more than the merged gap before it.
        let mut to = from + 1;
        let next = loop {
            let next = next_difference(old, new, to);
            if next == new.len() || next - to > MERGED_GAP_BYTES {
                break next;
            }
            to = next + 1;
        };
        if ranges == u8::MAX || out.len() + 4 + (to - from) > limit {
            return false;
        }
        ranges += 1;
        out.extend_from_slice(&(from as u16).to_le_bytes());
        out.extend_from_slice(&((to - from) as u16).to_le_bytes());
        out.extend_from_slice(&new[from..to]);
        from = next;
    }
    out[count_at] = ranges;
    true
}

/// The first place from `at` on where the two differ; their length when there is none.
#[inline]
fn next_difference(old: &[u8], new: &[u8], at: usize) -> usize {
    let (old_rest, new_rest) = (&old[at..], &new[at..]);
    let (old_words, old_tail) = old_rest.as_chunks::<8>();
    let (new_words, new_tail) = new_rest.as_chunks::<8>();
    for (place, (old, new)) in old_words.iter().zip(new_words).enumerate() {
        let difference = u64::from_le_bytes(*old) ^ u64::from_le_bytes(*new);
        if difference != 0 {
            return at + place * 8 + difference.trailing_zeros() as usize / 8;
        }
    }
    let tail_at = at + old_words.len() * 8;
    for (place, (old, new)) in old_tail.iter().zip(new_tail).enumerate() {
        if old != new {
            return tail_at + place;
        }
    }
    new.len()
}

/// Bytes that are not what [`push_record`] and the functions beside it write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("WAL bytes are malformed at byte {at}: {what}; restore the database from a backup")]
pub struct FormatError {
    /// Where, in bytes from the start of what was decoded.
    pub at: usize,
    /// What is wrong.
    pub what: &'static str,
}

/// Takes pieces from the front of some bytes.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    #[inline]
    fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], FormatError> {
        match self.bytes.get(self.at..).and_then(|rest| rest.get(..len)) {
            Some(piece) => {
                self.at += len;
                Ok(piece)
            }
            None => Err(FormatError { at: self.at, what }),
        }
    }

    #[inline]
    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], FormatError> {
        let at = self.at;
        self.take(N, what)?.try_into().map_err(|_| FormatError { at, what })
    }

    /// A length in groups of seven bits, lowest first, in the shortest form.
    #[inline]
    fn varint(&mut self) -> Result<usize, FormatError> {
        let at = self.at;
        let mut value = 0_u64;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array("the length of a key is cut short")?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                if byte == 0 && shift > 0 {
                    return Err(FormatError { at, what: "the length of a key is not in its shortest form" });
                }
                return usize::try_from(value)
                    .map_err(|_| FormatError { at, what: "the length of a key is out of range" });
            }
        }
        Err(FormatError { at, what: "the length of a key is out of range" })
    }
}

/// All changes of one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The epoch the transaction committed in.
    pub epoch: Epoch,
    /// Its changes, encoded: for [`Changes::new`].
    pub changes: &'a [u8],
}

/// The records in the payload of a frame, in the order they were written. Ends after the first error.
#[derive(Debug)]
pub struct Records<'a> {
    payload: &'a [u8],
    at: usize,
}

impl<'a> Records<'a> {
    /// The records in `payload`.
    #[inline]
    #[must_use]
    pub fn new(payload: &'a [u8]) -> Records<'a> {
        Records { payload, at: 0 }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, FormatError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.payload.len() {
            return None;
        }
        let mut cursor = Cursor { bytes: self.payload, at: self.at };
        let record = decode_record(&mut cursor);
        self.at = if record.is_ok() { cursor.at } else { self.payload.len() };
        Some(record)
    }
}

#[inline]
fn decode_record<'a>(cursor: &mut Cursor<'a>) -> Result<Record<'a>, FormatError> {
    let len = u32::from_le_bytes(cursor.array("the header of a record is cut short")?);
    let epoch = Epoch(u64::from_le_bytes(cursor.array("the header of a record is cut short")?));
    let changes = cursor.take(len as usize, "the changes of a record are cut short")?;
    Ok(Record { epoch, changes })
}

/// What became of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// The number of the table in the schema.
    pub table: u16,
    /// The primary key.
    pub key: &'a [u8],
    /// The version the row's owner gave to this change.
    pub version: u64,
    /// What was done.
    pub op: Op<'a>,
}

/// What was done to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// It is these bytes now, whether or not there was one before.
    Put(&'a [u8]),
    /// Some of its bytes changed; its length did not.
    Patch(Patch<'a>),
    /// It is gone.
    Remove,
}

/// The bytes of a row that an update changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch<'a> {
    /// Whole ranges: [`decode_change`] has walked through them.
    ranges: &'a [u8],
}

impl<'a> Patch<'a> {
    /// The ranges, in order.
    #[must_use]
    pub fn ranges(&self) -> PatchRanges<'a> {
        PatchRanges { cursor: Cursor { bytes: self.ranges, at: 0 } }
    }

    /// Turns the row before the update into the row after it.
    ///
    /// # Errors
    /// When a range lies outside `row`, which then is unchanged.
    #[inline]
    pub fn apply(&self, row: &mut [u8]) -> Result<(), FormatError> {
        for range in self.ranges() {
            if usize::from(range.offset) + range.bytes.len() > row.len() {
                return Err(FormatError {
                    at: usize::from(range.offset),
                    what: "an update reaches past the end of the row it is for",
                });
            }
        }
        for range in self.ranges() {
            let offset = usize::from(range.offset);
            row[offset..offset + range.bytes.len()].copy_from_slice(range.bytes);
        }
        Ok(())
    }
}

/// Adjacent bytes of a row that an update changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchRange<'a> {
    /// Where in the row.
    pub offset: u16,
    /// The new bytes.
    pub bytes: &'a [u8],
}

/// The ranges of a [`Patch`].
pub struct PatchRanges<'a> {
    cursor: Cursor<'a>,
}

impl std::fmt::Debug for PatchRanges<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PatchRanges").field("at", &self.cursor.at).finish_non_exhaustive()
    }
}

impl<'a> Iterator for PatchRanges<'a> {
    type Item = PatchRange<'a>;

    #[inline]
    fn next(&mut self) -> Option<PatchRange<'a>> {
        decode_range(&mut self.cursor).ok()
    }
}

#[inline]
fn decode_range<'a>(cursor: &mut Cursor<'a>) -> Result<PatchRange<'a>, FormatError> {
    let offset = u16::from_le_bytes(cursor.array("a range of an update is cut short")?);
    let len = u16::from_le_bytes(cursor.array("a range of an update is cut short")?);
    let bytes = cursor.take(usize::from(len), "a range of an update is cut short")?;
    Ok(PatchRange { offset, bytes })
}

/// The changes of one record, in the order they were made. Ends after the first error.
#[derive(Debug)]
pub struct Changes<'a> {
    changes: &'a [u8],
    at: usize,
}

impl<'a> Changes<'a> {
    /// The changes in `changes`, which is [`Record::changes`].
    #[inline]
    #[must_use]
    pub fn new(changes: &'a [u8]) -> Changes<'a> {
        Changes { changes, at: 0 }
    }

    /// Where the next change begins: what lies between two such places is one change, encoded.
    #[inline]
    #[must_use]
    pub fn offset(&self) -> usize {
        self.at
    }
}

impl<'a> Iterator for Changes<'a> {
    type Item = Result<Change<'a>, FormatError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.changes.len() {
            return None;
        }
        let mut cursor = Cursor { bytes: self.changes, at: self.at };
        let change = decode_change(&mut cursor);
        self.at = if change.is_ok() { cursor.at } else { self.changes.len() };
        Some(change)
    }
}

#[inline]
fn decode_change<'a>(cursor: &mut Cursor<'a>) -> Result<Change<'a>, FormatError> {
    let op_at = cursor.at;
    let [op] = cursor.array("a change is cut short")?;
    let table = u16::from_le_bytes(cursor.array("the table of a change is cut short")?);
    let key_len = cursor.varint()?;
    let key = cursor.take(key_len, "the key of a change is cut short")?;
    let version = u64::from_le_bytes(cursor.array("the version of a change is cut short")?);
    let op = match op {
        OP_PUT => {
            let len = u32::from_le_bytes(cursor.array("the length of a row is cut short")?);
            Op::Put(cursor.take(len as usize, "a row is cut short")?)
        }
        OP_PATCH => {
            let [count] = cursor.array("an update is cut short")?;
            let from = cursor.at;
            for _ in 0..count {
                decode_range(cursor)?;
            }
            Op::Patch(Patch { ranges: &cursor.bytes[from..cursor.at] })
        }
        OP_REMOVE => Op::Remove,
        _ => return Err(FormatError { at: op_at, what: "a change is of an unknown kind" }),
    };
    Ok(Change { table, key, version, op })
}
