//! Workers that lose their processing units, and get them back: the rules by which that is noticed (`ATraPos §VI-D`, where it is
//! announced).
//!
//! Owns: what was seen last, which workers have lost their units and why, and for how long. Never: reads a file, pins a thread or moves
//! a partition: whoever drives it says what there is to see ([`CoreSight`]), and acts on what comes back ([`CoreChange`]).
//!
//! Each worker is pinned to a processing unit of its own. A worker has lost it
//! - at once when its thread may not run on it any more: the unit is offline, or was taken out of the affinity mask or the cpuset;
//! - when it is *stalled*: for [`stall_time`](CoreSettings::stall_time), at every look, it got less than
//!   [`stall_share`](CoreSettings::stall_share) of the processor time that it wanted, as a share of what the other workers got of theirs.
//!   So workers that all wait, as on a machine with too much to do, are not stalled, and a worker that wants next to nothing never is;
//! - when a *quota* withholds processor time: for as long, at every look, more than [`throttled_share`](CoreSettings::throttled_share) of
//!   the time was withheld, and there are more workers than whole cores in the quota. The last workers lose theirs until there are not.
//!
//! A worker whose unit is gone or busy is given one that is free, if its thread may run there: no worker has it, and whatever else runs there leaves
//! at least half of it. Otherwise the plans are for the workers that remain, and its thread runs wherever it may.
//!
//! It is taken back when its unit, or another one, has been fit for [`return_time`](CoreSettings::return_time) at every look: its thread may
//! run there, and for one that was stalled, at least half of the unit was idle, or its own thread got at least half of what it wanted there. That
//! time doubles when it is lost again soon after (within eight times as long), up to six times: whatever comes and goes, partitions move ever more rarely.
//! A unit that is there again by a mask or the list of units online, which is no guess, is taken back at the first look that shows it, unless it was
//! lost again soon.
//!
//! A *spare* worker has no processing unit at the beginning. It is given one when there are more than there were then, as counted by mask, list
//! of those online and quota: one that is free, and has been for `return_time`. From then on it is a worker like any other.
//!
//! From the first look that finds a worker stalled until it has lost its unit, or is not stalled any more, statistics are of its waiting: whoever
//! plans had better wait for that ([`CoreWatch::is_in_doubt`]).
//!
//! Rules whose mask, times or quota cannot be seen do not apply.
//!
//! Invariants: at least one worker keeps its unit, or all do; two workers are never given the same unit; the same sights give the same changes.

use crate::error::AdaptError;
use crate::ids::WorkerIndex;
use atrapos_topology::{CpuId, CpuSet, Quota, ThreadTime, UnitTime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Settings of the rules by which the loss of a processing unit is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CoreSettings {
    /// The share of the processor time it wants below which a worker is stalled, over the share that the other workers get. Default 0.2: beside one other busy
    /// program it gets half, and the balance of loads sees to that.
    pub stall_share: f64,
    /// The time for which it must be so, and for which a quota must withhold time. Default 3 s.
    pub stall_time: Duration,
    /// The share of the time that a quota must withhold. Default 0.05.
    pub throttled_share: f64,
    /// The time for which a processing unit must be fit before its worker is taken back, unless it was offline or taken, and is back for the first time.
    /// Default 5 s.
    pub return_time: Duration,
    /// The share of the time that a worker must want a processing unit for its waiting to say anything. Default 0.1.
    pub demand_min: f64,
    /// The share of a processing unit that must be left for a worker. Default 0.5.
    pub fit_share: f64,
    /// Number of times that the time until a worker is taken back doubles. Default 6, at most 20.
    pub return_doublings: u32,
    /// Number of these times after which a loss is not one soon after. Default 8.
    pub lost_again: u32,
}

impl Default for CoreSettings {
    fn default() -> Self {
        Self {
            stall_share: 0.2,
            stall_time: Duration::from_secs(3),
            throttled_share: 0.05,
            return_time: Duration::from_secs(5),
            demand_min: 0.1,
            fit_share: 0.5,
            return_doublings: 6,
            lost_again: 8,
        }
    }
}

impl CoreSettings {
    /// Checks that cores can be watched with these.
    ///
    /// # Errors
    /// [`AdaptError::Setting`] names the first that makes no sense.
    pub fn check(&self) -> Result<(), AdaptError> {
        let wrong = |name, value: String, cure| Err(AdaptError::Setting { name, value, cure });
        if !(0.0..=1.0).contains(&self.stall_share) {
            return wrong("stall_share", self.stall_share.to_string(), "give it a share from 0 (never) to 1");
        }
        if !(self.throttled_share >= 0.0 && self.throttled_share.is_finite()) {
            return wrong(
                "throttled_share",
                self.throttled_share.to_string(),
                "give it 0 or more, such as 0.05",
            );
        }
        for (name, time) in [("stall_time", self.stall_time), ("return_time", self.return_time)] {
            if time > Duration::from_secs(86_400) {
                return wrong(name, format!("{time:?}"), "give it at most a day");
            }
        }
        for (name, share) in [("demand_min", self.demand_min), ("fit_share", self.fit_share)] {
            if !(0.0..=1.0).contains(&share) {
                return wrong(name, share.to_string(), "give it a share from 0 to 1");
            }
        }
        for (name, count) in [("return_doublings", self.return_doublings), ("lost_again", self.lost_again)] {
            if count > 20 {
                return wrong(name, count.to_string(), "give it from 0 to 20");
            }
        }
        Ok(())
    }
}

/// A view of the processing units and of the threads of the workers at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CoreSight {
    /// The processing units that the process may use.
    pub allowed: Option<CpuSet>,
    /// The processing units that are online.
    pub online: Option<CpuSet>,
    /// The quota of processor time; `None` if there is none.
    pub quota: Option<Quota>,
    /// The times of processing units.
    pub units: BTreeMap<CpuId, UnitTime>,
    /// The thread of each worker.
    pub workers: Vec<WorkerSight>,
}

