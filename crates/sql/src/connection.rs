//! A client's connection: its statements, portals, settings and transaction.
//!
//! Owns: what lives as long as the connection, and the state of its transaction. Never: runs a statement on the thread of its
//! caller for longer than planning it takes; its futures wait for the engine without blocking.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::database::SqlDatabase;
use crate::error::SqlError;
use crate::format::Format;
use crate::settings::Settings;
use crate::sink::{Column, Sink};
use crate::types::SqlType;

/// Who connects, and what the client asks for when it does.
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    /// The user.
    pub user: String,
    /// The number of the connection, as BackendKeyData and `pg_backend_pid()` tell it.
    pub process_id: i32,
    /// Settings by name, as in the start-up message: `application_name` and the like.
    pub settings: Vec<(String, String)>,
}

/// The state of a connection's transaction, for ReadyForQuery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionStatus {
    /// There is no transaction.
    Idle,
    /// A transaction is open.
    Active,
    /// A transaction has failed, and waits for its end.
    Failed,
}

/// Cancels what a connection runs, from any thread.
#[derive(Clone, Debug)]
pub struct CancelHandle(Arc<AtomicBool>);

impl CancelHandle {
    /// Asks for the end of the statement that runs now, if one does.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The description of a prepared statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementDescription {
    /// The types of its parameters.
    pub parameters: Vec<SqlType>,
    /// Its columns; `None` if it returns no rows.
    pub columns: Option<Vec<Column>>,
}

/// A client's connection.
///
/// An error of a method fails the transaction that is open, as PostgreSQL does: an implicit one is undone at once, one that the
/// client has begun waits for its end ([`TransactionStatus::Failed`]). After an error in the extended protocol the server skips
/// messages until Sync and then calls [`sync`](Connection::sync).
///
/// Dropping a connection undoes its open transaction.
#[derive(Debug)]
pub struct Connection {
    #[expect(dead_code, reason = "the statements that use it come next")]
    database: Arc<SqlDatabase>,
    settings: Settings,
    cancel: CancelHandle,
}

impl Connection {
    pub(crate) fn new(database: Arc<SqlDatabase>, options: ConnectOptions) -> Result<Connection, SqlError> {
        let mut settings = Settings::new(&options.user);
        for (name, value) in &options.settings {
            settings.set_initial(name, value)?;
        }
        Ok(Connection { database, settings, cancel: CancelHandle(Arc::default()) })
    }

    /// Runs the statements of a simple query, in one implicit transaction unless they begin or end transactions themselves.
    ///
    /// # Errors
    /// The error of the first statement that failed; the rest has not been run.
    pub async fn simple(&mut self, text: &str, sink: &mut dyn Sink) -> Result<(), SqlError> {
        if text.trim().is_empty() {
            sink.empty_query();
            return Ok(());
        }
        Err(SqlError::unsupported("this statement"))
    }

    /// Prepares a statement; an empty name replaces the unnamed one. A parameter's type of 0 (or none given) is inferred.
    ///
    /// # Errors
    /// A text that is no statement, or more than one; names that do not exist; a name of a statement that is taken.
    pub async fn parse(&mut self, _name: &str, _text: &str, _types: &[u32]) -> Result<(), SqlError> {
        Err(SqlError::unsupported("this statement"))
    }

    /// Describes a prepared statement.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn describe_statement(&self, _name: &str) -> Result<StatementDescription, SqlError> {
        Err(SqlError::unsupported("this statement"))
    }

    /// Makes a portal of a prepared statement and parameters, each `None` for NULL. `formats` of parameters and results have no
    /// element (all text), one for all, or one for each, as in the protocol.
    ///
    /// # Errors
    /// Parameters that are too few, too many or no values of their types; a name that is taken or does not exist.
    pub async fn bind(
        &mut self,
        _portal: &str,
        _statement: &str,
        _parameters: &[Option<&[u8]>],
        _formats: &[Format],
        _result_formats: &[Format],
    ) -> Result<(), SqlError> {
        Err(SqlError::unsupported("this statement"))
    }

    /// Describes a portal: its columns with their formats; `None` if it returns no rows.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn describe_portal(&self, _name: &str) -> Result<Option<Vec<Column>>, SqlError> {
        Err(SqlError::unsupported("this statement"))
    }

    /// Runs a portal, or goes on with it, for at most `limit` rows; 0: all. `ends` says that the next message is a Sync: the
    /// implicit transaction then ends with this statement, in one step with it. The sink is not given a row description.
    ///
    /// # Errors
    /// The error of the statement.
    pub async fn execute(
        &mut self,
        _portal: &str,
        _limit: usize,
        _ends: bool,
        _sink: &mut dyn Sink,
    ) -> Result<(), SqlError> {
        Err(SqlError::unsupported("this statement"))
    }

    /// Forgets a prepared statement; one that does not exist is none.
    pub fn close_statement(&mut self, _name: &str) {}

    /// Forgets a portal; one that does not exist is none.
    pub fn close_portal(&mut self, _name: &str) {}

    /// Ends the implicit transaction of the extended protocol: at a Sync, after an error too.
    ///
    /// # Errors
    /// When the transaction could not commit.
    pub async fn sync(&mut self) -> Result<(), SqlError> {
        Ok(())
    }

    /// The state of the transaction, for ReadyForQuery.
    #[must_use]
    pub fn status(&self) -> TransactionStatus {
        TransactionStatus::Idle
    }

    /// What cancels this connection's statements.
    #[must_use]
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel.clone()
    }

    /// The settings. Those that a client is told of when they change are in [`Settings::take_changes`].
    pub fn settings(&mut self) -> &mut Settings {
        &mut self.settings
    }
}

const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Connection>();
};
