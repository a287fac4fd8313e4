//! Reads and changes of ranges of a table that is known by its definition, each under one lock.

use std::convert::Infallible;
use std::ops::ControlFlow;

use atrapos_catalog::Value;
use atrapos_partition::abort::Abort;
use atrapos_partition::action::{
    AccessKind as Kind, Action, Folded, Operation, OperationKind, RangeChanged, ResultShape, RowChange,
    RowContext, guarded,
};
use atrapos_partition::dynamic::{DynRow, TableHandle};
use atrapos_partition::range::KeyRange;
use atrapos_storage::KeyBuf;
use atrapos_storage::lock::LockMode;

use crate::tx::Tx;

/// Walks the part of a range that lies in one partition.
struct FoldRows<A, F> {
    accumulator: A,
    step: F,
    backward: bool,
}

impl<A, F> Operation for FoldRows<A, F>
where
    A: Send + 'static,
    F: FnMut(&mut A, DynRow) -> ControlFlow<()> + Send + 'static,
{
    type Output = Folded<A, F>;

    fn apply(self, at: &mut RowContext<'_>) -> Result<Folded<A, F>, Abort> {
        let FoldRows { mut accumulator, mut step, backward } = self;
        let table = at.id.table;
        let stopped = at.walk(backward, |key, row| {
            let row = DynRow::new(table, KeyBuf::from(key), row);
            guarded(|| step(&mut accumulator, row))
        })?;
        Ok(Folded { accumulator, step, rest: if stopped { None } else { at.left_out.take() } })
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Scan, size_of::<F>() + 2 * size_of::<A>(), ResultShape::KeysAndRows)
    }
}

/// Changes columns of all rows of the part of a range that lies in one partition.
struct UpdateRows {
    assigned: Vec<(usize, Value)>,
}

impl Operation for UpdateRows {
    type Output = RangeChanged<UpdateRows>;

    fn apply(self, at: &mut RowContext<'_>) -> Result<RangeChanged<UpdateRows>, Abort> {
        let layout = at.layout();
        let changed = at.change_range(&mut |_, old, new| {
            layout.assign(old, &self.assigned, new)?;
            Ok(RowChange::Replace)
        })?;
        Ok(RangeChanged { operation: self, changed, rest: at.left_out.take() })
    }

    fn kind(&self) -> OperationKind {
        let bytes = self.assigned.len() * size_of::<Value>();
        OperationKind::new(Kind::Update, bytes, ResultShape::Nothing)
    }
}

/// Looks for a row in the part of a range that lies in one partition.
struct FindRow;

impl Operation for FindRow {
    type Output = (bool, Option<KeyRange>);

    fn apply(self, at: &mut RowContext<'_>) -> Result<(bool, Option<KeyRange>), Abort> {
        // All of the range is locked, not only what is before the first row.
        at.may_narrow = false;
        let found = at.walk(false, |_, _| Ok(ControlFlow::Break(())))?;
        Ok((found, at.left_out.take()))
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Scan, 0, ResultShape::Nothing)
    }
}

