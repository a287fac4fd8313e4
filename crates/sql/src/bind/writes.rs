//! Binding of INSERT, UPDATE and DELETE.

use std::sync::Arc;

use sqlparser::ast;

use super::from::From;
use super::joins::Lock;
use super::rows::row_parts;
use super::{Binder, Scope, ScopeColumn, Typed, ident, object_name};
use crate::error::{SqlError, SqlState};
use crate::expr::Expr;
use crate::plan::{Access, Delete, Insert, JoinKind, Node, OutputColumn, Scan, Update, WhenLocked};
use crate::roles::{Object, Privileges};
use crate::schema::TableEntry;
use crate::value::Value;

type Returning = Option<(Vec<Expr>, Vec<OutputColumn>)>;

/// The action for a row that is there: the columns that are set, and the condition of that.
type OnConflict = (Option<Vec<(usize, Expr)>>, Option<Expr>);

/// The source of the rows that a statement changes.
enum Target {
    Scan(Scan),
    Joined(Joined),
}

/// A FROM whose last table is the one that a statement changes, behind `width` columns of others.
struct Joined {
    from: Option<From>,
    filter: Option<Expr>,
    width: usize,
}

impl Binder<'_> {
    pub(super) fn insert(&mut self, insert: &ast::Insert) -> Result<Insert, SqlError> {
        refuse_insert(insert)?;
        let ast::TableObject::TableName(name) = &insert.table else {
            return Err(SqlError::unsupported("INSERT into what is no table"));
        };
        let table = self.table(name)?;
        let columns = self.insert_columns(&table, &insert.columns)?;
        let (source, values, given) = self.insert_source(insert, &table, &columns)?;
        self.needs_of(&table, given, Privileges::INSERT);
        let checks = self.table_checks(&table)?;
        let alias =
            insert.table_alias.as_ref().map_or_else(|| table.name.clone(), |alias| ident(&alias.alias));
        let (on_conflict, conflict_filter) = self.on_conflict(insert.on.as_ref(), &table, &alias)?;
        self.scopes.push(Scope { columns: scope_columns(&table, &alias), ..Scope::default() });
        let returning = self.returning(insert.returning.as_deref());
        self.scopes.pop();
        Ok(Insert { table, source, values, on_conflict, conflict_filter, checks, returning: returning? })
    }

    fn insert_columns(
        &mut self,
        table: &TableEntry,
        names: &[ast::ObjectName],
    ) -> Result<Vec<usize>, SqlError> {
        if names.is_empty() {
            return Ok((0..table.columns.len()).collect());
        }
        let mut columns = Vec::new();
        for name in names {
            let (_, column) = object_name(name)?;
            let at =
                table.column(&column).ok_or_else(|| table.no_column(&column).at(self.position_of(name)))?;
            if columns.contains(&at) {
                return Err(SqlError::new(
                    SqlState::DUPLICATE_COLUMN,
                    format!("column \"{column}\" specified more than once"),
                ));
            }
            columns.push(at);
        }
        Ok(columns)
    }

    /// The rows to be inserted, the value of each column of the table for one of them, and the columns that are given one.
    fn insert_source(
        &mut self,
        insert: &ast::Insert,
        table: &TableEntry,
        columns: &[usize],
    ) -> Result<(Node, Vec<Expr>, Vec<usize>), SqlError> {
        let mut given: Vec<Option<Expr>> = vec![None; table.columns.len()];
        let source = match &insert.source {
            None => Node::Values(vec![Vec::new()]),
            Some(query) => match &*query.body {
                ast::SetExpr::Values(values)
                    if query.order_by.is_none() && query.limit_clause.is_none() && query.with.is_none() =>
                {
                    let rows = self.insert_values(values, table, columns)?;
                    let width = values.rows.first().map_or(0, |row| row.content.len());
                    for (at, column) in columns.iter().take(width).enumerate() {
                        given[*column] = Some(Expr::Column(at));
                    }
                    Node::Values(rows)
                }
                _ => {
                    let query = self.query(query)?;
                    refuse_width(query.columns.len(), columns.len())?;
                    for (at, (column, output)) in columns.iter().zip(&query.columns).enumerate() {
                        let typed =
                            Typed { expr: Expr::Column(at), ty: output.ty, modifier: output.modifier };
                        self.refuse_always(table, *column)?;
                        given[*column] = Some(self.assign(typed, table, *column)?);
                    }
                    query.root
                }
            },
        };
        let named = if insert.columns.is_empty() { 0 } else { columns.len() };
        let is_given = |column: &usize| given[*column].is_some() || columns[..named].contains(column);
        let written = (0..given.len()).filter(is_given).collect();
        let mut values = Vec::new();
        for (column, value) in given.into_iter().enumerate() {
            values.push(match value {
                Some(value) => value,
                None => self.default_of(table, column)?,
            });
        }
        Ok((source, values, written))
    }

    fn refuse_always(&self, table: &TableEntry, column: usize) -> Result<(), SqlError> {
        if table.columns[column].identity != Some('a') {
            return Ok(());
        }
        let name = &table.columns[column].name;
        Err(SqlError::new(
            SqlState("428C9"),
            format!("cannot insert a non-DEFAULT value into column \"{name}\""),
        )
        .detail(format!("Column \"{name}\" is an identity column defined as GENERATED ALWAYS.")))
    }

    fn insert_values(
        &mut self,
        values: &ast::Values,
        table: &TableEntry,
        columns: &[usize],
    ) -> Result<Vec<Vec<Expr>>, SqlError> {
        self.scopes.push(Scope::default());
        let mut rows = Vec::new();
        let width = values.rows.first().map_or(0, |row| row.content.len());
        let mut bind = |binder: &mut Self| -> Result<(), SqlError> {
            for row in &values.rows {
                if row.content.len() != width {
                    return Err(SqlError::new(
                        SqlState::SYNTAX_ERROR,
                        "VALUES lists must all be the same length",
                    ));
                }
                refuse_width(width, columns.len())?;
                let mut bound = Vec::new();
                for (expr, column) in row.content.iter().zip(columns) {
                    let is_default = matches!(expr, ast::Expr::Identifier(name) if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default"));
                    bound.push(if is_default {
                        binder.default_of(table, *column)?
                    } else {
                        binder.refuse_always(table, *column)?;
                        let typed = binder.expr(expr)?;
                        binder.assign(typed, table, *column)?
                    });
                }
                rows.push(bound);
            }
            Ok(())
        };
        let bound = bind(self);
        self.scopes.pop();
        bound.map(|()| rows)
    }

    /// The default of a column.
    pub(crate) fn default_of(&mut self, table: &TableEntry, column: usize) -> Result<Expr, SqlError> {
        match &table.columns[column].default {
            None => Ok(Expr::Const(Value::Null)),
            Some(text) => {
                let text = text.clone();
                let typed = self.expression_of(&text, &[])?;
                self.assign(typed, table, column)
            }
        }
    }

    fn on_conflict(
        &mut self,
        on: Option<&ast::OnInsert>,
        table: &Arc<TableEntry>,
        alias: &str,
    ) -> Result<OnConflict, SqlError> {
        let conflict = match on {
            None => return Ok((None, None)),
            Some(ast::OnInsert::OnConflict(conflict)) => conflict,
            Some(_) => return Err(SqlError::unsupported("ON DUPLICATE KEY UPDATE")),
        };
        let key: Vec<usize> = table
            .cluster_key()
            .map_or_else(Vec::new, |key| key.columns.iter().map(|(column, _)| *column).collect());
        match &conflict.conflict_target {
            None if matches!(conflict.action, ast::OnConflictAction::DoNothing)
                && table.indexes.iter().filter(|index| index.meta.unique).count() <= 1 => {}
            Some(ast::ConflictTarget::Columns { columns, predicate: None }) => {
                let mut named: Vec<usize> = Vec::new();
                for column in columns {
                    let name = ident(column);
                    named.push(table.column(&name).ok_or_else(|| table.no_column(&name))?);
                }
                self.needs_of(table, named.iter().copied(), Privileges::SELECT);
                named.sort_unstable();
                let mut sorted = key.clone();
                sorted.sort_unstable();
                if key.is_empty() || named != sorted {
                    return Err(SqlError::unsupported("ON CONFLICT with another key than the primary key"));
                }
            }
            _ => {
                return Err(SqlError::unsupported("this target of ON CONFLICT")
                    .hint("Name the columns of the primary key."));
            }
        }
        let update = match &conflict.action {
            ast::OnConflictAction::DoNothing => return Ok((Some(Vec::new()), None)),
            ast::OnConflictAction::DoUpdate(update) => update,
        };
        let mut columns = scope_columns(table, alias);
        // The row that could not be inserted has its columns behind those of the one that is there, by name of it alone.
        columns.extend(
            scope_columns(table, "excluded")
                .into_iter()
                .map(|column| ScopeColumn { is_merged: true, ..column }),
        );
        self.scopes.push(Scope { columns, ..Scope::default() });
        let bound = self.assignments(&update.assignments, table).and_then(|assignments| {
            self.needs_of(table, assignments.iter().map(|(column, _)| *column), Privileges::UPDATE);
            let filter =
                update.selection.as_ref().map(|filter| self.condition(filter, "WHERE")).transpose()?;
            Ok((Some(assignments), filter))
        });
        self.scopes.pop();
        bound
    }

    pub(super) fn update(&mut self, update: &ast::Update) -> Result<Update, SqlError> {
        let refused = [
            (update.output.is_some(), "OUTPUT"),
            (update.or.is_some(), "UPDATE OR"),
            (!update.order_by.is_empty() || update.limit.is_some(), "ORDER BY or LIMIT of UPDATE"),
            (!update.table.joins.is_empty(), "a join in UPDATE"),
        ];
        refuse(&refused)?;
        let (table, alias) = self.single_table(&update.table.relation)?;
        let joined = match &update.from {
            None => None,
            Some(ast::UpdateTableFromKind::AfterSet(from)) => Some(&from[..]),
            Some(ast::UpdateTableFromKind::BeforeSet(_)) => {
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, "FROM comes after SET"));
            }
        };
        let mut target = match joined {
            None => Target::Scan(self.target(&table, alias, update.selection.as_ref())?),
            Some(from) => {
                Target::Joined(self.joined_target(&table, alias, from, update.selection.as_ref())?)
            }
        };
        let assignments = self.assignments(&update.assignments, &table)?;
        if assignments.iter().any(|(column, _)| table.is_in_key(*column)) {
            self.schema.keeps_children(&table)?;
        }
        let checks = self.table_checks(&table)?;
        let returning = self.returning(update.returning.as_deref())?;
        self.scopes.pop();
        self.needs_of(&table, assignments.iter().map(|(column, _)| *column), Privileges::UPDATE);
        let read = assignments.iter().map(|(_, expr)| expr);
        let (scan, from) = self.target_rows(&mut target, &table, read, returning.as_ref())?;
        Ok(Update { scan, from, assignments, checks, returning })
    }

    pub(super) fn delete(&mut self, delete: &ast::Delete) -> Result<Delete, SqlError> {
        let refused = [
            (delete.output.is_some(), "OUTPUT"),
            (!delete.order_by.is_empty() || delete.limit.is_some(), "ORDER BY or LIMIT of DELETE"),
            (!delete.tables.is_empty(), "DELETE from several tables"),
        ];
        refuse(&refused)?;
        let (ast::FromTable::WithFromKeyword(from) | ast::FromTable::WithoutKeyword(from)) = &delete.from;
        let [item] = &from[..] else {
            return Err(SqlError::unsupported("DELETE from several tables"));
        };
        if !item.joins.is_empty() {
            return Err(SqlError::unsupported("a join in DELETE"));
        }
        let (table, alias) = self.single_table(&item.relation)?;
        let mut target = match &delete.using {
            None => Target::Scan(self.target(&table, alias, delete.selection.as_ref())?),
            Some(using) => {
                Target::Joined(self.joined_target(&table, alias, using, delete.selection.as_ref())?)
            }
        };
        let returning = self.returning(delete.returning.as_deref())?;
        self.scopes.pop();
        self.needs(Object::Table, &table.name, Privileges::DELETE);
        let (scan, using) = self.target_rows(&mut target, &table, std::iter::empty(), returning.as_ref())?;
        Ok(Delete { scan, using, returning })
    }

    /// Binds the FROM of an UPDATE, or the USING of a DELETE. The rows of the table are joined last, so that they are looked up by their
    /// keys where these follow from the other tables; the scope that is entered has the table's columns first, as `*` shows them.
    fn joined_target(
        &mut self,
        table: &Arc<TableEntry>,
        alias: Option<&ast::TableAlias>,
        from: &[ast::TableWithJoins],
        selection: Option<&ast::Expr>,
    ) -> Result<Joined, SqlError> {
        if table.cluster_key().is_none() {
            return Err(SqlError::unsupported(
                "UPDATE .. FROM and DELETE .. USING of a table without a primary key",
            )
            .hint("Give the table a primary key, or use a subquery in WHERE."));
        }
        let others = self.from(from)?;
        let Some(scope) = self.scopes.last_mut() else {
            return Err(SqlError::unsupported("this statement"));
        };
        let known = alias.map_or_else(|| table.name.clone(), |alias| ident(&alias.name));
        if scope.columns.iter().any(|column| column.table == known) {
            return Err(SqlError::new(
                SqlState::DUPLICATE_ALIAS,
                format!("table name \"{known}\" specified more than once"),
            ));
        }
        let own = scope_columns(table, &known);
        let width = scope.columns.len();
        let turned: Vec<ScopeColumn> = own.iter().cloned().chain(scope.columns.iter().cloned()).collect();
        scope.columns.extend(own);
        let filter = selection.map(|filter| self.condition(filter, "WHERE")).transpose()?;
        let right = From::Table { table: Arc::clone(table), offset: width };
        let from = From::Join {
            left: Box::new(others),
            right: Box::new(right),
            kind: JoinKind::Inner,
            on: Vec::new(),
        };
        if let Some(scope) = self.scopes.last_mut() {
            scope.columns = turned;
            let own = table.columns.len();
            for (place, column) in scope.columns.iter_mut().enumerate() {
                column.place = if place < own { place } else { column.place + own };
                column.merged_with = column.merged_with.map(|(other, both)| (other + own, both));
            }
        }
        Ok(Joined { from: Some(from), filter, width })
    }

    /// The rows that a statement changes: of a scan, or joined, with the table's columns first. `read` is what it reads of them.
    fn target_rows<'e>(
        &mut self,
        target: &mut Target,
        table: &Arc<TableEntry>,
        read: impl Iterator<Item = &'e Expr>,
        returning: Option<&'e (Vec<Expr>, Vec<OutputColumn>)>,
    ) -> Result<(Scan, Option<Node>), SqlError> {
        let joined = match target {
            Target::Scan(scan) => return Ok((scan.clone(), None)),
            Target::Joined(joined) => joined,
        };
        let own = table.columns.len();
        let mut used = Vec::new();
        read.chain(returning.into_iter().flat_map(|(exprs, _)| exprs))
            .for_each(|expr| expr.columns(&mut used));
        let width = joined.width;
        let mut used: Vec<usize> = used.into_iter().filter_map(|at| at.checked_sub(own)).collect();
        used.extend(width..width + own);
        let from = joined.from.take().unwrap_or(From::Nothing);
        let rows = self.plan_from(
            from,
            joined.filter.take(),
            used,
            &[Lock { offset: Some(width), for_update: true, when_locked: WhenLocked::Wait }],
        )?;
        let turned = (width..width + own).chain(0..width).map(Expr::Column).collect();
        let rows = Node::Project(Box::new(rows), turned);
        let scan = Scan {
            table: Arc::clone(table),
            access: Access::Full,
            filter: None,
            columns: (0..own).collect(),
            backward: false,
            for_update: true,
            when_locked: WhenLocked::Wait,
        };
        Ok((scan, Some(rows)))
    }

    fn single_table<'t>(
        &mut self,
        factor: &'t ast::TableFactor,
    ) -> Result<(Arc<TableEntry>, Option<&'t ast::TableAlias>), SqlError> {
        match factor {
            ast::TableFactor::Table { name, alias, args: None, .. } => {
                Ok((self.table(name)?, alias.as_ref()))
            }
            other => Err(SqlError::unsupported(format!("a change of {other}"))),
        }
    }

    fn assignments(
        &mut self,
        assignments: &[ast::Assignment],
        table: &TableEntry,
    ) -> Result<Vec<(usize, Expr)>, SqlError> {
        let mut bound: Vec<(usize, Expr)> = Vec::new();
        for assignment in assignments {
            match &assignment.target {
                ast::AssignmentTarget::ColumnName(name) => {
                    let at = self.assigned(name, table, &bound)?;
                    let value = self.assigned_value(&assignment.value, table, at)?;
                    bound.push((at, value));
                }
                ast::AssignmentTarget::Tuple(names) => {
                    self.assign_row(names, &assignment.value, table, &mut bound)?;
                }
            }
        }
        Ok(bound)
    }

    /// The number of a column that is assigned to, which none of the assignments before is to.
    fn assigned(
        &self,
        name: &ast::ObjectName,
        table: &TableEntry,
        bound: &[(usize, Expr)],
    ) -> Result<usize, SqlError> {
        let column = match &name.0[..] {
            [part] => part.as_ident().map(ident),
            _ => None,
        };
        let column = column.ok_or_else(|| SqlError::unsupported(format!("an assignment to {name}")))?;
        let at = table.column(&column).ok_or_else(|| table.no_column(&column).at(self.position_of(name)))?;
        if bound.iter().any(|(other, _)| *other == at) {
            return Err(SqlError::new(
                SqlState::SYNTAX_ERROR,
                format!("multiple assignments to same column \"{column}\""),
            ));
        }
        Ok(at)
    }

    fn assigned_value(&mut self, value: &ast::Expr, table: &TableEntry, at: usize) -> Result<Expr, SqlError> {
        let is_default = matches!(value, ast::Expr::Identifier(name) if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default"));
        if is_default {
            return self.default_of(table, at);
        }
        let typed = self.expr(value)?;
        self.assign(typed, table, at)
    }

    /// Binds `(a, b) = (1, 2)`, `(a, b) = ROW(1, 2)` and `(a, b) = (SELECT ..)`.
    fn assign_row(
        &mut self,
        names: &[ast::ObjectName],
        value: &ast::Expr,
        table: &TableEntry,
        bound: &mut Vec<(usize, Expr)>,
    ) -> Result<(), SqlError> {
        let unequal =
            || SqlError::new(SqlState::SYNTAX_ERROR, "number of columns does not match number of values");
        if let ast::Expr::Subquery(query) = value {
            let fields = self.fields_of_subquery(query)?;
            if names.len() != fields.len() {
                return Err(unequal());
            }
            for (name, field) in names.iter().zip(fields) {
                let at = self.assigned(name, table, bound)?;
                bound.push((at, self.assign(field, table, at)?));
            }
            return Ok(());
        }
        let values = row_parts(value)
            .ok_or_else(|| SqlError::unsupported("an assignment of a single value to several columns"))?;
        if names.len() != values.len() {
            return Err(unequal());
        }
        for (name, value) in names.iter().zip(values.iter()) {
            let at = self.assigned(name, table, bound)?;
            bound.push((at, self.assigned_value(value, table, at)?));
        }
        Ok(())
    }

    fn returning(&mut self, items: Option<&[ast::SelectItem]>) -> Result<Returning, SqlError> {
        let Some(items) = items else { return Ok(None) };
        let (exprs, columns): (Vec<Expr>, Vec<OutputColumn>) = self.items(items)?.into_iter().unzip();
        Ok(Some((exprs, columns)))
    }
}

