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

/// A statement that is measured.
pub(crate) struct Watched {
    log: SlowLog,
    began: Instant,
    process: i32,
    user: String,
    text: String,
}

impl SlowLog {
    /// Begins to measure a statement.
    pub(crate) fn begin(&self, sql: &Connection, text: &str) -> Watched {
        let mut end = text.len().min(MOST_TEXT);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        Watched {
            log: self.clone(),
            began: Instant::now(),
            process: sql.process_id(),
            user: sql.user().to_owned(),
            text: text[..end].to_owned(),
        }
    }
}

impl Watched {
    /// Ends to measure: tells of the statement if it was slow.
    pub(crate) fn end(self) {
        let took = self.began.elapsed();
        if took < self.log.limit {
            return;
        }
        // One line: whatever ends lines in the text is a space here.
        let text: String = self.text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let milliseconds = took.as_secs_f64() * 1e3;
        (self.log.sink)(&format!(
            "slow statement: duration={milliseconds:.3}ms process={} user={} statement={text}",
            self.process, self.user
        ));
    }
}
