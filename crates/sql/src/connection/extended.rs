//! The extended protocol: prepared statements and portals.
//!
//! Futures of what is rare are in boxes of their own: inside of a statement's they would make it several KiB, which are copied for
//! each of them.

use std::sync::Arc;

use sqlparser::ast;

use super::pipeline::Deferred;
use super::planning::{CachedPlan, MAX_CACHED_TEXT, is_planned};
use super::running::{give, message_length, wait_before};
use super::{Connection, Kind, PortalDescription, StatementDescription};
use crate::cast::cast;
use crate::error::{SqlError, SqlState};
use crate::exec::Answer;
use crate::format::{Format, decode};
use crate::sink::{Column, Sink};
use crate::types::{Modifier, SqlType};
use crate::value::Value;

/// A prepared statement.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) text: Arc<str>,
    /// None for an empty text.
    pub(super) statement: Option<ast::Statement>,
    /// None for a statement that becomes no plan.
    pub(super) plan: Option<CachedPlan>,
    /// The types of parameters that the client has given.
    given: Vec<Option<SqlType>>,
    columns: Option<Vec<Column>>,
}

/// A statement that was prepared, and may be again: by clients that prepare each statement anew, without a name.
#[derive(Debug)]
pub(super) struct Known {
    /// The numbers of the types that its client has given.
    types: Vec<u32>,
    prepared: Arc<Prepared>,
}

/// The most statements that a connection knows by their texts.
const MAX_KNOWN: usize = 128;

/// A portal.
#[derive(Debug)]
pub(super) struct Portal {
    prepared: Arc<Prepared>,
    pub(super) params: Arc<[Value]>,
    formats: Arc<[Format]>,
    /// The answer, and how many bytes of its rows have been given.
    pub(super) answer: Option<(Answer, usize, usize)>,
    /// Set once the statement waits for those behind it: its answer is given when it has run.
    is_deferred: bool,
}

/// The message that has arrived behind an Execute, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// Nothing yet.
    Nothing,
    /// A message that is no Sync.
    Message,
    /// A Sync: the implicit transaction ends with this statement, in one step with it.
    Sync,
}

impl Connection {
    /// Prepares a statement; an empty name replaces the unnamed one. A parameter's type of 0 (or none given) is inferred.
    ///
    /// # Errors
    /// A text that is no statement, or more than one; names that do not exist; a name of a statement that is taken.
    pub async fn parse(&mut self, name: &str, text: &str, types: &[u32]) -> Result<(), SqlError> {
        let done = self.prepare(name, text, types).await;
        self.checked(done).await
    }

    /// Fails the transaction after an error, unless statements wait, which have come before it ([`fail`](Connection::fail)).
    pub(super) async fn checked<T>(&mut self, done: Result<T, SqlError>) -> Result<T, SqlError> {
        if done.is_err() && self.deferred.is_empty() {
            Box::pin(self.fail_transaction()).await;
        }
        done
    }

    async fn prepare(&mut self, name: &str, text: &str, types: &[u32]) -> Result<(), SqlError> {
        if let Some(known) = self.known(text, types) {
            self.refuse_taken(name)?;
            self.refuse_failed()?;
            self.statements.insert(name, known);
            return Ok(());
        }
        Box::pin(self.prepare_new(name, text, types)).await
    }

    /// Prepares a statement that is not known.
    async fn prepare_new(&mut self, name: &str, text: &str, types: &[u32]) -> Result<(), SqlError> {
        let mut statements = crate::parse::statements(text)?;
        if statements.len() > 1 {
            return Err(SqlError::new(
                SqlState::SYNTAX_ERROR,
                "cannot insert multiple commands into a prepared statement",
            ));
        }
        let given: Result<Vec<Option<SqlType>>, SqlError> = types
            .iter()
            .map(|oid| match oid {
                0 | 705 => Ok(None),
                oid => SqlType::from_oid(*oid).map(Some).ok_or_else(|| {
                    SqlError::unsupported(format!("a parameter of the type with number {oid}"))
                }),
            })
            .collect();
        self.prepare_statement(name, text, statements.pop(), given?).await?;
        self.note_known(name, text, types);
        Ok(())
    }

    /// The statement that was prepared of this text, with these types, and whose plan is still the current one.
    fn known(&self, text: &str, types: &[u32]) -> Option<Arc<Prepared>> {
        let known = self.known.get(text).filter(|known| known.types == types)?;
        let is_current =
            known.prepared.plan.as_ref().is_some_and(|plan| plan.version == self.schema_version());
        is_current.then(|| Arc::clone(&known.prepared))
    }

