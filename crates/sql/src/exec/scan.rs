//! Scans: rows of a table by key, by range, through an index or all of them.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::time::Instant;

use atrapos::catalog::Value as Stored;
use atrapos::{Abort, DynRow, KeyBuf, KeyRange, Revision};

use super::{Exec, Fail, MAX_ROWS, SLICE, too_many_rows};
use crate::aggregate::{AggregateCall, State};
use crate::cancel::Cancel;
use crate::error::SqlError;
use crate::expr::{CompareOp, Env, Expr, Row};
use crate::plan::{Access, Scan, WhenLocked};
use crate::schema::{IndexMeta, TableEntry, from_stored, to_key_part};
use crate::value::Value;

/// A row that was found, and the key that finds it again.
pub(super) struct Found {
    pub(super) key: Vec<Stored>,
    pub(super) row: Row,
}

/// The columns of a stored row that are read; NULL stands in the place of the others.
pub(super) fn decode(table: &TableEntry, columns: &[usize], row: &DynRow) -> Result<Row, Abort> {
    let mut values = vec![Value::Null; table.columns.len()];
    for column in columns {
        values[*column] = from_stored(row.at(&table.handle, *column)?, table.columns[*column].ty);
    }
    Ok(values)
}

/// A walk over rows, which goes from owner to owner.
struct Walk<T, F> {
    state: T,
    take: F,
    table: Arc<TableEntry>,
    columns: Vec<usize>,
    filter: Option<Expr>,
    env: Env,
    cancel: Arc<Cancel>,
    failed: Option<SqlError>,
    rows: usize,
    /// The key behind which the next slice begins; none if the walk is not at the end of a slice.
    last: Option<KeyBuf>,
}

impl<T, F> Walk<T, F>
where
    F: FnMut(&mut T, &TableEntry, &DynRow, Row) -> Result<bool, Fail>,
{
    /// Takes a row. Breaks off at the end of a slice, when no more rows are wanted, and after an error.
    fn step(&mut self, row: &DynRow) -> ControlFlow<()> {
        match self.visit(row) {
            Ok(true) if self.rows.is_multiple_of(SLICE as usize) => {
                self.last = Some(row.encoded_key().clone());
                ControlFlow::Break(())
            }
            Ok(true) => ControlFlow::Continue(()),
            Ok(false) => ControlFlow::Break(()),
            Err(fail) => {
                self.failed = Some(match fail {
                    Fail::Sql(error) => error,
                    Fail::Abort(abort) => SqlError::of_abort(&abort),
                });
                ControlFlow::Break(())
            }
        }
    }

    fn visit(&mut self, row: &DynRow) -> Result<bool, Fail> {
        self.rows += 1;
        if self.rows.is_multiple_of(1024) {
            self.cancel.check()?;
        }
        if self.rows > MAX_ROWS {
            return Err(too_many_rows().into());
        }
        let values = decode(&self.table, &self.columns, row)?;
        if let Some(filter) = &self.filter
            && !filter.holds(&self.env, &values)?
        {
            return Ok(true);
        }
        (self.take)(&mut self.state, &self.table, row, values)
    }
}

/// The way to rows, with its expressions evaluated.
pub(super) enum Way {
    /// No row can be there.
    Nothing,
    Keys(Vec<Vec<Stored>>),
    Range(KeyRange),
    /// Through the index in a place of the table's list.
    Index(usize, KeyRange),
}

impl Exec<'_, '_> {
    pub(super) async fn scan(&mut self, scan: &Scan, limit: Option<usize>) -> Result<Vec<Row>, Fail> {
        Ok(self.find(scan, limit, false).await?.into_iter().map(|found| found.row).collect())
    }

    /// The rows of a scan, with their keys if they are wanted.
    pub(super) async fn find(
        &mut self,
        scan: &Scan,
        limit: Option<usize>,
        with_keys: bool,
    ) -> Result<Vec<Found>, Fail> {
        let began = self.profile.as_ref().map(|_| Instant::now());
        let found = self.find_unmeasured(scan, limit, with_keys).await?;
        if let (Some(profile), Some(began)) = (self.profile, began) {
            profile.note(scan, found.len(), began);
        }
        Ok(found)
    }

