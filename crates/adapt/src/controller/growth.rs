//! Tables whose keys grow at the end: what changes of the scheme bring there.
//!
//! The last slice of a table whose new rows are all at the end of the keys has what was appended since it was cut, and ever more of the load until it is
//! cut again. A plan sees the load as it was in the intervals before. What the end gains meanwhile is missing from the gain that comes, again and again:
//! so the latest change says how much is to be taken off the next prediction.
//!
//! Owns: the shortfall of predictions. Never: decides.

use super::ControllerSettings;

/// The shortfall of predicted gains where a table grows at its end.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Growth {
    /// `None` until a change was made while a table grew.
    shortfall: Option<f64>,
    /// The gain that is expected of the latest change, until it has come or not.
    awaited: Option<f64>,
}

impl Growth {
    /// The gain that is to be expected where the model says this one.
    pub(super) fn expected(self, gain: f64) -> f64 {
        gain - self.shortfall.unwrap_or(0.0)
    }

    /// The gain from which a change is made without being confirmed: what is expected is made to measure, and each interval without it costs as
    /// much.
    pub(super) fn sure_gain(self, settings: &ControllerSettings) -> Option<f64> {
        self.shortfall.map(|_| settings.rules.growth_gains * settings.gain_min)
    }

    /// Returns true if cutting the end off is worth it again, as many of the shortest intervals after it brought nothing more: in each of them the
    /// end gains as much as in the one after a change.
    pub(super) fn is_worth_it_after(self, intervals: f64, settings: &ControllerSettings) -> bool {
        let shortfall = self.shortfall.zip(self.sure_gain(settings));
        shortfall.is_some_and(|(shortfall, worth)| shortfall * intervals >= worth)
    }

    /// Takes note of whether a table grows: what was learnt while one did says nothing of loads that stay where they are.
    pub(super) const fn note(&mut self, is_growing: bool) {
        if !is_growing {
            self.shortfall = None;
        }
    }

    /// Takes note of the gain that is [expected](Self::expected) of a change, whatever it is made for; `None` if nothing is to be learnt from it.
    pub(super) const fn await_gain(&mut self, expected: Option<f64>) {
        self.awaited = expected;
    }

    /// Takes note of the gain that came of the latest change, if a table grew meanwhile.
    pub(super) fn learn(&mut self, came: f64, is_growing: bool) {
        if let Some(expected) = self.awaited.take().filter(|_| is_growing && came.is_finite()) {
            let said = expected + self.shortfall.unwrap_or(0.0);
            self.shortfall = Some((said - came).clamp(0.0, 1.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_change_lacked_is_taken_off_the_next_prediction() {
        let mut growth = Growth::default();
        assert_eq!((growth.expected(0.25), growth.sure_gain(&ControllerSettings::default())), (0.25, None));
        assert!(!growth.is_worth_it_after(9.0, &ControllerSettings::default()));
        let learn = |growth: &mut Growth, expected, came| {
            growth.await_gain(expected);
            growth.learn(came, true);
            growth.expected(0.12)
        };
        assert!((learn(&mut growth, Some(0.25), 0.15) - 0.02).abs() < 1e-9);
        // The model said 12%, and 4% came of the 2% that were expected.
        assert!((learn(&mut growth, Some(0.02), 0.04) - 0.04).abs() < 1e-9);
        // Nothing was expected, and nothing was committed.
        assert!((learn(&mut growth, None, 0.5) - 0.04).abs() < 1e-9);
        assert!((learn(&mut growth, Some(0.04), f64::NEG_INFINITY) - 0.04).abs() < 1e-9);
        // More than was expected is no reason to expect more than the model says.
        assert_eq!(learn(&mut growth, Some(0.04), 0.5), 0.12);
        assert!((learn(&mut growth, Some(0.12), 0.02) - 0.02).abs() < 1e-9);
        growth.note(true);
        assert_eq!(growth.sure_gain(&ControllerSettings::default()), Some(0.06));
        growth.note(false);
        assert_eq!((growth.expected(0.12), growth.sure_gain(&ControllerSettings::default())), (0.12, None));
        growth.await_gain(Some(0.12));
        growth.learn(0.0, false);
        assert_eq!(
            growth.sure_gain(&ControllerSettings::default()),
            None,
            "loads that stay where they are are not what it is of"
        );
    }

    #[test]
    fn the_end_is_cut_off_again_when_half_of_it_has_cost_what_counts() {
        let mut growth = Growth::default();
        growth.await_gain(Some(0.10));
        growth.learn(0.08, true);
        // 2% in each interval.
        assert!(
            !growth.is_worth_it_after(2.0, &ControllerSettings::default())
                && growth.is_worth_it_after(3.0 + 1e-9, &ControllerSettings::default())
        );
    }
}
