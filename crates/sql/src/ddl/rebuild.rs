//! Making a table anew, with a primary key.
//!
//! Owns: the way of the rows of a table into another one that is clustered by a key, and the order of the steps. Never: decides what
//! the new table is.
//!
//! # Steps
//!
//! 1. The table is closed ([`close`](crate::database::SqlDatabase::close)): no transaction uses it.
//! 2. Its rows are read, a slice of about a MiB at a time. Threads of the statement make of each slice the rows of the new table,
//!    encoded with their keys, while the next ones come. This is the only copy.
//! 3. Unless the keys came in ascending order, their places are sorted, in runs by several threads. The rows stay where they are.
//! 4. A row beside the definitions says that the new table counts for nothing. It is made, cut so that all workers get as many rows;
//!    each packs its own into its trees; a checkpoint makes them durable. Few rows are inserted in a transaction: a checkpoint is of the
//!    whole database.
//! 5. One transaction writes which table of the engine the name leads to, and that it is the old one that counts for nothing. So a
//!    crash at any moment leaves the one or the other whole, and what counts for nothing is dropped when the database is opened.
//! 6. The new schema is published, and the old table dropped.

mod rows;

use std::sync::{Arc, Mutex, PoisonError, mpsc};

use atrapos::catalog::{
    ColumnDef, KeyCodec, RowLayout, RowProjection, TableDef, Value as Stored, ValueError,
};
use atrapos::{
    Abort, AbortReason, CopiedRows, DynRow, KeyBuf, LoadError, LoadProgress, NewTable, TableHandle,
};

use self::rows::{Part, Rows};
use super::draft::Draft;
use super::{Change, refused};
use crate::error::{SqlError, SqlState};
use crate::kept::UNUSED;
use crate::schema::{IndexMeta, TableEntry, TableMeta, from_stored};

