//! Tables that workers read although they do not own them: which of these are shared, so that they are read in place.
//!
//! A scheme brings together what is used together. What all workers read, such as a table of items, is near one of them at most, and
//! each read of the others' costs messages under every scheme. Where such a table is hardly ever written, its partitions may be lent
//! to the workers that read them: a virtual domain of all readers, which neither `ATraPos` nor the paper of virtual domains has.
//!
//! Owns: when a table becomes shared, and when it no longer is. Never: lends a partition: the engine does, for as long as nobody
//! writes in it, and judges each loan by itself.
//!
//! # Rules
//!
//! - A table is shared when messages that only read it, transactions sent as a whole among them, take more than
//!   [`share_gain`](super::ControllerSettings::share_gain) of the workers' time in
//!   [`shared_after`](Rules::shared_after) intervals one after another in which no scheme was found that has many messages less. So what should move, since one
//!   worker alone reads it, moves.
//! - Whether that pays is not predicted: who writes how often is not in the statistics, and a trial costs little, as the engine lends
//!   seldom what never pays. A shared table is judged every [`shared_judged`](Rules::shared_judged) intervals: if its reads in place were fewer than its recalls have
//!   cost, in reads by message, or if there were none, as it could never be lent, it is shared no longer.
//! - It is tried again after a while, which doubles with each trial that failed.
//!
//! Invariants: the same counts give the same changes; a table that nobody reads stays as it is.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::controller::Rules;

/// Counts of one table, over all workers, since any fixed moment. An index is a table of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableReads {
    /// The number of the table.
    pub table: u32,
    /// Messages of other workers' transactions that read it and changed nothing.
    pub messages: u64,
    /// Transactions that only read it and were sent to its owner as a whole.
    pub sent: u64,
    /// Reads that workers made in place, in partitions that are lent to them.
    pub in_place: u64,
    /// The price of the recalls of lent partitions, in reads by message.
    pub price: u64,
}

/// Observation of what workers read elsewhere.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadsSeen {
    /// Time of the observation, in nanoseconds since any fixed moment.
    pub at_ns: u64,
    /// Cycles that all workers were busy, since any fixed moment.
    pub busy_cycles: f64,
    /// The tables that may be shared.
    pub tables: Vec<TableReads>,
}

/// Reasons for a change of what is shared.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "sharing")]
pub enum SharingReason {
    /// Reads of a table by workers that do not own it, which no known scheme avoids.
    ReadElsewhere {
        /// Messages per second.
        per_second: f64,
        /// The share of all workers' time that these take.
        share: f64,
    },
    /// Reads in place that were fewer than the price of the recalls, or none, as the table could never be lent.
    Unpaid {
        /// The reads in place since the table was judged before.
        in_place: u64,
        /// The price of the recalls in that time, in reads by message.
        price: u64,
    },
}

/// Change of what is shared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SharingChange {
    /// The number of the table.
    pub table: u32,
    /// The reason; it says which change it is.
    pub reason: SharingReason,
}

impl SharingChange {
    /// Returns true if the table is shared from now on, and false if it no longer is.
    #[must_use]
    pub const fn shares(&self) -> bool {
        matches!(self.reason, SharingReason::ReadElsewhere { .. })
    }
}

/// Limits of the rules.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The share of all workers' time from which a table is shared.
    pub(crate) share_gain: f64,
    /// Cycles of a read by message.
    pub(crate) message_cycles: f64,
    pub(crate) interval_max: Duration,
    pub(crate) rules: Rules,
}

impl Limits {
    /// Returns the share that messages take of so many cycles of all workers.
    fn share(&self, TableReads { messages, sent, .. }: &TableReads, busy_cycles: f64) -> f64 {
        let messages = *messages as f64 + *sent as f64 * self.rules.shared_sent_cost;
        if busy_cycles > 0.0 { (messages * self.message_cycles / busy_cycles).min(1.0) } else { 0.0 }
    }
}

/// The counts of a table in one interval.
struct Latest {
    messages: u64,
    seconds: f64,
    /// The share of all workers' time that the messages take.
    share: f64,
}

