//! [`OccEngine`]: the trees, and what is common to all clients.
//!
//! Owns: the trees, the collector of memory, the epoch and the counters. Never: runs a transaction; clients do.

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::schema::TableId;
use crossbeam_epoch::{Collector, Guard};

use super::client::OccClient;
use super::epoch::{EPOCH_PERIOD, Epoch, Ticker};
use super::statistics::{AllCounters, OccMemory, OccStatistics};
use crate::tree::record::{ABSENT, EPOCH_SHIFT, OBSOLETE, Record, RowBuffer};
use crate::tree::{Insertion, Tree};

pub use limits::{MAX_KEY_BYTES, MAX_ROW_BYTES};

mod limits {
    /// Bytes of a key, at most.
    pub const MAX_KEY_BYTES: usize = crate::tree::MAX_KEY_BYTES;
    /// Bytes of a row, at most.
    pub const MAX_ROW_BYTES: usize = 1 << 20;
}

/// A database whose data all threads share, with optimistic transactions: see the module's introduction.
///
/// Dropping it stops the thread that advances the epoch; the data live as long as a client does.
#[derive(Debug)]
pub struct OccEngine {
    shared: Arc<Shared>,
    _ticker: Option<Ticker>,
}

/// State that all clients of an engine share.
pub(crate) struct Shared {
    trees: Box<[Tree]>,
    pub(super) epoch: Epoch,
    pub(super) counters: AllCounters,
    // Last: what it frees is in no tree any more.
    pub(super) collector: Collector,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("trees", &self.trees.len()).finish_non_exhaustive()
    }
}

impl Shared {
    /// The tree of a table.
    #[inline]
    pub(super) fn tree(&self, table: TableId) -> Result<&Tree, Abort> {
        self.trees.get(table.at()).ok_or_else(|| {
            Abort::explained(AbortReason::UnknownTable, format!("there is no table with number {}", table.0))
        })
    }
}

/// Refuses keys and rows that are too long.
#[inline]
pub(crate) fn check_lengths(key: &[u8], row: &[u8]) -> Result<(), Abort> {
    if key.len() > MAX_KEY_BYTES {
        let why = format!("a key has {} bytes; at most {MAX_KEY_BYTES} are possible", key.len());
        return Err(Abort::explained(AbortReason::KeyTooLarge, why));
    }
    if row.len() > MAX_ROW_BYTES {
        let why = format!("a row has {} bytes; at most {MAX_ROW_BYTES} are possible", row.len());
        return Err(Abort::explained(AbortReason::RowTooLarge, why));
    }
    Ok(())
}

impl OccEngine {
    /// Creates an engine with so many empty tables, numbered from 0, whose epoch advances every [`EPOCH_PERIOD`].
    #[must_use]
    pub fn new(tables: usize) -> OccEngine {
        OccEngine::with_epoch_period(tables, Some(EPOCH_PERIOD))
    }

    /// Creates an engine whose epoch advances after such a period, or only by [`OccEngine::advance_epoch`].
    #[must_use]
    pub fn with_epoch_period(tables: usize, period: Option<Duration>) -> OccEngine {
        let epoch = Epoch::new();
        let _ticker = period.map(|period| Ticker::start(epoch.clone(), period));
        let shared = Shared {
            trees: (0..tables).map(|_| Tree::new()).collect(),
            epoch,
            counters: AllCounters::default(),
            collector: Collector::new(),
        };
        OccEngine { shared: Arc::new(shared), _ticker }
    }

    /// Creates a client, which runs transactions on the thread that it was created on.
    #[must_use]
    pub fn client(&self) -> OccClient {
        OccClient::new(Arc::clone(&self.shared))
    }

    /// Advances the epoch by one.
    pub fn advance_epoch(&self) {
        self.shared.epoch.advance();
    }

