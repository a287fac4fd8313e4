//! Statements that change the schema: each runs on a thread of its own, as the engine's statements block.
//!
//! Owns: the engine's definitions that a statement becomes, and the order in which these and what is kept beside them are changed.
//! Never: runs inside of a transaction: a statement takes effect when it ends, for all connections.

mod alter;
mod change;
mod columns;
mod create;
mod draft;
pub(crate) mod foreign;
mod privileges;
mod rebuild;
mod roles;
mod views;

use sqlparser::ast;

use crate::bind::{first_words, object_name};
use crate::database::SqlDatabase;
use crate::error::{Severity, SqlError, SqlState};
use crate::roles::SUPERUSER;
use crate::schema::TableMeta;
use std::sync::Arc;

/// The result of a statement: its command tag, and notices.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) tag: &'static str,
    pub(crate) notices: Vec<SqlError>,
    /// The statement that undoes it, if its transaction is rolled back.
    pub(crate) undo: Option<Undo>,
}

/// The way to undo a statement that made something.
#[derive(Debug)]
pub(crate) enum Undo {
    /// The table is dropped.
    Table(String),
    /// The index is dropped.
    Index(String),
    /// The sequence is dropped.
    Sequence(String),
    /// The view is dropped.
    View(String),
    /// The role is dropped.
    Role(String),
}

impl Done {
    fn tag(tag: &'static str) -> Done {
        Done { tag, notices: Vec::new(), undo: None }
    }

    fn skipped(tag: &'static str, why: String, code: SqlState) -> Done {
        let notice = SqlError::new(code, why).severity(Severity::Notice);
        Done { tag, notices: vec![notice], undo: None }
    }
}

/// A change of the schema that is under way.
pub(crate) struct Change<'a> {
    pub(crate) db: &'a SqlDatabase,
    /// The text of the statement, for positions.
    pub(crate) text: &'a str,
    /// The role that runs it.
    pub(crate) role: u32,
    /// The role that has logged in.
    pub(crate) session_role: u32,
}

impl<'a> Change<'a> {
    /// The change that undoes others, which needs no privileges.
    pub(crate) fn undoing(db: &'a SqlDatabase) -> Change<'a> {
        Change { db, text: "", role: SUPERUSER, session_role: SUPERUSER }
    }
}

impl Change<'_> {
    /// Runs a statement. Blocks.
    pub(crate) fn run(&self, statement: &ast::Statement) -> Result<Done, SqlError> {
        let _change = self.db.change();
        match statement {
            ast::Statement::CreateRole(create) => self.create_role(create),
            ast::Statement::AlterRole { name, operation } => self.alter_role(name, operation),
            ast::Statement::Grant(grant) => self.grant(grant),
            ast::Statement::Revoke(revoke) => self.revoke(revoke),
            ast::Statement::GrantRole(grant) => self.grant_roles(grant),
            ast::Statement::RevokeRole(revoke) => self.revoke_roles(revoke),
            ast::Statement::Drop {
                object_type: ast::ObjectType::Role | ast::ObjectType::User | ast::ObjectType::Group,
                names,
                if_exists,
                ..
            } => self.drop_roles(names, *if_exists),
            ast::Statement::CreateTable(create) => self.create_table(create),
            ast::Statement::CreateIndex(create) => self.create_index(create),
            ast::Statement::CreateSequence {
                temporary: false,
                if_not_exists,
                name,
                sequence_options,
                ..
            } => self.create_sequence(*if_not_exists, name, sequence_options),
            ast::Statement::CreateView(create) => self.create_view(create),
            ast::Statement::AlterTable(alter) => self.alter_table(alter),
            ast::Statement::Comment { object_type, object_name, comment, if_exists: false } => {
                self.comment(*object_type, object_name, comment.as_ref())
            }
            ast::Statement::Drop { object_type, if_exists, names, cascade, table: None, .. } => {
                self.drop_objects(*object_type, *if_exists, names, *cascade)
            }
            other => Err(SqlError::unsupported(first_words(&other.to_string()))),
        }
    }

