//! Decisions and their reasons, in a form that is kept and shown.
//!
//! Owns: the record and its wording. Never: decides.

use super::Observation;
use crate::cores::CoreChange;
use crate::ids::WorkerIndex;
use crate::mix::Mix;
use crate::sharing::{SharingChange, SharingReason};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Reasons for which statistics are evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "trigger")]
pub enum Trigger {
    /// The throughput left the mean of the previous measurements by more than the threshold (`ATraPos §V-D`).
    ThroughputChanged {
        /// That mean, in transactions per second.
        from_tps: f64,
        /// The throughput, in transactions per second.
        to_tps: f64,
    },
    /// One worker was much busier than the mean.
    Imbalance {
        /// The busiest worker.
        busiest: WorkerIndex,
        /// By which share it exceeded the mean.
        over_mean: f64,
    },
    /// In short times one worker was much busier than the mean, and not always the same.
    Swing {
        /// By which share the busiest one exceeded the mean, in short times.
        over_mean: f64,
    },
    /// Workers went away or came back, or the machine changed; or one that may own nothing still does.
    PlatformChanged {
        /// Number of workers that may own data.
        available: usize,
        /// Number of workers.
        workers: usize,
    },
    /// The first measurements agree with each other.
    First,
    /// The scheme was changed just before, and its sub-partitions are new.
    FollowUp {
        /// The throughput before, in transactions per second.
        before_tps: f64,
        /// The throughput since, in transactions per second.
        after_tps: f64,
        /// The gain that was predicted; `None` when it was not changed for a gain, or what came before cannot be compared
        /// with what came after.
        predicted_gain: Option<f64>,
    },
    /// A small gain was predicted just before, and may have been noise.
    Confirmation,
    /// Many transactions were of other classes than when the model was evaluated.
    MixChanged {
        /// Their share of all transactions.
        share: f64,
    },
    /// The scheme was made from few samples, and there are half as many more since.
    MoreSamples {
        /// Samples that the scheme was made from, in number of equal cost.
        made_from: f64,
        /// Samples since then, in the same way.
        since: f64,
    },
}

/// Reasons for which nothing is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "wait")]
pub enum WaitReason {
    /// The throughput is what it was, and no worker stands out.
    Calm,
    /// Too few measurements have been made to compare with.
    Settling {
        /// Number of measurements before this one.
        earlier: usize,
    },
    /// The statistics are of too few samples; they are kept until there are enough.
    TooFewSamples,
    /// A reason to evaluate exists, but the same situation was evaluated not long ago, and no plan was worth it.
    TurnedDown {
        /// That reason.
        trigger: Trigger,
    },
    /// A worker stands out over a whole interval, but stripes were made for a load that goes back and forth, and serve it as they did at first.
    Striped {
        /// The imbalance.
        trigger: Trigger,
    },
    /// The load changed in the middle of a long interval: statistics of one load are needed first.
    BeganAnew {
        /// The change: of the throughput or of the mix, or an imbalance.
        trigger: Trigger,
    },
}

/// Reasons for which a scheme is kept although the model was evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeepReason {
    /// No better scheme was found.
    NothingBetter,
    /// A better scheme exists, but its gain is too small.
    GainTooSmall,
    /// The statistics are of too few samples to tell.
    TooFewSamples,
    /// The gain may be noise; the next statistics will tell.
    ToBeConfirmed,
    /// Later statistics did not show the gain.
    NotConfirmed,
    /// A change in the same situation brought nothing, more than once.
    FailedBefore,
    /// A single sub-partition has more than a worker's share of the load, and looking closer did not divide it: most likely it is one
    /// key, or an end of the keys that only grows.
    OneHotSpot,
    /// The load has moved several times of late, and no scheme is much better for all of these loads.
    InFlux,
    /// Every worker has a processing unit, so that one more is of no use.
    NoWorkerWithoutCore,
}

/// Actions that are decided on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "action")]
pub enum ControlAction {
    /// Do not evaluate.
    Wait,
    /// Keep the scheme.
    Keep {
        /// The reason.
        reason: KeepReason,
    },
    /// Change the scheme.
    Repartition {
        /// Number of steps.
        steps: usize,
    },
    /// Plan for the workers that have a processing unit now.
    PlanAnew,
    /// Return to the scheme of before the latest change.
    Undo {
        /// Number of steps.
        steps: usize,
    },
    /// Let workers read a table in place that they do not own.
    Share,
    /// Let them no longer.
    Unshare,
    /// Divide a table by its rows.
    Divide {
        /// Number of partitions.
        partitions: usize,
    },
}

/// Causes of a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cause {
    /// An evaluation.
    Evaluated(Trigger),
    /// The lack of a reason for one.
    Waited(WaitReason),
    /// A change of the processing units that workers have.
    Cores(CoreChange),
    /// Reads of a table by workers that do not own it.
    Reads {
        /// The name of the table, or of the index.
        table: String,
        /// The counts of them, which say what the decision was.
        #[serde(flatten)]
        reason: SharingReason,
    },
    /// The rows of a table that was declared without split points.
    Rows {
        /// The name of the table, or of the index.
        table: String,
        /// Number of rows.
        rows: u64,
    },
}

