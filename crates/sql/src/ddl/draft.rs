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

    pub(super) fn add_check(
        &mut self,
        schema: &Schema,
        name: Option<&ast::Ident>,
        expr: &ast::Expr,
        base: String,
    ) {
        let name = name.map_or_else(|| schema.free_name(&base, &self.names), ident);
        self.names.push(name.clone());
        self.checks.push(CheckMeta { name, expression: expr.to_string() });
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