/// A view of the thread of a worker.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WorkerSight {
    /// The processing units that it may run on.
    pub cpus: Option<CpuSet>,
    /// Its processor time so far.
    pub time: Option<ThreadTime>,
}

/// Reasons for which a worker has lost its processing unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CoreLoss {
    /// The processing unit is offline.
    Offline,
    /// It was taken out of the affinity mask or the cpuset of the worker's thread.
    Taken,
    /// Others run there.
    Stalled {
        /// The share of the processor time it wanted that the worker got.
        got: f64,
    },
    /// The quota of the control group is less than the workers need.
    Throttled {
        /// Cores' worth of processor time in the quota.
        cores: f64,
    },
}

/// A change of the workers that have a processing unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "cores")]
pub enum CoreChange {
    /// A worker has lost its processing unit.
    Lost {
        /// The worker.
        worker: WorkerIndex,
        /// The unit.
        cpu: CpuId,
        /// The reason.
        loss: CoreLoss,
    },
    /// A worker has its processing unit again.
    Back {
        /// The worker.
        worker: WorkerIndex,
        /// The unit.
        cpu: CpuId,
    },
    /// A worker has another processing unit, which was free.
    Moved {
        /// The worker.
        worker: WorkerIndex,
        /// The unit it had.
        from: CpuId,
        /// The unit it has.
        to: CpuId,
        /// The reason for which it has not its own.
        loss: CoreLoss,
    },
    /// A spare worker has its first processing unit.
    Begun {
        /// The worker.
        worker: WorkerIndex,
        /// The unit.
        cpu: CpuId,
    },
    /// The process may use more processing units than before, and all workers have one.
    Spare {
        /// Number of the units that are new and that no worker has.
        units: usize,
    },
}

/// The state of watching.
#[derive(Debug, Clone)]
pub struct CoreWatch {
    settings: CoreSettings,
    workers: Vec<Watched>,
    /// The order in which workers take free processing units; others follow by number.
    preference: Vec<CpuId>,
    before: Option<(u64, CoreSight)>,
    /// Start of the time in which every look found that a quota withholds time.
    throttled_since_ns: Option<u64>,
    /// The processing units that the process could use so far.
    known: Option<CpuSet>,
    /// Number of processing units that it could use at once at the beginning, if there are spare workers.
    first_units: usize,
    /// Number of spare workers that have been given a unit since.
    begun: usize,
}

/// A worker and its processing unit.
#[derive(Debug, Clone, Copy)]
struct Watched {
    cpu: Option<CpuId>,
    loss: Option<CoreLoss>,
    /// True until a spare worker has its first processing unit.
    is_spare: bool,
    /// Start of the time in which every look found it stalled.
    stalled_since_ns: Option<u64>,
    /// Start of the time in which every look found a fit processing unit for it.
    fit_since_ns: Option<u64>,
    /// The time at which it was taken back last.
    back_ns: Option<u64>,
    doublings: u32,
}

