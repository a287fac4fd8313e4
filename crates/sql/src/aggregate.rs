//! Aggregates: functions of all rows of a group.
//!
//! Owns: the list of aggregates, their result types and their states. Never: forms groups; `exec` does.

mod hypothetical;
mod ordered;
mod statistics;

use std::collections::HashSet;

use crate::error::{SqlError, SqlState};
use crate::expr::{Env, Expr};
use crate::format::out_of_range;
use crate::numeric::Numeric;
use crate::plan::SortKey;
use crate::types::SqlType;
use crate::value::Value;

pub(crate) use hypothetical::Hypothetical;
pub(crate) use ordered::Ordered;
use statistics::{Statistic, Sums};

/// An aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aggregate {
    Count,
    Sum,
    Min,
    Max,
    Avg,
    BoolAnd,
    BoolOr,
    BitAnd,
    BitOr,
    BitXor,
    Statistic(Statistic),
    Ordered(Ordered),
    Hypothetical(Hypothetical),
    StringAgg,
    ArrayAgg,
    JsonAgg,
    JsonbAgg,
    JsonObjectAgg,
    JsonbObjectAgg,
}

/// A call of an aggregate.
#[derive(Clone, Debug)]
pub(crate) struct AggregateCall {
    pub(crate) aggregate: Aggregate,
    /// Its arguments; none for `count(*)`.
    pub(crate) arguments: Vec<Expr>,
    pub(crate) ty: SqlType,
    pub(crate) distinct: bool,
    /// The order in which it takes the rows.
    pub(crate) order: Vec<SortKey>,
    pub(crate) filter: Option<Expr>,
}

impl AggregateCall {
    /// The expressions that it evaluates for a row.
    pub(crate) fn exprs(&self) -> impl Iterator<Item = &Expr> {
        self.arguments.iter().chain(&self.filter).chain(self.order.iter().map(|key| &key.expr))
    }
}

impl Aggregate {
    /// The names of all aggregates.
    #[cfg(test)]
    pub(crate) const NAMES: [&str; 38] = [
        "array_agg",
        "avg",
        "bit_and",
        "bit_or",
        "bit_xor",
        "bool_and",
        "bool_or",
        "corr",
        "count",
        "covar_pop",
        "covar_samp",
        "every",
        "json_agg",
        "json_object_agg",
        "jsonb_agg",
        "jsonb_object_agg",
        "max",
        "min",
        "mode",
        "percentile_cont",
        "percentile_disc",
        "regr_avgx",
        "regr_avgy",
        "regr_count",
        "regr_intercept",
        "regr_r2",
        "regr_slope",
        "regr_sxx",
        "regr_sxy",
        "regr_syy",
        "stddev",
        "stddev_pop",
        "stddev_samp",
        "string_agg",
        "sum",
        "var_pop",
        "var_samp",
        "variance",
    ];

    /// The aggregate of a name.
    pub(crate) fn named(name: &str) -> Option<Aggregate> {
        Some(match name {
            "count" => Aggregate::Count,
            "sum" => Aggregate::Sum,
            "min" => Aggregate::Min,
            "max" => Aggregate::Max,
            "avg" => Aggregate::Avg,
            "bool_and" | "every" => Aggregate::BoolAnd,
            "bool_or" => Aggregate::BoolOr,
            "bit_and" => Aggregate::BitAnd,
            "bit_or" => Aggregate::BitOr,
            "bit_xor" => Aggregate::BitXor,
            "string_agg" => Aggregate::StringAgg,
            "array_agg" => Aggregate::ArrayAgg,
            "json_agg" => Aggregate::JsonAgg,
            "jsonb_agg" => Aggregate::JsonbAgg,
            "json_object_agg" => Aggregate::JsonObjectAgg,
            "jsonb_object_agg" => Aggregate::JsonbObjectAgg,
            _ => {
                let statistic = Statistic::named(name).map(Aggregate::Statistic);
                return statistic.or_else(|| Ordered::named(name).map(Aggregate::Ordered));
            }
        })
    }

    /// The number of its arguments.
    pub(crate) fn arguments(self) -> usize {
        let has_two = self.is_of_pairs()
            || matches!(self, Aggregate::StringAgg | Aggregate::JsonObjectAgg | Aggregate::JsonbObjectAgg);
        if has_two { 2 } else { 1 }
    }

    /// Returns true if it is of pairs of numbers: both arguments have one type, and a pair with a NULL does not count.
    pub(crate) fn is_of_pairs(self) -> bool {
        matches!(self, Aggregate::Statistic(statistic) if statistic.is_of_pairs())
    }

    /// The place of the argument that is brought to JSON, if one is.
    pub(crate) fn json_argument(self) -> Option<usize> {
        match self {
            Aggregate::JsonAgg | Aggregate::JsonbAgg => Some(0),
            Aggregate::JsonObjectAgg | Aggregate::JsonbObjectAgg => Some(1),
            _ => None,
        }
    }

