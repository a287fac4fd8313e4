//! The statistics of one partition: costs and synchronization points by sub-partition (`ATraPos §V-D`, thesis §4.4).
//!
//! Owns: the two arrays, which are cut and joined with the partition. Never: decides when an event is recorded; the
//! worker's monitor does.
//!
//! Invariants: boundaries of sub-partitions ascend strictly inside the partition; both arrays have one entry per
//! sub-partition; memory is bounded.

use std::ops::RangeInclusive;

use atrapos_storage::{KeyBuf, Tree};

use crate::schema::TableId;

/// The number of synchronization points of one sub-partition whose partners are kept; further ones are only counted. Of what three partners
/// in equal parts take, sixteen would show anything from a sixth to a half, and plans would be made for that.
const REMEMBERED: usize = 64;

/// One key of a table that takes part in a synchronization point.
pub type Partner = (TableId, KeyBuf);

/// One synchronization point, as recorded under the sub-partition in which it began.
#[derive(Clone, Debug)]
pub struct Meeting {
    /// The other data that took part: the table and key of each.
    pub partners: Vec<Partner>,
    /// Bytes of rows, keys and results that were exchanged.
    pub bytes: u64,
    /// True if all of that had taken part in an earlier synchronization point of the transaction, so that no end is sent to it for
    /// this one.
    pub again: bool,
}

/// The synchronization points of a sub-partition.
#[derive(Clone, Debug, Default)]
pub struct Meetings {
    /// The number of synchronization points that those which were recorded stand for.
    pub count: u64,
    /// A uniform random sample of them.
    pub remembered: Vec<Meeting>,
}

/// The two arrays of one partition, kept with its first table.
#[derive(Clone, Debug)]
pub struct PartitionMonitor {
    /// First keys of all sub-partitions but the first.
    bounds: Vec<KeyBuf>,
    costs: Vec<u64>,
    meetings: Vec<Meetings>,
}

impl PartitionMonitor {
    /// Creates empty arrays over sub-partitions with these boundaries.
    pub fn new(bounds: Vec<KeyBuf>) -> PartitionMonitor {
        let parts = bounds.len() + 1;
        PartitionMonitor { bounds, costs: vec![0; parts], meetings: vec![Meetings::default(); parts] }
    }

    /// Cuts a partition into at most `parts` sub-partitions of about equally many rows.
    pub fn of(tree: &Tree, lower: Option<&[u8]>, parts: usize) -> PartitionMonitor {
        let rows = tree.len();
        let cut = |part: usize| tree.key_at(rows * part as u64 / parts as u64);
        let mut bounds: Vec<KeyBuf> = (1..parts).filter_map(cut).collect();
        bounds.dedup();
        // A boundary at the first row would cut off an empty sub-partition.
        let first = tree.first_key();
        bounds.retain(|bound| lower.is_none_or(|lower| **bound > *lower) && first.as_ref() != Some(bound));
        PartitionMonitor::new(bounds)
    }

    /// The sub-partition to which a key belongs.
    pub fn part_of(&self, key: &[u8]) -> usize {
        self.bounds.partition_point(|bound| **bound <= *key)
    }

    /// The first key of a sub-partition; `None` for the first one.
    pub fn lower(&self, part: usize) -> Option<&KeyBuf> {
        part.checked_sub(1).map(|bound| &self.bounds[bound])
    }

    /// Adds to the cost of a sub-partition.
    pub fn charge(&mut self, part: usize, ticks: u64) {
        self.costs[part] += ticks;
    }

    /// The sub-partitions that have keys from `lower` on and below `upper` (to the end without it).
    pub fn parts_of(&self, lower: &[u8], upper: Option<&[u8]>) -> RangeInclusive<usize> {
        let first = self.part_of(lower);
        let last =
            upper.map_or(self.bounds.len(), |upper| self.bounds.partition_point(|bound| **bound < *upper));
        first..=last.max(first)
    }

    /// Adds to the costs of sub-partitions, evenly: they have about equally many rows.
    pub fn charge_evenly(&mut self, parts: RangeInclusive<usize>, ticks: u64) {
        let count = (parts.end() + 1 - parts.start()) as u64;
        for (at, part) in (0..).zip(parts) {
            self.costs[part] += ticks / count + u64::from(at < ticks % count);
        }
    }

    /// Records a synchronization point that began in a sub-partition and stands for so many. `draw` is a random number for sampling
    /// those that are kept.
    pub fn note_meeting(&mut self, part: usize, meeting: Meeting, stands_for: u64, draw: u64) {
        let meetings = &mut self.meetings[part];
        meetings.count += stands_for;
        if meetings.remembered.len() < REMEMBERED {
            meetings.remembered.push(meeting);
        } else if draw % meetings.count < REMEMBERED as u64 * stands_for {
            meetings.remembered[(draw % REMEMBERED as u64) as usize] = meeting;
        }
    }

    /// The cost of all sub-partitions.
    pub fn load(&self) -> u64 {
        self.costs.iter().sum()
    }

    /// The first keys of all sub-partitions but the first.
    pub fn bounds(&self) -> &[KeyBuf] {
        &self.bounds
    }

    /// The cost of each sub-partition.
    pub fn costs(&self) -> &[u64] {
        &self.costs
    }