impl Change<'_> {
    /// Makes a table anew with a primary key.
    pub(super) fn rebuild(&self, table: &Arc<TableEntry>, mut draft: Draft) -> Result<(), SqlError> {
        if table.cluster_key().is_some() {
            return Err(SqlError::new(
                SqlState::INVALID_TABLE_DEFINITION,
                format!("multiple primary keys for table \"{}\" are not allowed", table.name),
            ));
        }
        // The names of the old table and its indexes are in use until it is gone.
        let engine = format!("{}~{}", table.name, self.db.database().definitions().trees.len());
        for index in &mut draft.indexes {
            if let Some(name) = &mut index.engine {
                *name = format!("{name}~{engine}");
            }
        }
        // The new table has the names that the columns have now.
        draft.columns.iter_mut().for_each(|column| column.engine = None);
        let (new, mut meta) = self.definition(&draft, engine)?;
        meta.comment.clone_from(&table.meta.comment);
        meta.number = Some(table.meta.number.unwrap_or(table.handle.id().0));
        self.db.close(table)?;
        if let Err(error) = self.make_filled(table, new, &meta) {
            // It counts for nothing, and is dropped when the database is opened, if not now.
            let _ = self.db.drop_unused(&meta.engine);
            self.db.reopen(table);
            return Err(error);
        }
        self.switch(table, &meta)
    }

    /// Makes the new table, which counts for nothing yet, with all rows of the closed one.
    fn make_filled(&self, table: &TableEntry, mut new: NewTable, meta: &TableMeta) -> Result<(), SqlError> {
        let rows = self.rows_of(table, &new.table, meta)?;
        new.table.splits = rows.splits(self.workers());
        let database = self.db.database();
        self.db.kept().write(database, format!("{UNUSED}{}", meta.engine), Some(String::new()))?;
        database.create_table(new).map_err(|error| refused(&error))?;
        self.fill(&meta.engine, table, rows)
    }

    /// Has the name of the closed table lead to the new one, and drops that which counts for nothing then.
    fn switch(&self, table: &TableEntry, meta: &TableMeta) -> Result<(), SqlError> {
        let unused = |engine: &str| format!("{UNUSED}{engine}");
        let now = (format!("table:{}", table.name), Some(self.body(meta)?));
        let before = (unused(&table.meta.engine), Some(String::new()));
        let rows = vec![now, (unused(&meta.engine), None), before];
        let switched = self.db.kept().write_all(self.db.database(), rows);
        let published = self.db.reload();
        if published.is_err() {
            // Which one the name leads to is not known: neither is used, or dropped, until the database is opened again.
            return switched.and(published);
        }
        // If the outcome of the transaction is not known, what is kept tells.
        let is_new =
            self.db.schema().tables.get(&table.name).is_some_and(|now| now.meta.engine == meta.engine);
        // What cannot be dropped is when the database is opened.
        let _ = self.db.drop_unused(if is_new { &table.meta.engine } else { &meta.engine });
        switched
    }

    /// The number of workers that the rows of a table are spread over.
    fn workers(&self) -> usize {
        self.db.database().active_workers().max(1)
    }

    /// All rows of a table that nobody uses, as the new one has them, in the order of their keys.
    fn rows_of(&self, table: &TableEntry, new: &TableDef, meta: &TableMeta) -> Result<Rows, SqlError> {
        let Some(key) = meta.indexes.iter().find(|index| index.primary) else { return Ok(Rows::default()) };
        let definitions = self.db.database().definitions();
        let old = definitions.table(table.handle.id().0).ok_or_else(|| no_longer(table))?;
        let conversion = Conversion {
            table,
            codec: codec(&new.columns, key),
            from: RowLayout::of_table(old),
            to: RowLayout::of_table(new),
            projection: RowProjection::new(old, new),
            key,
            is_in_key: (0..new.columns.len()).map(|column| new.is_in_key(column)).collect(),
        };
        let parts = self.converted(&conversion)?;
        let rows = Rows::new(parts, threads());
        match rows.duplicate() {
            Some(duplicate) => Err(conversion.duplicate(duplicate)),
            None => Ok(rows),
        }
    }

    /// Reads the rows of a table, and has them converted by several threads as they come.
    fn converted(&self, conversion: &Conversion<'_>) -> Result<Vec<Part>, SqlError> {
        let threads = threads();
        let (slices, incoming) = mpsc::sync_channel(threads * 2);
        let incoming = Arc::new(Mutex::new(incoming));
        let (visited, converted) = std::thread::scope(|scope| {
            let helpers: Vec<_> = (0..threads)
                .filter_map(|_| {
                    let incoming = Arc::clone(&incoming);
                    let helper = move || convert_all(conversion, &incoming);
                    std::thread::Builder::new()
                        .name("sql-statement".to_owned())
                        .spawn_scoped(scope, helper)
                        .ok()
                })
                .collect();
            // The slices have no other end than those of the threads.
            drop(incoming);
            let mut numbers = 0_usize..;
            let visited = self.db.database().visit_slices(conversion.table.handle.id(), |slice| {
                let gone = |_| Abort::user("the threads of the statement have ended");
                slices.send((numbers.next().unwrap_or(0), slice)).map_err(gone)
            });
            drop(slices);
            let converted: Vec<_> = helpers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            (visited, converted)
        });
        let mut parts = Vec::new();
        for converted in converted {
            parts.extend(converted.map_err(|_| stopped())??);
        }
        visited.map_err(|abort| SqlError::of_abort(&abort))?;
        parts.sort_unstable_by_key(|(number, _)| *number);
        Ok(parts.into_iter().map(|(_, part)| part).collect())
    }

    /// Inserts few rows into a new table in a transaction; returns false if they are more than one may change.
    fn insert(&self, handle: &TableHandle, rows: &Arc<Rows>) -> Result<bool, SqlError> {
        let route = handle.at(&[]).map_err(|abort| SqlError::of_abort(&abort))?;
        let (table, rows) = (handle.clone(), Arc::clone(rows));
        let inserted = self.db.database().run(route, async move |tx| {
            let mut insertions = Vec::with_capacity(rows.count);
            rows.each(0..rows.count, |key, row| {
                let values = DynRow::new(table.id(), KeyBuf::from(key), row).values(&table)?;
                insertions.push(table.insert_values(values)?);
                Ok::<(), Abort>(())
            })?;
            tx.join_each(insertions, drop).await
        });
        match inserted {
            Ok(()) => Ok(true),
            Err(abort) if abort.reason() == AbortReason::TransactionTooLarge => Ok(false),
            Err(abort) => Err(SqlError::of_abort(&abort)),
        }
    }

    /// Brings rows into a new table.
    fn fill(&self, engine: &str, table: &TableEntry, rows: Rows) -> Result<(), SqlError> {
        let internal = |why: String| SqlError::new(SqlState::INTERNAL_ERROR, why).table(&table.name);
        let handle = self.db.database().table_named(engine).map_err(|error| internal(error.to_string()))?;
        let (rows, number, shares) = (Arc::new(rows), handle.id(), self.workers());
        if rows.count == 0 || rows.bytes() <= FEW_BYTES && self.insert(&handle, &rows)? {
            return Ok(());
        }
        let loaded = self.db.database().load(&LoadProgress::default(), move |loader| {
            for share in rows.shares(shares) {
                let Some(first) = rows.key(share.start) else { continue };
                if !loader.owns_encoded(number, &KeyBuf::from(first)) {
                    continue;
                }
                rows.each(share, |key, row| loader.add_encoded(number, &KeyBuf::from(key), row))?;
            }
            Ok(())
        });
        loaded.map(drop).map_err(|error| match error {
            LoadError::Duplicate { .. } => {
                SqlError::new(SqlState::UNIQUE_VIOLATION, error.to_string()).table(&table.name)
            }
            error => internal(error.to_string()),
        })
    }
}

fn codec(columns: &[ColumnDef], key: &IndexMeta) -> KeyCodec {
    use atrapos::KeyPart;
    use atrapos::catalog::KeyField;
    let field = |(column, descending): &(usize, bool)| KeyField {
        part: KeyPart { ty: columns[*column].ty, descending: *descending, nullable: false },
    };
    KeyCodec::new(key.columns.iter().map(field).collect())
}

