//! Deployments: several databases, each in a process of its own, that divide the keys among them.
//!
//! Owns: which processors an instance has ([`plan`]), the links of an instance to the others ([`Member`]), the processes of a
//! deployment ([`Process`]), copies of their rows ([`write_rows`], [`load_rows`]), and the model of what a deployment gives ([`model`]).
//! Never: runs a transaction, or knows a workload.

#![forbid(unsafe_code)]

mod member;
pub mod model;
pub mod plan;
mod process;
mod rows;

pub use member::{Member, MemberOptions};
pub use process::{Ended, Process, ProcessError};
pub use rows::{RowsError, load_rows, write_rows};

/// The way of the messages between instances.
pub use atrapos_channel::{ChannelError, ChannelKind, DeploymentId};
