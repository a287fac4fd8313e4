//! [`LockingEngine`]: the trees and the lock manager.
//!
//! Owns: what all clients share. Never: runs a transaction; clients do.

use std::ops::ControlFlow;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::schema::TableId;
use crossbeam_epoch::Collector;
use crossbeam_utils::CachePadded;

use super::client::LockingClient;
use super::reader::ReadingClient;
use crate::lock::{LockManager, LockOptions};
use crate::occ::check_lengths;
use crate::rows::Visit;
use crate::tree::record::{ABSENT, Record, RowBuffer, SEQUENCE};
use crate::tree::{Insertion, Tree};

/// A database whose data all threads share, with strict two-phase locking: see the module's introduction.
#[derive(Debug)]
pub struct LockingEngine {
    shared: Arc<Shared>,
    /// Set if its clients only read, and lock nothing.
    pub(super) only_reads: bool,
}

/// State that all clients of an engine share.
pub(super) struct Shared {
    trees: Box<[Tree]>,
    pub(super) locks: Arc<LockManager>,
    /// The age that the next clients' transactions get.
    stamps: CachePadded<AtomicU64>,
    // Last: what it frees is in no tree any more.
    pub(super) collector: Collector,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("trees", &self.trees.len()).finish_non_exhaustive()
    }
}

/// Ages that a client takes at once: those of different clients agree with time to within as many transactions.
pub(super) const STAMPS: u64 = 64;

impl Shared {
    /// The tree of a table.
    #[inline]
    pub(super) fn tree(&self, table: TableId) -> Result<&Tree, Abort> {
        self.trees.get(table.at()).ok_or_else(|| {
            Abort::explained(AbortReason::UnknownTable, format!("there is no table with number {}", table.0))
        })
    }

    /// The first of [`STAMPS`] ages that no other client gets.
    pub(super) fn take_stamps(&self) -> u64 {
        self.stamps.fetch_add(STAMPS, Ordering::Relaxed)
    }
}

impl LockingEngine {
    /// Creates an engine with so many empty tables, numbered from 0.
    #[must_use]
    pub fn new(tables: usize) -> LockingEngine {
        LockingEngine::with_locks(tables, LockOptions::default())
    }

    /// Creates an engine whose lock manager has these settings.
    #[must_use]
    pub fn with_locks(tables: usize, options: LockOptions) -> LockingEngine {
        LockingEngine::of((0..tables).map(|_| Tree::new()).collect(), LockManager::new(options))
    }

    /// Creates an engine without latches.
    ///
    /// # Safety
    /// No two threads use it or its clients at the same time.
    pub(super) unsafe fn for_one_thread(tables: usize) -> LockingEngine {
        // SAFETY: trees and lock manager are those of this engine alone, so what its user promises holds for them.
        let trees = (0..tables).map(|_| unsafe { Tree::for_one_thread() });
        // SAFETY: as above.
        let locks = unsafe { LockManager::for_one_thread(LockOptions::default()) };
        LockingEngine::of(trees.collect(), locks)
    }

    fn of(trees: Box<[Tree]>, locks: Arc<LockManager>) -> LockingEngine {
        let shared =
            Shared { trees, locks, stamps: CachePadded::new(AtomicU64::new(1)), collector: Collector::new() };
        LockingEngine { shared: Arc::new(shared), only_reads: false }
    }

    /// Makes its clients, as any [`Engine`](crate::Engine) has them, read without locks and refuse changes.
    #[must_use]
    pub fn without_locks(self) -> LockingEngine {
        LockingEngine { only_reads: true, ..self }
    }

    /// Creates a client that reads without locks and refuses changes.
    pub(super) fn reader(&self) -> ReadingClient {
        ReadingClient::new(Arc::clone(&self.shared))
    }

    /// Creates a client, which runs transactions on the thread that it was created on.
    ///
    /// # Panics
    /// Panics if there are more clients than holders of a lock can be counted (65535).
    #[must_use]
    pub fn client(&self) -> LockingClient {
        LockingClient::new(Arc::clone(&self.shared))
    }

