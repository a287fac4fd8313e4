//! Division of tables by their rows: a table that was declared without split points gets one partition per worker as its rows come.
//!
//! Owns: when such a table is divided, and where. Never: changes a family that has other partitions than this gave it, or has none at all of this database.
//!
//! A family without declared split points begins as one partition, since nobody knows its keys. When it has [so many rows](super::Adaptation::rows_per_worker)
//! for each worker that may own data, it is cut at the keys between equally many rows of its largest table, and the parts go to the workers in the order of their keys. While
//! it grows it is divided anew each time it has twice as many rows as at the last division, if one worker has clearly more than its share: rows that come in the order of their
//! keys all come to the last one. So each row is moved a constant number of times at most.
//!
//! What loads the workers is the controller's to see, and a family that the controller or somebody else has changed is not divided by rows any more: its partitions
//! are where they cost least.
//!
//! Invariants: the definitions do not change meanwhile; statistics begin anew after a division.

use std::collections::BTreeMap;
use std::sync::Arc;

use atrapos_adapt::{Decision, Observation, Rules};
use atrapos_partition::abort::Abort;
use atrapos_partition::partition::PartitionId;
use atrapos_partition::routing::{FamilyScheme, InstanceId, Scheme};
use atrapos_partition::schema::{Catalog, TableId};
use atrapos_runtime::WorkerId;
use atrapos_storage::KeyBuf;

use super::Adaptive;
use super::expected::changes_of;
use super::settings::AdaptationEvent;

/// Families that were divided by rows: the version of their scheme since then, and the rows that they had, by the first of their tables.
#[derive(Debug, Default)]
pub(super) struct DividedByRows(BTreeMap<TableId, (u64, u64)>);

/// A partition of a table, with the rows before it and in it.
struct Counted {
    place: PartitionId,
    owner: WorkerId,
    before: u64,
    rows: u64,
}

/// A family to divide.
struct Due {
    scheme: Arc<FamilyScheme>,
    /// The first of its tables.
    first: TableId,
    /// The partitions of its largest table, in order of the keys.
    parts: Vec<Counted>,
    rows: u64,
}

impl DividedByRows {
    /// Returns true if a family that may be divided is to be divided, now that it has so many rows, of which one worker has `most`.
    fn is_due(&self, rules: &Rules, first: TableId, (rows, most): (u64, u64), workers: usize) -> bool {
        let uneven = most as f64 * workers as f64 > rules.divided_uneven * rows as f64;
        let has_grown = |rows_then: u64| rows as f64 >= rules.divided_grown * rows_then as f64;
        self.0.get(&first).is_none_or(|(_, rows_then)| has_grown(*rows_then) && uneven)
    }

    /// Returns true if the family may be divided, however many rows it has.
    fn may_divide(&self, first: TableId, family: &FamilyScheme) -> bool {
        let own = (0..family.partitions()).all(|at| InstanceId::of_owner(family.owner(at)).is_none());
        own && match self.0.get(&first) {
            Some((version, _)) => *version == family.version(),
            None => family.partitions() == 1,
        }
    }
}

impl Adaptive {
    /// Divides the tables that were declared without split points and have enough rows by now. Returns whether it has, and then what is observed begins anew. It waits for the
    /// next time while a statement, a load or a change of the scheme is under way.
    pub(super) fn divide_by_rows(
        &self,
        divided: &mut DividedByRows,
        seen: &Observation,
    ) -> Result<bool, Abort> {
        let wanted = self.settings.map_or(0, |settings| settings.rows_per_worker);
        let workers = self.owning_workers();
        if wanted == 0 || workers.len() < 2 {
            return Ok(false);
        }
        let (Some(_definitions), Ok(_scheme)) = (self.catalogs.try_keep(), self.scheme.try_lock()) else {
            return Ok(false);
        };
        let (scheme, catalog) = (self.published.scheme(), self.catalogs.working());
        let dues = self.due(divided, &scheme, &catalog, wanted * workers.len() as u64, workers.len())?;
        for due in &dues {
            let cuts = self.cuts(due, workers.len())?;
            let partitions = cuts.len() + 1;
            let firsts = std::iter::once(KeyBuf::new()).chain(cuts);
            let planned: Vec<(KeyBuf, WorkerId)> = firsts.zip(workers.iter().copied()).collect();
            let done = self.carry_out(changes_of(&due.scheme, due.first, &planned));
            let version = self.published.scheme().family(due.first).version();
            divided.0.insert(due.first, (version, due.rows));
            let name = catalog.tables[due.parts[0].place.table.at()].name;
            let decision = Decision::by_rows(seen.at_ns, seen.throughput_tps, name, due.rows, partitions);
            let (report, failure) = match done {
                Ok(report) => (Some(report), None),
                Err(abort) => (None, Some(abort.to_string())),
            };
            self.lock().remember(AdaptationEvent { decision, report, failure });
        }
        if dues.is_empty() {
            return Ok(false);
        }
        self.observe()?;
        self.observe_from(&self.glance()?);
        Ok(true)
    }

