//! Records of the simulated workers, in the form that a database hands to the controller.
//!
//! Owns: costs and synchronization points by sub-partition. Never: knows what a message or a transaction really cost beyond
//! what a worker of a database can time: an event from the poll before it to its end.
//!
//! As in a database (decision 10): an *event* is the end of a transaction at its home, its first suspension there, or an action for a
//! transaction of another worker; one in 1,024 is recorded and stands for all, more where little happens; so many synchronization points of a
//! sub-partition are remembered with their partners as a database remembers.

use atrapos_adapt::{
    PartitionTrace, SubPartition, SyncPointTrace, TRACE_FORMAT, TableTrace, TraceKey, WorkerIndex,
    WorkloadTrace,
};

use crate::hardware::GHZ;
use crate::layout::{Cut, Layout};
use crate::scenario::Scenario;

/// Synchronization points of one sub-partition that are remembered.
const REMEMBERED: usize = 64;

/// A recorded synchronization point: the slices of the others, and the bytes that they exchanged.
#[derive(Debug, Clone)]
struct Meeting {
    partners: Vec<usize>,
    bytes: f64,
    /// Set if all of them had met before in the transaction.
    again: bool,
}

#[derive(Debug, Clone, Default)]
struct Meetings {
    /// Synchronization points that the recorded ones stand for.
    count: f64,
    remembered: Vec<Meeting>,
}

/// A number of samples, and what they stand for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    count: u64,
    sum: f64,
    squares: f64,
}

impl Tally {
    fn add(&mut self, cost: f64) {
        *self = Self { count: self.count + 1, sum: self.sum + cost, squares: self.squares + cost * cost };
    }

    /// Those that came after `earlier`, which were the first of them.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            count: self.count.saturating_sub(earlier.count),
            sum: self.sum - earlier.sum,
            squares: self.squares - earlier.squares,
        }
    }

    /// Their dispersion: see [`WorkloadTrace::dispersion`].
    fn dispersion(self) -> f64 {
        if self.sum > 0.0 { (self.squares * self.count as f64 / (self.sum * self.sum)).max(1.0) } else { 1.0 }
    }

    /// Number of samples of equal cost that would say as much.
    pub(crate) fn effective(self) -> f64 {
        self.count as f64 / self.dispersion()
    }
}

/// The statistics of all workers since they were taken last.
#[derive(Debug)]
pub(crate) struct Monitor {
    pub(crate) cut: Cut,
    costs: Vec<f64>,
    meetings: Vec<Meetings>,
    samples: Tally,
    /// The pace of each worker.
    paces: Vec<Pace>,
    dilation: f64,
}

/// The pace at which a worker records.
#[derive(Debug, Clone)]
struct Pace {
    /// An event that is recorded stands for so many.
    distance: f64,
    /// Records since the distance was judged last, and when that was.
    records: u32,
    since_ns: f64,
}

/// Events of a database of which one is recorded, at most.
const SAMPLE_EVERY: f64 = 1024.0;
/// Mean times between records below which the distance doubles, and above which it halves, in ns. A worker of a database
/// has 256 and 1,024 times what a record takes it, about a fifth of a microsecond.
const OFTEN_NS: f64 = 50_000.0;
const SELDOM_NS: f64 = 200_000.0;
/// Records of which the mean is taken.
const JUDGED: u32 = 64;

impl Monitor {
    /// Begins anew. Each simulated event stands for `dilation` of a database.
    pub(crate) fn new(cut: Cut, workers: usize, dilation: f64) -> Self {
        let count = cut.count;
        Self {
            cut,
            costs: vec![0.0; count],
            meetings: vec![Meetings::default(); count],
            samples: Tally::default(),
            paces: vec![Pace { distance: 1.0, records: 0, since_ns: 0.0 }; workers],
            dilation,
        }
    }

    /// Discards what was recorded.
    pub(crate) fn restart(&mut self, cut: Cut) {
        let fresh = Self::new(cut, 0, self.dilation);
        let old = std::mem::replace(self, fresh);
        self.paces = old.paces;
    }

    /// Returns for how many events one stands that is recorded, if this one is; `draw` is from 0 to 1.
    pub(crate) fn is_due(&mut self, worker: usize, now_ns: f64, draw: f64) -> Option<f64> {
        let most = (SAMPLE_EVERY / self.dilation).max(1.0);
        let pace = &mut self.paces[worker];
        if draw * pace.distance >= 1.0 {
            return None;
        }
        let stands_for = pace.distance;
        pace.records += 1;
        let (taken_ns, judged) = (now_ns - pace.since_ns, f64::from(JUDGED));
        let is_seldom = taken_ns > judged * SELDOM_NS;
        if is_seldom || pace.records >= JUDGED {
            if is_seldom {
                pace.distance = (pace.distance / 2.0).max(1.0);
            } else if taken_ns < judged * OFTEN_NS {
                pace.distance = (pace.distance * 2.0).min(most);
            }
            (pace.records, pace.since_ns) = (0, now_ns);
        }
        Some(stands_for)
    }

