//! The command, run as a user runs it.
