//! Statements that become no plan: of transactions, settings and definitions, EXPLAIN.

use std::sync::Arc;
use std::time::Instant;

use sqlparser::ast;

use super::extended::ends_transaction;
use super::running::{blocking, route_of};
use super::{Connection, Kind};
use crate::bind::{first_words, ident};
use crate::ddl::Change;
use crate::error::{Severity, SqlError, SqlState};
use crate::exec::{Profile, encode_rows};
use crate::explain;
use crate::expr::Env;
use crate::format::Format;
use crate::plan::OutputColumn;
use crate::settings::Settings;
use crate::sink::{Column, Sink};
use crate::transaction::{Command, no_savepoint};
use crate::types::{Modifier, SqlType};
use crate::value::Value;

fn text_column(name: &str) -> OutputColumn {
    OutputColumn { name: name.to_owned(), ty: SqlType::Text, modifier: Modifier::None, origin: (0, 0) }
}

/// The columns of the rows of a statement that becomes no plan.
pub(super) fn utility_columns(statement: &ast::Statement) -> Option<Vec<Column>> {
    let columns = match statement {
        ast::Statement::ShowVariable { variable } => match &shown_name(variable)[..] {
            "all" => vec![text_column("name"), text_column("setting"), text_column("description")],
            name => vec![text_column(Settings::spelled(name).unwrap_or(name))],
        },
        ast::Statement::Explain { .. } => vec![text_column("QUERY PLAN")],
        _ => return None,
    };
    Some(columns.iter().map(OutputColumn::described).collect())
}

fn shown_name(variable: &[ast::Ident]) -> String {
    let words: Vec<String> = variable.iter().map(|word| word.value.to_lowercase()).collect();
    match &words.join(" ")[..] {
        "transaction isolation level" => "transaction_isolation".to_owned(),
        "time zone" => "TimeZone".to_owned(),
        "session authorization" => "session_authorization".to_owned(),
        _ => words.join("."),
    }
}

/// Completes a statement that has nothing to do.
fn done(tag: &str, sink: &mut dyn Sink) -> Result<(), SqlError> {
    sink.complete(tag);
    Ok(())
}

impl Connection {
    /// Runs a statement that becomes no plan; `describes` says that the sink is given descriptions of rows.
    pub(super) async fn utility(
        &mut self,
        statement: &ast::Statement,
        text: &str,
        sink: &mut dyn Sink,
        describes: bool,
    ) -> Result<(), SqlError> {
        if !ends_transaction(statement) {
            self.refuse_failed()?;
        }
        match statement {
            ast::Statement::StartTransaction { modes, begin, .. } => self.begin(modes, *begin, sink),
            ast::Statement::Commit { chain: false, modifier: None, .. } => self.commit(sink).await,
            ast::Statement::Rollback { chain: false, savepoint: None } => self.roll_back(sink).await,
            _ => Box::pin(self.other_utility(statement, text, sink, describes)).await,
        }
    }

