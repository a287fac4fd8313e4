//! Statistics in the form in which the cost model reads them: slices of tables with a cost, and synchronization points
//! between slices.
//!
//! Owns: the check that a trace does not contradict itself, and the numbering of slices. Never: knows who owns a slice
//! (that is a scheme) or what a distance is (that is a platform).
//!
//! Invariants: slices of all tables are numbered through, table by table and in key order; every table has at least one;
//! partners of a synchronization point ascend and are distinct; no two points have the same partners.

use crate::error::AdaptError;
use crate::extents::Extents;
use crate::flow::ClassFlow;
use crate::ids::{SliceIndex, TableIndex, WorkerIndex};
use crate::platform::{Platform, WORKERS_MAX};
use crate::scheme::{PlannedScheme, TableScheme};
use crate::trace::{SubPartition, TRACE_FORMAT, WorkloadTrace};
use std::collections::{BTreeMap, BTreeSet};

/// Greatest number of sub-partitions of all tables together.
pub const SLICES_MAX: usize = 1 << 24;

/// Statistics of a database, independent of who owned what while they were taken.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    names: Vec<String>,
    /// First slice of each table in the common numbering, and one past the last.
    starts: Vec<usize>,
    cost_cycles: Vec<f64>,
    sync_points: Vec<SyncPoint>,
    classes: Vec<ClassFlow>,
    seconds: f64,
    /// Rows of every slice; empty where they are not known.
    rows: Vec<f64>,
    /// Cycles of all workers together that no scheme changes.
    in_place_cycles: f64,
}

/// Synchronization points between the same slices.
#[derive(Debug, Clone, PartialEq)]
pub struct SyncPoint {
    /// The slices whose actions meet, in the numbering over all tables ([`Workload::slice`]); ascending, distinct.
    pub partners: Vec<u32>,
    /// Bytes exchanged in all.
    pub bytes: f64,
    /// Number of times that it happened.
    pub count: f64,
    /// Number of these times at which all partners had met before in the same transaction, so that its end is sent to none of them for this one.
    pub again: f64,
}

/// The greatest number of parts in which a synchronization point is seen by other slices.
const PARTS_MAX: usize = 16;

/// Synchronization points with distinct, ascending partners, of which each set appears once; those of fewer than two partners are left out.
fn joined(points: impl Iterator<Item = SyncPoint>) -> Vec<SyncPoint> {
    let mut by_partners: BTreeMap<Vec<u32>, (f64, f64, f64)> = BTreeMap::new();
    for SyncPoint { mut partners, bytes, count, again } in points {
        partners.sort_unstable();
        partners.dedup();
        if partners.len() >= 2 && count > 0.0 {
            let sum = by_partners.entry(partners).or_default();
            *sum = (sum.0 + bytes, sum.1 + count, sum.2 + again);
        }
    }
    let points = by_partners.into_iter();
    points.map(|(partners, (bytes, count, again))| SyncPoint { partners, bytes, count, again }).collect()
}

