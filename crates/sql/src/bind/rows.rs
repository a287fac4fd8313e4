//! Binding of rows of values: `(a, b)`, `ROW(a, b)`, and rows of tables as values.
//!
//! Owns: what is a row, and how rows are compared. Never: evaluates.

use std::borrow::Cow;
use std::sync::Arc;

use sqlparser::ast::{self, BinaryOperator};

use super::operators::compare_op;
use super::{Binder, Typed};
use crate::cast::Castability;
use crate::error::{SqlError, SqlState};
use crate::expr::{CompareOp, Expr, SubqueryKind};
use crate::record::RecordShape;
use crate::types::{Modifier, SqlType};

/// The values of a row as it is written: several in parentheses, or any number behind `ROW`.
pub(super) fn row_parts(expr: &ast::Expr) -> Option<Cow<'_, [ast::Expr]>> {
    match expr {
        ast::Expr::Tuple(parts) => Some(Cow::Borrowed(parts)),
        ast::Expr::Function(function) if is_row(&function.name) => {
            let ast::FunctionArguments::List(list) = &function.args else { return None };
            let part = |argument: &ast::FunctionArg| match argument {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(part)) => Some(part.clone()),
                _ => None,
            };
            list.args.iter().map(part).collect::<Option<Vec<_>>>().map(Cow::Owned)
        }
        _ => None,
    }
}

fn is_row(name: &ast::ObjectName) -> bool {
    match &name.0[..] {
        [ast::ObjectNamePart::Identifier(name)] => {
            name.quote_style.is_none() && name.value.eq_ignore_ascii_case("row")
        }
        _ => false,
    }
}

/// `IS NULL` or, without `wanted`, `IS NOT NULL`: a row is neither where it has values of both kinds.
pub(super) fn is_null(expr: Expr, wanted: bool) -> Expr {
    match expr {
        Expr::Row(_, parts) => Expr::And(parts.into_iter().map(|part| is_null_alone(part, wanted)).collect()),
        single => is_null_alone(single, wanted),
    }
}

fn is_null_alone(expr: Expr, wanted: bool) -> Expr {
    let is_null = Expr::IsNull(Box::new(expr));
    if wanted { is_null } else { Expr::Not(Box::new(is_null)) }
}

