//! The end of a server, in phases.
//!
//! Owns: their order. Never: ends a connection itself; each looks at the phase.

/// The stance of the server towards connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// It takes new ones.
    Running,
    /// It refuses new ones (57P03) and ends those that are in no transaction (57P01).
    Draining,
    /// It cancels what runs and ends all (57P01).
    Ending,
}
