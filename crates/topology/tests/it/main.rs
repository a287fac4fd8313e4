//! The integration tests of `atrapos-topology`: whole machines from every source, and what is said about them.

mod cgroups;
mod derived;
mod fixture;
#[cfg(feature = "hwloc")]
mod hwloc;
mod live;
mod machine_files;
mod placement;
mod reports;
mod sources;
mod synthetic;
