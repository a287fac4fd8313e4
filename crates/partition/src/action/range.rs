//! Operations on a range of keys of a typed table or index: what they read is decoded where it is.

use std::any::TypeId;
use std::marker::PhantomData;
use std::ops::ControlFlow;

use atrapos_storage::{KeyBuf, Row};

use super::context::RowChange;
use super::{Operation, RowContext, guarded};
use crate::abort::Abort;
use crate::action::{AccessKind as Kind, OperationKind, ResultShape};
use crate::range::KeyRange;
use crate::schema::{Table, TableRef, decode_key, decode_row};

/// Walks the part of a range that lies in one partition. See `Tx::fold`.
#[derive(Debug)]
pub struct Fold<T: Table, A, F> {
    /// What has been made of the rows so far.
    accumulator: A,
    /// Takes in one row.
    step: F,
    /// Whether the last row comes first.
    backward: bool,
    /// Whose rows are walked.
    table: PhantomData<fn() -> T>,
}

impl<T: Table, A, F> Fold<T, A, F> {
    /// Feeds rows to `step`, the last one first if it goes `backward`.
    #[doc(hidden)]
    pub fn new(accumulator: A, step: F, backward: bool) -> Fold<T, A, F> {
        Fold { accumulator, step, backward, table: PhantomData }
    }
}

/// What a walk brings back: the accumulator, the closure to go on with, and what is left to walk.
#[derive(Debug)]
pub struct Folded<A, F> {
    /// What was made of the rows.
    pub accumulator: A,
    /// Takes in the rows that are left.
    pub step: F,
    /// What is still to be walked.
    pub rest: Option<KeyRange>,
}

impl<T, A, F> Operation for Fold<T, A, F>
where
    T: Table,
    A: Send + 'static,
    F: FnMut(&mut A, T::Key, T::Row) -> ControlFlow<()> + Send + 'static,
{
    type Output = Folded<A, F>;

    #[inline]
    fn is_unlocked(&self) -> bool {
        T::READ_ONLY
    }

    fn apply(self, at: &mut RowContext<'_>) -> Result<Folded<A, F>, Abort> {
        let Fold { mut accumulator, mut step, backward, .. } = self;
        let stopped = at.walk(backward, |key, row| {
            let key = decode_key::<T::Key>(key)?;
            let row = decode_row::<T::Row>(row)?;
            guarded(|| step(&mut accumulator, key, row))
        })?;
        Ok(Folded { accumulator, step, rest: if stopped { None } else { at.left_out.take() } })
    }

    fn kind(&self) -> OperationKind {
        // The accumulator goes there and comes back. Of what is on the heap only the rows of a scan are known.
        let collects = TypeId::of::<A>() == TypeId::of::<Vec<(T::Key, T::Row)>>();
        let brings = if collects { ResultShape::KeysAndRows } else { ResultShape::Nothing };
        OperationKind::new(Kind::Scan, size_of::<F>() + 2 * size_of::<A>(), brings)
    }
}

/// Changes the rows of the part of a range that lies in one partition. See `Tx::update_range`.
pub struct UpdateRange<T: Table, F> {
    change: F,
    table: PhantomData<fn() -> T>,
}

impl<T: Table, F> UpdateRange<T, F> {
    /// Applies `change` to each row.
    pub fn new(change: F) -> UpdateRange<T, F> {
        const { TableRef::<T>::WRITABLE };
        UpdateRange { change, table: PhantomData }
    }
}

/// What a change of a range brings back: the operation to go on with, how many rows it has changed, and what is left.
pub struct RangeChanged<O> {
    /// What goes on with the rest.
    pub operation: O,
    /// Rows that were changed.
    pub changed: u64,
    /// What is still to be walked.
    pub rest: Option<KeyRange>,
}

impl<T, F> Operation for UpdateRange<T, F>
where
    T: Table,
    F: FnMut(&T::Key, &mut T::Row) + Send + 'static,
{
    type Output = RangeChanged<UpdateRange<T, F>>;

    fn apply(mut self, at: &mut RowContext<'_>) -> Result<Self::Output, Abort> {
        let changed = at.change_range(&mut |key, old, new| {
            let (key, mut row) = (decode_key::<T::Key>(key)?, decode_row::<T::Row>(old)?);
            guarded(|| (self.change)(&key, &mut row))?;
            row.encode(new);
            Ok(RowChange::Replace)
        })?;
        Ok(RangeChanged { operation: self, changed, rest: at.left_out.take() })
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Update, size_of::<F>(), ResultShape::Nothing)
    }
}

/// Deletes the rows of the part of a range that lies in one partition. See `Tx::delete_range`.
pub struct DeleteRange;

impl Operation for DeleteRange {
    type Output = RangeChanged<DeleteRange>;

    fn apply(self, at: &mut RowContext<'_>) -> Result<RangeChanged<DeleteRange>, Abort> {
        let changed = at.change_range(&mut |_, _, _| Ok(RowChange::Delete))?;
        Ok(RangeChanged { operation: self, changed, rest: at.left_out.take() })
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Delete, 0, ResultShape::Nothing)
    }
}

/// Collects the primary keys that an index leads to. See `Tx::lookup_all`.
#[derive(Debug)]
pub struct CollectKeys {
    /// What was found so far.
    found: Vec<KeyBuf>,
    /// At most so many.
    limit: usize,
    /// Whether the last one comes first.
    backward: bool,
}

impl CollectKeys {
    /// Adds keys to those that were `found` until there are `limit`, the last one first if it goes `backward`.
    #[doc(hidden)]
    pub fn new(found: Vec<KeyBuf>, limit: usize, backward: bool) -> CollectKeys {
        CollectKeys { found, limit, backward }
    }
}

/// The keys that were found, and what is left to look through.
#[derive(Debug)]
pub struct Collected {
    /// What was found.
    pub found: Vec<KeyBuf>,
    /// What is left to look through.
    pub rest: Option<KeyRange>,
}

impl Operation for CollectKeys {
    type Output = Collected;

    fn apply(self, at: &mut RowContext<'_>) -> Result<Collected, Abort> {
        let CollectKeys { mut found, limit, backward } = self;
        let stopped = at.walk(backward, |_, primary_key| {
            found.push(KeyBuf::from(primary_key));
            Ok(if found.len() >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(Collected { found, rest: if stopped { None } else { at.left_out.take() } })
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Scan, 0, ResultShape::Rows)
    }
}
