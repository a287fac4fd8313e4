//! Binding of SELECT: its list, groups, aggregates and order.

use sqlparser::ast;

use super::functions::argument_value;
use super::query::sort_key;
use super::{Binder, Scope, ScopeColumn, Typed, ident, object_name};
use crate::aggregate::{Aggregate, AggregateCall};
use crate::error::{SqlError, SqlState};
use crate::expr::Expr;
use crate::plan::{Node, OutputColumn, Query, SortKey};

/// The groups and aggregates of a query.
#[derive(Clone, Debug, Default)]
pub(super) struct Grouping {
    /// The expressions of the groups, as they were written and bound.
    pub(super) groups: Vec<(ast::Expr, Typed)>,
    pub(super) calls: Vec<AggregateCall>,
    /// Set while the arguments of an aggregate are bound: they read rows, not groups.
    pub(super) is_inside: bool,
}

impl Grouping {
    /// The group that is a column of the rows.
    pub(super) fn group_of(&self, column: usize) -> Option<usize> {
        self.groups.iter().position(|(_, typed)| matches!(typed.expr, Expr::Column(at) if at == column))
    }
}

impl Binder<'_> {
    /// The group that an expression is, in a query with groups.
    pub(super) fn grouped(&mut self, expr: &ast::Expr) -> Result<Option<Typed>, SqlError> {
        let Some(grouping) = self.scopes.last().and_then(|scope| scope.grouping.as_ref()) else {
            return Ok(None);
        };
        if grouping.is_inside {
            return Ok(None);
        }
        let found = grouping.groups.iter().enumerate().find(|(_, (written, _))| written == expr);
        Ok(found.map(|(at, (_, typed))| Typed { expr: Expr::Column(at), ..typed.clone() }))
    }

    /// Binds a SELECT with the order of its rows.
    pub(super) fn select(
        &mut self,
        select: &ast::Select,
        order: &[&ast::OrderByExpr],
        locks: &[ast::LockClause],
    ) -> Result<Query, SqlError> {
        refuse_clauses(select)?;
        let scopes = self.scopes.len();
        let bound = self.select_of(select, order, locks);
        self.scopes.truncate(scopes);
        bound
    }

    fn select_of(
        &mut self,
        select: &ast::Select,
        order: &[&ast::OrderByExpr],
        locks: &[ast::LockClause],
    ) -> Result<Query, SqlError> {
        let from = self.from(&select.from)?;
        let locks = self.locks(locks)?;
        let filter = select.selection.as_ref().map(|filter| self.condition(filter, "WHERE")).transpose()?;
        let is_grouped = self.begin_groups(select, order)?;
        if !locks.is_empty() && (is_grouped || select.distinct.is_some()) {
            return Err(SqlError::unsupported("FOR UPDATE with GROUP BY, DISTINCT or aggregate functions"));
        }
        self.set_open(true);
        let mut items = self.items(&select.projection)?;
        self.set_open(false);
        let having = select.having.as_ref().map(|having| self.condition(having, "HAVING")).transpose()?;
        let distinct = matches!(select.distinct, Some(ast::Distinct::Distinct));
        let width = items.len();
        let columns: Vec<OutputColumn> = items.iter().map(|(_, column)| column.clone()).collect();
        self.set_open(true);
        let mut keys = self.order_of(order, &columns, &mut items, distinct)?;
        self.set_open(false);
        let on = match &select.distinct {
            Some(ast::Distinct::On(exprs)) => self.distinct_on(exprs, &columns, &mut items, &mut keys)?,
            _ => Vec::new(),
        };

        let scope = self.scopes.pop().unwrap_or_default();
        let (grouping, added, scope_width) = (scope.grouping, scope.added, scope.columns.len());
        let mut exprs: Vec<Expr> = items.into_iter().map(|(expr, _)| expr).collect();
        let mut used = Vec::new();
        let above: Vec<&Expr> = match &grouping {
            Some(grouping) => {
                let groups = grouping.groups.iter().map(|(_, typed)| &typed.expr);
                groups.chain(grouping.calls.iter().flat_map(AggregateCall::exprs)).collect()
            }
            None => exprs.iter().chain(added.exprs()).collect(),
        };
        above.iter().for_each(|expr| expr.columns(&mut used));
        let mut node = self.plan_from(from, filter, used, &locks)?;
        let mut node_width = scope_width;
        if let Some(grouping) = grouping.filter(|_| is_grouped) {
            node_width = grouping.groups.len() + grouping.calls.len();
            let groups = grouping.groups.into_iter().map(|(_, typed)| typed.expr).collect();
            node = Node::Aggregate { input: Box::new(node), groups, calls: grouping.calls };
            if let Some(having) = having {
                node = Node::Filter(Box::new(node), having);
            }
        }
        if !added.is_empty() {
            if !locks.is_empty() {
                return Err(SqlError::unsupported(
                    "FOR UPDATE with window functions or functions that return rows",
                ));
            }
            node = added.above(node, node_width, &mut exprs);
        }
        node = Node::Project(Box::new(node), exprs);
        if distinct {
            node = Node::Distinct(Box::new(node), Vec::new());
        }
        if !keys.is_empty() {
            node = ordered(node, keys, on, width);
        }
        Ok(Query { root: node, columns })
    }

    /// Binds the expressions of DISTINCT ON: the columns of the rows that they are. They have to be those that the order begins with.
    fn distinct_on(
        &mut self,
        exprs: &[ast::Expr],
        columns: &[OutputColumn],
        items: &mut Vec<(Expr, OutputColumn)>,
        keys: &mut Vec<SortKey>,
    ) -> Result<Vec<usize>, SqlError> {
        let mut places = Vec::new();
        for expr in exprs {
            let at = self.item_place(expr, columns, items)?;
            if !places.contains(&at) {
                places.push(at);
            }
        }
        let is_other = |key: &SortKey| !matches!(key.expr, Expr::Column(at) if places.contains(&at));
        if keys.iter().take(places.len()).any(is_other) {
            return Err(SqlError::new(
                SqlState::INVALID_COLUMN_REFERENCE,
                "SELECT DISTINCT ON expressions must match initial ORDER BY expressions",
            ));
        }
        if keys.is_empty() {
            // The rows that are kept are the first ones; they come in the order of what they are distinct in.
            let key = |at: &usize| SortKey { expr: Expr::Column(*at), descending: false, nulls_first: false };
            keys.extend(places.iter().map(key));
        }
        Ok(places)
    }

    /// The place of an expression among the items, to which it is added if it is none of them.
    fn item_place(
        &mut self,
        expr: &ast::Expr,
        columns: &[OutputColumn],
        items: &mut Vec<(Expr, OutputColumn)>,
    ) -> Result<usize, SqlError> {
        if let Some(at) = self.output_column(expr, columns)? {
            return Ok(at);
        }
        let typed = self.expr(expr)?;
        let same = items.iter().position(|(item, _)| {
            matches!((item, &typed.expr), (Expr::Column(one), Expr::Column(other)) if one == other)
        });
        if let Some(at) = same {
            return Ok(at);
        }
        items.push(self.item(typed, String::new())?);
        Ok(items.len() - 1)
    }

    /// Binds the groups; returns true if the query has groups or aggregates.
    fn begin_groups(&mut self, select: &ast::Select, order: &[&ast::OrderByExpr]) -> Result<bool, SqlError> {
        let ast::GroupByExpr::Expressions(exprs, modifiers) = &select.group_by else {
            return Err(SqlError::unsupported("GROUP BY ALL"));
        };
        if !modifiers.is_empty() {
            return Err(SqlError::unsupported("a modifier of GROUP BY"));
        }
        let has_aggregate = select.projection.iter().any(item_aggregates)
            || select.having.is_some()
            || order.iter().any(|by| aggregates(&by.expr));
        if exprs.is_empty() && !has_aggregate {
            return Ok(false);
        }
        let mut groups = Vec::new();
        for expr in exprs {
            // A number, or a name that is no column, means an item of the list.
            let expr = match expr {
                ast::Expr::Value(value) => match &value.value {
                    ast::Value::Number(digits, false) => {
                        let item = digits
                            .parse::<usize>()
                            .ok()
                            .and_then(|at| select.projection.get(at.checked_sub(1)?));
                        item_expr(item).ok_or_else(|| {
                            SqlError::new(
                                SqlState::INVALID_COLUMN_REFERENCE,
                                format!("GROUP BY position {digits} is not in select list"),
                            )
                        })?
                    }
                    _ => expr,
                },
                ast::Expr::Identifier(name) => self.named_item(name, select).unwrap_or(expr),
                other => other,
            };
            let bound = self.expr(expr)?;
            let bound = self.settled(bound)?;
            groups.push((expr.clone(), bound));
        }
        if let Some(scope) = self.scopes.last_mut() {
            scope.grouping = Some(Grouping { groups, calls: Vec::new(), is_inside: false });
        }
        Ok(true)
    }

    /// The item of the list with a name, unless it is the name of a column.
    fn named_item<'s>(&self, name: &ast::Ident, select: &'s ast::Select) -> Option<&'s ast::Expr> {
        let wanted = ident(name);
        let scope = self.scopes.last()?;
        if scope.columns.iter().any(|column| column.output.name == wanted) {
            return None;
        }
        select.projection.iter().find_map(|item| match item {
            ast::SelectItem::ExprWithAlias { expr, alias } if ident(alias) == wanted => Some(expr),
            _ => None,
        })
    }

    /// Binds a list of items, `*` included.
    pub(super) fn items(&mut self, items: &[ast::SelectItem]) -> Result<Vec<(Expr, OutputColumn)>, SqlError> {
        let mut bound = Vec::new();
        for item in items {
            match item {
                ast::SelectItem::UnnamedExpr(expr) => {
                    let typed = self.expr(expr)?;
                    bound.push(self.item(typed, name_of(expr))?);
                }
                ast::SelectItem::ExprWithAlias { expr, alias } => {
                    let typed = self.expr(expr)?;
                    bound.push(self.item(typed, ident(alias))?);
                }
                ast::SelectItem::Wildcard(options) => {
                    refuse_options(options)?;
                    self.wildcard(None, &mut bound)?;
                }
                ast::SelectItem::QualifiedWildcard(
                    ast::SelectItemQualifiedWildcardKind::ObjectName(name),
                    options,
                ) => {
                    refuse_options(options)?;
                    let (_, table) = object_name(name)?;
                    self.wildcard(Some(&table), &mut bound)?;
                }
                other => return Err(SqlError::unsupported(format!("the item {other}"))),
            }
        }
        Ok(bound)
    }

    fn item(&mut self, typed: Typed, name: String) -> Result<(Expr, OutputColumn), SqlError> {
        let typed = self.settled(typed)?;
        let origin = match (&typed.expr, self.scopes.last()) {
            (Expr::Column(at), Some(Scope { columns, grouping: None, .. })) => {
                columns.get(*at).map_or((0, 0), |column| column.output.origin)
            }
            _ => (0, 0),
        };
        Ok((typed.expr, OutputColumn { name, ty: typed.ty, modifier: typed.modifier, origin }))
    }

    fn wildcard(
        &mut self,
        table: Option<&str>,
        bound: &mut Vec<(Expr, OutputColumn)>,
    ) -> Result<(), SqlError> {
        let Some(scope) = self.scopes.last() else { return Ok(()) };
        if scope.columns.is_empty() && table.is_none() {
            return Err(SqlError::new(
                SqlState::SYNTAX_ERROR,
                "SELECT * with no tables specified is not valid",
            ));
        }
        let before = bound.len();
        let mut order: Vec<(usize, &ScopeColumn)> = scope.columns.iter().enumerate().collect();
        if table.is_none() {
            order.sort_by_key(|(_, column)| column.place);
        }
        let mut merged = Vec::new();
        for (at, column) in order {
            let is_named = table.is_some_and(|table| column.table == table);
            if !is_named && (table.is_some() || column.is_merged || column.is_hidden) {
                continue;
            }
            let expr = match &scope.grouping {
                None => Expr::Column(at),
                Some(grouping) => Expr::Column(grouping.group_of(at).ok_or_else(|| {
                    SqlError::new(
                        SqlState::GROUPING_ERROR,
                        format!(
                            "column \"{}\" must appear in the GROUP BY clause or be used in an aggregate function",
                            column.output.name
                        ),
                    )
                })?),
            };
            if let (Some(other), None) = (column.merged_with, table) {
                merged.push((bound.len(), at, other));
            }
            bound.push((expr, column.output.clone()));
        }
        let read: Vec<(u32, i16)> = bound[before..].iter().map(|(_, column)| column.origin).collect();
        read.into_iter().for_each(|origin| self.reads(origin));
        for (place, at, other) in merged {
            let typed = self.merged_column(0, at, other)?;
            let name = std::mem::take(&mut bound[place].1.name);
            bound[place] = self.item(typed, name)?;
        }
        match table {
            Some(table) if bound.len() == before => Err(SqlError::new(
                SqlState::UNDEFINED_TABLE,
                format!("missing FROM-clause entry for table \"{table}\""),
            )),
            _ => Ok(()),
        }
    }

    /// Binds the order: each key is a column of the rows, those added included that are not in the list.
    fn order_of(
        &mut self,
        order: &[&ast::OrderByExpr],
        columns: &[OutputColumn],
        items: &mut Vec<(Expr, OutputColumn)>,
        distinct: bool,
    ) -> Result<Vec<SortKey>, SqlError> {
        let mut keys = Vec::new();
        for by in order {
            let before = items.len();
            let at = self.item_place(&by.expr, columns, items)?;
            if distinct && items.len() > before {
                return Err(SqlError::new(
                    SqlState::INVALID_COLUMN_REFERENCE,
                    "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
                ));
            }
            keys.push(sort_key(Expr::Column(at), by));
        }
        Ok(keys)
    }
}