    /// Charges an event of so many ns, which stands for several, to the keys that it touched.
    pub(crate) fn charge(&mut self, ns: f64, stands_for: f64, touched: &[(u32, u64)]) {
        self.samples.add(ns * stands_for);
        let each = ns * GHZ * stands_for / touched.len() as f64;
        for (table, key) in touched {
            let slice = self.cut.slice(*table, *key);
            self.costs[slice] += each;
        }
    }

    /// Records a synchronization point of these keys, the first of which its transaction began with. `met` has the slices that have met in
    /// the transaction so far.
    pub(crate) fn meet(
        &mut self,
        keys: &[(u32, u64)],
        met: &mut Vec<usize>,
        bytes: f64,
        stands_for: f64,
        draw: f64,
    ) {
        let mut slices = keys.iter().map(|(table, key)| self.cut.slice(*table, *key));
        let Some(first) = slices.next() else { return };
        let mut partners: Vec<usize> = slices.filter(|slice| *slice != first).collect();
        partners.sort_unstable();
        partners.dedup();
        if partners.is_empty() {
            return;
        }
        let again = partners.iter().all(|partner| met.contains(partner));
        met.extend_from_slice(&partners);
        let meetings = &mut self.meetings[first];
        meetings.count += stands_for;
        let meeting = Meeting { partners, bytes, again };
        if meetings.remembered.len() < REMEMBERED {
            meetings.remembered.push(meeting);
        } else {
            let at = (draw * meetings.count / stands_for) as usize;
            if at < REMEMBERED {
                meetings.remembered[at] = meeting;
            }
        }
    }

    /// The observed cost of each worker so far, in cycles.
    pub(crate) fn loads(&self, layout: &Layout, workers: usize) -> Vec<f64> {
        let mut loads = vec![0.0; workers];
        for (table, starts) in self.cut.starts.iter().enumerate() {
            for (slice, start) in starts.iter().enumerate() {
                let owner = layout.owner(table as u32, *start) as usize;
                loads[owner] += self.costs[self.cut.offsets[table] + slice];
            }
        }
        loads
    }

    /// The samples so far.
    pub(crate) fn samples(&self) -> Tally {
        self.samples
    }

    fn place(&self, slice: usize) -> SubPartition {
        let table = self.cut.offsets.partition_point(|offset| *offset <= slice) - 1;
        let within = slice - self.cut.offsets[table];
        let firsts = &self.cut.firsts[table];
        let partition = firsts.partition_point(|first| *first <= within) - 1;
        SubPartition {
            table: table as u32,
            partition: partition as u32,
            sub_partition: (within - firsts[partition]) as u32,
        }
    }

    /// The statistics as a trace. `layout` is the one that they began with.
    pub(crate) fn trace(
        &self,
        scenario: &Scenario,
        layout: &Layout,
        busy_ns: &[f64],
        seconds: f64,
    ) -> WorkloadTrace {
        let tables = scenario.tables.iter().enumerate().map(|(table, spec)| {
            let firsts = &self.cut.firsts[table];
            let ends = firsts[1..].iter().copied().chain(std::iter::once(self.cut.starts[table].len()));
            let partitions = firsts.iter().copied().zip(ends).zip(&layout.tables[table].owners);
            let partitions = partitions.map(|((first, end), owner)| {
                let offset = self.cut.offsets[table];
                let costs = self.costs[offset + first..offset + end].iter();
                let starts = &self.cut.starts[table];
                let next = |at: usize| starts.get(at + 1).copied().unwrap_or(self.cut.rows[table]);
                let rows = (first..end).map(|at| next(at) - starts[at]);
                let keys = starts[first..end].iter().map(|key| TraceKey::new(key.to_be_bytes().to_vec()));
                PartitionTrace {
                    worker: WorkerIndex(*owner),
                    cost_cycles: costs.map(|cost| cost.round() as u64).collect(),
                    starts: keys.collect(),
                    rows: rows.collect(),
                }
            });
            TableTrace { name: spec.name.clone(), partitions: partitions.collect() }
        });
        WorkloadTrace {
            format: TRACE_FORMAT.to_owned(),
            seconds,
            workers: self.paces.len(),
            machine: None,
            samples: Some(self.samples.count),
            dispersion: self.samples.dispersion(),
            busy_cycles: busy_ns.iter().map(|ns| (ns * GHZ).round() as u64).collect(),
            in_place_cycles: 0,
            tables: tables.collect(),
            sync_points: self.sync_points(),
            classes: Vec::new(),
        }
    }

    fn sync_points(&self) -> Vec<SyncPointTrace> {
        let mut points = Vec::new();
        for (slice, meetings) in self.meetings.iter().enumerate() {
            let known = meetings.remembered.len() as u64;
            let total = (meetings.count * self.dilation).round() as u64;
            for (at, meeting) in (0..).zip(&meetings.remembered) {
                let count = total / known + u64::from(at < total % known);
                let others = meeting.partners.iter().map(|partner| self.place(*partner));
                let bytes = (meeting.bytes * count as f64) as u64;
                let partners = std::iter::once(self.place(slice)).chain(others).collect();
                let again = if meeting.again { count } else { 0 };
                points.push(SyncPointTrace { partners, bytes, count, again });
            }
        }
        points
    }
}
