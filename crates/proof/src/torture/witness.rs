//! The memory, outside the database, of the promises that clients were given: the only one by which a killed process
//! may be judged.
//!
//! Owns: the facts and the slot of each. Never: stores them; the implementation of [`Witness`] does.

use super::made::DEFINERS;
use super::schema::CLIENTS;

/// Clients that read the marks of others.
pub const READERS: usize = 2;

/// A part of the data that is loaded in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// TATP's tables.
    Tatp,
    /// Marks and purses.
    Marks,
}

/// One fact: a number that only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// 1 when a part has been loaded, and the load has been reported as complete.
    Loaded(Part),
    /// The last transaction of a client that it handed over.
    Submitted(usize),
    /// The last transaction of a client that was reported as committed.
    Acknowledged(usize),
    /// The newest transaction of a client that a reader was shown.
    Observed {
        /// The reader, below [`READERS`].
        reader: usize,
        /// The client whose transaction it was.
        client: usize,
    },
    /// The last statement of a definer that it began.
    StatementBegun(usize),
    /// The last statement of a definer that was reported as done.
    StatementEnded(usize),
    /// The last transaction on a definer's table that was handed over: the cycle of the table, and its number.
    RowsSubmitted(usize),
    /// The last one that was reported as committed.
    RowsAcknowledged(usize),
    /// The newest one that the reader was shown.
    RowsObserved(usize),
}

const PARTS: usize = 2;
const PER_CLIENT: usize = 2 + READERS;
const OF_CLIENTS: usize = PARTS + CLIENTS * PER_CLIENT;
const PER_DEFINER: usize = 5;

impl Slot {
    /// The number of slots.
    pub const COUNT: usize = OF_CLIENTS + DEFINERS * PER_DEFINER;

    /// Returns the slot's number, from 0 and below [`COUNT`](Slot::COUNT).
    #[must_use]
    pub fn index(self) -> usize {
        let of_client = |client: usize, at: usize| PARTS + client * PER_CLIENT + at;
        let of_definer = |definer: usize, at: usize| OF_CLIENTS + definer * PER_DEFINER + at;
        match self {
            Slot::Loaded(part) => part as usize,
            Slot::Submitted(client) => of_client(client, 0),
            Slot::Acknowledged(client) => of_client(client, 1),
            Slot::Observed { reader, client } => of_client(client, 2 + reader),
            Slot::StatementBegun(definer) => of_definer(definer, 0),
            Slot::StatementEnded(definer) => of_definer(definer, 1),
            Slot::RowsSubmitted(definer) => of_definer(definer, 2),
            Slot::RowsAcknowledged(definer) => of_definer(definer, 3),
            Slot::RowsObserved(definer) => of_definer(definer, 4),
        }
    }
}

/// An error of a witness: its facts cannot be relied on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the witness failed: {0}")]
pub struct WitnessError(pub String);

/// Remembers facts. A number survives the death of the process by any signal once [`write`](Witness::write) has
/// returned.
pub trait Witness: Sync {
    /// Returns the number written last; 0 at first.
    fn read(&self, slot: Slot) -> u64;

    /// Writes a number. Each slot has one writer.
    ///
    /// # Errors
    /// Returns an error if the number cannot be stored.
    fn write(&self, slot: Slot, value: u64) -> Result<(), WitnessError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_a_place_of_its_own() {
        let mut slots = vec![Slot::Loaded(Part::Tatp), Slot::Loaded(Part::Marks)];
        for client in 0..CLIENTS {
            slots.extend([Slot::Submitted(client), Slot::Acknowledged(client)]);
            slots.extend((0..READERS).map(|reader| Slot::Observed { reader, client }));
        }
        for definer in 0..DEFINERS {
            slots.extend([Slot::StatementBegun(definer), Slot::StatementEnded(definer)]);
            slots.extend([Slot::RowsSubmitted(definer), Slot::RowsAcknowledged(definer)]);
            slots.push(Slot::RowsObserved(definer));
        }
        let places: std::collections::BTreeSet<usize> = slots.iter().map(|slot| slot.index()).collect();
        assert_eq!((slots.len(), places.len()), (Slot::COUNT, Slot::COUNT));
        assert_eq!(places.last(), Some(&(Slot::COUNT - 1)));
    }
}
