//! Cursors: DECLARE, FETCH, MOVE and CLOSE.
//!
//! Owns: the answers of queries that cursors stand on, and their places in them. Never: runs a part of a query: a cursor's answer is
//! whole when it is declared, so that it moves backward as well as forward, and no change after the declaration is seen.
//!
//! Invariant: a place is 0 before the first row, the number of a row from 1, or one more than the number of rows behind the last.

use sqlparser::ast::{self, FetchDirection};

use super::running::{give, message_length};
use super::{Connection, Kind};
use crate::bind::ident;
use crate::error::{SqlError, SqlState};
use crate::sink::{Column, Sink};

/// A cursor.
#[derive(Debug)]
pub(super) struct Cursor {
    columns: Vec<Column>,
    messages: Vec<u8>,
    /// The beginning of each row's message, and the end of the last one.
    starts: Vec<usize>,
    place: usize,
    scrolls: bool,
    holds: bool,
    /// Set when the transaction that declared it has committed: it stays until it is closed.
    pub(super) is_kept: bool,
}

impl Cursor {
    fn rows(&self) -> usize {
        self.starts.len() - 1
    }

    /// Moves; returns the numbers of the rows that are passed, in their order.
    fn walk(&mut self, direction: &FetchDirection) -> Result<Vec<usize>, SqlError> {
        let rows = self.rows();
        let last = i64::try_from(rows).unwrap_or(i64::MAX);
        let place = i64::try_from(self.place).unwrap_or(i64::MAX);
        let one = |to: i64| {
            let to = to.clamp(0, last + 1);
            let found = if (1..=last).contains(&to) { vec![to as usize] } else { Vec::new() };
            (to, found)
        };
        let steps = |count: i64| match count {
            0 => one(place),
            1.. => {
                let to = place.saturating_add(count).min(last + 1);
                (to, (place + 1..=to.min(last)).map(|row| row as usize).collect())
            }
            _ => {
                let to = place.saturating_add(count).max(0);
                (to, (to.max(1)..place).rev().map(|row| row as usize).collect())
            }
        };
        let (to, passed) = match direction {
            FetchDirection::Next | FetchDirection::Forward { limit: None } => steps(1),
            FetchDirection::Prior | FetchDirection::Backward { limit: None } => steps(-1),
            FetchDirection::First => one(1),
            FetchDirection::Last => one(last),
            FetchDirection::Absolute { limit } => match number(limit)? {
                count if count < 0 => one(last + 1 + count),
                count => one(count),
            },
            FetchDirection::Relative { limit } => one(place.saturating_add(number(limit)?)),
            FetchDirection::Count { limit } | FetchDirection::Forward { limit: Some(limit) } => {
                steps(number(limit)?)
            }
            FetchDirection::Backward { limit: Some(limit) } => steps(number(limit)?.saturating_neg()),
            FetchDirection::All | FetchDirection::ForwardAll => steps(i64::MAX),
            FetchDirection::BackwardAll => steps(i64::MIN + 1),
        };
        let is_back = to < place || (to == place && matches!(direction, FetchDirection::Prior));
        if is_back && !self.scrolls {
            return Err(SqlError::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "cursor can only scan forward",
            )
            .hint("Declare it with SCROLL option to enable backward scan."));
        }
        self.place = usize::try_from(to).unwrap_or(0);
        Ok(passed)
    }
}

fn number(limit: &ast::ValueWithSpan) -> Result<i64, SqlError> {
    let text = limit.to_string();
    text.parse().map_err(|_| SqlError::new(SqlState::SYNTAX_ERROR, format!("{text} is no integer")))
}

#[cold]
fn no_cursor(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_CURSOR_NAME, format!("cursor \"{name}\" does not exist"))
}

