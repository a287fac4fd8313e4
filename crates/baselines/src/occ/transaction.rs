//! [`OccTransaction`]: the operations of a running transaction on single rows.
//!
//! Owns: the guard that keeps everything it has seen allocated. Never: locks anything, or changes a row: its commit does.
//!
//! # Why the unsafe code is sound
//! The pointers in the sets came from the tree while the transaction's guard was pinned. The guard is released after the sets
//! are emptied, so they can be followed as long as they are there.

use std::ops::ControlFlow;
use std::ptr::NonNull;

use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::schema::TableId;
use crossbeam_epoch::Guard;

use super::client::OccClient;
use super::engine::check_lengths;
use super::sets::{NodeRead, Read, Write};
use crate::planted::{Bug, pause, planted};
use crate::rows::{Intent, RowTransaction, Visit};
use crate::tree::node::{FIRST_VERSION, NodeRef};
use crate::tree::record::{ABSENT, Header, OBSOLETE, Record};
use crate::tree::sync::Spin;
use crate::tree::{Found, Insertion};

/// A running transaction of an [`OccClient`]. It changes nothing that others see as a row before it commits. Dropping it
/// aborts it.
pub struct OccTransaction<'c> {
    pub(super) client: &'c mut OccClient,
    pub(super) guard: Guard,
    pub(super) has_ended: bool,
    /// The epoch in which the rows of the write set were locked, if they are and the commit is made in steps.
    pub(super) locked_in: Option<u64>,
}

/// Finds of a search for a row.
enum State {
    /// A row that this transaction is going to write, at this place of its write set.
    Own(usize),
    /// A row, which was copied to the buffer.
    Row(NonNull<Header>),
    /// No row.
    Absent,
}

impl<'c> OccTransaction<'c> {
    #[inline]
    pub(super) fn new(client: &'c mut OccClient, guard: Guard) -> OccTransaction<'c> {
        OccTransaction { client, guard, has_ended: false, locked_in: None }
    }

    /// A record of one of the sets.
    #[inline]
    pub(super) fn record(&self, record: NonNull<Header>) -> Record<'_> {
        // SAFETY: see the module's introduction.
        unsafe { Record::from_pointer(record) }
    }

