//! Actions: the pieces of a transaction that run where the data is.
//!
//! An [`Action`] says which table, which key or range, and what to do there (its [`Operation`]). The same action runs as a
//! direct call when the transaction's home owns the data, and as a message to the owner when it does not. It is plain
//! data and a closure, so it can travel; its result is returned by value.
//!
//! A write to a table with indexes or enforced foreign keys has *dependents*: further actions, computed where the row is
//! and run by the transaction in the same phase: when all its rows are changed, first the changes of index entries, then the
//! checks of foreign keys.

use std::any::TypeId;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use atrapos_adapt::Operation as Kind;
use atrapos_durability::wal;
use atrapos_runtime::WorkerId;
use atrapos_storage::lock::{LockMode, LockTarget};
use atrapos_storage::{
    DisplayKey, InsertError, Key, KeyBuf, OutOfMemory, Position, Row, RowRef, UndoableUpdate,
};

use crate::abort::{Abort, AbortReason};
use crate::branch::UndoLog;
use crate::partition::{Partition, PartitionId, Tables};
use crate::planted::{Bug, planted};
use crate::range::KeyRange;
use crate::recording::{OperationKind, ResultShape};
use crate::schema::{
    Catalog, CatalogTag, Table, TableId, TableMeta, TableRef, TreeKind, decode_key, decode_row,
};
use crate::wal::Redo;

/// What to do at the data. Implemented by the operations of this crate only.
pub trait Operation: Send + 'static {
    /// What the transaction gets back.
    type Output: Send + 'static;
    /// Whether it only reads what no transaction changes: then it is in nobody's way.
    #[doc(hidden)]
    const UNLOCKED: bool = false;
    /// Runs where the data is.
    #[doc(hidden)]
    fn apply(self, at: &mut RowContext<'_>) -> Result<Self::Output, Abort>;
    /// What it is, for a recording.
    #[doc(hidden)]
    fn kind(&self) -> OperationKind;
}

/// A piece of a transaction, to be run by [`Tx::run`](crate::Tx::run), [`Tx::join`](crate::Tx::join) or
/// [`Tx::join_all`](crate::Tx::join_all).
#[derive(Debug)]
#[must_use = "an action does nothing until the transaction runs it"]
pub struct Action<O: Operation> {
    pub(crate) table: TableId,
    pub(crate) tag: CatalogTag,
    pub(crate) mode: LockMode,
    /// Whether a range is walked from its end: then its last part comes first.
    pub(crate) from_end: bool,
    pub(crate) target: LockTarget,
    pub(crate) operation: O,
}

impl<O: Operation> Action<O> {
    #[inline]
    fn on_key(table: TableId, tag: CatalogTag, mode: LockMode, key: KeyBuf, operation: O) -> Action<O> {
        Action { table, tag, mode, from_end: false, target: LockTarget::Key(key), operation }
    }

    /// Reads a range. What of it lies beyond the partition where it begins is left out, and told ([`RowContext::left_out`]).
    pub(crate) fn on_range(
        table: TableId,
        tag: CatalogTag,
        range: KeyRange,
        from_end: bool,
        operation: O,
    ) -> Action<O> {
        let target = LockTarget::Range { lower: range.lower, upper: range.upper };
        Action { table, tag, mode: LockMode::Shared, from_end, target, operation }
    }

    /// The partition in which it begins, and the owner.
    #[inline(always)]
    pub(crate) fn locate(&self, tables: &Tables) -> (PartitionId, WorkerId) {
        match &self.target {
            LockTarget::Key(key) => tables.locate(self.table, key),
            LockTarget::Range { upper, .. } if self.from_end => {
                tables.locate_below(self.table, upper.as_deref())
            }
            LockTarget::Range { lower, .. } => tables.locate(self.table, lower),
        }
    }

    /// The first key it touches.
    #[inline]
    pub(crate) fn key(&self) -> &KeyBuf {
        match &self.target {
            LockTarget::Key(key) => key,
            LockTarget::Range { lower, .. } => lower,
        }
    }
}

