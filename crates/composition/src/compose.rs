//! Compositions: the three kinds of configurations (`Virtual domains §5.2`, composition of domains).
//!
//! Owns: the result and its kinds. Never: searches, or knows a machine beyond its number of workers.
//!
//! Invariants of a composition: every structure is in exactly one domain, of at most its calibrated size unless a
//! homogeneous size was chosen for it; structures that must be together are; isolated groups are alone; domains together
//! have at most as many workers as there are; loads of domains that are not isolated are within the bounds.

use crate::demand::{Demand, Group, LoadBounds, WORKERS_MAX};
use crate::error::CompositionError;
use crate::ids::{DomainIndex, StructureIndex};
use crate::problem::Problem;
use crate::solve::{Effort, Solution, Unsolved, solve};
use serde::Serialize;
use std::collections::BTreeMap;

/// Kinds of configurations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Domains of one size.
    Homogeneous {
        /// The size; `None` for the calibrated one, which must be the same for all structures. A chosen size may exceed
        /// what was calibrated: so the rigid baselines are made (1 for a thread each, all workers to share everything).
        workers: Option<u32>,
    },
    /// A domain of its own for every group of structures, of the calibrated size.
    Isolated,
    /// Domains of several sizes, shared by structures, apart from groups that are marked as isolated.
    Shared,
}

/// Settings of a composition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Bounds of the loads of domains. Domains of isolated groups have none.
    pub bounds: LoadBounds,
    /// Effort of the search.
    pub effort: Effort,
}

impl Default for Settings {
    fn default() -> Self {
        Self { bounds: LoadBounds::Free, effort: Effort::fast() }
    }
}

/// A domain of a composition.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Domain {
    /// Number of its workers.
    pub workers: u32,
    /// Its structures, ascending; never empty.
    pub structures: Vec<StructureIndex>,
    /// Sum of their loads.
    pub load: f64,
    /// Set if its structures were to be isolated.
    pub isolated: bool,
}

/// Domains with their structures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Composition {
    /// Workers that could be used; those that no domain has are idle.
    pub workers: u32,
    /// The domains, the largest first.
    pub domains: Vec<Domain>,
    /// Distance from what is proven to be the best.
    pub gap: Gap,
}

/// Distance of a composition from the best one, as far as it is known. Isolated domains have none: there is no choice.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gap {
    /// The best numbers of domains by size that were not proven impossible; those of the composition when they are the
    /// best.
    pub sizes_bound: BTreeMap<u32, u32>,
    /// Share of the workers by which these have more in domains of the largest size in which they differ; 0 when they
    /// do not.
    pub sizes: f64,
    /// Greatest load per worker of a shared domain over the least that is possible with these sizes, minus 1, at most.
    pub balance: f64,
    /// Steps that the search made.
    pub steps: u64,
}

impl Gap {
    /// Returns whether the composition is proven to be the best, to the given relative tolerance of the loads.
    #[must_use]
    pub fn is_closed(&self, tolerance: f64) -> bool {
        self.sizes == 0.0 && self.balance <= tolerance
    }
}

impl Composition {
    /// Number of domains by size.
    #[must_use]
    pub fn sizes(&self) -> BTreeMap<u32, u32> {
        let mut sizes = BTreeMap::new();
        for domain in &self.domains {
            *sizes.entry(domain.workers).or_insert(0) += 1;
        }
        sizes
    }

    /// The domain that a structure is in; `None` for a structure of another demand.
    #[must_use]
    pub fn domain_of(&self, structure: StructureIndex) -> Option<DomainIndex> {
        let holds = |domain: &Domain| domain.structures.binary_search(&structure).is_ok();
        self.domains.iter().position(holds).map(|at| DomainIndex(at as u32))
    }

    /// Number of workers that no domain has.
    #[must_use]
    pub fn idle_workers(&self) -> u32 {
        self.workers - self.domains.iter().map(|domain| domain.workers).sum::<u32>()
    }

    /// Greatest load per worker of a domain that is not isolated; 0 without one.
    #[must_use]
    pub fn load_per_worker_max(&self) -> f64 {
        let shared = self.domains.iter().filter(|domain| !domain.isolated);
        shared.map(|domain| domain.load / f64::from(domain.workers)).fold(0.0, f64::max)
    }
}