    /// A leaf of the node set.
    #[inline]
    pub(super) fn leaf(&self, entry: NodeRead) -> NodeRef<'_> {
        // SAFETY: see the module's introduction.
        unsafe { NodeRef::from_pointer(entry.leaf) }
    }

    /// Adds a record to the read set.
    #[inline]
    pub(super) fn note_read(reads: &mut Vec<Read>, record: NonNull<Header>, tid: u64) {
        reads.push(Read { record, tid });
    }

    /// Adds a leaf to the node set.
    #[inline]
    pub(super) fn note_node(nodes: &mut Vec<NodeRead>, leaf: NonNull<crate::tree::node::Node>, version: u64) {
        let is_last = nodes.last().is_some_and(|last| last.leaf == leaf && last.version == version);
        if !is_last {
            nodes.push(NodeRead { leaf, version });
        }
    }

    /// Searches for a row, copies it to the buffer, and notes what was found.
    #[inline]
    fn search(&mut self, table: TableId, key: &[u8]) -> Result<State, Abort> {
        let OccClient { shared, buffers, .. } = &mut *self.client;
        let tree = shared.tree(table)?;
        let mut spin = Spin::default();
        loop {
            match tree.find(key, &self.guard) {
                Found::Nothing(leaf, version) => {
                    Self::note_node(&mut buffers.nodes, leaf.pointer(), version);
                    return Ok(State::Absent);
                }
                Found::Record(record) => {
                    let pointer = record.pointer();
                    if let Some(at) = buffers.writes.find(pointer) {
                        return Ok(State::Own(at));
                    }
                    let tid = record.read(&mut buffers.row);
                    if tid & OBSOLETE == 0 || (tid & ABSENT == 0 && planted(Bug::ObsoleteIgnored)) {
                        Self::note_read(&mut buffers.reads, pointer, tid);
                        return Ok(if tid & ABSENT == 0 { State::Row(pointer) } else { State::Absent });
                    }
                    // It has just left the tree.
                    spin.wait();
                }
            }
        }
    }

    /// The record of a row that was read lately, if it is not in the write set.
    #[inline]
    fn recall(&self, table: TableId, key: &[u8]) -> Option<Read> {
        let buffers = &self.client.buffers;
        let mut recent = buffers.recent(table).filter(|record| self.record(*record).key() == key);
        let record = recent.next()?;
        if buffers.writes.find(record).is_some() {
            return None;
        }
        // What was read to be replaced is mostly what was read last.
        buffers.reads.iter().rev().find(|read| read.record == record).copied()
    }

    fn replace_row(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Result<(), Abort> {
        check_lengths(key, row)?;
        if let Some(Read { record, tid }) = self.recall(table, key) {
            let write = Write { record, tid, table, is_own: false, row: None };
            self.client.buffers.writes.add(write, Some(row));
            return Ok(());
        }
        match self.search(table, key)? {
            State::Own(at) if self.client.buffers.writes.row(at).is_some() => {
                self.client.buffers.writes.set(at, Some(row));
                Ok(())
            }
            State::Row(record) => {
                self.add_write(table, record, Some(row));
                Ok(())
            }
            State::Own(_) | State::Absent => {
                Err(Abort::because(AbortReason::Misuse, "a row was to be replaced that is not there"))
            }
        }
    }

    /// Adds the record that was read last to the write set.
    fn add_write(&mut self, table: TableId, record: NonNull<Header>, row: Option<&[u8]>) {
        let buffers = &mut self.client.buffers;
        let tid = buffers.reads.last().map_or(ABSENT, |read| read.tid);
        buffers.writes.add(Write { record, tid, table, is_own: false, row: None }, row);
    }

    fn insert_row(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Result<bool, Abort> {
        check_lengths(key, row)?;
        let OccClient { shared, buffers, counters, .. } = &mut *self.client;
        let tree = shared.tree(table)?;
        let mut spin = Spin::default();
        loop {
            let make = || Record::allocate(key, row.len(), ABSENT);
            let record = match tree.insert(key, make, &self.guard) {
                Insertion::Existing(record) => record,
                Insertion::New { record, leaf, before, after, right } => {
                    counters.record_added(record.memory());
                    let record = record.pointer();
                    let write = Write { record, tid: ABSENT, table, is_own: true, row: None };
                    buffers.writes.add(write, Some(row));
                    pause();
                    return take_over(&mut buffers.nodes, leaf, (before, after), right).map(|()| true);
                }
            };
            let pointer = record.pointer();
            if let Some(at) = buffers.writes.find(pointer) {
                let is_absent = buffers.writes.row(at).is_none();
                if is_absent {
                    buffers.writes.set(at, Some(row));
                }
                return Ok(is_absent);
            }
            let tid = record.tid();
            if tid & OBSOLETE != 0 {
                spin.wait();
                continue;
            }
            Self::note_read(&mut buffers.reads, pointer, tid);
            if tid & ABSENT == 0 {
                return Ok(false);
            }
            // Another transaction is about to insert the key: the first to commit wins.
            buffers.writes.add(Write { record: pointer, tid, table, is_own: false, row: None }, Some(row));
            return Ok(true);
        }
    }

    fn remove_row(&mut self, table: TableId, key: &[u8]) -> Result<bool, Abort> {
        if let Some(Read { record, tid }) = self.recall(table, key) {
            self.client.buffers.writes.add(Write { record, tid, table, is_own: false, row: None }, None);
            return Ok(true);
        }
        match self.search(table, key)? {
            State::Own(at) => {
                let was_there = self.client.buffers.writes.row(at).is_some();
                self.client.buffers.writes.set(at, None);
                Ok(was_there)
            }
            State::Row(record) => {
                self.add_write(table, record, None);
                Ok(true)
            }
            State::Absent => Ok(false),
        }
    }
}

/// Lets the node set take over what the transaction's own insertion has done to a leaf.
fn take_over(
    nodes: &mut Vec<NodeRead>,
    leaf: NodeRef<'_>,
    (before, after): (u64, u64),
    right: Option<NodeRef<'_>>,
) -> Result<(), Abort> {
    let mut is_known = false;
    for entry in nodes.iter_mut().filter(|entry| entry.leaf == leaf.pointer()) {
        if entry.version != before && !planted(Bug::OwnInsertHidesOthers) {
            return Err(Abort::because(AbortReason::Validation, "a range that was read has been changed"));
        }
        entry.version = after;
        is_known = true;
    }
    if let (true, Some(right)) = (is_known, right) {
        nodes.push(NodeRead { leaf: right.pointer(), version: FIRST_VERSION });
    }
    Ok(())
}

impl RowTransaction for OccTransaction<'_> {
    #[inline]
    fn read(&mut self, table: TableId, key: &[u8], intent: Intent) -> Result<Option<&[u8]>, Abort> {
        match self.search(table, key)? {
            State::Own(at) => Ok(self.client.buffers.writes.row(at)),
            State::Row(record) => {
                if intent == Intent::Write {
                    self.client.buffers.remember(table, record);
                }
                Ok(Some(self.client.buffers.row.bytes()))
            }
            State::Absent => Ok(None),
        }
    }

    fn insert(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Result<bool, Abort> {
        self.insert_row(table, key, row)
    }

    fn replace(&mut self, table: TableId, key: &[u8], row: &[u8]) -> Result<(), Abort> {
        self.replace_row(table, key, row)
    }

    fn remove(&mut self, table: TableId, key: &[u8]) -> Result<bool, Abort> {
        self.remove_row(table, key)
    }

    fn scan(
        &mut self,
        table: TableId,
        range: (&[u8], Option<&[u8]>),
        backward: bool,
        visit: &mut Visit<'_>,
    ) -> Result<bool, Abort> {
        let flow = if backward {
            self.scan_backward(table, range, visit)
        } else {
            self.scan_forward(table, range, visit)
        };
        Ok(flow? == ControlFlow::Break(()))
    }
}

impl std::fmt::Debug for OccTransaction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let buffers = &self.client.buffers;
        f.debug_struct("OccTransaction")
            .field("reads", &buffers.reads.len())
            .field("nodes", &buffers.nodes.len())
            .field("writes", &buffers.writes.entries().len())
            .finish_non_exhaustive()
    }
}
