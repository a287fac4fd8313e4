//! Scenarios: what clients ask for, phase by phase, as a file in TOML.
//!
//! Owns: the form of the file and its checks. Never: opens one, or draws a transaction (`load` does).
//!
//! ```toml
//! name = "mirrored"                     # what the table calls it
//! about = "rows k and N-1-k are read together"
//! machines = ["two", "8x10"]            # optional: those that it is run on, otherwise all
//! sessions = 8                          # clients per worker, each with one transaction at a time
//! events_per_s = 150000                 # optional, how finely it is simulated: see below
//!
//! [[table]]
//! name = "rows"
//! rows = 1000000
//!
//! [[class]]
//! name = "pair"
//! base_ns = 140.0                       # of each transaction at its home
//! bytes = 100.0                         # of data in each message
//! spread = 0.3                          # standard deviation of the logarithm of every cost
//! # Accesses of a stage run side by side, and meet at its end; `key` says where each is: `same` relative position as the
//! # transaction's key, `mirrored`, `shuffled` (anywhere, but always at the same place for one key), or `any`.
//! stages = [[{ table = "rows", key = "same", ns = 100.0 }, { table = "rows", key = "mirrored", ns = 100.0 }]]
//!
//! [[phase]]
//! name = "all"
//! seconds = 20.0
//! mix = { pair = 1.0 }                  # weights of the classes
//! hot = [{ from = 0.0, to = 0.2, share = 0.5 }]   # optional: shares of the keys that have requests of their own
//! ```
//!
//! Optional keys of a phase: `flip_seconds` (of the `hot` ranges only one is hot at a time, in turn), `wander_per_s` (by which
//! share of the keys they move each second), `end_share` (the share of transactions that append a row), `arrivals_per_s` (transactions come at this
//! rate, whether others have ended or not), `ebb_to` (the rate, or the number of clients, falls to this share in the middle of the phase
//! and comes back), `offline_island` (the processing units of that island are offline), `busy_island` (others run on its units, with a real-time priority).
//!
//! A simulated transaction stands for several where there are more than `events_per_s` on all workers: all times are
//! stretched by the same factor, so that ratios stay what they are. By default a worker has as many as a worker of a database has records
//! (one of 64 transactions of 1 us), so that the controller sees as much noise as it would there, and no scenario has fewer than 100,000.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use thiserror::Error;

use crate::hardware::MachineKind;

/// Reasons for which a scenario was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// The text is not a scenario.
    #[error("this is not a scenario: {0}")]
    NotAScenario(String),
    /// A part of it contradicts another.
    #[error("the scenario '{scenario}' {problem}")]
    Contradiction {
        /// Its name.
        scenario: String,
        /// The contradiction, and the cure.
        problem: String,
    },
}

/// A load that changes over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// A description.
    pub about: String,
    /// The machines that it is run on; all if there are none.
    #[serde(default)]
    pub machines: Vec<MachineKind>,
    /// Clients per worker.
    #[serde(default = "default_sessions")]
    pub sessions: usize,
    /// Greatest number of transactions that are simulated in a second; by default as the module's introduction says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events_per_s: Option<f64>,
    /// How much further the partitions of each table are on at first than those of the table before, in workers.
    #[serde(default)]
    pub shifted_by: usize,
    /// The tables.
    #[serde(rename = "table")]
    pub tables: Vec<TableSpec>,
    /// The classes of transactions.
    #[serde(rename = "class")]
    pub classes: Vec<ClassSpec>,
    /// The phases, in order.
    #[serde(rename = "phase")]
    pub phases: Vec<PhaseSpec>,
}

const fn default_sessions() -> usize {
    8
}

/// Transactions that are simulated in a second by default: of each worker, and at least.
const EVENTS_OF_WORKER: f64 = 1e6 / 64.0;
const EVENTS_MIN: f64 = 100_000.0;

/// A table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableSpec {
    /// Its name.
    pub name: String,
    /// Its rows at the beginning.
    pub rows: u64,
}

/// A class of transactions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassSpec {
    /// Its name.
    pub name: String,
    /// Processor time of a transaction at its home besides its accesses, in ns.
    pub base_ns: f64,
    /// Bytes of data in each message.
    #[serde(default)]
    pub bytes: f64,
    /// Standard deviation of the logarithm of each cost.
    #[serde(default)]
    pub spread: f64,
    /// Stages, one after the other, of accesses that run side by side. The first access of all is the transaction's home.
    pub stages: Vec<Vec<AccessSpec>>,
}

/// An access of a transaction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessSpec {
    /// The name of its table.
    pub table: String,
    /// Where its key is.
    pub key: KeyRelation,
    /// Processor time, in ns.
    pub ns: f64,
}

/// The place of an access, relative to the key of its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyRelation {
    /// The same relative position.
    Same,
    /// As far from the end as that is from the beginning.
    Mirrored,
    /// A position that has nothing to do with it, but is always the same for one key.
    Shuffled,
    /// Another one each time, by the distribution of the phase.
    Any,
}

/// A time in which the load stays what it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseSpec {
    /// Its name.
    pub name: String,
    /// Its length, in seconds of virtual time.
    pub seconds: f64,
    /// Weights of the classes, by name.
    pub mix: BTreeMap<String, f64>,
    /// Ranges of keys that have a share of the requests of their own; the rest of the requests goes to all keys alike.
    #[serde(default)]
    pub hot: Vec<HotRange>,
    /// If above 0, only one of the hot ranges is hot at a time, for so many seconds, in turn.
    #[serde(default)]
    pub flip_seconds: f64,
    /// The share of all keys by which hot ranges move each second.
    #[serde(default)]
    pub wander_per_s: f64,
    /// The share of transactions whose key is a new row at the end of every table.
    #[serde(default)]
    pub end_share: f64,
    /// Transactions per second that come by themselves; otherwise clients send one after the other.
    #[serde(default)]
    pub arrivals_per_s: Option<f64>,
    /// The share to which the arrivals fall in the middle of the phase.
    #[serde(default)]
    pub ebb_to: Option<f64>,
    /// The island whose processing units are offline.
    #[serde(default)]
    pub offline_island: Option<usize>,
    /// The island on whose processing units others run, with a real-time priority.
    #[serde(default)]
    pub busy_island: Option<usize>,
}

