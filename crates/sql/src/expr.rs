//! Expressions whose names are bound and whose types are known, and their evaluation.
//!
//! Owns: evaluation, with three-valued logic. Never: waits: subqueries are run before (`exec`), and their rows are in the
//! environment.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use atrapos::TableId;
use atrapos::activity::LockActivity;

use crate::cast::cast;
use crate::error::{SqlError, SqlState};
use crate::format::{fit_integer, out_of_range};
use crate::functions::{Function, like};
use crate::plan::Query;
use crate::procedures::Call;
use crate::record::{Record, RecordShape};
use crate::schema::Schema;
use crate::session::Session;
use crate::types::{Modifier, SqlType};
use crate::value::Value;

/// A row of values.
pub(crate) type Row = Vec<Value>;

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompareOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl CompareOp {
    fn holds(self, order: Ordering) -> bool {
        match self {
            CompareOp::Eq => order.is_eq(),
            CompareOp::Ne => order.is_ne(),
            CompareOp::Lt => order.is_lt(),
            CompareOp::Le => order.is_le(),
            CompareOp::Gt => order.is_gt(),
            CompareOp::Ge => order.is_ge(),
        }
    }

    /// The comparison with its sides exchanged.
    pub(crate) fn flipped(self) -> CompareOp {
        match self {
            CompareOp::Lt => CompareOp::Gt,
            CompareOp::Le => CompareOp::Ge,
            CompareOp::Gt => CompareOp::Lt,
            CompareOp::Ge => CompareOp::Le,
            same => same,
        }
    }
}

/// Arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArithmeticOp {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
}

/// The meaning of a subquery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubqueryKind {
    /// Its one value, or NULL.
    Scalar,
    /// True if it has rows.
    Exists,
    /// The values of its first column, as an array.
    Array,
    /// Its one row, or NULL.
    Row,
}

/// A subquery in an expression.
#[derive(Debug)]
pub(crate) struct Subquery {
    /// The place of its rows in the environment.
    pub(crate) slot: usize,
    pub(crate) query: Query,
    /// Set if it refers to the row that the expression is evaluated for, or to one around it.
    pub(crate) is_correlated: bool,
}

/// An expression. Columns are numbers of the row it is evaluated for.
#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Const(Value),
    Param(usize),
    Column(usize),
    /// A column of a row around the subquery: 1 is the nearest.
    Outer {
        level: usize,
        column: usize,
    },
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Not(Box<Expr>),
    IsNull(Box<Expr>),
    /// `IS TRUE`, `IS FALSE`: never NULL.
    IsBool(Box<Expr>, bool),
    IsDistinct(Box<Expr>, Box<Expr>),
    Compare(CompareOp, Box<Expr>, Box<Expr>),
    Arithmetic(ArithmeticOp, SqlType, Box<Expr>, Box<Expr>),
    Like {
        value: Box<Expr>,
        pattern: Box<Expr>,
        escape: Option<Box<Expr>>,
        any_case: bool,
    },
    Case {
        conditions: Vec<(Expr, Expr)>,
        otherwise: Box<Expr>,
    },
    Coalesce(Vec<Expr>),
    InList(Box<Expr>, Vec<Expr>),
    /// `op ANY (array)`, or with `all` `op ALL (array)`.
    Any {
        op: CompareOp,
        all: bool,
        value: Box<Expr>,
        array: Box<Expr>,
    },
    Cast {
        value: Box<Expr>,
        from: SqlType,
        to: SqlType,
        modifier: Modifier,
        explicit: bool,
    },
    Call(&'static Function, Vec<Expr>),
    Array(Vec<Expr>),
    /// A row of values as one value.
    Row(Arc<RecordShape>, Vec<Expr>),
    Subscript(Box<Expr>, Box<Expr>),
    /// A field of a record, by its place.
    Field(Box<Expr>, usize),
    Subquery(SubqueryKind, Arc<Subquery>),
    /// `IN (SELECT ..)`, `op ANY (SELECT ..)`, or with `all` `op ALL (SELECT ..)`.
    InSubquery {
        op: CompareOp,
        all: bool,
        value: Box<Expr>,
        subquery: Arc<Subquery>,
    },
}

