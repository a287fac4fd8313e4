//! Window functions, and functions in the list of a SELECT that return rows.
//!
//! Owns: partitions, their order and the rows of a frame. Never: keeps an order but that of the last window, which its rows come in.

use std::cmp::Ordering;

use super::{Exec, Fail, MAX_ROWS, too_many_rows};
use crate::aggregate::State;
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, Row};
use crate::plan::{Frame, Node, RowsFunction, WindowCall, WindowFunction, compare_keys};
use crate::value::Value;

/// The rows of a partition in their order: their numbers, and where each group of equal ones ends.
struct Partition<'a> {
    rows: &'a [Row],
    members: Vec<usize>,
    /// For each member the end of its group of equal ones, and the start.
    peers: Vec<(usize, usize)>,
}

impl Exec<'_, '_> {
    /// Adds a column for each call to the rows.
    pub(super) async fn windows(&mut self, input: &Node, calls: &[WindowCall]) -> Result<Vec<Row>, Fail> {
        let mut rows = self.rows(input, None).await?;
        let mut columns = Vec::new();
        let mut order: Vec<usize> = Vec::new();
        for call in calls {
            let (sorted, column) = self.window(&rows, call)?;
            columns.push(column);
            order = sorted;
        }
        for (at, row) in rows.iter_mut().enumerate() {
            for column in &mut columns {
                row.push(std::mem::replace(&mut column[at], Value::Null));
            }
        }
        Ok(order.into_iter().map(|at| std::mem::take(&mut rows[at])).collect())
    }

    fn values(&self, exprs: &[Expr], row: &Row) -> Result<Row, SqlError> {
        exprs.iter().map(|expr| expr.eval(&self.env, row)).collect()
    }

