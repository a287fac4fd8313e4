//! Foreign keys of rows that are loaded.
//!
//! Owns: the look-up of parents on their owners. Never: changes a row, or takes a lock.

use std::collections::BTreeMap;
use std::rc::Rc;

use atrapos_partition::abort::Abort;
use atrapos_partition::partition::Tables;
use atrapos_partition::routing::InstanceId;
use atrapos_partition::schema::{TableId, unknown_table};
use atrapos_runtime::WorkerId;
use atrapos_storage::{DisplayKey, KeyBuf};
use atrapos_transaction::jobs::start_on_worker;
use atrapos_transaction::lending::HeldOff;
use atrapos_transaction::shard::EngineWorker;
use atrapos_transaction::waiting;

use super::LoadError;
use crate::database::{Database, refuse_on_worker};

/// A reference of a row to another one, by an enforced foreign key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The number of the row among those that were given.
    pub row: u64,
    /// The number of the foreign key among the enforced ones of the table, in the order in which they were defined.
    pub foreign_key: usize,
    /// The table referred to.
    pub parent: TableId,
    /// The encoded key of the row referred to.
    pub key: KeyBuf,
}

impl Database {
    /// Returns the references of encoded rows of a table: none for a foreign key with a NULL in it.
    ///
    /// # Errors
    /// A table that does not exist, or rows that are none of it.
    pub fn references_of(&self, table: TableId, rows: &[(KeyBuf, Vec<u8>)]) -> Result<Vec<Reference>, Abort> {
        let catalog = self.catalogs.working();
        let meta = catalog.tables.get(table.at()).ok_or_else(|| unknown_table(table))?;
        let mut references = Vec::new();
        for (number, (key, row)) in (0..).zip(rows) {
            for (foreign_key, parent) in meta.parents.iter().enumerate() {
                if let Some(wanted) = parent.key.call(key, row)? {
                    references.push(Reference {
                        row: number,
                        foreign_key,
                        parent: parent.parent,
                        key: wanted,
                    });
                }
            }
        }
        Ok(references)
    }

    /// Returns those of some references whose parents do not exist, in the order of their rows. It finds rows as they are now, also
    /// those of transactions under way: the caller has a lock of all of a parent's table, or nobody else changes it.
    ///
    /// # Errors
    /// A database that is closing, or a table that has been dropped.
    pub fn without_parents(&self, mut references: Vec<Reference>) -> Result<Vec<Reference>, Abort> {
        refuse_on_worker()?;
        // Each owner looks its keys up in their order, and each once.
        references.sort_unstable_by(|one, other| (one.parent, &one.key).cmp(&(other.parent, &other.key)));
        let _definitions = self.catalogs.keep();
        let _scheme = self.keep_scheme();
        let _held_off = HeldOff::new(&self.handle)?;
        let scheme = self.scheme();
        let mut by_owner: BTreeMap<WorkerId, Vec<Reference>> = BTreeMap::new();
        for reference in references {
            let family = scheme.family(reference.parent);
            let owner = family.owner(family.partition_of(&reference.key));
            by_owner.entry(owner).or_default().push(reference);
        }
        let mut asked = Vec::new();
        for (owner, references) in by_owner {
            asked.push(start_on_worker(&self.handle, owner, move |worker| absent_here(worker, references))?);
        }
        let mut absent = Vec::new();
        for answer in asked {
            absent.extend(waiting::wait(answer)??);
        }
        absent.sort_unstable_by_key(|reference| (reference.row, reference.foreign_key));
        Ok(absent)
    }
}

/// Those of some references, in the order of their parents, whose parents are not on this worker.
fn absent_here(worker: &Rc<EngineWorker>, references: Vec<Reference>) -> Result<Vec<Reference>, Abort> {
    let tables = worker.shard().tables.borrow();
    let (mut absent, mut last): (Vec<Reference>, Option<(TableId, KeyBuf, bool)>) = (Vec::new(), None);
    for reference in references {
        let is_there = match &last {
            Some((parent, key, is_there)) if (*parent, key) == (reference.parent, &reference.key) => {
                *is_there
            }
            _ => {
                let (place, _) = tables.locate(reference.parent, &reference.key);
                let partition = tables.owned_at(place);
                let partition = partition.ok_or_else(|| unknown_table(reference.parent))?;
                let is_there = partition.tree().get(&reference.key).is_some();
                last = Some((reference.parent, reference.key.clone(), is_there));
                is_there
            }
        };
        if !is_there {
            absent.push(reference);
        }
    }
    Ok(absent)
}

/// A parent row that has to exist.
pub(super) struct WantedParent {
    child: TableId,
    parent: TableId,
    key: KeyBuf,
}

impl WantedParent {
    pub(super) fn check(&self, tables: &Tables) -> Result<(), LoadError> {
        let (place, _) = tables.locate(self.parent, &self.key);
        if tables.partition(place).tree().get(&self.key).is_some() {
            return Ok(());
        }
        let names = &tables.catalog.tables;
        Err(LoadError::NoParent {
            child: names[self.child.at()].name,
            parent: names[self.parent.at()].name,
            key: DisplayKey(&self.key).to_string(),
        })
    }
}

/// Checks the enforced foreign keys of the tables just loaded, as far as the parents are on this worker; returns those that
/// other workers have to check. Parents in another instance of a deployment are not checked.
pub(super) fn check_own_parents(
    worker: &Rc<EngineWorker>,
) -> Result<BTreeMap<WorkerId, Vec<WantedParent>>, LoadError> {
    let shard = worker.shard();
    let tables = shard.tables.borrow();
    let loaded = shard.loading.borrow().tables.clone();
    let mut elsewhere: BTreeMap<WorkerId, Vec<WantedParent>> = BTreeMap::new();
    let mut key = KeyBuf::new();
    for (place, partition) in tables.owned().filter(|(place, _)| loaded.contains(&place.table)) {
        for parent in &tables.catalog.tables[place.table.at()].parents {
            let mut last: Option<KeyBuf> = None;
            for entry in partition.tree().range(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded) {
                entry.key_into(&mut key);
                let Some(wanted) = parent.key.call(&key, entry.bytes())? else { continue };
                // Children of one parent are mostly adjacent.
                if last.as_ref() == Some(&wanted) {
                    continue;
                }
                last = Some(wanted.clone());
                let wanted = WantedParent { child: place.table, parent: parent.parent, key: wanted };
                let owner = tables.locate(wanted.parent, &wanted.key).1;
                if owner == worker.id() {
                    wanted.check(&tables)?;
                } else if InstanceId::of_owner(owner).is_none() {
                    elsewhere.entry(owner).or_default().push(wanted);
                }
            }
        }
    }
    Ok(elsewhere)
}