/// What an operation works on: one partition, held by nobody else while the operation runs.
pub struct RowContext<'a> {
    pub(crate) catalog: &'a Catalog,
    pub(crate) place: PartitionId,
    pub(crate) partition: &'a mut Partition,
    pub(crate) target: &'a mut LockTarget,
    /// What the target was to cover beyond this partition: to be asked for next.
    pub(crate) left_out: Option<KeyRange>,
    /// Where an interleaved look-up found the key, if one was made.
    pub(crate) position: Option<Position>,
    pub(crate) undo: &'a mut UndoLog,
    pub(crate) scratch: &'a mut Vec<u8>,
    /// Where the redo of changes goes, when the database logs.
    pub(crate) redo: Option<&'a mut Redo>,
    pub(crate) dependents: &'a mut Vec<DependentAction>,
    /// Whether the target may still shrink to what was really visited (it is not entered in the lock table yet).
    pub(crate) may_narrow: bool,
}

/// An action that must follow a write for the database to stay consistent.
#[derive(Debug)]
pub(crate) enum DependentAction {
    /// Add `entry` (leading to `key`) to an index.
    AddEntry { index: TableId, entry: KeyBuf, key: KeyBuf },
    /// Remove `entry` from an index.
    RemoveEntry { index: TableId, entry: KeyBuf },
    /// A row with this key must exist.
    RequireParent { parent: TableId, key: KeyBuf },
    /// No key may lie in this range.
    RequireNoChild { through: TableId, range: KeyRange },
}

/// Runs a closure of the user in the middle of engine code: its panic is the transaction's, not the engine's.
#[inline]
pub(crate) fn guarded<R>(closure: impl FnOnce() -> R) -> Result<R, Abort> {
    catch_unwind(AssertUnwindSafe(closure)).map_err(|panic| panicked(panic.as_ref()))
}

#[cold]
pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> Abort {
    panicked_in("procedure", panic)
}

#[cold]
pub(crate) fn panicked_in(what: &str, panic: &(dyn std::any::Any + Send)) -> Abort {
    let message = panic
        .downcast_ref::<&str>()
        .map(|message| (*message).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "with a value that is not text".to_owned());
    Abort::explained(AbortReason::Panic, format!("the {what} panicked: {message}"))
}

impl RowContext<'_> {
    #[inline]
    fn key(&self) -> &KeyBuf {
        match &*self.target {
            LockTarget::Key(key) => key,
            LockTarget::Range { lower, .. } => lower,
        }
    }

    #[inline(always)]
    fn row(&self) -> Option<(u64, &[u8])> {
        let found = match self.position {
            Some(position) => self.partition.tree.row_at(position, self.key()),
            None => self.partition.tree.get(self.key()),
        };
        found.map(|row| (row.version, row.bytes))
    }

    #[cold]
    fn refuse_duplicate(&self) -> Abort {
        let meta = &self.catalog.tables[self.place.table.at()];
        let what = if meta.kind == TreeKind::Rows { "table" } else { "unique index" };
        Abort::explained(
            AbortReason::DuplicateKey,
            format!(
                "{what} '{}' already has a row with key {}; use another key, or update the row",
                meta.name,
                DisplayKey(self.key())
            ),
        )
    }

    #[cold]
    fn refuse(&self, error: &InsertError) -> Abort {
        let table = self.catalog.tables[self.place.table.at()].name;
        let reason = match error {
            InsertError::Duplicate(_) => return self.refuse_duplicate(),
            InsertError::KeyTooLarge { .. } => AbortReason::KeyTooLarge,
            InsertError::RowTooLarge { .. } => AbortReason::RowTooLarge,
            InsertError::OutOfMemory(_) | InsertError::TreeFull(_) => AbortReason::OutOfMemory,
        };
        Abort::explained(reason, format!("table '{table}': {error}"))
    }

    #[cold]
    fn refuse_removal(&self, error: OutOfMemory) -> Abort {
        let table = self.catalog.tables[self.place.table.at()].name;
        Abort::explained(
            AbortReason::OutOfMemory,
            format!(
                "table '{table}': there is no memory in which the change could be undone if it had to be ({} more bytes); \
                 delete or shorten fewer rows per transaction, or free some memory",
                error.bytes
            ),
        )
    }

    /// Inserts the encoded row in `scratch`; false when the key is taken.
    fn insert_scratch(&mut self) -> Result<bool, Abort> {
        let version = self.partition.next_version();
        let LockTarget::Key(key) = &*self.target else { unreachable!("insertions lock a key") };
        match self.partition.tree.insert(key, self.scratch, version) {
            Ok(()) => {
                self.undo.remember_absent(self.place, key);
                if let Some(redo) = &mut self.redo {
                    redo.push(|redo| wal::push_put(redo, self.place.table.0, key, version, self.scratch))?;
                }
                Ok(true)
            }
            Err(InsertError::Duplicate(_)) => Ok(false),
            Err(error) => Err(self.refuse(&error)),
        }
    }

    /// What must follow a change of the row from `before` to `after` (`None`: no row).
    fn follow(&mut self, before: Option<&[u8]>, after: Option<&[u8]>) -> Result<(), Abort> {
        let LockTarget::Key(key) = &*self.target else { return Ok(()) };
        follow_change(&self.catalog.tables[self.place.table.at()], key, before, after, self.dependents)
    }

    fn has_dependents(&self) -> bool {
        self.catalog.tables[self.place.table.at()].has_dependents
    }
}

