//! Tests of channels from outside: every kind between threads and between processes, and who is refused.

mod ends;
mod messages;
mod sleep;
mod support;
