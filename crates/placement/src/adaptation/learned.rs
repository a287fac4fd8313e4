//! Costs of synchronization as the controller has learnt them, from one opening of a database to the next.
//!
//! Owns: when they are given away to be kept: as soon as they are others. Never: writes them.

use std::fmt::Debug;
use std::sync::Arc;

use atrapos_adapt::Controller;

use super::Adaptive;

/// A place where what was learnt is kept until the next opening.
pub trait CostKeeper: Debug + Send + Sync {
    /// Keeps the factor on the given costs of synchronization, on the adapting thread.
    fn keep(&self, factor: f64);
}

/// Costs of synchronization that were learnt before, and the place where they are kept.
#[derive(Clone, Debug)]
pub struct Learned {
    /// The factor on the given costs; 1 if nothing was learnt.
    pub sync_factor: f64,
    /// The place; `None` if they end with the database.
    pub keeper: Option<Arc<dyn CostKeeper>>,
}

impl Default for Learned {
    fn default() -> Learned {
        Learned { sync_factor: 1.0, keeper: None }
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
            keeper.keep(factor);
        }
    }
}
