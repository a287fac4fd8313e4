//! The data of a partitioned database in an engine with shared data ([`SharedDatabase`]): filled from one, and copied to one.
//!
//! So the same population is loaded by the same code for all engines, and the same auditors look at the result: at a copy in a
//! partitioned database, whose index entries are made anew from the rows. The entries that the engine itself has are compared
//! with those.
//!
//! A database may have a directory ([`SharedDatabase::into_durable`]), from which it is opened again.
//!
//! Owns: the two copies and the comparison. Never: looks into a row.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use atrapos::{Database, LoadError, LoadProgress};
use atrapos_channel::ChannelError;
use atrapos_partition::abort::Abort;
use atrapos_partition::schema::{Catalog, TableId, TreeKind};
use atrapos_storage::{DisplayKey, KeyBuf};
use crossbeam_utils::CachePadded;

use crate::durable::{DurableEngine, DurableOptions, StoreError};
use crate::instance::{InstanceEngine, InstanceOptions, Ownership};
use crate::rows::Visit;
use crate::session::{Engine, SharedSession};

/// Reasons for which the data could not be copied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// A database could not be read, or a row not be added.
    #[error("the data could not be copied: {0}")]
    Aborted(#[from] Abort),
    /// The rows could not be added to the partitioned database.
    #[error("the data could not be copied: {0}")]
    Load(#[from] LoadError),
    /// The engine has damaged its structures.
    #[error("the engine is damaged: {0}")]
    Engine(String),
    /// The databases have different tables.
    #[error("the databases have different tables; open both with one schema")]
    Tables,
    /// An index of the engine does not have the entries that its rows have.
    #[error("index '{index}' is wrong at entry {entry}: the rows do not have this entry, or lead elsewhere")]
    Entry {
        /// The index.
        index: &'static str,
        /// The entry, readable.
        entry: String,
    },
    /// An index of the engine lacks entries.
    #[error("index '{index}' has {found} entries where the rows have {expected}")]
    Entries {
        /// The index.
        index: &'static str,
        /// Entries that the engine has.
        found: u64,
        /// Entries of the rows.
        expected: u64,
    },
}

/// Rows that an engine is given at once.
const BATCH: usize = 4096;

/// An engine with shared data, and the tables that it has.
pub struct SharedDatabase {
    engine: Box<dyn Engine>,
    catalog: Arc<Catalog>,
    retried: CachePadded<AtomicU64>,
}

impl std::fmt::Debug for SharedDatabase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tables: Vec<_> = self.catalog.live().map(|(_, meta)| meta.name).collect();
        f.debug_struct("SharedDatabase").field("tables", &tables).finish_non_exhaustive()
    }
}

impl SharedDatabase {
    /// Fills an empty engine, made for as many trees as the catalog has, with all rows and index entries of `loaded`. Handles of
    /// `handles`, which has the same tables, are handles of this database, too.
    ///
    /// # Errors
    /// Fails if the databases have different tables, or a row cannot be read or added.
    pub fn fill(
        engine: impl FnOnce(usize) -> Box<dyn Engine>,
        loaded: &Database,
        handles: &Database,
    ) -> Result<SharedDatabase, CopyError> {
        let catalog = handles.catalog();
        if loaded.definitions() != handles.definitions() {
            return Err(CopyError::Tables);
        }
        let engine = engine(catalog.tables.len());
        for (table, _) in catalog.live() {
            let mut rows = Vec::with_capacity(BATCH);
            loaded.visit_encoded(table, |key, row| {
                rows.push((KeyBuf::from(key), Box::from(row)));
                if rows.len() < BATCH {
                    return Ok(());
                }
                engine.load(table, &rows)?;
                rows.clear();
                Ok(())
            })?;
            engine.load(table, &rows)?;
        }
        Ok(SharedDatabase { engine, catalog, retried: CachePadded::default() })
    }

    /// Makes a directory that has the data as they are now, and all transactions from now on.
    ///
    /// # Errors
    /// Fails if there is a database or something else in the directory, or a file cannot be written.
    pub fn into_durable(self, options: &DurableOptions) -> Result<SharedDatabase, StoreError> {
        let SharedDatabase { engine, catalog, retried } = self;
        let durable = DurableEngine::create(engine, catalog.tables.len(), &catalog.definitions, options)?;
        Ok(SharedDatabase { engine: Box::new(durable), catalog, retried })
    }

