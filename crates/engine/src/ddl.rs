//! Schema statements: tables, indexes and columns are created, changed and dropped while transactions run.
//!
//! Owns: the order of the steps of a statement, and its refusals. Never: accesses a row other than by transactions, or
//! between tasks of the worker that owns it.
//!
//! # Steps of a statement
//!
//! 1. One statement at a time; loads and verifications wait for it, and it for them. While partitions are closed, made or
//!    forgotten, the scheme stays as it is, and no checkpoint is under way.
//! 2. A new tree is on all workers before a transaction can name it. A tree that is removed loses its name first. Then it
//!    is *closed* ([`atrapos_partition::partition`]): accesses that come from now on abort
//!    ([`AbortReason::TableChanged`](atrapos_partition::abort::AbortReason)), and the statement waits for the transactions
//!    that have used it ([`Statements::drain`]). So a transaction sees the state before the statement or the one after it.
//!    None that has used the old state is under way when the new one begins.
//! 3. The manifest is replaced: at this point the statement takes effect. A crash before finds the old state, one after it
//!    the new one. What was committed before is durable by then, whatever the durability of transactions: a table is not gone
//!    without the rows that were copied from it. A database in memory has the same steps without this one.
//! 4. Workers adopt the catalog without the removed trees, and clients can name the new ones.
//!
//! Numbers are never reused: a dropped tree stays in the definitions, marked as dropped, so that a recovery leaves out
//! records and rows with its number.
//!
//! # Termination
//!
//! A statement holds no lock that a transaction could wait for: an access to a closed table aborts. It waits only for
//! transactions that have used the table, for [`statement_patience`](crate::Builder::statement_patience) at most; then it
//! opens the table again and fails.

mod column;
mod error;
mod foreign;
mod index;
mod switch;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use atrapos_catalog::{Definitions, ForeignKeyDef, IndexDef, OnDelete, TableDef, TreeDef};
use atrapos_partition::abort::Abort;
use atrapos_partition::partition::Closing;
use atrapos_partition::routing::{Route, Scheme};
use atrapos_partition::schema::{Catalog, PublishedCatalog, TableId};
use atrapos_placement::adaptation::Adaptive;
use atrapos_placement::published_scheme::PublishedScheme;
use atrapos_runtime::{Handle, WorkerId};
use atrapos_transaction::lending::HeldOff;
use atrapos_transaction::procedure::{AnyProcedure, Procedure, result_of};
use atrapos_transaction::shard::{EngineWorker, Shard};
use atrapos_transaction::waiting::{TakenToken, Token};
use atrapos_transaction::{jobs, waiting};

use crate::database::{Database, refuse_on_worker, request, wait};
use crate::durable::Durable;

pub use error::DefineError;
pub(crate) use switch::HeldState;

/// A table to be created, with its indexes and foreign keys.
#[derive(Clone, Debug)]
pub struct NewTable {
    /// The table.
    pub table: TableDef,
    /// Its indexes; the table number in their definitions is ignored.
    pub indexes: Vec<IndexDef>,
    /// Its references to other tables, or to itself. They are enforced.
    pub foreign_keys: Vec<NewForeignKey>,
}

impl From<TableDef> for NewTable {
    fn from(table: TableDef) -> NewTable {
        NewTable { table, indexes: Vec::new(), foreign_keys: Vec::new() }
    }
}

/// A reference of a table that is created.
#[derive(Clone, Debug)]
pub struct NewForeignKey {
    /// The name of the table referred to.
    pub parent: String,
    /// The name of the index, one of the table's own, whose keys begin with the key of the parent; none: the table's own
    /// keys do.
    pub through: Option<String>,
    /// The action on the children of a row that is deleted.
    pub on_delete: OnDelete,
}

