//! The controller of domains: from reports of their load, queues and contention to one change at a time, or none.
//!
//! Owns: when a change is worth it, when it is taken back, and the sentences. The model is in `predict`. Never: carries a change out,
//! reads a clock or waits: time is the number of observations.
//!
//! # The rule
//! Clients that use several domains are held up by the one that is behind (`Virtual domains §5.2`: loads per worker are to be equal). So a change is
//! worth what it lowers the load of the most loaded domain by; and as long as nobody waits there, none is worth anything.
//!
//! # Hysteresis
//! - A domain is *behind* only if it is nearly always busy and requests wait behind those that run.
//! - A change has to promise [`ControllerSettings::gain_min`], and to be the best one in [`ControllerSettings::agreeing`] observations one after the other.
//! - After a change, [`ControllerSettings::settling`] observations count for nothing. The next one is compared with that before the change: if
//!   less than [`ControllerSettings::kept_min`] of the promise has come, the change is taken back, and not tried again for a number of
//!   observations that doubles every time. Nothing at all is tried for half as many, which double with every change that is taken back after another.
//!   So curves that are wrong cost a bounded part of the time, and never lead round in circles.
//!
//! Invariants: the same observations lead to the same decisions. A change names domains and structures of the last observation.

use std::collections::BTreeMap;

use crate::curve::Curves;
use crate::predict::{Model, Prediction};

/// A worker of a domain, over the time of an observation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorkerLoad {
    /// Share of the time in which it had a request, from 0 to 1.
    pub busy: f64,
    /// Requests that waited behind the one that it ran, on average.
    pub waiting: f64,
}

/// A structure of a domain, over the time of an observation.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedStructure {
    /// Its name.
    pub name: String,
    /// Its kind and mix, by which its curve is found.
    pub kind: String,
    /// See `kind`.
    pub mix: String,
    /// Tasks per second.
    pub tasks_per_second: f64,
    /// Attempts that were given up, per operation; `None` if it does not count them.
    pub retries_per_operation: Option<f64>,
    /// Set if one worker owns it: it gains nothing from another one, and is with any number.
    pub owned: bool,
}

/// A domain, over the time of an observation.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedDomain {
    /// Its name.
    pub name: String,
    /// Its workers; at least one.
    pub workers: Vec<WorkerLoad>,
    /// Its structures.
    pub structures: Vec<ObservedStructure>,
}

/// All domains, over some time.
#[derive(Debug, Clone, PartialEq)]
pub struct DomainsObservation {
    /// The domains.
    pub domains: Vec<ObservedDomain>,
    /// Processing units that no domain and no client has.
    pub spare: usize,
}

impl DomainsObservation {
    /// Tasks per second of all structures.
    #[must_use]
    pub fn tasks_per_second(&self) -> f64 {
        self.domains.iter().flat_map(|domain| &domain.structures).map(|one| one.tasks_per_second).sum()
    }
}

/// A change of domains, by their names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum DomainChange {
    /// The domain gets another worker, on a spare processing unit.
    Grow {
        /// The domain.
        domain: String,
    },
    /// The domain has a worker less, whose processing unit is spare.
    Shrink {
        /// The domain.
        domain: String,
    },
    /// A worker's processing unit goes from one domain to another.
    Give {
        /// The domain that shrinks.
        from: String,
        /// The domain that grows.
        to: String,
    },
    /// A structure goes to another domain.
    Move {
        /// The structure.
        structure: String,
        /// The domain that it leaves.
        from: String,
        /// The domain that it goes to.
        to: String,
    },
    /// Some workers and structures become a domain of their own.
    Split {
        /// The domain.
        domain: String,
        /// The name of the new one.
        new: String,
        /// The number of workers that leave.
        workers: usize,
        /// The structures that leave.
        structures: Vec<String>,
    },
    /// A domain becomes part of another one.
    Merge {
        /// The domain that ends.
        domain: String,
        /// The other one.
        into: String,
        /// Workers of the one that ends.
        workers: usize,
        /// Structures of the one that ends.
        structures: Vec<String>,
    },
}

impl DomainChange {
    /// The change that takes this one back.
    #[must_use]
    pub fn inverse(&self) -> DomainChange {
        match self.clone() {
            DomainChange::Grow { domain } => DomainChange::Shrink { domain },
            DomainChange::Shrink { domain } => DomainChange::Grow { domain },
            DomainChange::Give { from, to } => DomainChange::Give { from: to, to: from },
            DomainChange::Move { structure, from, to } => {
                DomainChange::Move { structure, from: to, to: from }
            }
            DomainChange::Split { domain, new, workers, structures } => {
                DomainChange::Merge { domain: new, into: domain, workers, structures }
            }
            DomainChange::Merge { domain, into, workers, structures } => {
                DomainChange::Split { domain: into, new: domain, workers, structures }
            }
        }
    }
}

