//! The `atrapos-tools` program.
//!
//! Owns: the choice of the process's allocator.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use atrapos_allocator as _;

fn main() -> ExitCode {
    atrapos_tools::run()
}
