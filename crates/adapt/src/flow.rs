//! Static information about transaction classes: which tables their actions access, how these depend on each other and
//! where they synchronize (`ATraPos §V-A`, `thesis §4.3.1`).
//!
//! Owns: the form of a transaction flow graph. Never: runs a procedure; the engine's recording mode makes these.
//!
//! Invariants, checked by [`ClassFlow::check`]: dependencies and synchronization points name actions of the class;
//! dependencies point forward; an action repeats at least zero and at most `repeat_max` times.

use crate::error::AdaptError;
use crate::ids::TableIndex;
use serde::{Deserialize, Serialize};

/// Operations of an action on rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowOperation {
    /// Reads one row.
    Read,
    /// Reads a range of rows.
    Scan,
    /// Changes a row.
    Update,
    /// Adds a row.
    Insert,
    /// Removes a row.
    Delete,
}

impl FlowOperation {
    /// The letter of the paper's transaction flow graphs: R, S, U, I or D.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::Read => 'R',
            Self::Scan => 'S',
            Self::Update => 'U',
            Self::Insert => 'I',
            Self::Delete => 'D',
        }
    }
}

/// A node of a transaction flow graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowAction {
    /// The table it accesses.
    pub table: TableIndex,
    /// Its operation.
    pub operation: FlowOperation,
    /// Least number of times that it happens in one transaction; 0 for one that may be left out.
    pub repeat_min: u32,
    /// Greatest number of times that it happens in one transaction; at least 1.
    pub repeat_max: u32,
}

impl FlowAction {
    /// An action that happens exactly once.
    #[must_use]
    pub const fn once(table: TableIndex, operation: FlowOperation) -> Self {
        Self { table, operation, repeat_min: 1, repeat_max: 1 }
    }

    /// Mean number of times that it happens, taking every number between the bounds as equally likely.
    #[must_use]
    pub fn repeat_mean(&self) -> f64 {
        f64::midpoint(f64::from(self.repeat_min), f64::from(self.repeat_max))
    }
}

/// An edge: the second action needs a key that the first one shares or finds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowDependency {
    /// Position of the earlier action in [`ClassFlow::actions`].
    pub from: u32,
    /// Position of the later action.
    pub to: u32,
    /// The key they have in common, for people; for instance `s_id`.
    pub key: String,
}

/// A point where actions exchange data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowSyncPoint {
    /// Positions of the actions that meet, in [`ClassFlow::actions`].
    pub actions: Vec<u32>,
    /// Bytes exchanged in one transaction.
    pub bytes: u64,
}

/// The flow graph of one transaction class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassFlow {
    /// The name of the class; for instance `get-subscriber-data`.
    pub name: String,
    /// Number of transactions of the class that ran while the trace was recorded.
    pub count: u64,
    /// Its actions, in the order in which they start; none where only the number of transactions is known, as a running database knows it.
    pub actions: Vec<FlowAction>,
    /// Edges between actions.
    pub dependencies: Vec<FlowDependency>,
    /// Points at which actions exchange data, in order.
    pub sync_points: Vec<FlowSyncPoint>,
}

impl ClassFlow {
    /// Mean number of actions of one transaction on each of `tables` tables.
    #[must_use]
    pub fn actions_per_table(&self, tables: usize) -> Vec<f64> {
        let mut counts = vec![0.0; tables];
        for action in &self.actions {
            if let Some(count) = counts.get_mut(action.table.index()) {
                *count += action.repeat_mean();
            }
        }
        counts
    }

    /// Checks the invariants of this module against a database of `tables` tables.
    ///
    /// # Errors
    /// [`AdaptError::Contradiction`] names the class and what is wrong with it.
    pub fn check(&self, tables: usize) -> Result<(), AdaptError> {
        let wrong = |detail: String| {
            Err(AdaptError::Contradiction { detail: format!("transaction class '{}' {detail}", self.name) })
        };
        if self.name.is_empty() {
            return wrong("has no name".into());
        }
        for (at, action) in self.actions.iter().enumerate() {
            if action.table.index() >= tables {
                return wrong(format!("accesses {} of {tables} tables in action {at}", action.table));
            }
            if action.repeat_max == 0 || action.repeat_min > action.repeat_max {
                let FlowAction { repeat_min, repeat_max, .. } = action;
                return wrong(format!("repeats action {at} from {repeat_min} to {repeat_max} times"));
            }
        }
        let known = |at: u32| (at as usize) < self.actions.len();
        for FlowDependency { from, to, .. } in &self.dependencies {
            if !known(*from) || !known(*to) || from >= to {
                return wrong(format!(
                    "has a dependency from action {from} to {to}, which is not a later one"
                ));
            }
        }
        for point in &self.sync_points {
            if let Some(at) = point.actions.iter().find(|&&at| !known(at)) {
                return wrong(format!("synchronizes action {at}, of {} actions", self.actions.len()));
            }
        }
        Ok(())
    }
}
