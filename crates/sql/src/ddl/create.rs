//! CREATE TABLE, CREATE INDEX and CREATE SEQUENCE.

use atrapos::catalog::{ColumnDef, IndexDef, IndexPart, KeyColumn, OnDelete, PrimaryKey, TableDef};
use atrapos::{NewForeignKey, NewTable};
use sqlparser::ast;

use super::{Change, Done, Undo, refused};
use crate::bind::{Binder, data_type, ident, object_name};
use crate::error::{SqlError, SqlState};
use crate::schema::{CheckMeta, ColumnMeta, ForeignMeta, IndexMeta, Schema, TableMeta, stored_type};
use crate::sequence::SequenceMeta;
use crate::types::{Modifier, SqlType};

/// The definition of a table, as it is put together from the clauses of a statement.
pub(super) struct Draft {
    pub(super) name: String,
    pub(super) columns: Vec<ColumnMeta>,
    pub(super) indexes: Vec<IndexMeta>,
    pub(super) checks: Vec<CheckMeta>,
    pub(super) foreign_keys: Vec<ForeignMeta>,
    /// Names that are given to something already.
    pub(super) names: Vec<String>,
    pub(super) sequences: Vec<(String, SequenceMeta)>,
}

impl Draft {
    fn place(&self, name: &str) -> Result<usize, SqlError> {
        self.columns.iter().position(|column| column.name == name).ok_or_else(|| {
            SqlError::new(
                SqlState::UNDEFINED_COLUMN,
                format!("column \"{name}\" named in key does not exist"),
            )
        })
    }

    fn key_columns(&self, columns: &[ast::IndexColumn]) -> Result<Vec<usize>, SqlError> {
        let mut places = Vec::new();
        for column in columns {
            let place = self.place(&plain_column(column)?)?;
            if places.contains(&place) {
                return Err(SqlError::new(
                    SqlState::DUPLICATE_COLUMN,
                    format!("column \"{}\" appears twice in a key", self.columns[place].name),
                ));
            }
            places.push(place);
        }
        Ok(places)
    }

    fn names_of(&self, places: &[usize]) -> String {
        places.iter().map(|place| &*self.columns[*place].name).collect::<Vec<_>>().join("_")
    }

    /// Adds a key.
    pub(super) fn add_key(
        &mut self,
        schema: &Schema,
        name: Option<&ast::Ident>,
        places: Vec<usize>,
        primary: bool,
    ) -> Result<(), SqlError> {
        if primary && self.indexes.iter().any(|index| index.primary) {
            return Err(SqlError::new(
                SqlState::INVALID_TABLE_DEFINITION,
                format!("multiple primary keys for table \"{}\" are not allowed", self.name),
            ));
        }
        for place in &places {
            let column = &self.columns[*place];
            let ty = SqlType::from_oid(column.ty).unwrap_or(SqlType::Text);
            if ty == SqlType::Numeric && column.modifier == -1 {
                return Err(SqlError::unsupported("a key of a numeric without a precision")
                    .hint("Give the column a precision and a scale, as in numeric(20, 4)."));
            }
        }
        let base = if primary {
            format!("{}_pkey", self.name)
        } else {
            format!("{}_{}_key", self.name, self.names_of(&places))
        };
        let name = name.map_or_else(|| schema.free_name(&base, &self.names), ident);
        self.names.push(name.clone());
        if primary {
            places.iter().for_each(|place| self.columns[*place].not_null = true);
        }
        let columns = places.into_iter().map(|place| (place, false)).collect();
        let engine = (!primary).then(|| name.clone());
        self.indexes.push(IndexMeta { name, engine, columns, unique: true, primary, constraint: true });
        Ok(())
    }

    fn add_check(&mut self, schema: &Schema, name: Option<&ast::Ident>, expr: &ast::Expr, base: String) {
        let name = name.map_or_else(|| schema.free_name(&base, &self.names), ident);
        self.names.push(name.clone());
        self.checks.push(CheckMeta { name, expression: expr.to_string() });
    }