    /// Notes a statement, to be found when its text is prepared again.
    fn note_known(&mut self, name: &str, text: &str, types: &[u32]) {
        let prepared = self.statements.get(name).filter(|prepared| prepared.plan.is_some());
        let Some(prepared) = prepared.filter(|_| text.len() <= MAX_CACHED_TEXT).cloned() else { return };
        if self.known.len() >= MAX_KNOWN && !self.known.contains_key(text) {
            self.known.clear();
        }
        self.known.insert(text.to_owned(), Known { types: types.to_vec(), prepared });
    }

    /// Prepares the statement without a name as [`parse`](Connection::parse) does, if that is possible at once: its text is known.
    /// Otherwise it returns false, and nothing has happened.
    pub fn parse_at_once(&mut self, text: &str, types: &[u32]) -> bool {
        let known = self.known(text, types).filter(|_| self.kind != Kind::Failed);
        known.map(|known| self.statements.insert("", known)).is_some()
    }

    fn refuse_taken(&self, name: &str) -> Result<(), SqlError> {
        if name.is_empty() || self.statements.get(name).is_none() {
            return Ok(());
        }
        let why = format!("prepared statement \"{name}\" already exists");
        Err(SqlError::new(SqlState::DUPLICATE_PREPARED_STATEMENT, why))
    }

    /// Keeps a statement under a name.
    pub(super) async fn prepare_statement(
        &mut self,
        name: &str,
        text: &str,
        statement: Option<ast::Statement>,
        given: Vec<Option<SqlType>>,
    ) -> Result<(), SqlError> {
        self.refuse_taken(name)?;
        let (mut plan, mut columns) = (None, None);
        if let Some(statement) = &statement {
            if !ends_transaction(statement) {
                self.refuse_failed()?;
            }
            if is_planned(statement) {
                let planned = self.plan(statement, text, &given, false).await?;
                columns = planned.columns.as_ref().map(|columns| columns.to_vec());
                plan = Some(planned);
            } else {
                columns = self.columns_of_utility(statement);
            }
        }
        let prepared = Prepared { text: Arc::from(text), statement, plan, given, columns };
        self.statements.insert(name, Arc::new(prepared));
        Ok(())
    }

    fn prepared(&self, name: &str) -> Result<&Arc<Prepared>, SqlError> {
        self.statements.get(name).ok_or_else(|| {
            let shown = if name.is_empty() {
                "unnamed prepared statement".to_owned()
            } else {
                format!("prepared statement \"{name}\"")
            };
            SqlError::new(SqlState::INVALID_SQL_STATEMENT_NAME, format!("{shown} does not exist"))
        })
    }

    /// The plan of a prepared statement, with its columns.
    pub(super) async fn prepared_plan(
        &mut self,
        name: &str,
    ) -> Result<(CachedPlan, Option<Vec<Column>>), SqlError> {
        let mut prepared = Arc::clone(self.prepared(name)?);
        if let (Some(plan), Some(tree)) = (&prepared.plan, &prepared.statement)
            && plan.version != self.schema_version()
        {
            prepared = self.prepare_again(name, &prepared, tree.clone()).await?;
        }
        match &prepared.plan {
            Some(plan) => Ok((plan.clone(), prepared.columns.clone())),
            None => Err(SqlError::unsupported("EXECUTE of a statement that reads or changes no rows")),
        }
    }

    /// The columns of a prepared statement, if there is one of this name.
    pub(super) fn prepared_columns(&self, name: &str) -> Option<Vec<Column>> {
        self.prepared(name).ok()?.columns.clone()
    }

