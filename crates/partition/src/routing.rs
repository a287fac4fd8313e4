//! The *scheme*: the partitions of the keys, and the workers that own the partitions.
//!
//! Every worker keeps its own copy of the scheme, and reads no other. The scheme of a family has a version; it changes
//! only as a whole, so a worker sees one scheme or the next and never a mixture. A change reaches the workers one after
//! the other (see `atrapos-placement`); a worker with the previous scheme sends to the previous owner, which forwards
//! to the new one.
//!
//! A partition has an index in the order of the keys, which changes when others are split or merged, and a number,
//! which does not change.
//!
//! A database may be one *instance* of a deployment, whose keys are divided among several processes. Its schemes name all
//! partitions; those of another instance have that instance as their owner ([`InstanceId::as_owner`]) in the place of a worker,
//! and never change.
//!
//! Invariants: the cuts of a family ascend strictly; a family of `n` cuts has `n + 1` partitions, of which the first
//! begins at the smallest key; every partition has exactly one owner and a number of its own.

mod division;
pub mod stored;

use std::sync::{Arc, LazyLock};

use atrapos_runtime::WorkerId;
use atrapos_storage::{Key, KeyBuf, first_eight};

use crate::schema::{Catalog, NO_FAMILY, SchemaError, Splits, TableId};

pub use division::{Division, InstanceId, KeyRanges};

/// The choice of a transaction's home: the owner of a key that its procedure will probably access first, or a worker by
/// its number.
#[derive(Clone, Debug)]
pub struct Route {
    /// The destination.
    #[doc(hidden)]
    pub to: Destination,
    /// True if the transaction is known to change nothing.
    #[doc(hidden)]
    pub reads: bool,
}

/// The worker that a route leads to.
#[derive(Clone, Debug)]
pub enum Destination {
    /// The owner of a key.
    Owner(TableId, KeyBuf),
    /// The worker with this number.
    Worker(WorkerId),
}

impl Route {
    /// Routes to the owner of a key of a table.
    #[inline]
    #[doc(hidden)]
    pub fn to(table: TableId, key: KeyBuf) -> Route {
        Route { to: Destination::Owner(table, key), reads: false }
    }

    /// Routes to a worker by its number, regardless of the data it owns. A number that is too large wraps around.
    #[must_use]
    pub fn worker(worker: WorkerId) -> Route {
        Route { to: Destination::Worker(worker), reads: false }
    }

    /// States that the transaction changes nothing, so that it may run wherever the data that it names can be read: on a worker to
    /// which the partition is lent, it is read in place. Only a hint: a transaction that writes after all is right, but slower.
    #[inline]
    #[must_use]
    pub fn reading(self) -> Route {
        Route { reads: true, ..self }
    }
}

/// The partitions of one family of tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyScheme {
    /// The version, which grows by one with every change.
    version: u64,
    /// First eight bytes of each cut as a big-endian integer: most look-ups compare nothing else.
    heads: Vec<u64>,
    cuts: Vec<KeyBuf>,
    /// The partitions, in key order.
    partitions: Vec<Slot>,
}

/// One partition of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    owner: WorkerId,
    number: u32,
}

impl FamilyScheme {
    /// Creates a scheme of partitions that begin at `cuts` (ascending), with their owners; one more owner than cuts.
    pub(crate) fn new(cuts: Vec<KeyBuf>, owners: Vec<WorkerId>) -> FamilyScheme {
        let slots = owners.into_iter().zip(0..).map(|(owner, number)| Slot { owner, number });
        FamilyScheme::of_slots(1, cuts, slots.collect())
    }

    fn of_slots(version: u64, cuts: Vec<KeyBuf>, partitions: Vec<Slot>) -> FamilyScheme {
        assert_eq!(cuts.len() + 1, partitions.len(), "every partition has one owner");
        assert!(cuts.is_sorted_by(|a, b| a < b), "cuts ascend strictly");
        FamilyScheme { version, heads: cuts.iter().map(|cut| first_eight(cut)).collect(), cuts, partitions }
    }

