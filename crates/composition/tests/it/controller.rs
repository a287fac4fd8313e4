//! The controller in simulated worlds: clients in a closed loop, domains whose structures have the curves of the world, and noise.

use std::collections::BTreeMap;

use atrapos_composition::{
    ControllerSettings, Curve, Curves, DomainChange, DomainController, DomainsObservation, ObservedDomain,
    ObservedStructure, Point, WorkerLoad,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Workers up to which structures have curves.
const WORKERS_MAX: usize = 16;
/// Observations of one world.
const OBSERVATIONS: u64 = 400;

/// A structure: its share of all tasks, and its throughput with 1, 2, .. workers.
#[derive(Clone)]
struct Structure {
    share: f64,
    throughputs: Vec<f64>,
    owned: bool,
}

struct World {
    structures: BTreeMap<String, Structure>,
    /// Workers and structures by name.
    domains: BTreeMap<String, (usize, Vec<String>)>,
    spare: usize,
    random: StdRng,
    noise: f64,
}

impl World {
    /// A world in which structures gain up to a size of their own and lose beyond, in domains that nobody composed.
    fn new(seed: u64) -> World {
        let mut random = StdRng::seed_from_u64(seed);
        let mut structures = BTreeMap::new();
        for number in 0..random.random_range(3..8) {
            let peak = random.random_range(1..WORKERS_MAX) as f64;
            let level = random.random_range(0.5..2.0);
            let throughput = |workers: usize| {
                let workers = workers as f64;
                level * 1e6 * if workers <= peak { workers } else { peak * (peak / workers).powi(2) }
            };
            let throughputs = (1..=WORKERS_MAX).map(throughput).collect();
            let (share, owned) = (random.random_range(0.05..1.0), random.random_bool(0.2));
            structures.insert(format!("s{number}"), Structure { share, throughputs, owned });
        }
        let mut domains: BTreeMap<String, (usize, Vec<String>)> = BTreeMap::new();
        for number in 0..random.random_range(1..4) {
            domains.insert(format!("d{number}"), (random.random_range(1..5), Vec::new()));
        }
        let names: Vec<String> = domains.keys().cloned().collect();
        for name in structures.keys() {
            let domain = &names[random.random_range(0..names.len())];
            domains.get_mut(domain).expect("it is there").1.push(name.clone());
        }
        let spare = random.random_range(0..3);
        World { structures, domains, spare, random, noise: 0.02 }
    }

    /// Time of a domain per task of the world.
    fn cost(&self, (workers, structures): &(usize, Vec<String>)) -> f64 {
        let cost = |name: &String| {
            let Structure { share, throughputs, owned } = &self.structures[name];
            (share / throughputs[if *owned { 0 } else { workers - 1 }], *owned)
        };
        let costs: Vec<(f64, bool)> = structures.iter().map(cost).collect();
        let most = costs.iter().filter(|one| one.1).map(|one| one.0).fold(0.0, f64::max);
        let all: f64 = costs.iter().map(|one| if one.1 { one.0 / *workers as f64 } else { one.0 }).sum();
        all.max(most)
    }

    /// Tasks of the world per second: its slowest domain is always busy.
    fn throughput(&self) -> f64 {
        1.0 / self.domains.values().map(|domain| self.cost(domain)).fold(0.0, f64::max)
    }

    fn observe(&mut self) -> DomainsObservation {
        let throughput = self.throughput();
        let costs: Vec<f64> = self.domains.values().map(|domain| self.cost(domain)).collect();
        let (random, noise) = (&mut self.random, self.noise);
        let mut noisy = |value: f64| value * (1.0 + random.random_range(-noise..=noise));
        let mut domains = Vec::new();
        for ((name, (workers, structures)), cost) in self.domains.iter().zip(costs) {
            let busy = noisy(cost * throughput).min(1.0);
            // Behind the slowest domain all bursts gather; elsewhere hardly anybody waits.
            let waiting = if busy > 0.95 { 1.0 } else { 0.3 * busy * busy };
            let structure = |name: &String| {
                let of = &self.structures[name];
                (name.clone(), of.share * throughput, of.owned)
            };
            let structures = structures.iter().map(structure).map(|(name, tasks, owned)| ObservedStructure {
                kind: name.clone(),
                mix: "mix".to_owned(),
                tasks_per_second: noisy(tasks),
                retries_per_operation: None,
                owned,
                name,
            });
            domains.push(ObservedDomain {
                name: name.clone(),
                structures: structures.collect(),
                workers: vec![WorkerLoad { busy, waiting }; *workers],
            });
        }
        DomainsObservation { domains, spare: self.spare }
    }

    fn workers(&mut self, domain: &str) -> &mut usize {
        &mut self.domains.get_mut(domain).expect("the change names a domain of the world").0
    }

    fn take(&mut self, domain: &str, structure: &str) {
        let structures = &mut self.domains.get_mut(domain).expect("the change names a domain of the world").1;
        let at = structures.iter().position(|name| name == structure);
        structures.remove(at.expect("the change names a structure of the domain"));
    }

    fn make(&mut self, change: &DomainChange) {
        match change {
            DomainChange::Grow { domain } => {
                self.spare = self.spare.checked_sub(1).expect("there is a spare unit");
                *self.workers(domain) += 1;
            }
            DomainChange::Shrink { domain } => {
                *self.workers(domain) -= 1;
                self.spare += 1;
            }
            DomainChange::Give { from, to } => {
                *self.workers(from) -= 1;
                *self.workers(to) += 1;
            }
            DomainChange::Move { structure, from, to } => {
                self.take(from, structure);
                self.domains.get_mut(to).expect("it is there").1.push(structure.clone());
            }
            DomainChange::Split { domain, new, workers, structures } => {
                structures.iter().for_each(|structure| self.take(domain, structure));
                *self.workers(domain) -= workers;
                let before = self.domains.insert(new.clone(), (*workers, structures.clone()));
                assert!(before.is_none(), "a new domain has a name of its own");
            }
            DomainChange::Merge { domain, into, .. } => {
                let (workers, structures) = self.domains.remove(domain).expect("it is there");
                let into = self.domains.get_mut(into).expect("it is there");
                into.0 += workers;
                into.1.extend(structures);
            }
        }
        assert!(self.domains.values().all(|domain| domain.0 > 0), "{change}: a domain has no worker left");
    }

    fn curves(&self, turned: bool) -> Curves {
        let curve = |(name, structure): (&String, &Structure)| {
            let mut throughputs = structure.throughputs.clone();
            if turned {
                throughputs.reverse();
            }
            let point = |(at, throughput): (usize, &f64)| Point {
                workers: at as u32 + 1,
                throughputs_per_second: vec![*throughput],
            };
            Curve {
                kind: name.clone(),
                mix: "mix".to_owned(),
                points: throughputs.iter().enumerate().map(point).collect(),
            }
        };
        Curves::new(None, self.structures.iter().map(curve).collect())
            .expect("curves of the world are curves")
    }
}

/// Runs a world; returns the observations at which its domains changed, and the throughput after each.
fn run(world: &mut World, curves: Option<Curves>, settings: ControllerSettings) -> (Vec<u64>, Vec<f64>) {
    let mut controller = DomainController::new(curves, settings);
    let (mut changed, mut throughputs) = (Vec::new(), Vec::new());
    for _ in 0..OBSERVATIONS {
        let decision = controller.decide(&world.observe());
        assert!(!decision.reason.is_empty() && decision.to_string().contains(&decision.reason));
        if let Some(change) = &decision.change {
            world.make(change);
            changed.push(decision.observation);
        }
        throughputs.push(world.throughput());
    }
    (changed, throughputs)
}

#[test]
fn domains_come_to_rest_with_more_throughput() {
    let (mut gains, mut changes) = (0.0, 0);
    for seed in 0..300 {
        let mut world = World::new(seed);
        let before = world.throughput();
        let curves = world.curves(false);
        let (changed, throughputs) = run(&mut world, Some(curves), ControllerSettings::default());
        assert!(changed.len() <= 30, "seed {seed}: {} changes", changed.len());
        assert!(changed.last().is_none_or(|last| *last < 200), "seed {seed}: {changed:?}");
        let after = throughputs[throughputs.len() - 1];
        assert!(after >= before * 0.999, "seed {seed}: {before} before, {after} after");
        gains += (after / before).ln();
        changes += changed.len();
    }
    let gain = (gains / 300.0_f64).exp();
    assert!(gain > 1.3 && changes > 300, "{gain} times the throughput by {changes} changes");
}

#[test]
fn curves_that_are_wrong_cost_a_bounded_part() {
    for seed in 0..300 {
        let mut world = World::new(seed);
        let before = world.throughput();
        let curves = world.curves(true);
        let (_, throughputs) = run(&mut world, Some(curves), ControllerSettings::default());
        let last = &throughputs[throughputs.len() / 2..];
        let mean = last.iter().sum::<f64>() / last.len() as f64;
        assert!(mean >= 0.9 * before, "seed {seed}: {before} before, {mean} in the second half");
    }
}

#[test]
fn without_hysteresis_noise_alone_changes_domains_for_ever() {
    let settings = ControllerSettings {
        gain_min: -0.5,
        agreeing: 1,
        settling: 0,
        pause: 0,
        ..ControllerSettings::default()
    };
    let restless = (0..50).filter(|seed| {
        let mut world = World::new(*seed);
        let curves = world.curves(false);
        let (changed, _) = run(&mut world, Some(curves), settings);
        changed.last().is_some_and(|last| *last >= 200)
    });
    assert!(restless.count() > 25, "the tests above could not fail");
}

#[test]
fn a_structure_without_a_curve_gains_what_its_retries_leave() {
    let structure = |name: &str, retries| ObservedStructure {
        name: name.to_owned(),
        kind: "tree".to_owned(),
        mix: "mix".to_owned(),
        tasks_per_second: 1e6,
        retries_per_operation: Some(retries),
        owned: false,
    };
    let observed = |retries| DomainsObservation {
        domains: vec![ObservedDomain {
            name: "d".to_owned(),
            workers: vec![WorkerLoad { busy: 1.0, waiting: 2.0 }; 4],
            structures: vec![structure("s", retries)],
        }],
        spare: 1,
    };
    let decide = |retries| {
        let mut controller = DomainController::new(None, ControllerSettings::default());
        controller.decide(&observed(retries));
        controller.decide(&observed(retries))
    };
    let calm = decide(0.01);
    assert_eq!(calm.change, Some(DomainChange::Grow { domain: "d".to_owned() }));
    assert!(calm.gain.is_some_and(|gain| (1.2..1.25).contains(&gain)), "{calm}");
    let contended = decide(6.0);
    assert_eq!(contended.change, None, "{contended}");
    assert!(contended.reason.contains("no change promises"), "{contended}");
}

#[test]
fn nobody_is_helped_who_does_not_wait() {
    let mut world = World::new(1);
    let mut controller = DomainController::new(Some(world.curves(false)), ControllerSettings::default());
    let mut observation = world.observe();
    observation
        .domains
        .iter_mut()
        .flat_map(|domain| &mut domain.workers)
        .for_each(|worker| worker.waiting = 0.0);
    for _ in 0..10 {
        assert_eq!(controller.decide(&observation).change, None);
    }
}

#[test]
fn a_change_that_cannot_be_made_is_left_alone_for_a_while() {
    let settings = ControllerSettings::default();
    for seed in 0..50 {
        let mut world = World::new(seed);
        let mut controller = DomainController::new(Some(world.curves(false)), settings);
        let mut refused = BTreeMap::new();
        for at in 0..100 {
            let decision = controller.decide(&world.observe());
            if let Some(change) = decision.change {
                controller.refused();
                if let Some(before) = refused.insert(change, at) {
                    assert!(at - before >= settings.pause, "seed {seed}");
                }
            }
        }
    }
}