impl Database {
    /// Creates an empty table, with indexes and foreign keys, while transactions run. When this returns, all transactions
    /// can use it, and it is durable. Returns its number.
    ///
    /// # Errors
    /// A name that is taken, a table that does not exist, a definition that contradicts itself, a manifest that cannot be
    /// written. Nothing has changed then.
    pub fn create_table(&self, table: impl Into<NewTable>) -> Result<TableId, DefineError> {
        self.statements().create_table(table.into())
    }

    /// Drops a table with its indexes, its rows and its references to other tables. Waits for the transactions that have used
    /// it; those that use it later are aborted ([`AbortReason::TableChanged`](atrapos_partition::abort::AbortReason)).
    ///
    /// # Errors
    /// A name that no table has, a reference of another table to it, transactions that do not end within the patience of the
    /// database, a manifest that cannot be written. Nothing has changed then.
    pub fn drop_table(&self, name: &str) -> Result<(), DefineError> {
        self.statements().drop_table(name)
    }

    /// Closes a table for the caller's transaction, which holds a lock on all of it and is about to end: accesses that wait for the
    /// lock, and those that come from now on, are aborted
    /// ([`AbortReason::TableChanged`](atrapos_partition::abort::AbortReason)), also when the transaction has ended. The table is
    /// dropped afterwards, or [opened](Database::reopen_table) again.
    ///
    /// # Errors
    /// A name that no table has; a database that is closing.
    pub fn close_table(&self, name: &str) -> Result<(), DefineError> {
        let statements = self.statements();
        let _statement = statements.begin_statement()?;
        let table = find_table(&self.catalogs.working(), name)?;
        let _scheme = statements.keep_scheme()?;
        statements.close_trees(&[table], Closing::Maintained)?;
        Ok(statements.settle()?)
    }

    /// Opens a table that was [closed](Database::close_table).
    ///
    /// # Errors
    /// A name that no table has; a database that is closing.
    pub fn reopen_table(&self, name: &str) -> Result<(), DefineError> {
        let statements = self.statements();
        let _statement = statements.begin_statement()?;
        let table = find_table(&self.catalogs.working(), name)?;
        Ok(statements.reopen(&[table])?)
    }

    fn statements(&self) -> Statements<'_> {
        Statements {
            handle: &self.handle,
            catalogs: &self.catalogs,
            published: self.adaptive.published(),
            durable: self.durable(),
            scheme_lock: SchemeLock::Threads(&self.adaptive),
            patience: self.patience,
            is_instance: self.division.is_some(),
        }
    }
}

/// The environment of statements, the same for workers on threads and for workers stepped by the thread that runs the
/// statement.
pub(crate) struct Statements<'a> {
    pub(crate) handle: &'a Handle<Shard>,
    pub(crate) catalogs: &'a PublishedCatalog,
    pub(crate) published: &'a PublishedScheme,
    /// The state of the directory; `None` without one.
    pub(crate) durable: Option<&'a Durable>,
    pub(crate) scheme_lock: SchemeLock<'a>,
    /// The time that a statement waits for transactions.
    pub(crate) patience: Duration,
    /// True for an instance of a deployment.
    pub(crate) is_instance: bool,
}