    /// The version, which grows by one with every split, merge and move.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The index, in key order, of the partition that holds `key`.
    #[inline(always)]
    #[must_use]
    pub fn partition_of(&self, key: &[u8]) -> usize {
        if self.heads.is_empty() { 0 } else { self.partition_among(key) }
    }

    #[inline(always)]
    fn partition_among(&self, key: &[u8]) -> usize {
        let head = first_eight(key);
        let mut at = self.heads.partition_point(|cut| *cut < head);
        // Cuts with the same head as the key are compared by their other bytes.
        while at < self.cuts.len() && self.heads[at] == head && *self.cuts[at] <= *key {
            at += 1;
        }
        at
    }

    /// The index of the partition that holds the last key below `upper` (`None`: the last key of all).
    pub(crate) fn partition_below(&self, upper: Option<&[u8]>) -> usize {
        match upper {
            None => self.partitions() - 1,
            Some(upper) => {
                let index = self.partition_of(upper);
                if index > 0 && self.lower(index) == Some(upper) { index - 1 } else { index }
            }
        }
    }

    /// The owner of partition `index`.
    #[inline]
    #[must_use]
    pub fn owner(&self, index: usize) -> WorkerId {
        self.partitions[index].owner
    }

    /// The number of partition `index`, which stays the same as long as the partition exists.
    #[inline]
    #[must_use]
    pub fn number(&self, index: usize) -> u32 {
        self.partitions[index].number
    }

    /// Number of partitions.
    #[must_use]
    pub fn partitions(&self) -> usize {
        self.partitions.len()
    }

    /// First key of partition `index`; `None` for partition 0, which begins at the smallest key.
    #[must_use]
    pub fn lower(&self, index: usize) -> Option<&[u8]> {
        index.checked_sub(1).map(|cut| &*self.cuts[cut])
    }

    /// First key after partition `index`; `None` for the last one.
    #[must_use]
    pub fn upper(&self, index: usize) -> Option<&[u8]> {
        self.cuts.get(index).map(|cut| &**cut)
    }

    /// The cuts between the partitions, ascending.
    #[must_use]
    pub fn cuts(&self) -> &[KeyBuf] {
        &self.cuts
    }

    /// The index of the partition with this number.
    #[doc(hidden)]
    pub fn index_of(&self, number: u32) -> Option<usize> {
        self.partitions.iter().position(|slot| slot.number == number)
    }

    /// Returns the scheme with the partition that holds `cut` split there; `None` if a partition begins there already.
    /// The new partition takes the smallest free number, so that numbers stay below the number of partitions.
    #[doc(hidden)]
    pub fn split(&self, cut: &KeyBuf) -> Option<FamilyScheme> {
        let index = self.partition_of(cut);
        if cut.is_empty() || self.lower(index) == Some(&**cut) {
            return None;
        }
        let mut taken: Vec<u32> = self.partitions.iter().map(|slot| slot.number).collect();
        taken.sort_unstable();
        let number = (0..)
            .zip(&taken)
            .find(|(free, taken)| free != *taken)
            .map_or(taken.len() as u32, |(free, _)| free);
        let (mut cuts, mut partitions) = (self.cuts.clone(), self.partitions.clone());
        cuts.insert(index, cut.clone());
        partitions.insert(index + 1, Slot { owner: partitions[index].owner, number });
        Some(FamilyScheme::of_slots(self.version + 1, cuts, partitions))
    }

    /// Returns the scheme with the partition that begins at `cut` joined to the one before it; `None` if none begins
    /// there.
    #[doc(hidden)]
    pub fn merge(&self, cut: &KeyBuf) -> Option<FamilyScheme> {
        let at = self.cuts.binary_search(cut).ok()?;
        let (mut cuts, mut partitions) = (self.cuts.clone(), self.partitions.clone());
        cuts.remove(at);
        partitions.remove(at + 1);
        Some(FamilyScheme::of_slots(self.version + 1, cuts, partitions))
    }

