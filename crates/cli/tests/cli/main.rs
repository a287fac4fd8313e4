//! The command, run as a user runs it: what it prints, what it refuses, and what it leaves behind.

mod advise;
mod bad_input;
mod deploy;
mod directories;
mod documents;
mod explain;
mod registry;
mod results;
mod serve;
mod support;
mod tools;

/// The program that is run.
const PROGRAM: &str = "atrapos";
