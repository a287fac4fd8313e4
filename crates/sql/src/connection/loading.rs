//! Tables that a transaction loads in bulk.
//!
//! Owns: the tables of the engine that take the places of others when the transaction commits, the schema that it has for itself until
//! then, and the end of both. Never: reads a client's data.
//!
//! A transaction that has locked all of a table, in which there is no row that it would keep, makes a second table of the engine with
//! the same definition. Rows are loaded into that one by the engine's loader, without redo, and the transaction's own statements find
//! it under the table's name; nobody else does. A row beside the definitions says from before it is made that it counts for nothing.
//!
//! # Foreign keys
//!
//! A second table has the foreign keys of the first one, to the same tables, so the engine maintains them for whatever the transaction
//! does with it. A table that others refer to is replaced together with these, and those that refer to them: nobody else's foreign key
//! leads to a table that only the transaction knows. So all of these have to be empty, and are locked.
//!
//! Rows are loaded unchecked, and their references looked up in bulk ([`crate::copy::BulkBatch`]). The transaction locks all of the
//! tables referred to before, so that others can read them, but not change them until it has ended.
//!
//! A table that has been given up refers to none any more, before anything else is done: who deletes a row of its parents is not to be
//! told of children that count for nothing.
//!
//! # Commit
//!
//! 1. Statements that change the schema are excluded. (Those about the table itself have been refused since the load began.)
//! 2. A checkpoint makes the loaded rows durable.
//! 3. The transaction itself writes which table of the engine the name leads to, and that the other one counts for nothing: so a crash
//!    finds the loaded rows if it finds the commit.
//! 4. The other table is closed: whoever waits for its lock is aborted and planned again.
//! 5. The transaction commits, the new schema is published, and the other table is dropped.

mod tables;

use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use atrapos::{LoadError, LockMode};

pub(super) use self::tables::can_be_loaded;
use self::tables::{body_of, group_of, is_same, make_like};
use super::running::blocking;
use super::{Connection, Kind};
use crate::database::SqlDatabase;
use crate::ddl::refused;
use crate::error::{SqlError, SqlState};
use crate::kept::UNUSED;
use crate::schema::{Schema, TableEntry};
use crate::transaction::{Command, Open};

/// Rows from which on a table is truncated by an empty one in its place.
const MANY_ROWS: u64 = 10_000;

/// A table in the place of which another one is loaded.
#[derive(Debug)]
struct Loaded {
    before: Arc<TableEntry>,
    now: Arc<TableEntry>,
    /// The number of savepoints that were set when the load began.
    savepoints: usize,
}

/// By name the tables that others know, and those that are loaded in their places.
type Replaced = BTreeMap<String, (Arc<TableEntry>, Arc<TableEntry>)>;

/// The tables that a transaction has loaded in bulk. Dropping it discards them.
#[derive(Debug)]
pub(super) struct Loading {
    database: Arc<SqlDatabase>,
    /// In the order in which their loads began; a table may be there again.
    tables: Vec<Loaded>,
    /// Those that a savepoint was restored behind. They are dropped when the transaction has ended, as it has their locks.
    given_up: Vec<Arc<TableEntry>>,
    /// The schema with the tables in their places, and the version of the one that it was made from.
    overlay: Mutex<Option<(u64, Arc<Schema>)>>,
}

impl Loading {
    pub(super) fn new(database: &Arc<SqlDatabase>) -> Loading {
        Loading {
            database: Arc::clone(database),
            tables: Vec::new(),
            given_up: Vec::new(),
            overlay: Mutex::default(),
        }
    }

    fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.given_up.is_empty()
    }

    /// The tables as the transaction has them.
    fn schema(&self) -> Arc<Schema> {
        let base = self.database.schema();
        if self.tables.is_empty() {
            return base;
        }
        let mut overlay = self.overlay.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((version, schema)) = &*overlay
            && *version == base.version
        {
            return Arc::clone(schema);
        }
        let mut schema = Schema::clone(&base);
        schema.version = self.database.next_overlay();
        for loaded in &self.tables {
            schema.tables.insert(loaded.now.name.clone(), Arc::clone(&loaded.now));
        }
        let schema = Arc::new(schema);
        *overlay = Some((base.version, Arc::clone(&schema)));
        schema
    }

    /// The version of that schema.
    fn version(&self) -> u64 {
        if self.tables.is_empty() { self.database.version() } else { self.schema().version }
    }

    fn changed(&mut self) {
        *self.overlay.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The number of savepoints at the beginning of the load that the table is from; `None` if it is from none of the transaction.
    fn savepoints_before(&self, table: &Arc<TableEntry>) -> Option<usize> {
        let loaded = self.tables.iter().find(|loaded| Arc::ptr_eq(&loaded.now, table));
        loaded.map(|loaded| loaded.savepoints)
    }

    /// Gives up the loads that began after a savepoint. Blocks.
    fn roll_back_to(&mut self, savepoint: usize) {
        let is_before = |loaded: &Loaded| loaded.savepoints <= savepoint;
        let kept = self.tables.iter().take_while(|loaded| is_before(loaded)).count();
        for loaded in self.tables.split_off(kept) {
            let is_known = self.tables.iter().any(|other| other.now.name == loaded.now.name);
            if !is_known {
                self.database.end_loading(&loaded.now.name);
            }
            self.given_up.push(loaded.now);
        }
        // If that fails, they are in the way of who deletes a parent, until they are dropped.
        let _ = self.database.drop_foreign_keys(&self.given_up);
        self.changed();
    }

    /// A savepoint is forgotten: what began after it began after the one before it.
    fn release(&mut self, savepoint: usize) {
        for loaded in &mut self.tables {
            loaded.savepoints = loaded.savepoints.min(savepoint);
        }
    }

    fn knows(&self, name: &str) -> bool {
        self.tables.iter().any(|loaded| loaded.now.name == name)
    }

    /// Makes the tables that take the places of others, parents first; returns false if another definition has come first. Blocks.
    fn make(&mut self, group: &[Arc<TableEntry>], savepoints: usize) -> Result<bool, SqlError> {
        let database = Arc::clone(&self.database);
        let _change = database.change_soon()?;
        let mut begun: Vec<&str> = Vec::new();
        let schema = database.schema();
        let mut is_free = !self.has_stranger(group);
        for table in group.iter().filter(|table| !self.knows(&table.name)) {
            let is_same = schema.tables.get(&table.name).is_some_and(|now| is_same(now, table));
            is_free = is_free && is_same && database.begin_loading(&table.name);
            if !is_free {
                break;
            }
            begun.push(&table.name);
        }
        let mut made: Vec<Arc<TableEntry>> = Vec::new();
        let done = if is_free { self.make_all(group, &mut made) } else { Ok(false) };
        if !matches!(done, Ok(true)) {
            begun.into_iter().for_each(|name| database.end_loading(name));
            self.given_up.append(&mut made);
            return done;
        }
        for (before, now) in group.iter().zip(made) {
            self.tables.push(Loaded { before: Arc::clone(before), now, savepoints });
        }
        self.changed();
        Ok(true)
    }

    fn make_all(&self, group: &[Arc<TableEntry>], made: &mut Vec<Arc<TableEntry>>) -> Result<bool, SqlError> {
        let schema = self.schema();
        for before in group {
            let parent = |name: &str| {
                let new = made.iter().find(|made| made.name == name);
                new.or_else(|| schema.tables.get(name)).map(|parent| parent.meta.engine.clone())
            };
            match make_like(&self.database, before, parent)? {
                Some(now) => made.push(Arc::new(now)),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Returns true if a table of the engine refers to one of a group that is neither of it nor of the transaction.
    fn has_stranger(&self, group: &[Arc<TableEntry>]) -> bool {
        let definitions = self.database.database().definitions();
        let own = self.tables.iter().flat_map(|loaded| [&loaded.before, &loaded.now]);
        let own: Vec<u16> = own.chain(&self.given_up).chain(group).map(|table| table.handle.id().0).collect();
        let of_group = |number: u16| group.iter().any(|table| table.handle.id().0 == number);
        definitions.foreign_keys.iter().any(|key| of_group(key.parent) && !own.contains(&key.child))
    }

    /// Commits the transaction: what it has loaded takes its place. Blocks.
    fn commit(mut self, mut open: Open) -> Result<(), SqlError> {
        let database = Arc::clone(&self.database);
        let replaced = self.replaced();
        let saved = self.database.database().save_loaded().map_err(|error| not_saved(&error));
        let change = match saved.and_then(|()| database.change_soon()) {
            Ok(change) => change,
            Err(error) => {
                open.roll_back_blocking();
                self.discard();
                return Err(error);
            }
        };
        let done = match self.prepare(&mut open, &replaced) {
            Ok(()) => open.commit_blocking(),
            Err(error) => {
                open.roll_back_blocking();
                Err(error)
            }
        };
        // If its outcome is not known, what is kept tells.
        let published = if done.is_ok() { database.reload() } else { Ok(()) };
        if done.is_ok() || self.is_kept(&replaced) {
            let is_last = |table: &Loaded| replaced.values().any(|(_, last)| Arc::ptr_eq(last, &table.now));
            // The others were in their places in between.
            self.tables.retain(|table| !is_last(table));
            for (name, (first, _)) in replaced {
                database.end_loading(&name);
                self.given_up.push(first);
            }
        } else {
            self.reopen(&replaced);
        }
        drop(change);
        self.discard();
        done.and(published)
    }

    /// Returns true if what is kept leads to the loaded tables.
    fn is_kept(&self, replaced: &Replaced) -> bool {
        let is_last = |(name, (_, last)): (&String, &(Arc<TableEntry>, Arc<TableEntry>))| {
            let schema = self.database.schema();
            schema.tables.get(name).is_some_and(|table| table.handle.id() == last.handle.id())
        };
        self.database.reload().is_ok() && replaced.iter().all(is_last)
    }

    /// The tables that are replaced.
    fn replaced(&self) -> Replaced {
        let mut replaced = Replaced::new();
        for Loaded { before, now, .. } in &self.tables {
            let place = replaced.entry(now.name.clone());
            place.or_insert_with(|| (Arc::clone(before), Arc::clone(now))).1 = Arc::clone(now);
        }
        replaced
    }

    /// Has the transaction write what it replaces, and closes that.
    fn prepare(&self, open: &mut Open, replaced: &Replaced) -> Result<(), SqlError> {
        let mut rows = Vec::new();
        for (name, (first, last)) in replaced {
            rows.push((format!("table:{name}"), Some(body_of(&last.meta)?)));
            rows.push((format!("{UNUSED}{}", last.meta.engine), None));
            rows.push((format!("{UNUSED}{}", first.meta.engine), Some(String::new())));
        }
        let kept = self.database.kept().clone();
        open.ask_blocking(|reply| Command::Keep(kept, rows, reply))?;
        // Other definitions may have been published since the load began.
        let schema = self.database.schema();
        for (name, (first, _)) in replaced {
            schema.table(name)?.is_closed.store(true, Ordering::SeqCst);
            self.database.database().close_table(&first.meta.engine).map_err(|error| refused(&error))?;
        }
        Ok(())
    }

    fn reopen(&self, replaced: &Replaced) {
        let schema = self.database.schema();
        for (name, (first, _)) in replaced {
            // A database that is closing needs no open table.
            let _ = self.database.database().reopen_table(&first.meta.engine);
            if let Some(table) = schema.tables.get(name) {
                self.database.reopen(table);
            }
        }
    }

    /// Drops what was loaded. What cannot be dropped is when the database is opened. Blocks.
    fn discard(&mut self) {
        let tables = std::mem::take(&mut self.tables);
        for loaded in &tables {
            self.database.end_loading(&loaded.now.name);
        }
        let tables = tables.into_iter().map(|loaded| loaded.now).chain(self.given_up.drain(..));
        let tables: Vec<Arc<TableEntry>> = tables.collect();
        // None is in the way of another one, or of who deletes a parent.
        let _ = self.database.drop_foreign_keys(&tables);
        for table in tables {
            let _change = self.database.change();
            let _ = self.database.drop_unused(&table.meta.engine);
        }
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        if self.is_empty() {
            return;
        }
        let mut loading = Loading::new(&self.database);
        loading.tables = std::mem::take(&mut self.tables);
        loading.given_up = std::mem::take(&mut self.given_up);
        // Without a thread they are dropped when the database is opened.
        let mut loading = ManuallyDrop::new(loading);
        let _ = std::thread::Builder::new().name("sql-statement".to_owned()).spawn(move || loading.discard());
    }
}

impl Connection {
    /// The tables as the connection has them: a transaction that has loaded some in bulk has these for itself.
    pub(super) fn schema(&self) -> Arc<Schema> {
        self.loading.schema()
    }

    /// The version of the [schema](Connection::schema).
    pub(super) fn schema_version(&self) -> u64 {
        self.loading.version()
    }

    /// The schema as [`schema`](Connection::schema) returns it: most often that of the statement before.
    pub(super) fn known_schema(&mut self) -> &Arc<Schema> {
        if self.last_schema.version != self.schema_version() {
            self.last_schema = self.schema();
        }
        &self.last_schema
    }

    /// Returns true if the transaction itself has loaded the table in bulk, and set no savepoint since.
    pub(super) fn has_loaded(&self, table: &Arc<TableEntry>) -> bool {
        self.loading.savepoints_before(table).is_some_and(|before| before == self.savepoints.len())
    }

    /// Makes the table that takes the place of another one, all of which the transaction has locked, and those in the places of the
    /// tables that refer to it. Returns `None` if that is not possible.
    pub(super) async fn load_anew(
        &mut self,
        before: &Arc<TableEntry>,
    ) -> Result<Option<Arc<TableEntry>>, SqlError> {
        let Some(group) = group_of(&self.schema(), before) else { return Ok(None) };
        for child in group.iter().skip(1) {
            let handle = child.handle.clone();
            let has_rows = self.rows_of(child).await? > 0
                || self.ask_open(|reply| Command::Lock(handle, LockMode::Exclusive, reply)).await?;
            if has_rows {
                return Ok(None);
            }
        }
        let mut loading = std::mem::replace(&mut self.loading, Loading::new(&self.database));
        let savepoints = self.savepoints.len();
        let (loading, made) = blocking(move || {
            let made = loading.make(&group, savepoints);
            Ok((loading, made))
        })
        .await?;
        self.loading = loading;
        if !made? {
            return Ok(None);
        }
        Ok(self.schema().tables.get(&before.name).cloned())
    }

    /// Locks the tables that rows of one refer to, so that others can read them, but not change them. Those that the transaction has
    /// loaded are its own.
    pub(super) async fn lock_parents(&mut self, table: &TableEntry) -> Result<(), SqlError> {
        let schema = self.schema();
        let mut names: Vec<&str> = table.meta.foreign_keys.iter().map(|foreign| &*foreign.parent).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let parent = schema.table(name)?;
            if *name == table.name || self.loading.savepoints_before(parent).is_some() {
                continue;
            }
            let handle = parent.handle.clone();
            self.ask_open(|reply| Command::Lock(handle, LockMode::Shared, reply)).await?;
        }
        Ok(())
    }

    /// Puts empty tables in the places of those of many rows, and returns the others, whose rows have to be deleted. `ends` says that
    /// nothing of the transaction follows.
    pub(super) async fn truncate_anew(
        &mut self,
        tables: &[Arc<TableEntry>],
        ends: bool,
    ) -> Result<Vec<Arc<TableEntry>>, SqlError> {
        let mut rest = Vec::new();
        // Those that refer to others first: a table can be replaced when they are empty.
        let schema = self.schema();
        let mut tables: Vec<&Arc<TableEntry>> = tables.iter().collect();
        tables.sort_by_key(|table| group_of(&schema, table).map_or(usize::MAX, |group| group.len()));
        for table in tables {
            match self.truncate_one(table).await {
                Ok(true) => {}
                Ok(false) => rest.push(Arc::clone(table)),
                Err(error) => {
                    if ends && self.kind == Kind::Implicit {
                        // The statement is planned again, if its table was replaced meanwhile.
                        self.end(false).await?;
                    }
                    return Err(error);
                }
            }
        }
        Ok(rest)
    }

    async fn truncate_one(&mut self, table: &Arc<TableEntry>) -> Result<bool, SqlError> {
        if !can_be_loaded(&self.schema(), table) || self.rows_of(table).await? < MANY_ROWS {
            return Ok(false);
        }
        self.begin_at_home().await?;
        let handle = table.handle.clone();
        self.ask_open(|reply| Command::Lock(handle, LockMode::Exclusive, reply)).await?;
        Ok(self.load_anew(table).await?.is_some())
    }

    /// The number of rows of a table, those of transactions under way included.
    pub(super) async fn rows_of(&self, table: &TableEntry) -> Result<u64, SqlError> {
        let (database, number) = (Arc::clone(self.database.database()), table.handle.id());
        blocking(move || database.len(number).map_err(|abort| SqlError::of_abort(&abort))).await
    }

    /// Ends the transaction `open` with a commit, and puts what it has loaded in its place.
    pub(super) async fn commit_open(&mut self, open: Open) -> Result<(), SqlError> {
        if self.loading.is_empty() {
            return open.commit().await;
        }
        let loading = std::mem::replace(&mut self.loading, Loading::new(&self.database));
        // On a thread of its own it comes to its end, also if the client is gone.
        blocking(move || loading.commit(open)).await
    }

    /// Makes the tables that the transaction has loaded refer to none, as it is about to be rolled back: whoever waits to delete a row
    /// of their parents is not told of children.
    pub(super) async fn drop_loaded_foreign_keys(&mut self) {
        let tables: Vec<Arc<TableEntry>> =
            self.loading.tables.iter().map(|loaded| Arc::clone(&loaded.now)).collect();
        if tables.iter().all(|table| table.meta.foreign_keys.is_empty()) {
            return;
        }
        let database = Arc::clone(&self.database);
        // Those that are left go with the tables.
        let _ = blocking(move || database.drop_foreign_keys(&tables)).await;
    }

    /// Drops what a transaction has loaded that was rolled back.
    pub(super) async fn discard_loads(&mut self) {
        if self.loading.is_empty() {
            return;
        }
        let mut loading = std::mem::replace(&mut self.loading, Loading::new(&self.database));
        let discarded = blocking(move || {
            loading.discard();
            Ok(())
        });
        // Without a thread for it they are dropped later.
        let _ = discarded.await;
    }

    /// Gives up the loads that began after a savepoint.
    pub(super) async fn roll_back_loads_to(&mut self, savepoint: usize) -> Result<(), SqlError> {
        if self.loading.is_empty() {
            return Ok(());
        }
        let mut loading = std::mem::replace(&mut self.loading, Loading::new(&self.database));
        self.loading = blocking(move || {
            loading.roll_back_to(savepoint);
            Ok(loading)
        })
        .await?;
        Ok(())
    }

    pub(super) fn release_loads(&mut self, savepoint: usize) {
        self.loading.release(savepoint);
    }
}

#[cold]
fn not_saved(error: &LoadError) -> SqlError {
    SqlError::new(SqlState::INTERNAL_ERROR, error.to_string())
}