    /// Returns true if a NULL counts like any value.
    fn takes_null(self) -> bool {
        matches!(
            self,
            Aggregate::ArrayAgg
                | Aggregate::Hypothetical(_)
                | Aggregate::JsonAgg
                | Aggregate::JsonbAgg
                | Aggregate::JsonObjectAgg
                | Aggregate::JsonbObjectAgg
        )
    }

    /// The types that its argument is brought to, and that of its result; `None` if it does not take the type.
    pub(crate) fn types(self, argument: SqlType) -> Option<(SqlType, SqlType)> {
        Some(match (self, argument) {
            (Aggregate::Count, ty) => (ty, SqlType::Int8),
            (Aggregate::Sum, SqlType::Int2 | SqlType::Int4) => (argument, SqlType::Int8),
            (Aggregate::Sum | Aggregate::Avg, SqlType::Int8 | SqlType::Numeric) => {
                (SqlType::Numeric, SqlType::Numeric)
            }
            (Aggregate::Avg, SqlType::Int2 | SqlType::Int4) => (SqlType::Numeric, SqlType::Numeric),
            (Aggregate::Sum, SqlType::Float4) => (argument, SqlType::Float4),
            (Aggregate::Avg, SqlType::Float4 | SqlType::Float8) => (SqlType::Float8, SqlType::Float8),
            (Aggregate::Min | Aggregate::Max, SqlType::Unknown | SqlType::Varchar) => {
                (SqlType::Text, SqlType::Text)
            }
            (Aggregate::Sum | Aggregate::Avg, SqlType::Interval) => (argument, argument),
            (Aggregate::Min | Aggregate::Max, ty) if ty != SqlType::Bool => (ty, ty),
            (Aggregate::Sum, SqlType::Float8) | (Aggregate::BoolAnd | Aggregate::BoolOr, SqlType::Bool) => {
                (argument, argument)
            }
            (Aggregate::BitAnd | Aggregate::BitOr | Aggregate::BitXor, ty) if ty.is_integer() => (ty, ty),
            (Aggregate::Statistic(statistic), ty) => return statistic.types(ty),
            (Aggregate::StringAgg, ty) if ty.is_text() => (SqlType::Text, SqlType::Text),
            (Aggregate::ArrayAgg, SqlType::Unknown) => (SqlType::Text, SqlType::TextArray),
            (Aggregate::ArrayAgg, ty) => (ty, ty.array()?),
            (Aggregate::JsonAgg, ty) => (ty, SqlType::Json),
            (Aggregate::JsonbAgg, ty) => (ty, SqlType::Jsonb),
            (Aggregate::JsonObjectAgg, _) => (SqlType::Text, SqlType::Json),
            (Aggregate::JsonbObjectAgg, _) => (SqlType::Text, SqlType::Jsonb),
            _ => return None,
        })
    }
}

/// The state of a call for one group.
#[derive(Clone, Debug)]
pub(crate) struct State {
    count: i64,
    value: Value,
    texts: String,
    values: Vec<Value>,
    sums: Option<Box<Sums>>,
    seen: HashSet<Vec<Value>>,
    /// The rows that wait for their order: the values they are ordered by, and the arguments.
    waiting: Vec<(Vec<Value>, Vec<Value>)>,
}

impl State {
    pub(crate) fn new() -> State {
        State {
            count: 0,
            value: Value::Null,
            texts: String::new(),
            values: Vec::new(),
            sums: None,
            seen: HashSet::new(),
            waiting: Vec::new(),
        }
    }

    /// Adds a row of the group.
    pub(crate) fn add(&mut self, call: &AggregateCall, env: &Env, row: &[Value]) -> Result<(), SqlError> {
        if let Some(filter) = &call.filter
            && !filter.holds(env, row)?
        {
            return Ok(());
        }
        if call.arguments.is_empty() {
            self.count += 1;
            return Ok(());
        }
        let arguments: Result<Vec<Value>, SqlError> =
            call.arguments.iter().map(|argument| argument.eval(env, row)).collect();
        let arguments = arguments?;
        let counts = match call.aggregate {
            aggregate if aggregate.takes_null() => true,
            aggregate if aggregate.is_of_pairs() => !arguments.iter().any(Value::is_null),
            _ => !arguments[0].is_null(),
        };
        if !counts {
            return Ok(());
        }
        if call.distinct && !self.seen.insert(arguments.clone()) {
            return Ok(());
        }
        if !call.order.is_empty() {
            let keys: Result<Vec<Value>, SqlError> =
                call.order.iter().map(|key| key.expr.eval(env, row)).collect();
            self.waiting.push((keys?, arguments));
            return Ok(());
        }
        self.count += 1;
        self.take(call, arguments)
    }

