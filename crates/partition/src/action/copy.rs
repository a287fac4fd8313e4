//! Operations on encoded rows, for whoever keeps copies of them: another instance of a deployment, an export.
//!
//! Owns: copies of a row and of the rows of a range, the lock of a key alone, and the replacement of a row by an image. Never: decodes a row, or makes
//! dependents; whoever changed the copy has made them.

use std::ops::ControlFlow;

use atrapos_storage::KeyBuf;
use atrapos_storage::lock::LockTarget;

use super::{AccessKind as Kind, Operation, OperationKind, ResultShape, RowContext};
use crate::abort::{Abort, AbortReason};
use crate::planted::{Bug, planted};
use crate::range::KeyRange;

/// Copies the row of a key, or the first rows of a range.
#[derive(Clone, Copy, Debug)]
pub struct CopyRows {
    /// Rows of a range to copy, at most.
    pub rows_max: usize,
    /// Bytes of rows of a range after which no other is copied.
    pub bytes_max: usize,
    /// True if the last row of a range comes first.
    pub backward: bool,
}

/// Copies of rows, in the order in which they were found.
#[derive(Debug, Default)]
pub struct CopiedRows {
    /// The keys, each with the end of its row in `bytes`.
    pub rows: Vec<(KeyBuf, usize)>,
    /// The rows, one behind the other.
    pub bytes: Vec<u8>,
    /// True if a limit was reached: rows behind the last one may be left.
    pub stopped: bool,
    /// The part of the range beyond the partition.
    pub rest: Option<KeyRange>,
}

impl CopiedRows {
    /// Returns the keys and their rows.
    pub fn iter(&self) -> impl Iterator<Item = (&KeyBuf, &[u8])> {
        let mut start = 0;
        self.rows.iter().map(move |(key, end)| {
            let row = &self.bytes[start..*end];
            start = *end;
            (key, row)
        })
    }
}

impl Operation for CopyRows {
    type Output = CopiedRows;

    fn is_unlocked(&self) -> bool {
        planted(Bug::CopyNotLocked)
    }

    fn apply(self, at: &mut RowContext<'_>) -> Result<CopiedRows, Abort> {
        let mut copied = CopiedRows::default();
        if let LockTarget::Key(key) = &*at.target {
            if let Some((_, row)) = at.row() {
                copied.bytes.extend_from_slice(row);
                copied.rows.push((key.clone(), copied.bytes.len()));
            }
            return Ok(copied);
        }
        copied.stopped = at.walk(self.backward, |key, row| {
            copied.bytes.extend_from_slice(row);
            copied.rows.push((KeyBuf::from(key), copied.bytes.len()));
            let is_full = copied.rows.len() >= self.rows_max || copied.bytes.len() >= self.bytes_max;
            Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        copied.rest = at.left_out.take();
        Ok(copied)
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Scan, 0, ResultShape::KeysAndRows)
    }
}

/// Locks a key, whose row the caller copies where it is.
#[derive(Clone, Copy, Debug)]
pub struct LockKey;

impl Operation for LockKey {
    type Output = ();

    fn is_unlocked(&self) -> bool {
        planted(Bug::CopyNotLocked)
    }

    fn apply(self, _: &mut RowContext<'_>) -> Result<(), Abort> {
        Ok(())
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Read, 0, ResultShape::Nothing)
    }
}

/// Replaces the row of a key by an image of the same length, which nothing can prevent: it needs no memory.
#[derive(Debug)]
pub struct ReplaceImage(pub Vec<u8>);

impl Operation for ReplaceImage {
    type Output = ();

    fn apply(self, at: &mut RowContext<'_>) -> Result<(), Abort> {
        let position = at.locate();
        match at.row_at(position) {
            Some((version, row)) if row.len() == self.0.len() => at.patch_image(position, version, &self.0),
            _ => Err(Abort::because(
                AbortReason::Corruption,
                "an image that was to replace a row of the same length has found another one",
            )),
        }
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Update, self.0.len(), ResultShape::Nothing)
    }
}

/// A copy of the row of a key, in the place of the rows of a partition.
#[derive(Debug)]
pub struct CopiedRow<'a> {
    /// The row; `None` if there is none.
    pub row: Option<&'a [u8]>,
    /// The buffer for the row as the operation has changed it; `None` if it may change none.
    pub changed: Option<&'a mut Vec<u8>>,
    /// True if the operation has changed the row.
    pub is_changed: bool,
}

/// Replaces the row of a key by an image of it, whatever was there; `None` removes it.
#[derive(Debug)]
pub struct PutImage(pub Option<Vec<u8>>);

impl Operation for PutImage {
    type Output = ();

    fn apply(self, at: &mut RowContext<'_>) -> Result<(), Abort> {
        let Some(image) = self.0 else { return at.remove(None).map(drop) };
        let position = at.locate();
        match at.row_at(position).map(|(version, _)| version) {
            Some(version) => at.patch_image(position, version, &image),
            None => at.put(&image).map(drop),
        }
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Update, self.0.as_ref().map_or(0, Vec::len), ResultShape::Nothing)
    }
}
