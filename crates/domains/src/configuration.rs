//! Configurations: the domains, their workers and memory, and which structure lives where; as values and as text.
//!
//! Owns: the format (TOML) and the checks. Never: reads a file or starts anything.
//!
//! ```toml
//! oversubscribe = false          # more workers than processing units only if this says so
//!
//! [[domain]]
//! name = "trees"
//! workers = 2                    # or: cpus = [0, 1]
//! placement = "pinned"           # or "migrating": within the domain's processing units
//! memory = "local"               # or "interleaved", or { bound = 0 }: a memory node
//! slots = 480                    # per worker: tasks under way at once
//!
//! [structures]
//! orders = "trees"
//!
//! [loads.orders]                 # for whoever creates structures from the file; domains do not look at it
//! kind = "b-tree"
//! mix = "ycsb-a"
//! load = 1.0
//! ```

use std::collections::{BTreeMap, HashSet};

use atrapos_topology::{CpuId, Machine, NodeId};
use serde::{Deserialize, Serialize};

use crate::inbox::{GROUP_SLOTS, GROUPS_MAX};

/// Slots of a worker where a configuration says nothing.
pub const SLOTS_DEFAULT: usize = 32 * GROUP_SLOTS;
/// Slots of a worker at most.
pub const SLOTS_MAX: usize = GROUPS_MAX * GROUP_SLOTS;

/// Domains and the structures that live in them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// Permission to have more workers than usable processing units.
    #[serde(default)]
    pub oversubscribe: bool,
    /// The domains.
    #[serde(rename = "domain", default)]
    pub domains: Vec<DomainConfiguration>,
    /// The domain of each structure, by their names.
    #[serde(default)]
    pub structures: BTreeMap<String, String>,
    /// The load that each structure is expected to have, by their names: for those who create the structures and use them. Domains do
    /// not depend on it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub loads: BTreeMap<String, StructureLoad>,
}

/// A structure's kind and the load that it is expected to have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StructureLoad {
    /// The kind of structure, such as `b-tree`.
    pub kind: String,
    /// The operation mix, such as `ycsb-a`.
    pub mix: String,
    /// The load, in any unit that all structures share.
    #[serde(default = "load_default")]
    pub load: f64,
}

fn load_default() -> f64 {
    1.0
}

/// One domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DomainConfiguration {
    /// Its name.
    pub name: String,
    /// Number of workers; as many as `cpus` if that is given and this is 0.
    #[serde(default)]
    pub workers: usize,
    /// The processing units of its workers, in the order of the workers; chosen nearest to each other if empty.
    #[serde(default)]
    pub cpus: Vec<u32>,
    /// Placement of the workers on them.
    #[serde(default)]
    pub placement: Placement,
    /// Source of the memory that its workers touch first.
    #[serde(default)]
    pub memory: MemoryPolicy,
    /// Slots per worker: tasks of all clients that can be under way at once.
    #[serde(default = "slots_default")]
    pub slots: usize,
}

fn slots_default() -> usize {
    SLOTS_DEFAULT
}

/// Placement of a domain's workers on its processing units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Each worker on one of its own.
    #[default]
    Pinned,
    /// Each on any of them, as the operating system likes.
    Migrating,
    /// Anywhere on the machine: for machines that refuse pinning, and for tests.
    Anywhere,
}

/// Source of the memory that a domain's workers touch first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryPolicy {
    /// The node of the worker that touches it.
    #[default]
    Local,
    /// The nodes of the domain in turn.
    Interleaved,
    /// One node.
    Bound(u32),
}

/// Reasons for which a configuration is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigurationError {
    /// The text is no configuration.
    #[error("this is no configuration of domains: {0}")]
    Syntax(String),
    /// There is no domain.
    #[error("the configuration has no domain: add a [[domain]] with a name and a number of workers")]
    Empty,
    /// Two domains have one name.
    #[error("two domains are named `{0}`: give each its own name")]
    NameTwice(String),
    /// A domain has no worker.
    #[error("domain `{0}` has no worker: set `workers` or `cpus`")]
    NoWorker(String),
    /// A domain has other numbers of workers and processing units.
    #[error(
        "domain `{domain}` has {workers} workers but names {cpus} processing units: leave one of the two out, or make them equal"
    )]
    Disagrees {
        /// The domain.
        domain: String,
        /// Its `workers`.
        workers: usize,
        /// The number of its `cpus`.
        cpus: usize,
    },
    /// A processing unit is named twice.
    #[error(
        "processing unit {cpu} is given to two workers (the second in domain `{domain}`): name another, or set `oversubscribe = true`"
    )]
    CpuTwice {
        /// The processing unit.
        cpu: u32,
        /// The domain that names it again.
        domain: String,
    },
    /// The machine has no such processing unit, or it may not be used.
    #[error(
        "domain `{domain}` names processing unit {cpu}, which this machine does not have or this process may not use"
    )]
    NoSuchCpu {
        /// The processing unit.
        cpu: u32,
        /// The domain.
        domain: String,
    },
    /// The machine has no such memory node.
    #[error("domain `{domain}` is bound to memory node {node}, which this machine does not have")]
    NoSuchNode {
        /// The node.
        node: u32,
        /// The domain.
        domain: String,
    },
    /// More workers than processing units.
    #[error(
        "{workers} workers are more than the {cpus} usable processing units: lower `workers`, or set `oversubscribe = true`"
    )]
    TooManyWorkers {
        /// Workers of all domains.
        workers: usize,
        /// Usable processing units.
        cpus: usize,
    },
    /// A structure is assigned to a domain that does not exist.
    #[error("structure `{structure}` is to live in domain `{domain}`, which the configuration does not have")]
    Nowhere {
        /// The structure.
        structure: String,
        /// The missing domain.
        domain: String,
    },
    /// A load is of a structure that is in no domain.
    #[error("there is a load of structure `{0}`, which is in no domain: name its domain in [structures]")]
    LoadOfNothing(String),
    /// A number of slots that cannot be.
    #[error("domain `{domain}` has {slots} slots per worker: choose 1 to {SLOTS_MAX}")]
    Slots {
        /// The domain.
        domain: String,
        /// Its slots.
        slots: usize,
    },
}