/// The environment in which expressions are evaluated, besides a row. A clone shares most of it, so that one can go to other workers.
#[derive(Clone)]
pub(crate) struct Env {
    pub(crate) params: Arc<[Value]>,
    /// The rows around a subquery, the nearest last.
    pub(crate) outer: Vec<Arc<Row>>,
    /// The rows of subqueries, by slot.
    pub(crate) subqueries: Vec<Option<Arc<Vec<Row>>>>,
    pub(crate) session: Arc<Session>,
    pub(crate) schema: Arc<Schema>,
    /// The locks that transactions held before the statement, if it tells of them ([`Plan::tells_of_locks`](crate::plan::Plan)).
    pub(crate) locks: Option<Arc<Vec<LockActivity>>>,
    /// The call that the statement is, if it was made ready to find its route.
    pub(crate) call: Option<Arc<dyn Call>>,
    /// The bytes that tables and indexes took before the statement, if it tells of them.
    pub(crate) sizes: Option<Arc<HashMap<TableId, usize>>>,
}

impl Expr {
    /// A truth value that is true.
    pub(crate) fn is_true_constant(&self) -> bool {
        matches!(self, Expr::Const(Value::Bool(true)))
    }

    /// Evaluates it for a row.
    pub(crate) fn eval(&self, env: &Env, row: &[Value]) -> Result<Value, SqlError> {
        match self {
            Expr::Const(value) => Ok(value.clone()),
            Expr::Param(at) => Ok(env.params.get(*at).cloned().unwrap_or(Value::Null)),
            Expr::Column(at) => Ok(row.get(*at).cloned().unwrap_or(Value::Null)),
            Expr::Outer { level, column } => {
                let row = env.outer.len().checked_sub(*level).and_then(|at| env.outer.get(at));
                Ok(row.and_then(|row| row.get(*column)).cloned().unwrap_or(Value::Null))
            }
            Expr::And(parts) => all_of(parts.iter().map(|part| part.eval(env, row)), false),
            Expr::Or(parts) => all_of(parts.iter().map(|part| part.eval(env, row)), true),
            Expr::Not(inner) => Ok(match inner.eval(env, row)? {
                Value::Bool(value) => Value::Bool(!value),
                _ => Value::Null,
            }),
            Expr::IsNull(inner) => Ok(Value::Bool(inner.eval(env, row)?.is_null())),
            Expr::IsBool(inner, wanted) => {
                Ok(Value::Bool(matches!(inner.eval(env, row)?, Value::Bool(value) if value == *wanted)))
            }
            Expr::IsDistinct(one, other) => Ok(Value::Bool(one.eval(env, row)? != other.eval(env, row)?)),
            Expr::Compare(op, one, other) => Ok(compare(*op, &one.eval(env, row)?, &other.eval(env, row)?)),
            Expr::Arithmetic(op, ty, one, other) => {
                arithmetic(*op, *ty, one.eval(env, row)?, other.eval(env, row)?)
            }
            Expr::Array(elements) => {
                let elements: Result<Row, SqlError> =
                    elements.iter().map(|part| part.eval(env, row)).collect();
                Ok(Value::Array(elements?.into()))
            }
            Expr::Row(shape, parts) => {
                let values: Result<Row, SqlError> = parts.iter().map(|part| part.eval(env, row)).collect();
                let values = values?;
                let is_none = shape.names.is_some() && values.iter().all(Value::is_null);
                let record = || Value::Record(Arc::new(Record::new(Arc::clone(shape), values)));
                Ok(if is_none { Value::Null } else { record() })
            }
            _ => self.eval_rest(env, row),
        }
    }

