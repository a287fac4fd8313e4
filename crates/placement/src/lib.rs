//! Placement of the atrapos transaction engine: which worker owns which partition, and how that changes.
//!
//! Owns: the scheme that threads outside the workers route by ([`published_scheme`]), changes of it while transactions run
//! ([`repartition`]), and the loop that observes the workload and decides on them ([`adaptation`]). Never: runs a
//! transaction.
//!
//! An internal crate: programs use `atrapos`, which exports the public interface.

#![forbid(unsafe_code)]
#![allow(rustdoc::private_intra_doc_links, reason = "readers of these documents work on the crate")]

pub mod adaptation;
pub mod published_scheme;
pub mod repartition;
