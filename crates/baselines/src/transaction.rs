//! The interface of a running transaction to its procedure ([`SharedTx`]), for every engine with shared data.
//!
//! Typed operations work on encoded rows ([`SharedRow`]), as they do on partitions. Changes of index entries and checks of
//! foreign keys follow from the same definitions, and run at the end of the phase of the change, all changes before the first
//! check.
//!
//! Owns: the operations on one row or range, and the order of dependents. Never: protects a row; the engine does.
//!
//! What does not depend on the types of an operation is compiled once, apart from the operation: procedures are many.
//!
//! Invariant: after an operation has failed no other runs, and the transaction cannot commit.

use std::ops::ControlFlow;

use atrapos_partition::abort::Abort;
use atrapos_partition::action::{
    Action, ChangeRow, DependentAction, Request, RowAccess, RowChange, RowOperation, follow_change,
    refuse_duplicate,
};
use atrapos_partition::range::KeyRange;
use atrapos_partition::schema::{Catalog, TableId, unknown_table};
use atrapos_storage::lock::LockTarget;
use atrapos_storage::{KeyBuf, Overwritten, OverwrittenBytes};
use atrapos_transaction::transaction::{RowPhase, RunAction, Transaction};

use crate::rows::{Intent, RowTransaction};

/// Memory that the transactions of a client use one after another.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    old: Vec<u8>,
    new: Vec<u8>,
    overwritten: Vec<u8>,
    dependents: Vec<DependentAction>,
}

/// A running transaction of an engine with shared data. An operation runs when it is first polled, and has its result then:
/// its thread has waited for it.
pub struct SharedTx<'t> {
    rows: &'t mut dyn RowTransaction,
    catalog: &'t Catalog,
    scratch: &'t mut Scratch,
    /// The reason for which the transaction has to abort.
    failed: Option<Abort>,
}

impl std::fmt::Debug for SharedTx<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedTx").field("failed", &self.failed).finish_non_exhaustive()
    }
}

impl<'t> SharedTx<'t> {
    /// Creates the interface of a transaction that has begun.
    pub(crate) fn new(
        rows: &'t mut dyn RowTransaction,
        catalog: &'t Catalog,
        scratch: &'t mut Scratch,
    ) -> SharedTx<'t> {
        scratch.dependents.clear();
        SharedTx { rows, catalog, scratch, failed: None }
    }

    /// Returns the reason for which an operation has failed.
    pub(crate) fn failure(&self) -> Option<&Abort> {
        self.failed.as_ref()
    }

    /// Runs an action with its dependents.
    #[inline(never)]
    fn run_with_dependents<O: RowOperation>(&mut self, action: Action<O>) -> Result<O::Output, Abort> {
        let done = self.run_action(action)?;
        self.finish_phase()?;
        Ok(done)
    }

    /// Runs the dependents of the changes of a phase, and theirs: all changes before the first check.
    #[inline]
    fn finish_phase(&mut self) -> Result<(), Abort> {
        if self.scratch.dependents.is_empty() { Ok(()) } else { self.run_dependents() }
    }

    #[inline(never)]
    fn run_dependents(&mut self) -> Result<(), Abort> {
        while let Some(last) = self.scratch.dependents.len().checked_sub(1) {
            let change = self.scratch.dependents.iter().position(DependentAction::is_change);
            let dependent = self.scratch.dependents.remove(change.unwrap_or(last));
            self.run_action(dependent.into_action(self.catalog.tag))?;
        }
        Ok(())
    }

    /// Remembers why the transaction has to abort.
    #[cold]
    fn fail(&mut self, abort: &Abort) {
        self.failed.get_or_insert_with(|| abort.clone());
    }

    /// Refuses an action after another one has failed, or on a table of another database.
    #[inline(never)]
    fn check(&self, request: &Request) -> Result<(), Abort> {
        if let Some(abort) = &self.failed {
            return Err(abort.clone());
        }
        let is_known = request.tag == self.catalog.tag && request.table.at() < self.catalog.tables.len();
        if is_known { Ok(()) } else { Err(unknown_table(request.table)) }
    }
}

