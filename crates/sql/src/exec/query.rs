//! Nodes that work on rows: filters, joins, groups, orders, set operations.

use std::collections::{HashMap, HashSet};
use std::future::ready;
use std::sync::Arc;
use std::time::Instant;

use super::{Boxed, Exec, Fail, MAX_ROWS, too_many_rows};
use crate::aggregate::{AggregateCall, State};
use crate::catalogs;
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Row, Subquery};
use crate::interval::Interval;
use crate::plan::{JoinKind, Node, RowsFunction, Scan, SortKey, WhenLocked, compare_keys};
use crate::record::Record;
use crate::types::Modifier;
use crate::value::Value;

/// The right side of a join that is evaluated for each row of the left one.
#[derive(Clone, Copy)]
enum Inner<'a> {
    Scan(&'a Scan),
    Node(&'a Node),
}

impl Exec<'_, '_> {
    /// The rows of a node; `limit` says how many of them are enough.
    pub(super) fn rows<'a>(&'a mut self, node: &'a Node, limit: Option<usize>) -> Boxed<'a, Vec<Row>> {
        let Some(profile) = self.profile else { return self.node_rows(node, limit) };
        Box::pin(async move {
            let began = Instant::now();
            let rows = self.node_rows(node, limit).await?;
            profile.note(node, rows.len(), began);
            Ok(rows)
        })
    }

    fn node_rows<'a>(&'a mut self, node: &'a Node, limit: Option<usize>) -> Boxed<'a, Vec<Row>> {
        // Each in a box of its own size: the room of the largest would be copied for the smallest.
        match node {
            Node::Values(rows) => Box::pin(self.value_rows(rows)),
            Node::Scan(scan) => Box::pin(self.scan(scan, limit)),
            Node::Virtual(table) => Box::pin(ready(Ok(catalogs::rows(*table, &self.env)))),
            Node::Rows(function, arguments) => Box::pin(self.function_rows(*function, arguments, limit)),
            Node::Ordinality(input) => Box::pin(async move {
                let rows = self.rows(input, limit).await?;
                Ok(numbered(rows))
            }),
            Node::Filter(input, condition) => Box::pin(async move {
                let rows = self.rows(input, None).await?;
                self.filter(rows, condition).await
            }),
            Node::Project(input, exprs) => Box::pin(async move {
                let rows = self.rows(input, limit).await?;
                self.project(rows, exprs).await
            }),
            Node::Join { left, right, kind, left_width, right_width, keys, on } => Box::pin(async move {
                let (left, right) = (self.rows(left, None).await?, self.rows(right, None).await?);
                self.join(left, &right, *kind, (*left_width, *right_width), keys, on.as_ref()).await
            }),
            Node::Lookup { left, right, kind, on } => Box::pin(async move {
                let width = right.table.columns.len();
                self.nested(left, Inner::Scan(right), *kind, width, on.as_ref()).await
            }),
            Node::Lateral { left, right, kind, right_width, on } => {
                Box::pin(self.nested(left, Inner::Node(right), *kind, *right_width, on.as_ref()))
            }
            Node::Aggregate { input, groups, calls } => Box::pin(self.aggregate(input, groups, calls)),
            Node::Window { input, calls } => Box::pin(self.windows(input, calls)),
            Node::ProjectSet { input, functions } => Box::pin(self.project_set(input, functions)),
            Node::Sort(input, keys) => Box::pin(self.sorted(input, keys, limit)),
            Node::Distinct(input, on) => Box::pin(async move {
                let rows = self.rows(input, None).await?;
                self.distinct(rows, on).await
            }),
            Node::Limit { input, limit, offset } => {
                Box::pin(self.limit(input, limit.as_ref(), offset.as_ref()))
            }
            Node::Append(parts) => Box::pin(async move {
                let mut rows = Vec::new();
                for part in parts {
                    rows.append(&mut self.rows(part, None).await?);
                }
                Ok(rows)
            }),
            Node::Combine { left, right, keep, all } => Box::pin(async move {
                let (left, right) = (self.rows(left, None).await?, self.rows(right, None).await?);
                Ok(combine(left, right, *keep, *all))
            }),
            Node::Recursive { base, step, slot, inner, distinct } => {
                Box::pin(self.recursive(base, step, *slot, inner.clone(), *distinct))
            }
            Node::Working(slot) => Box::pin(async move {
                let rows = self.env.subqueries.get(*slot).and_then(Option::as_ref);
                Ok(rows.map_or_else(Vec::new, |rows| rows.to_vec()))
            }),
        }
    }

    async fn value_rows(&mut self, rows: &[Vec<Expr>]) -> Result<Vec<Row>, Fail> {
        let mut evaluated = Vec::with_capacity(rows.len());
        for exprs in rows {
            self.resolve_in(exprs, &[]).await?;
            evaluated.push(self.eval_all(exprs, &[]).await?);
        }
        Ok(evaluated)
    }

    /// The rows of a node in an order; `limit` says how many of them are enough.
    async fn sorted(
        &mut self,
        input: &Node,
        keys: &[SortKey],
        limit: Option<usize>,
    ) -> Result<Vec<Row>, Fail> {
        if let Node::Project(below, exprs) = input
            && let Node::Scan(scan) = &**below
            && scan.when_locked == WhenLocked::Skip
            && scan.filter.iter().chain(exprs).all(|expr| expr.subqueries().is_empty())
        {
            return self.sorted_free(scan, exprs, keys, limit).await;
        }
        let rows = self.rows(input, None).await?;
        self.sort(rows, keys).await
    }

    async fn distinct(&mut self, rows: Vec<Row>, on: &[Expr]) -> Result<Vec<Row>, Fail> {
        let (mut seen, mut kept) = (HashSet::new(), Vec::new());
        for row in rows {
            if self.tick()? {
                self.pause().await;
            }
            let is_new = if on.is_empty() {
                seen.insert(row.clone())
            } else {
                let key: Result<Row, SqlError> = on.iter().map(|expr| expr.eval(&self.env, &row)).collect();
                seen.insert(key?)
            };
            if is_new {
                kept.push(row);
            }
        }
        Ok(kept)
    }

    /// The rows of a recursive query: turn by turn, each on the rows that the one before has added.
    async fn recursive(
        &mut self,
        base: &Node,
        step: &Node,
        slot: usize,
        inner: std::ops::Range<usize>,
        distinct: bool,
    ) -> Result<Vec<Row>, Fail> {
        let (mut all, mut seen) = (Vec::new(), HashSet::new());
        let mut added = self.rows(base, None).await?;
        loop {
            if distinct {
                added.retain(|row| seen.insert(row.clone()));
            }
            if added.is_empty() {
                return Ok(all);
            }
            self.cancel.check()?;
            all.extend(added.iter().cloned());
            if all.len() > MAX_ROWS {
                return Err(too_many_rows().into());
            }
            self.env.to_mut().subqueries[slot] = Some(Arc::new(added));
            self.env.to_mut().subqueries[inner.clone()].fill(None);
            added = self.rows(step, None).await?;
        }
    }

    async fn resolve_in(&mut self, exprs: &[Expr], row: &[Value]) -> Result<(), Fail> {
        let subqueries: Vec<Arc<Subquery>> = exprs.iter().flat_map(Expr::subqueries).collect();
        self.resolve(&subqueries, row).await
    }

    pub(super) async fn filter(&mut self, rows: Vec<Row>, condition: &Expr) -> Result<Vec<Row>, Fail> {
        let subqueries = condition.subqueries();
        let mut kept = Vec::new();
        for row in rows {
            if self.tick()? {
                self.pause().await;
            }
            self.resolve(&subqueries, &row).await?;
            if condition.holds(&self.env, &row)? {
                kept.push(row);
            }
        }
        Ok(kept)
    }

    async fn project(&mut self, rows: Vec<Row>, exprs: &[Expr]) -> Result<Vec<Row>, Fail> {
        let subqueries: Vec<Arc<Subquery>> = exprs.iter().flat_map(Expr::subqueries).collect();
        let mut projected = Vec::with_capacity(rows.len());
        for row in rows {
            if self.tick()? {
                self.pause().await;
            }
            self.resolve(&subqueries, &row).await?;
            projected.push(self.eval_all(exprs, &row).await?);
        }
        Ok(projected)
    }

    async fn function_rows(
        &mut self,
        function: RowsFunction,
        arguments: &[Expr],
        limit: Option<usize>,
    ) -> Result<Vec<Row>, Fail> {
        self.resolve_in(arguments, &[]).await?;
        let values = self.eval_all(arguments, &[]).await?;
        let values = self.rows_of(function, values, limit)?;
        Ok(values.into_iter().map(|value| vec![value]).collect())
    }

    /// The values that a function returns as rows; `limit` says how many are enough.
    pub(super) fn rows_of(
        &mut self,
        function: RowsFunction,
        values: Row,
        limit: Option<usize>,
    ) -> Result<Vec<Value>, Fail> {
        match (function, &values[..]) {
            (RowsFunction::Unnest, [Value::Array(elements), ..]) => return Ok(elements.to_vec()),
            (RowsFunction::ExpandArray(element), [Value::Array(elements)]) => {
                let record = |(value, number): (&Value, i64)| {
                    let values = vec![value.clone(), Value::Int(number)];
                    Value::Record(Record::of_fields(Modifier::Expanded(element), values).into())
                };
                return Ok(elements.iter().zip(1..).map(record).collect());
            }
            (RowsFunction::GenerateSubscripts, [Value::Array(elements), Value::Int(1)]) => {
                return Ok((1..=elements.len()).map(|at| Value::Int(at as i64)).collect());
            }
            (
                RowsFunction::GenerateSeries,
                [Value::Timestamp(from), Value::Timestamp(to), Value::Interval(step)],
            ) => {
                return self.moments(*from, *to, *step);
            }
            (RowsFunction::Document(function), [Value::Text(document)]) => {
                return Ok(function.rows(document)?);
            }
            (RowsFunction::GenerateSeries, _) => {}
            _ => return Ok(Vec::new()),
        }
        let numbers: Option<Vec<i64>> = values.iter().map(Value::as_int).collect();
        let Some(numbers) = numbers else { return Ok(Vec::new()) };
        let (first, last) = (numbers[0], numbers.get(1).copied().unwrap_or(0));
        let step = numbers.get(2).copied().unwrap_or(1);
        if step == 0 {
            return Err(
                SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "step size cannot equal zero").into()
            );
        }
        let mut rows = Vec::new();
        let mut next = Some(first);
        while let Some(number) =
            next.filter(|number| if step > 0 { *number <= last } else { *number >= last })
        {
            self.tick()?;
            if limit.is_some_and(|limit| rows.len() >= limit) {
                break;
            }
            if rows.len() >= MAX_ROWS {
                return Err(too_many_rows().into());
            }
            rows.push(Value::Int(number));
            next = number.checked_add(step);
        }
        Ok(rows)
    }

    fn moments(&mut self, from: i64, to: i64, step: Interval) -> Result<Vec<Value>, Fail> {
        let zero = Interval::default();
        if step == zero {
            return Err(
                SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "step size cannot equal zero").into()
            );
        }
        let (mut rows, mut moment) = (Vec::new(), from);
        while if step > zero { moment <= to } else { moment >= to } {
            self.tick()?;
            if rows.len() >= MAX_ROWS {
                return Err(too_many_rows().into());
            }
            rows.push(Value::Timestamp(moment));
            moment = step.after(moment)?;
        }
        Ok(rows)
    }

    async fn join(
        &mut self,
        left: Vec<Row>,
        right: &[Row],
        kind: JoinKind,
        (left_width, right_width): (usize, usize),
        keys: &[(Expr, Expr)],
        on: Option<&Expr>,
    ) -> Result<Vec<Row>, Fail> {
        let mut is_joined = vec![false; if kind.keeps_right() { right.len() } else { 0 }];
        let mut table: HashMap<Vec<Value>, Vec<usize>> = HashMap::new();
        for (at, row) in right.iter().enumerate().filter(|_| !keys.is_empty()) {
            if self.tick()? {
                self.pause().await;
            }
            let key: Result<Vec<Value>, SqlError> =
                keys.iter().map(|(_, key)| key.eval(&self.env, row)).collect();
            table.entry(key?).or_default().push(at);
        }
        let all: Vec<usize> = if keys.is_empty() { (0..right.len()).collect() } else { Vec::new() };
        let nothing = Vec::new();
        let mut joined = Vec::new();
        for row in left {
            let candidates = if keys.is_empty() {
                &all
            } else {
                let key: Result<Vec<Value>, SqlError> =
                    keys.iter().map(|(key, _)| key.eval(&self.env, &row)).collect();
                let key = key?;
                // NULL is equal to nothing in a join.
                if key.iter().any(Value::is_null) { &nothing } else { table.get(&key).unwrap_or(&nothing) }
            };
            let before = joined.len();
            for at in candidates {
                if self.tick()? {
                    self.pause().await;
                }
                let mut both = row.clone();
                both.extend(right[*at].iter().cloned());
                if on.map_or(Ok(true), |on| on.holds(&self.env, &both))? {
                    joined.push(both);
                    if let Some(is_joined) = is_joined.get_mut(*at) {
                        *is_joined = true;
                    }
                }
            }
            if kind.keeps_left() && joined.len() == before {
                let mut alone = row;
                alone.extend(std::iter::repeat_n(Value::Null, right_width));
                joined.push(alone);
            }
            if joined.len() > MAX_ROWS {
                return Err(too_many_rows().into());
            }
        }
        for (other, _) in right.iter().zip(is_joined).filter(|(_, is_joined)| !is_joined) {
            let mut alone = vec![Value::Null; left_width];
            alone.extend(other.iter().cloned());
            joined.push(alone);
        }
        Ok(joined)
    }

    /// Joins each row of the left side with the rows of the right one that are found with it in scope.
    async fn nested(
        &mut self,
        left: &Node,
        right: Inner<'_>,
        kind: JoinKind,
        right_width: usize,
        on: Option<&Expr>,
    ) -> Result<Vec<Row>, Fail> {
        let mut joined = Vec::new();
        for row in self.rows(left, None).await? {
            if self.tick()? {
                self.pause().await;
            }
            self.env.to_mut().outer.push(Arc::new(row.clone()));
            let found = match right {
                Inner::Scan(scan) => self.scan(scan, None).await,
                Inner::Node(node) => self.rows(node, None).await,
            };
            self.env.to_mut().outer.pop();
            self.join_row(row, found?, kind, right_width, on, &mut joined)?;
        }
        Ok(joined)
    }

    /// Joins one row with those that were found for it.
    fn join_row(
        &self,
        row: Row,
        found: Vec<Row>,
        kind: JoinKind,
        right_width: usize,
        on: Option<&Expr>,
        joined: &mut Vec<Row>,
    ) -> Result<(), Fail> {
        let before = joined.len();
        for other in found {
            let mut both = row.clone();
            both.extend(other);
            if on.map_or(Ok(true), |on| on.holds(&self.env, &both))? {
                joined.push(both);
            }
        }
        if kind.keeps_left() && joined.len() == before {
            let mut alone = row;
            alone.extend(std::iter::repeat_n(Value::Null, right_width));
            joined.push(alone);
        }
        if joined.len() > MAX_ROWS { Err(too_many_rows().into()) } else { Ok(()) }
    }

    async fn aggregate(
        &mut self,
        input: &Node,
        groups: &[Expr],
        calls: &[AggregateCall],
    ) -> Result<Vec<Row>, Fail> {
        let subqueries: Vec<Arc<Subquery>> = groups.iter().flat_map(Expr::subqueries).collect();
        if groups.is_empty()
            && let Node::Scan(scan) = input
            && let Some(row) = self.aggregate_scan(scan, calls).await?
        {
            return Ok(vec![row]);
        }
        let rows = self.rows(input, None).await?;
        let mut places: HashMap<Row, usize> = HashMap::new();
        let mut states: Vec<(Row, Vec<State>)> = Vec::new();
        if groups.is_empty() {
            places.insert(Vec::new(), 0);
            states.push((Vec::new(), calls.iter().map(|_| State::new()).collect()));
        }
        for row in rows {
            if self.tick()? {
                self.pause().await;
            }
            self.resolve(&subqueries, &row).await?;
            for call in calls {
                self.resolve_in(&call.arguments, &row).await?;
            }
            let key: Result<Row, SqlError> = groups.iter().map(|group| group.eval(&self.env, &row)).collect();
            let key = key?;
            let at = *places.entry(key).or_insert_with_key(|key| {
                states.push((key.clone(), calls.iter().map(|_| State::new()).collect()));
                states.len() - 1
            });
            for (state, call) in states[at].1.iter_mut().zip(calls) {
                state.add(call, &self.env, &row)?;
            }
        }
        let finish = |(mut row, states): (Row, Vec<State>)| {
            for (state, call) in states.into_iter().zip(calls) {
                row.push(state.finish(call)?);
            }
            Ok(row)
        };
        states.into_iter().map(finish).collect::<Result<_, SqlError>>().map_err(Fail::Sql)
    }

    async fn sort(&mut self, rows: Vec<Row>, keys: &[SortKey]) -> Result<Vec<Row>, Fail> {
        let mut keyed = Vec::with_capacity(rows.len());
        for row in rows {
            if self.tick()? {
                self.pause().await;
            }
            let key: Result<Row, SqlError> = keys.iter().map(|key| key.expr.eval(&self.env, &row)).collect();
            keyed.push((key?, row));
        }
        keyed.sort_by(|(one, _), (other, _)| compare_keys(keys, one, other));
        Ok(keyed.into_iter().map(|(_, row)| row).collect())
    }

    async fn limit(
        &mut self,
        input: &Node,
        limit: Option<&Expr>,
        offset: Option<&Expr>,
    ) -> Result<Vec<Row>, Fail> {
        let count = |exec: &Self, expr: Option<&Expr>, state: SqlState, what: &str| match expr {
            None => Ok(None),
            Some(expr) => match expr.eval(&exec.env, &[])? {
                Value::Int(number) => usize::try_from(number)
                    .map(Some)
                    .map_err(|_| SqlError::new(state, format!("{what} must not be negative"))),
                _ => Ok(None),
            },
        };
        let most = count(self, limit, SqlState::INVALID_ROW_COUNT_IN_LIMIT_CLAUSE, "LIMIT")?;
        let skipped =
            count(self, offset, SqlState::INVALID_ROW_COUNT_IN_OFFSET_CLAUSE, "OFFSET")?.unwrap_or(0);
        if most == Some(0) {
            return Ok(Vec::new());
        }
        let enough = most.map(|most| most.saturating_add(skipped));
        let rows = self.rows(input, enough).await?;
        Ok(rows.into_iter().skip(skipped).take(most.unwrap_or(usize::MAX)).collect())
    }
}

/// The rows with their numbers behind them.
fn numbered(mut rows: Vec<Row>) -> Vec<Row> {
    for (row, number) in rows.iter_mut().zip(1..) {
        row.push(Value::Int(number));
    }
    rows
}

/// The rows of one list that are, or are not, in another.
fn combine(mut left: Vec<Row>, right: Vec<Row>, keep: bool, all: bool) -> Vec<Row> {
    if !all {
        let (others, mut seen) = (right.into_iter().collect::<HashSet<Row>>(), HashSet::new());
        left.retain(|row| others.contains(row) == keep && seen.insert(row.clone()));
        return left;
    }
    let mut others: HashMap<Row, usize> = HashMap::new();
    for row in right {
        *others.entry(row).or_default() += 1;
    }
    left.retain(|row| match others.get_mut(row).filter(|count| **count > 0) {
        Some(count) => {
            *count -= 1;
            keep
        }
        None => !keep,
    });
    left
}