    /// The number of synchronization points that began here.
    pub fn meetings_len(&self) -> u64 {
        self.meetings.iter().map(|meetings| meetings.count).sum()
    }

    /// Returns the boundaries, costs and synchronization points, by sub-partition.
    pub fn into_parts(self) -> (Vec<KeyBuf>, Vec<u64>, Vec<Meetings>) {
        (self.bounds, self.costs, self.meetings)
    }

    /// Splits off the arrays from `cut` on, for the partition that begins there. The statistics of the sub-partition
    /// that contains the cut are divided evenly.
    pub fn split(&mut self, cut: &KeyBuf) -> PartitionMonitor {
        let at = self.bounds.partition_point(|bound| bound < cut);
        let mut right = PartitionMonitor {
            bounds: self.bounds.split_off(at),
            costs: self.costs.split_off(at + 1),
            meetings: self.meetings.split_off(at + 1),
        };
        if right.bounds.first() == Some(cut) {
            right.bounds.remove(0);
        } else {
            let half = self.costs[at] / 2;
            self.costs[at] -= half;
            right.costs.insert(0, half);
            let shared = &mut self.meetings[at];
            let half = shared.count / 2;
            shared.count -= half;
            right.meetings.insert(0, Meetings { count: half, remembered: shared.remembered.clone() });
        }
        right
    }

    /// Joins the arrays of the partition that begins at `cut`, right after this one.
    pub fn join(&mut self, cut: &KeyBuf, right: PartitionMonitor) {
        self.bounds.push(cut.clone());
        self.bounds.extend(right.bounds);
        self.costs.extend(right.costs);
        self.meetings.extend(right.meetings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atrapos_storage::Key;

    fn monitor(bounds: &[u64], costs: &[u64]) -> PartitionMonitor {
        let mut monitor = PartitionMonitor::new(bounds.iter().map(Key::encode).collect());
        monitor.costs = costs.to_vec();
        monitor
    }

    #[test]
    fn splitting_and_joining_loses_nothing() {
        for cut in [1_u64, 5, 10, 15, 20, 25, 99] {
            let mut left = monitor(&[10, 20, 30], &[7, 100, 11, 13]);
            left.meetings[1].count = 9;
            let right = left.split(&cut.encode());
            assert_eq!(left.costs.len(), left.bounds.len() + 1, "cut at {cut}");
            assert_eq!(right.costs.len(), right.bounds.len() + 1, "cut at {cut}");
            assert!(left.bounds.iter().all(|bound| *bound < cut.encode()));
            assert!(right.bounds.iter().all(|bound| *bound > cut.encode()));
            left.join(&cut.encode(), right);
            assert_eq!(left.costs.iter().sum::<u64>(), 131, "cut at {cut}");
            assert_eq!(left.meetings.iter().map(|meetings| meetings.count).sum::<u64>(), 9, "cut at {cut}");
            assert!(left.bounds.is_sorted_by(|a, b| a < b), "cut at {cut}");
        }
    }

    #[test]
    fn a_range_is_charged_to_all_that_it_touches() {
        let mut monitor = monitor(&[10, 20, 30], &[0, 0, 0, 0]);
        let mut charge = |lower: u64, upper: Option<u64>, ticks| {
            let upper = upper.map(|upper| upper.encode());
            monitor.charge_evenly(monitor.parts_of(&lower.encode(), upper.as_deref()), ticks);
            std::mem::replace(&mut monitor.costs, vec![0; 4])
        };
        assert_eq!(charge(0, None, 102), [26, 26, 25, 25]);
        assert_eq!(charge(12, Some(15), 7), [0, 7, 0, 0]);
        assert_eq!(charge(12, Some(20), 7), [0, 7, 0, 0], "the range ends before the boundary");
        assert_eq!(charge(12, Some(21), 8), [0, 4, 4, 0]);
        assert_eq!(charge(40, Some(35), 8), [0, 0, 0, 8], "an empty range is looked for where it would be");
    }

    #[test]
    fn what_three_partners_take_in_equal_parts_is_remembered_as_equal_parts() {
        let mut draw = 1_u64;
        for _ in 0..100 {
            let mut monitor = monitor(&[], &[0]);
            for at in 0..3_000_u64 {
                draw ^= draw << 13;
                draw ^= draw >> 7;
                draw ^= draw << 17;
                let partners = vec![(TableId(1), (at % 3).encode())];
                monitor.note_meeting(0, Meeting { partners, bytes: 8, again: false }, 64, draw);
            }
            let (.., meetings) = monitor.into_parts();
            let remembered = &meetings[0].remembered;
            for partner in 0..3_u64 {
                let of_partner =
                    remembered.iter().filter(|meeting| meeting.partners[0].1 == partner.encode());
                let part = of_partner.count() as f64 / remembered.len() as f64;
                assert!((0.1..0.6).contains(&part), "{part} of what is remembered");
            }
        }
    }

    #[test]
    fn a_key_lies_in_the_sub_partition_that_begins_at_or_before_it() {
        let monitor = monitor(&[10, 20], &[0, 0, 0]);
        let part = |key: u64| monitor.part_of(&key.encode());
        assert_eq!([part(0), part(9), part(10), part(19), part(20), part(u64::MAX)], [0, 0, 1, 1, 2, 2]);
    }
}
