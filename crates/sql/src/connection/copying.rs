//! COPY of a connection: from the data that its client sends, and to it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use atrapos::catalog::KeyCodec;
use atrapos::{LockMode, Reference};
use sqlparser::ast;

use super::loading::can_be_loaded;
use super::running::{ATTEMPTS, Blocking, blocking, wait_before};
use super::{Connection, Kind};
use crate::bind::Binder;
use crate::copy::{
    BulkBatch, CopyBatch, CopyRow, CopyTarget, Fields, Form, HEADER, Hidden, Lines, NotLoaded, TRAILER,
};
use crate::ddl::foreign::no_parent;
use crate::error::{SqlError, SqlState};
use crate::expr::Env;
use crate::format::{Format, text_of};
use crate::roles::{Need, Object, Privileges};
use crate::schema::{TableEntry, from_stored};
use crate::sink::Sink;
use crate::transaction::Command;

/// Rows that are inserted at once.
const BATCH: usize = 1000;
/// The size of the data from which on an empty table is loaded in bulk, and of the pieces in which it is.
const BULK_BYTES: usize = 1 << 20;

/// A COPY FROM that is under way.
struct CopyIn<'a> {
    /// The table and the columns that its text names.
    statement: (&'a ast::ObjectName, &'a [ast::Ident], &'a str),
    target: Arc<CopyTarget>,
    /// Set if its transaction has nothing else.
    is_alone: bool,
    way: Way,
    /// The number of lines before the first row.
    header: u64,
    /// The size of the data that has come since rows were taken last.
    bytes: usize,
    /// The number of rows taken.
    count: u64,
    /// The rows that are being loaded, while further ones come. They are not counted yet.
    under_way: Option<UnderWay>,
    /// References of rows that were loaded to rows of the same table that had not come yet.
    waiting: Vec<Reference>,
    /// The first reference to a row of another table that is not there.
    missing: Option<Reference>,
    /// Set when rows were taken, so that the statement cannot be begun again.
    has_begun: bool,
}

/// A load that is under way, and its rows.
type UnderWay = (Blocking<Result<Vec<Reference>, NotLoaded>>, Arc<Vec<CopyRow>>);

/// The way in which rows go into a table.
enum Way {
    /// It is chosen when there are many.
    Undecided,
    /// They are inserted, each with its redo.
    Rows,
    /// They are loaded into this table, which takes the other one's place.
    Bulk(Arc<TableEntry>, Hidden),
}