impl Binder<'_> {
    /// Binds a row as a value.
    pub(super) fn row(&mut self, parts: &[ast::Expr]) -> Result<Typed, SqlError> {
        let mut bound = Vec::new();
        for part in parts {
            let part = self.expr(part)?;
            bound.push(self.settled(part)?);
        }
        Ok(row_value(bound, None))
    }

    /// Binds the name of a table as its row; `None` if there is no such table.
    pub(super) fn row_of_table(&mut self, table: &str, name: &ast::Ident) -> Result<Option<Typed>, SqlError> {
        let of_table = |scope: &super::Scope| -> Vec<String> {
            let columns = scope.columns.iter().filter(|column| column.table == table && !column.is_hidden);
            columns.map(|column| column.output.name.clone()).collect()
        };
        let Some(names) = self.scopes.iter().rev().map(of_table).find(|names| !names.is_empty()) else {
            return Ok(None);
        };
        let is_alone = |column: &super::ScopeColumn| column.table == table && column.is_alone;
        let is_value = self.scopes.iter().any(|scope| scope.columns.iter().any(is_alone));
        let mut bound = Vec::new();
        for column in &names {
            let column = ast::Ident { value: column.clone(), quote_style: Some('"'), span: name.span };
            bound.push(self.column(Some(table), &column)?);
        }
        if let (true, [value]) = (is_value, &bound[..]) {
            return Ok(Some(value.clone()));
        }
        Ok(Some(row_value(bound, Some(names))))
    }

    /// Binds a comparison of two rows, or of a row with a subquery; `None` if the first is none.
    pub(super) fn rows_compared(
        &mut self,
        left: &ast::Expr,
        op: &BinaryOperator,
        right: &ast::Expr,
    ) -> Result<Option<Typed>, SqlError> {
        let Some(ones) = row_parts(left) else { return Ok(None) };
        match right {
            ast::Expr::Subquery(query) => self.compare_with_subquery(&ones, op, query).map(Some),
            _ => row_parts(right).map(|others| self.compare_rows(&ones, op, &others)).transpose(),
        }
    }

    /// Binds `OVERLAPS`: two rows of the beginning and the end, or the length, of a period.
    pub(super) fn overlaps(&mut self, left: &ast::Expr, right: &ast::Expr) -> Result<Typed, SqlError> {
        let mut bound = Vec::new();
        for (side, word) in [(left, "left"), (right, "right")] {
            let parts = row_parts(side).filter(|parts| parts.len() == 2).ok_or_else(|| {
                SqlError::new(
                    SqlState::SYNTAX_ERROR,
                    format!("wrong number of parameters on {word} side of OVERLAPS expression"),
                )
            })?;
            for part in parts.iter() {
                bound.push(self.expr(part)?);
            }
        }
        self.call("overlaps", bound)
    }

    /// Binds `(a, b) = (SELECT ..)`: the one row of the subquery, or NULL.
    fn compare_with_subquery(
        &mut self,
        ones: &[ast::Expr],
        op: &BinaryOperator,
        query: &ast::Query,
    ) -> Result<Typed, SqlError> {
        let fields = self.fields_of_subquery(query)?;
        if fields.len() != ones.len() {
            let many = if fields.len() > ones.len() { "many" } else { "few" };
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("subquery has too {many} columns")));
        }
        let mut pairs = Vec::new();
        for (one, field) in ones.iter().zip(fields) {
            pairs.push((self.expr(one)?, field));
        }
        self.compare_pairs(pairs, op)
    }

    /// Binds a subquery that has one row, or none, which is a row of NULLs then: its values.
    pub(super) fn fields_of_subquery(&mut self, query: &ast::Query) -> Result<Vec<Typed>, SqlError> {
        let (subquery, columns) = self.subquery(query, None)?;
        let field = |(at, (ty, modifier)): (usize, (SqlType, Modifier))| {
            let row = Box::new(Expr::Subquery(SubqueryKind::Row, Arc::clone(&subquery)));
            Typed { expr: Expr::Field(row, at), ty, modifier }
        };
        Ok(columns.into_iter().enumerate().map(field).collect())
    }

    pub(super) fn compare_rows(
        &mut self,
        ones: &[ast::Expr],
        op: &BinaryOperator,
        others: &[ast::Expr],
    ) -> Result<Typed, SqlError> {
        if ones.len() != others.len() {
            return Err(SqlError::new(
                SqlState::SYNTAX_ERROR,
                "unequal number of entries in row expressions",
            ));
        }
        let mut pairs = Vec::new();
        for (one, other) in ones.iter().zip(others) {
            pairs.push((self.expr(one)?, self.expr(other)?));
        }
        self.compare_pairs(pairs, op)
    }

    /// Binds a comparison of two rows by the pairs of their values.
    fn compare_pairs(&mut self, pairs: Vec<(Typed, Typed)>, op: &BinaryOperator) -> Result<Typed, SqlError> {
        let order = compare_op(&op.to_string())
            .ok_or_else(|| SqlError::unsupported(format!("the comparison {op} of rows")))?;
        if !matches!(order, CompareOp::Eq | CompareOp::Ne) {
            return self.order_rows(pairs, order);
        }
        let mut parts = Vec::new();
        for (one, other) in pairs {
            parts.push(self.comparison(CompareOp::Eq, one, other)?.expr);
        }
        let all = Expr::And(parts);
        Ok(Typed::boolean(if *op == BinaryOperator::Eq { all } else { Expr::Not(Box::new(all)) }))
    }

    /// Binds `(a, b) < (c, d)`: the first values that differ decide.
    fn order_rows(&mut self, pairs: Vec<(Typed, Typed)>, op: CompareOp) -> Result<Typed, SqlError> {
        let strict = match op {
            CompareOp::Le => CompareOp::Lt,
            CompareOp::Ge => CompareOp::Gt,
            strict => strict,
        };
        let mut bound: Option<Expr> = None;
        for (one, other) in pairs.into_iter().rev() {
            bound = Some(match bound {
                None => self.comparison(op, one, other)?.expr,
                Some(rest) => {
                    let equal = self.comparison(CompareOp::Eq, one.clone(), other.clone())?.expr;
                    let before = self.comparison(strict, one, other)?.expr;
                    Expr::Or(vec![before, Expr::And(vec![equal, rest])])
                }
            });
        }
        bound
            .map(Typed::boolean)
            .ok_or_else(|| SqlError::new(SqlState::SYNTAX_ERROR, "cannot compare rows of zero length"))
    }

    /// Binds `(a, b) IN (SELECT ..)`: the value is an array of the row's values.
    pub(super) fn row_in_subquery(
        &mut self,
        parts: &[ast::Expr],
        query: &ast::Query,
    ) -> Result<Typed, SqlError> {
        let (subquery, columns) = self.subquery(query, None)?;
        if columns.len() != parts.len() {
            let many = if columns.len() > parts.len() { "many" } else { "few" };
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("subquery has too {many} columns")));
        }
        let mut values = Vec::new();
        for (part, (ty, _)) in parts.iter().zip(columns) {
            let value = self.expr(part)?;
            if value.ty != ty && value.ty != SqlType::Unknown && !(value.ty.is_integer() && ty.is_integer()) {
                return Err(SqlError::unsupported("a row in a subquery whose columns have other types")
                    .hint("Cast the values of the row to the types of the subquery's columns."));
            }
            values.push(self.coerce(value, ty, Castability::Assignment)?.expr);
        }
        let value = Box::new(Expr::Array(values));
        Ok(Typed::boolean(Expr::InSubquery { op: CompareOp::Eq, all: false, value, subquery }))
    }
}

/// A row as a value. One of a table, which has names, is NULL where all of its values are: there is none in an outer join.
fn row_value(parts: Vec<Typed>, names: Option<Vec<String>>) -> Typed {
    let (types, parts) = parts.into_iter().map(|part| (part.ty, part.expr)).unzip();
    Typed::new(Expr::Row(Arc::new(RecordShape { types, names }), parts), SqlType::Record)
}
