//! Translation between keys and the numbered slices that plans are made of.
//!
//! Owns: the slices of one scheme, and the trace of statistics by slices. Never: outlives the scheme that it was made of.

use atrapos_adapt::{
    PartitionTrace, Step, SubPartition, SyncPointTrace, TRACE_FORMAT, TableTrace, WorkerIndex, WorkloadTrace,
};
use atrapos_partition::monitor::Meetings;
use atrapos_partition::routing::Scheme;
use atrapos_partition::schema::{Catalog, TableId};
use atrapos_runtime::WorkerId;
use atrapos_storage::KeyBuf;

use super::observation::Observed;
use crate::repartition::SchemeChange;

/// The sub-partitions of all families as the numbered slices that plans are made of.
pub(super) struct Slices {
    families: Vec<FamilySlices>,
}

/// The sub-partitions of one family, in key order.
struct FamilySlices {
    /// A table of the family.
    table: TableId,
    /// First key of every slice; the first one's is empty.
    starts: Vec<KeyBuf>,
    /// The partitions of the family, in key order.
    partitions: Vec<PartitionSlices>,
}

/// The sub-partitions of one partition.
struct PartitionSlices {
    owner: WorkerId,
    number: u32,
    /// Its first slice.
    first: usize,
}

impl Slices {
    pub(super) fn of(scheme: &Scheme, catalog: &Catalog, observed: &Observed) -> Slices {
        let families = scheme.families().enumerate().map(|(family, (scheme, tables))| {
            let (mut starts, mut partitions) = (Vec::new(), Vec::new());
            for index in 0..scheme.partitions() {
                let (owner, number) = (scheme.owner(index), scheme.number(index));
                partitions.push(PartitionSlices { owner, number, first: starts.len() });
                starts.push(scheme.lower(index).map_or_else(KeyBuf::new, KeyBuf::from));
                if let Some(collected) = observed.find(family, number) {
                    starts.extend(collected.bounds.iter().cloned());
                }
            }
            FamilySlices { table: tables[0], starts, partitions }
        });
        debug_assert_eq!(scheme.families().count(), catalog.families.len(), "every family has partitions");
        Slices { families: families.collect() }
    }

    /// Returns the sub-partition that holds a key.
    fn locate(&self, family: usize, key: &[u8]) -> SubPartition {
        let slices = &self.families[family];
        let slice = slices.starts.partition_point(|start| **start <= *key).saturating_sub(1);
        let partition = slices.partitions.partition_point(|partition| partition.first <= slice) - 1;
        let first = slices.partitions[partition].first;
        SubPartition {
            table: family as u32,
            partition: partition as u32,
            sub_partition: (slice - first) as u32,
        }
    }

    /// Returns the statistics as a trace, the input of the planner.
    pub(super) fn trace(&self, observed: &Observed, catalog: &Catalog) -> WorkloadTrace {
        let mut sync_points = Vec::new();
        let tables = self.families.iter().enumerate().map(|(family, slices)| {
            let ends = slices.partitions.iter().skip(1).map(|partition| partition.first);
            let ends = ends.chain(std::iter::once(slices.starts.len()));
            let partitions = slices.partitions.iter().zip(ends).enumerate().map(|(at, (partition, end))| {
                let PartitionSlices { owner, number, first } = partition;
                let collected = observed.find(family, *number);
                let costs =
                    collected.map_or_else(|| vec![0; end - first], |collected| collected.costs.clone());
                for (part, meetings) in
                    collected.iter().flat_map(|collected| collected.meetings.iter().enumerate())
                {
                    let here = SubPartition {
                        table: family as u32,
                        partition: at as u32,
                        sub_partition: part as u32,
                    };
                    self.add_meetings(here, meetings, catalog, &mut sync_points);
                }
                PartitionTrace { worker: WorkerIndex(u32::from(owner.0)), cost_cycles: costs }
            });
            TableTrace { name: catalog.families[family].0.to_owned(), partitions: partitions.collect() }
        });
        let tables = tables.collect();
        WorkloadTrace {
            format: TRACE_FORMAT.to_owned(),
            seconds: observed.elapsed.as_secs_f64().max(1e-9),
            workers: observed.workers.len(),
            machine: None,
            samples: Some(observed.workers.iter().map(|worker| worker.samples).sum()),
            tables,
            sync_points,
            classes: Vec::new(),
        }
    }

    /// Returns a trace in which every row has the same load.
    pub(super) fn trace_of_rows(&self, observed: &Observed, catalog: &Catalog) -> WorkloadTrace {
        let mut trace = self.trace(observed, catalog);
        trace.samples = None;
        trace.sync_points.clear();
        for (family, (table, slices)) in trace.tables.iter_mut().zip(&self.families).enumerate() {
            for (partition, slices) in table.partitions.iter_mut().zip(&slices.partitions) {
                let rows = observed.find(family, slices.number).map_or(0, |collected| collected.rows);
                let parts = partition.cost_cycles.len() as u64;
                partition.cost_cycles.fill(rows.div_ceil(parts));
            }
        }
        trace
    }

    /// Adds the synchronization points of a sub-partition. Only a sample of them is remembered with partners; the count is
    /// distributed evenly over the sample.
    fn add_meetings(
        &self,
        here: SubPartition,
        meetings: &Meetings,
        catalog: &Catalog,
        sync_points: &mut Vec<SyncPointTrace>,
    ) {
        let known = meetings.remembered.len() as u64;
        for (at, meeting) in (0..).zip(&meetings.remembered) {
            let count = meetings.count / known + u64::from(at < meetings.count % known);
            let family_of = |table: TableId| catalog.tables[table.at()].family;
            let mut partners = vec![here];
            for (table, key) in &meeting.partners {
                let partner = self.locate(family_of(*table), key);
                if !partners.contains(&partner) {
                    partners.push(partner);
                }
            }
            if partners.len() > 1 && count > 0 {
                sync_points.push(SyncPointTrace { partners, bytes: meeting.bytes * count, count });
            }
        }
    }

    /// Returns steps as changes of the scheme.
    pub(super) fn changes(&self, steps: &[Step]) -> Vec<SchemeChange> {
        let at = |table: atrapos_adapt::TableIndex, slice: atrapos_adapt::SliceIndex| {
            let slices = &self.families[table.index()];
            (slices.table, slices.starts[slice.0 as usize].clone())
        };
        let change = |step: &Step| match *step {
            Step::Split { table, at: slice } => {
                let (table, at) = at(table, slice);
                SchemeChange::Split { table, at }
            }
            Step::Merge { table, at: slice } => {
                let (table, at) = at(table, slice);
                SchemeChange::Merge { table, at }
            }
            Step::Move { table, from, target, .. } => {
                let (table, at) = at(table, from);
                SchemeChange::Move { table, at, to: WorkerId(target.0 as u16) }
            }
        };
        steps.iter().map(change).collect()
    }
}