    async fn find_unmeasured(
        &mut self,
        scan: &Scan,
        limit: Option<usize>,
        with_keys: bool,
    ) -> Result<Vec<Found>, Fail> {
        let table = &scan.table;
        let subqueries = scan.filter.as_ref().map_or_else(Vec::new, Expr::subqueries);
        let is_apart = subqueries.iter().any(|subquery| subquery.is_correlated);
        self.resolve(&subqueries.iter().filter(|one| !one.is_correlated).cloned().collect::<Vec<_>>(), &[])
            .await?;
        let filter = scan.filter.as_ref().filter(|_| !is_apart);
        let limit = if is_apart { None } else { limit };
        let waits = scan.when_locked == WhenLocked::Wait;
        let mut found = match way(scan, &self.env)? {
            _ if scan.when_locked == WhenLocked::Fail => self.find_at_once(scan, filter).await?,
            _ if !waits => self.find_free(scan, filter, limit).await?,
            Way::Nothing => Vec::new(),
            Way::Keys(keys) => self.find_keys(scan, keys, filter).await?,
            Way::Range(range) => self.find_range(scan, range, filter, limit, with_keys).await?,
            Way::Index(at, range) => {
                let index = table.indexes[at].handle.as_ref().ok_or_else(too_many_rows)?;
                let rows = self.tx()?.rows_by(index, range, usize::MAX).await?;
                let mut found = Vec::new();
                for row in rows {
                    let values = decode(table, &scan.columns, &row)?;
                    if filter.map_or(Ok(true), |filter| filter.holds(&self.env, &values))? {
                        found.push(Found { key: row.key(&table.handle)?, row: values });
                    }
                    if limit.is_some_and(|limit| found.len() >= limit) {
                        break;
                    }
                }
                found
            }
        };
        if is_apart && let Some(condition) = &scan.filter {
            let mut kept = Vec::new();
            for row in found {
                if self.tick()? {
                    self.pause().await;
                }
                self.resolve(&subqueries, &row.row).await?;
                if condition.holds(&self.env, &row.row)? {
                    kept.push(row);
                }
            }
            found = kept;
        }
        if scan.for_update && waits && !with_keys {
            // Rows that were found by a range are locked one by one, as if they were changed.
            for row in &found {
                let keep = |_: &DynRow| Ok((Revision::Keep, ()));
                self.tx()?.revise_row(&table.handle, &row.key, keep).await?;
            }
        }
        Ok(found)
    }

    async fn find_keys(
        &mut self,
        scan: &Scan,
        keys: Vec<Vec<Stored>>,
        filter: Option<&Expr>,
    ) -> Result<Vec<Found>, Fail> {
        let table = &scan.table;
        let mut found = Vec::with_capacity(keys.len());
        let mut take = |key: Vec<Stored>, row: Option<DynRow>, env: &Env| -> Result<(), Fail> {
            let Some(row) = row else { return Ok(()) };
            let values = decode(table, &scan.columns, &row)?;
            if filter.map_or(Ok(true), |filter| filter.holds(env, &values))? {
                found.push(Found { key, row: values });
            }
            Ok(())
        };
        if scan.for_update {
            for key in keys {
                let keep = |row: &DynRow| Ok((Revision::Keep, row.clone()));
                let row = self.tx()?.revise_row(&table.handle, &key, keep).await?;
                take(key, row, &self.env)?;
            }
        } else if let [key] = &keys[..] {
            let row = match self.ahead.take() {
                Some(row) => row,
                None => self.tx()?.get(&table.handle, key).await?,
            };
            take(key.clone(), row, &self.env)?;
        } else {
            let gets: Result<Vec<_>, Abort> = keys.iter().map(|key| table.handle.get(key)).collect();
            let rows = self.tx()?.join_all(gets?).await?;
            for (key, row) in keys.into_iter().zip(rows) {
                take(key, row, &self.env)?;
            }
        }
        Ok(found)
    }

