//! The log: what is acknowledged is durable, what is written can be read back, and a damaged end is an end.

mod buffer;
mod reader;
pub(crate) mod sinks;