fn refuse_options(options: &ast::WildcardAdditionalOptions) -> Result<(), SqlError> {
    let text = options.to_string();
    if text.trim().is_empty() { Ok(()) } else { Err(SqlError::unsupported(format!("*{text}"))) }
}

fn refuse_clauses(select: &ast::Select) -> Result<(), SqlError> {
    let refused = [
        (select.top.is_some(), "TOP"),
        (select.into.is_some(), "SELECT INTO"),
        (!select.lateral_views.is_empty(), "LATERAL VIEW"),
        (select.prewhere.is_some(), "PREWHERE"),
        (!select.connect_by.is_empty(), "CONNECT BY"),
        (!select.cluster_by.is_empty(), "CLUSTER BY"),
        (!select.distribute_by.is_empty(), "DISTRIBUTE BY"),
        (!select.sort_by.is_empty(), "SORT BY"),
        (!select.named_window.is_empty(), "WINDOW"),
        (select.qualify.is_some(), "QUALIFY"),
        (select.value_table_mode.is_some(), "SELECT AS"),
        (select.exclude.is_some(), "EXCLUDE"),
        (select.select_modifiers.is_some(), "a modifier of SELECT"),
        (select.flavor != ast::SelectFlavor::Standard, "FROM before SELECT"),
    ];
    match refused.into_iter().find(|(is_there, _)| *is_there) {
        Some((_, what)) => Err(SqlError::unsupported(what)),
        None => Ok(()),
    }
}

