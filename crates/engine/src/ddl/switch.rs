//! Replacement of one catalog by the next: on every worker, in the manifest, for clients.
//!
//! Owns: closing tables, waiting for the transactions that have used them, adopting a catalog and removing the trees that are
//! not in it. Never: decides what a catalog contains.
//!
//! Invariants: every worker has adopted a catalog before the next step of a statement; a closed table keeps the partitions
//! that a transaction under way has used; no partition moves meanwhile.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use atrapos_catalog::Definitions;
use atrapos_partition::abort::Abort;
use atrapos_partition::partition::Closing;
use atrapos_partition::planted::{Bug, planted};
use atrapos_partition::routing::{Scheme, nowhere};
use atrapos_partition::schema::{Catalog, TableId, TreeKind};
use atrapos_placement::repartition::{relock, unsettle};
use atrapos_runtime::{Ticks, WorkerId};
use atrapos_storage::lock::LockMode;
use atrapos_transaction::jobs::run_task_on_worker;
use atrapos_transaction::shard::EngineWorker;

use super::{DefineError, SchemeLock, Statements};
use crate::assembly::new_table;
use crate::checkpoint::Pace;
use crate::durable::{Durable, State};

/// Condition that a statement waits for after it has closed some trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// No transaction under way has used them.
    Unused,
    /// No transaction under way has read them: writes to them have no effect any more.
    Unread,
}

/// Guard of the directory's state, which excludes checkpoints while it is held; `None` for a database in memory.
pub(crate) type HeldState<'a> = Option<(&'a Durable, MutexGuard<'a, State>)>;

