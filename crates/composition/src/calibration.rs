//! Sizes of domains from curves (`Virtual domains §5.2`, calibration).
//!
//! Owns: the rule by which a size is found, and how sure it is. Never: measures.
//!
//! The rule walks up the measured sizes and keeps the best so far. It ends before the first size whose throughput is
//! below the best so far with the given confidence: there the slope has turned negative. A dip that may be noise does
//! not end it, and several small ones that add up do, because each size is compared with the best and not with its
//! neighbour.

use crate::curve::{Curve, Curves};
use crate::demand::Structure;
use crate::error::CompositionError;
use crate::statistics::{Level, is_lower, resampled, variation};
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde::Serialize;
use std::collections::BTreeMap;

/// Coefficient of variation up to which a point counts as reliable (`Virtual domains §7`).
pub const RELIABLE_VARIATION_MAX: f64 = 0.05;

/// Settings of a calibration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CalibrationSettings {
    /// Confidence with which a decline must be one; also that of the interval. Between 0.5 and 1.
    pub confidence: f64,
    /// Times that the rounds are drawn again for the interval. At least 100.
    pub resamples: u32,
    /// Seed of these draws.
    pub seed: u64,
}

impl Default for CalibrationSettings {
    fn default() -> Self {
        Self { confidence: 0.95, resamples: 1000, seed: 1 }
    }
}

/// The size that a curve gives.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Calibration {
    /// The size before the slope turns negative, in workers: `s_i`.
    pub workers: u32,
    /// Throughput there, per second: the mean of the rounds without the extremes.
    pub throughput_per_second: f64,
    /// Sizes between which the rule ends when the rounds are drawn again (bootstrap, percentiles), with
    /// [`CalibrationSettings::confidence`]. `None` when some point has one round only: then nothing is known of noise.
    pub workers_interval: Option<(u32, u32)>,
    /// Share of these draws that give exactly [`workers`](Self::workers); `None` as above.
    pub agreement: Option<f64>,
    /// A measured size beyond the decline with more throughput than [`workers`](Self::workers) has: the paper's rule
    /// does not look there, so somebody may want to.
    pub higher_beyond: Option<u32>,
    /// Sizes whose rounds vary by more than [`RELIABLE_VARIATION_MAX`].
    pub unreliable_sizes: Vec<u32>,
}

/// The size that a curve gives.
///
/// # Errors
/// [`CompositionError::Curve`] for a curve that breaks the invariants of the module `curve`;
/// [`CompositionError::Setting`].
pub fn calibrate(curve: &Curve, settings: &CalibrationSettings) -> Result<Calibration, CompositionError> {
    curve.check()?;
    settings.check()?;
    let rounds: Vec<&[f64]> =
        curve.points.iter().map(|point| point.throughputs_per_second.as_slice()).collect();
    let levels: Vec<Level> = rounds.iter().map(|values| Level::of(values)).collect();
    let (at, end) = best_before_decline(&levels, settings.confidence);
    let workers = |at: usize| curve.points[at].workers;
    let drawn = draw_again(&rounds, settings);
    let highest = (end..levels.len()).max_by(|a, b| levels[*a].mean.total_cmp(&levels[*b].mean));
    let varies = |values: &[f64]| variation(values).is_some_and(|cv| cv > RELIABLE_VARIATION_MAX);
    Ok(Calibration {
        workers: workers(at),
        throughput_per_second: levels[at].mean,
        workers_interval: drawn.as_ref().map(|drawn| {
            let (low, high) = interval(drawn, settings.confidence);
            (workers(low), workers(high))
        }),
        agreement: drawn
            .as_ref()
            .map(|drawn| f64::from(drawn.get(&at).copied().unwrap_or(0)) / f64::from(settings.resamples)),
        higher_beyond: highest.filter(|&beyond| levels[beyond].mean > levels[at].mean).map(workers),
        unreliable_sizes: (0..rounds.len()).filter(|&at| varies(rounds[at])).map(workers).collect(),
    })
}

impl CalibrationSettings {
    /// # Errors
    /// [`CompositionError::Setting`] for what is out of its range.
    pub fn check(&self) -> Result<(), CompositionError> {
        let refuse = |name, value: String, cure| Err(CompositionError::Setting { name, value, cure });
        if !(self.confidence > 0.5 && self.confidence < 1.0) {
            return refuse("confidence", self.confidence.to_string(), "it must be between 0.5 and 1");
        }
        if self.resamples < 100 {
            return refuse("resamples", self.resamples.to_string(), "it must be at least 100");
        }
        Ok(())
    }
}

/// The position of the best level before the first that is surely below it, and the position of that one, or the number
/// of levels.
fn best_before_decline(levels: &[Level], confidence: f64) -> (usize, usize) {
    let mut best = 0;
    for at in 1..levels.len() {
        if is_lower(levels[at], levels[best], confidence) {
            return (best, at);
        }
        if levels[at].mean > levels[best].mean {
            best = at;
        }
    }
    (best, levels.len())
}

/// The number of times that each position is the result when all rounds are drawn again; `None` when some point has one round.
fn draw_again(rounds: &[&[f64]], settings: &CalibrationSettings) -> Option<BTreeMap<usize, u32>> {
    if rounds.iter().any(|values| values.len() < 2) {
        return None;
    }
    let mut random = StdRng::seed_from_u64(settings.seed);
    let mut drawn = BTreeMap::new();
    for _ in 0..settings.resamples {
        let levels: Vec<Level> =
            rounds.iter().map(|values| Level::of(&resampled(values, &mut random))).collect();
        *drawn.entry(best_before_decline(&levels, settings.confidence).0).or_insert(0) += 1;
    }
    Some(drawn)
}

/// The positions between which `confidence` of the draws lie, equally many left out at either end.
fn interval(drawn: &BTreeMap<usize, u32>, confidence: f64) -> (usize, usize) {
    let draws: u32 = drawn.values().sum();
    let outside = (1.0 - confidence) / 2.0 * f64::from(draws);
    let reached = |counts: Vec<(&usize, &u32)>| {
        let mut sum = 0.0;
        let beyond = |(_, count): &(&usize, &u32)| {
            sum += f64::from(**count);
            sum > outside
        };
        counts.into_iter().find(beyond).map_or(0, |(at, _)| *at)
    };
    (reached(drawn.iter().collect()), reached(drawn.iter().rev().collect()))
}

impl Curves {
    /// A structure with the size that its curve gives, not isolated.
    ///
    /// # Errors
    /// [`CompositionError::NoCurve`]; what [`calibrate`] refuses.
    pub fn structure(
        &self,
        name: &str,
        kind: &str,
        mix: &str,
        load: f64,
        settings: &CalibrationSettings,
    ) -> Result<Structure, CompositionError> {
        let curve = self.get(kind, mix).ok_or_else(|| CompositionError::NoCurve {
            structure: name.to_owned(),
            kind: kind.to_owned(),
            mix: mix.to_owned(),
            known: self.known(),
        })?;
        let workers_max = calibrate(curve, settings)?.workers;
        Ok(Structure { name: name.to_owned(), workers_max, load, isolated: false })
    }
}
