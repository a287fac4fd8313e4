//! The definition of a table while its clauses are put together.

use sqlparser::ast;

use crate::bind::{ident, object_name};
use crate::error::{SqlError, SqlState};
use crate::schema::{CheckMeta, ColumnMeta, ForeignMeta, IndexMeta, Schema};
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
    pub(super) fn place(&self, name: &str) -> Result<usize, SqlError> {
        self.columns.iter().position(|column| column.name == name).ok_or_else(|| {
            SqlError::new(
                SqlState::UNDEFINED_COLUMN,
                format!("column \"{name}\" named in key does not exist"),
            )
        })
    }

    pub(super) fn key_columns(&self, columns: &[ast::IndexColumn]) -> Result<Vec<usize>, SqlError> {
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

    pub(super) fn names_of(&self, places: &[usize]) -> String {
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
            crate::schema::refuse_key(ty, Modifier::from_code(ty, column.modifier.into()))?;
        }
        let base = if primary {
            format!("{}_pkey", self.name)
        } else {
            format!("{}_{}_key", self.name, self.names_of(&places))
        };
        let name = self.constraint_name(schema, name, &base)?;
        if primary {
            places.iter().for_each(|place| self.columns[*place].not_null = true);
        }
        let columns = places.into_iter().map(|place| (place, false)).collect();
        let engine = (!primary).then(|| name.clone());
        self.indexes.push(IndexMeta {
            name,
            engine,
            columns,
            unique: true,
            primary,
            constraint: true,
            number: None,
        });
        Ok(())
    }

    pub(super) fn add_check(
        &mut self,
        schema: &Schema,
        name: Option<&ast::Ident>,
        expr: &ast::Expr,
        base: &str,
    ) -> Result<(), SqlError> {
        let name = self.constraint_name(schema, name, base)?;
        self.checks.push(CheckMeta { name, expression: expr.to_string() });
        Ok(())
    }

    /// The name of a new constraint: the one that is given, or one that is free.
    fn constraint_name(
        &mut self,
        schema: &Schema,
        given: Option<&ast::Ident>,
        base: &str,
    ) -> Result<String, SqlError> {
        let name = given.map_or_else(|| schema.free_name(base, &self.names), ident);
        let is_taken = self.checks.iter().any(|check| check.name == name)
            || self.foreign_keys.iter().any(|foreign| foreign.name == name)
            || self.indexes.iter().any(|index| index.constraint && index.name == name);
        if is_taken && given.is_some() {
            return Err(SqlError::new(
                SqlState::DUPLICATE_OBJECT,
                format!("constraint \"{name}\" for relation \"{}\" already exists", self.name),
            ));
        }
        self.names.push(name.clone());
        Ok(name)
    }

    pub(super) fn add_foreign(
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
        let (key, types) = self.referred(schema, &parent)?;
        let base = format!("{}_{}_fkey", self.name, self.names_of(&columns));
        let mut columns = columns;
        if !foreign.referred_columns.is_empty() {
            columns = self.in_key_order(schema, &parent, &key, &foreign.referred_columns, &columns)?;
        }
        if columns.len() != key.len() {
            return Err(SqlError::new(
                SqlState::INVALID_FOREIGN_KEY,
                "number of referencing and referenced columns for foreign key disagree",
            ));
        }
        for (column, ty) in columns.iter().zip(&types) {
            if self.columns[*column].ty != *ty {
                return Err(SqlError::unsupported("a foreign key between columns of different types")
                    .detail(format!("Column \"{}\" has another type.", self.columns[*column].name))
                    .hint("Declare both columns with the same type."));
            }
        }
        let name = self.constraint_name(schema, foreign.name.as_ref(), &base)?;
        self.foreign_keys.push(ForeignMeta { name, columns, parent, cascade });
        Ok(())
    }

    /// The names of the columns of the primary key of a table that is referred to, and the numbers of their types.
    fn referred(&self, schema: &Schema, parent: &str) -> Result<(Vec<String>, Vec<u32>), SqlError> {
        let no_key = || {
            SqlError::new(
                SqlState::INVALID_FOREIGN_KEY,
                format!("there is no primary key for referenced table \"{parent}\""),
            )
        };
        if parent == self.name {
            let is_key = |index: &&IndexMeta| index.primary && index.engine.is_none();
            let key = self.indexes.iter().find(is_key).ok_or_else(no_key)?;
            let columns = key.columns.iter().map(|(column, _)| &self.columns[*column]);
            return Ok(columns.map(|column| (column.name.clone(), column.ty)).unzip());
        }
        let table = schema.table(parent)?;
        let key = table.cluster_key().ok_or_else(no_key)?;
        let columns = key.columns.iter().map(|(column, _)| &table.columns[*column]);
        Ok(columns.map(|column| (column.name.clone(), column.ty.oid())).unzip())
    }

    /// The columns that refer to those of a key, in the order of the key.
    fn in_key_order(
        &self,
        schema: &Schema,
        parent: &str,
        key: &[String],
        named: &[ast::Ident],
        columns: &[usize],
    ) -> Result<Vec<usize>, SqlError> {
        let named: Vec<String> = named.iter().map(ident).collect();
        let is_there = |name: &String| match schema.tables.get(parent).filter(|_| parent != self.name) {
            Some(table) => table.column(name).is_some(),
            None => self.columns.iter().any(|column| column.name == *name),
        };
        if let Some(name) = named.iter().find(|name| !is_there(name)) {
            return Err(SqlError::new(
                SqlState::UNDEFINED_COLUMN,
                format!("column \"{name}\" referenced in foreign key constraint does not exist"),
            ));
        }
        let place = |part: &String| named.iter().position(|name| name == part);
        let places: Option<Vec<usize>> = key.iter().map(place).collect();
        if named.len() != columns.len() {
            return Err(SqlError::new(
                SqlState::INVALID_FOREIGN_KEY,
                "number of referencing and referenced columns for foreign key disagree",
            ));
        }
        let places = places.filter(|places| places.len() == named.len()).ok_or_else(|| {
            SqlError::unsupported("a foreign key to other columns than the primary key")
                .hint("Refer to the columns of the primary key of the table.")
        })?;
        Ok(places.into_iter().map(|place| columns[place]).collect())
    }

    /// Adds the sequence of a column of a serial or identity type.
    pub(super) fn add_sequence(
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