/// What must follow a change of the row from `before` to `after` (`None`: no row).
fn follow_change(
    meta: &TableMeta,
    key: &KeyBuf,
    before: Option<&[u8]>,
    after: Option<&[u8]>,
    dependents: &mut Vec<DependentAction>,
) -> Result<(), Abort> {
    for index in &meta.indexes {
        if let (Some(before), Some(after)) = (before, after)
            && index.keeps_key(before, after)
        {
            debug_assert!(
                index.extract.call(key, before) == index.extract.call(key, after),
                "an index key is made of other columns than Index::KEY_FROM says"
            );
            continue;
        }
        let old = before.map(|row| index.extract.call(key, row)).transpose()?;
        let new = after.map(|row| index.extract.call(key, row)).transpose()?;
        if old == new {
            continue;
        }
        let entry = |mut index_key: KeyBuf| {
            if !index.unique {
                index_key.extend_from_slice(key);
            }
            index_key
        };
        if let Some(old) = old
            && !(planted(Bug::EntryLeftBehind) && after.is_none())
        {
            dependents.push(DependentAction::RemoveEntry { index: index.id, entry: entry(old) });
        }
        if let Some(new) = new
            && !(planted(Bug::EntryNotAdded) && before.is_some())
        {
            dependents.push(DependentAction::AddEntry {
                index: index.id,
                entry: entry(new),
                key: key.clone(),
            });
        }
    }
    if let Some(after) = after {
        for parent in &meta.parents {
            let new = parent.extract.call(key, after)?;
            let unchanged = match before {
                Some(before) => parent.extract.call(key, before)? == new,
                None => false,
            };
            if !unchanged {
                dependents.push(DependentAction::RequireParent { parent: parent.parent, key: new });
            }
        }
    } else {
        for child in &meta.children {
            let range = KeyRange::of_prefix_bytes(key);
            dependents.push(DependentAction::RequireNoChild { through: child.through, range });
        }
    }
    Ok(())
}

/// Reads one row. See [`TableRef::get`].
#[derive(Debug)]
pub struct Get<T: Table>(std::marker::PhantomData<fn() -> T>);

impl<T: Table> Operation for Get<T> {
    type Output = Option<T::Row>;
    const UNLOCKED: bool = T::READ_ONLY;

    #[inline(always)]
    fn apply(self, at: &mut RowContext<'_>) -> Result<Option<T::Row>, Abort> {
        match at.row() {
            Some((_, row)) => decode_row::<T::Row>(row).map(Some),
            None => Ok(None),
        }
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Read, 0, ResultShape::Rows)
    }
}

/// Reads one row and brings back what a closure makes of it. See [`TableRef::read`].
#[derive(Debug)]
pub struct Read<T: Table, F> {
    look: F,
    table: std::marker::PhantomData<fn() -> T>,
}

impl<T, F, R> Operation for Read<T, F>
where
    T: Table,
    F: FnOnce(T::Row) -> R + Send + 'static,
    R: Send + 'static,
{
    type Output = Option<R>;
    const UNLOCKED: bool = T::READ_ONLY;

    #[inline]
    fn apply(self, at: &mut RowContext<'_>) -> Result<Option<R>, Abort> {
        let Some((_, row)) = at.row() else { return Ok(None) };
        let row = decode_row::<T::Row>(row)?;
        guarded(|| (self.look)(row)).map(Some)
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Read, size_of::<F>() + size_of::<R>(), ResultShape::Nothing)
    }
}

