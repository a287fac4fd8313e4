//! A database that statements are run on: one per process.
//!
//! Owns: the engine's database, the snapshot of its tables that statements are planned with, and the wait of a statement that
//! replaces a table for the transactions that began before. Never: knows a client's protocol.
//!
//! # Replacing a table
//!
//! A statement that copies a table into a new one (`ALTER TABLE .. ADD PRIMARY KEY`) has to be alone with it. It marks the table as
//! closed and counts the *generation* up. A transaction notes the generation when it begins and zero when it has ended; one that
//! finds the table closed after that does not use it. So when all transactions have noted the new generation or zero, none uses
//! the table, until a snapshot without it is published.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError, Weak};
use std::time::{Duration, Instant};

use atrapos::{Database, DefineError};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::cancel::Connections;
use crate::connection::{ConnectOptions, Connection};
use crate::counts::Counts;
use crate::ddl::refused;
use crate::error::{Severity, SqlError, SqlState};
use crate::kept::{Kept, UNUSED};
use crate::load;
use crate::procedures::SqlProcedures;
use crate::roles::{FIRST_ROLE, Role, SUPERUSER};
use crate::schema::{Schema, TableEntry};
use crate::sequences::Sequences;

/// The first version of schemas that transactions have for themselves, beyond those of the one for all.
const FIRST_OVERLAY: u64 = 1 << 63;

/// The time that a statement waits for the transactions that use a table.
const PATIENCE: Duration = Duration::from_secs(10);

/// Makes the verifier of a password, or says why it cannot be one.
pub type PasswordVerifier = fn(&str) -> Result<String, String>;

/// Settings of a [`SqlDatabase`].
#[derive(Clone, Debug)]
pub struct SqlOptions {
    /// The name of the database, as clients connect to it.
    pub name: String,
    /// The most bytes that the rows of one answer may have while they wait to be sent.
    pub max_answer_bytes: usize,
    /// Settings that connections begin with, by name: what a client asks for itself counts before them.
    pub settings: Vec<(String, String)>,
    /// The name of the superuser of a database that has no roles yet.
    pub superuser: String,
    /// Makes the verifier of a password that a statement gives to a role; without it, statements give none.
    pub password_verifier: Option<PasswordVerifier>,
}

impl Default for SqlOptions {
    fn default() -> SqlOptions {
        SqlOptions {
            name: "postgres".to_owned(),
            max_answer_bytes: 256 << 20,
            settings: Vec::new(),
            superuser: "postgres".to_owned(),
            password_verifier: None,
        }
    }
}

/// A database that statements are run on.
#[derive(Debug)]
pub struct SqlDatabase {
    database: Arc<Database>,
    options: SqlOptions,
    kept: Kept,
    schema: RwLock<Arc<Schema>>,
    /// Its version, changed while it is locked.
    version: AtomicU64,
    sequences: Arc<Sequences>,
    connections: Arc<Connections>,
    counts: Arc<Counts>,
    /// Held by the one statement that changes the schema.
    changing: Mutex<()>,
    /// The tables that transactions under way load in bulk.
    loading: Mutex<BTreeSet<String>>,
    /// The version of the next schema that a transaction has for itself.
    overlays: AtomicU64,
    generation: AtomicU64,
    /// For each connection the generation that its transaction has noted.
    noted: Mutex<Vec<Weak<AtomicU64>>>,
    changed: Notify,
    /// The greatest number of a role: while the database is open none is given twice, as sessions of a role that is dropped go on.
    last_role: AtomicU32,
}

impl SqlDatabase {
    /// Puts SQL before an open database. Blocks while it reads its own tables: call it from a thread that may.
    ///
    /// # Errors
    /// When the tables in which it keeps what the engine does not know of cannot be read or made.
    pub fn open(database: Database, options: SqlOptions) -> Result<Arc<SqlDatabase>, SqlError> {
        SqlDatabase::open_with(database, options, SqlProcedures::default())
    }

