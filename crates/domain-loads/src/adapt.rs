//! [`Adapter`]: the thread that reports the load of domains to the controller, and carries out what it decides, while clients go on.
//!
//! Owns: the samples, and the list of processing units that no domain has. Never: decides; `atrapos-composition` does.
//!
//! The load of a worker is seen from outside, by looks at its requests at moments that do not depend on it: the share of looks that find any. So
//! reports cost the worker nothing but a message for each observation.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use atrapos_composition::{
    ControllerSettings, Curves, DomainChange, DomainController, DomainDecision, DomainsObservation,
    ObservedDomain, ObservedStructure, WorkerLoad,
};
use atrapos_domains::{DomainError, DomainReport, Domains, StructureReport};
use atrapos_topology::CpuId;

/// Looks at the requests for each observation.
const LOOKS: u32 = 100;

/// Settings of the adaptation of domains.
#[derive(Clone, Debug)]
pub struct AdaptationSettings {
    /// Curves of what sizes are worth, if there are any.
    pub curves: Option<Curves>,
    /// The settings of the controller.
    pub controller: ControllerSettings,
    /// The length of an observation.
    pub interval: Duration,
    /// Called with every decision as it is made.
    pub watch: fn(&Adaptation),
}

impl Default for AdaptationSettings {
    fn default() -> AdaptationSettings {
        AdaptationSettings {
            curves: None,
            controller: ControllerSettings::default(),
            interval: Duration::from_millis(100),
            watch: |_| (),
        }
    }
}

/// A decision, and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Adaptation {
    /// Time since the run began.
    pub at: Duration,
    /// Tasks per second in the observation.
    pub tasks_per_second: f64,
    /// The decision.
    pub decision: DomainDecision,
    /// The reason for which its change could not be made, if it could not.
    pub refused: Option<String>,
}

/// A structure, as the controller has to know it.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) mix: String,
}

pub(crate) struct Adapter<'a> {
    settings: &'a AdaptationSettings,
    controller: DomainController,
    structures: Vec<Known>,
    spare: Vec<CpuId>,
    adaptations: Vec<Adaptation>,
}

/// Looks at the requests of a worker.
#[derive(Clone, Copy, Debug, Default)]
struct Looks {
    busy: u32,
    waiting: usize,
}

/// Tasks, operations and retries of a structure so far.
type Counts = BTreeMap<String, (u64, u64, u64)>;