impl Workload {
    /// Statistics from costs in cycles per table and slice, and synchronization points, over `seconds` seconds. Points
    /// with the same partners are added up; those with fewer than two partners have no cost and are left out.
    ///
    /// # Errors
    /// [`AdaptError::Contradiction`] when there is no table, a table has no slice, a name is missing or taken twice, a
    /// number is negative or not finite, or a partner does not exist; [`AdaptError::TooLarge`] beyond [`SLICES_MAX`].
    pub fn new(
        tables: Vec<(String, Vec<f64>)>,
        sync_points: Vec<SyncPoint>,
        seconds: f64,
    ) -> Result<Self, AdaptError> {
        let wrong = |detail: String| Err(AdaptError::Contradiction { detail });
        if tables.is_empty() {
            return wrong("there is no table".into());
        }
        if !(seconds.is_finite() && seconds > 0.0) {
            return wrong(format!("it was recorded for {seconds} seconds"));
        }
        let mut taken = BTreeSet::new();
        let (mut names, mut starts, mut cost_cycles) = (Vec::new(), vec![0], Vec::new());
        for (name, costs) in tables {
            if name.is_empty() || !taken.insert(name.clone()) {
                return wrong(format!("the table name '{name}' is empty or appears twice"));
            }
            if costs.is_empty() {
                return wrong(format!("table '{name}' has no sub-partitions"));
            }
            if let Some(cost) = costs.iter().find(|cost| !(cost.is_finite() && **cost >= 0.0)) {
                return wrong(format!("a sub-partition of table '{name}' costs {cost} cycles"));
            }
            cost_cycles.extend(costs);
            starts.push(cost_cycles.len());
            names.push(name);
        }
        let found = cost_cycles.len();
        if found > SLICES_MAX {
            let (what, cure) = ("sub-partitions", "fewer sub-partitions per partition");
            return Err(AdaptError::TooLarge { what, found, max: SLICES_MAX, cure });
        }
        for SyncPoint { partners, bytes, count, again } in &sync_points {
            let (bytes, count, again) = (*bytes, *count, *again);
            let numbers = [bytes, count, again];
            if numbers.iter().any(|number| !(number.is_finite() && *number >= 0.0)) {
                return wrong(format!("a synchronization point exchanges {bytes} bytes {count} times"));
            }
            if again > count {
                return wrong(format!("a synchronization point happened {count} times, {again} times again"));
            }
            if count == 0.0 && bytes > 0.0 {
                return wrong(format!("a synchronization point never happened but exchanged {bytes} bytes"));
            }
            if let Some(slice) = partners.iter().find(|slice| **slice as usize >= found) {
                return wrong(format!("a synchronization point names slice {slice} of {found}"));
            }
        }
        let sync_points = joined(sync_points.into_iter());
        Ok(Self {
            names,
            starts,
            cost_cycles,
            sync_points,
            classes: Vec::new(),
            seconds,
            rows: Vec::new(),
            in_place_cycles: 0.0,
        })
    }

    /// Number of tables.
    #[must_use]
    pub fn table_count(&self) -> usize {
        self.names.len()
    }

    /// The name of a table.
    ///
    /// # Panics
    /// When there is no such table.
    #[must_use]
    pub fn table_name(&self, table: TableIndex) -> &str {
        &self.names[table.index()]
    }

    /// Number of slices of a table.
    ///
    /// # Panics
    /// When there is no such table.
    #[must_use]
    pub fn slice_count(&self, table: TableIndex) -> u32 {
        let slices = self.range(table);
        u32::try_from(slices.len()).expect("no more than SLICES_MAX")
    }

    /// Number of slices of every table.
    pub(crate) fn slice_counts(&self) -> Vec<u32> {
        (0..).take(self.table_count()).map(|table| self.slice_count(TableIndex(table))).collect()
    }

    /// The number of a slice in the numbering over all tables.
    ///
    /// # Panics
    /// When there is no such table.
    #[must_use]
    pub fn slice(&self, table: TableIndex, slice: SliceIndex) -> u32 {
        u32::try_from(self.starts[table.index()]).expect("no more than SLICES_MAX") + slice.0
    }

    /// Cost in cycles of every slice of a table.
    ///
    /// # Panics
    /// When there is no such table.
    #[must_use]
    pub fn table_costs(&self, table: TableIndex) -> &[f64] {
        &self.cost_cycles[self.range(table)]
    }

    /// The synchronization points.
    #[must_use]
    pub fn sync_points(&self) -> &[SyncPoint] {
        &self.sync_points
    }

    /// The flow graphs of the transaction classes that ran.
    #[must_use]
    pub fn classes(&self) -> &[ClassFlow] {
        &self.classes
    }

    /// Duration of the recording, in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Cost of all actions in cycles.
    #[must_use]
    pub fn work_cycles(&self) -> f64 {
        self.cost_cycles.iter().sum()
    }