/// A table that is read elsewhere, or may be.
#[derive(Debug, Clone)]
struct Known {
    counts: TableReads,
    /// Set while it is shared.
    shared: Option<Shared>,
    /// Intervals one after another in which reads by message stood out.
    intervals: u32,
    /// The time before which it is not shared again.
    again_ns: u64,
    /// Trials one after another that failed.
    failed: u32,
}

/// A table that is shared.
#[derive(Debug, Clone)]
struct Shared {
    since_ns: u64,
    /// The intervals since it was judged.
    intervals: u32,
    /// The counts and the cycles of all workers then.
    counts: TableReads,
    busy_cycles: f64,
}

/// The tables that the controller has shared, and what it has seen of the others.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sharing {
    known: BTreeMap<u32, Known>,
    /// The latest observation.
    seen: Option<(u64, f64)>,
}

impl Sharing {
    /// Returns true if a table has been read elsewhere in the latest interval so much that it is shared after another one like it.
    pub(crate) fn is_about_to_share(&self) -> bool {
        let (now_ns, _) = self.seen.unwrap_or_default();
        let mut known = self.known.values();
        known.any(|known| known.shared.is_none() && known.intervals > 0 && known.again_ns <= now_ns)
    }

    /// Takes note of what was read; returns the tables that are to be shared from now on, or no longer. `stays` says whether
    /// no scheme is known that would do with many messages less; where that cannot be told, an interval counts neither way.
    pub(crate) fn consider(
        &mut self,
        seen: &ReadsSeen,
        stays: Option<bool>,
        limits: &Limits,
    ) -> Vec<SharingChange> {
        let (since_ns, busy_cycles) = self.seen.replace((seen.at_ns, seen.busy_cycles)).unwrap_or_default();
        let mut before = std::mem::take(&mut self.known);
        let mut changes = Vec::new();
        for counts in &seen.tables {
            let known = before.remove(&counts.table);
            let is_new = known.is_none();
            let mut known = known.unwrap_or_else(|| Known::new(counts));
            let new = counts.since(&known.counts);
            let latest = Latest {
                messages: new.messages + new.sent,
                seconds: seen.at_ns.saturating_sub(since_ns) as f64 / 1e9,
                share: limits.share(&new, seen.busy_cycles - busy_cycles),
            };
            known.counts = counts.clone();
            let reason = match known.shared.take() {
                None if is_new || stays == Some(false) => {
                    known.intervals = 0;
                    None
                }
                None if stays.is_none() => {
                    if latest.share <= limits.share_gain {
                        known.intervals = 0;
                    }
                    None
                }
                None => known.read_elsewhere(seen, &latest, limits),
                Some(shared) => known.unpaid(seen, shared, limits),
            };
            changes.extend(reason.map(|reason| SharingChange { table: counts.table, reason }));
            self.known.insert(counts.table, known);
        }
        changes
    }
}

impl TableReads {
    /// Returns the counts since `earlier`.
    fn since(&self, earlier: &TableReads) -> TableReads {
        TableReads {
            table: self.table,
            messages: self.messages.saturating_sub(earlier.messages),
            sent: self.sent.saturating_sub(earlier.sent),
            in_place: self.in_place.saturating_sub(earlier.in_place),
            price: self.price.saturating_sub(earlier.price),
        }
    }
}

impl Known {
    fn new(counts: &TableReads) -> Known {
        Known { counts: counts.clone(), shared: None, intervals: 0, again_ns: 0, failed: 0 }
    }

    /// Judges a table that is not shared, by the latest interval.
    fn read_elsewhere(
        &mut self,
        seen: &ReadsSeen,
        &Latest { messages, seconds, share }: &Latest,
        limits: &Limits,
    ) -> Option<SharingReason> {
        self.intervals = if share > limits.share_gain { self.intervals + 1 } else { 0 };
        if self.intervals < limits.rules.shared_after || seen.at_ns < self.again_ns {
            return None;
        }
        self.intervals = 0;
        self.shared = Some(Shared {
            since_ns: seen.at_ns,
            intervals: 0,
            counts: self.counts.clone(),
            busy_cycles: seen.busy_cycles,
        });
        let per_second = messages as f64 / seconds.max(1e-9);
        Some(SharingReason::ReadElsewhere { per_second, share })
    }

