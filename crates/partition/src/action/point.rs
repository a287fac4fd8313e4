//! Operations on one row of a typed table: encoding and decoding around the byte core.

use std::marker::PhantomData;
use std::mem::needs_drop;

use atrapos_storage::lock::LockMode;
use atrapos_storage::{Key, Row, RowEdit, RowView};

use super::{Action, CopiedRow, Operation, RowAccess, RowContext, RowOperation, guarded};
use crate::abort::Abort;
use crate::action::{AccessKind as Kind, OperationKind, ResultShape};
use crate::schema::{Index, IndexRef, Table, TableRef, corrupt, decode_key, decode_row};

/// Reads one row. See [`TableRef::get`].
#[derive(Debug)]
pub struct Get<T: Table>(PhantomData<fn() -> T>);

impl<T: Table> Operation for Get<T> {
    type Output = Option<T::Row>;

    #[inline]
    fn is_unlocked(&self) -> bool {
        T::READ_ONLY
    }

    #[inline(always)]
    fn apply(self, at: &mut RowContext<'_>) -> Result<Option<T::Row>, Abort> {
        self.apply_to(at)
    }

    fn apply_to_copy(self, at: &mut CopiedRow<'_>) -> Result<Result<Option<T::Row>, Abort>, Self> {
        Ok(at.row.map(decode_row::<T::Row>).transpose())
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Read, 0, ResultShape::Rows)
    }
}

impl<T: Table> RowOperation for Get<T> {
    #[inline(always)]
    fn apply_to(self, at: &mut impl RowAccess) -> Result<Option<T::Row>, Abort> {
        at.row()?.map(decode_row::<T::Row>).transpose()
    }
}

/// Reads one row and brings back the result of a closure over it. See [`TableRef::read`].
#[derive(Debug)]
pub struct Read<T: Table, F> {
    look: F,
    table: PhantomData<fn() -> T>,
}

impl<T, F, R> Operation for Read<T, F>
where
    T: Table,
    F: FnOnce(T::Row) -> R + Send + 'static,
    R: Send + 'static,
{
    type Output = Option<R>;

    #[inline]
    fn is_unlocked(&self) -> bool {
        T::READ_ONLY
    }

    #[inline]
    fn apply(self, at: &mut RowContext<'_>) -> Result<Option<R>, Abort> {
        self.apply_to(at)
    }

    fn apply_to_copy(self, at: &mut CopiedRow<'_>) -> Result<Result<Option<R>, Abort>, Self> {
        Ok(at.row.map(|row| self.look_at(row)).transpose())
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Read, size_of::<F>() + size_of::<R>(), ResultShape::Nothing)
    }
}

impl<T, F, R> RowOperation for Read<T, F>
where
    T: Table,
    F: FnOnce(T::Row) -> R + Send + 'static,
    R: Send + 'static,
{
    #[inline]
    fn apply_to(self, at: &mut impl RowAccess) -> Result<Option<R>, Abort> {
        let Some(row) = at.row()? else { return Ok(None) };
        self.look_at(row).map(Some)
    }
}

impl<T, F, R> Read<T, F>
where
    T: Table,
    F: FnOnce(T::Row) -> R,
{
    #[inline(always)]
    fn look_at(self, row: &[u8]) -> Result<R, Abort> {
        let row = decode_row::<T::Row>(row)?;
        guarded(|| (self.look)(row))
    }
}

/// Reads columns of one row in place. See [`TableRef::view`].
#[derive(Debug)]
pub struct View<T: Table, F> {
    look: F,
    table: PhantomData<fn() -> T>,
}

