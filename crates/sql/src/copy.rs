//! COPY: the lines of its text and CSV formats, and the rows of its binary one, in and out.
//!
//! Owns: the options of a COPY, and how lines become rows and rows lines. Never: speaks the protocol; a sink does.

mod binary;
mod bulk;
mod csv;
mod line;
mod text;

use std::ops::Range;
use std::sync::Arc;

use atrapos::Tx;
use sqlparser::ast;

use crate::bind::{Binder, ident};
use crate::cast::narrow;
use crate::error::{SqlError, SqlState};
use crate::exec::{Fail, explain_row, insert_all};
use crate::expr::{Env, Expr};
use crate::format::parse;
use crate::functions::NEEDS_BLOCK;
use crate::schema::TableEntry;
use crate::sequences::Sequences;
use crate::types::{Modifier, SqlType};
use crate::value::Value;

pub(crate) use binary::{BinaryRows, HEADER, TRAILER};
pub(crate) use bulk::{BulkBatch, Hidden, NotLoaded};
pub(crate) use csv::CsvLines;
pub(crate) use line::Line;
pub(crate) use text::TextLines;

/// The form of the lines of a COPY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) is_csv: bool,
    pub(crate) is_binary: bool,
    pub(crate) delimiter: u8,
    pub(crate) null: String,
    pub(crate) header: bool,
    pub(crate) quote: u8,
    pub(crate) escape: u8,
}

/// A field of a line: `None` for NULL.
pub(crate) type Fields = Vec<Option<String>>;

impl Default for Form {
    /// The text form, as PostgreSQL has it without options.
    fn default() -> Form {
        Form {
            is_csv: false,
            is_binary: false,
            delimiter: b'\t',
            null: "\\N".to_owned(),
            header: false,
            quote: b'"',
            escape: b'"',
        }
    }
}

impl Form {
    /// The form that options ask for.
    pub(crate) fn of(
        options: &[ast::CopyOption],
        legacy: &[ast::CopyLegacyOption],
    ) -> Result<Form, SqlError> {
        let mut form = Form::default();
        let is_csv = options
            .iter()
            .any(|option| matches!(option, ast::CopyOption::Format(name) if ident(name) == "csv"))
            || legacy.iter().any(|option| matches!(option, ast::CopyLegacyOption::Csv(_)));
        if is_csv {
            (form.is_csv, form.delimiter, form.null) = (true, b',', String::new());
        }
        for option in options {
            match option {
                ast::CopyOption::Format(name) => match &*ident(name) {
                    "text" | "csv" => {}
                    "binary" => form.is_binary = true,
                    other => return Err(SqlError::unsupported(format!("COPY in the format {other}"))),
                },
                // Rows are visible to those that may see them in any case.
                ast::CopyOption::Freeze(_) => {}
                ast::CopyOption::Delimiter(c) => form.delimiter = single(*c)?,
                ast::CopyOption::Null(text) => form.null.clone_from(text),
                ast::CopyOption::Header(is_on) => form.header = *is_on,
                ast::CopyOption::Quote(c) => form.quote = single(*c)?,
                ast::CopyOption::Escape(c) => form.escape = single(*c)?,
                ast::CopyOption::Encoding(name)
                    if name.eq_ignore_ascii_case("utf8") || name.eq_ignore_ascii_case("utf-8") => {}
                other => return Err(SqlError::unsupported(format!("the COPY option {other}"))),
            }
        }
        for option in legacy {
            match option {
                ast::CopyLegacyOption::Delimiter(c) => form.delimiter = single(*c)?,
                ast::CopyLegacyOption::Null(text) => form.null.clone_from(text),
                ast::CopyLegacyOption::Header => form.header = true,
                ast::CopyLegacyOption::Binary => form.is_binary = true,
                ast::CopyLegacyOption::Csv(options) => {
                    for option in options {
                        match option {
                            ast::CopyLegacyCsvOption::Header => form.header = true,
                            ast::CopyLegacyCsvOption::Quote(c) => form.quote = single(*c)?,
                            ast::CopyLegacyCsvOption::Escape(c) => form.escape = single(*c)?,
                            other => return Err(SqlError::unsupported(format!("the COPY option {other}"))),
                        }
                    }
                }
                other => return Err(SqlError::unsupported(format!("the COPY option {other}"))),
            }
        }
        let plain = Form { is_binary: form.is_binary, ..Form::default() };
        if form.is_binary && form != plain {
            return Err(SqlError::new(
                SqlState::SYNTAX_ERROR,
                "COPY in the format binary takes no delimiter, NULL, header, quote or escape",
            ));
        }
        Ok(form)
    }

