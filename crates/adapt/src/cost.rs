//! The cost model (`ATraPos §V-B`, `thesis §4.3.2`).
//!
//! Owns: RU, TS and the objective that joins them. Never: searches.
//!
//! With `T` the cycles of all actions, `N` the available workers, `M` the tables and `cuts` the partitions less `M`, where actions on lent
//! partitions are spread evenly over the workers, whatever the scheme:
//!
//! ```text
//! RU(S, W) = sum over workers |RU(c) - RU_avg|             cycles; RU(c): cost of all actions on partitions of c
//! TS(S, W) = sum over synchronization points C(s)           byte distances
//! C(s)     = (n - 1) x Distance x Size over nested islands, see `Platform`; Size = bytes + count x message_bytes
//! EX(S, W) = sum over synchronization points count x (n - 1)             n: the workers that take part
//!                                                          where count is less by a part of those that met again, see below
//! SC(S, W) = cycles_per_byte x TS + exchange_cycles x EX                 cycles
//! J(S, W)  = balance x RU / T  +  busiest x (RU_max / RU_avg - 1)  +  synchronization x SC / T  +  partitions x cuts / (M N)
//! ```
//!
//! The paper lowers RU first and TS afterwards. `J` puts both on one scale, the share of the work itself, so that a
//! search may weigh one against the other. The busiest worker, which limits the throughput, has a term of its own: of RU, one of
//! 80 workers with twice its share is 2.5%, but it halves the throughput; RU beside it lets a search see progress that does not
//! concern the busiest one. `exchange_cycles` are what programs do at a synchronization however near the workers are: suspension, locks,
//! a second poll, handling of messages. `count` has every synchronization point of every transaction; the end of a transaction, one of the three messages of a first one, is sent to each
//! worker once, so points among data that has met before in the transaction count for less: two thirds of `message_bytes`, four fifths of
//! `exchange_cycles`. The last term is the paper's oversaturation: partitions that bring nothing
//! are not made. The busiest worker's term lacks its part of synchronization, which a change of one slice moves at many workers at once; schemes
//! that searches have found are compared with it, by [`Cost::judged`]. With `busiest`, `partitions`, `exchange_cycles` and `message_bytes` at 0, `J` knows nothing beyond the paper's two metrics.
//!
//! Invariants: no term is negative; `J` is 0 only for perfect balance without a message and without a cut. A worker that
//! is retired has nothing, so all of its load is imbalance, and the mean is over the available ones.

use crate::error::AdaptError;
use crate::ids::{TableIndex, WorkerIndex};
use crate::platform::{Platform, Span};
use crate::scheme::PlannedScheme;
use crate::workload::{SyncPoint, Workload};
use serde::{Deserialize, Serialize};

/// Cycles of all statistics and weights in a nanosecond: those of a processor of 2 GHz, whichever one is there. So time has one unit on every
/// processor, also where its counter counts something else.
pub const CYCLES_PER_NS: f64 = 2.0;

/// The part of the messages of a synchronization point that is the end of its transaction: of request, reply and end, one.
const END_MESSAGES: f64 = 1.0 / 3.0;

/// The part of the work of programs at a synchronization point that the end of its transaction is: of six ends of messages, and a suspension that
/// takes as long as four (decision 113), two.
const END_EXCHANGE: f64 = 0.2;

/// Weights of the objective's terms.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weights {
    /// Weight of the imbalance, as a share of the work. Default 0.25.
    pub balance: f64,
    /// Weight of the excess of the busiest worker over the mean. Default 0.75: with two workers the two are the same, and their weights
    /// add up to that of synchronization.
    pub busiest: f64,
    /// Weight of the synchronization cost, as a share of the work. Default 1.
    pub synchronization: f64,
    /// Weight of the number of partitions: the cost of the naive scheme's partitions, as a share of the work. Default
    /// 0.01.
    pub partitions: f64,
    /// Cycles to move one byte over distance 1. Default 2: a line of 64 bytes in about 128 cycles between cores of one
    /// L3 island.
    pub cycles_per_byte: f64,
    /// Bytes that every synchronization point exchanges beyond its data. Default 384: a line at both ends of a request, a reply and
    /// the end of the transaction. 0 is the paper's model, in which an exchange of nothing is free.
    pub message_bytes: f64,
    /// Cycles that each further worker of a synchronization point costs, however near it is. Default 1,000: measured, as what is left of
    /// 0.76 us for a synchronization of two workers of one L3 island when the lines are taken off (decision 86).
    pub exchange_cycles: f64,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            balance: 0.25,
            busiest: 0.75,
            synchronization: 1.0,
            partitions: 0.01,
            cycles_per_byte: 2.0,
            message_bytes: 384.0,
            exchange_cycles: 1_000.0,
        }
    }
}