/// The multiset of sizes that domains may have: every size of a structure, `⌊workers / size⌋` times (`B` of `Virtual
/// domains §5.2`).
#[must_use]
pub fn possible_sizes(sizes: &[u32], workers: u32) -> BTreeMap<u32, u32> {
    sizes.iter().filter(|size| **size > 0).map(|size| (*size, workers / size)).collect()
}

/// Composes domains for `demand` out of `workers` workers.
///
/// # Errors
/// Everything that [`Demand::check`] refuses; [`CompositionError::NoWorkers`], [`CompositionError::TooLarge`],
/// [`CompositionError::Setting`]; [`CompositionError::SizesDiffer`] for a homogeneous configuration without a chosen
/// size, and [`CompositionError::IsolatedHomogeneous`] with isolated structures; [`CompositionError::TooFewWorkers`];
/// bounds that cannot be met ([`CompositionError::TooMuchLoad`], [`CompositionError::Infeasible`]) or were not
/// ([`CompositionError::Unresolved`]).
pub fn compose(
    demand: &Demand,
    workers: u32,
    kind: Kind,
    settings: &Settings,
) -> Result<Composition, CompositionError> {
    let groups = demand.groups()?;
    check(workers, settings)?;
    match kind {
        Kind::Homogeneous { workers: size } => homogeneous(demand, groups, workers, size, settings),
        Kind::Isolated => {
            let groups = groups.into_iter().map(|group| Group { isolated: true, ..group }).collect();
            shared(demand, groups, workers, settings)
        }
        Kind::Shared => shared(demand, groups, workers, settings),
    }
}

fn check(workers: u32, settings: &Settings) -> Result<(), CompositionError> {
    if workers == 0 {
        return Err(CompositionError::NoWorkers);
    }
    if workers > WORKERS_MAX {
        let (what, found, max) = ("workers", workers as usize, WORKERS_MAX as usize);
        let cure = "divide the machine first";
        return Err(CompositionError::TooLarge { what, found, max, cure });
    }
    let tolerance = settings.effort.tolerance;
    if !(1e-9..1.0).contains(&tolerance) {
        let cure = "it must be at least 1e-9 and below 1";
        return Err(CompositionError::Setting { name: "tolerance", value: tolerance.to_string(), cure });
    }
    settings.bounds.check()
}

fn homogeneous(
    demand: &Demand,
    mut groups: Vec<Group>,
    workers: u32,
    size: Option<u32>,
    settings: &Settings,
) -> Result<Composition, CompositionError> {
    if let Some(group) = groups.iter().find(|group| group.isolated) {
        let structure = demand.structures[group.structures[0].index()].name.clone();
        return Err(CompositionError::IsolatedHomogeneous { structure });
    }
    let first = &demand.structures[0];
    let size = match (size, demand.structures.iter().find(|other| other.workers_max != first.workers_max)) {
        (Some(0), _) => {
            let cure = "a domain has at least one worker";
            return Err(CompositionError::Setting { name: "workers", value: "0".to_owned(), cure });
        }
        (Some(size), _) => size,
        (None, Some(second)) => {
            return Err(CompositionError::SizesDiffer {
                first: first.name.clone(),
                first_workers: first.workers_max,
                second: second.name.clone(),
                second_workers: second.workers_max,
            });
        }
        (None, None) => first.workers_max,
    };
    if size > workers {
        return Err(CompositionError::TooFewWorkers {
            wanted: "homogeneous domains".to_owned(),
            needed: u64::from(size),
            available: workers,
            cure: "choose a smaller size",
        });
    }
    groups.iter_mut().for_each(|group| group.workers_max = size);
    shared(demand, groups, workers, settings)
}