impl<T, F, R> Operation for View<T, F>
where
    T: Table,
    F: FnOnce(RowView<'_, T::Row>) -> R + Send + 'static,
    R: Send + 'static,
{
    type Output = Option<R>;

    #[inline]
    fn is_unlocked(&self) -> bool {
        T::READ_ONLY
    }

    #[inline]
    fn apply(self, at: &mut RowContext<'_>) -> Result<Option<R>, Abort> {
        self.apply_to(at)
    }

    fn apply_to_copy(self, at: &mut CopiedRow<'_>) -> Result<Result<Option<R>, Abort>, Self> {
        Ok(at.row.map(|row| self.look_at(row)).transpose())
    }

    fn kind(&self) -> OperationKind {
        // A result that owns memory is taken for a copy of the row.
        let brings = if needs_drop::<R>() { ResultShape::Rows } else { ResultShape::Nothing };
        OperationKind::new(Kind::Read, size_of::<F>() + size_of::<R>(), brings)
    }
}

impl<T, F, R> RowOperation for View<T, F>
where
    T: Table,
    F: FnOnce(RowView<'_, T::Row>) -> R + Send + 'static,
    R: Send + 'static,
{
    #[inline]
    fn apply_to(self, at: &mut impl RowAccess) -> Result<Option<R>, Abort> {
        let Some(row) = at.row()? else { return Ok(None) };
        self.look_at(row).map(Some)
    }
}

impl<T, F, R> View<T, F>
where
    T: Table,
    F: FnOnce(RowView<'_, T::Row>) -> R,
{
    #[inline(always)]
    fn look_at(self, row: &[u8]) -> Result<R, Abort> {
        let row = RowView::new(row).map_err(|error| corrupt("row", &error))?;
        guarded(|| (self.look)(row))
    }
}

/// Inserts one row. See [`TableRef::insert`].
#[derive(Debug)]
pub struct Insert<T: Table> {
    row: T::Row,
    /// True if a taken key aborts the transaction; otherwise it is only reported.
    strict: bool,
}

impl<T: Table> Operation for Insert<T> {
    type Output = bool;

    fn apply(self, at: &mut RowContext<'_>) -> Result<bool, Abort> {
        self.apply_to(at)
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Insert, self.row.encoded_len(), ResultShape::Nothing)
    }
}

impl<T: Table> RowOperation for Insert<T> {
    #[inline]
    fn apply_to(self, at: &mut impl RowAccess) -> Result<bool, Abort> {
        at.insert(self.strict, |encoded| self.row.encode(encoded))
    }
}

/// Changes one row in place. See [`TableRef::update`].
#[derive(Debug)]
pub struct Update<T: Table, F> {
    change: F,
    table: PhantomData<fn() -> T>,
}

impl<T, F, R> Operation for Update<T, F>
where
    T: Table,
    F: FnOnce(&mut T::Row) -> R + Send + 'static,
    R: Send + 'static,
{
    type Output = Option<R>;

    fn apply(self, at: &mut RowContext<'_>) -> Result<Option<R>, Abort> {
        self.apply_to(at)
    }

    fn apply_to_copy(self, at: &mut CopiedRow<'_>) -> Result<Result<Option<R>, Abort>, Self> {
        let (Some(old), Some(new)) = (at.row, at.changed.as_deref_mut()) else {
            return if at.row.is_none() { Ok(Ok(None)) } else { Err(self) };
        };
        let done = self.change(old, new);
        at.is_changed = done.is_ok();
        Ok(done.map(Some))
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Update, size_of::<F>() + size_of::<R>(), ResultShape::Nothing)
    }
}

impl<T, F, R> RowOperation for Update<T, F>
where
    T: Table,
    F: FnOnce(&mut T::Row) -> R + Send + 'static,
    R: Send + 'static,
{
    #[inline]
    fn apply_to(self, at: &mut impl RowAccess) -> Result<Option<R>, Abort> {
        at.replace(|old, new| self.change(old, new))
    }
}

impl<T, F, R> Update<T, F>
where
    T: Table,
    F: FnOnce(&mut T::Row) -> R,
{
    /// Appends the changed row to `new`.
    #[inline(always)]
    fn change(self, old: &[u8], new: &mut Vec<u8>) -> Result<R, Abort> {
        let mut row = decode_row::<T::Row>(old)?;
        let result = guarded(|| (self.change)(&mut row))?;
        row.encode(new);
        Ok(result)
    }
}

/// Changes columns of one row in place. See [`TableRef::edit`].
#[derive(Debug)]
pub struct Edit<T: Table, F> {
    change: F,
    table: PhantomData<fn() -> T>,
}

impl<T, F, R> Operation for Edit<T, F>
where
    T: Table,
    F: FnOnce(&mut RowEdit<'_, T::Row>) -> R + Send + 'static,
    R: Send + 'static,
{
    type Output = Option<R>;

    fn apply(self, at: &mut RowContext<'_>) -> Result<Option<R>, Abort> {
        self.apply_to(at)
    }

    fn apply_to_copy(self, at: &mut CopiedRow<'_>) -> Result<Result<Option<R>, Abort>, Self> {
        let (Some(old), Some(new)) = (at.row, at.changed.as_deref_mut()) else {
            return if at.row.is_none() { Ok(Ok(None)) } else { Err(self) };
        };
        new.extend_from_slice(old);
        let done = RowEdit::new(new)
            .map_err(|error| corrupt("row", &error))
            .and_then(|mut row| guarded(|| (self.change)(&mut row)));
        at.is_changed = done.is_ok();
        Ok(done.map(Some))
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Update, size_of::<F>() + size_of::<R>(), ResultShape::Nothing)
    }
}

impl<T, F, R> RowOperation for Edit<T, F>
where
    T: Table,
    F: FnOnce(&mut RowEdit<'_, T::Row>) -> R + Send + 'static,
    R: Send + 'static,
{
    #[inline]
    fn apply_to(self, at: &mut impl RowAccess) -> Result<Option<R>, Abort> {
        at.edit(|row, overwritten| {
            let mut row = RowEdit::logged(row, overwritten).map_err(|error| corrupt("row", &error))?;
            guarded(|| (self.change)(&mut row))
        })
    }
}

/// Deletes one row. See [`TableRef::delete`].
#[derive(Debug)]
pub struct Delete<T: Table>(PhantomData<fn() -> T>);

impl<T: Table> Operation for Delete<T> {
    type Output = Option<T::Row>;

    fn apply(self, at: &mut RowContext<'_>) -> Result<Option<T::Row>, Abort> {
        self.apply_to(at)
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Delete, 0, ResultShape::Rows)
    }
}

impl<T: Table> RowOperation for Delete<T> {
    #[inline]
    fn apply_to(self, at: &mut impl RowAccess) -> Result<Option<T::Row>, Abort> {
        at.delete()?.map(decode_row::<T::Row>).transpose()
    }
}

/// Reads one entry of a unique index. See [`IndexRef::lookup`](crate::schema::IndexRef::lookup).
#[derive(Debug)]
pub struct Lookup<K>(pub(crate) PhantomData<fn() -> K>);

impl<K: Key> Operation for Lookup<K> {
    type Output = Option<K>;

    #[inline]
    fn apply(self, at: &mut RowContext<'_>) -> Result<Option<K>, Abort> {
        self.apply_to(at)
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Read, 0, ResultShape::Rows)
    }
}