/// A range of keys that is used more than others.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HotRange {
    /// Its beginning, as a share of all keys.
    pub from: f64,
    /// Its end.
    pub to: f64,
    /// Its share of the requests.
    pub share: f64,
}

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    /// [`ScenarioError`] says what is wrong with the text.
    pub fn from_toml(text: &str) -> Result<Self, ScenarioError> {
        let scenario: Self = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            // The whole error repeats the text in several lines.
            let message = error.message().replace('\n', " ");
            ScenarioError::NotAScenario(format!("line {line}: {message}; docs/experiments.md has one"))
        })?;
        scenario.check()?;
        Ok(scenario)
    }

    /// Whether it is run on a machine.
    #[must_use]
    pub fn is_for(&self, machine: MachineKind) -> bool {
        self.machines.is_empty() || self.machines.contains(&machine)
    }

    /// Greatest number of transactions that are simulated in a second, of so many workers.
    pub(crate) fn events_per_s(&self, workers: usize) -> f64 {
        self.events_per_s.unwrap_or((workers as f64 * EVENTS_OF_WORKER).max(EVENTS_MIN))
    }

    /// The position of a table.
    pub(crate) fn table(&self, name: &str) -> Option<usize> {
        self.tables.iter().position(|table| table.name == name)
    }

    fn check(&self) -> Result<(), ScenarioError> {
        let wrong =
            |problem: String| Err(ScenarioError::Contradiction { scenario: self.name.clone(), problem });
        if self.tables.is_empty() || self.classes.is_empty() || self.phases.is_empty() {
            return wrong("needs at least one table, one class and one phase".into());
        }
        if !(1..=1024).contains(&self.sessions) {
            return wrong(format!("has {} sessions per worker; use 1 to 1024", self.sessions));
        }
        if let Some(events) = self.events_per_s.filter(|events| !(100.0..=1e8).contains(events)) {
            return wrong(format!("simulates {events} events per second; use 100 to 1e8"));
        }
        if let Some(table) = self.tables.iter().find(|table| !(1_000..1 << 40).contains(&table.rows)) {
            return wrong(format!("has {} rows in table '{}'; use 1000 to 2^40", table.rows, table.name));
        }
        for class in &self.classes {
            if class.stages.iter().all(Vec::is_empty) {
                return wrong(format!("has a class '{}' without an access", class.name));
            }
            let accesses = class.stages.iter().flatten();
            let costs = accesses.clone().map(|access| access.ns);
            let mut numbers = costs.chain([class.base_ns, class.bytes, class.spread]);
            if numbers.any(|number| !(number.is_finite() && number >= 0.0)) {
                return wrong(format!("has a number in class '{}' that is negative or none", class.name));
            }
            if let Some(access) = accesses.clone().find(|access| self.table(&access.table).is_none()) {
                return wrong(format!("accesses a table '{}', which it does not have", access.table));
            }
        }
        for phase in &self.phases {
            if !(phase.seconds > 0.0 && phase.seconds <= 3_600.0) {
                return wrong(format!("has a phase of {} seconds; use up to 3600", phase.seconds));
            }
            let known = |name: &String| self.classes.iter().any(|class| class.name == *name);
            if let Some(name) = phase.mix.keys().find(|name| !known(name)) {
                return wrong(format!("mixes a class '{name}', which it does not have"));
            }
            let weight: f64 = phase.mix.values().sum();
            if !(weight.is_finite() && weight > 0.0) || phase.mix.values().any(|weight| *weight < 0.0) {
                return wrong(format!("mixes nothing in phase '{}'; give a class a weight", phase.name));
            }
            let is_range =
                |hot: &HotRange| 0.0 <= hot.from && hot.from < hot.to && hot.to <= 1.0 && hot.share >= 0.0;
            let shares: f64 = phase.hot.iter().map(|hot| hot.share).sum();
            let most = if phase.flip_seconds > 0.0 { phase.hot.len() as f64 } else { 1.0 };
            if !phase.hot.iter().all(is_range) || shares > most + 1e-9 {
                return wrong(format!("has hot ranges in phase '{}' that are no shares of keys", phase.name));
            }
            if !(0.0..=1.0).contains(&phase.end_share) {
                return wrong(format!("appends {} of the rows in phase '{}'", phase.end_share, phase.name));
            }
            if phase.arrivals_per_s.is_some_and(|rate| !(rate > 0.0 && rate.is_finite())) {
                return wrong(format!("has no arrivals in phase '{}'; leave the rate out", phase.name));
            }
            if phase.offline_island.is_some() && phase.busy_island.is_some() {
                return wrong(format!(
                    "takes two islands in phase '{}'; one is all there may be",
                    phase.name
                ));
            }
            if phase.ebb_to.is_some_and(|to| !(to > 0.0 && to <= 1.0))
                || phase.ebb_to.is_some() && phase.arrivals_per_s.is_none()
            {
                return wrong(format!("ebbs in phase '{}' without arrivals that could", phase.name));
            }
        }
        Ok(())
    }
}
