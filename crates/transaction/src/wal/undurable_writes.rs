//! The writes in one worker's partitions that are not durable yet: for the key of every change, the epoch of its
//! transaction.
//!
//! A reader has to wait for the epochs of the rows that it observed, and of the deletions. Versions do not have these:
//! they are given when a row is written, epochs when its transaction commits. So when a transaction commits, the keys
//! it changed here are noted in a table of fixed size, by hash, with the epoch; an access to a key with the same hash
//! depends on that epoch. A collision makes a reader wait needlessly, but no dependence is missed. A slot has the low 16 bits
//! of its epoch, so that the table stays in the cache: read back, it is the newest epoch with these bits that was noted here,
//! which is the one that was meant or, rarely, a newer one. The epoch that comes
//! with a partition from another worker counts for every key: for one sync after a move, some readers wait needlessly.
//! Changes are noted under the first eight bytes of their keys as well (the routing prefix of most), for ranges within
//! one such prefix; wider ranges depend on the newest change of their table on this worker. The changes of a transaction
//! that makes many are noted for their tables as wholes: noting each costs more than the readers' wait is worth.
//!
//! Under relaxed durability nobody waits unless the device falls behind, and then everybody does: the newest epoch of any
//! change counts for every key, and nothing else is noted ([`UndurableWrites::coarse`]).

use atrapos_durability::wal::Epoch;
use atrapos_partition::partition::PartitionId;
use atrapos_partition::planted::{Bug, planted};
use atrapos_storage::lock::LockTarget;
use atrapos_storage::{KeyBuf, first_eight};

/// The number of slots; a power of two. At two million changes a second and a sync of 2 ms, some thousand are in use.
const SLOTS: usize = 1 << 14;

/// The number of changes of one transaction on one worker from which on they are noted for their tables as wholes.
const MANY: usize = 8;

/// The newest epochs of the changes in one table.
#[derive(Clone, Copy, Debug, Default)]
struct TableEpochs {
    /// Of any change.
    newest: Epoch,
    /// Of a change that is not noted by its key: every access to the table may depend on it.
    everywhere: Epoch,
}

/// See the module's introduction.
#[derive(Debug)]
pub struct UndurableWrites {
    /// The low bits of epochs. Empty if coarse.
    slots: Box<[u16]>,
    /// The newest epoch that was noted.
    newest: Epoch,
    tables: Vec<TableEpochs>,
    /// The newest epoch of changes in partitions before they moved here, and of all changes if coarse: every access may
    /// depend on it.
    everywhere: Epoch,
}

impl UndurableWrites {
    /// Creates an empty table of writes for so many tables.
    pub(crate) fn new(tables: usize) -> UndurableWrites {
        UndurableWrites {
            slots: vec![0; SLOTS].into_boxed_slice(),
            newest: Epoch(0),
            tables: vec![TableEpochs::default(); tables],
            everywhere: Epoch(0),
        }
    }

    /// Creates one in which only the newest epoch is noted, for relaxed durability.
    pub(crate) fn coarse() -> UndurableWrites {
        UndurableWrites { slots: Box::default(), newest: Epoch(0), tables: Vec::new(), everywhere: Epoch(0) }
    }

    /// Returns true if only the newest epoch is noted.
    #[inline]
    pub(crate) fn is_coarse(&self) -> bool {
        self.slots.is_empty()
    }

    /// Adds entries for new tables; `tables` is the number of tables.
    pub fn add_tables(&mut self, tables: usize) {
        self.tables.resize(tables.max(self.tables.len()), TableEpochs::default());
    }

    #[inline]
    fn slot(place: PartitionId, key: &[u8]) -> usize {
        const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut hash = (first_eight(key) ^ table_bits(place)).wrapping_mul(MULTIPLIER);
        if key.len() > 8 {
            for chunk in key[8..].chunks(8) {
                hash = (hash.rotate_left(23) ^ first_eight(chunk)).wrapping_mul(MULTIPLIER);
            }
        }
        (hash >> 32) as usize & (SLOTS - 1)
    }

