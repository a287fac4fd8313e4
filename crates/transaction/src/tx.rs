//! The interface of a running transaction to its procedure ([`Tx`]).
//!
//! # Life of a transaction, from here
//!
//! - **route** and the hand-over to the home worker: [`crate::procedure`].
//! - **execute**: [`Tx::run`] makes a [`Run`] of an action. On the home's own data that is a direct call ([`home`],
//!   [`access`]): no message, no lock, no atomic, no allocation. Any other action is sent to its owner
//!   ([`participant`]) and the transaction suspends. Several actions form a phase ([`phase`]); the dependents of a
//!   write run in the same phase ([`dependents`]).
//!   An action may be followed by one that is made of its result, on the same worker ([`Transaction::run_then`]).
//! - **lock**: a transaction that has not suspended only checks that no lock conflicts. When it suspends for the first
//!   time its footprint is entered in the lock tables ([`state`]). Actions from another worker lock at once. A conflict is
//!   waited for in [`lock_wait`].
//! - **log**, **release**: [`commit`] makes the redo record (there is none without a WAL), drops the undo or applies it, and
//!   releases the locks, here and at the participants.
//!
//! # Serializability
//!
//! Strict two-phase locking on keys and key ranges: a transaction that suspends holds a lock on everything it has read,
//! written or found absent until its outcome is decided. One that never suspends runs while no other task does on that
//! worker and accesses only that worker's data, so it needs no locks of its own; if the lock of another transaction
//! conflicts with an access, it suspends to wait, and holds locks from then on.
//!
//! # Absence of deadlock and starvation
//!
//! Queues are fair, and cycles of waiting transactions are found and broken by [`crate::deadlock`].

mod access;
mod at_once;
mod commit;
mod dependents;
mod direct;
mod home;
mod lock_wait;
mod participant;
mod phase;
mod ranges;
pub(crate) mod rounds;
mod savepoint;
mod split;
mod state;

use std::ops::ControlFlow;
use std::rc::Rc;

use atrapos_partition::abort::Abort;
use atrapos_partition::action::{
    Action, Chained, Edit, ErasedOperation, Fold, Folded, Following, Operation, Read, RowOperation, Update,
    View,
};
use atrapos_partition::range::KeyRange;
use atrapos_partition::schema::{Index, IndexRef, Table, TableRef};
use atrapos_runtime::WorkerId;
use atrapos_storage::lock::LockMode;
use atrapos_storage::{RowEdit, RowView};

use crate::dynamic::AnyTable;
use crate::lookups::RouteHint;
use crate::run::Run;
use crate::shard::EngineWorker;
use crate::transaction::{RowPhase, Transaction};

pub(crate) use at_once::{free_to_read, run_at_once};
pub use commit::{Ending, TxnGuard};
pub(crate) use commit::{
    UNDECIDED, commit_subordinate, commit_subordinate_alone, end_subordinate, has_read_durable, observed,
};
pub(crate) use direct::{DirectMemory, attempt};
pub(crate) use home::AccessStart;
pub use participant::{ActionReply, BranchRef, on_action, on_actions};
pub use phase::Phase;
pub(crate) use phase::{Chosen, PlannedPhase};
pub use savepoint::{Origin, Savepoint, on_rollback};
pub use state::{OperationGuard, TxnState};

/// A running transaction, passed to its procedure.
///
/// A procedure is an `async fn` over `&mut Tx`. It awaits only the transaction's own operations; each may suspend it
/// while other transactions run. An operation that fails dooms the transaction: independent of later operations, the
/// transaction aborts and none of its changes remain, unless it goes back to a [savepoint](Tx::savepoint).
pub struct Tx<'w> {
    worker: &'w Rc<EngineWorker>,
    state: &'w Rc<TxnState>,
    routed: Option<&'w RouteHint<'w>>,
    /// True if the next operation is the last one.
    is_last: bool,
}

impl std::fmt::Debug for Tx<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tx").field("home", &self.worker.id()).finish_non_exhaustive()
    }
}

