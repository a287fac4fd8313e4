//! [`Design`]: the designs by name.
//!
//! Owns: the list. Never: knows a machine.

use std::str::FromStr;

/// A way to use a structure on a machine; the first four are the baselines of the paper (§7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Design {
    /// Shared everything: all threads use one structure directly, wherever the system runs them.
    Se,
    /// The same with pinned threads, and memory of the nodes in turn.
    SeNuma,
    /// Shared nothing by memory node: one domain per node, each with a part of the records.
    SnNuma,
    /// Shared nothing by thread: domains of one worker, each with a part of the records.
    SnThread,
    /// Domains of the size that suits the structure and the mix, or direct use where that is better.
    Configured,
}

/// A name that no design has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no design '{name}'; choose one of {}", Design::ALL.map(Design::name).join(", "))]
pub struct UnknownDesign {
    /// The name.
    pub name: String,
}

impl Design {
    /// All designs.
    pub const ALL: [Design; 5] =
        [Design::Se, Design::SeNuma, Design::SnNuma, Design::SnThread, Design::Configured];

    /// The name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Design::Se => "se",
            Design::SeNuma => "se-numa",
            Design::SnNuma => "sn-numa",
            Design::SnThread => "sn-thread",
            Design::Configured => "configured",
        }
    }
}

impl FromStr for Design {
    type Err = UnknownDesign;

    fn from_str(name: &str) -> Result<Design, UnknownDesign> {
        let design = Design::ALL.into_iter().find(|design| design.name() == name);
        design.ok_or_else(|| UnknownDesign { name: name.to_owned() })
    }
}

impl std::fmt::Display for Design {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
