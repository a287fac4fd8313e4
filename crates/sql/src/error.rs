//! Errors of statements, as a client is told of them: with a SQLSTATE, and the things they are about by name.
//!
//! Owns: the list of states that are used ([`SqlState`]), and how an abort of the engine becomes an error. Never: decides
//! whether a transaction is run again (`connection` does).

use atrapos::{Abort, AbortReason};

/// The five characters by which programs tell errors apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SqlState(pub &'static str);

macro_rules! states {
    ($($(#[$meta:meta])* $name:ident = $code:literal;)+) => {
        impl SqlState {
            $($(#[$meta])* pub const $name: SqlState = SqlState($code);)+
        }
    };
}

states! {
    /// Something is worth a notice, and no error.
    SUCCESSFUL_COMPLETION = "00000";
    /// Something happened that the client may not have meant.
    WARNING = "01000";
    /// The client has broken the protocol.
    PROTOCOL_VIOLATION = "08P01";
    /// It is not known whether a transaction survives.
    TRANSACTION_RESOLUTION_UNKNOWN = "08007";
    /// The statement asks for what this server does not do.
    FEATURE_NOT_SUPPORTED = "0A000";
    /// A subquery that stands for one value has returned more rows than one.
    CARDINALITY_VIOLATION = "21000";
    /// A text is longer than its column.
    STRING_DATA_RIGHT_TRUNCATION = "22001";
    /// A number is beyond the range of its type.
    NUMERIC_VALUE_OUT_OF_RANGE = "22003";
    /// A date or time has a wrong form.
    INVALID_DATETIME_FORMAT = "22007";
    /// A date or time is beyond the range of its type.
    DATETIME_FIELD_OVERFLOW = "22008";
    /// A number is divided by zero.
    DIVISION_BY_ZERO = "22012";
    /// An escape of a pattern stands at its end.
    INVALID_ESCAPE_SEQUENCE = "22025";
    /// A regular expression is none, or has what is not supported.
    INVALID_REGULAR_EXPRESSION = "2201B";
    /// A limit is negative.
    INVALID_ROW_COUNT_IN_LIMIT_CLAUSE = "2201W";
    /// An offset is negative.
    INVALID_ROW_COUNT_IN_OFFSET_CLAUSE = "2201X";
    /// A function was given what it does not take.
    INVALID_PARAMETER_VALUE = "22023";
    /// A text has bytes that are no characters.
    CHARACTER_NOT_IN_REPERTOIRE = "22021";
    /// The bytes of a parameter are no value of its type.
    INVALID_BINARY_REPRESENTATION = "22P03";
    /// A text is no value of its type.
    INVALID_TEXT_REPRESENTATION = "22P02";
    /// A line of a COPY has a wrong form.
    BAD_COPY_FILE_FORMAT = "22P04";
    /// A column that is NOT NULL would be NULL.
    NOT_NULL_VIOLATION = "23502";
    /// A row refers to one that does not exist, or is referred to.
    FOREIGN_KEY_VIOLATION = "23503";
    /// Two rows would have the same key.
    UNIQUE_VIOLATION = "23505";
    /// A row does not meet a condition of its table.
    CHECK_VIOLATION = "23514";
    /// A statement that stands alone only was given inside a transaction.
    ACTIVE_SQL_TRANSACTION = "25001";
    /// A statement that needs a transaction was given outside of one.
    NO_ACTIVE_SQL_TRANSACTION = "25P01";
    /// The transaction has failed, and takes nothing but its end.
    IN_FAILED_SQL_TRANSACTION = "25P02";
    /// A transaction that only reads was asked to write.
    READ_ONLY_SQL_TRANSACTION = "25006";
    /// A prepared statement does not exist.
    INVALID_SQL_STATEMENT_NAME = "26000";
    /// Something depends on what was to be dropped.
    DEPENDENT_OBJECTS_STILL_EXIST = "2BP01";
    /// A portal does not exist.
    INVALID_CURSOR_NAME = "34000";
    /// A savepoint does not exist.
    INVALID_SAVEPOINT = "3B001";
    /// The transaction has to be run again.
    SERIALIZATION_FAILURE = "40001";
    /// The user may not log in.
    INVALID_AUTHORIZATION = "28000";
    /// A membership of roles would be a circle.
    INVALID_GRANT_OPERATION = "0LP01";
    /// Privileges were not granted, as the user may not.
    PRIVILEGE_NOT_GRANTED = "01007";
    /// Privileges were not revoked, as the user may not.
    PRIVILEGE_NOT_REVOKED = "01006";
    /// An object that is to be dropped is in use.
    OBJECT_IN_USE = "55006";
    /// The name is one of the database's own.
    RESERVED_NAME = "42939";
    /// The user may not do it.
    INSUFFICIENT_PRIVILEGE = "42501";
    /// The statement is no statement.
    SYNTAX_ERROR = "42601";
    /// A name is longer than names are.
    NAME_TOO_LONG = "42622";
    /// A column is named twice.
    DUPLICATE_COLUMN = "42701";
    /// A name may stand for several columns.
    AMBIGUOUS_COLUMN = "42702";
    /// There is no such column.
    UNDEFINED_COLUMN = "42703";
    /// There is no such setting, constraint or type.
    UNDEFINED_OBJECT = "42704";
    /// A setting, constraint or type exists already.
    DUPLICATE_OBJECT = "42710";
    /// A name stands for two tables of one statement.
    DUPLICATE_ALIAS = "42712";
    /// A column has to be grouped, or an aggregate stands where none may.
    GROUPING_ERROR = "42803";
    /// A value is of another type than its place.
    DATATYPE_MISMATCH = "42804";
    /// The object is of another kind, an index say and no table.
    WRONG_OBJECT_TYPE = "42809";
    /// A reference of a foreign key is none.
    INVALID_FOREIGN_KEY = "42830";
    /// Values of one type do not become values of another.
    CANNOT_COERCE = "42846";
    /// There is no such function or operator.
    UNDEFINED_FUNCTION = "42883";
    /// A procedure has given up for a reason of its own.
    RAISE_EXCEPTION = "P0001";
    /// Several procedures have the name.
    AMBIGUOUS_FUNCTION = "42725";
    /// The schema does not exist.
    INVALID_SCHEMA_NAME = "3F000";
    /// The definition of a table contradicts itself.
    INVALID_TABLE_DEFINITION = "42P16";
    /// There is no such table.
    UNDEFINED_TABLE = "42P01";
    /// There is no such parameter.
    UNDEFINED_PARAMETER = "42P02";
    /// A portal exists already.
    DUPLICATE_CURSOR = "42P03";
    /// A prepared statement exists already.
    DUPLICATE_PREPARED_STATEMENT = "42P05";
    /// A table exists already.
    DUPLICATE_TABLE = "42P07";
    /// A column is referred to where it is not known.
    INVALID_COLUMN_REFERENCE = "42P10";
    /// The type of a parameter does not follow from its context.
    INDETERMINATE_DATATYPE = "42P18";
    /// A value of the session does not exist yet.
    OBJECT_NOT_IN_PREREQUISITE_STATE = "55000";
    /// A transaction was open for too long without a statement.
    IDLE_IN_TRANSACTION_SESSION_TIMEOUT = "25P03";
    /// A setting stays as it is.
    CANT_CHANGE_RUNTIME_PARAM = "55P02";
    /// A lock of others did not become free in time.
    LOCK_NOT_AVAILABLE = "55P03";
    /// Memory is used up.
    OUT_OF_MEMORY = "53200";
    /// Too many clients.
    TOO_MANY_CONNECTIONS = "53300";
    /// A transaction has more changes than the database was set to allow.
    CONFIGURATION_LIMIT_EXCEEDED = "53400";
    /// A statement or row is larger than they may be.
    PROGRAM_LIMIT_EXCEEDED = "54000";
    /// A statement is nested too deeply.
    STATEMENT_TOO_COMPLEX = "54001";
    /// A client has asked for the end of the statement.
    QUERY_CANCELED = "57014";
    /// The server ends.
    ADMIN_SHUTDOWN = "57P01";
    /// Something is wrong with the server itself.
    INTERNAL_ERROR = "XX000";
    /// Stored data is not what it was.
    DATA_CORRUPTED = "XX001";
}

/// The detail of an error that a statement has met because the definition of its table has changed since it was planned.
pub(crate) const TABLE_CHANGED: &str = "The definition of a table has changed meanwhile.";

/// The word before a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The statement has failed.
    Error,
    /// The connection has to end.
    Fatal,
    /// Nothing has failed; the client may not have meant it.
    Warning,
    /// Nothing has failed.
    Notice,
}

impl Severity {
    /// The word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Severity::Error => "ERROR",
            Severity::Fatal => "FATAL",
            Severity::Warning => "WARNING",
            Severity::Notice => "NOTICE",
        }
    }
}

/// An error or a notice, with the fields of PostgreSQL's ErrorResponse and NoticeResponse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlError(pub Box<SqlErrorFields>);

/// The fields of a [`SqlError`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlErrorFields {
    /// The word before the message.
    pub severity: Severity,
    /// The state.
    pub code: SqlState,
    /// The message: one line.
    pub message: String,
    /// More about it.
    pub detail: Option<String>,
    /// The hint: a cure for the error.
    pub hint: Option<String>,
    /// The place at which it came up, as in the data of a COPY.
    pub context: Option<String>,
    /// The character of the statement that it is about, from 1.
    pub position: Option<u32>,
    /// The table it is about.
    pub table: Option<String>,
    /// The column it is about.
    pub column: Option<String>,
    /// The constraint that is violated.
    pub constraint: Option<String>,
    /// The type it is about.
    pub data_type: Option<String>,
}