    /// Appends the line of a row of texts.
    pub(crate) fn push_line(&self, fields: &[Option<String>], out: &mut Vec<u8>) {
        for (at, field) in fields.iter().enumerate() {
            if at > 0 {
                out.push(self.delimiter);
            }
            match field {
                None => out.extend_from_slice(self.null.as_bytes()),
                Some(field) if self.is_csv => csv::push_field(self, field, out),
                Some(field) => text::push_field(self, field, out),
            }
        }
        out.push(b'\n');
    }
}

fn single(c: char) -> Result<u8, SqlError> {
    u8::try_from(c).ok().filter(u8::is_ascii).ok_or_else(|| {
        SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            "COPY delimiter, quote and escape must be a single one-byte character",
        )
    })
}

/// Lines as they come, in pieces that end anywhere.
pub(crate) enum Lines {
    Text(TextLines),
    Csv(CsvLines),
    Binary(BinaryRows),
}

/// A row of a COPY.
pub(crate) enum CopyRow {
    Texts(Line),
    Values(Vec<Value>),
}

impl Lines {
    /// Reads data of a form; the types are those of its columns.
    pub(crate) fn new(form: &Form, types: Vec<SqlType>) -> Lines {
        if form.is_binary {
            Lines::Binary(BinaryRows::new(types))
        } else if form.is_csv {
            Lines::Csv(CsvLines::new(form.clone()))
        } else {
            Lines::Text(TextLines::new(form.clone()))
        }
    }

    /// Takes a piece of data, and adds the rows that are complete.
    pub(crate) fn push(&mut self, data: &[u8], rows: &mut Vec<CopyRow>) -> Result<(), SqlError> {
        match self {
            Lines::Text(lines) => lines.push(data, rows)?,
            Lines::Csv(lines) => lines.push(data, rows)?,
            Lines::Binary(lines) => {
                let mut values = Vec::new();
                lines.push(data, &mut values)?;
                rows.extend(values.into_iter().map(CopyRow::Values));
            }
        }
        Ok(())
    }

    /// The data has ended: adds a last row that no end of a line follows.
    pub(crate) fn finish(&mut self, rows: &mut Vec<CopyRow>) -> Result<(), SqlError> {
        match self {
            Lines::Text(lines) => lines.finish(rows),
            Lines::Csv(lines) => lines.finish(rows),
            Lines::Binary(lines) => lines.finish(),
        }
    }
}

/// The target of a COPY's rows: a table, its columns, and the defaults of the others.
#[derive(Clone)]
pub(crate) struct CopyTarget {
    pub(crate) table: Arc<TableEntry>,
    pub(crate) columns: Vec<usize>,
    /// The defaults of the other columns.
    pub(crate) defaults: Vec<(usize, Expr)>,
    pub(crate) checks: Vec<(String, Expr)>,
}

