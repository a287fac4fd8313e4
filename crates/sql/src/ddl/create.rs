//! CREATE TABLE, CREATE INDEX and CREATE SEQUENCE.

use atrapos::NewTable;
use atrapos::catalog::{ColumnDef, IndexDef, IndexPart, KeyColumn, PrimaryKey, TableDef};
use sqlparser::ast;

use super::draft::{Draft, plain_column, sequence_meta};
use super::{Change, Done, Undo, refused};
use crate::bind::{Binder, data_type, ident, object_name};
use crate::error::{SqlError, SqlState};
use crate::schema::{ColumnMeta, IndexMeta, Schema, TableMeta, stored_type};
use crate::types::{Modifier, SqlType};

impl Change<'_> {
    pub(super) fn create_table(&self, create: &ast::CreateTable) -> Result<Done, SqlError> {
        refuse_clauses(create)?;
        let (schema_name, name) = object_name(&create.name)?;
        if schema_name.is_some_and(|schema| schema != "public") {
            return Err(SqlError::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                "tables are made in the schema public",
            ));
        }
        let schema = self.db.schema();
        if schema.is_taken(&name) || name == crate::kept::NAME {
            let why = format!("relation \"{name}\" already exists");
            if create.if_not_exists && schema.tables.contains_key(&name) {
                return Ok(Done::skipped(
                    "CREATE TABLE",
                    format!("{why}, skipping"),
                    SqlState::DUPLICATE_TABLE,
                ));
            }
            return Err(SqlError::new(SqlState::DUPLICATE_TABLE, why));
        }
        self.require_create()?;
        let mut draft = Draft {
            name: name.clone(),
            columns: Vec::new(),
            indexes: Vec::new(),
            checks: Vec::new(),
            foreign_keys: Vec::new(),
            names: vec![name.clone()],
            sequences: Vec::new(),
        };
        for column in &create.columns {
            self.add_column_to(&mut draft, &schema, column)?;
        }
        // Keys first: a foreign key may be to that of the table itself.
        let is_foreign =
            |constraint: &&ast::TableConstraint| matches!(constraint, ast::TableConstraint::ForeignKey(_));
        for constraint in create.constraints.iter().filter(|constraint| !is_foreign(constraint)) {
            self.add_constraint_to(&mut draft, &schema, constraint)?;
        }
        for column in &create.columns {
            for option in &column.options {
                if let ast::ColumnOption::ForeignKey(foreign) = &option.option {
                    let place = draft.place(&ident(&column.name))?;
                    let mut foreign = foreign.clone();
                    foreign.name = foreign.name.or_else(|| option.name.clone());
                    draft.add_foreign(&schema, &foreign, vec![place])?;
                }
            }
        }
        for constraint in create.constraints.iter().filter(is_foreign) {
            self.add_constraint_to(&mut draft, &schema, constraint)?;
        }
        self.require_references(&name, &draft.foreign_keys)?;
        self.check_expressions(&draft)?;
        self.make(draft)?;
        Ok(Done { tag: "CREATE TABLE", notices: Vec::new(), undo: Some(Undo::Table(name)) })
    }

    /// Adds a column with its options, but for foreign keys.
    pub(super) fn add_column_to(
        &self,
        draft: &mut Draft,
        schema: &Schema,
        column: &ast::ColumnDef,
    ) -> Result<(), SqlError> {
        let (ty, modifier) = data_type(&column.data_type)?;
        stored_type(ty, modifier)?;
        let name = ident(&column.name);
        if draft.columns.iter().any(|other| other.name == name) {
            return Err(SqlError::new(
                SqlState::DUPLICATE_COLUMN,
                format!("column \"{name}\" specified more than once"),
            ));
        }
        let place = draft.columns.len();
        draft.columns.push(ColumnMeta {
            name: name.clone(),
            ty: ty.oid(),
            modifier: modifier.code(),
            not_null: false,
            default: None,
            identity: None,
            sequence: None,
            engine: None,
            comment: None,
        });
        if column.data_type.to_string().to_lowercase().contains("serial") {
            draft.add_sequence(schema, place, &[])?;
        }
        for option in &column.options {
            let constraint_name = option.name.as_ref();
            match &option.option {
                ast::ColumnOption::Null
                | ast::ColumnOption::Collation(_)
                | ast::ColumnOption::ForeignKey(_) => {}
                ast::ColumnOption::NotNull => draft.columns[place].not_null = true,
                ast::ColumnOption::Default(expr) => draft.columns[place].default = Some(expr.to_string()),
                ast::ColumnOption::PrimaryKey(key) => {
                    draft.add_key(schema, key.name.as_ref().or(constraint_name), vec![place], true)?;
                }
                ast::ColumnOption::Unique(key) => {
                    draft.add_key(schema, key.name.as_ref().or(constraint_name), vec![place], false)?;
                }
                ast::ColumnOption::Check(check) => {
                    let base = format!("{}_{name}_check", draft.name);
                    draft.add_check(schema, check.name.as_ref().or(constraint_name), &check.expr, &base)?;
                }
                ast::ColumnOption::Generated {
                    generated_as,
                    sequence_options,
                    generation_expr: None,
                    ..
                } => {
                    let identity = match generated_as {
                        ast::GeneratedAs::Always => 'a',
                        ast::GeneratedAs::ByDefault => 'd',
                        ast::GeneratedAs::ExpStored => {
                            return Err(SqlError::unsupported("a generated column"));
                        }
                    };
                    draft.add_sequence(schema, place, sequence_options.as_deref().unwrap_or(&[]))?;
                    draft.columns[place].identity = Some(identity);
                }
                other => return Err(SqlError::unsupported(format!("the column option {other}"))),
            }
        }
        Ok(())
    }

    pub(super) fn add_constraint_to(
        &self,
        draft: &mut Draft,
        schema: &Schema,
        constraint: &ast::TableConstraint,
    ) -> Result<(), SqlError> {
        match constraint {
            ast::TableConstraint::PrimaryKey(key)
                if key.include.is_empty() && key.characteristics.is_none() =>
            {
                let columns = draft.key_columns(&key.columns)?;
                draft.add_key(schema, key.name.as_ref(), columns, true)
            }
            ast::TableConstraint::Unique(key) if key.include.is_empty() && key.characteristics.is_none() => {
                let columns = draft.key_columns(&key.columns)?;
                draft.add_key(schema, key.name.as_ref(), columns, false)
            }
            ast::TableConstraint::Check(check) => {
                let base = format!("{}_check", draft.name);
                draft.add_check(schema, check.name.as_ref(), &check.expr, &base)
            }
            ast::TableConstraint::ForeignKey(foreign) => {
                let columns: Result<Vec<usize>, SqlError> =
                    foreign.columns.iter().map(|column| draft.place(&ident(column))).collect();
                draft.add_foreign(schema, foreign, columns?)
            }
            other => Err(SqlError::unsupported(format!("the constraint {other}"))),
        }
    }

    /// Binds defaults and checks, so that they are known to work when rows come.
    pub(super) fn check_expressions(&self, draft: &Draft) -> Result<(), SqlError> {
        let mut schema = Schema { version: 0, ..Schema::default() };
        let current = self.db.schema();
        schema.sequences = current.sequences.clone();
        for (name, meta) in &draft.sequences {
            let sequence = crate::sequence::Sequence::new(name.clone(), meta.clone());
            schema.sequences.insert(name.clone(), std::sync::Arc::new(sequence));
        }
        let schema = std::sync::Arc::new(schema);
        let typed = |column: &ColumnMeta| {
            let ty = SqlType::from_oid(column.ty).unwrap_or(SqlType::Text);
            (column.name.clone(), ty, Modifier::from_code(ty, column.modifier.into()))
        };
        let columns: Vec<_> = draft.columns.iter().map(typed).collect();
        for column in &draft.columns {
            let Some(default) = &column.default else { continue };
            let ty = SqlType::from_oid(column.ty).unwrap_or(SqlType::Text);
            let mut binder = Binder::new(&schema, self.text, &[]);
            let bound = binder.expression_of(default, &[])?;
            let is_assignable = bound.ty == SqlType::Unknown
                || crate::cast::castability(bound.ty, ty)
                    .is_some_and(|needed| needed <= crate::cast::Castability::Assignment);
            if !is_assignable {
                return Err(SqlError::new(
                    SqlState::DATATYPE_MISMATCH,
                    format!(
                        "column \"{}\" is of type {ty} but default expression is of type {}",
                        column.name, bound.ty
                    ),
                ));
            }
        }
        for check in &draft.checks {
            let mut binder = Binder::new(&schema, self.text, &[]);
            let bound = binder.expression_of(&check.expression, &columns)?;
            if bound.ty != SqlType::Bool || !bound.expr.subqueries().is_empty() {
                return Err(SqlError::new(
                    SqlState::DATATYPE_MISMATCH,
                    "argument of CHECK must be type boolean",
                ));
            }
        }
        Ok(())
    }

    /// Makes a table with all that goes with it.
    fn make(&self, draft: Draft) -> Result<(), SqlError> {
        let (new, meta) = self.definition(&draft, draft.name.clone())?;
        let database = self.db.database();
        for (name, sequence) in &draft.sequences {
            let body = serde_json::to_string(sequence)
                .map_err(|error| SqlError::new(SqlState::INTERNAL_ERROR, error.to_string()))?;
            self.own(name)?;
            self.db.kept().write(database, format!("sequence:{name}"), Some(body))?;
        }
        self.own(&draft.name)?;
        self.keep_table(&draft.name, &meta)?;
        if let Err(error) = database.create_table(new) {
            self.db.kept().write(database, format!("table:{}", draft.name), None)?;
            for (name, _) in &draft.sequences {
                self.db.kept().write(database, format!("sequence:{name}"), None)?;
            }
            return Err(refused(&error));
        }
        self.db.reload()
    }

    /// The engine's definition of a table, and what is kept beside it.
    pub(super) fn definition(
        &self,
        draft: &Draft,
        engine: String,
    ) -> Result<(NewTable, TableMeta), SqlError> {
        let mut columns = Vec::new();
        for column in &draft.columns {
            let ty = SqlType::from_oid(column.ty).unwrap_or(SqlType::Text);
            let stored = stored_type(ty, Modifier::from_code(ty, column.modifier.into()))?;
            columns.push(ColumnDef {
                name: column.name.clone(),
                ty: stored,
                nullable: !column.not_null,
                default: None,
            });
        }
        let key_column = |(place, descending): &(usize, bool)| KeyColumn {
            column: *place as u16,
            descending: *descending,
        };
        let primary = draft.indexes.iter().find(|index| index.primary && index.engine.is_none());
        let key = primary.map_or(PrimaryKey::Hidden, |index| {
            PrimaryKey::Columns(index.columns.iter().map(key_column).collect())
        });
        let mut indexes: Vec<IndexDef> = Vec::new();
        for index in &draft.indexes {
            if let Some(name) = &index.engine {
                indexes.push(index_def(name.clone(), index));
            }
        }
        let foreign_keys = self.references(draft, &engine, &mut indexes)?;
        let table = TableDef {
            name: engine.clone(),
            columns,
            key,
            family: engine.clone(),
            read_only: false,
            splits: Vec::new(),
        };
        let meta = TableMeta {
            engine,
            columns: draft.columns.clone(),
            indexes: draft.indexes.clone(),
            checks: draft.checks.clone(),
            foreign_keys: draft.foreign_keys.clone(),
            comment: None,
            number: None,
        };
        Ok((NewTable { table, indexes, foreign_keys }, meta))
    }

    pub(super) fn create_index(&self, create: &ast::CreateIndex) -> Result<Done, SqlError> {
        let refused_clauses = [
            (create.predicate.is_some(), "WHERE of an index"),
            (!create.include.is_empty(), "INCLUDE of an index"),
            (create.nulls_distinct == Some(false), "NULLS NOT DISTINCT"),
            (
                !create.with.is_empty()
                    || !create.index_options.is_empty()
                    || !create.alter_options.is_empty(),
                "an option of an index",
            ),
            (
                create.using.as_ref().is_some_and(|using| *using != ast::IndexType::BTree),
                "an index that is no btree",
            ),
        ];
        if let Some((_, what)) = refused_clauses.iter().find(|(is_there, _)| *is_there) {
            return Err(SqlError::unsupported(what));
        }
        let (_, table_name) = object_name(&create.table_name)?;
        let schema = self.db.schema();
        let table = schema.table(&table_name)?;
        self.require_owner(&table_name)?;
        let mut columns = Vec::new();
        for column in &create.columns {
            let name = plain_column(column)?;
            let place = table.column(&name).ok_or_else(|| table.no_column(&name))?;
            crate::schema::refuse_key(table.columns[place].ty, table.columns[place].modifier)?;
            columns.push((place, matches!(column.column.options.sort, Some(ast::OrderBySort::Desc))));
        }
        let names: Vec<&str> = columns.iter().map(|(place, _)| &*table.columns[*place].name).collect();
        let base = format!("{table_name}_{}_idx", names.join("_"));
        let name = match &create.name {
            Some(name) => object_name(name)?.1,
            None => schema.free_name(&base, &[]),
        };
        if schema.is_taken(&name) {
            let why = format!("relation \"{name}\" already exists");
            if create.if_not_exists {
                return Ok(Done::skipped(
                    "CREATE INDEX",
                    format!("{why}, skipping"),
                    SqlState::DUPLICATE_TABLE,
                ));
            }
            return Err(SqlError::new(SqlState::DUPLICATE_TABLE, why));
        }
        self.add_index(
            table,
            IndexMeta {
                name: name.clone(),
                engine: Some(name.clone()),
                columns,
                unique: create.unique,
                primary: false,
                constraint: false,
                number: None,
            },
        )?;
        Ok(Done { tag: "CREATE INDEX", notices: Vec::new(), undo: Some(Undo::Index(name)) })
    }

    /// Builds an index of a table and keeps what belongs to it.
    pub(super) fn add_index(
        &self,
        table: &crate::schema::TableEntry,
        index: IndexMeta,
    ) -> Result<(), SqlError> {
        let engine = index.engine.clone().unwrap_or_else(|| index.name.clone());
        let made = self.db.database().create_index(&table.meta.engine, index_def(engine, &index));
        made.map_err(|error| match error {
            atrapos::DefineError::Violated(why) => SqlError::new(
                SqlState::UNIQUE_VIOLATION,
                format!("could not create unique index \"{}\"", index.name),
            )
            .detail(why)
            .table(&table.name)
            .constraint(&index.name),
            error => refused(&error),
        })?;
        let mut meta = table.meta.clone();
        meta.indexes.push(index);
        self.keep_table(&table.name, &meta)?;
        self.db.reload()
    }

    pub(super) fn create_sequence(
        &self,
        if_not_exists: bool,
        name: &ast::ObjectName,
        options: &[ast::SequenceOptions],
    ) -> Result<Done, SqlError> {
        let (_, name) = object_name(name)?;
        let schema = self.db.schema();
        if schema.is_taken(&name) {
            let why = format!("relation \"{name}\" already exists");
            if if_not_exists {
                return Ok(Done::skipped(
                    "CREATE SEQUENCE",
                    format!("{why}, skipping"),
                    SqlState::DUPLICATE_TABLE,
                ));
            }
            return Err(SqlError::new(SqlState::DUPLICATE_TABLE, why));
        }
        self.require_create()?;
        let meta = sequence_meta(&schema, SqlType::Int8, options)?;
        self.own(&name)?;
        let body = serde_json::to_string(&meta)
            .map_err(|error| SqlError::new(SqlState::INTERNAL_ERROR, error.to_string()))?;
        self.db.kept().write(self.db.database(), format!("sequence:{name}"), Some(body))?;
        self.db.reload()?;
        Ok(Done { tag: "CREATE SEQUENCE", notices: Vec::new(), undo: Some(Undo::Sequence(name)) })
    }
}

