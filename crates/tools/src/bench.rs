//! Benchmarks of structures and domains: `atrapos bench domains`, and others of such names.

pub(crate) mod domains;
pub(crate) mod domains_designs;
pub(crate) mod domains_service;
pub(crate) mod domains_structures;
pub(crate) mod domains_tpcc;
