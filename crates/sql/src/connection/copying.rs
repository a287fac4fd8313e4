//! COPY of a connection: from the data that its client sends, and to it.

use std::sync::Arc;

use sqlparser::ast;

use super::{Connection, Kind};
use crate::bind::Binder;
use crate::copy::{CopyBatch, CopyRow, CopyTarget, Fields, Form, HEADER, Lines, TRAILER};
use crate::error::{SqlError, SqlState};
use crate::expr::Env;
use crate::format::Format;
use crate::roles::{Need, Object, Privileges};
use crate::sink::Sink;
use crate::transaction::Command;

/// Rows that are inserted at once.
const BATCH: usize = 1000;

impl Connection {
    pub(super) async fn copy(
        &mut self,
        statement: &ast::Statement,
        text: &str,
        sink: &mut dyn Sink,
    ) -> Result<(), SqlError> {
        let ast::Statement::Copy { source, to, target, options, legacy_options, .. } = statement else {
            return Err(SqlError::unsupported("this statement"));
        };
        let form = Form::of(options, legacy_options)?;
        match (to, target, source) {
            (false, ast::CopyTarget::Stdin, ast::CopySource::Table { table_name, columns }) => {
                self.copy_in(table_name, columns, &form, text, sink).await
            }
            (true, ast::CopyTarget::Stdout, source) => self.copy_out(source, &form, text, sink).await,
            _ => Err(SqlError::unsupported("COPY of a file or program of the server")
                .hint("Use COPY FROM STDIN or TO STDOUT, or \\copy of psql.")),
        }
    }

    async fn copy_in(
        &mut self,
        table: &ast::ObjectName,
        columns: &[ast::Ident],
        form: &Form,
        text: &str,
        sink: &mut dyn Sink,
    ) -> Result<(), SqlError> {
        let session = self.session();
        let schema = self.database.schema();
        let target = Arc::new(Binder::new(&schema, text, &[]).copy_target(table, columns)?);
        let mut needed = Need::new(Object::Table, &target.table.name, Privileges::INSERT);
        for column in &target.columns {
            needed.add_column(&target.table.columns[*column].name, Privileges::INSERT);
        }
        self.check_needs(&schema, &[needed])?;
        let env = Env::new(Arc::from([]), session, schema);
        if self.open.is_none() {
            let route = self.any_worker();
            self.begin_at(route).await?;
        }
        sink.copy_in_begin(format_of(form), target.columns.len());
        let types = target.columns.iter().map(|column| target.table.columns[*column].ty).collect();
        let mut lines = Lines::new(form, types);
        let (mut rows, mut count) = (Vec::new(), 0);
        while let Some(data) = self.cancel.until(sink.copy_data()).await? {
            lines.push(&data, &mut rows)?;
            while rows.len() >= BATCH {
                let rest = rows.split_off(BATCH);
                count += self.insert_lines(&target, &env, std::mem::replace(&mut rows, rest), count).await?;
            }
        }
        lines.finish(&mut rows)?;
        count += self.insert_lines(&target, &env, rows, count).await?;
        if self.kind == Kind::Implicit {
            self.end_implicit(true).await?;
        }
        sink.complete(&format!("COPY {count}"));
        Ok(())
    }

    async fn insert_lines(
        &mut self,
        target: &Arc<CopyTarget>,
        env: &Env,
        rows: Vec<CopyRow>,
        before: u64,
    ) -> Result<u64, SqlError> {
        self.cancel.check()?;
        let count = rows.len() as u64;
        let batch = CopyBatch {
            target: Arc::clone(target),
            env: env.clone(),
            sequences: Arc::clone(self.database.sequences()),
            rows,
            first: before + 1,
        };
        let done = match &mut self.open {
            Some(open) => open.ask(|reply| Command::Copy(Box::new(batch), reply)).await,
            None => Err(SqlError::new(SqlState::INTERNAL_ERROR, "the transaction has no home")),
        };
        match done {
            Err(error) if error.code == SqlState::CONFIGURATION_LIMIT_EXCEEDED => {
                Err(too_large(&target.table.name, before, count, &error))
            }
            done => done.map(|()| count),
        }
    }