    /// Judges a table that is shared.
    fn unpaid(&mut self, seen: &ReadsSeen, mut shared: Shared, limits: &Limits) -> Option<SharingReason> {
        shared.intervals += 1;
        if shared.intervals < limits.rules.shared_judged {
            self.shared = Some(shared);
            return None;
        }
        let since = self.counts.since(&shared.counts);
        let share = limits.share(&since, seen.busy_cycles - shared.busy_cycles);
        let TableReads { in_place, price, .. } = since;
        let is_never_lent = in_place == 0 && share > limits.share_gain;
        if in_place >= price && !is_never_lent {
            let (counts, busy_cycles) = (self.counts.clone(), seen.busy_cycles);
            self.shared = Some(Shared { intervals: 0, counts, busy_cycles, ..shared });
            return None;
        }
        let Rules { shared_again, shared_doublings, .. } = limits.rules;
        let wait = |failed: u32| limits.interval_max * shared_again * (1 << failed.min(shared_doublings));
        let has_served =
            u128::from(seen.at_ns.saturating_sub(shared.since_ns)) > wait(self.failed).as_nanos();
        let failed = if has_served { 0 } else { self.failed };
        let wait_ns = u64::try_from(wait(failed).as_nanos()).unwrap_or(u64::MAX);
        self.again_ns = seen.at_ns.saturating_add(wait_ns);
        self.failed = failed + 1;
        Some(SharingReason::Unpaid { in_place, price })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        share_gain: 0.05,
        message_cycles: 2_000.0,
        interval_max: Duration::from_secs(8),
        rules: Rules::DEFAULT,
    };

    /// A table under observation, once a second, by two workers that are always busy.
    struct World {
        sharing: Sharing,
        seen: ReadsSeen,
    }

    impl World {
        fn new() -> World {
            let table = TableReads { table: 3, messages: 0, sent: 0, in_place: 0, price: 0 };
            let mut world = World {
                sharing: Sharing::default(),
                seen: ReadsSeen { at_ns: 0, busy_cycles: 0.0, tables: vec![table] },
            };
            assert_eq!(world.second(0, 0, 0, true), None);
            world
        }

        fn second(
            &mut self,
            messages: u64,
            in_place: u64,
            price: u64,
            stays: impl Into<Option<bool>>,
        ) -> Option<bool> {
            self.seen.at_ns += 1_000_000_000;
            self.seen.busy_cycles += 4e9;
            let table = &mut self.seen.tables[0];
            table.messages += messages;
            table.in_place += in_place;
            table.price += price;
            let changes = self.sharing.consider(&self.seen, stays.into(), &LIMITS);
            assert!(changes.len() < 2 && changes.iter().all(|change| change.table == 3));
            changes.first().map(SharingChange::shares)
        }

        /// Lets the table be shared.
        fn shared() -> World {
            let mut world = World::new();
            assert_eq!(world.second(1_000_000, 0, 0, true), None);
            assert_eq!(world.second(1_000_000, 0, 0, true), Some(true));
            world
        }
    }

    #[test]
    fn what_is_read_elsewhere_is_shared_when_no_scheme_is_better() {
        let mut world = World::new();
        for _ in 0..10 {
            assert_eq!(world.second(1_000_000, 0, 0, false), None, "the scheme changes");
        }
        assert_eq!(world.second(1_000_000, 0, 0, true), None, "once may be by chance");
        assert_eq!(world.second(1_000, 0, 0, true), None);
        assert_eq!(world.second(1_000_000, 0, 0, true), None);
        let reason = SharingReason::ReadElsewhere { per_second: 1e6, share: 0.5 };
        world.seen.tables[0].messages += 1_000_000;
        world.seen.at_ns += 1_000_000_000;
        world.seen.busy_cycles += 4e9;
        let changes = world.sharing.consider(&world.seen, Some(true), &LIMITS);
        assert_eq!(changes, [SharingChange { table: 3, reason }]);
        for _ in 0..1_000 {
            assert_eq!(world.second(0, 1_000_000, 10, true), None, "it pays");
            assert_eq!(world.second(0, 0, 0, true), None, "nobody reads");
        }
    }