    /// The same with what no scheme changes, as accesses to lent partitions: it is taken to be spread evenly over the workers.
    #[must_use]
    pub fn all_cycles(&self) -> f64 {
        self.work_cycles() + self.in_place_cycles
    }

    /// The part of the work that a scheme divides.
    pub(crate) fn divided_share(&self) -> f64 {
        let all = self.all_cycles();
        if all > 0.0 { self.work_cycles() / all } else { 1.0 }
    }

    /// Tables with at most the share `quiet_max` of the load and of the synchronization, of which it is not known where it would be if there were more.
    #[must_use]
    pub(crate) fn quiet_tables(&self, quiet_max: f64) -> Vec<bool> {
        let mut meetings = vec![0.0; self.table_count()];
        for point in &self.sync_points {
            // Partners ascend, so those of a table follow each other.
            let mut last = None;
            for slice in &point.partners {
                let table = self.starts.partition_point(|start| *start <= *slice as usize) - 1;
                if last.replace(table) != Some(table) {
                    meetings[table] += point.count;
                }
            }
        }
        let all: f64 = self.sync_points.iter().map(|point| point.count).sum();
        let (cost_max, meetings_max) = (quiet_max * self.work_cycles(), quiet_max * all);
        let costs = self.starts.windows(2).map(|of| self.cost_cycles[of[0]..of[1]].iter().sum::<f64>());
        costs.zip(meetings).map(|(cost, met)| cost <= cost_max && met <= meetings_max).collect()
    }

    pub(crate) fn range(&self, table: TableIndex) -> std::ops::Range<usize> {
        self.starts[table.index()]..self.starts[table.index() + 1]
    }

    /// Place of the first slice of each table among the slices of all, and their number at the end.
    pub fn starts(&self) -> &[usize] {
        &self.starts
    }

    /// Cost of every slice, in cycles, table by table.
    pub fn all_costs(&self) -> &[f64] {
        &self.cost_cycles
    }

    /// Rows of every slice; empty where they are not known.
    pub(crate) fn all_rows(&self) -> &[f64] {
        &self.rows
    }

    /// Sets the rows of every slice; none where they are not known.
    pub(crate) fn set_rows(&mut self, rows: Vec<f64>) {
        debug_assert!(rows.is_empty() || rows.len() == self.cost_cycles.len(), "one number per slice");
        self.rows = rows;
    }

    /// The same statistics with other costs.
    pub(crate) fn with_costs(&self, costs: Vec<f64>) -> Self {
        debug_assert_eq!(costs.len(), self.cost_cycles.len(), "one cost per slice");
        Self { cost_cycles: costs, ..self.clone() }
    }

    /// Multiplies everything by a factor.
    pub(crate) fn scale(&mut self, factor: f64) {
        self.cost_cycles.iter_mut().for_each(|cost| *cost *= factor);
        self.in_place_cycles *= factor;
        for point in &mut self.sync_points {
            (point.bytes, point.count) = (point.bytes * factor, point.count * factor);
            point.again *= factor;
        }
    }

    /// Adds statistics of the same slices.
    pub(crate) fn add(&mut self, other: &Self) {
        debug_assert_eq!(self.starts, other.starts, "the same slices");
        for (cost, more) in self.cost_cycles.iter_mut().zip(&other.cost_cycles) {
            *cost += more;
        }
        self.in_place_cycles += other.in_place_cycles;
        let both = self.sync_points.drain(..).chain(other.sync_points.iter().cloned());
        self.sync_points = joined(both);
    }