    async fn copy_out(
        &mut self,
        source: &ast::CopySource,
        form: &Form,
        text: &str,
        sink: &mut dyn Sink,
    ) -> Result<(), SqlError> {
        let query = match source {
            ast::CopySource::Query(query) => query.to_string(),
            ast::CopySource::Table { table_name, columns } => {
                let columns: Vec<String> = columns.iter().map(ToString::to_string).collect();
                let columns = if columns.is_empty() { "*".to_owned() } else { columns.join(", ") };
                format!("SELECT {columns} FROM {table_name}")
            }
        };
        let _ = text;
        let statements = crate::parse::statements(&query)?;
        let Some(statement) = statements.first() else { return Err(SqlError::unsupported("an empty COPY")) };
        let planned = self.plan(statement, &query, &[], false).await?;
        let ends = self.kind == Kind::None;
        let answer = self.run(&planned, Arc::from([]), Arc::from([format_of(form)]), ends).await?;
        let columns = planned.columns.as_ref().map_or(0, |columns| columns.len());
        sink.copy_out_begin(format_of(form), columns);
        let mut out = Vec::new();
        if form.is_binary {
            push_data(HEADER, &mut out);
        }
        if let (true, Some(columns)) = (form.header, &planned.columns) {
            let names: Vec<Option<String>> = columns.iter().map(|column| Some(column.name.clone())).collect();
            push_message(form, &names, &mut out);
        }
        let mut rest = &answer.messages[..];
        while !rest.is_empty() {
            let length = super::running::message_length(rest);
            if form.is_binary {
                // The body of a row has the binary format's form.
                push_data(&rest[5..length], &mut out);
            } else {
                push_message(form, &fields_of(&rest[7..length]), &mut out);
            }
            rest = &rest[length..];
            if out.len() > 1 << 20 {
                sink.copy_out(&out);
                out.clear();
                sink.ready().await?;
            }
        }
        if form.is_binary {
            push_data(&TRAILER, &mut out);
        }
        if !out.is_empty() {
            sink.copy_out(&out);
        }
        sink.copy_out_end();
        sink.complete(&format!("COPY {}", answer.count));
        Ok(())
    }
}

/// The error for a COPY whose changes are too many for one transaction; says how many lines are not.
#[cold]
fn too_large(table: &str, before: u64, batch: u64, error: &SqlError) -> SqlError {
    let most = if before == 0 { format!("fewer than {batch}") } else { format!("at most {before}") };
    let why = format!(
        "COPY into table \"{table}\" has more changes after line {before} than one transaction may have, and nothing of it was kept; \
         load it in parts of {most} lines, each by a COPY in a transaction of its own"
    );
    SqlError::new(error.code, why).detail(error.message.clone())
}

fn format_of(form: &Form) -> Format {
    if form.is_binary { Format::Binary } else { Format::Text }
}

/// Appends a CopyData message.
fn push_data(body: &[u8], out: &mut Vec<u8>) {
    out.push(b'd');
    out.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    out.extend_from_slice(body);
}

/// The fields of the body of a DataRow, behind their number.
fn fields_of(mut body: &[u8]) -> Fields {
    let mut fields = Vec::new();
    while let Some((length, rest)) = body.split_first_chunk::<4>() {
        let length = i32::from_be_bytes(*length);
        let Ok(length) = usize::try_from(length) else {
            fields.push(None);
            body = rest;
            continue;
        };
        let (field, behind) = rest.split_at(length.min(rest.len()));
        fields.push(Some(String::from_utf8_lossy(field).into_owned()));
        body = behind;
    }
    fields
}

fn push_message(form: &Form, fields: &[Option<String>], out: &mut Vec<u8>) {
    let at = out.len();
    out.extend_from_slice(&[b'd', 0, 0, 0, 0]);
    form.push_line(fields, out);
    let length = (out.len() - at - 1) as u32;
    out[at + 1..at + 5].copy_from_slice(&length.to_be_bytes());
}