    /// Returns the families that have `enough` rows and are to be divided among so many workers.
    fn due(
        &self,
        divided: &DividedByRows,
        scheme: &Scheme,
        catalog: &Catalog,
        enough: u64,
        workers: usize,
    ) -> Result<Vec<Due>, Abort> {
        let families = scheme.families().zip(&catalog.families);
        let candidates: Vec<(&FamilyScheme, Vec<TableId>)> = families
            .filter(|(_, (_, splits))| splits.is_none())
            .filter_map(|((family, tables), _)| {
                tables
                    .first()
                    .is_some_and(|first| divided.may_divide(*first, family))
                    .then_some((family, tables))
            })
            .collect();
        if candidates.is_empty() {
            return Ok(Vec::new());
        }
        let rules = self.rules();
        let places: Arc<[(PartitionId, WorkerId)]> = candidates
            .iter()
            .flat_map(|(family, tables)| tables.iter().flat_map(move |table| places_of(family, *table)))
            .collect();
        let mut counts = self.rows_of(&places)?.into_iter();
        let due = candidates.into_iter().filter_map(|(family, tables)| {
            let counted = tables.iter().map(|table| {
                let mut before = 0;
                // They are counted in this order.
                let parts = places_of(family, *table).zip(&mut counts).map(|((place, owner), rows)| {
                    let part = Counted { place, owner, before, rows };
                    before += part.rows;
                    part
                });
                let parts: Vec<Counted> = parts.collect();
                (before, parts)
            });
            let (rows, parts) = counted.max_by_key(|(rows, _)| *rows)?;
            let most = parts.iter().map(|part| part.rows).max()?;
            let is_due = rows >= enough && divided.is_due(&rules, tables[0], (rows, most), workers);
            is_due.then(|| Due { scheme: Arc::new(family.clone()), first: tables[0], parts, rows })
        });
        Ok(due.collect())
    }

    /// Returns the keys that divide a family into so many parts of equally many rows.
    fn cuts(&self, due: &Due, parts: usize) -> Result<Vec<KeyBuf>, Abort> {
        let wanted = (1..parts as u64).filter_map(|part| {
            let rank = due.rows * part / parts as u64;
            let inside = due.parts.iter().find(|counted| rank < counted.before + counted.rows)?;
            Some((inside.place, inside.owner, rank - inside.before))
        });
        let wanted: Arc<[(PartitionId, WorkerId, u64)]> = wanted.collect();
        let found = self.ask_all(move |worker| {
            let tables = worker.shard().tables.borrow();
            let own = wanted.iter().filter(|(_, owner, _)| *owner == worker.id());
            let keys = own.filter_map(|(place, _, rank)| tables.owned_at(*place)?.tree().key_at(*rank));
            keys.collect::<Vec<KeyBuf>>()
        })?;
        let mut cuts: Vec<KeyBuf> = found.into_iter().flatten().filter(|key| !key.is_empty()).collect();
        cuts.sort_unstable();
        cuts.dedup();
        Ok(cuts)
    }

    /// Returns the number of rows of each of these partitions.
    fn rows_of(&self, places: &Arc<[(PartitionId, WorkerId)]>) -> Result<Vec<u64>, Abort> {
        let asked = Arc::clone(places);
        let counted = self.ask_all(move |worker| {
            let tables = worker.shard().tables.borrow();
            let own = |(place, owner): &(PartitionId, WorkerId)| {
                let partition = tables.owned_at(*place).filter(|_| *owner == worker.id());
                partition.map_or(0, |partition| partition.tree().len())
            };
            asked.iter().map(own).collect::<Vec<u64>>()
        })?;
        let sum = |at: usize| counted.iter().map(|rows| rows[at]).sum();
        Ok((0..places.len()).map(sum).collect())
    }
}

/// Returns the partitions of a table, in order of the keys, with their owners.
fn places_of(family: &FamilyScheme, table: TableId) -> impl Iterator<Item = (PartitionId, WorkerId)> {
    (0..family.partitions())
        .map(move |at| (PartitionId { table, partition: family.number(at) }, family.owner(at)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use atrapos_partition::routing::nowhere;

    const TABLE: TableId = TableId(4);

    #[test]
    fn what_is_declared_is_divided_once_it_has_rows_and_again_when_they_have_doubled_on_one_side() {
        let mut divided = DividedByRows::default();
        let whole = nowhere();
        assert!(divided.may_divide(TABLE, whole) && divided.is_due(&Rules::default(), TABLE, (5, 5), 2));
        let halves = whole.split(&KeyBuf::from(&b"m"[..])).expect("it has no cut there");
        assert!(!divided.may_divide(TABLE, &halves), "somebody has cut it");
        divided.0.insert(TABLE, (halves.version(), 1000));
        assert!(divided.may_divide(TABLE, &halves));
        let due = |rows, most| divided.is_due(&Rules::default(), TABLE, (rows, most), 2);
        assert!(!due(1999, 1499), "it has not doubled");
        assert!(due(2000, 1501));
        assert!(!due(2000, 1500), "both have about as many");
        let other = halves.moved(1, WorkerId(1));
        assert!(!divided.may_divide(TABLE, &other), "somebody has changed it");
        let elsewhere = whole.moved(0, InstanceId(1).as_owner());
        assert!(!DividedByRows::default().may_divide(TABLE, &elsewhere), "another instance has it");
    }
}