    /// Puts SQL before an open database, as [`open`](SqlDatabase::open) does, with procedures that statements call (`CALL`).
    ///
    /// # Errors
    /// As `open`.
    pub fn open_with(
        database: Database,
        options: SqlOptions,
        procedures: SqlProcedures,
    ) -> Result<Arc<SqlDatabase>, SqlError> {
        let database = Arc::new(database);
        let kept = Kept::open(&database)?;
        let rows = kept.rows(&database)?;
        let unused: Vec<&str> = load::unused(&rows).collect();
        database.drop_foreign_keys(&unused).map_err(|error| refused(&error))?;
        for engine in unused {
            drop_unused(&database, &kept, engine)?;
        }
        let mut schema = load::schema(&database, rows)?;
        if let Entry::Vacant(place) = schema.roles.roles.entry(SUPERUSER) {
            let role = Role::superuser(SUPERUSER, &options.superuser);
            kept.write_role(&database, &role)?;
            place.insert(role);
        }
        schema.procedures = Arc::new(procedures);
        let last_role = schema.roles.roles.keys().copied().max().unwrap_or(0).max(FIRST_ROLE - 1);
        let sequences = Arc::new(Sequences::new(Arc::downgrade(&database), kept.clone()));
        Ok(Arc::new(SqlDatabase {
            database,
            options,
            kept,
            version: AtomicU64::new(schema.version),
            schema: RwLock::new(Arc::new(schema)),
            sequences,
            connections: Arc::default(),
            counts: Arc::default(),
            changing: Mutex::new(()),
            loading: Mutex::default(),
            overlays: AtomicU64::new(FIRST_OVERLAY),
            generation: AtomicU64::new(1),
            noted: Mutex::new(Vec::new()),
            changed: Notify::new(),
            last_role: AtomicU32::new(last_role),
        }))
    }

    /// Makes a connection for a client.
    ///
    /// # Errors
    /// When a setting that the client asks for does not exist, or cannot have the value.
    pub fn connect(self: &Arc<SqlDatabase>, options: ConnectOptions) -> Result<Connection, SqlError> {
        Connection::new(Arc::clone(self), options)
    }

    /// Refuses a user who is no role, or one that may not log in.
    ///
    /// # Errors
    /// With 28000, as clients know it.
    pub fn check_login(&self, user: &str) -> Result<(), SqlError> {
        let why = match self.schema().roles.named(user) {
            None => format!("role \"{user}\" does not exist"),
            Some(role) if !role.login => format!("role \"{user}\" is not permitted to log in"),
            Some(_) => return Ok(()),
        };
        Err(SqlError::new(SqlState::INVALID_AUTHORIZATION, why).severity(Severity::Fatal))
    }

    /// The verifier of a role's password; `None` if there is no such role, or it has none.
    #[must_use]
    pub fn password_verifier(&self, user: &str) -> Option<String> {
        self.schema().roles.named(user)?.password.clone()
    }

    /// The verifier of a password of some role, the same each time; `None` if no role has a password.
    #[must_use]
    pub fn first_password_verifier(&self) -> Option<String> {
        self.schema().roles.roles.values().find_map(|role| role.password.clone())
    }

    /// The name of the superuser that the database began with.
    #[must_use]
    pub fn superuser(&self) -> String {
        self.schema().roles.name_of(SUPERUSER)
    }

