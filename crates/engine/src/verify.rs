//! Verification of a database at rest: every tree keeps its invariants, every row lies in the partition it belongs
//! to, every index agrees with its table in both directions, every enforced foreign key has its parent, and no lock is
//! left behind.
//!
//! Indexes are compared in slices, so the memory it takes does not grow with the database.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;

use atrapos_partition::abort::Abort;
use atrapos_partition::partition::{PartitionId, Tables};
use atrapos_partition::routing::InstanceId;
use atrapos_partition::schema::{TableId, TreeKind};
use atrapos_runtime::WorkerId;
use atrapos_storage::{DisplayKey, KeyBuf};
use atrapos_transaction::shard::EngineWorker;

use crate::database::Database;

/// Violations that verification finds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// A tree breaks one of its invariants.
    #[error("'{table}': {what}")]
    Tree {
        /// The table or index.
        table: &'static str,
        /// The invariant, and the place of the violation.
        what: String,
    },
    /// A row lies in a partition it does not belong to.
    #[error("'{table}': key {key} lies in a partition it does not belong to")]
    Misplaced {
        /// The table or index.
        table: &'static str,
        /// The key, readable.
        key: String,
    },
    /// An index and its table disagree.
    #[error("index '{index}' and its table disagree: {what}")]
    Index {
        /// The index.
        index: &'static str,
        /// The difference.
        what: String,
    },
    /// A row refers to one that is not there.
    #[error("a row of '{child}' refers to key {key} of '{parent}', which has no such row")]
    NoParent {
        /// The table of the row.
        child: &'static str,
        /// The table referred to.
        parent: &'static str,
        /// The missing key, readable.
        key: String,
    },
    /// A lock is held although no transaction is running.
    #[error("'{table}': {held} locks are held and {waiting} requests wait although no transaction runs")]
    Locks {
        /// The table or index.
        table: &'static str,
        /// Locks held.
        held: usize,
        /// Requests that wait.
        waiting: usize,
    },
    /// The database is closing.
    #[error(transparent)]
    Aborted(#[from] Abort),
}

/// Numbers of verified items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// Rows of tables.
    pub rows: u64,
    /// Entries of indexes.
    pub entries: u64,
    /// References of enforced foreign keys.
    pub references: u64,
}

/// Rows verified per slice: bounds both memory and the pause of the worker.
const SLICE: usize = 1 << 14;

/// A parent row or index entry that must be in a tree of another worker.
#[derive(Clone, Debug)]
struct Wanted {
    /// The table whose row requires it.
    by: TableId,
    table: TableId,
    key: KeyBuf,
    /// The primary key that it must lead to, for an index entry.
    leads_to: Option<KeyBuf>,
}

impl Database {
    /// Verifies the whole database. No transaction should be running. An instance of a deployment verifies its own trees, with
    /// the entries and parents of its rows as far as they are its own too.
    ///
    /// # Errors
    /// The first violation found.
    pub fn verify(&self) -> Result<Verification, VerifyError> {
        let _definitions = self.catalogs.keep();
        // A transaction is reported before its participants have heard of its end.
        let _scheme = self.keep_scheme();
        self.settle()?;
        let mut sum = Verification::default();
        for counted in self.on_all_workers(verify_trees)? {
            let (rows, entries) = counted?;
            sum.rows += rows;
            sum.entries += entries;
        }
        let mut entries_wanted = vec![0_u64; self.catalogs.working().tables.len()];
        for worker in (0..self.workers()).map(|worker| WorkerId(worker as u16)) {
            let places = self.on_worker(worker, |worker| {
                let tables = worker.shard().tables.borrow();
                let follows = |place: &PartitionId| tables.catalog.tables[place.table.at()].has_dependents;
                tables.owned().map(|(place, _)| place).filter(follows).collect::<Vec<_>>()
            })?;
            for place in places {
                self.verify_followers(worker, place, &mut entries_wanted, &mut sum)?;
            }
        }
        if self.division.is_some() {
            // Rows and entries of other instances are not counted here.
            return Ok(sum);
        }
        // Every row has its entries; when the numbers agree too, no entry is without its row.
        for (at, wanted) in entries_wanted.into_iter().enumerate() {
            let catalog = self.catalogs.working();
            let meta = &catalog.tables[at];
            if let TreeKind::Entries { .. } = meta.kind {
                let there = self.count(TableId(at as u16))?;
                if there != wanted {
                    return Err(VerifyError::Index {
                        index: meta.name,
                        what: format!("{there} entries for {wanted} rows"),
                    });
                }
            }
        }
        Ok(sum)
    }

