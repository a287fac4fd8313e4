//! [`Mix`]: mixes of operations by name.
//!
//! Owns: the list, and the shares of each. Never: draws an operation.

use std::str::FromStr;

/// A kind of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Reads the value of a record.
    Read,
    /// Replaces the value of a record.
    Update,
    /// Inserts a record.
    Insert,
}

impl Class {
    /// Every class, in the order of their discriminants.
    pub const ALL: [Class; 3] = [Class::Read, Class::Update, Class::Insert];

    /// The name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Class::Read => "read",
            Class::Update => "update",
            Class::Insert => "insert",
        }
    }
}

/// A mix of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mix {
    /// YCSB A: reads and updates, half and half.
    YcsbA,
    /// YCSB C: reads alone.
    YcsbC,
    /// YCSB D with the choice of records of the paper: 95% reads by Zipf's distribution (not of the latest records), 5% insertions.
    YcsbD,
    /// Insertions alone.
    InsertOnly,
    /// Updates alone.
    UpdateOnly,
}

/// A name that no mix has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no operation mix '{name}'; choose one of {}", Mix::ALL.map(Mix::name).join(", "))]
pub struct UnknownMix {
    /// The name.
    pub name: String,
}

impl Mix {
    /// All mixes.
    pub const ALL: [Mix; 5] = [Mix::YcsbA, Mix::YcsbC, Mix::YcsbD, Mix::InsertOnly, Mix::UpdateOnly];

    /// The name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mix::YcsbA => "ycsb-a",
            Mix::YcsbC => "ycsb-c",
            Mix::YcsbD => "ycsb-d",
            Mix::InsertOnly => "insert-only",
            Mix::UpdateOnly => "update-only",
        }
    }

    /// The shares of the classes in percent, in the order of [`Class::ALL`].
    #[must_use]
    pub fn percent(self) -> [u32; 3] {
        match self {
            Mix::YcsbA => [50, 50, 0],
            Mix::YcsbC => [100, 0, 0],
            Mix::YcsbD => [95, 0, 5],
            Mix::InsertOnly => [0, 0, 100],
            Mix::UpdateOnly => [0, 100, 0],
        }
    }

    /// Returns whether it has insertions, so that the structure grows.
    #[must_use]
    pub fn inserts(self) -> bool {
        self.percent()[Class::Insert as usize] > 0
    }
}

impl FromStr for Mix {
    type Err = UnknownMix;

    fn from_str(name: &str) -> Result<Mix, UnknownMix> {
        let mix = Mix::ALL.into_iter().find(|mix| mix.name() == name);
        mix.ok_or_else(|| UnknownMix { name: name.to_owned() })
    }
}

impl std::fmt::Display for Mix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