    async fn find_range(
        &mut self,
        scan: &Scan,
        range: KeyRange,
        filter: Option<&Expr>,
        limit: Option<usize>,
        with_keys: bool,
    ) -> Result<Vec<Found>, Fail> {
        let with_keys = with_keys || scan.for_update;
        let step = move |found: &mut Vec<Found>, table: &TableEntry, row: &DynRow, values: Row| {
            let key = if with_keys { row.key(&table.handle)? } else { Vec::new() };
            found.push(Found { key, row: values });
            Ok(limit.is_none_or(|limit| found.len() < limit))
        };
        self.walk(scan, range, filter, Vec::new(), step).await
    }

    /// Walks the rows of a range that meet a condition, on their owners, in slices between which others run; stops when `take` returns
    /// false.
    async fn walk<T: Send + 'static>(
        &mut self,
        scan: &Scan,
        range: KeyRange,
        filter: Option<&Expr>,
        state: T,
        take: impl FnMut(&mut T, &TableEntry, &DynRow, Row) -> Result<bool, Fail> + Send + 'static,
    ) -> Result<T, Fail> {
        let mut walk = Box::new(Walk {
            state,
            take,
            table: Arc::clone(&scan.table),
            columns: scan.columns.clone(),
            filter: filter.cloned(),
            env: Env::clone(&self.env),
            cancel: Arc::clone(self.cancel),
            failed: None,
            rows: 0,
            last: None,
        });
        let (handle, mut range) = (&scan.table.handle, range);
        loop {
            let step = |walk: &mut Box<Walk<T, _>>, row: DynRow| walk.step(&row);
            let tx = self.tx()?;
            walk = if scan.backward {
                tx.fold_rows_backward(handle, range.clone(), walk, step).await?
            } else {
                tx.fold_rows(handle, range.clone(), walk, step).await?
            };
            if let Some(error) = walk.failed.take() {
                return Err(error.into());
            }
            let Some(last) = walk.last.take() else { return Ok(walk.state) };
            range = if scan.backward {
                KeyRange { upper: Some(last), ..range }
            } else {
                // No key lies between this one and its continuation by the smallest byte.
                let mut lower = last;
                lower.extend_from_slice(&[0]);
                KeyRange { lower, ..range }
            };
            self.pause().await;
        }
    }

    /// The aggregates of all rows of a scan of a range, computed on the owners of the rows; `None` if the scan is no range.
    pub(super) async fn aggregate_scan(
        &mut self,
        scan: &Scan,
        calls: &[AggregateCall],
    ) -> Result<Option<Row>, Fail> {
        let own = calls.iter().flat_map(AggregateCall::exprs).chain(&scan.filter);
        let waits = scan.when_locked == WhenLocked::Wait;
        if scan.for_update || !waits || own.into_iter().any(|expr| !expr.subqueries().is_empty()) {
            return Ok(None);
        }
        let Way::Range(range) = way(scan, &self.env)? else { return Ok(None) };
        let states: Vec<State> = calls.iter().map(|_| State::new()).collect();
        let (env, owned) = (Env::clone(&self.env), calls.to_vec());
        let take = move |states: &mut Vec<State>, _: &TableEntry, _: &DynRow, values: Row| {
            for (state, call) in states.iter_mut().zip(&owned) {
                state.add(call, &env, &values)?;
            }
            Ok(true)
        };
        let states = self.walk(scan, range, scan.filter.as_ref(), states, take).await?;
        let row: Result<Row, SqlError> =
            states.into_iter().zip(calls).map(|(state, call)| state.finish(call)).collect();
        Ok(Some(row?))
    }
}