    fn verify_followers(
        &self,
        worker: WorkerId,
        place: PartitionId,
        entries_wanted: &mut [u64],
        sum: &mut Verification,
    ) -> Result<(), VerifyError> {
        let mut next = Some(KeyBuf::new());
        while let Some(from) = next {
            let slice = self.on_worker(worker, move |worker| verify_slice(worker, place, &from))??;
            next = slice.next;
            for (at, wanted) in slice.entries {
                entries_wanted[at.at()] += wanted;
            }
            sum.references += slice.references;
            for (owner, wanted) in slice.elsewhere {
                self.on_worker(owner, move |worker| {
                    let tables = worker.shard().tables.borrow();
                    wanted.iter().try_for_each(|wanted| check_wanted(&tables, wanted))
                })??;
            }
        }
        Ok(())
    }
}

/// Checks each tree of a worker by itself, and that no lock is left. Returns the numbers of rows and entries.
fn verify_trees(worker: &Rc<EngineWorker>) -> Result<(u64, u64), VerifyError> {
    let shard = worker.shard();
    let tables = shard.tables.borrow();
    let (mut rows, mut entries) = (0, 0);
    for (place, partition) in tables.owned() {
        let meta = &tables.catalog.tables[place.table.at()];
        let table = meta.name;
        partition.tree().check().map_err(|error| VerifyError::Tree { table, what: error.to_string() })?;
        let scheme = &tables.shards[place.table.at()].scheme;
        for key in [partition.tree().first_key(), partition.tree().last_key()].into_iter().flatten() {
            if scheme.number(scheme.partition_of(&key)) != place.partition {
                return Err(VerifyError::Misplaced { table, key: DisplayKey(&key).to_string() });
            }
        }
        let pending = partition.tree().pending_changes();
        if pending > 0 {
            let what = format!("pages are set aside for {pending} changes although no transaction runs");
            return Err(VerifyError::Tree { table, what });
        }
        let (held, waiting) = (partition.locks.held_len(), partition.locks.waiting_len());
        if held + waiting > 0 {
            return Err(VerifyError::Locks { table, held, waiting });
        }
        match meta.kind {
            TreeKind::Rows => rows += partition.tree().len(),
            TreeKind::Entries { .. } | TreeKind::Dropped => entries += partition.tree().len(),
        }
    }
    Ok((rows, entries))
}

struct Slice {
    next: Option<KeyBuf>,
    entries: BTreeMap<TableId, u64>,
    references: u64,
    elsewhere: BTreeMap<WorkerId, Vec<Wanted>>,
}

/// Verifies some rows of a partition, from `from` on: checks their entries and parents as far as these are on this worker,
/// and returns those that other workers have to check.
fn verify_slice(worker: &Rc<EngineWorker>, place: PartitionId, from: &KeyBuf) -> Result<Slice, VerifyError> {
    let shard = worker.shard();
    let tables = shard.tables.borrow();
    let meta = &tables.catalog.tables[place.table.at()];
    let mut slice = Slice { next: None, entries: BTreeMap::new(), references: 0, elsewhere: BTreeMap::new() };
    let tree = tables.partition(place).tree();
    let mut key = KeyBuf::new();
    for (seen, row) in tree.range(Bound::Included(&**from), Bound::Unbounded).enumerate() {
        row.key_into(&mut key);
        if seen == SLICE {
            slice.next = Some(key);
            break;
        }
        let mut wanted = Vec::new();
        for index in &meta.indexes {
            let entry = index.entry(&key, row.bytes())?;
            *slice.entries.entry(index.id).or_default() += 1;
            wanted.push(Wanted { by: place.table, table: index.id, key: entry, leads_to: Some(key.clone()) });
        }
        for parent in &meta.parents {
            let Some(parent_key) = parent.key.call(&key, row.bytes())? else { continue };
            slice.references += 1;
            wanted.push(Wanted { by: place.table, table: parent.parent, key: parent_key, leads_to: None });
        }
        for wanted in wanted {
            let owner = tables.locate(wanted.table, &wanted.key).1;
            if owner == worker.id() {
                check_wanted(&tables, &wanted)?;
            } else if InstanceId::of_owner(owner).is_none() {
                slice.elsewhere.entry(owner).or_default().push(wanted);
            }
        }
    }
    Ok(slice)
}

fn check_wanted(tables: &Tables, wanted: &Wanted) -> Result<(), VerifyError> {
    let names = &tables.catalog.tables;
    let (place, _) = tables.locate(wanted.table, &wanted.key);
    let found = tables.partition(place).tree().get(&wanted.key);
    match (&wanted.leads_to, found) {
        (None, Some(_)) => Ok(()),
        (Some(primary_key), Some(entry)) if *entry.bytes == **primary_key => Ok(()),
        (None, None) => Err(VerifyError::NoParent {
            child: names[wanted.by.at()].name,
            parent: names[wanted.table.at()].name,
            key: DisplayKey(&wanted.key).to_string(),
        }),
        (Some(primary_key), found) => Err(VerifyError::Index {
            index: names[wanted.table.at()].name,
            what: format!(
                "the entry {} of row {} {}",
                DisplayKey(&wanted.key),
                DisplayKey(primary_key),
                if found.is_some() { "leads to another row" } else { "is missing" },
            ),
        }),
    }
}
