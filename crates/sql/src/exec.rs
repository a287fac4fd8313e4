//! The executor: runs a plan inside of a transaction, on the transaction's home.
//!
//! Owns: the order in which the nodes of a plan are run, and what is kept of rows between them: a node's rows are all there before
//! the next node begins. Never: decides whether a transaction commits.
//!
//! A scan evaluates its filter on the owner of the rows, and only the columns that are read leave it. A change of a row by its key is
//! one action on the owner, which evaluates its expressions there. Statements on no table run without a transaction.

mod conflicts;
mod locked;
mod output;
mod profile;
mod query;
mod scan;
mod together;
mod window;
mod writes;

use std::borrow::Cow;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use atrapos::{Abort, AbortReason, DynRow, Tx};
use futures_timer::Delay;

use crate::cancel::Cancel;
use crate::error::{SqlError, SqlState};
use crate::expr::{Env, Expr, Row, Subquery};
use crate::format::Format;
use crate::functions::{NEEDS_BLOCK, NEEDS_LOCK, NEEDS_SET, nothing, out_of_place};
use crate::plan::{Plan, Work};
use crate::schema::TableEntry;
use crate::sequences::Sequences;
use crate::types::Modifier;
use crate::value::Value;

pub(crate) use output::{Answer, encode_rows};
pub(crate) use profile::Profile;
pub(crate) use scan::key_of;
pub(crate) use together::{Ran, run_all};
pub(crate) use writes::{duplicate, explain_row, insert_all, stored};

/// A future on a worker, in a box: nodes contain nodes.
type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T, Fail>> + 'a>>;

/// The reasons for which a statement has failed.
#[derive(Debug)]
pub(crate) enum Fail {
    /// The statement itself was wrong.
    Sql(SqlError),
    /// The engine has aborted the transaction.
    Abort(Abort),
}

impl From<SqlError> for Fail {
    fn from(error: SqlError) -> Fail {
        Fail::Sql(out_of_place(error))
    }
}

impl From<Abort> for Fail {
    fn from(abort: Abort) -> Fail {
        Fail::Abort(abort)
    }
}

/// All that a statement needs to be run, any number of times.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) plan: Arc<Plan>,
    pub(crate) env: Env,
    pub(crate) formats: Arc<[Format]>,
    pub(crate) cancel: Arc<Cancel>,
    pub(crate) sequences: Arc<Sequences>,
    pub(crate) max_bytes: usize,
    pub(crate) profile: Option<Arc<Profile>>,
}

impl Request {
    /// Runs the statement; gives up when it is cancelled. `ahead` is what was looked up already of a statement that
    /// [reads one row](Plan::one_read).
    pub(crate) async fn run(
        &self,
        tx: Option<&mut Tx<'_>>,
        ahead: Option<Option<DynRow>>,
    ) -> Result<Answer, Fail> {
        let mut exec = Exec {
            tx,
            plan: &self.plan,
            env: Cow::Borrowed(&self.env),
            cancel: &self.cancel,
            sequences: &self.sequences,
            ticks: 0,
            ahead,
            profile: self.profile.as_ref(),
        };
        exec.env.session.begin_attempt();
        if self.plan.subqueries > 0 {
            exec.env.to_mut().subqueries = vec![None; self.plan.subqueries];
        }
        self.cancel.until(exec.work(self)).await
    }

    /// Runs a statement on no table at once, on any thread; `None` if it has to wait, for a sequence to reserve numbers, and is to be
    /// run by a worker.
    pub(crate) fn run_here(&self) -> Option<Result<Answer, SqlError>> {
        let mut context = Context::from_waker(Waker::noop());
        match pin!(self.run(None, None)).poll(&mut context) {
            Poll::Pending => None,
            Poll::Ready(Ok(answer)) => Some(Ok(answer)),
            Poll::Ready(Err(Fail::Sql(error))) => Some(Err(error)),
            Poll::Ready(Err(Fail::Abort(abort))) => Some(Err(SqlError::of_abort(&abort))),
        }
    }
}

/// The failure of a procedure: a reason of its own is told as one, and not as the engine's.
fn raised(abort: Abort) -> Fail {
    match abort.reason() {
        AbortReason::User => Fail::Sql(SqlError::new(SqlState::RAISE_EXCEPTION, abort.detail())),
        _ => Fail::Abort(abort),
    }
}

/// A statement that runs.
struct Exec<'t, 'w> {
    tx: Option<&'t mut Tx<'w>>,
    plan: &'t Arc<Plan>,
    /// That of the request, until rows of subqueries are added to it.
    env: Cow<'t, Env>,
    cancel: &'t Arc<Cancel>,
    sequences: &'t Arc<Sequences>,
    /// Counts rows between looks at whether the statement was cancelled.
    ticks: u32,
    /// The row that was looked up ahead of the statement, or that there is none; nothing if it was not looked up.
    ahead: Option<Option<DynRow>>,
    /// The place for measures of the parts of the plan, if they are asked for.
    profile: Option<&'t Arc<Profile>>,
}

