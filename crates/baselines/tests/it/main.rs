//! Tests of the engines with shared data, through their public interfaces.

#[cfg(not(miri))]
mod domains;
mod durable;
mod engines;
#[cfg(not(miri))]
mod instance;
mod lock;
mod log;
mod occ;
mod one_thread;
mod two_phase;