impl std::fmt::Display for DomainChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DomainChange::Grow { domain } => write!(f, "{domain} grows by a worker"),
            DomainChange::Shrink { domain } => write!(f, "{domain} shrinks by a worker"),
            DomainChange::Give { from, to } => write!(f, "{from} gives a worker to {to}"),
            DomainChange::Move { structure, from, to } => {
                write!(f, "structure {structure} moves from {from} to {to}")
            }
            DomainChange::Split { domain, new, workers, structures } => {
                let names = structures.join(", ");
                write!(f, "{domain} is split: {new} gets {workers} of its workers, and {names}")
            }
            DomainChange::Merge { domain, into, .. } => write!(f, "{domain} becomes part of {into}"),
        }
    }
}

/// The outcome of an observation.
#[derive(Debug, Clone, PartialEq)]
pub struct DomainDecision {
    /// The number of the observation, from 1.
    pub observation: u64,
    /// The change that is to be carried out, if any.
    pub change: Option<DomainChange>,
    /// The reason, as a sentence without a full stop.
    pub reason: String,
    /// Throughput that the model expects after the change, over that before; `None` if there is no change, or one is taken back.
    pub gain: Option<f64>,
}

impl std::fmt::Display for DomainDecision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.change, self.gain) {
            (Some(change), Some(gain)) => {
                write!(f, "{change}, because {}; expected {:+.0}%", self.reason, 100.0 * (gain - 1.0))
            }
            (Some(change), None) => write!(f, "{change}, because {}", self.reason),
            (None, _) => write!(f, "no change: {}", self.reason),
        }
    }
}

/// Settings of a [`DomainController`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ControllerSettings {
    /// Share of its time from which on a domain counts as always busy.
    pub busy_min: f64,
    /// Requests that have to wait behind those that run, on average, before a domain counts as behind.
    pub waiting_min: f64,
    /// Gain that a change has to promise, as a part of the throughput.
    pub gain_min: f64,
    /// Observations one after the other that have to agree on a change.
    pub agreeing: u32,
    /// Observations after a change that count for nothing.
    pub settling: u32,
    /// Part of the promised gain that has to come, or the change is taken back.
    pub kept_min: f64,
    /// Observations for which a change that was taken back is not tried again, the first time.
    pub pause: u64,
    /// Set if domains may be split and merged.
    pub reshape: bool,
}

impl Default for ControllerSettings {
    fn default() -> Self {
        Self {
            busy_min: 0.9,
            waiting_min: 0.25,
            gain_min: 0.1,
            agreeing: 2,
            settling: 1,
            kept_min: 0.25,
            pause: 20,
            reshape: true,
        }
    }
}

/// A change that was carried out and not judged yet.
#[derive(Debug, Clone)]
struct Tried {
    change: DomainChange,
    throughput_before: f64,
    gain: f64,
    settling: u32,
}

/// A change that was taken back.
#[derive(Debug, Clone, Copy, Default)]
struct Failed {
    times: u32,
    /// The observation from which on it may be tried again.
    until: u64,
}

impl Failed {
    /// Notes one more time, with a pause that has doubled with every one before.
    fn note(&mut self, now: u64, pause: u64) {
        self.until = now + (pause << self.times.min(20));
        self.times += 1;
    }
}

/// See the module's introduction.
#[derive(Debug)]
pub struct DomainController {
    settings: ControllerSettings,
    curves: Option<Curves>,
    observations: u64,
    /// The change that the last observations have agreed on, and how many.
    wanted: Option<(DomainChange, u32)>,
    tried: Option<Tried>,
    failed: BTreeMap<DomainChange, Failed>,
    /// All changes together: those that were taken back one after the other.
    all: Failed,
    /// Domains that were made so far, for names.
    made: u64,
}

impl DomainController {
    /// A controller that has seen nothing. Without curves, a structure is expected to gain from workers what its retries leave.
    #[must_use]
    pub fn new(curves: Option<Curves>, settings: ControllerSettings) -> Self {
        let (failed, all) = (BTreeMap::new(), Failed::default());
        Self { settings, curves, observations: 0, wanted: None, tried: None, failed, all, made: 0 }
    }

