//! Translation between keys and the numbered slices that plans are made of.
//!
//! Neighbouring partitions of a family that workers of this database own are a *run*, and a table of the trace. Without a deployment
//! each family is one run. Partitions of other instances are in none, so no plan cuts, joins or moves them, or joins two runs.
//!
//! Owns: the slices of one scheme, and the trace of statistics by slices. Never: outlives the scheme that it was made of.

use atrapos_adapt::{
    ClassFlow, Extents, PartitionTrace, SliceIndex, Step, SubPartition, SyncPointTrace, TRACE_FORMAT,
    TableIndex, TableTrace, TraceKey, WorkerIndex, WorkloadTrace,
};
use atrapos_partition::monitor::Meetings;
use atrapos_partition::routing::{InstanceId, Scheme};
use atrapos_partition::schema::{Catalog, TableId};
use atrapos_runtime::WorkerId;
use atrapos_storage::KeyBuf;

use super::observation::Observed;
use crate::repartition::SchemeChange;

/// The sub-partitions of all runs as the numbered slices that plans are made of.
pub(super) struct Slices {
    runs: Vec<Run>,
}

/// The sub-partitions of one run, in key order.
struct Run {
    family: usize,
    /// A table of the family.
    table: TableId,
    /// First key of every slice; empty for the first one of a family.
    starts: Vec<KeyBuf>,
    /// First key after the run; none if it has the last key of all.
    upper: Option<KeyBuf>,
    /// The partitions of the run, in key order.
    partitions: Vec<PartitionSlices>,
}

/// The sub-partitions of one partition.
struct PartitionSlices {
    owner: WorkerId,
    number: u32,
    /// Its first slice.
    first: usize,
}

