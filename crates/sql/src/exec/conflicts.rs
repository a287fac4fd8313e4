//! `INSERT .. ON CONFLICT`.
//!
//! Invariants: a statement changes no row twice, and its subqueries read the rows of before it.

use std::collections::HashSet;
use std::sync::Arc;

use atrapos::catalog::Value as Stored;
use atrapos::{Abort, AbortReason, DynRow, Revision};

use super::scan::{decode, key_of};
use super::writes::{Returned, Revised, explain, revised, stored, subqueries_of};
use super::{Exec, Fail, check_row};
use crate::error::{SqlError, SqlState};
use crate::expr::{Env, Expr, Row, Subquery};
use crate::plan::{Insert, Work};
use crate::schema::TableEntry;

/// Fate of a row that is to be inserted, decided before anything is written.
enum Decided {
    Insert(Row),
    /// The row of this key becomes another.
    Update(Vec<Stored>, Vec<(usize, Stored)>, Row),
    /// The row of this key goes, and another comes.
    Move(Vec<Stored>, Row),
}

impl Decided {
    /// The row as it is then.
    fn row(&self) -> &Row {
        match self {
            Decided::Insert(row) | Decided::Update(_, _, row) | Decided::Move(_, row) => row,
        }
    }
}

#[cold]
fn second_time() -> SqlError {
    SqlError::new(
        SqlState::CARDINALITY_VIOLATION,
        "ON CONFLICT DO UPDATE command cannot affect row a second time",
    )
    .hint(
        "Ensure that no rows proposed for insertion within the same command have duplicate constrained values.",
    )
}

#[cold]
fn changed_meanwhile() -> Fail {
    Abort::because(AbortReason::Deadlock, "the row of the conflict has come or gone").into()
}

/// The values of the key that conflicts.
fn key_values(table: &TableEntry, row: &Row) -> Row {
    let columns = table.cluster_key().map(|key| &key.columns[..]).unwrap_or_default();
    columns.iter().map(|(column, _)| row[*column].clone()).collect()
}

fn stored_key(table: &TableEntry, row: &Row, env: &Env) -> Result<Option<Vec<Stored>>, Fail> {
    let key: Vec<Expr> = key_values(table, row).into_iter().map(Expr::Const).collect();
    if key.is_empty() { Ok(None) } else { Ok(key_of(table, &key, env)?) }
}

impl Exec<'_, '_> {
    /// Inserts rows, or assigns columns of those that are there.
    pub(super) async fn insert_or_update(
        &mut self,
        insert: &Insert,
        assignments: &[(usize, Expr)],
        rows: Vec<Row>,
    ) -> Returned {
        let exprs = assignments.iter().map(|(_, expr)| expr).chain(&insert.conflict_filter);
        let subqueries: Vec<Arc<Subquery>> = exprs.flat_map(Expr::subqueries).collect();
        // A row with another key goes and comes again.
        let moves = assignments.iter().any(|(column, _)| insert.table.is_in_key(*column));
        let looks_up = !subqueries_of(insert.returning.as_ref()).is_empty();
        let is_direct = subqueries.is_empty() && !moves && !looks_up;
        let (mut changed, mut decided) = (HashSet::new(), Vec::new());
        let (mut count, mut returned) = (0, Vec::new());
        for source in rows {
            if self.tick()? {
                self.pause().await;
            }
            let row = self.eval_all(&insert.values, &source).await?;
            check_row(&insert.table, &insert.checks, &self.env, &row)?;
            let key = key_values(&insert.table, &row);
            if changed.contains(&key) {
                if assignments.is_empty() {
                    continue;
                }
                return Err(second_time().into());
            }
            if is_direct {
                let Some(put) = self.put(insert, row).await? else { continue };
                self.return_row(insert.returning.as_ref(), &put, &mut returned)?;
                count += 1;
            } else {
                let Some(next) = self.decide(insert, assignments, row, &subqueries).await? else { continue };
                decided.push(next);
            }
            if !key.is_empty() {
                changed.insert(key);
            }
        }
        if !is_direct {
            let rows = decided.iter().map(Decided::row);
            let before = self.returned_before(insert.returning.as_ref(), rows).await?;
            let returning = if before.is_some() { None } else { insert.returning.as_ref() };
            returned = before.unwrap_or_default();
            for next in decided {
                let row = self.write(insert, next).await?;
                self.return_row(returning, &row, &mut returned)?;
                count += 1;
            }
        }
        Ok((count, insert.returning.as_ref().map(|_| returned)))
    }

