//! ALTER TABLE: keys and columns that are added.
//!
//! A primary key clusters rows, so a table that gets one is made anew: it is closed, its rows are loaded in bulk into a new table of
//! the engine, in the order of their keys and evenly over the workers, and the name leads to that one from then on.

use std::sync::Arc;

use atrapos::catalog::{ColumnDef, KeyCodec, Value as Stored};
use atrapos::{KeyBuf, LoadError, LoadProgress};
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

    /// Makes a table anew with a primary key.
    fn rebuild(&self, table: &Arc<TableEntry>, mut draft: Draft) -> Result<(), SqlError> {
        if table.cluster_key().is_some() {
            return Err(SqlError::new(
                SqlState::INVALID_TABLE_DEFINITION,
                format!("multiple primary keys for table \"{}\" are not allowed", table.name),
            ));
        }
        // The names of the old table and its indexes are in use until it is gone.
        let engine = format!("{}~{}", table.name, self.db.database().definitions().trees.len());
        for index in &mut draft.indexes {
            if let Some(name) = &mut index.engine {
                *name = format!("{name}~{engine}");
            }
        }
        // The new table has the names that the columns have now.
        draft.columns.iter_mut().for_each(|column| column.engine = None);
        let (mut new, mut meta) = self.definition(&draft, engine.clone())?;
        meta.comment.clone_from(&table.meta.comment);
        self.db.close(table)?;
        let done = (|| {
            let rows = self.rows_of(table, &meta)?;
            new.table.splits = splits(&rows, self.db.database().active_workers());
            self.db.database().create_table(new).map_err(|error| refused(&error))?;
            if let Err(error) = self.fill(&engine, table, rows) {
                self.db.database().drop_table(&engine).map_err(|error| refused(&error))?;
                return Err(error);
            }
            self.keep_table(&table.name, &meta)?;
            self.db.reload()
        })();
        if let Err(error) = done {
            self.db.reopen(table);
            return Err(error);
        }
        self.db.database().drop_table(&table.meta.engine).map_err(|error| refused(&error))
    }

    /// All rows of a table that nobody uses, in the order of their keys.
    fn rows_of(&self, table: &TableEntry, meta: &TableMeta) -> Result<Rows, SqlError> {
        let rows = self.stored_rows(table)?;
        let Some(key) = meta.indexes.iter().find(|index| index.primary) else { return Ok(Rows::new()) };
        let mut sorted = Rows::with_capacity(rows.len());
        let fields: Vec<ColumnDef> = table.handle.columns().to_vec();
        let codec = codec(&fields, &key.columns);
        for row in rows {
            let parts: Vec<Stored> = key.columns.iter().map(|(column, _)| row[*column].clone()).collect();
            if let Some(at) = parts.iter().position(Stored::is_null) {
                let column = &fields[key.columns[at].0].name;
                return Err(SqlError::new(
                    SqlState::NOT_NULL_VIOLATION,
                    format!("column \"{column}\" of relation \"{}\" contains null values", table.name),
                )
                .table(&table.name)
                .column(column));
            }
            let bytes = codec.encode(&parts).map_err(|error| {
                SqlError::new(SqlState::INTERNAL_ERROR, format!("a row cannot be made a key: {error}"))
            })?;
            sorted.push((bytes, row));
        }
        // Mostly they are in order already.
        sorted.sort_by(|(one, _), (other, _)| one.cmp(other));
        if sorted.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(SqlError::new(
                SqlState::UNIQUE_VIOLATION,
                format!("could not create unique index \"{}\"", key.name),
            )
            .detail("A key is duplicated.")
            .table(&table.name)
            .constraint(&key.name));
        }
        Ok(sorted)
    }

    /// Loads rows into a new table.
    fn fill(&self, engine: &str, table: &TableEntry, rows: Rows) -> Result<(), SqlError> {
        let internal = |why: String| SqlError::new(SqlState::INTERNAL_ERROR, why).table(&table.name);
        let handle = self.db.database().table_named(engine).map_err(|error| internal(error.to_string()))?;
        let encoded = |(_, row): (KeyBuf, Vec<Stored>)| match handle.encode_row(row) {
            Ok((Some(key), bytes)) => Ok((key, bytes)),
            Ok((None, _)) => Err(internal("a table with a primary key has none".to_owned())),
            Err(abort) => Err(SqlError::of_abort(&abort)),
        };
        let rows: Vec<(KeyBuf, Vec<u8>)> = rows.into_iter().map(encoded).collect::<Result<_, _>>()?;
        let (rows, number) = (Arc::new(rows), handle.id());
        let loaded = self.db.database().load(&LoadProgress::default(), move |loader| {
            for (key, row) in rows.iter() {
                if loader.owns_encoded(number, key) {
                    loader.add_encoded(number, key, row)?;
                }
            }
            Ok(())
        });
        loaded.map(drop).map_err(|error| match error {
            LoadError::Duplicate { .. } => {
                SqlError::new(SqlState::UNIQUE_VIOLATION, error.to_string()).table(&table.name)
            }
            error => internal(error.to_string()),
        })
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

/// Rows with their encoded keys, in the order of these.
type Rows = Vec<(KeyBuf, Vec<Stored>)>;

fn codec(columns: &[ColumnDef], key: &[(usize, bool)]) -> KeyCodec {
    use atrapos::KeyPart;
    use atrapos::catalog::KeyField;
    let field = |(column, descending): &(usize, bool)| KeyField {
        part: KeyPart { ty: columns[*column].ty, descending: *descending, nullable: false },
    };
    KeyCodec::new(key.iter().map(field).collect())
}

/// The keys at which a table is cut so that all workers get as many rows.
fn splits(rows: &Rows, workers: usize) -> Vec<Vec<u8>> {
    if rows.len() < workers * 2 {
        return Vec::new();
    }
    let part = rows.len() / workers;
    (1..workers).map(|worker| rows[worker * part].0.to_vec()).collect()
}
