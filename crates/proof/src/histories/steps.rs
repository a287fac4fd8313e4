//! Steps of the transactions of a history.
//!
//! Owns: the steps, the way they are drawn, and their execution. Never: records anything; the events are returned to
//! the client.

use atrapos::{Abort, Tx};
use atrapos_history::{Event, Found, Predicate};
use atrapos_workloads::Random;

use super::schema::{CELLS, Cell, GROUPS, SLOTS, Tomb, list_key};
use super::statements::DEFINITION;
use super::tables::Tables;

/// One step of a transaction, drawn before it runs: a transaction that is run again repeats the same steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Gives cells new versions, all in one phase if all of them exist.
    Write(Vec<NewVersion>),
    Delete {
        key: u64,
        version: u64,
    },
    Read(Vec<u64>),
    Scan {
        from: u64,
        to: u64,
        backward: bool,
        limit: usize,
    },
    /// Reads the cells of a group.
    Group(u32),
    Append {
        list: u64,
        number: u64,
    },
    ReadLists(Vec<u64>),
}

/// The new version of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NewVersion {
    pub(super) key: u64,
    pub(super) version: u64,
    pub(super) group: u32,
}

/// Numbers in a list at most, as a row holds no more. Appends to a full list are skipped.
const LIST_MAX: usize = 110;
/// Transactions of all clients after which a slot goes on to its next list.
const LIST_TRANSACTIONS: u64 = 64;
/// The widest scan.
const SCAN_MAX: u64 = 20;

impl Step {
    /// Draws a step. `done` transactions have run before; `next_number` returns numbers that are unique.
    pub(super) fn draw(random: &mut Random, done: u64, mut next_number: impl FnMut() -> u64) -> Step {
        let list = |random: &mut Random| list_key(random.below(SLOTS), done / LIST_TRANSACTIONS);
        match random.below(12) {
            0..=2 => {
                let count = 1 + random.below(3);
                // Every key is written once: a phase has no order of its own.
                let first = random.below(CELLS);
                let keys = (0..count).map(|at| (first + at * 17) % CELLS);
                let group = random.below(u64::from(GROUPS)) as u32;
                Step::Write(keys.map(|key| NewVersion { key, version: next_number(), group }).collect())
            }
            3 | 4 => Step::Delete { key: random.below(CELLS), version: next_number() },
            5 => Step::Read((0..1 + random.below(3)).map(|_| random.below(CELLS)).collect()),
            6 | 7 => {
                let from = random.below(CELLS);
                let to = from + 1 + random.below(SCAN_MAX);
                let limit = if random.below(3) == 0 { 1 + random.below(4) as usize } else { usize::MAX };
                Step::Scan { from, to, backward: random.below(2) == 0, limit }
            }
            8 | 9 => Step::Group(random.below(u64::from(GROUPS)) as u32),
            10 => Step::Append { list: list(random), number: next_number() },
            _ => Step::ReadLists((0..1 + random.below(2)).map(|_| list(random)).collect()),
        }
    }

    /// Returns the versions it may write: keys and numbers.
    pub(super) fn writes(&self) -> Vec<(u64, u64)> {
        match self {
            Step::Write(cells) => cells.iter().map(|cell| (cell.key, cell.version)).collect(),
            Step::Delete { key, version } => vec![(*key, *version)],
            _ => Vec::new(),
        }
    }

    /// Returns the number it may append, and the list.
    pub(super) fn append(&self) -> Option<(u64, u64)> {
        match self {
            Step::Append { list, number } => Some((*list, *number)),
            _ => None,
        }
    }

    /// Returns the key of the cell or list with which it begins, as the place where it runs.
    pub(super) fn cell(&self) -> Option<u64> {
        match self {
            Step::Write(cells) => cells.first().map(|cell| cell.key),
            Step::Delete { key, .. } | Step::Scan { from: key, .. } => Some(*key),
            Step::Read(keys) => keys.first().copied(),
            Step::Group(_) | Step::Append { .. } | Step::ReadLists(_) => None,
        }
    }

