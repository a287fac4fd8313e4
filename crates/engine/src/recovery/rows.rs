//! Rows of a checkpoint, loaded into the trees of the workers that own them now.
//!
//! Owns: the order in which sections are read. Never: reads the WAL.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use atrapos_durability::checkpoint::PartReader;
use atrapos_partition::partition::PartitionId;
use atrapos_storage::{BulkLoader, TreeConfig};
use atrapos_transaction::shard::EngineWorker;

use super::{RecoveryError, RecoveryProgress};
use crate::load::FILL;

/// Fills a worker's trees with their rows of the checkpoint.
pub(super) fn load_checkpoint(
    worker: &Rc<EngineWorker>,
    parts: &[PartReader],
    progress: &RecoveryProgress,
) -> Result<(), RecoveryError> {
    let shard = worker.shard();
    let places: Vec<PartitionId> = shard.tables.borrow().owned().map(|(place, _)| place).collect();
    let mut buffer = Vec::new();
    for place in places {
        let catalog = shard.catalog();
        let meta = &catalog.tables[place.table.at()];
        let restore =
            |why: &dyn std::fmt::Display| RecoveryError::Restore { table: meta.name, why: why.to_string() };
        let scheme = Arc::clone(&shard.tables.borrow().shards[place.table.at()].scheme);
        let index = scheme.index_of(place.partition).expect("a partition that is owned exists");
        let (lower, upper) = (scheme.lower(index).unwrap_or(&[]), scheme.upper(index));
        // Sections of different parts do not overlap: in order of their lower keys, their rows are in order.
        let mut sections: Vec<(&[u8], &PartReader, usize, std::ops::Range<usize>)> = parts
            .iter()
            .flat_map(|part| {
                let overlapping = part.overlapping(place.table.0, lower, upper);
                overlapping.into_iter().map(move |(section, blocks)| {
                    (part.sections()[section].lower.as_slice(), part, section, blocks)
                })
            })
            .collect();
        sections.sort_by_key(|(lower, ..)| *lower);
        let config = TreeConfig::for_rows_of(meta.expected_row_bytes);
        let mut bulk = BulkLoader::new(config, Arc::clone(&shard.memory), FILL);
        let mut newest = 0;
        for (_, part, section, blocks) in sections {
            for block in blocks {
                let before = bulk.len();
                for entry in part.read_block(section, block, &mut buffer)? {
                    let entry = entry?;
                    if entry.key >= lower && upper.is_none_or(|upper| entry.key < upper) {
                        newest = entry.version.max(newest);
                        bulk.push(entry.key, entry.row, entry.version).map_err(|error| restore(&error))?;
                    }
                }
                progress.0.rows.fetch_add(bulk.len() - before, Ordering::Relaxed);
            }
        }
        let tree = bulk.finish().map_err(|error| restore(&error))?;
        let mut tables = shard.tables.borrow_mut();
        let partition = tables.partition_mut(place);
        partition.replace_tree(tree);
        partition.raise_version(newest);
    }
    Ok(())
}
