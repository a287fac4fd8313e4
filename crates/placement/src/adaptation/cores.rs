//! Sources of what there is to see of processing units and of the workers' threads, and the looks at them.
//!
//! Owns: when one looks (once a second, and right before a plan is made; on the adapting thread, also while it waits for a worker), and the
//! threads of the workers.
//! Never: judges ([`atrapos_adapt::CoreWatch`] does), or is on the path of a transaction: a worker is asked for the number of its thread, once.
//!
//! A database watches the cores of its workers if it adapts itself, has several workers and pins them. After each look
//! - a worker that has a core is pinned to it, if its thread may run elsewhere, too;
//! - the thread of one that is stalled may run wherever the process may, so that its sessions go on and its partitions can leave it;
//! - what has changed is an entry of the history, and the platform to plan for is another one.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use atrapos_adapt::{CoreChange, CoreSight, CoreWatch, Decision, Platform, WorkerIndex, WorkerSight};
use atrapos_partition::abort::Abort;
use atrapos_runtime::{WorkerId, affinity};
use atrapos_topology::{CpuId, CpuSet, LiveOptions, Machine, ProcessorFiles};
use atrapos_transaction::jobs::on_all_workers;

use super::observation::rate;
use super::settings::AdaptationEvent;
use super::{Adaptive, State};

/// Numbers that the system gives to threads; `None` for one that is not known by a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Threads {
    /// The adapting thread, which is never pinned.
    pub adapting: Option<u32>,
    /// The thread of each worker.
    pub workers: Vec<Option<u32>>,
}

/// A source of what there is to see of processing units and threads: the operating system, or a test.
pub trait CoreSource: Debug + Send + Sync {
    /// Returns what there is to see now. What cannot be seen is left out.
    fn sight(&self, threads: &Threads) -> CoreSight;

    /// Lets the thread of a worker run on exactly these processing units. A refusal leaves it where it is.
    fn run_on(&self, threads: &Threads, worker: WorkerId, cpus: &CpuSet);
}

/// The operating system as a source.
#[derive(Debug)]
pub struct SystemCores(ProcessorFiles);

impl Default for SystemCores {
    fn default() -> SystemCores {
        SystemCores(ProcessorFiles::below(Path::new("/")))
    }
}

impl CoreSource for SystemCores {
    fn sight(&self, threads: &Threads) -> CoreSight {
        let mask = |thread: u32| {
            let cpus = affinity::thread_cpus(thread).ok()?;
            Some(cpus.into_iter().map(|cpu| CpuId(cpu as u32)).collect::<CpuSet>())
        };
        let of_worker = |thread: &Option<u32>| WorkerSight {
            cpus: thread.and_then(mask),
            time: thread.and_then(|thread| self.0.thread(thread)),
        };
        CoreSight {
            allowed: threads.adapting.and_then(mask),
            online: self.0.online(),
            quota: self.0.quota(),
            units: self.0.units(),
            workers: threads.workers.iter().map(of_worker).collect(),
        }
    }

    fn run_on(&self, threads: &Threads, worker: WorkerId, cpus: &CpuSet) {
        let cpus: Vec<usize> = cpus.iter().map(CpuId::index).collect();
        if let Some(thread) = threads.workers.get(worker.index()).copied().flatten() {
            // The next look sees where it may run.
            let _ = affinity::set_thread_cpus(thread, &cpus);
        }
    }
}

/// The processing units of a database's workers.
#[derive(Debug)]
pub struct Site {
    /// The machine.
    pub machine: Machine,
    /// The processing unit of each worker but the spare ones.
    pub cpus: Vec<CpuId>,
    /// Number of spare workers, which follow the others and own nothing until there is a processing unit for them.
    pub spare_workers: usize,
    /// Set if the workers are pinned to them.
    pub is_pinned: bool,
    /// Source of what is known of them.
    pub source: Arc<dyn CoreSource>,
}

impl Site {
    /// Returns the state of watching at the beginning.
    pub(super) fn watch(&self, settings: atrapos_adapt::CoreSettings) -> CoreWatch {
        let own: Vec<Option<CpuId>> =
            self.cpus.iter().map(|cpu| Some(*cpu).filter(|_| self.is_pinned)).collect();
        let preference = self.machine.placement(self.machine.usable_cpus().len());
        let watch = CoreWatch::new(settings, &own, preference);
        match self.spare_workers {
            0 => watch,
            spare => watch.with_spares(spare, self.machine.usable_cpus().clone(), self.machine.cpu_quota()),
        }
    }

