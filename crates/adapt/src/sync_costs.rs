//! Costs of synchronization that were measured on a machine, and the weights that follow from them.
//!
//! Owns: the format `atrapos-sync-costs 1`, one JSON object with `format`, `machine` (a description by which the machine is
//! recognised) and `pairs`, one for each relation of two workers that the machine has. Never: measures, or opens a file.
//!
//! A measured cost is processor time, at both ends together, of one synchronization of two workers beyond the same work on one worker: three
//! messages with their lines, suspension, locks, the second poll. The cost model has a part of it that grows with the distance and one that
//! does not. Pairs at several distances tell them apart. With one distance the part that grows is taken to be six transfers of a line
//! (both ends of a request, a reply and the end of the transaction), as long as half a round trip of a line each.
//!
//! Invariant: no weight that follows is negative or not a number.

use crate::cost::{CYCLES_PER_NS, Weights};
use crate::error::AdaptError;
use serde::{Deserialize, Serialize};

/// The format that [`SyncCosts::to_json`] writes and [`SyncCosts::from_json`] reads.
const FORMAT: &str = "atrapos-sync-costs 1";

/// Transfers of a line of one synchronization of two workers.
const TRANSFERS: f64 = 6.0;

/// Costs of synchronization on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SyncCosts {
    format: String,
    /// The machine, as [`SyncCosts::is_of`] recognises it.
    machine: String,
    /// The measurements, by relation of the workers.
    pairs: Vec<PairCost>,
}

/// The cost of a synchronization between two workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairCost {
    /// The relation of their cores, for people.
    pub relation: String,
    /// Their distance on the scale of the topology: 1 within an L3 island.
    pub distance: f64,
    /// Time of one transfer of a cache line, in nanoseconds: half of a round trip.
    pub line_ns: f64,
    /// Processor time of a synchronization, at both ends together, in nanoseconds.
    pub sync_ns: f64,
}

impl SyncCosts {
    /// Costs that were measured on the machine of this description.
    ///
    /// # Errors
    /// [`AdaptError::SyncCosts`] when there is no pair, or a number that is not positive.
    pub fn new(machine: String, pairs: Vec<PairCost>) -> Result<Self, AdaptError> {
        let costs = Self { format: FORMAT.to_owned(), machine, pairs };
        costs.check()?;
        Ok(costs)
    }

    /// Reads costs.
    ///
    /// # Errors
    /// [`AdaptError::SyncCosts`] says what is wrong with the text.
    pub fn from_json(text: &str) -> Result<Self, AdaptError> {
        let costs: Self = serde_json::from_str(text)
            .map_err(|error| AdaptError::SyncCosts { detail: error.to_string() })?;
        costs.check()?;
        Ok(costs)
    }

