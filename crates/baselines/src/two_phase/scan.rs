//! Scans of a running transaction, its own changes included.
//!
//! Owns: the order in which the keys and gaps of a range are locked. Never: visits a row before its key is locked, or one key twice.
//!
//! A key is looked for, locked with the gap below it, and looked for again: if another one is the next by then, that one is locked, too.
//! What is locked in vain stays locked; it is rare.

use std::ops::ControlFlow;
use std::ptr::NonNull;

use atrapos_partition::abort::Abort;
use atrapos_partition::schema::TableId;
use crossbeam_epoch::Guard;

use super::client::{Buffers, LockingClient};
use super::transaction::{LockingTransaction, find};
use crate::lock::{KeyMode, KeyOrEnd};
use crate::planted::{Bug, planted};
use crate::rows::Visit;
use crate::tree::Tree;
use crate::tree::record::{ABSENT, Record};

/// Finds the smallest key in the tree that is not below `buffers.next`, and puts it there; returns false if there is none.
pub(super) fn first_from(tree: &Tree, buffers: &mut Buffers, guard: &Guard) -> bool {
    let Buffers { next, page, .. } = buffers;
    loop {
        let edge = tree.page_from(next, page, guard).edge;
        if let Some(first) = page.first().copied().and_then(NonNull::new) {
            // SAFETY: it was in the tree after the transaction was pinned.
            let record = unsafe { Record::from_pointer(first) };
            record.key().clone_into(next);
            return true;
        }
        match edge {
            Some(edge) => edge.clone_into(next),
            None => return false,
        }
    }
}

/// Finds the greatest key in the tree below `buffers.next`, or of all if it is not `bounded`, and puts it there; returns false if
/// there is none.
pub(super) fn last_below(tree: &Tree, buffers: &mut Buffers, mut bounded: bool, guard: &Guard) -> bool {
    let Buffers { next, page, .. } = buffers;
    loop {
        let edge = tree.page_before(bounded.then_some(&next[..]), page, guard).edge;
        if let Some(last) = page.first().copied().and_then(NonNull::new) {
            // SAFETY: it was in the tree after the transaction was pinned.
            let record = unsafe { Record::from_pointer(last) };
            record.key().clone_into(next);
            return true;
        }
        match edge {
            Some(edge) => edge.clone_into(next),
            None => return false,
        }
        bounded = true;
    }
}

impl LockingTransaction<'_> {
    pub(super) fn scan_forward(
        &mut self,
        table: TableId,
        (lower, upper): (&[u8], Option<&[u8]>),
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, Abort> {
        lower.clone_into(&mut self.client.buffers.cursor);
        loop {
            let LockingClient { shared, agent, buffers, .. } = &mut *self.client;
            let tree = shared.tree(table)?;
            let find_next = |buffers: &mut Buffers| {
                buffers.cursor.clone_into(&mut buffers.next);
                first_from(tree, buffers, &self.guard)
            };
            let mut is_there = find_next(buffers);
            let within = loop {
                let found = std::mem::take(&mut buffers.next);
                let within = is_there && upper.is_none_or(|upper| found.as_slice() < upper);
                let next = if is_there { KeyOrEnd::Key(&found) } else { KeyOrEnd::End };
                if planted(Bug::ScansWithoutGaps) {
                    agent.lock(table, next, KeyMode::READ)?;
                } else {
                    let mode = if within { KeyMode::READ | KeyMode::PROTECT } else { KeyMode::PROTECT };
                    agent.lock(table, next, mode)?;
                }
                let was_there = std::mem::replace(&mut is_there, find_next(buffers));
                if was_there == is_there && (!is_there || found == buffers.next) {
                    break within;
                }
            };
            if !within {
                return Ok(ControlFlow::Continue(()));
            }
            std::mem::swap(&mut buffers.cursor, &mut buffers.next);
            if self.visit_cursor(table, visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            self.client.buffers.cursor.push(0);
        }
    }

    pub(super) fn scan_backward(
        &mut self,
        table: TableId,
        (lower, upper): (&[u8], Option<&[u8]>),
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, Abort> {
        let mut bounded = upper.is_some();
        upper.unwrap_or(&[]).clone_into(&mut self.client.buffers.cursor);
        self.protect_above(table, upper)?;
        loop {
            let LockingClient { shared, agent, buffers, .. } = &mut *self.client;
            let tree = shared.tree(table)?;
            let find_last = |buffers: &mut Buffers| {
                buffers.cursor.clone_into(&mut buffers.next);
                last_below(tree, buffers, bounded, &self.guard) && buffers.next.as_slice() >= lower
            };
            let mut is_there = find_last(buffers);
            // The gap above what is found is protected, so nothing can come into it; but what is there may go.
            while is_there {
                let found = std::mem::take(&mut buffers.next);
                agent.lock(table, KeyOrEnd::Key(&found), KeyMode::READ)?;
                is_there = find_last(buffers);
                if is_there && found == buffers.next {
                    break;
                }
            }
            if !is_there {
                return Ok(ControlFlow::Continue(()));
            }
            std::mem::swap(&mut buffers.cursor, &mut buffers.next);
            bounded = true;
            if self.visit_cursor(table, visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            let LockingClient { agent, buffers, .. } = &mut *self.client;
            agent.lock(table, KeyOrEnd::Key(&buffers.cursor), KeyMode::PROTECT)?;
        }
    }

    /// Protects the gap in which a backward scan begins: that below the first key that is not below `upper`, or below the end.
    fn protect_above(&mut self, table: TableId, upper: Option<&[u8]>) -> Result<(), Abort> {
        let LockingClient { shared, agent, buffers, .. } = &mut *self.client;
        let Some(upper) = upper else { return agent.lock(table, KeyOrEnd::End, KeyMode::PROTECT) };
        let tree = shared.tree(table)?;
        let find_next = |buffers: &mut Buffers| {
            upper.clone_into(&mut buffers.next);
            first_from(tree, buffers, &self.guard)
        };
        let mut is_there = find_next(buffers);
        loop {
            let found = std::mem::take(&mut buffers.next);
            let next = if is_there { KeyOrEnd::Key(&found) } else { KeyOrEnd::End };
            agent.lock(table, next, KeyMode::PROTECT)?;
            let was_there = std::mem::replace(&mut is_there, find_next(buffers));
            if was_there == is_there && (!is_there || found == buffers.next) {
                return Ok(());
            }
        }
    }

    /// Visits the row of the key at the cursor, which is locked, if it has one.
    fn visit_cursor(&mut self, table: TableId, visit: &mut Visit<'_>) -> Result<ControlFlow<()>, Abort> {
        let LockingClient { shared, buffers, .. } = &mut *self.client;
        let Some(record) = find(shared.tree(table)?, &buffers.cursor, &self.guard) else {
            return Ok(ControlFlow::Continue(()));
        };
        if record.read(&mut buffers.row) & ABSENT != 0 {
            return Ok(ControlFlow::Continue(()));
        }
        visit(&buffers.cursor, buffers.row.bytes())
    }
}