impl Watched {
    fn on(cpu: Option<CpuId>) -> Self {
        let (loss, stalled_since_ns, fit_since_ns, back_ns) = (None, None, None, None);
        Self { cpu, loss, is_spare: false, stalled_since_ns, fit_since_ns, back_ns, doublings: 0 }
    }

    fn spare() -> Self {
        Self { is_spare: true, ..Self::on(None) }
    }

    fn has_unit(&self) -> bool {
        self.loss.is_none() && !self.is_spare
    }
}

/// The views of two looks, one after the other.
struct Between<'a> {
    settings: CoreSettings,
    now_ns: u64,
    elapsed_ns: u64,
    before: &'a CoreSight,
    now: &'a CoreSight,
}

impl Between<'_> {
    /// The time for which a worker's thread wanted a processing unit, and the share of it that it got; `None` if it wanted next to none or
    /// nobody tells.
    fn share_of(&self, worker: usize) -> Option<f64> {
        let times = [self.before, self.now].map(|sight| sight.workers.get(worker).and_then(|of| of.time));
        let [Some(before), Some(now)] = times else { return None };
        let ran = now.ran_ns.saturating_sub(before.ran_ns) as f64;
        let mut wanted = ran + now.waited_ns.saturating_sub(before.waited_ns) as f64;
        let waits_still = now.turns == before.turns && before.is_runnable && now.is_runnable;
        if waits_still && ran == 0.0 {
            // A wait is counted when it is over.
            wanted = self.elapsed_ns as f64;
        }
        (wanted >= self.settings.demand_min * self.elapsed_ns as f64 && wanted > 0.0).then(|| ran / wanted)
    }

    /// Returns whether as much of a processing unit was idle as a worker needs; `None` if nobody tells.
    fn is_idle(&self, cpu: CpuId) -> Option<bool> {
        let (before, now) = (self.before.units.get(&cpu)?, self.now.units.get(&cpu)?);
        let total = now.total.checked_sub(before.total).filter(|total| *total > 0)?;
        Some(now.idle.saturating_sub(before.idle) as f64 >= self.settings.fit_share * total as f64)
    }

    /// Returns whether a quota has withheld more than this share of the time.
    fn is_throttled(&self, share: f64) -> bool {
        let withheld = |sight: &CoreSight| sight.quota.and_then(|quota| quota.throttled_ns);
        let (Some(before), Some(now)) = (withheld(self.before), withheld(self.now)) else { return false };
        now.saturating_sub(before) as f64 > share * self.elapsed_ns as f64
    }

    /// Returns whether a worker's thread may run there; `None` if nobody tells.
    fn may_run_on(&self, worker: usize, cpu: CpuId) -> Option<bool> {
        if self.now.online.as_ref().is_some_and(|online| !online.contains(cpu)) {
            return Some(false);
        }
        Some(self.now.workers.get(worker)?.cpus.as_ref()?.contains(cpu))
    }
}

impl CoreWatch {
    /// The least time between two looks.
    pub const LOOK_EVERY: Duration = Duration::from_secs(1);

    /// The shortest time between two looks: one before a plan is made sees what the latest was too early for.
    pub const LOOK_SOONEST: Duration = Duration::from_millis(250);

    /// Workers on these processing units, `None` for one that is not pinned and not watched. The units of `preference` are taken first, in
    /// this order, by workers that need another.
    #[must_use]
    pub fn new(settings: CoreSettings, cpus: &[Option<CpuId>], preference: Vec<CpuId>) -> Self {
        let workers = cpus.iter().map(|cpu| Watched::on(*cpu)).collect();
        let (before, throttled_since_ns, known) = (None, None, None);
        Self { settings, workers, preference, before, throttled_since_ns, known, first_units: 0, begun: 0 }
    }

    /// Adds so many spare workers, after the others, for processing units beyond `usable`, those that the process may use at the beginning
    /// with a quota of so many cores.
    #[must_use]
    pub fn with_spares(mut self, spares: usize, usable: CpuSet, quota_cores: Option<f64>) -> Self {
        self.workers.extend(std::iter::repeat_n(Watched::spare(), spares));
        self.first_units = usable.len().min(limit_of(quota_cores));
        self.known = Some(usable);
        self
    }

