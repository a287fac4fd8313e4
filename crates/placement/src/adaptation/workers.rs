//! Workers that retire and return, and cores that are taken away and given back (`ATraPos §VI-D`).
//!
//! Owns: which workers may own data. Never: moves a partition but by a plan of necessity for the workers that remain.
//!
//! Invariants: a worker that may own no data is given none; at least one worker may own data.

use atrapos_adapt::{Platform, WorkerIndex, plan_of_necessity};
use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_runtime::{WorkerId, affinity};
use atrapos_transaction::jobs::{on_all_workers, start_on_worker};

use super::Adaptive;
use super::slices::Slices;
use crate::repartition::RepartitionReport;

/// Reasons for which a worker may own no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absence {
    /// Retirement by the user.
    Retired,
    /// Loss of its core.
    CoreLost,
}

impl Adaptive {
    /// Returns, by worker, whether it may own data.
    pub fn available(&self) -> Vec<bool> {
        self.lock().absent.iter().map(Option::is_none).collect()
    }

    /// Returns the platform to plan for: the workers that may own data, with their distances.
    pub(super) fn platform(&self) -> Result<Platform, String> {
        let platform = self.platform.clone().ok_or("the distances between the workers are not known")?;
        without(platform, &self.available())
    }

    /// Detects cores that their workers have lost or regained. Returns true if there were any.
    pub(super) fn look_after_cores(&self) -> bool {
        let cores = self.lock().cores.clone();
        if cores.iter().all(Option::is_none) {
            return false;
        }
        let asked = cores.clone();
        let Ok(has_core) = on_all_workers(&self.handle, move |worker| has_core(asked[worker.id().index()]))
        else {
            return false;
        };
        let mut state = self.lock();
        let before = state.absent.clone();
        for (worker, present) in has_core.iter().enumerate() {
            match (state.absent[worker], present) {
                (None, false) => state.absent[worker] = Some(Absence::CoreLost),
                (Some(Absence::CoreLost), true) => state.absent[worker] = None,
                _ => {}
            }
        }
        if state.absent.iter().all(Option::is_some) {
            // All workers have lost their cores: no worker is preferable to another.
            state.absent.clone_from(&before);
        }
        let returned: Vec<usize> = (0..before.len())
            .filter(|worker| before[*worker].is_some() && state.absent[*worker].is_none())
            .collect();
        let changed = state.absent != before;
        drop(state);
        for worker in returned {
            if let Some(core) = cores[worker] {
                self.pin(worker, core);
            }
        }
        changed
    }

    /// Pins a worker to a core again. A refusal leaves it where the system puts it.
    fn pin(&self, worker: usize, core: usize) {
        let pinned = start_on_worker(&self.handle, WorkerId(worker as u16), move |_| {
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
            let workers = state.absent.len();
            if worker.index() >= workers {
                return Err(misuse(format!(
                    "there is no worker {} to retire; the database has workers 0 to {}",
                    worker.0,
                    workers - 1
                )));
            }
            let others = (0..workers).any(|other| other != worker.index() && state.absent[other].is_none());
            if !others {
                return Err(misuse(format!(
                    "worker {} is the last one that may own data; add another before it retires",
                    worker.0
                )));
            }
            state.absent[worker.index()] = Some(Absence::Retired);
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

    /// Brings a retired worker back, on core `core`, and returns its number.
    pub fn add(&self, core: usize) -> Result<WorkerId, Abort> {
        let worker = {
            let mut state = self.lock();
            let retired = state.absent.iter().position(|why| *why == Some(Absence::Retired));
            let Some(worker) = retired else {
                return Err(misuse(format!(
                    "none of the {} workers has retired; open the database with more workers to use more cores",
                    state.absent.len()
                )));
            };
            state.absent[worker] = None;
            if state.cores[worker].is_some() {
                state.cores[worker] = Some(core);
            }
            worker
        };
        if self.lock().cores[worker].is_some() {
            self.pin(worker, core);
        }
        self.nudge();
        Ok(WorkerId(worker as u16))
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

/// Returns true if the calling thread may run on the core it was pinned to, or if the operating system cannot report it.
fn has_core(core: Option<usize>) -> bool {
    let Some(core) = core else { return true };
    affinity::current_thread_cpus().map_or(true, |cpus| cpus.contains(&core))
}
