//! The thresholds of the controller's rules.
//!
//! Owns: the numbers that decide when a load is another one, when a change has failed, and for how long what was tried in vain is left alone.
//! Never: applies them. Those of planning are [`Thresholds`](crate::Thresholds). Lengths of memories, the grid on which trends are seen and the constants of the
//! search are none of these: they bound what an evaluation costs.

use std::ops::RangeInclusive;

use crate::thresholds::thresholds;

thresholds! {
    /// Thresholds of the controller's rules. What each is worth shows `experiment adapt-world --sensitivity`.
    Rules in |settings| settings.rules;

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
    /// Share of a worker's part of a load that a slice must have to be dealt, where a scheme is to be good for several loads.
    dealt_min: f64 = 0.001 "share" from 0.0 to 1.0;
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
    /// Number of stripes of each table for each worker: as many as a partition of the first scheme has sub-partitions by default.
    stripes_per_worker: u32 = 10 "stripes" from 1 to 1000;
    /// Weight of all rows where slices are dealt, over that of the load.
    rows_part: f64 = 0.1 "share" from 0.0 to 1000.0;
    /// Time for which stripes are left alone that serve a load that swings.
    stripes_kept: u32 = 8 "longest intervals" from 0 to 1000;

    /// Share of the predicted gain that must come true for a change to count as a success.
    fulfilment_min: f64 = 0.25 "share" from 0.0 to 1000.0;
    /// Share of the predicted balance that must come about for a change to count as a success although the throughput did not
    /// rise, as where clients do not ask for more.
    balance_min: f64 = 0.5 "share" from 0.0 to 1000.0;
    /// Greatest factor by which synchronization may turn out dearer or cheaper than the settings say.
    sync_factor_max: f64 = 5.0 "times" from 1.0 to 1000.0;
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

impl Rules {
    /// Factors by which synchronization may be dearer or cheaper than the settings say.
    #[must_use]
    pub fn sync_factors(&self) -> RangeInclusive<f64> {
        1.0 / self.sync_factor_max..=self.sync_factor_max
    }

    /// The nearest of these factors.
    pub(super) fn sync_factor(&self, factor: f64) -> f64 {
        factor.clamp(*self.sync_factors().start(), *self.sync_factors().end())
    }
}