    /// Adds rows to a table without transactions. Sorted rows make the fullest leaves. Several threads may load at once; a
    /// transaction that runs meanwhile sees some of the rows. Returns how many there were.
    ///
    /// # Errors
    /// Fails at the first row whose key is taken, or that is too long, or if there is no such table; the rows before stay.
    pub fn load<K: AsRef<[u8]>, R: AsRef<[u8]>>(
        &self,
        table: TableId,
        rows: impl IntoIterator<Item = (K, R)>,
    ) -> Result<u64, Abort> {
        let tree = self.shared.tree(table)?;
        let (handle, counters) = (self.shared.collector.register(), self.shared.counters.of_client());
        let mut loaded = 0;
        for (key, row) in rows {
            let (key, row) = (key.as_ref(), row.as_ref());
            check_lengths(key, row)?;
            let make = || {
                let record = Record::allocate(key, row.len(), 1 << EPOCH_SHIFT);
                // SAFETY: nobody else knows it; it is in the tree before anybody frees it.
                unsafe { Record::from_pointer(record) }.overwrite(row);
                record
            };
            match tree.insert(key, make, &handle.pin()) {
                Insertion::New { record, .. } => counters.record_added(record.memory()),
                Insertion::Existing(_) => {
                    return Err(Abort::because(
                        AbortReason::DuplicateKey,
                        "a row to be loaded has a key that is taken",
                    ));
                }
            }
            loaded += 1;
        }
        Ok(loaded)
    }

    /// Visits all rows of a table in the order of their keys, without a transaction: for auditors of a table that nobody
    /// changes.
    ///
    /// # Errors
    /// Fails if there is no such table.
    pub fn for_each(&self, table: TableId, mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), Abort> {
        let tree = self.shared.tree(table)?;
        let handle = self.shared.collector.register();
        let (mut from, mut records, mut row) = (Vec::new(), Vec::new(), RowBuffer::default());
        loop {
            let guard = &handle.pin();
            let page = tree.page_from(&from, &mut records, guard);
            for record in records.iter().copied().filter_map(NonNull::new) {
                // SAFETY: it was in the tree after the guard was made.
                let record = unsafe { Record::from_pointer(record) };
                if record.read(&mut row) & (ABSENT | OBSOLETE) == 0 {
                    visit(record.key(), row.bytes());
                }
            }
            let Some(edge) = page.edge else { return Ok(()) };
            edge.clone_into(&mut from);
        }
    }

    /// Counts the rows of a table, by visiting all of them.
    ///
    /// # Errors
    /// Fails if there is no such table.
    pub fn rows(&self, table: TableId) -> Result<u64, Abort> {
        let mut rows = 0;
        self.for_each(table, |_, _| rows += 1)?;
        Ok(rows)
    }

    /// Checks the trees, which nobody must be changing.
    ///
    /// # Errors
    /// Describes what is wrong: the program is broken.
    pub fn check(&self) -> Result<(), String> {
        let handle = self.shared.collector.register();
        let guard = &handle.pin();
        self.shared.trees.iter().try_for_each(|tree| tree.check(guard))?;
        let records: u64 = self.shared.trees.iter().map(|tree| record_bytes(tree, guard)).sum();
        let counted = self.memory().records;
        if records == counted {
            Ok(())
        } else {
            Err(format!("the records take {records} bytes, but {counted} were counted"))
        }
    }

    /// Memory that the data take now.
    #[must_use]
    pub fn memory(&self) -> OccMemory {
        OccMemory {
            nodes: self.shared.trees.iter().map(Tree::memory).sum(),
            records: self.shared.counters.record_bytes(),
        }
    }

    /// Counts of all transactions so far.
    #[must_use]
    pub fn statistics(&self) -> OccStatistics {
        self.shared.counters.statistics()
    }
}

/// Bytes of all records of a tree that nobody changes.
fn record_bytes(tree: &Tree, guard: &Guard) -> u64 {
    let (mut from, mut records, mut bytes) = (Vec::new(), Vec::new(), 0);
    loop {
        let page = tree.page_from(&from, &mut records, guard);
        for record in records.iter().copied().filter_map(NonNull::new) {
            // SAFETY: it was in the tree after the guard was made.
            bytes += unsafe { Record::from_pointer(record) }.memory() as u64;
        }
        let Some(edge) = page.edge else { return bytes };
        edge.clone_into(&mut from);
    }
}
