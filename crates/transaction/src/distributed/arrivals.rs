//! The messages that have arrived on a link together, and where the keys are that they name.
//!
//! Messages that have arrived together name rows that have nothing to do with each other. So before the first message is taken in, the keys of all of them
//! are looked up together, with their cache misses overlapping, as those of the transactions of the home are ([`crate::lookups`]).
//!
//! Owns: copies of the messages, and the positions. Never: does what a message says. Invariant: a position is a hint, which the tree
//! checks.

use arrayvec::ArrayVec;
use atrapos_partition::partition::Tables;
use atrapos_storage::{Position, Probe, locate_batch};

use super::wire::each_named;
use crate::lookups::BATCH;

/// Messages, one behind the other.
#[derive(Default)]
pub(super) struct Arrivals {
    bytes: Vec<u8>,
    /// The end of each message, and of the positions of its keys.
    ends: Vec<(usize, usize)>,
    positions: Vec<Position>,
}

/// A message as it has arrived.
#[derive(Clone, Copy)]
pub(super) struct Arrival<'a> {
    pub(super) bytes: &'a [u8],
    /// The positions of the keys that it names, in their order; none if they were not looked up.
    pub(super) positions: &'a [Position],
}

/// Keys that are being looked up, each with the place of its position.
#[derive(Default)]
struct Group<'a> {
    probes: ArrayVec<Probe<'a>, BATCH>,
    places: ArrayVec<usize, BATCH>,
}

impl Group<'_> {
    fn locate(&mut self, positions: &mut [Position]) {
        locate_batch(&mut self.probes);
        for (probe, place) in self.probes.drain(..).zip(self.places.drain(..)) {
            positions[place] = probe.position;
        }
    }
}

impl Arrivals {
    /// Forgets all messages.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.positions.clear();
    }

    /// Returns true if there are no messages.
    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Adds a message.
    pub(super) fn add(&mut self, message: &[u8]) {
        self.bytes.extend_from_slice(message);
        self.ends.push((self.bytes.len(), 0));
    }

    /// Looks the keys up that messages name, if there are several messages.
    pub(super) fn locate(&mut self, tables: &Tables) {
        let Arrivals { bytes, ends, positions } = self;
        if ends.len() < 2 {
            return;
        }
        let (mut group, mut start) = (Group::default(), 0);
        for (end, positions_end) in ends {
            each_named(&bytes[start..*end], |named| {
                positions.push(Position::unknown());
                let found = named.and_then(|(table, key)| Some((tables.locate_checked(table, key)?.0, key)));
                let probe =
                    found.and_then(|(place, key)| Some(Probe::new(tables.owned_at(place)?.tree(), key)));
                if let Some(probe) = probe {
                    group.probes.push(probe);
                    group.places.push(positions.len() - 1);
                    if group.probes.is_full() {
                        group.locate(positions);
                    }
                }
            });
            (start, *positions_end) = (*end, positions.len());
        }
        group.locate(positions);
    }

    /// Returns the messages in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Arrival<'_>> {
        let (mut start, mut positions_start) = (0, 0);
        self.ends.iter().map(move |&(end, positions_end)| {
            let positions = self.positions.get(positions_start..positions_end).unwrap_or_default();
            let arrival = Arrival { bytes: &self.bytes[start..end], positions };
            (start, positions_start) = (end, positions_end);
            arrival
        })
    }
}
