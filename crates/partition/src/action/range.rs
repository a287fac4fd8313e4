//! Operations on a range of keys of a typed table or index. Rows are decoded by the worker that owns them.

use std::marker::PhantomData;
use std::ops::ControlFlow;

use atrapos_storage::{KeyBuf, Row, RowView};

use super::context::RowChange;
use super::{Operation, RowAccess, RowContext, RowOperation, guarded};
use crate::abort::Abort;
use crate::action::{AccessKind as Kind, OperationKind, ResultShape};
use crate::range::KeyRange;
use crate::schema::{Index, Table, TableRef, corrupt, decode_key, decode_row};

/// Walks the part of a range that lies in one partition. See `Tx::fold_views`.
#[derive(Debug)]
pub struct Fold<T: Table, A, F> {
    /// The result of the rows visited so far.
    accumulator: A,
    /// Adds one row to the accumulator.
    step: F,
    /// True if the last row comes first.
    backward: bool,
    /// True if the accumulator collects keys and rows.
    collects: bool,
    /// The table whose rows are walked.
    table: PhantomData<fn() -> T>,
}

impl<T: Table, A, F> Fold<T, A, F> {
    /// Creates a walk that feeds rows to `step`, the last one first if it goes `backward`. An accumulator that collects keys and
    /// rows is as large as they are, for the estimate of messages.
    #[doc(hidden)]
    pub fn new(accumulator: A, step: F, backward: bool, collects: bool) -> Fold<T, A, F> {
        Fold { accumulator, step, backward, collects, table: PhantomData }
    }
}

/// Result of a walk: the accumulator, the closure to go on with, and the range that is left.
#[derive(Debug)]
pub struct Folded<A, F> {
    /// The result of the rows visited so far.
    pub accumulator: A,
    /// The closure for the rows that are left.
    pub step: F,
    /// The range that is still to be walked.
    pub rest: Option<KeyRange>,
}

impl<T, A, F> Operation for Fold<T, A, F>
where
    T: Table,
    A: Send + 'static,
    F: FnMut(&mut A, T::Key, RowView<'_, T::Row>) -> ControlFlow<()> + Send + 'static,
{
    type Output = Folded<A, F>;

    #[inline]
    fn is_unlocked(&self) -> bool {
        T::READ_ONLY
    }

    fn apply(self, at: &mut RowContext<'_>) -> Result<Folded<A, F>, Abort> {
        self.apply_to(at)
    }

    fn kind(&self) -> OperationKind {
        // The accumulator travels both ways. Of its memory on the heap only the rows of a scan are counted.
        let brings = if self.collects { ResultShape::KeysAndRows } else { ResultShape::Nothing };
        OperationKind::new(Kind::Scan, size_of::<F>() + 2 * size_of::<A>(), brings)
    }
}

impl<T, A, F> RowOperation for Fold<T, A, F>
where
    T: Table,
    A: Send + 'static,
    F: FnMut(&mut A, T::Key, RowView<'_, T::Row>) -> ControlFlow<()> + Send + 'static,
{
    #[inline]
    fn apply_to(self, at: &mut impl RowAccess) -> Result<Folded<A, F>, Abort> {
        let Fold { mut accumulator, mut step, backward, .. } = self;
        let stopped = at.walk(backward, |key, row| {
            let key = decode_key::<T::Key>(key)?;
            let row = RowView::new(row).map_err(|error| corrupt("row", &error))?;
            guarded(|| step(&mut accumulator, key, row))
        })?;
        Ok(Folded { accumulator, step, rest: if stopped { None } else { at.take_left_out() } })
    }
}

/// Changes the rows of the part of a range that lies in one partition. See `Tx::update_range`.
pub struct UpdateRange<T: Table, F> {
    change: F,
    table: PhantomData<fn() -> T>,
}

impl<T: Table, F> UpdateRange<T, F> {
    /// Creates an operation that applies `change` to each row.
    pub fn new(change: F) -> UpdateRange<T, F> {
        const { TableRef::<T>::WRITABLE };
        UpdateRange { change, table: PhantomData }
    }
}

/// Result of a change of a range: the operation to go on with, the number of changed rows, and the range that is left.
pub struct RangeChanged<O> {
    /// The operation for the rest of the range.
    pub operation: O,
    /// Rows that were changed.
    pub changed: u64,
    /// The range that is still to be walked.
    pub rest: Option<KeyRange>,
}

impl<T, F> Operation for UpdateRange<T, F>
where
    T: Table,
    F: FnMut(&T::Key, &mut T::Row) + Send + 'static,
{
    type Output = RangeChanged<UpdateRange<T, F>>;

    fn apply(self, at: &mut RowContext<'_>) -> Result<Self::Output, Abort> {
        self.apply_to(at)
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Update, size_of::<F>(), ResultShape::Nothing)
    }
}

impl<T, F> RowOperation for UpdateRange<T, F>
where
    T: Table,
    F: FnMut(&T::Key, &mut T::Row) + Send + 'static,
{
    #[inline]
    fn apply_to(mut self, at: &mut impl RowAccess) -> Result<Self::Output, Abort> {
        let changed = at.change_range(&mut |key, old, new| {
            let (key, mut row) = (decode_key::<T::Key>(key)?, decode_row::<T::Row>(old)?);
            guarded(|| (self.change)(&key, &mut row))?;
            row.encode(new);
            Ok(RowChange::Replace)
        })?;
        Ok(RangeChanged { operation: self, changed, rest: at.take_left_out() })
    }
}

/// Deletes the rows of the part of a range that lies in one partition. See `Tx::delete_range`.
pub struct DeleteRange;

impl Operation for DeleteRange {
    type Output = RangeChanged<DeleteRange>;

    fn apply(self, at: &mut RowContext<'_>) -> Result<RangeChanged<DeleteRange>, Abort> {
        self.apply_to(at)
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Delete, 0, ResultShape::Nothing)
    }
}