impl<K: Key> RowOperation for Lookup<K> {
    #[inline]
    fn apply_to(self, at: &mut impl RowAccess) -> Result<Option<K>, Abort> {
        at.row()?.map(decode_key::<K>).transpose()
    }
}

impl<T: Table> TableRef<T> {
    /// Rejects at compile time an operation that writes a read-only table.
    #[doc(hidden)]
    pub const WRITABLE: () = assert!(
        !T::READ_ONLY,
        "the table is read-only (Table::READ_ONLY), so no transaction can write it; load its rows with Database::load, or \
         drop the mark"
    );

    /// Reads the row of `key`, if there is one.
    #[inline]
    pub fn get(self, key: T::Key) -> Action<Get<T>> {
        Action::on_key(self.id, self.tag, LockMode::Shared, key.encode(), Get(PhantomData))
    }

    /// Runs the closure on the row of `key`, at the owner of the row, and returns its result, or `None` if there is no
    /// row. Only the result is sent back.
    #[inline]
    pub fn read<F, R>(self, key: T::Key, look: F) -> Action<Read<T, F>>
    where
        F: FnOnce(T::Row) -> R + Send + 'static,
        R: Send + 'static,
    {
        let read = Read { look, table: PhantomData };
        Action::on_key(self.id, self.tag, LockMode::Shared, key.encode(), read)
    }