    /// Returns the slot of changes of keys that begin with `head`, for ranges.
    #[inline]
    fn slot_of_head(place: PartitionId, head: u64) -> usize {
        let hash = (head ^ table_bits(place)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (hash >> 32) as usize & (SLOTS - 1)
    }

    /// Notes that a transaction of `epoch` has changed the keys.
    #[inline]
    pub(crate) fn note_all<'a>(
        &mut self,
        keys: impl ExactSizeIterator<Item = (PartitionId, &'a KeyBuf)>,
        epoch: Epoch,
    ) {
        if self.is_coarse() {
            if keys.len() > 0 {
                self.inherit(epoch);
            }
        } else if keys.len() >= MANY && !planted(Bug::ManyWritesNotNoted) {
            keys.for_each(|(place, _)| self.note_table(place, epoch));
        } else if keys.len() < MANY {
            keys.for_each(|(place, key)| self.note(place, key, epoch));
        }
    }

    // The end of a transaction may arrive after younger transactions have committed, so epochs do not come in order.

    /// Returns the newest epoch that a slot may stand for.
    #[inline]
    fn epoch_at(&self, at: usize) -> Epoch {
        let newest = self.newest.0;
        // Epochs are noted in no order, but none is newer than the newest.
        Epoch(newest - u64::from((newest as u16).wrapping_sub(self.slots[at])))
    }

    fn note_table(&mut self, place: PartitionId, epoch: Epoch) {
        self.newest = epoch.max(self.newest);
        let table = &mut self.tables[place.table.at()];
        table.everywhere = epoch.max(table.everywhere);
        table.newest = epoch.max(table.newest);
    }

    #[inline]
    fn note(&mut self, place: PartitionId, key: &[u8], epoch: Epoch) {
        self.newest = epoch.max(self.newest);
        for at in [Self::slot(place, key), Self::slot_of_head(place, first_eight(key))] {
            self.slots[at] = epoch.max(self.epoch_at(at)).0 as u16;
        }
        let table = &mut self.tables[place.table.at()];
        table.newest = epoch.max(table.newest);
    }

    /// Returns the newest epoch on which an access to `target` may depend.
    #[inline]
    pub(crate) fn of(&self, place: PartitionId, target: &LockTarget) -> Epoch {
        if self.is_coarse() {
            return self.everywhere;
        }
        let table = &self.tables[place.table.at()];
        let noted = match target {
            LockTarget::Key(key) => self.epoch_at(Self::slot(place, key)),
            LockTarget::Range { lower, upper: Some(upper) } if within_one_head(lower, upper) => {
                self.epoch_at(Self::slot_of_head(place, first_eight(lower)))
            }
            LockTarget::Range { .. } => table.newest,
        };
        noted.max(table.everywhere).max(self.everywhere)
    }

    /// Returns the newest epoch on which any access may depend.
    pub fn newest(&self) -> Epoch {
        self.newest.max(self.everywhere)
    }

    /// Notes that a partition has moved here from a worker whose newest epoch is `epoch`.
    pub fn inherit(&mut self, epoch: Epoch) {
        self.everywhere = self.everywhere.max(epoch);
    }
}

/// Returns bits that differ from table to table, spread over the whole word. The table's number in the top bits alone
/// would be lost in a product, so that equal keys of different tables would share a slot.
#[inline]
fn table_bits(place: PartitionId) -> u64 {
    u64::from(place.table.0).wrapping_mul(0xff51_afd7_ed55_8ccd)
}

/// Returns true if all keys of a range begin with the same eight bytes.
fn within_one_head(lower: &[u8], upper: &[u8]) -> bool {
    lower.len() >= 8 && upper.len() >= 8 && lower[..8] == upper[..8]
}

#[cfg(test)]
mod tests {
    use atrapos_storage::Key;

    use super::*;
    use atrapos_partition::schema::TableId;

