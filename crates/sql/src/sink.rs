//! Where the answers of statements go: the server's side of a connection.
//!
//! Owns: the order in which a [`Sink`] is called. Never: writes to a socket.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::error::SqlError;
use crate::format::Format;
use crate::types::{Modifier, SqlType};

/// A column of an answer, as a RowDescription tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// The number of the table it is of; 0 if it is computed.
    pub table: u32,
    /// Its number in that table; 0 if it is computed.
    pub number: i16,
    /// The type of its values.
    pub ty: SqlType,
    /// What narrows the type down.
    pub modifier: Modifier,
}

/// A future of a sink, in a box: sinks are used by reference.
pub type SinkFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, SqlError>> + Send + 'a>>;

/// Receives the answers of statements, in the order in which a client shall have them. An error is not told to a sink: the
/// method of the connection returns it.
///
/// A statement that returns rows calls [`row_description`](Sink::row_description) first (with the simple protocol alone), then
/// [`rows`](Sink::rows) any number of times, then [`complete`](Sink::complete), or [`portal_suspended`](Sink::portal_suspended)
/// when the limit of rows was reached.
pub trait Sink: Send {
    /// The columns of the rows that follow.
    fn row_description(&mut self, columns: &[Column]);

    /// Whole DataRow messages, `count` of them one after the other: each is the byte `D`, its length in four bytes and its body.
    fn rows(&mut self, messages: &[u8], count: usize);

    /// A statement has ended with this command tag.
    fn complete(&mut self, tag: &str);

    /// The statement was empty.
    fn empty_query(&mut self);

    /// Something is worth a notice.
    fn notice(&mut self, notice: &SqlError);

    /// The portal has more rows than were asked for.
    fn portal_suspended(&mut self);

    /// Rows of a COPY TO STDOUT follow, of so many columns in this format.
    fn copy_out_begin(&mut self, format: Format, columns: usize);

    /// Whole CopyData messages, one after the other: each is the byte `d`, its length in four bytes and its body.
    fn copy_out(&mut self, messages: &[u8]);

    /// The rows of a COPY TO STDOUT have ended: a CopyDone.
    fn copy_out_end(&mut self);

    /// The server shall ask its client for the data of a COPY FROM STDIN, of so many columns in this format, and flush that.
    /// [`copy_data`](Sink::copy_data) is called from then on until it has no more.
    fn copy_in_begin(&mut self, format: Format, columns: usize);

    /// The next piece of the data that the client sends (the body of a CopyData), `None` when it has ended (CopyDone), and an error
    /// when the client has given up (CopyFail, with [`QUERY_CANCELED`](crate::SqlState::QUERY_CANCELED)) or is gone.
    ///
    /// After an error of the statement itself no more is asked for: the server skips what the client still sends.
    fn copy_data(&mut self) -> SinkFuture<'_, Option<Vec<u8>>>;

    /// The answer of a statement comes here, but later: what is told to the client until [`next_deferred`](Sink::next_deferred) belongs
    /// behind it.
    fn defer(&mut self);

    /// What follows belongs in the first place that was kept by [`defer`](Sink::defer) and not filled yet.
    fn next_deferred(&mut self);

    /// What follows belongs behind all there is; what was told behind the place that was filled last stays only if `keeps`.
    fn end_deferred(&mut self, keeps: bool);

    /// A statement whose answer was deferred has run for so long.
    fn ran(&mut self, text: &str, took: Duration);

    /// Waits until the sink has room for more. It is called between pieces of a large answer.
    fn ready(&mut self) -> SinkFuture<'_, ()>;
}
