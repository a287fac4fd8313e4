//! The record: all changes of one transaction, as bytes.
//!
//! Owns the encoding and decoding of records and changes. Encoding is on the path of every transaction: it pushes bytes on a
//! vector and does nothing else. Decoding never panics, allocates nothing and reads nothing outside the bytes it was given,
//! whatever they are.

use std::ops::Range;

use super::Epoch;
use super::frame::MAX_PAYLOAD_BYTES;
use super::patch::{Patch, push_places, push_ranges};

/// Bytes before the changes of a record: their length (`u32`) and the epoch (`u64`).
pub(crate) const RECORD_HEADER_BYTES: usize = 12;

/// The longest changes of one transaction that [`push_record`] takes: a record is never divided among frames.
pub const CHANGES_BYTES_MAX: usize = MAX_PAYLOAD_BYTES - RECORD_HEADER_BYTES;

const OP_PUT: u8 = 1;
const OP_PATCH: u8 = 2;
const OP_REMOVE: u8 = 3;
const OP_PATCH_LONG: u8 = 4;

/// The longest key of a change that is encoded as one piece of fixed length.
const SHORT_KEY_BYTES: usize = 16;

#[inline(always)]
fn push_change_header(out: &mut Vec<u8>, op: u8, table: u16, key: &[u8], version: u64) {
    let [low, high] = table.to_le_bytes();
    let len = key.len();
    if len > SHORT_KEY_BYTES {
        return push_long_change_header(out, [op, low, high], key, version);
    }
    // Room for the longest, of which the rest is taken away again: copies of lengths that the compiler knows need no calls.
    let at = out.len();
    out.extend_from_slice(&[0; 4 + SHORT_KEY_BYTES + 8]);
    let piece = &mut out[at..];
    piece[..4].copy_from_slice(&[op, low, high, len as u8]);
    copy_short(&mut piece[4..4 + SHORT_KEY_BYTES], key);
    piece[4 + len..4 + len + 8].copy_from_slice(&version.to_le_bytes());
    out.truncate(at + 4 + len + 8);
}

/// Copies up to sixteen bytes to the beginning of `to`, by words that may overlap.
#[inline(always)]
fn copy_short(to: &mut [u8], from: &[u8]) {
    let len = from.len();
    if let (Some(first), Some(last)) = (from.first_chunk::<8>(), from.last_chunk::<8>()) {
        to[..8].copy_from_slice(first);
        to[len - 8..len].copy_from_slice(last);
    } else if let (Some(first), Some(last)) = (from.first_chunk::<4>(), from.last_chunk::<4>()) {
        to[..4].copy_from_slice(first);
        to[len - 4..len].copy_from_slice(last);
    } else {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    }
}

#[inline(never)]
fn push_long_change_header(out: &mut Vec<u8>, begin: [u8; 3], key: &[u8], version: u64) {
    // One growth for all that is pushed below.
    out.reserve(begin.len() + 5 + key.len() + 8);
    out.extend_from_slice(&begin);
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
    if old.len() != new.len() {
        push_put(out, table, key, version, new);
        return;
    }
    push_patch(out, table, key, version, new, |out, is_long| {
        if is_long { push_ranges::<true>(out, old, new) } else { push_ranges::<false>(out, old, new) }
    });
}

/// Encodes that bytes of the row of `key` of `table` went from what `overwritten` has to those of `new`, with `version`; the whole row,
/// where that is shorter. `overwritten` has a place and its old bytes each, behind which there may be zeros to fill a word of eight;
/// places may overlap.
#[inline]
pub fn push_edit<'a>(
    out: &mut Vec<u8>,
    table: u16,
    key: &[u8],
    version: u64,
    overwritten: impl Iterator<Item = (Range<usize>, &'a [u8])>,
    new: &[u8],
) {
    push_patch(out, table, key, version, new, |out, is_long| {
        if is_long {
            push_places::<true>(out, overwritten, new)
        } else {
            push_places::<false>(out, overwritten, new)
        }
    });
}