    #[test]
    fn what_was_noted_is_found_and_ranges_see_the_newest() {
        let place = PartitionId { table: TableId(1), partition: 0 };
        let mut recent = UndurableWrites::new(2);
        for key in 0..100_000_u64 {
            recent.note(place, &key.encode(), Epoch(key / 1000 + 1));
            assert!(recent.of(place, &LockTarget::Key(key.encode())) > Epoch(key / 1000));
        }
        let within = LockTarget::Range {
            lower: KeyBuf::from_slice(&[7_u64.to_be_bytes().as_slice(), &[1]].concat()),
            upper: Some(KeyBuf::from_slice(&[7_u64.to_be_bytes().as_slice(), &[2]].concat())),
        };
        assert!(recent.of(place, &within) >= Epoch(1));
        recent.note(place, &[7_u64.to_be_bytes().as_slice(), &[1, 5]].concat(), Epoch(200));
        assert_eq!(recent.of(place, &within), Epoch(200));
        recent.slots.fill(0);
        recent.tables[1].newest = Epoch(100);
        let range = LockTarget::Range { lower: KeyBuf::new(), upper: None };
        assert_eq!(recent.of(place, &range), Epoch(100));
        assert_eq!(recent.of(PartitionId { table: TableId(0), partition: 0 }, &range), Epoch(0));
    }

    #[test]
    fn equal_keys_of_different_tables_are_told_apart() {
        let mut recent = UndurableWrites::new(9);
        (0..100_u64).for_each(|key| {
            recent.note(PartitionId { table: TableId(0), partition: 0 }, &key.encode(), Epoch(1));
        });
        let taken = |table: u16| {
            let place = PartitionId { table: TableId(table), partition: 0 };
            (0..100_u64).filter(|key| recent.of(place, &LockTarget::Key(key.encode())) > Epoch(0)).count()
        };
        assert_eq!(taken(0), 100);
        assert!((1..9).all(|table| taken(table) < 20), "collisions happen, but not to most keys");
    }

    /// Returns true if a reader of any key that a transaction with many changes has changed waits for that, and one of another
    /// table does not.
    fn readers_of_many_wait(recent: &mut UndurableWrites) -> bool {
        let place = |table: u16| PartitionId { table: TableId(table), partition: 0 };
        let keys: Vec<_> = (0..MANY as u64).map(|key| key.encode()).collect();
        recent.note_all(keys.iter().map(|key| (place(1), key)), Epoch(5));
        let of = |table: u16, key: &KeyBuf| recent.of(place(table), &LockTarget::Key(key.clone()));
        keys.iter().all(|key| of(1, key) == Epoch(5) && (recent.is_coarse() || of(0, key) == Epoch(0)))
    }

    #[test]
    fn readers_of_what_was_changed_with_much_else_wait() {
        assert!(readers_of_many_wait(&mut UndurableWrites::new(2)));
        assert!(readers_of_many_wait(&mut UndurableWrites::coarse()));
    }

    #[cfg(debug_assertions)]
    #[test]
    fn planted_many_writes_that_are_not_noted_are_caught() {
        let wait = || readers_of_many_wait(&mut UndurableWrites::new(2));
        assert!(!atrapos_partition::planted::with(Bug::ManyWritesNotNoted, wait));
    }

    #[test]
    fn what_was_noted_is_never_taken_for_older() {
        let place = PartitionId { table: TableId(0), partition: 0 };
        // The first epoch of a database that was opened again is anything.
        for first in [1, 1 << 16, (1 << 40) - 3] {
            let mut recent = UndurableWrites::new(1);
            let mut noted: Vec<u64> = Vec::new();
            for key in 0..2_000_u64 {
                // Epochs go on by little and by much, and some come late.
                let epoch = first + 97 * key + (key % 7) * 60_000 - (key % 5) * 40.min(key);
                recent.note(place, &key.encode(), Epoch(epoch));
                noted.push(epoch);
                for (key, epoch) in noted.iter().enumerate().rev().take(50) {
                    let of = recent.of(place, &LockTarget::Key((key as u64).encode()));
                    assert!((Epoch(*epoch)..=recent.newest()).contains(&of), "{key}: {epoch}, {of}");
                }
            }
        }
    }

    #[test]
    fn epochs_of_one_slot_never_go_back() {
        let place = PartitionId { table: TableId(0), partition: 0 };
        let mut recent = UndurableWrites::new(1);
        let key = 7_u64.encode();
        recent.note(place, &key, Epoch(9));
        recent.note(place, &key, Epoch(8));
        assert_eq!(recent.of(place, &LockTarget::Key(key)), Epoch(9));
    }
}