impl<'a> Adapter<'a> {
    pub(crate) fn new(
        settings: &'a AdaptationSettings,
        structures: Vec<Known>,
        spare: Vec<CpuId>,
    ) -> Adapter<'a> {
        let controller = DomainController::new(settings.curves.clone(), settings.controller);
        Adapter { settings, controller, structures, spare, adaptations: Vec::new() }
    }

    pub(crate) fn finish(self) -> Vec<Adaptation> {
        self.adaptations
    }

    /// Observes and changes domains until it is over.
    pub(crate) fn run(&mut self, domains: &Domains, over: &AtomicBool) {
        let began = Instant::now();
        let mut before: Option<(Instant, Counts)> = None;
        while !over.load(Ordering::Acquire) {
            let looks = self.look(domains, over);
            let Some(reports) = domains.structures(self.settings.interval) else {
                // A worker is inside a long task: what it has counted will come with the next observation.
                before = None;
                continue;
            };
            let (now, counts) = (Instant::now(), counts(&reports));
            let Some((then, counts_before)) = before.replace((now, counts.clone())) else { continue };
            if over.load(Ordering::Acquire) {
                break;
            }
            let seconds = now.duration_since(then).as_secs_f64();
            let observation = self.observation(domains, &looks, &reports, (&counts_before, seconds));
            let decision = self.controller.decide(&observation);
            let made = decision.change.as_ref().map_or(Ok(()), |change| self.make(domains, change));
            if made.is_err() {
                self.controller.refused();
            }
            if decision.change.is_some() {
                // Whoever has less than before counts from nothing again.
                before = None;
            }
            let adaptation = Adaptation {
                at: began.elapsed(),
                tasks_per_second: observation.tasks_per_second(),
                decision,
                refused: made.err().map(|error| error.to_string()),
            };
            (self.settings.watch)(&adaptation);
            self.adaptations.push(adaptation);
        }
    }

    /// Looks at the requests of all workers for the length of an observation; returns what was seen, by worker.
    fn look(&self, domains: &Domains, over: &AtomicBool) -> BTreeMap<u32, Looks> {
        let mut seen: BTreeMap<u32, Looks> = BTreeMap::new();
        for _ in 0..LOOKS {
            if over.load(Ordering::Acquire) {
                break;
            }
            std::thread::sleep(self.settings.interval / LOOKS);
            for worker in domains.report().iter().flat_map(|domain| &domain.workers) {
                let looks = seen.entry(worker.worker).or_default();
                looks.busy += u32::from(worker.requests > 0);
                looks.waiting += worker.requests.saturating_sub(1);
            }
        }
        seen
    }

    fn observation(
        &self,
        domains: &Domains,
        looks: &BTreeMap<u32, Looks>,
        reports: &[StructureReport],
        (before, seconds): (&Counts, f64),
    ) -> DomainsObservation {
        let now = counts(reports);
        let structure = |report: &StructureReport| {
            let known = self.structures.iter().find(|known| known.name == report.name)?;
            let since = |part: fn(&(u64, u64, u64)) -> u64| {
                let part = |counts: &Counts| counts.get(&report.name).map_or(0, part);
                part(&now).saturating_sub(part(before))
            };
            let operations = since(|counts| counts.1);
            let retries = since(|counts| counts.2) as f64 / operations.max(1) as f64;
            Some(ObservedStructure {
                name: report.name.clone(),
                kind: known.kind.clone(),
                mix: known.mix.clone(),
                tasks_per_second: since(|counts| counts.0) as f64 / seconds.max(1e-9),
                retries_per_operation: report.retries.is_some().then_some(retries),
                owned: report.owned,
            })
        };
        let domain = |domain: DomainReport| {
            let load = |worker: u32| {
                let looks = looks.get(&worker).copied().unwrap_or_default();
                let part = |count: f64| count / f64::from(LOOKS);
                WorkerLoad { busy: part(f64::from(looks.busy)), waiting: part(looks.waiting as f64) }
            };
            let own = reports.iter().filter(|report| report.domain.as_ref() == Some(&domain.name));
            ObservedDomain {
                structures: own.filter_map(structure).collect(),
                workers: domain.workers.iter().map(|worker| load(worker.worker)).collect(),
                name: domain.name,
            }
        };
        let domains = domains.report().into_iter().map(domain).collect();
        DomainsObservation { domains, spare: self.spare.len() }
    }

    /// Carries a change out, and waits until it is done.
    fn make(&mut self, domains: &Domains, change: &DomainChange) -> Result<(), DomainError> {
        match change {
            DomainChange::Grow { domain } => self.grow(domains, domain),
            DomainChange::Shrink { domain } => self.shrink(domains, domain),
            DomainChange::Give { from, to } => {
                self.shrink(domains, from)?;
                self.grow(domains, to)
            }
            DomainChange::Move { structure, to, .. } => domains.move_structure(structure, to)?.wait(),
            DomainChange::Split { domain, new, workers, structures } => {
                let structures: Vec<&str> = structures.iter().map(String::as_str).collect();
                domains.split(domain, new, *workers, &structures)?.wait()
            }
            DomainChange::Merge { domain, into, .. } => domains.merge(domain, into)?.wait(),
        }
    }

    fn grow(&mut self, domains: &Domains, domain: &str) -> Result<(), DomainError> {
        // The controller grows nothing without a spare processing unit.
        let Some(cpu) = self.spare.pop() else { return Ok(()) };
        domains.grow(domain, cpu).inspect_err(|_| self.spare.push(cpu))
    }

    fn shrink(&mut self, domains: &Domains, domain: &str) -> Result<(), DomainError> {
        let report = domains.report();
        // The youngest worker leaves. One that is not pinned leaves any unit: the system decides where others run.
        let leaving = report.iter().find(|one| one.name == domain).and_then(|one| one.workers.last());
        let cpu = leaving.and_then(|worker| worker.cpu).unwrap_or(CpuId(0));
        domains.shrink(domain)?.wait()?;
        self.spare.push(cpu);
        Ok(())
    }
}

fn counts(reports: &[StructureReport]) -> Counts {
    let count = |report: &StructureReport| {
        let retries = report.retries.unwrap_or_default();
        (report.name.clone(), (report.tasks, retries.operations, retries.retries))
    };
    reports.iter().map(count).collect()
}
