//! Binding of expressions.

use std::sync::Arc;

use sqlparser::ast::{self, BinaryOperator};

use super::operators::{common_type, compare_op, no_operator};
use super::rows::{is_null, row_parts};
use super::{Binder, Typed, data_type, ident, null};
use crate::cast::Castability;
use crate::error::{SqlError, SqlState};
use crate::expr::{CompareOp, Expr, Subquery, SubqueryKind};
use crate::numeric::Numeric;
use crate::record;
use crate::types::{Modifier, SqlType};
use crate::value::Value;

impl Binder<'_> {
    /// Binds an expression.
    pub(super) fn expr(&mut self, expr: &ast::Expr) -> Result<Typed, SqlError> {
        self.deeper(|binder| {
            if let Some(grouped) = binder.grouped(expr)? {
                return Ok(grouped);
            }
            binder.expr_of(expr)
        })
    }

    fn expr_of(&mut self, expr: &ast::Expr) -> Result<Typed, SqlError> {
        if let Some(parts) = row_parts(expr) {
            return self.row(&parts);
        }
        match expr {
            ast::Expr::Identifier(name) => self.column(None, name),
            ast::Expr::CompoundIdentifier(parts) => match &parts[..] {
                [table, column] | [_, table, column] => self.column(Some(&ident(table)), column),
                _ => Err(SqlError::unsupported(format!("the name {expr}"))),
            },
            ast::Expr::Value(value) => self.literal(&value.value),
            ast::Expr::Nested(inner) => self.expr(inner),
            ast::Expr::Collate { expr, .. } => self.expr(expr),
            ast::Expr::TypedString(typed) => {
                let (ty, modifier) = data_type(&typed.data_type)?;
                let text = self.literal(&typed.value.value)?;
                self.cast(text, ty, modifier, true)
            }
            ast::Expr::Cast {
                kind: ast::CastKind::Cast | ast::CastKind::DoubleColon,
                expr,
                data_type: ty,
                format: None,
            } => {
                let (ty, modifier) = data_type(ty)?;
                let inner = self.expr(expr)?;
                let from = inner.ty;
                let bound = self.coerce(inner, ty, Castability::Explicit).map_err(|error| {
                    if error.code != SqlState::DATATYPE_MISMATCH {
                        return error;
                    }
                    SqlError::new(SqlState::CANNOT_COERCE, format!("cannot cast type {from} to {ty}"))
                })?;
                if modifier == Modifier::None { Ok(bound) } else { self.cast(bound, ty, modifier, true) }
            }
            ast::Expr::UnaryOp { op, expr } => self.unary(*op, expr),
            ast::Expr::BinaryOp { left, op, right } => self.binary(left, op, right),
            ast::Expr::Function(function) => self.function(function),
            ast::Expr::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref())
            }
            ast::Expr::Subquery(query) => self.scalar_subquery(query),
            ast::Expr::Exists { subquery, negated } => {
                let (subquery, _) = self.subquery(subquery, None)?;
                let exists = Expr::Subquery(SubqueryKind::Exists, subquery);
                Ok(Typed::boolean(if *negated { Expr::Not(Box::new(exists)) } else { exists }))
            }
            ast::Expr::Array(array) => self.array(&array.elem),
            _ => self.predicate(expr),
        }
    }

    fn predicate(&mut self, expr: &ast::Expr) -> Result<Typed, SqlError> {
        let negate = |negated: bool, expr: Expr| {
            Typed::boolean(if negated { Expr::Not(Box::new(expr)) } else { expr })
        };
        let of = |binder: &mut Self, inner: &ast::Expr, value: bool, negated: bool| {
            let inner = binder.condition(inner, "IS TRUE")?;
            Ok(negate(negated, Expr::IsBool(Box::new(inner), value)))
        };
        match expr {
            ast::Expr::IsNull(inner) | ast::Expr::IsUnknown(inner) => {
                let inner = self.expr(inner)?;
                let inner = self.settled(inner)?;
                Ok(Typed::boolean(is_null(inner.expr, true)))
            }
            ast::Expr::IsNotNull(inner) | ast::Expr::IsNotUnknown(inner) => {
                let inner = self.expr(inner)?;
                let inner = self.settled(inner)?;
                Ok(Typed::boolean(is_null(inner.expr, false)))
            }
            ast::Expr::IsTrue(inner) => of(self, inner, true, false),
            ast::Expr::IsNotTrue(inner) => of(self, inner, true, true),
            ast::Expr::IsFalse(inner) => of(self, inner, false, false),
            ast::Expr::IsNotFalse(inner) => of(self, inner, false, true),
            ast::Expr::IsDistinctFrom(one, other) | ast::Expr::IsNotDistinctFrom(one, other) => {
                let (one, other) = (self.expr(one)?, self.expr(other)?);
                let (one, other, _) = self.unify(one, other, "IS DISTINCT FROM")?;
                let negated = matches!(expr, ast::Expr::IsNotDistinctFrom(..));
                Ok(negate(negated, Expr::IsDistinct(Box::new(one), Box::new(other))))
            }
            ast::Expr::Between { expr, negated, low, high } => {
                let (value, low, high) = (self.expr(expr)?, self.expr(low)?, self.expr(high)?);
                let least = self.comparison(CompareOp::Ge, value.clone(), low)?;
                let most = self.comparison(CompareOp::Le, value, high)?;
                Ok(negate(*negated, Expr::And(vec![least.expr, most.expr])))
            }
            ast::Expr::In { expr, target, negated, global: false } => {
                self.in_target(expr, target).map(|bound| negate(*negated, bound.expr))
            }
            ast::Expr::Like { negated, any: false, expr, pattern, escape_char } => self
                .like(expr, pattern, escape_char.as_deref(), false)
                .map(|bound| negate(*negated, bound.expr)),
            ast::Expr::ILike { negated, any: false, expr, pattern, escape_char } => self
                .like(expr, pattern, escape_char.as_deref(), true)
                .map(|bound| negate(*negated, bound.expr)),
            ast::Expr::SimilarTo { negated, expr, pattern, escape_char } => {
                let value = self.expr(expr)?;
                let mut of_pattern = vec![self.expr(pattern)?];
                if let Some(escape) = escape_char {
                    of_pattern.push(self.expr(escape)?);
                }
                let pattern = self.call("similar_to_escape", of_pattern)?;
                self.call("textregexeq", vec![value, pattern]).map(|bound| negate(*negated, bound.expr))
            }
            ast::Expr::AnyOp { left, compare_op, right, .. } => self.any(left, compare_op, right, false),
            ast::Expr::AllOp { left, compare_op, right } => self.any(left, compare_op, right, true),
            _ => self.special_call(expr),
        }
    }

    /// Functions that the grammar knows by their own syntax.
    fn special_call(&mut self, expr: &ast::Expr) -> Result<Typed, SqlError> {
        match expr {
            ast::Expr::Extract { field, expr, .. } => {
                let field =
                    Typed::new(Expr::Const(Value::from(field.to_string().to_lowercase())), SqlType::Text);
                let value = self.expr(expr)?;
                self.call("extract", vec![field, value])
            }
            ast::Expr::Ceil {
                expr,
                field: ast::CeilFloorKind::DateTimeField(ast::DateTimeField::NoDateTime),
            } => {
                let value = self.expr(expr)?;
                self.call("ceil", vec![value])
            }
            ast::Expr::Floor {
                expr,
                field: ast::CeilFloorKind::DateTimeField(ast::DateTimeField::NoDateTime),
            } => {
                let value = self.expr(expr)?;
                self.call("floor", vec![value])
            }
            ast::Expr::Position { expr, r#in } => {
                let (part, whole) = (self.expr(expr)?, self.expr(r#in)?);
                self.call("strpos", vec![whole, part])
            }
            ast::Expr::Substring { expr, substring_from, substring_for, .. } => {
                let mut arguments = vec![self.expr(expr)?];
                match (substring_from, substring_for) {
                    (Some(from), _) => arguments.push(self.expr(from)?),
                    (None, _) => arguments.push(Typed::new(Expr::Const(Value::Int(1)), SqlType::Int4)),
                }
                if let Some(count) = substring_for {
                    arguments.push(self.expr(count)?);
                }
                self.call("substring", arguments)
            }
            ast::Expr::Trim { trim_where, trim_what, expr, trim_characters } => {
                let name = match trim_where {
                    None | Some(ast::TrimWhereField::Both) => "btrim",
                    Some(ast::TrimWhereField::Leading) => "ltrim",
                    Some(ast::TrimWhereField::Trailing) => "rtrim",
                };
                let mut arguments = vec![self.expr(expr)?];
                let characters = trim_what.as_deref().or_else(|| trim_characters.as_ref()?.first());
                if let Some(characters) = characters {
                    arguments.push(self.expr(characters)?);
                }
                self.call(name, arguments)
            }
            ast::Expr::CompoundFieldAccess { root, access_chain } => {
                self.subscripts(expr, root, access_chain)
            }
            ast::Expr::Interval(interval) => self.interval(interval),
            ast::Expr::AtTimeZone { timestamp, time_zone } => {
                let (moment, zone) = (self.expr(timestamp)?, self.expr(time_zone)?);
                self.call("timezone", vec![zone, moment])
            }
            ast::Expr::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
                let mut arguments =
                    vec![self.expr(expr)?, self.expr(overlay_what)?, self.expr(overlay_from)?];
                if let Some(count) = overlay_for {
                    arguments.push(self.expr(count)?);
                }
                self.call("overlay", arguments)
            }
            other => Err(SqlError::unsupported(format!("the expression {}", short(&other.to_string())))),
        }
    }

    /// An interval of a literal, perhaps with the unit of its number behind it.
    fn interval(&mut self, interval: &ast::Interval) -> Result<Typed, SqlError> {
        if interval.leading_precision.is_some() || interval.fractional_seconds_precision.is_some() {
            return Err(SqlError::unsupported("an interval with a precision"));
        }
        let value = match &*interval.value {
            ast::Expr::Value(value) => match &value.value {
                ast::Value::SingleQuotedString(text) => text.clone(),
                other => return Err(SqlError::unsupported(format!("the interval {other}"))),
            },
            other => {
                return Err(SqlError::unsupported(format!("the interval {}", short(&other.to_string()))));
            }
        };
        let is_number = value.trim().parse::<f64>().is_ok();
        let text = match (&interval.last_field, &interval.leading_field) {
            (None, Some(unit)) if is_number => format!("{value} {unit}"),
            _ => value,
        };
        let typed = Typed::new(Expr::Const(Value::from(text)), SqlType::Unknown);
        self.cast(typed, SqlType::Interval, Modifier::None, true)
    }

    /// Elements of an array by their numbers, or fields of a record by their names.
    fn subscripts(
        &mut self,
        expr: &ast::Expr,
        root: &ast::Expr,
        chain: &[ast::AccessExpr],
    ) -> Result<Typed, SqlError> {
        // The grammar takes the name of a column with that of its table for the first links of the chain.
        let names = qualified(root, chain);
        let (mut array, chain) = match names.len() {
            0 => (self.expr(root)?, chain),
            count => (self.expr(&ast::Expr::CompoundIdentifier(names))?, &chain[count - 1..]),
        };
        for access in chain {
            let index = match access {
                ast::AccessExpr::Subscript(ast::Subscript::Index { index }) => index,
                ast::AccessExpr::Subscript(ast::Subscript::Slice {
                    lower_bound,
                    upper_bound,
                    stride: None,
                }) => {
                    array = self.slice(array, lower_bound.as_ref(), upper_bound.as_ref())?;
                    continue;
                }
                ast::AccessExpr::Dot(ast::Expr::Identifier(name)) => {
                    array = field_of(array, &ident(name))?;
                    continue;
                }
                _ => return Err(SqlError::unsupported(format!("the expression {expr}"))),
            };
            let element = array.ty.element().ok_or_else(|| {
                SqlError::new(
                    SqlState::DATATYPE_MISMATCH,
                    format!("cannot subscript type {} because it does not support subscripting", array.ty),
                )
            })?;
            let index = self.expr(index)?;
            let index = self.coerce(index, SqlType::Int4, Castability::Assignment)?;
            array = Typed::new(Expr::Subscript(Box::new(array.expr), Box::new(index.expr)), element);
        }
        Ok(array)
    }

    fn slice(
        &mut self,
        array: Typed,
        lower: Option<&ast::Expr>,
        upper: Option<&ast::Expr>,
    ) -> Result<Typed, SqlError> {
        let ty = array.ty;
        let mut bound = |bound: Option<&ast::Expr>, otherwise: i64| match bound {
            Some(expr) => self.expr(expr),
            None => Ok(Typed::new(Expr::Const(Value::Int(otherwise)), SqlType::Int4)),
        };
        let (lower, upper) = (bound(lower, 1)?, bound(upper, i64::from(i32::MAX))?);
        let sliced = self.call("array_slice", vec![array, lower, upper])?;
        Ok(Typed::new(sliced.expr, ty))
    }

    /// The column of a name, in the innermost scope that has one.
    pub(super) fn column(&mut self, table: Option<&str>, name: &ast::Ident) -> Result<Typed, SqlError> {
        let column = ident(name);
        let position = self.position(name.span);
        for level in 0..self.scopes.len() {
            let scope = &self.scopes[self.scopes.len() - 1 - level];
            let mut found = scope.columns.iter().enumerate().filter(|(_, candidate)| {
                candidate.output.name == column
                    && table.map_or(!candidate.is_merged, |table| candidate.table == table)
            });
            let Some((at, first)) = found.next() else { continue };
            if found.next().is_some() {
                return Err(SqlError::new(
                    SqlState::AMBIGUOUS_COLUMN,
                    format!("column reference \"{column}\" is ambiguous"),
                )
                .at(position));
            }
            let (ty, modifier, origin) = (first.output.ty, first.output.modifier, first.output.origin);
            let merged = first.merged_with.filter(|_| table.is_none());
            let of_table = first.table.clone();
            self.reads(origin);
            let scope = &self.scopes[self.scopes.len() - 1 - level];
            if let Some(grouping) = &scope.grouping
                && !grouping.is_inside
            {
                let Some(group) = grouping.group_of(at) else {
                    let shown = if of_table.is_empty() { column } else { format!("{of_table}.{column}") };
                    return Err(SqlError::new(
                        SqlState::GROUPING_ERROR,
                        format!(
                            "column \"{shown}\" must appear in the GROUP BY clause or be used in an aggregate function"
                        ),
                    )
                    .at(position));
                };
                let expr =
                    if level == 0 { Expr::Column(group) } else { Expr::Outer { level, column: group } };
                return Ok(Typed { expr, ty, modifier });
            }
            if let Some(merged) = merged {
                return self.merged_column(level, at, merged);
            }
            let expr = if level == 0 { Expr::Column(at) } else { Expr::Outer { level, column: at } };
            return Ok(Typed { expr, ty, modifier });
        }
        if table.is_none()
            && name.quote_style.is_none()
            && matches!(
                &*column,
                "current_user"
                    | "session_user"
                    | "current_role"
                    | "user"
                    | "current_catalog"
                    | "current_schema"
            )
        {
            return self.call(&column, Vec::new());
        }
        if table.is_none()
            && let Some(row) = self.row_of_table(&column, name)?
        {
            return Ok(row);
        }
        Err(self.no_column(table, &column).at(position))
    }

    fn no_column(&self, table: Option<&str>, column: &str) -> SqlError {
        match table {
            Some(table) if !self.has_table(table) => SqlError::new(
                SqlState::UNDEFINED_TABLE,
                format!("missing FROM-clause entry for table \"{table}\""),
            ),
            Some(table) => {
                SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column {table}.{column} does not exist"))
            }
            None => SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column \"{column}\" does not exist")),
        }
    }

    /// The one column that `USING` of a RIGHT or FULL JOIN has made of two.
    pub(super) fn merged_column(
        &mut self,
        level: usize,
        at: usize,
        (other, both): (usize, bool),
    ) -> Result<Typed, SqlError> {
        let columns = &self.scopes[self.scopes.len() - 1 - level].columns;
        let typed = |column: usize| {
            let expr = if level == 0 { Expr::Column(column) } else { Expr::Outer { level, column } };
            Typed { expr, ty: columns[column].output.ty, modifier: columns[column].output.modifier }
        };
        let (one, other) = (typed(at), typed(other));
        if !both {
            return Ok(other);
        }
        let (parts, ty) = self.unify_all(vec![one, other], "JOIN/USING")?;
        Ok(Typed::new(Expr::Coalesce(parts), ty))
    }

    fn has_table(&self, table: &str) -> bool {
        self.scopes.iter().any(|scope| scope.columns.iter().any(|column| column.table == table))
    }

    pub(super) fn literal(&mut self, value: &ast::Value) -> Result<Typed, SqlError> {
        let text = |text: &str| Ok(Typed::new(Expr::Const(Value::text(text)), SqlType::Unknown));
        match value {
            ast::Value::Null => Ok(null()),
            ast::Value::Boolean(value) => Ok(Typed::boolean(Expr::Const(Value::Bool(*value)))),
            ast::Value::Number(digits, false) => number(digits),
            ast::Value::SingleQuotedString(value)
            | ast::Value::EscapedStringLiteral(value)
            | ast::Value::UnicodeStringLiteral(value) => text(value),
            ast::Value::DollarQuotedString(value) => text(&value.value),
            ast::Value::Placeholder(name) => {
                let number = name.strip_prefix('$').and_then(|digits| digits.parse::<usize>().ok());
                let at = number.filter(|number| (1..=65_535).contains(number)).map(|number| number - 1);
                let at = at.ok_or_else(|| {
                    SqlError::new(SqlState::UNDEFINED_PARAMETER, format!("there is no parameter {name}"))
                })?;
                if self.params.len() <= at {
                    self.params.resize(at + 1, None);
                }
                Ok(Typed::new(Expr::Param(at), self.params[at].unwrap_or(SqlType::Unknown)))
            }
            other => Err(SqlError::unsupported(format!("the literal {}", short(&other.to_string())))),
        }
    }

    fn like(
        &mut self,
        value: &ast::Expr,
        pattern: &ast::Expr,
        escape: Option<&ast::Expr>,
        any_case: bool,
    ) -> Result<Typed, SqlError> {
        let (value, pattern) = (self.expr(value)?, self.expr(pattern)?);
        let (value, pattern) = self.texts(value, pattern)?;
        let escape = match escape {
            None => None,
            Some(escape) => {
                let escape = self.expr(escape)?;
                Some(Box::new(self.coerce(escape, SqlType::Text, Castability::Implicit)?.expr))
            }
        };
        Ok(Typed::boolean(Expr::Like {
            value: Box::new(value),
            pattern: Box::new(pattern),
            escape,
            any_case,
        }))
    }

    fn in_target(&mut self, value: &ast::Expr, target: &ast::InTarget) -> Result<Typed, SqlError> {
        match target {
            ast::InTarget::List(list) => {
                if let Some(parts) = row_parts(value) {
                    let mut rows = Vec::new();
                    for row in list {
                        let others = row_parts(row)
                            .ok_or_else(|| SqlError::unsupported("a row in a list of values"))?;
                        rows.push(self.compare_rows(&parts, &BinaryOperator::Eq, &others)?.expr);
                    }
                    return Ok(Typed::boolean(Expr::Or(rows)));
                }
                let mut all = vec![self.expr(value)?];
                for one in list {
                    all.push(self.expr(one)?);
                }
                let (mut all, _) = self.unify_all(all, "IN")?;
                let list = all.split_off(1);
                let value = all.pop().unwrap_or(Expr::Const(Value::Null));
                Ok(Typed::boolean(Expr::InList(Box::new(value), list)))
            }
            ast::InTarget::Subquery(query) => {
                if let Some(parts) = row_parts(value) {
                    return self.row_in_subquery(&parts, query);
                }
                let value = self.expr(value)?;
                self.in_subquery(CompareOp::Eq, false, value, query)
            }
            other => Err(SqlError::unsupported(format!("IN {}", short(&other.to_string())))),
        }
    }

    fn in_subquery(
        &mut self,
        op: CompareOp,
        all: bool,
        value: Typed,
        query: &ast::Query,
    ) -> Result<Typed, SqlError> {
        let (subquery, columns) = self.subquery(query, None)?;
        let [(ty, _)] = columns[..] else {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "subquery has too many columns"));
        };
        // The subquery's values stay as they are; the other side comes to their type, or both to a wider one.
        let wider = common_type(value.ty, ty).ok_or_else(|| no_operator("=", Some(value.ty), ty))?;
        let value = self.coerce(value, wider, Castability::Implicit)?;
        let subquery = if wider == ty { subquery } else { self.subquery(query, Some(wider))?.0 };
        Ok(Typed::boolean(Expr::InSubquery { op, all, value: Box::new(value.expr), subquery }))
    }

    fn any(
        &mut self,
        left: &ast::Expr,
        op: &BinaryOperator,
        right: &ast::Expr,
        all: bool,
    ) -> Result<Typed, SqlError> {
        let name = match op {
            BinaryOperator::PGCustomBinaryOperator(parts) => parts.last().cloned().unwrap_or_default(),
            other => other.to_string(),
        };
        let op = compare_op(&name)
            .ok_or_else(|| SqlError::unsupported(format!("the operator {name} with ANY or ALL")))?;
        let value = self.expr(left)?;
        if let ast::Expr::Subquery(query) = right {
            return self.in_subquery(op, all, value, query);
        }
        let array = self.expr(right)?;
        let value = self.settled_for(value, &array)?;
        let array_ty = match array.ty {
            SqlType::Unknown => {
                value.ty.array().ok_or_else(|| SqlError::unsupported(format!("an array of {}", value.ty)))?
            }
            ty => ty,
        };
        let element = array_ty.element().ok_or_else(|| {
            SqlError::new(SqlState::WRONG_OBJECT_TYPE, "op ANY/ALL (array) requires array on right side")
        })?;
        let array = self.coerce(array, array_ty, Castability::Implicit)?;
        let ty = common_type(value.ty, element).ok_or_else(|| no_operator(&name, Some(value.ty), element))?;
        let value = self.coerce(value, ty, Castability::Implicit)?;
        let array = match ty.array() {
            Some(wider) if ty != element && wider != array_ty => {
                self.cast(array, wider, Modifier::None, true)?
            }
            _ => array,
        };
        Ok(Typed::boolean(Expr::Any { op, all, value: Box::new(value.expr), array: Box::new(array.expr) }))
    }

    fn settled_for(&mut self, value: Typed, array: &Typed) -> Result<Typed, SqlError> {
        match (value.ty, array.ty.element()) {
            (SqlType::Unknown, Some(element)) => self.coerce(value, element, Castability::Implicit),
            _ => self.settled(value),
        }
    }

    fn array(&mut self, elements: &[ast::Expr]) -> Result<Typed, SqlError> {
        let mut bound = Vec::new();
        for element in elements {
            bound.push(self.expr(element)?);
        }
        let (elements, ty) = self.unify_all(bound, "ARRAY")?;
        let array = ty.array().ok_or_else(|| SqlError::unsupported(format!("an array of {ty}")))?;
        Ok(Typed::new(Expr::Array(elements), array))
    }

    fn scalar_subquery(&mut self, query: &ast::Query) -> Result<Typed, SqlError> {
        let (subquery, columns) = self.subquery(query, None)?;
        let [(ty, modifier)] = columns[..] else {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "subquery must return only one column"));
        };
        Ok(Typed { expr: Expr::Subquery(SubqueryKind::Scalar, subquery), ty, modifier })
    }

    /// Binds a subquery; its one column is brought to a type if one is given.
    pub(super) fn subquery(
        &mut self,
        query: &ast::Query,
        to: Option<SqlType>,
    ) -> Result<BoundSubquery, SqlError> {
        let mut query = self.query(query)?;
        if let (Some(to), Some(column)) = (to, query.columns.first().cloned()) {
            let typed = self.cast(Typed::new(Expr::Column(0), column.ty), to, Modifier::None, true)?;
            query.root = crate::plan::Node::Project(Box::new(query.root), vec![typed.expr]);
        }
        let columns = query.columns.iter().map(|column| (column.ty, column.modifier)).collect();
        let slot = self.subqueries;
        self.subqueries += 1;
        let is_correlated = query.is_correlated(1);
        Ok((Arc::new(Subquery { slot, query, is_correlated }), columns))
    }
}

