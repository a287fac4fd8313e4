//! The kinds of channels and their names.
//!
//! Owns: the list that a user chooses from. Never: opens anything.

use std::fmt;
use std::str::FromStr;

/// What carries the messages of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(not(loom), derive(serde::Serialize, serde::Deserialize))]
pub enum ChannelKind {
    /// Rings in memory that both processes map.
    Shm,
    /// A Unix stream socket.
    Unix,
    /// A pair of pipes.
    Pipe,
    /// A TCP connection.
    Tcp,
}

impl ChannelKind {
    /// All kinds, in the order in which help lists them.
    #[must_use]
    pub const fn all() -> &'static [Self] {
        &[Self::Shm, Self::Unix, Self::Pipe, Self::Tcp]
    }

    /// The name by which a user chooses the kind.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Unix => "unix",
            Self::Pipe => "pipe",
            Self::Tcp => "tcp",
        }
    }
}

impl fmt::Display for ChannelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Error for a name that no kind of channel has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no channel '{0}': choose shm, unix, pipe or tcp")]
pub struct UnknownKind(String);

impl FromStr for ChannelKind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<Self, UnknownKind> {
        Self::all()
            .iter()
            .copied()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| UnknownKind(name.to_owned()))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_refused_with_the_list() {
        for &kind in ChannelKind::all() {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        let error = "rdma".parse::<ChannelKind>().expect_err("there is no such kind yet").to_string();
        assert!(ChannelKind::all().iter().all(|kind| error.contains(kind.name())), "{error}");
    }
}