    fn eval_rest(&self, env: &Env, row: &[Value]) -> Result<Value, SqlError> {
        match self {
            Expr::Like { value, pattern, escape, any_case } => {
                let (value, pattern) = (value.eval(env, row)?, pattern.eval(env, row)?);
                let escape = escape.as_ref().map(|escape| escape.eval(env, row)).transpose()?;
                like(&value, &pattern, escape.as_ref(), *any_case)
            }
            Expr::Case { conditions, otherwise } => {
                for (condition, result) in conditions {
                    if matches!(condition.eval(env, row)?, Value::Bool(true)) {
                        return result.eval(env, row);
                    }
                }
                otherwise.eval(env, row)
            }
            Expr::Coalesce(parts) => {
                for part in parts {
                    let value = part.eval(env, row)?;
                    if !value.is_null() {
                        return Ok(value);
                    }
                }
                Ok(Value::Null)
            }
            Expr::InList(value, list) => {
                let value = value.eval(env, row)?;
                let equal = list.iter().map(|one| Ok(compare(CompareOp::Eq, &value, &one.eval(env, row)?)));
                all_of(equal, true)
            }
            Expr::Any { op, all, value, array } => {
                let (value, array) = (value.eval(env, row)?, array.eval(env, row)?);
                let Value::Array(elements) = array else { return Ok(Value::Null) };
                all_of(elements.iter().map(|one| Ok(compare(*op, &value, one))), !all)
            }
            Expr::Cast { value, from, to, modifier, explicit } => {
                cast(value.eval(env, row)?, *from, *to, *modifier, *explicit, &env.schema)
            }
            Expr::Call(function, arguments) => {
                let arguments: Result<Row, SqlError> =
                    arguments.iter().map(|argument| argument.eval(env, row)).collect();
                function.call(env, &arguments?)
            }
            Expr::Subscript(array, at) => {
                let (Value::Array(elements), Value::Int(at)) = (array.eval(env, row)?, at.eval(env, row)?)
                else {
                    return Ok(Value::Null);
                };
                let at = usize::try_from(at).ok().and_then(|at| at.checked_sub(1));
                Ok(at.and_then(|at| elements.get(at)).cloned().unwrap_or(Value::Null))
            }
            Expr::Field(record, at) => match record.eval(env, row)? {
                Value::Record(record) => Ok(record.values().nth(*at).cloned().unwrap_or(Value::Null)),
                _ => Ok(Value::Null),
            },
            Expr::Subquery(kind, subquery) => env.subquery_value(*kind, subquery),
            Expr::InSubquery { op, all, value, subquery } => {
                let (value, rows) = (value.eval(env, row)?, env.rows_of(subquery)?);
                let null = Value::Null;
                let width = subquery.query.columns.len();
                if let (Value::Array(parts), true) = (&value, width > 1) {
                    return all_of(rows.iter().map(|row| row_equal(parts, row)), true);
                }
                let each = rows.iter().map(|row| Ok(compare(*op, &value, row.first().unwrap_or(&null))));
                all_of(each, !all)
            }
            // The others are evaluated by `eval`.
            _ => Ok(Value::Null),
        }
    }

    /// Evaluates a condition: NULL is not true.
    pub(crate) fn holds(&self, env: &Env, row: &[Value]) -> Result<bool, SqlError> {
        Ok(matches!(self.eval(env, row)?, Value::Bool(true)))
    }

