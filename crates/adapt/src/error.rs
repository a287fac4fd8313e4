//! Errors in the arguments of a plan.
//!
//! Owns: the error type. Never: reports a defect of this crate; those are assertions.
//!
//! Invariant: every message is one sentence that names the thing and the cure.

use crate::ids::{TableIndex, WorkerIndex};
use thiserror::Error;

/// Reasons for which statistics, a scheme or a platform were refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AdaptError {
    /// The text is not a trace.
    #[error("this is not a trace: {detail}; record one with `atrapos bench --record FILE`")]
    NotATrace {
        /// The parser's message, with line and column.
        detail: String,
    },
    /// The trace has another format or version.
    #[error("the trace has the format '{found}', this program reads '{expected}'; record it again")]
    Format {
        /// The format that the trace names.
        found: String,
        /// The format that is read.
        expected: &'static str,
    },
    /// Parts of the trace contradict each other.
    #[error("the trace contradicts itself: {detail}; record it again")]
    Contradiction {
        /// The contradiction.
        detail: String,
    },
    /// The plan is larger than this crate supports.
    #[error("there are {found} {what}, at most {max} can be planned for; use {cure}")]
    TooLarge {
        /// The kind of thing of which there are too many.
        what: &'static str,
        /// Their number.
        found: usize,
        /// The greatest number supported.
        max: usize,
        /// The cure.
        cure: &'static str,
    },
    /// A platform without a worker.
    #[error("no worker is left to plan for; give at least one that is available")]
    NoWorkers,
    /// A worker on a processing unit that the machine lacks.
    #[error("{worker} is on {cpu}, which this machine does not have; place it on one of the machine's cpus")]
    UnknownCpu {
        /// The worker.
        worker: WorkerIndex,
        /// The processing unit, as text.
        cpu: String,
    },
    /// A worker that the platform lacks.
    #[error("{worker} does not exist, the platform has {workers}; use a platform with as many as the scheme")]
    UnknownWorker {
        /// The worker.
        worker: WorkerIndex,
        /// Number of workers.
        workers: usize,
    },
    /// The scheme is of another set of tables.
    #[error(
        "the scheme has {scheme} tables, the statistics have {workload}; use a scheme of the same database"
    )]
    TableCount {
        /// Tables of the scheme.
        scheme: usize,
        /// Tables of the statistics.
        workload: usize,
    },
    /// The cuts of a table are no partitioning of it.
    #[error(
        "the cuts of {table} {problem}; they must ascend strictly, lie inside its {slices} slices and be one fewer than owners"
    )]
    Cuts {
        /// The table.
        table: TableIndex,
        /// The contradiction.
        problem: String,
        /// Number of its slices.
        slices: u32,
    },
    /// A weight that is negative or not a number.
    #[error("the weight '{name}' is {value}; it must be a finite number that is not negative")]
    Weight {
        /// Its name.
        name: &'static str,
        /// Its value, as text.
        value: String,
    },
    /// A mix of transaction classes that is none of those recorded.
    #[error("the mix cannot be planned for: {detail}")]
    Mix {
        /// The mistake in it, and the cure.
        detail: String,
    },
    /// Costs of synchronization that are none.
    #[error(
        "these are no costs of synchronization: {detail}; measure them again with `atrapos topology --measure`"
    )]
    SyncCosts {
        /// The mistake in them.
        detail: String,
    },
    /// A setting of the controller with which it cannot work.
    #[error("the setting '{name}' of the controller is {value}; {cure}")]
    Setting {
        /// Its name.
        name: &'static str,
        /// Its value, as text.
        value: String,
        /// The cure.
        cure: &'static str,
    },
    /// A step that does not fit the scheme it is applied to.
    #[error(
        "the step '{step}' does not fit: {problem}; apply the steps in order to the scheme they were made for"
    )]
    Step {
        /// The step.
        step: String,
        /// The contradiction.
        problem: String,
    },
    /// The exact program cannot be stated for this machine.
    #[error(
        "the exact program needs equal distances among the children of an island, and larger ones further up: {detail}; use a machine without measured distances"
    )]
    UnevenDistances {
        /// The place where the distances differ.
        detail: String,
    },
    /// The exact program found no proof of optimality.
    #[error("the exact program did not finish: {detail}; give it more time or fewer sub-partitions")]
    ExactUnfinished {
        /// The message of the solver.
        detail: String,
    },
}