    fn add_foreign(
        &mut self,
        schema: &Schema,
        foreign: &ast::ForeignKeyConstraint,
        columns: Vec<usize>,
    ) -> Result<(), SqlError> {
        let (_, parent) = object_name(&foreign.foreign_table)?;
        let cascade = match foreign.on_delete {
            None | Some(ast::ReferentialAction::Restrict | ast::ReferentialAction::NoAction) => false,
            Some(ast::ReferentialAction::Cascade) => true,
            Some(other) => return Err(SqlError::unsupported(format!("ON DELETE {other}"))),
        };
        if !matches!(
            foreign.on_update,
            None | Some(ast::ReferentialAction::Restrict | ast::ReferentialAction::NoAction)
        ) {
            return Err(SqlError::unsupported("ON UPDATE of a foreign key"));
        }
        if foreign.match_kind.is_some() || foreign.characteristics.is_some() {
            return Err(SqlError::unsupported("MATCH or DEFERRABLE of a foreign key"));
        }
        if parent == self.name {
            return Err(SqlError::unsupported("a foreign key of a table to itself"));
        }
        let table = schema.table(&parent)?;
        let Some(key) = table.cluster_key() else {
            return Err(SqlError::new(
                SqlState::INVALID_FOREIGN_KEY,
                format!("there is no primary key for referenced table \"{parent}\""),
            ));
        };
        let referred: Vec<usize> = if foreign.referred_columns.is_empty() {
            key.columns.iter().map(|(column, _)| *column).collect()
        } else {
            let place =
                |name: &ast::Ident| table.column(&ident(name)).ok_or_else(|| table.no_column(&ident(name)));
            foreign.referred_columns.iter().map(place).collect::<Result<_, _>>()?
        };
        if !key.columns.iter().map(|(column, _)| *column).eq(referred.iter().copied()) {
            return Err(SqlError::unsupported("a foreign key to other columns than the primary key"));
        }
        if columns.len() != referred.len() {
            return Err(SqlError::new(
                SqlState::INVALID_FOREIGN_KEY,
                "number of referencing and referenced columns for foreign key disagree",
            ));
        }
        for (column, parent_column) in columns.iter().zip(&referred) {
            let (column, parent_column) = (&self.columns[*column], &table.columns[*parent_column]);
            if column.ty != parent_column.ty.oid() {
                return Err(SqlError::unsupported("a foreign key between columns of different types"));
            }
            if !column.not_null {
                return Err(SqlError::unsupported(format!(
                    "a foreign key of column \"{}\", which may be NULL",
                    column.name
                ))
                .hint("Declare the column NOT NULL."));
            }
        }
        let base = format!("{}_{}_fkey", self.name, self.names_of(&columns));
        let name = foreign.name.as_ref().map_or_else(|| schema.free_name(&base, &self.names), ident);
        self.names.push(name.clone());
        self.foreign_keys.push(ForeignMeta { name, columns, parent, cascade });
        Ok(())
    }

    /// Adds the sequence of a column of a serial or identity type.
    fn add_sequence(
        &mut self,
        schema: &Schema,
        column: usize,
        options: &[ast::SequenceOptions],
    ) -> Result<(), SqlError> {
        let column_name = self.columns[column].name.clone();
        let base = format!("{}_{column_name}_seq", self.name);
        let name = schema.free_name(&base, &self.names);
        self.names.push(name.clone());
        let ty = SqlType::from_oid(self.columns[column].ty).unwrap_or(SqlType::Int8);
        let taken = self.sequences.len() as u32;
        let mut meta = sequence_meta(schema, ty, options)?;
        meta.id += taken;
        meta.owner = Some((self.name.clone(), column_name));
        self.columns[column].default = Some(format!("nextval('{name}'::regclass)"));
        self.columns[column].sequence = Some(name.clone());
        self.columns[column].not_null = true;
        self.sequences.push((name, meta));
        Ok(())
    }
}

/// The name of a column that a key names without anything else.
pub(super) fn plain_column(column: &ast::IndexColumn) -> Result<String, SqlError> {
    match &column.column.expr {
        ast::Expr::Identifier(name)
            if column.operator_class.is_none() && column.column.options.nulls_first.is_none() =>
        {
            Ok(ident(name))
        }
        other => Err(SqlError::unsupported(format!("an index over {other}"))),
    }
}

