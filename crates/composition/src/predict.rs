//! The model of the controller: what changes of domains do to their loads.
//!
//! Owns: the loads that structures put on domains, and the candidates. Never: decides whether a change is worth it.
//!
//! The load of a domain is the share of its time in which it is busy. It is divided among its structures by their tasks and what a task costs: the
//! inverse of their curves at the domain's size. In a domain of another size a structure's load is multiplied by the throughput of its curve at the old
//! size over that at the new one. All clients slow down to the domain that is behind, so the throughput after a change is the greatest load
//! before over the greatest load after.
//!
//! A size that a curve does not reach is worth nothing known, and no candidate leads there. A structure without a curve gains from `m` workers instead of one what its
//! retries leave: with `r` retries per operation at `n` workers, `m / (1 + r (m - 1) / (n - 1))`; where retries are known besides a curve, the lesser gain
//! counts.

use crate::controller::{DomainChange, DomainsObservation, ObservedStructure};
use crate::curve::{Curve, Curves};
use crate::statistics::Level;

/// A candidate and its throughput over that before.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Prediction {
    pub(crate) change: DomainChange,
    pub(crate) gain: f64,
}

/// A domain as the model changes it: its workers, and the structures with the domain in which they were observed.
#[derive(Debug, Clone)]
struct Planned {
    workers: usize,
    structures: Vec<(usize, usize)>,
}

pub(crate) struct Model<'a> {
    observation: &'a DomainsObservation,
    curves: Option<&'a Curves>,
    /// Load of each structure of each domain where it is.
    loads: Vec<Vec<f64>>,
    busy: Vec<f64>,
}

impl<'a> Model<'a> {
    pub(crate) fn new(observation: &'a DomainsObservation, curves: Option<&'a Curves>) -> Self {
        let mut model = Self { observation, curves, loads: Vec::new(), busy: Vec::new() };
        for domain in &observation.domains {
            let workers = domain.workers.len();
            let busy = domain.workers.iter().map(|worker| worker.busy).sum::<f64>() / workers.max(1) as f64;
            let cost = |one: &ObservedStructure| {
                let throughput = model.curve(one).and_then(|curve| throughput(curve, workers));
                one.tasks_per_second / throughput.filter(|throughput| *throughput > 0.0).unwrap_or(1.0)
            };
            // Costs of structures with and without curves cannot be compared: then tasks alone count.
            let all_have = domain.structures.iter().all(|one| {
                model.curve(one).and_then(|curve| throughput(curve, workers)).is_some_and(|some| some > 0.0)
            });
            let costs: Vec<f64> = domain
                .structures
                .iter()
                .map(|one| if all_have { cost(one) } else { one.tasks_per_second })
                .collect();
            let sum: f64 = costs.iter().sum();
            let part = |cost: f64| if sum > 0.0 { busy * cost / sum } else { 0.0 };
            model.loads.push(costs.into_iter().map(part).collect());
            model.busy.push(busy);
        }
        model
    }

    /// The load of a domain.
    pub(crate) fn busy(&self, domain: usize) -> f64 {
        self.busy[domain]
    }