impl DomainConfiguration {
    /// A domain of so many pinned workers.
    #[must_use]
    pub fn new(name: &str, workers: usize) -> Self {
        Self {
            name: name.to_owned(),
            workers,
            cpus: Vec::new(),
            placement: Placement::Pinned,
            memory: MemoryPolicy::Local,
            slots: SLOTS_DEFAULT,
        }
    }

    /// Number of its workers.
    #[must_use]
    pub fn worker_count(&self) -> usize {
        if self.workers == 0 { self.cpus.len() } else { self.workers }
    }
}

impl Configuration {
    /// Domains of one worker each, by name; structures are placed by the name of a domain.
    #[must_use]
    pub fn one_worker_each(names: &[&str]) -> Self {
        let domains = names.iter().map(|name| DomainConfiguration::new(name, 1)).collect();
        Self { domains, ..Self::default() }
    }

    /// Reads a configuration.
    ///
    /// # Errors
    /// [`ConfigurationError::Syntax`], with the parser's own sentence.
    pub fn from_toml(text: &str) -> Result<Self, ConfigurationError> {
        toml::from_str(text).map_err(|error| ConfigurationError::Syntax(error.to_string()))
    }

    /// Writes the configuration.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_else(|_| unreachable!("strings and numbers can be written"))
    }

    /// Checks everything but the machine.
    fn check_names(&self) -> Result<(), ConfigurationError> {
        if self.domains.is_empty() {
            return Err(ConfigurationError::Empty);
        }
        let mut names = HashSet::new();
        for domain in &self.domains {
            if !names.insert(domain.name.as_str()) {
                return Err(ConfigurationError::NameTwice(domain.name.clone()));
            }
            domain.check_counts()?;
        }
        if let Some(name) = self.loads.keys().find(|name| !self.structures.contains_key(*name)) {
            return Err(ConfigurationError::LoadOfNothing(name.clone()));
        }
        match self.structures.iter().find(|(_, domain)| !names.contains(domain.as_str())) {
            Some((structure, domain)) => {
                Err(ConfigurationError::Nowhere { structure: structure.clone(), domain: domain.clone() })
            }
            None => Ok(()),
        }
    }

    /// The processing units of every domain's workers on a machine.
    ///
    /// # Errors
    /// A [`ConfigurationError`] for the first thing that is wrong.
    pub fn assign(&self, machine: &Machine) -> Result<Vec<Vec<CpuId>>, ConfigurationError> {
        self.check_names()?;
        let mut taken = HashSet::new();
        for domain in &self.domains {
            domain.check_machine(machine)?;
            for &cpu in &domain.cpus {
                if !taken.insert(CpuId(cpu)) && !self.oversubscribe {
                    return Err(ConfigurationError::CpuTwice { cpu, domain: domain.name.clone() });
                }
            }
        }
        let workers: usize = self.domains.iter().map(DomainConfiguration::worker_count).sum();
        let cpus = machine.usable_cpus().iter().count();
        if workers > cpus && !self.oversubscribe {
            return Err(ConfigurationError::TooManyWorkers { workers, cpus });
        }
        let mut free: Vec<CpuId> =
            machine.placement(cpus).into_iter().filter(|cpu| !taken.contains(cpu)).collect();
        free.extend(machine.placement(workers));
        let mut free = free.into_iter();
        let named = |domain: &DomainConfiguration| domain.cpus.iter().map(|&cpu| CpuId(cpu)).collect();
        let assigned = self.domains.iter().map(|domain| match domain.cpus.is_empty() {
            true => free.by_ref().take(domain.worker_count()).collect(),
            false => named(domain),
        });
        Ok(assigned.collect())
    }
}

impl DomainConfiguration {
    fn check_counts(&self) -> Result<(), ConfigurationError> {
        let (domain, workers, cpus) = (self.name.clone(), self.workers, self.cpus.len());
        if self.worker_count() == 0 {
            return Err(ConfigurationError::NoWorker(domain));
        }
        if cpus > 0 && workers > 0 && cpus != workers {
            return Err(ConfigurationError::Disagrees { domain, workers, cpus });
        }
        if self.slots == 0 || self.slots > SLOTS_MAX {
            return Err(ConfigurationError::Slots { domain, slots: self.slots });
        }
        Ok(())
    }

    fn check_machine(&self, machine: &Machine) -> Result<(), ConfigurationError> {
        let domain = || self.name.clone();
        if let Some(&cpu) = self.cpus.iter().find(|&&cpu| !machine.usable_cpus().contains(CpuId(cpu))) {
            return Err(ConfigurationError::NoSuchCpu { cpu, domain: domain() });
        }
        match self.memory {
            MemoryPolicy::Bound(node) if !machine.nodes().iter().any(|known| known.id == NodeId(node)) => {
                Err(ConfigurationError::NoSuchNode { node, domain: domain() })
            }
            _ => Ok(()),
        }
    }
}