/// Inserts one row. See [`TableRef::insert`].
#[derive(Debug)]
pub struct Insert<T: Table> {
    row: T::Row,
    /// Whether a taken key aborts the transaction, or is only reported.
    strict: bool,
}

impl<T: Table> Operation for Insert<T> {
    type Output = bool;

    fn apply(self, at: &mut RowContext<'_>) -> Result<bool, Abort> {
        at.scratch.clear();
        self.row.encode(at.scratch);
        if !at.insert_scratch()? {
            return if self.strict { Err(at.refuse_duplicate()) } else { Ok(false) };
        }
        if at.has_dependents() {
            let row = std::mem::take(at.scratch);
            let followed = at.follow(None, Some(&row));
            *at.scratch = row;
            followed?;
        }
        Ok(true)
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Insert, self.row.encoded_len(), ResultShape::Nothing)
    }
}

/// Changes one row in place. See [`TableRef::update`].
#[derive(Debug)]
pub struct Update<T: Table, F> {
    change: F,
    table: std::marker::PhantomData<fn() -> T>,
}

impl<T, F, R> Operation for Update<T, F>
where
    T: Table,
    F: FnOnce(&mut T::Row) -> R + Send + 'static,
    R: Send + 'static,
{
    type Output = Option<R>;

    fn apply(self, at: &mut RowContext<'_>) -> Result<Option<R>, Abort> {
        let Some((old_version, old)) = at.row() else { return Ok(None) };
        let mut row = decode_row::<T::Row>(old)?;
        let result = guarded(|| (self.change)(&mut row))?;
        let mut encoded = std::mem::take(at.scratch);
        encoded.clear();
        row.encode(&mut encoded);
        let written = at.replace(old_version, &encoded);
        *at.scratch = encoded;
        written?;
        Ok(Some(result))
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Update, size_of::<F>() + size_of::<R>(), ResultShape::Nothing)
    }
}

impl RowContext<'_> {
    /// Replaces the row, known to be there in `old_version`, by `new`.
    fn replace(&mut self, old_version: u64, new: &[u8]) -> Result<(), Abort> {
        let version = self.partition.next_version();
        let LockTarget::Key(key) = &*self.target else { unreachable!("updates lock a key") };
        let tree = &mut self.partition.tree;
        let found = match self.position {
            Some(position) => tree.row_at_mut(position, key),
            None => tree.get_mut(key),
        };
        let Some(mut row) = found else { unreachable!("the row was just read") };
        // If one of the next steps fails, a row that has not changed is put back, which changes nothing.
        self.undo.remember_row(self.place, key, old_version, row.bytes());
        if let Some(redo) = &mut self.redo {
            let old = row.bytes();
            redo.push(|redo| wal::push_update(redo, self.place.table.0, key, version, old, new))?;
        }
        let old_len = row.bytes().len();
        if old_len == new.len() {
            row.bytes_mut().copy_from_slice(new);
            row.set_version(version);
        } else {
            let careless = planted(Bug::NothingSetAside);
            let updated = if careless {
                tree.update(key, new, version).map(|_| UndoableUpdate::Made)
            } else {
                tree.update_undoable(key, new, version)
            };
            match updated {
                Ok(UndoableUpdate::SetAside) => self.undo.note_set_aside(),
                Ok(_) => {}
                Err(error) => return Err(self.refuse(&error)),
            }
        }
        if self.has_dependents() {
            let meta = &self.catalog.tables[self.place.table.at()];
            follow_change(meta, key, Some(self.undo.last_row()), Some(new), self.dependents)?;
        }
        Ok(())
    }
}

/// Deletes one row. See [`TableRef::delete`].
#[derive(Debug)]
pub struct Delete<T: Table>(std::marker::PhantomData<fn() -> T>);

impl<T: Table> Operation for Delete<T> {
    type Output = Option<T::Row>;

    fn apply(self, at: &mut RowContext<'_>) -> Result<Option<T::Row>, Abort> {
        if !at.remove_to_scratch()? {
            return Ok(None);
        }
        let row = decode_row::<T::Row>(at.scratch)?;
        if at.has_dependents() {
            let old = std::mem::take(at.scratch);
            let followed = at.follow(Some(&old), None);
            *at.scratch = old;
            followed?;
        }
        Ok(Some(row))
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Delete, 0, ResultShape::Rows)
    }
}

