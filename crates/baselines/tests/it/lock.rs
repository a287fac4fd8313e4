//! The lock manager: schedules on one thread against a model, and threads against invariants.

mod model;
mod protocol;
mod scenarios;
mod threads;

use std::sync::Arc;

use atrapos_baselines::lock::{Agent, KeyOrEnd, LockManager, LockOptions};
use atrapos_partition::schema::TableId;

const TABLE: TableId = TableId(0);

/// A lock manager whose buckets are few, so that queues share them.
fn crowded(inherit: bool) -> Arc<LockManager> {
    LockManager::new(LockOptions { buckets: 2, inherit, ..LockOptions::default() })
}

/// Agents with running transactions, the first one the oldest.
fn agents<const COUNT: usize>(manager: &Arc<LockManager>) -> [Agent; COUNT] {
    let mut stamp = 0;
    std::array::from_fn(|_| {
        let mut agent = manager.agent();
        stamp += 1;
        agent.begin(stamp);
        agent
    })
}

fn key(bytes: &[u8]) -> KeyOrEnd<'_> {
    KeyOrEnd::Key(bytes)
}
