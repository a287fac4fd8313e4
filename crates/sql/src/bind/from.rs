//! Binding of FROM: the names of its tables and columns, and the conditions of its joins.

use std::sync::Arc;

use sqlparser::ast;

use super::joins::all;
use super::query::rename;
use super::sets::RowsCall;
use super::{Binder, Scope, ScopeColumn, Typed, ident, object_name};
use crate::access;
use crate::catalogs;
use crate::error::{SqlError, SqlState};
use crate::expr::{CompareOp, Expr};
use crate::plan::{JoinKind, Node, OutputColumn, Query, Scan, WhenLocked};
use crate::roles::{Object, Privileges};
use crate::schema::{TableEntry, ViewMeta};

/// A FROM whose names are bound.
pub(super) enum From {
    Nothing,
    Table {
        table: Arc<TableEntry>,
        offset: usize,
    },
    Other {
        node: Node,
        offset: usize,
        width: usize,
    },
    /// A query that refers to the columns before it.
    Lateral {
        query: Query,
        offset: usize,
    },
    Join {
        left: Box<From>,
        right: Box<From>,
        kind: JoinKind,
        on: Vec<Expr>,
    },
}

impl From {
    pub(super) fn range(&self) -> (usize, usize) {
        match self {
            From::Nothing => (0, 0),
            From::Table { table, offset } => (*offset, offset + table.columns.len()),
            From::Other { offset, width, .. } => (*offset, offset + width),
            From::Lateral { query, offset } => (*offset, offset + query.columns.len()),
            From::Join { left, right, .. } => (left.range().0, right.range().1),
        }
    }
}

