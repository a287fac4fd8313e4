//! Robust statistics of a few rounds.
//!
//! Owns: the trimmed mean, Yuen's test of two of them, and resampling. Never: knows a curve.
//!
//! Yuen's test is Welch's t-test on trimmed means with winsorized variances (Yuen 1974): one disturbed round in five
//! changes neither the level nor its deviation. Below five rounds nothing is trimmed, and it is Welch's test.

use rand::RngExt;
use rand::rngs::StdRng;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Share of the rounds that is trimmed at either end.
const TRIMMED_SHARE: f64 = 0.2;

/// Level and deviation of a sample, without its extremes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Level {
    /// Mean of what is not trimmed.
    pub(crate) mean: f64,
    /// Squared standard error of the mean; `None` with a single round.
    error_squared: Option<f64>,
    /// Number of rounds that are not trimmed.
    kept: f64,
}

impl Level {
    /// The level of a sample, which has at least one value.
    pub(crate) fn of(values: &[f64]) -> Self {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        let count = values.len();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a fifth of a number of rounds"
        )]
        let trimmed = (TRIMMED_SHARE * count as f64) as usize;
        let inner = &values[trimmed..count - trimmed];
        let kept = inner.len() as f64;
        let mean = inner.iter().sum::<f64>() / kept;
        if inner.len() < 2 {
            return Self { mean, error_squared: None, kept };
        }
        let (low, high) = (inner[0], inner[inner.len() - 1]);
        let winsorized: Vec<f64> = values.iter().map(|value| value.clamp(low, high)).collect();
        let middle = winsorized.iter().sum::<f64>() / count as f64;
        let squares: f64 = winsorized.iter().map(|value| (value - middle).powi(2)).sum();
        Self { mean, error_squared: Some(squares / (kept * (kept - 1.0))), kept }
    }
}

/// Returns whether `later` is below `earlier` with the given confidence (one-sided). Without a second round in either
/// there is no measure of noise, and any difference counts.
pub(crate) fn is_lower(later: Level, earlier: Level, confidence: f64) -> bool {
    let difference = earlier.mean - later.mean;
    if difference <= 0.0 {
        return false;
    }
    let (Some(a), Some(b)) = (earlier.error_squared, later.error_squared) else { return true };
    let error = a + b;
    if error <= 0.0 {
        return true;
    }
    let freedom = error.powi(2) / (a.powi(2) / (earlier.kept - 1.0) + b.powi(2) / (later.kept - 1.0));
    let t = difference / error.sqrt();
    StudentsT::new(0.0, 1.0, freedom).map_or(t > 0.0, |student| student.cdf(t) >= confidence)
}

/// Coefficient of variation: standard deviation over mean; `None` with a single value or a mean of 0.
#[must_use]
pub fn variation(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    if values.len() < 2 || mean == 0.0 {
        return None;
    }
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / (count - 1.0)).sqrt() / mean)
}

/// A sample of equal size, drawn from the given one with replacement.
pub(crate) fn resampled(values: &[f64], random: &mut StdRng) -> Vec<f64> {
    values.iter().map(|_| values[random.random_range(0..values.len())]).collect()
}
