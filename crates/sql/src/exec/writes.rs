//! Changes of rows.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use atrapos::catalog::Value as Stored;
use atrapos::{Abort, AbortReason, Action, DeleteRow, DisplayKey, DynRow, Revision, Tx};

use super::scan::{Found, decode, key_of};
use super::{Exec, Fail, check_row};
use crate::ddl::foreign::no_parent;
use crate::error::{SqlError, SqlState};
use crate::expr::{Env, Expr, Row, Subquery};
use crate::plan::{Access, Delete, Insert, Node, OutputColumn, Plan, Scan, Update, Work};
use crate::schema::{ForeignMeta, IndexEntry, Schema, TableEntry, to_key_part, to_stored};
use crate::value::Value;

pub(super) type Returned = Result<(usize, Option<Vec<Row>>), Fail>;

impl Exec<'_, '_> {
    pub(super) async fn insert(&mut self, insert: &Insert) -> Returned {
        let rows = self.rows(&insert.source, None).await?;
        if let Some(assignments) = &insert.on_conflict {
            return self.insert_or_update(insert, assignments, rows).await;
        }
        let (mut count, mut returned) = (0, Vec::new());
        // Rows that may refer to each other are checked when all of them are there.
        // Subqueries of RETURNING read the rows of before the statement, so nothing is written before the last one has.
        let looked_up = subqueries_of(insert.returning.as_ref());
        let is_whole = insert.table.refers_to_itself() || !looked_up.is_empty();
        let most = if is_whole { usize::MAX } else { BATCH };
        let mut batch = Vec::new();
        for source in rows {
            if self.tick()? {
                self.pause().await;
            }
            let row = self.eval_all(&insert.values, &source).await?;
            check_row(&insert.table, &insert.checks, &self.env, &row)?;
            self.resolve(&looked_up, &row).await?;
            self.return_row(insert.returning.as_ref(), &row, &mut returned)?;
            batch.push(row);
            count += 1;
            if batch.len() >= most {
                self.insert_rows(&insert.table, &batch).await?;
                batch.clear();
            }
        }
        self.insert_rows(&insert.table, &batch).await?;
        Ok((count, insert.returning.as_ref().map(|_| returned)))
    }

    pub(super) fn return_row(
        &self,
        returning: Option<&(Vec<Expr>, Vec<OutputColumn>)>,
        row: &[Value],
        returned: &mut Vec<Row>,
    ) -> Result<(), Fail> {
        if let Some((exprs, _)) = returning {
            let row: Result<Row, SqlError> = exprs.iter().map(|expr| expr.eval(&self.env, row)).collect();
            returned.push(row?);
        }
        Ok(())
    }

    /// The rows that a change returns, which are not written yet, if RETURNING has subqueries; else none.
    pub(super) async fn returned_before(
        &mut self,
        returning: Option<&(Vec<Expr>, Vec<OutputColumn>)>,
        rows: impl Iterator<Item = &Row>,
    ) -> Result<Option<Vec<Row>>, Fail> {
        let looked_up = subqueries_of(returning);
        if looked_up.is_empty() {
            return Ok(None);
        }
        let mut returned = Vec::new();
        for row in rows {
            if self.tick()? {
                self.pause().await;
            }
            self.resolve(&looked_up, row).await?;
            self.return_row(returning, row, &mut returned)?;
        }
        Ok(Some(returned))
    }

    pub(super) async fn update(&mut self, update: &Update) -> Returned {
        let table = &update.scan.table;
        let returned_exprs = update.returning.iter().flat_map(|(exprs, _)| exprs);
        let has_subqueries = update
            .assignments
            .iter()
            .map(|(_, expr)| expr)
            .chain(&update.scan.filter)
            .chain(returned_exprs)
            .any(|expr| !expr.subqueries().is_empty());
        if let Access::Key(values) = &update.scan.access
            && !has_subqueries
            && update.from.is_none()
            && !update.assignments.iter().any(|(column, _)| table.is_in_key(*column))
        {
            let Some(key) = key_of(table, values, &self.env)? else {
                return Ok((0, update.returning.as_ref().map(|_| Vec::new())));
            };
            return self.update_by_key(update, key).await;
        }
        // In a box: a change by a key needs no room for it.
        Box::pin(self.update_found(update)).await
    }