/// Isolated groups in domains of their own, all others in shared domains on the workers that are left.
fn shared(
    demand: &Demand,
    groups: Vec<Group>,
    workers: u32,
    settings: &Settings,
) -> Result<Composition, CompositionError> {
    let (isolated, others): (Vec<Group>, Vec<Group>) = groups.into_iter().partition(|group| group.isolated);
    let needed: u64 = isolated.iter().map(|group| u64::from(group.workers_max)).sum();
    let others_need = u64::from(!others.is_empty());
    if needed + others_need > u64::from(workers) {
        let wanted = match others.len() {
            0 => format!("{} isolated domains", isolated.len()),
            _ => format!("{} isolated domains and one for the other structures", isolated.len()),
        };
        let cure = "isolate fewer structures, or give more workers";
        return Err(CompositionError::TooFewWorkers {
            wanted,
            needed: needed + others_need,
            available: workers,
            cure,
        });
    }
    let domain = |group: Group| Domain {
        workers: group.workers_max,
        load: group.load,
        structures: group.structures,
        isolated: true,
    };
    let mut domains: Vec<Domain> = isolated.into_iter().map(domain).collect();
    let mut gap = Gap { sizes_bound: BTreeMap::new(), sizes: 0.0, balance: 0.0, steps: 0 };
    if !others.is_empty() {
        let problem = Problem::new(&others, workers - needed as u32, &settings.bounds);
        let solution = solve_or_explain(demand, &others, &problem, settings)?;
        gap = gap_of(&problem, &solution);
        domains.extend(domains_of(&others, &problem, &solution));
    }
    domains.sort_by(|a, b| b.workers.cmp(&a.workers).then_with(|| a.structures.cmp(&b.structures)));
    for domain in domains.iter().filter(|domain| domain.isolated) {
        *gap.sizes_bound.entry(domain.workers).or_insert(0) += 1;
    }
    Ok(Composition { workers, domains, gap })
}

fn solve_or_explain(
    demand: &Demand,
    groups: &[Group],
    problem: &Problem,
    settings: &Settings,
) -> Result<Solution, CompositionError> {
    if let Some(item) = problem.item_too_heavy() {
        let group = &groups[item];
        let size = problem.sizes[problem.items[item].class].workers;
        let max =
            problem.sizes[..=problem.items[item].class].iter().map(|size| settings.bounds.of(size.workers).1);
        return Err(CompositionError::TooMuchLoad {
            structure: demand.structures[group.structures[0].index()].name.clone(),
            load: group.load,
            workers: size,
            max: max.fold(0.0, f64::max),
        });
    }
    solve(problem, &settings.effort).map_err(|unsolved| match unsolved {
        Unsolved::Impossible => CompositionError::Infeasible { workers: problem.workers },
        Unsolved::Unknown(nodes) => CompositionError::Unresolved { nodes },
    })
}

fn domains_of(groups: &[Group], problem: &Problem, solution: &Solution) -> Vec<Domain> {
    let mut domains: Vec<Domain> = Vec::new();
    for (size, count) in problem.sizes.iter().zip(&solution.profile) {
        let empty = Domain { workers: size.workers, structures: Vec::new(), load: 0.0, isolated: false };
        domains.extend(std::iter::repeat_n(empty, *count as usize));
    }
    for (group, bin) in groups.iter().zip(&solution.bin_of) {
        let domain = &mut domains[*bin as usize];
        domain.structures.extend_from_slice(&group.structures);
        domain.load += group.load;
    }
    domains.iter_mut().for_each(|domain| domain.structures.sort_unstable());
    domains
}

fn gap_of(problem: &Problem, solution: &Solution) -> Gap {
    let named = |profile: &[u32]| -> BTreeMap<u32, u32> {
        let sizes = problem.sizes.iter().zip(profile).filter(|(_, count)| **count > 0);
        sizes.map(|(size, count)| (size.workers, *count)).collect()
    };
    let differ =
        (0..problem.sizes.len()).rev().find(|at| solution.profile[*at] != solution.profile_bound[*at]);
    let sizes = differ.map_or(0.0, |at| {
        let more = f64::from(solution.profile_bound[at]) - f64::from(solution.profile[at]);
        more * f64::from(problem.sizes[at].workers) / f64::from(problem.workers)
    });
    let balance = (solution.peak / solution.peak_bound - 1.0).max(0.0);
    Gap { sizes_bound: named(&solution.profile_bound), sizes, balance, steps: solution.steps }
}
