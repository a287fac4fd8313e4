//! Placement of the atrapos transaction engine: which worker owns which partition, and how that changes.
//!
//! Owns: the scheme as those outside the workers see it ([`published_scheme`]), changes of it while transactions go on
//! ([`repartition`]), and the loop that watches the workload and decides on them ([`adaptation`]). Never: runs a transaction.
//!
//! A crate of the inside: programs use `atrapos`, which exports what is meant for them.

#![forbid(unsafe_code)]
#![allow(rustdoc::private_intra_doc_links, reason = "readers of these documents work on the crate")]

pub mod adaptation;
pub mod published_scheme;
pub mod repartition;
