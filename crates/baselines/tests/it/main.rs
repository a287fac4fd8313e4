//! Tests of the engines with shared data, through their public interfaces.

mod durable;
mod engines;
mod lock;
mod log;
mod occ;
mod two_phase;
