//! Tests of the engines with shared data, through their public interfaces.

mod engines;
mod lock;
mod log;
mod occ;
mod two_phase;