fn item_expr(item: Option<&ast::SelectItem>) -> Option<&ast::Expr> {
    match item? {
        ast::SelectItem::UnnamedExpr(expr) | ast::SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }
}

fn item_aggregates(item: &ast::SelectItem) -> bool {
    item_expr(Some(item)).is_some_and(aggregates)
}

/// Returns true if there is a call of an aggregate in an expression, outside of its subqueries.
fn aggregates(expr: &ast::Expr) -> bool {
    use ast::Expr::{
        AllOp, AnyOp, Between, BinaryOp, Case, Cast, Extract, Function, ILike, In, IsDistinctFrom, IsFalse,
        IsNotDistinctFrom, IsNotFalse, IsNotNull, IsNotTrue, IsNull, IsTrue, Like, Nested, Tuple, UnaryOp,
    };
    match expr {
        Function(function) => {
            let is_aggregate = object_name(&function.name)
                .is_ok_and(|(_, name)| Aggregate::named(&name).is_some())
                || !function.within_group.is_empty();
            let inside = match &function.args {
                ast::FunctionArguments::List(list) => {
                    list.args.iter().filter_map(argument_value).any(aggregates)
                }
                _ => false,
            };
            (is_aggregate && function.over.is_none()) || inside
        }
        BinaryOp { left, right, .. } | AnyOp { left, right, .. } | AllOp { left, right, .. } => {
            aggregates(left) || aggregates(right)
        }
        IsDistinctFrom(left, right) | IsNotDistinctFrom(left, right) => aggregates(left) || aggregates(right),
        In { expr, target: ast::InTarget::List(list), .. } => aggregates(expr) || list.iter().any(aggregates),
        In { expr, .. }
        | UnaryOp { expr, .. }
        | Nested(expr)
        | Cast { expr, .. }
        | Extract { expr, .. }
        | IsNull(expr)
        | IsNotNull(expr)
        | IsTrue(expr)
        | IsFalse(expr)
        | IsNotTrue(expr)
        | IsNotFalse(expr) => aggregates(expr),
        Between { expr, low, high, .. } => aggregates(expr) || aggregates(low) || aggregates(high),
        Like { expr, pattern, .. } | ILike { expr, pattern, .. } => aggregates(expr) || aggregates(pattern),
        Tuple(parts) => parts.iter().any(aggregates),
        Case { operand, conditions, else_result, .. } => {
            operand.as_deref().is_some_and(aggregates)
                || else_result.as_deref().is_some_and(aggregates)
                || conditions.iter().any(|when| aggregates(&when.condition) || aggregates(&when.result))
        }
        _ => false,
    }
}