impl Statements<'_> {
    /// Replaces catalog `before` by `after`: on all workers, in the manifest, for clients. Trees that are only in `before`
    /// must be closed.
    pub(super) fn switch(&self, before: &Catalog, after: Catalog) -> Result<Arc<Catalog>, DefineError> {
        let _scheme = self.keep_scheme()?;
        let mut state = self.hold_state();
        let scheme = self.scheme_of(before, &after)?;
        let after = Arc::new(after);
        self.adopt(&after, &scheme)?;
        save(&mut state, &after, &scheme)?;
        self.catalogs.show(Arc::clone(&after));
        Ok(after)
    }

    /// Excludes checkpoints while the guard is held.
    pub(super) fn hold_state(&self) -> HeldState<'_> {
        self.durable.map(|durable| (durable, durable.lock_state()))
    }

    /// Returns the scheme of another catalog; the caller has locked the current one.
    pub(super) fn scheme_of(&self, before: &Catalog, after: &Catalog) -> Result<Arc<Scheme>, DefineError> {
        let scheme = self.published.scheme().changed(before, after, &self.owning_workers());
        scheme.map(Arc::new).map_err(|error| DefineError::Contradiction(error.to_string()))
    }

    /// Makes all workers adopt a catalog, and publishes its scheme for requests. The caller holds scheme and state.
    pub(super) fn adopt(&self, after: &Arc<Catalog>, scheme: &Arc<Scheme>) -> Result<(), DefineError> {
        let (catalog, adopted) = (Arc::clone(after), Arc::clone(scheme));
        self.on_all_workers(move |worker| adopt_here(worker, &catalog, &adopted))?;
        self.published.replace(scheme);
        self.catalogs.set_working(Arc::clone(after));
        if let SchemeLock::Threads(adaptive) = self.scheme_lock {
            adaptive.keep_redefined();
        }
        Ok(())
    }

    /// Removes some trees: `definitions` are those of `before` without them.
    pub(super) fn remove(
        &self,
        before: &Arc<Catalog>,
        definitions: Definitions,
        trees: &[TableId],
        until: Until,
    ) -> Result<(), DefineError> {
        let after = Arc::new(before.changed(definitions, &BTreeMap::new()));
        let _scheme = self.keep_scheme()?;
        let scheme = self.scheme_of(before, &after)?;
        self.catalogs.show(Arc::clone(&after));
        let mut state = None;
        let saved = self.close_and_drain(before, trees, Closing::Maintained, until).and_then(|()| {
            state = self.hold_state();
            save_after_commits(&mut state, &after, &scheme)
        });
        if let Err(error) = saved {
            self.reopen(trees)?;
            self.catalogs.show(Arc::clone(before));
            return Err(error);
        }
        // From now on no transaction reads them; only then may workers stop maintaining them.
        self.close_trees(trees, Closing::Dropped)?;
        self.adopt(&after, &scheme)
    }

    pub(super) fn close_trees(&self, trees: &[TableId], closing: Closing) -> Result<(), Abort> {
        let trees = trees.to_vec();
        self.on_all_workers(move |worker| close_here(worker, &trees, closing)).map(drop)
    }

    /// Closes some trees, and waits for the transactions that have used them.
    pub(super) fn close_and_drain(
        &self,
        catalog: &Catalog,
        trees: &[TableId],
        closing: Closing,
        until: Until,
    ) -> Result<(), DefineError> {
        self.close_trees(trees, closing)?;
        self.settle()?;
        if planted(Bug::TableNotDrained) {
            return Ok(());
        }
        self.drain(catalog, trees, until)
    }

    /// Waits until no transaction under way has used the trees, for the patience of the database at most.
    fn drain(&self, catalog: &Catalog, trees: &[TableId], until: Until) -> Result<(), DefineError> {
        let clock = self.handle.clock();
        let end = Ticks(clock.now().0.saturating_add(clock.ticks(self.patience).0));
        let mut pause = PAUSE_MIN;
        loop {
            let asked = trees.to_vec();
            let used = self.on_all_workers(move |worker| is_used(worker, &asked, until))?;
            if !used.contains(&true) {
                return Ok(());
            }
            if clock.now() >= end {
                let names: Vec<&str> = trees.iter().map(|tree| catalog.tables[tree.at()].name).collect();
                return Err(DefineError::TimedOut(format!(
                    "transactions that use `{}` have not ended within {:?}; end them, and try again",
                    names.first().copied().unwrap_or_default(),
                    self.patience
                )));
            }
            let wait = clock.ticks(pause);
            run_task_on_worker(self.handle, WorkerId(0), async move |worker: Rc<EngineWorker>| {
                worker.sleep_until(Ticks(worker.now().0 + wait.0)).await;
            })?;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Opens trees that were closed.
    pub(super) fn reopen(&self, trees: &[TableId]) -> Result<(), Abort> {
        let trees = trees.to_vec();
        self.on_all_workers(move |worker| {
            let mut tables = worker.shard().tables.borrow_mut();
            trees.iter().for_each(|table| tables.shards[table.at()].reopen());
        })?;
        Ok(())
    }
}

/// The first pause between two checks of a closed table for users.
const PAUSE_MIN: Duration = Duration::from_micros(100);

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(10);

/// Writes the definitions of a catalog into the manifest, if there is one.
pub(super) fn save(state: &mut HeldState<'_>, catalog: &Catalog, scheme: &Scheme) -> Result<(), DefineError> {
    match state {
        Some((durable, state)) => durable
            .redefine(state, catalog.describe(scheme))
            .map_err(|error| DefineError::NotSaved(error.to_string())),
        None => Ok(()),
    }
}

/// Writes definitions like [`save`], after all that has been committed is durable: the entries of a new index, and what was copied
/// from a table before it is dropped. Whatever the durability, a crash leaves no definition without what was committed before it.
pub(super) fn save_after_commits(
    state: &mut HeldState<'_>,
    catalog: &Catalog,
    scheme: &Scheme,
) -> Result<(), DefineError> {
    let Some((durable, held)) = state else { return Ok(()) };
    if planted(Bug::DefinedBeforeCommits) {
        return save(state, catalog, scheme);
    }
    if durable.wal.logs() {
        durable.wait_until_durable(durable.wal.advance())?;
        return save(state, catalog, scheme);
    }
    // Without a log, only a checkpoint has what was committed.
    durable
        .checkpoint_defining(held, Pace::Full, Some(catalog.describe(scheme)))
        .map(drop)
        .map_err(|failure| DefineError::NotSaved(failure.to_string()))
}

/// Adopts another catalog on a worker: adds empty partitions of new trees, and removes those of trees that are gone.
fn adopt_here(worker: &Rc<EngineWorker>, catalog: &Arc<Catalog>, scheme: &Scheme) {
    let shard = worker.shard();
    let gone: Vec<TableId> = {
        let mut tables = shard.tables.borrow_mut();
        for table in (tables.shards.len()..catalog.tables.len()).map(|at| TableId(at as u16)) {
            let family = Arc::clone(scheme.family_at(table).unwrap_or_else(|| nowhere()));
            let new = new_table(worker.id(), &catalog.tables[table.at()], family, &shard.memory);
            tables.shards.push(new);
        }
        tables.catalog = Arc::clone(catalog);
        let dropped =
            (0..).map(TableId).zip(&catalog.tables).filter(|(_, meta)| meta.kind == TreeKind::Dropped);
        dropped.map(|(table, _)| table).filter(|table| !tables.shards[table.at()].is_empty()).collect()
    };
    if let Some(commit_waiters) = &shard.commit_waiters {
        commit_waiters.undurable.borrow_mut().add_tables(catalog.tables.len());
    }
    shard.monitor.adopt(catalog);
    close_here(worker, &gone, Closing::Dropped);
    // A table that a transaction has used stays until a later statement finds that the transaction has ended.
    for table in gone {
        if !is_used(worker, &[table], Until::Unused) {
            shard.tables.borrow_mut().shards[table.at()].clear();
        }
    }
}

/// Closes some trees on a worker. Actions that wait for locks of them are woken, and abort.
fn close_here(worker: &Rc<EngineWorker>, trees: &[TableId], closing: Closing) {
    let shard = worker.shard();
    let mut woken = Vec::new();
    for table in trees {
        let numbers: Vec<u32> =
            shard.tables.borrow().shards[table.at()].all().map(|(number, _)| number).collect();
        for number in &numbers {
            woken.extend(unsettle(worker, &[*table], *number));
        }
        let mut tables = shard.tables.borrow_mut();
        tables.shards[table.at()].close(closing);
        relock(worker, &mut tables, &[*table], &numbers);
    }
    shard.scheme_changes.set(shard.scheme_changes.get() + 1);
    shard.lookups.outdate();
    woken.into_iter().for_each(|task| worker.wake(task));
}

/// Returns true if a transaction under way has used one of the trees on this worker.
fn is_used(worker: &EngineWorker, trees: &[TableId], until: Until) -> bool {
    let mut is_used = false;
    worker.shard().each_branch(|_, branch| {
        let branch = branch.borrow();
        let counts = |mode: LockMode| until == Until::Unused || mode == LockMode::Shared;
        let has = |table: TableId| trees.contains(&table);
        is_used |= branch.accesses.iter().any(|access| has(access.partition.table) && counts(access.mode));
        is_used |= until == Until::Unused && branch.undo.keys().any(|(place, _)| has(place.table));
    });
    is_used
}