    /// Runs a statement that becomes no plan and neither begins nor ends a transaction. Transactions shall not carry the room that these need.
    async fn other_utility(
        &mut self,
        statement: &ast::Statement,
        text: &str,
        sink: &mut dyn Sink,
        describes: bool,
    ) -> Result<(), SqlError> {
        match statement {
            ast::Statement::Rollback { chain: false, savepoint: Some(name) } => {
                self.roll_back_to(&ident(name), sink).await
            }
            ast::Statement::Savepoint { name } => self.savepoint(ident(name), sink).await,
            ast::Statement::ReleaseSavepoint { name } => self.release(&ident(name), sink).await,
            ast::Statement::Set(set) => self.set(set, sink),
            ast::Statement::ShowVariable { variable } => self.show(&shown_name(variable), sink, describes),
            ast::Statement::Reset(reset) => self.reset(reset, sink),
            ast::Statement::Discard { object_type } => self.discard(object_type, sink).await,
            ast::Statement::Deallocate { name, .. } => self.deallocate(name, sink),
            ast::Statement::Prepare { name, data_types, statement } => {
                self.prepare_named(name, data_types, statement, text, sink).await
            }
            ast::Statement::Execute { name, parameters, immediate: false, into, using, .. }
                if into.is_empty() && using.is_empty() =>
            {
                self.execute_named(name.as_ref(), parameters, sink, describes).await
            }
            ast::Statement::Declare { stmts, .. } => self.declare(stmts, text, sink).await,
            ast::Statement::Fetch { name, direction, into, .. } => {
                self.fetch(name, direction, into.is_some(), sink, describes).await
            }
            ast::Statement::Close { cursor } => self.close_cursor(cursor, sink),
            ast::Statement::Explain {
                statement,
                analyze,
                format,
                options,
                query_plan: false,
                estimate: false,
                ..
            } => {
                let runs = explain_runs(*analyze, format.as_ref(), options.as_deref().unwrap_or_default())?;
                self.explain(statement, text, runs, sink, describes).await
            }
            ast::Statement::Vacuum(_) => self.vacuum(sink),
            ast::Statement::Analyze(_) => done("ANALYZE", sink),
            // Nobody listens, as LISTEN is refused.
            ast::Statement::UNLISTEN { .. } => done("UNLISTEN", sink),
            ast::Statement::Copy { .. } => self.copy(statement, text, sink).await,
            ast::Statement::CreateTable(_)
            | ast::Statement::CreateIndex(_)
            | ast::Statement::CreateSequence { .. }
            | ast::Statement::AlterTable(_)
            | ast::Statement::CreateView(_)
            | ast::Statement::Comment { .. }
            | ast::Statement::CreateRole(_)
            | ast::Statement::AlterRole { .. }
            | ast::Statement::Grant(_)
            | ast::Statement::Revoke(_)
            | ast::Statement::GrantRole(_)
            | ast::Statement::RevokeRole(_)
            | ast::Statement::Drop { .. } => self.define(statement, text, sink).await,
            other => Err(SqlError::unsupported(first_words(&other.to_string()))),
        }
    }

    /// Does nothing, as there is nothing to do.
    fn vacuum(&self, sink: &mut dyn Sink) -> Result<(), SqlError> {
        if self.kind == Kind::Explicit {
            return Err(SqlError::new(
                SqlState::ACTIVE_SQL_TRANSACTION,
                "VACUUM cannot run inside a transaction block",
            ));
        }
        sink.complete("VACUUM");
        Ok(())
    }

    fn begin(
        &mut self,
        modes: &[ast::TransactionMode],
        says_begin: bool,
        sink: &mut dyn Sink,
    ) -> Result<(), SqlError> {
        // Every level is served by the strictest; a transaction that promises only to read would not be held to it.
        let read_only = ast::TransactionMode::AccessMode(ast::TransactionAccessMode::ReadOnly);
        if modes.contains(&read_only) {
            return Err(SqlError::unsupported("a transaction that is READ ONLY"));
        }
        let tag = if says_begin { "BEGIN" } else { "START TRANSACTION" };
        if self.kind == Kind::Explicit {
            let warning =
                SqlError::new(SqlState::ACTIVE_SQL_TRANSACTION, "there is already a transaction in progress");
            sink.notice(&warning.severity(Severity::Warning));
        } else {
            self.settings_before = Some(self.settings.clone());
        }
        self.kind = Kind::Explicit;
        sink.complete(tag);
        Ok(())
    }

    fn warn_outside(&self, sink: &mut dyn Sink) {
        if matches!(self.kind, Kind::None | Kind::Implicit) {
            let warning =
                SqlError::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress");
            sink.notice(&warning.severity(Severity::Warning));
        }
    }

    async fn commit(&mut self, sink: &mut dyn Sink) -> Result<(), SqlError> {
        self.warn_outside(sink);
        if self.kind == Kind::Failed {
            self.end(false).await?;
            sink.complete("ROLLBACK");
            return Ok(());
        }
        let done = self.end(true).await;
        done?;
        sink.complete("COMMIT");
        Ok(())
    }

