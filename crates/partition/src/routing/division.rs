//! The division of the keys among the instances of a deployment.
//!
//! Owns: which instance has which keys ([`Division`]), and the schemes that follow for each of them. Never: changes; a scheme of an
//! instance changes inside the instance alone.
//!
//! Invariant: by the same catalog, numbers of workers and ranges, all instances and clients come to the same partitions with the
//! same instances as their owners.

use std::collections::BTreeMap;
use std::sync::Arc;

use atrapos_runtime::WorkerId;
use atrapos_storage::KeyBuf;

use super::{FamilyScheme, Scheme, naive_cuts};
use crate::schema::{Catalog, SchemaError, Splits};

/// The number of an instance of a deployment, from zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(pub u16);

impl std::fmt::Display for InstanceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "instance {}", self.0)
    }
}

/// The bit that tells instances from workers among the owners of partitions.
const INSTANCE: u16 = 1 << 15;

impl InstanceId {
    /// The number of instances that a deployment may have.
    pub const MAX: usize = INSTANCE as usize;

    /// Returns the owner of its partitions in the schemes of other instances.
    #[must_use]
    pub fn as_owner(self) -> WorkerId {
        WorkerId(INSTANCE | self.0)
    }

    /// Returns the instance that owns a partition; `None` if a worker of this database does.
    #[inline]
    #[must_use]
    pub fn of_owner(owner: WorkerId) -> Option<InstanceId> {
        (owner.0 & INSTANCE != 0).then_some(InstanceId(owner.0 & !INSTANCE))
    }
}

/// The division of the keys among the instances of a deployment, as one of them sees it: for families with chosen ranges these, for
/// all others the partitions of the naive scheme of one database with as many workers as all instances have together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Division {
    /// The number of this instance.
    pub instance: InstanceId,
    /// The number of workers of each instance.
    pub workers: Vec<usize>,
    /// The ranges of the families for which they are chosen, by the name of the family.
    pub ranges: BTreeMap<String, KeyRanges>,
}

/// The ranges of the keys of one family, each with the instance that owns it. They cover all keys, and none twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRanges {
    cuts: Vec<KeyBuf>,
    owners: Vec<InstanceId>,
}

impl KeyRanges {
    /// Creates ranges that begin at the smallest key and at each of the cuts, with their owners; `None` unless the cuts ascend
    /// strictly and there is one more owner than cuts.
    #[must_use]
    pub fn new(cuts: Vec<KeyBuf>, owners: Vec<InstanceId>) -> Option<KeyRanges> {
        let ascend = cuts.is_sorted_by(|a, b| a < b) && cuts.first().is_none_or(|cut| !cut.is_empty());
        (ascend && owners.len() == cuts.len() + 1).then_some(KeyRanges { cuts, owners })
    }

    /// Returns the first key of each range, the first key after it, and its owner.
    fn iter(&self) -> impl Iterator<Item = (Option<&KeyBuf>, Option<&KeyBuf>, InstanceId)> {
        self.owners.iter().enumerate().map(|(at, owner)| {
            let lower = at.checked_sub(1).map(|cut| &self.cuts[cut]);
            (lower, self.cuts.get(at), *owner)
        })
    }
}

impl Division {
    /// Returns the division by the numbers of workers alone.
    #[must_use]
    pub fn by_workers(instance: InstanceId, workers: Vec<usize>) -> Division {
        Division { instance, workers, ranges: BTreeMap::new() }
    }

    /// Returns the number of links between this instance and another one.
    #[must_use]
    pub fn links_with(&self, other: InstanceId) -> usize {
        let workers = |instance: InstanceId| self.workers[usize::from(instance.0)];
        workers(self.instance).max(workers(other))
    }

    /// Returns the division among all instances as bytes that are equal for equal divisions.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let put = |out: &mut Vec<u8>, bytes: &[u8]| {
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(bytes);
        };
        let workers: Vec<u8> =
            self.workers.iter().flat_map(|workers| (*workers as u16).to_le_bytes()).collect();
        put(&mut out, &workers);
        for (family, ranges) in &self.ranges {
            put(&mut out, family.as_bytes());
            let owners: Vec<u8> = ranges.owners.iter().flat_map(|owner| owner.0.to_le_bytes()).collect();
            put(&mut out, &owners);
            ranges.cuts.iter().for_each(|cut| put(&mut out, cut));
        }
        out
    }

    /// Returns the number of workers of each instance in an encoded division; `None` if it is none.
    #[must_use]
    pub fn decode_workers(encoded: &[u8]) -> Option<Vec<usize>> {
        let (len, rest) = encoded.split_first_chunk()?;
        let workers = rest.get(..u32::from_le_bytes(*len) as usize)?;
        Some(workers.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]).into()).collect())
    }

    /// Returns the owner of a partition in this instance's schemes: a worker of an instance.
    fn owner(&self, (instance, worker): (InstanceId, usize)) -> WorkerId {
        if instance == self.instance { WorkerId(worker as u16) } else { instance.as_owner() }
    }

    /// Returns the instance of one among all workers, and the number that it has there.
    fn place(&self, worker: usize) -> (InstanceId, usize) {
        let mut first = 0;
        for (instance, workers) in self.workers.iter().enumerate() {
            if worker < first + workers {
                return (InstanceId(instance as u16), worker - first);
            }
            first += workers;
        }
        unreachable!("a worker is one of an instance")
    }

    /// Refuses ranges of families that do not exist, and of instances without workers.
    fn check(&self, catalog: &Catalog) -> Result<(), SchemaError> {
        for (family, ranges) in &self.ranges {
            if catalog.families.iter().all(|(name, _)| name != family) {
                return Err(SchemaError(format!(
                    "ranges of keys are given for family '{family}', to which no table or index belongs"
                )));
            }
            let workers = |owner: &InstanceId| self.workers.get(usize::from(owner.0)).copied().unwrap_or(0);
            if let Some(nobody) = ranges.owners.iter().find(|owner| workers(owner) == 0) {
                return Err(SchemaError(format!(
                    "keys of family '{family}' are given to {nobody}, which has no workers; name one of the {} instances",
                    self.workers.len()
                )));
            }
        }
        Ok(())
    }
}