    /// Updates the rows that are found: all are, before any is written.
    async fn update_found(&mut self, update: &Update) -> Returned {
        let table = &update.scan.table;
        let found = self.found(&update.scan, update.from.as_ref()).await?;
        // Subqueries read the rows of before the statement, so all are evaluated before any is written.
        let changed = self.changed(update, found).await?;
        let rows = changed.iter().map(|found| &found.row);
        let before = self.returned_before(update.returning.as_ref(), rows).await?;
        let returning = if before.is_some() { None } else { update.returning.as_ref() };
        let (mut count, mut returned) = (0, before.unwrap_or_default());
        let moves = update.assignments.iter().any(|(column, _)| table.is_in_key(*column));
        let mut moved = Vec::new();
        for Found { key, row: new } in changed {
            if self.tick()? {
                self.pause().await;
            }
            self.return_row(returning, &new, &mut returned)?;
            count += 1;
            if moves {
                let gone = self.tx()?.delete(&table.handle, &key[..]).await;
                gone.map_err(|abort| explain(&self.env.schema, table, &[&new], abort))?;
                moved.push(new);
                continue;
            }
            let stored = stored_assignments(table, &update.assignments, &new);
            let set = move |_: &DynRow| Ok((Revision::Set(stored), ()));
            let done = self.tx()?.revise_row(&table.handle, &key, set).await;
            done.map_err(|abort| explain(&self.env.schema, table, &[&new], abort))?;
        }
        // Rows with new keys come when all old ones are gone: their keys may be those of others.
        self.insert_rows(table, &moved).await?;
        Ok((count, update.returning.as_ref().map(|_| returned)))
    }

    /// The rows as they are after the update.
    async fn changed(&mut self, update: &Update, found: Vec<Found>) -> Result<Vec<Found>, Fail> {
        let (columns, exprs): (Vec<usize>, Vec<Expr>) = update.assignments.iter().cloned().unzip();
        let subqueries: Vec<_> = exprs.iter().flat_map(Expr::subqueries).collect();
        let mut changed = Vec::with_capacity(found.len());
        for Found { key, mut row } in found {
            if self.tick()? {
                self.pause().await;
            }
            self.resolve(&subqueries, &row).await?;
            let values = self.eval_all(&exprs, &row).await?;
            for (column, value) in columns.iter().zip(values) {
                row[*column] = value;
            }
            check_row(&update.scan.table, &update.checks, &self.env, &row)?;
            changed.push(Found { key, row });
        }
        Ok(changed)
    }

    /// The rows that a statement changes, each once: of its scan, or the first columns of rows that are joined.
    async fn found(&mut self, scan: &Scan, joined: Option<&Node>) -> Result<Vec<Found>, Fail> {
        let Some(joined) = joined else { return self.find(scan, None, true).await };
        let Some(key) = scan.table.cluster_key() else { return Ok(Vec::new()) };
        let key: Vec<Expr> = key.columns.iter().map(|(column, _)| Expr::Column(*column)).collect();
        let (mut seen, mut found) = (HashSet::new(), Vec::new());
        for row in self.rows(joined, None).await? {
            self.tick()?;
            let values: Row = self.eval_all(&key, &row).await?;
            let consts: Vec<Expr> = values.iter().cloned().map(Expr::Const).collect();
            if seen.insert(values)
                && let Some(key) = key_of(&scan.table, &consts, &self.env)?
            {
                found.push(Found { key, row });
            }
        }
        Ok(found)
    }

