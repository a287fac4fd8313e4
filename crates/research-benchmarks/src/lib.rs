//! Benchmarks that come from papers, ready to be run: the microbenchmark of *OLTP on hardware islands*, SmallBank and YCSB.
//!
//! Drivers run a workload's transactions without any dispatch, so their code is compiled once for each workload, which is half of a first
//! build. It is compiled here for some and in another crate for the others, side by side.
//!
//! Owns: nothing but that. Never: knows how a workload is described (`atrapos-workloads` does), or run (`atrapos-harness` does).

#![forbid(unsafe_code)]

use atrapos_harness::registry::{Entries, Entry};
use atrapos_workloads::registry::register_research;

/// Returns these workloads, in the order in which they are listed.
#[must_use]
pub fn entries() -> Vec<Box<dyn Entry>> {
    let mut entries = Entries::default();
    register_research(&mut entries);
    entries.0
}
