//! Demands: the structures that domains are composed for.
//!
//! Owns: structures with their sizes and loads, co-location, bounds of loads, and the checks of all these.
//!
//! Never: chooses a domain. Invariant: what passed [`Demand::check`] contradicts itself in nothing that can be seen
//! without a number of workers.

use crate::error::CompositionError;
use crate::ids::StructureIndex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Number of structures that domains can be composed for.
pub const STRUCTURES_MAX: usize = 10_000;
/// Number of workers that can be divided among domains.
pub const WORKERS_MAX: u32 = 65_536;

/// A data structure instance (`Virtual domains §5.2`, an `i` of `I`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Structure {
    /// Its name, different from that of all others.
    pub name: String,
    /// The greatest size of a domain for it, in workers: `s_i`, at least 1.
    pub workers_max: u32,
    /// Expected load, in any unit that all structures share: `l_i`, positive.
    pub load: f64,
    /// Set if it shares its domain only with what it is co-located with.
    #[serde(default)]
    pub isolated: bool,
}

/// The structures of an application and their co-location.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Demand {
    /// The structures.
    pub structures: Vec<Structure>,
    /// Sets of structures that must be in one domain; sets with a common member are one set.
    #[serde(default)]
    pub together: Vec<Vec<StructureIndex>>,
}

/// Bounds of the load of a domain by its size (`q_d` and `r_d`), in the unit of the structures' loads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LoadBounds {
    /// Any load, as long as there is a structure.
    Free,
    /// Equal bounds for every domain.
    PerDomain {
        /// The least load, not negative.
        min: f64,
        /// The greatest load; may be infinite.
        max: f64,
    },
    /// Bounds that are multiplied by the number of workers of a domain.
    PerWorker {
        /// The least load of each worker, not negative.
        min: f64,
        /// The greatest load of each worker; may be infinite.
        max: f64,
    },
}

impl LoadBounds {
    /// The bounds of a domain with so many workers.
    #[must_use]
    pub fn of(&self, workers: u32) -> (f64, f64) {
        match *self {
            Self::Free => (0.0, f64::INFINITY),
            Self::PerDomain { min, max } => (min, max),
            Self::PerWorker { min, max } => (min * f64::from(workers), max * f64::from(workers)),
        }
    }

    pub(crate) fn check(&self) -> Result<(), CompositionError> {
        let (min, max) = self.of(1);
        if min.is_finite() && min >= 0.0 && max > 0.0 && max >= min {
            return Ok(());
        }
        let cure = "the minimum must be finite and not negative, the maximum positive and no smaller";
        Err(CompositionError::Setting { name: "bounds", value: format!("{min} to {max}"), cure })
    }
}

/// Structures that must be in one domain, as one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Group {
    /// Ascending; never empty.
    pub(crate) structures: Vec<StructureIndex>,
    /// The smallest of their sizes.
    pub(crate) workers_max: u32,
    /// The sum of their loads.
    pub(crate) load: f64,
    pub(crate) isolated: bool,
}

impl Demand {
    /// # Errors
    /// [`CompositionError::NoStructures`], [`CompositionError::TooLarge`], [`CompositionError::SameName`],
    /// [`CompositionError::Structure`], [`CompositionError::UnknownStructure`],
    /// [`CompositionError::IsolatedTogether`].
    pub fn check(&self) -> Result<(), CompositionError> {
        self.groups().map(|_| ())
    }

    /// The groups of structures that must be in one domain, by their first member.
    pub(crate) fn groups(&self) -> Result<Vec<Group>, CompositionError> {
        self.check_structures()?;
        let mut leader: Vec<usize> = (0..self.structures.len()).collect();
        for set in &self.together {
            for member in set {
                if member.index() >= self.structures.len() {
                    let (number, count) = (member.0, self.structures.len());
                    return Err(CompositionError::UnknownStructure { number, count });
                }
                let (a, b) = (find(&leader, set[0].index()), find(&leader, member.index()));
                leader[a.max(b)] = a.min(b);
            }
        }
        let mut groups: BTreeMap<usize, Group> = BTreeMap::new();
        for (at, structure) in self.structures.iter().enumerate() {
            let first = find(&leader, at);
            let index = StructureIndex(at as u32);
            let group = groups.entry(first).or_insert_with(|| Group {
                structures: Vec::new(),
                workers_max: structure.workers_max,
                load: 0.0,
                isolated: structure.isolated,
            });
            if group.isolated != structure.isolated {
                return Err(isolated_together(&self.structures[first], structure));
            }
            group.structures.push(index);
            group.workers_max = group.workers_max.min(structure.workers_max);
            group.load += structure.load;
        }
        Ok(groups.into_values().collect())
    }

    fn check_structures(&self) -> Result<(), CompositionError> {
        if self.structures.is_empty() {
            return Err(CompositionError::NoStructures);
        }
        if self.structures.len() > STRUCTURES_MAX {
            let (what, found, max) = ("structures", self.structures.len(), STRUCTURES_MAX);
            let cure = "compose for groups of them";
            return Err(CompositionError::TooLarge { what, found, max, cure });
        }
        let mut names = std::collections::BTreeSet::new();
        for structure in &self.structures {
            if !names.insert(structure.name.as_str()) {
                return Err(CompositionError::SameName { name: structure.name.clone() });
            }
            let refuse = |problem: String, cure| {
                let structure = structure.name.clone();
                Err(CompositionError::Structure { structure, problem, cure })
            };
            if structure.workers_max == 0 {
                return refuse("a size of 0 workers".to_owned(), "a domain has at least one worker");
            }
            if !(structure.load.is_finite() && structure.load > 0.0) {
                let cure = "a load is a finite positive number";
                return refuse(format!("a load of {}", structure.load), cure);
            }
        }
        Ok(())
    }
}

fn find(leader: &[usize], mut at: usize) -> usize {
    while leader[at] != at {
        at = leader[at];
    }
    at
}

fn isolated_together(a: &Structure, b: &Structure) -> CompositionError {
    let (isolated, shared) = if a.isolated { (a, b) } else { (b, a) };
    CompositionError::IsolatedTogether { isolated: isolated.name.clone(), shared: shared.name.clone() }
}
