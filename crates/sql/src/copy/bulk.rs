//! Rows of a COPY FROM that the engine's loader adds to a table which nobody else can name.
//!
//! Owns: the rows on their way to the loader, and what its refusals mean to a client. Never: makes the table, or puts it in its place.
//!
//! # Foreign keys
//!
//! The loader checks none of them. When the rows of a batch are there, the keys that they refer to are looked up, each once and in
//! their order, by the workers that own them. Nobody else can change the rows that are found: the transaction has locked all of the
//! tables referred to, or they are its own. What a batch refers to and does not find is kept with the number of its line until all
//! lines have come: a row may refer to a later one of its own table. What is not there then is the error of the COPY, as it is in
//! PostgreSQL.

use std::sync::Arc;

use atrapos::{KeyBuf, LoadError, LoadProgress, Reference, WorkerId};

use super::{CopyRow, CopyTarget};
use crate::error::{SqlError, SqlState};
use crate::exec::{duplicate, stored};
use crate::expr::{Env, Row};
use crate::functions::{NEEDS_BLOCK, out_of_place};
use crate::schema::TableEntry;
use crate::sequences::Sequences;
use crate::session::still_open;

/// The hidden keys of the rows of a table without a key of its own: those of one worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hidden {
    pub(crate) worker: WorkerId,
    /// The number of the next row.
    pub(crate) next: u64,
}

/// Rows that are loaded at once.
pub(crate) struct BulkBatch {
    pub(crate) target: Arc<CopyTarget>,
    /// The table that they are loaded into.
    pub(crate) table: Arc<TableEntry>,
    pub(crate) env: Env,
    pub(crate) sequences: Arc<Sequences>,
    pub(crate) rows: Arc<Vec<CopyRow>>,
    /// The number of the line of the first of them, for messages.
    pub(crate) first: u64,
    pub(crate) hidden: Hidden,
}

/// Reasons for which no row of a batch was loaded.
pub(crate) enum NotLoaded {
    /// The transaction has locks in the table, so its rows are inserted one by one.
    InUse,
    Failed(SqlError),
}

impl BulkBatch {
    /// Loads the rows, all or none. Returns their references to rows that are not there, with the numbers of their lines. Blocks.
    pub(crate) fn load(&self) -> Result<Vec<Reference>, NotLoaded> {
        let rows = self.checked().map_err(NotLoaded::Failed)?;
        let encoded = Arc::new(self.encoded(&rows).map_err(NotLoaded::Failed)?);
        let number = self.table.handle.id();
        let engine = still_open(&self.env.session.engine).map_err(NotLoaded::Failed)?;
        let added = Arc::clone(&encoded);
        let loaded = engine.load_unsaved(&LoadProgress::default(), move |loader| {
            for (key, row) in added.iter() {
                if loader.owns_encoded(number, key) {
                    loader.add_encoded(number, key, row)?;
                }
            }
            Ok(())
        });
        loaded.map_err(|error| self.explained(&rows, error))?;
        if self.table.meta.foreign_keys.is_empty() {
            return Ok(Vec::new());
        }
        let references = engine.references_of(number, &encoded);
        let missing = references.and_then(|references| engine.without_parents(references));
        let mut missing = missing.map_err(|abort| NotLoaded::Failed(SqlError::of_abort(&abort)))?;
        missing.iter_mut().for_each(|reference| reference.row += self.first);
        Ok(missing)
    }

    /// The rows as values, each checked by itself.
    fn checked(&self) -> Result<Vec<Row>, SqlError> {
        let mut rows = Vec::with_capacity(self.rows.len());
        for (given, line) in self.rows.iter().zip(self.first..) {
            rows.push(loop {
                match self.target.row(&self.env, given) {
                    Ok(row) => break row,
                    Err(error) if error.code == NEEDS_BLOCK => {
                        self.sequences.reserve_blocking(self.env.schema.sequence(&error.message)?)?;
                    }
                    Err(error) => return Err(self.target.in_line(line, out_of_place(error))),
                }
            });
        }
        Ok(rows)
    }

    fn encoded(&self, rows: &[Row]) -> Result<Vec<(KeyBuf, Vec<u8>)>, SqlError> {
        let mut encoded = Vec::with_capacity(rows.len());
        for ((row, line), hidden) in rows.iter().zip(self.first..).zip(self.hidden.next..) {
            let made =
                self.table.handle.encode_row(stored(&self.table, row)).and_then(|(key, bytes)| match key {
                    Some(key) => Ok((key, bytes)),
                    None => Ok((self.table.handle.hidden_key(self.hidden.worker, hidden)?, bytes)),
                });
            let made = made.map_err(|abort| self.target.in_line(line, SqlError::of_abort(&abort)));
            encoded.push(made?);
        }
        Ok(encoded)
    }

    #[cold]
    fn explained(&self, rows: &[Row], error: LoadError) -> NotLoaded {
        NotLoaded::Failed(match error {
            LoadError::Busy { .. } => return NotLoaded::InUse,
            LoadError::Duplicate { table, key } => {
                let rows: Vec<&Row> = rows.iter().collect();
                let (error, at) = duplicate(&self.table, &rows, &format!("'{table}' has key {key};"));
                match at {
                    Some(at) => self.target.in_line(self.first + at as u64, error),
                    None => error,
                }
            }
            LoadError::Aborted(abort) => SqlError::of_abort(&abort),
            error @ LoadError::DoesNotFit { .. } => {
                SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, error.to_string()).table(&self.table.name)
            }
            error => SqlError::new(SqlState::INTERNAL_ERROR, error.to_string()).table(&self.table.name),
        })
    }
}
