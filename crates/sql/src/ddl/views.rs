//! CREATE VIEW and DROP VIEW: queries that are kept under a name.
//!
//! Owns: what is kept of a view. Never: keeps rows: a view is bound anew in each statement that names it.

use std::sync::Arc;

use sqlparser::ast;

use super::{Change, Done, Undo};
use crate::bind::{Binder, ident, object_name};
use crate::error::{SqlError, SqlState};
use crate::schema::{Schema, ViewColumn, ViewMeta};

impl Change<'_> {
    pub(super) fn create_view(&self, create: &ast::CreateView) -> Result<Done, SqlError> {
        refuse_options(create)?;
        let (_, name) = object_name(&create.name)?;
        let schema = self.db.schema();
        let old = schema.views.get(&name);
        if schema.is_taken(&name) && !(create.or_replace && old.is_some()) {
            let why = format!("relation \"{name}\" already exists");
            if create.if_not_exists && old.is_some() {
                return Ok(Done::skipped(
                    "CREATE VIEW",
                    format!("{why}, skipping"),
                    SqlState::DUPLICATE_TABLE,
                ));
            }
            let code =
                if create.or_replace { SqlState::WRONG_OBJECT_TYPE } else { SqlState::DUPLICATE_TABLE };
            return Err(SqlError::new(code, why));
        }
        match old {
            Some(_) => self.require_owner(&name)?,
            None => self.require_create()?,
        }
        let text = create.query.to_string();
        let (mut columns, reads) = self.view_columns(&schema, &create.query)?;
        if create.columns.len() > columns.len() {
            return Err(SqlError::new(
                SqlState::SYNTAX_ERROR,
                "CREATE VIEW specifies more column names than columns",
            ));
        }
        for (column, given) in columns.iter_mut().zip(&create.columns) {
            column.name = ident(&given.name);
        }
        if let Some(twice) = columns
            .iter()
            .enumerate()
            .find(|(at, column)| columns[..*at].iter().any(|other| other.name == column.name))
        {
            return Err(SqlError::new(
                SqlState::DUPLICATE_COLUMN,
                format!("column \"{}\" specified more than once", twice.1.name),
            ));
        }
        if let Some(old) = old {
            let keeps = old.columns.len() <= columns.len()
                && old
                    .columns
                    .iter()
                    .zip(&columns)
                    .all(|(old, new)| old.name == new.name && old.ty == new.ty);
            if !keeps {
                return Err(SqlError::new(
                    SqlState::INVALID_TABLE_DEFINITION,
                    "cannot drop, rename or change columns of a view",
                ));
            }
        }
        let id = old
            .map_or_else(|| schema.views.values().map(|view| view.id + 1).max().unwrap_or(0), |old| old.id);
        let body = serde_json::to_string(&ViewMeta { id, text, columns, reads })
            .map_err(|error| SqlError::new(SqlState::INTERNAL_ERROR, error.to_string()))?;
        if old.is_none() {
            self.own(&name)?;
        }
        let undo = old.is_none().then(|| Undo::View(name.clone()));
        self.db.kept().write(self.db.database(), format!("view:{name}"), Some(body))?;
        self.db.reload()?;
        Ok(Done { tag: "CREATE VIEW", notices: Vec::new(), undo })
    }

    /// The columns of a view's query, and the names of the tables and views that it reads.
    fn view_columns(
        &self,
        schema: &Arc<Schema>,
        query: &ast::Query,
    ) -> Result<(Vec<ViewColumn>, Vec<String>), SqlError> {
        let statement = ast::Statement::Query(Box::new(query.clone()));
        let (plan, params) = Binder::new(schema, self.text, &[]).plan(&statement)?;
        if !params.is_empty() {
            return Err(SqlError::new(SqlState::UNDEFINED_PARAMETER, "there is no parameter $1"));
        }
        let column = |column: &crate::plan::OutputColumn| ViewColumn {
            name: column.name.clone(),
            ty: column.ty.oid(),
            modifier: column.modifier.code(),
        };
        let mut reads: Vec<String> = plan.tables.iter().map(|table| table.name.clone()).collect();
        reads.extend(plan.views.iter().cloned());
        Ok((plan.columns().unwrap_or_default().iter().map(column).collect(), reads))
    }

    pub(super) fn drop_view(&self, name: &str) -> Result<(), SqlError> {
        self.refuse_used(name, "view")?;
        self.db.kept().write(self.db.database(), format!("view:{name}"), None)?;
        self.disown(name)?;
        self.db.reload()
    }

    /// Refuses a change of a table or view that a view reads.
    pub(super) fn refuse_used(&self, name: &str, noun: &str) -> Result<(), SqlError> {
        let schema = self.db.schema();
        let reads = |(_, view): &(&String, &Arc<ViewMeta>)| view.reads.iter().any(|read| read == name);
        match schema.views.iter().find(reads) {
            None => Ok(()),
            Some((view, _)) => Err(SqlError::new(
                SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
                format!("cannot change or drop {noun} {name} because other objects depend on it"),
            )
            .detail(format!("view {view} depends on {noun} {name}"))
            .hint("Drop the view first.")),
        }
    }
}

fn refuse_options(create: &ast::CreateView) -> Result<(), SqlError> {
    let refused = [
        (create.materialized, "a materialized view"),
        (create.temporary, "a temporary view"),
        (create.secure || create.or_alter || create.with_no_schema_binding, "an option of a view"),
        (create.to.is_some() || create.comment.is_some() || create.params.is_some(), "an option of a view"),
        (!create.cluster_by.is_empty(), "an option of a view"),
        (create.options != ast::CreateTableOptions::None, "WITH of a view"),
    ];
    if let Some((_, what)) = refused.iter().find(|(is_there, _)| *is_there) {
        return Err(SqlError::unsupported(what));
    }
    Ok(())
}
