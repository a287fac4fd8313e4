//! Partitioning and placement: which key ranges exist, as positions of cuts between slices, and which worker owns each.
//!
//! Owns: the form of a scheme and the naive one. Never: knows keys; a caller that knows where its slices begin turns
//! cuts into keys.
//!
//! Invariants, checked by [`PlannedScheme::check`] before anything uses a scheme: cuts ascend strictly and lie inside the table;
//! a table of `n` cuts has `n + 1` owners. A scheme that the search made has no two neighbouring partitions with one
//! owner; a recorded one may.

use crate::error::AdaptError;
use crate::ids::{SliceIndex, TableIndex, WorkerIndex};
use crate::platform::Platform;
use crate::workload::Workload;
use serde::{Deserialize, Serialize};

/// Partitioning and placement of all tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PlannedScheme {
    tables: Vec<TableScheme>,
}

/// The partitions of one table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableScheme {
    cuts: Vec<u32>,
    owners: Vec<WorkerIndex>,
}

/// One partition of a scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partition {
    /// Its first slice.
    pub from: SliceIndex,
    /// One past its last slice.
    pub to: SliceIndex,
    /// Its owner.
    pub owner: WorkerIndex,
}

impl TableScheme {
    /// Partitions that begin at slice 0 and at each of `cuts`, with their owners.
    #[must_use]
    pub const fn new(cuts: Vec<u32>, owners: Vec<WorkerIndex>) -> Self {
        Self { cuts, owners }
    }

    /// Positions of the slices at which all partitions but the first begin.
    #[must_use]
    pub fn cuts(&self) -> &[u32] {
        &self.cuts
    }

    /// The owners, one more than cuts.
    #[must_use]
    pub fn owners(&self) -> &[WorkerIndex] {
        &self.owners
    }

    /// The partitions of a table of `slices` slices, in key order.
    pub fn partitions(&self, slices: u32) -> impl Iterator<Item = Partition> + '_ {
        let from = std::iter::once(0).chain(self.cuts.iter().copied());
        let to = self.cuts.iter().copied().chain(std::iter::once(slices));
        from.zip(to).zip(&self.owners).map(|((from, to), owner)| Partition {
            from: SliceIndex(from),
            to: SliceIndex(to),
            owner: *owner,
        })
    }

    pub(crate) fn from_owners(owners: &[WorkerIndex]) -> Self {
        let mut scheme = Self { cuts: Vec::new(), owners: Vec::new() };
        for (at, owner) in (0_u32..).zip(owners) {
            if scheme.owners.last() != Some(owner) {
                if at > 0 {
                    scheme.cuts.push(at);
                }
                scheme.owners.push(*owner);
            }
        }
        scheme
    }
}

impl PlannedScheme {
    /// A scheme of these tables.
    #[must_use]
    pub const fn new(tables: Vec<TableScheme>) -> Self {
        Self { tables }
    }

    /// The scheme a database begins with, and what ATraPos compares itself with: every table in as many partitions of
    /// equally many slices as there are available workers, one on each, in the same order for all tables
    /// (`ATraPos §IV`). A table of fewer slices has one partition per slice.
    #[must_use]
    pub fn naive(workload: &Workload, platform: &Platform) -> Self {
        let workers: Vec<WorkerIndex> = (0..)
            .take(platform.worker_count())
            .map(WorkerIndex)
            .filter(|w| platform.is_available(*w))
            .collect();
        let tables = (0..).take(workload.table_count()).map(|table| {
            let slices = workload.slice_count(TableIndex(table)) as usize;
            let owners: Vec<_> = (0..slices).map(|at| workers[at * workers.len() / slices]).collect();
            TableScheme::from_owners(&owners)
        });
        Self { tables: tables.collect() }
    }

    /// The tables.
    #[must_use]
    pub fn tables(&self) -> &[TableScheme] {
        &self.tables
    }

    /// Number of partitions in all.
    #[must_use]
    pub fn partition_count(&self) -> usize {
        self.tables.iter().map(|table| table.owners.len()).sum()
    }

    /// Checks the invariants of this module.
    ///
    /// # Errors
    /// [`AdaptError::TableCount`], [`AdaptError::Cuts`] or [`AdaptError::UnknownWorker`].
    pub fn check(&self, workload: &Workload, platform: &Platform) -> Result<(), AdaptError> {
        let (scheme, tables) = (self.tables.len(), workload.table_count());
        if scheme != tables {
            return Err(AdaptError::TableCount { scheme, workload: tables });
        }
        for (table, partitions) in (0..).map(TableIndex).zip(&self.tables) {
            let slices = workload.slice_count(table);
            let TableScheme { cuts, owners } = partitions;
            let problem = if cuts.len() + 1 != owners.len() {
                Some(format!("are {}, with {} owners", cuts.len(), owners.len()))
            } else if !cuts.is_sorted_by(|a, b| a < b) {
                Some("do not ascend".into())
            } else {
                let outside = cuts.iter().find(|cut| **cut == 0 || **cut >= slices);
                outside.map(|cut| format!("are at {cut} among others"))
            };
            if let Some(problem) = problem {
                return Err(AdaptError::Cuts { table, problem, slices });
            }
            let workers = platform.worker_count();
            if let Some(worker) = owners.iter().find(|owner| owner.index() >= workers) {
                return Err(AdaptError::UnknownWorker { worker: *worker, workers });
            }
        }
        Ok(())
    }

    /// The owner of every slice, in the numbering over all tables.
    pub(crate) fn slice_owners(&self, workload: &Workload) -> Vec<WorkerIndex> {
        let mut owners = Vec::with_capacity(workload.all_costs().len());
        for (table, partitions) in (0..).map(TableIndex).zip(&self.tables) {
            for partition in partitions.partitions(workload.slice_count(table)) {
                owners.extend((partition.from.0..partition.to.0).map(|_| partition.owner));
            }
        }
        owners
    }

    /// The scheme in which these workers own the slices of all tables, one after the other.
    pub fn from_slice_owners(workload: &Workload, owners: &[WorkerIndex]) -> Self {
        let tables = (0..).take(workload.table_count()).map(TableIndex);
        Self {
            tables: tables.map(|table| TableScheme::from_owners(&owners[workload.range(table)])).collect(),
        }
    }
}
