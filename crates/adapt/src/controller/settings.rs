//! The settings of the controller, and their checks.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::AdaptError;
use crate::search::Settings;

/// Settings of the controller's decisions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerSettings {
    /// The shortest time between two observations. Default 1 s, the paper's.
    pub interval: Duration,
    /// The longest, which is reached when it is calm. Default 8 s, the paper's. Also how long a plan that was turned down
    /// is not made again while nothing changes.
    pub interval_max: Duration,
    /// By which share a throughput must differ from the mean of the previous ones to be another. Default 0.1, the paper's.
    pub threshold: f64,
    /// Number of measurements in that mean. Default 5, the paper's.
    pub window: usize,
    /// By which share the busiest worker must exceed the mean for its own sake to be looked at. Default 0.2: twice what
    /// changes the throughput noticeably, and more than noise of 10% makes of equal loads.
    pub imbalance: f64,
    /// The least gain for which anything is moved (see [`Predicted::gain`](super::Predicted::gain)), if later statistics confirm it. Default 0.03.
    pub gain_min: f64,
    /// The gain from which a plan is carried out at once, beyond what noise explains. Default 0.15.
    pub gain_sure: f64,
    /// Number of later statistics that must confirm a gain between these two. Default 2.
    pub confirmations: u32,
    /// Number of standard deviations of the sampling noise that a gain must exceed to be sure. Default 3.
    pub confidence: f64,
    /// Settings of the search for plans. By default without annealing, because a worker may have to do without the core
    /// for so long.
    pub planning: Settings,
}

impl Default for ControllerSettings {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            interval_max: Duration::from_secs(8),
            threshold: 0.1,
            window: 5,
            imbalance: 0.2,
            gain_min: 0.03,
            gain_sure: 0.15,
            confirmations: 2,
            confidence: 3.0,
            planning: Settings { annealing: false, ..Settings::default() },
        }
    }
}

/// The longest window, so that memory stays bounded.
const WINDOW_MAX: usize = 1_000;

impl ControllerSettings {
    /// Checks that a controller can work with these.
    ///
    /// # Errors
    /// [`AdaptError::Setting`] names the first that makes no sense; [`AdaptError::Weight`] a weight of the objective.
    pub fn check(&self) -> Result<(), AdaptError> {
        let wrong = |name, value: String, cure| Err(AdaptError::Setting { name, value, cure });
        let (least, most) = (Duration::from_millis(1), Duration::from_secs(86_400));
        if self.interval < least || self.interval > most {
            return wrong("interval", format!("{:?}", self.interval), "give it between 1 ms and a day");
        }
        if self.interval_max < self.interval || self.interval_max > most {
            let value = format!("{:?}", self.interval_max);
            return wrong("interval_max", value, "give it at least the interval and at most a day");
        }
        if !(1..=WINDOW_MAX).contains(&self.window) {
            return wrong("window", self.window.to_string(), "give it between 1 and 1000 measurements");
        }
        let shares =
            [("threshold", self.threshold), ("imbalance", self.imbalance), ("gain_min", self.gain_min)];
        for (name, value) in shares {
            if !(value > 0.0 && value.is_finite()) {
                return wrong(name, value.to_string(), "give it a share above 0, such as 0.1");
            }
        }
        if !(self.gain_sure >= self.gain_min && self.gain_sure.is_finite()) {
            return wrong("gain_sure", self.gain_sure.to_string(), "give it at least gain_min");
        }
        if !(self.confidence >= 0.0 && self.confidence.is_finite()) {
            return wrong("confidence", self.confidence.to_string(), "give it 0 or more, such as 3");
        }
        self.planning.weights.check()
    }
}