impl<'w> Tx<'w> {
    /// Creates the interface of a transaction for its procedure.
    #[inline]
    pub(crate) fn new(
        worker: &'w Rc<EngineWorker>,
        state: &'w Rc<TxnState>,
        routed: Option<&'w RouteHint<'w>>,
    ) -> Tx<'w> {
        Tx { worker, state, routed, is_last: false }
    }

    /// The worker that is the transaction's home.
    #[must_use]
    pub fn home(&self) -> WorkerId {
        self.worker.id()
    }

    /// Notes the number of the client that the transaction works for, as looks at locks tell of it
    /// ([`activity::locks`](crate::activity::locks)). Zero is nobody.
    pub fn set_client(&mut self, client: u32) {
        self.state.client.set(client);
    }

    /// Notes the class of the transaction, under which the database counts it: a constant of the program, of which 64 are told apart. Stored
    /// procedures have [theirs](crate::stored::StoredProcedure::CLASS), and sessions may [name](crate::session::Session::set_class) that of their transactions.
    #[inline(always)]
    pub fn set_class(&mut self, class: &'static str) {
        self.state.class.set(Some(class));
    }

    /// Declares the next operation the last one, as [`Transaction::declare_last`] does.
    #[inline]
    pub fn declare_last(&mut self) {
        self.is_last = true;
    }

    /// Returns true if the next operation was declared the last one.
    pub(crate) fn is_last(&self) -> bool {
        self.is_last
    }

    /// Runs one action and returns its result.
    ///
    /// # Errors
    /// The reason for which the transaction has to abort.
    #[inline]
    pub fn run<O: Operation>(&mut self, action: Action<O>) -> Run<'_, 'w, O> {
        Run::new(self, action)
    }

    /// Runs the actions of a phase and awaits their results: a synchronization point.
    ///
    /// The actions run in the order of their owners; those on the data of one run together if none of them has to wait, and
    /// otherwise in the order of their keys, independent of the order in which they are given. So transactions that access
    /// the same rows queue for them in the same order and never wait for each other in a cycle. (Transactions of several phases may still close one; see `deadlock`.)
    ///
    /// # Errors
    /// The reason of the first action that failed; the transaction has to abort.
    pub async fn join<P: Phase>(&mut self, phase: P) -> Result<P::Output, Abort> {
        self.state.trace.next_phase();
        phase.run(self).await
    }

    /// Runs any number of actions of one kind as one phase, in the order that [`join`](Tx::join) explains; results are in
    /// order of the actions. Actions for the same owner travel in one message.
    ///
    /// # Errors
    /// The reason of the first action that failed; the transaction has to abort.
    pub async fn join_all<O: Operation>(
        &mut self,
        actions: impl IntoIterator<Item = Action<O>>,
    ) -> Result<Vec<O::Output>, Abort> {
        let actions = actions.into_iter();
        let mut results = Vec::with_capacity(actions.size_hint().0);
        self.join_each(actions, |result| results.push(result)).await?;
        Ok(results)
    }

    /// Runs actions of one kind as one phase, as [`join_all`](Tx::join_all) does, and hands each result to `take`, in order of
    /// the actions. A phase of up to sixteen actions on rows of the home allocates nothing.
    ///
    /// # Errors
    /// The reason of the first action that failed; the transaction has to abort. Some results may have been handed over.
    pub async fn join_each<O: Operation>(
        &mut self,
        actions: impl IntoIterator<Item = Action<O>>,
        take: impl FnMut(O::Output),
    ) -> Result<(), Abort> {
        self.state.trace.next_phase();
        self.run_together(actions.into_iter(), take).await
    }

    /// Reads a row of a table of either kind ([`AnyTable`]).
    ///
    /// # Errors
    /// Those of [`run`](Tx::run); [`InvalidValue`](atrapos_partition::abort::AbortReason::InvalidValue) when values are no key of the table.
    #[inline]
    pub fn get<A: AnyTable>(&mut self, table: A, key: A::Key) -> Run<'_, 'w, A::Get> {
        match table.get_action(key) {
            Ok(action) => self.run(action),
            Err(abort) => Run::refused(self, abort),
        }
    }

    /// Reads a row and returns the result of a closure over it; `None` if there is no row.
    ///
    /// # Errors
    /// Those of [`run`](Tx::run).
    #[inline]
    pub fn read<T, F, R>(&mut self, table: TableRef<T>, key: T::Key, look: F) -> Run<'_, 'w, Read<T, F>>
    where
        T: Table,
        F: FnOnce(T::Row) -> R + Send + 'static,
        R: Send + 'static,
    {
        self.run(table.read(key, look))
    }

    /// Looks at columns of a row in place and returns the result of the closure; `None` if there is no row. See
    /// [`TableRef::view`].
    ///
    /// # Errors
    /// Those of [`run`](Tx::run).
    #[inline]
    pub fn view<T, F, R>(&mut self, table: TableRef<T>, key: T::Key, look: F) -> Run<'_, 'w, View<T, F>>
    where
        T: Table,
        F: FnOnce(RowView<'_, T::Row>) -> R + Send + 'static,
        R: Send + 'static,
    {
        self.run(table.view(key, look))
    }

    /// Inserts a row; a key that is taken aborts the transaction.
    ///
    /// # Errors
    /// Those of [`run`](Tx::run).
    pub async fn insert<T: Table>(
        &mut self,
        table: TableRef<T>,
        key: T::Key,
        row: T::Row,
    ) -> Result<(), Abort> {
        self.run(table.insert(key, row)).await.map(drop)
    }

    /// Changes a row in place and returns the result of the closure; `None` if there is no row.
    ///
    /// # Errors
    /// Those of [`run`](Tx::run).
    #[inline]
    pub fn update<T, F, R>(&mut self, table: TableRef<T>, key: T::Key, change: F) -> Run<'_, 'w, Update<T, F>>
    where
        T: Table,
        F: FnOnce(&mut T::Row) -> R + Send + 'static,
        R: Send + 'static,
    {
        self.run(table.update(key, change))
    }

    /// Changes columns of a row in place and returns the result of the closure; `None` if there is no row. See
    /// [`TableRef::edit`].
    ///
    /// # Errors
    /// Those of [`run`](Tx::run).
    #[inline]
    pub fn edit<T, F, R>(&mut self, table: TableRef<T>, key: T::Key, change: F) -> Run<'_, 'w, Edit<T, F>>
    where
        T: Table,
        F: FnOnce(&mut RowEdit<'_, T::Row>) -> R + Send + 'static,
        R: Send + 'static,
    {
        self.run(table.edit(key, change))
    }

    /// Deletes a row of a table of either kind and returns it, if there was one.
    ///
    /// # Errors
    /// Those of [`run`](Tx::run); [`InvalidValue`](atrapos_partition::abort::AbortReason::InvalidValue) when values are no key of the table, or it is
    /// read-only.
    pub fn delete<A: AnyTable>(&mut self, table: A, key: A::Key) -> Run<'_, 'w, A::Delete> {
        match table.delete_action(key) {
            Ok(action) => self.run(action),
            Err(abort) => Run::refused(self, abort),
        }
    }

    /// Reads the row that a unique index leads to, with its primary key.
    ///
    /// # Errors
    /// Those of [`run`](Tx::run).
    pub async fn get_by<I: Index>(
        &mut self,
        index: IndexRef<I>,
        table: TableRef<I::Table>,
        key: I::Key,
    ) -> Result<Option<(<I::Table as Table>::Key, <I::Table as Table>::Row)>, Abort> {
        Transaction::get_by(self, index, table, key).await
    }

    /// Returns the primary keys of the rows whose index keys lie in `range`, in order of the index, at most `limit`.
    ///
    /// # Errors
    /// Those of [`run`](Tx::run).
    pub async fn lookup_all<I: Index>(
        &mut self,
        index: IndexRef<I>,
        range: KeyRange,
        limit: usize,
    ) -> Result<Vec<<I::Table as Table>::Key>, Abort> {
        Transaction::lookup_all(self, index, range, limit).await
    }

    /// Returns the primary keys that [`lookup_all`](Tx::lookup_all) returns, from the last index key to the first.
    ///
    /// # Errors
    /// Those of [`run`](Tx::run).
    pub async fn lookup_all_backward<I: Index>(
        &mut self,
        index: IndexRef<I>,
        range: KeyRange,
        limit: usize,
    ) -> Result<Vec<<I::Table as Table>::Key>, Abort> {
        Transaction::lookup_all_backward(self, index, range, limit).await
    }

    /// Walks the rows of a range in order of their keys, feeding each to `step` until it breaks, and returns the
    /// accumulator. The closure runs on the owners of the rows. The range, as far as it was walked, is protected from
    /// insertions by others until the transaction ends.
    ///
    /// # Errors
    /// Those of [`run`](Tx::run).
    #[inline]
    pub async fn fold<T, A, F>(
        &mut self,
        table: TableRef<T>,
        range: KeyRange,
        accumulator: A,
        step: F,
    ) -> Result<A, Abort>
    where
        T: Table,
        A: Send + 'static,
        F: FnMut(&mut A, T::Key, T::Row) -> ControlFlow<()> + Send + 'static,
    {
        Transaction::fold(self, table, range, accumulator, step).await
    }

    /// Walks the rows of a range as [`fold`](Tx::fold) does, without decoding them: `step` reads the columns that it needs, or
    /// takes the row as it is encoded.
    ///
    /// # Errors
    /// Those of [`run`](Tx::run).
    #[inline]
    pub async fn fold_views<T, A, F>(
        &mut self,
        table: TableRef<T>,
        range: KeyRange,
        accumulator: A,
        step: F,
    ) -> Result<A, Abort>
    where
        T: Table,
        A: Send + 'static,
        F: FnMut(&mut A, T::Key, RowView<'_, T::Row>) -> ControlFlow<()> + Send + 'static,
    {
        Transaction::fold_views(self, table, range, accumulator, step).await
    }

    /// Walks the rows as [`fold_views`](Tx::fold_views) does, from the last key to the first.
    ///
    /// # Errors
    /// Those of [`run`](Tx::run).
    #[inline]
    pub async fn fold_views_backward<T, A, F>(
        &mut self,
        table: TableRef<T>,
        range: KeyRange,
        accumulator: A,
        step: F,
    ) -> Result<A, Abort>
    where
        T: Table,
        A: Send + 'static,
        F: FnMut(&mut A, T::Key, RowView<'_, T::Row>) -> ControlFlow<()> + Send + 'static,
    {
        Transaction::fold_views_backward(self, table, range, accumulator, step).await
    }

    /// Walks the rows as [`fold`](Tx::fold) does, from the last key to the first.
    ///
    /// # Errors
    /// Those of [`run`](Tx::run).
    pub async fn fold_backward<T, A, F>(
        &mut self,
        table: TableRef<T>,
        range: KeyRange,
        accumulator: A,
        step: F,
    ) -> Result<A, Abort>
    where
        T: Table,
        A: Send + 'static,
        F: FnMut(&mut A, T::Key, T::Row) -> ControlFlow<()> + Send + 'static,
    {
        Transaction::fold_backward(self, table, range, accumulator, step).await
    }

    /// Returns the rows of a range of a table of either kind in order of their keys, at most `limit`. See
    /// [`fold`](Tx::fold) for scans that need no list.
    ///
    /// # Errors
    /// Those of [`run`](Tx::run).
    pub async fn scan<A: AnyTable>(
        &mut self,
        table: A,
        range: KeyRange,
        limit: usize,
    ) -> Result<Vec<A::Entry>, Abort> {
        table.scan_in(self, range, limit, false).await
    }

    /// Returns rows as [`scan`](Tx::scan) does, from the last key to the first.
    ///
    /// # Errors
    /// Those of [`run`](Tx::run).
    pub async fn scan_backward<A: AnyTable>(
        &mut self,
        table: A,
        range: KeyRange,
        limit: usize,
    ) -> Result<Vec<A::Entry>, Abort> {
        table.scan_in(self, range, limit, true).await
    }
}

impl<'w> Transaction for Tx<'w> {
    #[inline]
    fn declare_last(&mut self) {
        Tx::declare_last(self);
    }

    #[inline(always)]
    #[expect(refining_impl_trait, reason = "what it returns is what `Tx::run` returns")]
    fn run<O: RowOperation>(&mut self, action: Action<O>) -> Run<'_, 'w, O> {
        Run::new(self, action)
    }

    // These return the futures that do the work: each `async fn` around one copies what it is given, and its result.
    #[inline(always)]
    fn join<P: RowPhase>(&mut self, phase: P) -> impl Future<Output = Result<P::Output, Abort>> {
        self.state.trace.next_phase();
        phase.run(self)
    }

    #[inline(always)]
    fn join_each<O: RowOperation>(
        &mut self,
        actions: impl IntoIterator<Item = Action<O>>,
        take: impl FnMut(O::Output),
    ) -> impl Future<Output = Result<(), Abort>> {
        self.state.trace.next_phase();
        self.run_together(actions.into_iter(), take)
    }

    async fn run_then<O, B, F>(
        &mut self,
        first: Action<O>,
        then: F,
    ) -> Result<(O::Output, Option<B::Output>), Abort>
    where
        O: RowOperation,
        B: RowOperation,
        F: FnOnce(&mut O::Output) -> Option<Action<B>> + Send + 'static,
    {
        if !self.is_sent(&first.request) {
            let mut first = self.run(first).await?;
            let second = match then(&mut first) {
                Some(action) => Some(self.run(action).await?),
                None => None,
            };
            return Ok((first, second));
        }
        let Chained { first, second } = self.run(first.followed_by(then)).await?;
        let second = match second {
            Some(Following::Done(table, key, done)) => {
                self.note_followed(table, &key, &done);
                Some(done)
            }
            Some(Following::Due(action)) => Some(self.run(action).await?),
            None => None,
        };
        Ok((first, second.map(ErasedOperation::into_output::<B>)))
    }

    #[inline]
    async fn walk<T, A, F>(
        &mut self,
        table: TableRef<T>,
        range: KeyRange,
        (backward, collects): (bool, bool),
        mut accumulator: A,
        mut step: F,
    ) -> Result<A, Abort>
    where
        T: Table,
        A: Send + 'static,
        F: FnMut(&mut A, T::Key, RowView<'_, T::Row>) -> ControlFlow<()> + Send + 'static,
    {
        let mut rest = Some(range);
        while let Some(range) = rest {
            self.worker.shard().check(table.id(), table.tag()).inspect_err(|abort| self.state.doom(abort))?;
            let operation = Fold::<T, A, F>::new(accumulator, step, backward, collects);
            let action =
                Action::on_range(table.id(), table.tag(), LockMode::Shared, range, backward, operation);
            let folded: Folded<A, F> = self.run(action).await?;
            (accumulator, step, rest) = (folded.accumulator, folded.step, folded.rest);
        }
        Ok(accumulator)
    }
}