impl Weights {
    /// Refuses weights that are none.
    ///
    /// # Errors
    /// [`AdaptError::Weight`] names one that is negative or not a number.
    pub fn check(&self) -> Result<(), AdaptError> {
        let named = [
            ("balance", self.balance),
            ("busiest", self.busiest),
            ("synchronization", self.synchronization),
            ("partitions", self.partitions),
            ("cycles_per_byte", self.cycles_per_byte),
            ("message_bytes", self.message_bytes),
            ("exchange_cycles", self.exchange_cycles),
        ];
        match named.into_iter().find(|(_, value)| !(value.is_finite() && *value >= 0.0)) {
            Some((name, value)) => Err(AdaptError::Weight { name, value: value.to_string() }),
            None => Ok(()),
        }
    }

    /// Cost that one unit of each metric adds to the objective.
    pub fn per_unit(&self, workload: &Workload, platform: &Platform) -> PerUnit {
        let work = workload.all_cycles();
        // Without any work there is nothing to be a share of; counting cycles keeps the order of schemes.
        let work = if work > 0.0 { work } else { 1.0 };
        let workers = platform.available_count() as f64;
        PerUnit {
            imbalance: self.balance / work,
            busiest: self.busiest * workers / work,
            sync: self.synchronization / work,
            cut: self.partitions / (workload.table_count() as f64 * workers),
        }
    }

    /// Cycles of a synchronization point per unit of distance, and per worker beyond the first.
    pub fn sync_cycles(&self, point: &SyncPoint) -> SyncCycles {
        SyncCycles {
            per_distance: self.cycles_per_byte * self.sync_bytes(point),
            per_worker: self.exchange_cycles * (point.count - END_EXCHANGE * point.again),
        }
    }

    /// Bytes that a synchronization point moves in all, those of its messages included.
    fn sync_bytes(&self, point: &SyncPoint) -> f64 {
        point.bytes + self.message_bytes * (point.count - END_MESSAGES * point.again)
    }

    /// The weights where what is added for distances beyond 1 costs `factor` times as much, for points like these.
    pub(crate) fn with_premium(mut self, factor: f64, points: &[SyncPoint]) -> Self {
        let (bytes, count) = points.iter().fold((0.0, 0.0), |(bytes, count), point| {
            (bytes + self.sync_bytes(point), count + point.count - END_EXCHANGE * point.again)
        });
        if count > 0.0 {
            let less = (1.0 - factor) * self.cycles_per_byte * bytes / count;
            self.exchange_cycles = (self.exchange_cycles + less).max(0.0);
            self.cycles_per_byte *= factor;
        }
        self
    }

    /// The weights where synchronization costs `factor` times as much.
    pub(crate) fn with_sync_factor(mut self, factor: f64) -> Self {
        self.cycles_per_byte *= factor;
        self.exchange_cycles *= factor;
        self
    }
}

/// Cost of one unit of each metric, as a share of the work.
#[derive(Debug, Clone, Copy)]
pub struct PerUnit {
    /// Of a cycle of RU.
    pub imbalance: f64,
    /// Of a cycle by which the busiest worker exceeds the mean.
    pub busiest: f64,
    /// Of a cycle of synchronization.
    pub sync: f64,
    /// Of a cut.
    pub cut: f64,
}

/// Cost of a synchronization point by the workers that take part.
#[derive(Debug, Clone, Copy)]
pub struct SyncCycles {
    /// Cycles per unit of distance.
    pub per_distance: f64,
    /// Cycles per worker beyond the first.
    pub per_worker: f64,
}

impl SyncCycles {
    pub(crate) fn of(self, span: Span) -> f64 {
        self.per_distance * span.distance + self.per_worker * f64::from(span.others)
    }
}

/// Cost of a scheme under a workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cost {
    /// Cost of all actions, those on lent partitions included, in cycles; the same for every scheme.
    pub work_cycles: f64,
    /// `RU(S, W)`: summed deviations of the workers from their mean, in cycles.
    pub imbalance_cycles: f64,
    /// The mean over available workers, in cycles.
    pub load_mean_cycles: f64,
    /// The most loaded worker, in cycles.
    pub load_max_cycles: f64,
    /// The busiest worker, in cycles: its load and its part of synchronization, which those that meet share equally.
    pub busy_max_cycles: f64,
    /// `TS(S, W)`, in bytes times distance.
    pub sync_byte_distance: f64,
    /// `SC(S, W)`: what synchronization costs processors, in cycles.
    pub sync_cycles: f64,
    /// Number of partitions.
    pub partitions: usize,
    /// `J(S, W)`, as a share of the work.
    pub objective: f64,
    /// The same where the busiest worker is the one with most work and synchronization, and exceeds the mean of both.
    pub judged: f64,
}

