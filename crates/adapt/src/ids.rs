//! The names of what is planned: tables, slices of them, workers.
//!
//! Owns: the id types. Never: gives an id a meaning beyond one trace and one platform.
//!
//! Invariant: all are dense indexes counted from 0.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! index_type {
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
    };
}

index_type!(
    /// A unit of partitioning: a table, or a family of tables with common boundaries. The position in
    /// [`WorkloadTrace::tables`](crate::WorkloadTrace::tables).
    TableIndex,
    "table"
);
index_type!(
    /// A sub-partition by its position in the whole table, counted over all of its partitions in key order. Cuts of a
    /// [`TableScheme`](crate::TableScheme) are such positions.
    SliceIndex,
    "slice"
);
index_type!(
    /// A worker. The number is the engine's own number of that worker, and the position in the list of processing units
    /// given to [`Platform::new`](crate::Platform::new).
    WorkerIndex,
    "worker"
);