/// Returns at most `limit` rows of a range.
pub(super) async fn scan_rows(
    tx: &mut Tx<'_>,
    table: &TableHandle,
    range: KeyRange,
    limit: usize,
    backward: bool,
) -> Result<Vec<DynRow>, Abort> {
    if limit == 0 {
        return Ok(Vec::new());
    }
    let collect = move |rows: &mut Vec<DynRow>, row| {
        rows.push(row);
        if rows.len() >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    tx.walk_rows(table, range, backward, Vec::new(), collect).await
}

impl Tx<'_> {
    /// Walks the rows of a range in order of their keys, feeding each to `step` until it breaks, and returns the
    /// accumulator. The closure runs on the owners of the rows. The range, as far as it was walked, is protected from
    /// insertions by others until the transaction ends.
    ///
    /// # Errors
    /// Those of [`run`](Tx::run).
    pub async fn fold_rows<A, F>(
        &mut self,
        table: &TableHandle,
        range: KeyRange,
        accumulator: A,
        step: F,
    ) -> Result<A, Abort>
    where
        A: Send + 'static,
        F: FnMut(&mut A, DynRow) -> ControlFlow<()> + Send + 'static,
    {
        self.walk_rows(table, range, false, accumulator, step).await
    }

    /// Walks the rows as [`fold_rows`](Tx::fold_rows) does, from the last key to the first.
    ///
    /// # Errors
    /// Those of [`run`](Tx::run).
    pub async fn fold_rows_backward<A, F>(
        &mut self,
        table: &TableHandle,
        range: KeyRange,
        accumulator: A,
        step: F,
    ) -> Result<A, Abort>
    where
        A: Send + 'static,
        F: FnMut(&mut A, DynRow) -> ControlFlow<()> + Send + 'static,
    {
        self.walk_rows(table, range, true, accumulator, step).await
    }

    /// Locks all keys of a range, those without a row included, until the transaction ends. Returns true if there is a row.
    ///
    /// # Errors
    /// Those of [`run`](Tx::run).
    pub async fn lock_range(
        &mut self,
        table: &TableHandle,
        range: KeyRange,
        mode: LockMode,
    ) -> Result<bool, Abort> {
        let (mut rest, mut has_rows) = (Some(range), false);
        while let Some(range) = rest.filter(|range| !range.is_empty()) {
            let action = Action::on_range(table.id(), table.tag, mode, range, false, FindRow);
            let (found, left) = self.run(action).await?;
            has_rows |= found;
            rest = left;
        }
        Ok(has_rows)
    }

    /// Walks rows as [`fold_rows`](Tx::fold_rows) does, the last one first if it goes `backward`; returns `None` as soon as a lock of
    /// another transaction in the range conflicts.
    ///
    /// # Errors
    /// Those of [`run`](Tx::run).
    pub async fn fold_rows_unless_locked<A, F>(
        &mut self,
        table: &TableHandle,
        range: KeyRange,
        backward: bool,
        accumulator: A,
        step: F,
    ) -> Result<Option<A>, Abort>
    where
        A: Send + 'static,
        F: FnMut(&mut A, DynRow) -> ControlFlow<()> + Send + 'static,
    {
        let part = |folded: Option<_>| folded.ok_or(());
        let done =
            self.walk_parts(table, (range, backward), (accumulator, step), Action::unless_locked, part);
        Ok(done.await?.ok())
    }

    /// Walks rows as [`fold_rows`](Tx::fold_rows) does, the last one first if it goes `backward`, in spite of locks and without one: see
    /// [`Action::despite_locks`].
    ///
    /// # Errors
    /// Those of [`run`](Tx::run).
    pub async fn fold_rows_despite_locks<A, F>(
        &mut self,
        table: &TableHandle,
        range: KeyRange,
        backward: bool,
        accumulator: A,
        step: F,
    ) -> Result<A, Abort>
    where
        A: Send + 'static,
        F: FnMut(&mut A, DynRow) -> ControlFlow<()> + Send + 'static,
    {
        let part = Ok::<_, Infallible>;
        let done =
            self.walk_parts(table, (range, backward), (accumulator, step), Action::despite_locks, part);
        let Ok(done) = done.await?;
        Ok(done)
    }

    async fn walk_rows<A, F>(
        &mut self,
        table: &TableHandle,
        range: KeyRange,
        backward: bool,
        accumulator: A,
        step: F,
    ) -> Result<A, Abort>
    where
        A: Send + 'static,
        F: FnMut(&mut A, DynRow) -> ControlFlow<()> + Send + 'static,
    {
        let part = Ok::<_, Infallible>;
        let Ok(done) =
            self.walk_parts(table, (range, backward), (accumulator, step), |walk| walk, part).await?;
        Ok(done)
    }

    /// Walks the rows of a range, partition by partition: each by the action that `how` makes of a walk, whose result `part` looks at.
    /// An error of that ends the walk.
    async fn walk_parts<A, F, O, E>(
        &mut self,
        table: &TableHandle,
        (range, backward): (KeyRange, bool),
        (mut accumulator, mut step): (A, F),
        how: impl Fn(Action<FoldRows<A, F>>) -> Action<O>,
        part: impl Fn(O::Output) -> Result<Folded<A, F>, E>,
    ) -> Result<Result<A, E>, Abort>
    where
        A: Send + 'static,
        F: FnMut(&mut A, DynRow) -> ControlFlow<()> + Send + 'static,
        O: Operation,
    {
        let mut rest = Some(range);
        while let Some(range) = rest.filter(|range| !range.is_empty()) {
            let fold = FoldRows { accumulator, step, backward };
            let action = Action::on_range(table.id(), table.tag, LockMode::Shared, range, backward, fold);
            match part(self.run(how(action)).await?) {
                Ok(folded) => (accumulator, step, rest) = (folded.accumulator, folded.step, folded.rest),
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(accumulator))
    }

    /// Sets columns of all rows of a range, and returns the number of rows. The range is locked exclusively, as a whole
    /// in each partition, until the transaction ends.
    ///
    /// # Errors
    /// Those of [`run`](Tx::run); [`InvalidValue`](atrapos_partition::abort::AbortReason::InvalidValue) as for [`TableHandle::update`].
    pub async fn update_rows(
        &mut self,
        table: &TableHandle,
        range: KeyRange,
        columns: &[(&str, Value)],
    ) -> Result<u64, Abort> {
        match table.layout.assignments(columns) {
            Ok(assigned) => {
                let update = UpdateRows { assigned };
                self.change_range((table.id(), table.tag), range, update).await
            }
            Err(abort) => Err(self.refuse(abort)),
        }
    }
}
