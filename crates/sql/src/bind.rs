//! The binder: from the grammar's tree of a statement to a plan.
//!
//! Owns: the names in scope, the types of parameters and expressions, and what of the grammar is not supported: it is refused
//! by name. Never: runs anything.
//!
//! The grammar accepts more than PostgreSQL does. So what a clause has is looked at piece by piece, and a piece that is not
//! known here is an error and never left out.

mod expr;
mod from;
mod functions;
mod hypothetical;
mod joins;
mod operators;
mod procedures;
mod query;
mod rows;
mod select;
mod sets;
mod types;
mod window;
mod writes;

use std::sync::Arc;

use sqlparser::ast;
use sqlparser::tokenizer::Span;

use crate::cast::{Castability, cast, castability};
use crate::error::{SqlError, SqlState};
use crate::expr::Expr;
use crate::plan::{OutputColumn, Plan, Query, Work};
use crate::roles::{Need, Object, Privileges};
use crate::schema::{Schema, TableEntry};
use crate::types::{Modifier, SqlType};
use crate::value::Value;

pub(crate) use procedures::procedure_name;
#[cfg(test)]
#[cfg(test)]
pub(crate) use sets::RETURN_ROWS;
pub(crate) use types::{data_type, object_name};

/// An expression with its type.
#[derive(Clone, Debug)]
pub(crate) struct Typed {
    pub(crate) expr: Expr,
    pub(crate) ty: SqlType,
    pub(crate) modifier: Modifier,
}

impl Typed {
    pub(crate) fn new(expr: Expr, ty: SqlType) -> Typed {
        Typed { expr, ty, modifier: Modifier::None }
    }

    fn boolean(expr: Expr) -> Typed {
        Typed::new(expr, SqlType::Bool)
    }
}

/// A column that can be named.
#[derive(Clone, Debug)]
struct ScopeColumn {
    /// The name or alias of its table.
    table: String,
    output: OutputColumn,
    /// Set if only its table's name leads to it, as it is the second of two that `USING` has made one.
    is_merged: bool,
    /// The other one of two that `USING` of a RIGHT or FULL JOIN has made one; the name alone means that one or, if set, the one that
    /// is not NULL.
    merged_with: Option<(usize, bool)>,
    /// Its place among the columns of `*`: those of `USING` come first.
    place: usize,
    /// Set if `*` leaves it out.
    is_hidden: bool,
    /// Set if it is all that its table has, a function of one value in FROM: the name of the table means it, and no row.
    is_alone: bool,
}

/// The names of a query: the columns of its `FROM`.
#[derive(Clone, Debug, Default)]
struct Scope {
    columns: Vec<ScopeColumn>,
    /// The groups and aggregates, once the query has them.
    grouping: Option<select::Grouping>,
    /// The values that the list of the query adds to its rows.
    added: window::Added,
}

/// A query with a name, of `WITH`.
#[derive(Clone, Debug)]
struct Named {
    name: String,
    query: Query,
}

/// Binds one statement.
pub(crate) struct Binder<'a> {
    schema: &'a Arc<Schema>,
    /// The text of the statement, for positions.
    text: &'a str,
    params: Vec<Option<SqlType>>,
    subqueries: usize,
    tables: Vec<Arc<TableEntry>>,
    views: Vec<String>,
    needs: Vec<Need>,
    tells_of_locks: bool,
    tells_of_sizes: bool,
    changes_session: bool,
    /// The owner of the view whose query is bound, who needs what it reads.
    acting: Option<u32>,
    /// The scopes around, the innermost last.
    scopes: Vec<Scope>,
    named: Vec<Named>,
    depth: usize,
}

/// The deepest nesting of expressions and queries.
const MAX_DEPTH: usize = 200;