    fn curve(&self, structure: &ObservedStructure) -> Option<&'a Curve> {
        self.curves?.get(&structure.kind, &structure.mix)
    }

    /// The throughput of a structure with `to` workers over that with `from`; `None` if nothing is known of it.
    fn factor(&self, structure: &ObservedStructure, from: usize, to: usize) -> Option<f64> {
        if structure.owned || from == to {
            return Some(1.0);
        }
        let by_curve = match self.curve(structure) {
            Some(curve) => {
                let before = throughput(curve, from).filter(|before| *before > 0.0)?;
                Some(throughput(curve, to)? / before)
            }
            None => None,
        };
        let retries = structure.retries_per_operation.filter(|_| from > 1);
        let left = |workers: usize| {
            let others = retries.map_or(0.0, |retries| retries * (workers - 1) as f64 / (from - 1) as f64);
            workers as f64 / (1.0 + others)
        };
        let by_retries = left(to) / left(from);
        Some(by_curve.map_or(by_retries, |factor| {
            if retries.is_some() && to > from { factor.min(by_retries) } else { factor }
        }))
    }

    /// The load of a domain that is planned.
    fn load(&self, planned: &Planned) -> Option<f64> {
        let (mut all, mut owned_most) = (0.0, 0.0_f64);
        for &(domain, at) in &planned.structures {
            let observed = &self.observation.domains[domain];
            let structure = &observed.structures[at];
            let load =
                self.loads[domain][at] / self.factor(structure, observed.workers.len(), planned.workers)?;
            if structure.owned {
                // It keeps one worker busy, whatever the number of others.
                let of_worker = load * observed.workers.len() as f64;
                owned_most = owned_most.max(of_worker);
                all += of_worker / planned.workers as f64;
            } else {
                all += load;
            }
        }
        Some(all.max(owned_most))
    }

    fn planned(&self) -> Vec<Planned> {
        let domains = self.observation.domains.iter().enumerate();
        domains
            .map(|(number, domain)| Planned {
                workers: domain.workers.len(),
                structures: (0..domain.structures.len()).map(|at| (number, at)).collect(),
            })
            .collect()
    }

    /// The gain of a plan.
    fn gain(&self, planned: &[Planned]) -> Option<f64> {
        let after = planned
            .iter()
            .map(|one| self.load(one))
            .try_fold(0.0, |most: f64, load| Some(most.max(load?)))?;
        let before = self.busy.iter().copied().fold(0.0, f64::max);
        (after > 0.0).then(|| before / after)
    }

    /// The best of all changes for a domain that is behind; of equal ones, the first, which moves least.
    pub(crate) fn best(
        &self,
        behind: usize,
        new: &str,
        allowed: &dyn Fn(&DomainChange) -> bool,
    ) -> Option<Prediction> {
        let mut best: Option<Prediction> = None;
        let mut consider = |change: DomainChange, planned: Vec<Planned>| {
            let Some(gain) = self.gain(&planned).filter(|_| allowed(&change)) else { return };
            // What is hardly better does not displace what moves less.
            if best.as_ref().is_none_or(|best| gain > best.gain * 1.02) {
                best = Some(Prediction { change, gain });
            }
        };
        self.resized(behind, &mut consider);
        self.moved(behind, &mut consider);
        self.split(behind, new, &mut consider);
        self.merged(behind, &mut consider);
        best
    }

    fn name(&self, domain: usize) -> String {
        self.observation.domains[domain].name.clone()
    }

    fn resized(&self, behind: usize, consider: &mut dyn FnMut(DomainChange, Vec<Planned>)) {
        let plan = self.planned();
        if self.observation.spare > 0 {
            let mut grown = plan.clone();
            grown[behind].workers += 1;
            consider(DomainChange::Grow { domain: self.name(behind) }, grown);
        }
        if plan[behind].workers > 1 {
            let mut shrunk = plan.clone();
            shrunk[behind].workers -= 1;
            consider(DomainChange::Shrink { domain: self.name(behind) }, shrunk);
        }
        for from in (0..plan.len()).filter(|from| *from != behind && plan[*from].workers > 1) {
            let mut given = plan.clone();
            given[from].workers -= 1;
            given[behind].workers += 1;
            consider(DomainChange::Give { from: self.name(from), to: self.name(behind) }, given);
        }
    }

    fn moved(&self, behind: usize, consider: &mut dyn FnMut(DomainChange, Vec<Planned>)) {
        let plan = self.planned();
        if plan[behind].structures.len() < 2 {
            return;
        }
        for at in 0..plan[behind].structures.len() {
            for to in (0..plan.len()).filter(|to| *to != behind) {
                let mut moved = plan.clone();
                let structure = moved[behind].structures.remove(at);
                moved[to].structures.push(structure);
                let name = self.observation.domains[behind].structures[at].name.clone();
                let change =
                    DomainChange::Move { structure: name, from: self.name(behind), to: self.name(to) };
                consider(change, moved);
            }
        }
    }

    /// Splits with every number of workers: structures go, the heaviest first, to the side with the lesser load per worker.
    fn split(&self, behind: usize, new: &str, consider: &mut dyn FnMut(DomainChange, Vec<Planned>)) {
        let plan = self.planned();
        let (workers, structures) = (plan[behind].workers, &plan[behind].structures);
        if structures.len() < 2 {
            return;
        }
        let mut heaviest = structures.clone();
        heaviest.sort_by(|a, b| self.loads[b.0][b.1].total_cmp(&self.loads[a.0][a.1]));
        for leaving in 1..workers {
            let sizes = [workers - leaving, leaving];
            let mut sides = sizes.map(|workers| Planned { workers, structures: Vec::new() });
            let mut loads = [0.0; 2];
            for &structure in &heaviest {
                let load = self.loads[structure.0][structure.1];
                let after = |side: usize| (loads[side] + load) / sizes[side] as f64;
                let side = usize::from(after(1) < after(0));
                loads[side] += load;
                sides[side].structures.push(structure);
            }
            if sides.iter().any(|side| side.structures.is_empty()) {
                continue;
            }
            let [staying, gone] = sides;
            let name =
                |&(domain, at): &(usize, usize)| self.observation.domains[domain].structures[at].name.clone();
            let structures = gone.structures.iter().map(name).collect();
            let change = DomainChange::Split {
                domain: self.name(behind),
                new: new.to_owned(),
                workers: leaving,
                structures,
            };
            let mut split = plan.clone();
            split[behind] = staying;
            split.push(gone);
            consider(change, split);
        }
    }

    fn merged(&self, behind: usize, consider: &mut dyn FnMut(DomainChange, Vec<Planned>)) {
        let plan = self.planned();
        for ends in (0..plan.len()).filter(|ends| *ends != behind) {
            let mut merged = plan.clone();
            let Planned { workers, structures } = merged[ends].clone();
            let names =
                self.observation.domains[ends].structures.iter().map(|one| one.name.clone()).collect();
            merged[behind].workers += workers;
            merged[behind].structures.extend(structures);
            merged.remove(ends);
            let (domain, into) = (self.name(ends), self.name(behind));
            consider(DomainChange::Merge { domain, into, workers, structures: names }, merged);
        }
    }

    /// Says why something is to be done for a domain that is behind.
    pub(crate) fn reason(&self, behind: usize) -> String {
        let domain = &self.observation.domains[behind];
        let workers = domain.workers.len();
        let waiting = domain.workers.iter().map(|worker| worker.waiting).sum::<f64>() / workers.max(1) as f64;
        let contended =
            domain.structures.iter().filter_map(|one| Some((one.retries_per_operation?, &one.name)));
        let contended = contended.filter(|(retries, _)| *retries >= 0.1).max_by(|a, b| a.0.total_cmp(&b.0));
        let retried = contended.map_or(String::new(), |(retries, name)| {
            format!(", and operations on {name} are begun anew {retries:.1} times")
        });
        format!(
            "{} is busy {:.0}% of the time with {waiting:.1} requests waiting for each worker{retried}",
            domain.name,
            100.0 * self.busy[behind]
        )
    }
}

/// The throughput of a curve at a size: between two sizes that were measured, on the line between them; `None` beyond the last one, and before the first.
fn throughput(curve: &Curve, workers: usize) -> Option<f64> {
    let level = |at: usize| Level::of(&curve.points[at].throughputs_per_second).mean;
    let size = |at: usize| curve.points[at].workers as usize;
    let at = curve.points.iter().position(|point| point.workers as usize >= workers)?;
    if size(at) == workers {
        return Some(level(at));
    }
    let below = at.checked_sub(1)?;
    let part = (workers - size(below)) as f64 / (size(at) - size(below)) as f64;
    Some(level(below) + part * (level(at) - level(below)))
}
