//! Tests of the engine through its public interface.
//!
//! Owns: nothing but tests. Never: times anything; a test may only wait for something that has to happen. Every random
//! choice comes from a seed, and a failure prints the seed that repeats it (`ATRAPOS_SEED=<seed>`).
//!
//! The tests of the planted bugs (module `planted`) exist in builds with debug assertions.

mod activity;
mod adaptation;
mod bad_input;
mod central;
mod classes;
mod closing;
mod columns;
mod cores;
mod crud;
mod ddl;
mod deployed_crashes;
mod direct;
mod durable;
mod dynamic;
mod expected;
mod gate;
mod given_up;
mod growth;
mod indexes;
mod instances;
mod isolation;
mod load;
mod local_path;
mod long_rows;
mod memory;
mod misuse;
mod nulls;
#[cfg(debug_assertions)]
mod observed;
mod panics;
mod planted;
mod read_only;
mod recording;
mod saturation;
mod savepoints;
mod support;
mod traces;
