//! The division of processors and workers among instances.
//!
//! Owns: [`Plan`], by a pure function. Never: reads the machine, or pins a thread.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The choice of the processors of an instance (Islands, section 3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// Processors that are next to each other: as few islands as possible for each instance.
    #[default]
    Islands,
    /// Processors of all islands for each instance.
    Spread,
    /// Whatever the operating system chooses: no thread is pinned.
    System,
}

impl Placement {
    /// All of them.
    pub const ALL: [Placement; 3] = [Placement::Islands, Placement::Spread, Placement::System];

    /// The name, as options have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Placement::Islands => "islands",
            Placement::Spread => "spread",
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
        found
            .ok_or_else(|| format!("'{text}' is no placement of instances; choose islands, spread or system"))
    }
}

/// The part of the machine that one instance gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The number of its workers.
    pub workers: usize,
    /// The processors that it may use; none if the operating system chooses.
    pub cpus: Vec<usize>,
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
        let shares = (0..instances).map(|instance| {
            let own = first_of(instance)..first_of(instance + 1);
            let cpu = |worker: usize| match placement {
                Placement::System => None,
                Placement::Islands => cpus.get(worker * cpus.len().min(workers) / workers).copied(),
                // Workers of one instance are as far from each other as there are instances between them.
                Placement::Spread => {
                    let at = (worker - own.start) * instances + instance;
                    cpus.get(at % cpus.len().max(1)).copied()
                }
            };
            let mut chosen: Vec<usize> = own.clone().filter_map(cpu).collect();
            chosen.sort_unstable();
            chosen.dedup();
            Share { workers: own.len(), cpus: chosen }
        });
        Ok(Plan { shares: shares.collect(), oversubscribed: workers > cpus.len() })
    }

    /// Returns the numbers of workers of all instances.
    #[must_use]
    pub fn workers(&self) -> Vec<usize> {
        self.shares.iter().map(|share| share.workers).collect()
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
        assert_eq!(cpus_of(2, 8, &cpus, Placement::System), [[0; 0]; 2]);
        assert_eq!(cpus_of(2, 2, &[0, 1], Placement::Islands), [[0], [1]]);
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