    /// Visits the parts of it, itself first; not the expressions inside of subqueries.
    pub(crate) fn visit(&self, visit: &mut dyn FnMut(&Expr)) {
        visit(self);
        match self {
            Expr::Const(_) | Expr::Param(_) | Expr::Column(_) | Expr::Outer { .. } | Expr::Subquery(..) => {}
            Expr::And(parts)
            | Expr::Or(parts)
            | Expr::Coalesce(parts)
            | Expr::Array(parts)
            | Expr::Row(_, parts)
            | Expr::Call(_, parts) => {
                parts.iter().for_each(|part| part.visit(visit));
            }
            Expr::Not(inner) | Expr::IsNull(inner) | Expr::IsBool(inner, _) | Expr::Field(inner, _) => {
                inner.visit(visit);
            }
            Expr::IsDistinct(one, other)
            | Expr::Compare(_, one, other)
            | Expr::Arithmetic(_, _, one, other)
            | Expr::Subscript(one, other) => {
                one.visit(visit);
                other.visit(visit);
            }
            Expr::Like { value, pattern, escape, .. } => {
                value.visit(visit);
                pattern.visit(visit);
                if let Some(escape) = escape {
                    escape.visit(visit);
                }
            }
            Expr::Case { conditions, otherwise } => {
                for (condition, result) in conditions {
                    condition.visit(visit);
                    result.visit(visit);
                }
                otherwise.visit(visit);
            }
            Expr::InList(value, list) => {
                value.visit(visit);
                list.iter().for_each(|part| part.visit(visit));
            }
            Expr::Any { value, array, .. } => {
                value.visit(visit);
                array.visit(visit);
            }
            Expr::Cast { value, .. } | Expr::InSubquery { value, .. } => value.visit(visit),
        }
    }

    /// The same expression with parts replaced: those for which `replace` returns another. Subqueries stay as they are.
    pub(crate) fn map(&self, replace: &mut dyn FnMut(&Expr) -> Option<Expr>) -> Expr {
        if let Some(other) = replace(self) {
            return other;
        }
        let mut one = |part: &Expr| Box::new(part.map(replace));
        match self {
            Expr::Not(inner) => Expr::Not(one(inner)),
            Expr::IsNull(inner) => Expr::IsNull(one(inner)),
            Expr::Field(inner, at) => Expr::Field(one(inner), *at),
            Expr::IsBool(inner, wanted) => Expr::IsBool(one(inner), *wanted),
            Expr::IsDistinct(left, right) => Expr::IsDistinct(one(left), one(right)),
            Expr::Compare(op, left, right) => Expr::Compare(*op, one(left), one(right)),
            Expr::Arithmetic(op, ty, left, right) => Expr::Arithmetic(*op, *ty, one(left), one(right)),
            Expr::Subscript(left, right) => Expr::Subscript(one(left), one(right)),
            Expr::Like { value, pattern, escape, any_case } => Expr::Like {
                value: one(value),
                pattern: one(pattern),
                escape: escape.as_ref().map(|escape| one(escape)),
                any_case: *any_case,
            },
            Expr::Any { op, all, value, array } => {
                Expr::Any { op: *op, all: *all, value: one(value), array: one(array) }
            }
            Expr::Cast { value, from, to, modifier, explicit } => Expr::Cast {
                value: one(value),
                from: *from,
                to: *to,
                modifier: *modifier,
                explicit: *explicit,
            },
            Expr::InSubquery { op, all, value, subquery } => {
                Expr::InSubquery { op: *op, all: *all, value: one(value), subquery: Arc::clone(subquery) }
            }
            Expr::And(parts) => Expr::And(map_all(parts, replace)),
            Expr::Or(parts) => Expr::Or(map_all(parts, replace)),
            Expr::Coalesce(parts) => Expr::Coalesce(map_all(parts, replace)),
            Expr::Array(parts) => Expr::Array(map_all(parts, replace)),
            Expr::Row(shape, parts) => Expr::Row(Arc::clone(shape), map_all(parts, replace)),
            Expr::Call(function, parts) => Expr::Call(function, map_all(parts, replace)),
            Expr::InList(value, list) => Expr::InList(Box::new(value.map(replace)), map_all(list, replace)),
            Expr::Case { conditions, otherwise } => Expr::Case {
                conditions: conditions
                    .iter()
                    .map(|(condition, result)| (condition.map(replace), result.map(replace)))
                    .collect(),
                otherwise: Box::new(otherwise.map(replace)),
            },
            Expr::Const(_) | Expr::Param(_) | Expr::Column(_) | Expr::Outer { .. } | Expr::Subquery(..) => {
                self.clone()
            }
        }
    }

