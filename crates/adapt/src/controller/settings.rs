//! The settings of the controller, and their checks.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::rules::Rules;
use crate::cores::CoreSettings;
use crate::error::AdaptError;
use crate::search::{Annealing, Settings};
use crate::thresholds::Thresholds;

/// Settings of the controller's decisions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerSettings {
    /// The shortest time between two observations. Default 1 s, the paper's.
    pub interval: Duration,
    /// The longest, which is reached when it is calm. Default 8 s, the paper's. Eight times as long a plan that was turned down is not made
    /// again while nothing changes.
    pub interval_max: Duration,
    /// By which share a throughput must differ from the mean of the previous ones to be another. Default 0.1, the paper's.
    pub threshold: f64,
    /// Number of measurements in that mean. Default 5, the paper's.
    pub window: usize,
    /// The share of transactions that must be of other classes than at the latest evaluation for the model to be evaluated. Default 0.25; from
    /// 1 on, classes say nothing.
    #[serde(default = "mix_change")]
    pub mix_change: f64,
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
    /// The share of all workers' time that messages must take which read a table of another worker's, and change nothing, for the table to
    /// be shared (see [`Controller::share`](super::Controller::share)), where no scheme has many messages less. Default 0.05; from 1 on, none ever is.
    #[serde(default = "share_gain")]
    pub share_gain: f64,
    /// Settings of the search for plans. By default with [short annealing](Annealing::Short), because a worker may have to do without the core
    /// for so long.
    pub planning: Settings,
    /// Rules by which the loss of a core is noticed.
    #[serde(default)]
    pub cores: CoreSettings,
    /// Thresholds of the other rules.
    #[serde(default)]
    pub rules: Rules,
}

impl Default for ControllerSettings {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            interval_max: Duration::from_secs(8),
            threshold: 0.1,
            window: 5,
            mix_change: mix_change(),
            imbalance: 0.2,
            gain_min: 0.03,
            gain_sure: 0.15,
            confirmations: 2,
            confidence: 3.0,
            share_gain: share_gain(),
            planning: Settings { annealing: Annealing::Short, ..Settings::default() },
            cores: CoreSettings::default(),
            rules: Rules::default(),
        }
    }
}

/// The default of [`ControllerSettings::mix_change`].
const fn mix_change() -> f64 {
    0.25
}

/// The default of [`ControllerSettings::share_gain`].
const fn share_gain() -> f64 {
    0.05
}

/// One of the settings by its name, for command lines and for tables of what each is worth.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// The name of the field.
    pub name: &'static str,
    /// The unit of its value.
    pub unit: &'static str,
    /// The least and the greatest value that it can have.
    range: (f64, f64),
    get: fn(&ControllerSettings) -> f64,
    set: fn(&mut ControllerSettings, f64),
}

impl Setting {
    /// Those of the first structure and of the search.
    const OWN: &[Setting] = &[
        setting("interval", "s", |s| s.interval.as_secs_f64(), |s, v| s.interval = seconds(v)),
        setting("interval_max", "s", |s| s.interval_max.as_secs_f64(), |s, v| s.interval_max = seconds(v)),
        setting("threshold", "share", |s| s.threshold, |s, v| s.threshold = v),
        setting("window", "measurements", |s| s.window as f64, |s, v| s.window = v.round() as usize),
        setting("mix_change", "share", |s| s.mix_change, |s, v| s.mix_change = v),
        setting("imbalance", "share", |s| s.imbalance, |s, v| s.imbalance = v),
        setting("gain_min", "share", |s| s.gain_min, |s, v| s.gain_min = v),
        setting("gain_sure", "share", |s| s.gain_sure, |s, v| s.gain_sure = v),
        setting(
            "confirmations",
            "evaluations",
            |s| f64::from(s.confirmations),
            |s, v| s.confirmations = v.round() as u32,
        ),
        setting("confidence", "standard deviations", |s| s.confidence, |s, v| s.confidence = v),
        setting("share_gain", "share", |s| s.share_gain, |s, v| s.share_gain = v),
        setting(
            "effort",
            "evaluations",
            |s| f64::from(s.planning.effort),
            |s, v| s.planning.effort = v.round() as u32,
        ),
        setting("balance", "weight", |s| s.planning.weights.balance, |s, v| s.planning.weights.balance = v),
        setting("busiest", "weight", |s| s.planning.weights.busiest, |s, v| s.planning.weights.busiest = v),
        setting(
            "synchronization",
            "weight",
            |s| s.planning.weights.synchronization,
            |s, v| s.planning.weights.synchronization = v,
        ),
        setting(
            "partitions",
            "weight",
            |s| s.planning.weights.partitions,
            |s, v| s.planning.weights.partitions = v,
        ),
        setting(
            "cycles_per_byte",
            "cycles",
            |s| s.planning.weights.cycles_per_byte,
            |s, v| s.planning.weights.cycles_per_byte = v,
        ),
        setting(
            "message_bytes",
            "bytes",
            |s| s.planning.weights.message_bytes,
            |s, v| s.planning.weights.message_bytes = v,
        ),
        setting(
            "exchange_cycles",
            "cycles",
            |s| s.planning.weights.exchange_cycles,
            |s, v| s.planning.weights.exchange_cycles = v,
        ),
        setting("step_us", "us", |s| s.planning.prices.step_us, |s, v| s.planning.prices.step_us = v),
        setting("row_ns", "ns", |s| s.planning.prices.row_ns, |s, v| s.planning.prices.row_ns = v),
        setting("horizon", "s", |s| s.planning.prices.horizon, |s, v| s.planning.prices.horizon = v),
        setting("spread", "weight", |s| s.planning.prices.spread, |s, v| s.planning.prices.spread = v),
        setting("stall_share", "share", |s| s.cores.stall_share, |s, v| s.cores.stall_share = v),
        setting(
            "stall_time",
            "s",
            |s| s.cores.stall_time.as_secs_f64(),
            |s, v| s.cores.stall_time = seconds(v),
        ),
        setting("throttled_share", "share", |s| s.cores.throttled_share, |s, v| s.cores.throttled_share = v),
        setting(
            "return_time",
            "s",
            |s| s.cores.return_time.as_secs_f64(),
            |s, v| s.cores.return_time = seconds(v),
        ),
        setting("demand_min", "share", |s| s.cores.demand_min, |s, v| s.cores.demand_min = v),
        setting("fit_share", "share", |s| s.cores.fit_share, |s, v| s.cores.fit_share = v),
        setting(
            "return_doublings",
            "doublings",
            |s| f64::from(s.cores.return_doublings),
            |s, v| s.cores.return_doublings = v.round() as u32,
        ),
        setting(
            "lost_again",
            "times to return",
            |s| f64::from(s.cores.lost_again),
            |s, v| s.cores.lost_again = v.round() as u32,
        ),
    ];

