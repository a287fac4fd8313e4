//! The tables of these histories, the procedure that works on them, and its steps.
//!
//! A row says which version it is, and which one that has replaced; a row that was removed leaves both in a tomb, which is read when the
//! key is written again. Readers of ranges touch no tomb: only the locks on the rows and on what lies between them keep rows from being
//! inserted or removed meanwhile.
//!
//! Owns: what a step does, and which events it is. Never: draws a step, or records anything.

use atrapos::{Abort, Handles, KeyRange, RegisterError, Registry, Schema, Table, TableRef, Transaction, row};
use atrapos_history::{Event, Found, Predicate};
use serde::{Deserialize, Serialize};

/// The first key of instance 1; smaller ones are of instance 0.
pub(super) const CUT: u64 = 5;

/// Keys of all rows, from the first to below the last. They are so few that each worker has two or three.
pub(super) const KEYS: (u64, u64) = (0, 2 * CUT);

/// A row of each instance that transactions over both instances do not use.
pub(super) const LOCAL: [u64; 2] = [0, 2 * CUT - 1];

/// Keys of the rows that they use, from the first to below the last: as many of one instance as of the other.
pub(super) const SHARED: (u64, u64) = (1, 2 * CUT - 1);

row! { #[derive(Clone)] pub(super) struct Versioned { version: u64, over: u64 } }

#[derive(Debug)]
pub(super) struct Versions;

impl Table for Versions {
    type Key = u64;
    type Row = Versioned;
    const NAME: &'static str = "versions";
}

/// The removals of rows.
#[derive(Debug)]
pub(super) struct Tombs;

impl Table for Tombs {
    type Key = u64;
    type Row = Versioned;
    const NAME: &'static str = "tombs";
}

pub(super) fn schema() -> Schema {
    let (from, to) = KEYS;
    let tables = Schema::new().table::<Versions>().table::<Tombs>();
    tables.split_evenly(Versions::NAME, from, to - 1).split_evenly(Tombs::NAME, from, to - 1)
}

pub(super) fn register(registry: &mut Registry, handles: &impl Handles) -> Result<(), RegisterError> {
    registry.register::<Steps>(handles)
}

/// One step of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Step {
    Get {
        key: u64,
    },
    /// Gives a key a new version, whether it has a row or not.
    Put {
        key: u64,
        version: u64,
    },
    /// Removes a row, if there is one.
    Remove {
        key: u64,
        version: u64,
    },
    /// Reads at most so many rows with keys from one (included) to another (excluded).
    Scan {
        from: u64,
        to: u64,
        backward: bool,
        limit: usize,
    },
    /// Reads all tombs.
    Tombs,
}

/// A state of a key that a step has found: the key, the version, the one that it has replaced, and whether there is a row.
pub(super) type Seen = (u64, u64, u64, bool);

atrapos::stored_procedures! {
    /// Makes steps one after the other, at the home of a key. Returns what each has found.
    pub(super) Steps("test.steps", "steps") { home: u64, steps: Vec<Step> } -> Vec<Vec<Seen>>;
    tables (TableRef<Versions>, TableRef<Tombs>): |db| Ok((db.table()?, db.table()?));
    home: |own, tables| tables.0.at(&own.home);
    run: |own, tx, tables| async move {
        let mut seen = Vec::new();
        for (at, step) in own.steps.iter().enumerate() {
            if at + 1 == own.steps.len() && matches!(step, Step::Get { .. }) {
                tx.declare_last();
            }
            seen.push(step.make(tx, *tables).await?);
        }
        Ok(seen)
    };
}

impl Step {
    /// A scan of all rows.
    pub(super) const ALL: Step = Step::Scan { from: KEYS.0, to: KEYS.1, backward: false, limit: usize::MAX };

    /// The version that it writes, if it writes one.
    pub(super) fn version(&mut self) -> Option<&mut u64> {
        match self {
            Step::Put { version, .. } | Step::Remove { version, .. } => Some(version),
            _ => None,
        }
    }