/// The tag of TRUNCATE.
pub(crate) const TRUNCATED: &str = "TRUNCATE TABLE";

/// Rows after which a statement lets others run on its worker, and on the owners of what it reads.
const SLICE: u32 = 8192;

/// The most rows that a node may have at a time.
const MAX_ROWS: usize = 50_000_000;

/// The error for a statement with too many rows in memory.
#[cold]
pub(crate) fn too_many_rows() -> SqlError {
    SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "the statement has too many rows in memory")
        .hint("Narrow it down, or give it a LIMIT.")
}

impl<'w> Exec<'_, 'w> {
    async fn work(&mut self, request: &Request) -> Result<Answer, Fail> {
        let plan = self.plan;
        for table in &plan.tables {
            if table.is_closed.load(Ordering::SeqCst) {
                return Err(Abort::explained(
                    AbortReason::TableChanged,
                    format!("table \"{}\" is being changed", table.name),
                )
                .into());
            }
        }
        // In boxes: a query shall not carry the room that writes need.
        let (rows, tag) = match &plan.work {
            Work::Query(query) => {
                let rows = self.rows(&query.root, None).await?;
                if self.plan.changes_session {
                    self.sleep_if_asked().await;
                }
                let tag = Answer::tag_of_rows(rows.len());
                return self.answer(request, Some(rows), tag);
            }
            Work::Insert(insert) => {
                let (count, rows) = Box::pin(self.insert(insert)).await?;
                (rows, Answer::tag_of_changes("INSERT 0", count, "INSERT 0 1"))
            }
            Work::Update(update) => {
                let (count, rows) = Box::pin(self.update(update)).await?;
                (rows, Answer::tag_of_changes("UPDATE", count, "UPDATE 1"))
            }
            Work::Delete(delete) => {
                let (count, rows) = Box::pin(self.delete(delete)).await?;
                (rows, Answer::tag_of_changes("DELETE", count, "DELETE 1"))
            }
            Work::Truncate(tables) => {
                for table in tables {
                    Box::pin(self.truncate(table)).await?;
                }
                (None, Cow::Borrowed(TRUNCATED))
            }
            Work::Call(call) => {
                let call = match self.env.call.clone() {
                    Some(prepared) => prepared,
                    None => call.prepare(&self.env)?,
                };
                let result = call.run(self.tx()?).await.map_err(raised)?;
                (Some(vec![vec![Value::from(result)]]), Cow::Borrowed("CALL"))
            }
        };
        self.sleep_if_asked().await;
        self.answer(request, rows, tag)
    }

    /// Sleeps for as long as functions have asked for since the last time. It is in a box: hardly any statement needs the room.
    async fn sleep_if_asked(&mut self) {
        if self.env.session.taken.is_to_sleep() {
            let _asleep = self.cancel.falls_asleep();
            let delay = Delay::new(self.env.session.taken.take_sleep());
            Box::pin(self.wait(delay)).await;
        }
    }

    fn answer(
        &self,
        request: &Request,
        rows: Option<Vec<Row>>,
        tag: Cow<'static, str>,
    ) -> Result<Answer, Fail> {
        let Some(rows) = rows else { return Ok(Answer::of_tag(tag)) };
        let columns = self.plan.columns().unwrap_or_default();
        let messages = encode_rows(&rows, columns, &request.formats, &self.env.schema, request.max_bytes)?;
        Ok(Answer { messages, count: rows.len(), ..Answer::of_tag(tag) })
    }

    fn tx(&mut self) -> Result<&mut Tx<'w>, Fail> {
        match &mut self.tx {
            Some(tx) => Ok(tx),
            None => Err(Fail::Sql(SqlError::new(
                SqlState::INTERNAL_ERROR,
                "a table is read outside of a transaction",
            ))),
        }
    }

    /// Counts a row, and looks now and then at whether the statement was cancelled. Returns true if others are to run now.
    fn tick(&mut self) -> Result<bool, SqlError> {
        self.ticks = self.ticks.wrapping_add(1);
        if self.ticks.is_multiple_of(1024) {
            self.cancel.check_time()?;
        }
        Ok(self.ticks.is_multiple_of(SLICE))
    }

    /// Lets others run on the worker.
    async fn pause(&mut self) {
        if let Some(tx) = &mut self.tx {
            tx.yield_now().await;
        }
    }

    /// Waits for something outside of the transaction.
    async fn wait<R>(&mut self, future: impl Future<Output = R>) -> R {
        match &mut self.tx {
            Some(tx) => tx.wait_for(future).await,
            None => future.await,
        }
    }

    /// Runs the subqueries in expressions that have not been run yet, or depend on the row.
    async fn resolve(&mut self, subqueries: &[Arc<Subquery>], row: &[Value]) -> Result<(), Fail> {
        for subquery in subqueries {
            if !subquery.is_correlated && self.env.subqueries[subquery.slot].is_some() {
                continue;
            }
            self.env.to_mut().outer.push(Arc::new(row.to_vec()));
            let rows = self.rows(&subquery.query.root, None).await;
            self.env.to_mut().outer.pop();
            self.env.to_mut().subqueries[subquery.slot] = Some(Arc::new(rows?));
        }
        Ok(())
    }

    /// Evaluates expressions for a row; waits while a sequence reserves numbers.
    async fn eval_all(&mut self, exprs: &[Expr], row: &[Value]) -> Result<Row, Fail> {
        let mut values = Vec::with_capacity(exprs.len());
        for expr in exprs {
            values.push(match expr.eval(&self.env, row) {
                Ok(value) => value,
                Err(error) => self.eval_waiting(expr, row, error).await?,
            });
            self.sleep_if_asked().await;
        }
        Ok(values)
    }

    /// Evaluates an expression that has failed with `error`, as often as that is because of a sequence.
    #[cold]
    async fn eval_waiting(&mut self, expr: &Expr, row: &[Value], mut error: SqlError) -> Result<Value, Fail> {
        loop {
            let sequences = Arc::clone(self.sequences);
            let schema = Arc::clone(&self.env.schema);
            if error.code == NEEDS_BLOCK {
                let sequence = Arc::clone(schema.sequence(&error.message)?);
                self.wait(sequences.reserve(&sequence)).await?;
            } else if error.code == NEEDS_SET {
                let detail = error.detail.as_deref().unwrap_or("");
                let (number, is_called) = detail.split_once(' ').unwrap_or(("0", "0"));
                let sequence = Arc::clone(schema.sequence(&error.message)?);
                let number: i64 = number.parse().unwrap_or(0);
                self.wait(sequences.set(&sequence, number, is_called == "1")).await?;
                // The value of an expression that sets a sequence is the number, whatever is around the call.
                return Ok(Value::Int(number));
            } else if error.code == NEEDS_LOCK
                && let Some(wanted) = self.env.session.taken.wanted()
            {
                let session = Arc::clone(&self.env.session);
                self.wait(session.connections.advisory.lock(session.process_id, wanted)).await;
                session.taken.has_locked(wanted);
                return Ok(nothing());
            } else {
                return Err(error.into());
            }
            match expr.eval(&self.env, row) {
                Ok(value) => return Ok(value),
                Err(again) => error = again,
            }
        }
    }
}