    /// Updates one row by its key: one action on its owner.
    async fn update_by_key(&mut self, update: &Update, key: Vec<Stored>) -> Returned {
        let began = self.profile.as_ref().map(|_| Instant::now());
        let (plan, env) = (Arc::clone(self.plan), Env::clone(&self.env));
        let decide = move |stored: &DynRow| decide_update(&plan, &env, stored);
        let done = self.tx()?.revise_row(&update.scan.table.handle, &key, decide).await;
        let row = done.map_err(|abort| explain(&self.env.schema, &update.scan.table, &[], abort))?;
        let mut returned = Vec::new();
        let mut count = 0;
        if let Some(row) = row.transpose()?.flatten() {
            count = 1;
            self.return_row(update.returning.as_ref(), &row, &mut returned)?;
        }
        if let (Some(profile), Some(began)) = (self.profile, began) {
            profile.note(&update.scan, count, began);
        }
        Ok((count, update.returning.as_ref().map(|_| returned)))
    }

    pub(super) async fn delete(&mut self, delete: &Delete) -> Returned {
        let table = &delete.scan.table;
        let found = self.found(&delete.scan, delete.using.as_ref()).await?;
        let rows = found.iter().map(|found| &found.row);
        let before = self.returned_before(delete.returning.as_ref(), rows).await?;
        let returning = if before.is_some() { None } else { delete.returning.as_ref() };
        let (count, mut returned) = (found.len(), before.unwrap_or_default());
        let most = if table.refers_to_itself() { usize::MAX } else { BATCH };
        let mut deletions = Vec::new();
        for row in found {
            self.tick()?;
            self.return_row(returning, &row.row, &mut returned)?;
            deletions.push(table.handle.delete(&row.key)?);
            if deletions.len() >= most {
                self.delete_rows(table, std::mem::take(&mut deletions)).await?;
            }
        }
        self.delete_rows(table, deletions).await?;
        Ok((count, delete.returning.as_ref().map(|_| returned)))
    }

    /// Deletes rows in one phase: what refers to them is looked for when all of them are gone.
    async fn delete_rows(
        &mut self,
        table: &TableEntry,
        mut deletions: Vec<Action<DeleteRow>>,
    ) -> Result<(), Fail> {
        let tx = self.tx()?;
        let gone = match deletions.pop() {
            Some(only) if deletions.is_empty() => tx.run(only).await.map(drop),
            Some(last) => {
                deletions.push(last);
                tx.join_each(deletions, drop).await
            }
            None => Ok(()),
        };
        gone.map_err(|abort| explain(&self.env.schema, table, &[], abort))
    }

    /// Inserts rows that have been checked.
    pub(super) async fn insert_rows(&mut self, table: &TableEntry, rows: &[Row]) -> Result<(), Fail> {
        let done = insert_all(self.tx()?, table, rows).await;
        done.map_err(|abort| explain(&self.env.schema, table, &rows.iter().collect::<Vec<_>>(), abort))
    }

    /// Deletes all rows of a table.
    pub(super) async fn truncate(&mut self, table: &TableEntry) -> Result<(), Fail> {
        let all = table.handle.prefix(&[])?;
        let keys = self
            .tx()?
            .fold_rows(&table.handle, all, Vec::new(), |keys: &mut Vec<DynRow>, row| {
                keys.push(row);
                std::ops::ControlFlow::Continue(())
            })
            .await?;
        let mut deletions = Vec::with_capacity(keys.len());
        for row in keys {
            self.tick()?;
            deletions.push(table.handle.delete(&row.key(&table.handle)?)?);
        }
        self.delete_rows(table, deletions).await
    }
}

/// The subqueries of RETURNING.
pub(super) fn subqueries_of(returning: Option<&(Vec<Expr>, Vec<OutputColumn>)>) -> Vec<Arc<Subquery>> {
    returning.into_iter().flat_map(|(exprs, _)| exprs).flat_map(Expr::subqueries).collect()
}

/// Rows that are inserted in one phase.
const BATCH: usize = 1000;

/// The values of a row, as the engine keeps them.
pub(crate) fn stored(table: &TableEntry, row: &[Value]) -> Vec<Stored> {
    table.columns.iter().zip(row).map(|(column, value)| to_stored(value, column)).collect()
}

