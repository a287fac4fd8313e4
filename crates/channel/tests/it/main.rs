//! Tests of channels from outside: every kind between threads and between processes, and who is refused.

mod access;
mod ends;
mod messages;
#[cfg(debug_assertions)]
mod planted;
mod processes;
mod sleep;
mod support;
