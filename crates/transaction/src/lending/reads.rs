//! Counts of what workers read of tables that they do not own: by message, and in place; and of what lending has cost.
//!
//! Owns: the counts of one worker, by table; an index is a table of its own here, since it may be written less than its rows. Never:
//! decides which tables are shared: the controller does (`atrapos_adapt::Controller::share`).

use std::cell::RefCell;
use std::rc::Rc;

use atrapos_partition::schema::TableId;

use crate::shard::EngineWorker;

/// Counts of one table on one worker, since the database was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// The messages of other workers' transactions, answered here, that read the table and changed nothing.
    pub messages: u64,
    /// The transactions of this worker's sessions that only read the table and were sent to its owner as a whole.
    pub sent: u64,
    /// The reads that this worker's transactions have made in place, in borrowed partitions.
    pub in_place: u64,
    /// The prices of the loans of partitions of this worker's that have ended, in reads by message.
    pub price: u64,
}

/// The counts of one worker, by table.
#[derive(Debug, Default)]
pub(super) struct Counts(RefCell<Vec<ReadCounts>>);

impl Counts {
    fn of(&self, table: TableId, change: impl FnOnce(&mut ReadCounts)) {
        let mut counts = self.0.borrow_mut();
        if counts.len() <= table.at() {
            counts.resize(table.at() + 1, ReadCounts::default());
        }
        change(&mut counts[table.at()]);
    }

    /// Counts a message that read a table.
    pub(super) fn add_message(&self, table: TableId) {
        self.of(table, |counts| counts.messages += 1);
    }

    /// Counts a transaction that was sent as a whole.
    pub(super) fn add_sent(&self, table: TableId) {
        self.of(table, |counts| counts.sent += 1);
    }

    /// Counts reads in a borrowed partition that was given back.
    pub(super) fn add_in_place(&self, table: TableId, reads: u64) {
        self.of(table, |counts| counts.in_place += reads);
    }

    /// Counts the price of a loan that has ended.
    pub(super) fn add_price(&self, table: TableId, price: u32) {
        self.of(table, |counts| counts.price += u64::from(price));
    }
}

/// Returns the counts of this worker, by the number of the table; those of partitions that it has borrowed now are among them.
#[must_use]
pub fn reads(worker: &Rc<EngineWorker>) -> Vec<ReadCounts> {
    let shard = worker.shard();
    let mut counts = shard.lending.counts.0.borrow().clone();
    let tables = shard.tables.borrow();
    counts.resize(tables.catalog.tables.len(), ReadCounts::default());
    for (place, partition) in tables.borrowed() {
        counts[place.table.at()].in_place += partition.reads_in_place();
    }
    counts
}