    /// The costs as JSON, for people too.
    ///
    /// # Panics
    /// Never: everything in them has a JSON form.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("everything in them has a JSON form");
        text.push('\n');
        text
    }

    fn check(&self) -> Result<(), AdaptError> {
        let wrong = |detail: String| Err(AdaptError::SyncCosts { detail });
        if self.format != FORMAT {
            return wrong(format!("it has the format '{}', this program reads '{FORMAT}'", self.format));
        }
        if self.pairs.is_empty() {
            return wrong("no pair of workers was measured".to_owned());
        }
        for PairCost { relation, distance, line_ns, sync_ns } in &self.pairs {
            if [distance, line_ns, sync_ns].iter().any(|number| !(number.is_finite() && **number > 0.0)) {
                let detail = format!("distance {distance}, {line_ns} ns of a line, {sync_ns} ns in all");
                return wrong(format!("the pair '{relation}' has no positive numbers: {detail}"));
            }
        }
        Ok(())
    }

    /// The description of the machine that they were measured on.
    #[must_use]
    pub fn machine(&self) -> &str {
        &self.machine
    }

    /// Returns whether they were measured on the machine of this description.
    #[must_use]
    pub fn is_of(&self, machine: &str) -> bool {
        self.machine == machine
    }

    /// The measurements, by relation of the workers.
    #[must_use]
    pub fn pairs(&self) -> &[PairCost] {
        &self.pairs
    }

    /// `weights` with the costs of synchronization of this machine instead of their own.
    #[must_use]
    pub fn weights(&self, weights: &Weights) -> Weights {
        let cycles = |ns: f64| CYCLES_PER_NS * ns;
        let count = self.pairs.len() as f64;
        let mean = |of: &dyn Fn(&PairCost) -> f64| self.pairs.iter().map(of).sum::<f64>() / count;
        let (distance, sync) = (mean(&|pair| pair.distance), mean(&|pair| cycles(pair.sync_ns)));
        let variance = mean(&|pair| (pair.distance - distance).powi(2));
        // Cycles of a synchronization per unit of distance: at most all of it.
        let slope = if variance > 1e-6 {
            mean(&|pair| (pair.distance - distance) * (cycles(pair.sync_ns) - sync)) / variance
        } else {
            TRANSFERS * mean(&|pair| cycles(pair.line_ns)) / distance
        };
        let slope = slope.clamp(0.0, sync / distance);
        // Without bytes of messages nothing but the data would grow with the distance.
        let cycles_per_byte =
            if weights.message_bytes > 0.0 { slope / weights.message_bytes } else { weights.cycles_per_byte };
        let exchange_cycles = if weights.message_bytes > 0.0 { sync - slope * distance } else { sync };
        Weights { cycles_per_byte, exchange_cycles, ..*weights }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(distance: f64, line_ns: f64, sync_ns: f64) -> PairCost {
        PairCost { relation: "same-l3".to_owned(), distance, line_ns, sync_ns }
    }

    fn weights(pairs: Vec<PairCost>) -> Weights {
        let costs = SyncCosts::new("a machine".to_owned(), pairs).expect("costs");
        costs.weights(&Weights::default())
    }

    #[test]
    fn pairs_at_several_distances_tell_what_grows_from_what_does_not() {
        // 400 ns, and 100 ns per unit of distance.
        let of = weights(vec![pair(1.0, 9.0, 500.0), pair(2.5, 9.0, 650.0), pair(5.0, 9.0, 900.0)]);
        assert!((of.exchange_cycles - 800.0).abs() < 1e-6, "{of:?}");
        assert!((of.cycles_per_byte - 200.0 / 384.0).abs() < 1e-9, "{of:?}");
    }

    #[test]
    fn with_one_distance_lines_are_what_grows() {
        // Six transfers of 40 ns are 240 of 640 ns.
        let of = weights(vec![pair(1.0, 40.0, 640.0)]);
        assert!((of.exchange_cycles - 800.0).abs() < 1e-6, "{of:?}");
        assert!((of.cycles_per_byte - 480.0 / 384.0).abs() < 1e-9, "{of:?}");
        assert_eq!(of.balance, Weights::default().balance);
    }

    #[test]
    fn no_weight_is_negative() {
        // Nearer workers that cost more, and lines that alone would take longer than all.
        for pairs in [vec![pair(1.0, 9.0, 500.0), pair(5.0, 9.0, 400.0)], vec![pair(1.0, 400.0, 640.0)]] {
            let of = weights(pairs);
            assert!(of.check().is_ok() && of.exchange_cycles + of.cycles_per_byte > 0.0, "{of:?}");
        }
    }

    #[test]
    fn what_is_no_measurement_is_refused() {
        let refused = |pairs| SyncCosts::new("a machine".to_owned(), pairs).expect_err("refused").to_string();
        assert!(refused(Vec::new()).contains("no pair"));
        assert!(refused(vec![pair(1.0, 40.0, -3.0)]).contains("no positive numbers"));
        let costs = SyncCosts::new("a machine".to_owned(), vec![pair(1.0, 40.0, 640.0)]).expect("costs");
        assert_eq!(SyncCosts::from_json(&costs.to_json()), Ok(costs.clone()));
        let other = costs.to_json().replace("costs 1", "costs 9");
        let error = SyncCosts::from_json(&other).expect_err("another format").to_string();
        assert!(error.contains("costs 9") && error.contains("atrapos topology --measure"), "{error}");
        assert!(SyncCosts::from_json("{").is_err());
        assert!(costs.is_of("a machine") && !costs.is_of("another"));
    }
}