impl FamilyScheme {
    /// Returns the partitions with their owners as an instance sees them.
    fn of_instance(&self, division: &Division) -> FamilyScheme {
        let owners = (0..self.partitions()).map(|at| division.owner(division.place(self.owner(at).index())));
        FamilyScheme::new(self.cuts.clone(), owners.collect())
    }

    /// Returns the partitions of a family whose ranges are chosen: each range is cut for the workers of its instance.
    fn of_ranges(
        (at, name, splits): (usize, &str, Option<&Splits>),
        ranges: &KeyRanges,
        division: &Division,
    ) -> Result<FamilyScheme, SchemaError> {
        let (mut cuts, mut owners) = (Vec::new(), Vec::new());
        for (lower, upper, instance) in ranges.iter() {
            let workers = division.workers[usize::from(instance.0)];
            let inside = cuts_within(name, splits, (lower, upper), workers)?;
            // Ranges of one partition are dealt out, as the naive scheme does with families.
            let first = if inside.is_empty() { at } else { 0 };
            let places = (0..=inside.len()).map(|part| (instance, (first + part) % workers));
            owners.extend(places.map(|place| division.owner(place)));
            cuts.extend(lower.cloned().into_iter().chain(inside));
        }
        Ok(FamilyScheme::new(cuts, owners))
    }
}

impl Scheme {
    /// Returns the scheme that an instance of a deployment starts with.
    #[doc(hidden)]
    pub fn of_instance(catalog: &Catalog, division: &Division) -> Result<Scheme, SchemaError> {
        division.check(catalog)?;
        let workers: Vec<WorkerId> =
            (0..division.workers.iter().sum::<usize>() as u16).map(WorkerId).collect();
        let mut scheme = Scheme::naive(catalog, &workers)?;
        for (at, (family, (name, splits))) in scheme.families.iter_mut().zip(&catalog.families).enumerate() {
            *family = Arc::new(match division.ranges.get(*name) {
                None => family.of_instance(division),
                Some(ranges) => FamilyScheme::of_ranges((at, name, splits.as_ref()), ranges, division)?,
            });
        }
        Ok(scheme)
    }
}

/// Cuts of a finer naive scheme that a range has for each of its parts, so that these differ by some hundredths.
const FINE: usize = 64;

/// Workers of the finest naive scheme that is asked for.
const FINEST: usize = 1 << 16;

/// Returns the cuts of a range for so many workers: those of a naive scheme that is fine enough to choose them evenly, or those that
/// were declared.
fn cuts_within(
    name: &str,
    splits: Option<&Splits>,
    (lower, upper): (Option<&KeyBuf>, Option<&KeyBuf>),
    workers: usize,
) -> Result<Vec<KeyBuf>, SchemaError> {
    let inside =
        |cut: &KeyBuf| lower.is_none_or(|lower| lower < cut) && upper.is_none_or(|upper| cut < upper);
    let of = |workers: usize| -> Result<(usize, Vec<KeyBuf>), SchemaError> {
        let cuts = naive_cuts(name, splits, workers)?;
        Ok((cuts.len(), cuts.into_iter().filter(inside).collect()))
    };
    if let None | Some(Splits::At(_)) = splits {
        return Ok(of(workers)?.1);
    }
    if workers == 1 {
        return Ok(Vec::new());
    }
    let mut fineness = workers;
    let (mut all, mut fine) = of(fineness)?;
    while fine.len() < FINE * workers && fineness < FINEST {
        fineness *= 2;
        let (more, finer) = of(fineness)?;
        // There are no more keys to cut at.
        if more == all {
            break;
        }
        (all, fine) = (more, finer);
    }
    // The cuts are borders of equally many cells; cell 0 has none before it.
    let border = |part: usize| ((fine.len() + 1) * part / workers).checked_sub(1);
    let mut borders: Vec<usize> = (1..workers).filter_map(border).collect();
    borders.dedup();
    Ok(borders.into_iter().map(|at| fine[at].clone()).collect())
}

#[cfg(test)]
mod tests;
