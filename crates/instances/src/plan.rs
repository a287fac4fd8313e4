//! The division of processors, workers and, where they are chosen, keys among instances.
//!
//! Owns: [`Plan`], by a pure function. Never: reads the machine, or pins a thread.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::keys::ChosenKeys;

/// The choice of the processors of an instance (Islands, section 3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// Processors that are next to each other: as few islands as possible for each instance.
    #[default]
    Islands,
    /// Processors of all islands for each instance.
    Spread,
    /// For each instance half of its processors next to each other, and the others of all islands.
    Mixed,
    /// Whatever the operating system chooses: no thread is pinned.
    System,
}

impl Placement {
    /// All of them.
    pub const ALL: [Placement; 4] =
        [Placement::Islands, Placement::Spread, Placement::Mixed, Placement::System];

    /// The name, as options have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Placement::Islands => "islands",
            Placement::Spread => "spread",
            Placement::Mixed => "mixed",
            Placement::System => "system",
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Placement {
    type Err = String;

    fn from_str(text: &str) -> Result<Placement, String> {
        let found = Placement::ALL.into_iter().find(|placement| placement.name() == text);
        found.ok_or_else(|| {
            format!("'{text}' is no placement of instances; choose islands, spread, mixed or system")
        })
    }
}

/// Returns the places of all instances if each keeps the first half of its block, and the others are dealt out in turn.
fn mixed(blocks: &[Range<usize>]) -> Vec<Vec<usize>> {
    let middle = |block: &Range<usize>| block.start + block.len().div_ceil(2);
    let mut places: Vec<Vec<usize>> =
        blocks.iter().map(|block| (block.start..middle(block)).collect()).collect();
    let mut others = blocks.iter().flat_map(|block| middle(block)..block.end).peekable();
    while others.peek().is_some() {
        let unfilled = places.iter_mut().zip(blocks).filter(|(places, block)| places.len() < block.len());
        unfilled.for_each(|(places, _)| places.extend(others.next()));
    }
    places
}

/// The part of the machine and of the data that one instance gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The number of its workers.
    pub workers: usize,
    /// The processors that it may use; none if the operating system chooses.
    pub cpus: Vec<usize>,
    /// The keys that are chosen for it; where none are chosen, the numbers of workers decide.
    #[serde(default)]
    pub keys: ChosenKeys,
}

/// The parts of all instances, in the order of their numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// One for each instance.
    pub shares: Vec<Share>,
    /// True if there are more workers than processors.
    pub oversubscribed: bool,
}

impl Plan {
    /// Divides `workers` workers among `instances` instances as evenly as possible, and `cpus`, which are in the order of the
    /// islands that they are in, like them.
    ///
    /// # Errors
    /// No instance, or fewer workers than instances.
    pub fn divide(
        instances: usize,
        workers: usize,
        cpus: &[usize],
        placement: Placement,
    ) -> Result<Plan, String> {
        if instances == 0 {
            return Err("0 instances have no place for data; use at least 1".to_owned());
        }
        if workers < instances {
            return Err(format!(
                "{instances} instances need a worker each, and there are {workers}; use fewer instances, or ask for more workers \
                 than the machine has processors"
            ));
        }
        let first_of = |instance: usize| instance * workers / instances;
        let blocks: Vec<Range<usize>> = (0..instances).map(|at| first_of(at)..first_of(at + 1)).collect();
        let mixed = mixed(&blocks);
        let neighbour = |worker: usize| cpus.get(worker * cpus.len().min(workers) / workers).copied();
        let shares = (0..instances).map(|instance| {
            let own = blocks[instance].clone();
            let cpu = |worker: usize| match placement {
                Placement::System => None,
                Placement::Islands => neighbour(worker),
                Placement::Mixed => neighbour(mixed[instance][worker - own.start]),
                // Workers of one instance are as far from each other as there are instances between them.
                Placement::Spread => {
                    let at = (worker - own.start) * instances + instance;
                    cpus.get(at % cpus.len().max(1)).copied()
                }
            };
            let mut chosen: Vec<usize> = own.clone().filter_map(cpu).collect();
            chosen.sort_unstable();
            chosen.dedup();
            Share { workers: own.len(), cpus: chosen, keys: ChosenKeys::new() }
        });
        Ok(Plan { shares: shares.collect(), oversubscribed: workers > cpus.len() })
    }

