//! Settings of adaptation, and the entries of its history.
//!
//! Owns: defaults and limits of the settings. Never: acts on them.

use atrapos_adapt::{ControllerSettings, Decision};

use crate::repartition::RepartitionReport;

/// Settings of adaptation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adaptation {
    /// Intervals and thresholds at which statistics are evaluated and plans carried out; the defaults are the paper's where
    /// it has any.
    pub controller: ControllerSettings,
    /// Sub-partitions per partition: the unit in which load is observed. Default 10, the paper's.
    pub sub_partitions: usize,
    /// The sampling period: one event in this many is recorded, on average, or more often where that costs little. Default 1,024.
    pub sample_every: u32,
    /// The rows, for each worker, from which a table that was declared without split points is divided among them. Default 1,000; 0 never divides one by its rows.
    pub rows_per_worker: u64,
    /// True if the database acts on its statistics (the default). Otherwise it only collects them, for
    /// `Database::workload_trace`.
    pub act: bool,
}

impl Default for Adaptation {
    fn default() -> Adaptation {
        Adaptation {
            controller: ControllerSettings::default(),
            sub_partitions: 10,
            sample_every: 1_024,
            rows_per_worker: 1_000,
            act: true,
        }
    }
}

/// The greatest number of sub-partitions that is accepted.
const SUB_PARTITIONS_MAX: usize = 1024;

/// The greatest sampling period that is accepted, in events.
const SAMPLE_EVERY_MAX: u32 = 1 << 20;

impl Adaptation {
    /// Refuses settings that make no sense, with an explanation.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        if !(1..=SUB_PARTITIONS_MAX).contains(&self.sub_partitions) {
            return Err(format!(
                "{} sub-partitions per partition cannot be observed; use 1 to {SUB_PARTITIONS_MAX}",
                self.sub_partitions
            ));
        }
        if !(1..=SAMPLE_EVERY_MAX).contains(&self.sample_every) {
            return Err(format!(
                "one event in {} cannot be recorded; record one in 1 to {SAMPLE_EVERY_MAX}",
                self.sample_every
            ));
        }
        self.controller.check().map_err(|error| error.to_string())
    }
}

/// An entry of the history of decisions.
#[derive(Clone, Debug)]
pub struct AdaptationEvent {
    /// The decision and its reason; `at_ns` counts from the opening of the database.
    pub decision: Decision,
    /// The cost of carrying it out; `None` if the scheme was kept.
    pub report: Option<RepartitionReport>,
    /// The failure that kept it from being carried out in full, if any.
    pub failure: Option<String>,
}
