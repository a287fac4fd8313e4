//! What is kept from one opening of a database to the next: costs of synchronization as the controller has learnt them, and the scheme.
//!
//! Owns: when they are given away to be kept: as soon as they are others. Never: writes them.
//!
//! Invariant: the scheme that was kept last is the present one, as soon as one was kept.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use atrapos_adapt::Controller;
use atrapos_partition::routing::stored::StoredScheme;

use super::Adaptive;

/// A place where what was learnt is kept until the next opening.
pub trait Keeper: Debug + Send + Sync {
    /// Keeps the factor on the given costs of synchronization, on the adapting thread.
    fn keep_costs(&self, factor: f64);

    /// Keeps the scheme, on the thread that has had it changed. No other one changes it meanwhile.
    fn keep_scheme(&self, scheme: &StoredScheme);
}

/// What was learnt before, and the place where it is kept.
#[derive(Clone, Debug)]
pub struct Learned {
    /// The factor on the given costs; 1 if nothing was learnt.
    pub sync_factor: f64,
    /// The place; `None` if they end with the database.
    pub keeper: Option<Arc<dyn Keeper>>,
    /// Set if a scheme is kept there.
    pub has_scheme: bool,
}

impl Default for Learned {
    fn default() -> Learned {
        Learned { sync_factor: 1.0, keeper: None, has_scheme: false }
    }
}

impl Adaptive {
    /// Returns the factor on the given costs of synchronization that was learnt last; 1 if none was.
    pub fn sync_factor(&self) -> f64 {
        self.lock().sync_factor
    }

    /// Keeps what the controller has learnt, if it is something new.
    pub(super) fn keep_learned(&self, controller: &Controller) {
        let factor = controller.sync_factor();
        // After a change of its workers the controller begins with 1; that is nothing learnt.
        if factor == 1.0 || factor == self.sync_factor() {
            return;
        }
        self.lock().sync_factor = factor;
        if let Some(keeper) = &self.keeper {
            keeper.keep_costs(factor);
        }
    }

    /// Keeps the present scheme, which has changed. The caller keeps it from changing.
    pub(super) fn keep_changed(&self) {
        if let Some(keeper) = &self.keeper {
            let (scheme, catalog) = (self.published.scheme(), self.catalogs.working());
            keeper.keep_scheme(&StoredScheme::of(&scheme, &catalog, &self.owning_workers()));
            self.has_kept.store(true, Ordering::SeqCst);
        }
    }

    /// Keeps the scheme of another catalog, if one is kept: that of a database that has never changed it is the declared one. The caller keeps it from changing.
    pub fn keep_redefined(&self) {
        if self.has_kept.load(Ordering::SeqCst) {
            self.keep_changed();
        }
    }
}