impl std::ops::Deref for SqlError {
    type Target = SqlErrorFields;

    fn deref(&self) -> &SqlErrorFields {
        &self.0
    }
}

impl std::fmt::Display for SqlError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} ({})", self.severity.word(), self.message, self.code.0)
    }
}

impl std::error::Error for SqlError {}

impl SqlError {
    /// An error with a state and a message.
    #[cold]
    pub fn new(code: SqlState, message: impl Into<String>) -> SqlError {
        SqlError(Box::new(SqlErrorFields {
            severity: Severity::Error,
            code,
            message: message.into(),
            detail: None,
            hint: None,
            context: None,
            position: None,
            table: None,
            column: None,
            constraint: None,
            data_type: None,
        }))
    }

    /// The refusal of what this server does not do.
    #[cold]
    pub fn unsupported(what: impl std::fmt::Display) -> SqlError {
        SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, format!("{what} is not supported"))
    }

    /// The same, with another severity.
    #[must_use]
    pub fn severity(mut self, severity: Severity) -> SqlError {
        self.0.severity = severity;
        self
    }

    /// The same, with a detail.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> SqlError {
        self.0.detail = Some(detail.into());
        self
    }

    /// The same, with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> SqlError {
        self.0.hint = Some(hint.into());
        self
    }

    /// The same, with the place at which it came up.
    #[must_use]
    pub fn context(mut self, context: impl Into<String>) -> SqlError {
        self.0.context = Some(context.into());
        self
    }

    /// The same, about a character of the statement, counted from 1.
    #[must_use]
    pub fn at(mut self, position: Option<u32>) -> SqlError {
        self.0.position = self.0.position.or(position);
        self
    }

    /// The same, about a table.
    #[must_use]
    pub fn table(mut self, table: impl Into<String>) -> SqlError {
        self.0.table = Some(table.into());
        self
    }

    /// The same, about a column.
    #[must_use]
    pub fn column(mut self, column: impl Into<String>) -> SqlError {
        self.0.column = Some(column.into());
        self
    }

    /// The same, about a constraint.
    #[must_use]
    pub fn constraint(mut self, constraint: impl Into<String>) -> SqlError {
        self.0.constraint = Some(constraint.into());
        self
    }

    /// The error that an abort of the engine becomes when nothing more is known of it.
    #[cold]
    #[must_use]
    pub fn of_abort(abort: &Abort) -> SqlError {
        let state = match abort.reason() {
            AbortReason::DuplicateKey => SqlState::UNIQUE_VIOLATION,
            AbortReason::ForeignKey => SqlState::FOREIGN_KEY_VIOLATION,
            AbortReason::Deadlock | AbortReason::Validation | AbortReason::TableChanged => {
                SqlState::SERIALIZATION_FAILURE
            }
            AbortReason::KeyTooLarge | AbortReason::RowTooLarge => SqlState::PROGRAM_LIMIT_EXCEEDED,
            AbortReason::TransactionTooLarge => SqlState::CONFIGURATION_LIMIT_EXCEEDED,
            AbortReason::OutOfMemory | AbortReason::Overloaded => SqlState::OUT_OF_MEMORY,
            AbortReason::UnknownTable => SqlState::UNDEFINED_TABLE,
            AbortReason::Corruption => SqlState::DATA_CORRUPTED,
            AbortReason::ShuttingDown => SqlState::ADMIN_SHUTDOWN,
            AbortReason::NotDurable | AbortReason::OutcomeUnknown => SqlState::TRANSACTION_RESOLUTION_UNKNOWN,
            AbortReason::InvalidValue => SqlState::INVALID_PARAMETER_VALUE,
            AbortReason::User | AbortReason::Panic | AbortReason::Misuse | AbortReason::Unreachable => {
                SqlState::INTERNAL_ERROR
            }
        };
        let error = SqlError::new(state, abort.detail());
        match abort.reason() {
            AbortReason::Deadlock => SqlError::new(
                state,
                "could not serialize access: the transaction and others waited for each other",
            )
            .detail(abort.detail())
            .hint("The transaction might succeed if retried."),
            AbortReason::TableChanged => {
                error.detail(TABLE_CHANGED).hint("The transaction might succeed if retried.")
            }
            AbortReason::TransactionTooLarge => error.hint(
                "Make it several transactions; load much data by several COPY, each in one of its own.",
            ),
            AbortReason::ShuttingDown => error.severity(Severity::Fatal),
            _ => error,
        }
    }
}