impl RowContext<'_> {
    /// Removes the row, leaving its bytes in `scratch`; false when there is none.
    fn remove_to_scratch(&mut self) -> Result<bool, Abort> {
        let LockTarget::Key(key) = &*self.target else { unreachable!("deletions lock a key") };
        self.scratch.clear();
        let scratch = &mut *self.scratch;
        let look = |row: RowRef<'_>| {
            scratch.extend_from_slice(row.bytes);
            row.version
        };
        let careless = planted(Bug::NothingSetAside);
        let tree = &mut self.partition.tree;
        let removed =
            if careless { Ok(tree.remove_with(key, look)) } else { tree.remove_undoable(key, look) };
        let removed = match removed {
            Ok(removed) => removed,
            Err(error) => return Err(self.refuse_removal(error)),
        };
        let Some(version) = removed else { return Ok(false) };
        self.undo.remember_row(self.place, key, version, self.scratch);
        if !careless {
            self.undo.note_set_aside();
        }
        // The deletion takes a version too: what is inserted here later is newer than the deletion.
        let deleted = self.partition.next_version();
        if let Some(redo) = &mut self.redo {
            redo.push(|redo| wal::push_remove(redo, self.place.table.0, key, deleted))?;
        }
        Ok(true)
    }
}

/// Walks the part of a range that lies in one partition. See [`Tx::fold`](crate::Tx::fold).
#[derive(Debug)]
pub struct Fold<T: Table, A, F> {
    pub(crate) accumulator: A,
    pub(crate) step: F,
    pub(crate) backward: bool,
    pub(crate) table: std::marker::PhantomData<fn() -> T>,
}

/// What a walk brings back: the accumulator, the closure to go on with, and what is left to walk.
#[derive(Debug)]
pub struct Folded<A, F> {
    pub(crate) accumulator: A,
    pub(crate) step: F,
    /// What is still to be walked.
    pub(crate) rest: Option<KeyRange>,
}

impl<T, A, F> Operation for Fold<T, A, F>
where
    T: Table,
    A: Send + 'static,
    F: FnMut(&mut A, T::Key, T::Row) -> ControlFlow<()> + Send + 'static,
{
    type Output = Folded<A, F>;
    const UNLOCKED: bool = T::READ_ONLY;

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

impl RowContext<'_> {
    /// Visits the rows of the target range in this partition until `visit` breaks; narrows the target to what was
    /// visited when that is still allowed. Returns whether it broke off.
    fn walk(
        &mut self,
        backward: bool,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, Abort>,
    ) -> Result<bool, Abort> {
        use std::ops::Bound;
        let LockTarget::Range { lower, upper } = &*self.target else {
            unreachable!("scans lock a range");
        };
        let bound = match upper {
            Some(upper) => Bound::Excluded(&**upper),
            None => Bound::Unbounded,
        };
        let mut range = self.partition.tree.range(Bound::Included(&**lower), bound);
        let mut key = KeyBuf::new();
        let mut stopped = false;
        while let Some(entry) = if backward { range.next_back() } else { range.next() } {
            entry.key_into(&mut key);
            if visit(&key, entry.bytes())?.is_break() {
                stopped = true;
                break;
            }
        }
        if stopped && self.may_narrow {
            let LockTarget::Range { lower, upper } = self.target else { unreachable!("just matched") };
            if backward {
                *lower = key;
            } else {
                // The smallest key after the last one visited.
                key.push(0);
                *upper = Some(key);
            }
        }
        Ok(stopped)
    }
}

/// Collects the primary keys that an index leads to. See [`Tx::lookup_all`](crate::Tx::lookup_all).
#[derive(Debug)]
pub struct CollectKeys {
    pub(crate) found: Vec<KeyBuf>,
    pub(crate) limit: usize,
}

/// The keys that were found, and what is left to look through.
#[derive(Debug)]
pub struct Collected {
    pub(crate) found: Vec<KeyBuf>,
    pub(crate) rest: Option<KeyRange>,
}

impl Operation for CollectKeys {
    type Output = Collected;

