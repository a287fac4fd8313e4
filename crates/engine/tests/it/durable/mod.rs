//! Promises of a directory: whatever was reported as committed is there again, whatever was not is there whole or not at
//! all, and damage and failures are told and never served.

mod crash;
mod failures;
pub(crate) mod given_up;
pub(crate) mod hooked;
mod limits;
pub(crate) mod notes;
mod old_format;
mod pipelined;
#[cfg(debug_assertions)]
mod planted;
mod reopen;
mod snapshot;
