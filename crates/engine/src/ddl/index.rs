//! Creating and dropping indexes while transactions change their tables.
//!
//! # Steps of creating an index
//!
//! 1. Its number is reserved, in the manifest too: after a crash there is nothing of this number.
//! 2. All workers have its tree, empty; then all of them maintain it ([`Phase::Building`]): a write of a row changes its
//!    entry. No row is locked for this. A row that was changed before has no entry, and removing it does nothing.
//! 3. It is filled by transactions like any other: each reads a few rows under shared locks, and adds the entries that are
//!    missing. A transaction that changes one of these rows conflicts with it; so an entry is of a committed row, or is
//!    undone with an aborted one.
//! 4. After all entries are durable, the definition is added to the manifest; then the index can be read.
//!
//! If a unique index has an entry already that leads to another row, the statement fails and the index is removed again.
//! Transactions that would violate it are refused from step 2 on.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use atrapos_catalog::{IndexDef, IndexPart, TreeDef};
use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::action::{
    AccessKind as Kind, Action, Operation, OperationKind, ResultShape, RowContext,
};
use atrapos_partition::planted::{Bug, planted};
use atrapos_partition::range::KeyRange;
use atrapos_partition::routing::Route;
use atrapos_partition::schema::{Catalog, CatalogTag, Phase, TableId};
use atrapos_runtime::WorkerId;
use atrapos_storage::lock::{LockMode, LockTarget};
use atrapos_storage::{DisplayKey, KeyBuf};
use atrapos_transaction::tx::Tx;

use super::switch::{Until, save, save_after_commits};
use super::{DefineError, Statements, add_index, check, find_table, refuse_other_cuts};
use crate::database::Database;

/// Rows whose entries one transaction adds.
const SLICE: usize = 128;

impl Database {
    /// Creates an index over columns of a table, while transactions change it. They can use the index when this
    /// returns. The table number in the definition is ignored. Returns the number of the index.
    ///
    /// # Errors
    /// A name that is taken, a table that does not exist, a part of the key that is not a column, a definition that contradicts
    /// itself, rows that violate a unique index, a manifest that cannot be written. There is no index then.
    pub fn create_index(&self, table: &str, index: IndexDef) -> Result<TableId, DefineError> {
        self.statements().create_index(table, index)
    }

    /// Drops an index. Waits for the transactions that have read it; those that do so later are aborted
    /// ([`AbortReason::TableChanged`]).
    ///
    /// # Errors
    /// A name that no index has, a foreign key that goes through it, transactions that do not end within the patience of the
    /// database, a manifest that cannot be written. Nothing has changed then.
    pub fn drop_index(&self, name: &str) -> Result<(), DefineError> {
        self.statements().drop_index(name)
    }
}

