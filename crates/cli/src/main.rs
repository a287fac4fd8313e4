//! The `atrapos` program.
//!
//! Owns: the allocator of the process.

#![forbid(unsafe_code)]

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    atrapos_cli::run()
}
