//! Adding and dropping foreign keys while transactions run.
//!
//! # Steps of adding a foreign key
//!
//! 1. All workers adopt the foreign key: every write is checked from now on.
//! 2. Rows from before are checked by transactions like any other: each reads a few children and their parents under shared
//!    locks. A change that was made unchecked before step 1 is committed, or its transaction holds the lock that this waits for;
//!    so no row is missed.
//! 3. The definition is added to the manifest. A crash before finds no foreign key.
//!
//! If a row has no parent, the workers adopt the catalog without the foreign key again. Meanwhile transactions may have been
//! refused that would have violated it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use atrapos_catalog::{Definitions, ForeignKeyDef};
use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::action::{
    AccessKind as Kind, Action, DependentAction, Operation, OperationKind, ResultShape, RowContext,
};
use atrapos_partition::planted::{Bug, planted};
use atrapos_partition::range::KeyRange;
use atrapos_partition::routing::Route;
use atrapos_partition::schema::{Catalog, CatalogTag, TableId};
use atrapos_storage::KeyBuf;
use atrapos_storage::lock::LockMode;
use atrapos_transaction::tx::Tx;

use super::switch::save_after_commits;
use super::{DefineError, NewForeignKey, Statements, check, find_table};
use crate::database::Database;

impl Database {
    /// Adds a foreign key to a table, and checks the rows that are there, while transactions run. Waits for the locks of those that
    /// change them.
    ///
    /// # Errors
    /// A table or index that does not exist, a definition that contradicts itself, a row that refers to none, a manifest that cannot
    /// be written. There is no foreign key then.
    pub fn add_foreign_key(&self, child: &str, key: &NewForeignKey) -> Result<(), DefineError> {
        self.statements().add_foreign_key(child, key)
    }

    /// Drops the foreign key from a table to another one that goes through this index, or through the table's own key. Transactions
    /// under way may still be checked by it.
    ///
    /// # Errors
    /// A foreign key that does not exist, a manifest that cannot be written. Nothing has changed then.
    pub fn drop_foreign_key(
        &self,
        child: &str,
        parent: &str,
        through: Option<&str>,
    ) -> Result<(), DefineError> {
        self.statements().drop_foreign_key(child, parent, through)
    }

    /// Drops all foreign keys of some tables at once: from now on their rows refer to none. Tables that do not exist have none.
    /// Transactions under way may still be checked by them.
    ///
    /// # Errors
    /// A manifest that cannot be written. Nothing has changed then.
    pub fn drop_foreign_keys(&self, children: &[&str]) -> Result<(), DefineError> {
        self.statements().drop_foreign_keys(children)
    }
}