/// The number of threads that work on rows at once, beside the workers.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(THREADS_MAX)
}

/// Bytes of rows up to which these are inserted: a checkpoint would take longer.
const FEW_BYTES: usize = 64 << 10;

/// More of them than this would wait for the rows that one transaction reads.
const THREADS_MAX: usize = 8;

#[cold]
fn no_longer(table: &TableEntry) -> SqlError {
    SqlError::new(SqlState::SERIALIZATION_FAILURE, format!("table \"{}\" has been replaced", table.name))
        .hint("Run the statement again.")
}

#[cold]
fn stopped() -> SqlError {
    SqlError::new(SqlState::INTERNAL_ERROR, "a thread of the statement has stopped")
}

/// A slice of a table and its place among those of the table.
type Numbered<T> = (usize, T);

/// Converts slices until no more come. After a failure the others are taken and left.
fn convert_all(
    conversion: &Conversion<'_>,
    slices: &Mutex<mpsc::Receiver<Numbered<CopiedRows>>>,
) -> Result<Vec<Numbered<Part>>, SqlError> {
    let mut parts = Ok(Vec::new());
    loop {
        let next = slices.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((number, slice)) = next else { return parts };
        if let Ok(done) = &mut parts {
            match conversion.convert(&slice) {
                Ok(part) => done.push((number, part)),
                Err(error) => parts = Err(error),
            }
        }
    }
}

/// The way from rows of the old table to those of the new one, with their keys.
struct Conversion<'a> {
    table: &'a TableEntry,
    key: &'a IndexMeta,
    codec: KeyCodec,
    from: RowLayout,
    to: RowLayout,
    /// For tables whose columns are of the same types in both; otherwise rows are made of their values.
    projection: Option<RowProjection>,
    is_in_key: Vec<bool>,
}

impl Conversion<'_> {
    fn convert(&self, slice: &CopiedRows) -> Result<Part, SqlError> {
        let mut part = Part {
            bytes: Vec::with_capacity(slice.bytes.len() + 16 * slice.rows.len()),
            ends: Vec::with_capacity(slice.rows.len()),
            ascends: true,
        };
        for (_, row) in slice.iter() {
            let key = self.key_of(row)?;
            part.ascends &= part.ends.len().checked_sub(1).is_none_or(|last| part.row(last).0 < &*key);
            part.bytes.extend_from_slice(&key);
            let key_end = part.bytes.len() as u32;
            let made = match &self.projection {
                Some(projection) => projection.project(row, &mut part.bytes),
                None => self.encode(row, &mut part.bytes),
            };
            made.map_err(|error| self.refusal(&error))?;
            part.ends.push((key_end, part.bytes.len() as u32));
        }
        Ok(part)
    }

    fn key_of(&self, row: &[u8]) -> Result<KeyBuf, SqlError> {
        let mut key = KeyBuf::new();
        for ((column, _), field) in self.key.columns.iter().zip(self.codec.fields()) {
            let value = self.from.get(row, *column).map_err(|error| self.refusal(&error))?;
            if value.is_null() {
                return Err(self.has_null(*column));
            }
            field.encode(&value, &mut key).map_err(|error| self.refusal(&error))?;
        }
        Ok(key)
    }

    /// Appends the new row, made of the values of the old one.
    fn encode(&self, row: &[u8], out: &mut Vec<u8>) -> Result<(), ValueError> {
        let values = self.from.decode(row)?.into_iter().zip(&self.is_in_key);
        let values: Vec<Stored> =
            values.filter(|(_, is_in_key)| !**is_in_key).map(|(value, _)| value).collect();
        self.to.encode(&values, out)
    }

    #[cold]
    fn has_null(&self, column: usize) -> SqlError {
        let (table, column) = (&self.table.name, &self.table.columns[column].name);
        let why = format!("column \"{column}\" of relation \"{table}\" contains null values");
        SqlError::new(SqlState::NOT_NULL_VIOLATION, why).table(table).column(column)
    }

    #[cold]
    fn refusal(&self, error: &ValueError) -> SqlError {
        let why = format!("a row of table \"{}\" cannot be made one with a key: {error}", self.table.name);
        SqlError::new(SqlState::INTERNAL_ERROR, why).table(&self.table.name)
    }

    /// The error for a key that two rows have.
    #[cold]
    fn duplicate(&self, key: &[u8]) -> SqlError {
        let columns = self.key.columns.iter().map(|(column, _)| &self.table.columns[*column]);
        let values = self.codec.decode(key).unwrap_or_default();
        let parts = columns.zip(values).map(|(column, value)| {
            let value = crate::format::text_of(&from_stored(value, column.ty), column.ty);
            (&*column.name, value)
        });
        let (names, values): (Vec<&str>, Vec<String>) = parts.unzip();
        SqlError::new(
            SqlState::UNIQUE_VIOLATION,
            format!("could not create unique index \"{}\"", self.key.name),
        )
        .detail(format!("Key ({})=({}) is duplicated.", names.join(", "), values.join(", ")))
        .table(&self.table.name)
        .constraint(&self.key.name)
    }
}