impl RunAction for SharedTx<'_> {
    #[inline(never)]
    fn run_action<O: RowOperation>(&mut self, action: Action<O>) -> Result<O::Output, Abort> {
        let Action { request, operation } = action;
        self.check(&request).inspect_err(|abort| self.fail(abort))?;
        let mut at = SharedRow {
            rows: self.rows,
            catalog: self.catalog,
            table: request.table,
            target: &request.target,
            scratch: self.scratch,
        };
        operation.apply_to(&mut at).inspect_err(|abort| self.fail(abort))
    }
}

impl Transaction for SharedTx<'_> {
    async fn run<O: RowOperation>(&mut self, action: Action<O>) -> Result<O::Output, Abort> {
        self.run_with_dependents(action)
    }

    async fn join<P: RowPhase>(&mut self, phase: P) -> Result<P::Output, Abort> {
        let done = phase.run_each(self)?;
        self.finish_phase()?;
        Ok(done)
    }

    async fn join_each<O: RowOperation>(
        &mut self,
        actions: impl IntoIterator<Item = Action<O>>,
        mut take: impl FnMut(O::Output),
    ) -> Result<(), Abort> {
        actions.into_iter().try_for_each(|action| self.run_action(action).map(&mut take))?;
        self.finish_phase()
    }
}

/// The row or range of one operation.
struct SharedRow<'a> {
    rows: &'a mut dyn RowTransaction,
    catalog: &'a Catalog,
    table: TableId,
    target: &'a LockTarget,
    scratch: &'a mut Scratch,
}

impl SharedRow<'_> {
    /// Inserts the row in the scratch.
    #[inline(never)]
    fn insert_new(&mut self, strict: bool) -> Result<bool, Abort> {
        let inserted = self.rows.insert(self.table, self.key_of_row(), &self.scratch.new)?;
        if !inserted {
            let refuse = || refuse_duplicate(self.catalog, self.table, self.key());
            return if strict { Err(refuse()) } else { Ok(false) };
        }
        self.follow(false, true)?;
        Ok(true)
    }

    /// Replaces the row by the new one in the scratch.
    #[inline(never)]
    fn replace_new(&mut self) -> Result<(), Abort> {
        self.rows.replace(self.table, self.key_of_row(), &self.scratch.new)?;
        self.follow(true, true)
    }

    /// Adds the dependents of the change of the key's row to `after`; the row before is in the scratch if there was one.
    fn follow(&mut self, existed: bool, exists: bool) -> Result<(), Abort> {
        let meta = &self.catalog.tables[self.table.at()];
        if !meta.has_dependents {
            return Ok(());
        }
        let Scratch { old, new, dependents, .. } = &mut *self.scratch;
        let LockTarget::Key(key) = self.target else { unreachable!("one row is changed at a time") };
        follow_change(
            meta,
            key,
            existed.then_some(old.as_slice()),
            exists.then_some(new.as_slice()),
            dependents,
        )
    }

    /// Copies the row of the key, which is to be changed, to the scratch; returns false if there is none.
    #[inline(never)]
    fn take_old(&mut self) -> Result<bool, Abort> {
        let LockTarget::Key(key) = self.target else { unreachable!("one row is changed at a time") };
        let Some(row) = self.rows.read(self.table, key, Intent::Write)? else { return Ok(false) };
        self.scratch.old.clear();
        self.scratch.old.extend_from_slice(row);
        Ok(true)
    }
}

