//! The synchronization points of a recorded transaction.
//!
//! A transaction synchronizes in every phase, and with every action outside of one, that has data of another owner than the home: the
//! home suspends until the replies are there. Data that has the same owner today may have another one tomorrow, so a point is recorded for
//! each phase, and each action, with another sub-partition than that of the transaction's first access, wherever these are now. At its end a
//! transaction sends one message to each participant; points of which all data has taken part in an earlier one are marked for that.
//!
//! Bytes are those that went to other workers and came back; where nothing travelled, those of the rows, as tables declare them.
//!
//! Owns: which accesses met. Never: decides whether an event is recorded.

use std::ops::Range;

use atrapos_partition::monitor::{Meeting, Partner};
use atrapos_partition::partition::{PartitionId, Tables};
use atrapos_runtime::WorkerId;
use atrapos_storage::KeyBuf;
use atrapos_storage::lock::LockTarget;
use smallvec::SmallVec;

use super::Monitor;
use crate::branch::Access;
use crate::tx::rounds::{RoundRead, Rounds};

/// The number of partners of one synchronization point that are kept.
const PARTNERS: usize = 16;

/// The number of synchronization points of one transaction that are recorded.
const POINTS: usize = 32;

/// The assumed bytes of every exchange besides the rows.
const KEY_BYTES: u64 = 16;

/// A sub-partition of this worker, by the partition that keeps the arrays.
type Unit = (PartitionId, usize);

/// What has taken part in synchronization points of a transaction so far.
#[derive(Default)]
struct Met {
    units: SmallVec<[Unit; PARTNERS]>,
    workers: SmallVec<[WorkerId; 4]>,
}

impl Met {
    /// Adds what takes part, and returns true if it has all been there.
    fn add(&mut self, units: &[Unit], round: &RoundRead<'_>) -> bool {
        let before = (self.units.len(), self.workers.len());
        for unit in units {
            if !self.units.contains(unit) {
                self.units.push(*unit);
            }
        }
        for sent in round.sent {
            if !self.workers.contains(&sent.to) {
                self.workers.push(sent.to);
            }
        }
        before == (self.units.len(), self.workers.len())
    }
}

/// Returns the phases and single actions among accesses of which nothing was sent.
fn rounds_here(accesses: &[Access], rounds: &Rounds) -> Vec<Range<usize>> {
    let mut here: Vec<Range<usize>> = Vec::new();
    let is_sent = |at: usize| rounds.iter().any(|round| round.home.contains(&at));
    for (at, access) in accesses.iter().enumerate() {
        match here.last_mut() {
            _ if is_sent(at) => {}
            Some(last) if last.end == at && access.joined => last.end = at + 1,
            _ => here.push(at..at + 1),
        }
    }
    here
}

impl Monitor {
    /// Records the synchronization points of a transaction with these accesses at its home.
    pub(super) fn record_meetings(
        &self,
        tables: &mut Tables,
        accesses: &[Access],
        rounds: &Rounds,
        stands_for: u64,
    ) {
        let Some(&home) = accesses.first().map(|first| self.units_of(tables, first)).iter().flatten().next()
        else {
            return;
        };
        let here = rounds_here(accesses, rounds).into_iter();
        let here = here.map(|home| RoundRead { home, sent: &[], bytes: 0 });
        let mut met = Met::default();
        for round in rounds.iter().chain(here).take(POINTS) {
            let mut units: SmallVec<[Unit; PARTNERS]> = SmallVec::new();
            let mut bytes = round.bytes;
            for access in accesses.get(round.home.clone()).unwrap_or_default() {
                let mut is_new = false;
                for unit in self.units_of(tables, access) {
                    if unit != home && !units.contains(&unit) && units.len() < PARTNERS {
                        units.push(unit);
                        is_new = true;
                    }
                }
                let row = tables.catalog.tables[access.partition.table.at()].expected_row_bytes as u64;
                bytes += u64::from(is_new) * (row + KEY_BYTES);
            }
            let again = met.add(&units, &round);
            let mut partners: Vec<Partner> =
                units.iter().filter_map(|unit| self.key_in(tables, *unit)).collect();
            partners.extend(round.sent.iter().map(|sent| sent.partner.clone()));
            partners.truncate(PARTNERS);
            let (place, part) = home;
            let draw = self.random();
            if let (false, Some((_, monitor))) = (partners.is_empty(), self.monitor_of(tables, place)) {
                monitor.note_meeting(part, Meeting { partners, bytes, again }, stands_for, draw);
            }
        }
    }

    /// Returns the sub-partitions that an access touches.
    fn units_of(&self, tables: &mut Tables, access: &Access) -> SmallVec<[Unit; 2]> {
        let Some((place, monitor)) = self.monitor_of(tables, access.partition) else {
            return SmallVec::new();
        };
        let parts = match &access.target {
            LockTarget::Key(key) => {
                let part = monitor.part_of(key);
                part..=part
            }
            LockTarget::Range { lower, upper } => monitor.parts_of(lower, upper.as_deref()),
        };
        parts.map(|part| (place, part)).collect()
    }

    /// Returns a key in a sub-partition, which stands for it.
    fn key_in(&self, tables: &mut Tables, (place, part): Unit) -> Option<Partner> {
        let (_, monitor) = self.monitor_of(tables, place)?;
        let key = monitor.lower(part).cloned().unwrap_or_default();
        let key =
            if key.is_empty() { KeyBuf::from(tables.shards[place.table.at()].bounds(place).0) } else { key };
        Some((place.table, key))
    }
}
