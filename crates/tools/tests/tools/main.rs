//! The tools, run as a user runs them: what they print, what they refuse, and what they leave behind.

mod bad_input;
mod domains;
mod domains_tpcc;
mod experiment;
mod islands;
mod loads;
mod plan;
#[path = "../../../cli/tests/cli/support.rs"]
mod support;
mod topology;
mod torture;
mod watch;
mod world;

/// The program that is run.
const PROGRAM: &str = "atrapos-tools";
