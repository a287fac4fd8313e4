//! The table in which is kept what the engine does not know of tables and sequences.
//!
//! Owns: its name and its two columns, a name and a JSON text. Never: knows what the texts mean.
//!
//! Its rows are written before a table is made and removed after it is dropped; a row that belongs to no table of the engine is
//! of a statement that a crash has stopped, and counts for nothing.

use atrapos::catalog::{ColumnDef, KeyColumn, PrimaryKey, TableDef, Value as Stored};
use atrapos::{Abort, ColumnType, Database, Submitted, TableHandle, Tx};

use crate::error::{SqlError, SqlState};
use crate::roles::Role;

/// The engine's name of the table.
pub(crate) const NAME: &str = "atrapos_sql";

/// The beginning of the names of rows that name tables of the engine which count for nothing: they are loaded for a transaction that
/// has not committed, or were replaced by one that has. They are dropped when the database is opened, if not before.
pub(crate) const UNUSED: &str = "unused:";

/// The table, and how its rows are read and written.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    table: TableHandle,
}

impl Kept {
    /// Opens the table; makes it if the database has none.
    pub(crate) fn open(database: &Database) -> Result<Kept, SqlError> {
        if database.table_named(NAME).is_err() {
            let column = |name: &str| ColumnDef::new(name, ColumnType::String);
            let table = TableDef {
                name: NAME.to_owned(),
                columns: vec![column("name"), column("body")],
                key: PrimaryKey::Columns(vec![KeyColumn::ascending(0)]),
                family: NAME.to_owned(),
                read_only: false,
                splits: Vec::new(),
            };
            database.create_table(table).map_err(|error| unusable(&error.to_string()))?;
        }
        let table = database.table_named(NAME).map_err(|error| unusable(&error.to_string()))?;
        Ok(Kept { table })
    }

    /// All rows.
    pub(crate) fn rows(&self, database: &Database) -> Result<Vec<(String, String)>, SqlError> {
        let table = self.table.clone();
        let route = table.at(&[]).map_err(|abort| SqlError::of_abort(&abort))?;
        let rows = database.run(route, async move |tx| {
            let all = table.prefix(&[])?;
            let rows = tx.scan(&table, all, usize::MAX).await?;
            rows.iter().map(|row| row.values(&table)).collect::<Result<Vec<_>, Abort>>()
        });
        let rows = rows.map_err(|abort| SqlError::of_abort(&abort))?;
        let text = |value: &Stored| match value {
            Stored::Text(text) => text.clone(),
            _ => String::new(),
        };
        Ok(rows.iter().map(|row| (text(&row[0]), text(&row[1]))).collect())
    }

    /// Writes a row, or removes it, in a transaction of its own.
    pub(crate) fn submit(
        &self,
        database: &Database,
        name: String,
        body: Option<String>,
    ) -> Result<Submitted<()>, Abort> {
        let kept = self.clone();
        let route = self.table.at(&[Stored::Text(name.clone())])?;
        database.submit(route, async move |tx| kept.write_within(tx, &name, body.as_deref()).await)
    }

    /// Writes a row, or removes it, as a part of a transaction.
    pub(crate) async fn write_within(
        &self,
        tx: &mut Tx<'_>,
        name: &str,
        body: Option<&str>,
    ) -> Result<(), Abort> {
        let key = [Stored::Text(name.to_owned())];
        tx.delete(&self.table, &key[..]).await?;
        if let Some(body) = body {
            let columns = [("name", key[0].clone()), ("body", Stored::Text(body.to_owned()))];
            tx.insert_row(&self.table, &columns).await?;
        }
        Ok(())
    }

    /// Writes a role.
    pub(crate) fn write_role(&self, database: &Database, role: &Role) -> Result<(), SqlError> {
        let body = serde_json::to_string(role).map_err(|error| unusable(&error.to_string()))?;
        self.write(database, format!("role:{}", role.id), Some(body))
    }

    /// Writes rows, and removes those without a text, as a part of a transaction.
    pub(crate) async fn write_all_within(
        &self,
        tx: &mut Tx<'_>,
        rows: &[(String, Option<String>)],
    ) -> Result<(), Abort> {
        for (name, body) in rows {
            self.write_within(tx, name, body.as_deref()).await?;
        }
        Ok(())
    }

    /// Writes rows, and removes those without a text, in one transaction, and waits until that is durable.
    pub(crate) fn write_all(
        &self,
        database: &Database,
        rows: Vec<(String, Option<String>)>,
    ) -> Result<(), SqlError> {
        let kept = self.clone();
        let route = self.table.at(&[]).map_err(|abort| SqlError::of_abort(&abort))?;
        let done = database.run(route, async move |tx| kept.write_all_within(tx, &rows).await);
        done.map_err(|abort| SqlError::of_abort(&abort))
    }

    /// Writes a row, or removes it, and waits until that is durable.
    pub(crate) fn write(
        &self,
        database: &Database,
        name: String,
        body: Option<String>,
    ) -> Result<(), SqlError> {
        let submitted = self.submit(database, name, body).map_err(|abort| SqlError::of_abort(&abort))?;
        submitted.wait().map_err(|abort| SqlError::of_abort(&abort))
    }
}

#[cold]
fn unusable(why: &str) -> SqlError {
    SqlError::new(SqlState::INTERNAL_ERROR, format!("the table of definitions cannot be used: {why}"))
}
