//! The tables of the histories as transactions use them: as types, or by their definitions, which statements make and
//! change meanwhile.
//!
//! Owns: an access with either, and the names of keys and groups in a history. Never: records anything.
//!
//! Cells that statements create and drop have the same keys in each *life* of their table, but are different cells: the
//! history identifies them by the number of the statement that created the table as well.

use std::ops::Bound;
use std::sync::Arc;

use atrapos::catalog::Value;
use atrapos::{
    Abort, DynRow, Index, IndexHandle, KeyRange, Route, SchemaError, Session, Table, TableHandle, Tx,
};
use atrapos_history::{Event, Found, Predicate};

use super::schema::{ByGroup, Cell, Cells, Handles, Lists, Numbers, Tomb, Tombs};
use super::statements::{BORN, CELL_COLUMNS, DEFINITION, definition_found};
use super::steps::NewVersion;

/// The tables as a transaction uses them.
#[derive(Clone, Debug)]
pub(super) enum Tables {
    /// Tables declared by the program.
    Typed(Handles),
    /// Tables found by name.
    Named(Arc<Named>),
}

/// Tables that are found by name.
#[derive(Debug)]
pub(super) struct Named {
    cells: Option<NamedCells>,
    tombs: TableHandle,
    lists: TableHandle,
}

/// The table of cells, while there is one.
#[derive(Debug)]
struct NamedCells {
    table: TableHandle,
    by_group: Option<IndexHandle>,
    /// The number of the statement that created the table.
    born: u64,
}

/// Returns an unsigned number as a value.
pub(super) fn number(number: impl Into<u128>) -> Value {
    Value::Unsigned(number.into())
}

fn as_number(value: &Value) -> u64 {
    match value {
        Value::Unsigned(number) => u64::try_from(*number).unwrap_or(u64::MAX),
        _ => u64::MAX,
    }
}

fn column(row: &DynRow, table: &TableHandle, name: &str) -> Result<u64, Abort> {
    row.get(table, name).map(|value| as_number(&value))
}

fn cell_of(row: &DynRow, table: &TableHandle) -> Result<(u64, Cell), Abort> {
    let [id, version, over, group] = ["id", "version", "over", "group"].map(|name| column(row, table, name));
    Ok((id?, Cell::new(version?, over?, group? as u32)))
}

fn tomb_of(row: &DynRow, table: &TableHandle) -> Result<Tomb, Abort> {
    Ok(Tomb { version: column(row, table, "version")?, over: column(row, table, "over")? })
}

fn numbers_of(row: &DynRow, table: &TableHandle) -> Result<Numbers, Abort> {
    match row.get(table, "bytes")? {
        Value::Bytes(bytes) => Ok(Numbers { bytes }),
        other => Err(Abort::user(if other.is_null() { "a list is NULL" } else { "a list is no bytes" })),
    }
}