    fn apply(self, at: &mut RowContext<'_>) -> Result<Collected, Abort> {
        let CollectKeys { mut found, limit } = self;
        let stopped = at.walk(false, |_, primary_key| {
            found.push(KeyBuf::from(primary_key));
            Ok(if found.len() >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(Collected { found, rest: if stopped { None } else { at.left_out.take() } })
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Scan, 0, ResultShape::Rows)
    }
}

/// Reads one entry of a unique index. See [`IndexRef::lookup`](crate::IndexRef::lookup).
#[derive(Debug)]
pub struct Lookup<K>(pub(crate) std::marker::PhantomData<fn() -> K>);

impl<K: Key> Operation for Lookup<K> {
    type Output = Option<K>;

    #[inline]
    fn apply(self, at: &mut RowContext<'_>) -> Result<Option<K>, Abort> {
        match at.row() {
            Some((_, primary_key)) => decode_key::<K>(primary_key).map(Some),
            None => Ok(None),
        }
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Read, 0, ResultShape::Rows)
    }
}

/// The operation of a [`DependentAction`].
#[derive(Debug)]
pub(crate) enum Dependent {
    AddEntry(KeyBuf),
    RemoveEntry,
    RequireParent,
    RequireNoChild,
}

impl Operation for Dependent {
    type Output = ();

    fn apply(self, at: &mut RowContext<'_>) -> Result<(), Abort> {
        match self {
            Dependent::AddEntry(primary_key) => {
                at.scratch.clear();
                at.scratch.extend_from_slice(&primary_key);
                if at.insert_scratch()? { Ok(()) } else { Err(at.refuse_duplicate()) }
            }
            Dependent::RemoveEntry => {
                if at.remove_to_scratch()? {
                    return Ok(());
                }
                Err(Abort::because(
                    AbortReason::Corruption,
                    "a secondary index has no entry for a row that is there; restore the database from a backup",
                ))
            }
            Dependent::RequireParent => match at.row() {
                Some(_) => Ok(()),
                None => Err(Abort::explained(
                    AbortReason::ForeignKey,
                    format!(
                        "table '{}' has no row that the new row refers to; insert that one first",
                        at.catalog.tables[at.place.table.at()].name
                    ),
                )),
            },
            Dependent::RequireNoChild => {
                let found = at.walk(false, |_, _| Ok(ControlFlow::Break(())))?;
                if !found {
                    if let Some(range) = at.left_out.take() {
                        at.dependents
                            .push(DependentAction::RequireNoChild { through: at.place.table, range });
                    }
                    return Ok(());
                }
                let tables = &at.catalog.tables;
                let child = match &tables[at.place.table.at()].kind {
                    TreeKind::Rows => at.place.table,
                    TreeKind::Entries { of, .. } => *of,
                };
                Err(Abort::explained(
                    AbortReason::ForeignKey,
                    format!(
                        "table '{}' still has rows that refer to the row; delete them first",
                        tables[child.at()].name
                    ),
                ))
            }
        }
    }

    fn kind(&self) -> OperationKind {
        match self {
            Dependent::AddEntry(key) => OperationKind::following(Kind::Insert, key.len()),
            Dependent::RemoveEntry => OperationKind::following(Kind::Delete, 0),
            Dependent::RequireParent => OperationKind::following(Kind::Read, 0),
            Dependent::RequireNoChild => OperationKind::following(Kind::Scan, 0),
        }
    }
}

impl DependentAction {
    /// Whether it changes an entry of an index; the others are checks, which are to find what the changes of their phase leave.
    #[inline]
    pub(crate) fn is_change(&self) -> bool {
        matches!(self, DependentAction::AddEntry { .. } | DependentAction::RemoveEntry { .. })
    }

    /// The dependent that an action was made of, to be run later.
    pub(crate) fn from_action(action: Action<Dependent>) -> DependentAction {
        let Action { table, target, operation, .. } = action;
        match (operation, target) {
            (Dependent::AddEntry(key), LockTarget::Key(entry)) => {
                DependentAction::AddEntry { index: table, entry, key }
            }
            (Dependent::RemoveEntry, LockTarget::Key(entry)) => {
                DependentAction::RemoveEntry { index: table, entry }
            }
            (Dependent::RequireParent, LockTarget::Key(key)) => {
                DependentAction::RequireParent { parent: table, key }
            }
            (Dependent::RequireNoChild, LockTarget::Range { lower, upper }) => {
                DependentAction::RequireNoChild { through: table, range: KeyRange { lower, upper } }
            }
            _ => unreachable!("only an absence is looked for in a range"),
        }
    }