/// The lock of the scheme.
pub(crate) enum SchemeLock<'a> {
    /// The lock of a database whose workers are threads.
    Threads(&'a Adaptive),
    /// The token of a simulation.
    Stepped(&'a Token),
}

/// Guard of the scheme, which does not change while this is held.
#[expect(dead_code, reason = "it is held, and dropped")]
enum KeptScheme<'a> {
    Threads(MutexGuard<'a, ()>),
    Stepped(TakenToken),
}

impl Statements<'_> {
    /// Creates a table. See [`Database::create_table`].
    pub(crate) fn create_table(&self, table: NewTable) -> Result<TableId, DefineError> {
        let _statement = self.begin_statement()?;
        let before = self.catalogs.working();
        let mut definitions = before.definitions.clone();
        let number = add_table(&mut definitions, table)?;
        check(&definitions)?;
        refuse_other_cuts(&before.definitions, &definitions)?;
        let after = before.changed(definitions, &BTreeMap::new());
        self.switch(&before, after)?;
        Ok(number)
    }

    /// Drops a table. See [`Database::drop_table`].
    pub(crate) fn drop_table(&self, name: &str) -> Result<(), DefineError> {
        let _statement = self.begin_statement()?;
        let before = self.catalogs.working();
        let table = find_table(&before, name)?;
        let referring = |key: &&ForeignKeyDef| key.parent == table.0 && key.child != table.0;
        if let Some(key) = before.definitions.foreign_keys.iter().find(referring) {
            let child = before.definitions.name_of(key.child);
            return Err(DefineError::InUse(format!(
                "table `{name}` cannot be dropped while a foreign key of table `{child}` refers to it; drop `{child}` first"
            )));
        }
        let mut definitions = before.definitions.clone();
        definitions.foreign_keys.retain(|key| key.child != table.0 && key.parent != table.0);
        let mut trees = vec![table];
        for (number, tree) in (0..).map(TableId).zip(&mut definitions.trees) {
            if number == table || tree.as_index().is_some_and(|index| index.of == table.0) {
                *tree = TreeDef::Dropped;
                trees.push(number);
            }
        }
        trees.dedup();
        self.remove(&before, definitions, &trees, switch::Until::Unused)
    }

    /// Excludes other statements, and loads and verifications, which need definitions unchanged. Nothing is lent meanwhile.
    fn begin_statement(&self) -> Result<(HeldOff<'_>, MutexGuard<'_, ()>), DefineError> {
        refuse_on_worker()?;
        if self.is_instance {
            return Err(DefineError::InUse(
                "the tables of an instance cannot be changed, as the other instances of its deployment have the same; stop the \
                 deployment, and start it with another schema"
                    .to_owned(),
            ));
        }
        let kept = self.catalogs.keep();
        Ok((HeldOff::new(self.handle)?, kept))
    }

    /// Locks the scheme: it does not change while the guard is held.
    fn keep_scheme(&self) -> Result<KeptScheme<'_>, Abort> {
        match self.scheme_lock {
            SchemeLock::Threads(adaptive) => Ok(KeptScheme::Threads(adaptive.keep_scheme())),
            SchemeLock::Stepped(token) => token.take().map(KeptScheme::Stepped),
        }
    }

    fn scheme(&self) -> Arc<Scheme> {
        self.published.scheme()
    }

    fn workers(&self) -> usize {
        self.handle.workers()
    }

    /// Returns the workers that may own data.
    fn owning_workers(&self) -> Vec<WorkerId> {
        match self.scheme_lock {
            SchemeLock::Threads(adaptive) => adaptive.owning_workers(),
            SchemeLock::Stepped(_) => (0..self.workers() as u16).map(WorkerId).collect(),
        }
    }

    /// Runs a procedure as a transaction at the home its route names, and waits for the outcome.
    fn run<R: Send + 'static>(&self, route: &Route, procedure: impl Procedure<R>) -> Result<R, Abort> {
        let (request, submitted) = request(AnyProcedure::new(procedure));
        let home = self.published.home(route, self.workers());
        self.handle.submit(home, request).map_err(|_| Abort::shutting_down())?;
        wait(submitted).map(result_of)
    }

    /// Runs `job` on a worker between transactions and waits for its result.
    fn on_worker<R: Send + 'static>(
        &self,
        worker: WorkerId,
        job: impl FnOnce(&Rc<EngineWorker>) -> R + Send + 'static,
    ) -> Result<R, Abort> {
        waiting::wait(jobs::start_on_worker(self.handle, worker, job)?)
    }

    /// Runs `job` on every worker at once and collects the results in order of the workers.
    fn on_all_workers<R: Send + 'static>(
        &self,
        job: impl FnOnce(&Rc<EngineWorker>) -> R + Clone + Send + 'static,
    ) -> Result<Vec<R>, Abort> {
        jobs::on_all_workers(self.handle, job)
    }

    /// Waits until every message that one worker has sent to another so far has arrived.
    fn settle(&self) -> Result<(), Abort> {
        jobs::settle(self.handle)
    }
}