/// A subquery, with the types of its columns.
type BoundSubquery = (Arc<Subquery>, Vec<(SqlType, Modifier)>);

fn short(text: &str) -> String {
    text.chars().take(40).collect()
}

/// The constant of a literal number.
pub(super) fn number(digits: &str) -> Result<Typed, SqlError> {
    if let Ok(number) = digits.parse::<i64>() {
        let ty = if i32::try_from(number).is_ok() { SqlType::Int4 } else { SqlType::Int8 };
        return Ok(Typed::new(Expr::Const(Value::Int(number)), ty));
    }
    match (Numeric::parse(digits), digits.parse::<f64>()) {
        (Ok(number), _) => Ok(Typed::new(Expr::Const(Value::Numeric(number)), SqlType::Numeric)),
        // With an exponent it may be meant for a floating-point number, which has more room.
        (Err(_), Ok(number)) if digits.contains(['e', 'E']) && number.is_finite() => {
            Ok(Typed::new(Expr::Const(Value::Float(number)), SqlType::Float8))
        }
        (Err(error), _) => Err(error),
    }
}

/// The field of a record.
fn field_of(record: Typed, name: &str) -> Result<Typed, SqlError> {
    if record.ty != SqlType::Record {
        return Err(SqlError::new(
            SqlState::WRONG_OBJECT_TYPE,
            format!("column notation .{name} applied to type {}, which is not a composite type", record.ty),
        ));
    }
    if let Expr::Row(shape, parts) = &record.expr {
        let found = shape.place_of(name).and_then(|at| Some((parts.get(at)?, shape.types.get(at)?)));
        if let Some((part, ty)) = found {
            return Ok(Typed::new(part.clone(), *ty));
        }
    }
    let found = record::fields(record.modifier).into_iter().enumerate().find(|(_, field)| field.0 == name);
    let (at, (_, ty)) = found.ok_or_else(|| {
        SqlError::new(
            SqlState::UNDEFINED_COLUMN,
            format!("could not identify column \"{name}\" in record data type"),
        )
    })?;
    Ok(Typed::new(Expr::Field(Box::new(record.expr), at), ty))
}

/// The parts of a name that the grammar has as a root and the first links of a chain; none if no link is a part of one.
pub(super) fn qualified(root: &ast::Expr, chain: &[ast::AccessExpr]) -> Vec<ast::Ident> {
    let ast::Expr::Identifier(first) = root else { return Vec::new() };
    let parts = chain.iter().map_while(|access| match access {
        ast::AccessExpr::Dot(ast::Expr::Identifier(part)) => Some(part.clone()),
        _ => None,
    });
    let parts: Vec<ast::Ident> = parts.collect();
    if parts.is_empty() { parts } else { std::iter::once(first.clone()).chain(parts).collect() }
}