/// Inserts rows that have been checked, in one phase: their references are checked when all of them are there.
pub(crate) async fn insert_all(tx: &mut Tx<'_>, table: &TableEntry, rows: &[Row]) -> Result<(), Abort> {
    if table.cluster_key().is_none() {
        tx.append_values(&table.handle, rows.iter().map(|row| stored(table, row)).collect()).await
    } else if let [row] = rows {
        match table.handle.insert_values(stored(table, row)) {
            Ok(insertion) => tx.run(insertion).await.map(drop),
            Err(abort) => Err(abort),
        }
    } else {
        let insertions = rows.iter().map(|row| table.handle.insert_values(stored(table, row)));
        match insertions.collect::<Result<Vec<_>, Abort>>() {
            Ok(insertions) => tx.join_each(insertions, drop).await,
            Err(abort) => Err(abort),
        }
    }
}

fn stored_assignments(
    table: &TableEntry,
    assignments: &[(usize, Expr)],
    row: &[Value],
) -> Vec<(usize, Stored)> {
    assignments
        .iter()
        .map(|(column, _)| (*column, to_stored(&row[*column], &table.columns[*column])))
        .collect()
}

/// The fate of a row that was found: its revision, and the row that it becomes.
pub(super) type Revised = (Revision, Result<Option<Row>, SqlError>);

fn decide_update(plan: &Plan, env: &Env, stored: &DynRow) -> Result<Revised, Abort> {
    let Work::Update(update) = &plan.work else { return Ok((Revision::Keep, Ok(None))) };
    let row = decode(&update.scan.table, &update.scan.columns, stored)?;
    match update.scan.filter.as_ref().map_or(Ok(true), |filter| filter.holds(env, &row)) {
        Ok(true) => Ok(revised(&update.scan.table, &update.assignments, &update.checks, env, row)),
        Ok(false) => Ok((Revision::Keep, Ok(None))),
        Err(error) => Ok((Revision::Keep, Err(error))),
    }
}

/// Assigns columns of a row, which may have the columns of another one behind its own.
pub(super) fn revised(
    table: &TableEntry,
    assignments: &[(usize, Expr)],
    checks: &[(String, Expr)],
    env: &Env,
    mut row: Row,
) -> Revised {
    let values: Result<Row, SqlError> = assignments.iter().map(|(_, expr)| expr.eval(env, &row)).collect();
    let values = match values {
        Ok(values) => values,
        Err(error) => return (Revision::Keep, Err(error)),
    };
    row.truncate(table.columns.len());
    for ((column, _), value) in assignments.iter().zip(values) {
        row[*column] = value;
    }
    if let Err(error) = check_row(table, checks, env, &row) {
        return (Revision::Keep, Err(error));
    }
    let stored = stored_assignments(table, assignments, &row);
    (Revision::Set(stored), Ok(Some(row)))
}

/// The place of the one of some rows whose key in an index is that of a refusal: of two such rows, the second. A refusal tells of the
/// beginning of a long key; if that leaves several rows, none is told of.
fn refused_row(table: &TableEntry, index: &IndexEntry, rows: &[&Row], why: &str) -> Option<usize> {
    if let [_] = rows {
        return Some(0);
    }
    let has_key = |at: &usize| {
        let row = rows[*at];
        let parts =
            index.meta.columns.iter().map(|(column, _)| to_key_part(&row[*column], &table.columns[*column]));
        let Some(parts) = parts.collect::<Option<Vec<Stored>>>() else { return false };
        let range = match &index.handle {
            Some(handle) => handle.prefix(&parts),
            None => table.handle.prefix(&parts),
        };
        range.is_ok_and(|range| why.contains(&format!("key {};", DisplayKey(&range.lower))))
    };
    let key = |at: usize| index.meta.columns.iter().map(move |(column, _)| &rows[at][*column]);
    let found: Vec<usize> = (0..rows.len()).filter(has_key).collect();
    if let [only] = found[..] {
        return Some(only);
    }
    let shown = |at: usize| format!("{:?}", key(at).collect::<Vec<_>>());
    let mut known = HashSet::new();
    found.into_iter().find(|at| !known.insert(shown(*at)))
}