impl CopyIn<'_> {
    /// The number of the line behind those taken and so many more.
    fn line(&self, more: usize) -> u64 {
        self.header + self.count + self.loading() + more as u64 + 1
    }

    /// The number of rows that are being loaded.
    fn loading(&self) -> u64 {
        self.under_way.as_ref().map_or(0, |(_, rows)| rows.len() as u64)
    }

    fn in_line(&self, more: usize, error: SqlError) -> SqlError {
        self.target.in_line(self.line(more), error)
    }

    fn loaded(&mut self, count: u64, unresolved: Vec<Reference>) {
        self.count += count;
        let Way::Bulk(table, hidden) = &mut self.way else { return };
        hidden.next += count;
        for reference in unresolved {
            if reference.parent == table.handle.id() {
                self.waiting.push(reference);
            } else {
                self.missing.get_or_insert(reference);
            }
        }
    }
}

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
        let mut copy = CopyIn {
            statement: (table, columns, text),
            target: self.copy_target(table, columns, text).await?,
            is_alone: self.kind == Kind::None && self.open.is_none(),
            way: Way::Undecided,
            header: u64::from(form.header),
            bytes: 0,
            count: 0,
            under_way: None,
            waiting: Vec::new(),
            missing: None,
            has_begun: false,
        };
        self.begin_at_home().await?;
        let mut done = self.copy_lines(&mut copy, form, sink).await;
        // No load outlives its transaction; what it fails with is about earlier lines.
        if let Some((loading, _)) = copy.under_way.take()
            && let Ok(Err(NotLoaded::Failed(error))) = loading.done().await
        {
            done = Err(error);
        }
        done?;
        if self.kind == Kind::Implicit {
            self.end_implicit(true).await?;
        }
        sink.complete(&format!("COPY {}", copy.count));
        Ok(())
    }

    /// Reads the data that comes, and takes its rows.
    async fn copy_lines(
        &mut self,
        copy: &mut CopyIn<'_>,
        form: &Form,
        sink: &mut dyn Sink,
    ) -> Result<(), SqlError> {
        let columns = &copy.target.columns;
        sink.copy_in_begin(format_of(form), columns.len());
        let types = columns.iter().map(|column| copy.target.table.columns[*column].ty).collect();
        let (mut lines, mut rows) = (Lines::new(form, types), Vec::new());
        while let Some(data) = self.cancel.until(sink.copy_data()).await? {
            lines.push(&data, &mut rows).map_err(|error| copy.in_line(rows.len(), error))?;
            copy.bytes += data.len();
            if copy.bytes >= BULK_BYTES || rows.len() >= BATCH && matches!(copy.way, Way::Rows) {
                self.take_lines(copy, &mut rows).await?;
            }
        }
        lines.finish(&mut rows).map_err(|error| copy.in_line(rows.len(), error))?;
        if matches!(copy.way, Way::Undecided) {
            copy.way = Way::Rows;
        }
        self.take_lines(copy, &mut rows).await?;
        self.finish_load(copy).await?;
        self.check_references(copy).await
    }

    /// Refuses references to rows that have not come.
    async fn check_references(&mut self, copy: &mut CopyIn<'_>) -> Result<(), SqlError> {
        let mut references = std::mem::take(&mut copy.waiting);
        references.extend(copy.missing.take());
        if references.is_empty() {
            return Ok(());
        }
        let database = Arc::clone(self.database.database());
        let missing = blocking(move || {
            let missing = database.without_parents(references);
            let missing = missing.map_err(|abort| SqlError::of_abort(&abort))?;
            let Some(first) = missing.into_iter().next() else { return Ok(None) };
            let definitions = database.definitions();
            let parent = definitions.table(first.parent.0);
            let key = parent.and_then(|parent| KeyCodec::of_table(parent).decode(&first.key).ok());
            Ok(Some((first.foreign_key, key)))
        });
        let Some((number, key)) = missing.await? else { return Ok(()) };
        let table = &copy.target.table;
        let foreign = table.meta.foreign_keys.get(number);
        let foreign = foreign.ok_or_else(|| {
            SqlError::new(SqlState::FOREIGN_KEY_VIOLATION, "a foreign key of the table is violated")
        })?;
        let texts = key.map(|key| {
            let columns = foreign.columns.iter().map(|column| table.columns[*column].ty);
            let parts = key.into_iter().zip(columns);
            parts.map(|(part, ty)| text_of(&from_stored(part, ty), ty)).collect::<Vec<String>>()
        });
        Err(no_parent(table, foreign, texts.as_deref()))
    }

    /// The target of a COPY FROM that the client may use; waits while the table is being replaced.
    async fn copy_target(
        &mut self,
        table: &ast::ObjectName,
        columns: &[ast::Ident],
        text: &str,
    ) -> Result<Arc<CopyTarget>, SqlError> {
        let database = Arc::clone(&self.database);
        loop {
            let schema = self.schema();
            let target = Arc::new(Binder::new(&schema, text, &[]).copy_target(table, columns)?);
            let mut needed = Need::new(Object::Table, &target.table.name, Privileges::INSERT);
            for column in &target.columns {
                needed.add_column(&target.table.columns[*column].name, Privileges::INSERT);
            }
            self.check_needs(&schema, &[needed])?;
            let is_closed = || target.table.is_closed.load(Ordering::SeqCst);
            if !is_closed() {
                return Ok(target);
            }
            let mut changed = std::pin::pin!(database.changed());
            changed.as_mut().enable();
            if is_closed() && self.schema_version() == schema.version {
                changed.await;
            }
        }
    }

    /// Takes the lines that have come: inserts them, or has them loaded in bulk. The way is chosen when there are many.
    async fn take_lines(&mut self, copy: &mut CopyIn<'_>, rows: &mut Vec<CopyRow>) -> Result<(), SqlError> {
        copy.bytes = 0;
        let rows = Arc::new(std::mem::take(rows));
        for attempt in 0..ATTEMPTS {
            Box::pin(wait_before(attempt)).await?;
            let done = self.try_lines(copy, &rows).await;
            match done {
                // Nothing has been done yet: the table that was bound has been replaced.
                Err(error) if copy.is_alone && !copy.has_begun && Self::may_try_again(&error, 0) => {
                    self.end(false).await?;
                    let (table, columns, text) = copy.statement;
                    copy.target = self.copy_target(table, columns, text).await?;
                    self.begin_at_home().await?;
                }
                done => return done,
            }
        }
        self.try_lines(copy, &rows).await
    }

    async fn try_lines(&mut self, copy: &mut CopyIn<'_>, rows: &Arc<Vec<CopyRow>>) -> Result<(), SqlError> {
        self.cancel.check()?;
        if matches!(copy.way, Way::Undecided) {
            copy.way = self.way_of(&copy.target.table).await?;
        }
        self.finish_load(copy).await?;
        if let Way::Bulk(table, hidden) = &copy.way {
            let batch = BulkBatch {
                target: Arc::clone(&copy.target),
                table: Arc::clone(table),
                env: self.copy_env(),
                sequences: Arc::clone(self.database.sequences()),
                rows: Arc::clone(rows),
                first: copy.line(0),
                hidden: *hidden,
            };
            copy.under_way = Some((Blocking::start(move || Ok(batch.load()))?, Arc::clone(rows)));
            copy.has_begun = true;
            return Ok(());
        }
        self.insert_all_lines(copy, rows).await
    }

    /// Waits for the rows that are being loaded.
    async fn finish_load(&mut self, copy: &mut CopyIn<'_>) -> Result<(), SqlError> {
        let Some((loading, rows)) = copy.under_way.take() else { return Ok(()) };
        match loading.done().await? {
            Ok(unresolved) => {
                copy.loaded(rows.len() as u64, unresolved);
                Ok(())
            }
            Err(NotLoaded::Failed(error)) => Err(error),
            Err(NotLoaded::InUse) => {
                if let Way::Bulk(table, _) = &copy.way {
                    let target = CopyTarget { table: Arc::clone(table), ..CopyTarget::clone(&copy.target) };
                    (copy.target, copy.way) = (Arc::new(target), Way::Rows);
                }
                self.insert_all_lines(copy, &rows).await
            }
        }
    }

    async fn insert_all_lines(
        &mut self,
        copy: &mut CopyIn<'_>,
        rows: &Arc<Vec<CopyRow>>,
    ) -> Result<(), SqlError> {
        for start in (0..rows.len()).step_by(BATCH) {
            let lines = start..rows.len().min(start + BATCH);
            copy.count += self.insert_lines(copy, rows, lines).await?;
            copy.has_begun = true;
        }
        Ok(())
    }

    /// Inserts some of the rows that have come.
    async fn insert_lines(
        &mut self,
        copy: &CopyIn<'_>,
        rows: &Arc<Vec<CopyRow>>,
        lines: Range<usize>,
    ) -> Result<u64, SqlError> {
        self.cancel.check()?;
        let count = lines.len() as u64;
        let batch = CopyBatch {
            target: Arc::clone(&copy.target),
            env: self.copy_env(),
            sequences: Arc::clone(self.database.sequences()),
            rows: Arc::clone(rows),
            lines,
            first: copy.line(0),
        };
        match self.ask_open(|reply| Command::Copy(Box::new(batch), reply)).await {
            Err(error) if error.code == SqlState::CONFIGURATION_LIMIT_EXCEEDED => {
                Err(too_large(&copy.target.table.name, copy.count, count, &error))
            }
            done => done.map(|()| count),
        }
    }

    /// The way in which a COPY of many lines goes into a table.
    async fn way_of(&mut self, table: &Arc<TableEntry>) -> Result<Way, SqlError> {
        let hidden = Hidden { worker: self.home_worker(), next: 1 };
        // Which hidden keys are free is not known: a table without a key of its own is made anew, if it is empty.
        if self.has_loaded(table) && table.cluster_key().is_some() {
            self.lock_parents(table).await?;
            return Ok(Way::Bulk(Arc::clone(table), hidden));
        }
        if !can_be_loaded(&self.schema(), table) {
            return Ok(Way::Rows);
        }
        if self.rows_of(table).await? > 0 {
            // Its other users are not shut out.
            return Ok(Way::Rows);
        }
        // Before its own: who deletes a parent locks that first, and then looks for children.
        self.lock_parents(table).await?;
        let handle = table.handle.clone();
        if self.ask_open(|reply| Command::Lock(handle, LockMode::Exclusive, reply)).await? {
            return Ok(Way::Rows);
        }
        let now = self.load_anew(table).await?;
        Ok(now.map_or(Way::Rows, |now| Way::Bulk(now, hidden)))
    }

    fn copy_env(&mut self) -> Env {
        Env::new(Arc::from([]), self.session(), self.schema())
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
