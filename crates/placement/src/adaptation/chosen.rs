//! A scheme that is chosen once, at somebody's request, by one algorithm of the paper or both (`ATraPos §V-C`).
//!
//! Owns: the order of the algorithms. Never: judges whether the scheme is worth the way, as the controller does: experiments
//! compare schemes that are worse.

use atrapos_adapt::{Settings, choose_partitioning, choose_placement, steps_between};
use atrapos_partition::abort::{Abort, AbortReason};

use super::Adaptive;
use super::slices::Slices;
use crate::repartition::RepartitionReport;

/// The algorithms that choose a scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SchemeSearch {
    /// Algorithm 1 alone: partitions of equal load, which go to the workers in order of tables and keys, whatever the machine is
    /// (the *workload-aware* scheme of `ATraPos §V-A`, Figure 6).
    Partitioning,
    /// Algorithm 1, then Algorithm 2, which brings partitions that synchronize nearer to each other.
    PartitioningAndPlacement,
}

impl Adaptive {
    /// Chooses a scheme by the statistics since they were collected last, and carries it out.
    pub fn choose(&self, search: SchemeSearch) -> Result<RepartitionReport, Abort> {
        self.refuse_unobserved()?;
        let _scheme = self.keep_scheme();
        let observed = self.observe()?;
        let catalog = self.catalogs.working();
        let slices = Slices::of(&self.published.scheme(), &catalog, &observed);
        let trace = slices.trace(&observed, &catalog);
        if trace.samples.is_none_or(|samples| samples == 0) {
            return Err(misuse(
                "nothing was observed that a scheme could be chosen by; run transactions first",
            ));
        }
        let platform = self.platform().map_err(misuse)?;
        let refused = |error: atrapos_adapt::AdaptError| misuse(error.to_string());
        let (workload, today) = (trace.workload().map_err(refused)?, trace.scheme().map_err(refused)?);
        let settings = Settings::default();
        let mut scheme = choose_partitioning(&workload, &platform, &settings).map_err(refused)?;
        if search == SchemeSearch::PartitioningAndPlacement {
            scheme = choose_placement(&workload, &platform, &scheme, &settings).map_err(refused)?;
        }
        let steps = steps_between(&today, &scheme, &workload).map_err(refused)?;
        self.carry_out(slices.changes(&steps))
    }

    /// Refuses what needs statistics in a database that collects none.
    pub(super) fn refuse_unobserved(&self) -> Result<(), Abort> {
        if self.settings.is_some() {
            return Ok(());
        }
        Err(misuse("the database does not observe itself; open it with an adaptation"))
    }
}

pub(super) fn misuse(why: impl Into<String>) -> Abort {
    Abort::explained(AbortReason::Misuse, why.into())
}