/// Figures of the model for today's scheme and the proposed one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    /// The most loaded worker over the mean, today.
    pub load_max_before: f64,
    /// The same, proposed.
    pub load_max_after: f64,
    /// Cost of synchronization as a share of the work, today.
    pub sync_before: f64,
    /// The same, proposed.
    pub sync_after: f64,
    /// By which share the time of the busiest worker, synchronization included, shrinks: `1 - (load_max_after +
    /// sync_after) / (load_max_before + sync_before)`. Where it limits the throughput, that grows by `1 / (1 - gain)`.
    pub gain: f64,
    /// The gain from which it would have been carried out at once; 0 where it had to be.
    pub gain_wanted: f64,
}

/// The record of one decision. It says everything in [`Display`](fmt::Display) in one sentence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Time of the decision, on the clock of the observations.
    pub at_ns: u64,
    /// The throughput that was observed, in transactions per second.
    pub throughput_tps: f64,
    /// Transactions by class that were observed; empty where they are not known.
    #[serde(default, skip_serializing_if = "Mix::is_empty")]
    pub mix: Mix,
    /// Its cause.
    pub cause: Cause,
    /// The action decided on.
    #[serde(flatten)]
    pub action: ControlAction,
    /// Figures of the model; `None` where it was not evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<Predicted>,
}

impl Decision {
    /// The record of an observation after which nothing was evaluated.
    #[must_use]
    pub fn waited(observation: &Observation, reason: WaitReason) -> Self {
        Self {
            at_ns: observation.at_ns,
            throughput_tps: observation.throughput_tps,
            mix: observation.mix.clone(),
            cause: Cause::Waited(reason),
            action: ControlAction::Wait,
            predicted: None,
        }
    }

    /// The record of a change of the processing units that workers have.
    #[must_use]
    pub fn of_cores(at_ns: u64, throughput_tps: f64, change: CoreChange) -> Self {
        Self {
            at_ns,
            throughput_tps,
            mix: Mix::default(),
            cause: Cause::Cores(change),
            action: match change {
                CoreChange::Spare { .. } => ControlAction::Keep { reason: KeepReason::NoWorkerWithoutCore },
                _ => ControlAction::PlanAnew,
            },
            predicted: None,
        }
    }

    /// The record of a change of what is shared, of a table of this name.
    #[must_use]
    pub fn of_sharing(at_ns: u64, throughput_tps: f64, table: &str, change: &SharingChange) -> Self {
        Self {
            at_ns,
            throughput_tps,
            mix: Mix::default(),
            cause: Cause::Reads { table: table.to_owned(), reason: change.reason },
            action: if change.shares() { ControlAction::Share } else { ControlAction::Unshare },
            predicted: None,
        }
    }

    /// The record of the division of a table of this name by its rows.
    #[must_use]
    pub fn by_rows(at_ns: u64, throughput_tps: f64, table: &str, rows: u64, partitions: usize) -> Self {
        Self {
            at_ns,
            throughput_tps,
            mix: Mix::default(),
            cause: Cause::Rows { table: table.to_owned(), rows },
            action: ControlAction::Divide { partitions },
            predicted: None,
        }
    }

    /// Returns whether no scheme is known under which workers would need many messages less: none was looked for as nothing has changed, or
    /// the best one that was found has half of the synchronization left. Where there is none at all, messages are of transactions that are
    /// sent as a whole. `None` if there were too few samples to look for one: what was known is still known.
    #[must_use]
    pub fn leaves_messages(&self) -> Option<bool> {
        if let Some(predicted) = self.predicted {
            return Some(predicted.sync_after >= predicted.sync_before / 2.0);
        }
        match (self.action, &self.cause) {
            (ControlAction::Keep { reason: KeepReason::TooFewSamples }, _)
            | (ControlAction::Wait, Cause::Waited(WaitReason::TooFewSamples)) => None,
            (ControlAction::Keep { .. }, _)
            | (
                ControlAction::Wait,
                Cause::Waited(WaitReason::Calm | WaitReason::TurnedDown { .. } | WaitReason::Striped { .. }),
            ) => Some(true),
            _ => Some(false),
        }
    }

    /// Returns whether the scheme is changed.
    #[must_use]
    pub const fn is_repartition(&self) -> bool {
        matches!(
            self.action,
            ControlAction::Repartition { .. } | ControlAction::Undo { .. } | ControlAction::Divide { .. }
        )
    }
}

impl Trigger {
    /// Returns whether the next observation is to be near.
    pub(super) const fn is_alert(&self) -> bool {
        matches!(
            self,
            Self::Imbalance { .. }
                | Self::PlatformChanged { .. }
                | Self::Confirmation
                | Self::MixChanged { .. }
        )
    }

