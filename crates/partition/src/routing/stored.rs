//! The scheme as it is stored from one opening of a database to the next (`ATraPos §V-D` ends with the process; this does not).
//!
//! Owns: what is stored of a scheme, and how much of it fits the database that is opened ([`Scheme::resumed`]). Never: reads a file.
//!
//! A stored scheme names owners by their rank among the workers that could own data, so that workers that had retired leave no hole. With as many workers
//! as then, every partition has the owner it had. With others, the workers of then divide those of now evenly: of `w` workers then and `n` now, the partitions
//! of rank `r` go to the workers from `r n / w` to `(r + 1) n / w`, in order of their keys. So what one worker had stays together where there are fewer,
//! and neighbours stay neighbours. Where there are more workers than the partitions of a rank can be given to, the cuts of the naive scheme are added to them.
//!
//! Invariants: the result has the invariants of every [`Scheme`]; families that are not stored, or were stored of other tables, have the naive partitions; what
//! belongs to other instances of a deployment is what the division says, or else the family keeps its naive partitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use atrapos_runtime::WorkerId;
use atrapos_storage::KeyBuf;

use super::{FamilyScheme, InstanceId, Scheme};
use crate::schema::{Catalog, TableId};

/// The part of a [`Scheme`] that is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredScheme {
    /// The number of workers that could own data.
    pub workers: usize,
    /// The families.
    pub families: Vec<StoredFamily>,
}

/// The partitions of a family, as they are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFamily {
    /// The name.
    pub name: String,
    /// The numbers of its tables and indexes. No other ones get these numbers later.
    pub tables: Vec<TableId>,
    /// The partitions in order of their keys.
    pub partitions: Vec<StoredPartition>,
}

/// A partition, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPartition {
    /// Its first key; that of the first partition is empty.
    pub first: KeyBuf,
    /// The rank of its owner among the workers that could own data, or the [instance](InstanceId::as_owner) that it belongs to.
    pub owner: WorkerId,
}

impl StoredScheme {
    /// Returns what is stored of the scheme of a database in which these workers may own data.
    #[must_use]
    pub fn of(scheme: &Scheme, catalog: &Catalog, owning: &[WorkerId]) -> StoredScheme {
        let rank = |owner: WorkerId| match InstanceId::of_owner(owner) {
            Some(_) => owner,
            // A change that failed may have left data at a worker that should have none: the next one has its place.
            None => WorkerId(owning.partition_point(|worker| *worker < owner).min(owning.len() - 1) as u16),
        };
        let stored = |((family, tables), (name, _)): ((&FamilyScheme, Vec<TableId>), &(&'static str, _))| {
            let partitions = (0..family.partitions()).map(|at| StoredPartition {
                first: KeyBuf::from(family.lower(at).unwrap_or_default()),
                owner: rank(family.owner(at)),
            });
            StoredFamily { name: (*name).to_owned(), tables, partitions: partitions.collect() }
        };
        let families = scheme.families().zip(&catalog.families).map(stored).collect();
        StoredScheme { workers: owning.len(), families }
    }

    /// Returns true if it could have been stored: first keys ascend strictly from the empty one, and owners have ranks.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let has_rank = |part: &StoredPartition| {
            InstanceId::of_owner(part.owner).is_some() || part.owner.index() < self.workers
        };
        self.families.iter().all(|family| {
            let parts = &family.partitions;
            parts.first().is_some_and(|part| part.first.is_empty())
                && parts.is_sorted_by(|one, next| one.first < next.first)
                && parts.iter().all(has_rank)
        })
    }
}

impl Scheme {
    /// Returns this naive scheme of `workers` workers with the partitions of a stored scheme, as far as they fit. See the module's introduction.
    #[doc(hidden)]
    #[must_use]
    pub fn resumed(&self, catalog: &Catalog, stored: &StoredScheme, workers: usize) -> Scheme {
        let mut scheme = self.clone();
        let naive = self.families().zip(&catalog.families);
        for (family, ((today, tables), (name, _))) in scheme.families.iter_mut().zip(naive) {
            let known = stored
                .families
                .iter()
                .find(|known| known.name == *name && known.tables.iter().any(|table| tables.contains(table)));
            let resumed = known.and_then(|known| today.resumed(known, stored.workers, workers));
            if let Some(resumed) = resumed {
                *family = Arc::new(resumed);
            }
        }
        scheme
    }
}

impl FamilyScheme {
    /// Returns the stored partitions of a family that was stored with `then` workers and has these naive ones with `now`; `None` if other instances have other keys.
    fn resumed(&self, stored: &StoredFamily, then: usize, now: usize) -> Option<FamilyScheme> {
        let mut parts = stored.partitions.clone();
        if now > then {
            parts = self.finer(parts, now.div_ceil(then));
        }
        let owners = owners_now(&parts, then, now);
        let cuts = parts.into_iter().skip(1).map(|part| part.first).collect();
        let resumed = FamilyScheme::new(cuts, owners);
        let same = |cut: &KeyBuf| self.instance_at(cut) == resumed.instance_at(cut);
        let all = || self.cuts.iter().chain(&resumed.cuts);
        (self.instance_at(&[]) == resumed.instance_at(&[]) && all().all(same)).then_some(resumed)
    }

    /// Returns the instance of a deployment that a key belongs to; `None` for this one.
    fn instance_at(&self, key: &[u8]) -> Option<InstanceId> {
        InstanceId::of_owner(self.owner(self.partition_of(key)))
    }

    /// Adds the cuts of this naive scheme to the partitions of owners that have fewer than `wanted`.
    fn finer(&self, parts: Vec<StoredPartition>, wanted: usize) -> Vec<StoredPartition> {
        let counts = counts_of(&parts);
        let mut finer: Vec<StoredPartition> = Vec::with_capacity(parts.len() + self.cuts.len());
        let mut nexts = parts.iter().skip(1).map(|part| &part.first);
        for part in &parts {
            let (first, next) = (&part.first, nexts.next());
            finer.push(part.clone());
            if counts[&part.owner] < wanted {
                let inside =
                    self.cuts.iter().filter(|cut| *cut > first && next.is_none_or(|next| *cut < next));
                finer.extend(inside.map(|cut| StoredPartition { first: cut.clone(), owner: part.owner }));
            }
        }
        finer
    }
}

/// Returns the number of partitions of each owner.
fn counts_of(parts: &[StoredPartition]) -> BTreeMap<WorkerId, usize> {
    let mut counts = BTreeMap::new();
    parts.iter().for_each(|part| *counts.entry(part.owner).or_default() += 1);
    counts
}

/// Returns the owners among `now` workers of partitions whose owners are ranks among `then`: the partitions of a rank follow each other, all of the
/// same weight, and the middle of each says whose it is.
fn owners_now(parts: &[StoredPartition], then: usize, now: usize) -> Vec<WorkerId> {
    let counts = counts_of(parts);
    let mut seen: BTreeMap<WorkerId, usize> = BTreeMap::new();
    let owner = |part: &StoredPartition| {
        if then == now || InstanceId::of_owner(part.owner).is_some() {
            return part.owner;
        }
        let before = seen.entry(part.owner).or_default();
        let count = counts[&part.owner];
        let middle = part.owner.index() * 2 * count + 2 * *before + 1;
        *before += 1;
        WorkerId((middle * now / (2 * count * then)) as u16)
    };
    parts.iter().map(owner).collect()
}

#[cfg(test)]
mod tests;