/// Evaluates the expressions of an access.
pub(super) fn way(scan: &Scan, env: &Env) -> Result<Way, Fail> {
    let table = &scan.table;
    match &scan.access {
        Access::Full => Ok(Way::Range(table.handle.prefix(&[])?)),
        Access::Key(values) => Ok(match key_of(table, values, env)? {
            Some(key) => Way::Keys(vec![key]),
            None => Way::Nothing,
        }),
        Access::Keys(values) => {
            let Some((column, _)) = table.cluster_key().and_then(|key| key.columns.first()) else {
                return Ok(Way::Nothing);
            };
            let mut parts: Vec<Value> = Vec::new();
            for value in values {
                match value.eval(env, &[])? {
                    Value::Array(elements) => parts.extend(elements.iter().cloned()),
                    value => parts.push(value),
                }
            }
            parts.sort_by(Value::total_cmp);
            parts.dedup();
            let column = &table.columns[*column];
            let keys =
                parts.iter().filter_map(|value| to_key_part(value, column).map(|part| vec![part])).collect();
            Ok(Way::Keys(keys))
        }
        Access::Range { index, prefix, bounds } => {
            let meta = match index {
                Some(at) => &table.indexes[*at].meta,
                None => match table.cluster_key() {
                    Some(key) => key,
                    None => return Ok(Way::Nothing),
                },
            };
            range_way(table, *index, meta, prefix, bounds, env)
        }
    }
}

fn range_way(
    table: &TableEntry,
    index: Option<usize>,
    meta: &IndexMeta,
    prefix: &[Expr],
    bounds: &[(CompareOp, Expr)],
    env: &Env,
) -> Result<Way, Fail> {
    let mut parts = Vec::new();
    for (value, (column, _)) in prefix.iter().zip(&meta.columns) {
        match to_key_part(&value.eval(env, &[])?, &table.columns[*column]) {
            Some(part) => parts.push(part),
            None => return Ok(Way::Nothing),
        }
    }
    let (mut lower, mut upper) = (Bound::Included(parts.clone()), Bound::Included(parts.clone()));
    for (op, value) in bounds {
        let Some((column, _)) = meta.columns.get(parts.len()) else { continue };
        let value = value.eval(env, &[])?;
        if value.is_null() {
            return Ok(Way::Nothing);
        }
        // A bound that is no value of the column is left to the filter.
        let Some(part) = to_key_part(&value, &table.columns[*column]) else { continue };
        let mut bound = parts.clone();
        bound.push(part);
        match op {
            CompareOp::Gt => lower = Bound::Excluded(bound),
            CompareOp::Ge => lower = Bound::Included(bound),
            CompareOp::Lt => upper = Bound::Excluded(bound),
            CompareOp::Le => upper = Bound::Included(bound),
            CompareOp::Eq | CompareOp::Ne => {}
        }
    }
    let (lower, upper) = (as_slice(&lower), as_slice(&upper));
    Ok(match index.and_then(|at| Some((at, table.indexes[at].handle.as_ref()?))) {
        Some((at, handle)) => Way::Index(at, handle.range(lower, upper)?),
        None => Way::Range(table.handle.range(lower, upper)?),
    })
}

fn as_slice(bound: &Bound<Vec<Stored>>) -> Bound<&[Stored]> {
    match bound {
        Bound::Included(parts) => Bound::Included(parts),
        Bound::Excluded(parts) => Bound::Excluded(parts),
        Bound::Unbounded => Bound::Unbounded,
    }
}

/// The key that expressions stand for; `None` if no row can have it.
pub(crate) fn key_of(
    table: &TableEntry,
    values: &[Expr],
    env: &Env,
) -> Result<Option<Vec<Stored>>, SqlError> {
    let Some(meta) = table.cluster_key() else { return Ok(None) };
    let mut key = Vec::with_capacity(values.len());
    for (value, (column, _)) in values.iter().zip(&meta.columns) {
        match to_key_part(&value.eval(env, &[])?, &table.columns[*column]) {
            Some(part) => key.push(part),
            None => return Ok(None),
        }
    }
    Ok(Some(key))
}
