//! Binding of operators: comparisons, logic, arithmetic, and the types that both sides are brought to.

use sqlparser::ast::{self, BinaryOperator, UnaryOperator};

use super::expr::number;
use super::{Binder, Typed, null};
use crate::cast::{Castability, castability};
use crate::error::{SqlError, SqlState};
use crate::expr::{ArithmeticOp, CompareOp, Expr};
use crate::functions::network_operator;
use crate::types::{Modifier, SqlType};
use crate::value::Value;

impl Binder<'_> {
    pub(super) fn unary(&mut self, op: UnaryOperator, expr: &ast::Expr) -> Result<Typed, SqlError> {
        match op {
            UnaryOperator::Not => {
                let inner = self.condition(expr, "NOT")?;
                Ok(Typed::boolean(Expr::Not(Box::new(inner))))
            }
            UnaryOperator::Plus => self.expr(expr),
            UnaryOperator::Minus => {
                // The least integer has a literal that is no integer without its sign.
                if let ast::Expr::Value(value) = expr
                    && let ast::Value::Number(digits, false) = &value.value
                {
                    return number(&format!("-{digits}"));
                }
                let inner = self.expr(expr)?;
                if inner.ty == SqlType::Interval {
                    return self.call("interval_um", vec![inner]);
                }
                let inner = if inner.ty == SqlType::Unknown {
                    self.coerce(inner, SqlType::Float8, Castability::Explicit)?
                } else {
                    inner
                };
                if !inner.ty.is_number() {
                    return Err(no_operator("-", None, inner.ty));
                }
                let zero = self.cast(
                    Typed::new(Expr::Const(Value::Int(0)), SqlType::Int4),
                    inner.ty,
                    Modifier::None,
                    true,
                )?;
                let ty = inner.ty;
                Ok(Typed::new(
                    Expr::Arithmetic(ArithmeticOp::Sub, ty, Box::new(zero.expr), Box::new(inner.expr)),
                    ty,
                ))
            }
            UnaryOperator::BitwiseNot => {
                let inner = self.expr(expr)?;
                if inner.ty.is_network() {
                    return self.call("inetnot", vec![inner]);
                }
                if !inner.ty.is_integer() {
                    return Err(no_operator("~", None, inner.ty));
                }
                let all = Box::new(Expr::Const(Value::Int(-1)));
                let ty = inner.ty;
                Ok(Typed::new(Expr::Arithmetic(ArithmeticOp::Xor, ty, Box::new(inner.expr), all), ty))
            }
            UnaryOperator::PGAbs => {
                let inner = self.expr(expr)?;
                self.call("abs", vec![inner])
            }
            UnaryOperator::PGSquareRoot => {
                let inner = self.expr(expr)?;
                let inner = self.coerce(inner, SqlType::Float8, Castability::Assignment)?;
                self.call("sqrt", vec![inner])
            }
            other => Err(SqlError::unsupported(format!("the operator {other}"))),
        }
    }

    /// The function that an operator of dates, times and intervals is, and whether its arguments change places.
    fn of_time(name: &str, one: SqlType, other: SqlType) -> Option<(&'static str, bool)> {
        use SqlType::{Date, Interval, Time, Timestamp, Timestamptz, Unknown};
        Some(match (name, one, other) {
            ("+", Interval, Interval | Unknown) | ("+", Unknown, Interval) => ("interval_pl", false),
            ("-", Interval, Interval | Unknown) | ("-", Unknown, Interval) => ("interval_mi", false),
            ("*", Interval, ty) if ty.is_number() => ("interval_mul", false),
            ("*", ty, Interval) if ty.is_number() => ("interval_mul", true),
            ("/", Interval, ty) if ty.is_number() => ("interval_div", false),
            ("+", Timestamp | Date, Interval) | ("+", Timestamp, Unknown) => ("timestamp_pl_interval", false),
            ("+", Interval, Timestamp | Date) => ("timestamp_pl_interval", true),
            ("-", Timestamp | Date, Interval) => ("timestamp_mi_interval", false),
            ("+", Timestamptz, Interval | Unknown) => ("timestamptz_pl_interval", false),
            ("+", Interval, Timestamptz) => ("timestamptz_pl_interval", true),
            ("-", Timestamptz, Interval) => ("timestamptz_mi_interval", false),
            ("-", Timestamptz, _) | ("-", _, Timestamptz) => ("timestamptz_mi", false),
            ("-", Timestamp, _) | ("-", _, Timestamp) => ("timestamp_mi", false),
            ("+", Time, Interval) => ("time_pl_interval", false),
            ("+", Interval, Time) => ("time_pl_interval", true),
            ("-", Time, Interval) => ("time_mi_interval", false),
            ("-", Time, Time) => ("time_mi_time", false),
            ("+", Date, Time) => ("datetime_pl", false),
            ("+", Time, Date) => ("datetime_pl", true),
            _ => return None,
        })
    }

    /// The function that an operator of addresses is, and whether its arguments change places. An address makes one of a literal before it.
    fn of_network(name: &str, one: SqlType, other: SqlType) -> Option<(&'static str, bool)> {
        match (one.is_network(), other.is_network()) {
            (true, _) => network_operator(name, other).map(|function| (function, false)),
            (false, true) if name == "+" && one != SqlType::Text => Some(("inetpl", true)),
            (false, true) if one == SqlType::Unknown => {
                network_operator(name, other).map(|function| (function, false))
            }
            _ => None,
        }
    }

    pub(super) fn binary(
        &mut self,
        left: &ast::Expr,
        op: &BinaryOperator,
        right: &ast::Expr,
    ) -> Result<Typed, SqlError> {
        if matches!(op, BinaryOperator::And | BinaryOperator::Or) {
            return self.logical(left, op, right);
        }
        if *op == BinaryOperator::Overlaps {
            return self.overlaps(left, right);
        }
        if let Some(compared) = self.rows_compared(left, op, right)? {
            return Ok(compared);
        }
        let name = match op {
            BinaryOperator::PGCustomBinaryOperator(parts) => parts.last().cloned().unwrap_or_default(),
            other => other.to_string(),
        };
        let (one, other) = (self.expr(left)?, self.expr(right)?);
        if let Some(op) = compare_op(&name) {
            return self.comparison(op, one, other);
        }
        if let Some((function, swaps)) = Self::of_network(&name, one.ty, other.ty) {
            return self.call(function, if swaps { vec![other, one] } else { vec![one, other] });
        }
        match &*name {
            "||" if !is_document(one.ty) && !is_document(other.ty) => self.concat(one, other),
            "->" | "->>" | "#>" | "#>>" | "#-" | "@>" | "<@" | "?" | "||" | "-"
                if is_document(one.ty) || (is_document(other.ty) && matches!(&*name, "@>" | "<@" | "||")) =>
            {
                self.of_document(&name, one, other)
            }
            "@>" | "<@" | "&&" if one.ty.element().is_some() || other.ty.element().is_some() => {
                let function = match &*name {
                    "@>" => "arraycontains",
                    "<@" => "arraycontained",
                    _ => "arrayoverlap",
                };
                self.call(function, vec![one, other])
            }
            "~" => self.call("textregexeq", vec![one, other]),
            "~*" => self.call("texticregexeq", vec![one, other]),
            "!~" | "!~*" => {
                let function = if name == "!~" { "textregexeq" } else { "texticregexeq" };
                self.call(function, vec![one, other])
                    .map(|bound| Typed::boolean(Expr::Not(Box::new(bound.expr))))
            }
            "~~" | "~~*" | "!~~" | "!~~*" => {
                let (value, pattern) = self.texts(one, other)?;
                let any_case = name.ends_with('*');
                let like =
                    Expr::Like { value: Box::new(value), pattern: Box::new(pattern), escape: None, any_case };
                Ok(Typed::boolean(if name.starts_with('!') { Expr::Not(Box::new(like)) } else { like }))
            }
            "^" => self.call("power", vec![one, other]),
            _ => self.arithmetic(&name, one, other),
        }
    }

    /// `AND` and `OR`: a chain of one of them is one list, however long.
    fn logical(
        &mut self,
        left: &ast::Expr,
        op: &BinaryOperator,
        right: &ast::Expr,
    ) -> Result<Typed, SqlError> {
        let mut parts = vec![right];
        let mut rest = left;
        while let ast::Expr::BinaryOp { left, op: inner, right } = rest
            && inner == op
        {
            parts.push(right);
            rest = left;
        }
        parts.push(rest);
        let clause = if *op == BinaryOperator::And { "AND" } else { "OR" };
        let bound: Result<Vec<Expr>, SqlError> =
            parts.into_iter().rev().map(|part| self.condition(part, clause)).collect();
        let mut flat = Vec::new();
        for part in bound? {
            match part {
                Expr::And(inner) if clause == "AND" => flat.extend(inner),
                other => flat.push(other),
            }
        }
        Ok(Typed::boolean(if clause == "AND" { Expr::And(flat) } else { Expr::Or(flat) }))
    }

    pub(super) fn comparison(&mut self, op: CompareOp, one: Typed, other: Typed) -> Result<Typed, SqlError> {
        let (one, other, _) = self.unify(one, other, op_name(op))?;
        Ok(Typed::boolean(Expr::Compare(op, Box::new(one), Box::new(other))))
    }

    /// Brings two expressions to one type.
    pub(super) fn unify(
        &mut self,
        one: Typed,
        other: Typed,
        operator: &str,
    ) -> Result<(Expr, Expr, SqlType), SqlError> {
        let ty =
            common_type(one.ty, other.ty).ok_or_else(|| no_operator(operator, Some(one.ty), other.ty))?;
        let one = self.coerce(one, ty, Castability::Implicit)?;
        let other = self.coerce(other, ty, Castability::Implicit)?;
        Ok((one.expr, other.expr, ty))
    }

    /// The function that an operator of JSON is.
    fn of_document(&mut self, name: &str, one: Typed, other: Typed) -> Result<Typed, SqlError> {
        let prefix = if one.ty == SqlType::Json { "json" } else { "jsonb" };
        let by_number = other.ty.is_integer();
        let function = match name {
            "->" if by_number => "array_element",
            "->>" if by_number => "array_element_text",
            "->" => "object_field",
            "->>" => "object_field_text",
            "#>" => "extract_path",
            "#>>" => "extract_path_text",
            "@>" => "contains",
            "<@" => "contained",
            "?" => "exists",
            "#-" => "delete_path",
            "||" => "concat",
            _ => "delete",
        };
        self.call(&format!("{prefix}_{function}"), vec![one, other])
    }

    fn concat(&mut self, one: Typed, other: Typed) -> Result<Typed, SqlError> {
        let (is_array, other_is) = (one.ty.element().is_some(), other.ty.element().is_some());
        match (is_array, other_is) {
            (true, true) => return self.call("array_cat", vec![one, other]),
            (true, false) if other.ty == SqlType::Unknown => return self.call("array_cat", vec![one, other]),
            (false, true) if one.ty == SqlType::Unknown => return self.call("array_cat", vec![one, other]),
            (true, false) => return self.call("array_append", vec![one, other]),
            (false, true) => return self.call("array_prepend", vec![one, other]),
            (false, false) => {}
        }
        let of_octets = |ty: SqlType| matches!(ty, SqlType::Bytea | SqlType::Unknown);
        let has_octets = one.ty == SqlType::Bytea || other.ty == SqlType::Bytea;
        if has_octets && of_octets(one.ty) && of_octets(other.ty) {
            return self.call("byteacat", vec![one, other]);
        }
        if !one.ty.is_text() && !other.ty.is_text() {
            return Err(no_operator("||", Some(one.ty), other.ty));
        }
        let one = self.coerce(one, SqlType::Text, Castability::Assignment)?;
        let other = self.coerce(other, SqlType::Text, Castability::Assignment)?;
        self.call("textcat", vec![one, other])
    }

    pub(super) fn texts(&mut self, one: Typed, other: Typed) -> Result<(Expr, Expr), SqlError> {
        for side in [&one, &other] {
            if !side.ty.is_text() {
                return Err(no_operator("~~", Some(one.ty), other.ty));
            }
        }
        let one = self.coerce(one, SqlType::Text, Castability::Implicit)?;
        let other = self.coerce(other, SqlType::Text, Castability::Implicit)?;
        Ok((one.expr, other.expr))
    }

    fn arithmetic(&mut self, name: &str, one: Typed, other: Typed) -> Result<Typed, SqlError> {
        if let Some((function, turned)) = Self::of_time(name, one.ty, other.ty) {
            let arguments = if turned { vec![other, one] } else { vec![one, other] };
            return self.call(function, arguments);
        }
        let op = match name {
            "+" => ArithmeticOp::Add,
            "-" => ArithmeticOp::Sub,
            "*" => ArithmeticOp::Mul,
            "/" => ArithmeticOp::Div,
            "%" => ArithmeticOp::Rem,
            "&" => ArithmeticOp::And,
            "|" => ArithmeticOp::Or,
            "#" => ArithmeticOp::Xor,
            "<<" => ArithmeticOp::ShiftLeft,
            ">>" => ArithmeticOp::ShiftRight,
            other => return Err(SqlError::unsupported(format!("the operator {other}"))),
        };
        let is_bits = !matches!(name, "+" | "-" | "*" | "/" | "%");
        match (one.ty, other.ty) {
            (SqlType::Date, ty) if ty.is_integer() && matches!(name, "+" | "-") => {
                let expr = Expr::Arithmetic(op, SqlType::Date, Box::new(one.expr), Box::new(other.expr));
                return Ok(Typed::new(expr, SqlType::Date));
            }
            (ty, SqlType::Date) if ty.is_integer() && name == "+" => {
                let expr = Expr::Arithmetic(op, SqlType::Date, Box::new(one.expr), Box::new(other.expr));
                return Ok(Typed::new(expr, SqlType::Date));
            }
            (SqlType::Date, SqlType::Date) if name == "-" => {
                let expr = Expr::Arithmetic(op, SqlType::Int4, Box::new(one.expr), Box::new(other.expr));
                return Ok(Typed::new(expr, SqlType::Int4));
            }
            _ => {}
        }
        let (one_ty, other_ty) = (one.ty, other.ty);
        // A parameter or literal without a type takes that of the other side; two of them are numbers.
        let ty = match common_type(one.ty, other.ty) {
            Some(SqlType::Text) if one.ty == SqlType::Unknown && other.ty == SqlType::Unknown => {
                Some(SqlType::Int4)
            }
            ty => ty,
        };
        let ty = ty.filter(|ty| if is_bits { ty.is_integer() } else { ty.is_number() });
        let ty = ty.ok_or_else(|| no_operator(name, Some(one_ty), other_ty))?;
        if name == "%" && matches!(ty, SqlType::Float4 | SqlType::Float8) {
            return Err(no_operator(name, Some(one_ty), other_ty));
        }
        let one = self.coerce(one, ty, Castability::Implicit)?;
        let other = self.coerce(other, ty, Castability::Implicit)?;
        Ok(Typed::new(Expr::Arithmetic(op, ty, Box::new(one.expr), Box::new(other.expr)), ty))
    }

    pub(super) fn case(
        &mut self,
        operand: Option<&ast::Expr>,
        conditions: &[ast::CaseWhen],
        otherwise: Option<&ast::Expr>,
    ) -> Result<Typed, SqlError> {
        let operand = operand.map(|operand| self.expr(operand)).transpose()?;
        let mut bound = Vec::new();
        let mut results = Vec::new();
        for when in conditions {
            bound.push(match &operand {
                None => self.condition(&when.condition, "CASE/WHEN")?,
                Some(operand) => {
                    let value = self.expr(&when.condition)?;
                    self.comparison(CompareOp::Eq, operand.clone(), value)?.expr
                }
            });
            results.push(self.expr(&when.result)?);
        }
        results.push(otherwise.map_or_else(|| Ok(null()), |otherwise| self.expr(otherwise))?);
        let (mut results, ty) = self.unify_all(results, "CASE")?;
        let otherwise = Box::new(results.pop().unwrap_or(Expr::Const(Value::Null)));
        let conditions = bound.into_iter().zip(results).collect();
        Ok(Typed::new(Expr::Case { conditions, otherwise }, ty))
    }

    /// Brings expressions to one type.
    pub(super) fn unify_all(
        &mut self,
        all: Vec<Typed>,
        what: &str,
    ) -> Result<(Vec<Expr>, SqlType), SqlError> {
        let mut ty = SqlType::Unknown;
        for one in &all {
            ty = match (ty, one.ty) {
                (SqlType::Unknown, other) | (other, SqlType::Unknown) => other,
                (one, other) => common_type(one, other).ok_or_else(|| {
                    SqlError::new(
                        SqlState::DATATYPE_MISMATCH,
                        format!("{what} types {one} and {other} cannot be matched"),
                    )
                })?,
            };
        }
        let ty = if ty == SqlType::Unknown { SqlType::Text } else { ty };
        let exprs: Result<Vec<Expr>, SqlError> = all
            .into_iter()
            .map(|one| self.coerce(one, ty, Castability::Implicit).map(|typed| typed.expr))
            .collect();
        Ok((exprs?, ty))
    }
}

