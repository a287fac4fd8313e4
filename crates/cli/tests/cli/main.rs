//! The command, run as a user runs it: what it prints, what it refuses, and what it leaves behind.

mod bad_input;
mod directories;
mod results;
mod support;
mod torture;