impl Cost {
    /// `RU` as a share of the work: 0 when all workers have the same, towards 2 when one has everything.
    #[must_use]
    pub fn imbalance_ratio(&self) -> f64 {
        if self.work_cycles > 0.0 { self.imbalance_cycles / self.work_cycles } else { 0.0 }
    }

    /// The load of the most loaded worker over the mean.
    #[must_use]
    pub fn load_max_ratio(&self) -> f64 {
        if self.load_mean_cycles > 0.0 { self.load_max_cycles / self.load_mean_cycles } else { 1.0 }
    }

    /// The time of the busiest worker, its part of synchronization included, over the mean load: at saturation, the throughput is the
    /// inverse of it.
    #[must_use]
    pub fn busy_max_ratio(&self) -> f64 {
        if self.load_mean_cycles > 0.0 { self.busy_max_cycles / self.load_mean_cycles } else { 1.0 }
    }

    /// Synchronization, as a share of the work.
    #[must_use]
    pub fn sync_ratio(&self) -> f64 {
        if self.work_cycles > 0.0 { self.sync_cycles / self.work_cycles } else { 0.0 }
    }
}

/// Calls `each` for every synchronization point of several workers where `owners` own the slices: with the workers, ascending, and their extent.
pub(crate) fn for_each_meeting(
    workload: &Workload,
    platform: &Platform,
    owners: &[WorkerIndex],
    mut each: impl FnMut(&SyncPoint, &[WorkerIndex], Span),
) {
    let (mut ranks, mut workers) = (Vec::new(), Vec::new());
    for point in workload.sync_points() {
        workers.clear();
        workers.extend(point.partners.iter().map(|slice| owners[*slice as usize]));
        workers.sort_unstable();
        workers.dedup();
        if workers.len() > 1 {
            ranks.clear();
            ranks.extend(workers.iter().map(|worker| platform.rank(*worker)));
            each(point, &workers, platform.span_of_ranks(&mut ranks));
        }
    }
}

/// Computes the cost of `scheme` under `workload` on `platform`.
///
/// # Errors
/// A scheme that does not fit (see [`PlannedScheme::check`]), or a weight that is no weight.
pub fn evaluate(
    workload: &Workload,
    platform: &Platform,
    scheme: &PlannedScheme,
    weights: &Weights,
) -> Result<Cost, AdaptError> {
    weights.check()?;
    scheme.check(workload, platform)?;
    let owners = scheme.slice_owners(workload);
    let mut loads = vec![0.0; platform.worker_count()];
    for table in (0..).take(workload.table_count()).map(TableIndex) {
        for (owner, cost) in owners[workload.range(table)].iter().zip(workload.table_costs(table)) {
            loads[owner.index()] += cost;
        }
    }
    let work_cycles = workload.all_cycles();
    let load_mean_cycles = work_cycles / platform.available_count() as f64;
    let in_place_each = (work_cycles - workload.work_cycles()) / platform.available_count() as f64;
    for rank in platform.available_ranks() {
        loads[platform.worker(rank).index()] += in_place_each;
    }
    let deviation = |(worker, load): (u32, &f64)| {
        let available = platform.is_available(WorkerIndex(worker));
        if available { (load - load_mean_cycles).abs() } else { *load }
    };
    let imbalance_cycles = (0..).zip(&loads).map(deviation).sum();
    let load_max_cycles = loads.iter().copied().fold(0.0, f64::max);
    let (mut sync_byte_distance, mut sync_cycles) = (0.0, 0.0);
    for_each_meeting(workload, platform, &owners, |point, workers, span| {
        let cycles = weights.sync_cycles(point).of(span);
        sync_byte_distance += span.distance * weights.sync_bytes(point);
        sync_cycles += cycles;
        for worker in workers {
            loads[worker.index()] += cycles / workers.len() as f64;
        }
    });
    let busy_max_cycles = loads.iter().copied().fold(0.0, f64::max);
    let partitions = scheme.partition_count();
    let cuts = (partitions - workload.table_count()) as f64;
    let per_unit = weights.per_unit(workload, platform);
    let objective = imbalance_cycles * per_unit.imbalance
        + (load_max_cycles - load_mean_cycles) * per_unit.busiest
        + sync_cycles * per_unit.sync
        + cuts * per_unit.cut;
    // Of the busiest worker: what it has beyond the mean of synchronization, which J has already.
    let sync_mean_cycles = sync_cycles / platform.available_count() as f64;
    let busiest_sync_cycles = busy_max_cycles - load_max_cycles - sync_mean_cycles;
    Ok(Cost {
        work_cycles,
        imbalance_cycles,
        load_mean_cycles,
        load_max_cycles,
        busy_max_cycles,
        sync_byte_distance,
        sync_cycles,
        partitions,
        objective,
        judged: objective + busiest_sync_cycles * per_unit.busiest,
    })
}