impl RowAccess for SharedRow<'_> {
    fn catalog(&self) -> &Catalog {
        self.catalog
    }

    fn table(&self) -> TableId {
        self.table
    }

    fn key(&self) -> &KeyBuf {
        match self.target {
            LockTarget::Key(key) => key,
            LockTarget::Range { lower, .. } => lower,
        }
    }

    fn dependents(&mut self) -> &mut Vec<DependentAction> {
        &mut self.scratch.dependents
    }

    fn take_left_out(&mut self) -> Option<KeyRange> {
        None
    }

    #[inline(never)]
    fn row(&mut self) -> Result<Option<&[u8]>, Abort> {
        let LockTarget::Key(key) = self.target else { unreachable!("one row is read at a time") };
        self.rows.read(self.table, key, Intent::Read)
    }

    fn insert(&mut self, strict: bool, encode: impl FnOnce(&mut Vec<u8>)) -> Result<bool, Abort> {
        self.scratch.new.clear();
        encode(&mut self.scratch.new);
        self.insert_new(strict)
    }

    fn replace<R>(
        &mut self,
        make: impl FnOnce(&[u8], &mut Vec<u8>) -> Result<R, Abort>,
    ) -> Result<Option<R>, Abort> {
        if !self.take_old()? {
            return Ok(None);
        }
        self.scratch.new.clear();
        let made = make(&self.scratch.old, &mut self.scratch.new)?;
        self.replace_new()?;
        Ok(Some(made))
    }

    fn edit<R>(
        &mut self,
        change: impl FnOnce(&mut [u8], Overwritten<'_>) -> Result<R, Abort>,
    ) -> Result<Option<R>, Abort> {
        let Scratch { new, overwritten, .. } = &mut *self.scratch;
        let LockTarget::Key(key) = self.target else { unreachable!("one row is edited at a time") };
        let Some(row) = self.rows.read(self.table, key, Intent::Write)? else { return Ok(None) };
        new.clear();
        new.extend_from_slice(row);
        overwritten.clear();
        let row_bytes = new.len();
        let edited = change(new, Overwritten::new(overwritten, row_bytes))?;
        self.rows.replace(self.table, key, new)?;
        let meta = &self.catalog.tables[self.table.at()];
        if meta.has_dependents && !meta.is_indifferent_to(overwritten) {
            let Scratch { old, new, overwritten, .. } = &mut *self.scratch;
            old.clear();
            old.extend_from_slice(new);
            OverwrittenBytes::of(overwritten).restore(old);
            self.follow(true, true)?;
        }
        Ok(Some(edited))
    }

    #[inline(never)]
    fn delete(&mut self) -> Result<Option<&[u8]>, Abort> {
        if !self.take_old()? {
            return Ok(None);
        }
        self.rows.remove(self.table, self.key_of_row())?;
        self.follow(true, false)?;
        Ok(Some(&self.scratch.old))
    }

    fn put(&mut self, row: &[u8]) -> Result<bool, Abort> {
        self.rows.insert(self.table, self.key_of_row(), row)
    }

    fn remove(&mut self) -> Result<bool, Abort> {
        self.rows.remove(self.table, self.key_of_row())
    }

    fn walk(
        &mut self,
        backward: bool,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, Abort>,
    ) -> Result<bool, Abort> {
        let LockTarget::Range { lower, upper } = self.target else { unreachable!("a range is walked") };
        self.rows.scan(self.table, (lower, upper.as_deref()), backward, &mut visit)
    }

    #[inline(never)]
    fn change_range(&mut self, change: &mut ChangeRow<'_>) -> Result<u64, Abort> {
        let mut keys = Vec::new();
        self.walk(false, |key, _| {
            keys.push(LockTarget::Key(KeyBuf::from(key)));
            Ok(ControlFlow::Continue(()))
        })?;
        for target in &keys {
            let Self { rows, catalog, table, scratch, .. } = self;
            let mut at = SharedRow { rows: &mut **rows, catalog, table: *table, target, scratch };
            if !at.take_old()? {
                continue;
            }
            at.scratch.new.clear();
            let LockTarget::Key(key) = target else { unreachable!("keys were collected") };
            match change(key, &at.scratch.old, &mut at.scratch.new)? {
                RowChange::Replace => {
                    at.rows.replace(at.table, key, &at.scratch.new)?;
                    at.follow(true, true)?;
                }
                RowChange::Delete => {
                    at.rows.remove(at.table, key)?;
                    at.follow(true, false)?;
                }
            }
        }
        Ok(keys.len() as u64)
    }
}

impl<'a> SharedRow<'a> {
    /// The key of the row, for as long as the request lives.
    fn key_of_row(&self) -> &'a [u8] {
        let LockTarget::Key(key) = self.target else { unreachable!("one row is changed at a time") };
        key
    }
}
