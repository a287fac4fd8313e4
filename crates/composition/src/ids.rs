//! The names of what is composed: structures and domains.
//!
//! Owns: the id types. Never: gives an id a meaning beyond one demand and one composition.
//!
//! Invariant: all are dense indexes counted from 0.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A data structure instance: its position in [`Demand::structures`](crate::Demand::structures).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StructureIndex(pub u32);

impl StructureIndex {
    /// The number as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for StructureIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "structure {}", self.0)
    }
}

/// A domain: its position in [`Composition::domains`](crate::Composition::domains).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DomainIndex(pub u32);

impl DomainIndex {
    /// The number as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The name of the domain in pictures: `A` to `Z`, then `AA`, `AB` and so on.
    #[must_use]
    pub fn letters(self) -> String {
        let mut letters = Vec::new();
        let mut rest = self.0 + 1;
        while rest > 0 {
            rest -= 1;
            letters.push(char::from(b'A' + (rest % 26) as u8));
            rest /= 26;
        }
        letters.iter().rev().collect()
    }
}

impl fmt::Display for DomainIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "domain {}", self.letters())
    }
}