    /// Returns the key and the version that it may write.
    pub(super) fn writes(&self) -> Option<(u64, u64)> {
        match self {
            Step::Put { key, version } | Step::Remove { key, version } => Some((*key, *version)),
            _ => None,
        }
    }

    async fn make(
        &self,
        tx: &mut impl Transaction,
        (rows, tombs): (TableRef<Versions>, TableRef<Tombs>),
    ) -> Result<Vec<Seen>, Abort> {
        let seen = |is_row: bool| move |(key, row): (u64, Versioned)| (key, row.version, row.over, is_row);
        Ok(match *self {
            Step::Get { key } => {
                tx.get(rows, key).await?.map(|row| seen(true)((key, row))).into_iter().collect()
            }
            Step::Put { key, version } => {
                let row = tx.get(rows, key).await?;
                let is_row = row.is_some();
                let found = if is_row { row } else { tx.get(tombs, key).await? };
                let new = Versioned { version, over: found.as_ref().map_or(0, |found| found.version) };
                if is_row {
                    tx.update(rows, key, move |row| *row = new).await?;
                } else {
                    tx.insert(rows, key, new).await?;
                }
                found.map(|found| seen(is_row)((key, found))).into_iter().collect()
            }
            Step::Remove { key, version } => {
                let Some(row) = tx.delete(rows, key).await? else { return Ok(Vec::new()) };
                let tomb = Versioned { version, over: row.version };
                let again = tomb.clone();
                if tx.update(tombs, key, move |row| *row = again).await?.is_none() {
                    tx.insert(tombs, key, tomb).await?;
                }
                vec![seen(true)((key, row))]
            }
            Step::Scan { from, to, backward, limit } => {
                let range = KeyRange::between(&from, &to);
                let found = if backward {
                    tx.scan_backward(rows, range, limit).await?
                } else {
                    tx.scan(rows, range, limit).await?
                };
                found.into_iter().map(seen(true)).collect()
            }
            Step::Tombs => {
                let found = tx.scan(tombs, KeyRange::all(), usize::MAX).await?;
                found.into_iter().map(seen(false)).collect()
            }
        })
    }

    /// Returns what it was, as it has found this. `rows` are the keys that the transaction has found rows of before.
    fn events(self, found: &[Seen], rows: &mut Vec<u64>) -> Vec<Event> {
        let state = |seen: &Seen| Found { version: seen.1, over: seen.2, group: seen.3.then_some(0) };
        let read = |what| {
            let rows = found.iter().map(|seen| (seen.0, state(seen))).collect();
            vec![Event::Read { what, rows }]
        };
        match self {
            Step::Get { key } => read(Predicate::key(key)),
            Step::Put { key, version } => {
                let found = found.first().map_or(Found::NEVER, state);
                vec![Event::Write { key, found, version, group: Some(0) }]
            }
            Step::Remove { key, version } => match found.first() {
                Some(seen) => vec![Event::Write { key, found: state(seen), version, group: None }],
                None => read(Predicate::key(key)),
            },
            Step::Scan { from, to, backward, limit } => {
                rows.extend(found.iter().map(|seen| seen.0));
                // A scan that was stopped has read as far as its last row.
                let (from, to) = match found.last() {
                    Some(last) if found.len() == limit && backward => (last.0, to),
                    Some(last) if found.len() == limit => (from, last.0 + 1),
                    _ => (from, to),
                };
                read(Predicate::Keys(from, to))
            }
            Step::Tombs => {
                let gone = found.iter().filter(|seen| !rows.contains(&seen.0));
                gone.map(|seen| Event::Gone { key: seen.0, found: state(seen) }).collect()
            }
        }
    }
}

/// Returns what steps were that have found this.
pub(super) fn events(steps: &[Step], found: &[Vec<Seen>]) -> Vec<Event> {
    let mut rows = Vec::new();
    steps.iter().zip(found).flat_map(|(step, found)| step.events(found, &mut rows)).collect()
}
