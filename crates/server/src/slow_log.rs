//! The log of statements that took long.
//!
//! Owns: measuring statements, and the line that tells of a slow one. Never: writes a parameter: they are data.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use atrapos_sql::Connection;

/// The most bytes of a statement in a line.
const MOST_TEXT: usize = 1000;

/// Receives the lines of slow statements, without their ends.
pub type SlowSink = Arc<dyn Fn(&str) + Send + Sync>;

/// A log of slow statements.
#[derive(Clone)]
pub struct SlowLog {
    /// The time from which on a statement is slow.
    pub limit: Duration,
    /// Receives the lines, on a thread that shall not wait.
    pub sink: SlowSink,
}

impl fmt::Debug for SlowLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlowLog").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// The log of the slow statements of one connection.
#[derive(Debug)]
pub(crate) struct SlowStatements {
    log: SlowLog,
    process: i32,
    user: String,
}

/// A statement that is measured.
#[derive(Debug)]
pub(crate) struct Watched {
    began: Instant,
    text: String,
}

impl SlowStatements {
    pub(crate) fn new(log: SlowLog, sql: &Connection) -> SlowStatements {
        SlowStatements { log, process: sql.process_id(), user: sql.user().to_owned() }
    }

    /// Begins to measure a statement.
    pub(crate) fn begin(&self, text: &str) -> Watched {
        Watched { began: Instant::now(), text: shortened(text).to_owned() }
    }

    /// Ends to measure a statement.
    pub(crate) fn end(&self, watched: &Watched) {
        self.tell(&watched.text, watched.began.elapsed());
    }

    /// Tells of a statement if it was slow.
    pub(crate) fn tell(&self, text: &str, took: Duration) {
        if took < self.log.limit {
            return;
        }
        // One line: whatever ends lines in the text is a space here.
        let text: String = shortened(text).chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let milliseconds = took.as_secs_f64() * 1e3;
        (self.log.sink)(&format!(
            "slow statement: duration={milliseconds:.3}ms process={} user={} statement={text}",
            self.process, self.user
        ));
    }
}

fn shortened(text: &str) -> &str {
    let mut end = text.len().min(MOST_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