fn scope_columns(table: &TableEntry, alias: &str) -> Vec<ScopeColumn> {
    let column = |(at, column): (i16, &crate::schema::ColumnEntry)| ScopeColumn {
        table: alias.to_owned(),
        output: OutputColumn {
            name: column.name.clone(),
            ty: column.ty,
            modifier: column.modifier,
            origin: (table.oid, at),
        },
        is_merged: false,
        merged_with: None,
        place: 0,
        is_hidden: false,
        is_alone: false,
    };
    (1..).zip(&table.columns).map(column).collect()
}

fn refuse(refused: &[(bool, &str)]) -> Result<(), SqlError> {
    match refused.iter().find(|(is_there, _)| *is_there) {
        Some((_, what)) => Err(SqlError::unsupported(what)),
        None => Ok(()),
    }
}

fn refuse_insert(insert: &ast::Insert) -> Result<(), SqlError> {
    refuse(&[
        (insert.or.is_some() || insert.ignore || insert.replace_into, "INSERT OR, IGNORE or REPLACE"),
        (insert.overwrite, "INSERT OVERWRITE"),
        (insert.by_name, "INSERT BY NAME"),
        (!insert.assignments.is_empty(), "INSERT .. SET"),
        (insert.partitioned.is_some() || !insert.after_columns.is_empty(), "PARTITION"),
        (insert.overriding.is_some(), "OVERRIDING"),
        (insert.output.is_some(), "OUTPUT"),
        (insert.priority.is_some() || insert.insert_alias.is_some(), "a clause of INSERT"),
        (insert.settings.is_some() || insert.format_clause.is_some(), "a clause of INSERT"),
        (insert.multi_table_insert_type.is_some(), "INSERT into several tables"),
    ])
}

fn refuse_width(given: usize, wanted: usize) -> Result<(), SqlError> {
    if given <= wanted {
        return Ok(());
    }
    Err(SqlError::new(SqlState::SYNTAX_ERROR, "INSERT has more expressions than target columns"))
}