    /// Describes a prepared statement.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn describe_statement(&self, name: &str) -> Result<StatementDescription, SqlError> {
        let prepared = self.prepared(name)?;
        let parameters = prepared.plan.as_ref().map_or_else(Vec::new, |plan| plan.types.to_vec());
        Ok(StatementDescription { parameters, columns: prepared.columns.clone() })
    }

    /// Makes a portal of a prepared statement and parameters, each `None` for NULL. `formats` of parameters and results have no
    /// element (all text), one for all, or one for each, as in the protocol.
    ///
    /// # Errors
    /// Parameters that are too few, too many or no values of their types; a name that is taken or does not exist.
    pub async fn bind(
        &mut self,
        portal: &str,
        statement: &str,
        parameters: &[Option<&[u8]>],
        formats: &[Format],
        result_formats: &[Format],
    ) -> Result<(), SqlError> {
        let done = self.make_portal(portal, statement, parameters, formats, result_formats).await;
        self.checked(done).await
    }

    async fn make_portal(
        &mut self,
        portal: &str,
        statement: &str,
        parameters: &[Option<&[u8]>],
        formats: &[Format],
        result_formats: &[Format],
    ) -> Result<(), SqlError> {
        if !portal.is_empty() && self.portals.get(portal).is_some() {
            return Err(SqlError::new(
                SqlState::DUPLICATE_CURSOR,
                format!("portal \"{portal}\" already exists"),
            ));
        }
        let mut prepared = Arc::clone(self.prepared(statement)?);
        if !prepared.statement.as_ref().is_none_or(ends_transaction) {
            self.refuse_failed()?;
        }
        let version = self.schema_version();
        if let (Some(plan), Some(tree)) = (&prepared.plan, &prepared.statement)
            && plan.version != version
        {
            prepared = Box::pin(self.prepare_again(statement, &prepared, tree.clone())).await?;
        }
        let made = self.bound(prepared, statement, parameters, formats, result_formats)?;
        self.portals.insert(portal, made);
        Ok(())
    }

    /// Makes the portal without a name as [`bind`](Connection::bind) does, if that is possible at once: nothing is wrong, and nothing has
    /// to be planned again. Otherwise it returns false, and nothing has happened.
    pub fn bind_at_once(
        &mut self,
        statement: &str,
        parameters: &[Option<&[u8]>],
        formats: &[Format],
        result_formats: &[Format],
    ) -> bool {
        let Some(prepared) = self.statements.get(statement).cloned() else { return false };
        let is_current = prepared.plan.as_ref().is_none_or(|plan| plan.version == self.schema_version());
        if !is_current || self.kind == Kind::Failed {
            return false;
        }
        let made = self.bound(prepared, statement, parameters, formats, result_formats);
        made.map(|made| self.portals.insert("", made)).is_ok()
    }

    /// The portal of a statement whose plan is the current one.
    fn bound(
        &mut self,
        prepared: Arc<Prepared>,
        statement: &str,
        parameters: &[Option<&[u8]>],
        formats: &[Format],
        result_formats: &[Format],
    ) -> Result<Portal, SqlError> {
        let types: &[SqlType] = prepared.plan.as_ref().map_or(&[], |plan| &plan.types);
        if types.len() != parameters.len() {
            return Err(SqlError::new(
                SqlState::PROTOCOL_VIOLATION,
                format!(
                    "bind message supplies {} parameters, but prepared statement \"{statement}\" requires {}",
                    parameters.len(),
                    types.len()
                ),
            ));
        }
        check_formats(formats, parameters.len(), "parameter")?;
        check_formats(result_formats, prepared.columns.as_ref().map_or(0, Vec::len), "result")?;
        let value = |(at, (parameter, ty)): (usize, (&Option<&[u8]>, &SqlType))| match parameter {
            None => Ok(Value::Null),
            Some(bytes) => match decode(bytes, *ty, Format::of(formats, at))? {
                // The name of an object stands for its number.
                Value::Text(name) if ty.is_oid() => {
                    cast(Value::Text(name), SqlType::Text, *ty, Modifier::None, true, &self.schema())
                }
                value => Ok(value),
            },
        };
        let mut wrong = None;
        let all = parameters.iter().zip(types).enumerate().map(value);
        let params: Arc<[Value]> = all
            .map(|value| {
                value.unwrap_or_else(|error| {
                    wrong.get_or_insert(error);
                    Value::Null
                })
            })
            .collect();
        if let Some(error) = wrong {
            return Err(error);
        }
        if *self.last_formats != *result_formats {
            self.last_formats = result_formats.into();
        }
        let formats = Arc::clone(&self.last_formats);
        Ok(Portal { prepared, params, formats, answer: None, is_deferred: false })
    }

    /// Makes the plan of a prepared statement anew, for another schema.
    ///
    /// # Errors
    /// When its columns would not be of the types that the client was told.
    pub(super) async fn plan_anew(
        &mut self,
        old: &Prepared,
        statement: &ast::Statement,
    ) -> Result<CachedPlan, SqlError> {
        let types: Vec<Option<SqlType>> = old
            .plan
            .as_ref()
            .map_or_else(|| old.given.clone(), |plan| plan.types.iter().copied().map(Some).collect());
        let planned = self.plan(statement, &old.text, &types, false).await?;
        same_columns(planned.columns.as_deref(), old.columns.as_deref())?;
        Ok(planned)
    }

    /// Plans a prepared statement again, for another schema.
    async fn prepare_again(
        &mut self,
        name: &str,
        old: &Prepared,
        statement: ast::Statement,
    ) -> Result<Arc<Prepared>, SqlError> {
        let planned = self.plan_anew(old, &statement).await?;
        let columns = planned.columns.as_ref().map(|columns| columns.to_vec());
        let again = Arc::new(Prepared {
            text: Arc::clone(&old.text),
            statement: Some(statement),
            plan: Some(planned),
            given: old.given.clone(),
            columns,
        });
        self.statements.insert(name, Arc::clone(&again));
        Ok(again)
    }

    fn portal(&mut self, name: &str) -> Result<&mut Portal, SqlError> {
        self.portals.get_mut(name).ok_or_else(|| no_portal(name))
    }

    /// The text of a portal's statement; `None` if there is no portal of this name.
    #[must_use]
    pub fn portal_text(&self, name: &str) -> Option<&str> {
        self.portals.get(name).map(|portal| &*portal.prepared.text)
    }

    /// Describes a portal.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn describe_portal(&self, name: &str) -> Result<PortalDescription<'_>, SqlError> {
        let portal = self.portals.get(name).ok_or_else(|| no_portal(name))?;
        Ok(PortalDescription { columns: portal.prepared.columns.as_deref(), formats: &portal.formats })
    }

    /// Runs a portal, or goes on with it, for at most `limit` rows; 0: all. With messages behind it a statement may wait and be run with
    /// what they run: whoever serves the connection calls [`run_deferred`](Connection::run_deferred) before it waits for the client. The
    /// sink is not given a row description.
    ///
    /// # Errors
    /// The error of the statement, or of one that waited.
    pub async fn execute(
        &mut self,
        portal: &str,
        limit: usize,
        behind: Behind,
        sink: &mut dyn Sink,
    ) -> Result<(), SqlError> {
        if let Some(statement) = self.deferrable(portal, limit, behind) {
            return Box::pin(self.defer(statement, behind, sink)).await;
        }
        if self.has_deferred() {
            Box::pin(self.run_deferred(sink)).await?;
        }
        let ends = behind == Behind::Sync;
        self.cancel.begin(self.settings.limits().statement);
        if let Some(portal) = self.portals.get(portal) {
            self.activity.begins(&portal.prepared.text);
        }
        let done = self.execute_portal(portal, limit, ends, sink).await;
        let done = self.checked(done).await;
        self.tell_activity();
        done
    }

    /// Returns true if an Execute of this portal may wait with the statements that wait already.
    #[must_use]
    pub fn may_wait(&self, name: &str, limit: usize) -> bool {
        // Nobody else asks for the rows of the portal.
        limit == 0
            && name.is_empty()
            && self.kind != Kind::Failed
            && self.portals.get(name).is_some_and(|portal| {
                let is_new = !portal.is_deferred && portal.answer.is_none();
                is_new && portal.prepared.plan.as_ref().is_some_and(|plan| plan.plan.is_together())
            })
    }

    /// The statement of a portal if it may wait, and something is behind it or before it.
    pub(super) fn deferrable(&mut self, name: &str, limit: usize, behind: Behind) -> Option<Deferred> {
        let is_joined = behind == Behind::Message || self.has_deferred();
        if !is_joined || !self.may_wait(name, limit) {
            return None;
        }
        let portal = self.portals.get_mut(name)?;
        portal.is_deferred = true;
        Some(Deferred {
            prepared: Arc::clone(&portal.prepared),
            params: Arc::clone(&portal.params),
            formats: Arc::clone(&portal.formats),
        })
    }

    async fn execute_portal(
        &mut self,
        name: &str,
        limit: usize,
        ends: bool,
        sink: &mut dyn Sink,
    ) -> Result<(), SqlError> {
        let portal = self.portal(name)?;
        if portal.is_deferred && portal.answer.is_none() {
            let why = format!("portal \"{name}\" cannot be run");
            return Err(SqlError::new(SqlState("55000"), why));
        }
        if portal.answer.is_none() {
            let (prepared, params, formats) =
                (Arc::clone(&portal.prepared), Arc::clone(&portal.params), Arc::clone(&portal.formats));
            let Some(statement) = &prepared.statement else {
                sink.empty_query();
                return Ok(());
            };
            let Some(planned) = &prepared.plan else {
                if formats.contains(&Format::Binary) && prepared.columns.is_some() {
                    return Err(SqlError::unsupported("the binary format of this statement's answer"));
                }
                return Box::pin(self.utility(statement, &prepared.text, sink, false)).await;
            };
            // A portal that may be asked for more rows later belongs to a transaction that lasts.
            let ends = ends && limit == 0;
            if !ends && self.kind == Kind::None {
                self.kind = Kind::Implicit;
            }
            let (mut attempt, mut planned) = (0, planned.clone());
            let answer = loop {
                let done = self.run(&planned, Arc::clone(&params), Arc::clone(&formats), ends).await;
                match done {
                    Err(error) if ends && Self::may_try_again(&error, attempt) => {
                        attempt += 1;
                        Box::pin(wait_before(attempt)).await?;
                    }
                    done => break done?,
                }
                planned = Box::pin(self.plan_anew(&prepared, statement)).await?;
            };
            if self.kind == Kind::None {
                give(&answer.messages, answer.count, sink).await?;
                sink.complete(&answer.tag);
                self.portals.remove(name);
                return Ok(());
            }
            self.portal(name)?.answer = Some((answer, 0, 0));
        }
        self.give_part(name, limit, sink).await
    }

    /// Gives the next rows of a portal.
    async fn give_part(&mut self, name: &str, limit: usize, sink: &mut dyn Sink) -> Result<(), SqlError> {
        let portal = self.portal(name)?;
        let has_rows = portal.prepared.columns.is_some();
        let Some((answer, start, given)) = &mut portal.answer else { return Ok(()) };
        let (mut end, mut rows) = (*start, 0);
        if limit == 0 {
            (end, rows) = (answer.messages.len(), answer.count - *given);
        } else {
            while end < answer.messages.len() && rows < limit {
                end += message_length(&answer.messages[end..]);
                rows += 1;
            }
        }
        give(&answer.messages[*start..end], rows, sink).await?;
        (*start, *given) = (end, *given + rows);
        if has_rows && limit != 0 && rows == limit {
            sink.portal_suspended();
        } else if answer.tag.starts_with("SELECT") {
            // The tag counts the rows of this call.
            sink.complete(&format!("SELECT {rows}"));
        } else {
            sink.complete(&answer.tag);
        }
        Ok(())
    }

    /// Forgets a prepared statement; one that does not exist is none.
    pub fn close_statement(&mut self, name: &str) {
        self.statements.remove(name);
    }

    /// Forgets a portal; one that does not exist is none.
    pub fn close_portal(&mut self, name: &str) {
        self.portals.remove(name);
    }

    /// Fails the transaction for an error of a message, and runs what has come before that message and waits; returns the error that came
    /// first. Errors of methods of the extended protocol are passed through here.
    pub async fn fail(&mut self, error: SqlError, sink: &mut dyn Sink) -> SqlError {
        let first = self.run_deferred(sink).await.err();
        self.fail_transaction().await;
        first.unwrap_or(error)
    }

    /// Ends the implicit transaction of the extended protocol, with the statements that wait: at a Sync, after an error too.
    ///
    /// # Errors
    /// That of a statement that waited; when the transaction could not commit.
    pub async fn sync(&mut self, sink: &mut dyn Sink) -> Result<(), SqlError> {
        let mut done = Ok(());
        if self.has_deferred() {
            done = Box::pin(self.run_waiting(true, sink)).await;
        }
        if done.is_ok() {
            done = self.end_implicit(true).await;
        }
        self.tell_activity();
        done
    }
}

/// Refuses a plan whose columns are not of the types that the client was told.
fn same_columns(new: Option<&[Column]>, told: Option<&[Column]>) -> Result<(), SqlError> {
    let is_same = match (new, told) {
        (Some(new), Some(told)) => new.iter().map(|column| column.ty).eq(told.iter().map(|column| column.ty)),
        (new, told) => new.is_none() && told.is_none(),
    };
    if is_same {
        return Ok(());
    }
    Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "cached plan must not change result type"))
}

/// Returns true for a statement that a failed transaction takes.
pub(super) fn ends_transaction(statement: &ast::Statement) -> bool {
    matches!(statement, ast::Statement::Commit { .. } | ast::Statement::Rollback { .. })
}

#[cold]
fn no_portal(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_CURSOR_NAME, format!("portal \"{name}\" does not exist"))
}

fn check_formats(formats: &[Format], count: usize, what: &str) -> Result<(), SqlError> {
    if formats.len() <= 1 || formats.len() == count {
        return Ok(());
    }
    Err(SqlError::new(
        SqlState::PROTOCOL_VIOLATION,
        format!("bind message has {} {what} formats but {count} are needed", formats.len()),
    ))
}
