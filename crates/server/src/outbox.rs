//! The answers of statements, as messages of the protocol.
//!
//! Owns: which message an answer becomes, and the client's part of a COPY. Never: decides when an answer is due.
//!
//! # Invariants
//! - What is appended here is sent when the buffer is full and the connection asks for room ([`Sink::ready`]), or by the session.
//! - Nothing behind the place of an answer that is deferred is sent before that answer.

use std::mem;
use std::time::Duration;

use atrapos_sql::{Column, Connection, Format, Sink, SinkFuture, SqlError, SqlState};

use smallvec::SmallVec;

use crate::errors::{self, fatal};
use crate::protocol::backend;
use crate::protocol::frontend::{Bind, Frontend, Target};
use crate::slow_log::SlowStatements;
use crate::stream::{Broken, Channel};

/// The type of a CopyData message.
const COPY_DATA: u8 = b'd';

/// The state that a session and the answers of its statements share.
#[derive(Debug)]
pub(crate) struct Outbox {
    pub(crate) channel: Channel,
    /// True if the connection has failed: nothing more can be said on it.
    pub(crate) broken: bool,
    pub(crate) slow: Option<SlowStatements>,
    /// Set if statements that were deferred have run, and were told of to the log of slow ones.
    pub(crate) has_run_deferred: bool,
    deferred: Deferred,
}

/// Places of answers that are deferred.
#[derive(Debug, Default)]
struct Deferred {
    /// Positions of the answers: in the buffer of the connection or, once the first one comes, in `held`.
    places: Vec<usize>,
    /// The number of places that are filled.
    filled: usize,
    /// The messages behind the first place.
    held: Vec<u8>,
}

impl Outbox {
    pub(crate) fn new(channel: Channel, slow: Option<SlowStatements>) -> Outbox {
        Outbox { channel, broken: false, slow, has_run_deferred: false, deferred: Deferred::default() }
    }

    /// Sends all there is. No answer is deferred.
    pub(crate) async fn send(&mut self) -> Result<(), SqlError> {
        let sent = self.channel.send().await;
        sent.map_err(|error| self.lost(&error))
    }

    /// Appends an error.
    pub(crate) fn error(&mut self, error: &SqlError) {
        errors::write(self.channel.out(), error);
    }

    /// Answers the messages that have arrived as far as that needs no waiting, and none of them is wrong: those of a pipeline whose
    /// statements wait for each other. Returns true if there were any. What is left is answered as other messages are.
    pub(crate) fn answer_at_once(&mut self, sql: &mut Connection) -> bool {
        let mut has_any = false;
        while !self.channel.is_full() {
            let (out, first) = self.channel.first_message();
            let Some(first) = first.filter(|first| matches!(first.tag, b'P' | b'B' | b'D' | b'E')) else {
                break;
            };
            let is_answered = match Frontend::read(first.tag, first.body) {
                Ok(Frontend::Parse { name: "", text, types }) => {
                    let is_parsed = sql.parse_at_once(text, &types);
                    if is_parsed {
                        backend::bare(out, b'1');
                    }
                    is_parsed
                }
                Ok(Frontend::Bind(bind)) => bind.portal.is_empty() && bind_at_once(sql, &bind, out),
                Ok(Frontend::Describe(Target::Portal, name)) => {
                    let described = sql.describe_portal(name);
                    described.map(|portal| result_description(out, portal.columns, portal.formats)).is_ok()
                }
                Ok(Frontend::Execute { portal: "", limit: 0 }) => {
                    let waits = first.behind.is_some() && sql.defer_at_once();
                    if waits {
                        self.deferred.places.push(out.len());
                    }
                    waits
                }
                _ => false,
            };
            if !is_answered {
                break;
            }
            let length = first.body.len();
            self.channel.skip(length);
            has_any = true;
        }
        has_any
    }

    /// Returns true if the next message can be answered while statements wait: it runs with them, or runs nothing and has no effect that
    /// an error of one of them would have to undo.
    pub(crate) fn next_joins(&mut self, sql: &Connection) -> bool {
        let (_, first) = self.channel.first_message();
        first.is_some_and(|first| match Frontend::read(first.tag, first.body) {
            Ok(Frontend::Sync | Frontend::Describe(..)) => true,
            Ok(Frontend::Parse { name, .. }) => name.is_empty(),
            Ok(Frontend::Bind(bind)) => bind.portal.is_empty(),
            Ok(Frontend::Execute { portal, limit }) => sql.may_wait(portal, limit as usize),
            _ => false,
        })
    }

    fn lost(&mut self, error: &dyn std::fmt::Display) -> SqlError {
        self.broken = true;
        fatal(errors::CONNECTION_FAILURE, format!("the connection to the client is lost: {error}"))
    }

