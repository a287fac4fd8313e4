//! Engines inside instances: a deployment within this process, which is an engine to the tests of all engines; planted bugs, each of
//! which is noticed; and what happens when an instance or a link does not do what it should.

mod cluster;
mod durable;
#[cfg(debug_assertions)]
mod planted;
mod scenarios;

pub(crate) use cluster::IN_INSTANCES;
