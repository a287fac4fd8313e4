//! What the transactions of a history do.
//!
//! Owns: the steps, how they are drawn, and their execution. Never: writes anything down; the events go back to the client.

use atrapos::{Abort, KeyRange, Tx};
use atrapos_history::{Event, Found, Predicate};
use atrapos_workloads::Random;

use super::schema::{CELLS, Cell, GROUPS, Handles, Numbers, SLOTS, Tomb, list_key};

/// One step of a transaction, drawn before it runs: one that is run again does the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Gives cells new versions, all in one phase where they are there already.
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

/// What a cell is to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NewVersion {
    pub(super) key: u64,
    pub(super) version: u64,
    pub(super) group: u32,
}

/// Numbers in a list, at most: a row holds no more. What is appended to a full list is not appended.
const LIST_MAX: usize = 110;
/// Transactions of all clients after which a slot goes on to its next list.
const LIST_TRANSACTIONS: u64 = 64;
/// The widest scan.
const SCAN_MAX: u64 = 20;

impl Step {
    /// Draws a step. `done` transactions have run before; `next_number` gives numbers that nobody else has.
    pub(super) fn draw(random: &mut Random, done: u64, mut next_number: impl FnMut() -> u64) -> Step {
        let list = |random: &mut Random| list_key(random.below(SLOTS), done / LIST_TRANSACTIONS);
        match random.below(12) {
            0..=2 => {
                let count = 1 + random.below(3);
                // Every key once: a phase has no order of its own.
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

    /// The versions it may write: keys and numbers.
    pub(super) fn writes(&self) -> Vec<(u64, u64)> {
        match self {
            Step::Write(cells) => cells.iter().map(|cell| (cell.key, cell.version)).collect(),
            Step::Delete { key, version } => vec![(*key, *version)],
            _ => Vec::new(),
        }
    }

    /// The number it may append, and to which list.
    pub(super) fn append(&self) -> Option<(u64, u64)> {
        match self {
            Step::Append { list, number } => Some((*list, *number)),
            _ => None,
        }
    }

    /// The key of a cell or list with which it begins, to run where that is.
    pub(super) fn cell(&self) -> Option<u64> {
        match self {
            Step::Write(cells) => cells.first().map(|cell| cell.key),
            Step::Delete { key, .. } | Step::Scan { from: key, .. } => Some(*key),
            Step::Read(keys) => keys.first().copied(),
            Step::Group(_) | Step::Append { .. } | Step::ReadLists(_) => None,
        }
    }

    /// Does it, and says what was done and seen.
    pub(super) async fn make(
        &self,
        tx: &mut Tx<'_>,
        handles: Handles,
        events: &mut Vec<Event>,
    ) -> Result<(), Abort> {
        match self {
            Step::Write(cells) => write(tx, handles, cells, events).await,
            Step::Delete { key, version } => delete(tx, handles, *key, *version, events).await,
            Step::Read(keys) => read(tx, handles, keys, events).await,
            Step::Scan { from, to, backward, limit } => {
                let range = KeyRange::between(from, to);
                let rows = match backward {
                    false => tx.scan(handles.cells, range, *limit).await?,
                    true => tx.scan_backward(handles.cells, range, *limit).await?,
                };
                // As far as it went.
                let what = match (rows.last(), rows.len() == *limit) {
                    (Some((last, _)), true) if *backward => Predicate::Keys(*last, *to),
                    (Some((last, _)), true) => Predicate::Keys(*from, last + 1),
                    _ => Predicate::Keys(*from, *to),
                };
                let rows = rows.into_iter().map(|(key, cell)| (key, cell.found())).collect();
                events.push(Event::Read { what, rows });
                Ok(())
            }
            Step::Group(group) => read_group(tx, handles, *group, events).await,
            Step::Append { list, number } => append(tx, handles, *list, *number, events).await,
            Step::ReadLists(lists) => {
                let rows = tx.join_all(lists.iter().map(|list| handles.lists.get(*list))).await?;
                for (list, row) in lists.iter().zip(rows) {
                    let numbers = row.map_or_else(Vec::new, |row| row.list());
                    events.push(Event::ReadList { list: *list, numbers });
                }
                Ok(())
            }
        }
    }
}

async fn write(
    tx: &mut Tx<'_>,
    handles: Handles,
    cells: &[NewVersion],
    events: &mut Vec<Event>,
) -> Result<(), Abort> {
    let update = |new: &NewVersion| {
        let NewVersion { key, version, group } = *new;
        handles.cells.update(key, move |cell| {
            let found = cell.found();
            *cell = Cell::new(version, found.version, group);
            found
        })
    };
    let found = tx.join_all(cells.iter().map(update)).await?;
    for (NewVersion { key, version, group }, found) in cells.iter().copied().zip(found) {
        let found = match found {
            Some(found) => found,
            None => {
                let tomb = tx.get(handles.tombs, key).await?;
                let found = Tomb::found(tomb.as_ref());
                tx.insert(handles.cells, key, Cell::new(version, found.version, group)).await?;
                found
            }
        };
        events.push(Event::Write { key, found, version, group: Some(group) });
    }
    Ok(())
}

async fn delete(
    tx: &mut Tx<'_>,
    handles: Handles,
    key: u64,
    version: u64,
    events: &mut Vec<Event>,
) -> Result<(), Abort> {
    let Some(cell) = tx.delete(handles.cells, key).await? else {
        events.push(Event::Read { what: Predicate::key(key), rows: Vec::new() });
        return Ok(());
    };
    let over = cell.version;
    let bury = handles.tombs.update(key, move |tomb| (tomb.version, tomb.over) = (version, over));
    if tx.run(bury).await?.is_none() {
        tx.insert(handles.tombs, key, Tomb { version, over }).await?;
    }
    events.push(Event::Write { key, found: cell.found(), version, group: None });
    Ok(())
}

async fn read(tx: &mut Tx<'_>, handles: Handles, keys: &[u64], events: &mut Vec<Event>) -> Result<(), Abort> {
    let rows = tx.join_all(keys.iter().map(|key| handles.cells.get(*key))).await?;
    for (key, cell) in keys.iter().zip(rows) {
        let rows = cell.iter().map(|cell| (*key, cell.found())).collect();
        events.push(Event::Read { what: Predicate::key(*key), rows });
    }
    Ok(())
}

async fn read_group(
    tx: &mut Tx<'_>,
    handles: Handles,
    group: u32,
    events: &mut Vec<Event>,
) -> Result<(), Abort> {
    let keys = tx.lookup_all(handles.by_group, KeyRange::prefix(&group), usize::MAX).await?;
    let cells = tx.join_all(keys.iter().map(|key| handles.cells.get(*key))).await?;
    // An entry without its row is told as well: what never was is of no group.
    let found = cells.iter().map(|cell| cell.as_ref().map_or(Found::NEVER, Cell::found));
    events.push(Event::Read { what: Predicate::Group(group), rows: keys.into_iter().zip(found).collect() });
    Ok(())
}

async fn append(
    tx: &mut Tx<'_>,
    handles: Handles,
    list: u64,
    number: u64,
    events: &mut Vec<Event>,
) -> Result<(), Abort> {
    let push = handles.lists.update(list, move |row: &mut Numbers| {
        let has_room = row.list().len() < LIST_MAX;
        if has_room {
            row.push(number);
        }
        has_room
    });
    match tx.run(push).await? {
        Some(true) => {}
        Some(false) => return Ok(()),
        None => tx.insert(handles.lists, list, Numbers::of(number)).await?,
    }
    events.push(Event::Append { list, number });
    Ok(())
}

/// Reads everything there is, by all ways that lead to it.
pub(super) async fn read_everything(tx: &mut Tx<'_>, handles: Handles) -> Result<Vec<Event>, Abort> {
    let mut events = Vec::new();
    let cells = tx.scan(handles.cells, KeyRange::all(), usize::MAX).await?;
    let rows: Vec<(u64, Found)> = cells.into_iter().map(|(key, cell)| (key, cell.found())).collect();
    for (key, tomb) in tx.scan(handles.tombs, KeyRange::all(), usize::MAX).await? {
        if !rows.iter().any(|row| row.0 == key) {
            events.push(Event::Gone { key, found: Tomb::found(Some(&tomb)) });
        }
    }
    events.push(Event::Read { what: Predicate::Keys(0, u64::MAX), rows });
    for group in 0..GROUPS {
        read_group(tx, handles, group, &mut events).await?;
    }
    for (list, row) in tx.scan(handles.lists, KeyRange::all(), usize::MAX).await? {
        events.push(Event::ReadList { list, numbers: row.list() });
    }
    Ok(events)
}
