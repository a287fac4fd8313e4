//! Tests of the engines with shared data.

mod lock;
mod log;