    fn take(&mut self, call: &AggregateCall, mut arguments: Vec<Value>) -> Result<(), SqlError> {
        if let Aggregate::Statistic(_) = call.aggregate {
            return self.sum_up(&arguments);
        }
        let value = arguments.swap_remove(0);
        match call.aggregate {
            Aggregate::Count | Aggregate::Statistic(_) | Aggregate::Hypothetical(_) => {}
            Aggregate::Sum | Aggregate::Avg => self.value = sum(&self.value, value, call.ty)?,
            Aggregate::Min | Aggregate::Max => {
                let order = value.total_cmp(&self.value);
                let is_better = if call.aggregate == Aggregate::Min { order.is_lt() } else { order.is_gt() };
                if self.value.is_null() || is_better {
                    self.value = value;
                }
            }
            Aggregate::BoolAnd | Aggregate::BoolOr => {
                let (Value::Bool(old), Value::Bool(new)) =
                    (if self.value.is_null() { value.clone() } else { self.value.clone() }, value)
                else {
                    return Ok(());
                };
                let is_and = call.aggregate == Aggregate::BoolAnd;
                self.value = Value::Bool(if is_and { old && new } else { old || new });
            }
            Aggregate::BitAnd | Aggregate::BitOr | Aggregate::BitXor => {
                self.value = match (&self.value, value, call.aggregate) {
                    (Value::Int(old), Value::Int(new), Aggregate::BitAnd) => Value::Int(old & new),
                    (Value::Int(old), Value::Int(new), Aggregate::BitOr) => Value::Int(old | new),
                    (Value::Int(old), Value::Int(new), _) => Value::Int(old ^ new),
                    // The first value, as there is none before it.
                    (_, value, _) => value,
                };
            }
            Aggregate::StringAgg => {
                if self.count > 1 {
                    self.texts.push_str(arguments.first().and_then(Value::as_text).unwrap_or(""));
                }
                self.texts.push_str(value.as_text().unwrap_or(""));
                if self.texts.len() > 64 << 20 {
                    return Err(SqlError::new(
                        SqlState::PROGRAM_LIMIT_EXCEEDED,
                        "the text would be longer than 64 MB",
                    ));
                }
            }
            Aggregate::ArrayAgg | Aggregate::JsonAgg | Aggregate::JsonbAgg => self.values.push(value),
            Aggregate::Ordered(_) => {
                self.values.push(value);
                self.value = arguments.pop().unwrap_or(Value::Null);
            }
            Aggregate::JsonObjectAgg | Aggregate::JsonbObjectAgg => {
                self.values.push(value);
                self.values.append(&mut arguments);
            }
        }
        Ok(())
    }

    fn sum_up(&mut self, numbers: &[Value]) -> Result<(), SqlError> {
        match &mut self.sums {
            Some(sums) => sums.add(numbers),
            None => {
                self.sums = Some(Box::new(Sums::of(numbers)?));
                Ok(())
            }
        }
    }

    /// The value of the call.
    pub(crate) fn finish(mut self, call: &AggregateCall) -> Result<Value, SqlError> {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.sort_by(|(one, _), (other, _)| crate::plan::compare_keys(&call.order, one, other));
        if let Aggregate::Hypothetical(hypothetical) = call.aggregate {
            return Ok(hypothetical.finish(&call.order, &waiting));
        }
        for (_, arguments) in waiting {
            self.count += 1;
            self.take(call, arguments)?;
        }
        Ok(match call.aggregate {
            Aggregate::Count | Aggregate::Statistic(Statistic::RegrCount) => Value::Int(self.count),
            Aggregate::Statistic(statistic) => match self.sums {
                Some(sums) => sums.finish(statistic)?,
                None => Value::Null,
            },
            Aggregate::Avg => match self.value {
                Value::Numeric(total) => {
                    Value::Numeric(total.checked_div(Numeric::of_integer(self.count.into()))?)
                }
                Value::Float(total) => Value::Float(total / self.count as f64),
                Value::Interval(total) => Value::Interval(total.times(1.0 / self.count as f64)?),
                other => other,
            },
            aggregate if self.count == 0 && (aggregate.takes_null() || aggregate == Aggregate::StringAgg) => {
                Value::Null
            }
            Aggregate::Ordered(ordered) => ordered.finish(&self.values, &self.value)?,
            Aggregate::StringAgg => Value::from(self.texts),
            Aggregate::ArrayAgg => Value::Array(self.values.into()),
            Aggregate::JsonAgg => Value::from(crate::functions::json_array(&self.values)),
            Aggregate::JsonbAgg => crate::functions::canonical(&crate::functions::json_array(&self.values))?,
            Aggregate::JsonObjectAgg => Value::from(crate::functions::json_object(&self.values, "{ ", " }")?),
            Aggregate::JsonbObjectAgg => {
                crate::functions::canonical(&crate::functions::json_object(&self.values, "{", "}")?)?
            }
            _ => self.value,
        })
    }
}

fn sum(total: &Value, value: Value, ty: SqlType) -> Result<Value, SqlError> {
    Ok(match (total, value) {
        (Value::Int(total), Value::Int(value)) => {
            Value::Int(total.checked_add(value).ok_or_else(|| out_of_range(ty))?)
        }
        (Value::Float(total), Value::Float(value)) => Value::Float(total + value),
        (Value::Numeric(total), Value::Numeric(value)) => Value::Numeric(total.checked_add(value)?),
        (Value::Interval(total), Value::Interval(value)) => Value::Interval(total.add(value)?),
        // The first value, as the total is NULL before it.
        (_, value) => value,
    })
}
