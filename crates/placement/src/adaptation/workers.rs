//! Workers that retire and return (`ATraPos §VI-D`), and spare ones that begin.
//!
//! Owns: which workers may own data. Never: moves a partition but by a plan of necessity for the workers that remain.
//!
//! Invariants: a worker that may own no data is given none; at least one worker may own data.

use std::sync::atomic::Ordering;

use atrapos_adapt::{Platform, WorkerIndex, plan_of_necessity};
use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_runtime::{WorkerId, affinity};
use atrapos_topology::CpuId;
use atrapos_transaction::jobs::start_on_worker;

use super::Adaptive;
use super::slices::Slices;
use crate::repartition::RepartitionReport;

impl Adaptive {
    /// Returns, by worker, whether it may own data.
    pub fn available(&self) -> Vec<bool> {
        self.lock().available()
    }

    /// Returns the workers that may own data.
    pub fn owning_workers(&self) -> Vec<WorkerId> {
        let available = self.available();
        (0..)
            .map(WorkerId)
            .zip(available)
            .filter(|(_, is_available)| *is_available)
            .map(|(id, _)| id)
            .collect()
    }

    /// Returns the platform to plan for: the workers that may own data, with their distances.
    pub(super) fn platform(&self) -> Result<Platform, String> {
        let platform =
            self.lock().platform.clone().ok_or("the distances between the workers are not known")?;
        without(platform, &self.available())
    }

    /// Returns the number of workers but the spare ones that have not begun.
    pub fn active_workers(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// Notes that a worker has begun, if it was spare.
    pub(super) fn note_begun(&self, worker: usize) {
        self.active.fetch_max(worker + 1, Ordering::Relaxed);
    }

    /// Pins a worker to a core. A refusal leaves it where the system puts it.
    fn pin(&self, worker: WorkerId, core: usize) {
        let pinned = start_on_worker(&self.handle, worker, move |_| {
            let _ = affinity::pin_current_thread(core);
        });
        if let Ok(pinned) = pinned {
            let _ = pinned.wait();
        }
    }

    /// Moves all data of a worker to other workers, and gives it no data from now on.
    pub fn retire(&self, worker: WorkerId) -> Result<RepartitionReport, Abort> {
        let _scheme = self.keep_scheme();
        {
            let mut state = self.lock();
            let workers = state.retired.len();
            if worker.index() >= workers {
                return Err(misuse(format!(
                    "there is no worker {} to retire; the database has workers 0 to {}",
                    worker.0,
                    workers - 1
                )));
            }
            let others =
                state.available().iter().enumerate().any(|(other, here)| *here && other != worker.index());
            if !others {
                return Err(misuse(format!(
                    "worker {} is the last one that may own data; add another before it retires",
                    worker.0
                )));
            }
            state.retired[worker.index()] = true;
        }
        let observed = self.observe()?;
        let catalog = self.catalogs.working();
        let slices = Slices::of(&self.published.scheme(), &catalog, &observed);
        let trace = slices.trace(&observed, &catalog);
        let weights = self.settings.unwrap_or_default().controller.planning.weights;
        let plan = self.platform().and_then(|platform| {
            let (workload, today) = (trace.workload(), trace.scheme());
            let planned =
                workload.and_then(|workload| plan_of_necessity(&workload, &platform, &today?, &weights));
            planned.map_err(|error| error.to_string())
        });
        let plan = plan.map_err(misuse)?;
        let report = self.carry_out(slices.changes(&plan.steps));
        self.nudge();
        report
    }

    /// Brings a retired worker back, or else lets a spare one begin, on core `core`, and returns its number.
    pub fn add(&self, core: usize) -> Result<WorkerId, Abort> {
        let (worker, is_pinned) = {
            let mut state = self.lock();
            let retired = state.retired.iter().position(|retired| *retired);
            let spare = || state.watch.next_spare().map(WorkerIndex::index);
            let Some(worker) = retired.or_else(spare) else {
                return Err(misuse(format!(
                    "none of the {} workers has retired or is spare; open the database with more workers to use more cores",
                    state.retired.len()
                )));
            };
            state.retired[worker] = false;
            state.watch.give(WorkerIndex(worker as u32), CpuId(core as u32));
            state.move_platform(None);
            self.note_begun(worker);
            (WorkerId(worker as u16), state.watch.cpus().nth(worker).flatten().is_some())
        };
        if is_pinned {
            self.pin(worker, core);
        }
        self.nudge();
        Ok(worker)
    }
}

fn misuse(why: String) -> Abort {
    Abort::explained(AbortReason::Misuse, why)
}

/// Returns `platform` without the workers that are not available.
pub fn without(platform: Platform, available: &[bool]) -> Result<Platform, String> {
    let workers = (0..).map(WorkerIndex).zip(available);
    let absent: Vec<WorkerIndex> = workers.filter(|(_, here)| !**here).map(|(worker, _)| worker).collect();
    platform.without(&absent).map_err(|error| error.to_string())
}