    /// These statistics, of slices of `from`, by slices of `to`: of tables that are the same. Partners of synchronization points
    /// are taken to be at the same relative positions of their slices. What was at the end of a table, where rows may have been added
    /// since, is divided as `at_end`, statistics by slices of `to`, have it.
    pub(crate) fn resampled(&self, from: &Extents, to: &Extents, at_end: &Self) -> Self {
        let (mut starts, mut costs, mut rows) = (vec![0], Vec::new(), Vec::new());
        // By old slice: its place among the new ones, in slices and parts of them.
        let mut places: Vec<(f64, f64)> = Vec::with_capacity(self.cost_cycles.len());
        for table in (0..).take(self.table_count()) {
            let offset = costs.len() as f64;
            let of_table = to.places(table, from.starts(table));
            places.extend(of_table.into_iter().map(|(begin, end)| (offset + begin, offset + end)));
            let index = TableIndex(table as u32);
            costs.extend(to.resample(
                table,
                from.starts(table),
                self.table_costs(index),
                at_end.table_costs(index),
            ));
            rows.extend_from_slice(to.rows(table));
            starts.push(costs.len());
        }
        let mut points = Vec::new();
        for point in &self.sync_points {
            let widths = point.partners.iter().map(|slice| places[*slice as usize]);
            let widest = widths.map(|(begin, end)| end - begin).fold(1.0, f64::max);
            let parts = (widest.ceil() as usize).min(PARTS_MAX);
            let (bytes, count) = (point.bytes / parts as f64, point.count / parts as f64);
            let again = point.again / parts as f64;
            for part in 0..parts {
                let inside = (part as f64 + 0.5) / parts as f64;
                let partners = point.partners.iter().map(|slice| {
                    let (begin, end) = places[*slice as usize];
                    (begin + inside * (end - begin)) as u32
                });
                points.push(SyncPoint { partners: partners.collect(), bytes, count, again });
            }
        }
        let (names, classes, seconds) = (self.names.clone(), self.classes.clone(), self.seconds);
        Self {
            names,
            starts,
            cost_cycles: costs,
            sync_points: joined(points.into_iter()),
            classes,
            seconds,
            rows,
            in_place_cycles: self.in_place_cycles,
        }
    }

    /// Multiplies the cost of every slice by a factor of its own.
    pub(crate) fn scale_costs(&mut self, factors: impl Iterator<Item = f64>) {
        for (cost, factor) in self.cost_cycles.iter_mut().zip(factors) {
            *cost *= factor;
        }
    }

    pub(crate) fn set_classes(&mut self, classes: Vec<ClassFlow>) {
        self.classes = classes;
    }
}

impl WorkloadTrace {
    /// The statistics of this trace, without its scheme.
    ///
    /// # Errors
    /// [`AdaptError::Format`], or [`AdaptError::Contradiction`] when parts contradict each other.
    pub fn workload(&self) -> Result<Workload, AdaptError> {
        if self.format != TRACE_FORMAT {
            return Err(AdaptError::Format { found: self.format.clone(), expected: TRACE_FORMAT });
        }
        for table in &self.tables {
            if let Some(at) = table.partitions.iter().position(|partition| partition.cost_cycles.is_empty()) {
                let detail = format!("partition {at} of table '{}' has no sub-partitions", table.name);
                return Err(AdaptError::Contradiction { detail });
            }
        }
        if !self.busy_cycles.is_empty() && self.busy_cycles.len() != self.workers {
            let (found, workers) = (self.busy_cycles.len(), self.workers);
            let detail = format!("it has the busy time of {found} workers, and {workers} workers");
            return Err(AdaptError::Contradiction { detail });
        }
        if !(self.dispersion.is_finite() && self.dispersion >= 1.0) {
            let detail = format!("the dispersion of its samples is {}, below 1", self.dispersion);
            return Err(AdaptError::Contradiction { detail });
        }
        for class in &self.classes {
            class.check(self.tables.len())?;
        }
        self.check_keys()?;
        let numbering = self.first_slices();
        let sync_points = self
            .sync_points
            .iter()
            .map(|point| {
                let partners = point.partners.iter().map(|place| self.slice_of(&numbering, *place));
                Ok(SyncPoint {
                    partners: partners.collect::<Result<_, AdaptError>>()?,
                    bytes: point.bytes as f64,
                    count: point.count as f64,
                    again: point.again as f64,
                })
            })
            .collect::<Result<_, AdaptError>>()?;
        let tables = self.tables.iter().map(|table| {
            let costs = table.partitions.iter().flat_map(|partition| &partition.cost_cycles);
            (table.name.clone(), costs.map(|cost| *cost as f64).collect())
        });
        let mut workload = Workload::new(tables.collect(), sync_points, self.seconds)?;
        workload.set_classes(self.classes.clone());
        let rows = self.tables.iter().flat_map(|table| &table.partitions).flat_map(|part| &part.rows);
        let rows: Vec<f64> = rows.map(|rows| *rows as f64).collect();
        if rows.len() == workload.cost_cycles.len() {
            workload.rows = rows;
        }
        workload.in_place_cycles = self.in_place_cycles as f64;
        Ok(workload)
    }

