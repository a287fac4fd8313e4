//! Deployments: several databases, each in a process of its own, that divide the keys among them.
//!
//! Owns: which processors an instance has ([`plan`]), the links of an instance to the others ([`Member`]), the processes of a
//! deployment ([`Process`]), its directory ([`DeploymentDirectory`]), the calls of clients in other processes ([`Client`]), copies of
//! the rows ([`write_rows`], [`load_rows`]), the speed of channels ([`message_rate`]), and the model of what a deployment gives
//! ([`model`]). Never: runs a transaction, or knows a workload.

#![forbid(unsafe_code)]

mod client;
mod description;
mod keys;
mod member;
pub mod message_rate;
pub mod model;
pub mod plan;
mod process;
mod protocol;
mod router;
mod rows;
mod server;

pub use client::{Client, ClientError, ClientOptions};
pub use description::{DeploymentDirectory, Description, DirectoryError, read_secret, write_secret};
pub use keys::{ChosenKeys, KeyBounds, KeysError, division, own_keys};
pub use member::{Member, MemberOptions};
pub use process::{Ended, Process, ProcessError};
pub use router::{RouterError, SchemaHandles};
pub use rows::{ReadRow, RowsError, VisitRow, load_rows, read_visited, write_rows, write_visited};
pub use server::{RunCall, serve_in_turn};

/// The way of the messages between instances.
pub use atrapos_channel::{Channel, ChannelError, ChannelKind, DeploymentId, Secret};
