//! What an open database tells those who watch it, and the local socket by which its owner does.
//!
//! Owns: the form of what is told ([`report`], which the server shows, too), the thread that answers ([`Watched`]), the places
//! of sockets, and the other end ([`Attached`]). Never: is on the path of a transaction, or shows anything.
//!
//! Invariants: nobody but the user of the process is answered (the socket's mode, and the credentials of its peer); while nobody
//! asks, the thread sleeps and no worker is asked; however many ask, workers are asked as seldom as [`look`] says. `docs/watch.md` has the form.

#![forbid(unsafe_code)]

mod answering;
mod attaching;
pub mod look;
mod place;
pub mod report;

pub use self::answering::{LatencySource, Watched, WatchedOptions};
pub use self::attaching::{Attached, Target, WatchError};
pub use self::place::PlaceError;
