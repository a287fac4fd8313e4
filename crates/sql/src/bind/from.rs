//! Binding of FROM: the names of its tables and columns, and the conditions of its joins.

use std::sync::Arc;

use sqlparser::ast;

use super::joins::all;
use super::query::rename;
use super::{Binder, Scope, ScopeColumn, Typed, ident, object_name};
use crate::access;
use crate::cast::Castability;
use crate::catalogs;
use crate::error::{SqlError, SqlState};
use crate::expr::{CompareOp, Expr};
use crate::plan::{JoinKind, Node, OutputColumn, Query, RowsFunction, Scan, WhenLocked};
use crate::record;
use crate::roles::{Object, Privileges};
use crate::schema::{TableEntry, ViewMeta};
use crate::types::{Modifier, SqlType};
use crate::value::Value;

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
                with_ordinality: false,
                partitions,
                json_path: None,
                sample: None,
                index_directives,
                ..
            } if with_hints.is_empty() && partitions.is_empty() && index_directives.is_empty() => {
                match args {
                    None => self.named_table(name, alias.as_ref(), columns),
                    Some(arguments) if arguments.settings.is_none() => {
                        self.rows_function(name, &arguments.args, alias.as_ref(), columns)
                    }
                    Some(_) => Err(SqlError::unsupported(format!("the call of {name}"))),
                }
            }
            ast::TableFactor::Function { lateral: false, name, args, with_ordinality: false, alias } => {
                self.rows_function(name, args, alias.as_ref(), columns)
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
                with_ordinality: false,
            } if array_exprs.len() == 1 => {
                let arguments: Vec<ast::FunctionArg> = array_exprs
                    .iter()
                    .map(|array| ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(array.clone())))
                    .collect();
                let name = ast::ObjectName::from(vec![ast::Ident::new("unnest")]);
                self.rows_function(&name, &arguments, alias.as_ref(), columns)
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
    fn enter(
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

    fn name_columns(
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
            output,
            is_merged: false,
            merged_with: None,
            place,
        }));
        Ok(())
    }

    /// Binds a function in FROM.
    fn rows_function(
        &mut self,
        name: &ast::ObjectName,
        arguments: &[ast::FunctionArg],
        alias: Option<&ast::TableAlias>,
        columns: &mut Vec<ScopeColumn>,
    ) -> Result<From, SqlError> {
        let (_, function) = object_name(name)?;
        let mut bound = Vec::new();
        for argument in arguments {
            let ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) = argument else {
                return Err(SqlError::unsupported(format!(
                    "a named argument, or *, in the call of {function}"
                )));
            };
            bound.push(self.expr(expr)?);
        }
        let known = alias.map_or_else(|| function.clone(), |alias| ident(&alias.name));
        if function == "pg_get_keywords" && bound.is_empty() {
            let (node, described) = keywords();
            return self.enter(node, described, known, alias, columns);
        }
        let (node, ty) = match &*function {
            name if returns_rows(name) => {
                let (rows, exprs, ty) = self.rows_call(&function, bound)?;
                let node = Node::Rows(rows, exprs);
                if let RowsFunction::ExpandArray(_) = rows {
                    return self.expanded(node, rows.modifier(), known, alias, columns);
                }
                (node, ty)
            }
            _ => {
                // A function of one value is a table of one row.
                let name = function.clone();
                let typed = self.call(&name, bound)?;
                (Node::Values(vec![vec![typed.expr]]), typed.ty)
            }
        };
        let column = OutputColumn { name: known.clone(), ty, modifier: Modifier::None, origin: (0, 0) };
        self.enter(node, vec![column], known, alias, columns)
    }

    /// Adds the fields of records as columns.
    fn expanded(
        &mut self,
        node: Node,
        modifier: Modifier,
        name: String,
        alias: Option<&ast::TableAlias>,
        columns: &mut Vec<ScopeColumn>,
    ) -> Result<From, SqlError> {
        let (mut exprs, mut described) = (Vec::new(), Vec::new());
        for (at, (field, ty)) in record::fields(modifier).into_iter().enumerate() {
            exprs.push(Expr::Field(Box::new(Expr::Column(0)), at));
            described.push(OutputColumn {
                name: field.to_owned(),
                ty,
                modifier: Modifier::None,
                origin: (0, 0),
            });
        }
        self.enter(Node::Project(Box::new(node), exprs), described, name, alias, columns)
    }

    /// Binds the call of a function that returns rows.
    pub(super) fn rows_call(
        &mut self,
        name: &str,
        mut bound: Vec<Typed>,
    ) -> Result<(RowsFunction, Vec<Expr>, SqlType), SqlError> {
        let types: Vec<SqlType> = bound.iter().map(|argument| argument.ty).collect();
        let is_moment =
            |ty: &SqlType| matches!(ty, SqlType::Timestamp | SqlType::Timestamptz | SqlType::Date);
        match name {
            "generate_series" if types.len() == 3 && types[..2].iter().any(is_moment) => {
                let has_zone = !types[..2].contains(&SqlType::Timestamp);
                let ty = if has_zone { SqlType::Timestamptz } else { SqlType::Timestamp };
                let mut exprs = Vec::new();
                for (argument, wanted) in bound.into_iter().zip([ty, ty, SqlType::Interval]) {
                    exprs.push(self.coerce(argument, wanted, Castability::Implicit)?.expr);
                }
                Ok((RowsFunction::GenerateSeries, exprs, ty))
            }
            "generate_series" if matches!(types.len(), 2 | 3) => {
                let (exprs, ty) = self.unify_all(bound, "generate_series")?;
                let ty = if ty == SqlType::Text { SqlType::Int4 } else { ty };
                if !ty.is_integer() {
                    return Err(SqlError::unsupported(format!("generate_series of {ty}")));
                }
                Ok((RowsFunction::GenerateSeries, exprs, ty))
            }
            "unnest" if types.len() == 1 && types[0].element().is_some() => {
                let array = bound.remove(0);
                Ok((RowsFunction::Unnest, vec![array.expr], types[0].element().unwrap_or(SqlType::Text)))
            }
            "_pg_expandarray" if types.len() == 1 && types[0].element().is_some() => {
                let element = types[0].element().unwrap_or(SqlType::Text);
                Ok((RowsFunction::ExpandArray(element), vec![bound.remove(0).expr], SqlType::Record))
            }
            "generate_subscripts" if types.len() == 2 && types[0].element().is_some() => {
                let dimension = bound.remove(1);
                let dimension = self.coerce(dimension, SqlType::Int4, Castability::Assignment)?;
                let array = bound.remove(0);
                Ok((RowsFunction::GenerateSubscripts, vec![array.expr, dimension.expr], SqlType::Int4))
            }
            _ => Err(super::functions::no_function(name, &types)),
        }
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

/// The words of the grammar, as `pg_get_keywords` returns them.
fn keywords() -> (Node, Vec<OutputColumn>) {
    use sqlparser::keywords::{
        ALL_KEYWORDS, ALL_KEYWORDS_INDEX, RESERVED_FOR_COLUMN_ALIAS, RESERVED_FOR_TABLE_ALIAS,
    };
    let columns = [
        ("word", SqlType::Text),
        ("catcode", SqlType::Char),
        ("barelabel", SqlType::Bool),
        ("catdesc", SqlType::Text),
        ("baredesc", SqlType::Text),
    ];
    let described = columns.map(|(name, ty)| OutputColumn {
        name: name.to_owned(),
        ty,
        modifier: Modifier::None,
        origin: (0, 0),
    });
    let row = |(word, keyword): (&&str, &sqlparser::keywords::Keyword)| {
        let is_label = !RESERVED_FOR_COLUMN_ALIAS.contains(keyword);
        let is_reserved = !is_label && RESERVED_FOR_TABLE_ALIAS.contains(keyword);
        let (code, kind) = if is_reserved { ("R", "reserved") } else { ("U", "unreserved") };
        let label = if is_label { "can be bare label" } else { "requires AS" };
        let values = [
            Value::from(word.to_lowercase()),
            Value::text(code),
            Value::Bool(is_label),
            Value::text(kind),
            Value::text(label),
        ];
        values.map(Expr::Const).into()
    };
    (Node::Values(ALL_KEYWORDS.iter().zip(ALL_KEYWORDS_INDEX).map(row).collect()), described.into())
}

/// Returns true for the name of a function that returns rows.
pub(super) fn returns_rows(name: &str) -> bool {
    matches!(name, "generate_series" | "unnest" | "generate_subscripts" | "_pg_expandarray")
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
