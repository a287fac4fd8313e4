//! ALTER TABLE of what is kept beside the engine's definition: checks, defaults, NOT NULL, names and comments.
//!
//! Owns: that existing rows meet a new condition before it holds. Never: changes a row.
//!
//! A condition is checked while no transaction uses the table ([`close`](crate::database::SqlDatabase::close)): none that was planned
//! without it can add a row that breaks it.

use std::sync::Arc;

use atrapos::catalog::Value as Stored;
use atrapos::{Abort, DynRow};
use sqlparser::ast;

use super::{Change, Done, refused};
use crate::bind::{Binder, ident, object_name};
use crate::error::{SqlError, SqlState};
use crate::expr::{Env, Row};
use crate::functions::out_of_place;
use crate::schema::{TableEntry, TableMeta, from_stored};
use crate::session::{Session, now};
use crate::settings::Settings;

impl Change<'_> {
    /// All rows of a table, as the engine keeps them.
    pub(super) fn stored_rows(&self, table: &TableEntry) -> Result<Vec<Vec<Stored>>, SqlError> {
        let handle = table.handle.clone();
        let route = handle.at(&[]).map_err(|abort| SqlError::of_abort(&abort))?;
        let rows = self.db.database().run(route, async move |tx| {
            let all = handle.prefix(&[])?;
            let rows: Vec<DynRow> = tx.scan(&handle, all, usize::MAX).await?;
            rows.iter().map(|row| row.values(&handle)).collect::<Result<Vec<_>, Abort>>()
        });
        rows.map_err(|abort| SqlError::of_abort(&abort))
    }

    /// Keeps another definition of a table, if its rows pass a check while nobody uses it.
    fn keep_checked(
        &self,
        table: &TableEntry,
        meta: &TableMeta,
        passes: impl Fn(&Row) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        self.db.close(table)?;
        let done = (|| {
            for stored in self.stored_rows(table)? {
                let values = stored.into_iter().zip(&table.columns);
                let row: Row = values.map(|(value, column)| from_stored(value, column.ty)).collect();
                passes(&row)?;
            }
            self.keep_table(&table.name, meta)?;
            self.db.reload()
        })();
        if done.is_err() {
            self.db.reopen(table);
        }
        done
    }

    fn env(&self) -> Env {
        let session = Session {
            user: Arc::from(""),
            role: self.role,
            session_user: Arc::from(""),
            database: Arc::from(&*self.db.options().name),
            process_id: 0,
            began: now(),
            settings: Arc::new(Settings::new("")),
            taken: Arc::default(),
            connections: Arc::clone(self.db.connections()),
            engine: Arc::downgrade(self.db.database()),
            counts: Arc::clone(self.db.counts()),
        };
        Env::new(Arc::from([]), Arc::new(session), self.db.schema())
    }

    pub(super) fn add_check_to(&self, table: &TableEntry, meta: &TableMeta) -> Result<(), SqlError> {
        let Some(check) = meta.checks.last() else { return Ok(()) };
        let schema = self.db.schema();
        let columns: Vec<_> =
            table.columns.iter().map(|column| (column.name.clone(), column.ty, column.modifier)).collect();
        let bound = Binder::new(&schema, self.text, &[]).expression_of(&check.expression, &columns)?.expr;
        let env = self.env();
        self.keep_checked(table, meta, |row| match bound.eval(&env, row).map_err(out_of_place)? {
            crate::value::Value::Bool(false) => Err(SqlError::new(
                SqlState::CHECK_VIOLATION,
                format!(
                    "check constraint \"{}\" of relation \"{}\" is violated by some row",
                    check.name, table.name
                ),
            )
            .table(&table.name)
            .constraint(&check.name)),
            _ => Ok(()),
        })
    }

    pub(super) fn drop_constraint(
        &self,
        table: &TableEntry,
        name: &str,
        if_exists: bool,
    ) -> Result<(), SqlError> {
        let mut meta = table.meta.clone();
        if meta.checks.iter().any(|check| check.name == name) {
            meta.checks.retain(|check| check.name != name);
        } else if let Some(index) =
            meta.indexes.iter().find(|index| index.constraint && index.name == name && !index.primary)
        {
            if let Some(engine) = &index.engine {
                self.db.database().drop_index(engine).map_err(|error| refused(&error))?;
            }
            meta.indexes.retain(|index| index.name != name);
        } else if meta.indexes.iter().any(|index| index.name == name) {
            return Err(SqlError::unsupported("ALTER TABLE DROP CONSTRAINT of a primary key"));
        } else if meta.foreign_keys.iter().any(|foreign| foreign.name == name) {
            return self.drop_foreign_key(table, name);
        } else if if_exists {
            return Ok(());
        } else {
            return Err(SqlError::new(
                SqlState::UNDEFINED_OBJECT,
                format!("constraint \"{name}\" of relation \"{}\" does not exist", table.name),
            ));
        }
        self.keep_table(&table.name, &meta)?;
        self.db.reload()
    }

    pub(super) fn alter_column(
        &self,
        table: &Arc<TableEntry>,
        column: &ast::Ident,
        op: &ast::AlterColumnOperation,
    ) -> Result<(), SqlError> {
        let name = ident(column);
        let at = table.column(&name).ok_or_else(|| table.no_column(&name))?;
        let mut draft = self.draft(table);
        match op {
            ast::AlterColumnOperation::SetDefault { value } => {
                draft.columns[at].default = Some(value.to_string());
                self.check_expressions(&draft)?;
            }
            ast::AlterColumnOperation::DropDefault => draft.columns[at].default = None,
            ast::AlterColumnOperation::SetNotNull => {
                let meta = TableMeta { columns: draft.columns, ..table.meta.clone() };
                return self.set_not_null(table, at, meta);
            }
            ast::AlterColumnOperation::DropNotNull => {
                if table.is_in_key(at) {
                    return Err(SqlError::new(
                        SqlState::INVALID_TABLE_DEFINITION,
                        format!("column \"{name}\" is in a primary key"),
                    ));
                }
                if !table.handle.columns()[at].nullable {
                    return Err(SqlError::unsupported(
                        "ALTER COLUMN DROP NOT NULL of a column that was created NOT NULL",
                    ));
                }
                draft.columns[at].not_null = false;
            }
            other => return Err(SqlError::unsupported(format!("ALTER TABLE ALTER COLUMN {other}"))),
        }
        let meta = TableMeta { columns: draft.columns, ..table.meta.clone() };
        self.keep_table(&table.name, &meta)?;
        self.db.reload()
    }

    fn set_not_null(&self, table: &TableEntry, at: usize, mut meta: TableMeta) -> Result<(), SqlError> {
        meta.columns[at].not_null = true;
        let name = &table.columns[at].name;
        self.keep_checked(table, &meta, |row| {
            if !row[at].is_null() {
                return Ok(());
            }
            Err(SqlError::new(
                SqlState::NOT_NULL_VIOLATION,
                format!("column \"{name}\" of relation \"{}\" contains null values", table.name),
            )
            .table(&table.name)
            .column(name))
        })
    }

    pub(super) fn rename_column(
        &self,
        table: &TableEntry,
        old: &ast::Ident,
        new: &ast::Ident,
    ) -> Result<(), SqlError> {
        let (old, new) = (ident(old), ident(new));
        let at = table.column(&old).ok_or_else(|| table.no_column(&old))?;
        if table.column(&new).is_some() {
            return Err(SqlError::new(
                SqlState::DUPLICATE_COLUMN,
                format!("column \"{new}\" of relation \"{}\" already exists", table.name),
            ));
        }
        self.refuse_used(&table.name, "table")?;
        let mut meta = table.meta.clone();
        for check in &mut meta.checks {
            check.expression = renamed(&check.expression, &old, &new)?;
        }
        let column = &mut meta.columns[at];
        column.engine = Some(table.handle.columns()[at].name.clone());
        column.name.clone_from(&new);
        self.keep_table(&table.name, &meta)?;
        self.change_column_access(&table.name, &old, Some(new))?;
        self.db.reload()
    }

    pub(super) fn rename_table(&self, table: &TableEntry, new: &ast::ObjectName) -> Result<(), SqlError> {
        let (_, new) = object_name(new)?;
        let schema = self.db.schema();
        if schema.is_taken(&new) || new == crate::kept::NAME {
            return Err(SqlError::new(
                SqlState::DUPLICATE_TABLE,
                format!("relation \"{new}\" already exists"),
            ));
        }
        let refers = |other: &&Arc<TableEntry>| {
            other.meta.foreign_keys.iter().any(|foreign| foreign.parent == table.name)
        };
        if let Some(child) = schema.tables.values().find(refers) {
            return Err(SqlError::unsupported("ALTER TABLE RENAME of a table that others refer to")
                .detail(format!("table {} has a foreign key that refers to it", child.name)));
        }
        self.refuse_used(&table.name, "table")?;
        let body = self.body(&table.meta)?;
        self.rename_access(&new, &table.name)?;
        let (old, new) = (format!("table:{}", table.name), format!("table:{new}"));
        self.db.kept().write_all(self.db.database(), vec![(old, None), (new, Some(body))])?;
        self.disown(&table.name)?;
        self.db.reload()
    }

    pub(super) fn comment(
        &self,
        object: ast::CommentObject,
        name: &ast::ObjectName,
        comment: Option<&String>,
    ) -> Result<Done, SqlError> {
        let schema = self.db.schema();
        // An empty comment is none.
        let comment = comment.filter(|comment| !comment.is_empty()).cloned();
        let parts: Option<Vec<String>> = name.0.iter().map(|part| part.as_ident().map(ident)).collect();
        let parts = parts.ok_or_else(|| SqlError::unsupported(format!("the name {name}")))?;
        let (table, meta) = match (object, &parts[..]) {
            (ast::CommentObject::Table, _) => {
                let (_, table) = object_name(name)?;
                let table = schema.table(&table)?;
                (table, TableMeta { comment, ..table.meta.clone() })
            }
            (ast::CommentObject::Column, [table, column] | [_, table, column]) => {
                let table = schema.table(table)?;
                let at = table.column(column).ok_or_else(|| table.no_column(column))?;
                let mut meta = table.meta.clone();
                meta.columns[at].comment = comment;
                (table, meta)
            }
            (other, _) => return Err(SqlError::unsupported(format!("COMMENT ON {other}"))),
        };
        self.require_owner(&table.name)?;
        self.keep_table(&table.name, &meta)?;
        self.db.reload()?;
        Ok(Done::tag("COMMENT"))
    }
}

/// The text of an expression with another name for a column.
fn renamed(expression: &str, old: &str, new: &str) -> Result<String, SqlError> {
    use sqlparser::dialect::PostgreSqlDialect;
    use sqlparser::tokenizer::{Token, Tokenizer};
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, expression)
        .tokenize()
        .map_err(|error| crate::parse::syntax_error(&error.into(), expression))?;
    let text = |token: &Token| match token {
        Token::Word(word) => {
            let is_old =
                if word.quote_style.is_some() { word.value == old } else { word.value.to_lowercase() == old };
            if is_old { crate::functions::quote_ident(new) } else { token.to_string() }
        }
        token => token.to_string(),
    };
    Ok(tokens.iter().map(text).collect())
}
