//! SQL over the `atrapos` transaction engine, as PostgreSQL speaks it: what a server puts behind its protocol.
//!
//! A [`SqlDatabase`] is one per process, a [`Connection`] one per client. A connection takes statements, by the simple and by
//! the extended protocol, plans them (`bind`, `plan`), and runs each on the worker that owns the data its plan names first
//! (`exec`). Answers go to a [`Sink`], rows as whole messages that were encoded on the worker.
//!
//! Owns: types and values with their formats, errors, binder, planner, executor, transactions of clients, virtual catalogs.
//! Never: opens a socket or knows the protocol's messages other than rows; changes a row other than by the engine.
//!
//! [Decision 83](../../../docs/decisions/0083-sql.md) says what a statement is made into and how an open transaction lives on
//! its home.

#![forbid(unsafe_code)]

mod access;
mod activity;
mod advisory;
mod aggregate;
mod bind;
mod cancel;
mod cast;
mod catalogs;
mod client;
mod connection;
mod copy;
mod counts;
mod database;
mod datetime;
mod ddl;
mod error;
mod exec;
mod explain;
mod expr;
mod format;
mod functions;
mod interval;
mod json;
mod kept;
mod lift;
mod load;
mod network;
mod numeric;
mod parse;
mod plan;
mod procedures;
mod record;
#[cfg(test)]
mod reference;
mod regex;
mod roles;
mod schema;
mod sequence;
mod sequences;
mod session;
mod settings;
mod sink;
mod transaction;
mod types;
mod value;

pub use cancel::{CancelHandle, CancelReason};
pub use connection::{
    Behind, ConnectOptions, Connection, PortalDescription, StatementDescription, TransactionStatus,
};
pub use database::{PasswordVerifier, SqlDatabase, SqlOptions};
pub use error::{Severity, SqlError, SqlErrorFields, SqlState};
pub use format::{Format, decode, encode, parse, text_of};
pub use interval::Interval;
pub use network::Network;
pub use numeric::Numeric;
pub use procedures::SqlProcedures;
pub use record::Record;
pub use settings::{SERVER_VERSION, Settings, TimeLimits};
pub use sink::{Column, Sink, SinkFuture};
pub use types::{Modifier, SqlType, format_type};
pub use value::Value;