    /// The scheme to come from on a platform, however many workers the trace is of: that under which it was recorded, or the naive one where
    /// that needs more workers.
    ///
    /// # Errors
    /// As for [`scheme`](Self::scheme).
    pub fn scheme_on(&self, workload: &Workload, platform: &Platform) -> Result<PlannedScheme, AdaptError> {
        if self.workers > platform.worker_count() {
            return Ok(PlannedScheme::naive(workload, platform));
        }
        self.scheme()
    }

    /// The scheme under which the trace was recorded; its slices are the sub-partitions of the trace.
    ///
    /// # Errors
    /// [`AdaptError::Contradiction`] when a partition is on a worker that the trace does not have, and
    /// [`AdaptError::TooLarge`] for more workers than [`WORKERS_MAX`].
    pub fn scheme(&self) -> Result<PlannedScheme, AdaptError> {
        if self.workers > WORKERS_MAX {
            let (what, cure) = ("workers", "fewer workers");
            return Err(AdaptError::TooLarge { what, found: self.workers, max: WORKERS_MAX, cure });
        }
        let mut tables = Vec::new();
        for table in &self.tables {
            let (mut at, mut cuts, mut owners) = (0, Vec::new(), Vec::new());
            for partition in &table.partitions {
                if partition.worker.index() >= self.workers {
                    let (name, worker, workers) = (&table.name, partition.worker, self.workers);
                    let detail = format!("a partition of table '{name}' is on {worker} of {workers} workers");
                    return Err(AdaptError::Contradiction { detail });
                }
                if at > 0 {
                    cuts.push(at);
                }
                let slices = u32::try_from(partition.cost_cycles.len()).unwrap_or(u32::MAX);
                at = u32::saturating_add(at, slices);
                owners.push(WorkerIndex(partition.worker.0));
            }
            tables.push(TableScheme::new(cuts, owners));
        }
        Ok(PlannedScheme::new(tables))
    }

    /// For every table and partition, the number of its first slice over all tables.
    fn first_slices(&self) -> Vec<Vec<usize>> {
        let mut at = 0;
        let mut first = |count: usize| {
            at += count;
            at - count
        };
        self.tables
            .iter()
            .map(|table| {
                table.partitions.iter().map(|partition| first(partition.cost_cycles.len())).collect()
            })
            .collect()
    }

    fn slice_of(&self, first_slices: &[Vec<usize>], place: SubPartition) -> Result<u32, AdaptError> {
        let SubPartition { table, partition, sub_partition } = place;
        let costs = self
            .tables
            .get(table as usize)
            .and_then(|table| table.partitions.get(partition as usize))
            .map(|partition| partition.cost_cycles.len());
        match costs {
            Some(count) if (sub_partition as usize) < count => {
                let slice = first_slices[table as usize][partition as usize] + sub_partition as usize;
                u32::try_from(slice).map_err(|_| AdaptError::TooLarge {
                    what: "sub-partitions",
                    found: slice,
                    max: SLICES_MAX,
                    cure: "fewer sub-partitions per partition",
                })
            }
            _ => Err(AdaptError::Contradiction {
                detail: format!(
                    "a synchronization point names sub-partition [{table}, {partition}, {sub_partition}], which no table has"
                ),
            }),
        }
    }
}