    /// Runs the closure on the row of `key` where it is, at the owner of the row, and returns its result, or `None` if there
    /// is no row. Only columns that the closure asks for are decoded: the way to read a few columns of a wide row.
    #[inline]
    pub fn view<F, R>(self, key: T::Key, look: F) -> Action<View<T, F>>
    where
        F: FnOnce(RowView<'_, T::Row>) -> R + Send + 'static,
        R: Send + 'static,
    {
        let view = View { look, table: PhantomData };
        Action::on_key(self.id, self.tag, LockMode::Shared, key.encode(), view)
    }

    /// Inserts a row; a key that is taken aborts the transaction ([`DuplicateKey`](crate::abort::AbortReason::DuplicateKey)).
    pub fn insert(self, key: T::Key, row: T::Row) -> Action<Insert<T>> {
        const { Self::WRITABLE };
        let insert = Insert { row, strict: true };
        Action::on_key(self.id, self.tag, LockMode::Exclusive, key.encode(), insert)
    }

    /// Inserts a row unless the key is taken; returns true if it was inserted.
    pub fn insert_if_absent(self, key: T::Key, row: T::Row) -> Action<Insert<T>> {
        const { Self::WRITABLE };
        let insert = Insert { row, strict: false };
        Action::on_key(self.id, self.tag, LockMode::Exclusive, key.encode(), insert)
    }

    /// Changes the row of `key` in place and returns the result of the closure, or `None` if there is no row.
    #[inline]
    pub fn update<F, R>(self, key: T::Key, change: F) -> Action<Update<T, F>>
    where
        F: FnOnce(&mut T::Row) -> R + Send + 'static,
        R: Send + 'static,
    {
        const { Self::WRITABLE };
        let update = Update { change, table: PhantomData };
        Action::on_key(self.id, self.tag, LockMode::Exclusive, key.encode(), update)
    }

    /// Runs the closure on the row of `key` where it is, which it may change except for columns of variable size, and
    /// returns its result, or `None` if there is no row. Only columns that the closure asks for are decoded or written: the
    /// way to change a few columns of a wide row.
    #[inline]
    pub fn edit<F, R>(self, key: T::Key, change: F) -> Action<Edit<T, F>>
    where
        F: FnOnce(&mut RowEdit<'_, T::Row>) -> R + Send + 'static,
        R: Send + 'static,
    {
        const { Self::WRITABLE };
        let edit = Edit { change, table: PhantomData };
        Action::on_key(self.id, self.tag, LockMode::Exclusive, key.encode(), edit)
    }

    /// Deletes the row of `key` and returns it, if there was one.
    pub fn delete(self, key: T::Key) -> Action<Delete<T>> {
        const { Self::WRITABLE };
        Action::on_key(self.id, self.tag, LockMode::Exclusive, key.encode(), Delete(PhantomData))
    }
}

impl<I: Index> IndexRef<I> {
    /// Finds the primary key of the row with this index key. Only for unique indexes; for the others see
    /// `Tx::lookup_all`.
    #[inline]
    pub fn lookup(self, key: I::Key) -> Action<Lookup<<I::Table as Table>::Key>> {
        const { assert!(I::UNIQUE, "lookup is for unique indexes; use Tx::lookup_all for the others") };
        Action::on_key(self.id, self.tag, LockMode::Shared, key.encode(), Lookup(PhantomData))
    }
}