pub(super) fn index_def(name: String, index: &IndexMeta) -> IndexDef {
    let part = |(place, descending): &(usize, bool)| {
        IndexPart::Column(KeyColumn { column: *place as u16, descending: *descending })
    };
    let parts = index.columns.iter().map(part).collect();
    IndexDef { family: name.clone(), name, of: 0, parts, unique: index.unique, splits: Vec::new() }
}

fn refuse_clauses(create: &ast::CreateTable) -> Result<(), SqlError> {
    let refused = [
        (create.temporary, "a temporary table"),
        (create.or_replace, "CREATE OR REPLACE TABLE"),
        (create.external || create.query.is_some(), "CREATE TABLE AS"),
        (create.like.is_some() || create.clone.is_some(), "CREATE TABLE LIKE"),
        (create.inherits.is_some(), "INHERITS"),
        (create.partition_by.is_some() || create.partition_of.is_some(), "a partitioned table"),
        (create.on_commit.is_some(), "ON COMMIT"),
    ];
    if let Some((_, what)) = refused.iter().find(|(is_there, _)| *is_there) {
        return Err(SqlError::unsupported(what));
    }
    match &create.table_options {
        ast::CreateTableOptions::None => Ok(()),
        // How full pages are left means nothing here, and does not change what statements do.
        ast::CreateTableOptions::With(options) => {
            let other =
                options.iter().find(|option| !option.to_string().to_lowercase().starts_with("fillfactor"));
            other.map_or(Ok(()), |option| {
                Err(SqlError::unsupported(format!("the storage parameter {option}")))
            })
        }
        _ => Err(SqlError::unsupported("an option of CREATE TABLE")),
    }
}