    /// The subqueries in it.
    pub(crate) fn subqueries(&self) -> Vec<Arc<Subquery>> {
        let mut found = Vec::new();
        self.visit(&mut |part| {
            if let Expr::Subquery(_, subquery) | Expr::InSubquery { subquery, .. } = part {
                found.push(Arc::clone(subquery));
            }
        });
        found
    }

    /// The columns of its row that it reads, those that correlated subqueries read included.
    pub(crate) fn columns(&self, used: &mut Vec<usize>) {
        self.visit(&mut |part| match part {
            Expr::Column(at) => used.push(*at),
            Expr::Subquery(_, subquery) | Expr::InSubquery { subquery, .. } => {
                subquery.query.outer_columns(1, used);
            }
            _ => {}
        });
    }

    /// Returns true if it has the same value for all rows of a statement.
    pub(crate) fn is_row_independent(&self) -> bool {
        let mut is_independent = true;
        self.visit(&mut |part| {
            let depends = match part {
                Expr::Column(_) | Expr::Subquery(..) | Expr::InSubquery { .. } => true,
                Expr::Call(function, _) => function.is_volatile,
                _ => false,
            };
            is_independent &= !depends;
        });
        is_independent
    }
}

/// Compares a row with another: they are equal if all their values are.
fn row_equal(one: &[Value], other: &[Value]) -> Result<Value, SqlError> {
    let parts = one.iter().zip(other).map(|(one, other)| Ok(compare(CompareOp::Eq, one, other)));
    all_of(parts, false)
}

fn map_all(parts: &[Expr], replace: &mut dyn FnMut(&Expr) -> Option<Expr>) -> Vec<Expr> {
    parts.iter().map(|part| part.map(replace)).collect()
}

impl Env {
    /// The environment of a statement that begins.
    pub(crate) fn new(params: Arc<[Value]>, session: Arc<Session>, schema: Arc<Schema>) -> Env {
        Env {
            params,
            outer: Vec::new(),
            subqueries: Vec::new(),
            session,
            schema,
            locks: None,
            sizes: None,
            call: None,
        }
    }

    /// The value that a subquery stands for.
    fn subquery_value(&self, kind: SubqueryKind, subquery: &Subquery) -> Result<Value, SqlError> {
        let rows = self.rows_of(subquery)?;
        Ok(match kind {
            SubqueryKind::Exists => Value::Bool(!rows.is_empty()),
            SubqueryKind::Array => Value::Array(rows.iter().filter_map(|row| row.first().cloned()).collect()),
            SubqueryKind::Scalar | SubqueryKind::Row if rows.len() > 1 => {
                return Err(SqlError::new(
                    SqlState::CARDINALITY_VIOLATION,
                    "more than one row returned by a subquery used as an expression",
                ));
            }
            SubqueryKind::Scalar => rows.first().and_then(|row| row.first()).cloned().unwrap_or(Value::Null),
            SubqueryKind::Row => {
                let types = subquery.query.columns.iter().map(|column| column.ty).collect();
                let shape = Arc::new(RecordShape { types, names: None });
                rows.first()
                    .map_or(Value::Null, |row| Value::Record(Arc::new(Record::new(shape, row.clone()))))
            }
        })
    }

    fn rows_of(&self, subquery: &Subquery) -> Result<&Arc<Vec<Row>>, SqlError> {
        self.subqueries
            .get(subquery.slot)
            .and_then(Option::as_ref)
            .ok_or_else(|| SqlError::unsupported("a subquery in this place"))
    }
}