    async fn roll_back(&mut self, sink: &mut dyn Sink) -> Result<(), SqlError> {
        self.warn_outside(sink);
        self.end(false).await?;
        sink.complete("ROLLBACK");
        Ok(())
    }

    fn refuse_outside(&self, what: &str) -> Result<(), SqlError> {
        if matches!(self.kind, Kind::Explicit | Kind::Failed) {
            return Ok(());
        }
        Err(SqlError::new(
            SqlState::NO_ACTIVE_SQL_TRANSACTION,
            format!("{what} can only be used in transaction blocks"),
        ))
    }

    async fn savepoint(&mut self, name: String, sink: &mut dyn Sink) -> Result<(), SqlError> {
        self.refuse_outside("SAVEPOINT")?;
        if let Some(open) = &mut self.open {
            open.ask(|reply| Command::Savepoint(name.clone(), reply)).await?;
        }
        self.savepoints.push(name);
        sink.complete("SAVEPOINT");
        Ok(())
    }

    /// The place of a savepoint of the open transaction, for a statement that names it.
    fn savepoint_at(&self, what: &str, name: &str) -> Result<usize, SqlError> {
        self.refuse_outside(what)?;
        self.savepoints.iter().rposition(|known| known == name).ok_or_else(|| no_savepoint(name))
    }

    async fn release(&mut self, name: &str, sink: &mut dyn Sink) -> Result<(), SqlError> {
        let at = self.savepoint_at("RELEASE SAVEPOINT", name)?;
        if let Some(open) = &mut self.open {
            open.ask(|reply| Command::Release(name.to_owned(), reply)).await?;
        }
        self.savepoints.truncate(at);
        self.release_loads(at);
        sink.complete("RELEASE");
        Ok(())
    }

    async fn roll_back_to(&mut self, name: &str, sink: &mut dyn Sink) -> Result<(), SqlError> {
        let at = self.savepoint_at("ROLLBACK TO SAVEPOINT", name)?;
        if let Some(open) = &mut self.open {
            open.ask(|reply| Command::RollbackTo(name.to_owned(), reply)).await?;
        }
        self.savepoints.truncate(at + 1);
        self.roll_back_loads_to(at).await?;
        self.kind = Kind::Explicit;
        sink.complete("ROLLBACK");
        Ok(())
    }

    fn set(&mut self, set: &ast::Set, sink: &mut dyn Sink) -> Result<(), SqlError> {
        match set {
            ast::Set::SingleAssignment { hivevar: false, variable, values, scope } => {
                if matches!(scope, Some(ast::ContextModifier::Global)) {
                    return Err(SqlError::unsupported("SET GLOBAL"));
                }
                let is_local = matches!(scope, Some(ast::ContextModifier::Local));
                if is_local && matches!(self.kind, Kind::None | Kind::Implicit) {
                    let warning = SqlError::new(
                        SqlState::NO_ACTIVE_SQL_TRANSACTION,
                        "SET LOCAL can only be used in transaction blocks",
                    );
                    sink.notice(&warning.severity(Severity::Warning));
                }
                let name = variable.to_string();
                let values: Vec<String> = values.iter().map(setting_value).collect();
                if values.len() == 1 && values[0].eq_ignore_ascii_case("default") {
                    self.settings.reset(&name)?;
                } else {
                    self.change_setting(&name, &values.join(", "), is_local)?;
                }
            }
            ast::Set::SetTimeZone { local: false, value } => {
                self.settings.set("TimeZone", &setting_value(value))?;
            }
            ast::Set::SetRole { context_modifier, role_name } => {
                let is_local = matches!(context_modifier, Some(ast::ContextModifier::Local));
                let name = role_name.as_ref().map_or_else(|| "none".to_owned(), ident);
                self.change_setting("role", &name, is_local)?;
            }
            ast::Set::SetNames { charset_name, .. } => {
                self.settings.set("client_encoding", &charset_name.value)?;
            }
            ast::Set::SetTransaction { modes, snapshot: None, .. } => {
                if modes.iter().any(|mode| {
                    matches!(mode, ast::TransactionMode::AccessMode(ast::TransactionAccessMode::ReadOnly))
                }) {
                    return Err(SqlError::unsupported("a transaction that is READ ONLY"));
                }
            }
            other => return Err(SqlError::unsupported(first_words(&other.to_string()))),
        }
        self.settings_changed();
        sink.complete("SET");
        Ok(())
    }

