//! The allocator of a process that links this crate.
//!
//! Owns: the choice. Never: has an interface. It is a crate of its own because the command line is compiled without optimisation, and what
//! the allocator's functions are inlined into is on the path of transactions.

#![forbid(unsafe_code)]

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