    pub(crate) fn into_action(self, tag: CatalogTag) -> Action<Dependent> {
        match self {
            DependentAction::AddEntry { index, entry, key } => {
                Action::on_key(index, tag, LockMode::Exclusive, entry, Dependent::AddEntry(key))
            }
            DependentAction::RemoveEntry { index, entry } => {
                Action::on_key(index, tag, LockMode::Exclusive, entry, Dependent::RemoveEntry)
            }
            DependentAction::RequireParent { parent, key } => {
                Action::on_key(parent, tag, LockMode::Shared, key, Dependent::RequireParent)
            }
            DependentAction::RequireNoChild { through, range } => {
                Action::on_range(through, tag, range, false, Dependent::RequireNoChild)
            }
        }
    }
}

impl<T: Table> TableRef<T> {
    /// Refuses, when it is compiled, whatever would write a read-only table.
    const WRITABLE: () = assert!(
        !T::READ_ONLY,
        "the table is read-only (Table::READ_ONLY), so no transaction can write it; load its rows with Database::load, or \
         drop the mark"
    );

    /// Reads the row of `key`, if there is one.
    #[inline]
    pub fn get(self, key: T::Key) -> Action<Get<T>> {
        Action::on_key(self.id, self.tag, LockMode::Shared, key.encode(), Get(std::marker::PhantomData))
    }

    /// Reads the row of `key` where it is and returns what the closure makes of it, or `None` when there is no row: what it leaves
    /// out does not travel.
    #[inline]
    pub fn read<F, R>(self, key: T::Key, look: F) -> Action<Read<T, F>>
    where
        F: FnOnce(T::Row) -> R + Send + 'static,
        R: Send + 'static,
    {
        let read = Read { look, table: std::marker::PhantomData };
        Action::on_key(self.id, self.tag, LockMode::Shared, key.encode(), read)
    }

    /// Inserts a row; a key that is taken aborts the transaction ([`AbortReason::DuplicateKey`]).
    pub fn insert(self, key: T::Key, row: T::Row) -> Action<Insert<T>> {
        const { Self::WRITABLE };
        let insert = Insert { row, strict: true };
        Action::on_key(self.id, self.tag, LockMode::Exclusive, key.encode(), insert)
    }

    /// Inserts a row unless the key is taken; returns whether it did.
    pub fn insert_if_absent(self, key: T::Key, row: T::Row) -> Action<Insert<T>> {
        const { Self::WRITABLE };
        let insert = Insert { row, strict: false };
        Action::on_key(self.id, self.tag, LockMode::Exclusive, key.encode(), insert)
    }

    /// Changes the row of `key` in place and returns what the closure returns, or `None` when there is no row.
    #[inline]
    pub fn update<F, R>(self, key: T::Key, change: F) -> Action<Update<T, F>>
    where
        F: FnOnce(&mut T::Row) -> R + Send + 'static,
        R: Send + 'static,
    {
        const { Self::WRITABLE };
        let update = Update { change, table: std::marker::PhantomData };
        Action::on_key(self.id, self.tag, LockMode::Exclusive, key.encode(), update)
    }

    /// Deletes the row of `key` and returns it, if there was one.
    pub fn delete(self, key: T::Key) -> Action<Delete<T>> {
        const { Self::WRITABLE };
        Action::on_key(self.id, self.tag, LockMode::Exclusive, key.encode(), Delete(std::marker::PhantomData))
    }
}

impl<I: crate::schema::Index> crate::schema::IndexRef<I> {
    /// The primary key of the row with this index key. Only for unique indexes; for the others see
    /// [`Tx::lookup_all`](crate::Tx::lookup_all).
    #[inline]
    pub fn lookup(self, key: I::Key) -> Action<Lookup<<I::Table as Table>::Key>> {
        const { assert!(I::UNIQUE, "lookup is for unique indexes; use Tx::lookup_all for the others") };
        Action::on_key(self.id, self.tag, LockMode::Shared, key.encode(), Lookup(std::marker::PhantomData))
    }
}