    /// Makes the database one of several instances, whose rows its clients may access, too; with a directory, as
    /// [`into_durable`](Self::into_durable) makes it, if one is given. `handles` knows which keys it has. Returns at once
    /// ([`InstanceEngine::wait_reachable`] waits for the others).
    ///
    /// # Errors
    /// Fails if `handles` is no instance, or the socket or the directory cannot be made.
    pub fn into_instance(
        self,
        handles: &Database,
        options: InstanceOptions,
        durable: Option<&DurableOptions>,
    ) -> Result<SharedDatabase, StoreError> {
        let SharedDatabase { engine, catalog, retried } = self;
        let ownership = ownership(handles, &options, &catalog)?;
        let instance = match durable {
            None => InstanceEngine::join(engine, ownership, options)?,
            Some(durable) => {
                let trees = catalog.tables.len();
                let engine = DurableEngine::create(engine, trees, &catalog.definitions, durable)?;
                InstanceEngine::join_durable(engine, ownership, options)?
            }
        };
        Ok(SharedDatabase { engine: Box::new(instance), catalog, retried })
    }

    /// Opens the directory of an instance, like [`open`](Self::open), and joins its deployment again. Returns at once: transactions that were
    /// prepared have their locks, and end when the other instances can be reached.
    ///
    /// # Errors
    /// Fails as [`open`](Self::open) does, and if the directory is of another instance, or the socket cannot be made.
    pub fn open_instance(
        engine: impl FnOnce(usize) -> Box<dyn Engine>,
        handles: &Database,
        options: InstanceOptions,
        durable: &DurableOptions,
    ) -> Result<SharedDatabase, StoreError> {
        let catalog = handles.catalog();
        let ownership = ownership(handles, &options, &catalog)?;
        let engine = DurableEngine::open(engine(catalog.tables.len()), &catalog.definitions, durable)?;
        let instance = InstanceEngine::join_durable(engine, ownership, options)?;
        Ok(SharedDatabase { engine: Box::new(instance), catalog, retried: CachePadded::default() })
    }

    /// Opens a directory: gives an empty engine, made for as many trees as the catalog has, everything that has survived. Handles
    /// of `handles`, which has the same tables, are handles of this database.
    ///
    /// # Errors
    /// Fails if there is no database, or one with other tables, if another process has it open, or a file is damaged
    /// or cannot be read.
    pub fn open(
        engine: impl FnOnce(usize) -> Box<dyn Engine>,
        handles: &Database,
        options: &DurableOptions,
    ) -> Result<SharedDatabase, StoreError> {
        let catalog = handles.catalog();
        let engine = DurableEngine::open(engine(catalog.tables.len()), &catalog.definitions, options)?;
        Ok(SharedDatabase {
            engine: Box::new(engine.check_alone()?),
            catalog,
            retried: CachePadded::default(),
        })
    }

    /// Ends it. What its clients were not told to be durable is written first.
    ///
    /// # Errors
    /// Fails if the log could not be written.
    pub fn close(self) -> Result<(), Abort> {
        self.engine.close()
    }