impl<'a> Binder<'a> {
    pub(crate) fn new(schema: &'a Arc<Schema>, text: &'a str, params: &[Option<SqlType>]) -> Binder<'a> {
        Binder {
            schema,
            text,
            params: params.to_vec(),
            subqueries: 0,
            tables: Vec::new(),
            views: Vec::new(),
            needs: Vec::new(),
            tells_of_locks: false,
            tells_of_sizes: false,
            changes_session: false,
            acting: None,
            scopes: Vec::new(),
            named: Vec::new(),
            depth: 0,
        }
    }

    /// Binds a statement that reads or changes rows; returns its plan and the types of its parameters.
    pub(crate) fn plan(mut self, statement: &ast::Statement) -> Result<(Plan, Vec<SqlType>), SqlError> {
        let work = match statement {
            ast::Statement::Query(query) => match &*query.body {
                ast::SetExpr::Insert(inner) | ast::SetExpr::Update(inner) | ast::SetExpr::Delete(inner) => {
                    if let Some(with) = &query.with {
                        self.with(with)?;
                    }
                    return self.plan(inner);
                }
                _ => Work::Query(self.query(query)?),
            },
            ast::Statement::Insert(insert) => Work::Insert(self.insert(insert)?),
            ast::Statement::Update(update) => Work::Update(self.update(update)?),
            ast::Statement::Delete(delete) => Work::Delete(self.delete(delete)?),
            ast::Statement::Call(call) => Work::Call(self.procedure_call(call)?),
            other => return Err(SqlError::unsupported(first_words(&other.to_string()))),
        };
        Ok(self.finish(work))
    }

    pub(crate) fn finish(self, work: Work) -> (Plan, Vec<SqlType>) {
        // A parameter of which nothing says the type is a text.
        let types = self.params.iter().map(|ty| ty.unwrap_or(SqlType::Text)).collect();
        let Binder {
            tables, views, needs, subqueries, tells_of_locks, tells_of_sizes, changes_session, ..
        } = self;
        let plan =
            Plan { work, tables, views, needs, subqueries, tells_of_locks, tells_of_sizes, changes_session };
        (plan, types)
    }

    /// The table of a name that a statement writes.
    pub(crate) fn table(&mut self, name: &ast::ObjectName) -> Result<Arc<TableEntry>, SqlError> {
        let (schema, table) = object_name(name)?;
        if matches!(schema.as_deref(), Some("pg_catalog" | "information_schema"))
            || crate::catalogs::oid_of(&table).is_some()
        {
            return Err(SqlError::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                format!("permission denied: \"{table}\" is a system catalog"),
            ));
        }
        if self.schema.views.contains_key(&table) {
            return Err(SqlError::unsupported(format!("a change of the rows of view \"{table}\"")));
        }
        let found = self.schema.table(&table).map_err(|error| error.at(self.position_of(name)))?;
        Ok(self.uses(found))
    }

    /// Notes that whoever runs the statement needs privileges.
    pub(crate) fn needs(&mut self, object: Object, name: &str, privileges: Privileges) {
        let need = self.need_of(object, name);
        need.privileges = need.privileges.and(privileges);
    }

    /// Notes that whoever runs the statement needs a privilege of columns of a table.
    pub(crate) fn needs_of(
        &mut self,
        table: &TableEntry,
        columns: impl IntoIterator<Item = usize>,
        privilege: Privileges,
    ) {
        let need = self.need_of(Object::Table, &table.name);
        need.privileges = need.privileges.and(privilege);
        columns.into_iter().for_each(|column| need.add_column(&table.columns[column].name, privilege));
    }

    fn need_of(&mut self, object: Object, name: &str) -> &mut Need {
        let by = self.acting;
        let is_same = |need: &Need| need.object == object && need.name == name && need.by == by;
        let at = self.needs.iter().position(is_same).unwrap_or_else(|| {
            self.needs.push(Need { by, ..Need::new(object, name, Privileges::default()) });
            self.needs.len() - 1
        });
        &mut self.needs[at]
    }

    /// Notes that the statement reads the column of a table or view that one in scope comes from.
    fn reads(&mut self, (relation, number): (u32, i16)) {
        let Some(at) = usize::try_from(number).ok().and_then(|number| number.checked_sub(1)) else { return };
        if let Some(table) = self.tables.iter().find(|table| table.oid == relation) {
            let table = Arc::clone(table);
            return self.needs_of(&table, [at], Privileges::SELECT);
        }
        let schema = Arc::clone(self.schema);
        let used = self.views.iter().filter_map(|name| Some((name, schema.views.get(name)?)));
        let Some((name, view)) = used.into_iter().find(|(_, view)| view.oid() == relation) else { return };
        let (name, column) = (name.clone(), view.columns.get(at).map(|column| &column.name));
        if let Some(column) = column {
            self.need_of(Object::View, &name).add_column(column, Privileges::SELECT);
        }
    }

    /// Notes that the statement uses a table.
    fn uses(&mut self, table: &Arc<TableEntry>) -> Arc<TableEntry> {
        if !self.tables.iter().any(|used| Arc::ptr_eq(used, table)) {
            self.tables.push(Arc::clone(table));
        }
        Arc::clone(table)
    }

    /// The place of a piece of the statement, in characters from 1.
    fn position(&self, span: Span) -> Option<u32> {
        let (line, column) = (span.start.line, span.start.column);
        if line == 0 {
            return None;
        }
        let before: usize =
            self.text.split_inclusive('\n').take(line as usize - 1).map(|line| line.chars().count()).sum();
        u32::try_from(before + column as usize).ok()
    }

    fn position_of(&self, name: &ast::ObjectName) -> Option<u32> {
        name.0.first().and_then(ast::ObjectNamePart::as_ident).and_then(|ident| self.position(ident.span))
    }

    /// Guards against statements that are nested too deeply for the stack.
    fn deeper<R>(&mut self, bind: impl FnOnce(&mut Self) -> Result<R, SqlError>) -> Result<R, SqlError> {
        if self.depth >= MAX_DEPTH {
            return Err(SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded")
                .hint("The statement is nested too deeply."));
        }
        self.depth += 1;
        let bound = bind(self);
        self.depth -= 1;
        bound
    }

    /// Brings an expression to a type, in a place where `least` is allowed.
    fn coerce(&mut self, typed: Typed, to: SqlType, allowed: Castability) -> Result<Typed, SqlError> {
        if typed.ty == to {
            return Ok(typed);
        }
        if let (Expr::Param(at), SqlType::Unknown) = (&typed.expr, typed.ty) {
            let at = *at;
            let known = self.params[at].get_or_insert(to);
            if *known == to {
                return Ok(Typed::new(typed.expr, to));
            }
            let known = Typed::new(Expr::Param(at), *known);
            return self.coerce(known, to, Castability::Explicit);
        }
        if castability(typed.ty, to).is_none_or(|needed| needed > allowed) {
            return Err(SqlError::new(
                SqlState::DATATYPE_MISMATCH,
                format!("a value of type {} is where one of type {to} is needed", typed.ty),
            )
            .hint("You will need to rewrite or cast the expression."));
        }
        let explicit = allowed == Castability::Explicit;
        self.cast(typed, to, Modifier::None, explicit)
    }

    /// Binds an expression over no columns and brings it to a type, as a value of it is assigned.
    pub(crate) fn value(&mut self, expr: &ast::Expr, ty: SqlType) -> Result<Expr, SqlError> {
        self.scopes.push(Scope::default());
        let bound = self.expr(expr).and_then(|bound| self.coerce(bound, ty, Castability::Assignment));
        self.scopes.pop();
        let bound = bound?.expr;
        if bound.subqueries().is_empty() {
            Ok(bound)
        } else {
            Err(SqlError::unsupported("a subquery in this place"))
        }
    }

    /// Casts an expression; a constant at once.
    fn cast(&self, typed: Typed, to: SqlType, modifier: Modifier, explicit: bool) -> Result<Typed, SqlError> {
        if typed.ty == to && modifier == Modifier::None {
            return Ok(typed);
        }
        let from = if typed.ty == SqlType::Unknown { SqlType::Text } else { typed.ty };
        if let Expr::Const(value) = typed.expr {
            let value = cast(value, from, to, modifier, explicit, self.schema)?;
            return Ok(Typed { expr: Expr::Const(value), ty: to, modifier });
        }
        let value = Box::new(typed.expr);
        Ok(Typed { expr: Expr::Cast { value, from, to, modifier, explicit }, ty: to, modifier })
    }

    /// Brings a value into a column: with its type and what its modifier asks for.
    pub(crate) fn assign(
        &mut self,
        typed: Typed,
        table: &TableEntry,
        column: usize,
    ) -> Result<Expr, SqlError> {
        let column = &table.columns[column];
        let (ty, modifier) = (typed.ty, typed.modifier);
        let assigned = self.coerce(typed, column.ty, Castability::Assignment).map_err(|error| {
            if error.code != SqlState::DATATYPE_MISMATCH {
                return error;
            }
            SqlError::new(
                SqlState::DATATYPE_MISMATCH,
                format!("column \"{}\" is of type {} but expression is of type {ty}", column.name, column.ty),
            )
            .hint("You will need to rewrite or cast the expression.")
        })?;
        if column.modifier == Modifier::None || (ty == column.ty && modifier == column.modifier) {
            return Ok(assigned.expr);
        }
        self.cast(assigned, column.ty, column.modifier, false).map(|typed| typed.expr)
    }

    /// A literal or parameter that nothing gives a type to is a text.
    fn settled(&mut self, typed: Typed) -> Result<Typed, SqlError> {
        if typed.ty == SqlType::Unknown {
            return self.coerce(typed, SqlType::Text, Castability::Implicit);
        }
        Ok(typed)
    }

    /// Binds a condition.
    fn condition(&mut self, expr: &ast::Expr, clause: &str) -> Result<Expr, SqlError> {
        let bound = self.expr(expr)?;
        let ty = bound.ty;
        self.coerce(bound, SqlType::Bool, Castability::Implicit).map(|typed| typed.expr).map_err(|error| {
            if error.code != SqlState::DATATYPE_MISMATCH {
                return error;
            }
            SqlError::new(
                SqlState::DATATYPE_MISMATCH,
                format!("argument of {clause} must be type boolean, not type {ty}"),
            )
        })
    }

    /// The expression of a default or a check, over the columns of a table.
    pub(crate) fn expression_of(
        &mut self,
        text: &str,
        columns: &[(String, SqlType, Modifier)],
    ) -> Result<Typed, SqlError> {
        let dialect = sqlparser::dialect::PostgreSqlDialect {};
        let parsed = sqlparser::parser::Parser::new(&dialect)
            .try_with_sql(text)
            .and_then(|mut parser| parser.parse_expr())
            .map_err(|error| crate::parse::syntax_error(&error, text))?;
        let column = |(name, ty, modifier): &(String, SqlType, Modifier)| ScopeColumn {
            table: String::new(),
            output: OutputColumn { name: name.clone(), ty: *ty, modifier: *modifier, origin: (0, 0) },
            is_merged: false,
            merged_with: None,
            place: 0,
            is_hidden: false,
            is_alone: false,
        };
        self.scopes.push(Scope { columns: columns.iter().map(column).collect(), ..Scope::default() });
        let bound = self.expr(&parsed);
        self.scopes.pop();
        bound
    }

    /// The checks of a table, over its columns in order.
    pub(crate) fn table_checks(&mut self, table: &TableEntry) -> Result<Vec<(String, Expr)>, SqlError> {
        let columns: Vec<_> =
            table.columns.iter().map(|column| (column.name.clone(), column.ty, column.modifier)).collect();
        let mut checks = Vec::new();
        for check in &table.meta.checks {
            let typed = self.expression_of(&check.expression, &columns)?;
            let condition = self.coerce(typed, SqlType::Bool, Castability::Implicit)?;
            checks.push((check.name.clone(), condition.expr));
        }
        Ok(checks)
    }
}

/// The first words of a statement, by which it is named in a refusal.
pub(crate) fn first_words(statement: &str) -> String {
    let words: Vec<&str> = statement.split_whitespace().take(2).collect();
    words.join(" ").chars().take(60).collect()
}

/// The value of a name as statements mean it: in lower case unless it is quoted.
pub(crate) fn ident(ident: &ast::Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

/// A constant NULL.
pub(crate) fn null() -> Typed {
    Typed::new(Expr::Const(Value::Null), SqlType::Unknown)
}
