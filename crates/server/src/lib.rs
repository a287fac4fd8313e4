//! A server that speaks the protocol of PostgreSQL (versions 3.0 to 3.2), so that its clients work as they are: psql, drivers, load
//! generators.
//!
//! A [`Server`] takes connections on threads of its own (tokio's), has clients log in, and hands what they send to a
//! [`Connection`](atrapos_sql::Connection) of the SQL crate, which runs it on the workers of the database. Answers come back as whole
//! messages that were encoded on the worker. A session without TLS goes on beside a worker, on its thread ([`WorkerThreads`]).
//!
//! Owns: sockets, encryption, authentication, messages and their order, cancellation, the end. Never: knows what a statement does,
//! or holds a row.
//!
//! [Decision 84](../../../docs/decisions/0084-the-protocol-of-postgresql.md) has the choices.

#![forbid(unsafe_code)]

mod admission;
mod auth;
mod client;
mod counters;
mod errors;
mod handshake;
mod http;
mod latency;
mod limits;
mod listener;
mod metrics;
mod outbox;
mod protocol;
mod server;
mod session;
mod sessions;
mod shutdown;
mod slow_log;
mod stream;
mod tls;
mod unix;
mod worker_threads;

pub use auth::passwords::{generate_password, password_verifier};
pub use client::{Client, ClientError, Event};
pub use server::{Server, ServerError, ServerOptions};
pub use slow_log::{SlowLog, SlowSink};
pub use tls::TlsError;
pub use worker_threads::WorkerThreads;