impl Connection {
    pub(super) async fn declare(
        &mut self,
        statements: &[ast::Declare],
        text: &str,
        sink: &mut dyn Sink,
    ) -> Result<(), SqlError> {
        let [declare] = statements else { return Err(SqlError::unsupported("this DECLARE")) };
        let (Some(query), [name]) = (&declare.for_query, &declare.names[..]) else {
            return Err(SqlError::unsupported("this DECLARE"));
        };
        if declare.binary == Some(true) {
            return Err(SqlError::unsupported("a BINARY cursor"));
        }
        let (name, holds) = (ident(name), declare.hold == Some(true));
        if !holds && !matches!(self.kind, Kind::Explicit | Kind::Implicit) {
            return Err(SqlError::new(
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                "DECLARE CURSOR can only be used in transaction blocks",
            ));
        }
        if self.cursors.contains_key(&name) {
            return Err(SqlError::new(
                SqlState::DUPLICATE_CURSOR,
                format!("cursor \"{name}\" already exists"),
            ));
        }
        let statement = ast::Statement::Query(query.clone());
        let planned = self.plan(&statement, text, &[], false).await?;
        if !planned.types.is_empty() {
            return Err(SqlError::new(SqlState::UNDEFINED_PARAMETER, "there is no parameter $1"));
        }
        let answer = self.run(&planned, std::sync::Arc::from([]), std::sync::Arc::from([]), false).await?;
        let mut starts = vec![0];
        let mut end = 0;
        while end < answer.messages.len() {
            end += message_length(&answer.messages[end..]);
            starts.push(end);
        }
        let columns = planned.columns.as_ref().map_or_else(Vec::new, |columns| columns.to_vec());
        let (scrolls, place) = (declare.scroll != Some(false), 0);
        let messages = answer.messages;
        self.cursors
            .insert(name, Cursor { columns, messages, starts, place, scrolls, holds, is_kept: false });
        sink.complete("DECLARE CURSOR");
        Ok(())
    }

    /// Runs FETCH, or MOVE if nothing is to be given.
    pub(super) async fn fetch(
        &mut self,
        name: &ast::Ident,
        direction: &FetchDirection,
        moves: bool,
        sink: &mut dyn Sink,
        describes: bool,
    ) -> Result<(), SqlError> {
        let name = ident(name);
        let cursor = self.cursors.get_mut(&name).ok_or_else(|| no_cursor(&name))?;
        let passed = cursor.walk(direction)?;
        if moves {
            sink.complete(&format!("MOVE {}", passed.len()));
            return Ok(());
        }
        if describes {
            sink.row_description(&cursor.columns);
        }
        let mut messages = Vec::new();
        for row in &passed {
            messages.extend_from_slice(&cursor.messages[cursor.starts[row - 1]..cursor.starts[*row]]);
        }
        give(&messages, passed.len(), sink).await?;
        sink.complete(&format!("FETCH {}", passed.len()));
        Ok(())
    }

    pub(super) fn close_cursor(
        &mut self,
        cursor: &ast::CloseCursor,
        sink: &mut dyn Sink,
    ) -> Result<(), SqlError> {
        match cursor {
            ast::CloseCursor::All => {
                self.cursors.clear();
                sink.complete("CLOSE CURSOR ALL");
            }
            ast::CloseCursor::Specific { name } => {
                let name = ident(name);
                self.cursors.remove(&name).ok_or_else(|| no_cursor(&name))?;
                sink.complete("CLOSE CURSOR");
            }
        }
        Ok(())
    }

    /// The columns of a cursor's rows.
    pub(super) fn cursor_columns(&self, name: &ast::Ident) -> Option<Vec<Column>> {
        self.cursors.get(&ident(name)).map(|cursor| cursor.columns.clone())
    }

    /// Drops the cursors that end with their transaction: all but those WITH HOLD of one that commits, or has committed.
    pub(super) fn end_cursors(&mut self, commits: bool) {
        self.cursors.retain(|_, cursor| {
            cursor.is_kept |= commits && cursor.holds;
            cursor.is_kept
        });
    }
}
