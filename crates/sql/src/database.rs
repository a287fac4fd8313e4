//! A database that statements are run on: one per process.
//!
//! Owns: the engine's database. Never: knows a client.

use std::sync::Arc;

use atrapos::Database;

use crate::connection::{ConnectOptions, Connection};
use crate::error::SqlError;

/// Settings of a [`SqlDatabase`].
#[derive(Clone, Debug)]
pub struct SqlOptions {
    /// The name of the database, as clients connect to it.
    pub name: String,
    /// The most bytes that the rows of one answer may have while they wait to be sent.
    pub max_answer_bytes: usize,
}

impl Default for SqlOptions {
    fn default() -> SqlOptions {
        SqlOptions { name: "postgres".to_owned(), max_answer_bytes: 256 << 20 }
    }
}

/// A database that statements are run on.
#[derive(Debug)]
pub struct SqlDatabase {
    database: Database,
    options: SqlOptions,
}

impl SqlDatabase {
    /// Puts SQL before an open database. Blocks while it reads its own tables: call it from a thread that may.
    ///
    /// # Errors
    /// When the tables in which it keeps what the engine does not know of cannot be read or made.
    pub fn open(database: Database, options: SqlOptions) -> Result<Arc<SqlDatabase>, SqlError> {
        Ok(Arc::new(SqlDatabase { database, options }))
    }

    /// Makes a connection for a client.
    ///
    /// # Errors
    /// When a setting that the client asks for does not exist, or cannot have the value.
    pub fn connect(self: &Arc<SqlDatabase>, options: ConnectOptions) -> Result<Connection, SqlError> {
        Connection::new(Arc::clone(self), options)
    }

    /// The engine's database.
    #[must_use]
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Its settings.
    #[must_use]
    pub fn options(&self) -> &SqlOptions {
        &self.options
    }
}