    fn reset(&mut self, reset: &ast::ResetStatement, sink: &mut dyn Sink) -> Result<(), SqlError> {
        match &reset.reset {
            ast::Reset::ALL => self.settings.reset_all(),
            ast::Reset::ConfigurationParameter(name) => self.settings.reset(&name.to_string())?,
            ast::Reset::SessionAuthorization => {}
        }
        self.settings_changed();
        sink.complete("RESET");
        Ok(())
    }

    async fn discard(&mut self, what: &ast::DiscardObject, sink: &mut dyn Sink) -> Result<(), SqlError> {
        if self.kind == Kind::Explicit {
            return Err(SqlError::new(
                SqlState::ACTIVE_SQL_TRANSACTION,
                "DISCARD cannot run inside a transaction block",
            ));
        }
        match what {
            ast::DiscardObject::ALL => {
                self.statements.clear();
                self.portals.clear();
                self.cursors.clear();
                self.forget_plans();
                self.database.connections().advisory.unlock_all(self.process_id);
                self.settings.reset_all();
                self.settings_changed();
            }
            ast::DiscardObject::PLANS => {
                self.forget_plans();
            }
            ast::DiscardObject::SEQUENCES => {
                self.taken = Arc::default();
                (self.session, self.last_session) = (None, None);
            }
            ast::DiscardObject::TEMP => {}
        }
        sink.complete(&format!("DISCARD {what}"));
        Ok(())
    }

    fn show(&mut self, name: &str, sink: &mut dyn Sink, describes: bool) -> Result<(), SqlError> {
        if name == "all" {
            let columns = [text_column("name"), text_column("setting"), text_column("description")];
            let rows = self.settings.all().map(|(name, value, description)| {
                vec![Value::text(name), Value::from(value), Value::text(description)]
            });
            let rows: Vec<Vec<Value>> = rows.collect();
            return self.give_rows(&columns, &rows, "SHOW", sink, describes);
        }
        let value = Value::text(self.settings.get(name)?);
        let columns = [text_column(Settings::spelled(name).unwrap_or(name))];
        self.give_rows(&columns, &[vec![value]], "SHOW", sink, describes)
    }

    fn give_rows(
        &self,
        columns: &[OutputColumn],
        rows: &[Vec<Value>],
        tag: &str,
        sink: &mut dyn Sink,
        describes: bool,
    ) -> Result<(), SqlError> {
        let messages = encode_rows(rows, columns, &[Format::Text], &self.schema(), usize::MAX)?;
        if describes {
            let described: Vec<Column> = columns.iter().map(OutputColumn::described).collect();
            sink.row_description(&described);
        }
        sink.rows(&messages, rows.len());
        sink.complete(tag);
        Ok(())
    }

    async fn explain(
        &mut self,
        statement: &ast::Statement,
        text: &str,
        runs: bool,
        sink: &mut dyn Sink,
        describes: bool,
    ) -> Result<(), SqlError> {
        let began = Instant::now();
        let mut planned = self.plan(statement, text, &[], false).await?;
        planned.count = None;
        let params = planned.types.iter().map(|_| Value::Null).collect();
        let mut env = Env::new(params, self.session(), self.schema());
        self.check_needs(&env.schema, &planned.plan.needs)?;
        let is_routed = route_of(&planned.plan, &mut env)?.is_some();
        let mut lines = Vec::new();
        if runs {
            let planning = began.elapsed();
            let profile = Arc::new(Profile::default());
            planned.profile = Some(Arc::clone(&profile));
            let began = Instant::now();
            let ends = self.kind == Kind::None;
            self.run(&planned, Arc::from([]), Arc::from([]), ends).await?;
            let took = [("Planning", planning), ("Execution", began.elapsed())];
            lines.append(&mut explain::lines(&planned.plan, is_routed, Some(&profile)));
            lines.extend(took.map(|(what, took)| format!("{what} Time: {:.3} ms", took.as_secs_f64() * 1e3)));
        } else {
            lines.append(&mut explain::lines(&planned.plan, is_routed, None));
        }
        let rows: Vec<Vec<Value>> = lines.into_iter().map(|line| vec![Value::from(line)]).collect();
        self.give_rows(&[text_column("QUERY PLAN")], &rows, "EXPLAIN", sink, describes)
    }