    /// Decides about an observation. A change is expected to be carried out before the next one; if it cannot be, call
    /// [`refused`](Self::refused).
    pub fn decide(&mut self, observation: &DomainsObservation) -> DomainDecision {
        self.observations += 1;
        let (change, reason, gain) = match self.judge(observation) {
            Some((change, reason)) => (change, reason, None),
            None => self.look(observation),
        };
        DomainDecision { observation: self.observations, change, reason, gain }
    }

    /// Says that the last change was not carried out: it is not tried again for a while.
    pub fn refused(&mut self) {
        if let Some(tried) = self.tried.take() {
            self.fail(tried.change);
        }
    }

    /// Compares the throughput with that before the last change. `None` if there is nothing to compare, or the change was good.
    fn judge(&mut self, observation: &DomainsObservation) -> Option<(Option<DomainChange>, String)> {
        let tried = self.tried.as_mut()?;
        if tried.settling > 0 {
            tried.settling -= 1;
            return Some((None, "the last change has just been made".to_owned()));
        }
        let tried = self.tried.take()?;
        let ratio = observation.tasks_per_second() / tried.throughput_before.max(f64::MIN_POSITIVE);
        if ratio - 1.0 >= self.settings.kept_min * (tried.gain - 1.0) {
            self.failed.remove(&tried.change);
            self.all = Failed::default();
            return None;
        }
        let (came, promised) = (100.0 * (ratio - 1.0), 100.0 * (tried.gain - 1.0));
        let reason = format!(
            "throughput has changed by {came:+.0}% and not by {promised:+.0}% since {}",
            tried.change
        );
        let back = tried.change.inverse();
        self.fail(tried.change);
        Some((Some(back), reason))
    }

    fn fail(&mut self, change: DomainChange) {
        let (now, pause) = (self.observations, self.settings.pause);
        self.failed.entry(change).or_default().note(now, pause);
        self.all.note(now, pause / 2);
    }

    /// Looks for a change.
    fn look(&mut self, observation: &DomainsObservation) -> (Option<DomainChange>, String, Option<f64>) {
        if self.observations < self.all.until {
            let reason = format!(
                "what was expected of the last change has not come; pause until observation {}",
                self.all.until
            );
            return (None, reason, None);
        }
        let model = Model::new(observation, self.curves.as_ref());
        let Some(behind) = self.behind(observation, &model) else {
            self.wanted = None;
            return (None, "no domain is behind its clients".to_owned(), None);
        };
        let name = self.new_name(observation);
        let allowed = |change: &DomainChange| {
            let failed = self.failed.get(change);
            failed.is_none_or(|failed| self.observations >= failed.until)
                && (self.settings.reshape
                    || !matches!(change, DomainChange::Split { .. } | DomainChange::Merge { .. }))
        };
        let best = model.best(behind, &name, &allowed);
        let domain = &observation.domains[behind];
        let Some(Prediction { change, gain }) = best.filter(|best| best.gain >= 1.0 + self.settings.gain_min)
        else {
            self.wanted = None;
            let reason = format!(
                "{} is behind, but no change promises {:.0}%",
                domain.name,
                100.0 * self.settings.gain_min
            );
            return (None, reason, None);
        };
        let times = match self.wanted.take() {
            Some((wanted, times)) if wanted == change => times + 1,
            _ => 1,
        };
        let reason = model.reason(behind);
        if times < self.settings.agreeing {
            let waits = format!("{reason}; if that lasts, {change}");
            self.wanted = Some((change, times));
            return (None, waits, None);
        }
        self.made += u64::from(matches!(change, DomainChange::Split { .. }));
        self.tried = Some(Tried {
            change: change.clone(),
            throughput_before: observation.tasks_per_second(),
            gain,
            settling: self.settings.settling,
        });
        (Some(change), reason, Some(gain))
    }

    /// The domain that is behind, if there is one: the most loaded.
    fn behind(&self, observation: &DomainsObservation, model: &Model<'_>) -> Option<usize> {
        let at = (0..observation.domains.len()).max_by(|a, b| model.busy(*a).total_cmp(&model.busy(*b)))?;
        let workers = &observation.domains[at].workers;
        let waiting = workers.iter().map(|worker| worker.waiting).sum::<f64>() / workers.len().max(1) as f64;
        (model.busy(at) >= self.settings.busy_min && waiting >= self.settings.waiting_min).then_some(at)
    }

    /// A name that no domain has.
    fn new_name(&self, observation: &DomainsObservation) -> String {
        let free = |number: &u64| {
            let name = format!("split-{number}");
            observation.domains.iter().all(|domain| domain.name != name)
        };
        let number = (self.made + 1..).find(free).unwrap_or(u64::MAX);
        format!("split-{number}")
    }
}