impl Binder<'_> {
    /// Binds the target of a COPY FROM.
    pub(crate) fn copy_target(
        &mut self,
        name: &ast::ObjectName,
        columns: &[ast::Ident],
    ) -> Result<CopyTarget, SqlError> {
        let table = self.table(name)?;
        let mut places = Vec::new();
        for column in columns {
            let name = ident(column);
            places.push(table.column(&name).ok_or_else(|| table.no_column(&name))?);
        }
        if columns.is_empty() {
            places = (0..table.columns.len()).collect();
        }
        let mut defaults = Vec::new();
        for column in (0..table.columns.len()).filter(|column| !places.contains(column)) {
            defaults.push((column, self.default_of(&table, column)?));
        }
        let checks = self.table_checks(&table)?;
        Ok(CopyTarget { table, columns: places, defaults, checks })
    }
}

impl CopyTarget {
    /// The row that a given one becomes: its values and the defaults of the other columns, checked but for its keys. The error of a
    /// default that needs numbers of a sequence has the code [`NEEDS_BLOCK`], and names it.
    fn row(&self, env: &Env, given: &CopyRow) -> Result<Vec<Value>, SqlError> {
        let table = &self.table;
        let count = match given {
            CopyRow::Texts(fields) => fields.len(),
            CopyRow::Values(values) => values.len(),
        };
        if count != self.columns.len() {
            let message = match self.columns.get(count) {
                Some(missing) => format!("missing data for column \"{}\"", table.columns[*missing].name),
                None => "extra data after last expected column".to_owned(),
            };
            return Err(SqlError::new(SqlState::BAD_COPY_FILE_FORMAT, message));
        }
        let mut row = vec![Value::Null; table.columns.len()];
        for (at, default) in &self.defaults {
            row[*at] = default.eval(env, &[])?;
        }
        for (at, column) in self.columns.iter().enumerate() {
            let entry = &table.columns[*column];
            let value = match given {
                CopyRow::Values(values) => values[at].clone(),
                CopyRow::Texts(fields) => match fields.field(at) {
                    None => continue,
                    Some(field) => parse(field, entry.ty).map_err(|error| error.column(&entry.name))?,
                },
            };
            row[*column] = match entry.modifier {
                Modifier::None => value,
                modifier => narrow(value, entry.ty, modifier, false)?,
            };
        }
        crate::exec::check_row(table, &self.checks, env, &row)?;
        Ok(row)
    }

    /// An error with the line that it is about.
    pub(crate) fn in_line(&self, line: u64, error: SqlError) -> SqlError {
        error.context(format!("COPY {}, line {line}", self.table.name))
    }
}

/// Rows of a COPY FROM that are inserted at once.
pub(crate) struct CopyBatch {
    pub(crate) target: Arc<CopyTarget>,
    pub(crate) env: Env,
    pub(crate) sequences: Arc<Sequences>,
    pub(crate) rows: Arc<Vec<CopyRow>>,
    /// The places of those that are inserted.
    pub(crate) lines: Range<usize>,
    /// The number of the line of the first of these, for messages.
    pub(crate) first: u64,
}

impl CopyBatch {
    /// Inserts the rows as a part of a transaction.
    pub(crate) async fn run(&self, tx: &mut Tx<'_>) -> Result<(), Fail> {
        let mut rows = Vec::with_capacity(self.lines.len());
        for (given, line) in self.rows[self.lines.clone()].iter().zip(self.first..) {
            let row = loop {
                match self.target.row(&self.env, given) {
                    Ok(row) => break row,
                    Err(error) if error.code == NEEDS_BLOCK => {
                        let sequence = Arc::clone(self.env.schema.sequence(&error.message)?);
                        tx.wait_for(self.sequences.reserve(&sequence)).await?;
                    }
                    Err(error) => return Err(self.target.in_line(line, error).into()),
                }
            };
            rows.push(row);
        }
        let table = &self.target.table;
        let done = insert_all(tx, table, &rows).await;
        let explained = |abort| explain_row(&self.env.schema, table, &rows.iter().collect::<Vec<_>>(), abort);
        done.map_err(|abort| match explained(abort) {
            (Fail::Sql(error), Some(at)) => Fail::Sql(self.target.in_line(self.first + at as u64, error)),
            (fail, _) => fail,
        })
    }
}
