//! A client for tests: a sink that keeps what it is given, and answers as texts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use atrapos::{Database, Schema};
use atrapos_sql::{
    Column, ConnectOptions, Connection, Format, Sink, SinkFuture, SqlDatabase, SqlError, SqlOptions, SqlState,
};

/// The settings of a database of tests: the user of its clients is the superuser, and a verifier is the password with a mark.
pub(crate) fn options() -> SqlOptions {
    SqlOptions {
        superuser: "ann".to_owned(),
        password_verifier: Some(|password| Ok(format!("verifier of {password}"))),
        ..SqlOptions::default()
    }
}

/// A database in memory with so many workers.
pub(crate) fn database(workers: usize) -> Arc<SqlDatabase> {
    let database =
        Database::builder(Schema::new()).workers(workers).pin(false).in_memory().expect("it opens");
    SqlDatabase::open(database, options()).expect("SQL opens")
}

/// Keeps what a connection tells.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) lines: Vec<String>,
    pub(crate) columns: Vec<Column>,
    pub(crate) copied: Vec<u8>,
    pub(crate) raw: Vec<u8>,
    pub(crate) data: VecDeque<Vec<u8>>,
    /// The places of answers that are deferred, and how many are filled.
    pub(crate) places: Vec<usize>,
    pub(crate) filled: usize,
}

impl Kept {
    fn push_row(&mut self, body: &[u8]) {
        let mut rest = &body[2..];
        let mut fields = Vec::new();
        while !rest.is_empty() {
            let length = i32::from_be_bytes(rest[..4].try_into().expect("four bytes"));
            rest = &rest[4..];
            if length < 0 {
                fields.push("NULL".to_owned());
                continue;
            }
            let (field, behind) = rest.split_at(length as usize);
            fields.push(String::from_utf8_lossy(field).into_owned());
            rest = behind;
        }
        self.lines.push(fields.join("|"));
    }
}

/// Splits whole messages into their bodies.
pub(crate) fn bodies(mut messages: &[u8]) -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    while !messages.is_empty() {
        let length = u32::from_be_bytes(messages[1..5].try_into().expect("four bytes")) as usize;
        bodies.push(messages[5..=length].to_vec());
        messages = &messages[length + 1..];
    }
    bodies
}

impl Sink for Kept {
    fn row_description(&mut self, columns: &[Column]) {
        self.columns = columns.to_vec();
        let names: Vec<&str> = columns.iter().map(|column| &*column.name).collect();
        self.lines.push(format!("[{}]", names.join("|")));
    }

    fn rows(&mut self, messages: &[u8], count: usize) {
        let found = bodies(messages);
        assert_eq!(found.len(), count, "as many rows as were told");
        self.raw.extend_from_slice(messages);
        found.iter().for_each(|body| self.push_row(body));
    }

    fn complete(&mut self, tag: &str) {
        self.lines.push(tag.to_owned());
    }

    fn empty_query(&mut self) {
        self.lines.push("(empty)".to_owned());
    }

    fn notice(&mut self, notice: &SqlError) {
        self.lines.push(format!("{}: {}", notice.severity.word(), notice.message));
    }

    fn portal_suspended(&mut self) {
        self.lines.push("(suspended)".to_owned());
    }

    fn copy_out_begin(&mut self, _: Format, _: usize) {}

    fn copy_out(&mut self, messages: &[u8]) {
        bodies(messages).iter().for_each(|body| self.copied.extend_from_slice(body));
    }

    fn copy_out_end(&mut self) {}

    fn copy_in_begin(&mut self, _: Format, _: usize) {}

    fn copy_data(&mut self) -> SinkFuture<'_, Option<Vec<u8>>> {
        let next = self.data.pop_front();
        Box::pin(async move {
            if next.as_deref() == Some(b"FAIL") {
                return Err(SqlError::new(SqlState::QUERY_CANCELED, "COPY from stdin failed"));
            }
            Ok(next)
        })
    }

    fn defer(&mut self) {
        self.places.push(self.lines.len());
    }

    fn next_deferred(&mut self) {
        self.filled += 1;
        assert!(self.filled <= self.places.len(), "the place of an answer was kept");
    }

    fn end_deferred(&mut self, _: bool) {
        self.places.clear();
        self.filled = 0;
    }

    fn ran(&mut self, _: &str, _: Duration) {}

    fn ready(&mut self) -> SinkFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}

/// A client of a database.
pub(crate) struct Client {
    pub(crate) connection: Connection,
}

fn sendable<F: Future + Send>(future: F) -> F {
    future
}

impl Client {
    pub(crate) fn new(database: &Arc<SqlDatabase>) -> Client {
        Client::numbered(database, 1)
    }

    pub(crate) fn numbered(database: &Arc<SqlDatabase>, process_id: i32) -> Client {
        Client::of(database, "ann", process_id)
    }

    pub(crate) fn of(database: &Arc<SqlDatabase>, user: &str, process_id: i32) -> Client {
        let options = ConnectOptions { user: user.to_owned(), process_id, settings: Vec::new() };
        Client { connection: database.connect(options).expect("it connects") }
    }

    /// The answer to a simple query: a line for the names of columns, for each row and each tag; the error last.
    pub(crate) fn answer(&mut self, text: &str) -> String {
        let mut kept = Kept::default();
        self.answer_into(text, &mut kept)
    }

    pub(crate) fn answer_into(&mut self, text: &str, kept: &mut Kept) -> String {
        // Servers move the future between threads.
        let done = pollster::block_on(sendable(self.connection.simple(text, kept)));
        if let Err(error) = done {
            kept.lines.push(shown(&error));
        }
        std::mem::take(&mut kept.lines).join("\n")
    }

    /// The rows alone, of a statement that has to work.
    pub(crate) fn rows(&mut self, text: &str) -> String {
        let answer = self.answer(text);
        assert!(!answer.contains("ERROR"), "{text}: {answer}");
        let lines: Vec<&str> = answer.lines().collect();
        lines.get(1..lines.len().saturating_sub(1)).map(|rows| rows.join("\n")).unwrap_or_default()
    }

    /// Runs statements that have to work.
    pub(crate) fn run(&mut self, text: &str) {
        let answer = self.answer(text);
        assert!(!answer.contains("ERROR"), "{text}: {answer}");
    }

    /// The state and message of the error of a statement that has to fail.
    #[track_caller]
    pub(crate) fn fails(&mut self, text: &str, state: &str) {
        let answer = self.answer(text);
        assert!(answer.contains(&format!("ERROR {state}")), "{text}: {answer}");
    }
}

/// An error as a line.
pub(crate) fn shown(error: &SqlError) -> String {
    format!("ERROR {}: {}", error.code.0, error.message)
}

/// Checks a list of statements and their answers, each the rows separated by ` / `, or the error's state.
#[track_caller]
pub(crate) fn check(client: &mut Client, cases: &[(&str, &str)]) {
    for (statement, wanted) in cases {
        let answer = client.answer(statement);
        let lines: Vec<&str> = answer.lines().collect();
        let got = match lines.iter().find_map(|line| line.strip_prefix("ERROR ")) {
            Some(error) => error.split(':').next().unwrap_or("").to_owned(),
            None if lines.first().is_some_and(|line| line.starts_with('[')) => {
                lines[1..lines.len() - 1].join(" / ")
            }
            None => lines.join(" / "),
        };
        assert_eq!(got, *wanted, "{statement}\n{answer}");
    }
}
