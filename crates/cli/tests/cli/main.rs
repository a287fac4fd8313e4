//! The command, run as a user runs it: what it prints, what it refuses, and what it leaves behind.

mod advise;
mod bad_input;
mod deploy;
mod directories;
mod documents;
mod domains;
mod domains_tpcc;
mod experiment;
mod explain;
mod islands;
mod loads;
mod plan;
mod registry;
mod results;
mod serve;
mod support;
mod torture;
mod watch;
mod world;