    /// The processing unit of each worker, whether or not it has lost it.
    pub fn cpus(&self) -> impl Iterator<Item = Option<CpuId>> {
        self.workers.iter().map(|worker| worker.cpu)
    }

    /// Returns whether a worker has its processing unit.
    #[must_use]
    pub fn has_unit(&self, worker: WorkerIndex) -> bool {
        self.workers.get(worker.index()).is_some_and(Watched::has_unit)
    }

    /// Returns whether the last look found a worker stalled that is not known yet to have lost its unit. What statistics say of it then is of
    /// its waiting, and a plan for that would be wrong as soon as it is known.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        self.workers.iter().any(|worker| worker.stalled_since_ns.is_some())
    }

    /// Returns whether any worker is watched.
    #[must_use]
    pub fn is_of_any(&self) -> bool {
        self.workers.iter().any(|worker| worker.cpu.is_some())
    }

    /// The first spare worker that has had no processing unit.
    #[must_use]
    pub fn next_spare(&self) -> Option<WorkerIndex> {
        self.workers.iter().position(|worker| worker.is_spare).map(|worker| WorkerIndex(worker as u32))
    }

    /// Gives a worker another processing unit, if workers are pinned; what was seen of it before does not count.
    pub fn give(&mut self, worker: WorkerIndex, cpu: CpuId) {
        let is_pinned = self.is_of_any();
        if let Some(watched) = self.workers.get_mut(worker.index()) {
            self.begun += usize::from(watched.is_spare);
            *watched = Watched::on(is_pinned.then_some(cpu));
        }
    }

    /// Takes note of what there is to see `at_ns`, on any clock, and returns the changes that follow. `left_out` are workers that may
    /// own no data for another reason: they keep their units.
    pub fn look(&mut self, at_ns: u64, sight: CoreSight, left_out: &[bool]) -> Vec<CoreChange> {
        let before = self.before.replace((at_ns, sight.clone()));
        let (before_ns, before) = before.unwrap_or_else(|| (at_ns, sight.clone()));
        let elapsed_ns = at_ns.saturating_sub(before_ns);
        let between =
            Between { settings: self.settings, now_ns: at_ns, elapsed_ns, before: &before, now: &sight };
        let had = self.workers.clone();
        let is_out = |worker: usize| left_out.get(worker).copied().unwrap_or(false);
        let mut changes = Vec::new();
        for worker in (0..self.workers.len()).filter(|worker| !is_out(*worker)) {
            changes.extend(self.loss_of(worker, &between, &is_out));
        }
        changes.extend(self.throttle(&between, &is_out));
        for worker in (0..self.workers.len()).filter(|worker| !is_out(*worker) && !had[*worker].has_unit()) {
            changes.extend(self.return_of(worker, &between, &is_out));
        }
        if !(0..self.workers.len()).any(|worker| self.workers[worker].has_unit() && !is_out(worker)) {
            // All have lost their units: none is preferable to another.
            self.workers = had;
            return Vec::new();
        }
        changes.extend(self.spare(&between));
        changes
    }

    /// Returns the workers whose threads are to run on other processing units than they may by this sight, which had these changes, and
    /// those units: a worker that has a unit is to run on it alone, and one that is stalled wherever the process may, so that its
    /// partitions can leave it.
    #[must_use]
    pub fn units_wanted(
        &self,
        sight: &CoreSight,
        changes: &[CoreChange],
        left_out: &[bool],
    ) -> Vec<(WorkerIndex, CpuSet)> {
        let mut wanted = Vec::new();
        for (worker, cpu) in self.cpus().enumerate() {
            let Some((cpu, mask)) = cpu.zip(sight.workers.get(worker).and_then(|of| of.cpus.as_ref())) else {
                continue;
            };
            let index = WorkerIndex(worker as u32);
            let own: CpuSet = [cpu].into_iter().collect();
            let is_given = changes.iter().any(|change| {
                use CoreChange::{Back, Begun, Moved};
                matches!(change, Moved { worker, .. } | Back { worker, .. } | Begun { worker, .. } if *worker == index)
            });
            let is_stalled = changes.iter().any(|change| {
                matches!(change, CoreChange::Lost { worker, loss: CoreLoss::Stalled { .. }, .. } if *worker == index)
            });
            let is_out = left_out.get(worker).copied().unwrap_or(false);
            let has_own = self.has_unit(index) && !is_out && mask.contains(cpu);
            if (is_given || has_own) && *mask != own {
                wanted.push((index, own));
            } else if let Some(allowed) = sight.allowed.as_ref().filter(|_| is_stalled) {
                wanted.push((index, allowed.clone()));
            }
        }
        wanted
    }

    /// Judges a worker that has its processing unit.
    fn loss_of(
        &mut self,
        worker: usize,
        between: &Between<'_>,
        is_out: &dyn Fn(usize) -> bool,
    ) -> Option<CoreChange> {
        let cpu = self.workers[worker].cpu.filter(|_| self.workers[worker].has_unit())?;
        let loss = if between.may_run_on(worker, cpu) == Some(false) {
            let offline = between.now.online.as_ref().is_some_and(|online| !online.contains(cpu));
            if offline { CoreLoss::Offline } else { CoreLoss::Taken }
        } else {
            let got = self.stalled(worker, between, is_out);
            let since = got.map(|_| self.workers[worker].stalled_since_ns.unwrap_or(between.now_ns));
            self.workers[worker].stalled_since_ns = since;
            let time = between.now_ns.saturating_sub(since?);
            if u128::from(time) < self.settings.stall_time.as_nanos() {
                return None;
            }
            CoreLoss::Stalled { got: got? }
        };
        if let Some(to) = self.free_unit(worker, between) {
            self.workers[worker].cpu = Some(to);
            self.workers[worker].stalled_since_ns = None;
            return Some(CoreChange::Moved { worker: WorkerIndex(worker as u32), from: cpu, to, loss });
        }
        Some(self.lose(worker, cpu, loss, between.now_ns))
    }

    fn lose(&mut self, worker: usize, cpu: CpuId, loss: CoreLoss, now_ns: u64) -> CoreChange {
        let soon = self.usual_wait_ns(worker).saturating_mul(u64::from(self.settings.lost_again));
        let most = self.settings.return_doublings;
        let watched = &mut self.workers[worker];
        let again = watched.back_ns.is_some_and(|back| now_ns.saturating_sub(back) < soon);
        watched.doublings = if again { (watched.doublings + 1).min(most) } else { 0 };
        watched.loss = Some(loss);
        (watched.stalled_since_ns, watched.fit_since_ns) = (None, None);
        CoreChange::Lost { worker: WorkerIndex(worker as u32), cpu, loss }
    }

    /// The time for which a unit must be fit before the worker is taken back.
    fn wait_ns(&self, worker: usize) -> u64 {
        let Watched { loss, doublings, .. } = &self.workers[worker];
        let is_certain = matches!(loss, Some(CoreLoss::Offline | CoreLoss::Taken));
        if is_certain && *doublings == 0 { 0 } else { self.usual_wait_ns(worker) }
    }

    /// The same for a worker of which it was a guess that it had lost its unit.
    fn usual_wait_ns(&self, worker: usize) -> u64 {
        let wait = u64::try_from(self.settings.return_time.as_nanos()).unwrap_or(u64::MAX);
        wait.saturating_mul(1 << self.workers[worker].doublings)
    }

    /// The share of the processor time it wanted that a worker got since the last look, if that is too little.
    fn stalled(&self, worker: usize, between: &Between<'_>, is_out: &dyn Fn(usize) -> bool) -> Option<f64> {
        let is_alone = |cpus: &CpuSet| cpus.len() == 1;
        let is_pinned = between.now.workers.get(worker)?.cpus.as_ref().is_none_or(is_alone);
        let got = between.share_of(worker).filter(|_| is_pinned)?;
        let others = (0..self.workers.len())
            .filter(|other| *other != worker && self.workers[*other].has_unit() && !is_out(*other));
        // One that wants nothing could have what it wants.
        let shares: Vec<f64> = others.map(|other| between.share_of(other).unwrap_or(1.0)).collect();
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        (!shares.is_empty() && got < self.settings.stall_share * mean).then_some(got)
    }

    /// The processing units that no worker has, where the thread of a worker may run: those it should take first are first.
    fn free_units(&self, worker: usize, between: &Between<'_>) -> Vec<CpuId> {
        let Some(own) = between.now.workers.get(worker).and_then(|of| of.cpus.as_ref()) else {
            return Vec::new();
        };
        // The mask of a pinned thread has its unit only: it may be pinned to any that the process may use.
        let pinned_itself = own.len() == 1 && self.workers[worker].cpu.is_some_and(|cpu| own.contains(cpu));
        let may_use = if pinned_itself { between.now.allowed.as_ref() } else { Some(own) };
        let Some(may_use) = may_use else { return Vec::new() };
        let of_others = |cpu: &CpuId| self.workers.iter().any(|other| other.cpu == Some(*cpu));
        let is_online = |cpu: &CpuId| between.now.online.as_ref().is_none_or(|online| online.contains(*cpu));
        let is_free = |cpu: &CpuId| {
            may_use.contains(*cpu)
                && !of_others(cpu)
                && is_online(cpu)
                && between.is_idle(*cpu).unwrap_or(true)
        };
        self.preference.iter().copied().chain(may_use.iter()).filter(is_free).collect()
    }

    /// The first of the [free processing units](Self::free_units).
    fn free_unit(&self, worker: usize, between: &Between<'_>) -> Option<CpuId> {
        self.free_units(worker, between).first().copied()
    }

    /// Takes the units of the last workers where a quota withholds time.
    fn throttle(&mut self, between: &Between<'_>, is_out: &dyn Fn(usize) -> bool) -> Vec<CoreChange> {
        let present: Vec<usize> = self.present(is_out).collect();
        let limit = limit_of(cores_of(between.now));
        let is_throttled = present.len() > limit && between.is_throttled(self.settings.throttled_share);
        let since = is_throttled.then(|| self.throttled_since_ns.unwrap_or(between.now_ns));
        self.throttled_since_ns = since;
        let Some(since) = since else { return Vec::new() };
        if u128::from(between.now_ns.saturating_sub(since)) < self.settings.stall_time.as_nanos() {
            return Vec::new();
        }
        self.throttled_since_ns = None;
        let cores = between.now.quota.map_or(0.0, |quota| quota.cores);
        let lost = present[limit..].iter().filter_map(|worker| Some((*worker, self.workers[*worker].cpu?)));
        let lost: Vec<(usize, CpuId)> = lost.collect();
        let loss = CoreLoss::Throttled { cores };
        lost.into_iter().map(|(worker, cpu)| self.lose(worker, cpu, loss, between.now_ns)).collect()
    }

    fn present(&self, is_out: &dyn Fn(usize) -> bool) -> impl Iterator<Item = usize> {
        (0..self.workers.len()).filter(move |worker| self.workers[*worker].has_unit() && !is_out(*worker))
    }

    /// Judges a worker that had lost its processing unit before this look.
    fn return_of(
        &mut self,
        worker: usize,
        between: &Between<'_>,
        is_out: &dyn Fn(usize) -> bool,
    ) -> Option<CoreChange> {
        if self.workers[worker].is_spare {
            return self.begin(worker, between);
        }
        let (cpu, loss) = (self.workers[worker].cpu?, self.workers[worker].loss?);
        let to = self.fit_unit(worker, (cpu, loss), between, is_out);
        let since = to.map(|_| self.workers[worker].fit_since_ns.unwrap_or(between.now_ns));
        self.workers[worker].fit_since_ns = since;
        if between.now_ns.saturating_sub(since?) < self.wait_ns(worker) {
            return None;
        }
        let (to, watched) = (to?, &mut self.workers[worker]);
        (watched.cpu, watched.loss, watched.fit_since_ns) = (Some(to), None, None);
        watched.back_ns = Some(between.now_ns);
        let index = WorkerIndex(worker as u32);
        Some(if to == cpu {
            CoreChange::Back { worker: index, cpu }
        } else {
            CoreChange::Moved { worker: index, from: cpu, to, loss }
        })
    }

    /// Judges a spare worker.
    fn begin(&mut self, worker: usize, between: &Between<'_>) -> Option<CoreChange> {
        let units = usable(between.now)?.len().min(limit_of(cores_of(between.now)));
        let more = units.saturating_sub(self.first_units);
        let free = if self.begun < more { self.free_units(worker, between) } else { Vec::new() };
        // One of those that have appeared, if it is free.
        let is_new = |cpu: &&CpuId| self.known.as_ref().is_some_and(|known| !known.contains(**cpu));
        let to = free.iter().find(is_new).or(free.first()).copied();
        let since = to.map(|_| self.workers[worker].fit_since_ns.unwrap_or(between.now_ns));
        self.workers[worker].fit_since_ns = since;
        if between.now_ns.saturating_sub(since?) < self.wait_ns(worker) {
            return None;
        }
        self.begun += 1;
        self.workers[worker] = Watched::on(to);
        Some(CoreChange::Begun { worker: WorkerIndex(worker as u32), cpu: to? })
    }

    /// A processing unit on which a worker that has lost its own could run.
    fn fit_unit(
        &self,
        worker: usize,
        (cpu, loss): (CpuId, CoreLoss),
        between: &Between<'_>,
        is_out: &dyn Fn(usize) -> bool,
    ) -> Option<CpuId> {
        let may_run_there = between.may_run_on(worker, cpu).unwrap_or(true);
        let is_fit = may_run_there
            && match loss {
                CoreLoss::Offline | CoreLoss::Taken => true,
                CoreLoss::Throttled { .. } => self.present(is_out).count() < limit_of(cores_of(between.now)),
                CoreLoss::Stalled { .. } => {
                    let time = between.now.workers.get(worker).and_then(|of| of.time);
                    let runs_there = time.and_then(|time| time.cpu) == Some(cpu);
                    let runs_well =
                        between.share_of(worker).is_some_and(|share| share >= self.settings.fit_share);
                    between.is_idle(cpu).unwrap_or(true) || (runs_there && runs_well)
                }
            };
        if is_fit {
            return Some(cpu);
        }
        if matches!(loss, CoreLoss::Throttled { .. }) { None } else { self.free_unit(worker, between) }
    }

    /// Tells of processing units that the process may use since now, where every worker has one.
    fn spare(&mut self, between: &Between<'_>) -> Option<CoreChange> {
        let usable = usable(between.now)?;
        let Some(known) = &self.known else {
            self.known = Some(usable);
            return None;
        };
        if self.workers.iter().any(|worker| !worker.has_unit()) {
            return None;
        }
        let is_taken = |cpu: CpuId| self.workers.iter().any(|worker| worker.cpu == Some(cpu));
        let units = usable.difference(known).iter().filter(|cpu| !is_taken(*cpu)).count();
        self.known = Some(known.union(&usable));
        (units > 0).then_some(CoreChange::Spare { units })
    }
}