    /// Creates a client for one thread.
    #[must_use]
    pub fn session(&self) -> SharedSession<'_> {
        SharedSession::new(&*self.engine, Arc::clone(&self.catalog), &self.retried)
    }

    /// Returns the number of attempts of transactions that were made again.
    #[must_use]
    pub fn retried(&self) -> u64 {
        self.retried.load(Ordering::Relaxed)
    }

    /// Returns the engine.
    #[must_use]
    pub fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// Visits all rows, or the entries of all indexes with the keys that they lead to, while no transaction runs.
    ///
    /// # Errors
    /// Fails if the engine has damaged its structures, or `visit` fails.
    pub fn visit(
        &self,
        entries: bool,
        visit: &mut (impl FnMut(TableId, &[u8], &[u8]) -> Result<(), Abort> + ?Sized),
    ) -> Result<(), CopyError> {
        self.engine.check().map_err(CopyError::Engine)?;
        for (table, _) in self.tables(|kind| matches!(kind, TreeKind::Entries { .. }) == entries) {
            self.engine.walk(table, &mut |key, row| {
                visit(table, key, row)?;
                Ok(ControlFlow::Continue(()))
            })?;
        }
        Ok(())
    }

    /// Copies all rows to an empty partitioned database with the same tables, while no transaction runs, and compares the index
    /// entries. Returns the number of rows.
    ///
    /// # Errors
    /// Fails if the databases have different tables, a row cannot be added, or an index is wrong.
    pub fn copy_to(&self, db: &Database) -> Result<u64, CopyError> {
        if db.definitions().trees.len() != self.catalog.tables.len() {
            return Err(CopyError::Tables);
        }
        self.engine.check().map_err(CopyError::Engine)?;
        let mut rows: Vec<(TableId, KeyBuf, Box<[u8]>)> = Vec::new();
        for (table, _) in self.tables(|kind| *kind == TreeKind::Rows) {
            self.engine.walk(table, &mut |key, row| {
                rows.push((table, KeyBuf::from(key), Box::from(row)));
                Ok(ControlFlow::Continue(()))
            })?;
        }
        let count = rows.len() as u64;
        // One worker adds them all: whoever takes them first.
        let rows = Arc::new(Mutex::new(rows));
        db.load(&LoadProgress::default(), move |loader| {
            let rows = std::mem::take(&mut *rows.lock().unwrap_or_else(PoisonError::into_inner));
            rows.iter().try_for_each(|(table, key, row)| loader.add_encoded(*table, key, row))
        })?;
        for (index, name) in self.tables(|kind| matches!(kind, TreeKind::Entries { .. })) {
            compare_entries(db, (index, name), |visit| self.engine.walk(index, visit))?;
        }
        Ok(count)
    }

    fn tables(&self, wanted: impl Fn(&TreeKind) -> bool) -> impl Iterator<Item = (TableId, &'static str)> {
        self.catalog
            .live()
            .filter(move |(_, meta)| wanted(&meta.kind))
            .map(|(table, meta)| (table, meta.name))
    }
}

/// Returns the division of the keys among the instances of a deployment, as the scheme of one has it.
fn ownership(
    handles: &Database,
    options: &InstanceOptions,
    catalog: &Catalog,
) -> Result<Ownership, ChannelError> {
    match handles.division() {
        Some(division) if division.instance == options.instance => {
            Ok(Ownership::of_scheme(&handles.scheme(), division.instance, catalog.tables.len()))
        }
        _ => {
            let why = "a database that is no instance has no keys of a deployment; build it as this instance";
            Err(ChannelError::Refused(why.to_owned()))
        }
    }
}

/// Compares index entries, each with its index and the key that it leads to, with those that a partitioned database has made from the rows.
///
/// # Errors
/// Fails if an index has other entries, or the database cannot be read.
pub fn compare_all_entries(
    db: &Database,
    mut entries: Vec<(TableId, KeyBuf, Box<[u8]>)>,
) -> Result<(), CopyError> {
    entries.sort();
    let catalog = db.catalog();
    let indexes = catalog.live().filter(|(_, meta)| matches!(meta.kind, TreeKind::Entries { .. }));
    for (index, meta) in indexes {
        compare_entries(db, (index, meta.name), |visit| {
            for (_, entry, key) in entries.iter().filter(|(of, ..)| *of == index) {
                if visit(entry, key)?.is_break() {
                    break;
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Compares the entries of an index, in their order, with those that a partitioned database has made from the rows.
fn compare_entries(
    db: &Database,
    (index, name): (TableId, &'static str),
    walk: impl FnOnce(&mut Visit<'_>) -> Result<(), Abort>,
) -> Result<(), CopyError> {
    let mut expected = Vec::new();
    db.visit_encoded(index, |entry, key| {
        expected.push((KeyBuf::from(entry), KeyBuf::from(key)));
        Ok(())
    })?;
    let (mut found, mut wrong) = (0, None);
    walk(&mut |entry, key| {
        let is_right = expected.get(found).is_some_and(|(e, k)| (&**e, &**k) == (entry, key));
        found += 1;
        if is_right {
            return Ok(ControlFlow::Continue(()));
        }
        wrong = Some(DisplayKey(entry).to_string());
        Ok(ControlFlow::Break(()))
    })?;
    match wrong {
        Some(entry) => Err(CopyError::Entry { index: name, entry }),
        None if found != expected.len() => {
            let (found, expected) = (found as u64, expected.len() as u64);
            Err(CopyError::Entries { index: name, found, expected })
        }
        None => Ok(()),
    }
}