    /// Returns the platform of all workers: where a spare one will be is not known, and it has no part in the plans until it is.
    pub(super) fn platform(&self) -> Option<Platform> {
        let spare = std::iter::repeat_n(*self.cpus.first()?, self.spare_workers);
        let cpus: Vec<CpuId> = self.cpus.iter().copied().chain(spare).collect();
        Platform::new(&self.machine, &cpus).ok()
    }
}

impl Adaptive {
    /// Asks the workers for the numbers of their threads; called by the adapting thread.
    pub(super) fn meet_threads(&self) -> Result<(), Abort> {
        if self.lock().watch.is_of_any() {
            let workers = on_all_workers(&self.handle, |_| affinity::current_thread_number())?;
            let threads = Threads { adapting: affinity::current_thread_number(), workers };
            // They are those of the first call.
            let _ = self.threads.set(threads);
        }
        Ok(())
    }

    /// Looks at the cores of the workers, if that has not been done for a while. See [`CoreWatch`].
    pub(super) fn look_after_cores(&self) {
        self.look_after_cores_since(CoreWatch::LOOK_EVERY);
    }

    /// Returns whether a worker may have lost its core, after another look if the latest was not just now.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.look_after_cores_since(CoreWatch::LOOK_SOONEST);
        self.lock().watch.is_in_doubt()
    }

    /// Looks at the cores of the workers, if that was not done for so long.
    fn look_after_cores_since(&self, least: Duration) {
        let Some(threads) = self.threads.get().filter(|_| !self.is_suspended()) else { return };
        let now = self.handle.clock().now();
        {
            let mut state = self.lock();
            let since_ns = self.handle.clock().ns(now.since(state.looked));
            if u128::from(since_ns) < least.as_nanos() {
                return;
            }
            state.looked = now;
        }
        let sight = self.source.sight(threads);
        let throughput_tps = self.throughput_now_tps();
        let wanted = {
            // Who sees a worker available sees it counted and its change in the history, too.
            let mut state = self.lock();
            let retired = state.retired.clone();
            let changes = state.watch.look(self.since_opening_ns(), sight.clone(), &retired);
            let wanted = state.watch.units_wanted(&sight, &changes, &retired);
            use CoreChange::{Begun, Moved, Spare};
            if changes.iter().any(|change| matches!(change, Moved { .. } | Begun { .. })) {
                state.move_platform(sight.allowed.as_ref());
            }
            if changes.iter().any(|change| !matches!(change, Spare { .. })) {
                self.cores_changed.store(true, Ordering::SeqCst);
            }
            for change in changes {
                if let Begun { worker, .. } = change {
                    self.note_begun(worker.index());
                }
                let decision = Decision::of_cores(self.since_opening_ns(), throughput_tps, change);
                state.remember(AdaptationEvent { decision, report: None, failure: None });
            }
            wanted
        };
        for (worker, cpus) in wanted {
            self.source.run_on(threads, WorkerId(worker.0 as u16), &cpus);
        }
    }

    /// Returns the throughput since the last turn.
    fn throughput_now_tps(&self) -> f64 {
        let (since, before) = {
            let state = self.lock();
            (state.observed.0, state.observed.1)
        };
        let clock = self.handle.clock();
        rate(self.counts().committed() - before.committed(), clock.ns(self.now().since(since)))
    }
}

impl State {
    /// Returns, by worker, whether it may own data.
    pub(super) fn available(&self) -> Vec<bool> {
        let has_unit = |worker: usize| self.watch.has_unit(WorkerIndex(worker as u32));
        self.retired.iter().enumerate().map(|(worker, retired)| !retired && has_unit(worker)).collect()
    }

    /// Plans for the processing units that the workers have now; `allowed` are those that the process may use.
    pub(super) fn move_platform(&mut self, allowed: Option<&CpuSet>) {
        let Some(first) = self.watch.cpus().flatten().next() else { return };
        // A spare worker has none yet, and no part in the plans.
        let cpus: Vec<CpuId> = self.watch.cpus().map(|cpu| cpu.unwrap_or(first)).collect();
        if cpus.iter().any(|cpu| self.machine.cpu(*cpu).is_none()) {
            // A processing unit that was offline when the machine was read.
            self.machine = Machine::live(&LiveOptions::new(allowed.cloned()));
        }
        // On a machine without such a unit the distances are those of before.
        if let Ok(platform) = Platform::new(&self.machine, &cpus) {
            self.platform = Some(platform);
        }
    }
}
