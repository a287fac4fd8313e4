//! All workloads that can be run by name.
//!
//! Owns: their order in lists. Never: knows one from another.

use atrapos_harness::registry::Entry;
use atrapos_research_benchmarks as research;
use atrapos_standard_benchmarks as standard;

/// Returns every workload, in the order in which they are listed.
#[must_use]
pub fn entries() -> Vec<Box<dyn Entry>> {
    standard::entries().into_iter().chain(research::entries()).collect()
}

/// Returns the workload of this name, if there is one.
pub(crate) fn entry(name: &str) -> Option<Box<dyn Entry>> {
    entries().into_iter().find(|entry| entry.name() == name)
}
