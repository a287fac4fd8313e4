//! Domains with threads: what clients see, when all goes well and when it does not.

mod failures;
mod operations;
mod tasks;

use atrapos_domains::{Configuration, DomainConfiguration, Domains, Placement};
use atrapos_topology::Machine;

/// Domains by name and number of workers, unpinned.
fn start(domains: &[(&str, usize)]) -> Domains {
    start_with_slots(domains, 60)
}

fn start_with_slots(domains: &[(&str, usize)], slots: usize) -> Domains {
    let machine = Machine::synthetic("pack:1 core:4 pu:1").expect("a machine");
    let domain = |&(name, workers): &(&str, usize)| DomainConfiguration {
        placement: Placement::Anywhere,
        slots,
        ..DomainConfiguration::new(name, workers)
    };
    let domains = domains.iter().map(domain).collect();
    let configuration = Configuration { oversubscribe: true, domains, ..Configuration::default() };
    Domains::start(&machine, &configuration).expect("the domains start")
}
