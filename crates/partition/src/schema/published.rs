//! The catalogs of an open database for threads that are not workers.
//!
//! Owns: the catalog from which clients get handles and definitions, and the one that the workers have. They differ
//! while a statement is under way: a new table or index is known to the workers before clients can name it, and a
//! removed one loses its name first. Never: is used by a transaction; workers have the catalog in their
//! [`Tables`](crate::partition::Tables).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use super::Catalog;

/// See the module's introduction.
pub struct PublishedCatalog {
    catalogs: Mutex<Catalogs>,
    /// Held while definitions are changed, or have to stay unchanged.
    statement: Mutex<()>,
}

struct Catalogs {
    visible: Arc<Catalog>,
    working: Arc<Catalog>,
}

impl PublishedCatalog {
    /// Creates the publication of the first catalog.
    pub fn new(catalog: Arc<Catalog>) -> PublishedCatalog {
        let catalogs = Catalogs { visible: Arc::clone(&catalog), working: catalog };
        PublishedCatalog { catalogs: Mutex::new(catalogs), statement: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Catalogs> {
        // Each catalog is replaced as a whole, so a poisoned lock protects a valid one.
        self.catalogs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the definitions: only the holder may change them. Taken before any other lock.
    pub fn keep(&self) -> MutexGuard<'_, ()> {
        self.statement.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the definitions, as [`keep`](PublishedCatalog::keep) does, if nobody else has them.
    pub fn try_keep(&self) -> Option<MutexGuard<'_, ()>> {
        match self.statement.try_lock() {
            Ok(kept) => Some(kept),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The catalog that clients use.
    pub fn visible(&self) -> Arc<Catalog> {
        Arc::clone(&self.lock().visible)
    }

    /// The catalog that all workers have.
    pub fn working(&self) -> Arc<Catalog> {
        Arc::clone(&self.lock().working)
    }

    /// Sets the catalog that clients use.
    pub fn show(&self, catalog: Arc<Catalog>) {
        self.lock().visible = catalog;
    }

    /// Sets the catalog that all workers have.
    pub fn set_working(&self, catalog: Arc<Catalog>) {
        self.lock().working = catalog;
    }
}