    /// Returns the scheme with partition `index` on another worker.
    #[doc(hidden)]
    pub fn moved(&self, index: usize, to: WorkerId) -> FamilyScheme {
        let mut partitions = self.partitions.clone();
        partitions[index].owner = to;
        FamilyScheme::of_slots(self.version + 1, self.cuts.clone(), partitions)
    }
}

/// Partitioning and placement of all families.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheme {
    /// The partitions of each family.
    pub(crate) families: Vec<Arc<FamilyScheme>>,
    /// Family of each table and index; [`NO_FAMILY`] of those that were dropped.
    #[doc(hidden)]
    pub family_of: Vec<usize>,
}

impl Scheme {
    /// Creates the naive scheme that a new database starts with: the declared cuts, with the partitions on `workers` in turn.
    /// A family without declared cuts is one partition; such families are assigned to the workers in turn. Families that are declared with
    /// the same cuts have the same owners, also where there are so few keys that nothing is cut.
    #[doc(hidden)]
    pub fn naive(catalog: &Catalog, workers: &[WorkerId]) -> Result<Scheme, SchemaError> {
        let families = catalog.families.iter().enumerate().map(|(at, (name, splits))| {
            let cuts = naive_cuts(name, splits.as_ref(), workers.len())?;
            let first = if splits.is_none() { at } else { 0 };
            let owners = (0..=cuts.len()).map(|i| workers[(first + i) % workers.len()]).collect();
            Ok(Arc::new(FamilyScheme::new(cuts, owners)))
        });
        Ok(Scheme {
            families: families.collect::<Result<_, _>>()?,
            family_of: catalog.tables.iter().map(|table| table.family).collect(),
        })
    }

    /// Returns the scheme of the same database with another catalog: existing families keep their partitions, new ones
    /// get those of the naive scheme on `workers`.
    #[doc(hidden)]
    pub fn changed(
        &self,
        before: &Catalog,
        catalog: &Catalog,
        workers: &[WorkerId],
    ) -> Result<Scheme, SchemaError> {
        let mut scheme = Scheme::naive(catalog, workers)?;
        for ((name, _), family) in catalog.families.iter().zip(&mut scheme.families) {
            if let Some(at) = before.families.iter().position(|(known, _)| known == name) {
                *family = Arc::clone(&self.families[at]);
            }
        }
        Ok(scheme)
    }

    /// The partitions of the family of `table`; a scheme of one unused partition if the table was dropped or never
    /// existed.
    #[must_use]
    pub fn family(&self, table: TableId) -> &FamilyScheme {
        self.family_at(table).unwrap_or_else(|| nowhere())
    }

    /// The partitions of the family of `table`, shared; `None` if the table was dropped or never existed.
    #[doc(hidden)]
    pub fn family_at(&self, table: TableId) -> Option<&Arc<FamilyScheme>> {
        self.families.get(*self.family_of.get(table.at())?)
    }

    /// Returns true if a table or index had this number and was dropped.
    #[doc(hidden)]
    pub fn is_dropped(&self, table: TableId) -> bool {
        self.family_of.get(table.at()) == Some(&NO_FAMILY)
    }

