//! The `atrapos-compare` program.
//!
//! Owns: the allocator of the process, which is that of the `atrapos` program.

#![forbid(unsafe_code)]

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    atrapos_compare::run_from_args()
}
