//! Operations on one row of a table that is known by its definition.

use atrapos_catalog::Value;

use super::layout::TableLayout;
use super::row::DynRow;
use crate::abort::Abort;
use crate::action::{
    AccessKind as Kind, Operation, OperationKind, Replaced, ResultShape, RowContext, guarded,
};

impl<'a> RowContext<'a> {
    /// The layout of the table that the operation works on.
    pub fn layout(&self) -> &'a TableLayout {
        let catalog = self.catalog;
        catalog.layouts.table(self.id.table).expect("a table that has partitions has a layout")
    }
}

/// Reads one row. See [`TableHandle::get`](crate::dynamic::TableHandle::get).
#[derive(Debug)]
pub struct GetRow;

impl Operation for GetRow {
    type Output = Option<DynRow>;

    #[inline]
    fn apply(self, at: &mut RowContext<'_>) -> Result<Option<DynRow>, Abort> {
        let (table, key) = (at.id.table, at.key());
        Ok(at.row().map(|(_, row)| DynRow::new(table, key.clone(), row)))
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Read, 0, ResultShape::Rows)
    }
}

/// Reads some columns of one row. See [`TableHandle::get_columns`](crate::dynamic::TableHandle::get_columns).
#[derive(Debug)]
pub struct GetColumns {
    columns: Vec<usize>,
}

impl GetColumns {
    pub(super) fn new(columns: Vec<usize>) -> GetColumns {
        GetColumns { columns }
    }
}

impl Operation for GetColumns {
    type Output = Option<Vec<Value>>;

    fn apply(self, at: &mut RowContext<'_>) -> Result<Option<Vec<Value>>, Abort> {
        let layout = at.layout();
        let Some((_, row)) = at.row() else { return Ok(None) };
        let key = at.key();
        self.columns.iter().map(|column| layout.value(key, row, *column)).collect::<Result<_, _>>().map(Some)
    }

    fn kind(&self) -> OperationKind {
        let bytes = self.columns.len() * size_of::<Value>();
        OperationKind::new(Kind::Read, bytes, ResultShape::Nothing)
    }
}

/// Inserts one row. See [`TableHandle::insert`](crate::dynamic::TableHandle::insert).
#[derive(Debug)]
pub struct InsertRow {
    row: Vec<u8>,
    strict: bool,
}

impl InsertRow {
    #[doc(hidden)]
    pub fn new(row: Vec<u8>, strict: bool) -> InsertRow {
        InsertRow { row, strict }
    }
}

impl Operation for InsertRow {
    type Output = bool;

    fn apply(self, at: &mut RowContext<'_>) -> Result<bool, Abort> {
        at.insert(&self.row, self.strict)
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Insert, self.row.len(), ResultShape::Nothing)
    }
}

/// Changes columns of one row. See [`TableHandle::update`](crate::dynamic::TableHandle::update).
#[derive(Debug)]
pub struct UpdateRow {
    /// The assigned values, by number among the columns of the row.
    assigned: Vec<(usize, Value)>,
}

impl UpdateRow {
    pub(super) fn new(assigned: Vec<(usize, Value)>) -> UpdateRow {
        UpdateRow { assigned }
    }
}

impl Operation for UpdateRow {
    type Output = bool;

    fn apply(self, at: &mut RowContext<'_>) -> Result<bool, Abort> {
        let layout = at.layout();
        at.with_scratch(|at, new| {
            let position = at.locate();
            let Some((version, old)) = at.row_at(position) else { return Ok(false) };
            layout.assign(old, &self.assigned, new)?;
            at.patch(Replaced::At(position), version, new)?;
            Ok(true)
        })
    }

    fn kind(&self) -> OperationKind {
        let bytes = self.assigned.len() * size_of::<Value>();
        OperationKind::new(Kind::Update, bytes, ResultShape::Nothing)
    }
}

/// Deletes one row. See [`TableHandle::delete`](crate::dynamic::TableHandle::delete).
#[derive(Debug)]
pub struct DeleteRow;

impl Operation for DeleteRow {
    type Output = Option<DynRow>;

    fn apply(self, at: &mut RowContext<'_>) -> Result<Option<DynRow>, Abort> {
        let (table, key) = (at.id.table, at.key().clone());
        Ok(at.delete(None)?.map(|row| DynRow::new(table, key, row)))
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Delete, 0, ResultShape::Rows)
    }
}

/// The change that is decided on when a row is seen. See [`TableHandle::change`](crate::dynamic::TableHandle::revise).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revision {
    /// Nothing: the row stays, locked like one that is changed.
    Keep,
    /// Columns get values, by their numbers in the table; none of them is in the key.
    Set(Vec<(usize, Value)>),
    /// The row goes.
    Delete,
}

/// Changes one row as a function of it decides. See [`TableHandle::change`](crate::dynamic::TableHandle::revise).
pub struct ReviseRow<F> {
    decide: F,
}

impl<F> ReviseRow<F> {
    pub(super) fn new(decide: F) -> ReviseRow<F> {
        ReviseRow { decide }
    }
}

impl<R, F> Operation for ReviseRow<F>
where
    R: Send + 'static,
    F: FnOnce(&DynRow) -> Result<(Revision, R), Abort> + Send + 'static,
{
    type Output = Option<R>;

    fn apply(self, at: &mut RowContext<'_>) -> Result<Option<R>, Abort> {
        let layout = at.layout();
        let (table, key) = (at.id.table, at.key().clone());
        let position = at.locate();
        let Some((version, old)) = at.row_at(position) else { return Ok(None) };
        let row = DynRow::new(table, key, old);
        let (change, result) = guarded(|| (self.decide)(&row))??;
        match change {
            Revision::Keep => {}
            Revision::Set(columns) => {
                let assigned = layout.assignments_by_number(columns)?;
                at.with_scratch(|at, new| {
                    layout.assign(row.row(), &assigned, new)?;
                    at.patch(Replaced::At(position), version, new)
                })?;
            }
            Revision::Delete => {
                layout.check_writable()?;
                at.delete(None)?;
            }
        }
        Ok(Some(result))
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Update, size_of::<F>(), ResultShape::Nothing)
    }
}