fn is_document(ty: SqlType) -> bool {
    matches!(ty, SqlType::Json | SqlType::Jsonb)
}

pub(super) fn compare_op(name: &str) -> Option<CompareOp> {
    Some(match name {
        "=" => CompareOp::Eq,
        "<>" | "!=" => CompareOp::Ne,
        "<" => CompareOp::Lt,
        "<=" => CompareOp::Le,
        ">" => CompareOp::Gt,
        ">=" => CompareOp::Ge,
        _ => return None,
    })
}

fn op_name(op: CompareOp) -> &'static str {
    match op {
        CompareOp::Eq => "=",
        CompareOp::Ne => "<>",
        CompareOp::Lt => "<",
        CompareOp::Le => "<=",
        CompareOp::Gt => ">",
        CompareOp::Ge => ">=",
    }
}

#[cold]
pub(super) fn no_operator(name: &str, one: Option<SqlType>, other: SqlType) -> SqlError {
    let left = one.map_or(String::new(), |ty| format!("{ty} "));
    SqlError::new(SqlState::UNDEFINED_FUNCTION, format!("operator does not exist: {left}{name} {other}"))
        .hint("No operator matches the given name and argument types. You might need to add explicit type casts.")
}

/// The type to which values of two types are brought to be compared.
pub(super) fn common_type(one: SqlType, other: SqlType) -> Option<SqlType> {
    if one == other {
        return Some(if one == SqlType::Unknown { SqlType::Text } else { one });
    }
    match (one, other) {
        (SqlType::Unknown, ty) | (ty, SqlType::Unknown) => return Some(ty),
        (one, other) if one.is_text() && other.is_text() => {
            let is_padded = |ty| ty == SqlType::Bpchar;
            return Some(if is_padded(one) && is_padded(other) { one } else { SqlType::Text });
        }
        (one, other) if one.is_oid() && other.is_oid() => return Some(SqlType::Oid),
        (one, other) if (one.is_oid() && other.is_integer()) || (one.is_integer() && other.is_oid()) => {
            return Some(SqlType::Oid);
        }
        // Sums of a real and exact numbers are of double precision.
        (SqlType::Float4, SqlType::Numeric) | (SqlType::Numeric, SqlType::Float4) => {
            return Some(SqlType::Float8);
        }
        _ => {}
    }
    if castability(one, other) == Some(Castability::Implicit) {
        return Some(other);
    }
    (castability(other, one) == Some(Castability::Implicit)).then_some(one)
}