/// Encodes a change of a row by the ranges that `push` pushes, or by the whole row if that is shorter: `push` returns false then.
#[inline(always)]
fn push_patch(
    out: &mut Vec<u8>,
    table: u16,
    key: &[u8],
    version: u64,
    new: &[u8],
    push: impl FnOnce(&mut Vec<u8>, bool) -> bool,
) {
    let op_at = out.len();
    let is_long = new.len() > usize::from(u16::MAX);
    push_change_header(out, if is_long { OP_PATCH_LONG } else { OP_PATCH }, table, key, version);
    let body_at = out.len();
    if !push(out, is_long) {
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
    let mut header = [0; RECORD_HEADER_BYTES];
    header[..4].copy_from_slice(&len.to_le_bytes());
    header[4..].copy_from_slice(&epoch.0.to_le_bytes());
    out.reserve(RECORD_HEADER_BYTES + changes.len());
    out.extend_from_slice(&header);
    out.extend_from_slice(changes);
}

/// Bytes that are not what [`push_record`] and the functions beside it write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("WAL bytes are malformed at byte {at}: {what}; restore the database from a backup")]
pub struct FormatError {
    /// Offset in bytes from the start of the decoded input.
    pub at: usize,
    /// The contradiction found.
    pub what: &'static str,
}

/// Takes pieces from the front of some bytes.
pub(super) struct Cursor<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    #[inline]
    pub(super) fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], FormatError> {
        match self.bytes.get(self.at..).and_then(|rest| rest.get(..len)) {
            Some(piece) => {
                self.at += len;
                Ok(piece)
            }
            None => Err(FormatError { at: self.at, what }),
        }
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], FormatError> {
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

/// All changes of one transaction, or a [note](super::Note) on one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The epoch the transaction committed in, or that of the note.
    pub epoch: Epoch,
    /// A note, if there is one, and the changes, encoded: for [`split`](Record::split).
    pub(super) contents: &'a [u8],
}

impl Record<'_> {
    /// Bytes of the note and the changes.
    #[must_use]
    pub fn contents_len(&self) -> usize {
        self.contents.len()
    }
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

    /// The next record, if it begins before byte `end`.
    #[inline]
    pub(crate) fn next_before(&mut self, end: usize) -> Option<Result<Record<'a>, FormatError>> {
        if self.at < end { self.next() } else { None }
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
    let contents = cursor.take(len as usize, "the changes of a record are cut short")?;
    Ok(Record { epoch, contents })
}

/// A change of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// The number of the table in the schema.
    pub table: u16,
    /// The primary key.
    pub key: &'a [u8],
    /// The version the row's owner gave to this change.
    pub version: u64,
    /// The change itself.
    pub op: Op<'a>,
}

/// Operations on a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// Writes these bytes, whether or not there was a row before.
    Put(&'a [u8]),
    /// Changes some of its bytes; its length stays.
    Patch(Patch<'a>),
    /// Removes the row.
    Remove,
}

/// The changes of one record, in the order they were made. Ends after the first error.
#[derive(Debug)]
pub struct Changes<'a> {
    changes: &'a [u8],
    at: usize,
}

impl<'a> Changes<'a> {
    /// The changes in `changes`, of [`Record::split`].
    #[inline]
    #[must_use]
    pub fn new(changes: &'a [u8]) -> Changes<'a> {
        Changes { changes, at: 0 }
    }

    /// Offset at which the next change begins: the bytes between two such offsets are one change, encoded.
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
        OP_PATCH => Op::Patch(Patch::decode(cursor, false)?),
        OP_PATCH_LONG => Op::Patch(Patch::decode(cursor, true)?),
        OP_REMOVE => Op::Remove,
        _ => return Err(FormatError { at: op_at, what: "a change is of an unknown kind" }),
    };
    Ok(Change { table, key, version, op })
}