/// The error for a key that is there already, with the place of the row that has it. `why` names the engine's table or index and the
/// key.
#[cold]
pub(crate) fn duplicate(table: &TableEntry, rows: &[&Row], why: &str) -> (SqlError, Option<usize>) {
    let quoted = quoted(why);
    let index = table.indexes.iter().find(|index| match &index.meta.engine {
        Some(engine) => engine == quoted,
        None => table.meta.engine == quoted,
    });
    let name = index.map_or(quoted, |index| &index.meta.name);
    let error = SqlError::new(
        SqlState::UNIQUE_VIOLATION,
        format!("duplicate key value violates unique constraint \"{name}\""),
    )
    .table(&table.name)
    .constraint(name);
    let found = index.and_then(|index| Some((index, refused_row(table, index, rows, why)?)));
    let Some((index, at)) = found else { return (error, None) };
    let parts = index.meta.columns.iter().map(|(column, _)| (&table.columns[*column], &rows[at][*column]));
    let (names, values): (Vec<&str>, Vec<String>) =
        parts.map(|(column, value)| (&*column.name, crate::format::text_of(value, column.ty))).unzip();
    let detail = format!("Key ({})=({}) already exists.", names.join(", "), values.join(", "));
    (error.detail(detail), Some(at))
}

/// The name that a sentence of the engine quotes first.
fn quoted(why: &str) -> &str {
    why.split('\'').nth(1).unwrap_or("")
}

/// The error of an abort that a change of rows of a table has led to, with the constraint by its name.
pub(super) fn explain(schema: &Schema, table: &TableEntry, rows: &[&Row], abort: Abort) -> Fail {
    explain_row(schema, table, rows, abort).0
}

/// The error of an abort as [`explain`] has it, with the place of the row that has led to it, if it is known.
pub(crate) fn explain_row(
    schema: &Schema,
    table: &TableEntry,
    rows: &[&Row],
    abort: Abort,
) -> (Fail, Option<usize>) {
    if abort.reason() == AbortReason::DuplicateKey {
        let (error, row) = duplicate(table, rows, abort.detail());
        return (Fail::Sql(error), row);
    }
    (explain_other(schema, table, abort), None)
}

fn explain_other(schema: &Schema, table: &TableEntry, abort: Abort) -> Fail {
    if abort.reason() != AbortReason::ForeignKey {
        return Fail::Abort(abort);
    }
    let quoted = quoted(abort.detail());
    let other = schema.tables.values().find(|other| other.meta.engine == quoted);
    match other {
        Some(child) if abort.detail().contains("still has rows") => Fail::Sql(has_children(table, child)),
        // It counts for nothing: its transaction has been rolled back, and it is about to be dropped.
        None if abort.detail().contains("still has rows") => {
            Fail::Abort(Abort::because(AbortReason::TableChanged, "a load has been undone meanwhile"))
        }
        parent => {
            let is_it = |foreign: &&ForeignMeta| parent.is_some_and(|parent| foreign.parent == parent.name);
            let foreign = table.meta.foreign_keys.iter().find(is_it);
            match foreign.or_else(|| table.meta.foreign_keys.first()) {
                Some(foreign) => Fail::Sql(no_parent(table, foreign, None)),
                None => Fail::Abort(abort),
            }
        }
    }
}

/// The error of a row that is deleted although others refer to it.
#[cold]
fn has_children(table: &TableEntry, child: &TableEntry) -> SqlError {
    let (name, child_name) = (&table.name, &child.name);
    let mut keys = child.meta.foreign_keys.iter().filter(|foreign| foreign.parent == *name);
    // Of several the engine does not tell which it is.
    let (constraint, quoted) = match (keys.next(), keys.next()) {
        (Some(only), None) => (&*only.name, format!(" \"{}\"", only.name)),
        _ => ("", String::new()),
    };
    SqlError::new(
        SqlState::FOREIGN_KEY_VIOLATION,
        format!(
            "update or delete on table \"{name}\" violates foreign key constraint{quoted} on table \"{child_name}\""
        ),
    )
    .table(child_name)
    .constraint(constraint)
}