    pub(super) const fn is_more_samples(&self) -> bool {
        matches!(self, Self::MoreSamples { .. })
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ThroughputChanged { from_tps, to_tps } => {
                write!(f, "the throughput went from {from_tps:.0} to {to_tps:.0} tps")
            }
            Self::Imbalance { busiest, over_mean } => {
                write!(f, "{busiest} is {:.0}% busier than the mean", 100.0 * over_mean)
            }
            Self::Swing { over_mean } => {
                let percent = 100.0 * over_mean;
                write!(f, "one worker at a time is {percent:.0}% busier than the mean, by turns")
            }
            Self::PlatformChanged { available, workers } => {
                write!(f, "{available} of {workers} workers may own data now")
            }
            Self::First => f.write_str("the first measurements agree"),
            Self::FollowUp { before_tps, after_tps, .. } => {
                write!(
                    f,
                    "the last repartitioning took the throughput from {before_tps:.0} to {after_tps:.0} tps"
                )
            }
            Self::MixChanged { share } => {
                write!(f, "{:.0}% of the transactions are of other classes than before", 100.0 * share)
            }
            Self::Confirmation => f.write_str("a small gain was to be confirmed"),
            Self::MoreSamples { made_from, since } => {
                write!(f, "the scheme was made from {made_from:.0} samples, and {since:.0} have come since")
            }
        }
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Calm => f.write_str("the throughput is steady and no worker stands out"),
            Self::Settling { earlier } => {
                write!(f, "{earlier} earlier measurements are too few to compare with")
            }
            Self::TooFewSamples => f.write_str("there are too few samples yet, and more are collected"),
            Self::TurnedDown { trigger } => {
                write!(f, "{trigger}, for which nothing worth doing was found a short time ago")
            }
            Self::Striped { trigger } => {
                write!(
                    f,
                    "{trigger}, but stripes were made for a load that goes back and forth, and serve it as they did at first"
                )
            }
            Self::BeganAnew { trigger } => write!(f, "{trigger}, and statistics begin anew"),
        }
    }
}

impl fmt::Display for KeepReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NothingBetter => "no better scheme was found",
            Self::GainTooSmall => "the gain is too small",
            Self::TooFewSamples => "there are too few samples to tell",
            Self::ToBeConfirmed => "the gain is to be confirmed first",
            Self::NotConfirmed => "later statistics did not confirm the gain",
            Self::FailedBefore => "the same change brought nothing before",
            Self::InFlux => "the load moves all the time, and no scheme is much better wherever it is",
            Self::NoWorkerWithoutCore => "there is no worker for more",
            Self::OneHotSpot => {
                "more than a worker's share of the load is for one key, or for the end of the keys: no scheme divides that, so spread it over several keys"
            }
        })
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Evaluated(trigger) => write!(f, "{trigger}")?,
            Cause::Waited(reason) => write!(f, "{reason}")?,
            Cause::Cores(change) => write!(f, "{change}")?,
            Cause::Rows { table, rows } => {
                write!(f, "'{table}' was declared without split points, and has {rows} rows now")?;
            }
            Cause::Reads { table, reason: SharingReason::ReadElsewhere { per_second, share } } => {
                let percent = 100.0 * share;
                write!(
                    f,
                    "workers that do not own '{table}' read it by {per_second:.0} messages per second, {percent:.0}% of all time, and no scheme changes that"
                )?;
            }
            Cause::Reads { table, reason: SharingReason::Unpaid { in_place, price } } => {
                write!(
                    f,
                    "'{table}' was read {in_place} times in place, and its writes recalled it at the price of {price} reads by message"
                )?;
            }
        }
        match self.action {
            ControlAction::Wait => {}
            ControlAction::Divide { partitions } => {
                write!(f, ": it is divided into {partitions} partitions of as many rows each")?;
            }
            ControlAction::PlanAnew => f.write_str(": what it owns is planned anew")?,
            ControlAction::Keep { reason } => write!(f, ": the scheme stays, because {reason}")?,
            ControlAction::Repartition { steps } => write!(f, ": the scheme changes in {steps} steps")?,
            ControlAction::Share => {
                f.write_str(": it is shared, and read in place until somebody writes it")?;
            }
            ControlAction::Unshare => f.write_str(": it is shared no longer")?,
            ControlAction::Undo { steps } => {
                write!(f, ", and no other load explains it: the change is undone in {steps} steps")?;
            }
        }
        if let Some(predicted) = self.predicted {
            let Predicted { load_max_before, load_max_after, sync_before, sync_after, gain, .. } = predicted;
            write!(
                f,
                " (predicted gain {:.1}%: busiest worker {load_max_before:.2} to {load_max_after:.2} times the mean, synchronization {:.1}% to {:.1}% of the work)",
                100.0 * gain,
                100.0 * sync_before,
                100.0 * sync_after
            )?;
        }
        f.write_str(".")
    }
}
