//! The interface of a running transaction to its procedure, whatever engine runs it ([`Transaction`]).
//!
//! A procedure that is written over it runs on partitions ([`Tx`](crate::tx::Tx)) and on engines of other designs. Dispatch
//! is static: a procedure is compiled for each kind of transaction that runs it.
//!
//! Owns: the operations that all engines have, and what follows from them. Never: says how an engine finds or protects a row.

use std::any::TypeId;
use std::future::Future;
use std::mem::needs_drop;
use std::ops::ControlFlow;

use atrapos_partition::abort::Abort;
use atrapos_partition::action::{
    Action, CollectKeys, Delete, DeleteRange, Edit, Fold, FoldKeys, Folded, Get, Operation, RangeChanged,
    Read, RowOperation, Update, UpdateRange, View,
};
use atrapos_partition::range::KeyRange;
use atrapos_partition::schema::{CatalogTag, Index, IndexRef, Table, TableId, TableRef, decode_key};
use atrapos_storage::lock::LockMode;
use atrapos_storage::{KeyBuf, Row, RowEdit, RowView};

use crate::tx::Phase;

/// The key and the row of an entry of a table.
pub type Entry<T> = (<T as Table>::Key, <T as Table>::Row);

/// A running transaction. See [`Tx`](crate::tx::Tx) for what each operation does; engines differ only in how they do it.
///
/// An operation that fails dooms the transaction. All of them fail with the reason for which the transaction has to abort.
pub trait Transaction {
    /// Declares that the next action, or phase, is the last one of the transaction: then an engine may release locks on what was read
    /// while it runs, since two-phase locking needs them only until the last one is granted. An operation after that may abort
    /// the transaction ([`Misuse`](atrapos_partition::abort::AbortReason::Misuse)). To declare nothing is always right.
    #[inline(always)]
    fn declare_last(&mut self) {}

    /// Runs one action and returns its result.
    fn run<O: RowOperation>(&mut self, action: Action<O>) -> impl Future<Output = Result<O::Output, Abort>>;

    /// Runs the actions of a phase and returns their results: a synchronization point.
    fn join<P: RowPhase>(&mut self, phase: P) -> impl Future<Output = Result<P::Output, Abort>>;

    /// Runs actions of one kind as one phase, and hands each result to `take`, in order of the actions.
    fn join_each<O: RowOperation>(
        &mut self,
        actions: impl IntoIterator<Item = Action<O>>,
        take: impl FnMut(O::Output),
    ) -> impl Future<Output = Result<(), Abort>>;

    /// Runs actions of one kind as one phase and returns their results, in order of the actions.
    fn join_all<O: RowOperation>(
        &mut self,
        actions: impl IntoIterator<Item = Action<O>>,
    ) -> impl Future<Output = Result<Vec<O::Output>, Abort>> {
        async move {
            let actions = actions.into_iter();
            let mut results = Vec::with_capacity(actions.size_hint().0);
            self.join_each(actions, |result| results.push(result)).await?;
            Ok(results)
        }
    }

    /// Reads a row.
    #[inline(always)]
    fn get<T: Table>(
        &mut self,
        table: TableRef<T>,
        key: T::Key,
    ) -> impl Future<Output = Result<<Get<T> as Operation>::Output, Abort>> {
        self.run(table.get(key))
    }

    /// Reads a row and returns the result of a closure over it; `None` if there is no row.
    #[inline(always)]
    fn read<T, F, R>(
        &mut self,
        table: TableRef<T>,
        key: T::Key,
        look: F,
    ) -> impl Future<Output = Result<<Read<T, F> as Operation>::Output, Abort>>
    where
        T: Table,
        F: FnOnce(T::Row) -> R + Send + 'static,
        R: Send + 'static,
    {
        self.run(table.read(key, look))
    }