/// Checks a new row of a table: what may not be NULL, and the conditions of the table.
pub(crate) fn check_row(
    table: &TableEntry,
    checks: &[(String, Expr)],
    env: &Env,
    row: &[Value],
) -> Result<(), SqlError> {
    for (column, value) in table.columns.iter().zip(row) {
        if column.not_null && value.is_null() {
            return Err(SqlError::new(
                SqlState::NOT_NULL_VIOLATION,
                format!(
                    "null value in column \"{}\" of relation \"{}\" violates not-null constraint",
                    column.name, table.name
                ),
            )
            .detail(format!("Failing row contains ({}).", shown_row(table, row)))
            .table(&table.name)
            .column(&column.name));
        }
    }
    for (name, check) in checks {
        // A condition that is NULL is met.
        if matches!(check.eval(env, row)?, Value::Bool(false)) {
            return Err(SqlError::new(
                SqlState::CHECK_VIOLATION,
                format!("new row for relation \"{}\" violates check constraint \"{name}\"", table.name),
            )
            .detail(format!("Failing row contains ({}).", shown_row(table, row)))
            .table(&table.name)
            .constraint(name));
        }
    }
    Ok(())
}

fn shown_row(table: &TableEntry, row: &[Value]) -> String {
    let shown = |(column, value): (&crate::schema::ColumnEntry, &Value)| {
        if value.is_null() { "null".to_owned() } else { crate::format::text_of(value, column.ty) }
    };
    table.columns.iter().zip(row).map(shown).collect::<Vec<_>>().join(", ")
}

/// The text of a value with the spaces that pad it in a column of its type.
pub(crate) fn padding(value: &str, modifier: Modifier) -> usize {
    match modifier {
        Modifier::Length(length) => (length as usize).saturating_sub(value.chars().count()),
        _ => 0,
    }
}