impl Statements<'_> {
    /// Creates an index. See [`Database::create_index`].
    pub(crate) fn create_index(&self, table: &str, index: IndexDef) -> Result<TableId, DefineError> {
        let _statement = self.begin_statement()?;
        let before = self.catalogs.working();
        let of = find_table(&before, table)?;
        if index.parts.iter().any(|part| matches!(part, IndexPart::Computed { .. })) {
            return Err(DefineError::Contradiction(format!(
                "the key of index `{}` has a part that is computed, by code that the database does not have; name columns",
                index.name
            )));
        }
        let mut definitions = before.definitions.clone();
        let mut reserved = definitions.clone();
        reserved.trees.push(TreeDef::Dropped);
        let number = add_index(&mut definitions, of, index)?;
        check(&definitions)?;
        refuse_other_cuts(&before.definitions, &definitions)?;
        let reserved = Arc::new(before.changed(reserved, &BTreeMap::new()));
        let phase = |phase| Arc::new(before.changed(definitions.clone(), &BTreeMap::from([(number, phase)])));
        let (announced, building, ready) =
            (phase(Phase::Announced), phase(Phase::Building), phase(Phase::Ready));
        self.announce(&before, &reserved, &announced, &building)?;
        if let Err(error) = self.fill(of, number, &building) {
            self.abandon(&building, &reserved)?;
            return Err(error);
        }
        self.complete(&building, &ready)?;
        Ok(number)
    }

    /// Drops an index. See [`Database::drop_index`].
    pub(crate) fn drop_index(&self, name: &str) -> Result<(), DefineError> {
        let _statement = self.begin_statement()?;
        let before = self.catalogs.working();
        let mut definitions = before.definitions.clone();
        let Some(index) = definitions.find(name).filter(|number| definitions.index(*number).is_some()) else {
            return Err(DefineError::Unknown(format!(
                "this database has no index `{name}`; name one that it has"
            )));
        };
        if let Some(key) = definitions.foreign_keys.iter().find(|key| key.through == Some(index)) {
            let (child, parent) = (definitions.name_of(key.child), definitions.name_of(key.parent));
            return Err(DefineError::InUse(format!(
                "index `{name}` cannot be dropped while the foreign key from `{child}` to `{parent}` goes through it; drop `{child}` \
                 first"
            )));
        }
        definitions.trees[usize::from(index)] = TreeDef::Dropped;
        self.remove(&before, definitions, &[TableId(index)], Until::Unread)
    }

    /// Reserves the number of an index, and makes all workers maintain it.
    fn announce(
        &self,
        before: &Catalog,
        reserved: &Catalog,
        announced: &Arc<Catalog>,
        building: &Arc<Catalog>,
    ) -> Result<(), DefineError> {
        let _scheme = self.keep_scheme()?;
        let mut state = self.hold_state();
        let scheme = self.scheme_of(before, announced)?;
        if planted(Bug::IndexBeforeFilled) {
            save(&mut state, announced, &scheme)?;
        } else {
            save(&mut state, reserved, &*self.scheme_of(before, reserved)?)?;
        }
        self.adopt(announced, &scheme)?;
        // All have the tree before the first adds an entry.
        self.adopt(building, &scheme)?;
        drop(state);
        self.settle()?;
        Ok(())
    }

    /// Removes the tree and the reserved number of an index that could not be created.
    fn abandon(&self, building: &Catalog, reserved: &Arc<Catalog>) -> Result<(), DefineError> {
        let _scheme = self.keep_scheme()?;
        let _state = self.hold_state();
        let scheme = self.scheme_of(building, reserved)?;
        self.adopt(reserved, &scheme)?;
        self.catalogs.show(Arc::clone(reserved));
        Ok(())
    }

    /// Makes an index that has all its entries durable, and publishes it.
    fn complete(&self, building: &Catalog, ready: &Arc<Catalog>) -> Result<(), DefineError> {
        let _scheme = self.keep_scheme()?;
        let scheme = self.scheme_of(building, ready)?;
        let mut state = self.hold_state();
        save_after_commits(&mut state, ready, &scheme)?;
        self.adopt(ready, &scheme)?;
        self.catalogs.show(Arc::clone(ready));
        Ok(())
    }

    /// Adds the entries of all rows that have none.
    fn fill(&self, table: TableId, index: TableId, building: &Arc<Catalog>) -> Result<(), DefineError> {
        let filling = Filling { table, index, tag: building.tag };
        let mut next = Some(KeyBuf::new());
        while let Some(from) = next {
            let range = self.next_slice(table, &from)?;
            next = range.upper.clone();
            let route = || Route::to(table, from.clone());
            let filled = if planted(Bug::FillNotLocked) {
                let found = self.run(&route(), async move |tx| filling.collect(tx, range.clone()).await);
                // Others change rows in this time, however busy the machine is.
                #[expect(
                    clippy::disallowed_methods,
                    reason = "a planted mistake, on the thread of a client"
                )]
                std::thread::sleep(std::time::Duration::from_millis(1));
                found.and_then(|found| {
                    self.run(&route(), async move |tx| filling.add(tx, found.clone()).await)
                })
            } else {
                self.run(&route(), async move |tx| {
                    let found = filling.collect(tx, range.clone()).await?;
                    filling.add(tx, found).await
                })
            };
            filled.map_err(|abort| refused(building.tables[index.at()].name, &abort))?;
        }
        Ok(())
    }

    /// Returns the key range of the next few rows from `from` on.
    pub(super) fn next_slice(&self, table: TableId, from: &KeyBuf) -> Result<KeyRange, Abort> {
        let _scheme = self.keep_scheme()?;
        let family = self.scheme();
        let family = family.family(table);
        let at = family.partition_of(from);
        let (owner, end): (WorkerId, Option<KeyBuf>) = (family.owner(at), family.upper(at).map(KeyBuf::from));
        let lower = from.clone();
        let found = self.on_worker(owner, move |worker| {
            let tables = worker.shard().tables.borrow();
            let (place, _) = tables.locate(table, &lower);
            let mut rows = tables.partition(place).tree().range(Bound::Included(&*lower), Bound::Unbounded);
            let mut key = KeyBuf::new();
            rows.nth(SLICE).map(|row| {
                row.key_into(&mut key);
                key
            })
        })?;
        Ok(KeyRange { lower: from.clone(), upper: found.or(end) })
    }
}

