//! [`Load`]: what is done to which structure.
//!
//! Owns: the settings and their checks. Never: knows threads.

use std::time::Duration;

use atrapos_domains::{BURST_DEFAULT, BURST_MAX};
use atrapos_structures::Kind;
use atrapos_workloads::{Zipf, room};

use crate::error::LoadError;
use crate::mix::{Class, Mix};

/// Records at most: numbers of inserted ones follow, and all are below 2^63.
pub(crate) const RECORDS_MAX: u64 = 1 << 40;

/// Memory of a record in the structure that takes most for it, with what is free in nodes or taken twice while a table grows.
const RECORD_BYTES: u64 = 160;

/// Records that a round may insert however few were loaded.
const INSERTED_MIN: u64 = 1 << 18;

/// The length of a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// For so long; with insertions, until about as many records have been inserted as were loaded.
    Time(Duration),
    /// As many operations by each thread that drives.
    Operations(u64),
}

/// A structure, its records, and the operations on them.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// The structure.
    pub kind: Kind,
    /// The operations.
    pub mix: Mix,
    /// Records that are loaded: keys and values of 8 bytes.
    pub records: u64,
    /// The exponent of Zipf's distribution by which records are chosen; 0 chooses all alike.
    pub theta: f64,
    /// The length of a round.
    pub length: Length,
    /// Tasks of a client that are under way in each domain, where operations are delegated: 1 to [`BURST_MAX`].
    pub burst: usize,
    /// Set if a worker makes the look-ups of several operations of a burst together.
    pub grouped: bool,
    /// Set if a round of its own, of a quarter of the length, says what delegation takes of the clients ([`Delegation`](crate::Delegation)): in that one they
    /// read the clock whenever they wait.
    pub clocked: bool,
    /// The seed of all random choices.
    pub seed: u64,
}

impl Load {
    /// A load with the settings of the paper (Zipf with 0.99, bursts of [`BURST_DEFAULT`]), a million records and rounds of half a second.
    #[must_use]
    pub fn new(kind: Kind, mix: Mix) -> Load {
        let length = Length::Time(Duration::from_millis(500));
        Load {
            kind,
            mix,
            records: 1_000_000,
            theta: 0.99,
            length,
            burst: BURST_DEFAULT,
            grouped: true,
            clocked: false,
            seed: 1,
        }
    }

    /// Refuses to load the records into so many structures at once if the available memory does not have room for them.
    ///
    /// # Errors
    /// [`LoadError::Memory`], with the number of records that fit.
    pub fn check_memory(&self, structures: usize, available_bytes: u64) -> Result<(), LoadError> {
        // A round inserts at most as many records as were loaded.
        let growth = if self.mix.inserts() { 2 } else { 1 };
        let record_bytes = RECORD_BYTES * growth * structures as u64;
        Ok(room::check("records", self.records, record_bytes, available_bytes)?)
    }

    /// Operations of one of so many threads in a round of this length, at most: a round that ends by time ends earlier when about as
    /// many records have been inserted as were loaded, or [`INSERTED_MIN`].
    pub(crate) fn operations_max(&self, length: Length, threads: usize) -> u64 {
        let percent = self.mix.percent()[Class::Insert as usize];
        match length {
            Length::Operations(operations) => operations,
            Length::Time(_) if percent == 0 => u64::MAX,
            Length::Time(_) => {
                (self.records.max(INSERTED_MIN) / threads as u64).max(1) * 100 / u64::from(percent)
            }
        }
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// A [`LoadError`] that names the setting that is not possible.
    pub fn check(&self) -> Result<(), LoadError> {
        self.popularity().map(drop)
    }

    /// Checks the settings, and returns the distribution of the records' popularity; `None` if all are alike.
    pub(crate) fn popularity(&self) -> Result<Option<Zipf>, LoadError> {
        match self.records {
            0 => return Err(LoadError::NoRecords),
            1..=RECORDS_MAX => {}
            _ => return Err(LoadError::TooManyRecords(self.records)),
        }
        match self.length {
            Length::Operations(0) => return Err(LoadError::Length("0 operations".to_owned())),
            Length::Time(Duration::ZERO) => return Err(LoadError::Length("0 s".to_owned())),
            Length::Time(_) | Length::Operations(_) => {}
        }
        if !(1..=BURST_MAX).contains(&self.burst) {
            return Err(LoadError::Burst(self.burst));
        }
        let zipf = Zipf::new(self.records, self.theta).ok_or(LoadError::Theta(self.theta))?;
        Ok((self.theta > 0.0).then_some(zipf))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_by_time_at_most_double_the_records() {
        let most = |mix, records, threads| {
            let load = Load { records, ..Load::new(Kind::BTree, mix) };
            load.operations_max(load.length, threads)
        };
        assert_eq!(most(Mix::YcsbA, 1_000_000, 2), u64::MAX);
        assert_eq!(most(Mix::InsertOnly, 1_000_000, 2), 500_000);
        assert_eq!(most(Mix::YcsbD, 1_000_000, 4), 5_000_000);
        assert_eq!(most(Mix::InsertOnly, 1, 1), INSERTED_MIN);
        let load = Load::new(Kind::BTree, Mix::InsertOnly);
        assert_eq!(load.operations_max(Length::Operations(7), 2), 7);
    }

    #[test]
    fn records_that_do_not_fit_are_refused_with_those_that_do() {
        let load = Load { records: 1 << 30, ..Load::new(Kind::BTree, Mix::YcsbC) };
        let refused = load.check_memory(2, 1 << 30).expect_err("they do not fit");
        assert!(refused.is_bad_input() && refused.to_string().contains("fit"), "{refused}");
        assert!(Load { records: 1 << 20, ..load }.check_memory(2, 1 << 30).is_ok());
    }
}
