//! Damage to a database at rest, which [`Database::verify`] has to detect. Only in builds with debug assertions.

use atrapos_partition::abort::Abort;
use atrapos_partition::planted::{Damage, damage_partition};
use atrapos_partition::schema::TableId;
use atrapos_runtime::WorkerId;

use crate::database::Database;

/// Damages the part of a table or index that a worker owns. Returns false if there was nothing to damage.
///
/// # Errors
/// Fails if the database is shutting down.
pub fn damage(db: &Database, table: TableId, worker: WorkerId, damage: Damage) -> Result<bool, Abort> {
    db.on_worker(worker, move |worker| {
        let mut tables = worker.shard().tables.borrow_mut();
        let filled = tables.owned().find(|(place, part)| place.table == table && !part.tree().is_empty());
        let Some(place) = filled.map(|(place, _)| place) else { return false };
        damage_partition(&mut tables, place, damage)
    })
}