/// The processing units that the process may use and that are online, if that is known.
fn usable(sight: &CoreSight) -> Option<CpuSet> {
    let allowed = sight.allowed.as_ref()?;
    Some(sight.online.as_ref().map_or_else(|| allowed.clone(), |online| allowed.intersection(online)))
}

/// Number of workers for which a quota has whole cores: at least one.
fn limit_of(quota_cores: Option<f64>) -> usize {
    // The cast saturates.
    quota_cores.map_or(usize::MAX, |cores| (cores as usize).max(1))
}

/// Cores' worth of processor time in the quota, if there is one.
fn cores_of(sight: &CoreSight) -> Option<f64> {
    sight.quota.map(|quota| quota.cores)
}

impl fmt::Display for CoreChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { worker, cpu, loss: loss @ CoreLoss::Throttled { .. } } => {
                write!(f, "{worker} on {cpu} is left out, because {loss}")
            }
            Self::Lost { worker, cpu, loss } => write!(f, "{worker} has lost {cpu}, because {loss}"),
            Self::Back { worker, cpu } => write!(f, "{worker} has {cpu} again"),
            Self::Moved { worker, from, to, loss } => {
                write!(f, "{worker} has {to} now, which is free, and not {from}, because {loss}")
            }
            Self::Begun { worker, cpu } => write!(f, "{worker} was spare and has {cpu}, which appeared"),
            Self::Spare { units } => {
                let (what, them) = if *units == 1 { ("unit", "it") } else { ("units", "them") };
                write!(
                    f,
                    "the process may use {units} more processing {what}, and every worker has one: open the database with more workers, or spare ones, to use {them}"
                )
            }
        }
    }
}

impl fmt::Display for CoreLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Offline => f.write_str("it is offline"),
            Self::Taken => f.write_str("its thread may not run there any more (affinity mask or cpuset)"),
            Self::Stalled { got } => {
                write!(f, "others run there, and it got {:.0}% of the time it wanted", 100.0 * got)
            }
            Self::Throttled { cores } => {
                write!(
                    f,
                    "the control group has a quota of {cores:.1} cores, which is used up time and again"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests;