impl RowOperation for DeleteRange {
    #[inline]
    fn apply_to(self, at: &mut impl RowAccess) -> Result<RangeChanged<DeleteRange>, Abort> {
        let changed = at.change_range(&mut |_, _, _| Ok(RowChange::Delete))?;
        Ok(RangeChanged { operation: self, changed, rest: at.take_left_out() })
    }
}

/// Collects the primary keys that an index leads to. See `Tx::lookup_all`.
#[derive(Debug)]
pub struct CollectKeys {
    /// The keys found so far.
    found: Vec<KeyBuf>,
    /// The greatest number of keys to collect.
    limit: usize,
    /// True if the last one comes first.
    backward: bool,
}

impl CollectKeys {
    /// Creates an operation that adds keys to those in `found` until there are `limit`, the last one first if it goes
    /// `backward`.
    #[doc(hidden)]
    pub fn new(found: Vec<KeyBuf>, limit: usize, backward: bool) -> CollectKeys {
        CollectKeys { found, limit, backward }
    }
}

/// Walks the entries of an index in the part of a range that lies in one partition. See `Transaction::lookup_each`.
#[derive(Debug)]
pub struct FoldKeys<I: Index, A, F> {
    /// The result of the entries visited so far.
    accumulator: A,
    /// Adds the primary key of one entry to the accumulator.
    step: F,
    /// The index whose entries are walked.
    index: PhantomData<fn() -> I>,
}

impl<I: Index, A, F> FoldKeys<I, A, F> {
    /// Creates a walk that feeds primary keys to `step`.
    #[doc(hidden)]
    pub fn new(accumulator: A, step: F) -> FoldKeys<I, A, F> {
        FoldKeys { accumulator, step, index: PhantomData }
    }
}

impl<I, A, F> Operation for FoldKeys<I, A, F>
where
    I: Index,
    A: Send + 'static,
    F: FnMut(&mut A, <I::Table as Table>::Key) -> ControlFlow<()> + Send + 'static,
{
    type Output = Folded<A, F>;

    fn apply(self, at: &mut RowContext<'_>) -> Result<Folded<A, F>, Abort> {
        self.apply_to(at)
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Scan, size_of::<F>() + 2 * size_of::<A>(), ResultShape::Nothing)
    }
}

impl<I, A, F> RowOperation for FoldKeys<I, A, F>
where
    I: Index,
    A: Send + 'static,
    F: FnMut(&mut A, <I::Table as Table>::Key) -> ControlFlow<()> + Send + 'static,
{
    #[inline]
    fn apply_to(self, at: &mut impl RowAccess) -> Result<Folded<A, F>, Abort> {
        let FoldKeys { mut accumulator, mut step, .. } = self;
        let stopped = at.walk(false, |_, primary_key| {
            let key = decode_key::<<I::Table as Table>::Key>(primary_key)?;
            guarded(|| step(&mut accumulator, key))
        })?;
        Ok(Folded { accumulator, step, rest: if stopped { None } else { at.take_left_out() } })
    }
}

/// Result of a collection: the keys that were found, and the range that is left.
#[derive(Debug)]
pub struct Collected {
    /// The keys that were found.
    pub found: Vec<KeyBuf>,
    /// The range that is left.
    pub rest: Option<KeyRange>,
}

impl Operation for CollectKeys {
    type Output = Collected;

    fn apply(self, at: &mut RowContext<'_>) -> Result<Collected, Abort> {
        self.apply_to(at)
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Scan, 0, ResultShape::Rows)
    }
}

impl RowOperation for CollectKeys {
    #[inline]
    fn apply_to(self, at: &mut impl RowAccess) -> Result<Collected, Abort> {
        let CollectKeys { mut found, limit, backward } = self;
        let stopped = at.walk(backward, |_, primary_key| {
            found.push(KeyBuf::from(primary_key));
            Ok(if found.len() >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(Collected { found, rest: if stopped { None } else { at.take_left_out() } })
    }
}