/// Returns the error of an index that could not be filled.
fn refused(index: &str, abort: &Abort) -> DefineError {
    match abort.reason() {
        AbortReason::DuplicateKey => DefineError::Violated(abort.detail().to_owned()),
        AbortReason::KeyTooLarge | AbortReason::RowTooLarge => DefineError::Violated(format!(
            "index `{index}` cannot be made, since the key of a row in it would be too long ({}); name fewer or shorter columns",
            abort.detail()
        )),
        AbortReason::OutOfMemory => DefineError::OutOfMemory(abort.detail().to_owned()),
        _ => DefineError::Aborted(abort.clone()),
    }
}

/// An entry of an index, and the primary key it leads to.
type Entry = (KeyBuf, KeyBuf);

/// Steps of the transactions that fill an index.
#[derive(Clone, Copy)]
struct Filling {
    table: TableId,
    index: TableId,
    tag: CatalogTag,
}

impl Filling {
    /// Returns the entries of the rows of a range.
    async fn collect(self, tx: &mut Tx<'_>, range: KeyRange) -> Result<Vec<Entry>, Abort> {
        let (mut entries, mut rest) = (Vec::new(), Some(range));
        while let Some(range) = rest {
            let collect = CollectEntries { index: self.index, found: std::mem::take(&mut entries) };
            let action = Action::on_range(self.table, self.tag, LockMode::Shared, range, false, collect);
            (entries, rest) = tx.run(action).await?;
        }
        Ok(entries)
    }

    /// Adds the entries that are missing.
    async fn add(self, tx: &mut Tx<'_>, entries: Vec<Entry>) -> Result<(), Abort> {
        let add =
            |(entry, key)| Action::on_key(self.index, self.tag, LockMode::Exclusive, entry, AddMissing(key));
        tx.join_all(entries.into_iter().map(add)).await.map(drop)
    }
}

/// Finds the entries and primary keys of the rows of a range in one partition, and the rest of the range beyond it.
#[derive(Debug)]
struct CollectEntries {
    index: TableId,
    found: Vec<Entry>,
}

impl Operation for CollectEntries {
    type Output = (Vec<Entry>, Option<KeyRange>);

    fn apply(self, at: &mut RowContext<'_>) -> Result<Self::Output, Abort> {
        let CollectEntries { index, mut found } = self;
        let catalog = at.catalog;
        let indexes = &catalog.tables[at.id.table.at()].indexes;
        if let Some(index) = indexes.iter().find(|meta| meta.id == index) {
            at.walk(false, |key, row| {
                found.push((index.entry(key, row)?, KeyBuf::from(key)));
                Ok(ControlFlow::Continue(()))
            })?;
        }
        Ok((found, at.left_out.take()))
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Scan, 0, ResultShape::Rows)
    }
}

/// Adds an entry that leads to this primary key, unless it exists.
#[derive(Debug)]
struct AddMissing(KeyBuf);

impl Operation for AddMissing {
    type Output = ();

    fn apply(self, at: &mut RowContext<'_>) -> Result<(), Abort> {
        match at.row() {
            Some((_, found)) if *found == *self.0 => Ok(()),
            None => at.put(&self.0).map(drop),
            Some((_, found)) => {
                let LockTarget::Key(entry) = &*at.target else { unreachable!("an entry is one key") };
                Err(Abort::explained(
                    AbortReason::DuplicateKey,
                    format!(
                        "index `{}` cannot be unique: the rows with the primary keys {} and {} have the same key {} in it; change one of \
                         them, or make the index not unique",
                        at.catalog.tables[at.id.table.at()].name,
                        DisplayKey(found),
                        DisplayKey(&self.0),
                        DisplayKey(entry)
                    ),
                ))
            }
        }
    }

    fn kind(&self) -> OperationKind {
        OperationKind::following(Kind::Insert, self.0.len())
    }
}
