//! Foreign keys of the rows that a load has added.
//!
//! Owns: the look-up of parents on their owners. Never: changes a row.

use std::collections::BTreeMap;
use std::rc::Rc;

use atrapos_partition::partition::Tables;
use atrapos_partition::routing::InstanceId;
use atrapos_partition::schema::TableId;
use atrapos_runtime::WorkerId;
use atrapos_storage::{DisplayKey, KeyBuf};
use atrapos_transaction::shard::EngineWorker;

use super::LoadError;

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