    /// Looks at columns of a row in place and returns the result of the closure; `None` if there is no row.
    #[inline(always)]
    fn view<T, F, R>(
        &mut self,
        table: TableRef<T>,
        key: T::Key,
        look: F,
    ) -> impl Future<Output = Result<<View<T, F> as Operation>::Output, Abort>>
    where
        T: Table,
        F: FnOnce(RowView<'_, T::Row>) -> R + Send + 'static,
        R: Send + 'static,
    {
        self.run(table.view(key, look))
    }

    /// Inserts a row; a key that is taken aborts the transaction.
    #[inline(always)]
    fn insert<T: Table>(
        &mut self,
        table: TableRef<T>,
        key: T::Key,
        row: T::Row,
    ) -> impl Future<Output = Result<(), Abort>> {
        let inserted = self.run(table.insert(key, row));
        async move { inserted.await.map(drop) }
    }

    /// Changes a row and returns the result of the closure; `None` if there is no row.
    #[inline(always)]
    fn update<T, F, R>(
        &mut self,
        table: TableRef<T>,
        key: T::Key,
        change: F,
    ) -> impl Future<Output = Result<<Update<T, F> as Operation>::Output, Abort>>
    where
        T: Table,
        F: FnOnce(&mut T::Row) -> R + Send + 'static,
        R: Send + 'static,
    {
        self.run(table.update(key, change))
    }

    /// Changes columns of a row in place and returns the result of the closure; `None` if there is no row.
    #[inline(always)]
    fn edit<T, F, R>(
        &mut self,
        table: TableRef<T>,
        key: T::Key,
        change: F,
    ) -> impl Future<Output = Result<<Edit<T, F> as Operation>::Output, Abort>>
    where
        T: Table,
        F: FnOnce(&mut RowEdit<'_, T::Row>) -> R + Send + 'static,
        R: Send + 'static,
    {
        self.run(table.edit(key, change))
    }

    /// Deletes a row and returns it, if there was one.
    #[inline(always)]
    fn delete<T: Table>(
        &mut self,
        table: TableRef<T>,
        key: T::Key,
    ) -> impl Future<Output = Result<<Delete<T> as Operation>::Output, Abort>> {
        self.run(table.delete(key))
    }

    /// Reads the row that a unique index leads to, with its primary key.
    fn get_by<I: Index>(
        &mut self,
        index: IndexRef<I>,
        table: TableRef<I::Table>,
        key: I::Key,
    ) -> impl Future<Output = Result<Option<Entry<I::Table>>, Abort>> {
        async move {
            let then = move |key: &mut Option<_>| key.clone().map(|key| table.get(key));
            let (key, row) = self.run_then(index.lookup(key), then).await?;
            Ok(key.zip(row.flatten()))
        }
    }

    /// Returns the primary keys of the rows whose index keys lie in `range`, in order of the index, at most `limit`.
    fn lookup_all<I: Index>(
        &mut self,
        index: IndexRef<I>,
        range: KeyRange,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<<I::Table as Table>::Key>, Abort>> {
        look_up_all(self, index, range, limit, false)
    }

    /// Returns the primary keys that [`lookup_all`](Transaction::lookup_all) returns, from the last index key to the first.
    fn lookup_all_backward<I: Index>(
        &mut self,
        index: IndexRef<I>,
        range: KeyRange,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<<I::Table as Table>::Key>, Abort>> {
        look_up_all(self, index, range, limit, true)
    }

    /// Walks the entries of an index in `range` in their order, feeding the primary key of each to `step` until it breaks, and
    /// returns the accumulator: like [`lookup_all`](Transaction::lookup_all), without a list.
    fn lookup_each<I, A, F>(
        &mut self,
        index: IndexRef<I>,
        range: KeyRange,
        mut accumulator: A,
        mut step: F,
    ) -> impl Future<Output = Result<A, Abort>>
    where
        I: Index,
        A: Send + 'static,
        F: FnMut(&mut A, <I::Table as Table>::Key) -> ControlFlow<()> + Send + 'static,
    {
        async move {
            let mut rest = Some(range);
            while let Some(range) = rest {
                let operation = FoldKeys::<I, A, F>::new(accumulator, step);
                let (id, tag) = (index.id(), index.tag());
                let action = Action::on_range(id, tag, LockMode::Shared, range, false, operation);
                let folded = self.run(action).await?;
                (accumulator, step, rest) = (folded.accumulator, folded.step, folded.rest);
            }
            Ok(accumulator)
        }
    }

    /// Runs an action, and then one that `then` makes of its result, if it makes one, and returns both results. Where the data of both is
    /// on one other worker, they travel in one message: the transaction waits once.
    ///
    /// After [`declare_last`](Transaction::declare_last) it is one operation too many.
    fn run_then<O, B, F>(
        &mut self,
        first: Action<O>,
        then: F,
    ) -> impl Future<Output = Result<(O::Output, Option<B::Output>), Abort>>
    where
        O: RowOperation,
        B: RowOperation,
        F: FnOnce(&mut O::Output) -> Option<Action<B>> + Send + 'static,
    {
        async move {
            let mut first = self.run(first).await?;
            let second = match then(&mut first) {
                Some(action) => Some(self.run(action).await?),
                None => None,
            };
            Ok((first, second))
        }
    }

    /// Walks the entries of an index as [`lookup_each`](Transaction::lookup_each) does, and then runs the action that `then` makes of the
    /// accumulator, if it makes one: to look up which row to change, and to change it. On the data of another worker both travel in one
    /// message ([`run_then`](Transaction::run_then)).
    fn lookup_then<I, A, S, B, F>(
        &mut self,
        index: IndexRef<I>,
        range: KeyRange,
        accumulator: A,
        mut step: S,
        then: F,
    ) -> impl Future<Output = Result<Option<B::Output>, Abort>>
    where
        I: Index,
        A: Send + 'static,
        S: FnMut(&mut A, <I::Table as Table>::Key) -> ControlFlow<()> + Send + 'static,
        B: RowOperation,
        F: FnOnce(A) -> Option<Action<B>> + Send + 'static,
    {
        async move {
            // Of a range in several partitions, the last one has what goes on.
            let mut walk = Some((accumulator, then));
            let mut each = move |walk: &mut Option<(A, F)>, key| match walk {
                Some((accumulator, _)) => step(accumulator, key),
                None => ControlFlow::Break(()),
            };
            let mut rest = Some(range);
            while let Some(range) = rest {
                let operation = FoldKeys::<I, _, _>::new(walk, each);
                let (id, tag) = (index.id(), index.tag());
                let action = Action::on_range(id, tag, LockMode::Shared, range, false, operation);
                let (folded, second) = self.run_then(action, go_on).await?;
                if folded.rest.is_none() {
                    return Ok(second);
                }
                (walk, each, rest) = (folded.accumulator, folded.step, folded.rest);
            }
            Ok(None)
        }
    }

    /// Walks the rows of a range in order of their keys, feeding each to `step` until it breaks, and returns the
    /// accumulator.
    #[inline(always)]
    fn fold<T, A, F>(
        &mut self,
        table: TableRef<T>,
        range: KeyRange,
        accumulator: A,
        step: F,
    ) -> impl Future<Output = Result<A, Abort>>
    where
        T: Table,
        A: Send + 'static,
        F: FnMut(&mut A, T::Key, T::Row) -> ControlFlow<()> + Send + 'static,
    {
        self.walk(table, range, (false, is_list::<T, A>()), accumulator, decoded(step))
    }

    /// Walks the rows as [`fold`](Transaction::fold) does, from the last key to the first.
    #[inline(always)]
    fn fold_backward<T, A, F>(
        &mut self,
        table: TableRef<T>,
        range: KeyRange,
        accumulator: A,
        step: F,
    ) -> impl Future<Output = Result<A, Abort>>
    where
        T: Table,
        A: Send + 'static,
        F: FnMut(&mut A, T::Key, T::Row) -> ControlFlow<()> + Send + 'static,
    {
        self.walk(table, range, (true, is_list::<T, A>()), accumulator, decoded(step))
    }

    /// Walks the rows of a range as [`fold`](Transaction::fold) does, without decoding them.
    #[inline(always)]
    fn fold_views<T, A, F>(
        &mut self,
        table: TableRef<T>,
        range: KeyRange,
        accumulator: A,
        step: F,
    ) -> impl Future<Output = Result<A, Abort>>
    where
        T: Table,
        A: Send + 'static,
        F: FnMut(&mut A, T::Key, RowView<'_, T::Row>) -> ControlFlow<()> + Send + 'static,
    {
        self.walk(table, range, (false, needs_drop::<A>()), accumulator, step)
    }

    /// Walks the rows as [`fold_views`](Transaction::fold_views) does, from the last key to the first.
    #[inline(always)]
    fn fold_views_backward<T, A, F>(
        &mut self,
        table: TableRef<T>,
        range: KeyRange,
        accumulator: A,
        step: F,
    ) -> impl Future<Output = Result<A, Abort>>
    where
        T: Table,
        A: Send + 'static,
        F: FnMut(&mut A, T::Key, RowView<'_, T::Row>) -> ControlFlow<()> + Send + 'static,
    {
        self.walk(table, range, (true, needs_drop::<A>()), accumulator, step)
    }

    /// Returns the rows of a range in order of their keys, at most `limit`.
    #[inline(always)]
    fn scan<T: Table>(
        &mut self,
        table: TableRef<T>,
        range: KeyRange,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Entry<T>>, Abort>> {
        scan(self, table, range, limit, false)
    }

    /// Returns rows as [`scan`](Transaction::scan) does, from the last key to the first.
    #[inline(always)]
    fn scan_backward<T: Table>(
        &mut self,
        table: TableRef<T>,
        range: KeyRange,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Entry<T>>, Abort>> {
        scan(self, table, range, limit, true)
    }

    /// Changes every row of a range, in order of their keys, and returns the number of rows.
    fn update_range<T, F>(
        &mut self,
        table: TableRef<T>,
        range: KeyRange,
        change: F,
    ) -> impl Future<Output = Result<u64, Abort>>
    where
        T: Table,
        F: FnMut(&T::Key, &mut T::Row) + Send + 'static,
    {
        let update = UpdateRange::<T, F>::new(change);
        change_range((table.id(), table.tag()), range, update, async |action| self.run(action).await)
    }

    /// Deletes every row of a range and returns the number of rows.
    fn delete_range<T: Table>(
        &mut self,
        table: TableRef<T>,
        range: KeyRange,
    ) -> impl Future<Output = Result<u64, Abort>> {
        const { TableRef::<T>::WRITABLE };
        change_range((table.id(), table.tag()), range, DeleteRange, async |action| self.run(action).await)
    }

    /// Walks a range, the last row first if it goes `backward`. An accumulator that `collects` keys and rows is as large as
    /// they are, for the estimate of messages; one of views that owns memory is taken for such a one.
    #[doc(hidden)]
    #[inline(always)]
    fn walk<T, A, F>(
        &mut self,
        table: TableRef<T>,
        range: KeyRange,
        (backward, collects): (bool, bool),
        mut accumulator: A,
        mut step: F,
    ) -> impl Future<Output = Result<A, Abort>>
    where
        T: Table,
        A: Send + 'static,
        F: FnMut(&mut A, T::Key, RowView<'_, T::Row>) -> ControlFlow<()> + Send + 'static,
    {
        async move {
            let mut rest = Some(range);
            while let Some(range) = rest {
                let operation = Fold::<T, A, F>::new(accumulator, step, backward, collects);
                let (id, tag) = (table.id(), table.tag());
                let action = Action::on_range(id, tag, LockMode::Shared, range, backward, operation);
                let folded = self.run(action).await?;
                (accumulator, step, rest) = (folded.accumulator, folded.step, folded.rest);
            }
            Ok(accumulator)
        }
    }
}

/// A tuple of actions that engines of any design run as one phase.
pub trait RowPhase: Phase {
    /// Runs the actions one after another.
    #[doc(hidden)]
    fn run_each(self, runner: &mut impl RunAction) -> Result<Self::Output, Abort>;
}

/// An engine that runs the actions of a phase one after another, without their dependents.
pub trait RunAction {
    /// Runs an action.
    ///
    /// # Errors
    /// Fails with the reason for which the transaction has to abort.
    fn run_action<O: RowOperation>(&mut self, action: Action<O>) -> Result<O::Output, Abort>;
}

macro_rules! row_phases {
    ($(($($operation:ident $action:ident),+))+) => {$(
        impl<$($operation: RowOperation),+> RowPhase for ($(Action<$operation>,)+) {
            fn run_each(self, runner: &mut impl RunAction) -> Result<Self::Output, Abort> {
                let ($($action,)+) = self;
                Ok(($(runner.run_action($action)?,)+))
            }
        }
    )+};
}

row_phases! {
    (A a)
    (A a, B b)
    (A a, B b, C c)
    (A a, B b, C c, D d)
    (A a, B b, C c, D d, E e)
    (A a, B b, C c, D d, E e, F f)
    (A a, B b, C c, D d, E e, F f, G g)
    (A a, B b, C c, D d, E e, F f, G g, H h)
}

/// Makes the action that follows from a walk, once it is at its end.
fn go_on<A, B, F, S>(folded: &mut Folded<Option<(A, F)>, S>) -> Option<Action<B>>
where
    B: Operation,
    F: FnOnce(A) -> Option<Action<B>>,
{
    if folded.rest.is_some() {
        return None;
    }
    folded.accumulator.take().and_then(|(accumulator, then)| then(accumulator))
}

/// Returns the encoded primary keys that the entries of an index in `range` lead to, at most `limit`.
pub(crate) async fn collect_keys(
    tx: &mut (impl Transaction + ?Sized),
    (index, tag): (TableId, CatalogTag),
    range: KeyRange,
    limit: usize,
    backward: bool,
) -> Result<Vec<KeyBuf>, Abort> {
    let mut found: Vec<KeyBuf> = Vec::new();
    let mut rest = (limit > 0).then_some(range);
    while let Some(range) = rest {
        let operation = CollectKeys::new(found, limit, backward);
        let action = Action::on_range(index, tag, LockMode::Shared, range, backward, operation);
        let collected = tx.run(action).await?;
        (found, rest) = (collected.found, collected.rest);
    }
    Ok(found)
}

/// Returns the primary keys of the entries of an index in `range`, at most `limit`.
async fn look_up_all<I: Index>(
    tx: &mut (impl Transaction + ?Sized),
    index: IndexRef<I>,
    range: KeyRange,
    limit: usize,
    backward: bool,
) -> Result<Vec<<I::Table as Table>::Key>, Abort> {
    let found = collect_keys(tx, (index.id(), index.tag()), range, limit, backward).await?;
    found.iter().map(|key| decode_key(key)).collect()
}

/// Returns the rows of a range, at most `limit`.
pub(crate) async fn scan<T: Table>(
    tx: &mut (impl Transaction + ?Sized),
    table: TableRef<T>,
    range: KeyRange,
    limit: usize,
    backward: bool,
) -> Result<Vec<(T::Key, T::Row)>, Abort> {
    if limit == 0 {
        return Ok(Vec::new());
    }
    let room = ROOM_BYTES / size_of::<(T::Key, T::Row)>().max(1);
    let rows = Vec::with_capacity(limit.min(room));
    tx.walk(table, range, (backward, true), rows, decoded(collect_up_to(limit))).await
}

/// Runs an operation on a range by `run`, part by part, and returns the number of changed rows.
pub(crate) async fn change_range<O: Operation<Output = RangeChanged<O>>>(
    (table, tag): (TableId, CatalogTag),
    range: KeyRange,
    mut operation: O,
    mut run: impl AsyncFnMut(Action<O>) -> Result<RangeChanged<O>, Abort>,
) -> Result<u64, Abort> {
    let (mut rest, mut changed) = (Some(range), 0);
    while let Some(range) = rest.filter(|range| !range.is_empty()) {
        let action = Action::on_range(table, tag, LockMode::Exclusive, range, false, operation);
        let done = run(action).await?;
        changed += done.changed;
        (operation, rest) = (done.operation, done.rest);
    }
    Ok(changed)
}

/// Returns true if an accumulator is a list of keys and rows.
fn is_list<T: Table, A: 'static>() -> bool {
    TypeId::of::<A>() == TypeId::of::<Vec<(T::Key, T::Row)>>()
}

/// A step that decodes the rows for another.
#[inline(always)]
fn decoded<K, R: Row, A>(
    mut step: impl FnMut(&mut A, K, R) -> ControlFlow<()> + Send + 'static,
) -> impl FnMut(&mut A, K, RowView<'_, R>) -> ControlFlow<()> + Send + 'static {
    #[inline(always)]
    move |accumulator, key, row| step(accumulator, key, row.row())
}

/// Room that a list of rows has from the beginning, in bytes: it is not copied while it grows to that.
const ROOM_BYTES: usize = 128 << 10;

fn collect_up_to<K: Send + 'static, R: Send + 'static>(
    limit: usize,
) -> impl FnMut(&mut Vec<(K, R)>, K, R) -> ControlFlow<()> + Send + 'static {
    move |rows, key, row| {
        rows.push((key, row));
        if rows.len() >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
