//! Memos of a database: what it has learnt, kept in its directory from one opening to the next.
//!
//! Owns: which memos a database has. Never: knows their formats ([`crate::refined_costs`], [`crate::stored_scheme`]).

use atrapos_partition::routing::stored::StoredScheme;
use atrapos_placement::adaptation::Keeper;

use crate::refined_costs::CostsMemo;
use crate::stored_scheme::SchemeMemo;

/// The memos of an open database.
#[derive(Debug)]
pub(crate) struct Memos {
    /// On costs of synchronization; `None` on a machine that is not this one.
    pub(crate) costs: Option<CostsMemo>,
    /// On the scheme.
    pub(crate) scheme: SchemeMemo,
}

impl Keeper for Memos {
    fn keep_costs(&self, factor: f64) {
        if let Some(costs) = &self.costs {
            costs.write(factor);
        }
    }

    fn keep_scheme(&self, scheme: &StoredScheme) {
        self.scheme.write(scheme);
    }
}
