//! ALTER TABLE: constraints and columns that are added.
//!
//! Owns: what is done for which of its clauses. Never: makes a table anew; [`rebuild`](super::rebuild) does, for a primary key.

use std::sync::Arc;

use atrapos::catalog::{ColumnDef, Value as Stored};
use sqlparser::ast;

use super::draft::Draft;
use super::{Change, Done, refused};
use crate::bind::object_name;
use crate::error::{SqlError, SqlState};
use crate::schema::{Schema, TableEntry, TableMeta};
use crate::types::SqlType;

impl Change<'_> {
    pub(super) fn alter_table(&self, alter: &ast::AlterTable) -> Result<Done, SqlError> {
        let (_, name) = object_name(&alter.name)?;
        let schema = self.db.schema();
        if !schema.tables.contains_key(&name) && alter.if_exists {
            let why = format!("relation \"{name}\" does not exist, skipping");
            return Ok(Done::skipped("ALTER TABLE", why, SqlState::SUCCESSFUL_COMPLETION));
        }
        self.require_owner(&name)?;
        if let [ast::AlterTableOperation::OwnerTo { new_owner }] = &alter.operations[..] {
            if schema.object(&name).is_none() {
                return Err(crate::schema::no_relation(&name));
            }
            self.change_owner(&name, new_owner)?;
            return Ok(Done::tag("ALTER TABLE"));
        }
        for operation in &alter.operations {
            let schema = self.db.schema();
            let table = Arc::clone(schema.table(&name)?);
            match operation {
                ast::AlterTableOperation::AddConstraint { constraint, not_valid: false } => {
                    self.add_constraint(&schema, &table, constraint)?;
                }
                ast::AlterTableOperation::AddColumn {
                    if_not_exists,
                    column_def,
                    column_position: None,
                    ..
                } => {
                    self.add_column(&schema, &table, column_def, *if_not_exists)?;
                }
                ast::AlterTableOperation::DropConstraint { if_exists, name, .. } => {
                    self.drop_constraint(&table, &crate::bind::ident(name), *if_exists)?;
                }
                ast::AlterTableOperation::AlterColumn { column_name, op } => {
                    self.alter_column(&table, column_name, op)?;
                }
                ast::AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
                    self.rename_column(&table, old_column_name, new_column_name)?;
                }
                ast::AlterTableOperation::RenameTable { table_name: ast::RenameTableNameKind::To(new) }
                    if alter.operations.len() == 1 =>
                {
                    self.rename_table(&table, new)?;
                }
                ast::AlterTableOperation::DropColumn { column_names, if_exists, .. } => {
                    for column in column_names {
                        self.drop_column(&name, &crate::bind::ident(column), *if_exists)?;
                    }
                }
                other => {
                    let words: String =
                        other.to_string().split_whitespace().take(2).collect::<Vec<_>>().join(" ");
                    return Err(SqlError::unsupported(format!("ALTER TABLE {words}")));
                }
            }
        }
        Ok(Done { tag: "ALTER TABLE", notices: Vec::new(), undo: None })
    }

    pub(super) fn draft(&self, table: &TableEntry) -> Draft {
        Draft {
            name: table.name.clone(),
            columns: table.meta.columns.clone(),
            indexes: table.meta.indexes.clone(),
            checks: table.meta.checks.clone(),
            foreign_keys: table.meta.foreign_keys.clone(),
            names: Vec::new(),
            sequences: Vec::new(),
        }
    }

    fn add_constraint(
        &self,
        schema: &Schema,
        table: &Arc<TableEntry>,
        constraint: &ast::TableConstraint,
    ) -> Result<(), SqlError> {
        let mut draft = self.draft(table);
        match constraint {
            ast::TableConstraint::PrimaryKey(_) => {
                self.add_constraint_to(&mut draft, schema, constraint)?;
                self.rebuild(table, draft)
            }
            ast::TableConstraint::Unique(_) => {
                self.add_constraint_to(&mut draft, schema, constraint)?;
                match draft.indexes.pop() {
                    Some(index) => self.add_index(table, index),
                    None => Ok(()),
                }
            }
            ast::TableConstraint::Check(_) => {
                self.add_constraint_to(&mut draft, schema, constraint)?;
                self.check_expressions(&draft)?;
                self.add_check_to(table, &TableMeta { checks: draft.checks, ..table.meta.clone() })
            }
            ast::TableConstraint::ForeignKey(_) => {
                self.add_constraint_to(&mut draft, schema, constraint)?;
                self.require_references(&table.name, &draft.foreign_keys)?;
                self.add_foreign_key(table, draft)
            }
            other => {
                let words: String =
                    other.to_string().split_whitespace().take(3).collect::<Vec<_>>().join(" ");
                Err(SqlError::unsupported(format!("ALTER TABLE ADD {words}"))
                    .hint("Name the constraint when the table is created."))
            }
        }
    }

    fn add_column(
        &self,
        schema: &Schema,
        table: &Arc<TableEntry>,
        column: &ast::ColumnDef,
        if_not_exists: bool,
    ) -> Result<(), SqlError> {
        let name = crate::bind::ident(&column.name);
        if table.column(&name).is_some() {
            if if_not_exists {
                return Ok(());
            }
            return Err(SqlError::new(
                SqlState::DUPLICATE_COLUMN,
                format!("column \"{name}\" of relation \"{}\" already exists", table.name),
            ));
        }
        let shows_all = |view: &Arc<crate::schema::ViewMeta>| {
            view.text.contains('*') && view.reads.iter().any(|read| *read == table.name)
        };
        if schema.views.values().any(shows_all) {
            return Err(SqlError::unsupported(
                "ALTER TABLE ADD COLUMN of a table of which a view shows all columns",
            ));
        }
        let mut draft = self.draft(table);
        let before = draft.indexes.len();
        self.add_column_to(&mut draft, schema, column)?;
        if draft.indexes.len() > before
            || !draft.sequences.is_empty()
            || draft.checks.len() > table.meta.checks.len()
        {
            return Err(SqlError::unsupported("ALTER TABLE ADD COLUMN with a key, a sequence or a check"));
        }
        self.check_expressions(&draft)?;
        let Some(added) = draft.columns.last() else { return Ok(()) };
        let ty = SqlType::from_oid(added.ty).unwrap_or(SqlType::Text);
        let modifier = crate::types::Modifier::from_code(ty, added.modifier.into());
        let default = self.constant_default(added.default.as_deref(), ty, modifier)?;
        if added.not_null && default.is_none() {
            return Err(SqlError::new(
                SqlState::NOT_NULL_VIOLATION,
                format!("column \"{name}\" of relation \"{}\" contains null values", table.name),
            )
            .hint("Give the column a default."));
        }
        let stored = crate::schema::stored_type(ty, modifier)?;
        let definition = ColumnDef { name, ty: stored, nullable: !added.not_null, default };
        self.db.database().add_column(&table.meta.engine, definition).map_err(|error| refused(&error))?;
        let mut meta = table.meta.clone();
        meta.columns = draft.columns;
        self.keep_table(&table.name, &meta)?;
        self.db.reload()
    }

    /// The value that existing rows get of a default.
    fn constant_default(
        &self,
        default: Option<&str>,
        ty: SqlType,
        modifier: crate::types::Modifier,
    ) -> Result<Option<Stored>, SqlError> {
        let Some(default) = default else { return Ok(None) };
        let schema = self.db.schema();
        let mut binder = crate::bind::Binder::new(&schema, self.text, &[]);
        let bound = binder.expression_of(default, &[])?;
        let crate::expr::Expr::Const(value) = bound.expr else {
            return Err(SqlError::unsupported("ALTER TABLE ADD COLUMN with a default that is no constant"));
        };
        let from = if bound.ty == SqlType::Unknown { SqlType::Text } else { bound.ty };
        let value = crate::cast::cast(value, from, ty, modifier, false, &schema)?;
        let column = crate::schema::ColumnEntry {
            name: String::new(),
            ty,
            modifier,
            not_null: false,
            default: None,
            identity: None,
            stored: crate::schema::stored_type(ty, modifier)?,
        };
        Ok(Some(crate::schema::to_stored(&value, &column)))
    }
}