    /// The partitions of all families, with the tables and indexes of each.
    pub fn families(&self) -> impl Iterator<Item = (&FamilyScheme, Vec<TableId>)> + '_ {
        self.families.iter().enumerate().map(|(at, family)| {
            let of = |table: &usize| self.family_of[*table] == at;
            let tables = (0..self.family_of.len()).filter(of).map(|table| TableId(table as u16));
            (&**family, tables.collect())
        })
    }

    /// Returns the scheme with the partitions of one family replaced.
    #[doc(hidden)]
    pub fn with_family(&self, family: usize, scheme: Arc<FamilyScheme>) -> Scheme {
        let mut changed = self.clone();
        changed.families[family] = scheme;
        changed
    }

    /// Returns the instance that owns the key that a route names; `None` if that is this one, or the route names none.
    #[must_use]
    pub fn instance_of(&self, route: &Route) -> Option<InstanceId> {
        let Destination::Owner(table, key) = &route.to else { return None };
        let family = self.family_at(*table)?;
        InstanceId::of_owner(family.owner(family.partition_of(key)))
    }

    /// Returns the worker at which a transaction with this route has its home.
    #[doc(hidden)]
    pub fn home(&self, route: &Route, workers: usize) -> WorkerId {
        match &route.to {
            Destination::Owner(table, key) => match self.family_of.get(table.at()) {
                Some(family) => {
                    // The table was dropped, which any worker reports.
                    let Some(family) = self.families.get(*family) else { return WorkerId(0) };
                    let owner = family.owner(family.partition_of(key));
                    // The data of another instance is as far from all workers.
                    InstanceId::of_owner(owner).map_or(owner, |other| WorkerId(other.0 % workers as u16))
                }
                // The handle belongs to another database, which any worker reports.
                None => WorkerId(0),
            },
            Destination::Worker(worker) => WorkerId(worker.0 % workers as u16),
        }
    }
}

/// The scheme of tables that do not exist.
pub fn nowhere() -> &'static Arc<FamilyScheme> {
    static NOWHERE: LazyLock<Arc<FamilyScheme>> =
        LazyLock::new(|| Arc::new(FamilyScheme::new(Vec::new(), vec![WorkerId(0)])));
    &NOWHERE
}

/// Returns the cuts of a family in the naive scheme of so many workers.
fn naive_cuts(name: &str, splits: Option<&Splits>, workers: usize) -> Result<Vec<KeyBuf>, SchemaError> {
    match splits {
        None => Ok(Vec::new()),
        Some(Splits::At(cuts)) => Ok(cuts.clone()),
        Some(Splits::By(cuts)) => Ok((cuts.0)(workers)),
        Some(Splits::Even { first, last }) if first > last => Err(SchemaError(format!(
            "family '{name}' is to be split evenly from {first} to {last}; the first must not be larger than the last"
        ))),
        Some(Splits::Even { first, last }) => Ok(even_cuts(*first, *last, workers)),
    }
}

fn even_cuts(first: u64, last: u64, parts: usize) -> Vec<KeyBuf> {
    let size = u128::from(last - first) + 1;
    let mut cuts: Vec<u64> = (1..parts as u128)
        .map(|i| first + (size * i / parts as u128) as u64)
        .filter(|cut| *cut > first)
        .collect();
    cuts.dedup();
    cuts.iter().map(Key::encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scheme(cuts: &[&[u8]]) -> FamilyScheme {
        let owners = (0..=cuts.len()).map(|i| WorkerId(i as u16)).collect();
        FamilyScheme::new(cuts.iter().map(|cut| KeyBuf::from(*cut)).collect(), owners)
    }

    #[test]
    fn a_key_is_in_the_partition_whose_bounds_hold_it() {
        let cuts: [&[u8]; 4] = [b"b", b"long-prefix-1", b"long-prefix-2", b"z\0"];
        let scheme = scheme(&cuts);
        for key in [
            &b""[..],
            b"a",
            b"b",
            b"b\0",
            b"long-prefix-",
            b"long-prefix-1",
            b"long-prefix-11",
            b"long-prefix-2",
            b"z",
            b"z\0",
            b"zz",
        ] {
            let expected = cuts.iter().filter(|cut| **cut <= key).count();
            assert_eq!(scheme.partition_of(key), expected, "{key:?}");
            let (lower, upper) = (scheme.lower(expected), scheme.upper(expected));
            assert!(lower.is_none_or(|lower| lower <= key) && upper.is_none_or(|upper| key < upper));
        }
    }

    #[test]
    fn even_cuts_cover_the_range_and_survive_tiny_ones() {
        assert_eq!(even_cuts(1, 100, 2), vec![51u64.encode()]);
        assert_eq!(even_cuts(0, u64::MAX, 4).len(), 3);
        assert_eq!(even_cuts(5, 5, 8).len(), 0);
        assert_eq!(even_cuts(5, 6, 8), vec![6u64.encode()]);
    }
}