impl Binder<'_> {
    /// Binds a FROM and enters its scope.
    pub(super) fn from(&mut self, from: &[ast::TableWithJoins]) -> Result<From, SqlError> {
        let mut columns = Vec::new();
        let mut bound: Option<From> = None;
        for item in from {
            let next = self.table_with_joins(item, &mut columns)?;
            bound = Some(match bound {
                None => next,
                Some(left) => From::Join {
                    left: Box::new(left),
                    right: Box::new(next),
                    kind: JoinKind::Inner,
                    on: Vec::new(),
                },
            });
        }
        self.scopes.push(Scope { columns, ..Scope::default() });
        Ok(bound.unwrap_or(From::Nothing))
    }

    fn table_with_joins(
        &mut self,
        item: &ast::TableWithJoins,
        columns: &mut Vec<ScopeColumn>,
    ) -> Result<From, SqlError> {
        let start = columns.len();
        let mut bound = self.factor(&item.relation, columns)?;
        for join in &item.joins {
            if join.global {
                return Err(SqlError::unsupported("GLOBAL JOIN"));
            }
            let middle = columns.len();
            let right = self.factor(&join.relation, columns)?;
            use ast::JoinOperator::{CrossJoin, FullOuter, Inner, Join, Left, LeftOuter, Right, RightOuter};
            let (kind, constraint) = match &join.join_operator {
                Join(constraint) | Inner(constraint) | CrossJoin(constraint) => (JoinKind::Inner, constraint),
                Left(constraint) | LeftOuter(constraint) => (JoinKind::Left, constraint),
                Right(constraint) | RightOuter(constraint) => (JoinKind::Right, constraint),
                FullOuter(constraint) => (JoinKind::Full, constraint),
                _ => {
                    return Err(SqlError::unsupported("this kind of join")
                        .hint("Use INNER, LEFT, RIGHT, FULL or CROSS JOIN."));
                }
            };
            let on = self.join_condition(constraint, kind, columns, start, middle)?;
            bound = From::Join { left: Box::new(bound), right: Box::new(right), kind, on };
        }
        Ok(bound)
    }

    /// Binds the condition of a join, whose columns begin at `start`, to its parts.
    fn on_condition(
        &mut self,
        condition: &ast::Expr,
        columns: &[ScopeColumn],
        start: usize,
    ) -> Result<Vec<Expr>, SqlError> {
        let mut visible = columns.to_vec();
        for column in &mut visible[..start] {
            // Tables before this item of the list cannot be named in its conditions.
            (column.table, column.is_merged) = (String::new(), true);
        }
        self.scopes.push(Scope { columns: visible, ..Scope::default() });
        let bound = self.condition(condition, "JOIN/ON");
        self.scopes.pop();
        Ok(match bound? {
            Expr::And(parts) => parts,
            other => vec![other],
        })
    }

    fn join_condition(
        &mut self,
        constraint: &ast::JoinConstraint,
        kind: JoinKind,
        columns: &mut [ScopeColumn],
        start: usize,
        middle: usize,
    ) -> Result<Vec<Expr>, SqlError> {
        let names: Vec<String> = match constraint {
            ast::JoinConstraint::None => return Ok(Vec::new()),
            ast::JoinConstraint::On(condition) => return self.on_condition(condition, columns, start),
            ast::JoinConstraint::Using(names) => {
                names.iter().map(|name| object_name(name).map(|(_, name)| name)).collect::<Result<_, _>>()?
            }
            ast::JoinConstraint::Natural => {
                let is_left = |name: &str| columns[start..middle].iter().any(|left| left.output.name == name);
                columns[middle..]
                    .iter()
                    .map(|right| right.output.name.clone())
                    .filter(|name| is_left(name))
                    .collect()
            }
            ast::JoinConstraint::UsingAlias(..) => return Err(SqlError::unsupported("USING with an alias")),
        };
        let (mut on, mut first) = (Vec::new(), Vec::new());
        for name in names {
            let find = |part: &[ScopeColumn], base: usize| {
                part.iter()
                    .position(|column| column.output.name == name && !column.is_merged)
                    .map(|at| at + base)
            };
            let (left, right) = (find(&columns[start..middle], start), find(&columns[middle..], middle));
            let (Some(left), Some(right)) = (left, right) else {
                return Err(SqlError::new(
                    SqlState::UNDEFINED_COLUMN,
                    format!("column \"{name}\" specified in USING clause does not exist in both tables"),
                ));
            };
            if columns[left].merged_with.is_some() || columns[right].merged_with.is_some() {
                return Err(SqlError::unsupported("USING of a column that a RIGHT or FULL JOIN has merged"));
            }
            first.push(left);
            [left, right].into_iter().for_each(|at| self.reads(columns[at].output.origin));
            let typed = |at: usize| Typed::new(Expr::Column(at), columns[at].output.ty);
            on.push(self.comparison(CompareOp::Eq, typed(left), typed(right))?.expr);
            match kind {
                JoinKind::Inner | JoinKind::Left => columns[right].is_merged = true,
                // The one column has the value of the side whose rows are all there.
                JoinKind::Right => {
                    columns[left].merged_with = Some((right, false));
                    columns[right].is_merged = true;
                }
                JoinKind::Full => {
                    columns[left].merged_with = Some((right, true));
                    columns[right].is_merged = true;
                }
            }
        }
        place_first(&mut columns[start..], start, &first);
        Ok(on)
    }

    fn factor(
        &mut self,
        factor: &ast::TableFactor,
        columns: &mut Vec<ScopeColumn>,
    ) -> Result<From, SqlError> {
        self.deeper(|binder| binder.factor_of(factor, columns))
    }

    fn factor_of(
        &mut self,
        factor: &ast::TableFactor,
        columns: &mut Vec<ScopeColumn>,
    ) -> Result<From, SqlError> {
        match factor {
            ast::TableFactor::Table {
                name,
                alias,
                args,
                with_hints,
                version: None,
                with_ordinality,
                partitions,
                json_path: None,
                sample: None,
                index_directives,
                ..
            } if with_hints.is_empty() && partitions.is_empty() && index_directives.is_empty() => {
                match args {
                    None if *with_ordinality => {
                        Err(SqlError::new(SqlState::SYNTAX_ERROR, "WITH ORDINALITY is of functions alone"))
                    }
                    None => self.named_table(name, alias.as_ref(), columns),
                    Some(arguments) if arguments.settings.is_none() => {
                        let call = RowsCall { name, arguments: &arguments.args, numbered: *with_ordinality };
                        self.rows_function(call, alias.as_ref(), columns)
                    }
                    Some(_) => Err(SqlError::unsupported(format!("the call of {name}"))),
                }
            }
            ast::TableFactor::Function { lateral: _, name, args, with_ordinality, alias } => {
                let call = RowsCall { name, arguments: args, numbered: *with_ordinality };
                self.rows_function(call, alias.as_ref(), columns)
            }
            ast::TableFactor::Derived { lateral: false, subquery, alias, sample: None } => {
                let query = self.query(subquery)?;
                let name = alias.as_ref().map(|alias| ident(&alias.name)).unwrap_or_default();
                self.enter(query.root, query.columns, name, alias.as_ref(), columns)
            }
            ast::TableFactor::Derived { lateral: true, subquery, alias, sample: None } => {
                self.scopes.push(Scope { columns: columns.clone(), ..Scope::default() });
                let query = self.query(subquery);
                self.scopes.pop();
                let query = query?;
                let name = alias.as_ref().map(|alias| ident(&alias.name)).unwrap_or_default();
                let offset = columns.len();
                self.name_columns(query.columns.clone(), name, alias.as_ref(), columns)?;
                Ok(From::Lateral { query, offset })
            }
            ast::TableFactor::UNNEST {
                alias,
                array_exprs,
                with_offset: false,
                with_offset_alias: None,
                with_ordinality,
            } => {
                let unnamed = |array: &ast::Expr| ast::FunctionArgExpr::Expr(array.clone());
                let arguments: Vec<_> =
                    array_exprs.iter().map(unnamed).map(ast::FunctionArg::Unnamed).collect();
                let name = ast::ObjectName::from(vec![ast::Ident::new("unnest")]);
                let call = RowsCall { name: &name, arguments: &arguments, numbered: *with_ordinality };
                self.rows_function(call, alias.as_ref(), columns)
            }
            ast::TableFactor::NestedJoin { table_with_joins, alias: None } => {
                self.table_with_joins(table_with_joins, columns)
            }
            other => Err(SqlError::unsupported(format!("the table {other}"))),
        }
    }

    fn named_table(
        &mut self,
        name: &ast::ObjectName,
        alias: Option<&ast::TableAlias>,
        columns: &mut Vec<ScopeColumn>,
    ) -> Result<From, SqlError> {
        let (schema, table) = object_name(name)?;
        let known = alias.map_or_else(|| table.clone(), |alias| ident(&alias.name));
        if schema.is_none()
            && let Some(named) = self.named.iter().rev().find(|named| named.name == table)
        {
            let query = named.query.clone();
            return self.enter(query.root, query.columns, known, alias, columns);
        }
        let is_own = |schema: Option<&str>| matches!(schema, None | Some("public"));
        if let Some(found) = self.schema.tables.get(&table).filter(|_| is_own(schema.as_deref())) {
            let table = self.uses(found);
            self.needs(Object::Table, &table.name, Privileges::SELECT);
            let described = (0..).zip(&table.columns).map(|(at, column)| OutputColumn {
                name: column.name.clone(),
                ty: column.ty,
                modifier: column.modifier,
                origin: (table.oid, at + 1),
            });
            let offset = columns.len();
            self.name_columns(described.collect(), known, alias, columns)?;
            return Ok(From::Table { table, offset });
        }
        if let Some(view) = self.schema.views.get(&table).filter(|_| is_own(schema.as_deref())) {
            let query = self.view(&table, &Arc::clone(view))?;
            return self.enter(query.root, query.columns, known, alias, columns);
        }
        if let Some(catalog) = catalogs::find(schema.as_deref(), &table) {
            if catalogs::is_secret(catalog) {
                self.needs(Object::Secret, &table, Privileges::SELECT);
            }
            self.tells_of_locks |= catalogs::tells_of_locks(catalog);
            return self.enter(Node::Virtual(catalog), catalogs::columns(catalog), known, alias, columns);
        }
        Err(crate::schema::no_relation(&table).at(self.position_of(name)))
    }

    /// Binds the query of a view, apart from all names around it.
    fn view(&mut self, name: &str, view: &ViewMeta) -> Result<Query, SqlError> {
        let statements = crate::parse::statements(&view.text)?;
        let Some(ast::Statement::Query(query)) = statements.first() else {
            return Err(crate::schema::no_relation(name));
        };
        self.views.push(name.to_owned());
        self.needs(Object::View, name, Privileges::SELECT);
        let acting = self.acting.replace(self.schema.roles.owner_of(name));
        let (scopes, named) = (std::mem::take(&mut self.scopes), std::mem::take(&mut self.named));
        let bound = self.query(query);
        (self.scopes, self.named) = (scopes, named);
        self.acting = acting;
        let mut bound = bound?;
        for ((column, kept), number) in bound.columns.iter_mut().zip(&view.columns).zip(1..) {
            column.name.clone_from(&kept.name);
            column.origin = (view.oid(), number);
        }
        Ok(bound)
    }

    /// Adds the columns of a node to those in scope.
    pub(super) fn enter(
        &mut self,
        node: Node,
        described: Vec<OutputColumn>,
        name: String,
        alias: Option<&ast::TableAlias>,
        columns: &mut Vec<ScopeColumn>,
    ) -> Result<From, SqlError> {
        let (offset, width) = (columns.len(), described.len());
        self.name_columns(described, name, alias, columns)?;
        Ok(From::Other { node, offset, width })
    }

    pub(super) fn name_columns(
        &mut self,
        mut described: Vec<OutputColumn>,
        table: String,
        alias: Option<&ast::TableAlias>,
        columns: &mut Vec<ScopeColumn>,
    ) -> Result<(), SqlError> {
        if !table.is_empty() && columns.iter().any(|column| column.table == table) {
            return Err(SqlError::new(
                SqlState::DUPLICATE_ALIAS,
                format!("table name \"{table}\" specified more than once"),
            ));
        }
        if let Some(alias) = alias {
            rename(&mut described, alias)?;
        }
        let first = columns.len();
        columns.extend((first..).zip(described).map(|(place, output)| ScopeColumn {
            table: table.clone(),
            // The number of the row itself is there to be named, and not a column that a table was given.
            is_hidden: output.name == "tableoid",
            is_alone: false,
            output,
            is_merged: false,
            merged_with: None,
            place,
        }));
        Ok(())
    }

    /// The rows of one table that a statement changes: its scope is entered.
    pub(super) fn target(
        &mut self,
        table: &Arc<TableEntry>,
        alias: Option<&ast::TableAlias>,
        selection: Option<&ast::Expr>,
    ) -> Result<Scan, SqlError> {
        let described = (0..).zip(&table.columns).map(|(at, column)| OutputColumn {
            name: column.name.clone(),
            ty: column.ty,
            modifier: column.modifier,
            origin: (table.oid, at + 1),
        });
        let mut columns = Vec::new();
        let known = alias.map_or_else(|| table.name.clone(), |alias| ident(&alias.name));
        self.name_columns(described.collect(), known, alias, &mut columns)?;
        self.scopes.push(Scope { columns, ..Scope::default() });
        let conjuncts = match selection.map(|filter| self.condition(filter, "WHERE")).transpose()? {
            None => Vec::new(),
            Some(Expr::And(parts)) => parts,
            Some(other) => vec![other],
        };
        let (access, rest) = access::choose(table, conjuncts);
        let columns = (0..table.columns.len()).collect();
        Ok(Scan {
            table: Arc::clone(table),
            access,
            filter: all(rest),
            columns,
            backward: false,
            for_update: true,
            when_locked: WhenLocked::Wait,
        })
    }
}

/// Gives columns, the first of which has the number `start`, their places among those of `*`: the `first` ones come first.
fn place_first(columns: &mut [ScopeColumn], start: usize, first: &[usize]) {
    let mut order: Vec<usize> = (0..columns.len()).collect();
    order.sort_by_key(|at| {
        let rank = first.iter().position(|column| *column == at + start).unwrap_or(usize::MAX);
        (rank, columns[*at].place)
    });
    for (place, at) in (start..).zip(order) {
        columns[at].place = place;
    }
}
