//! The way from one scheme to another, as splits, moves and merges (`ATraPos §V-D`).
//!
//! Owns: the list of steps and what each does to a scheme. Never: carries one out; the engine does.
//!
//! The paper has splits and merges; a partition stays with its thread. Here a move to another worker is a step of its own.
//! All splits come first, then all moves, then all merges, so that a piece that is moved is never larger than it must be and both
//! sides of a merge are on one worker. Within each of the three the workers that have to do them take turns, since a worker is left alone for
//! a while after each step; the steps of one are in the order of tables and keys.
//!
//! Invariant: applying [`steps_between`] two schemes to the first gives the second.

use crate::error::AdaptError;
use crate::ids::{SliceIndex, TableIndex, WorkerIndex};
use crate::scheme::{PlannedScheme, TableScheme};
use crate::workload::Workload;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// One change of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "step")]
pub enum Step {
    /// The partition that holds slice `at` ends there, and a new one on the same worker begins.
    Split {
        /// The table.
        table: TableIndex,
        /// First slice of the new partition.
        at: SliceIndex,
    },
    /// The partition that begins at slice `from` goes to another worker.
    Move {
        /// The table.
        table: TableIndex,
        /// First slice of the partition.
        from: SliceIndex,
        /// One past its last slice.
        to: SliceIndex,
        /// The worker that owned it.
        source: WorkerIndex,
        /// The worker that will own it.
        target: WorkerIndex,
    },
    /// The partition that begins at slice `at` joins the one before it, which is on the same worker.
    Merge {
        /// The table.
        table: TableIndex,
        /// First slice of the partition that ends to exist.
        at: SliceIndex,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Split { table, at } => write!(f, "split {table} at {at}"),
            Self::Move { table, from, to, source, target } => {
                write!(f, "move slices {}..{} of {table} from {source} to {target}", from.0, to.0)
            }
            Self::Merge { table, at } => write!(f, "merge {table} at {at}"),
        }
    }
}

/// The steps that turn `today` into `wanted`.
///
/// # Errors
/// [`AdaptError::TableCount`] when the schemes are of different tables; otherwise as [`PlannedScheme::check`] for a `workload`
/// that does not fit.
pub fn steps_between(
    today: &PlannedScheme,
    wanted: &PlannedScheme,
    workload: &Workload,
) -> Result<Vec<Step>, AdaptError> {
    let tables = workload.table_count();
    for scheme in [today, wanted] {
        let count = scheme.tables().len();
        if count != tables {
            return Err(AdaptError::TableCount { scheme: count, workload: tables });
        }
    }
    let (mut splits, mut moves, mut merges) = (Vec::new(), Vec::new(), Vec::new());
    for (table, (old, new)) in (0..).map(TableIndex).zip(today.tables().iter().zip(wanted.tables())) {
        let is_new = |cut: &&u32| old.cuts().binary_search(cut).is_err();
        let of_owner = |scheme: &TableScheme, cut: u32, step: Step| (owner_at(scheme, cut), step);
        splits.extend(
            new.cuts()
                .iter()
                .filter(is_new)
                .map(|cut| of_owner(old, *cut, Step::Split { table, at: SliceIndex(*cut) })),
        );
        let is_gone = |cut: &&u32| new.cuts().binary_search(cut).is_err();
        merges.extend(
            old.cuts()
                .iter()
                .filter(is_gone)
                .map(|cut| of_owner(new, *cut, Step::Merge { table, at: SliceIndex(*cut) })),
        );
        let slices = workload.slice_count(table);
        let mut pieces: Vec<u32> = old.cuts().iter().chain(new.cuts()).copied().collect();
        pieces.sort_unstable();
        pieces.dedup();
        let ends = pieces.iter().copied().chain(std::iter::once(slices));
        for (from, to) in std::iter::once(0).chain(pieces.iter().copied()).zip(ends) {
            let (source, target) = (owner_at(old, from), owner_at(new, from));
            if source != target {
                let (from, to) = (SliceIndex(from), SliceIndex(to));
                moves.push((source, Step::Move { table, from, to, source, target }));
            }
        }
    }
    Ok([splits, moves, merges].map(by_turns).concat())
}

/// Steps with the workers that have to do them: one of each worker, then the second of each, and so on.
fn by_turns(steps: Vec<(WorkerIndex, Step)>) -> Vec<Step> {
    let mut of_worker: BTreeMap<WorkerIndex, usize> = BTreeMap::new();
    let mut in_turn = |(worker, step): (WorkerIndex, Step)| {
        let turn = of_worker.entry(worker).or_default();
        *turn += 1;
        (*turn, step)
    };
    let mut steps: Vec<(usize, Step)> = steps.into_iter().map(&mut in_turn).collect();
    steps.sort_by_key(|(turn, _)| *turn);
    steps.into_iter().map(|(_, step)| step).collect()
}

fn owner_at(table: &TableScheme, slice: u32) -> WorkerIndex {
    table.owners()[table.cuts().partition_point(|cut| *cut <= slice)]
}

/// The scheme that `scheme` becomes by `steps`, in order.
///
/// # Errors
/// [`AdaptError::Step`] for a split where a partition begins already, a merge of partitions on two workers or of none,
/// and a move of a range that is not a partition or not on its source.
pub fn apply_steps(scheme: &PlannedScheme, steps: &[Step]) -> Result<PlannedScheme, AdaptError> {
    let mut tables: Vec<(Vec<u32>, Vec<WorkerIndex>)> =
        scheme.tables().iter().map(|table| (table.cuts().to_vec(), table.owners().to_vec())).collect();
    for step in steps {
        let wrong = |problem: &str| AdaptError::Step { step: step.to_string(), problem: problem.into() };
        let (Step::Split { table, .. } | Step::Move { table, .. } | Step::Merge { table, .. }) = step;
        let (cuts, owners) = tables.get_mut(table.index()).ok_or_else(|| wrong("there is no such table"))?;
        match step {
            Step::Split { at, .. } => match cuts.binary_search(&at.0) {
                Err(place) if at.0 > 0 => {
                    cuts.insert(place, at.0);
                    owners.insert(place, owners[place]);
                }
                _ => return Err(wrong("a partition begins there already")),
            },
            Step::Merge { at, .. } => match cuts.binary_search(&at.0) {
                Ok(place) if owners[place] == owners[place + 1] => {
                    cuts.remove(place);
                    owners.remove(place);
                }
                Ok(_) => return Err(wrong("the partitions are on two workers")),
                Err(_) => return Err(wrong("no partition begins there")),
            },
            Step::Move { from, to, source, target, .. } => {
                let place = cuts.partition_point(|cut| *cut <= from.0);
                let begins = if place == 0 { 0 } else { cuts[place - 1] };
                let ends = cuts.get(place).copied();
                if begins != from.0 || ends.is_some_and(|end| end != to.0) {
                    return Err(wrong("these slices are not one partition"));
                }
                if owners[place] != *source {
                    return Err(wrong("the partition is on another worker"));
                }
                owners[place] = *target;
            }
        }
    }
    Ok(PlannedScheme::new(tables.into_iter().map(|(cuts, owners)| TableScheme::new(cuts, owners)).collect()))
}
