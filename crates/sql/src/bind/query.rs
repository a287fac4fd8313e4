//! Binding of queries: set operations, VALUES, WITH, ORDER BY and LIMIT.

use std::collections::BTreeSet;

use sqlparser::ast;

use super::joins::{Lock, Locks};
use super::{Binder, Named, Scope, Typed, ident, object_name};
use crate::cast::Castability;
use crate::error::{SqlError, SqlState};
use crate::expr::Expr;
use crate::plan::{Node, OutputColumn, Query, SortKey, WhenLocked};
use crate::roles::{Object, Privileges};
use crate::types::{Modifier, SqlType};

impl Binder<'_> {
    /// Binds a query.
    pub(crate) fn query(&mut self, query: &ast::Query) -> Result<Query, SqlError> {
        self.deeper(|binder| {
            let known = binder.named.len();
            let bound = binder.query_of(query);
            binder.named.truncate(known);
            bound
        })
    }

    fn query_of(&mut self, query: &ast::Query) -> Result<Query, SqlError> {
        if query.for_clause.is_some()
            || query.settings.is_some()
            || query.format_clause.is_some()
            || !query.pipe_operators.is_empty()
        {
            return Err(SqlError::unsupported("a clause of this query"));
        }
        if let Some(with) = &query.with {
            self.with(with)?;
        }
        let order = self.order_by(query)?;
        let mut bound = match &*query.body {
            ast::SetExpr::Select(select) => self.select(select, &order, &query.locks)?,
            body => {
                if !query.locks.is_empty() {
                    return Err(SqlError::unsupported("FOR UPDATE of this query"));
                }
                let mut bound = self.set_expr(body)?;
                if !order.is_empty() {
                    let keys = self.output_order(&order, &bound.columns)?;
                    bound.root = Node::Sort(Box::new(bound.root), keys);
                }
                bound
            }
        };
        let (limit, offset) = self.limits(query)?;
        if limit.is_some() || offset.is_some() {
            bound.root = Node::Limit { input: Box::new(bound.root), limit, offset };
        }
        Ok(bound)
    }

    pub(super) fn with(&mut self, with: &ast::With) -> Result<(), SqlError> {
        for cte in &with.cte_tables {
            if cte.from.is_some() {
                return Err(SqlError::unsupported("FROM of a query with a name"));
            }
            let mut query = if with.recursive { self.recursive(cte)? } else { self.query(&cte.query)? };
            rename(&mut query.columns, &cte.alias)?;
            self.named.push(Named { name: ident(&cte.alias.name), query });
        }
        Ok(())
    }

    /// Binds a query of `WITH RECURSIVE`: a part that begins and one that goes on from the rows that were added last, with UNION
    /// between them. A query that does not refer to itself is one like any other.
    fn recursive(&mut self, cte: &ast::Cte) -> Result<Query, SqlError> {
        let name = ident(&cte.alias.name);
        let ast::SetExpr::SetOperation { left, op: ast::SetOperator::Union, set_quantifier, right } =
            &*cte.query.body
        else {
            return self.query(&cte.query);
        };
        let distinct = match set_quantifier {
            ast::SetQuantifier::All => false,
            ast::SetQuantifier::None | ast::SetQuantifier::Distinct => true,
            other => return Err(SqlError::unsupported(format!("UNION {other}"))),
        };
        if cte.query.with.is_some() || cte.query.order_by.is_some() || cte.query.limit_clause.is_some() {
            return Err(SqlError::unsupported("WITH, ORDER BY or LIMIT in a recursive query"));
        }
        let base = self.set_expr(left)?;
        let mut columns = base.columns.clone();
        columns.iter_mut().for_each(|column| column.origin = (0, 0));
        rename(&mut columns, &cte.alias)?;
        let slot = self.subqueries;
        self.subqueries += 1;
        let working = Query { root: Node::Working(slot), columns: columns.clone() };
        self.named.push(Named { name, query: working });
        let first = self.subqueries;
        let step = self.set_expr(right);
        self.named.pop();
        let step = step?;
        if step.columns.len() != columns.len() {
            return Err(SqlError::new(
                SqlState::SYNTAX_ERROR,
                "each UNION query must have the same number of columns",
            ));
        }
        for (at, (one, other)) in columns.iter().zip(&step.columns).enumerate() {
            if one.ty != other.ty {
                return Err(SqlError::new(
                    SqlState::DATATYPE_MISMATCH,
                    format!(
                        "recursive query \"{}\" column {} has type {} in non-recursive term but type {} overall",
                        ident(&cte.alias.name),
                        at + 1,
                        one.ty,
                        other.ty
                    ),
                )
                .hint("Cast the output of the non-recursive term to the correct type."));
            }
        }
        let inner = first..self.subqueries;
        let (base, step) = (Box::new(base.root), Box::new(step.root));
        Ok(Query { root: Node::Recursive { base, step, slot, inner, distinct }, columns })
    }

    /// The tables of the scope whose rows a SELECT locks as if it changed them. Rows that are read are locked against changes in any
    /// case: FOR SHARE asks for nothing more.
    pub(super) fn locks(&mut self, clauses: &[ast::LockClause]) -> Result<Locks, SqlError> {
        let mut locks = Locks::new();
        for lock in clauses {
            let when_locked = match lock.nonblock {
                None => WhenLocked::Wait,
                Some(ast::NonBlock::Nowait) => WhenLocked::Fail,
                Some(ast::NonBlock::SkipLocked) => WhenLocked::Skip,
            };
            let offset = match &lock.of {
                None => None,
                Some(name) => {
                    let (_, table) = object_name(name)?;
                    let columns = self.scopes.last().map_or(&[][..], |scope| &scope.columns);
                    let found = columns.iter().position(|column| column.table == table);
                    Some(found.ok_or_else(|| {
                        SqlError::new(
                            SqlState::UNDEFINED_TABLE,
                            format!("relation \"{table}\" in FOR UPDATE clause not found in FROM clause"),
                        )
                        .at(self.position_of(name))
                    })?)
                }
            };
            self.needs_to_lock(offset);
            let for_update = lock.lock_type == ast::LockType::Update;
            locks.push(Lock { offset, for_update, when_locked });
        }
        Ok(locks)
    }

    /// Notes that the rows of the scope's tables are locked, or of the one to which the column in a place belongs.
    fn needs_to_lock(&mut self, of: Option<usize>) {
        let columns = self.scopes.last().map_or(&[][..], |scope| &scope.columns);
        let name = of.map(|at| columns[at].table.clone());
        let locked = columns.iter().filter(|column| name.as_ref().is_none_or(|name| column.table == *name));
        let locked: BTreeSet<u32> = locked.map(|column| column.output.origin.0).collect();
        let tables: Vec<String> = (self.schema.tables.values())
            .filter(|table| locked.contains(&table.oid))
            .map(|table| table.name.clone())
            .collect();
        for table in tables {
            self.needs(Object::Table, &table, Privileges::UPDATE);
        }
    }

    fn order_by<'q>(&mut self, query: &'q ast::Query) -> Result<Vec<&'q ast::OrderByExpr>, SqlError> {
        let Some(order) = &query.order_by else { return Ok(Vec::new()) };
        let ast::OrderByKind::Expressions(exprs) = &order.kind else {
            return Err(SqlError::unsupported("ORDER BY ALL"));
        };
        if order.interpolate.is_some() || exprs.iter().any(|expr| expr.with_fill.is_some()) {
            return Err(SqlError::unsupported("a clause of ORDER BY"));
        }
        if exprs.iter().any(|expr| matches!(expr.options.sort, Some(ast::OrderBySort::Using(_)))) {
            return Err(SqlError::unsupported("ORDER BY .. USING"));
        }
        Ok(exprs.iter().collect())
    }

    fn limits(&mut self, query: &ast::Query) -> Result<(Option<Expr>, Option<Expr>), SqlError> {
        let (mut limit, mut offset) = (None, None);
        match &query.limit_clause {
            None => {}
            Some(ast::LimitClause::LimitOffset { limit: most, offset: skipped, limit_by })
                if limit_by.is_empty() =>
            {
                limit = most.as_ref();
                offset = skipped.as_ref().map(|offset| &offset.value);
            }
            Some(_) => {
                return Err(
                    SqlError::unsupported("this form of LIMIT").hint("Write LIMIT count OFFSET start.")
                );
            }
        }
        let one = ast::Expr::value(ast::Value::Number("1".to_owned(), false));
        if let Some(fetch) = &query.fetch {
            if fetch.with_ties || fetch.percent {
                return Err(SqlError::unsupported("FETCH with ties or in percent"));
            }
            limit = Some(fetch.quantity.as_ref().unwrap_or(&one));
        }
        let bind = |binder: &mut Self, expr: &ast::Expr| {
            // No column is in scope.
            let scopes = std::mem::take(&mut binder.scopes);
            let bound = binder
                .expr(expr)
                .and_then(|bound| binder.coerce(bound, SqlType::Int8, Castability::Assignment));
            binder.scopes = scopes;
            bound.map(|typed| typed.expr)
        };
        let limit = limit.map(|limit| bind(self, limit)).transpose()?;
        let offset = offset.map(|offset| bind(self, offset)).transpose()?;
        Ok((limit, offset))
    }

    fn set_expr(&mut self, body: &ast::SetExpr) -> Result<Query, SqlError> {
        self.deeper(|binder| match body {
            ast::SetExpr::Select(select) => binder.select(select, &[], &[]),
            ast::SetExpr::Query(query) => binder.query(query),
            ast::SetExpr::Values(values) => binder.values(values),
            ast::SetExpr::SetOperation { left, op, set_quantifier, right } => {
                binder.set_operation(left, *op, *set_quantifier, right)
            }
            _ => Err(SqlError::unsupported("this statement inside of a query")),
        })
    }

    fn set_operation(
        &mut self,
        left: &ast::SetExpr,
        op: ast::SetOperator,
        quantifier: ast::SetQuantifier,
        right: &ast::SetExpr,
    ) -> Result<Query, SqlError> {
        let is_all = match quantifier {
            ast::SetQuantifier::All => true,
            ast::SetQuantifier::None | ast::SetQuantifier::Distinct => false,
            _ => return Err(SqlError::unsupported(format!("{op} {quantifier}"))),
        };
        let (left, right) = (self.set_expr(left)?, self.set_expr(right)?);
        if left.columns.len() != right.columns.len() {
            return Err(SqlError::new(
                SqlState::SYNTAX_ERROR,
                format!("each {op} query must have the same number of columns"),
            ));
        }
        let mut columns = left.columns.clone();
        let (mut ones, mut others) = (Vec::new(), Vec::new());
        for (at, (one, other)) in left.columns.iter().zip(&right.columns).enumerate() {
            let pair = vec![column_at(at, one), column_at(at, other)];
            let (mut exprs, ty) = self.unify_all(pair, &op.to_string())?;
            others.extend(exprs.pop());
            ones.extend(exprs.pop());
            if ty != one.ty || one.modifier != other.modifier {
                columns[at].modifier = Modifier::None;
            }
            columns[at].ty = ty;
            columns[at].origin = (0, 0);
        }
        let left = Node::Project(Box::new(left.root), ones);
        let right = Node::Project(Box::new(right.root), others);
        let root = match (op, is_all) {
            (ast::SetOperator::Union, true) => Node::Append(vec![left, right]),
            (ast::SetOperator::Union, false) => {
                Node::Distinct(Box::new(Node::Append(vec![left, right])), Vec::new())
            }
            (ast::SetOperator::Intersect, all) => {
                Node::Combine { left: Box::new(left), right: Box::new(right), keep: true, all }
            }
            (ast::SetOperator::Except, all) => {
                Node::Combine { left: Box::new(left), right: Box::new(right), keep: false, all }
            }
            _ => return Err(SqlError::unsupported(format!("{op}"))),
        };
        Ok(Query { root, columns })
    }

    fn values(&mut self, values: &ast::Values) -> Result<Query, SqlError> {
        let width = values.rows.first().map_or(0, |row| row.content.len());
        if width == 0 || values.rows.iter().any(|row| row.content.len() != width) {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "VALUES lists must all be the same length"));
        }
        self.scopes.push(Scope::default());
        let bound = self.values_of(values, width);
        self.scopes.pop();
        bound
    }

    fn values_of(&mut self, values: &ast::Values, width: usize) -> Result<Query, SqlError> {
        let mut columns = Vec::new();
        let mut rows: Vec<Vec<Expr>> = vec![Vec::new(); values.rows.len()];
        for at in 0..width {
            let mut column = Vec::new();
            for row in &values.rows {
                column.push(self.expr(&row.content[at])?);
            }
            let (exprs, ty) = self.unify_all(column, "VALUES")?;
            for (row, expr) in rows.iter_mut().zip(exprs) {
                row.push(expr);
            }
            let name = format!("column{}", at + 1);
            columns.push(OutputColumn { name, ty, modifier: Modifier::None, origin: (0, 0) });
        }
        Ok(Query { root: Node::Values(rows), columns })
    }

    /// The order of rows by their output columns alone.
    fn output_order(
        &mut self,
        order: &[&ast::OrderByExpr],
        columns: &[OutputColumn],
    ) -> Result<Vec<SortKey>, SqlError> {
        let mut keys = Vec::new();
        for by in order {
            let at = self.output_column(&by.expr, columns)?.ok_or_else(|| {
                SqlError::unsupported("an expression in the ORDER BY of UNION, INTERSECT, EXCEPT or VALUES")
            })?;
            keys.push(sort_key(Expr::Column(at), by));
        }
        Ok(keys)
    }

    /// The output column that an expression of ORDER BY or GROUP BY means by its number or name.
    pub(super) fn output_column(
        &mut self,
        expr: &ast::Expr,
        columns: &[OutputColumn],
    ) -> Result<Option<usize>, SqlError> {
        match expr {
            ast::Expr::Value(value) => {
                let ast::Value::Number(digits, false) = &value.value else { return Ok(None) };
                let at = digits.parse::<usize>().ok().filter(|at| (1..=columns.len()).contains(at));
                at.map(|at| Some(at - 1)).ok_or_else(|| {
                    SqlError::new(
                        SqlState::INVALID_COLUMN_REFERENCE,
                        format!("ORDER BY position {digits} is not in select list"),
                    )
                })
            }
            ast::Expr::Identifier(name) => {
                let name = ident(name);
                Ok(columns.iter().position(|column| column.name == name))
            }
            _ => Ok(None),
        }
    }
}

pub(super) fn sort_key(expr: Expr, by: &ast::OrderByExpr) -> SortKey {
    let descending = matches!(by.options.sort, Some(ast::OrderBySort::Desc));
    SortKey { expr, descending, nulls_first: by.options.nulls_first.unwrap_or(descending) }
}

fn column_at(at: usize, column: &OutputColumn) -> Typed {
    Typed { expr: Expr::Column(at), ty: column.ty, modifier: column.modifier }
}

/// Gives columns the names of an alias.
pub(super) fn rename(columns: &mut [OutputColumn], alias: &ast::TableAlias) -> Result<(), SqlError> {
    if alias.columns.len() > columns.len() {
        return Err(SqlError::new(
            SqlState::INVALID_COLUMN_REFERENCE,
            format!(
                "table \"{}\" has {} columns available but {} columns specified",
                alias.name.value,
                columns.len(),
                alias.columns.len()
            ),
        ));
    }
    for (column, name) in columns.iter_mut().zip(&alias.columns) {
        column.name = ident(&name.name);
    }
    Ok(())
}