    #[test]
    fn intervals_with_too_few_samples_count_neither_way() {
        let mut world = World::new();
        for _ in 0..10 {
            assert_eq!(world.second(1_000_000, 0, 0, None), None, "whether a scheme is better is not known");
        }
        assert_eq!(world.second(1_000_000, 0, 0, true), None, "the first that counts");
        assert_eq!(world.second(1_000_000, 0, 0, None), None);
        assert_eq!(world.second(1_000_000, 0, 0, true), Some(true), "the second");
        let mut world = World::new();
        assert_eq!(world.second(1_000_000, 0, 0, true), None);
        assert_eq!(world.second(0, 0, 0, None), None);
        assert!(!world.sharing.is_about_to_share(), "nobody reads any more");
        assert_eq!(world.second(1_000_000, 0, 0, true), None);
    }

    #[test]
    fn transactions_sent_as_a_whole_count_less() {
        let mut world = World::new();
        let mut second = |sent| {
            world.seen.tables[0].sent += sent;
            world.second(0, 0, 0, true)
        };
        for _ in 0..10 {
            assert_eq!(second(390_000), None);
        }
        assert_eq!((second(410_000), second(410_000)), (None, Some(true)));
    }

    #[test]
    fn a_share_of_all_time_is_never_reached() {
        let mut world = World::new();
        let limits = Limits { share_gain: 1.0, ..LIMITS };
        for _ in 0..10 {
            world.seen.at_ns += 1_000_000_000;
            world.seen.busy_cycles += 4e9;
            world.seen.tables[0].messages += 100_000_000;
            assert_eq!(world.sharing.consider(&world.seen, Some(true), &limits), []);
        }
    }

    #[test]
    fn few_reads_elsewhere_are_left_alone() {
        let mut world = World::new();
        for _ in 0..100 {
            assert_eq!(world.second(90_000, 0, 0, true), None);
        }
        assert_eq!(world.second(110_000, 0, 0, true), None);
        assert_eq!(world.second(110_000, 0, 0, true), Some(true));
    }

    #[test]
    fn what_does_not_pay_is_shared_no_longer_and_tried_again_ever_later() {
        for unpaid in [(50_000, 100, 200), (1_000_000, 0, 0)] {
            let mut world = World::shared();
            let mut waits = Vec::new();
            for _ in 0..4 {
                let (messages, in_place, price) = unpaid;
                for _ in 1..LIMITS.rules.shared_judged {
                    assert_eq!(world.second(messages, in_place, price, true), None);
                }
                assert_eq!(world.second(messages, in_place, price, true), Some(false));
                waits.push((1..).find(|_| world.second(1_000_000, 0, 0, true).is_some()).unwrap_or(0));
            }
            assert_eq!(waits, [128, 256, 512, 1_024], "{unpaid:?}");
        }
    }

    #[test]
    fn a_loan_that_was_dear_once_is_no_reason() {
        let mut world = World::shared();
        for _ in 0..100 {
            assert_eq!(world.second(10, 100, 200, true), None);
            assert_eq!(world.second(10, 500, 200, true), None);
        }
    }

    #[test]
    fn a_table_that_has_served_long_is_tried_again_soon() {
        let mut world = World::shared();
        for _ in 0..201 {
            assert_eq!(world.second(0, 1_000_000, 10, true), None);
        }
        for _ in 1..LIMITS.rules.shared_judged {
            assert_eq!(world.second(1_000_000, 1, 2, true), None);
        }
        assert_eq!(world.second(1_000_000, 1, 2, true), Some(false));
        assert_eq!((1..).find(|_| world.second(1_000_000, 0, 0, true).is_some()), Some(128));
    }

    #[test]
    fn tables_come_and_go() {
        let mut world = World::shared();
        let table = TableReads { table: 4, messages: 5_000_000, sent: 0, in_place: 0, price: 0 };
        world.seen.tables.push(table);
        assert_eq!(world.second(0, 1_000_000, 0, true), None, "what it has read before does not count");
        world.seen.tables.remove(0);
        world.seen.tables[0].table = 3;
        assert_eq!(world.second(1_000_000, 0, 0, true), None, "another table of its number is not known");
    }
}