    /// Inserts a row unless its key is taken, and does what `ON CONFLICT` says if so; returns the row that is there then, unless
    /// nothing was done.
    async fn put(&mut self, insert: &Insert, row: Row) -> Result<Option<Row>, Fail> {
        let table = &insert.table;
        if self.inserts(table, &row).await? {
            return Ok(Some(row));
        }
        if insert.on_conflict.as_deref().unwrap_or_default().is_empty() {
            return Ok(None);
        }
        let Some(key) = stored_key(table, &row, &self.env)? else { return Ok(None) };
        let (plan, env) = (Arc::clone(self.plan), Env::clone(&self.env));
        let decide = move |stored: &DynRow| {
            let Work::Insert(insert) = &plan.work else { return Ok((Revision::Keep, Ok(None))) };
            let both = beside(&insert.table, stored, row)?;
            Ok(resolved(insert, &env, both))
        };
        let revised = self.tx()?.revise_row(&table.handle, &key, decide).await?;
        Ok(revised.ok_or_else(changed_meanwhile)??)
    }

    /// Inserts a row unless its key is taken; returns true if it did.
    async fn inserts(&mut self, table: &TableEntry, row: &Row) -> Result<bool, Fail> {
        let done = match table.handle.insert_values_if_absent(stored(table, row)) {
            Ok(insertion) => self.tx()?.run(insertion).await,
            Err(abort) => Err(abort),
        };
        done.map_err(|abort| explain(&self.env.schema, table, &[row], abort))
    }

    /// Locks the row that has the key of another one, if there is one, and finds what becomes of it.
    async fn decide(
        &mut self,
        insert: &Insert,
        assignments: &[(usize, Expr)],
        row: Row,
        subqueries: &[Arc<Subquery>],
    ) -> Result<Option<Decided>, Fail> {
        let table = &insert.table;
        let Some(key) = stored_key(table, &row, &self.env)? else { return Ok(Some(Decided::Insert(row))) };
        let keep = |stored: &DynRow| Ok((Revision::Keep, stored.clone()));
        let Some(old) = self.tx()?.revise_row(&table.handle, &key, keep).await? else {
            return Ok(Some(Decided::Insert(row)));
        };
        if assignments.is_empty() {
            return Ok(None);
        }
        let old_key = key_values(table, &row);
        let both = beside(table, &old, row)?;
        self.resolve(subqueries, &both).await?;
        if let Some(filter) = &insert.conflict_filter
            && !filter.holds(&self.env, &both)?
        {
            return Ok(None);
        }
        match revised(table, assignments, &insert.checks, &self.env, both) {
            (Revision::Set(_), Ok(Some(new))) if key_values(table, &new) != old_key => {
                self.env.schema.keeps_children(table)?;
                Ok(Some(Decided::Move(key, new)))
            }
            (Revision::Set(mut columns), Ok(Some(new))) => {
                columns.retain(|(column, _)| !table.is_in_key(*column));
                Ok(Some(Decided::Update(key, columns, new)))
            }
            (_, Ok(_)) => Ok(None),
            (_, Err(error)) => Err(error.into()),
        }
    }

    /// Writes a row whose fate is decided; returns it as it is then.
    async fn write(&mut self, insert: &Insert, decided: Decided) -> Result<Row, Fail> {
        let table = &insert.table;
        match decided {
            Decided::Insert(row) if self.inserts(table, &row).await? => Ok(row),
            Decided::Insert(_) => Err(changed_meanwhile()),
            Decided::Move(key, row) => {
                let gone = self.tx()?.delete(&table.handle, &key[..]).await;
                gone.map_err(|abort| explain(&self.env.schema, table, &[&row], abort))?;
                self.insert_rows(table, std::slice::from_ref(&row)).await?;
                Ok(row)
            }
            Decided::Update(key, columns, row) => {
                let set = move |_: &DynRow| Ok((Revision::Set(columns), ()));
                let done = self.tx()?.revise_row(&table.handle, &key, set).await;
                let found = done.map_err(|abort| explain(&self.env.schema, table, &[&row], abort))?;
                found.map(|()| row).ok_or_else(changed_meanwhile)
            }
        }
    }
}

/// The columns of the row that is there, and behind them those of the row that was to be inserted.
fn beside(table: &TableEntry, old: &DynRow, row: Row) -> Result<Row, Abort> {
    let all: Vec<usize> = (0..table.columns.len()).collect();
    let mut both = decode(table, &all, old)?;
    both.extend(row);
    Ok(both)
}

/// Returns what becomes of the row that is there; `both` has it and the one that was to be inserted.
fn resolved(insert: &Insert, env: &Env, both: Row) -> Revised {
    let Some(assignments) = &insert.on_conflict else { return (Revision::Keep, Ok(None)) };
    match insert.conflict_filter.as_ref().map_or(Ok(true), |filter| filter.holds(env, &both)) {
        Ok(true) => revised(&insert.table, assignments, &insert.checks, env, both),
        Ok(false) => (Revision::Keep, Ok(None)),
        Err(error) => (Revision::Keep, Err(error)),
    }
}
