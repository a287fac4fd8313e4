//! Heat: the share of a worker's time that each sub-partition takes.
//!
//! Owns: the difference of two looks. Never: asks a worker.

use super::{Activity, PartitionActivity};

/// The shortest time over which loads are divided, in nanoseconds: of less they say nothing.
const SHORTEST_NS: u64 = 1_000_000;

impl Activity {
    /// Returns the heat since an earlier look: by family, partition and sub-partition, the time that its actions took over the time that has
    /// passed. The sum over what a worker owns is at most about 1. Where statistics have begun anew since, or sub-partitions are others
    /// than they were, it is that of the time since statistics began.
    #[must_use]
    pub fn heat_since(&self, earlier: &Activity) -> Vec<Vec<Vec<f64>>> {
        let Some(from_ns) = self.loads_from_ns else {
            return self.families.iter().map(|family| vec![Vec::new(); family.partitions.len()]).collect();
        };
        let goes_on = earlier.loads_from_ns == Some(from_ns) && earlier.at_ns < self.at_ns;
        let heat_of = |family: &str, part: &PartitionActivity| {
            let before = goes_on.then(|| earlier.partition_like(family, part)).flatten();
            let began_ns = if before.is_some() { earlier.at_ns } else { from_ns };
            let elapsed = self.at_ns.saturating_sub(began_ns).max(SHORTEST_NS) as f64;
            let loads = part.load_ns.iter().enumerate();
            let since = |(at, load): (usize, &u64)| {
                let before = before.map_or(0, |before| before.load_ns[at]);
                load.saturating_sub(before) as f64 / elapsed
            };
            loads.map(since).collect()
        };
        let families = self.families.iter();
        families
            .map(|family| family.partitions.iter().map(|part| heat_of(&family.name, part)).collect())
            .collect()
    }

    /// Returns the partition of the same number that has the same sub-partitions.
    fn partition_like(&self, family: &str, other: &PartitionActivity) -> Option<&PartitionActivity> {
        let family = self.families.iter().find(|one| one.name == family)?;
        let same = |one: &&PartitionActivity| {
            one.number == other.number
                && (&one.lower, &one.upper, &one.bounds) == (&other.lower, &other.upper, &other.bounds)
                && one.load_ns.len() == other.load_ns.len()
        };
        family.partitions.iter().find(same)
    }
}

#[cfg(test)]
mod tests {
    use atrapos_transaction::stats::Statistics;

    use super::super::FamilyActivity;
    use super::*;

    fn look(at_ns: u64, loads_from_ns: Option<u64>, load_ns: &[u64]) -> Activity {
        let partition = PartitionActivity {
            number: 3,
            worker: Some(0),
            instance: None,
            lower: None,
            upper: None,
            rows: vec![10],
            bounds: vec!["5".to_owned(); load_ns.len() - 1],
            load_ns: load_ns.to_vec(),
            sync_points: 0,
            locked: 0,
            waiting: 0,
        };
        let family = FamilyActivity {
            name: "t".to_owned(),
            tables: vec!["t".to_owned()],
            version: 1,
            partitions: vec![partition],
        };
        Activity {
            at_ns,
            loads_from_ns,
            statistics: Statistics::default(),
            workers: Vec::new(),
            classes: Vec::new(),
            families: vec![family],
            lock_waits: Vec::new(),
            durability: None,
        }
    }

    #[test]
    fn heat_is_the_load_of_the_time_between_two_looks() {
        const SECOND: u64 = 1_000_000_000;
        let first = look(3 * SECOND, Some(SECOND), &[SECOND, 0]);
        let second = look(4 * SECOND, Some(SECOND), &[SECOND + SECOND / 2, SECOND / 4]);
        assert_eq!(second.heat_since(&first), [[[0.5, 0.25]]]);
        assert_eq!(first.heat_since(&first), [[[0.5, 0.0]]], "that since statistics began");
        let anew = look(5 * SECOND, Some(4 * SECOND), &[SECOND / 5, 0]);
        assert_eq!(anew.heat_since(&second), [[[0.2, 0.0]]]);
        let cut = look(5 * SECOND, Some(SECOND), &[SECOND, SECOND, 0]);
        assert_eq!(cut.heat_since(&second), [[[0.25, 0.25, 0.0]]]);
        let unobserved = look(5 * SECOND, None, &[0]);
        assert_eq!(unobserved.heat_since(&second), [[[0.0; 0]]]);
    }
}
