//! Transactions as clients ask for them: classes, keys and costs, drawn from a seed.
//!
//! Owns: the distributions. Never: knows who owns a key.
//!
//! Invariant: the number of draws of a transaction depends on its class alone, so runs of one seed under different schemes see
//! nearly the same requests.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, StandardNormal};
use smallvec::SmallVec;

use crate::scenario::{KeyRelation, PhaseSpec, Scenario};

/// One access of a transaction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Access {
    pub(crate) table: u32,
    pub(crate) stage: u32,
    pub(crate) key: u64,
    /// Processor time, in ns.
    pub(crate) ns: f64,
    /// The worker that runs it, once that is known.
    pub(crate) owner: u32,
}

/// A transaction as it is asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Transaction {
    pub(crate) class: usize,
    pub(crate) accesses: SmallVec<[Access; 4]>,
    /// Factor on all its costs.
    pub(crate) factor: f64,
}

/// The draws of one run.
#[derive(Debug)]
pub(crate) struct Load<'s> {
    scenario: &'s Scenario,
    /// Tables of the accesses by class, in the order of stages.
    tables: Vec<Vec<u32>>,
    /// Rows of each table now.
    pub(crate) rows: Vec<u64>,
    /// Rows that one transaction at the end appends.
    appended: u64,
    random: SmallRng,
}

/// A bijection would be needed for a permutation; positions that are spread alike are enough here.
fn shuffled(position: f64, table: usize) -> f64 {
    let bits = (position * (1_u64 << 40) as f64) as u64 ^ ((table as u64) << 50);
    let mixed = bits.wrapping_add(0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((mixed ^ (mixed >> 32)) >> 11) as f64 / (1_u64 << 53) as f64
}

impl<'s> Load<'s> {
    pub(crate) fn new(scenario: &'s Scenario, appended: u64, seed: u64) -> Self {
        let table = |name: &str| scenario.table(name).unwrap_or(0) as u32;
        let of_class = |class: &crate::scenario::ClassSpec| {
            class.stages.iter().flatten().map(|access| table(&access.table)).collect()
        };
        Self {
            scenario,
            tables: scenario.classes.iter().map(of_class).collect(),
            rows: scenario.tables.iter().map(|table| table.rows).collect(),
            appended: appended.max(1),
            random: SmallRng::seed_from_u64(seed),
        }
    }

    /// A number from 0 to 1.
    pub(crate) fn even(&mut self) -> f64 {
        self.random.random::<f64>()
    }

    pub(crate) fn normal(&mut self) -> f64 {
        StandardNormal.sample(&mut self.random)
    }

    /// A time with this mean between events that know nothing of each other.
    pub(crate) fn between_events(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.even()).ln()
    }

    /// A relative position, `at_s` seconds after the beginning of the phase.
    fn position(&mut self, phase: &PhaseSpec, at_s: f64) -> f64 {
        let (mut choice, place) = (self.even(), self.even());
        let only = if phase.flip_seconds > 0.0 && !phase.hot.is_empty() {
            Some((at_s / phase.flip_seconds) as usize % phase.hot.len())
        } else {
            None
        };
        for (_, hot) in phase.hot.iter().enumerate().filter(|(at, _)| only.is_none_or(|only| only == *at)) {
            if choice < hot.share {
                let moved = hot.from + place * (hot.to - hot.from) + phase.wander_per_s * at_s;
                return moved.fract();
            }
            choice -= hot.share;
        }
        place
    }

    /// The next transaction, `at_s` seconds after the beginning of the phase.
    pub(crate) fn draw(&mut self, phase: &PhaseSpec, at_s: f64) -> Transaction {
        let scenario = self.scenario;
        let total: f64 = phase.mix.values().sum();
        let mut choice = self.even() * total;
        let mut class = 0;
        for (name, weight) in &phase.mix {
            class = scenario.classes.iter().position(|class| class.name == *name).unwrap_or(0);
            if choice < *weight {
                break;
            }
            choice -= weight;
        }
        let spec = &scenario.classes[class];
        let is_end = self.even() < phase.end_share;
        let position = self.position(phase, at_s);
        if is_end {
            self.rows.iter_mut().for_each(|rows| *rows += self.appended);
        }
        // The mean of a lognormal distribution is e^(s^2 / 2) times its median.
        let factor = (spec.spread * self.normal() - spec.spread * spec.spread / 2.0).exp();
        let mut accesses = SmallVec::new();
        let mut at = 0;
        for (stage, of_stage) in spec.stages.iter().enumerate() {
            for access in of_stage {
                let table = self.tables[class][at];
                at += 1;
                let rows = self.rows[table as usize];
                let other = match access.key {
                    KeyRelation::Same => position,
                    KeyRelation::Mirrored => 1.0 - position,
                    KeyRelation::Shuffled => shuffled(position, table as usize),
                    KeyRelation::Any => self.position(phase, at_s),
                };
                let key = if is_end && access.key == KeyRelation::Same {
                    rows - 1
                } else {
                    ((other * rows as f64) as u64).min(rows - 1)
                };
                accesses.push(Access { table, stage: stage as u32, key, ns: access.ns, owner: 0 });
            }
        }
        Transaction { class, accesses, factor }
    }

    /// Mean processor time of a transaction of the phase without any synchronization, in ns.
    pub(crate) fn mean_ns(scenario: &Scenario, phase: &PhaseSpec) -> f64 {
        let total: f64 = phase.mix.values().sum();
        let of = |(name, weight): (&String, &f64)| {
            let class = scenario.classes.iter().find(|class| class.name == *name);
            let ns = class.map_or(0.0, |class| {
                class.base_ns + class.stages.iter().flatten().map(|access| access.ns).sum::<f64>()
            });
            ns * weight / total
        };
        phase.mix.iter().map(of).sum()
    }
}
