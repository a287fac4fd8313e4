//! The thresholds of the controller's rules, in one table: name, type, default, unit, and the values that make sense.
//!
//! Owns: the numbers that decide when a load is another one, when a change has failed, and for how long what was tried in vain is left alone.
//! Never: applies them. Lengths of memories, the grid on which trends are seen and the constants of the search are none of these: they
//! bound what an evaluation costs. Nor are those by which costs are estimated ([`attribute`](crate::attribute)): they are no thresholds.
//!
//! Invariant: with values in these ranges no computation overflows, and memory stays bounded.

use serde::{Deserialize, Serialize};

use super::ControllerSettings;
use super::settings::{Setting, setting};
use crate::error::AdaptError;

/// A number that a setting can have.
trait Number: Copy {
    fn to_f64(self) -> f64;
    fn from_f64(value: f64) -> Self;
}

impl Number for f64 {
    fn to_f64(self) -> f64 {
        self
    }

    fn from_f64(value: f64) -> f64 {
        value
    }
}

impl Number for u32 {
    fn to_f64(self) -> f64 {
        f64::from(self)
    }

    fn from_f64(value: f64) -> u32 {
        value.round() as u32
    }
}

/// Makes the structure of the rules, its defaults, its settings by name and its check of one table.
macro_rules! rules {
    ($($(#[$doc:meta])+ $name:ident: $number:ty = $default:literal $unit:literal from $least:literal to $most:literal;)+) => {
        /// Thresholds of the controller's rules. What each is worth shows `experiment adapt-world --sensitivity`.
        #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct Rules {
            $(
                $(#[$doc])+
                #[doc = concat!("In ", $unit, ", from ", $least, " to ", $most, "; default ", $default, ".")]
                pub $name: $number,
            )+
        }

        impl Default for Rules {
            fn default() -> Self {
                Self::DEFAULT
            }
        }

        impl Rules {
            pub(crate) const DEFAULT: Self = Self { $($name: $default,)+ };

            /// Each of them by its name.
            pub(super) const SETTINGS: &[Setting] = &[$(
                setting(
                    stringify!($name),
                    $unit,
                    |settings| settings.rules.$name.to_f64(),
                    |settings: &mut ControllerSettings, value| settings.rules.$name = Number::from_f64(value),
                )
                .between($least as f64, $most as f64),
            )+];

            /// Checks that the rules can be applied.
            ///
            /// # Errors
            /// [`AdaptError::Setting`] names the first that is out of its range.
            pub(super) fn check(&self) -> Result<(), AdaptError> {
                $(
                    if !($least..=$most).contains(&self.$name) {
                        let cure = concat!("give it from ", $least, " to ", $most);
                        return Err(AdaptError::Setting {
                            name: stringify!($name),
                            value: self.$name.to_string(),
                            cure,
                        });
                    }
                )+
                Ok(())
            }
        }
    };
}

rules! {
    /// Sampling noise, in standard deviations of a worker's load times the wanted confidence, beyond which statistics say nothing.
    noise_max: f64 = 0.5 "share" from 0.0 to 100.0;
    /// Number of measurements that must agree for the first evaluation.
    first_min: u32 = 3 "measurements" from 1 to 1000;
    /// Factor on the number of samples that a scheme was made from from which it may be made again.
    more_samples: f64 = 1.5 "times" from 1.0 to 1000000.0;
    /// Factor on the threshold for a throughput seen at a glance: it is of a short time, and may be of two loads.
    glance_thresholds: f64 = 2.0 "thresholds" from 0.0 to 1000.0;
    /// Divisor of the shortest interval: the observation after a glance that noticed something is due so early.
    after_glance: u32 = 2 "parts" from 1 to 1000;
    /// Number of differences between throughputs from which their scatter is known.
    scatter_min: u32 = 3 "differences" from 1 to 1000;
    /// The share of a predicted gain that must have come for the model to be believed in what it says of the same load right after.
    followed_min: f64 = 0.5 "share" from 0.0 to 1000.0;
    /// Number of times in a row that a partition may be cut only to see more: each time ten times finer, by default, so that the thousandth part
    /// of a sub-partition is found.
    looks_max: u32 = 3 "cuts" from 0 to 1000;
    /// Time after which that count begins again, once the situation is another one.
    looks_forgotten: u32 = 16 "longest intervals" from 0 to 1000;
    /// Requests for locks that wait more than before, per transaction, from which transactions are slower for it.
    more_waits: f64 = 0.1 "waits" from 0.0 to 1000000.0;

    /// The share of the load that must have moved across a key to have moved, beyond sampling noise.
    moved_min: f64 = 0.08 "share" from 0.0 to 1.0;
    /// Sampling noise in that share, of the two intervals together: the greatest of the differences at all keys is below so many standard
    /// deviations in 99 of 100 cases (the distribution of Kolmogorov and Smirnov).
    moved_deviations: f64 = 1.63 "standard deviations" from 0.0 to 1000.0;
    /// Number of times that the load must have become another one within [`turns_within`](Self::turns_within) for what comes next to be no
    /// load of its own, less what noise takes of it: there and back again. A load that stays for longer can be followed.
    turns: f64 = 1.8 "turns" from 0.0 to 1000.0;
    /// The time for [`turns`](Self::turns).
    turns_within: f64 = 0.75 "longest intervals" from 0.0 to 1000.0;
    /// The same for a longer time, [`more_turns_within`](Self::more_turns_within): once more.
    more_turns: f64 = 2.5 "turns" from 0.0 to 1000.0;
    /// The time for [`more_turns`](Self::more_turns), and the loads by which schemes are judged then.
    more_turns_within: f64 = 1.5 "longest intervals" from 0.0 to 1000.0;
    /// Time for which a scheme is to be good where the load moves on and on.
    intervals_to_come: u32 = 2 "longest intervals" from 0 to 1000;
    /// The share of the difference between two loads that may remain when one is moved onto the other, for the load to move on.
    unexplained_max: f64 = 0.5 "share" from 0.0 to 1.0;
    /// By which factor the two latest speeds of a load that moves on may differ.
    speeds_ratio_max: f64 = 2.0 "times" from 1.0 to 1000.0;
    /// Samples of each worker beyond which statistics of one more interval say nothing that is worth planning for: a standard deviation is 1% of
    /// a load.
    pooled_samples: f64 = 10000.0 "samples" from 0.0 to 1000000000.0;

    /// The share of the load that the last slice of a table must have for the table to grow noticeably.
    end_min: f64 = 0.1 "share" from 0.0 to 1.0;
    /// The share of what it had that it must have still although it begins later.
    end_kept: f64 = 0.8 "share" from 0.0 to 1.0;
    /// Factor on the least gain that counts from which cutting the end off is worth it again: by then half of the gain has been lost on
    /// average, which is the least that counts.
    growth_gains: f64 = 2.0 "times" from 0.0 to 1000.0;

    /// Number of observations in a row that must show a load that swings within them.
    swing_seen: u32 = 2 "observations" from 1 to 1000;
    /// Number of short times from which something can be told.
    swing_times: u32 = 5 "short times" from 1 to 1000;
    /// Standard deviation of a worker's load in a short time beyond which the greatest of several is more than that of normal noises: some
    /// ten samples are needed of each worker.
    swing_deviation_max: f64 = 0.3 "share" from 0.0 to 1000.0;
    /// Number of differences between short times, about tenths of the shortest interval, from which a change within it can be told.
    onset_times: u32 = 5 "short times" from 0 to 20;
    /// Number of short times in a row that must show such a change.
    onset_seen: u32 = 2 "short times" from 1 to 1000;
    /// Time for which stripes are left alone that serve a load that swings.
    stripes_kept: u32 = 8 "longest intervals" from 0 to 1000;

    /// Share of the predicted gain that must come true for a change to count as a success.
    fulfilment_min: f64 = 0.25 "share" from 0.0 to 1000.0;
    /// Share of the predicted balance that must come about for a change to count as a success although the throughput did not
    /// rise, as where clients do not ask for more.
    balance_min: f64 = 0.5 "share" from 0.0 to 1000.0;
    /// Least change of the share of synchronization from which its cost is learnt.
    sync_saved_min: f64 = 0.05 "share" from 0.0 to 1000.0;
    /// Number of failures after which a change is not tried again: one may be a change of load that came at a bad moment.
    failures_to_block: u32 = 2 "failures" from 1 to 1000;
    /// Time for which it is not tried again; twice as long after each further failure.
    blocked: u32 = 8 "longest intervals" from 0 to 1000;
    /// Number of times that this time doubles.
    blocked_doublings: u32 = 6 "doublings" from 0 to 20;
    /// Time for which a situation is not evaluated again that has not changed: with the longest interval at 8 s, 64 s.
    patience: u32 = 8 "longest intervals" from 0 to 1000;
    /// Number of changes in a row that must bring progress together, or there is a pause.
    recent: u32 = 6 "changes" from 1 to 1000;
    /// Number of these after which the throughput must have fallen for the pause.
    recent_falls: u32 = 3 "changes" from 0 to 1000;
    /// Greatest progress counted for one of them, so that a single change of load does not outweigh the others.
    progress_max: f64 = 0.5 "logarithm" from 0.0 to 1000.0;
    /// The length of the pause after the last of them, and after each further one.
    pause: u32 = 4 "longest intervals" from 0 to 1000;

    /// Number of intervals one after another in which reads by message must stand out for a table to be shared.
    shared_after: u32 = 2 "intervals" from 1 to 1000;
    /// Number of intervals by which a shared table is judged.
    shared_judged: u32 = 3 "intervals" from 1 to 1000;
    /// Time before a table that was shared in vain is shared again; twice as long after each further failure.
    shared_again: u32 = 16 "longest intervals" from 0 to 1000;
    /// Number of times that this time doubles.
    shared_doublings: u32 = 6 "doublings" from 0 to 20;
    /// Cost of a transaction that is sent as a whole: nothing waits for it in the middle, and it holds no locks (decision 137 has the
    /// measurement).
    shared_sent_cost: f64 = 0.25 "reads by message" from 0.0 to 1000.0;

    /// The share of its time that a worker must be busy for to be saturated: loads are scaled to the busy time of those that are.
    saturated: f64 = 0.9 "share" from 0.0 to 1.0;
    /// The share of the rows of a table without split points, over that of a worker, from which it is divided by its rows anew.
    divided_uneven: f64 = 1.5 "times" from 1.0 to 1000.0;
    /// The factor by which it must have grown for that.
    divided_grown: f64 = 2.0 "times" from 1.0 to 1000.0;
}