/// Refuses definitions that contradict themselves, or do not fit a manifest.
fn check(definitions: &Definitions) -> Result<(), DefineError> {
    definitions.encode().map(drop).map_err(|error| DefineError::Contradiction(error.to_string()))
}

/// Adds a table with its indexes and foreign keys to the definitions, and returns its number.
fn add_table(definitions: &mut Definitions, new: NewTable) -> Result<TableId, DefineError> {
    let NewTable { table, indexes, foreign_keys } = new;
    refuse_taken(definitions, &table.name)?;
    let number = next_number(definitions)?;
    let name = table.name.clone();
    definitions.trees.push(TreeDef::Table(table));
    for index in indexes {
        add_index(definitions, number, index)?;
    }
    for NewForeignKey { parent, through, on_delete } in foreign_keys {
        let find = |wanted: &str| {
            definitions.find(wanted).ok_or_else(|| {
                DefineError::Unknown(format!(
                    "a foreign key of table `{name}` names `{wanted}`, which does not exist; create that first, or name another"
                ))
            })
        };
        let parent = find(&parent)?;
        let through = through.as_deref().map(find).transpose()?;
        let key = ForeignKeyDef { child: number.0, parent, through, enforced: true, on_delete };
        definitions.foreign_keys.push(key);
    }
    Ok(number)
}

/// Adds an index of a table to the definitions, and returns its number.
fn add_index(definitions: &mut Definitions, of: TableId, index: IndexDef) -> Result<TableId, DefineError> {
    refuse_taken(definitions, &index.name)?;
    let number = next_number(definitions)?;
    definitions.trees.push(TreeDef::Index(IndexDef { of: of.0, ..index }));
    Ok(number)
}

fn next_number(definitions: &Definitions) -> Result<TableId, DefineError> {
    // The greatest number is left free: as many as fit are one fewer.
    let next = u16::try_from(definitions.trees.len()).ok().filter(|next| *next < u16::MAX);
    next.map(TableId).ok_or_else(|| {
        DefineError::Contradiction(
            "65535 tables and indexes have been created, those that were dropped included, and there is no number for another; copy \
             what is needed to a new database"
                .to_owned(),
        )
    })
}

fn refuse_taken(definitions: &Definitions, name: &str) -> Result<(), DefineError> {
    let Some(taken) = definitions.find(name) else { return Ok(()) };
    let what = definitions.trees[usize::from(taken)].noun();
    Err(DefineError::NameTaken(format!(
        "the name `{name}` is taken by a {what} of this database; choose another, or drop that first"
    )))
}

/// Refuses cuts for a family that exists and has cuts already.
fn refuse_other_cuts(before: &Definitions, after: &Definitions) -> Result<(), DefineError> {
    let live = |tree: &&TreeDef| **tree != TreeDef::Dropped;
    let is_there = |family: &str| before.trees.iter().filter(live).any(|tree| tree.family() == family);
    for tree in after.trees.iter().skip(before.trees.len()) {
        if !tree.splits().is_empty() && is_there(tree.family()) {
            let (what, name, family) = (tree.noun(), tree.name(), tree.family());
            return Err(DefineError::Contradiction(format!(
                "{what} `{name}` names split points, but its family `{family}` is there and cut already; leave them out"
            )));
        }
    }
    Ok(())
}

fn find_table(catalog: &Catalog, name: &str) -> Result<TableId, DefineError> {
    let found = catalog.definitions.find(name).filter(|number| catalog.definitions.table(*number).is_some());
    found.map(TableId).ok_or_else(|| {
        DefineError::Unknown(format!("this database has no table `{name}`; name one that it has"))
    })
}
