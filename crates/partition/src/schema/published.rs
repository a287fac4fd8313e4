//! The catalogs of an open database as those see them who are not workers.
//!
//! Owns: which catalog clients get handles and definitions from, and which one the workers have. They differ while a statement
//! is under way: what is being made is with the workers before clients can name it, and what is removed loses its name first.
//! Never: is asked by a transaction; workers have the catalog in their [`Tables`](crate::partition::Tables).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Catalog;

/// See the module's introduction.
pub struct PublishedCatalog {
    catalogs: Mutex<Catalogs>,
    /// Held by whoever changes definitions, or needs them to stay.
    statement: Mutex<()>,
}

struct Catalogs {
    visible: Arc<Catalog>,
    working: Arc<Catalog>,
}

impl PublishedCatalog {
    /// Publishes the first catalog.
    pub fn new(catalog: Arc<Catalog>) -> PublishedCatalog {
        let catalogs = Catalogs { visible: Arc::clone(&catalog), working: catalog };
        PublishedCatalog { catalogs: Mutex::new(catalogs), statement: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Catalogs> {
        // Each is replaced as a whole.
        self.catalogs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the definitions as they are, or as whoever holds this makes them. Taken before anything else is locked.
    pub fn keep(&self) -> MutexGuard<'_, ()> {
        self.statement.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What clients may name.
    pub fn visible(&self) -> Arc<Catalog> {
        Arc::clone(&self.lock().visible)
    }

    /// What all workers have.
    pub fn working(&self) -> Arc<Catalog> {
        Arc::clone(&self.lock().working)
    }

    /// Clients name what is in this catalog from now on.
    pub fn show(&self, catalog: Arc<Catalog>) {
        self.lock().visible = catalog;
    }

    /// All workers have this catalog now.
    pub fn set_working(&self, catalog: Arc<Catalog>) {
        self.lock().working = catalog;
    }
}