    /// The order of all rows, and the value of the call for each.
    fn window(&mut self, rows: &[Row], call: &WindowCall) -> Result<(Vec<usize>, Vec<Value>), Fail> {
        let mut keys = Vec::with_capacity(rows.len());
        for row in rows {
            self.tick()?;
            let order: Result<Row, SqlError> =
                call.order.iter().map(|key| key.expr.eval(&self.env, row)).collect();
            keys.push((self.values(&call.partition, row)?, order?));
        }
        let mut sorted: Vec<usize> = (0..rows.len()).collect();
        let compare = |one: &usize, other: &usize| {
            let (one, other) = (&keys[*one], &keys[*other]);
            let parts = one.0.iter().zip(&other.0).map(|(one, other)| one.total_cmp(other));
            let parts = parts.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal);
            parts.then_with(|| compare_keys(&call.order, &one.1, &other.1))
        };
        sorted.sort_by(compare);
        let mut column = vec![Value::Null; rows.len()];
        let mut rest = &sorted[..];
        while let Some(first) = rest.first() {
            let is_same = |at: &&usize| keys[**at].0 == keys[*first].0;
            let length = rest.iter().take_while(is_same).count();
            let members = rest[..length].to_vec();
            let mut peers = Vec::with_capacity(length);
            let mut start = 0;
            for at in 0..length {
                if at > 0 && keys[members[at]].1 != keys[members[at - 1]].1 {
                    start = at;
                }
                peers.push((length, start));
            }
            let mut end = length;
            for at in (0..length).rev() {
                peers[at].0 = end;
                if peers[at].1 == at {
                    end = at;
                }
            }
            self.partition(&Partition { rows, members, peers }, call, &mut column)?;
            rest = &rest[length..];
        }
        Ok((sorted, column))
    }

    fn partition(
        &mut self,
        part: &Partition<'_>,
        call: &WindowCall,
        column: &mut [Value],
    ) -> Result<(), Fail> {
        if let WindowFunction::Aggregate(aggregate) = &call.function {
            let mut state = State::new();
            let mut added = 0;
            for at in 0..part.members.len() {
                let end = part.frame_end(call.frame, at);
                while added < end {
                    self.tick()?;
                    state.add(aggregate, &self.env, &part.rows[part.members[added]])?;
                    added += 1;
                }
                column[part.members[at]] = state.clone().finish(aggregate)?;
            }
            return Ok(());
        }
        let mut dense = 0;
        for (at, member) in part.members.iter().enumerate() {
            self.tick()?;
            dense += i64::from(part.peers[at].1 == at);
            column[*member] = self.position(part, call, at, dense)?;
        }
        Ok(())
    }

    /// The value of a function of the place of a row.
    fn position(
        &self,
        part: &Partition<'_>,
        call: &WindowCall,
        at: usize,
        dense: i64,
    ) -> Result<Value, SqlError> {
        let count = part.members.len();
        let row = &part.rows[part.members[at]];
        let argument = |place: usize, at: usize| match call.arguments.get(place) {
            Some(expr) => expr.eval(&self.env, &part.rows[part.members[at]]),
            None => Ok(Value::Null),
        };
        Ok(match &call.function {
            WindowFunction::RowNumber => Value::Int(at as i64 + 1),
            WindowFunction::Rank => Value::Int(part.peers[at].1 as i64 + 1),
            WindowFunction::DenseRank => Value::Int(dense),
            WindowFunction::PercentRank if count <= 1 => Value::Float(0.0),
            WindowFunction::PercentRank => Value::Float(part.peers[at].1 as f64 / (count - 1) as f64),
            WindowFunction::CumeDist => Value::Float(part.peers[at].0 as f64 / count as f64),
            WindowFunction::Ntile => match argument(0, at)? {
                Value::Int(tiles) if tiles > 0 => {
                    let tiles = usize::try_from(tiles).unwrap_or(usize::MAX);
                    let (size, more) = (count / tiles, count % tiles);
                    let large = more * (size + 1);
                    let tile = if at < large { at / (size + 1) } else { more + (at - large) / size.max(1) };
                    Value::Int(tile as i64 + 1)
                }
                Value::Null => Value::Null,
                _ => {
                    return Err(SqlError::new(
                        SqlState("22014"),
                        "argument of ntile must be greater than zero",
                    ));
                }
            },
            WindowFunction::Shift(direction) => {
                let by = match call.arguments.get(1) {
                    None => 1,
                    Some(by) => match by.eval(&self.env, row)? {
                        Value::Int(by) => by,
                        _ => return Ok(Value::Null),
                    },
                };
                let to = i64::try_from(at).ok().and_then(|at| at.checked_add(by.checked_mul(*direction)?));
                let to = to.and_then(|to| usize::try_from(to).ok()).filter(|to| *to < count);
                match to {
                    Some(to) => argument(0, to)?,
                    None => argument(2, at)?,
                }
            }
            WindowFunction::FirstValue => argument(0, 0)?,
            WindowFunction::LastValue => argument(0, part.frame_end(call.frame, at) - 1)?,
            WindowFunction::NthValue => match argument(1, at)? {
                Value::Int(number) if number > 0 => {
                    let to = usize::try_from(number - 1).unwrap_or(usize::MAX);
                    if to < part.frame_end(call.frame, at) { argument(0, to)? } else { Value::Null }
                }
                Value::Null => Value::Null,
                _ => {
                    return Err(SqlError::new(
                        SqlState("22016"),
                        "argument of nth_value must be greater than zero",
                    ));
                }
            },
            // `partition` has those.
            WindowFunction::Aggregate(_) => Value::Null,
        })
    }

    /// Adds a column for each function to the rows: a row becomes as many as the longest of them returns.
    pub(super) async fn project_set(
        &mut self,
        input: &Node,
        functions: &[(RowsFunction, Vec<Expr>)],
    ) -> Result<Vec<Row>, Fail> {
        let mut all = Vec::new();
        for row in self.rows(input, None).await? {
            let mut columns = Vec::new();
            for (function, arguments) in functions {
                let values = self.values(arguments, &row)?;
                columns.push(self.rows_of(*function, values, None)?);
            }
            let count = columns.iter().map(Vec::len).max().unwrap_or(0);
            for at in 0..count {
                self.tick()?;
                let mut out = row.clone();
                out.extend(columns.iter().map(|column| column.get(at).cloned().unwrap_or(Value::Null)));
                all.push(out);
            }
            if all.len() > MAX_ROWS {
                return Err(too_many_rows().into());
            }
        }
        Ok(all)
    }
}

impl Partition<'_> {
    /// The end of the frame of a member, in members.
    fn frame_end(&self, frame: Frame, at: usize) -> usize {
        match frame {
            Frame::Peers => self.peers[at].0,
            Frame::Rows => at + 1,
            Frame::Whole => self.members.len(),
        }
    }
}