fn cell_columns(cell: &Cell) -> [(&'static str, Value); 4] {
    [
        ("version", number(cell.version)),
        ("over", number(cell.over)),
        ("group", number(cell.group)),
        ("text", Value::Text(cell.text.clone())),
    ]
}

/// Returns the range of keys from one (included) to another (excluded).
fn between(table: &TableHandle, from: u64, to: u64) -> Result<KeyRange, Abort> {
    table.range(Bound::Included(&[number(from)]), Bound::Excluded(&[number(to)]))
}

impl NamedCells {
    fn find(session: &Session) -> Option<NamedCells> {
        let table = session.table_named(Cells::NAME).ok()?;
        let born = table.columns().iter().find(|column| column.name == BORN)?.default.as_ref()?;
        let (born, by_group) = (as_number(born), session.index_named(ByGroup::NAME).ok());
        Some(NamedCells { table, by_group, born })
    }

    /// Returns the number of the statement that changed the table last: it was created, and got one column by each
    /// later one.
    fn definition(&self) -> u64 {
        self.born + (self.table.columns().len() - CELL_COLUMNS) as u64
    }
}

impl Tables {
    /// Finds the tables of the session's database as they are now.
    pub(super) fn find(session: &Session, are_named: bool) -> Result<Tables, SchemaError> {
        if !are_named {
            return Ok(Tables::Typed(Handles {
                cells: session.table()?,
                by_group: session.index()?,
                tombs: session.table()?,
                lists: session.table()?,
            }));
        }
        let (tombs, lists) = (session.table_named(Tombs::NAME)?, session.table_named(Lists::NAME)?);
        Ok(Tables::Named(Arc::new(Named { cells: NamedCells::find(session), tombs, lists })))
    }

    /// Returns the route to a cell, if there is a table of them.
    pub(super) fn at(&self, key: u64) -> Option<Route> {
        match self {
            Tables::Typed(handles) => Some(handles.cells.at(&key)),
            Tables::Named(named) => named.cells.as_ref()?.table.at(&[number(key)]).ok(),
        }
    }

    /// Returns true if there is a table of cells.
    pub(super) fn has_cells(&self) -> bool {
        match self {
            Tables::Typed(_) => true,
            Tables::Named(named) => named.cells.is_some(),
        }
    }

    fn life(&self) -> u64 {
        match self {
            Tables::Typed(_) => 0,
            Tables::Named(named) => named.cells.as_ref().map_or(0, |cells| cells.born),
        }
    }

    /// Returns the name of a cell in the history.
    pub(super) fn key(&self, key: u64) -> u64 {
        self.life() << 32 | key
    }

    /// Returns the name of a group in the history.
    pub(super) fn group(&self, group: u32) -> u32 {
        (self.life() as u32) << 4 | group
    }

    /// Returns the bounds of all names of cells in the history.
    pub(super) fn all_keys(&self) -> (u64, u64) {
        (self.life() << 32, (self.life() + 1) << 32)
    }

    /// Returns the record of a read that found this cell.
    pub(super) fn found(&self, cell: &Cell) -> Found {
        Found { group: Some(self.group(cell.group)), ..cell.found() }
    }

    /// Returns the read of the definition of the cells that a transaction has made by using them.
    pub(super) fn saw_definition(&self) -> Option<Event> {
        let Tables::Named(named) = self else { return None };
        let definition = named.cells.as_ref()?.definition();
        let rows = vec![(DEFINITION, definition_found(definition))];
        Some(Event::Read { what: Predicate::key(DEFINITION), rows })
    }

    /// Gives existing cells new versions, and returns the old ones.
    pub(super) async fn replace(
        &self,
        tx: &mut Tx<'_>,
        new: &[NewVersion],
    ) -> Result<Vec<Option<Cell>>, Abort> {
        match self {
            Tables::Typed(handles) => {
                let update = |new: &NewVersion| {
                    let NewVersion { key, version, group } = *new;
                    handles.cells.update(key, move |cell| {
                        let new = Cell::new(version, cell.version, group);
                        std::mem::replace(cell, new)
                    })
                };
                tx.join_all(new.iter().map(update)).await
            }
            Tables::Named(named) => {
                let keys: Vec<u64> = new.iter().map(|new| new.key).collect();
                let found = self.cells(tx, &keys).await?;
                let Some(cells) = &named.cells else { return Ok(found) };
                let mut updates = Vec::new();
                for (NewVersion { key, version, group }, found) in new.iter().zip(&found) {
                    if let Some(found) = found {
                        let cell = Cell::new(*version, found.version, *group);
                        updates.push(cells.table.update(&[number(*key)], &cell_columns(&cell))?);
                    }
                }
                tx.join_all(updates).await?;
                Ok(found)
            }
        }
    }

    /// Inserts a cell.
    pub(super) async fn insert(&self, tx: &mut Tx<'_>, key: u64, cell: Cell) -> Result<(), Abort> {
        match self {
            Tables::Typed(handles) => tx.insert(handles.cells, key, cell).await,
            Tables::Named(named) => {
                let Some(cells) = &named.cells else { return Ok(()) };
                let mut columns = vec![("id", number(key))];
                columns.extend(cell_columns(&cell));
                tx.insert_row(&cells.table, &columns).await
            }
        }
    }

    /// Deletes a cell, and returns it.
    pub(super) async fn delete(&self, tx: &mut Tx<'_>, key: u64) -> Result<Option<Cell>, Abort> {
        match self {
            Tables::Typed(handles) => tx.delete(handles.cells, key).await,
            Tables::Named(named) => {
                let Some(cells) = &named.cells else { return Ok(None) };
                let row = tx.delete(&cells.table, &[number(key)]).await?;
                row.map(|row| cell_of(&row, &cells.table).map(|(_, cell)| cell)).transpose()
            }
        }
    }

    /// Reads the cells with these keys.
    pub(super) async fn cells(&self, tx: &mut Tx<'_>, keys: &[u64]) -> Result<Vec<Option<Cell>>, Abort> {
        match self {
            Tables::Typed(handles) => tx.join_all(keys.iter().map(|key| handles.cells.get(*key))).await,
            Tables::Named(named) => {
                let Some(cells) = &named.cells else { return Ok(vec![None; keys.len()]) };
                let get = |key: &u64| cells.table.get(&[number(*key)]);
                let rows = tx.join_all(keys.iter().map(get).collect::<Result<Vec<_>, Abort>>()?).await?;
                let cell = |row: DynRow| cell_of(&row, &cells.table).map(|(_, cell)| cell);
                rows.into_iter().map(|row| row.map(cell).transpose()).collect()
            }
        }
    }

    /// Reads at most `limit` cells with keys from one (included) to another (excluded).
    pub(super) async fn scan(
        &self,
        tx: &mut Tx<'_>,
        (from, to): (u64, u64),
        backward: bool,
        limit: usize,
    ) -> Result<Vec<(u64, Cell)>, Abort> {
        match self {
            Tables::Typed(handles) => {
                let range = KeyRange::between(&from, &to);
                if backward {
                    tx.scan_backward(handles.cells, range, limit).await
                } else {
                    tx.scan(handles.cells, range, limit).await
                }
            }
            Tables::Named(named) => {
                let Some(cells) = &named.cells else { return Ok(Vec::new()) };
                let range = between(&cells.table, from, to)?;
                let rows = if backward {
                    tx.scan_backward(&cells.table, range, limit).await?
                } else {
                    tx.scan(&cells.table, range, limit).await?
                };
                rows.iter().map(|row| cell_of(row, &cells.table)).collect()
            }
        }
    }

    /// Reads the cells of a group: through the index or, while there is none, by a scan. An entry of the index without
    /// its row is returned as well.
    pub(super) async fn of_group(
        &self,
        tx: &mut Tx<'_>,
        group: u32,
    ) -> Result<Vec<(u64, Option<Cell>)>, Abort> {
        match self {
            Tables::Typed(handles) => {
                let keys = tx.lookup_all(handles.by_group, KeyRange::prefix(&group), usize::MAX).await?;
                let cells = self.cells(tx, &keys).await?;
                Ok(keys.into_iter().zip(cells).collect())
            }
            Tables::Named(named) => {
                let Some(cells) = &named.cells else { return Ok(Vec::new()) };
                let Some(by_group) = &cells.by_group else {
                    let all = self.scan(tx, (0, 1 << 32), false, usize::MAX).await?;
                    let mut found = Vec::new();
                    found.extend(all.into_iter().filter(|(_, cell)| cell.group == group));
                    return Ok(found.into_iter().map(|(key, cell)| (key, Some(cell))).collect());
                };
                let range = by_group.prefix(&[number(group)])?;
                let rows = tx.rows_by(by_group, range, usize::MAX).await?;
                let some = |(key, cell)| (key, Some(cell));
                rows.iter().map(|row| cell_of(row, by_group.table()).map(some)).collect()
            }
        }
    }

    /// Reads the tomb of a cell.
    pub(super) async fn tomb(&self, tx: &mut Tx<'_>, key: u64) -> Result<Option<Tomb>, Abort> {
        match self {
            Tables::Typed(handles) => tx.get(handles.tombs, key).await,
            Tables::Named(named) => {
                let row = tx.get(&named.tombs, &[number(self.key(key))]).await?;
                row.map(|row| tomb_of(&row, &named.tombs)).transpose()
            }
        }
    }

    /// Replaces the tomb of a cell, or inserts one if it had none.
    pub(super) async fn bury(&self, tx: &mut Tx<'_>, key: u64, tomb: Tomb) -> Result<(), Abort> {
        match self {
            Tables::Typed(handles) => {
                let new = tomb.clone();
                if tx.run(handles.tombs.update(key, move |tomb| *tomb = new)).await?.is_none() {
                    tx.insert(handles.tombs, key, tomb).await?;
                }
            }
            Tables::Named(named) => {
                let key = number(self.key(key));
                let columns = [("version", number(tomb.version)), ("over", number(tomb.over))];
                if !tx.update_row(&named.tombs, std::slice::from_ref(&key), &columns).await? {
                    let [version, over] = columns;
                    tx.insert_row(&named.tombs, &[("id", key), version, over]).await?;
                }
            }
        }
        Ok(())
    }

    /// Adds a number to a list that is not full. Returns true if it did.
    pub(super) async fn append(
        &self,
        tx: &mut Tx<'_>,
        list: u64,
        added: u64,
        longest: usize,
    ) -> Result<bool, Abort> {
        match self {
            Tables::Typed(handles) => {
                let push = handles.lists.update(list, move |row: &mut Numbers| {
                    let has_room = row.list().len() < longest;
                    if has_room {
                        row.push(added);
                    }
                    has_room
                });
                match tx.run(push).await? {
                    Some(has_room) => Ok(has_room),
                    None => tx.insert(handles.lists, list, Numbers::of(added)).await.map(|()| true),
                }
            }
            Tables::Named(named) => {
                let Some(mut row) = self.lists(tx, &[list]).await?.pop().flatten() else {
                    let bytes = Value::Bytes(Numbers::of(added).bytes);
                    let columns = [("id", number(list)), ("bytes", bytes)];
                    return tx.insert_row(&named.lists, &columns).await.map(|()| true);
                };
                if row.list().len() >= longest {
                    return Ok(false);
                }
                row.push(added);
                tx.update_row(&named.lists, &[number(list)], &[("bytes", Value::Bytes(row.bytes))]).await
            }
        }
    }

    /// Reads the lists with these keys.
    pub(super) async fn lists(&self, tx: &mut Tx<'_>, lists: &[u64]) -> Result<Vec<Option<Numbers>>, Abort> {
        match self {
            Tables::Typed(handles) => tx.join_all(lists.iter().map(|list| handles.lists.get(*list))).await,
            Tables::Named(named) => {
                let get = |list: &u64| named.lists.get(&[number(*list)]);
                let rows = tx.join_all(lists.iter().map(get).collect::<Result<Vec<_>, Abort>>()?).await?;
                let numbers = |row: DynRow| numbers_of(&row, &named.lists);
                rows.into_iter().map(|row| row.map(numbers).transpose()).collect()
            }
        }
    }

    /// Reads all tombs of the current cells, by their names in the history.
    pub(super) async fn all_tombs(&self, tx: &mut Tx<'_>) -> Result<Vec<(u64, Tomb)>, Abort> {
        match self {
            Tables::Typed(handles) => tx.scan(handles.tombs, KeyRange::all(), usize::MAX).await,
            Tables::Named(named) => {
                let (from, to) = self.all_keys();
                let rows = tx.scan(&named.tombs, between(&named.tombs, from, to)?, usize::MAX).await?;
                let tomb = |row: &DynRow| Ok((column(row, &named.tombs, "id")?, tomb_of(row, &named.tombs)?));
                rows.iter().map(tomb).collect()
            }
        }
    }

    /// Reads all lists.
    pub(super) async fn all_lists(&self, tx: &mut Tx<'_>) -> Result<Vec<(u64, Numbers)>, Abort> {
        match self {
            Tables::Typed(handles) => tx.scan(handles.lists, KeyRange::all(), usize::MAX).await,
            Tables::Named(named) => {
                let rows = tx.scan(&named.lists, named.lists.prefix(&[])?, usize::MAX).await?;
                let list =
                    |row: &DynRow| Ok((column(row, &named.lists, "id")?, numbers_of(row, &named.lists)?));
                rows.iter().map(list).collect()
            }
        }
    }
}
