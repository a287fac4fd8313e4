//! The locks of a database at a moment: who holds which, and who waits for whom.
//!
//! Owns: the report, by the names of tables and with keys as people read them. Never: keeps anything up to date while nobody looks.
//!
//! Invariant: as with the [activity](super), nothing waits for a look, so it is not of one instant. A transaction that has not been suspended
//! has no locks.

use std::collections::HashMap;

use atrapos_catalog::Definitions;
use atrapos_partition::abort::Abort;
use atrapos_partition::schema::TableId;
use atrapos_runtime::Clock;
use atrapos_storage::lock::{LockMode, LockTarget, TxnId};
use atrapos_transaction::activity as of_worker;

use super::key_text::key_text;
use super::transaction_text;
use crate::database::Database;

/// A lock that a transaction holds or waits for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockActivity {
    /// The transaction, as its number among those of its home and that home: `17@w0`.
    pub transaction: String,
    /// The number of the client that it works for ([`Tx::set_client`](crate::Tx::set_client)), if that is known.
    pub client: Option<u32>,
    /// The number of the table or index.
    pub table: TableId,
    /// Its name.
    pub name: String,
    /// The key, or the first one of the range.
    pub key: String,
    /// The first key after the range; empty if it goes on to the end of a partition. `None` for the lock of a key.
    pub until: Option<String>,
    /// True if it is exclusive.
    pub is_exclusive: bool,
    /// The wait for it; `None` if the lock is held.
    pub wait: Option<LockWaitActivity>,
}

/// The wait for a lock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockWaitActivity {
    /// Nanoseconds for which it has lasted.
    pub waited_ns: u64,
    /// The clients whose transactions it waits for, where they are known.
    pub behind: Vec<u32>,
}

impl Database {
    /// Returns the locks that transactions hold and wait for now: all waits, and of each transaction on each worker the locks of its first
    /// thousand accesses. Each worker is asked between two of its tasks; nobody waits for another.
    ///
    /// # Errors
    /// Fails if the database is shutting down, or the caller is on a worker's thread.
    pub fn locks(&self) -> Result<Vec<LockActivity>, Abort> {
        let of_workers = self.on_all_workers(|worker| of_worker::locks(worker))?;
        let catalog = self.catalogs.visible();
        let clients = of_workers.iter().flat_map(|worker| worker.clients.iter().copied()).collect();
        let look = Look { definitions: &catalog.definitions, clock: self.handle.clock(), clients };
        let mut all: Vec<LockActivity> =
            of_workers.iter().flat_map(|worker| &worker.locks).map(|lock| look.shown(lock)).collect();
        // What a transaction has accessed several times is one lock.
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }
}

/// The facts by which locks are shown.
struct Look<'a> {
    definitions: &'a Definitions,
    clock: &'a Clock,
    clients: HashMap<TxnId, u32>,
}

impl Look<'_> {
    fn shown(&self, lock: &of_worker::Lock) -> LockActivity {
        let text = |key: &[u8]| key_text(self.definitions, Some(lock.table), key);
        let until = match &lock.target {
            LockTarget::Key(_) => None,
            LockTarget::Range { upper, .. } => {
                Some(upper.as_ref().map_or_else(String::new, |upper| text(upper)))
            }
        };
        LockActivity {
            transaction: transaction_text(lock.transaction),
            client: self.clients.get(&lock.transaction).copied(),
            table: lock.table,
            name: self.definitions.name_of(lock.table.0).to_owned(),
            key: text(lock.target.first_key()),
            until,
            is_exclusive: lock.mode == LockMode::Exclusive,
            wait: lock.wait.as_ref().map(|wait| self.shown_wait(wait)),
        }
    }

    fn shown_wait(&self, wait: &of_worker::Wait) -> LockWaitActivity {
        let clients = wait.behind.iter().filter_map(|other| self.clients.get(other).copied());
        let mut behind: Vec<u32> = clients.collect();
        behind.sort_unstable();
        behind.dedup();
        LockWaitActivity { waited_ns: self.clock.ns(wait.waited), behind }
    }
}