/// Returns a class as a database sees it: how often it ran, but not what its transactions do. Transactions of no class are none.
fn class_seen((name, count): (&'static str, u64)) -> Option<ClassFlow> {
    let (actions, dependencies, sync_points) = (Vec::new(), Vec::new(), Vec::new());
    (!name.is_empty()).then(|| ClassFlow { name: name.to_owned(), count, actions, dependencies, sync_points })
}

impl Slices {
    pub(super) fn of(scheme: &Scheme, catalog: &Catalog, observed: &Observed) -> Slices {
        debug_assert_eq!(scheme.families().count(), catalog.families.len(), "every family has partitions");
        let mut runs: Vec<Run> = Vec::new();
        for (family, (scheme, tables)) in scheme.families().enumerate() {
            let own = |index: usize| InstanceId::of_owner(scheme.owner(index)).is_none();
            for index in (0..scheme.partitions()).filter(|index| own(*index)) {
                if index == 0 || !own(index - 1) {
                    let (starts, partitions) = (Vec::new(), Vec::new());
                    runs.push(Run { family, table: tables[0], starts, upper: None, partitions });
                }
                let run = runs.last_mut().expect("a run has just begun, or goes on");
                let (owner, number) = (scheme.owner(index), scheme.number(index));
                run.partitions.push(PartitionSlices { owner, number, first: run.starts.len() });
                run.starts.push(scheme.lower(index).map_or_else(KeyBuf::new, KeyBuf::from));
                if let Some(collected) = observed.find(family, number) {
                    run.starts.extend(collected.bounds.iter().cloned());
                }
                run.upper = scheme.upper(index).map(KeyBuf::from);
            }
        }
        Slices { runs }
    }

    /// Returns the sub-partition that holds a key; `None` if another instance has it.
    fn locate(&self, family: usize, key: &[u8]) -> Option<SubPartition> {
        let holds = |run: &Run| {
            let below = run.upper.as_deref().is_none_or(|upper| key < upper);
            run.family == family && *run.starts[0] <= *key && below
        };
        let table = self.runs.iter().position(holds)?;
        let run = &self.runs[table];
        let slice = run.starts.partition_point(|start| **start <= *key).saturating_sub(1);
        let partition = run.partitions.partition_point(|partition| partition.first <= slice) - 1;
        let first = run.partitions[partition].first;
        Some(SubPartition {
            table: table as u32,
            partition: partition as u32,
            sub_partition: (slice - first) as u32,
        })
    }

    /// Returns the name of a run: that of its family, with a number if it is not the first one of it.
    fn name(&self, table: usize, catalog: &Catalog) -> String {
        let family = self.runs[table].family;
        let name = catalog.families[family].0;
        match self.runs[..table].iter().filter(|run| run.family == family).count() {
            0 => name.to_owned(),
            before => format!("{name} ({})", before + 1),
        }
    }

    /// Returns the statistics as a trace, the input of the planner.
    pub(super) fn trace(&self, observed: &Observed, catalog: &Catalog) -> WorkloadTrace {
        let mut sync_points = Vec::new();
        let tables = self.runs.iter().enumerate().map(|(table, run)| {
            let ends = run.partitions.iter().skip(1).map(|partition| partition.first);
            let ends = ends.chain(std::iter::once(run.starts.len()));
            let partitions = run.partitions.iter().zip(ends).enumerate().map(|(at, (partition, end))| {
                let PartitionSlices { owner, number, first } = partition;
                let collected = observed.find(run.family, *number);
                let costs: Vec<u64> = collected.map_or_else(
                    || vec![0; end - first],
                    |collected| collected.costs.iter().map(|ticks| observed.cycles(*ticks)).collect(),
                );
                for (part, meetings) in
                    collected.iter().flat_map(|collected| collected.meetings.iter().enumerate())
                {
                    let here = SubPartition {
                        table: table as u32,
                        partition: at as u32,
                        sub_partition: part as u32,
                    };
                    self.add_meetings(here, meetings, catalog, &mut sync_points);
                }
                let rows = collected.map_or(0, |collected| collected.rows);
                let starts = run.starts[*first..end].iter().map(|key| TraceKey::new(key.to_vec()));
                PartitionTrace {
                    worker: WorkerIndex(u32::from(owner.0)),
                    starts: starts.collect(),
                    // Sub-partitions were cut with equally many rows.
                    rows: vec![rows.div_ceil(costs.len() as u64); costs.len()],
                    cost_cycles: costs,
                }
            });
            TableTrace { name: self.name(table, catalog), partitions: partitions.collect() }
        });
        let tables = tables.collect();
        WorkloadTrace {
            format: TRACE_FORMAT.to_owned(),
            seconds: observed.elapsed.as_secs_f64().max(1e-9),
            workers: observed.workers.len(),
            machine: None,
            samples: Some(observed.samples().count),
            dispersion: observed.samples().dispersion(),
            busy_cycles: observed.busy().into_iter().map(|ticks| observed.cycles(ticks)).collect(),
            in_place_cycles: observed.cycles(observed.in_place()),
            tables,
            sync_points,
            classes: observed.classes.iter().filter_map(class_seen).collect(),
        }
    }

    /// Returns a trace in which every row has the same load.
    pub(super) fn trace_of_rows(&self, observed: &Observed, catalog: &Catalog) -> WorkloadTrace {
        let mut trace = self.trace(observed, catalog);
        trace.samples = None;
        trace.busy_cycles.clear();
        trace.in_place_cycles = 0;
        trace.sync_points.clear();
        for (table, run) in trace.tables.iter_mut().zip(&self.runs) {
            for (partition, slices) in table.partitions.iter_mut().zip(&run.partitions) {
                let rows = observed.find(run.family, slices.number).map_or(0, |collected| collected.rows);
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
                // What another instance has is as far from all workers.
                let Some(partner) = self.locate(family_of(*table), key) else { continue };
                if !partners.contains(&partner) {
                    partners.push(partner);
                }
            }
            if partners.len() > 1 && count > 0 {
                let again = if meeting.again { count } else { 0 };
                sync_points.push(SyncPointTrace { partners, bytes: meeting.bytes * count, count, again });
            }
        }
    }

    /// Returns steps between these slices as changes of the scheme.
    pub(super) fn changes(&self, steps: &[Step]) -> Vec<SchemeChange> {
        self.changes_at(steps, |table, slice| self.runs[table.index()].starts[slice.index()].clone())
    }

    /// Returns steps between slices of these extents, which may be more than these slices, as changes of the scheme.
    pub(super) fn changes_of(&self, steps: &[Step], extents: &Extents) -> Vec<SchemeChange> {
        self.changes_at(steps, |table, slice| KeyBuf::from(extents.start(table, slice).bytes()))
    }

    fn changes_at(
        &self,
        steps: &[Step],
        start: impl Fn(TableIndex, SliceIndex) -> KeyBuf,
    ) -> Vec<SchemeChange> {
        let at = |table: TableIndex, slice| (self.runs[table.index()].table, start(table, slice));
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
