//! Compositions as configurations of domains.
//!
//! Owns: the names of domains, and which settings a configuration gets. Never: chooses sizes or processing units; `atrapos-composition`
//! does.

use atrapos_composition::{Composition, DomainIndex, StructureEntry};
use atrapos_domains::{Configuration, DomainConfiguration, StructureLoad};
use atrapos_structures::{Access, Kind};
use atrapos_topology::CpuId;

use crate::error::LoadError;

/// The configuration of a composition of these structures: its domains on the given processing units (by domain), each named by its
/// letters.
#[must_use]
pub fn configuration(
    composition: &Composition,
    structures: &[StructureEntry],
    cpus: &[Vec<CpuId>],
) -> Configuration {
    let mut configuration = Configuration::default();
    for (at, (domain, cpus)) in composition.domains.iter().zip(cpus).enumerate() {
        let name = DomainIndex(at as u32).letters();
        for structure in &domain.structures {
            let entry = &structures[structure.index()];
            configuration.structures.insert(entry.name.clone(), name.clone());
            let load = StructureLoad { kind: entry.kind.clone(), mix: entry.mix.clone(), load: entry.load };
            configuration.loads.insert(entry.name.clone(), load);
        }
        let cpus: Vec<u32> = cpus.iter().map(|cpu| cpu.0).collect();
        let workers = cpus.len();
        configuration.domains.push(DomainConfiguration { cpus, ..DomainConfiguration::new(&name, workers) });
    }
    configuration
}

/// Refuses a structure of an owned kind in a domain of several workers.
///
/// # Errors
/// [`LoadError::OwnedInDomain`].
pub fn check_owned(structure: &str, kind: Kind, domain: &str, workers: usize) -> Result<(), LoadError> {
    if kind.support().access == Access::Owned && workers > 1 {
        let (structure, domain) = (structure.to_owned(), domain.to_owned());
        return Err(LoadError::OwnedInDomain { structure, kind, domain, workers });
    }
    Ok(())
}