impl Statements<'_> {
    /// Adds a foreign key. See [`Database::add_foreign_key`].
    pub(crate) fn add_foreign_key(&self, child: &str, key: &NewForeignKey) -> Result<(), DefineError> {
        let _statement = self.begin_statement()?;
        let before = self.catalogs.working();
        let (child, parent) = (find_table(&before, child)?, find_table(&before, &key.parent)?);
        let through = find_through(&before.definitions, key.through.as_deref())?;
        let mut definitions = before.definitions.clone();
        definitions.foreign_keys.push(ForeignKeyDef {
            child: child.0,
            parent: parent.0,
            through,
            enforced: true,
            on_delete: key.on_delete,
        });
        check(&definitions)?;
        let after = Arc::new(before.changed(definitions, &BTreeMap::new()));
        self.enforce(&before, &after)?;
        if let Err(error) = self.check_rows(child, parent, &after) {
            let _scheme = self.keep_scheme()?;
            let _state = self.hold_state();
            self.adopt(&before, &self.scheme_of(&after, &before)?)?;
            return Err(error);
        }
        let _scheme = self.keep_scheme()?;
        let mut state = self.hold_state();
        let scheme = self.scheme();
        if let Err(error) = save_after_commits(&mut state, &after, &scheme) {
            self.adopt(&before, &self.scheme_of(&after, &before)?)?;
            return Err(error);
        }
        self.catalogs.show(after);
        Ok(())
    }

    /// Drops a foreign key. See [`Database::drop_foreign_key`].
    pub(crate) fn drop_foreign_key(
        &self,
        child: &str,
        parent: &str,
        through: Option<&str>,
    ) -> Result<(), DefineError> {
        let _statement = self.begin_statement()?;
        let before = self.catalogs.working();
        let (child_id, parent_id) = (find_table(&before, child)?, find_table(&before, parent)?);
        let through = find_through(&before.definitions, through)?;
        let is_it =
            |key: &ForeignKeyDef| (key.child, key.parent, key.through) == (child_id.0, parent_id.0, through);
        let mut definitions = before.definitions.clone();
        let Some(at) = definitions.foreign_keys.iter().position(is_it) else {
            return Err(DefineError::Unknown(format!(
                "table `{child}` has no such foreign key to `{parent}`; name one that it has"
            )));
        };
        definitions.foreign_keys.remove(at);
        let after = before.changed(definitions, &BTreeMap::new());
        self.switch(&before, after).map(drop)
    }

    /// Drops all foreign keys of some tables. See [`Database::drop_foreign_keys`].
    pub(crate) fn drop_foreign_keys(&self, children: &[&str]) -> Result<(), DefineError> {
        let _statement = self.begin_statement()?;
        let before = self.catalogs.working();
        let mut definitions = before.definitions.clone();
        let numbers: Vec<u16> = children.iter().filter_map(|child| definitions.find(child)).collect();
        definitions.foreign_keys.retain(|key| !numbers.contains(&key.child));
        if definitions.foreign_keys.len() == before.definitions.foreign_keys.len() {
            return Ok(());
        }
        let after = before.changed(definitions, &BTreeMap::new());
        self.switch(&before, after).map(drop)
    }

    /// Makes all workers enforce a foreign key that only `after` has.
    fn enforce(&self, before: &Catalog, after: &Arc<Catalog>) -> Result<(), DefineError> {
        let _scheme = self.keep_scheme()?;
        let _state = self.hold_state();
        self.adopt(after, &self.scheme_of(before, after)?)?;
        self.settle()?;
        Ok(())
    }

    /// Checks that all rows of a table refer to rows that are there, by its last foreign key.
    fn check_rows(&self, child: TableId, parent: TableId, after: &Catalog) -> Result<(), DefineError> {
        let place = after.tables[child.at()].parents.len() - 1;
        let checking = Checking { child, parent, place, tag: after.tag };
        let mut next = Some(KeyBuf::new());
        while let Some(from) = next.filter(|_| !planted(Bug::ForeignKeyNotChecked)) {
            let range = self.next_slice(child, &from)?;
            next = range.upper.clone();
            let checked = self.run(&Route::to(child, from), async move |tx| checking.check(tx, &range).await);
            checked.map_err(|abort| match abort.reason() {
                AbortReason::ForeignKey => DefineError::Violated(format!(
                    "a row of table `{}` refers to a row that table `{}` does not have; insert that one first, or change the row",
                    after.tables[child.at()].name,
                    after.tables[parent.at()].name
                )),
                AbortReason::OutOfMemory => DefineError::OutOfMemory(abort.detail().to_owned()),
                _ => DefineError::Aborted(abort),
            })?;
        }
        Ok(())
    }
}

fn find_through(definitions: &Definitions, name: Option<&str>) -> Result<Option<u16>, DefineError> {
    let Some(name) = name else { return Ok(None) };
    let found = definitions.find(name).filter(|number| definitions.index(*number).is_some());
    found.map(Some).ok_or_else(|| {
        DefineError::Unknown(format!("this database has no index `{name}`; name one that it has"))
    })
}

/// The transactions that check the rows of a child.
#[derive(Clone, Copy)]
struct Checking {
    child: TableId,
    parent: TableId,
    /// The place of the foreign key among those of the child.
    place: usize,
    tag: CatalogTag,
}

impl Checking {
    /// Requires the parents of the rows of a range.
    async fn check(self, tx: &mut Tx<'_>, range: &KeyRange) -> Result<(), Abort> {
        let (mut parents, mut rest) = (BTreeSet::new(), Some(range.clone()));
        while let Some(range) = rest {
            let collect = CollectParents { place: self.place, found: std::mem::take(&mut parents) };
            let action = Action::on_range(self.child, self.tag, LockMode::Shared, range, false, collect);
            (parents, rest) = tx.run(action).await?;
        }
        let required = parents
            .into_iter()
            .map(|key| DependentAction::RequireParent { parent: self.parent, key }.into_action(self.tag));
        tx.join_all(required).await.map(drop)
    }
}

/// Finds the keys of the parents of the rows of a range in one partition, and the rest of the range beyond it.
#[derive(Debug)]
struct CollectParents {
    place: usize,
    found: BTreeSet<KeyBuf>,
}

impl Operation for CollectParents {
    type Output = (BTreeSet<KeyBuf>, Option<KeyRange>);

    fn apply(self, at: &mut RowContext<'_>) -> Result<Self::Output, Abort> {
        let CollectParents { place, mut found } = self;
        let catalog = at.catalog;
        if let Some(parent) = catalog.tables[at.id.table.at()].parents.get(place) {
            at.walk(false, |key, row| {
                found.extend(parent.key.call(key, row)?);
                Ok(ControlFlow::Continue(()))
            })?;
        }
        Ok((found, at.left_out.take()))
    }

    fn kind(&self) -> OperationKind {
        OperationKind::new(Kind::Scan, 0, ResultShape::Rows)
    }
}
