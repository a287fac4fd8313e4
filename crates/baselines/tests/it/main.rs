//! Tests of the engines with shared data, through their public interfaces.

mod lock;
mod log;
mod occ;