    /// Runs a statement that changes definitions, on a thread of its own.
    async fn define(
        &mut self,
        statement: &ast::Statement,
        text: &str,
        sink: &mut dyn Sink,
    ) -> Result<(), SqlError> {
        let is_alone = matches!(self.kind, Kind::None | Kind::Implicit);
        if !is_alone && self.open.is_some() && matches!(statement, ast::Statement::AlterTable(_)) {
            return Err(SqlError::new(
                SqlState::ACTIVE_SQL_TRANSACTION,
                "ALTER TABLE cannot run inside a transaction that has used a table",
            )
            .hint("Run it before, or in a transaction of its own."));
        }
        if is_alone && self.open.is_some() {
            // Statements of one simple query: what came before is committed, as the definition takes effect at once.
            self.end(true).await?;
        }
        let database = Arc::clone(&self.database);
        let (owned, text) = (statement.clone(), text.to_owned());
        let noted = self.open.is_none();
        if noted {
            self.noted.store(0, std::sync::atomic::Ordering::SeqCst);
        }
        // Another connection may have changed it.
        self.find_role();
        let ((_, role), session_role) = (self.current_role(), self.user_role);
        let done =
            blocking(move || Change { db: &database, text: &text, role, session_role }.run(&owned)).await?;
        for notice in &done.notices {
            sink.notice(notice);
        }
        if !is_alone {
            match done.undo {
                Some(undo) => self.undos.push(undo),
                None => {
                    let warning = SqlError::new(
                        SqlState::WARNING,
                        format!(
                            "{} has taken effect at once, and is not undone if the transaction is rolled back",
                            done.tag
                        ),
                    );
                    sink.notice(&warning.severity(Severity::Warning));
                }
            }
        }
        sink.complete(done.tag);
        Ok(())
    }
}

/// Returns true if EXPLAIN with these options runs the statement. Details that there are none of may be asked for or not.
fn explain_runs(
    analyze: bool,
    format: Option<&ast::AnalyzeFormatKind>,
    options: &[ast::UtilityOption],
) -> Result<bool, SqlError> {
    if let Some(format) = format {
        return Err(SqlError::unsupported(format!("EXPLAIN with the format {format}")));
    }
    let mut runs = analyze;
    for option in options {
        let value = option.arg.as_ref().map(|arg| setting_value(arg).to_lowercase());
        let is_on = match value.as_deref() {
            None | Some("on" | "true" | "1") => true,
            Some("off" | "false" | "0") => false,
            Some("text") if option.name.value.eq_ignore_ascii_case("format") => true,
            Some(other) => {
                return Err(SqlError::unsupported(format!("EXPLAIN with {} {other}", option.name.value)));
            }
        };
        match &option.name.value.to_lowercase()[..] {
            "analyze" => runs = is_on,
            "verbose" | "costs" | "settings" | "buffers" | "wal" | "timing" | "summary" | "format" => {}
            other => {
                return Err(SqlError::new(
                    SqlState::SYNTAX_ERROR,
                    format!("unrecognized EXPLAIN option \"{other}\""),
                ));
            }
        }
    }
    Ok(runs)
}

/// The text of a value that a setting is set to.
fn setting_value(value: &ast::Expr) -> String {
    match value {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(text) => text.clone(),
            other => other.to_string(),
        },
        ast::Expr::Identifier(name) => name.value.clone(),
        other => other.to_string(),
    }
}