    /// Checks parts that were chosen one by one; `cpus` are the processors that there are.
    ///
    /// # Errors
    /// No instance, one without workers, or a processor that is not there.
    pub fn of_shares(shares: Vec<Share>, cpus: &[usize]) -> Result<Plan, String> {
        if shares.is_empty() {
            return Err("0 instances have no place for data; use at least 1".to_owned());
        }
        for (number, share) in shares.iter().enumerate() {
            if share.workers == 0 {
                return Err(format!(
                    "instance {number} has 0 workers, and nobody to own its data; use at least 1"
                ));
            }
            if let Some(cpu) = share.cpus.iter().find(|cpu| !cpus.contains(cpu)) {
                return Err(format!(
                    "processor {cpu} of instance {number} may not be used here; choose among {cpus:?}"
                ));
            }
        }
        let workers = |share: &Share| share.workers;
        let of_cpu = |cpu: &usize| shares.iter().filter(|share| share.cpus.contains(cpu)).count();
        let oversubscribed = shares.iter().map(workers).sum::<usize>() > cpus.len()
            || cpus.iter().any(|cpu| of_cpu(cpu) > 1)
            || shares.iter().any(|share| !share.cpus.is_empty() && share.workers > share.cpus.len());
        Ok(Plan { shares, oversubscribed })
    }

    /// Returns the numbers of workers of all instances.
    #[must_use]
    pub fn workers(&self) -> Vec<usize> {
        self.shares.iter().map(|share| share.workers).collect()
    }

    /// Returns the keys that are chosen for each instance; nothing if none are.
    #[must_use]
    pub fn keys(&self) -> Vec<ChosenKeys> {
        let chosen = self.shares.iter().any(|share| !share.keys.is_empty());
        if chosen { self.shares.iter().map(|share| share.keys.clone()).collect() } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus_of(instances: usize, workers: usize, cpus: &[usize], placement: Placement) -> Vec<Vec<usize>> {
        let plan = Plan::divide(instances, workers, cpus, placement).expect("a plan");
        plan.shares.into_iter().map(|share| share.cpus).collect()
    }

    #[test]
    fn neighbours_are_together_or_apart() {
        let cpus = [0, 1, 2, 3, 8, 9, 10, 11];
        assert_eq!(cpus_of(2, 8, &cpus, Placement::Islands), [[0, 1, 2, 3], [8, 9, 10, 11]]);
        assert_eq!(cpus_of(2, 8, &cpus, Placement::Spread), [[0, 2, 8, 10], [1, 3, 9, 11]]);
        assert_eq!(cpus_of(2, 8, &cpus, Placement::Mixed), [[0, 1, 2, 10], [3, 8, 9, 11]]);
        assert_eq!(cpus_of(2, 8, &cpus, Placement::System), [[0; 0]; 2]);
        assert_eq!(cpus_of(2, 2, &[0, 1], Placement::Islands), [[0], [1]]);
    }

    #[test]
    fn chosen_parts_are_checked() {
        let share = |workers, cpus: &[usize]| Share { workers, cpus: cpus.to_vec(), keys: ChosenKeys::new() };
        let plan = |shares: &[Share]| Plan::of_shares(shares.to_vec(), &[0, 1, 2]);
        let sound = plan(&[share(2, &[0, 1]), share(1, &[])]).expect("a plan");
        assert_eq!((sound.workers(), sound.oversubscribed), (vec![2, 1], false));
        for shared in [
            [share(1, &[0]), share(1, &[0])],
            [share(2, &[0]), share(1, &[1])],
            [share(3, &[]), share(1, &[])],
        ] {
            assert!(plan(&shared).expect("it is possible").oversubscribed, "{shared:?}");
        }
        for (shares, words) in [
            (vec![], "0 instances"),
            (vec![share(0, &[])], "instance 0 has 0 workers"),
            (vec![share(1, &[7])], "processor 7"),
        ] {
            let refused = plan(&shares).expect_err("refused");
            assert!(refused.contains(words), "{refused}");
        }
    }

    #[test]
    fn every_processor_is_in_one_instance() {
        let cpus: Vec<usize> = (0..11).collect();
        for placement in [Placement::Islands, Placement::Mixed] {
            for instances in 1..=11 {
                let mut all = cpus_of(instances, 11, &cpus, placement).concat();
                all.sort_unstable();
                assert_eq!(all, cpus, "{placement}, {instances} instances");
            }
        }
    }

    #[test]
    fn workers_are_divided_evenly_and_may_be_more_than_processors() {
        let plan = Plan::divide(3, 8, &[0, 1], Placement::Islands).expect("a plan");
        assert_eq!(plan.workers(), [2, 3, 3]);
        assert!(plan.oversubscribed);
        assert_eq!(cpus_of(4, 4, &[5, 7], Placement::Islands), [[5], [5], [7], [7]]);
        assert!(Plan::divide(3, 2, &[0, 1], Placement::Islands).is_err());
        assert!(Plan::divide(0, 2, &[0, 1], Placement::Islands).is_err());
    }
}