    /// Undoes statements of a transaction that is rolled back, the last one first. What cannot be undone stays.
    pub(crate) fn undo(&self, undos: Vec<Undo>) -> Result<(), SqlError> {
        let _change = self.db.change();
        for undo in undos.into_iter().rev() {
            match undo {
                Undo::Table(name) => self.drop_table(&name, true)?,
                Undo::Index(name) => self.drop_index(&name)?,
                Undo::Sequence(name) => self.drop_sequence(&name)?,
                Undo::View(name) => self.drop_view(&name)?,
                Undo::Role(name) => {
                    let schema = self.db.schema();
                    if let Some(role) = schema.roles.named(&name) {
                        self.drop_role(&schema.roles, role)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn keep_table(&self, name: &str, meta: &TableMeta) -> Result<(), SqlError> {
        let body = self.body(meta)?;
        self.db.kept().write(self.db.database(), format!("table:{name}"), Some(body))
    }

    fn body(&self, meta: &TableMeta) -> Result<String, SqlError> {
        serde_json::to_string(meta).map_err(|error| {
            SqlError::new(SqlState::INTERNAL_ERROR, format!("a definition cannot be written: {error}"))
        })
    }

    fn drop_objects(
        &self,
        kind: ast::ObjectType,
        if_exists: bool,
        names: &[ast::ObjectName],
        cascade: bool,
    ) -> Result<Done, SqlError> {
        let (tag, noun) = match kind {
            ast::ObjectType::Table => ("DROP TABLE", "table"),
            ast::ObjectType::Index => ("DROP INDEX", "index"),
            ast::ObjectType::Sequence => ("DROP SEQUENCE", "sequence"),
            ast::ObjectType::View => ("DROP VIEW", "view"),
            other => return Err(SqlError::unsupported(format!("DROP {other}"))),
        };
        let mut done = Done::tag(tag);
        for name in names {
            let (_, name) = object_name(name)?;
            let schema = self.db.schema();
            let is_there = match kind {
                ast::ObjectType::Table => schema.tables.contains_key(&name),
                ast::ObjectType::Index => schema.index(&name).is_some(),
                ast::ObjectType::Sequence => schema.sequences.contains_key(&name),
                ast::ObjectType::View => schema.views.contains_key(&name),
                _ => false,
            };
            if !is_there && schema.is_taken(&name) {
                return Err(SqlError::new(
                    SqlState::WRONG_OBJECT_TYPE,
                    format!("\"{name}\" is not a {noun}"),
                ));
            }
            if !is_there && !if_exists {
                return Err(SqlError::new(
                    SqlState::UNDEFINED_TABLE,
                    format!("{noun} \"{name}\" does not exist"),
                ));
            }
            if !is_there {
                let why = format!("{noun} \"{name}\" does not exist, skipping");
                done.notices
                    .push(SqlError::new(SqlState::SUCCESSFUL_COMPLETION, why).severity(Severity::Notice));
                continue;
            }
            self.require_owner(&name)?;
            match kind {
                ast::ObjectType::Table => self.drop_table(&name, cascade)?,
                ast::ObjectType::Index => self.drop_index(&name)?,
                ast::ObjectType::View => self.drop_view(&name)?,
                _ => self.drop_sequence(&name)?,
            }
        }
        Ok(done)
    }

    fn drop_table(&self, name: &str, cascade: bool) -> Result<(), SqlError> {
        let schema = self.db.schema();
        let table = schema.table(name)?;
        let refers = |other: &&Arc<crate::schema::TableEntry>| {
            other.name != name && other.meta.foreign_keys.iter().any(|foreign| foreign.parent == name)
        };
        if let Some(child) = schema.tables.values().find(refers).filter(|_| !cascade) {
            return Err(SqlError::new(
                SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
                format!("cannot drop table {name} because other objects depend on it"),
            )
            .detail(format!("table {} has a foreign key that refers to table {name}", child.name))
            .hint("Use DROP ... CASCADE to drop the dependent objects too."));
        }
        self.refuse_used(name, "table")?;
        for child in schema.tables.values().filter(refers) {
            self.db.refuse_loading(&child.name)?;
            for foreign in child.meta.foreign_keys.iter().filter(|foreign| foreign.parent == name) {
                let child = Arc::clone(self.db.schema().table(&child.name)?);
                self.drop_foreign_key(&child, &foreign.name)?;
            }
        }
        let kept = self.db.kept();
        self.db.database().drop_table(&table.meta.engine).map_err(|error| refused(&error))?;
        kept.write(self.db.database(), format!("table:{name}"), None)?;
        self.disown(name)?;
        for column in &table.meta.columns {
            if let Some(sequence) = &column.sequence {
                kept.write(self.db.database(), format!("sequence:{sequence}"), None)?;
                self.disown(sequence)?;
            }
        }
        self.db.reload()
    }

    fn drop_index(&self, name: &str) -> Result<(), SqlError> {
        let schema = self.db.schema();
        let Some((table, index)) = schema.index(name) else {
            return Err(SqlError::new(SqlState::UNDEFINED_TABLE, format!("index \"{name}\" does not exist")));
        };
        let Some(engine) = index.meta.engine.as_ref().filter(|_| !index.meta.constraint) else {
            return Err(SqlError::new(
                SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
                format!(
                    "cannot drop index {name} because constraint {name} on table {} requires it",
                    table.name
                ),
            ));
        };
        self.db.database().drop_index(engine).map_err(|error| refused(&error))?;
        let mut meta = table.meta.clone();
        meta.indexes.retain(|other| other.name != name);
        self.keep_table(&table.name, &meta)?;
        self.db.reload()
    }

    fn drop_sequence(&self, name: &str) -> Result<(), SqlError> {
        let schema = self.db.schema();
        let uses = |table: &&Arc<crate::schema::TableEntry>| {
            table.meta.columns.iter().any(|column| column.sequence.as_deref() == Some(name))
        };
        if let Some(table) = schema.tables.values().find(uses) {
            return Err(SqlError::new(
                SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
                format!("cannot drop sequence {name} because table {} requires it", table.name),
            ));
        }
        self.db.kept().write(self.db.database(), format!("sequence:{name}"), None)?;
        self.disown(name)?;
        self.db.reload()
    }
}

/// The error for a refusal of the engine.
#[cold]
pub(crate) fn refused(error: &atrapos::DefineError) -> SqlError {
    use atrapos::DefineError::{Contradiction, InUse, NameTaken, OutOfMemory, TimedOut, Unknown, Violated};
    let state = match error {
        Contradiction(_) => SqlState::INVALID_TABLE_DEFINITION,
        NameTaken(_) => SqlState::DUPLICATE_TABLE,
        Unknown(_) => SqlState::UNDEFINED_TABLE,
        InUse(_) => SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
        Violated(_) => SqlState::UNIQUE_VIOLATION,
        TimedOut(_) => SqlState::LOCK_NOT_AVAILABLE,
        OutOfMemory(_) => SqlState::OUT_OF_MEMORY,
        _ => SqlState::INTERNAL_ERROR,
    };
    SqlError::new(state, error.to_string())
}