    /// Takes the next piece of what a client copies in.
    async fn next_piece(&mut self) -> Result<Option<Vec<u8>>, SqlError> {
        self.send().await?;
        let mut body = Vec::new();
        loop {
            let tag = match self.channel.message(&mut body).await {
                Ok(Some(tag)) => tag,
                Ok(None) => return Err(self.lost(&"it ended during COPY")),
                Err(broken @ Broken::Socket(_)) => return Err(self.lost(&broken)),
                Err(broken @ Broken::Length(_)) => {
                    let error = fatal(SqlState::PROTOCOL_VIOLATION, broken.to_string());
                    self.error(&error);
                    let _ = self.channel.send().await;
                    self.broken = true;
                    return Err(error);
                }
            };
            if tag == COPY_DATA {
                // All of the body is data: it is handed on without a copy.
                return Ok(Some(body));
            }
            match Frontend::read(tag, &body) {
                Ok(Frontend::CopyDone) => return Ok(None),
                Ok(Frontend::CopyFail(why)) => {
                    let why = format!("COPY from stdin failed: {why}");
                    return Err(SqlError::new(SqlState::QUERY_CANCELED, why));
                }
                // Clients of the extended protocol send them without knowing that a COPY is what they run.
                Ok(Frontend::Flush | Frontend::Sync) => {}
                Ok(Frontend::Terminate) => return Err(self.lost(&"it ended during COPY")),
                Ok(_) => {
                    let why = format!("unexpected message type 0x{tag:02X} during COPY from stdin");
                    return Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, why));
                }
                Err(error) => return Err(errors::malformed(&error)),
            }
        }
    }
}

fn bind_at_once(sql: &mut Connection, bind: &Bind<'_>, out: &mut Vec<u8>) -> bool {
    let (Ok(parameters), Ok(results)) = (formats(&bind.parameter_formats), formats(&bind.result_formats))
    else {
        return false;
    };
    let is_bound = sql.bind_at_once(bind.statement, &bind.parameters, &parameters, &results);
    if is_bound {
        backend::bare(out, b'2');
    }
    is_bound
}

/// Reads the codes of formats.
pub(crate) fn formats(codes: &[i16]) -> Result<SmallVec<[Format; 8]>, SqlError> {
    codes.iter().map(|&code| Format::from_code(code)).collect()
}

/// Appends the description of what a statement or a portal returns.
pub(crate) fn result_description(out: &mut Vec<u8>, columns: Option<&[Column]>, formats: &[Format]) {
    match columns {
        Some(columns) => row_description(out, columns, formats),
        None => backend::bare(out, b'n'),
    }
}

/// Appends the description of a result's columns.
fn row_description(out: &mut Vec<u8>, columns: &[Column], formats: &[Format]) {
    backend::message(out, b'T', |body| {
        backend::count(body, columns.len());
        for (at, column) in columns.iter().enumerate() {
            backend::string(body, &column.name);
            body.extend_from_slice(&column.table.to_be_bytes());
            body.extend_from_slice(&column.number.to_be_bytes());
            body.extend_from_slice(&column.ty.oid().to_be_bytes());
            body.extend_from_slice(&column.ty.size().to_be_bytes());
            body.extend_from_slice(&column.modifier.code().to_be_bytes());
            body.extend_from_slice(&Format::of(formats, at).code().to_be_bytes());
        }
    });
}

/// Appends the beginning of a COPY: its direction is the message's type.
fn copy_response(out: &mut Vec<u8>, tag: u8, format: Format, columns: usize) {
    backend::message(out, tag, |body| {
        body.push(u8::from(format == Format::Binary));
        backend::count(body, columns);
        for _ in 0..columns {
            body.extend_from_slice(&format.code().to_be_bytes());
        }
    });
}

impl Sink for Outbox {
    fn row_description(&mut self, columns: &[Column]) {
        row_description(self.channel.out(), columns, &[]);
    }

    fn rows(&mut self, messages: &[u8], _count: usize) {
        self.channel.out().extend_from_slice(messages);
    }

    fn complete(&mut self, tag: &str) {
        backend::command_complete(self.channel.out(), tag);
    }

    fn empty_query(&mut self) {
        backend::bare(self.channel.out(), b'I');
    }

    fn notice(&mut self, notice: &SqlError) {
        errors::write(self.channel.out(), notice);
    }

    fn portal_suspended(&mut self) {
        backend::bare(self.channel.out(), b's');
    }

    fn copy_out_begin(&mut self, format: Format, columns: usize) {
        copy_response(self.channel.out(), b'H', format, columns);
    }

    fn copy_out(&mut self, messages: &[u8]) {
        self.channel.out().extend_from_slice(messages);
    }

    fn copy_out_end(&mut self) {
        backend::bare(self.channel.out(), b'c');
    }

    fn copy_in_begin(&mut self, format: Format, columns: usize) {
        copy_response(self.channel.out(), b'G', format, columns);
    }

    fn copy_data(&mut self) -> SinkFuture<'_, Option<Vec<u8>>> {
        Box::pin(self.next_piece())
    }

    fn defer(&mut self) {
        self.deferred.places.push(self.channel.out().len());
    }

    fn next_deferred(&mut self) {
        let Deferred { places, filled, held } = &mut self.deferred;
        let out = self.channel.out();
        let Some(&place) = places.get(*filled) else { return };
        match filled.checked_sub(1).and_then(|before| places.get(before)) {
            None => {
                held.extend_from_slice(&out[place..]);
                out.truncate(place);
                places.iter_mut().for_each(|other| *other -= place);
            }
            Some(&before) => out.extend_from_slice(&held[before..place]),
        }
        *filled += 1;
    }

    fn end_deferred(&mut self, keeps: bool) {
        let Deferred { places, filled, held } = mem::take(&mut self.deferred);
        if keeps && let Some(&last) = filled.checked_sub(1).and_then(|last| places.get(last)) {
            self.channel.out().extend_from_slice(&held[last..]);
        }
    }

    fn ran(&mut self, text: &str, took: Duration) {
        self.has_run_deferred = true;
        if let Some(slow) = &self.slow {
            slow.tell(text, took);
        }
    }

    fn ready(&mut self) -> SinkFuture<'_, ()> {
        Box::pin(async { if self.channel.is_full() { self.send().await } else { Ok(()) } })
    }
}