/// A new sequence.
pub(super) fn sequence_meta(
    schema: &Schema,
    ty: SqlType,
    options: &[ast::SequenceOptions],
) -> Result<SequenceMeta, SqlError> {
    let id = schema.sequences.values().map(|sequence| sequence.meta().id + 1).max().unwrap_or(0);
    let most = match ty {
        SqlType::Int2 => i64::from(i16::MAX),
        SqlType::Int4 => i64::from(i32::MAX),
        _ => i64::MAX,
    };
    let number = |expr: &ast::Expr| {
        expr.to_string()
            .parse::<i64>()
            .map_err(|_| SqlError::new(SqlState::SYNTAX_ERROR, format!("{expr} is no integer")))
    };
    let (mut increment, mut start, mut min, mut max, mut cycle) = (1, None, None, None, false);
    for option in options {
        match option {
            ast::SequenceOptions::IncrementBy(expr, _) => increment = number(expr)?,
            ast::SequenceOptions::MinValue(value) => min = value.as_ref().map(&number).transpose()?,
            ast::SequenceOptions::MaxValue(value) => max = value.as_ref().map(&number).transpose()?,
            ast::SequenceOptions::StartWith(expr, _) => start = Some(number(expr)?),
            // Numbers are reserved in blocks in any case.
            ast::SequenceOptions::Cache(_) => {}
            ast::SequenceOptions::Cycle(no) => cycle = !no,
            other => return Err(SqlError::unsupported(format!("the sequence option {other}"))),
        }
    }
    if increment == 0 {
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "INCREMENT must not be zero"));
    }
    let min = min.unwrap_or(if increment > 0 { 1 } else { -most });
    let max = max.unwrap_or(if increment > 0 { most } else { -1 });
    let start = start.unwrap_or(if increment > 0 { min } else { max });
    if min > max || !(min..=max).contains(&start) {
        return Err(SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("START value ({start}) is not between MINVALUE ({min}) and MAXVALUE ({max})"),
        ));
    }
    Ok(SequenceMeta { id, start, increment, min, max, cycle, next: Some(start), owner: None })
}

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
        // Keys first: they make columns NOT NULL, which foreign keys ask for.
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
                    draft.add_check(schema, check.name.as_ref().or(constraint_name), &check.expr, base);
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
                draft.add_check(schema, check.name.as_ref(), &check.expr, base);
                Ok(())
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
            self.db.kept().write(database, format!("sequence:{name}"), Some(body))?;
        }
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
        let schema = self.db.schema();
        let mut foreign_keys = Vec::new();
        for foreign in &draft.foreign_keys {
            let begins = |index: &IndexMeta| {
                index
                    .columns
                    .iter()
                    .map(|(column, _)| *column)
                    .take(foreign.columns.len())
                    .eq(foreign.columns.iter().copied())
            };
            let through = match draft.indexes.iter().find(|index| begins(index)) {
                Some(index) => index.engine.clone(),
                None => {
                    // The engine finds the rows that refer to another by an index, which is no index of the schema.
                    let name = format!("{engine}~{}", foreign.name);
                    let columns = foreign.columns.iter().map(|column| (*column, false)).collect();
                    let meta = IndexMeta {
                        name: name.clone(),
                        engine: None,
                        columns,
                        unique: false,
                        primary: false,
                        constraint: false,
                    };
                    indexes.push(index_def(name.clone(), &meta));
                    Some(name)
                }
            };
            let on_delete = if foreign.cascade { OnDelete::Cascade } else { OnDelete::Restrict };
            let parent = schema.table(&foreign.parent)?.meta.engine.clone();
            foreign_keys.push(NewForeignKey { parent, through, on_delete });
        }
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
        let mut columns = Vec::new();
        for column in &create.columns {
            let name = plain_column(column)?;
            let place = table.column(&name).ok_or_else(|| table.no_column(&name))?;
            if table.columns[place].ty == SqlType::Numeric && table.columns[place].modifier == Modifier::None
            {
                return Err(SqlError::unsupported("an index over a numeric without a precision"));
            }
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
        let meta = sequence_meta(&schema, SqlType::Int8, options)?;
        let body = serde_json::to_string(&meta)
            .map_err(|error| SqlError::new(SqlState::INTERNAL_ERROR, error.to_string()))?;
        self.db.kept().write(self.db.database(), format!("sequence:{name}"), Some(body))?;
        self.db.reload()?;
        Ok(Done { tag: "CREATE SEQUENCE", notices: Vec::new(), undo: Some(Undo::Sequence(name)) })
    }
}

fn index_def(name: String, index: &IndexMeta) -> IndexDef {
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