    /// Executes the step, and adds its events to `events`: none if it uses cells while there is no table of them.
    pub(super) async fn make(
        &self,
        tx: &mut Tx<'_>,
        tables: &Tables,
        events: &mut Vec<Event>,
    ) -> Result<(), Abort> {
        if self.is_of_cells() && !tables.has_cells() {
            return Ok(());
        }
        match self {
            Step::Write(cells) => write(tx, tables, cells, events).await?,
            Step::Delete { key, version } => delete(tx, tables, *key, *version, events).await?,
            Step::Read(keys) => read(tx, tables, keys, events).await?,
            Step::Scan { from, to, backward, limit } => {
                let rows = tables.scan(tx, (*from, *to), *backward, *limit).await?;
                // The range ends with the last row read.
                let (from, to) = match (rows.last(), rows.len() == *limit) {
                    (Some((last, _)), true) if *backward => (*last, *to),
                    (Some((last, _)), true) => (*from, last + 1),
                    _ => (*from, *to),
                };
                let what = Predicate::Keys(tables.key(from), tables.key(to));
                let rows = rows.iter().map(|(key, cell)| (tables.key(*key), tables.found(cell))).collect();
                events.push(Event::Read { what, rows });
            }
            Step::Group(group) => read_group(tx, tables, *group, events).await?,
            Step::Append { list, number } => {
                if tables.append(tx, *list, *number, LIST_MAX).await? {
                    events.push(Event::Append { list: *list, number: *number });
                }
            }
            Step::ReadLists(lists) => {
                let rows = tables.lists(tx, lists).await?;
                for (list, row) in lists.iter().zip(rows) {
                    let numbers = row.map_or_else(Vec::new, |row| row.list());
                    events.push(Event::ReadList { list: *list, numbers });
                }
            }
        }
        if self.is_of_cells() {
            events.extend(tables.saw_definition());
        }
        Ok(())
    }

    fn is_of_cells(&self) -> bool {
        !matches!(self, Step::Append { .. } | Step::ReadLists(_))
    }
}

async fn write(
    tx: &mut Tx<'_>,
    tables: &Tables,
    cells: &[NewVersion],
    events: &mut Vec<Event>,
) -> Result<(), Abort> {
    let found = tables.replace(tx, cells).await?;
    for (NewVersion { key, version, group }, found) in cells.iter().copied().zip(found) {
        let found = match found {
            Some(found) => tables.found(&found),
            None => {
                let tomb = tables.tomb(tx, key).await?;
                let found = Tomb::found(tomb.as_ref());
                tables.insert(tx, key, Cell::new(version, found.version, group)).await?;
                found
            }
        };
        let (key, group) = (tables.key(key), Some(tables.group(group)));
        events.push(Event::Write { key, found, version, group });
    }
    Ok(())
}

async fn delete(
    tx: &mut Tx<'_>,
    tables: &Tables,
    key: u64,
    version: u64,
    events: &mut Vec<Event>,
) -> Result<(), Abort> {
    let Some(cell) = tables.delete(tx, key).await? else {
        events.push(Event::Read { what: Predicate::key(tables.key(key)), rows: Vec::new() });
        return Ok(());
    };
    tables.bury(tx, key, Tomb { version, over: cell.version }).await?;
    let found = tables.found(&cell);
    events.push(Event::Write { key: tables.key(key), found, version, group: None });
    Ok(())
}

async fn read(tx: &mut Tx<'_>, tables: &Tables, keys: &[u64], events: &mut Vec<Event>) -> Result<(), Abort> {
    let rows = tables.cells(tx, keys).await?;
    for (key, cell) in keys.iter().zip(rows) {
        let key = tables.key(*key);
        let rows = cell.iter().map(|cell| (key, tables.found(cell))).collect();
        events.push(Event::Read { what: Predicate::key(key), rows });
    }
    Ok(())
}

async fn read_group(
    tx: &mut Tx<'_>,
    tables: &Tables,
    group: u32,
    events: &mut Vec<Event>,
) -> Result<(), Abort> {
    let cells = tables.of_group(tx, group).await?;
    // An entry of the index without its row is recorded as well: a cell that never existed is of no group.
    let found = |cell: Option<Cell>| cell.map_or(Found::NEVER, |cell| tables.found(&cell));
    let rows = cells.into_iter().map(|(key, cell)| (tables.key(key), found(cell))).collect();
    events.push(Event::Read { what: Predicate::Group(tables.group(group)), rows });
    Ok(())
}

/// Reads all rows, through all access paths.
pub(super) async fn read_everything(tx: &mut Tx<'_>, tables: &Tables) -> Result<Vec<Event>, Abort> {
    let mut events = Vec::new();
    if tables.has_cells() {
        let cells = tables.scan(tx, (0, 1 << 32), false, usize::MAX).await?;
        let found = |(key, cell): &(u64, Cell)| (tables.key(*key), tables.found(cell));
        let rows: Vec<(u64, Found)> = cells.iter().map(found).collect();
        for (key, tomb) in tables.all_tombs(tx).await? {
            if !rows.iter().any(|row| row.0 == key) {
                events.push(Event::Gone { key, found: Tomb::found(Some(&tomb)) });
            }
        }
        let (from, to) = tables.all_keys();
        events.push(Event::Read { what: Predicate::Keys(from, to), rows });
        for group in 0..GROUPS {
            read_group(tx, tables, group, &mut events).await?;
        }
        events.extend(tables.saw_definition());
    } else {
        events.push(Event::Read { what: Predicate::key(DEFINITION), rows: Vec::new() });
    }
    for (list, row) in tables.all_lists(tx).await? {
        events.push(Event::ReadList { list, numbers: row.list() });
    }
    Ok(events)
}
