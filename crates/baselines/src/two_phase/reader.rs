//! [`ReadingClient`]: a client that locks nothing, for loads that only read.
//!
//! Owns: reads and scans of trees that nobody changes. Never: changes a row: that is refused, since locks are off for all clients of
//! the engine.

use std::sync::Arc;

use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::schema::TableId;
use crossbeam_epoch::{Guard, LocalHandle};

use super::client::Buffers;
use super::engine::Shared;
use super::scan::{first_from, last_below};
use super::transaction::find;
use crate::durable::ClientLog;
use crate::rows::{Branch, Intent, RowTransaction, Visit, VisitChange};
use crate::session::{Attempt, BranchBody, EngineClient};

/// A client that only reads. It stays on the thread that has created it.
pub(super) struct ReadingClient {
    // Before `shared`: the handle must not be the last to know the collector.
    handle: LocalHandle,
    shared: Arc<Shared>,
    buffers: Buffers,
}

impl ReadingClient {
    pub(super) fn new(shared: Arc<Shared>) -> ReadingClient {
        ReadingClient { handle: shared.collector.register(), shared, buffers: Buffers::default() }
    }
}

impl EngineClient for ReadingClient {
    fn attempt(&mut self, body: &mut Attempt<'_>) -> Result<(), Abort> {
        let ReadingClient { handle, shared, buffers } = self;
        body(&mut Reading { shared, buffers, guard: handle.pin() })
    }

    fn attempt_logged(&mut self, body: &mut Attempt<'_>, _log: &mut ClientLog<'_>) -> Result<(), Abort> {
        self.attempt(body)
    }

    fn run_branch(&mut self, _age: u64, body: &mut BranchBody<'_>) -> Result<(), Abort> {
        let ReadingClient { handle, shared, buffers } = self;
        body(&mut Reading { shared, buffers, guard: handle.pin() })
    }

    // Nobody is in the way of who only reads.
    fn back_off(&mut self, _attempt: u32) {}
}

/// A running transaction that only reads.
struct Reading<'c> {
    shared: &'c Shared,
    buffers: &'c mut Buffers,
    guard: Guard,
}

fn refuse<R>() -> Result<R, Abort> {
    let why = "the locks of the engine are off, and the transaction changes rows; switch them on (--locks on), or run a load \
               that only reads";
    Err(Abort::because(AbortReason::Misuse, why))
}

impl Reading<'_> {
    /// Finds the next key of a scan, and puts it into `next`: from `next` on, or below it.
    fn next(&mut self, table: TableId, backward: bool, bounded: bool) -> Result<bool, Abort> {
        let tree = self.shared.tree(table)?;
        Ok(if backward {
            last_below(tree, self.buffers, bounded, &self.guard)
        } else {
            first_from(tree, self.buffers, &self.guard)
        })
    }
}

impl RowTransaction for Reading<'_> {
    fn read(&mut self, table: TableId, key: &[u8], _intent: Intent) -> Result<Option<&[u8]>, Abort> {
        let Some(record) = find(self.shared.tree(table)?, key, &self.guard) else { return Ok(None) };
        record.read(&mut self.buffers.row);
        Ok(Some(self.buffers.row.bytes()))
    }

    fn insert(&mut self, _table: TableId, _key: &[u8], _row: &[u8]) -> Result<bool, Abort> {
        refuse()
    }

    fn replace(&mut self, _table: TableId, _key: &[u8], _row: &[u8]) -> Result<(), Abort> {
        refuse()
    }

    fn remove(&mut self, _table: TableId, _key: &[u8]) -> Result<bool, Abort> {
        refuse()
    }

    fn scan(
        &mut self,
        table: TableId,
        (lower, upper): (&[u8], Option<&[u8]>),
        backward: bool,
        visit: &mut Visit<'_>,
    ) -> Result<bool, Abort> {
        let from = if backward { upper.unwrap_or(&[]) } else { lower };
        from.clone_into(&mut self.buffers.next);
        let mut bounded = upper.is_some();
        while self.next(table, backward, bounded)? {
            let key = &self.buffers.next;
            let is_within = if backward {
                key.as_slice() >= lower
            } else {
                upper.is_none_or(|upper| key.as_slice() < upper)
            };
            if !is_within {
                break;
            }
            if let Some(record) = find(self.shared.tree(table)?, key, &self.guard) {
                record.read(&mut self.buffers.row);
                if visit(&self.buffers.next, self.buffers.row.bytes())?.is_break() {
                    return Ok(true);
                }
            }
            bounded = true;
            if !backward {
                self.buffers.next.push(0);
            }
        }
        Ok(false)
    }
}

// There is nothing to lock, to validate or to undo where nothing changes.
impl Branch for Reading<'_> {
    fn has_changes(&self) -> bool {
        false
    }

    fn is_optimistic(&self) -> bool {
        false
    }

    fn replace_read(&mut self, _table: TableId, _key: &[u8], _row: &[u8]) -> Result<(), Abort> {
        refuse()
    }

    fn lock(&mut self) -> Result<(), Abort> {
        Ok(())
    }

    fn validate(&mut self) -> Result<(), Abort> {
        Ok(())
    }

    fn for_each_change(&mut self, _visit: &mut VisitChange<'_>) {}

    fn commit(&mut self) {}

    fn commit_alone(&mut self, _log: Option<&mut ClientLog<'_>>) -> Result<(), Abort> {
        Ok(())
    }

    fn abort(&mut self, _why: &Abort) {}
}