    /// Gives a role the verifier of a password; makes a superuser of the name if there is no such role. Blocks.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn set_password_verifier(&self, user: &str, verifier: String) -> Result<(), SqlError> {
        let _change = self.change();
        let known = self.schema().roles.named(user).cloned();
        let mut role = known.unwrap_or_else(|| Role::superuser(self.next_role(), user));
        role.password = Some(verifier);
        self.kept.write_role(&self.database, &role)?;
        self.reload()
    }

    /// A number for a new role.
    pub(crate) fn next_role(&self) -> u32 {
        self.last_role.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The engine's database.
    #[must_use]
    pub fn database(&self) -> &Arc<Database> {
        &self.database
    }

    /// Its settings.
    #[must_use]
    pub fn options(&self) -> &SqlOptions {
        &self.options
    }

    pub(crate) fn kept(&self) -> &Kept {
        &self.kept
    }

    pub(crate) fn sequences(&self) -> &Arc<Sequences> {
        &self.sequences
    }

    /// The connections by their numbers.
    pub(crate) fn connections(&self) -> &Arc<Connections> {
        &self.connections
    }

    /// The counts of executions by statement.
    pub(crate) fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    /// The tables as they are now.
    /// Returns the version of the [schema](Self::schema) that is known now, or of the one before for a moment.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn schema(&self) -> Arc<Schema> {
        Arc::clone(&self.schema.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Excludes other statements that change the schema.
    pub(crate) fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Excludes other statements that change the schema, unless one goes on for too long: it may wait for the caller's transaction.
    pub(crate) fn change_soon(&self) -> Result<MutexGuard<'_, ()>, SqlError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.changing.try_lock() {
                Ok(guard) => return Ok(guard),
                Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() > deadline => {
                    return Err(SqlError::new(
                        SqlState::LOCK_NOT_AVAILABLE,
                        "a statement that changes the schema has not ended, so a table that the transaction has loaded cannot \
                         take its place",
                    )
                    .hint("Run the transaction again."));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    fn loading(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.loading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a transaction loads a table in bulk; returns false if one does already.
    pub(crate) fn begin_loading(&self, table: &str) -> bool {
        self.loading().insert(table.to_owned())
    }

    /// Notes that a transaction that has loaded a table has ended.
    pub(crate) fn end_loading(&self, table: &str) {
        self.loading().remove(table);
    }

    /// Refuses a definition that concerns a table which a transaction loads in bulk.
    pub(crate) fn refuse_loading(&self, table: &str) -> Result<(), SqlError> {
        if !self.loading().contains(table) {
            return Ok(());
        }
        Err(SqlError::new(
            SqlState::OBJECT_IN_USE,
            format!("table \"{table}\" is being loaded by a transaction that has not ended"),
        )
        .hint("Commit the transaction first."))
    }

    /// Drops a table of the engine that counts for nothing, and the row that says so.
    pub(crate) fn drop_unused(&self, engine: &str) -> Result<(), SqlError> {
        drop_unused(&self.database, &self.kept, engine)
    }

    /// Makes rows of tables of the engine that count for nothing refer to none.
    pub(crate) fn drop_foreign_keys(&self, tables: &[Arc<TableEntry>]) -> Result<(), SqlError> {
        let children = tables.iter().filter(|table| !table.meta.foreign_keys.is_empty());
        let children: Vec<&str> = children.map(|table| &*table.meta.engine).collect();
        if children.is_empty() {
            return Ok(());
        }
        self.database.drop_foreign_keys(&children).map_err(|error| refused(&error))
    }

    /// A version for a schema that a transaction has for itself.
    pub(crate) fn next_overlay(&self) -> u64 {
        self.overlays.fetch_add(1, Ordering::Relaxed)
    }

    /// Reads all definitions again and publishes them.
    pub(crate) fn reload(&self) -> Result<(), SqlError> {
        let mut schema = load::schema(&self.database, self.kept.rows(&self.database)?)?;
        let mut published = self.schema.write().unwrap_or_else(PoisonError::into_inner);
        schema.version = published.version + 1;
        // Sequences go on where they are: what is kept of them is ahead of what was given out.
        for (name, sequence) in &published.sequences {
            if let Some(again) = schema.sequences.get_mut(name) {
                *again = Arc::clone(sequence);
            }
        }
        schema.procedures = Arc::clone(&published.procedures);
        self.version.store(schema.version, Ordering::Release);
        *published = Arc::new(schema);
        drop(published);
        self.changed.notify_waiters();
        Ok(())
    }

    /// A place in which a connection notes the generation of its transaction.
    pub(crate) fn note_place(&self) -> Arc<AtomicU64> {
        let place = Arc::new(AtomicU64::new(0));
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        noted.retain(|place| place.strong_count() > 0);
        noted.push(Arc::downgrade(&place));
        place
    }

    /// The generation that transactions note when they begin.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// A future of the next change of the schema, or of a table that is opened again.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Closes a table and waits until no transaction uses it.
    pub(crate) fn close(&self, table: &TableEntry) -> Result<(), SqlError> {
        table.is_closed.store(true, Ordering::SeqCst);
        let generation = self.generation.fetch_add(1, Ordering::SeqCst) + 1;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
            let is_before = |place: Arc<AtomicU64>| (1..generation).contains(&place.load(Ordering::SeqCst));
            let in_use = noted.iter().filter_map(Weak::upgrade).any(is_before);
            drop(noted);
            if !in_use {
                return Ok(());
            }
            if Instant::now() > deadline {
                self.reopen(table);
                return Err(SqlError::new(
                    SqlState::LOCK_NOT_AVAILABLE,
                    format!(
                        "transactions that began before have not ended, so table \"{}\" cannot be replaced",
                        table.name
                    ),
                )
                .hint("End them, and run the statement again."));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Opens a table that was closed.
    pub(crate) fn reopen(&self, table: &TableEntry) {
        table.is_closed.store(false, Ordering::SeqCst);
        self.changed.notify_waiters();
    }
}

/// Drops a table of the engine that counts for nothing, and then the row that says so.
fn drop_unused(database: &Database, kept: &Kept, engine: &str) -> Result<(), SqlError> {
    match database.drop_table(engine) {
        // A crash has come before it was made.
        Ok(()) | Err(DefineError::Unknown(_)) => {}
        Err(error) => return Err(refused(&error)),
    }
    kept.write(database, format!("{UNUSED}{engine}"), None)
}