    /// Adds rows to a table without transactions or locks. Sorted rows make the fullest leaves.
    ///
    /// # Errors
    /// Fails at the first row whose key is taken, or that is too long, or if there is no such table; the rows before stay.
    pub fn load<K: AsRef<[u8]>, R: AsRef<[u8]>>(
        &self,
        table: TableId,
        rows: impl IntoIterator<Item = (K, R)>,
    ) -> Result<(), Abort> {
        let (tree, handle) = (self.shared.tree(table)?, self.shared.collector.register());
        for (key, row) in rows {
            let (key, row) = (key.as_ref(), row.as_ref());
            check_lengths(key, row)?;
            let make = || {
                let record = Record::allocate(key, row.len(), SEQUENCE);
                // SAFETY: nobody else knows it; it is in the tree before anybody frees it.
                unsafe { Record::from_pointer(record) }.overwrite(row);
                record
            };
            if let Insertion::Existing(_) = tree.insert(key, make, &handle.pin()) {
                return Err(Abort::because(
                    AbortReason::DuplicateKey,
                    "a row to be loaded has a key that is taken",
                ));
            }
        }
        Ok(())
    }

    /// Visits all rows of a table in the order of their keys, without locks: for auditors of a table that nobody changes.
    ///
    /// # Errors
    /// Fails if there is no such table, or `visit` fails.
    pub fn walk(&self, table: TableId, visit: &mut Visit<'_>) -> Result<(), Abort> {
        let mut row = RowBuffer::default();
        self.for_each_record(table, &mut |record| {
            if record.read(&mut row) & ABSENT != 0 {
                return Ok(ControlFlow::Continue(()));
            }
            visit(record.key(), row.bytes())
        })
    }

    /// Bytes of memory that rows and trees take, while nobody changes them.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let mut bytes = self.shared.trees.iter().map(Tree::memory).sum();
        for table in (0..self.shared.trees.len()).map(|at| TableId(at as u16)) {
            // The tables exist, and counting does not fail.
            let _ = self.for_each_record(table, &mut |record| {
                bytes += record.memory() as u64;
                Ok(ControlFlow::Continue(()))
            });
        }
        bytes
    }

    /// Checks the trees, which nobody must be changing, and that every record has a row.
    ///
    /// # Errors
    /// Describes what is wrong: the program is broken.
    pub fn check(&self) -> Result<(), String> {
        let handle = self.shared.collector.register();
        let guard = &handle.pin();
        self.shared.trees.iter().try_for_each(|tree| tree.check(guard))?;
        for table in (0..self.shared.trees.len()).map(|at| TableId(at as u16)) {
            let mut ghosts = 0;
            let counted = self.for_each_record(table, &mut |record| {
                ghosts += u64::from(record.tid_now() & ABSENT != 0);
                Ok(ControlFlow::Continue(()))
            });
            counted.map_err(|abort| abort.to_string())?;
            if ghosts > 0 {
                return Err(format!("table {} has {ghosts} records without a row", table.0));
            }
        }
        Ok(())
    }

    fn for_each_record(
        &self,
        table: TableId,
        visit: &mut dyn FnMut(Record<'_>) -> Result<ControlFlow<()>, Abort>,
    ) -> Result<(), Abort> {
        let (tree, handle) = (self.shared.tree(table)?, self.shared.collector.register());
        let (mut from, mut records) = (Vec::new(), Vec::new());
        loop {
            let guard = &handle.pin();
            let page = tree.page_from(&from, &mut records, guard);
            for record in records.iter().copied().filter_map(NonNull::new) {
                // SAFETY: it was in the tree after the guard was made.
                if visit(unsafe { Record::from_pointer(record) })?.is_break() {
                    return Ok(());
                }
            }
            let Some(edge) = page.edge else { return Ok(()) };
            edge.clone_into(&mut from);
        }
    }
}
