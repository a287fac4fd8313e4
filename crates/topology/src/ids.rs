//! The names of the parts of a machine, one type per kind of part.
//!
//! Owns: the id types. Never: gives an id a meaning beyond its machine; ids of two machines do not mix.
//!
//! Invariant: [`CpuId`], [`NodeId`] and [`SocketId`] carry the operating system's (or the description's) own numbers,
//! which may have gaps; [`CoreId`] and [`IslandId`] are dense indexes into one [`Machine`](crate::Machine)'s lists.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id_type {
    ($(#[$meta:meta])* $name:ident, $word:literal) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The number as an index.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($word, " {}"), self.0)
            }
        }

        impl From<u32> for $name {
            fn from(number: u32) -> Self {
                Self(number)
            }
        }
    };
}

id_type!(
    /// A processing unit (PU): what the operating system calls a cpu and what a thread is pinned to. The number is the
    /// `N` of `/sys/devices/system/cpu/cpuN`, or the PU's index in a description.
    CpuId,
    "cpu"
);
id_type!(
    /// A physical core: one or several processing units (SMT siblings) with common execution resources. A dense index
    /// into [`Machine::cores`](crate::Machine::cores).
    CoreId,
    "core"
);
id_type!(
    /// An island of any level. A dense index into [`Machine::all_islands`](crate::Machine::all_islands), parents before
    /// their children.
    IslandId,
    "island"
);
id_type!(
    /// A memory (NUMA) node, by the operating system's number.
    NodeId,
    "node"
);
id_type!(
    /// A socket (package), by the operating system's number.
    SocketId,
    "socket"
);