    /// The same setting, from a least to a greatest value.
    pub(crate) const fn between(self, least: f64, most: f64) -> Setting {
        Setting { range: (least, most), ..self }
    }

    /// Every setting that is a number.
    pub fn all() -> impl Iterator<Item = Setting> {
        Setting::OWN.iter().chain(Thresholds::SETTINGS).chain(Rules::SETTINGS).copied()
    }

    /// The setting of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Setting> {
        Setting::all().find(|setting| setting.name == name)
    }

    /// Its value, in its unit.
    #[must_use]
    pub fn of(&self, settings: &ControllerSettings) -> f64 {
        (self.get)(settings)
    }

    /// Returns the value next to this one that it can have.
    #[must_use]
    pub fn nearest(&self, value: f64) -> f64 {
        let (least, most) = self.range;
        value.clamp(least, most)
    }

    /// Gives it a value; a number of things is rounded. Whether a controller can work with it says
    /// [`ControllerSettings::check`].
    ///
    /// # Errors
    /// [`AdaptError::Setting`] for a value that is no number from 0 to a billion.
    pub fn give(&self, settings: &mut ControllerSettings, value: f64) -> Result<(), AdaptError> {
        if !(0.0..=VALUE_MAX).contains(&value) {
            let cure = "give it a number from 0 to 1000000000";
            return Err(AdaptError::Setting { name: self.name, value: value.to_string(), cure });
        }
        (self.set)(settings, value);
        Ok(())
    }
}

/// The greatest value of any setting.
const VALUE_MAX: f64 = 1e9;

pub(crate) const fn setting(
    name: &'static str,
    unit: &'static str,
    get: fn(&ControllerSettings) -> f64,
    set: fn(&mut ControllerSettings, f64),
) -> Setting {
    Setting { name, unit, range: (0.0, VALUE_MAX), get, set }
}

/// A time; `seconds` is checked to be one.
fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
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
        let shares = [
            ("threshold", self.threshold),
            ("mix_change", self.mix_change),
            ("imbalance", self.imbalance),
            ("gain_min", self.gain_min),
            ("share_gain", self.share_gain),
        ];
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
        if self.planning.prices.horizon == 0.0 {
            return wrong(
                "horizon",
                "0".into(),
                "give it the seconds in which a change must pay, such as 64",
            );
        }
        self.cores.check()?;
        self.rules.check()?;
        self.planning.thresholds.check()?;
        self.planning.weights.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_given_and_read_under_its_name() {
        let default = ControllerSettings::default();
        let as_json = |settings: &ControllerSettings| {
            serde_json::to_string(settings).expect("settings have a JSON form")
        };
        for setting in Setting::all() {
            let mut settings = default;
            let value = 2.0 * setting.of(&default);
            setting.give(&mut settings, value).expect("twice the default");
            assert_eq!(setting.of(&settings), value, "{}", setting.name);
            assert!(as_json(&settings).contains(&format!("\"{}\":", setting.name)), "{}", setting.name);
            // Nothing else has changed.
            setting.give(&mut settings, setting.of(&default)).expect("the default");
            assert_eq!(settings, default, "{}", setting.name);
            assert_eq!(Setting::named(setting.name).map(|found| found.unit), Some(setting.unit));
        }
    }

    #[test]
    fn rules_out_of_their_range_are_refused_by_name() {
        let refused = |change: fn(&mut Rules)| {
            let mut settings = ControllerSettings::default();
            settings.check().expect("the defaults");
            change(&mut settings.rules);
            settings.check().expect_err("refused").to_string()
        };
        let many = refused(|rules| rules.blocked_doublings = 21);
        assert!(many.contains("blocked_doublings") && many.contains("from 0 to 20"), "{many}");
        assert!(refused(|rules| rules.recent = 0).contains("recent"));
        assert!(refused(|rules| rules.moved_min = f64::NAN).contains("moved_min"));
        assert!(refused(|rules| rules.speeds_ratio_max = 0.5).contains("speeds_ratio_max"));
    }

    #[test]
    fn what_is_no_value_is_refused_by_name() {
        let mut settings = ControllerSettings::default();
        for value in [-1.0, f64::NAN, f64::INFINITY] {
            let error = Setting::OWN[0].give(&mut settings, value).expect_err("refused");
            assert!(error.to_string().contains("interval"), "{error}");
        }
        assert_eq!(settings, ControllerSettings::default());
    }
}