/// `AND` of values, or with `any` `OR`: stops at the first value that decides, and is NULL if none does and one is NULL.
fn all_of(values: impl Iterator<Item = Result<Value, SqlError>>, any: bool) -> Result<Value, SqlError> {
    let mut is_unknown = false;
    for value in values {
        match value? {
            Value::Bool(value) if value == any => return Ok(Value::Bool(any)),
            Value::Bool(_) => {}
            _ => is_unknown = true,
        }
    }
    Ok(if is_unknown { Value::Null } else { Value::Bool(!any) })
}

/// Compares two values of one type.
pub(crate) fn compare(op: CompareOp, one: &Value, other: &Value) -> Value {
    if one.is_null() || other.is_null() {
        return Value::Null;
    }
    Value::Bool(op.holds(one.total_cmp(other)))
}

#[cold]
fn by_zero() -> SqlError {
    SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero")
}

fn arithmetic(op: ArithmeticOp, ty: SqlType, one: Value, other: Value) -> Result<Value, SqlError> {
    match (one, other) {
        (Value::Null, _) | (_, Value::Null) => Ok(Value::Null),
        (Value::Int(one), Value::Int(other)) => {
            let result = match op {
                ArithmeticOp::Add => one.checked_add(other),
                ArithmeticOp::Sub => one.checked_sub(other),
                ArithmeticOp::Mul => one.checked_mul(other),
                ArithmeticOp::Div | ArithmeticOp::Rem if other == 0 => return Err(by_zero()),
                ArithmeticOp::Div => one.checked_div(other),
                ArithmeticOp::Rem => Some(one.wrapping_rem(other)),
                ArithmeticOp::And => Some(one & other),
                ArithmeticOp::Or => Some(one | other),
                ArithmeticOp::Xor => Some(one ^ other),
                ArithmeticOp::ShiftLeft => one.checked_shl(other as u32 & 63),
                ArithmeticOp::ShiftRight => one.checked_shr(other as u32 & 63),
            };
            fit_integer(result.ok_or_else(|| out_of_range(ty))?, ty).map(Value::Int)
        }
        (Value::Float(one), Value::Float(other)) => {
            let result = match op {
                ArithmeticOp::Add => one + other,
                ArithmeticOp::Sub => one - other,
                ArithmeticOp::Mul => one * other,
                ArithmeticOp::Div if other == 0.0 => return Err(by_zero()),
                ArithmeticOp::Div => one / other,
                _ => one % other,
            };
            if result.is_infinite() && one.is_finite() && other.is_finite() {
                return Err(SqlError::new(
                    SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                    "value out of range: overflow",
                ));
            }
            Ok(Value::Float(if ty == SqlType::Float4 { f64::from(result as f32) } else { result }))
        }
        (Value::Numeric(one), Value::Numeric(other)) => Ok(Value::Numeric(match op {
            ArithmeticOp::Add => one.checked_add(other)?,
            ArithmeticOp::Sub => one.checked_sub(other)?,
            ArithmeticOp::Mul => one.checked_mul(other)?,
            ArithmeticOp::Div => one.checked_div(other)?,
            _ => one.checked_rem(other)?,
        })),
        (Value::Date(one), Value::Int(other)) => {
            let other = if op == ArithmeticOp::Sub { other.checked_neg() } else { Some(other) };
            let days = other.and_then(|other| i64::from(one).checked_add(other));
            let days = days.and_then(|days| i32::try_from(days).ok());
            days.map(Value::Date)
                .ok_or_else(|| SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "date out of range"))
        }
        (Value::Int(one), Value::Date(other)) => arithmetic(op, ty, Value::Date(other), Value::Int(one)),
        (Value::Date(one), Value::Date(other)) => Ok(Value::Int(i64::from(one) - i64::from(other))),
        (one, other) => Err(SqlError::new(
            SqlState::UNDEFINED_FUNCTION,
            format!("there is no arithmetic of {} and {}", one.natural_type(), other.natural_type()),
        )),
    }
}