/// Returns true for a literal, however often it is cast: the last cast names it.
fn is_literal(expr: &ast::Expr) -> bool {
    match expr {
        ast::Expr::Value(_) | ast::Expr::TypedString(_) | ast::Expr::Interval(_) => true,
        ast::Expr::Cast { expr, .. } => is_literal(expr),
        _ => false,
    }
}

/// The name of a column that an expression without an alias has.
pub(super) fn name_of(expr: &ast::Expr) -> String {
    match expr {
        ast::Expr::Identifier(name) => ident(name),
        ast::Expr::CompoundIdentifier(parts) => parts.last().map_or_else(String::new, ident),
        ast::Expr::Nested(inner) | ast::Expr::Collate { expr: inner, .. } => name_of(inner),
        ast::Expr::Function(function) => {
            object_name(&function.name).map_or_else(|_| String::new(), |(_, name)| name)
        }
        ast::Expr::Cast { expr, data_type, .. } => match name_of(expr) {
            name if name == "?column?" || is_literal(expr) => super::data_type(data_type)
                .map_or(name, |(ty, _)| ty.element().unwrap_or(ty).internal_name().to_owned()),
            name => name,
        },
        ast::Expr::TypedString(typed) => super::data_type(&typed.data_type)
            .map_or_else(|_| String::new(), |(ty, _)| ty.internal_name().to_owned()),
        ast::Expr::Case { else_result, .. } => match else_result.as_deref().map(name_of) {
            Some(name) if name != "?column?" => name,
            _ => "case".to_owned(),
        },
        ast::Expr::BinaryOp { op: ast::BinaryOperator::Overlaps, .. } => "overlaps".to_owned(),
        ast::Expr::Exists { .. } => "exists".to_owned(),
        ast::Expr::Array(_) => "array".to_owned(),
        ast::Expr::Tuple(_) => "row".to_owned(),
        ast::Expr::Extract { .. } => "extract".to_owned(),
        ast::Expr::Substring { shorthand, .. } => if *shorthand { "substr" } else { "substring" }.to_owned(),
        ast::Expr::Position { .. } => "position".to_owned(),
        ast::Expr::Trim { trim_where, .. } => match trim_where {
            Some(ast::TrimWhereField::Leading) => "ltrim".to_owned(),
            Some(ast::TrimWhereField::Trailing) => "rtrim".to_owned(),
            _ => "btrim".to_owned(),
        },
        ast::Expr::Interval(_) => "interval".to_owned(),
        ast::Expr::AtTimeZone { .. } => "timezone".to_owned(),
        ast::Expr::Overlay { .. } => "overlay".to_owned(),
        ast::Expr::CompoundFieldAccess { root, access_chain } => match access_chain.last() {
            Some(ast::AccessExpr::Dot(ast::Expr::Identifier(field))) => ident(field),
            _ => super::expr::qualified(root, access_chain).last().map_or_else(|| name_of(root), ident),
        },
        ast::Expr::Ceil { .. } => "ceil".to_owned(),
        ast::Expr::Floor { .. } => "floor".to_owned(),
        ast::Expr::Subquery(query) => match &*query.body {
            ast::SetExpr::Select(select) => match select.projection.first() {
                Some(ast::SelectItem::ExprWithAlias { alias, .. }) => ident(alias),
                Some(ast::SelectItem::UnnamedExpr(expr)) => name_of(expr),
                _ => "?column?".to_owned(),
            },
            _ => "?column?".to_owned(),
        },
        ast::Expr::Value(value) if matches!(value.value, ast::Value::Boolean(_)) => "bool".to_owned(),
        _ => "?column?".to_owned(),
    }
}

/// Puts the rows of `node` in the order of `keys`, leaves one of those that are alike in the columns `on`, if there are any, and keeps
/// the first `width` columns.
fn ordered(node: Node, keys: Vec<SortKey>, on: Vec<usize>, width: usize) -> Node {
    let mut node = Node::Sort(Box::new(node), keys);
    if !on.is_empty() {
        node = Node::Distinct(Box::new(node), on.into_iter().map(Expr::Column).collect());
    }
    Node::Project(Box::new(node), (0..width).map(Expr::Column).collect())
}
