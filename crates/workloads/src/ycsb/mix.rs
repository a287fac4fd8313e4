//! Mixes of operations of YCSB: the core workloads by their letters, and others.
//!
//! Owns: kinds of operations and their shares. Never: draws an operation.

use serde::{Deserialize, Serialize};
use std::str::FromStr;

use crate::workload::ClassId;

/// Kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
pub enum Kind {
    /// Reads a record.
    Read,
    /// Writes a column of a record.
    Update,
    /// Inserts a record.
    Insert,
    /// Reads up to 100 records from a key on.
    Scan,
    /// Reads a record and writes a column of it.
    ReadModifyWrite,
}

impl Kind {
    /// Every kind, in the order of their discriminants.
    pub const ALL: [Kind; 5] = [Kind::Read, Kind::Update, Kind::Insert, Kind::Scan, Kind::ReadModifyWrite];

    /// The names of the kinds, in the same order.
    pub const NAMES: [&'static str; 5] = ["read", "update", "insert", "scan", "read-modify-write"];

    /// Returns whether it changes a record.
    #[inline]
    #[must_use]
    pub fn writes(self) -> bool {
        !matches!(self, Kind::Read | Kind::Scan)
    }

    /// Returns the class of transactions that consist of one such operation.
    #[must_use]
    pub fn id(self) -> ClassId {
        ClassId(self as u8)
    }
}

/// A mix of operations: shares of each kind, in the order of [`Kind::ALL`].
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    name: String,
    shares: [f64; 5],
    distribution: Distribution,
}

/// The distribution by which keys are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Distribution {
    /// By Zipf's distribution.
    Zipf,
    /// The newest records by Zipf's distribution: those a client has inserted, then the last ones loaded.
    Latest,
    /// All alike.
    Uniform,
}

impl Distribution {
    /// Returns the distribution's name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Distribution::Zipf => "zipf",
            Distribution::Latest => "latest",
            Distribution::Uniform => "uniform",
        }
    }
}

/// Reasons for which a mix is not possible.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BadMix {
    /// There is no such letter.
    #[error("there is no mix '{0}'; choose one of a, b, c, d, e, f")]
    Unknown(String),
    /// The value is not a share.
    #[error("the share {0} of updates is not possible; use 0 to 1")]
    Updates(f64),
}

impl FromStr for Mix {
    type Err = BadMix;

    /// Parses a core workload of YCSB, given by its letter.
    fn from_str(name: &str) -> Result<Mix, BadMix> {
        let (shares, distribution) = match name.to_ascii_lowercase().as_str() {
            "a" => ([0.5, 0.5, 0.0, 0.0, 0.0], Distribution::Zipf),
            "b" => ([0.95, 0.05, 0.0, 0.0, 0.0], Distribution::Zipf),
            "c" => ([1.0, 0.0, 0.0, 0.0, 0.0], Distribution::Zipf),
            "d" => ([0.95, 0.0, 0.05, 0.0, 0.0], Distribution::Latest),
            "e" => ([0.0, 0.0, 0.05, 0.95, 0.0], Distribution::Zipf),
            "f" => ([0.5, 0.0, 0.0, 0.0, 0.5], Distribution::Zipf),
            _ => return Err(BadMix::Unknown(name.to_owned())),
        };
        Ok(Mix { name: name.to_ascii_lowercase(), shares, distribution })
    }
}

impl std::fmt::Display for Mix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl Mix {
    /// Creates a mix of updates in this share, and reads.
    ///
    /// # Errors
    /// Fails if it is not a share.
    pub fn of_updates(updates: f64) -> Result<Mix, BadMix> {
        if !(0.0..=1.0).contains(&updates) {
            return Err(BadMix::Updates(updates));
        }
        let shares = [1.0 - updates, updates, 0.0, 0.0, 0.0];
        Ok(Mix { name: format!("{}% updates", updates * 100.0), shares, distribution: Distribution::Zipf })
    }

    /// Creates a mix of operations of one kind alone.
    #[must_use]
    pub fn only(kind: Kind) -> Mix {
        let mut shares = [0.0; 5];
        shares[kind as usize] = 1.0;
        Mix { name: Kind::NAMES[kind as usize].to_owned(), shares, distribution: Distribution::Zipf }
    }

    /// Returns the shares of the kinds, in the order of [`Kind::ALL`].
    #[must_use]
    pub fn shares(&self) -> [f64; 5] {
        self.shares
    }

    /// Returns the distribution by which YCSB chooses keys for it.
    #[must_use]
    pub fn distribution(&self) -> Distribution {
        self.distribution
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_mixes_and_others_are_refused() {
        assert_eq!("A".parse::<Mix>().map(|mix| mix.to_string()), Ok("a".to_owned()));
        assert!("g".parse::<Mix>().unwrap_err().to_string().contains("'g'"));
        assert_eq!(Mix::of_updates(0.25).map(|mix| mix.shares()), Ok([0.75, 0.25, 0.0, 0.0, 0.0]));
        assert!(Mix::of_updates(1.5).unwrap_err().to_string().contains("1.5"));
        assert!(Mix::of_updates(f64::NAN).is_err());
    }
}
